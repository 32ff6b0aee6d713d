//! Replacement of a file by one of the same kind, by a rename: profiles, recordings, manual pages. A file of another kind stays.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::io::input;

/// Kind of file that a command may replace, known by its first bytes.
#[derive(Clone, Copy, Debug)]
pub struct Replaceable {
    /// The first bytes.
    pub begins: &'static [u8],
    /// Name of the kind in messages.
    pub what: &'static str,
}

impl Replaceable {
    /// Refuses a path unless it is missing, empty, or a file that begins so. Two names are easily confused, and one of them is that of a pool.
    pub fn check(&self, path: &Path) -> anyhow::Result<()> {
        let shown = path.display();
        let is_own = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("cannot look at {shown}")),
            Ok(found) if !found.is_file() => false,
            Ok(_) => {
                let opened = input::open(path).with_context(|| format!("cannot open {shown}"))?;
                let mut begins = Vec::new();
                opened.take(self.begins.len() as u64).read_to_end(&mut begins)?;
                self.begins.starts_with(&begins)
            }
        };
        ensure!(is_own, "{shown} is there already, and is no {}: name another file", self.what);
        Ok(())
    }

    /// Writes a file in place of one of the same kind, when the new one is complete.
    pub fn replace(&self, path: &Path, write: impl FnOnce(&mut File) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.check(path)?;
        let new = beside(path)?;
        let written = File::options().write(true).create_new(true).mode(0o666).open(&new).map_err(anyhow::Error::from);
        let written = written.and_then(|mut made| {
            let done = write(&mut made).and_then(|()| Ok(made.sync_all()?)).and_then(|()| Ok(fs::rename(&new, path)?));
            done.inspect_err(|_| drop(fs::remove_file(&new)))
        });
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Returns a random name in the same folder that no file has.
fn beside(path: &Path) -> anyhow::Result<PathBuf> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
    let mut name = path.as_os_str().to_os_string();
    name.push(format!(".{:016x}.new", u64::from_ne_bytes(random)));
    Ok(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_of_the_same_kind_is_replaced() {
        const LETTERS: Replaceable = Replaceable { begins: b"Dear ", what: "letter" };
        let path = std::env::temp_dir().join(format!("onefold-replace-{}", std::process::id()));
        fs::write(&path, "ONEFOLD").unwrap();
        let put =
            |text: &'static str| LETTERS.replace(&path, |file| Ok(std::io::Write::write_all(file, text.as_bytes())?));
        assert!(put("Dear you").unwrap_err().to_string().contains("is no letter"));
        assert!(LETTERS.check(&std::env::temp_dir()).is_err());
        fs::remove_file(&path).unwrap();
        put("Dear you").unwrap();
        put("Dear all").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"Dear all");
        let link = path.with_extension("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(LETTERS.check(&link).is_err());
        fs::remove_file(&link).unwrap();
        fs::remove_file(&path).unwrap();
    }
}
