//! Time slices of requests whose work does not depend on their length.
//!
//! A request for extents, a clear of a large range, a long read of holes: a client sends a few bytes, and the engine looks at thousands of entries.
//! Such requests are *long*. They wait apart from the others, which always go first. Their clients share the time, one request each. From one timer
//! to the next all of them together take N *steps* ([`crate::Limits::slice_steps`]). Then the engine asks for the timer at once: a driver looks at
//! new events meanwhile, and short requests are served before the next steps.
//!
//! A step is about one entry of a map or of a delta that is looked at. A request with more steps than a time slice has is answered in part (extents,
//! `read.rs`), or continues in a later time slice (clears, below).

use alloc::collections::VecDeque;

use crate::api::RequestId;
use crate::engine::Engine;
use crate::format::entry::Key;
use crate::limits::Limits;
use crate::mutant::Mutant;
use crate::requests::request::{Kind, Stage};

/// Steps of any long request: for parsing, lookup and answer.
const BEGIN_STEPS: u64 = 32;
/// Steps of a read for each of its blocks.
const READ_STEPS: u64 = 4;
/// The most blocks of a request that is not long.
const SHORT_BLOCKS: u64 = 16;

/// Long requests that can run.
pub(crate) struct TimeSlices {
    /// Clients with long requests, in the order of their time slices.
    clients: VecDeque<Client>,
    /// Number of the requests in `clients` that are clears.
    clears: u32,
    /// Steps that are left until the next timer.
    left: u64,
    /// Steps taken so far.
    taken: u64,
    /// A clear that has waited for space waits for the next time slice.
    wanted: bool,
    /// Bytes of the longest read or clear that is not long.
    short: u64,
}

/// A client's long requests: each names the next.
struct Client {
    number: u16,
    first: RequestId,
    last: RequestId,
}

impl TimeSlices {
    pub(crate) fn new(limits: &Limits, block: u64) -> TimeSlices {
        let left = limits.slice_steps();
        TimeSlices { clients: VecDeque::new(), clears: 0, left, taken: 0, wanted: false, short: short(limits, block) }
    }

    /// Adopts new limits.
    pub(crate) fn set_limits(&mut self, limits: &Limits, block: u64) {
        self.short = short(limits, block);
    }
}

impl Engine {
    /// Queues a request that can run: it runs now if it is short, else in its time slice.
    pub(crate) fn queue(&mut self, id: RequestId) {
        if !self.is_long(id) {
            return self.ready.push_back(id);
        }
        let request = self.requests.get(id);
        self.time_slices.clears += u32::from(request.kind == Kind::Clear);
        let number = client_of(request.token);
        match self.time_slices.clients.iter_mut().find(|client| client.number == number) {
            Some(client) => {
                let last = core::mem::replace(&mut client.last, id);
                self.requests.get_mut(last).next = Some(id);
            }
            None => self.time_slices.clients.push_back(Client { number, first: id, last: id }),
        }
    }

    pub(crate) fn is_long(&self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        match request.kind {
            Kind::Write | Kind::Flush => false,
            Kind::Extents => true,
            // Its blocks have arrived: it is only to be answered.
            Kind::Read if request.stage == Stage::Read => false,
            Kind::Read | Kind::Clear => request.length > self.time_slices.short,
        }
    }

    /// Executes long requests, as far as the time slice goes.
    pub(crate) fn run_time_slices(&mut self) {
        // With the mutant, a time slice continues far beyond its end, but not without end.
        let mut more = 100;
        while self.time_slices.left > 0 || self.pool.mutant(Mutant::EndlessTimeSlice) && more > 0 {
            more -= 1;
            let Some(Client { number, first, last }) = self.time_slices.clients.pop_front() else { break };
            if let Some(next) = self.requests.get_mut(first).next.take() {
                self.time_slices.clients.push_back(Client { number, first: next, last });
            }
            let request = self.requests.get(first);
            self.time_slices.clears -= u32::from(request.kind == Kind::Clear);
            let blocks = request.length / self.pool.metadata.geometry.block();
            let read = if request.kind == Kind::Read { READ_STEPS * blocks } else { 0 };
            self.run(first);
            self.take_steps(BEGIN_STEPS + read);
        }
    }

