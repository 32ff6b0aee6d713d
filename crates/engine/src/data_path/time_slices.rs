//! Time slices of requests whose work does not depend on their length.
//!
//! A request for extents, a clear of a large range, a long read of holes: a client sends a few bytes, and the engine looks at thousands of entries.
//! Such requests are *long*. They wait apart from the others, which always go first. Their clients share the time, one request each. From one timer
//! to the next all of them together take N *steps* ([`crate::Limits::slice_steps`]). Then the engine asks for the timer at once: a driver looks at
//! new events meanwhile, and short requests are served before the next steps.
//!
//! A step is about one entry of a map or of a delta that is looked at. A request with more steps than a time slice has is answered in part (extents,
//! `read.rs`), or continues in a later time slice (clears, below).

use crate::api::RequestId;
use crate::engine::Engine;
use crate::format::entry::Key;
use crate::mutant::Mutant;
use crate::requests::request::{Kind, Stage};

impl Engine {
    /// Queues a request that can run: it runs now if it is short, else in its time slice.
    pub(crate) fn queue(&mut self, id: RequestId) {
        if self.is_long(id) {
            self.time_slices.push(id, &mut self.requests);
        } else {
            self.ready.push_back(id);
        }
    }

    /// Returns true if a request may take more steps than a short one.
    pub(crate) fn is_long(&self, id: RequestId) -> bool {
        self.time_slices.is_long(self.requests.get(id))
    }

    /// Executes long requests, as far as the time slice goes.
    pub(crate) fn run_time_slices(&mut self) {
        let block = self.pool.durable.metadata.geometry.block();
        // With the mutant, a time slice continues far beyond its end, but not without end.
        let mut more = 100;
        while self.time_slices.has_steps() || self.pool.mutant(Mutant::EndlessTimeSlice) && more > 0 {
            more -= 1;
            let Some((id, steps)) = self.time_slices.pop(&mut self.requests, block) else { break };
            self.run(id);
            self.time_slices.take_steps(steps);
        }
    }

    /// Returns the steps that long requests have taken so far. From one [`crate::Event::Timer`] to the next they are no more than
    /// [`crate::Limits::most_slice_steps`].
    pub fn slice_steps_taken(&self) -> u64 {
        self.time_slices.taken()
    }

    // ---- clears ----

    /// Returns the whole blocks that a clear covers and has not cleared yet.
    pub(crate) fn left_to_clear(&self, id: RequestId) -> (Key, Key) {
        let request = self.requests.get(id);
        let (volume, block) = (Key::new(request.volume, 0).0, self.pool.durable.metadata.geometry.block());
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
        let (leaf, stop) = (self.pool.durable.metadata.geometry.map_leaf_entries(), start.0 + part);
        (start, Key(if stop - stop % leaf > start.0 { stop - stop % leaf } else { stop }))
    }

    /// Clears a part of a long clear, for which there is space, if something is left for later: then it continues with its next time slice.
    pub(crate) fn clears_in_parts(&mut self, id: RequestId) -> bool {
        if self.requests.get(id).kind != Kind::Clear || !self.is_long(id) {
            return false;
        }
        if !self.time_slices.has_steps() && !self.pool.mutant(Mutant::EndlessTimeSlice) {
            // Space has come, and the time slice is over. It keeps its place.
            self.time_slices.ask_for_next();
            self.block(id);
            return true;
        }
        let (start, stop) = self.next_to_clear(id);
        if stop == self.left_to_clear(id).1 {
            return false;
        }
        self.clear_part(id, start, stop);
        self.pool.free_dead();
        self.pool.state.last_change = self.pool.state.now;
        let request = self.requests.get_mut(id);
        request.cleared += stop.0 - start.0;
        request.stage = Stage::Admit;
        self.queue(id);
        true
    }
}
