//! Other names of volumes and snapshots, and those that are not deleted (RFC 0020).

use engine::{Command, ControlError, PoolChange, Volume, VolumeId, VolumePropertyChange};
use sim::runs::config::Config;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND, metadata_reservations};

impl Bench {
    pub(crate) fn rename(&mut self, volume: VolumeId, name: &str) {
        self.command(Command::RenameVolume { volume, name });
    }

    pub(crate) fn hold(&mut self, snapshot: VolumeId, held: bool) {
        self.command(Command::HoldSnapshot { snapshot, held });
    }

    pub(crate) fn protect(&mut self, volume: VolumeId, protected: bool) {
        let change = VolumePropertyChange { protected: Some(protected), ..VolumePropertyChange::default() };
        self.command(Command::SetVolume { volume, change });
    }

    #[track_caller]
    pub(crate) fn assert_refused(&mut self, command: Command<'_>, error: ControlError) {
        let token = self.begin_command(command);
        assert_eq!(self.command_result(token), Err(error), "{command:?}");
    }

    /// Returns the full names of all volumes and snapshots, in the order of their numbers.
    fn full_names(&self) -> Vec<String> {
        self.world.engine.volumes().map(|volume| self.world.engine.full_name(volume)).collect()
    }

    fn create_volume(&mut self, name: &str) -> VolumeId {
        let size = 64 * self.geometry().block();
        self.command(Command::CreateVolume { name, size, policy: None });
        self.named(name)
    }

    #[track_caller]
    fn named(&self, name: &str) -> VolumeId {
        self.world.engine.volume_named(name).expect("it is there").id
    }
}

fn bench() -> Bench {
    Bench::new(Config::small(1), 64)
}

/// Checks that a volume keeps its number, content and snapshots under another name, and that its former one is free.
#[test]
fn the_snapshots_of_a_volume_follow_it_to_its_other_name() {
    let mut bench = bench();
    let disk = bench.volume;
    bench.write(0, &[1, 2]);
    let (first, second) = (bench.snapshot("first"), bench.snapshot("second"));
    let clone = bench.clone_of(first, "clone");
    bench.rename(disk, "other");
    for crashes in [false, true] {
        if crashes {
            bench.crash(Cut::Lost).unwrap();
        }
        assert_eq!(bench.full_names(), ["other", "other@first", "other@second", "clone"]);
        let found = ["other", "other@first", "other@second"].map(|name| bench.named(name));
        assert_eq!(found, [disk, first, second]);
        assert!(bench.world.engine.volume_named("disk@first").is_none());
        let origin = bench.world.engine.volume(clone).and_then(|clone| bench.world.engine.origin_of(clone));
        assert_eq!(origin.map(|origin| bench.world.engine.full_name(origin)).as_deref(), Some("other@first"));
        bench.assert_has(first, &[(0, 1), (1, 2)]);
    }
    bench.rename(second, "last");
    assert_eq!(bench.create_volume("disk"), VolumeId(5));
    bench.volume = bench.named("disk");
    bench.snapshot("first");
    bench.audit();
    bench.crash(Cut::Lost).unwrap();
    assert_eq!(bench.full_names(), ["other", "other@first", "other@last", "clone", "disk", "disk@first"]);
    bench.audit();
}

/// Checks that a request to a volume that is renamed meanwhile is answered: it names the volume by its number.
#[test]
fn requests_in_flight_reach_a_renamed_volume() {
    let mut bench = bench();
    let write = bench.begin_write(3, &[7], true);
    let rename = bench.begin_command(Command::RenameVolume { volume: bench.volume, name: "other" });
    assert!(bench.wait(write).is_ok());
    bench.await_command(rename);
    bench.assert_holds(3, 7);
}

#[test]
fn names_that_cannot_be_given_are_refused() {
    let mut bench = bench();
    let disk = bench.volume;
    bench.write(0, &[1]);
    let (old, new) = (bench.snapshot("old"), bench.snapshot("new"));
    let other = bench.create_volume("other");
    let of = |volume, name| Command::RenameVolume { volume, name };
    for (command, error) in [
        (of(disk, "other"), ControlError::Exists),
        (of(disk, "disk"), ControlError::Exists),
        (of(old, "new"), ControlError::Exists),
        (of(old, "old"), ControlError::Exists),
        (of(disk, ""), ControlError::BadName),
        (of(disk, ".x"), ControlError::BadName),
        (of(disk, "a@b"), ControlError::BadName),
        (of(old, "a@b"), ControlError::BadName),
        (of(old, ""), ControlError::BadName),
        (of(disk, "(replicas)"), ControlError::BadName),
        (of(VolumeId(99), "x"), ControlError::NoVolume),
        (Command::HoldSnapshot { snapshot: disk, held: true }, ControlError::NotSnapshot),
        (Command::HoldSnapshot { snapshot: VolumeId(99), held: true }, ControlError::NoVolume),
    ] {
        bench.assert_refused(command, error);
    }
    // A volume and a snapshot, and snapshots of two volumes, can have one name.
    bench.rename(old, "other");
    bench.rename(other, "new");
    // A hidden volume is none that users see.
    let above = PoolChange { second_copies: Some(1), ..PoolChange::default() };
    bench.command(Command::SetPool(above));
    let hidden = VolumeId(other.0 + 1);
    bench.assert_refused(of(hidden, "x"), ControlError::NoVolume);
    bench.command(Command::DeleteVolume { volume: new });
    bench.assert_refused(of(new, "x"), ControlError::NoVolume);
    bench.assert_refused(Command::HoldSnapshot { snapshot: new, held: true }, ControlError::NoVolume);
    bench.audit();
    assert_eq!(bench.full_names(), ["disk", "disk@other", "new"]);
}

