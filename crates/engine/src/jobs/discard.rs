//! Discard: gives the space of empty containers back to the file system or device under the pool. RFC 0021.
//!
//! ```text
//! Search   the next run of whole empty containers (space/holes.rs), some thousand of them a step; a few spare ones stay
//! Look     at the record of the owner, once a run is found: another may have the pool now, and data in it
//! Discard  one run at a time: its containers are holes from then on, and none of them is reserved before the end
//! Rest     until a container has become empty, or an empty one was closed, and for some seconds at least
//! Failed   the store takes no discards: none is made until the pool is opened again. Where it only lacks space for one, the job rests for a minute
//! ```
//!
//! It owns its position, the discard in flight, and its counts. Invariants: a discard covers only slots that a write might overwrite at that time; nothing
//! depends on its result, except that a hole is reserved before it is opened.

use core::ops::Range;

use crate::api::*;
use crate::format::entry::Slot;
use crate::jobs::job::{Job, JobContext, JobId};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::state::{LoadSnapshot, Look};
use crate::space::holes::DiscardLimits;

/// Number of containers that a step looks at.
const AT_ONCE: u32 = 1 << 12;
/// Rest after a search, in nanoseconds: busy clients soon use containers that became empty.
const REST: Nanos = 10_000_000_000;
/// Rest after a discard for which the store had no space, in nanoseconds.
const REST_WITHOUT_SPACE: Nanos = 60_000_000_000;
/// Time for which a look at the owner's record stands, in nanoseconds.
const LOOK_LASTS: Nanos = 2_000_000_000;
/// Bytes that are discarded at once, unless the unit of the store is longer.
const MOST_BYTES: u64 = 64 << 20;
/// Parts of the job's work: a discard of its own, and one of a mutant.
const OWN: usize = 0;
const EARLY: usize = 1;

/// State and counts of the discards of empty containers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiscardStatus {
    /// Ranges that are discarded, as it was set.
    pub setting: DiscardSetting,
    /// True if the store refused a discard: none is made until the pool is opened again.
    pub has_failed: bool,
    /// Discards since the pool was opened.
    pub discards: u64,
    /// Bytes discarded since the pool was opened.
    pub discarded_bytes: u64,
    /// Bytes of empty containers whose space is reserved again before they are written: discarded, or not written since the pool was opened.
    pub unreserved_bytes: u64,
    /// True if a discard is in flight, or if containers are to be looked at for one, once the job has rested and those that it waits for have ended.
    pub is_due: bool,
}

/// The job that discards empty containers.
pub(crate) struct StoreDiscard {
    /// Container that is looked at next.
    next: u32,
    /// The search in progress: [`crate::space::Space::discard_changes`] at its beginning, and the number of containers it has passed.
    search: Option<(u64, u32)>,
    /// Number of changes at which it searches next: `u64::MAX` while a discard is in flight, and once one has failed.
    next_at: u64,
    /// Time at which the rest after the last search ends.
    rests_until: Nanos,
    /// Look at the owner's record before the next discard, and the time at which it began.
    look: Option<(Look, Nanos)>,
    /// Number of containers of the discard in flight; 0: none.
    in_flight: u32,
    has_failed: bool,
    discards: u64,
    discarded: u64,
}

impl StoreDiscard {
    pub(crate) fn new(now: Nanos) -> StoreDiscard {
        StoreDiscard {
            next: 0,
            search: None,
            next_at: 0,
            rests_until: now,
            look: None,
            in_flight: 0,
            has_failed: false,
            discards: 0,
            discarded: 0,
        }
    }

    /// Returns the state and counts of discards.
    pub(crate) fn status(&self, pool: &Pool) -> DiscardStatus {
        let bytes = container_bytes(pool);
        DiscardStatus {
            setting: pool.properties.discard(),
            has_failed: self.has_failed,
            discards: self.discards,
            discarded_bytes: self.discarded * bytes,
            unreserved_bytes: u64::from(pool.durable.space().holes()) * bytes,
            is_due: self.in_flight > 0 || self.is_on(pool) && self.has_more(pool),
        }
    }

    fn is_on(&self, pool: &Pool) -> bool {
        !self.has_failed
            && pool.properties.discard() != DiscardSetting::Off
            && pool.takes_changes()
            && !pool.makes_copies()
    }

    /// Ends a search that found nothing more, and that began at this number of changes.
    fn end_search(&mut self, began: u64, now: Nanos) {
        (self.next_at, self.rests_until) = (began + 1, now + REST);
    }

    /// Returns true if a search may find something: too little has changed since the last one otherwise.
    #[inline]
    fn has_more(&self, pool: &Pool) -> bool {
        pool.durable.space().discard_changes() >= self.next_at
    }
}

fn container_bytes(pool: &Pool) -> u64 {
    u64::from(pool.metadata.geometry().slots_per_container) * pool.metadata.geometry().block()
}

