//! `onefold top`: the page of a server, in a terminal.
//!
//! A thread asks the server, so that keys are read also while it does not answer. The terminal is restored at the end, when a signal comes, after an error, and
//! by a panic's hook. A terminal that goes away ends it, also where no signal says so.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::{DefaultTerminal, Terminal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::commands::cli::Target;
use crate::commands::screen::Screen;
use crate::io::input::{self, Waited};
use crate::operators::control::{self, Request};
use crate::operators::selection::Selection;
use crate::print::{print, shown};
use crate::report::recent::{Past, Rates};
use crate::report::status::Report;
use crate::store::backing;

/// Time from one request for figures to the next.
const PERIOD: Duration = Duration::from_secs(1);
/// Time that a key may wait until it is read.
const KEYS: Duration = Duration::from_millis(100);
/// Width of a frame of `--once`, in columns.
const ONCE_WIDTH: u16 = 100;
/// Number of volumes that are shown at most where there is space for any number.
const VOLUMES_MOST: usize = 50;

/// Figures and texts that are shown.
struct View {
    pool: String,
    report: Report,
    rates: Rates,
    past: Past,
    /// Text of the last line; empty for none.
    hint: &'static str,
    /// Reason why the figures are old; `None` if they are not.
    problem: Option<String>,
}

impl View {
    fn new(pool: String, report: Report) -> View {
        let mut past = Past::default();
        let rates = past.add(Instant::now(), &report);
        View { pool, report, rates, past, hint: "q ends this", problem: None }
    }

    fn screen(&self) -> Screen<'_> {
        Screen {
            pool: &self.pool,
            report: &self.report,
            rates: &self.rates,
            samples: self.past.samples().collect(),
            problem: self.problem.as_deref(),
            hint: self.hint,
            volumes_most: VOLUMES_MOST,
        }
    }

    fn take(&mut self, at: Instant, report: Report) {
        self.rates = self.past.add(at, &report);
        (self.report, self.problem) = (report, None);
    }
}

/// Shows the pool until a key or a signal ends it; with `once`, prints one frame.
pub fn top(target: &Target, once: bool) -> anyhow::Result<ExitCode> {
    let pool = shown(&target.pool);
    let first = ask(target)?;
    let mut view = View::new(pool, first);
    if once {
        std::thread::sleep(PERIOD);
        view.take(Instant::now(), ask(target)?);
        view.hint = "";
        print(format_args!("{}", frame_as_text(&view)?));
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() {
        bail!("the output is no terminal: 'onefold top {} --once' prints one frame", view.pool);
    }
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, ends.clone()).context("cannot catch signals")?;
    }
    let answers = follow(target.clone())?;
    let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
    let result = show(&mut terminal, &mut view, &answers, &ends);
    if ratatui::try_restore().is_err() {
        // The terminal is gone. The library would try to write to it, and panic because it cannot.
        std::mem::forget(terminal);
    }
    result.map(|()| ExitCode::SUCCESS)
}

/// Asks the server of the pool for its figures; without a server, the error says how to start one.
fn ask(target: &Target) -> anyhow::Result<Report> {
    let pool = target.pool.display();
    if backing::kind_of(&target.pool)?.is_none() {
        bail!("{pool} does not exist");
    }
    let report = control::call_server_of(&target.pool, target.control.as_deref(), &Request::status(Selection::ALL))?;
    report.with_context(|| {
        format!("no server has {pool}: 'onefold serve {pool}' starts one, 'onefold status {pool}' shows its contents")
    })
}

/// Asks once a second for the figures, on a thread of its own, and sends each answer to the receiver.
fn follow(target: Target) -> anyhow::Result<Receiver<anyhow::Result<Report>>> {
    let (sender, answers) = channel();
    let run = move || {
        loop {
            std::thread::sleep(PERIOD);
            if sender.send(ask(&target)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("figures".into()).spawn(run).context("cannot start a thread")?;
    Ok(answers)
}

fn show(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    answers: &Receiver<anyhow::Result<Report>>,
    ends: &AtomicBool,
) -> anyhow::Result<()> {
    let mut is_new = true;
    let keys = input::keyboard().context("cannot read from this terminal")?;
    while !ends.load(Ordering::Relaxed) {
        for answer in answers.try_iter() {
            is_new = true;
            match answer {
                Ok(report) => view.take(Instant::now(), report),
                Err(error) => view.problem = Some(format!("{error:#}")),
            }
        }
        if is_new {
            terminal.draw(|frame| view.screen().draw(frame)).context("cannot write to this terminal")?;
            is_new = false;
        }
        match input::wait(&keys, KEYS).context("cannot read from this terminal")? {
            Waited::Gone => return Ok(()),
            Waited::Nothing | Waited::Ready => {}
        }
        // A read of the library would wait without end on a terminal that is gone, so it reads only available input. The size may have changed, too.
        if !event::poll(Duration::ZERO).context("cannot read from this terminal")? {
            continue;
        }
        match event::read().context("cannot read from this terminal")? {
            Event::Key(key) => match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                _ => {}
            },
            Event::Resize(..) => is_new = true,
            _ => {}
        }
    }
    Ok(())
}

/// Renders one frame as lines, high enough for everything that is shown.
fn frame_as_text(view: &View) -> anyhow::Result<String> {
    let screen = view.screen();
    let mut terminal = Terminal::new(TestBackend::new(ONCE_WIDTH, screen.height(ONCE_WIDTH)))?;
    terminal.draw(|frame| screen.draw(frame))?;
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for line in buffer.content().chunks(usize::from(ONCE_WIDTH)) {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text.trim_end().to_string() + "\n")
}
