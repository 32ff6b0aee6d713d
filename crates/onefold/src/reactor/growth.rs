//! Growth of a served pool: requested by an operator, or automatic where its maps are short.

use engine::{Command, ControlError, Event, Nanos, Status};
use tracing::{info, warn};

use super::{Reactor, Waiter};
use crate::commands::error_text::explain_control;
use crate::store::grow;

/// Time from a failed automatic growth to the next attempt.
const GROWTH_PAUSE: Nanos = 10_000_000_000;

impl Reactor {
    /// Makes space for a larger pool. Fails while the pool is growing: the needs of the next growth depend on the result of this one.
    pub(super) fn prepare_growth(&mut self, wanted: grow::Wanted) -> anyhow::Result<()> {
        anyhow::ensure!(self.growing.is_none(), "the pool is growing already: try again in a moment");
        let memory = self.grown_memory();
        let size = grow::prepare(&mut self.store, self.core.engine.geometry(), wanted, memory)?;
        self.disk.grown(size);
        Ok(())
    }

    /// Offers the engine a growth of metadata, or takes the offer back.
    fn offer_growth(&mut self, stands: bool) {
        self.growth_offered = stands;
        self.core.engine.handle(self.core.now, Event::GrowthOffered(stands));
    }

    /// Answers writes that wait for metadata: the pool grows, or they fail.
    pub(super) fn answer_for_metadata(&mut self) {
        if self.core.engine.awaits_growth() && self.growing.is_none() {
            self.grow_automatically(&self.core.engine.status());
            if self.growing.is_none() {
                self.offer_growth(false);
            }
            self.settle();
        }
    }

    /// Gives the pool more metadata if its maps are short and the store has space. If the store has none, it tries again after a while, and until then
    /// writes that find no metadata fail at once.
    pub(super) fn grow_automatically(&mut self, status: &Status) {
        let may = self.growing.is_none() && self.stops == 0 && self.core.engine.takes_changes();
        if !self.serving || !may || self.core.now < self.grows_after {
            return;
        }
        if !self.growth_offered {
            self.offer_growth(true);
        }
        let geometry = *self.core.engine.geometry();
        let awaited = self.core.engine.awaits_growth();
        let wanted = match grow::Wanted::automatic(&mut self.store, &geometry, status, awaited) {
            Ok(Some(wanted)) => wanted,
            Ok(None) => return,
            Err(error) => return self.cannot_grow(&error),
        };
        if let Err(error) = self.prepare_growth(wanted) {
            return self.cannot_grow(&error);
        }
        let left = geometry.growths_left() - 1;
        info!(
            "the pool's maps and tables are nearly full: it gets more space for them; that is possible {left} times more"
        );
        let grow::Wanted { capacity, metadata } = wanted;
        self.growing = Some(self.submit_command(Command::Grow { capacity, metadata }, Waiter::Growth));
    }

    /// Takes the result of an automatic growth.
    pub(super) fn grown_automatically(&mut self, result: Result<(), ControlError>) {
        match result {
            Ok(()) => self.growth_error = None,
            Err(error) => self.cannot_grow(&anyhow::Error::msg(explain_control(error))),
        }
    }

    /// Notes that the pool's maps are short and that it cannot grow now: logs a new reason once, and pauses for `GROWTH_PAUSE`.
    fn cannot_grow(&mut self, error: &anyhow::Error) {
        self.grows_after = self.core.now + GROWTH_PAUSE;
        let error = format!("{error:#}");
        if self.growth_error.as_ref() != Some(&error) {
            warn!("the pool's maps and tables are nearly full, and it cannot grow automatically: {error}");
            self.growth_error = Some(error);
        }
    }
}
