//! Reads from the flash in front of the store. A block from flash with wrong content is read from the store, and only the figures show it. Blocks
//! that writes need, and blocks that are read ahead, come from the store: a write waits for no flash, and disks are fast at consecutive blocks.
//!
//! Each block that is read from flash has a second buffer set aside. So a flash that hangs holds up no request: whatever it keeps, the same blocks
//! can be read from the store at once.

use alloc::vec::Vec;

use crate::api::*;
use crate::data_path::read::FlashRun;
use crate::data_path::read_location::DeviceRead;
use crate::engine::Engine;
use crate::format::entry::Slot;
use crate::metadata::io::Purpose;
use crate::mutant::Mutant;

impl Engine {
    /// Adds a slot to the current run of reads from flash, or begins a new run with it. Returns true if it began a new one.
    pub(crate) fn add_to_flash_run(&mut self, run: &mut FlashRun, slot: Slot, place: u32) -> bool {
        let goes_on = run.first.is_some_and(|(first, _)| self.pool.continues(first, run.length, slot));
        if !goes_on {
            self.read_from_flash(run);
            run.first = Some((slot, place));
        }
        run.length += 1;
        !goes_on
    }

    /// Reads the blocks of the run, and empties it.
    pub(crate) fn read_from_flash(&mut self, run: &mut FlashRun) {
        let length = core::mem::take(&mut run.length);
        let Some((first, place)) = run.first.take() else { return };
        let Some(shape) = self.pool.flash().map(|flash| flash.log().shape) else { return };
        let bytes = length as u64 * self.pool.metadata.geometry().block();
        let memory = &self.pool.memory;
        let segments = (first.0..first.0 + length as u64).map(|slot| Segment::Buffer(memory.fill(Slot(slot)).buffer()));
        let (offset, purpose) = (shape.slot_offset(place, first.0), Purpose::FillFromFlash { first, place });
        self.pool.metadata.io_mut().begin_on_flash(IoOp::ReadBlocks, offset, bytes, segments, purpose);
    }

    /// Takes blocks that have come from flash; blocks with wrong content are read from the store.
    pub(crate) fn filled_from_flash(
        &mut self,
        (first, place): (Slot, u32),
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        let (mut run, mut bad) = (DeviceRead::default(), 0);
        for i in 0..segments.len() {
            let slot = Slot(first.0 + i as u64);
            let content = match result {
                Ok(Outcome::Blocks(contents)) => contents.get(i).copied(),
                _ => None,
            };
            let must_be = self.pool.flash_mut().and_then(|flash| flash.end_read(slot, place));
            let spare = self.pool.take_spare();
            self.pool.memory.buffers_mut().release(spare);
            match content.filter(|content| !content.zero && Some(content.digest) == must_be) {
                Some(content) => {
                    self.fill_ends(slot, Some(content));
                }
                None => {
                    self.add_to_run(&mut run, slot);
                    bad += 1;
                }
            }
        }
        self.read_all_of(&mut run);
        if bad > 0 {
            self.pool.note_bad_flash(result.is_err(), bad);
        }
    }

    /// Stops the use of a flash that does not answer. Blocks that requests wait for are read from the store, into buffers that were set aside for that. The old
    /// ones stay with the I/O until it completes.
    pub(crate) fn flash_is_late(&mut self) {
        self.pool.leave_late_flash();
        let reads: Vec<IoId> = self.pool.metadata.io().reads_of_flash().collect();
        let mut run = DeviceRead::default();
        for io in reads {
            let Some(Purpose::FillFromFlash { first, place }) = self.pool.metadata.io_mut().abandon(io) else {
                continue;
            };
            for i in 0..self.pool.metadata.io().get(io).segments.len() {
                let slot = Slot(first.0 + i as u64);
                self.pool.flash_mut().and_then(|flash| flash.end_read(slot, place));
                let spare = self.pool.take_spare();
                let late = self.pool.memory.redirect_fill(slot, spare);
                if self.pool.mutant(Mutant::ReusedWhileLate) {
                    self.pool.memory.buffers_mut().release(late);
                }
                self.add_to_run(&mut run, slot);
            }
            self.read_all_of(&mut run);
        }
    }

    /// Releases the buffers and pages of an abandoned I/O that has completed at last.
    pub(crate) fn abandoned_ends(&mut self, segments: &[Segment]) {
        if self.pool.mutant(Mutant::ReusedWhileLate) {
            return;
        }
        for &segment in segments {
            match segment {
                Segment::Buffer(buffer) => self.pool.memory.buffers_mut().release(buffer),
                Segment::Page(page) => self.pool.metadata.pages_mut().release(page),
            }
        }
    }
}
