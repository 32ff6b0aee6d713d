//! Count of the mapped blocks of a map's parent that the map does not inherit, from the two maps side by side: for the audit, and for a repair, which puts it
//! in place. It costs the pages of the map, those of the parent beside them, and those that the parent has where the map is empty.

use alloc::rc::Rc;

use crate::api::VolumeId;
use crate::audit::inherited::pointer_at;
use crate::block_map::discards::{Discard, HiddenRange};
use crate::format::bytes::u64_at;
use crate::format::entry::Entry;
use crate::format::superblock::{Pointer, Root};
use crate::pool::volumes::table::VolumeTable;

/// Reads a page of a map; `None` if it cannot be read.
type ReadPage<'r> = dyn FnMut(Pointer, u8) -> Option<Rc<[u8]>> + 'r;

/// Hidden blocks of a map. Lost blocks of the parent count if the map had overwritten or trimmed them before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct HiddenBlocks {
    pub mapped: u64,
    pub lost: u64,
}

/// Subtree of a map as it is read: the page of the map or of an ancestor, whose map comes with it.
#[derive(Clone, Copy)]
enum View {
    Empty,
    Lost,
    Page(VolumeId, Pointer),
}

/// Count in progress.
pub(super) struct HiddenCount<'c, 'r> {
    pub volumes: &'c VolumeTable,
    pub fanout: u64,
    pub leaf_entries: u64,
    pub read: &'c mut ReadPage<'r>,
}

impl HiddenCount<'_, '_> {
    /// Counts the blocks that a map hides of its parent; `None` if pages cannot be read. Those of a snapshot that is handed over are its child's.
    pub(super) fn of(&mut self, map: VolumeId) -> Option<HiddenBlocks> {
        let giver = self.volumes.giver();
        if giver == Some(map) {
            return Some(HiddenBlocks::default());
        }
        let mut found = self.below_parent(map)?;
        if let Some(giver) = giver.filter(|_| giver == self.volumes.lineage().parent(map)) {
            let HiddenBlocks { mapped, lost } = self.below_parent(giver)?;
            let root = self.volumes.map(self.volumes.find(map)?);
            let mut taken = HiddenBlocks::default();
            self.taken((map, giver), root.pointer, (root.height, 0), &mut taken)?;
            found.mapped = (found.mapped + mapped).saturating_sub(taken.mapped);
            found.lost = found.lost.saturating_add(lost).saturating_add(taken.lost);
        }
        Some(found)
    }

    /// Counts the blocks of its parent that a map does not inherit.
    fn below_parent(&mut self, map: VolumeId) -> Option<HiddenBlocks> {
        let mut found = HiddenBlocks::default();
        let Some(parent) = self.volumes.lineage().parent(map) else { return Some(found) };
        let own = self.volumes.map(self.volumes.find(map)?);
        let above = self.volumes.map(self.volumes.find(parent)?);
        // A smaller tree is the first subtree of one as high as the other.
        let height = own.height.max(above.height);
        self.compare((own, map), (above, parent), (height, 0), &mut found)?;
        Some(found)
    }

    /// Counts the mapped blocks of a range of leaves that an ancestor has.
    pub(super) fn in_range(&mut self, range: HiddenRange) -> Option<HiddenBlocks> {
        let mut found = HiddenBlocks::default();
        let ancestor = self.volumes.lineage().ancestor_for(range.volume, range.epoch)?;
        let height = self.volumes.map(self.volumes.find(ancestor)?).height;
        let mut leaf = range.first;
        while leaf < range.end {
            // The largest subtree that begins here: most leaves of a large map are empty.
            let (mut level, mut span) = (0, 1);
            while level < height && leaf.is_multiple_of(span * self.fanout) && range.end - leaf >= span * self.fanout {
                (level, span) = (level + 1, span * self.fanout);
            }
            let place = (level, leaf / span);
            let view = self.resolve(range.volume, Pointer::inherited(range.epoch), place)?;
            self.count(view, place, &mut found)?;
            leaf += span;
        }
        Some(found)
    }

