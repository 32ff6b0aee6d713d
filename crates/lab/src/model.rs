//! The oracle: what every block of every volume may legally contain, now and after a crash.
//!
//! Owns one [`Block`] per block and volume, the requests in flight that concern it, and the durability floor: the moment
//! at which the newest completed flush was submitted. It knows nothing of slots, journals or sharing.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use engine::{Extent, Policy, VolumeId};

use crate::block::{Block, MOST_CHANGES, Moment};
use crate::content::{CELLS, Cells, ZERO};
use crate::{Checked, violated};

/// A volume as the model sees it.
#[derive(Clone, Debug)]
pub struct ModelVolume {
    /// Its name.
    pub name: String,
    /// Blocks.
    pub size_blocks: u64,
    /// Its policy.
    pub policy: Policy,
    /// Its number, once the engine has listed it.
    pub id: Option<VolumeId>,
    /// Whether its creation was answered: it must exist from then on.
    is_certain: bool,
    blocks: Vec<Rc<Block>>,
}

/// A volume as the engine lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// Its number.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Blocks.
    pub size_blocks: u64,
    /// Its policy.
    pub policy: Policy,
}

/// A run of cells of one volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Index of the volume in the model.
    pub volume: usize,
    /// First cell.
    pub first: u64,
    /// Number of cells.
    pub count: u64,
}

/// The part of a [`Range`] that lies in one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Block of the volume.
    pub block: u64,
    /// First cell within the block.
    pub from: usize,
    /// One past the last cell within the block.
    pub to: usize,
}

impl Part {
    /// A bit for each cell.
    pub fn mask(&self) -> u8 {
        (((1u16 << self.to) - 1) & !((1u16 << self.from) - 1)) as u8
    }

    /// Whether it is the whole block.
    pub fn is_whole(&self) -> bool {
        self.to - self.from == CELLS
    }
}

impl Range {
    /// The blocks that it touches, in order.
    pub fn parts(self) -> impl Iterator<Item = Part> {
        let cells = CELLS as u64;
        let end = self.first + self.count;
        (self.first / cells..end.div_ceil(cells)).map(move |block| Part {
            block,
            from: self.first.saturating_sub(block * cells) as usize,
            to: (end - block * cells).min(cells) as usize,
        })
    }

    /// Whether it begins and ends between blocks.
    pub fn is_aligned(self) -> bool {
        self.first.is_multiple_of(CELLS as u64) && self.count.is_multiple_of(CELLS as u64)
    }
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Change(Range),
    Observation { range: Range, since: Moment },
    Flush { since: Moment },
}

/// The model. Cloning is cheap: blocks are shared until they change.
#[derive(Clone, Debug, Default)]
pub struct Model {
    volumes: Vec<ModelVolume>,
    requests: BTreeMap<u64, Request>,
    now: Moment,
    floor: Moment,
}

impl Model {
    /// The volumes, those whose creation is in flight last.
    pub fn volumes(&self) -> &[ModelVolume] {
        &self.volumes
    }

    /// A volume's creation is submitted.
    pub fn begin_create(&mut self, name: &str, size_blocks: u64, policy: Policy) {
        let block = Rc::new(Block::new(ZERO));
        let blocks = (0..size_blocks).map(|_| block.clone()).collect();
        self.volumes.push(ModelVolume {
            name: name.to_string(),
            size_blocks,
            policy,
            id: None,
            is_certain: false,
            blocks,
        });
    }

    /// A volume's creation is answered.
    pub fn end_create(&mut self, name: &str, succeeded: bool) {
        let index = self.volumes.iter().position(|volume| volume.name == name).expect("it is being created");
        if succeeded {
            self.volumes[index].is_certain = true;
        } else {
            self.volumes.remove(index);
        }
    }

    /// Compares with the engine's list when no creation is in flight (after an answer, or after opening).
    pub fn reconcile(&mut self, listed: &[Listing]) -> Checked {
        let exists = |name: &str| listed.iter().find(|volume| volume.name == name);
        self.volumes.retain(|volume| volume.is_certain || exists(&volume.name).is_some());
        for volume in &mut self.volumes {
            let Some(found) = exists(&volume.name) else {
                return violated(format!("volume {} is gone, its creation was answered", volume.name));
            };
            let same_id = volume.id.is_none_or(|id| id == found.id);
            if !same_id || found.size_blocks != volume.size_blocks || found.policy != volume.policy {
                return violated(format!("volume {} has become {found:?}", volume.name));
            }
            volume.id = Some(found.id);
            volume.is_certain = true;
        }
        if listed.len() != self.volumes.len() {
            return violated(format!("there are volumes that nobody created: {listed:?}"));
        }
        let ids: BTreeSet<_> = listed.iter().map(|volume| volume.id).collect();
        if ids.len() != listed.len() {
            return violated(format!("volumes share a number: {listed:?}"));
        }
        Ok(())
    }

