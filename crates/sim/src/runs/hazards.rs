//! Hazards of the pass that finds duplicates, of the flash, of numbers of volumes, and of snapshots, which random operations do not reach in a small pool: a
//! sequence of its own for each. A sound engine passes; the mutants of the same names have to be caught by them.

use engine::{
    CacheKey, DedupCommand, DedupVerify, DefragSetting, IndexCopy, IoOp, Limits, Policy, PoolChange, ScrubCommand,
    Segment, VolumePropertyChange,
};

use crate::content::{Content, ZERO};
use crate::random::Random;
use crate::runs::config::Config;
use crate::runs::run::{Run, Snapshot};
use crate::runs::shorthand::{SECONDS, place, write};
use crate::runs::workload::{Fronting, Operation, policy};
use crate::transcript::Trace;
use crate::world::disk::Cut;
use crate::world::flash::FlashConfig;
use crate::{Checked, violated};

/// Maximum number of changes that a job makes between two syncs: recovery verifies each of them (docs/internals/performance.md).
const PER_SYNC: u64 = 1024;
/// Number of blocks that are stored twice.
const TWICE: u64 = 3200;
/// Number of pairs of blocks, so far apart that each takes several pages.
const PAIRS: u64 = 34;
/// Number of steps of 10 us in which a pass begins to write.
const MOMENTS: u64 = 2_000;
/// Number of blocks of a write.
const AT_ONCE: u64 = 8;

fn share(volume: u64) -> Operation {
    Operation::SetVolume { volume, policy: Some(Some(policy("full"))), read_only: None }
}

/// Holds syncs back while a pass shares the equal blocks of two volumes: the pass waits for them.
pub fn changes_between_syncs() -> Checked {
    let mut config = Config::small(1);
    let geometry = &mut config.parameters.geometry;
    (geometry.containers, geometry.slots_per_container) = (120, 64);
    (geometry.metadata_blocks, geometry.journal_blocks) = (4096, 4096);
    (config.limits.delta_entries, config.limits.pages, config.limits.map_buffer) = (8 * TWICE as u32, 1024, 0);
    (config.limits.index_entries, config.limits.discards) = (4 * TWICE as u32, 4096);
    config.volumes = vec![(TWICE, Policy::Native); 2];
    let mut run = Run::start(config, Trace::new(false), false)?;
    let both =
        |volume| (0..TWICE / AT_ONCE).map(move |n| write(volume, AT_ONCE * n, AT_ONCE, 1 + (AT_ONCE * n) as u32));
    let mut sequence: Vec<Operation> = both(0).chain(both(1)).collect();
    sequence.extend([Operation::Drain, Operation::Settle, share(0), share(1), Operation::Drain]);
    sequence.push(Operation::Dedup(DedupCommand::Start));
    run.perform(&sequence)?;
    let shared = |run: &Run| run.world.engine.status().dedup.shared_blocks;
    while shared(&run) == 0 {
        run.wait()?;
    }
    run.world.hold_back(|io| io.op == IoOp::Sync);
    let before = shared(&run);
    let end = run.world.now + SECONDS;
    while !matches!(run.step(end)?, crate::world::Step::Quiet) {}
    let made = shared(&run) - before;
    run.world.hold_back(|_| false);
    run.world.let_go(usize::MAX);
    if made > PER_SYNC {
        return violated(format!("{made} blocks were shared without a sync"));
    }
    run.perform(&[Operation::Idle(60 * SECONDS)])?;
    if shared(&run) != TWICE {
        return violated(format!("{} of {TWICE} blocks are shared in the end", shared(&run)));
    }
    run.settle_and_audit()
}

/// Stores duplicates so far apart in a huge volume that each takes pages of its own, which are most of the metadata: a pass pauses, and clients are served.
pub fn passes_short_of_metadata() -> Checked {
    let mut config = Config::small(1);
    let geometry = &mut config.parameters.geometry;
    (geometry.containers, geometry.metadata_blocks) = (64, 400);
    (config.limits.map_buffer, config.limits.delta_entries) = (0, 1024);
    config.volumes = vec![(geometry.most_volume_blocks(), Policy::Native), (64, Policy::Native)];
    let mut run = Run::start(config, Trace::new(false), false)?;
    let far = |number: u64| number * (64 * 32 * 32 * 32);
    let mut sequence: Vec<Operation> = vec![write(1, 0, 8, 1000)];
    for number in 0..2 * PAIRS {
        sequence.extend([write(0, far(number), 1, 1 + (number / 2) as u32), Operation::Drain]);
    }
    sequence.extend([Operation::Settle, share(0), Operation::Drain, Operation::Dedup(DedupCommand::Start)]);
    sequence.extend([Operation::Idle(60 * SECONDS), write(1, 0, 8, 2000), Operation::Idle(60 * SECONDS)]);
    run.perform(&sequence)?;
    let status = run.world.engine.status();
    if !status.dedup.is_short_of_space || run.world.engine.pages_beyond_promise() > 0 {
        return violated(format!("the pass does not rest: {:?}", status.dedup));
    }
    run.settle_and_audit()
}

