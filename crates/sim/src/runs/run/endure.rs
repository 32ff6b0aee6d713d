//! Fault tolerance of a run: errors that faults explain, permitted losses, and reopening of the pool.
//!
//! Conditions that must hold (docs/internals/fault-model.md):
//! - reads return only contents that the model allows, always; a read may fail only while a fault strikes reads, or after a write failed;
//! - a host without space for writes makes no pool read-only: flushes and changes may fail with it, and succeed when there is space;
//! - the pool becomes read-only only after a write or a sync failed, or a read of metadata failed or returned other content;
//! - an opening is refused only because of a fault, and succeeds when the faults are lifted;
//! - a pool that has failed stays so when it is opened again: it is read, and refuses changes, until it is repaired;
//! - all promises hold when the pool is opened again. The exception is an opening that itself saw damaged or stale blocks, and succeeded. It may have cut the
//!   journal, down to the state proven by a superblock, or by the watermark of a record that the chain reaches without one of those blocks.

use engine::{Command, ControlError, Error, Mode, Nanos, OpenError, Superblock};

use crate::content::{Content, digest};
use crate::oracle::model::{Existence, ModelVolume, Promise};
use crate::runs::flip::PUBLISHED;
use crate::runs::run::{Pending, Run, Unsealed};
use crate::runs::workload::Operation;
use crate::world::disk::{Cut, Disk};
use crate::world::faults::{Class, Struck};
use crate::world::{RecordNote, Step, World};
use crate::{Checked, violated};

/// Number of steps without an answer after which the faults are lifted: waiting requests must come to their end then.
const PATIENCE: u64 = 3_000;

impl Run {
    /// Allows faults to strike from here on, with a secure state as a floor.
    pub(crate) fn begin_enduring(&mut self) -> Checked {
        self.endures = true;
        self.is_exact = false;
        self.world.faults.notes_records = true;
        self.world.disk.remember_previous();
        self.secure()
    }

    /// Makes everything durable by a checkpoint. Then waits until data that the checkpoint need not contain (the size of a volume) are known to be durable.
    /// The result is a floor that no damage of the journal can remove. Only for a pool without damage.
    pub(crate) fn secure(&mut self) -> Checked {
        self.settle()?;
        self.rest()?;
        let until = self.world.now + PUBLISHED;
        while self.step(until)? != Step::Quiet {}
        self.note_secured();
        Ok(())
    }

    fn note_secured(&mut self) {
        let promise = self.model.secured();
        let sealed = newest(&self.world.disk, |_| true, self.config.parameters.geometry.place_b);
        let watermark = sealed.map_or(0, |superblock| superblock.watermark());
        self.world.records.clear();
        // No record has this number: it is a promise only.
        self.world.records.push(RecordNote { sequence: 0, watermark, promise, pages: Vec::new(), page_count: 0 });
    }

    /// Returns true if the engine refuses changes because of a failure.
    pub(crate) fn has_failed(&self) -> bool {
        self.world.engine.status().mode == Mode::ReadOnly
    }

    /// Checks that the pool is read-only only if a fault explains it, and counts the failure once.
    pub(crate) fn check_mode(&mut self) -> Checked {
        if self.has_failed() && !self.failed_before {
            let Struck { pages, writes, .. } = self.world.faults.struck;
            if pages + writes == 0 {
                return violated("the pool has become read-only, and no write, sync or read of metadata failed");
            }
            if !std::mem::replace(&mut self.is_counted, true) {
                self.counts.failed += 1;
            }
        }
        Ok(())
    }

    /// Returns true if faults explain that a request failed; `before` has the strikes at its submission.
    pub(crate) fn is_explained(&self, pending: &Pending, error: Error, before: Struck) -> bool {
        let now = self.world.faults.struck;
        let unreadable = now.reads > before.reads || now.writes > 0;
        let failed = || self.has_failed() && (self.failed_before || now.pages + now.writes > 0);
        self.endures
            && match (pending, error) {
                (Pending::Read { .. } | Pending::Extents { .. }, Error::Io) => unreadable,
                (Pending::Change { .. }, Error::Io) => unreadable || failed(),
                (Pending::Change { .. }, Error::ReadOnly) | (Pending::Flush { .. }, Error::Io) => failed(),
                (Pending::Flush { .. }, Error::NoSpace) => self.lacks_host_space_by_fault(before),
                _ => false,
            }
    }

