//! `status --prometheus`: the figures of `status` in Prometheus' text exposition format, version 0.0.4.
//!
//! [`METRICS`] has each metric once. docs/counters.md lists them all, each with the figure of `status --json` that it is;
//! `tests/interop/test_metrics.py` holds them together.

use std::fmt::{Display, Write};

use engine::PassState;

use crate::print::outside;
use crate::report::flash;
use crate::report::latency::{KindReport, bound_seconds};
use crate::report::status::{Report, TablesReport, VolumeReport};
use crate::report::writes::{CategoriesReport, RemovedReport, SizesReport, WhatIfReport};

const MODES: [&str; 3] = ["recovering", "normal", "read-only"];

/// Type of a metric: the way in which it changes.
#[derive(Clone, Copy)]
enum Kind {
    /// Grows, from 0 when the pool is opened.
    Counter,
    /// Grows and falls.
    Gauge,
    /// Counters of the requests up to each of several times, of all, and of the sum of their times.
    Histogram,
}

/// A value with its labels, other than `pool`.
struct Sample {
    /// Suffix of the metric's name, for histograms.
    suffix: &'static str,
    labels: Vec<(&'static str, String)>,
    value: String,
}

/// A metric, and its samples.
struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    samples: fn(&Report) -> Vec<Sample>,
}

const fn counter(name: &'static str, help: &'static str, samples: fn(&Report) -> Vec<Sample>) -> Metric {
    Metric { name, kind: Kind::Counter, help, samples }
}

const fn gauge(name: &'static str, help: &'static str, samples: fn(&Report) -> Vec<Sample>) -> Metric {
    Metric { name, kind: Kind::Gauge, help, samples }
}

