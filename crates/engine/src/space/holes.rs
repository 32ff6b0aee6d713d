//! Holes: empty containers that may have no space on the host, because they were discarded (`jobs/discard.rs`), or since an opening. RFC 0021.
//!
//! ```text
//! empty        available; candidate for a discard
//! discarding   a hole from here on; not reserved before the discard has ended
//! hole         counts as free, not as available; it is neither opened nor claimed
//! reserving    the host reserves its space again
//! empty
//! ```
//!
//! Invariants: a hole is empty, has its number below `reserved`, and is not closed; so taking a slot or giving one back never concerns a hole. Discarding and
//! reserving ranges are disjoint.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{RESERVE_CONTAINERS, Space};

/// Divisor of the containers: one in N is a spare one.
const SPARE_OF_ALL: u32 = 8;
/// Maximum number of holes that are tried one after the other before the host counts as full.
const MOST_TRIES: u32 = 16;
/// Maximum number of spare containers.
const MOST_SPARE: u32 = RESERVE_CONTAINERS;

/// Set of containers, a bit each.
#[derive(Default)]
struct ContainerSet(Vec<u64>);

impl ContainerSet {
    fn new(containers: u32) -> ContainerSet {
        ContainerSet(vec![0; containers.div_ceil(64) as usize])
    }

    fn grow(&mut self, containers: u32) {
        self.0.resize(containers.div_ceil(64) as usize, 0);
    }

    #[inline]
    fn has(&self, container: u32) -> bool {
        self.0.get((container / 64) as usize).is_some_and(|word| word >> (container % 64) & 1 == 1)
    }

    fn set(&mut self, container: u32, is_in: bool) {
        let word = &mut self.0[(container / 64) as usize];
        *word = *word & !(1 << (container % 64)) | u64::from(is_in) << (container % 64);
    }

    /// Returns the first container of a range that is in the set.
    fn first(&self, range: Range<u32>) -> Option<u32> {
        let mut at = range.start;
        while at < range.end {
            let left = self.0[(at / 64) as usize] >> (at % 64);
            match left {
                0 => at = (at / 64 + 1) * 64,
                _ => return Some(at + left.trailing_zeros()).filter(|&found| found < range.end),
            }
        }
        None
    }
}

/// Limits of a discard, in containers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DiscardLimits {
    /// Containers of a unit of the store, a power of two: a discard covers whole units.
    pub unit: u32,
    /// Most containers that are discarded at once: a multiple of `unit`.
    pub most: u32,
    /// Number of empty containers that stay.
    pub spare: u32,
    /// Number of available slots that stay: with fewer, containers are reserved.
    pub available: u64,
}

/// The holes of a pool.
#[derive(Default)]
pub(super) struct Holes {
    holes: ContainerSet,
    /// Holes that have not been discarded since the pool was opened: they may have their space.
    undiscarded: ContainerSet,
    undiscarded_count: u32,
    count: u32,
    discarding: Range<u32>,
    /// Containers whose space is being reserved: holes, or the next ones beyond `reserved`.
    reserving: Range<u32>,
    /// Container from which holes are tried after one could not be reserved, and the number of such holes in turn. Others may have their space since an opening.
    failed: Option<(u32, u32)>,
    /// True if these are to be spare ones: no write waits for them.
    brings_back: bool,
    /// True if fewer containers may be empty than when the spare ones were counted.
    is_stale: bool,
    /// Number that grows whenever there may be more to discard.
    changes: u64,
}

impl Holes {
    pub(super) fn new(containers: u32) -> Holes {
        Holes { holes: ContainerSet::new(containers), undiscarded: ContainerSet::new(containers), ..Holes::default() }
    }

    pub(super) fn grow(&mut self, containers: u32) {
        self.holes.grow(containers);
        self.undiscarded.grow(containers);
    }

    #[inline]
    pub(super) fn has(&self, container: u32) -> bool {
        self.holes.has(container)
    }

