//! Status figures of the pool.

use crate::counters::{Counters, ReadCounts, WriteCounts};

use crate::api::{DeviceKind, Failure, Full};
use crate::device::DeviceTraits;
use crate::engine::Engine;
use crate::format::volume::Volume;
use crate::jobs::census::Shared;
use crate::jobs::dedup::DedupStatus;
use crate::jobs::defrag::DefragStatus;
use crate::jobs::discard::DiscardStatus;
use crate::jobs::gc::GcStatus;
use crate::jobs::relocate::RelocateStatus;
use crate::jobs::replicate::ReplicateStatus;
use crate::jobs::scrub::ScrubStatus;
use crate::pool::disk_index::NO_VOLUME;
use crate::pool::flash::FlashStatus;
use crate::pool::state::Phase;
use crate::pool::volumes::held::{Held, InheritedCounts};
use crate::requests::foreground::{ThrottleStatus, TimingStatus};

/// Mode in which requests are served, or the state in which they are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Being opened.
    Recovering,
    /// Reads and writes.
    Normal,
    /// Reads only: opened so, or after a failure.
    ReadOnly,
}

/// Figures of the pool, in blocks unless said otherwise. Counts of blocks, but for `held`, are as of the last merge: exact when
/// `unmerged_entries`, `buffered_entries` and `pending_blocks` are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Bytes of data that fit.
    pub capacity_bytes: u64,
    /// Mapped, non-zero blocks of all volumes.
    pub logical_blocks_used: u64,
    /// Slots that hold these blocks.
    pub data_blocks_used: u64,
    /// Blocks held now, also those that are not merged yet.
    pub held: Held,
    /// Mapped blocks beyond the first of each slot: the entries of POD's table of redirected blocks.
    pub redirected_blocks: u64,
    /// Redirected blocks that are second copies.
    pub second_copies: u64,
    /// Replicas of blocks that reads found scattered.
    pub replicate: ReplicateStatus,
    /// Kind of the disk under the store, as it was set.
    pub device_set: DeviceKind,
    /// Traits that the engine takes the disk to have.
    pub device: DeviceTraits,
    /// Defragmentation.
    pub defrag: DefragStatus,
    /// Containers that are emptied.
    pub gc: GcStatus,
    /// Space that goes back to the host.
    pub discard: DiscardStatus,
    /// Blocks of metadata in use: superblocks, journal, metadata pages.
    pub overhead_blocks_used: u64,
    /// Blocks of metadata for maps, summaries and tables, in use or not.
    pub metadata_blocks: u64,
    /// Blocks of metadata for these that are in use.
    pub metadata_blocks_used: u64,
    /// Shortage of metadata: less than an eighth of it is left for new blocks.
    pub metadata_short: bool,
    /// The part that is full, if writes of new blocks are refused now.
    pub refuses_new: Option<Full>,
    /// Blocks freed but not yet reusable.
    pub pending_blocks: u64,
    /// The most blocks in discarded ranges and deleted volumes that are still to be looked at in the background.
    pub discarded_blocks: u64,
    /// The index is being filled, in parts of a million; until it is, some known blocks are written again. `None`: it is filled.
    pub index_filled_ppm: Option<u32>,
    /// Mappings not yet merged.
    pub unmerged_entries: u64,
    /// Mappings in the map buffer: merged, and not yet in their leaves. The former slots of their blocks are counted as well, until they are.
    pub buffered_entries: u64,
    /// Bytes of memory in use by the engine's tables and the buffers.
    pub memory_bytes: u64,
    /// Checkpoints finished since the pool was opened.
    pub checkpoints: u64,
    /// True if a checkpoint is in progress; it may be paused.
    pub checkpoint_in_progress: bool,
    /// Damaged blocks, pages and superblock copies found since the pool was opened, by reads and by the scrub.
    pub damaged_blocks_found: u64,
    /// Damaged blocks, pages and superblock copies of these that have been repaired.
    pub repaired_blocks: u64,
    /// Damaged places that remain: those left by the last finished scrub, and those found and not repaired since.
    pub damages_left: u64,
    /// The scrub that is in progress, or the last one.
    pub scrub: ScrubStatus,
    /// The pass that finds all duplicates, in progress or the last one.
    pub dedup: DedupStatus,
    /// The relocation job, in progress or the last one.
    pub relocate: RelocateStatus,
    /// The flash in front of the store, if there is one.
    pub flash: Option<FlashStatus>,
    /// Performance that clients get, and the share that background work may have beside them.
    pub throttle: ThrottleStatus,
    /// Mode of the pool.
    pub mode: Mode,
    /// Reason why the pool has failed, now or before it was opened.
    pub failure: Option<Failure>,
}

impl Engine {
    /// Returns the counts of the writes of all volumes, also of those that are gone.
    pub fn write_counts(&self) -> WriteCounts {
        self.pool.stats.writes
    }

    /// Returns the present mode in which a volume's duplicates are found, and the measurements for it.
    pub fn timing_of(&self, volume: &Volume) -> TimingStatus {
        self.requests.foreground().timing(&self.pool, volume)
    }

    /// Returns the number of mapped, non-zero blocks of a volume now. Blocks overwritten since the last merge count twice, up to its size.
    pub fn held_by(&self, volume: &Volume) -> u64 {
        self.pool.held_by(volume)
    }

    /// Returns the number of mapped, non-zero blocks that a volume or snapshot reads as: its own and inherited ones. Blocks overwritten since the last merge count
    /// twice, up to its size. `known` belongs to one answer: it saves steps after other maps of the family.
    pub fn referred_by(&self, volume: &Volume, known: &mut InheritedCounts) -> u64 {
        self.pool.referred_by(volume, known)
    }

