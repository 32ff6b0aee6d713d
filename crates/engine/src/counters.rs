//! Counters of the engine's parts.

use alloc::boxed::Box;
use core::ops::{AddAssign, Sub};

/// Counts that are added to others of their type.
trait Count {
    /// Adds each figure of `more`.
    fn add(&mut self, more: Self);
}

impl Count for u64 {
    #[inline]
    fn add(&mut self, more: u64) {
        *self += more;
    }
}

impl<const N: usize> Count for [u64; N] {
    #[inline]
    fn add(&mut self, more: [u64; N]) {
        self.iter_mut().zip(&more).for_each(|(count, more)| *count += more);
    }
}

/// Defines counts whose fields are all added by `+=`.
macro_rules! counts {
    ($(#[$attribute:meta])* pub struct $counts:ident { $($(#[$of_field:meta])* pub $field:ident: $type:ty,)+ }) => {
        $(#[$attribute])*
        pub struct $counts {
            $($(#[$of_field])* pub $field: $type,)+
        }

        impl Count for $counts {
            #[inline]
            fn add(&mut self, more: $counts) {
                $(self.$field.add(more.$field);)+
            }
        }

        impl AddAssign for $counts {
            #[inline]
            fn add_assign(&mut self, more: $counts) {
                self.add(more);
            }
        }
    };
}

/// Counts of the engine's work since it was made, to judge the cost of requests. Nothing here depends on time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Pages of trees looked at: one for each page on the path of each lookup that found it in memory, and one for each page
    /// that a writer took onto its path. Those of the rebuild are among them.
    pub page_visits: u64,
    /// Times that a request was run from its first stage.
    pub request_runs: u64,
    /// Steps of checkpoints, those that had to wait included.
    pub checkpoint_steps: u64,
    /// Checkpoints that are durable.
    pub checkpoints: u64,
    /// Pages that checkpoints wrote.
    pub pages_written: PagesWritten,
    /// Page visits of the rebuild of the index.
    pub rebuild_page_visits: u64,
    /// Reads of metadata for the rebuild of the index.
    pub rebuild_loads: u64,
}

/// Pages of metadata that checkpoints have written, by their kind. Records of the journal are not among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PagesWritten {
    /// Of maps of volumes.
    pub maps: u64,
    /// Of the space map.
    pub space_map: u64,
    /// Of the reference counts.
    pub counts: u64,
    /// Of the summaries.
    pub summaries: u64,
    /// Of the log of the map buffer.
    pub map_buffer: u64,
    /// Of the index on disk.
    pub disk_index: u64,
    /// Of all other tables; and superblocks.
    pub others: u64,
}

impl Sub for PagesWritten {
    type Output = PagesWritten;

    fn sub(self, before: PagesWritten) -> PagesWritten {
        PagesWritten {
            maps: self.maps - before.maps,
            space_map: self.space_map - before.space_map,
            counts: self.counts - before.counts,
            summaries: self.summaries - before.summaries,
            map_buffer: self.map_buffer - before.map_buffer,
            disk_index: self.disk_index - before.disk_index,
            others: self.others - before.others,
        }
    }
}

impl PagesWritten {
    /// Returns the total of all kinds of pages.
    pub fn sum(&self) -> u64 {
        let PagesWritten { maps, space_map, counts, summaries, map_buffer, disk_index, others } = *self;
        maps + space_map + counts + summaries + map_buffer + disk_index + others
    }
}

counts! {
    /// Counts of write requests (not of zeroing and discarding) since the pool was opened or the volume was made. A request is the unit that the engine
    /// takes at once: docs/guide/policies.md. Each figure is defined in docs/reference/metrics.md.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct WriteCounts {
        /// Requests that were carried out.
        pub requests: u64,
        /// Writes that arrived together with another one and were carried out as a part of its request.
        pub coalesced_requests: u64,
        /// Requests by the blocks that they touch: 1, 2, up to 4, 8 and 16, more.
        pub sizes: [u64; 6],
        /// Requests that were looked up, by [`crate::dedup::policy::Category`], in its order.
        pub categories: [u64; 4],
        /// Blocks that got a slot of their own.
        pub written_blocks: u64,
        /// Blocks of zeroes.
        pub zero_blocks: u64,
        /// Blocks that were not written because their content was known, and requests that wrote nothing and had at least one such block.
        pub removed: Removed,
        /// Blocks that were rewritten with the same content: kept unchanged, or shared with the slot that they mapped to, as a merge found.
        pub unchanged_blocks: u64,
        /// Blocks that were looked up and found in another slot, through the index.
        pub index_hits: u64,
        /// Blocks that were looked up and found neither in the index nor in the same request.
        pub index_misses: u64,
        /// Blocks and requests that other policies would have removed, of those looked up.
        pub what_if: WhatIf,
    }
}

/// Counts of a volume's writes, which take memory from the first write on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeWrites(Option<Box<WriteCounts>>);

impl VolumeWrites {
    /// Returns the counts.
    pub fn counts(&self) -> WriteCounts {
        self.0.as_deref().copied().unwrap_or_default()
    }

    /// Returns true if there is memory for them.
    pub(crate) fn exist(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the counts, to be added to.
    pub(crate) fn counts_mut(&mut self) -> &mut WriteCounts {
        self.0.get_or_insert_default()
    }
}

counts! {
    /// Counts of read requests since the pool was opened. A request is the unit that the engine takes at once. Each figure is defined in
    /// docs/reference/metrics.md.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct ReadCounts {
        /// Requests that were answered with data.
        pub requests: u64,
        /// Requests for which something was read from the store.
        pub from_device: u64,
        /// Reads of the store for these requests.
        pub device_reads: u64,
        /// Requests that took more than one read.
        pub split: u64,
        /// Blocks that were read ahead of sequential readers.
        pub ahead_blocks: u64,
        /// Blocks that were read ahead and used.
        pub ahead_used: u64,
        /// Blocks between those read ahead that were read over.
        pub ahead_gaps: u64,
    }
}

/// Reads of a rotational store from another place than the slot that the map names: from the slot's replica, or from another slot with the same
/// content. Each figure is defined in docs/reference/metrics.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlaceCounts {
    /// Reads that went there because blocks follow each other there, and do not in their slots.
    pub in_order: u64,
    /// Reads that went there because a read in flight stood beside that place.
    pub beside: u64,
    /// Reads that went there because the place was nearer to the heads.
    pub nearer: u64,
    /// Blocks that were read from slots that the index named.
    pub hinted: u64,
    /// Blocks that were read from copies in scratch zones.
    pub copies: u64,
    /// Blocks of replicas or such slots with wrong content: they were read from their own slots.
    pub wrong: u64,
}

/// Counts of blocks that the read cache found by content, and that it holds once for several slots. Each figure is defined in docs/reference/metrics.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContentCounts {
    /// Blocks of reads that were found in memory by their contents and not by their slots, since the pool was opened.
    pub hits: u64,
    /// Slots whose content is in the buffer of another slot, now: blocks that are held once and would be held twice.
    pub shared_blocks: u64,
}

counts! {
    /// Blocks and requests that a policy removes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Removed {
        /// Blocks.
        pub blocks: u64,
        /// Requests: writes without a block left to write.
        pub requests: u64,
    }
}

counts! {
    /// Blocks and requests that the policies would have removed, each with its default threshold. (`native` removes nothing.)
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct WhatIf {
        /// Of `full`.
        pub full: Removed,
        /// Of `select`.
        pub select: Removed,
        /// Of `idedup`.
        pub idedup: Removed,
    }
}

impl WriteCounts {
    /// Returns the number of blocks that were written although their content was known.
    pub(crate) fn missed(&self) -> u64 {
        self.what_if.full.blocks.saturating_sub(self.removed.blocks)
    }
}
