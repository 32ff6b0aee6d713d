//! Figures of `status` and `volume list`: one set for both. (`text` has them for people.)

use engine::{
    Damage, Damaged, DefragSetting, DefragStatus, Engine, Failure, Full, GcStatus, Mode, PagesWritten, ReplicateStatus,
    ScrubStatus, VolumeId,
};
use serde::{Deserialize, Serialize};

use crate::frontend::nbd::latency::Latencies;
use crate::frontend::nbd::tls;
use crate::memory::{MemoryPartition, Source};
use crate::report::caches::CacheReport;
use crate::report::dedup::DedupReport;
use crate::report::device::DeviceReport;
use crate::report::disk_index::DiskIndexReport;
use crate::report::flash::FlashReport;
use crate::report::latency::LatencyReport;
use crate::report::relocate::RelocateReport;
use crate::report::share::{ppm_percent, saved_percent, whole_percent};
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

/// A pool's figures. `*_blocks*` are blocks of 4096 bytes.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Report {
    /// Version of this format.
    pub version: u32,
    /// Bytes of data that fit.
    pub capacity_bytes: u64,
    /// Mapped, non-zero blocks of all volumes now. A block overwritten since the last merge counts twice until it is merged.
    pub logical_blocks_used: u64,
    /// Blocks that deleted volumes mapped, and whose slots are still to be freed.
    #[serde(default)]
    pub leaving_blocks: u64,
    /// Slots in use now, those still to be freed among them.
    pub data_blocks_used: u64,
    /// Mapped blocks beyond the first of each slot. In POD's table each of them takes 16 bytes.
    #[serde(default)]
    pub redirected_blocks: u64,
    /// Blocks of the pool's own tables.
    pub overhead_blocks_used: u64,
    /// Data in percent of the capacity: from 80 on the pool is nearly full.
    pub data_percent: u64,
    /// Metadata in use in percent of all metadata.
    pub metadata_percent: u64,
    /// Bytes for metadata: maps, summaries and tables.
    #[serde(default)]
    pub metadata_bytes: u64,
    /// Part that is full, if writes of new blocks are refused now: `data` or `metadata`; else empty.
    #[serde(default)]
    pub refuses_new: String,
    /// Blocks freed and not yet usable.
    pub pending_blocks: u64,
    /// Blocks in discarded ranges and deleted volumes that are still to be freed in the background, at most.
    pub discarded_blocks: u64,
    /// Part of the pool's content that the index was told since the pool was opened, in percent: until 100 some known blocks are written again.
    #[serde(default = "whole")]
    pub index_filled_percent: u64,
    /// Mappings that are not counted exactly yet.
    pub unmerged_entries: u64,
    /// Mappings that are durable and not in their leaves yet: what their blocks held before is still counted.
    #[serde(default)]
    pub buffered_entries: u64,
    /// Blocks of metadata that were written.
    #[serde(default)]
    pub metadata: MetadataReport,
    /// Part of the mapped blocks that needs no slot of its own, in percent, from 0 to 100. Blocks of deleted volumes whose slots are still to be
    /// freed count as mapped.
    pub saving_percent: f64,
    /// True if more may be saved than that: after a restart the blocks that deleted volumes mapped are not known until their slots are freed.
    #[serde(default)]
    pub saving_is_at_least: bool,
    /// Memory in use.
    pub memory_bytes: u64,
    /// Memory that may be used.
    pub memory_cap_bytes: u64,
    /// Number of references beyond which a block gets a second copy when the pool is scrubbed; 0: none does.
    #[serde(default)]
    pub second_copies_above: u32,
    /// Blocks of the data that are second copies.
    #[serde(default)]
    pub second_copies: u64,
    /// Copy that the index names of a block that is written again: `sequential`, `oldest` or `newest`.
    #[serde(default)]
    pub index_copy: String,
    /// Replicas of blocks that reads found scattered.
    #[serde(default)]
    pub replicas: ReplicasReport,
    /// Regions that are put in order again, and garbage collection.
    #[serde(default)]
    pub defrag: DefragReport,
    /// Kind of the disk under the pool.
    #[serde(default)]
    pub device: DeviceReport,
    /// Origin of the memory limit: `default`, `pool` or `command line`.
    pub memory_source: String,
    /// True while memory in use beyond the limit is still to be given back.
    pub memory_resizing: bool,
    /// Partition of memory between index and read cache.
    #[serde(default)]
    pub cache: CacheReport,
    /// Mode of the pool: `normal`, `recovering` or `read-only`.
    pub mode: String,
    /// True if the pool was not closed cleanly and no server has it: these are the figures that recovery will find, and recovery is still to be done.
    #[serde(default)]
    pub needs_recovery: bool,
    /// Reason why the pool has failed, if it has: it is read-only until it is repaired.
    #[serde(default)]
    pub failure: Option<String>,
    /// True if the file system under the pool is full: writes fail, or wait, until there is space.
    #[serde(default)]
    pub host_full: bool,
    /// Damaged blocks, pages and superblock copies found since the pool was opened, by reads and by the scrub.
    pub damaged_blocks_found: u64,
    /// Number of those damages that have been repaired.
    pub repaired_blocks: u64,
    /// Number of places that are still damaged: damages that the last finished scrub left, and unrepaired ones found since.
    #[serde(default)]
    pub damages_left: u64,
    /// The scrub that is in progress, or the last one.
    pub scrub: ScrubReport,
    /// The pass that finds all duplicates, in progress or the last one.
    #[serde(default)]
    pub dedup: DedupReport,
    /// The run of a plan, in progress or the last one.
    #[serde(default)]
    pub relocate: RelocateReport,
    /// Latency of clients beside the pass that finds duplicates.
    #[serde(default)]
    pub throttle: ThrottleReport,
    /// The damages found last, at most 64.
    pub damages: Vec<DamageReport>,
    /// The pool's policy, if it is set.
    pub pool_policy: Option<String>,
    /// Counts of writes to all volumes.
    #[serde(default)]
    pub writes: WritesReport,
    /// Counts of reads since the pool was opened.
    #[serde(default)]
    pub reads: ReadsReport,
    /// Times of clients' requests.
    #[serde(default)]
    pub latency: LatencyReport,
    /// Counts of digests that were put into the index ahead of need.
    #[serde(default)]
    pub index_prefetch: IndexPrefetchReport,
    /// The complete index on disk.
    #[serde(default)]
    pub disk_index: DiskIndexReport,
    /// The flash in front of the store.
    #[serde(default)]
    pub flash: FlashReport,
    /// Addresses where clients connect, as `--listen` takes them; empty if the pool is not served.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// TLS for clients over TCP: off, on or require.
    #[serde(default)]
    pub tls: String,
    /// True if the server ends with the command that has started it.
    #[serde(default)]
    pub ephemeral: bool,
    /// Time at which the server opened the pool, in seconds since 1970: counters are since then.
    #[serde(default)]
    pub opened: Option<u64>,
    /// The volumes.
    pub volumes: Vec<VolumeReport>,
}

