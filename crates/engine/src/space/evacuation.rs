//! Evacuation of containers by jobs such as garbage collection, claims of single slots by jobs, and the choice of containers to evacuate.
//!
//! An evacuated container is closed to all others: the allocator does not open it, and its slots are given to no other job. So slots that
//! become free there stay free, until the whole container is. If writes find no other free slot, the evacuation ends. The container is then
//! opened for the writes, and the job has to check if it still has the container.

use super::spared::TOLERANCE;
use super::{Container, Space};
use crate::format::entry::Slot;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Number of containers that a step of a survey looks at.
const AT_ONCE: u32 = 1 << 16;
/// Number of containers that a survey keeps at its end: the emptiest.
const MOST: usize = 8192;

/// Survey of all containers: those that could be emptied, or filled by emptying others.
#[derive(Default)]
pub(crate) struct Survey {
    next: u32,
    /// Free slots and number of each container, and true if it is on flash.
    found: Vec<(u16, u32, bool)>,
}

/// Containers to be emptied, and others to take their blocks; each list in the order of use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct EvacuationPlan {
    emptied: VecDeque<u32>,
    filled: VecDeque<u32>,
}

impl EvacuationPlan {
    /// Takes the next container to be emptied.
    pub(crate) fn next_emptied(&mut self) -> Option<u32> {
        self.emptied.pop_front()
    }

    /// Returns true if no container is left to be emptied.
    pub(crate) fn is_over(&self) -> bool {
        self.emptied.is_empty()
    }

    /// Returns the containers that are to be filled, in this order.
    pub(crate) fn filled(&self) -> impl Iterator<Item = u32> + '_ {
        self.filled.iter().copied()
    }

    /// Ends the filling of the first of them.
    pub(crate) fn end_filled(&mut self) {
        self.filled.pop_front();
    }
}

impl Space {
    /// Returns true if a job may have a slot that the space map shows as free: its container is neither open nor evacuated, and it is not taken.
    pub(crate) fn may_claim(&self, slot: Slot) -> bool {
        let container = self.container_of(slot);
        self.contains(slot)
            && container < self.reserved
            && !self.closed_to.contains(&container)
            && !self.holes.has(container)
            && !self.taken.contains(&slot)
            && self.containers[container as usize].free > 0
    }

    /// Takes slots of one container for a job. All must be claimable and free in the space map. Information about the container's slots must be verified again,
    /// as when it is opened. A claimed slot that stays unused is given up with [`Space::defer_free`].
    pub(crate) fn claim(&mut self, slots: &[Slot]) -> Option<()> {
        let &first = slots.first()?;
        assert!(slots.iter().all(|&slot| self.container_of(slot) == self.container_of(first)));
        slots.iter().try_for_each(|&slot| self.take(slot))?;
        self.grow_generation(self.container_of(first));
        self.holes.note_less();
        Some(())
    }

    /// Returns true if a container is partly in use, and neither open nor evacuated.
    fn is_partly_free(&self, container: u32) -> bool {
        let free = u32::from(self.containers[container as usize].free);
        free > 0 && free < self.per_container && container < self.reserved && !self.closed_to.contains(&container)
    }

    /// Begins to evacuate a container for a job; false if it is not available.
    pub(crate) fn begin_evacuation(&mut self, container: u32) -> bool {
        let is_to_be_had = self.is_partly_free(container);
        if is_to_be_had {
            self.evacuating.push(container);
            self.close_to_others(container);
        }
        is_to_be_had
    }

    /// Returns true if a job evacuates a container.
    pub(crate) fn is_evacuating(&self, container: u32) -> bool {
        self.evacuating.contains(&container)
    }

    /// Ends the evacuation of a container. Returns false if the container had been reclaimed.
    pub(crate) fn end_evacuation(&mut self, container: u32) -> bool {
        let Some(at) = self.evacuating.iter().position(|&evacuating| evacuating == container) else { return false };
        self.evacuating.swap_remove(at);
        self.closed(container);
        true
    }

