//! The cache partition rule alone, for models of the papers' systems: they have an index and a read cache but not this engine.

use crate::api::{Digest, Nanos};
use crate::format::entry::Slot;
use crate::icache::ghosts::{GhostKey, Ghosts, ReadGhosts};
use crate::icache::rule::{CacheLimits, Hits, PartitionController};
use crate::properties::Rule;

/// POD's Access Monitor (section 3.4): counts the hits of both caches and their ghosts, and decides the cache partition.
pub struct Monitor {
    rule: Rule,
    limits: CacheLimits,
    controller: PartitionController,
    index: Ghosts,
    reads: ReadGhosts,
    index_share: u32,
}

impl Monitor {
    /// Makes a monitor for memory that holds at most `most_entries` entries of the index, or `most_blocks` blocks, if all of it is one of the two. At first
    /// `index_share` thousandths of it are the index.
    pub fn new(rule: Rule, limits: CacheLimits, most_entries: u64, most_blocks: u64, index_share: u32) -> Monitor {
        let index = Ghosts::new(most_entries / u64::from(limits.sampled_one_in.max(1)));
        let reads = ReadGhosts::new(most_blocks);
        Monitor { rule, limits, controller: PartitionController::new(), index, reads, index_share }
    }

    /// Notes that a digest was looked up or inserted: it is known from then on. Hits of the index are digests that were known before.
    pub fn digest_used(&mut self, digest: Digest) {
        let one_in = self.limits.sampled_one_in;
        if let Some(key) = GhostKey::of_digest(digest, Slot(0), one_in)
            && let Some(segment) = self.index.touch(key)
        {
            self.controller.count_hits(Hits::Index, segment, u64::from(one_in.max(1)));
        }
    }

    /// Notes that a block was read.
    pub fn block_read(&mut self, block: u64) {
        // A place in a table of slots has 48 bits.
        if let Some((list, segment)) = self.reads.touch(Slot(block & ((1 << 48) - 1)), false) {
            self.controller.count_hits(list, segment, 1);
        }
    }

    /// Enters a digest that was used before the Monitor began, the oldest first. It counts as no hit.
    pub fn warm_digest(&mut self, digest: Digest) {
        if let Some(key) = GhostKey::of_digest(digest, Slot(0), self.limits.sampled_one_in) {
            self.index.touch(key);
        }
    }

    /// Enters a block that was read before the Monitor began, the oldest first. It counts as no hit.
    pub fn warm_block(&mut self, block: u64) {
        self.reads.touch(Slot(block & ((1 << 48) - 1)), false);
    }

    /// Counts hits that the caller found in its own caches and their ghosts. They have no depth: [`Rule::Paper`] needs none.
    pub fn count_hits(&mut self, index: u64, reads: u64) {
        self.controller.count_hits(Hits::Index, 0, index);
        self.controller.count_hits(Hits::ReadOnce, 0, reads);
    }

    /// Counts a request. Returns the new share of the index in thousandths, if it is time to look and the share changes.
    pub fn request_done(&mut self, now: Nanos) -> Option<u32> {
        self.controller.count_request();
        if !self.controller.is_due(&self.limits) {
            return None;
        }
        let share = self.controller.look(self.rule, &self.limits, self.index_share);
        self.controller.note(now, share);
        (share != self.index_share).then(|| {
            self.index_share = share;
            share
        })
    }

    /// Returns the share of the memory that is the index, in thousandths.
    pub fn index_share(&self) -> u32 {
        self.index_share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u64) -> Digest {
        Digest((u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)).to_le_bytes())
    }

    /// Tests that a Monitor knows earlier digests and blocks, and counts only later hits.
    #[test]
    fn a_warm_monitor_counts_the_first_use_as_a_hit() {
        let limits = CacheLimits { sampled_one_in: 1, interval: 100, hit_costs: [1, 1], ..CacheLimits::default() };
        let share_after = |warms: bool| {
            let mut monitor = Monitor::new(Rule::Paper, limits, 1000, 1000, 500);
            if warms {
                (0..100).for_each(|number| monitor.warm_digest(digest(number)));
                (0..100).for_each(|number| monitor.warm_block(number));
            }
            for number in 0..100 {
                monitor.digest_used(digest(number));
                monitor.request_done(number);
            }
            monitor.index_share()
        };
        assert_eq!([share_after(false), share_after(true)], [500, 600]);
    }

    #[test]
    fn hits_of_the_callers_own_caches_move_the_partition_as_algorithm_1_says() {
        let limits = CacheLimits { sampled_one_in: 1, interval: 1, hit_costs: [1, 1], ..CacheLimits::default() };
        let mut monitor = Monitor::new(Rule::Paper, limits, 0, 0, 500);
        monitor.count_hits(90, 30);
        assert_eq!(monitor.request_done(1), Some(530), "three times the hits on the same size: three units");
        monitor.count_hits(0, 0);
        assert_eq!(monitor.request_done(2), None);
    }

    #[test]
    fn memory_goes_to_the_side_that_is_hit() {
        for rule in [Rule::Paper, Rule::Curves] {
            let limits = CacheLimits { sampled_one_in: 1, interval: 100, hit_costs: [1, 1], ..CacheLimits::default() };
            let mut monitor = Monitor::new(rule, limits, 10_000, 1000, 500);
            for request in 0..20_000 {
                // The digests that are used fill eight tenths of the memory; no block is read twice.
                monitor.digest_used(digest(request % 8000));
                monitor.block_read(1_000_000 + request);
                monitor.request_done(request);
            }
            assert!(monitor.index_share() >= 800, "{rule:?}: {}", monitor.index_share());
        }
    }
}
