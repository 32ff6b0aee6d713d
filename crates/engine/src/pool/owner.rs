//! Ownership of a pool: a record in a separate block, by which two openings of one pool notice each other, whatever paths they used.
//!
//! ```text
//! taken      the driver writes a record with a fresh nonce before it opens the pool to write (it alone knows hosts and processes)
//! looked at  the engine reads it again before each checkpoint, and before each overwriting write: superblocks, repairs in place
//! lost       it is another owner's, or no owner's any more: nothing is written from now on, not even a failure marker
//! released   the driver says so in the record when it is done
//! ```
//!
//! A requested look must begin after the request: a look in progress may have read before. So looks are numbered, and a requester waits for
//! its number or a later one. An engine without a nonce (audits, pools that are only read) does not look.

use crate::pool::state::Look;
use alloc::string::String;

use super::Pool;
use crate::api::Failure;
use crate::api::*;
use crate::format::bytes::{checksum, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::format::superblock::Parameters;
use crate::metadata::io::Purpose;
use crate::mutant::Mutant;

/// First eight bytes of a record of the owner.
pub const MAGIC: [u8; 8] = *b"ONEFOWN\0";
/// Version of the format of the record.
pub const VERSION: u16 = 1;
/// Bytes of the record: one sector, so that it is never torn. The rest of its block is zero.
pub const OWNER_SIZE: usize = 512;

const RELEASED: u16 = 1;
const HOST_NAME_AT: usize = 144;
const HOST_NAME_SIZE: usize = 64;
const PATH_AT: usize = HOST_NAME_AT + HOST_NAME_SIZE;
const PATH_SIZE: usize = 256;
const SUM_AT: usize = OWNER_SIZE - 8;
const _: () = assert!(PATH_AT + PATH_SIZE <= SUM_AT);

/// Numbers of the file or device that the owner's process had opened, as its kernel gives them (stat(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Number of the file system of the file, or of the device's node: `st_dev`.
    pub file_system: u64,
    /// Number of the inode in it: `st_ino`.
    pub inode: u64,
    /// Number of the block device, 0 for a file: `st_rdev`.
    pub device: u64,
}

/// Record of the process that has, or had, a pool. Hosts are recorded only as hashes, except for the name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Nonce, drawn anew by each opening.
    pub nonce: [u8; 16],
    /// True if the owner has ended, and no process has the pool.
    pub released: bool,
    /// Identifier of the host, as it is installed.
    pub host: [u8; 16],
    /// Identifier of its hardware; zeroes if unknown.
    pub hardware: [u8; 16],
    /// Identifier of the time between two starts of the host's kernel; zeroes if unknown.
    pub boot: [u8; 16],
    /// Process number.
    pub pid: u32,
    /// Time at which the process started, in the kernel's ticks since the boot.
    pub started: u64,
    /// Namespace in which `pid` is the process number.
    pub pid_namespace: u64,
    /// File or device that it had opened.
    pub opened: Opened,
    /// Time at which it took the pool: seconds since 1970.
    pub taken: u64,
    /// Name of the host, for people; at most 64 bytes are kept.
    pub host_name: String,
    /// Path that was opened, for people; at most 256 bytes are kept.
    pub path: String,
}

impl Owner {
    /// Writes the record to a block of the pool with these parameters, after zeroing the block. The block must have at least [`OWNER_SIZE`] bytes.
    pub fn encode(&self, parameters: &Parameters, block: &mut [u8]) {
        block.fill(0);
        let b = &mut block[..OWNER_SIZE];
        b[..8].copy_from_slice(&MAGIC);
        put_u16(b, 8, VERSION);
        put_u16(b, 10, if self.released { RELEASED } else { 0 });
        put_u32(b, 12, self.pid);
        b[16..32].copy_from_slice(&parameters.id);
        b[32..48].copy_from_slice(&self.nonce);
        b[48..64].copy_from_slice(&self.host);
        b[64..80].copy_from_slice(&self.hardware);
        b[80..96].copy_from_slice(&self.boot);
        put_u64(b, 96, self.started);
        put_u64(b, 104, self.pid_namespace);
        put_u64(b, 112, self.opened.file_system);
        put_u64(b, 120, self.opened.inode);
        put_u64(b, 128, self.opened.device);
        put_u64(b, 136, self.taken);
        put_text(&mut b[HOST_NAME_AT..][..HOST_NAME_SIZE], &self.host_name);
        put_text(&mut b[PATH_AT..][..PATH_SIZE], &self.path);
        let sum = checksum(parameters.seed(), &b[..SUM_AT]);
        put_u64(b, SUM_AT, sum);
    }

