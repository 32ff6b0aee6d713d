//! Detection of copy-on-write file systems under a pool.
//!
//! There, overwrites need new space as well: on a full one not even the journal can be written. The engine lives with that (`engine/src/data_path/enospc.rs`),
//! but flushes fail meanwhile, and the store gets scattered. So a new pool's file is switched to writing in place where that is possible: on Btrfs, as long as
//! the file is empty. Btrfs keeps no checksums of such a file then. Onefold needs none: it has its own of every block. A snapshot, or a copy with `cp
//! --reflink`, brings copying back for the shared blocks, once for each place; on XFS too. Snapshots and such copies are not detected.

use std::fs::File;

use rustix::fs::{IFlags, fstatfs, ioctl_getflags, ioctl_setflags};

use crate::store::backing::{Kind, Store};

/// Numbers of file systems in `f_type` of statfs(2).
const BTRFS: u32 = 0x9123_683e;
const ZFS: u32 = 0x2fc1_2fc1;
const BCACHEFS: u32 = 0xca45_1a4e;

/// Way in which the file system overwrites data of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwriting {
    /// In place, as far as is known.
    InPlace,
    /// In place, because the file is marked so.
    SwitchedToInPlace,
    /// Elsewhere: the name of the file system.
    Elsewhere(&'static str),
}

/// Message about a file that is marked so.
pub const SWITCHED: &str = "its file is written in place (NOCOW): a full host cannot stop what overwrites something. Btrfs keeps no checksums of \
                            it; the pool has its own";

fn file_system(file: &File) -> Option<u32> {
    fstatfs(file).ok().map(|file_system| file_system.f_type as u32)
}

/// Sets NOCOW on an empty file on Btrfs, so that it is written in place. A refusal shows in [`overwriting`].
pub fn switch_off(file: &File) {
    if file_system(file) == Some(BTRFS)
        && let Ok(flags) = ioctl_getflags(file)
    {
        // Where that is refused, `overwriting` says so.
        let _ = ioctl_setflags(file, flags | IFlags::NOCOW);
    }
}

/// Finds out how the file system overwrites data of the store.
pub fn overwriting(store: &Store) -> Overwriting {
    if store.kind() == Kind::Device {
        return Overwriting::InPlace;
    }
    let name = match file_system(store.file()) {
        Some(BTRFS) => "Btrfs",
        Some(ZFS) => return Overwriting::Elsewhere("ZFS"),
        Some(BCACHEFS) => "bcachefs",
        _ => return Overwriting::InPlace,
    };
    match ioctl_getflags(store.file()) {
        Ok(flags) if flags.contains(IFlags::NOCOW) => Overwriting::SwitchedToInPlace,
        _ => Overwriting::Elsewhere(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_marked_only_on_btrfs() {
        let path = std::env::temp_dir().join(format!("onefold-copying-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let is_btrfs = file_system(&file) == Some(BTRFS);
        let before = ioctl_getflags(&file).ok();
        switch_off(&file);
        let marked = ioctl_getflags(&file).ok();
        assert_eq!(before != marked, is_btrfs && before.is_some_and(|flags| !flags.contains(IFlags::NOCOW)));
        std::fs::remove_file(&path).unwrap();
    }
}
