//! Deduplication timing. A pass that begins automatically shares the blocks written offline, whatever settings of the volume changed meanwhile.

use engine::timing::Mode;
use engine::{
    Command, Controller, DedupCommand, DefragSetting, Goal, KeepRuns, Nanos, PassState, PassThrottle, Policy,
    PoolChange, ScrubCommand, Timing, TimingStatus, VolumeId, VolumePropertyChange,
};
use sim::random::Random;
use sim::runs::config::Config;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND, page_reads};
use crate::dedup::{BLOCKS, config};

impl Bench {
    fn set(&mut self, policy: Policy, timing: Timing) {
        let (policy, timing, keep_runs) = (Some(Some(policy)), Some(Some(timing)), Some(KeepRuns::Off));
        let change = VolumePropertyChange { policy, timing, keep_runs, ..VolumePropertyChange::default() };
        self.command(Command::SetVolume { volume: VolumeId(1), change });
    }

    fn set_goal(&mut self, goal: Goal) {
        let change = VolumePropertyChange { goal: Some(goal), ..VolumePropertyChange::default() };
        self.command(Command::SetVolume { volume: VolumeId(1), change });
    }

    fn set_controller(&mut self, controller: Controller) {
        let change = VolumePropertyChange { controller: Some(controller), ..VolumePropertyChange::default() };
        self.command(Command::SetVolume { volume: VolumeId(1), change });
    }

    fn timing(&self) -> TimingStatus {
        let volume = self.world.engine.volumes().next().expect("there is one");
        self.world.engine.timing_of(volume)
    }

    /// Writes one durable block after the other for the given time.
    fn load(&mut self, time: Nanos, contents: &mut [u32]) {
        let end = self.world.now + time;
        for at in 0.. {
            if self.world.now >= end {
                return;
            }
            let (block, content) = (at % BLOCKS, 1 + (at % 7) as u32);
            contents[block as usize] = content;
            self.write_durably(block, content);
        }
    }

    fn data_blocks(&mut self) -> u64 {
        self.settle();
        self.world.engine.status().data_blocks_used
    }
}

fn bench(seed: u64) -> (Bench, Random) {
    let mut random = Random::new(seed);
    let mut bench = Bench::new(config(&mut random), BLOCKS);
    let change = PoolChange { defrag: Some(DefragSetting::Off), replicas: Some(Some(0)), ..PoolChange::default() };
    bench.command(Command::SetPool(change));
    (bench, random)
}

fn policies() -> Vec<Policy> {
    ["full", "select", "idedup", "observe", "native"].map(|text| text.parse().expect("a policy")).to_vec()
}

/// The first claim of the pass: whatever timing and policy were, afterwards there are as many data blocks as different contents.
#[test]
fn whatever_timing_and_policy_were_a_pass_leaves_each_content_once() {
    for seed in 0..16 {
        let (mut bench, mut random) = bench(seed);
        let mut contents = vec![0; BLOCKS as usize];
        for _ in 0..120 {
            if random.one_in(6) {
                bench.set(random.pick(&policies()), random.pick(&[Timing::Offline, Timing::Inline]));
            }
            let (first, count) = (random.below(BLOCKS - 8), 1 + random.below(8));
            let values: Vec<u32> = (0..count).map(|_| 1 + random.below(60) as u32).collect();
            contents[first as usize..(first + count) as usize].copy_from_slice(&values);
            bench.write(first, &values);
        }
        bench.set(random.pick(&policies()[..3]), random.pick(&[Timing::Offline, Timing::Inline]));
        bench.command(Command::Dedup { command: DedupCommand::Start });
        bench.run_pass(SECOND);
        bench.assert_exact(&contents);
    }
}

