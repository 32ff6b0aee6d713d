//! Growth of a pool's store: checks and allocation before the engine may use the new space.
//!
//! A file is made longer, never shorter; a device has to be long enough. The engine makes the new length durable, with the sync before the superblock that
//! relies on it. If growing fails later, the file stays longer, which does no harm.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail};
use engine::{Geometry, Status};

use crate::memory::MemoryPartition;
use crate::size;
use crate::store::backing::{Kind, Store};
use crate::store::file_size;

/// The part of the host's free space that metadata is reserved in, as a divisor.
const FREE_SHARE: u64 = 2;
/// Growths of metadata that are left to operators: the pool makes the others automatically.
const KEPT: usize = 2;
/// Minimum of mapped blocks for each block of metadata in use, for an automatic growth: a sixteenth of the blocks that a leaf maps. So scattered writes into a
/// huge volume take no more space from the host.
const MAPPED: u64 = 32;

/// Size of a pool after growing, in total.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Bytes of data.
    pub capacity: u64,
    /// Blocks of metadata; 0: as many as the capacity needs.
    pub metadata: u64,
}

impl Wanted {
    /// Computes the growth that an operator asks for, in bytes. Where maps are short the metadata doubles with any growth.
    pub fn asked(capacity: u64, metadata_bytes: u64, geometry: &Geometry, status: &Status) -> Wanted {
        let now = geometry.capacity_bytes();
        let capacity = if capacity == 0 && metadata_bytes > 0 { now } else { capacity };
        let asked = metadata_bytes.div_ceil(geometry.block());
        let grows = capacity > now && asked == 0 && status.metadata_short && geometry.growths_left() > 0;
        let doubled = (2 * u64::from(geometry.metadata_blocks)).min(geometry.max_metadata_blocks());
        Wanted { capacity, metadata: if grows { doubled } else { asked } }
    }

    /// Returns the automatic growth of a pool whose maps are short or whose clients wait for it: the largest that the store has space for. `None` if no growth
    /// is due or possible.
    pub fn automatic(
        store: &mut Store,
        geometry: &Geometry,
        status: &Status,
        awaited: bool,
    ) -> anyhow::Result<Option<Wanted>> {
        let is_short = (status.metadata_short || awaited) && geometry.growths_left() > KEPT;
        if !is_short || status.logical_blocks_used < MAPPED * status.metadata_blocks_used {
            return Ok(None);
        }
        let _ = store.measure_again();
        let blocks = u64::from(geometry.metadata_blocks);
        let sizes = [2 * blocks, blocks * 3 / 2, blocks * 5 / 4];
        let wanted = sizes.map(|metadata| Wanted { capacity: geometry.capacity_bytes(), metadata });
        let possible = |wanted: &&Wanted| wanted.of(geometry).is_ok();
        let Some(least) = wanted.iter().rfind(possible).and_then(|wanted| wanted.of(geometry).ok()) else {
            return Ok(None);
        };
        let found =
            wanted.into_iter().find(|wanted| wanted.of(geometry).is_ok_and(|grown| has_space(store, geometry, &grown)));
        if found.is_none() {
            let (path, more) = (store.path().display(), size::show(least.total_bytes() - geometry.total_bytes()));
            match store.kind() {
                Kind::File => bail!("the file system under {path} has less than twice the {more} free that it needs"),
                Kind::Device => bail!("{path} would have to be {more} longer than the pool is"),
            }
        }
        Ok(found)
    }

    /// Returns the grown geometry of a pool that has `geometry` now.
    fn of(&self, geometry: &Geometry) -> Result<Geometry, engine::BadGeometry> {
        geometry.grown_with(self.capacity, self.metadata)
    }
}

/// Returns true if a device is long enough, or the file system under a file has twice the space that the growth takes.
fn has_space(store: &Store, geometry: &Geometry, grown: &Geometry) -> bool {
    match store.kind() {
        Kind::Device => store.size() >= grown.total_bytes(),
        Kind::File => store.available().is_none_or(|space| space / 2 >= grown.total_bytes() - geometry.total_bytes()),
    }
}

/// Memory of the server that a larger pool is to be served with.
#[derive(Clone, Copy, Debug)]
pub struct ServerMemory {
    /// Bytes of the server.
    pub bytes: u64,
    /// Bytes of these that the engine does not get.
    pub taken: u64,
    /// Clients that may be connected at the same time.
    pub clients: u32,
}

