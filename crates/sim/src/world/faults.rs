//! Faults of the device and of its environment: their classes, their times, and their effects on the disk.
//!
//! Owns the classes of faults, the rules by which they strike, the strikes so far, and the overlay of damage. Damage lies beside pristine content: a read
//! sees the damage, a write that succeeds replaces both, and lifting the faults restores the pristine content. A write that fails *with an error* is
//! different: its result is the new content of the block.
//!
//! Of the two copies of a superblock at most one is damaged at a time (docs/internals/fault-model.md says why).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use engine::IoOp;

use crate::content::{CELLS, Content};
use crate::random::Random;

/// A class of faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(usize)]
pub enum Class {
    /// One byte of a block (of metadata), or one cell (of payload), has changed.
    BitRot,
    /// A write is answered with success and never happens.
    LostWrite,
    /// A write is answered with success and lands elsewhere.
    MisdirectedWrite,
    /// A read returns the content that the block held before its last write, once.
    StaleRead,
    /// A power cut tears blocks: one cell alone is written or missing, or a cell that moves on from block to block.
    TornWrite,
    /// A read fails.
    ReadError,
    /// A write fails: each of its blocks is old, new or torn.
    WriteError,
    /// A sync fails: each block that it covered is durable, or still volatile, or gone.
    SyncError,
    /// A read ends early.
    ShortRead,
    /// A write ends early: its first blocks are new, one may be torn, the others are old.
    ShortWrite,
    /// An I/O takes seconds.
    SlowIo,
    /// An I/O does not complete before the faults are lifted.
    StuckIo,
    /// A reservation finds no space on the host, or fails as a write does.
    NoSpace,
    /// The host has no space for a write, not even for one over existing data: its first blocks may be new, one may be
    /// torn.
    FullHost,
    /// A discard fails: each of its blocks is discarded or not.
    DiscardError,
    /// The clock jumps forward by years.
    ClockJump,
    /// The memory is divided anew, as small as possible.
    SmallestMemory,
    /// A client goes away: its reply is over at once, buffers that it was filling come back.
    Disconnect,
}

/// Number of classes.
pub const CLASSES: usize = 18;

impl Class {
    /// All classes, in order.
    pub const ALL: [Class; CLASSES] = [
        Class::BitRot,
        Class::LostWrite,
        Class::MisdirectedWrite,
        Class::StaleRead,
        Class::TornWrite,
        Class::ReadError,
        Class::WriteError,
        Class::SyncError,
        Class::ShortRead,
        Class::ShortWrite,
        Class::SlowIo,
        Class::StuckIo,
        Class::NoSpace,
        Class::FullHost,
        Class::DiscardError,
        Class::ClockJump,
        Class::SmallestMemory,
        Class::Disconnect,
    ];

    /// Classes that strike single I/O.
    pub const OF_IO: [Class; 13] = [
        Class::LostWrite,
        Class::MisdirectedWrite,
        Class::StaleRead,
        Class::ReadError,
        Class::WriteError,
        Class::SyncError,
        Class::ShortRead,
        Class::ShortWrite,
        Class::SlowIo,
        Class::StuckIo,
        Class::NoSpace,
        Class::FullHost,
        Class::DiscardError,
    ];

    /// Returns true if the class can strike an I/O of this kind.
    pub fn strikes(self, op: IoOp) -> bool {
        let reads = matches!(op, IoOp::ReadBlocks | IoOp::ReadPages);
        match self {
            Class::StaleRead | Class::ReadError | Class::ShortRead => reads,
            Class::LostWrite | Class::MisdirectedWrite | Class::WriteError | Class::ShortWrite => op.is_write(),
            Class::FullHost => op.is_write() || op == IoOp::Discard,
            Class::SyncError => op == IoOp::Sync,
            Class::NoSpace => op == IoOp::Reserve,
            Class::DiscardError => op == IoOp::Discard,
            Class::SlowIo | Class::StuckIo => reads || op.is_write() || matches!(op, IoOp::Sync | IoOp::Discard),
            Class::BitRot | Class::TornWrite | Class::ClockJump | Class::SmallestMemory | Class::Disconnect => false,
        }
    }

