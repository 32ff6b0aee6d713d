//! Replay of recordings (`sim rerun`): makes the calls of a recording (`onefold serve --record`) again, to a fresh engine, and observes its behaviour.
//!
//! The engine is a pure function of its calls, so it must want the same effects in the same order. The first different effect is a *divergence*, and ends the
//! run. Its answers are judged by an oracle that knows only the recording ([`oracle`]): a wrong one is a *violation*. So is a panic. The file is read twice,
//! the first time to find the end of its undamaged part.

pub mod oracle;

use std::fmt;
use std::io::{Read, Seek, SeekFrom};

use engine::recording::{BadHeader, Call, Decoded, Decoder, EffectHash, Ending, Header, Unreturned, decode_header};
use engine::{Effect, Engine, Event, Nanos, Outcome};

use crate::transcript::Trace;
use crate::{Checked, guarded, violated};
use oracle::Oracle;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;
/// Number of violations that are kept; more are only counted.
const KEPT: usize = 20;

/// Extent and output of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Print the calls from this one on, to standard error.
    pub trace_from: Option<u64>,
    /// The last call to make.
    pub until: Option<u64>,
}

/// Results of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Calls made; consecutive effects taken count as one.
    pub calls: u64,
    /// Requests submitted.
    pub requests: u64,
    /// I/Os that the engine wanted.
    pub ios: u64,
    /// The time of the last event, since the first.
    pub nanos: Nanos,
    /// Blocks of answers that were compared with their written content.
    pub checked: u64,
    /// Blocks of answers for which the recording does not define the content.
    pub unknown: u64,
    /// Reason why the recording ended; `None` if it just breaks off, or the run did not get there.
    pub ending: Option<Ending>,
    /// True if all calls of the recording were made.
    pub is_whole: bool,
    /// Call after which the file is damaged.
    pub damaged: Option<u64>,
    /// First divergence, with its call.
    pub divergence: Option<String>,
    /// Violations with their calls: the first ones.
    pub violations: Vec<String>,
    /// Number of all violations.
    pub violated: u64,
    /// Requests that had no answer yet at the end.
    pub in_flight: Vec<String>,
}

impl Report {
    /// Returns true if there is no damage, divergence or violation.
    pub fn is_good(&self) -> bool {
        self.damaged.is_none() && self.divergence.is_none() && self.violated == 0
    }

    fn violation(&mut self, text: impl fmt::Display) {
        self.violated += 1;
        if self.violations.len() < KEPT {
            self.violations.push(format!("at call {}: {text}", self.calls));
        }
    }

    /// Formats the line of counts.
    pub fn line(&self) -> String {
        let Report { calls, requests, ios, checked, unknown, violated, .. } = self;
        format!(
            "{calls} calls, {requests} requests, {ios} I/Os, {checked} blocks read and checked, {unknown} not known, \
             {:.3} virtual seconds, {} divergences, {violated} violations",
            self.nanos as f64 / 1e9,
            u64::from(self.divergence.is_some())
        )
    }
}

/// The calls of a file, one after the other.
struct Calls<F> {
    file: F,
    bytes: Vec<u8>,
    at: usize,
    decoder: Decoder,
}

/// Kinds of data that follow in a file.
enum Next {
    Call,
    End,
    Damaged,
}

impl<F: Read + Seek> Calls<F> {
    fn open(mut file: F) -> Result<(Calls<F>, Header), String> {
        let said = |error: std::io::Error| format!("cannot be read: {error}");
        file.seek(SeekFrom::Start(0)).map_err(said)?;
        let mut bytes = Vec::new();
        file.by_ref().take(CHUNK as u64).read_to_end(&mut bytes).map_err(said)?;
        let (header, decoder, at) = decode_header(&bytes).map_err(|bad| match bad {
            BadHeader::Incomplete => "the recording breaks off in its header: nothing was recorded".to_string(),
            BadHeader::Foreign => "this is no recording".to_string(),
            BadHeader::Version(version) => {
                format!(
                    "format version {version} of recordings is not known here: use the simulator of the program that made it"
                )
            }
            BadHeader::Damaged => "the header of the recording is damaged".to_string(),
        })?;
        Ok((Calls { file, bytes, at, decoder }, header))
    }

    fn next(&mut self) -> Result<Next, String> {
        loop {
            match self.decoder.decode(&self.bytes[self.at..]) {
                Decoded::Call(length) => {
                    self.at += length;
                    return Ok(Next::Call);
                }
                Decoded::Damaged => return Ok(Next::Damaged),
                Decoded::Incomplete => {}
            }
            self.bytes.drain(..self.at);
            self.at = 0;
            let count = self.file.by_ref().take(CHUNK as u64).read_to_end(&mut self.bytes);
            if count.map_err(|error| format!("cannot be read: {error}"))? == 0 {
                return Ok(Next::End);
            }
        }
    }
}

/// Extent to which a recording is whole.
struct Survey {
    /// Calls that can be made again.
    calls: u64,
    damaged: bool,
}

fn survey(file: impl Read + Seek) -> Result<Survey, String> {
    let (mut calls, _) = Calls::open(file)?;
    let (mut count, mut proven) = (0, 0);
    loop {
        match calls.next()? {
            Next::Call => match calls.decoder.call() {
                Call::TraceHash(_) => proven = count,
                Call::End(_) => return Ok(Survey { calls: count, damaged: false }),
                _ => count += 1,
            },
            Next::End => return Ok(Survey { calls: count, damaged: false }),
            Next::Damaged => return Ok(Survey { calls: proven, damaged: true }),
        }
    }
}

