//! The quadrants of the containers on flash, into which the slides of PLC-Cache (MSST 2014) divide the written copies.
//!
//! ```text
//!               written once                       written again after it was evicted
//! popular       QA, "PLC data": stays and is read  QB: goes and comes back
//! not popular   QC: little is read                 QD: neither
//! ```
//!
//! The slides draw QC and QD together, as of little benefit. Each copy counts in the present quadrant of its container, so the four add up to all
//! copies. A container that was popular once stays popular.

/// The most copies of a container that are told apart.
const MOST_COPIES: u8 = 0x7f;
const POPULAR: u8 = 0x80;

/// Copies of containers to flash, by quadrant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Quadrants {
    /// QA: popular, and written once.
    pub popular_once: u64,
    /// QB: popular, and written again and again.
    pub popular_again: u64,
    /// QC: not popular, and written once.
    pub unpopular_once: u64,
    /// QD: not popular, and written again and again.
    pub unpopular_again: u64,
}

/// History of a container: the number of copies, and a bit that is set if it was popular.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct History(u8);

impl History {
    fn copies(self) -> u8 {
        self.0 & MOST_COPIES
    }

    fn is_popular(self) -> bool {
        self.0 & POPULAR != 0
    }
}

impl Quadrants {
    /// Returns all copies.
    pub fn total(&self) -> u64 {
        self.popular_once + self.popular_again + self.unpopular_once + self.unpopular_again
    }

    fn of(&mut self, history: History) -> &mut u64 {
        match (history.is_popular(), history.copies() > 1) {
            (true, false) => &mut self.popular_once,
            (true, true) => &mut self.popular_again,
            (false, false) => &mut self.unpopular_once,
            (false, true) => &mut self.unpopular_again,
        }
    }

    /// Counts a copy of a container.
    pub(super) fn note_copied(&mut self, history: &mut History) {
        let before = *history;
        if before.copies() < MOST_COPIES {
            history.0 += 1;
        }
        // The first copy of a container that is written again is no longer the only one.
        if before.copies() == 1 {
            *self.of(before) -= 1;
            *self.of(*history) += 1;
        }
        *self.of(*history) += 1;
    }

    /// Counts a container as popular from now on, with its copies so far.
    pub(super) fn note_popular(&mut self, history: &mut History) {
        if !history.is_popular() {
            let copies = u64::from(history.copies());
            *self.of(*history) -= copies;
            history.0 |= POPULAR;
            *self.of(*history) += copies;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_copy_is_in_the_quadrant_of_its_container() {
        let (mut quadrants, mut one, mut other) = (Quadrants::default(), History::default(), History::default());
        quadrants.note_popular(&mut other);
        assert_eq!(quadrants, Quadrants::default(), "nothing was copied");
        quadrants.note_copied(&mut one);
        quadrants.note_copied(&mut other);
        assert_eq!(quadrants, Quadrants { popular_once: 1, unpopular_once: 1, ..Quadrants::default() });
        quadrants.note_copied(&mut one);
        quadrants.note_copied(&mut one);
        assert_eq!(quadrants, Quadrants { popular_once: 1, unpopular_again: 3, ..Quadrants::default() });
        quadrants.note_popular(&mut one);
        quadrants.note_popular(&mut one);
        assert_eq!(quadrants, Quadrants { popular_once: 1, popular_again: 3, ..Quadrants::default() });
    }

    #[test]
    fn no_copy_is_lost_when_a_container_has_been_copied_very_often() {
        let (mut quadrants, mut history) = (Quadrants::default(), History::default());
        (0..1000).for_each(|_| quadrants.note_copied(&mut history));
        assert_eq!(quadrants.unpopular_again, 1000);
        quadrants.note_popular(&mut history);
        quadrants.note_copied(&mut history);
        assert_eq!((quadrants.total(), quadrants.popular_again), (1001, u64::from(MOST_COPIES) + 1));
    }
}
