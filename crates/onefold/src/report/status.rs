//! Figures of `status` and `volume list`: one set for both. (`text` has them for people.)

use std::collections::BTreeMap;

use engine::{
    Counters, Damage, Damaged, DefragSetting, DefragStatus, DiscardStatus, Engine, Failure, Full, GcStatus,
    InheritedCounts, Mode, PagesWritten, ReplicateStatus, ScrubStatus, Volume, VolumeId,
};
use serde::{Deserialize, Serialize};

use crate::frontend::nbd::latency::Latencies;
use crate::frontend::nbd::tls;
use crate::memory::{MemoryPartition, Source};
use crate::report::caches::CacheReport;
use crate::report::dedup::DedupReport;
use crate::report::define::report;
use crate::report::device::DeviceReport;
use crate::report::disk_index::DiskIndexReport;
use crate::report::flash::FlashReport;
use crate::report::latency::LatencyReport;
use crate::report::properties::{self, PropertyReport};
use crate::report::relocate::RelocateReport;
use crate::report::share::{ppm_percent, saved_percent, whole_percent};
use crate::report::snapshots::SnapshotsReport;
use crate::report::throttle::{ThrottleReport, TimingReport};
use crate::report::writes::{IndexPrefetchReport, ReadsReport, WritesReport};
use crate::size;

/// Version of the JSON that `status` and `volume list` print.
pub const VERSION: u32 = 1;

/// Returns the error of a command that names a volume which does not exist.
pub fn no_volume(name: &str) -> String {
    format!("there is no volume '{name}': 'onefold volume list' shows them all")
}

/// Error of a command that comes while the pool is being opened.
pub const BEING_OPENED: &str = "the pool is still being opened: try again in a moment";

/// Remark on a pool that was not closed cleanly and that no server has.
pub const NOT_RECOVERED: &str = "this is what recovery will find, and nothing was written. The next 'onefold serve' recovers it, or \
                                 'onefold status --recover'";

