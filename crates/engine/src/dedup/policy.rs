//! Policies: which known blocks a write shares. Pure functions of the look-up results for the blocks of one request.
//!
//! `select` is Select-Dedupe of POD (section 3.3), `idedup` the sequences of iDedup within a request; docs/guide/policies.md has
//! the rules, and how they are read where the papers leave them open.

use alloc::vec;
use core::ops::Range;

pub use crate::properties::{
    BadIndexCopy, BadPolicy, Counts, IDEDUP_THRESHOLD, IndexCopy, Policy, SELECT_THRESHOLD, Threshold,
};

#[cfg(test)]
mod tests;

/// Result of the lookup of one block of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// Nothing to share: the block is zero, or its content is not known.
    Nothing,
    /// A slot holds the content.
    Known(u64),
    /// The block maps to this slot already, and the slot holds the content.
    Unchanged(u64),
}

impl Lookup {
    /// Returns the slot that holds the content, if it is known.
    pub fn slot(self) -> Option<u64> {
        match self {
            Lookup::Nothing => None,
            Lookup::Known(slot) | Lookup::Unchanged(slot) => Some(slot),
        }
    }
}

/// State of a look-up of a block in the index on disk: each look-up counts once, however often the request runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnDisk {
    NotAsked,
    Asked,
    Hit,
    /// It has no such block.
    Absent,
}

/// POD's categories of write requests (its Fig. 6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Category {
    /// No block is known.
    Unknown,
    /// I: all blocks are known, and sequential on disk.
    Sequential,
    /// II: fewer blocks are known than the threshold asks for.
    Scattered,
    /// III: at least as many blocks are known as the threshold asks for.
    Partial,
}

impl Policy {
    /// Decides for a request, whose blocks these are in order of address: `shares` becomes true for each block that is not written, because its slot
    /// holds the content. A block that maps to the slot already is one of these under every policy that shares. Both slices have the same length.
    pub fn decide(self, lookups: &[Lookup], shares: &mut [bool]) {
        self.decide_by(lookups, shares, self.counts_repeats());
    }

    /// Decides as published: several blocks in one slot are no run, under `select` neither.
    pub fn decide_as_published(self, lookups: &[Lookup], shares: &mut [bool]) {
        self.decide_by(lookups, shares, false);
    }

    #[inline]
    fn decide_by(self, lookups: &[Lookup], shares: &mut [bool], repeats: bool) {
        assert_eq!(lookups.len(), shares.len());
        let kept = |lookup: &Lookup| self.shares() && matches!(lookup, Lookup::Unchanged(_));
        let all = match self {
            Policy::Native | Policy::Observe => false,
            Policy::Full => true,
            Policy::Select { counts, .. } => match self.category_by(lookups, repeats) {
                Category::Sequential => true,
                Category::Partial => counts == Counts::Request,
                Category::Unknown | Category::Scattered => false,
            },
            Policy::Idedup { .. } => false,
        };
        for (share, lookup) in shares.iter_mut().zip(lookups) {
            *share = kept(lookup) || all && lookup.slot().is_some();
        }
        if let Policy::Select { threshold, counts: Counts::Run } | Policy::Idedup { threshold } = self {
            for run in runs(lookups, repeats).filter(|run| run.len() >= usize::from(threshold.get())) {
                shares[run].fill(true);
            }
        }
    }

    /// Returns the category of a request, by this policy's threshold and reading, or by those of [`Policy::SELECT`] if it is not `select`.
    pub fn category(self, lookups: &[Lookup]) -> Category {
        self.category_by(lookups, self.counts_repeats())
    }

    #[inline]
    fn category_by(self, lookups: &[Lookup], repeats: bool) -> Category {
        let (threshold, counts) = match self {
            Policy::Select { threshold, counts } => (threshold, counts),
            _ => (SELECT_THRESHOLD, Counts::Run),
        };
        let (mut known, mut longest, mut count) = (0, 0, 0);
        for run in runs(lookups, repeats) {
            known += run.len();
            longest = run.len().max(longest);
            count += 1;
        }
        let counted = match counts {
            Counts::Run => longest,
            Counts::Request => known,
        };
        match (known, count) {
            (0, _) => Category::Unknown,
            (_, 1) if known == lookups.len() => Category::Sequential,
            _ if counted < usize::from(threshold.get()) => Category::Scattered,
            _ => Category::Partial,
        }
    }
}

impl Policy {
    /// Returns true if a run may stay at a slot before it continues with the next: one slot is read once, however many blocks share it. A sequence of
    /// iDedup may not.
    fn counts_repeats(self) -> bool {
        !matches!(self, Policy::Idedup { .. })
    }

    /// Finds the next consecutive blocks of a request, from `at` on, that have the same content and are new: `select` writes only the first of them,
    /// if there are as many as its threshold. `is_repeated` returns true if a block holds the same payload as the one before it, and both are new.
    #[inline]
    pub fn next_repeat(
        self,
        blocks: usize,
        mut at: usize,
        is_repeated: impl Fn(usize) -> bool,
    ) -> Option<Range<usize>> {
        let Policy::Select { threshold, .. } = self else { return None };
        let least = usize::from(threshold.get()).max(2);
        while at + least <= blocks {
            let start = at;
            at += 1;
            while at < blocks && is_repeated(at) {
                at += 1;
            }
            if at - start >= least {
                return Some(start..at);
            }
        }
        None
    }

    /// Returns true if a pass may remap a run of blocks, given its lookups: their slots are one run, too, and the policy would share all of it. For a
    /// policy that shares nothing, `select` decides.
    pub fn shares_run(self, lookups: &[Lookup]) -> bool {
        let policy = if self.shares() { self } else { Policy::SELECT };
        let mut shares = vec![false; lookups.len()];
        policy.decide(lookups, &mut shares);
        policy.category(lookups) == Category::Sequential && shares.iter().all(|&shares| shares)
    }
}

/// The longest runs of known blocks in consecutive slots, in order. If `repeats`, several blocks one behind the other may have one slot.
struct Runs<'a> {
    lookups: &'a [Lookup],
    repeats: bool,
    at: usize,
}

fn runs(lookups: &[Lookup], repeats: bool) -> Runs<'_> {
    Runs { lookups, repeats, at: 0 }
}

impl Iterator for Runs<'_> {
    type Item = Range<usize>;

    // Each write goes through here twice: as a call of its own it was 3 % of one of 4 KiB.
    #[inline(always)]
    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.at + self.lookups[self.at..].iter().position(|lookup| lookup.slot().is_some())?;
        let mut last = self.lookups[start].slot()?;
        self.at = start + 1;
        while let Some(slot) = self.lookups.get(self.at).and_then(|lookup| lookup.slot())
            && (last.checked_add(1) == Some(slot) || self.repeats && slot == last)
        {
            last = slot;
            self.at += 1;
        }
        Some(start..self.at)
    }
}

/// Returns the run of consecutive slots that block `at` of a request is in, where `before` is the run of the block before it; empty for a block
/// without a slot.
pub fn next_run(
    at: usize,
    before: Range<usize>,
    blocks: usize,
    slot_of: impl Fn(usize) -> Option<u64>,
) -> Range<usize> {
    if before.contains(&at) {
        return before;
    }
    let Some(first) = slot_of(at) else { return at..at };
    let follows = |&next: &usize| slot_of(next) == first.checked_add((next - at) as u64);
    at..at + (at..blocks).take_while(follows).count()
}

// ---- texts of users ----
