//! The exact pass: finds all blocks that are stored more than once, from the digests in the summaries, and lets them share one slot. It reads
//! no data (unless that is to be compared first: verify.rs), needs no table on disk, and goes on after a restart.
//!
//! ```text
//! Begin   a checkpoint: all that was written before is in the summaries, and the map buffer in its leaves
//! Scan    all summaries, for one range of digests (range.rs): of each content one slot stays, the others are spare
//! Share   the block that a spare slot was first written for leads to the slot that stays, if it still leads to the spare one
//! Maps    spare slots with other blocks: one walk of all maps for all of them (jobs/maps.rs); before the next range, if there are many
//! Index   contents of the range for an index on disk that has fallen behind (index.rs)
//! End     a checkpoint: spare slots are free
//! ```
//!
//! It owns its place in all this, and lists of bounded size. What must hold:
//!
//! - A block changes its slot only while it leads to the spare one, and while both slots hold the content: looked up and changed in one
//!   step. So a write that came meanwhile wins, and a slot that was given up meanwhile is not led to.
//! - Of a volume that keeps its runs, only what splits none (runs.rs).
//! - Hidden volumes, volumes that are only read and those with the policy `native` take no part.
//! - What replaces something is bounded: changes between two syncs, so that recovery stays short, and the part of the delta, so that
//!   background work does not press the foreground.
//! - The place in the superblock is that of a range before which nothing is left to do. A pass that is interrupted repeats one range.
//!
//! What is written while a pass is under way may stay double: the next pass finds it. A pass begins by command, and by itself when writes
//! have left work to it (undone.rs).

mod index;
mod range;
mod runs;
mod undone;
mod verify;

use alloc::vec::Vec;

use super::changes::{Changes, Stop};
use super::maps::{LEAVES, Maps};
use super::moving::is_alone;
use super::{Steps, Work};
use crate::canary::Canary;
use crate::care::Care;
use crate::contract::{ControlError, DedupCommand, Digest, IoError, Nanos, Outcome, Policy, Segment};
use crate::format::entry::{Entry, Key, Slot};
use crate::format::superblock::{DedupRecord, PassState};
use crate::pool::Pool;
use crate::pool::change::Put;
use crate::pool::room::Asked;
use crate::pool::standing::{Facts, Phase};
use crate::space::SlotState;
use crate::store::pages::PageKey;
use crate::store::tree::{Missing, Unresolved};
use index::{CatchUp, Handed, next_range};
use range::{Found, PLACES, Range, Spare};
use runs::{Around, Refused, Run};
use undone::{Short, Undone};
use verify::{PAIRS, Pair, Verify};

/// Spare slots that are collected before blocks are led elsewhere: in the order of blocks, so that few leaves change.
const SPARES: usize = 1024;
/// Blocks beside others that a step looks at, to see whether runs stay whole.
const BESIDE: usize = 4096;
/// Times that a range is gone through again because a slot that was to stay was given up meanwhile.
const AGAIN: u8 = 3;
/// Its place becomes durable so often.
const SAVE_PERIOD: Nanos = 60_000_000_000;

/// How the last pass went, or goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DedupStatus {
    /// Whether one is under way.
    pub state: PassState,
    /// Of a million parts of the pass, those that are done.
    pub done_ppm: u32,
    /// Seconds until its end at the pace so far, if that is known.
    pub left_seconds: Option<u64>,
    /// Since the pool was opened: blocks that lead to another slot now.
    pub shared_blocks: u64,
    /// Blocks that were left apart, so that no run is split; each time that a pass found them.
    pub kept_blocks: u64,
    /// Pairs of blocks with equal digests that were left apart, since reading both did not show the same bytes; each time.
    pub unequal_blocks: u64,
    /// Passes that have come to their end since then,
    pub passes: u64,
    /// walks of all summaries,
    pub scans: u64,
    /// and of all maps.
    pub map_walks: u64,
    /// It rests because metadata is short.
    pub is_short_of_room: bool,
    /// Writes have left work to the next pass,
    pub is_undone: bool,
    /// and this many blocks of it came since the pool was opened.
    pub undone_blocks: u64,
}

