//! The flash copier: copies containers to the flash in front of the store, so that reads take them from there, and keeps the log of the flash.
//!
//! ```text
//! Read      at first, both halves of the log; entries that may still be valid are trusted (pool/flash.rs)
//! Rewrite   these go to the other half under this opening's stamp, and a checkpoint to follow names it. Later: when a half is full
//! Append    a page names the places that are empty by now, and the copy that is complete
//! Copy      a part of a container from the store, each block proven, and to its place
//! ```
//!
//! The order is always the same. The log says durably that a place is empty. The place is written, and synced. The container is checked to be
//! unchanged since the copy began. The log names the content of the place. The place is read. Only one operation is in progress at a time, so a crash
//! in the middle leaves a place to which nothing refers. Only containers whose blocks are all merged and in their slots are copied.
//!
//! Any failure of the flash ends its use until the pool is opened again: reads go to the store. No request waits for this job.

use crate::jobs::job::CopyContext;
use crate::pool::copy_access::CopyAccess;
use alloc::vec;
use alloc::vec::Vec;

use super::Jobs;
use crate::api::*;
use crate::format::entry::Slot;
use crate::format::flash::{Head, LogRecord};
use crate::jobs::job::{Job, JobId};
use crate::metadata::tree::Missing;
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::state::{LoadSnapshot, Phase};

/// Largest number of log pages that are read at once.
const PAGES_AT_ONCE: u32 = 64;
/// Largest number of blocks that are copied at once.
const BLOCKS_AT_ONCE: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CopyStage {
    /// There is no flash, or it is no longer used.
    Off,
    /// Reading the log: the value is the next page, counted over both halves together.
    Read(u32),
    /// Writing a new round of the log: the value is the next page.
    Rewrite(u32),
    RewriteSync,
    Rest,
    Append,
    AppendSync,
    CopyRead,
    CopyWrite,
    CopySync,
}

/// Content of a half of the log, as far as it has been read.
struct Half {
    head: Head,
    pages: u32,
    /// Container and generation that each place holds, by place.
    holds: Vec<Option<(u32, u16)>>,
}

struct ContainerCopy {
    container: u32,
    generation: u16,
    place: u32,
    /// Number of blocks that have been copied.
    done: u32,
    /// True if the whole copy is durable.
    is_complete: bool,
    /// Digests that the blocks of the part in progress must have, if they are in use.
    proofs: Vec<Option<Digest>>,
    /// Buffers of the part in progress.
    buffers: Vec<BufferId>,
}

/// The job that copies containers to flash.
pub(crate) struct FlashCopies {
    at: CopyStage,
    /// True while an I/O of its own is in progress.
    waits: bool,
    is_stuck: bool,
    /// Half of the log in force.
    half: u32,
    /// Round of the half in force, as the heads of its pages state it. When the log is read, the complete half of the later round counts.
    round: u64,
    /// Next page of that half.
    next: u32,
    /// Records that are being written to the log.
    records: Vec<LogRecord>,
    /// Number of places, the first of those that are leaving, that `records` covers or leaves out.
    forgets: usize,
    /// Half that is being read, while the log is read.
    reading: Option<Half>,
    /// Best half read so far, with its number.
    best: Option<(u32, Half)>,
    copy: Option<ContainerCopy>,
}

impl FlashCopies {
    pub(crate) fn new() -> FlashCopies {
        FlashCopies {
            at: CopyStage::Off,
            waits: false,
            is_stuck: false,
            half: 0,
            round: 0,
            next: 0,
            records: Vec::new(),
            forgets: 0,
            reading: None,
            best: None,
            copy: None,
        }
    }
}

impl Jobs {
    /// Begins to read the log of the flash, if there is one; the pool serves from now on.
    pub(crate) fn open_flash(&mut self, pool: &mut Pool) {
        if pool.state.untouched() || pool.state.reads_only() {
            pool.forget_flash();
        }
        if pool.has_flash() {
            self.flash = FlashCopies::new();
            self.flash.at = CopyStage::Read(0);
            self.flash.go(&mut CopyAccess::new(pool));
        }
    }
}

impl Jobs {
    /// Returns true if no work for an earlier flash is in progress.
    pub(crate) fn flash_is_at_rest(&self) -> bool {
        self.flash.at == CopyStage::Off && !self.flash.waits
    }

    /// Stops the use of the flash. I/O in progress ends first.
    pub(crate) fn take_flash_away(&mut self, pool: &mut Pool) {
        if !self.flash.waits {
            self.flash.stop(&mut CopyAccess::new(pool));
        }
    }
}

