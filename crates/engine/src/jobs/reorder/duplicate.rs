//! Selective duplication ("I/O Deduplication"; REFERENCE 1.6): on a store with heads, what is often read from the device gets a copy in each
//! scratch zone, so that wherever the heads are one is near.
//!
//! ```text
//! Count     runs of slots that reads fetched, for an epoch (popular.rs)
//! Choose    at its end: the most frequent ones, as far as the budget goes for a copy in each zone
//! Copy      when the pool is idle, zone by zone: slots of the container that the zone keeps, and batches of the mover, which proves all bits and
//!           makes them durable. Nothing leads to a copy but the volume of replicas
//! ```
//!
//! A copy is a replica like any other: one budget, one table, one way to be given back (`pool/replicas.rs`). It owns the counts, what was chosen,
//! and the places that it has claimed and not filled; where writes wait for room, these go back. A restart forgets all three.

use alloc::vec::Vec;

use super::ROOM_TO_MAKE;
use super::popular::Popular;
use crate::care::Care;
use crate::contract::*;
use crate::format::entry::{Entry, Key, Slot};
use crate::jobs::Job;
use crate::jobs::moving::{Came, Missings, Moved, Mover, Stop, is_busy};
use crate::pool::Pool;
use crate::pool::change::{Put, Seen};
use crate::pool::room::{Asked, Room};
use crate::pool::standing::Facts;
use crate::space::SlotState;
use crate::space::zones::ZONES;

/// Popular is what is read often within so long.
const EPOCH: Nanos = 86_400_000_000_000;

/// What comes next: a block of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Next {
    run: usize,
    block: u32,
}

/// See above.
pub(super) struct Duplicate {
    popular: Popular,
    epoch_ends: Nanos,
    /// Runs whose copies are being made: first slot and length, the most frequent first.
    chosen: Vec<(Slot, u32)>,
    zone: u32,
    next: Next,
    /// Claimed in the zone, and not filled; the next one last.
    places: Vec<Slot>,
    mover: Mover,
    made: u64,
}

impl Duplicate {
    pub(super) fn new(now: Nanos) -> Duplicate {
        Duplicate {
            popular: Popular::default(),
            epoch_ends: now + EPOCH,
            chosen: Vec::new(),
            zone: 0,
            next: Next::default(),
            places: Vec::new(),
            mover: Mover::for_shared(Job::Reorder),
            made: 0,
        }
    }

    /// A run was read from the device, in its slots.
    pub(super) fn note(&mut self, pool: &Pool, first: Slot, length: usize) {
        if pool.takes_changes() {
            self.popular.note(first, length, pool.limits.popular());
        }
    }

    /// Runs that are counted, or of which copies are to be made.
    pub(super) fn popular(&self) -> u64 {
        (self.popular.len() + self.chosen.len()) as u64
    }

