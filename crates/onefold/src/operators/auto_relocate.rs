//! Automatic relocation (`onefold set POOL relocate=auto`, or hours of the day): notes reads, makes a plan of them now and then, and runs the plan if it is
//! worth it. docs/papers/rededup.md says when.
//!
//! A thread of its own looks twice a minute, and sends the reactor an operator's requests. So the data path never waits for a plan, and all of it could be done
//! by hand. The operator's work goes first: a run that another client has begun or paused is left alone.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use engine::{PassState, Schedule};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tracing::{debug, info, warn};

use crate::operators::control::{self, Request, Response, RunAction, Sending};
use crate::operators::planning::{self, Asks, Taken};
use crate::operators::relocate::{Answer, Ask};
use crate::operators::selection::Selection;
#[cfg(feature = "faults")]
use crate::operators::set_clock::SetClock;
use crate::report::status::Report;
use crate::size;

/// Least saving of a plan that is worth a run: one in N device reads of its profile.
const WORTH_ONE_IN: u64 = 10;

/// Periods of looks, plans and runs.
#[derive(Clone, Copy, Debug)]
struct Periods {
    /// Time from one look to the next. A pool is idle if no client has sent a request between two of them.
    look: Duration,
    /// Time for which reads are noted before a plan is made, and from one plan that was not worth it to the next.
    noted: Duration,
    /// Time from the beginning of one run to that of the next.
    apart: Duration,
}

impl Periods {
    const USUAL: Periods = Periods {
        look: Duration::from_secs(30),
        noted: Duration::from_secs(3600),
        apart: Duration::from_secs(12 * 3600),
    };
}

/// Clock that sets the moments of looks, and the time at each.
enum Clock {
    /// Clock of this machine, with the moment at which it was begun.
    Real(Instant),
    #[cfg(feature = "faults")]
    Set(SetClock),
}

impl Clock {
    fn begin() -> Clock {
        #[cfg(feature = "faults")]
        if let Some(set) = SetClock::from_environment("seen") {
            return Clock::Set(set);
        }
        Clock::Real(Instant::now())
    }

    /// Waits for the next look; returns the time since the beginning, and the hour of the day in the local time zone.
    fn wait(&mut self, period: Duration) -> (Duration, u8) {
        match self {
            Clock::Real(began) => {
                std::thread::sleep(period);
                (began.elapsed(), hour(Timestamp::now()))
            }
            #[cfg(feature = "faults")]
            Clock::Set(set) => {
                let (elapsed, now) = set.wait();
                (elapsed, hour(now))
            }
        }
    }
}

/// Returns the hour of the day in the local time zone, 0 to 23.
fn hour(now: Timestamp) -> u8 {
    u8::try_from(now.to_zoned(TimeZone::system()).hour()).unwrap_or(0)
}

/// State of the pool at a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    /// Time since the server began.
    now: Duration,
    /// Hour of the day in the local time zone, 0 to 23.
    hour: u8,
    schedule: Schedule,
    /// State of the last run.
    state: PassState,
    /// Set while the last run is paused because metadata is short.
    is_short: bool,
    /// Blocks that the last run was to move, and blocks that it has moved.
    blocks: (u64, u64),
    /// Requests of clients so far.
    requests: u64,
}

/// Action that results from a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Nothing,
    /// Begin to note reads.
    Note,
    /// Begin to note reads, and forget those that an operator has noted before a run.
    NoteAnew,
    /// Forget the reads noted so far, and continue noting.
    Renew,
    /// Stop noting reads, and forget those noted so far.
    Forget,
    /// Make a plan, and run it if it is worth it.
    Plan,
    /// Pause the run: its hours are over.
    Rest,
    /// Go on with the run: its hours have come.
    GoOn,
    /// Go on with the run: it was short of metadata, and that may have changed.
    TryAgain,
    /// End the run.
    End,
}

