//! Journal records: closing one, the blocks inlined in it, and the writes of blocks to their slots.

use super::Pool;
use crate::api::*;
use crate::format::entry::Slot;
use crate::format::record::{self, Header};
use crate::journal::Unwritten;
use crate::metadata::io::Purpose;
use crate::mutant::Mutant;

/// Maximum number of blocks of one device write: 1 MiB of 4 KiB blocks.
const RUN_BLOCKS: usize = 256;

impl Pool {
    /// Closes the open record and submits it; false if that has to wait for pages. With `inline`, a small group's blocks travel in the record.
    pub(crate) fn close_record(&mut self, inline: bool) -> bool {
        let block_size = self.metadata.geometry().block_size as usize;
        let page_count = record::pages_for(self.durable.journal.changes().len(), block_size);
        if self.metadata.pages().available() < page_count + 2 {
            return false;
        }
        let inlines = inline && self.durable.journal.can_inline();
        if inlines {
            let start = self.metadata.geometry().journal_start();
            self.durable.journal.inline_blocks(page_count as u32, start);
        } else {
            self.write_slots();
        }
        let blocks = self.durable.journal.unwritten().len();
        let early = self.mutant(Mutant::EarlyWatermark);
        let watermark = if early { self.durable.journal.complete() } else { self.durable.journal.durable() };
        let durable = inlines && (self.durable.journal.needs_no_sync() || self.mutant(Mutant::LoneRecord));
        let header = Header {
            pages: page_count as u16,
            blocks: blocks as u16,
            sequence: self.durable.journal.sequence(),
            epoch: self.durable.superblock.epoch,
            previous: self.durable.journal.previous(),
            watermark,
            entries: self.durable.journal.changes().len() as u32,
            position: self.durable.journal.head(),
        };
        self.durable.record_bytes.resize(page_count * block_size, 0);
        let checksum = record::encode(
            &header,
            self.durable.journal.changes(),
            self.metadata.journal_seed(),
            &mut self.durable.record_bytes,
        );
        let parts = self.write_record(page_count, durable);
        self.durable.journal.closed(watermark, checksum, parts, (page_count + blocks) as u32);
        true
    }

    /// Writes the encoded record and its blocks to the ring, in two parts if it wraps. Returns the number of parts.
    fn write_record(&mut self, page_count: usize, durable: bool) -> u32 {
        let block_size = self.metadata.geometry().block_size as usize;
        let mut segments = core::mem::take(&mut self.durable.record_segments);
        for i in 0..page_count {
            let page = self.metadata.pages_mut().allocate().expect("pages were counted before");
            self.metadata
                .pages_mut()
                .bytes_mut(page)
                .copy_from_slice(&self.durable.record_bytes[i * block_size..(i + 1) * block_size]);
            segments.push(Segment::Page(page));
        }
        for block in self.durable.journal.unwritten() {
            // Its slot may be written, and its buffer evicted, before the record is.
            self.memory.buffers_mut().hold(block.buffer);
            segments.push(Segment::Buffer(block.buffer));
        }
        let to_end = (self.durable.journal.ring() - self.durable.journal.head()) as usize;
        let sequence = self.durable.journal.sequence();
        let start = self.metadata.geometry().journal_start();
        let mut position = u64::from(self.durable.journal.head());
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
            self.metadata.io_mut().begin(op, offset, length, part.iter().copied(), purpose);
            self.durable.journal.note_unsynced(if durable { 0 } else { length });
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
            self.durable.journal.publish(last);
        }
    }

    // ---- to the slots ----

    /// Submits the open record's blocks to their slots.
    pub(crate) fn write_slots(&mut self) {
        let sequence = self.durable.journal.sequence();
        let blocks = self.durable.journal.take_unwritten();
        self.write_runs(&blocks, sequence, false);
        self.durable.journal.give_list_back(blocks);
    }

    /// Submits the blocks inlined in the journal to their slots. The last of them came with record `sequence`.
    pub(crate) fn write_inlined(&mut self) {
        if self.durable.journal.inlined().is_empty() {
            return;
        }
        let mut blocks = self.durable.journal.take_inlined();
        self.write_runs(blocks.make_contiguous(), self.durable.journal.sequence() - 1, true);
        self.durable.journal.give_inlined_back(blocks);
    }

    fn write_runs(&mut self, blocks: &[Unwritten], sequence: u64, inlined: bool) {
        // No record waits for blocks that count as inlined.
        let inlined = inlined || self.mutant(Mutant::UnseenCompletion);
        let block_size = self.metadata.geometry().block();
        let mut rest = blocks;
        while let Some(first) = rest.first() {
            let follows = |i: usize| {
                let slot = Slot(first.slot.0 + i as u64);
                rest.get(i).is_some_and(|block| block.slot == slot)
                    && self.durable.space.container_of(slot) == self.durable.space.container_of(first.slot)
            };
            let length = (1..RUN_BLOCKS).find(|&i| !follows(i)).unwrap_or(RUN_BLOCKS);
            let offset = self.metadata.geometry().slot_block(first.slot.0) * block_size;
            let bytes = length as u64 * block_size;
            let segments = rest[..length].iter().map(|block| Segment::Buffer(block.buffer));
            let purpose = Purpose::WriteSlots { first: first.slot, sequence, inlined };
            self.metadata.io_mut().begin(IoOp::Write, offset, bytes, segments, purpose);
            self.durable.journal.note_unsynced(bytes);
            if inlined {
                self.durable.journal.expect_inlined_write();
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
