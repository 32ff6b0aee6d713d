//! Small scenarios for the enumeration of crashes: a fixed list, each about one subject, and after it seeded ones.

use engine::{
    CacheKey, DedupCommand, DedupVerify, DeviceTraits, DiscardSetting, Goal, KeepRuns, Limits, PassThrottle, Policy,
    PoolChange, ScrubCommand, Timing, VolumePropertyChange,
};

use crate::content::NUMBERED_TWINS;
use crate::runs::coming_and_going;
use crate::runs::config::{Config, FEW};
use crate::runs::shorthand::{SECONDS, place, write};
use crate::runs::workload::{Fronting, Generator, HUGE, Operation, Place, Relocating, policy};
use crate::world::disk::Cut;
use crate::world::flash::FlashConfig;

/// A config and a short sequence of operations.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its number.
    pub number: u64,
    /// Subject of the scenario.
    pub name: &'static str,
    /// The config.
    pub config: Config,
    /// The operations.
    pub operations: Vec<Operation>,
}

/// Number of fixed scenarios.
pub const FIXED: u64 = 41;

/// Number of the scenario whose volumes go offline because a goal is missed.
pub(crate) const OFFLINE: u64 = 33;

/// Operations of a seeded scenario.
const SEEDED_OPERATIONS: usize = 32;

/// Writes some cells of one block, durable when answered.
fn patch(volume: u64, first: u64, count: u64, content: u32) -> Operation {
    Operation::Write { place: Place { volume, first, count }, contents: vec![content], fua: true }
}

fn trim(volume: u64, block: u64, blocks: u64) -> Operation {
    Operation::Trim { place: place(volume, block, blocks), fua: false }
}

/// Builds the scenario of a number: the fixed ones come first.
pub fn scenario(number: u64) -> Scenario {
    let mut config = Config::small(number);
    config.volumes = vec![(24, Policy::Full), (24, Policy::Full)];
    let (name, operations) = match number {
        0 => ("two writes and a flush", first_sequences()),
        1 => ("overwriting flushed blocks", overwriting()),
        2 => ("sharing, and overwriting the original", sharing()),
        3 => ("partial writes with FUA", partial()),
        4 => ("discard, and reuse of the slots", {
            config.parameters.geometry.containers = 4;
            config.parameters.geometry.slots_per_container = 4;
            reuse()
        }),
        5 => ("a volume is created between writes", creation()),
        6 => ("settling, and writes on top", settled()),
        7 => ("a clean reopening, and writes without a flush", {
            vec![write(0, 0, 4, 1), Operation::Reopen, write(0, 0, 2, 7), write(1, 3, 2, 1), Operation::Drain]
        }),
        8 => ("large writes, and time that passes", timed()),
        9 => ("a small journal goes round", {
            config.parameters.geometry.journal_blocks = 24;
            (0..20).map(|index| patch(index % 2, 3 * index, 9, index as u32 + 1)).collect()
        }),
        10 => ("a full pool grows and takes more", {
            config.parameters.geometry.containers = 4;
            config.parameters.geometry.slots_per_container = 4;
            growing(&[1, 5])
        }),
        11 => ("growths with metadata of their own", {
            config.parameters.geometry.containers = 3;
            config.parameters.geometry.slots_per_container = 4;
            config.parameters.geometry.metadata_blocks = 128;
            growing(&[1550, 1])
        }),
        12 => ("closing is cut short at several moments", closing()),
        13 => ("a volume is deleted, and another takes its name", deletion()),
        14 => ("a volume shrinks and grows again", resizing()),
        15 => ("properties are set", properties()),
        16 => ("a record is lost, and its contents are written elsewhere", lost_record()),
        17 => ("a scrub under load, with volumes that change", scrubbing()),
        18 => ("second copies come and go", copying()),
        19 => ("policies change between duplicates of all kinds", policies()),
        20 => ("regions are defragmented, and are written meanwhile", {
            config.volumes = vec![(24, Policy::Native), (24, Policy::Native)];
            coming_home()
        }),
        21 => ("a pass that finds duplicates, and volumes that change", {
            config.volumes = vec![(24, Policy::Native), (24, Policy::Native)];
            passes(true)
        }),
        22 => ("a pass that finds duplicates, under overwrites", {
            config.volumes = vec![(24, Policy::Native), (24, Policy::Native)];
            passes(false)
        }),
        23 => ("natural duplicates are read through a cache that knows contents", {
            config.volumes = vec![(24, Policy::Native), (24, Policy::Observe)];
            config.parameters.geometry.containers = 8;
            config.cache_key = CacheKey::Content;
            duplicates()
        }),
        24 => ("containers are emptied, and their blocks written, shared and read meanwhile", {
            config.volumes = vec![(104, Policy::Full), (24, Policy::Full)];
            let geometry = &mut config.parameters.geometry;
            (geometry.containers, geometry.spare_containers) = (24, 3);
            emptying()
        }),
        25 => ("containers come to flash and go, and are opened meanwhile", {
            config.volumes = vec![(24, Policy::Native), (24, Policy::Native)];
            config.parameters.geometry.containers = 11;
            config.limits = Limits { buffers: 66, read_ahead: 0, ..config.limits };
            config.flash = Some(FlashConfig::greedy(4));
            on_flash()
        }),
        26 => ("a plan moves shared blocks, which are written, shared and trimmed meanwhile", {
            config.volumes = vec![(24, Policy::Full), (24, Policy::Full), (24, Policy::Full)];
            config.parameters.geometry.containers = 20;
            config.cache_key = CacheKey::Off;
            config.limits = Limits { read_ahead: 0, ..config.limits };
            relocating()
        }),
        27 => ("a rotational disk reads the nearest of slot, replica and copy that the index names", {
            config.volumes = vec![(24, Policy::Observe), (24, Policy::Observe)];
            config.parameters.geometry.containers = 12;
            config.cache_key = CacheKey::Off;
            // Contents whose digests begin alike are one for the index: it names contents that are not there.
            let device = DeviceTraits { sequential_blocks: 4, ..DeviceTraits::HDD };
            config.limits = Limits { read_ahead: 0, sharing_digest_bits: 24, device, ..config.limits };
            nearest()
        }),
        29 => ("popular blocks have copies in zones, which are found again, and whose slots are written meanwhile", {
            config.volumes = vec![(24, Policy::Native); 3];
            (config.parameters.geometry.containers, config.parameters.geometry.slots_per_container) = (40, 4);
            config.cache_key = CacheKey::Off;
            let device = DeviceTraits { sequential_blocks: 0, ..DeviceTraits::HDD };
            config.limits = Limits { read_ahead: 0, delta_entries: 2048, device, ..config.limits };
            popular()
        }),
        30 => ("defragmentation behind readers that never rest", {
            config.volumes = vec![(64, Policy::Native), (64, Policy::Native)];
            (config.parameters.geometry.containers, config.parameters.geometry.slots_per_container) = (16, 16);
            behind_readers()
        }),
        31 => ("the index on disk falls behind volumes that are offline, and a pass brings it up to date", {
            config.limits = Limits { delta_entries: 40, index_entries: 4, ..config.limits };
            falling_behind()
        }),
        32 => ("a pass with many ranges partitions its work, and writes need the containers that it has taken", {
            config.volumes = vec![(64, Policy::Native), (112, Policy::Native)];
            config.parameters.geometry.containers = 21;
            config.limits = Limits { delta_entries: 12, map_buffer: 0, ..config.limits };
            external_partitioning()
        }),
        OFFLINE => ("a goal that is missed drives volumes offline that have never been told when to share", hybrid()),
        34 => ("slots are wanted that a flush has just made obsolete", {
            config.volumes = vec![(24, Policy::Native)];
            config.parameters.geometry.containers = 3;
            config.parameters.geometry.journal_blocks = 24;
            recent_slots()
        }),
        35 => ("metadata grows alone, with a leaf of its map, and with containers", {
            config.parameters.geometry.containers = 8;
            config.parameters.geometry.slots_per_container = 4;
            config.parameters.geometry.metadata_blocks = 128;
            growing_metadata()
        }),
        36 => ("writes wait for the metadata that the driver offers", {
            config.volumes = vec![(1 << 30, Policy::Native), (24, Policy::Native)];
            config.parameters.geometry.metadata_blocks = 160;
            config.offers_growth = true;
            far_apart()
        }),
        37 => ("shared containers are on flash by the paper's policy, and are spared", {
            config.volumes = vec![(48, Policy::Full), (16, Policy::Full)];
            let geometry = &mut config.parameters.geometry;
            (geometry.containers, geometry.piece_blocks) = (12, 4);
            config.limits = Limits { read_ahead: 0, ..config.limits };
            config.flash = Some(FlashConfig::greedy(2));
            config.cache_key = CacheKey::Off;
            by_the_paper()
        }),
        38 => ("volumes with buffered mappings get snapshots, which are cloned and deleted", families()),
        39 => ("volumes and a snapshot get names that others had, and are held, protected and deleted", names()),
        40 => ("a volume is written, resized and rolled back to its snapshots", {
            config.depth = 6;
            rollbacks()
        }),
        coming_and_going::NUMBER => {
            let operations = coming_and_going::prepare(&mut config);
            ("a flash is attached and detached while the pool serves", operations)
        }
        _ => {
            let mut config = Config::swarm(number);
            // Each creation is a checkpoint with crashes in it.
            config.volumes.truncate(FEW);
            for (size_blocks, _) in config.volumes.iter_mut().filter(|(size_blocks, _)| *size_blocks <= HUGE) {
                *size_blocks = (*size_blocks).min(40);
            }
            config.depth = config.depth.min(6);
            let operations = Generator::new(&config, number, false).operations(SEEDED_OPERATIONS);
            return Scenario { number, name: "seeded", config, operations };
        }
    };
    Scenario { number, name, config, operations }
}

