//! The simulated disk: its durable content, the written content that no sync covers, and the outcome of a crash.
//!
//! Owns the content of every block. A write is `Flying` from submission until its completion is delivered, then `Landed` and visible. A sync makes durable,
//! when it completes, the writes that had landed when it was submitted. A durable write is durable when it completes. Until then a block has its durable
//! content and a list of later versions, in order of completion. If a sync or durable write fails, those in flight beside it may succeed and make nothing
//! durable. Their data can be lost with the failed one, and only the failed one returns an error.
//!
//! A power cut leaves each block independently with its durable content, any later version (those in flight too), or a torn mix of two of these. A kill of
//! the process leaves landed writes visible but still not durable. Each block of a write in flight lands or does not.
//!
//! Faults put damage beside pristine content ([`Overlay`]): reads see it until a write replaces it or it is lifted.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::content::{Content, ZERO};
use crate::random::{Random, mix};
use crate::world::faults::{Overlay, rotten};

/// Fates in a crash of writes that no sync has covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// All of them are lost.
    Lost,
    /// All of them are kept, also those in flight.
    Kept,
    /// Each block has any of its versions.
    Mixed,
    /// Each block has any of its versions, or a torn mix of two.
    Torn,
    /// Each write is kept or lost as a whole.
    ByWrite,
    /// Metadata is kept, payload is lost.
    MetadataOnly,
    /// Payload is kept, metadata is lost.
    PayloadOnly,
    /// Writes in flight are kept, those that had completed are lost.
    FlyingOnly,
    /// The power fails in the middle of a sync or of a durable write: each block that these cover is written back, torn, or not reached yet. All other writes
    /// are lost.
    MidSync,
    /// A kill of the process alone: completed writes stay visible, and stay volatile.
    Kill,
    /// This cell alone is written of each block's last version.
    OneKept(u8),
    /// This cell alone is missing of each block's last version.
    OneLost(u8),
    /// One cell alone is written of each block's last version, another cell in each block.
    RotatingKept,
    /// One cell alone is missing of each block's last version, another cell in each block.
    RotatingLost,
}

impl Cut {
    /// All cuts except [`Cut::MASKS`], in the order of the variants that `sim crash` tries.
    pub const ALL: [Cut; 10] = [
        Cut::Lost,
        Cut::Kept,
        Cut::Kill,
        Cut::MetadataOnly,
        Cut::PayloadOnly,
        Cut::FlyingOnly,
        Cut::ByWrite,
        Cut::Mixed,
        Cut::Torn,
        Cut::MidSync,
    ];

    /// Cuts that tear all blocks in one way: every single cell alone written or missing, and these in turn.
    pub const MASKS: [Cut; 18] = [
        Cut::OneKept(0),
        Cut::OneKept(1),
        Cut::OneKept(2),
        Cut::OneKept(3),
        Cut::OneKept(4),
        Cut::OneKept(5),
        Cut::OneKept(6),
        Cut::OneKept(7),
        Cut::OneLost(0),
        Cut::OneLost(1),
        Cut::OneLost(2),
        Cut::OneLost(3),
        Cut::OneLost(4),
        Cut::OneLost(5),
        Cut::OneLost(6),
        Cut::OneLost(7),
        Cut::RotatingKept,
        Cut::RotatingLost,
    ];

    /// Returns its position in [`Cut::ALL`] followed by `Cut::MASKS`.
    pub fn number(self) -> u64 {
        let all = Cut::ALL.into_iter().chain(Cut::MASKS);
        all.take_while(|&cut| cut != self).count() as u64
    }

    /// Returns the mask of a block's cells that are written, for the cuts that tear all blocks in one way; `None` for others.
    fn mask(self, block: u64, salt: u64) -> Option<u8> {
        let turning = 1 << (block.wrapping_add(salt) % 8);
        match self {
            Cut::OneKept(cell) => Some(1 << cell),
            Cut::OneLost(cell) => Some(!(1 << cell)),
            Cut::RotatingKept => Some(turning),
            Cut::RotatingLost => Some(!turning),
            _ => None,
        }
    }

