//! Report of requests in `status`: the counters of docs/reference/metrics.md, as JSON and for people.

use engine::{IndexPrefetchCounts, ReadCounts, Removed, WhatIf, WriteCounts};
use serde::{Deserialize, Serialize};

use crate::report::define::report;
use crate::report::share::whole_percent;

report! {
    /// Counts of writes since the pool was opened.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct WritesReport from (counts: WriteCounts) {
        /// Write requests.
        requests: u64,
        /// Further writes, which were carried out as a part of one of `requests`.
        #[serde(default)]
        coalesced_requests: u64,
        /// Writes by their size.
        #[serde(default)]
        sizes: SizesReport = SizesReport::new(counts.sizes),
        /// Writes that were looked up, by category.
        categories: CategoriesReport = CategoriesReport::new(counts.categories),
        /// Blocks that got a slot of their own.
        written_blocks: u64,
        /// Blocks of zeroes.
        zero_blocks: u64,
        /// Blocks that were not written because their content was known.
        removed_blocks: u64 = counts.removed.blocks,
        /// Removed blocks in percent of removed and written ones: the part of the written data that is saved.
        #[serde(default)]
        removed_percent: u64 = whole_percent(counts.removed.blocks, counts.removed.blocks + counts.written_blocks),
        /// Writes of which nothing was left to write.
        removed_requests: u64 = counts.removed.requests,
        /// Blocks that were rewritten with the content that they had.
        unchanged_blocks: u64,
        /// Blocks that were looked up and found in another slot.
        #[serde(default)]
        index_hits: u64,
        /// Blocks that were looked up and found neither in another slot nor in the same request.
        #[serde(default)]
        index_misses: u64,
        /// Blocks and requests that other policies would have removed.
        what_if: WhatIfReport = WhatIfReport::new(counts.what_if),
    }
}

report! {
    /// Requests by the blocks of 4096 bytes that they touch.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct SizesReport from (sizes: [u64; 6]) {
        /// One block.
        to_4k: u64 = sizes[0],
        /// Two blocks.
        to_8k: u64 = sizes[1],
        /// Up to 4 blocks.
        to_16k: u64 = sizes[2],
        /// Up to 8 blocks.
        to_32k: u64 = sizes[3],
        /// Up to 16 blocks.
        to_64k: u64 = sizes[4],
        /// More than 16 blocks.
        larger: u64 = sizes[5],
    }
    named u64
}

report! {
    /// Requests by POD's categories.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct CategoriesReport from (categories: [u64; 4]) {
        /// No category: no block was known.
        unknown: u64 = categories[0],
        /// I: known as a whole, sequential on disk.
        sequential: u64 = categories[1],
        /// II: less known than the threshold.
        scattered: u64 = categories[2],
        /// III: at least the threshold known.
        partial: u64 = categories[3],
    }
    named u64
}

report! {
    /// Blocks and requests that policies would have removed, each with its default threshold.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct WhatIfReport from (what_if: WhatIf) where {
        let WhatIf { full, select, idedup } = what_if;
    } {
        /// Removed by `native`: nothing.
        native: RemovedReport = RemovedReport::default(),
        /// Removed by `full`.
        full: RemovedReport = RemovedReport::new(full),
        /// Removed by `select`.
        select: RemovedReport = RemovedReport::new(select),
        /// Removed by `idedup`.
        idedup: RemovedReport = RemovedReport::new(idedup),
    }
    named RemovedReport
}

report! {
    /// Blocks and requests that need not be written.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct RemovedReport of Removed {
        /// Blocks that were removed.
        blocks: u64,
        /// Requests of which nothing was left to write.
        requests: u64,
    }
}

report! {
    /// Counts of reads since the pool was opened.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct ReadsReport of ReadCounts {
        /// Reads that were answered with data.
        requests: u64,
        /// Reads for which something was read from the store.
        from_device: u64,
        /// Reads of the store for these requests.
        device_reads: u64,
        /// Requests that took more than one read of the store.
        split: u64,
        /// Blocks read ahead of sequential readers.
        #[serde(default)]
        ahead_blocks: u64,
        /// Blocks read ahead that were used.
        #[serde(default)]
        ahead_used: u64,
        /// Blocks between those read ahead that were read over.
        #[serde(default)]
        ahead_gaps: u64,
    }
}

