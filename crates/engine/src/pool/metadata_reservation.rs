//! Reservation of metadata pages: an upper bound on the pages that a checkpoint takes, and admission of changes when pages get short. It keeps
//! a copy-on-write checkpoint from running out of pages midway.
//!
//! A checkpoint writes every page to a free block. The block of the replaced page is free only when the new superblock is durable. So the free
//! blocks must cover all pages that a checkpoint writes, and these are counted before a change is admitted. The count is an upper bound because:
//!
//! - A tree is written in ascending order of leaves, so each of its pages at most once. (Maps: twice, for clears and for points.)
//! - A page of a map is written only if it lies on the path to a leaf that changes. On each level there is at most one such page for each
//!   distinct page address among the keys of the delta ([`Paths`] counts these as points come), and at most all pages that the volumes can
//!   have there. In a volume a million times as large as its pool, nearly every block has leaf and interior pages to itself.
//! - A clear changes two leaves, one at each end. The subtrees between them are cut off, not written.
//! - The other tables change at most one leaf for each slot that is new or changes its count. Their size is bounded by the pool's size. The
//!   log, the list of discards and the table of volumes are as long as their entries need.
//! - A subtree that was cut off is walked only as far as there is space, but always at least one page ([`Pool::discard_budget`]).
//!
//! At any moment the free pages must cover two bounds. One is for the checkpoint in progress: its count at the beginning less the pages that it
//! has taken ([`Pool::left_to_take`]). The other is for the next checkpoint, which merges the active delta. The bounds are added, so neither
//! checkpoint counts on pages that the other gives back.
//!
//! Mappings in the map buffer have a claim to the pages that their leaves need. A change that makes this claim larger is admitted only while
//! these pages are free. But a checkpoint needs none of them: mappings without space stay in the buffer.
//!
//! The kinds of change, in the order in which they are refused, so that each later one can still proceed:
//!
//! ```text
//! New       maps a block that no leaf has yet: leaves the shares of all below free
//! Overwrite changes existing leaves, and gives back the pages that it replaces
//! Clear     frees, of whole blocks: leaves only the reserve free
//! reserve   no client's: an empty checkpoint, a walk of cut-off pages, and a repair that rewrites every table but maps and summaries
//! ```

mod paths;

pub(crate) use paths::{LEVELS, MetadataReservation, PagesByLevel, Paths};

use super::Pool;
use crate::api::Full;
use crate::block_map::delta::Delta;
use crate::block_map::discards::{DISCARD_BYTES, MUCH_HIDDEN, WalkBudget};
use crate::format::entry::Key;
use crate::format::geometry::Geometry;
use crate::format::layout::height_for;
use crate::format::superblock::TreeId;
use crate::mutant::Mutant;
use crate::pool::checkpoint_state::CheckpointProgress;
use crate::pool::state::Phase;

/// Margin of pages where the count cannot be exact.
const SLACK: u64 = 2;
/// Number of volumes that a hand-over changes.
const HANDED: u64 = 2;
/// Maximum number of places that a checkpoint hands over: pages, whole subtrees, leaves.
const PLACES: u64 = 128;
/// Maximum number of volumes whose figures are compared with a walk at each review.
#[cfg(feature = "mutants")]
const CHECKED_VOLUMES: usize = 64;
/// Maximum number of map pages that the reserve holds for a repair.
const REPAIRED_PAGES: u64 = 64;

/// Kind of change that asks for space: see the module header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MetadataUser {
    New,
    Overwrite,
    Clear,
}

/// Change that asks for space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub who: MetadataUser,
    /// Changed blocks, plus one if the request is a clear.
    pub changes: usize,
    /// Number of leaves that contain the blocks, at most.
    pub leaves: u64,
    /// True if the blocks follow each other.
    pub are_together: bool,
    pub cleared: Option<Cleared>,
}

impl Asked {
    /// Asks for `blocks` new blocks at any addresses, each perhaps in a separate leaf.
    pub(crate) fn scattered(blocks: usize) -> Asked {
        Asked { who: MetadataUser::New, changes: blocks, leaves: blocks as u64, are_together: false, cleared: None }
    }

