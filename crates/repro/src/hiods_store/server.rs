//! Server of the prototype: one processor that alternates between requests and background, and the drive behind it.
//!
//! SPDK polls: one thread takes a request, then gives the background its turn, and so on. [D]: the text has "concurrency control mechanisms for all auxiliary
//! structures". One lock that alternates is the simplest. In memory, each block of the background costs the requests its own time (tables 11 and 12). The
//! digest is computed within the turn. The drive writes meanwhile.

use std::collections::VecDeque;

use engine::Nanos;
use engine::pid::paper::PaperThrottle;

use super::store::{Content, Store};
use super::{DRIVE, GOAL, Parameters, TIMER_SLACK, Unit, WAKES};
use crate::dedis::BLOCK;
use sim::disks::ssd::{Command, Device};

/// Ways to find duplicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// No deduplication: blocks go to their own addresses, each in a given time.
    Native(Nanos),
    /// Inline.
    Inline,
    /// Later, not in this load.
    Offline,
    /// Later, by a background without delay.
    Beside,
    /// Later, by a background that the feedback loop delays for the goal of table 16. The unit is that of the loop's error.
    Goal(Unit),
}

/// Maximum commands to the drive in flight.
const IN_PROGRESS: usize = 128;
/// Measurement interval of the loop.
const EVERY: Nanos = 1_000_000_000;

/// The server.
pub struct Server {
    /// Time at which its processor is free.
    pub now: Nanos,
    /// The store behind it; unused by [`Way::Native`].
    pub store: Store,
    way: Way,
    request: Nanos,
    drive: Device,
    writes: VecDeque<Nanos>,
    /// Time at which the background may continue.
    background_at: Nanos,
    is_background_turn: bool,
    wakes: Nanos,
    feedback: PaperThrottle,
    measured_at: Nanos,
    served_before: u64,
    /// Requests.
    pub served: u64,
    /// Blocks of the background.
    pub processed: u64,
}

impl Server {
    /// Creates an idle server. Its background wakes `times` more often than the paper's.
    pub fn new(store: Store, way: Way, parameters: &Parameters, times: u64, feedback: PaperThrottle) -> Server {
        Server {
            now: 0,
            store,
            way,
            request: parameters.request,
            drive: Device::new(DRIVE),
            writes: VecDeque::new(),
            background_at: WAKES / times,
            is_background_turn: false,
            wakes: WAKES / times,
            feedback,
            measured_at: EVERY,
            served_before: 0,
            served: 0,
            processed: 0,
        }
    }

    fn has_background(&self) -> bool {
        matches!(self.way, Way::Beside | Way::Goal(_)) && self.store.pending() > 0
    }

    /// Writes a block; then, if it is due, the background has its turn.
    pub fn write(&mut self, logical: u64, content: Content) {
        if self.is_background_turn && self.has_background() && self.background_at <= self.now {
            self.background();
        }
        self.is_background_turn = true;
        self.served += 1;
        let done = match self.way {
            Way::Native(each) => {
                self.now += each;
                return;
            }
            Way::Inline => self.store.inline(logical, content, self.now + self.request),
            Way::Offline | Way::Beside | Way::Goal(_) => self.store.offline(logical, content, self.now + self.request),
        };
        self.now = done.at;
        if done.writes.is_some() {
            let end = self.drive.submit(self.now, Command::Write(BLOCK));
            self.writes.push_back(end);
            if self.writes.len() > IN_PROGRESS {
                let oldest = self.writes.pop_front().unwrap_or(0);
                self.now = self.now.max(oldest);
            }
        }
        self.measure();
    }

    /// Advances to `time` without client requests: the background continues.
    pub fn rest_until(&mut self, time: Nanos) {
        while self.now < time && self.has_background() && self.background_at < time {
            self.now = self.now.max(self.background_at);
            self.background();
        }
        self.now = self.now.max(time);
        self.measure();
    }

    fn background(&mut self) {
        self.is_background_turn = false;
        self.store.background(&mut self.now);
        self.processed += 1;
        let delay = if matches!(self.way, Way::Goal(_)) { self.feedback.delay + TIMER_SLACK } else { 0 };
        self.background_at = self.now + if self.store.pending() == 0 { self.wakes } else { delay };
    }

    fn measure(&mut self) {
        let Way::Goal(unit) = self.way else { return };
        while self.now >= self.measured_at {
            let rate = self.served - self.served_before;
            self.feedback = self.feedback.next(unit.of(GOAL), unit.of(rate), EVERY);
            (self.served_before, self.measured_at) = (self.served, self.measured_at + EVERY);
        }
    }

    /// Processes all pending blocks, without client load.
    pub fn finish(&mut self) {
        while self.store.background(&mut self.now) {
            self.processed += 1;
        }
    }
}
