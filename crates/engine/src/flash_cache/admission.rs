//! Admission: the decision which containers are on flash (PLC-Cache, MSST 2014, slides; `Rules::PAPER` is the printed rules, `Rules::for_drive`
//! ours).
//!
//! Each read of a container is an [`Admission::access`]. If it is not on flash, [`Admission::offer`] says whether it shall be, and in
//! which place. Three modules stand in the way of a write, in this order, and each can be left out:
//!
//! 1. **Popularity filter**: only containers that were read often enough pass; none when the write budget of the day is gone, if there is one.
//! 2. **Delayed eviction**: a clock goes over the places. It takes one from the priority of each that it passes; hits give one. Where none is
//!    left is the victim; but its delay goes first, one with each offer, and until it is gone the offer is refused and the hand stays.
//!    Without this module the places are victims in turn.
//! 3. **In-out comparison**: the offer must be better than the victim. If it is not, the victim gets its delay back and the hand goes on.
//!
//! What must hold: a container has at most one place, and a place is free or has one container. While a place is free, no module but
//! the filter is asked. Memory: 4 bytes a container of the pool; 16 bytes a place, and its
//! entry of a table of fixed size. Where each copy ended up is counted on the way (`quadrants.rs`).

use alloc::vec::Vec;

use super::budget::Budget;
use super::quadrants::{History, Quadrants};
use crate::api::{FlashPolicy, Nanos, PaperModules};
use crate::locality_map::NearMap;
use crate::sizes::{list_bytes, table_bytes};

/// The highest threshold that a budget sets.
const HIGHEST_THRESHOLD: u8 = 20;
/// The priorities that one offer takes at most with bounded steps: see [`Rules::most_steps`].
const MOST_STEPS: u32 = 4096;
/// Nanoseconds in which all reads of a container are one access, where reads come block by block.
const TICK: Nanos = 1_000_000_000;
/// Accesses from which on a container counts as popular in the quadrants, where the filter has no threshold: the slides' PF.thr.
const POPULAR: u8 = 5;

/// Popularity filter, by reads so far, the present one included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Filter {
    /// All containers.
    Off,
    /// Containers that were read this often (the slides' PF.thr).
    Threshold(u8),
    /// All containers while a place is free. Then a threshold that rises from 1 to 20 as the budget goes down, and none when it is gone.
    Budget {
        /// Bytes that may be written to flash in a day. One filling of all places comes on top, once.
        bytes_per_day: u64,
    },
}

/// Rule by which an offer is better than a victim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Comparison {
    /// Always.
    Off,
    /// If more files refer to it, or if its reads exceed `tenths` tenths of the victim's (the slides: `b.rc > a.rc or b.ac > m * a.ac`).
    Either {
        /// The slides' IOC.m, in tenths.
        tenths: u16,
    },
    /// If it was read more often, by at least `margin`.
    Counts {
        /// The least difference of reads; at least 1.
        margin: u8,
        /// True if one less is enough for an offer to which more files refer.
        references: bool,
    },
}

/// Rule by which all counts are halved, so that containers that were popular once give way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ageing {
    /// Never.
    Never,
    /// After N accesses for each place.
    Always(u32),
    /// After N accesses for each place; only accesses while no place is free count.
    WhileFull(u32),
}

/// Rules that decide which containers are copied to flash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    /// The popularity filter.
    pub filter: Filter,
    /// Delayed eviction: offers until a victim is evicted (the slides' delay_count). 0: the module is off.
    pub delay: u8,
    /// The in-out comparison.
    pub comparison: Comparison,
    /// Ageing of counts.
    pub ageing: Ageing,
    /// The time in nanoseconds within which reads of a container count once. 0: each counts.
    pub tick: Nanos,
    /// Most places that one offer passes; if there is no victim among them, it is refused.
    pub most_steps: u32,
}

