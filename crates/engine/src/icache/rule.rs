//! iCache (POD, section 3.4): the rule of the cache partition, which divides memory between the index and the read cache. It is a pure function of
//! hits by depth; `jobs/cache_partition.rs` carries it out.
//!
//! Every N requests the rule looks at the hits in both caches and their ghosts, and moves the cache partition a little.
//!
//! - **paper**: Algorithm 1. The hits of each side, in the cache and its ghosts, are divided by the side's size; the side with
//!   more grows, by a unit times the ratio.
//! - **curves**, the default: the hits of each side are known by the depth that they were found at, so the hits of every
//!   possible partition are known; the partition moves towards the best. (Hits per size, as in the paper, give the present hits
//!   and not the additional hits of a larger cache: a small set that is read all the time draws memory that it cannot use.)
//!
//! Hits are counted, and those of the index on a sample, so a difference between two partitions may be chance. It counts if it is [`DOUBT`] times as
//! large as the deviation that chance gives to N hits. Recent hits show great differences at once, as after a change of phase. Small ones show in the
//! hits of a long time, as long as the recent hits do not contradict these.

use crate::properties::{CacheSetting, Rule};
use alloc::collections::VecDeque;

use crate::api::Nanos;
use crate::icache::ghosts::SEGMENTS;

/// Thousandths of the divisible memory in a segment.
const SEGMENT: u32 = 1000 / SEGMENTS as u32;
/// The least share of each side, where the partition adapts; in thousandths.
pub(crate) const LEAST: u32 = 50;
/// The most that the partition moves at once; in thousandths.
const MOST_STEP: u32 = 100;
/// Value of a division by zero (in thousandths).
const RATIO_OF_NONE: u64 = 10_000;
/// Gain that a partition must have over the one in force: one part in N. Each move loses some cached blocks.
const WORTH: i128 = 100;
/// Standard deviations of the hits that chance may account for.
const DOUBT: i128 = 3;
/// Divisor of the hits of earlier looks that are forgotten with each look: of those that show a change of phase.
const RECENT: u64 = 2;
/// Divisor of the hits of earlier looks that are forgotten: of those that show the best partition while there is no change of phase.
const LASTING: u64 = 32;
/// The factor of counted hits, so that parts of small numbers are not lost.
const SCALE: u64 = 64;
/// Changes of the cache partition that are remembered.
const HISTORY: usize = 64;

/// Parameters of iCache: a part of [`crate::Limits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheLimits {
    /// Setting where the pool has none of its own. `None`: the cache partition stays as the limits have it.
    pub setting: Option<CacheSetting>,
    /// Requests between two looks at the hits (the paper's N_int).
    pub interval: u32,
    /// The least that the cache partition moves, in thousandths of the divisible memory (S_unit).
    pub unit: u32,
    /// One digest in N is in the ghosts of the index. A power of two.
    pub sampled_one_in: u32,
    /// Savings of a hit of the index and of a hit of the read cache: both blocks.
    pub hit_costs: [u32; 2],
}

impl Default for CacheLimits {
    /// Returns the parameters of a server. A read of one block takes the device's whole time for a read; a block that is written goes with many others, or into
    /// the device's own memory: on flash about a quarter of that, on disks less.
    fn default() -> CacheLimits {
        let setting = Some(CacheSetting::default());
        CacheLimits { setting, interval: 1000, unit: 10, sampled_one_in: 64, hit_costs: [1, 4] }
    }
}

/// Ghost lists that can be hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hits {
    Index = 0,
    /// Blocks that had been used once.
    ReadOnce = 1,
    /// Blocks that had been used more often.
    ReadAgain = 2,
}

/// A change of the cache partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionChange {
    /// Time of the change.
    pub at: Nanos,
    /// Share of the index in the divisible memory from then on, in thousandths.
    pub index_share: u32,
}

/// Hits by depth: in segments of each list of ghosts.
type Curves = [[u64; SEGMENTS]; 3];

