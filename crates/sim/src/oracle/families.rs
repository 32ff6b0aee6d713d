//! Snapshots and clones in the model.
//!
//! A snapshot has the content that its volume had at one moment between the command and its answer; those of a group have that of the same moment. The model
//! keeps the moments that are still possible, each with a copy of all volumes of the group: one before each answer to a change, when most contents are
//! possible, and one at the end. A read of a snapshot leaves the moments that have a content which explains it. Requests are atomic by block: a moment has any
//! of the contents that a block may have had then.
//!
//! What must hold:
//!
//! - Changes answered before the command are in it, changes submitted behind the answer are not. After a crash a group is there if it was answered, else whole
//!   or absent.
//! - The content of a snapshot never changes, and is durable.
//! - A clone begins with the content of its snapshot.
//!
//! Each map has an entry of its own for a block whose content differs from that of the snapshot that it inherits from, and none for a block that was not
//! changed since. A block that was written with the content that it had may have one or not. A snapshot that was deleted stays while others inherit from it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use engine::{SnapshotSchedule, VolumeId};

use crate::content::{Cells, ZERO, overlay};
use crate::oracle::block::{Block, Moment};
use crate::oracle::blocks::Blocks;
use crate::oracle::model::{Existence, Listing, Model, ModelVolume, Part, Properties};
use crate::{Checked, violated};

/// Origin of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SnapshotOf {
    /// Serial of its volume.
    pub(super) volume: u64,
    /// Moment of the command.
    begun: Moment,
}

/// A volume of a group at one of the possible moments.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    /// Size, and that of a resize in flight.
    pub(super) sizes: (u64, Option<u64>),
    pub(super) blocks: Blocks,
}

impl Copy {
    fn has_size(&self, blocks: u64) -> bool {
        self.sizes.0 == blocks || self.sizes.1 == Some(blocks)
    }

    /// Returns the contents that a block may have had.
    fn possible(&self, number: u64) -> Vec<Cells> {
        let mut contents = self.blocks.get(number).map_or(vec![ZERO], |block| block.possible());
        // A shrinking in flight cuts it off.
        if self.sizes.1.is_some_and(|size| number >= size) && !contents.contains(&ZERO) {
            contents.push(ZERO);
        }
        contents
    }
}

/// Snapshots of one command, or a volume that a crash has left rolled back or not.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Serials of each snapshot and its volume.
    members: Vec<(u64, u64)>,
    /// Possible moments: a copy of each volume.
    moments: Vec<Rc<Vec<Copy>>>,
    /// True once the moment is past.
    is_closed: bool,
    /// True once the snapshots are there.
    is_made: bool,
}

/// Rollback in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rollback {
    /// Serial of the snapshot.
    pub(super) snapshot: u64,
    /// Blocks of the snapshot.
    pub(super) size: u64,
    /// Moment of the command.
    pub(super) begun: Moment,
}

/// Blocks that a volume had before its last rollback.
#[derive(Clone, Debug)]
pub(super) struct Former {
    /// Moment of the answer.
    pub(super) until: Moment,
    pub(super) blocks: Blocks,
}

/// Rollback that was in flight at a crash.
#[derive(Clone, Debug)]
pub(super) struct Undecided {
    /// Serial of the volume.
    pub(super) volume: u64,
    pub(super) rollback: Rollback,
    /// Blocks of the volume if it was rolled back.
    pub(super) after: Blocks,
}

impl Group {
    /// Makes the group of a volume that has one of two contents, as its rollback was in flight at a crash.
    pub(super) fn of_rollback(volume: u64, copies: [Copy; 2]) -> Group {
        let moments = copies.map(|copy| Rc::new(vec![copy])).to_vec();
        Group { members: vec![(volume, volume)], moments, is_closed: true, is_made: true }
    }

    /// Returns true if the group is that of a volume that was rolled back or not.
    pub(super) fn is_rollback_of(&self, volume: u64) -> bool {
        self.members == [(volume, volume)]
    }
}

