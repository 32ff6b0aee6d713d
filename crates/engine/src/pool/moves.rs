//! Limits of all jobs that move blocks (`jobs/mover.rs`): one budget, the allowed target slots, and the number of containers to be emptied.
//!
//! ```text
//! budget      auto: the blocks in the pool at the first count, plus 1.5 blocks for each written one. The superblock keeps the rest of it
//!             for the next server. Or bytes a day; or nothing
//! low water   a quarter of the free slots lies in whole empty containers, or a 16th of all containers is empty, whichever is less; but at
//!             least one container. Below it, garbage collection empties containers (jobs/gc.rs)
//! high water  three times that: emptying continues up to it, if it can, and restarts only below low water
//! HDD         scattered writes are expensive there: high water is 15 of 16 free slots, or three 16ths of all containers, whichever is
//!             less; low water is half of that
//! ```

use super::Pool;
use crate::api::{DefragSetting, Nanos};
use crate::format::entry::Slot;
use crate::format::superblock::ALLOWANCE_PARTS;
use crate::mutant::Mutant;

/// Number of blocks that are moved together.
pub(crate) const MOVED_AT_ONCE: usize = 256;
/// Number of blocks that the pool may move by default for two written ones.
const MOVED_FOR_TWO: u64 = 3;
const DAY: Nanos = 86_400_000_000_000;
/// Divisor of the free slots: below low water, less than one in N of them lies in empty containers.
const FREE_IN_EMPTY: u64 = 4;
/// Divisor of the containers: below low water, less than one in N of them is empty.
const EMPTY_OF_ALL: u64 = 16;
/// Ratio of high water to low water.
const HIGH_WATER: u64 = 3;
/// Number of parts of the free slots on an HDD.
const ALL: u64 = 16;
/// Number of these parts that lie in empty containers at high water.
const ALL_BUT_ONE: u64 = ALL - 1;

/// Counts of the blocks that jobs have moved.
#[derive(Default)]
pub(crate) struct Moves {
    /// Initial allowance of blocks to move when the pool was opened.
    at_open: Option<u64>,
    moved: u64,
    /// Number of blocks that got another slot, inside or outside the budget.
    placed: u64,
    /// Day, and number of blocks moved on it.
    moved_on: (u64, u64),
}

impl Pool {
    /// Sets the allowance when the pool begins to serve. It is the one that the last server left, or else the number of blocks in the pool.
    pub(crate) fn note_what_may_move(&mut self) {
        let at_open = match u64::from(self.durable.superblock.allowance).checked_sub(1) {
            Some(parts) => parts * self.allowance_part(),
            None => self.durable.space.data_used(),
        };
        self.hints.moves.at_open.get_or_insert(at_open);
    }

    /// Returns the number of blocks in one unit of the superblock's allowance.
    fn allowance_part(&self) -> u64 {
        self.metadata.geometry().slots().div_ceil(ALLOWANCE_PARTS)
    }

    /// Returns the rest of the allowance, for the superblock: at most about four times the pool's slots.
    pub(crate) fn allowance_to_keep(&self) -> u8 {
        match self.hints.moves.at_open {
            Some(_) => (self.allowance() / self.allowance_part() + 1).min(u8::MAX.into()) as u8,
            None => self.durable.superblock.allowance,
        }
    }

    /// Returns the number of blocks that may be moved, by the allowance at opening and the blocks written since.
    fn allowance(&self) -> u64 {
        let written = self.stats.writes.written_blocks / 2 * MOVED_FOR_TWO;
        (self.hints.moves.at_open.unwrap_or(self.durable.space.data_used()) + written)
            .saturating_sub(self.hints.moves.moved)
    }

    /// Returns the number of blocks that may be moved now, by the setting for defragmentation.
    pub(crate) fn may_move(&self) -> u64 {
        match self.properties.defrag() {
            DefragSetting::Off => 0,
            DefragSetting::Auto => self.allowance(),
            DefragSetting::PerDay(bytes) => {
                let (day, moved) = self.hints.moves.moved_on;
                let moved = if day == self.state.now() / DAY { moved } else { 0 };
                (bytes / self.metadata.geometry().block()).saturating_sub(moved)
            }
        }
    }

    /// Returns the number of blocks to which jobs have given another slot since the pool was opened.
    pub(crate) fn placed_blocks(&self) -> u64 {
        self.hints.moves.placed
    }

    /// Counts a block to which a job has given another slot.
    pub(crate) fn note_placed(&mut self) {
        self.hints.moves.placed += 1;
    }

