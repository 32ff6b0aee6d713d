//! One run: a world, the model that judges it, and the client that issues operations.
//!
//! The client keeps several requests in flight and reports every submission and every answer to the model. After each
//! step that changes the outcome of a crash, the run may keep a [`Snapshot`]: disk and model as a crash would find
//! them. The engine is not part of it, since none of its state survives.
//!
//! ```text
//! opening     opening, closing and crashes of a pool
//! owner       takeover of the pool by another server
//! volumes     volumes and their settings
//! families    snapshots, clones and rollbacks
//! names       other names of volumes and snapshots
//! fronting    detaching and attaching of a flash
//! relocating  runs of relocation plans
//! endure      behaviour of a pool whose writes get lost
//! inspect     reads and audits at the end
//! ```

mod endure;
mod families;
mod fronting;
mod inspect;
mod names;
mod opening;
mod owner;
mod relocating;
mod volumes;

use std::collections::BTreeMap;

use engine::{
    BadGeometry, BlockInput, CacheKey, Command, ControlError, DedupCommand, Error, Geometry, Limits, Nanos, OpenError,
    Operation as EngineOperation, Policy, PoolChange, Recovered, Submit, VolumePropertyChange,
};

use crate::content::{CELLS, numbered};
use crate::oracle::model::{Existence, Model, ModelVolume, Part, Range, Stamp};
use crate::random::Random;
use crate::runs::config::Config;
use crate::runs::workload::{Operation, Place, SNAPSHOTS_TOO};
use crate::transcript::Trace;
use crate::world::disk::Disk;
use crate::world::faults::Struck;
use crate::world::flash::Flash;
use crate::world::{Answer, Step, World, formatted};
use crate::{Checked, violated};

/// Number of steps without any answer that counts as a hang.
const MOST_STEPS_WITHOUT_ANSWER: u64 = 200_000;
/// Bits of a token that number a request; the others name its client.
const CLIENT_SHIFT: u32 = 48;

/// Returns the number of a request, without the client's part of the token.
fn number_of(token: u64) -> u64 {
    token & ((1 << CLIENT_SHIFT) - 1)
}

/// State that a crash at some point finds.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The number of the crash point, from 1.
    pub point: u64,
    /// Disk of the pool.
    pub disk: Disk,
    /// Flash in front of it.
    pub flash: Option<Flash>,
    /// The model.
    pub model: Model,
    /// The clock.
    pub now: Nanos,
    /// The newest epoch that was opened.
    pub epoch: u64,
    /// Geometry that the pool has grown to for certain, and the one that it may have grown to.
    pub geometry: (Geometry, Option<Geometry>),
    /// True if a volume has been offline: the index on disk may have fallen behind, and a pass may be due.
    pub was_offline: bool,
    /// True while deduplication must be exact, as in [`Run`].
    pub is_exact: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Pending {
    Change {
        range: Range,
        is_write: bool,
        stamp: Stamp,
    },
    /// A write to a read-only volume.
    Refused {
        volume: usize,
        stamp: Stamp,
    },
    Read {
        volume: usize,
        stamp: Stamp,
    },
    Extents {
        volume: usize,
        stamp: Stamp,
        limit: u32,
    },
    Flush {
        volume: usize,
        stamp: Stamp,
    },
    Create {
        name: String,
        takes_name: bool,
    },
    Delete {
        volume: usize,
    },
    /// The deletion of a volume with snapshots, of a protected one, or of a held snapshot; the rollback of a protected volume.
    RefusedCommand {
        reason: ControlError,
    },
    Rename {
        volume: usize,
    },
    Snapshots {
        /// Serial of the first snapshot of the group.
        first: u64,
    },
    RollBack {
        volume: usize,
    },
    Resize {
        volume: usize,
    },
    Set {
        volume: usize,
    },
    SetPool,
    Scrub,
    Dedup,
    Relocate,
    SecondCopies,
    Replicas,
    IndexCopy,
    SetCache,
    CacheKey,
    Grow {
        grown: Result<Geometry, BadGeometry>,
    },
    Settle,
    Close {
        early: bool,
    },
}

impl Pending {
    /// Returns true if it is a client's request, not an operator's command.
    pub(crate) fn is_request(&self) -> bool {
        use Pending::{Change, Extents, Flush, Read, Refused};
        matches!(self, Change { .. } | Refused { .. } | Read { .. } | Extents { .. } | Flush { .. })
    }
}

