//! The pool: the shared state that requests, jobs and repairs work on. Its parts belong to layers of their own; this module has the operations
//! that span several of them.
//!
//! ```text
//! resolve               lookup of a block: deltas, map buffer, leaf
//! change                changes of the map
//! contents              digests of slots, and sources of their content
//! regions               regions that are read in order, and the recent writes to them
//! moves                 limits of jobs that move blocks: budget, target slots, number of containers to empty
//! replicas              their locations and their limits
//! containers            opening and reserving ahead
//! records               closing a record, and writing its blocks to their slots
//! held                  blocks that volumes map, and the slots for them
//! memory                buffers for all users
//! metadata_reservation  metadata pages promised to checkpoints
//! volumes               creation, changes and deletion
//! device                traits of the disk
//! disk_index            the index on disk, if there is one
//! flash                 copies of containers in front of the store, and the reads that go there
//! growth                geometry, space and tables together
//! owner                 the process that has the pool
//! state                 phase and failure markers
//! ```

pub(crate) mod change;
pub(crate) mod checkpoint_state;
pub(crate) mod containers;
pub(crate) mod contents;
mod device;
pub(crate) mod disk_index;
pub mod flash;
pub(crate) mod growth;
pub mod held;
mod map_log;
pub(crate) mod memory;
pub(crate) mod metadata_reservation;
pub(crate) mod moves;
pub mod owner;
mod page_loads;
pub(crate) mod records;
pub(crate) mod regions;
pub(crate) mod replicas;
pub(crate) mod resolve;
pub(crate) mod state;
pub(crate) mod tables;
pub(crate) mod volumes;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::api::*;
use crate::block_map::delta::Delta;
use crate::block_map::discards::Discard;
use crate::block_map::map_buffer::MapBuffer;
use crate::cache::arc::ReadCache;
use crate::cache::buffers::Buffers;
use crate::cache::in_flight::Fill;
use crate::cache::streams::Streams;
use crate::counters::{Counters, ReadCounts, WriteCounts};
use crate::dedup::index::Index;
use crate::device::DeviceTraits;
use crate::format::entry::Slot;
use crate::format::geometry::Geometry;
use crate::format::superblock::{Parameters, Root, Superblock, TREES};
use crate::format::volume::Volume;
use crate::journal::inlined::InlinedCopies;
use crate::journal::{Journal, Syncs, Unwritten};
use crate::limits::Limits;
use crate::locality_map::{Near, NearMap};
use crate::metadata::allocator::MetadataAllocator;
use crate::metadata::io::IoTable;
use crate::metadata::page_cache::PageCache;
use crate::metadata::tree::Metadata;
use crate::mutant::Mutant;
use crate::pool::checkpoint_state::CheckpointProgress;
use crate::pool::disk_index::DiskIndex;
use crate::pool::flash::Flash;
use crate::pool::growth::{Growing, Offer};
use crate::pool::held::Counted;
use crate::pool::metadata_reservation::MetadataReservation;
use crate::pool::moves::Moves;
use crate::pool::owner::Ownership;
use crate::pool::regions::Regions;
use crate::pool::replicas::Replicas;
use crate::pool::state::{FailureMarker, Phase};
use crate::schedule::Schedule;
use crate::space::{RESERVE_CONTAINERS, Space};