    /// Returns true if the outcome depends on chance, so that several tries differ.
    pub fn is_random(self) -> bool {
        matches!(self, Cut::Mixed | Cut::Torn | Cut::ByWrite | Cut::MidSync | Cut::Kill)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Flying,
    /// Count of completions at which it landed.
    Landed(u64),
}

#[derive(Clone, Debug)]
struct Version {
    content: Content,
    /// Write that it belongs to: unique in the life of the disk.
    write: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    write: u64,
    first: u64,
    count: u64,
    /// True if it is durable when it completes.
    durable: bool,
    /// True if it was in flight beside a sync or durable write that fails.
    doubtful: bool,
}

/// A sync in flight.
#[derive(Clone, Copy, Debug)]
struct Sync {
    /// Count of completions that it covers.
    covered: u64,
    /// True if it was in flight beside a sync or durable write that fails.
    doubtful: bool,
}

/// The disk. Cloning is cheap: blocks are shared until they change.
#[derive(Clone, Debug)]
pub struct Disk {
    block_size: u32,
    durable: Rc<Vec<Content>>,
    recent: BTreeMap<u64, Vec<Version>>,
    flights: BTreeMap<u32, Flight>,
    overlay: Overlay,
    syncs: BTreeMap<u32, Sync>,
    /// Syncs and durable writes in flight that will fail.
    failing: BTreeSet<u32>,
    writes: u64,
    completions: u64,
    completed_syncs: u64,
}

impl Disk {
    /// Creates a disk full of zeroes.
    pub fn new(block_size: u32, blocks: u64) -> Disk {
        Disk {
            block_size,
            durable: Rc::new(vec![Content::Payload(ZERO); blocks as usize]),
            recent: BTreeMap::new(),
            flights: BTreeMap::new(),
            overlay: Overlay::default(),
            syncs: BTreeMap::new(),
            failing: BTreeSet::new(),
            writes: 0,
            completions: 0,
            completed_syncs: 0,
        }
    }

    /// Returns the size of a block in bytes.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> u64 {
        self.durable.len() as u64
    }

    /// Enlarges the disk with zeroes; never shrinks it.
    pub fn grow(&mut self, blocks: u64) {
        let blocks = self.blocks().max(blocks);
        Rc::make_mut(&mut self.durable).resize(blocks as usize, Content::Payload(ZERO));
    }

    /// Puts a block there, durable at once: for formatting.
    pub fn put(&mut self, block: u64, content: Content) {
        Rc::make_mut(&mut self.durable)[block as usize] = content;
    }

    /// Begins a write of consecutive blocks. Returns false if one of them has a write in flight already, since their order would be undefined.
    #[must_use]
    pub fn submit_write(&mut self, id: u32, first: u64, contents: Vec<Content>) -> bool {
        self.writes += 1;
        let (write, count) = (self.writes, contents.len() as u64);
        for (block, content) in (first..).zip(contents) {
            let versions = self.recent.entry(block).or_default();
            if versions.iter().any(|version| version.stage == Stage::Flying) {
                return false;
            }
            versions.push(Version { content, write, stage: Stage::Flying });
        }
        self.flights.insert(id, Flight { write, first, count, durable: false, doubtful: false }).is_none()
    }

    /// Makes a write that has just begun a durable one. Panics if it is not in flight.
    pub fn force_write(&mut self, id: u32) {
        let flight = self.flights.get_mut(&id).expect("only a write in flight is forced");
        flight.durable = true;
        flight.doubtful = !self.failing.is_empty();
    }

    /// Makes a sync or a durable write that has just begun fail later. Durable writes and syncs in flight beside it may then silently not be
    /// durable.
    pub fn will_fail(&mut self, id: u32) {
        self.failing.insert(id);
        self.flights.values_mut().filter(|flight| flight.durable).for_each(|flight| flight.doubtful = true);
        self.syncs.values_mut().for_each(|sync| sync.doubtful = true);
    }

    /// Completes a write. If it is a durable one, no earlier content of its blocks can come back.
    pub fn complete_write(&mut self, id: u32) {
        let flight = self.flights.remove(&id).expect("only a write in flight completes");
        self.failing.remove(&id);
        self.completions += 1;
        for block in flight.first..flight.first + flight.count {
            let before = self.overlay.remembers.then(|| self.read(block).clone());
            self.overlay.overwritten(block, before);
            let versions = self.recent.get_mut(&block).expect("a write in flight is among the recent ones");
            let version = versions.iter_mut().find(|version| version.write == flight.write);
            version.expect("a write in flight has a version of each of its blocks").stage =
                Stage::Landed(self.completions);
            if flight.durable && !flight.doubtful {
                let own = versions.iter().position(|version| version.write == flight.write).expect("found above");
                Rc::make_mut(&mut self.durable)[block as usize] = versions[own].content.clone();
                versions.drain(..=own);
                if versions.is_empty() {
                    self.recent.remove(&block);
                }
            }
        }
    }

    /// Begins a sync, which covers the writes that have completed by now.
    pub fn submit_sync(&mut self, id: u32) {
        let doubtful = !self.failing.is_empty();
        self.syncs.insert(id, Sync { covered: self.completions, doubtful });
    }

