//! Where the server listens: addresses, listening sockets and the URIs that clients connect to.
//!
//! A socket file that is in the way is replaced only if nobody answers on it: the caller holds the pool's lock, so a dead
//! one was left by a server that is gone.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::Mode;
use rustix::net;

/// Bytes that fit into a Unix socket's address, with its final zero.
const UNIX_PATH_MAX: usize = 107;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Where to listen.
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
        let (host, port) = rest.rsplit_once(':').ok_or("tcp: needs HOST:PORT, like tcp:127.0.0.1:10809")?;
        let port = port.parse().map_err(|_| format!("'{port}' is not a port (0 to 65535)"))?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').ok_or("the address lacks a ']'")?,
            None if host.contains(':') => return Err(format!("put the IPv6 address in brackets: tcp:[{host}]:{port}")),
            None => host,
        };
        if host.is_empty() {
            return Err("tcp: needs a host, like tcp:127.0.0.1:10809".into());
        }
        Ok(Address::Tcp { host: host.to_string(), port })
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

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// On a Unix socket, whose file is removed when the listener is dropped, if we made it.
    Unix {
        /// The socket.
        socket: UnixListener,
        /// Absolute path of its file.
        path: PathBuf,
        /// Whether it was handed over to us, and stays when we are gone.
        inherited: bool,
    },
    /// On a TCP port.
    Tcp {
        /// The socket.
        socket: TcpListener,
        /// The address that it got.
        address: SocketAddr,
        /// Whether it was handed over to us.
        inherited: bool,
    },
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix { path, inherited: false, .. } = self {
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
            Address::Unix(path) => Ok(vec![Listener::bind_unix(path, None)?]),
            Address::Tcp { host, port } => {
                let found: Vec<SocketAddr> = (host.as_str(), *port)
                    .to_socket_addrs()
                    .with_context(|| format!("cannot find an address for '{host}' of {address}"))?
                    .collect();
                for found in &found {
                    refuse_remote(&address.to_string(), found.ip(), allow_remote)?;
                }
                if found.is_empty() {
                    bail!("'{host}' of {address} has no address");
                }
                found.into_iter().map(|found| Listener::bind_tcp(found, address)).collect()
            }
        }
    }

    /// Listens on a Unix socket, replacing what a dead server left. With `mode`, nobody else can connect at any moment.
    pub fn bind_unix(path: &Path, mode: Option<u32>) -> anyhow::Result<Listener> {
        let path = std::path::absolute(path).with_context(|| format!("cannot use the path {}", path.display()))?;
        check_unix_path(&path)?;
        remove_stale(&path)?;
        let socket = bind_with_mode(&path, mode)
            .with_context(|| format!("cannot listen on {} (does its directory exist?)", path.display()))?;
        Ok(Listener::Unix { socket, path, inherited: false })
    }

    fn bind_tcp(found: SocketAddr, address: &Address) -> anyhow::Result<Listener> {
        let socket = TcpListener::bind(found).with_context(|| {
            format!("cannot listen on {address} ({found}): is another server there? choose another port")
        })?;
        let address = socket.local_addr().context("cannot read the address of a socket")?;
        Ok(Listener::Tcp { socket, address, inherited: false })
    }

    /// Whether the socket was handed over to us: clients that come later are someone else's.
    pub fn is_inherited(&self) -> bool {
        match self {
            Listener::Unix { inherited, .. } | Listener::Tcp { inherited, .. } => *inherited,
        }
    }

    /// What it listens on, in the words of the command line.
    pub fn address(&self) -> String {
        match self {
            Listener::Unix { path, .. } => format!("unix:{}", path.display()),
            Listener::Tcp { address, .. } => format!("tcp:{address}"),
        }
    }

    /// Whether connections are TCP.
    pub fn is_tcp(&self) -> bool {
        matches!(self, Listener::Tcp { .. })
    }

    /// The NBD URI of an export on this listener (doc/uri.md of the NBD project).
    pub fn uri(&self, export: &str) -> String {
        match self {
            Listener::Unix { path, .. } => {
                format!("nbd+unix:///{}?socket={}", encode(export, ""), encode(&path.to_string_lossy(), "/"))
            }
            Listener::Tcp { address, .. } => format!("nbd://{address}/{}", encode(export, "")),
        }
    }
}

