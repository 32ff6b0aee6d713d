//! Samples of the data in bounded memory, and the precision of estimates from them.
//!
//! - [`Recorded`]: the contents of windows, block by block, as numbers.
//! - [`Distinct`]: the number of contents, from those whose digests end with enough zero bits.
//! - [`choose`]: segments at random, as many as memory has space for.
//! - [`Figure`]: an estimate with its 95 % confidence interval.

use std::collections::{HashMap, HashSet};

use engine::Digest;
use serde::Serialize;

use super::inputs::Segment;
use super::model::{HOLE, ZERO};

/// Bytes of an entry of the standard library's hash tables beside its key and value.
const TABLE_ENTRY: u64 = 1;
/// A content of the sample by contents, half of which are held twice for a moment.
const SAMPLED: u64 = 16 + TABLE_ENTRY + 8;
/// A content with its number, and a block of a window: its code, and the place of a content of its own.
const CONTENT: u64 = 20 + TABLE_ENTRY;
const BLOCK: u64 = 4 + 8;
/// A window: its number and length, where it begins (in a tree).
const WINDOW: u64 = 48;
/// Quantile of the normal distribution: 95 % lie within N standard deviations.
const Z: f64 = 1.959_964;

/// Returns the places of a hash table for this number of entries: a power of two, at most 7/8 used.
fn places(entries: u64) -> u64 {
    (entries.saturating_mul(8) / 7 + 1).max(4).checked_next_power_of_two().unwrap_or(u64::MAX)
}

/// Returns true if `memory` has space to note all of these blocks and windows, even if no content comes twice.
pub fn fits(blocks: u64, windows: u64, memory: u64) -> bool {
    let table = places(blocks).saturating_mul(CONTENT);
    let bytes = table.saturating_add(blocks.saturating_mul(BLOCK)).saturating_add(windows.saturating_mul(WINDOW));
    bytes <= memory && blocks < u64::from(ZERO)
}

/// Returns the number of windows of a segment, 1 to 64, so that a sample has about 64 segments or more.
pub fn segment_windows(memory: u64) -> u64 {
    (memory >> 21).clamp(1, 64)
}

/// Chooses random segments, as many as `memory` has space for, and returns their numbers in order; the choice is always the same.
pub fn choose(segments: &[Segment], memory: u64) -> Vec<u64> {
    let mut order: Vec<&Segment> = segments.iter().collect();
    order.sort_by_key(|segment| (mix(segment.number), segment.number));
    let (mut blocks, mut windows) = (0, 0);
    let mut chosen: Vec<u64> = order
        .into_iter()
        .take_while(|segment| {
            blocks += segment.blocks;
            windows += segment.windows;
            fits(blocks, windows, memory)
        })
        .map(|segment| segment.number)
        .collect();
    chosen.sort_unstable();
    chosen
}

/// Mixes a number into one that looks random (the finalizer of MurmurHash3 on a multiple of the golden ratio).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        mixed = (mixed ^ mixed >> 33).wrapping_mul(factor);
    }
    mixed ^ mixed >> 33
}

/// A block of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    Hole,
    Zero,
    Content(Digest),
}

/// Windows, block by block.
pub struct Recorded {
    numbers: HashMap<Digest, u32>,
    contents: usize,
    codes: Vec<u32>,
    /// The number of each window, and its blocks.
    windows: Vec<(u64, u32)>,
}

impl Recorded {
    /// Creates an empty record with space for counts that satisfy [`fits`]. The memory is taken as it is needed.
    pub fn new(blocks: u64, windows: u64) -> Recorded {
        Recorded {
            numbers: HashMap::with_capacity(blocks as usize),
            contents: 0,
            codes: Vec::with_capacity(blocks as usize),
            windows: Vec::with_capacity(windows as usize),
        }
    }

    /// Notes a window.
    pub fn add(&mut self, number: u64, blocks: &[Block]) {
        let numbers = &mut self.numbers;
        self.codes.extend(blocks.iter().map(|block| match block {
            Block::Hole => HOLE,
            Block::Zero => ZERO,
            Block::Content(digest) => {
                let next = numbers.len() as u32;
                *numbers.entry(*digest).or_insert(next)
            }
        }));
        self.windows.push((number, blocks.len() as u32));
        self.contents = self.numbers.len();
    }

    /// Returns the number of a content; `None` if no window holds it.
    pub fn number_of(&self, digest: &Digest) -> Option<u32> {
        self.numbers.get(digest).copied()
    }

    /// Returns the number of different contents noted.
    pub fn contents(&self) -> usize {
        self.contents
    }

    pub fn blocks(&self) -> u64 {
        self.codes.len() as u64
    }

    /// Gives back the memory of the digests.
    pub fn forget_digests(&mut self) {
        self.numbers = HashMap::new();
    }

