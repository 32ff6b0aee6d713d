//! The scheduler of background work: one definition of idle, one throttle.
//!
//! A pool is *idle* when no request has been in flight for a while. Background work then goes at full speed, as it does when
//! something waits for it ([`Pool::is_pressed`]). Otherwise it goes in bursts: a few steps, then as long as their I/O took,
//! three times over, nothing. So whatever the device, background work takes a quarter of one queue of it at most, and it always
//! gets that: its share when the foreground never rests.
//!
//! The pass that finds duplicates ([`Runs::ByShare`]) rests by a feedback loop instead (`pid/throttle.rs`): its share of the device is what
//! clients' goals leave it, from 2 % to all of it. That the pool is pressed is no reason for it to go faster.
//!
//! Who goes by it: checkpoints that nobody waits for (the walk of discards is a stage of theirs), the rebuild of the index, the
//! ghosts that are fetched into what has grown, and the scrub; and what puts scattered blocks in order, which goes while the pool is idle
//! only.

use super::{Jobs, Runs};
use crate::contract::Nanos;
use crate::pid::throttle::Throttle as Share;
use crate::pool::Pool;
use crate::pool::standing::{Facts, Phase};

/// A pool without a request in flight for so long is idle.
pub(crate) const IDLE_AFTER: Nanos = 100_000_000;
/// A burst is followed by a rest of so many times its length,
const REST: Nanos = 3;
/// but of no more than this.
const REST_MAX: Nanos = 200_000_000;
/// and where it is by share, of no more than this.
const SHARE_REST_MAX: Nanos = 1_000_000_000;

/// When background work may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    Now,
    At(Nanos),
    /// When its I/O in flight is done.
    AfterIo,
}

/// What the throttle remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pace {
    /// Nothing before this time.
    Rest(Nanos),
    /// A burst that began then; its I/O may be in flight.
    Burst(Nanos),
}

/// The throttle of background work.
pub(crate) struct Throttle {
    /// Of jobs that have the fixed part,
    pace: Pace,
    /// and of those that have a share.
    by_share: Pace,
    share: Share,
}

impl Throttle {
    /// Nothing has been done so far.
    pub(crate) fn new(now: Nanos) -> Throttle {
        Throttle { pace: Pace::Rest(now), by_share: Pace::Rest(now), share: Share::default() }
    }

    #[inline]
    fn pace(&mut self, runs: Runs) -> &mut Pace {
        if runs == Runs::ByShare { &mut self.by_share } else { &mut self.pace }
    }

    /// How long a job rests after work that took so long.
    fn rest(&self, runs: Runs, work: Nanos) -> Nanos {
        match runs {
            Runs::ByShare => self.share.rest(work).min(SHARE_REST_MAX),
            Runs::InBursts | Runs::WhenIdle => (work * REST).min(REST_MAX),
        }
    }

    /// The share, in millionths of the device.
    pub(crate) fn share(&self) -> i64 {
        self.share.share
    }

    /// Whether the share is the least.
    pub(crate) fn is_at_least(&self) -> bool {
        self.share.is_at_least()
    }
}

impl Jobs {
    /// Over so long, clients missed their goals by so much, in millionths; below 0 is room.
    pub(crate) fn follow(&mut self, miss: i64, time: Nanos) {
        self.throttle.share = self.throttle.share.next(miss, time);
    }

    /// When background work may take its next steps.
    #[inline]
    pub(crate) fn turn(&mut self, runs: Runs, pool: &Pool, facts: &Facts) -> Turn {
        match *self.throttle.pace(runs) {
            // A rest that is over is no rest, at any speed.
            Pace::Rest(until) if until <= pool.now => Turn::Now,
            _ => self.turn_by_speed(runs, pool, facts),
        }
    }

    fn turn_by_speed(&mut self, runs: Runs, pool: &Pool, facts: &Facts) -> Turn {
        // What presses a pool a checkpoint relieves, and no job that has a share.
        if facts.is_idle || runs != Runs::ByShare && pool.is_pressed(facts) {
            *self.throttle.pace(runs) = Pace::Rest(pool.now);
            return Turn::Now;
        }
        if let Pace::Burst(began) = *self.throttle.pace(runs) {
            if pool.store.pages.writes + pool.store.pages.background_loads() + self.in_flight() > 0 {
                return Turn::AfterIo;
            }
            // Steps that needed no I/O are bounded by their budget alone.
            let rest = self.throttle.rest(runs, pool.now - began);
            *self.throttle.pace(runs) = Pace::Rest(pool.now + rest);
        }
        match *self.throttle.pace(runs) {
            Pace::Rest(until) if until > pool.now => Turn::At(until),
            _ => Turn::Now,
        }
    }

    /// Background work takes steps, if it is its turn.
    #[inline]
    pub(crate) fn begins_burst(&mut self, runs: Runs, pool: &Pool, facts: &Facts) -> bool {
        let is_turn = self.turn(runs, pool, facts) == Turn::Now;
        if is_turn {
            *self.throttle.pace(runs) = Pace::Burst(pool.now);
        }
        is_turn
    }
}

impl Pool {
    /// Whether something waits for a checkpoint, or soon would.
    pub(crate) fn is_pressed(&self, facts: &Facts) -> bool {
        let limit = self.limits.delta_entries as usize;
        let full_delta =
            self.delta.len() >= limit / 2 && (!self.frozen.is_empty() || self.delta.len() >= limit / 4 * 3);
        full_delta
            || self.space.free() < self.frozen.len() as u64 / 2
            || self.journal.used >= self.journal.ring / 4 * 3
            || self.journal.entries >= 3 * limit as u64
            || facts.are_waiting
            || self.phase == Phase::Closing
    }

    /// Whether background work goes at full speed.
    pub(crate) fn is_at_full_speed(&self, facts: &Facts) -> bool {
        facts.is_idle || self.is_pressed(facts)
    }

    /// Pages that background work may load ahead of need.
    pub(crate) fn load_ahead(&self, facts: &Facts) -> usize {
        if self.is_at_full_speed(facts) { 16 } else { 4 }
    }
}