    /// Reclaims a scratch or evacuated container with free slots, because there are no others; `None`: the spill space is reclaimed instead.
    pub(super) fn call_in(&mut self) -> Option<u32> {
        if let Some(container) = self.give_up_scratch() {
            return Some(container);
        }
        let has_free = |&&container: &&u32| self.containers[container as usize].free > 0;
        let Some(&container) = self.evacuating.iter().find(has_free) else {
            self.reclaim_spill();
            return None;
        };
        self.end_evacuation(container);
        Some(container)
    }

    /// Ends the evacuation of a container and gives out all of its slots, whatever their content: only with the mutant.
    pub(crate) fn open_as_if_empty(&mut self, container: u32) {
        self.end_evacuation(container);
        for slot in self.slots_of(container).map(Slot) {
            self.taken.remove(&slot);
        }
        let free = &mut self.containers[container as usize].free;
        let more = self.per_container as u16 - core::mem::replace(free, self.per_container as u16);
        (self.free, self.available) = (self.free + u64::from(more), self.available + u64::from(more));
        self.empty += 1;
        self.open(container, |_| true);
    }

    /// Gives a slot out next, whatever its content: only with the mutant.
    pub(crate) fn give_out_as_if_free(&mut self, slot: Slot) {
        let container = self.container_of(slot);
        if self.taken.contains(&slot) || self.closed_to.contains(&container) {
            return;
        }
        let first = self.slots_of(container).start;
        let before = core::mem::replace(&mut self.containers[container as usize].free, 1);
        (self.free, self.available) = (self.free + 1 - u64::from(before), self.available + 1 - u64::from(before));
        self.empty -= u32::from(u32::from(before) == self.per_container);
        self.open(container, |place| first + place == slot.0);
        self.open.rotate_right(1);
    }

    /// Notes that a plan fills a container, until it is empty again.
    pub(crate) fn note_planned(&mut self, container: u32) {
        self.planned.insert(container);
    }

    /// Returns true if a slot is in a container that a plan has filled.
    pub(crate) fn is_planned(&self, slot: Slot) -> bool {
        self.planned.contains(&self.container_of(slot))
    }

    /// Returns the number of containers with all slots free, including those without reserved space.
    pub(crate) fn empty_containers(&self) -> u32 {
        self.empty + self.holes.count() + (self.containers.len() as u32 - self.reserved)
    }

    /// Returns the number of free slots of a container.
    pub(crate) fn free_in(&self, container: u32) -> u16 {
        self.containers[container as usize].free
    }

    /// Returns true if every slot of a container is free.
    pub(crate) fn is_empty(&self, container: u32) -> bool {
        u32::from(self.free_in(container)) == self.per_container
    }

    /// Looks at the next containers of a survey. Returns true at the end: the found containers are then in order, the emptiest first.
    pub(crate) fn look_further(&self, survey: &mut Survey, is_on_flash: impl Fn(u32) -> bool) -> bool {
        let end = self.reserved.min(survey.next.saturating_add(AT_ONCE));
        for container in survey.next.min(end)..end {
            let Container { free, .. } = self.containers[container as usize];
            if free > 0 && self.is_partly_free(container) {
                survey.found.push((free, container, is_on_flash(container)));
                if survey.found.len() >= 2 * MOST {
                    survey.keep_emptiest();
                }
            }
        }
        survey.next = end;
        if end == self.reserved {
            survey.keep_emptiest();
        }
        end == self.reserved
    }
}

impl Survey {
    fn keep_emptiest(&mut self) {
        self.found
            .sort_unstable_by_key(|&(free, container, is_spared)| (core::cmp::Reverse(free), is_spared, container));
        self.found.truncate(MOST);
    }