    /// Counts the blocks of a subtree that was cut off a map, as far as the map had them from ancestors; in a given one, those with slots.
    pub(super) fn in_discard(&mut self, discard: Discard) -> Option<HiddenBlocks> {
        let mut found = HiddenBlocks::default();
        if discard.is_given {
            self.with_slots(discard.pointer, discard.level, &mut found)?;
        } else if let Some(index) = discard.index {
            self.inherited(discard.volume, discard.pointer, (discard.level, index), &mut found)?;
        }
        Some(found)
    }

    fn with_slots(&mut self, pointer: Pointer, level: u8, found: &mut HiddenBlocks) -> Option<()> {
        if !pointer.has_page() {
            return Some(());
        }
        let page = (self.read)(pointer, level)?;
        if level == 0 {
            found.mapped +=
                page.chunks_exact(8).filter(|entry| Entry(u64_at(entry, 0)).slot().is_some()).count() as u64;
            return Some(());
        }
        page.chunks_exact(16).try_for_each(|child| self.with_slots(Pointer::read(child, 0), level - 1, found))
    }

    /// Counts the blocks that a map inherits from beyond a snapshot which is handed over to it, where that has nothing any more: it seems to hide them.
    fn taken(
        &mut self,
        (map, giver): (VolumeId, VolumeId),
        pointer: Pointer,
        (level, index): (u8, u64),
        found: &mut HiddenBlocks,
    ) -> Option<()> {
        let lower = self.volumes.lineage().ancestors(map).next()?.lower;
        let above = self.volumes.map(self.volumes.find(giver)?);
        if let Some(epoch) = pointer.inherited_from() {
            let is_taken = epoch <= lower && self.pointer(above, (level, index))?.is_none();
            let view = if is_taken { self.resolve(map, pointer, (level, index))? } else { View::Empty };
            return self.count(view, (level, index), found);
        }
        if !pointer.has_page() {
            return Some(());
        }
        let page = (self.read)(pointer, level)?;
        if level == 0 {
            let is_older = |entry: &&[u8]| Entry(u64_at(entry, 0)).inherited_from().is_some_and(|epoch| epoch <= lower);
            let older = page.chunks_exact(8).filter(is_older).count() as u64;
            if older > 0 && self.pointer(above, (0, index))?.is_none() {
                found.mapped += older;
            }
            return Some(());
        }
        for child in 0..self.fanout {
            let place = (level - 1, index.checked_mul(self.fanout)? + child);
            self.taken((map, giver), Pointer::read(&page, child as usize * 16), place, found)?;
        }
        Some(())
    }

    fn inherited(
        &mut self,
        map: VolumeId,
        pointer: Pointer,
        (level, index): (u8, u64),
        found: &mut HiddenBlocks,
    ) -> Option<()> {
        if pointer.inherited_from().is_some() {
            let view = self.resolve(map, pointer, (level, index))?;
            return self.count(view, (level, index), found);
        }
        if !pointer.has_page() {
            return Some(());
        }
        let page = (self.read)(pointer, level)?;
        if level == 0 {
            let entries = page.chunks_exact(8).filter(|entry| Entry(u64_at(entry, 0)).inherited_from().is_some());
            found.mapped += entries.count() as u64;
            return Some(());
        }
        for child in 0..self.fanout {
            let place = (level - 1, index.checked_mul(self.fanout)? + child);
            self.inherited(map, Pointer::read(&page, child as usize * 16), place, found)?;
        }
        Some(())
    }

    /// Returns the pointer of a map to a subtree, or to one that has it. A smaller tree is the first subtree of a larger one.
    fn pointer(&mut self, root: Root, (level, index): (u8, u64)) -> Option<Pointer> {
        if level > root.height && index == 0 {
            return Some(root.pointer);
        }
        pointer_at(self.fanout, &mut *self.read, root, (level, index))
    }

