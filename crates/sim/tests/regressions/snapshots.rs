//! Snapshots, clones and rollbacks (RFC 0020): what they read, where their blocks stand, and that nothing is left of them.

use std::collections::BTreeSet;

use engine::{
    Command, ControlError, Counters, DefragSetting, PagesWritten, PoolChange, Timing, Volume, VolumeId,
    VolumePropertyChange,
};
use sim::content::CELLS;
use sim::random::Random;
use sim::runs::config::Config;
use sim::world::Answer;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND};
use crate::dedup::{BLOCKS as PASS_BLOCKS, config};

const BLOCKS: u64 = 512;

impl Bench {
    /// Makes a snapshot of the volume at work.
    pub(crate) fn snapshot(&mut self, name: &str) -> VolumeId {
        let volume = self.volume;
        self.command(Command::CreateSnapshots { volumes: &[volume], name, seconds: 1 });
        let snapshots = self.world.engine.snapshots_of(volume);
        snapshots.filter(|snapshot| snapshot.name == name).last().expect("it was made").id
    }

    pub(crate) fn clone_of(&mut self, snapshot: VolumeId, name: &str) -> VolumeId {
        self.command(Command::CloneSnapshot { snapshot, name });
        self.world.engine.volume_named(name).expect("it was made").id
    }

    /// Reads blocks of a volume, each of which has the given content.
    #[track_caller]
    pub(crate) fn assert_has(&mut self, volume: VolumeId, contents: &[(u64, u32)]) {
        let at_work = core::mem::replace(&mut self.volume, volume);
        contents.iter().for_each(|&(block, content)| self.assert_holds(block, content));
        self.volume = at_work;
    }

    fn own(&self, volume: VolumeId) -> u64 {
        self.world.engine.volume(volume).expect("it is there").logical_blocks_used
    }

    /// Returns for each block if it is reported as a hole.
    fn holes(&mut self) -> Vec<bool> {
        let (mut holes, block) = (Vec::new(), self.geometry().block());
        while (holes.len() as u64) < BLOCKS {
            let from = holes.len() as u64;
            let token = self.begin_extents(from, BLOCKS - from);
            let Ok(Answer::Extents(extents)) = self.wait(token) else { panic!("extents were asked for") };
            extents.iter().for_each(|extent| holes.extend((0..extent.length / block).map(|_| extent.hole)));
        }
        holes
    }

    /// Begins a rollback of the volume at work.
    fn begin_rollback(&mut self, snapshot: VolumeId) -> u64 {
        let volume = self.volume;
        self.begin_command(Command::RollBack { volume, snapshot })
    }

    fn roll_back(&mut self, snapshot: VolumeId) {
        let token = self.begin_rollback(snapshot);
        assert_eq!(self.command_result(token), Ok(()));
    }

    pub(crate) fn delete(&mut self, volume: VolumeId) {
        self.command(Command::DeleteVolume { volume });
    }
}

fn bench() -> Bench {
    Bench::new(Config::small(1), BLOCKS)
}

/// Checks what snapshots and clones read while the volume changes, and that each block stands in one map.
#[test]
fn a_snapshot_keeps_what_its_volume_had_and_a_clone_begins_with_it() {
    let mut bench = bench();
    let disk = bench.volume;
    bench.write(0, &[100, 101, 102, 103]);
    bench.write(200, &[200]);
    let first = bench.snapshot("first");
    bench.write(1, &[111]);
    bench.trim(2);
    bench.settle();
    let second = bench.snapshot("second");
    bench.write(200, &[222]);
    let clone = bench.clone_of(first, "clone");
    bench.volume = clone;
    bench.write(3, &[133]);
    bench.write(300, &[333]);
    bench.volume = disk;
    for settled in [false, true] {
        if settled {
            bench.audit();
        }
        bench.assert_has(disk, &[(0, 100), (1, 111), (2, 0), (3, 103), (200, 222), (300, 0)]);
        bench.assert_has(first, &[(0, 100), (1, 101), (2, 102), (3, 103), (200, 200), (300, 0)]);
        bench.assert_has(second, &[(0, 100), (1, 111), (2, 0), (3, 103), (200, 200)]);
        bench.assert_has(clone, &[(0, 100), (1, 101), (2, 102), (3, 133), (200, 200), (300, 333)]);
    }
    assert_eq!([disk, first, second, clone].map(|volume| bench.own(volume)), [1, 5, 1, 2]);
}

