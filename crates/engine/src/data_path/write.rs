//! Writes, write-zeroes and trims: LoadMap, Read and Merge (partial blocks), Verify, then everything else at once: decide,
//! allocate, change the map, append to the open record, answer. See docs/internals/write-path.md.

use crate::api::*;
use crate::dedup::policy::Lookup;
use crate::engine::Engine;
use crate::format::entry::{Entry, Key, Slot, check_bits};
use crate::metadata::io::Purpose;
use crate::metadata::tree::Unresolved;
use crate::metadata::tree::{LastLeaf, Missing};
use crate::mutant::Mutant;
use crate::pool::change::Put;
use crate::pool::contents::Known;
use crate::pool::records::are_enough;
use crate::requests::request::{Block, Decision, Kind, Stage};

/// Most new blocks that wait for others, unless all of them are one device write.
const SCATTERED_BLOCKS: usize = 64;
/// Blocks of a write below which it belongs to no stream.
const STREAM_BLOCKS: usize = 8;
/// Divisor of the read cache: a stream of writes is long from this part on.
const PASSING_PART: usize = 8;
/// The most times that a write waits for summaries before it treats a block as unknown.
const VERIFY_ATTEMPTS: u8 = 3;

/// Result of the proof that a known block holds the same bytes.
enum Proof {
    Equal,
    Unequal,
    NotYet,
}

impl Engine {
    /// Notes a write. If it belongs to a stream that would evict much of the read cache, and be evicted before a read of its beginning, its blocks bypass the
    /// cache.
    pub(crate) fn note_write_stream(&mut self, id: RequestId) {
        let blocks = self.requests.get(id).blocks();
        if blocks.len() < STREAM_BLOCKS {
            return;
        }
        let (first, count) = (blocks[0].key, blocks.len() as u64);
        if self.pool.is_in_long_write(first, count, PASSING_PART) {
            for buffer in blocks.iter().filter_map(|block| block.buffer) {
                self.pool.memory.buffers_mut().pass(buffer);
            }
        }
    }

    pub(crate) fn run_write(&mut self, id: RequestId) {
        let request = self.requests.get(id);
        if self.pool.state.read_only() {
            return self.fail_request(id, Error::ReadOnly);
        }
        if request.kind() == Kind::Clear && request.blocks().is_empty() {
            self.push_partial_blocks(id);
        }
        if !self.complete_blocks(id) {
            return;
        }
        let volume = self.pool.volume_index(self.requests.get(id).volume()).expect("checked when it began to run");
        if !self.note_unchanged(id, volume) {
            return;
        }
        let (has_begun, needs_space) = (self.requests.get(id).cleared() > 0, self.changes_something(id));
        if needs_space && self.queues.has_waits_for_space() && !has_begun && !self.may_overtake(id) {
            // Others wait for space already: first come, first served.
            return self.block(id);
        }
        if needs_space && !self.admit(id) {
            return;
        }
        if self.clears_in_parts(id) {
            return;
        }
        let policy = self.pool.policy_in_force(&self.pool.durable.volumes()[volume]);
        if !self.look_up(id, volume, policy) {
            return;
        }
        self.decide(id, policy);
        if !self.admit_space(id) {
            return;
        }
        self.change(id, volume, policy);
    }

    /// Appends the first and last block of a clear, where it covers only a part of them.
    fn push_partial_blocks(&mut self, id: RequestId) {
        let geometry = *self.pool.metadata.geometry();
        let request = self.requests.get_mut(id);
        let (offset, end) = (request.offset(), request.offset() + request.length());
        let block = geometry.block();
        let (head, tail) = (!offset.is_multiple_of(block), !end.is_multiple_of(block));
        if offset / block == (end - 1) / block {
            if head || tail {
                request.add_blocks(offset, end - offset, &geometry);
            }
            return;
        }
        if head {
            request.add_blocks(offset, block - offset % block, &geometry);
        }
        if tail {
            request.add_blocks(end / block * block, end % block, &geometry);
        }
    }

    // ---- partial blocks ----