    /// Returns true if [`Engine::referred_by`] may be too high: a page was unreadable when its blocks were to be counted as hidden, in this map or an ancestor.
    pub fn is_referred_too_high(&self, volume: &Volume) -> bool {
        let volumes = self.pool.durable.volumes();
        let ancestors = volumes.lineage().ancestors(volume.id).filter_map(|ancestor| volumes.find(ancestor.map));
        volume.family.hidden.is_low || ancestors.into_iter().any(|at| volumes[at].family.hidden.is_low)
    }

    /// Returns the share of a volume's mapped blocks that lies in shared slots, as of the last census. Returns `None` until it is counted, and while
    /// more than half of its blocks are newer than that.
    pub fn shared_of(&self, volume: &Volume) -> Option<Shared> {
        let (shared, blocks) = self.jobs.census().of(volume.id)?;
        let is_counted = !self.pool.durable.volumes().is_uncounted(volume.id);
        (is_counted && self.pool.held_by(volume) <= 2 * blocks).then_some(shared)
    }

    /// Returns true if a census is in progress, or will begin without another change.
    pub fn census_is_due(&self) -> bool {
        self.jobs.census().is_due()
    }

    /// Returns the counts of reads since the pool was opened.
    pub fn read_counts(&self) -> ReadCounts {
        self.pool.stats.reads
    }

    /// Returns the counters of the engine's work since it was made.
    pub fn counters(&self) -> Counters {
        Counters {
            page_visits: self.pool.metadata.page_visits(),
            checkpoints: self.pool.checkpoint.done(),
            ..self.pool.stats.counters
        }
    }

    /// Returns the figures of the pool.
    pub fn status(&self) -> Status {
        let geometry = self.pool.geometry();
        let mapped = self.pool.durable.volumes().mapped();
        let (logical_blocks_used, hidden) = (mapped.live + mapped.snapshots + mapped.deleted, mapped.hidden());
        let originals = self.pool.durable.space().data_used().saturating_sub(hidden);
        let fixed = 4 + u64::from(geometry.journal_blocks) + 2 * geometry.meta_map_pages();
        Status {
            capacity_bytes: geometry.capacity_bytes(),
            logical_blocks_used,
            data_blocks_used: self.pool.durable.space().data_used(),
            held: self.pool.held(),
            redirected_blocks: logical_blocks_used.saturating_sub(originals),
            second_copies: self.pool.second_copies_used(),
            replicate: self.jobs.replicate.status(&self.pool),
            device_set: self.pool.properties.device(),
            device: *self.pool.device(),
            defrag: self.jobs.defrag_status(&self.pool),
            gc: self.jobs.gc_status(&self.pool),
            discard: self.jobs.discard_status(&self.pool),
            overhead_blocks_used: fixed + u64::from(self.pool.metadata.allocator().used()),
            metadata_blocks: u64::from(geometry.metadata_blocks),
            metadata_blocks_used: u64::from(self.pool.metadata.allocator().used()),
            metadata_short: self.is_metadata_short(),
            refuses_new: self.full(),
            pending_blocks: self.pool.durable.space().pending().len() as u64,
            discarded_blocks: self.discarded_blocks(),
            index_filled_ppm: self.jobs.rebuild().done_ppm(),
            unmerged_entries: (self.pool.durable.delta().len() + self.pool.durable.frozen().len()) as u64,
            buffered_entries: self.pool.durable.map_buffer().len() as u64,
            memory_bytes: self.memory(),
            checkpoints: self.pool.checkpoint.done(),
            checkpoint_in_progress: self.jobs.checkpoint.is_some(),
            damaged_blocks_found: self.repairs.damages().found(),
            repaired_blocks: self.repairs.damages().repaired(),
            damages_left: self.repairs.damages().left(),
            scrub: self.jobs.scrub.status(&self.pool),
            dedup: self.jobs.dedup().status(&self.pool),
            relocate: self.jobs.relocate().status(&self.pool),
            flash: self.pool.flash_status(),
            throttle: self.requests.foreground().throttle(
                self.jobs.share(),
                self.jobs.pass_delay(self.pool.properties.throttle()),
                self.requests.active(),
            ),
            mode: self.mode(),
            failure: self.pool.state.failure(),
        }
    }

    /// Returns the mode of the pool: whether it serves, and whether it takes writes.
    pub fn mode(&self) -> Mode {
        match self.pool.state.phase() {
            Phase::Recovering | Phase::Dead => Mode::Recovering,
            _ if self.pool.state.read_only() || self.pool.state.reads_only() => Mode::ReadOnly,
            _ => Mode::Normal,
        }
    }

    /// Returns the part that is full, if writes of new blocks are refused now.
    pub fn full(&self) -> Option<Full> {
        self.pool.full(self.time_slices.has_clears())
    }

    /// Returns the most blocks that the subtrees which discards cut off can map.
    fn discarded_blocks(&self) -> u64 {
        let geometry = self.pool.geometry();
        let mut most = 0u64;
        for discard in self.pool.durable.discards().iter().filter(|discard| discard.volume != NO_VOLUME) {
            let leaves = geometry.fanout().saturating_pow(u32::from(discard.level));
            let span = leaves.saturating_mul(geometry.map_leaf_entries());
            let volume = self.pool.durable.volumes().find(discard.volume);
            let blocks = volume.map_or(u64::MAX, |at| self.pool.durable.volumes()[at].size / geometry.block());
            most = most.saturating_add(span.min(blocks));
        }
        most
    }
}
