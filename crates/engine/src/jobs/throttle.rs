//! The throttle of background work, and the one definition of idle.
//!
//! A pool is *idle* when no request has been in flight for a while. Background work then runs at full speed. So does a checkpoint when something
//! waits for it ([`Pool::is_pressed`]). Otherwise each job runs in bursts: a few steps, and a rest when their I/O is done. The rest is long enough to
//! keep the job to its *part* of the device.
//!
//! Background work as a whole has a *share* of the device: the remainder that clients' goals leave, from 2 % to all, set by a feedback loop
//! (`pid/throttle.rs`). Jobs that have work divide it evenly, and each gets at least its minimum share. That is a quarter for jobs that are waited
//! for sooner or later: checkpoints, of which the walk of discards is a stage; the index after opening; defragmentation behind the reader that found
//! the blocks scattered. It is a quarter, too, for a job whose work is lost if it takes long: a copy to flash, whose container is opened meanwhile.
//! It is 2 % for all others. So each job ends, though the foreground never rests.
//!
//! A pool may ask for HIODS' loop instead (`pid/paper.rs`, [`PassThrottle`]). It throttles only the dedup pass, as the paper has no other background
//! work: after a burst the pass rests for the delay, times the blocks that it has examined. The loop is on only while an offline volume has requests
//! and a goal in requests or bytes. Otherwise the pass does not rest at all.
//!
//! Invariant: a burst ends when no background I/O is in flight, and all bursts end together. So the device is free of background I/O between two
//! bursts, and no job waits for more than one burst of each other job.

use super::{Jobs, RULES, Runs};
use crate::api::{Nanos, PassThrottle};
use crate::jobs::job::JobId;
use crate::pid::WHOLE;
use crate::pid::paper::{EXPERIMENT, LISTING, PaperThrottle};
pub(super) use crate::pid::throttle::LEAST;
use crate::pid::throttle::{Throttle as Share, rest};
use crate::pool::Pool;
use crate::pool::state::LoadSnapshot;
use crate::requests::foreground::{Measured, Rates};

/// Time without a request in flight after which a pool is idle, in nanoseconds.
pub(crate) const IDLE_AFTER: Nanos = 100_000_000;
/// Longest rest of a job, in nanoseconds.
const REST_MAX: Nanos = 1_000_000_000;
/// Longest rest of jobs that have a quarter, in nanoseconds: they run often, as they are waited for.
const REST_MAX_OF_A_QUARTER: Nanos = 200_000_000;
/// Minimum share of jobs that are waited for, in millionths of the device; others have [`LEAST`].
pub(super) const QUARTER: i64 = WHOLE / 4;

/// Participant of the throttle: a job that runs in bursts, or the checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThrottleUser {
    Job(JobId),
    Checkpoint,
}

impl ThrottleUser {
    fn at(self) -> usize {
        match self {
            ThrottleUser::Job(job) => job as usize,
            ThrottleUser::Checkpoint => RULES.len(),
        }
    }

    /// Returns its bit in a set of participants.
    #[inline]
    pub(super) fn bit(self) -> u16 {
        1 << self.at()
    }
}

/// Time at which background work may continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    Now,
    At(Nanos),
    /// After the background I/O in flight is done, which ends the burst, at the earliest; the rest that follows comes on top.
    AfterIo,
}

/// Feedback loop of the paper HIODS, which throttles the dedup pass if the pool asks for it.
#[derive(Clone, Copy)]
struct Preset {
    which: PassThrottle,
    feedback: PaperThrottle,
    is_on: bool,
}

impl Preset {
    fn new(which: PassThrottle) -> Option<Preset> {
        let gains = match which {
            PassThrottle::Share => return None,
            PassThrottle::Listing => LISTING,
            PassThrottle::Experiment => EXPERIMENT,
        };
        Some(Preset { which, feedback: PaperThrottle::new(gains), is_on: false })
    }

