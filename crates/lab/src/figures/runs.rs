//! Replays that figures are made of: each is done once, whichever figures want it. Days before the one that is measured are gone through
//! once for a trace, and every replay of it begins there.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::Nanos;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::sources::{Sources, When};
use crate::Violation;
use crate::disks::Disk;
use crate::disks::drive::{Drive, WriteCache};
use crate::disks::hdd::{Hdd, Options};
use crate::disks::raid5::{Array, Level, STRIPE_CACHE};
use crate::parallel::in_order;
use crate::replay::driver::{Fold, Replay, Setup};
use crate::replay::in_place::{InPlace, Layout, Warm};
use crate::replay::onefold::{Onefold, Warmed};
pub use crate::replay::outcome::Outcome;
use crate::replay::scheme::Scheme;
use crate::traces::stat::{Figures as Stated, Stat};
use crate::traces::synthetic::Profile;
use crate::traces::{BLOCK, Request};

/// In the short form, so much of the day is replayed.
const QUICK_UNTIL: Nanos = 2 * 3600 * 1_000_000_000;
/// Linux md's bounds for a rebuild, in KB/s of each disk: POD's 10 MB/s, and md's default.
const SPEED_MIN: u64 = 10_240;
const SPEED_MAX: u64 = 200_000;

/// The most memory that a replay has, in percent of the paper's.
pub const MOST_MEMORY_PERCENT: u64 = 400;

/// The disks of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Disks {
    /// Disks of the array; 1 is a single disk.
    pub members: usize,
    /// Bytes of a stripe on one disk.
    pub stripe_unit: u64,
    /// Rows of the array's stripe cache: writes wait for a place there, reads do not.
    pub stripe_cache: usize,
    /// Whether disks acknowledge writes from their caches.
    pub write_cache: bool,
    /// Bytes of each disk that are used; none: all.
    pub size: Option<u64>,
    /// Whether one member is being rebuilt meanwhile.
    pub rebuilds: bool,
}

impl Disks {
    /// POD's: a RAID5 of four disks, 64 KiB of a stripe on each (section 4.2).
    pub const POD: Disks = Disks {
        members: 4,
        stripe_unit: 64 << 10,
        stripe_cache: STRIPE_CACHE,
        write_cache: false,
        size: None,
        rebuilds: false,
    };
    /// POD's rebuild: four disks of 10 GB (section 4.4).
    pub const POD_REBUILD: Disks = Disks { size: Some(10_000_000_000), rebuilds: true, ..Disks::POD };
}

/// One replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Whose day.
    pub trace: Profile,
    /// What is done with it.
    pub scheme: Scheme,
    /// Or by Onefold itself, whatever the scheme.
    pub onefold: Option<Onefold>,
    /// The paper's memory for this trace, times so many percent.
    pub memory_percent: u64,
    /// Time of the processor for a digest, in microseconds.
    pub digest_micros: u64,
    /// On what.
    pub disks: Disks,
    /// Whether addresses that do not fit are squeezed, else wrapped.
    pub squeezes: bool,
}

impl Run {
    /// As the paper has it.
    pub const fn pod(trace: Profile, scheme: Scheme) -> Run {
        Run { trace, scheme, onefold: None, memory_percent: 100, digest_micros: 32, disks: Disks::POD, squeezes: false }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> u64 {
        paper_memory(self.trace) * self.memory_percent / 100
    }
}

/// The memory that POD gives a trace (section 4.1).
pub fn paper_memory(trace: Profile) -> u64 {
    match trace {
        Profile::WebVm => 100 << 20,
        Profile::Homes | Profile::Mail => 500 << 20,
    }
}

/// The outcomes of all replays.
pub struct Results {
    /// Whether this is the short form.
    pub quick: bool,
    /// What replaces the stand-ins.
    pub sources: Sources,
    outcomes: Vec<(Run, Outcome)>,
    days: [OnceCell<Stated>; 3],
}

impl Results {
    /// The outcome of a replay, which the figure must have asked for.
    pub fn of(&self, run: Run) -> &Outcome {
        let found = self.outcomes.iter().find(|(done, _)| *done == run);
        &found.unwrap_or_else(|| panic!("the figure did not ask for {run:?}")).1
    }

