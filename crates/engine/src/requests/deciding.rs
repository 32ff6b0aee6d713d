//! Decisions on the blocks of a write: the policy gets the look-up results, and its decisions are noted in the blocks.

use alloc::vec::Vec;

use crate::api::Policy;
use crate::counters::Removed;
use crate::dedup::policy::{Category, Lookup};
use crate::format::entry::Slot;
use crate::requests::request::{Block, Decision, Request};

/// Lists that are used again for each decision.
#[derive(Default)]
pub(crate) struct Deciding {
    lookups: Vec<Lookup>,
    shares: Vec<bool>,
    /// The first half of the digest of each unknown block, and the index of that block.
    digests: Vec<u64>,
    blocks: Vec<u32>,
}

/// Returns true if a block holds the same payload as the one before it, and both are new.
#[inline]
fn is_repeated(blocks: &[Block], at: usize) -> bool {
    let (before, block) = (&blocks[at - 1], &blocks[at]);
    before.content == block.content
        && block.is_payload()
        && before.lookup == Lookup::Nothing
        && block.lookup == Lookup::Nothing
}

impl Deciding {
    /// Decides on the blocks of a request.
    pub(crate) fn decide(&mut self, request: &mut Request, policy: Policy) {
        if !policy.looks_up() {
            return request.blocks_mut().iter_mut().for_each(|block| block.decision = Decision::Write);
        }
        self.look(request);
        self.find_intra_duplicates(request);
        policy.decide(&self.lookups, &mut self.shares);
        for (block, &share) in request.blocks_mut().iter_mut().zip(&self.shares) {
            block.decision = match block.lookup {
                Lookup::Known(slot) if share => Decision::Share(Slot(slot)),
                Lookup::Unchanged(_) if share => Decision::Keep,
                Lookup::Nothing if policy == Policy::Full && block.intra_duplicate_of.is_some() => {
                    Decision::IntraRequest
                }
                _ => Decision::Write,
            };
        }
        let (blocks, mut at) = (request.blocks_mut(), 0);
        while let Some(run) = policy.next_repeat(blocks.len(), at, |at| is_repeated(blocks, at)) {
            for block in &mut blocks[run.start + 1..run.end] {
                (block.decision, block.intra_duplicate_of) = (Decision::IntraRequest, Some(run.start as u32));
            }
            at = run.end;
        }
    }

    /// Returns the category of a request, by the look-ups of its blocks.
    pub(crate) fn category(&mut self, request: &Request, policy: Policy) -> Category {
        self.look(request);
        policy.category(&self.lookups)
    }

    fn look(&mut self, request: &Request) {
        self.lookups.clear();
        self.lookups.extend(request.blocks().iter().map(|block| block.lookup));
        self.shares.clear();
        self.shares.resize(self.lookups.len(), false);
    }

    /// Finds the intra-request duplicates: blocks that are not known, and equal to an earlier one of the same request.
    fn find_intra_duplicates(&mut self, request: &mut Request) {
        self.digests.clear();
        self.blocks.clear();
        for at in 0..request.blocks().len() {
            let block = request.blocks()[at];
            let payload = block.content.filter(|content| !content.zero && block.lookup == Lookup::Nothing);
            let Some(content) = payload else { continue };
            let half = u128::from_le_bytes(content.digest.0) as u64;
            let first = self.digests.iter().position(|&digest| digest == half).map(|first| self.blocks[first]);
            let equal = |first: &u32| request.blocks()[*first as usize].content == block.content;
            match first.filter(equal) {
                Some(first) => request.blocks_mut()[at].intra_duplicate_of = Some(first),
                None => {
                    self.digests.push(half);
                    self.blocks.push(at as u32);
                }
            }
        }
    }

    /// Returns the blocks that a policy would remove of the request that was looked at last, with `payload` blocks that are not zero.
    pub(crate) fn removed_by(&mut self, policy: Policy, request: &Request, payload: u64) -> Removed {
        policy.decide(&self.lookups, &mut self.shares);
        let (mut intra_duplicates, mut at) = (0, 0);
        if policy == Policy::Full {
            intra_duplicates = request.blocks().iter().filter(|block| block.intra_duplicate_of.is_some()).count();
        }
        while let Some(run) = policy.next_repeat(request.blocks().len(), at, |at| is_repeated(request.blocks(), at)) {
            (intra_duplicates, at) = (intra_duplicates + run.len() - 1, run.end);
        }
        let blocks = (self.shares.iter().filter(|share| **share).count() + intra_duplicates) as u64;
        Removed { blocks, requests: u64::from(blocks > 0 && blocks == payload) }
    }
}
