//! Online growth of a pool: more containers, and metadata for them, at the end of the store. The driver has enlarged the store before.
//!
//! ```text
//! Reserving   space for the locations of the meta map that come with the growth, if any
//! Ready       until a checkpoint reaches its sync, which makes the reservation and the store's length durable
//! Taken       that checkpoint's superblock has the new geometry; once it is durable in both places, the geometry is in force
//! ```
//!
//! Until then nothing uses the new space. A crash that brings back the older superblock brings back its geometry. A record or a page that named
//! anything beyond its end would be invalid. Only the superblock has to be written: a table's default for containers and metadata blocks
//! beyond its end is right for new ones.

use super::Pool;
use crate::api::*;
use crate::format::geometry::Geometry;
use crate::metadata::io::Purpose;
use crate::mutant::Mutant;

/// Growth in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growing {
    Reserving(Geometry),
    Ready(Geometry),
    /// State after a checkpoint has taken it.
    Taken,
    /// State after the host had no space.
    Failed,
}

/// Offer of the driver to grow the pool when metadata runs short.
#[derive(Default)]
pub(crate) struct Offer {
    /// True if the driver would grow the pool.
    stands: bool,
    /// True if a change waits for the growth, or for the end of the offer.
    is_awaited: bool,
}

impl Pool {
    /// Notes that the driver makes its offer or withdraws it. Nothing waits for it any more.
    pub(crate) fn growth_offered(&mut self, stands: bool) {
        self.durable.growth_offer = Offer { stands, is_awaited: false };
    }

    /// Lets a change that found no metadata wait for a growth. Returns false if the driver offers none.
    pub(crate) fn await_growth(&mut self) -> bool {
        if self.mutant(Mutant::UnawaitedGrowth) {
            return false;
        }
        self.durable.growth_offer.is_awaited |= self.durable.growth_offer.stands;
        self.durable.growth_offer.stands
    }

    /// Returns true if a change waits for the driver to grow the pool or to withdraw its offer.
    pub(crate) fn awaits_growth(&self) -> bool {
        self.durable.growth_offer.is_awaited && !self.is_growing()
    }

    /// Returns true if more metadata may come: a growth is in progress, or the driver offers one.
    pub(crate) fn may_get_metadata(&self) -> bool {
        self.is_growing() || self.durable.growth_offer.stands
    }

    /// Returns true if a growth is in progress, which may bring metadata: changes wait for it rather than be refused.
    pub(crate) fn is_growing(&self) -> bool {
        matches!(self.durable.growing, Some(Growing::Reserving(_) | Growing::Ready(_) | Growing::Taken))
    }

    fn begin_growth(&mut self, grown: Geometry) {
        let meta_map = grown.segments().last().map(|last| last.meta_map);
        let is_new = grown.metadata_blocks > self.metadata.geometry().metadata_blocks;
        self.wake();
        self.durable.growth_offer.is_awaited = false;
        match meta_map.filter(|meta_map| is_new && meta_map.count > 0) {
            Some(meta_map) => {
                let block = grown.block();
                self.metadata.io_mut().begin(
                    IoOp::Reserve,
                    meta_map.block * block,
                    meta_map.count * block,
                    [],
                    Purpose::ReserveMetaMap,
                );
                self.durable.growing = Some(Growing::Reserving(grown));
            }
            None => self.durable.growing = Some(Growing::Ready(grown)),
        }
    }

    /// Ends the reservation of the space for the new locations. Without `good`, the growth fails.
    pub(crate) fn meta_map_reserved(&mut self, good: bool) {
        if let Some(Growing::Reserving(grown)) = self.durable.growing {
            self.durable.growing = Some(if good { Growing::Ready(grown) } else { Growing::Failed });
        }
    }

    /// Takes the geometry of a ready growth for a checkpoint that is about to sync, to be put into force; `None`: no growth is ready.
    pub(crate) fn take_growth(&mut self) -> Option<Geometry> {
        let Some(Growing::Ready(grown)) = self.durable.growing else { return None };
        self.durable.growing = Some(Growing::Taken);
        Some(grown)
    }

    /// Puts a geometry into force: a superblock with it is durable in both places.
    pub(crate) fn grow_to(&mut self, grown: Geometry) {
        self.metadata.grow(grown);
        self.durable.space.grow(&grown);
        self.grow_flash();
        self.hints.index.widen(grown.slots());
        // Writes that waited for space may continue.
        self.state.set_host_full(false);
        (self.durable.growing, self.durable.refused) = (None, None);
    }
}

impl Pool {
    /// Continues a growth to `capacity` and `metadata` as far as possible. Returns its result, once there is one.
    pub(crate) fn step_growth(&mut self, capacity: u64, metadata: u64) -> Option<Result<(), ControlError>> {
        match self.durable.growing {
            None => match self.metadata.geometry().grown_with(capacity, metadata) {
                Err(error) => Some(Err(ControlError::BadCapacity(error))),
                Ok(grown) if grown == *self.metadata.geometry() => Some(Ok(())),
                // The pages that the checkpoint holds temporarily come back when it ends.
                Ok(_) if self.checkpoint.is_in_progress() => None,
                Ok(grown) if !self.has_metadata_when_grown(grown) => Some(Err(ControlError::NoSpace)),
                Ok(grown) => {
                    self.begin_growth(grown);
                    None
                }
            },
            Some(Growing::Failed) => {
                self.durable.growing = None;
                Some(Err(ControlError::NoHostSpace))
            }
            // The checkpoint for the growth finds no space.
            Some(Growing::Ready(_)) if self.state.metadata_full() => {
                self.durable.growing = None;
                Some(Err(ControlError::NoHostSpace))
            }
            Some(Growing::Ready(_)) => {
                if !self.checkpoint.is_in_progress() && !self.wants_checkpoint() {
                    self.request_checkpoint();
                    self.wake();
                }
                None
            }
            Some(Growing::Reserving(_) | Growing::Taken) => None,
        }
    }
}
