//! Read locations of blocks: the slots that the map names, or alternate ones. See docs/internals/read-path.md.
//!
//! The content of a slot may be at another place, too: in its replica, or in a slot that the index names for the same content. On an SSD a replica is
//! read where a run begins with it. On an HDD both are kept as candidates until the run ends. The longer one is read, or the cheaper one from the
//! position of the heads (`Pool::prefers_alternate`).
//!
//! Nothing depends on another place. Its content is checked, to the last bit where only the index has named the place. A block with wrong content is
//! read from its slot.

use alloc::vec::Vec;

use crate::api::*;
use crate::engine::Engine;
use crate::format::entry::Slot;
use crate::metadata::io::Purpose;
use crate::mutant::Mutant;
use crate::pool::replicas::{AlternateLocation, Number};

/// Slots of one device read.
#[derive(Default)]
pub(crate) struct DeviceRead {
    /// First of the slots, as long as they are consecutive.
    primary: Option<Slot>,
    /// First of other places with their content, as long as these are consecutive.
    alternate: Option<Slot>,
    length: usize,
    /// The slots, where there are other places. Without those they follow from the first.
    slots: Vec<AlternateLocation>,
}

impl Engine {
    /// Adds a slot to the current run of reads, or begins a new run with it. Returns true if it began a new one.
    pub(crate) fn add_to_run(&mut self, run: &mut DeviceRead, slot: Slot) -> bool {
        let other = self.other_place(slot);
        let goes_on =
            |first: Option<Slot>, at: Slot| first.is_some_and(|first| self.pool.continues(first, run.length, at));
        let at_primary = goes_on(run.primary, slot);
        if other.is_none() && run.alternate.is_none() {
            // Most blocks have one place only.
            if !at_primary {
                self.read_all_of(run);
                run.primary = Some(slot);
            }
            run.length += 1;
            return !at_primary;
        }
        let alternate = other.is_some_and(|(place, _)| goes_on(run.alternate, place));
        let begins = !at_primary && !alternate;
        if begins {
            self.read_all_of(run);
            // The new run may read at the alternate place, too.
            run.alternate = other.map(|(place, _)| place).filter(|&place| !self.pool.hints.replicas.holds(place));
            run.primary = (run.alternate.is_none() || self.pool.device().is_rotational).then_some(slot);
        } else {
            run.primary = run.primary.filter(|_| at_primary);
            run.alternate = run.alternate.filter(|_| alternate);
        }
        run.length += 1;
        if let (Some(_), Some((_, alternate))) = (run.alternate, other) {
            run.slots.push(alternate);
        }
        begins
    }

    /// Begins the device read of the collected slots, from the slots or from another place with their contents, and empties the run; reads nothing if the run
    /// is empty.
    pub(crate) fn read_all_of(&mut self, run: &mut DeviceRead) {
        match (run.primary.take(), run.alternate.take()) {
            (primary, Some(place)) if self.pool.prefers_alternate(primary, place, run.length) => {
                self.read_alternate(place, &run.slots);
            }
            (Some(primary), _) => {
                if self.pool.makes_copies() {
                    self.jobs.replicate.note_read(&self.pool, primary, run.length);
                }
                self.read_run(primary, run.length);
            }
            (None, _) => {}
        }
        run.length = 0;
        run.slots.clear();
    }

    /// Returns the place of a slot's sequential replica (not of its copies in scratch zones); `None` if it has none, or while that is being written, read or
    /// repaired.
    pub(crate) fn replica_of(&self, slot: Slot) -> Option<Slot> {
        self.pool.hints.replicas.of(slot).filter(|&replica| self.is_at_rest(replica))
    }

    /// Returns another place with a slot's content: a replica, a copy, or the slot that the index names, with the content that it must have.
    fn other_place(&mut self, slot: Slot) -> Option<(Slot, AlternateLocation)> {
        if let Some(replica) = self.replica_of(slot) {
            let number = Some(self.pool.hints.replicas.number(slot, 0));
            return Some((replica, AlternateLocation { slot, replica: number, hinted: None }));
        }
        if !self.pool.device().is_rotational {
            return None;
        }
        if self.pool.hints.replicas.has_copies()
            && let Some((number, copy)) = self.nearest_copy(slot)
        {
            return Some((copy, AlternateLocation { slot, replica: Some(number), hinted: None }));
        }
        let (place, digest) = self.pool.hinted_place(slot)?;
        let alternate = AlternateLocation { slot, replica: None, hinted: Some(digest) };
        (!self.repairs.is_repairing(place)).then_some((place, alternate))
    }

    /// Returns the copy of a slot in a scratch zone that is nearest to the heads.
    fn nearest_copy(&self, slot: Slot) -> Option<(Number, Slot)> {
        let head = self.pool.metadata.io().head();
        let copies = self.pool.hints.replicas.copies_of(slot).filter(|&(_, at)| self.is_at_rest(at));
        copies.min_by_key(|&(_, at)| self.pool.slot_offset(at).abs_diff(head))
    }

    /// Returns true if a read may go to a replica: it is on the device, and no write, read or repair of it is in progress.
    fn is_at_rest(&self, at: Slot) -> bool {
        !self.pool.memory.is_dirty(at) && !self.pool.hints.replicas.holds(at) && !self.repairs.is_repairing(at)
    }

    /// Reads the content of slots at other, consecutive places.
    fn read_alternate(&mut self, first: Slot, slots: &[AlternateLocation]) {
        let bytes = slots.len() as u64 * self.pool.metadata.geometry().block();
        let offset = self.pool.slot_offset(first);
        self.pool.hints.replicas.begin_read(first, slots);
        let memory = &self.pool.memory;
        let segments = slots.iter().map(|of| Segment::Buffer(memory.fill(of.slot).buffer()));
        self.pool.metadata.io_mut().begin(IoOp::ReadBlocks, offset, bytes, segments, Purpose::FillAlternate { first });
    }

    /// Takes blocks that have come from other places. A place with a wrong block is given up, and the block is read from its slot.
    pub(crate) fn filled_alternate(&mut self, first: Slot, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        for i in 0..segments.len() {
            let place = Slot(first.0 + i as u64);
            let AlternateLocation { slot, replica, hinted } = self.pool.hints.replicas.end_read(place);
            let content = match result {
                Ok(Outcome::Blocks(contents)) => contents.get(i).copied(),
                _ => None,
            };
            if content.is_some_and(|content| self.is_right(slot, hinted, content)) {
                self.fill_ends(slot, content);
                continue;
            }
            self.pool.hints.replicas.was_wrong(replica, place);
            // Applies also to a read error: that place is never repaired, and each read would wait for the error.
            if let Some(digest) = hinted {
                let known = self.pool.sharing_digest(digest);
                self.pool.hints.index.remove(known, place);
            }
            if self.pool.memory.fill(slot).is_wanted() {
                self.read_run(slot, 1);
            } else {
                self.fill_ends(slot, None);
            }
        }
        self.pool.wake();
    }

    /// Returns true if the content that was read elsewhere is the content of the slot.
    fn is_right(&self, slot: Slot, hinted: Option<Digest>, content: BlockContent) -> bool {
        let is_proven = hinted.is_none_or(|digest| digest == content.digest);
        let is_like = self.passes(slot, self.pool.memory.fill(slot).check(), content);
        is_like && (is_proven || self.pool.mutant(Mutant::UncheckedPlace))
    }
}
