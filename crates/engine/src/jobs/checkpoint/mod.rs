//! The checkpoint: a background job that merges the delta into the trees, in small steps, and ends with a superblock.
//!
//! ```text
//! look        the pool is still ours (owner.rs): else none of its pages may be written
//! cut         close the open record; the active delta becomes the frozen one
//! Points      points and new slots of the frozen delta, sorted (and three stages more)
//! Cleared     the map buffer drops the mappings that clears cover (plan.rs)
//! Plan        chooses the leaves of the maps to be written; new mappings of all others stay in the map buffer
//! Reserve     space for the metadata that merging may take
//! Maps        volumes in order: clears, then points, in LBA order; finds the old slots that lose a reference; deleted
//!             volumes leave the list
//! Discards    walks some of the subtrees that clears cut off
//! HandOver    hands a part of a deleted snapshot over to its child (hand_over.rs)
//! Sort        sorts all changes of reference counts by slot
//! Counts      applies all changes of reference counts, in slot order: space map and counts, one leaf after the other
//! Summaries   digest and owner of the new slots
//! Index       the complete index on disk, if there is one (disk_index.rs)
//! Buffer      brings the map buffer up to date
//! Tables      containers, volumes, discard list, the log of the map buffer, and last the map of metadata blocks
//! Drain       until the pages, the inlined blocks and the included records are written and durable
//! Sync        pages durable
//! Owner       the pool is still ours, so that its superblock may be written
//! Superblock  to both places
//! Commit      until it is durable in both; only then are blocks of the epoch before reused
//! Release     the replaced pages and the freed slots
//! ```
//!
//! Its work is invisible before the end, except that trees get new roots. Readers look into both deltas first, and a tree together with the frozen
//! delta says the same before and after the merge.

mod disk_index;
mod hand_over;
pub(crate) mod merge;
pub(crate) mod plan;

use crate::sizes::sort_part;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use self::disk_index::Update;
use self::hand_over::HandOver;
use self::plan::Plan;
use crate::api::Failure;
use crate::api::*;
use crate::block_map::discards::WalkBudget;
use crate::block_map::map_buffer::{Leaf, Pass};
use crate::format::entry::{Entry, Key, Slot};
use crate::format::geometry::Geometry;
use crate::format::layout::TableForm;
use crate::format::superblock::{Parameters, Superblock, TreeId};
use crate::jobs::Jobs;
use crate::jobs::discard::discard_early;
use crate::jobs::job::Job;
use crate::jobs::throttle::ThrottleUser;
use crate::metadata::io::Purpose;
use crate::metadata::tree::{CutOff, Stop, Writer};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::checkpoint_state::CheckpointProgress;
use crate::pool::disk_index::behind::DeferredPart;
use crate::pool::snapshot_groups::SnapshotPlan;
use crate::pool::state::LoadSnapshot;
use crate::pool::state::Look;
use crate::pool::state::Phase;
use crate::repair::Repairs;
use crate::sizes::list_bytes;

/// Number of steps of a checkpoint between two checks for requests.
const BUDGET: u32 = 64;
/// Number of entries of a delta that one step collects.
const COLLECTED_AT_ONCE: usize = 1 << 14;
/// Number of replaced pages that one step gives back.
const FREED_AT_ONCE: usize = 1 << 10;
/// Number of freed slots that one step makes pending free.
const PENDING_FREE_AT_ONCE: usize = 1 << 14;
/// Time between two checkpoints under load that serve only background work, such as discards, in nanoseconds.
const DISCARD_INTERVAL: Nanos = 1_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum CheckpointStage {
    Points,
    SortPoints,
    Slots,
    SortSlots,
    Cleared,
    Plan,
    Reserve,
    Maps,
    Discards,
    HandOver,
    Sort,
    Counts,
    Summaries,
    Index,
    Buffer,
    Tables(usize),
    Drain,
    Sync,
    Owner,
    Superblock,
    Commit,
    Release,
}

/// Trees that the Tables stage writes, in this order.
pub(crate) const TABLES: [TreeId; 5] =
    [TreeId::Containers, TreeId::Volumes, TreeId::Discards, TreeId::MapBuffer, TreeId::MetaMap];

