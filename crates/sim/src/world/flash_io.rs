//! I/O of the flash, and the oracle's judgement of the content read from it.

use engine::{Device, Event, Io, IoError, IoId, IoOp, Nanos, Outcome, Segment};

use crate::content::{Content, describe};
use crate::world::flash::{Flash, LONGEST_HANG};
use crate::world::{Flight, Happening, Step, World};
use crate::{Checked, violated};

/// Time that the driver waits for the flash.
const LATE_NANOS: Nanos = 3_000_000_000;

impl World {
    /// Puts flash in front of the store, before the engine's first event.
    pub fn attach_flash(&mut self, mut flash: Flash) {
        if let Some(parameters) = flash.parameters() {
            self.engine.set_flash(parameters);
        }
        self.flash = Some(flash);
    }

    /// Takes the flash away while the pool serves.
    pub fn detach_flash(&mut self) -> Checked {
        let Some(flash) = self.flash.as_mut().filter(|flash| !flash.is_away()) else { return Ok(()) };
        flash.leave();
        self.trace.note(self.now, 14, &[], || "the flash is taken away".to_string());
        self.engine.detach_flash();
        match self.engine.status().flash {
            Some(flash) => violated(format!("the flash was taken away, and the engine has it: {flash:?}")),
            None => Ok(()),
        }
    }

    /// Puts the flash in front of the serving pool again. Returns false if that is impossible now.
    pub fn attach_again(&mut self) -> Checked<bool> {
        if self.flash_has_something() {
            return Ok(false);
        }
        let Some(flash) = &mut self.flash else { return Ok(false) };
        let before = flash.clone();
        let Some(parameters) = flash.come_back() else { return Ok(false) };
        let is_taken = self.engine.attach_flash(parameters);
        self.trace.note(self.now, 15, &[u64::from(is_taken)], || format!("the flash is back, taken: {is_taken}"));
        if !is_taken {
            self.flash = Some(before);
        }
        let status = self.engine.status().flash;
        if is_taken != status.is_some_and(|flash| flash.filled == 0 && flash.found == 0) {
            return violated(format!("a flash was attached: {is_taken}, and {status:?}"));
        }
        Ok(is_taken)
    }

    /// Counts all changes of state that a crash could reveal.
    pub fn changes(&self) -> u64 {
        self.disk.changes() + self.flash.as_ref().map_or(0, |flash| flash.disk.changes())
    }

    pub(super) fn begin_on_flash(&mut self, id: IoId, io: Io) -> Checked<Step> {
        let block = self.parameters.geometry.block();
        let Some(flash) = &mut self.flash else {
            return violated(format!("there is no flash for {io:?}"));
        };
        let is_transfer = io.op != IoOp::Sync;
        let is_aligned = io.offset.is_multiple_of(block) && io.length.is_multiple_of(block) && io.length > 0;
        if is_transfer && (!is_aligned || io.offset + io.length > flash.disk.blocks() * block) {
            return violated(format!("an I/O that is empty, unaligned or outside the flash: {io:?}"));
        }
        if !flash.may_be_asked() {
            return violated(format!("{io:?}, and the flash was taken away, or hangs"));
        }
        let (fails, hangs) = (flash.strikes(), flash.hangs());
        let mut payload = Vec::new();
        match io.op {
            IoOp::ReadBlocks | IoOp::ReadPages => {}
            IoOp::Sync => flash.disk.submit_sync(id.0),
            IoOp::Write => {
                let contents = io.segments.iter().map(|segment| match *segment {
                    Segment::Page(page) => Content::Metadata(self.engine.page(page).into()),
                    Segment::Buffer(buffer) => {
                        let cells = self.buffers.cells(buffer);
                        payload.push((buffer, cells));
                        Content::Payload(cells)
                    }
                });
                if !flash.disk.submit_write(id.0, io.offset / block, contents.collect()) {
                    return violated(format!("{io:?} overlaps a write of flash in flight"));
                }
            }
            _ => return violated(format!("an I/O that is none for flash: {io:?}")),
        }
        if fails && io.op == IoOp::Sync {
            flash.disk.will_fail(id.0);
        }
        self.buffers.hold(&io)?;
        let delay = self.latency(&io) / 4 + 1;
        match hangs {
            None => self.schedule(delay, Happening::Done(id)),
            Some(time) => {
                self.trace
                    .note(self.now, 16, &[u64::from(id.0), time], || format!("  io {} hangs for {time} ns", id.0));
                // An I/O that takes longer than any wait completes when it is let go.
                match time < LONGEST_HANG {
                    true => self.schedule(delay + time, Happening::Done(id)),
                    false => self.held.push(id),
                }
                self.schedule(LATE_NANOS, Happening::FlashLate(id));
            }
        }
        self.flights.insert(id, Flight { io, begun: self.now, payload, is_chosen: fails, fault: None, hash: 0 });
        Ok(Step::Submitted)
    }

