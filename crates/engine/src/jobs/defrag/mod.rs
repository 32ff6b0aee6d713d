//! Defragmentation: puts regions that readers found scattered back in order, by moving their blocks (`jobs/mover.rs`). RFC 0012.
//!
//! ```text
//! Note      regions that are read in order, and the writes there since: pool/regions.rs
//! Collect   the slots of a region's blocks, their content to the bit, and their target slots (plan.rs): when the pool is idle, of the region
//!           that costs its readers most; while clients are busy, of the one that a stream has just left, whose blocks are in memory
//! Move      a batch of them
//! Aside     a region that needs an empty container, where there is none, waits until some have been emptied (jobs/gc.rs)
//! ```
//!
//! Only blocks that clients have read in order are moved, and never more than the allowance ([`DefragSetting`]).
//!
//! Termination, without reads and writes of clients: a region that is in order or given up has no gain any more, since moves do not count as writes. Every
//! other look begins one of a few batches that a region has (`TRIES` in pool/regions.rs), waits for pages (`WAITS`), or lets the region wait. Such a
//! region is not looked at until an empty container ends its wait, or, once for each of these, until garbage collection rests. RFC 0012, "Why both end".

pub(crate) mod plan;

use alloc::vec::Vec;

use crate::api::*;
use crate::format::entry::{Entry, Key, Slot, check_bits};
use crate::jobs::job::{Job, JobContext, JobId};
use crate::jobs::mover::{Missings, MoveStop, Moved, Mover, is_alone};
use crate::metadata::tree::{LastLeaf, Unresolved};
use crate::pool::Pool;
use crate::pool::state::LoadSnapshot;
use crate::repair::Repairs;
use crate::space::SlotState;
use plan::{Lies, Plan};

/// Divisor of a region: one that lacks more than one in N of its target slots goes to another target as a whole. So a reader loses a tenth at most.
const LOST_PART: usize = 64;
/// The same on a rotational disk, where each lost slot costs a reader a seek.
const LOST_PART_ROTATIONAL: usize = 1024;
/// Divisor of a region: one of which more than one block in N is shared does not go as a whole, since these would be left behind.
const MOST_SHARED: usize = 16;
/// Shortest time between two checkpoints that are requested while clients are busy, so that freed slots become free.
const SETTLES_EVERY: Nanos = 1_000_000_000;

/// State and counts of defragmentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DefragStatus {
    /// Setting in force.
    pub defrag: DefragSetting,
    /// Regions that readers found scattered and that have not been examined, and the one that is being moved.
    pub noted_regions: u64,
    /// Regions that wait until containers have been emptied.
    pub waiting_regions: u64,
    /// Regions that were found in order, or whose last blocks went into a batch, since the pool was opened.
    pub regions: u64,
    /// Regions that were given up since the pool was opened: there was no place for them, or they could not be read.
    pub given_up_regions: u64,
    /// Blocks moved since the pool was opened.
    pub moved_blocks: u64,
    /// Blocks that may be moved now.
    pub allowance_blocks: u64,
    /// True if there is work as soon as the pool is idle. Noted regions are none while blocks may not be moved, or too few slots are free for it.
    pub is_due: bool,
}

/// The job that puts regions back in order.
pub(crate) struct Defrag {
    mover: Mover,
    /// Memory for looks: beside a reader there are many of them, and most find nothing to move.
    memory: Memory,
    /// True if all slots that were freed before this idle time are free by now.
    has_settled: bool,
    /// True if the job waits for an event that wakes the engine.
    is_stuck: bool,
    done: u64,
}

/// Lists of the blocks that are examined, with their memory kept from one look to the next.
#[derive(Default)]
struct Memory {
    /// Batch that is being collected.
    blocks: Vec<Moved>,
    /// Target slots of the batch, in order.
    taken: Vec<Slot>,
    /// Blocks of a region that have slots, in order.
    region: Vec<Lies>,
    /// Map entry of each block of `region`.
    seen: Vec<Entry>,
    /// Memory in which a plan sorts.
    plan: Vec<i64>,
}

/// Result of a look at a region.
enum RegionLook {
    Moves {
        /// True if there are more moves than a batch has.
        more: bool,
        /// True if some blocks wait until their target slots are free.
        some_wait: bool,
    },
    InOrder,
    /// The region waits for an empty container. Most of it lies in a row with this target, if in any.
    Aside(Option<i64>),
}