/// A checkpoint in progress.
pub(crate) struct Checkpoint {
    stage: CheckpointStage,
    /// Sequence of the last record that it includes.
    upto: u64,
    /// Part of its state that is visible to others between its steps.
    shared: CheckpointProgress,
    /// Load of the foreground during the step.
    load: LoadSnapshot,
    upto_checksum: u64,
    position: u32,
    ring_blocks: u32,
    ring_entries: u64,
    clean: bool,
    /// Frozen clears and points, in order.
    clears: Vec<(u64, u64)>,
    points: Vec<(Key, Entry)>,
    /// Number of entries of a table of the frozen delta that have been collected.
    collected: usize,
    /// Volume whose map is being merged; `None`: the next one is to be found.
    merging: Option<VolumeId>,
    /// Blocks of that volume that were mapped to slots so far, and those that no longer are.
    mapped: u64,
    unmapped: u64,
    /// Blocks of that volume that were inherited so far and no longer are, without those in whole leaves that were cut off.
    hidden: u64,
    clear_at: usize,
    point_at: usize,
    /// Number of points before `point_at` that stay in the map buffer; they come first in `points`.
    kept: usize,
    /// Index of the clear whose blocks are dropped from the map buffer.
    cleared_at: usize,
    /// Position in the map buffer from which on mappings of that clear are dropped.
    cleared_place: Option<usize>,
    plan: Plan,
    /// Snapshots and rollbacks that it makes, and the index of the next snapshot.
    snapshots: SnapshotPlan,
    snapshot_at: usize,
    /// Leaves of maps that are written.
    leaves: Vec<Leaf>,
    /// Index of the next leaf to be written.
    next_leaf: usize,
    /// Set if no space can be reserved on the host: nothing is flushed then.
    spares_metadata: bool,
    /// Pass over the map buffer.
    pass: Pass,
    /// Set once there is space for the pass over the map buffer.
    buffer_fits: bool,
    writer: Option<Writer>,
    /// Writer of the space map, which changes together with the counts.
    space_writer: Option<Writer>,
    /// Parts of the changes that are still to be sorted, the first part last.
    unsorted: Vec<Range<usize>>,
    /// Slots that lose their last reference.
    freed: Vec<Slot>,
    /// Number of `freed` slots that are pending free.
    released: usize,
    /// Last of the records that refer, or referred, to slots which the merge leaves held: durable before the superblock is.
    held_by: u64,
    cut_off: Vec<CutOff>,
    discard_budget: WalkBudget,
    /// Part of a hand-over, once it has begun.
    handed: Option<HandOver>,
    fresh: Vec<Slot>,
    fresh_at: usize,
    /// Part of the index on disk that the background pass brings in.
    index_part: Option<DeferredPart>,
    /// All changes of the index on disk.
    index_update: Option<Update>,
    /// Number of pages that the index on disk may take: reserved on the host.
    index_space: usize,
    /// Number of metadata blocks that were taken before the stage of the index began.
    index_taken_before: u64,
    leaf_at: u64,
    /// Number of slot writes of inlined blocks that it must wait for.
    inlined: usize,
    /// Number of finished syncs that it requires.
    barrier: u64,
    /// Check of the owner before its superblock.
    look: Look,
    /// Geometry that its superblock puts into force, if it changes.
    grown: Option<Geometry>,
    /// Number of containers whose reserved space the last sync covers.
    reserved: u32,
    superblocks: u32,
    next: Option<Superblock>,
    /// True if it used up its budget and can continue.
    yielded: bool,
}

impl Checkpoint {
    /// Returns true while the checkpoint brings the map buffer up to date.
    pub(crate) fn is_in_buffer(&self) -> bool {
        self.stage == CheckpointStage::Buffer
    }

    /// Returns the bytes of memory that its lists hold.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.clears)
            + list_bytes(&self.points)
            + list_bytes(&self.shared.changes)
            + list_bytes(&self.freed)
            + list_bytes(&self.fresh)
            + self.plan_memory()
            + self.index_part.as_ref().map_or(0, DeferredPart::memory)
            + self.index_update.as_ref().map_or(0, Update::memory)
    }
}

