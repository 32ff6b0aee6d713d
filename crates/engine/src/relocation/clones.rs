//! Clones: objects that consist of the same slots in the same order, such as one file in several volumes that were made of one image.
//!
//! None of them is hurt when another moves, because they move together. As separate objects they would count as others who share: S grows with the
//! number of clones, R of each does not, and the files that most clones read come last. So an assessment takes them as one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Content, Extent, Object, Run};

/// Returns the runs, with those of clones assigned to the first of them. `contents` are in ascending order of objects.
pub fn unite(runs: &[Run], contents: &[Content]) -> Vec<Run> {
    let mut first: BTreeMap<&[Extent], Object> = BTreeMap::new();
    let firsts: Vec<Object> =
        contents.iter().map(|content| *first.entry(&content.extents).or_insert(content.object)).collect();
    let of = |object: Object| contents.binary_search_by_key(&object, |content| content.object);
    runs.iter().map(|&run| Run { object: of(run.object).map_or(run.object, |at| firsts[at]), ..run }).collect()
}
