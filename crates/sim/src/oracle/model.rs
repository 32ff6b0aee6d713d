//! The model of all volumes: the legal contents of every block of every volume, now and after a crash.
//!
//! Owns one [`Block`] per block and volume that was ever written, the requests in flight that concern it, and the durability floor: the moment
//! at which the newest completed flush was submitted. It knows nothing of slots, journals or sharing.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use engine::{Controller, Extent, Goal, KeepRuns, Policy, SnapshotSchedule, Timing, VolumeId};

use crate::content::{CELLS, Cells, ZERO};
use crate::oracle::block::{ALWAYS, Block, MOST_CHANGES, Moment};
use crate::oracle::blocks::Blocks;
use crate::oracle::families::{Former, Group, Rollback, SnapshotOf, Undecided};
pub use crate::oracle::range::{Part, Range};
use crate::{Checked, violated};

/// Properties that are set for a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Properties {
    /// Its own policy.
    pub policy: Option<Policy>,
    /// True if writes are refused.
    pub read_only: bool,
    /// True if only one client at a time may use it.
    pub exclusive: bool,
    /// Time at which its duplicates are found: inline, offline or hybrid.
    pub timing: Option<Timing>,
    /// Performance goal for its clients.
    pub goal: Goal,
    /// Rule for a pass: leave duplicates unshared where sharing would split a run, or not.
    pub keep_runs: KeepRuns,
    /// Controller that chooses its mode.
    pub controller: Controller,
    /// True if it is a volume that is not deleted.
    pub protected: bool,
    /// True if it is a snapshot that is not deleted.
    pub held: bool,
    /// Automatic snapshots that are kept.
    pub snapshots: SnapshotSchedule,
}

/// State of a volume's existence, as far as answers make it certain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existence {
    /// Its creation is in flight: after a crash it may be there or not.
    Creating,
    /// Its creation was answered: it is there.
    Certain,
    /// Its deletion is in flight: it may be there or not.
    Deleting,
    /// Its deletion was answered: it is not there, and never again.
    Gone,
}

/// Counts of changes that can make requests fail. Comparing a request's stamp with the present one tells which requests may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// Deletions and shrinkings.
    pub(super) reshaped: u32,
    /// Number of times that the volume's properties were set with read-only on, and of beginnings and ends of rollbacks.
    pub(super) locked: u32,
}

/// A volume as the model sees it.
#[derive(Clone, Debug)]
pub struct ModelVolume {
    /// Its name. That of a snapshot names the volume by number (`Model::name_of_snapshot`), so that it follows the volume.
    pub name: String,
    /// The name that it may have after a crash: the one before a renaming in flight.
    former_name: Option<String>,
    /// Blocks.
    pub size_blocks: u64,
    /// The most that it has had.
    most_blocks: u64,
    /// The size that a resizing in flight asks for.
    pub resizing: Option<u64>,
    /// Properties in force.
    pub properties: Properties,
    /// Properties that may be in force after a crash.
    possible: Vec<Properties>,
    /// Its number, once the engine has listed it.
    pub id: Option<VolumeId>,
    /// Existence of the volume.
    pub existence: Existence,
    pub(super) stamp: Stamp,
    /// Number that no other volume of the model has, and that of the snapshot that it inherits from.
    pub(super) serial: u64,
    pub(super) parent: Option<u64>,
    /// Volume of which it is a snapshot, if it is one.
    pub(super) snapshot: Option<SnapshotOf>,
    /// Moment since which its changes are in its own map; the content of earlier ones is inherited.
    pub(super) own_since: Moment,
    /// Rollback in flight, and the blocks before the last one.
    pub(super) rollback: Option<Rollback>,
    pub(super) former: Option<Former>,
    pub(super) blocks: Blocks,
}

impl ModelVolume {
    /// Returns true if it is a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Returns true if writes to it are refused.
    pub fn is_read_only(&self) -> bool {
        self.properties.read_only || self.is_snapshot()
    }

    /// Returns true if it inherits from a snapshot.
    pub fn has_parent(&self) -> bool {
        self.parent.is_some()
    }

    /// Returns the number of blocks that requests may touch, whichever size is in force during a resize or a rollback.
    pub fn safe_blocks(&self) -> u64 {
        let rolled_back = self.rollback.map_or(u64::MAX, |rollback| rollback.size);
        self.size_blocks.min(self.resizing.unwrap_or(u64::MAX)).min(rolled_back)
    }

    /// Returns true if its size is changing: the next opening may find another one.
    pub fn changes_size(&self) -> bool {
        self.resizing.is_some() || self.rollback.is_some()
    }

