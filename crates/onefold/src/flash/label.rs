//! Label of a flash, its first block: the pool that it is for, and the operator's settings from when it was attached. Layout in docs/reference/disk-format.md.
//!
//! Without it nothing is written there: an operator who names the wrong device at a start loses nothing.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::io::arena::BLOCK;

/// Byte of a flash at which the engine's part begins. Flash works best from the start of a whole erase unit.
pub const ENGINE_PART: u64 = 1 << 20;

const MAGIC: [u8; 8] = *b"ONEFCACH";
const VERSION: u16 = 1;
/// The digest is of all before it.
const DIGEST_AT: usize = 64;
const DIGEST_END: usize = DIGEST_AT + 32;

/// Contents of the first block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// The pool's id.
    pub pool: [u8; 16],
    /// Bytes of the file or device that are used, with this block.
    pub size: u64,
    /// Bytes that may be written to it in a day.
    pub budget: u64,
    /// Bytes that may be written to it in its life, as its maker says (TBW); 0: unknown.
    pub endurance: u64,
}

/// Request of `cache attach`: puts a flash, which is a file or block device, in front of a pool, served or not.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The file or device.
    pub path: PathBuf,
    /// Bytes of it to use; needed for a file that does not exist.
    pub size_bytes: Option<u64>,
    /// Bytes that may be written to it in a day.
    pub budget_bytes: Option<u64>,
    /// Bytes that may be written to it in its life.
    pub endurance_bytes: Option<u64>,
    /// True if its present contents may be lost.
    pub force: bool,
}

impl Label {
    /// Encodes the label as a block, with a digest.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[..8].copy_from_slice(&MAGIC);
        block[8..10].copy_from_slice(&VERSION.to_le_bytes());
        block[16..32].copy_from_slice(&self.pool);
        for (at, number) in [(32, self.size), (40, self.budget), (48, self.endurance)] {
            block[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let digest = blake3::hash(&block[..DIGEST_AT]);
        block[DIGEST_AT..DIGEST_END].copy_from_slice(digest.as_bytes());
        block
    }

    /// Returns the pool that a block names if it begins as a label does, also one of another version or with a wrong digest.
    pub fn pool_of(block: &[u8]) -> Option<[u8; 16]> {
        (block.get(..8)? == MAGIC).then(|| block.get(16..32)?.try_into().ok())?
    }

    /// Reads it; `None` if the block is no label, or not whole.
    pub fn decode(block: &[u8]) -> Option<Label> {
        let number = |at: usize| Some(u64::from_le_bytes(block.get(at..at + 8)?.try_into().ok()?));
        let is_ours = block.get(..8)? == MAGIC
            && block.get(8..10)? == VERSION.to_le_bytes()
            && block.get(DIGEST_AT..DIGEST_END)? == blake3::hash(&block[..DIGEST_AT]).as_bytes();
        if !is_ours {
            return None;
        }
        let pool = block.get(16..32)?.try_into().ok()?;
        Some(Label { pool, size: number(32)?, budget: number(40)?, endurance: number(48)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_reads_back_and_every_changed_byte_of_it_is_noticed() {
        let label = Label { pool: [7; 16], size: 20 << 30, budget: 5 << 30, endurance: 600 << 40 };
        let mut block = label.encode();
        assert_eq!(Label::decode(&block), Some(label));
        for at in 0..DIGEST_END {
            block[at] ^= 4;
            assert_eq!(Label::decode(&block), None, "{at}");
            block[at] ^= 4;
        }
        assert_eq!(Label::decode(&block[..80]), None);
    }
}
