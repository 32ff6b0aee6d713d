//! Who uses which volume: the guard of exclusive ones, and a word to the operator where two clients write one.
//!
//! A client is a process (of a Unix socket) or the holder of a certificate (of TLS); all its connections are one client. Where neither is known,
//! each connection is a client of its own.

use std::fmt;

use engine::{Nanos, VolumeId};
use tracing::warn;

use crate::log::Failures;

/// Who is at the other end of a connection, as far as the system or TLS says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Identity {
    /// A process on this machine: its number, and when it was started. The kernel may have its socket after its end, and another process its
    /// number.
    Process(u32, u64),
    /// Whoever has the certificate with this SHA-256 digest.
    Certificate([u8; 32]),
    /// Neither is known.
    Unknown,
}

impl Identity {
    /// Whether two connections are certainly of one client.
    fn is_same(self, other: Identity) -> bool {
        self == other && self != Identity::Unknown
    }
}

/// A connection that has chosen a volume.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its place in the table of connections.
    pub slot: u32,
    /// Its number in the order of all that came.
    pub number: u64,
    /// Its address, or what kind of socket it has.
    pub peer: String,
    /// Whose it is.
    pub identity: Identity,
    /// What it has chosen.
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
    /// Whether another connection may be of the same client: where neither says who it is, one from the same machine may.
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
    /// Of these, who has written.
    writers: Vec<u32>,
    warned: Failures,
    refusals: Failures,
}

impl Members {
    /// Who keeps a client of this identity out of a volume that one client has for itself.
    pub fn holder(&self, volume: VolumeId, identity: Identity) -> Option<&Member> {
        self.members.iter().find(|member| member.volume == volume && !member.identity.is_same(identity))
    }

    /// A client has been told that it may not have a volume: not all clients show why.
    pub fn refused(&mut self, client: &Member, reason: &str, now: Nanos) {
        if let Some(count) = self.refusals.add(now) {
            warn!("{client} was refused: {reason} (refusal {count} since the start)");
        }
    }

    /// A connection has chosen its volume.
    pub fn enter(&mut self, member: Member) {
        self.members.push(member);
    }

    /// A connection has ended, and the engine has nothing of it any more.
    pub fn leave(&mut self, slot: u32) {
        self.members.retain(|member| member.slot != slot);
        self.writers.retain(|writer| *writer != slot);
    }

    /// A connection writes for the first time. Says so where another client has written to the same volume.
    pub fn writes(&mut self, slot: u32, volume: &str, now: Nanos) {
        let find = |slot: u32| self.members.iter().find(|member| member.slot == slot);
        let Some(writer) = find(slot) else { return };
        let others = self.writers.iter().filter_map(|&other| find(other));
        let other = others.filter(|other| other.volume == writer.volume).find(|other| !other.may_be(writer));
        if let Some(other) = other
            && let Some(count) = self.warned.add(now)
        {
            warn!(
                "the volume '{volume}' is written by {writer} beside {other}: unless they know of each other, as cluster file systems do, they                  destroy what the other has written; exclusive=on lets in one client only (number {count})"
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
