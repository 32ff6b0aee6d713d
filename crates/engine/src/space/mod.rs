//! Space management of slots and containers: references, allocation, and deferred frees, so that a crash never loses a referenced slot.
//!
//! Two views. The *space map* (two bits a slot) is as of the newest merge and changes only there. It is a tree of pages, read through the page
//! cache: a container takes six bytes of memory here, a slot none. The *taken* slots are the present: the map shows them as free, but they must
//! not be allocated. They have been allocated since, or the loss of their last reference is not known durable yet. The latter are pending
//! (commit rule 3).
//!
//! The allocator takes slots from *open* containers. A container is opened with a list of its free slots, made from its part of the space map
//! and the taken slots; slots that become free later wait until it is opened again. Each opening increases the container's generation. So
//! information about its slots must be verified again before a slot is reused.

pub(crate) mod evacuation;
pub(crate) mod holes;
mod sequential;
mod spared;
mod spill_space;
pub(crate) mod zones;

use crate::format::layout::CONTAINER_BYTES;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use crate::format::bytes::{put_u16, u16_at};
use crate::format::entry::Slot;
use crate::format::geometry::Geometry;
use crate::locality_map::NearSet;
use holes::Holes;

/// State of a slot in the space map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    Free = 0,
    Single = 1,
    Shared = 2,
    /// Slot that is not free although no tree refers to it: records after the checkpoint refer to it, or did. The next merge settles it.
    Held = 3,
}

impl SlotState {
    /// Reads the state of a slot in its leaf of the space map; `at` counts from the first slot of the leaf.
    pub(crate) fn read(leaf: &[u8], at: u64) -> SlotState {
        SlotState::from_code(leaf[(at / 4) as usize] >> (at % 4 * 2) & 3)
    }

    pub(crate) fn write(self, leaf: &mut [u8], at: u64) {
        let shift = at % 4 * 2;
        let byte = &mut leaf[(at / 4) as usize];
        *byte = *byte & !(3 << shift) | (self as u8) << shift;
    }

    pub(crate) fn from_code(code: u8) -> SlotState {
        match code {
            0 => SlotState::Free,
            1 => SlotState::Single,
            2 => SlotState::Shared,
            _ => SlotState::Held,
        }
    }

    /// Returns true if a tree refers to the slot.
    pub(crate) fn is_used(self) -> bool {
        matches!(self, SlotState::Single | SlotState::Shared)
    }
}

/// Number of containers whose greatest number of free slots is kept, so that a search can skip them.
const GROUP: u32 = 1024;

/// Container: a group of consecutive slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Container {
    /// Number that grows whenever the container is opened.
    pub generation: u16,
    /// Number of slots that are not free in the space map.
    pub live: u16,
    /// Number of slots that are free and not taken. Not on disk.
    pub free: u16,
}

/// Greatest number of free slots among the containers of a group that can be opened.
#[derive(Clone, Copy)]
struct Group {
    most: u16,
    /// True if `most` may be less by now.
    stale: bool,
}

/// Open container, with the slots that the allocator gives out in order.
struct Open {
    container: u32,
    /// Bitmap of the remaining slots.
    slots: Vec<u64>,
    left: u32,
    /// Word of the bitmap with the next slot, or a word before it.
    word: usize,
}

impl Open {
    /// Takes the first slot of a word, which must have one. Returns its number in the container.
    #[inline]
    fn take(&mut self, word: usize) -> u64 {
        let at = word as u64 * 64 + u64::from(self.slots[word].trailing_zeros());
        self.slots[word] &= self.slots[word] - 1;
        self.left -= 1;
        at
    }

    /// Returns the first word with a remaining slot.
    fn next_word(&self) -> Option<usize> {
        (self.word..self.slots.len()).find(|&at| self.slots[at] != 0)
    }
}

