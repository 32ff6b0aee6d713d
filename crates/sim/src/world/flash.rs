//! The flash in front of the store: a disk of its own, with power cuts and faults of its own.
//!
//! The oracle's rule: nothing that happens to it explains an error, a pool that is only read, or a loss, for none of that is counted among
//! what strikes the store. And a block from there that is not what it must be is a violation, unless one of its own reads, writes or
//! syncs failed, or a block of it rotted. An older copy of it, another's, or that it was away for an opening explains nothing.

use engine::admission::{Comparison, Filter, Rules};
use engine::{FlashParameters, Geometry, Nanos};

use crate::content::{Content, ZERO};
use crate::random::Random;
use crate::world::disk::{Cut, Disk};

/// Earlier states of a flash that may come back.
const EARLIER: usize = 4;

/// What hangs does so for less than that, or until it is let go.
pub(super) const LONGEST_HANG: Nanos = 8_000_000_000;

/// What a run knows of its flash from the beginning.
#[derive(Clone, Copy, Debug)]
pub struct FlashConfig {
    /// Places for containers.
    pub places: u32,
    /// What decides which containers are copied.
    pub rules: Rules,
    /// Whether it fails, rots, goes away and comes back as it was once.
    pub is_nasty: bool,
}

impl FlashConfig {
    /// Drawn by chance.
    pub fn draw(random: &mut Random) -> FlashConfig {
        let places = random.between(1, 6) as u32;
        let rules = Rules {
            filter: random.pick(&[Filter::Off, Filter::Off, Filter::Threshold(2)]),
            delay: random.pick(&[0, 0, 1, 3]),
            comparison: random.pick(&[Comparison::Off, Comparison::Counts { margin: 1, references: true }]),
            tick: random.pick(&[0, 1_000_000_000]),
            ..Rules::NONE
        };
        FlashConfig { places, rules, is_nasty: random.one_in(2) }
    }

    /// The slides' clock without a filter: whatever is read is copied, and the oldest goes.
    pub fn greedy(places: u32) -> FlashConfig {
        FlashConfig { places, rules: Rules::NONE, is_nasty: false }
    }
}

/// What strikes it until the next opening.
#[derive(Clone, Copy, Default, Debug)]
struct Trouble {
    /// After so many more I/O all fail.
    gone_after: Option<u64>,
    /// One I/O in so many fails; 0: none.
    failing: u64,
    /// With one I/O in so many a block rots; 0: none.
    rotting: u64,
    /// One I/O in so many hangs; 0: none.
    hanging: u64,
}

/// The flash.
#[derive(Clone, Debug)]
pub struct Flash {
    /// What is on it.
    pub disk: Disk,
    config: FlashConfig,
    earlier: Vec<Disk>,
    /// The engine has none. What it asked for before that still ends,
    is_away: bool,
    /// or has been told that it hangs,
    is_late: bool,
    /// and once it has said all that it wanted by then, it asks for nothing more.
    is_left_alone: bool,
    /// Places that the engine is told of.
    places: u32,
    /// It is away for the next opening.
    stays_away: bool,
    trouble: Trouble,
    /// How often something struck it, ever.
    struck: u64,
    pub(super) random: Random,
}

impl Flash {
    /// A new one, before a pool of this geometry.
    pub fn new(config: FlashConfig, geometry: &Geometry, seed: u64) -> Flash {
        // The log takes less.
        let blocks = 96 + u64::from(config.places) * u64::from(geometry.slots_per_container);
        let disk = Disk::new(geometry.block_size, blocks);
        let random = Random::new(seed ^ 0x0066_6c61_7368);
        let (earlier, trouble) = (Vec::new(), Trouble::default());
        let (is_away, is_late, is_left_alone, stays_away) = (false, false, false, false);
        let places = config.places;
        Flash { disk, config, earlier, is_away, is_late, is_left_alone, places, stays_away, trouble, struck: 0, random }
    }