    /// Follows FROM in a map to the ancestor that has the subtree.
    fn resolve(&mut self, mut map: VolumeId, mut pointer: Pointer, place: (u8, u64)) -> Option<View> {
        while let Some(epoch) = pointer.inherited_from() {
            map = self.volumes.lineage().ancestor_for(map, epoch)?;
            pointer = self.pointer(self.volumes.map(self.volumes.find(map)?), place)?;
        }
        Some(match pointer {
            pointer if pointer.has_page() => View::Page(map, pointer),
            pointer if pointer.is_lost() => View::Lost,
            _ => View::Empty,
        })
    }

    /// Compares the subtrees of a map and of its parent from their roots down, in trees of one height.
    fn compare(
        &mut self,
        (own, map): (Root, VolumeId),
        (above, parent): (Root, VolumeId),
        (height, index): (u8, u64),
        found: &mut HiddenBlocks,
    ) -> Option<()> {
        // Levels that one of the trees does not have: its root is the first child there.
        let mut level = height;
        while level > own.height.min(above.height) {
            level -= 1;
            for child in 1..self.fanout {
                let view = match above.height > level {
                    true => {
                        let pointer = self.pointer(above, (level, child))?;
                        self.resolve(parent, pointer, (level, child))?
                    }
                    false => View::Empty,
                };
                let mine = if own.height > level { self.pointer(own, (level, child))? } else { Pointer::NONE };
                self.beside((map, mine), view, (level, child), found)?;
            }
        }
        let (mine, pointer) = (self.pointer(own, (level, index))?, self.pointer(above, (level, index))?);
        let view = self.resolve(parent, pointer, (level, index))?;
        self.beside((map, mine), view, (level, index), found)
    }

    /// Counts the hidden blocks in a subtree of the parent.
    fn beside(
        &mut self,
        (map, own): (VolumeId, Pointer),
        view: View,
        (level, index): (u8, u64),
        found: &mut HiddenBlocks,
    ) -> Option<()> {
        if own.inherited_from().is_some() {
            return Some(());
        }
        let View::Page(ancestor, pointer) = view else { return self.count(view, (level, index), found) };
        if !own.has_page() {
            return self.count(view, (level, index), found);
        }
        let (own, page) = ((self.read)(own, level)?, (self.read)(pointer, level)?);
        if level == 0 {
            for (own, its) in own.chunks_exact(8).zip(page.chunks_exact(8)) {
                if Entry(u64_at(own, 0)).inherited_from().is_none() {
                    found.add(Entry(u64_at(its, 0)));
                }
            }
            return Some(());
        }
        for child in 0..self.fanout {
            let place = (level - 1, index * self.fanout + child);
            let view = self.resolve(ancestor, Pointer::read(&page, child as usize * 16), place)?;
            self.beside((map, Pointer::read(&own, child as usize * 16)), view, place, found)?;
        }
        Some(())
    }

    /// Counts the blocks of a subtree.
    fn count(&mut self, view: View, (level, index): (u8, u64), found: &mut HiddenBlocks) -> Option<()> {
        let (map, pointer) = match view {
            View::Empty => return Some(()),
            View::Lost => {
                let leaves = self.fanout.saturating_pow(level.into());
                found.lost = found.lost.saturating_add(leaves.saturating_mul(self.leaf_entries));
                return Some(());
            }
            View::Page(map, pointer) => (map, pointer),
        };
        let page = (self.read)(pointer, level)?;
        if level == 0 {
            page.chunks_exact(8).for_each(|entry| found.add(Entry(u64_at(entry, 0))));
            return Some(());
        }
        for child in 0..self.fanout {
            let place = (level - 1, index * self.fanout + child);
            let view = self.resolve(map, Pointer::read(&page, child as usize * 16), place)?;
            self.count(view, place, found)?;
        }
        Some(())
    }
}

impl HiddenBlocks {
    /// Adds a block of the parent that the map does not inherit.
    fn add(&mut self, entry: Entry) {
        self.mapped += u64::from(entry.slot().is_some() || entry.inherited_from().is_some());
        self.lost += u64::from(entry.is_lost());
    }
}
