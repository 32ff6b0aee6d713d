//! The engine itself: what it is made of, and how an event goes through it.
//!
//! [`Engine::handle`] takes events in and does only what is certain; [`Engine::next_effect`], when it runs out of effects,
//! *pumps*: runs the requests that can run, moves the jobs a bounded number of steps, closes and syncs records. So events
//! that arrive together are served together: one record, one sync.

use crate::pool::standing::Phase;
use crate::space::RESERVE_CONTAINERS;
use crate::store::tree::{LastLeaf, Unresolved};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::canary::Canary;
use crate::care::mend::{Damages, Mend};
use crate::contract::Failure;
use crate::contract::*;
use crate::control::commands::Pending;
use crate::counters::{Counters, ReadCounts, WriteCounts};
use crate::data_path::decide::Deciding;
use crate::data_path::no_room::NoRoom;
use crate::data_path::read::Fill;
use crate::data_path::readahead::ReadAhead;
use crate::data_path::turns::Turns;
use crate::format::bytes::u64_at;
use crate::format::entry::{Entry, Key, Slot};
use crate::format::geometry::Geometry;
use crate::format::superblock::{Parameters, Root, Superblock, TREES};
use crate::format::volume::Volume;
use crate::jobs::checkpoint::Checkpoint;
use crate::jobs::neighbours::Neighbours;
use crate::jobs::partition::Partition;
use crate::jobs::rebuild::Rebuild;
use crate::jobs::reorder::Reorder;
use crate::jobs::scrub::Scrub;
use crate::jobs::throttle::{Pace, Turn};
use crate::journal::carried::CarriedCopies;
use crate::journal::{Journal, Unwritten};
use crate::limits::Limits;
use crate::map::delta::Delta;
use crate::map::discards::Discard;
use crate::map::map_buffer::MapBuffer;
use crate::opening::Recovery;
use crate::payload::buffers::Buffers;
use crate::payload::cache::ReadCache;
use crate::payload::streams::Streams;
use crate::pool::disk_index::DiskIndex;
use crate::pool::growth::Growing;
use crate::pool::owner::Ownership;
use crate::pool::room::MetadataRoom;
use crate::pool::standing::Mark;
use crate::requests::request::{Requests, Stage};
use crate::sharing::index::Index;
use crate::slot_map::{Near, NearMap};
use crate::space::Space;
use crate::store::io::{Io, IoTable};
use crate::store::meta::MetaSpace;
use crate::store::pages::PageCache;
use crate::store::tree::{Store, Walk};

/// Syncs of the store.
#[derive(Default)]
pub(crate) struct Syncs {
    /// What the sync in flight covers: the last complete record when it was submitted.
    pub covers: Option<u64>,
    /// Of carried blocks it covers the batches before this one.
    pub covers_batches: u32,
    /// Syncs submitted and finished so far.
    pub submitted: u64,
    pub finished: u64,
    /// A checkpoint waits until so many have finished.
    pub wanted: u64,
}

