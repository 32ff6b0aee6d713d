//! Comparing before sharing (`dedup-verify`): two blocks with equal digests are read from the device, and share a slot only if their bytes are
//! equal. So neither a collision of digests nor damage that nobody has noticed becomes what both read.
//!
//! It owns what is being read, and the verdicts of a bounded number of pairs. What must hold: a verdict is about what the slots held when they
//! were read. So a slot is not given to a new content while there is a verdict about it, or one is on its way ([`Verify::holds`]).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::super::Job;
use crate::contract::*;
use crate::format::entry::Slot;
use crate::pool::Pool;
use crate::sizes::list_bytes;

/// Pairs that are read at a time,
pub(super) const PAIRS: usize = 32;
/// and the part of all buffers that they may take.
const PART_OF_BUFFERS: usize = 8;
/// A part of the work from here on is a comparison, not a read.
const COMPARES: usize = 2 * PAIRS;

/// Two slots, and the digest that both must hold.
pub(super) type Pair = (Slot, Slot, Digest);

/// A pair that is being read.
struct Read {
    pair: Pair,
    buffers: [BufferId; 2],
    is_equal: bool,
}

/// What is under way.
struct Batch {
    reads: Vec<Read>,
    /// All blocks in the order of their slots: with the pair, and which of both.
    blocks: Vec<(Slot, usize, usize)>,
    in_flight: usize,
    compares: bool,
}

/// See above.
#[derive(Default)]
pub(super) struct Verify {
    verdicts: BTreeMap<(Slot, Slot), (Digest, bool)>,
    /// The slots of all of them, and of those that are being read; in order.
    held: Vec<Slot>,
    batch: Option<Batch>,
    /// Nobody waits for the batch any more.
    is_over: bool,
}

impl Verify {
    /// Whether blocks are being read or compared.
    pub fn is_under_way(&self) -> bool {
        self.batch.is_some()
    }

    pub fn in_flight(&self) -> usize {
        self.batch.as_ref().map_or(0, |batch| batch.in_flight)
    }

    pub fn holds(&self, slot: Slot) -> bool {
        self.held.binary_search(&slot).is_ok()
    }

    /// Whether a slot is held.
    #[inline]
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    pub fn memory(&self) -> u64 {
        let batch = self.batch.as_ref().map_or(0, |batch| list_bytes(&batch.reads) + list_bytes(&batch.blocks));
        list_bytes(&self.held) + (self.verdicts.len() * size_of::<((Slot, Slot), (Digest, bool))>()) as u64 + batch
    }

    /// Gives up all verdicts.
    pub fn clear(&mut self) {
        self.verdicts.clear();
        self.is_over = true;
        if self.batch.is_none() {
            self.held = Vec::new();
        }
    }

    /// Whether all of these pairs are equal; `None`: some have to be compared first.
    pub fn verdict(&self, pairs: impl Iterator<Item = Pair>) -> Option<bool> {
        let mut all = Some(true);
        for (one, other, digest) in pairs {
            match self.verdicts.get(&(one, other)) {
                Some(&(known, false)) if known == digest => return Some(false),
                Some(&(known, true)) if known == digest => {}
                _ => all = None,
            }
        }
        all
    }

    /// Begins to read some of these pairs; verdicts about others are given up. False if there are no buffers.
    pub fn begin(&mut self, pool: &mut Pool, pairs: impl Iterator<Item = Pair>) -> bool {
        let (mut wanted, mut unknown) = (BTreeSet::new(), Vec::new());
        for (one, other, digest) in pairs {
            let is_known = self.verdicts.get(&(one, other)).is_some_and(|&(known, _)| known == digest);
            if wanted.insert((one, other)) && !is_known {
                unknown.push((one, other, digest));
            }
        }
        self.verdicts.retain(|pair, _| wanted.contains(pair));
        let most = (pool.limits.buffers as usize / 2 / PART_OF_BUFFERS).clamp(1, PAIRS);
        let mut reads: Vec<Read> = Vec::new();
        for &pair in unknown.iter().take(most) {
            let Some(first) = pool.any_buffer() else { break };
            let Some(second) = pool.any_buffer() else {
                pool.buffers.release(first);
                break;
            };
            reads.push(Read { pair, buffers: [first, second], is_equal: true });
        }
        if reads.is_empty() {
            return false;
        }
        let both = |(at, read): (usize, &Read)| [(read.pair.0, at, 0), (read.pair.1, at, 1)];
        let mut blocks: Vec<_> = reads.iter().enumerate().flat_map(both).collect();
        blocks.sort_unstable();
        self.held = self.verdicts.keys().flat_map(|&(one, other)| [one, other]).collect();
        self.held.extend(blocks.iter().map(|&(slot, ..)| slot));
        self.held.sort_unstable();
        let mut batch = Batch { reads, blocks, in_flight: 0, compares: false };
        let mut at = 0;
        while at < batch.blocks.len() {
            let rest = &batch.blocks[at..];
            let mut length = 1;
            while rest.get(length).is_some_and(|&(slot, ..)| pool.continues(rest[0].0, length, slot)) {
                length += 1;
            }
            let segments =
                rest[..length].iter().map(|&(_, pair, side)| Segment::Buffer(batch.reads[pair].buffers[side]));
            let bytes = length as u64 * pool.store.geometry.block();
            pool.store.io.begin(IoOp::ReadBlocks, pool.slot_offset(rest[0].0), bytes, segments, Job::Dedup.io(at));
            batch.in_flight += 1;
            at += length;
        }
        (self.batch, self.is_over) = (Some(batch), false);
        true
    }

    /// Blocks have been read, or compared.
    pub fn done(&mut self, pool: &mut Pool, part: usize, count: usize, result: Result<Outcome<'_>, IoError>) {
        let batch = self.batch.as_mut().expect("a batch stays until its I/O is done");
        batch.in_flight -= 1;
        if let Some(pair) = part.checked_sub(COMPARES) {
            batch.reads[pair].is_equal = result == Ok(Outcome::Equal(true));
        } else {
            let contents = if let Ok(Outcome::Blocks(contents)) = result { contents } else { &[] };
            for (at, &(_, pair, _)) in batch.blocks[part..part + count].iter().enumerate() {
                let read = &mut batch.reads[pair];
                read.is_equal &= contents.get(at).is_some_and(|found| !found.zero && found.digest == read.pair.2);
            }
        }
        if batch.in_flight > 0 {
            return;
        }
        if !batch.compares && !self.is_over {
            batch.compares = true;
            for (at, read) in batch.reads.iter().enumerate().filter(|(_, read)| read.is_equal) {
                let segments = read.buffers.map(Segment::Buffer);
                pool.store.io.begin(IoOp::Compare, 0, 0, segments, Job::Dedup.io(COMPARES + at));
                batch.in_flight += 1;
            }
        }
        if batch.in_flight == 0 {
            self.end(pool);
        }
    }

    fn end(&mut self, pool: &mut Pool) {
        for Read { pair: (one, other, digest), buffers, is_equal } in
            self.batch.take().into_iter().flat_map(|batch| batch.reads)
        {
            buffers.into_iter().for_each(|buffer| pool.buffers.release(buffer));
            if !self.is_over {
                self.verdicts.insert((one, other), (digest, is_equal));
            }
        }
        if self.is_over {
            self.held = Vec::new();
        }
        pool.needs_pump = true;
    }
}
