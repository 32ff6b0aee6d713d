//! Random draws from the distributions of the stand-ins. They use only integers, exact floating-point steps and `libm`, so every machine gets the same values.

use sim::random::Random;

/// The 90th percentile of the standard normal distribution.
const P90: f64 = 1.281_551_565_544_600_4;

/// Draws a number from 0 to below 1, in steps of 2^-53.
pub(crate) fn unit(random: &mut Random) -> f64 {
    (random.draw() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns true with this probability.
pub(crate) fn chance(random: &mut Random, probability: f64) -> bool {
    unit(random) < probability
}

/// Draws from an exponential distribution of mean 1.
pub(crate) fn exponential(random: &mut Random) -> f64 {
    -libm::log(1.0 - unit(random))
}

/// Draws from a lognormal distribution with this median and 90th percentile.
pub(crate) fn lognormal(random: &mut Random, (p50, p90): (f64, f64)) -> f64 {
    // Box and Muller; the second value is not used.
    let radius = libm::sqrt(2.0 * exponential(random));
    let normal = radius * libm::cos(2.0 * std::f64::consts::PI * unit(random));
    p50 * libm::exp(normal * libm::log(p90 / p50) / P90)
}

/// Draws a number from 1 on, geometric, of this mean.
pub(crate) fn geometric(random: &mut Random, mean: f64) -> u32 {
    if mean <= 1.0 {
        return 1;
    }
    1 + (exponential(random) / -libm::log(1.0 - 1.0 / mean)) as u32
}

/// Draws a number from 0 to below `count`, as Zipf with exponent 1: the logarithm of the rank is uniform.
pub(crate) fn zipf(random: &mut Random, count: u64) -> u64 {
    let rank = libm::pow(count as f64, unit(random));
    (rank as u64).clamp(1, count) - 1
}

/// Pareto with bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pareto {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) exponent: f64,
}

impl Pareto {
    /// Computes the inverse distribution function.
    fn quantile(self, unit: f64) -> f64 {
        let rest = 1.0 - unit * (1.0 - libm::pow(self.low / self.high, self.exponent));
        self.low * libm::pow(rest, -1.0 / self.exponent)
    }

    /// Draws a value, rounded down.
    pub(super) fn draw(self, random: &mut Random) -> u32 {
        (self.quantile(unit(random)) as u32).clamp(self.low as u32, self.high as u32)
    }

    /// Returns the mean of the values of [`Pareto::draw`], nearly.
    pub(super) fn mean(self) -> f64 {
        const STEPS: u32 = 4096;
        let at = |step: u32| libm::floor(self.quantile((f64::from(step) + 0.5) / f64::from(STEPS)));
        (0..STEPS).map(at).sum::<f64>() / f64::from(STEPS)
    }
}
