//! Estimated saving by compression of cold containers, measured with lz4 and zstd on a sample of the data.
//!
//! The model: each block is compressed separately, so that a read of one needs no other. The compressed blocks of a container lie behind each other without
//! rounding, behind a table of their lengths. A container takes whole sixteenths of its place. Zeroes and duplicates are not stored, so they are not
//! compressed.
//!
//! The sample: windows of the data at equal distances, with about [`SAMPLE_BLOCKS`] blocks in all. Their blocks, each content once, fill containers of 1 MiB in
//! their order.

use std::collections::HashSet;

use engine::Digest;
use serde::Serialize;

use super::sample::Block;
use super::{BLOCK, WINDOW_BLOCKS};

/// Blocks that are compressed, about: 256 MiB, some four seconds. Their digests take a few MiB.
const SAMPLE_BLOCKS: u64 = 256 * 256;
/// Blocks of a container of the sample.
const CONTAINER_BLOCKS: usize = WINDOW_BLOCKS;
/// Bits for the length of a block in a container's table.
const LENGTH_BITS: usize = 12;
/// Parts of a place that a container takes whole.
const PARTS: usize = 16;
/// Level of zstd: the fastest of its usual ones.
const ZSTD_LEVEL: i32 = 1;

/// The sample, as it is read.
#[derive(Default)]
pub struct Compression {
    /// N, if one window in N is compressed; 0: none.
    one_in: u64,
    windows: u64,
    contents: HashSet<Digest>,
    /// Blocks of the container that is being filled, and their compressed lengths: lz4, zstd.
    filled: usize,
    lengths: [usize; 2],
    containers: u64,
    /// Bytes that full containers take.
    taken: [u64; 2],
    zstd: Option<zstd::bulk::Compressor<'static>>,
    output: Vec<u8>,
}

/// Result of the measurement.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct CompressionResult {
    /// Bytes of a container of the sample.
    pub container_bytes: u64,
    /// Containers that the sample fills.
    pub containers: u64,
    /// N, if one window of the data in N was sampled.
    pub one_window_in: u64,
    /// Size of containers compressed with lz4, in percent of their present size.
    pub lz4_percent: f64,
    /// Size of containers compressed with zstd, in percent of their present size.
    pub zstd_percent: f64,
}

impl Compression {
    /// Creates an empty sample for data of this many blocks.
    pub fn new(blocks: u64) -> Compression {
        let zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
        let output =
            vec![0; lz4_flex::block::get_maximum_output_size(BLOCK).max(zstd::zstd_safe::compress_bound(BLOCK))];
        Compression { one_in: blocks.div_ceil(SAMPLE_BLOCKS).max(1), zstd, output, ..Compression::default() }
    }

    /// Adds the next window; its blocks are compressed if it belongs to the sample.
    pub fn add(&mut self, bytes: &[u8], blocks: &[Block]) {
        let number = self.windows;
        self.windows += 1;
        if self.one_in == 0 || !number.is_multiple_of(self.one_in) {
            return;
        }
        for (bytes, block) in bytes.chunks_exact(BLOCK).zip(blocks) {
            if let Block::Content(digest) = block
                && self.contents.insert(*digest)
            {
                self.compress(bytes);
            }
        }
    }

    fn compress(&mut self, block: &[u8]) {
        let lz4 = lz4_flex::block::compress_into(block, &mut self.output).unwrap_or(BLOCK);
        let zstd = self.zstd.as_mut().and_then(|zstd| zstd.compress_to_buffer(block, &mut self.output[..]).ok());
        for (length, compressed) in self.lengths.iter_mut().zip([lz4, zstd.unwrap_or(BLOCK)]) {
            *length += compressed.min(BLOCK);
        }
        self.filled += 1;
        if self.filled == CONTAINER_BLOCKS {
            for (taken, length) in self.taken.iter_mut().zip(std::mem::take(&mut self.lengths)) {
                *taken += container_bytes(length);
            }
            self.containers += 1;
            self.filled = 0;
        }
    }

    /// Computes the result; `None` if the sample fills no container.
    pub fn result(self) -> Option<CompressionResult> {
        let container = (CONTAINER_BLOCKS * BLOCK) as u64;
        let plain = self.containers * container;
        let [lz4_percent, zstd_percent] = self.taken.map(|taken| taken as f64 * 100.0 / plain.max(1) as f64);
        (self.containers > 0).then_some(CompressionResult {
            container_bytes: container,
            containers: self.containers,
            one_window_in: self.one_in,
            lz4_percent,
            zstd_percent,
        })
    }
}

/// Returns the bytes that a container takes whose blocks have `compressed` bytes in all; a plain one has no table.
fn container_bytes(compressed: usize) -> u64 {
    let container = CONTAINER_BLOCKS * BLOCK;
    let table = (CONTAINER_BLOCKS * LENGTH_BITS).div_ceil(8);
    (compressed + table).next_multiple_of(container / PARTS).min(container) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds the blocks of a window, each with a digest of its number.
    fn blocks(numbers: std::ops::Range<u32>) -> Vec<Block> {
        numbers.map(|number| Block::Content(number.to_le_bytes().repeat(4).try_into().map(Digest).unwrap())).collect()
    }

    /// Generates bytes that do not compress.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..length / 8).flat_map(|_| next().to_le_bytes()).collect()
    }

    #[test]
    fn containers_take_whole_parts_of_their_place_and_never_more_than_it() {
        let container = (CONTAINER_BLOCKS * BLOCK) as u64;
        assert_eq!(container_bytes(1), container / 16);
        assert_eq!(
            container_bytes(container as usize / 2),
            container / 16 * 9,
            "the table of lengths begins the ninth part"
        );
        assert_eq!(container_bytes(container as usize), container);
    }

    #[test]
    fn what_compresses_takes_less_and_noise_takes_what_it_is() {
        let size = CONTAINER_BLOCKS * BLOCK;
        let mut text = Compression::new(1);
        text.add(&b"the same words ".repeat(size / 15 + 1)[..size], &blocks(0..256));
        let text = text.result().unwrap();
        assert_eq!((text.containers, text.lz4_percent, text.zstd_percent), (1, 6.25, 6.25));
        let mut random = Compression::new(1);
        random.add(&noise(size), &blocks(0..256));
        let random = random.result().unwrap();
        assert_eq!((random.lz4_percent, random.zstd_percent), (100.0, 100.0));
    }

    #[test]
    fn known_contents_zeroes_and_windows_beside_the_sample_are_not_compressed() {
        let window = noise(CONTAINER_BLOCKS * BLOCK);
        let mut some = Compression::new(2 * SAMPLE_BLOCKS);
        for number in 0..4 {
            some.add(&window, &blocks(number * 256..number * 256 + 256));
        }
        assert_eq!(some.contents.len(), 512, "one window in two");
        // Again, and zeroes.
        some.add(&window, &blocks(0..256));
        some.add(&window, &blocks(2000..2256));
        some.add(&window, &[Block::Zero; 256]);
        assert_eq!(some.result().unwrap().containers, 2);
        assert_eq!(Compression::new(1).result(), None);
    }
}
