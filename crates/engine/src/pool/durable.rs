//! The durable part of a pool: superblock, roots, volumes, deltas, map buffer, discards, space and journal. Recovery restores these from the store.
//!
//! Invariants: a mapping is in the active delta, the frozen delta, the map buffer or a leaf, and the first of these that has it counts. A slot is free
//! only if none of them refers to it. A change is applied here and to the open record in one step, and answered at once; only
//! flushes and FUA writes wait until their record is durable.
//!
//! Fields are open to the files of `pool/`, which hold these invariants together. Everybody else reads them, changes a part by its verbs (`space_mut`,
//! `journal_mut`, and those of the checkpoint: `map_buffer_mut`, `volumes_mut`, `discards_mut`, `buffer_flush_mut`), and changes the deltas only by the
//! pool's changes (`change.rs`), a freeze and its end, a new limit of memory, and the end of a replay.

use crate::api::{Failure, Full, Segment, VolumeId};
use crate::block_map::delta::Delta;
use crate::block_map::discards::DiscardList;
use crate::block_map::flush::BufferFlush;
use crate::block_map::map_buffer::MapBuffer;
use crate::format::entry::Slot;
use crate::format::layout::TableForm;
use crate::format::superblock::{Parameters, Root, Superblock, TREES, TreeId};
use crate::journal::Journal;
use crate::limits::Limits;
use crate::locality_map::NearMap;
use crate::pool::growth::{Growing, Offer};
use crate::pool::metadata_reservation::{MetadataReservation, Paths};
use crate::pool::owner::Ownership;
use crate::pool::volumes::held::Counted;
use crate::pool::volumes::table::VolumeTable;
use crate::space::{RESERVE_CONTAINERS, Space};
use alloc::vec::Vec;

/// State that a crash must keep: tables, deltas, journal, space, volumes.
pub(crate) struct Durable {
    /// Owner that must have the pool before it may be written.
    pub(super) owner: Ownership,
    /// Number of checkpoint superblocks in flight, and the newest epoch of a submitted one.
    superblocks_in_flight: u32,
    superblock_submitted: u64,
    /// Newest superblock: durable in both places, except the seal of an opening and the mark of a failure, which are being written.
    pub(super) superblock: Superblock,
    pub(super) roots: [Root; TREES],
    pub(super) volumes: VolumeTable,
    /// Volume of second copies, if there is one that is not deleted.
    pub(super) copies: Option<VolumeId>,
    pub(super) delta: Delta,
    /// Delta that the checkpoint in progress merges; empty if there is none.
    pub(super) frozen: Delta,
    /// Counts of the tables when the checkpoint in progress began: its stages change maps before counts.
    pub(super) counted: Option<Counted>,
    /// Blocks that deleted volumes map in subtrees that are still to be walked; `None`: unknown since the pool was opened.
    pub(super) orphaned: Option<u64>,
    /// Mappings that are merged, but not in their leaves.
    pub(super) map_buffer: MapBuffer,
    pub(super) buffer_flush: BufferFlush,
    pub(super) reservation: MetadataReservation,
    pub(super) discards: DiscardList,
    /// Set if a page of the snapshot that is handed over, or of its child, cannot be read.
    pub(super) is_hand_over_stopped: bool,
    pub(super) space: Space,
    pub(super) journal: Journal,
    /// Journal places of inlined blocks that are not in their slots, in a pool that is not written.
    pub(super) in_journal: NearMap<Slot, u64>,
    /// Changes of reference counts that checkpoints have found since the pool was opened.
    changed_references: u64,
    /// Number of the last checkpoint that freed, or will free, discarded slots or slots that a pass has deduplicated.
    pub(super) slots_freed_in: u64,
    pub(super) reserving: bool,
    /// True if the allocator waits for fresh containers rather than fill holes.
    pub(super) wants_fresh: bool,
    /// Number of containers to reserve at once.
    pub(super) reserve_at_once: u32,
    /// Reason of the last refusal of a write of new blocks.
    pub(super) refused: Option<Full>,
    pub(super) growing: Option<Growing>,
    pub(super) growth_offer: Offer,
    /// True if more pending slots may be reclaimed.
    pub(super) reclaim_left: bool,
    /// Slots that lost their last reference in the change that is being applied, or that were just reclaimed; empty in between.
    pub(super) dead: Vec<Slot>,
    /// Segments of the record that is being written, empty in between, and its encoded pages; likewise the slots of a container that is being opened.
    pub(super) record_segments: Vec<Segment>,
    pub(super) record_bytes: Vec<u8>,
    pub(super) free_slots: Vec<bool>,
}

