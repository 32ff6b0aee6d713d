//! Discards of a block device (BLKDISCARD). The ring has no such operation in older kernels, so each has a short-lived thread; the ring waits for its end.
//!
//! The thread has a descriptor of its own for the device, so the lock on it lasts until the discard has ended.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::EventfdFlags;

/// Number of the call (linux/fs.h: `_IO(0x12, 119)`).
const BLKDISCARD: libc::c_ulong = 0x1277;

/// A discard in flight.
pub struct DeviceDiscard {
    /// Event counter that is raised at the end.
    ended: Arc<OwnedFd>,
    result: Arc<AtomicI32>,
}

impl DeviceDiscard {
    /// Begins to discard a range of a device.
    pub fn begin(device: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<DeviceDiscard> {
        let device = device.try_clone_to_owned()?;
        let ended = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
        let result = Arc::new(AtomicI32::new(0));
        let (raised, outcome) = (ended.clone(), result.clone());
        std::thread::Builder::new().name("discard".into()).spawn(move || {
            outcome.store(discard(&device, offset, length), Ordering::Release);
            let _ = rustix::io::write(&raised, &1u64.to_ne_bytes());
        })?;
        Ok(DeviceDiscard { ended, result })
    }

    /// Returns the descriptor that becomes readable at the end.
    pub fn ended(&self) -> RawFd {
        self.ended.as_raw_fd()
    }

    /// Waits for the end, and returns the result as the ring would: 0, or a negative error number.
    pub fn wait(&self) -> i32 {
        let mut count = [0; 8];
        while let Err(rustix::io::Errno::INTR) = rustix::io::read(&self.ended, &mut count) {}
        self.result.load(Ordering::Acquire)
    }
}

/// Discards a range of a device, and waits for the end.
fn discard(device: &OwnedFd, offset: u64, length: u64) -> i32 {
    let range = [offset, length];
    // SAFETY: the call reads two numbers of 64 bits from `range`, which outlives it, and changes no memory.
    match unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD, range.as_ptr()) } {
        0.. => 0,
        _ => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_file_is_no_device_and_the_thread_says_so() {
        let path = std::env::temp_dir().join(format!("onefold-discarder-{}", std::process::id()));
        let file = std::fs::File::create_new(&path).unwrap();
        let discard = DeviceDiscard::begin(file.as_fd(), 0, 4096).unwrap();
        assert_eq!(discard.wait(), -libc::ENOTTY);
        std::fs::remove_file(&path).unwrap();
    }
}
