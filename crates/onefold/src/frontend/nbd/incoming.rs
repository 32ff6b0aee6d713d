//! Queue of received write pieces: received block by block, then in one queue that all connections share.
//!
//! Invariants: a piece has all of its buffers or none; pieces reach the engine in the order in which they were received.

use std::collections::VecDeque;

use engine::{BlockInput, BufferId, Event, Nanos, Operation, Submit, VolumeId};

use crate::frontend::nbd::latency::Latencies;
use crate::frontend::nbd::members::Members;
use crate::frontend::nbd::request::{Table, touched_bytes};
use crate::frontend::nbd::tls::Tls;
use crate::io::arena::{BLOCK, Span};
use crate::io::core::Core;
use crate::io::disk::push_span;

/// Entries of lists that a connection with a small share keeps.
pub const FEW_BLOCKS: usize = 16;
/// Lists of each kind that are kept for pieces to come.
const SPARE_LISTS: usize = 64;

/// Limits and tables that all connections share.
#[derive(Default)]
pub struct Shared {
    /// Places in the engine's table of requests.
    pub places: u32,
    /// Number of these places that are taken.
    pub places_taken: u32,
    /// Number of the reactor's turn.
    pub turn: u64,
    /// Large shares that are left.
    pub large_left: i64,
    /// Places in the engine's table of requests that one connection may take.
    pub pieces_max: u32,
    /// Requests in service.
    pub table: Table,
    /// Times of the requests that were answered.
    pub latencies: Latencies,
    /// Bytes of buffers that answers to reads may hold.
    pub read_budget: u64,
    /// Bytes of buffers that answers to reads hold, or will hold.
    pub read_bytes: u64,
    /// Bytes of a piece.
    pub piece_bytes: u64,
    /// Bytes of the longest read that is collected before it is answered.
    pub collect_bytes: u64,
    /// TLS for clients over TCP, if they may have it.
    pub tls: Option<Tls>,
    /// Connections that have chosen a volume.
    pub members: Members,
    /// Set when a connection has taken a place for TLS: their number is to be checked against the limits.
    pub began_tls: bool,
    /// Set when a receive took as much as it could: its client has probably sent more.
    pub expects_more: bool,
    /// Pieces of writes that have been received and are not with the engine yet, in order.
    pub arrived: VecDeque<Arrived>,
    /// Lists for pieces to come: short ones, and long ones.
    spare_inputs: [Vec<Vec<BlockInput>>; 2],
}

/// A piece of a write that has been received and waits for the engine.
pub struct Arrived {
    /// Slot of the connection that sent it.
    pub connection: u32,
    /// Token by which the engine's answer names it.
    pub token: u64,
    /// Volume that it is written to.
    pub volume: VolumeId,
    /// True if it has to be durable before it is answered.
    pub fua: bool,
    /// Buffers and range of its bytes.
    pub piece: Incoming,
}

impl Shared {
    /// Returns true if a piece has arrived and the engine can take one.
    pub fn has_arrived(&self, core: &Core) -> bool {
        !self.arrived.is_empty() && core.engine.can_submit()
    }

    /// Submits received pieces to the engine in order, until they were `most` bytes or the engine has no space for more. Returns true if there were any.
    pub fn submit_arrived(&mut self, most: usize, core: &mut Core) -> bool {
        let mut bytes = 0;
        while bytes < most && core.engine.can_submit() {
            let Some(Arrived { token, volume, fua, mut piece, .. }) = self.arrived.pop_front() else { break };
            piece.digest(core);
            bytes += piece.length;
            let (offset, length) = (piece.offset, piece.length as u64);
            let operation = Operation::Write(&piece.inputs);
            core.engine.handle(core.now, Event::Submit(Submit { token, volume, offset, length, fua, operation }));
            self.keep_inputs(piece.inputs);
        }
        bytes > 0
    }

    /// Takes an empty list with space for `blocks` blocks, a spare one if there is any.
    fn take_inputs(&mut self, blocks: usize) -> Vec<BlockInput> {
        let mut inputs = self.spare_inputs[usize::from(blocks > FEW_BLOCKS)].pop().unwrap_or_default();
        inputs.reserve_exact(blocks.max(FEW_BLOCKS));
        inputs
    }