#[test]
fn offline_writes_do_not_look_and_a_pass_that_begins_by_itself_shares_them_and_comes_to_rest() {
    for text in ["full", "select", "idedup"] {
        let (mut bench, _) = bench(1);
        let policy = text.parse().expect("a policy");
        bench.set(policy, Timing::Offline);
        let mut contents = vec![0; BLOCKS as usize];
        for first in [0, 16, 32, 48] {
            let values: Vec<u32> = (1..=8).collect();
            contents[first as usize..first as usize + 8].copy_from_slice(&values);
            bench.write(first, &values);
        }
        assert_eq!(bench.data_blocks(), 32, "nothing is looked for");
        assert_eq!(bench.world.engine.write_counts().index_hits, 0);
        let status = bench.dedup();
        assert_eq!((status.state, status.has_backlog, status.backlog_blocks), (PassState::Never, true, 32));
        bench.pass(20 * SECOND);
        assert_eq!((bench.dedup().state, bench.dedup().has_backlog), (PassState::Finished, false), "{text}");
        bench.assert_exact(&contents);
        // Without events no work is done: no timer, no scan, no checkpoint.
        let before = (bench.dedup().scans, bench.world.engine.status().checkpoints);
        bench.pass(3000 * SECOND);
        assert_eq!((bench.dedup().scans, bench.world.engine.status().checkpoints), before);
        assert_eq!(bench.world.engine.next_timer(), None);
        // Writes that are inline again find the contents written offline.
        bench.set(policy, Timing::Inline);
        bench.write(64, &(1..=8).collect::<Vec<u32>>());
        assert_eq!(bench.data_blocks(), 8, "{text}");
    }
}

/// Replicas are made and regions moved while a pass shares. All three converge.
#[test]
fn passes_and_what_puts_regions_in_order_do_not_run_in_circles() {
    let mut random = Random::new(7);
    let mut bench = Bench::new(config(&mut random), BLOCKS);
    bench.set(Policy::Full, Timing::Offline);
    for round in 0..6 {
        for _ in 0..40 {
            bench.write(random.below(BLOCKS), &[1 + random.below(40) as u32]);
        }
        for first in (0..BLOCKS).step_by(8) {
            let token = bench.begin_read(first, 8);
            bench.wait(token).expect("it reads");
        }
        bench.pass(200 * SECOND);
        let figures = |bench: &Bench| {
            let status = bench.world.engine.status();
            (status.dedup.scans, status.defrag.moved_blocks, status.replicate.made, status.checkpoints)
        };
        let before = figures(&bench);
        bench.pass(2000 * SECOND);
        assert_eq!(figures(&bench), before, "round {round}");
    }
    bench.audit();
}

#[test]
fn work_that_is_left_outlives_restarts_and_crashes_and_native_volumes_leave_none() {
    for (seed, cut) in [(1, None), (2, Some(Cut::Lost)), (3, Some(Cut::Kept))] {
        let (mut bench, _) = bench(seed);
        bench.set(Policy::Native, Timing::Offline);
        bench.write(0, &[1, 2, 1, 2]);
        assert!(!bench.dedup().has_backlog);
        bench.set(Policy::SELECT, Timing::Offline);
        bench.write(8, &[1, 2, 1, 2]);
        let token = bench.begin_flush();
        bench.wait(token).expect("it is durable");
        match cut {
            None => bench.reopen(),
            Some(cut) => drop(bench.crash(cut).expect("it opens")),
        }
        assert!(bench.dedup().has_backlog);
        bench.pass(30 * SECOND);
        assert_eq!(bench.dedup().state, PassState::Finished);
        assert_eq!(bench.data_blocks(), 2);
    }
}

/// After a crash the mode chosen by a controller is gone, but its backlog is not.
#[test]
fn what_a_hybrid_volume_left_to_the_pass_outlives_a_crash() {
    let (mut bench, _) = bench(13);
    let mut contents = vec![0; BLOCKS as usize];
    bench.set(Policy::Full, Timing::Hybrid);
    bench.set_goal(Goal::P99(1));
    bench.load(5 * SECOND, &mut contents);
    assert_eq!(bench.timing().mode, Mode::Offline);
    bench.load(SECOND, &mut contents);
    bench.crash(Cut::Lost).expect("it opens");
    assert_eq!(bench.timing().mode, Mode::Inline);
    assert!(bench.dedup().has_backlog);
    bench.pass(30 * SECOND);
    assert_eq!(bench.dedup().state, PassState::Finished);
    bench.assert_exact(&contents);
}

