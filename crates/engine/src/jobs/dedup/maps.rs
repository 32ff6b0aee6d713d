//! The walk of all maps: for spare slots that several blocks lead to, or others than the one that they were first written for.

use super::{At, Dedup, LEAVES, Shared, Stop};
use crate::care::Care;
use crate::format::entry::{Entry, Key, LBA_BITS};
use crate::pool::Pool;
use crate::pool::standing::Facts;
use crate::store::pages::Region;
use crate::store::tree::{LastLeaf, Missing, Unresolved, Walk, lookup};

/// Where the walk is: the next block.
#[derive(Clone, Copy, Default)]
pub(super) struct Maps {
    next: Option<Key>,
}

impl Maps {
    /// The next block cannot be looked at.
    pub(super) fn skip(&mut self) {
        self.next = self.next.map(|key| Key(key.0 + 1));
    }

    /// The next block of a volume that takes part: its place among volumes, and one past its last block.
    fn volume(&self, pool: &Pool) -> Option<(usize, Key, Key)> {
        let from = self.next.unwrap_or(Key(0));
        pool.volumes.iter().enumerate().find_map(|(at, volume)| {
            let first = Key::new(volume.id, 0);
            let end = Key(first.0 + volume.size.div_ceil(pool.store.geometry.block()));
            let takes_part = pool.volume_index(volume.id).is_some() && pool.may_share(first);
            (takes_part && from < end).then(|| (at, from.max(first), end))
        })
    }
}

impl Pool {
    /// How many leaves of a map lie below the page that is missing for one of them.
    fn leaves_below(&mut self, volume: usize, leaf: u64, missing: Missing) -> u64 {
        let (fanout, height) = (self.store.geometry.fanout(), self.maps[volume].height);
        let mut span = 1u64;
        for _ in 0..height {
            let wider = span.saturating_mul(fanout);
            let last = (leaf / wider).saturating_add(1).saturating_mul(wider) - 1;
            match lookup(&mut self.store, Region::Metadata, self.maps[volume], last) {
                Walk::Missing(other) if other == missing => span = wider,
                _ => break,
            }
        }
        span
    }
}

impl Dedup {
    /// Looks at some leaves of maps.
    pub(super) fn walk_maps(&mut self, pool: &mut Pool, care: &Care, facts: &Facts) -> Result<(), Stop> {
        let At::Maps(mut maps, leaf) = self.at else { return Ok(()) };
        for _ in 0..if pool.is_at_full_speed(facts) { LEAVES } else { 1 } {
            let Some((volume, key, end)) = maps.volume(pool) else {
                self.unresolved.clear();
                self.verify.clear();
                self.at = At::Scan(leaf);
                return Ok(());
            };
            let walked = self.walk_leaf(pool, care, facts, volume, &mut maps, (key, end));
            self.at = At::Maps(maps, leaf);
            walked?;
        }
        Ok(())
    }

    /// The blocks of one leaf from this one on, or a part of the map that has no leaves.
    fn walk_leaf(
        &mut self,
        pool: &mut Pool,
        care: &Care,
        facts: &Facts,
        volume: usize,
        maps: &mut Maps,
        (key, end): (Key, Key),
    ) -> Result<(), Stop> {
        let per_leaf = pool.store.geometry.map_leaf_entries();
        let first = Key::new(key.volume(), 0).0;
        let number = key.lba() / per_leaf;
        let of_leaf = |leaf: u64| Key(first + leaf.saturating_mul(per_leaf).min(1 << (LBA_BITS - 1))).min(end);
        let stop = match lookup(&mut pool.store, Region::Metadata, pool.maps[volume], number) {
            Walk::Leaf(_) => of_leaf(number + 1),
            Walk::Absent(level) => {
                let span = pool.store.geometry.fanout().saturating_pow(level.into());
                let stop = of_leaf((number / span).saturating_add(1).saturating_mul(span));
                // What has no leaf yet waits in the map buffer.
                let Some(buffered) = pool.buffer.next_key(key, stop) else {
                    maps.next = Some(stop);
                    return Ok(());
                };
                maps.next = Some(buffered);
                Key(buffered.0 + 1)
            }
            Walk::Missing(missing) if missing.pointer.is_lost() || pool.failed_pages.contains(&missing.key) => {
                // All leaves below a page that cannot be read: in a huge volume nobody could pass them one by one.
                let span = pool.leaves_below(volume, number, missing);
                maps.next = Some(of_leaf((number / span).saturating_add(1).saturating_mul(span)));
                return Ok(());
            }
            Walk::Missing(missing) => return Err(missing.into()),
        };
        let mut last = LastLeaf::default();
        let mut at = maps.next.unwrap_or(key).max(key);
        while at < stop {
            maps.next = Some(at);
            let entry = match pool.resolve_after(volume, at, &mut last) {
                Ok(entry) => entry,
                Err(Unresolved::Missing(missing)) if !pool.failed_pages.contains(&missing.key) => {
                    return Err(missing.into());
                }
                Err(_) => Entry::UNMAPPED,
            };
            let spare = entry.slot().and_then(|slot| {
                let found = self.unresolved.binary_search_by_key(&slot, |&(spare, ..)| spare).ok()?;
                Some(self.unresolved[found])
            });
            if let Some(spare) = spare {
                // Pages may come and go.
                last = LastLeaf::default();
                let shared = self.share(pool, care, facts, at, spare)?;
                self.is_again |= shared == Shared::Gone;
                self.kept += u64::from(shared == Shared::Kept);
            }
            at = Key(at.0 + 1);
        }
        maps.next = Some(stop);
        Ok(())
    }
}