report! {
    /// A pool's figures now: those of the engine, the limit of memory with its origin, and some volumes or all. `*_blocks*` are blocks of
    /// 4096 bytes.
    #[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
    pub struct Report from (engine: &Engine, memory: (u64, Source), volumes: Vec<VolumeReport>) where {
        let status = engine.status();
        let held = status.held;
    } {
        /// Version of this format.
        version: u32 = VERSION,
        /// Bytes of data that fit.
        capacity_bytes: u64 = status.capacity_bytes,
        /// Mapped, non-zero blocks of all volumes and snapshots now; inherited ones count once. A block overwritten since the last merge counts twice until
        /// it is merged.
        logical_blocks_used: u64 = held.mapped,
        /// Blocks that deleted volumes mapped, and whose slots are still to be freed.
        #[serde(default)]
        leaving_blocks: u64 = held.leaving,
        /// Slots in use now, those still to be freed among them.
        data_blocks_used: u64 = held.data,
        /// Mapped blocks beyond the first of each slot. In POD's table each of them takes 16 bytes.
        #[serde(default)]
        redirected_blocks: u64 = held.redirected(),
        /// Part of the logical data that snapshots hold.
        #[serde(default)]
        snapshots: SnapshotsReport = SnapshotsReport::new(engine),
        /// Blocks of the pool's own tables.
        overhead_blocks_used: u64 = status.overhead_blocks_used,
        /// Data in percent of the capacity: from 80 on the pool is nearly full.
        data_percent: u64 = whole_percent(held.data, status.capacity_bytes / 4096),
        /// Metadata in use in percent of all metadata.
        metadata_percent: u64 = whole_percent(status.metadata_blocks_used, status.metadata_blocks),
        /// Bytes for metadata: maps, summaries and tables.
        #[serde(default)]
        metadata_bytes: u64 = status.metadata_blocks.saturating_mul(4096),
        /// Part that is full, if writes of new blocks are refused now: `data` or `metadata`; else empty.
        #[serde(default)]
        refuses_new: String = status.refuses_new.map_or("", full_name).into(),
        /// Blocks freed and not yet usable.
        pending_blocks: u64 = status.pending_blocks,
        /// Blocks in discarded ranges and deleted volumes that are still to be freed in the background, at most.
        discarded_blocks: u64 = status.discarded_blocks,
        /// Part of the pool's content that the index was told since the pool was opened, in percent: until 100 some known blocks are written again.
        #[serde(default = "whole")]
        index_filled_percent: u64 = status.index_filled_ppm.map_or(100, |ppm| u64::from(ppm / 10_000)),
        /// Mappings that are not counted exactly yet.
        unmerged_entries: u64 = status.unmerged_entries,
        /// Mappings that are durable and not in their leaves yet: what their blocks held before is still counted.
        #[serde(default)]
        buffered_entries: u64 = status.buffered_entries,
        /// Blocks of metadata that were written.
        #[serde(default)]
        metadata: MetadataReport = MetadataReport::new(&engine.counters(), engine.write_counts().written_blocks),
        /// Part of the mapped blocks that needs no slot of its own, in percent, from 0 to 100. Blocks of deleted volumes whose slots are still to be
        /// freed count as mapped.
        saving_percent: f64 = saved_percent(held.mapped + held.leaving, held.data.saturating_sub(held.copies)),
        /// True if more may be saved than that: after a restart the blocks that deleted volumes mapped are not known until their slots are freed.
        #[serde(default)]
        saving_is_at_least: bool = !held.is_leaving_known,
        /// Memory in use.
        memory_bytes: u64 = status.memory_bytes,
        /// Memory that may be used.
        memory_cap_bytes: u64 = memory.0,
        /// Number of references beyond which a block gets a second copy when the pool is scrubbed; 0: none does.
        #[serde(default)]
        second_copies_above: u32 = engine.properties().second_copies(),
        /// Blocks of the data that are second copies.
        #[serde(default)]
        second_copies: u64 = status.second_copies,
        /// Copy that the index names of a block that is written again: `sequential`, `oldest` or `newest`.
        #[serde(default)]
        index_copy: String = engine.properties().index_copy().to_string(),
        /// Replicas of blocks that reads found scattered.
        #[serde(default)]
        replicas: ReplicasReport = ReplicasReport::new(&status.replicate, engine, memory.0),
        /// Regions that are put in order again, and garbage collection.
        #[serde(default)]
        defrag: DefragReport = DefragReport::new(&status.defrag, &status.gc),
        /// Space that the host holds for the pool, and that goes back to it.
        #[serde(default)]
        discard: DiscardReport = DiscardReport::new(&status.discard),
        /// Kind of the disk under the pool.
        #[serde(default)]
        device: DeviceReport = DeviceReport::new(&status.device, status.device_set),
        /// Origin of the memory limit: `default`, `pool` or `command line`.
        memory_source: String = memory.1.name().into(),
        /// True while memory in use beyond the limit is still to be given back.
        memory_resizing: bool = engine.is_resizing(),
        /// Partition of memory between index and read cache.
        #[serde(default)]
        cache: CacheReport = CacheReport::new(engine),
        /// Mode of the pool: `normal`, `recovering` or `read-only`.
        mode: String = mode_name(status.mode).into(),
        /// True if the pool was not closed cleanly and no server has it: these are the figures that recovery will find, and recovery is still to be done.
        #[serde(default)]
        needs_recovery: bool = false,
        /// Reason why the pool has failed, if it has: it is read-only until it is repaired.
        #[serde(default)]
        failure: Option<String> = status.failure.map(|failure| failure_text(failure).into()),
        /// Advice for a pool that has failed; `POOL` stands for its path.
        #[serde(default)]
        remedy: Option<String> = status.failure.map(|failure| remedy(failure).into()),
        /// True if the file system under the pool is full: writes fail, or wait, until there is space.
        #[serde(default)]
        host_full: bool = false,
        /// Damaged blocks, pages and superblock copies found since the pool was opened, by reads and by the scrub.
        damaged_blocks_found: u64 = status.damaged_blocks_found,
        /// Number of those damages that have been repaired.
        repaired_blocks: u64 = status.repaired_blocks,
        /// Number of places that are still damaged: damages that the last finished scrub left, and unrepaired ones found since.
        #[serde(default)]
        damages_left: u64 = status.damages_left,
        /// The scrub that is in progress, or the last one.
        scrub: ScrubReport = ScrubReport::new(&status.scrub),
        /// The pass that finds all duplicates, in progress or the last one.
        #[serde(default)]
        dedup: DedupReport = DedupReport::new(&status.dedup, engine.properties().dedup_verify()),
        /// The run of a plan, in progress or the last one.
        #[serde(default)]
        relocate: RelocateReport = RelocateReport::new(&status.relocate, engine.properties().relocate()),
        /// Latency of clients beside the pass that finds duplicates.
        #[serde(default)]
        throttle: ThrottleReport = ThrottleReport::new(&status.throttle, engine.properties().throttle()),
        /// The damages found last, at most 64.
        damages: Vec<DamageReport> = engine.damages().map(|damage| DamageReport::new(engine, damage)).collect(),
        /// The pool's policy, if it is set.
        pool_policy: Option<String> = engine.properties().policy().map(|policy| policy.to_string()),
        /// Properties of the pool that have no other field, by their names.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        properties: BTreeMap<String, PropertyReport> = properties::others(engine.properties()),
        /// Counts of writes to all volumes.
        #[serde(default)]
        writes: WritesReport = WritesReport::new(engine.write_counts()),
        /// Counts of reads since the pool was opened.
        #[serde(default)]
        reads: ReadsReport = ReadsReport::new(engine.read_counts()),
        /// Times of clients' requests.
        #[serde(default)]
        latency: LatencyReport = LatencyReport::new(&Latencies::default()),
        /// Counts of digests that were put into the index ahead of need.
        #[serde(default)]
        index_prefetch: IndexPrefetchReport = IndexPrefetchReport::new(engine.index_prefetch_counts()),
        /// The complete index on disk.
        #[serde(default)]
        disk_index: DiskIndexReport = DiskIndexReport::new(engine.disk_index_status()),
        /// The flash in front of the store.
        #[serde(default)]
        flash: FlashReport = FlashReport { policy: engine.properties().flash_policy().to_string(), ..FlashReport::default() },
        /// Addresses where clients connect, as `--listen` takes them; empty if the pool is not served.
        #[serde(default)]
        addresses: Vec<String> = Vec::new(),
        /// TLS for clients over TCP: off, on or require.
        #[serde(default)]
        tls: String = tls::Mode::Off.to_string(),
        /// True if the server ends with the command that has started it.
        #[serde(default)]
        ephemeral: bool = false,
        /// Time at which the server opened the pool, in seconds since 1970: counters are since then.
        #[serde(default)]
        opened: Option<u64> = None,
        /// The volumes.
        volumes: Vec<VolumeReport> = volumes,
    }
}

