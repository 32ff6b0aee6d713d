//! The placement of the blocks of a region: pure.
//!
//! ```text
//! target    the slot of the region's first block; block n of it belongs n slots further on. Where most of the region lies in a row
//!           already, that row determines its target
//! return    displaced blocks go to their target slots, if these are free: one write for each displaced block
//! move      where there is no such row, all of it goes to an empty container: one write for each block. So does, when the pool is idle, a
//!           region whose target slots others have (`mod.rs`)
//! stays     shared blocks, whose referrers a move would have to remap, and blocks in use by another job
//! ```

use alloc::vec::Vec;

use crate::format::entry::Slot;

/// Largest gap in slots that counts as none. A device read may cover longer ones, at the cost of their transfer.
const GAP_SLOTS: i64 = 8;

/// A block of a region: its distance from the first one, its slot, and true if it may be moved: the slot is this block's alone, has no I/O,
/// no replica and no place in a plan of relocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lies {
    pub place: u64,
    pub slot: Slot,
    pub is_alone: bool,
}

impl Lies {
    /// Returns the slot of the region's first block if all of it lay in a row with this one.
    fn target(&self) -> i64 {
        self.slot.0 as i64 - self.place as i64
    }
}

/// Decision about a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plan {
    /// The region is in order, or its displaced blocks cannot be moved.
    Leave,
    /// Unshared displaced blocks go to their places in the row in which at least half of the region lies. The value is the slot that the region's
    /// first block has, or would have, in that row (it can be negative).
    Return(i64),
    /// All of the region goes to an empty container.
    Move,
}

/// Counts the pieces in which the region lies: each takes one device read, or several if it is long. No piece extends into another container, of
/// `container` slots. A device read covers gaps of `gap` slots. `slots` is working memory.
fn pieces(region: &[Lies], container: i64, gap: u32, slots: &mut Vec<i64>) -> usize {
    let gap = GAP_SLOTS.min(gap.into());
    slots.clear();
    slots.extend(region.iter().map(|block| block.slot.0 as i64));
    slots.sort_unstable();
    let breaks = |pair: &&[i64]| pair[1] - pair[0] > gap + 1 || pair[0] / container != pair[1] / container;
    usize::from(!slots.is_empty()) + slots.windows(2).filter(breaks).count()
}

/// Decides about a region of these blocks, which are in order of their places. Containers have `container` slots, and a
/// device read covers gaps of `gap` slots. `work` is working memory: a caller that examines many regions keeps it.
pub(crate) fn plan(region: &[Lies], container: i64, gap: u32, work: &mut Vec<i64>) -> Plan {
    // A target that begins within a container ends in the next one.
    if pieces(region, container, gap, work) <= 2 {
        return Plan::Leave;
    }
    let targets = work;
    targets.clear();
    targets.extend(region.iter().map(Lies::target));
    targets.sort_unstable();
    let row = targets.chunk_by(|one, next| one == next).max_by_key(|row| row.len());
    let Some((target, length)) = row.map(|row| (row[0], row.len())) else { return Plan::Leave };
    let displaced = region.iter().filter(|block| block.is_alone && block.target() != target).count();
    let alone = region.iter().filter(|block| block.is_alone).count();
    match () {
        () if 2 * length >= region.len() && displaced > 0 => Plan::Return(target),
        // Half of it in order is worth a write for each block of that half; less is not.
        () if 2 * length < region.len() && 2 * alone >= region.len() => Plan::Move,
        () => Plan::Leave,
    }
}

/// Returns the blocks that can be moved and are not in their target slots, each with its target slot. A target at the edge of the pool has no slot
/// for some of them.
pub(crate) fn displaced(region: &[Lies], target: i64) -> impl Iterator<Item = (Lies, Slot)> + '_ {
    region.iter().filter(move |block| block.is_alone && block.target() != target).filter_map(move |&block| {
        let to = u64::try_from(target + block.place as i64).ok()?;
        Some((block, Slot(to)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(region: &[Lies]) -> Plan {
        plan(region, 1024, 8, &mut Vec::new())
    }

    fn region(slots: impl IntoIterator<Item = u64>) -> Vec<Lies> {
        let lies = |(place, slot)| Lies { place, slot: Slot(slot), is_alone: true };
        (0..).zip(slots).map(lies).collect()
    }

    #[test]
    fn what_lies_in_order_stays_wherever_its_holes_are() {
        assert_eq!(planned(&region(100..200)), Plan::Leave);
        assert_eq!(planned(&region((100..300).step_by(2))), Plan::Leave);
        let apart = region((100..300).step_by(2));
        assert_eq!(plan(&apart, 1024, 0, &mut Vec::new()), Plan::Move, "a device read covers no gap");
        assert_eq!(planned(&[]), Plan::Leave);
    }

    #[test]
    fn what_was_overwritten_goes_back_to_its_place() {
        let region = region((100..200).map(|slot| if slot % 10 == 3 { 20 * slot } else { slot }));
        assert_eq!(planned(&region), Plan::Return(100));
        let places: Vec<_> = displaced(&region, 100).map(|(block, to)| (block.place, to.0)).collect();
        assert_eq!(places, (0..10).map(|n| (10 * n + 3, 100 + 10 * n + 3)).collect::<Vec<_>>());
    }

    #[test]
    fn what_lies_everywhere_goes_to_an_empty_container() {
        assert_eq!(planned(&region((0..100).map(|place| 7919 * place % 1009 * 16))), Plan::Move);
    }

    #[test]
    fn shared_blocks_stay() {
        let mut region = region((0..100).map(|place| 7919 * place % 1009 * 16));
        region.iter_mut().for_each(|block| block.is_alone = false);
        assert_eq!(planned(&region), Plan::Leave);
    }

    #[test]
    fn a_target_that_would_begin_before_the_pool_has_no_place_for_its_first_blocks() {
        let region = region([900, 901, 902, 0, 1, 2, 3]);
        let places: Vec<_> = displaced(&region, -3).map(|(block, to)| (block.place, to.0)).collect();
        assert_eq!(places, []);
        assert_eq!(displaced(&region, -1).map(|(_, to)| to.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    }
}
