//! Measurements of the clients' service: requests, bytes and latencies, about once a second while there are requests. Of the pool as a whole, and of
//! each volume that has a goal or whose mode a controller chooses.
//!
//! Owns the meters, the controllers, and the last measurements. Others act on them: the throttle of the background goes by [`Foreground::measure`],
//! and writes by the mode of their volume.
//!
//! What must hold: a request that was counted when it came is counted when it is answered, also where its volume got a meter in between. So a
//! new meter begins with the requests that are in progress.

use alloc::vec::Vec;

use crate::api::{Controller, Goal, Nanos, Timing, VolumeId};
use crate::dedup::timing::forecast::Forecast;
use crate::dedup::timing::meter::Meter;
use crate::dedup::timing::paper::PaperTiming;
use crate::dedup::timing::{Measurement, Mode, WHOLE, largest_miss};
use crate::format::volume::Volume;
use crate::pool::Pool;
use crate::sizes::list_bytes;

/// The least time between two measurements.
const PERIOD: Nanos = 1_000_000_000;
/// The longest time that HIODS' loop integrates for one measurement: the pause of a client that comes back is measured, too.
const MOST_COUNTED: Nanos = 2 * PERIOD;

/// Measurement of a volume, and the mode that follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimingStatus {
    /// Timing of deduplication, set or derived from the policy.
    pub timing: Timing,
    /// True if a controller chooses the mode. Where offline would save nothing, a hybrid volume stays inline.
    pub may_change: bool,
    /// Mode of writes now.
    pub mode: Mode,
    /// Number of times that a controller has changed the mode, since it chooses.
    pub switches: u64,
    /// Measured value in the unit of the goal: requests or bytes a second, or the p99 in nanoseconds, also without a goal. `None`: it is not measured.
    pub measured: Option<u64>,
    /// Miss of the goal, in millionths of it; below 0 is headroom.
    pub miss_ppm: i64,
    /// Requests of a million that came less than 3 ms after the one before had left (HIODS 4.3).
    pub stressed_ppm: u32,
}

/// Status of the throttle: the pool as a whole, and the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThrottleStatus {
    /// Share of the device that background work may have while clients are busy, in millionths.
    pub share_ppm: u32,
    /// Miss that the share follows: the largest of all goals, in millionths; below 0 is headroom.
    pub miss_ppm: i64,
    /// HIODS' delay: the rest of the pass for each block that it has looked at. `None`: it has its part of the share.
    pub pass_delay: Option<Nanos>,
    /// Latency at the 99th percentile of all requests when it was measured last, in nanoseconds.
    pub p99: Nanos,
    /// Latency at the 99th percentile that is usual, in nanoseconds; 0: not known yet.
    pub usual_p99: Nanos,
    /// Requests in flight now.
    pub requests: u32,
}

/// Figures that the throttle of background work goes by.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    /// The largest miss of all goals, in millionths.
    pub miss: i64,
    /// Time that was measured.
    pub time: Nanos,
    /// Rates for HIODS' loop: of the offline volume that is shortest of its goal. `None`: no such volume has such a goal and had requests.
    pub rates: Option<Rates>,
}

/// Rate that a volume got, and its goal, in requests a second. Bytes count as requests of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rates {
    pub goal: u64,
    pub measured: u64,
    /// Time that was measured, at most [`MOST_COUNTED`].
    pub time: Nanos,
}

impl Rates {
    /// Returns the rates of a volume with this goal; `None`: the goal is of another kind, or there were no requests.
    fn of(goal: Goal, measured: &Measurement, block: u64) -> Option<Rates> {
        let (wanted, unit) = match goal {
            _ if measured.is_quiet() => return None,
            Goal::None | Goal::P99(_) => return None,
            Goal::Operations(wanted) => (wanted, 1),
            Goal::Bytes(wanted) => (wanted, block),
        };
        let time = measured.time.min(MOST_COUNTED);
        Some(Rates { goal: wanted / unit, measured: measured.in_unit_of(goal) / unit, time })
    }

    /// Returns the requests a second that it is short of its goal; below 0: it has more.
    fn shortfall(&self) -> i128 {
        i128::from(self.goal) - i128::from(self.measured)
    }
}

/// Reason why a volume is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Why {
    goal: Goal,
    /// The controller that chooses its mode, if one does.
    chooses: Option<Controller>,
}

/// Meter of a volume or the pool, and the results of its measurements.
struct Watched {
    why: Why,
    meter: Meter,
    last: Measurement,
    /// Usual values, and the mode in force: a learnt value counts for the mode that it was learnt in, regardless of who chose it.
    forecast: Forecast,
    paper: PaperTiming,
    miss: i64,
    switches: u64,
}