/// Figures of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests answered.
    pub answers: u64,
    /// Requests among these that were refused for lack of space.
    pub without_space: u64,
    /// Crashes.
    pub crashes: u64,
    /// Openings that succeeded.
    pub openings: u64,
    /// Audits of an idle engine.
    pub audits: u64,
    /// Requests answered with an error that a fault explains.
    pub errors: u64,
    /// Engines that became read-only after a fault.
    pub failed: u64,
    /// Openings that were refused because of a fault.
    pub refused: u64,
    /// Openings of pools that had failed.
    pub read_only: u64,
    /// Openings with a reduced promise, because a fault hit the proof of the full one.
    pub doubtful: u64,
}

/// State of a pool as known before an opening that is not sealed yet.
#[derive(Clone)]
pub(crate) struct Unsealed {
    pub(crate) model: Model,
    pub(crate) geometry: Geometry,
    pub(crate) growing: Option<Geometry>,
}

/// One run.
pub struct Run {
    /// The world.
    pub world: World,
    /// The oracle.
    pub model: Model,
    /// Figures.
    pub counts: Counts,
    /// The config, with the geometry that the pool has grown to.
    pub config: Config,
    /// The limits in force.
    pub(crate) limits: Limits,
    /// True while deduplication must be exact, after the passes that are due: not after a reopening, since the index is rebuilt lazily.
    pub(crate) is_exact: bool,
    /// True if a volume has been offline, as in [`Snapshot`].
    pub(crate) was_offline: bool,
    pub(crate) random: Random,
    pub(crate) pending: BTreeMap<u64, Pending>,
    next_token: u64,
    pub(crate) steps_without_answer: u64,
    pub(crate) opened: Option<Result<Recovered, OpenError>>,
    pub(crate) epoch: u64,
    pub(crate) names: u32,
    /// True if the last command to settle found no space for leaves.
    pub(crate) is_unsettled: bool,
    /// Geometry that the pool may have grown to, while its growth is unanswered.
    pub(crate) growing: Option<Geometry>,
    /// The number of the first request since the driver offers to grow the pool where metadata runs short.
    pub(crate) growth_offered: Option<u64>,
    points: u64,
    pub(crate) snapshots: Option<Vec<Snapshot>>,
    /// True if faults may strike: see [`crate::runs::faulty`].
    pub(crate) endures: bool,
    /// Strikes so far at the submission of each request in flight. A request submitted during repairs may have joined one of them: it has the strikes before
    /// these repairs.
    pub(crate) struck_before: BTreeMap<u64, Struck>,
    /// Strikes so far at the last time when no block was under repair.
    pub(crate) struck_before_repairs: Struck,
    /// Answer to the command to close.
    pub(crate) closed: Option<Result<(), ControlError>>,
    /// True once this engine is counted as failed.
    pub(crate) is_counted: bool,
    /// True if the pool had failed before it was opened: it is only read.
    pub(crate) failed_before: bool,
    /// The model before a failed pool was opened: the state that the opening accepted is not sealed.
    pub(crate) unsealed: Option<Unsealed>,
}

impl Run {
    /// Formats a pool, opens it, and creates the volumes of the config.
    pub fn start(config: Config, trace: Trace, keep_snapshots: bool) -> Checked<Run> {
        let disk = formatted(config.parameters, config.first_number);
        let flash = config.flash.map(|flash| Flash::new(flash, &config.parameters.geometry, config.seed));
        let mut run = Run::on_disk(config.clone(), (disk, flash), Model::default(), trace, 0, 0)?;
        if !run.open_fully(None)? {
            unreachable!("without a limit of steps, opening ends");
        }
        run.snapshots = keep_snapshots.then(Vec::new);
        run.serve()?;
        if config.cache_key != CacheKey::default() {
            run.perform_one(&Operation::CacheKey(config.cache_key))?;
            run.drain()?;
        }
        for (size_blocks, policy) in config.volumes {
            run.create_volume(size_blocks, Some(policy))?;
            run.drain()?;
        }
        if run.model.volumes().is_empty() {
            return violated("no volume could be created in a new pool");
        }
        Ok(run)
    }