/// Where a pass is.
enum At {
    /// It goes on from the place in the record.
    Begin,
    /// The next leaf of summaries.
    Scan(u64),
    /// A walk of all maps; then the scan goes on at this leaf.
    Maps(Maps, u64),
    /// What the range has found is handed over to the index on disk.
    Index,
    /// All has been shared; the checkpoint that frees the slots is asked for.
    End,
}

/// What leading a block elsewhere came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shared {
    Yes,
    /// The block leads elsewhere, or takes no part.
    NotThere,
    /// The slot that was to stay holds the content no longer.
    Gone,
    /// It leads to the spare slot, and stays there: its run would be split.
    Kept,
    /// The same, for now: it could not be compared, or is not equal.
    Apart,
}

/// The job.
pub(crate) struct Dedup {
    record: DedupRecord,
    at: At,
    range: Range,
    spares: Vec<Spare>,
    /// Spare slots that other blocks than their first lead to: the slot, the one that stays, the content.
    unresolved: Vec<(Slot, Slot, Digest)>,
    /// A slot that was to stay was given up: the range is gone through again.
    is_again: bool,
    tries: u8,
    changes: Changes,
    /// It goes on when this page has come.
    waiting: Option<PageKey>,
    saved: Nanos,
    /// Where it was when it began in this run, and when that was.
    pace: Option<(u64, Nanos)>,
    /// A run that stays as it is, and blocks beside others that were looked at: in this step.
    refused: Option<Refused>,
    beside: usize,
    shared: u64,
    kept: u64,
    unequal: u64,
    verify: Verify,
    /// There were no buffers to compare anything.
    is_stuck: bool,
    passes: u64,
    scans: u64,
    map_walks: u64,
    /// It rests until there is metadata.
    short: Option<Short>,
    undone: Undone,
    catch_up: CatchUp,
}

impl Dedup {
    pub(crate) fn new(now: Nanos) -> Dedup {
        Dedup {
            record: DedupRecord::default(),
            at: At::Begin,
            range: Range::new(0, 0, 0),
            spares: Vec::new(),
            unresolved: Vec::new(),
            is_again: false,
            tries: 0,
            changes: Changes::default(),
            waiting: None,
            saved: now,
            pace: None,
            refused: None,
            beside: 0,
            shared: 0,
            kept: 0,
            unequal: 0,
            verify: Verify::default(),
            is_stuck: false,
            passes: 0,
            scans: 0,
            map_walks: 0,
            short: None,
            undone: Undone::default(),
            catch_up: CatchUp::default(),
        }
    }

    /// Where it is, for the superblock.
    pub(crate) fn record(&self) -> DedupRecord {
        DedupRecord { is_undone: self.undone.is_some(), ..self.record }
    }

    /// It goes on from where the superblock says.
    pub(crate) fn found(&mut self, record: DedupRecord, now: Nanos) {
        self.record = record;
        if record.is_undone {
            self.undone.note(now, 0);
        }
    }

