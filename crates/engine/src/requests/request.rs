//! The request table: requests in flight, each at a stage.
//!
//! A stage that needs something that is not in memory asks for it and returns. When everything asked for has come, the request runs again *from its
//! first stage*; only a read whose blocks have all come goes on to its answer, as a slot that is being read is not reused (`Jobs::reclaim`). A write changes
//! nothing before its last stage, which changes everything at once, without waiting; a long clear changes one part at a time. So no lock is held on any block
//! or digest: another request's changes meanwhile are simply seen, and a partial write whose base has changed completes its block again.

use alloc::vec::Vec;

use crate::api::{BlockContent, BufferId, DataSegment, Error, Extent, Nanos, RequestId, VolumeId};

use crate::dedup::policy::{Lookup, OnDisk};
use crate::format::entry::{Entry, Key, LBA_BITS, Slot};
use crate::format::geometry::Geometry;
use crate::pool::Pool;
use crate::requests::foreground::{Foreground, Measured};
use crate::sizes::list_bytes;

/// The stages of requests. A write waits in Admit after its blocks are complete, and again after Verify. Docs, traces and crash points use these names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Waits for space (writes: in record, ring, delta, metadata, slots) or for buffers.
    Admit,
    /// Waits for map leaves.
    LoadMap,
    /// Waits for blocks from the device.
    Read,
    /// Waits for a partial block to be completed.
    Merge,
    /// Waits for the proof of an index entry: summaries, or the known block itself.
    Verify,
    /// The map is changed; waits for its record to be durable.
    Commit,
    /// Answered; the driver is sending.
    Reply,
}

/// Kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    /// Write-zeroes and trim.
    Clear,
    Flush,
    Extents,
}

impl Kind {
    /// Returns true if the latency of such requests shows the device's. Flushes wait for others' writes, and extents for nothing: neither does.
    fn is_measured(self) -> bool {
        matches!(self, Kind::Read | Kind::Write | Kind::Clear)
    }
}

/// Decision on a block of payload. (One of zeroes is never stored.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Slot of its own.
    Write,
    /// Slot that the block shares.
    Share(Slot),
    /// Slot of the same content earlier in the request: an intra-request duplicate.
    IntraRequest,
    /// No change: the block has this content already.
    Keep,
}

/// Block of a request, whole or in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub key: Key,
    /// Bytes of the block that the request covers.
    pub from: u32,
    pub to: u32,
    /// Write: the payload. Clear: the block being completed.
    pub buffer: Option<BufferId>,
    /// Content of the whole block, once it is whole.
    pub content: Option<BlockContent>,
    /// Entry from which the block was completed.
    pub base: Option<Entry>,
    /// The content of `base`, while it is waited for or merged; after that, of the known block that it is compared with.
    pub base_buffer: Option<BufferId>,
    /// Entry of the block: found (reads), or from this request on (writes).
    pub entry: Entry,
    /// Write: knowledge of the content.
    pub lookup: Lookup,
    /// Write: earlier block of the request with the same content, where nothing else is known of it.
    pub intra_duplicate_of: Option<u32>,
    /// Write: decision on the block.
    pub decision: Decision,
    pub on_disk: OnDisk,
    /// Outcome of comparing the block with a slot's content, byte by byte. `base_buffer` held that content.
    pub compared: Option<(Slot, bool)>,
    /// Read: it had been read ahead.
    pub was_ahead: bool,
    /// Write, clear: it reads as zeroes and is to hold zeroes.
    pub unchanged: bool,
}

impl Block {
    pub(crate) fn new(key: Key, from: u32, to: u32) -> Block {
        Block {
            key,
            from,
            to,
            buffer: None,
            content: None,
            base: None,
            base_buffer: None,
            entry: Entry::UNMAPPED,
            lookup: Lookup::Nothing,
            intra_duplicate_of: None,
            decision: Decision::Write,
            on_disk: OnDisk::NotAsked,
            compared: None,
            was_ahead: false,
            unchanged: false,
        }
    }

    /// Returns true if the block is whole and holds anything but zeroes.
    pub(crate) fn is_payload(&self) -> bool {
        self.content.is_some_and(|content| !content.zero)
    }

