//! The flash in front of the store: a disk of its own, with power cuts and faults of its own.
//!
//! The oracle's rule: no event of the flash explains an error, a read-only pool, or a loss, because none of them counts as a strike on the store. A wrong
//! block read from the flash is a violation, unless one of its own reads, writes or syncs failed, or one of its blocks rotted. An older copy of the flash,
//! the copy of another one, or an absence at an opening explains nothing.

use engine::admission::{Comparison, Filter, Rules};
use engine::{FlashParameters, Geometry, Nanos};

use crate::content::{Content, ZERO};
use crate::random::Random;
use crate::world::disk::{Cut, Disk};

/// Earlier states of a flash that may come back.
const EARLIER: usize = 4;

/// Longest time that a hanging I/O takes, unless it is let go earlier.
pub(super) const LONGEST_HANG: Nanos = 8_000_000_000;

/// Configuration of the flash, fixed when a run begins.
#[derive(Clone, Copy, Debug)]
pub struct FlashConfig {
    /// Places for containers.
    pub places: u32,
    /// Rules that decide which containers are copied.
    pub rules: Rules,
    /// True if the flash may fail, rot, go away, and come back in an earlier state.
    pub is_nasty: bool,
}

impl FlashConfig {
    /// Draws a configuration by chance.
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

    /// Returns a configuration without a filter, with the slides' clock: every container read is copied, and the oldest is evicted.
    pub fn greedy(places: u32) -> FlashConfig {
        FlashConfig { places, rules: Rules::NONE, is_nasty: false }
    }
}

/// Faults that strike the flash until the next opening.
#[derive(Clone, Copy, Default, Debug)]
struct Trouble {
    /// Number of I/Os left before all fail; `None`: unlimited.
    gone_after: Option<u64>,
    /// Share of I/Os that fail: one in N; 0: none.
    failing: u64,
    /// Share of I/Os with which a block rots: one in N; 0: none.
    rotting: u64,
    /// Share of I/Os that hang: one in N; 0: none.
    hanging: u64,
}

/// The flash.
#[derive(Clone, Debug)]
pub struct Flash {
    /// Content of the flash.
    pub disk: Disk,
    config: FlashConfig,
    earlier: Vec<Disk>,
    /// True while the engine has no flash. I/O that the engine requested before still completes.
    is_away: bool,
    /// True once the engine has been told that the flash hangs.
    is_late: bool,
    /// True once the engine has issued all its I/O after the flash went away or was reported to hang: it requests nothing more.
    is_left_alone: bool,
    /// Number of places that the engine is told of.
    places: u32,
    /// True if it is away for the next opening.
    stays_away: bool,
    trouble: Trouble,
    /// Number of faults that ever struck the flash.
    struck: u64,
    pub(super) random: Random,
}

impl Flash {
    /// Creates empty flash for a pool of this geometry.
    pub fn new(config: FlashConfig, geometry: &Geometry, seed: u64) -> Flash {
        // The log takes fewer blocks.
        let blocks = 96 + u64::from(config.places) * u64::from(geometry.slots_per_container);
        let disk = Disk::new(geometry.block_size, blocks);
        let random = Random::new(seed ^ 0x0066_6c61_7368);
        let (earlier, trouble) = (Vec::new(), Trouble::default());
        let (is_away, is_late, is_left_alone, stays_away) = (false, false, false, false);
        let places = config.places;
        Flash { disk, config, earlier, is_away, is_late, is_left_alone, places, stays_away, trouble, struck: 0, random }
    }

    /// Applies a crash of its own: the flash comes back unchanged, in an earlier state, or not at all for a while.
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

    /// Keeps the present content, to come back at a later crash.
    fn keep(&mut self, random: &mut Random) {
        self.earlier.push(self.disk.clone());
        if self.earlier.len() > EARLIER {
            self.earlier.remove(random.below(EARLIER as u64) as usize);
        }
    }

    /// Returns true if the engine has no flash.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away
    }

    /// Notes that the engine was told to work without flash.
    pub(super) fn leave(&mut self) {
        self.is_away = true;
    }

    /// Notes that the engine was told that the flash hangs.
    pub(super) fn give_up(&mut self) {
        self.is_late = true;
    }

    /// Notes that the engine has issued all its I/O: from here on flash that is away or hangs gets no requests.
    pub(super) fn all_is_said(&mut self) {
        self.is_left_alone = self.is_away || self.is_late;
    }

    /// Returns true if the engine may still issue I/O to it.
    pub(super) fn may_be_asked(&self) -> bool {
        !self.is_left_alone
    }

    /// Brings the flash back, unchanged or in an earlier state, perhaps with another number of places, and returns its parameters for the engine.
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

    /// Takes it away for the next opening; after that it comes back unchanged.
    pub fn stay_away(&mut self) {
        self.stays_away = true;
    }

    /// Fails all I/O after the next `ios`, until the next opening.
    pub fn fail_after(&mut self, ios: u64) {
        self.trouble.gone_after = Some(ios);
    }

    /// Makes one I/O in `one_in` hang, until the next opening.
    pub fn hang(&mut self, one_in: u64) {
        self.trouble.hanging = one_in;
    }

    /// Draws the time that an I/O which begins hangs, if it does.
    pub(super) fn hangs(&mut self) -> Option<Nanos> {
        let hanging = self.trouble.hanging;
        (hanging > 0 && self.random.one_in(hanging)).then(|| {
            let forever = self.random.one_in(3);
            if forever { LONGEST_HANG } else { self.random.below(LONGEST_HANG) }
        })
    }

    /// Ends the faults. Rotten blocks stay so.
    pub(crate) fn lift(&mut self) {
        self.trouble = Trouble::default();
    }

    /// Returns the parameters that the engine gets, with a new nonce; `None` while it is away.
    pub(super) fn parameters(&mut self) -> Option<FlashParameters> {
        let (places, rules) = (self.places, self.config.rules);
        let (blocks, nonce) = (self.disk.blocks(), self.random.draw());
        (!self.is_away).then_some(FlashParameters { blocks, most_places: places, nonce, rules })
    }

    /// Returns true if any fault ever struck it.
    pub(super) fn was_struck(&self) -> bool {
        self.struck > 0
    }

    /// Returns true if an I/O that begins fails; a block may rot instead.
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
