//! Possible contents of one block of a volume: the smallest part of the oracle.
//!
//! Changes (writes, zeroes, discards) are in flight from their submission to their answer, and take effect at one
//! moment in between. A block therefore is in one of several possible *states*: a content, and the changes in flight
//! that it already includes. Every content that was ever possible is remembered with the last time at which it was, for
//! two checks:
//! - a read may return any content that was possible at some time between its submission and its answer;
//! - a crash may leave any content that was possible at some time since the last completed flush was submitted (the
//!   *floor*), or, after an answered write with FUA, that was possible with that write included.
//!
//! Contents are whole blocks: a mixture of two states is in none of these sets, so a torn block is noticed.

use crate::content::{Cells, overlay};

/// A moment in the model's own time, which counts its events.
pub type Moment = u64;

/// Value of `last` for a content that is possible now.
const NOW: Moment = Moment::MAX;
/// Moment after all past events.
pub const ALWAYS: Moment = NOW - 1;

/// Maximum number of changes in flight to one block: the number of states grows with their permutations.
pub const MOST_CHANGES: usize = 4;

#[derive(Clone, Debug)]
struct Change {
    token: u64,
    mask: u8,
    values: Cells,
    bit: u8,
    /// All contents that were possible with this change included, if it has FUA.
    with: Option<Vec<Cells>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    content: Cells,
    included: u8,
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    content: Cells,
    /// Moment at which it was last possible.
    last: Moment,
    /// Moment since which no crash may bring it back, according to FUA and to reads.
    dead_since: Moment,
}

/// The possible contents of one block.
#[derive(Clone, Debug)]
pub struct Block {
    states: Vec<State>,
    changes: Vec<Change>,
    memories: Vec<Memory>,
    /// Moment at which the set of states last changed other than by observation.
    changed: Moment,
    /// Moment at which a change last began or ended, also before a crash.
    touched: Moment,
    /// True if no change came since the pool was opened: a content read now was durable then.
    is_untouched: bool,
}

impl Block {
    /// Creates a block that has one content, durable.
    pub fn new(content: Cells) -> Block {
        Block {
            states: vec![State { content, included: 0 }],
            changes: Vec::new(),
            memories: vec![Memory { content, last: NOW, dead_since: NOW }],
            changed: 0,
            touched: 0,
            is_untouched: true,
        }
    }

    /// Creates a block of a snapshot or of its clone: it has one of these contents, durable, and no change is in flight.
    pub fn one_of(contents: Vec<Cells>, touched: Moment) -> Block {
        assert!(!contents.is_empty(), "a block has a content");
        Block {
            states: contents.iter().map(|&content| State { content, included: 0 }).collect(),
            changes: Vec::new(),
            memories: contents.iter().map(|&content| Memory { content, last: NOW, dead_since: NOW }).collect(),
            changed: 0,
            touched,
            is_untouched: true,
        }
    }

    /// Returns every content that is possible now, each once.
    pub fn possible(&self) -> Vec<Cells> {
        let mut contents = Vec::with_capacity(self.states.len());
        for state in &self.states {
            if !contents.contains(&state.content) {
                contents.push(state.content);
            }
        }
        contents
    }

    /// Returns the moment at which a change last began or ended.
    pub fn touched(&self) -> Moment {
        self.touched
    }

    /// Notes that a crash ends the changes in flight, if there are any.
    pub fn interrupt(&mut self, now: Moment) {
        if !self.changes.is_empty() {
            self.touched = now;
        }
    }

    /// Returns the content, if only one is possible.
    pub fn only(&self) -> Option<Cells> {
        let first = self.states[0].content;
        self.states.iter().all(|state| state.content == first).then_some(first)
    }

    /// Returns true if a content that takes space may be present, or come back.
    pub fn may_take_space(&self) -> bool {
        self.memories.iter().any(|memory| memory.content != crate::content::ZERO)
    }

    /// Returns the values of a change in flight.
    pub fn values_of(&self, token: u64) -> Option<Cells> {
        self.changes.iter().find(|change| change.token == token).map(|change| change.values)
    }

    /// Returns true if no change came since the pool was opened.
    pub fn is_untouched(&self) -> bool {
        self.is_untouched
    }

    /// Returns the number of changes in flight.
    pub fn changes_in_flight(&self) -> usize {
        self.changes.len()
    }

    /// Notes that a change is submitted: the cells in `mask` become those of `values`.
    pub fn begin_change(&mut self, now: Moment, token: u64, mask: u8, values: Cells, fua: bool) {
        let used: u8 = self.changes.iter().map(|change| change.bit).sum();
        let bit = 1 << used.trailing_ones();
        self.changes.push(Change { token, mask, values, bit, with: fua.then(Vec::new) });
        self.is_untouched = false;
        (self.changed, self.touched) = (now, now);
        self.close_over_changes();
        self.remember(now);
    }