impl Watched {
    fn new(why: Why, now: Nanos, active: u64) -> Watched {
        let (meter, last) = (Meter::begun(now, active), Measurement::default());
        let (forecast, paper) = (Forecast::default(), PaperTiming::new(Mode::Inline));
        Watched { why, meter, last, forecast, paper, miss: -WHOLE, switches: 0 }
    }

    /// Takes a measurement and chooses the mode. `has_space`: it may be offline from then on.
    fn measure(&mut self, now: Nanos, spent: bool, has_space: bool) {
        self.last = self.meter.take(now);
        self.miss = self.forecast.miss(self.why.goal, &self.last);
        let before = self.forecast.mode;
        self.forecast = self.forecast.next(self.why.goal, &self.last, spent);
        match self.why.chooses {
            None => self.forecast = self.forecast.held_inline(),
            Some(Controller::Forecast) => {}
            Some(Controller::Paper) => {
                self.paper = self.paper.next(self.why.goal, &self.last);
                self.forecast.mode = self.paper.mode;
            }
        }
        if self.forecast.mode == Mode::Offline && !has_space {
            (self.forecast, self.paper) = (self.forecast.held_inline(), PaperTiming::new(Mode::Inline));
        }
        self.switches += u64::from(self.forecast.mode != before);
    }
}

/// Meters of all requests of clients, and the state of the controllers.
pub(crate) struct Foreground {
    pool: Watched,
    /// Meters of volumes, by id.
    volumes: Vec<(VolumeId, Watched)>,
    since: Nanos,
    miss: i64,
}

impl Foreground {
    pub(crate) fn new(now: Nanos) -> Foreground {
        let why = Why { goal: Goal::None, chooses: None };
        Foreground { pool: Watched::new(why, now, 0), volumes: Vec::new(), since: now, miss: -WHOLE }
    }

    fn meters(&mut self, volume: VolumeId) -> impl Iterator<Item = &mut Meter> {
        let own = self.place(volume).ok().map(|at| &mut self.volumes[at].1.meter);
        own.into_iter().chain([&mut self.pool.meter])
    }

    /// Counts a request that has come, for its volume and for the pool.
    #[inline]
    pub(crate) fn entered(&mut self, volume: VolumeId, now: Nanos) {
        self.meters(volume).for_each(|meter| meter.entered(now));
    }

    /// Counts a request of `bytes` that is answered and came at `came`.
    #[inline]
    pub(crate) fn left(&mut self, volume: VolumeId, now: Nanos, came: Nanos, bytes: u64) {
        self.meters(volume).for_each(|meter| meter.left(now, came, bytes));
    }

