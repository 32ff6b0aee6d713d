//! Selective duplication ("I/O Deduplication"; REFERENCE 1.6): on a rotational store, blocks that are often read from the device get a copy in each
//! scratch zone, so that one is near every position of the heads.
//!
//! ```text
//! Count     runs of slots that reads fetched, for an epoch (popular.rs)
//! Choose    at its end: the most frequent ones get columns (pool/replicas/columns.rs), as far as budget and memory allow; a block that was not
//!           read since its last turn gives up its column
//! Copy      when the pool is idle, zone by zone: free places of the columns, and batches of the mover, which proves all bits and makes
//!           them durable. Only the volume of replicas refers to a copy
//! Wait      for places that were not free yet, since their replicas have just been dropped, or cannot be dropped for lack of metadata: then
//!           another round
//! ```
//!
//! A copy is a replica like any other: one budget, one way to be reclaimed (`pool/replicas/`). This part owns the counts, the chosen runs and its
//! position. A restart loses all three; columns of which a copy was made are found again.

use crate::pool::Hints;
use alloc::vec::Vec;

use super::SPACE_TO_MAKE;
use super::popular::Popular;
use crate::api::*;
use crate::format::entry::{Entry, Key, Slot};
use crate::jobs::job::JobId;
use crate::jobs::mover::{Came, Missings, MoveStop, Moved, Mover, is_busy};
use crate::metadata::tree::Missing;
use crate::pool::Pool;
use crate::pool::change::{Put, Seen};
use crate::pool::metadata_reservation::{Asked, Availability};
use crate::pool::state::LoadSnapshot;
use crate::repair::Repairs;
use crate::space::SlotState;
use crate::space::zones::ZONES;

/// Time for which reads are counted: a block is popular if it is read often within it.
const EPOCH: Nanos = 86_400_000_000_000;

/// Time after which places that were not free are checked again, in nanoseconds.
const AGAIN: Nanos = 60_000_000_000;
/// Number of times that places which were not free are checked again.
const ROUNDS: u32 = 8;
/// Number of blocks that get a column, or of columns that are examined, in one step.
const AT_ONCE: u32 = 1024;

/// Stage of an epoch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EpochStage {
    Count,
    /// Assigning columns: the next is for this block of this run. Turns are left until all columns had one.
    Choose {
        run: usize,
        block: u32,
        turns: u64,
    },
    /// Copying: the next is this column, in this zone.
    Copy {
        zone: u32,
        column: u32,
    },
    Wait {
        until: Nanos,
    },
}

/// The part of the job that copies popular blocks to scratch zones.
pub(super) struct Duplicate {
    popular: Popular,
    epoch_ends: Nanos,
    /// Runs to be copied: first slot and length, the most frequent first.
    chosen: Vec<(Slot, u32)>,
    stage: EpochStage,
    /// True if some places were not free in this round.
    has_missed: bool,
    /// Number of further rounds that are allowed.
    rounds_left: u32,
    mover: Mover,
    made: u64,
}

impl Duplicate {
    pub(super) fn new(now: Nanos) -> Duplicate {
        Duplicate {
            popular: Popular::default(),
            epoch_ends: now + EPOCH,
            chosen: Vec::new(),
            stage: EpochStage::Count,
            has_missed: false,
            rounds_left: 0,
            mover: Mover::for_shared(JobId::Replicate),
            made: 0,
        }
    }

    /// Counts a run that was read from the device, in its slots.
    pub(super) fn note(&mut self, pool: &Pool, first: Slot, length: usize) {
        if pool.takes_changes() {
            self.popular.note(first, length, pool.counted_runs());
        }
    }

    /// Returns the number of runs that are counted.
    pub(super) fn popular(&self) -> u64 {
        self.popular.len() as u64
    }

