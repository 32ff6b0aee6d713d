//! Sizes of the index on disk: buckets for a pool, entries in a bucket, pages for a number of changes.

use crate::format::geometry::Geometry;
use crate::format::layout::height_for;
use crate::format::superblock::{DiskIndexRecord, Root};

/// Number of bytes of an entry: slot plus one, tag. Zero: no entry.
pub(crate) const ENTRY_BYTES: u64 = 8;

/// Returns the number of entries of a bucket, which is one block.
pub(crate) fn bucket_entries(geometry: &Geometry) -> u64 {
    geometry.block() / ENTRY_BYTES
}

/// Returns the number of buckets for all slots of a pool: two thirds of each are filled.
pub(crate) fn buckets_for(geometry: &Geometry) -> u32 {
    u32::try_from((3 * geometry.slots()).div_ceil(2 * bucket_entries(geometry))).unwrap_or(u32::MAX)
}

/// Returns the reason why no pool of this geometry can have written such a record of its index, or `None` if one can have.
pub(crate) fn contradiction(geometry: &Geometry, record: DiskIndexRecord, root: Root) -> Option<&'static str> {
    let leaves = geometry.summary_leaves();
    if record.buckets > buckets_for(geometry) {
        Some("the index on disk has more buckets than the pool can use")
    } else if record.built < DiskIndexRecord::BEHIND && u64::from(record.built) > leaves {
        Some("the index on disk was built further than the summaries go")
    } else if !record.is_on() && (record.built > 0 || !root.pointer.is_none()) {
        Some("there is no index on disk, and yet a root of it, or blocks that were entered")
    } else {
        None
    }
}

/// Returns true if the pool has outgrown an index of `buckets` buckets: more than five sixths of each would be filled.
pub(crate) fn is_outgrown(geometry: &Geometry, buckets: u32) -> bool {
    6 * geometry.slots() > 5 * u64::from(buckets) * bucket_entries(geometry)
}

/// Bytes of a bucket for each byte of its part of the filter.
const FILTER_SHARE: u64 = 8;
/// Bytes of a line of the filter, which is that of a processor's cache.
pub(crate) const FILTER_LINE: u64 = 64;

/// Returns the number of lines of a bucket's part of the filter in memory, for buckets of `block` bytes.
pub(crate) fn filter_lines(block: u64) -> u64 {
    (block / FILTER_SHARE).div_ceil(FILTER_LINE)
}

/// Returns the bytes of memory of a filter that covers this many buckets of `block` bytes: their parts, and a bit each.
pub(crate) fn filter_bytes(covered: u32, block: u64) -> u64 {
    u64::from(covered) * filter_lines(block) * FILTER_LINE + u64::from(covered.div_ceil(64)) * 8
}

/// Returns the number of buckets of `block` bytes, of `buckets`, that a filter of `bytes` bytes can cover.
pub(crate) fn filtered_within(buckets: u32, block: u64, bytes: u64) -> u32 {
    (bytes / (filter_lines(block) * FILTER_LINE + 1)).min(buckets.into()) as u32
}

/// Returns the most pages that a change of `leaves` leaves of an index with `buckets` buckets writes.
pub(crate) fn pages_for(geometry: &Geometry, buckets: u32, leaves: u64) -> usize {
    let (mut pages, mut level) = (0, u64::from(buckets));
    for _ in 0..=height_for(buckets.into(), geometry.fanout()) {
        pages += leaves.min(level);
        level = level.div_ceil(geometry.fanout());
    }
    pages as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_outgrows_its_buckets_when_it_is_a_quarter_larger() {
        let size = |gib: u64| Geometry::for_capacity(gib << 30).unwrap();
        let buckets = buckets_for(&size(10));
        assert_eq!(buckets, 8640);
        assert!(
            !is_outgrown(&size(10), buckets) && !is_outgrown(&size(12), buckets) && is_outgrown(&size(13), buckets)
        );
        // Three GiB a TiB.
        let pages = pages_for(&size(1024), buckets_for(&size(1024)), u64::MAX) as u64;
        assert!((780_000..795_000).contains(&pages), "{pages}");
        assert_eq!(pages_for(&size(10), 7920, 2), 2 + 2 + 1);
    }

    #[test]
    fn memory_bounds_the_filter() {
        assert_eq!((filtered_within(6912, 4096, u64::MAX), filter_bytes(6912, 4096)), (6912, 6912 * 512 + 864));
        let covered = filtered_within(789_504, 4096, 32 << 20);
        assert_eq!((covered, filtered_within(5, 512, 10)), (65_408, 0));
        assert!(filter_bytes(covered, 4096) <= 32 << 20);
    }
}