/// Run that this thread has begun without a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ours {
    Goes,
    /// Paused, since its hours are over.
    Rests,
}

/// State that is kept from one look to the next.
#[derive(Debug)]
struct AutoRelocate {
    periods: Periods,
    /// Time since which reads are noted; `None` while they are not.
    noted: Option<Duration>,
    ours: Option<Ours>,
    /// Time at which a run was begun last.
    begun: Option<Duration>,
    /// Time at which a run that was short of metadata was tried again last.
    tried: Option<Duration>,
    /// Time at which a plan was made last, and the number of reads that it was made of.
    planned: Option<(Duration, u64)>,
    /// State at the last look.
    before: Option<Seen>,
}

impl AutoRelocate {
    fn new(periods: Periods) -> AutoRelocate {
        AutoRelocate { periods, noted: None, ours: None, begun: None, tried: None, planned: None, before: None }
    }

    /// Decides on the next step by the state of the pool, and keeps that state for the next look.
    fn look(&mut self, seen: Seen) -> Step {
        let before = self.before.replace(seen);
        let may_run = match seen.schedule {
            Schedule::Off => return self.switched_off(seen),
            Schedule::Auto => true,
            Schedule::Hours(hours) => hours.has(seen.hour),
        };
        match (seen.state, self.ours) {
            (PassState::Running, Some(Ours::Goes)) if !may_run => {
                self.ours = Some(Ours::Rests);
                return Step::Rest;
            }
            (PassState::Paused, Some(Ours::Rests)) if may_run => {
                self.ours = Some(Ours::Goes);
                return Step::GoOn;
            }
            (PassState::Paused, Some(Ours::Goes)) if seen.is_short => {
                let since = self.tried.max(self.begun).unwrap_or_default();
                if may_run && seen.now.saturating_sub(since) >= self.periods.noted {
                    self.tried = Some(seen.now);
                    return Step::TryAgain;
                }
            }
            // An operator may have resumed or paused it.
            (PassState::Running, Some(Ours::Rests)) | (PassState::Paused, Some(Ours::Goes)) => self.ours = None,
            _ => {}
        }
        if is_in_progress(seen.state) {
            return Step::Nothing;
        }
        // Reads noted before a run name the blocks' old places. This holds also for an operator's run that ended between two looks.
        let ended = before.is_some_and(|before| is_in_progress(before.state) || before.blocks != seen.blocks);
        if (ended || self.ours.take().is_some()) && self.noted.is_some() {
            (self.noted, self.planned) = (Some(seen.now), None);
            return Step::Renew;
        }
        let Some(noted) = self.noted else {
            (self.noted, self.planned) = (Some(seen.now), None);
            let is_stale = matches!(seen.state, PassState::Finished | PassState::Stopped);
            return if is_stale { Step::NoteAnew } else { Step::Note };
        };
        let is_past = |since: Duration, period: Duration| seen.now.saturating_sub(since) >= period;
        let is_due = is_past(noted, self.periods.noted)
            && self.planned.is_none_or(|(at, _)| is_past(at, self.periods.noted))
            && self.begun.is_none_or(|at| is_past(at, self.periods.apart));
        // Named hours already say when clients are to share the disk.
        let is_idle = before.is_some_and(|before| before.requests == seen.requests);
        if is_due && may_run && (is_idle || seen.schedule != Schedule::Auto) { Step::Plan } else { Step::Nothing }
    }

    fn switched_off(&mut self, seen: Seen) -> Step {
        if self.ours.take().is_some() && is_in_progress(seen.state) {
            return Step::End;
        }
        if self.noted.take().is_some() { Step::Forget } else { Step::Nothing }
    }

