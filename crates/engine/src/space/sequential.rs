//! Sequential containers (rows): opened empty for sequential or large writes, on an HDD. All other writes fill holes before they take the last empty
//! containers, which are kept open here. If there is nothing else left, the other writes do take them, so these slots are never lost to the pool.

use super::{Open, Space};
use crate::format::entry::Slot;

/// Divisor of the containers: one in N is kept for rows.
const KEPT: usize = 32;
/// Maximum number of containers kept for rows.
const MOST_KEPT: usize = 16;

impl Space {
    /// Chooses an empty container to be opened for rows, which shall have `ahead` slots ready; `None`: they have enough, or there is no other.
    pub(crate) fn choose_sequential(&mut self, ahead: u64) -> Option<u32> {
        let kept = (self.containers.len() / KEPT).clamp(1, MOST_KEPT);
        let untouched = self.sequential.iter().filter(|open| open.left == self.per_container).count();
        let wants = self.sequential_left < ahead || self.sequential.len() < kept;
        if wants && self.empty as usize > untouched { self.empty_container() } else { None }
    }

    /// Returns the number of slots left in open containers that rows do not keep.
    pub(crate) fn ready_apart(&self) -> u64 {
        self.ready - self.sequential_left
    }

    /// Opens an empty container for rows.
    pub(crate) fn open_sequential(&mut self, container: u32) {
        let open = self.make_open(container, |_| true);
        self.sequential_left += u64::from(open.left);
        self.sequential.push_back(open);
    }

    pub(super) fn allocate_sequential(&mut self) -> Option<Slot> {
        let open = self.sequential.front_mut()?;
        let word = open.next_word()?;
        open.word = word;
        let (container, at, left) = (open.container, open.take(word), open.left);
        let slot = Slot(self.slots_of(container).start + at);
        (self.ready, self.sequential_left) = (self.ready - 1, self.sequential_left - 1);
        self.take(slot)?;
        if left == 0 {
            let open = self.sequential.pop_front()?;
            self.close(open);
        }
        Some(slot)
    }

    /// Closes a container that is open for rows and that has more free slots than when it was opened.
    pub(super) fn close_grown_sequential(&mut self) -> Option<u32> {
        let grown = |open: &Open| u32::from(self.containers[open.container as usize].free) > open.left;
        let at = self.sequential.iter().position(grown)?;
        let open = self.sequential.remove(at)?;
        self.sequential_left -= u64::from(open.left);
        Some(self.close(open))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{allocate, reclaim, space};
    use super::*;
    use alloc::vec::Vec;

    /// Makes two containers: the first is kept for rows, and the second one is open for all else.
    fn with_a_sequential_container() -> Space {
        let mut space = space();
        assert_eq!(space.choose_sequential(1), Some(0));
        space.open_sequential(0);
        assert_eq!((space.choose_sequential(4), space.choose(false, &|_| false)), (None, Some(1)));
        space.open(1, |_| true);
        space
    }

    fn slots(space: &mut Space, sequential: bool, count: usize) -> Vec<u64> {
        core::iter::from_fn(|| space.allocate(sequential)).take(count).map(|slot| slot.0).collect()
    }

    #[test]
    fn what_is_kept_for_rows_goes_to_others_only_when_nothing_else_is_left() {
        let mut space = with_a_sequential_container();
        assert_eq!(slots(&mut space, false, 4), [4, 5, 6, 7]);
        assert_eq!((space.ready(), space.ready_apart()), (4, 0));
        assert_eq!(slots(&mut space, true, 2), [0, 1]);
        assert_eq!(slots(&mut space, false, 9), [2, 3]);
        assert_eq!((space.allocate(true), space.ready(), space.free()), (None, 0, 0));
    }

    #[test]
    fn rows_take_what_there_is_where_no_container_is_empty() {
        let mut space = space();
        while allocate(&mut space).is_some() {}
        space.defer_free(Slot(6), 0);
        reclaim(&mut space, 0, false);
        assert_eq!((space.choose_sequential(1), allocate(&mut space)), (None, Some(Slot(6))));
        let mut space = with_a_sequential_container();
        assert_eq!(slots(&mut space, true, 9), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn what_becomes_free_in_an_open_row_is_found_when_nothing_else_is_left() {
        let mut space = with_a_sequential_container();
        slots(&mut space, false, 4);
        let first = space.allocate(true).unwrap();
        space.defer_free(first, 0);
        reclaim(&mut space, 0, false);
        assert_eq!((space.ready(), space.available(), space.choose(false, &|_| false)), (3, 4, Some(0)));
        assert_eq!((space.ready(), space.sequential_left, space.available()), (0, 0, 4));
    }
}
