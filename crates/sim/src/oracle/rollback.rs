//! Rollbacks of volumes to their snapshots in the model.
//!
//! While a rollback is in flight, a read may return the former content or that of the snapshot, block by block, and writes may be refused. Changes that were
//! in flight before may come behind it. Once it is answered, the volume has the content of the snapshot, durably.
//!
//! A crash leaves all of one content. The size and the parent of the volume may tell which; the hand-over of a deleted snapshot gives the volume another parent,
//! too. Otherwise both stay possible, as the moments of a group do: reads
//! of blocks that were not changed since leave those that explain them.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::content::{Cells, ZERO, overlay};
use crate::oracle::block::{Block, Moment};
use crate::oracle::blocks::Blocks;
use crate::oracle::families::{Copy, Former, Group, Rollback, Undecided, united};
use crate::oracle::model::{Listing, Model, Part};
use crate::{Checked, violated};

impl Model {
    /// Notes that a rollback of a volume to its snapshot is submitted.
    pub fn begin_rollback(&mut self, volume: usize, snapshot: usize) {
        self.now += 1;
        let (snapshot, size) = (self.volumes[snapshot].serial, self.volumes[snapshot].size_blocks);
        let begun = self.now;
        let volume = &mut self.volumes[volume];
        volume.rollback = Some(Rollback { snapshot, size, begun });
        volume.stamp.locked += 1;
        volume.stamp.reshaped += u32::from(size < volume.size_blocks);
    }

    /// Notes the answer to a rollback. Panics if none is in flight.
    pub fn end_rollback(&mut self, volume: usize, succeeded: bool) {
        self.note_moment(volume);
        self.now += 1;
        let rollback = self.volumes[volume].rollback.expect("it is being rolled back");
        let blocks = succeeded.then(|| self.rolled_back(volume, &rollback));
        let (now, serial) = (self.now, self.volumes[volume].serial);
        let volume = &mut self.volumes[volume];
        volume.rollback = None;
        volume.stamp.locked += 1;
        if let Some(blocks) = blocks {
            volume.former = Some(Former { until: now, blocks: std::mem::replace(&mut volume.blocks, blocks) });
            (volume.parent, volume.own_since) = (Some(rollback.snapshot), rollback.begun);
            volume.set_size(rollback.size);
            self.groups.retain(|group| !group.is_rollback_of(serial));
            // A deleted snapshot may have lost its last child.
            self.forget_gone();
        }
    }

    /// Returns the index of the volume of a snapshot.
    pub fn volume_of(&self, snapshot: usize) -> Option<usize> {
        self.at(self.volumes[snapshot].snapshot?.volume)
    }

    /// Returns the blocks of a volume once it is rolled back: those of the snapshot, with the changes that are still in flight.
    fn rolled_back(&self, volume: usize, rollback: &Rollback) -> Blocks {
        let mut blocks = self.at(rollback.snapshot).map_or_else(Blocks::default, |at| self.volumes[at].blocks.clone());
        let former = &self.volumes[volume].blocks;
        for (token, range, _, fua) in self.changes_in_flight(volume) {
            let known = |blocks: &Blocks| blocks.range(range.blocks()).iter().map(|&(at, _)| at).collect::<Vec<_>>();
            let numbers: BTreeSet<u64> = known(former).into_iter().chain(known(&blocks)).collect();
            for number in numbers {
                // A range without a block of its own there is one of zeroes.
                let values = former.get(number).and_then(|block| block.values_of(token)).unwrap_or(ZERO);
                if blocks.get(number).is_none() {
                    blocks.insert(number, Block::new(ZERO));
                }
                let block = blocks.get_mut(number).expect("it is there");
                Rc::make_mut(block).begin_change(self.now, token, range.part(number).mask(), values, fua);
            }
        }
        blocks.truncate(rollback.size);
        blocks
    }

    /// Returns true if a read that was submitted at `since` may have met a rollback of its volume.
    pub(super) fn meets_rollback(&self, volume: usize, since: Moment) -> bool {
        let volume = &self.volumes[volume];
        volume.rollback.is_some() || volume.former.as_ref().is_some_and(|former| former.until >= since)
    }