/// Returns the bounds of a discard: the setting has the unit of the store.
fn limits(pool: &Pool) -> DiscardLimits {
    let containers = |bytes: u64| (bytes / container_bytes(pool)).clamp(1, 1 << 30) as u32;
    let unit = match pool.properties.discard() {
        DiscardSetting::Units(bytes) => containers(bytes),
        DiscardSetting::On | DiscardSetting::Off => 1,
    };
    DiscardLimits {
        unit,
        most: containers(MOST_BYTES).max(unit),
        spare: pool.spare_containers(),
        available: pool.available_ahead(),
    }
}

impl Job for StoreDiscard {
    type Work<'a> = JobContext<'a>;

    fn is_in_progress(&self) -> bool {
        self.in_flight > 0
    }

    #[inline]
    fn can_step(&self, pool: &Pool, _: &LoadSnapshot) -> bool {
        pool.state.now() >= self.rests_until && self.has_more(pool) && self.is_on(pool)
    }

    #[inline]
    fn begins_at(&self, pool: &Pool, load: &LoadSnapshot) -> Option<Nanos> {
        // With requests in flight, another pump follows.
        (!load.requests_in_flight && self.has_more(pool)).then_some(self.rests_until)
    }

    #[inline]
    fn can_advance(&self) -> bool {
        false
    }

    fn is_stuck(&self, pool: &Pool) -> bool {
        self.look.is_some_and(|(look, _)| !pool.is_ours(look))
    }

    fn step(&mut self, work: &mut JobContext<'_>) {
        let pool = &mut *work.pool;
        if self.is_stuck(pool) {
            return;
        }
        let limits = limits(pool);
        let (began, passed) = self.search.take().unwrap_or((pool.durable.space().discard_changes(), 0));
        if !pool.durable.space().may_discard(&limits) {
            return self.end_search(began, pool.state.now());
        }
        let reserved = pool.durable.space().reserved();
        let start = if self.next < reserved { self.next } else { 0 };
        let range = start..reserved.min(start.saturating_add(AT_ONCE));
        let looked_at = range.end - range.start;
        let geometry = *pool.metadata.geometry();
        let per_container = u64::from(geometry.slots_per_container);
        let run_from = |container| {
            let (block, together) = geometry.container_run(container);
            (block / per_container, together)
        };
        match pool.durable.space().next_discard(range.clone(), &limits, run_from) {
            Some(_) if self.look.is_none_or(|(_, since)| pool.state.now() > since + LOOK_LASTS) => {
                self.look = Some((pool.look_at_owner(), pool.state.now()));
                self.search = Some((began, passed));
            }
            Some(run) => {
                self.next = run.end;
                self.look = None;
                self.in_flight = run.end - run.start;
                self.next_at = u64::MAX;
                begin(pool, run.clone(), OWN);
                pool.durable.space_mut().begin_discard(run);
            }
            None => {
                self.next = range.end;
                let passed = passed + looked_at;
                match passed >= reserved {
                    true => self.end_search(began, pool.state.now()),
                    false => self.search = Some((began, passed)),
                }
            }
        }
        pool.wake();
    }

    fn done(&mut self, work: &mut JobContext<'_>, part: u32, _: &[Segment], result: Result<Outcome<'_>, IoError>) {
        if part == EARLY as u32 {
            return;
        }
        work.pool.durable.space_mut().end_discard(result.is_ok());
        let containers = core::mem::take(&mut self.in_flight);
        match result {
            Ok(_) => {
                self.next_at = 0;
                (self.discards, self.discarded) = (self.discards + 1, self.discarded + u64::from(containers));
            }
            Err(IoError::NoSpace) => (self.next_at, self.rests_until) = (0, work.pool.state.now() + REST_WITHOUT_SPACE),
            Err(IoError::Failed) => self.has_failed = true,
        }
    }
}

/// Asks for the discard of a run of containers, which are consecutive on the store.
fn begin(pool: &mut Pool, run: Range<u32>, part: usize) {
    let (block, _) = pool.metadata.geometry().container_run(run.start);
    let offset = block * pool.metadata.geometry().block();
    let length = u64::from(run.end - run.start) * container_bytes(pool);
    pool.metadata.io_mut().begin(IoOp::Discard, offset, length, [], JobId::Discard.io(part));
}

/// Discards containers that become empty by slots which a merge frees, before its superblock is durable: only with the mutant.
pub(crate) fn discard_early(pool: &mut Pool, freed: &[Slot]) {
    if !pool.mutant(Mutant::EarlyDiscard) {
        return;
    }
    let mut counts = alloc::collections::BTreeMap::<u32, u32>::new();
    for &slot in freed {
        *counts.entry(pool.durable.space().container_of(slot)).or_default() += 1;
    }
    for (container, count) in counts {
        if u32::from(pool.durable.space().free_in(container)) + count == pool.metadata.geometry().slots_per_container {
            begin(pool, container..container + 1, EARLY);
        }
    }
}
