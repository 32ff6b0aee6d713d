//! The flash cache in front of the store: its budget, its log, hangs, and its admission policies.

use engine::admission::{Filter, Rules};
use engine::{CacheKey, FlashMode, FlashPolicy, FlashStatus, Policy, PoolChange, VolumePropertyChange};
use sim::content::CELLS;
use sim::runs::config::Config;
use sim::runs::run::Run;
use sim::runs::workload::{Fronting, Operation, Place};
use sim::transcript::Trace;
use sim::world::disk::Cut;
use sim::world::flash::FlashConfig;

const WHOLE: Place = Place { volume: 0, first: 0, count: 24 * CELLS as u64 };

fn read() -> [Operation; 2] {
    [Operation::ReadOn { place: WHOLE, blocks: 8, swapped: false }, Operation::Drain]
}

fn crash() -> Operation {
    Operation::Crash { cut: Cut::Lost, again: Vec::new(), verify: false }
}

/// Makes a pool with three full containers, two of them on flash, and nothing in memory.
fn cached(seed: u64) -> Run {
    cached_by(seed, FlashConfig::greedy(2))
}

fn cached_by(seed: u64, flash_config: FlashConfig) -> Run {
    let mut config = Config::small(seed);
    config.volumes = vec![(24, Policy::Native)];
    config.limits.read_ahead = 0;
    config.flash = Some(flash_config);
    let mut run = Run::start(config, Trace::new(false), false).unwrap();
    for block in (0..24).step_by(8) {
        let place = Place { volume: 0, first: block * CELLS as u64, count: 8 * CELLS as u64 };
        let contents = (1 + block as u32..9 + block as u32).collect();
        run.perform(&[Operation::Write { place, contents, fua: false }]).unwrap();
    }
    run.perform(&[Operation::Settle, Operation::Reopen, Operation::Idle(1 << 30)]).unwrap();
    run.perform(&read()).unwrap();
    run.perform(&[Operation::Idle(1 << 30)]).unwrap();
    let status = flash(&run);
    assert_eq!((status.mode, status.filled, status.bad_blocks), (FlashMode::Active, 2, 0), "{status:?}");
    run
}

fn flash(run: &Run) -> FlashStatus {
    run.world.engine.status().flash.unwrap()
}

#[test]
fn what_is_on_flash_is_there_after_a_restart_and_after_a_crash() {
    for end in [Operation::Reopen, crash()] {
        let mut run = cached(1);
        run.perform(&[end, Operation::Idle(1 << 30)]).unwrap();
        assert_eq!((flash(&run).found, flash(&run).filled), (2, 2));
        run.perform(&[crash()]).unwrap();
        run.perform(&[Operation::Idle(1 << 30)]).unwrap();
        run.perform(&read()).unwrap();
        let status = flash(&run);
        assert!(status.read_blocks >= 8 && status.found == 2, "{status:?}");
    }
}

#[test]
fn what_is_left_of_the_budget_is_left_after_a_restart_and_after_a_crash() {
    for end in [Operation::Reopen, crash()] {
        let greedy = FlashConfig::greedy(2);
        let rules = Rules { filter: Filter::Budget { bytes_per_day: 1 << 20 }, ..greedy.rules };
        let mut run = cached_by(1, FlashConfig { rules, ..greedy });
        let before = flash(&run).budget_left;
        // Two containers were copied to fill the empty cache. A restart does not give that budget again.
        assert!(before < (1 << 20) + 1000, "{before}");
        run.perform(&[end, Operation::Idle(1 << 30)]).unwrap();
        let status = flash(&run);
        let left = status.budget_left + status.copied_bytes;
        assert!(status.found == 2 && left.abs_diff(before) < 1000, "{before}, {status:?}");
    }
}

#[test]
fn another_pools_flash_is_taken_over_empty() {
    let (mut one, mut other) = (cached(1), cached(2));
    one.world.flash = other.world.flash.take();
    one.perform(&[crash(), Operation::Idle(1 << 30)]).unwrap();
    one.perform(&read()).unwrap();
    let status = flash(&one);
    assert_eq!((status.found, status.mode, status.bad_blocks), (0, FlashMode::Active, 0), "{status:?}");
}

#[test]
fn a_flash_that_is_gone_is_switched_off_and_nothing_else_happens() {
    let mut run = cached(1);
    run.perform(&[crash()]).unwrap();
    run.perform(&[Operation::Idle(1 << 30)]).unwrap();
    run.world.flash.as_mut().unwrap().fail_after(0);
    for _ in 0..20 {
        run.perform(&read()).unwrap();
        let first = Operation::Write { place: Place { count: 8, ..WHOLE }, contents: vec![77], fua: true };
        run.perform(&[first, Operation::Settle]).unwrap();
    }
    assert_eq!((flash(&run).mode, flash(&run).filled), (FlashMode::Off, 0));
    run.perform(&[Operation::Reopen, Operation::Settle]).unwrap();
}