    /// Divides the found containers, each of `per_container` slots. At most `containers` are emptied, with at most `blocks` blocks in all, and the following
    /// ones take these blocks. So blocks always move to containers with at least as many slots in use. Containers on flash are spared (`spared.rs`), unless
    /// none could be emptied then.
    pub(crate) fn divide(
        &self,
        per_container: u32,
        containers: usize,
        blocks: u64,
        may_be_emptied: impl Fn(u32, u16) -> bool,
    ) -> EvacuationPlan {
        let spared = self.spared(per_container, &may_be_emptied);
        let divide = |is_spared: &dyn Fn(usize) -> bool| {
            let may = |at: usize, container, free| !is_spared(at) && may_be_emptied(container, free);
            self.divide_by(per_container, containers, blocks, may)
        };
        let plan = divide(&|at| spared[at]);
        let is_none = plan.emptied.is_empty() && spared.contains(&true);
        if is_none { divide(&|_| false) } else { plan }
    }

    /// Returns a flag for each found container that is spared: it is on flash, and another that may be emptied is not on flash and has about as few slots in
    /// use.
    fn spared(&self, per_container: u32, may_be_emptied: impl Fn(u32, u16) -> bool) -> Vec<bool> {
        let margin = per_container / u32::from(TOLERANCE);
        let mut next: Option<u16> = None;
        let spared = self.found.iter().rev().map(|&(free, container, is_on_flash)| {
            if !is_on_flash {
                next = if may_be_emptied(container, free) { Some(free) } else { next };
                return false;
            }
            next.is_some_and(|other| u32::from(free) <= u32::from(other) + margin)
        });
        let mut spared: Vec<bool> = spared.collect();
        spared.reverse();
        spared
    }