impl Defrag {
    pub(crate) fn new() -> Defrag {
        Defrag {
            mover: Mover::new(JobId::Defrag),
            memory: Memory::default(),
            has_settled: false,
            is_stuck: false,
            done: 0,
        }
    }
}

impl Defrag {
    /// Returns the state and counts of defragmentation.
    pub(crate) fn status(&self, pool: &Pool) -> DefragStatus {
        DefragStatus {
            defrag: pool.properties.defrag(),
            noted_regions: pool.regions().scattered() as u64 + u64::from(self.mover.is_in_progress()),
            waiting_regions: pool.regions().aside() as u64,
            regions: self.done,
            given_up_regions: pool.regions().given_up(),
            moved_blocks: self.mover.moved(),
            allowance_blocks: pool.may_move(),
            is_due: self.mover.is_in_progress() || pool.regions().scattered() > 0 && pool.may_move_for_order(),
        }
    }
}

impl Job for Defrag {
    type Work<'a> = JobContext<'a>;

    fn is_in_progress(&self) -> bool {
        self.mover.is_in_progress()
    }

    #[inline]
    fn can_step(&self, pool: &Pool, load: &LoadSnapshot) -> bool {
        pool.regions().scattered() > 0
            && (load.is_idle || pool.regions().are_left())
            && !self.mover.is_in_progress()
            && pool.may_move_for_order()
    }

    /// Returns the time at which the pool is idle, if scattered regions may be moved then.
    #[inline]
    fn begins_at(&self, pool: &Pool, load: &LoadSnapshot) -> Option<Nanos> {
        let waits = pool.regions().scattered() > 0 && !load.requests_in_flight && pool.may_move_for_order();
        waits.then_some(load.idle_from)
    }

    /// Returns true with a batch in progress, until the job is marked as stuck, and until the end of idle time is noted.
    #[inline]
    fn can_advance(&self) -> bool {
        self.mover.is_in_progress() || !self.is_stuck || self.has_settled
    }

    /// Advances a batch to its end, even if the pool is no longer idle.
    fn advance(&mut self, work: &mut JobContext<'_>) {
        // This is done with the first pump of a pool that serves.
        work.pool.note_what_may_move();
        if self.mover.is_in_progress() {
            self.mover.go_on(work.pool, &work.load);
        } else {
            self.is_stuck = true;
            self.has_settled &= work.load.is_idle;
        }
    }

    fn step(&mut self, work: &mut JobContext<'_>) {
        let JobContext { pool, repairs, load } = work;
        if load.writes_blocked || load.out_of_buffers || self.mover.is_loading(pool) {
            return;
        }
        // The target slots are those that were freed last.
        self.has_settled |= pool.durable.delta().is_empty() && pool.durable.space().pending().is_empty();
        if self.has_settled || !load.is_idle {
            self.gather(pool, repairs, load);
        }
    }

    fn is_stuck(&self, _: &Pool) -> bool {
        self.is_stuck
    }

    fn done(
        &mut self,
        work: &mut JobContext<'_>,
        part: u32,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        self.mover.done(work.pool, part, segments, result);
    }

    fn in_flight(&self) -> usize {
        self.mover.in_flight()
    }

    fn holds(&self, slot: Slot) -> bool {
        self.mover.holds(slot)
    }
}