    /// Returns true if a renaming is in flight.
    pub fn is_being_renamed(&self) -> bool {
        self.former_name.is_some()
    }

    /// Returns the names that it may have, after a crash as well.
    pub fn possible_names(&self) -> impl Iterator<Item = &String> {
        [&self.name].into_iter().chain(&self.former_name)
    }

    /// Returns true if requests may be sent to it: the engine has listed its number, and its deletion is not answered.
    pub fn is_usable(&self) -> bool {
        self.id.is_some() && self.existence != Existence::Gone
    }

    /// Returns the numbers of the blocks that the model holds because they were written. All others hold zeroes.
    pub fn written(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().map(|(number, _)| number)
    }

    /// Returns the most blocks that it has had, or may have by now. Its map stays as high.
    pub fn most_blocks(&self) -> u64 {
        let rolled_back = self.rollback.map_or(0, |rollback| rollback.size);
        self.most_blocks.max(self.resizing.unwrap_or(0)).max(rolled_back)
    }

    pub(super) fn set_size(&mut self, blocks: u64) {
        self.size_blocks = blocks;
        self.most_blocks = self.most_blocks.max(blocks);
        self.blocks.truncate(blocks);
    }
}

/// A volume as the engine lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// Its number.
    pub id: VolumeId,
    /// Its name, that of a snapshot as in [`ModelVolume::name`].
    pub name: String,
    /// Blocks.
    pub size_blocks: u64,
    /// Properties in force.
    pub properties: Properties,
    /// Number of the snapshot that it inherits from.
    pub parent: Option<VolumeId>,
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Change { range: Range, begun: Moment, fua: bool },
    Observation { range: Range, since: Moment },
    Flush { since: Moment },
}

/// No write has more cells; zeroes and discards may.
const WRITTEN_AT_ONCE: u64 = 1 << 16;

/// The model. Cloning is cheap: blocks are shared until they change.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub(super) volumes: Vec<ModelVolume>,
    /// Groups of snapshots whose moment is not certain.
    pub(super) groups: Vec<Group>,
    /// Rollbacks that were in flight at the last crash, until an opening decides about them.
    pub(super) undecided: Vec<Undecided>,
    /// Number of volumes that there have been.
    pub(super) serials: u64,
    requests: BTreeMap<u64, Request>,
    pool_policy: Option<Policy>,
    /// Policies that the pool may have after a crash, while a change is in flight.
    possible_pool_policies: Vec<Option<Policy>>,
    pub(super) now: Moment,
    floor: Moment,
    /// Moment from which on contents are remembered even if later ones are durable; 0: no such moment.
    kept_since: Moment,
}

/// State that was promised up to a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Promise {
    /// The moment of the newest completed flush, as it was then.
    pub floor: Moment,
    /// The moment itself: writes with FUA that were answered before it hold.
    pub now: Moment,
}

impl Model {
    /// Returns the promise that holds now.
    pub fn promise(&self) -> Promise {
        Promise { floor: self.floor, now: self.now }
    }

    /// Notes that everything is durable by the superblock alone, and returns that promise: it holds whatever happens to the journal. From here on
    /// possible contents are remembered. Panics if a request is in flight.
    pub fn secured(&mut self) -> Promise {
        assert!(self.requests.is_empty(), "nothing is in flight");
        self.now += 1;
        self.kept_since = self.now;
        self.raise_floor(self.now);
        Promise { floor: self.now, now: self.now }
    }

    /// Applies a crash like [`Model::crash`], but holds only the earlier `promise`.
    pub fn crash_since(&mut self, promise: Promise) {
        self.crash_with(promise.floor, promise.now);
    }

    /// Returns all volumes, with the remains of those that are gone.
    pub fn volumes(&self) -> &[ModelVolume] {
        &self.volumes
    }

    /// Returns the pool's policy; `None` if none is set.
    pub fn pool_policy(&self) -> Option<Policy> {
        self.pool_policy
    }

    /// Notes that a volume's creation is submitted.
    pub fn begin_create(&mut self, name: &str, size_blocks: u64, policy: Option<Policy>) {
        self.enter(name, size_blocks, Properties { policy, ..Properties::default() });
    }

    /// Enters a volume whose creation is submitted, without content.
    pub(super) fn enter(&mut self, name: &str, size_blocks: u64, properties: Properties) -> &mut ModelVolume {
        self.serials += 1;
        self.volumes.push(ModelVolume {
            name: name.to_string(),
            former_name: None,
            size_blocks,
            most_blocks: size_blocks,
            resizing: None,
            properties,
            possible: vec![properties],
            id: None,
            existence: Existence::Creating,
            stamp: Stamp::default(),
            serial: self.serials,
            parent: None,
            snapshot: None,
            own_since: 0,
            rollback: None,
            former: None,
            blocks: Blocks::default(),
        });
        self.volumes.last_mut().expect("it was entered")
    }

