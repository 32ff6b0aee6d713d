//! Slots and containers: which slots are referenced, which may be allocated, which wait to become free.
//!
//! Two views. The *space map* (two bits a slot: free, single, shared) is as of the newest merge, changes only there, and is
//! what a checkpoint writes. The *taken* bits are the present: a slot is taken from its allocation until the loss of its last
//! reference is known durable. In between it is pending (commit rule 3).
//!
//! Containers are logical: the table gives where each lies, its generation (which grows before any of its slots is reused,
//! so that what was known about its slots must be verified again) and how many slots are live.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::bytes::{put_u32, u32_at};
use crate::entry::Slot;
use crate::geometry::Geometry;

/// State of a slot in the space map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    Free = 0,
    Single = 1,
    Shared = 2,
}

/// Bytes of a container's entry on disk: location, generation, live slots, flags.
pub(crate) const CONTAINER_BYTES: u64 = 16;

/// A container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Container {
    /// Where it lies: container number on the store.
    pub location: u32,
    /// Grows whenever the container is opened to have slots reused, and when a slot becomes free that the allocator will
    /// come to while the container is open.
    pub generation: u32,
    /// Slots that are not free in the space map.
    pub live: u32,
    /// Whether its space on the store is reserved. Containers are reserved in order.
    pub reserved: bool,
    /// Slots that are not taken. Not on disk.
    pub free: u32,
}

/// All slots and containers.
pub(crate) struct Space {
    slots: u64,
    per_container: u32,
    block_size: u32,
    map: Vec<u8>,
    taken: Vec<u64>,
    pub(crate) containers: Vec<Container>,
    /// Slots without a reference, and the record that took the last one away.
    pending: VecDeque<(Slot, u64)>,
    open: Option<u32>,
    cursor: u32,
    search: u32,
    free: u64,
    /// Containers below this have their space reserved; only they are allocated from.
    reserved: u32,
    /// Free slots in them.
    ready: u64,
    /// Slots with at least one reference in the space map.
    pub(crate) data_used: u64,
    wrapped: Vec<u32>,
    dirty_map: Vec<bool>,
    dirty_containers: Vec<bool>,
}

impl Space {
    pub(crate) fn new(geometry: &Geometry) -> Space {
        let slots = geometry.slots();
        let per_container = geometry.slots_per_container;
        let fresh = Container { location: 0, generation: 1, live: 0, reserved: false, free: per_container };
        let containers: Vec<_> =
            (0..geometry.containers).map(|number| Container { location: number, ..fresh }).collect();
        let map_leaves = slots.div_ceil(geometry.block() * 4);
        Space {
            slots,
            per_container,
            block_size: geometry.block_size,
            map: vec![0; (map_leaves * geometry.block()) as usize],
            taken: vec![0; slots.div_ceil(64) as usize],
            pending: VecDeque::new(),
            open: None,
            cursor: 0,
            search: 0,
            free: slots,
            reserved: 0,
            ready: 0,
            data_used: 0,
            wrapped: Vec::new(),
            dirty_map: vec![false; map_leaves as usize],
            dirty_containers: vec![
                false;
                (containers.len() as u64 * CONTAINER_BYTES).div_ceil(geometry.block()) as usize
            ],
            containers,
        }
    }

    pub(crate) fn contains(&self, slot: Slot) -> bool {
        slot.0 < self.slots
    }

    pub(crate) fn container_of(&self, slot: Slot) -> u32 {
        (slot.0 / u64::from(self.per_container)) as u32
    }

    pub(crate) fn generation(&self, slot: Slot) -> u32 {
        self.containers[self.container_of(slot) as usize].generation
    }

    /// Block of the store where a slot lies.
    pub(crate) fn block_of(&self, slot: Slot, geometry: &Geometry) -> u64 {
        let container = &self.containers[self.container_of(slot) as usize];
        let within = slot.0 % u64::from(self.per_container);
        geometry.data_start() + u64::from(container.location) * u64::from(self.per_container) + within
    }

    pub(crate) fn state(&self, slot: Slot) -> SlotState {
        match self.map[(slot.0 / 4) as usize] >> (slot.0 % 4 * 2) & 3 {
            0 => SlotState::Free,
            1 => SlotState::Single,
            _ => SlotState::Shared,
        }
    }