#[test]
fn a_flash_that_was_detached_begins_empty_when_it_is_attached_again() {
    let mut run = cached(1);
    // Nothing is read from memory.
    run.perform(&[Operation::CacheKey(CacheKey::Off), Operation::Flash(Fronting::Detach)]).unwrap();
    assert_eq!(run.world.engine.status().flash, None);
    run.perform(&read()).unwrap();
    run.perform(&[Operation::Flash(Fronting::Attach)]).unwrap();
    assert_eq!((flash(&run).found, flash(&run).filled), (0, 0));
    run.perform(&[Operation::Idle(1 << 30)]).unwrap();
    run.perform(&read()).unwrap();
    run.perform(&[Operation::Idle(1 << 30)]).unwrap();
    assert_eq!((flash(&run).mode, flash(&run).filled), (FlashMode::Active, 2));
    run.perform(&[crash(), Operation::Idle(1 << 30)]).unwrap();
    assert_eq!((flash(&run).found, flash(&run).bad_blocks), (2, 0));
}

/// A flash that was attached again wrote its log at once, over the newer half of the log that the superblock still counted as valid. After a crash
/// the older half was trusted, although its places had been rewritten since. (The soak found it: reads from there returned wrong data.)
#[test]
fn a_flash_that_is_attached_again_is_not_written_while_its_old_log_is_trusted() {
    for (rounds, time) in (1..8).flat_map(|rounds| [10, 40, 100, 400].map(|time| (rounds, time * 1000))) {
        let mut run = cached(1);
        run.perform(&[Operation::CacheKey(CacheKey::Off)]).unwrap();
        for _ in 0..rounds {
            run.perform(&read()).unwrap();
            run.perform(&[Operation::Idle(1 << 30)]).unwrap();
        }
        let again = [Operation::Flash(Fronting::Detach), Operation::Flash(Fronting::Attach), Operation::Idle(time)];
        run.perform(&again).unwrap();
        run.perform(&[crash(), Operation::Idle(1 << 30)]).unwrap();
        run.perform(&read()).unwrap();
        assert_eq!(flash(&run).bad_blocks, 0, "{rounds} rounds, {time} ns");
    }
}

/// A read of a flash that did not answer waited for the answer, without end if the drive was dead.
#[test]
fn a_flash_that_hangs_holds_up_nobody_and_has_its_buffers_until_it_answers() {
    let mut run = cached(1);
    run.perform(&[crash(), Operation::Idle(1 << 30)]).unwrap();
    run.perform(&[Operation::Flash(Fronting::Hang { one_in: 1 })]).unwrap();
    let began = run.world.now;
    run.perform(&read()).unwrap();
    // The reads of both containers were late together.
    assert!((3_000_000_000..4_000_000_000).contains(&(run.world.now - began)), "{}", run.world.now - began);
    assert_eq!((flash(&run).mode, flash(&run).filled), (FlashMode::Late, 0));
    run.perform(&read()).unwrap();
    run.perform(&[Operation::Settle, Operation::Flash(Fronting::Answer), Operation::Settle]).unwrap();
    run.perform(&read()).unwrap();
    run.perform(&[Operation::Idle(10 << 30), Operation::Flash(Fronting::Detach), Operation::Flash(Fronting::Attach)])
        .unwrap();
    assert_eq!(flash(&run).found, 0);
    run.perform(&[Operation::Reopen, Operation::Settle]).unwrap();
}

fn by_policy(text: &str) -> Operation {
    let pool = PoolChange { flash_policy: Some(text.parse().unwrap()), ..PoolChange::default() };
    Operation::SetTiming { volume: 0, change: VolumePropertyChange::default(), pool }
}

#[test]
fn the_policy_of_a_flash_is_in_force_at_once_and_after_a_crash() {
    let mut run = cached(1);
    assert_eq!(run.world.engine.properties().flash_policy(), FlashPolicy::Budget);
    // Nothing is read so often, so nothing more is copied.
    let seldom = "paper:filter=200,delay=off,comparison=off";
    run.perform(&[by_policy(seldom), Operation::CacheKey(CacheKey::Off)]).unwrap();
    let copied = flash(&run).copied;
    for _ in 0..4 {
        run.perform(&read()).unwrap();
        run.perform(&[Operation::Idle(2 << 30)]).unwrap();
    }
    assert_eq!((flash(&run).copied, run.world.engine.properties().flash_policy()), (copied, seldom.parse().unwrap()));
    run.perform(&[Operation::Settle, crash(), Operation::Idle(1 << 30)]).unwrap();
    assert_eq!(run.world.engine.properties().flash_policy(), seldom.parse().unwrap());
    for _ in 0..4 {
        run.perform(&read()).unwrap();
        run.perform(&[Operation::Idle(2 << 30)]).unwrap();
    }
    assert_eq!((flash(&run).copied, flash(&run).found), (0, 2));
    // Each container found counts as copied once, and so does each new one.
    run.perform(&[by_policy("paper:filter=off,delay=off,comparison=off")]).unwrap();
    for _ in 0..4 {
        run.perform(&read()).unwrap();
        run.perform(&[Operation::Idle(2 << 30)]).unwrap();
    }
    let status = flash(&run);
    assert!(status.copied > 2, "{status:?}");
    assert_eq!(status.quadrants.total(), u64::from(status.found) + status.copied);
    assert!(status.quadrants.popular_again > 0, "{status:?}");
}

