//! Parser of NBD URIs: `nbd://HOST[:PORT]/EXPORT` and `nbd+unix:///EXPORT?socket=PATH` (the NBD project's `doc/uri.md`).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

/// The port of NBD.
const PORT: u16 = 10809;

/// Address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A host and a port.
    Tcp(String, u16),
    /// A socket of this machine.
    Unix(PathBuf),
}

/// A device of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uri {
    /// Address of the server.
    pub place: Place,
    /// The export's name; empty: the default one.
    pub export: String,
}

impl FromStr for Uri {
    type Err = String;

    fn from_str(text: &str) -> Result<Uri, String> {
        parse(text)
            .ok_or_else(|| format!("'{text}' is no device: nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH"))
    }
}

fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned())
}

fn parse(text: &str) -> Option<Uri> {
    if let Some(rest) = text.strip_prefix("nbd+unix://") {
        let (path, query) = rest.strip_prefix('/')?.split_once('?')?;
        let socket = query.split('&').find_map(|part| part.strip_prefix("socket="))?;
        let socket = decoded(socket).filter(|socket| !socket.is_empty())?;
        return Some(Uri { place: Place::Unix(socket.into()), export: decoded(path)? });
    }
    let rest = text.strip_prefix("nbd://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // An IPv6 address stands in brackets.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, PORT),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_good = !host.is_empty() && !path.contains('?');
    is_good.then_some(Uri { place: Place::Tcp(host.to_owned(), port), export: decoded(path)? })
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(host, port) => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_what_the_nbd_project_says() {
        let tcp =
            |host: &str, port, export: &str| Ok(Uri { place: Place::Tcp(host.into(), port), export: export.into() });
        assert_eq!("nbd://host".parse(), tcp("host", 10809, ""));
        assert_eq!("nbd://host/".parse(), tcp("host", 10809, ""));
        assert_eq!("nbd://host:99/a%20disk".parse(), tcp("host", 99, "a disk"));
        assert_eq!("nbd://[::1]:7/x".parse(), tcp("::1", 7, "x"));
        assert_eq!("nbd://[::1]/x".parse(), tcp("::1", 10809, "x"));
        let unix = Uri { place: Place::Unix("/tmp/a b.sock".into()), export: "default".into() };
        assert_eq!("nbd+unix:///default?socket=/tmp/a%20b.sock".parse(), Ok(unix));
        for text in [
            "",
            "host",
            "nbd://",
            "nbd:///x",
            "nbd://host:port/",
            "nbd+unix:///x",
            "nbd+unix:///?socket=",
            "nbd+unix://host/x?socket=/s",
            "nbds://host/x",
            "http://host/x",
        ] {
            assert!(text.parse::<Uri>().is_err(), "{text}");
        }
    }
}