/// Hits by depth, and the partition that follows from them.
pub(crate) struct PartitionController {
    /// Requests since the last look.
    requests: u32,
    /// Hits since the last look.
    hits: Curves,
    /// Hits since the last look and earlier ones, times [`SCALE`], of a few looks.
    recent: Curves,
    /// Hits since the last look and earlier ones, times [`SCALE`], of many looks.
    lasting: Curves,
    history: VecDeque<PartitionChange>,
}

impl PartitionController {
    /// Returns the recent decisions.
    #[inline]
    pub(crate) fn history(&self) -> &VecDeque<PartitionChange> {
        &self.history
    }

    pub(crate) fn new() -> PartitionController {
        let none = [[0; SEGMENTS]; 3];
        let history = VecDeque::with_capacity(HISTORY);
        PartitionController { requests: 0, hits: none, recent: none, lasting: none, history }
    }

    /// Counts a request that was carried out.
    pub(crate) fn count_request(&mut self) {
        self.requests = self.requests.saturating_add(1);
    }

    /// Counts hits of blocks in a segment.
    pub(crate) fn count_hits(&mut self, hits_of: Hits, segment: usize, hits: u64) {
        self.hits[hits_of as usize][segment] += hits;
    }

    /// Returns true if it is time to look: after `interval` requests.
    pub(crate) fn is_due(&self, limits: &CacheLimits) -> bool {
        self.requests >= limits.interval.max(1)
    }

    /// Looks at the hits. The index has `share` thousandths now, of at most 1000. Returns the thousandths that it should have.
    pub(crate) fn look(&mut self, rule: Rule, limits: &CacheLimits, share: u32) -> u32 {
        self.requests = 0;
        let hits = core::mem::replace(&mut self.hits, [[0; SEGMENTS]; 3]);
        add(&mut self.recent, RECENT, &hits);
        add(&mut self.lasting, LASTING, &hits);
        let aim = match rule {
            Rule::Curves => self.best_share(limits, share),
            Rule::Paper => {
                let [index, once, again] = hits.map(|hits| hits.iter().sum::<u64>());
                let sums = [index * u64::from(limits.hit_costs[0]), (once + again) * u64::from(limits.hit_costs[1])];
                paper_share(sums, share, limits.unit)
            }
        };
        aim.clamp(LEAST, 1000 - LEAST)
    }

    /// Returns a step towards the best share of the index, if one is better for sure.
    fn best_share(&mut self, limits: &CacheLimits, share: u32) -> u32 {
        let (recent, lasting) = (Worth::new(&self.recent, limits), Worth::new(&self.lasting, limits));
        let best = match recent.best(share, limits.unit) {
            Some(best) => {
                if lasting.gain(share, best) <= 0 {
                    // A change of phase: earlier hits say nothing any more.
                    self.lasting = self.recent;
                }
                Some(best)
            }
            None => lasting.best(share, limits.unit),
        };
        match best {
            Some(best) if best > share => share + (best - share).min(MOST_STEP),
            Some(best) => share - (share - best).min(MOST_STEP),
            None => share,
        }
    }

    /// Notes a change of the cache partition in the history.
    pub(crate) fn note(&mut self, at: Nanos, index_share: u32) {
        if self.history.back().is_none_or(|last| last.index_share != index_share) {
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(PartitionChange { at, index_share });
        }
    }
}

/// Forgets one part in `forgotten` of earlier hits, and adds new ones.
fn add(curves: &mut Curves, forgotten: u64, hits: &Curves) {
    for (sum, hits) in curves.iter_mut().flatten().zip(hits.iter().flatten()) {
        *sum = *sum - *sum / forgotten + hits * SCALE;
    }
}