    /// Carries a step out, by the requests that an operator would send.
    fn perform(&mut self, step: Step, now: Duration, asks: Asks<'_>) -> anyhow::Result<()> {
        let run = |action: RunAction| asks(&Request::Run(action)).map(drop);
        match step {
            Step::Nothing => Ok(()),
            Step::Note => planning::ask(asks, Ask::Start).map(drop),
            Step::NoteAnew => planning::ask(asks, Ask::Start).and_then(|_| planning::ask(asks, Ask::Renew)).map(drop),
            Step::Renew => planning::ask(asks, Ask::Renew).map(drop),
            Step::Forget => planning::ask(asks, Ask::Stop).map(drop),
            Step::Rest => {
                info!("relocation rests: its hours are over");
                run(RunAction::Pause)
            }
            Step::GoOn => {
                info!("relocation goes on: its hours have come");
                run(RunAction::Start)
            }
            Step::TryAgain => {
                info!("relocation goes on: it was short of metadata, and tries again");
                run(RunAction::Start)
            }
            Step::End => {
                info!("relocation ends: it was switched off");
                run(RunAction::Stop)
            }
            Step::Plan => self.plan(now, asks),
        }
    }

    /// Makes a plan, and begins to run it if it is worth it.
    fn plan(&mut self, now: Duration, asks: Asks<'_>) -> anyhow::Result<()> {
        let Answer::Summary { on, reads, .. } = planning::ask(asks, Ask::Summary)? else { bail!("no summary") };
        if !on {
            // An operator has ended it.
            self.noted = None;
            return Ok(());
        }
        let known = self.planned.replace((now, reads));
        if known.is_some_and(|(_, before)| before == reads) {
            return Ok(());
        }
        let taken = Taken::from(asks)?;
        let (plan, _) = taken.plan(None);
        let reads = taken.forecast(&plan).all();
        let (before, after) = (reads.before, reads.after);
        let bytes = size::show(plan.blocks().saturating_mul(planning::BLOCK));
        if !is_worth(before, after) || !planning::send(asks, &plan)? {
            debug!("no relocation: a plan would move {bytes} to make {after} device reads of {before}");
            return Ok(());
        }
        asks(&Request::Run(RunAction::Start))?;
        (self.ours, self.begun) = (Some(Ours::Goes), Some(now));
        info!("automatic relocation begins: it moves {bytes} to make {after} device reads of {before}");
        Ok(())
    }
}

fn is_in_progress(state: PassState) -> bool {
    matches!(state, PassState::Running | PassState::Paused)
}

/// Returns true if a plan that cuts `before` device reads to `after` saves at least one in [`WORTH_ONE_IN`], and at least one read.
fn is_worth(before: u64, after: u64) -> bool {
    before.saturating_sub(after) >= before.div_ceil(WORTH_ONE_IN).max(1)
}

/// Extracts the state for a look from the server's report; an unknown state of the run or schedule is an error.
fn seen(report: &Report, now: Duration, hour: u8) -> anyhow::Result<Seen> {
    let run = &report.relocate;
    let state = PassState::named(&run.state).context("a run in a state that is not known")?;
    let latency = &report.latency;
    let kinds = [&latency.read, &latency.write, &latency.flush, &latency.other];
    Ok(Seen {
        now,
        hour,
        schedule: run.by_itself.parse()?,
        state,
        is_short: run.short_of_space,
        blocks: (run.planned_blocks, run.moved_blocks),
        requests: kinds.iter().map(|kind| kind.requests).sum(),
    })
}

/// Looks from here on, until the server ends.
pub fn start(sending: Sending) -> anyhow::Result<()> {
    let run = move || follow(&sending);
    std::thread::Builder::new().name("relocation".into()).spawn(run).context("cannot start a thread")?;
    Ok(())
}

