//! The alphabet of operations, and a generator that draws long sequences of them. The generator is biased to nasty
//! cases: few addresses, few contents, unaligned pieces, huge discards, crashes.

use engine::{
    CacheKey, CacheSetting, Controller, DedupCommand, DedupVerify, FlashPolicy, Goal, IndexCopy, KeepRuns, Limits,
    Nanos, PassThrottle, Policy, PoolChange, ScrubCommand, SnapshotSchedule, Timing, VolumePropertyChange,
};

use crate::content::CELLS;
use crate::random::Random;
use crate::runs::config::{Config, FEW};
use crate::runs::forged;
use crate::world::disk::Cut;

/// A run of cells in the volume with this number, modulo the number of volumes ([`SNAPSHOTS_TOO`]: and snapshots). It is cut at the volume's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Number of the volume.
    pub volume: u64,
    /// First cell.
    pub first: u64,
    /// Number of cells.
    pub count: u64,
}

/// Commands about a relocation plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relocating {
    /// Begins to note reads that go to the device. Earlier notes are forgotten.
    Note,
    /// Makes a plan from the noted reads, in which each volume is an object, and begins to run it.
    Run {
        /// Blocks that it may move.
        most_blocks: u64,
    },
    /// Begins to move all blocks in use, in the order of their slots.
    All,
    /// Pauses the run.
    Rest,
    /// Continues the run.
    GoOn,
    /// Ends the run.
    End,
}

/// Events of the flash in front of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fronting {
    /// Absence at the next opening.
    Away,
    /// Removal while the pool serves.
    Detach,
    /// Attachment in front of the serving pool, if the flash is away.
    Attach,
    /// Hangs of one I/O in `one_in`, until the flash is attached again or the pool is opened again.
    Hang {
        /// 0: none.
        one_in: u64,
    },
    /// Completion of the flash I/O that hangs.
    Answer,
}