    /// Whether a change of the range would exceed what the oracle can follow: wait for an answer.
    pub fn is_crowded(&self, range: Range) -> bool {
        let blocks = &self.volumes[range.volume].blocks;
        range.parts().any(|part| blocks[part.block as usize].changes_in_flight() >= MOST_CHANGES)
    }

    /// A write, zeroing or discard is submitted; `value` gives each cell, counted from the start of the range.
    pub fn begin_change(&mut self, token: u64, range: Range, value: impl Fn(Part, usize) -> u32, fua: bool) {
        self.now += 1;
        self.requests.insert(token, Request::Change(range));
        for part in range.parts() {
            let mut values = ZERO;
            for (cell, slot) in values.iter_mut().enumerate().take(part.to).skip(part.from) {
                *slot = value(part, cell);
            }
            let block = &mut self.volumes[range.volume].blocks[part.block as usize];
            Rc::make_mut(block).begin_change(self.now, token, part.mask(), values, fua);
        }
    }

    /// A change is answered.
    pub fn end_change(&mut self, token: u64, succeeded: bool) {
        let Some(Request::Change(range)) = self.requests.remove(&token) else {
            panic!("only a change in flight is answered")
        };
        self.now += 1;
        let keep = self.oldest_interest();
        for part in range.parts() {
            let block = Rc::make_mut(&mut self.volumes[range.volume].blocks[part.block as usize]);
            block.end_change(self.now, token, succeeded);
            block.forget_before(keep);
        }
    }

    /// A read, or a question for extents, is submitted.
    pub fn begin_observation(&mut self, token: u64, range: Range) {
        self.now += 1;
        self.requests.insert(token, Request::Observation { range, since: self.now });
    }

    /// A read failed, or its answer says nothing.
    pub fn drop_observation(&mut self, token: u64) {
        self.requests.remove(&token);
    }

    /// A read is answered with the cells of its range.
    pub fn end_read(&mut self, token: u64, cells: &[u32]) -> Checked {
        let (range, since) = self.take_observation(token);
        if cells.len() as u64 != range.count {
            return violated(format!("a read of {range:?} was answered with {} cells", cells.len()));
        }
        self.now += 1;
        let name = self.volumes[range.volume].name.clone();
        let mut rest = cells;
        for part in range.parts() {
            let (mine, others) = rest.split_at(part.to - part.from);
            rest = others;
            let mut values = ZERO;
            values[part.from..part.to].copy_from_slice(mine);
            let block = &mut self.volumes[range.volume].blocks[part.block as usize];
            if block.is_simple() && part.is_whole() && block.only() == Some(values) {
                continue;
            }
            if !Rc::make_mut(block).observe(self.now, since, part.mask(), &values) {
                return violated(format!(
                    "volume {name} block {} cells {}..{} read as {mine:x?}, possible are {:x?}",
                    part.block,
                    part.from,
                    part.to,
                    block.possible_since(since)
                ));
            }
        }
        Ok(())
    }

    /// A question for at most `limit` extents is answered.
    pub fn end_extents(&mut self, token: u64, extents: &[Extent], limit: u32, cell_bytes: u64) -> Checked {
        let (range, since) = self.take_observation(token);
        let wrong = |text: &str| violated(format!("extents of {range:?}: {text}: {extents:?}"));
        if extents.is_empty() || extents.len() > limit as usize || extents.iter().any(|extent| extent.length == 0) {
            return wrong("none, too many, or one without length");
        }
        let total: u64 = extents.iter().map(|extent| extent.length).sum();
        let (all, is_short) = (range.count * cell_bytes, extents.len() < limit as usize);
        if total > all || (is_short && total < all) {
            return wrong("they cover too much or too little");
        }
        let mut first = range.first;
        for extent in extents {
            if !extent.length.is_multiple_of(cell_bytes) {
                return wrong("a length that is no multiple of the smallest unit written");
            }
            let count = extent.length / cell_bytes;
            if extent.hole {
                let hole = Range { first, count, ..range };
                for part in hole.parts() {
                    let block = &self.volumes[range.volume].blocks[part.block as usize];
                    let is_zero = |content: &Cells| content[part.from..part.to].iter().all(|&cell| cell == 0);
                    if !block.possible_since(since).iter().any(is_zero) {
                        return wrong(&format!("a hole at block {}, which is not zero", part.block));
                    }
                }
            }
            first += count;
        }
        Ok(())
    }