/// Lets a pass write into the last empty containers, which clients need before its writes complete: no slot has two writers.
pub fn spill_space_that_is_reclaimed() -> Checked {
    for containers in 18..24 {
        let mut config = Config::small(1);
        config.parameters.geometry.containers = containers;
        config.limits = Limits { delta_entries: 12, map_buffer: 0, ..config.limits };
        (config.volumes, config.depth) = (vec![(128, Policy::Full)], 12);
        let data = config.parameters.geometry.data_start() * config.parameters.geometry.block();
        let mut run = Run::start(config, Trace::new(false), false)?;
        let mut sequence: Vec<Operation> = (0..16).map(|at| write(0, 8 * at, 8, 10 * at as u32 + 1)).collect();
        sequence.extend([Operation::Settle, Operation::Dedup(DedupCommand::Start)]);
        run.world.hold_back(move |io| io.offset >= data && matches!(io.segments.first(), Some(Segment::Page(_))));
        run.perform(&sequence)?;
        for _ in 0..MOMENTS {
            run.perform(&[Operation::Idle(SECONDS / 100_000)])?;
            if run.world.held() > 0 {
                break;
            }
        }
        if run.world.held() == 0 && containers == 23 {
            return violated("the pass wrote nothing into empty containers");
        }
        // More than is free beside these, less than can be in flight.
        run.perform(&(0..8).map(|at| write(0, 8 * at, 8, 1000 + 10 * at as u32)).collect::<Vec<_>>())?;
        run.perform(&[Operation::Idle(SECONDS / 1000)])?;
        run.world.hold_back(|_| false);
        let held = run.world.held();
        run.world.let_go(held);
        run.perform(&[Operation::Drain, Operation::Idle(SECONDS)])?;
        run.settle_and_audit()?;
    }
    Ok(())
}

/// Writes new contents several times to the canonical slots, while a pass reads its results: no block is remapped to them.
pub fn slots_that_get_other_contents() -> Checked {
    let mut config = Config::small(1);
    config.parameters.geometry.containers = 28;
    config.limits = Limits { delta_entries: 12, map_buffer: 0, ..config.limits };
    (config.volumes, config.depth) = (vec![(128, Policy::Native)], 12);
    let data = config.parameters.geometry.data_start() * config.parameters.geometry.block();
    let mut run = Run::start(config, Trace::new(false), false)?;
    let half = |first: u64, value: u64| (0..8).map(move |at| write(0, first + 8 * at, 8, (value + 8 * at) as u32));
    let mut sequence: Vec<Operation> = half(0, 1).chain(half(64, 1)).collect();
    sequence.extend([Operation::Drain, Operation::Settle, share(0), Operation::Drain]);
    // Reading the canonical slot would reveal it, too.
    let pool = PoolChange { dedup_verify: Some(DedupVerify::Off), ..PoolChange::default() };
    sequence.push(Operation::SetTiming { volume: 0, change: VolumePropertyChange::default(), pool });
    sequence.push(Operation::Dedup(DedupCommand::Start));
    run.world.hold_back(move |io| io.op == IoOp::ReadPages && io.offset >= data);
    run.perform(&sequence)?;
    for _ in 0..MOMENTS {
        run.perform(&[Operation::Idle(SECONDS / 100_000)])?;
        if run.world.held() > 0 {
            break;
        }
    }
    if run.world.held() == 0 {
        return violated("the pass read nothing from its spill space");
    }
    for round in 1..4 {
        run.perform(&half(0, 1000 * round).collect::<Vec<_>>())?;
        run.perform(&[Operation::Drain, Operation::Idle(SECONDS)])?;
    }
    if run.world.engine.status().dedup.spill_blocks == 0 {
        return violated("the writes needed the spill space");
    }
    run.world.hold_back(|_| false);
    let held = run.world.held();
    run.world.let_go(held);
    run.perform(&[Operation::Drain, Operation::Idle(60 * SECONDS)])?;
    run.verify_all()?;
    run.settle_and_audit()
}

