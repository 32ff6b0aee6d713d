//! Background work and its throttle. A job goes on in small steps, in turn, and never holds up a request for longer than one of them.
//!
//! ```text
//! throttle    when background work may go on
//! checkpoint  the delta into the trees
//! rebuild     the index, after opening
//! partition   the boundary between index and read cache, and blocks that come back over it
//! home        regions that readers found scattered, back in order
//! reorder     replicas of what reads find scattered
//! scrub       reads everything and mends it
//! neighbours  digests beside one that was found
//! ```

pub(crate) mod checkpoint;
pub(crate) mod home;
pub(crate) mod neighbours;
pub(crate) mod partition;
pub(crate) mod rebuild;
pub(crate) mod reorder;
pub(crate) mod scrub;
pub(crate) mod throttle;