    /// Returns true if the block gets a slot of its own.
    pub(crate) fn takes_slot(&self) -> bool {
        self.decision == Decision::Write && self.is_payload()
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Request {
    token: u64,
    kind: Kind,
    volume: VolumeId,
    offset: u64,
    length: u64,
    /// Time at which it came.
    came: Nanos,
    fua: bool,
    /// A clear: whole blocks that it has cleared.
    cleared: u64,
    /// Blocks that are unchanged.
    unchanged: usize,
    /// The most extents to report.
    limit: u32,
    stage: Stage,
    /// Loads, fills and merges that have to come before it runs again.
    waiting: u32,
    error: Option<Error>,
    blocks: Vec<Block>,
    data: Vec<DataSegment>,
    extents: Vec<Extent>,
    /// Times that summaries were waited for.
    attempts: u8,
    /// Checkpoints that had been done when it began to wait for space.
    waits_since: Option<u64>,
    /// Reads: device reads that were begun for it.
    device_reads: u32,
    /// True if it has run at least once.
    has_run: bool,
    /// Write that this one is coalesced into, which has its blocks.
    leader: Option<RequestId>,
    /// Next of the coalesced writes. For long requests: the next of its client that can run.
    next: Option<RequestId>,
    active: bool,
}

impl Request {
    /// Returns the driver's token.
    #[inline]
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    #[inline]
    pub(crate) fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Returns the byte of the volume at which it begins.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns its length in bytes.
    #[inline]
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns true if it is answered only once it is durable.
    #[inline]
    pub(crate) fn fua(&self) -> bool {
        self.fua
    }

    pub(crate) fn set_fua(&mut self, fua: bool) {
        self.fua = fua;
    }

    /// Returns the most extents to report.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn set_limit(&mut self, extents: u32) {
        self.limit = extents;
    }

    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// Enters a stage. No request leaves `Commit` or `Reply`: its change is made, or it is answered.
    #[inline]
    pub(crate) fn enter(&mut self, stage: Stage) {
        assert!(self.stage < Stage::Commit, "a request ends after its last stage");
        self.stage = stage;
    }

    /// Returns the number of loads, fills and merges that have to come before it runs again.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Notes that `number` loads, fills or merges have to come before it runs again.
    #[inline]
    pub(crate) fn wait_for(&mut self, number: u32) {
        self.waiting += number;
    }

    /// Notes that one of those has come.
    #[inline]
    pub(crate) fn end_wait(&mut self) {
        self.waiting -= 1;
    }

    /// Returns the error with which it will be answered when nothing is waited for.
    #[inline]
    pub(crate) fn error(&self) -> Option<Error> {
        self.error
    }

    pub(crate) fn set_error(&mut self, error: Error) {
        self.error = Some(error);
    }

    #[inline]
    pub(crate) fn blocks(&self) -> &Vec<Block> {
        &self.blocks
    }

    #[inline]
    pub(crate) fn blocks_mut(&mut self) -> &mut Vec<Block> {
        &mut self.blocks
    }

    /// Appends the blocks that a byte range touches, each with the bytes of it that are in the range.
    pub(crate) fn add_blocks(&mut self, offset: u64, length: u64, geometry: &Geometry) {
        let block = geometry.block();
        let (first, last) = (offset / block, (offset + length - 1) / block);
        assert!(last >> LBA_BITS == 0);
        for lba in first..=last {
            let start = lba * block;
            let from = offset.max(start) - start;
            let to = (offset + length).min(start + block) - start;
            self.blocks.push(Block::new(Key::new(self.volume, lba), from as u32, to as u32));
        }
    }

    /// Makes its blocks the segments of its answer. Returns the number of buffers among them.
    pub(crate) fn answer_with_blocks(&mut self) -> u32 {
        let Request { blocks, data, .. } = self;
        let segments =
            blocks.drain(..).map(|block| DataSegment { buffer: block.buffer, from: block.from, to: block.to });
        let before = data.len();
        data.extend(segments);
        data[before..].iter().filter(|segment| segment.buffer.is_some()).count() as u32
    }

    /// Returns the segments of its answer.
    #[inline]
    pub(crate) fn data(&self) -> &Vec<DataSegment> {
        &self.data
    }

    #[inline]
    pub(crate) fn data_mut(&mut self) -> &mut Vec<DataSegment> {
        &mut self.data
    }

    /// Returns the extents of its answer.
    pub(crate) fn extents(&self) -> &Vec<Extent> {
        &self.extents
    }

    pub(crate) fn extents_mut(&mut self) -> &mut Vec<Extent> {
        &mut self.extents
    }

    /// Returns the number of whole blocks that it, a clear, has cleared.
    pub(crate) fn cleared(&self) -> u64 {
        self.cleared
    }

    pub(crate) fn note_cleared(&mut self, blocks: u64) {
        self.cleared += blocks;
    }

    /// Returns the number of its blocks that are unchanged.
    #[inline]
    pub(crate) fn unchanged(&self) -> usize {
        self.unchanged
    }

    /// Notes whether one more of its blocks is unchanged.
    pub(crate) fn note_unchanged(&mut self, is_unchanged: bool) {
        self.unchanged += usize::from(is_unchanged);
    }

    /// Forgets the count of unchanged blocks: they are looked at once more.
    pub(crate) fn forget_unchanged(&mut self) {
        self.unchanged = 0;
    }

    /// Returns how often summaries were waited for.
    pub(crate) fn attempts(&self) -> u8 {
        self.attempts
    }

    pub(crate) fn note_attempt(&mut self) {
        self.attempts += 1;
    }

    /// Returns the number of checkpoints that had been done when it began to wait for space.
    pub(crate) fn waits_since(&self) -> Option<u64> {
        self.waits_since
    }

    /// Notes that it waits for space, from the first time on; `checkpoints` are done.
    pub(crate) fn wait_for_space_since(&mut self, checkpoints: u64) -> u64 {
        *self.waits_since.get_or_insert(checkpoints)
    }

    /// Lets it wait for space as from now on: something was given back for it.
    pub(crate) fn wait_anew(&mut self, checkpoints: u64) {
        self.waits_since = Some(checkpoints);
    }

    /// Returns the number of device reads that were begun for it.
    pub(crate) fn device_reads(&self) -> u32 {
        self.device_reads
    }

    pub(crate) fn note_device_read(&mut self) {
        self.device_reads += 1;
    }

    /// Returns true if it has run at least once.
    #[inline]
    pub(crate) fn has_run(&self) -> bool {
        self.has_run
    }

    #[inline]
    pub(crate) fn note_run(&mut self) {
        self.has_run = true;
    }

    /// Gives a buffer with its content to the block at `at`: that of a read gets it as its own, others as the content that they are completed from or
    /// compared with.
    #[inline]
    pub(crate) fn give_buffer(&mut self, at: u32, buffer: BufferId) {
        let block = &mut self.blocks[at as usize];
        match self.kind {
            Kind::Read => block.buffer = Some(buffer),
            _ => block.base_buffer = Some(buffer),
        }
    }

    /// Lets a write that was coalesced with others begin once more, alone. `waits_since`: as for the request that it was part of.
    pub(crate) fn begin_alone(&mut self, waits_since: Option<u64>) {
        (self.next, self.leader, self.stage) = (None, None, Stage::Admit);
        (self.error, self.attempts, self.waits_since) = (None, 0, waits_since);
    }

    pub(crate) fn set_leader(&mut self, leader: RequestId) {
        assert!(self.leader.is_none(), "a write is coalesced once");
        self.leader = Some(leader);
    }

    /// Returns the next of the coalesced writes, or the next of its client that can run.
    #[inline]
    pub(crate) fn next(&self) -> Option<RequestId> {
        self.next
    }

    pub(crate) fn set_next(&mut self, next: RequestId) {
        self.next = Some(next);
    }

    /// Inserts a coalesced write behind this one, and returns the former next.
    pub(crate) fn replace_next(&mut self, next: RequestId) -> Option<RequestId> {
        self.next.replace(next)
    }

    pub(crate) fn take_next(&mut self) -> Option<RequestId> {
        self.next.take()
    }

    /// Frees the memory of its lists.
    fn forget_lists(&mut self) {
        (self.blocks, self.data, self.extents) = (Vec::new(), Vec::new(), Vec::new());
    }
}

/// All requests. Entries are reused with the memory of their lists.
pub(crate) struct Requests {
    table: Vec<Request>,
    free: Vec<u32>,
    limit: usize,
    /// Meters of the requests of clients.
    foreground: Foreground,
}

impl Requests {
    pub(crate) fn new(limit: u32, now: Nanos) -> Requests {
        let (table, free) = (Vec::new(), Vec::new());
        Requests { table, free, limit: limit as usize, foreground: Foreground::new(now) }
    }