impl FlashCopies {
    /// Continues with the next operation, if that needs no turn.
    fn go(&mut self, pool: &mut CopyAccess<'_>) {
        self.is_stuck = false;
        let may_go_on = pool.state.phase() == Phase::Serving && !pool.state.read_only() && !pool.state.closes_early();
        if !may_go_on || pool.flash().is_none_or(|flash| flash.is_off()) {
            return self.stop(pool);
        }
        match self.at {
            CopyStage::Off | CopyStage::Rest | CopyStage::CopyRead => {}
            CopyStage::Read(page) => self.read_log(pool, page),
            CopyStage::Rewrite(0) if pool.another_flash_is_trusted() => {
                // The log of the other flash may be on this very device. The checkpoint wakes the engine.
                self.is_stuck = true;
                let asks = !pool.wants_checkpoint() && !pool.checkpoint.is_in_progress();
                pool.request_checkpoint_if(asks);
                if asks {
                    pool.wake();
                }
            }
            CopyStage::Rewrite(page) => self.write_page(pool, page),
            CopyStage::Append => self.write_page(pool, self.next),
            CopyStage::RewriteSync | CopyStage::AppendSync | CopyStage::CopySync => {
                self.begin(pool, IoOp::Sync, 0, 0, &[])
            }
            CopyStage::CopyWrite => self.write_part(pool),
        }
    }

    fn stop(&mut self, pool: &mut CopyAccess<'_>) {
        self.at = CopyStage::Off;
        if let Some(copy) = self.copy.take() {
            copy.buffers.into_iter().for_each(|buffer| pool.release_buffer(buffer));
        }
    }

    fn begin(&mut self, pool: &mut CopyAccess<'_>, op: IoOp, offset: u64, length: u64, segments: &[Segment]) {
        self.waits = true;
        pool.begin_on_flash(op, offset, length, segments, JobId::Flash.io(0));
    }

    // ---- the log ----

    fn read_log(&mut self, pool: &mut CopyAccess<'_>, page: u32) {
        let Some(shape) = pool.flash().map(|flash| flash.log().shape) else { return };
        let (half, within) = (page / shape.half(), page % shape.half());
        if half == 2 {
            return self.trust(pool);
        }
        let pages = PAGES_AT_ONCE.min(shape.half() - within);
        let length = u64::from(pages) * pool.metadata.geometry().block();
        self.begin(pool, IoOp::ReadPages, shape.page_offset(half, within), length, &[]);
    }

    /// Processes pages of the log that have been read.
    fn log_read(&mut self, pool: &Pool, page: u32, bytes: &[u8]) {
        let Some(flash) = pool.flash() else { return };
        let (log, (_, found)) = (flash.log(), flash.stamps());
        let (half, within) = (page / log.shape.half(), page % log.shape.half());
        for (number, bytes) in (within..).zip(bytes.chunks_exact(pool.metadata.geometry().block() as usize)) {
            let page = log.read(bytes).filter(|(head, _)| {
                let is_named = head.stamp == found && found.nonce != 0 || pool.mutant(Mutant::AnyStamp);
                is_named && head.page == number
            });
            let Some((head, records)) = page else { continue };
            if number == 0 {
                self.reading = Some(Half { head, pages: 0, holds: vec![None; log.shape.places() as usize] });
            }
            let goes_on = |half: &&mut Half| half.pages == number && half.head.round == head.round;
            if let Some(reading) = self.reading.as_mut().filter(goes_on) {
                reading.pages += 1;
                reading.head.budget = head.budget;
                records.for_each(|record| reading.holds[record.place as usize] = record.holds);
            }
        }
        if within + PAGES_AT_ONCE >= log.shape.half()
            && let Some(read) = self.reading.take()
            && read.pages >= read.head.first_pages
            && self.best.as_ref().is_none_or(|(_, best)| best.head.round < read.head.round)
        {
            self.best = Some((half, read));
        }
        self.at = CopyStage::Read(half * log.shape.half() + (within + PAGES_AT_ONCE).min(log.shape.half()));
    }