    /// Notes the answer to a volume's creation. Panics if none of this name is in flight.
    pub fn end_create(&mut self, name: &str, succeeded: bool) {
        let created = |volume: &&mut ModelVolume| volume.name == name && volume.existence == Existence::Creating;
        let volume = self.volumes.iter_mut().find(created).expect("it is being created");
        volume.existence = if succeeded { Existence::Certain } else { Existence::Gone };
    }

    /// Notes that a volume's deletion is submitted.
    pub fn begin_delete(&mut self, volume: usize) {
        self.volumes[volume].existence = Existence::Deleting;
        self.volumes[volume].stamp.reshaped += 1;
    }

    /// Notes that a volume's deletion is answered: its blocks are forgotten, but for those of a snapshot that others inherit from.
    pub fn end_delete(&mut self, volume: usize) {
        self.volumes[volume].existence = Existence::Gone;
        self.forget_gone();
    }

    /// Notes that a new size is submitted. No request may be in flight that a later growth would let through.
    pub fn begin_resize(&mut self, volume: usize, blocks: u64) {
        let volume = &mut self.volumes[volume];
        volume.resizing = Some(blocks);
        volume.stamp.reshaped += u32::from(blocks < volume.size_blocks);
    }

    /// Notes that the new size is answered, and applies it. Panics if no resize is in flight.
    pub fn end_resize(&mut self, volume: usize) {
        self.note_moment(volume);
        let blocks = self.volumes[volume].resizing.take().expect("it is being resized");
        self.volumes[volume].set_size(blocks);
    }

    /// Notes that the new size is refused: the old one stays.
    pub fn fail_resize(&mut self, volume: usize) {
        self.note_moment(volume);
        self.volumes[volume].resizing = None;
    }

    /// Notes that properties are set. They are in force from here on, but may be lost in a crash.
    pub fn begin_set(&mut self, volume: usize, properties: Properties) {
        let volume = &mut self.volumes[volume];
        volume.stamp.locked += u32::from(properties.read_only);
        volume.properties = properties;
        volume.possible.push(properties);
    }

    /// Notes that the change of properties is answered: only the present ones are possible after a crash.
    pub fn end_set(&mut self, volume: usize) {
        let volume = &mut self.volumes[volume];
        volume.possible = vec![volume.properties];
    }

    /// Notes that a volume or snapshot gets another name. It has it from here on, but may lose it in a crash. No other renaming of it may be in flight.
    pub fn begin_rename(&mut self, volume: usize, name: &str) {
        let volume = &mut self.volumes[volume];
        assert!(!volume.is_being_renamed());
        volume.former_name = Some(std::mem::replace(&mut volume.name, name.to_string()));
    }

    /// Notes that the renaming is answered: only the present name is possible after a crash.
    pub fn end_rename(&mut self, volume: usize) {
        self.volumes[volume].former_name = None;
    }

    /// Notes that the pool's policy is set. It is in force from here on, but may be lost in a crash.
    pub fn begin_set_pool(&mut self, policy: Option<Policy>) {
        self.possible_pool_policies.extend([self.pool_policy, policy]);
        self.pool_policy = policy;
    }

    /// Notes that the change of the pool's policy is answered: only the present one is possible after a crash.
    pub fn end_set_pool(&mut self) {
        self.possible_pool_policies.clear();
    }

    /// Returns the policy in force for a volume: its own, or the pool's, or the default.
    pub fn policy_of(&self, volume: &ModelVolume) -> Policy {
        volume.properties.policy.or(self.pool_policy).unwrap_or_default()
    }

    /// Returns the stamp that a request to a volume takes along when it is submitted.
    pub fn stamp(&self, volume: usize) -> Stamp {
        self.volumes[volume].stamp
    }

    /// Returns true if a request may have been refused because its range is gone: the volume was shrunk or deleted since the stamp.
    pub fn may_be_outside(&self, volume: usize, stamp: Stamp) -> bool {
        let volume = &self.volumes[volume];
        volume.stamp.reshaped != stamp.reshaped || matches!(volume.existence, Existence::Deleting | Existence::Gone)
    }

    /// Returns true if a write may have been refused because its volume was made read-only since the stamp, or is rolled back.
    pub fn may_be_locked(&self, volume: usize, stamp: Stamp) -> bool {
        self.volumes[volume].stamp.locked != stamp.locked || self.volumes[volume].rollback.is_some()
    }