/// An operation of the alphabet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Writes one number per touched block; 0 writes zeroes.
    Write {
        /// Range to write.
        place: Place,
        /// The content of each block; the last is repeated.
        contents: Vec<u32>,
        /// True if the write is durable when answered.
        fua: bool,
    },
    /// Writes consecutive ranges of whole blocks, all submitted at one moment: the engine may merge them into one.
    WriteTogether {
        /// Range to write.
        place: Place,
        /// Length of each write in blocks; one block for each write beyond the list.
        lengths: Vec<u64>,
        /// The content of each block; the last is repeated.
        contents: Vec<u32>,
        /// True to submit the last write first.
        backwards: bool,
        /// True if the writes are durable when answered.
        fua: bool,
    },
    /// Reads and verifies.
    Read(Place),
    /// Reads consecutive ranges of `blocks` blocks each, as a sequential reader does.
    ReadOn {
        /// Range to read.
        place: Place,
        /// Blocks of each read.
        blocks: u64,
        /// True to submit every second read before its predecessor.
        swapped: bool,
    },
    /// Writes one block of every `apart`, from the first to the last: a dense range, or one with gaps.
    Fill {
        /// Range to fill.
        place: Place,
        /// Distance from one written block to the next; 1 writes all blocks.
        apart: u64,
        /// Content of all these blocks.
        content: u32,
    },
    /// Writes zeroes.
    WriteZeroes {
        /// Range to zero.
        place: Place,
        /// True if the zeroes are durable when answered.
        fua: bool,
    },
    /// Discards.
    Trim {
        /// Range to discard.
        place: Place,
        /// True if the discard is durable when answered.
        fua: bool,
    },
    /// Makes all answered changes durable.
    Flush,
    /// Requests extents and verifies them.
    Extents {
        /// Range to ask about.
        place: Place,
        /// Maximum number of extents.
        limit: u32,
    },
    /// Creates a volume.
    CreateVolume {
        /// Blocks.
        size_blocks: u64,
        /// Policy of the volume itself.
        policy: Option<Policy>,
    },
    /// Deletes a volume, whatever is in flight.
    DeleteVolume {
        /// Number of the volume.
        volume: u64,
    },
    /// Makes a snapshot of each of these volumes, in one group, whatever is in flight.
    Snapshot {
        /// Numbers of the volumes.
        volumes: Vec<u64>,
    },
    /// Clones a snapshot.
    Clone {
        /// Number of the snapshot; 0: the newest.
        snapshot: u64,
    },
    /// Deletes a snapshot.
    DeleteSnapshot {
        /// Number of the snapshot; 0: the oldest.
        snapshot: u64,
    },
    /// Holds a snapshot, or releases it.
    Hold {
        /// Number of the snapshot; 0: the oldest.
        snapshot: u64,
        /// True to hold it.
        held: bool,
    },
    /// Gives a volume another name, whatever is in flight.
    Rename {
        /// Number of the volume.
        volume: u64,
        /// True for a name that another one had, if there is one.
        reuses: bool,
    },
    /// Gives a snapshot another name, whatever is in flight.
    RenameSnapshot {
        /// Number of the snapshot; 0: the oldest.
        snapshot: u64,
        /// True for a name that another one had, if there is one.
        reuses: bool,
    },
    /// Protects a volume from deletion, or ends that.
    Protect {
        /// Number of the volume.
        volume: u64,
        /// True to protect it.
        protected: bool,
    },
    /// Rolls a volume back to a snapshot.
    RollBack {
        /// Number of the snapshot; 0: the newest.
        snapshot: u64,
    },
    /// Resizes a volume; shrinks it whatever is in flight.
    ResizeVolume {
        /// Number of the volume.
        volume: u64,
        /// New size of the volume, in blocks; a smaller one than before shrinks it.
        size_blocks: u64,
    },
    /// Changes properties of a volume.
    SetVolume {
        /// Number of the volume.
        volume: u64,
        /// Policy of the volume itself.
        policy: Option<Option<Policy>>,
        /// True to refuse writes, `None` to leave the setting unchanged.
        read_only: Option<bool>,
    },
    /// Sets the time at which duplicates of a volume are found, and the method by which a pass finds them.
    SetTiming {
        /// Number of the volume.
        volume: u64,
        /// Properties of the volume to change.
        change: VolumePropertyChange,
        /// Properties of the whole pool to change.
        pool: PoolChange,
    },
    /// Changes the policy of the pool.
    SetPool {
        /// The policy.
        policy: Option<Policy>,
    },
    /// Makes the pool larger.
    Grow {
        /// Number of containers to add.
        containers: u64,
        /// Number of metadata blocks to add.
        metadata: u64,
    },
    /// Starts, pauses or ends a scrub, whatever is in flight.
    Scrub(ScrubCommand),
    /// Starts, pauses or ends a pass that finds all duplicates, whatever is in flight.
    Dedup(DedupCommand),
    /// Gives a command about a plan of relocation, whatever is in flight.
    Relocate(Relocating),
    /// Sets the number of references above which a block gets a second copy; 0: no second copies.
    SecondCopies(u32),
    /// Sets the copy that the index names when a block is written again.
    IndexCopy(IndexCopy),
    /// Changes the sharing of memory between index and read cache, whatever is in flight; `None`: as in the limits.
    SetCache(Option<CacheSetting>),
    /// Sets the key by which the read cache finds blocks; it may change with requests in flight.
    CacheKey(CacheKey),
    /// Sets the maximum bytes of replicas of blocks that reads found scattered; `None`: the default.
    Replicas(Option<u64>),
    /// Divides the memory anew, whatever is in flight.
    SetLimits(Limits),
    /// Waits for all answers.
    Drain,
    /// Lets virtual time pass.
    Idle(Nanos),
    /// Waits for all answers, settles, and audits everything.
    Settle,
    /// Closes cleanly, cuts the power, and opens again.
    Reopen,
    /// Begins to close, and gives the checkpoint up after a number of steps; then cuts the power and opens again.
    CloseEarly {
        /// Steps of the world.
        after: u64,
    },
    /// Crashes now, whatever is in flight, and opens again; may crash again some steps into the opening.
    Crash {
        /// Fate of unsynced writes.
        cut: Cut,
        /// Further crashes, each after a number of steps of the opening.
        again: Vec<(u64, Cut)>,
        /// True to verify everything at once, false to leave the detection to later reads.
        verify: bool,
    },
    /// Lets another owner take the pool over after some steps. When the engine has noticed, cuts the power and opens
    /// again.
    TakeOver {
        /// Steps of the world.
        after: u64,
        /// Fate of unsynced writes.
        cut: Cut,
    },
    /// Triggers an event of the flash in front of the store, whatever is in flight.
    Flash(Fronting),
}

impl Operation {
    /// Returns true if the operation ends the engine, so that another one begins.
    pub(crate) fn ends_engine(&self) -> bool {
        matches!(
            self,
            Operation::Reopen | Operation::CloseEarly { .. } | Operation::Crash { .. } | Operation::TakeOver { .. }
        )
    }
}

/// Size in blocks above which a volume is huge.
pub const HUGE: u64 = 4096;
/// Maximum number of blocks that are read consecutively.
const READ_ON: u64 = 4096;

