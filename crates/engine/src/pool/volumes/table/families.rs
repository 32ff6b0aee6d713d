//! Changes of the table of volumes by families: snapshots, rollbacks, clones, names and hand-overs.
//!
//! Each keeps the families in memory (`lineage`), the entries (`Family`), the roots and the counts in step. When each is made, and what must hold for it, stands in
//! `snapshots.rs`, `rollback.rs`, `names.rs` and `hand_over.rs`.

use alloc::string::String;
use alloc::vec::Vec;

use crate::api::VolumeId;
use crate::block_map::lineage::{Lineage, LineageError, Member};
use crate::format::volume::{Family, Hidden, Volume};
use crate::pool::volumes::table::{VolumeTable, inherited_root, is_counted};

impl VolumeTable {
    /// Makes the families of all volumes, once the table has been read, after a check of them. `epoch` is that of the newest checkpoint.
    pub(crate) fn link(&mut self, epoch: u64) -> Result<(), LineageError> {
        let member = |volume: &Volume| {
            let Family { parent, snapshot, .. } = volume.family;
            let (parent, born) =
                (parent.map_or(0, |parent| parent.0.into()), snapshot.map_or(0, |snapshot| snapshot.born));
            Member { map: volume.id, parent, born, gives: snapshot.is_some_and(|snapshot| snapshot.gives) }
        };
        let members = self.volumes.iter().filter(|volume| volume.family != Family::default()).map(member);
        self.lineage = Lineage::new(members)?;
        let gives = |volume: &&Volume| volume.family.snapshot.is_some_and(|snapshot| snapshot.gives);
        let mut givers = self.volumes.iter().filter(gives).map(|volume| volume.id);
        self.giver = givers.next();
        if let Some(second) = givers.next() {
            return Err(LineageError::Gives(second));
        }
        for volume in &self.volumes {
            let Some(snapshot) = volume.family.snapshot else { continue };
            if snapshot.born > epoch {
                return Err(LineageError::Epoch(volume.id));
            }
            let is_volume = |of: &Volume| !of.is_snapshot() && of.keeps.is_none();
            let is_of_volume = self.find(snapshot.of).is_some_and(|at| is_volume(&self.volumes[at]));
            if !is_of_volume && !volume.is_unnamed() {
                return Err(LineageError::NoVolume(volume.id));
            }
        }
        Ok(())
    }

    /// Makes a snapshot of a volume, at the checkpoint of epoch `born`: the snapshot takes the map as merged, and the volume inherits all of it.
    pub(crate) fn take_snapshot(&mut self, volume: usize, snapshot: usize, born: u64) {
        let (id, map) = (self.volumes[snapshot].id, self.maps[volume]);
        let Volume { merged_size, logical_blocks_used, family, .. } = self.volumes[volume];
        self.set_used(snapshot, logical_blocks_used);
        self.set_used(volume, 0);
        self.count(snapshot, -1);
        let taken = &mut self.volumes[snapshot];
        (taken.size, taken.merged_size) = (merged_size, merged_size);
        (taken.family.parent, taken.family.hidden) = (family.parent, family.hidden);
        taken.family.snapshot.as_mut().expect("it was entered as a snapshot").born = born;
        self.by_epoch.insert((self.volumes[volume].id, born), id);
        self.maps[snapshot] = map;
        self.count(snapshot, 1);
        self.set_map(volume, inherited_root(map, born));
        self.volumes[volume].family = Family { parent: Some(id), hidden: Hidden::default(), ..family };
        self.note_exchanged(volume);
        self.lineage.snapshot(self.volumes[volume].id, id, born);
        self.dirty.insert(id);
    }

    /// Notes that the checkpoint that is about to begin rolls a volume back to a snapshot.
    pub(crate) fn schedule_rollback(&mut self, volume: VolumeId, snapshot: VolumeId) {
        self.rolled_back.insert(volume, snapshot);
        self.dirty_next.insert(volume);
    }

    /// Notes that the checkpoint in progress rolls no volume back.
    pub(crate) fn withdraw_rollbacks(&mut self) {
        self.rolled_back.clear();
    }