/// Merges the hits of the two lists of a read cache to hits by its size, in segments: with the best partition of its buffers between the lists for
/// each size, as ARC does.
fn merged(once: &[u64; SEGMENTS], again: &[u64; SEGMENTS]) -> [u64; SEGMENTS] {
    let [once, again] = [once, again].map(|curve| {
        let mut sums = [0; SEGMENTS + 1];
        for (segment, hits) in curve.iter().enumerate() {
            sums[segment + 1] = sums[segment] + hits;
        }
        sums
    });
    let within = |size: usize| (0..=size).map(|part| once[part] + again[size - part]).max().unwrap_or(0);
    core::array::from_fn(|segment| within(segment + 1) - within(segment))
}

/// Returns the hits that a side of `share` thousandths would have had. Between the ends of a segment they count in proportion.
fn hits_within(curve: &[u64; SEGMENTS], share: u32) -> i128 {
    let whole = (share / SEGMENT) as usize;
    let part = curve.get(whole).map_or(0, |hits| hits * u64::from(share % SEGMENT) / u64::from(SEGMENT));
    i128::from(curve[..whole.min(SEGMENTS)].iter().sum::<u64>() + part)
}

/// Savings that each cache partition would have had.
struct Worth {
    index: [u64; SEGMENTS],
    read: [u64; SEGMENTS],
    /// Savings of a hit, of the index and of the read cache.
    costs: [i128; 2],
    /// Number of hits that each counted one stands for, of the index and of the read cache.
    weights: [i128; 2],
}

impl Worth {
    fn new([index, once, again]: &Curves, limits: &CacheLimits) -> Worth {
        let weights = [i128::from(limits.sampled_one_in), 1];
        Worth { index: *index, read: merged(once, again), costs: limits.hit_costs.map(i128::from), weights }
    }

    /// Returns the additional hits of the index and of the read cache with another share of the index: fewer, if negative.
    fn more_hits(&self, share: u32, other: u32) -> [i128; 2] {
        let read = |share: u32| hits_within(&self.read, 1000 - share);
        [hits_within(&self.index, other) - hits_within(&self.index, share), read(other) - read(share)]
    }

    fn gain(&self, share: u32, other: u32) -> i128 {
        self.more_hits(share, other).into_iter().zip(self.costs).map(|(more, cost)| more * cost).sum()
    }

    /// Returns the error of a gain by chance: its standard deviation, if hits come one by one. The variance of a count is about the count; one hit
    /// more, because an uncounted one may exist where none was counted.
    fn noise(&self, share: u32, other: u32) -> i128 {
        let scale = i128::from(SCALE);
        let sides = self.more_hits(share, other).into_iter().zip(self.costs).zip(self.weights);
        let variance = sides.map(|((more, cost), weight)| {
            let unit = scale * weight;
            (more.abs() + unit).saturating_mul(unit).saturating_mul(cost).saturating_mul(cost)
        });
        variance.fold(0i128, i128::saturating_add).isqrt()
    }

    /// Returns the share with the greatest gain over this one, chance allowed for; `None` if no share is better for sure.
    fn best(&self, share: u32, unit: u32) -> Option<u32> {
        let now =
            hits_within(&self.index, share) * self.costs[0] + hits_within(&self.read, 1000 - share) * self.costs[1];
        let sure = |other: u32| {
            let gain = self.gain(share, other);
            // Where the other side hits nothing, nothing is at stake.
            let is_free = self.more_hits(share, other).into_iter().all(|more| more >= 0);
            let sure = if is_free { gain } else { gain - DOUBT * self.noise(share, other) };
            (gain > now / WORTH && sure > 0).then_some(sure)
        };
        let others = (LEAST..=1000 - LEAST).step_by(SEGMENT as usize).filter(|other| other.abs_diff(share) >= unit);
        let best = others.filter_map(|other| Some((sure(other)?, other))).max_by_key(|&(sure, other)| {
            // Of equally good ones, the nearest.
            (sure, core::cmp::Reverse(other.abs_diff(share)))
        });
        best.map(|(_, other)| other)
    }
}