/// Blocks of metadata that checkpoints have written since the pool was opened: docs/counters.md.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct MetadataReport {
    /// Checkpoints that have ended.
    #[serde(default)]
    pub checkpoints: u64,
    /// Blocks of all tables, and superblocks.
    pub blocks_written: u64,
    /// Blocks of metadata for each block of data written.
    pub per_written_block: f64,
    /// Blocks of metadata by the table that they belong to.
    pub tables: TablesReport,
}

/// Blocks of metadata by the table that they belong to.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct TablesReport {
    /// Maps of volumes.
    pub maps: u64,
    /// The space map.
    pub space_map: u64,
    /// The reference counts.
    pub counts: u64,
    /// The summaries.
    pub summaries: u64,
    /// The log of the map buffer.
    pub map_buffer: u64,
    /// The index on disk.
    pub disk_index: u64,
    /// All other tables, and superblocks.
    pub others: u64,
}

impl MetadataReport {
    fn new(engine: &Engine) -> MetadataReport {
        let (pages, written) = (engine.counters().pages_written, engine.write_counts().written_blocks);
        let PagesWritten { maps, space_map, counts, summaries, map_buffer, disk_index, others } = pages;
        MetadataReport {
            checkpoints: engine.counters().checkpoints,
            blocks_written: pages.sum(),
            per_written_block: pages.sum() as f64 / written.max(1) as f64,
            tables: TablesReport { maps, space_map, counts, summaries, map_buffer, disk_index, others },
        }
    }
}