    /// Returns the indexes of the volumes that the checkpoint in progress rolls back.
    pub(crate) fn rolled_back(&self) -> Vec<usize> {
        self.rolled_back.keys().map(|&id| self.find(id).expect("nothing deletes it meanwhile")).collect()
    }

    /// Makes the volumes of the ended checkpoint clones of the snapshots to which it has rolled them back.
    pub(crate) fn end_rollbacks(&mut self) {
        for (id, snapshot) in core::mem::take(&mut self.rolled_back) {
            let at = self.find(id).expect("nothing deletes it meanwhile");
            let (size, root) = self.as_rolled_back(snapshot);
            self.count(at, -1);
            let volume = &mut self.volumes[at];
            (volume.size, volume.merged_size) = (size, size);
            volume.family = Family { parent: Some(snapshot), hidden: Hidden::default(), ..volume.family };
            self.maps[at] = root;
            self.count(at, 1);
            self.note_exchanged(at);
            self.lineage.put(id, Some(snapshot), 0);
        }
    }

    /// Enters a clone of a snapshot: a volume whose number and name are free. Returns its index.
    pub(crate) fn create_clone(&mut self, volume: Volume) -> usize {
        let parent = volume.family.parent.expect("a clone has a parent");
        let at = self.find(parent).expect("the snapshot is there");
        let born = self.volumes[at].family.snapshot.map_or(0, |snapshot| snapshot.born);
        let root = inherited_root(self.maps[at], born);
        self.lineage.put(volume.id, Some(parent), 0);
        self.create(volume, root)
    }

    /// Returns the line of a map: the number of its volume, though that may be gone. A volume is of its own line.
    #[inline]
    pub(crate) fn line(&self, map: VolumeId) -> VolumeId {
        if self.by_epoch.is_empty() {
            return map;
        }
        let volume = self.find(map).map(|at| &self.volumes[at]);
        volume.and_then(|volume| volume.family.snapshot).map_or(map, |snapshot| snapshot.of)
    }

    /// Returns the newest snapshot of a line.
    pub(crate) fn newest_snapshot(&self, line: VolumeId) -> Option<VolumeId> {
        self.by_epoch.range((line, 0)..=(line, u64::MAX)).next_back().map(|(_, &snapshot)| snapshot)
    }

    /// Returns the snapshot whose map is handed over to its child, and the child; `None` if the child is being deleted, or is gone.
    pub(crate) fn hand_over(&self) -> Option<(VolumeId, VolumeId)> {
        let giver = self.giver?;
        let child = self.lineage.children(giver).next()?;
        self.find(child).filter(|&at| self.volumes[at].deleted.is_none()).map(|_| (giver, child))
    }

    /// Returns the snapshot whose map is handed over, though its child may be on its way out.
    #[inline]
    pub(crate) fn giver(&self) -> Option<VolumeId> {
        self.giver
    }

    /// Returns true if the map is handed over to its child, or is to be: it is that of a deleted snapshot with one child.
    #[inline]
    pub(crate) fn is_to_be_handed_over(&self, map: VolumeId) -> bool {
        !self.unnamed.is_empty() && self.unnamed.contains(&map) && self.lineage.child_count(map) == 1
    }

    /// Returns the deleted snapshot that is handed over next: the youngest of a chain, so that no map is handed over twice. Each has to pass a test.
    pub(crate) fn next_giver(&self, may_give: impl Fn(VolumeId) -> bool) -> Option<VolumeId> {
        let is_there = |child: VolumeId| self.find(child).is_some_and(|at| self.volumes[at].deleted.is_none());
        let mut givers = self.unnamed.iter().copied().filter(|&map| self.is_to_be_handed_over(map));
        givers.find(|&map| {
            let child = self.lineage.children(map).next().expect("it has one");
            !self.is_to_be_handed_over(child) && is_there(child) && may_give(map)
        })
    }

    /// Begins to hand over a deleted snapshot to its only child. Its blocks, and those that it hides, count as the child's from now on.
    /// `is_first`: only a mutant lets younger maps look for them in the snapshot first.
    pub(crate) fn begin_hand_over(&mut self, giver: VolumeId, is_first: bool) {
        let child = self.lineage.children(giver).next().expect("it has a child");
        let at = self.find(giver).expect("it is in the table");
        self.volumes[at].family.snapshot.as_mut().expect("it is a snapshot").gives = true;
        if !is_first {
            self.lineage.set_gives(giver);
        }
        self.giver = Some(giver);
        self.recount_handed();
        self.dirty_next.extend([giver, child]);
    }