    /// Completes a sync: covered contents become durable, unless a failure beside it made it doubtful.
    pub fn complete_sync(&mut self, id: u32) {
        let sync = self.syncs.remove(&id).expect("only a sync in flight completes");
        self.completed_syncs += 1;
        if sync.doubtful {
            return;
        }
        let covered = sync.covered;
        let durable = Rc::make_mut(&mut self.durable);
        self.recent.retain(|&block, versions| {
            let is_covered =
                |version: &Version| matches!(version.stage, Stage::Landed(completion) if completion <= covered);
            if let Some(last) = versions.iter().rposition(is_covered) {
                durable[block as usize] = versions[last].content.clone();
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
    }

    /// Drops a sync that failed: all that it would have covered stays volatile.
    pub fn drop_sync(&mut self, id: u32) {
        self.failing.remove(&id);
        self.syncs.remove(&id).expect("only a sync in flight completes");
    }

    /// Returns the content that a read sees: the damage, or the last completed write.
    pub fn read(&self, block: u64) -> &Content {
        self.overlay.get(block).unwrap_or_else(|| self.pristine(block))
    }

    /// Returns the content of the last completed write, without damage.
    pub fn pristine(&self, block: u64) -> &Content {
        let landed = self.recent.get(&block).and_then(|versions| {
            versions.iter().rev().find(|version| version.stage != Stage::Flying).map(|version| &version.content)
        });
        landed.unwrap_or(&self.durable[block as usize])
    }

    /// Returns the content of a read that may race with a write in flight: the block before it, after it, or a torn mix.
    pub fn read_racing(&self, block: u64, random: &mut Random) -> Content {
        let before = self.read(block);
        let flying = self.recent.get(&block).and_then(|versions| {
            versions.iter().find(|version| version.stage == Stage::Flying).map(|version| &version.content)
        });
        match flying {
            None => before.clone(),
            Some(after) => match random.below(3) {
                0 => before.clone(),
                1 => after.clone(),
                _ => before.torn(after, random.draw() as u8, self.block_size),
            },
        }
    }

    // ---- faults ----

    /// Remembers from here on the content that each block held before its last write.
    pub fn remember_previous(&mut self) {
        self.overlay.remembers = true;
    }

    /// Declares two blocks copies of each other: from here on at most one of them is damaged.
    pub fn pair(&mut self, one: u64, other: u64) {
        self.overlay.pair(one, other);
    }

    /// Removes all damage.
    pub fn lift(&mut self) {
        self.overlay.lift();
    }

    /// Makes the damage to one of two copies permanent. An opening has accepted it: a superblock that the opening did not see must not come back newer than
    /// the opening's own writes since.
    pub fn keep_damaged_copies(&mut self) {
        let durable = Rc::make_mut(&mut self.durable);
        for (block, content) in self.overlay.damaged_copies() {
            if !self.recent.contains_key(&block) {
                durable[block as usize] = content.clone();
            }
        }
    }

    /// Makes the damage to this block permanent, unless it has a write that no sync has covered.
    pub fn keep_damage(&mut self, block: u64) {
        if let Some(content) = self.overlay.get(block).filter(|_| !self.recent.contains_key(&block)) {
            Rc::make_mut(&mut self.durable)[block as usize] = content.clone();
        }
    }

    /// Counts damaged blocks.
    pub fn damaged(&self) -> usize {
        self.overlay.count()
    }

    /// Returns true if a read of the block sees something other than the last completed write.
    pub fn is_damaged(&self, block: u64) -> bool {
        self.overlay.get(block).is_some_and(|content| content != self.pristine(block))
    }

    /// Returns true if the block is one of two copies, and the other one is damaged.
    pub fn has_damaged_copy(&self, block: u64) -> bool {
        self.overlay.has_damaged_copy(block)
    }

    /// Returns true if the block is one of two copies.
    pub fn is_of_a_pair(&self, block: u64) -> bool {
        self.overlay.is_of_a_pair(block)
    }

    /// Returns the content that a stale read of the block sees, if it differs from the right one.
    pub fn stale(&self, block: u64) -> Option<Content> {
        self.overlay.stale(block).filter(|&content| content != self.pristine(block)).cloned()
    }

    /// Damages a block by a change of one byte or cell. Returns false if it may not be damaged.
    pub fn rot(&mut self, block: u64, random: &mut Random) -> bool {
        let content = rotten(self.read(block), random);
        self.damage(block, content)
    }

    fn damage(&mut self, block: u64, content: Content) -> bool {
        content != *self.pristine(block) && self.overlay.damage(block, content)
    }

    /// Completes a write with success although its blocks keep their old content; with `elsewhere`, the new content appears from that block on. Returns
    /// the number of blocks damaged.
    pub fn lose_write(&mut self, id: u32, elsewhere: Option<u64>) -> usize {
        let flight = self.flights[&id];
        let blocks = flight.first..flight.first + flight.count;
        let before: Vec<Content> = blocks.clone().map(|block| self.read(block).clone()).collect();
        self.complete_write(id);
        let written: Vec<Content> = blocks.clone().map(|block| self.pristine(block).clone()).collect();
        let mut count = 0;
        for (block, content) in blocks.zip(before) {
            count += usize::from(self.damage(block, content));
        }
        if let Some(first) = elsewhere.filter(|_| count > 0) {
            for (block, content) in (first..self.blocks()).zip(written) {
                count += usize::from(self.damage(block, content));
            }
        }
        count
    }

    /// Fails a write: each of its blocks has its old content, the new one, or a torn mix. If it is `short`, the first ones are new, one is torn, the
    /// rest old.
    pub fn fail_write(&mut self, id: u32, short: bool, random: &mut Random) {
        let flight = self.flights.remove(&id).expect("only a write in flight fails");
        self.failing.remove(&id);
        self.completions += 1;
        let reached = random.below(flight.count);
        for block in flight.first..flight.first + flight.count {
            let at = block - flight.first;
            let mask = match (short, random.below(3)) {
                (true, _) if at < reached => 0xff,
                (true, _) if at > reached => 0,
                (true, _) => (1u16 << random.below(8)) as u8 - 1,
                (false, 0) => 0,
                (false, 1) => 0xff,
                (false, _) => random.draw() as u8,
            };
            let before = self.pristine(block).clone();
            let versions = self.recent.get_mut(&block).expect("a write in flight is among the recent ones");
            let place = versions.iter().position(|version| version.write == flight.write);
            let place = place.expect("a write in flight has a version of each of its blocks");
            if mask == 0 {
                versions.remove(place);
                if versions.is_empty() {
                    self.recent.remove(&block);
                }
                continue;
            }
            let version = &mut versions[place];
            version.content = before.torn(&version.content, mask, self.block_size);
            version.stage = Stage::Landed(self.completions);
            self.overlay.overwritten(block, None);
        }
    }

    /// Fails a sync: each block that it covered becomes durable, stays volatile, or loses the covered writes.
    pub fn fail_sync(&mut self, id: u32, random: &mut Random) {
        let covered = self.syncs.remove(&id).expect("only a sync in flight fails").covered;
        self.failing.remove(&id);
        self.completed_syncs += 1;
        let durable = Rc::make_mut(&mut self.durable);
        self.recent.retain(|&block, versions| {
            let is_covered =
                |version: &Version| matches!(version.stage, Stage::Landed(completion) if completion <= covered);
            let fate = random.below(3);
            if fate > 0
                && let Some(last) = versions.iter().rposition(is_covered)
            {
                if fate == 1 {
                    durable[block as usize] = versions[last].content.clone();
                }
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
    }

    /// Counts all changes of state that a crash could reveal.
    pub fn changes(&self) -> u64 {
        self.writes + self.completions + self.completed_syncs
    }

    /// Returns true if a crash now can have more than one outcome.
    pub fn has_unsynced(&self) -> bool {
        !self.recent.is_empty()
    }

    /// Returns true if a sync or a durable write is in flight.
    pub fn is_syncing(&self) -> bool {
        !self.syncs.is_empty() || self.flights.values().any(|flight| flight.durable)
    }

    /// Applies a crash as [`Cut`] says. Afterwards nothing is in flight.
    pub fn crash(&mut self, cut: Cut, random: &mut Random) {
        if cut == Cut::MidSync {
            self.keep_what_is_synced();
        }
        self.flights.clear();
        self.syncs.clear();
        self.failing.clear();
        if cut == Cut::Kill {
            self.kill(random);
            return;
        }
        let salt = random.draw();
        let durable = Rc::make_mut(&mut self.durable);
        for (block, versions) in std::mem::take(&mut self.recent) {
            let place = &mut durable[block as usize];
            if let Some(content) = survivor(cut, block, place, &versions, self.block_size, salt, random) {
                *place = content;
            }
        }
    }

    /// Loses all writes that neither a sync nor a durable write in flight covers.
    fn keep_what_is_synced(&mut self) {
        let covered = self.syncs.values().map(|sync| sync.covered).max().unwrap_or(0);
        let forced = |write| self.flights.values().any(|flight| flight.durable && flight.write == write);
        self.recent.retain(|_, versions| {
            versions.retain(|version| match version.stage {
                Stage::Landed(completion) => completion <= covered,
                Stage::Flying => forced(version.write),
            });
            !versions.is_empty()
        });
    }

    fn kill(&mut self, random: &mut Random) {
        self.completions += 1;
        let completions = self.completions;
        self.recent.retain(|_, versions| {
            versions.retain_mut(|version| {
                if version.stage == Stage::Flying {
                    version.stage = Stage::Landed(completions);
                    return random.one_in(2);
                }
                true
            });
            !versions.is_empty()
        });
    }

    /// Hashes the content that reads see of all blocks, for the digest of a run.
    pub fn hash(&self) -> u64 {
        (0..self.blocks()).fold(0, |hash, block| mix(hash ^ self.read(block).hash()))
    }
}

/// Returns the content that a power cut leaves of a block, `None` for its durable content.
fn survivor(
    cut: Cut,
    block: u64,
    durable: &Content,
    versions: &[Version],
    block_size: u32,
    salt: u64,
    random: &mut Random,
) -> Option<Content> {
    let last = |wanted: &dyn Fn(&Version) -> bool| {
        versions.iter().rev().find(|version| wanted(version)).map(|version| version.content.clone())
    };
    match cut {
        Cut::Lost => None,
        Cut::Kept => last(&|_| true),
        Cut::MetadataOnly => last(&|version| version.content.is_metadata()),
        Cut::PayloadOnly => last(&|version| !version.content.is_metadata()),
        Cut::FlyingOnly => last(&|version| version.stage == Stage::Flying),
        Cut::ByWrite => last(&|version| mix(version.write ^ salt) & 1 == 0),
        Cut::Mixed => any(versions, random),
        Cut::MidSync if random.one_in(2) => last(&|_| true).filter(|_| random.one_in(2)),
        Cut::MidSync => Some(durable.torn(&last(&|_| true)?, random.draw() as u8, block_size)),
        Cut::Torn if random.one_in(2) => any(versions, random),
        Cut::Torn => {
            let old = any(versions, random);
            let new = any(versions, random).or_else(|| last(&|_| true))?;
            Some(old.as_ref().unwrap_or(durable).torn(&new, random.draw() as u8, block_size))
        }
        Cut::OneKept(_) | Cut::OneLost(_) | Cut::RotatingKept | Cut::RotatingLost => {
            let mask = cut.mask(block, salt).expect("it tears all blocks");
            Some(durable.torn(&last(&|_| true)?, mask, block_size))
        }
        Cut::Kill => unreachable!("a kill is not a power cut"),
    }
}

fn any(versions: &[Version], random: &mut Random) -> Option<Content> {
    match random.below(versions.len() as u64 + 1) as usize {
        0 => None,
        number => Some(versions[number - 1].content.clone()),
    }
}

/// Contents that a block may hold after a crash: hashes of its durable content and of each later version.
pub type Unsynced = ([u64; 2], Vec<[u64; 2]>);

/// Crashes with a chosen outcome.
impl Disk {
    /// Returns the blocks with versions that no sync has covered, in order. The hashes depend on the block's number, too.
    pub fn unsynced(&self) -> Vec<Unsynced> {
        let hashes = |(&block, versions): (&u64, &Vec<Version>)| {
            let later = versions.iter().map(|version| hash_at(block, &version.content)).collect();
            (hash_at(block, &self.durable[block as usize]), later)
        };
        self.recent.iter().map(hashes).collect()
    }

    /// Sums the hashes of all durable blocks, so that a change of one block changes one term of the sum.
    pub fn durable_hash(&self) -> [u64; 2] {
        let hashes = (0..).zip(self.durable.iter()).map(|(block, content)| hash_at(block, content));
        hashes.fold([0, 0], |sum, hash| [0, 1].map(|half| sum[half].wrapping_add(hash[half])))
    }

    /// Cuts the power and leaves of each block in [`Disk::unsynced`] its durable content (0) or the version of this number.
    pub fn crash_choosing(&mut self, choices: &[usize]) {
        self.flights.clear();
        self.syncs.clear();
        let durable = Rc::make_mut(&mut self.durable);
        for ((block, mut versions), &choice) in std::mem::take(&mut self.recent).into_iter().zip(choices) {
            if choice > 0 {
                durable[block as usize] = versions.swap_remove(choice - 1).content;
            }
        }
    }
}

fn hash_at(block: u64, content: &Content) -> [u64; 2] {
    let hash = content.hash();
    [mix(hash ^ mix(block)), mix(hash.rotate_left(32) ^ mix(!block))]
}

#[cfg(test)]
mod tests;