report! {
    /// Blocks of metadata that checkpoints have written since the pool was opened: docs/reference/metrics.md.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
    pub struct MetadataReport from (counters: &Counters, written: u64) where {
        let pages = counters.pages_written;
    } {
        /// Checkpoints that have ended.
        #[serde(default)]
        checkpoints: u64,
        /// Blocks of all tables, and superblocks.
        blocks_written: u64 = pages.sum(),
        /// Blocks of metadata for each block of data written.
        per_written_block: f64 = pages.sum() as f64 / written.max(1) as f64,
        /// Blocks of metadata by the table that they belong to.
        tables: TablesReport = TablesReport::new(pages),
    }
}

report! {
    /// Blocks of metadata by the table that they belong to.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct TablesReport of PagesWritten {
        /// Maps of volumes.
        maps: u64,
        /// The space map.
        space_map: u64,
        /// The reference counts.
        counts: u64,
        /// The summaries.
        summaries: u64,
        /// The log of the map buffer.
        map_buffer: u64,
        /// The index on disk.
        disk_index: u64,
        /// All other tables, and superblocks.
        others: u64,
    }
    named u64
}

report! {
    /// A scrub.
    #[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
    pub struct ScrubReport from (status: &ScrubStatus) {
        /// State of the scrub: `never`, `running`, `paused`, `finished` or `stopped`.
        state: String = status.state.name().into(),
        /// Time at which it began, in seconds since 1970.
        started: Option<u64> = (status.started > 0).then_some(status.started),
        /// Time at which it was finished or stopped, in seconds since 1970.
        finished: Option<u64> = (status.finished > 0).then_some(status.finished),
        /// Blocks of data and metadata that it has read.
        blocks_done: u64,
        /// Blocks that there are to read.
        blocks_total: u64,
        /// Damages that it has found.
        damages_found: u64 = status.found,
        /// Damages that it has found and repaired.
        damages_repaired: u64 = status.repaired,
        /// Damages that it has found and not repaired.
        damages_left: u64 = status.found.saturating_sub(status.repaired),
    }
}