/// Fills the pool, grows it by these numbers of containers, and writes blocks that would not have fitted after each
/// growth.
fn growing(steps: &[u64]) -> Vec<Operation> {
    let mut operations = vec![write(0, 0, 8, 1), write(0, 8, 8, 10), Operation::Flush];
    for (round, &containers) in (1..).zip(steps) {
        operations.extend([Operation::Grow { containers, metadata: 0 }, write(1, 0, 4, 100 * round), Operation::Drain]);
        operations.extend([write(1, 4, 8, 100 * round + 20), patch(1, 100, 3, 7), Operation::Flush]);
    }
    operations
}

/// Returns growths of metadata between writes; those that follow one do not wait for it.
fn growing_metadata() -> Vec<Operation> {
    let mut operations = vec![write(0, 0, 8, 1), Operation::Flush];
    for (round, (containers, metadata)) in (1..).zip([(0, 16), (0, 4200), (2, 40)]) {
        operations.extend([Operation::Grow { containers, metadata }, write(1, 0, 4, 100 * round), patch(1, 100, 3, 7)]);
        operations.extend([Operation::Drain, write(0, 4, 4, 100 * round + 20), Operation::Flush]);
    }
    operations
}

/// Returns writes that each take a leaf and interior pages of a huge map, and trims that free some of these pages.
fn far_apart() -> Vec<Operation> {
    let far = |number: u64| number << 20;
    let mut operations = Vec::new();
    for number in 0..40 {
        operations.push(write(0, far(number), 1, number as u32 + 1));
        match number % 8 {
            3 => operations.push(Operation::Flush),
            5 => operations.push(write(1, number % 24, 1, 100 + number as u32)),
            7 => operations.extend([trim(0, far(number - 2), 1), Operation::Drain]),
            _ => {}
        }
    }
    operations
}

