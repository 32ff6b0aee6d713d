//! Opening of a pool: drives recovery, lets the jobs adopt the records of the superblock, and begins to serve.

use crate::api::{Effect, IoError, Outcome, Segment};
use crate::engine::Engine;
use crate::recovery::{Recovery, RecoveryStop};

impl Engine {
    /// Advances recovery until it waits for I/O or has ended.
    pub(crate) fn recover(&mut self) {
        while let Some(mut recovery) = self.recovery.take() {
            match recovery.advance(&mut self.pool) {
                Ok(RecoveryStop::Wait) => {
                    self.recovery = Some(recovery);
                    return;
                }
                Ok(RecoveryStop::Chosen) => {
                    self.adopt_records();
                    self.recovery = Some(recovery);
                }
                Ok(RecoveryStop::Done) => return self.serve(&recovery),
                Err(error) => return self.pool.recovery_failed(error),
            }
        }
    }

    /// Handles the completion of an I/O of the recovery.
    pub(crate) fn recovery_done(
        &mut self,
        number: u32,
        offset: u64,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        for &segment in segments {
            if let Segment::Page(page) = segment {
                self.pool.metadata.pages_mut().release(page);
            }
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.recovery_done(&mut self.pool, number, offset, segments, result);
        }
    }

    /// Lets scrub, repairs and the pass adopt the records that the superblock has of them.
    fn adopt_records(&mut self) {
        let superblock = self.pool.durable.superblock();
        let scrub = superblock.scrub.found(self.pool.state.reads_only());
        self.jobs.scrub.adopt(scrub);
        self.repairs.set_left(scrub.found.saturating_sub(scrub.repaired).into());
        self.jobs.dedup_mut().found(superblock.dedup, self.pool.state.now());
    }

    /// Begins to serve requests, and starts the jobs.
    fn serve(&mut self, recovery: &Recovery) {
        if recovery.has_copies() {
            self.repairs.found_copies();
        }
        self.pool.state.begin_serving();
        if self.pool.may_repair() {
            self.pool.durable.space_mut().doubt_reserved();
        }
        self.pool.review_space();
        // A checkpoint flushes, and begins to remove deleted snapshots.
        let has_to_begin = self.pool.has_too_much_buffered()
            || self.pool.awaits_hand_over()
            || self.pool.unneeded_snapshot().is_some();
        self.pool.request_checkpoint_if(has_to_begin && !self.pool.state.reads_only());
        if !self.pool.state.reads_only() {
            self.jobs.fill_index(&self.pool);
        }
        self.jobs.census_mut().open(&self.pool);
        self.pool.open_disk_index();
        self.jobs.open_flash(&mut self.pool);
        if recovery.report().offline_blocks > 0 {
            self.jobs.dedup_mut().leave(self.pool.state.now(), recovery.report().offline_blocks);
        }
        self.pool.metadata.io_mut().queue(Effect::Opened(Ok(recovery.report())));
    }
}