    /// Ends the reading of the log: copies that may still be valid are read from flash from now on, and are recorded in the other half.
    fn trust(&mut self, pool: &mut CopyAccess<'_>) {
        let changed = pool.take_changed_containers();
        let mut held: Vec<(u32, u32, u16)> = Vec::new();
        let mut budget = None;
        if let Some((half, best)) = self.best.take() {
            (self.half, self.round, budget) = (half, best.head.round, Some(best.head.budget));
            let mut known = alloc::collections::BTreeSet::new();
            for (place, holds) in (0..).zip(best.holds) {
                if let Some((container, generation)) = holds
                    && pool.unchanged_generation(container, &changed) == Some(generation)
                    && known.insert(container)
                {
                    held.push((place, container, generation));
                }
            }
        }
        let now = pool.state.now();
        if let Some(flash) = pool.flash_mut() {
            flash.restore(now, &held, budget);
        }
        self.begin_round(pool);
    }

    /// Begins to write all valid copies to the other half of the log.
    fn begin_round(&mut self, pool: &mut CopyAccess<'_>) {
        let Some(flash) = pool.flash() else { return };
        let filled = flash.places().filled();
        self.records = filled
            .map(|(place, container, generation)| LogRecord { place, holds: Some((container, generation)) })
            .collect();
        self.forgets = flash.places().leaving().len();
        (self.half, self.round, self.at) = (1 - self.half, self.round + 1, CopyStage::Rewrite(0));
        self.go(pool);
    }

    /// Writes a page of the log, if there is memory for one.
    fn write_page(&mut self, pool: &mut CopyAccess<'_>, number: u32) {
        let Some(flash) = pool.flash() else { return };
        let (log, (stamp, _), budget) = (flash.log(), flash.stamps(), flash.budget_left(pool.state.now()));
        let Some((page, bytes)) = pool.free_page() else {
            self.is_stuck = true;
            return;
        };
        let all = log.shape.pages_for(self.records.len() as u32);
        let (first_pages, from) = match self.at {
            CopyStage::Rewrite(at) => (all, at as usize * log.shape.per_page()),
            _ => (1, 0),
        };
        let records = &self.records[from..self.records.len().min(from + log.shape.per_page())];
        let head = Head { stamp, round: self.round, page: number, first_pages, budget };
        log.write(bytes, &head, records);
        let block = pool.metadata.geometry().block();
        if let Some(flash) = pool.flash_mut() {
            flash.counts().log_bytes += block;
        }
        let offset = log.shape.page_offset(self.half, number);
        self.begin(pool, IoOp::Write, offset, block, &[Segment::Page(page)]);
    }

    /// Notes that the log is durable as it was written.
    fn log_written(&mut self, pool: &mut CopyAccess<'_>, is_new_round: bool) {
        let Some(flash) = pool.flash_mut() else { return };
        flash.forgotten(core::mem::take(&mut self.forgets));
        self.at = CopyStage::Rest;
        if is_new_round {
            self.next = flash.log().shape.pages_for(self.records.len() as u32);
            flash.stamped();
            pool.request_checkpoint_if(!pool.flash_is_trusted());
        } else if let Some(copy) = self.copy.take_if(|copy| copy.is_complete) {
            flash.fill(copy.place, copy.container, copy.generation);
            // The container may have been opened while the log was written.
            pool.follow_changed_containers();
        }
        pool.wake();
    }

    /// Appends the changes to the log, at most a page of them.
    fn append(&mut self, pool: &mut CopyAccess<'_>) {
        let Some(flash) = pool.flash() else { return };
        let shape = flash.log().shape;
        if self.next == shape.half() {
            return self.begin_round(pool);
        }
        let leaving = flash.places().leaving().iter().take(shape.per_page() - 1);
        self.records = leaving.map(|&place| LogRecord { place, holds: None }).collect();
        self.forgets = self.records.len();
        if let Some(copy) = self.copy.as_ref().filter(|copy| copy.is_complete) {
            self.records.push(LogRecord { place: copy.place, holds: Some((copy.container, copy.generation)) });
        }
        self.at = CopyStage::Append;
        self.go(pool);
    }

    // ---- copies ----

    /// Chooses the next operation, when none is in progress.
    fn choose(&mut self, pool: &mut CopyAccess<'_>) {
        pool.follow_changed_containers();
        if self.copy.as_ref().is_some_and(|copy| copy.is_complete) && !self.is_still_so(pool) {
            self.give_up(pool);
        }
        let Some(flash) = pool.flash() else { return };
        let is_complete = self.copy.as_ref().is_some_and(|copy| copy.is_complete);
        if is_complete || !flash.places().leaving().is_empty() {
            return self.append(pool);
        }
        match &self.copy {
            Some(copy) if flash.places().is_free(copy.place) => self.at = CopyStage::CopyRead,
            Some(_) => {}
            None => self.choose_container(pool),
        }
    }

