//! The durable part of a pool: the trees, the journal and the superblock, the deltas between them, space and volumes. Recovery restores these from the store.
//!
//! Invariants: a mapping is in the active delta, the frozen delta, the map buffer or a leaf, and the first of these that has it counts. A slot is free
//! only if none of them refers to it. A change is applied here and to the open record in one step, and answered at once; only
//! flushes and FUA writes wait until their record is durable.
//!
//! With them stands state that their work needs and a crash may lose: the table of I/Os, the page cache, lists that are empty between two steps, and flags of
//! reservations. It leaves this part as the parts close.

use crate::api::{Full, Segment, VolumeId};
use crate::block_map::delta::Delta;
use crate::block_map::discards::Discard;
use crate::block_map::map_buffer::MapBuffer;
use crate::format::entry::Slot;
use crate::format::superblock::{Root, Superblock, TREES};
use crate::format::volume::Volume;
use crate::journal::Journal;
use crate::locality_map::NearMap;
use crate::pool::growth::{Growing, Offer};
use crate::pool::held::Counted;
use crate::pool::metadata_reservation::MetadataReservation;
use crate::pool::owner::Ownership;
use crate::space::Space;
use alloc::vec::Vec;

/// State that a crash must keep: tables, deltas, journal, space, volumes.
pub(crate) struct Durable {
    /// Owner that must have the pool before it may be written.
    pub(super) owner: Ownership,
    /// Number of checkpoint superblocks in flight, and the newest epoch of a submitted one.
    pub(crate) superblocks_in_flight: u32,
    pub(crate) superblock_submitted: u64,
    /// Newest superblock that is durable in both places.
    pub(crate) superblock: Superblock,
    pub(crate) roots: [Root; TREES],
    pub(crate) volumes: Vec<Volume>,
    /// Map roots, in the order of `volumes`.
    pub(crate) maps: Vec<Root>,
    /// Volume of second copies, if there is one that is not deleted.
    pub(crate) copies: Option<VolumeId>,
    pub(crate) delta: Delta,
    /// Delta that the checkpoint in progress merges; empty if there is none.
    pub(crate) frozen: Delta,
    /// Counts of the tables when the checkpoint in progress began: its stages change maps before counts.
    pub(super) counted: Option<Counted>,
    /// Blocks that deleted volumes map in subtrees that are still to be walked; `None`: unknown since the pool was opened.
    pub(super) orphaned: Option<u64>,
    /// Mappings that are merged, but not in their leaves.
    pub(crate) buffer: MapBuffer,
    /// True until the next checkpoints have flushed all of the map buffer.
    pub(crate) want_flush: bool,
    /// True if the last checkpoint with a full flush found no space for a page.
    pub(crate) flush_is_stuck: bool,
    /// Largest number of free pages of metadata at the end of such a checkpoint.
    pub(crate) free_when_stuck: u32,
    pub(crate) reservation: MetadataReservation,
    pub(crate) discards: Vec<Discard>,
    /// Number of discards at the head of the list that belong to the index on disk and cannot be read; the next opening tries again.
    pub(super) stuck_discards: usize,
    pub(crate) space: Space,
    pub(crate) journal: Journal,
    /// Journal places of inlined blocks that are not in their slots, in a pool that is not written.
    pub(super) in_journal: NearMap<Slot, u64>,
    /// Changes of reference counts that checkpoints have found since the pool was opened.
    pub(super) changed_references: u64,
    /// Number of the last checkpoint that freed, or will free, discarded slots or slots that a pass has deduplicated.
    pub(crate) slots_freed_in: u64,
    pub(super) reserving: bool,
    /// True if the allocator waits for fresh containers rather than fill holes.
    pub(super) wants_fresh: bool,
    /// Number of containers to reserve at once.
    pub(super) reserve_at_once: u32,
    /// Reason of the last refusal of a write of new blocks.
    pub(super) refused: Option<Full>,
    pub(super) growing: Option<Growing>,
    pub(super) growth_offer: Offer,
    /// Pages of trees whose last read failed: users of such a page do not ask again.
    pub(crate) failed_pages: Vec<crate::metadata::page_cache::PageKey>,
    /// Number of leaves of the discard list as last written.
    pub(crate) discard_leaves: u64,
    /// Number of leaves of the volume table as last written.
    pub(crate) volume_leaves: u64,
    /// True if more pending slots may be reclaimed.
    pub(crate) reclaim_left: bool,
    pub(crate) dead: Vec<Slot>,
    /// Segments of the record that is being written, empty in between; likewise the slots of a container that is being opened.
    pub(super) record_segments: Vec<Segment>,
    pub(super) free_slots: Vec<bool>,
}

impl Durable {
    /// Returns true if a slot's block is read from the journal: the pool is not written.
    #[inline]
    pub(crate) fn is_in_journal(&self, slot: Slot) -> bool {
        self.in_journal.contains_key(&slot)
    }

    /// Returns true if blocks of any slots are read from the journal.
    #[inline]
    pub(crate) fn has_blocks_in_journal(&self) -> bool {
        !self.in_journal.is_empty()
    }

    /// Keeps the journal places of blocks that are not written to their slots, since the pool is not written.
    pub(crate) fn keep_in_journal(&mut self, places: impl Iterator<Item = (Slot, u64)>) {
        self.in_journal.extend(places);
    }
}