    /// Changes the space map: only a merge does.
    pub(crate) fn set_state(&mut self, slot: Slot, state: SlotState) {
        let before = self.state(slot);
        let shift = slot.0 % 4 * 2;
        let byte = &mut self.map[(slot.0 / 4) as usize];
        *byte = *byte & !(3 << shift) | (state as u8) << shift;
        self.dirty_map[(slot.0 / 4 / u64::from(self.block_size)) as usize] = true;
        let container = self.container_of(slot);
        match (before == SlotState::Free, state == SlotState::Free) {
            (true, false) => {
                self.containers[container as usize].live += 1;
                self.data_used += 1;
                self.touch_container(container);
            }
            (false, true) => {
                self.containers[container as usize].live -= 1;
                self.data_used -= 1;
                self.touch_container(container);
            }
            _ => {}
        }
    }

    fn touch_container(&mut self, container: u32) {
        self.dirty_containers[(u64::from(container) * CONTAINER_BYTES / u64::from(self.block_size)) as usize] = true;
    }

    pub(crate) fn is_taken(&self, slot: Slot) -> bool {
        self.taken[(slot.0 / 64) as usize] >> (slot.0 % 64) & 1 != 0
    }

    /// Takes a slot: allocation, and replay.
    pub(crate) fn take(&mut self, slot: Slot) {
        if !self.is_taken(slot) {
            self.taken[(slot.0 / 64) as usize] |= 1 << (slot.0 % 64);
            self.free -= 1;
            let container = self.container_of(slot);
            self.containers[container as usize].free -= 1;
            self.ready -= u64::from(container < self.reserved);
        }
    }

    /// Gives a slot back to the allocator.
    pub(crate) fn give_back(&mut self, slot: Slot) {
        assert!(self.is_taken(slot) && self.state(slot) == SlotState::Free);
        self.taken[(slot.0 / 64) as usize] &= !(1 << (slot.0 % 64));
        self.free += 1;
        let container = self.container_of(slot);
        self.containers[container as usize].free += 1;
        self.ready += u64::from(container < self.reserved);
        let place = slot.0 % u64::from(self.per_container);
        if self.open == Some(container) && place >= u64::from(self.cursor) {
            // The allocator will come by without opening the container again.
            self.grow_generation(container);
        }
    }

    /// What was known about the container's slots has to be verified again.
    fn grow_generation(&mut self, container: u32) {
        let generation = &mut self.containers[container as usize].generation;
        *generation = generation.wrapping_add(1);
        if *generation as u16 == 0 {
            self.wrapped.push(container);
        }
        self.touch_container(container);
    }

    /// The slots of a container whose generation has come round in the 16 bits that the index keeps of it.
    pub(crate) fn take_wrapped(&mut self) -> Option<core::ops::Range<u64>> {
        let first = u64::from(self.wrapped.pop()?) * u64::from(self.per_container);
        Some(first..first + u64::from(self.per_container))
    }

    /// The last reference to a slot went away in record `sequence`.
    pub(crate) fn retire(&mut self, slot: Slot, sequence: u64) {
        debug_assert!(self.is_taken(slot));
        self.pending.push_back((slot, sequence));
    }

    /// Gives back the pending slots whose record is at or below `published`, except those that `busy` holds on to, and
    /// lists them in `matured`.
    pub(crate) fn mature(&mut self, published: u64, busy: impl Fn(Slot) -> bool, matured: &mut Vec<Slot>) {
        for _ in 0..self.pending.len() {
            let Some(&(slot, sequence)) = self.pending.front() else { break };
            if sequence > published {
                break;
            }
            self.pending.pop_front();
            if busy(slot) {
                self.pending.push_back((slot, sequence));
            } else {
                self.give_back(slot);
                matured.push(slot);
            }
        }
    }

    pub(crate) fn pending(&self) -> &VecDeque<(Slot, u64)> {
        &self.pending
    }

    /// Slots that can be allocated.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Free slots whose space is reserved: what [`Space::allocate`] can give now.
    pub(crate) fn ready(&self) -> u64 {
        self.ready
    }

    /// The next containers to reserve space for (first, count), if less than `ahead` free slots are ready.
    pub(crate) fn to_reserve(&self, ahead: u64, at_once: u32) -> Option<(u32, u32)> {
        let left = self.containers.len() as u32 - self.reserved;
        (left > 0 && self.ready < ahead).then_some((self.reserved, left.min(at_once)))
    }