/// Starts a pass over blocks with second copies: each copy stays a copy.
pub fn copies_beside_a_pass() -> Checked {
    let mut config = Config::small(1);
    config.volumes = vec![(24, Policy::Full); 2];
    let mut run = Run::start(config, Trace::new(false), false)?;
    let mut sequence = vec![Operation::SecondCopies(1), write(0, 0, 4, 1), write(0, 8, 4, 1), write(1, 0, 4, 1)];
    sequence.extend([Operation::Scrub(ScrubCommand::Start), Operation::Idle(SECONDS)]);
    run.perform(&sequence)?;
    let before = run.world.engine.status();
    if before.second_copies == 0 {
        return violated("there are no second copies");
    }
    run.perform(&[Operation::Dedup(DedupCommand::Start), Operation::Idle(2 * SECONDS)])?;
    let after = run.world.engine.status();
    if after.dedup.shared_blocks > 0 || after.second_copies != before.second_copies {
        let (copies, shared) = (after.second_copies, after.dedup.shared_blocks);
        return violated(format!(
            "of {} second copies {copies} are left, {shared} blocks were shared",
            before.second_copies
        ));
    }
    run.settle_and_audit()
}

/// Fills free slots of containers on flash, and cuts the power before the writes are merged, or before the log on flash has them: reads return the
/// writes, not the old contents of those slots on flash.
pub fn replay_into_containers_on_flash() -> Checked {
    const CONTAINERS: u32 = 12;
    const BLOCKS: u64 = 8 * (CONTAINERS as u64 - 1);
    // Less than half, so that none of them is emptied.
    const FREE: u64 = 3;
    let mut written_to = 0;
    for pieces in 1..=6 {
        let mut config = Config::small(1);
        (config.parameters.geometry.containers, config.parameters.geometry.piece_blocks) = (CONTAINERS, 4);
        (config.volumes, config.cache_key) = (vec![(BLOCKS, Policy::Native)], CacheKey::Off);
        config.limits.read_ahead = 0;
        config.flash = Some(FlashConfig::greedy(CONTAINERS));
        let mut run = Run::start(config, Trace::new(false), false)?;
        let whole = || Operation::ReadOn { place: place(0, 0, BLOCKS), blocks: 4, swapped: false };
        let part = |n: u64| Operation::Trim { place: place(0, 8 * n + 8 - FREE, FREE), fua: false };
        let mut sequence: Vec<Operation> = (0..BLOCKS / 4).map(|n| write(0, 4 * n, 4, 1 + 4 * n as u32)).collect();
        sequence.extend((0..BLOCKS / 8).map(part).chain([Operation::Settle, whole(), Operation::Idle(SECONDS)]));
        run.perform(&sequence)?;
        let on_flash = |run: &Run| run.world.engine.status().flash.map_or((0, 0), |flash| (flash.filled, flash.found));
        let (filled, _) = on_flash(&run);
        let crash = Operation::Crash { cut: Cut::Lost, again: Vec::new(), verify: false };
        let mut sequence = vec![Operation::Flash(Fronting::Hang { one_in: 1 })];
        sequence.extend((0..pieces).map(|n| write(0, 8 * n, 4, 1000 + 4 * n as u32)));
        sequence.extend([Operation::Drain, Operation::Flush, Operation::Drain, crash, Operation::Idle(SECONDS / 1000)]);
        run.perform(&sequence)?;
        let (_, found) = on_flash(&run);
        run.perform(&[whole(), Operation::Drain])?;
        written_to += filled.saturating_sub(found);
        run.settle_and_audit()?;
    }
    if written_to == 0 {
        return violated("nothing was written to containers on flash");
    }
    Ok(())
}

/// Deletes a volume with many leaves when numbers come round, and creates another while they are discarded: it does not get the number.
pub fn numbers_that_come_round() -> Checked {
    const LEAVES: u64 = 120;
    let mut config = Config::small(1);
    config.limits = Limits { discard_leaves: 1, map_buffer: 0, ..config.limits };
    let geometry = &mut config.parameters.geometry;
    (geometry.containers, geometry.metadata_blocks) = (40, 1024);
    let leaf = geometry.map_leaf_entries();
    // The second one gets number 1. The first one has the largest, so numbers begin with 1 again after each opening.
    config.first_number = u16::MAX - 2;
    config.volumes = vec![(64, Policy::Native), (LEAVES * leaf, Policy::Native)];
    let mut run = Run::start(config, Trace::new(false), false)?;
    let mut sequence: Vec<Operation> = (0..LEAVES).map(|at| write(1, at * leaf, 1, 1 + at as u32)).collect();
    sequence.extend([Operation::Settle, Operation::DeleteVolume { volume: 1 }, Operation::Drain]);
    run.perform(&sequence)?;
    let before = run.world.engine.counters().checkpoints;
    while run.world.engine.counters().checkpoints == before {
        run.perform(&[Operation::Idle(SECONDS / 100_000)])?;
    }
    run.perform(&[Operation::Crash { cut: Cut::Kept, again: Vec::new(), verify: false }])?;
    if run.world.engine.status().discarded_blocks == 0 {
        return violated("nothing is left to discard");
    }
    let create = Operation::CreateVolume { size_blocks: 64, policy: Some(Policy::Native) };
    run.perform(&[create, Operation::Drain, write(1, 0, 8, 1000), Operation::Settle])?;
    run.settle_and_audit()
}