    /// Returns the number of copies made since the pool was opened.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    pub(super) fn is_in_progress(&self) -> bool {
        self.mover.is_in_progress()
    }

    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.mover.holds(slot)
    }

    /// Returns slots that it has claimed and to which no map refers.
    pub(super) fn claimed(&self) -> impl Iterator<Item = Slot> + '_ {
        self.mover.places()
    }

    /// Returns the bytes of memory that counts and chosen runs take.
    pub(super) fn memory(&self) -> u64 {
        self.popular.memory() + crate::sizes::list_bytes(&self.chosen)
    }

    /// Returns the time at which it next has work: the end of the epoch, if reads were counted, or the time when places may be free.
    pub(super) fn begins_at(&self) -> Option<Nanos> {
        match self.stage {
            EpochStage::Count => (self.popular.len() > 0).then_some(self.epoch_ends),
            EpochStage::Wait { until } => Some(until),
            EpochStage::Choose { .. } | EpochStage::Copy { .. } => None,
        }
    }

    /// Returns true if there are copies to make, and no page is being loaded for them.
    pub(super) fn can_step(&self, pool: &Pool) -> bool {
        let is_due = || self.begins_at().is_some_and(|begins| begins <= pool.state.now());
        (self.is_busy() || is_due()) && !self.mover.is_loading(pool)
    }

    fn is_busy(&self) -> bool {
        matches!(self.stage, EpochStage::Choose { .. } | EpochStage::Copy { .. })
    }

    /// Returns true while a batch is in progress, which a pump advances without a turn.
    pub(super) fn can_advance(&self) -> bool {
        self.mover.is_in_progress()
    }

    /// Advances a batch to its end.
    pub(super) fn advance(&mut self, pool: &mut Pool, load: &LoadSnapshot) {
        if self.mover.is_in_progress() {
            self.mover.go_on(pool, load);
            self.take_in(pool, load);
        }
    }

    pub(super) fn done(
        &mut self,
        pool: &mut Pool,
        part: u32,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        self.mover.done(pool, part, segments, result);
    }

    /// Begins the next batch, zone, round, or epoch. `for_stale` is when there is space to drop the entries of stale replicas.
    pub(super) fn step(&mut self, pool: &mut Pool, repairs: &Repairs, load: &LoadSnapshot, for_stale: Availability) {
        let has_space = pool.has_slots_to_claim() && pool.durable.space().free() >= pool.slots_to_spare(SPACE_TO_MAKE);
        let is_possible =
            pool.makes_copies() && has_space && pool.hints.replicas.stride() == pool.metadata.geometry().slots();
        if !is_possible {
            self.popular.take(0);
            return self.end(pool);
        }
        match self.stage {
            EpochStage::Count => {
                self.epoch_ends = pool.state.now() + EPOCH;
                self.chosen = self.popular.take(pool.columns_budget());
                self.begin_to_choose(pool);
            }
            EpochStage::Choose { run, block, turns } => self.choose(pool, run, block, turns),
            EpochStage::Wait { .. } => self.stage = EpochStage::Copy { zone: 0, column: 0 },
            EpochStage::Copy { zone, .. } if zone == ZONES => self.end_round(pool, false),
            // No checkpoint makes space for them, so nothing would end the wait for their places.
            EpochStage::Copy { .. } if for_stale == Availability::Never => self.end_round(pool, true),
            EpochStage::Copy { zone, column } => match self.begin(pool, repairs, zone, column) {
                Ok(()) => self.advance(pool, load),
                // The page or the checkpoint that it waits for wakes the engine.
                Err(MoveStop::Waits) => return,
                Err(MoveStop::GivenUp) => self.end_round(pool, true),
            },
        }
        pool.wake_if(self.is_busy() && !self.mover.is_loading(pool));
    }

    /// Begins to assign columns to the chosen blocks. A block that is chosen again keeps its column; each other block has one turn left.
    fn begin_to_choose(&mut self, pool: &mut Pool) {
        let columns = pool.hints.replicas.columns_mut();
        columns.choose_anew(blocks(&self.chosen));
        columns.find_free();
        self.rounds_left = ROUNDS;
        self.stage = EpochStage::Choose { run: 0, block: 0, turns: columns.width_of_all() };
    }

    /// Assigns columns to some of the chosen blocks.
    fn choose(&mut self, pool: &mut Pool, mut run: usize, mut block: u32, mut turns: u64) {
        for _ in 0..AT_ONCE {
            let Some(&(first, length)) = self.chosen.get(run) else { break };
            let slot = Slot(first.0 + u64::from(block));
            if pool.hints.replicas.columns().of(slot).is_none() && !assign(pool, slot, &mut turns) {
                run = self.chosen.len();
                break;
            }
            (run, block) = if block + 1 < length { (run, block + 1) } else { (run + 1, 0) };
        }
        if run < self.chosen.len() {
            self.stage = EpochStage::Choose { run, block, turns };
        } else {
            self.chosen = Vec::new();
            self.stage = EpochStage::Copy { zone: 0, column: 0 };
        }
    }

    /// Searches the columns from this one on for blocks without a copy in the zone, and begins a batch of them.
    fn begin(&mut self, pool: &mut Pool, repairs: &Repairs, zone: u32, first: u32) -> Result<(), MoveStop> {
        // Dropped replicas are removed first: their places must become free.
        if pool.hints.replicas.stale().is_some() {
            return Err(MoveStop::Waits);
        }
        let most = Mover::at_once(pool);
        let (mut column, mut batch, mut missing) = (first, Vec::<Moved>::new(), Missings::default());
        let row = |pool: &Pool, column: u32| pool.hints.replicas.columns().row(column);
        let mut has_missed = false;
        while batch.len() < most
            && u64::from(column) < pool.hints.replicas.columns().width_of_all()
            && column - first < AT_ONCE
            && (batch.is_empty() || row(pool, column) == row(pool, first))
        {
            join_row(pool, column, zone);
            column += 1;
            let Some(slot) = pool.hints.replicas.columns().owner(column - 1) else { continue };
            let Some(to) = pool.hints.replicas.columns().place(column - 1, zone) else { continue };
            if pool.hints.replicas.columns().has(column - 1, zone) {
                continue;
            }
            match missing.or(may_take(pool, to)) {
                Some(true) if !is_busy(pool, repairs, slot) => {}
                Some(_) => {
                    has_missed = true;
                    continue;
                }
                None => continue,
            }
            if let Some(Some((digest, _))) = missing.or(pool.proven_digest(slot)) {
                // No block is remapped to the copy.
                batch.push(Moved { key: Key(0), seen: Entry::UNMAPPED, from: slot, digest, to });
            }
        }
        self.mover.load(pool, missing)?;
        let places: Vec<Slot> = batch.iter().map(|block| block.to).collect();
        if !batch.is_empty() {
            pool.durable.space_mut().claim(&places).ok_or(MoveStop::GivenUp)?;
            pool.forget_wrapped();
            if !self.mover.begin(pool, &mut batch) {
                // There are no free buffers: clients hold them.
                places.into_iter().for_each(|place| pool.durable.space_mut().defer_free(place, 0));
                return Err(MoveStop::GivenUp);
            }
        }
        self.has_missed |= has_missed;
        let is_end = u64::from(column) >= pool.hints.replicas.columns().width_of_all();
        let (zone, column) = if is_end { (zone + 1, 0) } else { (zone, column) };
        self.stage = EpochStage::Copy { zone, column };
        Ok(())
    }

    /// Turns copied blocks into replicas.
    fn take_in(&mut self, pool: &mut Pool, load: &LoadSnapshot) {
        let came = self.mover.take_came();
        let copied = || came.iter().filter(|(_, came)| *came == Came::Copied).map(|(block, _)| block);
        let count = copied().count();
        let has_space =
            count > 0 && matches!(pool.space_for(&Asked::scattered(2 * count), load.clears_left), Availability::Now);
        let volume = pool.hints.replicas.volume().filter(|_| has_space);
        let volume = volume.filter(|&volume| pool.volume_index(volume).is_some());
        for &Moved { from, digest, to, .. } in copied() {
            let zone = pool.durable.space().zone_of(pool.durable.space().container_of(to));
            let columns = pool.hints.replicas.columns();
            // A slot that was freed, or gave up its column, needs no copy.
            let column = columns.of(from).filter(|&column| columns.place(column, zone) == Some(to));
            let number = pool.hints.replicas.number(from, 1 + u64::from(zone));
            let put = volume
                .filter(|_| column.is_some())
                .and_then(|volume| pool.remap(Key::new(volume, number.0), Seen(from, digest), Put::Placed(to, digest)));
            match (put, column) {
                (Some(_), Some(column)) => {
                    pool.hints.replicas.columns_mut().add(column, zone);
                    self.made += 1;
                }
                _ => {
                    self.has_missed = true;
                    pool.durable.space_mut().defer_free(to, 0);
                }
            }
        }
        self.has_missed |= count < came.len();
    }

    /// Drops all counts, as there is no space for copies.
    pub(super) fn give_up(&mut self, pool: &mut Pool) {
        self.popular.take(0);
        self.end(pool);
    }

    /// Ends a round: all zones have been examined, clients hold the buffers, or metadata is full. Places that were missed may be free later.
    fn end_round(&mut self, pool: &mut Pool, was_stopped: bool) {
        pool.durable.space_mut().end_full_scratch();
        let has_missed = core::mem::take(&mut self.has_missed) || was_stopped;
        if has_missed && self.rounds_left > 0 {
            self.rounds_left -= 1;
            self.stage = EpochStage::Wait { until: pool.state.now() + AGAIN };
            // Dropped places become free when the drop is merged and flushed to its leaves.
            pool.ask_to_flush();
            return;
        }
        self.stage = EpochStage::Count;
    }

    /// Ends the epoch without copies, as they cannot be made.
    fn end(&mut self, pool: &mut Pool) {
        pool.durable.space_mut().end_full_scratch();
        self.chosen = Vec::new();
        self.has_missed = false;
        self.stage = EpochStage::Count;
    }
}