/// Makes a group of snapshots and another snapshot, with writes in flight, writes to a clone, and deletes both snapshots of the first volume.
fn families() -> Vec<Operation> {
    vec![
        write(0, 0, 4, 1),
        Operation::Settle,
        write(0, 2, 3, 10),
        write(1, 0, 2, 1),
        Operation::Flush,
        write(0, 8, 2, 14),
        Operation::Snapshot { volumes: vec![0, 1] },
        write(0, 0, 3, 20),
        trim(0, 3, 1),
        write(1, 0, 2, 24),
        Operation::Drain,
        Operation::Clone { snapshot: 1 },
        write(0, 3, 2, 28),
        Operation::Drain,
        write(2, 1, 2, 30),
        trim(2, 8, 1),
        Operation::Snapshot { volumes: vec![0] },
        write(0, 0, 1, 40),
        Operation::Drain,
        Operation::DeleteSnapshot { snapshot: 0 },
        write(2, 0, 1, 50),
        Operation::Idle(3 * SECONDS),
        Operation::DeleteSnapshot { snapshot: 1 },
        Operation::Idle(8 * SECONDS),
    ]
}

/// Renames volumes and a snapshot, in part to names that others have just lost. Deletes a held snapshot and a protected volume, before and after that ends.
fn names() -> Vec<Operation> {
    let rename = |volume, reuses| Operation::Rename { volume, reuses };
    vec![
        write(0, 0, 2, 1),
        write(1, 0, 2, 4),
        Operation::Snapshot { volumes: vec![0, 1] },
        Operation::Drain,
        Operation::Hold { snapshot: 0, held: true },
        rename(0, false),
        rename(1, true),
        Operation::DeleteSnapshot { snapshot: 0 },
        write(0, 0, 2, 8),
        Operation::Drain,
        Operation::RenameSnapshot { snapshot: 0, reuses: false },
        rename(0, true),
        Operation::CreateVolume { size_blocks: 8, policy: None },
        Operation::Hold { snapshot: 0, held: false },
        Operation::DeleteSnapshot { snapshot: 1 },
        Operation::DeleteSnapshot { snapshot: 0 },
        Operation::Protect { volume: 1, protected: true },
        Operation::DeleteVolume { volume: 1 },
        Operation::Protect { volume: 1, protected: false },
        write(0, 0, 2, 12),
        Operation::DeleteVolume { volume: 1 },
        Operation::Drain,
        rename(0, true),
        Operation::CreateVolume { size_blocks: 8, policy: None },
        Operation::Drain,
        rename(0, false),
        Operation::DeleteVolume { volume: 1 },
        rename(2, true),
        Operation::Drain,
        Operation::Idle(3 * SECONDS),
        rename(0, true),
        Operation::Drain,
    ]
}

/// Rolls a volume back to its newer snapshot and then to its older one, with writes in flight, after changes of its size and beside a clone; and once more after
/// a hand-over to it.
fn rollbacks() -> Vec<Operation> {
    vec![
        write(0, 0, 4, 1),
        Operation::Settle,
        Operation::Snapshot { volumes: vec![0] },
        write(0, 2, 3, 10),
        Operation::ResizeVolume { volume: 0, size_blocks: 12 },
        Operation::Drain,
        Operation::Snapshot { volumes: vec![0] },
        write(0, 0, 3, 20),
        trim(0, 3, 1),
        Operation::Flush,
        write(0, 8, 2, 24),
        Operation::RollBack { snapshot: 0 },
        write(0, 1, 1, 30),
        Operation::Read(place(0, 0, 8)),
        write(1, 0, 2, 1),
        Operation::Drain,
        write(0, 5, 2, 40),
        Operation::Clone { snapshot: 0 },
        Operation::Drain,
        Operation::RollBack { snapshot: 1 },
        Operation::Drain,
        write(0, 0, 2, 50),
        write(2, 1, 2, 60),
        Operation::DeleteSnapshot { snapshot: 1 },
        Operation::Idle(8 * SECONDS),
        // The hand-over of a deleted snapshot gives the volume the parent of a rollback.
        Operation::Snapshot { volumes: vec![0] },
        Operation::Drain,
        write(0, 0, 1, 70),
        Operation::DeleteSnapshot { snapshot: 1 },
        Operation::Idle(8 * SECONDS),
        write(0, 3, 1, 75),
        Operation::Flush,
        Operation::RollBack { snapshot: 0 },
        Operation::Drain,
    ]
}

fn first_sequences() -> Vec<Operation> {
    vec![write(0, 0, 1, 1), write(0, 5, 3, 2), Operation::Drain, Operation::Flush, Operation::Drain]
}

fn overwriting() -> Vec<Operation> {
    (0..4).flat_map(|round| [write(0, 0, 3, 10 * round + 1), Operation::Drain, Operation::Flush]).collect()
}

fn sharing() -> Vec<Operation> {
    vec![
        write(0, 0, 4, 1),
        Operation::Flush,
        write(1, 8, 4, 1),
        write(0, 0, 4, 50),
        Operation::Drain,
        Operation::Flush,
        write(1, 8, 4, 50),
        write(0, 10, 2, 1),
        Operation::Flush,
        write(0, 0, 4, 3),
    ]
}

fn partial() -> Vec<Operation> {
    vec![
        write(0, 0, 3, 1),
        patch(0, 2, 3, 9),
        patch(0, 6, 7, 10),
        patch(0, 3, 1, 0),
        Operation::WriteZeroes { place: Place { volume: 0, first: 5, count: 12 }, fua: true },
        patch(0, 14, 4, 11),
    ]
}

fn reuse() -> Vec<Operation> {
    let round = |index: u32| {
        let content = 20 * index + 1;
        vec![write(0, 0, 6, content), Operation::Flush, trim(0, 2, 4), write(1, 0, 5, content + 7), trim(1, 0, 24)]
    };
    let mut operations: Vec<_> = (0..3).flat_map(round).collect();
    operations.extend([Operation::Idle(3 * SECONDS), write(0, 0, 8, 200), Operation::Flush]);
    operations
}

/// Writes blocks twice and flushes, in each round: a recovery may still verify the first record, whose slots hold nothing live. The next write needs
/// some of them. The writes are too large to travel in the journal.
fn recent_slots() -> Vec<Operation> {
    let round = |index: u32| {
        let content = 40 * index + 10;
        [
            write(0, 0, 6, content),
            write(0, 0, 6, content + 10),
            Operation::Flush,
            write(0, 8, 6, content + 20),
            trim(0, 8, 6),
        ]
    };
    [write(0, 16, 8, 1), Operation::Settle].into_iter().chain((0..4).flat_map(round)).collect()
}