    pub(crate) fn on_disk(
        config: Config,
        (disk, flash): (Disk, Option<Flash>),
        model: Model,
        trace: Trace,
        now: Nanos,
        epoch: u64,
    ) -> Checked<Run> {
        let mut random = Random::new(config.seed);
        let world = World::open(config.parameters, config.limits, disk, now, Random::new(random.draw()), trace)?;
        let mut run = Run {
            world,
            model,
            counts: Counts::default(),
            is_exact: config.has_space_in_index(),
            was_offline: false,
            limits: config.limits,
            config,
            random,
            pending: BTreeMap::new(),
            next_token: 1,
            steps_without_answer: 0,
            opened: None,
            epoch,
            names: 0,
            is_unsettled: false,
            growing: None,
            growth_offered: None,
            points: 0,
            snapshots: None,
            endures: false,
            struck_before: BTreeMap::new(),
            struck_before_repairs: Struck::default(),
            closed: None,
            is_counted: false,
            failed_before: false,
            unsealed: None,
        };
        run.acquire()?;
        flash.into_iter().for_each(|flash| run.world.attach_flash(flash));
        Ok(run)
    }

    /// Takes the snapshots kept so far, at most once; later calls return none.
    pub fn take_snapshots(&mut self) -> Vec<Snapshot> {
        self.snapshots.take().unwrap_or_default()
    }

    /// Performs operations and waits for all answers.
    pub fn perform(&mut self, operations: &[Operation]) -> Checked {
        for operation in operations {
            self.world.trace.say(|| format!("{operation:x?}"));
            self.perform_one(operation)?;
        }
        self.drain()
    }