    /// Asks for a clear, with partial blocks at its ends. These are written: where no mapping existed, they take pages and keep them.
    pub(crate) fn clear(changes: usize, cleared: Cleared) -> Asked {
        let leaves = changes as u64 - 1;
        let who = if leaves > 0 { MetadataUser::New } else { MetadataUser::Clear };
        Asked { who, changes, leaves, are_together: false, cleared: Some(cleared) }
    }

    /// Asks for no changes.
    fn nothing() -> Asked {
        Asked { changes: 0, ..Asked::scattered(0) }
    }

    /// Asks for new blocks that follow each other, in the given number of leaves.
    fn together(blocks: usize, leaves: u64) -> Asked {
        Asked { who: MetadataUser::New, changes: blocks, leaves, are_together: true, cleared: None }
    }

    /// Returns the number of pages of a level on the paths to the changed leaves, at most.
    fn pages(&self, level: u32, geometry: &Geometry) -> u64 {
        let above = geometry.fanout().saturating_pow(level);
        if self.are_together { self.leaves.min(self.leaves.div_ceil(above) + 1) } else { self.leaves }
    }
}

/// Changes that a checkpoint merges, as counted for the bound on its pages.
struct Merged {
    paths: PagesByLevel,
    clears: u64,
    /// New slots, and slots that change their counts, as far as the delta names them.
    new_slots: u64,
    slots: u64,
    /// Number of subtrees that are cut off.
    cuts: u64,
    /// Mappings that may enter the map buffer.
    points: u64,
    /// Leaves whose new mappings stay in the map buffer, beside those on the paths.
    kept: u64,
}

impl Pool {
    // ---- the bound ----

    /// Counts the changes of a delta, with the paths to its points, together with the requested ones.
    fn merging(&self, delta: &Delta, paths: PagesByLevel, asked: &Asked) -> Merged {
        let (points, slots) = (delta.points().len() as u64, delta.slots().len() as u64);
        let more = self.merging_alone(asked);
        let mut pages = paths;
        pages.iter_mut().zip(more.paths).for_each(|(pages, more)| *pages += more);
        Merged {
            paths: pages,
            clears: delta.clears().len() as u64 + more.clears,
            new_slots: slots + more.new_slots,
            slots: slots + points + more.slots,
            cuts: delta.cuts() + delta.releases() / self.metadata.geometry().map_leaf_entries() + more.cuts,
            points: points + more.points,
            kept: 0,
        }
    }

    /// Counts the requested changes, without a delta.
    fn merging_alone(&self, asked: &Asked) -> Merged {
        let geometry = self.metadata.geometry();
        let more = asked.changes as u64;
        let cleared = asked.cleared.unwrap_or(Cleared { cuts: 0, releases: 0 });
        Merged {
            paths: core::array::from_fn(|level| asked.pages(level as u32, geometry)),
            clears: u64::from(asked.cleared.is_some()),
            new_slots: more,
            slots: 3 * more,
            // The released mappings may be the last ones of leaves, which are then cut off.
            cuts: cleared.cuts + cleared.releases.div_ceil(geometry.map_leaf_entries()),
            points: more,
            kept: 0,
        }
    }

