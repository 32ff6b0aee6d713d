//! Read-ahead for sequential readers: blocks are in memory before their requests come.
//!
//! ```text
//! Note      each read is compared with a few streams, and may open the window of its own: blocks beyond are to be read (streams.rs)
//! Resolve   the map gives the slots of these blocks; leaves are loaded in the background
//! Read      blocks neither in memory nor in flight, in order of place and over small gaps, in large reads
//! Keep      in the read cache, apart from used blocks (cache/arc), until their first use
//! ```
//!
//! It is only a hint. Nothing waits for it; a request that needs a block in flight joins its fill, like that of another request. A failed block is
//! dropped silently: a request that needs it reads it again, and repairs it. No step of it evicts used blocks as long as there are free buffers, and
//! none is taken while requests wait for buffers.
//!
//! A slot that is being read is not reused before its fill has ended (`reclaim`), as with any fill.

use crate::cache::streams::RUN_BLOCKS;
use alloc::vec::Vec;

use crate::api::*;
use crate::cache::in_flight::Fill;
use crate::data_path::read_location::DeviceRead;
use crate::engine::Engine;
use crate::format::entry::{Key, Slot};
use crate::metadata::io::Purpose;
use crate::metadata::tree::{LastLeaf, Unresolved};
use crate::pool::state::Phase;
use crate::requests::read_ahead::WantedBlock;

/// Blocks are scattered where the mean length of their reads is below this.
const SCATTERED: usize = 32;
/// Times that a refill asks for pages before it is given up.
const TRIES: u32 = 8;

impl Engine {
    /// Notes a read, and opens the window of its stream if that is due.
    pub(crate) fn note_stream(&mut self, id: RequestId) {
        if self.pool.limits.read_ahead == 0 {
            return;
        }
        let request = self.requests.get(id);
        let (first, blocks) = (request.blocks()[0].key, request.blocks().len() as u64);
        let (most, widest) = (self.pool.memory.cache().most_ahead() as u64, self.pool.limits.read_ahead.into());
        let refills = self.pool.memory.read_streams_mut().note(first, blocks, self.pool.state.now(), most, widest);
        self.read_ahead.note_work(refills);
    }

    /// Reads ahead where windows are to be filled.
    pub(crate) fn step_read_ahead(&mut self) {
        if !self.read_ahead.works() || self.pool.state.phase() != Phase::Serving || self.queues.waits_for_buffers() > 0
        {
            return;
        }
        let mut works = false;
        for at in 0..self.pool.memory.read_streams_mut().len() {
            while self.pool.memory.read_streams_mut().get(at).is_refilling() {
                works = true;
                if self.read_ahead.reads_in_flight() > self.pool.device().reads_in_flight as usize || !self.refill(at) {
                    break;
                }
            }
        }
        self.read_ahead.end_step(works);
    }

