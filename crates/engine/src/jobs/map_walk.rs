//! A walk of all maps, for jobs that look for all referrers of some slots: a leaf at a time, in the order of volumes and blocks.
//!
//! What it sees of a block is what the map says at that moment: deltas, map buffer, leaf. A block that has no leaf yet is seen if it is in
//! the map buffer, so a walk begins after a checkpoint. What is mapped behind its back while it goes is not seen: who walks must not depend
//! on that.

use crate::format::entry::{Entry, Key, LBA_BITS, Slot};
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{LastLeaf, Missing, Unresolved, Walk, lookup};
use crate::pool::Pool;

/// Leaves of summaries or maps that a step takes at full speed; an eighth of it else.
pub(super) const LEAVES: usize = 8;

/// Place of the walk: the next block.
#[derive(Clone, Copy, Default)]
pub(super) struct Maps {
    next: Option<Key>,
}

impl Maps {
    /// Skips the next block, which cannot be looked at.
    pub(super) fn skip(&mut self) {
        self.next = self.next.map(|key| Key(key.0 + 1));
    }

    /// Returns the first volume with blocks left that takes part: its place among volumes, its next block, and one past its last block.
    fn volume(&self, pool: &Pool, takes_part: fn(&Pool, Key) -> bool) -> Option<(usize, Key, Key)> {
        let from = self.next.unwrap_or(Key(0));
        pool.volumes.iter().enumerate().find_map(|(at, volume)| {
            let first = Key::new(volume.id, 0);
            let end = Key(first.0 + volume.size.div_ceil(pool.metadata.geometry.block()));
            let takes_part = pool.volume_index(volume.id).is_some() && takes_part(pool, first);
            (takes_part && from < end).then(|| (at, from.max(first), end))
        })
    }

    /// Returns the part of the walk that is done, in millionths of all blocks of volumes.
    pub(super) fn done_ppm(&self, pool: &Pool) -> u64 {
        let from = self.next.unwrap_or(Key(0));
        let (mut done, mut all) = (0u128, 0u128);
        for volume in &pool.volumes {
            let size = volume.size.div_ceil(pool.metadata.geometry.block());
            let passed = from.0.saturating_sub(Key::new(volume.id, 0).0).min(size);
            (done, all) = (done + u128::from(passed), all + u128::from(size));
        }
        (done * 1_000_000).checked_div(all).unwrap_or(0) as u64
    }

    /// Looks at the blocks of one leaf, or at a part of a map that has no leaves; returns false at the end of all maps. `each` is given the blocks
    /// that have slots, and says whether it may have looked at pages; if it stops, the walk goes on with the same block.
    pub(super) fn step<E: From<Missing>>(
        &mut self,
        pool: &mut Pool,
        takes_part: fn(&Pool, Key) -> bool,
        mut each: impl FnMut(&mut Pool, Key, Slot) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let Some((volume, key, end)) = self.volume(pool, takes_part) else { return Ok(false) };
        let Some(stop) = self.leaf(pool, volume, (key, end))? else { return Ok(true) };
        let mut last = LastLeaf::default();
        let mut at = self.next.unwrap_or(key).max(key);
        while at < stop {
            self.next = Some(at);
            let entry = match pool.resolve_after(volume, at, &mut last) {
                Ok(entry) => entry,
                Err(Unresolved::Missing(missing)) if !pool.failed_pages.contains(&missing.key) => {
                    return Err(missing.into());
                }
                Err(_) => Entry::UNMAPPED,
            };
            if let Some(slot) = entry.slot()
                && each(pool, at, slot)?
            {
                // Pages may come and go.
                last = LastLeaf::default();
            }
            at = Key(at.0 + 1);
        }
        self.next = Some(stop);
        Ok(true)
    }

    /// Returns one past the last block of the leaf of this one. `None`: there is nothing to look at, and the walk is behind it.
    fn leaf(&mut self, pool: &mut Pool, volume: usize, (key, end): (Key, Key)) -> Result<Option<Key>, Missing> {
        let per_leaf = pool.metadata.geometry.map_leaf_entries();
        let first = Key::new(key.volume(), 0).0;
        let number = key.lba() / per_leaf;
        let of_leaf = |leaf: u64| Key(first + leaf.saturating_mul(per_leaf).min(1 << (LBA_BITS - 1))).min(end);
        match lookup(&mut pool.metadata, Region::Metadata, pool.maps[volume], number) {
            Walk::Leaf(_) => Ok(Some(of_leaf(number + 1))),
            Walk::Absent(level) => {
                let span = pool.metadata.geometry.fanout().saturating_pow(level.into());
                let stop = of_leaf((number / span).saturating_add(1).saturating_mul(span));
                // What has no leaf yet waits in the map buffer.
                let buffered = pool.buffer.next_key(key, stop);
                self.next = Some(buffered.unwrap_or(stop));
                Ok(buffered.map(|buffered| Key(buffered.0 + 1)))
            }
            Walk::Missing(missing) if pool.is_unreadable(&missing) => {
                // All leaves below a page that cannot be read: in a huge volume nobody could pass them one by one.
                let span = pool.leaves_below(volume, number, missing);
                self.next = Some(of_leaf((number / span).saturating_add(1).saturating_mul(span)));
                Ok(None)
            }
            Walk::Missing(missing) => Err(missing),
        }
    }
}

impl Pool {
    /// Returns the number of leaves of a map below the page that is missing for one of them.
    fn leaves_below(&mut self, volume: usize, leaf: u64, missing: Missing) -> u64 {
        let (fanout, height) = (self.metadata.geometry.fanout(), self.maps[volume].height);
        let mut span = 1u64;
        for _ in 0..height {
            let wider = span.saturating_mul(fanout);
            let last = (leaf / wider).saturating_add(1).saturating_mul(wider) - 1;
            match lookup(&mut self.metadata, Region::Metadata, self.maps[volume], last) {
                Walk::Missing(other) if other == missing => span = wider,
                _ => break,
            }
        }
        span
    }
}