fn creation() -> Vec<Operation> {
    let create = |size_blocks| Operation::CreateVolume { size_blocks, policy: Some(Policy::Full) };
    vec![
        write(0, 0, 2, 1),
        create(8),
        write(1, 0, 2, 1),
        Operation::Drain,
        write(2, 0, 4, 1),
        Operation::Flush,
        create(9),
        Operation::Drain,
    ]
}

fn deletion() -> Vec<Operation> {
    vec![
        write(0, 0, 8, 1),
        write(1, 0, 8, 1),
        Operation::Settle,
        write(0, 4, 8, 20),
        // While a checkpoint that began before is in progress.
        Operation::CreateVolume { size_blocks: 8, policy: None },
        Operation::DeleteVolume { volume: 0 },
        write(0, 0, 4, 40),
        Operation::CreateVolume { size_blocks: 80, policy: None },
        write(1, 2, 4, 50),
        Operation::Drain,
        write(1, 0, 4, 60),
        Operation::Idle(8 * SECONDS),
        Operation::DeleteVolume { volume: 0 },
        Operation::Idle(8 * SECONDS),
    ]
}

fn resizing() -> Vec<Operation> {
    let resize = |size_blocks| Operation::ResizeVolume { volume: 0, size_blocks };
    vec![
        write(0, 0, 8, 1),
        write(0, 16, 8, 20),
        Operation::Settle,
        write(0, 12, 8, 40),
        // Starts a checkpoint; the rest is for the next one.
        Operation::CreateVolume { size_blocks: 8, policy: None },
        write(0, 8, 4, 44),
        resize(6),
        write(0, 2, 4, 50),
        Operation::Drain,
        resize(2200),
        Operation::Drain,
        write(0, 14, 4, 60),
        write(0, 2190, 8, 70),
        Operation::Flush,
        Operation::Idle(8 * SECONDS),
        resize(17),
    ]
}

fn properties() -> Vec<Operation> {
    let set = |policy, read_only| Operation::SetVolume { volume: 0, policy, read_only };
    vec![
        write(0, 0, 4, 1),
        set(Some(Some(Policy::Native)), None),
        write(0, 4, 4, 1),
        set(None, Some(true)),
        write(0, 0, 4, 20),
        Operation::SetPool { policy: Some(Policy::Native) },
        write(1, 0, 4, 1),
        Operation::Drain,
        set(Some(None), Some(false)),
        write(0, 8, 4, 1),
        Operation::Drain,
    ]
}

/// Interrupts a flush by a crash that takes blocks and leaves records. (They are more than a record carries.) Then the same contents are written
/// elsewhere.
fn lost_record() -> Vec<Operation> {
    let both = |volume, content| [write(volume, 0, 6, content), write(volume, 6, 6, content + 6), Operation::Drain];
    let round = |reads: u32| {
        let content = 30 * reads + 30;
        let mut operations = both(0, content).to_vec();
        operations.push(Operation::Flush);
        operations.extend((0..reads).map(|_| Operation::Read(place(1, 20, 1))));
        operations.push(Operation::Crash { cut: Cut::MetadataOnly, again: Vec::new(), verify: true });
        operations.extend(both(1, content));
        operations.extend([Operation::Flush, Operation::Drain]);
        operations
    };
    let mut operations = both(0, 1).to_vec();
    operations.push(Operation::Reopen);
    operations.extend((0..4).flat_map(round));
    operations
}

/// Makes second copies, scrubs them, overwrites their originals, drops copies, and gives them up when the setting is 0.
fn copying() -> Vec<Operation> {
    let scrub = || [Operation::Scrub(ScrubCommand::Start), Operation::Idle(SECONDS / 2)];
    let mut operations = vec![Operation::SecondCopies(1), write(0, 0, 4, 1), write(0, 8, 4, 1), write(1, 0, 4, 1)];
    operations.extend(scrub());
    operations.extend([write(0, 8, 2, 40), write(1, 0, 2, 40), trim(0, 0, 1), Operation::Drain]);
    operations.extend(scrub());
    operations.extend([
        Operation::SecondCopies(0),
        write(0, 12, 4, 60),
        Operation::Drain,
        Operation::Idle(SECONDS / 2),
    ]);
    operations
}

fn scrubbing() -> Vec<Operation> {
    let scrub = Operation::Scrub;
    vec![
        write(0, 0, 8, 1),
        write(1, 0, 8, 5),
        scrub(ScrubCommand::Start),
        write(0, 4, 8, 20),
        trim(1, 2, 4),
        scrub(ScrubCommand::Pause),
        Operation::ResizeVolume { volume: 1, size_blocks: 6 },
        scrub(ScrubCommand::Start),
        Operation::Grow { containers: 2, metadata: 0 },
        write(0, 0, 4, 40),
        Operation::Drain,
        Operation::DeleteVolume { volume: 1 },
        Operation::Idle(SECONDS / 2),
        scrub(ScrubCommand::Start),
        write(0, 2, 4, 60),
        scrub(ScrubCommand::Stop),
        scrub(ScrubCommand::Start),
        Operation::Idle(SECONDS / 2),
    ]
}

