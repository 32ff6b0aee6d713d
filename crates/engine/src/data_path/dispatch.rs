//! Requests at their beginning: taken or refused when they are submitted, and run from their first stage each time that their wait has ended. The stages are
//! in write.rs, read.rs and commit.rs, their ends in replies.rs.

use crate::api::*;
use crate::engine::Engine;
use crate::format::entry::{Key, LBA_BITS};
use crate::mutant::Mutant;
use crate::pool::state::Phase;
use crate::requests::request::{Block, Kind};

impl Engine {
    /// Takes a request in.
    pub(crate) fn submit(&mut self, submit: Submit<'_>) {
        let Submit { token, volume, offset, length, fua, operation } = submit;
        let kind = match operation {
            Operation::Read { .. } => Kind::Read,
            Operation::Write(_) => Kind::Write,
            Operation::WriteZeroes | Operation::Trim => Kind::Clear,
            Operation::Flush => Kind::Flush,
            Operation::Extents { .. } => Kind::Extents,
        };
        self.last_request = self.pool.state.now();
        let id = self.requests.begin(token, kind, volume, (offset, length), self.pool.state.now());
        let block = self.pool.metadata.geometry().block();
        if let Operation::Write(inputs) = operation {
            let request = self.requests.get_mut(id);
            request.blocks_mut().reserve_exact(inputs.len());
            for (i, input) in inputs.iter().enumerate() {
                let start = (offset / block + i as u64) * block;
                let from = offset.max(start) - start;
                let to = (offset + length).min(start + block) - start;
                let lba = (start / block) & ((1 << LBA_BITS) - 1);
                let mut part = Block::new(Key::new(volume, lba), from as u32, to as u32);
                part.buffer = Some(input.buffer);
                part.content = input.content;
                assert_eq!(part.content.is_some(), to - from == block);
                request.blocks_mut().push(part);
            }
            self.note_write_stream(id);
        }
        if let Operation::Extents { limit } = operation {
            self.requests.get_mut(id).set_limit(limit.max(1));
        }
        self.requests.get_mut(id).set_fua(fua);
        match self.refusal(id, kind) {
            Some(error) => self.fail_request(id, error),
            None if self.coalesce(id) => {}
            None => self.queue(id),
        }
    }

    /// Returns the error of a request that cannot be taken at all, or `None`.
    fn refusal(&self, id: RequestId, kind: Kind) -> Option<Error> {
        let request = self.requests.get(id);
        if self.pool.state.phase() != Phase::Serving {
            return Some(Error::ShuttingDown);
        }
        if let Some(error) = self.misplaced(id) {
            return Some(error);
        }
        if kind == Kind::Flush {
            return self.pool.state.read_only().then_some(Error::Io);
        }
        let blocks = request.length().div_ceil(self.pool.metadata.geometry().block());
        let piece = u64::from(self.pool.metadata.geometry().piece_blocks);
        if matches!(kind, Kind::Read | Kind::Write) && blocks > piece {
            return Some(Error::Invalid);
        }
        if self.pool.state.read_only() && matches!(kind, Kind::Write | Kind::Clear) {
            return Some(Error::ReadOnly);
        }
        self.is_refused_for_space(kind).then_some(Error::NoSpace)
    }

    /// Returns the error of a request that can no longer be done: volumes go, shrink, become read-only and are rolled back while requests wait.
    fn misplaced(&self, id: RequestId) -> Option<Error> {
        let request = self.requests.get(id);
        let Some(at) = self.pool.volume_index(request.volume()) else { return Some(Error::Invalid) };
        if self.pool.durable.volumes()[at].is_unnamed() {
            // The map of a deleted snapshot is handed over.
            return Some(Error::Invalid);
        }
        if request.kind() == Kind::Flush {
            return None;
        }
        let size = self.pool.durable.volumes()[at].size;
        let is_outside = |id| {
            let request = self.requests.get(id);
            request.length() == 0 || request.offset().checked_add(request.length()).is_none_or(|end| end > size)
        };
        if self.requests.coalesced(id).any(is_outside) {
            return Some(Error::Invalid);
        }
        let writes = matches!(request.kind(), Kind::Write | Kind::Clear);
        let is_refused = || {
            self.pool.state.reads_only()
                || self.pool.durable.volumes()[at].is_read_only()
                || self.pool.checkpoint.rolls_back(request.volume()) && !self.pool.mutant(Mutant::WrittenAtRollback)
        };
        (writes && is_refused()).then_some(Error::ReadOnly)
    }

