//! Queue of long requests, which share the processor in time slices: one request of each client in turn, and a bounded number of steps from one
//! timer to the next. `data_path/dispatch.rs` runs them.

use alloc::collections::VecDeque;

use crate::api::RequestId;
use crate::limits::Limits;
use crate::requests::request::{Kind, Request, Requests, Stage};

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
    /// True if a clear that has waited for space waits for the next time slice.
    is_awaited: bool,
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
    /// Begins a time slice without requests.
    pub(crate) fn new(limits: &Limits, block: u64) -> TimeSlices {
        let (left, short) = (limits.slice_steps(), short(limits, block));
        TimeSlices { clients: VecDeque::new(), clears: 0, left, taken: 0, is_awaited: false, short }
    }

    /// Adopts new limits.
    pub(crate) fn set_limits(&mut self, limits: &Limits, block: u64) {
        self.short = short(limits, block);
    }

    /// Returns true if a request may take more steps than a short one.
    pub(crate) fn is_long(&self, request: &Request) -> bool {
        match request.kind() {
            Kind::Write | Kind::Flush => false,
            Kind::Extents => true,
            // Its blocks have arrived: it is only to be answered.
            Kind::Read if request.stage() == Stage::Read => false,
            Kind::Read | Kind::Clear => request.length() > self.short,
        }
    }

    /// Queues a long request behind the others of its client.
    pub(crate) fn push(&mut self, id: RequestId, requests: &mut Requests) {
        let request = requests.get(id);
        self.clears += u32::from(request.kind() == Kind::Clear);
        let number = client_of(request.token());
        match self.clients.iter_mut().find(|client| client.number == number) {
            Some(client) => {
                let last = core::mem::replace(&mut client.last, id);
                requests.get_mut(last).set_next(id);
            }
            None => self.clients.push_back(Client { number, first: id, last: id }),
        }
    }

    /// Takes the first request of the client whose time slice it is, and returns it with the steps that it takes beside those that it reports.
    pub(crate) fn pop(&mut self, requests: &mut Requests, block: u64) -> Option<(RequestId, u64)> {
        let Client { number, first, last } = self.clients.pop_front()?;
        if let Some(next) = requests.get_mut(first).take_next() {
            self.clients.push_back(Client { number, first: next, last });
        }
        let request = requests.get(first);
        self.clears -= u32::from(request.kind() == Kind::Clear);
        let read = if request.kind() == Kind::Read { READ_STEPS * (request.length() / block) } else { 0 };
        Some((first, BEGIN_STEPS + read))
    }

    /// Begins the next time slice, with all its steps.
    pub(crate) fn begin(&mut self, limits: &Limits) {
        (self.left, self.is_awaited) = (limits.slice_steps(), false);
    }

    /// Takes `steps` steps off the time slice.
    #[inline]
    pub(crate) fn take_steps(&mut self, steps: u64) {
        self.left = self.left.saturating_sub(steps);
        self.taken += steps;
    }

    /// Asks for the next time slice, for a clear that has waited for space.
    pub(crate) fn ask_for_next(&mut self) {
        self.is_awaited = true;
    }

    /// Returns true if the time slice has steps left.
    #[inline]
    pub(crate) fn has_steps(&self) -> bool {
        self.left > 0
    }

    /// Returns true if any request waits for the next time slice.
    pub(crate) fn has_requests(&self) -> bool {
        !self.clients.is_empty() || self.is_awaited
    }

    /// Returns true if a clear waits for its time slice: it will free slots.
    pub(crate) fn has_clears(&self) -> bool {
        self.clears > 0
    }

    /// Returns the steps that long requests have taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}

fn short(limits: &Limits, block: u64) -> u64 {
    SHORT_BLOCKS.min(limits.slice_steps() / 16) * block
}

/// Returns the upper 16 bits of a request's token, in which the driver puts the number of the client.
fn client_of(token: u64) -> u16 {
    (token >> 48) as u16
}