    /// Returns true if faults explain that a command failed. Its change may have happened or not, as the model assumes while it is in flight.
    pub(crate) fn is_command_explained(&mut self, pending: &Pending, error: ControlError) -> bool {
        let reserves = self.world.faults.struck.reserves > 0;
        match (pending, error) {
            (Pending::Grow { .. }, ControlError::NoHostSpace) if reserves => {
                self.growing = None;
                true
            }
            (Pending::Create { name, .. }, ControlError::NoSpace) if self.lacks_space_by_fault() => {
                self.model.end_create(name, false);
                true
            }
            (Pending::Snapshots { first }, ControlError::NoSpace) if self.lacks_space_by_fault() => {
                self.model.end_snapshots(*first, false).is_ok()
            }
            (Pending::RollBack { volume }, ControlError::NoSpace) if self.lacks_space_by_fault() => {
                self.model.end_rollback(*volume, false);
                true
            }
            (_, ControlError::ReadOnly) => self.has_failed(),
            // Mappings in the map buffer stay there.
            (Pending::Settle, ControlError::NoSpace) if self.lacks_space_by_fault() => {
                self.is_unsettled = true;
                true
            }
            (Pending::Close { .. }, ControlError::HostFull) => reserves || self.world.faults.struck.full > 0,
            (Pending::Close { .. }, ControlError::NotDurable) => self.world.faults.struck.full > 0,
            (_, ControlError::NoSpace) => self.lacks_space_by_fault(),
            _ => false,
        }
    }

    /// Returns true if space may be short because none could be reserved, or because pages that locate it are unreadable.
    pub(crate) fn lacks_space_by_fault(&self) -> bool {
        self.endures && self.world.faults.struck.reserves + self.world.faults.struck.pages > 0
    }

    /// Returns true if a request may have failed because the host has no space for writes; `before` has the strikes at its submission.
    pub(crate) fn lacks_host_space_by_fault(&self, before: Struck) -> bool {
        self.endures && (self.world.faults.struck.full > before.full || self.world.engine.lacks_space())
    }

    /// Makes a step of the world; lifts the faults if nothing else could end a wait.
    pub(crate) fn step_under_faults(&mut self, horizon: Nanos) -> Checked<Step> {
        self.world.promise = self.model.promise();
        if self.steps_without_answer > PATIENCE && (self.world.faults.are_on() || self.world.held() > 0) {
            self.lift();
            self.steps_without_answer = 0;
        }
        let step = self.world.step(horizon)?;
        if step == Step::Quiet && horizon == Nanos::MAX && self.world.held() > 0 {
            self.lift();
            return self.world.step(horizon);
        }
        Ok(step)
    }

    /// Lifts the faults. During an opening, damage to one of two copies becomes permanent.
    pub(crate) fn lift(&mut self) {
        if self.opened.is_none() {
            self.world.disk.keep_damaged_copies();
        }
        self.world.lift_faults();
    }

