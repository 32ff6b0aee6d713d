//! Table of all metrics, in their order: a row is type, name, figure and help. A metric that is a figure of the report is one row here.
//!
//! The figure is a path of fields of [`Report`] or [`VolumeReport`], as in `status --json`. It takes one of these shapes:
//!
//! - `path`: a number or a truth value; without a sample while it is none.
//! - `path[label]`, `path[label].field`: a sample for each field of a struct that is `named` (`report::define`), with the field's name in the label.
//! - `path[label of NAMES]`: a sample for each of NAMES, 1 for the name that the figure has now.
//! - `path[as function]`: the figure, converted.
//!
//! `ONEFOLD_WRITE_REFERENCE=1 cargo test -p onefold metrics` brings them into docs/reference/metrics.md.

use engine::PassState;

use crate::report::flash;
use crate::report::prometheus::{Figure, Kind, Metric, labelled, seconds, states};
use crate::report::status::{Report, VolumeReport};

const MODES: [&str; 3] = ["recovering", "normal", "read-only"];
/// Resources of a pool that can be full.
const RESOURCES: [&str; 2] = ["data", "metadata"];

macro_rules! metrics {
    ($($kind:ident $name:literal = $first:ident $(.$field:ident)* $([$($shape:tt)+] $(.$inner:ident)?)?, $help:literal;)+) => {
        &[$(Metric {
            name: $name,
            kind: Kind::$kind,
            help: $help,
            #[cfg(test)]
            figure: concat!(
                stringify!($first), $(".", stringify!($field),)*
                $("[", $(stringify!($shape), " ",)+ "]", $(".", stringify!($inner),)?)?
            ),
            samples: |part| samples!(part.$first$(.$field)* $(, [$($shape)+] $(.$inner)?)?),
        }),+]
    };
}

macro_rules! samples {
    ($figure:expr) => {
        $figure.samples()
    };
    ($figure:expr, [as $convert:path]) => {
        $convert(&$figure).samples()
    };
    ($figure:expr, [$label:ident of $names:path]) => {
        states(stringify!($label), &$names, &$figure)
    };
    ($figure:expr, [$label:ident] $(.$inner:ident)?) => {
        $figure.named().iter().flat_map(|(name, of)| labelled(stringify!($label), name, of$(.$inner)?.samples())).collect()
    };
}