    /// Returns the index of the volume with this number and name.
    pub fn index_of(&self, id: VolumeId, name: &str) -> Option<usize> {
        self.volumes.iter().position(|volume| volume.id == Some(id) && volume.name == name)
    }

    /// Compares the volumes and the pool's policy with the engine's list. After an opening, with nothing in flight,
    /// adopts the engine's state where several are possible.
    pub fn reconcile(&mut self, listed: &[Listing], pool_policy: Option<Policy>, opened: bool) -> Checked {
        // A number is given again when the volume that had it is gone, so names tell them apart.
        let mut known = BTreeSet::new();
        for volume in &self.volumes {
            known.extend(
                volume.id.into_iter().flat_map(|id| volume.possible_names().map(move |name| (id, name.clone()))),
            );
        }
        let names: BTreeSet<_> = listed.iter().map(|volume| &volume.name).collect();
        let ids: BTreeSet<_> = listed.iter().map(|volume| volume.id).collect();
        if ids.len() != listed.len() || names.len() != listed.len() {
            return violated(format!("volumes share a number or a name: {listed:?}"));
        }
        self.find_snapshots(listed, &known, opened)?;
        if opened {
            self.decide_rollbacks(listed)?;
        }
        let mut expected = 0;
        for volume in &mut self.volumes {
            let found = listed.iter().find(|listed| match volume.id {
                Some(id) => {
                    let is_former = opened && volume.former_name.as_ref() == Some(&listed.name);
                    listed.id == id && (is_former || listed.name == volume.name)
                }
                // A creation that failed leaves nothing; its name may be another's.
                None => {
                    let failed = volume.existence == Existence::Gone;
                    !failed && listed.name == volume.name && !known.contains(&(listed.id, listed.name.clone()))
                }
            });
            let Some(found) = found else {
                if volume.existence == Existence::Certain {
                    return violated(format!("volume {} is gone, its creation was answered", volume.name));
                }
                if opened {
                    volume.existence = Existence::Gone;
                }
                continue;
            };
            if volume.existence == Existence::Gone {
                return violated(format!("volume {} is back, its deletion was answered", volume.name));
            }
            expected += 1;
            let rolled_back = volume.rollback.map(|rollback| rollback.size);
            let good_size = found.size_blocks == volume.size_blocks
                || [volume.resizing, rolled_back].contains(&Some(found.size_blocks));
            let good_properties = if opened { &volume.possible[..] } else { &[volume.properties] };
            if !good_size || !good_properties.contains(&found.properties) {
                return violated(format!("volume {} ({volume:?}) has become {found:?}", volume.name));
            }
            volume.id = Some(found.id);
            if opened {
                volume.existence = Existence::Certain;
                volume.name.clone_from(&found.name);
                volume.former_name = None;
                volume.resizing = None;
                volume.set_size(found.size_blocks);
                volume.properties = found.properties;
                volume.possible = vec![found.properties];
            }
        }
        if listed.len() != expected {
            return violated(format!("there are volumes that were never created: {listed:?}"));
        }
        if pool_policy != self.pool_policy && !(opened && self.possible_pool_policies.contains(&pool_policy)) {
            return violated(format!("the pool's policy is {pool_policy:?}, expected {:?}", self.pool_policy));
        }
        if opened {
            assert!(self.requests.is_empty(), "nothing survives a crash");
            self.pool_policy = pool_policy;
            self.possible_pool_policies.clear();
            self.forget_gone();
            let held: Vec<u64> =
                (0..self.volumes.len()).filter(|&at| self.is_held(at)).map(|at| self.volumes[at].serial).collect();
            self.volumes.retain(|volume| volume.existence == Existence::Certain || held.contains(&volume.serial));
        }
        Ok(())
    }

    /// Returns true if a change of the range would exceed the changes at one block that the oracle can follow: the caller waits for an answer.
    pub fn is_crowded(&self, range: Range) -> bool {
        let asked = range.blocks();
        let overlapping: Vec<_> = self.changes_in_flight(range.volume).map(|(_, change, ..)| change.blocks()).collect();
        // The maximum of the overlap is at the start of one of them, or at the start of the asked range.
        let places = overlapping.iter().map(|blocks| blocks.start.max(asked.start)).filter(|place| *place < asked.end);
        let mut meeting = places.map(|place| overlapping.iter().filter(|blocks| blocks.contains(&place)).count());
        meeting.any(|count| count >= MOST_CHANGES)
    }

    /// Returns the changes of a volume that are in flight, in the order of submission.
    pub(super) fn changes_in_flight(&self, volume: usize) -> impl Iterator<Item = (u64, Range, Moment, bool)> {
        self.requests.iter().filter_map(move |(&token, request)| match *request {
            Request::Change { range, begun, fua } if range.volume == volume => Some((token, range, begun, fua)),
            _ => None,
        })
    }

