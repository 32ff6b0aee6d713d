//! Reasons for the end of a connection, in words for the log.

use std::fmt;

use crate::frontend::nbd::tls;

/// Reason why a connection ended without a goodbye.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The client broke the protocol.
    Violation(nbd::Violation),
    /// The handshake took too long.
    LateHandshake,
    /// Too many handshakes at once; this was the oldest.
    Displaced,
    /// It held buffers that others waited for, or took none of its last replies.
    Stalled,
    /// A read failed when its reply had begun.
    ReadFailed,
    /// The client went away in the middle of something.
    Gone,
    /// The server stops.
    Stopping,
    /// It asked for TLS and sent more before TLS began.
    ClearBeforeTls,
    /// It asked for TLS, and too many clients have it already, or the system has no more sockets.
    NoMoreTls,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Violation(violation) => write!(f, "{violation}"),
            End::LateHandshake => f.write_str("its handshake took too long"),
            End::Displaced => f.write_str("too many handshakes at once, and its own was the oldest"),
            End::Stalled => {
                f.write_str("it stalled: others waited for what it held, or it took no replies before its end")
            }
            End::ReadFailed => f.write_str("a read failed after its reply had begun"),
            End::Gone => f.write_str("the client went away"),
            End::Stopping => f.write_str("the server stops"),
            End::ClearBeforeTls => f.write_str("it asked for TLS and sent more in the clear before TLS began"),
            End::NoMoreTls => {
                write!(f, "{} clients have TLS already, or the system has no more sockets", tls::CLIENTS_MAX)
            }
        }
    }
}
