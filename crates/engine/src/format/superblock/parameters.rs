//! Permanent parameters of a pool: its id, its key and the values derived from these. Only the geometry changes, when the pool grows.

use core::fmt;

use crate::format::bytes::{checksum, u64_at};
use crate::format::geometry::Geometry;

/// Digest function of a pool, recorded at creation.
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
    /// Identifier of the pool; random.
    pub id: [u8; 16],
    /// Secret key of the digest function; random.
    pub key: [u8; 32],
    /// Digest function of the pool.
    pub digest: DigestFunction,
    /// Seed of checksums, derived from the key. Only readers of the superblock know it, so no client can forge a block that passes as the engine's.
    pub secret: u64,
    /// True if the pages of tables have the seed derived from the id, as in version 2, in which the pool was created. They lie where no client's bytes are ever
    /// written.
    pub pages_by_id: bool,
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parameters").field("geometry", &self.geometry).field("id", &self.id).finish_non_exhaustive()
    }
}

impl Parameters {
    /// Makes the parameters of a new pool, whose secret is derived from the key.
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

    /// Returns the seed of version 2, which is derived from the id: it is public to all who know the id.
    pub(crate) fn public_seed(&self) -> u64 {
        u64_at(&self.id, 0) ^ u64_at(&self.id, 8).rotate_left(32)
    }
}

/// Seed of the hash that derives [`Parameters::secret`] from the key.
const SECRET_DOMAIN: u64 = u64::from_le_bytes(*b"checksum");