/// Each opening begins with an empty index, which is filled in the background. Blocks written in that time were stored again, and never shared.
#[test]
fn what_is_written_while_the_index_fills_is_shared_by_a_pass_that_begins_by_itself() {
    for cut in [None, Some(Cut::Lost)] {
        // Enough data that the index is not filled at once, and a volume without a map, so that none has to be read.
        let (mut config, half) = (Config::small(1), 800);
        (config.parameters.geometry.containers, config.parameters.geometry.metadata_blocks) = (160, 1000);
        let mut bench = Bench::new(config, half);
        bench.set(Policy::SELECT, Timing::Inline);
        let size = 64 * bench.geometry().block();
        bench.command(Command::CreateVolume { name: "second", size, policy: Some(Policy::SELECT) });
        let change = VolumePropertyChange { keep_runs: Some(KeepRuns::Off), ..VolumePropertyChange::default() };
        bench.command(Command::SetVolume { volume: VolumeId(2), change });
        for first in (0..half).step_by(8) {
            let values: Vec<u32> = (first..first + 8).map(|block| block as u32 + 1).collect();
            bench.write(first, &values);
        }
        let stored = bench.data_blocks();
        assert_eq!(stored, half);
        bench.reopen();
        bench.world.hold_back(page_reads);
        bench.volume = VolumeId(2);
        let values: Vec<u32> = (half - 8..half).map(|block| block as u32 + 1).collect();
        let token = bench.begin_write(0, &values, false);
        while bench.answer(token).is_none() {
            // The pages come one at a time. Those that the write needs come before the rest of the summaries.
            bench.world.let_go(1);
            bench.pass(SECOND / 1000);
        }
        let (filled, dedup) = (bench.world.engine.status().index_filled_ppm, bench.dedup());
        assert!(dedup.has_backlog && filled.is_some_and(|ppm| ppm < 1_000_000), "{filled:?}, {dedup:?}");
        let token = bench.begin_flush();
        bench.wait(token).expect("it is durable");
        bench.let_all_go();
        if let Some(cut) = cut {
            assert!(bench.crash(cut).expect("it opens").offline_blocks > 0);
            assert!(bench.dedup().has_backlog);
        }
        bench.pass(30 * SECOND);
        assert_eq!((bench.dedup().state, bench.world.engine.status().index_filled_ppm), (PassState::Finished, None));
        assert_eq!(bench.data_blocks(), stored);
        // Blocks written from here on are found at once.
        bench.write(8, &values);
        assert_eq!((bench.dedup().has_backlog, bench.data_blocks()), (false, stored));
    }
}

/// Hybrid is the default. So each pool went through a pass after each crash, because nothing recorded which volumes had been offline.
#[test]
fn a_crash_brings_a_pass_only_where_something_was_offline() {
    for goal in [Goal::None, Goal::P99(1)] {
        let (mut bench, _) = bench(13);
        let mut contents = vec![0; BLOCKS as usize];
        let change = VolumePropertyChange { policy: Some(Some(Policy::Full)), ..VolumePropertyChange::default() };
        bench.command(Command::SetVolume { volume: VolumeId(1), change });
        bench.set_goal(goal);
        assert_eq!((bench.timing().timing, bench.timing().mode), (Timing::Hybrid, Mode::Inline));
        bench.load(5 * SECOND, &mut contents);
        let was_offline = goal != Goal::None;
        assert_eq!(bench.timing().mode == Mode::Offline, was_offline);
        let recovered = bench.crash(Cut::Lost).expect("it opens");
        assert_eq!((recovered.offline_blocks > 0, bench.dedup().has_backlog), (was_offline, was_offline));
        bench.pass(200 * SECOND);
        assert_eq!(bench.dedup().state == PassState::Finished, was_offline);
        bench.assert_exact(&contents);
    }
}

