//! The request table: requests in flight, each at a stage.
//!
//! A stage that needs something that is not in memory asks for it and returns. When everything asked for has come, the request runs again *from its
//! first stage*; only a read whose blocks have all come goes on to its answer, as a slot that is being read is not reused (`Jobs::reclaim`). A write changes
//! nothing before its last stage, which changes everything at once, without waiting; a long clear changes one part at a time. So no lock is held on any block
//! or digest: another request's changes meanwhile are simply seen, and a partial write whose base has changed completes its block again.

use alloc::vec::Vec;

use crate::api::{BlockContent, BufferId, DataSegment, Error, Extent, Nanos, RequestId, VolumeId};

use crate::dedup::policy::{Lookup, OnDisk};
use crate::format::entry::{Entry, Key, Slot};
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
    pub token: u64,
    pub kind: Kind,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    /// Time at which it came.
    came: Nanos,
    pub fua: bool,
    /// A clear: whole blocks that it has cleared.
    pub cleared: u64,
    /// Blocks that are unchanged.
    pub unchanged: usize,
    /// The most extents to report.
    pub limit: u32,
    pub stage: Stage,
    /// Loads, fills and merges that have to come before it runs again.
    pub waiting: u32,
    pub error: Option<Error>,
    pub blocks: Vec<Block>,
    pub data: Vec<DataSegment>,
    pub extents: Vec<Extent>,
    /// Times that summaries were waited for.
    pub attempts: u8,
    /// Checkpoints that had been done when it began to wait for space.
    pub waits_since: Option<u64>,
    /// Reads: device reads that were begun for it.
    pub device_reads: u32,
    /// True if it has run at least once.
    pub has_run: bool,
    /// Write that this one is coalesced into, which has its blocks.
    pub leader: Option<RequestId>,
    /// Next of the coalesced writes. For long requests: the next of its client that can run.
    pub next: Option<RequestId>,
    active: bool,
}

impl Request {
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
