//! Per-turn request budget of a connection, so that no client can monopolise the reactor.
//!
//! A request can be answered as soon as it is taken in, and then the next one is. With thousands of received requests, one client would keep the reactor from
//! looking at the others' sockets. So a connection begins at most `BEGUN_AT_ONCE` requests in a turn. One that has more waits in a queue, and each of the next
//! turns serves a few of that queue. (The engine bounds the cost of a long request.)

use std::collections::VecDeque;

use crate::frontend::nbd::connection::Connection;

/// Requests that one connection may begin in a turn.
const BEGUN_AT_ONCE: u32 = 32;
/// Number of requests that a step of a handshake counts as: it may write a part of the list of exports.
const HANDSHAKE_STEP: u32 = 8;
/// Connections of the queue that continue in a turn.
const LATER_AT_ONCE: usize = 2;

/// Requests that a connection has begun in the last turn in which it began any.
#[derive(Clone, Copy, Default)]
pub struct IterationBudget {
    turn: u64,
    count: u32,
    /// True while it is in the queue of connections that continue later.
    is_later: bool,
}

impl IterationBudget {
    /// Returns true if it may begin another request, and counts that request; a step of a handshake counts as `HANDSHAKE_STEP`.
    pub fn may_go_on(&mut self, turn: u64, is_handshake: bool) -> bool {
        if self.turn != turn {
            (self.turn, self.count) = (turn, 0);
        }
        let goes_on = !self.is_later && self.count < BEGUN_AT_ONCE;
        if goes_on {
            self.count += if is_handshake { HANDSHAKE_STEP } else { 1 };
        }
        goes_on
    }
}

/// Connections that have more to begin than a turn takes, in order.
#[derive(Default)]
pub struct Later(VecDeque<u32>);

impl Later {
    /// Queues a connection to continue in a later turn, unless it is queued already.
    pub fn add(&mut self, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.begun.is_later, true) {
            self.0.push_back(connection.slot());
        }
    }

    /// Returns the number of queued connections that continue in the turn that begins.
    pub fn due(&self) -> usize {
        self.0.len().min(LATER_AT_ONCE)
    }

    /// Takes the first connection of the queue, which is among `connections`, and returns its slot.
    pub fn next(&mut self, connections: &mut [Option<Box<Connection>>]) -> Option<u32> {
        let slot = self.0.pop_front()?;
        if let Some(connection) = &mut connections[slot as usize] {
            connection.begun.is_later = false;
        }
        Some(slot)
    }

    /// Removes a connection that has ended from the queue.
    pub fn forget(&mut self, slot: u32) {
        self.0.retain(|later| *later != slot);
    }

    /// Returns true if no connection waits for a later turn.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_takes_so_many_requests_of_a_connection_and_fewer_steps_of_a_handshake() {
        let count = |is_handshake| {
            let mut begun = IterationBudget::default();
            let mut turn = |turn| (0..100).filter(|_| begun.may_go_on(turn, is_handshake)).count() as u32;
            (turn(1), turn(1), turn(2))
        };
        assert_eq!(count(false), (BEGUN_AT_ONCE, 0, BEGUN_AT_ONCE));
        let steps = BEGUN_AT_ONCE / HANDSHAKE_STEP;
        assert_eq!(count(true), (steps, 0, steps));
    }
}