impl Model {
    pub(super) fn at(&self, serial: u64) -> Option<usize> {
        self.volumes.iter().position(|volume| volume.serial == serial)
    }

    /// Returns the name that a snapshot of a volume has in the model: that of the volume may change.
    pub fn name_of_snapshot(of: VolumeId, name: &str) -> String {
        format!("#{}@{name}", of.0)
    }

    /// Notes that a group of snapshots is submitted, with this name behind the `@` of each. Returns the serial of its first snapshot.
    pub fn begin_snapshots(&mut self, volumes: &[usize], name: &str) -> u64 {
        self.now += 1;
        let mut members = Vec::new();
        for &at in volumes {
            let ModelVolume { serial: of, id, properties, size_blocks, .. } = self.volumes[at];
            let name = Model::name_of_snapshot(id.expect("the engine has listed it"), name);
            let begun = self.now;
            let properties = Properties { snapshots: SnapshotSchedule::OFF, ..properties };
            let snapshot = self.enter(&name, size_blocks, properties);
            snapshot.snapshot = Some(SnapshotOf { volume: of, begun });
            members.push((snapshot.serial, of));
        }
        let first = members[0].0;
        self.groups.push(Group { members, moments: Vec::new(), is_closed: false, is_made: false });
        first
    }

    /// Notes the answer to a group of snapshots, by the serial of its first.
    pub fn end_snapshots(&mut self, first: u64, succeeded: bool) -> Checked {
        let at = self.groups.iter().position(|group| group.members[0].0 == first);
        let group = at.map(|at| &self.groups[at]).filter(|group| !group.is_made);
        let Some(members) = group.map(|group| group.members.clone()) else {
            // They were there before, and may have been deleted meanwhile.
            return if succeeded { Ok(()) } else { violated("snapshots were refused, and are there") };
        };
        for (snapshot, _) in members {
            let at = self.at(snapshot).expect("its creation is in flight");
            self.volumes[at].existence = if succeeded { Existence::Certain } else { Existence::Gone };
        }
        self.groups.retain(|group| succeeded || group.members[0].0 != first);
        Ok(())
    }

    /// Notes that a clone of a snapshot is submitted.
    pub fn begin_clone(&mut self, snapshot: usize, name: &str) {
        self.now += 1;
        let now = self.now;
        let ModelVolume { serial, properties, size_blocks, ref blocks, .. } = self.volumes[snapshot];
        let blocks = blocks.clone();
        let properties = Properties { read_only: false, protected: false, held: false, ..properties };
        let clone = self.enter(name, size_blocks, properties);
        (clone.parent, clone.own_since, clone.blocks) = (Some(serial), now, blocks);
    }

    /// Returns true if a volume has snapshots, or they are being made.
    pub fn has_snapshots(&self, volume: usize) -> bool {
        let of = self.volumes[volume].serial;
        let is_of = |other: &ModelVolume| other.snapshot.is_some_and(|snapshot| snapshot.volume == of);
        self.volumes.iter().any(|other| is_of(other) && other.existence != Existence::Gone)
    }

    /// Returns true if changes of a volume may take space because a snapshot keeps the old blocks.
    pub fn is_in_family(&self, volume: usize) -> bool {
        self.volumes[volume].parent.is_some() || self.has_snapshots(volume)
    }

    /// Returns true if there is, or was, any snapshot.
    pub fn has_families(&self) -> bool {
        self.volumes.iter().any(|volume| volume.is_snapshot() || volume.parent.is_some())
    }

    /// Returns true if a snapshot was deleted and stays, because others inherit from it.
    pub(super) fn is_held(&self, at: usize) -> bool {
        let volume = &self.volumes[at];
        let is_there = |child: usize| self.volumes[child].existence != Existence::Gone || self.is_held(child);
        volume.existence == Existence::Gone
            && volume.is_snapshot()
            && (0..self.volumes.len()).any(|child| self.volumes[child].parent == Some(volume.serial) && is_there(child))
    }