/// A damage.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct DamageReport {
    /// Number of the damage, counted since the pool was opened.
    pub number: u64,
    /// Damaged object: a block of data, a page of a table, or a copy of the superblock.
    pub what: String,
    /// Byte offset on the store.
    pub offset: u64,
    /// The volume that it belongs to, or one of them.
    pub volume: Option<String>,
    /// Its block of 4096 bytes there, or the first of them.
    pub block: Option<u64>,
    /// True if it has been repaired.
    pub repaired: bool,
}

impl DamageReport {
    /// Describes a damage, with the name of its volume if that still exists.
    pub fn new(engine: &Engine, damage: &Damage) -> DamageReport {
        let volume = |id: VolumeId| engine.volume(id).map(|volume| engine.full_name(volume));
        DamageReport {
            number: damage.number,
            what: match damage.what {
                Damaged::Block => "a block of data".into(),
                Damaged::Page(table) => format!("a page of {table}"),
                Damaged::Superblock => "a copy of the superblock".into(),
            },
            offset: damage.offset,
            volume: damage.owner.and_then(|(id, _)| volume(id)),
            block: damage.owner.map(|(_, block)| block),
            repaired: damage.repaired,
        }
    }

    /// Describes the damage in one line: the damaged structure, its byte on the store, its volume and block if known, and the result of the repair.
    pub fn text(&self) -> String {
        let owner = match (&self.volume, self.block) {
            (Some(volume), Some(block)) => format!(" (volume '{volume}', block {block})"),
            _ => String::new(),
        };
        let end = if self.repaired { "repaired" } else { "NOT repaired: no other copy is known" };
        format!("damaged: {} at byte {} of the store{owner}: {end}", self.what, self.offset)
    }
}

impl ScrubReport {
    /// Describes the scrub in one line: its state, the bytes read, and the damages.
    pub fn text(&self) -> String {
        let when = self.finished.map_or(String::new(), |seconds| format!(" {}", show_date(seconds)));
        let bytes = |blocks: u64| size::show(blocks.saturating_mul(4096));
        let (done, total) = (bytes(self.blocks_done), bytes(self.blocks_total));
        let found = match (self.damages_found, self.damages_left) {
            (0, _) => "no damage".into(),
            (found, left) => format!("{found} damages found, {} repaired, {left} left", self.damages_repaired),
        };
        match self.state.as_str() {
            "never" => "never".into(),
            "finished" => format!("finished{when}: {done} read, {found}"),
            "stopped" => format!("stopped{when}: {done} of {total} read, {found}"),
            state => {
                let percent = whole_percent(self.blocks_done, self.blocks_total);
                format!("{state}: {done} of {total} read ({percent} %), {found}")
            }
        }
    }
}

