//! The path of an event through the engine.
//!
//! [`Engine::handle`] takes events in and does only the certain part of their work. When [`Engine::next_effect`] runs out of effects, it *pumps*:
//! runs the requests that can run, moves the jobs a bounded number of steps, closes and syncs records. So events that arrive together are served
//! together: one record, one sync.

use crate::api::{Effect, Event, Nanos};
use crate::engine::Engine;
use crate::jobs::PumpPhase;
use crate::pool::state::{LoadSnapshot, Phase};

impl Engine {
    /// Takes one event in.
    pub fn handle(&mut self, now: Nanos, event: Event<'_>) {
        self.pool.state.now = self.pool.state.now.max(now);
        self.pool.wake();
        match event {
            Event::Submit(submit) => self.submit(submit),
            Event::Done { io, result } => {
                self.pool.durable.metadata.io.came_back(io);
                self.done(io, result);
                self.complete_sync();
            }
            Event::Sent(request) => self.sent(request),
            Event::Timer => self.timer(),
            Event::FlashLate => self.flash_is_late(),
            Event::GrowthOffered(stands) => self.pool.growth_offered(stands),
            Event::Control { token, command } => self.command(token, command),
        }
    }

    /// Returns the engine's next effect; call until `None` after every [`Engine::handle`] (or after several).
    pub fn next_effect(&mut self) -> Option<Effect> {
        while self.pool.durable.metadata.io.effects.is_empty() && self.pool.take_wake() {
            self.pump();
        }
        self.pool.durable.metadata.io.effects.pop_front()
    }

    fn pump(&mut self) {
        if self.pool.state.phase == Phase::Recovering {
            self.recover();
        }
        if self.serves() {
            if self.requests.foreground().is_due(self.pool.state.now) {
                self.measure();
            }
            if self.enospc.is_on() {
                self.step_enospc();
            }
            self.run_ready();
            self.retry_out_of_buffers();
            let writes = !self.pool.state.read_only && !self.pool.state.untouched;
            while writes && self.pool.open_ahead() && !self.waiting_for_space.is_empty() {
                self.retry_waiting_for_space();
            }
            self.retry_waiting_for_space();
            self.run_time_slices();
            self.step_read_ahead();
            self.repairs.step_repairs(&mut self.pool);
            self.answer_repaired();
            let load = self.load();
            self.pass_jobs(PumpPhase::First, &load);
            if self.pool.state.phase == Phase::Serving {
                self.jobs.move_partition(&mut self.pool);
            }
            if self.pool.state.read_only {
                self.step_failure();
            } else if !self.pool.state.untouched {
                self.step_jobs(&load);
                self.repairs.step_copies(&mut self.pool, &load);
                self.jobs.index_prefetch.step(&mut self.pool);
                self.commit();
                self.relieve_pressure();
                self.pool.reserve_ahead();
            }
            let mut load = self.load();
            self.pass_jobs(PumpPhase::Last, &load);
            if !self.pending_commands.is_empty() {
                self.step_commands();
                load = self.load();
            }
            self.set_tick(&load);
        }
    }

    /// Measures the recent service of clients, which sets the throttle of background work and the mode of each volume.
    #[inline(never)]
    fn measure(&mut self) {
        let spent = self.jobs.has_no_more_to_give();
        let measured = self.requests.measure(&mut self.pool, spent);
        self.jobs.follow(self.pool.throttle(), &measured);
    }

    fn run_ready(&mut self) {
        while let Some(id) = self.ready.pop_front() {
            self.run(id);
        }
    }

    fn retry_out_of_buffers(&mut self) {
        for _ in 0..self.out_of_buffers.len() {
            let Some(id) = self.out_of_buffers.pop_front() else { break };
            let before = self.out_of_buffers.len();
            self.run(id);
            if self.out_of_buffers.len() > before {
                // Still out of buffers: it keeps its place.
                self.out_of_buffers.rotate_right(1);
                break;
            }
        }
    }

    /// Moves the checkpoint a bounded number of steps, then steps the jobs that change the pool's write path.
    fn step_jobs(&mut self, load: &LoadSnapshot) {
        if self.pool.state.closes_early {
            return;
        }
        if self.pool.durable.reclaim_left {
            self.jobs.reclaim(&mut self.pool, &self.repairs);
        }
        if let Err(failure) = self.jobs.step_checkpoint(&mut self.pool, &self.repairs, load) {
            self.fail_pool(failure);
        }
        self.pass_jobs(PumpPhase::Middle, load);
    }

    /// Steps the jobs whose place is here.
    #[inline(always)]
    fn pass_jobs(&mut self, place: PumpPhase, load: &LoadSnapshot) {
        self.jobs.pass(place, &mut self.pool, &mut self.repairs, load);
    }

    fn timer(&mut self) {
        self.time_slices.begin(&self.pool.limits);
        self.jobs.forget_due(self.pool.state.now);
        if self.tick.is_some_and(|tick| tick <= self.pool.state.now) {
            self.tick = None;
            if matches!(self.pool.state.phase, Phase::Serving | Phase::Closing)
                && !self.pool.state.read_only
                && !self.pool.state.untouched
            {
                self.self_sync();
            }
        }
    }
}
