//! Forecast of a plan: the device reads of a profile before and after it, object by object.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::plan::Plan;
use super::{Extent, Object, Run};

/// Places of slots after a plan.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// Extents at their places before the plan, in ascending order, and the slots at which they begin now.
    places: Vec<(Extent, u64)>,
}

impl Moved {
    /// Computes the places after the moves of a plan, one after another from the slot `first` on.
    pub fn new(plan: &Plan, first: u64) -> Moved {
        let mut at = first;
        let mut places = Vec::new();
        for extent in plan.moves.iter().flat_map(|one| &one.extents) {
            places.push((*extent, at));
            at += extent.blocks;
        }
        places.sort_unstable();
        Moved { places }
    }

    /// Returns the place of a slot, and the number of slots from there on that lie behind it as they did before.
    pub fn of(&self, slot: u64) -> (u64, u64) {
        let next = self.places.partition_point(|(extent, _)| extent.slot <= slot);
        let until_next = self.places.get(next).map_or(u64::MAX, |(extent, _)| extent.slot) - slot;
        match next.checked_sub(1).map(|at| self.places[at]) {
            Some((extent, place)) if slot < extent.end() => (place + (slot - extent.slot), extent.end() - slot),
            _ => (slot, until_next),
        }
    }
}

/// Device reads of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    /// Reads before the plan.
    pub before: u64,
    /// Reads after the plan.
    pub after: u64,
}

/// Reads to be expected, if everything that was read once is read again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Forecast {
    /// Reads by object, in ascending order.
    pub objects: Vec<(Object, Reads)>,
}

impl Forecast {
    /// Counts the reads of a profile, before and after the moves.
    pub fn new(runs: &[Run], moved: &Moved) -> Forecast {
        // Reads so far, and the end of the last one: before and after.
        let mut objects: BTreeMap<Object, (Reads, u64, u64)> = BTreeMap::new();
        for run in runs {
            let (reads, before, after) = objects.entry(run.object).or_insert((Reads::default(), u64::MAX, u64::MAX));
            reads.before += u64::from(*before != run.slot);
            *before = run.end();
            let mut slot = run.slot;
            while slot < run.end() {
                let (place, together) = moved.of(slot);
                let blocks = together.min(run.end() - slot);
                reads.after += u64::from(*after != place);
                *after = place + blocks;
                slot += blocks;
            }
        }
        Forecast { objects: objects.into_iter().map(|(object, (reads, ..))| (object, reads)).collect() }
    }

    /// Returns the sum of the reads of all objects.
    pub fn all(&self) -> Reads {
        let add = |sum: Reads, (_, one): &(Object, Reads)| Reads {
            before: sum.before + one.before,
            after: sum.after + one.after,
        };
        self.objects.iter().fold(Reads::default(), add)
    }

    /// Returns the additional reads of the objects that need more than before.
    pub fn harm(&self) -> u64 {
        self.objects.iter().map(|(_, reads)| reads.after.saturating_sub(reads.before)).sum()
    }
}