/// Deletes a volume while a checkpoint is in progress, and gives its name to another one: that checkpoint, which still has the first, must not have it.
pub fn names_of_deleted_volumes() -> Checked {
    let mut config = Config::small(1);
    config.volumes = vec![(64, Policy::Full); 3];
    let mut run = Run::start(config, Trace::new(false), false)?;
    let written = [write(0, 0, 1, 1), Operation::Reopen, write(0, 0, 1, 5), write(0, 40, 1, 6), Operation::Drain];
    run.perform(&written)?;
    let geometry = run.config.parameters.geometry;
    let metadata = geometry.data_start() * geometry.block();
    run.world.hold_back(move |io| io.op == IoOp::Reserve && io.offset < metadata);
    let before = run.world.engine.counters().checkpoints;
    run.perform_one(&Operation::IndexCopy(IndexCopy::Oldest))?;
    while run.world.held() == 0 {
        run.step(run.world.now + SECONDS)?;
    }
    run.perform_one(&Operation::DeleteVolume { volume: 1 })?;
    run.perform_one(&Operation::Rename { volume: 2, reuses: true })?;
    run.world.hold_back(|_| false);
    run.world.let_go(usize::MAX);
    while run.world.engine.counters().checkpoints == before {
        run.step(run.world.now + SECONDS)?;
    }
    run.perform(&[Operation::Crash { cut: Cut::Lost, again: Vec::new(), verify: true }])?;
    run.settle_and_audit()
}

/// Moves blocks while a snapshot of their volume is pending, and cuts the power before it is durable: no record names it.
pub fn moves_beside_a_pending_snapshot() -> Checked {
    const BLOCKS: u64 = 24 * 16;
    const MOMENTS: u64 = 12;
    let mut moved = 0;
    for moment in 0..MOMENTS {
        let mut config = Config::small(1);
        let geometry = &mut config.parameters.geometry;
        (geometry.containers, geometry.slots_per_container) = (24, 16);
        config.limits = Limits { map_buffer: 0, delta_entries: 1024, ..config.limits };
        config.volumes = vec![(BLOCKS, Policy::Native)];
        let superblocks = geometry.journal_start() * geometry.block();
        let mut run = Run::start(config, Trace::new(false), false)?;
        let moves = |defrag| Operation::SetTiming {
            volume: 0,
            change: VolumePropertyChange::default(),
            pool: PoolChange { defrag: Some(defrag), replicas: Some(Some(0)), ..PoolChange::default() },
        };
        let mut sequence = vec![moves(DefragSetting::Off)];
        sequence.extend((0..BLOCKS / AT_ONCE).map(|n| write(0, AT_ONCE * n, AT_ONCE, 1 + (AT_ONCE * n) as u32)));
        sequence.extend((0..BLOCKS / 2).map(|n| Operation::Trim { place: place(0, 2 * n, 1), fua: false }));
        sequence.extend([Operation::Settle, moves(DefragSetting::Auto), Operation::Drain]);
        run.perform(&sequence)?;
        for _ in 0..moment * 7 {
            run.step(run.world.now + SECONDS)?;
        }
        run.world.hold_back(move |io| io.op.is_write() && io.offset < superblocks);
        for operation in [Operation::Snapshot { volumes: vec![0] }, Operation::Flush] {
            run.perform_one(&operation)?;
            let end = run.world.now + SECONDS;
            while !matches!(run.step(end)?, crate::world::Step::Quiet) {}
        }
        moved += run.world.engine.status().gc.moved_blocks;
        run.perform(&[Operation::Crash { cut: Cut::Lost, again: Vec::new(), verify: true }])?;
        run.settle_and_audit()?;
    }
    if moved == 0 {
        return violated("nothing was moved");
    }
    Ok(())
}

