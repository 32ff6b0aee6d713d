//! Forged blocks: blocks of clients that look like the engine's structures on disk (records of the journal, superblocks, pages of tables). Code that finds
//! one where a client's bytes may stand must not take it for a real structure.
//!
//! A client knows the format, and the pool's id: it is in logs, in the output of commands and in names of sockets. It does not know the secrets of the
//! superblock, but it may have a copy of the pool, from a backup. It does not know the position of its block in the ring either, so it tries many positions.

use engine::encode::{checksum, map_entry, record};
use engine::geometry::PLACE_B_OFFSET;
use engine::{DigestFunction, Geometry, Parameters, Superblock};

use crate::content::digest;
use crate::random::{Random, mix};

/// First number of forged blocks; they end before twice this number. A cell has the number of its block, and four bits of its own.
const FORGED: u32 = 1 << 26;
/// Number of positions in the ring that forged records try; most rings of the simulator have no more.
const PLACES: u64 = 96;

/// Seed that follows from the public ids of all pools of the simulator: the seed of checksums of pools before version 3.
pub const PUBLIC_SEED: u64 = 0x5eed_0f10_1e50_00d5;
/// Seed that only the superblocks of the simulator's pools have. A client that stores a copy of the pool in a volume of it writes blocks with this
/// seed.
pub const SECRET_SEED: u64 = 0x5ec2_e7b1_7e5f_3f01;

/// Returns true if a number of a cell stands for a piece of such a block.
pub fn is_forged(cell: u32) -> bool {
    cell >> 30 == 1
}

/// Returns true if a block with this first cell begins as a record does.
pub fn begins_as_record(cell: u32) -> bool {
    is_forged(cell) && engine::begins_as_record(&block(cell, 512))
}

/// Draws the number of any such block.
pub fn any(random: &mut Random) -> u32 {
    FORGED | random.below(u64::from(FORGED)) as u32
}

/// Finds the number of a record with the secret seed for one of the first places of a ring.
pub fn record_for(place: u64) -> u32 {
    let is_meant = |&number: &u32| {
        let page = block(number << 4, 512);
        let position = u32::from_le_bytes(core::array::from_fn(|at| page[44 + at]));
        engine::begins_as_record(&page) && u64::from(position) == 2 + 2 * place
    };
    (FORGED..2 * FORGED).find(is_meant).expect("one in a few hundred is")
}

/// Returns the id of a pool whose public seed is [`PUBLIC_SEED`].
pub fn public_id(mut id: [u8; 16]) -> [u8; 16] {
    let first = u64::from_le_bytes(core::array::from_fn(|at| id[at]));
    id[8..].copy_from_slice(&(first ^ PUBLIC_SEED).rotate_right(32).to_le_bytes());
    id
}

/// Returns the bytes of the block that has this cell.
pub fn block(cell: u32, block_size: u32) -> Vec<u8> {
    let random = &mut Random::new(mix(u64::from(cell >> 4)));
    let mut bytes = vec![0; block_size as usize];
    let position = random.below(PLACES) as u32;
    let seed = random.pick(&[PUBLIC_SEED, SECRET_SEED]);
    match random.below(8) {
        // More was durable than the journal has.
        0..=2 => record(1 << 40, random.between(1, 40), 1 << 40, position, seed, &mut bytes),
        // A newer superblock was durable.
        3 => record(1 << 40, 1 << 40, 1, position, seed, &mut bytes),
        // The possible next record, or one a little beyond.
        4 | 5 => {
            let sequence = random.between(1, 400);
            let watermark = sequence - random.below(sequence.min(8));
            record(sequence, random.between(1, 40), watermark, position, seed, &mut bytes);
        }
        6 => {
            let geometry = Geometry::for_capacity(1 << 30).expect("a gibibyte is possible");
            let geometry = Geometry { block_size, place_b: PLACE_B_OFFSET / u64::from(block_size), ..geometry };
            let digest = DigestFunction::Aegis128X2;
            let parameters = Parameters::new(geometry, public_id([1; 16]), [1; 32], digest);
            Superblock { epoch: 1 << 40, ..Superblock::new(parameters) }.encode(&mut bytes);
        }
        // A leaf of a map that refers to slots, or a page of pointers with the checksums of their targets.
        _ => {
            let leads_to_pages = random.one_in(2);
            for entry in bytes.chunks_exact_mut(16) {
                if leads_to_pages {
                    entry[..4].copy_from_slice(&(random.below(64) as u32).to_le_bytes());
                    entry[4..8].copy_from_slice(&1u32.to_le_bytes());
                    entry[8..].copy_from_slice(&checksum(seed, &[0; 512]).to_le_bytes());
                } else {
                    let entries = [0; 2].map(|_: u64| map_entry(random.below(64), digest(&[1; 8])).to_le_bytes());
                    entry.copy_from_slice(entries.as_flattened());
                }
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pools_of_the_lab_have_the_seed_that_forgers_use() {
        let id = public_id([9; 16]);
        let half = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| id[at + byte]));
        assert_eq!(half(0) ^ half(8).rotate_left(32), PUBLIC_SEED);
    }
}