    /// Continues the refill of a stream; returns false if it has to wait, or is over.
    fn refill(&mut self, at: usize) -> bool {
        let stream = self.pool.memory.read_streams_mut().get(at);
        let (id, ahead, mut goal) = (stream.volume(), stream.ahead(), stream.goal());
        let Some(volume) = self.pool.volume_index(id) else {
            self.pool.memory.read_streams_mut().get(at).stop();
            return false;
        };
        goal = goal.min(self.pool.durable.volumes()[volume].size.div_ceil(self.pool.metadata.geometry().block()));
        // Buffers for the gaps come from the other half.
        let spare =
            self.pool.memory.buffers().free() + self.pool.memory.cache().len() - self.pool.memory.cache().ahead();
        let least = self.pool.limits.least_read_buffers(self.pool.metadata.geometry()) as usize;
        let most = (spare.saturating_sub(least / 2) / 2) as u64;
        let end = goal.min(ahead + u64::from(self.pool.device().window_blocks).min(most));
        if ahead >= end {
            self.pool.memory.read_streams_mut().get(at).stop();
            return false;
        }
        let mut wanted = self.read_ahead.take_wanted();
        wanted.clear();
        let (mut lba, mut missing, mut leaf) = (ahead, None, LastLeaf::default());
        while lba < end && missing.is_none() {
            match self.pool.resolve_after(volume, Key::new(id, lba), &mut leaf) {
                Ok(entry) => {
                    if let Some(slot) = entry.slot().filter(|&slot| !self.is_at_hand(slot, entry.check())) {
                        wanted.push(WantedBlock { slot, check: entry.check(), lba });
                    }
                    lba += 1;
                }
                Err(Unresolved::Damaged) => lba += 1,
                Err(Unresolved::Missing(page)) => missing = Some(page),
            }
        }
        let before = self.read_ahead.reads_in_flight();
        let end = self.read_wanted(&mut wanted).unwrap_or(lba);
        let reads = self.read_ahead.reads_in_flight() - before;
        let is_scattered = reads * SCATTERED > wanted.len();
        if end > ahead && self.pool.notes_regions() {
            let in_order = 1 + wanted.len() / RUN_BLOCKS as usize;
            let middle = Key::new(id, ahead + (end - ahead) / 2);
            self.pool.regions_mut().read(middle, reads.saturating_sub(in_order) as u32);
            self.pool.regions_mut().went_on(Key::new(id, ahead), Key::new(id, end));
        }
        self.read_ahead.keep_wanted(wanted);
        let stream = self.pool.memory.read_streams_mut().get(at);
        stream.advance(end, is_scattered);
        let Some(missing) = missing.filter(|_| end == lba) else { return true };
        if self.pool.metadata.pages().is_loading(missing.key) {
            return false;
        }
        if stream.note_try() > TRIES || self.pool.metadata.has_failed(missing.key) {
            stream.stop();
            return false;
        }
        self.pool.metadata.load(missing, None);
        false
    }

    /// Returns true if a slot's content need not be read ahead: it is in memory (perhaps of another slot), in flight, or being repaired.
    fn is_at_hand(&mut self, slot: Slot, check: u32) -> bool {
        self.pool.memory.buffer_of(slot).is_some()
            || self.pool.memory.is_filling(slot)
            || self.repairs.is_repairing(slot)
            || self.jobs.cache_warmup.is_fetching(slot)
            || (self.pool.memory.cache().is_by_content() && self.pool.find_content(slot, check).is_some())
    }

    /// Reads the first of these blocks, as many as come in a few reads. Returns the block of the volume up to which it read, unless it read all.
    fn read_wanted(&mut self, wanted: &mut Vec<WantedBlock>) -> Option<u64> {
        let mut end = None;
        let most = self.pool.device().window_reads as usize;
        self.read_wanted_replicas(wanted);
        let mut sorted = self.read_ahead.take_sorted();
        loop {
            sorted.clear();
            sorted.extend_from_slice(wanted);
            // Slots are numbered in the order of their places.
            sorted.sort_unstable_by_key(|wanted| (wanted.slot, wanted.lba));
            // Addresses that share a slot.
            sorted.dedup_by_key(|wanted| wanted.slot);
            let reads = sorted.chunk_by(|one, next| self.follows(one.slot, next.slot)).count();
            if reads <= most || wanted.len() <= most {
                break;
            }
            let fewer = (wanted.len() / 2).max(most);
            end = Some(wanted[fewer].lba);
            wanted.truncate(fewer);
        }
        let mut rest = &sorted[..];
        while let Some(first) = rest.first() {
            let goes_on = |pair: &[WantedBlock]| {
                self.follows(pair[0].slot, pair[1].slot) && pair[1].slot.0 - first.slot.0 < RUN_BLOCKS
            };
            let count = 1 + rest.windows(2).take_while(|pair| goes_on(pair)).count();
            let (run, others) = rest.split_at(count);
            rest = others;
            if !self.read_ahead_run(run) {
                break;
            }
        }
        self.read_ahead.keep_sorted(sorted);
        end
    }