    /// Notes the answer to a change: it is included from now on, or, if it failed, it was or was not. Panics if it is not in flight.
    pub fn end_change(&mut self, now: Moment, token: u64, succeeded: bool) {
        let index = self.changes.iter().position(|change| change.token == token);
        let change = self.changes.remove(index.expect("only a change in flight is answered"));
        if succeeded {
            self.states.retain(|state| state.included & change.bit != 0);
            if let Some(with) = change.with {
                for memory in self.memories.iter_mut().filter(|memory| !with.contains(&memory.content)) {
                    memory.dead_since = memory.dead_since.min(now);
                }
            }
        }
        for state in &mut self.states {
            state.included &= !change.bit;
        }
        (self.changed, self.touched) = (now, now);
        self.distinct();
        self.remember(now);
    }

    /// Forgets contents that were last possible before `moment`.
    pub fn forget_before(&mut self, moment: Moment) {
        self.memories.retain(|memory| memory.last >= moment);
    }

    /// Checks a read of the cells in `mask`, submitted at `since`, that returned `values`. Returns false if they were not possible.
    pub fn observe(&mut self, now: Moment, since: Moment, mask: u8, values: &Cells) -> bool {
        let fits = |content: &Cells| overlay(content, values, mask) == *content;
        if !self.memories.iter().any(|memory| memory.last >= since && fits(&memory.content)) {
            return false;
        }
        if self.changes.is_empty() && self.changed < since {
            self.states.retain(|state| fits(&state.content));
            if self.states.is_empty() {
                return false;
            }
            self.remember(now);
            if self.is_untouched {
                for memory in self.memories.iter_mut().filter(|memory| memory.last != NOW) {
                    memory.dead_since = 0;
                }
            }
        }
        true
    }

    /// Returns every content that was possible at the moment or later.
    pub fn possible_since(&self, since: Moment) -> Vec<Cells> {
        self.memories.iter().filter(|memory| memory.last >= since).map(|memory| memory.content).collect()
    }

    /// Applies a crash: the block has one of the contents that were possible since `floor`, but for those that were dead by `certain`: usually now,
    /// earlier if promises after that may be lost.
    pub fn crash(&mut self, floor: Moment, certain: Moment) {
        self.memories.retain(|memory| memory.last >= floor && memory.dead_since > certain);
        for memory in &mut self.memories {
            (memory.last, memory.dead_since) = (NOW, NOW);
        }
        self.states = self.memories.iter().map(|memory| State { content: memory.content, included: 0 }).collect();
        assert!(!self.states.is_empty(), "the content of now is always possible after a crash");
        self.changes.clear();
        self.changed = 0;
        self.is_untouched = true;
    }

    /// Returns true if only one content is possible, now and after a crash, and no change is in flight.
    pub fn is_simple(&self) -> bool {
        self.changes.is_empty() && self.states.len() == 1 && self.memories.len() == 1
    }

    fn close_over_changes(&mut self) {
        let mut index = 0;
        while index < self.states.len() {
            let state = self.states[index];
            for change in self.changes.iter().filter(|change| state.included & change.bit == 0) {
                let next = State {
                    content: overlay(&state.content, &change.values, change.mask),
                    included: state.included | change.bit,
                };
                if !self.states.contains(&next) {
                    self.states.push(next);
                }
            }
            index += 1;
        }
        for change in &mut self.changes {
            let Some(with) = &mut change.with else { continue };
            for state in self.states.iter().filter(|state| state.included & change.bit != 0) {
                if !with.contains(&state.content) {
                    with.push(state.content);
                }
            }
        }
    }

    fn distinct(&mut self) {
        let mut kept: Vec<State> = Vec::with_capacity(self.states.len());
        for state in &self.states {
            if !kept.contains(state) {
                kept.push(*state);
            }
        }
        self.states = kept;
    }