impl Durable {
    /// Creates the state of a pool with empty tables, to be opened.
    pub(super) fn new(parameters: Parameters, limits: &Limits) -> Durable {
        let geometry = parameters.geometry;
        let entries = limits.delta_entries as usize;
        Durable {
            owner: Ownership::default(),
            superblocks_in_flight: 0,
            superblock_submitted: 0,
            superblock: Superblock::new(parameters),
            roots: [Root::default(); TREES],
            volumes: VolumeTable::new(&geometry, TableForm::default()),
            copies: None,
            delta: Delta::with_capacity(entries),
            frozen: Delta::with_capacity(entries),
            counted: None,
            orphaned: Some(0),
            map_buffer: MapBuffer::new(),
            buffer_flush: BufferFlush::default(),
            reservation: MetadataReservation::new(&geometry),
            discards: DiscardList::default(),
            is_hand_over_stopped: false,
            space: Space::new(&geometry),
            journal: Journal::new(geometry.journal_blocks, geometry.block_size, 0, 0, 0, 0),
            in_journal: NearMap::default(),
            changed_references: 0,
            slots_freed_in: 0,
            reserving: false,
            wants_fresh: false,
            reserve_at_once: RESERVE_CONTAINERS,
            refused: None,
            growing: None,
            growth_offer: Offer::default(),
            reclaim_left: false,
            dead: Vec::new(),
            record_segments: Vec::new(),
            record_bytes: Vec::new(),
            free_slots: Vec::new(),
        }
    }
}

// Superblock and roots.
impl Durable {
    /// Returns the newest superblock.
    #[inline]
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Adopts the superblock that an opening or a repair has chosen among those on the store. Its epoch may be any that the store has.
    pub(crate) fn adopt_superblock(&mut self, superblock: Superblock) {
        self.superblock = superblock;
        self.volumes.set_form(superblock.table_form);
    }

    /// Puts a newer superblock in place: that of a checkpoint, once it is durable in both places, or the seal of an opening, once it is submitted.
    pub(crate) fn set_superblock(&mut self, superblock: Superblock) {
        assert!(superblock.epoch >= self.superblock.epoch, "a newer superblock follows an older one");
        self.superblock = superblock;
    }

    /// Notes that a replayed change left a block to be deduplicated later.
    pub(crate) fn note_replayed_backlog(&mut self, is_offline: bool) {
        self.superblock.dedup.has_backlog |= is_offline;
    }

    /// Notes that both copies of a checkpoint's superblock are submitted.
    pub(crate) fn begin_superblocks(&mut self, epoch: u64) {
        assert!(self.superblocks_in_flight == 0, "one superblock is written at a time");
        assert!(epoch > self.superblock.epoch, "a newer superblock follows an older one");
        (self.superblocks_in_flight, self.superblock_submitted) = (2, epoch);
    }

    /// Notes that the write of a copy has ended.
    pub(crate) fn end_superblock(&mut self) {
        self.superblocks_in_flight -= 1;
    }

    pub(crate) fn has_superblocks_in_flight(&self) -> bool {
        self.superblocks_in_flight > 0
    }

    /// Makes the newest superblock one that is marked as failed, to be written: not to the place of the newest one that is whole for certain, since writing
    /// may tear it.
    pub(crate) fn mark_failed(&mut self, failed: Option<Failure>) {
        let epoch = match self.superblock_submitted {
            submitted if submitted > self.superblock.epoch => submitted + 2,
            _ => self.superblock.epoch + 1,
        };
        let proven = self.journal.durable();
        self.superblock = Superblock { epoch, proven, clean: false, failed, ..self.superblock };
    }

    pub(crate) fn roots(&self) -> &[Root; TREES] {
        &self.roots
    }

    /// Returns the root of a table.
    #[inline]
    pub(crate) fn root(&self, tree: TreeId) -> Root {
        self.roots[tree as usize]
    }

    /// Sets the root of a table that has been merged or read.
    pub(crate) fn set_root(&mut self, tree: TreeId, root: Root) {
        self.roots[tree as usize] = root;
    }

    /// Takes a table's root: the table is empty from now on.
    pub(super) fn take_root(&mut self, tree: TreeId) -> Root {
        core::mem::take(&mut self.roots[tree as usize])
    }

    /// Sets the roots of all tables: those of the superblock that was chosen.
    pub(crate) fn set_roots(&mut self, roots: [Root; TREES]) {
        self.roots = roots;
    }
}