    /// A flush is submitted.
    pub fn begin_flush(&mut self, token: u64) {
        self.now += 1;
        self.requests.insert(token, Request::Flush { since: self.now });
    }

    /// A flush is answered: everything answered before its submission is durable.
    pub fn end_flush(&mut self, token: u64, succeeded: bool) {
        let Some(Request::Flush { since }) = self.requests.remove(&token) else {
            panic!("only a flush in flight is answered")
        };
        if succeeded {
            self.raise_floor(since);
        }
    }

    /// The pool was closed cleanly, with nothing in flight: all is durable.
    pub fn closed(&mut self) {
        assert!(self.requests.is_empty(), "closing waits for all requests");
        self.now += 1;
        self.raise_floor(self.now);
    }

    /// The machine or the process died: what was in flight is never answered.
    pub fn crash(&mut self) {
        self.requests.clear();
        for block in self.volumes.iter_mut().flat_map(|volume| &mut volume.blocks) {
            if !block.is_simple() {
                Rc::make_mut(block).crash(self.floor);
            }
        }
    }

    /// Blocks that may take space now, by any reading of what is in flight or may come back.
    pub fn blocks_that_may_take_space(&self) -> u64 {
        let blocks = self.volumes.iter().flat_map(|volume| &volume.blocks);
        blocks.filter(|block| block.may_take_space()).count() as u64
    }

    /// The content of a block, where only one is possible.
    pub fn only(&self, volume: usize, block: u64) -> Option<Cells> {
        self.volumes[volume].blocks[block as usize].only()
    }

    /// Non-zero blocks of a volume, all of which must have been read at rest.
    pub fn used(&self, volume: usize) -> u64 {
        self.non_zero(volume).count() as u64
    }

    /// Distinct non-zero contents of all volumes, all of which must have been read at rest.
    pub fn distinct(&self) -> u64 {
        (0..self.volumes.len()).flat_map(|volume| self.non_zero(volume)).collect::<BTreeSet<_>>().len() as u64
    }

    fn non_zero(&self, volume: usize) -> impl Iterator<Item = Cells> {
        let contents = self.volumes[volume].blocks.iter().map(|block| block.only().expect("every block was read"));
        contents.filter(|content| *content != ZERO)
    }

    fn take_observation(&mut self, token: u64) -> (Range, Moment) {
        match self.requests.remove(&token) {
            Some(Request::Observation { range, since }) => (range, since),
            _ => panic!("only a read in flight is answered"),
        }
    }

    fn raise_floor(&mut self, moment: Moment) {
        self.floor = self.floor.max(moment);
        let keep = self.oldest_interest();
        for block in self.volumes.iter_mut().flat_map(|volume| &mut volume.blocks) {
            if !block.is_simple() {
                Rc::make_mut(block).forget_before(keep);
            }
        }
    }