    /// Returns the most pages that a checkpoint takes to merge these changes and to walk this part of the cut-off subtrees; one page, at least.
    fn pages_to_merge(&self, merged: &Merged, walked: WalkBudget) -> u64 {
        let walked = if walked.is_spent() { WalkBudget::ONE_PAGE } else { walked };
        let geometry = self.metadata.geometry();
        let capacity = self.durable.volumes.map_pages();
        let mut pages = if merged.paths[0] > 0 { self.durable.reservation.raised } else { 0 };
        for (&wanted, &all) in merged.paths.iter().zip(capacity) {
            pages += wanted.min(all) + (2 * merged.clears).min(all);
        }
        if self.mutant(Mutant::SpaceCountedLow) {
            pages = merged.paths[0].min(capacity[0]) + 2 * merged.clears;
        }
        // Partly cleared leaves, walked leaves, and mappings that a clear or a leaf takes out of the map buffer release slots that no delta names.
        let per_leaf = geometry.map_leaf_entries();
        let released = walked.most_released(per_leaf) + 2 * merged.clears * per_leaf;
        // Each leaf of a map, also one that only the buffer has mappings of, each clear and each walked page may be of another volume.
        let touched = merged.paths[0] + merged.kept + merged.clears + walked.most_pages() + HANDED;
        let slots =
            merged.slots + released + (self.durable.map_buffer.len() + self.durable.frozen.points().len()) as u64;
        pages
            + self.pages_to_hand_over(walked)
            + self.table_pages(TreeId::Summaries, merged.new_slots)
            + self.table_pages(TreeId::SpaceMap, slots)
            + self.table_pages(TreeId::Counts, slots)
            + self.table_pages(TreeId::Containers, u64::MAX)
            + self.list_pages(merged.cuts, walked.most_pages(), touched)
            + self.pages_of_log(merged.points + self.durable.frozen.points().len() as u64)
            + SLACK
    }

    /// Returns the number of places that a checkpoint with this budget hands over, at most.
    pub(crate) fn places_to_hand_over(&self, budget: WalkBudget) -> u64 {
        let levels = self.map_levels();
        budget.most_pages().min(PLACES).min(u64::from(budget.releases) / (4 * levels) + 1)
    }

    /// Returns the most pages of maps that a hand-over with this budget writes: the paths to each place in the child's map, and the one at which it ends in
    /// both.
    pub(crate) fn pages_to_hand_over(&self, budget: WalkBudget) -> u64 {
        if !self.durable.volumes.lineage().has_maps() {
            return 0;
        }
        let places = if self.hand_over().is_some() { self.places_to_hand_over(budget) } else { 1 };
        (places + 2) * self.map_levels()
    }

    /// Returns the most pages of the discard list, which is written as a whole, and of the leaves of the volume table that have the changed volumes and
    /// `touched` others.
    fn list_pages(&self, cuts: u64, walked: u64, touched: u64) -> u64 {
        let geometry = self.metadata.geometry();
        // The subtree at the end of the list is walked first, so the list holds the pages of one path at a time; and ranges to be counted, up to those of one
        // page more than many. A hand-over ends when as many subtrees are to be walked as a page has. A rollback adds one.
        let (ranges, listed) = match self.durable.volumes.lineage().has_maps() {
            true => (MUCH_HIDDEN as u64 + geometry.fanout(), geometry.fanout() + self.checkpoint.rollback_count()),
            false => (0, 0),
        };
        let grows = (walked * geometry.fanout()).min(self.durable.reservation.levels * geometry.fanout() + ranges);
        let discards = self.durable.discards.entries() as u64 + self.durable.frozen.cuts() + cuts + grows + listed + 1;
        let discard_leaves =
            discards.div_ceil(geometry.block() / DISCARD_BYTES as u64).max(self.durable.discards.leaves());
        let (changed, leaves) = self.durable.volumes.leaves_to_write(touched);
        self.tree_pages(TreeId::Discards, discard_leaves, discard_leaves)
            + self.tree_pages(TreeId::Volumes, changed, leaves)
    }

    fn pages_of_log(&self, new: u64) -> u64 {
        let leaves = self.log_pages(new);
        self.tree_pages(TreeId::MapBuffer, leaves, leaves)
    }

    /// Returns the most pages written by changing `changed` leaves of a table whose size depends on the pool's size.
    fn table_pages(&self, tree: TreeId, changed: u64) -> u64 {
        self.tree_pages(tree, changed, self.table_leaves(tree))
    }

