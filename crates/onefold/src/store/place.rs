//! Default places of a pool's sockets, so that commands find them: beside its file; for a block device in the run-time directory, by the pool's id; for a file
//! with a path too long for a socket there, too, by the digest of that path.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::frontend::nbd::listen::UNIX_PATH_MAX;
use crate::store::backing::{self, Kind};
use crate::store::probe;

/// The run-time directory of servers that no user's session started.
const SYSTEM_DIRECTORY: &str = "/run/onefold";

/// The sockets of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sockets {
    /// Socket for NBD clients, unless told otherwise.
    pub export: PathBuf,
    /// Socket on which commands reach a serving process.
    pub control: PathBuf,
    /// True if they are in the run-time directory.
    pub are_in_run_time: bool,
}

impl Sockets {
    /// Returns the sockets that a server of the pool at `path` makes; `None` if it is a device without a pool.
    pub fn of(path: &Path) -> anyhow::Result<Option<Sockets>> {
        Ok(Sockets::candidates(path)?.into_iter().next())
    }

    /// Lists the possible sockets of the pool at `path`: those of a server with our environment first, then those of one with another.
    pub fn candidates(path: &Path) -> anyhow::Result<Vec<Sockets>> {
        match backing::kind_of(path)? {
            Some(Kind::Device) => {
                let Some(id) = probe::id_without_lock(path)? else { return Ok(Vec::new()) };
                Ok(Sockets::in_run_time(&format!("{:032x}", u128::from_be_bytes(id))))
            }
            Some(Kind::File) => {
                // Under every name of the file, its sockets are in one place.
                let path =
                    path.canonicalize().with_context(|| format!("cannot find out where {} is", path.display()))?;
                Ok(Sockets::of_file(&path))
            }
            None => Ok(Sockets::of_file(path)),
        }
    }

    fn of_file(path: &Path) -> Vec<Sockets> {
        let beside = Sockets::with_stem(path, false);
        if beside.export.as_os_str().len() <= UNIX_PATH_MAX {
            return vec![beside];
        }
        let digest = blake3::hash(path.as_os_str().as_bytes()).to_hex();
        Sockets::in_run_time(&format!("path-{}", &digest[..32]))
    }

    fn in_run_time(name: &str) -> Vec<Sockets> {
        let mut directories = vec![run_time_directory(), PathBuf::from(SYSTEM_DIRECTORY)];
        directories.dedup();
        directories.iter().map(|directory| Sockets::with_stem(&directory.join(name), true)).collect()
    }

    fn with_stem(stem: &Path, are_in_run_time: bool) -> Sockets {
        let with = |suffix: &str| {
            let mut name = stem.as_os_str().to_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        Sockets { export: with(".sock"), control: with(".ctl"), are_in_run_time }
    }

    /// Makes the run-time directory, where the sockets are in it.
    pub fn prepare(&self) -> anyhow::Result<()> {
        if !self.are_in_run_time {
            return Ok(());
        }
        let directory = run_time_directory();
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).with_context(|| {
            format!(
                "cannot make {} for the sockets: put them elsewhere with --listen unix:PATH and --control PATH, and give \
                 commands the same --control PATH",
                directory.display()
            )
        })
    }
}

fn run_time_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory),
        _ => PathBuf::from(SYSTEM_DIRECTORY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_sockets_beside_it() {
        let sockets = Sockets::of(Path::new("/nowhere/disk.onefold")).unwrap().unwrap();
        assert_eq!(sockets.export, Path::new("/nowhere/disk.onefold.sock"));
        assert_eq!(sockets.control, Path::new("/nowhere/disk.onefold.ctl"));
    }

    #[test]
    fn a_file_with_a_path_too_long_for_a_socket_has_short_ones_of_its_own() {
        let at = |length: usize| {
            let name = "n".repeat(length - "/nowhere/".len());
            Sockets::of(&Path::new("/nowhere").join(name)).unwrap().unwrap()
        };
        assert!(!at(102).are_in_run_time);
        assert_eq!(at(102).export.as_os_str().len(), UNIX_PATH_MAX);
        let (one, other) = (at(103), at(104));
        assert!(one.are_in_run_time && other.are_in_run_time);
        assert!(one.export.as_os_str().len() < 100);
        assert!(one.export != other.export && one.control != other.control);
        assert_eq!(one, at(103));
    }

    #[test]
    fn a_link_to_a_file_leads_to_the_same_sockets() {
        let directory = std::env::temp_dir().join(format!("onefold-place-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (file, link) = (directory.join("disk"), directory.join("link"));
        std::fs::write(&file, "").unwrap();
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(Sockets::of(&link).unwrap(), Sockets::of(&file).unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
