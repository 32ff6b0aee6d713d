//! Scheduler that chooses the copy at dispatch: the slides' "I/O scheduling based on duplicated blocks", which is future work there.
//!
//! Requests wait here with all places that hold their content. The scheduler sweeps upwards as C-LOOK does, over the places of all requests. It serves a
//! request at the first of its places that the sweep reaches. A request that waits alone is served at its nearest place, upwards or downwards. Adjacent
//! requests become one command. With one place for each request it is `repro`'s C-LOOK (`disks/queue.rs`).

use std::collections::BTreeMap;

use sim::disks::Op;

/// Maximum blocks of a merged command: 512 KiB.
const LONGEST_MERGED: u64 = 128;

/// Request that waits.
#[derive(Clone, Debug)]
struct Waiting<T> {
    op: Op,
    blocks: u64,
    places: Vec<u64>,
    what: T,
}

/// Command to the disk, made of one or more requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dispatched<T> {
    /// Read or write.
    pub op: Op,
    /// First block.
    pub block: u64,
    /// Blocks.
    pub blocks: u64,
    /// Requests of the command in order: first block, blocks, and caller's value.
    pub parts: Vec<(u64, u64, T)>,
}

/// Requests that wait, by their places.
#[derive(Clone, Debug)]
pub struct Sweep<T> {
    waiting: BTreeMap<u64, Waiting<T>>,
    /// Requests by place and number.
    sorted: BTreeMap<(u64, u64), ()>,
    next: u64,
    /// Block after the last command.
    position: u64,
}

impl<T> Default for Sweep<T> {
    fn default() -> Sweep<T> {
        Sweep { waiting: BTreeMap::new(), sorted: BTreeMap::new(), next: 0, position: 0 }
    }
}

impl<T> Sweep<T> {
    /// Adds a request that can be served at any of `places`, of which there is at least one.
    pub fn push(&mut self, op: Op, blocks: u64, places: Vec<u64>, what: T) {
        self.next += 1;
        self.sorted.extend(places.iter().map(|&place| ((place, self.next), ())));
        self.waiting.insert(self.next, Waiting { op, blocks, places, what });
    }

    fn remove(&mut self, number: u64) -> Option<Waiting<T>> {
        let waiting = self.waiting.remove(&number)?;
        for &place in &waiting.places {
            self.sorted.remove(&(place, number));
        }
        Some(waiting)
    }

    /// Removes and returns the next command.
    pub fn take(&mut self) -> Option<Dispatched<T>> {
        let above = self.sorted.range((self.position, 0)..).next().or_else(|| self.sorted.iter().next());
        let mut next = above?.0;
        if self.waiting.len() == 1
            && let Some((below, ())) = self.sorted.range(..(self.position, 0)).next_back()
            && below.0.abs_diff(self.position) < next.0.abs_diff(self.position)
        {
            next = below;
        }
        let &(block, number) = next;
        let first = self.remove(number)?;
        let (op, mut blocks) = (first.op, first.blocks);
        let mut parts = vec![(block, first.blocks, first.what)];
        while let Some((&(place, number), ())) = self.sorted.range((block + blocks, 0)..).next()
            && place == block + blocks
            && self.waiting.get(&number).is_some_and(|next| next.op == op && blocks + next.blocks <= LONGEST_MERGED)
            && let Some(next) = self.remove(number)
        {
            parts.push((place, next.blocks, next.what));
            blocks += next.blocks;
        }
        self.position = block + blocks;
        Some(Dispatched { op, block, blocks, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(requests: &[&[u64]]) -> Vec<(u64, Vec<usize>)> {
        let mut sweep = Sweep::default();
        for (number, places) in requests.iter().enumerate() {
            sweep.push(Op::Read, 1, places.to_vec(), number);
        }
        std::iter::from_fn(|| sweep.take())
            .map(|taken| (taken.block, taken.parts.iter().map(|part| part.2).collect()))
            .collect()
    }

    #[test]
    fn a_request_is_served_at_the_place_that_the_sweep_reaches_first() {
        assert_eq!(order(&[&[30], &[10], &[20]]), [(10, vec![1]), (20, vec![2]), (30, vec![0])]);
        assert_eq!(order(&[&[90, 15], &[10], &[20, 5]]), [(5, vec![2]), (10, vec![1]), (15, vec![0])]);
    }

    #[test]
    fn a_request_that_waits_alone_is_served_at_its_nearest_place() {
        let mut sweep = Sweep::default();
        sweep.push(Op::Read, 1, vec![500], 0);
        assert_eq!(sweep.take().map(|taken| taken.block), Some(500));
        sweep.push(Op::Read, 1, vec![490, 9000], 1);
        assert_eq!(sweep.take().map(|taken| taken.block), Some(490), "right below");
    }

    #[test]
    fn requests_that_continue_each_other_are_one_command() {
        assert_eq!(order(&[&[12], &[50, 11], &[10]]), [(10, vec![2, 1, 0])]);
        let mut sweep = Sweep::default();
        sweep.push(Op::Read, 1, vec![10], 0);
        sweep.push(Op::Write, 1, vec![11], 1);
        assert_eq!(sweep.take().map(|taken| taken.blocks), Some(1), "a read and a write");
    }
}
