//! Sparing of containers with a copy on flash: the allocator and garbage collection prefer another container that is about as good.
//!
//! Opening a container that is on flash makes its copy worthless. Emptying it moves its popular blocks to containers that are not on flash. So,
//! for partly used containers:
//!
//! - **Opened for writes** is one that is not on flash, if it has at least seven eighths of the free slots that the emptiest has. The search is
//!   limited to [`GROUPS`] groups.
//! - **Emptied** is one that is not on flash before one that is, if it has at most an eighth of a container more in use (`evacuation.rs`).
//! - **Filled with moved blocks** are those that are not on flash first.
//!
//! Empty containers are opened whether they are on flash or not: the copy of an empty one holds nothing readable. Without a flash in front, all
//! containers are equal, and nothing here costs anything.

use super::{GROUP, Space};

/// Divisor of a number of slots: a difference of at most one part in N does not count.
pub(super) const TOLERANCE: u16 = 8;
/// Maximum number of groups of containers that are searched for another one.
const GROUPS: usize = 4;

impl Space {
    /// Finds a partly used container that is not on flash, and has nearly as many free slots as the emptiest, which has `most`. It searches the group `best`
    /// first, then others.
    pub(super) fn find_unspared(&mut self, best: u32, most: u16, is_on_flash: &dyn Fn(u32) -> bool) -> Option<u32> {
        let least = most - most / TOLERANCE;
        let groups = self.reserved.div_ceil(GROUP);
        let enough = |space: &mut Space, &group: &u32| space.most(group) >= least.max(1);
        let mut looked_at = 0;
        for group in core::iter::once(best).chain((0..groups).filter(|&group| group != best)) {
            if !enough(self, &group) {
                continue;
            }
            let containers = group * GROUP..((group + 1) * GROUP).min(self.reserved);
            let is_fit = |&container: &u32| {
                self.free_in(container) >= least.max(1)
                    && !self.closed_to.contains(&container)
                    && !self.holes.has(container)
                    && !is_on_flash(container)
            };
            let free = |container: &u32| (self.free_in(*container), core::cmp::Reverse(*container));
            if let Some(found) = containers.filter(is_fit).max_by_key(free) {
                return Some(found);
            }
            looked_at += 1;
            if looked_at == GROUPS {
                break;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{allocate, geometry, reclaim};
    use super::*;
    use crate::format::entry::Slot;

    /// Makes five containers of four slots, of which these many are free in each.
    fn with_free(free: [u64; 5]) -> Space {
        let mut space = Space::new(&geometry(5));
        space.set_reserved(5);
        while allocate(&mut space).is_some() {}
        for (container, free) in (0..).zip(free) {
            space.slots_of(container).take(free as usize).for_each(|slot| space.defer_free(Slot(slot), 0));
        }
        reclaim(&mut space, 0, false);
        space
    }

    #[test]
    fn what_is_on_flash_is_opened_only_where_nothing_about_as_empty_is_not() {
        let chosen = |free, on_flash: &[u32]| with_free(free).choose(false, &|container| on_flash.contains(&container));
        assert_eq!(chosen([2, 3, 3, 1, 0], &[]), Some(1));
        assert_eq!(chosen([2, 3, 3, 1, 0], &[1]), Some(2));
        assert_eq!(chosen([2, 3, 3, 1, 0], &[1, 2]), Some(1), "two of four are not about three");
        assert_eq!(chosen([0, 4, 3, 1, 0], &[1]), Some(1), "of an empty one nothing is lost");
    }
}