    /// Returns true if the class fails a sync or a durable write in a way that affects others: syncs and durable writes in flight beside it may silently not
    /// be durable.
    pub(crate) fn takes_others(self, op: IoOp) -> bool {
        let fails = matches!(self, Class::SyncError | Class::WriteError | Class::ShortWrite);
        fails && matches!(op, IoOp::Sync | IoOp::WriteDurable)
    }

    /// Returns true if the class only delays an I/O.
    fn delays(self) -> bool {
        matches!(self, Class::SlowIo | Class::StuckIo)
    }
}

/// Schedule of a class: after `skip` I/O that it could have struck, it strikes one in `one_in` of the following, `count` times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Class that strikes.
    pub class: Class,
    /// I/O that are spared first.
    pub skip: u64,
    /// Number of times that it strikes; `u64::MAX` means without end.
    pub count: u64,
    /// 1: every I/O.
    pub one_in: u64,
}

impl Rule {
    /// Returns a rule that strikes the I/O after the first `skip`: once, or it and all later ones.
    pub fn nth(class: Class, skip: u64, for_ever: bool) -> Rule {
        Rule { class, skip, count: if for_ever { u64::MAX } else { 1 }, one_in: 1 }
    }

    /// Draws a rule: it strikes once, several times, or without end.
    pub fn draw(random: &mut Random) -> Rule {
        let class = random.pick(&Class::OF_IO);
        // A write without space is repeated. The rule lasts until a client gets an error.
        let while_long = random.between(2, 12) * if class == Class::FullHost { 10 } else { 1 };
        // Reservations and syncs are few.
        let skip = if matches!(class, Class::NoSpace | Class::SyncError | Class::DiscardError) { 4 } else { 30 };
        Rule {
            class,
            skip: random.below(skip),
            count: random.pick(&[1, 1, while_long, while_long, u64::MAX]),
            one_in: random.pick(&[1, 1, 3]),
        }
    }
}

/// Counts of faults that struck the engine that is running.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Struck {
    /// Reads that failed, or returned content other than the written one.
    pub reads: u64,
    /// Reads of metadata among `reads`.
    pub pages: u64,
    /// Writes, syncs and reservations that failed for a reason other than lack of space.
    pub writes: u64,
    /// Reservations for which there was no space.
    pub reserves: u64,
    /// Writes for which there was no space.
    pub full: u64,
}

/// Counts of strikes by class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally([u64; CLASSES]);

impl Tally {
    /// Counts one strike of the class.
    pub fn count(&mut self, class: Class) {
        self.0[class as usize] += 1;
    }

    /// Returns the number of strikes of the class.
    pub fn of(&self, class: Class) -> u64 {
        self.0[class as usize]
    }

    /// Adds the counts of another tally.
    pub fn add(&mut self, other: &Tally) {
        for (mine, more) in self.0.iter_mut().zip(other.0) {
            *mine += more;
        }
    }

    /// Sums the strikes of all classes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the classes that never struck.
    pub fn missing(&self) -> Vec<Class> {
        Class::ALL.into_iter().filter(|&class| self.of(class) == 0).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, class) in Class::ALL.into_iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{class:?} {}", self.of(class))?;
        }
        Ok(())
    }
}

/// The faults of a world.
#[derive(Clone, Debug)]
pub struct Faults {
    rules: Vec<Rule>,
    /// Share of replies that are over at once: one in N; 0 for none.
    pub disconnects: u64,
    /// Random stream of its own, so that runs without faults stay unchanged.
    pub random: Random,
    /// Strikes since the run began, by class.
    pub tally: Tally,
    /// Strikes since the opening of the pool began.
    pub struck: Struck,
    /// Blocks that a read saw damaged or stale since the opening of the pool began.
    pub touched: BTreeSet<u64>,
    /// True if journal records are noted, for the oracle.
    pub notes_records: bool,
}