fn follow(sending: &Sending) {
    let mut clock = Clock::begin();
    let mut auto = AutoRelocate::new(Periods::USUAL);
    let asks = |request: &Request| match control::ask(request.clone(), sending) {
        Response::Failed(reason) | Response::Later(reason) => bail!(reason),
        response => Ok(response),
    };
    // The last complaint: none is repeated.
    let mut said = String::new();
    if let Err(error) = TimeZone::try_system() {
        warn!(
            "hours for relocation are those of UTC, as the time zone is not known: {error}; set TZ or /etc/localtime"
        );
    }
    loop {
        let (now, hour) = clock.wait(auto.periods.look);
        // It is being opened, or has stopped.
        let Response::Done(report) = control::ask(Request::status(Selection::NONE), sending) else { continue };
        if report.mode != "normal" {
            continue;
        }
        let done = seen(&report, now, hour).and_then(|seen| {
            let step = auto.look(seen);
            auto.perform(step, seen.now, &asks)
        });
        if let Err(error) = done {
            let text = format!("{error:#}");
            if said != text {
                warn!("automatic relocation: {text}");
                said = text;
            }
            // A profile that could not begin is tried again.
            if auto.planned.is_none() {
                auto.noted = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn seen(schedule: &str, minutes: u64) -> Seen {
        Seen {
            now: Duration::from_secs(60 * minutes),
            hour: (minutes / 60 % 24) as u8,
            schedule: schedule.parse().unwrap(),
            state: PassState::Never,
            is_short: false,
            blocks: (0, 0),
            requests: 0,
        }
    }

    fn auto() -> AutoRelocate {
        AutoRelocate::new(Periods::USUAL)
    }

    fn begin(auto: &mut AutoRelocate, now: Duration) {
        (auto.ours, auto.begun, auto.planned) = (Some(Ours::Goes), Some(now), Some((now, 1)));
    }

    #[test]
    fn a_pool_that_nobody_has_set_is_left_alone() {
        let mut auto = auto();
        assert!((0..3000).all(|minute| auto.look(seen("off", minute)) == Step::Nothing));
    }

    #[test]
    fn a_plan_is_made_of_the_reads_of_an_hour_when_nobody_asks_for_anything() {
        let mut auto = auto();
        assert_eq!(auto.look(seen("auto", 0)), Step::Note);
        assert!((1..60).all(|minute| auto.look(seen("auto", minute)) == Step::Nothing));
        let busy = Seen { requests: 7, ..seen("auto", 61) };
        assert_eq!(auto.look(busy), Step::Nothing);
        assert_eq!(auto.look(Seen { requests: 7, ..seen("auto", 62) }), Step::Plan);
        // The plan was not worth it: the next attempt is in an hour.
        auto.planned = Some((62 * HOUR / 60, 9));
        assert!((63..122).all(|minute| auto.look(Seen { requests: 7, ..seen("auto", minute) }) == Step::Nothing));
        assert_eq!(auto.look(Seen { requests: 7, ..seen("auto", 122) }), Step::Plan);
    }

    #[test]
    fn after_a_run_reads_are_noted_anew_and_the_next_one_waits() {
        let mut auto = auto();
        auto.look(seen("auto", 0));
        begin(&mut auto, HOUR);
        assert_eq!(auto.look(Seen { state: PassState::Running, ..seen("auto", 61) }), Step::Nothing);
        let after = |minute| Seen { state: PassState::Finished, blocks: (9, 9), ..seen("auto", minute) };
        assert_eq!(auto.look(after(62)), Step::Renew);
        let first = (63..2000).find(|&minute| auto.look(after(minute)) == Step::Plan);
        assert_eq!(first, Some(13 * 60));
    }

    #[test]
    fn a_run_rests_outside_its_hours_and_goes_on_in_them() {
        let mut auto = auto();
        assert_eq!(auto.look(seen("01-03", 0)), Step::Note);
        // In its hours it does not wait until the clients are silent.
        let busy = |minute| Seen { requests: minute, ..seen("01-03", minute) };
        assert!((1..60).all(|minute| auto.look(busy(minute)) == Step::Nothing));
        assert_eq!(auto.look(busy(60)), Step::Plan);
        begin(&mut auto, HOUR);
        let goes = |minute| Seen { state: PassState::Running, ..busy(minute) };
        let rests = |minute| Seen { state: PassState::Paused, ..busy(minute) };
        assert_eq!((auto.look(goes(179)), auto.look(goes(180))), (Step::Nothing, Step::Rest));
        assert!((181..1500).all(|minute| auto.look(rests(minute)) == Step::Nothing));
        assert_eq!((auto.look(rests(1500)), auto.look(goes(1501))), (Step::GoOn, Step::Nothing));
    }

    #[test]
    fn what_an_operator_has_begun_or_paused_is_left_alone() {
        let mut auto = auto();
        auto.look(seen("01-03", 0));
        let goes = |minute| Seen { state: PassState::Running, ..seen("01-03", minute) };
        let rests = |minute| Seen { state: PassState::Paused, ..seen("01-03", minute) };
        assert!((1..300).all(|minute| auto.look(goes(minute)) == Step::Nothing));
        assert_eq!(auto.look(Seen { blocks: (5, 5), state: PassState::Finished, ..seen("01-03", 300) }), Step::Renew);
        begin(&mut auto, 25 * HOUR);
        assert!((1500..5000).all(|minute| auto.look(rests(minute)) == Step::Nothing));
        // Theirs from here on, also outside the hours.
        begin(&mut auto, 97 * HOUR);
        auto.look(goes(97 * 60));
        assert_eq!(auto.look(goes(99 * 60)), Step::Rest);
        assert!((99 * 60 + 1..100 * 60).all(|minute| auto.look(goes(minute)) == Step::Nothing));
    }

    #[test]
    fn a_run_that_its_operator_has_paused_is_theirs() {
        let mut auto = auto();
        auto.look(seen("01-03", 0));
        begin(&mut auto, HOUR);
        auto.look(Seen { state: PassState::Paused, ..seen("01-03", 61) });
        let goes = |minute| Seen { state: PassState::Running, ..seen("01-03", minute) };
        assert!((62..300).all(|minute| auto.look(goes(minute)) == Step::Nothing));
    }

    #[test]
    fn a_run_that_is_short_of_metadata_is_tried_again_each_hour() {
        let mut auto = auto();
        auto.look(seen("auto", 0));
        begin(&mut auto, HOUR);
        let short = |minute| Seen { state: PassState::Paused, is_short: true, ..seen("auto", minute) };
        let tries: Vec<_> = (61..300).filter(|&minute| auto.look(short(minute)) == Step::TryAgain).collect();
        assert_eq!(tries, [120, 180, 240]);
    }

    #[test]
    fn switched_on_after_a_run_it_notes_anew() {
        let mut auto = auto();
        let after = |state, minute| Seen { state, ..seen("auto", minute) };
        assert_eq!(auto.look(after(PassState::Finished, 0)), Step::NoteAnew);
    }

    #[test]
    fn switched_off_it_ends_its_run_and_forgets_the_reads() {
        let mut auto = auto();
        auto.look(seen("auto", 0));
        begin(&mut auto, HOUR);
        let off = |minute, state| Seen { state, ..seen("off", minute) };
        assert_eq!(auto.look(off(61, PassState::Running)), Step::End);
        assert_eq!(auto.look(off(62, PassState::Stopped)), Step::Forget);
        assert_eq!(auto.look(off(63, PassState::Stopped)), Step::Nothing);
        // An operator's run stays theirs.
        assert_eq!(auto.look(off(64, PassState::Running)), Step::Nothing);
    }

    #[test]
    fn a_tenth_of_the_reads_is_worth_a_run() {
        for (before, after, worth) in
            [(100, 90, true), (100, 91, false), (0, 0, false), (1, 0, true), (5, 9, false), (u64::MAX, 0, true)]
        {
            assert_eq!(is_worth(before, after), worth, "{before} -> {after}");
        }
    }
}