/// The engine. See [`crate::contract`].
pub struct Engine {
    pub(crate) limits: Limits,
    pub(crate) now: Nanos,
    pub(crate) phase: Phase,
    /// The pool has failed since it was opened.
    pub(crate) read_only: bool,
    /// Why it failed, in this run or before.
    pub(crate) failure: Option<Failure>,
    pub(crate) mark: Mark,
    /// Who must have the pool for it to be written.
    pub(crate) owner: Ownership,
    /// Superblocks of checkpoints on their way, and the newest epoch that one was submitted with.
    pub(crate) superblocks_in_flight: u32,
    pub(crate) superblock_submitted: u64,
    /// Opened to be audited: after recovery it rests.
    to_audit: bool,
    /// Opened to be read: what would change something is refused.
    pub(crate) reads_only: bool,
    /// Nothing at all is written: opened to be read and found cleanly closed, or the pool has failed before.
    pub(crate) untouched: bool,
    /// The newest superblock that is durable in both places.
    pub(crate) superblock: Superblock,
    pub(crate) store: Store,
    pub(crate) roots: [Root; TREES],
    pub(crate) volumes: Vec<Volume>,
    /// Map roots, in the order of `volumes`.
    pub(crate) maps: Vec<Root>,
    /// Properties of the pool, as the next checkpoint writes them.
    pub(crate) pool_policy: Option<Policy>,
    pub(crate) pool_memory: u64,
    pub(crate) pool_cache: Option<CacheSetting>,
    /// References beyond which a block is kept twice; 0: none is.
    pub(crate) second_copies: u32,
    /// The volume of second copies, if there is one that is not deleted.
    pub(crate) copies: Option<VolumeId>,
    pub(crate) index_copy: IndexCopy,
    /// Replicas of blocks that reads found scattered.
    pub(crate) reorder: Reorder,
    /// Whether there may be second copies.
    pub(crate) has_copies: bool,
    pub(crate) delta: Delta,
    /// What the checkpoint under way merges; empty if there is none.
    pub(crate) frozen: Delta,
    /// Mappings that are merged, and not in their leaves.
    pub(crate) buffer: MapBuffer,
    /// The next checkpoints flush all of it,
    pub(crate) want_flush: bool,
    /// and the last that was to do so found no room for a page.
    pub(crate) flush_is_stuck: bool,
    /// when so many pages of metadata were free.
    pub(crate) free_when_stuck: u32,
    pub(crate) room: MetadataRoom,
    pub(crate) discards: Vec<Discard>,
    /// The first so many of them are of the index on disk and cannot be read; the next opening tries again.
    pub(crate) stuck_discards: usize,
    pub(crate) space: Space,
    pub(crate) index: Index,
    pub(crate) disk_index: DiskIndex,
    pub(crate) cache: ReadCache,
    pub(crate) buffers: Buffers,
    pub(crate) journal: Journal,
    /// Blocks whose slot does not hold them yet.
    pub(crate) dirty: NearMap<Slot, BufferId>,
    /// Blocks that the journal has carried and whose slot writes are still to be submitted.
    pub(crate) carried: VecDeque<Unwritten>,
    /// Slot writes of carried blocks in flight.
    pub(crate) carried_writes: usize,
    /// Where the journal has carried blocks whose slots no sync has covered.
    pub(crate) carried_copies: CarriedCopies,
    /// Blocks that the journal carried and whose slots do not hold them, in a pool that is not written: where they are.
    pub(crate) in_journal: NearMap<Slot, u64>,
    pub(crate) fills: NearMap<Slot, Fill>,
    /// Lists of those that wait for a fill, with nobody in them.
    pub(crate) spare_fill_lists: Vec<Vec<(RequestId, u32)>>,
    pub(crate) read_ahead: ReadAhead,
    pub(crate) write_streams: Streams,
    pub(crate) requests: Requests,
    /// Requests that can run.
    pub(crate) ready: VecDeque<RequestId>,
    /// Those whose work may be long, apart from them.
    pub(crate) turns: Turns,
    /// Writes that wait for room,
    pub(crate) blocked: VecDeque<RequestId>,
    /// and the other list, empty but while they are run again.
    pub(crate) retried: VecDeque<RequestId>,
    /// Requests that wait for buffers.
    pub(crate) starved: VecDeque<RequestId>,
    /// Requests that wait until a record is durable, in order.
    pub(crate) committing: VecDeque<(u64, RequestId)>,
    pub(crate) syncs: Syncs,
    /// Records up to this shall become durable, whoever wants it.
    pub(crate) want_durable: u64,
    /// An empty record shall publish the watermark.
    pub(crate) want_publish: bool,
    pub(crate) want_checkpoint: bool,
    pub(crate) checkpoint: Option<Box<Checkpoint>>,
    pub(crate) checkpoints_done: u64,
    /// The last of them that walked, or will have walked, something of the discard list.
    pub(crate) walked_in: u64,
    /// What of the counters is not kept elsewhere.
    pub(crate) counters: Counters,
    /// What was done with the writes of all volumes.
    pub(crate) writes: WriteCounts,
    /// What was done for reads.
    pub(crate) reads: ReadCounts,
    pub(crate) deciding: Deciding,
    pub(crate) neighbours: Neighbours,
    pub(crate) recovery: Option<Box<Recovery>>,
    pub(crate) rebuild: Option<Rebuild>,
    pub(crate) scrub: Scrub,
    /// Blocks under repair.
    pub(crate) mends: BTreeMap<Slot, Mend>,
    pub(crate) damages: Damages,
    /// What the driver's clock showed, and when.
    pub(crate) wall_clock: Option<(u64, Nanos)>,
    pub(crate) reserving: bool,
    /// The allocator waits for fresh containers rather than to fill holes.
    pub(crate) wants_fresh: bool,
    /// Containers to reserve at once.
    pub(crate) reserve_at_once: u32,
    /// Space for the metadata of a checkpoint could not be reserved: the host is full.
    pub(crate) metadata_full: bool,
    /// Reserving failed: the host is full. Cleared by the next tick.
    pub(crate) host_full: bool,
    /// Writes that found no room.
    pub(crate) no_room: NoRoom,
    pub(crate) growing: Option<Growing>,
    pub(crate) pending_commands: Vec<Pending>,
    /// Closing must not wait for a checkpoint.
    pub(crate) closes_early: bool,
    /// Pages of trees that failed last: what needs one of them does not ask again.
    pub(crate) failed_pages: Vec<crate::store::pages::PageKey>,
    /// Leaves of the discard list as last written.
    pub(crate) discard_leaves: u64,
    /// Leaves of the volume table as last written.
    pub(crate) volume_leaves: u64,
    /// A job stopped at its budget and can go on at once.
    pub(crate) work_left: bool,
    /// More of the pending slots may be given back.
    pub(crate) mature_left: bool,
    /// The throttle of background work.
    pub(crate) pace: Pace,
    /// When a request last came or was answered.
    pub(crate) last_request: Nanos,
    /// When the last checkpoint ended.
    pub(crate) last_checkpoint: Nanos,
    pub(crate) tick: Option<Nanos>,
    /// When a job that rests goes on.
    pub(crate) job_timer: Option<Nanos>,
    pub(crate) last_change: Nanos,
    pub(crate) needs_pump: bool,
    pub(crate) evicted: Vec<BufferId>,
    pub(crate) dead: Vec<Slot>,
    pub(crate) scratch: Vec<u8>,
    /// Of the record that is being written: empty in between, as are the slots of a container that is being opened.
    pub(crate) record_segments: Vec<Segment>,
    pub(crate) free_slots: Vec<bool>,
    /// The boundary between index and read cache.
    pub(crate) partition: Partition,
    /// What is broken on purpose.
    #[cfg(feature = "canaries")]
    pub(crate) broken: Option<Canary>,
}