/// Checks that a snapshot has what was in the map buffer at its cut, and that writes of the same time go to the volume.
#[test]
fn a_snapshot_has_what_was_buffered_and_survives_a_crash() {
    let mut bench = bench();
    let disk = bench.volume;
    for round in 0..3 {
        for block in 0..40 {
            bench.write(block * 7, &[1000 * round + block as u32 + 1]);
        }
    }
    let old = bench.snapshot("old");
    for block in 0..40 {
        bench.write(block * 7, &[9000 + block as u32]);
    }
    let flush = bench.begin_flush();
    bench.wait(flush).unwrap();
    bench.crash(Cut::Lost).unwrap();
    for block in [0, 1, 20, 39] {
        bench.assert_has(old, &[(block * 7, 2000 + block as u32 + 1)]);
        bench.assert_has(disk, &[(block * 7, 9000 + block as u32)]);
    }
    bench.audit();
}

/// Checks the refusals, and that each leaves everything as it was.
#[test]
fn what_cannot_be_a_snapshot_is_refused() {
    let mut bench = bench();
    let disk = bench.volume;
    bench.write(0, &[1]);
    let old = bench.snapshot("old");
    let at = |name| Command::CreateSnapshots { volumes: &[VolumeId(1)], name, seconds: 0 };
    assert_eq!(disk, VolumeId(1));
    let refused = [
        (at("old"), ControlError::Exists),
        (at("a@b"), ControlError::BadName),
        (at(""), ControlError::BadName),
        (Command::CreateSnapshots { volumes: &[], name: "x", seconds: 0 }, ControlError::NoVolume),
        (Command::CreateSnapshots { volumes: &[old], name: "x", seconds: 0 }, ControlError::IsSnapshot),
        (Command::CreateSnapshots { volumes: &[disk, disk], name: "x", seconds: 0 }, ControlError::Exists),
        (Command::CreateSnapshots { volumes: &[VolumeId(77)], name: "x", seconds: 0 }, ControlError::NoVolume),
        (Command::CloneSnapshot { snapshot: disk, name: "x" }, ControlError::NotSnapshot),
        (Command::CloneSnapshot { snapshot: old, name: "disk" }, ControlError::Exists),
        (Command::ResizeVolume { volume: old, size: 1 << 20 }, ControlError::IsSnapshot),
        (Command::DeleteVolume { volume: disk }, ControlError::HasSnapshots),
    ];
    for (command, error) in refused {
        let token = bench.begin_command(command);
        assert_eq!(bench.command_result(token), Err(error), "{command:?}");
    }
    bench.audit();
    assert_eq!(bench.world.engine.volumes().count(), 2);
}

/// Checks that deleted snapshots stay as long as others inherit from them, in any order of deletion, and that nothing is left at the end.
#[test]
fn nothing_is_left_of_deleted_snapshots_and_clones() {
    for order in 0..6 {
        let mut bench = bench();
        let disk = bench.volume;
        bench.write(0, &[1, 2, 3]);
        let old = bench.snapshot("old");
        bench.write(1, &[22]);
        let new = bench.snapshot("new");
        let clone = bench.clone_of(old, "clone");
        bench.delete(old);
        bench.audit();
        bench.assert_has(clone, &[(0, 1), (1, 2), (2, 3)]);
        bench.assert_has(new, &[(0, 1), (1, 22), (2, 3)]);
        let last = match order % 3 {
            0 => [new, disk, clone],
            1 => [new, clone, disk],
            _ => [clone, new, disk],
        };
        for volume in last {
            bench.delete(volume);
            if order < 3 {
                bench.audit();
            }
        }
        bench.audit();
        bench.pass(60 * SECOND);
        bench.audit();
        let volumes: Vec<&Volume> = bench.world.engine.volumes().collect();
        assert!(volumes.is_empty(), "{volumes:?}");
        assert_eq!(bench.world.engine.status().data_blocks_used, 0);
    }
}