    /// Notes the blocks that are to hold zeroes and already read as zeroes. They change nothing, and take no space for metadata; otherwise a volume's
    /// holes, written with zeroes, would fill the pool. Returns false if pages have to be loaded first.
    #[inline]
    fn note_unchanged(&mut self, id: RequestId, volume: usize) -> bool {
        let request = self.requests.get_mut(id);
        request.forget_unchanged();
        let may_be = |block: &Block| block.unchanged || block.content.is_some_and(|content| content.zero);
        !request.blocks().iter().any(may_be) || self.note_unchanged_zeroes(id, volume)
    }

    #[inline(never)]
    fn note_unchanged_zeroes(&mut self, id: RequestId, volume: usize) -> bool {
        let (mut last, mut missing) = (LastLeaf::default(), None);
        for at in 0..self.requests.get(id).blocks().len() {
            let block = self.requests.get(id).blocks()[at];
            let is_zero = block.content.is_some_and(|content| content.zero);
            let unchanged = is_zero
                && match self.pool.reads_as_zeroes(volume, block.key, &mut last) {
                    Ok(unchanged) => unchanged,
                    Err(page) => {
                        if missing.replace(page) != Some(page) {
                            let request = self.requests.get_mut(id);
                            request.enter(Stage::LoadMap);
                            request.wait_for(1);
                            self.pool.metadata.load(page, Some(id));
                        }
                        false
                    }
                };
            let request = self.requests.get_mut(id);
            request.blocks_mut()[at].unchanged = unchanged;
            request.note_unchanged(unchanged);
        }
        missing.is_none()
    }

    /// Returns true if a write or a clear changes anything.
    fn changes_something(&self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let clears = request.kind() == Kind::Clear && {
            let (start, stop) = self.left_to_clear(id);
            start < stop
        };
        clears || request.unchanged() < request.blocks().len()
    }

    /// Completes partial blocks from the blocks that they map to; returns false if that has to be waited for.
    fn complete_blocks(&mut self, id: RequestId) -> bool {
        let volume = self.pool.volume_index(self.requests.get(id).volume()).expect("checked when it began to run");
        let whole = self.pool.metadata.geometry().block_size;
        for at in 0..self.requests.get(id).blocks().len() {
            let block = self.requests.get(id).blocks()[at];
            if block.to - block.from == whole {
                continue;
            }
            let entry = match self.pool.resolve(volume, block.key) {
                Ok(entry) => entry,
                Err(Unresolved::Damaged) => {
                    self.fail_when_quiet(id, Error::Io);
                    return false;
                }
                Err(Unresolved::Missing(missing)) => {
                    let request = self.requests.get_mut(id);
                    request.enter(Stage::LoadMap);
                    request.wait_for(1);
                    self.pool.metadata.load(missing, Some(id));
                    continue;
                }
            };
            if block.content.is_some() && (block.base == Some(entry) || self.pool.mutant(Mutant::StaleBase)) {
                continue;
            }
            if !self.complete_block(id, at, entry) {
                return false;
            }
        }
        self.requests.get(id).waiting() == 0
    }

