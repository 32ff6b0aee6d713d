//! Overwrite guard for every command that writes to a file or device.
//!
//! A target in use is never overwritten, whatever the switches: a mounted or mapped device, swap space, a file or device that a server, a QEMU or another
//! program has open to write. Nor are Onefold's own stores: a pool, the flash cache of a pool. [`Allowed`] names the commands that make these and may replace
//! them. All of it holds for the layers under the target, too, and for the partitions of a device: a loop device over a pool's file is that pool.
//!
//! This guards writes into existing files and devices; files that are replaced as a whole are in `replace`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use engine::SuperblockError;
use rustix::fs::{FlockOperation, flock};

use crate::flash::label::Label;
use crate::io::{input, locks};
use crate::size;
use crate::store::backing::{Kind, Store, kind_of};
use crate::store::identity::Identity;
use crate::store::layers::Layer;
use crate::store::owner;
use crate::store::probe;

/// Bytes of a flash cache that name its pool.
const LABEL_BYTES: usize = 32;

/// Contents of Onefold that a command may overwrite, if they are not in use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Allowed {
    /// Nothing.
    Foreign,
    /// Flash caches of other pools: `cache attach --force`.
    Caches,
    /// Pools and flash caches: `create --force`.
    Pools,
}

/// Opens the file or device at `path` to overwrite it: locked as long as the result lives. `None` if nothing is there.
pub fn claim(path: &Path, allowed: Allowed) -> anyhow::Result<Option<Store>> {
    if kind_of(path)?.is_none() {
        return Ok(None);
    }
    let store = Store::open_target(path)?;
    check(&store, allowed)?;
    Ok(Some(store))
}

/// Refuses to overwrite an open and locked store, by its contents and its users.
pub fn check(store: &Store, allowed: Allowed) -> anyhow::Result<()> {
    let path = store.path();
    if let Some(owner) = owner::running_at(path) {
        bail!("{} is in use by {}. Nothing was written: stop it first", path.display(), owner::describe(&owner));
    }
    let target = Layer { path: path.to_path_buf(), identity: store.identity()? };
    refuse_use(&target, &target, store.file())?;
    let below = target.below();
    for layer in &below {
        // A layer that cannot be opened cannot be checked, and no process with our rights writes it.
        let Ok(file) = input::open(&layer.path) else { continue };
        refuse_use(layer, &target, &file)?;
        let is_free = flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
        ensure!(is_free, "{}, and another process has that: stop it first", stands_on(&target, layer));
    }
    for layer in std::iter::once(&target).chain(&below).chain(&target.partitions()) {
        let Some(owner) = owner_of(&layer.path) else { continue };
        if owner.needs() <= allowed {
            continue;
        }
        let what =
            if *layer == target { format!("{} is", path.display()) } else { stands_on(&target, layer) + ", which is" };
        bail!("{what} {owner}. Nothing was changed: name another file or device. {}", advice(store.kind()));
    }
    Ok(())
}

/// Returns the advice for contents of Onefold that are not needed any more.
fn advice(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "If it is not needed any more, remove the file first",
        Kind::Device => "If it is not needed any more, clear the device first, with 'blkdiscard' or 'dd'",
    }
}

fn stands_on(target: &Layer, layer: &Layer) -> String {
    if *target == *layer {
        return target.path.display().to_string();
    }
    format!("{} leads to {}", target.path.display(), layer.path.display())
}

/// Refuses a layer that another process uses beside the target itself.
fn refuse_use(layer: &Layer, target: &Layer, file: &File) -> anyhow::Result<()> {
    let what = stands_on(target, layer);
    for over in layer.loops() {
        let is_way = over.identity == target.identity
            || target.below().iter().any(|below| below.identity == over.identity)
            || over.partitions().iter().any(|part| part.identity == target.identity);
        ensure!(
            is_way,
            "{what}, and the loop device {} is over it: unmount that, and detach it first ('losetup -d {}')",
            over.path.display(),
            over.path.display()
        );
    }
    ensure!(!is_swap(layer), "{what}, which is in use as swap space: 'swapoff' ends that");
    if let Some(process) = writer_of(layer) {
        bail!("{what}, which {process} has open to write: stop that first");
    }
    ensure!(!locks::is_locked(file), "{what}, which another program, such as QEMU, has locked: stop that first");
    Ok(())
}

fn is_swap(layer: &Layer) -> bool {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut paths = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    paths.any(|path| Layer::at(Path::new(path)).is_some_and(|swap| swap.identity == layer.identity))
}

/// Finds another process that has a file or device open for writing, as far as this one may know.
pub fn writer_of(layer: &Layer) -> Option<String> {
    let processes =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes.filter(|process| *process != std::process::id()).find_map(|process| {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
        let mut ours = descriptors.filter(|entry| may_be(&entry.path(), layer.identity));
        ours.any(|entry| writes(process, &entry.file_name()) && leads_to(&entry.path(), layer.identity)).then(|| {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            format!("process {process} ('{}')", name.trim_end())
        })
    })
}