    /// Returns true if a part of a block may be read as these values beside a rollback: it has its former content, or that of the snapshot.
    pub(super) fn fits_rollback(&self, volume: usize, since: Moment, part: Part, values: &Cells) -> bool {
        let volume = &self.volumes[volume];
        let snapshot = volume.rollback.and_then(|rollback| self.at(rollback.snapshot));
        let possible = [
            Some(&volume.blocks),
            volume.former.as_ref().map(|former| &former.blocks),
            snapshot.map(|at| &self.volumes[at].blocks),
        ];
        let fits = |content: &Cells| overlay(content, values, part.mask()) == *content;
        possible.into_iter().flatten().any(|blocks| match blocks.get(part.block) {
            Some(block) => block.possible_since(since).iter().any(fits),
            None => fits(&ZERO),
        })
    }

    /// Ends the rollbacks in flight for a crash: both contents are possible.
    pub(super) fn interrupt_rollbacks(&mut self) {
        // Blocks that were changed since the last crash do not tell what that left.
        let volumes = &self.volumes;
        let is_untouched = |group: &Group| {
            let volume = volumes.iter().find(|volume| group.is_rollback_of(volume.serial));
            volume.is_none_or(|volume| volume.blocks.iter().all(|(_, block)| block.is_untouched()))
        };
        self.groups.retain(is_untouched);
        for at in 0..self.volumes.len() {
            if let Some(rollback) = self.volumes[at].rollback {
                let (volume, after) = (self.volumes[at].serial, self.rolled_back(at, &rollback));
                self.undecided.push(Undecided { volume, rollback, after });
            }
            (self.volumes[at].rollback, self.volumes[at].former) = (None, None);
        }
    }

    /// Returns the blocks that volumes have if they were rolled back before the crash.
    pub(super) fn undecided_blocks(&mut self) -> impl Iterator<Item = &mut Rc<Block>> {
        self.undecided.iter_mut().flat_map(|undecided| undecided.after.iter_mut())
    }

    /// Returns the moment since which a volume has its changes in its own map, if it inherits from a snapshot, or comes to do so by the hand-overs of deleted
    /// snapshots between them.
    fn inherits_after_hand_overs(&self, volume: usize, snapshot: u64) -> Option<Moment> {
        let (mut child, mut own_since) = (volume, self.volumes[volume].own_since);
        loop {
            let parent = self.volumes[child].parent?;
            if parent == snapshot {
                return Some(own_since);
            }
            let giver = self.at(parent).filter(|&giver| self.only_child(giver) == Some(child))?;
            (child, own_since) = (giver, self.volumes[giver].own_since);
        }
    }