/// Replays a recording. Fails with a message if it cannot be read.
pub fn rerun(mut file: impl Read + Seek, options: Options) -> Result<(Header, Report), String> {
    let Survey { calls: whole, damaged } = survey(&mut file)?;
    let (mut calls, header) = Calls::open(file)?;
    let most = options.until.map_or(whole, |until| until.min(whole));
    let mut run = Run {
        engine: header.open(),
        effects: EffectHash::new(&header.parameters),
        oracle: Oracle::new(&header.parameters.geometry),
        report: Report { damaged: damaged.then_some(whole), ..Report::default() },
        now: header.now,
        marked: 0,
        trace_from: options.trace_from.unwrap_or(u64::MAX),
    };
    let mut broken = None;
    let result = guarded(|| {
        loop {
            match calls.next() {
                Ok(Next::Call) => {}
                Ok(Next::End | Next::Damaged) => return Ok(()),
                Err(text) => {
                    broken = Some(text);
                    return Ok(());
                }
            }
            let call = calls.decoder.call();
            let counts = !matches!(call, Call::TraceHash(_) | Call::End(_));
            if counts && run.report.calls == most {
                return Ok(());
            }
            run.report.calls += u64::from(counts);
            if let Some(ending) = run.make(call)? {
                run.report.ending = Some(ending);
                return Ok(());
            }
        }
    });
    if let Some(text) = broken {
        return Err(text);
    }
    let Run { engine, oracle, mut report, now, .. } = run;
    report.is_whole = result.is_ok() && !damaged && report.calls == whole;
    match result {
        Ok(()) => {
            let stages = engine.in_flight().take(KEPT);
            report.in_flight = stages.map(|(token, stage)| format!("request {token} at stage {stage:?}")).collect();
        }
        Err(found) if found.0.starts_with("panic") => report.violation(found),
        Err(found) => report.divergence = Some(format!("at call {}: {found}", report.calls)),
    }
    (report.checked, report.unknown) = (oracle.checked, oracle.unknown);
    report.nanos = now - header.now;
    Ok((header, report))
}

/// An engine on its way through a recording.
struct Run {
    engine: Engine,
    effects: EffectHash,
    oracle: Oracle,
    report: Report,
    now: Nanos,
    /// Call of the last mark.
    marked: u64,
    trace_from: u64,
}

impl Run {
    /// Makes one call; an error is a divergence.
    fn make(&mut self, call: Call<'_>) -> Checked<Option<Ending>> {
        if let Call::Handle { now, .. } = call {
            self.now = self.now.max(now);
        }
        if !matches!(call, Call::Effects { .. }) {
            self.print(|| words(&call));
        }
        match call {
            Call::Handle { now, event } => {
                self.report.requests += u64::from(matches!(event, Event::Submit(_)));
                self.oracle.event(self.report.calls, &self.engine, &event);
                self.engine.handle(now, event);
            }
            Call::TakeBuffer(recorded) => {
                let buffer = self.engine.take_buffer();
                if buffer != recorded {
                    return violated(format!("take_buffer gives {buffer:?}, and gave {recorded:?}"));
                }
                let judged = buffer.map_or(Ok(()), |buffer| self.oracle.take(buffer));
                self.judge(judged);
            }
            Call::ReturnBuffer(buffer) => self.engine.return_buffer(buffer),
            Call::SetLimits(limits) => self.engine.set_limits(limits),
            Call::Effects { taken, drained } => {
                for number in 0..taken {
                    let Some(effect) = self.engine.next_effect() else {
                        return violated(format!("the engine wants {number} effects, and wanted {taken} or more"));
                    };
                    self.take(effect);
                }
                if drained && let Some(effect) = self.engine.next_effect() {
                    return violated(format!("the engine wants {effect:?}, and wanted nothing more"));
                }
            }
            Call::TraceHash(hash) => {
                if hash != self.effects.hash() {
                    return violated(format!("an effect since call {} is not the recorded one", self.marked));
                }
                self.marked = self.report.calls;
            }
            Call::Unreturned(Unreturned::NextEffect) => {
                if let Some(effect) = self.engine.next_effect() {
                    self.take(effect);
                }
            }
            Call::Unreturned(Unreturned::TakeBuffer) => drop(self.engine.take_buffer()),
            Call::End(ending) => return Ok(Some(ending)),
        }
        Ok(None)
    }

    fn take(&mut self, effect: Effect) {
        self.effects.add(&self.engine, effect);
        self.report.ios += u64::from(matches!(effect, Effect::Io(_)));
        self.print(|| match effect {
            Effect::Io(io) => format!("  io {} {:?}", io.0, self.engine.io(io)),
            effect => format!("  {effect:?}"),
        });
        let judged = self.oracle.effect(self.report.calls, &self.engine, effect);
        self.judge(judged);
    }

    fn judge(&mut self, judged: Checked) {
        if let Err(violation) = judged {
            self.print(|| format!("  violation: {violation}"));
            self.report.violation(violation);
        }
    }

    fn print(&self, text: impl FnOnce() -> String) {
        if self.report.calls >= self.trace_from {
            Trace::new(true).note(self.now, 0, &[], || format!("{:>9}  {}", self.report.calls, text()));
        }
    }
}

/// Formats a call, with the length of long pages instead of their bytes.
fn words(call: &Call<'_>) -> String {
    match call {
        Call::Handle { event: Event::Done { io, result: Ok(Outcome::Bytes(bytes)) }, .. } => {
            format!("done io {}: {} bytes read", io.0, bytes.len())
        }
        Call::Handle { event, .. } => format!("{event:?}"),
        call => format!("{call:?}"),
    }
}

#[cfg(test)]
mod tests;
