//! Content of a block without its bytes: a payload block is eight cells of one number each, so that a terabyte of
//! payload fits in a simulation and yet partial writes and torn writes can be told apart. Metadata is real bytes.
//!
//! Numbers of one range stand for blocks that imitate the engine's structures on disk (`forged.rs`).
//!
//! Either form can be read as the other, since recovery may read anything anywhere: a cell becomes its number repeated
//! over an eighth of the block, and an eighth of other bytes becomes a number made from their hash.

use std::rc::Rc;

use engine::{BlockContent, Digest};

use crate::random::mix;
use crate::runs::forged;

/// Cells of a block: the granularity of partial writes and of tearing in the simulator.
pub const CELLS: usize = 8;

/// A payload block. All cells 0 is a zero block.
pub type Cells = [u32; CELLS];

/// The zero block.
pub const ZERO: Cells = [0; CELLS];

/// Numbers that two blocks are filled with, whose digests agree in the bits that a map entry has, and in no more.
pub const TWINS: [[u32; 2]; 4] = [[2820, 4722], [4379, 6561], [7921, 8417], [5002, 14125]];

/// Numbers of pairs of blocks that operations write, whose digests agree in the bits that a map entry has, and in no
/// more. Their cells are numbers of their own ([`numbered`]).
pub const NUMBERED_TWINS: [[u32; 2]; 4] = [[1198, 4408], [1988, 8914], [10695, 11435], [13884, 14748]];

/// Returns the cells of a numbered block for writes: each cell differs; 0 is the zero block.
pub fn numbered(number: u32) -> Cells {
    core::array::from_fn(|cell| if number == 0 { 0 } else { number << 4 | cell as u32 })
}

/// Bit that is set in numbers made from bytes which no client wrote.
const FOREIGN: u32 = 1 << 31;

/// Makes a number that no client writes.
pub fn foreign(number: u64) -> u32 {
    number as u32 | FOREIGN
}

/// One block on the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Payload.
    Payload(Cells),
    /// Metadata: `block_size` bytes.
    Metadata(Rc<[u8]>),
}

impl Content {
    /// Converts the block to bytes.
    pub fn to_bytes(&self, block_size: u32) -> Rc<[u8]> {
        match self {
            Content::Metadata(bytes) => bytes.clone(),
            Content::Payload(cells) => {
                let size = block_size as usize / CELLS;
                let mut bytes = Vec::with_capacity(size * CELLS);
                for (at, &cell) in cells.iter().enumerate() {
                    if forged::is_forged(cell) {
                        bytes.extend_from_slice(&forged::block(cell, block_size)[at * size..][..size]);
                    } else {
                        bytes.extend((0..size / 4).flat_map(|_| cell.to_le_bytes()));
                    }
                }
                bytes.into()
            }
        }
    }

    /// Converts the block to payload, as a read into a buffer does.
    pub fn to_cells(&self) -> Cells {
        match self {
            Content::Payload(cells) => *cells,
            Content::Metadata(bytes) => {
                let mut cells = ZERO;
                let size = bytes.len() / CELLS;
                for (cell, chunk) in cells.iter_mut().zip(bytes.chunks_exact(size)) {
                    *cell = cell_of(chunk);
                }
                cells
            }
        }
    }

    /// Returns the result of a torn write: the cells whose bit is set in `mask` are those of `new`, the others those of `self`.
    pub fn torn(&self, new: &Content, mask: u8, block_size: u32) -> Content {
        if let (Content::Payload(old), Content::Payload(new)) = (self, new) {
            return Content::Payload(overlay(old, new, mask));
        }
        let (mut bytes, new) = (self.to_bytes(block_size).to_vec(), new.to_bytes(block_size));
        let size = bytes.len() / CELLS;
        for cell in (0..CELLS).filter(|cell| mask & (1 << cell) != 0) {
            bytes[cell * size..][..size].copy_from_slice(&new[cell * size..][..size]);
        }
        Content::Metadata(bytes.into())
    }

    /// Returns true if it is real bytes.
    pub fn is_metadata(&self) -> bool {
        matches!(self, Content::Metadata(_))
    }