/// Makes a pool with these volumes, whose first container can go to flash: there is space for one.
fn with_one_on_flash(volumes: &[(u64, Policy)], containers: u32, policy: &str) -> Run {
    let mut config = Config::small(1);
    config.volumes = volumes.to_vec();
    config.limits.read_ahead = 0;
    config.flash = Some(FlashConfig::greedy(1));
    config.cache_key = CacheKey::Off;
    (config.parameters.geometry.containers, config.parameters.geometry.piece_blocks) = (containers, 1);
    let mut run = Run::start(config, Trace::new(false), false).unwrap();
    let fill: Vec<Operation> = (0..volumes[0].0).map(|block| write_block(0, block, 1 + block as u32)).collect();
    run.perform(&fill).unwrap();
    run.perform(&[by_policy(policy), Operation::Settle]).unwrap();
    run
}

fn write_block(volume: u64, block: u64, content: u32) -> Operation {
    let place = Place { volume, first: block * CELLS as u64, count: CELLS as u64 };
    Operation::Write { place, contents: vec![content], fua: false }
}

/// Reads a container's worth of blocks, and leaves time for copies.
fn read_container(run: &mut Run, container: u64) {
    let place = Place { volume: 0, first: 8 * container * CELLS as u64, count: 8 * CELLS as u64 };
    let read = Operation::ReadOn { place, blocks: 1, swapped: false };
    run.perform(&[read, Operation::Drain, Operation::Idle(2 << 30)]).unwrap();
}

/// As in the slides, a newcomer that was read as often replaces a container that fewer files refer to. The engine passed 0 for all of them.
#[test]
fn a_container_that_others_share_comes_to_flash_in_place_of_one_that_nobody_does() {
    for (shared, copied) in [(true, 2), (false, 1)] {
        let mut run =
            with_one_on_flash(&[(24, Policy::Full), (8, Policy::Full)], 12, "paper:filter=1,delay=1,comparison=2");
        let other = |block: u64| write_block(1, block, if shared { 9 } else { 100 } + block as u32);
        run.perform(&(0..8).map(other).collect::<Vec<_>>()).unwrap();
        run.perform(&[Operation::Settle]).unwrap();
        read_container(&mut run, 0);
        assert_eq!((flash(&run).copied, flash(&run).filled), (1, 1));
        read_container(&mut run, 1);
        assert_eq!(flash(&run).copied, copied, "shared: {shared}");
        // The third has no more than the second, and was read no more often.
        read_container(&mut run, 2);
        assert_eq!(flash(&run).copied, copied, "shared: {shared}");
    }
}

/// Six containers are full, and the first is on flash. Half of each is overwritten, so all suit writes and garbage collection equally. If either
/// takes the first, frequently read blocks are no longer on flash.
#[test]
fn writes_and_garbage_collection_spare_containers_on_flash() {
    // Settling reads all of it now and then. Only containers that are read more often come to flash.
    let mut run = with_one_on_flash(&[(48, Policy::Native)], 9, "paper:filter=8,delay=off,comparison=off");
    (0..8).for_each(|_| read_container(&mut run, 0));
    assert_eq!((flash(&run).copied, flash(&run).filled), (1, 1));
    let halves = (0..6).flat_map(|container| (0..4).map(move |block| 8 * container + block));
    run.perform(&halves.map(|block| write_block(0, block, 1000 + block as u32)).collect::<Vec<_>>()).unwrap();
    run.perform(&[Operation::Settle]).unwrap();
    assert_eq!(flash(&run).filled, 1);
    // Two containers' worth of slots go to others, while the pool is busy and then idle.
    for block in 44..48 {
        run.perform(&[write_block(0, block, 2000 + block as u32)]).unwrap();
    }
    run.perform(&[Operation::Settle, Operation::Idle(20 << 30), Operation::Settle]).unwrap();
    let emptied = run.world.engine.status().gc.emptied_containers;
    let before = flash(&run);
    let place = Place { volume: 0, first: 4 * CELLS as u64, count: 4 * CELLS as u64 };
    run.perform(&[Operation::ReadOn { place, blocks: 1, swapped: false }, Operation::Drain]).unwrap();
    let status = flash(&run);
    assert!(emptied > 0, "garbage collection had nothing to do");
    assert_eq!((status.filled, status.read_blocks - before.read_blocks), (1, 4), "{status:?}");
}

/// Containers on flash are spared, so a crash in which replay takes slots in one became rare. This sequence makes it happen each time.
#[test]
fn what_replay_writes_into_a_container_on_flash_is_not_read_from_there() {
    sim::runs::hazards::replay_into_containers_on_flash().unwrap();
}