impl ReadsReport {
    /// Formats the counts in one line for people; empty if there were no reads.
    pub fn text(&self) -> String {
        if self.requests == 0 {
            return String::new();
        }
        let (from_device, device_reads, split) = (self.from_device, self.device_reads, self.split);
        format!(
            "\n  reads since the pool was opened: {} requests, {from_device} from the store in {device_reads} reads, {split} split; {} blocks read ahead, {} of them used\n",
            self.requests, self.ahead_blocks, self.ahead_used
        )
    }
}

report! {
    /// Counts of digests that were put into the index because a block beside theirs was found.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
    pub struct IndexPrefetchReport from (counts: IndexPrefetchCounts) where {
        let IndexPrefetchCounts { loads, hits, pages: _, entries: _ } = counts;
    } {
        /// Summary pages that were walked.
        pages: u64,
        /// Reads of the store for these pages.
        loads: u64,
        /// Entries that the index took.
        entries: u64,
        /// Entries of these that a write found.
        hits: u64,
        /// Hits for each read of the store.
        hits_per_load: f64 = hits as f64 / loads.max(1) as f64,
    }
}

impl IndexPrefetchReport {
    /// Formats the counts in one line for people; empty if no page was walked.
    pub fn text(&self) -> String {
        let IndexPrefetchReport { pages, loads, entries, hits, hits_per_load } = self;
        if *pages == 0 {
            return String::new();
        }
        format!(
            "  {:<12}{entries} entries of {pages} pages, {hits} hits; {loads} reads, {hits_per_load:.1} hits each\n",
            "prefetch"
        )
    }
}

impl WritesReport {
    /// Formats the counts as lines for people; empty if there were no writes.
    pub fn text(&self) -> String {
        if self.requests == 0 {
            return String::new();
        }
        let CategoriesReport { unknown, sequential, scattered, partial } = self.categories;
        let looked_up = unknown + sequential + scattered + partial;
        let mut text = format!("\n  writes since the pool was opened: {} requests", self.requests);
        if self.coalesced_requests > 0 {
            text.push_str(&format!(", with {} more coalesced into them", self.coalesced_requests));
        }
        text.push('\n');
        let mut row = |name: &str, value: String| text.push_str(&format!("  {name:<12}{value}\n"));
        let SizesReport { to_4k, to_8k, to_16k, to_32k, to_64k, larger } = self.sizes;
        row(
            "size",
            format!("4K {to_4k}, 8K {to_8k}, to 16K {to_16k}, to 32K {to_32k}, to 64K {to_64k}, larger {larger}"),
        );
        if looked_up > 0 {
            let categories = format!("I {sequential}, II {scattered}, III {partial}, nothing known {unknown}");
            row("category", categories);
            row("index", format!("{} blocks found, {} not", self.index_hits, self.index_misses));
        }
        let (written, removed, zero) = (self.written_blocks, self.removed_blocks, self.zero_blocks);
        row("blocks", format!("{written} written, {removed} removed, {zero} zero"));
        row("removed", format!("{} requests; {} blocks had it already", self.removed_requests, self.unchanged_blocks));
        if looked_up > 0 {
            let WhatIfReport { full, select, idedup, .. } = &self.what_if;
            for (policy, removed) in [("full", full), ("select", select), ("idedup", idedup)] {
                let what = format!("{policy:<8}removes {} blocks, {} requests", removed.blocks, removed.requests);
                row("what if", what);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_every_figure_once_there_is_one() {
        assert_eq!(WritesReport::default().text(), "");
        let removed = |blocks, requests| Removed { blocks, requests };
        let mut counts =
            WriteCounts { requests: 1001, written_blocks: 1002, zero_blocks: 1003, ..WriteCounts::default() };
        counts.removed = removed(1004, 1005);
        counts.unchanged_blocks = 1006;
        counts.coalesced_requests = 1007;
        counts.sizes = [1008, 1009, 1010, 1011, 1012, 1013];
        let native = WritesReport::new(counts).text();
        assert!((1001..=1013).all(|figure| native.matches(&figure.to_string()).count() == 1), "{native}");
        assert!(!native.contains("what if"));
        counts.categories = [2001, 2002, 2003, 2004];
        (counts.index_hits, counts.index_misses) = (2005, 2006);
        counts.what_if.full = removed(3001, 3002);
        counts.what_if.select = removed(3003, 3004);
        counts.what_if.idedup = removed(3005, 3006);
        let text = WritesReport::new(counts).text();
        assert!((2001..=2006).chain(3001..=3006).all(|figure| text.contains(&figure.to_string())), "{text}");
    }
}
