//! Cache of figures for all readers: requested of the reactor at most once in [`FRESH`], kept, and shown to readers that come meanwhile.
//!
//! A thread asks and waits, so that no other thread does; readers wait for it with a limit. Without readers it asks once in [`HISTORY_PERIOD`], for the
//! history and without volumes.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;
use hyper::body::Bytes;
use tokio::sync::watch;

use crate::operators::control::{self, Request, Response, Sending, ask_in_parts};
use crate::operators::selection::Selection;
use crate::report::recent::{HISTORY_PERIOD, Past, Rates, Sample};
use crate::report::status::Report;

/// Age of figures after which they are requested again.
pub const FRESH: Duration = Duration::from_secs(1);
/// Time that the reactor may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Figures of the pool at one moment.
pub struct Snapshot {
    /// Time at which they came.
    pub taken: Instant,
    /// Figures of the pool.
    pub report: Report,
    /// Rates since the figures before these.
    pub rates: Rates,
    /// History before them, the oldest first.
    pub samples: Vec<Sample>,
    /// Texts that were made of them for readers.
    pub made: Made,
}

/// Texts of a snapshot, each made at its first request.
#[derive(Default)]
pub struct Made {
    /// Output of `status --json`.
    pub json: OnceLock<Bytes>,
    /// Output of `status --prometheus`.
    pub metrics: OnceLock<Bytes>,
    /// HTML of the page without a search.
    pub page: OnceLock<Bytes>,
}

/// A snapshot, or the reason why there is none.
pub type Known = Result<Arc<Snapshot>, String>;

/// Last answer and the time at which it came; none before the first.
type News = Option<(Instant, Known)>;

/// The readers' end of the thread that asks for figures.
pub struct Figures {
    news: watch::Receiver<News>,
    wanted: SyncSender<()>,
}

impl Figures {
    /// Starts the thread that asks.
    pub fn start(sending: Sending) -> anyhow::Result<Figures> {
        let (publish, news) = watch::channel(None);
        // One queued request is enough for any number of readers.
        let (wanted, asked) = sync_channel(1);
        let run = move || follow(&asked, &sending, &publish);
        std::thread::Builder::new().name("figures".into()).spawn(run).context("cannot start a thread")?;
        Ok(Figures { news, wanted })
    }

    /// Returns figures that are no older than [`FRESH`], or the reason why there are none: the server did not answer in time, or refused.
    pub async fn fresh(&self) -> Known {
        let mut news = self.news.clone();
        if let Some((at, known)) = &*news.borrow_and_update()
            && at.elapsed() < FRESH
        {
            return known.clone();
        }
        // If the channel is full, another reader has just asked.
        let _ = self.wanted.try_send(());
        match tokio::time::timeout(PATIENCE, news.changed()).await {
            Ok(Ok(())) => news.borrow().clone().map_or_else(silent, |(_, known)| known),
            Ok(Err(_)) | Err(_) => silent(),
        }
    }
}

fn silent() -> Known {
    Err(format!(
        "the server has not answered for {} s: it is very busy, or its disk does not answer",
        PATIENCE.as_secs()
    ))
}

/// Asks whenever a reader wants figures that are not fresh, and every [`HISTORY_PERIOD`] for the history, until there are no readers' ends any more.
fn follow(asked: &Receiver<()>, sending: &Sending, publish: &watch::Sender<News>) {
    let mut past = Past::default();
    loop {
        match asked.recv_timeout(HISTORY_PERIOD) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => {
                // The history has no volumes, and no reader waits.
                if let Ok(report) = ask(Selection::NONE, sending) {
                    past.sample(Instant::now(), &report);
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // A reader that asked while the last answer was on its way has got that.
        if publish.borrow().as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH) {
            continue;
        }
        let known = ask(Selection::ALL, sending).map(|report| {
            let taken = Instant::now();
            let rates = past.add(taken, &report);
            let samples = past.samples().cloned().collect();
            Arc::new(Snapshot { taken, report, rates, samples, made: Made::default() })
        });
        publish.send_replace(Some((Instant::now(), known)));
    }
}

/// Asks the reactor for the figures and the selected volumes, in parts. Fails with the reason if there are none.
fn ask(volumes: Selection, sending: &Sending) -> Result<Report, String> {
    let one = |request: &Request| Ok::<_, String>(Some(control::ask(request.clone(), sending)));
    match ask_in_parts(&Request::status(volumes), one)? {
        Some(Response::Done(report) | Response::InForce(report)) => Ok(*report),
        Some(Response::Failed(reason) | Response::Later(reason)) => Err(reason),
        _ => Err("the server gave no figures".into()),
    }
}