/// Returns true if a descriptor's link can refer to that file or device. Called first, since most refer to sockets and the like.
fn may_be(link: &Path, identity: Identity) -> bool {
    let leads = fs::read_link(link).unwrap_or_default();
    match identity {
        Identity::File { .. } => leads.is_absolute(),
        Identity::Device { .. } => leads.is_absolute() && leads.starts_with("/dev"),
    }
}

fn leads_to(link: &Path, identity: Identity) -> bool {
    Identity::at(link).is_ok_and(|found| found == identity)
}

/// Returns true if a descriptor of a process is open for writing (proc(5), `fdinfo`).
fn writes(process: u32, descriptor: &OsString) -> bool {
    let path = PathBuf::from(format!("/proc/{process}/fdinfo")).join(descriptor);
    let information = fs::read_to_string(path).unwrap_or_default();
    let flags = information.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & 3 != 0)
}

/// Something of Onefold's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A pool, with its id and capacity where this program can read them.
    Pool(Option<([u8; 16], u64)>),
    /// The flash cache of the pool with this id.
    Cache([u8; 16]),
}

impl Owner {
    /// Returns the id of the pool, or of the pool that a cache belongs to; `None` if it cannot be read.
    fn pool(&self) -> Option<[u8; 16]> {
        match self {
            Owner::Pool(pool) => pool.map(|(id, _)| id),
            Owner::Cache(id) => Some(*id),
        }
    }

    fn needs(&self) -> Allowed {
        match self {
            Owner::Pool(_) => Allowed::Pools,
            Owner::Cache(_) => Allowed::Caches,
        }
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Owner::Pool(Some((id, capacity))) => {
                write!(
                    formatter,
                    "a Onefold pool ({:032x}, capacity {})",
                    u128::from_be_bytes(*id),
                    size::show(*capacity)
                )
            }
            Owner::Pool(None) => write!(formatter, "a Onefold pool, damaged or of another version"),
            Owner::Cache(id) => write!(formatter, "the flash cache of the pool {:032x}", u128::from_be_bytes(*id)),
        }
    }
}

/// Finds the pool or cache at a path, without asking its server; `None` if there is none, or it cannot be read.
pub fn owner_of(path: &Path) -> Option<Owner> {
    let file = input::open(path).ok()?;
    let mut first = [0; LABEL_BYTES];
    if file.read_exact_at(&mut first, 0).is_ok()
        && let Some(pool) = Label::pool_of(&first)
    {
        return Some(Owner::Cache(pool));
    }
    match probe::superblock_without_lock(&file) {
        Ok(superblock) => {
            let parameters = superblock.parameters;
            Some(Owner::Pool(Some((parameters.id, parameters.geometry.capacity_bytes()))))
        }
        Err(SuperblockError::Foreign) => None,
        Err(_) => Some(Owner::Pool(None)),
    }
}

/// Opens an image to read it into the pool at `pool`. Refuses pools and flash caches, unless their bytes are wanted `as_they_are` and they are not in use.
pub fn open_source(path: &Path, pool: &Path, as_they_are: bool) -> anyhow::Result<File> {
    let shown = path.display();
    kind_of(path)?;
    let file = input::open(path).with_context(|| format!("cannot open the image {shown}"))?;
    let source = Layer { path: path.into(), identity: Identity::of_file(&file)? };
    let own = probe::id_without_lock(pool).ok().flatten();
    for layer in std::iter::once(source.clone()).chain(source.below()) {
        let Some(owner) = owner_of(&layer.path) else { continue };
        let what = stands_on(&source, &layer);
        let is_own = own.is_some() && owner.pool() == own;
        ensure!(!is_own, "{what} is {owner}, which the image is to go into: name another image");
        ensure!(
            as_they_are,
            "{what} is {owner}, and no image of a disk: serve that pool, and copy a volume of it; or add --format raw to take its bytes as they are"
        );
        let below = (layer != source).then(|| input::open(&layer.path)).transpose()?;
        let is_free = flock(below.as_ref().unwrap_or(&file), FlockOperation::NonBlockingLockShared).is_ok();
        ensure!(is_free, "{what} is {owner}, and another process has it open: stop that first");
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("onefold-guard-{}-{name}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn what_others_use_is_refused() {
        let path = scratch("used", b"thesis");
        assert!(claim(&path.with_extension("missing"), Allowed::Foreign).unwrap().is_none());
        let held = claim(&path, Allowed::Foreign).unwrap();
        assert!(claim(&path, Allowed::Pools).err().unwrap().to_string().contains("in use"));
        drop(held);
        let open = File::options().read(true).write(true).open(&path).unwrap();
        locks::write(&open).unwrap();
        assert!(claim(&path, Allowed::Pools).err().unwrap().to_string().contains("QEMU"));
        fs::remove_file(&path).unwrap();
    }
}
