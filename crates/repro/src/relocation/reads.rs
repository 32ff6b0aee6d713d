//! Reads of each day: files by Zipf's law, several at the same time.
//!
//! Most reads are of whole files, three in ten of a part. A file is read in requests of 8 blocks, up to 4 of them before another stream has its turn. The
//! newest files are read most, for the share of files that the shape gives. From day to day a twentieth of the files changes places in popularity.

use super::population::{Population, Shape};
use sim::random::{Random, mix};

/// Blocks of a request.
const REQUEST: u32 = 8;
/// Requests of a stream before another has its turn.
const TURN: u32 = 4;
/// One file in N changes its popularity rank from day to day.
const CHANGES_ONE_IN: usize = 20;
/// Base of the share of partial reads: 3 in N reads are of a part of a file.
const PARTS_OF: u64 = 10;

/// A read of a part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The file.
    pub file: u32,
    /// Its first block, from the beginning of the file.
    pub first: u32,
    /// Number of blocks.
    pub blocks: u32,
}

/// Makes `count` days of reads.
pub fn days(shape: &Shape, population: &Population, count: usize) -> Vec<Vec<Request>> {
    let mut random = Random::new(mix(shape.seed));
    let mut by_rank: Vec<u32> = (0..population.files() as u32).collect();
    for at in (1..by_rank.len()).rev() {
        by_rank.swap(at, random.below(at as u64 + 1) as usize);
    }
    newest_first(shape, &mut by_rank, &mut random);
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=by_rank.len())
        .map(|rank| {
            sum += libm::pow(rank as f64, -shape.alpha);
            sum
        })
        .collect();
    let wanted = shape.read_mb * 256 / 7 / shape.part;
    (0..count)
        .map(|_| {
            for _ in 0..by_rank.len() / CHANGES_ONE_IN / 2 {
                let one = random.below(by_rank.len() as u64) as usize;
                let other = random.below(by_rank.len() as u64) as usize;
                by_rank.swap(one, other);
            }
            day(shape, population, wanted, &by_rank, &sums, &mut random)
        })
        .collect()
}

/// Sorts the files whose popularity follows their age: they share their random ranks by age.
fn newest_first(shape: &Shape, by_rank: &mut [u32], random: &mut Random) {
    let ranks: Vec<usize> = (0..by_rank.len()).filter(|_| random.below(100) < shape.newest_percent).collect();
    let mut files: Vec<u32> = ranks.iter().map(|&rank| by_rank[rank]).collect();
    files.sort_unstable_by_key(|&file| std::cmp::Reverse(file));
    ranks.into_iter().zip(files).for_each(|(rank, file)| by_rank[rank] = file);
}

fn day(
    shape: &Shape,
    population: &Population,
    wanted: u64,
    by_rank: &[u32],
    sums: &[f64],
    random: &mut Random,
) -> Vec<Request> {
    let draw = |random: &mut Random| {
        let share = random.below(1 << 53) as f64 / (1u64 << 53) as f64;
        let rank = sums.partition_point(|&sum| sum <= share * sums[sums.len() - 1]).min(sums.len() - 1);
        let file = by_rank[rank];
        let length = population.blocks(file).len() as u64;
        let first = if random.below(PARTS_OF) < 3 { random.below(length) } else { 0 };
        let blocks = if first > 0 { random.between(1, length - first) } else { length };
        Request { file, first: first as u32, blocks: blocks as u32 }
    };
    let mut streams: Vec<Request> = (0..shape.streams).map(|_| draw(random)).collect();
    let mut requests = Vec::new();
    let mut read = 0;
    while read < wanted {
        let stream = random.below(streams.len() as u64) as usize;
        for _ in 0..TURN {
            let left = &mut streams[stream];
            let blocks = left.blocks.min(REQUEST);
            requests.push(Request { blocks, ..*left });
            read += u64::from(blocks);
            (left.first, left.blocks) = (left.first + blocks, left.blocks - blocks);
            if left.blocks == 0 {
                streams[stream] = draw(random);
                break;
            }
        }
    }
    requests
}
