//! Journal records: closing one, the blocks inlined in it, and the writes of blocks to their slots.

use super::Pool;
use crate::api::*;
use crate::format::entry::Slot;
use crate::format::record::{self, Change, Header};
use crate::journal::Unwritten;
use crate::metadata::io::Purpose;
use crate::mutant::Mutant;

/// Maximum number of blocks of one device write: 1 MiB of 4 KiB blocks.
const RUN_BLOCKS: usize = 256;

impl Pool {
    /// Closes the open record and submits it; false if that has to wait for pages. With `inline`, a small group's blocks travel in the record.
    pub(crate) fn close_record(&mut self, inline: bool) -> bool {
        let block_size = self.durable.metadata.geometry.block_size as usize;
        let page_count = record::pages_for(self.durable.journal.changes.len(), block_size);
        if self.durable.metadata.pages.available() < page_count + 2 {
            return false;
        }
        let inlines = inline && self.durable.journal.can_inline();
        if inlines {
            self.mark_inlined(page_count as u32);
        } else {
            self.write_slots();
        }
        let blocks = self.durable.journal.unwritten.len();
        let early = self.mutant(Mutant::EarlyWatermark);
        let watermark = if early { self.durable.journal.complete } else { self.durable.journal.durable };
        let durable = inlines && (self.durable.journal.needs_no_sync() || self.mutant(Mutant::LoneRecord));
        let header = Header {
            pages: page_count as u16,
            blocks: blocks as u16,
            sequence: self.durable.journal.sequence,
            epoch: self.durable.superblock.epoch,
            previous: self.durable.journal.previous,
            watermark,
            entries: self.durable.journal.changes.len() as u32,
            position: self.durable.journal.head,
        };
        self.memory.scratch.resize(page_count * block_size, 0);
        let checksum = record::encode(
            &header,
            &self.durable.journal.changes,
            self.durable.metadata.journal_seed,
            &mut self.memory.scratch,
        );
        let parts = self.write_record(page_count, durable);
        self.durable.inlined.extend(self.durable.journal.unwritten.drain(..));
        self.durable.journal.closed(watermark, checksum, parts, (page_count + blocks) as u32);
        true
    }

    /// Turns the changes of blocks that travel in the record into inlined ones. The blocks follow after `pages` pages.
    fn mark_inlined(&mut self, pages: u32) {
        let start = self.durable.metadata.geometry.journal_start();
        let mut unwritten = self.durable.journal.unwritten.iter().enumerate().peekable();
        for change in &mut self.durable.journal.changes {
            let Some(&(at, block)) = unwritten.peek() else { break };
            if let Change::Fresh { key, slot, digest, offline } = *change
                && slot == block.slot
            {
                *change = Change::Inlined { key, slot, digest, block: at as u16, offline };
                let position = (self.durable.journal.head + pages + at as u32) % self.durable.journal.ring;
                self.durable.inlined_copies.add(slot, digest, start + u64::from(position));
                unwritten.next();
            }
        }
        assert!(unwritten.next().is_none(), "every unwritten block is of the open record");
    }

    /// Writes the encoded record and its blocks to the ring, in two parts if it wraps. Returns the number of parts.
    fn write_record(&mut self, page_count: usize, durable: bool) -> u32 {
        let block_size = self.durable.metadata.geometry.block_size as usize;
        let mut segments = core::mem::take(&mut self.durable.record_segments);
        for i in 0..page_count {
            let page = self.durable.metadata.pages.allocate().expect("pages were counted before");
            self.durable
                .metadata
                .pages
                .bytes_mut(page)
                .copy_from_slice(&self.memory.scratch[i * block_size..(i + 1) * block_size]);
            segments.push(Segment::Page(page));
        }
        for block in &self.durable.journal.unwritten {
            // Its slot may be written, and its buffer evicted, before the record is.
            self.memory.buffers.hold(block.buffer);
            segments.push(Segment::Buffer(block.buffer));
        }
        let to_end = (self.durable.journal.ring - self.durable.journal.head) as usize;
        let sequence = self.durable.journal.sequence;
        let start = self.durable.metadata.geometry.journal_start();
        let mut position = u64::from(self.durable.journal.head);
        let mut parts = 0;
        let split = to_end.min(segments.len());
        for part in [&segments[..split], &segments[split..]] {
            if part.is_empty() {
                continue;
            }
            let offset = (start + position) * block_size as u64;
            let length = (part.len() * block_size) as u64;
            let purpose = Purpose::WriteRecord { sequence, durable };
            let forced = durable && !self.mutant(Mutant::UnforcedRecord);
            let op = if forced { IoOp::WriteDurable } else { IoOp::Write };
            self.durable.metadata.io.begin(op, offset, length, part.iter().copied(), purpose);
            self.durable.journal.unsynced_bytes += if durable { 0 } else { length };
            position = 0;
            parts += 1;
        }
        segments.clear();
        self.durable.record_segments = segments;
        parts
    }

