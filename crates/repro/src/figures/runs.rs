//! Replays for figures: each distinct replay runs once, for all figures that use it. Days before the measured one are processed once for a trace, and every
//! replay of it begins there.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::Nanos;
use engine::policy::IndexCopy;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::sources::{Sources, When};
use crate::replay::driver::{Fold, Replay, Setup, Submitters};
use crate::replay::in_place::{InPlace, Layout, Warm};
use crate::replay::onefold::{Onefold, Pool, Warmed};
pub use crate::replay::outcome::Outcome;
use crate::replay::rebuilds::{Starts, rebuilds};
use crate::replay::scheme::Scheme;
use crate::traces::stat::{Figures as Stated, Stat};
use crate::traces::synthetic::Profile;
use crate::traces::{BLOCK, Request};
use sim::Violation;
use sim::disks::Disk;
use sim::disks::drive::{Drive, WriteCache};
use sim::disks::hdd::{Hdd, Options};
use sim::disks::raid5::{Array, Level, STRIPE_CACHE};
use sim::parallel::{each_takes_all, in_order};

/// Replayed part of the day in the short form.
const QUICK_UNTIL: Nanos = 3600 * 1_000_000_000;
/// Number of rebuilds in the short form, and the divisor of the rebuilt part of the disks.
const QUICK_STARTS: usize = 1;
const QUICK_REBUILT: u64 = 8;
/// Linux md's bounds for a rebuild, in KB/s of each disk: POD's 10 MB/s, and md's default.
const SPEED_MIN: u64 = 10_240;
const SPEED_MAX: u64 = 200_000;

/// Maximum memory of a replay, in percent of the paper's.
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
    /// True if disks acknowledge writes from their caches.
    pub write_cache: bool,
    /// Bytes of each disk that are used; none: all.
    pub size: Option<u64>,
    /// Times in the day at which a rebuild of one member begins, if there is one.
    pub rebuilds: Option<Starts>,
}

impl Disks {
    /// POD's: a RAID5 of four disks, 64 KiB of a stripe on each (section 4.2).
    pub const POD: Disks = Disks {
        members: 4,
        stripe_unit: 64 << 10,
        stripe_cache: STRIPE_CACHE,
        write_cache: false,
        size: None,
        rebuilds: None,
    };

    /// Returns POD's setup for a rebuild: four disks of 10 GB (section 4.4). Their write caches are on, as in a disk's factory setting. Without them the spare
    /// loses a turn with each write.
    pub const fn rebuild(starts: Starts) -> Disks {
        Disks { size: Some(10_000_000_000), rebuilds: Some(starts), write_cache: true, ..Disks::POD }
    }
}

/// One replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Trace whose day is replayed.
    pub trace: Profile,
    /// Scheme that replays it.
    pub scheme: Scheme,
    /// Set if Onefold replays it, whatever the scheme.
    pub onefold: Option<Onefold>,
    /// Copy that Onefold's index names. A scheme has its own setting.
    pub index_copy: IndexCopy,
    /// Percentage of the paper's memory for this trace.
    pub memory_percent: u64,
    /// Time of the processor for a digest, in microseconds.
    pub digest_micros: u64,
    /// Disks of the replay.
    pub disks: Disks,
    /// True if addresses that do not fit are squeezed, false if they are wrapped.
    pub squeezes: bool,
    /// Threads that submit.
    pub submitters: Submitters,
}

impl Run {
    /// Returns the paper's setup for a trace and a scheme.
    pub const fn pod(trace: Profile, scheme: Scheme) -> Run {
        Run {
            trace,
            scheme,
            onefold: None,
            index_copy: IndexCopy::Sequential,
            memory_percent: 100,
            digest_micros: 32,
            disks: Disks::POD,
            squeezes: false,
            submitters: Submitters::One,
        }
    }

    /// Returns the bytes of memory: the paper's, scaled by `memory_percent`.
    pub fn memory(&self) -> u64 {
        paper_memory(self.trace) * self.memory_percent / 100
    }
}

/// Returns the memory that POD gives a trace, in bytes (section 4.1).
pub fn paper_memory(trace: Profile) -> u64 {
    match trace {
        Profile::WebVm => 100 << 20,
        Profile::Homes | Profile::Mail => 500 << 20,
    }
}

/// The outcomes of all replays.
pub struct Results {
    /// True in the short form.
    pub quick: bool,
    /// Traces that replace the stand-ins.
    pub sources: Sources,
    outcomes: Vec<(Run, Outcome)>,
    days: [OnceCell<Stated>; 3],
}