    /// Begins to complete one block from `entry`; false if the request now waits for buffers.
    fn complete_block(&mut self, id: RequestId, at: usize, entry: Entry) -> bool {
        let block = self.requests.get(id).blocks()[at];
        let clears = self.requests.get(id).kind() == Kind::Clear;
        if clears && entry.slot().is_none() {
            // Zeroes in a block of zeroes.
            let part = &mut self.requests.get_mut(id).blocks_mut()[at];
            part.base = Some(entry);
            part.content = Some(BlockContent::ZERO);
            return true;
        }
        let mut base_buffer = block.base_buffer.filter(|_| block.base == Some(entry));
        if base_buffer.is_none() {
            if let Some(stale) = block.base_buffer {
                self.pool.memory.buffers_mut().release(stale);
            }
            if let Some(slot) = entry.slot() {
                match self.use_memory(slot, entry.check()) {
                    Ok(found) => {
                        let misses = found.is_none() && self.pool.memory.cache().is_by_content();
                        base_buffer = if misses { self.use_content(slot, entry.check()) } else { found };
                    }
                    Err(error) => {
                        self.fail_when_quiet(id, error);
                        return false;
                    }
                }
            }
            let part = &mut self.requests.get_mut(id).blocks_mut()[at];
            part.base = Some(entry);
            part.content = None;
            part.compared = None;
            part.base_buffer = base_buffer;
        }
        if let Some(slot) = entry.slot()
            && base_buffer.is_none()
        {
            self.requests.get_mut(id).enter(Stage::Read);
            if !self.fill_one(slot, entry, id, at as u32) {
                return self.wait_for_merge_buffers(id);
            }
            return true;
        }
        let Some(into) = block.buffer.or_else(|| self.pool.any_buffer()) else {
            return self.wait_for_merge_buffers(id);
        };
        self.pool.memory.buffers_mut().set_incoming(into);
        let request = self.requests.get_mut(id);
        request.enter(Stage::Merge);
        request.wait_for(1);
        request.blocks_mut()[at].buffer = Some(into);
        let op = IoOp::Merge { from: block.from, to: block.to, zero: clears };
        let segments = core::iter::once(into).chain(base_buffer).map(Segment::Buffer);
        self.pool.metadata.io_mut().begin(op, 0, 0, segments, Purpose::Merge { request: id, block: at as u32 });
        true
    }

    /// Makes a write wait for a buffer, unless another wait will run it again anyway.
    fn wait_for_merge_buffers(&mut self, id: RequestId) -> bool {
        if self.requests.get(id).waiting() == 0 {
            self.wait_for_buffers(id);
        }
        false
    }

    /// Takes a partial block that has been completed.
    pub(crate) fn merged(&mut self, id: RequestId, at: u32, result: Result<Outcome<'_>, IoError>) {
        let content = match result {
            Ok(Outcome::Blocks(&[content])) => Some(content),
            _ => None,
        };
        let block = &mut self.requests.get_mut(id).blocks_mut()[at as usize];
        block.content = content;
        if let Some(base) = block.base_buffer.take() {
            self.pool.memory.buffers_mut().release(base);
        }
        self.arrived(id, content.is_none());
    }

    // ---- lookup ----

    /// Looks up the contents of a write's blocks in the pool, unless the policy is `native`. Returns false if the write must first wait for pages
    /// (summaries, index on disk, space map) or for a comparison of blocks.
    fn look_up(&mut self, id: RequestId, volume: usize, policy: Policy) -> bool {
        // Results of an earlier run may have changed since, and so may the policy.
        for block in self.requests.get_mut(id).blocks_mut() {
            (block.lookup, block.intra_duplicate_of) = (Lookup::Nothing, None);
        }
        if !policy.looks_up() {
            return true;
        }
        self.note_mapped(id, volume);
        let blocks = self.requests.get(id).blocks();
        if blocks.len() > 1 {
            let digests = blocks.iter().filter_map(|block| block.content).filter(|content| !content.zero);
            self.pool.hints.index.warm(digests.map(|content| self.pool.sharing_digest(content.digest)));
        }
        let mut last: Option<Missing> = None;
        let mut waits = false;
        for at in 0..self.requests.get(id).blocks().len() {
            let block = self.requests.get(id).blocks()[at];
            let Some(content) = block.content.filter(|content| !content.zero) else { continue };
            if let Some(slot) = self.holds_already(block.entry, content.digest) {
                if self.pool.hints.index.lookup(self.pool.sharing_digest(content.digest)).is_none() {
                    self.pool.note_known(content.digest, slot);
                }
                self.requests.get_mut(id).blocks_mut()[at].lookup = Lookup::Unchanged(slot.0);
                continue;
            }
            let known = match self.known(content.digest) {
                Known::No if policy == Policy::Full => self.known_on_disk(id, at, content.digest),
                known => known,
            };
            let lookup = match known {
                Known::Yes(slot, digest) if self.repairs.is_lost(slot, digest) => Lookup::Nothing,
                Known::Yes(slot, digest) => match self.prove(id, at, slot, digest) {
                    Proof::Equal if block.entry.slot() == Some(slot) => Lookup::Unchanged(slot.0),
                    Proof::Equal => Lookup::Known(slot.0),
                    Proof::Unequal => Lookup::Nothing,
                    Proof::NotYet => {
                        waits = true;
                        Lookup::Nothing
                    }
                },
                Known::No => Lookup::Nothing,
                Known::NotYet(missing) => {
                    let may_wait = self.requests.get(id).attempts() < VERIFY_ATTEMPTS || self.may_ask_disk(id, at);
                    let request = self.requests.get_mut(id);
                    if may_wait && last != Some(missing) {
                        request.wait_for(1);
                        self.pool.metadata.load(missing, Some(id));
                        last = Some(missing);
                    }
                    Lookup::Nothing
                }
            };
            self.requests.get_mut(id).blocks_mut()[at].lookup = lookup;
        }
        waits |= last.is_some();
        if waits {
            let request = self.requests.get_mut(id);
            request.note_attempt();
            request.enter(Stage::Verify);
        } else {
            self.jobs.index_prefetch.want_beside(self.requests.get(id).blocks(), &self.pool);
        }
        !waits
    }

