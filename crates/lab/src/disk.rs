//! The simulated disk: what is durable, what is written but not covered by a sync, and what a crash makes of it.
//!
//! Owns the content of every block. A write is `Flying` from submission until its completion is delivered, then `Landed`,
//! and visible; a sync makes durable, when it completes, the writes that had landed when it was submitted. Until then a
//! block has its durable content and a list of later versions, in order of completion.
//!
//! A power cut leaves each block by itself with its durable content, any later version (those in flight too), or a torn
//! mix of two of these. A kill of the process leaves what landed visible but still not durable; what was in flight lands or
//! does not, block by block.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::content::{Content, ZERO};
use crate::random::{Random, mix};

/// How a crash treats what no sync has covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// All of it is lost.
    Lost,
    /// All of it is kept, also what was in flight.
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
    /// What was in flight is kept, what had completed is lost.
    FlyingOnly,
    /// Only the process dies: what completed stays visible, and stays volatile.
    Kill,
}

impl Cut {
    /// All of them, in the order of the variants that `lab crash` tries.
    pub const ALL: [Cut; 9] = [
        Cut::Lost,
        Cut::Kept,
        Cut::Kill,
        Cut::MetadataOnly,
        Cut::PayloadOnly,
        Cut::FlyingOnly,
        Cut::ByWrite,
        Cut::Mixed,
        Cut::Torn,
    ];

    /// Whether chance has a part in it, so that several tries differ.
    pub fn is_random(self) -> bool {
        matches!(self, Cut::Mixed | Cut::Torn | Cut::ByWrite | Cut::Kill)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Flying,
    /// The count of completions at which it landed.
    Landed(u64),
}

#[derive(Clone, Debug)]
struct Version {
    content: Content,
    /// The write that it belongs to: unique in the life of the disk.
    write: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    write: u64,
    first: u64,
    count: u64,
}

/// The disk. Cloning is cheap: blocks are shared until they change.
#[derive(Clone, Debug)]
pub struct Disk {
    block_size: u32,
    durable: Rc<Vec<Content>>,
    recent: BTreeMap<u64, Vec<Version>>,
    flights: BTreeMap<u32, Flight>,
    /// Syncs in flight: the count of completions that each covers.
    syncs: BTreeMap<u32, u64>,
    writes: u64,
    completions: u64,
    completed_syncs: u64,
}

impl Disk {
    /// A disk of zeroes.
    pub fn new(block_size: u32, blocks: u64) -> Disk {
        Disk {
            block_size,
            durable: Rc::new(vec![Content::Payload(ZERO); blocks as usize]),
            recent: BTreeMap::new(),
            flights: BTreeMap::new(),
            syncs: BTreeMap::new(),
            writes: 0,
            completions: 0,
            completed_syncs: 0,
        }
    }

    /// Bytes per block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.durable.len() as u64
    }

    /// Makes it larger, with zeroes; never smaller.
    pub fn grow(&mut self, blocks: u64) {
        let blocks = self.blocks().max(blocks);
        Rc::make_mut(&mut self.durable).resize(blocks as usize, Content::Payload(ZERO));
    }

    /// Puts a block there, durable at once: for formatting.
    pub fn put(&mut self, block: u64, content: Content) {
        Rc::make_mut(&mut self.durable)[block as usize] = content;
    }