    pub(crate) fn perform_one(&mut self, operation: &Operation) -> Checked {
        self.lull()?;
        self.offer_growth();
        if self.endures && self.endure(operation)? {
            return Ok(());
        }
        let certain = |volume: &ModelVolume| volume.id.is_some() && volume.existence == Existence::Certain;
        if !self.model.volumes().iter().any(certain) {
            // A crash took the first volume before its creation was answered, or the last one is deleted.
            self.drain()?;
            self.create_volume(self.config.volumes[0].0, Some(Policy::Full))?;
            self.drain()?;
        }
        let needs_volume = !matches!(
            operation,
            Operation::Crash { .. }
                | Operation::Reopen
                | Operation::CloseEarly { .. }
                | Operation::TakeOver { .. }
                | Operation::Flash(_)
                | Operation::Drain
                | Operation::Idle(_)
                | Operation::Settle
        );
        if needs_volume && !self.model.volumes().iter().any(ModelVolume::is_usable) {
            // The pool has failed, and none could be created.
            return Ok(());
        }
        match operation {
            Operation::Write { place, contents, fua } => self.write(self.range(*place), contents, *fua),
            Operation::WriteTogether { place, lengths, contents, backwards, fua } => {
                self.write_together(self.range(*place), lengths, contents, *backwards, *fua)
            }
            Operation::Read(place) => self.read(self.range(*place)),
            Operation::Fill { place, apart, content } => self.fill(self.range(*place), *apart, *content),
            Operation::ReadOn { place, blocks, swapped } => self.read_on(self.range(*place), *blocks, *swapped),
            Operation::WriteZeroes { place, fua } => self.zero(self.range(*place), EngineOperation::WriteZeroes, *fua),
            Operation::Trim { place, fua } => self.zero(self.range(*place), EngineOperation::Trim, *fua),
            Operation::Flush => {
                self.wait_for_space(None)?;
                if !self.model.volumes().iter().any(|volume| volume.is_usable()) {
                    return Ok(());
                }
                let volume = self.volume(0);
                let token = self.token(Pending::Flush { volume, stamp: self.model.stamp(volume) });
                self.model.begin_flush(token);
                self.submit(token, Range { volume, first: 0, count: 0 }, false, EngineOperation::Flush)
            }
            Operation::Extents { place, limit } => self.extents(self.range(*place), *limit),
            Operation::CreateVolume { size_blocks, policy } => self.create_volume(*size_blocks, *policy),
            Operation::Grow { containers, metadata } => self.grow(*containers, *metadata),
            Operation::DeleteVolume { volume } => self.delete_volume(*volume),
            Operation::Snapshot { volumes } => self.snapshot_volumes(volumes),
            Operation::Clone { snapshot } => self.clone_snapshot(*snapshot),
            Operation::DeleteSnapshot { snapshot } => self.delete_snapshot(*snapshot),
            Operation::Hold { snapshot, held } => self.hold_snapshot(*snapshot, *held),
            Operation::Rename { volume, reuses } => self.rename_volume(*volume, *reuses),
            Operation::RenameSnapshot { snapshot, reuses } => self.rename_snapshot(*snapshot, *reuses),
            Operation::Protect { volume, protected } => {
                let protected = Some(*protected);
                self.set_volume(*volume, VolumePropertyChange { protected, ..VolumePropertyChange::default() })
            }
            Operation::RollBack { snapshot } => self.roll_back(*snapshot),
            Operation::ResizeVolume { volume, size_blocks } => self.resize_volume(*volume, *size_blocks),
            Operation::SetVolume { volume, policy, read_only } => {
                let change =
                    VolumePropertyChange { policy: *policy, read_only: *read_only, ..VolumePropertyChange::default() };
                self.set_volume(*volume, change)
            }
            Operation::SetTiming { volume, change, pool } => {
                self.change_pool(Pending::Dedup, *pool)?;
                self.set_volume(*volume, *change)
            }
            Operation::SetPool { policy } => self.set_pool(*policy),
            Operation::Scrub(command) => {
                let token = self.token(Pending::Scrub);
                self.world.control(token, Command::Scrub { command: *command, seconds: 0 });
                Ok(())
            }
            Operation::Dedup(command) => {
                // Duplicates that a pass leaves when it is ended, or paused, stay.
                self.is_exact &= *command == DedupCommand::Start;
                let token = self.token(Pending::Dedup);
                self.world.control(token, Command::Dedup { command: *command });
                Ok(())
            }
            Operation::Relocate(what) => self.relocate(*what),
            Operation::SecondCopies(above) => {
                // The engine alone decides about the space of second copies and its release.
                self.is_exact = false;
                let change = PoolChange { second_copies: Some(*above), ..PoolChange::default() };
                self.change_pool(Pending::SecondCopies, change)
            }
            Operation::Replicas(bytes) => {
                let change = PoolChange { replicas: Some(*bytes), ..PoolChange::default() };
                self.change_pool(Pending::Replicas, change)
            }
            Operation::IndexCopy(copy) => {
                let change = PoolChange { index_copy: Some(*copy), ..PoolChange::default() };
                self.change_pool(Pending::IndexCopy, change)
            }
            Operation::SetCache(setting) => {
                // An index that has become smaller has dropped entries.
                self.is_exact = false;
                let change = PoolChange { cache: Some(*setting), ..PoolChange::default() };
                self.change_pool(Pending::SetCache, change)
            }
            Operation::CacheKey(key) => {
                let change = PoolChange { cache_key: Some(*key), ..PoolChange::default() };
                self.change_pool(Pending::CacheKey, change)
            }
            Operation::SetLimits(limits) => {
                // Until the index is filled again, known blocks are written again.
                self.is_exact = false;
                self.limits = *limits;
                self.world.set_limits(*limits)
            }
            Operation::Drain => self.drain(),
            Operation::Idle(time) => {
                self.drain()?;
                let until = self.world.now + time;
                while self.step(until)? != Step::Quiet {}
                Ok(())
            }
            Operation::Settle => self.settle_and_audit(),
            Operation::Reopen => self.reopen(),
            Operation::CloseEarly { after } => self.close_early(*after),
            Operation::Crash { cut, again, verify } => self.crash(*cut, again, *verify),
            Operation::Flash(what) => self.front(*what),
            Operation::TakeOver { after, cut } => self.lose(*after, *cut),
        }
    }

    /// Converts a place to a range of its volume, cut at the volume's end.
    fn range(&self, place: Place) -> Range {
        let volume = self.volume(place.volume);
        let cells = self.model.volumes()[volume].safe_blocks() * CELLS as u64;
        let first = place.first % cells;
        Range { volume, first, count: place.count.min(cells - first) }
    }