    /// Executes a request from its first stage, and then the writes into which it was taken apart.
    fn run(&mut self, id: RequestId) {
        self.run_stages(id);
        self.run_parted();
    }

    /// Executes the writes of coalesced requests that were taken apart.
    #[inline]
    fn run_parted(&mut self) {
        while let Some(id) = self.queues.pop_parted() {
            self.run_stages(id);
        }
    }

    /// Executes a request from its first stage, or fails it.
    fn run_stages(&mut self, id: RequestId) {
        self.pool.stats.counters.request_runs += 1;
        self.requests.get_mut(id).note_run();
        let request = self.requests.get(id);
        assert_eq!(request.waiting(), 0);
        if let Some(error) =
            request.error().or_else(|| self.misplaced(id)).or(self.is_taken_over().then_some(Error::Io))
        {
            return self.fail_request(id, error);
        }
        match request.kind() {
            kind if self.is_refused_for_space(kind) => self.fail_request(id, Error::NoSpace),
            Kind::Read => self.run_read(id),
            Kind::Write | Kind::Clear => self.run_write(id),
            Kind::Flush => self.run_flush(id),
            Kind::Extents => self.run_extents(id),
        }
    }

    /// Executes the requests that can run, in order.
    pub(crate) fn run_ready(&mut self) {
        // Those of a request that failed outside of a run: when writes that wait for space were refused (`enospc.rs`). They come after the others that were.
        self.run_parted();
        while let Some(id) = self.queues.pop_ready() {
            self.run(id);
        }
    }

    /// Retries the requests that wait for buffers, in order, until one still has to wait.
    pub(crate) fn retry_out_of_buffers(&mut self) {
        for _ in 0..self.queues.waits_for_buffers() {
            let Some(id) = self.queues.pop_for_buffers() else { break };
            let before = self.queues.waits_for_buffers();
            self.run(id);
            if self.queues.waits_for_buffers() > before {
                // Still out of buffers: it keeps its place.
                self.queues.keep_first_for_buffers();
                break;
            }
        }
    }

    /// Retries the writes that wait for space, in order, until one still has to wait.
    #[inline]
    pub(crate) fn retry_waiting_for_space(&mut self) {
        if self.queues.has_waits_for_space() {
            self.run_waiting_for_space();
        }
    }

    fn run_waiting_for_space(&mut self) {
        let mut others = self.queues.begin_retries();
        while !self.queues.has_waits_for_space()
            && let Some(id) = others.pop_front()
        {
            self.run(id);
        }
        // Clears go before writes that wait for space, until one has to wait itself.
        let mut at = 0;
        while let Some(&id) = others.get(at)
            && self.queues.waits_for_space() == 1
        {
            if self.may_overtake(id) {
                others.remove(at);
                self.run(id);
            } else {
                at += 1;
            }
        }
        self.queues.end_retries(others);
    }

    /// Executes long requests, as far as the time slice goes.
    pub(crate) fn run_time_slices(&mut self) {
        let block = self.pool.metadata.geometry().block();
        // With the mutant, a time slice continues far beyond its end, but not without end.
        let mut more = 100;
        while self.time_slices.has_steps() || self.pool.mutant(Mutant::EndlessTimeSlice) && more > 0 {
            more -= 1;
            let Some((id, steps)) = self.time_slices.pop(&mut self.requests, block) else { break };
            self.run(id);
            self.time_slices.take_steps(steps);
        }
    }
}
