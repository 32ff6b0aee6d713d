//! Calibrated run: the slides with the four quadrants fit it, and it predicts the numbers of the other slides.
//!
//! The slides give neither the size of the cache nor the length of that run. Of PLC-Cache's parameters they give only those of an example. [`SLIDES`] was
//! chosen so that the numbers of both slides come out. It was not fitted to anything else: time, write rates, the threshold. It counts a container as popular
//! by two measures, as one measure does not match both slides. With LRU a container is popular from 5 reads on, with PLC-Cache from the threshold of its
//! filter. [`ONE_MEASURE`] is the nearest calibration found with one measure; it needs a flatter law.

use engine::admission::{Comparison, Filter, Rules};

use super::Workload;
use crate::flash_cache::policies::Policy;
use crate::flash_cache::workload::{Shape, Unit};
use crate::flash_cache::{Handling, Outcome, Quadrants, Setup};

/// Chosen values.
#[derive(Clone, Copy)]
pub(super) struct Calibration {
    /// Name of the calibration.
    pub name: &'static str,
    /// Data and reads.
    pub shape: Shape,
    /// The cache, in ten-thousandths of the data.
    cache: u64,
    /// PF.thr.
    pub threshold: u8,
    /// IOC.m, in tenths.
    tenths: u16,
    /// Reads from which on a container is popular, with LRU and with PLC-Cache.
    pub popular: [u32; 2],
}

/// The one that is judged.
pub(super) const SLIDES: Calibration = Calibration {
    name: "calibrated",
    shape: Shape { unit: Unit::Containers, read_bytes: 93 << 30, others: 2.0, ..Shape::SLIDES },
    cache: 100,
    threshold: 3,
    tenths: 15,
    popular: [5, 3],
};

/// Nearest calibration with one measure of popularity.
pub(super) const ONE_MEASURE: Calibration = Calibration {
    name: "one measure of popular",
    shape: Shape { unit: Unit::Containers, read_bytes: 60 << 30, alpha: 0.8, others: 8.0, ..Shape::SLIDES },
    cache: 100,
    threshold: 3,
    tenths: 12,
    popular: [3, 3],
};

/// Seeds of the runs. The short form has the first alone.
const SEEDS: [u64; 3] = [1, 2, 3];

/// Mean results over all seeds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    /// GiB written to flash.
    pub written_gib: f64,
    /// Their shares.
    pub quadrants: Quadrants,
    /// Hits in percent of reads.
    pub hit_percent: f64,
    /// Time of all reads, in runs with disks.
    pub seconds: f64,
    /// Reads that each module refused: filter, delay, comparison.
    pub refused: [f64; 3],
}

impl Mean {
    /// Returns the rate of writing in MiB a second.
    pub fn mib_per_second(&self) -> f64 {
        self.written_gib * 1024.0 / self.seconds
    }

    fn add(&mut self, outcome: &Outcome, part: f64) {
        self.written_gib += part * outcome.written_gib();
        self.hit_percent += part * outcome.hit_percent();
        self.seconds += part * outcome.nanos as f64 / 1e9;
        let (mean, one) = (&mut self.quadrants, outcome.quadrants);
        mean.popular_once += part * one.popular_once;
        mean.popular_repeatedly += part * one.popular_repeatedly;
        mean.unpopular += part * one.unpopular;
        for (mean, refused) in self.refused.iter_mut().zip(outcome.refused) {
            *mean += part * refused as f64;
        }
    }
}

/// A policy, the reads from which on a container counts as popular, and readers at once.
pub(super) type Case = (Policy, u32, u32);

impl Calibration {
    /// Returns the slides' rules with the chosen threshold and factor, and no delay beyond the clock's.
    pub fn rules(&self) -> Rules {
        let comparison = Comparison::Either { tenths: self.tenths };
        Rules { filter: Filter::Threshold(self.threshold), delay: 1, comparison, ..Rules::PAPER }
    }

    /// Returns the bytes of the cache.
    pub fn cache_bytes(&self) -> u64 {
        self.shape.bytes * self.cache / 10_000
    }

    /// Returns the cases of LRU and PLC-Cache.
    pub fn pair(&self) -> [Case; 2] {
        [(Policy::Lru, self.popular[0], 1), (Policy::Plc(self.rules()), self.popular[1], 1)]
    }

    /// Measures the cases, with or without disks, in the mean of all seeds.
    pub fn measure(&self, cases: &[Case], disks: Option<Handling>, quick: bool) -> Vec<Mean> {
        let seeds = if quick { &SEEDS[..1] } else { &SEEDS };
        let mut means = vec![Mean::default(); cases.len()];
        for &seed in seeds {
            let workload = Workload::new(Shape { seed, ..self.shape });
            let setup = |&(policy, popular, clients): &Case| Setup {
                popular,
                disks,
                clients,
                ..Setup::new(policy, self.cache_bytes())
            };
            let outcomes = workload.run(&cases.iter().map(setup).collect::<Vec<_>>());
            for (mean, outcome) in means.iter_mut().zip(&outcomes) {
                mean.add(outcome, 1.0 / seeds.len() as f64);
            }
        }
        means
    }
}