    fn set_undiscarded(&mut self, container: u32, is_undiscarded: bool) {
        let was_undiscarded = self.undiscarded.has(container);
        self.undiscarded.set(container, is_undiscarded);
        self.undiscarded_count += u32::from(is_undiscarded);
        self.undiscarded_count -= u32::from(was_undiscarded);
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of containers in the discard in flight.
    pub(super) fn discarding_count(&self) -> u32 {
        self.discarding.end - self.discarding.start
    }

    /// Notes that a container may have become a candidate for a discard.
    #[inline]
    pub(super) fn note_more(&mut self) {
        self.changes += 1;
    }

    /// Notes that an empty container may have been taken.
    #[inline]
    pub(super) fn note_less(&mut self) {
        self.is_stale = true;
    }

    pub(super) fn memory(&self) -> u64 {
        8 * (self.holes.0.capacity() + self.undiscarded.0.capacity()) as u64
    }

    /// Returns the next holes to be reserved, from a container on: at most `most` consecutive ones. None of them is being discarded.
    fn next(&self, from: u32, end: u32, most: u32, discarding: &Range<u32>) -> Option<Range<u32>> {
        let first_in = |range: Range<u32>| {
            let before = range.start..range.end.min(discarding.start.max(range.start));
            let behind = range.start.max(discarding.end)..range.end;
            match discarding.is_empty() {
                true => self.holes.first(range),
                false => self.holes.first(before).or_else(|| self.holes.first(behind)),
            }
        };
        let first = first_in(from.min(end)..end).or_else(|| first_in(0..from.min(end)))?;
        let is_next = |container: &u32| self.has(*container) && !discarding.contains(container);
        let count = (first..end.min(first.saturating_add(most))).take_while(is_next).count() as u32;
        Some(first..first + count)
    }
}

impl Space {
    /// Makes holes of all empty containers that are not closed: it is not known which of them have their space. Called once, when the pool begins to serve.
    pub(crate) fn doubt_reserved(&mut self) {
        for container in 0..self.reserved {
            if self.is_empty(container) && !self.closed_to.contains(&container) && !self.holes.has(container) {
                self.make_hole(container);
                self.holes.set_undiscarded(container, true);
            }
        }
        self.holes.note_more();
        self.holes.note_less();
    }

    fn make_hole(&mut self, container: u32) {
        self.holes.holes.set(container, true);
        self.holes.count += 1;
        self.empty -= 1;
        self.available -= u64::from(self.per_container);
        self.groups[(container / super::GROUP) as usize].stale = true;
    }

    /// Notes that more may be discarded than before.
    pub(crate) fn note_discards_changed(&mut self) {
        self.holes.note_more();
    }

    /// Returns a number that grows whenever there may be more to discard.
    #[inline]
    pub(crate) fn discard_changes(&self) -> u64 {
        self.holes.changes
    }

    /// Returns the number of empty containers that are kept undiscarded, for the next writes.
    pub(crate) fn spare_containers(&self) -> u32 {
        (self.containers.len() as u32 / SPARE_OF_ALL).clamp(1, MOST_SPARE)
    }

    /// Returns the number of holes.
    pub(crate) fn holes(&self) -> u32 {
        self.holes.count()
    }

    /// Returns true if a discard may cover a container.
    fn may_cover(&self, container: u32) -> bool {
        container < self.reserved
            && self.is_empty(container)
            && !self.closed_to.contains(&container)
            && !self.holes.reserving.contains(&container)
            && !self.holes.discarding.contains(&container)
    }

    /// Returns true if a container is a hole, and was discarded since the pool was opened.
    fn is_discarded(&self, container: u32) -> bool {
        self.holes.has(container) && !self.holes.undiscarded.has(container)
    }

    /// Returns the number of containers with reserved space that may be discarded.
    fn discard_budget(&self, limits: &DiscardLimits) -> u32 {
        let most_kept = self.scratch.len() as u64 * u64::from(self.per_container) + self.spill_slots();
        let beyond = self.available.saturating_sub(limits.available + most_kept) / u64::from(self.per_container);
        match beyond {
            0 => 0,
            _ => self.lendable().saturating_sub(limits.spare).min(beyond.min(u32::MAX.into()) as u32),
        }
    }

    /// Returns true if there may be a container to discard.
    pub(crate) fn may_discard(&self, limits: &DiscardLimits) -> bool {
        self.holes.undiscarded_count > 0 || self.discard_budget(limits) > 0
    }

