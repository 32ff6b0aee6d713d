//! The file or device of the flash: refusals, the state *away*, and making a new cache.
//!
//! An operator's mistake is refused: a directory, the pool's own store, another pool, something in use, something too small. A failure of the cache itself
//! never keeps a pool from being served: the flash is *away*, with the reason, and reads go to the store.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use crate::flash::label::{Attach, Label};
use crate::io::arena::BLOCK;
use crate::size;
use crate::store::backing::{self, Access, Kind, Store};
use crate::store::guard::{self, Allowed};
use crate::store::identity::Identity;
use crate::store::probe::{self, Contents};

/// The smallest flash: the label, the log and some containers of 4 MiB.
pub const SIZE_MIN: u64 = 16 << 20;

/// An open flash, locked, with what its label says.
pub struct Cache {
    /// The file or device.
    pub store: Store,
    /// Its first block.
    pub label: Label,
}

/// Flash that a start was given.
#[derive(Default)]
pub enum Given {
    /// Nothing.
    #[default]
    Nothing,
    /// This, which cannot be used.
    Away {
        /// Path of the file or device.
        path: PathBuf,
        /// Reason for the refusal, in words.
        reason: String,
    },
    /// This.
    Here(Box<Cache>),
}

/// Pool that a flash is to serve.
#[derive(Clone, Copy)]
pub struct Pool<'a> {
    /// The pool's store, open.
    pub store: &'a Store,
    /// The pool's id.
    pub id: [u8; 16],
}

/// Opens the flash that a start names.
pub fn open(path: &Path, pool: Pool<'_>) -> anyhow::Result<Given> {
    let away = |reason: String| Ok(Given::Away { path: path.to_path_buf(), reason });
    if backing::kind_of(path)?.is_none() {
        return away("it does not exist".into());
    }
    refuse_own_store(path, pool)?;
    let store = Store::open(path, Access::Write)?;
    let label = match read_label(&store) {
        Ok(label) => label,
        Err(error) => return away(format!("it cannot be read: {error}")),
    };
    let Some(label) = label else {
        if let Ok(Contents::Pool(_) | Contents::Unusable(_)) = probe::probe(&store) {
            bail!("{} is a pool, and no cache", path.display());
        }
        refuse_small(path, store.size())?;
        return away(format!(
            "it holds no cache. If it is to be one: onefold cache attach {} {}",
            pool.store.path().display(),
            path.display()
        ));
    };
    if label.pool != pool.id {
        return away(format!("it is the cache of another pool, {:032x}", u128::from_be_bytes(label.pool)));
    }
    if store.size() < label.size {
        let (is, was) = (size::show(store.size()), size::show(label.size));
        return away(format!("it is {is} long, and {was} are its cache: attach it anew"));
    }
    // By a loop device, or the file under one, another server may have it.
    if let Err(error) = guard::check(&store, Allowed::Caches) {
        return away(format!("{error:#}"));
    }
    Ok(Given::Here(Box::new(Cache { store, label })))
}

/// Makes a cache of a file or a device, or takes one as it is with other figures. Nothing that it holds otherwise is lost without `force`.
pub fn make(wanted: &Attach, pool: Pool<'_>) -> anyhow::Result<Cache> {
    let path = &wanted.path;
    let shown = path.display();
    let kind = backing::kind_of(path)?;
    if kind.is_none() {
        let size = wanted
            .size_bytes
            .with_context(|| format!("{shown} does not exist: --size SIZE makes a file of that size"))?;
        let size = size / BLOCK as u64 * BLOCK as u64;
        refuse_small(path, size)?;
        let mut store = Store::open(path, Access::CreateNew)?;
        return store.reset_to(size).and_then(|()| fill(store, wanted, size, pool)).inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        });
    }
    refuse_own_store(path, pool)?;
    let store = Store::open(path, Access::Write)?;
    guard::check(&store, Allowed::Caches)?;
    let before = read_label(&store).with_context(|| format!("cannot read {shown}"))?;
    match before {
        Some(label) if label.pool == pool.id || wanted.force => {}
        Some(label) => bail!(
            "{shown} is the cache of another pool, {:032x}: --force takes it from that",
            u128::from_be_bytes(label.pool)
        ),
        None => refuse_contents(&store, wanted.force)?,
    }
    let all = match before {
        Some(label) if kind == Some(Kind::File) => store.size().max(label.size),
        _ => store.size(),
    };
    let size = wanted.size_bytes.unwrap_or(all) / BLOCK as u64 * BLOCK as u64;
    let too_long = kind == Some(Kind::Device) && size > store.size();
    ensure!(!too_long, "{shown} has {}, and --size asks for {}", size::show(store.size()), size::show(size));
    refuse_small(path, size)?;
    fill(store, wanted, size, pool)
}

/// Makes a cache as [`make`] does, for a pool that this process serves.
pub fn make_for_served(wanted: &Attach, store: &Store) -> anyhow::Result<(Store, Label)> {
    let id = probe::require_pool(store)?.parameters.id;
    let Cache { store, label } = make(wanted, Pool { store, id })?;
    Ok((store, label))
}

/// Makes it long enough and writes the label.
fn fill(mut store: Store, wanted: &Attach, size: u64, pool: Pool<'_>) -> anyhow::Result<Cache> {
    let path = wanted.path.clone();
    let label = Label {
        pool: pool.id,
        size,
        budget: wanted.budget_bytes.unwrap_or(size),
        endurance: wanted.endurance_bytes.unwrap_or(0),
    };
    write(&mut store, &label)
        .with_context(|| format!("cannot make {} a cache of {}", path.display(), size::show(size)))?;
    Ok(Cache { store, label })
}

fn write(store: &mut Store, label: &Label) -> std::io::Result<()> {
    if store.kind() == Kind::File {
        store.extend_to(label.size)?;
        store.allocate(label.size)?;
    }
    store.write(0, &label.encode())?;
    store.sync()?;
    store.sync_directory()
}

/// Reads the label in the first block; `None` if there is no label there, or one that is damaged or of another version.
fn read_label(store: &Store) -> std::io::Result<Option<Label>> {
    Ok(Label::decode(store.read(0, BLOCK)?.bytes()))
}

fn refuse_own_store(path: &Path, pool: Pool<'_>) -> anyhow::Result<()> {
    let is_own = Identity::at(path)? == pool.store.identity()?;
    ensure!(!is_own, "{} is the pool's own store: its flash is another file or device", path.display());
    Ok(())
}

fn refuse_small(path: &Path, size: u64) -> anyhow::Result<()> {
    let (shown, least) = (size::show(size), size::show(SIZE_MIN));
    ensure!(size >= SIZE_MIN, "{} is too small for a cache with {shown}: it needs {least} at least", path.display());
    Ok(())
}

fn refuse_contents(store: &Store, force: bool) -> anyhow::Result<()> {
    let path = store.path().display();
    match probe::probe(store)? {
        Contents::Pool(_) | Contents::Unusable(_) => {
            bail!("{path} is a pool: name another file or device as its cache")
        }
        Contents::Foreign(what) if !force => bail!(
            "{path} holds {}, which a cache would overwrite: --force makes it a cache all the same",
            what.unwrap_or("data")
        ),
        Contents::Foreign(_) | Contents::Empty => Ok(()),
    }
}