    /// Returns true if more slots are pending than the limits allow: some must be published before more become pending.
    pub(crate) fn has_much_pending(&self) -> bool {
        self.durable.space.pending().len() > self.limits.pending()
    }

    /// Makes the records that freed the pending slots durable, and then publishes that, with an empty record if necessary.
    pub(crate) fn publish_pending(&mut self) {
        if let Some(last) = self.durable.space.last_pending_free() {
            self.publish(last);
        }
    }

    /// Asks for the next step of publishing the records up to `last`: a sync that makes them durable, and after that a record with the watermark.
    /// Each call requests one step; nothing happens once they are published.
    pub(crate) fn publish(&mut self, last: u64) {
        let journal = &self.durable.journal;
        if last > journal.durable {
            self.durable.want_durable = self.durable.want_durable.max(last.min(journal.last()));
        } else if last > journal.published {
            if journal.last_watermark < last && journal.used + 2 <= journal.ring {
                self.durable.want_publish = true;
                self.durable.want_durable = self.durable.want_durable.max(journal.sequence);
            } else {
                self.durable.want_durable = self.durable.want_durable.max(journal.sequence - 1);
            }
        }
    }

    // ---- to the slots ----

    /// Submits the open record's blocks to their slots.
    pub(crate) fn write_slots(&mut self) {
        let sequence = self.durable.journal.sequence;
        let mut blocks = core::mem::take(&mut self.durable.journal.unwritten);
        self.write_runs(&blocks, sequence, false);
        blocks.clear();
        self.durable.journal.unwritten = blocks;
        self.durable.journal.record_like = false;
    }

    /// Submits the blocks inlined in the journal to their slots. The last of them came with record `sequence`.
    pub(crate) fn write_inlined(&mut self) {
        if self.durable.inlined.is_empty() {
            return;
        }
        let mut blocks = core::mem::take(&mut self.durable.inlined);
        self.durable.inlined_copies.submitted();
        self.write_runs(blocks.make_contiguous(), self.durable.journal.sequence - 1, true);
        blocks.clear();
        self.durable.inlined = blocks;
    }

    fn write_runs(&mut self, blocks: &[Unwritten], sequence: u64, inlined: bool) {
        // No record waits for blocks that count as inlined.
        let inlined = inlined || self.mutant(Mutant::UnseenCompletion);
        let block_size = self.durable.metadata.geometry.block();
        let mut rest = blocks;
        while let Some(first) = rest.first() {
            let follows = |i: usize| {
                let slot = Slot(first.slot.0 + i as u64);
                rest.get(i).is_some_and(|block| block.slot == slot)
                    && self.durable.space.container_of(slot) == self.durable.space.container_of(first.slot)
            };
            let length = (1..RUN_BLOCKS).find(|&i| !follows(i)).unwrap_or(RUN_BLOCKS);
            let offset = self.durable.metadata.geometry.slot_block(first.slot.0) * block_size;
            let bytes = length as u64 * block_size;
            let segments = rest[..length].iter().map(|block| Segment::Buffer(block.buffer));
            let purpose = Purpose::WriteSlots { first: first.slot, sequence, inlined };
            self.durable.metadata.io.begin(IoOp::Write, offset, bytes, segments, purpose);
            self.durable.journal.unsynced_bytes += bytes;
            if inlined {
                self.durable.inlined_writes += 1;
            } else {
                self.durable.journal.expect_write();
            }
            rest = &rest[length..];
        }
    }
}

/// Returns true if blocks to be written need not wait for more: they fill a run, or, if not consecutive, they number at least `apart`.
pub(crate) fn are_enough(count: usize, first: Option<&Unwritten>, last: Option<&Unwritten>, apart: usize) -> bool {
    let (Some(first), Some(last)) = (first, last) else { return false };
    let is_one_run = last.slot.0 == first.slot.0 + count as u64 - 1;
    count >= if is_one_run { RUN_BLOCKS } else { apart }
}
