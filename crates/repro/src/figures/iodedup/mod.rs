//! Figures and table of I/O Deduplication (FAST 2010, slides).
//!
//! Common setup: made weeks of web-vm, mail and homes, fitted to the published working sets (`io_deduplication/workload.rs`). Web-vm has an eighth of the
//! paper's amounts, memory and time, mail and homes a 32nd; the short form has an eighth of that. All data span a whole drive, so seek distances are the
//! paper's.

pub mod claims;
mod copies;
mod hits;
mod memory;
mod motivation;
mod onefold;
mod replicas;
mod retrieval;
mod table;

use super::Entry;
use super::plot::{Bars, Chart, Line, Scale};
use crate::io_deduplication::image::{Image, before};
use crate::io_deduplication::workload::{Shape, week};
use crate::traces::{BLOCK, Request};
use sim::disks::drive::Drive;

/// All of them, in the order of the slides.
pub const FIGURES: &[Entry] = &[
    motivation::MOTIVATION,
    hits::HITS,
    copies::COPIES,
    retrieval::RETRIEVAL,
    table::TABLE,
    onefold::ONEFOLD,
    replicas::REPLICAS,
    memory::MEMORY,
];

/// Divisor of the sizes in the short form.
const QUICK_PART: u64 = 8;
/// Relative tolerance within which two values count as equal: smaller differences are chance.
const TOLERANCE: f64 = 0.01;
/// Seed of the random numbers.
const SEED: u64 = 1;

/// Returns a shape, or its short form.
fn sized(shape: Shape, quick: bool) -> Shape {
    if quick { shape.shortened(QUICK_PART) } else { shape }
}

/// Returns whether the first value is greater, by more than chance.
fn is_more(value: f64, than: f64) -> bool {
    value > than * (1.0 + TOLERANCE)
}

/// Returns true if the first value is at most the second, within the tolerance.
fn is_at_most(value: f64, than: f64) -> bool {
    value <= than * (1.0 + TOLERANCE)
}

/// Makes the disk before a week, with the slides' static similarity.
fn image(shape: Shape, week: &[Request]) -> Image {
    let stated = claims::static_similarity(shape);
    before(week, shape, Drive::wd1600aajs_like().capacity() / BLOCK, stated, SEED)
}

/// Makes a week of a shape.
fn trace(shape: Shape) -> Vec<Request> {
    trace_of(shape, SEED)
}

/// Makes a week of a shape with another seed.
fn trace_of(shape: Shape, seed: u64) -> Vec<Request> {
    week(shape, Drive::wd1600aajs_like().capacity() / BLOCK, seed)
}
