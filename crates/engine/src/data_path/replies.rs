//! Ends of requests, and of their waits: answered, failed, or queued to run again.
//!
//! Nothing here runs a request: one whose wait is over is queued, and `dispatch.rs` runs it. So each file of the data path may end a request, or let it wait,
//! without a way back into the request's stages.

use crate::api::*;
use crate::engine::Engine;
use crate::pool::Pool;
use crate::requests::request::{Request, Stage};

impl Engine {
    /// Queues a request that can run: it runs with the next pump if it is short, else in its time slice.
    pub(crate) fn queue(&mut self, id: RequestId) {
        if self.is_long(id) {
            self.time_slices.push(id, &mut self.requests);
        } else {
            self.queues.push_ready(id);
        }
    }

    /// Notes the end of one of the loads or reads that a request waits for; the request is queued after the last one.
    pub(crate) fn arrived(&mut self, id: RequestId, failed: bool) {
        let request = self.requests.get_mut(id);
        request.end_wait();
        if failed {
            request.set_error(Error::Io);
        }
        if request.waiting() == 0 {
            self.queue(id);
        }
    }

    /// Ends a request in the table.
    fn end_request(&mut self, id: RequestId) {
        self.last_request = self.pool.state.now();
        self.requests.end(id, self.pool.state.now());
    }

    /// Answers a request that changed or flushed something.
    pub(crate) fn answer_done(&mut self, id: RequestId) {
        self.answer(id, Ok(Reply::Done));
    }

    /// Ends a request with an error; a coalesced one is taken apart instead, if the error may not be that of all its writes.
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
            let token = request.token();
            next = request.next();
            self.pool.metadata.io_mut().queue(Effect::Reply { token, result });
            self.end_request(id);
        }
    }

    /// Ends a request with an error, as soon as nothing is in progress for it.
    pub(crate) fn fail_when_quiet(&mut self, id: RequestId, error: Error) {
        let request = self.requests.get_mut(id);
        request.set_error(error);
        if request.waiting() == 0 {
            self.fail_request(id, error);
        }
    }

    /// Releases every buffer that a request holds.
    fn drop_blocks(&mut self, id: RequestId) {
        let Engine { pool: Pool { memory, .. }, requests, jobs, .. } = self;
        let request: &mut Request = requests.get_mut(id);
        for block in request.blocks_mut().drain(..) {
            for buffer in [block.buffer, block.base_buffer].into_iter().flatten() {
                memory.buffers_mut().release(buffer);
            }
        }
        for segment in request.data_mut().drain(..) {
            if let Some(buffer) = segment.buffer {
                jobs.cache_partition.end_answer();
                memory.buffers_mut().release(buffer);
            }
        }
    }

    /// Ends a read, or a request for extents, when its answer has been sent.
    pub(crate) fn sent(&mut self, id: RequestId) {
        assert_eq!(self.requests.get(id).stage(), Stage::Reply);
        self.drop_blocks(id);
        self.end_request(id);
    }
}