    /// Updates the loop with the rates of clients. Without rates the loop is off, and keeps its accumulated state.
    fn follow(&mut self, rates: Option<Rates>) {
        self.is_on = rates.is_some();
        if let Some(Rates { goal, measured, time }) = rates {
            self.feedback = self.feedback.next(goal, measured, time);
        }
    }

    fn delay(self) -> Nanos {
        if self.is_on { self.feedback.delay } else { 0 }
    }
}

/// The throttle of background work.
pub(crate) struct Throttle {
    /// Time at which each participant's burst began, or its rest ends.
    times: [Nanos; RULES.len() + 1],
    /// Participants in a burst, one bit each; their I/O may be in flight.
    in_burst: u16,
    /// Participants that have work, one bit each.
    wanting: u16,
    share: Share,
    /// HIODS' loop, if the pool asks for it.
    preset: Option<Preset>,
    /// Number of blocks that the pass had examined when its burst began.
    looked_at: u64,
}

const _: () = assert!(RULES.len() < 16, "a bit for each job, and one for the checkpoint");

impl Throttle {
    /// Creates a throttle with all rests over, before any work.
    pub(crate) fn new(now: Nanos) -> Throttle {
        Throttle {
            times: [now; RULES.len() + 1],
            in_burst: 0,
            wanting: 0,
            share: Share::default(),
            preset: None,
            looked_at: 0,
        }
    }

    /// Returns the share of background work, in millionths of the device.
    pub(crate) fn share(&self) -> i64 {
        self.share.share
    }

    /// Returns true if the share is at its minimum.
    pub(crate) fn is_at_least(&self) -> bool {
        self.share.is_at_least()
    }

    /// Sets the participants that have work now.
    pub(super) fn note_wanting(&mut self, wanting: u16) {
        self.wanting = wanting;
    }

    /// Returns the time at which a participant may take its next steps, while no background I/O is in flight.
    fn turn(&self, who: ThrottleUser, now: Nanos) -> Turn {
        match self.times[who.at()] {
            until if until > now => Turn::At(until),
            _ => Turn::Now,
        }
    }

    fn begin(&mut self, who: ThrottleUser, now: Nanos, looked_at: u64) {
        if who == ThrottleUser::Job(JobId::Dedup) {
            self.looked_at = looked_at;
        }
        self.times[who.at()] = now;
        self.in_burst |= who.bit();
    }

    /// Ends a participant's burst, or its rest, at once.
    fn need_no_rest(&mut self, who: ThrottleUser, now: Nanos) {
        self.times[who.at()] = now;
        self.in_burst &= !who.bit();
    }

    /// Ends all bursts; each is followed by a rest. Steps that needed no I/O are bounded by their budget alone. `looked_at` is the number of blocks
    /// that the pass has examined since its creation.
    #[inline(never)]
    fn end_bursts(&mut self, now: Nanos, looked_at: u64) {
        let pass = ThrottleUser::Job(JobId::Dedup);
        let pass_delay = self.preset.map(Preset::delay);
        let apart = if pass_delay.is_some() { pass.bit() } else { 0 };
        let part = self.share() / i64::from(((self.wanting | self.in_burst) & !apart).count_ones().max(1));
        for (at, time) in self.times.iter_mut().enumerate().filter(|(at, _)| self.in_burst >> at & 1 > 0) {
            if let Some(delay) = pass_delay.filter(|_| at == pass.at()) {
                *time = now + delay.saturating_mul(looked_at - self.looked_at).min(REST_MAX);
                continue;
            }
            let runs = RULES.get(at).map(|rules| rules.runs);
            let least = if let Some(Runs::InBursts { least }) = runs { least } else { QUARTER };
            let longest = if least < QUARTER { REST_MAX } else { REST_MAX_OF_A_QUARTER };
            *time = now + rest(part.max(least), now - *time).min(longest);
        }
        self.in_burst = 0;
    }
}

impl Jobs {
    /// Adapts both loops to the service that clients got.
    pub(crate) fn follow(&mut self, which: PassThrottle, measured: &Measured) {
        self.throttle.share = self.throttle.share.next(measured.miss, measured.time);
        if self.throttle.preset.map_or(PassThrottle::Share, |preset| preset.which) != which {
            self.throttle.preset = Preset::new(which);
        }
        if let Some(preset) = &mut self.throttle.preset {
            preset.follow(measured.rates);
        }
    }