    /// Whether one has begun, and has not come to its end.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(self.record.state, PassState::Running | PassState::Paused)
    }

    /// So many blocks were stored without a look for duplicates, or there may be some that were.
    pub(crate) fn leave(&mut self, now: Nanos, blocks: u64) {
        self.undone.note(now, blocks);
    }

    /// How it goes, or how the last one went.
    pub(crate) fn status(&self, pool: &Pool) -> DedupStatus {
        let is_running = self.record.state == PassState::Running;
        let done = self.done(pool);
        let left = |(from, since): (u64, Nanos)| {
            let (came, left) = (done.saturating_sub(from), PLACES.saturating_sub(done));
            let took = u128::from(pool.now.saturating_sub(since));
            (came > 0).then(|| (took * u128::from(left) / u128::from(came) / 1_000_000_000) as u64)
        };
        DedupStatus {
            state: if self.short.is_some() { PassState::Paused } else { self.record.state },
            done_ppm: (done * 1_000_000 / PLACES) as u32,
            left_seconds: self.pace.filter(|_| is_running).and_then(left),
            shared_blocks: self.shared,
            kept_blocks: self.kept,
            unequal_blocks: self.unequal,
            passes: self.passes,
            scans: self.scans,
            map_walks: self.map_walks,
            is_short_of_room: self.short.is_some(),
            is_undone: self.undone.is_some(),
            undone_blocks: self.undone.blocks,
        }
    }

    /// Digests that are done, of all places.
    fn done(&self, pool: &Pool) -> u64 {
        let leaf = match (&self.at, self.record.state) {
            (_, PassState::Finished) => return PLACES,
            (_, PassState::Never) => return 0,
            (At::Begin, _) => return self.record.next.into(),
            (At::End, _) => return PLACES,
            (At::Scan(leaf) | At::Maps(_, leaf), _) => *leaf,
            (At::Index, _) => u64::MAX,
        };
        let leaves = pool.store.geometry.summary_leaves().max(1);
        let part = u128::from(self.range.end - self.range.first) * u128::from(leaf.min(leaves)) / u128::from(leaves);
        self.range.first + part as u64
    }

    /// Bytes of memory that it has while it is under way.
    pub(crate) fn memory(&self) -> u64 {
        self.range.memory()
            + self.catch_up.memory()
            + self.verify.memory()
            + (self.spares.capacity() * size_of::<Spare>()) as u64
            + (self.unresolved.capacity() * size_of::<(Slot, Slot, Digest)>()) as u64
    }

    /// Carries out a command; it is done when so many checkpoints are.
    pub(crate) fn command(&mut self, pool: &mut Pool, command: DedupCommand) -> Result<u64, ControlError> {
        if !pool.takes_changes() {
            return Err(ControlError::ReadOnly);
        }
        match (command, self.record.state) {
            (DedupCommand::Start, PassState::Running) if self.short.is_none() => return Ok(pool.checkpoints_done),
            (DedupCommand::Start, PassState::Running | PassState::Paused) => self.record.state = PassState::Running,
            (DedupCommand::Start, _) => self.start(),
            (DedupCommand::Pause, PassState::Running) => self.record.state = PassState::Paused,
            // By itself the next one begins for what is written from here on.
            (DedupCommand::Stop, PassState::Running | PassState::Paused) => {
                self.record.state = PassState::Stopped;
                self.undone.clear();
            }
            (DedupCommand::Pause | DedupCommand::Stop, _) => return Err(ControlError::NoDedup),
        }
        // A pass that rests has no memory: it goes on with its range from the beginning.
        self.rest(pool);
        self.short = None;
        Ok(pool.after_next_checkpoint())
    }

    /// A new pass: it finds all that has been left to it so far.
    fn start(&mut self) {
        self.record = DedupRecord { state: PassState::Running, ..DedupRecord::default() };
        self.undone.clear();
    }

    /// When it begins by itself, if it rests until then.
    fn due(&self, facts: &Facts) -> Option<Nanos> {
        let may_begin = !matches!(self.record.state, PassState::Running | PassState::Paused);
        self.undone.due(facts).filter(|_| may_begin)
    }

    /// Whether it rested because metadata was short, and does so no longer.
    fn has_room_again(&self, pool: &Pool) -> bool {
        let all = pool.store.geometry.metadata_blocks;
        self.short.is_some_and(|short| short.is_over(pool.now, pool.store.meta.free(), all))
    }

    /// Gives up what it has in memory.
    fn rest(&mut self, pool: &mut Pool) {
        self.catch_up.rest();
        pool.watch_disk_index(false);
        (self.at, self.waiting, self.pace) = (At::Begin, None, None);
        self.range = Range::new(0, 0, 0);
        (self.spares, self.unresolved) = (Vec::new(), Vec::new());
        (self.is_again, self.tries) = (false, 0);
        self.changes.give_up_waiting();
        self.verify.clear();
    }

    /// Contents of a range.
    fn room(pool: &Pool) -> usize {
        2 * pool.limits.delta_entries as usize
    }

    /// The most spare slots that wait for a walk of all maps.
    fn unresolved_room(pool: &Pool) -> usize {
        (pool.limits.delta_entries as usize / 4).max(64)
    }

    // ---- steps ----

    fn go_on(&mut self, work: &mut Work<'_>) -> Result<(), Stop> {
        let Work { pool, care, facts } = work;
        match &mut self.at {
            At::Begin => self.begin(pool),
            At::Scan(_) => self.scan(pool, care, facts)?,
            At::Maps(..) => self.walk_maps(pool, care, facts)?,
            At::Index => self.hand_over(pool),
            At::End => self.end(pool),
        }
        Ok(())
    }

    fn begin(&mut self, pool: &mut Pool) {
        self.changes.wait_for_flush(pool);
        let first = self.record.next.into();
        self.range = Range::new(first, pool.space.data_used, Self::room(pool));
        self.pace.get_or_insert((first, pool.now));
        (self.at, self.tries) = (At::Scan(0), 0);
    }

    /// Looks at some leaves of summaries, and shares what has been found so far.
    fn scan(&mut self, pool: &mut Pool, care: &Care, facts: &Facts) -> Result<(), Stop> {
        let At::Scan(mut leaf) = self.at else { return Ok(()) };
        if leaf == 0 {
            self.catch_up.begin_range(pool, self.range.first);
        }
        let leaves = pool.store.geometry.summary_leaves();
        let is_behind = pool.buckets_behind().is_some();
        let budget = if pool.is_at_full_speed(facts) { LEAVES } else { 1 };
        for _ in 0..budget {
            if self.unresolved.len() >= Self::unresolved_room(pool) {
                self.begin_maps(leaf);
                return Ok(());
            }
            if self.spares.len() >= SPARES || leaf >= leaves {
                self.share_spares(pool, care, facts)?;
            }
            if leaf >= leaves {
                return self.end_range(pool);
            }
            let Dedup { range, spares, .. } = self;
            leaf = pool.each_owned_block_of_leaf(leaf, |pool, slot, state, digest, owner| {
                let is_shared = state == SlotState::Shared;
                if !state.is_used() || !range.has(digest) || care.is_lost(slot, digest) {
                    return;
                }
                if !pool.may_share(owner) {
                    if is_behind && pool.copied_from(owner).is_none() {
                        range.note(digest, slot);
                    }
                    return;
                }
                match range.offer(Found { slot, digest, owner, is_shared }) {
                    Some(spare) => spares.push(spare),
                    // Writes that were stored without a look for duplicates have told the index nothing.
                    None => {
                        pool.index.offer(pool.sharing_digest(digest), slot, pool.space.generation(slot));
                    }
                }
            })?;
            self.at = At::Scan(leaf);
        }
        Ok(())
    }

    /// Lets the blocks lead elsewhere that spare slots were first written for.
    fn share_spares(&mut self, pool: &mut Pool, care: &Care, facts: &Facts) -> Result<(), Stop> {
        self.spares.sort_unstable_by_key(|spare| core::cmp::Reverse(spare.owner));
        while let Some(&Spare { slot, digest, owner, is_shared, stays }) = self.spares.last() {
            let shared = match is_shared {
                false => self.share(pool, care, facts, owner, (slot, stays, digest))?,
                true => Shared::NotThere,
            };
            let shared = match shared {
                Shared::Kept => self.share_the_other_way(pool, care, facts, (slot, stays, digest))?,
                shared => shared,
            };
            match shared {
                Shared::Yes | Shared::Kept | Shared::Apart => {}
                Shared::Gone => self.is_again = true,
                Shared::NotThere => self.unresolved.push((slot, stays, digest)),
            }
            self.spares.pop();
        }
        self.verify.clear();
        Ok(())
    }

    /// The block of a spare slot stays there because of its run. The one that leads to the other slot, if it is alone there, may be less
    /// bound.
    fn share_the_other_way(
        &mut self,
        pool: &mut Pool,
        care: &Care,
        facts: &Facts,
        (spare, stays, digest): (Slot, Slot, Digest),
    ) -> Result<Shared, Stop> {
        let owner = pool.proven_digest(stays)?.map(|(_, owner)| owner);
        let shared = match owner {
            Some(owner) if is_alone(pool, care, stays)? => {
                self.share(pool, care, facts, owner, (stays, spare, digest))?
            }
            _ => Shared::Kept,
        };
        if shared == Shared::Yes {
            self.range.stays_at(digest, spare);
        }
        self.kept += u64::from(!matches!(shared, Shared::Yes | Shared::Apart));
        Ok(if shared == Shared::NotThere { Shared::Kept } else { shared })
    }

    /// Lets a block lead to the slot that stays, if it leads to the spare one and both hold the content; with it all of its run, where that
    /// is kept.
    fn share(
        &mut self,
        pool: &mut Pool,
        care: &Care,
        facts: &Facts,
        key: Key,
        (spare, stays, digest): (Slot, Slot, Digest),
    ) -> Result<Shared, Stop> {
        let Some(volume) = pool.volume_index(key.volume()).filter(|_| pool.may_share(key)) else {
            return Ok(Shared::NotThere);
        };
        match pool.resolve(volume, key) {
            Ok(entry) if entry == Entry::whole(spare, digest) => {}
            Ok(_) if pool.canary(Canary::BlindShare) => {}
            Ok(_) | Err(Unresolved::Damaged) => return Ok(Shared::NotThere),
            Err(Unresolved::Missing(missing)) if pool.failed_pages.contains(&missing.key) => {
                return Ok(Shared::NotThere);
            }
            Err(Unresolved::Missing(missing)) => return Err(missing.into()),
        }
        let holds = |pool: &mut Pool, slot| -> Result<bool, Missing> {
            Ok(pool.proven_digest(slot)?.is_some_and(|(found, _)| found == digest))
        };
        if !pool.canary(Canary::ShareWithFreed) && !holds(pool, stays)? {
            return Ok(Shared::Gone);
        }
        if !holds(pool, spare)? && !pool.canary(Canary::BlindShare) {
            return Ok(Shared::NotThere);
        }
        let keeps_runs = pool.keeps_runs(volume);
        let run = match keeps_runs {
            false => Run::one(key, spare, stays, digest),
            true => match self.run_around(pool, care, volume, key, (spare, stays, digest))? {
                Some(run) if run.digests.len() <= Changes::part_of_delta(pool) => run,
                _ => return Ok(Shared::Kept),
            },
        };
        if pool.verifies_shares() && !self.are_equal(pool, care, &run, keeps_runs)? {
            return Ok(Shared::Apart);
        }
        let changes = run.digests.len();
        let asked = match changes {
            1 => Asked::scattered(1),
            _ => pool.asked_in_a_row(run.first, run.last(), changes),
        };
        self.changes.admit(pool, facts, &asked, changes)?;
        for (key, slot, digest) in run.blocks() {
            pool.put_alone(key, Put::Share(slot, digest));
            pool.note_known(digest, slot);
        }
        self.shared += run.digests.len() as u64;
        Ok(Shared::Yes)
    }

    /// The run that a block is in, if all of it may be led elsewhere.
    fn run_around(
        &mut self,
        pool: &mut Pool,
        care: &Care,
        volume: usize,
        key: Key,
        (from, to, digest): (Slot, Slot, Digest),
    ) -> Result<Option<Run>, Stop> {
        if self.refused.is_some_and(|refused| refused.is(key, from, to)) {
            return Ok(None);
        }
        if self.beside >= BESIDE {
            return Err(Stop::Waits);
        }
        let (run, looked) = Around { pool, care, volume, key, from, to }.run(digest)?;
        self.beside += looked;
        self.refused = run.as_ref().err().copied();
        Ok(run.ok())
    }

    /// Whether the blocks of a run hold the same bytes as what they are to lead to. What is likely to be asked next is compared together
    /// with it.
    fn are_equal(&mut self, pool: &mut Pool, care: &Care, run: &Run, keeps_runs: bool) -> Result<bool, Stop> {
        match self.verify.verdict(run.pairs()) {
            Some(true) => return Ok(true),
            Some(false) => {
                self.unequal += 1;
                return Ok(false);
            }
            None => {}
        }
        // What is not on the device yet, or may change there, cannot be compared.
        let is_moving =
            |slot: &Slot| pool.dirty.contains_key(slot) || pool.in_journal.contains_key(slot) || care.mends(*slot);
        let is_at_rest = |(one, other, _): &Pair| !is_moving(one) && !is_moving(other);
        if !run.pairs().all(|pair| is_at_rest(&pair)) {
            return Ok(false);
        }
        let next = self.spares.iter().rev().skip(1).filter(|spare| !spare.is_shared);
        let next = next.map(|spare| (spare.slot, spare.stays, spare.digest)).take(if keeps_runs { 0 } else { PAIRS });
        let pairs: Vec<Pair> = run.pairs().chain(next.filter(is_at_rest)).collect();
        self.is_stuck = !self.verify.begin(pool, pairs.into_iter());
        Err(Stop::Waits)
    }

    fn end_range(&mut self, pool: &mut Pool) -> Result<(), Stop> {
        self.scans += 1;
        let (leaves, is_last) = (pool.store.geometry.summary_leaves(), self.range.end == PLACES);
        // A range that is gone through again must not find what has been left to a walk of the maps.
        if !self.unresolved.is_empty() && (is_last || self.is_again) {
            self.scans -= 1;
            self.begin_maps(leaves);
            return Ok(());
        }
        if core::mem::take(&mut self.is_again) && self.tries < AGAIN {
            self.tries += 1;
            self.range.clear();
            self.changes.wait_for_checkpoint(pool);
            self.at = At::Scan(0);
            return Ok(());
        }
        self.tries = 0;
        self.at = At::Index;
        Ok(())
    }

    /// Hands over to the index on disk what a range has found; then comes the next range.
    fn hand_over(&mut self, pool: &mut Pool) {
        match self.catch_up.hand_over(pool, &self.range) {
            Handed::More => {}
            Handed::Part => self.changes.wait_for_checkpoint(pool),
            Handed::All if self.range.end == PLACES => {
                self.at = At::End;
                self.changes.wait_for_flush(pool);
            }
            Handed::All => {
                let next = next_range(&self.range, pool.buckets_behind());
                if self.unresolved.is_empty() {
                    self.record.next = next as u32;
                }
                self.range = Range::new(next, pool.space.data_used, Self::room(pool));
                self.at = At::Scan(0);
            }
        }
    }

    fn begin_maps(&mut self, leaf: u64) {
        self.unresolved.sort_unstable();
        self.map_walks += 1;
        self.at = At::Maps(Maps::default(), leaf);
    }

    /// Looks at some leaves of maps.
    fn walk_maps(&mut self, pool: &mut Pool, care: &Care, facts: &Facts) -> Result<(), Stop> {
        let At::Maps(mut maps, leaf) = self.at else { return Ok(()) };
        for _ in 0..if pool.is_at_full_speed(facts) { LEAVES } else { 1 } {
            let walked = maps.step(pool, Pool::may_share, |pool, key, slot| {
                let Ok(found) = self.unresolved.binary_search_by_key(&slot, |&(spare, ..)| spare) else {
                    return Ok(false);
                };
                let shared = self.share(pool, care, facts, key, self.unresolved[found])?;
                self.is_again |= shared == Shared::Gone;
                self.kept += u64::from(shared == Shared::Kept);
                Ok::<_, Stop>(true)
            });
            self.at = At::Maps(maps, leaf);
            if !walked? {
                self.unresolved.clear();
                self.verify.clear();
                self.at = At::Scan(leaf);
                return Ok(());
            }
        }
        Ok(())
    }

    fn end(&mut self, pool: &mut Pool) {
        // What a leaf still leads to is not free: changes go into their leaves first.
        if pool.has_to_flush() {
            self.changes.wait_for_flush(pool);
            return;
        }
        self.catch_up.end(pool);
        self.record = DedupRecord { state: PassState::Finished, ..DedupRecord::default() };
        self.undone.sleep(pool.now);
        self.passes += 1;
        self.rest(pool);
        pool.want_checkpoint = true;
        pool.needs_pump = true;
    }
}