    fn divide_by(
        &self,
        per_container: u32,
        containers: usize,
        blocks: u64,
        may_be_emptied: impl Fn(usize, u32, u16) -> bool,
    ) -> EvacuationPlan {
        let mut partition = EvacuationPlan::default();
        let mut holes: u64 = self.found.iter().map(|&(free, ..)| u64::from(free)).sum();
        let (mut live, mut taken) = (0, 0);
        for (at, &(free, container, _)) in self.found.iter().enumerate() {
            // A skipped container takes no blocks: it is emptier than the next ones.
            holes -= u64::from(free);
            if !may_be_emptied(at, container, free) {
                continue;
            }
            live += u64::from(per_container - u32::from(free));
            if live > holes.min(blocks) || partition.emptied.len() == containers {
                break;
            }
            partition.emptied.push_back(container);
            taken = at + 1;
        }
        if !partition.emptied.is_empty() {
            for is_filled_last in [false, true] {
                let filled = self.found[taken..].iter().filter(|&&(.., is_on_flash)| is_on_flash == is_filled_last);
                partition.filled.extend(filled.map(|&(_, container, _)| container));
            }
        }
        partition
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{allocate, reclaim, space};
    use super::*;
    use alloc::vec;

    #[test]
    fn a_job_gets_the_slots_that_it_names_but_none_of_an_open_container() {
        let mut space = space();
        allocate(&mut space).unwrap();
        assert_eq!([0, 1, 4, 8].map(|slot| space.may_claim(Slot(slot))), [false, false, true, false]);
        let generation = space.generation(Slot(5));
        space.claim(&[Slot(5), Slot(6)]).unwrap();
        assert_eq!((space.generation(Slot(5)), space.available()), (generation + 1, 5));
        assert!(!space.may_claim(Slot(5)));
        space.defer_free(Slot(6), 0);
        assert_eq!(reclaim(&mut space, 0, false), 1);
        assert_eq!((space.available(), space.may_claim(Slot(6))), (6, true));
        let all: Vec<_> = core::iter::from_fn(|| allocate(&mut space)).collect();
        assert_eq!(all, [1, 2, 3, 4, 6, 7].map(Slot));
    }

    #[test]
    fn a_container_that_is_lent_is_opened_only_where_nothing_else_is_left() {
        let mut space = space();
        while allocate(&mut space).is_some() {}
        for slot in [0, 1, 2, 5] {
            space.defer_free(Slot(slot), 0);
        }
        reclaim(&mut space, 0, false);
        assert!(
            space.begin_evacuation(0)
                && !space.begin_evacuation(0)
                && space.is_evacuating(0)
                && !space.may_claim(Slot(0))
        );
        assert_eq!((allocate(&mut space), space.is_evacuating(0)), (Some(Slot(5)), true), "there are others");
        assert_eq!(
            (allocate(&mut space), space.is_evacuating(0), space.end_evacuation(0)),
            (Some(Slot(0)), false, false)
        );
    }

    #[test]
    fn whole_containers_are_counted() {
        let mut space = space();
        assert_eq!(space.empty_containers(), 2);
        while allocate(&mut space).is_some() {}
        assert_eq!((space.empty_containers(), space.given_back()), (0, 0));
        (0..4).for_each(|slot| space.defer_free(Slot(slot), 0));
        reclaim(&mut space, 0, false);
        assert_eq!((space.empty_containers(), space.given_back(), space.is_empty(0)), (1, 4, true));
    }

    fn divide(found: &[(u16, u32)], containers: usize, blocks: u64, stays: u32) -> (Vec<u32>, Vec<u32>) {
        divide_with_flash(found, &[], containers, blocks, stays)
    }

    fn divide_with_flash(
        found: &[(u16, u32)],
        on_flash: &[u32],
        containers: usize,
        blocks: u64,
        stays: u32,
    ) -> (Vec<u32>, Vec<u32>) {
        let known = |&(free, container): &(u16, u32)| (free, container, on_flash.contains(&container));
        let mut survey = Survey { next: 0, found: found.iter().map(known).collect() };
        survey.keep_emptiest();
        let EvacuationPlan { emptied, filled } =
            survey.divide(4, containers, blocks, |container, _| container != stays);
        (emptied.into(), filled.into())
    }

    #[test]
    fn the_emptiest_are_emptied_into_those_that_follow() {
        let none = u32::MAX;
        let found = [(1, 10), (3, 11), (2, 12), (1, 13), (2, 14)];
        assert_eq!(divide(&found, 9, 99, none), (vec![11, 12], vec![14, 10, 13]));
        assert_eq!(divide(&found, 1, 99, none), (vec![11], vec![12, 14, 10, 13]));
        assert_eq!(divide(&found, 9, 2, none), (vec![11], vec![12, 14, 10, 13]), "two blocks do not empty the next");
        assert_eq!(divide(&found, 9, 99, 11), (vec![12], vec![14, 10, 13]), "what stays takes nothing");
        assert_eq!(divide(&[(1, 1), (1, 2)], 9, 99, none), (vec![], vec![]), "there is no space");
    }

    #[test]
    fn what_is_on_flash_is_emptied_last_of_those_that_are_about_as_empty_and_filled_last() {
        let none = u32::MAX;
        let found = [(3, 10), (3, 11), (2, 12), (2, 13)];
        assert_eq!(divide_with_flash(&found, &[10, 12], 1, 99, none), (vec![11], vec![13, 10, 12]));
        // The only container that may be emptied is on flash. Sparing it gains nothing, because the other one stays.
        assert_eq!(divide_with_flash(&[(3, 10), (1, 11)], &[10], 1, 99, none), (vec![10], vec![11]));
        assert_eq!(divide_with_flash(&found, &[10], 1, 99, 11), (vec![10], vec![12, 13]));
        // Of 16 slots each, 6 and 7 are in use. The second is not on flash, but only the 6 fit into the containers that follow.
        let found = vec![(10, 1, true), (9, 2, false), (1, 3, false)];
        let partition = Survey { next: 0, found }.divide(16, 1, 99, |_, _| true);
        assert_eq!((partition.emptied, partition.filled), (vec![1].into(), vec![2, 3].into()));
        let found = vec![(10, 1, true), (9, 2, false), (9, 3, false)];
        let partition = Survey { next: 0, found }.divide(16, 1, 99, |_, _| true);
        assert_eq!((partition.emptied, partition.filled), (vec![2].into(), vec![3].into()));
    }
}