/// Returns true if a copy can be written to a place: it is free, and its container is kept for copies.
fn may_take(pool: &mut Pool, place: Slot) -> Result<bool, Missing> {
    let container = pool.durable.space().container_of(place);
    let is_kept = pool.durable.space_mut().keep_for_copies(container);
    Ok(is_kept && !pool.durable.space().is_taken(place) && pool.slot_state(place)? == SlotState::Free)
}

/// Returns the slots of all blocks of runs.
fn blocks(runs: &[(Slot, u32)]) -> impl Iterator<Item = Slot> + '_ {
    runs.iter().flat_map(|&(first, length)| (0..u64::from(length)).map(move |i| Slot(first.0 + i)))
}

/// Adds a container to the row that begins with a column, in a zone where it has none: its space was reserved, or became free, after the row was
/// made.
fn join_row(pool: &mut Pool, column: u32, zone: u32) {
    let Pool { durable, hints: Hints { replicas, .. }, .. } = pool;
    let space = durable.space_mut();
    let columns = replicas.columns_mut();
    if columns.begins_row_without(column, zone)
        && let Some(container) = space.scratch_in(zone, |it| columns.has_container(it))
    {
        columns.complete_row(column, zone, container);
    }
}

/// Assigns a column to a block: a free one, one of a new row, or that of a block whose turn it is to lose it; returns false if there is none.
fn assign(pool: &mut Pool, slot: Slot, turns: &mut u64) -> bool {
    let most = pool.columns_budget();
    let Pool { durable, hints: Hints { replicas, .. }, .. } = pool;
    let space = durable.space_mut();
    if !replicas.columns().has_free() && replicas.columns().width_of_all() < most {
        let row = core::array::from_fn(|zone| space.scratch_in(zone as u32, |it| replicas.columns().has_container(it)));
        if row.iter().any(|container| container.is_some()) {
            replicas.columns_mut().add_row(row);
        }
    }
    let has_space = replicas.columns().len() < most && replicas.columns().has_free();
    (has_space || replicas.free_column(turns)) && replicas.columns_mut().assign(slot).is_some()
}
