//! Where the sockets of a pool are: beside the file, or for a block device in the run-time directory, by the pool's id.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::backing::{self, Kind};
use crate::probe;

/// The sockets of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sockets {
    /// Where clients connect unless told otherwise.
    pub export: PathBuf,
    /// Where commands reach a serving process.
    pub control: PathBuf,
}

impl Sockets {
    /// The sockets of the pool at `path`; `None` if it is a device without a pool.
    pub fn of(path: &Path) -> anyhow::Result<Option<Sockets>> {
        match backing::kind_of(path)? {
            Some(Kind::Device) => Ok(probe::id_without_lock(path)?.map(|id| {
                let name = format!("{:032x}", u128::from_be_bytes(id));
                Sockets::with_stem(&run_time_directory().join(name))
            })),
            Some(Kind::File) | None => Ok(Some(Sockets::with_stem(path))),
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
        _ => PathBuf::from("/run/onefold"),
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
}
