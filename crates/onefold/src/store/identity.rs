//! Identity of a store: the file or device itself, under any name.
//!
//! Names change and are given to others: a served file is moved away and a backup takes its place. The contents of a store identify it no better: a copy of a
//! device has the pool's id, and all other bytes. So a command names the file or device that it found at its path, and a server answers only for the one that
//! it has open.

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// A file or a device, on this machine and until it starts anew. Hard links, symbolic links, bind mounts and other names refer to the same; a loop device over
/// a file is another.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// A regular file.
    File {
        /// The number of its file system (`st_dev`).
        file_system: u64,
        /// Its own number there (`st_ino`).
        inode: u64,
    },
    /// A block device.
    Device {
        /// Its number (`st_rdev`).
        number: u64,
    },
}

impl Identity {
    /// Identifies the file or device at a path.
    pub fn at(path: &Path) -> anyhow::Result<Identity> {
        let metadata = std::fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
        Ok(Identity::of(&metadata))
    }

    /// Identifies a file or device that is open.
    pub fn of_file(file: &File) -> anyhow::Result<Identity> {
        Ok(Identity::of(&file.metadata().context("cannot look at the store")?))
    }

    fn of(metadata: &Metadata) -> Identity {
        if metadata.file_type().is_block_device() {
            return Identity::Device { number: metadata.rdev() };
        }
        Identity::File { file_system: metadata.dev(), inode: metadata.ino() }
    }
}

/// Returns the current name of an open file: the kernel follows it when it is moved, and says so when it is deleted.
pub fn name_of(file: &File) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// Returns the process that has the lock (flock(2)) of a file, where the kernel tells: not across every kind of file system.
pub fn holder_of(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    let place = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        // 1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF
        let mut fields = line.split_whitespace().skip(1);
        let (kind, process, of) = (fields.next()?, fields.nth(2)?, fields.next()?);
        (kind == "FLOCK" && of == place).then(|| process.parse().ok())?
    })
}

/// Returns true if a process is a server at work: a dead one whose writes are still in flight has no command line any more.
pub fn is_server(process: u32) -> bool {
    let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).nth(1) == Some(b"serve")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_told() {
        let path = std::env::temp_dir().join(format!("onefold-holder-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        assert_eq!(holder_of(&file), None);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        // Overlays and the like show locks under another number.
        assert!(holder_of(&file).is_none_or(|process| process == std::process::id()));
        assert!(!is_server(std::process::id()));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn names_lead_to_the_file_and_a_copy_is_another() {
        let directory = std::env::temp_dir().join(format!("onefold-identity-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let at = |name: &str| directory.join(name);
        std::fs::write(at("disk"), "a pool").unwrap();
        let file = File::open(at("disk")).unwrap();
        std::fs::hard_link(at("disk"), at("hard")).unwrap();
        std::os::unix::fs::symlink("disk", at("symbolic")).unwrap();
        std::fs::copy(at("disk"), at("copy")).unwrap();
        let identity = |name: &str| Identity::at(&at(name)).unwrap();
        assert_eq!(identity("hard"), identity("disk"));
        assert_eq!(identity("symbolic"), identity("disk"));
        assert_ne!(identity("copy"), identity("disk"));
        // Moved away, with the copy in its place.
        std::fs::rename(at("disk"), at("moved")).unwrap();
        std::fs::rename(at("copy"), at("disk")).unwrap();
        let open = Identity::of_file(&file).unwrap();
        assert_eq!(identity("moved"), open);
        assert_ne!(identity("disk"), open);
        assert_eq!(name_of(&file).unwrap().file_name(), at("moved").file_name());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