impl Engine {
    /// Begins to open a pool; ends with [`Effect::Opened`]. The driver has read the parameters from one of the superblock
    /// slots; its clock stands at `now`.
    pub fn open(parameters: Parameters, limits: Limits, now: Nanos) -> Engine {
        let geometry = parameters.geometry;
        let store = Store {
            geometry,
            page_seed: parameters.page_seed(),
            journal_seed: parameters.seed(),
            pages: PageCache::new(limits.pages, geometry.block_size),
            meta: MetaSpace::new(geometry.metadata_blocks, geometry.meta_map_leaf_bits()),
            io: IoTable::new(),
            epoch: 0,
            page_visits: 0,
        };
        let entries = limits.delta_entries as usize;
        let cached = limits.buffers.saturating_sub(limits.write_buffers) as usize;
        Engine {
            limits,
            now,
            phase: Phase::Recovering,
            read_only: false,
            failure: None,
            mark: Mark::Done,
            owner: Ownership::default(),
            superblocks_in_flight: 0,
            superblock_submitted: 0,
            to_audit: false,
            reads_only: false,
            untouched: false,
            superblock: Superblock::new(parameters),
            store,
            roots: [Root::default(); TREES],
            volumes: Vec::new(),
            maps: Vec::new(),
            pool_policy: None,
            pool_memory: 0,
            pool_cache: None,
            second_copies: 0,
            copies: None,
            index_copy: IndexCopy::default(),
            reorder: Reorder::new(),
            has_copies: false,
            delta: Delta::with_capacity(entries),
            frozen: Delta::with_capacity(entries),
            buffer: MapBuffer::new(),
            want_flush: false,
            flush_is_stuck: false,
            free_when_stuck: 0,
            room: MetadataRoom::new(&geometry),
            discards: Vec::new(),
            stuck_discards: 0,
            space: Space::new(&geometry),
            index: Index::new(limits.index_size(geometry.block()), geometry.slots(), limits.index_tag_bits),
            disk_index: DiskIndex::default(),
            cache: ReadCache::new(cached, limits.most_cached(geometry.block())),
            buffers: Buffers::new(limits.buffers, limits.write_buffers),
            journal: Journal::new(geometry.journal_blocks, geometry.block_size, 0, 0, 0, 0),
            dirty: NearMap::with_capacity_and_hasher(limits.write_buffers as usize, Near),
            carried: VecDeque::new(),
            carried_writes: 0,
            carried_copies: CarriedCopies::new(),
            in_journal: NearMap::default(),
            fills: NearMap::default(),
            spare_fill_lists: Vec::new(),
            read_ahead: ReadAhead::new(),
            write_streams: Streams::new(),
            requests: Requests::new(limits.requests),
            ready: VecDeque::new(),
            turns: Turns::new(&limits, geometry.block()),
            blocked: VecDeque::new(),
            retried: VecDeque::new(),
            starved: VecDeque::new(),
            committing: VecDeque::new(),
            syncs: Syncs::default(),
            want_durable: 0,
            want_publish: false,
            want_checkpoint: false,
            checkpoint: None,
            checkpoints_done: 0,
            walked_in: 0,
            counters: Counters::default(),
            writes: WriteCounts::default(),
            reads: ReadCounts::default(),
            deciding: Deciding::default(),
            neighbours: Neighbours::new(),
            recovery: Some(Box::new(Recovery::new())),
            rebuild: None,
            scrub: Scrub::new(now),
            mends: BTreeMap::new(),
            damages: Damages::default(),
            wall_clock: None,
            reserving: false,
            wants_fresh: false,
            reserve_at_once: RESERVE_CONTAINERS,
            metadata_full: false,
            host_full: false,
            no_room: NoRoom::default(),
            growing: None,
            pending_commands: Vec::new(),
            closes_early: false,
            failed_pages: Vec::new(),
            discard_leaves: 0,
            volume_leaves: 0,
            work_left: false,
            mature_left: false,
            pace: Pace::Rest(now),
            last_request: now,
            last_checkpoint: now,
            tick: None,
            job_timer: None,
            last_change: now,
            needs_pump: true,
            evicted: Vec::new(),
            dead: Vec::new(),
            scratch: Vec::new(),
            record_segments: Vec::new(),
            free_slots: Vec::new(),
            partition: Partition::new(&limits, geometry.block()),
            #[cfg(feature = "canaries")]
            broken: None,
        }
    }

