//! Time slices of requests whose work does not depend on their length.
//!
//! A request for extents, a clear of a large range, a long read of holes: a client sends a few bytes, and the engine looks at thousands of entries.
//! Such requests are *long*. They wait apart from the others, which always go first. Their clients share the time, one request each. From one timer
//! to the next all of them together take N *steps* ([`crate::Limits::slice_steps`]). Then the engine asks for the timer at once: a driver looks at
//! new events meanwhile, and short requests are served before the next steps.
//!
//! A step is about one entry of a map or of a delta that is looked at. A request with more steps than a time slice has is answered in part (extents,
//! `read.rs`), or continues in a later time slice (clears, `write.rs`).

use crate::api::RequestId;
use crate::engine::Engine;
use crate::format::entry::Key;
use crate::mutant::Mutant;

impl Engine {
    /// Returns true if a request may take more steps than a short one.
    pub(crate) fn is_long(&self, id: RequestId) -> bool {
        self.time_slices.is_long(self.requests.get(id))
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
        let (volume, block) = (Key::new(request.volume(), 0).0, self.pool.metadata.geometry().block());
        let (first, end) = (request.offset().div_ceil(block), (request.offset() + request.length()) / block);
        (Key(volume + first + request.cleared()), Key(volume + end))
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
        let (leaf, stop) = (self.pool.metadata.geometry().map_leaf_entries(), start.0 + part);
        (start, Key(if stop - stop % leaf > start.0 { stop - stop % leaf } else { stop }))
    }
}
