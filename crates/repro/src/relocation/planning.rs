//! Planner ReDedup on a layout: the engine's profile, assessment and plan, from the reads of some days.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use engine::relocation::assess::{Sharing, assess};
use engine::relocation::forecast::{Forecast, Moved, Reads};
use engine::relocation::plan::{Plan, Rules, plan};
use engine::relocation::profile::{Merge, Profile};
use engine::relocation::{Content, Extent, Object, Run};

use super::layouts::{Layout, stretches};
use super::population::Population;
use super::reads::Request;

/// Runs that a profile keeps: 16 MiB.
const MOST_RUNS: usize = 1 << 20;

/// Parameters of ReDedup's planning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Planner {
    /// Rule that merges reads to a run.
    pub merge: Merge,
    /// Rule that counts sharing.
    pub sharing: Sharing,
    /// Rules that decide which objects move.
    pub rules: Rules,
}

impl Planner {
    /// Planner as printed in the paper.
    pub const PRINTED: Planner = Planner { merge: Merge::Adjacent, sharing: Sharing::Pairs, rules: Rules::PAPER };
    /// Planner as printed, but each read counts once.
    pub const NORMALISED: Planner = Planner { sharing: Sharing::OwnRuns, ..Planner::PRINTED };
    /// Our planner.
    pub const OURS: Planner = Planner { merge: Merge::ByObject, sharing: Sharing::OthersRuns, rules: Rules::OURS };
}

/// A plan, and the layout after it.
pub struct Planned {
    /// Moves of the plan.
    pub plan: Plan,
    /// Layout after the moves.
    pub layout: Layout,
    /// Runs of the profile.
    pub runs: u64,
    /// Reads that the engine expects after it.
    pub expected: Reads,
}

/// Profiles the reads of some days on a layout.
pub fn profile(population: &Population, layout: &Layout, days: &[Vec<Request>], merge: Merge) -> Vec<Run> {
    let mut profile = Profile::new(merge, MOST_RUNS);
    for &request in days.iter().flatten() {
        for (place, blocks) in layout.stretches(population, request) {
            profile.note(Object(request.file), u64::from(place), blocks);
        }
    }
    profile.runs().to_vec()
}

/// Plans by the reads of some days, and does it.
pub fn relocate(population: &Population, layout: &Layout, days: &[Vec<Request>], planner: Planner) -> Planned {
    let runs = profile(population, layout, days, planner.merge);
    let contents: Vec<Content> = (0..population.files() as u32)
        .map(|file| {
            let places = stretches(&layout.places[population.blocks(file)]).into_iter();
            let extents = places.map(|(slot, blocks)| Extent { slot: u64::from(slot), blocks: u64::from(blocks) });
            Content { object: Object(file), extents: extents.collect() }
        })
        .collect();
    let plan = plan(&assess(&runs, planner.sharing), &contents, planner.rules);
    let moved = Moved::new(&plan, u64::from(layout.free));
    let mut after = layout.clone();
    after.places.iter_mut().for_each(|place| *place = moved.of(u64::from(*place)).0 as u32);
    after.free += plan.blocks() as u32;
    after.moved += plan.blocks();
    let expected = Forecast::new(&runs, &moved).all();
    Planned { layout: after, runs: runs.len() as u64, expected, plan }
}

/// Returns the layout after a plan that inserts each object's blocks at its longest piece and shifts all later blocks. The objects are not appended together at
/// the end.
pub fn insert(layout: &Layout, plan: &Plan) -> Layout {
    let longest =
        |extents: &[Extent]| extents.iter().max_by_key(|extent| extent.blocks).map_or(0, |extent| extent.slot);
    let mut moves: Vec<(u64, &[Extent])> =
        plan.moves.iter().map(|one| (longest(&one.extents), &one.extents[..])).collect();
    moves.sort_by_key(|&(before, _)| before);
    // Shifts by old place, and the new places of moved blocks.
    let (mut shifts, mut moved, mut shift) = (vec![(0, 0)], HashMap::new(), 0);
    for (before, extents) in moves {
        for slot in extents.iter().flat_map(|extent| extent.slot..extent.end()) {
            moved.insert(slot, before + shift);
            shift += 1;
        }
        shifts.push((before, shift));
    }
    let shifted = |place: u64| place + shifts[shifts.partition_point(|&(before, _)| before <= place) - 1].1;
    let mut after = layout.clone();
    for place in &mut after.places {
        let was = u64::from(*place);
        *place = moved.get(&was).copied().unwrap_or_else(|| shifted(was)) as u32;
    }
    after.free += plan.blocks() as u32;
    after.moved += plan.blocks();
    after
}

/// Returns a layout that moves all read blocks to the end, and puts blocks that a request reads in succession side by side where possible. The most
/// frequent pairs come first. Each block is in at most two of them, and cycles are excluded. The resulting paths lie in the order of the first reads of their
/// first blocks.
pub fn follow(population: &Population, layout: &Layout, days: &[Vec<Request>]) -> Layout {
    let mut pairs: HashMap<(u32, u32), u32> = HashMap::new();
    let mut read: Vec<u32> = Vec::new();
    for &request in days.iter().flatten() {
        let places = layout.stretches(population, request).into_iter();
        let places: Vec<u32> = places.flat_map(|(place, blocks)| place..place + blocks).collect();
        places.windows(2).for_each(|pair| *pairs.entry((pair[0], pair[1])).or_default() += 1);
        read.extend(places);
    }
    let mut pairs: Vec<((u32, u32), u32)> = pairs.into_iter().filter(|((one, next), _)| one != next).collect();
    pairs.sort_unstable_by_key(|&(pair, times)| (Reverse(times), pair));
    let mut next: HashMap<u32, u32> = HashMap::new();
    // From the last block of a path to the first, and back.
    let (mut first_of, mut last_of): (HashMap<u32, u32>, HashMap<u32, u32>) = (HashMap::new(), HashMap::new());
    for ((one, other), _) in pairs {
        let first = *first_of.get(&one).unwrap_or(&one);
        let last = *last_of.get(&other).unwrap_or(&other);
        let ends_a_path = !next.contains_key(&one);
        let begins_a_path = first_of.get(&last).is_none_or(|&begins| begins == other);
        if ends_a_path && begins_a_path && first != other {
            next.insert(one, other);
            first_of.insert(last, first);
            last_of.insert(first, last);
        }
    }
    let has_before: HashSet<u32> = next.values().copied().collect();
    let mut moved: HashMap<u32, u32> = HashMap::new();
    let mut after = layout.clone();
    for begins in read.into_iter().filter(|place| !has_before.contains(place)) {
        let mut at = Some(begins);
        while let Some(place) = at.filter(|place| !moved.contains_key(place)) {
            moved.insert(place, after.free);
            after.free += 1;
            at = next.get(&place).copied();
        }
    }
    after.places.iter_mut().for_each(|place| *place = moved.get(place).copied().unwrap_or(*place));
    after.moved += moved.len() as u64;
    after
}
