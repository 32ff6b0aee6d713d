//! Memory of the process, divided: the engine and its clients, the tables of the flash, the profiles of device reads, and the table of volumes.
//!
//! Owns the division. It is made anew when the memory is set, when a share changes and when the pool has grown. Invariants: the engine's limits, the server's
//! budgets and the kept buffers follow one division; a share that does not fit changes nothing.

use engine::{Geometry, Limits};
use tracing::warn;

use crate::frontend::nbd::server::Server;
use crate::io::arena::{self, BLOCK};
use crate::io::core::Core;
use crate::memory::{self, MemoryPartition, Source, TooLittle};
use crate::size;
use crate::store::grow;

/// Shares of the memory.
pub(super) struct MemoryShares {
    /// Division among engine and clients; while it changes, the one that the engine is moving to.
    partition: MemoryPartition,
    source: Source,
    /// Bytes that the tables of the flash take.
    for_flash: u64,
    /// Bytes that the profiles of device reads take at most.
    for_profiles: u64,
    /// Bytes that the table of volumes takes beyond those that each pool has.
    for_volumes: u64,
    /// Number of clients that was requested.
    clients: u32,
    /// True while memory is being divided anew: memory that the tables no longer need returns to the system at the end of that.
    heap_shrinks: bool,
}

impl MemoryShares {
    /// Takes over the division that the reactor begins with, for `clients` clients, beside `for_flash` bytes for the tables of the flash.
    pub(super) fn new(partition: MemoryPartition, source: Source, for_flash: u64, clients: u32) -> MemoryShares {
        MemoryShares { partition, source, for_flash, for_profiles: 0, for_volumes: 0, clients, heap_shrinks: false }
    }

    /// Returns the current division.
    pub(super) fn partition(&self) -> &MemoryPartition {
        &self.partition
    }

    /// Returns the bytes of all shares, and the source of the setting.
    pub(super) fn total(&self) -> (u64, Source) {
        (self.partition.memory, self.source)
    }

    /// Returns the bytes of the profiles of device reads.
    pub(super) fn for_profiles(&self) -> u64 {
        self.for_profiles
    }

    /// Returns the memory that a larger pool has to be served with.
    pub(super) fn of_server(&self) -> grow::ServerMemory {
        grow::ServerMemory { bytes: self.partition.memory, taken: self.taken(), clients: self.clients }
    }

    /// Checks that a server could divide `bytes` bytes, and changes nothing.
    pub(super) fn check(&self, bytes: u64, geometry: &Geometry) -> anyhow::Result<()> {
        self.divided(bytes, geometry).map(drop)
    }

    /// Computes the memory that the pool can be opened with, of which the journal or the map buffer needs space for `entries` entries.
    pub(super) fn too_little(&self, entries: u64, geometry: &Geometry) -> TooLittle {
        let fits = |memory: u64| {
            MemoryPartition::new(memory.saturating_sub(self.for_flash), geometry, self.clients)
                .is_ok_and(|partition| partition.limits.replayable_entries(geometry) >= entries)
        };
        TooLittle::new(self.partition.memory, fits)
    }

    /// Sets the bytes of all shares, while serving.
    pub(super) fn set(
        &mut self,
        (bytes, source): (u64, Source),
        core: &mut Core,
        server: &mut Server,
    ) -> anyhow::Result<()> {
        self.divide(bytes, core, server)?;
        self.source = source;
        Ok(())
    }

    /// Divides the same memory anew, while serving: the pool has other tables now.
    pub(super) fn divide_again(&mut self, core: &mut Core, server: &mut Server) -> anyhow::Result<()> {
        self.divide(self.partition.memory, core, server)
    }

    /// Gives `bytes` bytes to the tables of the flash from here on.
    pub(super) fn give_to_flash(&mut self, bytes: u64, core: &mut Core, server: &mut Server) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.for_flash, bytes);
        if before != bytes {
            self.divide_again(core, server).inspect_err(|_| self.for_flash = before)?;
        }
        Ok(())
    }

    /// Gives `bytes` bytes to the profiles of device reads from here on.
    pub(super) fn give_to_profiles(&mut self, bytes: u64, core: &mut Core, server: &mut Server) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.for_profiles, bytes);
        if before != bytes {
            self.divide_again(core, server).inspect_err(|_| self.for_profiles = before)?;
        }
        Ok(())
    }

    /// Gives the table of volumes the bytes that it takes, where they have changed by a MiB. It has them already, so a division that is impossible is only
    /// reported.
    pub(super) fn follow_volumes(&mut self, core: &mut Core, server: &mut Server) {
        let bytes = Limits::volumes_bytes(core.engine.volumes_memory());
        let before = std::mem::replace(&mut self.for_volumes, bytes);
        if before != bytes
            && let Err(error) = self.divide_again(core, server)
        {
            warn!("the volumes take {} of the memory: {error:#}", size::show(bytes));
        }
    }

    /// Keeps memory for the buffers that the engine uses, and for no more. Their number changes at each call for the engine's effects.
    pub(super) fn follow_buffers(&mut self, core: &mut Core, server: &mut Server) {
        if self.heap_shrinks && !core.engine.is_resizing() {
            self.heap_shrinks = false;
            arena::give_heap_back();
        }
        let count = core.engine.buffer_numbers();
        if count as usize != core.buffers() {
            server.set_read_buffers(count.saturating_sub(self.partition.limits.write_buffers));
            core.set_buffers(count as usize);
        }
    }

    /// Returns the bytes that the engine and its clients do not get.
    fn taken(&self) -> u64 {
        self.for_flash + self.for_profiles + self.for_volumes
    }

    fn divided(&self, bytes: u64, geometry: &Geometry) -> anyhow::Result<MemoryPartition> {
        memory::divide(bytes, self.taken(), geometry, true, self.clients)
    }

    /// Divides `bytes` bytes anew. Memory in use beyond the new division is freed at the end of its use.
    fn divide(&mut self, bytes: u64, core: &mut Core, server: &mut Server) -> anyhow::Result<()> {
        let geometry = *core.engine.geometry();
        let partition = self.divided(bytes, &geometry)?.on(self.partition.limits.device);
        let most = partition.limits.most_buffers(BLOCK as u64) as usize;
        anyhow::ensure!(
            most <= core.arena.buffers_max(),
            "this server cannot get {}: restart it with --memory {}M",
            size::show(bytes),
            bytes.div_ceil(1 << 20)
        );
        core.engine.set_limits(partition.limits);
        server.divide(&partition.limits, geometry.piece_blocks, partition.connections);
        self.partition = partition;
        self.heap_shrinks = true;
        self.follow_buffers(core, server);
        Ok(())
    }
}
