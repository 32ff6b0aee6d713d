//! Listening sockets of the server: their addresses, and the URIs that clients connect to.
//!
//! An existing socket file is replaced only if no server answers on it. The caller holds the pool's lock, so a dead one was left by a server that is gone. At
//! the end a server removes the file that it made, and no other that has taken its place.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::Mode;
use rustix::net;

/// Bytes that fit into a Unix socket's address, with its final zero.
pub const UNIX_PATH_MAX: usize = 107;

/// Mode of a control socket's file: only its owner may connect.
const CONTROL_MODE: u32 = 0o600;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// An address to listen on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// Port; 0 lets the kernel choose.
        port: u16,
    },
}

impl Address {
    /// Reads `unix:PATH` or `tcp:HOST:PORT` (an IPv6 address in brackets).
    pub fn parse(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err("unix: needs the path of a socket, like unix:/run/onefold/disk.sock".into());
            }
            return Ok(Address::Unix(PathBuf::from(path)));
        }
        let Some(rest) = text.strip_prefix("tcp:") else {
            return Err("write unix:PATH or tcp:HOST:PORT, like tcp:127.0.0.1:10809".into());
        };
        Address::parse_tcp(rest, "tcp:", "tcp:127.0.0.1:10809")
    }

    /// Reads HOST:PORT for the page, as `--http` takes it.
    pub fn parse_http(text: &str) -> Result<Address, String> {
        Address::parse_tcp(text, "", "127.0.0.1:9180")
    }

    fn parse_tcp(text: &str, prefix: &str, example: &str) -> Result<Address, String> {
        let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("write {prefix}HOST:PORT, like {example}"))?;
        let port = port.parse().map_err(|_| format!("'{port}' is not a port (0 to 65535)"))?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').ok_or("the address lacks a ']'")?,
            None if host.contains(':') => {
                return Err(format!("put the IPv6 address in brackets: {prefix}[{host}]:{port}"));
            }
            None => host,
        };
        if host.is_empty() {
            return Err(format!("a host is missing: write {prefix}HOST:PORT, like {example}"));
        }
        Ok(Address::Tcp { host: host.to_string(), port })
    }

    /// Returns the NBD URI of an export at this address (doc/uri.md of the NBD project).
    pub fn uri(&self, export: &str) -> String {
        let export = encode(export.as_bytes(), "");
        match self {
            Address::Unix(path) => format!("nbd+unix:///{export}?socket={}", encode(path.as_os_str().as_bytes(), "/")),
            Address::Tcp { host, port } if host.contains(':') => format!("nbd://[{host}]:{port}/{export}"),
            Address::Tcp { host, port } => format!("nbd://{host}:{port}/{export}"),
        }
    }
}

/// Turns the NBD URI into that of a server that wants TLS: `nbds:` instead of `nbd:` (doc/uri.md of the NBD project). Unix sockets have none.
pub fn with_tls(uri: String) -> String {
    match uri.strip_prefix("nbd://") {
        Some(rest) => format!("nbds://{rest}"),
        None => uri,
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

/// Use of a Unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// NBD clients.
    Export,
    /// Commands. Only the owner can connect, from the first moment on.
    Control,
}

impl Purpose {
    /// Returns the command-line switch that puts the socket elsewhere.
    fn switch(self) -> &'static str {
        match self {
            Purpose::Export => "--listen unix:PATH",
            Purpose::Control => "--control PATH",
        }
    }
}

