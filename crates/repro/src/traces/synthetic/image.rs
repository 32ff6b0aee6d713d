//! Initial disk image of a trace: a function of profile, seed and block. An extent of 16 blocks is zero, has copies elsewhere, or is unique. For web-vm the
//! second machine is mostly like the first.

use super::profile::{Image, Profile};
use crate::traces::record::content;
use crate::traces::{ContentId, ZEROES};
use sim::random::mix;

/// Blocks that are the same together.
const EXTENT: u64 = 16;

/// Copies that an extent has, on average, if it has any.
const COPIES: f64 = 4.0;

/// First number of the unique extents, above those of the extents with copies.
const ALONE: u64 = 1 << 40;

/// Returns the content that a block had before day 1.
pub fn initial(profile: Profile, seed: u64, block: u64) -> ContentId {
    match extent(&profile.shape().image, seed, block / EXTENT) {
        None => ZEROES,
        Some(extent) => content(mix(mix(seed ^ extent)) ^ (block % EXTENT)),
    }
}

/// Returns the extent of contents that an extent of blocks has; none if it is of zeroes.
fn extent(image: &Image, seed: u64, at: u64) -> Option<u64> {
    let half = image.pages / EXTENT / 2;
    let is_like_first = |at: u64| at >= half && share(mix(seed ^ mix(!at))) < image.twin;
    let at = if image.twin > 0.0 && is_like_first(at) { at - half } else { at };
    let drawn = mix(seed.wrapping_add(mix(at)));
    match share(drawn) {
        kind if kind < image.zero => None,
        kind if kind < image.zero + image.shared => Some(mix(drawn) % several(image)),
        _ => Some(ALONE + at),
    }
}

/// Returns the number of extents of contents that have copies.
fn several(image: &Image) -> u64 {
    // A machine that is like another one has no additional copies of its own.
    let pages = if image.twin > 0.0 { image.pages / 2 } else { image.pages };
    ((image.shared * (pages / EXTENT) as f64 / COPIES) as u64).max(1)
}

/// Converts a number to a share of 1.
fn share(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns the pages by distinct contents, of the whole disk.
pub fn similarity(profile: Profile, seed: u64) -> f64 {
    let image = &profile.shape().image;
    let extents = image.pages / EXTENT;
    let mut seen = vec![false; several(image) as usize];
    let mut alone = vec![false; extents as usize];
    let mut has_zeroes = 0;
    for at in 0..extents {
        match extent(image, seed, at) {
            None => has_zeroes = 1,
            Some(extent) if extent >= ALONE => alone[(extent - ALONE) as usize] = true,
            Some(extent) => seen[extent as usize] = true,
        }
    }
    let distinct = seen.iter().chain(&alone).filter(|&&is| is).count() as u64 * EXTENT + has_zeroes;
    (extents * EXTENT) as f64 / distinct as f64
}
