//! Peer credentials of a Unix socket: the process at the other end.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

/// Returns the process that connected (unix(7), SO_PEERCRED); `None` where it is not known, or not visible from here (another container).
pub fn process_of(socket: &OwnedFd) -> Option<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` and `length` outlive the call, which writes at most `length` bytes: a structure of integers, for which all values are valid. rustix has
    // this call, but its process id cannot be 0, which the kernel returns for a process that is not visible.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    (done == 0).then_some(peer.pid).and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_at_the_other_end_is_known_of_unix_sockets_only() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(process_of(&one.into()), Some(std::process::id()));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        assert_eq!(process_of(&client.into()), None);
        assert_eq!(process_of(&std::fs::File::open("/dev/null").unwrap().into()), None);
    }
}
