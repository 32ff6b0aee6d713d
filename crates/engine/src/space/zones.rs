//! Scratch zones: areas at equal distances across the disk that hold copies of popular blocks ("I/O Deduplication"; REFERENCE 1.6). Wherever
//! the heads are, a copy is no farther than half a zone away.
//!
//! A zone is a range of consecutive containers. One of them, near the middle, is *scratch*: closed to all but the job that makes copies. If
//! writes find no other free slot, it is given up first.

use alloc::vec::Vec;

use super::Space;

/// Number of scratch zones of a pool: a popular block has one copy in each ("I/O Deduplication"; REFERENCE 1.6).
pub const ZONES: u32 = 10;
/// Minimum number of containers of a pool with scratch zones.
const LEAST_CONTAINERS: u32 = 4 * ZONES;

impl Space {
    /// Returns the containers of a zone.
    fn zone(&self, zone: u32) -> core::ops::Range<u32> {
        let edge = |zone: u32| (self.containers.len() as u64 * u64::from(zone) / u64::from(ZONES)) as u32;
        edge(zone)..edge(zone + 1)
    }

    /// Returns the zone of a container.
    pub(crate) fn zone_of(&self, container: u32) -> u32 {
        (0..ZONES).rfind(|&zone| self.zone(zone).start <= container).unwrap_or(0)
    }

    /// Returns true if there are enough containers for zones, so that some are kept for copies.
    fn has_zones(&self) -> bool {
        self.containers.len() as u32 >= LEAST_CONTAINERS
    }

    /// Keeps the empty containers in the middle of their zones, from number `from` on, if their space has been reserved.
    pub(crate) fn keep_middles(&mut self, from: u32) {
        for zone in 0..if self.has_zones() { ZONES } else { 0 } {
            let middle = self.middle(zone);
            if middle >= from && self.is_to_be_kept(middle) && self.is_empty(middle) {
                self.set_aside(middle);
            }
        }
    }

    /// Returns a container of a zone that is kept for copies, and for which `has_copies` is false. If there is none, it sets one aside: an empty one near the
    /// middle, or else the emptiest, if half of it is free.
    pub(crate) fn scratch_in(&mut self, zone: u32, has_copies: impl Fn(u32) -> bool) -> Option<u32> {
        let of_zone = self.zone(zone);
        let is_new = |container: &u32| of_zone.contains(container) && !has_copies(*container);
        if let Some(kept) = self.scratch.iter().copied().find(is_new) {
            return Some(kept);
        }
        let middle = self.middle(zone);
        let farthest = of_zone.len() as u32;
        let may_be = |container: u32| self.has_zones() && self.is_to_be_kept(container) && is_new(&container);
        let outwards = (0..=farthest).flat_map(|far| [middle.checked_sub(far), Some(middle + far)]).flatten();
        let mut outwards = outwards.filter(|container| of_zone.contains(container));
        let found = outwards.find(|&container| self.is_empty(container) && may_be(container)).or_else(|| {
            let nearest = |container: &u32| (core::cmp::Reverse(self.free_in(*container)), container.abs_diff(middle));
            let emptiest = of_zone.clone().filter(|&container| may_be(container)).min_by_key(nearest);
            emptiest.filter(|&found| 2 * u32::from(self.free_in(found)) >= self.per_container)
        });
        found.into_iter().for_each(|found| self.set_aside(found));
        found
    }

    /// Keeps a container for copies from now on, if it is available. Returns true if it is kept.
    pub(crate) fn keep_for_copies(&mut self, container: u32) -> bool {
        if self.scratch.contains(&container) {
            return true;
        }
        let is_to_be_kept = self.is_to_be_kept(container);
        if is_to_be_kept {
            self.set_aside(container);
        }
        is_to_be_kept
    }

    /// Ends the reservation of full containers for copies.
    pub(crate) fn end_full_scratch(&mut self) {
        let (kept, full): (Vec<u32>, Vec<u32>) =
            self.scratch.iter().partition(|&&container| self.free_in(container) > 0);
        self.scratch = kept;
        full.into_iter().for_each(|container| self.closed(container));
    }

    fn middle(&self, zone: u32) -> u32 {
        self.zone(zone).start.midpoint(self.zone(zone).end)
    }

    fn is_to_be_kept(&self, container: u32) -> bool {
        container < self.reserved
            && self.free_in(container) > 0
            && !self.closed_to.contains(&container)
            && !self.holes.has(container)
    }

    fn set_aside(&mut self, container: u32) {
        self.scratch.push(container);
        self.close_to_others(container);
    }

    /// Gives up one of the containers kept for copies that has free slots, and returns it.
    pub(super) fn give_up_scratch(&mut self) -> Option<u32> {
        let at = self.scratch.iter().position(|&container| self.free_in(container) > 0)?;
        let container = self.scratch.swap_remove(at);
        self.closed(container);
        Some(container)
    }

    /// Gives up all containers kept for copies.
    pub(crate) fn keep_none(&mut self) {
        while let Some(container) = self.scratch.pop() {
            self.closed(container);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{allocate, geometry, reclaim, space};
    use super::*;
    use crate::format::entry::Slot;

    #[test]
    fn each_container_is_in_one_zone() {
        let space = space();
        let containers = space.containers.len() as u32;
        let all: u32 = (0..ZONES).map(|zone| space.zone(zone).len() as u32).sum();
        assert_eq!(all, containers);
        for container in 0..containers {
            assert!(space.zone(space.zone_of(container)).contains(&container), "{container}");
        }
    }

    #[test]
    fn what_is_kept_for_copies_goes_to_writes_only_when_nothing_else_is_left() {
        let mut space = Space::new(&geometry(40));
        space.set_reserved(20);
        space.keep_middles(0);
        assert_eq!(space.scratch, [2, 6, 10, 14, 18]);
        assert_eq!((0..6).map(|zone| space.scratch_in(zone, |_| false)).collect::<Vec<_>>()[4..], [Some(18), None]);
        assert!(!space.may_claim(Slot(8)));
        let all: Vec<Slot> = core::iter::from_fn(|| allocate(&mut space)).collect();
        assert_eq!((all.len(), all[..60].contains(&Slot(8)), space.scratch.len()), (80, false, 0));
        for slot in space.slots_of(5).chain(space.slots_of(7).take(3)) {
            space.defer_free(Slot(slot), 0);
        }
        reclaim(&mut space, 0, false);
        let found = [1, 1, 0].map(|zone| space.scratch_in(zone, |_| false));
        assert_eq!(found, [Some(5), Some(5), None]);
        assert_eq!(space.scratch_in(1, |container| container == 5), Some(7));
        assert!(space.keep_for_copies(5) && !space.keep_for_copies(6));
        space.keep_none();
        assert!(space.may_claim(Slot(20)));
    }
}
