//! State of read-ahead: the blocks of its current step, and the reads in flight. `data_path/readahead.rs` steps it.

use alloc::vec::Vec;

use crate::api::BufferId;
use crate::format::entry::Slot;

/// State of the reads ahead for the streams.
pub(crate) struct ReadAhead {
    /// True if some streams are being refilled.
    pub works: bool,
    pub reads_in_flight: usize,
    /// Blocks of the current step: their slots, the digest bits of their map entries, and their blocks of the volume.
    pub wanted: Vec<WantedBlock>,
    pub sorted: Vec<WantedBlock>,
    pub buffers: Vec<BufferId>,
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
}
