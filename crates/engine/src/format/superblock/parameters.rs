//! What a pool is, as long as there is one: its id, its key and what follows from these. Only the geometry changes, when the pool grows.

use core::fmt;

use crate::format::bytes::{checksum, u64_at};
use crate::format::geometry::Geometry;

/// The digest function of a pool, recorded at creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DigestFunction {
    /// BLAKE3 in keyed mode, first 128 bits.
    Blake3,
    /// AEGIS-128X2 as a MAC, 128-bit tag.
    Aegis128X2,
}

impl DigestFunction {
    pub(super) fn code(self) -> u16 {
        match self {
            DigestFunction::Blake3 => 1,
            DigestFunction::Aegis128X2 => 2,
        }
    }
}

/// Parameters that are fixed when a pool is created, except the geometry, which grows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Layout of the store.
    pub geometry: Geometry,
    /// Names the pool; random.
    pub id: [u8; 16],
    /// The secret key of the digest function; random.
    pub key: [u8; 32],
    /// The digest function.
    pub digest: DigestFunction,
    /// Seed of checksums; follows from the key. Nobody but who reads the superblock knows it, so no client can make a block that
    /// passes for what the engine wrote.
    pub secret: u64,
    /// True if the pages of tables have the seed that follows from the id, as in version 2, in which the pool was made. They lie where no client's bytes ever
    /// stand.
    pub pages_by_id: bool,
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parameters").field("geometry", &self.geometry).field("id", &self.id).finish_non_exhaustive()
    }
}

impl Parameters {
    /// Makes the parameters of a new pool, whose secret follows from the key.
    pub fn new(geometry: Geometry, id: [u8; 16], key: [u8; 32], digest: DigestFunction) -> Parameters {
        Parameters { geometry, id, key, digest, secret: checksum(SECRET_DOMAIN, &key), pages_by_id: false }
    }

    /// Returns the seed of the checksums of journal and owner.
    pub fn seed(&self) -> u64 {
        self.secret
    }

    /// Returns the seed of the checksums of pages.
    pub fn page_seed(&self) -> u64 {
        if self.pages_by_id { self.public_seed() } else { self.secret }
    }

    /// Returns the seed of version 2, which follows from the id: everybody who knows the id knows it.
    pub(crate) fn public_seed(&self) -> u64 {
        u64_at(&self.id, 0) ^ u64_at(&self.id, 8).rotate_left(32)
    }
}

/// Seed of the hash that makes [`Parameters::secret`] of the key.
const SECRET_DOMAIN: u64 = u64::from_le_bytes(*b"checksum");