impl Faults {
    /// Returns true if a rule is set that fails or shortens reads.
    pub fn fails_reads(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.class, Class::ReadError | Class::ShortRead))
    }

    /// Creates an empty set of rules, with `seed` for its chance.
    pub fn new(seed: u64) -> Faults {
        Faults {
            rules: Vec::new(),
            disconnects: 0,
            random: Random::new(seed),
            tally: Tally::default(),
            struck: Struck::default(),
            touched: BTreeSet::new(),
            notes_records: false,
        }
    }

    /// Adds rules to those in force.
    pub fn begin(&mut self, rules: &[Rule]) {
        self.rules.extend(rules);
    }

    /// Returns true if any rule is in force.
    pub fn are_on(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Removes all rules and disconnects.
    pub fn end(&mut self) {
        self.rules.clear();
        self.disconnects = 0;
    }

    /// Clears the strikes of the last engine when the pool is opened: they explain no later error.
    pub fn forget(&mut self) {
        self.struck = Struck::default();
        self.touched.clear();
    }

    /// Decides which faults strike an I/O that begins: the class that spoils it, and the class that delays it.
    pub fn decide(&mut self, op: IoOp) -> (Option<Class>, Option<Class>) {
        let Faults { rules, random, .. } = self;
        let mut decided = (None, None);
        for rule in rules.iter_mut().filter(|rule| rule.class.strikes(op)) {
            let part = if rule.class.delays() { &mut decided.1 } else { &mut decided.0 };
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.count > 0 && part.is_none() && random.one_in(rule.one_in) {
                rule.count -= if rule.count == u64::MAX { 0 } else { 1 };
                *part = Some(rule.class);
            }
        }
        decided
    }

    /// Counts a read that failed, or returned content other than the written one.
    pub fn struck_read(&mut self, op: IoOp) {
        self.struck.reads += 1;
        self.struck.pages += u64::from(op == IoOp::ReadPages);
    }
}

/// Damage beside the pristine content of a disk.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    damaged: BTreeMap<u64, Content>,
    /// Content of each block before its last write, if that is remembered.
    previous: BTreeMap<u64, Content>,
    pub(crate) remembers: bool,
    /// Pairs of blocks of which at most one is damaged.
    pairs: Vec<(u64, u64)>,
}

impl Overlay {
    /// Returns the content that a read sees instead of the pristine one, if the block is damaged.
    pub fn get(&self, block: u64) -> Option<&Content> {
        if self.damaged.is_empty() { None } else { self.damaged.get(&block) }
    }

    /// Declares two blocks copies of each other: from here on at most one of them is damaged.
    pub fn pair(&mut self, one: u64, other: u64) {
        self.pairs.push((one, other));
    }

    fn twin(&self, block: u64) -> Option<u64> {
        self.pairs.iter().find_map(|&(one, other)| match block {
            _ if block == one => Some(other),
            _ if block == other => Some(one),
            _ => None,
        })
    }

    /// Damages a block. Returns false if the other block of its pair is damaged already.
    pub fn damage(&mut self, block: u64, content: Content) -> bool {
        let possible = self.twin(block).is_none_or(|twin| !self.damaged.contains_key(&twin));
        if possible {
            self.damaged.insert(block, content);
        }
        possible
    }

    /// Removes the damage of a block that a write has replaced, and remembers `before` as its previous content.
    pub fn overwritten(&mut self, block: u64, before: Option<Content>) {
        if !self.damaged.is_empty() {
            self.damaged.remove(&block);
        }
        if let Some(before) = before {
            self.previous.insert(block, before);
        }
    }

    /// Returns true if the block is one of two copies, and the other one is damaged.
    pub fn has_damaged_copy(&self, block: u64) -> bool {
        self.twin(block).is_some_and(|twin| self.damaged.contains_key(&twin))
    }

    /// Returns true if the block is one of two copies.
    pub fn is_of_a_pair(&self, block: u64) -> bool {
        self.twin(block).is_some()
    }

    /// Returns the content that a stale read sees. Of a pair only the first block is ever stale, and only beside a good copy.
    pub fn stale(&self, block: u64) -> Option<&Content> {
        let is_second = self.pairs.iter().any(|&(_, other)| other == block);
        let good_copy = self.twin(block).is_none_or(|twin| !self.damaged.contains_key(&twin));
        if is_second || !good_copy { None } else { self.previous.get(&block) }
    }

