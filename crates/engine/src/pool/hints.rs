//! The hints of a pool: probable slots of contents, regions that readers found scattered, copies of blocks, containers on flash. They make
//! reads and writes cheaper.
//!
//! Invariant: no hint decides which bytes a client gets. A slot that a hint names is shared or read only after its summary, digest or generation
//! agrees, so that the entries may be lost in a crash, or be wrong. The settings and records of these parts (budget of replicas, `defrag`, the
//! allowance of moves, the record of the index on disk) are in the superblock ([`super::Pool::with_properties`]).

use crate::api::BufferId;
use crate::dedup::index::Index;
use crate::pool::disk_index::DiskIndex;
use crate::pool::flash::Flash;
use crate::pool::moves::Moves;
use crate::pool::regions::Regions;
use crate::pool::replicas::Replicas;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// State that may be lost or wrong without harm: every use of it is verified.
pub(crate) struct Hints {
    pub(super) regions: Regions,
    pub(super) moves: Moves,
    pub(crate) replicas: Replicas,
    pub(crate) index: Index,
    pub(crate) disk_index: DiskIndex,
    /// Copies of containers in front of the store, if there are any.
    pub(super) flash: Option<Box<Flash>>,
    /// Nonce of the last flash of this opening; 0: there was none.
    pub(super) flash_nonce: u16,
    /// Buffers set aside, one for each block that is being read from flash.
    pub(super) flash_spares: Vec<BufferId>,
}
