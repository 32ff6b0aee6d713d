//! iCache (POD, section 3.4): how memory is divided between the index and the read cache. The rule alone, as a pure function of
//! what was hit at which depth; `partition.rs` carries it out.
//!
//! Every so many requests the rule looks at the hits in both caches and their ghosts, and moves the boundary a little.
//!
//! - **paper**: Algorithm 1. The hits of each side, in the cache and its ghosts, are divided by the side's size; the side with
//!   more grows, by a unit times the ratio.
//! - **curves**, the default: the hits of each side are known by the depth that they were found at, so what every
//!   division would have hit is known; the boundary moves towards the best. (Hits per size, as in the paper, say how much is hit
//!   and not how much more a larger cache would hit: a small set that is read all the time draws memory that it cannot use.)

use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::contract::Nanos;
use crate::ghosts::SEGMENTS;

/// Thousandths of the divisible memory in a segment.
const SEGMENT: u32 = 1000 / SEGMENTS as u32;
/// No side gets less, where the division adapts; thousandths.
pub(crate) const LEAST: u32 = 50;
/// The boundary moves at most so far at once; thousandths.
const MOST_TURN: u32 = 100;
/// What dividing by zero comes to (in thousandths).
const RATIO_OF_NONE: u64 = 10_000;
/// How much better a division must be than the one in force: one part in so many.
const WORTH: u64 = 10;
/// Changes of the division that are remembered.
const HISTORY: usize = 64;

/// How the memory that index and read cache share is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Division {
    /// By what is hit.
    Adaptive(Rule),
    /// So many percent are the index.
    Fixed(u8),
}

/// What the division follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rule {
    /// What each division would have hit.
    #[default]
    Curves,
    /// Hits per size: POD's Algorithm 1.
    Paper,
}

/// What the read cache evicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replacement {
    /// As ARC says.
    #[default]
    Arc,
    /// What was used least recently.
    Lru,
}

/// How the index and the read cache are managed. Written `adaptive`, `adaptive:paper`, `fixed:PERCENT`, `index` or `read`, with
/// `,lru` behind it for LRU in place of ARC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheSetting {
    /// Who gets how much.
    pub division: Division,
    /// What the read cache evicts.
    pub replacement: Replacement,
}

impl Default for CacheSetting {
    fn default() -> CacheSetting {
        CacheSetting { division: Division::Adaptive(Rule::Curves), replacement: Replacement::Arc }
    }
}

impl CacheSetting {
    /// In four bytes; never 0.
    pub(crate) fn encode(self) -> u32 {
        let (kind, percent) = match self.division {
            Division::Adaptive(Rule::Curves) => (1, 0),
            Division::Adaptive(Rule::Paper) => (2, 0),
            Division::Fixed(percent) => (3, u32::from(percent)),
        };
        kind | percent << 8 | u32::from(self.replacement == Replacement::Lru) << 16
    }

    /// What was encoded; `None` for what cannot be.
    pub(crate) fn decode(code: u32) -> Option<CacheSetting> {
        let division = match (code & 0xff, code >> 8 & 0xff) {
            (1, 0) => Division::Adaptive(Rule::Curves),
            (2, 0) => Division::Adaptive(Rule::Paper),
            (3, percent @ 0..=100) => Division::Fixed(percent as u8),
            _ => return None,
        };
        let replacement = match code >> 16 {
            0 => Replacement::Arc,
            1 => Replacement::Lru,
            _ => return None,
        };
        Some(CacheSetting { division, replacement })
    }
}

impl fmt::Display for CacheSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.division {
            Division::Adaptive(Rule::Curves) => f.write_str("adaptive")?,
            Division::Adaptive(Rule::Paper) => f.write_str("adaptive:paper")?,
            Division::Fixed(0) => f.write_str("read")?,
            Division::Fixed(100) => f.write_str("index")?,
            Division::Fixed(percent) => write!(f, "fixed:{percent}")?,
        }
        if self.replacement == Replacement::Lru { f.write_str(",lru") } else { Ok(()) }
    }
}

