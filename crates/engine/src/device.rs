//! Traits of the disk under the store (rotational or not, and more), as far as they decide how it is read: stated by the driver, or set by an operator.
//!
//! Without a statement from either, the numbers are those of an SSD.

use crate::properties::DeviceKind;

/// A disk, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceTraits {
    /// True for a rotational disk.
    pub is_rotational: bool,
    /// Unwanted blocks that a read covers rather than to end: as many as pass by in the time of another read at another place.
    pub gap_blocks: u32,
    /// Blocks that are read ahead at a time, in order of their places.
    pub window_blocks: u32,
    /// The most reads that bring these blocks.
    pub window_reads: u32,
    /// Reads in flight, at most, when reading ahead begins.
    pub reads_in_flight: u32,
    /// Blocks of a write from which it gets consecutive slots, in containers that are kept for them; 0: none does.
    pub sequential_blocks: u32,
}

impl DeviceTraits {
    /// An SSD: a read at another place takes as long as a few blocks more.
    pub const SSD: DeviceTraits = DeviceTraits {
        is_rotational: false,
        gap_blocks: 8,
        window_blocks: 512,
        window_reads: 64,
        reads_in_flight: 32,
        sequential_blocks: 0,
    };

    /// A hard disk. To sort much pays: a read at another place takes milliseconds, and fewer the nearer it is.
    pub const HDD: DeviceTraits = DeviceTraits {
        is_rotational: true,
        gap_blocks: 8,
        window_blocks: 4096,
        window_reads: 1024,
        reads_in_flight: 256,
        sequential_blocks: 16,
    };

    /// Returns the traits of a disk of this kind; `None` for `Auto`.
    pub fn of(kind: DeviceKind) -> Option<DeviceTraits> {
        match kind {
            DeviceKind::Auto => None,
            DeviceKind::Ssd => Some(DeviceTraits::SSD),
            DeviceKind::Hdd => Some(DeviceTraits::HDD),
        }
    }

    /// Returns the kind that the traits belong to: [`DeviceKind::Hdd`] for a rotational disk.
    pub fn kind(&self) -> DeviceKind {
        if self.is_rotational { DeviceKind::Hdd } else { DeviceKind::Ssd }
    }
}

impl Default for DeviceTraits {
    fn default() -> DeviceTraits {
        DeviceTraits::SSD
    }
}
