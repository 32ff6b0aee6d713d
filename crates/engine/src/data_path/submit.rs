//! Requests from their submission to their answer: taken or refused, run, woken by the event that they wait for, answered or failed. The steps
//! between are in write.rs, read.rs and commit.rs.

use crate::api::*;
use crate::engine::Engine;
use crate::format::entry::{Key, LBA_BITS};
use crate::pool::PayloadMemory;
use crate::pool::Pool;
use crate::pool::state::Phase;
use crate::requests::request::{Block, Kind, Request, Stage};

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
        self.last_request = self.pool.state.now;
        let id = self.requests.begin(token, kind, volume, (offset, length), self.pool.state.now);
        let block = self.pool.durable.metadata.geometry.block();
        if let Operation::Write(inputs) = operation {
            let request = self.requests.get_mut(id);
            request.blocks.reserve_exact(inputs.len());
            for (i, input) in inputs.iter().enumerate() {
                let start = (offset / block + i as u64) * block;
                let from = offset.max(start) - start;
                let to = (offset + length).min(start + block) - start;
                let lba = (start / block) & ((1 << LBA_BITS) - 1);
                let mut part = Block::new(Key::new(volume, lba), from as u32, to as u32);
                part.buffer = Some(input.buffer);
                part.content = input.content;
                assert_eq!(part.content.is_some(), to - from == block);
                request.blocks.push(part);
            }
            self.note_write_stream(id);
        }
        if let Operation::Extents { limit } = operation {
            self.requests.get_mut(id).limit = limit.max(1);
        }
        self.requests.get_mut(id).fua = fua;
        match self.refusal(id, kind) {
            Some(error) => self.fail_request(id, error),
            None if self.coalesce(id) => {}
            None => self.queue(id),
        }
    }

    /// Returns the error of a request that cannot be taken at all, or `None`.
    fn refusal(&self, id: RequestId, kind: Kind) -> Option<Error> {
        let request = self.requests.get(id);
        if self.pool.state.phase != Phase::Serving {
            return Some(Error::ShuttingDown);
        }
        if let Some(error) = self.misplaced(id) {
            return Some(error);
        }
        if kind == Kind::Flush {
            return self.pool.state.read_only.then_some(Error::Io);
        }
        let blocks = request.length.div_ceil(self.pool.durable.metadata.geometry.block());
        let piece = u64::from(self.pool.durable.metadata.geometry.piece_blocks);
        if matches!(kind, Kind::Read | Kind::Write) && blocks > piece {
            return Some(Error::Invalid);
        }
        if self.pool.state.read_only && matches!(kind, Kind::Write | Kind::Clear) {
            return Some(Error::ReadOnly);
        }
        self.is_refused_for_space(kind).then_some(Error::NoSpace)
    }

    /// Returns the error of a request that can no longer be done: volumes go, shrink and become read-only while requests wait.
    fn misplaced(&self, id: RequestId) -> Option<Error> {
        let request = self.requests.get(id);
        let Some(at) = self.pool.volume_index(request.volume) else { return Some(Error::Invalid) };
        if request.kind == Kind::Flush {
            return None;
        }
        let size = self.pool.durable.volumes[at].size;
        let is_outside = |id| {
            let request = self.requests.get(id);
            request.length == 0 || request.offset.checked_add(request.length).is_none_or(|end| end > size)
        };
        if self.requests.coalesced(id).any(is_outside) {
            return Some(Error::Invalid);
        }
        let writes = matches!(request.kind, Kind::Write | Kind::Clear);
        (writes && (self.pool.state.reads_only || self.pool.durable.volumes[at].read_only)).then_some(Error::ReadOnly)
    }

    /// Executes a request from its first stage, or fails it.
    pub(crate) fn run(&mut self, id: RequestId) {
        self.pool.stats.counters.request_runs += 1;
        self.requests.get_mut(id).has_run = true;
        let request = self.requests.get(id);
        assert_eq!(request.waiting, 0);
        if let Some(error) = request.error.or_else(|| self.misplaced(id)).or(self.is_taken_over().then_some(Error::Io))
        {
            return self.fail_request(id, error);
        }
        match request.kind {
            kind if self.is_refused_for_space(kind) => self.fail_request(id, Error::NoSpace),
            Kind::Read => self.run_read(id),
            Kind::Write | Kind::Clear => self.run_write(id),
            Kind::Flush => self.run_flush(id),
            Kind::Extents => self.run_extents(id),
        }
    }

    /// Notes the end of one of the loads or reads that a request waits for; the request is queued after the last one.
    pub(crate) fn arrived(&mut self, id: RequestId, failed: bool) {
        let request = self.requests.get_mut(id);
        request.waiting -= 1;
        if failed {
            request.error = Some(Error::Io);
        }
        if request.waiting == 0 {
            self.queue(id);
        }
    }

    fn end_request(&mut self, id: RequestId) {
        self.last_request = self.pool.state.now;
        self.requests.end(id, self.pool.state.now);
    }

    /// Answers a request that changed or flushed something.
    pub(crate) fn answer_done(&mut self, id: RequestId) {
        self.answer(id, Ok(Reply::Done));
    }

    pub(crate) fn fail_request(&mut self, id: RequestId, error: Error) {
        if !self.part(id, error) {
            self.answer(id, Err(error));
        }
    }

    /// Ends a request, and the writes coalesced into it.
    fn answer(&mut self, id: RequestId, result: Result<Reply, Error>) {
        self.drop_blocks(id);
        let mut next = Some(id);
        while let Some(id) = next {
            let request = self.requests.get(id);
            let token = request.token;
            next = request.next;
            self.pool.durable.metadata.io.effects.push_back(Effect::Reply { token, result });
            self.end_request(id);
        }
    }

    /// Ends a request with an error, as soon as nothing is in progress for it.
    pub(crate) fn fail_when_quiet(&mut self, id: RequestId, error: Error) {
        let request = self.requests.get_mut(id);
        request.error = Some(error);
        if request.waiting == 0 {
            self.fail_request(id, error);
        }
    }

    /// Releases every buffer that a request holds.
    fn drop_blocks(&mut self, id: RequestId) {
        let Engine { pool: Pool { memory: PayloadMemory { buffers, .. }, .. }, requests, jobs, .. } = self;
        let request: &mut Request = requests.get_mut(id);
        for block in request.blocks.drain(..) {
            for buffer in [block.buffer, block.base_buffer].into_iter().flatten() {
                buffers.release(buffer);
            }
        }
        for segment in request.data.drain(..) {
            if let Some(buffer) = segment.buffer {
                jobs.cache_partition.answering -= 1;
                buffers.release(buffer);
            }
        }
    }

    /// Ends a read, or a request for extents, when its answer has been sent.
    pub(crate) fn sent(&mut self, id: RequestId) {
        assert_eq!(self.requests.get(id).stage, Stage::Reply);
        self.drop_blocks(id);
        self.end_request(id);
    }
}
