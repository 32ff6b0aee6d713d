//! Ends of I/O that change the store: writes, syncs, reservations and discards, with the faults that strike them; and the content of discarded blocks.

use engine::{IoError, IoId};

use crate::content::{Content, ZERO, foreign};
use crate::world::World;
use crate::world::faults::Class;

impl World {
    /// Completes a write, or fails it, or only seems to complete it, as `fault` says.
    pub(super) fn end_write(&mut self, id: IoId, fault: Option<Class>) -> Result<(), IoError> {
        match fault {
            Some(class @ (Class::WriteError | Class::ShortWrite)) => {
                self.disk.fail_write(id.0, class == Class::ShortWrite, &mut self.faults.random);
                self.faults.struck.writes += 1;
                return Err(IoError::Failed);
            }
            Some(Class::FullHost) => {
                self.disk.fail_write(id.0, true, &mut self.faults.random);
                self.faults.struck.full += 1;
                return Err(IoError::NoSpace);
            }
            Some(class @ (Class::LostWrite | Class::MisdirectedWrite)) => {
                let misdirected = class == Class::MisdirectedWrite;
                let elsewhere = misdirected.then(|| self.faults.random.below(self.disk.blocks()));
                if self.disk.lose_write(id.0, elsewhere) > 0 {
                    self.faults.tally.count(class);
                }
            }
            _ => self.disk.complete_write(id.0),
        }
        Ok(())
    }

    pub(super) fn end_sync(&mut self, id: IoId, fault: Option<Class>) -> Result<(), IoError> {
        if fault != Some(Class::SyncError) {
            self.disk.complete_sync(id.0);
            return Ok(());
        }
        self.disk.fail_sync(id.0, &mut self.faults.random);
        self.faults.struck.writes += 1;
        Err(IoError::Failed)
    }

    /// Completes a reservation. With a fault it fails for want of space, or, one time in four, for another reason.
    pub(super) fn end_reserve(&mut self, fault: Option<Class>) -> Result<(), IoError> {
        if fault.is_none() {
            return Ok(());
        }
        if self.faults.random.one_in(4) {
            self.faults.struck.writes += 1;
            return Err(IoError::Failed);
        }
        self.faults.struck.reserves += 1;
        Err(IoError::NoSpace)
    }

    /// Draws the content of a discarded block: zeroes, its former content, or bytes that no client wrote.
    pub(super) fn discarded(&mut self, block: u64) -> Content {
        match self.random.below(3) {
            0 => Content::Payload(ZERO),
            1 => self.disk.read(block).clone(),
            _ => Content::Payload(core::array::from_fn(|_| foreign(self.random.draw()))),
        }
    }

    /// Completes a discard, or fails it: some of its blocks may be discarded all the same.
    pub(super) fn end_discard(&mut self, id: IoId, fault: Option<Class>, is_chosen: bool) -> Result<(), IoError> {
        if fault.is_none() && !is_chosen {
            self.disk.complete_write(id.0);
            return Ok(());
        }
        let is_short = self.faults.random.one_in(2);
        self.disk.fail_write(id.0, is_short, &mut self.faults.random);
        Err(if fault == Some(Class::FullHost) { IoError::NoSpace } else { IoError::Failed })
    }
}
