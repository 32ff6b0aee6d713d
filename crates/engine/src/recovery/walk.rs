//! Journal walk: finds the records of the chain in order, before their blocks are verified.
//!
//! Invariants: a record of the chain has the next sequence number, the checksum of the record before it, its own place in the ring, and a good
//! checksum. Beyond the seal, its epoch is not older than the seal. The watermark is the highest one of all records seen, also beyond the end of the
//! chain. If the chain ends below it, the journal is damaged.

use alloc::vec::Vec;

use super::{Recovery, RecoveryProgress, RecoveryStep};
use crate::api::*;
use crate::format::record::{self, Change, Header};
use crate::metadata::io::Purpose;
use crate::mutant::Mutant;
use crate::pool::Pool;

/// Number of ring blocks read at once.
const WINDOW_BLOCKS: u32 = 64;
/// Number of ring blocks beyond the end of the chain that are searched for a record with a higher durable watermark: the longest record, and another
/// one.
const BEYOND_BLOCKS: u32 = 3 * record::MAX_PAGES as u32;

/// A record of the journal.
pub(crate) struct Walked {
    pub header: Header,
    pub changes: Vec<Change>,
    pub checksum: u64,
}

enum Next {
    Record(alloc::boxed::Box<Walked>),
    End,
    /// Number of blocks from `position` on that have to be in the window.
    Read(u32),
}

impl Pool {
    /// Walks the chain, and reads more of the ring where necessary.
    pub(super) fn walk(&mut self, recovery: &mut Recovery) -> Result<RecoveryProgress, OpenError> {
        let most = self.limits.replayable_entries(&self.durable.metadata.geometry);
        if let Some((offset, length)) = self.walk_window(recovery, most) {
            recovery.outstanding += 1;
            self.durable.metadata.io.begin(IoOp::ReadPages, offset, length, [], Purpose::Recovery(0));
            return Ok(RecoveryProgress::Wait);
        }
        if recovery.newest_epoch > self.durable.superblock.epoch {
            // Pages referenced by the older superblock may have been reused since.
            let geometry = &self.durable.metadata.geometry;
            let offset = geometry.superblock_block(0, recovery.newest_epoch) * geometry.block();
            return Err(OpenError::DamagedPage { offset, what: "the newest superblock" });
        }
        let last = recovery.records.last().map_or(self.durable.superblock.included, |record| record.header.sequence);
        if recovery.watermark > last {
            return Err(OpenError::DamagedJournal { sequence: last + 1 });
        }
        if recovery.entries > most {
            return Err(OpenError::TooLittleMemory { entries: recovery.entries });
        }
        Ok(RecoveryProgress::Next(RecoveryStep::Verify))
    }

    /// Walks the chain through the bytes read so far, and keeps the changes of `most` entries. Returns the bytes (offset, length) that have to be
    /// added to the window; `None` at the end of the chain.
    pub(crate) fn walk_window(&self, recovery: &mut Recovery, most: u64) -> Option<(u64, u64)> {
        let block = self.durable.metadata.geometry.block_size as usize;
        let ring = self.durable.metadata.geometry.journal_blocks;
        loop {
            let have = (recovery.window.len() / block) as u32;
            let needed = match self.next_record(recovery) {
                Next::Record(walked) => {
                    let blocks = u32::from(walked.header.pages) + u32::from(walked.header.blocks);
                    recovery.watermark = recovery.watermark.max(walked.header.watermark);
                    recovery.newest_epoch = recovery.newest_epoch.max(walked.header.epoch);
                    recovery.walked_blocks += blocks;
                    recovery.position = (recovery.position + blocks) % ring;
                    let bytes = (blocks as usize * block).min(recovery.window.len());
                    // Inlined blocks may lie beyond the window; the next read begins after them.
                    recovery.window.drain(..bytes);
                    if bytes < blocks as usize * block {
                        recovery.window.clear();
                    }
                    recovery.entries += walked.changes.len() as u64;
                    recovery.records.push(*walked);
                    if recovery.entries > most {
                        // Memory is too small to replay them all: they are only counted.
                        recovery.records.iter_mut().for_each(|walked| walked.changes = Vec::new());
                    }
                    continue;
                }
                Next::End => {
                    let beyond = BEYOND_BLOCKS.min(ring - recovery.walked_blocks);
                    if have >= beyond {
                        let (watermark, epoch) = self.beyond(recovery);
                        recovery.watermark = recovery.watermark.max(watermark);
                        recovery.newest_epoch = recovery.newest_epoch.max(epoch);
                        return None;
                    }
                    beyond
                }
                Next::Read(blocks) => blocks,
            };
            // The window is contiguous from `position`; the next read continues behind it.
            let from = (recovery.position + have) % ring;
            let count = WINDOW_BLOCKS.max(needed - have).min(ring - from).min(ring - have);
            let offset = (self.durable.metadata.geometry.journal_start() + u64::from(from)) * block as u64;
            return Some((offset, u64::from(count) * block as u64));
        }
    }