    /// Returns true if the next measurement is due.
    #[inline]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        now >= self.since + PERIOD
    }

    /// Returns the time at which a measurement is due without requests: while a volume is to go back to inline.
    pub(crate) fn timer(&self, pool: &Pool) -> Option<Nanos> {
        let is_offline = |(id, watched): &(VolumeId, Watched)| {
            watched.forecast.mode == Mode::Offline && why(pool, *id) == Some(watched.why)
        };
        self.volumes.iter().any(is_offline).then_some(self.since + PERIOD)
    }

    /// Measures, and sets the mode of volumes. `active`: the requests of a volume that are in progress; `spent`: the background has no more than its
    /// minimum share.
    pub(crate) fn measure(&mut self, pool: &mut Pool, active: impl Fn(VolumeId) -> u64, spent: bool) -> Measured {
        self.follow(pool, active);
        let time = pool.state.now() - core::mem::replace(&mut self.since, pool.state.now());
        self.pool.measure(pool.state.now(), spent, false);
        for (id, watched) in &mut self.volumes {
            let has_space = pool.has_space_offline(watched.forecast.mode);
            watched.measure(pool.state.now(), spent, has_space);
            pool.choose_mode(*id, watched.forecast.mode);
        }
        let all_have_goals = pool
            .durable
            .volumes()
            .with_different_settings()
            .all(|volume| volume.keeps.is_some() || volume.properties.goal() != Goal::None);
        let whole = (!all_have_goals).then_some(self.pool.miss);
        // Volumes without a goal are clients of the pool: their p99 as a whole is protected.
        let stated = self.volumes.iter().filter(|(_, watched)| watched.why.goal != Goal::None);
        self.miss = largest_miss(stated.map(|(_, watched)| watched.miss).chain(whole));
        Measured { miss: self.miss, time, rates: self.rates(pool) }
    }

    /// Returns the rates of the volume that is shortest of its goal, of those that are offline.
    fn rates(&self, pool: &Pool) -> Option<Rates> {
        let block = pool.geometry().block();
        let is_offline =
            |id: VolumeId| pool.volume_index(id).is_some_and(|at| pool.is_offline(&pool.durable.volumes()[at]));
        let offline = self.volumes.iter().filter(|(id, _)| is_offline(*id));
        let rates = offline.filter_map(|(_, watched)| Rates::of(watched.why.goal, &watched.last, block));
        rates.max_by_key(Rates::shortfall)
    }

    /// Follows the list of volumes and their settings: begins and ends their measurements.
    fn follow(&mut self, pool: &mut Pool, active: impl Fn(VolumeId) -> u64) {
        self.volumes.retain(|(id, watched)| {
            let stays = why(pool, *id) == Some(watched.why);
            if !stays {
                // The next controller of the mode begins inline.
                pool.choose_mode(*id, Mode::Inline);
            }
            stays
        });
        for volume in pool.durable.volumes().with_different_settings() {
            if reason(pool, volume).is_none() {
                continue;
            }
            for id in pool.durable.volumes().with_settings_of(volume) {
                if let Some(why) = why(pool, id)
                    && let Err(at) = self.place(id)
                {
                    self.volumes.insert(at, (id, Watched::new(why, pool.state.now(), active(id))));
                }
            }
        }
    }

    /// Returns the index of a volume in the list; `Err`: where it would be.
    fn place(&self, volume: VolumeId) -> Result<usize, usize> {
        self.volumes.binary_search_by_key(&volume, |(id, _)| *id)
    }

    /// Returns the figures of a volume.
    pub(crate) fn timing(&self, pool: &Pool, volume: &Volume) -> TimingStatus {
        let unmeasured = TimingStatus {
            timing: pool.timing_of(volume),
            may_change: pool.chooser_of(volume).is_some(),
            mode: if pool.is_offline(volume) { Mode::Offline } else { Mode::Inline },
            switches: 0,
            measured: None,
            miss_ppm: 0,
            stressed_ppm: 0,
        };
        let Ok(at) = self.place(volume.id) else { return unmeasured };
        let watched = &self.volumes[at].1;
        TimingStatus {
            switches: watched.switches,
            measured: Some(watched.last.in_unit_of(watched.why.goal)),
            miss_ppm: watched.miss,
            stressed_ppm: (watched.last.stressed * 1_000_000 / watched.last.entered.max(1)) as u32,
            ..unmeasured
        }
    }

    /// Returns the figures of the pool as a whole.
    pub(crate) fn throttle(&self, share: i64, pass_delay: Option<Nanos>, requests: usize) -> ThrottleStatus {
        ThrottleStatus {
            share_ppm: share as u32,
            miss_ppm: self.miss,
            pass_delay,
            p99: self.pool.last.p99,
            usual_p99: self.pool.forecast.usual(),
            requests: requests as u32,
        }
    }

    /// Returns the bytes of memory of the list.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.volumes)
    }
}

/// Returns the reason for which a volume is to be measured, if there is one.
fn why(pool: &Pool, id: VolumeId) -> Option<Why> {
    reason(pool, &pool.durable.volumes()[pool.volume_index(id)?])
}

/// Returns the reason that the settings of a volume are to have it measured, if there is one.
fn reason(pool: &Pool, volume: &Volume) -> Option<Why> {
    let why = Why { goal: volume.properties.goal(), chooses: pool.chooser_of(volume) };
    (why.chooses.is_some() || why.goal != Goal::None).then_some(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn got(requests: u64, time: Nanos) -> Measurement {
        Measurement { time, requests, bytes: 8192 * requests, busy: time / 2, ..Measurement::default() }
    }

    #[test]
    fn rates_are_in_requests_and_pauses_hardly_count() {
        let of = |goal, measured: &Measurement| Rates::of(goal, measured, 4096);
        let one = of(Goal::Operations(100), &got(60, SECOND));
        assert_eq!(one, Some(Rates { goal: 100, measured: 60, time: SECOND }));
        // 8 KiB each, so two blocks.
        let bytes = of(Goal::Bytes(4096 * 100), &got(30, SECOND / 2));
        assert_eq!(bytes, Some(Rates { goal: 100, measured: 120, time: SECOND / 2 }));
        let after_an_hour = of(Goal::Operations(100), &got(0, 3600 * SECOND));
        assert_eq!(after_an_hour, Some(Rates { goal: 100, measured: 0, time: 2 * SECOND }));
        assert_eq!(of(Goal::P99(1), &got(60, SECOND)), None);
        assert_eq!(of(Goal::None, &got(60, SECOND)), None);
        assert_eq!(of(Goal::Operations(100), &Measurement { time: SECOND, ..Measurement::default() }), None);
        // The one that is shortest, not the one with the smallest part.
        let small = of(Goal::Operations(100), &got(1, SECOND));
        let large = of(Goal::Operations(100_000), &got(60_000, SECOND));
        let more = of(Goal::Operations(10), &got(1_000_000, SECOND));
        let all = [small, large, one, more].into_iter().flatten();
        assert_eq!(all.max_by_key(Rates::shortfall), large);
    }
}