impl Defrag {
    /// Collects a batch, from as many regions as it takes, and begins to move it.
    fn gather(&mut self, pool: &mut Pool, repairs: &Repairs, load: &LoadSnapshot) {
        // A block that is copied from the cache takes two buffers.
        let (free, cached) = (pool.memory.buffers().free(), pool.memory.cache().len());
        let most = Mover::most(pool).min(free.max((free + cached) / 2));
        if most == 0 {
            return;
        }
        self.memory.blocks.clear();
        let (mut waits, mut some_wait) = (false, false);
        while self.memory.blocks.len() < most && !waits {
            let next = if load.is_idle { pool.regions().next() } else { pool.regions_mut().next_left() };
            let Some((first, noted)) = next else { break };
            // A region whose batches always fail is given up at last.
            let looked = match noted.is_hopeless() {
                false => self.look_for_moves(pool, repairs, (first, noted.target()), most, load.is_idle),
                true => Err(MoveStop::GivenUp),
            };
            some_wait |= matches!(looked, Ok(RegionLook::Moves { some_wait: true, .. }) | Err(MoveStop::GivenUp));
            match looked {
                Ok(RegionLook::Moves { more: true, .. }) => break,
                Err(MoveStop::Waits) => {
                    waits = true;
                    pool.regions_mut().waits(first);
                }
                looked if load.is_idle => self.has_looked_for_gain(pool, first, looked),
                looked => self.has_looked_behind_stream(pool, first, looked),
            }
        }
        if some_wait && !load.is_idle {
            settle_some_time(pool);
        }
        self.is_stuck = waits;
        let blocks = &mut self.memory.blocks;
        if !blocks.is_empty() && self.mover.begin(pool, blocks) {
            self.is_stuck = true;
            self.mover.go_on(pool, load);
        }
    }

    /// Handles the result for one of the regions that cost their readers most, while the pool is idle.
    fn has_looked_for_gain(&mut self, pool: &mut Pool, first: Key, looked: Result<RegionLook, MoveStop>) {
        match looked {
            Ok(RegionLook::InOrder) => self.was_in_order(pool, first),
            Ok(RegionLook::Moves { .. }) => self.is_in_order(pool, first),
            Ok(RegionLook::Aside(target)) => pool.regions_mut().set_aside(first, target),
            Err(_) => pool.regions_mut().give_up(first),
        }
    }

    /// Handles the result for a region that a stream has just left, while clients are busy. Blocks that cannot be moved now are left to idle time.
    fn has_looked_behind_stream(&mut self, pool: &mut Pool, first: Key, looked: Result<RegionLook, MoveStop>) {
        match looked {
            Ok(RegionLook::InOrder) => self.was_in_order(pool, first),
            Ok(RegionLook::Moves { some_wait: false, .. }) => self.is_in_order(pool, first),
            _ => {}
        }
        pool.regions_mut().pass_left();
    }

    fn is_in_order(&mut self, pool: &mut Pool, first: Key) {
        self.done += 1;
        pool.regions_mut().in_order(first);
    }

    fn was_in_order(&mut self, pool: &mut Pool, first: Key) {
        self.done += 1;
        pool.regions_mut().was_in_order(first);
    }

    /// Examines a region, and adds its blocks to be moved to a batch, which has at most `most`.
    fn look_for_moves(
        &mut self,
        pool: &mut Pool,
        repairs: &Repairs,
        (first, target): (Key, Option<i64>),
        most: usize,
        is_idle: bool,
    ) -> Result<RegionLook, MoveStop> {
        self.look_at(pool, repairs, first)?;
        let container = pool.metadata.geometry().slots_per_container.into();
        let gap = pool.device().gap_blocks;
        let Memory { blocks, taken, region, seen, plan } = &mut self.memory;
        let is_begun = target.is_some();
        let target = match target {
            Some(target) => target,
            None => {
                let mut missing = Missings::default();
                let (plan, row) = match plan::plan(region, container, gap, plan) {
                    Plan::Return(target) if is_idle && goes_whole(pool, region, target, &mut missing) => {
                        (Plan::Move, Some(target))
                    }
                    plan => (plan, None),
                };
                self.mover.load(pool, missing)?;
                match plan {
                    Plan::Leave => return Ok(RegionLook::InOrder),
                    Plan::Return(target) => target,
                    // A batch has one empty container.
                    Plan::Move if !blocks.is_empty() => return Ok(RegionLook::Moves { more: true, some_wait: false }),
                    Plan::Move => {
                        let Some(empty) = pool.durable.space_mut().empty_container() else {
                            return if pool.ask_for_fresh() {
                                Err(MoveStop::Waits)
                            } else {
                                Ok(RegionLook::Aside(row))
                            };
                        };
                        pool.durable.space().slots_of(empty).start as i64
                    }
                }
            }
        };
        let (mut more, mut waiting) = (false, 0);
        let mut missing = Missings::default();
        let before = blocks.len();
        taken.clear();
        taken.extend(blocks.iter().map(|block| block.to));
        taken.sort_unstable();
        for (lies, to) in plan::displaced(region, target) {
            if blocks.len() >= most {
                more = true;
                break;
            }
            if !pool.may_move_to(to) || taken.binary_search(&to).is_ok() {
                waiting += 1;
                continue;
            }
            let Some(state) = missing.or(pool.slot_state(to)) else { continue };
            if state != SlotState::Free {
                waiting += 1;
                continue;
            }
            let Some(proven) = missing.or(pool.proven_digest(lies.slot)) else { continue };
            let seen = seen[region.partition_point(|other| other.place < lies.place)];
            if let Some((digest, _)) = proven
                && check_bits(digest) == seen.check()
            {
                let key = Key::new(first.volume(), first.lba() + lies.place);
                blocks.push(Moved { key, seen, from: lies.slot, digest, to });
            }
        }
        if let Err(stop) = self.mover.load(pool, missing) {
            blocks.truncate(before);
            return Err(stop);
        }
        if is_begun && is_idle && !more && waiting > most_lost(pool, region) {
            // Others have got its places meanwhile: it needs other ones.
            return Ok(RegionLook::Aside(None));
        }
        if blocks.len() == before && !more {
            return Err(MoveStop::GivenUp);
        }
        pool.regions_mut().note_target(first, target);
        Ok(RegionLook::Moves { more, some_wait: waiting > 0 })
    }