    /// Returns the rest of the pass for each block that it has examined, if HIODS' loop throttles it.
    pub(crate) fn pass_delay(&self, which: PassThrottle) -> Option<Nanos> {
        // A loop that was set since the last measurement has no delay so far.
        let preset = self.throttle.preset.filter(|preset| preset.which == which);
        (which != PassThrottle::Share).then(|| preset.map_or(0, Preset::delay))
    }

    /// Returns the time at which a participant may take its next steps.
    #[inline]
    pub(super) fn turn(&mut self, who: ThrottleUser, pool: &Pool, load: &LoadSnapshot) -> Turn {
        // A rest that is over is no rest, at any speed.
        if self.throttle.in_burst & who.bit() == 0 && self.throttle.turn(who, pool.state.now()) == Turn::Now {
            return Turn::Now;
        }
        self.turn_by_speed(who, pool, load)
    }

    fn turn_by_speed(&mut self, who: ThrottleUser, pool: &Pool, load: &LoadSnapshot) -> Turn {
        // A checkpoint relieves a pressed pool; a pass does where writes wait for its slots.
        let is_awaited = match who {
            ThrottleUser::Checkpoint => pool.is_pressed(load),
            ThrottleUser::Job(JobId::Dedup) => load.writes_blocked && self.dedup.is_awaited(),
            ThrottleUser::Job(_) => false,
        };
        if load.is_idle || is_awaited {
            self.throttle.need_no_rest(who, pool.state.now());
            return Turn::Now;
        }
        self.end_bursts(pool);
        if self.throttle.in_burst & who.bit() > 0 { Turn::AfterIo } else { self.throttle.turn(who, pool.state.now()) }
    }

    /// Ends all bursts when no background I/O is in flight.
    #[inline]
    pub(super) fn end_bursts(&mut self, pool: &Pool) {
        let is_over = |jobs: &Jobs| {
            pool.metadata.pages().writes() + pool.metadata.pages().background_loads() + jobs.in_flight() == 0
        };
        if self.throttle.in_burst > 0 && is_over(self) {
            self.throttle.end_bursts(pool.state.now(), self.dedup.looked_at());
        }
    }