impl Rules {
    /// The rules of the slides: PF.thr = 5, m = 1.5. They do not give the initial delay_count (3 here) and have no ageing.
    pub const PAPER: Rules = Rules {
        filter: Filter::Threshold(PaperModules::SLIDES.filter),
        delay: PaperModules::SLIDES.delay,
        comparison: Comparison::Either { tenths: PaperModules::SLIDES.comparison },
        ageing: Ageing::Never,
        tick: 0,
        most_steps: u32::MAX,
    };
    /// No module: the oldest goes.
    pub const NONE: Rules = Rules { filter: Filter::Off, delay: 0, comparison: Comparison::Off, ..Rules::PAPER };

    /// Returns our rules for flash of `bytes` bytes, which may be written once a day.
    pub const fn for_drive(bytes: u64) -> Rules {
        Rules {
            filter: Filter::Budget { bytes_per_day: bytes },
            delay: 1,
            comparison: Comparison::Counts { margin: 1, references: false },
            ageing: Ageing::WhileFull(300),
            tick: TICK,
            most_steps: MOST_STEPS,
        }
    }

    /// Returns the rules that a pool's property asks for, before flash whose own rules are `drive`. The paper's modules work in bounded steps, and a file that
    /// is read block by block has one access.
    pub fn of_policy(policy: FlashPolicy, drive: Rules) -> Rules {
        let FlashPolicy::Paper(PaperModules { filter, delay, comparison }) = policy else { return drive };
        Rules {
            filter: if filter == 0 { Filter::Off } else { Filter::Threshold(filter) },
            delay,
            comparison: if comparison == 0 { Comparison::Off } else { Comparison::Either { tenths: comparison } },
            tick: TICK,
            most_steps: MOST_STEPS,
            ..Rules::PAPER
        }
    }

    /// Returns the number of accesses from which on a container counts as popular.
    fn popular(&self) -> u8 {
        match self.filter {
            Filter::Threshold(threshold) => threshold.max(1),
            Filter::Off | Filter::Budget { .. } => POPULAR,
        }
    }
}

/// References of a container that are unknown so far. On flash it is spared by rules that ask for them: no newcomer has more.
pub(crate) const UNKNOWN: u16 = u16::MAX;

/// Decision about a container that was read and is not on flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It has this place now; the former content of the place is no longer there.
    Admitted {
        /// The number of the place, from 0.
        place: u32,
        /// The container that was there.
        evicted: Option<u32>,
    },
    /// It was not read often enough, or the budget is gone.
    Filtered,
    /// The victim stays for now.
    Delayed,
    /// The victim is at least as good.
    NotBetter,
}

#[derive(Clone, Copy, Default, Debug)]
struct Heat {
    /// Reads, halved by ageing.
    count: u16,
    /// The tick of the last read that counted; its lowest bits.
    tick: u8,
    history: History,
}

#[derive(Clone, Copy, Debug)]
struct Container {
    container: Option<u32>,
    /// Files that refer to it, as far as is known: at most [`UNKNOWN`].
    references: u16,
    /// The slides' inter_priority.
    priority: u8,
    /// The slides' delay_count.
    delay: u8,
}

/// Admission of containers to one flash device before one pool.
#[derive(Clone, Debug)]
pub struct Admission {
    rules: Rules,
    container_bytes: u64,
    heats: Vec<Heat>,
    places: Vec<Container>,
    place_of: NearMap<u64, u32>,
    free: Vec<u32>,
    hand: usize,
    /// Accesses that count for ageing, since the last.
    accesses: u64,
    budget: Budget,
    /// True if there is a budget. It stays in force when the rules change.
    has_budget: bool,
    quadrants: Quadrants,
}

impl Admission {
    /// Makes empty flash of `places` places, before a pool of `containers` containers.
    pub fn new(rules: Rules, containers: u32, places: u32, container_bytes: u64) -> Admission {
        let bytes_per_day = match rules.filter {
            Filter::Budget { bytes_per_day } => bytes_per_day,
            Filter::Off | Filter::Threshold(_) => 0,
        };
        let empty = Container { container: None, references: 0, priority: 0, delay: 0 };
        Admission {
            rules,
            container_bytes,
            heats: alloc::vec![Heat::default(); containers as usize],
            places: alloc::vec![empty; places as usize],
            place_of: NearMap::with_capacity_and_hasher(places as usize, Default::default()),
            free: (0..places).rev().collect(),
            hand: 0,
            accesses: 0,
            budget: Budget::new(bytes_per_day, container_bytes.saturating_mul(u64::from(places))),
            has_budget: matches!(rules.filter, Filter::Budget { .. }),
            quadrants: Quadrants::default(),
        }
    }

