//! Looks at the figures of a pool, for the operator's log: a while after something happened, or when the watch waits for something.
//!
//! Owns the watch, which there is while the pool is served, and the time of its next look.

use engine::{Engine, Nanos, Recovered, Status};

use super::devices::Devices;
use crate::io::disk::Host;
use crate::operators::watch::Watch;

/// Delay from an event to the next look at the pool's figures.
const WATCH_NANOS: Nanos = 200_000_000;

/// Monitor of the pool's figures.
#[derive(Default)]
pub(super) struct Monitor {
    watch: Option<Watch>,
    due: Option<Nanos>,
}

impl Monitor {
    /// Begins to watch a pool that is served, if it is open; the first look is due at once.
    pub(super) fn begin(&mut self, recovered: Option<Recovered>) {
        self.watch = recovered.as_ref().map(Watch::of);
        self.due = Some(0);
    }

    /// Notes that something has happened.
    pub(super) fn note_event(&mut self, now: Nanos) {
        self.due.get_or_insert(now + WATCH_NANOS);
    }

    /// Returns the time of the next look.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Logs changes of background jobs and of the flash.
    pub(super) fn look_at_jobs(&mut self, engine: &Engine, status: &Status, devices: &mut Devices) {
        if let Some(watch) = &mut self.watch {
            watch.look_at_scrub(engine, status);
            watch.look_at_dedup(status);
            devices.look_at_flash(status);
        }
    }

    /// Logs changes of the pool and of the store's host, and sets the time of the next look.
    pub(super) fn look_at_pool(&mut self, now: Nanos, engine: &Engine, status: &Status, devices: &Devices) {
        let host = Host { lacks_space: engine.lacks_space(), ..devices.host() };
        self.due = self.watch.as_mut().and_then(|watch| watch.look(now, status, devices.last_failure(), host));
    }

    /// Returns true if the file system under the pool was full at the last look.
    pub(super) fn host_lacks_space(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::host_lacks_space)
    }
}