    /// Examines a region: its blocks that have slots, and their map entries.
    fn look_at(&mut self, pool: &mut Pool, repairs: &Repairs, first: Key) -> Result<(), MoveStop> {
        let volume = pool.volume_index(first.volume()).ok_or(MoveStop::GivenUp)?;
        let end = pool.durable.volumes()[volume].size.div_ceil(pool.metadata.geometry().block());
        let blocks = pool.regions().blocks().min(end.saturating_sub(first.lba()));
        let Memory { region, seen, .. } = &mut self.memory;
        region.clear();
        seen.clear();
        let (mut leaf, mut missing) = (LastLeaf::default(), Missings::default());
        for place in 0..blocks {
            let entry = match pool.resolve_after(volume, Key(first.0 + place), &mut leaf) {
                Ok(entry) => entry,
                Err(Unresolved::Damaged) => return Err(MoveStop::GivenUp),
                Err(Unresolved::Missing(page)) => {
                    missing.add(page);
                    continue;
                }
            };
            let Some(slot) = entry.slot() else { continue };
            // Blocks that a relocation plan has put in order stay there.
            let is_alone =
                !pool.durable.space().is_planned(slot) && missing.or(is_alone(pool, repairs, slot)) == Some(true);
            region.push(Lies { place, slot, is_alone });
            seen.push(entry);
        }
        self.mover.load(pool, missing)
    }
}

/// Returns the number of a region's target slots that it can lack and still count as in order there.
fn most_lost(pool: &Pool, region: &[Lies]) -> usize {
    region.len() / if pool.device().is_rotational { LOST_PART_ROTATIONAL } else { LOST_PART }
}

/// Returns true if all of a region goes to an empty container, though most of it lies in a row with this target. Others have its target slots then,
/// and the allowance is enough for the region and for emptying another container afterwards. Shared blocks would stay behind.
fn goes_whole(pool: &mut Pool, region: &[Lies], target: i64, missing: &mut Missings) -> bool {
    let most = most_lost(pool, region);
    let can_go = pool.may_move() >= pool.durable.space().free() + 2 * region.len() as u64
        && region.iter().filter(|block| !block.is_alone).count() <= region.len() / MOST_SHARED;
    let mut lost = |(_, to)| {
        let is_there = pool.durable.space().contains(to);
        !is_there
            || !pool.may_move_to(to)
            || missing.or(pool.slot_state(to)).is_some_and(|state| state != SlotState::Free)
    };
    can_go && plan::displaced(region, target).filter(|&place| lost(place)).count() > most
}

/// Asks for a checkpoint, so that freed slots become free, at most once every [`SETTLES_EVERY`].
fn settle_some_time(pool: &mut Pool) {
    if !pool.durable.delta().is_empty() && pool.state.now() >= pool.checkpoint.last_ended() + SETTLES_EVERY {
        pool.request_checkpoint_and_wake();
    }
}