    /// As [`Engine::open`], for [`Engine::check`]: after recovery the engine rests. It takes no requests and starts no job.
    pub fn open_to_audit(parameters: Parameters, limits: Limits, now: Nanos) -> Engine {
        Engine { to_audit: true, ..Engine::open(parameters, limits, now) }
    }

    /// As [`Engine::open`], to be read only: requests and commands that change something are refused. A pool that was not
    /// closed cleanly is recovered, which writes to it; to one that was, nothing is written.
    pub fn open_to_read(parameters: Parameters, limits: Limits, now: Nanos) -> Engine {
        Engine { reads_only: true, ..Engine::open(parameters, limits, now) }
    }

    /// Takes one event in.
    pub fn handle(&mut self, now: Nanos, event: Event<'_>) {
        self.now = self.now.max(now);
        self.needs_pump = true;
        match event {
            Event::Submit(submit) => self.submit(submit),
            Event::Done { io, result } => self.done(io, result),
            Event::Sent(request) => self.sent(request),
            Event::Timer => self.timer(),
            Event::Control { token, command } => self.command(token, command),
        }
    }

    /// The next thing that the engine wants; call until `None` after every [`Engine::handle`] (or after several).
    pub fn next_effect(&mut self) -> Option<Effect> {
        while self.store.io.effects.is_empty() && core::mem::take(&mut self.needs_pump) {
            self.pump();
        }
        self.store.io.effects.pop_front()
    }

    /// When [`Event::Timer`] is due: `None` if nothing waits for time; a time that has passed means at once.
    pub fn next_timer(&self) -> Option<Nanos> {
        let moves = self.partition.work_left && self.phase == Phase::Serving;
        if self.work_left || moves { Some(self.now) } else { self.timers() }
    }

    fn timers(&self) -> Option<Nanos> {
        self.tick.into_iter().chain(self.job_timer).chain(self.no_room.due()).min()
    }

    /// What an I/O is: operation, byte offset, byte length, segments, class.
    pub fn io(&self, io: IoId) -> &Io {
        self.store.io.get(io)
    }