    /// Crashes by itself, and comes back as it is, as it was once, or not at all for a while.
    pub(crate) fn crash(&mut self, cut: Cut, seed: u64) {
        let random = &mut Random::new(seed);
        let cut = if cut == Cut::Kill || random.one_in(3) { cut } else { random.pick(&Cut::ALL) };
        self.disk.crash(cut, random);
        (self.is_away, self.trouble) = (std::mem::take(&mut self.stays_away), Trouble::default());
        (self.is_late, self.is_left_alone) = (false, false);
        if !self.config.is_nasty {
            return;
        }
        self.keep(random);
        match random.below(6) {
            0 => self.is_away = true,
            1 => self.disk = self.earlier[random.below(self.earlier.len() as u64) as usize].clone(),
            _ => {}
        }
        self.trouble = match random.below(9) {
            0 => Trouble { gone_after: Some(random.below(300)), ..Trouble::default() },
            1 => Trouble { failing: random.pick(&[10, 100]), ..Trouble::default() },
            3 => Trouble { hanging: random.pick(&[4, 20, 100]), ..Trouble::default() },
            2 => Trouble { rotting: random.pick(&[4, 40]), ..Trouble::default() },
            _ => Trouble::default(),
        };
    }

    /// Keeps what is on it, to come back one day.
    fn keep(&mut self, random: &mut Random) {
        self.earlier.push(self.disk.clone());
        if self.earlier.len() > EARLIER {
            self.earlier.remove(random.below(EARLIER as u64) as usize);
        }
    }

    /// Whether the engine has none.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away
    }

    /// The engine has been told to do without.
    pub(super) fn leave(&mut self) {
        self.is_away = true;
    }

    /// The engine has been told that it hangs.
    pub(super) fn give_up(&mut self) {
        self.is_late = true;
    }

    /// The engine has said all that it wanted: what is away, or hangs, is asked for nothing more.
    pub(super) fn all_is_said(&mut self) {
        self.is_left_alone = self.is_away || self.is_late;
    }

    /// Whether the engine may ask for something.
    pub(super) fn may_be_asked(&self) -> bool {
        !self.is_left_alone
    }

    /// It is back: as it is, or as it was once; perhaps the engine is told of other places.
    pub(super) fn come_back(&mut self) -> Option<FlashParameters> {
        (self.is_away, self.is_late, self.is_left_alone, self.trouble.hanging) = (false, false, false, 0);
        if self.config.is_nasty {
            let random = &mut Random::new(self.random.draw());
            if random.one_in(3) {
                self.places = random.between(1, self.config.places.into()) as u32;
            }
            self.keep(random);
            if random.one_in(4) {
                self.disk = random.pick(&self.earlier.iter().collect::<Vec<_>>()).clone();
            }
        }
        self.parameters()
    }

    /// It is away for the next opening, and comes back as it is.
    pub fn stay_away(&mut self) {
        self.stays_away = true;
    }

    /// After so many more I/O all fail, until the next opening.
    pub fn fail_after(&mut self, ios: u64) {
        self.trouble.gone_after = Some(ios);
    }

    /// One I/O in so many hangs, until the next opening.
    pub fn hang(&mut self, one_in: u64) {
        self.trouble.hanging = one_in;
    }

    /// How long an I/O that begins hangs, if it does.
    pub(super) fn hangs(&mut self) -> Option<Nanos> {
        let hanging = self.trouble.hanging;
        (hanging > 0 && self.random.one_in(hanging)).then(|| {
            let forever = self.random.one_in(3);
            if forever { LONGEST_HANG } else { self.random.below(LONGEST_HANG) }
        })
    }

    /// What struck it is over. What rotted stays so.
    pub(crate) fn lift(&mut self) {
        self.trouble = Trouble::default();
    }

    /// What the engine is told of it; nothing, if it is away.
    pub(super) fn parameters(&mut self) -> Option<FlashParameters> {
        let (places, rules) = (self.places, self.config.rules);
        let (blocks, nonce) = (self.disk.blocks(), self.random.draw());
        (!self.is_away).then_some(FlashParameters { blocks, most_places: places, nonce, rules })
    }

    /// Whether anything struck it, ever.
    pub(super) fn was_struck(&self) -> bool {
        self.struck > 0
    }

    /// Whether an I/O that begins fails.
    pub(super) fn strikes(&mut self) -> bool {
        let Trouble { gone_after, failing, rotting, .. } = &mut self.trouble;
        if *rotting > 0 && self.random.one_in(*rotting) {
            let block = self.random.below(self.disk.blocks());
            let is_used = *self.disk.read(block) != Content::Payload(ZERO);
            self.struck += u64::from(is_used && self.disk.rot(block, &mut self.random));
        }
        let is_gone = gone_after.as_mut().is_some_and(|left| {
            let is_gone = *left == 0;
            *left = left.saturating_sub(1);
            is_gone
        });
        let fails = is_gone || *failing > 0 && self.random.one_in(*failing);
        self.struck += u64::from(fails);
        fails
    }
}