/// Identity of a socket file: its file system and its inode. No other file has this inode while the socket is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketFile {
    file_system: u64,
    inode: u64,
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<SocketFile> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(SocketFile { file_system: metadata.dev(), inode: metadata.ino() })
    }
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// On a Unix socket.
    Unix {
        /// The socket.
        socket: UnixListener,
        /// Absolute path of its file.
        path: PathBuf,
        /// The file that the server made, and removes when the listener is dropped; none if the socket was handed over.
        made: Option<SocketFile>,
    },
    /// On a TCP port.
    Tcp {
        /// The socket.
        socket: TcpListener,
        /// The address that it got.
        address: SocketAddr,
        /// True if it was handed over by another process.
        inherited: bool,
    },
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another process may have removed it, and another server may listen at its path now.
        if let Listener::Unix { path, made: Some(made), .. } = self
            && SocketFile::at(path).is_ok_and(|found| found == *made)
        {
            let _ = fs::remove_file(path);
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Listener::Unix { socket, .. } => socket.as_raw_fd(),
            Listener::Tcp { socket, .. } => socket.as_raw_fd(),
        }
    }
}

impl Listener {
    /// Listens on every address that `address` stands for (a host name may stand for several).
    pub fn bind(address: &Address, allow_remote: bool) -> anyhow::Result<Vec<Listener>> {
        match address {
            Address::Unix(path) => Ok(vec![Listener::bind_unix(path, Purpose::Export)?]),
            Address::Tcp { host, port } => {
                let what = address.to_string();
                let sockets = bind_ports((host, *port), &what, Service::Nbd, allow_remote)?;
                let listener = |(socket, address)| Listener::Tcp { socket, address, inherited: false };
                Ok(sockets.into_iter().map(listener).collect())
            }
        }
    }

    /// Listens on a Unix socket, replacing the stale socket file of a dead server.
    pub fn bind_unix(path: &Path, purpose: Purpose) -> anyhow::Result<Listener> {
        let path = std::path::absolute(path).with_context(|| format!("cannot use the path {}", path.display()))?;
        check_unix_path(&path, purpose.switch())?;
        remove_stale(&path, purpose)?;
        let mode = (purpose == Purpose::Control).then_some(CONTROL_MODE);
        let socket = bind_with_mode(&path, mode).map_err(|error| explain_bind(error, &path))?;
        let made = SocketFile::at(&path).with_context(|| format!("cannot look at {}", path.display()))?;
        Ok(Listener::Unix { socket, path, made: Some(made) })
    }

    /// Returns true if the socket was handed over: clients that come later belong to the process that did.
    pub fn is_inherited(&self) -> bool {
        match self {
            Listener::Unix { made, .. } => made.is_none(),
            Listener::Tcp { inherited, .. } => *inherited,
        }
    }

    /// Returns the address that it listens on; for a Unix socket its absolute path, for TCP the actual IP address and port.
    pub fn place(&self) -> Address {
        match self {
            Listener::Unix { path, .. } => Address::Unix(path.clone()),
            Listener::Tcp { address, .. } => Address::Tcp { host: address.ip().to_string(), port: address.port() },
        }
    }

    /// Returns the address that it listens on, in the words of the command line.
    pub fn address(&self) -> String {
        self.place().to_string()
    }

    /// Returns true if it listens on a TCP port.
    pub fn is_tcp(&self) -> bool {
        matches!(self, Listener::Tcp { .. })
    }

    /// Returns the NBD URI of an export on this listener.
    pub fn uri(&self, export: &str) -> String {
        self.place().uri(export)
    }
}

/// Use of a TCP port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// NBD clients.
    Nbd,
    /// Browsers and monitoring.
    Http,
}

/// Listens on every address that a host and port stand for; `what` names them in errors, in the words of the command line.
pub fn bind_ports(
    (host, port): (&str, u16),
    what: &str,
    service: Service,
    allow_remote: bool,
) -> anyhow::Result<Vec<(TcpListener, SocketAddr)>> {
    let found = (host, port).to_socket_addrs();
    let found: Vec<SocketAddr> =
        found.with_context(|| format!("cannot find an address for '{host}' of {what}"))?.collect();
    for found in &found {
        refuse_remote(what, found.ip(), service, allow_remote)?;
    }
    if found.is_empty() {
        bail!("'{host}' of {what} has no address");
    }
    let bind = |found: SocketAddr| {
        let socket = TcpListener::bind(found).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                anyhow::anyhow!("cannot listen on {what} ({found}): another program listens there. Choose another port")
            }
            _ => anyhow::Error::new(error).context(format!("cannot listen on {what} ({found})")),
        })?;
        let address = socket.local_addr().context("cannot read the address of a socket")?;
        Ok((socket, address))
    };
    found.into_iter().map(bind).collect()
}