    /// Returns the most pages written by changing `changed` leaves of a tree that has `leaves` leaves.
    fn tree_pages(&self, tree: TreeId, changed: u64, leaves: u64) -> u64 {
        let fanout = self.metadata.geometry().fanout();
        let (mut pages, mut level, mut height) = (changed.min(leaves), leaves, 0);
        while level > 1 {
            level = level.div_ceil(fanout);
            height += 1;
            pages += changed.min(level);
        }
        // Where the tree becomes higher, or once was, there are pages with one child.
        pages + if changed > 0 { u64::from(self.durable.root(tree).height).abs_diff(height) } else { 0 }
    }

    /// Returns the number of pages that flushing the whole map buffer would write, with the mappings that the checkpoint in progress may add to it.
    pub(crate) fn claimed(&self) -> u64 {
        if !self.uses_map_buffer() {
            return 0;
        }
        let capacity = self.durable.volumes.map_pages();
        let buffered = self.durable.reservation.buffered.of_at_most(self.durable.map_buffer.len() as u64);
        let kept = self.durable.reservation.frozen.of_at_most(self.durable.frozen.points().len() as u64);
        if self.mutant(Mutant::SpaceCountedLow) {
            return (buffered[0] + kept[0]).min(capacity[0]);
        }
        capacity.iter().enumerate().map(|(level, all)| (buffered[level] + kept[level]).min(*all)).sum()
    }

    // ---- the reservation ----

    /// Recounts the parts that stay the same while blocks are written. Callers run it after volumes, deltas or the map buffer have changed as a whole.
    pub(crate) fn review_space(&mut self) {
        #[cfg(feature = "mutants")]
        if self.durable.volumes.len() <= CHECKED_VOLUMES {
            assert!(self.durable.volumes.is_consistent(), "figures over all volumes equal those of a walk");
        }
        let geometry = *self.metadata.geometry();
        self.durable.reservation.levels = u64::from(self.durable.volumes.highest_map()) + 1;
        self.durable.reservation.raised = self.durable.volumes.raised();
        let levels = self.durable.reservation.levels;
        let tables =
            [TreeId::SpaceMap, TreeId::Counts, TreeId::Containers].map(|tree| self.table_pages(tree, u64::MAX));
        let tables: u64 = tables.iter().sum();
        let alone = |asked: &Asked| self.pages_to_merge(&self.merging_alone(asked), WalkBudget::ONE_PAGE);
        let empty = alone(&Asked::nothing());
        let repair =
            tables + self.list_pages(0, 0, u64::MAX) + (u64::from(geometry.metadata_blocks) / 64).min(REPAIRED_PAGES);
        // The longest clear, with a partial block at each end, and the longest write.
        let cuts = 2 * (geometry.fanout() - 1) * (levels - 1);
        let clear = alone(&Asked::clear(3, Cleared { cuts, releases: 2 * geometry.map_leaf_entries() }));
        let piece = geometry.piece_blocks as usize + 1;
        let overwrite = alone(&Asked::together(piece + 1, piece as u64 / geometry.map_leaf_entries() + 2));
        // Each needs the pages of an empty checkpoint, too. Those are free again when it has ended.
        self.durable.reservation.reserve = repair.max(empty);
        (self.durable.reservation.for_clear, self.durable.reservation.for_overwrite) =
            (clear - empty, overwrite - empty);
        self.durable.reservation.fixed = tables
            + self.table_pages(TreeId::Summaries, u64::MAX)
            + self.list_pages(0, levels, u64::MAX)
            + self.pages_to_hand_over(WalkBudget::ONE_PAGE)
            + self.pages_of_log(self.durable.frozen.points().len() as u64)
            + self.durable.reservation.raised
            + self.durable.reservation.buffered.total
            + if self.uses_map_buffer() { self.durable.reservation.frozen.total } else { 0 }
            + self.kept_from(MetadataUser::New)
            + 3 * SLACK;
    }

    /// Returns the number of free pages that this kind of change must leave.
    fn kept_from(&self, who: MetadataUser) -> u64 {
        let MetadataReservation { reserve, for_clear, for_overwrite, .. } = self.durable.reservation;
        match who {
            MetadataUser::Clear => reserve,
            MetadataUser::Overwrite => reserve + for_clear,
            MetadataUser::New => {
                (reserve + for_clear + for_overwrite).max(u64::from(self.metadata.geometry().metadata_blocks) / 64)
            }
        }
    }