impl Results {
    /// Returns the outcome of a replay, which the figure must have requested; panics if it has not.
    pub fn of(&self, run: Run) -> &Outcome {
        let found = self.outcomes.iter().find(|(done, _)| *done == run);
        &found.unwrap_or_else(|| panic!("the figure did not ask for {run:?}")).1
    }

    /// Returns the statistics of a trace's measured day, computed at first use.
    pub fn day(&self, trace: Profile) -> &Stated {
        let make = || self.sources.stated(trace, self.quick, &AtomicBool::new(false));
        // Files of a user have been read before; a stand-in can always be made.
        self.days[trace as usize].get_or_init(|| make().expect("a stand-in can be made"))
    }

    /// Sets the statistics of a trace's measured day.
    fn has_day(&self, trace: Profile, stated: Stated) {
        let _ = self.days[trace as usize].set(stated);
    }
}

/// Reason why there are no outcomes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// `stop` became true.
    Interrupted,
    /// The requested disk does not exist.
    Disk(String),
    /// A file cannot be read, or is invalid.
    Trace(String),
    /// The engine does something that it must not do, or cannot have such a pool.
    Engine(String),
}

/// Replays all runs in `threads` threads, each distinct run once.
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
    // Errors in a user's files are reported before hours have passed.
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
    for runs in wanted.chunk_by(|one, other| one.trace == other.trace) {
        bar.set_message(runs[0].trace.name());
        let done = of_trace(runs, &results, threads, stop, &bar)?;
        results.outcomes.extend(done);
    }
    bar.finish_and_clear();
    Ok(results)
}

/// Initial state that replays share which have equal disks and fold addresses in the same way.
struct Start {
    capacity: u64,
    layout: Layout,
    fold: Fold,
    warm: Warm,
    measured: Vec<Request>,
    /// Requests for Onefold's pool, which is written in order and then has only these: its state is larger than the schemes'.
    recent: Option<Vec<Request>>,
}

impl Start {
    fn new(run: &Run, wants_onefold: bool, results: &Results, stop: &AtomicBool) -> Result<Start, Stopped> {
        // The value is independent of the other figures made: it determines the places on the disk.
        let most_memory = paper_memory(run.trace) * MOST_MEMORY_PERCENT / 100;
        let disk = disk(&run.disks)?;
        let capacity = run.disks.size.map_or(disk.capacity(), |size| (run.disks.members as u64 - 1) * size);
        let layout = Layout::of(capacity / BLOCK, most_memory);
        let fold = match run.squeezes {
            true => Fold::Squeeze { span: results.sources.span(run.trace, results.quick, stop)? },
            false => Fold::Wrap,
        };
        let recent = wants_onefold.then(Vec::new);
        let warm = Warm::new(layout.data, most_memory);
        Ok(Start { capacity, layout, fold, warm, measured: Vec::new(), recent })
    }

    fn take(&mut self, when: When, request: &Request) {
        let mut request = request.clone();
        self.fold.fold(&mut request, self.layout.data);
        if when == When::Measured {
            return self.measured.push(request);
        }
        self.warm.request(&request);
        if let Some(recent) = self.recent.as_mut().filter(|_| when == When::Recent) {
            recent.push(request);
        }
    }
}

/// Replays all runs of a trace. Its days are made once.
fn of_trace(
    runs: &[Run],
    results: &Results,
    threads: usize,
    stop: &AtomicBool,
    bar: &ProgressBar,
) -> Result<Vec<(Run, Outcome)>, Stopped> {
    let (trace, quick) = (runs[0].trace, results.quick);
    let alike = |one: &Run, other: &Run| (one.disks.size, one.squeezes) == (other.disks.size, other.squeezes);
    let groups: Vec<&[Run]> = runs.chunk_by(alike).collect();
    let mut starts = Vec::new();
    for group in &groups {
        let wants_onefold = group.iter().any(|run| run.onefold.is_some());
        starts.push(Start::new(&group[0], wants_onefold, results, stop)?);
    }
    let mut stat = Stat::default();
    let days = |give: &mut dyn FnMut((When, Request))| {
        results.sources.days(trace, quick, stop, |when, request| {
            if when == When::Measured {
                stat.add(&request);
            }
            give((when, request));
        })
    };
    each_takes_all(&mut starts, days, |start, (when, request)| start.take(*when, request))?;
    results.has_day(trace, stat.finish(None));
    let mut outcomes = Vec::new();
    for (runs, start) in groups.into_iter().zip(starts) {
        outcomes.extend(group(runs, &start, quick, threads, stop, bar)?);
    }
    Ok(outcomes)
}

