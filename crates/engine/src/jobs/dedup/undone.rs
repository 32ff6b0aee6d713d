//! What writes have left to the pass, and when that begins by itself. Pure: time and facts go in.
//!
//! The pass begins when nobody has asked for anything for five seconds, or ten minutes after the first of such writes, in the part of the
//! time that background work has. It never begins sooner than a minute after the last one came to its end (HIODS' example of a sleep).
//!
//! Where writes find no free slot it begins at once, unless the last one shared nothing and that was less than a minute ago: so whoever fills a
//! pool waits for one pass in vain, and the next are told at once.
//!
//! A pass for whose changes there is no metadata rests, and goes on by itself when more of it is free ([`Short`]).

use crate::api::Nanos;
use crate::pool::standing::Facts;

/// A pool without a request for so long, beyond what counts as idle, has time for a pass.
const QUIET: Nanos = 5_000_000_000;
/// In a pool that is never quiet, work waits no longer than this.
const LONGEST: Nanos = 600_000_000_000;
/// Between two passes.
const SLEEP: Nanos = 60_000_000_000;
/// A pass that lacked metadata is tried again after so long at the earliest,
const SHORT: Nanos = 10_000_000_000;
/// and when one block of metadata in so many has become free since.
const PART_OF_METADATA: u32 = 64;

/// A pass rests because metadata is short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Short {
    since: Nanos,
    /// Blocks of metadata that were free then.
    free: u32,
}

impl Short {
    pub fn new(now: Nanos, free: u32) -> Short {
        Short { since: now, free }
    }

    /// When it is looked at again.
    pub fn due(&self) -> Nanos {
        self.since + SHORT
    }

    /// Whether the pass goes on, with so many blocks free of all.
    pub fn is_over(&self, now: Nanos, free: u32, all: u32) -> bool {
        now >= self.due() && free >= self.free.saturating_add((all / PART_OF_METADATA).max(1))
    }
}

/// The work that is left to the next pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Undone {
    /// When the first of it came, or was found; `None`: there is none.
    since: Option<Nanos>,
    /// Blocks, as far as it came in this run, or was in the journal.
    pub blocks: u64,
    /// When the last pass came to its end.
    slept: Option<Nanos>,
    /// It shared nothing.
    was_in_vain: bool,
}

impl Undone {
    /// So many blocks are left to the pass.
    pub fn note(&mut self, now: Nanos, blocks: u64) {
        self.since.get_or_insert(now);
        self.blocks += blocks;
    }

    /// A pass takes all of it, or it is given up.
    pub fn clear(&mut self) {
        *self = Undone { slept: self.slept, was_in_vain: self.was_in_vain, ..Undone::default() };
    }

    /// A pass has come to its end, and has shared so many blocks.
    pub fn sleep(&mut self, now: Nanos, shared: u64) {
        (self.slept, self.was_in_vain) = (Some(now), shared == 0);
    }

    /// Whether a pass may find slots for writes that have none.
    pub fn may_free_slots(&self, now: Nanos) -> bool {
        let has_just_failed = self.was_in_vain && self.slept.is_some_and(|slept| now < slept + SLEEP);
        self.since.is_some() && !has_just_failed
    }

    /// Whether there is any.
    pub fn is_some(&self) -> bool {
        self.since.is_some()
    }

    /// When a pass begins by itself, as things are.
    pub fn due(&self, facts: &Facts) -> Option<Nanos> {
        let at_last = self.since? + LONGEST;
        let due = if facts.are_active { at_last } else { at_last.min(facts.idle_from + QUIET) };
        Some(due.max(self.slept.map_or(0, |slept| slept + SLEEP)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn facts(are_active: bool, idle_from: Nanos) -> Facts {
        Facts { are_active, idle_from, ..Facts::default() }
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
        let mut undone = Undone::default();
        assert_eq!(undone.due(&facts(false, SECOND)), None);
        undone.note(10 * SECOND, 3);
        undone.note(50 * SECOND, 4);
        assert_eq!((undone.blocks, undone.is_some()), (7, true));
        assert_eq!(undone.due(&facts(false, 50 * SECOND)), Some(55 * SECOND));
        assert_eq!(undone.due(&facts(true, 50 * SECOND)), Some(610 * SECOND));
        assert_eq!(undone.due(&facts(false, 900 * SECOND)), Some(610 * SECOND));
        undone.clear();
        assert_eq!((undone.due(&facts(false, 0)), undone.blocks), (None, 0));
        undone.sleep(100 * SECOND, 1);
        undone.note(101 * SECOND, 1);
        assert_eq!(undone.due(&facts(false, 101 * SECOND)), Some(160 * SECOND));
        assert_eq!(undone.due(&facts(false, 200 * SECOND)), Some(205 * SECOND));
    }

    #[test]
    fn who_finds_no_slot_waits_for_a_pass_but_not_soon_after_one_that_shared_nothing() {
        let mut undone = Undone::default();
        assert!(!undone.may_free_slots(0));
        undone.note(SECOND, 1);
        assert!(undone.may_free_slots(SECOND));
        undone.clear();
        undone.sleep(2 * SECOND, 5);
        undone.note(3 * SECOND, 1);
        assert!(undone.may_free_slots(3 * SECOND));
        undone.clear();
        undone.sleep(4 * SECOND, 0);
        undone.note(5 * SECOND, 1);
        assert!(!undone.may_free_slots(5 * SECOND) && undone.may_free_slots(64 * SECOND));
    }
}
