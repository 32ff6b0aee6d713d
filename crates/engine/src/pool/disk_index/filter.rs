//! The filter of the index on disk: a blocked Bloom filter (Putze, Sanders and Singler, WEA 2007) over its entries, by which a lookup of a new block ends in memory.
//!
//! Each bucket has a part of its own, an eighth of the bucket's size: at two thirds full, twelve bits for each entry. An entry sets [`PROBES`] bits of one line of
//! 512 bits. A part is known once its bucket was read or written; until then it says nothing. It is made anew when its bucket is written, so removed entries go with
//! that. Where memory is too small, the filter covers the first buckets only.
//!
//! Its memory is part of that which the index in memory and the read cache share. It is made when the read cache has given that up, and made anew where limits or
//! the index have changed.
//!
//! What must hold: a part that is known has every entry of its bucket. A removed entry may be left.

use alloc::vec;
use alloc::vec::Vec;

use super::DiskIndex;
use super::bucket::{entries, tag_of, tag_of_hash};
use crate::format::disk_index::{FILTER_LINE, filter_bytes, filter_lines};
use crate::pool::Pool;

/// Bits that an entry sets.
const PROBES: u32 = 5;
/// Bits and words of a line.
const LINE_BITS: u32 = FILTER_LINE as u32 * 8;
const LINE_WORDS: usize = LINE_BITS as usize / 64;
/// Filter over the entries of the first buckets.
pub(crate) struct BloomFilter {
    /// Lines of a part.
    lines: usize,
    words: Vec<u64>,
    /// Bitmap of the buckets whose parts are known.
    known: Vec<u64>,
    covered: u32,
}

impl BloomFilter {
    /// Makes a filter that covers this many buckets of `block` bytes, none of which is known.
    pub(crate) fn new(covered: u32, block: u64) -> BloomFilter {
        let lines = filter_lines(block) as usize;
        let words = vec![0; covered as usize * lines * LINE_WORDS];
        BloomFilter { lines, words, known: vec![0; covered.div_ceil(64) as usize], covered }
    }

    /// Returns the number of buckets that the filter covers.
    pub(crate) fn covered(&self) -> u32 {
        self.covered
    }

    /// Returns the bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        (self.words.len() + self.known.len()) as u64 * 8
    }

    /// Returns true if the filter has the entries of a bucket.
    #[inline]
    pub(crate) fn knows(&self, bucket: u64) -> bool {
        bucket < u64::from(self.covered) && self.known[(bucket / 64) as usize] >> (bucket % 64) & 1 == 1
    }

    /// Returns the words of the line of a tag, and the places of the bits.
    #[inline]
    fn line(&self, bucket: u64, tag: u64) -> (core::ops::Range<usize>, u64) {
        // Two multiplications spread the 27 bits of a tag over all of the word.
        let mixed = tag.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let line = ((mixed >> 48) as usize * self.lines) >> 16;
        let first = (bucket as usize * self.lines + line) * LINE_WORDS;
        (first..first + LINE_WORDS, mixed)
    }

    /// Returns the places of the bits of an entry in its line.
    #[inline]
    fn bits(mixed: u64) -> impl Iterator<Item = (usize, u64)> {
        (0..PROBES).map(move |probe| {
            let bit = mixed >> (probe * 9) & u64::from(LINE_BITS - 1);
            ((bit / 64) as usize, bit % 64)
        })
    }

    /// Returns true if a bucket may have an entry with this tag.
    #[inline]
    pub(crate) fn may_have(&self, bucket: u64, tag: u64) -> bool {
        if !self.knows(bucket) {
            return true;
        }
        let (line, mixed) = self.line(bucket, tag);
        let line = &self.words[line];
        BloomFilter::bits(mixed).all(|(word, bit)| line[word] >> bit & 1 == 1)
    }

    fn set(&mut self, bucket: u64, tag: u64) {
        let (line, mixed) = self.line(bucket, tag);
        let line = &mut self.words[line];
        BloomFilter::bits(mixed).for_each(|(word, bit)| line[word] |= 1 << bit);
    }

    /// Makes a bucket's part anew from the bucket's content.
    pub(crate) fn learn(&mut self, bucket: u64, content: &[u8]) {
        if bucket >= u64::from(self.covered) {
            return;
        }
        let words = self.lines * LINE_WORDS;
        self.words[bucket as usize * words..(bucket as usize + 1) * words].fill(0);
        self.known[(bucket / 64) as usize] |= 1 << (bucket % 64);
        let entries = entries(content).filter(|&entry| entry != 0);
        entries.map(tag_of).for_each(|tag| self.set(bucket, tag));
    }
}

impl DiskIndex {
    /// Makes the filter's part of a bucket that is being written with all of its changes. Until the update ends, lookups still see the bucket without them.
    pub(crate) fn learn_written(&mut self, bucket: u64, content: &[u8]) {
        if let Some(filter) = &mut self.filter {
            filter.learn(bucket, content);
        }
    }