    /// Counts a moved block, for the budget and for the day.
    pub(crate) fn count_moved(&mut self) {
        let today = self.state.now() / DAY;
        self.hints.moves.moved += 1;
        if self.hints.moves.moved_on.0 != today {
            self.hints.moves.moved_on = (today, 0);
        }
        self.hints.moves.moved_on.1 += 1;
    }

    /// Returns true if a block may be moved to a slot that the space map shows free.
    pub(crate) fn may_move_to(&self, slot: Slot) -> bool {
        let is_free = self.durable.space.contains(slot) && !self.durable.space.is_taken(slot);
        let is_evacuating = is_free && self.durable.space.is_evacuating(self.durable.space.container_of(slot));
        self.durable.space.may_claim(slot)
            || is_free && !is_evacuating && self.mutant(Mutant::MoveIntoOpen)
            || is_evacuating && self.mutant(Mutant::MoveIntoEvacuating)
    }

    /// Returns true if enough slots are free for a batch to take some before its old ones are free.
    pub(crate) fn has_slots_to_move(&self) -> bool {
        let geometry = self.metadata.geometry();
        self.durable.space.free() >= (geometry.spare_slots() / 2 + MOVED_AT_ONCE as u64).min(geometry.slots() / 8)
    }

    /// Returns true if blocks may be moved now for the sake of order. Regions stay noted while they may not: a shortage of slots ends.
    pub(crate) fn may_move_for_order(&self) -> bool {
        self.may_be_reordered() && self.may_move() > 0 && self.has_slots_to_move()
    }

    /// Returns true if enough slots are free that a job can claim a whole container.
    pub(crate) fn has_slots_to_claim(&self) -> bool {
        let geometry = self.metadata.geometry();
        let container = u64::from(geometry.slots_per_container);
        self.has_slots_to_move() && self.durable.space.free() >= (geometry.slots() / 16).max(2 * container)
    }

    /// Returns the figures that decide how many containers must be empty.
    #[inline]
    fn water(&self) -> Water {
        let geometry = self.metadata.geometry();
        Water {
            is_rotational: self.device().is_rotational,
            free: self.durable.space.free(),
            containers: geometry.containers.into(),
            per_container: geometry.slots_per_container.into(),
        }
    }

    /// Returns the number of empty containers at which emptying ends: see the module header.
    pub(crate) fn high_water(&self) -> u64 {
        self.water().high()
    }

    /// Returns true if so few containers are empty that others must be emptied. Every pump asks this.
    #[inline]
    pub(crate) fn is_below_low_water(&self, empty: u64) -> bool {
        self.water().is_low(empty)
    }

    /// Returns true if blocks may be written for the sake of order alone: the pool takes changes, and neither metadata nor the host is full.
    pub(crate) fn may_be_reordered(&self) -> bool {
        self.takes_changes() && !self.state.untouched() && !self.state.metadata_full() && !self.state.host_full()
    }
}

/// Figures for low and high water: see [`Pool::water`].
#[derive(Clone, Copy)]
struct Water {
    is_rotational: bool,
    free: u64,
    containers: u64,
    per_container: u64,
}

impl Water {
    fn low(&self) -> u64 {
        if self.is_rotational {
            return self.high().div_ceil(2);
        }
        (self.free / (FREE_IN_EMPTY * self.per_container)).min(self.containers / EMPTY_OF_ALL).max(1)
    }

    fn high(&self) -> u64 {
        if self.is_rotational {
            let of_free = (ALL_BUT_ONE * self.free).div_ceil(ALL * self.per_container);
            return of_free.min(HIGH_WATER * self.containers / EMPTY_OF_ALL).max(1);
        }
        HIGH_WATER * self.low()
    }

    /// Returns true if `empty` is less than [`Water::low`], without a division.
    #[inline]
    fn is_low(&self, empty: u64) -> bool {
        if empty == 0 {
            return true;
        }
        if self.is_rotational {
            return 2 * empty * ALL * self.per_container < ALL_BUT_ONE * self.free
                && (2 * empty + 1) * EMPTY_OF_ALL <= HIGH_WATER * self.containers;
        }
        (empty + 1) * EMPTY_OF_ALL <= self.containers && (empty + 1) * FREE_IN_EMPTY * self.per_container <= self.free
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn low_water_is_the_same_without_a_partition(
            is_rotational: bool,
            containers in 1..5000u64,
            per_container in 4..2048u64,
            permille in 0..=1000u64,
        ) {
            let free = containers * per_container * permille / 1000;
            let water = Water { is_rotational, free, containers, per_container };
            prop_assert!(1 <= water.low() && water.low() <= water.high());
            for empty in 0..=free / per_container {
                prop_assert_eq!(water.is_low(empty), empty < water.low());
            }
        }
    }
}