/// A scrub.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct ScrubReport {
    /// State of the scrub: `never`, `running`, `paused`, `finished` or `stopped`.
    pub state: String,
    /// Time at which it began, in seconds since 1970.
    pub started: Option<u64>,
    /// Time at which it was finished or stopped, in seconds since 1970.
    pub finished: Option<u64>,
    /// Blocks of data and metadata that it has read.
    pub blocks_done: u64,
    /// Blocks that there are to read.
    pub blocks_total: u64,
    /// Damages that it has found.
    pub damages_found: u64,
    /// Damages that it has found and repaired.
    pub damages_repaired: u64,
    /// Damages that it has found and not repaired.
    pub damages_left: u64,
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
        let volume = |id: VolumeId| engine.volumes().find(|volume| volume.id == id).map(|volume| volume.name.clone());
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
    fn new(status: &ScrubStatus) -> ScrubReport {
        ScrubReport {
            state: status.state.name().into(),
            started: (status.started > 0).then_some(status.started),
            finished: (status.finished > 0).then_some(status.finished),
            blocks_done: status.blocks_done,
            blocks_total: status.blocks_total,
            damages_found: status.found,
            damages_repaired: status.repaired,
            damages_left: status.found.saturating_sub(status.repaired),
        }
    }

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

/// A volume's figures.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct VolumeReport {
    /// Its name, which is also the name of its export.
    pub name: String,
    /// Its size as clients see it.
    pub size_bytes: u64,
    /// Policy in force, as it is written on the command line.
    pub policy: String,
    /// Origin of the policy: `default`, `pool` or `volume`.
    pub policy_source: String,
    /// True if writes are refused.
    pub read_only: bool,
    /// True if only one client at a time may use it.
    #[serde(default)]
    pub exclusive: bool,
    /// Timing of deduplication: `inline`, `offline` or `hybrid`.
    #[serde(default)]
    pub timing: String,
    /// Origin of the timing: `default` or `volume`.
    #[serde(default)]
    pub timing_source: String,
    /// Performance goal for its clients, as it is written on the command line.
    #[serde(default)]
    pub goal: String,
    /// Setting whether a pass leaves its duplicates if a run would be split: `on`, `off` or `auto`.
    #[serde(default)]
    pub keep_runs: String,
    /// Controller that chooses the mode if the timing is hybrid: `forecast` or `paper`.
    #[serde(default)]
    pub controller: String,
    /// Performance that its clients get, and the mode that follows from it.
    #[serde(default)]
    pub timing_state: TimingReport,
    /// Clients connected to it.
    pub clients: usize,
    /// Mapped, non-zero blocks of the volume.
    pub logical_blocks_used: u64,
    /// Part of these blocks whose slots other blocks have, too, in percent, as of the last census; none until it is counted.
    #[serde(default)]
    pub shared_percent: Option<f64>,
    /// Standard error of `shared_percent` in percentage points; 0: all blocks were examined.
    #[serde(default)]
    pub shared_error_percent: Option<f64>,
    /// Counts of its writes.
    #[serde(default)]
    pub writes: WritesReport,
}

/// Replicas of blocks that reads found scattered.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicasReport {
    /// Bytes that replicas may take, as far as there is memory for the table of that many.
    pub budget_bytes: u64,
    /// Budget that was set, in bytes, if any was.
    pub set_bytes: Option<u64>,
    /// Blocks of the data that are replicas.
    pub blocks: u64,
    /// Reads that are noted, to be put in order when the pool is idle.
    pub noted_reads: u64,
    /// Runs of blocks whose reads are counted, to find popular ones.
    #[serde(default)]
    pub popular_runs: u64,
    /// Popular blocks that get ten copies, at most: as many as budget and memory have space for.
    #[serde(default)]
    pub popular_blocks_most: u64,
    /// Popular blocks that have copies, or are to have them.
    #[serde(default)]
    pub popular_blocks: u64,
    /// Popular blocks that have all ten copies.
    #[serde(default)]
    pub popular_blocks_copied: u64,
    /// Blocks that replicas were made of since the pool was opened.
    pub made_blocks: u64,
    /// Replicas dropped since the pool was opened.
    pub dropped_blocks: u64,
    /// Blocks that reads got from replicas since the pool was opened.
    pub read_blocks: u64,
    /// Reads served from another place than the slot because blocks follow each other there, on an HDD.
    #[serde(default)]
    pub reads_in_order: u64,
    /// Reads served from another place because a read in flight was beside it, on an HDD.
    #[serde(default)]
    pub reads_beside: u64,
    /// Reads served from another place because it was nearer to the heads, on an HDD.
    #[serde(default)]
    pub reads_nearer: u64,
    /// Blocks that were read from other slots with the same content, which the index named.
    #[serde(default)]
    pub hinted_blocks: u64,
    /// Blocks that were read from copies in scratch zones.
    #[serde(default)]
    pub copied_blocks: u64,
    /// Blocks whose content at such a place was wrong, and that were read from their own slots.
    #[serde(default)]
    pub wrong_blocks: u64,
}

