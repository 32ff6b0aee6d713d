//! Volumes that change during a checkpoint that began before. The checkpoint must not write the change, whose record may be lost.

use crate::bench::{Bench, SECOND, metadata_reservations, page_reads, records};
use engine::{Command, ControlError, Error, PoolChange, SnapshotSchedule, VolumePropertyChange};
use sim::runs::config::Config;
use sim::runs::scenario::{Scenario, scenario};
use sim::runs::soak::run_operations;
use sim::transcript::Trace;
use sim::world::disk::Cut;

/// Makes a pool with a checkpoint that has begun and not written anything yet. Blocks 0 and 40 of 64 hold 5 and 6. Records that are closed from here
/// on stay in flight. Returns the command that ends with the checkpoint.
fn with_a_checkpoint() -> (Bench, u64) {
    let mut bench = Bench::new(Config::small(1), 64);
    bench.write(0, &[1]);
    bench.reopen();
    bench.write(0, &[5]);
    bench.write(40, &[6]);
    let geometry = bench.geometry();
    bench.world.hold_back(metadata_reservations(geometry));
    let command = bench.begin_command(Command::SetPool(PoolChange { policy: Some(None), ..PoolChange::default() }));
    bench.until_held(1);
    // The last record that belongs to the checkpoint reaches the disk.
    bench.pass(SECOND / 10);
    bench.world.hold_back(records(geometry));
    // These writes have more blocks than a record inlines. So the next record is not written durably, and no sync of the checkpoint waits for it.
    for block in [24, 30] {
        let contents: Vec<u32> = (100 + block as u32..).take(6).collect();
        let token = bench.begin_write(block, &contents, false);
        assert!(bench.wait(token).is_ok());
    }
    (bench, command)
}

/// Lets the checkpoint continue and end, without any later record.
fn end_without_more_records(bench: &mut Bench, checkpoint: u64) {
    bench.world.let_go(1);
    bench.await_command(checkpoint);
}

fn listed(bench: &Bench) -> Vec<(String, u64)> {
    let block = bench.geometry().block();
    bench.world.engine.volumes().map(|volume| (volume.name.clone(), volume.size / block)).collect()
}

/// Makes a pool of `count` volumes with a block in the first one. Everything is merged.
fn with_volumes(count: usize) -> Bench {
    let mut config = Config::small(1);
    config.parameters.geometry.metadata_blocks = 1 << 17;
    let mut bench = Bench::new(config, 64);
    let names: Vec<String> = (1..count).map(|at| format!("volume-{at}")).collect();
    let size = 64 * bench.geometry().block();
    for names in names.chunks(256) {
        let mut commands = Vec::new();
        for name in names {
            commands.push(bench.begin_command(Command::CreateVolume { name, size, policy: None }));
        }
        commands.into_iter().for_each(|command| bench.await_command(command));
    }
    assert_eq!(bench.world.engine.volumes().count(), count);
    bench.write(0, &[1]);
    bench.settle();
    bench
}

/// Checks that volumes which nothing touches cost a checkpoint no step and no page: it had a step for each, and wrote the whole table.
#[test]
fn a_checkpoint_costs_the_same_beside_10_1000_and_32768_volumes() {
    let cost = |count| {
        let mut bench = with_volumes(count);
        let before = bench.world.engine.counters();
        bench.write(0, &[2]);
        bench.settle();
        let after = bench.world.engine.counters();
        bench.audit();
        assert_eq!(bench.world.engine.pages_beyond_promise(), 0);
        (after.checkpoint_steps - before.checkpoint_steps, after.pages_written - before.pages_written)
    };
    let (few_steps, few) = cost(10);
    for count in [1000, 32_768] {
        let (steps, pages) = cost(count);
        // The table with 500 leaves in place of 5 is one level higher, that with 16,384 two. A page more frees one, so a leaf and an interior page of the map
        // of metadata blocks may be written for it.
        let levels = if count > 1000 { 2 } else { 1 };
        assert!(
            pages.maps == few.maps && pages.others <= few.others + 3 * levels,
            "{few:?} with 10, {pages:?} with {count}"
        );
        assert!((few_steps..few_steps + 10).contains(&steps), "{few_steps} steps with 10, {steps} with {count}");
    }
}

/// Checks that a checkpoint keeps mappings of the volume with the largest number in the map buffer: the end of its blocks was key 2^64, which is 0, so the
/// checkpoint came to no end. Replicas get this number when numbers have run out.
#[test]
fn a_checkpoint_ends_with_mappings_of_the_volume_with_the_largest_number() {
    let Scenario { mut config, operations, .. } = scenario(27);
    config.first_number = u16::MAX;
    config.limits.delta_entries = 64;
    run_operations(&config, &operations, Trace::new(false)).unwrap();
}

