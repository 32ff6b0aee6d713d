//! Wait of a turn for the next event: awake for a while where that pays ([`Poll`]), else asleep in the ring.
//!
//! Owns the record that decides on polls, and the list that completions are collected in.

use std::time::Duration;

use engine::Nanos;

use crate::frontend::nbd::server::Server;
use crate::io::core::Core;
use crate::io::poll::Poll;
use crate::io::ring::Completion;

/// Wait for events.
pub(super) struct EventWait {
    poll: Poll,
    /// Requests that had come when it last waited.
    requests_seen: u64,
    completions: Vec<Completion>,
}

impl EventWait {
    /// Creates a wait with polls of at most `longest`.
    pub(super) fn new(longest: Nanos) -> EventWait {
        EventWait { poll: Poll::new(longest), requests_seen: 0, completions: Vec::new() }
    }

    /// Submits, and waits for the next event; until the engine's timer, the server's deadline, `due` (given the time of the clock), or for `limit`, whichever
    /// comes first. Sets the time of the turn.
    pub(super) fn wait(
        &mut self,
        core: &mut Core,
        server: &Server,
        due: impl Fn(Nanos) -> Option<Nanos>,
        limit: Option<Duration>,
    ) -> anyhow::Result<()> {
        if server.has_work(core) {
            // There is enough to do: only what else has come.
            core.ring.submit_and_wait(Some(Duration::ZERO))?;
            core.tick();
            return Ok(());
        }
        let (begun, requests) = (core.clock(), server.requests());
        let is_for_client = !server.is_in_service() && !core.ring.has_durable();
        let look = if is_for_client { self.poll.look(begun) } else { 0 };
        let looks = look > 0 && core.ring.submit() && !core.ring.has_unhurried();
        if looks {
            self.look(begun, look, core);
        }
        let now = core.clock();
        let due = [core.engine.next_timer(), server.next_deadline(), due(now)].into_iter().flatten().min();
        let until = due.map(|due| Duration::from_nanos(due.saturating_sub(now)));
        core.ring.submit_and_wait([until, limit].into_iter().flatten().min())?;
        core.tick();
        let requests = requests - std::mem::replace(&mut self.requests_seen, requests);
        if is_for_client {
            self.poll.waited(looks, core.now - begun, requests);
        }
        Ok(())
    }

    /// Looks for an event for at most `longest`, without sleeping.
    fn look(&mut self, begun: Nanos, longest: Nanos, core: &mut Core) {
        let mut now = begun;
        while !core.ring.has_news() && now - begun < longest {
            std::hint::spin_loop();
            let before = std::mem::replace(&mut now, core.clock());
            self.poll.looked(before, now);
        }
        if core.ring.has_news() {
            self.poll.found();
        }
    }

    /// Collects the operations that have ended, in a list to be given back.
    pub(super) fn completions(&mut self, core: &mut Core) -> Vec<Completion> {
        let mut completions = std::mem::take(&mut self.completions);
        core.ring.completions(&mut completions);
        completions
    }

    /// Takes the empty list back, to be used again.
    pub(super) fn give_back(&mut self, completions: Vec<Completion>) {
        self.completions = completions;
    }
}