/// Space of a pool: all slots and containers.
pub(crate) struct Space {
    slots: u64,
    per_container: u32,
    containers: Vec<Container>,
    groups: Vec<Group>,
    taken: NearSet<Slot>,
    /// Slots without a reference, each with the record that removed the last one.
    pending: VecDeque<(Slot, u64)>,
    /// Last record of pending slots, or a later one that is published.
    last_pending_free: u64,
    open: VecDeque<Open>,
    /// Open containers for sequential writes in rows (`sequential.rs`), opened empty, and the number of their remaining slots.
    sequential: VecDeque<Open>,
    sequential_left: u64,
    /// Slot lists of closed containers, kept for reuse.
    spare: Vec<Vec<u64>>,
    /// Containers that are open, evacuated, scratch or spill space, and those whose part of the space map is unreadable.
    closed_to: HashSet<u32, FixedState>,
    excluded: Vec<u32>,
    /// Containers that a job evacuates (`evacuation.rs`); they are closed to all others.
    evacuating: Vec<u32>,
    /// Containers that are kept for copies (`zones.rs`); they are closed to all others, too.
    scratch: Vec<u32>,
    /// Containers in which a job has its own temporary data (`spill_space.rs`), and a flag if writes need them; they are closed to all others, too.
    spill: BTreeSet<u32>,
    spill_is_reclaimed: bool,
    /// Containers that a plan has filled, until they are empty: defragmentation takes nothing out of them.
    planned: BTreeSet<u32>,
    /// Empty containers that may have no space on the host (`holes.rs`).
    holes: Holes,
    search: u32,
    free: u64,
    /// Number of reserved containers with all slots free, without holes.
    empty: u32,
    /// Number of slots that have been given back since opening.
    given_back: u64,
    /// Number of containers with reserved space: the first ones, but for holes. Only these are opened.
    reserved: u32,
    /// Number of free slots in reserved containers, without holes.
    available: u64,
    /// Number of remaining slots in open containers.
    ready: u64,
    /// Number of slots with at least one reference in the space map.
    data_used: u64,
    wrapped: Vec<u32>,
    /// Number of times that a generation has wrapped around.
    wraps: u64,
    /// Containers whose slots may have got new content since the last query; `None`: not collected.
    changed: Option<BTreeSet<u32>>,
    leaf_entries: u64,
    dirty_containers: Vec<bool>,
}

impl Space {
    pub(crate) fn new(geometry: &Geometry) -> Space {
        let fresh = Container { generation: 1, live: 0, free: geometry.slots_per_container as u16 };
        let leaf_entries = geometry.block() / CONTAINER_BYTES;
        let leaves = u64::from(geometry.containers).div_ceil(leaf_entries);
        Space {
            slots: geometry.slots(),
            per_container: geometry.slots_per_container,
            containers: vec![fresh; geometry.containers as usize],
            groups: vec![Group { most: 0, stale: true }; geometry.containers.div_ceil(GROUP) as usize],
            taken: NearSet::default(),
            pending: VecDeque::new(),
            last_pending_free: 0,
            open: VecDeque::new(),
            sequential: VecDeque::new(),
            sequential_left: 0,
            spare: Vec::new(),
            closed_to: HashSet::with_hasher(FixedState::with_seed(10)),
            excluded: Vec::new(),
            evacuating: Vec::new(),
            scratch: Vec::new(),
            spill: BTreeSet::new(),
            spill_is_reclaimed: false,
            planned: BTreeSet::new(),
            holes: Holes::new(geometry.containers),
            search: 0,
            free: geometry.slots(),
            empty: 0,
            given_back: 0,
            reserved: 0,
            available: 0,
            ready: 0,
            data_used: 0,
            wrapped: Vec::new(),
            wraps: 0,
            changed: None,
            leaf_entries,
            dirty_containers: vec![false; leaves as usize],
        }
    }