    /// The earliest moment that a read in flight or a crash may still ask for.
    fn oldest_interest(&self) -> Moment {
        let since = |request: &Request| match request {
            Request::Observation { since, .. } => *since,
            Request::Change(_) | Request::Flush { .. } => Moment::MAX,
        };
        self.requests.values().map(since).min().unwrap_or(Moment::MAX).min(self.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL_BYTES: u64 = 64;

    fn pool() -> Model {
        let mut model = Model::default();
        model.begin_create("a", 4, Policy::Full);
        model.end_create("a", true);
        model
    }

    fn range(first: u64, count: u64) -> Range {
        Range { volume: 0, first, count }
    }

    fn write(model: &mut Model, token: u64, range: Range, value: u32) {
        model.begin_change(token, range, |_, _| value, false);
        model.end_change(token, true);
    }

    fn flush(model: &mut Model, token: u64) {
        model.begin_flush(token);
        model.end_flush(token, true);
    }

    fn reads(model: &Model, range: Range, cells: &[u32]) -> bool {
        let mut model = model.clone();
        model.begin_observation(99, range);
        model.end_read(99, cells).is_ok()
    }

    #[test]
    fn parts_of_a_range_cover_it_exactly() {
        let parts: Vec<_> = range(6, 12).parts().collect();
        let part = |block, from, to| Part { block, from, to };
        assert_eq!(parts, [part(0, 6, 8), part(1, 0, 8), part(2, 0, 2)]);
        assert_eq!(parts[0].mask(), 0b1100_0000);
        assert_eq!(parts[1].mask(), 0xff);
        assert!(!range(6, 12).is_aligned() && range(8, 16).is_aligned());
    }

    #[test]
    fn a_lost_flushed_write_is_rejected_an_unflushed_one_is_not() {
        let mut model = pool();
        write(&mut model, 1, range(0, 8), 1);
        flush(&mut model, 2);
        write(&mut model, 3, range(0, 8), 2);
        model.crash();
        assert!(reads(&model, range(0, 8), &[1; 8]) && reads(&model, range(0, 8), &[2; 8]));
        assert!(!reads(&model, range(0, 8), &[0; 8]));
    }

    #[test]
    fn a_torn_block_is_rejected_blocks_of_different_age_are_not() {
        let mut model = pool();
        write(&mut model, 1, range(0, 16), 1);
        model.crash();
        let mut cells = [1; 16];
        cells[8..].fill(0);
        assert!(reads(&model, range(0, 16), &cells));
        cells[3] = 0;
        assert!(!reads(&model, range(0, 16), &cells));
    }

    #[test]
    fn a_write_that_was_seen_to_be_lost_may_not_come_back_after_another_crash() {
        let mut model = pool();
        write(&mut model, 1, range(0, 8), 1);
        model.crash();
        model.begin_observation(2, range(0, 8));
        model.end_read(2, &[0; 8]).unwrap();
        model.crash();
        assert!(!reads(&model, range(0, 8), &[1; 8]));
    }

    #[test]
    fn a_flush_covers_what_was_answered_before_it_was_submitted_not_what_was_in_flight() {
        let mut model = pool();
        model.begin_change(1, range(0, 8), |_, _| 1, false);
        model.begin_flush(2);
        model.end_change(1, true);
        model.end_flush(2, true);
        model.crash();
        assert!(reads(&model, range(0, 8), &[0; 8]) && reads(&model, range(0, 8), &[1; 8]));
    }

    #[test]
    fn a_failed_flush_promises_nothing_and_a_clean_close_promises_everything() {
        let mut model = pool();
        write(&mut model, 1, range(0, 8), 1);
        model.begin_flush(2);
        model.end_flush(2, false);
        let mut closed = model.clone();
        model.crash();
        assert!(reads(&model, range(0, 8), &[0; 8]));
        closed.closed();
        closed.crash();
        assert!(!reads(&closed, range(0, 8), &[0; 8]));
    }

    #[test]
    fn holes_are_accepted_only_where_zeroes_may_be() {
        let mut model = pool();
        write(&mut model, 1, range(8, 12), 1);
        let answer = |model: &Model, extents: &[(u64, bool)], limit| {
            let mut model = model.clone();
            model.begin_observation(9, range(0, 32));
            let extents: Vec<_> =
                extents.iter().map(|&(cells, hole)| Extent { length: cells * CELL_BYTES, hole }).collect();
            model.end_extents(9, &extents, limit, CELL_BYTES).is_ok()
        };
        assert!(answer(&model, &[(8, true), (16, false), (8, true)], 8));
        assert!(answer(&model, &[(8, true), (12, false), (12, true)], 8));
        assert!(answer(&model, &[(8, true)], 1));
        assert!(!answer(&model, &[(8, true)], 2), "they end before the range does");
        assert!(!answer(&model, &[(9, true), (23, false)], 8));
        assert!(!answer(&model, &[], 8));
    }

    #[test]
    fn a_volume_whose_creation_was_answered_must_be_there_after_a_crash() {
        let mut model = pool();
        model.begin_create("b", 2, Policy::Native);
        let listed = |name: &str, blocks: u64, policy, id| Listing {
            id: VolumeId(id),
            name: name.into(),
            size_blocks: blocks,
            policy,
        };
        let (a, b) = (listed("a", 4, Policy::Full, 1), listed("b", 2, Policy::Native, 2));
        assert!(model.clone().reconcile(std::slice::from_ref(&a)).is_ok(), "b may be lost");
        assert!(model.clone().reconcile(&[a.clone(), b.clone()]).is_ok());
        assert!(model.clone().reconcile(std::slice::from_ref(&b)).is_err());
        model.end_create("b", true);
        assert!(model.clone().reconcile(std::slice::from_ref(&a)).is_err());
        assert!(model.reconcile(&[a, Listing { size_blocks: 1, ..b }]).is_err());
    }

    #[test]
    fn distinct_and_used_blocks_are_counted_over_all_volumes() {
        let mut model = pool();
        write(&mut model, 1, range(0, 16), 7);
        write(&mut model, 2, range(16, 8), 8);
        assert_eq!((model.used(0), model.distinct(), model.blocks_that_may_take_space()), (3, 2, 3));
    }
}