    /// Hands each deleted snapshot with one child over to that child, as a settled engine has done.
    pub fn hand_over(&mut self) {
        while let Some((giver, child)) = (0..self.volumes.len()).find_map(|at| Some((at, self.only_child(at)?))) {
            let ModelVolume { parent, own_since, .. } = self.volumes[giver];
            (self.volumes[child].parent, self.volumes[child].own_since) = (parent, own_since);
            (self.volumes[giver].parent, self.volumes[giver].blocks) = (None, Blocks::default());
        }
    }

    /// Returns the child of a deleted snapshot that has one left.
    pub(super) fn only_child(&self, at: usize) -> Option<usize> {
        let ModelVolume { existence, serial, .. } = self.volumes[at];
        let is_child = |&child: &usize| {
            let volume = &self.volumes[child];
            volume.parent == Some(serial) && (volume.existence != Existence::Gone || self.is_held(child))
        };
        let mut children = (0..self.volumes.len()).filter(is_child);
        let child = children.next().filter(|_| existence == Existence::Gone && self.volumes[at].is_snapshot())?;
        children.next().is_none().then_some(child)
    }

    /// Forgets the blocks of volumes that are gone, and from which nothing inherits.
    pub(super) fn forget_gone(&mut self) {
        for at in 0..self.volumes.len() {
            if self.volumes[at].existence == Existence::Gone && !self.is_held(at) {
                self.volumes[at].blocks = Blocks::default();
            }
        }
        let volumes = &self.volumes;
        let is_there = |&(snapshot, _): &(u64, u64)| {
            volumes.iter().any(|volume| volume.serial == snapshot && volume.existence != Existence::Gone)
        };
        self.groups.retain(|group| group.members.iter().any(is_there));
    }

    /// Keeps the present as a possible moment of the groups that a volume is of: something about it is answered.
    pub(super) fn note_moment(&mut self, volume: usize) {
        if self.groups.is_empty() {
            return;
        }
        let serial = self.volumes[volume].serial;
        let mut groups = std::mem::take(&mut self.groups);
        for group in &mut groups {
            if !group.is_closed && group.members.iter().any(|&(_, of)| of == serial) {
                group.moments.push(self.present(group));
            }
        }
        self.groups = groups;
    }

    fn present(&self, group: &Group) -> Rc<Vec<Copy>> {
        let copy = |&(_, of): &(u64, u64)| match self.at(of) {
            Some(at) => {
                let ModelVolume { size_blocks, resizing, ref blocks, .. } = self.volumes[at];
                Copy { sizes: (size_blocks, resizing), blocks: blocks.clone() }
            }
            None => Copy { sizes: (0, None), blocks: Blocks::default() },
        };
        Rc::new(group.members.iter().map(copy).collect())
    }

    /// Ends the time in which the moments of groups may lie.
    pub(super) fn close_groups(&mut self) {
        let mut groups = std::mem::take(&mut self.groups);
        groups.iter_mut().for_each(|group| self.close(group));
        self.groups = groups;
    }

    fn close(&self, group: &mut Group) {
        if !group.is_closed {
            group.moments.push(self.present(group));
            group.is_closed = true;
        }
    }

    /// Finds the groups that the engine lists for the first time. After an opening, those that are not there never will be.
    pub(super) fn find_snapshots(
        &mut self,
        listed: &[Listing],
        known: &BTreeSet<(VolumeId, String)>,
        opened: bool,
    ) -> Checked {
        let mut groups = std::mem::take(&mut self.groups);
        for group in groups.iter_mut().filter(|group| !group.is_made) {
            let found = group.members.iter().map(|&(snapshot, _)| {
                let volume = &self.volumes[self.at(snapshot)?];
                listed
                    .iter()
                    .find(|listed| listed.name == volume.name && !known.contains(&(listed.id, listed.name.clone())))
            });
            let found: Vec<_> = found.collect();
            if found.iter().all(Option::is_none) {
                // An answered snapshot that is not there is found below.
                continue;
            }
            let sizes: Vec<u64> = found.iter().flatten().map(|listed| listed.size_blocks).collect();
            if sizes.len() < group.members.len() {
                return violated(format!("a part of a group of snapshots is there: {found:?} of {:?}", group.members));
            }
            self.close(group);
            group.moments.retain(|moment| moment.iter().zip(&sizes).all(|(copy, &size)| copy.has_size(size)));
            if group.moments.is_empty() {
                return violated(format!("snapshots {found:?} have sizes that their volumes never had at one moment"));
            }
            self.make(group, &sizes);
        }
        self.groups = groups;
        if opened {
            self.groups.retain(|group| group.is_made);
        }
        self.groups.retain(|group| !group.is_made || group.moments.len() > 1);
        Ok(())
    }