/// Policies of every kind, as users write them. Requests of the simulator reach most of the thresholds.
const POLICIES: [&str; 16] = [
    "native",
    "observe",
    "full",
    "select",
    "select",
    "select:1",
    "select:2",
    "select:4",
    "select:255",
    "select:1,request",
    "select:3,request",
    "select:5,request",
    "idedup:1",
    "idedup:2",
    "idedup",
    "idedup:8",
];

/// First number of a volume in a [`Place`] that may select a snapshot. Smaller ones select volumes, as long as there is one.
pub const SNAPSHOTS_TOO: u64 = 1 << 32;

/// Number of kinds of operations, each with a weight.
const OPERATION_KINDS: usize = 36;
/// Maximum number of blocks of a volume that are read for a plan.
const MOST_READ: u64 = 96;
/// Maximum number of blocks of a volume that are filled at once: more than the pools of the swarm hold.
const MOST_FILLED: u64 = 1024;

/// Parses a policy. Panics if the text is none.
pub fn policy(text: &str) -> Policy {
    text.parse().unwrap_or_else(|error| panic!("'{text}' is no policy: {error}"))
}

/// Draws one of the policies.
pub fn any_policy(random: &mut Random) -> Policy {
    policy(random.pick(&POLICIES))
}

/// Ways of sharing memory, as users write them.
const CACHES: [&str; 8] =
    ["adaptive", "adaptive", "adaptive,lru", "adaptive:paper", "fixed:10", "fixed:70,lru", "index", "read"];

/// Parses a setting of the cache. Panics if the text is none.
pub fn cache(text: &str) -> CacheSetting {
    text.parse().unwrap_or_else(|error| panic!("'{text}' is no way of sharing memory: {error}"))
}

/// Draws one of the settings of the cache.
pub fn any_cache(random: &mut Random) -> CacheSetting {
    cache(random.pick(&CACHES))
}

/// A generator of operation sequences.
pub struct Generator<'a> {
    config: &'a Config,
    random: Random,
    /// Random stream of its own for the policies.
    policies: Random,
    /// Random stream for the sharing of memory.
    caches: Random,
    keys: Random,
    /// Random stream for the setting by which passes keep runs.
    runs: Random,
    /// Random stream for the rate of passes.
    throttles: Random,
    /// Random stream for blocks that imitate the engine's structures on disk.
    forgers: Random,
    /// Share of such blocks among the written ones: one in N; 0: none.
    forged_one_in: u64,
    weights: [u32; OPERATION_KINDS],
    /// Numbers by which operations select volumes: below this one.
    numbers: u64,
    fresh: u32,
    /// Random stream of its own for fills, and the operations that follow a fill, the last first.
    fills: Random,
    upcoming: Vec<Operation>,
    /// Random stream for plans of relocation.
    plans: Random,
    /// Random stream for snapshots and clones.
    families: Random,
    /// Random stream for other names, holds and protection.
    names: Random,
    /// True if the engine may end, and another one begin.
    may_end: bool,
}