    /// Returns the damaged blocks that are one of two copies, with the content that reads see.
    pub fn damaged_copies(&self) -> impl Iterator<Item = (u64, &Content)> {
        self.damaged.iter().map(|(&block, content)| (block, content)).filter(|&(block, _)| self.is_of_a_pair(block))
    }

    /// Removes all damage.
    pub fn lift(&mut self) {
        self.damaged.clear();
    }

    /// Counts damaged blocks.
    pub fn count(&self) -> usize {
        self.damaged.len()
    }
}

/// Returns a copy of the content with one byte or one cell changed.
pub fn rotten(content: &Content, random: &mut Random) -> Content {
    match content {
        Content::Payload(cells) => {
            let mut cells = *cells;
            cells[random.below(CELLS as u64) as usize] ^= 1 << random.below(31);
            Content::Payload(cells)
        }
        Content::Metadata(bytes) => {
            let mut bytes = bytes.to_vec();
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= random.between(1, 255) as u8;
            Content::Metadata(bytes.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(number: u32) -> Content {
        Content::Payload([number; CELLS])
    }

    #[test]
    fn a_rule_strikes_the_nth_io_of_its_kind_once_or_for_ever() {
        let mut faults = Faults::new(1);
        faults.begin(&[Rule::nth(Class::WriteError, 2, false), Rule::nth(Class::ReadError, 1, true)]);
        let mut decide = |op| faults.decide(op).0;
        assert_eq!([decide(IoOp::Write), decide(IoOp::Sync), decide(IoOp::Write)], [None; 3]);
        assert_eq!([decide(IoOp::Write), decide(IoOp::Write)], [Some(Class::WriteError), None]);
        assert_eq!(decide(IoOp::ReadPages), None);
        assert!((0..9).all(|_| decide(IoOp::ReadBlocks) == Some(Class::ReadError)));
        faults.end();
        assert_eq!(faults.decide(IoOp::ReadBlocks), (None, None));
    }

    #[test]
    fn a_delay_and_a_fault_strike_together() {
        let mut faults = Faults::new(1);
        faults.begin(&[Rule::nth(Class::SlowIo, 0, true), Rule::nth(Class::SyncError, 0, true)]);
        assert_eq!(faults.decide(IoOp::Sync), (Some(Class::SyncError), Some(Class::SlowIo)));
        assert_eq!(faults.decide(IoOp::Merge { from: 0, to: 64, zero: false }), (None, None));
    }

    #[test]
    fn of_two_copies_only_one_is_damaged() {
        let mut overlay = Overlay::default();
        overlay.pair(0, 4);
        assert!(overlay.damage(0, payload(1)) && !overlay.damage(4, payload(1)) && overlay.damage(1, payload(1)));
        overlay.overwritten(0, None);
        assert!(overlay.damage(4, payload(2)));
        overlay.lift();
        assert_eq!((overlay.count(), overlay.get(4)), (0, None));
    }

    #[test]
    fn rot_changes_one_cell_or_one_byte() {
        let random = &mut Random::new(1);
        for _ in 0..100 {
            let cells = rotten(&payload(7), random).to_cells();
            assert_eq!(cells.iter().filter(|&&cell| cell != 7).count(), 1);
            let bytes = rotten(&Content::Metadata(vec![3; 512].into()), random).to_bytes(512);
            assert_eq!(bytes.iter().filter(|&&byte| byte != 3).count(), 1);
        }
    }

    #[test]
    fn the_names_of_all_classes_are_in_the_line_and_those_without_a_count_are_known() {
        let mut tally = Tally::default();
        tally.count(Class::BitRot);
        assert!(tally.to_string().starts_with("BitRot 1, LostWrite 0,"));
        assert_eq!(tally.missing(), Class::ALL[1..]);
        assert!(Class::ALL.into_iter().enumerate().all(|(number, class)| class as usize == number));
    }
}
