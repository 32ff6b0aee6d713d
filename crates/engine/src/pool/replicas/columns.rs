//! Copies of popular blocks in scratch zones: a table with one entry for the copies in all zones, which saves memory ("I/O Deduplication";
//! REFERENCE 1.6).
//!
//! ```text
//! row       one container in each zone that is kept for copies (space/zones.rs)
//! column    the same offset in each container of a row: the copies of one block, one in each zone
//! ```
//!
//! So an entry is the slot of the block, and a flag for each zone. This module owns rows and columns. The job chooses the popular blocks and
//! the time to write copies (`jobs/replicate/duplicate.rs`).
//!
//! What must hold: a slot has at most one column. The table refers to a copy only from the time when the copy is durable until it is dropped.
//! The owner takes dropped copies out of the map of replicas.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use hashbrown::HashTable;

use crate::format::entry::Slot;
use crate::locality_map::{NearMap, near_hash};
use crate::sizes::{list_bytes, table_bytes};
use crate::space::zones::ZONES;

/// Value for no container, or no block.
const NO_CONTAINER: u32 = u32::MAX;
const NO_SLOT: Slot = Slot(u64::MAX);
/// Flag beside those of the zones: a copy was read since the block got its column, or since its last turn for eviction.
const WAS_READ: u16 = 1 << 15;
/// Flag beside those of the zones: the block is in the latest choice.
const IS_CHOSEN: u16 = 1 << 14;
/// Flags of all zones.
pub(crate) const ALL_ZONES: u16 = (1 << ZONES) - 1;

/// Containers of a row, by zone.
type Row = [u32; ZONES as usize];

/// Table of blocks with copies, and of the places of the copies.
#[derive(Default)]
pub(crate) struct Columns {
    /// Number of slots of a container.
    width: u32,
    rows: Vec<Row>,
    /// Row of each container.
    row_of: NearMap<u64, u32>,
    /// Slot whose copies a column has, and flags, by column.
    owners: Vec<Slot>,
    flags: Vec<u16>,
    by_owner: HashTable<u32>,
    /// Known columns without an owner; the next one to be assigned is the last. Released columns come first, because their places are not free at once.
    free: VecDeque<u32>,
    /// Column that has the next turn for eviction.
    hand: u32,
    copies: u64,
}

impl Columns {
    /// Sets the number of slots of a container.
    pub(super) fn set_width(&mut self, width: u32) {
        self.width = width;
    }

    /// Returns the number of slots of a container.
    pub(super) fn width(&self) -> u32 {
        self.width
    }

    /// Returns the number of blocks that have a column.
    pub(crate) fn len(&self) -> u64 {
        self.by_owner.len() as u64
    }

    /// Returns the number of columns of all rows, with and without an owner.
    pub(crate) fn width_of_all(&self) -> u64 {
        self.owners.len() as u64
    }

    /// Returns the number of copies of all blocks.
    pub(crate) fn copies(&self) -> u64 {
        self.copies
    }

    /// Returns the number of blocks with a copy in each zone.
    pub(crate) fn complete(&self) -> u64 {
        self.flags.iter().filter(|&&flags| flags & ALL_ZONES == ALL_ZONES).count() as u64
    }

    /// Returns the column of a block.
    pub(crate) fn of(&self, slot: Slot) -> Option<u32> {
        let owners = &self.owners;
        self.by_owner.find(near_hash(slot.0), |&column| owners[column as usize] == slot).copied()
    }

    /// Returns the slot of the block whose copies a column holds; `None` if the column is free or does not exist.
    pub(crate) fn owner(&self, column: u32) -> Option<Slot> {
        self.owners.get(column as usize).copied().filter(|&owner| owner != NO_SLOT)
    }

    /// Returns the row of a column.
    pub(crate) fn row(&self, column: u32) -> u32 {
        column / self.width.max(1)
    }

    /// Returns the place of the copy of a column in a zone, used or not; `None`: the row has no container there.
    pub(crate) fn place(&self, column: u32, zone: u32) -> Option<Slot> {
        let container = *self.rows.get(self.row(column) as usize)?.get(zone as usize)?;
        let offset = column % self.width;
        (container != NO_CONTAINER).then(|| Slot(u64::from(container) * u64::from(self.width) + u64::from(offset)))
    }

    /// Returns true if a column has a copy in a zone.
    pub(crate) fn has(&self, column: u32, zone: u32) -> bool {
        self.flags.get(column as usize).is_some_and(|flags| flags & (1 << zone) > 0)
    }