/// Refuses an address that other machines reach, unless that is allowed. `what` names it in the error.
pub fn refuse_remote(what: &str, address: IpAddr, service: Service, allow_remote: bool) -> anyhow::Result<()> {
    if !address.is_loopback() && !allow_remote {
        let what_then = match service {
            Service::Nbd => {
                "which can then read and write all volumes: add --allow-remote if that is meant, with --tls require and --tls-verify-peer \
                 unless the network is trusted"
            }
            Service::Http => {
                "and the page has no password and no encryption: use an SSH tunnel, or add --allow-remote if the network is trusted"
            }
        };
        bail!("{what} ({address}) is reachable from other machines, {what_then}; or listen on 127.0.0.1");
    }
    Ok(())
}

/// Refuses a path that no Unix socket can have; `switch` takes a better one.
pub fn check_unix_path(path: &Path, switch: &str) -> anyhow::Result<()> {
    let length = path.as_os_str().len();
    if length > UNIX_PATH_MAX {
        bail!(
            "the socket path {} is {length} bytes long, a Unix socket allows {UNIX_PATH_MAX}: choose a shorter one with {switch}",
            path.display()
        );
    }
    Ok(())
}

/// Explains why a socket cannot be made, with a remedy. If one of a pool's two sockets cannot be made, the other cannot either.
fn explain_bind(error: io::Error, path: &Path) -> anyhow::Error {
    let elsewhere = "put both sockets elsewhere with --listen unix:PATH and --control PATH, and give commands the same --control PATH";
    let advice = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => "its directory does not exist".into(),
        Some(libc::EROFS) => format!("its file system is mounted read-only: {elsewhere}"),
        Some(libc::EACCES) => format!("this user may not make files in its directory: {elsewhere}"),
        _ => format!("the file system there may take no sockets: {elsewhere}"),
    };
    anyhow::Error::new(error).context(format!("cannot listen on {}; {advice}", path.display()))
}

/// Binds and listens. The kernel makes the file with the mode of the socket, less the process's umask.
fn bind_with_mode(path: &Path, mode: Option<u32>) -> io::Result<UnixListener> {
    let Some(mode) = mode else { return UnixListener::bind(path) };
    let socket = net::socket_with(net::AddressFamily::UNIX, net::SocketType::STREAM, net::SocketFlags::CLOEXEC, None)?;
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    net::bind(&socket, &net::SocketAddrUnix::new(path)?)?;
    net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Removes a socket file that no server answers on; an error if one does, or if the file is not a socket.
fn remove_stale(path: &Path, purpose: Purpose) -> anyhow::Result<()> {
    let switch = purpose.switch();
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        // A problem of its directory is reported when the socket is made.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", path.display())),
    };
    if !kind.is_socket() {
        bail!("{} exists and is not a socket: remove it, or choose another place with {switch}", path.display());
    }
    match UnixStream::connect(path) {
        Ok(_) => bail!(
            "another server listens on {}, perhaps one of a pool that was moved or copied: stop it, or choose other places with \
             --listen unix:PATH and --control PATH",
            path.display()
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // Only this error proves that it has no listener: a socket that may not be connected to, or of another kind, can be alive.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) => {
            return Err(error).with_context(|| {
                format!(
                    "cannot find out whether a server listens on {}: remove it if none does, or choose another place with \
                     {switch}",
                    path.display()
                )
            });
        }
    }
    fs::remove_file(path).with_context(|| format!("cannot remove the socket {} of a dead server", path.display()))
}