    /// The bytes of a metadata page, `block_size` of them.
    pub fn page(&self, page: PageId) -> &[u8] {
        self.store.pages.bytes(page)
    }

    /// A free buffer to receive payload into, or `None` while there is none (try again after the next event).
    pub fn take_buffer(&mut self) -> Option<BufferId> {
        // A pool that could not write keeps what it has; who comes is to be told.
        if !self.read_only && !self.no_room.refuses && !self.buffers.may_receive() {
            return None;
        }
        let buffer = self.any_buffer()?;
        self.buffers.set_incoming(buffer);
        Some(buffer)
    }

    /// Gives back a buffer that was taken and will not be submitted.
    pub fn return_buffer(&mut self, buffer: BufferId) {
        self.buffers.release(buffer);
        self.needs_pump = true;
    }

    /// Whether the request table has room for another [`Event::Submit`].
    pub fn can_submit(&self) -> bool {
        self.requests.has_room() && matches!(self.phase, Phase::Serving | Phase::Closing) && !self.to_audit
    }

    /// The segments of a read's answer, from [`Reply::Data`] to [`Event::Sent`].
    pub fn data(&self, request: RequestId) -> &[DataSegment] {
        &self.requests.get(request).data
    }

    /// The extents of an answer, from [`Reply::Extents`] to [`Event::Sent`].
    pub fn extents(&self, request: RequestId) -> &[Extent] {
        &self.requests.get(request).extents
    }