/// All metrics, in their order.
const METRICS: &[Metric] = &[
    gauge("onefold_capacity_bytes", "Bytes of data that fit.", |report| one(report.capacity_bytes)),
    gauge("onefold_logical_blocks_used", "Mapped blocks of all volumes that are not zero.", |report| {
        one(report.logical_blocks_used)
    }),
    gauge("onefold_leaving_blocks", "Mapped blocks of deleted volumes whose slots are still to be freed.", |report| {
        one(report.leaving_blocks)
    }),
    gauge("onefold_data_blocks_used", "Slots in use.", |report| one(report.data_blocks_used)),
    gauge("onefold_redirected_blocks", "Mapped blocks beyond the first of each slot.", |report| {
        one(report.redirected_blocks)
    }),
    gauge("onefold_saving_percent", "Redirected blocks in percent of the mapped blocks.", |report| {
        one(report.saving_percent)
    }),
    gauge("onefold_saving_is_at_least", "1 while more may be saved than that is known of.", |report| {
        one(report.saving_is_at_least)
    }),
    gauge(
        "onefold_overhead_blocks_used",
        "Blocks of the pool's own tables.",
        |report| one(report.overhead_blocks_used),
    ),
    gauge("onefold_data_percent", "Data in percent of the capacity.", |report| one(report.data_percent)),
    gauge("onefold_metadata_percent", "Metadata in use in percent of the space for it.", |report| {
        one(report.metadata_percent)
    }),
    gauge("onefold_metadata_bytes", "Bytes for maps and tables.", |report| one(report.metadata_bytes)),
    gauge("onefold_refuses_new", "1 for the full part while writes of new blocks are refused.", |report| {
        states("full", &["data", "metadata"], &report.refuses_new)
    }),
    gauge("onefold_pending_blocks", "Blocks freed and not yet usable.", |report| one(report.pending_blocks)),
    gauge("onefold_discarded_blocks", "Blocks discarded or deleted that are still to be freed, at most.", |report| {
        one(report.discarded_blocks)
    }),
    gauge("onefold_index_filled_percent", "How much of the pool the index was told since it was opened.", |report| {
        one(report.index_filled_percent)
    }),
    gauge("onefold_unmerged_entries", "Mappings that are not counted exactly yet.", |report| {
        one(report.unmerged_entries)
    }),
    gauge("onefold_buffered_entries", "Mappings that are durable and not in their leaves yet.", |report| {
        one(report.buffered_entries)
    }),
    counter("onefold_checkpoints_total", "Checkpoints ended.", |report| one(report.metadata.checkpoints)),
    counter("onefold_metadata_blocks_written_total", "Blocks of metadata written.", |report| {
        one(report.metadata.blocks_written)
    }),
    gauge("onefold_metadata_blocks_per_written_block", "Blocks of metadata written for each of data.", |report| {
        one(report.metadata.per_written_block)
    }),
    counter("onefold_metadata_table_blocks_written_total", "Blocks of metadata written, by table.", |report| {
        tables(&report.metadata.tables)
    }),
    gauge("onefold_device_rotational", "1 if the disk under the pool counts as rotational.", |report| {
        one(report.device.is_rotational)
    }),
    gauge("onefold_second_copies", "Blocks of the data that are second copies.", |report| one(report.second_copies)),
    gauge("onefold_memory_bytes", "Memory in use.", |report| one(report.memory_bytes)),
    gauge("onefold_memory_cap_bytes", "Memory that may be used.", |report| one(report.memory_cap_bytes)),
    gauge("onefold_memory_resizing", "1 while memory in use beyond the cap is still to be given back.", |report| {
        one(report.memory_resizing)
    }),
    gauge("onefold_mode", "1 for the mode that the pool is in, 0 for the others.", |report| {
        states("mode", &MODES, &report.mode)
    }),
    gauge(
        "onefold_needs_recovery",
        "1 if the pool was not closed cleanly and no server has it: the figures are those that recovery will find.",
        |report| one(report.needs_recovery),
    ),
    gauge("onefold_opened_seconds", "When the server opened the pool, in seconds since 1970.", |report| {
        some(report.opened)
    }),
    gauge("onefold_host_full", "1 if the file system under the pool is full.", |report| one(report.host_full)),
    gauge("onefold_failed", "1 if the pool has failed: it is read-only until it is repaired.", |report| {
        one(report.failure.is_some())
    }),
    counter("onefold_damaged_blocks_found_total", "Damaged blocks, pages and superblock copies found.", |report| {
        one(report.damaged_blocks_found)
    }),
    gauge("onefold_damages_left", "Damage found and not repaired, as far as the last scrub knows.", |report| {
        one(report.damages_left)
    }),
    counter("onefold_repaired_blocks_total", "Those of the damaged ones that have been repaired.", |report| {
        one(report.repaired_blocks)
    }),
    gauge("onefold_scrub_state", "1 for the state of the last scrub, 0 for the others.", |report| {
        states("state", &PassState::NAMES, &report.scrub.state)
    }),
    gauge("onefold_scrub_started_seconds", "When the last scrub began, in seconds since 1970.", |report| {
        some(report.scrub.started)
    }),
    gauge("onefold_scrub_finished_seconds", "When the last scrub ended, in seconds since 1970.", |report| {
        some(report.scrub.finished)
    }),
    gauge("onefold_scrub_blocks_done", "Blocks that the last scrub has read.", |report| one(report.scrub.blocks_done)),
    gauge("onefold_scrub_blocks", "Blocks that the last scrub has to read.", |report| one(report.scrub.blocks_total)),
    gauge("onefold_scrub_damages_found", "Damage that the last scrub has found.", |report| {
        one(report.scrub.damages_found)
    }),
    gauge("onefold_scrub_damages_repaired", "Damage that the last scrub has repaired.", |report| {
        one(report.scrub.damages_repaired)
    }),
    gauge("onefold_scrub_damages_left", "Damage that the last scrub has found and not repaired.", |report| {
        one(report.scrub.damages_left)
    }),
    gauge(
        "onefold_dedup_state",
        "1 for the state of the last pass that finds duplicates, 0 for the others.",
        |report| states("state", &PassState::NAMES, &report.dedup.state),
    ),
    gauge("onefold_dedup_done_ppm", "Of a million parts of the pass, those that are done.", |report| {
        one(report.dedup.done_ppm)
    }),
    gauge("onefold_dedup_left_seconds", "Seconds until its end at the pace so far, if that is known.", |report| {
        some(report.dedup.left_seconds)
    }),
    gauge(
        "onefold_dedup_backlog_blocks",
        "Blocks that wait for the next pass, of those that came in this run or were in the journal.",
        |report| one(report.dedup.backlog_blocks),
    ),
    gauge(
        "onefold_dedup_missed_blocks",
        "Blocks written since the pool was opened although they were known, and that no pass has looked at since.",
        |report| one(report.dedup.missed_blocks),
    ),
    gauge("onefold_relocate_state", "1 for the state of the last run of a plan, 0 for the others.", |report| {
        states("state", &PassState::NAMES, &report.relocate.state)
    }),
    gauge("onefold_relocate_done_ppm", "Of a million parts of the run, those that are done.", |report| {
        one(report.relocate.done_ppm)
    }),
    gauge("onefold_relocate_left_seconds", "Seconds until its end at the pace so far, if that is known.", |report| {
        some(report.relocate.left_seconds)
    }),
    gauge("onefold_relocate_planned_blocks", "Blocks of the plan of the last run.", |report| {
        one(report.relocate.planned_blocks)
    }),
    gauge("onefold_relocate_moved_blocks", "Blocks that the last run has moved.", |report| {
        one(report.relocate.moved_blocks)
    }),
    gauge("onefold_relocate_referrers", "Blocks that walks of the last run found and remapped to a copy.", |report| {
        one(report.relocate.referrers)
    }),
    gauge("onefold_relocate_map_walks", "Walks of all maps by the last run.", |report| one(report.relocate.map_walks)),
    gauge("onefold_relocate_doubled_blocks", "Blocks that the last run has left stored twice.", |report| {
        one(report.relocate.doubled_blocks)
    }),
    gauge(
        "onefold_throttle_share_ppm",
        "Of a million parts of the device, those that background work has beside clients.",
        |report| one(report.throttle.share_ppm),
    ),
    gauge(
        "onefold_throttle_miss_ppm",
        "The largest miss of all goals, in millionths of the goal; below 0 is headroom.",
        |report| one(report.throttle.miss_ppm),
    ),
    gauge(
        "onefold_throttle_pass_delay_seconds",
        "With the paper's throttle: how long the pass rests for each block that it has looked at.",
        |report| some(report.throttle.pass_delay_ns.map(seconds)),
    ),
    gauge("onefold_throttle_p99_seconds", "The p99 of all requests when it was measured last.", |report| {
        one(seconds(report.throttle.p99_ns))
    }),
    gauge("onefold_throttle_usual_p99_seconds", "The usual p99 of all requests; 0: not known yet.", |report| {
        one(seconds(report.throttle.usual_p99_ns))
    }),
    gauge("onefold_requests_in_flight", "Requests in flight.", |report| one(report.throttle.requests_in_flight)),
    counter("onefold_dedup_shared_blocks_total", "Blocks that the pass has let share a slot.", |report| {
        one(report.dedup.shared_blocks)
    }),
    counter(
        "onefold_dedup_kept_blocks_total",
        "Blocks that the pass has left apart, so that no run is split.",
        |report| one(report.dedup.kept_blocks),
    ),
    counter(
        "onefold_dedup_unequal_blocks_total",
        "Pairs of blocks with equal digests that the pass has left apart, since reading both did not show the same bytes.",
        |report| one(report.dedup.unequal_blocks),
    ),
    counter("onefold_dedup_passes_total", "Passes that have come to their end.", |report| one(report.dedup.passes)),
    counter("onefold_dedup_scans_total", "Walks of all summaries by the pass.", |report| one(report.dedup.scans)),
    counter("onefold_dedup_map_walks_total", "Walks of all maps by the pass.", |report| one(report.dedup.map_walks)),
    gauge("onefold_dedup_spill_blocks", "Blocks of empty containers that the pass uses as spill space.", |report| {
        one(report.dedup.spill_blocks)
    }),
    counter("onefold_dedup_spill_written_blocks_total", "Blocks that the pass wrote there.", |report| {
        one(report.dedup.spill_written)
    }),
    counter("onefold_dedup_spill_read_blocks_total", "Blocks that the pass read again there.", |report| {
        one(report.dedup.spill_read)
    }),
    gauge("onefold_cache_shared_bytes", "Bytes that index and read cache share.", |report| {
        one(report.cache.shared_bytes)
    }),
    gauge("onefold_cache_index_bytes", "Bytes of the index.", |report| one(report.cache.index_bytes)),
    gauge("onefold_cache_index_entries", "Entries that the index has space for.", |report| {
        one(report.cache.index_entries)
    }),
    gauge("onefold_cache_read_bytes", "Bytes of the read cache.", |report| one(report.cache.read_bytes)),
    gauge(
        "onefold_cache_index_share",
        "Thousandths of the shared bytes that the index has, or is moving to.",
        |report| one(report.cache.index_share),
    ),
    counter(
        "onefold_cache_index_ghost_hits_total",
        "Blocks of writes that a larger index would have known, estimated.",
        |report| one(report.cache.index_ghost_hits),
    ),
    counter("onefold_cache_read_hits_total", "Blocks of reads that were in memory.", |report| {
        one(report.cache.read_hits)
    }),
    counter("onefold_cache_slot_hits_total", "Those of them that were in memory under their own slots.", |report| {
        one(report.cache.slot_hits)
    }),
    counter("onefold_cache_content_hits_total", "Those of them that were in memory for another slot.", |report| {
        one(report.cache.content_hits)
    }),
    gauge("onefold_cache_shared_blocks", "Slots whose content is cached for another slot.", |report| {
        one(report.cache.shared_blocks)
    }),
    counter("onefold_cache_read_misses_total", "Blocks of reads that came from the store.", |report| {
        one(report.cache.read_misses)
    }),
    counter(
        "onefold_cache_read_ghost_hits_total",
        "Blocks of reads that a larger read cache would have had.",
        |report| one(report.cache.read_ghost_hits),
    ),
    counter("onefold_cache_moves_total", "Changes of the boundary between index and read cache.", |report| {
        one(report.cache.moves)
    }),
    counter("onefold_cache_copied_blocks_total", "Cached blocks copied because their buffers went.", |report| {
        one(report.cache.copied_blocks)
    }),
    counter("onefold_cache_prefetched_blocks_total", "Blocks read ahead into a read cache that had grown.", |report| {
        one(report.cache.prefetched_blocks)
    }),
    counter("onefold_cache_prefetched_entries_total", "Entries put into an index that had grown.", |report| {
        one(report.cache.prefetched_entries)
    }),
    counter("onefold_writes_requests_total", "Writes.", |report| one(report.writes.requests)),
    counter("onefold_writes_coalesced_requests_total", "Writes coalesced into others.", |report| {
        one(report.writes.coalesced_requests)
    }),
    counter("onefold_writes_written_blocks_total", "Blocks that got a slot of their own.", |report| {
        one(report.writes.written_blocks)
    }),
    counter("onefold_writes_zero_blocks_total", "Blocks of zeroes.", |report| one(report.writes.zero_blocks)),
    counter(
        "onefold_writes_removed_blocks_total",
        "Blocks that were not written because their content was known.",
        |report| one(report.writes.removed_blocks),
    ),
    counter("onefold_writes_removed_requests_total", "Writes of which nothing was left to write.", |report| {
        one(report.writes.removed_requests)
    }),
    counter("onefold_writes_unchanged_blocks_total", "Blocks rewritten with the same content.", |report| {
        one(report.writes.unchanged_blocks)
    }),
    counter("onefold_writes_index_hits_total", "Blocks that were looked up and found in another slot.", |report| {
        one(report.writes.index_hits)
    }),
    counter("onefold_writes_index_misses_total", "Blocks that were looked up and not found.", |report| {
        one(report.writes.index_misses)
    }),
    counter("onefold_writes_sizes_total", "Writes by the blocks that they touch.", |report| {
        sizes(&report.writes.sizes)
    }),
    counter("onefold_writes_categories_total", "Writes that were looked up, by category.", |report| {
        categories(&report.writes.categories)
    }),
    counter("onefold_writes_what_if_blocks_total", "Blocks that policies would have removed.", |report| {
        what_if(&report.writes.what_if, |removed| &removed.blocks)
    }),
    counter("onefold_writes_what_if_requests_total", "Writes that policies would have removed.", |report| {
        what_if(&report.writes.what_if, |removed| &removed.requests)
    }),
    counter("onefold_reads_requests_total", "Reads that were answered with data.", |report| one(report.reads.requests)),
    counter("onefold_reads_from_device_total", "Reads for which something was read from the store.", |report| {
        one(report.reads.from_device)
    }),
    counter("onefold_reads_device_reads_total", "Reads of the store for these.", |report| {
        one(report.reads.device_reads)
    }),
    counter("onefold_reads_split_total", "Reads that took more than one of them.", |report| one(report.reads.split)),
    counter("onefold_reads_ahead_blocks_total", "Blocks read ahead of sequential readers.", |report| {
        one(report.reads.ahead_blocks)
    }),
    counter("onefold_reads_ahead_used_blocks_total", "Blocks read ahead that were used.", |report| {
        one(report.reads.ahead_used)
    }),
    counter("onefold_reads_ahead_gap_blocks_total", "Blocks read over between blocks read ahead.", |report| {
        one(report.reads.ahead_gaps)
    }),
    Metric {
        name: "onefold_request_duration_seconds",
        kind: Kind::Histogram,
        help: "How long clients' requests took, from their headers until their replies were queued.",
        samples: |report| report.latency.named().into_iter().flat_map(durations).collect(),
    },
    counter(
        "onefold_index_prefetch_pages_total",
        "Summary pages gone through because a block beside theirs was found.",
        |report| one(report.index_prefetch.pages),
    ),
    counter("onefold_index_prefetch_loads_total", "Reads of the store for them.", |report| {
        one(report.index_prefetch.loads)
    }),
    counter("onefold_index_prefetch_entries_total", "Digests that the index took from them.", |report| {
        one(report.index_prefetch.entries)
    }),
    counter("onefold_index_prefetch_hits_total", "Digests of them that a write asked for.", |report| {
        one(report.index_prefetch.hits)
    }),
    gauge("onefold_replicas_budget_bytes", "Bytes that replicas may take.", |report| one(report.replicas.budget_bytes)),
    gauge("onefold_replicas_blocks", "Blocks of the data that are replicas.", |report| one(report.replicas.blocks)),
    gauge("onefold_replicas_noted_reads", "Reads whose blocks are to be put in order.", |report| {
        one(report.replicas.noted_reads)
    }),
    gauge("onefold_replicas_popular_runs", "Runs of blocks whose reads are counted, to find popular ones.", |report| {
        one(report.replicas.popular_runs)
    }),
    gauge("onefold_replicas_popular_blocks_most", "Popular blocks that get ten copies, at most.", |report| {
        one(report.replicas.popular_blocks_most)
    }),
    gauge("onefold_replicas_popular_blocks", "Popular blocks that have copies, or are to have them.", |report| {
        one(report.replicas.popular_blocks)
    }),
    gauge("onefold_replicas_popular_blocks_copied", "Popular blocks that have ten copies.", |report| {
        one(report.replicas.popular_blocks_copied)
    }),
    counter("onefold_replicas_made_blocks_total", "Replicas written.", |report| one(report.replicas.made_blocks)),
    counter("onefold_replicas_dropped_blocks_total", "Replicas dropped.", |report| one(report.replicas.dropped_blocks)),
    counter("onefold_replicas_read_blocks_total", "Blocks that reads got from replicas.", |report| {
        one(report.replicas.read_blocks)
    }),
    counter("onefold_replicas_reads_in_order_total", "Reads elsewhere, where blocks follow each other.", |report| {
        one(report.replicas.reads_in_order)
    }),
    counter("onefold_replicas_reads_beside_total", "Reads elsewhere, beside a read in flight.", |report| {
        one(report.replicas.reads_beside)
    }),
    counter("onefold_replicas_reads_nearer_total", "Reads elsewhere, nearer to the heads of the disk.", |report| {
        one(report.replicas.reads_nearer)
    }),
    counter(
        "onefold_replicas_hinted_blocks_total",
        "Blocks that reads got from slots that the index named.",
        |report| one(report.replicas.hinted_blocks),
    ),
    counter("onefold_replicas_copied_blocks_total", "Blocks that reads got from copies in scratch zones.", |report| {
        one(report.replicas.copied_blocks)
    }),
    counter(
        "onefold_replicas_wrong_blocks_total",
        "Blocks that were read elsewhere, and then from their slots.",
        |report| one(report.replicas.wrong_blocks),
    ),
    gauge("onefold_flash_state", "State of the flash in front of the store: 1 for the present one.", |report| {
        states("state", &flash::STATES, &report.flash.state)
    }),
    gauge("onefold_flash_size_bytes", "Bytes of flash that are used.", |report| one(report.flash.size_bytes)),
    gauge("onefold_flash_held_bytes", "Bytes of the containers that flash has.", |report| one(report.flash.held_bytes)),
    gauge("onefold_flash_found_places", "Containers that were on flash when it was attached.", |report| {
        one(report.flash.found_places)
    }),
    gauge("onefold_flash_budget_left_bytes", "Bytes that may be written to flash now.", |report| {
        one(report.flash.budget_left_bytes)
    }),
    gauge("onefold_flash_budget_used_bytes", "Bytes that are gone of a day's.", |report| {
        one(report.flash.budget_used_bytes)
    }),
    gauge(
        "onefold_flash_life_days",
        "Days that flash lasts at the rate of writes so far, if that is known.",
        |report| some(report.flash.life_days),
    ),
    counter("onefold_flash_read_blocks_total", "Blocks that reads got from flash.", |report| {
        one(report.flash.read_blocks)
    }),
    counter(
        "onefold_flash_missed_blocks_total",
        "Blocks that reads got from the store although there is flash.",
        |report| one(report.flash.missed_blocks),
    ),
    counter(
        "onefold_flash_unproven_blocks_total",
        "Those of them that flash had, while what proves them was not in memory.",
        |report| one(report.flash.unproven_blocks),
    ),
    counter("onefold_flash_failed_reads_total", "Reads of flash that failed; the store had it.", |report| {
        one(report.flash.failed_reads)
    }),
    counter(
        "onefold_flash_bad_blocks_total",
        "Blocks from flash that failed verification; the store had them.",
        |report| one(report.flash.bad_blocks),
    ),
    counter("onefold_flash_copied_containers_total", "Containers copied to flash.", |report| {
        one(report.flash.copied_containers)
    }),
    counter("onefold_flash_given_up_containers_total", "Containers whose copy was given up.", |report| {
        one(report.flash.given_up_containers)
    }),
    gauge(
        "onefold_flash_quadrant_containers",
        "Containers found on flash and copied there, by what became of them: PLC-Cache's quadrants.",
        |report| labelled("quadrant", report.flash.quadrants.named()),
    ),
    counter("onefold_flash_copied_bytes_total", "Bytes of containers written to flash.", |report| {
        one(report.flash.copied_bytes)
    }),
    counter("onefold_flash_log_bytes_total", "Bytes of its log written to flash.", |report| {
        one(report.flash.log_bytes)
    }),
    gauge("onefold_defrag_noted_regions", "Scattered regions that wait to be put in order.", |report| {
        one(report.defrag.noted_regions)
    }),
    counter("onefold_defrag_regions_total", "Regions that were put in order.", |report| one(report.defrag.regions)),
    counter("onefold_defrag_given_up_regions_total", "Regions that could not be put in order.", |report| {
        one(report.defrag.given_up_regions)
    }),
    counter("onefold_defrag_moved_blocks_total", "Blocks moved to put regions in order.", |report| {
        one(report.defrag.moved_blocks)
    }),
    gauge(
        "onefold_defrag_waiting_regions",
        "Scattered regions that wait until containers have been emptied.",
        |report| one(report.defrag.waiting_regions),
    ),
    gauge("onefold_defrag_empty_containers", "Containers of which every slot is free.", |report| {
        one(report.defrag.empty_containers)
    }),
    counter("onefold_defrag_emptied_containers_total", "Containers that were emptied.", |report| {
        one(report.defrag.emptied_containers)
    }),
    counter("onefold_defrag_emptied_blocks_total", "Blocks moved to empty containers.", |report| {
        one(report.defrag.emptied_blocks)
    }),
    gauge("onefold_defrag_allowance_blocks", "Blocks that may be moved now.", |report| {
        one(report.defrag.allowance_blocks)
    }),
    gauge("onefold_disk_index_buckets", "Pages of the complete index on disk.", |report| {
        one(report.disk_index.buckets)
    }),
    gauge("onefold_disk_index_entries", "Blocks that are in it, estimated.", |report| one(report.disk_index.entries)),
    gauge("onefold_disk_index_complete", "1 if all blocks of data are in it.", |report| {
        one(report.disk_index.complete)
    }),
    gauge("onefold_disk_index_behind", "1 if blocks that were written offline are missing in it.", |report| {
        one(report.disk_index.behind)
    }),
    counter("onefold_disk_index_lookups_total", "Blocks of writes that were looked up in it.", |report| {
        one(report.disk_index.disk_index_lookups)
    }),
    counter("onefold_disk_index_loads_total", "Pages read for these lookups.", |report| {
        one(report.disk_index.disk_index_loads)
    }),
    counter("onefold_disk_index_hits_total", "Blocks of them that it knew.", |report| {
        one(report.disk_index.disk_index_hits)
    }),
    gauge("onefold_volume_size_bytes", "Bytes of the volume as clients see it.", |report| {
        volumes(report, |volume| one(volume.size_bytes))
    }),
    gauge("onefold_volume_read_only", "1 if writes to the volume are refused.", |report| {
        volumes(report, |volume| one(volume.read_only))
    }),
    gauge("onefold_volume_clients", "Clients connected to the volume.", |report| {
        volumes(report, |volume| one(volume.clients))
    }),
    gauge("onefold_volume_offline", "1 while writes are stored without a look for duplicates.", |report| {
        volumes(report, |volume| one(volume.timing_state.offline))
    }),
    counter("onefold_volume_mode_switches_total", "How often a controller has changed that.", |report| {
        volumes(report, |volume| one(volume.timing_state.switches))
    }),
    gauge("onefold_volume_goal", "The goal, in requests or bytes a second, or as a p99 in nanoseconds.", |report| {
        volumes(report, |volume| some(volume.timing_state.setpoint))
    }),
    gauge("onefold_volume_measured", "Last measurement, in the unit of the goal; without one the p99.", |report| {
        volumes(report, |volume| some(volume.timing_state.measured))
    }),
    gauge(
        "onefold_volume_miss_ppm",
        "By how much that missed the goal, in millionths; below 0 is headroom.",
        |report| volumes(report, |volume| some(volume.timing_state.miss_ppm)),
    ),
    gauge("onefold_volume_stressed_ppm", "Of a million requests those in stress (HIODS 4.3).", |report| {
        volumes(report, |volume| some(volume.timing_state.stressed_ppm))
    }),
    gauge("onefold_volume_logical_blocks_used", "Mapped blocks of the volume that are not zero.", |report| {
        volumes(report, |volume| one(volume.logical_blocks_used))
    }),
    gauge(
        "onefold_volume_shared_percent",
        "Blocks of these in slots that other blocks have, too, in percent, when it has been counted.",
        |report| volumes(report, |volume| some(volume.shared_percent)),
    ),
    gauge(
        "onefold_volume_shared_error_percent",
        "The standard error of that; 0: all blocks were looked at.",
        |report| volumes(report, |volume| some(volume.shared_error_percent)),
    ),
    counter("onefold_volume_writes_requests_total", "Writes of the volume.", |report| {
        volumes(report, |volume| one(volume.writes.requests))
    }),
    counter(
        "onefold_volume_writes_coalesced_requests_total",
        "Writes of the volume coalesced into others.",
        |report| volumes(report, |volume| one(volume.writes.coalesced_requests)),
    ),
    counter(
        "onefold_volume_writes_written_blocks_total",
        "Blocks of the volume that got a slot of their own.",
        |report| volumes(report, |volume| one(volume.writes.written_blocks)),
    ),
    counter("onefold_volume_writes_zero_blocks_total", "Blocks of the volume of zeroes.", |report| {
        volumes(report, |volume| one(volume.writes.zero_blocks))
    }),
    counter(
        "onefold_volume_writes_removed_blocks_total",
        "Blocks of the volume that were not written because their content was known.",
        |report| volumes(report, |volume| one(volume.writes.removed_blocks)),
    ),
    counter(
        "onefold_volume_writes_removed_requests_total",
        "Writes of the volume of which nothing was left to write.",
        |report| volumes(report, |volume| one(volume.writes.removed_requests)),
    ),
    counter(
        "onefold_volume_writes_unchanged_blocks_total",
        "Blocks of the volume rewritten with the same content.",
        |report| volumes(report, |volume| one(volume.writes.unchanged_blocks)),
    ),
    counter(
        "onefold_volume_writes_index_hits_total",
        "Blocks of the volume that were looked up and found in another slot.",
        |report| volumes(report, |volume| one(volume.writes.index_hits)),
    ),
    counter(
        "onefold_volume_writes_index_misses_total",
        "Blocks of the volume that were looked up and not found.",
        |report| volumes(report, |volume| one(volume.writes.index_misses)),
    ),
    counter("onefold_volume_writes_sizes_total", "Writes of the volume by the blocks that they touch.", |report| {
        volumes(report, |volume| sizes(&volume.writes.sizes))
    }),
    counter(
        "onefold_volume_writes_categories_total",
        "Writes of the volume that were looked up, by category.",
        |report| volumes(report, |volume| categories(&volume.writes.categories)),
    ),
    counter(
        "onefold_volume_writes_what_if_blocks_total",
        "Blocks of the volume that policies would have removed.",
        |report| volumes(report, |volume| what_if(&volume.writes.what_if, |removed| &removed.blocks)),
    ),
    counter(
        "onefold_volume_writes_what_if_requests_total",
        "Writes of the volume that policies would have removed.",
        |report| volumes(report, |volume| what_if(&volume.writes.what_if, |removed| &removed.requests)),
    ),
];