    /// Returns the number of levels of the highest map.
    pub(crate) fn map_levels(&self) -> u64 {
        self.durable.reservation.levels
    }

    pub(crate) fn left_of(&self, in_progress: &CheckpointProgress) -> u64 {
        (in_progress.promised + in_progress.index_pages as u64)
            .saturating_sub(self.metadata.allocator().taken() - in_progress.taken_before)
    }

    /// Returns true if there is space for a volume of `leaves` leaves, or for one to grow to that size. A later clear of it must find space.
    pub(crate) fn has_metadata_for_volume(&self, leaves: u64) -> bool {
        let levels = u64::from(height_for(leaves, self.metadata.geometry().fanout())) + 1;
        let more = levels.saturating_sub(self.durable.reservation.levels) * 8 + SLACK;
        self.kept_from(MetadataUser::Overwrite) + more <= u64::from(self.metadata.allocator().free())
    }

    /// Returns true if a grown pool, with its longer tables, still has the space that is reserved for trims. No checkpoint may be in progress.
    pub(crate) fn has_metadata_when_grown(&mut self, grown: Geometry) -> bool {
        let more = grown.metadata_blocks - self.metadata.geometry().metadata_blocks;
        let now = self.metadata.replace_geometry(grown);
        self.review_space();
        let empty = self.pages_to_merge(&self.merging_alone(&Asked::nothing()), WalkBudget::ONE_PAGE);
        let kept = empty + self.kept_from(MetadataUser::Overwrite);
        self.metadata.replace_geometry(now);
        self.review_space();
        kept <= u64::from(self.metadata.allocator().free()) + u64::from(more)
    }

    /// Remembers until the pool has grown that a write of new blocks was refused because the pool is full in this respect.
    pub(crate) fn note_refused(&mut self, full: Full) {
        self.durable.refused = Some(full);
    }

    /// Returns the full resource if writes of new blocks are refused now, for the longest request of consecutive blocks. Metadata comes first: overwrites need
    /// it, too.
    pub(crate) fn full(&self, clears_left: bool) -> Option<Full> {
        if !matches!(self.state.phase(), Phase::Serving | Phase::Closing) || self.state.read_only() {
            return None;
        }
        let geometry = self.metadata.geometry();
        let blocks = geometry.piece_blocks as usize + 1;
        let asked = Asked::together(blocks, blocks as u64 / geometry.map_leaf_entries() + 2);
        // A refusal stands until there is space; no client has to retry to find out.
        let was_refused = |full| self.durable.refused == Some(full);
        let gives = self.is_reclaimable(clears_left) || self.has_to_flush();
        // An offered growth counts until a refusal in spite of it: the driver renews its offer if it could not keep the last one.
        let is_refused = was_refused(Full::Metadata) || !gives && !self.may_get_metadata();
        if !self.has_metadata(&asked) && !self.is_growing() && is_refused {
            return Some(Full::Metadata);
        }
        let left = self.durable.space.free() + self.durable.space.pending().len() as u64;
        let is_full = left < geometry.spare_slots() + blocks as u64 && !self.has_discards();
        (is_full && (was_refused(Full::Data) || !gives)).then_some(Full::Data)
    }

    /// Returns true if maps are short of pages: less than an eighth of the metadata is left for new blocks.
    pub(crate) fn is_metadata_short(&self) -> bool {
        self.unclaimed_metadata() < u64::from(self.metadata.geometry().metadata_blocks) / 8
    }

    // ---- checkpoints ----