    /// Decides after an opening whether the volumes were rolled back whose rollback a crash has ended.
    pub(super) fn decide_rollbacks(&mut self, listed: &[Listing]) -> Checked {
        for Undecided { volume: serial, rollback, after } in std::mem::take(&mut self.undecided) {
            let Some(at) = self.at(serial) else { continue };
            let snapshot = self.at(rollback.snapshot).and_then(|at| self.volumes[at].id);
            let found = listed.iter().find(|listed| Some(listed.id) == self.volumes[at].id);
            let Some(found) = found else { continue };
            let inherits = found.parent.is_some() && found.parent == snapshot;
            let own_since = self.inherits_after_hand_overs(at, rollback.snapshot);
            let volume = &mut self.volumes[at];
            let may_be_old = found.size_blocks == volume.size_blocks && (!inherits || own_since.is_some());
            let may_be_new = found.size_blocks == rollback.size && inherits;
            match (may_be_old, may_be_new) {
                (true, false) => {}
                (false, true) => {
                    volume.blocks = after;
                    (volume.parent, volume.own_since) = (Some(rollback.snapshot), rollback.begun);
                    volume.set_size(rollback.size);
                }
                (true, true) => {
                    if let Some(own_since) = own_since.filter(|_| inherits) {
                        (volume.parent, volume.own_since) = (Some(rollback.snapshot), own_since);
                    }
                    let size = found.size_blocks;
                    let copies = [volume.blocks.clone(), after].map(|blocks| Copy { sizes: (size, None), blocks });
                    volume.blocks = united(&copies.iter().collect::<Vec<_>>(), size);
                    self.groups.push(Group::of_rollback(serial, copies));
                }
                (false, false) => {
                    let name = &volume.name;
                    return violated(format!("volume {name} is neither rolled back nor as before: {found:?}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::families::tests::listed;
    use crate::oracle::model::Range;

    /// Returns a model of a volume with content 1 in its snapshot, and content 2 in two blocks since.
    fn written_since() -> Model {
        let mut model = Model::default();
        model.begin_create("a", 4, None);
        model.end_create("a", true);
        model.reconcile(&listed(&model, None), None, false).unwrap();
        write(&mut model, 1, 1);
        let first = model.begin_snapshots(&[0], "s");
        model.end_snapshots(first, true).unwrap();
        model.reconcile(&listed(&model, None), None, false).unwrap();
        write(&mut model, 2, 2);
        model
    }

    fn write(model: &mut Model, token: u64, value: u32) {
        model.begin_change(token, Range { volume: 0, first: 0, count: 16 }, |_, _| value, false);
        model.end_change(token, true);
    }

    fn reads(model: &mut Model, block: u64, value: u32) -> bool {
        model.begin_observation(9, Range { volume: 0, first: 8 * block, count: 8 });
        model.end_read(9, &[value; 8]).is_ok()
    }

    #[test]
    fn an_answered_rollback_leaves_the_content_of_the_snapshot_and_an_unanswered_one_all_of_either() {
        let mut model = written_since();
        model.begin_flush(3);
        model.end_flush(3, true);
        model.begin_rollback(0, 1);
        assert!(reads(&mut model.clone(), 0, 1) && reads(&mut model.clone(), 0, 2) && !reads(&mut model.clone(), 0, 0));
        let mut crashed = model.clone();
        crashed.crash();
        crashed.reconcile(&listed(&crashed, Some(2)), None, true).unwrap();
        for value in [1, 2] {
            let mut opened = crashed.clone();
            assert!(reads(&mut opened, 0, value) && reads(&mut opened.clone(), 1, value));
            assert!(!reads(&mut opened, 1, 3 - value), "a part of either content");
        }
        model.end_rollback(0, true);
        assert!(reads(&mut model.clone(), 0, 1) && !reads(&mut model.clone(), 0, 2));
        model.crash();
        assert!(reads(&mut model.clone(), 1, 1) && !reads(&mut model, 1, 2), "it is durable");
    }

    /// Checks that both contents stay possible where a hand-over gives the former map the parent of a rollback.
    #[test]
    fn the_parent_does_not_tell_of_a_rollback_if_a_hand_over_gives_the_same() {
        let mut model = written_since();
        let first = model.begin_snapshots(&[0], "between");
        model.end_snapshots(first, true).unwrap();
        model.reconcile(&listed(&model, None), None, false).unwrap();
        write(&mut model, 3, 3);
        let mut cloned = model.clone();
        cloned.begin_clone(2, "c");
        cloned.end_create("c", true);
        cloned.reconcile(&listed(&cloned, None), None, false).unwrap();
        let mut opened = [model, cloned].map(|mut model| {
            model.begin_delete(2);
            model.end_delete(2);
            model.begin_flush(4);
            model.end_flush(4, true);
            model.begin_rollback(0, 1);
            model.crash();
            model.reconcile(&listed(&model, Some(2)), None, true).unwrap();
            model
        });
        for value in [1, 3] {
            let mut opened = opened[0].clone();
            assert!(reads(&mut opened, 0, value) && !reads(&mut opened.clone(), 1, 4 - value));
            assert!(reads(&mut opened, 1, value));
        }
        assert!(
            !reads(&mut opened[1].clone(), 0, 3) && reads(&mut opened[1], 0, 1),
            "a snapshot with two children stays"
        );
    }

    #[test]
    fn a_refused_rollback_leaves_all_as_it_was_and_a_write_in_flight_may_come_behind_one() {
        let mut model = written_since();
        model.begin_change(7, Range { volume: 0, first: 0, count: 8 }, |_, _| 5, false);
        model.begin_rollback(0, 1);
        let mut refused = model.clone();
        refused.end_rollback(0, false);
        assert!(reads(&mut refused.clone(), 1, 2) && !reads(&mut refused, 1, 1));
        model.end_rollback(0, true);
        assert!(reads(&mut model.clone(), 0, 1) && reads(&mut model.clone(), 0, 5) && !reads(&mut model.clone(), 0, 2));
        model.end_change(7, true);
        assert!(reads(&mut model.clone(), 0, 5) && !reads(&mut model, 0, 1));
    }
}