/// Result of a step.
pub(crate) enum Progress {
    /// The stage continues at once.
    More,
    /// The stage is done.
    Next,
    /// The stage continues after a check for requests: the step took long.
    Pause,
    /// The stage continues when an I/O is done.
    Wait,
}

impl Jobs {
    pub(crate) fn checkpoint_can_step(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.yielded)
    }

    fn checkpoint_is_due(&self, pool: &Pool, load: &LoadSnapshot) -> bool {
        let limit = pool.limits.delta_entries as usize;
        pool.wants_checkpoint()
            || pool.durable.delta().len() >= limit / 2
            || pool.durable.delta().space() < limit / 2
            || pool.durable.delta().releases() >= pool.limits.releases(pool.metadata.geometry()) / 2
            || pool.durable.journal().is_half_full()
            || pool.durable.journal().entries() >= 2 * limit as u64
            || may_run_short(pool)
            || Jobs::discards_are_due(pool, load)
            || self.disk_index_is_due(pool, load) && Jobs::has_rested(pool, load)
    }

    /// Returns true if a checkpoint is due only to walk subtrees that discards cut off, or will cut off when it merges them.
    #[inline]
    fn discards_are_due(pool: &Pool, load: &LoadSnapshot) -> bool {
        let any = pool.has_discards() || pool.has_hidden_to_count() || pool.durable.delta().cuts() > 0;
        let are_many = || pool.durable.discards().entries() as u64 >= u64::from(pool.limits.discards) / 2;
        any && pool.state.phase() == Phase::Serving
            && !pool.has_much_pending()
            && (are_many() || Jobs::has_rested(pool, load))
    }

    /// Returns true if a checkpoint is due only to continue the index on disk.
    pub(crate) fn disk_index_is_due(&self, pool: &Pool, load: &LoadSnapshot) -> bool {
        // A pending command waits for one checkpoint, not for all that the index takes.
        pool.disk_index_is_unfinished()
            && pool.state.phase() == Phase::Serving
            && !pool.state.reads_only()
            && !self.index_rebuild.is_in_progress()
            && !load.commands_wait
    }

    /// Returns true if a checkpoint may begin that only continues background work.
    fn has_rested(pool: &Pool, load: &LoadSnapshot) -> bool {
        pool.is_at_full_speed(load) || pool.state.now() >= pool.checkpoint.last_ended() + DISCARD_INTERVAL
    }

    /// Begins a checkpoint if one is due, or steps the one in progress. Fails with the reason for which the pool must fail.
    pub(crate) fn step_checkpoint(
        &mut self,
        pool: &mut Pool,
        repairs: &Repairs,
        load: &LoadSnapshot,
    ) -> Result<(), Failure> {
        if self.checkpoint.is_none()
            && self.checkpoint_is_due(pool, load)
            && !self.scrub.writes_metadata()
            && pool.may_begin()
        {
            self.cut(pool, load);
        }
        let Some(mut checkpoint) = self.take_checkpoint(pool) else { return Ok(()) };
        checkpoint.yielded = false;
        checkpoint.load = *load;
        let needs_turn = checkpoint.stage < CheckpointStage::Drain && !pool.state.read_only();
        if needs_turn && !self.begins_burst(ThrottleUser::Checkpoint, pool, &checkpoint.load) {
            checkpoint.yielded = true;
            self.lend_checkpoint(pool, checkpoint);
            return Ok(());
        }
        let mut budget = if pool.is_at_full_speed(&checkpoint.load) { BUDGET } else { BUDGET / 4 };
        loop {
            if pool.state.read_only() {
                checkpoint.abandon_checkpoint(pool);
                return Ok(());
            }
            if budget == 0 {
                checkpoint.yielded = true;
                break;
            }
            if checkpoint.stage < CheckpointStage::Drain
                && (load.writes_refused || pool.metadata.pages().has_many_writes())
            {
                // It continues when some writes are done. Reads need pages meanwhile.
                break;
            }
            budget -= 1;
            pool.stats.counters.checkpoint_steps += 1;
            match self.step_stage(pool, &mut checkpoint) {
                Ok(Progress::More) => {}
                Ok(Progress::Pause) => {
                    checkpoint.yielded = true;
                    break;
                }
                Ok(Progress::Next) if checkpoint.stage == CheckpointStage::Release => {
                    self.checkpoint_done(pool, repairs, *checkpoint);
                    return Ok(());
                }
                Ok(Progress::Next) => {
                    if pool.mutant(Mutant::EarlyPages) {
                        pool.metadata.free_replaced(usize::MAX);
                    }
                    checkpoint.stage = next_stage(checkpoint.stage);
                    checkpoint = self.begin_stage(pool, checkpoint);
                }
                Ok(Progress::Wait) | Err(Stop::NoPage) => break,
                Err(Stop::Missing(missing)) if !pool.metadata.has_failed(missing.key) => {
                    pool.metadata.load(missing, None);
                    break;
                }
                Err(stop) => {
                    checkpoint.abandon_checkpoint(pool);
                    // Space was counted in advance: a lack of it is a contradiction, too.
                    return Err(if let Stop::Missing(_) = stop { Failure::Page } else { Failure::Contradiction });
                }
            }
        }
        self.lend_checkpoint(pool, checkpoint);
        Ok(())
    }

    /// Begins a checkpoint: everything up to the open record belongs to it. Apart from the step, which every pump takes.
    #[inline(never)]
    fn cut(&mut self, pool: &mut Pool, load: &LoadSnapshot) {
        if !pool.durable.journal().is_empty() && !pool.close_record(true) {
            return;
        }
        pool.end_checkpoint_request();
        pool.metadata.forget_failed();
        pool.write_inlined();
        let snapshots = pool.begin_snapshots();
        pool.durable.freeze();
        pool.decide_to_buffer();
        pool.note_counted();
        pool.metadata.begin_epoch(pool.durable.superblock().epoch + 1);
        pool.review_space();
        pool.review_disk_index();
        let (promised, discard_budget) = pool.promise_pages(!pool.has_much_pending());
        let upto = pool.durable.journal().sequence() - 1;
        pool.durable.journal_mut().want_durable(upto);
        self.lend_checkpoint(
            pool,
            Box::new(Checkpoint {
                stage: CheckpointStage::Points,
                upto,
                shared: CheckpointProgress {
                    promised,
                    taken_before: pool.metadata.allocator().taken(),
                    ..CheckpointProgress::default()
                },
                load: LoadSnapshot::default(),
                upto_checksum: pool.durable.journal().previous(),
                position: pool.durable.journal().head(),
                ring_blocks: pool.durable.journal().used(),
                ring_entries: pool.durable.journal().entries(),
                // Requests that still run may bring records that this checkpoint does not include.
                clean: !load.requests_in_flight && load.only_closes,
                clears: pool.durable.frozen().clears().iter().map(|(&start, &end)| (start, end)).collect(),
                points: Vec::with_capacity(pool.durable.frozen().points().len()),
                collected: 0,
                merging: None,
                mapped: 0,
                unmapped: 0,
                hidden: 0,
                clear_at: 0,
                point_at: 0,
                kept: 0,
                cleared_at: 0,
                cleared_place: None,
                plan: Plan::default(),
                snapshots,
                snapshot_at: 0,
                leaves: Vec::new(),
                next_leaf: 0,
                spares_metadata: false,
                pass: Pass::default(),
                buffer_fits: false,
                writer: None,
                space_writer: None,
                unsorted: Vec::new(),
                freed: Vec::new(),
                released: 0,
                held_by: 0,
                cut_off: Vec::new(),
                discard_budget,
                handed: None,
                fresh: Vec::new(),
                fresh_at: 0,
                index_part: None,
                index_update: None,
                index_space: 0,
                index_taken_before: 0,
                leaf_at: 0,
                inlined: pool.durable.journal().inlined_writes(),
                barrier: 0,
                look: Look::default(),
                grown: None,
                reserved: 0,
                superblocks: 0,
                next: None,
                // It continues at once, or when background work has its turn.
                yielded: true,
            }),
        );
    }

    /// Prepares the stage that a checkpoint has reached.
    fn begin_stage(&mut self, pool: &mut Pool, mut checkpoint: Box<Checkpoint>) -> Box<Checkpoint> {
        match checkpoint.stage {
            CheckpointStage::SortPoints => checkpoint.unsorted.push(0..checkpoint.points.len()),
            CheckpointStage::SortSlots => checkpoint.unsorted.push(0..checkpoint.fresh.len()),
            CheckpointStage::Sort => {
                pool.discard_rolled_back();
                let changes = checkpoint.shared.changes.len();
                checkpoint.unsorted.push(0..changes);
                pool.durable.note_changed_references(changes as u64);
            }
            CheckpointStage::Plan => checkpoint.begin_plan(pool),
            CheckpointStage::Owner => checkpoint.look = pool.look_at_owner(),
            CheckpointStage::Release => {
                pool.durable.set_superblock(checkpoint.next.expect("the superblock was written"));
                pool.durable.journal_mut().included(checkpoint.upto, checkpoint.ring_blocks, checkpoint.ring_entries);
            }
            CheckpointStage::Reserve => {
                // If the stage begins again, the part has been taken already.
                checkpoint.index_part = checkpoint.index_part.or_else(|| pool.take_disk_index_part());
                checkpoint.index_space = checkpoint.disk_index_space(pool);
                self.lend_checkpoint(pool, checkpoint);
                self.reserve_metadata(pool);
                return self.take_checkpoint(pool).expect("it waits");
            }
            _ => {}
        }
        checkpoint
    }

    /// Reserves space on the host for the metadata blocks that merging may write.
    pub(crate) fn reserve_metadata(&mut self, pool: &mut Pool) {
        let geometry = pool.metadata.geometry();
        let meta = pool.metadata.allocator();
        let index = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.index_space as u64);
        let pages = pool.left_to_take() + index;
        let wanted = (meta.used() as u64 + meta.freed_count() as u64 + pages + 64)
            .min(u64::from(geometry.metadata_blocks)) as u32;
        if wanted <= meta.reserved() {
            return self.checkpoint_metadata_reserved(pool, true);
        }
        let block = geometry.block();
        let (first, together) = geometry.metadata_run(meta.reserved().into());
        let count = u64::from(wanted + 1024 - meta.reserved()).min(together);
        let ahead = meta.reserved() + count as u32;
        pool.metadata.io_mut().begin(IoOp::Reserve, first * block, count * block, [], Purpose::ReserveMetadata(ahead));
    }

    /// Handles the completion of a reservation of metadata: `upto` is the block up to which it went, or `None` if the host is full.
    pub(crate) fn metadata_reserved(&mut self, pool: &mut Pool, upto: Option<u32>) {
        match upto {
            Some(upto) => {
                pool.metadata.note_reserved(upto);
                // Where a growth begins, the rest takes a reservation of its own.
                self.reserve_metadata(pool);
            }
            None => match &mut self.checkpoint {
                // The index on disk is the first to get no space.
                Some(checkpoint) if checkpoint.index_space > 0 => {
                    checkpoint.index_space = 0;
                    self.reserve_metadata(pool);
                }
                // Then the map buffer keeps its mappings.
                Some(checkpoint) if checkpoint.stage == CheckpointStage::Reserve && !checkpoint.spares_metadata => {
                    checkpoint.spares_metadata = true;
                    checkpoint.stage = CheckpointStage::Plan;
                    checkpoint.yielded = true;
                    let mut checkpoint = self.take_checkpoint(pool).expect("it waits");
                    checkpoint.begin_plan(pool);
                    self.lend_checkpoint(pool, checkpoint);
                    pool.wake();
                }
                _ => self.checkpoint_metadata_reserved(pool, false),
            },
        }
    }

    /// Continues if there was space; if the host is full, retries with the next tick.
    fn checkpoint_metadata_reserved(&mut self, pool: &mut Pool, good: bool) {
        let waiting = self.checkpoint.as_mut().filter(|checkpoint| checkpoint.stage == CheckpointStage::Reserve);
        // A late result has no effect any more.
        pool.state.set_metadata_full(!good && waiting.is_some());
        if let Some(checkpoint) = waiting
            && good
        {
            checkpoint.stage = CheckpointStage::Maps;
        }
    }

    /// Puts a checkpoint back between two steps, and publishes its shared state.
    pub(crate) fn lend_checkpoint(&mut self, pool: &mut Pool, mut checkpoint: Box<Checkpoint>) {
        pool.checkpoint.put(core::mem::take(&mut checkpoint.shared));
        self.checkpoint = Some(checkpoint);
    }

    /// Takes the checkpoint for a step, together with its shared state.
    pub(crate) fn take_checkpoint(&mut self, pool: &mut Pool) -> Option<Box<Checkpoint>> {
        let mut checkpoint = self.checkpoint.take()?;
        checkpoint.shared = pool.checkpoint.take();
        Some(checkpoint)
    }

    fn step_stage(&mut self, pool: &mut Pool, checkpoint: &mut Checkpoint) -> Result<Progress, Stop> {
        match checkpoint.stage {
            CheckpointStage::Points | CheckpointStage::Slots => Ok(checkpoint.collect(pool)),
            CheckpointStage::SortPoints => {
                Ok(sort_step(&mut checkpoint.points, &mut checkpoint.unsorted, |&(key, _)| key))
            }
            CheckpointStage::SortSlots => Ok(sort_step(&mut checkpoint.fresh, &mut checkpoint.unsorted, |&slot| slot)),
            CheckpointStage::Cleared => Ok(checkpoint.drop_cleared(pool)),
            CheckpointStage::Plan => Ok(checkpoint.plan(pool)),
            CheckpointStage::Reserve => Ok(Progress::Wait),
            CheckpointStage::Maps => checkpoint.merge_maps(pool),
            CheckpointStage::Discards => checkpoint.walk_discards(pool),
            CheckpointStage::HandOver => checkpoint.hand_over(pool),
            CheckpointStage::Sort => {
                Ok(sort_step(&mut checkpoint.shared.changes, &mut checkpoint.unsorted, |&(slot, _)| slot))
            }
            CheckpointStage::Counts => checkpoint.merge_counts(pool),
            CheckpointStage::Summaries => checkpoint.merge_summaries(pool),
            CheckpointStage::Index => checkpoint.merge_disk_index(pool),
            CheckpointStage::Buffer => Ok(checkpoint.step_buffer(pool)),
            CheckpointStage::Tables(at) if TABLES[at] == TreeId::MapBuffer => checkpoint.write_log(pool),
            CheckpointStage::Tables(at) => checkpoint.write_table(pool, TABLES[at]),
            CheckpointStage::Drain => Ok(checkpoint.drain(pool)),
            CheckpointStage::Sync | CheckpointStage::Commit => {
                let before_pages = checkpoint.stage == CheckpointStage::Sync && pool.mutant(Mutant::UnsyncedPages);
                let before_superblock =
                    checkpoint.stage == CheckpointStage::Commit && pool.mutant(Mutant::UnsyncedSuperblock);
                let done = pool.durable.journal().has_synced(checkpoint.barrier) || before_pages || before_superblock;
                Ok(if done { Progress::Next } else { Progress::Wait })
            }
            CheckpointStage::Owner => Ok(if pool.is_ours(checkpoint.look) { Progress::Next } else { Progress::Wait }),
            CheckpointStage::Superblock => self.write_superblock(pool, checkpoint),
            CheckpointStage::Release => Ok(checkpoint.release_replaced(pool)),
        }
    }

    /// Notes that a batch of inlined blocks is in its slots.
    pub(crate) fn checkpoint_inlined_written(&mut self, sequence: u64) {
        if let Some(checkpoint) = &mut self.checkpoint
            && sequence <= checkpoint.upto
        {
            checkpoint.inlined -= 1;
        }
    }

    fn write_superblock(&mut self, pool: &mut Pool, checkpoint: &mut Checkpoint) -> Result<Progress, Stop> {
        if checkpoint.next.is_some() {
            if checkpoint.superblocks > 0 {
                return Ok(Progress::Wait);
            }
            checkpoint.want_sync(pool);
            return Ok(Progress::Next);
        }
        let geometry = checkpoint.grown.unwrap_or(*pool.metadata.geometry());
        let next = Superblock {
            parameters: Parameters { geometry, ..pool.durable.superblock().parameters },
            epoch: pool.metadata.epoch(),
            included: checkpoint.upto,
            included_checksum: checkpoint.upto_checksum,
            journal_position: checkpoint.position,
            proven: pool.durable.journal().durable(),
            clean: checkpoint.clean,
            data_used: pool.durable.space().data_used(),
            reserved_containers: checkpoint.reserved,
            next_volume: pool
                .durable
                .volumes()
                .last()
                .map_or(1, |volume| volume.id.0.saturating_add(1))
                .max(pool.durable.superblock().next_volume),
            table_form: if pool.mutant(Mutant::UnmarkedTable) {
                TableForm::Packed
            } else {
                pool.durable.volumes().form()
            },
            has_families: pool.durable.superblock().has_families || pool.durable.volumes().uses_upper_halves(),
            scrub: self.scrub.record(),
            dedup: self.dedup().record(),
            disk_index: pool.hints.disk_index.record(),
            flash: pool.flash_nonce(),
            roots: *pool.durable.roots(),
            ..*pool.durable.superblock()
        };
        let next = pool.with_properties(next);
        pool.submit_superblock(&next, &[0, 1], Purpose::Superblock).ok_or(Stop::NoPage)?;
        pool.durable.begin_superblocks(next.epoch);
        checkpoint.superblocks = 2;
        pool.stats.counters.pages_written.others += 2;
        checkpoint.next = Some(next);
        Ok(Progress::Wait)
    }

    /// Notes that a superblock of the checkpoint is written.
    pub(crate) fn superblock_written(&mut self) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.superblocks -= 1;
        }
    }

    /// Ends a checkpoint whose superblock is durable and whose replaced pages and slots are free.
    #[inline(never)]
    fn checkpoint_done(&mut self, pool: &mut Pool, repairs: &Repairs, checkpoint: Checkpoint) {
        if let Some(grown) = checkpoint.grown {
            pool.grow_to(grown);
        }
        pool.note_taken(&checkpoint.shared);
        pool.durable.end_merge(pool.limits.delta_entries as usize);
        pool.durable.volumes_mut().end_rollbacks();
        pool.note_merged();
        pool.review_space();
        pool.checkpoint.note_done(pool.state.now());
        if checkpoint.handed.is_some() && self.dedup().is_in_progress() {
            // Blocks may have come behind the position of the pass.
            self.dedup_mut().leave(pool.state.now(), 0);
        }
        pool.remove_unneeded_snapshots(checkpoint.load.clears_left);
        pool.review_hand_over();
        self.census_mut().review(pool);
        if pool.disk_index_wants_pass() && !self.dedup().has_begun() {
            self.dedup_mut().leave(pool.state.now(), 0);
        }
        let free = pool.metadata.allocator().free();
        pool.durable.buffer_flush_mut().end_checkpoint(free);
        pool.request_checkpoint_if(pool.has_too_much_buffered() && pool.state.phase() == Phase::Serving);
        self.reclaim(pool, repairs);
        if pool.has_much_pending() {
            pool.publish_pending();
        }
        pool.wake();
    }
}