    /// Builds a block that was never written, with the zeroes in flight that cover it.
    fn unwritten(&self, volume: usize, number: u64) -> Block {
        let mut block = Block::new(ZERO);
        for (token, range, begun, fua) in self.changes_in_flight(volume) {
            if range.blocks().contains(&number) {
                block.begin_change(begun, token, range.part(number).mask(), ZERO, fua);
            }
        }
        block
    }

    /// Returns true if a range can still be asked for: its volume may have gone or shrunk since it was chosen.
    pub fn is_there(&self, range: Range) -> bool {
        let volume = &self.volumes[range.volume];
        volume.is_usable() && range.first + range.count <= volume.safe_blocks() * CELLS as u64
    }

    /// Notes that a write, zeroing or discard is submitted; `value` gives each cell, counted from the start of the range.
    pub fn begin_change(&mut self, token: u64, range: Range, value: impl Fn(Part, usize) -> u32, fua: bool) {
        self.now += 1;
        let only_zeroes = |part: &Part| (part.from..part.to).all(|cell| value(*part, cell) == 0);
        // A range that is longer than a write is one of zeroes.
        let (first, last) = (range.part(range.blocks().start), range.part(range.blocks().end - 1));
        if !only_zeroes(&first) || !only_zeroes(&last) || range.count <= WRITTEN_AT_ONCE {
            for part in range.parts().filter(|part| !only_zeroes(part)) {
                if self.volumes[range.volume].blocks.get(part.block).is_none() {
                    let block = self.unwritten(range.volume, part.block);
                    self.volumes[range.volume].blocks.insert(part.block, block);
                }
            }
        }
        self.requests.insert(token, Request::Change { range, begun: self.now, fua });
        for (number, block) in self.volumes[range.volume].blocks.range_mut(range.blocks()) {
            let (part, mut values) = (range.part(*number), ZERO);
            for (cell, slot) in values.iter_mut().enumerate().take(part.to).skip(part.from) {
                *slot = value(part, cell);
            }
            Rc::make_mut(block).begin_change(self.now, token, part.mask(), values, fua);
        }
    }

    /// Notes the answer to a change. Panics if none with this token is in flight.
    pub fn end_change(&mut self, token: u64, succeeded: bool) {
        let Some(Request::Change { range, .. }) = self.requests.remove(&token) else {
            panic!("only a change in flight is answered")
        };
        self.note_moment(range.volume);
        self.now += 1;
        let keep = self.oldest_interest();
        // A block that was cut off, or deleted with its volume, holds nothing any more.
        for (_, block) in self.volumes[range.volume].blocks.range_mut(range.blocks()) {
            let block = Rc::make_mut(block);
            block.end_change(self.now, token, succeeded);
            block.forget_before(keep);
        }
    }

    /// Notes that a read, or a request for extents, is submitted.
    pub fn begin_observation(&mut self, token: u64, range: Range) {
        self.now += 1;
        self.requests.insert(token, Request::Observation { range, since: self.now });
    }

    /// Drops a read that failed, or whose answer proves nothing.
    pub fn drop_observation(&mut self, token: u64) {
        self.requests.remove(&token);
    }

    /// Checks the answer to a read, the cells of its range, against the possible contents.
    pub fn end_read(&mut self, token: u64, cells: &[u32]) -> Checked {
        let (range, since) = self.take_observation(token);
        if cells.len() as u64 != range.count {
            return violated(format!("a read of {range:?} was answered with {} cells", cells.len()));
        }
        self.now += 1;
        let name = self.volumes[range.volume].name.clone();
        let meets_rollback = self.meets_rollback(range.volume, since);
        let mut rest = cells;
        for part in range.parts() {
            let (mine, others) = rest.split_at(part.to - part.from);
            rest = others;
            let mut values = ZERO;
            values[part.from..part.to].copy_from_slice(mine);
            let volume = &self.volumes[range.volume];
            if volume.existence == Existence::Gone || part.block >= volume.size_blocks {
                // The answer was on its way when its blocks were cut off.
                break;
            }
            if meets_rollback && self.fits_rollback(range.volume, since, part, &values) {
                continue;
            }
            let volume = &mut self.volumes[range.volume];
            let Some(block) = volume.blocks.get_mut(part.block) else {
                // No moment has another content of it.
                if values == ZERO {
                    continue;
                }
                return violated(format!(
                    "volume {name} block {} reads as {mine:x?}, and was never written",
                    part.block
                ));
            };
            if block.is_simple() && part.is_whole() && block.only() == Some(values) {
                continue;
            }
            if !Rc::make_mut(block).observe(self.now, since, part.mask(), &values) {
                return violated(format!(
                    "volume {name} block {} cells {}..{} read as {mine:x?}, possible are {:x?}",
                    part.block,
                    part.from,
                    part.to,
                    block.possible_since(since)
                ));
            }
            if !self.groups.is_empty() && !self.explain(range.volume, part, &values) {
                return violated(format!(
                    "snapshot {name} block {} cells {}..{} read as {mine:x?}: no moment explains all blocks that were read",
                    part.block, part.from, part.to
                ));
            }
        }
        Ok(())
    }

