//! Pages of a map by level and number, and the ranges of blocks that it has from ancestors (RFC 0020): for a check and for a repair.

use core::ops::Deref;

use alloc::vec::Vec;

use crate::format::bytes::u64_at;
use crate::format::entry::Entry;
use crate::format::geometry::Geometry;
use crate::format::superblock::{Pointer, Root};
use crate::format::volume::MAX_BLOCKS;

/// Returns the first block of a page's subtree and the one behind its last.
pub(super) fn span(geometry: &Geometry, level: u8, index: u64) -> (u64, u64) {
    let span = geometry.fanout().saturating_pow(level.into()).saturating_mul(geometry.map_leaf_entries());
    let first = index.saturating_mul(span).min(MAX_BLOCKS);
    (first, first.saturating_add(span).min(MAX_BLOCKS))
}

/// Returns the pointer of a map to a page, or to a subtree that has it: none beyond the root's tree. `None` if a page on the way cannot be read.
pub(super) fn pointer_at<Page: Deref<Target = [u8]>>(
    fanout: u64,
    page: &mut dyn FnMut(Pointer, u8) -> Option<Page>,
    Root { mut pointer, height }: Root,
    (level, index): (u8, u64),
) -> Option<Pointer> {
    let number = |above: u8| index.checked_div(fanout.saturating_pow(u32::from(above - level))).unwrap_or(0);
    if level > height || number(height) > 0 {
        return Some(Pointer::NONE);
    }
    for below in (level..height).rev() {
        if !pointer.has_page() {
            break;
        }
        let child = number(below) % fanout;
        pointer = Pointer::read(&page(pointer, below + 1)?, child as usize * 16);
    }
    Some(pointer)
}

/// Collects those blocks of a range that a subtree has from ancestors: the epoch of FROM, the first block and the one behind the last. Pages that cannot be read
/// are passed over.
pub(super) fn inherited_ranges<Page: Deref<Target = [u8]>>(
    geometry: &Geometry,
    page: &mut dyn FnMut(Pointer, u8) -> Option<Page>,
    pointer: Pointer,
    (level, index): (u8, u64),
    range: (u64, u64),
    found: &mut Vec<(u64, u64, u64)>,
) {
    let (first, end) = span(geometry, level, index);
    let (from, to) = (first.max(range.0), end.min(range.1));
    if pointer.is_none() || pointer.is_lost() || from >= to {
        return;
    }
    if let Some(epoch) = pointer.inherited_from() {
        return found.push((epoch, from, to));
    }
    let Some(bytes) = page(pointer, level) else { return };
    if level > 0 {
        let fanout = geometry.fanout();
        for child in 0..fanout {
            let below = (level - 1, index.saturating_mul(fanout) + child);
            inherited_ranges(geometry, page, Pointer::read(&bytes, child as usize * 16), below, range, found);
        }
        return;
    }
    for lba in from..to {
        let entry = Entry(u64_at(&bytes, (lba - first) as usize * 8));
        found.extend(entry.inherited_from().map(|epoch| (epoch, lba, lba + 1)));
    }
}

/// Sorts ranges and unites those that touch.
pub(super) fn unite(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let touches = next.0 <= last.1;
        if touches {
            last.1 = last.1.max(next.1);
        }
        touches
    });
}
