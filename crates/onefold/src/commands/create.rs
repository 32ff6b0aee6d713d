//! `onefold create`: makes a store into an empty pool, and refuses where that would destroy something.
//!
//! Order: everything is zeroed and synced before the superblocks are written and synced, and the file's name is made durable last. A crash on the way leaves a
//! store that is not a pool; a failure removes the file if this made it.

use std::path::Path;

use anyhow::{Context, bail};
use engine::{DeviceKind, Geometry, Parameters, Superblock};

use crate::io::digest;
use crate::progress::Progress;
use crate::size;
use crate::store::backing::{self, Access, Kind, Store};
use crate::store::file_size::is_lack_of_space;
use crate::store::grow;
use crate::store::guard::{self, Allowed};
use crate::store::owner;
use crate::store::probe::{self, Contents};

/// Bytes cleared at both ends of a device, so that its earlier contents are not recognised. Signatures that libblkid knows lie in the first 2 MiB and the last
/// 2: btrfs at 64 KiB, VMFS at 1 and 2 MiB, GPT, ZFS and RAID at the end, Promise's at 1.5 MiB before it.
const MARGIN: u64 = 4 << 20;
/// Byte offsets of btrfs's superblock copies, from which a rescue makes the file system anew.
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];

/// Makes a pool of 16 MiB for a unit test, over any file at the path.
#[cfg(test)]
pub fn scratch(path: &Path) -> (Store, Parameters) {
    create(path, Geometry::for_capacity(16 << 20).unwrap(), true, DeviceKind::Auto).unwrap()
}

/// Makes a pool of this geometry, on a disk of this kind; returns its store, locked, and its parameters.
pub fn create(path: &Path, geometry: Geometry, force: bool, device: DeviceKind) -> anyhow::Result<(Store, Parameters)> {
    let existed = backing::kind_of(path)?.is_some();
    let mut store = Store::open(path, if existed { Access::Write } else { Access::CreateNew })?;
    guard::check(&store, Allowed::Pools)?;
    if !force {
        // This holds also in a file that we made: until it was locked, another process may have made a pool of it.
        refuse_to_overwrite(&store)?;
    }
    // An existing pool is replaced only if no other process owns it.
    let _owned = match probe::probe(&store)? {
        Contents::Pool(pool) => Some(owner::acquire(&store, &pool.parameters)?),
        _ => None,
    };
    match fill(&mut store, geometry, device) {
        Ok(parameters) => Ok((store, parameters)),
        Err(error) => {
            if !existed {
                let _ = std::fs::remove_file(path);
            }
            Err(error)
        }
    }
}

/// Makes an empty pool of a store, over any contents.
pub fn fill(store: &mut Store, geometry: Geometry, device: DeviceKind) -> anyhow::Result<Parameters> {
    let parameters = new_parameters(geometry)?;
    write_pool(store, parameters, device)?;
    Ok(parameters)
}

/// Computes the layout of a pool for at least `capacity` bytes of data, with metadata of at least `metadata_percent` percent of that.
pub fn geometry_for(capacity: u64, metadata_percent: u64) -> anyhow::Result<Geometry> {
    Geometry::with_metadata(capacity, metadata_percent)
        .map_err(|error| anyhow::anyhow!("a pool of {} is not possible: {error}", size::show(capacity)))
}

/// Says that a pool got more than the requested size: its space comes in containers of 4 MiB, at least four of them.
pub fn rounding(asked: u64, got: u64) -> Option<String> {
    (got != asked).then(|| {
        format!(
            "rounded:   {} ({asked} bytes) were asked for; the capacity is {} ({got} bytes)",
            size::show(asked),
            size::show(got)
        )
    })
}

fn new_parameters(geometry: Geometry) -> anyhow::Result<Parameters> {
    let (mut id, mut key) = ([0; 16], [0; 32]);
    getrandom::fill(&mut id).and_then(|()| getrandom::fill(&mut key)).context("the kernel gives no random numbers")?;
    Ok(Parameters::new(geometry, id, key, digest::DEFAULT))
}