fn group(
    runs: &[Run],
    start: &Start,
    quick: bool,
    threads: usize,
    stop: &AtomicBool,
    bar: &ProgressBar,
) -> Result<Vec<(Run, Outcome)>, Stopped> {
    // Onefold's replays of a pool are one task, the longest: the pool is made once, in the thread that uses it.
    let (mut engines, schemes): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.onefold.is_some());
    engines.sort_by_key(|run| run.index_copy as u8);
    let pools: Vec<&[&Run]> = engines.chunk_by(|one, other| one.index_copy == other.index_copy).collect();
    let outcomes = in_order(threads, (pools.len() + schemes.len()) as u64, |piece| {
        let done = match pools.get(piece as usize) {
            Some(pool) => onefold(pool, start, quick, stop)?,
            None => {
                let run = schemes[piece as usize - pools.len()];
                vec![(*run, one(run, start, quick, stop)?)]
            }
        };
        bar.inc(done.len() as u64);
        Ok(done)
    });
    Ok(outcomes.into_iter().collect::<Result<Vec<_>, Stopped>>()?.into_iter().flatten().collect())
}

fn one(run: &Run, start: &Start, quick: bool, stop: &AtomicBool) -> Result<Outcome, Stopped> {
    let mut scheme = InPlace::new(run.scheme, start.layout, run.memory(), &start.warm);
    let until = if quick { QUICK_UNTIL } else { Nanos::MAX };
    let setup = Setup { digest: run.digest_micros * 1000, until, submitters: run.submitters, ..Setup::default() };
    let Some(begins) = run.disks.rebuilds else {
        let mut disk = disk(&run.disks)?;
        return Replay::new(&mut scheme, start.layout, &mut disk, setup).run(each(&start.measured, stop));
    };
    let mut starts = begins.of(&start.measured);
    starts.truncate(if quick { QUICK_STARTS } else { usize::MAX });
    let check = || if stop.load(Ordering::Relaxed) { Err(Stopped::Interrupted) } else { Ok(()) };
    let array = || disk_of(&run.disks, if quick { QUICK_REBUILT } else { 1 });
    let all = rebuilds(&mut scheme, start.layout, setup, &start.measured, &starts, array, check)?;
    let all: Vec<Outcome> = all.into_iter().map(|(_, outcome)| outcome).collect();
    Outcome::of_rebuilds(&all).ok_or_else(|| Stopped::Trace("the day has no request".into()))
}

fn onefold(runs: &[&Run], start: &Start, quick: bool, stop: &AtomicBool) -> Result<Vec<(Run, Outcome)>, Stopped> {
    let until = if quick { QUICK_UNTIL } else { Nanos::MAX };
    let recent = start.recent.as_deref().unwrap_or_default();
    let index_copy = Some(runs[0].index_copy).filter(|&copy| copy != IndexCopy::default());
    let pool = Pool { index_copy, ..Pool::default() };
    let warmed = Warmed::new(start.capacity, runs[0].memory(), Setup::default(), pool, each(recent, stop))
        .map_err(|why| engine(why, stop))?;
    let mut outcomes = Vec::new();
    for run in runs {
        let Some(how) = run.onefold else { continue };
        let setup = Setup { digest: run.digest_micros * 1000, until, ..Setup::default() };
        let outcome = warmed.replay(how, disk(&run.disks)?, setup, each(&start.measured, stop));
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
    disk_of(disks, 1)
}

/// Builds the array, of which one byte in `rebuilt_one_in` is rebuilt.
fn disk_of(disks: &Disks, rebuilt_one_in: u64) -> Result<Disk, Stopped> {
    let drive = Arc::new(Drive::wd1600aajs_like());
    let write_cache = Some(if disks.write_cache { WriteCache::On } else { WriteCache::Off });
    let member = || Disk::Hdd(Box::new(Hdd::new(Arc::clone(&drive), Options { write_cache, ..Options::default() })));
    let members = (0..disks.members).map(|_| member()).collect();
    let array = Array::new(Level::Raid5, members, disks.stripe_unit).map_err(Stopped::Disk)?;
    let mut array = array.with_stripe_cache(disks.stripe_cache);
    if disks.rebuilds.is_some() {
        array.fail(0);
        array.replace(0, member(), disks.size.unwrap_or(u64::MAX) / rebuilt_one_in, SPEED_MIN, SPEED_MAX);
    }
    Ok(Disk::Array(Box::new(array)))
}