    /// Returns the highest watermark and the highest epoch of the records beyond the end of the chain: records that they declare durable have been
    /// damaged since.
    fn beyond(&self, recovery: &Recovery) -> (u64, u64) {
        let last = recovery.records.last().map_or(self.durable.superblock.included, |record| record.header.sequence);
        let block = self.durable.metadata.geometry.block_size as usize;
        let ring = self.durable.metadata.geometry.journal_blocks;
        let mut highest = (0, 0);
        for (at, page) in recovery.window.chunks_exact(block).enumerate() {
            let Some(header) = record::decode_header(page) else { continue };
            let follows = header.sequence > last + 1
                && header.epoch >= self.durable.superblock.seal_epoch
                && header.position == (recovery.position + at as u32) % ring;
            let bytes = at * block..(at + usize::from(header.pages)) * block;
            if follows
                && let Some(pages) = recovery.window.get(bytes)
                && record::decode(&header, &mut pages.to_vec(), self.durable.metadata.journal_seed).is_some()
            {
                highest = (highest.0.max(header.watermark), highest.1.max(header.epoch));
            }
        }
        highest
    }

    /// Returns the next record of the chain, if the window contains it.
    fn next_record(&self, recovery: &mut Recovery) -> Next {
        let block = self.durable.metadata.geometry.block_size as usize;
        let (sequence, previous) = match recovery.records.last() {
            Some(walked) => (walked.header.sequence + 1, walked.checksum),
            None => (self.durable.superblock.included + 1, self.durable.superblock.included_checksum),
        };
        if recovery.window.len() < block {
            return Next::Read(1);
        }
        let Some(header) = record::decode_header(&recovery.window[..block]) else { return Next::End };
        let blocks = u32::from(header.pages) + u32::from(header.blocks);
        let is_old = sequence > self.durable.superblock.sealed && header.epoch < self.durable.superblock.seal_epoch;
        let stale = is_old && !self.mutant(Mutant::StaleRecord);
        if header.sequence != sequence
            || header.previous != previous
            || header.position != recovery.position
            || stale
            || recovery.walked_blocks + blocks > self.durable.metadata.geometry.journal_blocks
        {
            return Next::End;
        }
        let bytes = usize::from(header.pages) * block;
        if recovery.window.len() < bytes {
            return Next::Read(u32::from(header.pages));
        }
        match record::decode(&header, &mut recovery.window[..bytes], self.durable.metadata.journal_seed) {
            Some((changes, checksum)) => Next::Record(alloc::boxed::Box::new(Walked { header, changes, checksum })),
            None => Next::End,
        }
    }
}

pub(crate) fn blocks_of(header: &Header) -> u32 {
    u32::from(header.pages) + u32::from(header.blocks)
}