/// Pool: all parts that more than one layer works on.
pub(crate) struct Pool {
    pub(crate) limits: Limits,
    pub(crate) now: Nanos,
    pub(crate) phase: Phase,
    /// True if the pool has failed since it was opened.
    pub(crate) read_only: bool,
    /// Reason of its failure, in this run or before.
    pub(crate) failure: Option<Failure>,
    pub(crate) failure_marker: FailureMarker,
    /// Owner that must have the pool before it may be written.
    pub(crate) owner: Ownership,
    /// Number of checkpoint superblocks in flight, and the newest epoch of a submitted one.
    pub(crate) superblocks_in_flight: u32,
    pub(crate) superblock_submitted: u64,
    /// True if the pool is opened to be read: changes are refused.
    pub(crate) reads_only: bool,
    /// True if nothing at all is written: opened to be read and found cleanly closed, or the pool has failed before.
    pub(crate) untouched: bool,
    /// Newest superblock that is durable in both places.
    pub(crate) superblock: Superblock,
    pub(crate) metadata: Metadata,
    pub(crate) roots: [Root; TREES],
    pub(crate) volumes: Vec<Volume>,
    /// Map roots, in the order of `volumes`.
    pub(crate) maps: Vec<Root>,
    /// Properties of the pool, as the next checkpoint writes them.
    pub(crate) pool_policy: Option<Policy>,
    pub(crate) pool_memory: u64,
    pub(crate) pool_cache: Option<CacheSetting>,
    /// Number of references beyond which a block is kept twice; 0: none is.
    pub(crate) second_copies: u32,
    /// Volume of second copies, if there is one that is not deleted.
    pub(crate) copies: Option<VolumeId>,
    pub(crate) index_copy: IndexCopy,
    /// Configured kind of the disk under the store, and the traits of the disk.
    device_kind: DeviceKind,
    device: DeviceTraits,
    /// Reads that the pass does before blocks share a slot.
    dedup_verify: DedupVerify,
    /// Feedback loop that throttles the pass.
    throttle: PassThrottle,
    /// Policy for the choice of containers that are copied to flash.
    flash_policy: FlashPolicy,
    /// Times at which a plan of relocation is made and run automatically.
    relocate: Schedule,
    regions: Regions,
    moves: Moves,
    pub(crate) replicas: Replicas,
    pub(crate) delta: Delta,
    /// Delta that the checkpoint in progress merges; empty if there is none.
    pub(crate) frozen: Delta,
    /// Counts of the tables when the checkpoint in progress began: its stages change maps before counts.
    counted: Option<Counted>,
    /// Blocks that deleted volumes map in subtrees that are still to be walked; `None`: unknown since the pool was opened.
    orphaned: Option<u64>,
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
    pub(crate) stuck_discards: usize,
    pub(crate) space: Space,
    pub(crate) index: Index,
    pub(crate) disk_index: DiskIndex,
    pub(crate) cache: ReadCache,
    pub(crate) buffers: Buffers,
    pub(crate) journal: Journal,
    /// Buffers of blocks that are not in their slots yet.
    pub(crate) dirty: NearMap<Slot, BufferId>,
    /// Blocks that are inlined in the journal and whose slot writes are still to be submitted.
    pub(crate) inlined: VecDeque<Unwritten>,
    /// Number of slot writes of inlined blocks in flight.
    pub(crate) inlined_writes: usize,
    /// Journal places of inlined blocks whose slots no sync has covered.
    pub(crate) inlined_copies: InlinedCopies,
    /// Journal places of inlined blocks that are not in their slots, in a pool that is not written.
    pub(crate) in_journal: NearMap<Slot, u64>,
    pub(crate) fills: NearMap<Slot, Fill>,
    /// Empty lists for requests that wait for a fill, kept for reuse.
    pub(crate) spare_fill_lists: Vec<Vec<(RequestId, u32)>>,
    /// Streams of reads; blocks are read ahead of them.
    pub(crate) read_streams: Streams,
    pub(crate) write_streams: Streams,
    pub(crate) syncs: Syncs,
    /// Sequence number up to which records shall become durable, on anyone's behalf.
    pub(crate) want_durable: u64,
    /// True if an empty record shall publish the watermark.
    pub(crate) want_publish: bool,
    want_checkpoint: bool,
    pub(crate) checkpoints_done: u64,
    /// Changes of reference counts that checkpoints have found since the pool was opened.
    changed_references: u64,
    /// State of the checkpoint in progress, absent while one of its steps has taken it.
    pub(crate) in_progress: Option<CheckpointProgress>,
    /// Number of the last checkpoint that freed, or will free, discarded slots or slots that a pass has deduplicated.
    pub(crate) slots_freed_in: u64,
    /// Counters that are not kept elsewhere.
    pub(crate) counters: Counters,
    /// Counts of the writes of all volumes, by their outcome.
    pub(crate) writes: WriteCounts,
    /// Counts of the work that was done for reads.
    pub(crate) reads: ReadCounts,
    pub(crate) reserving: bool,
    /// True if the allocator waits for fresh containers rather than fill holes.
    wants_fresh: bool,
    /// Number of containers to reserve at once.
    pub(crate) reserve_at_once: u32,
    /// True if space for the metadata of a checkpoint could not be reserved: the host is full.
    pub(crate) metadata_full: bool,
    /// Reason of the last refusal of a write of new blocks.
    refused: Option<Full>,
    /// True if reserving failed because the host is full. The next tick clears it.
    pub(crate) host_full: bool,
    growing: Option<Growing>,
    growth_offer: Offer,
    /// Copies of containers in front of the store, if there are any.
    flash: Option<Box<Flash>>,
    /// Nonce of the last flash of this opening; 0: there was none.
    flash_nonce: u16,
    /// Buffers set aside, one for each block that is being read from flash.
    flash_spares: Vec<BufferId>,
    /// True if closing must not wait for a checkpoint.
    pub(crate) closes_early: bool,
    /// Pages of trees whose last read failed: users of such a page do not ask again.
    pub(crate) failed_pages: Vec<crate::metadata::page_cache::PageKey>,
    /// Number of leaves of the discard list as last written.
    pub(crate) discard_leaves: u64,
    /// Number of leaves of the volume table as last written.
    pub(crate) volume_leaves: u64,
    /// True if more pending slots may be reclaimed.
    pub(crate) reclaim_left: bool,
    /// Time at which the last checkpoint ended.
    pub(crate) last_checkpoint: Nanos,
    pub(crate) last_change: Nanos,
    needs_pump: bool,
    pub(crate) evicted: Vec<BufferId>,
    pub(crate) dead: Vec<Slot>,
    pub(crate) scratch: Vec<u8>,
    /// Segments of the record that is being written, empty in between; likewise the slots of a container that is being opened.
    record_segments: Vec<Segment>,
    free_slots: Vec<bool>,
    /// Active mutant, if there is one.
    #[cfg(feature = "mutants")]
    pub(crate) broken: Option<Mutant>,
}