    /// Space is reserved for `count` more containers.
    pub(crate) fn set_reserved(&mut self, count: u32) {
        for _ in 0..count {
            let container = &mut self.containers[self.reserved as usize];
            container.reserved = true;
            self.ready += u64::from(container.free);
            self.touch_container(self.reserved);
            self.reserved += 1;
        }
    }

    /// Allocates a slot by the `log` placement: the open container in slot order, then an empty one, then the emptiest.
    pub(crate) fn allocate(&mut self) -> Option<Slot> {
        if self.ready == 0 {
            return None;
        }
        loop {
            if let Some(container) = self.open {
                while self.cursor < self.per_container {
                    let slot = Slot(u64::from(container) * u64::from(self.per_container) + u64::from(self.cursor));
                    self.cursor += 1;
                    if !self.is_taken(slot) {
                        self.take(slot);
                        return Some(slot);
                    }
                }
            }
            self.open_next();
        }
    }

    fn open_next(&mut self) {
        let count = self.reserved;
        let ready = &self.containers[..count as usize];
        let empty = (0..count)
            .map(|i| (self.search + i) % count)
            .find(|&number| ready[number as usize].free == self.per_container);
        let chosen = empty.unwrap_or_else(|| {
            let emptiest = ready.iter().enumerate().max_by_key(|(_, container)| container.free);
            emptiest.map_or(0, |(number, _)| number as u32)
        });
        self.search = (chosen + 1) % count;
        self.open = Some(chosen);
        self.cursor = 0;
        self.grow_generation(chosen);
    }

    // ---- leaves on disk ----

    pub(crate) fn map_leaf_slots(&self) -> u64 {
        u64::from(self.block_size) * 4
    }

    pub(crate) fn map_leaves(&self) -> u64 {
        self.dirty_map.len() as u64
    }

    pub(crate) fn container_leaves(&self) -> u64 {
        self.dirty_containers.len() as u64
    }

    pub(crate) fn next_dirty_map_leaf(&self, from: u64) -> Option<u64> {
        (from as usize..self.dirty_map.len()).find(|&leaf| self.dirty_map[leaf]).map(|leaf| leaf as u64)
    }

    pub(crate) fn next_dirty_container_leaf(&self, from: u64) -> Option<u64> {
        (from as usize..self.dirty_containers.len()).find(|&leaf| self.dirty_containers[leaf]).map(|leaf| leaf as u64)
    }

    pub(crate) fn write_map_leaf(&mut self, leaf: u64, page: &mut [u8]) {
        let at = (leaf * u64::from(self.block_size)) as usize;
        page.copy_from_slice(&self.map[at..at + page.len()]);
        self.dirty_map[leaf as usize] = false;
    }

    /// Takes a leaf of the space map in, at opening. `None`: it holds a state that does not exist, or slots that do not.
    pub(crate) fn read_map_leaf(&mut self, leaf: u64, page: &[u8]) -> Option<()> {
        let first = leaf * self.map_leaf_slots();
        for (i, &byte) in page.iter().enumerate() {
            if byte == 0 {
                continue;
            }
            for quarter in 0..4 {
                let state = byte >> (quarter * 2) & 3;
                let slot = Slot(first + i as u64 * 4 + quarter);
                if state == 3 || (state != 0 && !self.contains(slot)) {
                    return None;
                }
                if state != 0 {
                    self.take(slot);
                    self.data_used += 1;
                    let container = self.container_of(slot);
                    self.containers[container as usize].live += 1;
                }
            }
        }
        let at = (leaf * u64::from(self.block_size)) as usize;
        self.map[at..at + page.len()].copy_from_slice(page);
        Some(())
    }

    pub(crate) fn write_container_leaf(&mut self, leaf: u64, page: &mut [u8]) {
        page.fill(0);
        let per_leaf = u64::from(self.block_size) / CONTAINER_BYTES;
        for (i, bytes) in page.chunks_exact_mut(CONTAINER_BYTES as usize).enumerate() {
            if let Some(container) = self.containers.get((leaf * per_leaf) as usize + i) {
                put_u32(bytes, 0, container.location);
                put_u32(bytes, 4, container.generation);
                put_u32(bytes, 8, container.live);
                put_u32(bytes, 12, u32::from(container.reserved));
            }
        }
        self.dirty_containers[leaf as usize] = false;
    }

