//! Set of small numbers with ordered iteration from any position: dirty pages, dirty blocks.

/// The set.
#[derive(Clone, Debug)]
pub struct Bits {
    words: Vec<u64>,
    /// Members.
    pub count: u64,
}

impl Bits {
    /// Creates an empty set of numbers below `bound`.
    pub fn new(bound: u64) -> Bits {
        Bits { words: vec![0; bound.div_ceil(64) as usize], count: 0 }
    }

    /// Returns whether a number is in the set.
    pub fn has(&self, number: u64) -> bool {
        self.words[(number / 64) as usize] >> (number % 64) & 1 == 1
    }

    /// Adds a number; false if it was there.
    pub fn add(&mut self, number: u64) -> bool {
        let is_new = !self.has(number);
        self.words[(number / 64) as usize] |= 1 << (number % 64);
        self.count += u64::from(is_new);
        is_new
    }

    /// Removes a number; false if it was not there.
    pub fn remove(&mut self, number: u64) -> bool {
        let was_there = self.has(number);
        self.words[(number / 64) as usize] &= !(1 << (number % 64));
        self.count -= u64::from(was_there);
        was_there
    }

    /// Finds the first member from a number on, or else the first of all.
    pub fn next_from(&self, number: u64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let words = self.words.len();
        let first = (number / 64) as usize % words;
        let head = self.words[first] & (u64::MAX << (number % 64));
        if head != 0 {
            return Some(first as u64 * 64 + u64::from(head.trailing_zeros()));
        }
        let at = (1..=words).map(|step| (first + step) % words).find(|&at| self.words[at] != 0)?;
        Some(at as u64 * 64 + u64::from(self.words[at].trailing_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_order_and_then_from_the_front() {
        let mut bits = Bits::new(300);
        assert_eq!(bits.next_from(5), None);
        for number in [7, 64, 299] {
            assert!(bits.add(number) && !bits.add(number));
        }
        let found = [0, 7, 8, 65, 299].map(|from| bits.next_from(from));
        assert_eq!(found, [Some(7), Some(7), Some(64), Some(299), Some(299)]);
        assert!(bits.remove(299) && !bits.remove(299));
        assert_eq!((bits.next_from(100), bits.count), (Some(7), 2));
        bits.remove(64);
        assert_eq!(bits.next_from(8), Some(7));
    }
}