    /// What the measured day of a trace has.
    pub fn day(&self, trace: Profile) -> &Stated {
        let make = || self.sources.stated(trace, self.quick, &AtomicBool::new(false));
        // Files of a user have been read before; a stand-in can always be made.
        self.days[trace as usize].get_or_init(|| make().expect("a stand-in can be made"))
    }

    /// Of these it is so.
    fn has_day(&self, trace: Profile, stated: Stated) {
        let _ = self.days[trace as usize].set(stated);
    }
}

/// Why there are no outcomes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// `stop` became true.
    Interrupted,
    /// A disk does not exist as it was asked for.
    Disk(String),
    /// A file cannot be read, or is not what it has to be.
    Trace(String),
    /// The engine does something that it must not do, or cannot have such a pool.
    Engine(String),
}

/// Does the replays, in so many threads.
pub fn run_all(
    runs: &[Run],
    sources: &Sources,
    quick: bool,
    threads: usize,
    stop: &AtomicBool,
) -> Result<Results, Stopped> {
    let mut results = Results {
        quick,
        sources: sources.clone(),
        outcomes: Vec::new(),
        days: std::array::from_fn(|_| OnceCell::new()),
    };
    // A user's files: what is wrong with them is said before hours have passed.
    for given in sources.given() {
        results.has_day(given.trace, sources.stated(given.trace, quick, stop)?);
    }
    let mut wanted: Vec<Run> = Vec::new();
    for run in runs {
        if !wanted.contains(run) {
            wanted.push(*run);
        }
    }
    // Replays that begin at the same state follow each other.
    wanted.sort_by_key(|run| (run.trace as u8, run.disks.size, run.squeezes));
    let bar = ProgressBar::with_draw_target(Some(wanted.len() as u64), ProgressDrawTarget::stderr());
    bar.set_style(
        ProgressStyle::with_template("{msg:12} {wide_bar} {pos}/{len} replays, {eta} left").expect("a good template"),
    );
    for runs in wanted.chunk_by(|one, other| start(one) == start(other)) {
        bar.set_message(runs[0].trace.name());
        let done = group(runs, &results, threads, stop, &bar)?;
        results.outcomes.extend(done);
    }
    bar.finish_and_clear();
    Ok(results)
}

/// What a replay begins with.
fn start(run: &Run) -> (Profile, Option<u64>, bool) {
    (run.trace, run.disks.size, run.squeezes)
}

fn group(
    runs: &[Run],
    results: &Results,
    threads: usize,
    stop: &AtomicBool,
    bar: &ProgressBar,
) -> Result<Vec<(Run, Outcome)>, Stopped> {
    let (trace, quick) = (runs[0].trace, results.quick);
    // The same whatever figures are made together: where things are on the disk depends on it.
    let most_memory = paper_memory(trace) * MOST_MEMORY_PERCENT / 100;
    let disk = disk(&runs[0].disks)?;
    let capacity = runs[0].disks.size.map_or(disk.capacity(), |size| (runs[0].disks.members as u64 - 1) * size);
    let layout = Layout::of(capacity / BLOCK, most_memory);
    let fold = match runs[0].squeezes {
        true => Fold::Squeeze { span: results.sources.span(trace, quick, stop)? },
        false => Fold::Wrap,
    };
    let mut start = Warm::new(layout.data, most_memory);
    let (mut recent, mut measured) = (Vec::new(), Vec::new());
    let mut stat = Stat::default();
    let wants_onefold = runs.iter().any(|run| run.onefold.is_some());
    results.sources.days(trace, quick, stop, |when, mut request| {
        if when == When::Measured {
            stat.add(&request);
        }
        fold.fold(&mut request, layout.data);
        if when == When::Measured {
            return measured.push(request);
        }
        start.request(&request);
        // Onefold's pool is written in order, and then has only this: its state is larger than the schemes'.
        if wants_onefold && when == When::Recent {
            recent.push(request);
        }
    })?;
    results.has_day(trace, stat.finish(None));
    // Onefold's replays are one piece of work, the longest: its pool is made once, in the thread that uses it.
    let (engines, schemes): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.onefold.is_some());
    let pieces = u64::from(wants_onefold) + schemes.len() as u64;
    let outcomes = in_order(threads, pieces, |piece| {
        let done = match piece.checked_sub(u64::from(wants_onefold)) {
            None => onefold(&engines, capacity, quick, &recent, &measured, stop)?,
            Some(at) => {
                let run = schemes[at as usize];
                vec![(*run, one(run, quick, layout, &start, &measured, stop)?)]
            }
        };
        bar.inc(done.len() as u64);
        Ok(done)
    });
    Ok(outcomes.into_iter().collect::<Result<Vec<_>, Stopped>>()?.into_iter().flatten().collect())
}