/// Refuses an address that other machines reach, unless that is allowed. `what` has it.
pub fn refuse_remote(what: &str, address: IpAddr, allow_remote: bool) -> anyhow::Result<()> {
    if !address.is_loopback() && !allow_remote {
        bail!(
            "{what} ({address}) is reachable from other machines, and NBD here has no password and no encryption: listen \
             on 127.0.0.1 and use an SSH tunnel, or add --allow-remote if the network is trusted"
        );
    }
    Ok(())
}

/// Refuses a path that no Unix socket can have, with advice.
pub fn check_unix_path(path: &Path) -> anyhow::Result<()> {
    let length = path.as_os_str().len();
    if length > UNIX_PATH_MAX {
        bail!(
            "the socket path {} is {length} bytes long, a Unix socket allows {UNIX_PATH_MAX}: put the pool (or, with \
             --listen unix:PATH, the socket) into a directory with a shorter name",
            path.display()
        );
    }
    Ok(())
}

/// Binds and listens. The kernel makes the file with the mode that the socket has, less what the process's mask takes away.
fn bind_with_mode(path: &Path, mode: Option<u32>) -> io::Result<UnixListener> {
    let Some(mode) = mode else { return UnixListener::bind(path) };
    let socket = net::socket_with(net::AddressFamily::UNIX, net::SocketType::STREAM, net::SocketFlags::CLOEXEC, None)?;
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    net::bind(&socket, &net::SocketAddrUnix::new(path)?)?;
    net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Removes a socket file that nobody answers on.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", path.display())),
    };
    if !kind.is_socket() {
        bail!(
            "{} exists and is not a socket: remove it, or choose another place with --listen unix:PATH",
            path.display()
        );
    }
    match UnixStream::connect(path) {
        Ok(_) => bail!("another server listens on {}: choose another place with --listen unix:PATH", path.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // Only this says that nobody listens: a socket that may not be connected to, or of another kind, can be alive.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) => {
            return Err(error).with_context(|| {
                format!(
                    "cannot find out whether a server listens on {}: remove it if none does, or choose another place \
                     with --listen unix:PATH",
                    path.display()
                )
            });
        }
    }
    fs::remove_file(path).with_context(|| format!("cannot remove the socket {} of a dead server", path.display()))
}

/// Percent-encodes what a URI cannot hold as it is, and leaves `keep`.
fn encode(text: &str, keep: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
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
        let listener = Listener::bind_unix(&path, None).unwrap();
        let socket = path.to_str().unwrap().replace(' ', "%20").replace('&', "%26");
        assert_eq!(listener.uri("disk 1"), format!("nbd+unix:///disk%201?socket={socket}"));
        assert_eq!(listener.uri(""), format!("nbd+unix:///?socket={socket}"));
        assert!(Listener::bind_unix(&path, None).is_err(), "a live server is not replaced");
        drop(listener);
        assert!(!path.exists());
        // A dead server's socket is replaced, a file is not.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::bind_unix(&path, None).unwrap());
        // Somebody has this one open, who does not listen for connections.
        let datagrams = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        assert!(Listener::bind_unix(&path, None).is_err());
        assert!(path.exists());
        drop(datagrams);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        assert!(Listener::bind_unix(&path, None).is_err());
        fs::remove_dir_all(&directory).unwrap();
        let address = "127.0.0.1:10809".parse().unwrap();
        let tcp = Listener::Tcp { socket: TcpListener::bind("127.0.0.1:0").unwrap(), address, inherited: false };
        assert_eq!(tcp.uri("default"), "nbd://127.0.0.1:10809/default");
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
        assert!(Listener::bind_unix(&path, None).unwrap_err().to_string().contains("107"));
    }
}