/// Writes everything twice and lets a pass share it, while blocks are overwritten and their slots reused. Without changes of volumes, one of them leaves its
/// duplicates to the pass for a while, which starts automatically in the end.
fn passes(volumes_change: bool) -> Vec<Operation> {
    let full = |volume| Operation::SetVolume { volume, policy: Some(Some(policy("full"))), read_only: None };
    let dedup = Operation::Dedup;
    let mut operations = vec![write(0, 0, 8, 1), write(1, 0, 8, 1), write(0, 8, 8, 3), write(1, 14, 4, 5)];
    operations.extend([Operation::Drain, full(0), full(1), Operation::Drain]);
    let timing = |timing| {
        let (goal, keep_runs) = (Some(Goal::Operations(1 << 20)), Some(KeepRuns::Auto));
        let change =
            VolumePropertyChange { timing: Some(Some(timing)), goal, keep_runs, ..VolumePropertyChange::default() };
        let (dedup_verify, throttle) = (Some(DedupVerify::Both), Some(PassThrottle::Listing));
        Operation::SetTiming { volume: 0, change, pool: PoolChange { dedup_verify, throttle, ..PoolChange::default() } }
    };
    for (round, content) in (0..3).zip([100, 200, 300]) {
        if !volumes_change {
            operations.push(timing([Timing::Offline, Timing::Inline, Timing::Offline][round as usize]));
        }
        operations.extend([dedup(DedupCommand::Start), write(0, 4 * round, 2, content), Operation::Flush]);
        operations.extend([write(1, 4 * round + 2, 3, content + 10), Operation::Idle(SECONDS / 1000)]);
        operations.extend([dedup(DedupCommand::Pause), dedup(DedupCommand::Start), trim(0, 4 * round + 3, 1)]);
        if volumes_change && round == 1 {
            operations.extend([Operation::ResizeVolume { volume: 1, size_blocks: 6 }, Operation::Drain]);
        }
        operations.extend([write(0, 20, 4, content + 20), Operation::Drain]);
    }
    if volumes_change {
        operations.push(Operation::DeleteVolume { volume: 1 });
    }
    operations.extend([dedup(DedupCommand::Start), Operation::Idle(SECONDS)]);
    if !volumes_change {
        operations.extend([write(0, 8, 4, 1), Operation::Idle(100 * SECONDS)]);
    }
    operations
}

/// Switches both volumes offline, or one of them; their blocks are overwritten and trimmed while a pass hands the index its buckets.
fn falling_behind() -> Vec<Operation> {
    let timing = |volume, timing| {
        let keep_runs = Some(KeepRuns::Off);
        let change = VolumePropertyChange { timing: Some(Some(timing)), keep_runs, ..VolumePropertyChange::default() };
        let pool = PoolChange { throttle: Some(PassThrottle::Experiment), ..PoolChange::default() };
        Operation::SetTiming { volume, change, pool }
    };
    let dedup = Operation::Dedup;
    let mut operations = vec![write(0, 0, 8, 1), write(1, 0, 8, 9), Operation::Settle];
    for (round, content) in (0..3).zip([100, 200, 300]) {
        let other = if round == 1 { Timing::Inline } else { Timing::Offline };
        operations.extend([timing(0, Timing::Offline), timing(1, other), Operation::Drain]);
        operations.extend([write(0, 8, 8, content), write(1, 8, 4, content), write(1, 12, 4, content + 20)]);
        operations.extend([write(0, 2 * round, 2, content + 40), Operation::Settle, dedup(DedupCommand::Start)]);
        operations.extend([Operation::Idle(SECONDS / 500), trim(1, 9, 2), write(1, 16, 2, content + 60)]);
        operations.extend([Operation::Idle(SECONDS / 4), timing(0, Timing::Inline), Operation::Drain]);
        operations.extend([write(0, 16, 4, content + 20), Operation::Flush]);
    }
    operations
}

/// Sets a goal out of reach: after three seconds with writes, the duplicates of both volumes are left to the pass. Then both are idle, which brings a
/// pass and the return to inline; and again.
fn hybrid() -> Vec<Operation> {
    let missed = |volume| {
        let (goal, keep_runs) = (Some(Goal::P99(1)), Some(KeepRuns::Off));
        let change = VolumePropertyChange { goal, keep_runs, ..VolumePropertyChange::default() };
        Operation::SetTiming { volume, change, pool: PoolChange::default() }
    };
    // A write that waits for nothing takes no time.
    let durable = |volume, block, content| Operation::Write {
        place: place(volume, block, 2),
        contents: vec![content, content + 1],
        fua: true,
    };
    let mut operations = vec![missed(0), missed(1), Operation::Drain];
    for round in 0..2 {
        for second in 0..4 {
            let content = 100 * round + 2 * second as u32;
            operations.extend([durable(0, 2 * second, content), durable(1, 2 * second, content)]);
            operations.push(Operation::Idle(SECONDS));
        }
        let content = 100 * round;
        operations.extend([write(0, 8, 6, content), Operation::Flush, write(1, 10, 4, content), trim(0, 9, 2)]);
        operations.extend([Operation::Idle(SECONDS / 500), write(0, 0, 3, content + 3), Operation::Settle]);
        operations.extend([write(1, 16, 6, content), Operation::Idle(80 * SECONDS)]);
    }
    operations
}

/// Starts a pass with more ranges than it would go through the summaries for, three times: undisturbed, while blocks are written and trimmed, and while
/// the pool is filled.
fn external_partitioning() -> Vec<Operation> {
    let full = |volume| Operation::SetVolume { volume, policy: Some(Some(policy("full"))), read_only: None };
    let start = Operation::Dedup(DedupCommand::Start);
    // A pass would wait until space is reserved again.
    let pool = PoolChange { discard: Some(DiscardSetting::Off), ..PoolChange::default() };
    let mut operations = vec![Operation::SetTiming { volume: 0, change: VolumePropertyChange::default(), pool }];
    operations.extend((0..8).map(|at| write(0, 8 * at, 8, 10 * at as u32)));
    operations.extend([write(1, 0, 8, 0), write(1, 8, 8, 24), write(1, 16, 8, 50), Operation::Settle]);
    operations.extend([full(0), full(1), Operation::Drain, start.clone(), Operation::Idle(SECONDS)]);
    operations.extend([write(1, 0, 8, 20), write(1, 8, 4, 40), Operation::Settle, start.clone()]);
    operations.extend([Operation::Idle(SECONDS / 2000), write(0, 3, 4, 300), trim(0, 16, 3), Operation::Flush]);
    operations.extend([
        Operation::Idle(SECONDS / 1000),
        write(1, 4, 4, 320),
        write(0, 40, 3, 54),
        Operation::Idle(SECONDS),
    ]);
    operations.extend([write(1, 16, 8, 0), write(1, 24, 8, 60), Operation::Settle, start]);
    // The pass has taken its containers after 3 ms, and ends after 5.
    operations.push(Operation::Idle(SECONDS / 1000 * 4));
    operations.extend((4..14).map(|at| write(1, 8 * at, 8, 400 + 10 * at as u32)));
    operations.extend([write(0, 32, 8, 600), write(0, 48, 8, 620), Operation::Flush, Operation::Idle(SECONDS)]);
    operations
}