    /// Returns true if one read continues from a slot to another one: it lies behind it in the same container, within the device's gap.
    fn follows(&self, slot: Slot, next: Slot) -> bool {
        let distance = next.0.saturating_sub(slot.0);
        (1..=u64::from(self.pool.device().gap_blocks) + 1).contains(&distance)
            && self.pool.durable.space().container_of(slot) == self.pool.durable.space().container_of(next)
            && (!self.pool.durable.has_blocks_in_journal()
                || self.pool.slot_offset(next)
                    == self.pool.slot_offset(slot) + distance * self.pool.metadata.geometry().block())
    }

    /// Begins one read, over the blocks that lie between; returns false if there are no buffers for it.
    fn read_ahead_run(&mut self, run: &[WantedBlock]) -> bool {
        let (first, last) = (run[0].slot, run[run.len() - 1].slot);
        let length = (last.0 - first.0 + 1) as usize;
        let mut buffers = self.read_ahead.take_buffers();
        buffers.clear();
        buffers.extend(core::iter::from_fn(|| self.pool.any_buffer()).take(length));
        let enough = buffers.len() == length;
        if enough {
            // Buffers side by side in memory are one segment for the device, and for the client.
            buffers.sort_unstable();
            let mut at = 0;
            for (slot, &buffer) in (first.0..).map(Slot).zip(&buffers) {
                if run[at].slot == slot {
                    self.pool.memory.begin_fill(slot, Fill::ahead(buffer, run[at].check));
                    at += 1;
                }
            }
            self.pool.stats.reads.ahead_blocks += run.len() as u64;
            self.pool.stats.reads.ahead_gaps += (length - run.len()) as u64;
            self.read_ahead.begin_read();
            let bytes = length as u64 * self.pool.metadata.geometry().block();
            let offset = self.pool.slot_offset(first);
            let segments = buffers.iter().copied().map(Segment::Buffer);
            self.pool.metadata.io_mut().begin(IoOp::ReadBlocks, offset, bytes, segments, Purpose::ReadAhead { first });
        } else {
            buffers.drain(..).for_each(|buffer| self.pool.memory.buffers_mut().release(buffer));
        }
        self.read_ahead.keep_buffers(buffers);
        enough
    }

    /// Takes the blocks with replicas out of `wanted`, and reads these in the order of the volume, for which they were made.
    fn read_wanted_replicas(&mut self, wanted: &mut Vec<WantedBlock>) {
        if !wanted.iter().any(|wanted| self.replica_of(wanted.slot).is_some()) {
            return;
        }
        let mut run = DeviceRead::default();
        wanted.retain(|&WantedBlock { slot, check, .. }| {
            if self.replica_of(slot).is_none() || self.pool.memory.is_filling(slot) {
                return true;
            }
            let Some(buffer) = self.pool.any_buffer() else { return true };
            self.pool.memory.begin_fill(slot, Fill::ahead(buffer, check));
            self.pool.stats.reads.ahead_blocks += 1;
            self.add_to_run(&mut run, slot);
            false
        });
        self.read_all_of(&mut run);
        wanted.retain(|wanted| !self.pool.memory.is_filling(wanted.slot));
    }

    /// Takes blocks that have been read ahead. Blocks of gaps are not kept.
    pub(crate) fn was_read_ahead(&mut self, first: Slot, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        self.read_ahead.end_read();
        for (i, segment) in segments.iter().enumerate() {
            let slot = Slot(first.0 + i as u64);
            let Segment::Buffer(buffer) = *segment else { unreachable!("blocks are read into buffers") };
            if !self.pool.memory.fills_into(slot, buffer) {
                self.pool.memory.buffers_mut().release(buffer);
                continue;
            }
            let content = match result {
                Ok(Outcome::Blocks(contents)) => contents.get(i).copied(),
                _ => None,
            };
            self.fill_ends(slot, content);
        }
    }
}