    /// Returns the index in the model of the volume that a number selects, among the usable ones; from [`SNAPSHOTS_TOO`] on, snapshots are among them.
    pub(crate) fn volume(&self, number: u64) -> usize {
        let volumes = self.model.volumes().iter().enumerate();
        let usable: Vec<usize> = volumes.filter(|(_, volume)| volume.is_usable()).map(|(index, _)| index).collect();
        let is_volume = |&index: &usize| !self.model.volumes()[index].is_snapshot();
        if number < SNAPSHOTS_TOO && usable.iter().any(is_volume) {
            let count = usable.iter().copied().filter(|index| is_volume(index)).count();
            let mut volumes = usable.into_iter().filter(is_volume);
            return volumes.nth(number as usize % count).expect("there are so many");
        }
        usable[(number % SNAPSHOTS_TOO) as usize % usable.len()]
    }

    /// Sometimes makes some steps of the world before the next submission.
    fn lull(&mut self) -> Checked {
        for _ in 0..self.random.below(self.config.pace + 1) {
            let horizon = if self.pending.is_empty() && self.world.is_still() { self.world.now } else { Nanos::MAX };
            if self.step(horizon)? == Step::Quiet {
                break;
            }
        }
        self.world.now += self.random.below(20_000);
        Ok(())
    }

    pub(crate) fn token(&mut self, pending: Pending) -> u64 {
        // The token names one of three clients: long requests take turns.
        let token = self.next_token | ((self.next_token % 3) << CLIENT_SHIFT);
        self.next_token += 1;
        if self.endures {
            let repairs = self.world.engine.blocks_under_repair() > 0;
            let struck = if repairs { self.struck_before_repairs } else { self.world.faults.struck };
            self.struck_before.insert(token, struck);
        }
        self.pending.insert(token, pending);
        token
    }

    /// Waits until the engine and the oracle can take one more request, which changes `range`.
    fn wait_for_space(&mut self, range: Option<Range>) -> Checked {
        while self.pending.len() as u64 >= self.config.depth
            || !self.world.engine.can_submit()
            || range.is_some_and(|range| self.model.is_crowded(range))
        {
            self.wait()?;
        }
        Ok(())
    }

    fn write(&mut self, range: Range, contents: &[u32], fua: bool) -> Checked {
        let parts: Vec<_> = range.parts().collect();
        let first = parts[0].block;
        let value =
            |part: Part, cell: usize| numbered(contents[((part.block - first) as usize).min(contents.len() - 1)])[cell];
        let inputs = loop {
            self.wait_for_space(Some(range))?;
            if !self.model.is_there(range) {
                return Ok(());
            }
            if let Some(inputs) = self.receive(&parts, value)? {
                break inputs;
            }
            self.wait()?;
        };
        let token = self.begin_change(range, true, value, fua);
        self.submit(token, range, fua, EngineOperation::Write(&inputs))
    }

    /// Submits writes of whole blocks, one after the other, without a step between them as long as there is space.
    fn write_together(
        &mut self,
        range: Range,
        lengths: &[u64],
        contents: &[u32],
        backwards: bool,
        fua: bool,
    ) -> Checked {
        let cells = CELLS as u64;
        let (blocks, mut at, mut lengths) = (range.count / cells, 0, lengths.iter());
        let mut writes = Vec::new();
        while at < blocks {
            let count = lengths.next().map_or(1, |&length| length).min(blocks - at);
            writes.push((at, count));
            at += count;
        }
        if backwards {
            writes.reverse();
        }
        for (at, count) in writes {
            let contents = &contents[(at as usize).min(contents.len() - 1)..];
            let part = Range { first: range.first + at * cells, count: count * cells, ..range };
            if self.model.is_there(part) {
                self.write(part, contents, fua)?;
            }
        }
        Ok(())
    }

    /// Writes one block of every `apart`.
    fn fill(&mut self, range: Range, apart: u64, content: u32) -> Checked {
        let cells = CELLS as u64;
        for at in (0..range.count).step_by((apart * cells) as usize) {
            let part = Range { first: range.first + at, count: cells.min(range.count - at), ..range };
            if self.model.is_there(part) {
                self.write(part, &[content], false)?;
            }
        }
        Ok(())
    }

