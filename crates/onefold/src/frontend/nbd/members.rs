//! Table of the clients of each volume: the guard of exclusive volumes, and a warning to the operator where two clients write one.
//!
//! A client is a process (of a Unix socket) or the holder of a certificate (of TLS); all its connections are one client. Where neither is known, each
//! connection is a client of its own.

use std::fmt;

use engine::{Nanos, VolumeId};
use tracing::warn;

use crate::frontend::nbd::tls::Certificate;
use crate::log::Failures;

/// Identity of a client, as far as the system or TLS tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Identity {
    /// A process on this machine: its number, and the time of its start. The kernel may have its socket after its end, and another process its
    /// number.
    Process(u32, u64),
    /// The holder of the certificate with this SHA-256 digest.
    Certificate([u8; 32]),
    /// Neither is known: the connection is a client of its own.
    Unknown,
}

impl Identity {
    /// Returns the identity of a client: its certificate if it has one, else its process, else unknown.
    pub fn of(certificate: &Certificate, process: Option<Identity>) -> Identity {
        let certificate = certificate.get().map(|&digest| Identity::Certificate(digest));
        certificate.or(process).unwrap_or(Identity::Unknown)
    }

    /// Returns true if two connections are certainly of one client: their identities are known and equal.
    fn is_same(self, other: Identity) -> bool {
        self == other && self != Identity::Unknown
    }
}

/// A connection that has chosen a volume.
#[derive(Clone, Debug)]
pub struct Member {
    /// Index in the table of connections.
    pub slot: u32,
    /// Number of the connection in the order of all that came.
    pub number: u64,
    /// Address of the client, or the kind of its socket.
    pub peer: String,
    /// Identity of its client.
    pub identity: Identity,
    /// Volume that it has chosen.
    pub volume: VolumeId,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Member { number, peer, identity, .. } = self;
        write!(f, "client {number} ({peer}")?;
        match identity {
            Identity::Process(process, _) => write!(f, ", process {process}")?,
            // As `openssl x509 -fingerprint -sha256` begins.
            Identity::Certificate(digest) => {
                let bytes: Vec<_> = digest[..8].iter().map(|byte| format!("{byte:02X}")).collect();
                write!(f, ", certificate {}", bytes.join(":"))?;
            }
            Identity::Unknown => {}
        }
        f.write_str(")")
    }
}

impl Member {
    /// Returns true if another connection may be of the same client: their identities are equal, or one is unknown and both come from the same
    /// machine.
    fn may_be(&self, other: &Member) -> bool {
        fn host(peer: &str) -> &str {
            peer.rsplit_once(':').map_or(peer, |(host, _)| host)
        }
        let unknown = self.identity == Identity::Unknown || other.identity == Identity::Unknown;
        self.identity.is_same(other.identity) || unknown && host(&self.peer) == host(&other.peer)
    }
}

/// The connections that have chosen a volume.
#[derive(Default)]
pub struct Members {
    members: Vec<Member>,
    /// Slots of those that have written.
    writers: Vec<u32>,
    warned: Failures,
    refusals: Failures,
}

impl Members {
    /// Returns a connection of another client to the volume, which keeps a client of this identity out if the volume is exclusive.
    pub fn holder(&self, volume: VolumeId, identity: Identity) -> Option<&Member> {
        self.members.iter().find(|member| member.volume == volume && !member.identity.is_same(identity))
    }

    /// Logs that a client was refused a volume: not all clients show the reason.
    pub fn refused(&mut self, client: &Member, reason: &str, now: Nanos) {
        if let Some(count) = self.refusals.add(now) {
            warn!("{client} was refused: {reason} (refusal {count} since the start)");
        }
    }

    /// Adds a connection that has chosen its volume.
    pub fn enter(&mut self, member: Member) {
        self.members.push(member);
    }

    /// Removes a connection that has ended and of which the engine has nothing any more.
    pub fn leave(&mut self, slot: u32) {
        self.members.retain(|member| member.slot != slot);
        self.writers.retain(|writer| *writer != slot);
    }

    /// Notes the first write of a connection, and warns if another client has written to the same volume.
    pub fn writes(&mut self, slot: u32, volume: &str, now: Nanos) {
        let find = |slot: u32| self.members.iter().find(|member| member.slot == slot);
        let Some(writer) = find(slot) else { return };
        let others = self.writers.iter().filter_map(|&other| find(other));
        let other = others.filter(|other| other.volume == writer.volume).find(|other| !other.may_be(writer));
        if let Some(other) = other
            && let Some(count) = self.warned.add(now)
        {
            warn!(
                "the volume '{volume}' is written by {writer} beside {other}: unless they know of each other, as cluster file systems do, they destroy what the other has written; exclusive=on lets in one client only (number {count})"
            );
        }
        self.writers.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(slot: u32, peer: &str, identity: Identity) -> Member {
        Member { slot, number: u64::from(slot), peer: peer.into(), identity, volume: VolumeId(1) }
    }

    #[test]
    fn one_client_has_several_connections_and_a_client_without_identity_has_one() {
        let (one, other) = (Identity::Process(7, 1), Identity::Process(8, 1));
        let mut members = Members::default();
        members.enter(member(1, "unix", one));
        assert!(members.holder(VolumeId(1), one).is_none());
        assert_eq!(members.holder(VolumeId(1), other).unwrap().to_string(), "client 1 (unix, process 7)");
        assert!(members.holder(VolumeId(1), Identity::Unknown).is_some());
        assert!(members.holder(VolumeId(1), Identity::Process(7, 2)).is_some(), "its number is another's by now");
        assert!(members.holder(VolumeId(2), other).is_none());
        members.leave(1);
        assert!(members.holder(VolumeId(1), other).is_none());
        members.enter(member(2, "127.0.0.1:5", Identity::Unknown));
        assert!(members.holder(VolumeId(1), Identity::Unknown).is_some(), "nobody knows whether it is the same");
        let certificate = member(3, "[::1]:6", Identity::Certificate([0xab; 32]));
        assert_eq!(certificate.to_string(), "client 3 ([::1]:6, certificate AB:AB:AB:AB:AB:AB:AB:AB)");
    }

    #[test]
    fn only_what_is_certainly_another_client_is_warned_of() {
        let unknown = |peer| member(1, peer, Identity::Unknown);
        assert!(unknown("10.0.0.1:5").may_be(&unknown("10.0.0.1:6")));
        assert!(!unknown("10.0.0.1:5").may_be(&unknown("10.0.0.2:5")));
        let process = |process| member(1, "unix", Identity::Process(process, 1));
        assert!(process(1).may_be(&process(1)) && !process(1).may_be(&process(2)));
    }
}