/// Formats a moment, given in seconds since 1970, as date and time in UTC, to the minute.
pub fn show_date(seconds: u64) -> String {
    // Days are counted from 1 March of year 0, so that leap days come last (H. Hinnant, chrono-compatible date algorithms).
    let (days, minutes) = (seconds / 86_400 + 719_468, seconds / 60 % 1440);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

report! {
    /// A volume's figures.
    #[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
    pub struct VolumeReport from (volume: &Volume, engine: &Engine, clients: usize, known: &mut InheritedCounts) where {
        let timing = engine.timing_of(volume);
        let shared = engine.shared_of(volume);
    } {
        /// Its name, which is also the name of its export; of a snapshot `VOLUME@NAME`.
        name: String = engine.full_name(volume),
        /// Its size as clients see it.
        size_bytes: u64 = volume.size,
        /// Policy in force, as it is written on the command line.
        policy: String = engine.policy_of(volume).to_string(),
        /// Origin of the policy: `default`, `pool` or `volume`.
        policy_source: String = match (volume.properties.policy(), engine.properties().policy()) {
            (Some(_), _) => "volume".into(),
            (None, Some(_)) => "pool".into(),
            (None, None) => "default".into(),
        },
        /// True if writes are refused.
        read_only: bool = volume.is_read_only(),
        /// Snapshot that it was cloned from, `VOLUME@NAME`; none if it is no clone, or the snapshot was deleted.
        #[serde(default)]
        origin: Option<String> = engine.origin_of(volume).map(|origin| engine.full_name(origin)),
        /// Number of its snapshots.
        #[serde(default)]
        snapshots: usize = engine.snapshots_of(volume.id).count(),
        /// Last failure of its automatic snapshots, until they succeed again.
        #[serde(default)]
        snapshots_failure: Option<String> = None,
        /// Mapped, non-zero blocks of its snapshots, without inherited ones.
        #[serde(default)]
        snapshot_blocks: u64 = engine.held_by_snapshots_of(volume.id).blocks,
        /// Number of volumes that were cloned from its snapshots; of a snapshot, from itself.
        #[serde(default)]
        clones: usize = match volume.is_snapshot() {
            true => engine.clone_count(volume),
            false => engine.snapshots_of(volume.id).map(|snapshot| engine.clone_count(snapshot)).sum(),
        },
        /// Set if it is a snapshot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snapshot: Option<SnapshotReport> = SnapshotReport::new(volume, engine),
        /// True if only one client at a time may use it.
        #[serde(default)]
        exclusive: bool = volume.properties.exclusive(),
        /// Timing of deduplication: `inline`, `offline` or `hybrid`.
        #[serde(default)]
        timing: String = timing.timing.to_string(),
        /// Origin of the timing: `default` or `volume`.
        #[serde(default)]
        timing_source: String = if volume.properties.timing().is_some() { "volume".into() } else { "default".into() },
        /// Performance goal for its clients, as it is written on the command line.
        #[serde(default)]
        goal: String = volume.properties.goal().to_string(),
        /// Setting whether a pass leaves its duplicates if a run would be split: `on`, `off` or `auto`.
        #[serde(default)]
        keep_runs: String = volume.properties.keep_runs().to_string(),
        /// Controller that chooses the mode if the timing is hybrid: `forecast` or `paper`.
        #[serde(default)]
        controller: String = volume.properties.controller().to_string(),
        /// Properties that have no other field, by their names.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        properties: BTreeMap<String, PropertyReport> = properties::others_of_volume(&volume.properties),
        /// Performance that its clients get, and the mode that follows from it.
        #[serde(default)]
        timing_state: TimingReport = TimingReport::new(timing, volume.properties.goal()),
        /// Clients connected to it.
        clients: usize = clients,
        /// Mapped, non-zero blocks of the volume, without those that it inherits from a snapshot.
        logical_blocks_used: u64 = engine.held_by(volume),
        /// Mapped, non-zero blocks that it reads as: its own, and those that it inherits from a snapshot. None if an older version has the pool.
        #[serde(default)]
        referred_blocks: Option<u64> = Some(engine.referred_by(volume, known)),
        /// True if `referred_blocks` may be too high: a damaged page could not be counted.
        #[serde(default)]
        referred_is_most: bool = engine.is_referred_too_high(volume),
        /// Part of its own blocks whose slots other blocks have, too, in percent, as of the last census; none until it is counted.
        #[serde(default)]
        shared_percent: Option<f64> = shared.map(|shared| ppm_percent(shared.ppm)),
        /// Standard error of `shared_percent` in percentage points; 0: all blocks were examined.
        #[serde(default)]
        shared_error_percent: Option<f64> = shared.map(|shared| ppm_percent(shared.error_ppm)),
        /// Counts of its writes.
        #[serde(default)]
        writes: WritesReport = WritesReport::new(volume.writes.counts()),
    }
}

/// A snapshot's figures, beside those that volumes have, too.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct SnapshotReport {
    /// Volume that it is a snapshot of.
    pub volume: String,
    /// Its name, the part behind `@`.
    pub name: String,
    /// Time of its creation, in seconds since 1970.
    pub created: u64,
    /// Order of its creation among those of its volume.
    #[serde(default)]
    pub born: u64,
    /// Number of volumes that were cloned from it.
    pub clones: usize,
    /// True if it is held: nothing deletes it.
    #[serde(default)]
    pub held: bool,
}

impl SnapshotReport {
    /// Collects the figures; `None` if the volume is no snapshot.
    fn new(snapshot: &Volume, engine: &Engine) -> Option<SnapshotReport> {
        let family = snapshot.family.snapshot?;
        Some(SnapshotReport {
            volume: engine.volume(family.of)?.name.clone(),
            name: snapshot.name.clone(),
            created: family.created,
            born: family.born,
            clones: engine.clone_count(snapshot),
            held: family.held,
        })
    }
}