/// Sorts a part of the items, in one step.
fn sort_step<T, K: Ord>(items: &mut [T], unsorted: &mut Vec<Range<usize>>, key: impl Fn(&T) -> K) -> Progress {
    if sort_part(items, unsorted, key) { Progress::Pause } else { Progress::Next }
}

fn next_stage(stage: CheckpointStage) -> CheckpointStage {
    match stage {
        CheckpointStage::Points => CheckpointStage::SortPoints,
        CheckpointStage::SortPoints => CheckpointStage::Slots,
        CheckpointStage::Slots => CheckpointStage::SortSlots,
        CheckpointStage::SortSlots => CheckpointStage::Cleared,
        CheckpointStage::Cleared => CheckpointStage::Plan,
        CheckpointStage::Plan => CheckpointStage::Reserve,
        CheckpointStage::Reserve => CheckpointStage::Maps,
        CheckpointStage::Maps => CheckpointStage::Discards,
        CheckpointStage::Discards => CheckpointStage::HandOver,
        CheckpointStage::HandOver => CheckpointStage::Sort,
        CheckpointStage::Sort => CheckpointStage::Counts,
        CheckpointStage::Counts => CheckpointStage::Summaries,
        CheckpointStage::Summaries => CheckpointStage::Index,
        CheckpointStage::Index => CheckpointStage::Buffer,
        CheckpointStage::Buffer => CheckpointStage::Tables(0),
        CheckpointStage::Tables(at) if at + 1 < TABLES.len() => CheckpointStage::Tables(at + 1),
        CheckpointStage::Tables(_) => CheckpointStage::Drain,
        CheckpointStage::Drain => CheckpointStage::Sync,
        CheckpointStage::Sync => CheckpointStage::Owner,
        CheckpointStage::Owner => CheckpointStage::Superblock,
        CheckpointStage::Superblock => CheckpointStage::Commit,
        CheckpointStage::Commit | CheckpointStage::Release => CheckpointStage::Release,
    }
}

