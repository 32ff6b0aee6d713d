//! A set of slots, kept as extents that neither overlap nor touch.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Extent;

/// The labelled slots. Their memory grows with their extents, not with their number.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    /// From the first slot of each extent to the slot behind its last.
    extents: BTreeMap<u64, u64>,
}

impl Labels {
    /// Inserts slots. Returns the new ones among them, in ascending order.
    pub(super) fn insert(&mut self, extent: Extent) -> Vec<Extent> {
        let missing = self.missing(extent);
        let (mut first, mut end) = (extent.slot, extent.end());
        if let Some((&before, &before_end)) = self.extents.range(..first).next_back()
            && before_end >= first
        {
            (first, end) = (before, end.max(before_end));
        }
        while let Some((&next, &next_end)) = self.extents.range(first..=end).next() {
            end = end.max(next_end);
            self.extents.remove(&next);
        }
        self.extents.insert(first, end);
        missing
    }

    /// Returns those of the slots of an extent that are not labelled.
    pub(super) fn missing(&self, extent: Extent) -> Vec<Extent> {
        let mut at = extent.slot;
        let mut missing = Vec::new();
        if let Some((_, &end)) = self.extents.range(..=at).next_back() {
            at = at.max(end).min(extent.end());
        }
        for (&first, &end) in self.extents.range(at..extent.end()) {
            if first > at {
                missing.push(Extent { slot: at, blocks: first - at });
            }
            at = end;
        }
        if at < extent.end() {
            missing.push(Extent { slot: at, blocks: extent.end() - at });
        }
        missing
    }

    /// Returns all labelled slots, in ascending order.
    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.extents.iter().map(|(&slot, &end)| Extent { slot, blocks: end - slot })
    }
}