/// Blocks that could have been shared are not stored where space is short.
#[test]
fn a_hybrid_volume_stays_inline_where_space_is_short() {
    for (blocks, is_short) in [(300, false), (605, true)] {
        let mut bench = Bench::new(config(&mut Random::new(9)), BLOCKS + blocks);
        bench.set(Policy::Full, Timing::Hybrid);
        for block in BLOCKS..BLOCKS + blocks {
            bench.write(block, &[1000 + block as u32]);
        }
        bench.set_goal(Goal::P99(1));
        bench.load(8 * SECOND, &mut vec![0; BLOCKS as usize]);
        assert!(bench.timing().may_change);
        assert_eq!(bench.timing().mode == Mode::Inline, is_short, "{blocks} of 640");
    }
}

/// A user who ends a pass does not want another one a minute later.
#[test]
fn a_pass_that_was_ended_or_rests_does_not_begin_by_itself() {
    let (mut bench, _) = bench(5);
    bench.set(Policy::Full, Timing::Offline);
    bench.write(0, &[1, 1, 1]);
    bench.command(Command::Dedup { command: DedupCommand::Start });
    if bench.dedup().state == PassState::Running {
        bench.command(Command::Dedup { command: DedupCommand::Pause });
        bench.write(4, &[1, 1, 1]);
        bench.pass(3000 * SECOND);
        assert_eq!(bench.dedup().state, PassState::Paused);
        bench.command(Command::Dedup { command: DedupCommand::Stop });
        bench.pass(3000 * SECOND);
        assert_eq!(bench.dedup().state, PassState::Stopped);
    }
    bench.write(8, &[1]);
    bench.pass(100 * SECOND);
    assert_eq!(bench.dedup().state, PassState::Finished);
    assert_eq!(bench.data_blocks(), 1);
}

/// With a goal out of reach the controller goes offline while clients wait for the device, and comes back when there are none. Then all is shared.
#[test]
fn a_hybrid_volume_goes_offline_under_stress_and_comes_back_by_itself() {
    let (mut bench, _) = bench(9);
    let mut contents = vec![0; BLOCKS as usize];
    bench.set(Policy::Full, Timing::Hybrid);
    bench.load(3 * SECOND, &mut contents);
    assert_eq!(bench.timing().mode, Mode::Inline, "what is usual is no miss");
    bench.set_goal(Goal::Operations(1 << 40));
    bench.load(8 * SECOND, &mut contents);
    let timing = bench.timing();
    assert_eq!((timing.mode, timing.switches), (Mode::Offline, 1), "{timing:?}");
    assert!(timing.miss_ppm > 900_000 && timing.stressed_ppm > 900_000, "{timing:?}");
    assert!(bench.dedup().has_backlog);
    bench.pass(200 * SECOND);
    assert_eq!((bench.timing().mode, bench.timing().switches), (Mode::Inline, 2));
    assert_eq!((bench.dedup().state, bench.dedup().has_backlog), (PassState::Finished, false));
    assert_eq!(bench.world.engine.next_timer(), None, "it rests");
    bench.assert_exact(&contents);
}

/// Under a load that never rests, offline does not help here. Our controller goes back automatically. The paper's stays offline as long as there is
/// stress. A newly chosen controller begins inline, and a restart keeps the choice.
#[test]
fn the_paper_s_controller_goes_by_the_load_and_is_kept_over_a_restart() {
    let mut switches = Vec::new();
    for controller in [Controller::Forecast, Controller::Paper] {
        let (mut bench, _) = bench(9);
        let mut contents = vec![0; BLOCKS as usize];
        bench.set(Policy::Full, Timing::Hybrid);
        bench.set_goal(Goal::Operations(1 << 40));
        bench.set_controller(controller);
        bench.load(60 * SECOND, &mut contents);
        switches.push(bench.timing().switches);
        if controller == Controller::Forecast {
            continue;
        }
        assert_eq!(bench.timing().mode, Mode::Offline);
        bench.set_controller(Controller::Forecast);
        assert_eq!(bench.timing().mode, Mode::Inline, "at once");
        bench.set_controller(controller);
        bench.load(8 * SECOND, &mut contents);
        assert_eq!(bench.timing().mode, Mode::Offline);
        bench.pass(200 * SECOND);
        assert_eq!((bench.timing().mode, bench.timing().switches), (Mode::Inline, 2), "nobody is there");
        bench.assert_exact(&contents);
        bench.reopen();
        assert_eq!(bench.world.engine.volumes().next().expect("there is one").properties.controller(), controller);
    }
    assert!(switches[0] >= 2 && switches[1] == 1, "{switches:?}");
}

