//! Input that may never come: terminals that hang up, and pipes and other files that block the process that opens them.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Opens a file or device to read it, without waiting: not for a writer of a pipe, nor for the carrier of a line. A file that is neither regular nor a block
/// device may then have no bytes to read.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// Result of a wait for input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// Nothing came in time, or a signal did.
    Nothing,
    /// Input is ready to read.
    Ready,
    /// The other end is gone: nothing will ever come.
    Gone,
}

/// Opens the terminal whose keys are read: the input, or else the one that controls this process.
pub fn keyboard() -> io::Result<OwnedFd> {
    let input = io::stdin();
    if input.is_terminal() { input.as_fd().try_clone_to_owned() } else { Ok(open(Path::new("/dev/tty"))?.into()) }
}

/// Waits for input, at most for `time`.
pub fn wait(input: impl AsFd, time: Duration) -> io::Result<Waited> {
    let mut waited = [PollFd::new(&input, PollFlags::IN)];
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    match poll(&mut waited, Some(&time)) {
        Ok(0) | Err(Errno::INTR) => return Ok(Waited::Nothing),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let found = waited[0].revents();
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(if found.intersects(gone) { Waited::Gone } else { Waited::Ready })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_pipe_is_opened_without_a_writer() {
        let path = std::env::temp_dir().join(format!("onefold-input-{}", std::process::id()));
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(open(&path).is_ok());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_wait_tells_silence_input_and_the_end_apart() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert_eq!(wait(&reader, Duration::ZERO).unwrap(), Waited::Nothing);
        writer.write_all(b"q").unwrap();
        assert_eq!(wait(&reader, Duration::from_secs(60)).unwrap(), Waited::Ready);
        drop(writer);
        assert_eq!(wait(&reader, Duration::from_secs(60)).unwrap(), Waited::Gone);
    }
}