    /// Returns the most pages that a checkpoint may take when it has just begun and frozen the delta, and the part of the cut-off subtrees that it walks.
    pub(crate) fn promise_pages(&self, walks: bool) -> (u64, WalkBudget) {
        let paths = self.durable.reservation.frozen.of_at_most(self.durable.frozen.points().len() as u64);
        let merged = self.merging(&self.durable.frozen, paths, &Asked::nothing());
        let least = self.pages_to_merge(&merged, WalkBudget::ONE_PAGE);
        let walked =
            if walks { self.discard_budget(least + self.durable.reservation.reserve) } else { WalkBudget::default() };
        (self.pages_to_merge(&merged, walked), walked)
    }

    /// Returns the part of the cut-off subtrees that a checkpoint walks, if it takes `taken` pages without them: at least one page. Half of the remaining free
    /// pages must hold the counts and states of the slots that the walk releases.
    fn discard_budget(&self, taken: u64) -> WalkBudget {
        let geometry = self.metadata.geometry();
        let most = self.limits.discarded(geometry);
        let free = u64::from(self.metadata.allocator().free()).saturating_sub(taken);
        // The last leaf may exceed the budget.
        let releases = (free / 2 / 2 + 1).saturating_sub(geometry.map_leaf_entries());
        WalkBudget { releases: (releases as u32).clamp(1, most.releases), ..most }
    }

    /// Returns the most pages of a checkpoint that writes just these leaves of maps and walks this part of the cut-off subtrees. With `kept`, all new mappings
    /// stay in the map buffer, and the pages of its log for `kept` mappings are added.
    pub(crate) fn pages_planned(
        &self,
        leaves: impl Iterator<Item = Key>,
        walked: WalkBudget,
        kept: Option<u64>,
    ) -> u64 {
        let mut paths = Paths::new(self.metadata.geometry());
        leaves.for_each(|first| paths.note(first));
        let all = self.durable.reservation.frozen.of_at_most(self.durable.frozen.points().len() as u64);
        let merged = Merged { kept: all[0], ..self.merging(&self.durable.frozen, paths.pages, &Asked::nothing()) };
        let mut pages = self.pages_to_merge(&merged, walked);
        if let Some(kept) = kept.filter(|_| self.log_pages(1) == 0) {
            let leaves = self.log_leaves(kept);
            pages += self.tree_pages(TreeId::MapBuffer, leaves, leaves);
        }
        pages
    }

    /// Returns true if the leaves of all new mappings find no space: the journal comes from a server that had more space, or counted less.
    pub(crate) fn lacks_space_for_leaves(&self, in_progress: &CheckpointProgress) -> bool {
        in_progress.promised > u64::from(self.metadata.allocator().free()) && !self.mutant(Mutant::SpaceCountedLow)
    }

    /// Checks at the end of a checkpoint if it has taken more pages than promised, and remembers the largest excess.
    pub(crate) fn note_taken(&mut self, in_progress: &CheckpointProgress) {
        let taken = self.metadata.allocator().taken() - in_progress.taken_before;
        self.durable.reservation.beyond =
            self.durable.reservation.beyond.max(taken.saturating_sub(in_progress.promised));
    }

    /// Asks for `changes` changes of consecutive blocks, from the first key to the last.
    pub(crate) fn asked_in_a_row(&self, first: Key, last: Key, changes: usize) -> Asked {
        let bits = self.durable.reservation.active.bits[0];
        Asked::together(changes, (last.0 >> bits) - (first.0 >> bits) + 1)
    }
}

impl Pool {
    /// Returns the number of pages that the checkpoint in progress may still take; 0 if there is none.
    pub(crate) fn left_to_take(&self) -> u64 {
        self.checkpoint.in_progress().map_or(0, |in_progress| self.left_of(in_progress))
    }