/// Modes change while blocks are written: a pass leaves each content once in the end.
#[test]
fn timing_and_goals_change_while_clients_write_and_a_pass_goes_on() {
    let mut switches = 0;
    for seed in 20..28 {
        let (mut bench, mut random) = bench(seed);
        let mut contents = vec![0; BLOCKS as usize];
        for _ in 0..12 {
            let timing = random.pick(&[Timing::Hybrid, Timing::Hybrid, Timing::Offline, Timing::Inline]);
            bench.set(random.pick(&policies()), timing);
            bench.set_goal(random.pick(&[Goal::Operations(1 << 40), Goal::P99(1), Goal::P99(SECOND), Goal::None]));
            if random.one_in(3) {
                bench.start_pass();
            }
            bench.load(random.below(5) * SECOND, &mut contents);
            switches += bench.timing().switches;
            match random.below(8) {
                0 => bench.reopen(),
                1 => bench.pass(30 * SECOND),
                _ => {}
            }
        }
        bench.set(Policy::Full, Timing::Hybrid);
        bench.run_pass(SECOND);
        bench.start_pass();
        bench.run_pass(SECOND);
        bench.assert_exact(&contents);
    }
    assert!(switches > 0);
}

/// A scrub had a quarter of the device whatever the goals were. Now it draws from the throttle, as the pass does. Neither falls behind because of the
/// other, nor because of clients that never rest.
#[test]
fn a_scrub_beside_a_pass_takes_what_goals_leave_it_and_both_come_to_their_ends() {
    // How long they take depends on how their steps meet: several runs count together.
    let mut done = [0, 0];
    for (which, goal, seed) in
        [10, 11, 14, 15, 19].map(|seed| [(0, Goal::P99(1), seed), (1, Goal::P99(SECOND), seed)]).concat()
    {
        let (mut bench, _) = bench(seed);
        let mut contents = vec![0; BLOCKS as usize];
        // Without an index on disk: its parts wait for checkpoints, in either case.
        bench.set(Policy::default(), Timing::Offline);
        bench.set_goal(goal);
        bench.load(30 * SECOND, &mut contents);
        bench.command(Command::Scrub { command: ScrubCommand::Start, seconds: 0 });
        bench.start_pass();
        let (began, running) = (bench.world.now, PassState::Running);
        while [bench.dedup().state, bench.world.engine.status().scrub.state].contains(&running) {
            bench.load(SECOND / 1000, &mut contents);
            assert!(bench.world.now < began + 500 * SECOND, "{:?}", bench.world.engine.status());
        }
        let status = bench.world.engine.status();
        assert_eq!((status.dedup.state, status.scrub.state), (PassState::Finished, PassState::Finished));
        assert_eq!((status.scrub.found, status.scrub.blocks_done >= 7), (0, true), "{:?}", status.scrub);
        done[which] += bench.world.now - began;
    }
    assert!(done[0] > 2 * done[1], "{done:?} ns: a goal out of reach, and one with headroom");
}