    pub(crate) fn has_space(&self) -> bool {
        self.active() < self.limit
    }

    /// Sets the most requests in flight. Requests beyond that still end normally.
    pub(crate) fn set_limit(&mut self, limit: u32) {
        self.limit = limit as usize;
        for request in self.table.iter_mut().filter(|request| !request.active) {
            request.forget_lists();
        }
    }

    /// Returns the bytes of memory of the table and the lists in it.
    pub(crate) fn memory(&self) -> u64 {
        let lists = self.table.iter().map(|each| request_bytes(&each.blocks, &each.data, &each.extents));
        list_bytes(&self.table) + list_bytes(&self.free) + lists.sum::<u64>()
    }

    /// Returns the number of requests in flight.
    pub(crate) fn active(&self) -> usize {
        self.table.len() - self.free.len()
    }

    /// Begins a request without blocks; the table must have a free entry for it.
    pub(crate) fn begin(
        &mut self,
        token: u64,
        kind: Kind,
        volume: VolumeId,
        (offset, length): (u64, u64),
        came: Nanos,
    ) -> RequestId {
        assert!(self.has_space(), "the driver asks can_submit first");
        let at = self.free.pop().unwrap_or_else(|| {
            self.table.push(Request {
                token,
                kind,
                volume,
                offset,
                length,
                came,
                fua: false,
                cleared: 0,
                unchanged: 0,
                limit: 0,
                stage: Stage::Admit,
                waiting: 0,
                error: None,
                blocks: Vec::new(),
                data: Vec::new(),
                extents: Vec::new(),
                attempts: 0,
                waits_since: None,
                device_reads: 0,
                has_run: false,
                leader: None,
                next: None,
                active: false,
            });
            (self.table.len() - 1) as u32
        });
        let request = &mut self.table[at as usize];
        assert!(!request.active && request.blocks.is_empty() && request.data.is_empty());
        request.token = token;
        request.kind = kind;
        request.volume = volume;
        request.offset = offset;
        request.length = length;
        request.came = came;
        request.fua = false;
        request.cleared = 0;
        request.stage = Stage::Admit;
        request.waiting = 0;
        request.error = None;
        request.attempts = 0;
        request.waits_since = None;
        request.device_reads = 0;
        (request.has_run, request.leader, request.next) = (false, None, None);
        request.active = true;
        if kind.is_measured() {
            self.foreground.entered(volume, came);
        }
        RequestId(at)
    }