    /// Tokens and stages of the requests in flight, for whoever looks for what hangs.
    pub fn in_flight(&self) -> impl Iterator<Item = (u64, Stage)> + '_ {
        self.requests.in_flight()
    }

    /// A buffer for whatever needs one, from the free ones or from the read cache.
    pub(crate) fn any_buffer(&mut self) -> Option<BufferId> {
        while self.buffers.free() == 0 {
            let is_over = self.cache.ahead() > 0 && self.read_ahead.is_over(self.now);
            let ahead = if is_over { self.cache.evict_ahead() } else { None };
            let victim = ahead.or_else(|| self.cache.evict())?;
            self.buffers.release(victim);
        }
        self.buffers.take()
    }

    /// Puts a block into the read cache, unless its buffer is to go.
    pub(crate) fn keep_cached(&mut self, slot: Slot, buffer: BufferId) {
        if self.buffers.is_retired(buffer) {
            self.evicted.push(buffer);
        } else {
            self.cache.insert(slot, buffer, &mut self.evicted);
        }
    }

    /// Releases what the read cache let go of.
    pub(crate) fn release_evicted(&mut self) {
        while let Some(buffer) = self.evicted.pop() {
            self.buffers.release(buffer);
        }
    }

    // ---- the map ----

    /// What a block maps to, for whoever needs its content.
    pub(crate) fn resolve(&mut self, volume: usize, key: Key) -> Result<Entry, Unresolved> {
        self.resolve_after(volume, key, &mut LastLeaf::default())
    }

    /// The same, after others of the volume.
    pub(crate) fn resolve_after(&mut self, volume: usize, key: Key, last: &mut LastLeaf) -> Result<Entry, Unresolved> {
        let entry = self.map_entry_after(volume, key, last)?;
        if entry.is_lost() { Err(Unresolved::Damaged) } else { Ok(entry) }
    }

    /// The entry of a block that is not in its leaf yet, if it is not.
    pub(crate) fn unflushed(&self, key: Key) -> Option<Entry> {
        self.delta.get(key).or_else(|| self.frozen.get(key)).or_else(|| self.buffer.get(key))
    }

    /// The entry of a block, which may be lost.
    pub(crate) fn map_entry(&mut self, volume: usize, key: Key) -> Result<Entry, Unresolved> {
        self.map_entry_after(volume, key, &mut LastLeaf::default())
    }

    /// The same, after others of the volume.
    pub(crate) fn map_entry_after(
        &mut self,
        volume: usize,
        key: Key,
        last: &mut LastLeaf,
    ) -> Result<Entry, Unresolved> {
        if let Some(entry) = self.unflushed(key) {
            return Ok(entry);
        }
        let leaf = key.lba() / self.store.geometry.map_leaf_entries();
        match last.lookup(&mut self.store, self.maps[volume], leaf) {
            Walk::Leaf(page) => self.entry_in(page, key).ok_or(Unresolved::Damaged),
            Walk::Absent(_) => Ok(Entry::UNMAPPED),
            Walk::Missing(missing) if missing.pointer.is_lost() => Ok(Entry::LOST),
            Walk::Missing(missing) => Err(Unresolved::Missing(missing)),
        }
    }

    /// The entry of a block in its leaf, if it is one that can be.
    pub(crate) fn entry_in(&self, leaf: PageId, key: Key) -> Option<Entry> {
        let at = (key.lba() % self.store.geometry.map_leaf_entries()) as usize * 8;
        let entry = Entry(u64_at(self.store.pages.bytes(leaf), at));
        let makes_sense = entry.is_valid() && entry.slot().is_none_or(|slot| self.space.contains(slot));
        makes_sense.then_some(entry)
    }

    // ---- pumping ----

    fn pump(&mut self) {
        if self.phase == Phase::Recovering {
            self.recover();
        }
        if matches!(self.phase, Phase::Serving | Phase::Closing) && !self.to_audit {
            self.step_no_room();
            self.run_ready();
            self.retry_starved();
            let writes = !self.read_only && !self.untouched;
            while writes && self.open_ahead() && !self.blocked.is_empty() {
                self.retry_blocked();
            }
            self.retry_blocked();
            self.run_turns();
            self.step_read_ahead();
            self.step_mends();
            self.step_scrub();
            if self.phase == Phase::Serving {
                self.step_partition();
            }
            if self.read_only {
                self.step_failure();
            } else if !self.untouched {
                self.step_jobs();
                self.step_copies();
                self.step_neighbours();
                self.commit();
                self.relieve_pressure();
                self.reserve_ahead();
            }
            self.step_reorder();
            self.begin_scrub();
            self.step_commands();
            self.set_tick();
        }
    }

    fn run_ready(&mut self) {
        while let Some(id) = self.ready.pop_front() {
            self.run(id);
        }
    }

    fn retry_starved(&mut self) {
        for _ in 0..self.starved.len() {
            let Some(id) = self.starved.pop_front() else { break };
            let before = self.starved.len();
            self.run(id);
            if self.starved.len() > before {
                // Still without buffers: it keeps its place.
                self.starved.rotate_right(1);
                break;
            }
        }
    }

    /// One scheduler for jobs: each moves a bounded number of steps; a checkpoint comes before the rebuild of the index.
    fn step_jobs(&mut self) {
        if self.closes_early {
            return;
        }
        if self.mature_left {
            self.mature();
        }
        self.step_checkpoint();
        if self.checkpoint.is_none() && self.rebuild.is_some() && self.turn() == Turn::Now {
            self.begin_burst();
            let (visits, reads) = (self.store.page_visits, self.store.io.in_flight());
            self.step_rebuild();
            self.counters.rebuild_page_visits += self.store.page_visits - visits;
            self.counters.rebuild_loads += (self.store.io.in_flight() - reads) as u64;
        }
        if self.checkpoint.is_none() && self.rebuild.is_none() {
            self.step_fetch();
        }
    }

    fn timer(&mut self) {
        self.begin_turn();
        self.job_timer = self.job_timer.filter(|&due| due > self.now);
        if self.tick.is_some_and(|tick| tick <= self.now) {
            self.tick = None;
            if matches!(self.phase, Phase::Serving | Phase::Closing) && !self.read_only && !self.untouched {
                self.self_sync();
            }
        }
    }

    /// Where things are on the store, by now.
    pub fn geometry(&self) -> &Geometry {
        &self.store.geometry
    }
}

#[cfg(feature = "canaries")]
impl Engine {
    /// Breaks a behaviour, or nothing. To be called before the first event.
    pub fn break_on_purpose(&mut self, canary: Option<Canary>) {
        self.broken = canary;
        if canary == Some(Canary::PublicSeed) {
            self.store.journal_seed = self.superblock.parameters.public_seed();
        }
    }

    /// Whether this is broken.
    pub(crate) fn canary(&self, canary: Canary) -> bool {
        self.broken == Some(canary)
    }
}

#[cfg(not(feature = "canaries"))]
impl Engine {
    /// Whether this is broken: never.
    #[inline(always)]
    pub(crate) fn canary(&self, _canary: Canary) -> bool {
        false
    }
}