/// Metrics of a pool.
pub const OF_POOL: &[Metric<Report>] = metrics! {
    Gauge "onefold_capacity_bytes" = capacity_bytes, "Bytes of data that fit.";
    Gauge "onefold_logical_blocks_used" = logical_blocks_used, "Mapped blocks of all volumes that are not zero.";
    Gauge "onefold_leaving_blocks" = leaving_blocks, "Mapped blocks of deleted volumes whose slots are still to be freed.";
    Gauge "onefold_data_blocks_used" = data_blocks_used, "Slots in use.";
    Gauge "onefold_redirected_blocks" = redirected_blocks, "Mapped blocks beyond the first of each slot.";
    Gauge "onefold_saving_percent" = saving_percent, "Redirected blocks in percent of the mapped blocks.";
    Gauge "onefold_saving_is_at_least" = saving_is_at_least, "1 while more may be saved than is known.";
    Gauge "onefold_snapshots" = snapshots.count, "Snapshots of all volumes.";
    Gauge "onefold_snapshot_blocks" = snapshots.blocks, "Mapped blocks of snapshots, without inherited ones.";
    Gauge "onefold_deleted_snapshots" = snapshots.deleted, "Deleted snapshots that others inherit from.";
    Gauge "onefold_deleted_snapshot_blocks" = snapshots.deleted_blocks, "Mapped blocks of these, without inherited ones.";
    Gauge "onefold_overhead_blocks_used" = overhead_blocks_used, "Blocks of the pool's own tables.";
    Gauge "onefold_data_percent" = data_percent, "Data in percent of the capacity.";
    Gauge "onefold_metadata_percent" = metadata_percent, "Metadata in use in percent of the space for it.";
    Gauge "onefold_metadata_bytes" = metadata_bytes, "Bytes for maps and tables.";
    Gauge "onefold_refuses_new" = refuses_new[full of RESOURCES], "1 for the full part while writes of new blocks are refused.";
    Gauge "onefold_pending_blocks" = pending_blocks, "Blocks freed and not yet usable.";
    Gauge "onefold_discarded_blocks" = discarded_blocks, "Blocks discarded or deleted that are still to be freed, at most.";
    Gauge "onefold_index_filled_percent" = index_filled_percent, "Percentage of the pool that the index was filled from since it was opened.";
    Gauge "onefold_unmerged_entries" = unmerged_entries, "Mappings that are not counted exactly yet.";
    Gauge "onefold_buffered_entries" = buffered_entries, "Mappings that are durable and not in their leaves yet.";
    Counter "onefold_checkpoints_total" = metadata.checkpoints, "Checkpoints ended.";
    Counter "onefold_metadata_blocks_written_total" = metadata.blocks_written, "Blocks of metadata written.";
    Gauge "onefold_metadata_blocks_per_written_block" = metadata.per_written_block, "Blocks of metadata written for each of data.";
    Counter "onefold_metadata_table_blocks_written_total" = metadata.tables[table], "Blocks of metadata written, by table.";
    Gauge "onefold_device_rotational" = device.is_rotational, "1 if the disk under the pool counts as rotational.";
    Gauge "onefold_second_copies" = second_copies, "Blocks of the data that are second copies.";
    Gauge "onefold_memory_bytes" = memory_bytes, "Memory in use.";
    Gauge "onefold_memory_cap_bytes" = memory_cap_bytes, "Memory that may be used.";
    Gauge "onefold_memory_resizing" = memory_resizing, "1 while memory in use beyond the cap is still to be given back.";
    Gauge "onefold_mode" = mode[mode of MODES], "1 for the mode that the pool is in, 0 for the others.";
    Gauge "onefold_needs_recovery" = needs_recovery,
        "1 if the pool was not closed cleanly and no server has it: the figures are those that recovery will find.";
    Gauge "onefold_opened_seconds" = opened, "Time at which the server opened the pool, in seconds since 1970.";
    Gauge "onefold_host_full" = host_full, "1 if the file system under the pool is full.";
    Gauge "onefold_failed" = failure[as Option::is_some], "1 if the pool has failed: it is read-only until it is repaired.";
    Counter "onefold_damaged_blocks_found_total" = damaged_blocks_found, "Damaged blocks, pages and superblock copies found.";
    Gauge "onefold_damages_left" = damages_left, "Damage found and not repaired, as far as the last scrub knows.";
    Counter "onefold_repaired_blocks_total" = repaired_blocks, "Damaged blocks, pages and superblock copies repaired.";
    Gauge "onefold_scrub_state" = scrub.state[state of PassState::NAMES], "1 for the state of the last scrub, 0 for the others.";
    Gauge "onefold_scrub_started_seconds" = scrub.started, "Begin of the last scrub, in seconds since 1970.";
    Gauge "onefold_scrub_finished_seconds" = scrub.finished, "End of the last scrub, in seconds since 1970.";
    Gauge "onefold_scrub_blocks_done" = scrub.blocks_done, "Blocks that the last scrub has read.";
    Gauge "onefold_scrub_blocks" = scrub.blocks_total, "Blocks that the last scrub has to read.";
    Gauge "onefold_scrub_damages_found" = scrub.damages_found, "Damage that the last scrub has found.";
    Gauge "onefold_scrub_damages_repaired" = scrub.damages_repaired, "Damage that the last scrub has repaired.";
    Gauge "onefold_scrub_damages_left" = scrub.damages_left, "Damage that the last scrub has found and not repaired.";
    Gauge "onefold_dedup_state" = dedup.state[state of PassState::NAMES], "1 for the state of the last pass that finds duplicates, 0 for the others.";
    Gauge "onefold_dedup_done_ppm" = dedup.done_ppm, "Completed part of the pass, in millionths.";
    Gauge "onefold_dedup_left_seconds" = dedup.left_seconds, "Seconds until its end at the pace so far, if known.";
    Gauge "onefold_dedup_backlog_blocks" = dedup.backlog_blocks, "Blocks that wait for the next pass: those that came since the pool was opened, or were in the journal then.";
    Gauge "onefold_dedup_missed_blocks" = dedup.missed_blocks,
        "Blocks written since the pool was opened although their content was known, and that no pass has examined since.";
    Gauge "onefold_relocate_state" = relocate.state[state of PassState::NAMES], "1 for the state of the last run of a plan, 0 for the others.";
    Gauge "onefold_relocate_done_ppm" = relocate.done_ppm, "Completed part of the run, in millionths.";
    Gauge "onefold_relocate_left_seconds" = relocate.left_seconds, "Seconds until its end at the pace so far, if known.";
    Gauge "onefold_relocate_planned_blocks" = relocate.planned_blocks, "Blocks of the plan of the last run.";
    Gauge "onefold_relocate_moved_blocks" = relocate.moved_blocks, "Blocks that the last run has moved.";
    Gauge "onefold_relocate_referrers" = relocate.referrers, "Blocks that walks of the last run found and remapped to a copy.";
    Gauge "onefold_relocate_map_walks" = relocate.map_walks, "Walks of all maps by the last run.";
    Gauge "onefold_relocate_doubled_blocks" = relocate.doubled_blocks, "Blocks that the last run has left stored twice.";
    Gauge "onefold_throttle_share_ppm" = throttle.share_ppm, "Share of the device for background work under load, in millionths.";
    Gauge "onefold_throttle_miss_ppm" = throttle.miss_ppm, "The largest miss of all goals, in millionths of the goal; below 0 is headroom.";
    Gauge "onefold_throttle_pass_delay_seconds" = throttle.pass_delay_ns[as seconds],
        "With the paper's throttle: delay for each block that the pass has examined.";
    Gauge "onefold_throttle_p99_seconds" = throttle.p99_ns[as seconds], "The p99 of all requests at the last measurement.";
    Gauge "onefold_throttle_usual_p99_seconds" = throttle.usual_p99_ns[as seconds], "The usual p99 of all requests; 0 while unknown.";
    Gauge "onefold_requests_in_flight" = throttle.requests_in_flight, "Requests in flight.";
    Counter "onefold_dedup_shared_blocks_total" = dedup.shared_blocks, "Blocks that the pass has let share a slot.";
    Counter "onefold_dedup_kept_blocks_total" = dedup.kept_blocks, "Blocks that the pass has left apart, so that no run is split.";
    Counter "onefold_dedup_unequal_blocks_total" = dedup.unequal_blocks,
        "Pairs of blocks with equal digests that the pass has left apart, because reading both did not show the same bytes.";
    Counter "onefold_dedup_passes_total" = dedup.passes, "Completed passes.";
    Counter "onefold_dedup_scans_total" = dedup.scans, "Walks of all summaries by the pass.";
    Counter "onefold_dedup_map_walks_total" = dedup.map_walks, "Walks of all maps by the pass.";
    Gauge "onefold_dedup_spill_blocks" = dedup.spill_blocks, "Blocks of empty containers that the pass uses as spill space.";
    Counter "onefold_dedup_spill_written_blocks_total" = dedup.spill_written, "Blocks that the pass wrote there.";
    Counter "onefold_dedup_spill_read_blocks_total" = dedup.spill_read, "Blocks that the pass read again there.";
    Gauge "onefold_cache_shared_bytes" = cache.shared_bytes, "Bytes that index and read cache share.";
    Gauge "onefold_cache_index_bytes" = cache.index_bytes, "Bytes of the index.";
    Gauge "onefold_cache_index_entries" = cache.index_entries, "Entries that the index has space for.";
    Gauge "onefold_cache_read_bytes" = cache.read_bytes, "Bytes of the read cache.";
    Gauge "onefold_cache_index_share" = cache.index_share, "Thousandths of the shared bytes that the index has, or is moving to.";
    Counter "onefold_cache_index_ghost_hits_total" = cache.index_ghost_hits, "Blocks of writes that a larger index would have known, estimated.";
    Counter "onefold_cache_read_hits_total" = cache.read_hits, "Blocks of reads that were in memory.";
    Counter "onefold_cache_slot_hits_total" = cache.slot_hits, "Those of them that were in memory under their own slots.";
    Counter "onefold_cache_content_hits_total" = cache.content_hits, "Those of them that were in memory for another slot.";
    Gauge "onefold_cache_shared_blocks" = cache.shared_blocks, "Slots whose content is cached for another slot.";
    Counter "onefold_cache_read_misses_total" = cache.read_misses, "Blocks of reads that came from the store.";
    Counter "onefold_cache_read_ghost_hits_total" = cache.read_ghost_hits, "Blocks of reads that a larger read cache would have had.";
    Counter "onefold_cache_moves_total" = cache.moves, "Changes of the cache partition.";
    Counter "onefold_cache_copied_blocks_total" = cache.copied_blocks, "Cached blocks copied because their buffers went.";
    Counter "onefold_cache_prefetched_blocks_total" = cache.prefetched_blocks, "Blocks read ahead into a read cache that had grown.";
    Counter "onefold_cache_prefetched_entries_total" = cache.prefetched_entries, "Entries put into an index that had grown.";
    Counter "onefold_writes_requests_total" = writes.requests, "Writes.";
    Counter "onefold_writes_coalesced_requests_total" = writes.coalesced_requests, "Writes coalesced into others.";
    Counter "onefold_writes_written_blocks_total" = writes.written_blocks, "Blocks that got a slot of their own.";
    Counter "onefold_writes_zero_blocks_total" = writes.zero_blocks, "Blocks of zeroes.";
    Counter "onefold_writes_removed_blocks_total" = writes.removed_blocks, "Blocks that were not written because their content was known.";
    Counter "onefold_writes_removed_requests_total" = writes.removed_requests, "Writes of which nothing was left to write.";
    Counter "onefold_writes_unchanged_blocks_total" = writes.unchanged_blocks, "Blocks rewritten with the same content.";
    Counter "onefold_writes_index_hits_total" = writes.index_hits, "Blocks that were looked up and found in another slot.";
    Counter "onefold_writes_index_misses_total" = writes.index_misses, "Blocks that were looked up and not found.";
    Counter "onefold_writes_sizes_total" = writes.sizes[size], "Writes by the blocks that they touch.";
    Counter "onefold_writes_categories_total" = writes.categories[category], "Writes that were looked up, by category.";
    Counter "onefold_writes_what_if_blocks_total" = writes.what_if[policy].blocks, "Blocks that policies would have removed.";
    Counter "onefold_writes_what_if_requests_total" = writes.what_if[policy].requests, "Writes that policies would have removed.";
    Counter "onefold_reads_requests_total" = reads.requests, "Reads that were answered with data.";
    Counter "onefold_reads_from_device_total" = reads.from_device, "Reads for which blocks were read from the store.";
    Counter "onefold_reads_device_reads_total" = reads.device_reads, "Reads of the store for these.";
    Counter "onefold_reads_split_total" = reads.split, "Reads that took more than one of them.";
    Counter "onefold_reads_ahead_blocks_total" = reads.ahead_blocks, "Blocks read ahead of sequential readers.";
    Counter "onefold_reads_ahead_used_blocks_total" = reads.ahead_used, "Blocks read ahead that were used.";
    Counter "onefold_reads_ahead_gap_blocks_total" = reads.ahead_gaps, "Blocks read over between blocks read ahead.";
    Histogram "onefold_request_duration_seconds" = latency[kind],
        "Time from the header of a client's request until its reply was queued.";
    Counter "onefold_index_prefetch_pages_total" = index_prefetch.pages, "Summary pages processed because a block in one of their slots was found.";
    Counter "onefold_index_prefetch_loads_total" = index_prefetch.loads, "Reads of the store for them.";
    Counter "onefold_index_prefetch_entries_total" = index_prefetch.entries, "Digests inserted into the index.";
    Counter "onefold_index_prefetch_hits_total" = index_prefetch.hits, "Digests of them that a write looked up.";
    Gauge "onefold_replicas_budget_bytes" = replicas.budget_bytes, "Bytes that replicas may take.";
    Gauge "onefold_replicas_blocks" = replicas.blocks, "Blocks of the data that are replicas.";
    Gauge "onefold_replicas_noted_reads" = replicas.noted_reads, "Reads whose blocks are to be put in order.";
    Gauge "onefold_replicas_popular_runs" = replicas.popular_runs, "Runs of blocks whose reads are counted, to find popular ones.";
    Gauge "onefold_replicas_popular_blocks_most" = replicas.popular_blocks_most, "Popular blocks that get ten copies, at most.";
    Gauge "onefold_replicas_popular_blocks" = replicas.popular_blocks, "Popular blocks that have copies, or are to have them.";
    Gauge "onefold_replicas_popular_blocks_copied" = replicas.popular_blocks_copied, "Popular blocks that have ten copies.";
    Counter "onefold_replicas_made_blocks_total" = replicas.made_blocks, "Replicas written.";
    Counter "onefold_replicas_dropped_blocks_total" = replicas.dropped_blocks, "Replicas dropped.";
    Counter "onefold_replicas_read_blocks_total" = replicas.read_blocks, "Blocks that reads got from replicas.";
    Counter "onefold_replicas_reads_in_order_total" = replicas.reads_in_order, "Reads of another location, where blocks are consecutive.";
    Counter "onefold_replicas_reads_beside_total" = replicas.reads_beside, "Reads of another location, next to a read in flight.";
    Counter "onefold_replicas_reads_nearer_total" = replicas.reads_nearer, "Reads of another location, nearer to the heads of the disk.";
    Counter "onefold_replicas_hinted_blocks_total" = replicas.hinted_blocks, "Blocks that reads got from slots that the index named.";
    Counter "onefold_replicas_copied_blocks_total" = replicas.copied_blocks, "Blocks that reads got from copies in scratch zones.";
    Counter "onefold_replicas_wrong_blocks_total" = replicas.wrong_blocks, "Blocks whose other location was wrong or unreadable: they were read from their slots.";
    Gauge "onefold_flash_state" = flash.state[state of flash::STATES], "State of the flash in front of the store: 1 for the present one.";
    Gauge "onefold_flash_size_bytes" = flash.size_bytes, "Bytes of flash that are used.";
    Gauge "onefold_flash_held_bytes" = flash.held_bytes, "Bytes of the containers that flash has.";
    Gauge "onefold_flash_found_places" = flash.found_places, "Containers that were on flash when it was attached.";
    Gauge "onefold_flash_budget_left_bytes" = flash.budget_left_bytes, "Bytes that may be written to flash now.";
    Gauge "onefold_flash_budget_used_bytes" = flash.budget_used_bytes, "Bytes used of a day's budget.";
    Gauge "onefold_flash_life_days" = flash.life_days, "Days that flash lasts at the rate of writes so far, if known.";
    Counter "onefold_flash_read_blocks_total" = flash.read_blocks, "Blocks that reads got from flash.";
    Counter "onefold_flash_missed_blocks_total" = flash.missed_blocks, "Blocks that reads got from the store although there is flash.";
    Counter "onefold_flash_unproven_blocks_total" = flash.unproven_blocks, "Those of them that flash had, while the page that proves them was not in memory.";
    Counter "onefold_flash_failed_reads_total" = flash.failed_reads, "Reads of flash that failed; the store had it.";
    Counter "onefold_flash_bad_blocks_total" = flash.bad_blocks, "Blocks from flash that failed verification; the store had them.";
    Counter "onefold_flash_copied_containers_total" = flash.copied_containers, "Containers copied to flash.";
    Counter "onefold_flash_given_up_containers_total" = flash.given_up_containers, "Containers whose copy was given up.";
    Gauge "onefold_flash_quadrant_containers" = flash.quadrants[quadrant],
        "Containers found on flash and copied there, by PLC-Cache's quadrants.";
    Counter "onefold_flash_copied_bytes_total" = flash.copied_bytes, "Bytes of containers written to flash.";
    Counter "onefold_flash_log_bytes_total" = flash.log_bytes, "Bytes of its log written to flash.";
    Gauge "onefold_defrag_noted_regions" = defrag.noted_regions, "Scattered regions that wait to be put in order.";
    Counter "onefold_defrag_regions_total" = defrag.regions, "Regions that were put in order.";
    Counter "onefold_defrag_given_up_regions_total" = defrag.given_up_regions, "Regions that could not be put in order.";
    Counter "onefold_defrag_moved_blocks_total" = defrag.moved_blocks, "Blocks moved to put regions in order.";
    Gauge "onefold_defrag_waiting_regions" = defrag.waiting_regions, "Scattered regions that wait until containers have been emptied.";
    Gauge "onefold_defrag_empty_containers" = defrag.empty_containers, "Containers of which every slot is free.";
    Counter "onefold_defrag_emptied_containers_total" = defrag.emptied_containers, "Containers that were emptied.";
    Counter "onefold_defrag_emptied_blocks_total" = defrag.emptied_blocks, "Blocks moved to empty containers.";
    Gauge "onefold_defrag_allowance_blocks" = defrag.allowance_blocks, "Blocks that may be moved now.";
    Gauge "onefold_discard_held_bytes" = discard.held_bytes, "Bytes that the file system holds for the pool's file.";
    Gauge "onefold_discard_has_failed" = discard.has_failed, "1 if the file system or device refused a discard.";
    Counter "onefold_discard_discards_total" = discard.discards, "Ranges given back to the file system or device.";
    Counter "onefold_discard_discarded_bytes_total" = discard.discarded_bytes, "Bytes given back to the file system or device.";
    Gauge "onefold_discard_unreserved_bytes" = discard.unreserved_bytes, "Bytes of empty containers whose space is reserved before they are written.";
    Gauge "onefold_discard_is_due" = discard.is_due, "1 if space is being given back, or looked for.";
    Gauge "onefold_disk_index_buckets" = disk_index.buckets, "Pages of the complete index on disk.";
    Gauge "onefold_disk_index_entries" = disk_index.entries, "Blocks that are in it, estimated.";
    Gauge "onefold_disk_index_complete" = disk_index.complete, "1 if all blocks of data are in it.";
    Gauge "onefold_disk_index_behind" = disk_index.behind, "1 if blocks that were written offline are missing in it.";
    Counter "onefold_disk_index_lookups_total" = disk_index.disk_index_lookups, "Blocks of writes that were looked up in it.";
    Counter "onefold_disk_index_loads_total" = disk_index.disk_index_loads, "Pages read for these lookups.";
    Counter "onefold_disk_index_hits_total" = disk_index.disk_index_hits, "Blocks of them that it knew.";
    Counter "onefold_disk_index_filtered_total" = disk_index.disk_index_filtered, "Blocks of them that its filter denied.";
    Counter "onefold_disk_index_false_answers_total" = disk_index.disk_index_false_answers, "Blocks that it did not know though the filter had not denied them.";
    Gauge "onefold_disk_index_filter_bytes" = disk_index.filter_bytes, "Memory of its filter.";
    Gauge "onefold_disk_index_filter_buckets" = disk_index.filter_buckets, "Pages of it that the filter covers.";
};