    /// Iterates over the windows in the order noted: number, and codes of the blocks.
    pub fn windows(&self) -> impl Iterator<Item = (u64, &[u32])> {
        let mut rest = &self.codes[..];
        self.windows.iter().map(move |&(number, length)| {
            let (codes, after) = rest.split_at(length as usize);
            rest = after;
            (number, codes)
        })
    }
}

/// Counts different contents: those whose digest ends with `zeroes` zero bits stand for 2^zeroes each. A digest's bits
/// are as good as random, so each content is in the sample or not, however often it comes.
pub struct Distinct {
    sample: HashSet<Digest>,
    zeroes: u32,
    most: usize,
}

impl Distinct {
    /// Creates an empty sample that is as exact as this memory allows, with space for at least 56 contents.
    pub fn new(memory: u64) -> Distinct {
        let places = 1 << (memory / SAMPLED).max(64).ilog2();
        let most = places / 8 * 7;
        Distinct { sample: HashSet::with_capacity(most), zeroes: 0, most }
    }

    pub fn add(&mut self, digest: Digest) {
        if self.sample.contains(&digest) {
            return;
        }
        // The sample never exceeds its space, so that it never grows. It is drained, since entries that are removed one by one leave their places used.
        while trailing_zeroes(digest) >= self.zeroes && self.sample.len() >= self.most {
            self.zeroes += 1;
            let zeroes = self.zeroes;
            let kept: Vec<Digest> = self.sample.drain().filter(|&digest| trailing_zeroes(digest) >= zeroes).collect();
            self.sample.extend(kept);
        }
        if trailing_zeroes(digest) >= self.zeroes {
            self.sample.insert(digest);
        }
    }

    /// Returns N if one content in N is in the sample.
    pub fn one_in(&self) -> u64 {
        1u64.checked_shl(self.zeroes).unwrap_or(u64::MAX)
    }

    /// Estimates the number of different contents. Each is in the sample with the same probability p: the variance of the estimate n / p is n (1 - p) / p².
    pub fn figure(&self) -> Figure {
        let (sampled, one_in) = (self.sample.len() as f64, self.one_in() as f64);
        let value = sampled * one_in;
        let half = Z * (value * (one_in - 1.0)).sqrt();
        Figure { value, low: (value - half).max(sampled), high: value + half }
    }
}

fn trailing_zeroes(digest: Digest) -> u32 {
    (u128::from_le_bytes(digest.0) >> 64).trailing_zeros()
}

/// An estimate, and the bounds of the true value with a probability of 95 %.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    #[serde(rename = "estimate")]
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Figure {
    /// Creates a figure from an exact count: its interval has no width.
    pub fn exact(value: f64) -> Figure {
        Figure { value, low: value, high: value }
    }

    /// Scales the estimate and its interval by a factor of at least 0.
    pub fn times(self, factor: f64) -> Figure {
        Figure { value: self.value * factor, low: self.low * factor, high: self.high * factor }
    }

    /// Subtracts the figure from `whole`; neither the estimate nor a bound falls below 0.
    pub fn taken_from(self, whole: f64) -> Figure {
        let left = |value: f64| (whole - value).max(0.0);
        Figure { value: left(self.value), low: left(self.high), high: left(self.low) }
    }

    /// Returns half the width of the interval.
    pub fn half(self) -> f64 {
        (self.high - self.low) / 2.0
    }

    fn within(self, low: f64, high: f64) -> Figure {
        Figure { value: self.value.clamp(low, high), low: self.low.clamp(low, high), high: self.high.clamp(low, high) }
    }
}

/// Estimates the ratio of two sums over all segments, of which these are a random sample, by that of the sampled sums. Its variance is the usual one of a
/// ratio under simple random sampling without replacement (Cochran, Sampling Techniques, 6.4), with quantiles of Student's t.
pub fn ratio(pairs: &[(u64, u64)], segments: u64) -> Figure {
    let (part, whole) = pairs.iter().fold((0.0, 0.0), |(part, whole), &(y, x)| (part + y as f64, whole + x as f64));
    if whole == 0.0 {
        return Figure::exact(0.0);
    }
    let value = part / whole;
    let count = pairs.len() as f64;
    if pairs.len() as u64 >= segments {
        return Figure::exact(value);
    }
    if pairs.len() < 2 {
        return Figure { value, low: 0.0, high: f64::MAX };
    }
    let squares: f64 = pairs.iter().map(|&(y, x)| (y as f64 - value * x as f64).powi(2)).sum();
    let variance = (1.0 - count / segments as f64) * squares / (count - 1.0) / count;
    let half = student(count - 1.0) * variance.sqrt() * count / whole;
    Figure { value, low: (value - half).max(0.0), high: value + half }
}