/// Writes the same contents to two volumes, and blocks whose digests begin alike. Each round finds the cache empty, reads both, and gives slots new contents.
fn duplicates() -> Vec<Operation> {
    let alike = |volume: usize| Operation::Write {
        place: place(volume as u64, 8, 4),
        contents: NUMBERED_TWINS.iter().map(|twins| twins[volume]).collect(),
        fua: false,
    };
    let key = |key| [Operation::CacheKey(key), Operation::Drain];
    let read = |volume, blocks| Operation::ReadOn { place: place(volume, 0, blocks), blocks: 4, swapped: false };
    let mut operations = vec![write(0, 0, 8, 1), write(1, 0, 8, 1), alike(0), alike(1), Operation::Drain];
    for (round, content) in (0..3).zip([100, 200, 300]) {
        operations.extend(key(CacheKey::Off).into_iter().chain(key(CacheKey::Content)));
        operations.extend([
            read(0, 12),
            Operation::Drain,
            read(1, 12),
            trim(0, 2 * round, 2),
            write(1, 3 * round, 2, content),
        ]);
        operations.extend([write(0, 12, 4, content + 10), write(1, 12, 4, content + 10), Operation::Flush]);
        operations.extend([read(1, 24), read(0, 24), patch(1, 8 * 13 + 2, 3, content), Operation::Drain]);
        if round == 0 {
            operations.push(Operation::Settle);
        }
    }
    operations.extend([Operation::Reopen, read(1, 24), read(0, 24)]);
    operations
}

/// Writes the same contents to two volumes, and blocks whose digests begin alike. They are read in turn, so that the heads come from the other volume's
/// place; scattered blocks get replicas. Meanwhile blocks that were read are overwritten and trimmed, and their slots reused.
fn nearest() -> Vec<Operation> {
    let alike = |volume: usize, block: u64| Operation::Write {
        place: place(volume as u64, block, 4),
        contents: NUMBERED_TWINS.iter().map(|twins| twins[volume]).collect(),
        fua: false,
    };
    let read = |volume, block, blocks| Operation::Read(place(volume, block, blocks));
    let mut operations = vec![Operation::Replicas(Some(1 << 40)), write(0, 0, 8, 1), alike(0, 8), write(0, 16, 8, 60)];
    operations.extend([Operation::Settle, write(1, 0, 8, 1), alike(1, 8), Operation::Settle]);
    for (round, content) in (0..2).zip([100, 200]) {
        for block in [8, 0, 10, 4] {
            operations.extend([read(0, block, 2), Operation::Drain, read(1, block, 2), read(1, block + 1, 1)]);
        }
        operations.extend([trim(0, 2 * round, 1), write(1, 3 * round + 1, 1, content), read(1, 4, 8)]);
        operations.push(write(0, 2 * round + 16, 1, content + 10));
        operations.extend([Operation::Idle(SECONDS / 2), read(1, 0, 8)]);
    }
    operations
}

/// Reads blocks often, with the heads far away, so that they get copies. Then their slots are freed and get contents whose digests begin alike, before
/// the copies are dropped, as the pool is opened again. Repeats this while the pool stays open.
fn popular() -> Vec<Operation> {
    let alike = |volume: u64, block: u64, which: usize| Operation::Write {
        place: place(volume, block, 4),
        contents: NUMBERED_TWINS.iter().map(|twins| twins[which]).collect(),
        fua: false,
    };
    let read = |volume, block| Operation::Read(place(volume, block, 4));
    let after = |far, volume, block| [read(0, far), Operation::Drain, read(volume, block), Operation::Drain];
    // Each block in between is read once: it is not popular.
    let often = |far, block| after(far, 1, block).into_iter().chain(after(far + 4, 1, block));
    let from_afar = |volume, block| after(20, volume, block);
    let a_day = || [Operation::Idle(86_401 * SECONDS), Operation::Settle];
    let mut operations = vec![Operation::Replicas(Some(1 << 40)), alike(1, 0, 0), alike(1, 4, 0)];
    operations.extend((0..24).step_by(8).map(|block| write(0, block, 8, 50 + block as u32)));
    operations.push(Operation::Settle);
    operations.extend(often(8, 0).chain(often(16, 4)).chain(a_day()));
    // Empty containers are taken in turn: those that were freed are among the next.
    operations.extend([write(1, 0, 8, 100), Operation::Reopen, alike(2, 0, 1), alike(2, 4, 1), alike(2, 8, 1)]);
    operations.extend([Operation::Drain, Operation::Idle(SECONDS / 2)]);
    operations.extend([0, 4, 8].into_iter().flat_map(|block| from_afar(2, block)));
    operations.extend([write(2, 0, 4, 200), trim(2, 6, 1), Operation::Settle, alike(1, 0, 0)]);
    operations.extend(from_afar(1, 0).into_iter().chain([Operation::Idle(SECONDS)]));
    operations
}

/// Writes runs, scattered duplicates, and contents that are in place already, under one policy after the other.
fn policies() -> Vec<Operation> {
    let set = |text| Operation::SetVolume { volume: 1, policy: Some(Some(policy(text))), read_only: None };
    let mixed = |block, contents: [u32; 4]| Operation::Write {
        place: place(1, block, 4),
        contents: contents.to_vec(),
        fua: false,
    };
    vec![
        write(0, 0, 8, 1),
        Operation::Flush,
        set("select"),
        write(1, 0, 4, 1),
        mixed(4, [50, 3, 51, 7]),
        patch(1, 0, 8, 1),
        set("observe"),
        mixed(8, [1, 2, 3, 52]),
        set("select:2,request"),
        mixed(12, [53, 5, 54, 1]),
        Operation::Settle,
        write(1, 0, 4, 1),
        patch(1, 8, 8, 2),
        set("idedup:2"),
        mixed(4, [1, 2, 7, 51]),
        Operation::Flush,
    ]
}

