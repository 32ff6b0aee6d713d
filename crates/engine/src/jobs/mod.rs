//! Background work and its throttle. A job goes on in small steps, in turn, and never holds up a request for longer than one of them.
//!
//! ```text
//! throttle    when background work may go on
//! checkpoint  the delta into the trees
//! rebuild     the index, after opening
//! boundary    the boundary between index and read cache, and blocks that come back over it
//! reorder     replicas of what reads find scattered
//! scrub       reads everything and mends it
//! neighbours  digests beside one that was found
//! ```

pub(crate) mod boundary;
pub(crate) mod checkpoint;
pub(crate) mod neighbours;
pub(crate) mod rebuild;
pub(crate) mod reorder;
pub(crate) mod scrub;
pub(crate) mod throttle;

use alloc::boxed::Box;

use crate::contract::Nanos;
use crate::jobs::boundary::Partition;
use crate::jobs::checkpoint::Checkpoint;
use crate::jobs::neighbours::Neighbours;
use crate::jobs::rebuild::Rebuild;
use crate::jobs::reorder::Reorder;
use crate::jobs::scrub::Scrub;
use crate::jobs::throttle::Pace;
use crate::limits::Limits;

/// All background work.
pub(crate) struct Jobs {
    pub(crate) checkpoint: Option<Box<Checkpoint>>,
    /// The boundary between index and read cache.
    pub(crate) partition: Partition,
    pub(crate) rebuild: Option<Rebuild>,
    /// Replicas of blocks that reads found scattered.
    pub(crate) reorder: Reorder,
    pub(crate) scrub: Scrub,
    pub(crate) neighbours: Neighbours,
    /// The throttle of background work.
    pub(crate) pace: Pace,
    /// A job stopped at its budget and can go on at once.
    pub(crate) work_left: bool,
    /// When a job that rests goes on.
    pub(crate) timer: Option<Nanos>,
    /// What the driver's clock showed, and when.
    pub(crate) wall_clock: Option<(u64, Nanos)>,
}

impl Jobs {
    /// No job is under way.
    pub(crate) fn new(limits: &Limits, block: u64, now: Nanos) -> Jobs {
        Jobs {
            checkpoint: None,
            partition: Partition::new(limits, block),
            rebuild: None,
            reorder: Reorder::new(),
            scrub: Scrub::new(now),
            neighbours: Neighbours::new(),
            pace: Pace::Rest(now),
            work_left: false,
            timer: None,
            wall_clock: None,
        }
    }
}
