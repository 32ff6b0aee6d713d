//! Encoders of table entries on disk, for pools that are made without the engine, such as those of the simulator's generator of huge pools.

use crate::api::{Digest, VolumeId};
use crate::counters::VolumeWrites;
use crate::format::bytes::{put_u16, put_u64};
use crate::format::entry::{Entry, Key, Slot};
use crate::format::geometry::Geometry;
use crate::format::record;
use crate::format::superblock::Root;
use crate::format::volume::{self, Family, Volume};
use crate::properties::VolumeProperties;

pub use crate::format::bytes::checksum;
pub use crate::format::layout::CONTAINER_BYTES;
pub use crate::format::layout::SUMMARY_BYTES;
pub use crate::format::layout::VOLUME_BYTES;
pub use crate::format::layout::height_for;

/// Encodes the entry of a map leaf for a whole block in `slot`.
pub fn map_entry(slot: u64, digest: Digest) -> u64 {
    Entry::whole(Slot(slot), digest).0
}

/// Writes the summary of a slot, [`SUMMARY_BYTES`] of it: the digest of its block, and the block that it was first written for.
pub fn summary(digest: Digest, volume: VolumeId, lba: u64, out: &mut [u8]) {
    out[..16].copy_from_slice(&digest.0);
    put_u64(out, 16, Key::new(volume, lba).0);
}

/// Writes the entry of a container, [`CONTAINER_BYTES`] of it: its generation and its slots in use.
pub fn container(generation: u16, live: u16, out: &mut [u8]) {
    put_u16(out, 0, generation);
    put_u16(out, 2, live);
}

/// Writes the entry of a volume in a table by number, [`VOLUME_BYTES`] of it, with as many blocks mapped as `size` has.
pub fn full_volume(id: VolumeId, name: &str, size: u64, block_size: u32, root: Root, out: &mut [u8]) {
    let logical_blocks_used = size / u64::from(block_size);
    let volume = Volume {
        id,
        name: name.into(),
        size,
        properties: VolumeProperties::default(),
        is_pressed: false,
        family: Family::default(),
        logical_blocks_used,
        keeps: None,
        since: 0,
        deleted: None,
        merged_size: size,
        writes: VolumeWrites::default(),
    };
    volume::encode(&volume, root, out);
}

/// Writes a journal record without entries: one page, with a checksum by this seed.
pub fn record(sequence: u64, epoch: u64, watermark: u64, position: u32, seed: u64, page: &mut [u8]) {
    let header = record::Header { pages: 1, blocks: 0, sequence, epoch, previous: 0, watermark, entries: 0, position };
    record::encode(&header, &[], seed, page);
}

/// Returns the location of page `index` of `level` (0: leaves) of the meta map, in the first of its two locations.
pub fn meta_map_location(geometry: &Geometry, level: usize, index: u64) -> u32 {
    2 * geometry.meta_map_page(level, index) as u32 + 1
}