    /// Performs an operation that needs other steps while faults may strike. Returns false for other operations.
    pub(crate) fn endure(&mut self, operation: &Operation) -> Checked<bool> {
        self.check_mode()?;
        let commands = matches!(
            operation,
            Operation::CreateVolume { .. }
                | Operation::DeleteVolume { .. }
                | Operation::Snapshot { .. }
                | Operation::Clone { .. }
                | Operation::DeleteSnapshot { .. }
                | Operation::Hold { .. }
                | Operation::Rename { .. }
                | Operation::RenameSnapshot { .. }
                | Operation::Protect { .. }
                | Operation::ResizeVolume { .. }
                | Operation::SetVolume { .. }
                | Operation::SetTiming { .. }
                | Operation::SetPool { .. }
                | Operation::Grow { .. }
                | Operation::Scrub(_)
                | Operation::Dedup(_)
                | Operation::Relocate(_)
                | Operation::SecondCopies(_)
                | Operation::IndexCopy(_)
                | Operation::SetCache(_)
                | Operation::CacheKey(_)
                | Operation::Replicas(_)
        );
        let is_there = |volume: &ModelVolume| volume.id.is_some() && volume.existence == Existence::Certain;
        let needs_volume = !self.model.volumes().iter().any(is_there);
        match *operation {
            _ if (commands || needs_volume) && self.has_failed() && !operation.ends_engine() => {}
            Operation::Settle => {
                self.drain()?;
                if !self.has_failed() {
                    self.settle()?;
                }
            }
            Operation::Reopen | Operation::CloseEarly { .. } => self.close_and_open()?,
            Operation::Crash { cut, .. } => self.open_under_faults(cut)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Closes as far as that is possible, and opens again.
    pub(crate) fn close_and_open(&mut self) -> Checked {
        self.drain()?;
        self.closed = None;
        let early = self.random.one_in(4);
        let token = self.token(Pending::Close { early });
        self.world.control(token, if early { Command::CloseEarly } else { Command::Close });
        self.drain()?;
        self.rest()?;
        if matches!(self.closed, Some(Ok(()) | Err(ControlError::HostFull | ControlError::NoCheckpoint))) {
            self.model.closed();
        }
        let cut = self.random.pick(&[Cut::Lost, Cut::Kept, Cut::Torn]);
        self.open_under_faults(cut)
    }

    /// Applies a crash, and opens the pool under the present faults. If that is refused, the faults are lifted, and it must open.
    pub(crate) fn open_under_faults(&mut self, cut: Cut) -> Checked {
        self.check_mode()?;
        let before = match self.unsealed.take() {
            Some(before) => before,
            None => {
                let geometry = self.config.parameters.geometry;
                Unsealed { model: self.model.clone(), geometry, growing: self.growing }
            }
        };
        let mut certain: Option<Promise> = None;
        let mut cut = cut;
        loop {
            if Cut::MASKS.contains(&cut) && self.world.disk.has_unsynced() {
                self.world.faults.tally.count(Class::TornWrite);
            }
            self.model = before.model.clone();
            (self.config.parameters.geometry, self.growing) = (before.geometry, before.growing);
            self.begin_opening(cut)?;
            let found = self.world.disk.clone();
            let faulty = self.world.faults.are_on() || self.world.disk.damaged() > 0;
            self.open_fully(None)?;
            let opened = match self.opened {
                Some(Ok(_)) => true,
                Some(Err(error)) if faulty && self.is_refusal_explained(error) => false,
                ref other => return violated(format!("opening came to {other:?}, and no fault explains it")),
            };
            let proven = (!self.world.faults.touched.is_empty()).then(|| self.proven(&found));
            if !opened {
                self.counts.refused += 1;
                self.lift();
                self.rest()?;
            }
            // An opening that was refused before the seal has cut nothing.
            if let Some(promise) =
                proven.filter(|_| opened || self.newest_on(&self.world.disk) != self.newest_on(&found))
            {
                certain = Some(certain.map_or(promise, |certain| certain.min(promise)));
            }
            if opened {
                break;
            }
            cut = self.random.pick(&[Cut::Lost, Cut::Kept, Cut::Torn, Cut::Kill]);
        }
        if let Some(certain) = certain {
            self.counts.doubtful += 1;
            self.model = before.model.clone();
            self.model.crash_since(certain);
        }
        self.serve()?;
        if self.failed_before {
            // It has written nothing: the records that the next opening accepts depend on the state before this one.
            self.unsealed = Some(before);
            self.counts.read_only += 1;
        } else {
            self.world.disk.keep_damaged_copies();
            if certain.is_some() {
                self.keep_accepted_slots();
            }
            self.note_secured();
        }
        Ok(())
    }

    /// Makes damage permanent where the opening accepted it. The opening may have cut the journal, since writes to it seemed lost, and later writes got the
    /// freed slots. Where those writes were lost as well, the slots still hold contents that the opening accepted. A write that is missing when the pool is
    /// opened again must not reach a slot that has got another content since.
    pub(crate) fn keep_accepted_slots(&mut self) {
        let (engine, disk) = (&self.world.engine, &self.world.disk);
        let block = self.config.parameters.geometry.block();
        let mut believed = Vec::new();
        engine.live_slots(&mut |offset, length| World::read_bytes(disk, offset, length), &mut |offset, expected| {
            let at = offset / block;
            let holds = |content: &Content| digest(&content.to_cells()) == expected;
            if disk.is_damaged(at) && holds(disk.read(at)) && !holds(disk.pristine(at)) {
                believed.push(at);
            }
        });
        believed.into_iter().for_each(|at| self.world.disk.keep_damage(at));
    }

    /// Lifts the failure of a pool that was found failed, as an explicit repair does: a superblock of a later epoch records no failure.
    pub(crate) fn repair(&mut self) -> Checked {
        self.rest()?;
        // It syncs first, so that the content it reads stays.
        self.world.disk.crash(Cut::Kept, &mut self.random);
        let geometry = self.config.parameters.geometry;
        let Some(found) = newest(&self.world.disk, |_| true, geometry.place_b) else {
            return violated("a pool that was opened has no superblock");
        };
        let repaired = Superblock { epoch: found.epoch + 1, failed: None, ..found };
        let mut block = vec![0; geometry.block_size as usize];
        repaired.encode(&mut block);
        for place in 0..2 {
            let at = geometry.superblock_block(place, repaired.epoch);
            self.world.disk.put(at, Content::Metadata(block.clone().into()));
        }
        Ok(())
    }

    fn newest_on(&self, disk: &Disk) -> Option<Superblock> {
        newest(disk, |_| true, self.config.parameters.geometry.place_b)
    }

    fn is_refusal_explained(&self, error: OpenError) -> bool {
        let Struck { reads, writes, full, .. } = self.world.faults.struck;
        let damaged = !self.world.faults.touched.is_empty();
        match error {
            OpenError::Device { .. } => reads + writes > 0,
            OpenError::HostFull { .. } => full > 0,
            OpenError::DamagedPage { .. } | OpenError::DamagedJournal { .. } => damaged,
            // A stale read returns the record of the opening before.
            OpenError::TakenOver => {
                let owner = self.config.parameters.geometry.owner_block();
                owner.is_some_and(|owner| self.world.faults.touched.contains(&owner))
            }
            OpenError::NoSuperblock | OpenError::UnknownFormat | OpenError::TooLittleMemory { .. } => false,
        }
    }

    /// Returns the promise that the disk proves without the blocks that a read saw damaged or stale. The proof is the newest superblock, and the watermarks
    /// of the records in the chain from there.
    fn proven(&self, disk: &Disk) -> Promise {
        let touched = &self.world.faults.touched;
        let good = |block: u64| !touched.contains(&block);
        let superblock = newest(disk, good, self.config.parameters.geometry.place_b);
        let mut mark = superblock.map_or(0, |superblock| superblock.watermark());
        let mut next = mark + 1;
        let is_there = |record: &&RecordNote| {
            record.pages.len() == record.page_count
                && record.pages.iter().all(|(block, content)| good(*block) && disk.pristine(*block) == content)
        };
        let mut records: Vec<&RecordNote> = self.world.records.iter().filter(|record| record.sequence > 0).collect();
        records.sort_by_key(|record| record.sequence);
        for record in records.into_iter().filter(is_there) {
            if record.sequence == next {
                mark = mark.max(record.watermark);
                next += 1;
            }
        }
        let promises = self.world.records.iter().filter(|record| record.watermark <= mark);
        promises.map(|record| record.promise).max().unwrap_or_default()
    }
}

/// Returns the newest superblock among the good ones of the four slots.
fn newest(disk: &Disk, good: impl Fn(u64) -> bool, place_b: u64) -> Option<Superblock> {
    let slots = [0, 1, place_b, place_b + 1].into_iter().filter(|&block| good(block));
    let valid = slots.filter_map(|block| Superblock::decode(&disk.pristine(block).to_bytes(disk.block_size())).ok());
    Superblock::newest(&valid.collect::<Vec<_>>()).ok()
}
