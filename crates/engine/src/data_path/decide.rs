//! The decision about the blocks of a write: the policy gets the look-ups' results, and its decision is carried out and counted. Between the decision
//! and the change nothing is waited for.

use crate::api::{Digest, IndexCopy, Policy, RequestId};
use crate::counters::WriteCounts;
use crate::dedup::policy::{Lookup, next_run};
use crate::engine::Engine;
use crate::format::entry::{Entry, Slot, check_bits};
use crate::metadata::tree::{LastLeaf, Walk};
use crate::requests::request::{Decision, Kind};

impl Engine {
    /// Notes the map entries of a write's blocks, as far as they are in memory. Without them, a rewrite of unchanged content is a share that the
    /// merge drops. Each leaf is looked up once.
    pub(crate) fn note_mapped(&mut self, id: RequestId, volume: usize) {
        let per_leaf = self.pool.metadata.geometry().map_leaf_entries();
        let mut last = LastLeaf::default();
        for at in 0..self.requests.get(id).blocks().len() {
            let key = self.requests.get(id).blocks()[at].key;
            let entry = self.pool.unflushed(key).or_else(|| {
                let root = self.pool.durable.volumes().map(volume);
                let own = match last.lookup(&mut self.pool.metadata, root, key.lba() / per_leaf) {
                    Walk::Leaf(page) => self.pool.entry_in(page, key)?,
                    Walk::From { epoch, .. } => Entry::inherited(epoch),
                    Walk::Absent(_) | Walk::Missing(_) => return None,
                };
                if own.is_valid() { Some(own) } else { self.pool.map_entry(volume, key).ok() }
            });
            self.requests.get_mut(id).blocks_mut()[at].entry = entry.unwrap_or(Entry::UNMAPPED);
        }
    }

    /// Returns the slot of `entry`, if it is certain, without a load, that it holds the content with this digest.
    pub(crate) fn holds_already(&mut self, entry: Entry, digest: Digest) -> Option<Slot> {
        let slot = entry.slot().filter(|_| entry.check() == check_bits(digest) && self.pool.digests_prove())?;
        let recent = self.pool.recent(slot).map(|recent| recent.digest);
        let found = match recent {
            Some(found) => found,
            None => self.pool.summary(slot).ok()??,
        };
        (found == digest && !self.repairs.is_lost(slot, digest)).then_some(slot)
    }

    /// Decides for each block of a request if it is shared or written, when all lookups are done.
    pub(crate) fn decide(&mut self, id: RequestId, policy: Policy) {
        self.deciding.decide(self.requests.get_mut(id), policy);
    }

    /// Inserts the blocks of a request into the index that were written although they were known. Under any setting, it names no slot that is gone.
    pub(crate) fn name_copies(&mut self, id: RequestId) {
        let (mut written, mut known) = (0..0, 0..0);
        for at in 0..self.requests.get(id).blocks().len() {
            let blocks = self.requests.get(id).blocks();
            let block = blocks[at];
            written = next_run(at, written, blocks.len(), |at| blocks[at].entry.slot().map(|slot| slot.0));
            known = next_run(at, known, blocks.len(), |at| blocks[at].lookup.slot());
            let (Decision::Write, Lookup::Known(old)) = (block.decision, block.lookup) else { continue };
            let (Some(new), Some(content)) = (block.entry.slot(), block.content) else { continue };
            let is_better = match self.pool.properties.index_copy() {
                IndexCopy::Sequential => written.len() > known.len(),
                IndexCopy::Oldest => false,
                IndexCopy::Newest => true,
            };
            if is_better || self.is_gone(Slot(old)) {
                self.pool.note_known(content.digest, new);
            }
        }
    }

    /// Returns true if nothing refers to a slot any more, by the state in memory.
    fn is_gone(&mut self, slot: Slot) -> bool {
        let recent = self.pool.recent(slot);
        recent.is_none() && self.pool.slot_state(slot).is_ok_and(|state| !state.is_used())
    }

    /// Counts a request that has just been carried out.
    pub(crate) fn count_write(&mut self, id: RequestId, volume: usize, policy: Policy) {
        let Engine { requests, deciding, .. } = self;
        let request = requests.get(id);
        if request.kind() != Kind::Write {
            return;
        }
        let coalesced_requests = requests.coalesced(id).count() as u64 - 1;
        let mut counts = WriteCounts { requests: 1, coalesced_requests, ..WriteCounts::default() };
        let size = request.blocks().len().next_power_of_two().ilog2() as usize;
        counts.sizes[size.min(counts.sizes.len() - 1)] = 1;
        for block in request.blocks() {
            match block.decision {
                _ if block.content.is_some_and(|content| content.zero) => counts.zero_blocks += 1,
                Decision::Write => counts.written_blocks += 1,
                Decision::Share(_) | Decision::IntraRequest => counts.removed.blocks += 1,
                Decision::Keep => {
                    counts.removed.blocks += 1;
                    counts.unchanged_blocks += 1;
                }
            }
        }
        counts.removed.requests = u64::from(counts.removed.blocks > 0 && counts.written_blocks == 0);
        if policy.looks_up() {
            counts.categories[deciding.category(request, policy) as usize] = 1;
            for block in request.blocks() {
                counts.index_hits += u64::from(matches!(block.lookup, Lookup::Known(_)));
                let is_missed = block.lookup == Lookup::Nothing && block.decision != Decision::IntraRequest;
                counts.index_misses += u64::from(block.is_payload() && is_missed);
            }
            let payload = counts.written_blocks + counts.removed.blocks;
            counts.what_if.full = deciding.removed_by(Policy::Full, request, payload);
            counts.what_if.select = deciding.removed_by(Policy::SELECT, request, payload);
            counts.what_if.idedup = deciding.removed_by(Policy::IDEDUP, request, payload);
        }
        self.pool.stats.writes += counts;
        self.pool.durable.volumes_mut().count_writes(volume, counts);
    }
}
