//! Model of a pool: writes the blocks of a window under one policy, in requests of one size, and reads them back.
//!
//! The engine's own functions (`engine::Policy`) decide a request. It is carried out as the engine's `decide.rs` and `write.rs` do it, on a volume that holds
//! nothing yet. [`Slots`] says which slots blocks map to, and which contents are known: they are simulated where everything is known ([`Simulated`]), else
//! taken from where contents come first in the data ([`Positions`]).

use std::ops::AddAssign;

use engine::Policy;
use engine::geometry::SLOTS_PER_CONTAINER;
use engine::policy::{Lookup, next_run};

use super::WINDOW_BLOCKS;

/// The code of a block that is not stored in its file.
pub const HOLE: u32 = u32::MAX;
/// The code of a block of zeroes.
pub const ZERO: u32 = u32::MAX - 1;
/// Blocks of a read: 128 KiB.
const READ_BLOCKS: usize = 32;

/// Returns true if a code is the number of a content, neither a hole nor a block of zeroes.
fn is_payload(code: u32) -> bool {
    code < ZERO
}

/// Counts, as docs/reference/metrics.md defines them, and what reading everything back takes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    pub requests: u64,
    /// Requests of each `engine::policy::Category`; none for a policy without look-ups.
    pub categories: [u64; 4],
    pub written_blocks: u64,
    pub removed_blocks: u64,
    pub zero_blocks: u64,
    pub removed_requests: u64,
    /// Reads of 128 KiB that hold anything but zeroes.
    pub reads: u64,
    /// Requests to the device for all reads of 128 KiB, with nothing cached: one for each run of consecutive slots in a container.
    pub device_reads: u64,
    /// Reads that take more than one request to the device.
    pub split_reads: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.requests += other.requests;
        for (own, other) in self.categories.iter_mut().zip(other.categories) {
            *own += other;
        }
        self.written_blocks += other.written_blocks;
        self.removed_blocks += other.removed_blocks;
        self.zero_blocks += other.zero_blocks;
        self.removed_requests += other.removed_requests;
        self.reads += other.reads;
        self.device_reads += other.device_reads;
        self.split_reads += other.split_reads;
    }
}

/// Slots of contents, as an index and a pool would have them.
pub trait Slots {
    /// Begins a request: contents that come from now on are not known to it.
    fn begin_request(&mut self);
    /// Returns the slot that the index names for a content; `None` if it is not known.
    fn known(&self, content: u32) -> Option<u64>;
    /// Takes the next block with payload, and returns its slot if it is written.
    fn pass(&mut self, written: bool) -> u64;
    /// Makes the index name this slot for a content from now on.
    fn name(&mut self, content: u32, slot: u64);
}

/// An empty pool that gives its slots in order, with an index that forgets nothing.
pub struct Simulated {
    /// Slots, by content.
    named: Vec<u32>,
    next: u32,
}

const NOWHERE: u32 = u32::MAX;

impl Simulated {
    pub fn new(contents: usize) -> Simulated {
        Simulated { named: vec![NOWHERE; contents], next: 0 }
    }
}

impl Slots for Simulated {
    fn begin_request(&mut self) {}

    fn known(&self, content: u32) -> Option<u64> {
        let slot = self.named[content as usize];
        (slot != NOWHERE).then_some(u64::from(slot))
    }

    fn pass(&mut self, written: bool) -> u64 {
        let slot = self.next;
        self.next += u32::from(written);
        u64::from(slot)
    }

    fn name(&mut self, content: u32, slot: u64) {
        self.named[content as usize] = slot as u32;
    }
}

/// Places in the order of the data in the stead of slots: the pool as `native` fills it, in which a content is where it
/// comes first.
pub struct Positions<'a> {
    /// First positions, by content; `u64::MAX` where it was not met.
    pub first: &'a [u64],
    /// The position of the next block with payload.
    pub next: u64,
    /// Position at which the request began; contents with an earlier position are known.
    request: u64,
}

impl<'a> Positions<'a> {
    pub fn new(first: &'a [u64]) -> Positions<'a> {
        Positions { first, next: 0, request: 0 }
    }
}

impl Slots for Positions<'_> {
    fn begin_request(&mut self) {
        self.request = self.next;
    }

    fn known(&self, content: u32) -> Option<u64> {
        let first = self.first[content as usize];
        (first < self.request).then_some(first)
    }

    fn pass(&mut self, _written: bool) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn name(&mut self, _content: u32, _slot: u64) {}
}

/// Model of a pool that writes data under one policy, in requests of one size, and reads it back: for estimates of savings and split reads.
pub struct Model {
    policy: Policy,
    request_blocks: usize,
    lookups: Vec<Lookup>,
    shares: Vec<bool>,
    /// Earlier equal block of its request, for each block that is not known.
    intra_duplicates: Vec<Option<usize>>,
    /// True for each block that shares the slot of its intra_duplicate.
    is_intra_duplicate: Vec<bool>,
}

impl Model {
    pub fn new(policy: Policy, request_blocks: usize) -> Model {
        Model {
            policy,
            request_blocks,
            lookups: Vec::new(),
            shares: Vec::new(),
            intra_duplicates: Vec::new(),
            is_intra_duplicate: Vec::new(),
        }
    }