impl ReplicasReport {
    /// Collects the engine's figures. The space for replicas is that of a server with `memory` bytes, independent of this command's memory.
    fn new(engine: &Engine, status: &ReplicateStatus, memory: u64) -> ReplicasReport {
        let served = MemoryPartition::new(memory, engine.geometry(), u32::MAX);
        let known = (status.budget_bytes, status.most_copied);
        let (budget_bytes, popular_blocks_most) =
            served.map_or(known, |partition| engine.replicas_space(&partition.limits));
        ReplicasReport {
            budget_bytes,
            set_bytes: engine.replicas_budget(),
            blocks: status.replicas,
            noted_reads: status.noted,
            popular_runs: status.popular,
            popular_blocks_most,
            popular_blocks: status.copied,
            popular_blocks_copied: status.fully_copied,
            made_blocks: status.made,
            dropped_blocks: status.dropped,
            read_blocks: status.read,
            reads_in_order: status.places.in_order,
            reads_beside: status.places.beside,
            reads_nearer: status.places.nearer,
            hinted_blocks: status.places.hinted,
            copied_blocks: status.places.copies,
            wrong_blocks: status.places.wrong,
        }
    }
}

/// Regions that readers found scattered, and the blocks moved for defragmentation and garbage collection.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct DefragReport {
    /// Bytes that may be moved in a day: 0 if nothing is moved, none if the limit follows the written bytes.
    pub bytes_per_day: Option<u64>,
    /// Scattered regions that have not been examined, plus one while blocks are being moved.
    pub noted_regions: u64,
    /// Regions that were put in order since the pool was opened.
    pub regions: u64,
    /// Regions that were given up since the pool was opened: there was no place for them, or they could not be read.
    pub given_up_regions: u64,
    /// Blocks that defragmentation has moved since the pool was opened.
    pub moved_blocks: u64,
    /// Blocks that may be moved now.
    pub allowance_blocks: u64,
    /// Scattered regions that wait until containers have been emptied.
    #[serde(default)]
    pub waiting_regions: u64,
    /// Containers of which every slot is free.
    #[serde(default)]
    pub empty_containers: u64,
    /// Containers that garbage collection has emptied since the pool was opened.
    #[serde(default)]
    pub emptied_containers: u64,
    /// Blocks that were moved to empty containers since the pool was opened.
    #[serde(default)]
    pub emptied_blocks: u64,
}

impl DefragReport {
    fn new(status: &DefragStatus, collect: &GcStatus) -> DefragReport {
        DefragReport {
            bytes_per_day: match status.defrag {
                DefragSetting::Auto => None,
                DefragSetting::Off => Some(0),
                DefragSetting::PerDay(bytes) => Some(bytes),
            },
            noted_regions: status.noted_regions,
            regions: status.regions,
            given_up_regions: status.given_up_regions,
            moved_blocks: status.moved_blocks,
            allowance_blocks: status.allowance_blocks,
            waiting_regions: status.waiting_regions,
            empty_containers: collect.empty_containers,
            emptied_containers: collect.emptied_containers,
            emptied_blocks: collect.moved_blocks,
        }
    }
}

impl Report {
    /// Fails while the pool is being opened: a server's figures before that do not describe the pool's content.
    pub fn require_opened(&self) -> anyhow::Result<()> {
        let is_being_opened = self.mode == mode_name(Mode::Recovering) && !self.needs_recovery;
        anyhow::ensure!(!is_being_opened, BEING_OPENED);
        Ok(())
    }

