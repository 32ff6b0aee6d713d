//! Report of the index and the read cache in `status`: their cache partition, and their hits (docs/reference/metrics.md).

use engine::{CacheSetting, Engine, PartitionChange, PartitionMode};
use serde::{Deserialize, Serialize};

use crate::report::define::report;
use crate::size;

report! {
    /// Partition of memory between index and read cache. Hits and misses are blocks since the pool was opened.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct CacheReport from (engine: &Engine) where {
        let status = engine.cache_status();
        let counts = status.counts;
        let writes = engine.write_counts();
    } {
        /// Setting in force, as it is written on the command line.
        setting: String = engine.cache_setting().unwrap_or_default().to_string(),
        /// True if the setting was stored in the pool.
        is_set: bool = engine.properties().cache().is_some(),
        /// Bytes that index and read cache share.
        shared_bytes: u64 = status.shared_bytes,
        /// Bytes of the index.
        index_bytes: u64 = status.index_bytes,
        /// Entries that the index has space for.
        index_entries: u64 = status.index_entries,
        /// Bytes of the read cache.
        read_bytes: u64 = status.read_bytes,
        /// Place of the boundary, or the one that it is moving to: thousandths of the shared bytes that are the index.
        index_share: u32 = status.index_share,
        /// Blocks that were looked up and found, as in the counts of writes.
        index_hits: u64 = writes.index_hits,
        /// Blocks that were looked up and not found, as in the counts of writes.
        index_misses: u64 = writes.index_misses,
        /// Blocks written that only a larger index would have known; an estimate.
        index_ghost_hits: u64 = counts.index_ghost_hits,
        /// Blocks read that were in memory.
        read_hits: u64 = counts.read_hits,
        /// Blocks of the read hits that were in memory under their own slots.
        slot_hits: u64 = counts.read_hits.saturating_sub(status.contents.hits),
        /// Blocks of the read hits that were found by content, in the buffer of another slot.
        content_hits: u64 = status.contents.hits,
        /// Slots whose content is in the buffer of another slot now: blocks that are held once and would be held twice.
        shared_blocks: u64 = status.contents.shared_blocks,
        /// Key by which the read cache finds blocks, as it is written on the command line.
        key: String = engine.properties().cache_key().to_string(),
        /// Blocks read from the device.
        read_misses: u64 = counts.read_misses,
        /// Blocks read that a larger read cache would have had.
        read_ghost_hits: u64 = counts.read_ghost_hits,
        /// Moves of the boundary.
        moves: u64 = counts.moves,
        /// Blocks copied in memory because of these moves.
        copied_blocks: u64 = counts.copied_blocks,
        /// Blocks read ahead into a read cache that had grown.
        prefetched_blocks: u64 = counts.prefetched_blocks,
        /// Entries put into an index that had grown.
        prefetched_entries: u64 = counts.prefetched_entries,
        /// Last 64 places of the boundary, the oldest first.
        history: Vec<PartitionReport> = engine.cache_history().map(PartitionReport::new).collect(),
    }
}

report! {
    /// A place of the boundary between index and read cache.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct PartitionReport from (change: PartitionChange) {
        /// Time since which it holds, in milliseconds since the server was started.
        since_ms: u64 = change.at / 1_000_000,
        /// Thousandths of the shared bytes that are the index.
        index_share: u32,
    }
}

impl CacheReport {
    /// Formats one line for the index and one for the read cache.
    pub fn rows(&self) -> [(&'static str, String); 2] {
        let percent = |hits: u64, misses: u64| {
            let percent = (hits * 100).checked_div(hits + misses);
            percent.map_or_else(|| "nothing looked up".into(), |percent: u64| format!("{percent} % hits"))
        };
        let moving = self.setting.parse::<CacheSetting>().map(|setting| setting.partition);
        let moving = if matches!(moving, Ok(PartitionMode::Adaptive(_))) { "adaptive" } else { "fixed" };
        let index = format!(
            "{:<12}{} entries, {}; {:.1} % of the memory that it shares with the read cache, {moving}",
            size::show(self.index_bytes),
            self.index_entries,
            percent(self.index_hits, self.index_misses),
            f64::from(self.index_share) / 10.0,
        );
        let by_content = if self.content_hits + self.shared_blocks == 0 {
            String::new()
        } else {
            format!("; {} by content, {} blocks held once for others", self.content_hits, self.shared_blocks)
        };
        let hits = percent(self.read_hits, self.read_misses);
        let read = format!("{:<12}{hits}{by_content}", size::show(self.read_bytes));
        [("index", index), ("read cache", read)]
    }
}