/// A figure as a value.
trait Figure {
    fn value(self) -> String;
}

impl Figure for u64 {
    fn value(self) -> String {
        self.to_string()
    }
}

impl Figure for u32 {
    fn value(self) -> String {
        self.to_string()
    }
}

impl Figure for i64 {
    fn value(self) -> String {
        self.to_string()
    }
}

impl Figure for usize {
    fn value(self) -> String {
        self.to_string()
    }
}

impl Figure for f64 {
    fn value(self) -> String {
        self.to_string()
    }
}

impl Figure for bool {
    fn value(self) -> String {
        u8::from(self).to_string()
    }
}

fn one(figure: impl Figure) -> Vec<Sample> {
    vec![Sample { suffix: "", labels: Vec::new(), value: figure.value() }]
}

/// Converts nanoseconds to seconds, the base unit of Prometheus.
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Returns one sample of the figure, or no sample if there is none.
fn some(figure: Option<impl Figure>) -> Vec<Sample> {
    figure.map(one).unwrap_or_default()
}

fn labelled<const N: usize>(label: &'static str, figures: [(&str, &u64); N]) -> Vec<Sample> {
    let sample =
        |(name, figure): (&str, &u64)| Sample { suffix: "", labels: vec![(label, name.into())], value: figure.value() };
    figures.map(sample).into()
}