/// Metrics of a volume.
pub const OF_VOLUME: &[Metric<VolumeReport>] = metrics! {
    Gauge "onefold_volume_size_bytes" = size_bytes, "Bytes of the volume as clients see it.";
    Gauge "onefold_volume_read_only" = read_only, "1 if writes to the volume are refused.";
    Gauge "onefold_volume_clients" = clients, "Clients connected to the volume.";
    Gauge "onefold_volume_snapshots" = snapshots, "Snapshots of the volume.";
    Gauge "onefold_volume_snapshot_blocks" = snapshot_blocks, "Mapped blocks of these snapshots, without inherited ones.";
    Gauge "onefold_volume_clones" = clones, "Volumes cloned from these snapshots.";
    Gauge "onefold_volume_offline" = timing_state.offline, "1 while writes are stored without a lookup for duplicates.";
    Counter "onefold_volume_mode_switches_total" = timing_state.switches, "Changes of the mode by a controller.";
    Gauge "onefold_volume_goal" = timing_state.setpoint, "The goal, in requests or bytes a second, or as a p99 in nanoseconds.";
    Gauge "onefold_volume_measured" = timing_state.measured, "Last measurement, in the unit of the goal; without one the p99.";
    Gauge "onefold_volume_miss_ppm" = timing_state.miss_ppm, "Distance from the goal, in millionths; below 0 is headroom.";
    Gauge "onefold_volume_stressed_ppm" = timing_state.stressed_ppm, "Requests in stress (HIODS 4.3), of a million.";
    Gauge "onefold_volume_logical_blocks_used" = logical_blocks_used, "Mapped blocks of the volume that are not zero.";
    Gauge "onefold_volume_referred_blocks" = referred_blocks, "Mapped blocks of the volume that are not zero, inherited ones included.";
    Gauge "onefold_volume_shared_percent" = shared_percent, "Mapped blocks in slots that other blocks have, too, in percent, once counted.";
    Gauge "onefold_volume_shared_error_percent" = shared_error_percent, "Standard error of that; 0: all blocks were examined.";
    Counter "onefold_volume_writes_requests_total" = writes.requests, "Writes of the volume.";
    Counter "onefold_volume_writes_coalesced_requests_total" = writes.coalesced_requests, "Writes of the volume coalesced into others.";
    Counter "onefold_volume_writes_written_blocks_total" = writes.written_blocks, "Blocks of the volume that got a slot of their own.";
    Counter "onefold_volume_writes_zero_blocks_total" = writes.zero_blocks, "Blocks of the volume of zeroes.";
    Counter "onefold_volume_writes_removed_blocks_total" = writes.removed_blocks, "Blocks of the volume that were not written because their content was known.";
    Counter "onefold_volume_writes_removed_requests_total" = writes.removed_requests, "Writes of the volume of which nothing was left to write.";
    Counter "onefold_volume_writes_unchanged_blocks_total" = writes.unchanged_blocks, "Blocks of the volume rewritten with the same content.";
    Counter "onefold_volume_writes_index_hits_total" = writes.index_hits, "Blocks of the volume that were looked up and found in another slot.";
    Counter "onefold_volume_writes_index_misses_total" = writes.index_misses, "Blocks of the volume that were looked up and not found.";
    Counter "onefold_volume_writes_sizes_total" = writes.sizes[size], "Writes of the volume by the blocks that they touch.";
    Counter "onefold_volume_writes_categories_total" = writes.categories[category], "Writes of the volume that were looked up, by category.";
    Counter "onefold_volume_writes_what_if_blocks_total" = writes.what_if[policy].blocks, "Blocks of the volume that policies would have removed.";
    Counter "onefold_volume_writes_what_if_requests_total" = writes.what_if[policy].requests, "Writes of the volume that policies would have removed.";
};