    /// Begins a burst if it is the participant's turn. Returns true if it is.
    #[inline]
    pub(crate) fn begins_burst(&mut self, who: ThrottleUser, pool: &Pool, load: &LoadSnapshot) -> bool {
        let is_turn = self.turn(who, pool, load) == Turn::Now;
        if is_turn {
            self.throttle.begin(who, pool.state.now(), self.dedup.looked_at());
        }
        is_turn
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const MS: Nanos = 1_000_000;

    /// Creates a throttle with a share, and with participants that want their turn.
    fn throttle(share: i64, wanting: &[ThrottleUser]) -> Throttle {
        let mut throttle = Throttle::new(0);
        throttle.share.share = share;
        throttle.note_wanting(wanting.iter().fold(0, |all, who| all | who.bit()));
        throttle
    }

    /// Returns their next turns, if all of them begin bursts at 0 that are over 10 ms later.
    fn ends(share: i64, who: &[ThrottleUser]) -> Vec<Turn> {
        let mut throttle = throttle(share, who);
        who.iter().for_each(|&who| throttle.begin(who, 0, 0));
        throttle.end_bursts(10 * MS, 0);
        who.iter().map(|&who| throttle.turn(who, 10 * MS)).collect()
    }

    #[test]
    fn jobs_divide_the_share_and_none_gets_less_than_its_least_part() {
        let (scrub, dedup) = (ThrottleUser::Job(JobId::Scrub), ThrottleUser::Job(JobId::Dedup));
        assert_eq!(ends(WHOLE, &[scrub]), [Turn::Now], "all of the device is no rest");
        assert_eq!(ends(500_000, &[scrub]), [Turn::At(20 * MS)]);
        assert_eq!(ends(500_000, &[scrub, dedup]), [Turn::At(40 * MS); 2], "a quarter each");
        let least = Turn::At(500 * MS);
        assert_eq!(ends(0, &[scrub, dedup, ThrottleUser::Checkpoint]), [least, least, Turn::At(40 * MS)]);
        // A participant that waits for its turn counts, too.
        let mut throttle = throttle(500_000, &[scrub, dedup]);
        throttle.begin(scrub, 0, 0);
        throttle.end_bursts(10 * MS, 0);
        assert_eq!(throttle.turn(scrub, 10 * MS), Turn::At(40 * MS));
    }

    #[test]
    fn bursts_end_together_and_each_rests_for_its_own() {
        let (scrub, dedup) = (ThrottleUser::Job(JobId::Scrub), ThrottleUser::Job(JobId::Dedup));
        let mut throttle = throttle(500_000, &[scrub, dedup]);
        throttle.begin(scrub, 0, 0);
        throttle.begin(dedup, 8 * MS, 0);
        throttle.end_bursts(10 * MS, 0);
        assert_eq!(throttle.in_burst, 0);
        let turns = [scrub, dedup].map(|who| throttle.turn(who, 10 * MS));
        assert_eq!(turns, [Turn::At(40 * MS), Turn::At(16 * MS)]);
        assert_eq!(throttle.turn(dedup, 16 * MS), Turn::Now);
    }

    #[test]
    fn with_the_paper_s_loop_the_pass_rests_for_each_block_and_takes_no_part_of_the_share() {
        let (scrub, dedup) = (ThrottleUser::Job(JobId::Scrub), ThrottleUser::Job(JobId::Dedup));
        let turns = |preset, looked_at| {
            let mut throttle = throttle(500_000, &[scrub, dedup]);
            throttle.preset = Some(preset);
            [scrub, dedup].iter().for_each(|&who| throttle.begin(who, 0, 1000));
            throttle.end_bursts(10 * MS, 1000 + looked_at);
            [scrub, dedup].map(|who| throttle.turn(who, 10 * MS))
        };
        let mut preset = Preset::new(PassThrottle::Listing).expect("it is one");
        let got = |measured| Some(Rates { goal: 20_000, measured, time: 1000 * MS });
        assert_eq!(turns(preset, 170), [Turn::At(20 * MS), Turn::Now], "half of the device is the scrub's");
        preset.follow(got(15_000));
        // 5 * 5000 + 0.15 * 5000 + 0.25 * 5000 ns
        assert_eq!(turns(preset, 170), [Turn::At(20 * MS), Turn::At(10 * MS + 170 * 27_000)]);
        assert_eq!(turns(preset, 0)[1], Turn::Now);
        assert_eq!(turns(preset, u64::MAX - 1000)[1], Turn::At(1010 * MS), "no longer than a second");
        preset.follow(None);
        assert_eq!(turns(preset, 170)[1], Turn::Now, "off while inline, or nobody asks");
        preset.follow(got(20_000));
        assert_eq!(turns(preset, 170)[1], Turn::Now, "the change for the better counts");
        preset.follow(got(20_000));
        assert_eq!(turns(preset, 100)[1], Turn::At(10 * MS + 75_000), "what was summed up stays: 0.15 * 5000");
    }

    #[test]
    fn no_rest_is_longer_than_a_second_nor_that_of_a_checkpoint_than_a_fifth_of_one() {
        let mut throttle = throttle(0, &[ThrottleUser::Checkpoint]);
        let fetch = ThrottleUser::Job(JobId::CacheWarmup);
        [fetch, ThrottleUser::Checkpoint].iter().for_each(|&who| throttle.begin(who, 0, 0));
        throttle.end_bursts(5000 * MS, 0);
        let turns = [fetch, ThrottleUser::Checkpoint].map(|who| throttle.turn(who, 5000 * MS));
        assert_eq!(turns, [Turn::At(6000 * MS), Turn::At(5200 * MS)]);
    }
}