    /// Finds the first run of whole units that begins in a range of containers and can be discarded. `run_from` returns the place of a container on the store, in
    /// containers, and the number of consecutive ones from there on. The run may go beyond the end of the range. A unit with discarded containers is discarded
    /// again as a whole, if it has others: the store frees nothing less.
    pub(crate) fn next_discard(
        &self,
        range: Range<u32>,
        limits: &DiscardLimits,
        run_from: impl Fn(u32) -> (u64, u32),
    ) -> Option<Range<u32>> {
        let unit = limits.unit.max(1);
        let mut budget = self.discard_budget(limits);
        let mut takes = |first: u32| {
            let all = first..first.saturating_add(unit);
            let is_worth = all.clone().all(|container| self.may_cover(container))
                && all.clone().any(|container| !self.is_discarded(container));
            let costs = all.filter(|&container| !self.holes.has(container)).count() as u32;
            let takes = is_worth && costs <= budget;
            budget -= if takes { costs } else { 0 };
            takes
        };
        let mut at = range.start;
        while at < range.end {
            let (place, together) = run_from(at);
            let before = (u64::from(unit) - place % u64::from(unit)) % u64::from(unit);
            if before > 0 {
                at = at.saturating_add(before.min(together.into()) as u32);
                continue;
            }
            let most = together.min(limits.most) / unit;
            let units = (0..most).take_while(|&number| takes(at + number * unit)).count() as u32;
            if units > 0 {
                return Some(at..at + units * unit);
            }
            at = at.saturating_add(unit.min(together));
        }
        None
    }

    /// Begins the discard of a run of containers: they are holes from now on.
    pub(crate) fn begin_discard(&mut self, containers: Range<u32>) {
        assert!(self.holes.discarding.is_empty(), "one discard is in flight at a time");
        for container in containers.clone() {
            assert!(self.may_cover(container), "only whole empty containers are discarded");
            if !self.holes.has(container) {
                self.make_hole(container);
            }
            self.holes.set_undiscarded(container, false);
        }
        self.holes.discarding = containers;
        self.holes.note_less();
    }

    /// Ends the discard in flight. If it is not `good`, the store may have kept its containers: they may be discarded once more.
    pub(crate) fn end_discard(&mut self, good: bool) {
        for container in core::mem::take(&mut self.holes.discarding).filter(|_| !good) {
            self.holes.set_undiscarded(container, true);
        }
    }

    /// Returns true if a discard is in flight.
    pub(crate) fn is_discarding(&self) -> bool {
        !self.holes.discarding.is_empty()
    }

    /// Returns the next holes to be reserved: at most `most` consecutive ones.
    pub(super) fn next_holes(&self, most: u32, ignores_discard: bool) -> Option<Range<u32>> {
        if self.holes.count == 0 {
            return None;
        }
        let none = 0..0;
        let discarding = if ignores_discard { &none } else { &self.holes.discarding };
        let from = self.holes.failed.map_or(self.search, |(behind, _)| behind);
        self.holes.next(from, self.reserved, most, discarding)
    }

    /// Returns true if less than half of the spare containers may be left, and there are holes. Called with every pump.
    #[inline]
    pub(crate) fn may_lack_spare(&self) -> bool {
        self.holes.is_stale && self.holes.count > 0
    }

    /// Returns holes to be reserved because less than half of `spare` containers are left: at most `at_once`.
    #[inline(never)]
    pub(crate) fn next_to_bring_back(&mut self, spare: u32, at_once: u32) -> Option<(u32, u32)> {
        let left = self.lendable();
        let wanted = if left < spare.div_ceil(2) { spare - left } else { 0 };
        let found = if wanted > 0 { self.next_holes(wanted.min(at_once), false) } else { None };
        // Holes of a discard in flight may be reserved when it has ended.
        self.holes.is_stale = wanted > 0;
        found.map(|run| (run.start, run.end - run.start))
    }

    /// Begins the reservation of a run of containers: holes, or those beyond `reserved`. With `brings_back` they are to be spare ones.
    pub(crate) fn begin_reserving(&mut self, containers: Range<u32>, brings_back: bool) {
        (self.holes.reserving, self.holes.brings_back) = (containers, brings_back);
    }