    /// Returns true if the container that is being copied has not been opened since. (With the mutant, its current generation is accepted.)
    fn is_still_so(&mut self, pool: &Pool) -> bool {
        let Some(copy) = &mut self.copy else { return false };
        let now = pool.durable.space().containers()[copy.container as usize].generation;
        if pool.mutant(Mutant::CopyOfOpened) {
            copy.generation = now;
        }
        copy.generation == now
    }

    fn choose_container(&mut self, pool: &mut CopyAccess<'_>) {
        if !pool.flash_is_trusted() {
            return;
        }
        while let Some(container) = pool.flash().and_then(|flash| flash.next_wanted()) {
            let offered = if may_be_copied(pool, container) { pool.offer_to_flash(container) } else { Ok(None) };
            let place = match offered {
                Ok(place) => place,
                Err(missing) => {
                    self.is_stuck = true;
                    return pool.load(missing);
                }
            };
            let at_once = pool.mutant(Mutant::EarlyPlace);
            let generation = pool.durable.space().containers()[container as usize].generation;
            let Some(flash) = pool.flash_mut() else { return };
            flash.drop_wanted();
            if let Some(place) = place {
                flash.evict(place, at_once);
                let (proofs, buffers) = (Vec::new(), Vec::new());
                self.copy =
                    Some(ContainerCopy { container, generation, place, done: 0, is_complete: false, proofs, buffers });
                pool.wake();
                return;
            }
        }
    }

    fn give_up(&mut self, pool: &mut CopyAccess<'_>) {
        if let Some(copy) = self.copy.take() {
            copy.buffers.into_iter().for_each(|buffer| pool.release_buffer(buffer));
            if let Some(flash) = pool.flash_mut() {
                flash.give_up(copy.container);
            }
        }
        self.at = CopyStage::Rest;
        pool.wake();
    }

    /// Reads a part of the container.
    fn read_part(&mut self, pool: &mut CopyAccess<'_>, load: &LoadSnapshot) {
        let Some(copy) = &mut self.copy else { return };
        let slots = pool.durable.space().slots_of(copy.container);
        let first = slots.start + u64::from(copy.done);
        let is_settled = may_be_copied(pool, copy.container);
        if copy.generation != pool.durable.space().generation(Slot(first)) && !pool.mutant(Mutant::CopyOfOpened)
            || !is_settled
        {
            return self.give_up(pool);
        }
        let spare = (pool.memory.buffers().free() + pool.memory.cache().len()) / 4;
        let count = BLOCKS_AT_ONCE.min(spare).min((slots.end - first) as usize);
        if count == 0 || load.out_of_buffers {
            self.is_stuck = true;
            return;
        }
        match proofs_of(pool, first..first + count as u64) {
            Ok(proofs) => copy.proofs = proofs,
            Err(missing) if pool.metadata.has_failed(missing.key) => return self.give_up(pool),
            Err(missing) => {
                self.is_stuck = true;
                return pool.load(missing);
            }
        }
        copy.buffers.extend(core::iter::from_fn(|| pool.any_buffer()).take(count));
        if copy.buffers.len() < count {
            copy.buffers.drain(..).for_each(|buffer| pool.release_buffer(buffer));
            self.is_stuck = true;
            return;
        }
        pool.read_slots(Slot(first), &copy.buffers, JobId::Flash.io(0));
        self.waits = true;
    }

    /// Returns true if each block of a part that was read has the digest that it must have.
    fn is_proven(&self, pool: &Pool, result: Result<Outcome<'_>, IoError>) -> bool {
        let (Some(copy), Ok(Outcome::Blocks(contents))) = (&self.copy, result) else { return false };
        let is_right = |(content, proof): (&BlockContent, &Option<Digest>)| {
            proof.is_none_or(|digest| !content.zero && content.digest == digest)
        };
        let is_right = contents.len() == copy.proofs.len() && contents.iter().zip(&copy.proofs).all(is_right);
        is_right || pool.mutant(Mutant::CopyOfDirty)
    }

    fn write_part(&mut self, pool: &mut CopyAccess<'_>) {
        let Some(copy) = &self.copy else { return };
        let Some(shape) = pool.flash().map(|flash| flash.log().shape) else { return };
        let length = copy.buffers.len() as u64 * pool.metadata.geometry().block();
        let offset = shape.slot_offset(copy.place, copy.done.into());
        let segments: Vec<Segment> = copy.buffers.iter().copied().map(Segment::Buffer).collect();
        if let Some(flash) = pool.flash_mut() {
            flash.counts().copied_bytes += length;
        }
        self.begin(pool, IoOp::Write, offset, length, &segments);
    }