    /// Keeps the list for reuse, unless `SPARE_LISTS` of its kind are kept already.
    fn keep_inputs(&mut self, mut inputs: Vec<BlockInput>) {
        inputs.clear();
        let lists = &mut self.spare_inputs[usize::from(inputs.capacity() > FEW_BLOCKS)];
        if lists.len() < SPARE_LISTS {
            lists.push(inputs);
        }
    }
}

/// The piece of a write that is being received.
#[derive(Default)]
pub struct Incoming {
    /// Buffers, one for each block that it touches.
    pub inputs: Vec<BlockInput>,
    /// Offset in the volume, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: usize,
    /// Bytes that have arrived.
    pub received: usize,
    /// Number of leading blocks whose digests are known, or that are partial.
    pub digested: usize,
    /// Time at which its buffers were taken.
    pub since: Nanos,
}

impl Incoming {
    /// Takes the buffers of a piece, all or none, and returns true if it has them. It takes none while the engine has no space for earlier pieces.
    pub fn begin(&mut self, offset: u64, length: usize, shared: &mut Shared, core: &mut Core) -> bool {
        if !core.engine.can_submit() {
            return false;
        }
        let blocks = touched_bytes(offset, length as u64, BLOCK as u64) as usize / BLOCK;
        self.inputs = shared.take_inputs(blocks);
        for _ in 0..blocks {
            match core.engine.take_buffer() {
                Some(buffer) => self.inputs.push(BlockInput { buffer, content: None }),
                None => {
                    for input in self.inputs.drain(..) {
                        core.engine.return_buffer(input.buffer);
                    }
                    shared.keep_inputs(std::mem::take(&mut self.inputs));
                    return false;
                }
            }
        }
        (self.offset, self.length, self.received, self.digested) = (offset, length, 0, 0);
        self.since = core.now;
        true
    }

    /// Returns the bytes from the start of the first block to the place of the next byte.
    pub fn position(&self) -> usize {
        self.offset as usize % BLOCK + self.received
    }

    /// Returns the place of the next bytes, at most `limit` of them and within one block.
    pub fn next_span(&self, position: usize, limit: usize, core: &Core) -> Span {
        let (block, within) = (position / BLOCK, position % BLOCK);
        let buffer: BufferId = self.inputs[block].buffer;
        let span = core.arena.buffer(buffer).from(within);
        span.first(span.length.min(limit))
    }

    /// Adds the places of all missing bytes to `spans`.
    pub fn rest(&self, core: &Core, spans: &mut Vec<Span>) {
        let (mut position, mut left) = (self.position(), self.length - self.received);
        while left > 0 {
            let span = self.next_span(position, left, core);
            push_span(spans, span);
            position += span.length;
            left -= span.length;
        }
    }

    /// Fills the buffers of its blocks with bytes that were received behind a header, until `from` is used up.
    pub fn copy(&mut self, mut from: Span, core: &mut Core) {
        while from.length > 0 {
            let into = self.next_span(self.position(), from.length, core);
            core.arena.copy(from.first(into.length), into);
            from = from.from(into.length);
            self.received += into.length;
        }
    }

    /// Computes the digests of the blocks that have become complete, while they are in the cache.
    pub fn digest(&mut self, core: &mut Core) {
        let end = self.offset as usize % BLOCK + self.length;
        while self.digested < self.inputs.len() {
            let after = (self.digested + 1) * BLOCK;
            let starts_inside = self.digested == 0 && !self.offset.is_multiple_of(BLOCK as u64);
            if starts_inside || after > end {
                // A partial block: the engine has it merged, and its digest computed, later.
                if self.position() < after.min(end) {
                    return;
                }
            } else {
                if self.position() < after {
                    return;
                }
                let input = &mut self.inputs[self.digested];
                input.content = Some(core.digester.content(core.arena.bytes(core.arena.buffer(input.buffer))));
            }
            self.digested += 1;
        }
    }
}