    /// Replaces the rules. The state of containers and places stays, and so does the budget, if there is one.
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Returns the counts of copies so far, those included that [`Admission::restore`] found, by the later use of their containers.
    pub(crate) fn quadrants(&self) -> Quadrants {
        self.quadrants
    }

    /// Counts a copy of a container that is complete.
    pub(crate) fn note_copied(&mut self, container: u32) {
        if let Some(heat) = self.heats.get_mut(container as usize) {
            self.quadrants.note_copied(&mut heat.history);
        }
    }

    /// Returns a container's place on flash, if it has one.
    pub fn place(&self, container: u32) -> Option<u32> {
        self.place_of.get(&u64::from(container)).copied()
    }

    /// Counts a read of a container, and returns its place on flash, if it has one. A read of a container that the pool does not have has no effect.
    pub fn access(&mut self, now: Nanos, container: u32) -> Option<u32> {
        let tick = now.checked_div(self.rules.tick).unwrap_or_default() as u8;
        let heat = self.heats.get_mut(container as usize)?;
        let counts = self.rules.tick == 0 || heat.count == 0 || heat.tick != tick;
        if counts {
            (heat.count, heat.tick) = (heat.count.saturating_add(1), tick);
            if heat.count >= self.rules.popular().into() {
                self.quadrants.note_popular(&mut heat.history);
            }
            self.age();
        }
        let place = self.place(container)?;
        if counts {
            let priority = &mut self.places[place as usize].priority;
            *priority = priority.saturating_add(1);
        }
        Some(place)
    }

    /// Returns true if the filter lets a container pass that is not on flash: only such a one is worth an [`Admission::offer`].
    pub fn passes(&mut self, now: Nanos, container: u32) -> bool {
        let Some(heat) = self.heats.get(container as usize).copied() else { return false };
        self.budget.pass(now);
        let is_spent = self.has_budget && self.budget.left() < self.container_bytes;
        let is_here = self.places.is_empty() || self.place(container).is_some();
        !is_here && !is_spent && heat.count >= self.threshold().into()
    }

    /// Returns true if [`Admission::offer`] needs the number of files that refer to a container.
    pub(crate) fn asks_for_references(&self) -> bool {
        matches!(self.rules.comparison, Comparison::Either { .. } | Comparison::Counts { references: true, .. })
    }

    /// Decides if a container that was just read and is not on flash shall be; `references` files refer to it. `known` has that number for the victim, if it
    /// can be had at once; else the number from the victim's admission counts.
    pub fn offer(
        &mut self,
        now: Nanos,
        container: u32,
        references: u16,
        known: impl FnOnce(u32) -> Option<u16>,
    ) -> Verdict {
        if !self.passes(now, container) {
            return Verdict::Filtered;
        }
        if let Some(place) = self.free.pop() {
            return self.admit(place as usize, container, references, None);
        }
        let Some(victim) = self.victim() else { return Verdict::Delayed };
        let Some(evicted) = self.places[victim].container else {
            unreachable!("no place is free, but place {victim} is empty")
        };
        let its_references = known(evicted).unwrap_or(self.places[victim].references);
        self.places[victim].references = its_references;
        let (count, its_count) = (self.heats[container as usize].count, self.heats[evicted as usize].count);
        self.step();
        if !self.rules.comparison.prefers((count, references), (its_count, its_references)) {
            self.places[victim].delay = self.rules.delay;
            return Verdict::NotBetter;
        }
        self.place_of.remove(&u64::from(evicted));
        self.admit(victim, container, references, Some(evicted))
    }

    /// Frees the place of a container whose content has changed.
    pub fn remove(&mut self, container: u32) {
        if let Some(place) = self.place_of.remove(&u64::from(container)) {
            self.places[place as usize].container = None;
            self.free.push(place);
        }
    }