    /// A write of consecutive blocks begins. False if one of them is being written already: their order is anybody's guess.
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
        self.flights.insert(id, Flight { write, first, count }).is_none()
    }

    /// A write's completion is delivered.
    pub fn complete_write(&mut self, id: u32) {
        let flight = self.flights.remove(&id).expect("only a write in flight completes");
        self.completions += 1;
        for block in flight.first..flight.first + flight.count {
            let versions = self.recent.get_mut(&block).expect("a write in flight is among the recent ones");
            let version = versions.iter_mut().find(|version| version.write == flight.write);
            version.expect("a write in flight has a version of each of its blocks").stage =
                Stage::Landed(self.completions);
        }
    }

    /// A sync begins: it covers what has landed.
    pub fn submit_sync(&mut self, id: u32) {
        self.syncs.insert(id, self.completions);
    }

    /// A sync's completion is delivered.
    pub fn complete_sync(&mut self, id: u32) {
        let covered = self.syncs.remove(&id).expect("only a sync in flight completes");
        self.completed_syncs += 1;
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

    /// A sync failed: it made nothing durable.
    pub fn fail_sync(&mut self, id: u32) {
        self.syncs.remove(&id).expect("only a sync in flight completes");
    }

    /// What a read sees: the last write that landed.
    pub fn read(&self, block: u64) -> &Content {
        let landed = self.recent.get(&block).and_then(|versions| {
            versions.iter().rev().find(|version| version.stage != Stage::Flying).map(|version| &version.content)
        });
        landed.unwrap_or(&self.durable[block as usize])
    }

    /// What a read sees that may race with a write in flight: the block before, after or in the middle of it.
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

    /// Counts everything that may change what a crash finds.
    pub fn changes(&self) -> u64 {
        self.writes + self.completions + self.completed_syncs
    }

    /// Whether a crash now can have more than one outcome.
    pub fn has_unsynced(&self) -> bool {
        !self.recent.is_empty()
    }

    /// A crash: see [`Cut`]. Afterwards nothing is in flight.
    pub fn crash(&mut self, cut: Cut, random: &mut Random) {
        self.flights.clear();
        self.syncs.clear();
        if cut == Cut::Kill {
            self.kill(random);
            return;
        }
        let salt = random.draw();
        let durable = Rc::make_mut(&mut self.durable);
        for (block, versions) in std::mem::take(&mut self.recent) {
            let place = &mut durable[block as usize];
            if let Some(content) = survivor(cut, place, &versions, self.block_size, salt, random) {
                *place = content;
            }
        }
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

    /// A hash over all that a read sees, for the digest of a run.
    pub fn hash(&self) -> u64 {
        (0..self.blocks()).fold(0, |hash, block| mix(hash ^ self.read(block).hash()))
    }
}

/// What a power cut leaves of a block, `None` for its durable content.
fn survivor(
    cut: Cut,
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
        Cut::Torn if random.one_in(2) => any(versions, random),
        Cut::Torn => {
            let old = any(versions, random);
            let new = any(versions, random).or_else(|| last(&|_| true))?;
            Some(old.as_ref().unwrap_or(durable).torn(&new, random.draw() as u8, block_size))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn payload(number: u32) -> Content {
        Content::Payload([number; 8])
    }

    fn write(disk: &mut Disk, id: u32, block: u64, number: u32) {
        assert!(disk.submit_write(id, block, vec![payload(number)]));
        disk.complete_write(id);
    }

    fn sync(disk: &mut Disk, id: u32) {
        disk.submit_sync(id);
        disk.complete_sync(id);
    }

    /// Every content that block 0 can have after a crash.
    fn outcomes(disk: &Disk, cut: Cut) -> BTreeSet<[u32; 8]> {
        let outcome = |seed| {
            let mut crashed = disk.clone();
            crashed.crash(cut, &mut Random::new(seed));
            crashed.read(0).to_cells()
        };
        (0..400).map(outcome).collect()
    }

    #[test]
    fn a_sync_covers_only_what_had_landed_when_it_was_submitted() {
        let mut disk = Disk::new(512, 4);
        write(&mut disk, 1, 0, 1);
        disk.submit_sync(2);
        write(&mut disk, 3, 0, 2);
        assert!(disk.submit_write(4, 1, vec![payload(3)]));
        disk.complete_sync(2);
        disk.complete_write(4);
        assert_eq!(outcomes(&disk, Cut::Lost), [[1; 8]].into());
        assert_eq!(outcomes(&disk, Cut::Kept), [[2; 8]].into());
        disk.crash(Cut::Lost, &mut Random::new(1));
        assert_eq!(disk.read(1), &payload(0));
    }

    #[test]
    fn a_sync_in_flight_makes_nothing_durable() {
        let mut disk = Disk::new(512, 4);
        write(&mut disk, 1, 0, 1);
        disk.submit_sync(2);
        assert_eq!(outcomes(&disk, Cut::Lost), [[0; 8]].into());
    }

    #[test]
    fn a_write_submitted_before_a_sync_but_completed_after_is_not_covered() {
        let mut disk = Disk::new(512, 4);
        assert!(disk.submit_write(1, 0, vec![payload(1)]));
        disk.submit_sync(2);
        disk.complete_write(1);
        disk.complete_sync(2);
        assert_eq!(outcomes(&disk, Cut::Lost), [[0; 8]].into());
        sync(&mut disk, 3);
        assert_eq!(outcomes(&disk, Cut::Lost), [[1; 8]].into());
    }

    #[test]
    fn a_mixed_cut_reaches_every_version_and_a_torn_one_mixes() {
        let mut disk = Disk::new(512, 4);
        write(&mut disk, 1, 0, 1);
        sync(&mut disk, 2);
        write(&mut disk, 3, 0, 2);
        assert!(disk.submit_write(4, 0, vec![payload(3)]));
        assert_eq!(outcomes(&disk, Cut::Mixed), [[1; 8], [2; 8], [3; 8]].into());
        let torn = outcomes(&disk, Cut::Torn);
        assert!(torn.len() > 50);
        assert!(torn.iter().flatten().all(|cell| (1..=3).contains(cell)));
        assert_eq!(outcomes(&disk, Cut::FlyingOnly), [[3; 8]].into());
    }

    #[test]
    fn what_a_kill_leaves_is_visible_and_volatile_until_a_sync() {
        let mut disk = Disk::new(512, 4);
        write(&mut disk, 1, 0, 1);
        disk.crash(Cut::Kill, &mut Random::new(1));
        assert_eq!(disk.read(0), &payload(1));
        assert_eq!(outcomes(&disk, Cut::Lost), [[0; 8]].into());
        sync(&mut disk, 1);
        assert_eq!(outcomes(&disk, Cut::Lost), [[1; 8]].into());
        assert!(disk.submit_write(2, 0, vec![payload(2)]));
        assert_eq!(outcomes(&disk, Cut::Kill), [[1; 8], [2; 8]].into());
    }

    #[test]
    fn a_write_in_flight_is_not_visible_and_a_second_one_to_its_block_is_refused() {
        let mut disk = Disk::new(512, 4);
        assert!(disk.submit_write(1, 0, vec![payload(1), payload(1)]));
        assert_eq!(disk.read(1), &payload(0));
        assert!(!disk.submit_write(2, 1, vec![payload(2)]));
        let mut random = Random::new(5);
        let seen: BTreeSet<_> = (0..200).map(|_| disk.read_racing(0, &mut random).to_cells()).collect();
        assert!(seen.contains(&[0; 8]) && seen.contains(&[1; 8]) && seen.len() > 2);
    }

    #[test]
    fn a_write_of_several_blocks_is_kept_or_lost_as_a_whole_by_write() {
        let mut disk = Disk::new(512, 4);
        assert!(disk.submit_write(1, 0, vec![payload(1), payload(1)]));
        for seed in 0..50 {
            let mut crashed = disk.clone();
            crashed.crash(Cut::ByWrite, &mut Random::new(seed));
            assert_eq!(crashed.read(0), crashed.read(1));
        }
    }
}
