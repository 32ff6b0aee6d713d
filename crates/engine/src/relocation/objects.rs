//! The map from blocks of volumes to objects: a table of parts, filled from manifests.
//!
//! A block that no part names belongs to the object of its volume, whose number is the volume's. Objects of manifests have numbers from [`FIRST`] on.
//! Parts never overlap, and lie in the order of volumes and blocks, so finding one is a search by halves.
//!
//! Memory: 24 bytes a part, as many parts at most as the table was made for; and for names [`MOST_NAMES`] and [`MOST_NAME_BYTES`]. The name of an
//! object stays when its parts are taken out, since runs that were noted before are still its.

use alloc::string::String;
use alloc::vec::Vec;

use super::Object;
use crate::api::VolumeId;

/// The number of the first object that is no volume.
pub const FIRST: u32 = 1 << 16;
/// The most objects that can have names.
pub const MOST_NAMES: usize = 1 << 16;
/// The most bytes of all names together.
pub const MOST_NAME_BYTES: usize = 4 << 20;

/// Blocks in a row of a volume that belong to an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// The first block.
    pub block: u64,
    /// Number of blocks; at least 1.
    pub blocks: u32,
    /// Object that the blocks belong to.
    pub object: Object,
    /// Volume of the blocks.
    pub volume: VolumeId,
}

impl Part {
    /// Returns the block behind the last.
    pub fn end(&self) -> u64 {
        self.block.saturating_add(u64::from(self.blocks))
    }
}

/// Reason why a part is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It has no blocks, or reaches beyond all numbers.
    NoBlocks,
    /// There is no space for more parts, or names.
    Full,
    /// Some of its blocks belong to this object already.
    Overlaps(Object),
}

/// The table of parts, and the names of objects.
#[derive(Clone, Debug)]
pub struct Objects {
    most: usize,
    parts: Vec<Part>,
    /// Names of the objects from [`FIRST`] on.
    names: Vec<String>,
    name_bytes: usize,
}

impl Objects {
    /// Makes an empty table, for at most `most` parts.
    pub fn new(most: usize) -> Objects {
        Objects { most, parts: Vec::with_capacity(most), names: Vec::new(), name_bytes: 0 }
    }

    /// Inserts a part. Parts that come in ascending order of blocks cost the least.
    pub fn insert(&mut self, part: Part) -> Result<(), Refusal> {
        if part.blocks == 0 || part.block.checked_add(u64::from(part.blocks)).is_none() {
            return Err(Refusal::NoBlocks);
        }
        let at = self.parts.partition_point(|other| (other.volume, other.block) < (part.volume, part.block));
        let before = at.checked_sub(1).and_then(|before| self.parts.get(before));
        let before = before.filter(|other| other.volume == part.volume && other.end() > part.block);
        let after = self.parts.get(at).filter(|other| other.volume == part.volume && other.block < part.end());
        if let Some(other) = before.or(after) {
            return Err(Refusal::Overlaps(other.object));
        }
        if self.parts.len() >= self.most {
            return Err(Refusal::Full);
        }
        self.parts.insert(at, part);
        Ok(())
    }

    /// Removes all parts of a volume.
    pub fn forget(&mut self, volume: VolumeId) {
        self.parts.retain(|part| part.volume != volume);
    }

    /// Returns the number of an object with this name; the one before it, if that has the same name. Only names that follow each other are compared. `Full` if
    /// there is no space for the name.
    pub fn named(&mut self, name: &str) -> Result<Object, Refusal> {
        if self.names.last().is_none_or(|last| last != name) {
            if self.names.len() >= MOST_NAMES || self.name_bytes + name.len() > MOST_NAME_BYTES {
                return Err(Refusal::Full);
            }
            self.name_bytes += name.len();
            self.names.push(String::from(name));
        }
        Ok(Object(FIRST + self.names.len() as u32 - 1))
    }

    /// Returns the names, from the object [`FIRST`] on.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the object that a block belongs to: the one of its part, or else the volume's.
    pub fn of(&self, volume: VolumeId, block: u64) -> Object {
        let next = self.parts.partition_point(|part| (part.volume, part.block) <= (volume, block));
        let part = next.checked_sub(1).and_then(|at| self.parts.get(at));
        let part = part.filter(|part| part.volume == volume && block < part.end());
        part.map_or(Object(u32::from(volume.0)), |part| part.object)
    }

    /// Returns all parts, in order of volumes and blocks.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the bytes that the table of parts takes at most.
    pub fn most_bytes(&self) -> usize {
        self.most * size_of::<Part>()
    }
}