fn one(
    run: &Run,
    quick: bool,
    layout: Layout,
    start: &Warm,
    measured: &[Request],
    stop: &AtomicBool,
) -> Result<Outcome, Stopped> {
    let mut scheme = InPlace::new(run.scheme, layout, run.memory(), start);
    let mut disk = disk(&run.disks)?;
    let until = if quick { QUICK_UNTIL } else { Nanos::MAX };
    let until_rebuilt = run.disks.rebuilds;
    let setup = Setup { digest: run.digest_micros * 1000, until, until_rebuilt, ..Setup::default() };
    Replay::new(&mut scheme, layout, &mut disk, setup).run(each(measured, stop))
}

fn onefold(
    runs: &[&Run],
    capacity: u64,
    quick: bool,
    recent: &[Request],
    measured: &[Request],
    stop: &AtomicBool,
) -> Result<Vec<(Run, Outcome)>, Stopped> {
    let until = if quick { QUICK_UNTIL } else { Nanos::MAX };
    let warmed = Warmed::new(capacity, runs[0].memory(), Setup::default(), each(recent, stop))
        .map_err(|why| engine(why, stop))?;
    let mut outcomes = Vec::new();
    for run in runs {
        let Some(how) = run.onefold else { continue };
        let setup = Setup { digest: run.digest_micros * 1000, until, ..Setup::default() };
        let outcome = warmed.replay(how, disk(&run.disks)?, setup, each(measured, stop));
        outcomes.push((**run, outcome.map_err(|why| engine(why, stop))?));
    }
    Ok(outcomes)
}

fn engine(why: Violation, stop: &AtomicBool) -> Stopped {
    if stop.load(Ordering::Relaxed) { Stopped::Interrupted } else { Stopped::Engine(why.0) }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::Interrupted => f.write_str("interrupted: nothing was written"),
            Stopped::Disk(why) | Stopped::Trace(why) | Stopped::Engine(why) => f.write_str(why),
        }
    }
}

fn each<'a>(requests: &'a [Request], stop: &'a AtomicBool) -> impl Iterator<Item = Result<Request, Stopped>> + 'a {
    requests.iter().map(|request| until_stopped(request.clone(), stop))
}

fn until_stopped<T>(request: T, stop: &AtomicBool) -> Result<T, Stopped> {
    if stop.load(Ordering::Relaxed) { Err(Stopped::Interrupted) } else { Ok(request) }
}

fn disk(disks: &Disks) -> Result<Disk, Stopped> {
    let drive = Arc::new(Drive::wd1600aajs_like());
    let write_cache = Some(if disks.write_cache { WriteCache::On } else { WriteCache::Off });
    let member = || Disk::Hdd(Box::new(Hdd::new(Arc::clone(&drive), Options { write_cache, ..Options::default() })));
    let members = (0..disks.members).map(|_| member()).collect();
    let array = Array::new(Level::Raid5, members, disks.stripe_unit).map_err(Stopped::Disk)?;
    let mut array = array.with_stripe_cache(disks.stripe_cache);
    if disks.rebuilds {
        array.fail(0);
        array.replace(0, member(), disks.size.unwrap_or(u64::MAX), SPEED_MIN, SPEED_MAX);
    }
    Ok(Disk::Array(Box::new(array)))
}