/// Returns the text with everything percent-encoded that a URI cannot hold, except for the characters in `keep`.
fn encode(text: &[u8], keep: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || keep.as_bytes().contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["unix:/tmp/a.sock", "tcp:127.0.0.1:10809", "tcp:[::1]:0", "tcp:localhost:1"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["", "unix:", "/tmp/a.sock", "tcp:", "tcp:host", "tcp::1", "tcp:host:99999", "tcp:::1:5", "tcp:[::1:5"]
        {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn uris_are_those_of_the_specification() {
        let directory = std::env::temp_dir().join(format!("onefold listen {}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("a&b.sock");
        let listener = Listener::bind_unix(&path, Purpose::Export).unwrap();
        let socket = path.to_str().unwrap().replace(' ', "%20").replace('&', "%26");
        assert_eq!(listener.uri("disk 1"), format!("nbd+unix:///disk%201?socket={socket}"));
        assert_eq!(listener.uri(""), format!("nbd+unix:///?socket={socket}"));
        assert!(Listener::bind_unix(&path, Purpose::Export).is_err(), "a live server is not replaced");
        drop(listener);
        assert!(!path.exists());
        // A dead server's socket is replaced, a file is not.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::bind_unix(&path, Purpose::Export).unwrap());
        // A process has this one open without listening for connections.
        let datagrams = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        assert!(Listener::bind_unix(&path, Purpose::Export).is_err());
        assert!(path.exists());
        drop(datagrams);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        assert!(Listener::bind_unix(&path, Purpose::Export).is_err());
        fs::remove_dir_all(&directory).unwrap();
        let address = "127.0.0.1:10809".parse().unwrap();
        let tcp = Listener::Tcp { socket: TcpListener::bind("127.0.0.1:0").unwrap(), address, inherited: false };
        assert_eq!(tcp.uri("default"), "nbd://127.0.0.1:10809/default");
    }

    /// Guards against a server that removed the socket of its successor, which had found its own removed and listened at the same path.
    #[test]
    fn a_socket_that_has_taken_the_place_of_ours_stays() {
        let directory = std::env::temp_dir().join(format!("onefold-successor-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        for (purpose, name) in [(Purpose::Export, "sock"), (Purpose::Control, "ctl")] {
            let path = directory.join(name);
            let first = Listener::bind_unix(&path, purpose).unwrap();
            fs::remove_file(&path).unwrap();
            let second = Listener::bind_unix(&path, purpose).unwrap();
            drop(first);
            assert!(UnixStream::connect(&path).is_ok(), "the second one's socket is gone");
            drop(second);
            assert!(!path.exists());
        }
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn the_uri_of_a_path_that_is_no_text_leads_there() {
        use std::os::unix::ffi::OsStrExt;
        let name = format!("onefold-bytes-{}", std::process::id());
        let name = [name.as_bytes(), b" \xff%\n'.sock"].concat();
        let path = std::env::temp_dir().join(std::ffi::OsStr::from_bytes(&name));
        let listener = Listener::bind_unix(&path, Purpose::Export).unwrap();
        assert!(listener.uri("").ends_with("%20%FF%25%0A%27.sock"), "{}", listener.uri(""));
    }

    #[test]
    fn other_machines_are_kept_out_unless_asked_for() {
        let address = Address::parse("tcp:0.0.0.0:0").unwrap();
        let error = Listener::bind(&address, false).unwrap_err().to_string();
        assert!(error.contains("--allow-remote"), "{error}");
        assert!(Listener::bind(&address, true).is_ok());
        assert!(Listener::bind(&Address::parse("tcp:127.0.0.1:0").unwrap(), false).is_ok());
    }

    #[test]
    fn paths_too_long_for_a_socket_are_explained() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(200)));
        assert!(Listener::bind_unix(&path, Purpose::Export).unwrap_err().to_string().contains("107"));
    }
}
