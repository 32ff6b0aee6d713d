//! Plans: the objects that move, and their order (ReDedup, section IV.C).
//!
//! The candidates are the objects that share content, best first. Contents say who shares, not reads: an object that is read often and shares with an
//! unread one has nothing to lose. An object labels its slots and moves those that no earlier one has labelled. They are to lie one after another in
//! the order in which the object is read. So an earlier object is never taken apart by a later one.
//!
//! As printed ([`Rules::PAPER`]) candidates are ranked by value. Ours ([`Rules::OURS`]) ranks by runs for each block, regardless of sharers: the
//! order that saved most on 21 made populations of two servers each (docs/papers/rededup.md). Either continues until there are no candidates; either can
//! stop where the value is no longer above 0, leave objects that lie in one piece where they are, and have a budget.

use alloc::vec::Vec;

use super::assess::Assessment;
use super::labels::Labels;
use super::{Content, Extent, Object, push};

/// Order of the candidates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// The highest value, as printed.
    Value,
    /// The highest value for each block that the object has.
    ValuePerBlock,
    /// The most runs for each block that the object has, regardless of sharers.
    RunsPerBlock,
}

/// Rules of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    /// Order of the candidates, best first.
    pub order: Order,
    /// True if only objects with a value above 0 move.
    pub gains_only: bool,
    /// True if an object whose unlabelled slots lie in one piece stays there; it labels them all the same.
    pub keeps_whole: bool,
    /// Blocks that may be moved. An object that does not fit is passed over, and labels nothing.
    pub most_blocks: u64,
}

impl Rules {
    /// The printed rules.
    pub const PAPER: Rules =
        Rules { order: Order::Value, gains_only: false, keeps_whole: false, most_blocks: u64::MAX };
    /// Our rules. Objects in one piece move, too: so all blocks that are read often lie together, and the arm moves less far.
    pub const OURS: Rules = Rules { order: Order::RunsPerBlock, ..Rules::PAPER };
}

/// Slots that shall lie one after another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Move {
    /// Assessment of the object that moves.
    pub assessment: Assessment,
    /// Present places of the slots, in the order in which they shall lie.
    pub extents: Vec<Extent>,
    /// Number of slots in these extents.
    pub blocks: u64,
    /// Slots of the object that an earlier one labelled: it continues to read those elsewhere.
    pub taken: u64,
}

/// Moves that shall be made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The moves, in order.
    pub moves: Vec<Move>,
    /// Objects that were read and share content.
    pub candidates: u64,
    /// Candidates without a value above 0.
    pub worthless: u64,
    /// Candidates all of whose slots were labelled before.
    pub taken: u64,
    /// Candidates that stay in place because their slots, except those labelled before, lie in one extent; 0 unless [`Rules::keeps_whole`] is set.
    pub whole: u64,
    /// Candidates too large for the rest of the budget.
    pub too_large: u64,
}

impl Plan {
    /// Returns the number of blocks that are moved.
    pub fn blocks(&self) -> u64 {
        self.moves.iter().map(|one| one.blocks).sum()
    }
}

/// Makes a plan. `contents` are in ascending order of objects; an object without any is no candidate.
pub fn plan(assessments: &[Assessment], contents: &[Content], rules: Rules) -> Plan {
    let mut plan = Plan::default();
    let mut labels = Labels::default();
    let mut left = rules.most_blocks;
    for (assessment, content) in ranked(assessments, contents, rules.order) {
        plan.candidates += 1;
        if rules.gains_only && assessment.value() <= 0 {
            plan.worthless += 1;
            continue;
        }
        // An object may have a slot twice: only the first counts.
        let (mut own, mut extents) = (Labels::default(), Vec::new());
        for extent in content.extents.iter().flat_map(|&extent| own.insert(extent)) {
            labels.missing(extent).into_iter().for_each(|extent| push(&mut extents, extent));
        }
        let blocks: u64 = extents.iter().map(|extent| extent.blocks).sum();
        let all: u64 = own.extents().map(|extent| extent.blocks).sum();
        if extents.is_empty() {
            plan.taken += 1;
        } else if rules.keeps_whole && extents.len() == 1 {
            plan.whole += 1;
        } else if blocks > left {
            plan.too_large += 1;
            continue;
        } else {
            left -= blocks;
            plan.moves.push(Move { assessment: *assessment, extents, blocks, taken: all - blocks });
        }
        own.extents().for_each(|extent| drop(labels.insert(extent)));
    }
    plan
}

/// Ranks the candidates, best first. Of equals, the one that is read in more runs comes first; then the one with the lower number.
fn ranked<'a>(
    assessments: &'a [Assessment],
    contents: &'a [Content],
    order: Order,
) -> Vec<(&'a Assessment, &'a Content)> {
    let content = |object: Object| contents.binary_search_by_key(&object, |content| content.object).ok();
    let shares = shares(contents);
    let mut ranked: Vec<_> = assessments
        .iter()
        .filter_map(|one| content(one.object).filter(|&at| shares[at]).map(|at| (one, &contents[at])))
        .map(|(one, content)| (one, content, content.extents.iter().map(|extent| extent.blocks).sum::<u64>()))
        .collect();
    ranked.sort_by(|(one, _, one_blocks), (other, _, other_blocks)| {
        let by_value = match order {
            Order::Value => other.value().cmp(&one.value()),
            // a / b before c / d is a * d before c * b.
            Order::ValuePerBlock => {
                let weight = |value: i64, blocks: u64| i128::from(value) * i128::from(blocks);
                weight(other.value(), *one_blocks).cmp(&weight(one.value(), *other_blocks))
            }
            Order::RunsPerBlock => {
                let weight = |runs: u64, blocks: u64| u128::from(runs) * u128::from(blocks);
                weight(other.randomness, *one_blocks).cmp(&weight(one.randomness, *other_blocks))
            }
        };
        by_value.then(other.randomness.cmp(&one.randomness)).then(one.object.cmp(&other.object))
    });
    ranked.into_iter().map(|(one, content, _)| (one, content)).collect()
}

/// Returns a flag for each content: true if one of its slots is also another's.
fn shares(contents: &[Content]) -> Vec<bool> {
    let all = contents.iter().enumerate();
    let mut extents: Vec<(Extent, usize)> =
        all.flat_map(|(of, content)| content.extents.iter().map(move |&extent| (extent, of))).collect();
    extents.sort_unstable();
    let mut shares = alloc::vec![false; contents.len()];
    // So far: the furthest end with its owner, and the furthest end of all others.
    let (mut furthest, mut second) = ((0, usize::MAX), (0, usize::MAX));
    let mark = |(extent, of): (Extent, usize), (end, other): (u64, usize), shares: &mut Vec<bool>| {
        if other != of && other != usize::MAX && end > extent.slot {
            shares[of] = true;
            shares[other] = true;
        }
    };
    for one in extents {
        mark(one, furthest, &mut shares);
        mark(one, second, &mut shares);
        let ended = (one.0.end(), one.1);
        if ended.1 == furthest.1 {
            furthest = furthest.max(ended);
        } else if ended.0 > furthest.0 {
            second = core::mem::replace(&mut furthest, ended);
        } else if ended.0 > second.0 {
            second = ended;
        }
    }
    shares
}
