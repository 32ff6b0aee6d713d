//! Places of earlier writes. Later writes reuse their content or overwrite them.

use super::draws::{chance, lognormal};
use super::profile::Shape;
use sim::random::Random;

/// Writes that are remembered of each class.
const REMEMBERED: usize = 1 << 16;

/// One write in N of a class is remembered for longer.
const FAR_ONE_IN: usize = 8;
/// Number of writes of a class that are remembered for longer: as many as two weeks of mail have.
const FAR_REMEMBERED: usize = 1 << 21;

/// Classes of sizes by powers of two, up to 256 blocks.
const CLASSES: usize = 9;

/// Number of earlier writes that are tried for one that is right, before the next class is.
const TRIES: usize = 8;

/// Place and size of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) block: u64,
    pub(super) blocks: u32,
    /// The number of the write.
    pub(super) write: u32,
}

/// The last writes by size.
#[derive(Default)]
pub(super) struct Places {
    classes: [Ring; CLASSES],
}

#[derive(Default)]
struct Ring {
    places: Vec<Place>,
    /// One in [`FAR_ONE_IN`] of all writes, for draws from long ago.
    far: Vec<Place>,
    /// All that were ever put in; the next one goes to this, modulo the ring.
    count: usize,
}

impl Ring {
    fn add(&mut self, place: Place) {
        put(&mut self.places, self.count % REMEMBERED, place);
        if self.count.is_multiple_of(FAR_ONE_IN) {
            put(&mut self.far, self.count / FAR_ONE_IN % FAR_REMEMBERED, place);
        }
        self.count += 1;
    }
}

fn put(places: &mut Vec<Place>, at: usize, place: Place) {
    match places.get_mut(at) {
        Some(old) => *old = place,
        None => places.push(place),
    }
}

impl Places {
    /// Adds a write.
    pub(super) fn add(&mut self, place: Place) {
        self.classes[class(place.blocks)].add(place);
    }

    /// Draws an earlier write of at least `blocks` blocks that satisfies `is_right`. The draw has a log-normal distance, or, with probability `far`, it is
    /// uniform over the one in eight that are remembered for longer. If none of the tried writes satisfies it, one that is only large enough is returned.
    /// `None` means that none of them is large enough.
    pub(super) fn draw(
        &self,
        shape: &Shape,
        far: f64,
        random: &mut Random,
        blocks: u32,
        is_right: impl Fn(Place) -> bool,
    ) -> Option<Place> {
        let mut any = None;
        let is_far = chance(random, far);
        for ring in &self.classes[class(blocks)..] {
            if ring.places.is_empty() {
                continue;
            }
            for _ in 0..TRIES {
                let place = if is_far {
                    ring.far[random.below(ring.far.len() as u64) as usize]
                } else {
                    let back = (lognormal(random, shape.distance) as usize).min(ring.places.len() - 1);
                    ring.places[(ring.count - 1 - back) % REMEMBERED]
                };
                if place.blocks < blocks {
                    continue;
                }
                if is_right(place) {
                    return Some(place);
                }
                any = any.or(Some(place));
            }
        }
        any
    }
}

fn class(blocks: u32) -> usize {
    (blocks.max(1).ilog2() as usize).min(CLASSES - 1)
}