    /// Adds free containers at the end, up to the number in the new geometry.
    pub(crate) fn grow(&mut self, geometry: &Geometry) {
        let fresh = Container { generation: 1, live: 0, free: geometry.slots_per_container as u16 };
        self.containers.reserve_exact(geometry.containers as usize - self.containers.len());
        self.containers.resize(geometry.containers as usize, fresh);
        self.groups.resize(geometry.containers.div_ceil(GROUP) as usize, Group { most: 0, stale: true });
        let leaves = u64::from(geometry.containers).div_ceil(self.leaf_entries);
        self.dirty_containers.resize(leaves as usize, false);
        self.free += geometry.slots() - self.slots;
        self.slots = geometry.slots();
        self.holes.grow(geometry.containers);
    }

    pub(crate) fn contains(&self, slot: Slot) -> bool {
        slot.0 < self.slots
    }

    pub(crate) fn container_of(&self, slot: Slot) -> u32 {
        (slot.0 / u64::from(self.per_container)) as u32
    }

    pub(crate) fn generation(&self, slot: Slot) -> u16 {
        self.containers[self.container_of(slot) as usize].generation
    }

    /// Returns the range of slots of a container.
    pub(crate) fn slots_of(&self, container: u32) -> core::ops::Range<u64> {
        let first = u64::from(container) * u64::from(self.per_container);
        first..first + u64::from(self.per_container)
    }

    /// Notes that a merge has changed a slot's state. `None` if the tables contradict this: a slot must be taken before its first reference, and not while it
    /// had references. The counts must agree with the map.
    pub(crate) fn merged(&mut self, slot: Slot, before: SlotState, after: SlotState) -> Option<()> {
        let container = self.container_of(slot);
        let live = &mut self.containers[container as usize].live;
        match (before, after) {
            (SlotState::Free, _) => {
                self.taken.remove(&slot).then_some(())?;
                *live += 1;
                self.touch_container(container);
            }
            (_, SlotState::Free) => {
                *live = live.checked_sub(1)?;
                // Damaged records may have taken it as well: it would be given back twice.
                self.taken.insert(slot).then_some(())?;
                self.touch_container(container);
            }
            _ => {}
        }
        match (before.is_used(), after.is_used()) {
            (false, true) => self.data_used += 1,
            (true, false) => self.data_used = self.data_used.checked_sub(1)?,
            _ => {}
        }
        Some(())
    }

    fn touch_container(&mut self, container: u32) {
        self.dirty_containers[(u64::from(container) / self.leaf_entries) as usize] = true;
    }

    /// Returns true if a slot is not available to the allocator although the space map shows it as free.
    pub(crate) fn is_taken(&self, slot: Slot) -> bool {
        self.taken.contains(&slot)
    }

    /// Takes a slot that the space map shows as free: allocation, and replay. `None` if its container has no free slot.
    #[inline]
    pub(crate) fn take(&mut self, slot: Slot) -> Option<()> {
        let container = self.container_of(slot);
        let free = &mut self.containers[container as usize].free;
        let was_empty = u32::from(*free) == self.per_container;
        *free = free.checked_sub(1)?;
        self.empty -= u32::from(was_empty && container < self.reserved);
        let new = self.taken.insert(slot);
        assert!(new, "a slot is taken once");
        assert!(!self.is_evacuating(container), "a container that is evacuated gets nothing new");
        self.free -= 1;
        self.available -= u64::from(self.counts(container));
        self.groups[(container / GROUP) as usize].stale = true;
        Some(())
    }

    /// Gives a slot back to the allocator.
    fn give_back(&mut self, slot: Slot) {
        assert!(self.taken.remove(&slot));
        let container = self.container_of(slot);
        let free = &mut self.containers[container as usize].free;
        *free += 1;
        self.free += 1;
        self.given_back += 1;
        if u32::from(*free) == self.per_container {
            self.empty += u32::from(container < self.reserved);
            self.planned.remove(&container);
            self.holes.note_more();
        }
        let group = &mut self.groups[(container / GROUP) as usize];
        if container < self.reserved && !self.closed_to.contains(&container) {
            group.most = group.most.max(*free);
        }
        self.available += u64::from(self.counts(container));
    }