    /// Takes and fills a buffer for each part, or gives all of them back.
    fn receive(&mut self, parts: &[Part], value: impl Fn(Part, usize) -> u32) -> Checked<Option<Vec<BlockInput>>> {
        let mut inputs: Vec<BlockInput> = Vec::with_capacity(parts.len());
        for part in parts {
            let inside = part.from..part.to;
            let cells = core::array::from_fn(|cell| inside.contains(&cell).then(|| value(*part, cell)));
            let Some(buffer) = self.world.take_buffer(&cells)? else {
                for input in inputs {
                    self.world.return_buffer(input.buffer);
                }
                return Ok(None);
            };
            let content = part.is_whole().then(|| self.world.describe(buffer));
            inputs.push(BlockInput { buffer, content });
        }
        Ok(Some(inputs))
    }

    /// Submits a read of at most a piece.
    pub(crate) fn read(&mut self, range: Range) -> Checked {
        self.wait_for_space(None)?;
        if !self.model.is_there(range) {
            return Ok(());
        }
        let (volume, stamp) = (range.volume, self.model.stamp(range.volume));
        let token = self.token(Pending::Read { volume, stamp });
        self.model.begin_observation(token, range);
        self.submit(token, range, false, EngineOperation::Read { object: 0 })
    }

    /// Asks for the extents of a range.
    pub(crate) fn extents(&mut self, range: Range, limit: u32) -> Checked {
        self.wait_for_space(None)?;
        if !self.model.is_there(range) {
            return Ok(());
        }
        let (volume, stamp) = (range.volume, self.model.stamp(range.volume));
        let token = self.token(Pending::Extents { volume, stamp, limit });
        self.model.begin_observation(token, range);
        self.submit(token, range, false, EngineOperation::Extents { limit })
    }

    /// Reads the range in pieces of `blocks` blocks.
    fn read_on(&mut self, range: Range, blocks: u64, swapped: bool) -> Checked {
        let step = blocks * CELLS as u64;
        let count = range.count.div_ceil(step);
        for number in 0..count {
            let number = if swapped && (number ^ 1) < count { number ^ 1 } else { number };
            let at = number * step;
            self.read(Range { first: range.first + at, count: step.min(range.count - at), ..range })?;
        }
        Ok(())
    }

    /// Tells the model of a change, unless its volume is read-only.
    fn begin_change(&mut self, range: Range, is_write: bool, value: impl Fn(Part, usize) -> u32, fua: bool) -> u64 {
        let (volume, stamp) = (range.volume, self.model.stamp(range.volume));
        if self.model.volumes()[volume].is_read_only() {
            return self.token(Pending::Refused { volume, stamp });
        }
        let token = self.token(Pending::Change { range, is_write, stamp });
        self.model.begin_change(token, range, value, fua);
        token
    }

    fn zero(&mut self, range: Range, operation: EngineOperation<'_>, fua: bool) -> Checked {
        self.wait_for_space(Some(range))?;
        if !self.model.is_there(range) {
            return Ok(());
        }
        let token = self.begin_change(range, false, |_, _| 0, fua);
        self.submit(token, range, fua, operation)
    }

    fn submit(&mut self, token: u64, range: Range, fua: bool, operation: EngineOperation<'_>) -> Checked {
        let cell_bytes = self.cell_bytes();
        let volume = self.model.volumes()[range.volume].id.expect("only listed volumes are used");
        self.world.submit(Submit {
            token,
            volume,
            offset: range.first * cell_bytes,
            length: range.count * cell_bytes,
            fua,
            operation,
        });
        Ok(())
    }

    pub(crate) fn cell_bytes(&self) -> u64 {
        self.config.parameters.geometry.block() / CELLS as u64
    }

    /// Enlarges the disk and then the pool, by `containers` containers and `metadata` blocks of metadata.
    fn grow(&mut self, containers: u64, metadata: u64) -> Checked {
        while self.pending.values().any(|pending| matches!(pending, Pending::Grow { .. })) {
            self.wait()?;
        }
        if self.endures && self.growing.is_some() {
            // A growth was answered with an error: the next opening tells if the pool has grown.
            return Ok(());
        }
        let geometry = self.config.parameters.geometry;
        let container = geometry.block() * u64::from(geometry.slots_per_container);
        let capacity = geometry.capacity_bytes() + containers * container;
        let metadata = if metadata > 0 { u64::from(geometry.metadata_blocks) + metadata } else { 0 };
        let grown = geometry.grown_with(capacity, metadata);
        if let Ok(grown) = grown {
            self.world.disk.grow(grown.total_blocks());
            self.growing = Some(grown);
        }
        let token = self.token(Pending::Grow { grown });
        self.world.control(token, Command::Grow { capacity, metadata });
        Ok(())
    }