impl Checkpoint {
    /// Collects some entries of the frozen delta into a list, in one step.
    fn collect(&mut self, pool: &Pool) -> Progress {
        let from = self.collected;
        self.collected += COLLECTED_AT_ONCE;
        let all = if self.stage == CheckpointStage::Points {
            let points = pool.durable.frozen().points().iter().skip(from).take(COLLECTED_AT_ONCE);
            self.points.extend(points.map(|(&key, &entry)| (key, entry)));
            pool.durable.frozen().points().len()
        } else {
            for (&slot, recent) in pool.durable.frozen().slots().iter().skip(from).take(COLLECTED_AT_ONCE) {
                match (recent.fresh, recent.refs) {
                    (true, 1..) => self.fresh.push(slot),
                    // A slot that this delta referred to for a while may be held: the merge checks that.
                    (false, 0) => self.shared.changes.push((slot, 0)),
                    _ => {}
                }
            }
            pool.durable.frozen().slots().len()
        };
        if self.collected < all {
            return Progress::Pause;
        }
        self.collected = 0;
        Progress::Next
    }

    fn drain(&mut self, pool: &mut Pool) -> Progress {
        let records = self.upto.max(self.held_by);
        let inlined = self.inlined > 0 && !pool.mutant(Mutant::ForgottenInlined);
        if pool.metadata.pages().writes() > 0 || inlined || pool.durable.journal().durable() < records {
            return Progress::Wait;
        }
        discard_early(pool, &self.freed);
        self.grown = pool.take_growth();
        self.reserved = pool.durable.space().reserved();
        self.want_sync(pool);
        Progress::Next
    }