/// Fails if the store holds something, naming it.
fn refuse_to_overwrite(store: &Store) -> anyhow::Result<()> {
    let path = store.path().display();
    let what = match probe::probe(store)? {
        Contents::Empty => return Ok(()),
        Contents::Pool(pool) => describe_pool(&pool),
        Contents::Unusable(error) => format!("a Onefold pool that this program cannot open ({error})"),
        Contents::Foreign(Some(name)) => name.to_string(),
        Contents::Foreign(None) => "data".to_string(),
    };
    bail!("{path} holds {what}. Nothing was changed: name another place, or add --force to destroy what is there")
}

fn describe_pool(pool: &Superblock) -> String {
    let capacity = pool.parameters.geometry.capacity_bytes();
    format!("a Onefold pool already (capacity {})", size::show(capacity))
}

fn write_pool(store: &mut Store, parameters: Parameters, device: DeviceKind) -> anyhow::Result<()> {
    let needed = parameters.geometry.total_bytes();
    match store.kind() {
        Kind::File => {
            store.reset_to(needed)?;
            grow::reserve_metadata(store, &parameters.geometry);
        }
        Kind::Device => grow::require_length(store, &parameters.geometry)?,
    }
    let format = engine::format(parameters, device);
    let total: u64 = format.zero.iter().map(|(_, length)| length).sum();
    let mut progress = Progress::new("writing the journal", total);
    if store.kind() == Kind::Device {
        let block = parameters.geometry.block();
        let size = store.size() / block * block;
        let ends = [(0, MARGIN.min(size)), (size.saturating_sub(MARGIN), MARGIN.min(size))];
        let copies = BTRFS_COPIES.map(|copy| (copy, block)).into_iter().filter(|(copy, _)| copy + block <= size);
        for (offset, length) in ends.into_iter().chain(copies) {
            store.write_zeroes(offset, length, &mut |_| ()).map_err(|error| failed("write to", store, error))?;
        }
    }
    for (offset, length) in &format.zero {
        store
            .write_zeroes(*offset, *length, &mut |step| progress.add(step))
            .map_err(|error| failed("write to", store, error))?;
    }
    store.sync().map_err(|error| failed("sync", store, error))?;
    for (offset, bytes) in &format.blocks {
        store.write(*offset, bytes).map_err(|error| failed("write to", store, error))?;
    }
    store.sync().map_err(|error| failed("sync", store, error))?;
    store.sync_directory().map_err(|error| failed("sync the directory of", store, error))?;
    progress.finish();
    Ok(())
}

fn failed(what: &str, store: &Store, error: std::io::Error) -> anyhow::Error {
    let full = error.raw_os_error().is_some_and(is_lack_of_space);
    let hint = if full { ": there is no space for the pool's tables" } else { "" };
    anyhow::Error::new(error).context(format!("cannot {what} {}{hint}", store.path().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str, bytes: &[u8]) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("onefold-create-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn refusal(name: &str, bytes: &[u8]) -> String {
        let path = scratch(name, bytes);
        let error = create(&path, geometry_for(1 << 24, 0).unwrap(), false, DeviceKind::Auto)
            .err()
            .expect("it must be refused")
            .to_string();
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "nothing may change");
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains("--force") && error.contains(path.to_str().unwrap()), "{error}");
        error
    }

    #[test]
    fn zeroes_and_holes_are_written_over() {
        let path = scratch("blank", &vec![0; (3 << 20) + 5]);
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(create(&path, geometry_for(1 << 24, 0).unwrap(), false, DeviceKind::Auto).is_ok());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_holds_something_is_not_overwritten() {
        let mut ext4 = vec![0; 1 << 16];
        ext4[1080..1082].copy_from_slice(&[0x53, 0xEF]);
        assert!(refusal("ext4", &ext4).contains("ext4"));
        assert!(refusal("text", b"my diary").contains("data"));
        for (length, at) in [(3 << 20, (3 << 20) - 1), ((3 << 20) + 5, (3 << 20) + 4), (9 << 20, 5 << 20)] {
            let mut bytes = vec![0; length];
            bytes[at] = 1;
            assert!(refusal("one byte", &bytes).contains("data"), "byte {at} of {length}");
        }
        let parameters = new_parameters(Geometry::for_capacity(1 << 30).unwrap()).unwrap();
        let mut pool = vec![0; 4096];
        Superblock::new(parameters).encode(&mut pool);
        assert!(refusal("pool", &pool).contains("capacity 1 GiB"));
        pool[8] = 9;
        assert!(refusal("version", &pool).contains("version 9"));
    }
}