impl FromStr for CacheSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheSetting, String> {
        let (division, replacement) = match text.split_once(',') {
            None => (text, Some(Replacement::Arc)),
            Some((division, "lru")) => (division, Some(Replacement::Lru)),
            Some((division, "arc")) => (division, Some(Replacement::Arc)),
            Some((division, _)) => (division, None),
        };
        let division = match division.split_once(':') {
            None => match division {
                "adaptive" => Some(Division::Adaptive(Rule::Curves)),
                "index" => Some(Division::Fixed(100)),
                "read" => Some(Division::Fixed(0)),
                _ => None,
            },
            Some(("adaptive", "paper")) => Some(Division::Adaptive(Rule::Paper)),
            Some(("fixed", percent)) => {
                percent.parse().ok().filter(|&percent: &u8| percent <= 100).map(Division::Fixed)
            }
            Some(_) => None,
        };
        let setting = division.zip(replacement);
        setting.map(|(division, replacement)| CacheSetting { division, replacement }).ok_or_else(|| {
            String::from(
                "it is adaptive, adaptive:paper, fixed:PERCENT (of the index, 0 to 100), index or read, with ',lru' behind it \
                 for LRU in place of ARC",
            )
        })
    }
}

/// What iCache goes by: a part of [`crate::Limits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheLimits {
    /// Where the pool says nothing else. `None`: the division stays as the limits have it.
    pub setting: Option<CacheSetting>,
    /// Requests between two looks at the hits (the paper's N_int).
    pub interval: u32,
    /// The least that the boundary moves, in thousandths of the divisible memory (S_unit).
    pub unit: u32,
    /// One digest in so many is in the ghosts of the index. A power of two.
    pub sampled_one_in: u32,
    /// What a hit of the index is worth, and a hit of the read cache: both blocks.
    pub hit_costs: [u32; 2],
}

impl Default for CacheLimits {
    /// What a server has.
    fn default() -> CacheLimits {
        let setting = Some(CacheSetting::default());
        CacheLimits { setting, interval: 1000, unit: 10, sampled_one_in: 64, hit_costs: [1, 1] }
    }
}

/// A side of the boundary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Index = 0,
    Read = 1,
}

/// A change of the division.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DivisionChange {
    /// When.
    pub at: Nanos,
    /// Thousandths of the divisible memory that were the index from then on.
    pub index_share: u32,
}

/// Hits by depth, and what follows from them.
pub(crate) struct Controller {
    /// Requests since the last look.
    requests: u32,
    /// Hits since the last look, by side and segment.
    hits: [[u64; SEGMENTS]; 2],
    /// Those and earlier ones, which count half as much with each look.
    curves: [[u64; SEGMENTS]; 2],
    pub(crate) history: VecDeque<DivisionChange>,
}

impl Controller {
    pub(crate) fn new() -> Controller {
        let none = [[0; SEGMENTS]; 2];
        Controller { requests: 0, hits: none, curves: none, history: VecDeque::with_capacity(HISTORY) }
    }

    /// A request was carried out.
    pub(crate) fn count_request(&mut self) {
        self.requests = self.requests.saturating_add(1);
    }

    /// Blocks were hit in a segment.
    pub(crate) fn count_hits(&mut self, side: Side, segment: usize, hits: u64) {
        self.hits[side as usize][segment] += hits;
    }

    /// Whether it is time to look.
    pub(crate) fn is_due(&self, limits: &CacheLimits) -> bool {
        self.requests >= limits.interval.max(1)
    }

    /// Looks at the hits. `share` thousandths are the index now, of at most 1000; so many should be.
    pub(crate) fn look(&mut self, rule: Rule, limits: &CacheLimits, share: u32) -> u32 {
        self.requests = 0;
        let hits = core::mem::replace(&mut self.hits, [[0; SEGMENTS]; 2]);
        for (curve, hits) in self.curves.iter_mut().flatten().zip(hits.iter().flatten()) {
            // Eight times as much, so that halves of small numbers are not lost.
            *curve = *curve / 2 + hits * 8;
        }
        let costs = limits.hit_costs.map(u64::from);
        let aim = match rule {
            Rule::Curves => best_share(&self.curves, costs, share, limits.unit),
            Rule::Paper => {
                let sums = [0, 1].map(|side| hits[side].iter().sum::<u64>() * costs[side]);
                paper_share(sums, share, limits.unit)
            }
        };
        aim.clamp(LEAST, 1000 - LEAST)
    }

    /// The division has changed.
    pub(crate) fn note(&mut self, at: Nanos, index_share: u32) {
        if self.history.back().is_none_or(|last| last.index_share != index_share) {
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(DivisionChange { at, index_share });
        }
    }
}

