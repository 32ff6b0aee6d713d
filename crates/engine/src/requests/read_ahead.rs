//! State of read-ahead: the blocks of its current step, and the reads in flight. `data_path/readahead.rs` steps it.

use alloc::vec::Vec;

use crate::api::BufferId;
use crate::format::entry::Slot;

/// State of the reads ahead for the streams.
pub(crate) struct ReadAhead {
    /// True if some streams are being refilled.
    works: bool,
    reads_in_flight: usize,
    /// Blocks of the current step: their slots, the digest bits of their map entries, and their blocks of the volume.
    wanted: Vec<WantedBlock>,
    sorted: Vec<WantedBlock>,
    buffers: Vec<BufferId>,
}

/// A block that is to be read ahead.
#[derive(Clone, Copy)]
pub(crate) struct WantedBlock {
    pub slot: Slot,
    pub check: u32,
    pub lba: u64,
}

impl ReadAhead {
    pub(crate) fn new() -> ReadAhead {
        ReadAhead { works: false, reads_in_flight: 0, wanted: Vec::new(), sorted: Vec::new(), buffers: Vec::new() }
    }

    /// Returns true if some streams are being refilled.
    #[inline]
    pub(crate) fn works(&self) -> bool {
        self.works
    }

    /// Notes whether a stream has begun to be refilled.
    #[inline]
    pub(crate) fn note_work(&mut self, refills: bool) {
        self.works |= refills;
    }

    /// Notes whether any stream is still to be refilled after a step.
    pub(crate) fn end_step(&mut self, works: bool) {
        self.works = works;
    }

    #[inline]
    pub(crate) fn reads_in_flight(&self) -> usize {
        self.reads_in_flight
    }

    pub(crate) fn begin_read(&mut self) {
        self.reads_in_flight += 1;
    }

    pub(crate) fn end_read(&mut self) {
        self.reads_in_flight -= 1;
    }

    /// Takes the list of the blocks of the current step; [`ReadAhead::keep_wanted`] gives its memory back.
    pub(crate) fn take_wanted(&mut self) -> Vec<WantedBlock> {
        core::mem::take(&mut self.wanted)
    }

    pub(crate) fn keep_wanted(&mut self, list: Vec<WantedBlock>) {
        self.wanted = list;
    }

    /// Takes the list for the blocks in the order of their slots.
    pub(crate) fn take_sorted(&mut self) -> Vec<WantedBlock> {
        core::mem::take(&mut self.sorted)
    }

    pub(crate) fn keep_sorted(&mut self, list: Vec<WantedBlock>) {
        self.sorted = list;
    }

    /// Takes the list for the buffers of a read.
    pub(crate) fn take_buffers(&mut self) -> Vec<BufferId> {
        core::mem::take(&mut self.buffers)
    }

    pub(crate) fn keep_buffers(&mut self, list: Vec<BufferId>) {
        self.buffers = list;
    }
}