    /// Returns true if another hole may have its space, after the failed reservation of one. After some in turn, it asks for time to pass first.
    pub(crate) fn may_try_another_hole(&mut self) -> bool {
        let Some((_, tries)) = &mut self.holes.failed else { return false };
        let may_try = *tries < MOST_TRIES && self.holes.undiscarded_count > *tries;
        *tries = if may_try { *tries } else { 0 };
        may_try
    }

    /// Returns true if the reservation in flight is of spare containers: no write waits for it.
    pub(crate) fn brings_back(&self) -> bool {
        self.holes.brings_back
    }

    /// Ends the reservation in flight; with `good`, its containers have their space. Returns the first of them.
    pub(crate) fn end_reserving(&mut self, good: bool) -> u32 {
        let containers = core::mem::take(&mut self.holes.reserving);
        let first = containers.start;
        if !good {
            // The host may have kept a part of them. Spare ones are asked for again when containers have been taken.
            let tries = self.holes.failed.map_or(0, |(_, tries)| tries);
            // Those of a longer run are tried one by one.
            let failed = if containers.len() > 1 { (first, tries) } else { (containers.end, tries + 1) };
            self.holes.failed = Some(failed).filter(|_| self.holes.has(first));
            for container in containers {
                if self.holes.has(container) {
                    self.holes.set_undiscarded(container, true);
                }
            }
            self.holes.is_stale &= !self.holes.brings_back;
            return first;
        }
        self.holes.failed = None;
        if first >= self.reserved {
            self.set_reserved(containers.end - first);
        } else {
            for container in containers {
                assert!(self.holes.has(container) && self.is_empty(container), "a hole stays one until it is reserved");
                self.holes.holes.set(container, false);
                self.holes.set_undiscarded(container, false);
                self.holes.count -= 1;
                self.empty += 1;
                self.available += u64::from(self.per_container);
                self.groups[(container / super::GROUP) as usize].stale = true;
            }
        }
        self.holes.note_more();
        self.holes.note_less();
        first
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{allocate, geometry, reclaim};
    use super::*;
    use crate::format::entry::Slot;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    const LIMITS: DiscardLimits = DiscardLimits { unit: 1, most: 4, spare: 1, available: 0 };

    fn space() -> Space {
        let mut space = Space::new(&geometry(8));
        space.set_reserved(8);
        space
    }

    fn find(space: &Space, limits: DiscardLimits) -> Option<Range<u32>> {
        space.next_discard(0..8, &limits, |container| (container.into(), u32::MAX))
    }

    #[test]
    fn a_hole_is_free_and_not_available_until_it_is_reserved_again() {
        let mut space = space();
        let run = find(&space, LIMITS).unwrap();
        assert_eq!(run, 0..4);
        space.begin_discard(run);
        assert_eq!((space.free(), space.available(), space.empty_containers(), space.holes()), (32, 16, 8, 4));
        assert_eq!((space.empty_container(), space.may_claim(Slot(0)), space.lendable()), (Some(4), false, 4));
        assert_eq!(find(&space, LIMITS), Some(4..7), "one stays");
        assert_eq!(space.to_reserve(u64::MAX, 8, false), None, "what is being discarded is not reserved");
        space.end_discard(true);
        assert_eq!(space.to_reserve(u64::MAX, 8, false), Some((0, 4)));
        space.begin_reserving(0..4, false);
        assert_eq!(space.end_reserving(false), 0);
        assert_eq!((space.holes(), space.available()), (4, 16));
        space.begin_reserving(0..4, false);
        assert_eq!(space.end_reserving(true), 0);
        assert_eq!((space.holes(), space.available(), space.lendable()), (0, 32, 8));
    }

    #[test]
    fn an_opening_discards_once_more_and_so_does_a_failure() {
        let mut space = space();
        let first = allocate(&mut space).unwrap();
        space.doubt_reserved();
        assert_eq!((first, space.holes(), space.available(), find(&space, LIMITS)), (Slot(0), 7, 3, Some(1..5)));
        space.begin_discard(1..5);
        space.end_discard(true);
        assert_eq!(find(&space, LIMITS), Some(5..8));
        space.begin_discard(5..8);
        space.end_discard(false);
        assert_eq!(find(&space, LIMITS), Some(5..8));
        space.begin_discard(5..8);
        space.end_discard(true);
        assert_eq!((find(&space, LIMITS), space.next_to_bring_back(1, 8)), (None, Some((1, 1))));
    }

    /// Checks that discards begin and end at multiples of the unit on the store, and that a unit in which a container was discarded before is discarded as a whole.
    #[test]
    fn discards_cover_whole_units_with_what_was_discarded_before() {
        let mut space = space();
        let limits = DiscardLimits { unit: 4, most: 8, spare: 0, available: 0 };
        let shifted =
            |space: &Space| space.next_discard(0..8, &limits, |container| (u64::from(container) + 2, u32::MAX));
        assert_eq!(
            (find(&space, limits), shifted(&space)),
            (Some(0..8), Some(2..6)),
            "numbers, and places of the store"
        );
        // The store is interrupted behind the third container.
        let apart = |container: u32| {
            if container < 3 {
                (u64::from(container), 3 - container)
            } else {
                (u64::from(container) + 1, 8 - container)
            }
        };
        assert_eq!(space.next_discard(0..8, &limits, apart), Some(3..7));
        assert_eq!(find(&space, DiscardLimits { spare: 2, ..limits }), Some(0..4), "the second unit would need all");
        space.begin_discard(1..3);
        space.end_discard(true);
        assert_eq!(find(&space, DiscardLimits { most: 4, ..limits }), Some(0..4));
        space.begin_discard(0..4);
        space.end_discard(true);
        assert_eq!(find(&space, limits), Some(4..8), "nothing is new in the first unit");
        let slot = allocate(&mut space).unwrap();
        assert_eq!((slot, find(&space, limits)), (Slot(16), None));
    }

    proptest! {
        /// Compares with a naive model: a set of holes, and counts over all containers.
        #[test]
        fn counts_agree_with_a_naive_model(steps in proptest::collection::vec((0..6u8, 0..24u32), 1..120)) {
            let mut space = Space::new(&geometry(24));
            let (mut holes, mut reserving, mut held) = (BTreeSet::new(), 0..0, Vec::new());
            for (step, number) in steps {
                match step {
                    0 => held.extend(allocate(&mut space)),
                    1 if !held.is_empty() => {
                        let slot = held.swap_remove(number as usize % held.len());
                        space.defer_free(slot, 0);
                        reclaim(&mut space, 0, false);
                    }
                    2 if !space.is_discarding() => {
                        let limits = DiscardLimits { unit: 1 << (number % 3), most: 8, spare: number % 2, available: 0 };
                        if let Some(run) = space.next_discard(0..24, &limits, |container| (container.into(), 24 - container)) {
                            holes.extend(run.clone());
                            space.begin_discard(run);
                        }
                    }
                    3 => space.end_discard(number % 3 > 0),
                    4 if reserving.is_empty() => {
                        if let Some((first, count)) = space.to_reserve(u64::MAX, 1 + number % 8, false) {
                            let discarding = space.holes.discarding.clone();
                            prop_assert!((first..first + count).all(|container| !discarding.contains(&container)));
                            reserving = first..first + count;
                            space.begin_reserving(reserving.clone(), false);
                        }
                    }
                    5 => {
                        let good = number % 3 > 0 && !reserving.is_empty();
                        if good {
                            holes.retain(|container| !reserving.contains(container));
                        }
                        reserving = 0..0;
                        space.end_reserving(good);
                    }
                    _ => {}
                }
                let has_space = |container: &u32| *container < space.reserved && !holes.contains(container);
                let free = |container: u32| u64::from(space.free_in(container));
                let available: u64 = (0..24).filter(has_space).map(free).sum();
                let empty = (0..24).filter(has_space).filter(|&container| space.is_empty(container)).count() as u32;
                prop_assert_eq!((space.available(), space.empty), (available, empty));
                prop_assert_eq!(space.holes() as usize, holes.len());
                prop_assert!(holes.iter().all(|&container| space.is_empty(container) && !space.closed_to.contains(&container)));
                prop_assert!(held.iter().all(|&slot: &Slot| !holes.contains(&space.container_of(slot))));
            }
        }
    }
}