/// Estimates the ratio of a part to its whole. If no segment has any of the part, or none has anything else, the interval is that of the rule of three.
pub fn share(pairs: &[(u64, u64)], segments: u64) -> Figure {
    let figure = ratio(pairs, segments).within(0.0, 1.0);
    if pairs.len() as u64 >= segments || pairs.is_empty() {
        return figure;
    }
    let rare = (3.0 / pairs.len() as f64).min(1.0);
    if figure.value == 0.0 {
        Figure { high: rare, ..figure }
    } else if figure.value == 1.0 {
        Figure { low: 1.0 - rare, ..figure }
    } else {
        figure
    }
}

/// Estimates the amount of `whole` that is such a part; exact if all segments were sampled.
pub fn part(pairs: &[(u64, u64)], segments: u64, whole: u64) -> Figure {
    if pairs.len() as u64 >= segments {
        return Figure::exact(pairs.iter().map(|pair| pair.0).sum::<u64>() as f64);
    }
    share(pairs, segments).times(whole as f64)
}

/// Computes the 97.5 % quantile of Student's t with this number of degrees of freedom (the first terms of Fisher's expansion).
fn student(degrees: f64) -> f64 {
    let z = Z;
    z + (z.powi(3) + z) / (4.0 * degrees) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * degrees.powi(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u64) -> Digest {
        Digest((u128::from(mix(number)) << 64 | u128::from(mix(!number))).to_le_bytes())
    }

    #[test]
    fn a_few_contents_are_counted_exactly_and_many_within_the_interval() {
        let mut outside = 0;
        for round in 0..40u64 {
            let mut distinct = Distinct::new(32 << 10);
            for number in 0..20_000 {
                distinct.add(digest((round << 32) | number));
                distinct.add(digest((round << 32) | (number / 7)));
                if number == 500 {
                    assert_eq!(distinct.figure(), Figure::exact(501.0));
                }
            }
            let figure = distinct.figure();
            assert!(distinct.one_in() >= 16 && figure.half() < 0.35 * figure.value, "{figure:?}");
            outside += u32::from(figure.low > 20_000.0 || figure.high < 20_000.0);
            assert!((figure.value / 20_000.0 - 1.0).abs() < 0.5);
        }
        assert!(outside <= 6, "{outside} of 40 intervals miss");
    }

    #[test]
    fn the_sample_never_grows_beyond_its_memory() {
        let mut distinct = Distinct::new(1 << 20);
        let space = distinct.sample.capacity();
        (0..300_000).for_each(|number| distinct.add(digest(number)));
        assert_eq!(distinct.sample.capacity(), space);
        assert!(space as u64 / 7 * 8 * 17 <= 1 << 20);
    }

    #[test]
    fn intervals_of_ratios_hold_what_they_promise() {
        // 1000 segments with very different shares; samples of 64 at random.
        let all: Vec<(u64, u64)> = (0..1000).map(|i| (mix(i) % 1000 * (mix(i + 7) % 3), 3000)).collect();
        let truth = all.iter().map(|pair| pair.0).sum::<u64>() as f64 / 3e6;
        let mut outside = 0;
        for round in 0..200u64 {
            let mut order: Vec<u64> = (0..1000).collect();
            order.sort_by_key(|&i| mix(i + round * 1000));
            let sample: Vec<_> = order[..64].iter().map(|&i| all[i as usize]).collect();
            let figure = share(&sample, 1000);
            outside += u32::from(figure.low > truth || figure.high < truth);
            assert!(figure.half() < 0.1);
        }
        assert!((1..=25).contains(&outside), "{outside} of 200 intervals miss");
        assert_eq!(share(&all, 1000), Figure::exact(truth));
    }

    #[test]
    fn what_was_not_seen_may_be_there() {
        assert_eq!(share(&[(0, 10); 100], 1000), Figure { value: 0.0, low: 0.0, high: 0.03 });
        assert_eq!(share(&[(10, 10); 100], 1000), Figure { value: 1.0, low: 0.97, high: 1.0 });
        assert_eq!(share(&[(0, 10); 100], 100), Figure::exact(0.0));
    }

    #[test]
    fn quantiles_of_students_t_agree_with_the_tables() {
        for (degrees, quantile) in [(5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (1e9, 1.960)] {
            assert!((student(degrees) - quantile).abs() < 0.03, "{degrees}");
        }
    }

    #[test]
    fn a_choice_fits_and_does_not_prefer_the_beginning() {
        let segments: Vec<_> = (0..4000).map(|number| Segment { number, windows: 1, blocks: 256 }).collect();
        let chosen = choose(&segments, 8 << 20);
        assert!(chosen.len() > 200 && fits(chosen.len() as u64 * 256, chosen.len() as u64, 8 << 20));
        let first_half = chosen.iter().filter(|&&number| number < 2000).count() * 100 / chosen.len();
        assert!((35..=65).contains(&first_half), "{first_half} %");
        assert_eq!(choose(&segments, 8 << 20), chosen);
        assert_eq!(choose(&segments[..5], 8 << 20), [0, 1, 2, 3, 4]);
    }
}