/// Makes a pool of two volumes, `disk` and `other`, with a checkpoint that has begun and not written anything yet. Returns the command that ends with it.
fn with_a_checkpoint() -> (Bench, VolumeId, u64) {
    let mut bench = bench();
    let other = bench.create_volume("other");
    bench.write(0, &[1]);
    bench.reopen();
    bench.write(0, &[5]);
    bench.write(40, &[6]);
    bench.world.hold_back(metadata_reservations(bench.geometry()));
    let command = bench.begin_command(Command::SetPool(PoolChange { policy: Some(None), ..PoolChange::default() }));
    bench.until_held(1);
    (bench, other, command)
}

/// Checks that a checkpoint has the names of its beginning: it wrote the new name of the second volume beside that of the first, whose deletion comes later,
/// and the pool did not open.
#[test]
fn a_checkpoint_in_progress_gives_no_volume_the_name_of_one_that_is_deleted_later() {
    let (mut bench, other, checkpoint) = with_a_checkpoint();
    bench.command(Command::DeleteVolume { volume: bench.volume });
    bench.begin_command(Command::RenameVolume { volume: other, name: "disk" });
    assert_eq!(bench.named("disk"), other);
    bench.world.let_go(1);
    bench.await_command(checkpoint);
    bench.crash(Cut::Lost).expect("the pool opens");
    assert_eq!(bench.full_names(), ["other"]);
    bench.audit();
}

/// Checks the same where names go round among volumes, and that a renaming is lost as a whole.
#[test]
fn a_checkpoint_in_progress_has_the_names_of_its_beginning() {
    let (mut bench, other, checkpoint) = with_a_checkpoint();
    let disk = bench.volume;
    for (volume, name) in [(disk, "third"), (other, "disk"), (disk, "other")] {
        bench.begin_command(Command::RenameVolume { volume, name });
    }
    assert_eq!(bench.full_names(), ["other", "disk"]);
    bench.world.let_go(1);
    bench.await_command(checkpoint);
    bench.crash(Cut::Lost).expect("the pool opens");
    assert_eq!(bench.full_names(), ["disk", "other"]);
    bench.assert_has(disk, &[(0, 5), (40, 6)]);
    bench.rename(disk, "third");
    bench.crash(Cut::Lost).expect("the pool opens");
    assert_eq!(bench.full_names(), ["third", "other"]);
    bench.audit();
}

/// Checks the refusal, before and after a crash, and that a release ends it.
#[test]
fn a_held_snapshot_is_deleted_only_when_it_is_released() {
    let mut bench = bench();
    bench.write(0, &[1]);
    let (old, new) = (bench.snapshot("old"), bench.snapshot("new"));
    bench.hold(old, true);
    bench.rename(old, "kept");
    bench.hold(old, true);
    for crashes in [false, true] {
        if crashes {
            bench.crash(Cut::Lost).unwrap();
        }
        bench.assert_refused(Command::DeleteVolume { volume: old }, ControlError::Held);
        assert!(bench.world.engine.volume(old).is_some_and(Volume::is_held));
        assert!(!bench.world.engine.volume(new).is_some_and(Volume::is_held));
        bench.assert_refused(Command::DeleteVolume { volume: bench.volume }, ControlError::HasSnapshots);
    }
    // Snapshots and clones that were made meanwhile are not held.
    let clone = bench.clone_of(old, "clone");
    bench.command(Command::DeleteVolume { volume: new });
    bench.command(Command::DeleteVolume { volume: clone });
    bench.hold(old, false);
    bench.crash(Cut::Lost).unwrap();
    for volume in [old, bench.volume] {
        bench.command(Command::DeleteVolume { volume });
    }
    bench.audit();
    assert_eq!(bench.full_names(), [""; 0]);
    assert_eq!(bench.world.engine.status().data_blocks_used, 0);
}

/// Checks the refusal, before and after a crash; that snapshots and clones of a protected volume are not protected; and that nothing is left.
#[test]
fn a_protected_volume_is_deleted_only_when_that_ends() {
    let mut bench = bench();
    let disk = bench.volume;
    bench.write(0, &[1]);
    bench.protect(disk, true);
    let snapshot = bench.snapshot("new");
    let clone = bench.clone_of(snapshot, "clone");
    for crashes in [false, true] {
        if crashes {
            bench.crash(Cut::Lost).unwrap();
        }
        bench.assert_refused(Command::DeleteVolume { volume: disk }, ControlError::Protected);
    }
    bench.command(Command::DeleteVolume { volume: clone });
    // The snapshot has the properties of its volume.
    bench.command(Command::DeleteVolume { volume: snapshot });
    bench.audit();
    bench.assert_refused(Command::DeleteVolume { volume: disk }, ControlError::Protected);
    bench.protect(disk, false);
    bench.command(Command::DeleteVolume { volume: disk });
    bench.pass(60 * SECOND);
    bench.audit();
    assert_eq!(bench.full_names(), [""; 0]);
    assert_eq!(bench.world.engine.status().data_blocks_used, 0);
}

#[test]
fn a_checkpoint_has_no_name_twice_where_a_volume_gets_that_of_one_deleted_since() {
    sim::runs::hazards::names_of_deleted_volumes().unwrap();
}
