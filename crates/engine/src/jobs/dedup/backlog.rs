//! Backlog of the pass: the blocks that writes have left to it, and the time of its automatic begin. Pure: time and load are parameters.
//!
//! The pass begins when the pool has had no request for five seconds, or ten minutes after the first of these writes, in the share of time that
//! background work has. It never begins sooner than a minute after the end of the last pass (HIODS' example of a sleep).
//!
//! Where writes find no free slot it begins at once, unless the last pass shared nothing and ended less than a minute ago. So a client that fills a
//! pool waits for one pass in vain, and its next writes fail at once.
//!
//! A pass whose changes find no free metadata is suspended, and resumes automatically when more metadata is free ([`Short`]).

use crate::api::Nanos;
use crate::pool::state::LoadSnapshot;

/// Time without a request, beyond the idle threshold, after which a pool has time for a pass.
const QUIET: Nanos = 5_000_000_000;
/// Longest time that the backlog waits in a pool that is never quiet.
const LONGEST: Nanos = 600_000_000_000;
/// Shortest time between two passes.
const SLEEP: Nanos = 60_000_000_000;
/// Shortest time until a pass that lacked metadata is tried again.
const SHORT: Nanos = 10_000_000_000;
/// Divisor of all metadata blocks: the pass resumes only when one in N has become free since its suspension.
const PART_OF_METADATA: u32 = 64;

/// Suspension of a pass because metadata is short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Short {
    since: Nanos,
    /// Number of free metadata blocks at that time.
    free: u32,
}

impl Short {
    pub fn new(now: Nanos, free: u32) -> Short {
        Short { since: now, free }
    }

    /// Returns the earliest time at which the pass may resume: [`SHORT`] after its suspension.
    pub fn due(&self) -> Nanos {
        self.since + SHORT
    }

    /// Returns true if the pass can resume, with `free` of `all` metadata blocks free.
    pub fn is_over(&self, now: Nanos, free: u32, all: u32) -> bool {
        now >= self.due() && free >= self.free.saturating_add((all / PART_OF_METADATA).max(1))
    }
}

/// Work that is left to the next pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Backlog {
    /// Time at which the first of the backlog came, or was found; `None` if there is none.
    since: Option<Nanos>,
    /// Blocks of the backlog that came in this session, or were in the journal.
    pub(super) blocks: u64,
    /// Time at which the last pass ended.
    slept: Option<Nanos>,
    /// True if the last pass shared nothing.
    was_in_vain: bool,
}

impl Backlog {
    /// Notes N more blocks that are left to the next pass.
    pub fn note(&mut self, now: Nanos, blocks: u64) {
        self.since.get_or_insert(now);
        self.blocks += blocks;
    }

    /// Drops the whole backlog: a pass takes it, or it is given up.
    pub fn clear(&mut self) {
        *self = Backlog { slept: self.slept, was_in_vain: self.was_in_vain, ..Backlog::default() };
    }

    /// Notes the end of a pass, which has shared N blocks.
    pub fn sleep(&mut self, now: Nanos, shared: u64) {
        (self.slept, self.was_in_vain) = (Some(now), shared == 0);
    }

    /// Returns true if a pass may free slots for writes that have none: there is a backlog, and no pass has shared nothing within the last [`SLEEP`].
    pub fn may_free_slots(&self, now: Nanos) -> bool {
        let has_just_failed = self.was_in_vain && self.slept.is_some_and(|slept| now < slept + SLEEP);
        self.since.is_some() && !has_just_failed
    }

    /// Returns true if any work is left to the next pass.
    pub fn is_some(&self) -> bool {
        self.since.is_some()
    }

    /// Returns the time at which a pass begins without a command, under the current load; `None` without a backlog.
    pub fn due(&self, load: &LoadSnapshot) -> Option<Nanos> {
        let at_last = self.since? + LONGEST;
        let due = if load.requests_in_flight { at_last } else { at_last.min(load.idle_from + QUIET) };
        Some(due.max(self.slept.map_or(0, |slept| slept + SLEEP)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn load(requests_in_flight: bool, idle_from: Nanos) -> LoadSnapshot {
        LoadSnapshot { requests_in_flight, idle_from, ..LoadSnapshot::default() }
    }

    #[test]
    fn a_pass_that_lacked_metadata_goes_on_when_there_is_more_but_not_at_once() {
        let short = Short::new(5 * SECOND, 100);
        assert!(!short.is_over(5 * SECOND, 1000, 6400));
        assert!(!short.is_over(15 * SECOND, 199, 6400) && short.is_over(15 * SECOND, 200, 6400));
        assert!(!short.is_over(900 * SECOND, 100, 1) && short.is_over(900 * SECOND, 101, 1));
    }

    #[test]
    fn a_pass_begins_when_it_is_quiet_or_at_last_and_not_at_once_after_another() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.due(&load(false, SECOND)), None);
        backlog.note(10 * SECOND, 3);
        backlog.note(50 * SECOND, 4);
        assert_eq!((backlog.blocks, backlog.is_some()), (7, true));
        assert_eq!(backlog.due(&load(false, 50 * SECOND)), Some(55 * SECOND));
        assert_eq!(backlog.due(&load(true, 50 * SECOND)), Some(610 * SECOND));
        assert_eq!(backlog.due(&load(false, 900 * SECOND)), Some(610 * SECOND));
        backlog.clear();
        assert_eq!((backlog.due(&load(false, 0)), backlog.blocks), (None, 0));
        backlog.sleep(100 * SECOND, 1);
        backlog.note(101 * SECOND, 1);
        assert_eq!(backlog.due(&load(false, 101 * SECOND)), Some(160 * SECOND));
        assert_eq!(backlog.due(&load(false, 200 * SECOND)), Some(205 * SECOND));
    }

    #[test]
    fn who_finds_no_slot_waits_for_a_pass_but_not_soon_after_one_that_shared_nothing() {
        let mut backlog = Backlog::default();
        assert!(!backlog.may_free_slots(0));
        backlog.note(SECOND, 1);
        assert!(backlog.may_free_slots(SECOND));
        backlog.clear();
        backlog.sleep(2 * SECOND, 5);
        backlog.note(3 * SECOND, 1);
        assert!(backlog.may_free_slots(3 * SECOND));
        backlog.clear();
        backlog.sleep(4 * SECOND, 0);
        backlog.note(5 * SECOND, 1);
        assert!(!backlog.may_free_slots(5 * SECOND) && backlog.may_free_slots(64 * SECOND));
    }
}
