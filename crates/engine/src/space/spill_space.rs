//! Spill space: empty containers that a job borrows for its own temporary data. In all tables they stay free, so a crash leaves nothing behind.
//!
//! They are closed to all others, but their slots count as available: writes that find no other free slot reclaim the spill space. The job then
//! gives back all of it, as soon as none of its own writes to it is in flight. So a slot never has two writers.

use super::Space;

impl Space {
    /// Takes an empty container to write into; `None`: there is none.
    pub(crate) fn take_spill_container(&mut self) -> Option<u32> {
        let container = self.empty_container()?;
        self.spill.insert(container);
        self.close_to_others(container);
        self.search = container + 1;
        self.empty -= 1;
        Some(container)
    }

    /// Takes back a container of the spill space, which must be empty.
    pub(crate) fn end_spill(&mut self, container: u32) {
        let was_taken = self.spill.remove(&container);
        assert!(was_taken && self.is_empty(container), "nobody else has taken anything in it");
        self.closed(container);
        self.empty += 1;
        self.spill_is_reclaimed &= !self.spill.is_empty();
    }

    /// Reclaims the spill space because writes need it. Returns false if it has no container.
    pub(crate) fn reclaim_spill(&mut self) -> bool {
        self.spill_is_reclaimed = !self.spill.is_empty();
        self.spill_is_reclaimed
    }

    /// Returns true if all of the spill space must be given back, because writes need it.
    pub(crate) fn is_spill_reclaimed(&self) -> bool {
        self.spill_is_reclaimed
    }

    /// Returns the number of further empty containers that the spill space could take.
    pub(crate) fn lendable(&self) -> u32 {
        let is_out_of_reach = |&&container: &&u32| {
            container < self.reserved && self.is_empty(container) && !self.spill.contains(&container)
        };
        self.empty - self.closed_to.iter().filter(is_out_of_reach).count() as u32
    }

    /// Returns the number of slots of the spill space.
    pub(super) fn spill_slots(&self) -> u64 {
        self.spill.len() as u64 * u64::from(self.per_container)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{allocate, space};
    use crate::format::entry::Slot;
    use alloc::vec::Vec;

    #[test]
    fn spill_space_is_free_for_all_tables_and_comes_back_when_nothing_else_is_left() {
        let mut space = space();
        let (free, available) = (space.free(), space.available());
        let taken = space.take_spill_container().unwrap();
        assert_eq!((space.free(), space.available(), space.lendable()), (free, available, 1));
        assert!(!space.may_claim(Slot(space.slots_of(taken).start)) && !space.is_spill_reclaimed());
        let others: Vec<_> = core::iter::from_fn(|| allocate(&mut space)).collect();
        assert_eq!((others.len(), space.available()), (4, 4));
        assert!(others.iter().all(|&slot| space.container_of(slot) != taken));
        assert!(space.is_spill_reclaimed() && space.take_spill_container().is_none());
        space.end_spill(taken);
        assert!(!space.is_spill_reclaimed());
        assert_eq!(allocate(&mut space).map(|slot| space.container_of(slot)), Some(taken));
    }
}