    pub(crate) fn get(&self, id: RequestId) -> &Request {
        let request = &self.table[id.0 as usize];
        assert!(request.active);
        request
    }

    pub(crate) fn get_mut(&mut self, id: RequestId) -> &mut Request {
        let request = &mut self.table[id.0 as usize];
        assert!(request.active);
        request
    }

    /// Returns a request and the writes coalesced into it.
    pub(crate) fn coalesced(&self, id: RequestId) -> impl Iterator<Item = RequestId> + '_ {
        core::iter::successors(Some(id), |&id| self.get(id).next)
    }

    /// Ends a request, which must wait for nothing. Its entry can be reused.
    pub(crate) fn end(&mut self, id: RequestId, now: Nanos) {
        let request = &mut self.table[id.0 as usize];
        assert!(request.active && request.waiting == 0);
        if request.kind.is_measured() {
            self.foreground.left(request.volume, now, request.came, request.length);
        }
        request.active = false;
        request.blocks.clear();
        request.data.clear();
        request.extents.clear();
        if id.0 as usize >= self.limit {
            request.forget_lists();
        }
        self.free.push(id.0);
    }

    /// Returns the meters of the requests of clients.
    #[inline]
    pub(crate) fn foreground(&self) -> &Foreground {
        &self.foreground
    }

    /// Measures the clients' requests: see [`Foreground::measure`].
    pub(crate) fn measure(&mut self, pool: &mut Pool, spent: bool) -> Measured {
        let Requests { table, foreground, .. } = self;
        let active = |volume: VolumeId| {
            let of_volume = |request: &&Request| request.active && request.volume == volume;
            table.iter().filter(of_volume).filter(|request| request.kind.is_measured()).count() as u64
        };
        foreground.measure(pool, active, spent)
    }

    /// Returns the stages and kinds of everything in flight, to diagnose hangs.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (u64, Stage)> + '_ {
        let stage = |request: &Request| request.leader.map_or(request.stage, |leader| self.get(leader).stage);
        self.table.iter().filter(|request| request.active).map(move |request| (request.token, stage(request)))
    }
}

/// Returns the bytes of the lists of a request.
pub(crate) fn request_bytes(blocks: &Vec<Block>, data: &Vec<DataSegment>, extents: &Vec<Extent>) -> u64 {
    list_bytes(blocks) + list_bytes(data) + list_bytes(extents)
}
