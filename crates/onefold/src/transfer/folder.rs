//! Private folder for sockets in the temporary folder, closed to other users.
//!
//! It goes when its value is dropped. A process that is killed cannot do that: its folder loses the lock that says that it is in use, and the next command of
//! the same user removes it.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};

use crate::io::input;
use crate::store::identity::Identity;

/// Beginning of every name, and the number of hexadecimal digits that follow.
const PREFIX: &str = "onefold-";
const DIGITS: usize = 16;
/// New names that are tried.
const ATTEMPTS: usize = 8;

/// A private folder for sockets, closed to other users; it is removed with its contents.
pub struct Folder {
    path: PathBuf,
    /// Locked as long as the folder is in use.
    _lock: File,
}

impl Folder {
    /// Makes a new folder, and removes those that killed processes have left.
    pub fn new() -> anyhow::Result<Folder> {
        Folder::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> anyhow::Result<Folder> {
        remove_abandoned(parent);
        for _ in 0..ATTEMPTS {
            let mut random = [0; DIGITS / 2];
            getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
            let path = parent.join(format!("{PREFIX}{:016x}", u64::from_ne_bytes(random)));
            let context = || format!("cannot make {}", path.display());
            fs::DirBuilder::new().mode(0o700).create(&path).with_context(context)?;
            // Another command may take it for abandoned before it is locked.
            if let Ok(lock) = input::open(&path)
                && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
                && Identity::at(&path).is_ok_and(|found| Identity::of_file(&lock).is_ok_and(|made| made == found))
            {
                return Ok(Folder { path, _lock: lock });
            }
        }
        bail!("cannot make a folder in {}: other commands remove it", parent.display())
    }

    /// Returns the path of a name in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes folders of this user that no process uses any more. A folder that cannot be removed stays.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).unwrap_or_default();
        let is_name = digits.len() == DIGITS && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        if !is_name {
            continue;
        }
        let is_ours = fs::symlink_metadata(entry.path())
            .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw());
        if is_ours
            && let Ok(lock) = input::open(&entry.path())
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            remove_with_sockets(&entry.path());
        }
    }
}

/// Removes a folder in which there are sockets at most: one with any other file is a user's own, whatever its name.
fn remove_with_sockets(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_has_left_goes_and_what_is_in_use_stays() {
        let parent = std::env::temp_dir().join(format!("onefold-folders-{}", std::process::id()));
        fs::create_dir(&parent).unwrap();
        let [left, other, own] = ["0123456789abcdef", "0123456789abcdeX", "0123456789abcde0"]
            .map(|digits| parent.join(format!("onefold-{digits}")));
        for path in [&left, &other, &own] {
            fs::create_dir(path).unwrap();
            std::os::unix::net::UnixListener::bind(path.join("pool.sock")).unwrap();
        }
        fs::write(own.join("notes"), "mine").unwrap();
        let used = Folder::within(&parent).unwrap();
        let second = Folder::within(&parent).unwrap();
        assert!(!left.exists() && other.exists() && used.path.exists() && second.path.exists());
        assert_eq!(fs::read(own.join("notes")).unwrap(), b"mine");
        drop(used);
        drop(second);
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 2);
        fs::remove_dir_all(&parent).unwrap();
    }
}
