//! Opening of containers ahead of the writes that fill them, and reservation of their space on the host.

use super::Pool;
use crate::api::*;
use crate::format::entry::Slot;
use crate::format::superblock::TreeId;
use crate::metadata::io::Purpose;
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{Missing, Walk, lookup};
use crate::mutant::Mutant;
use crate::pool::{Durable, Hints};
use crate::space::{RESERVE_CONTAINERS, SlotState};

impl Pool {
    /// Returns the number of slots that are kept ready for the next writes.
    fn slots_ahead(&self) -> u64 {
        2 * u64::from(self.metadata.geometry().piece_blocks) + 2
    }

    /// Returns the number of free slots that have their space reserved ahead of need.
    pub(crate) fn available_ahead(&self) -> u64 {
        (4 * u64::from(self.metadata.geometry().slots_per_container)).max(self.slots_ahead())
    }

    /// Returns the number of empty containers that keep their space. Where popular blocks have copies in scratch zones, all of them: a zone may take any.
    #[inline]
    pub(crate) fn spare_containers(&self) -> u32 {
        if self.makes_copies() { self.metadata.geometry().containers } else { self.durable.space.spare_containers() }
    }

    /// Opens containers ahead of the allocator, which needs their part of the space map. Returns true if one was opened.
    pub(crate) fn open_ahead(&mut self) -> bool {
        let mut opened = false;
        while self.durable.space.ready_apart() < self.slots_ahead() {
            let fresh = self.may_reserve() && self.durable.space.can_reserve_now();
            let Pool { durable: Durable { space, .. }, hints: Hints { flash, .. }, .. } = self;
            let is_on_flash = |container| flash.as_ref().is_some_and(|flash| flash.has(container));
            let Some(container) = space.choose(fresh, &is_on_flash) else {
                self.durable.wants_fresh = fresh;
                break;
            };
            let Some(()) = self.open_container(container, false) else { break };
            opened = true;
        }
        while self.device().sequential_blocks > 0
            && let Some(container) = self.durable.space.choose_sequential(self.slots_ahead())
        {
            let Some(()) = self.open_container(container, true) else { break };
            opened = true;
        }
        opened
    }

    /// Opens a container, or excludes it if its part of the space map is unreadable; `None`: that part is being loaded.
    fn open_container(&mut self, container: u32, sequential: bool) -> Option<()> {
        match self.free_slots(container, sequential) {
            Ok(()) => self.forget_wrapped(),
            Err(missing) if self.metadata.has_failed(missing.key) => self.durable.space.exclude(container),
            Err(missing) => {
                self.metadata.load(missing, None);
                return None;
            }
        }
        Some(())
    }

    /// Opens a container, with the slots that are free in its part of the space map and not taken.
    fn free_slots(&mut self, container: u32, sequential: bool) -> Result<(), Missing> {
        let per_leaf = self.metadata.geometry().space_leaf_slots();
        let root = self.durable.root(TreeId::SpaceMap);
        let slots = self.durable.space.slots_of(container);
        let mut free = core::mem::take(&mut self.durable.free_slots);
        free.clear();
        while let next = slots.start + free.len() as u64
            && next < slots.end
        {
            let end = slots.end.min((next / per_leaf + 1) * per_leaf);
            match lookup(&mut self.metadata, Region::Metadata, root, next / per_leaf) {
                Walk::Leaf(page) => {
                    let page = self.metadata.pages().bytes(page);
                    let is_free = |slot| SlotState::read(page, slot % per_leaf) == SlotState::Free;
                    free.extend((next..end).map(is_free));
                }
                Walk::Absent(_) => free.extend((next..end).map(|_| true)),
                Walk::Missing(missing) | Walk::From { missing, .. } => {
                    self.durable.free_slots = free;
                    return Err(missing);
                }
            }
        }
        for &(slot, state) in
            self.checkpoint.in_progress().into_iter().flat_map(|in_progress| in_progress.merged_in(&slots))
        {
            free[(slot.0 - slots.start) as usize] = SlotState::from_code(state as u8) == SlotState::Free;
        }
        for (slot, free) in slots.zip(&mut free) {
            *free &= !self.durable.space.is_taken(Slot(slot));
        }
        if free.iter().filter(|&&free| free).count()
            == usize::from(self.durable.space.containers()[container as usize].free)
        {
            match sequential {
                true => self.durable.space.open_sequential(container),
                false => self.durable.space.open(container, |place| free[place as usize]),
            }
        } else {
            // The tables contradict each other: free slots there stay unused.
            self.durable.space.exclude(container);
        }
        self.durable.free_slots = free;
        Ok(())
    }

    /// Returns true if there are containers without reserved space, as far as is known.
    pub(crate) fn may_reserve(&self) -> bool {
        !self.state.host_full() && self.durable.space.has_unreserved()
    }

    /// Asks for a container without reserved space; false if there is none. It may have to wait for the end of a discard, which wakes the engine.
    pub(crate) fn ask_for_fresh(&mut self) -> bool {
        let is_one = self.may_reserve();
        if is_one && !self.durable.reserving {
            self.durable.wants_fresh = true;
            self.wake_if(self.durable.space.can_reserve_now());
        }
        is_one
    }

    /// Keeps space reserved ahead of the allocator.
    pub(crate) fn reserve_ahead(&mut self) {
        if self.durable.reserving || self.state.host_full() {
            return;
        }
        let per_container = u64::from(self.metadata.geometry().slots_per_container);
        let mut ahead = self.available_ahead();
        if core::mem::take(&mut self.durable.wants_fresh) {
            ahead = u64::MAX;
        }
        let opens_in_discard = self.mutant(Mutant::OpenedInDiscard);
        let mut wanted = self.durable.space.to_reserve(ahead, self.durable.reserve_at_once, opens_in_discard);
        let brings_back = wanted.is_none() && self.durable.space.may_lack_spare();
        if brings_back {
            let spare = self.spare_containers();
            wanted = self.durable.space.next_to_bring_back(spare, self.durable.reserve_at_once);
        }
        if let Some((first, count)) = wanted {
            let bytes = per_container * self.metadata.geometry().block();
            let (block, together) = self.metadata.geometry().container_run(first);
            let (offset, count) = (block * self.metadata.geometry().block(), count.min(together));
            self.durable.space.begin_reserving(first..first + count, brings_back);
            self.metadata.io_mut().begin(
                IoOp::Reserve,
                offset,
                u64::from(count) * bytes,
                [],
                Purpose::ReserveContainers,
            );
            self.durable.reserving = true;
        } else {
            // A discard that is in flight may have all that is left.
            self.durable.wants_fresh |= ahead == u64::MAX && self.durable.space.is_discarding();
        }
    }

    /// Handles the end of a reservation of space for containers: they have space now, or the host has none. It counts as full only if these were needed.
    pub(crate) fn containers_reserved(&mut self, good: bool) {
        self.durable.reserving = false;
        let brings_back = self.durable.space.brings_back();
        let first = self.durable.space.end_reserving(good);
        if good {
            // Asked for while the reservation was in flight: who still needs one asks again.
            self.durable.wants_fresh = false;
            self.keep_zones(first);
            self.durable.reserve_at_once = RESERVE_CONTAINERS;
        } else if self.durable.reserve_at_once > 1 {
            // Next time for one: there may be space for less.
            self.durable.reserve_at_once = 1;
        } else if !brings_back && !self.durable.space.may_try_another_hole() {
            self.state.set_host_full(true);
        }
    }
}