    /// Proves that a slot whose digest agrees holds the block's bytes: where digests do not prove that, by comparing. A verdict counts only while the
    /// compared buffer still has the slot's content.
    fn prove(&mut self, id: RequestId, at: usize, slot: Slot, digest: Digest) -> Proof {
        if self.pool.digests_prove() {
            return Proof::Equal;
        }
        let present = self.pool.memory.buffer_of(slot);
        let request = self.requests.get_mut(id);
        let attempts = request.attempts();
        let block = &mut request.blocks_mut()[at];
        if let (Some((known, equal)), Some(_)) = (block.compared, block.base_buffer)
            && known == slot
            && present == block.base_buffer
        {
            return if equal { Proof::Equal } else { Proof::Unequal };
        }
        if attempts >= VERIFY_ATTEMPTS {
            return Proof::Unequal;
        }
        let (own, stale) = (block.buffer, block.base_buffer.take());
        block.compared = None;
        if let Some(stale) = stale {
            self.pool.memory.buffers_mut().release(stale);
        }
        let known = match self.use_memory(slot, check_bits(digest)) {
            Ok(Some(known)) => known,
            Ok(None) => {
                let begun = self.fill_one(slot, Entry::whole(slot, digest), id, at as u32);
                return if begun { Proof::NotYet } else { Proof::Unequal };
            }
            Err(_) => return Proof::Unequal,
        };
        let request = self.requests.get_mut(id);
        request.wait_for(1);
        request.blocks_mut()[at].base_buffer = Some(known);
        request.blocks_mut()[at].compared = Some((slot, false));
        let segments = own.into_iter().chain([known]).map(Segment::Buffer);
        self.pool.metadata.io_mut().begin(
            IoOp::Compare,
            0,
            0,
            segments,
            Purpose::Compare { request: id, block: at as u32 },
        );
        Proof::NotYet
    }

    /// Notes the result of the comparison of two blocks.
    pub(crate) fn compared(&mut self, id: RequestId, at: u32, result: Result<Outcome<'_>, IoError>) {
        let block = &mut self.requests.get_mut(id).blocks_mut()[at as usize];
        if let Some((_, equal)) = &mut block.compared {
            *equal = result == Ok(Outcome::Equal(true));
        }
        self.arrived(id, false);
    }