fn settled() -> Vec<Operation> {
    vec![
        write(0, 0, 8, 1),
        Operation::Settle,
        write(0, 2, 4, 1),
        trim(0, 0, 1),
        Operation::Flush,
        Operation::Settle,
        write(0, 0, 8, 30),
    ]
}

fn timed() -> Vec<Operation> {
    vec![
        write(0, 0, 8, 1),
        write(0, 8, 8, 20),
        write(1, 0, 8, 1),
        Operation::Idle(3 * SECONDS),
        write(0, 4, 8, 60),
        Operation::Idle(3 * SECONDS),
        trim(1, 0, 24),
        Operation::Idle(3 * SECONDS),
    ]
}

/// Overwrites a volume in order here and there, and reads it from end to end; defragmentation follows in idle time, at first with empty containers,
/// later without. Writes come in the middle, each round a little later, some of them durable.
fn coming_home() -> Vec<Operation> {
    let whole = |block: u64, content: u32, fua: bool| Operation::Write {
        place: place(0, block, 1),
        contents: vec![content],
        fua,
    };
    let mut operations: Vec<Operation> = (0..3).map(|n| write(0, 8 * n, 8, 1 + 8 * n as u32)).collect();
    operations.push(Operation::Flush);
    for round in 0..2u32 {
        for (n, block) in (0..).zip([1, 11, 5, 22, 3, 14, 6, 17]) {
            operations.push(whole(block, 1000 * (round + 1) + n, false));
            operations.push(write(1, u64::from(5 * n + round) % 20, 3, 1000 * (round + 1) + 100 + 3 * n));
        }
        operations.extend([Operation::Drain, Operation::Idle(4 * SECONDS)]);
        operations.push(Operation::ReadOn { place: place(0, 0, 24), blocks: 8, swapped: false });
        operations.extend([Operation::Drain, Operation::Idle(SECONDS / 10 + (2 + u64::from(round)) * SECONDS / 1000)]);
        operations.push(whole(5, 1000 * (round + 1) + 500, true));
        operations.push(whole(14, 1000 * (round + 1) + 501, false));
        operations.extend([Operation::Drain, Operation::Idle(SECONDS)]);
        operations.push(whole(20, 1000 * (round + 1) + 502, true));
        operations.push(Operation::Drain);
    }
    operations
}

/// Writes a volume in order, overwrites it here and there, and reads it from end to end again and again without idle time. Blocks that are being
/// defragmented are overwritten, and other blocks are written in between.
fn behind_readers() -> Vec<Operation> {
    let read = |volume| Operation::ReadOn { place: place(volume, 0, 64), blocks: 4, swapped: false };
    let mut operations: Vec<Operation> = (0..8).map(|n| write(0, 8 * n, 8, 1 + 8 * n as u32)).collect();
    operations.push(Operation::Settle);
    for (round, content) in [(0, 1000), (1, 2000)] {
        for (n, block) in (0..).zip([3, 21, 38, 12, 55, 29, 46, 7]) {
            operations.push(write(0, block + round, 1, content + n));
            operations.push(write(1, 8 * u64::from(n), 8, content + 100 + 8 * n));
        }
        operations.extend([Operation::Settle, read(1), read(0), read(0), write(0, 38 + round, 1, content + 50)]);
        operations.extend([read(0), write(0, 12 + round, 1, content + 51), read(0), Operation::Drain]);
    }
    operations
}

/// Fills a pool nearly in order, and overwrites it until no container is empty: in the idle time that follows the emptiest are emptied. Meanwhile their
/// blocks are overwritten, written elsewhere too (which shares their slots), and read in order, so that regions are defragmented as well; each time a
/// little later.
fn emptying() -> Vec<Operation> {
    let mut operations: Vec<Operation> = (0..13).map(|n| write(0, 8 * n, 8, 1 + 8 * n as u32)).collect();
    operations.extend([write(1, 0, 8, 201), write(1, 8, 8, 209), Operation::Flush]);
    operations.extend((0..13).map(|n| write(0, 8 * n + 2, 5, 1000 + 8 * n as u32)));
    operations.extend([write(1, 0, 7, 1900), Operation::Settle]);
    for (n, (block, content)) in (0..).zip([(0, 34), (40, 0), (0, 42), (55, 0)]) {
        operations.push(Operation::Idle(SECONDS / 10 + (1 + n) * SECONDS / 1000));
        operations.push(match content {
            0 => write(0, block, 1, 1500 + n as u32),
            _ => write(1, 16 + n, 1, content),
        });
    }
    for n in 0..2 {
        operations.push(Operation::ReadOn { place: place(0, 0, 104), blocks: 8, swapped: false });
        operations.extend([Operation::Idle(SECONDS / 10 + 3 * SECONDS / 1000), write(1, 20 + n, 1, 49)]);
        operations.push(Operation::Idle(3 * SECONDS));
    }
    operations
}

/// Overwrites blocks of containers that are on flash and crashes without a checkpoint, twice: first with the flash missing from before the overwrites until a
/// checkpoint after the crash, then with the flash present throughout; eleven containers, of which flash holds four.
fn on_flash() -> Vec<Operation> {
    let read = |volume| Operation::ReadOn { place: place(volume, 0, 24), blocks: 8, swapped: false };
    let crash = || Operation::Crash { cut: Cut::Kept, again: Vec::new(), verify: false };
    let rest = || [Operation::Drain, Operation::Idle(SECONDS / 20)];
    let mut operations: Vec<Operation> = (0..6).map(|n| write(n / 3, 8 * (n % 3), 8, 1 + 8 * n as u32)).collect();
    operations.push(Operation::Settle);
    for round in 0..2u32 {
        let (content, volume) = (1000 * (round + 1), u64::from(round));
        operations.extend([write(volume, 0, 4, content), write(volume, 8, 4, content + 4), Operation::Settle]);
        operations.extend([write(volume, 16, 4, content + 8), Operation::Settle, read(volume)]);
        operations.extend(rest());
        if round == 1 {
            operations.extend([read(1 - volume), read(volume)]);
            operations.extend(rest());
        }
        if round == 0 {
            operations.extend([Operation::Flash(Fronting::Away), crash()]);
        }
        // More than the empty containers have space for.
        let overwrite = |n: u64| write(1 - volume, 8 * (n % 3), 8, content + 20 + 8 * n as u32);
        operations.extend((0..5).map(overwrite));
        operations.extend([Operation::Flush, Operation::Drain]);
        if round == 0 {
            operations.extend([Operation::Flash(Fronting::Away), crash(), Operation::Settle]);
        }
        operations.push(crash());
        operations.extend(rest());
        operations.extend([read(1 - volume), read(volume), Operation::Drain]);
    }
    operations
}

