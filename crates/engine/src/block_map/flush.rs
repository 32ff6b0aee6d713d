//! Flush of the map buffer: a request that the next checkpoints write buffered mappings into their leaves, beyond those that the buffer's size demands, and
//! the obstacle that the last ones met.
//!
//! States: not wanted; wanted, until a checkpoint has flushed all; stuck, where a checkpoint with a full flush found no space for a page. A stuck flush is
//! tried again on request, or once more pages are free than any such checkpoint has left.

/// Request for a flush of the map buffer, and its obstacle.
#[derive(Default)]
pub(crate) struct BufferFlush {
    is_wanted: bool,
    is_stuck: bool,
    /// Largest number of free pages of metadata at the end of a checkpoint that was stuck.
    free_when_stuck: u32,
}

impl BufferFlush {
    /// Returns true until the next checkpoints have flushed all of the map buffer.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Returns true if the last checkpoint with a full flush found no space for a page.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Asks for a flush, unless one is wanted already.
    pub(crate) fn ask(&mut self) {
        if !self.is_wanted {
            (self.is_wanted, self.is_stuck) = (true, false);
        }
    }

    /// Lets a stuck flush be tried again.
    pub(crate) fn retry(&mut self) {
        self.is_stuck = false;
    }

    /// Notes that a checkpoint has flushed all that found space; `rests`: mappings are left in the buffer.
    pub(crate) fn end_pass(&mut self, rests: bool) {
        self.is_wanted &= rests;
    }

    /// Notes whether the checkpoint found space for any of the pages that it wanted to flush.
    pub(crate) fn note_plan(&mut self, is_stuck: bool) {
        self.is_stuck = is_stuck;
        if !is_stuck {
            self.free_when_stuck = 0;
        }
    }

    /// Notes that a checkpoint ended with `free` free pages. A stuck flush is tried again if no other that was stuck left as many; otherwise checkpoints
    /// would follow without end.
    pub(crate) fn end_checkpoint(&mut self, free: u32) {
        if self.is_stuck {
            self.is_stuck = free <= self.free_when_stuck;
            self.free_when_stuck = free.max(self.free_when_stuck);
        }
    }
}
