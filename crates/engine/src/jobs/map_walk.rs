//! A walk of all maps, for jobs that look for all referrers of some slots: a leaf at a time, in the order of volumes and blocks.
//!
//! The walk sees the mapping of a block at that moment: deltas, map buffer, leaf. Inherited blocks are seen in the map of the ancestor. A block that has no
//! leaf yet is seen if it is in the map buffer, so a walk begins after a checkpoint. Mappings made behind its position are not seen: callers must not depend
//! on them.

use crate::format::entry::{Entry, Key, LBA_BITS, Slot};
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{LastLeaf, Missing, Unresolved, Walk, lookup};
use crate::pool::Pool;

/// Number of leaves of summaries or maps that a step takes at full speed; otherwise an eighth of it.
pub(super) const LEAVES: usize = 8;

/// Position of the walk: the next block.
#[derive(Clone, Copy, Default)]
pub(super) struct Maps {
    next: Option<Key>,
}

impl Maps {
    /// Skips the next block, which cannot be examined.
    pub(super) fn skip(&mut self) {
        self.next = self.next.map(|key| Key(key.0 + 1));
    }

    /// Returns the first participating volume with blocks left: its place among volumes, its next block, and one past its last block.
    fn volume(&self, pool: &Pool, takes_part: fn(&Pool, Key) -> bool) -> Option<(usize, Key, Key)> {
        let from = self.next.unwrap_or(Key(0));
        let volumes = pool.durable.volumes();
        let first = volumes.first_after(|id| id < from.volume());
        (first..volumes.len()).find_map(|at| {
            let volume = &volumes[at];
            let first = Key::new(volume.id, 0);
            let end = Key(first.0 + volume.size.div_ceil(pool.metadata.geometry().block()));
            let takes_part = pool.volume_index(volume.id).is_some() && takes_part(pool, first);
            (takes_part && from < end).then(|| (at, from.max(first), end))
        })
    }

    /// Returns the part of the walk that is done, in millionths of all blocks of volumes.
    pub(super) fn done_ppm(&self, pool: &Pool) -> u64 {
        let from = self.next.unwrap_or(Key(0));
        let (mut done, mut all) = (0u128, 0u128);
        for volume in pool.durable.volumes().iter() {
            let size = volume.size.div_ceil(pool.metadata.geometry().block());
            let passed = from.0.saturating_sub(Key::new(volume.id, 0).0).min(size);
            (done, all) = (done + u128::from(passed), all + u128::from(size));
        }
        (done * 1_000_000).checked_div(all).unwrap_or(0) as u64
    }

    /// Visits the blocks of one leaf, or of a part of a map that has no leaves; returns false at the end of all maps. `each` gets the blocks that
    /// have slots, and returns true if it may have looked at pages. If `each` fails, the walk continues with the same block.
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
            let entry = match pool.own_entry_after(volume, at, &mut last) {
                Ok(entry) => entry,
                Err(Unresolved::Missing(missing)) if !pool.metadata.has_failed(missing.key) => {
                    return Err(missing.into());
                }
                Err(_) => Entry::UNMAPPED,
            };
            if let Some(slot) = entry.slot()
                && each(pool, at, slot)?
            {
                // The pages in memory may have changed.
                last = LastLeaf::default();
            }
            at = Key(at.0 + 1);
        }
        self.next = Some(stop);
        Ok(true)
    }

    /// Returns one past the last block of the leaf of this one. Returns `None` if there is nothing to visit; the walk is then past it.
    fn leaf(&mut self, pool: &mut Pool, volume: usize, (key, end): (Key, Key)) -> Result<Option<Key>, Missing> {
        let per_leaf = pool.metadata.geometry().map_leaf_entries();
        let first = Key::new(key.volume(), 0).0;
        let number = key.lba() / per_leaf;
        let of_leaf = |leaf: u64| Key(first + leaf.saturating_mul(per_leaf).min(1 << (LBA_BITS - 1))).min(end);
        match lookup(&mut pool.metadata, Region::Metadata, pool.durable.volumes().map(volume), number) {
            Walk::Leaf(_) => Ok(Some(of_leaf(number + 1))),
            Walk::Absent(level) | Walk::From { level, .. } => {
                let span = pool.metadata.geometry().fanout().saturating_pow(level.into());
                let stop = of_leaf((number / span).saturating_add(1).saturating_mul(span));
                // Mappings without a leaf are in the map buffer.
                let buffered = pool.durable.map_buffer().next_key(key, stop);
                self.next = Some(buffered.unwrap_or(stop));
                Ok(buffered.map(|buffered| Key(buffered.0 + 1)))
            }
            Walk::Missing(missing) if pool.is_unreadable(&missing) => {
                // All leaves below an unreadable page are skipped: in a huge volume there are too many to pass one by one.
                let span = leaves_below(pool, volume, number, missing);
                self.next = Some(of_leaf((number / span).saturating_add(1).saturating_mul(span)));
                Ok(None)
            }
            Walk::Missing(missing) => Err(missing),
        }
    }
}

/// Returns the number of leaves of a map below the page that is missing for one of them.
fn leaves_below(pool: &mut Pool, volume: usize, leaf: u64, missing: Missing) -> u64 {
    let (fanout, height) = (pool.metadata.geometry().fanout(), pool.durable.volumes().map(volume).height);
    let mut span = 1u64;
    for _ in 0..height {
        let wider = span.saturating_mul(fanout);
        let last = (leaf / wider).saturating_add(1).saturating_mul(wider) - 1;
        match lookup(&mut pool.metadata, Region::Metadata, pool.durable.volumes().map(volume), last) {
            Walk::Missing(other) if other == missing => span = wider,
            _ => break,
        }
    }
    span
}