    /// Collects the engine's figures now; `memory` is the limit and its origin, `clients` counts those of a volume.
    pub fn new(engine: &Engine, memory: (u64, Source), clients: impl Fn(VolumeId) -> usize) -> Report {
        let status = engine.status();
        let held = status.held;
        let volumes = engine.volumes().map(|volume| VolumeReport {
            name: volume.name.clone(),
            size_bytes: volume.size,
            policy: engine.policy_of(volume).to_string(),
            policy_source: match (volume.policy, engine.pool_policy()) {
                (Some(_), _) => "volume".into(),
                (None, Some(_)) => "pool".into(),
                (None, None) => "default".into(),
            },
            read_only: volume.read_only,
            exclusive: volume.exclusive,
            timing: engine.timing_of(volume).timing.to_string(),
            timing_source: if volume.timing.is_some() { "volume".into() } else { "default".into() },
            goal: volume.goal.to_string(),
            keep_runs: volume.keep_runs.to_string(),
            controller: volume.controller.to_string(),
            timing_state: TimingReport::new(engine, volume),
            clients: clients(volume.id),
            logical_blocks_used: engine.held_by(volume),
            shared_percent: engine.shared_of(volume).map(|shared| ppm_percent(shared.ppm)),
            shared_error_percent: engine.shared_of(volume).map(|shared| ppm_percent(shared.error_ppm)),
            writes: WritesReport::new(volume.writes),
        });
        Report {
            version: VERSION,
            capacity_bytes: status.capacity_bytes,
            logical_blocks_used: held.mapped,
            leaving_blocks: held.leaving,
            data_blocks_used: held.data,
            redirected_blocks: held.redirected(),
            overhead_blocks_used: status.overhead_blocks_used,
            data_percent: whole_percent(held.data, status.capacity_bytes / 4096),
            metadata_percent: whole_percent(status.metadata_blocks_used, status.metadata_blocks),
            metadata_bytes: status.metadata_blocks.saturating_mul(4096),
            refuses_new: status.refuses_new.map_or("", full_name).into(),
            pending_blocks: status.pending_blocks,
            discarded_blocks: status.discarded_blocks,
            index_filled_percent: status.index_filled_ppm.map_or(100, |ppm| u64::from(ppm / 10_000)),
            unmerged_entries: status.unmerged_entries,
            buffered_entries: status.buffered_entries,
            metadata: MetadataReport::new(engine),
            saving_percent: saved_percent(held.mapped + held.leaving, held.data.saturating_sub(held.copies)),
            saving_is_at_least: !held.is_leaving_known,
            memory_bytes: status.memory_bytes,
            memory_cap_bytes: memory.0,
            second_copies_above: engine.second_copies_above(),
            second_copies: status.second_copies,
            index_copy: engine.index_copy().to_string(),
            replicas: ReplicasReport::new(engine, &status.replicate, memory.0),
            defrag: DefragReport::new(&status.defrag, &status.gc),
            device: DeviceReport::new(&status),
            memory_source: memory.1.name().into(),
            memory_resizing: engine.is_resizing(),
            cache: CacheReport::new(engine),
            mode: mode_name(status.mode).into(),
            needs_recovery: false,
            failure: status.failure.map(|failure| failure_text(failure).into()),
            host_full: false,
            damaged_blocks_found: status.damaged_blocks_found,
            repaired_blocks: status.repaired_blocks,
            damages_left: status.damages_left,
            scrub: ScrubReport::new(&status.scrub),
            dedup: DedupReport::new(&status.dedup, engine.dedup_verify()),
            relocate: RelocateReport::new(&status.relocate, engine.relocate_schedule()),
            throttle: ThrottleReport::new(&status.throttle, engine.pass_throttle()),
            damages: engine.damages().map(|damage| DamageReport::new(engine, damage)).collect(),
            pool_policy: engine.pool_policy().map(|policy| policy.to_string()),
            writes: WritesReport::new(engine.write_counts()),
            reads: engine.read_counts().into(),
            latency: LatencyReport::new(&Latencies::default()),
            index_prefetch: engine.index_prefetch_counts().into(),
            disk_index: DiskIndexReport::new(engine.disk_index_status()),
            flash: FlashReport { policy: engine.flash_policy().to_string(), ..FlashReport::default() },
            addresses: Vec::new(),
            tls: tls::Mode::Off.to_string(),
            ephemeral: false,
            opened: None,
            volumes: volumes.collect(),
        }
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
            "the pool's maps and tables are full: delete volumes that are not needed, or 'onefold grow --metadata' (docs/sizing.md)",
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