/// Clears one block of each leaf that a volume inherits, when metadata is full: overwrites and trims of another volume find space.
pub fn clears_below_a_parent() -> Checked {
    const LEAVES: u64 = 300;
    let mut config = Config::small(1);
    config.limits.map_buffer = 0;
    let geometry = &mut config.parameters.geometry;
    (geometry.containers, geometry.metadata_blocks) = (120, 700);
    let leaf = geometry.map_leaf_entries();
    config.volumes = vec![(LEAVES * leaf, Policy::Native); 2];
    let mut run = Run::start(config, Trace::new(false), false)?;
    let mut sequence: Vec<Operation> = (0..LEAVES).map(|at| write(0, at * leaf, 2, 1 + at as u32)).collect();
    sequence.extend([Operation::Drain, Operation::Snapshot { volumes: vec![0] }, Operation::Drain]);
    run.perform(&sequence)?;
    let mut written = 0;
    while run.counts.without_space == 0 && written < LEAVES {
        run.perform(&[write(1, written * leaf, 1, 1000 + written as u32), Operation::Drain])?;
        written += 1;
    }
    let refused = run.counts.without_space;
    let clear = |at| [Operation::Trim { place: place(0, at * leaf, 1), fua: false }, Operation::Drain];
    run.perform(&(0..LEAVES).flat_map(clear).collect::<Vec<_>>())?;
    if refused == 0 || run.counts.without_space == refused {
        return violated("metadata is not full");
    }
    let refused = run.counts.without_space;
    let overwrite = |at| [write(1, at * leaf, 1, 5000 + at as u32), Operation::Drain];
    run.perform(&(0..written - 1).flat_map(overwrite).collect::<Vec<_>>())?;
    if run.counts.without_space > refused {
        return violated(format!("{} overwrites found no space", run.counts.without_space - refused));
    }
    run.perform(&[Operation::Trim { place: place(1, 0, LEAVES * leaf), fua: false }, Operation::Drain])?;
    run.settle_and_audit()
}

/// Overwrites all blocks, and loses the process and the journal while the superblock with that is not durable: the pool is as of the superblock before, and all
/// of its blocks must be whole. (A journal on a device of its own, or a damaged record, can end so.)
pub fn discards_before_the_superblock() -> Checked {
    const BLOCKS: u64 = 64;
    let mut config = Config::small(1);
    let geometry = &mut config.parameters.geometry;
    (geometry.containers, geometry.slots_per_container) = (64, 4);
    config.limits = Limits { map_buffer: 0, delta_entries: 1024, ..config.limits };
    config.volumes = vec![(BLOCKS, Policy::Full)];
    let geometry = config.parameters.geometry;
    let mut run = Run::start(config.clone(), Trace::new(false), false)?;
    let all =
        |first: u64| (0..BLOCKS / AT_ONCE).map(move |n| write(0, AT_ONCE * n, AT_ONCE, (first + AT_ONCE * n) as u32));
    run.perform(&all(1).chain([Operation::Settle]).collect::<Vec<_>>())?;
    let model = run.model.clone();
    run.perform(&all(1000).chain([Operation::Flush, Operation::Drain]).collect::<Vec<_>>())?;
    // The superblock comes behind a sync of the pages.
    run.world.hold_back(|io| io.op == IoOp::Sync);
    let end = run.world.now + 20 * SECONDS;
    while !matches!(run.step(end)?, crate::world::Step::Quiet) {}
    if run.world.held() == 0 {
        return violated("no superblock was to be written");
    }
    let mut disk = run.world.disk.clone();
    disk.crash(Cut::Kill, &mut Random::new(1));
    for block in geometry.journal_start()..geometry.journal_start() + u64::from(geometry.journal_blocks) {
        disk.put(block, Content::Payload(ZERO));
    }
    let (now, geometry) = (run.world.now, (geometry, None));
    let snapshot =
        Snapshot { point: 0, disk, flash: None, model, now, epoch: 0, geometry, was_offline: false, is_exact: false };
    let mut run = Run::resume(config, &snapshot, Cut::Kill, 1, false, Trace::new(false))?;
    run.verify_all()?;
    run.settle_and_audit()?;
    run.perform(&[Operation::Trim { place: place(0, 0, BLOCKS), fua: false }, Operation::Settle])?;
    run.perform(&[Operation::Idle(20 * SECONDS)])?;
    if run.world.engine.status().discard.discarded_bytes == 0 {
        return violated("nothing is discarded in the end");
    }
    run.settle_and_audit()
}