// Mappings.
impl Durable {
    #[inline]
    pub(crate) fn volumes(&self) -> &VolumeTable {
        &self.volumes
    }

    #[inline]
    pub(crate) fn volumes_mut(&mut self) -> &mut VolumeTable {
        &mut self.volumes
    }

    /// Sets the volume of second copies that the table of volumes has.
    pub(crate) fn set_second_copies(&mut self, volume: VolumeId) {
        self.copies = Some(volume);
    }

    /// Returns the active delta.
    #[inline]
    pub(crate) fn delta(&self) -> &Delta {
        &self.delta
    }

    /// Returns the delta that the checkpoint in progress merges.
    #[inline]
    pub(crate) fn frozen(&self) -> &Delta {
        &self.frozen
    }

    /// Freezes the active delta and its reservation for a checkpoint, and begins empty ones.
    pub(crate) fn freeze(&mut self) {
        assert!(self.frozen.is_empty(), "one delta is merged at a time");
        core::mem::swap(&mut self.delta, &mut self.frozen);
        self.reservation.freeze();
        self.volumes.begin_checkpoint();
    }

    /// Empties the frozen delta: the tables have all of it. `entries`: number of entries to keep memory for.
    pub(crate) fn end_merge(&mut self, entries: usize) {
        self.frozen.reset(entries);
        self.reservation.end_merge();
    }

    /// Fits the memory of deltas that are empty to a new limit. `merges`: a checkpoint is in progress, and has the frozen one.
    pub(crate) fn fit_deltas(&mut self, entries: usize, merges: bool) {
        if self.delta.is_empty() {
            self.delta.fit(entries);
        }
        if self.frozen.is_empty() && !merges {
            self.frozen.fit(entries);
        }
    }

    /// Forgets fresh slots without references, after a replay: they are free.
    pub(crate) fn forget_released(&mut self) {
        self.delta.forget_released();
    }

    #[inline]
    pub(crate) fn map_buffer(&self) -> &MapBuffer {
        &self.map_buffer
    }

    #[inline]
    pub(crate) fn map_buffer_mut(&mut self) -> &mut MapBuffer {
        &mut self.map_buffer
    }

    /// Puts the map buffer in place that recovery has read, with the reservation for its paths.
    pub(crate) fn set_map_buffer(&mut self, buffer: MapBuffer) {
        buffer.iter().for_each(|(key, _)| self.reservation.note_buffered(key));
        self.map_buffer = buffer;
    }

    /// Sets the paths to the mappings in the map buffer: these alone, or these besides the former ones.
    pub(crate) fn set_buffered_paths(&mut self, paths: Paths, alone: bool) {
        self.reservation.set_buffered(paths, alone);
    }

    /// Returns the request for a flush of the map buffer.
    pub(crate) fn buffer_flush(&self) -> &BufferFlush {
        &self.buffer_flush
    }

    pub(crate) fn buffer_flush_mut(&mut self) -> &mut BufferFlush {
        &mut self.buffer_flush
    }

    pub(crate) fn discards(&self) -> &DiscardList {
        &self.discards
    }

    pub(crate) fn discards_mut(&mut self) -> &mut DiscardList {
        &mut self.discards
    }
}

// Slots and records.
impl Durable {
    #[inline]
    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    #[inline]
    pub(crate) fn space_mut(&mut self) -> &mut Space {
        &mut self.space
    }

    #[inline]
    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    #[inline]
    pub(crate) fn journal_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// Puts the journal in place that continues after the valid records.
    pub(crate) fn set_journal(&mut self, journal: Journal) {
        self.journal = journal;
    }

    /// Returns the number of the last checkpoint that frees discarded slots or slots that a pass has deduplicated.
    pub(crate) fn slots_freed_in(&self) -> u64 {
        self.slots_freed_in
    }

    /// Returns true if more pending slots may be reclaimed.
    #[inline]
    pub(crate) fn reclaim_left(&self) -> bool {
        self.reclaim_left
    }

    /// Returns the number of slots that lost their last reference in the change that is being applied.
    #[inline]
    pub(crate) fn released(&self) -> usize {
        self.dead.len()
    }

    /// Returns the changes of reference counts that checkpoints have found since the pool was opened.
    pub(crate) fn changed_references(&self) -> u64 {
        self.changed_references
    }

    /// Adds to the changes of reference counts.
    pub(crate) fn note_changed_references(&mut self, changes: u64) {
        self.changed_references += changes;
    }

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
