//! How a pool that is served grows: asked for, or by itself where its maps are short.

use engine::{Command, Nanos, Status};
use tracing::{info, warn};

use super::{Reactor, WATCH_NANOS, Waiter};
use crate::store::grow;

/// How often it is looked whether maps are short, while clients write.
const GROWTH_PERIOD: Nanos = 2_000_000;
/// From one growth that nobody asked for to the next.
const GROWTH_PAUSE: Nanos = 10_000_000_000;

impl Reactor {
    /// Makes room for a larger pool. One growth at a time: what the next one needs depends on what this one comes to.
    pub(super) fn prepare_growth(&mut self, wanted: grow::Wanted) -> anyhow::Result<()> {
        anyhow::ensure!(self.growing.is_none(), "the pool is growing already: try again in a moment");
        let memory = self.grown_memory();
        let size = grow::prepare(&mut self.store, self.core.engine.geometry(), wanted, memory)?;
        self.disk.grown(size);
        Ok(())
    }

    /// Looks whether maps are short, where clients have sent something: one can write all that is left for maps before the next look at the pool. Where
    /// the pool cannot grow then, it is tried no more often than that.
    pub(super) fn look_at_maps(&mut self) {
        if !self.serving || self.core.now < self.growth_look {
            return;
        }
        let is_short = self.core.engine.is_metadata_short();
        self.growth_look = self.core.now + if is_short { WATCH_NANOS } else { GROWTH_PERIOD };
        if is_short {
            self.grow_unasked(&self.core.engine.status());
        }
    }

    /// Gives the pool more metadata where its maps are short and the store has room.
    pub(super) fn grow_unasked(&mut self, status: &Status) {
        let may = self.growing.is_none() && self.stops == 0 && self.core.engine.takes_changes();
        if !self.serving || !may || self.core.now < self.grows_after {
            return;
        }
        let geometry = *self.core.engine.geometry();
        let Some(wanted) = grow::Wanted::unasked(&mut self.store, &geometry, status) else { return };
        self.grows_after = self.core.now + GROWTH_PAUSE;
        if let Err(error) = self.prepare_growth(wanted) {
            return warn!("the pool's maps and tables are nearly full, and it cannot grow by itself: {error:#}");
        }
        let left = geometry.growths_left() - 1;
        info!(
            "the pool's maps and tables are nearly full: it gets more room for them; that is possible {left} times more"
        );
        let grow::Wanted { capacity, metadata } = wanted;
        self.growing = Some(self.submit_command(Command::Grow { capacity, metadata }, Waiter::Growth));
    }
}