    /// Returns true if the free slots of a container count as available.
    #[inline]
    fn counts(&self, container: u32) -> bool {
        container < self.reserved && !self.excluded.contains(&container)
    }

    /// Increases the generation of a container, so that all information about its slots must be verified again.
    fn grow_generation(&mut self, container: u32) {
        let generation = &mut self.containers[container as usize].generation;
        *generation = generation.wrapping_add(1);
        if *generation == 0 {
            self.wrapped.push(container);
            self.wraps += 1;
        }
        if let Some(changed) = &mut self.changed {
            changed.insert(container);
        }
        self.touch_container(container);
    }

    /// Returns the slots of a container whose generation has wrapped around, each such container once.
    pub(crate) fn take_wrapped(&mut self) -> Option<core::ops::Range<u64>> {
        self.wrapped.pop().map(|container| self.slots_of(container))
    }

    /// Returns the number of generation wraparounds since the pool was opened. Information from before the last one may falsely match again.
    pub(crate) fn wraps(&self) -> u64 {
        self.wraps
    }

    /// Begins to collect the containers that may have got new content.
    pub(crate) fn watch(&mut self) {
        self.changed = Some(BTreeSet::new());
    }

    /// Stops collecting the containers that may have got new content.
    pub(crate) fn stop_watching(&mut self) {
        self.changed = None;
    }

    /// Notes that replay took a slot: its container was opened before, perhaps with a generation that does not say so.
    pub(crate) fn note_replayed(&mut self, slot: Slot) {
        let container = self.container_of(slot);
        if let Some(changed) = &mut self.changed {
            changed.insert(container);
        }
    }