    /// Hashes the block, for the digest of a run.
    pub fn hash(&self) -> u64 {
        match self {
            Content::Payload(cells) => hash_words(1, cells),
            Content::Metadata(bytes) => hash_bytes(2, bytes),
        }
    }
}

/// Returns the cells of `old`, with those of `new` where `mask` has a bit.
pub fn overlay(old: &Cells, new: &Cells, mask: u8) -> Cells {
    let mut result = *old;
    for cell in (0..CELLS).filter(|cell| mask & (1 << cell) != 0) {
        result[cell] = new[cell];
    }
    result
}

/// Describes a full block as the driver tells the engine.
pub fn describe(cells: &Cells) -> BlockContent {
    BlockContent { digest: digest(cells), zero: *cells == ZERO, record_like: forged::begins_as_record(cells[0]) }
}

/// Computes 128 bits in place of the pool's digest function: equal for equal blocks, different for all others that a run meets.
pub fn digest(cells: &Cells) -> Digest {
    let halves = [hash_words(0x6f6e_6566_6f6c_6401, cells), hash_words(0x6f6e_6566_6f6c_6402, cells)];
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&halves[0].to_le_bytes());
    bytes[8..].copy_from_slice(&halves[1].to_le_bytes());
    Digest(bytes)
}

fn cell_of(chunk: &[u8]) -> u32 {
    let first = &chunk[..4];
    if chunk.chunks_exact(4).all(|word| word == first) {
        return u32::from_le_bytes([first[0], first[1], first[2], first[3]]);
    }
    hash_bytes(3, chunk) as u32 | FOREIGN
}

fn hash_words(seed: u64, words: &[u32]) -> u64 {
    words.iter().fold(mix(seed), |hash, &word| mix(hash ^ u64::from(word)))
}

fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(mix(seed ^ bytes.len() as u64), |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash ^ u64::from_le_bytes(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_read_as_bytes_and_back_is_the_same_payload() {
        let cells = [0, 1, 2, 3, u32::MAX, 0x0102_0304, 7, 0];
        let bytes = Content::Payload(cells).to_bytes(512);
        assert_eq!(bytes.len(), 512);
        assert_eq!(Content::Metadata(bytes).to_cells(), cells);
    }

    #[test]
    fn metadata_read_as_payload_differs_where_the_bytes_differ() {
        let mut bytes = vec![0; 512];
        bytes[70] = 9;
        let cells = Content::Metadata(bytes.into()).to_cells();
        assert_eq!(cells[0], 0);
        assert_ne!(cells[1] & FOREIGN, 0);
        assert_eq!(cells[2..], [0; 6]);
    }

    #[test]
    fn a_torn_write_has_some_cells_old_and_some_new_in_every_combination_of_kinds() {
        let (old, new) = (Content::Payload([1; 8]), Content::Payload([2; 8]));
        assert_eq!(old.torn(&new, 0b101, 512), Content::Payload([2, 1, 2, 1, 1, 1, 1, 1]));
        let as_bytes = Content::Metadata(new.to_bytes(512));
        assert_eq!(old.torn(&as_bytes, 0b101, 512).to_cells(), [2, 1, 2, 1, 1, 1, 1, 1]);
        assert_eq!(old.torn(&as_bytes, 0, 512).to_cells(), [1; 8]);
    }

    #[test]
    fn twins_agree_in_24_bits_only() {
        let filled = TWINS.map(|twins| twins.map(|number| [number; CELLS]));
        for twins in filled.into_iter().chain(NUMBERED_TWINS.map(|twins| twins.map(numbered))) {
            let [one, other] = twins.map(|cells| digest(&cells).0);
            assert!(one[..3] == other[..3] && one[3..] != other[3..]);
        }
    }

    #[test]
    fn digests_tell_blocks_apart_and_name_zero() {
        assert_eq!(digest(&[5; 8]), digest(&[5; 8]));
        assert_ne!(digest(&[5; 8]), digest(&[6; 8]));
        assert_ne!(digest(&[1, 2, 0, 0, 0, 0, 0, 0]), digest(&[2, 1, 0, 0, 0, 0, 0, 0]));
        assert!(describe(&ZERO).zero && !describe(&[1; 8]).zero);
    }
}