    /// Gives the snapshots of a group any content that they may have, and lets the volumes inherit from them.
    fn make(&mut self, group: &mut Group, sizes: &[u64]) {
        group.is_made = true;
        for (number, (&(snapshot, of), &size)) in group.members.iter().zip(sizes).enumerate() {
            let copies: Vec<&Copy> = group.moments.iter().map(|moment| &moment[number]).collect();
            let blocks = united(&copies, size);
            let (at, of) = (self.at(snapshot).expect("it was entered"), self.at(of));
            let begun = self.volumes[at].snapshot.expect("it is a snapshot").begun;
            let (mut parent, mut own_since) = (None, 0);
            if let Some(of) = of {
                let volume = &mut self.volumes[of];
                (parent, own_since) =
                    (volume.parent.replace(snapshot), std::mem::replace(&mut volume.own_since, begun));
            }
            let made = &mut self.volumes[at];
            (made.parent, made.own_since, made.blocks) = (parent, own_since, blocks);
            made.existence = Existence::Certain;
            made.set_size(size);
        }
    }

    /// Drops the moments of a snapshot's group that do not explain a part of a block that was read. Returns false if none is left.
    pub(super) fn explain(&mut self, volume: usize, part: Part, values: &Cells) -> bool {
        let serial = self.volumes[volume].serial;
        let mut groups = std::mem::take(&mut self.groups);
        let of = |group: &Group| group.members.iter().position(|&(snapshot, _)| snapshot == serial);
        let mut is_explained = true;
        let is_untouched = self.volumes[volume].blocks.get(part.block).is_some_and(|block| block.is_untouched());
        if !is_untouched {
            // It was changed since the crash that left one of several contents.
        } else if let Some((at, number)) = groups.iter().enumerate().find_map(|(at, group)| Some((at, of(group)?))) {
            let group = &mut groups[at];
            let fits = |content: &Cells| overlay(content, values, part.mask()) == *content;
            group.moments.retain(|moment| moment[number].possible(part.block).iter().any(fits));
            is_explained = match &group.moments[..] {
                [] => false,
                [only] => self.settle(&group.members, only),
                _ => true,
            };
            if group.moments.len() < 2 {
                groups.remove(at);
            }
        }
        self.groups = groups;
        is_explained
    }

    /// Gives the snapshots of a group the contents of its moment, as far as reads have left them. Returns false if they have not.
    fn settle(&mut self, members: &[(u64, u64)], moment: &[Copy]) -> bool {
        for (&(snapshot, _), copy) in members.iter().zip(moment) {
            let Some(at) = self.at(snapshot) else { continue };
            let blocks: Vec<(u64, Rc<Block>)> =
                self.volumes[at].blocks.iter().map(|(number, block)| (number, block.clone())).collect();
            for (number, block) in blocks.into_iter().filter(|(_, block)| !block.is_simple() && block.is_untouched()) {
                let mut left = block.possible();
                let possible = copy.possible(number);
                left.retain(|content| possible.contains(content));
                if left.is_empty() {
                    return false;
                }
                let settled = Block::one_of(left, block.touched());
                *self.volumes[at].blocks.get_mut(number).expect("it is there") = Rc::new(settled);
            }
        }
        true
    }

    /// Counts the blocks that may take space now, under any order of the requests in flight, and with any contents that may come back.
    pub fn blocks_that_may_take_space(&self) -> u64 {
        let own = |volume: &ModelVolume| {
            let own_since = if volume.parent.is_some() { volume.own_since } else { 0 };
            let takes = |block: &Block| block.may_take_space() && block.touched() >= own_since;
            volume.blocks.iter().filter(|(_, block)| takes(block)).count() as u64
        };
        self.volumes.iter().map(own).sum()
    }

