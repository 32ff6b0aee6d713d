//! Read-only inspection of a pool that no server has.
//!
//! The engine opens the pool as always, but its writes on the way are dropped: it reads none of them later. So the figures of a pool that was not closed
//! cleanly are those that recovery will find, also where it cannot be written.

use std::path::Path;

use anyhow::bail;
use engine::{InheritedCounts, Superblock};

use crate::commands::check::{Audit, Overlay};
use crate::commands::error_text::explain_open;
use crate::memory;
use crate::operators::selection::Selection;
use crate::report::status::{Report, VolumeReport};
use crate::store::backing::{Access, Store};
use crate::store::owner::{self, Purpose};

/// Returns the figures of a pool that no server has, and of the selected volumes, without a write to it.
pub fn report(path: &Path, selection: &Selection) -> anyhow::Result<Report> {
    let store = Store::open(path, Access::Read)?;
    let (superblock, _) = owner::claim(&store, Purpose::Read)?;
    let mut audit = Audit::new(&superblock, Overlay::that_forgets(store))?;
    if let Err(error) = audit.open()? {
        bail!("{} cannot be opened: {}", path.display(), explain_open(error));
    }
    let engine = audit.engine();
    let mut known = InheritedCounts::default();
    let of_volume = |volume| VolumeReport::new(volume, engine, 0, &mut known);
    let volumes = selection.volumes(engine).into_iter().map(of_volume).collect();
    let mut report = Report::new(engine, memory::of_pool(engine.properties().memory()), volumes);
    report.needs_recovery = needs_recovery(&superblock);
    Ok(report)
}

/// Refuses a command that would have to recover the pool, a write that the user has not asked for.
pub fn require_recovered(path: &Path) -> anyhow::Result<()> {
    let (superblock, _) = owner::claim(&Store::open(path, Access::Read)?, Purpose::Read)?;
    if needs_recovery(&superblock) {
        bail!(
            "{path} was not closed cleanly, and --settle needs it recovered: add --recover, or leave --settle out to see what \
             recovery will find",
            path = path.display()
        );
    }
    Ok(())
}

/// Returns true if the pool was not closed cleanly. One that has failed is not recovered any more.
fn needs_recovery(superblock: &Superblock) -> bool {
    !superblock.clean && superblock.failed.is_none()
}