    fn part_written(&mut self, pool: &mut CopyAccess<'_>) {
        let Some(copy) = &mut self.copy else { return };
        copy.done += copy.buffers.len() as u32;
        copy.buffers.drain(..).for_each(|buffer| pool.release_buffer(buffer));
        let is_all = copy.done == pool.metadata.geometry().slots_per_container;
        self.at = if is_all { CopyStage::CopySync } else { CopyStage::CopyRead };
        pool.wake();
    }

    /// Returns true if there is work, when no operation is in progress.
    fn has_work(&self, pool: &Pool) -> bool {
        let Some(flash) = pool.flash() else { return false };
        let copy = match &self.copy {
            Some(copy) => copy.is_complete || flash.places().is_free(copy.place),
            None => flash.wants_any() && pool.flash_is_trusted(),
        };
        copy || !flash.places().leaving().is_empty() || pool.durable.space().has_changed()
    }
}

/// Returns true if the content of a container is unchanged until it is opened again, and all of it is in its slots.
fn may_be_copied(pool: &Pool, container: u32) -> bool {
    let is_dirty = || pool.durable.space().slots_of(container).any(|slot| pool.memory.is_dirty(Slot(slot)));
    pool.mutant(Mutant::CopyOfDirty) || pool.durable.space().is_settled(container) && !is_dirty()
}

/// Returns the digests that slots must hold, for those that are in use.
fn proofs_of(pool: &mut CopyAccess<'_>, slots: core::ops::Range<u64>) -> Result<Vec<Option<Digest>>, Missing> {
    slots.map(|slot| Ok(pool.proven_digest(Slot(slot))?.map(|(digest, _)| digest))).collect()
}

impl Job for FlashCopies {
    type Work<'a> = CopyContext<'a>;

    fn is_in_progress(&self) -> bool {
        self.at != CopyStage::Off
    }

    #[inline]
    fn can_step(&self, pool: &Pool, _: &LoadSnapshot) -> bool {
        self.at != CopyStage::Off && !self.waits && (self.at != CopyStage::Rest || self.has_work(pool))
    }

    fn can_advance(&self) -> bool {
        false
    }

    fn step(&mut self, work: &mut CopyContext<'_>) {
        self.go(&mut work.pool);
        if self.at == CopyStage::Rest {
            self.choose(&mut work.pool);
        }
        if self.at == CopyStage::CopyRead && !self.waits {
            self.read_part(&mut work.pool, &work.load);
        }
    }

    fn is_stuck(&self, _: &Pool) -> bool {
        self.is_stuck
    }

    fn done(&mut self, work: &mut CopyContext<'_>, _: u32, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        let pool = &mut work.pool;
        self.waits = false;
        if let Some(&Segment::Page(page)) = segments.first() {
            pool.release_page(page);
        }
        match (self.at, result) {
            (CopyStage::CopyRead, _) if self.is_proven(pool, result) => self.at = CopyStage::CopyWrite,
            // A read or a scrub will find a damaged block.
            (CopyStage::CopyRead, _) => self.give_up(pool),
            (_, Err(_)) => pool.switch_flash_off(),
            (CopyStage::Read(page), Ok(Outcome::Bytes(bytes))) => self.log_read(pool, page, bytes),
            (CopyStage::Rewrite(page), _) => {
                let pages = pool.flash().map_or(0, |flash| flash.log().shape.pages_for(self.records.len() as u32));
                self.at = if page + 1 < pages { CopyStage::Rewrite(page + 1) } else { CopyStage::RewriteSync };
            }
            (CopyStage::RewriteSync, _) => self.log_written(pool, true),
            (CopyStage::Append, _) => (self.next, self.at) = (self.next + 1, CopyStage::AppendSync),
            (CopyStage::AppendSync, _) => self.log_written(pool, false),
            (CopyStage::CopyWrite, _) => self.part_written(pool),
            (CopyStage::CopySync, _) => {
                if let Some(copy) = &mut self.copy {
                    copy.is_complete = true;
                }
                self.at = CopyStage::Rest;
            }
            _ => {}
        }
        pool.wake();
        self.go(pool);
    }

    /// Returns the number of reads of the store: writes to flash do not hold up the throttle.
    fn in_flight(&self) -> usize {
        usize::from(self.waits && self.at == CopyStage::CopyRead)
    }
}