    pub(crate) fn has_grown(&mut self, geometry: Geometry) {
        self.config.parameters.geometry = geometry;
        self.growing = None;
        self.is_exact &= self.config.has_space_in_index();
    }

    /// Waits for the answers to everything submitted.
    pub fn drain(&mut self) -> Checked {
        while !self.pending.is_empty() {
            self.wait()?;
        }
        Ok(())
    }

    /// Waits until no I/O is in flight either, no write waits for space, and no checkpoint is in progress. Timers that are not due may remain.
    pub(crate) fn rest(&mut self) -> Checked {
        self.drain()?;
        loop {
            let horizon = if self.rests() { self.world.now } else { Nanos::MAX };
            // The last request may only now have begun a checkpoint.
            if self.step(horizon)? == Step::Quiet && (horizon == Nanos::MAX || self.rests()) {
                return Ok(());
            }
        }
    }

    fn rests(&self) -> bool {
        let engine = &self.world.engine;
        self.world.is_still() && !engine.waits_for_host_space() && !engine.status().checkpoint_in_progress
    }

    /// Waits for the answer to a settle command.
    pub(crate) fn settle(&mut self) -> Checked {
        self.drain()?;
        self.is_unsettled = false;
        let token = self.token(Pending::Settle);
        self.world.control(token, Command::Settle);
        self.drain()
    }

    /// Makes a step where an event must follow. Fails if there is none, although requests wait.
    pub(crate) fn wait(&mut self) -> Checked<Step> {
        let step = self.step(Nanos::MAX)?;
        if step == Step::Quiet {
            return violated(format!("nothing will ever happen, but these wait: {:?}", self.pending));
        }
        Ok(step)
    }

    pub(crate) fn step(&mut self, horizon: Nanos) -> Checked<Step> {
        let changes = self.world.changes();
        let step = if self.endures { self.step_under_faults(horizon)? } else { self.world.step(horizon)? };
        self.note_modes();
        self.steps_without_answer += 1;
        if self.world.engine.blocks_under_repair() == 0 {
            self.struck_before_repairs = self.world.faults.struck;
        }
        match &step {
            Step::Reply { token, result } => self.answered(*token, result)?,
            Step::Control { token, result } => self.commanded(*token, *result)?,
            Step::Opened(result) => self.opened = Some(*result),
            Step::Submitted | Step::Completed | Step::Passed | Step::Quiet => {}
        }
        match &step {
            Step::Reply { .. } | Step::Control { .. } | Step::Opened(_) => {
                self.steps_without_answer = 0;
                self.crash_point();
            }
            Step::Quiet => self.steps_without_answer = 0,
            // A read, or the submission of a sync, does not change the outcome of a crash.
            Step::Submitted | Step::Completed if self.world.changes() != changes => self.crash_point(),
            Step::Submitted | Step::Completed | Step::Passed => {}
        }
        // A walk of many maps reads their pages again and again where memory holds few.
        let most = if self.model.has_families() { 20 } else { 1 } * MOST_STEPS_WITHOUT_ANSWER;
        if self.steps_without_answer > most {
            let (pending, flights) = (&self.pending, self.world.in_flight());
            return violated(format!("no answer in {most} steps: {pending:?}; {flights}"));
        }
        let has_answered = self.answer_for_growth(&step)?;
        Ok(if has_answered && step == Step::Quiet { Step::Passed } else { step })
    }

    /// Answers for the driver while changes wait for the growth that it has offered. While other events occur, it may let some steps pass first.
    fn answer_for_growth(&mut self, step: &Step) -> Checked<bool> {
        let grows = |pending: &Pending| matches!(pending, Pending::Grow { .. });
        if !self.world.engine.awaits_growth() || self.pending.values().any(grows) {
            return Ok(false);
        }
        match self.random.below(6) {
            0..2 if *step != Step::Quiet => return Ok(false),
            0..5 if self.growing.is_none() => {
                let metadata = self.random.between(1, 200);
                self.grow(0, metadata)?;
            }
            _ => {
                self.growth_offered = None;
                self.world.offer_growth(false);
            }
        }
        Ok(true)
    }

