//! Read verification before sharing (`dedup-verify`), so that latent damage does not replace a good copy.
//!
//! `kept`: the canonical slot is read from the device, and must hold the content of its digest: once in a pass, while there is memory to remember it
//! ([`Proven`]). `both`: two blocks with equal digests are read and compared, so that a collision of digests is found, too.
//!
//! It owns the reads in flight, and the verdicts of a bounded number of pairs. What must hold: a verdict is about the contents of the slots at the
//! time of the read. So a slot is not reused for a new content while it has a verdict, or a read for one is in flight ([`Verify::holds`]).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::api::*;
use crate::format::entry::Slot;
use crate::jobs::job::JobId;
use crate::locality_map::NearMap;
use crate::pool::Pool;
use crate::sizes::{list_bytes, table_bytes};

/// Number of pairs that are read at a time, or of twice as many single slots.
pub(super) const PAIRS: usize = 32;
/// Divisor of all buffers: reads of pairs take at most one part in N.
const PART_OF_BUFFERS: usize = 8;
/// Number from which on a part of the work is a comparison, not a read.
const COMPARES: usize = 2 * PAIRS;

/// Two slots, and the digest that both must hold. If both are the same slot, it is only read.
pub(super) type Pair = (Slot, Slot, Digest);

/// A pair that is being read.
struct PairRead {
    pair: Pair,
    first: BufferId,
    second: Option<BufferId>,
    is_equal: bool,
}

/// Slots that have been read in this pass and hold the content of their digest. A slot that is reused for another content is then in a container of
/// another generation.
#[derive(Default)]
pub(super) struct Proven {
    slots: NearMap<Slot, (Digest, u16)>,
}

impl Proven {
    pub fn has(&self, pool: &Pool, slot: Slot, digest: Digest) -> bool {
        self.slots.get(&slot) == Some(&(digest, pool.durable.space().generation(slot)))
    }

    /// Remembers a slot. At `most` known slots, forgets all of them; they are read again on demand.
    pub fn add(&mut self, pool: &Pool, slot: Slot, digest: Digest, most: usize) {
        if self.slots.len() >= most {
            self.slots.clear();
        }
        self.slots.insert(slot, (digest, pool.durable.space().generation(slot)));
    }

    pub fn memory(&self) -> u64 {
        table_bytes(&self.slots)
    }
}

/// Reads or comparisons in progress.
struct VerifyBatch {
    reads: Vec<PairRead>,
    /// Blocks in slot order: each with its pair, and the buffer that it is read into.
    blocks: Vec<(Slot, usize, BufferId)>,
    in_flight: usize,
    compares: bool,
}

/// Verdicts about pairs of slots, and the batch being read or compared.
#[derive(Default)]
pub(super) struct Verify {
    verdicts: BTreeMap<(Slot, Slot), (Digest, bool)>,
    /// Slots of all verdicts, and those that are being read; sorted.
    held: Vec<Slot>,
    batch: Option<VerifyBatch>,
    /// Set when the results of the batch are no longer wanted.
    is_over: bool,
}

impl Verify {
    /// Returns true while blocks are being read or compared.
    pub fn is_in_progress(&self) -> bool {
        self.batch.is_some()
    }

    pub fn in_flight(&self) -> usize {
        self.batch.as_ref().map_or(0, |batch| batch.in_flight)
    }

    pub fn holds(&self, slot: Slot) -> bool {
        self.held.binary_search(&slot).is_ok()
    }

    /// Returns true if any slot is held.
    #[inline]
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    pub fn memory(&self) -> u64 {
        let batch = self.batch.as_ref().map_or(0, |batch| list_bytes(&batch.reads) + list_bytes(&batch.blocks));
        list_bytes(&self.held) + (self.verdicts.len() * size_of::<((Slot, Slot), (Digest, bool))>()) as u64 + batch
    }

    /// Drops all verdicts.
    pub fn clear(&mut self) {
        self.verdicts.clear();
        self.is_over = true;
        if self.batch.is_none() {
            self.held = Vec::new();
        }
    }