    /// Reads the record of a pool with these parameters. `None`: there is none, or none that is whole.
    pub fn decode(parameters: &Parameters, block: &[u8]) -> Option<Owner> {
        let b = block.get(..OWNER_SIZE)?;
        let is_ours = b[..8] == MAGIC && u16_at(b, 8) == VERSION && b[16..32] == parameters.id;
        if !is_ours || checksum(parameters.seed(), &b[..SUM_AT]) != u64_at(b, SUM_AT) {
            return None;
        }
        let bytes = |at: usize| core::array::from_fn(|i| b[at + i]);
        Some(Owner {
            nonce: bytes(32),
            released: u16_at(b, 10) & RELEASED != 0,
            host: bytes(48),
            hardware: bytes(64),
            boot: bytes(80),
            pid: u32_at(b, 12),
            started: u64_at(b, 96),
            pid_namespace: u64_at(b, 104),
            opened: Opened { file_system: u64_at(b, 112), inode: u64_at(b, 120), device: u64_at(b, 128) },
            taken: u64_at(b, 136),
            host_name: text(&b[HOST_NAME_AT..][..HOST_NAME_SIZE]),
            path: text(&b[PATH_AT..][..PATH_SIZE]),
        })
    }
}

/// Writes as much of a text as fits, up to the end of a character.
fn put_text(bytes: &mut [u8], text: &str) {
    let mut length = text.len().min(bytes.len());
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
}

/// Reads a text of another host, for the terminal of this one: control characters become question marks.
fn text(bytes: &[u8]) -> String {
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let shown = String::from_utf8_lossy(&bytes[..length]);
    shown.chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}

/// State of the engine's own record.
#[derive(Default)]
pub(crate) struct Ownership {
    /// Nonce that the record must have; `None`: the record is not looked at.
    nonce: Option<[u8; 16]>,
    /// Number of looks at the owner's record (reads of its block) that have begun: the number of the latest one.
    begun: u64,
    /// Number of the last look that found the expected record.
    seen: u64,
    /// Look that the next checkpoint waits for.
    before_checkpoint: Option<Look>,
    /// True if a look did not find the expected record: nothing may be written.
    lost: bool,
}

impl Pool {
    /// Returns the nonce that the record must have, if there is one.
    pub(crate) fn owner_nonce(&self) -> Option<[u8; 16]> {
        self.durable.owner.nonce
    }

    /// Returns true if a look did not find the expected record: nothing may be written, whatever happens.
    pub(crate) fn has_lost_owner(&self) -> bool {
        self.durable.owner.lost
    }

    /// Begins a look at the record.
    pub(crate) fn look_at_owner(&mut self) -> Look {
        let Some(block) = self.metadata.geometry().owner_block().filter(|_| self.durable.owner.nonce.is_some()) else {
            return Look(0);
        };
        if self.mutant(Mutant::OwnerNotLookedAt) {
            return Look(0);
        }
        self.durable.owner.begun += 1;
        let (number, size) = (self.durable.owner.begun, self.metadata.geometry().block());
        self.metadata.io_mut().begin(IoOp::ReadPages, block * size, size, [], Purpose::Owner(number));
        Look(number)
    }

    /// Returns true if this look, or a later one, found the pool to be ours.
    pub(crate) fn is_ours(&self, look: Look) -> bool {
        self.durable.owner.seen >= look.0
    }

