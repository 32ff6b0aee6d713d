//! Growth of a pool: requested by an operator, or automatic where the maps of a served pool are short.
//!
//! Owns the growth in progress, the pause after a failed one, and the offer that the engine has. Invariants: one growth at a time, since the needs of the next
//! depend on the result of this one; while the offer stands, the engine keeps writes that find no metadata waiting.

use engine::{Command, ControlError, Event, Nanos, Status};
use tracing::{info, warn};

use super::devices::Devices;
use super::pending_commands::{PendingCommands, Waiter};
use crate::commands::error_text::explain_control;
use crate::io::core::Core;
use crate::store::grow::{ServerMemory, Wanted};

/// Time from a failed automatic growth to the next attempt.
const GROWTH_PAUSE: Nanos = 10_000_000_000;

/// Growth of the pool.
#[derive(Default)]
pub(super) struct Growth {
    /// Token of the command that makes the pool larger, while there is one.
    token: Option<u64>,
    /// Time from which the pool may grow automatically again, after an attempt that failed.
    not_before: Nanos,
    is_offered: bool,
    /// Reason of the last failure that was logged.
    error: Option<String>,
}

impl Growth {
    /// Returns true while the pool is growing.
    pub(super) fn is_running(&self) -> bool {
        self.token.is_some()
    }

    /// Makes space for a larger pool. Fails while the pool is growing.
    pub(super) fn prepare(
        &self,
        wanted: Wanted,
        core: &Core,
        devices: &mut Devices,
        memory: Option<ServerMemory>,
    ) -> anyhow::Result<()> {
        anyhow::ensure!(!self.is_running(), "the pool is growing already: try again in a moment");
        devices.grow(core.engine.geometry(), wanted, memory)
    }

    /// Takes note of the command that makes the pool larger.
    pub(super) fn begin(&mut self, token: u64) {
        self.token.get_or_insert(token);
    }

    /// Ends the growth if its command is the one that was answered; returns true if so.
    pub(super) fn end(&mut self, token: u64) -> bool {
        self.token.take_if(|growing| *growing == token).is_some()
    }

    /// Offers the engine a growth of metadata, or takes the offer back.
    pub(super) fn offer(&mut self, stands: bool, core: &mut Core) {
        self.is_offered = stands;
        core.engine.handle(core.now, Event::GrowthOffered(stands));
    }

    /// Gives a served pool more metadata if its maps are short and the store has space. If the store has none, it tries again after a while, and until then
    /// writes that find no metadata fail at once.
    pub(super) fn grow_automatically(
        &mut self,
        status: &Status,
        core: &mut Core,
        devices: &mut Devices,
        commands: &mut PendingCommands,
        memory: ServerMemory,
    ) {
        if self.is_running() || !core.engine.takes_changes() || core.now < self.not_before {
            return;
        }
        if !self.is_offered {
            self.offer(true, core);
        }
        let geometry = *core.engine.geometry();
        let wanted = match devices.automatic_growth(&geometry, status, core.engine.awaits_growth()) {
            Ok(Some(wanted)) => wanted,
            Ok(None) => return,
            Err(error) => return self.fail(&error, core.now),
        };
        if let Err(error) = self.prepare(wanted, core, devices, Some(memory)) {
            return self.fail(&error, core.now);
        }
        let left = geometry.growths_left() - 1;
        info!(
            "the pool's maps and tables are nearly full: it gets more space for them; that is possible {left} times more"
        );
        let Wanted { capacity, metadata } = wanted;
        self.token = Some(commands.submit(&[Command::Grow { capacity, metadata }], Waiter::Growth, core));
    }

    /// Takes the result of an automatic growth.
    pub(super) fn take_result(&mut self, result: Result<(), ControlError>, now: Nanos) {
        match result {
            Ok(()) => self.error = None,
            Err(error) => self.fail(&anyhow::Error::msg(explain_control(error)), now),
        }
    }

    /// Notes that the pool's maps are short and that it cannot grow now: logs a new reason once, and pauses for `GROWTH_PAUSE`.
    fn fail(&mut self, error: &anyhow::Error, now: Nanos) {
        self.not_before = now + GROWTH_PAUSE;
        let error = format!("{error:#}");
        if self.error.as_ref() != Some(&error) {
            warn!("the pool's maps and tables are nearly full, and it cannot grow automatically: {error}");
            self.error = Some(error);
        }
    }
}
