//! Arrival times of a day's requests: bursts, and idle time between them. The day's hours stretch the idle time.

use engine::Nanos;

use super::draws::{chance, exponential, lognormal, unit};
use super::profile::Shape;
use sim::random::Random;

/// A day.
pub(super) const DAY: Nanos = 86_400_000_000_000;

/// Shortest idle time between bursts. A shorter pause is part of a burst.
const IDLE: f64 = 0.1;

/// Planned part of the day; the rest is for bursts that last longer than foreseen.
const FILL: f64 = 0.99;

/// Share of bursts that a long idle time follows, where bursts as close as the sample's would be over before the day is.
const LULLS: f64 = 0.02;

/// Seconds from the end of a request to the next one of the burst: median and 90th percentile; the constant below is the maximum. [D]
const NEXT: (f64, f64) = (0.000_4, 0.003);
const NEXT_MOST: f64 = 0.05;

/// A burst: how long nothing comes before it, and its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) idle: Nanos,
    pub(super) requests: u64,
}

/// Plans the bursts of a day with `requests` requests, of the shape's mean size.
pub(super) fn plan(shape: &Shape, random: &mut Random, requests: u64) -> Vec<Burst> {
    let mut bursts: Vec<(f64, bool, u64)> = Vec::new();
    let mut left = requests;
    while left > 0 {
        let length = match shape.long {
            (share, low, high) if chance(random, share) => low * libm::pow(high / low, unit(random)),
            _ => lognormal(random, shape.burst),
        };
        let length = (libm::round(length) as u64).clamp(1, left);
        left -= length;
        bursts.push((lognormal(random, (shape.idle.0 - IDLE, shape.idle.1 - IDLE)), chance(random, LULLS), length));
    }
    let blocks = shape.mean_kib / 4.0;
    let busy = requests as f64 * (blocks * shape.record_gap_us as f64 / 1e6 + mean_next());
    let space = (DAY as f64 / 1e9 * FILL - busy - IDLE * bursts.len() as f64).max(1.0);
    let sum: f64 = bursts.iter().map(|(idle, _, _)| idle).sum();
    if sum < space {
        // Long lulls fill the day; the other times stay as they are in the sample.
        let lulls: Vec<f64> =
            bursts.iter().map(|&(_, is_lull, _)| if is_lull { exponential(random) } else { 0.0 }).collect();
        let all: f64 = lulls.iter().sum::<f64>().max(1e-9);
        bursts.iter_mut().zip(lulls).for_each(|((idle, _, _), lull)| *idle += lull * (space - sum) / all);
    }
    // Nights are quieter. Afterwards all pauses are scaled to the day.
    let mut at = 0.0;
    for (idle, _, _) in &mut bursts {
        let hour = at / space * 24.0;
        at += *idle * space / sum.max(space);
        *idle *= 1.0 + 0.4 * libm::cos(2.0 * std::f64::consts::PI * (hour - 3.0) / 24.0);
    }
    let sum: f64 = bursts.iter().map(|(idle, _, _)| idle).sum();
    let fit = space / sum;
    let nanos = |seconds: f64| (seconds * 1e9) as Nanos;
    bursts.iter().map(|&(idle, _, requests)| Burst { idle: nanos(IDLE + idle * fit) + 1, requests }).collect()
}

/// Draws the time from the end of a request to the next one of its burst.
pub(super) fn next(random: &mut Random) -> Nanos {
    (lognormal(random, NEXT).min(NEXT_MOST) * 1e9) as Nanos
}

/// Returns the mean of that time, nearly: of a lognormal distribution.
fn mean_next() -> f64 {
    let deviation = libm::log(NEXT.1 / NEXT.0) / 1.2816;
    NEXT.0 * libm::exp(deviation * deviation / 2.0)
}