/// Checks that a rolled-back volume has the content and the size of the snapshot, that its old blocks are freed, and that newer snapshots stay.
#[test]
fn a_rolled_back_volume_is_as_its_snapshot_was_and_newer_snapshots_stay() {
    let mut bench = bench();
    let disk = bench.volume;
    bench.write(0, &[100, 101, 102]);
    bench.write(200, &[200]);
    let old = bench.snapshot("old");
    let block = bench.geometry().block();
    bench.command(Command::ResizeVolume { volume: disk, size: 2 * BLOCKS * block });
    bench.write(1, &[111]);
    bench.write(BLOCKS + 9, &[309]);
    bench.settle();
    let new = bench.snapshot("new");
    bench.trim(0);
    bench.write(200, &[222]);
    bench.write(300, &[300]);
    // Neither merged nor in a leaf.
    bench.roll_back(old);
    let before = [(0, 100), (1, 101), (2, 102), (200, 200), (300, 0)];
    bench.assert_has(disk, &before);
    assert_eq!(bench.world.engine.volume(disk).unwrap().size, BLOCKS * block);
    bench.audit();
    bench.assert_has(disk, &before);
    bench.assert_has(new, &[(0, 100), (1, 111), (200, 200), (BLOCKS + 9, 309)]);
    assert_eq!([disk, old, new].map(|volume| bench.own(volume)), [0, 4, 2]);
    assert_eq!(bench.world.engine.status().data_blocks_used, 6, "blocks 222 and 300 are freed");
    bench.write(2, &[122]);
    bench.roll_back(new);
    bench.assert_has(disk, &[(0, 100), (1, 111), (2, 102), (200, 200), (300, 0), (BLOCKS + 9, 309)]);
    bench.delete(new);
    bench.audit();
    bench.assert_has(disk, &[(1, 111), (BLOCKS + 9, 309)]);
    bench.roll_back(old);
    bench.settle();
    bench.pass(60 * SECOND);
    bench.audit();
    bench.assert_has(disk, &before);
    assert_eq!(bench.world.engine.status().data_blocks_used, 4, "nothing inherits from the deleted snapshot any more");
}

/// Checks the refusals, and that each leaves everything as it was.
#[test]
fn what_is_no_snapshot_of_the_volume_is_not_rolled_back_to() {
    let mut bench = bench();
    let disk = bench.volume;
    bench.write(0, &[1]);
    let old = bench.snapshot("old");
    let clone = bench.clone_of(old, "clone");
    bench.volume = clone;
    let others = bench.snapshot("others");
    bench.volume = disk;
    let gone = bench.snapshot("gone");
    bench.delete(gone);
    for (volume, snapshot, error) in [
        (disk, others, ControlError::NotItsSnapshot),
        (disk, clone, ControlError::NotItsSnapshot),
        (disk, disk, ControlError::NotItsSnapshot),
        (clone, old, ControlError::NotItsSnapshot),
        (old, old, ControlError::IsSnapshot),
        (disk, gone, ControlError::NoVolume),
        (VolumeId(77), old, ControlError::NoVolume),
    ] {
        bench.assert_refused(Command::RollBack { volume, snapshot }, error);
    }
    bench.audit();
    bench.assert_has(disk, &[(0, 1)]);
    bench.assert_has(clone, &[(0, 1)]);
}

/// Checks the refusal, and that a held snapshot forbids no rollback to an older one, and stays.
#[test]
fn a_protected_volume_is_not_rolled_back_and_held_snapshots_stay() {
    let mut bench = bench();
    let disk = bench.volume;
    bench.write(0, &[1]);
    let old = bench.snapshot("old");
    bench.write(0, &[2]);
    let held = bench.snapshot("held");
    bench.hold(held, true);
    bench.write(0, &[3]);
    bench.protect(disk, true);
    bench.assert_refused(Command::RollBack { volume: disk, snapshot: old }, ControlError::Protected);
    bench.assert_has(disk, &[(0, 3)]);
    bench.protect(disk, false);
    bench.roll_back(old);
    bench.audit();
    bench.assert_has(disk, &[(0, 1)]);
    bench.assert_has(held, &[(0, 2)]);
    bench.assert_refused(Command::DeleteVolume { volume: held }, ControlError::Held);
}

