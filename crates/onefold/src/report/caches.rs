//! Report of the index and the read cache in `status`: their cache partition, and their hits (docs/counters.md).

use engine::{CacheSetting, Engine, PartitionMode};
use serde::{Deserialize, Serialize};

use crate::size;

/// Partition of memory between index and read cache. Hits and misses are blocks since the pool was opened.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheReport {
    /// Setting in force, as it is written on the command line.
    pub setting: String,
    /// True if the setting was stored in the pool.
    pub is_set: bool,
    /// Bytes that index and read cache share.
    pub shared_bytes: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Entries that the index has space for.
    pub index_entries: u64,
    /// Bytes of the read cache.
    pub read_bytes: u64,
    /// Place of the boundary, or the one that it is moving to: thousandths of the shared bytes that are the index.
    pub index_share: u32,
    /// Blocks that were looked up and found, as in the counts of writes.
    pub index_hits: u64,
    /// Blocks that were looked up and not found, as in the counts of writes.
    pub index_misses: u64,
    /// Blocks written that only a larger index would have known; an estimate.
    pub index_ghost_hits: u64,
    /// Blocks read that were in memory.
    pub read_hits: u64,
    /// Blocks of the read hits that were in memory under their own slots.
    pub slot_hits: u64,
    /// Blocks of the read hits that were found by content, in the buffer of another slot.
    pub content_hits: u64,
    /// Slots whose content is in the buffer of another slot now: blocks that are held once and would be held twice.
    pub shared_blocks: u64,
    /// Key by which the read cache finds blocks, as it is written on the command line.
    pub key: String,
    /// Blocks read from the device.
    pub read_misses: u64,
    /// Blocks read that a larger read cache would have had.
    pub read_ghost_hits: u64,
    /// Moves of the boundary.
    pub moves: u64,
    /// Blocks copied in memory because of these moves.
    pub copied_blocks: u64,
    /// Blocks read ahead into a read cache that had grown.
    pub prefetched_blocks: u64,
    /// Entries put into an index that had grown.
    pub prefetched_entries: u64,
    /// Last 64 places of the boundary, the oldest first.
    pub history: Vec<PartitionReport>,
}

/// A place of the boundary between index and read cache.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionReport {
    /// Time since which it holds, in milliseconds since the server was started.
    pub since_ms: u64,
    /// Thousandths of the shared bytes that are the index.
    pub index_share: u32,
}

impl CacheReport {
    /// Collects the engine's figures.
    pub fn new(engine: &Engine) -> CacheReport {
        let status = engine.cache_status();
        let (counts, writes) = (status.counts, engine.write_counts());
        let history = engine.cache_history();
        CacheReport {
            setting: engine.cache_setting().unwrap_or_default().to_string(),
            is_set: engine.pool_cache().is_some(),
            shared_bytes: status.shared_bytes,
            index_bytes: status.index_bytes,
            index_entries: status.index_entries,
            read_bytes: status.read_bytes,
            index_share: status.index_share,
            index_hits: writes.index_hits,
            index_misses: writes.index_misses,
            index_ghost_hits: counts.index_ghost_hits,
            read_hits: counts.read_hits,
            slot_hits: counts.read_hits.saturating_sub(status.contents.hits),
            content_hits: status.contents.hits,
            shared_blocks: status.contents.shared_blocks,
            key: engine.cache_key().to_string(),
            read_misses: counts.read_misses,
            read_ghost_hits: counts.read_ghost_hits,
            moves: counts.moves,
            copied_blocks: counts.copied_blocks,
            prefetched_blocks: counts.prefetched_blocks,
            prefetched_entries: counts.prefetched_entries,
            history: history
                .map(|change| PartitionReport { since_ms: change.at / 1_000_000, index_share: change.index_share })
                .collect(),
        }
    }

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