impl Generator<'_> {
    /// Creates a generator for a config. The seed also decides which kinds of operation are frequent. Without `crashes`, it generates neither crashes
    /// nor reopenings.
    pub fn new(config: &Config, seed: u64, crashes: bool) -> Generator<'_> {
        let mut random = Random::new(seed ^ 0x776f_726b);
        let typical = [400, 120, 60, 60, 60, 30, 2, 20, 15, 5, 3, 6, 6, 12, 8, 2];
        let drawn = typical.map(|weight| weight * random.pick(&[0, 1, 1, 2, 4]));
        let mut weights = [0; OPERATION_KINDS];
        weights[..16].copy_from_slice(&drawn);
        if config.changes_volumes {
            // Deleted volumes have to be created again.
            weights[6] = weights[6].max(8);
        } else {
            weights[12..16].fill(0);
        }
        weights[16] = if config.grows { 8 } else { 0 };
        weights[17] = 6 * random.pick(&[0, 1, 1, 2, 4]);
        // A stream of its own: the draws of the other kinds stay unchanged.
        weights[18] = 5 * Random::new(seed ^ 0x7363_7275).pick(&[0, 1, 2, 4]);
        weights[19] = weights[18] / 2;
        weights[20] = 40 * Random::new(seed ^ 0x6a6f_696e).pick(&[0, 1, 2, 4]);
        weights[21] = if weights[20] > 0 { 2 } else { 0 };
        let caches = &mut Random::new(seed ^ 0x6361_6368_6573);
        weights[22] = 6 * caches.pick(&[0, 0, 1, 4]);
        weights[23] = 4 * Random::new(seed ^ 0x7265_6f72).pick(&[0, 1, 2, 4]);
        weights[24] = 10 * Random::new(seed ^ 0x6168_6561).pick(&[0, 1, 2, 4]);
        weights[26] = Random::new(seed ^ 0x6669_6c6c).pick(&[0, 2, 4]);
        weights[27] = 10 * Random::new(seed ^ 0x7469_6d65).pick(&[0, 0, 1, 3]);
        let mut plans = Random::new(seed ^ 0x706c_616e);
        weights[28] = 12 * plans.pick(&[0, 0, 1, 3]);
        if config.flash.is_some() {
            weights[29] = 10 * Random::new(seed ^ 0x6672_6f6e).pick(&[0, 1, 2, 4]);
        }
        let mut families = Random::new(seed ^ 0x6661_6d69);
        if config.has_families {
            weights[30] = 8 * families.pick(&[1, 2, 4]);
            weights[31] = 4 * families.pick(&[0, 1, 2, 4]);
            weights[32] = 6 * families.pick(&[0, 1, 2, 4]);
        }
        let mut names = Random::new(seed ^ 0x6e61_6d65);
        if config.has_families {
            weights[33] = 8 * names.pick(&[0, 1, 2, 4]);
            weights[34] = 4 * names.pick(&[0, 0, 1, 2]);
            weights[35] = 4 * Random::new(seed ^ 0x726f_6c6c).pick(&[0, 1, 2, 4]);
        }
        weights[0] = weights[0].max(200);
        weights[1] = weights[1].max(30);
        if !crashes {
            weights[10] = 0;
            weights[11] = 0;
        }
        weights[25] = if crashes && config.owned { 6 } else { 0 };
        let policies = Random::new(seed ^ 0x706f_6c69_6379);
        let caches = caches.clone();
        let mut forgers = Random::new(seed ^ 0x666f_7267);
        let forged_one_in = forgers.pick(&[0, 0, 4, 40]);
        let fills = Random::new(seed ^ 0x6669_6c6d);
        Generator {
            config,
            random,
            policies,
            caches,
            keys: Random::new(seed ^ 0x6b65_7973),
            runs: Random::new(seed ^ 0x7275_6e73),
            throttles: Random::new(seed ^ 0x7468_726f),
            forgers,
            forged_one_in,
            weights,
            numbers: if config.volumes.len() > FEW { 64 } else { 8 },
            fresh: 1 << 20,
            fills,
            upcoming: Vec::new(),
            plans,
            families,
            names,
            may_end: crashes,
        }
    }

    /// Generates the next `count` operations.
    pub fn operations(&mut self, count: usize) -> Vec<Operation> {
        (0..count).map(|_| self.operation()).collect()
    }

    fn operation(&mut self) -> Operation {
        let operation = self.any_operation();
        if self.config.has_families { self.spread(operation) } else { operation }
    }

    /// Lets an operation go to any volume, or to a snapshot: mostly reads.
    fn spread(&mut self, mut operation: Operation) -> Operation {
        let random = &mut self.families;
        let any = random.below(64);
        let (place, one_in) = match &mut operation {
            Operation::Read(place) | Operation::ReadOn { place, .. } | Operation::Extents { place, .. } => (place, 2),
            Operation::Write { place, .. }
            | Operation::WriteTogether { place, .. }
            | Operation::WriteZeroes { place, .. }
            | Operation::Trim { place, .. } => (place, 60),
            Operation::DeleteVolume { volume } => {
                *volume = any;
                return operation;
            }
            _ => return operation,
        };
        if random.one_in(one_in) {
            place.volume = SNAPSHOTS_TOO + any;
        } else if random.one_in(2) {
            place.volume = any;
        }
        operation
    }

    /// Draws a group of snapshots, or a chain of them with writes between.
    fn snapshot(&mut self) -> Operation {
        let random = &mut self.families;
        let volumes: Vec<u64> = (0..random.pick(&[1, 1, 2, 3])).map(|_| random.below(16)).collect();
        if random.one_in(12) {
            for _ in 0..self.families.between(2, 12) {
                self.upcoming.push(Operation::Snapshot { volumes: volumes[..1].to_vec() });
                let Operation::Write { mut place, contents, fua } = self.write(false) else { continue };
                place.volume = volumes[0];
                self.upcoming.push(Operation::Write { place, contents, fua });
            }
        }
        Operation::Snapshot { volumes }
    }

    /// Draws another name for a volume or snapshot, often one that another had until shortly before.
    fn renaming(&mut self) -> Operation {
        let random = &mut self.names;
        let (number, reuses) = (random.below(16), random.one_in(2));
        if random.one_in(3) {
            // During the checkpoint that makes the first name durable.
            self.upcoming.push(Operation::Rename { volume: random.below(16), reuses: true });
            if random.one_in(3) {
                self.upcoming.push(Operation::DeleteVolume { volume: random.below(16) });
            }
        }
        if random.one_in(3) {
            Operation::RenameSnapshot { snapshot: number, reuses }
        } else {
            Operation::Rename { volume: number, reuses }
        }
    }

    /// Draws the hold or release of a snapshot, or the protection of a volume, or its end.
    fn protection(&mut self) -> Operation {
        let random = &mut self.names;
        let (number, is_on) = (random.below(16), random.one_in(2));
        if random.one_in(3) {
            Operation::Protect { volume: number, protected: is_on }
        } else {
            Operation::Hold { snapshot: number, held: is_on }
        }
    }

    fn any_operation(&mut self) -> Operation {
        if let Some(next) = self.upcoming.pop() {
            return next;
        }
        let fua = self.random.one_in(8);
        match self.random.weighted(&self.weights.clone()) {
            0 => self.write(fua),
            1 => Operation::Read(self.piece()),
            2 => Operation::WriteZeroes { place: self.any_length(), fua },
            3 => Operation::Trim { place: self.any_length(), fua },
            4 => Operation::Flush,
            5 => Operation::Extents { place: self.any_length(), limit: self.random.pick(&[1, 2, 8, 1000]) },
            6 => Operation::CreateVolume { size_blocks: self.created_blocks(), policy: self.policy() },
            7 => Operation::Drain,
            8 => Operation::Idle(self.random.pick(&[100_000, 10_000_000, 1_500_000_000, 10_000_000_000])),
            9 => Operation::Settle,
            10 if self.random.one_in(2) => Operation::CloseEarly { after: self.random.below(300) },
            10 => Operation::Reopen,
            11 => self.crash(),
            12 => Operation::DeleteVolume { volume: self.random.below(self.numbers) },
            13 => Operation::ResizeVolume { volume: self.random.below(self.numbers), size_blocks: self.size_blocks() },
            14 => self.set_volume(),
            15 => Operation::SetPool { policy: self.policy() },
            16 => {
                let containers = self.random.pick(&[0, 1, 1, 2, 5, 20, 700]);
                // Metadata grows alone, with few containers, and not at all.
                let metadata = [(0, 16), (5, 200)].into_iter().find(|(with, _)| *with == containers);
                Operation::Grow { containers, metadata: metadata.map_or(0, |(_, metadata)| metadata) }
            }
            17 => Operation::SetLimits(self.limits()),
            18 => {
                let start = ScrubCommand::Start;
                Operation::Scrub(self.random.pick(&[start, start, start, ScrubCommand::Pause, ScrubCommand::Stop]))
            }
            19 => Operation::SecondCopies(self.random.pick(&[1, 1, 2, 5, 0])),
            20 => self.write_together(fua),
            21 => {
                let copies = [IndexCopy::Sequential, IndexCopy::Oldest, IndexCopy::Newest];
                Operation::IndexCopy(self.policies.pick(&copies))
            }
            22 if self.keys.one_in(4) => Operation::CacheKey(self.keys.pick(CacheKey::ALL)),
            22 => Operation::SetCache((!self.caches.one_in(5)).then(|| any_cache(&mut self.caches))),
            25 => Operation::TakeOver { after: self.random.below(100), cut: self.cut() },
            24 => {
                let most = u64::from(self.config.parameters.geometry.piece_blocks);
                let blocks = self.random.between(1, most.min(4));
                let mut place = self.any_length();
                place.count = place.count.min(READ_ON * CELLS as u64);
                Operation::ReadOn { place, blocks, swapped: self.random.one_in(3) }
            }
            26 => self.fill(),
            30 => self.snapshot(),
            31 => Operation::Clone { snapshot: self.families.pick(&[0, 0, 1, 5, 19]) },
            32 => Operation::DeleteSnapshot { snapshot: self.families.pick(&[0, 0, 1, 5, 19]) },
            33 => self.renaming(),
            34 => self.protection(),
            35 => Operation::RollBack { snapshot: self.families.pick(&[0, 0, 1, 5, 19]) },
            27 => self.timing(),
            28 => self.relocating(),
            29 => {
                let (attach, detach, answer) = (Fronting::Attach, Fronting::Detach, Fronting::Answer);
                let hang = Fronting::Hang { one_in: self.random.pick(&[1, 8, 40]) };
                let all = [attach, attach, attach, detach, detach, Fronting::Away, hang, answer];
                Operation::Flash(self.random.pick(&all))
            }
            _ => {
                let block = self.config.parameters.geometry.block();
                Operation::Replicas(self.random.pick(&[None, Some(0), Some(4 * block), Some(1 << 40), Some(1 << 40)]))
            }
        }
    }

    /// Fills a volume, or each second or third block of it; extents, zeroing and discards of the whole volume follow.
    fn fill(&mut self) -> Operation {
        let random = &mut self.fills;
        let volume = random.below(self.numbers);
        let blocks = self.config.volumes[volume as usize % self.config.volumes.len()].0;
        let place = Place { volume, first: 0, count: blocks * CELLS as u64 };
        for _ in 0..random.between(1, 6) {
            let fua = random.one_in(4);
            self.upcoming.push(match random.below(6) {
                0 => Operation::Trim { place, fua },
                1 => Operation::WriteZeroes { place, fua },
                _ => Operation::Extents { place, limit: random.pick(&[1, 8, 1000, 1000]) },
            });
        }
        let content = random.between(1, u64::from(self.config.contents)) as u32;
        // Volumes may be a million times the pool.
        let place = Place { count: blocks.min(MOST_FILLED) * CELLS as u64, ..place };
        Operation::Fill { place, apart: random.pick(&[1, 1, 2, 3]), content }
    }

    /// Draws one command about a plan, or a whole plan: volumes are read from the device, one after another, and a plan of these reads is run. Writes
    /// continue meanwhile, and the run may be paused or ended.
    fn relocating(&mut self) -> Operation {
        use Relocating::*;
        let most_blocks = self.plans.pick(&[u64::MAX, u64::MAX, u64::MAX, 8]);
        if self.plans.one_in(3) {
            return Operation::Relocate(self.plans.pick(&[Rest, GoOn, GoOn, End, Note, Run { most_blocks }]));
        }
        let mut all = Vec::new();
        if self.may_end && self.plans.one_in(2) {
            // The cache is empty after an opening.
            all.push(Operation::Reopen);
        }
        all.extend([Operation::Flush, Operation::Idle(1_500_000_000), Operation::Relocate(Note)]);
        let first = self.plans.below(self.numbers);
        for number in 0..self.plans.between(2, 4) {
            let volume = first + number % 3;
            let blocks = self.config.volumes[volume as usize % self.config.volumes.len()].0;
            let place = Place { volume, first: 0, count: blocks.min(MOST_READ) * CELLS as u64 };
            let blocks = u64::from(self.config.parameters.geometry.piece_blocks).min(4);
            all.push(Operation::ReadOn { place, blocks, swapped: self.plans.one_in(4) });
        }
        all.extend([Operation::Drain, Operation::Relocate(Run { most_blocks })]);
        for _ in 0..self.plans.below(4) {
            all.push(match self.plans.below(8) {
                0 => Operation::Relocate(Rest),
                1 | 2 => Operation::Relocate(GoOn),
                3 => Operation::Relocate(End),
                4 | 5 => Operation::Idle(self.plans.pick(&[100_000, 1_000_000, 1_500_000_000])),
                _ => self.write(false),
            });
        }
        if self.plans.one_in(2) {
            all.extend([Operation::Relocate(GoOn), Operation::Idle(10_000_000_000)]);
        }
        all.reverse();
        let next = all.pop().unwrap_or(Operation::Drain);
        self.upcoming.extend(all);
        next
    }

    fn write(&mut self, fua: bool) -> Operation {
        let place = self.piece();
        let blocks = place.count.div_ceil(CELLS as u64) + 1;
        let kind = self.random.below(10);
        let start = self.random.between(1, u64::from(self.config.contents)) as u32;
        let contents = (0..blocks as u32).map(|index| match kind {
            0 => 0,
            1 => (self.random.draw() & 1) as u32 * start,
            // A run of consecutive numbers: the same again is a sequential duplicate.
            2..=4 => (start + index - 1) % self.config.contents + 1,
            5..=7 => self.random.between(1, u64::from(self.config.contents)) as u32,
            _ => {
                self.fresh += 1;
                self.fresh
            }
        });
        let mut contents: Vec<u32> = contents.collect();
        if self.forged_one_in > 0 {
            for content in &mut contents {
                if self.forgers.one_in(self.forged_one_in) {
                    *content = forged::any(&mut self.forgers);
                }
            }
        }
        Operation::Write { place, contents, fua }
    }

    /// Cuts the blocks of a write into several writes.
    fn write_together(&mut self, fua: bool) -> Operation {
        let Operation::Write { mut place, contents, .. } = self.write(fua) else { unreachable!("it writes a write") };
        let cells = CELLS as u64;
        place.first -= place.first % cells;
        place.count = place.count.next_multiple_of(cells) + self.random.below(4) * cells;
        let lengths = (0..self.random.below(4)).map(|_| self.random.between(1, 3)).collect();
        Operation::WriteTogether { place, lengths, contents, backwards: self.random.one_in(3), fua }
    }

    fn first_block(&mut self, blocks: u64) -> u64 {
        if blocks > HUGE {
            return self.far_block(blocks);
        }
        match self.random.below(4) {
            0 => self.random.below(blocks),
            1 => self.random.below(blocks.min(4)),
            _ => self.random.below(blocks.min(24)),
        }
    }

    /// Draws a block of a huge volume: one of a few that are overwritten and trimmed again and again, or one far from all written blocks. Each has pages of
    /// the map to itself, from the leaf up to some height. All heights occur.
    fn far_block(&mut self, blocks: u64) -> u64 {
        let geometry = &self.config.parameters.geometry;
        let mut span = geometry.map_leaf_entries();
        for _ in 0..self.random.below(8) {
            span = span.saturating_mul(geometry.fanout());
        }
        let spans = blocks.div_ceil(span);
        let few = self.random.pick(&[4, 32, u64::MAX]);
        (self.random.below(spans.min(few)) * span + self.random.below(span.min(3))).min(blocks - 1)
    }

    /// Draws a range of at most a piece; one in four is not aligned to blocks.
    fn piece(&mut self) -> Place {
        let cells = CELLS as u64;
        let volume = self.random.below(self.numbers);
        let size = self.config.volumes[volume as usize % self.config.volumes.len()].0;
        let most = u64::from(self.config.parameters.geometry.piece_blocks);
        let first = self.first_block(size) * cells;
        let blocks = if self.random.one_in(2) { 1 } else { self.random.between(1, most) };
        if self.random.one_in(4) {
            let count = self.random.between(1, (blocks * cells).min(most * cells));
            return Place { volume, first: first + self.random.below(cells), count };
        }
        Place { volume, first, count: blocks * cells }
    }

    /// Draws a range of any length, up to the whole volume.
    fn any_length(&mut self) -> Place {
        let cells = CELLS as u64;
        let volume = self.random.below(self.numbers);
        let size = self.config.volumes[volume as usize % self.config.volumes.len()].0;
        match self.random.below(8) {
            0 => Place { volume, first: 0, count: size * cells },
            1 | 2 => {
                let first = self.random.below(size * cells);
                Place { volume, first, count: self.random.between(1, size * cells - first) }
            }
            3 => {
                let first = self.first_block(size) * cells;
                Place { volume, first, count: self.random.between(1, size) * cells }
            }
            _ => self.piece(),
        }
    }

    /// Draws the size of a new volume: mostly small; if the config has a huge volume, half of the time its size.
    fn created_blocks(&mut self) -> u64 {
        let huge = self.config.volumes.iter().map(|&(blocks, _)| blocks).find(|&blocks| blocks > HUGE);
        match huge {
            Some(blocks) if self.random.one_in(2) => blocks,
            _ => self.random.between(1, 96),
        }
    }

    /// Draws a new size in blocks: mostly small; sometimes so large that the map gets higher.
    fn size_blocks(&mut self) -> u64 {
        if self.random.one_in(10) { self.random.between(1000, 4000) } else { self.random.between(1, 200) }
    }

    /// Draws none, or one of the policies; `full` is the most frequent, because only with it the number of blocks is exact.
    fn policy(&mut self) -> Option<Policy> {
        match self.random.below(3) {
            0 => None,
            1 => Some(Policy::Full),
            _ => Some(any_policy(&mut self.policies)),
        }
    }

    /// Draws a change of the time at which duplicates are found, or a command to the pass that finds the remaining
    /// ones.
    fn timing(&mut self) -> Operation {
        let (start, pause, stop) = (DedupCommand::Start, DedupCommand::Pause, DedupCommand::Stop);
        match self.random.below(6) {
            0 => Operation::Dedup(self.random.pick(&[start, start, start, pause, stop])),
            1 => Operation::Idle(10_000_000_000),
            _ => {
                let timing = self.random.pick(&[Timing::Offline, Timing::Hybrid, Timing::Hybrid, Timing::Inline]);
                let goal = self.random.pick(&[Goal::None, Goal::P99(1), Goal::Operations(1 << 40), Goal::Bytes(1)]);
                let keep_runs = self.runs.pick(&[KeepRuns::Auto, KeepRuns::On, KeepRuns::On, KeepRuns::Off]);
                let verifies = [None, Some(DedupVerify::Both), Some(DedupVerify::Kept), Some(DedupVerify::Off)];
                let dedup_verify = self.runs.pick(&verifies);
                let controller = self.runs.pick(&[Controller::Forecast, Controller::Paper]);
                let (paper, other) = (PassThrottle::Listing, PassThrottle::Experiment);
                let throttle = self.throttles.pick(&[None, None, Some(PassThrottle::Share), Some(paper), Some(other)]);
                // No draw of its own: the engine only stores it.
                let schedule = match goal {
                    Goal::None => Ok(SnapshotSchedule::OFF),
                    Goal::P99(_) => "hourly:36,daily:30,monthly:3".parse(),
                    _ => "frequently:1000,weekly:4,yearly:1".parse(),
                };
                let change = VolumePropertyChange {
                    snapshots: schedule.ok().filter(|_| self.config.has_families),
                    // `None` leaves the default.
                    timing: self.throttles.pick(&[Some(Some(timing)), Some(Some(timing)), None]),
                    goal: Some(goal),
                    keep_runs: Some(keep_runs),
                    controller: Some(controller),
                    // No draw of its own: the engine only stores the setting, and the runs of existing seeds stay
                    // unchanged.
                    exclusive: Some(keep_runs == KeepRuns::On),
                    ..VolumePropertyChange::default()
                };
                // No draws of its own either: the content of flash changes no answer.
                let flash_policy = match (keep_runs, controller) {
                    (KeepRuns::Auto, _) => None,
                    (KeepRuns::On, Controller::Paper) => "paper:filter=2,delay=1".parse().ok(),
                    (KeepRuns::On, Controller::Forecast) => "paper:filter=off,delay=2".parse().ok(),
                    (KeepRuns::Off, _) => Some(FlashPolicy::Budget),
                };
                let pool = PoolChange { dedup_verify, throttle, flash_policy, ..PoolChange::default() };
                Operation::SetTiming { volume: self.random.below(self.numbers), change, pool }
            }
        }
    }

    /// Draws a change of policy and of read-only; volumes are writable most of the time.
    fn set_volume(&mut self) -> Operation {
        Operation::SetVolume {
            volume: self.random.below(self.numbers),
            policy: if self.random.one_in(4) { None } else { Some(self.policy()) },
            read_only: self.random.pick(&[None, Some(false), Some(false), Some(true)]),
        }
    }

    /// Draws other limits: never a larger delta, so that a pool can always be opened with the limits of the config.
    fn limits(&mut self) -> Limits {
        let ours = self.config.limits;
        let piece = self.config.parameters.geometry.piece_blocks + 1;
        let write_buffers = piece * self.random.between(2, 6) as u32;
        Limits {
            buffers: write_buffers + piece * self.random.between(2, 6) as u32 + self.random.below(64) as u32,
            write_buffers,
            pages: self.random.pick(&[64, 96, 128, 256, 600]),
            index_entries: self.random.pick(&[ours.index_entries, ours.index_entries, 16, 256]),
            // The longest request fits.
            delta_entries: self.random.pick(&[64, 128, 256, 1024]).min(ours.delta_entries).max(2 * piece),
            discard_leaves: self.random.pick(&[1, 2, ours.discard_leaves]),
            discards: self.random.pick(&[64, ours.discards]),
            requests: self.random.between(2, 20) as u32,
            map_buffer: Random::new(u64::from(write_buffers) ^ self.config.seed).pick(&[0, 2, 8, ours.map_buffer]),
            ..ours
        }
    }

    fn crash(&mut self) -> Operation {
        let again = if self.random.one_in(3) { self.random.between(1, 3) } else { 0 };
        Operation::Crash {
            cut: self.cut(),
            again: (0..again).map(|_| (self.random.below(60), self.cut())).collect(),
            verify: !self.random.one_in(4),
        }
    }

    fn cut(&mut self) -> Cut {
        if self.random.one_in(4) { self.random.pick(&Cut::MASKS) } else { self.random.pick(&Cut::ALL) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence_and_the_swarm_uses_every_operation() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let config = Config::swarm(seed);
            let sequence = Generator::new(&config, seed, true).operations(300);
            assert_eq!(sequence, Generator::new(&config, seed, true).operations(300));
            kinds.extend(sequence.iter().map(|operation| {
                let text = format!("{operation:?}");
                text.split([' ', '(']).next().unwrap_or_default().to_string()
            }));
        }
        assert_eq!(kinds.len(), 41, "{kinds:?}");
    }
}