/// Hits that a side with so many thousandths would have had. Between the ends of a segment they count by the part of it.
fn hits_within(curve: &[u64; SEGMENTS], share: u32) -> u64 {
    let whole = (share / SEGMENT) as usize;
    let part = curve.get(whole).map_or(0, |hits| hits * u64::from(share % SEGMENT) / u64::from(SEGMENT));
    curve[..whole.min(SEGMENTS)].iter().sum::<u64>() + part
}

/// A step towards the share of the index with the most hits; the nearest of those, and only if it is worth it.
fn best_share(curves: &[[u64; SEGMENTS]; 2], costs: [u64; 2], share: u32, unit: u32) -> u32 {
    let worth = |share: u32| {
        let [index, read] = curves;
        hits_within(index, share) * costs[0] + hits_within(read, 1000 - share) * costs[1]
    };
    let shares = (LEAST..=1000 - LEAST).step_by(SEGMENT as usize);
    let best = shares.max_by_key(|&other| (worth(other), core::cmp::Reverse(other.abs_diff(share)))).unwrap_or(share);
    let (now, then) = (worth(share), worth(best));
    if then <= now + now / WORTH || best.abs_diff(share) < unit {
        return share;
    }
    if best > share { share + (best - share).min(MOST_TURN) } else { share - (share - best).min(MOST_TURN) }
}

/// Algorithm 1: the side with more hits per size gets a unit times the ratio.
fn paper_share(hits: [u64; 2], share: u32, unit: u32) -> u32 {
    if hits == [0, 0] {
        return share;
    }
    let (index_size, read_size) = (u64::from(share), u64::from(1000 - share.min(1000)));
    // Hits per size, each times both sizes.
    let (index, read) = (hits[0] * read_size, hits[1] * index_size);
    let turn = |more: u64, less: u64| {
        let ratio = (more * 1000).checked_div(less).unwrap_or(RATIO_OF_NONE).min(RATIO_OF_NONE * 10);
        ((u64::from(unit) * ratio / 1000) as u32).clamp(unit, MOST_TURN.max(unit))
    };
    if index > read { (share + turn(index, read)).min(1000) } else { share.saturating_sub(turn(read, index)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
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
        let mut controller = Controller::new();
        for _ in 0..200 {
            for (side, hits) in [(Side::Index, index), (Side::Read, read)] {
                hits.iter().for_each(|&(segment, hits)| controller.count_hits(side, segment, hits));
            }
            share = controller.look(rule, &LIMITS, share);
        }
        share
    }

    #[test]
    fn curves_find_the_best_division_also_behind_a_cliff() {
        // The index has all its hits within a tenth; the read cache gets many only with 80 percent.
        let (index, read) = ([(0, 50), (1, 50)], [(0, 10), (15, 90)]);
        for share in [50, 500, 950] {
            let settled = settle(Rule::Curves, &index, &read, share);
            assert!((100..=200).contains(&settled), "{share}: {settled}");
        }
        // The paper's rule divides by hits: as many for the index, whatever it needs.
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
        let curves = [[10; SEGMENTS], [10; SEGMENTS]];
        assert_eq!(best_share(&curves, [1, 1], 500, 10), 500);
        assert_eq!(best_share(&curves, [3, 1], 500, 10), 600);
        assert_eq!(best_share(&curves, [1, 3], 500, 10), 400);
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
        /// A look never moves further than it may, never beyond the least of a side, and what it moves towards is no worse.
        #[test]
        fn every_look_stays_within_its_bounds(
            hits in proptest::collection::vec((0u64..1000, 0u64..1000), SEGMENTS), share in 0u32..=1000, paper: bool,
        ) {
            let mut controller = Controller::new();
            for (segment, (index, read)) in hits.into_iter().enumerate() {
                controller.count_hits(Side::Index, segment, index);
                controller.count_hits(Side::Read, segment, read);
            }
            let rule = if paper { Rule::Paper } else { Rule::Curves };
            let aim = controller.look(rule, &LIMITS, share);
            prop_assert!((LEAST..=1000 - LEAST).contains(&aim));
            prop_assert!(aim.abs_diff(share.clamp(LEAST, 1000 - LEAST)) <= MOST_TURN);
        }
    }
}
