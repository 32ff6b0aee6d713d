//! Syncs of the store: at most one is in flight. It covers the records that were complete when it was submitted.
//!
//! A sync that has succeeded waits for the durable writes beside it: the store tells a failure to only one of them.

/// State of syncs of the store.
#[derive(Default)]
pub(super) struct Syncs {
    /// Last complete record when the sync in flight was submitted, which it covers; `None`: none is in flight.
    covers: Option<u64>,
    /// Number of the first batch of inlined blocks that it does not cover.
    covers_batches: u32,
    /// True when it has succeeded and waits for concurrent durable writes.
    ended: bool,
    /// Number of syncs submitted and finished so far.
    submitted: u64,
    finished: u64,
    /// Number of finished syncs that a checkpoint, a job or a repair waits for.
    wanted: u64,
}

impl Syncs {
    /// Asks for a sync of everything that is complete now; returns the number of syncs that have to finish before it is durable.
    pub(super) fn request(&mut self) -> u64 {
        let barrier = self.submitted + 1;
        self.wanted = self.wanted.max(barrier);
        barrier
    }

    /// Returns true if as many syncs have finished as [`Syncs::request`] said.
    pub(super) fn have_passed(&self, barrier: u64) -> bool {
        self.finished >= barrier
    }

    /// Returns true while a sync is in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        self.covers.is_some()
    }

    /// Returns true if a sync has been requested that was not submitted.
    pub(super) fn is_requested(&self) -> bool {
        self.wanted > self.submitted
    }

    /// Begins a sync, which covers records up to this one, and batches of inlined blocks before this one.
    pub(super) fn begin(&mut self, covers: u64, covers_batches: u32) {
        assert!(!self.is_in_flight(), "one sync at a time");
        (self.covers, self.covers_batches) = (Some(covers), covers_batches);
        self.submitted += 1;
    }

    /// Notes that the sync in flight has succeeded.
    pub(super) fn succeeded(&mut self) {
        self.ended = true;
    }

    /// Drops the sync in flight, which has failed.
    pub(super) fn failed(&mut self) {
        self.covers = None;
    }

    /// Lets the sync in flight cover a record that was written durably; false if none is in flight.
    pub(super) fn extend(&mut self, sequence: u64) -> bool {
        match &mut self.covers {
            Some(covers) => *covers = sequence.max(*covers),
            None => return false,
        }
        true
    }

    /// Returns true if the sync in flight has succeeded.
    pub(super) fn has_succeeded(&self) -> bool {
        self.ended
    }

    /// Ends the sync that has succeeded; returns the last record that it covers.
    pub(super) fn end(&mut self) -> u64 {
        self.ended = false;
        self.covers.take().expect("a sync that has ended was in progress")
    }

    /// Counts the sync that has ended; returns the first batch of inlined blocks that it does not cover.
    pub(super) fn count(&mut self) -> u32 {
        self.finished += 1;
        self.covers_batches
    }
}