impl Pool {
    /// Creates a pool with empty tables, to be opened.
    pub(crate) fn new(parameters: Parameters, limits: Limits, now: Nanos) -> Pool {
        let geometry = parameters.geometry;
        let metadata = Metadata {
            geometry,
            page_seed: parameters.page_seed(),
            journal_seed: parameters.seed(),
            pages: PageCache::new(limits.pages, geometry.block_size),
            allocator: MetadataAllocator::new(geometry.metadata_blocks, geometry.meta_map_leaf_bits()),
            io: IoTable::new(),
            epoch: 0,
            page_visits: 0,
        };
        let entries = limits.delta_entries as usize;
        let cached = limits.buffers.saturating_sub(limits.write_buffers) as usize;
        Pool {
            limits,
            now,
            phase: Phase::Recovering,
            read_only: false,
            failure: None,
            failure_marker: FailureMarker::Done,
            owner: Ownership::default(),
            superblocks_in_flight: 0,
            superblock_submitted: 0,
            reads_only: false,
            untouched: false,
            superblock: Superblock::new(parameters),
            metadata,
            roots: [Root::default(); TREES],
            volumes: Vec::new(),
            maps: Vec::new(),
            pool_policy: None,
            pool_memory: 0,
            pool_cache: None,
            second_copies: 0,
            copies: None,
            index_copy: IndexCopy::default(),
            dedup_verify: DedupVerify::default(),
            throttle: PassThrottle::default(),
            flash_policy: FlashPolicy::default(),
            relocate: Schedule::default(),
            regions: Regions::new(limits.regions(), geometry.slots_per_container.into()),
            moves: Moves::default(),
            device_kind: DeviceKind::default(),
            device: limits.device,
            replicas: Replicas::default(),
            delta: Delta::with_capacity(entries),
            frozen: Delta::with_capacity(entries),
            counted: None,
            orphaned: Some(0),
            buffer: MapBuffer::new(),
            want_flush: false,
            flush_is_stuck: false,
            free_when_stuck: 0,
            reservation: MetadataReservation::new(&geometry),
            discards: Vec::new(),
            stuck_discards: 0,
            space: Space::new(&geometry),
            index: Index::new(limits.index_size(geometry.block()), geometry.slots(), limits.index_tag_bits),
            disk_index: DiskIndex::default(),
            cache: ReadCache::new(cached, limits.most_cached(geometry.block())),
            buffers: Buffers::new(limits.buffers, limits.write_buffers),
            journal: Journal::new(geometry.journal_blocks, geometry.block_size, 0, 0, 0, 0),
            dirty: NearMap::with_capacity_and_hasher(limits.write_buffers as usize, Near),
            inlined: VecDeque::new(),
            inlined_writes: 0,
            inlined_copies: InlinedCopies::new(),
            in_journal: NearMap::default(),
            fills: NearMap::default(),
            spare_fill_lists: Vec::new(),
            read_streams: Streams::new(),
            write_streams: Streams::new(),
            syncs: Syncs::default(),
            want_durable: 0,
            want_publish: false,
            want_checkpoint: false,
            checkpoints_done: 0,
            changed_references: 0,
            in_progress: None,
            slots_freed_in: 0,
            counters: Counters::default(),
            writes: WriteCounts::default(),
            reads: ReadCounts::default(),
            reserving: false,
            wants_fresh: false,
            reserve_at_once: RESERVE_CONTAINERS,
            metadata_full: false,
            refused: None,
            host_full: false,
            growing: None,
            growth_offer: Offer::default(),
            flash: None,
            flash_nonce: 0,
            flash_spares: Vec::new(),
            closes_early: false,
            failed_pages: Vec::new(),
            discard_leaves: 0,
            volume_leaves: 0,
            reclaim_left: false,
            last_checkpoint: now,
            last_change: now,
            needs_pump: true,
            evicted: Vec::new(),
            dead: Vec::new(),
            scratch: Vec::new(),
            record_segments: Vec::new(),
            free_slots: Vec::new(),
            #[cfg(feature = "mutants")]
            broken: None,
        }
    }
}

impl Pool {
    /// Returns the changes of reference counts that checkpoints have found since the pool was opened.
    pub(crate) fn changed_references(&self) -> u64 {
        self.changed_references
    }

    /// Adds to the changes of reference counts.
    pub(crate) fn note_changed_references(&mut self, changes: u64) {
        self.changed_references += changes;
    }
}

#[cfg(feature = "mutants")]
impl Pool {
    /// Returns true if this mutant is active.
    pub(crate) fn mutant(&self, mutant: Mutant) -> bool {
        self.broken == Some(mutant)
    }
}

#[cfg(not(feature = "mutants"))]
impl Pool {
    /// Returns false: without the feature, no mutant is active.
    #[inline(always)]
    pub(crate) fn mutant(&self, _mutant: Mutant) -> bool {
        false
    }
}

impl Pool {
    /// Returns the current geometry: the places of all structures on the store.
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.metadata.geometry
    }
}
