//! Where the sockets of a pool are: beside the file, or for a block device in the run-time directory, by the pool's id.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::backing::{self, Kind};
use crate::probe;

/// The run-time directory of servers that no user's session started.
const SYSTEM_DIRECTORY: &str = "/run/onefold";

/// The sockets of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sockets {
    /// Where clients connect unless told otherwise.
    pub export: PathBuf,
    /// Where commands reach a serving process.
    pub control: PathBuf,
}

impl Sockets {
    /// The sockets that a server of the pool at `path` makes; `None` if it is a device without a pool.
    pub fn of(path: &Path) -> anyhow::Result<Option<Sockets>> {
        Ok(Sockets::candidates(path)?.into_iter().next())
    }

    /// Where the sockets of the pool at `path` may be: those of a server with our environment first, then those of one
    /// with another.
    pub fn candidates(path: &Path) -> anyhow::Result<Vec<Sockets>> {
        match backing::kind_of(path)? {
            Some(Kind::Device) => {
                let Some(id) = probe::id_without_lock(path)? else { return Ok(Vec::new()) };
                let name = format!("{:032x}", u128::from_be_bytes(id));
                let mut directories = vec![run_time_directory(), PathBuf::from(SYSTEM_DIRECTORY)];
                directories.dedup();
                Ok(directories.iter().map(|directory| Sockets::with_stem(&directory.join(&name))).collect())
            }
            Some(Kind::File) => {
                // Whatever name the file is called by, its sockets are in one place.
                let path =
                    path.canonicalize().with_context(|| format!("cannot find out where {} is", path.display()))?;
                Ok(vec![Sockets::with_stem(&path)])
            }
            None => Ok(vec![Sockets::with_stem(path)]),
        }
    }

    fn with_stem(stem: &Path) -> Sockets {
        let with = |suffix: &str| {
            let mut name = stem.as_os_str().to_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        Sockets { export: with(".sock"), control: with(".ctl") }
    }

    /// Makes the run-time directory, where the sockets are in it.
    pub fn prepare(&self, kind: Kind) -> anyhow::Result<()> {
        if kind == Kind::File {
            return Ok(());
        }
        let directory = run_time_directory();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("cannot make {} for the sockets", directory.display()))
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