    /// Returns true if [`Space::take_changed`] would return any containers.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.as_ref().is_some_and(|changed| !changed.is_empty())
    }

    /// Returns the containers that may have got new content since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<u32> {
        self.changed.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Returns true if all writes to a container are merged, no further write to it will come, and at least half of its slots are in use.
    pub(crate) fn is_settled(&self, container: u32) -> bool {
        let Some(known) = self.containers.get(container as usize) else { return false };
        let live = u32::from(known.live);
        !self.closed_to.contains(&container)
            && live + u32::from(known.free) == self.per_container
            && 2 * live >= self.per_container
    }

    /// Returns the number of slots in use as of the last merge.
    #[inline]
    pub(crate) fn data_used(&self) -> u64 {
        self.data_used
    }

    /// Sets the number of slots in use: that of the superblock.
    pub(crate) fn set_data_used(&mut self, slots: u64) {
        self.data_used = slots;
    }

    /// Returns all containers.
    #[inline]
    pub(crate) fn containers(&self) -> &[Container] {
        &self.containers
    }

    /// Makes a slot pending whose last reference went away in record `sequence`. It becomes free when that record is published.
    pub(crate) fn defer_free(&mut self, slot: Slot, sequence: u64) {
        assert!(self.is_taken(slot));
        self.pending.push_back((slot, sequence));
        self.last_pending_free = self.last_pending_free.max(sequence);
    }

    /// Returns the last record that the pending slots wait for, or a later, published one; `None` without pending slots.
    pub(crate) fn last_pending_free(&self) -> Option<u64> {
        (!self.pending.is_empty()).then_some(self.last_pending_free)
    }

    /// Gives back the pending slots whose record is at or below `published`, except those for which `busy` is true, and lists them in `reclaimed`. Looks at
    /// `most` of them. Returns true if some were given back and more may follow.
    pub(crate) fn reclaim(
        &mut self,
        published: u64,
        most: usize,
        busy: impl Fn(Slot) -> bool,
        reclaimed: &mut Vec<Slot>,
    ) -> bool {
        let before = reclaimed.len();
        for _ in 0..self.pending.len().min(most) {
            let Some(&(slot, sequence)) = self.pending.front() else { break };
            if sequence > published {
                return false;
            }
            self.pending.pop_front();
            if busy(slot) {
                self.pending.push_back((slot, sequence));
            } else {
                self.give_back(slot);
                reclaimed.push(slot);
            }
        }
        !self.pending.is_empty() && reclaimed.len() > before
    }

    pub(crate) fn pending(&self) -> &VecDeque<(Slot, u64)> {
        &self.pending
    }

    /// Returns the number of free slots, with or without reserved space.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Returns the number of slots given back since the pool was opened. It grows whenever a slot becomes free.
    pub(crate) fn given_back(&self) -> u64 {
        self.given_back
    }

    /// Returns the number of slots that can be allocated immediately: those left in open containers.
    pub(crate) fn ready(&self) -> u64 {
        self.ready
    }

    /// Returns the number of free slots with reserved space: they can be allocated once their containers are open.
    pub(crate) fn available(&self) -> u64 {
        self.available
    }

    /// Returns the number of containers with reserved space: the first ones.
    pub(crate) fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Returns the next containers to reserve space for (first, count), if less than `ahead` free slots are available. With `ignores_discard`, which only a mutant
    /// has, they may be those of the discard in flight.
    pub(crate) fn to_reserve(&self, ahead: u64, at_once: u32, ignores_discard: bool) -> Option<(u32, u32)> {
        let left = self.containers.len() as u32 - self.reserved;
        // Scratch containers and spill space are given up only when there is nothing more to reserve.
        let scratch = || self.scratch.iter().map(|&container| u64::from(self.free_in(container))).sum::<u64>();
        let kept = || scratch() + self.spill_slots();
        // Usually there is enough space even if all of these slots are free.
        let most_kept = self.scratch.len() as u64 * u64::from(self.per_container) + self.spill_slots();
        let is_short = |kept: u64| self.available.saturating_sub(kept) < ahead;
        if !self.has_unreserved() || !is_short(most_kept) || !is_short(kept()) {
            return None;
        }
        let holes = self.next_holes(at_once, ignores_discard).map(|run| (run.start, run.end - run.start));
        holes.or((left > 0).then_some((self.reserved, left.min(at_once))))
    }

    /// Returns true if there are containers without reserved space. They may be in a discard that has to end first.
    pub(crate) fn has_unreserved(&self) -> bool {
        self.reserved < self.containers.len() as u32 || self.holes.count() > 0
    }

    /// Returns true if there are containers without reserved space that are in no discard.
    pub(crate) fn can_reserve_now(&self) -> bool {
        self.reserved < self.containers.len() as u32 || self.holes.count() > self.holes.discarding_count()
    }

    /// Counts `count` more containers as reserved.
    pub(crate) fn set_reserved(&mut self, count: u32) {
        for container in self.reserved..self.reserved + count {
            let free = self.containers[container as usize].free;
            self.available += u64::from(free);
            self.empty += u32::from(u32::from(free) == self.per_container);
            self.groups[(container / GROUP) as usize].stale = true;
        }
        self.reserved += count;
    }

    // ---- opening ----

    /// Returns the greatest number of free slots among the containers of a group that can be opened.
    fn most(&mut self, group: u32) -> u16 {
        if self.groups[group as usize].stale {
            let range = group * GROUP..((group + 1) * GROUP).min(self.reserved);
            let mut most = 0;
            for container in range {
                let free = self.containers[container as usize].free;
                if free > most && !self.closed_to.contains(&container) && !self.holes.has(container) {
                    most = free;
                }
            }
            self.groups[group as usize] = Group { most, stale: false };
        }
        self.groups[group as usize].most
    }

    fn find(&self, containers: core::ops::Range<u32>, free: u16) -> Option<u32> {
        let fits = |container: &u32| {
            self.containers[*container as usize].free == free
                && !self.closed_to.contains(container)
                && !self.holes.has(*container)
        };
        containers.into_iter().find(fits)
    }

    /// Finds an empty container that can be opened: the next one after the container opened last.
    pub(crate) fn empty_container(&mut self) -> Option<u32> {
        let groups = self.reserved.div_ceil(GROUP);
        let reserved = self.reserved;
        let end = |group: u32| ((group + 1) * GROUP).min(reserved);
        let first = self.search / GROUP;
        for i in 0..=groups {
            let group = (first + i) % groups.max(1);
            if i < groups && self.most(group) < self.per_container as u16 {
                continue;
            }
            // The first group is searched from the last position, and again as a whole at the end.
            let from = if i == 0 { self.search } else { group * GROUP };
            if let Some(empty) = self.find(from..end(group), self.per_container as u16) {
                return Some(empty);
            }
        }
        None
    }

    /// Chooses the container to open next, by the `log` placement: the next empty one, else the emptiest. If fresh containers can be reserved, one that is more
    /// than half full is no choice, because its holes make small writes. Containers on flash are spared (`spared.rs`).
    pub(crate) fn choose(&mut self, fresh: bool, is_on_flash: &dyn Fn(u32) -> bool) -> Option<u32> {
        let empty = self.empty_container();
        if empty.is_some() {
            return empty;
        }
        let groups = self.reserved.div_ceil(GROUP);
        let end = |group: u32| ((group + 1) * GROUP).min(self.reserved);
        let best = (0..groups).max_by_key(|&group| self.groups[group as usize].most)?;
        let most = self.groups[best as usize].most;
        if fresh && u32::from(most) < self.per_container / 2 {
            return None;
        }
        if most > 0 {
            let emptiest = self.find(best * GROUP..end(best), most);
            let is_spared = emptiest.is_some_and(is_on_flash);
            return if is_spared { self.find_unspared(best, most, is_on_flash) } else { None }.or(emptiest);
        }
        // Slots of an open container that became free after it was opened.
        let grown = |open: &Open| u32::from(self.containers[open.container as usize].free) > open.left;
        let Some(at) = self.open.iter().position(grown) else {
            return self.close_grown_sequential().or_else(|| self.call_in());
        };
        let open = self.open.remove(at)?;
        Some(self.close(open))
    }

    /// Closes open containers that have more than twice as many free slots as are left to allocate: slots became free there after the opening. The allocator then
    /// needs fewer open ones, and jobs can empty the others.
    pub(crate) fn close_grown(&mut self) {
        let is_grown = |open: &Open| u32::from(self.containers[open.container as usize].free) > 2 * open.left;
        let (grown, others): (VecDeque<Open>, _) = self.open.drain(..).partition(is_grown);
        self.open = others;
        for open in grown {
            self.close(open);
        }
    }

    /// Closes an open container, with its remaining slots.
    fn close(&mut self, open: Open) -> u32 {
        self.ready -= u64::from(open.left);
        self.closed(open.container);
        self.keep(open.slots);
        open.container
    }

    /// Opens a container. `free` returns true for its slots (by place) that can be allocated.
    pub(crate) fn open(&mut self, container: u32, free: impl Fn(u64) -> bool) {
        let open = self.make_open(container, free);
        self.open.push_back(open);
    }

    fn make_open(&mut self, container: u32, free: impl Fn(u64) -> bool) -> Open {
        let mut slots = self.spare.pop().unwrap_or_default();
        slots.resize(self.per_container.div_ceil(64) as usize, 0);
        for place in (0..u64::from(self.per_container)).filter(|&place| free(place)) {
            slots[(place / 64) as usize] |= 1 << (place % 64);
        }
        let left = slots.iter().map(|word: &u64| word.count_ones()).sum();
        assert_eq!(left, u32::from(self.containers[container as usize].free));
        self.ready += u64::from(left);
        self.close_to_others(container);
        self.search = container + 1;
        self.grow_generation(container);
        Open { container, slots, left, word: 0 }
    }

    /// Closes a container permanently because its part of the space map is unreadable: its free slots stay unused.
    pub(crate) fn exclude(&mut self, container: u32) {
        self.available -= u64::from(self.containers[container as usize].free);
        self.excluded.push(container);
        self.close_to_others(container);
    }

    fn close_to_others(&mut self, container: u32) {
        self.closed_to.insert(container);
        self.holes.note_less();
        self.groups[(container / GROUP) as usize].stale = true;
    }

    fn closed(&mut self, container: u32) {
        self.closed_to.remove(&container);
        if self.is_empty(container) {
            self.holes.note_more();
        }
        self.groups[(container / GROUP) as usize].stale = true;
    }

    /// Returns the number of consecutive slots at the front of the open container.
    pub(crate) fn run(&self) -> u64 {
        let Some(open) = self.open.front() else { return 0 };
        let Some(first) = open.next_word() else { return 0 };
        let mut at = first as u64 * 64 + u64::from(open.slots[first].trailing_zeros());
        let start = at;
        while open.slots.get((at / 64) as usize).is_some_and(|word| word >> (at % 64) & 1 == 1) {
            at += 1;
        }
        at - start
    }

    /// Allocates a slot from the open containers, if one is left: from rows for `sequential` writes, from the others for all other writes. If the preferred
    /// containers have none, it takes one of the others.
    pub(crate) fn allocate(&mut self, sequential: bool) -> Option<Slot> {
        let from_sequential = if sequential { !self.sequential.is_empty() } else { self.open.is_empty() };
        if from_sequential {
            return self.allocate_sequential();
        }
        let first = self.slots_of(self.open.front()?.container).start;
        let open = self.open.front_mut()?;
        let word = open.next_word()?;
        open.word = word;
        let slot = Slot(first + open.take(word));
        self.ready -= 1;
        self.take(slot)?;
        if self.open.front()?.left == 0 {
            let open = self.open.pop_front()?;
            self.closed(open.container);
            self.keep(open.slots);
        }
        Some(slot)
    }

    /// Keeps a closed container's list for reuse.
    fn keep(&mut self, mut slots: Vec<u64>) {
        slots.clear();
        self.spare.push(slots);
    }

    // ---- leaves on disk ----

    pub(crate) fn container_leaves(&self) -> u64 {
        self.dirty_containers.len() as u64
    }

    pub(crate) fn next_dirty_container_leaf(&self, from: u64) -> Option<u64> {
        (from as usize..self.dirty_containers.len()).find(|&leaf| self.dirty_containers[leaf]).map(|leaf| leaf as u64)
    }

    pub(crate) fn write_container_leaf(&mut self, leaf: u64, page: &mut [u8]) {
        page.fill(0);
        let first = (leaf * self.leaf_entries) as usize;
        for (bytes, container) in page.chunks_exact_mut(CONTAINER_BYTES as usize).zip(&self.containers[first..]) {
            put_u16(bytes, 0, container.generation);
            put_u16(bytes, 2, container.live);
        }
        self.dirty_containers[leaf as usize] = false;
    }

    /// Reads a leaf of the container table at opening. `None`: it is invalid.
    pub(crate) fn read_container_leaf(&mut self, leaf: u64, page: &[u8]) -> Option<()> {
        let first = (leaf * self.leaf_entries) as usize;
        let containers = self.containers.get_mut(first..)?;
        for (bytes, container) in page.chunks_exact(CONTAINER_BYTES as usize).zip(containers) {
            let live = u16_at(bytes, 2);
            let free = (self.per_container as u16).checked_sub(live)?;
            self.free -= u64::from(live);
            *container = Container { generation: u16_at(bytes, 0), live, free };
        }
        Some(())
    }

    /// Returns the bytes of memory of containers, taken and pending slots.
    pub(crate) fn memory(&self) -> u64 {
        (self.containers.len() * core::mem::size_of::<Container>() + self.taken.allocation_size()) as u64
            + self.pending.capacity() as u64 * 16
            + self.holes.memory()
    }
}

/// Number of containers that are reserved at once while the host has space.
pub(crate) const RESERVE_CONTAINERS: u32 = 8;

#[cfg(test)]
mod tests;