/// Checks that nothing changes a volume while it is rolled back, that reads have one of the two contents, and that changes of volumes wait.
#[test]
fn nothing_changes_a_volume_while_it_is_rolled_back() {
    let mut bench = bench();
    let disk = bench.volume;
    bench.write(0, &[1]);
    let old = bench.snapshot("old");
    bench.write(0, &[2]);
    let rollback = bench.begin_rollback(old);
    let write = bench.begin_write(0, &[3], false);
    assert_eq!(bench.wait(write), Err(engine::Error::ReadOnly));
    let token = bench.begin_command(Command::DeleteVolume { volume: old });
    assert_eq!(bench.command_result(token), Err(ControlError::RollbackPending));
    let size = 4 * bench.geometry().block();
    let resize = bench.begin_command(Command::ResizeVolume { volume: disk, size });
    let snapshot = bench.begin_command(Command::CreateSnapshots { volumes: &[disk], name: "behind", seconds: 0 });
    bench.assert_has(disk, &[(0, 2)]);
    assert_eq!(bench.command_result(rollback), Ok(()));
    assert_eq!(bench.command_result(resize), Ok(()));
    assert_eq!(bench.command_result(snapshot), Ok(()));
    let behind = bench.world.engine.volume_named("disk@behind").expect("it was made").id;
    bench.assert_has(disk, &[(0, 1)]);
    bench.write(0, &[4]);
    bench.audit();
    bench.assert_has(disk, &[(0, 4)]);
    bench.assert_has(behind, &[(0, 1)]);
    assert_eq!(bench.world.engine.volume(disk).unwrap().size, size);
}

/// Checks that a full pool can be rolled back: that takes no space that it does not have, and gives the space of the writes back.
#[test]
fn a_full_pool_is_rolled_back() {
    let mut config = Config::small(1);
    config.parameters.geometry.metadata_blocks = 192;
    let mut bench = Bench::new(config, 1 << 24);
    let disk = bench.volume;
    bench.write(0, &[1]);
    let old = bench.snapshot("old");
    let mut leaves = Vec::new();
    for round in 0..12 {
        let mut written = 0;
        while {
            let token = bench.begin_write(written << 14, &[1000 * round + 2 + written as u32], false);
            bench.wait(token).is_ok()
        } {
            written += 1;
        }
        bench.roll_back(old);
        bench.assert_has(disk, &[(0, 1), (1 << 14, 0), ((written - 1) << 14, 0)]);
        bench.audit();
        leaves.push(written);
    }
    // Tables of slots reach as far as slots were ever used.
    assert!(leaves[0] > 20 && leaves[11] + 6 > leaves[0] && leaves[10] == leaves[11], "{leaves:?}");
    bench.audit();
    bench.assert_has(old, &[(0, 1)]);
}

/// Maps of a pool with the content of each block, as plain lists.
struct Family {
    bench: Bench,
    maps: Vec<(VolumeId, Vec<u32>)>,
    /// Contents of deleted maps, which unnamed snapshots may still have.
    gone: BTreeSet<u32>,
    names: u32,
}

impl Family {
    fn new(random: &mut Random) -> Family {
        let mut bench = Bench::new(config(random), PASS_BLOCKS);
        let change = PoolChange { defrag: Some(DefragSetting::Off), replicas: Some(Some(0)), ..PoolChange::default() };
        bench.command(Command::SetPool(change));
        let disk = bench.volume;
        let timing = VolumePropertyChange { timing: Some(Some(Timing::Offline)), ..VolumePropertyChange::default() };
        bench.command(Command::SetVolume { volume: disk, change: timing });
        Family { bench, maps: vec![(disk, vec![0; PASS_BLOCKS as usize])], gone: BTreeSet::new(), names: 0 }
    }

    fn is_snapshot(&self, at: usize) -> bool {
        self.bench.world.engine.volume(self.maps[at].0).expect("it is there").is_snapshot()
    }

