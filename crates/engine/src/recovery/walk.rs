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
    pub(super) header: Header,
    pub(super) changes: Vec<Change>,
    pub(super) checksum: u64,
}

impl Walked {
    /// Keeps only those of its changes that are `good`.
    pub(crate) fn retain(&mut self, good: impl FnMut(&Change) -> bool) {
        self.changes.retain(good);
    }

    /// Returns the header of the record.
    #[inline]
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the changes of the record.
    #[inline]
    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the checksum of the record.
    #[inline]
    pub(crate) fn checksum(&self) -> u64 {
        self.checksum
    }
}

enum Next {
    Record(alloc::boxed::Box<Walked>),
    End,
    /// Number of blocks from `position` on that have to be in the window.
    Read(u32),
}

impl Recovery {
    /// Walks the chain, and reads more of the ring where necessary.
    pub(super) fn walk(&mut self, pool: &mut Pool) -> Result<RecoveryProgress, OpenError> {
        let most = pool.limits.replayable_entries(pool.metadata.geometry());
        if let Some((offset, length)) = self.walk_window(pool, most) {
            self.outstanding += 1;
            pool.metadata.io_mut().begin(IoOp::ReadPages, offset, length, [], Purpose::Recovery(0));
            return Ok(RecoveryProgress::Wait);
        }
        if self.newest_epoch > pool.durable.superblock().epoch {
            // Pages referenced by the older superblock may have been reused since.
            let geometry = pool.metadata.geometry();
            let offset = geometry.superblock_block(0, self.newest_epoch) * geometry.block();
            return Err(OpenError::DamagedPage { offset, what: "the newest superblock" });
        }
        let last = self.records.last().map_or(pool.durable.superblock().included, |record| record.header.sequence);
        if self.watermark > last {
            return Err(OpenError::DamagedJournal { sequence: last + 1 });
        }
        if self.entries > most {
            return Err(OpenError::TooLittleMemory { entries: self.entries });
        }
        Ok(RecoveryProgress::Next(RecoveryStep::Verify))
    }

    /// Walks the chain through the bytes read so far, and keeps the changes of `most` entries. Returns the bytes (offset, length) that have to be
    /// added to the window; `None` at the end of the chain.
    pub(crate) fn walk_window(&mut self, pool: &Pool, most: u64) -> Option<(u64, u64)> {
        let block = pool.metadata.geometry().block_size as usize;
        let ring = pool.metadata.geometry().journal_blocks;
        loop {
            let have = (self.window.len() / block) as u32;
            let needed = match self.next_record(pool) {
                Next::Record(walked) => {
                    let blocks = u32::from(walked.header.pages) + u32::from(walked.header.blocks);
                    self.watermark = self.watermark.max(walked.header.watermark);
                    self.newest_epoch = self.newest_epoch.max(walked.header.epoch);
                    self.walked_blocks += blocks;
                    self.position = (self.position + blocks) % ring;
                    let bytes = (blocks as usize * block).min(self.window.len());
                    // Inlined blocks may lie beyond the window; the next read begins after them.
                    self.window.drain(..bytes);
                    if bytes < blocks as usize * block {
                        self.window.clear();
                    }
                    self.entries += walked.changes.len() as u64;
                    self.records.push(*walked);
                    if self.entries > most {
                        // Memory is too small to replay them all: they are only counted.
                        self.records.iter_mut().for_each(|walked| walked.changes = Vec::new());
                    }
                    continue;
                }
                Next::End => {
                    let beyond = BEYOND_BLOCKS.min(ring - self.walked_blocks);
                    if have >= beyond {
                        let (watermark, epoch) = self.beyond(pool);
                        self.watermark = self.watermark.max(watermark);
                        self.newest_epoch = self.newest_epoch.max(epoch);
                        return None;
                    }
                    beyond
                }
                Next::Read(blocks) => blocks,
            };
            // The window is contiguous from `position`; the next read continues behind it.
            let from = (self.position + have) % ring;
            let count = WINDOW_BLOCKS.max(needed - have).min(ring - from).min(ring - have);
            let offset = (pool.metadata.geometry().journal_start() + u64::from(from)) * block as u64;
            return Some((offset, u64::from(count) * block as u64));
        }
    }

    /// Returns the highest watermark and the highest epoch of the records beyond the end of the chain: records that they declare durable have been
    /// damaged since.
    fn beyond(&self, pool: &Pool) -> (u64, u64) {
        let last = self.records.last().map_or(pool.durable.superblock().included, |record| record.header.sequence);
        let block = pool.metadata.geometry().block_size as usize;
        let ring = pool.metadata.geometry().journal_blocks;
        let mut highest = (0, 0);
        for (at, page) in self.window.chunks_exact(block).enumerate() {
            let Some(header) = record::decode_header(page) else { continue };
            let follows = header.sequence > last + 1
                && header.epoch >= pool.durable.superblock().seal_epoch
                && header.position == (self.position + at as u32) % ring;
            let bytes = at * block..(at + usize::from(header.pages)) * block;
            if follows
                && let Some(pages) = self.window.get(bytes)
                && record::decode(&header, &mut pages.to_vec(), pool.metadata.journal_seed()).is_some()
            {
                highest = (highest.0.max(header.watermark), highest.1.max(header.epoch));
            }
        }
        highest
    }

    /// Returns the next record of the chain, if the window contains it.
    fn next_record(&mut self, pool: &Pool) -> Next {
        let block = pool.metadata.geometry().block_size as usize;
        let (sequence, previous) = match self.records.last() {
            Some(walked) => (walked.header.sequence + 1, walked.checksum),
            None => (pool.durable.superblock().included + 1, pool.durable.superblock().included_checksum),
        };
        if self.window.len() < block {
            return Next::Read(1);
        }
        let Some(header) = record::decode_header(&self.window[..block]) else { return Next::End };
        let blocks = u32::from(header.pages) + u32::from(header.blocks);
        let is_old = sequence > pool.durable.superblock().sealed && header.epoch < pool.durable.superblock().seal_epoch;
        let stale = is_old && !pool.mutant(Mutant::StaleRecord);
        if header.sequence != sequence
            || header.previous != previous
            || header.position != self.position
            || stale
            || self.walked_blocks + blocks > pool.metadata.geometry().journal_blocks
        {
            return Next::End;
        }
        let bytes = usize::from(header.pages) * block;
        if self.window.len() < bytes {
            return Next::Read(u32::from(header.pages));
        }
        match record::decode(&header, &mut self.window[..bytes], pool.metadata.journal_seed()) {
            Some((changes, checksum)) => Next::Record(alloc::boxed::Box::new(Walked { header, changes, checksum })),
            None => Next::End,
        }
    }
}

pub(crate) fn blocks_of(header: &Header) -> u32 {
    u32::from(header.pages) + u32::from(header.blocks)
}