    /// Makes the filter's part of a bucket that was read, unless the filter knows the bucket: then it may be newer.
    pub(super) fn learn_read(&mut self, bucket: u64, content: &[u8]) {
        if let Some(filter) = &mut self.filter
            && !filter.knows(bucket)
        {
            filter.learn(bucket, content);
        }
    }

    /// Returns true if the filter knows that a bucket has no entry of a hash.
    #[inline]
    pub(crate) fn denies(&self, bucket: u64, hash: u64) -> bool {
        self.filter.as_ref().is_some_and(|filter| !filter.may_have(bucket, tag_of_hash(hash)))
    }

    /// Returns true if the filter knows a bucket.
    pub(super) fn is_filtered(&self, bucket: u64) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.knows(bucket))
    }

    /// Returns the bytes of memory of the filter.
    pub(super) fn filter_memory(&self) -> u64 {
        self.filter.as_ref().map_or(0, BloomFilter::memory)
    }
}

impl Pool {
    /// Returns the number of buckets that the filter is to cover, as the limits say; 0 without an index.
    fn buckets_to_cover(&self) -> u32 {
        self.limits.filtered(self.metadata.geometry().block(), self.hints.disk_index.record.buckets)
    }

    /// Returns the bytes that are set aside for the filter, of the memory that the index in memory and the read cache share.
    pub(crate) fn filter_bytes(&self) -> u64 {
        filter_bytes(self.buckets_to_cover(), self.metadata.geometry().block())
    }

    /// Returns true if the filter takes more memory than the limits allow.
    pub(crate) fn has_large_filter(&self) -> bool {
        self.hints.disk_index.filter_memory() > self.filter_bytes()
    }

    /// Makes the filter that the limits want, if there is memory for it.
    pub(crate) fn fit_filter(&mut self) {
        let (covered, block) = (self.buckets_to_cover(), self.metadata.geometry().block());
        if self.hints.disk_index.filter.as_ref().map_or(0, BloomFilter::covered) == covered {
            return;
        }
        self.hints.disk_index.filter = None;
        if covered > 0 && self.shared_memory() + self.set_aside_bytes() <= self.limits.shared_bytes(block) {
            self.hints.disk_index.filter = Some(BloomFilter::new(covered, block));
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::format::bytes::put_u64;

    /// Returns the part of lookups of absent entries that a filter cannot answer, in buckets of `block` bytes with `entries` entries each.
    fn false_answers(entries: f64, block: u64) -> f64 {
        // Entries fall into lines at random: a Poisson distribution.
        let mean = entries / filter_lines(block) as f64;
        let (mut share, mut sum) = ((-mean).exp(), 0.0);
        for count in 0..400 {
            let unset = (1.0 - 1.0 / f64::from(LINE_BITS)).powi(PROBES as i32 * count);
            sum += share * (1.0 - unset).powi(PROBES as i32);
            share *= mean / f64::from(count + 1);
        }
        sum
    }

    fn random(n: u64) -> u64 {
        let x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
    }

    fn bucket(tags: impl Iterator<Item = u64>, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        tags.enumerate().for_each(|(at, tag)| put_u64(&mut bytes, at * 8, tag << 37 | 5));
        bytes
    }

    #[test]
    fn what_is_there_is_never_denied_and_the_rest_mostly_is() {
        for (block, count) in [(4096, 341), (4096, 512), (4096, 100), (512, 42), (1024, 100)] {
            let buckets = 50;
            let mut filter = BloomFilter::new(buckets, block);
            let tag = |bucket: u32, at: u64| random(u64::from(bucket) << 32 | at) & ((1 << 27) - 1);
            for at in 0..buckets {
                assert!(filter.may_have(at.into(), 7), "nothing is known");
                filter.learn(at.into(), &bucket((0..count).map(|entry| tag(at, entry)), block as usize));
            }
            let all = (0..buckets).flat_map(|at| (0..count).map(move |entry| (at, entry)));
            assert!(all.clone().all(|(at, entry)| filter.may_have(at.into(), tag(at, entry))));
            let absent = (0..buckets).flat_map(|at| (10_000..12_000).map(move |entry| (at, entry)));
            let wrong = absent.filter(|&(at, entry)| filter.may_have(at.into(), tag(at, entry))).count();
            let (found, computed) = (wrong as f64 / 100_000.0, false_answers(count as f64, block));
            std::println!("{block} bytes, {count} entries: {found:.5}, computed {computed:.5}");
            assert!(found < 1.2 * computed + 0.0005 && found > 0.8 * computed - 0.0005, "{found} {computed}");
        }
    }

    #[test]
    fn beyond_its_memory_a_filter_says_nothing() {
        let mut filter = BloomFilter::new(3, 4096);
        assert_eq!((filter.covered(), filter.memory()), (3, filter_bytes(3, 4096)));
        filter.learn(3, &bucket(1..4, 4096));
        assert!(filter.may_have(3, 77) && !filter.knows(3));
        filter.learn(2, &bucket(1..4, 4096));
        assert!(filter.may_have(2, 3) && !filter.may_have(2, 99));
        // An emptied bucket has nothing.
        filter.learn(2, &bucket(0..0, 4096));
        assert!(!filter.may_have(2, 3));
    }
}