    /// Copies made since the pool was opened.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.mover.is_under_way()
    }

    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.mover.holds(slot)
    }

    /// Slots that it has claimed and that nothing leads to.
    pub(super) fn claimed(&self) -> impl Iterator<Item = Slot> + '_ {
        self.places.iter().copied().chain(self.mover.places())
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> u64 {
        self.popular.memory() + crate::sizes::list_bytes(&self.chosen) + crate::sizes::list_bytes(&self.places)
    }

    /// When the epoch ends, if something has been counted.
    pub(super) fn begins_at(&self) -> Option<Nanos> {
        (self.popular.len() > 0).then_some(self.epoch_ends)
    }

    /// Whether there are copies to be made.
    pub(super) fn can_step(&self, pool: &Pool) -> bool {
        let is_due = || self.begins_at().is_some_and(|ends| ends <= pool.now);
        (!self.chosen.is_empty() || is_due()) && !self.mover.is_loading(pool)
    }

    /// Whether a pump has something to do for it, turn or not.
    pub(super) fn can_advance(&self) -> bool {
        self.mover.is_under_way() || !self.places.is_empty()
    }

    /// A batch comes to its end. Where writes wait for room, they get what is claimed.
    pub(super) fn advance(&mut self, pool: &mut Pool, facts: &Facts) {
        if self.mover.is_under_way() {
            self.mover.go_on(pool, facts);
            self.take_in(pool, facts);
        }
        if facts.writes_wait || !pool.takes_changes() || self.chosen.is_empty() {
            self.give_back_places(pool);
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

    /// The next batch, zone, or epoch.
    pub(super) fn step(&mut self, pool: &mut Pool, care: &Care, facts: &Facts) {
        if self.chosen.is_empty() {
            self.epoch_ends = pool.now + EPOCH;
            (self.chosen, self.zone) = (self.popular.take(pool.replica_budget() / u64::from(ZONES)), 0);
            self.next = Next::default();
        }
        let has_room = pool.has_slots_to_claim() && pool.space.free() >= pool.slots_to_spare(ROOM_TO_MAKE);
        let is_possible = pool.makes_copies() && has_room && pool.replicas.stride() == pool.store.geometry.slots();
        if !is_possible {
            return self.end(pool);
        }
        match self.begin(pool, care, facts) {
            Ok(true) => self.advance(pool, facts),
            Ok(false) => self.end_zone(pool),
            Err(Stop::Waits) => {}
            Err(Stop::GivenUp) => self.end(pool),
        }
        pool.needs_pump |= !self.chosen.is_empty() && !self.mover.is_loading(pool);
    }

    /// Begins a batch; false if there is nothing left for this zone, or no room in it.
    fn begin(&mut self, pool: &mut Pool, care: &Care, facts: &Facts) -> Result<bool, Stop> {
        if self.places.is_empty() && !self.claim(pool)? {
            return Ok(false);
        }
        let most = Mover::at_once(pool).min(self.places.len()).max(1);
        let (mut next, mut blocks, mut missing) = (self.next, Vec::<Moved>::new(), Missings::default());
        while blocks.len() < most
            && let Some(&(first, length)) = self.chosen.get(next.run)
        {
            let slot = Slot(first.0 + u64::from(next.block));
            next = if next.block + 1 < length {
                Next { block: next.block + 1, ..next }
            } else {
                Next { run: next.run + 1, block: 0 }
            };
            let is_there = pool.replicas.has(pool.replicas.number(slot, self.place()));
            let is_chosen = blocks.iter().any(|block| block.from == slot);
            let is_near = || pool.space.zone_of(pool.space.container_of(slot)) == self.zone;
            if is_there || is_chosen || is_near() || is_busy(pool, care, slot) {
                continue;
            }
            if let Some(Some((digest, _))) = missing.or(pool.proven_digest(slot)) {
                let to = self.places[self.places.len() - 1 - blocks.len()];
                // No block is led there.
                blocks.push(Moved { key: Key(0), seen: Entry::UNMAPPED, from: slot, digest, to });
            }
        }
        self.mover.load(pool, missing)?;
        if blocks.is_empty() {
            return Ok(false);
        }
        pool.replicas.drop_beyond(pool.replica_budget().saturating_sub(blocks.len() as u64));
        pool.drop_stale_replicas(facts);
        if pool.replicas.stale().is_some() {
            return Err(Stop::GivenUp);
        }
        let count = blocks.len();
        if !self.mover.begin(pool, &mut blocks) {
            // There are no buffers: clients have them.
            return Err(Stop::GivenUp);
        }
        self.places.truncate(self.places.len() - count);
        self.next = next;
        Ok(true)
    }

    /// The place of replicas in the zone.
    fn place(&self) -> u64 {
        1 + u64::from(self.zone)
    }

    /// Claims slots of the container that is kept in the zone, as many as are needed; false if there are none.
    fn claim(&mut self, pool: &mut Pool) -> Result<bool, Stop> {
        let left = self.chosen.iter().skip(self.next.run).map(|&(_, length)| u64::from(length)).sum::<u64>();
        let Some(container) = pool.space.scratch_in(self.zone).filter(|_| left > 0) else { return Ok(false) };
        let mut missing = Missings::default();
        let mut slots: Vec<Slot> = pool.space.slots_of(container).map(Slot).collect();
        slots.retain(|&slot| missing.or(pool.slot_state(slot)) == Some(SlotState::Free) && !pool.space.is_taken(slot));
        self.mover.load(pool, missing)?;
        slots.truncate(left as usize);
        if slots.is_empty() || pool.space.claim(&slots).is_none() {
            return Ok(false);
        }
        pool.forget_wrapped();
        self.places = slots;
        self.places.reverse();
        Ok(true)
    }

    /// What has been copied becomes a replica.
    fn take_in(&mut self, pool: &mut Pool, facts: &Facts) {
        let came = self.mover.take_came();
        let copied = || came.iter().filter(|(_, came)| *came == Came::Copied).map(|(block, _)| block);
        let count = copied().count();
        let has_room =
            count > 0 && matches!(pool.room_for(&Asked::scattered(2 * count), facts.clears_left), Room::Enough);
        let volume = pool.replicas.volume.filter(|_| has_room);
        let volume = volume.filter(|&volume| pool.volume_index(volume).is_some());
        for &Moved { from, digest, to, .. } in copied() {
            let number = pool.replicas.number(from, self.place());
            // A slot that was freed meanwhile needs none.
            let put = volume
                .and_then(|volume| pool.remap(Key::new(volume, number.0), Seen(from, digest), Put::Placed(to, digest)));
            if put.is_some() {
                pool.replicas.add_written(number, to);
                self.made += 1;
            } else {
                pool.space.retire(to, 0);
            }
        }
    }

    /// There is no room for copies: what was counted is forgotten.
    pub(super) fn give_up(&mut self, pool: &mut Pool) {
        self.popular.take(0);
        self.end(pool);
    }

    fn end_zone(&mut self, pool: &mut Pool) {
        self.give_back_places(pool);
        (self.zone, self.next) = (self.zone + 1, Next::default());
        if self.zone == ZONES {
            self.end(pool);
        }
    }

    /// This epoch's copies are made, or cannot be.
    fn end(&mut self, pool: &mut Pool) {
        self.give_back_places(pool);
        self.chosen.clear();
    }

    fn give_back_places(&mut self, pool: &mut Pool) {
        self.places.drain(..).for_each(|place| pool.space.retire(place, 0));
    }
}
