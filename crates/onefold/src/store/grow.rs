//! Growing a pool: what has to be right before the engine is asked to use what is new.
//!
//! A file is made longer, never shorter; a device has to be long enough. The engine makes the new length durable, with the
//! sync before the superblock that relies on it. If growing fails later, the file stays longer, which does no harm.

use anyhow::{Context, bail};
use engine::Geometry;

use crate::memory::Division;
use crate::size;
use crate::store::backing::{Kind, Store};

/// The part of the host's free room that metadata is reserved in, as a divisor.
const FREE_SHARE: u64 = 2;

/// Makes room for a pool of this geometry that grows to `capacity` bytes, which its server must be able to manage with its
/// memory (in bytes, for so many clients; if it is served); the store's new length.
pub fn prepare(
    store: &mut Store,
    geometry: &Geometry,
    capacity: u64,
    memory: Option<(u64, u32)>,
) -> anyhow::Result<u64> {
    let grown = plan(geometry, capacity, memory)?;
    make_room(store, &grown)?;
    reserve_metadata(store, &grown);
    Ok(store.size())
}

/// What a pool grows to, if it can; changes nothing.
pub fn plan(geometry: &Geometry, capacity: u64, memory: Option<(u64, u32)>) -> anyhow::Result<Geometry> {
    let (now, wanted) = (size::show(geometry.capacity_bytes()), size::show(capacity));
    let grown = match geometry.grown(capacity) {
        Ok(grown) => grown,
        Err(error) => bail!(
            "the pool has a capacity of {now} and cannot get one of {wanted}: {error}. It can grow to {} at most",
            size::show(geometry.greatest_capacity())
        ),
    };
    if let Some((memory, clients)) = memory
        && let Err(needed) = Division::new(memory, &grown, clients)
    {
        bail!(
            "a pool of {wanted} needs more memory than its server has: {}M would do ('onefold set POOL memory', or --memory)",
            needed.div_ceil(1 << 20)
        );
    }
    Ok(grown)
}

/// Makes a file long enough, keeping what it holds; fails if a device is too short.
fn make_room(store: &mut Store, geometry: &Geometry) -> anyhow::Result<()> {
    let needed = geometry.total_bytes();
    match store.kind() {
        Kind::File => store.extend_to(needed).with_context(|| {
            let store = store.path().display();
            format!("cannot make {store} {} ({needed} bytes) long, as long as the larger pool is", size::show(needed))
        }),
        Kind::Device => {
            store.measure_again()?;
            require_length(store, geometry)
        }
    }
}

/// Has the host keep room for a pool's metadata: with it, a host that is full keeps no command and no overwrite from becoming durable. Without
/// enough free room on the host, or where it keeps none, the pool takes the room as it needs it. Not for devices, which have it.
pub fn reserve_metadata(store: &Store, geometry: &Geometry) {
    let Ok(host) = rustix::fs::fstatvfs(store.file()) else { return };
    let needed: u64 = geometry.metadata_ranges().map(|(_, length)| length).sum();
    let free = host.f_bavail.saturating_mul(host.f_frsize);
    if store.kind() == Kind::File && needed <= free / FREE_SHARE {
        for (offset, length) in geometry.metadata_ranges() {
            // Somebody else may have taken the room since.
            if store.allocate_range(offset, length).is_err() {
                return;
            }
        }
    }
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