report! {
    /// Replicas of blocks that reads found scattered. The space for them is that of a server with `memory` bytes, independent of this command's memory.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct ReplicasReport from (status: &ReplicateStatus, engine: &Engine, memory: u64) where {
        let served = MemoryPartition::new(memory, engine.geometry(), u32::MAX);
        let known = (status.budget_bytes, status.most_copied);
        let space = served.map_or(known, |partition| engine.replicas_space(&partition.limits));
    } {
        /// Bytes that replicas may take, as far as there is memory for the table of that many.
        budget_bytes: u64 = space.0,
        /// Budget that was set, in bytes, if any was.
        set_bytes: Option<u64> = engine.properties().replicas(),
        /// Blocks of the data that are replicas.
        blocks: u64 = status.replicas,
        /// Reads that are noted, to be put in order when the pool is idle.
        noted_reads: u64 = status.noted,
        /// Runs of blocks whose reads are counted, to find popular ones.
        #[serde(default)]
        popular_runs: u64 = status.popular,
        /// Popular blocks that get ten copies, at most: as many as budget and memory have space for.
        #[serde(default)]
        popular_blocks_most: u64 = space.1,
        /// Popular blocks that have copies, or are to have them.
        #[serde(default)]
        popular_blocks: u64 = status.copied,
        /// Popular blocks that have all ten copies.
        #[serde(default)]
        popular_blocks_copied: u64 = status.fully_copied,
        /// Blocks that replicas were made of since the pool was opened.
        made_blocks: u64 = status.made,
        /// Replicas dropped since the pool was opened.
        dropped_blocks: u64 = status.dropped,
        /// Blocks that reads got from replicas since the pool was opened.
        read_blocks: u64 = status.read,
        /// Reads served from another place than the slot because blocks follow each other there, on an HDD.
        #[serde(default)]
        reads_in_order: u64 = status.places.in_order,
        /// Reads served from another place because a read in flight was beside it, on an HDD.
        #[serde(default)]
        reads_beside: u64 = status.places.beside,
        /// Reads served from another place because it was nearer to the heads, on an HDD.
        #[serde(default)]
        reads_nearer: u64 = status.places.nearer,
        /// Blocks that were read from other slots with the same content, which the index named.
        #[serde(default)]
        hinted_blocks: u64 = status.places.hinted,
        /// Blocks that were read from copies in scratch zones.
        #[serde(default)]
        copied_blocks: u64 = status.places.copies,
        /// Blocks whose content at such a place was wrong, and that were read from their own slots.
        #[serde(default)]
        wrong_blocks: u64 = status.places.wrong,
    }
}

report! {
    /// Space that the host holds for the pool, and that goes back to it.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct DiscardReport from (status: &DiscardStatus) {
        /// Bytes that the file system holds for the pool's file; none for a device.
        held_bytes: Option<u64> = None,
        /// True if the store refused a discard: none is made until the pool is opened again.
        has_failed: bool,
        /// Discards since the pool was opened.
        discards: u64,
        /// Bytes discarded since the pool was opened.
        discarded_bytes: u64,
        /// Bytes of empty containers that are reserved on the host again before they are written: discarded, or not written since the pool was opened.
        unreserved_bytes: u64,
        /// True if a discard is in flight, or if containers are to be looked at for one.
        is_due: bool,
    }
}

impl DiscardReport {
    /// Describes it in a line: `is_on` by the property.
    pub fn text(&self, is_on: bool) -> Option<String> {
        let given_back = match (self.discarded_bytes, self.has_failed, is_on) {
            (0, true, _) => "the device or file system takes no discards".into(),
            (bytes, true, _) => format!("{} given back; then a discard failed", size::show(bytes)),
            (0, false, false) => "discards are off".into(),
            (bytes, false, _) => format!("{} given back since the pool was opened", size::show(bytes)),
        };
        let held = self.held_bytes.map(|bytes| format!("{:<12}", size::show(bytes)));
        match held {
            Some(held) => Some(format!("{held}in the pool's file; {given_back}")),
            None => self.is_notable().then_some(given_back),
        }
    }

    /// Returns true if something was given back, or refused.
    pub fn is_notable(&self) -> bool {
        self.discarded_bytes > 0 || self.has_failed
    }
}