    /// Takes `steps` steps off the time slice.
    pub(crate) fn take_steps(&mut self, steps: u64) {
        self.time_slices.left = self.time_slices.left.saturating_sub(steps);
        self.time_slices.taken += steps;
    }

    /// Begins the next time slice, with all its steps.
    pub(crate) fn begin_turn(&mut self) {
        (self.time_slices.left, self.time_slices.wanted) = (self.pool.limits.slice_steps(), false);
    }

    /// Returns true if anything waits for the next time slice.
    pub(crate) fn has_long_requests_left(&self) -> bool {
        !self.time_slices.clients.is_empty() || self.time_slices.wanted
    }

    /// Returns true if a clear waits for its time slice: it will free slots.
    pub(crate) fn has_clears_left(&self) -> bool {
        self.time_slices.clears > 0
    }

    /// Returns the steps that long requests have taken so far. From one [`crate::Event::Timer`] to the next they are no more than
    /// [`crate::Limits::most_slice_steps`].
    pub fn slice_steps_taken(&self) -> u64 {
        self.time_slices.taken
    }

    // ---- clears ----

    /// Returns the whole blocks that a clear covers and has not cleared yet.
    pub(crate) fn left_to_clear(&self, id: RequestId) -> (Key, Key) {
        let request = self.requests.get(id);
        let (volume, block) = (Key::new(request.volume, 0).0, self.pool.metadata.geometry.block());
        let (first, end) = (request.offset.div_ceil(block), (request.offset + request.length) / block);
        (Key(volume + first + request.cleared), Key(volume + end))
    }

    /// Returns the next blocks of a clear: all that are left, where the delta has little that it might cover, or a part of them.
    pub(crate) fn next_to_clear(&self, id: RequestId) -> (Key, Key) {
        let (start, end) = self.left_to_clear(id);
        let part = self.pool.part_steps();
        if self.pool.can_clear_at_once()
            || end.0 <= start.0.saturating_add(part)
            || self.pool.mutant(Mutant::EndlessTimeSlice)
        {
            return (start, end);
        }
        // Whole leaves, so that subtrees are cut off as by one clear.
        let (leaf, stop) = (self.pool.metadata.geometry.map_leaf_entries(), start.0 + part);
        (start, Key(if stop - stop % leaf > start.0 { stop - stop % leaf } else { stop }))
    }

    /// Clears a part of a long clear, for which there is space, if something is left for later: then it continues with its next time slice.
    pub(crate) fn clears_in_parts(&mut self, id: RequestId) -> bool {
        if self.requests.get(id).kind != Kind::Clear || !self.is_long(id) {
            return false;
        }
        if self.time_slices.left == 0 && !self.pool.mutant(Mutant::EndlessTimeSlice) {
            // Space has come, and the time slice is over. It keeps its place.
            self.time_slices.wanted = true;
            self.block(id);
            return true;
        }
        let (start, stop) = self.next_to_clear(id);
        if stop == self.left_to_clear(id).1 {
            return false;
        }
        self.clear_part(id, start, stop);
        self.pool.free_dead();
        self.pool.last_change = self.pool.now;
        let request = self.requests.get_mut(id);
        request.cleared += stop.0 - start.0;
        request.stage = Stage::Admit;
        self.queue(id);
        true
    }
}

fn short(limits: &Limits, block: u64) -> u64 {
    SHORT_BLOCKS.min(limits.slice_steps() / 16) * block
}

/// Returns the upper 16 bits of a request's token, in which the driver puts the number of the client.
fn client_of(token: u64) -> u16 {
    (token >> 48) as u16
}
