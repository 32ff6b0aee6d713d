//! End of a reactor, in order: clients get their last replies, the engine writes a last checkpoint, and the ownership of the pool ends. Each step has a
//! deadline.

use std::time::{Duration, Instant};

use anyhow::Context;
use engine::{Command, ControlError, Failure};
use tracing::warn;

use super::Reactor;
use crate::commands::error_text::explain_control;
use crate::report::status::{failure_text, remedy};

/// Time that requests in service, and then connections, may take to end when the server stops.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that the store may take to make the journal durable after the checkpoint was given up.
const LAST_PATIENCE: Duration = Duration::from_secs(10);
/// Interval of the reports on the progress of a stop.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

impl Reactor {
    /// Stops serving: no more clients. Requests in service get `PATIENCE` to complete; then all connections end.
    pub fn drain(&mut self) -> anyhow::Result<()> {
        self.lifecycle.drain();
        self.server.stop(&mut self.core);
        let (clients, busy) = self.server.in_service();
        self.lifecycle.say(&format!(
            "stopping: {clients} clients, {busy} with requests or replies in service, up to {} s for these",
            PATIENCE.as_secs()
        ));
        let deadline = Instant::now() + PATIENCE;
        while !self.server.is_quiet() && Instant::now() < deadline && !self.lifecycle.is_hurried() {
            self.turn_until(deadline)?;
        }
        self.server.disconnect(|_| true);
        let deadline = Instant::now() + PATIENCE;
        self.settle();
        while !self.server.is_empty() && Instant::now() < deadline {
            self.turn(Some(Duration::from_millis(50)))?;
        }
        Ok(())
    }

    /// Finishes operations in flight and marks the pool as cleanly closed. The checkpoint of that is given up at the deadline, or at one more stop request: the
    /// journal has everything.
    pub fn close(&mut self, deadline: Option<Instant>) -> anyhow::Result<()> {
        self.commands.submit_ours(&[Command::Close], &mut self.core);
        let result = match self.closed_until(deadline, true)? {
            Some(result) => result,
            None => {
                self.lifecycle.say("giving up the last checkpoint: making the journal durable");
                self.commands.submit_ours(&[Command::CloseEarly], &mut self.core);
                let last = self.closed_until(Some(Instant::now() + LAST_PATIENCE), false)?;
                last.context(
                    "the store does not answer: unflushed writes may be lost; the next start recovers the rest",
                )?
            }
        };
        self.look();
        match result {
            Ok(()) => self.lifecycle.release(),
            Err(error @ (ControlError::NoCheckpoint | ControlError::HostFull)) => {
                warn!("{}", explain_control(error));
                self.lifecycle.release();
            }
            Err(error) => return Err(self.explain_closing(error)),
        }
        Ok(())
    }

    /// Explains why the pool is not closed.
    fn explain_closing(&self, error: ControlError) -> anyhow::Error {
        if self.core.engine.is_taken_over() {
            // A server has logged it when it noticed.
            let who = match self.lifecycle.is_serving() {
                true => failure_text(Failure::TakenOver).into(),
                false => self.lifecycle.who_took_over(),
            };
            return anyhow::anyhow!("{} is not closed: {who}", self.devices.store_path().display());
        }
        match (error, self.core.engine.status().failure) {
            (ControlError::NotDurable, _) => anyhow::anyhow!(explain_control(error)),
            (ControlError::ReadOnly, Some(failure)) => {
                anyhow::anyhow!("the pool has failed: {}. {}", failure_text(failure), remedy(failure))
            }
            _ => anyhow::anyhow!(
                "the pool could not be marked as cleanly closed ({error:?}); it will be recovered when it is opened next"
            ),
        }
    }

    /// Waits for the end of closing; `None` at the deadline, or, if it `hurries`, at one more stop request.
    fn closed_until(
        &mut self,
        deadline: Option<Instant>,
        hurries: bool,
    ) -> anyhow::Result<Option<Result<(), ControlError>>> {
        loop {
            self.settle();
            if let Some(outcome) = self.commands.take_result() {
                return Ok(Some(outcome.result));
            }
            let Some(deadline) = deadline else {
                self.turn(None)?;
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || (hurries && self.lifecycle.is_hurried()) {
                return Ok(None);
            }
            let mappings = self.core.engine.status().unmerged_entries;
            self.lifecycle.status(&format!("closing: {mappings} mappings to merge, {} s left", left.as_secs()));
            self.turn_until(deadline)?;
        }
    }

    /// Performs one turn on the way to the end, of at most a second, and asks the service manager for more time.
    fn turn_until(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.lifecycle.extend();
        let left = deadline.saturating_duration_since(Instant::now());
        self.turn(Some(left.min(REPORT_PERIOD)))
    }
}