report! {
    /// Regions that readers found scattered, and the blocks moved for defragmentation and garbage collection.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct DefragReport from (status: &DefragStatus, gc: &GcStatus) {
        /// Bytes that may be moved in a day: 0 if nothing is moved, none if the limit follows the written bytes.
        bytes_per_day: Option<u64> = match status.defrag {
            DefragSetting::Auto => None,
            DefragSetting::Off => Some(0),
            DefragSetting::PerDay(bytes) => Some(bytes),
        },
        /// Scattered regions that have not been examined, plus one while blocks are being moved.
        noted_regions: u64,
        /// Regions that were put in order since the pool was opened.
        regions: u64,
        /// Regions that were given up since the pool was opened: there was no place for them, or they could not be read.
        given_up_regions: u64,
        /// Blocks that defragmentation has moved since the pool was opened.
        moved_blocks: u64,
        /// Blocks that may be moved now.
        allowance_blocks: u64,
        /// Scattered regions that wait until containers have been emptied.
        #[serde(default)]
        waiting_regions: u64,
        /// Containers of which every slot is free.
        #[serde(default)]
        empty_containers: u64 = gc.empty_containers,
        /// Containers that garbage collection has emptied since the pool was opened.
        #[serde(default)]
        emptied_containers: u64 = gc.emptied_containers,
        /// Blocks that were moved to empty containers since the pool was opened.
        #[serde(default)]
        emptied_blocks: u64 = gc.moved_blocks,
    }
}

impl Report {
    /// Fails while the pool is being opened: a server's figures before that do not describe the pool's content.
    pub fn require_opened(&self) -> anyhow::Result<()> {
        let is_being_opened = self.mode == mode_name(Mode::Recovering) && !self.needs_recovery;
        anyhow::ensure!(!is_being_opened, BEING_OPENED);
        Ok(())
    }
}

/// Returns 100, for reports of versions that do not have the figure.
fn whole() -> u64 {
    100
}

fn full_name(full: Full) -> &'static str {
    match full {
        Full::Data => "data",
        Full::Metadata => "metadata",
    }
}

/// Returns the resource that is full and the remedy, by its name in a report; none for other names.
pub fn full_text(name: &str) -> Option<&'static str> {
    match name {
        "data" => Some("the pool's capacity is used up: trim or delete unneeded data, or 'onefold grow --capacity'"),
        "metadata" => Some(
            "the pool's maps and tables are full: delete volumes that are not needed, or 'onefold grow --metadata' (docs/guide/sizing.md)",
        ),
        _ => None,
    }
}

/// Returns the resource that is full and the remedy, by the engine's value.
pub fn full_of(full: Full) -> &'static str {
    full_text(full_name(full)).unwrap_or_default()
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Recovering => "recovering",
        Mode::Normal => "normal",
        Mode::ReadOnly => "read-only",
    }
}

/// Explains why a pool has failed, in words.
pub fn failure_text(failure: Failure) -> &'static str {
    match failure {
        Failure::Write => "a write to the store failed",
        Failure::Sync => "a sync of the store failed",
        Failure::Page => "a page of metadata cannot be read or is damaged",
        Failure::Contradiction => "the pool's tables contradict each other",
        Failure::TakenOver => "another process has taken the pool over",
        Failure::StoreGone => {
            "the record of its owner cannot be read: the store is gone, or another host has fenced this one"
        }
    }
}

/// Advises the operator of a pool that has failed. `POOL` stands for its path.
pub fn remedy(failure: Failure) -> &'static str {
    match failure {
        Failure::Write | Failure::Sync | Failure::Page | Failure::Contradiction => {
            "Check the disk, then stop the server and see 'onefold repair POOL --dry-run'"
        }
        Failure::TakenOver => "Stop this server: the pool is the other one's, and needs no repair",
        Failure::StoreGone => {
            "If another host has taken the pool over, stop this server. Otherwise bring the store back, then start the server again: it recovers the pool"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_shown_in_utc() {
        assert_eq!(show_date(0), "1970-01-01 00:00 UTC");
        assert_eq!(show_date(951_782_340), "2000-02-28 23:59 UTC");
        assert_eq!(show_date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(show_date(1_798_761_599), "2026-12-31 23:59 UTC");
    }
}