    /// Returns the least and the greatest number of non-zero blocks that a volume's own map has. All blocks must have been read while the engine was idle, but
    /// for those of a deleted snapshot.
    pub fn used(&self, volume: usize) -> (u64, u64) {
        let volume = &self.volumes[volume];
        let parent = volume.parent.and_then(|parent| self.at(parent));
        let inherited = |number| parent.map_or(Some(ZERO), |parent| self.only(parent, number));
        let (mut least, mut most) = (0, 0);
        for (number, block) in volume.blocks.iter() {
            let content = self.known(volume, block);
            if content != Some(ZERO) {
                let differs = content.zip(inherited(number)).is_some_and(|(content, inherited)| content != inherited);
                least += u64::from(differs);
                most += u64::from(parent.is_none() || block.touched() >= volume.own_since);
            }
        }
        (least, most)
    }

    /// Returns the least and the most number of non-zero blocks that a volume or snapshot reads as, inherited ones included.
    pub fn referred(&self, volume: usize) -> (u64, u64) {
        let volume = &self.volumes[volume];
        volume.blocks.iter().fold((0, 0), |(least, most), (_, block)| match self.known(volume, block) {
            Some(ZERO) => (least, most),
            Some(_) => (least + 1, most + 1),
            None => (least, most + 1),
        })
    }

    /// Returns the number of distinct non-zero contents of all volumes and snapshots, and true if all contents are known: those of a deleted snapshot may not
    /// be.
    pub fn distinct(&self) -> (u64, bool) {
        let (mut contents, mut are_all_known) = (BTreeSet::new(), true);
        for volume in &self.volumes {
            for (_, block) in volume.blocks.iter() {
                match self.known(volume, block) {
                    Some(content) => drop(contents.insert(content)),
                    None => are_all_known = false,
                }
            }
        }
        contents.remove(&ZERO);
        (contents.len() as u64, are_all_known)
    }

    /// Returns the non-zero blocks of a volume whose content other blocks have, too. All blocks must have been read while the engine was idle.
    pub fn repeated(&self, volume: usize) -> u64 {
        let non_zero = |volume: &ModelVolume| {
            let contents = volume.blocks.iter().filter_map(|(_, block)| block.only());
            contents.filter(|content| *content != ZERO).collect::<Vec<_>>()
        };
        let mut times = BTreeMap::<Cells, u64>::new();
        for content in self.volumes.iter().flat_map(non_zero) {
            *times.entry(content).or_default() += 1;
        }
        non_zero(&self.volumes[volume]).iter().filter(|content| times[*content] > 1).count() as u64
    }

    /// Returns the content of a block, which has been read; that of a deleted snapshot may not have been.
    fn known(&self, volume: &ModelVolume, block: &Block) -> Option<Cells> {
        let content = block.only();
        assert!(content.is_some() || volume.existence == Existence::Gone, "every block was read");
        content
    }
}

/// Returns the blocks of a snapshot that is one of these copies.
pub(super) fn united(copies: &[&Copy], size: u64) -> Blocks {
    let mut united = BTreeMap::<u64, (Vec<Cells>, Moment)>::new();
    let numbers: BTreeSet<u64> = copies.iter().flat_map(|copy| copy.blocks.iter().map(|(number, _)| number)).collect();
    for number in numbers.into_iter().filter(|&number| number < size) {
        let (contents, touched) = united.entry(number).or_default();
        for copy in copies {
            for content in copy.possible(number) {
                if !contents.contains(&content) {
                    contents.push(content);
                }
            }
            *touched = copy.blocks.get(number).map_or(*touched, |block| block.touched().max(*touched));
        }
    }
    let mut blocks = Blocks::default();
    for (number, (contents, touched)) in united {
        blocks.insert(number, Block::one_of(contents, touched));
    }
    blocks
}