    /// Takes a leaf of the container table in, at opening. `None`: it makes no sense.
    pub(crate) fn read_container_leaf(&mut self, leaf: u64, page: &[u8]) -> Option<()> {
        let per_leaf = u64::from(self.block_size) / CONTAINER_BYTES;
        let count = self.containers.len() as u32;
        for (i, bytes) in page.chunks_exact(CONTAINER_BYTES as usize).enumerate() {
            if let Some(container) = self.containers.get_mut((leaf * per_leaf) as usize + i) {
                container.location = u32_at(bytes, 0);
                container.generation = u32_at(bytes, 4);
                // Counted anew from the space map, which is read next.
                container.live = 0;
                container.reserved = u32_at(bytes, 12) & 1 != 0;
                let number = (leaf * per_leaf) as u32 + i as u32;
                if container.reserved && number == self.reserved {
                    self.reserved += 1;
                    self.ready += u64::from(container.free);
                }
                if container.location >= count {
                    return None;
                }
            }
        }
        Some(())
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        (self.map.len() + self.taken.len() * 8 + self.containers.len() * core::mem::size_of::<Container>()) as u64
            + self.pending.capacity() as u64 * 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        let mut space = space_without_reserve();
        space.set_reserved(2);
        space
    }

    fn space_without_reserve() -> Space {
        Space::new(&Geometry {
            block_size: 512,
            slots_per_container: 4,
            piece_blocks: 4,
            place_b: 2,
            journal_blocks: 16,
            metadata_blocks: 16,
            containers: 2,
            spare_containers: 0,
            growth: crate::geometry::UNGROWN,
        })
    }

    fn mature(space: &mut Space, published: u64, busy: bool) -> usize {
        let mut matured = vec![];
        space.mature(published, |_| busy, &mut matured);
        matured.len()
    }

    #[test]
    fn nothing_is_allocated_before_its_space_is_reserved() {
        let mut space = space_without_reserve();
        assert_eq!((space.allocate(), space.to_reserve(1, 1)), (None, Some((0, 1))));
        space.set_reserved(1);
        assert_eq!((space.ready(), space.allocate()), (4, Some(Slot(0))));
    }

    #[test]
    fn slots_are_allocated_in_order_and_holes_only_when_no_container_is_empty() {
        let mut space = space();
        let all: Vec<_> = (0..8).map(|_| space.allocate().unwrap()).collect();
        assert_eq!(all, (0..8).map(Slot).collect::<Vec<_>>());
        assert_eq!(space.allocate(), None);
        for slot in [1, 5, 6] {
            space.retire(Slot(slot), 9);
        }
        assert_eq!(mature(&mut space, 8, false), 0);
        assert_eq!(mature(&mut space, 9, false), 3);
        let before = space.generation(Slot(5));
        assert_eq!(space.allocate(), Some(Slot(5)));
        assert!(space.generation(Slot(5)) > before);
        assert_eq!((space.allocate(), space.allocate(), space.allocate()), (Some(Slot(6)), Some(Slot(1)), None));
    }

    #[test]
    fn a_slot_that_is_still_being_read_or_written_is_not_given_back() {
        let mut space = space();
        let slot = space.allocate().unwrap();
        space.retire(slot, 1);
        assert_eq!(mature(&mut space, 1, true), 0);
        assert_eq!(space.pending().len(), 1);
        assert_eq!(mature(&mut space, 1, false), 1);
    }

    #[test]
    fn leaves_read_back() {
        let mut space = space();
        for _ in 0..3 {
            let slot = space.allocate().unwrap();
            space.set_state(slot, SlotState::Single);
        }
        space.set_state(Slot(1), SlotState::Shared);
        let (mut map, mut table) = ([0; 512], [0; 512]);
        space.write_map_leaf(0, &mut map);
        space.write_container_leaf(0, &mut table);
        let mut again = self::space();
        again.read_container_leaf(0, &table).unwrap();
        again.read_map_leaf(0, &map).unwrap();
        assert_eq!(again.state(Slot(1)), SlotState::Shared);
        assert_eq!((again.data_used, again.free(), again.containers[0].live), (3, 5, 3));
        assert_eq!(again.read_map_leaf(0, &[0xff; 512]), None);
    }
}
