//! Sparse copy-on-write table over a large range of blocks of which few are used. A clone shares the leaves that neither side has changed since.

use std::sync::Arc;

const LEAF: u64 = 512;

type Leaf = [u64; LEAF as usize];

/// Numbers by block; 0 stands for nothing.
#[derive(Clone, Debug, Default)]
pub struct Sparse {
    leaves: Vec<Option<Arc<Leaf>>>,
    used: u64,
}

impl Sparse {
    /// Returns the number of a block, 0 if it has none.
    pub fn get(&self, block: u64) -> u64 {
        let leaf = self.leaves.get((block / LEAF) as usize).and_then(Option::as_ref);
        leaf.map_or(0, |leaf| leaf[(block % LEAF) as usize])
    }

    /// Sets or clears (0) the number of a block. Returns the old number.
    pub fn set(&mut self, block: u64, value: u64) -> u64 {
        let at = (block / LEAF) as usize;
        if at >= self.leaves.len() {
            if value == 0 {
                return 0;
            }
            self.leaves.resize(at + 1, None);
        }
        let leaf = self.leaves[at].get_or_insert_with(|| Arc::new([0; LEAF as usize]));
        let place = (block % LEAF) as usize;
        let before = leaf[place];
        if before != value {
            Arc::make_mut(leaf)[place] = value;
            self.used = self.used + u64::from(value != 0) - u64::from(before != 0);
        }
        before
    }

    /// Returns the number of blocks that have a number other than 0.
    pub fn used(&self) -> u64 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_does_not_see_later_changes() {
        let mut table = Sparse::default();
        assert_eq!(table.set(1_000_000, 7), 0);
        let copy = table.clone();
        assert_eq!(table.set(1_000_000, 0), 7);
        assert_eq!((table.get(1_000_000), copy.get(1_000_000)), (0, 7));
        assert_eq!((table.used(), copy.used(), copy.get(3)), (0, 1, 0));
    }
}