/// Checks that an opened pool has the space that it had: until the first checkpoint it counted its table as packed, with all leaves up to the largest number.
#[test]
fn volumes_with_large_numbers_leave_an_opened_pool_its_metadata() {
    let mut config = Config::small(1);
    config.first_number = u16::MAX - 10;
    let mut bench = Bench::new(config, 64);
    bench.write(0, &[1]);
    bench.settle();
    bench.reopen();
    assert!(!bench.world.engine.status().metadata_short);
    bench.write(0, &[2]);
    bench.audit();
}

#[test]
fn a_name_is_never_that_of_two_volumes_though_the_deletion_of_the_first_is_lost() {
    let (mut bench, checkpoint) = with_a_checkpoint();
    let size = 8 * bench.geometry().block();
    bench.begin_command(Command::DeleteVolume { volume: bench.volume });
    bench.pass(SECOND / 1000);
    assert_eq!(listed(&bench), []);
    bench.begin_command(Command::CreateVolume { name: "disk", size, policy: None });
    end_without_more_records(&mut bench, checkpoint);
    bench.crash(Cut::Lost).expect("the pool opens");
    assert_eq!(listed(&bench), [("disk".to_string(), 64)]);
    bench.assert_holds(40, 6);
    bench.audit();
}

#[test]
fn a_volume_keeps_its_size_and_data_when_its_shrinking_is_lost() {
    let (mut bench, checkpoint) = with_a_checkpoint();
    let size = 8 * bench.geometry().block();
    bench.begin_command(Command::ResizeVolume { volume: bench.volume, size });
    end_without_more_records(&mut bench, checkpoint);
    bench.crash(Cut::Lost).expect("the pool opens");
    assert_eq!(listed(&bench), [("disk".to_string(), 64)]);
    bench.assert_holds(40, 6);
    bench.audit();
}

#[test]
fn records_that_a_later_shrinking_made_impossible_are_still_replayed() {
    let (mut bench, checkpoint) = with_a_checkpoint();
    let block = bench.geometry().block();
    bench.write(20, &[7]);
    let shrinking = bench.begin_command(Command::ResizeVolume { volume: bench.volume, size: 8 * block });
    bench.let_all_go();
    bench.await_command(checkpoint);
    bench.await_command(shrinking);
    bench.crash(Cut::Lost).expect("a write beyond the new end was inside the old one");
    assert_eq!(listed(&bench), [("disk".to_string(), 8)]);
    bench.assert_holds(0, 5);
    assert_eq!(bench.read(20), Err(Error::Invalid));
    bench.command(Command::ResizeVolume { volume: bench.volume, size: 64 * block });
    for cut_off in [20, 40] {
        bench.assert_holds(cut_off, 0);
    }
    bench.audit();
}

#[test]
fn requests_in_flight_fail_when_their_volume_goes() {
    let mut bench = Bench::new(Config::small(1), 64);
    bench.write(0, &[1, 2, 3]);
    bench.reopen();
    bench.world.hold_back(page_reads);
    let read = bench.begin_read(0, 3);
    let patch = bench.begin_cells(3, &[9], true);
    bench.until_held(1);
    bench.command(Command::DeleteVolume { volume: bench.volume });
    let late = bench.begin_read(0, 1);
    bench.let_all_go();
    for token in [read, patch, late] {
        assert_eq!(bench.wait(token), Err(Error::Invalid));
    }
    bench.audit();
    assert_eq!(bench.world.engine.status().data_blocks_used, 0);
    assert_eq!(listed(&bench), []);
}

#[test]
fn a_number_is_given_again_only_when_nothing_of_its_volume_is_left_to_discard() {
    sim::runs::hazards::numbers_that_come_round().unwrap();
}

/// Clones would be snapshotted beside their image, which nobody asked for.
#[test]
fn a_schedule_of_snapshots_stays_with_its_volume() {
    let mut bench = Bench::new(Config::small(1), 64);
    let volume = bench.volume;
    let schedule: SnapshotSchedule = "hourly:36,daily:30,monthly:3".parse().unwrap();
    let change = VolumePropertyChange { snapshots: Some(schedule), ..VolumePropertyChange::default() };
    bench.command(Command::SetVolume { volume, change });
    let snapshot = bench.snapshot("auto-2026-11-28T13:00Z-hourly");
    bench.clone_of(snapshot, "clone");
    bench.reopen();
    let schedule_of =
        |bench: &Bench, name: &str| bench.world.engine.volume_named(name).expect("it is there").properties.snapshots();
    for (name, expected) in [
        ("disk", schedule),
        ("disk@auto-2026-11-28T13:00Z-hourly", SnapshotSchedule::OFF),
        ("clone", SnapshotSchedule::OFF),
    ] {
        assert_eq!(schedule_of(&bench, name), expected, "{name}");
    }
    let set = bench.begin_command(Command::SetVolume { volume: snapshot, change });
    assert_eq!(bench.command_result(set), Err(ControlError::IsSnapshot));
    bench.audit();
}