    fn want_sync(&mut self, pool: &mut Pool) {
        self.barrier = pool.durable.journal_mut().request_sync();
    }

    /// Gives back some pages and slots that the checkpoint has replaced; its superblock is durable in both places.
    fn release_replaced(&mut self, pool: &mut Pool) -> Progress {
        if pool.metadata.free_replaced(FREED_AT_ONCE) {
            return Progress::Pause;
        }
        let freed = self.freed.len().min(self.released + PENDING_FREE_AT_ONCE);
        if !pool.mutant(Mutant::FreedAtMerge) {
            for &slot in &self.freed[self.released..freed] {
                pool.durable.space_mut().defer_free(slot, self.upto);
            }
        }
        self.released = freed;
        if freed < self.freed.len() { Progress::Pause } else { Progress::Next }
    }

    /// Drops the writes of the checkpoint: the pool has failed, or is closed early. The frozen delta stays in force, so reads see the same data as
    /// before.
    pub(crate) fn abandon_checkpoint(&mut self, pool: &mut Pool) {
        self.yielded = false;
        let handed = self.handed.as_mut().map(HandOver::writers);
        for writer in self.writer.iter_mut().chain(&mut self.space_writer).chain(handed.into_iter().flatten()) {
            writer.abandon(&mut pool.metadata);
        }
    }
}

/// Returns true if slots may run out before overwritten ones are free again: a full pool has only the spare ones.
fn may_run_short(pool: &Pool) -> bool {
    let spare = pool.metadata.geometry().spare_slots();
    spare > 0 && pool.durable.delta().len() as u64 >= pool.durable.space().free().max(spare / 4)
}
