//! Byte-range locks of open file descriptions (fcntl(2), `F_OFD_SETLK`), as QEMU sets them on images.
//!
//! QEMU declares its use of an image by shared locks on single bytes (its block/file-posix.c): byte 100 + p, that it uses permission p; byte 200 + p, that no
//! other process may. So two that may share an image never conflict in the kernel; each tests the bytes of the permissions that it needs.
//!
//! A lock lasts as long as the file that it was set on is open, and is seen by every other opening, also of the same process. Where a file system has no such
//! locks, nothing is locked and nothing is found.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// First byte of permissions that are used.
const USED: i64 = 100;
/// First byte of permissions that others may not use.
const REFUSED: i64 = 200;

/// Permissions, as QEMU numbers them.
const CONSISTENT_READ: i64 = 0;
const WRITE: i64 = 1;
const WRITE_UNCHANGED: i64 = 2;
const RESIZE: i64 = 3;
const ALL: [i64; 4] = [CONSISTENT_READ, WRITE, WRITE_UNCHANGED, RESIZE];

/// Returns true if another opening has a lock on any byte of a file, QEMU's or any other.
pub fn is_locked(file: &File) -> bool {
    is_taken(file, 0, 0)
}

/// Returns true if another opening may change a file: QEMU writes or resizes it, or lets no other read it.
pub fn is_written(file: &File) -> bool {
    [USED + WRITE, USED + RESIZE, REFUSED + CONSISTENT_READ].into_iter().any(|byte| is_taken(file, byte, 1))
}

/// Keeps QEMUs from writing a file that is read, as long as it is open.
pub fn read(file: &File) -> io::Result<()> {
    [USED + CONSISTENT_READ, REFUSED + WRITE, REFUSED + RESIZE].into_iter().try_for_each(|byte| share(file, byte))
}

/// Keeps QEMUs from a file that is written, as long as it is open.
pub fn write(file: &File) -> io::Result<()> {
    [CONSISTENT_READ, WRITE, RESIZE].into_iter().try_for_each(|permission| share(file, USED + permission))?;
    ALL.into_iter().try_for_each(|permission| share(file, REFUSED + permission))
}

fn lock_of(kind: libc::c_int, start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

/// Returns true if another opening has a lock in a range; `length` 0 means all from `start` on.
fn is_taken(file: &File, start: i64, length: i64) -> bool {
    let mut lock = lock_of(libc::F_WRLCK, start, length);
    // SAFETY: the descriptor is open as long as `file`, and the kernel writes only to `lock`, which outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    result == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}

/// Sets a shared lock on a byte.
fn share(file: &File, byte: i64) -> io::Result<()> {
    let lock = lock_of(libc::F_RDLCK, byte, 1);
    // SAFETY: the descriptor is open as long as `file`, and the kernel only reads `lock`, which outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // No such locks there.
            error
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINVAL | libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP)
                ) =>
            {
                Ok(())
            }
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_is_locked_to_others() {
        let path = std::env::temp_dir().join(format!("onefold-locks-{}", std::process::id()));
        std::fs::write(&path, "image").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (one, other) = (open(), open());
        assert!(!is_locked(&other));
        write(&one).unwrap();
        assert!(is_locked(&other) && !is_locked(&one));
        assert!(is_written(&other) && !is_written(&one));
        drop(one);
        read(&other).unwrap();
        assert!(is_locked(&open()) && !is_written(&open()));
        drop(other);
        let other = open();
        assert!(!is_locked(&other));
        std::fs::remove_file(&path).unwrap();
    }
}
