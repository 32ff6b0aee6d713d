//! Where writes went, so that later ones can have their content, or go there again.

use super::draws::lognormal;
use super::profile::Shape;
use crate::random::Random;

/// Writes that are remembered of each class.
const REMEMBERED: usize = 1 << 16;

/// Classes of sizes by powers of two, up to 256 blocks.
const CLASSES: usize = 9;

/// So many earlier writes are tried for one that is right, before the next class is.
const TRIES: usize = 8;

/// Where a write went, and how large it was.
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
    /// All that were ever put in; the next one goes to this, modulo the ring.
    count: usize,
}

impl Places {
    /// One more write.
    pub(super) fn add(&mut self, place: Place) {
        let ring = &mut self.classes[class(place.blocks)];
        let at = ring.count % REMEMBERED;
        match ring.places.get_mut(at) {
            Some(old) => *old = place,
            None => ring.places.push(place),
        }
        ring.count += 1;
    }

    /// A write of at least so many blocks that `is_right`, as long ago as is drawn; any that is large enough, if none is found to be
    /// right; none if there is none.
    pub(super) fn draw(
        &self,
        shape: &Shape,
        random: &mut Random,
        blocks: u32,
        is_right: impl Fn(Place) -> bool,
    ) -> Option<Place> {
        let mut any = None;
        for ring in &self.classes[class(blocks)..] {
            if ring.places.is_empty() {
                continue;
            }
            for _ in 0..TRIES {
                let back = (lognormal(random, shape.distance) as usize).min(ring.places.len() - 1);
                let place = ring.places[(ring.count - 1 - back) % REMEMBERED];
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