    /// Returns true if there is metadata for this change and for all earlier promises.
    pub(crate) fn has_metadata(&self, asked: &Asked) -> bool {
        let free = u64::from(self.metadata.allocator().free());
        let MetadataReservation { fixed, levels, ref active, .. } = self.durable.reservation;
        let clears = self.durable.delta.clears().len() as u64 + 1;
        let changes = (self.durable.delta.points().len() + asked.changes) as u64;
        let cleared = asked.cleared.map_or(0, |cleared| cleared.cuts + cleared.releases);
        let entries = self.durable.delta.cuts() + self.durable.delta.releases() + cleared + changes;
        // Most pools have enough space for this coarse bound to decide.
        let roughly = fixed.saturating_add(active.total + levels * (2 * clears + asked.leaves) + entries / 8);
        if roughly.saturating_add(self.left_to_take()) <= free {
            return true;
        }
        let claimed = if asked.who == MetadataUser::New { self.claimed() } else { 0 };
        self.needed_for(asked) + claimed + self.kept_from(asked.who) <= free
    }

    /// Returns the pages that the checkpoint in progress may still take, plus those that the next one takes with this change.
    fn needed_for(&self, asked: &Asked) -> u64 {
        let paths = self.durable.reservation.active.of_at_most(self.durable.delta.points().len() as u64);
        self.left_to_take()
            + self.pages_to_merge(&self.merging(&self.durable.delta, paths, asked), WalkBudget::ONE_PAGE)
    }

    /// Returns the number of free pages without a claim: beyond both checkpoints, the map buffer, and the pages that new blocks must leave.
    pub(crate) fn unclaimed_metadata(&self) -> u64 {
        let claims = self.needed_for(&Asked::nothing()) + self.claimed() + self.kept_from(MetadataUser::New);
        u64::from(self.metadata.allocator().free()).saturating_sub(claims)
    }

    /// Returns the number of free pages without a claim when a checkpoint has frozen the delta but not begun.
    pub(crate) fn metadata_to_begin(&self) -> u64 {
        self.unclaimed_metadata().saturating_sub(self.promise_pages(false).0)
    }

    /// Returns true if the checkpoint in progress, the next one, and what new blocks must leave find space: the pages of leaves that snapshots hold do not come
    /// back with it.
    pub(crate) fn spares_metadata_for_leaves(&self, in_progress: &CheckpointProgress) -> bool {
        let next = if self.durable.delta.is_empty() { 0 } else { self.needed_for(&Asked::nothing()) };
        self.left_of(in_progress) + next + self.kept_from(MetadataUser::New)
            <= u64::from(self.metadata.allocator().free())
    }

    /// Returns the number of free pages that the checkpoint in progress and the next one can do without.
    pub(crate) fn metadata_to_flush(&self, in_progress: &CheckpointProgress) -> u64 {
        // The kept pages are enough for the next one if it has nothing to merge.
        let next = if self.durable.delta.is_empty() { 0 } else { self.needed_for(&Asked::nothing()) };
        let needed = self.left_of(in_progress) + next + self.kept_from(MetadataUser::New);
        u64::from(self.metadata.allocator().free()).saturating_sub(needed)
    }
}

impl Pool {
    /// Returns the most pages that a checkpoint has taken beyond its count, which is made before it takes any. Above 0, writes were admitted for which the pool
    /// may have no space.
    pub(crate) fn pages_beyond_promise(&self) -> u64 {
        self.durable.reservation.beyond
    }
}

/// Answer to a change that asks for space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Availability {
    Now,
    /// After the checkpoint that is in progress or requested.
    Later,
    /// No space, and nothing to reclaim.
    Never,
}

/// Upper bound on the effect of a clear on a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cleared {
    /// Number of subtrees that it cuts off.
    pub cuts: u64,
    /// Slots that it releases in leaves that it covers only in part.
    pub releases: u64,
}

impl Pool {
    /// Looks for space in record, ring, delta and metadata. Where space is missing, it asks for the checkpoint or the flush that makes some. Clears that wait
    /// for their turn count as reclaimable.
    pub(crate) fn space_for(&mut self, asked: &Asked, clears_left: bool) -> Availability {
        let fits = self.has_metadata(asked);
        self.space_where(asked, fits, clears_left)
    }