/// Fills six containers of twelve from a volume, of which another volume shares two; a flash has space for two. Half of each container is overwritten,
/// so writes and garbage collection choose between containers on flash and others. The policy changes meanwhile.
fn by_the_paper() -> Vec<Operation> {
    let read = |volume, block| Operation::ReadOn { place: place(volume, block, 8), blocks: 2, swapped: false };
    let policy = |text: &str| {
        let pool = PoolChange { flash_policy: text.parse().ok(), ..PoolChange::default() };
        Operation::SetTiming { volume: 0, change: VolumePropertyChange::default(), pool }
    };
    let some = |volume, block: u64, blocks, content: u64| write(volume, block, blocks, content as u32);
    let crash = || Operation::Crash { cut: Cut::Kept, again: Vec::new(), verify: false };
    let rest = || [Operation::Drain, Operation::Idle(2 * SECONDS)];
    let mut operations: Vec<Operation> = (0..12).map(|n| some(0, 4 * n, 4, 1 + 4 * n)).collect();
    operations.extend((0..4).map(|n| some(1, 4 * n, 4, 17 + 4 * n)));
    operations.extend([policy("paper:filter=1,delay=1,comparison=1.5"), Operation::Settle]);
    operations.extend([0, 8, 16, 24].map(|block| read(0, block)));
    operations.extend(rest());
    operations.extend([read(1, 0), read(0, 0)]);
    operations.extend(rest());
    // Half of each container, and then more of some.
    operations.extend((0..6).map(|n| some(0, 8 * n, 4, 1000 + 8 * n)));
    operations.extend([Operation::Flush, crash(), Operation::Settle]);
    operations.extend((0..3).map(|n| some(0, 16 * n + 4, 2, 1500 + 8 * n)));
    operations.extend([policy("budget"), read(1, 8), read(0, 16)]);
    operations.extend(rest());
    operations.extend([crash(), policy("paper:filter=2,delay=off"), read(0, 0), read(1, 0), read(0, 8), read(0, 8)]);
    operations.extend([Operation::Idle(2 * SECONDS), some(0, 36, 4, 1600), some(0, 40, 4, 1604), Operation::Settle]);
    operations
}

/// Writes a volume in order, its clone, and one that holds most of the same blocks in another order and is read most. The last one's blocks are put in order,
/// with all their referrers, while they are overwritten, shared once more and trimmed. In the second round the blocks for which the shared slots were first
/// written refer elsewhere. Slots freed by then are written again.
fn relocating() -> Vec<Operation> {
    let run = Operation::Relocate(Relocating::Run { most_blocks: u64::MAX });
    let read = |volume| Operation::ReadOn { place: place(volume, 0, 24), blocks: 8, swapped: false };
    let other = |n: u32| Operation::Write {
        place: place(1, u64::from(8 * n), 8),
        contents: (8 * n..8 * n + 8).map(|at| if at % 6 == 5 { 500 + at } else { 1 + 7 * at % 24 }).collect(),
        fua: false,
    };
    let mut operations: Vec<Operation> = (0..3).map(|n| write(0, 8 * n, 8, 1 + 8 * n as u32)).collect();
    operations.extend((0..3).map(other));
    operations.extend((0..3).map(|n| write(2, 8 * n, 8, 1 + 8 * n as u32)));
    for round in 0..2u32 {
        operations.extend([Operation::Settle, Operation::Relocate(Relocating::Note), read(0), read(1)]);
        operations.extend([Operation::Drain, run.clone(), Operation::Idle(SECONDS / (1000 + 1000 * u64::from(round)))]);
        operations.extend([patch(1, 32, 8, 700 + 10 * round), trim(2, 9, 1), write(2, 12, 1, 3 + round)]);
        operations.extend([Operation::Idle(SECONDS / 1000), Operation::Relocate(Relocating::Rest)]);
        operations.extend([write(0, 20, 1, 9 + round), Operation::Relocate(Relocating::GoOn)]);
        operations.push(Operation::Idle(SECONDS));
        // Half of the blocks of the first volume are remapped.
        operations.extend([write(0, 0, 8, 1000 + 100 * round), write(0, 12, 4, 1010 + 100 * round)]);
        operations.extend([write(2, 0, 3, 1020 + 100 * round), Operation::Flush, read(1), read(2)]);
    }
    operations.extend([Operation::Settle, Operation::Relocate(Relocating::Note), read(2), Operation::Drain]);
    operations.extend([run, Operation::Relocate(Relocating::End)]);
    operations
}

/// Abandons a clean close before its checkpoint begins, while it merges, and about when its superblocks are written.
fn closing() -> Vec<Operation> {
    let round = |(index, after): (u32, u64)| {
        let content = 10 * index + 1;
        [write(0, 0, 3, content), trim(1, 0, 2), write(1, 1, 2, content), Operation::CloseEarly { after }]
    };
    (0..).zip([0, 6, 20, 34, 36, 38, 40, 60]).flat_map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_small_and_depend_on_their_number_alone() {
        for number in 0..FIXED + 20 {
            let one = scenario(number);
            assert_eq!(format!("{one:?}"), format!("{:?}", scenario(number)));
            assert!((1..=60).contains(&one.operations.len()), "{number}: {}", one.operations.len());
            assert_eq!(one.name == "seeded", number >= FIXED);
        }
    }
}