    /// Returns true if a checkpoint may begin: a separate look found the pool to be ours. Otherwise begins that look.
    pub(crate) fn may_begin(&mut self) -> bool {
        let look = match self.durable.owner.before_checkpoint {
            Some(look) => look,
            None => self.look_at_owner(),
        };
        let is_ours = self.is_ours(look);
        self.durable.owner.before_checkpoint = Some(look).filter(|_| !is_ours);
        is_ours
    }

    /// Notes that a look found the pool to be ours.
    pub(crate) fn owner_seen(&mut self, number: u64) {
        self.durable.owner.seen = self.durable.owner.seen.max(number);
    }

    /// Notes that the record is not the expected one: nothing may be written from now on.
    pub(crate) fn lose_owner(&mut self) {
        self.durable.owner.lost = true;
    }

    /// Judges a record that was read: `None` if the pool may be written, else the failure. A record that is missing or not whole counts as damage: it is no
    /// evidence of another owner.
    pub(crate) fn judge_owner(&self, result: Result<Outcome<'_>, IoError>) -> Option<Failure> {
        let nonce = self.durable.owner.nonce?;
        let record = match result {
            Ok(Outcome::Bytes(bytes)) => Owner::decode(&self.durable.superblock.parameters, bytes),
            _ => None,
        };
        match record {
            None => Some(Failure::Page),
            Some(owner) if owner.nonce == nonce && !owner.released => None,
            Some(_) => Some(Failure::TakenOver),
        }
    }
}

impl Pool {
    /// Restricts writing to the time while the pool's record has this nonce. Callers set it before the first event, if at all.
    pub(crate) fn set_owner(&mut self, nonce: [u8; 16]) {
        self.durable.owner.nonce = Some(nonce).filter(|_| self.metadata.geometry().owner_block().is_some());
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::format::geometry::Geometry;
    use crate::format::superblock::DigestFunction;

    fn parameters(id: u8) -> Parameters {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        Parameters::new(geometry, [id; 16], [9; 32], DigestFunction::Blake3)
    }

    fn sample() -> Owner {
        Owner {
            nonce: [1; 16],
            released: false,
            host: [2; 16],
            hardware: [3; 16],
            boot: [4; 16],
            pid: 5,
            started: 6,
            pid_namespace: 7,
            opened: Opened { file_system: 8, inode: 9, device: 0 },
            taken: 10,
            host_name: "a.example".into(),
            path: "/srv/onefold/disk.onefold".into(),
        }
    }

    #[test]
    fn an_owner_reads_back_as_written() {
        let device = Owner { released: true, opened: Opened { device: 0x701, ..sample().opened }, ..sample() };
        for owner in [sample(), device] {
            let mut block = vec![0xAA; 4096];
            owner.encode(&parameters(7), &mut block);
            assert_eq!(Owner::decode(&parameters(7), &block), Some(owner));
            assert_eq!(Owner::decode(&parameters(8), &block), None, "the owner of another pool is none");
        }
    }

    /// Checks that zeroes from older programs, and the former content of a device, are no owner's record.
    #[test]
    fn what_is_no_record_is_no_owner() {
        let mut block = vec![0; OWNER_SIZE];
        assert_eq!(Owner::decode(&parameters(7), &block), None);
        assert_eq!(Owner::decode(&parameters(7), &[]), None);
        sample().encode(&parameters(7), &mut block);
        for at in 0..block.len() {
            block[at] ^= 0x10;
            assert_eq!(Owner::decode(&parameters(7), &block), None, "byte {at}");
            block[at] ^= 0x10;
        }
    }

    #[test]
    fn names_are_cut_at_a_character_and_shown_without_control_characters() {
        let mut block = vec![0; OWNER_SIZE];
        let owner = Owner { host_name: "ä".repeat(40), path: "x\u{1b}[2J\n".into(), ..sample() };
        owner.encode(&parameters(7), &mut block);
        let read = Owner::decode(&parameters(7), &block).unwrap();
        assert_eq!((read.host_name, read.path.as_str()), ("ä".repeat(32), "x?[2J?"));
    }
}