    /// Returns the zones and places of a block's copies.
    pub(crate) fn copies_of(&self, slot: Slot) -> impl Iterator<Item = (u32, Slot)> + '_ {
        let column = self.of(slot);
        let zones = (0..ZONES).filter_map(move |zone| Some((zone, column.filter(|&column| self.has(column, zone))?)));
        zones.filter_map(|(zone, column)| Some((zone, self.place(column, zone)?)))
    }

    /// Returns true if a container belongs to a row.
    pub(crate) fn has_container(&self, container: u32) -> bool {
        self.row_of.contains_key(&u64::from(container))
    }

    /// Adds a row of these containers; some zones may have none.
    pub(crate) fn add_row(&mut self, containers: [Option<u32>; ZONES as usize]) {
        let row = self.rows.len() as u32;
        let first = self.owners.len() as u32;
        self.rows.push(containers.map(|container| container.unwrap_or(NO_CONTAINER)));
        containers.into_iter().flatten().for_each(|container| {
            self.row_of.insert(container.into(), row);
        });
        self.owners.reserve_exact(self.width as usize);
        self.flags.reserve_exact(self.width as usize);
        self.owners.extend((0..self.width).map(|_| NO_SLOT));
        self.flags.extend((0..self.width).map(|_| 0));
        // The lowest columns are taken first, so that runs of blocks lie together.
        (first..first + self.width).for_each(|column| self.free.push_front(column));
    }

    /// Returns true if a column is the first of a row that has no container in a zone.
    pub(crate) fn begins_row_without(&self, column: u32, zone: u32) -> bool {
        column.is_multiple_of(self.width.max(1)) && self.place(column, zone).is_none()
    }

    /// Adds a container to the row of a column, which has none in this zone.
    pub(crate) fn complete_row(&mut self, column: u32, zone: u32, container: u32) {
        let row = self.row(column);
        let Some(place) = self.rows.get_mut(row as usize).map(|row| &mut row[zone as usize]) else { return };
        debug_assert!(*place == NO_CONTAINER);
        *place = container;
        self.row_of.insert(container.into(), row);
    }

    /// Collects the columns without an owner, to be assigned in order. Callers do this before they assign the first one.
    pub(crate) fn find_free(&mut self) {
        self.free.clear();
        self.free.extend((0..self.owners.len() as u32).rev().filter(|&column| self.owners[column as usize] == NO_SLOT));
    }

    /// Returns true if there is a column for one more block.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Chooses these blocks, in place of the earlier choice.
    pub(crate) fn choose_anew(&mut self, slots: impl Iterator<Item = Slot>) {
        self.flags.iter_mut().for_each(|flags| *flags &= !IS_CHOSEN);
        for slot in slots {
            if let Some(column) = self.of(slot) {
                self.flags[column as usize] |= IS_CHOSEN;
            }
        }
    }

    /// Assigns a free column to a chosen block without one; `None` if none is free.
    pub(crate) fn assign(&mut self, slot: Slot) -> Option<u32> {
        let column = self.free.pop_back()?;
        self.own(column, slot);
        self.flags[column as usize] = IS_CHOSEN;
        Some(column)
    }

    fn own(&mut self, column: u32, slot: Slot) {
        self.owners[column as usize] = slot;
        self.flags[column as usize] = 0;
        let owners = &self.owners;
        self.by_owner.insert_unique(near_hash(slot.0), column, |&column| near_hash(owners[column as usize].0));
    }

    /// Adds a copy in a zone to a column.
    pub(crate) fn add(&mut self, column: u32, zone: u32) {
        self.copies += u64::from(!self.has(column, zone));
        self.flags[column as usize] |= 1 << zone;
    }

    /// Adopts a copy from the map of an earlier run. Returns true if it is in the place of its column. Callers ask zone by zone.
    pub(crate) fn adopt(&mut self, slot: Slot, zone: u32, at: Slot, most: u64) -> bool {
        let container = (at.0 / u64::from(self.width)) as u32;
        let offset = (at.0 % u64::from(self.width)) as u32;
        let known = self.of(slot);
        if !self.has_container(container) {
            let row = known.filter(|&column| column % self.width == offset).map(|column| self.row(column));
            match row.filter(|&row| self.rows[row as usize][zone as usize] == NO_CONTAINER) {
                Some(row) => self.complete_row(row * self.width, zone, container),
                // A row is found by its first zone. If another zone has the row's first copy, the row must be unambiguous.
                None if known.is_none() && self.rows.iter().all(|row| row[zone as usize] != NO_CONTAINER) => {
                    if self.width_of_all() >= most {
                        return false;
                    }
                    let mut row = [None; ZONES as usize];
                    row[zone as usize] = Some(container);
                    self.add_row(row);
                }
                None => return false,
            }
        }
        let column = self.row_of[&u64::from(container)] * self.width + offset;
        let is_of_it = match (known, self.owner(column)) {
            (Some(known), _) => known == column,
            (None, Some(_)) => false,
            (None, None) if self.len() < most => {
                self.own(column, slot);
                true
            }
            (None, None) => false,
        };
        let is_its = is_of_it && self.place(column, zone) == Some(at);
        if is_its {
            self.add(column, zone);
        }
        is_its
    }

    /// Sets the flag of a block's column which says that a copy was read.
    pub(crate) fn mark_read(&mut self, slot: Slot) {
        if let Some(column) = self.of(slot) {
            self.flags[column as usize] |= WAS_READ;
        }
    }

    /// Drops the copy of a block in a zone. Returns true if there was one.
    pub(crate) fn remove_one(&mut self, slot: Slot, zone: u32) -> bool {
        let Some(column) = self.of(slot).filter(|&column| self.has(column, zone)) else { return false };
        self.flags[column as usize] &= !(1 << zone);
        self.copies -= 1;
        true
    }

    /// Takes the column from a block, and returns the zones in which it had copies.
    pub(crate) fn remove(&mut self, slot: Slot) -> u16 {
        self.of(slot).map_or(0, |column| self.release(column))
    }

    fn release(&mut self, column: u32) -> u16 {
        let owners = &self.owners;
        let hash = near_hash(owners[column as usize].0);
        if let Ok(found) = self.by_owner.find_entry(hash, |&found| found == column) {
            found.remove();
        }
        self.owners[column as usize] = NO_SLOT;
        self.free.push_front(column);
        let zones = core::mem::take(&mut self.flags[column as usize]) & ALL_ZONES;
        self.copies -= u64::from(zones.count_ones());
        zones
    }

    /// Takes the column of a block that is not chosen and whose copies were not read, within `turns` turns. Returns the slot, and the zones in which it had
    /// copies.
    pub(crate) fn evict(&mut self, turns: &mut u64) -> Option<(Slot, u16)> {
        self.evict_but(IS_CHOSEN, turns)
    }

    /// Takes the column of a block without any of the flags `kept`, and whose copies were not read. A block with a read copy stays this time.
    fn evict_but(&mut self, kept: u16, turns: &mut u64) -> Option<(Slot, u16)> {
        while *turns > 0 && self.len() > 0 {
            *turns -= 1;
            let column = if self.hand < self.owners.len() as u32 { self.hand } else { 0 };
            self.hand = column + 1;
            let flags = &mut self.flags[column as usize];
            if *flags & kept > 0 {
                continue;
            }
            if *flags & WAS_READ > 0 {
                *flags &= !WAS_READ;
            } else if let Some(owner) = self.owner(column) {
                return Some((owner, self.release(column)));
            }
        }
        None
    }

    /// Takes the column from a block beyond `most`: first those of rows that are given up, then in turn. Returns the slot, and the zones in which it had
    /// copies; `None`: there are no more.
    pub(crate) fn shrink(&mut self, most: u64) -> Option<(Slot, u16)> {
        let rows = most.div_ceil(u64::from(self.width.max(1)));
        while (self.rows.len() as u64) > rows {
            let first = (self.rows.len() as u32 - 1) * self.width;
            let mut owned = (first..self.owners.len() as u32).rev();
            if let Some((column, owner)) = owned.find_map(|column| Some((column, self.owner(column)?))) {
                return Some((owner, self.release(column)));
            }
            self.owners.truncate(first as usize);
            self.flags.truncate(first as usize);
            self.free.retain(|&column| column < first);
            let row = self.rows.pop().into_iter().flatten();
            row.for_each(|container| {
                self.row_of.remove(&u64::from(container));
            });
            if self.rows.len() as u64 == rows {
                self.fit();
            }
        }
        let mut turns = 2 * self.width_of_all();
        if self.len() > most { self.evict_but(0, &mut turns) } else { None }
    }

    /// Gives unused memory back.
    fn fit(&mut self) {
        self.owners.shrink_to_fit();
        self.flags.shrink_to_fit();
        self.free.shrink_to_fit();
        self.rows.shrink_to_fit();
        self.row_of.shrink_to_fit();
        let owners = &self.owners;
        self.by_owner.shrink_to_fit(|&column| near_hash(owners[column as usize].0));
    }

    /// Returns the bytes of memory of rows, columns and tables.
    pub(super) fn memory(&self) -> u64 {
        list_bytes(&self.rows)
            + table_bytes(&self.row_of)
            + list_bytes(&self.owners)
            + list_bytes(&self.flags)
            + self.by_owner.allocation_size() as u64
            + self.free.capacity() as u64 * 4
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::{BTreeMap, BTreeSet};
    use proptest::prelude::*;

    use super::*;

    const WIDTH: u32 = 4;

    /// Makes a row of containers, one in each zone, with numbers that end in `row`.
    fn row(row: u32) -> [Option<u32>; ZONES as usize] {
        core::array::from_fn(|zone| Some(zone as u32 * 100 + row))
    }

    fn columns(rows: u32) -> Columns {
        let mut columns = Columns::default();
        columns.set_width(WIDTH);
        (0..rows).for_each(|at| columns.add_row(row(at)));
        columns
    }

    /// Expected copies: by slot, the zones with one.
    type Model = BTreeMap<u64, BTreeSet<u32>>;

    fn compare(columns: &Columns, model: &Model) {
        let mut places = BTreeSet::new();
        for (&slot, zones) in model {
            let found: Vec<(u32, Slot)> = columns.copies_of(Slot(slot)).collect();
            assert_eq!(found.iter().map(|&(zone, _)| zone).collect::<BTreeSet<_>>(), *zones, "slot {slot}");
            for (zone, at) in found {
                assert_eq!(at.0 / u64::from(WIDTH) / 100, u64::from(zone), "in its zone");
                assert!(places.insert(at), "two copies at {at:?}");
            }
        }
        assert_eq!(columns.len(), model.len() as u64);
        assert_eq!(columns.copies(), places.len() as u64);
    }

    proptest! {
        /// Compares columns with a map of sets, while they are given, filled, emptied and taken away, and after a restart.
        #[test]
        fn copies_are_where_a_map_of_sets_says(steps in proptest::collection::vec((0u8..7, 0u64..24, 0..ZONES), 0..200)) {
            let (mut columns, mut model) = (columns(1), Model::new());
            // The second row has no container in odd zones.
            columns.add_row(core::array::from_fn(|zone| row(1)[zone].filter(|_| zone % 2 == 0)));
            for (step, slot, zone) in steps {
                let known = columns.of(Slot(slot));
                prop_assert_eq!(known.is_some(), model.contains_key(&slot));
                match (step, known) {
                    (0 | 1, None) if columns.has_free() => {
                        columns.assign(Slot(slot)).unwrap();
                        model.insert(slot, BTreeSet::new());
                    }
                    (0..=2, Some(column)) if columns.place(column, zone).is_some() => {
                        columns.add(column, zone);
                        model.get_mut(&slot).unwrap().insert(zone);
                    }
                    (3, _) => {
                        let had = model.get_mut(&slot).is_some_and(|zones| zones.remove(&zone));
                        prop_assert_eq!(columns.remove_one(Slot(slot), zone), had);
                    }
                    (4, _) => {
                        let had = model.remove(&slot).unwrap_or_default();
                        prop_assert_eq!(columns.remove(Slot(slot)), had.iter().map(|zone| 1u16 << zone).sum::<u16>());
                    }
                    (5, _) => {
                        columns.choose_anew([Slot(slot)].into_iter());
                        columns.mark_read(Slot(slot + 1));
                        let mut turns = columns.width_of_all();
                        if let Some((gone, zones)) = columns.evict(&mut turns) {
                            prop_assert!(gone != Slot(slot) && gone != Slot(slot + 1));
                            let had = model.remove(&gone.0).unwrap();
                            prop_assert_eq!(zones, had.iter().map(|zone| 1u16 << zone).sum::<u16>());
                        }
                    }
                    (6, _) if columns.begins_row_without(WIDTH, zone) => {
                        columns.complete_row(WIDTH + slot as u32 % WIDTH, zone, row(1)[zone as usize].unwrap());
                    }
                    _ => {}
                }
                compare(&columns, &model);
            }
            let mut again = super::tests::columns(0);
            let mut found = Model::new();
            for zone in 0..ZONES {
                for (&slot, _) in model.iter().filter(|(_, zones)| zones.contains(&zone)) {
                    let at = columns.place(columns.of(Slot(slot)).unwrap(), zone).unwrap();
                    if again.adopt(Slot(slot), zone, at, 2 * u64::from(WIDTH)) {
                        found.entry(slot).or_default().insert(zone);
                    }
                }
            }
            compare(&again, &found);
            if model.values().all(|zones| zones.contains(&0)) {
                prop_assert_eq!(&found, &model, "all of a block whose first zone has a copy");
            }
            while let Some((gone, _)) = columns.shrink(3) {
                prop_assert!(model.remove(&gone.0).is_some());
            }
            compare(&columns, &model);
            prop_assert!(columns.len() <= 3 && columns.width_of_all() <= u64::from(WIDTH));
        }
    }
}
