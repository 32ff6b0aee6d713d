//! Attachment and detachment of a flash while the pool is served: the memory is divided anew for its tables.

use std::sync::mpsc::Sender;

use anyhow::ensure;
use engine::Geometry;
use tracing::{info, warn};

use super::Reactor;
use crate::flash::device::{Cache, Given};
use crate::flash::front::Plan;
use crate::operators::control::Response;
use crate::size;

/// Plans the flash that the server was started with, in a server with `memory` bytes of memory; `None` if there is none or it is away.
pub(super) fn plan(given: &Given, memory: u64, geometry: &Geometry) -> anyhow::Result<Option<Plan>> {
    match given {
        Given::Here(cache) => Plan::new(&cache.label, memory, geometry).map(Some),
        Given::Nothing | Given::Away { .. } => Ok(None),
    }
}

impl Reactor {
    /// Puts a cache in front of the pool. Fails while the pool is being opened, while calls are recorded, or if it has a flash.
    pub(super) fn attach(&mut self, cache: Cache) -> anyhow::Result<()> {
        ensure!(matches!(self.opened, Some(Ok(_))), "the pool is still being opened: try again in a moment");
        ensure!(!self.core.engine.is_recorded(), "calls are being recorded (--record), and recordings know no flash");
        ensure!(!self.flash.is_here(), "the pool has a flash: detach it first");
        let plan = Plan::new(&cache.label, self.partition.memory, self.core.engine.geometry())?;
        let (path, size) = (cache.store.path().display().to_string(), size::show(cache.label.size));
        self.give_to_flash(plan.memory)?;
        if let Err(error) = self.flash.attach(cache, plan, &mut self.core) {
            self.give_to_flash(0)?;
            return Err(error);
        }
        info!("attached the flash {path} of {size}");
        Ok(())
    }

    /// Detaches the flash and gives its memory back to the pool.
    pub(super) fn detach(&mut self) -> anyhow::Result<()> {
        let path = self.flash.detach(&mut self.core)?;
        info!("detached the flash {}", path.display());
        if let Err(error) = self.give_to_flash(0) {
            warn!("{error}");
        }
        Ok(())
    }

    /// Gives `bytes` bytes of memory to the tables of the flash from here on, and divides the memory anew.
    fn give_to_flash(&mut self, bytes: u64) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.for_flash, bytes);
        if before != bytes {
            self.set_memory(self.partition.memory).inspect_err(|_| self.for_flash = before)?;
        }
        Ok(())
    }

    /// Sends the result to a client of the control socket, which may be gone.
    pub(super) fn answer(&self, result: anyhow::Result<()>, client: &Sender<Response>) {
        let _ = client.send(match result {
            Ok(()) => Response::Done(Box::new(self.report())),
            Err(error) => Response::Failed(format!("{error:#}")),
        });
    }
}