/// Computes the share by Algorithm 1: the side with more hits per size gets a unit times the ratio.
fn paper_share(hits: [u64; 2], share: u32, unit: u32) -> u32 {
    if hits == [0, 0] {
        return share;
    }
    let (index_size, read_size) = (u64::from(share), u64::from(1000 - share.min(1000)));
    // Hits per size, each times both sizes.
    let (index, read) = (hits[0] * read_size, hits[1] * index_size);
    let turn = |more: u64, less: u64| {
        let ratio = (more * 1000).checked_div(less).unwrap_or(RATIO_OF_NONE).min(RATIO_OF_NONE * 10);
        ((u64::from(unit) * ratio / 1000) as u32).clamp(unit, MOST_STEP.max(unit))
    };
    if index > read { (share + turn(index, read)).min(1000) } else { share.saturating_sub(turn(read, index)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const LIMITS: CacheLimits =
        CacheLimits { setting: None, interval: 10, unit: 10, sampled_one_in: 1, hit_costs: [1, 1] };

    #[test]
    fn settings_read_back_as_they_are_written_and_encoded() {
        for text in ["adaptive", "adaptive:paper", "fixed:40", "index", "read,lru", "adaptive,lru", "fixed:99,lru"] {
            let setting: CacheSetting = text.parse().unwrap();
            assert_eq!(setting.to_string(), text);
            assert_eq!(CacheSetting::decode(setting.encode()), Some(setting));
        }
        assert_eq!("fixed:0".parse::<CacheSetting>().unwrap().to_string(), "read");
        for text in ["", "fixed", "fixed:101", "fixed:-1", "adaptive:other", "read,mru", "index:3", ",lru"] {
            assert!(text.parse::<CacheSetting>().unwrap_err().contains("fixed:PERCENT"), "{text}");
        }
        for code in [0, 4, 3 | 101 << 8, 1 | 1 << 8, 1 | 2 << 16] {
            assert_eq!(CacheSetting::decode(code), None);
        }
    }

    /// Looks until nothing changes, with the same hits in each interval.
    fn settle(rule: Rule, index: &[(usize, u64)], read: &[(usize, u64)], mut share: u32) -> u32 {
        let mut controller = PartitionController::new();
        for _ in 0..200 {
            for (list, hits) in [(Hits::Index, index), (Hits::ReadAgain, read)] {
                hits.iter().for_each(|&(segment, hits)| controller.count_hits(list, segment, hits));
            }
            share = controller.look(rule, &LIMITS, share);
        }
        share
    }

    #[test]
    fn curves_find_the_best_partition_also_behind_a_cliff() {
        // The index has all its hits within a tenth; the read cache gets many only with 80 percent.
        let (index, read) = ([(0, 50), (1, 50)], [(0, 10), (15, 90)]);
        for share in [50, 500, 950] {
            let settled = settle(Rule::Curves, &index, &read, share);
            assert!((100..=200).contains(&settled), "{share}: {settled}");
        }
        // The paper's rule divides by hits: an equal part for the index, regardless of its need.
        assert!((470..=530).contains(&settle(Rule::Paper, &index, &read, 500)));
    }

    #[test]
    fn who_has_no_hits_at_all_gets_the_least() {
        for rule in [Rule::Curves, Rule::Paper] {
            assert_eq!(settle(rule, &[], &[(18, 5)], 500), LEAST);
            assert_eq!(settle(rule, &[(18, 5)], &[], 500), 1000 - LEAST);
            assert_eq!(settle(rule, &[], &[], 430), 430);
        }
    }

    #[test]
    fn hits_count_by_what_they_are_worth() {
        let all: Vec<(usize, u64)> = (0..SEGMENTS).map(|segment| (segment, 100)).collect();
        let look = |hit_costs| {
            let mut controller = PartitionController::new();
            for (list, &(segment, hits)) in
                [Hits::Index, Hits::ReadAgain].into_iter().flat_map(|list| all.iter().map(move |hits| (list, hits)))
            {
                controller.count_hits(list, segment, hits);
            }
            controller.look(Rule::Curves, &CacheLimits { hit_costs, ..LIMITS }, 500)
        };
        assert_eq!([look([1, 1]), look([3, 1]), look([1, 3])], [500, 600, 400]);
    }

    /// Guards against moves by chance: on a steady load the partition once moved to the side with a few more sampled hits in the last two looks, and
    /// lost cached blocks with each move.
    #[test]
    fn a_difference_that_may_be_chance_moves_nothing_until_it_has_lasted() {
        let limits = CacheLimits { sampled_one_in: 64, ..LIMITS };
        // Two sampled hits of the index for memory that gives the read cache 20: chance, if seen a few times.
        let look = |controller: &mut PartitionController, share| {
            controller.count_hits(Hits::Index, 10, 2 * 64);
            controller.count_hits(Hits::ReadAgain, 9, 20);
            controller.look(Rule::Curves, &limits, share)
        };
        let mut controller = PartitionController::new();
        assert_eq!((0..3).map(|_| look(&mut controller, 500)).max(), Some(500));
        // If it continues, it is not chance; the share then ends where all these hits are had.
        let mut controller = PartitionController::new();
        let mut share = 500;
        (0..400).for_each(|_| share = look(&mut controller, share));
        assert_eq!(share, 550);
    }

    #[test]
    fn a_change_of_phase_is_followed_at_once_whatever_lasted_before() {
        let mut controller = PartitionController::new();
        let mut share = 500;
        let mut look = |list, share| {
            (0..SEGMENTS - 1).for_each(|segment| controller.count_hits(list, segment, 50));
            controller.look(Rule::Curves, &LIMITS, share)
        };
        (0..400).for_each(|_| share = look(Hits::Index, share));
        assert_eq!(share, 1000 - LEAST);
        (0..10).for_each(|_| share = look(Hits::ReadAgain, share));
        assert_eq!(share, LEAST);
    }

    #[test]
    fn a_read_cache_of_two_lists_hits_what_the_best_partition_of_it_hits() {
        let (mut once, mut again) = ([0; SEGMENTS], [0; SEGMENTS]);
        (once[0], once[3], again[0], again[1]) = (5, 100, 30, 7);
        let merged = merged(&once, &again);
        // 30; 37; 42; then four segments of the first list, and one of the other.
        assert_eq!(merged[..6], [30, 7, 5, 63, 30, 7]);
        assert_eq!(merged.iter().sum::<u64>(), 142);
    }

    #[test]
    fn the_literal_rule_is_that_of_the_paper() {
        // Twice the hits on half the memory: four times the benefit, four units.
        assert_eq!(paper_share([200, 100], 333, 10), 333 + 40);
        assert_eq!(paper_share([100, 100], 200, 10), 240);
        assert_eq!(paper_share([100, 100], 800, 10), 760);
        // Nothing on the other side: the ratio is 10, and a turn is a tenth at most.
        assert_eq!(paper_share([5, 0], 300, 10), 400);
        assert_eq!(paper_share([0, 5], 300, 5), 250);
        assert_eq!(paper_share([90, 10], 500, 20), 600);
    }

    proptest! {
        /// Checks that a look never moves further than allowed, never beyond the least share of a side, and never towards a worse partition.
        #[test]
        fn every_look_stays_within_its_bounds(
            hits in proptest::collection::vec((0u64..1000, 0u64..1000), SEGMENTS), share in 0u32..=1000, paper: bool, once: bool,
        ) {
            let mut controller = PartitionController::new();
            for (segment, (index, read)) in hits.into_iter().enumerate() {
                controller.count_hits(Hits::Index, segment, index);
                controller.count_hits(if once { Hits::ReadOnce } else { Hits::ReadAgain }, segment, read);
            }
            let rule = if paper { Rule::Paper } else { Rule::Curves };
            let aim = controller.look(rule, &LIMITS, share);
            prop_assert!((LEAST..=1000 - LEAST).contains(&aim));
            prop_assert!(aim.abs_diff(share.clamp(LEAST, 1000 - LEAST)) <= MOST_STEP);
        }
    }
}