    /// Tells the engine that the flash is late, if an I/O of it is still in flight when the driver stops waiting.
    pub(super) fn flash_is_late(&mut self, id: IoId) -> Step {
        let is_late = |flight: &Flight| flight.io.device == Device::Flash && flight.begun + LATE_NANOS <= self.now;
        if self.flights.get(&id).is_some_and(is_late) {
            self.trace.note(self.now, 17, &[u64::from(id.0)], || format!("io {} of flash is late", id.0));
            self.flash.iter_mut().for_each(Flash::give_up);
            self.engine.handle(self.now, Event::FlashLate);
        }
        Step::Passed
    }

    /// Completes the I/O of flash that hangs.
    pub(crate) fn let_flash_go(&mut self) {
        let is_of_flash = |id: &IoId| self.flights.get(id).is_some_and(|flight| flight.io.device == Device::Flash);
        let (of_flash, others) = std::mem::take(&mut self.held).into_iter().partition::<Vec<_>, _>(is_of_flash);
        self.held = of_flash;
        self.let_go(usize::MAX);
        self.held = others;
    }

    /// Returns true if I/O of the flash is in flight.
    pub(crate) fn flash_has_something(&self) -> bool {
        self.flights.values().any(|flight| flight.io.device == Device::Flash)
    }

    pub(super) fn complete_on_flash(&mut self, id: IoId, io: &Io, fails: bool) -> Checked<Step> {
        let (size, block) = (self.parameters.geometry.block_size, self.parameters.geometry.block());
        let Some(flash) = &mut self.flash else { unreachable!("it was there when the I/O began") };
        let (first, mut blocks, mut bytes) = (io.offset / block, Vec::new(), Vec::new());
        match io.op {
            IoOp::Write if fails => {
                let is_short = flash.random.one_in(2);
                flash.disk.fail_write(id.0, is_short, &mut flash.random);
            }
            IoOp::Write => flash.disk.complete_write(id.0),
            IoOp::Sync if fails => flash.disk.fail_sync(id.0, &mut flash.random),
            IoOp::Sync => flash.disk.complete_sync(id.0),
            IoOp::ReadPages => {
                for block in first..first + io.length / block {
                    bytes.extend_from_slice(&flash.disk.read_racing(block, &mut flash.random).to_bytes(size));
                }
            }
            _ => {
                for (block, segment) in (first..).zip(&io.segments) {
                    let Segment::Buffer(buffer) = *segment else {
                        return violated(format!("blocks are read into buffers, not so in {io:?}"));
                    };
                    let cells = flash.disk.read_racing(block, &mut flash.random).to_cells();
                    self.buffers.fill(buffer, cells);
                    blocks.push(describe(&cells));
                }
            }
        }
        let explained = flash.was_struck();
        self.trace.note(self.now, 13, &[u64::from(id.0), u64::from(fails)], || {
            format!("done io {} of flash{}: {blocks:?}", id.0, if fails { ", failed" } else { "" })
        });
        let outcome = match io.op {
            IoOp::ReadBlocks => Outcome::Blocks(&blocks),
            IoOp::ReadPages => Outcome::Bytes(&bytes),
            _ => Outcome::Complete,
        };
        let result = if fails { Err(IoError::Failed) } else { Ok(outcome) };
        self.engine.handle(self.now, Event::Done { io: id, result });
        let bad = self.engine.status().flash.map_or(0, |flash| flash.bad_blocks);
        if bad > 0 && !explained {
            return violated(format!("{bad} blocks from flash are wrong, without a fault: {io:?}"));
        }
        Ok(Step::Completed)
    }
}