impl Pool {
    /// Whether a block's content may be shared by a pass.
    fn may_share(&self, owner: Key) -> bool {
        let Some(at) = self.volume_index(owner.volume()) else { return true };
        let volume = &self.volumes[at];
        if volume.keeps.is_some() {
            return self.canary(Canary::CopyForData);
        }
        !volume.read_only && self.policy_of(volume) != Policy::Native
    }

    /// Whether a pass leaves what would split a run of this volume.
    fn keeps_runs(&self, volume: usize) -> bool {
        let volume = &self.volumes[volume];
        volume.keep_runs.keeps(self.policy_of(volume))
    }
}

impl Steps for Dedup {
    fn is_under_way(&self) -> bool {
        self.record.state == PassState::Running && self.short.is_none()
    }

    #[inline]
    fn can_step(&self, pool: &Pool, facts: &Facts) -> bool {
        (self.is_under_way() || self.has_room_again(pool) || self.due(facts).is_some_and(|due| due <= pool.now))
            && pool.phase == Phase::Serving
            && pool.takes_changes()
            && !facts.writes_wait
            && self.changes.may_go_on(pool)
            && !self.verify.is_under_way()
            && !self.waiting.is_some_and(|key| pool.store.pages.is_loading(key))
    }

    fn can_advance(&self) -> bool {
        self.verify.holds_any()
    }

