//! The devices of a pool: the store, and the flash in front of it. The engine's I/O goes to the device that it names, and completions come back by slot.
//!
//! Owns the store's file, the I/O of both devices, and the state of the flash. Invariant: the disk knows the store's present length (`grow`).

use std::path::{Path, PathBuf};

use engine::{Device, Geometry, IoId, Nanos, Status};

use crate::flash::device::{Cache, Given};
use crate::flash::front::{Front, Plan};
use crate::io::core::Core;
use crate::io::disk::{Disk, Host, Part};
use crate::io::ring::DISK_SLOTS;
use crate::report::flash::FlashReport;
use crate::store::backing::Store;
use crate::store::grow::{self, ServerMemory, Wanted};

/// The store and the flash.
pub(super) struct Devices {
    disk: Disk,
    flash: Front,
    store: Store,
}

impl Devices {
    /// Sets up the I/O of the store, and of the flash that a start was given, before the engine's first event.
    pub(super) fn new(store: &Store, given: Given, plan: Option<Plan>, core: &mut Core) -> anyhow::Result<Devices> {
        let mut flash = Front::default();
        flash.begin(given, plan, core)?;
        Ok(Devices { disk: Disk::new(Part::STORE, store), flash, store: store.share()? })
    }

    /// Takes an I/O that the engine wants.
    pub(super) fn take(&mut self, io: IoId, core: &mut Core) {
        match core.engine.io(io).device {
            Device::Flash => self.flash.take(io, core),
            Device::Store => self.disk.take(io, core),
        }
    }

    /// Takes the end of an operation on the ring.
    pub(super) fn completed(&mut self, slot: u32, result: i32, core: &mut Core) {
        if slot as usize >= DISK_SLOTS {
            self.flash.completed(slot, result, core);
        } else {
            self.disk.completed(slot, result, core);
        }
    }

    /// Advances both as [`Disk::advance`] does; true if the engine was told something.
    pub(super) fn advance(&mut self, core: &mut Core) -> bool {
        let any = self.disk.advance(core);
        self.flash.advance(core) || any
    }

    /// Returns the time at which they must be checked even without an event.
    pub(super) fn next_look(&self, now: Nanos) -> Option<Nanos> {
        let flash = self.flash.next_look(now);
        #[cfg(feature = "faults")]
        let flash = [flash, self.disk.next_look(now)].into_iter().flatten().min();
        flash
    }

    /// Returns the path of the store.
    pub(super) fn store_path(&self) -> &Path {
        self.store.path()
    }

    /// Describes the last write, sync or reservation of the store that failed.
    pub(super) fn last_failure(&self) -> Option<&str> {
        self.disk.last_failure()
    }

    /// Returns the bytes that the file system has stored for the pool's file; `None` for a device.
    pub(super) fn held(&self) -> Option<u64> {
        self.store.held()
    }

    /// Returns the knowledge about space on the file system under the pool.
    pub(super) fn host(&self) -> Host {
        self.disk.host()
    }

    /// Makes space for a pool of this geometry that grows as `wanted`. Fails as [`grow::prepare`] does.
    pub(super) fn grow(
        &mut self,
        geometry: &Geometry,
        wanted: Wanted,
        memory: Option<ServerMemory>,
    ) -> anyhow::Result<()> {
        let size = grow::prepare(&mut self.store, geometry, wanted, memory)?;
        self.disk.grown(size);
        Ok(())
    }

    /// Returns the automatic growth that the store has space for, as [`Wanted::automatic`] does.
    pub(super) fn automatic_growth(
        &mut self,
        geometry: &Geometry,
        status: &Status,
        awaited: bool,
    ) -> anyhow::Result<Option<Wanted>> {
        Wanted::automatic(&mut self.store, geometry, status, awaited)
    }

    /// Returns true if there is a flash in use.
    pub(super) fn has_flash(&self) -> bool {
        self.flash.is_here()
    }

    /// Puts a cache in front of a pool that is served.
    pub(super) fn attach_flash(&mut self, cache: Cache, plan: Plan, core: &mut Core) -> anyhow::Result<()> {
        self.flash.attach(cache, plan, core)
    }

    /// Detaches the flash and returns its path.
    pub(super) fn detach_flash(&mut self, core: &mut Core) -> anyhow::Result<PathBuf> {
        self.flash.detach(core)
    }

    /// Logs changes of the flash.
    pub(super) fn look_at_flash(&mut self, status: &Status) {
        self.flash.look(status);
    }

    /// Returns the report of the flash.
    pub(super) fn flash_report(&self, status: &Status, geometry: &Geometry) -> FlashReport {
        self.flash.report(status, geometry)
    }
}