    /// Looks for space in record, ring and delta, when the answer for metadata is known.
    pub(crate) fn space_where(&mut self, asked: &Asked, has_metadata: bool, clears_left: bool) -> Availability {
        let &Asked { changes: more, cleared, .. } = asked;
        if self.durable.journal.changes().len() + more > self.durable.journal.record_capacity()
            && !self.close_record(false)
        {
            return Availability::Later;
        }
        let most_released = self.limits.releases(self.metadata.geometry());
        // Its buffered mappings are too many: some must first go into their leaves. If they cannot, the clear goes alone.
        let covers_much = cleared.is_some_and(|cleared| cleared.releases > most_released);
        let has_to_flush = covers_much && !(self.durable.buffer_flush.is_stuck() && self.durable.delta.is_empty());
        let full_delta = self.durable.delta.len() + more > self.limits.delta_entries as usize
            || self.durable.delta.space() < more
            || has_to_flush
            || !covers_much
                && cleared.is_some_and(|cleared| self.durable.delta.releases() + cleared.releases > most_released);
        if has_to_flush {
            self.ask_to_flush();
        }
        let full_ring = !self.durable.journal.has_space(more)
            || self.durable.journal.entries() > 4 * u64::from(self.limits.delta_entries);
        // A subtree that cannot be walked goes away with the next opening, if at all: no clear waits for that.
        let to_count = self.durable.discards.hidden().len();
        let cut_off = (self.discards_to_walk() + to_count) as u64 + self.cuts_to_merge();
        let most = u64::from(self.limits.discards);
        let full_discards = cut_off > 0 && cleared.is_some_and(|cleared| cut_off + cleared.cuts > most);
        if !full_delta && !full_ring && has_metadata && !full_discards {
            return Availability::Now;
        }
        if !has_metadata {
            // The claim of the map buffer shrinks as its fuller leaves are written.
            self.ask_to_flush();
            // Slots that wait for a watermark would otherwise count as reclaimable without end.
            self.publish_pending();
        }
        let stuck = self.state.metadata_full() && (full_delta || full_ring);
        let last_resort = !stuck && !has_metadata && !self.is_reclaimable(clears_left) && !self.has_to_flush();
        // For a client or a command, the pool takes an offered growth rather than give up the index on disk.
        if stuck || last_resort && (self.may_get_metadata() || !self.give_up_disk_index()) {
            return Availability::Never;
        }
        self.request_checkpoint_and_wake();
        Availability::Later
    }

    /// Returns the most subtrees that merging both deltas can cut off. Clears that meet in a leaf may together cover all of it.
    pub(in crate::pool) fn cuts_to_merge(&self) -> u64 {
        let coalesced = (self.durable.delta.releases() + self.durable.frozen.releases())
            / self.metadata.geometry().map_leaf_entries();
        self.durable.delta.cuts() + self.durable.frozen.cuts() + coalesced
    }

    /// Returns true if a checkpoint or a published watermark could free anything.
    pub(crate) fn is_reclaimable(&self, clears_left: bool) -> bool {
        self.durable.delta.len() + self.durable.frozen.len() > 0
            || self.has_discards()
            || self.has_hidden_to_count()
            || !self.durable.space.pending().is_empty()
            || self.checkpoint.is_in_progress()
            || self.is_growing()
            || clears_left
    }

    /// Asks the next checkpoints to flush the map buffer, as far as they can.
    pub(crate) fn ask_to_flush(&mut self) {
        if !self.durable.map_buffer.is_empty() {
            self.durable.buffer_flush.ask();
        }
    }

    /// Returns true if the map buffer has anything that can be flushed.
    pub(crate) fn has_to_flush(&self) -> bool {
        !self.durable.map_buffer.is_empty() && !self.durable.buffer_flush.is_stuck()
    }

    /// Returns the number of entries that one part of a clear looks at: half of a turn.
    pub(crate) fn part_steps(&self) -> u64 {
        self.limits.slice_steps() / 2
    }

    /// Returns true if the delta is small enough for a clear of any length to go through it at once.
    pub(crate) fn can_clear_at_once(&self) -> bool {
        self.durable.delta.len() as u64 <= self.part_steps()
    }
}