    fn pick(&self, random: &mut Random, snapshot: bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.maps.len()).filter(|&at| self.is_snapshot(at) == snapshot).collect();
        (!all.is_empty()).then(|| all[random.below(all.len() as u64) as usize])
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("map-{}", self.names)
    }

    fn step(&mut self, random: &mut Random) {
        let Some(volume) = self.pick(random, false) else { return };
        self.bench.volume = self.maps[volume].0;
        match random.below(40) {
            0..20 => {
                let (first, count) = (random.below(PASS_BLOCKS - 6), 1 + random.below(6));
                let contents: Vec<u32> = (0..count).map(|_| 1 + random.below(40) as u32).collect();
                self.bench.write(first, &contents);
                self.maps[volume].1[first as usize..][..contents.len()].copy_from_slice(&contents);
            }
            20..24 => {
                let first = random.below(PASS_BLOCKS);
                let count = 1 + random.below(PASS_BLOCKS - first);
                self.bench.trim_blocks(first, count);
                self.maps[volume].1[first as usize..][..count as usize].fill(0);
            }
            24..28 if self.maps.len() < 12 => {
                let name = self.name();
                let snapshot = self.bench.snapshot(&name);
                let contents = self.maps[volume].1.clone();
                self.maps.push((snapshot, contents));
            }
            28..31 if self.maps.len() < 12 => {
                if let Some(snapshot) = self.pick(random, true) {
                    let name = self.name();
                    let (id, contents) = self.maps[snapshot].clone();
                    self.maps.push((self.bench.clone_of(id, &name), contents));
                }
            }
            31..34 if self.maps.len() > 4 => {
                let at = random.below(self.maps.len() as u64) as usize;
                let token = self.bench.begin_command(Command::DeleteVolume { volume: self.maps[at].0 });
                let result = self.bench.command_result(token);
                assert!(matches!(result, Ok(()) | Err(ControlError::HasSnapshots)), "{result:?}");
                if result.is_ok() {
                    let (_, contents) = self.maps.remove(at);
                    self.gone.extend(contents);
                }
                if !(0..self.maps.len()).any(|at| !self.is_snapshot(at)) {
                    let name = self.name();
                    let (id, contents) = self.maps[0].clone();
                    self.maps.push((self.bench.clone_of(id, &name), contents));
                }
            }
            34 => {
                let disk = self.maps[volume].0;
                let is_of = |&at: &usize| {
                    let map = self.bench.world.engine.volume(self.maps[at].0).expect("it is there");
                    map.family.snapshot.is_some_and(|snapshot| snapshot.of == disk)
                };
                let snapshots: Vec<usize> = (0..self.maps.len()).filter(is_of).collect();
                if !snapshots.is_empty() {
                    let to = random.pick(&snapshots);
                    self.roll_back(
                        volume,
                        to,
                        random.one_in(3).then(|| random.pick(&[Cut::Lost, Cut::Kept, Cut::Mixed])),
                    );
                }
            }
            35 => {
                let flush = self.bench.begin_flush();
                self.bench.wait(flush).unwrap();
                self.bench.crash(random.pick(&[Cut::Lost, Cut::Kept, Cut::Mixed])).unwrap();
            }
            36 => self.bench.start_pass(),
            37 => {
                self.bench.run_pass(SECOND / 10);
                self.bench.audit();
            }
            _ => self.bench.pass(SECOND / 10),
        }
    }

    /// Rolls a volume back; with a cut, the pool crashes on the way. Then the volume has all of one content.
    fn roll_back(&mut self, volume: usize, to: usize, cut: Option<Cut>) {
        let flush = self.bench.begin_flush();
        self.bench.wait(flush).unwrap();
        let token = self.bench.begin_rollback(self.maps[to].0);
        let (before, after) = (self.maps[volume].1.clone(), self.maps[to].1.clone());
        match cut {
            None => assert_eq!(self.bench.command_result(token), Ok(())),
            Some(cut) => {
                self.bench.pass(SECOND / 1000);
                self.bench.crash(cut).unwrap();
            }
        }
        let differs = before.iter().zip(&after).position(|(before, after)| before != after);
        let is_back = cut.is_none()
            || differs.is_some_and(|at| self.bench.read(at as u64) == Ok(Answer::Data(vec![after[at]; CELLS])));
        if is_back {
            self.gone.extend(before);
            self.maps[volume].1 = after;
        }
    }

    fn check(&mut self) {
        for (volume, contents) in self.maps.clone() {
            let contents: Vec<(u64, u32)> = (0..).zip(contents).collect();
            self.bench.assert_has(volume, &contents);
        }
    }
}

/// Checks any history of writes, trims, snapshots, clones, deletions, passes and crashes against lists of contents. After a pass, each content that any map has
/// is stored once.
#[test]
fn maps_of_a_family_have_what_lists_have_and_a_pass_stores_each_content_once() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut family = Family::new(&mut random);
        for _ in 0..120 {
            family.step(&mut random);
        }
        family.check();
        family.bench.run_pass(SECOND);
        family.bench.audit();
        family.bench.start_pass();
        family.bench.run_pass(SECOND);
        family.bench.audit();
        family.check();
        let mut distinct: BTreeSet<u32> = family.maps.iter().flat_map(|(_, contents)| contents).copied().collect();
        distinct.remove(&0);
        let used = family.bench.world.engine.status().data_blocks_used;
        let least = distinct.len() as u64;
        distinct.extend(family.gone.iter().filter(|&&content| content != 0));
        assert!((least..=distinct.len() as u64).contains(&used), "seed {seed}: {used} slots, {least} contents");
    }
}