fn states<const N: usize>(label: &'static str, all: &[&str; N], state: &str) -> Vec<Sample> {
    labelled(label, all.map(|name| (name, if name == state { &1 } else { &0 })))
}

fn volumes(report: &Report, samples: fn(&VolumeReport) -> Vec<Sample>) -> Vec<Sample> {
    let of_volume = |volume: &VolumeReport| {
        let mut samples = samples(volume);
        samples.iter_mut().for_each(|sample| sample.labels.insert(0, ("volume", volume.name.clone())));
        samples
    };
    report.volumes.iter().flat_map(of_volume).collect()
}

fn sizes(sizes: &SizesReport) -> Vec<Sample> {
    labelled("size", sizes.named())
}

fn tables(tables: &TablesReport) -> Vec<Sample> {
    labelled("table", tables.named())
}

/// Returns the samples of a histogram. They are cumulative: each bound counts the requests of the lower ones, too.
fn durations((name, kind): (&'static str, &KindReport)) -> Vec<Sample> {
    let labels = || vec![("kind", name.to_string())];
    let mut so_far = 0;
    let buckets = kind.buckets.iter().enumerate().map(|(bucket, count)| {
        so_far += count;
        let bound = bound_seconds(bucket).map_or_else(|| "+Inf".into(), |seconds| seconds.to_string());
        let labels = labels().into_iter().chain([("le", bound)]).collect();
        Sample { suffix: "_bucket", labels, value: so_far.value() }
    });
    let mut samples: Vec<Sample> = buckets.collect();
    samples.push(Sample { suffix: "_sum", labels: labels(), value: kind.seconds.value() });
    samples.push(Sample { suffix: "_count", labels: labels(), value: kind.requests.value() });
    samples
}

fn categories(categories: &CategoriesReport) -> Vec<Sample> {
    labelled("category", categories.named())
}

fn what_if(policies: &WhatIfReport, figure: fn(&RemovedReport) -> &u64) -> Vec<Sample> {
    labelled("policy", policies.named().map(|(policy, removed)| (policy, figure(removed))))
}

/// Escapes the value of a label as it stands between quotes.
fn escaped(value: &str) -> String {
    let lines = value.split('\n').map(|line| outside(line).replace('\\', "\\\\").replace('"', "\\\""));
    lines.collect::<Vec<_>>().join("\\n")
}

/// Formats all metrics of a pool, with `pool` as its label.
pub fn text(report: &Report, pool: impl Display) -> String {
    let pool = ("pool", pool.to_string());
    let mut text = String::new();
    for Metric { name, kind, help, samples } in METRICS {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for Sample { suffix, labels, value } in samples(report) {
            let labels = [&pool].into_iter().chain(&labels).map(|(label, of)| format!("{label}=\"{}\"", escaped(of)));
            let _ = writeln!(text, "{name}{suffix}{{{}}} {value}", labels.collect::<Vec<_>>().join(","));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_and_say_what_kind_they_are() {
        for (number, Metric { name, kind, help, .. }) in METRICS.iter().enumerate() {
            assert!(METRICS[..number].iter().all(|other| other.name != *name), "{name} is there twice");
            assert_eq!(matches!(kind, Kind::Counter), name.ends_with("_total"), "{name}");
            assert!(help.ends_with('.') && !help.contains(['\\', '\n']), "{name}: {help}");
        }
    }

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd é"), "a\\\"b\\\\c\\nd é");
    }
}