    /// Restores places that have these containers already, in order, each once; and the bytes of the budget that were left. Call it before anything else.
    pub(crate) fn restore(&mut self, now: Nanos, held: &[(u32, u32)], budget: Option<u64>) {
        if let Some(left) = budget {
            self.budget.restore(now, left);
        }
        for &(place, container) in held {
            let delay = self.rules.delay;
            self.places[place as usize] =
                Container { container: Some(container), references: UNKNOWN, priority: 1, delay };
            self.place_of.insert(u64::from(container), place);
            self.note_copied(container);
        }
        let places = &self.places;
        self.free.retain(|&place| places[place as usize].container.is_none());
    }

    /// Makes space for the counts of a pool that has `containers` containers by now.
    pub(crate) fn grow(&mut self, containers: u32) {
        self.heats.resize(containers as usize, Heat::default());
    }

    /// Returns the bytes that the budget leaves by now; 0 without a budget.
    pub(crate) fn budget_left(&self, now: Nanos) -> u64 {
        let mut budget = self.budget;
        budget.pass(now);
        if self.has_budget { budget.left() } else { 0 }
    }

    /// Returns the bytes of memory of the tables.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.heats) + list_bytes(&self.places) + list_bytes(&self.free) + table_bytes(&self.place_of)
    }

    /// Returns the number of reads that the filter asks for now. When the budget is gone they do not help.
    pub fn threshold(&self) -> u8 {
        match self.rules.filter {
            Filter::Off => 0,
            Filter::Threshold(threshold) => threshold,
            Filter::Budget { .. } if !self.free.is_empty() => 0,
            Filter::Budget { .. } => self.budget.spent(HIGHEST_THRESHOLD).max(1),
        }
    }

    /// Halves all counts when that is due.
    fn age(&mut self) {
        let accesses = match self.rules.ageing {
            Ageing::Never => return,
            Ageing::WhileFull(_) if !self.free.is_empty() => return,
            Ageing::Always(accesses) | Ageing::WhileFull(accesses) => accesses,
        };
        self.accesses += 1;
        if self.accesses >= u64::from(accesses) * self.places.len() as u64 {
            self.accesses = 0;
            self.heats.iter_mut().for_each(|heat| heat.count /= 2);
        }
    }

    /// Finds the place of the next victim, at which the hand then stands.
    fn victim(&mut self) -> Option<usize> {
        if self.rules.delay == 0 {
            return Some(self.hand);
        }
        let mut steps = self.rules.most_steps;
        loop {
            let place = &mut self.places[self.hand];
            place.priority = place.priority.saturating_sub(1);
            if place.priority == 0 {
                place.delay = place.delay.saturating_sub(1);
                return (place.delay == 0).then_some(self.hand);
            }
            self.step();
            steps = steps.checked_sub(1)?;
        }
    }

    fn step(&mut self) {
        self.hand = (self.hand + 1) % self.places.len();
    }

    fn admit(&mut self, place: usize, container: u32, references: u16, evicted: Option<u32>) -> Verdict {
        // The filter has checked that the budget suffices, if there is one.
        let _ = self.budget.take(self.container_bytes);
        self.places[place] = Container { container: Some(container), references, priority: 1, delay: self.rules.delay };
        self.place_of.insert(u64::from(container), place as u32);
        Verdict::Admitted { place: place as u32, evicted }
    }
}

impl Comparison {
    /// Returns true if an offer is better than a victim, by reads and references of both.
    fn prefers(self, (count, references): (u16, u16), (its_count, its_references): (u16, u16)) -> bool {
        match self {
            Comparison::Off => true,
            Comparison::Either { tenths } => {
                references > its_references || u32::from(count) * 10 > u32::from(tenths) * u32::from(its_count)
            }
            Comparison::Counts { margin, references: decide } => {
                let margin = if decide && references > its_references { margin.saturating_sub(1) } else { margin };
                count >= its_count.saturating_add(margin.into())
            }
        }
    }
}