/// Makes space for a pool of this geometry that grows as `wanted`, and returns the store's new length. Fails as [`plan`] does.
pub fn prepare(
    store: &mut Store,
    geometry: &Geometry,
    wanted: Wanted,
    memory: Option<ServerMemory>,
) -> anyhow::Result<u64> {
    let grown = plan(geometry, wanted, memory)?;
    make_space(store, &grown)?;
    reserve_metadata(store, &grown);
    Ok(store.size())
}

/// Computes the grown geometry of a pool and changes nothing. Fails if the pool cannot grow so, or its server has too little memory.
pub fn plan(geometry: &Geometry, wanted: Wanted, memory: Option<ServerMemory>) -> anyhow::Result<Geometry> {
    let (now, capacity) = (size::show(geometry.capacity_bytes()), size::show(wanted.capacity));
    let grown = match wanted.of(geometry) {
        Ok(grown) => grown,
        Err(error) if wanted.capacity == geometry.capacity_bytes() => bail!(
            "the pool has {} for maps and tables and cannot get {}: {error}",
            size::show(u64::from(geometry.metadata_blocks) * geometry.block()),
            size::show(wanted.metadata.saturating_mul(geometry.block()))
        ),
        Err(error) => bail!(
            "the pool has a capacity of {now} and cannot get one of {capacity}: {error}. It can grow to {} at most",
            size::show(geometry.greatest_capacity())
        ),
    };
    if let Some(ServerMemory { bytes, taken, clients }) = memory
        && let Err(needed) = MemoryPartition::new(bytes.saturating_sub(taken), &grown, clients)
    {
        bail!(
            "a pool of {capacity} needs more memory than its server has: {}M would do ('onefold set POOL memory=SIZE', or --memory)",
            needed.saturating_add(taken).div_ceil(1 << 20)
        );
    }
    Ok(grown)
}

/// Makes a file long enough, keeping its contents; fails if a device is too short.
fn make_space(store: &mut Store, geometry: &Geometry) -> anyhow::Result<()> {
    let needed = geometry.total_bytes();
    match store.kind() {
        Kind::File => {
            file_size::allow(store.path(), needed).and_then(|()| Ok(store.extend_to(needed)?)).with_context(|| {
                let store = store.path().display();
                format!(
                    "cannot make {store} {} ({needed} bytes) long, as long as the larger pool is",
                    size::show(needed)
                )
            })
        }
        Kind::Device => {
            store.measure_again()?;
            require_length(store, geometry)
        }
    }
}

/// Reserves space on the host for a pool's metadata, so that a full host keeps no command and no overwrite from becoming durable. Without enough free space on
/// the host, or where it reserves none, the pool takes the space as it needs it. Not for devices, which have it.
pub fn reserve_metadata(store: &Store, geometry: &Geometry) {
    let Ok(host) = rustix::fs::fstatvfs(store.file()) else { return };
    let needed: u64 = geometry.metadata_ranges().map(|(_, length)| length).sum();
    let free = host.f_bavail.saturating_mul(host.f_frsize);
    if store.kind() == Kind::File && needed <= free / FREE_SHARE {
        for (offset, length) in geometry.metadata_ranges() {
            // Another process may have taken the space since.
            if store.allocate_range(offset, length).is_err() {
                return;
            }
        }
    }
}

/// Says that the file of a pool, which takes space as it fills, may need more than its file system has free. `None` for devices, and where there is enough.
pub fn short_of_space(path: &Path, total_bytes: u64) -> Option<String> {
    let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let host = rustix::fs::statvfs(path).ok()?;
    let free = host.f_bavail.saturating_mul(host.f_frsize);
    let needed = total_bytes.saturating_sub(file.blocks().saturating_mul(512));
    (needed > free).then(|| {
        format!(
            "{} may need {} more, and its file system has {} free: when that runs out, writes fail with ENOSPC though the pool has space left \
             (docs/guide/operate.md, \"The file system under a pool\")",
            path.display(),
            size::show(needed),
            size::show(free)
        )
    })
}

/// Fails if a device is too short for a pool of this geometry.
pub fn require_length(store: &Store, geometry: &Geometry) -> anyhow::Result<()> {
    let (length, needed) = (store.size(), geometry.total_bytes());
    if length < needed {
        bail!(
            "{} is {} long ({length} bytes); a pool of {} needs {} ({needed} bytes) with its tables: choose a smaller --capacity",
            store.path().display(),
            size::show(length),
            size::show(geometry.capacity_bytes()),
            size::show(needed)
        );
    }
    Ok(())
}