#[cfg(test)]
pub(in crate::oracle) mod tests {
    use super::*;
    use crate::oracle::model::Range;

    /// Returns a model with two volumes whose first block was written, and a group of snapshots in flight.
    fn group() -> (Model, u64) {
        let mut model = Model::default();
        for name in ["a", "b"] {
            model.begin_create(name, 4, None);
            model.end_create(name, true);
        }
        model.reconcile(&listed(&model, None), None, false).unwrap();
        write(&mut model, 0, 1);
        write(&mut model, 1, 1);
        let first = model.begin_snapshots(&[0, 1], "s");
        (model, first)
    }

    /// Lists the volumes of a model that are there; the first with a parent.
    pub(in crate::oracle) fn listed(model: &Model, parent: Option<u16>) -> Vec<Listing> {
        let there = model.volumes().iter().zip(1..).filter(|(volume, _)| volume.existence != Existence::Gone);
        let listing = |(volume, id): (&ModelVolume, u16)| Listing {
            id: VolumeId(id),
            name: volume.name.clone(),
            size_blocks: volume.size_blocks,
            properties: volume.properties,
            parent: parent.filter(|_| id == 1).map(VolumeId),
        };
        there.map(listing).collect()
    }

    fn write(model: &mut Model, volume: usize, value: u32) {
        model.begin_change(1, Range { volume, first: 0, count: 8 }, |_, _| value, false);
        model.end_change(1, true);
    }

    fn reads(model: &mut Model, volume: usize, value: u32) -> bool {
        model.begin_observation(9, Range { volume, first: 0, count: 8 });
        model.end_read(9, &[value; 8]).is_ok()
    }

    fn made(mut model: Model, first: u64) -> Model {
        model.end_snapshots(first, true).unwrap();
        model.reconcile(&listed(&model, None), None, false).unwrap();
        model
    }

    #[test]
    fn a_snapshot_has_what_was_answered_before_and_nothing_that_came_behind_the_answer() {
        let (mut model, first) = group();
        write(&mut model, 0, 2);
        let mut model = made(model, first);
        write(&mut model, 0, 3);
        let may_read = |value| reads(&mut model.clone(), 2, value);
        assert!(may_read(1) && may_read(2) && !may_read(0) && !may_read(3));
        model.crash();
        assert!(reads(&mut model.clone(), 2, 2) && !reads(&mut model.clone(), 2, 0), "it is durable");
    }

    #[test]
    fn one_moment_explains_all_snapshots_of_a_group() {
        let (mut model, first) = group();
        write(&mut model, 0, 2);
        write(&mut model, 1, 2);
        let model = made(model, first);
        let may_read = |a, b| {
            let mut model = model.clone();
            reads(&mut model, 2, a) && reads(&mut model, 3, b)
        };
        assert!(may_read(1, 1) && may_read(2, 1) && may_read(2, 2));
        assert!(!may_read(1, 2), "the second write came behind the answer to the first");
    }

    #[test]
    fn an_unanswered_group_is_there_as_a_whole_or_not_at_all() {
        let (mut model, _) = group();
        let all = listed(&model, None);
        model.crash();
        let opens = |count: usize| model.clone().reconcile(&all[..count], None, true).is_ok();
        assert!(opens(2) && opens(4) && !opens(3));
    }

    #[test]
    fn a_volume_counts_what_differs_from_its_snapshot_and_a_clone_begins_with_nothing() {
        let (model, first) = group();
        let mut model = made(model, first);
        model.begin_clone(2, "c");
        model.end_create("c", true);
        assert!(reads(&mut model, 2, 1) && reads(&mut model, 3, 1));
        assert_eq!([0, 2, 4].map(|volume| model.used(volume)), [(0, 0), (1, 1), (0, 0)]);
        write(&mut model, 0, 1);
        write(&mut model, 4, 5);
        assert_eq!([0, 2, 4].map(|volume| model.used(volume)), [(0, 1), (1, 1), (1, 1)]);
        model.begin_delete(2);
        model.end_delete(2);
        assert!(model.is_held(2) && model.distinct() == (2, true));
    }
}