    /// Who waits for room may wait for slots that have been compared: the pass rests until then.
    fn advance(&mut self, work: &mut Work<'_>) {
        if work.facts.writes_wait {
            self.verify.clear();
            work.pool.needs_pump |= !self.verify.holds_any();
        }
    }

    #[inline]
    fn begins_at(&self, _: &Pool, facts: &Facts) -> Option<Nanos> {
        self.short.map(|short| short.due()).or_else(|| self.due(facts))
    }

    fn step(&mut self, work: &mut Work<'_>) {
        (self.waiting, self.refused, self.beside, self.is_stuck) = (None, None, 0, false);
        if self.short.take().is_none() && !self.is_under_way() {
            self.start();
        }
        match self.go_on(work) {
            Ok(()) | Err(Stop::Waits) => {}
            Err(Stop::Missing(missing)) if work.pool.failed_pages.contains(&missing.key) => self.skip(),
            Err(Stop::Missing(missing)) => {
                self.waiting = Some(missing.key);
                work.pool.store.load(missing, None);
            }
            Err(Stop::NoRoom) => {
                self.rest(work.pool);
                self.short = Some(Short::new(work.pool.now, work.pool.store.meta.free()));
            }
        }
        let pool = &mut *work.pool;
        // A checkpoint that it asked for begins with the next pump.
        pool.needs_pump |= self.changes.waits_for_checkpoint(pool);
        if self.is_under_way() && pool.now >= self.saved + SAVE_PERIOD {
            self.saved = pool.now;
            pool.want_checkpoint = true;
            pool.needs_pump = true;
        }
    }

    fn is_stuck(&self, _: &Pool) -> bool {
        self.is_stuck
    }

    fn done(&mut self, work: &mut Work<'_>, part: u32, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        self.verify.done(work.pool, part as usize, segments.len(), result);
    }

    fn in_flight(&self) -> usize {
        self.verify.in_flight()
    }

    fn holds(&self, slot: Slot) -> bool {
        self.verify.holds(slot)
    }
}

impl Dedup {
    /// What it works on cannot be read: it is left as it is.
    fn skip(&mut self) {
        match &mut self.at {
            At::Maps(maps, _) => maps.skip(),
            At::Scan(_) if !self.spares.is_empty() => drop(self.spares.pop()),
            At::Scan(leaf) => *leaf += 1,
            At::Begin | At::Index | At::End => {}
        }
    }
}