    /// Checks the answer to a request for at most `limit` extents. A short answer covers at least `least` bytes,
    /// unless it has `limit` extents.
    pub fn end_extents(&mut self, token: u64, extents: &[Extent], limit: u32, least: u64, cell_bytes: u64) -> Checked {
        let (range, since) = self.take_observation(token);
        let wrong = |text: &str| violated(format!("extents of {range:?}: {text}: {extents:?}"));
        if extents.is_empty() || extents.len() > limit as usize || extents.iter().any(|extent| extent.length == 0) {
            return wrong("none, too many, or one without length");
        }
        let total: u64 = extents.iter().map(|extent| extent.length).sum();
        let (all, is_short) = (range.count * cell_bytes, extents.len() < limit as usize);
        if total > all || (is_short && total < all.min(least)) {
            return wrong("they cover too much or too little");
        }
        let mut first = range.first;
        let meets_rollback = self.meets_rollback(range.volume, since);
        for extent in extents {
            if !extent.length.is_multiple_of(cell_bytes) {
                return wrong("a length that is no multiple of the smallest unit written");
            }
            let count = extent.length / cell_bytes;
            if extent.hole && !meets_rollback {
                let hole = Range { first, count, ..range };
                for (number, block) in self.volumes[range.volume].blocks.range(hole.blocks()) {
                    let part = hole.part(*number);
                    let is_zero = |content: &Cells| content[part.from..part.to].iter().all(|&cell| cell == 0);
                    if !block.possible_since(since).iter().any(is_zero) {
                        return wrong(&format!("a hole at block {number}, which is not zero"));
                    }
                }
            }
            first += count;
        }
        Ok(())
    }

    /// Notes that a flush is submitted.
    pub fn begin_flush(&mut self, token: u64) {
        self.now += 1;
        self.requests.insert(token, Request::Flush { since: self.now });
    }

    /// Notes the answer to a flush. If it succeeded, everything answered before its submission is durable.
    pub fn end_flush(&mut self, token: u64, succeeded: bool) {
        let Some(Request::Flush { since }) = self.requests.remove(&token) else {
            panic!("only a flush in flight is answered")
        };
        if succeeded {
            self.raise_floor(since);
        }
    }

    /// Notes that the pool was closed cleanly, with nothing in flight: everything is durable.
    pub fn closed(&mut self) {
        assert!(self.requests.is_empty(), "closing waits for all requests");
        self.now += 1;
        self.raise_floor(self.now);
    }

    /// Applies a death of the machine or the process: requests in flight are never answered, and each block has any content that may remain.
    pub fn crash(&mut self) {
        self.crash_with(self.floor, ALWAYS);
    }

    fn crash_with(&mut self, floor: Moment, certain: Moment) {
        self.close_groups();
        self.interrupt_rollbacks();
        self.requests.clear();
        let now = self.now;
        let crash = |block: &mut Rc<Block>| {
            if !block.is_simple() {
                let block = Rc::make_mut(block);
                block.interrupt(now);
                block.crash(floor, certain);
            }
        };
        self.volumes.iter_mut().flat_map(|volume| volume.blocks.iter_mut()).for_each(crash);
        self.undecided_blocks().for_each(crash);
    }

    /// Returns the content of a block if only one is possible.
    pub fn only(&self, volume: usize, block: u64) -> Option<Cells> {
        self.volumes[volume].blocks.get(block).map_or(Some(ZERO), |block| block.only())
    }

    fn take_observation(&mut self, token: u64) -> (Range, Moment) {
        match self.requests.remove(&token) {
            Some(Request::Observation { range, since }) => (range, since),
            _ => panic!("only a read in flight is answered"),
        }
    }

    fn raise_floor(&mut self, moment: Moment) {
        self.floor = self.floor.max(moment);
        let keep = self.oldest_interest();
        for block in self.volumes.iter_mut().flat_map(|volume| volume.blocks.iter_mut()) {
            if !block.is_simple() {
                Rc::make_mut(block).forget_before(keep);
            }
        }
    }

