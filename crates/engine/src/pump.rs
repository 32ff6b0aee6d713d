//! The path of an event through the engine.
//!
//! [`Engine::handle`] takes events in and does only the certain part of their work. When [`Engine::next_effect`] runs out of effects, it *pumps*:
//! runs the requests that can run, moves the jobs a bounded number of steps, closes and syncs records. So events that arrive together are served
//! together: one record, one sync.

use crate::api::{Effect, Event, Nanos};
use crate::engine::Engine;
use crate::jobs::PumpPhase;
use crate::pool::copy_access::CopyAccess;
use crate::pool::state::{LoadSnapshot, Phase};

/// Nanoseconds after which the engine syncs without a flush.
const SELF_SYNC: Nanos = 1_000_000_000;
/// Time after which an idle pool merges its delta.
const IDLE_MERGE: Nanos = 5_000_000_000;

impl Engine {
    /// Takes one event in.
    pub fn handle(&mut self, now: Nanos, event: Event<'_>) {
        self.pool.state.advance(now);
        self.pool.wake();
        match event {
            Event::Submit(submit) => self.submit(submit),
            Event::Done { io, result } => {
                self.pool.metadata.io_mut().came_back(io);
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
        while self.pool.metadata.io().has_no_effect() && self.pool.take_wake() {
            self.pump();
        }
        self.pool.metadata.io_mut().next_effect()
    }

    fn pump(&mut self) {
        if self.pool.state.phase() == Phase::Recovering {
            self.recover();
        }
        if self.serves() {
            if self.requests.foreground().is_due(self.pool.state.now()) {
                self.measure();
            }
            if self.enospc.is_on() && self.pool.state.read_only() {
                self.end_kept_writes();
            } else if self.enospc.is_on() {
                self.step_enospc();
            }
            self.run_ready();
            self.retry_out_of_buffers();
            let writes = self.pool.state.is_written();
            while writes && self.pool.open_ahead() && self.queues.has_waits_for_space() {
                self.retry_waiting_for_space();
            }
            self.retry_waiting_for_space();
            self.run_time_slices();
            self.step_read_ahead();
            self.repairs.step_repairs(&mut self.pool);
            self.answer_repaired();
            let load = self.load();
            self.pass_jobs(PumpPhase::First, &load);
            if self.pool.state.phase() == Phase::Serving {
                self.jobs.move_partition(&mut self.pool);
            }
            if self.pool.state.read_only() {
                self.step_failure();
            } else if !self.pool.state.untouched() {
                self.step_jobs(&load);
                self.repairs.step_copies(&mut self.pool, &load);
                self.jobs.index_prefetch.step(&mut CopyAccess::new(&mut self.pool));
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
        self.jobs.follow(self.pool.properties.throttle(), &measured);
    }

    /// Moves the checkpoint a bounded number of steps, and reclaims slots, then visits the jobs of the middle phase: index rebuild and cache warm-up.
    #[inline(always)]
    fn step_jobs(&mut self, load: &LoadSnapshot) {
        if self.pool.state.closes_early() {
            return;
        }
        if self.pool.durable.reclaim_left() {
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
        self.jobs.forget_due(self.pool.state.now());
        if self.tick.is_some_and(|tick| tick <= self.pool.state.now()) {
            self.tick = None;
            if matches!(self.pool.state.phase(), Phase::Serving | Phase::Closing) && self.pool.state.is_written() {
                self.self_sync();
            }
        }
    }

    /// Begins to make changes durable and to publish them, a second after the first change that is not; an idle pool merges its delta.
    fn self_sync(&mut self) {
        self.pool.state.set_host_full(false);
        if self.pool.state.metadata_full() {
            self.jobs.reserve_metadata(&mut self.pool);
        }
        self.pool.durable.journal_mut().want_all_durable();
        self.pool.write_inlined();
        self.jobs.reclaim(&mut self.pool, &self.repairs);
        self.pool.publish_pending();
        // A damaged record is told from one that a crash cut off only if it is known to have been durable.
        let filled = self.pool.durable.journal().last_filled();
        self.pool.durable.journal_mut().publish(filled);
        let idle = self.pool.state.now() >= self.pool.state.last_change() + IDLE_MERGE;
        let walks = self.pool.has_discards() || self.pool.has_hidden_to_count();
        if idle && (!self.pool.durable.delta().is_empty() || walks) {
            self.pool.request_checkpoint();
        }
    }

    /// Decides, at the end of a pump, when the engine next runs without an event.
    fn set_tick(&mut self, load: &LoadSnapshot) {
        let unsafe_records = !self.pool.durable.journal().is_durable();
        let waits = unsafe_records
            || self.pool.durable.journal().last_filled() > self.pool.durable.journal().published()
            || !self.pool.durable.journal().inlined().is_empty()
            || !self.pool.durable.space().pending().is_empty()
            || !self.pool.durable.delta().is_empty()
            || self.pool.has_discards()
            || self.pool.has_hidden_to_count()
            || self.jobs.disk_index_is_due(&self.pool, load)
            || self.queues.has_waits_for_space()
            || self.pool.checkpoint.is_in_progress()
            || self.pool.state.metadata_full()
            || self.pool.state.host_full();
        let writes = self.pool.state.is_written();
        let checkpoint = writes && !self.pool.state.closes_early() && self.jobs.checkpoint_can_step();
        self.jobs.set_timer(&self.pool, load, checkpoint);
        let reclaims = self.pool.durable.reclaim_left() && writes && !self.pool.state.closes_early();
        self.jobs.note_work_left(reclaims || self.time_slices.has_requests());
        if !waits || !writes {
            self.tick = None;
        } else {
            let due = self.pool.state.now() + SELF_SYNC;
            self.tick =
                Some(self.tick.map_or(due, |tick| if tick <= self.pool.state.now() { due } else { tick.min(due) }));
        }
    }
}