    /// Offers to give the pool more metadata: for the first time, and now and then after an offer was taken back.
    fn offer_growth(&mut self) {
        if self.config.offers_growth && self.growth_offered.is_none() && self.random.one_in(4) {
            self.growth_offered = Some(self.next_token);
            self.world.offer_growth(true);
        }
    }

    fn crash_point(&mut self) {
        self.points += 1;
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.push(Snapshot {
                point: self.points,
                disk: self.world.disk.clone(),
                flash: self.world.flash.clone(),
                model: self.model.clone(),
                now: self.world.now,
                epoch: self.epoch,
                geometry: (self.config.parameters.geometry, self.growing),
                was_offline: self.was_offline,
                is_exact: self.is_exact,
            });
        }
    }

    fn answered(&mut self, token: u64, result: &Result<Answer, Error>) -> Checked {
        let Some(pending) = self.pending.remove(&token) else {
            return violated(format!("an answer to {token}, which waits for none: {result:?}"));
        };
        self.counts.answers += 1;
        let before = self.struck_before.remove(&token).unwrap_or_default();
        match (&pending, result) {
            (Pending::Change { .. }, Ok(Answer::Done)) => self.model.end_change(token, true),
            (Pending::Change { range, is_write, .. }, Err(Error::NoSpace)) => {
                self.counts.without_space += 1;
                let needs_no_space = !*is_write && range.is_aligned() && !self.model.is_in_family(range.volume);
                let by_fault = self.lacks_space_by_fault() || self.lacks_host_space_by_fault(before);
                let waits_for_growth = self.growth_offered.is_some_and(|first| number_of(token) >= first);
                let lacks_metadata = self.may_lack_metadata() || self.has_filled_metadata();
                let is_credible = self.may_be_full() || lacks_metadata && !waits_for_growth;
                if !by_fault && (needs_no_space || !is_credible) {
                    return violated(format!(
                        "no space for {pending:?}, with {} blocks in use or in flight of {}; {:?}",
                        self.model.blocks_that_may_take_space(),
                        self.config.parameters.geometry.slots(),
                        self.world.engine.status()
                    ));
                }
                self.model.end_change(token, false);
            }
            // It waited for space, which a checkpoint frees, and the checkpoint was given up.
            (Pending::Change { .. }, Err(Error::ShuttingDown)) if self.closes_early() => {
                self.model.end_change(token, false);
            }
            (Pending::Flush { .. }, Ok(Answer::Done)) => self.model.end_flush(token, true),
            (Pending::Refused { .. }, Err(Error::ReadOnly)) => {}
            (_, Err(Error::Invalid | Error::ReadOnly)) if self.is_refusal_due(&pending, result) => match pending {
                Pending::Change { .. } => self.model.end_change(token, false),
                Pending::Read { .. } | Pending::Extents { .. } => self.model.drop_observation(token),
                Pending::Flush { .. } => self.model.end_flush(token, false),
                _ => {}
            },
            (Pending::Read { .. }, Ok(Answer::Data(cells))) => self.model.end_read(token, cells)?,
            (Pending::Extents { limit, .. }, Ok(Answer::Extents(extents))) => {
                let cell_bytes = self.cell_bytes();
                // An answer covers at least 32 steps, of which a block takes at most nine. Only a part of the first
                // block may be covered.
                let least = 3 * self.config.parameters.geometry.block();
                self.model.end_extents(token, extents, *limit, least, cell_bytes)?;
            }
            (_, Err(error)) if self.world.ownership.taken || self.is_explained(&pending, *error, before) => {
                self.counts.errors += 1;
                match pending {
                    Pending::Change { .. } => self.model.end_change(token, false),
                    Pending::Read { .. } | Pending::Extents { .. } => self.model.drop_observation(token),
                    Pending::Flush { .. } => self.model.end_flush(token, false),
                    _ => {}
                }
            }
            _ => return violated(format!("{pending:?} was answered with {result:?}, and nothing had failed")),
        }
        Ok(())
    }

    pub(crate) fn closes(&self) -> bool {
        self.pending.values().any(|pending| matches!(pending, Pending::Close { .. }))
    }

    pub(crate) fn closes_early(&self) -> bool {
        self.pending.values().any(|pending| matches!(pending, Pending::Close { early: true }))
    }
}