    /// Returns the earliest moment that a read in flight or a crash may still ask for.
    fn oldest_interest(&self) -> Moment {
        let since = |request: &Request| match request {
            Request::Observation { since, .. } => *since,
            Request::Change { .. } | Request::Flush { .. } => Moment::MAX,
        };
        let kept = if self.kept_since == 0 { Moment::MAX } else { self.kept_since };
        self.requests.values().map(since).min().unwrap_or(Moment::MAX).min(self.floor).min(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL_BYTES: u64 = 64;

    fn pool() -> Model {
        let mut model = Model::default();
        model.begin_create("a", 4, Some(Policy::Full));
        model.end_create("a", true);
        model
    }

    fn range(first: u64, count: u64) -> Range {
        Range { volume: 0, first, count }
    }

    fn write(model: &mut Model, token: u64, range: Range, value: u32) {
        model.begin_change(token, range, |_, _| value, false);
        model.end_change(token, true);
    }

    fn flush(model: &mut Model, token: u64) {
        model.begin_flush(token);
        model.end_flush(token, true);
    }

    fn reads(model: &Model, range: Range, cells: &[u32]) -> bool {
        let mut model = model.clone();
        model.begin_observation(99, range);
        model.end_read(99, cells).is_ok()
    }

    #[test]
    fn parts_of_a_range_cover_it_exactly() {
        let parts: Vec<_> = range(6, 12).parts().collect();
        let part = |block, from, to| Part { block, from, to };
        assert_eq!(parts, [part(0, 6, 8), part(1, 0, 8), part(2, 0, 2)]);
        assert_eq!(parts[0].mask(), 0b1100_0000);
        assert_eq!(parts[1].mask(), 0xff);
        assert!(!range(6, 12).is_aligned() && range(8, 16).is_aligned());
    }

    #[test]
    fn a_lost_flushed_write_is_rejected_an_unflushed_one_is_not() {
        let mut model = pool();
        write(&mut model, 1, range(0, 8), 1);
        flush(&mut model, 2);
        write(&mut model, 3, range(0, 8), 2);
        model.crash();
        assert!(reads(&model, range(0, 8), &[1; 8]) && reads(&model, range(0, 8), &[2; 8]));
        assert!(!reads(&model, range(0, 8), &[0; 8]));
    }

    #[test]
    fn a_torn_block_is_rejected_blocks_of_different_age_are_not() {
        let mut model = pool();
        write(&mut model, 1, range(0, 16), 1);
        model.crash();
        let mut cells = [1; 16];
        cells[8..].fill(0);
        assert!(reads(&model, range(0, 16), &cells));
        cells[3] = 0;
        assert!(!reads(&model, range(0, 16), &cells));
    }

    #[test]
    fn a_write_that_was_seen_to_be_lost_may_not_come_back_after_another_crash() {
        let mut model = pool();
        write(&mut model, 1, range(0, 8), 1);
        model.crash();
        model.begin_observation(2, range(0, 8));
        model.end_read(2, &[0; 8]).unwrap();
        model.crash();
        assert!(!reads(&model, range(0, 8), &[1; 8]));
    }

    #[test]
    fn a_flush_covers_what_was_answered_before_it_was_submitted_not_what_was_in_flight() {
        let mut model = pool();
        model.begin_change(1, range(0, 8), |_, _| 1, false);
        model.begin_flush(2);
        model.end_change(1, true);
        model.end_flush(2, true);
        model.crash();
        assert!(reads(&model, range(0, 8), &[0; 8]) && reads(&model, range(0, 8), &[1; 8]));
    }

    #[test]
    fn a_failed_flush_promises_nothing_and_a_clean_close_promises_everything() {
        let mut model = pool();
        write(&mut model, 1, range(0, 8), 1);
        model.begin_flush(2);
        model.end_flush(2, false);
        let mut closed = model.clone();
        model.crash();
        assert!(reads(&model, range(0, 8), &[0; 8]));
        closed.closed();
        closed.crash();
        assert!(!reads(&closed, range(0, 8), &[0; 8]));
    }

    #[test]
    fn where_only_an_earlier_promise_holds_a_later_flush_may_be_cut_an_earlier_one_not() {
        let mut model = pool();
        model.secured();
        write(&mut model, 1, range(0, 8), 1);
        flush(&mut model, 2);
        let promise = model.promise();
        write(&mut model, 3, range(0, 8), 2);
        flush(&mut model, 4);
        let mut strict = model.clone();
        strict.crash();
        assert!(!reads(&strict, range(0, 8), &[1; 8]) && reads(&strict, range(0, 8), &[2; 8]));
        model.crash_since(promise);
        assert!(reads(&model, range(0, 8), &[1; 8]) && reads(&model, range(0, 8), &[2; 8]));
        assert!(!reads(&model, range(0, 8), &[0; 8]), "the first flush was promised before");
    }

    #[test]
    fn holes_are_accepted_only_where_zeroes_may_be() {
        let mut model = pool();
        write(&mut model, 1, range(8, 12), 1);
        let answer = |model: &Model, extents: &[(u64, bool)], limit| {
            let mut model = model.clone();
            model.begin_observation(9, range(0, 32));
            let extents: Vec<_> =
                extents.iter().map(|&(cells, hole)| Extent { length: cells * CELL_BYTES, hole }).collect();
            model.end_extents(9, &extents, limit, u64::MAX, CELL_BYTES).is_ok()
        };
        assert!(answer(&model, &[(8, true), (16, false), (8, true)], 8));
        assert!(answer(&model, &[(8, true), (12, false), (12, true)], 8));
        assert!(answer(&model, &[(8, true)], 1));
        assert!(!answer(&model, &[(8, true)], 2), "they end before the range does");
        assert!(!answer(&model, &[(9, true), (23, false)], 8));
        assert!(!answer(&model, &[], 8));
    }

    #[test]
    fn a_volume_whose_creation_was_answered_must_be_there_after_a_crash() {
        let mut model = pool();
        model.begin_create("b", 2, Some(Policy::Native));
        let listed = |name: &str, blocks: u64, policy, id| Listing {
            id: VolumeId(id),
            name: name.into(),
            size_blocks: blocks,
            properties: Properties { policy: Some(policy), ..Properties::default() },
            parent: None,
        };
        let (a, b) = (listed("a", 4, Policy::Full, 1), listed("b", 2, Policy::Native, 2));
        let opens = |model: &Model, listed: &[Listing]| model.clone().reconcile(listed, None, true).is_ok();
        assert!(opens(&model, std::slice::from_ref(&a)), "b may be lost");
        assert!(opens(&model, &[a.clone(), b.clone()]));
        assert!(!opens(&model, std::slice::from_ref(&b)));
        model.end_create("b", true);
        assert!(!opens(&model, std::slice::from_ref(&a)));
        assert!(!opens(&model, &[a, Listing { size_blocks: 1, ..b }]));
    }

    #[test]
    fn what_was_asked_of_a_volume_may_be_lost_what_was_answered_may_not() {
        let mut model = pool();
        let properties = model.volumes[0].properties;
        let listing = Listing { id: VolumeId(1), name: "a".into(), size_blocks: 4, properties, parent: None };
        model.reconcile(std::slice::from_ref(&listing), None, true).unwrap();
        let opens = |model: &Model, listed: &[Listing]| model.clone().reconcile(listed, None, true).is_ok();
        let larger = Listing { size_blocks: 9, ..listing.clone() };
        model.begin_resize(0, 9);
        assert!(opens(&model, std::slice::from_ref(&listing)) && opens(&model, std::slice::from_ref(&larger)));
        model.end_resize(0);
        assert!(!opens(&model, std::slice::from_ref(&listing)) && opens(&model, std::slice::from_ref(&larger)));
        let properties = Properties { read_only: true, keep_runs: KeepRuns::On, ..Properties::default() };
        let locked = Listing { properties, ..larger.clone() };
        model.begin_set(0, properties);
        assert!(opens(&model, std::slice::from_ref(&larger)) && opens(&model, std::slice::from_ref(&locked)));
        model.end_set(0);
        assert!(!opens(&model, std::slice::from_ref(&larger)));
        model.begin_delete(0);
        assert!(opens(&model, std::slice::from_ref(&locked)) && opens(&model, &[]));
        model.end_delete(0);
        assert!(!opens(&model, std::slice::from_ref(&locked)) && opens(&model, &[]));
    }

    #[test]
    fn what_a_shrinking_cut_off_is_zero_when_it_grows_again() {
        let mut model = pool();
        write(&mut model, 1, range(0, 32), 7);
        flush(&mut model, 2);
        for blocks in [2, 4] {
            model.begin_resize(0, blocks);
            model.end_resize(0);
        }
        assert!(reads(&model, range(0, 16), &[7; 16]) && reads(&model, range(16, 16), &[0; 16]));
        assert!(!reads(&model, range(16, 16), &[7; 16]));
    }

    #[test]
    fn distinct_and_used_blocks_are_counted_over_all_volumes() {
        let mut model = pool();
        write(&mut model, 1, range(0, 16), 7);
        write(&mut model, 2, range(16, 8), 8);
        assert_eq!((model.used(0), model.distinct(), model.blocks_that_may_take_space()), ((3, 3), (2, true), 3));
        assert_eq!(model.repeated(0), 2);
    }
}
