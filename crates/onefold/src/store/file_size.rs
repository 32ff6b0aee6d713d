//! The limit on the size of files (RLIMIT_FSIZE, `ulimit -f`): raised as far as it may be, and checked before a pool is written to.
//!
//! A write beyond it sends SIGXFSZ, which ends a process that does not handle it, and fails with EFBIG. The limit can also be changed while a server runs. So
//! the signal is handled, and EFBIG is a lack of space as ENOSPC is: nothing is lost by it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::size;

/// Handles the signal of a write beyond the limit: that write fails, and the process continues.
pub fn handle_signal() -> anyhow::Result<()> {
    signal_hook::flag::register(libc::SIGXFSZ, Arc::default()).context("cannot handle SIGXFSZ")?;
    Ok(())
}

/// Raises the limit for a file of `bytes` bytes; fails if that is not allowed.
pub fn allow(path: &Path, bytes: u64) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Fsize);
    if limit.current.is_none_or(|current| current >= bytes) {
        return Ok(());
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.maximum.is_none_or(|maximum| maximum >= bytes) && setrlimit(Resource::Fsize, raised).is_ok() {
        return Ok(());
    }
    bail!(
        "{} is {} long, and this process may write files of {} only: raise the limit on the size of files ('ulimit -f unlimited', \
         LimitFSIZE=infinity in a unit)",
        path.display(),
        size::show(bytes),
        size::show(limit.maximum.or(limit.current).unwrap_or(0))
    )
}

/// Returns true if an error number means no space: on the disk, in the quota, or below the limit on the size of files.
pub fn is_lack_of_space(number: i32) -> bool {
    matches!(number, libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
}