    /// Counts the blocks of the snapshot that is handed over as its child's, after a recount of all volumes.
    pub(crate) fn recount_handed(&mut self) {
        let pair = self.giver.and_then(|giver| Some((giver, self.lineage.children(giver).next()?)));
        if let Some((giver, to)) = pair.and_then(|(giver, child)| Some((self.find(giver)?, self.find(child)?))) {
            let blocks = self.volumes[giver].logical_blocks_used;
            self.set_used(giver, 0);
            self.set_used(to, self.volumes[to].logical_blocks_used + blocks);
            let hidden = core::mem::take(&mut self.volumes[giver].family.hidden);
            self.volumes[to].family.hidden.add(hidden);
        }
    }

    /// Notes that a map was exchanged, in whole or in part: a census, also one in progress, has counted other blocks.
    pub(crate) fn note_exchanged(&mut self, at: usize) {
        if is_counted(&self.volumes[at]) {
            self.uncounted.insert(self.volumes[at].id);
            self.exchanged.insert(self.volumes[at].id);
        }
    }

    /// Ends a hand-over: all of the map is the child's. The child gets the parent of the snapshot, which leaves the table.
    pub(crate) fn end_hand_over(&mut self, giver: usize) {
        let (id, parent) = (self.volumes[giver].id, self.volumes[giver].family.parent);
        let child = self.lineage.children(id).next().expect("it has a child");
        let at = self.find(child).expect("it is in the table");
        let born = self.volumes[at].family.snapshot.map_or(0, |snapshot| snapshot.born);
        self.lineage.put(child, parent, born);
        self.volumes[at].family.parent = parent;
        self.dirty.insert(child);
        self.delete(giver, 0);
        self.remove(giver);
    }

    /// Sets the number of the checkpoint that makes a snapshot of a volume: it is about to begin.
    pub(crate) fn schedule(&mut self, at: usize, of: VolumeId, since: u64) {
        self.volumes[at].since = since;
        self.dirty_next.extend([of, self.volumes[at].id]);
        self.has_created = true;
    }

    /// Defers a snapshot to a later checkpoint than the one that has just begun.
    pub(crate) fn unschedule(&mut self, at: usize) {
        self.volumes[at].since = u64::MAX;
    }

    /// Removes a snapshot that was entered and not made.
    pub(crate) fn withdraw(&mut self, at: usize) {
        assert!(self.maps[at].pointer.is_none() && self.lineage.child_count(self.volumes[at].id) == 0);
        self.delete(at, 0);
        self.remove(at);
    }

    /// Takes the name of a snapshot away: it stays while others inherit from it.
    pub(crate) fn take_name(&mut self, at: usize) {
        self.unlist_name(at);
        let id = self.volumes[at].id;
        self.name_bytes -= self.volumes[at].name.len() as u64;
        self.count(at, -1);
        self.volumes[at].name = String::new();
        self.count(at, 1);
        self.unnamed.insert(id);
        self.dirty_next.insert(id);
    }

    /// Lets a checkpoint in progress write the name that a volume or snapshot has now: it is about to get another one.
    pub(crate) fn keep_name(&mut self, at: usize) {
        let volume = &self.volumes[at];
        self.former_names.entry(volume.id).or_insert_with(|| volume.name.clone());
    }

    /// Gives a volume or snapshot a name that is free.
    pub(crate) fn rename(&mut self, at: usize, name: &str) {
        self.unlist_name(at);
        let volume = &mut self.volumes[at];
        let former = core::mem::replace(&mut volume.name, String::from(name));
        let volume = volume.clone();
        self.list_name(&volume);
        self.name_bytes = self.name_bytes + name.len() as u64 - former.len() as u64;
        self.dirty_next.insert(volume.id);
    }

    /// Holds or releases a snapshot.
    pub(crate) fn set_held(&mut self, at: usize, held: bool) {
        self.volumes[at].family.snapshot.as_mut().expect("only snapshots are held").held = held;
        self.dirty_next.insert(self.volumes[at].id);
    }
}