    /// Finds a live slot that is proven to hold the content with this digest. The index's answer is a hint.
    fn known(&mut self, digest: Digest) -> Known {
        let wanted = self.pool.sharing_digest(digest);
        let hint = self.pool.hints.index.lookup(wanted);
        self.jobs.index_prefetch.asked(wanted, hint.is_some());
        let Some(hint) = hint else { return Known::No };
        let slot = hint.slot;
        if !self.pool.durable.space().contains(slot) {
            return Known::No;
        }
        if let Some(recent) = self.pool.recent(slot) {
            let found = recent.digest;
            return if self.pool.sharing_digest(found) == wanted { Known::Yes(slot, found) } else { Known::No };
        }
        match self.pool.slot_state(slot) {
            Ok(state) if state.is_used() => {}
            Ok(_) => {
                self.pool.hints.index.remove(wanted, slot);
                return Known::No;
            }
            Err(missing) => return Known::NotYet(missing),
        }
        let generation = self.pool.durable.space().generation(slot);
        let proves = hint.proves && hint.generation == generation && self.pool.digests_prove();
        if proves || self.pool.mutant(Mutant::StaleHint) {
            return Known::Yes(slot, digest);
        }
        match self.pool.summary(slot) {
            Ok(Some(found)) if self.pool.sharing_digest(found) == wanted => {
                self.pool.hints.index.insert(wanted, slot, generation);
                Known::Yes(slot, found)
            }
            Ok(_) => {
                self.pool.hints.index.remove(wanted, slot);
                Known::No
            }
            Err(missing) => Known::NotYet(missing),
        }
    }

    // ---- the change ----

    /// Changes the map and appends to the open record, without waiting: everything is at hand.
    fn change(&mut self, id: RequestId, volume: usize, policy: Policy) {
        self.clear_range(id);
        let offline = self.pool.is_offline(&self.pool.durable.volumes()[volume]);
        let misses = self.jobs.rebuild().misses() && policy.shares() && !self.has_complete_index(policy);
        let row = self.pool.device().sequential_blocks as usize;
        let sequential = row > 0 && self.requests.get(id).blocks().len() >= row;
        for at in 0..self.requests.get(id).blocks().len() {
            self.change_block(id, at, SkippedLookups { offline, misses }, sequential);
        }
        self.pool.free_dead();
        self.name_copies(id);
        self.count_write(id, volume, policy);
        self.jobs.cache_partition.note_lookups(self.requests.get(id), policy, &self.pool.limits);
        self.pool.state.note_change();
        self.pool.forget_wrapped();
        let unwritten = self.pool.durable.journal().unwritten();
        if are_enough(unwritten.len(), unwritten.first(), unwritten.last(), SCATTERED_BLOCKS) {
            self.pool.write_slots();
        }
        let is_durable = self.pool.durable.journal().is_durable();
        if self.requests.get(id).fua() && !is_durable && !self.pool.mutant(Mutant::EarlyFua) {
            self.requests.get_mut(id).enter(Stage::Commit);
            // A request that changed nothing depends on earlier records.
            self.queues.wait_for_record(self.pool.durable.journal().last(), id);
        } else {
            self.answer_done(id);
        }
    }

    /// Clears the whole blocks of a clear that are left.
    fn clear_range(&mut self, id: RequestId) {
        if self.requests.get(id).kind() != Kind::Clear {
            return;
        }
        let (start, stop) = self.left_to_clear(id);
        if start < stop {
            self.clear_part(id, start, stop);
        }
    }

    /// Clears whole blocks of one volume, in the open record too.
    pub(crate) fn clear_part(&mut self, id: RequestId, start: Key, stop: Key) {
        let end = stop.0 - (start.0 - start.lba());
        self.pool.durable.journal_mut().push_clear(start, end);
        let looked_at = self.pool.cover_keys(start, stop);
        if self.is_long(id) {
            self.time_slices.take_steps(looked_at + self.pool.durable.released() as u64);
        }
    }

    /// Returns true if a write of this policy looks into an index on disk that has every block.
    fn has_complete_index(&self, policy: Policy) -> bool {
        policy == Policy::Full && self.pool.hints.disk_index.record().is_complete()
    }