/// HIODS' loop: a pass beside an offline volume that misses its goal rests for each block, with either gain. While all volumes are inline it does not
/// rest at all. The choice outlives restarts and crashes. The computed delay begins anew with them.
#[test]
fn the_paper_s_loop_delays_the_pass_while_a_goal_is_missed_and_is_off_while_all_are_inline() {
    let set = |bench: &mut Bench, throttle| {
        bench.command(Command::SetPool(PoolChange { throttle: Some(throttle), ..PoolChange::default() }));
    };
    let delay = |bench: &Bench| bench.world.engine.status().throttle.pass_delay;
    let mut took = Vec::new();
    let cases = [
        (PassThrottle::Share, Timing::Offline),
        (PassThrottle::Listing, Timing::Inline),
        (PassThrottle::Listing, Timing::Offline),
    ];
    for (throttle, timing) in cases {
        let (mut bench, _) = bench(23);
        let mut contents = vec![0; BLOCKS as usize];
        set(&mut bench, throttle);
        bench.set(Policy::default(), Timing::Offline);
        bench.set_goal(Goal::Operations(1_000_000));
        bench.load(10 * SECOND, &mut contents);
        bench.set(Policy::default(), timing);
        bench.load(2 * SECOND, &mut contents);
        match (throttle, timing) {
            (PassThrottle::Share, _) => assert_eq!(delay(&bench), None),
            (_, Timing::Inline) => assert_eq!(delay(&bench), Some(0)),
            // 5 ns for each of nearly a million, and 0.15 for each of them and each second.
            _ => assert!((5_500_000..7_500_000).contains(&delay(&bench).unwrap_or(0)), "{:?}", delay(&bench)),
        }
        let began = bench.world.now;
        bench.start_pass();
        while bench.dedup().state == PassState::Running {
            bench.load(SECOND / 1000, &mut contents);
            assert!(bench.world.now < began + 500 * SECOND, "{:?}", bench.dedup());
        }
        took.push(bench.world.now - began);
        // The next pass finds the blocks written meanwhile. There are no clients, so it does not rest.
        let began = bench.world.now;
        bench.start_pass();
        bench.run_pass(SECOND / 10);
        assert!(bench.world.now <= began + SECOND / 2);
        bench.assert_exact(&contents);
        if timing == Timing::Inline {
            continue;
        }
        set(&mut bench, PassThrottle::Experiment);
        assert_eq!(delay(&bench), Some(0), "it begins anew");
        bench.load(10 * SECOND, &mut contents);
        assert!(
            (4_500_000..5_200_000).contains(&delay(&bench).unwrap_or(0)),
            "{:?}: hardly any integral",
            delay(&bench)
        );
        bench.reopen();
        bench.crash(Cut::Lost).expect("it opens");
        assert_eq!((bench.world.engine.properties().throttle(), delay(&bench)), (PassThrottle::Experiment, Some(0)));
        set(&mut bench, PassThrottle::Share);
        assert_eq!(delay(&bench), None);
    }
    let [by_share, inline, offline] = took[..] else { unreachable!() };
    assert!(inline < by_share && offline > 2 * by_share, "{took:?} ns");
    // The blocks are in at most two leaves, and each leaf takes a rest of at most a second.
    assert!((SECOND / 2..20 * SECOND).contains(&offline), "{offline} ns");
}

#[test]
fn the_share_of_the_pass_follows_the_goal_and_is_never_nothing() {
    let (mut bench, _) = bench(11);
    let mut contents = vec![0; BLOCKS as usize];
    bench.set(Policy::Full, Timing::Inline);
    bench.set_goal(Goal::P99(SECOND));
    bench.load(30 * SECOND, &mut contents);
    let headroom = bench.world.engine.status().throttle;
    assert!(headroom.share_ppm > 500_000 && headroom.miss_ppm < 0, "{headroom:?}");
    bench.set_goal(Goal::P99(1));
    bench.load(10 * SECOND, &mut contents);
    let none = bench.world.engine.status().throttle;
    assert_eq!((none.share_ppm, none.miss_ppm), (20_000, 1_000_000), "{none:?}");
    bench.set(Policy::Full, Timing::Offline);
    bench.load(2 * SECOND, &mut contents);
    bench.start_pass();
    for _ in 0..300 {
        bench.load(SECOND / 2, &mut contents);
    }
    assert_eq!(bench.dedup().state, PassState::Finished, "though clients never rest");
    bench.reopen();
    let volume = bench.world.engine.volumes().next().expect("there is one");
    assert_eq!((volume.properties.timing(), volume.properties.goal()), (Some(Timing::Offline), Goal::P99(1)));
}