/// Checks that holes of a snapshot are holes of its clones, so that a copy of a sparse clone reads no zeroes.
#[test]
fn a_clone_has_the_holes_of_its_snapshot() {
    let mut bench = bench();
    bench.write(3, &[1, 2, 3]);
    bench.write(200, &[4]);
    let holes = bench.holes();
    let data: Vec<u64> = (0..BLOCKS).filter(|&block| !holes[block as usize]).collect();
    assert_eq!(data, [3, 4, 5, 200]);
    let snapshot = bench.snapshot("old");
    bench.write(5, &[9]);
    let clone = bench.clone_of(snapshot, "clone");
    for (volume, written) in [(bench.volume, None), (clone, None), (clone, Some(400)), (snapshot, None)] {
        bench.volume = volume;
        if let Some(block) = written {
            bench.write(block, &[8]);
            bench.trim(block);
        }
        bench.settle();
        assert_eq!(bench.holes(), holes, "{volume:?}");
    }
}

/// Returns the pages that a snapshot of a volume of this many blocks writes, with two blocks mapped and nothing buffered.
fn pages_of_a_snapshot(blocks: u64) -> PagesWritten {
    let mut bench = Bench::new(Config::small(1), blocks);
    bench.write(0, &[1]);
    bench.write(500, &[2]);
    bench.settle();
    let before = bench.world.engine.counters().pages_written;
    let snapshot = bench.snapshot("new");
    let pages = bench.world.engine.counters().pages_written - before;
    bench.assert_has(snapshot, &[(0, 1), (500, 2), (501, 0)]);
    bench.audit();
    pages
}

/// Checks that a snapshot copies no map, whatever the size of the volume.
#[test]
fn a_snapshot_writes_the_same_pages_whatever_the_size_of_its_volume() {
    let few = pages_of_a_snapshot(512);
    for blocks in [1 << 18, 1 << 28] {
        assert_eq!(pages_of_a_snapshot(blocks), few, "{blocks} blocks");
    }
    assert_eq!(few.maps, 0, "{few:?}");
}

/// Checks that a clone, and a checkpoint of a clone, cost the same beside 10 clones and beside 5,000.
#[test]
fn a_clone_costs_the_same_beside_10_clones_and_5000() {
    let mut config = Config::small(1);
    config.parameters.geometry.metadata_blocks = 1 << 16;
    let mut bench = Bench::new(config, BLOCKS);
    bench.write(0, &[1]);
    bench.write(300, &[2]);
    let snapshot = bench.snapshot("new");
    let mut clones = 0;
    let mut cost_beside = |bench: &mut Bench, count: u32| {
        let mut commands = Vec::new();
        for number in clones..count {
            commands.push(bench.begin_command(Command::CloneSnapshot { snapshot, name: &format!("clone-{number}") }));
        }
        commands.into_iter().for_each(|command| bench.await_command(command));
        clones = count;
        bench.settle();
        let before = bench.world.engine.counters();
        let clone = bench.clone_of(snapshot, &format!("beside-{count}"));
        let created = bench.world.engine.counters();
        let disk = core::mem::replace(&mut bench.volume, clone);
        bench.write(300, &[count]);
        bench.settle();
        bench.assert_has(clone, &[(0, 1), (300, count)]);
        bench.volume = disk;
        let written = bench.world.engine.counters();
        let cost = |before: &Counters, after: &Counters| {
            let pages = after.pages_written - before.pages_written;
            (after.checkpoint_steps - before.checkpoint_steps, pages.maps, pages.others)
        };
        [cost(&before, &created), cost(&created, &written)]
    };
    let few = cost_beside(&mut bench, 10);
    let many = cost_beside(&mut bench, 5000);
    for ((steps, maps, others), (steps_many, maps_many, others_many)) in few.into_iter().zip(many) {
        // The table of volumes is two levels higher, and so is the map of metadata blocks where pages are more.
        assert!(steps_many <= steps + steps / 5 && maps_many == maps && others_many <= others + 6, "{few:?}, {many:?}");
    }
    bench.audit();
}