    fn change_block(&mut self, id: RequestId, at: usize, looked: SkippedLookups, sequential: bool) {
        let block = self.requests.get(id).blocks()[at];
        if block.unchanged {
            return;
        }
        let content = block.content.expect("every block is whole by now");
        let digest = content.digest;
        let entry = if content.zero {
            self.pool.put(block.key, Put::Zero)
        } else if let Some(slot) = self.shared_slot(id, at) {
            self.pool.put(block.key, Put::Share(slot, digest))
        } else if block.decision == Decision::Keep {
            return;
        } else {
            let buffer = self.requests.get_mut(id).blocks_mut()[at].buffer.take().expect("payload has a buffer");
            let may_travel = !content.record_like || self.has_inlined_records();
            let is_missed = looked.misses && block.intra_duplicate_of.is_none() && block.lookup == Lookup::Nothing;
            let is_left = looked.offline || is_missed;
            let fresh = |offline| Put::Fresh { digest, buffer, may_travel, sequential, offline };
            let entry = self.pool.put(block.key, fresh(is_left && !self.pool.mutant(Mutant::UnmarkedOffline)));
            if is_left {
                self.jobs.dedup_mut().leave(self.pool.state.now(), 1);
            }
            if looked.offline {
                // The pass tells the index.
            } else if let Some(slot) = entry.slot()
                && block.intra_duplicate_of.is_none()
                && !matches!(block.lookup, Lookup::Known(_))
            {
                self.pool.note_known(digest, slot);
            }
            entry
        };
        self.requests.get_mut(id).blocks_mut()[at].entry = entry;
    }

    /// Returns the slot that a block shares, if it shares one.
    fn shared_slot(&self, id: RequestId, at: usize) -> Option<Slot> {
        let blocks = self.requests.get(id).blocks();
        match blocks[at].decision {
            Decision::Share(slot) => Some(slot),
            Decision::IntraRequest => blocks[blocks[at].intra_duplicate_of? as usize].entry.slot(),
            Decision::Write | Decision::Keep => None,
        }
    }

    /// Ends the writes of blocks, which are in their slots: they become part of the read cache, unless they bypass it.
    pub(crate) fn slots_written(
        &mut self,
        first: Slot,
        segments: &[Segment],
        sequence: u64,
        inlined: bool,
        result: Result<Outcome<'_>, IoError>,
    ) {
        let good = self.check_written(result);
        for i in 0..segments.len() {
            let slot = Slot(first.0 + i as u64);
            let buffer = self.pool.memory.end_dirty(slot);
            let stays = self.pool.memory.buffers_mut().arrived(buffer);
            if good && (self.pool.hints.replicas.was_written(slot) || !stays) {
                self.pool.memory.release_later(buffer);
            } else if good {
                self.jobs.cache_partition.note_written(slot);
                self.pool.keep_written(slot, buffer);
            } else {
                // The pool is read-only from now on: keep the only copy readable.
                self.pool.memory.set_dirty(slot, buffer);
            }
        }
        self.pool.memory.release_evicted();
        if inlined {
            self.pool.durable.journal_mut().wrote_inlined();
            self.jobs.checkpoint_inlined_written(sequence);
        } else if good {
            self.pool.durable.journal_mut().wrote(sequence);
        }
    }

    /// Clears a part of a long clear, for which there is space, if something is left for later: then it continues with its next time slice.
    fn clears_in_parts(&mut self, id: RequestId) -> bool {
        if self.requests.get(id).kind() != Kind::Clear || !self.is_long(id) {
            return false;
        }
        if !self.time_slices.has_steps() && !self.pool.mutant(Mutant::EndlessTimeSlice) {
            // Space has come, and the time slice is over. It keeps its place.
            self.time_slices.ask_for_next();
            self.block(id);
            return true;
        }
        let (start, stop) = self.next_to_clear(id);
        if stop == self.left_to_clear(id).1 {
            return false;
        }
        self.clear_part(id, start, stop);
        self.pool.free_dead();
        self.pool.state.note_change();
        let request = self.requests.get_mut(id);
        request.note_cleared(stop.0 - start.0);
        request.enter(Stage::Admit);
        self.queue(id);
        true
    }

    /// Returns true if blocks that look like records travel in the journal, too: only in builds with mutants.
    fn has_inlined_records(&self) -> bool {
        self.pool.mutant(Mutant::InlinedRecord) || self.pool.mutant(Mutant::PublicSeed)
    }
}

/// Lookups for duplicates of a written block that were left out.
#[derive(Clone, Copy)]
struct SkippedLookups {
    /// Into any index: the volume is offline.
    offline: bool,
    /// Into an index that is being filled.
    misses: bool,
}