    /// Updates the memories to the states.
    fn remember(&mut self, now: Moment) {
        for memory in self.memories.iter_mut().filter(|memory| memory.last == NOW) {
            if !self.states.iter().any(|state| state.content == memory.content) {
                memory.last = now;
            }
        }
        for state in &self.states {
            match self.memories.iter_mut().find(|memory| memory.content == state.content) {
                Some(memory) if memory.last == NOW => {}
                Some(memory) => *memory = Memory { content: state.content, last: NOW, dead_since: NOW },
                None => self.memories.push(Memory { content: state.content, last: NOW, dead_since: NOW }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::ZERO;

    const ALL: u8 = 0xff;
    const OLD: Cells = [1; 8];
    const NEW: Cells = [2; 8];

    /// Returns a block that was written with OLD at 1 and answered at 2.
    fn written() -> Block {
        let mut block = Block::new(ZERO);
        block.begin_change(1, 10, ALL, OLD, false);
        block.end_change(2, 10, true);
        block
    }

    fn may_read(block: &Block, now: Moment, values: Cells) -> bool {
        block.clone().observe(now, now, ALL, &values)
    }

    fn may_survive(block: &Block, floor: Moment, values: Cells) -> bool {
        let mut crashed = block.clone();
        crashed.crash(floor, ALWAYS);
        crashed.observe(100, 99, ALL, &values)
    }

    #[test]
    fn an_answered_write_is_read_and_nothing_else() {
        let block = written();
        assert!(may_read(&block, 3, OLD));
        assert!(!may_read(&block, 3, ZERO), "a stale block");
        assert!(!may_read(&block, 3, NEW), "another block");
        assert!(!may_read(&block, 3, [1, 1, 1, 1, 0, 0, 0, 0]), "a torn block");
    }

    #[test]
    fn an_unflushed_write_may_be_lost_a_flushed_one_may_not() {
        let block = written();
        assert!(may_survive(&block, 1, ZERO) && may_survive(&block, 1, OLD));
        assert!(!may_survive(&block, 3, ZERO), "a flush that was submitted at 3 covers what was answered at 2");
        assert!(may_survive(&block, 3, OLD));
        assert!(!may_survive(&block, 1, [1, 1, 0, 0, 0, 0, 0, 0]), "a torn block");
    }

    #[test]
    fn a_write_in_flight_at_a_flush_may_be_lost() {
        let mut block = written();
        block.begin_change(3, 11, ALL, NEW, false);
        // The flush is submitted at 4, the write answered at 5.
        block.end_change(5, 11, true);
        assert!(may_survive(&block, 4, OLD) && may_survive(&block, 4, NEW));
        assert!(!may_survive(&block, 4, ZERO));
        assert!(!may_survive(&block, 6, OLD));
    }

    #[test]
    fn what_was_read_after_a_crash_cannot_change_any_more() {
        let mut block = written();
        block.crash(0, ALWAYS);
        assert!(block.only().is_none());
        assert!(block.observe(5, 4, ALL, &ZERO));
        assert_eq!(block.only(), Some(ZERO));
        assert!(!may_survive(&block, 0, OLD), "it was lost, and may not come back");
        assert!(may_survive(&block, 0, ZERO));
    }

    #[test]
    fn overlapping_writes_may_take_effect_in_either_order_but_not_half() {
        let mut block = Block::new(ZERO);
        block.begin_change(1, 10, 0x0f, OLD, false);
        block.begin_change(2, 11, 0x3c, NEW, false);
        assert!(may_read(&block, 3, ZERO), "neither has to have happened yet");
        block.end_change(3, 10, true);
        assert!(!may_read(&block, 4, ZERO));
        assert!(may_read(&block, 4, [1, 1, 1, 1, 0, 0, 0, 0]), "the second may still be to come");
        block.end_change(5, 11, true);
        assert!(may_read(&block, 6, [1, 1, 2, 2, 2, 2, 0, 0]));
        assert!(may_read(&block, 6, [1, 1, 1, 1, 2, 2, 0, 0]));
        assert!(!may_read(&block, 6, [1, 1, 1, 2, 2, 2, 0, 0]));
        assert!(!may_read(&block, 6, [1, 1, 1, 1, 0, 0, 0, 0]));
        assert!(block.observe(7, 6, 0x0c, &OLD), "a partial read decides between them");
        assert_eq!(block.only(), Some([1, 1, 1, 1, 2, 2, 0, 0]));
    }

    #[test]
    fn a_read_may_see_what_was_there_at_any_time_while_it_was_in_flight() {
        let mut block = written();
        block.begin_change(4, 11, ALL, NEW, false);
        block.end_change(5, 11, true);
        assert!(block.clone().observe(6, 3, ALL, &OLD) && block.clone().observe(6, 3, ALL, &NEW));
        assert!(!block.clone().observe(7, 6, ALL, &OLD));
    }

    #[test]
    fn a_write_with_fua_survives_with_whatever_came_after_it() {
        let mut block = written();
        block.begin_change(3, 11, ALL, NEW, true);
        assert!(may_survive(&block, 3, OLD) && may_survive(&block, 3, NEW));
        block.begin_change(4, 12, ALL, [3; 8], false);
        block.end_change(5, 11, true);
        assert!(!may_survive(&block, 0, ZERO));
        assert!(may_survive(&block, 0, NEW) && may_survive(&block, 0, [3; 8]));
        block.end_change(6, 12, true);
        assert!(may_survive(&block, 0, NEW));
        let mut alone = written();
        alone.begin_change(3, 11, ALL, NEW, true);
        alone.end_change(4, 11, true);
        assert!(!may_survive(&alone, 0, OLD), "a lost write with FUA");
        assert!(may_survive(&alone, 0, NEW));
    }

    #[test]
    fn what_was_promised_after_a_moment_may_be_lost_if_only_that_moment_is_certain() {
        let mut block = written();
        block.begin_change(3, 11, ALL, NEW, true);
        block.end_change(4, 11, true);
        let survives = |certain, values: Cells| {
            let mut crashed = block.clone();
            crashed.crash(0, certain);
            crashed.observe(100, 99, ALL, &values)
        };
        assert!(!survives(4, OLD), "the write with FUA was answered at 4");
        assert!(survives(3, OLD) && survives(3, NEW) && !survives(3, [3; 8]));
    }

    #[test]
    fn a_failed_write_leaves_old_or_new() {
        let mut block = written();
        block.begin_change(3, 11, ALL, NEW, false);
        block.end_change(4, 11, false);
        assert!(may_read(&block, 5, OLD) && may_read(&block, 5, NEW) && !may_read(&block, 5, ZERO));
    }
}