    /// Returns true if all of these pairs are equal; `None` if some have to be compared first.
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

    /// Drops the verdict of a pair: it is to be read again.
    pub fn forget(&mut self, one: Slot, other: Slot) {
        self.verdicts.remove(&(one, other));
    }

    /// Begins to read some of these pairs, and drops verdicts about others. Returns false if there are no buffers.
    pub fn begin(&mut self, pool: &mut Pool, pairs: impl Iterator<Item = Pair>) -> bool {
        let (mut wanted, mut unknown) = (BTreeSet::new(), Vec::new());
        for (one, other, digest) in pairs {
            let is_known = self.verdicts.get(&(one, other)).is_some_and(|&(known, _)| known == digest);
            if wanted.insert((one, other)) && !is_known {
                unknown.push((one, other, digest));
            }
        }
        self.verdicts.retain(|pair, _| wanted.contains(pair));
        let mut buffers = 2 * (pool.limits.buffers as usize / 2 / PART_OF_BUFFERS).clamp(1, PAIRS);
        let mut reads: Vec<PairRead> = Vec::new();
        for pair in unknown {
            let needed = if pair.0 == pair.1 { 1 } else { 2 };
            if needed > buffers {
                break;
            }
            buffers -= needed;
            let Some(first) = pool.any_buffer() else { break };
            let second = if needed > 1 { pool.any_buffer() } else { None };
            if needed > 1 && second.is_none() {
                pool.memory.buffers_mut().release(first);
                break;
            }
            reads.push(PairRead { pair, first, second, is_equal: true });
        }
        if reads.is_empty() {
            return false;
        }
        let sides = |(at, read): (usize, &PairRead)| {
            [(read.pair.0, at, Some(read.first)), (read.pair.1, at, read.second)]
                .map(|(slot, at, buffer)| Some((slot, at, buffer?)))
        };
        let mut blocks: Vec<_> = reads.iter().enumerate().flat_map(sides).flatten().collect();
        blocks.sort_unstable();
        self.held = self.verdicts.keys().flat_map(|&(one, other)| [one, other]).collect();
        self.held.extend(blocks.iter().map(|&(slot, ..)| slot));
        self.held.sort_unstable();
        let mut batch = VerifyBatch { reads, blocks, in_flight: 0, compares: false };
        let mut at = 0;
        while at < batch.blocks.len() {
            let rest = &batch.blocks[at..];
            let mut length = 1;
            while rest.get(length).is_some_and(|&(slot, ..)| pool.continues(rest[0].0, length, slot)) {
                length += 1;
            }
            let segments = rest[..length].iter().map(|&(.., buffer)| Segment::Buffer(buffer));
            let bytes = length as u64 * pool.metadata.geometry().block();
            let offset = pool.slot_offset(rest[0].0);
            pool.metadata.io_mut().begin(IoOp::ReadBlocks, offset, bytes, segments, JobId::Dedup.io(at));
            batch.in_flight += 1;
            at += length;
        }
        (self.batch, self.is_over) = (Some(batch), false);
        true
    }

    /// Takes the result of a read or a comparison.
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
                let Some(second) = read.second else { continue };
                let segments = [read.first, second].map(Segment::Buffer);
                pool.metadata.io_mut().begin(IoOp::Compare, 0, 0, segments, JobId::Dedup.io(COMPARES + at));
                batch.in_flight += 1;
            }
        }
        if batch.in_flight == 0 {
            self.end(pool);
        }
    }

    fn end(&mut self, pool: &mut Pool) {
        for PairRead { pair: (one, other, digest), first, second, is_equal } in
            self.batch.take().into_iter().flat_map(|batch| batch.reads)
        {
            [Some(first), second].into_iter().flatten().for_each(|buffer| pool.memory.buffers_mut().release(buffer));
            if !self.is_over {
                self.verdicts.insert((one, other), (digest, is_equal));
            }
        }
        if self.is_over {
            self.held = Vec::new();
        }
        pool.wake();
    }
}
