//! Hybrid volume under a changing goal: consecutive phases, as in the experiments of HIODS (its Fig. 9 to 12).
//!
//! Each phase writes a fixed amount at a rate, which is its goal. Every second of virtual time records the answered requests, the blocks that passes shared,
//! and the mode. A pass begins whenever none is in progress and there is work for one.

use engine::timing::Mode;
use engine::{Command, Controller, Goal, Nanos, PassThrottle, PoolChange, Timing, VolumePropertyChange};

use super::{Passes, Setup, Workers, prepare};
use crate::dedis::distribution::Distribution;
use crate::dedis::load::{Load, Stop};
use crate::dedis::written::Written;
use sim::Checked;

const SECOND: Nanos = 1_000_000_000;
/// Maximum number of passes after the load.
const PATIENCE: u64 = 4;

/// Control of the volume's timing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// The paper's controller and feedback loop, in their gains of listing 4.1.
    Paper,
    /// Our controller and throttle.
    Ours,
}

/// Counts of a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Second {
    /// The phase that it ended in.
    pub phase: usize,
    /// Requests a second that are the goal.
    pub goal: u64,
    /// Requests that were answered.
    pub foreground: u64,
    /// Blocks that passes let share.
    pub shared: u64,
    /// Mode at the end of the second: true if offline.
    pub is_offline: bool,
}

/// Outcome of the phases.
#[derive(Clone, Debug)]
pub struct Phases {
    /// All whole seconds of them.
    pub seconds: Vec<Second>,
    /// True if the volume was inline in the end, after a pass.
    pub ends_inline: bool,
    /// Blocks that the pool stores, and different contents that were written and not overwritten.
    pub stored_blocks: u64,
    /// Distinct contents: see `stored_blocks`.
    pub distinct_blocks: u64,
}

/// Counts of the current second, and of the earlier ones.
pub(super) struct Watch {
    phase: usize,
    goal: u64,
    next: Nanos,
    answered: u64,
    shared: u64,
    seconds: Vec<Second>,
}

impl Workers<'_> {
    /// Counts an answered request, and records every second that is over.
    pub(super) fn look(&mut self) {
        let Some(mut watch) = self.watch.take() else { return };
        watch.answered += 1;
        while self.machine.now >= watch.next {
            let shared = self.machine.engine.status().dedup.shared_blocks;
            watch.seconds.push(Second {
                phase: watch.phase,
                goal: watch.goal,
                foreground: watch.answered,
                shared: shared - watch.shared,
                is_offline: self.is_offline(),
            });
            (watch.answered, watch.shared, watch.next) = (0, shared, watch.next + SECOND);
        }
        self.watch = Some(watch);
    }

    fn is_offline(&self) -> bool {
        let volume = self.machine.engine.volumes().find(|volume| volume.id == self.volume);
        volume.is_some_and(|volume| self.machine.engine.timing_of(volume).mode == Mode::Offline)
    }
}

/// Executes the phases: each `requests` at one of the rates. Timing, goal and passes of the setup do not count, nor does the end of the
/// load.
pub fn run(
    setup: &Setup,
    rates: &[u64],
    requests: u64,
    charge: Charge,
    distribution: &Distribution,
) -> Checked<Phases> {
    let setup = Setup { timing: Timing::Hybrid, goal: Goal::None, passes: Passes::None, ..setup.clone() };
    let (mut workers, before) = prepare(&setup, distribution)?;
    let (controller, throttle) = match charge {
        Charge::Paper => (Controller::Paper, PassThrottle::Listing),
        Charge::Ours => (Controller::Forecast, PassThrottle::Share),
    };
    workers.machine.command(Command::SetPool(PoolChange { throttle: Some(throttle), ..PoolChange::default() }))?;
    workers.has_passes = true;
    let next = workers.machine.now + SECOND;
    workers.watch = Some(Watch { phase: 0, goal: 0, next, answered: 0, shared: 0, seconds: Vec::new() });
    for (phase, &rate) in rates.iter().enumerate() {
        let change = VolumePropertyChange {
            goal: Some(Goal::Operations(rate)),
            controller: Some(controller),
            ..VolumePropertyChange::default()
        };
        let volume = workers.volume;
        workers.machine.command(Command::SetVolume { volume, change })?;
        if let Some(watch) = &mut workers.watch {
            (watch.phase, watch.goal) = (phase, rate);
        }
        let seed = setup.load.seed + phase as u64;
        let load = Load { rate: Some(rate), stop: Stop::Requests(requests), seed, ..setup.load.clone() };
        let earlier = std::mem::replace(&mut workers.streams, load.streams(setup.volume_blocks));
        workers.streams.iter_mut().zip(&earlier).for_each(|(stream, earlier)| stream.after(earlier));
        workers.work(&mut |_| {})?;
    }
    let seconds = workers.watch.take().map_or(Vec::new(), |watch| watch.seconds);
    // The load is over: the controller returns to inline, and the remaining blocks are shared.
    for _ in 0..PATIENCE {
        workers.machine.command(Command::Settle)?;
        workers.pass()?;
    }
    workers.machine.command(Command::Settle)?;
    let status = workers.machine.engine.status();
    Ok(Phases {
        seconds,
        ends_inline: !workers.is_offline(),
        stored_blocks: status.data_blocks_used - before - status.replicate.replicas,
        distinct_blocks: Written::tally(std::slice::from_ref(&workers.written)).distinct_blocks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedis::addresses::Pattern;
    use engine::Policy;
    use sim::disks::Disk;
    use sim::disks::ssd::{Queue, SSD};

    /// Checks both controllers: every second of the phases is there, the goals are met where they are low, and each content is stored once.
    #[test]
    fn phases_are_whole_and_each_content_is_stored_once() {
        let load = Load {
            pattern: Pattern::Uniform,
            request_blocks: 1,
            reads_percent: 0,
            workers: 1,
            rate: None,
            stop: Stop::Requests(0),
            seed: 1,
        };
        let setup = Setup {
            policy: Policy::Full,
            timing: Timing::Inline,
            goal: Goal::None,
            passes: Passes::None,
            volatile: false,
            volume_blocks: 4096,
            memory: None,
            disk: Disk::Ssd(Queue::new(SSD)),
            processor: 0,
            durable: false,
            fills: false,
            load,
        };
        let distribution = Distribution::parse("some", "0 3000\n1 900\n30 20").expect("it is one");
        for charge in [Charge::Paper, Charge::Ours] {
            let phases = run(&setup, &[1_000, 2_000, 1_000], 4_000, charge, &distribution).expect("it works");
            let count = |phase| phases.seconds.iter().filter(|second| second.phase == phase).count();
            assert_eq!([0, 1, 2].map(count).iter().sum::<usize>(), phases.seconds.len());
            assert!((9..=11).contains(&phases.seconds.len()), "{}", phases.seconds.len());
            let low = phases.seconds.iter().filter(|second| second.phase == 0);
            assert!(low.clone().count() >= 3 && low.skip(1).all(|second| second.foreground >= 950), "{phases:?}");
            assert_eq!(phases.stored_blocks, phases.distinct_blocks, "{charge:?}");
        }
    }
}