    /// Writes a window and reads it back. Codes are numbers of contents, [`ZERO`] or [`HOLE`]. A request wholly in holes is not written, and a hole in a
    /// request is zeroes.
    pub fn window(&mut self, codes: &[u32], slots: &mut impl Slots, tally: &mut Tally) {
        let mut places = [None; WINDOW_BLOCKS];
        let parts = codes.chunks(self.request_blocks).zip(places.chunks_mut(self.request_blocks));
        for (codes, places) in parts {
            if codes.iter().any(|&code| code != HOLE) {
                self.look_up(codes, slots);
                self.write(codes, slots, places, tally);
                self.name_copies(codes, slots, places);
            }
        }
        places.chunks(READ_BLOCKS).for_each(|places| count_read(places, tally));
    }

    fn look_up(&mut self, codes: &[u32], slots: &mut impl Slots) {
        slots.begin_request();
        let looks_up = self.policy.looks_up();
        self.lookups.clear();
        self.lookups.extend(codes.iter().map(|&code| {
            let known = if looks_up && is_payload(code) { slots.known(code) } else { None };
            known.map_or(Lookup::Nothing, Lookup::Known)
        }));
        self.intra_duplicates.clear();
        for (at, &code) in codes.iter().enumerate() {
            let may_be = looks_up && is_payload(code) && self.lookups[at] == Lookup::Nothing;
            // Equal blocks are known or not known together.
            self.intra_duplicates.push(if may_be {
                codes[..at].iter().position(|&before| before == code)
            } else {
                None
            });
        }
        let is_full = self.policy == Policy::Full;
        self.is_intra_duplicate.clear();
        self.is_intra_duplicate
            .extend(self.intra_duplicates.iter().map(|intra_duplicate| is_full && intra_duplicate.is_some()));
        let is_new = |at: usize| is_payload(codes[at]) && self.lookups[at] == Lookup::Nothing;
        let is_repeated = |at: usize| codes[at] == codes[at - 1] && is_new(at) && is_new(at - 1);
        let mut at = 0;
        while let Some(run) = self.policy.next_repeat(codes.len(), at, is_repeated) {
            self.intra_duplicates[run.start + 1..run.end].fill(Some(run.start));
            self.is_intra_duplicate[run.start + 1..run.end].fill(true);
            at = run.end;
        }
        self.shares.clear();
        self.shares.resize(codes.len(), false);
        self.policy.decide(&self.lookups, &mut self.shares);
    }

    fn write(&self, codes: &[u32], slots: &mut impl Slots, places: &mut [Option<u64>], tally: &mut Tally) {
        let (mut written, mut removed) = (0, 0);
        for (at, &code) in codes.iter().enumerate() {
            let intra_duplicate = self.intra_duplicates[at].filter(|_| self.is_intra_duplicate[at]);
            places[at] = if !is_payload(code) {
                tally.zero_blocks += 1;
                None
            } else if self.shares[at] {
                slots.pass(false);
                removed += 1;
                self.lookups[at].slot()
            } else if let Some(first) = intra_duplicate {
                slots.pass(false);
                removed += 1;
                places[first]
            } else {
                let slot = slots.pass(true);
                if self.intra_duplicates[at].is_none() && self.lookups[at] == Lookup::Nothing {
                    slots.name(code, slot);
                }
                written += 1;
                Some(slot)
            };
        }
        tally.requests += 1;
        tally.written_blocks += written;
        tally.removed_blocks += removed;
        tally.removed_requests += u64::from(removed > 0 && written == 0);
        if self.policy.looks_up() {
            tally.categories[self.policy.category(&self.lookups) as usize] += 1;
        }
    }

    /// Makes the index name the copy in the longer run of a known block that was written again, else the older one.
    fn name_copies(&self, codes: &[u32], slots: &mut impl Slots, places: &[Option<u64>]) {
        let (mut written, mut known) = (0..0, 0..0);
        for (at, &code) in codes.iter().enumerate() {
            written = next_run(at, written, codes.len(), |at| places[at]);
            known = next_run(at, known, codes.len(), |at| self.lookups[at].slot());
            let (Lookup::Known(_), false, Some(new)) = (self.lookups[at], self.shares[at], places[at]) else {
                continue;
            };
            if written.len() > known.len() {
                slots.name(code, new);
            }
        }
    }
}

/// Counts one read of blocks at these slots: consecutive slots of a container are read at once, zeroes and holes are not read, and a block that comes twice is
/// read once.
fn count_read(places: &[Option<u64>], tally: &mut Tally) {
    let (mut device_reads, mut last) = (0, None);
    for (at, slot) in places.iter().enumerate() {
        let Some(slot) = *slot else { continue };
        if places[..at].contains(&Some(slot)) {
            continue;
        }
        let follows =
            last == slot.checked_sub(1) && last.is_some() && !slot.is_multiple_of(u64::from(SLOTS_PER_CONTAINER));
        device_reads += u64::from(!follows);
        last = Some(slot);
    }
    tally.reads += u64::from(device_reads > 0);
    tally.split_reads += u64::from(device_reads > 1);
    tally.device_reads += device_reads;
}
