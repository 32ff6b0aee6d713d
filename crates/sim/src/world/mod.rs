//! The world around one engine: a virtual clock, a calendar of future events, the simulated disk, and the payload
//! buffers. It is the simulator's driver: it feeds events, drains effects, and performs I/O in virtual time.
//!
//! It checks the engine's side of the contract: each buffer has one owner at a time, I/O stays inside the store, no
//! block is written twice at once, and every number refers to something in flight.
//!
//! Each [`World::step`] takes one effect or, when there is none, delivers one event. The machine may crash between any two steps. A test that needs a certain
//! order of events holds completions back ([`World::hold_back`]).

pub mod buffers;
mod damage;
pub mod disk;
mod endings;
mod enospc;
pub mod faults;
pub mod flash;
mod flash_io;
mod owner;
mod records;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use engine::{
    BlockContent, BufferId, Command, ControlError, DataSegment, Device, DeviceKind, Effect, Engine, Error, Event,
    Extent, Geometry, Io, IoError, IoId, IoOp, Limits, Nanos, OpenError, Outcome, PageId, Parameters, Recovered, Reply,
    RequestId, Segment, Submit, Superblock, UNGROWN,
};

use crate::content::{CELLS, Cells, Content, ZERO};
use crate::oracle::model::Promise;
use crate::random::{Random, mix};
use crate::transcript::Trace;
use crate::world::buffers::Buffers;
use crate::world::disk::Disk;
use crate::world::enospc::Kept;
use crate::world::faults::{Class, Faults};
use crate::world::flash::Flash;
use crate::world::owner::Ownership;
use crate::{Checked, violated};

/// Times of the simulated disk: an SSD (FAST '11 class: read 80 us, write 85 us; 550 and 520 MB/s).
const READ_NANOS: u64 = 80_000;
const WRITE_NANOS: u64 = 85_000;
const READ_BYTES_PER_SECOND: u64 = 550_000_000;
const WRITE_BYTES_PER_SECOND: u64 = 520_000_000;
/// Time of a sync: no figure of a drive, only longer than a write.
const SYNC_NANOS: u64 = 400_000;
const MEMORY_NANOS: u64 = 1_000;
const DISCARD_NANOS: u64 = 2_000_000;

/// Outcomes of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// An I/O was submitted.
    Submitted,
    /// An I/O's completion was delivered.
    Completed,
    /// The timer was delivered, or the end of a reply's sending.
    Passed,
    /// The engine answered a request.
    Reply {
        /// Token of the request.
        token: u64,
        /// Result of the request.
        result: Result<Answer, Error>,
    },
    /// The engine answered a command.
    Control {
        /// Token of the command.
        token: u64,
        /// Result of the command.
        result: Result<(), ControlError>,
    },
    /// The engine opened the pool, or could not.
    Opened(Result<Recovered, OpenError>),
    /// No event was due up to the horizon; the clock stands there.
    Quiet,
}

/// A successful answer, with the data that the driver would send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Success.
    Done,
    /// The cells read.
    Data(Vec<u32>),
    /// The extents.
    Extents(Vec<Extent>),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Happening {
    Done(IoId),
    FlashLate(IoId),
    Sent(RequestId),
}

/// An I/O in flight.
#[derive(Debug)]
struct Flight {
    io: Io,
    begun: Nanos,
    /// Content of each buffer when a write began: it may not change until the write ends.
    payload: Vec<(BufferId, Cells)>,
    /// True if it fails by [`World::fail`].
    is_chosen: bool,
    /// Fault that strikes it when it completes.
    fault: Option<Class>,
    /// Hash of the content of a write.
    hash: u64,
}

/// A record written to the journal, for the oracle: the state that it proves, and its blocks.
#[derive(Clone, Debug)]
pub struct RecordNote {
    /// Its number.
    pub sequence: u64,
    /// The last record that was known durable when it was closed.
    pub watermark: u64,
    /// Promise at that moment: the durable records up to the watermark contain all of it.
    pub promise: Promise,
    /// Its pages, as they were written, by block of the store.
    pub pages: Vec<(u64, Content)>,
    /// Number of its pages. Those beyond the end of the ring come with another write.
    pub page_count: usize,
}

/// Longest duration of a slow I/O.
const SLOW_NANOS: u64 = 30_000_000_000;

/// A predicate that chooses I/O.
type Choice = Box<dyn Fn(&Io) -> bool>;

/// The engine and everything around it.
pub struct World {
    /// The engine.
    pub engine: Engine,
    /// The disk.
    pub disk: Disk,
    /// The flash in front of it, if there is one.
    pub flash: Option<Flash>,
    /// The clock.
    pub now: Nanos,
    /// The trace.
    pub trace: Trace,
    parameters: Parameters,
    random: Random,
    calendar: BinaryHeap<Reverse<(Nanos, u64, Happening)>>,
    sequence: u64,
    buffers: Buffers,
    flights: BTreeMap<IoId, Flight>,
    replies: BTreeMap<RequestId, (Vec<DataSegment>, Vec<u32>)>,
    /// I/O that begins and is chosen does not complete until it is let go.
    choice: Choice,
    /// I/O that begins and is chosen fails.
    failing: Choice,
    /// Reservations that find no space.
    full: Choice,
    /// I/O held back, in order of submission.
    held: Vec<IoId>,
    /// Writes that found no space.
    kept: Kept,
    /// Faults of the store.
    pub faults: Faults,
    /// I/O submitted so far: reads, writes, syncs, reservations, discards.
    pub submitted: [u64; 5],
    /// Records written, where the faults ask for them.
    pub records: Vec<RecordNote>,
    /// Promise so far, set by the caller that knows it.
    pub promise: Promise,
    /// Ownership of the pool.
    pub(crate) ownership: Ownership,
    /// Steps of long requests when the last timer went off, and the number of further ones allowed until the next
    /// timer.
    steps: (u64, u64),
}

/// Creates a disk that holds a new, empty pool, whose first volume gets a number.
pub fn formatted(parameters: Parameters, first_number: u16) -> Disk {
    let geometry = parameters.geometry;
    let mut disk = Disk::new(geometry.block_size, geometry.total_blocks());
    for parity in 0..2 {
        disk.pair(geometry.superblock_block(0, parity), geometry.superblock_block(1, parity));
    }
    let format = engine::format(parameters, DeviceKind::Auto);
    for (offset, length) in format.zero {
        for block in offset / geometry.block()..(offset + length).div_ceil(geometry.block()) {
            disk.put(block, Content::Payload(ZERO));
        }
    }
    for (offset, mut bytes) in format.blocks {
        let superblock = Superblock::decode(&bytes).expect("a new pool has superblocks");
        Superblock { next_volume: first_number, ..superblock }.encode(&mut bytes);
        disk.put(offset / geometry.block(), Content::Metadata(bytes.into()));
    }
    disk
}

/// Finds the parameters as the driver must: from the newest superblock that is valid.
fn find_parameters(disk: &Disk, place_b: u64) -> Option<Parameters> {
    let slots = [0, 1, place_b, place_b + 1].into_iter();
    let valid = slots.filter_map(|block| Superblock::decode(&disk.read(block).to_bytes(disk.block_size())).ok());
    Superblock::newest(&valid.collect::<Vec<_>>()).ok().map(|superblock| superblock.parameters)
}

impl World {
    /// Begins to open the pool on `disk`, which was made with `parameters`. It may have grown since.
    pub fn open(
        parameters: Parameters,
        limits: Limits,
        disk: Disk,
        now: Nanos,
        random: Random,
        trace: Trace,
    ) -> Checked<World> {
        let found = find_parameters(&disk, parameters.geometry.place_b);
        let made = found.map(|found| Parameters { geometry: parameters.geometry, ..found });
        let Some(parameters) = found.filter(|_| made == Some(parameters)) else {
            return violated(format!("the superblocks say {found:?}, the pool was made with {parameters:?}"));
        };
        if parameters.geometry.total_blocks() > disk.blocks() {
            return violated(format!("{parameters:?} on a disk of {} blocks", disk.blocks()));
        }
        let engine = Engine::open(parameters, limits, now);
        let engine = crate::runs::mutants::broken(engine);
        Ok(World {
            engine,
            disk,
            flash: None,
            now,
            trace,
            parameters,
            random,
            calendar: BinaryHeap::new(),
            sequence: 0,
            buffers: Buffers::new(limits.buffers, parameters.geometry.block_size),
            flights: BTreeMap::new(),
            replies: BTreeMap::new(),
            choice: Box::new(|_| false),
            failing: Box::new(|_| false),
            full: Box::new(|_| false),
            held: Vec::new(),
            kept: Kept::default(),
            faults: Faults::new(0),
            submitted: [0; 5],
            records: Vec::new(),
            promise: Promise::default(),
            ownership: Ownership::default(),
            steps: (0, limits.most_slice_steps(&parameters.geometry)),
        })
    }

    /// Returns the geometry that the superblocks had at opening.
    pub fn geometry(&self) -> Geometry {
        self.parameters.geometry
    }

    pub(crate) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Holds back I/O of the store that begins from here on and is chosen, until [`World::let_go`]. It replaces the earlier choice; I/O held already
    /// stays so. I/O of the flash hangs by `Fronting::Hang`.
    pub fn hold_back(&mut self, choice: impl Fn(&Io) -> bool + 'static) {
        self.choice = Box::new(choice);
    }

    /// Fails I/O that begins from here on and is chosen; its data may have been written. It replaces the earlier choice.
    pub fn fail(&mut self, choice: impl Fn(&Io) -> bool + 'static) {
        self.failing = Box::new(choice);
    }

    /// Lets chosen reservations find no space from here on. It replaces the earlier choice.
    pub fn refuse_space(&mut self, choice: impl Fn(&Io) -> bool + 'static) {
        self.full = Box::new(choice);
    }

    /// Returns the number of I/O held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Lets the `count` I/O complete that have been held back for longest.
    pub fn let_go(&mut self, count: usize) {
        for io in self.held.drain(..count.min(self.held.len())).collect::<Vec<_>>() {
            self.schedule(MEMORY_NANOS, Happening::Done(io));
        }
    }

    /// Returns true if no I/O is in flight, apart from those held back, and no reply is being sent. (There may still be effects and timers.)
    pub fn is_still(&self) -> bool {
        self.calendar.is_empty()
    }

    /// Returns the number of buffers that I/O of the flash in flight holds.
    pub fn buffers_of_late_flash(&self) -> usize {
        let of_flash = self.flights.values().filter(|flight| flight.io.device == Device::Flash);
        of_flash.flat_map(|flight| &flight.io.segments).filter(|segment| matches!(segment, Segment::Buffer(_))).count()
    }

    /// Lists the I/O in flight as text.
    pub fn in_flight(&self) -> String {
        let line = |(id, flight): (&IoId, &Flight)| {
            format!("io {} {:?} at {} for {}", id.0, flight.io.op, flight.io.offset, flight.io.length)
        };
        self.flights.iter().map(line).collect::<Vec<_>>().join("; ")
    }

    /// Takes one effect, or delivers the next event that is due no later than `horizon`.
    pub fn step(&mut self, horizon: Nanos) -> Checked<Step> {
        self.follow_buffers()?;
        if let Some(effect) = self.engine.next_effect() {
            self.follow_buffers()?;
            return self.perform(effect);
        }
        self.flash.iter_mut().for_each(Flash::all_is_said);
        let taken = self.engine.slice_steps_taken() - self.steps.0;
        if taken > self.steps.1 {
            return violated(format!("long requests took {taken} steps in one turn, {} are the most", self.steps.1));
        }
        let next = self.calendar.peek().map(|Reverse((time, _, _))| *time);
        let timer = self.engine.next_timer().map(|time| time.max(self.now));
        match (next, timer) {
            (next, Some(timer)) if timer <= horizon && next.is_none_or(|next| timer < next) => {
                self.now = timer;
                self.trace.note(self.now, 1, &[], || "timer".to_string());
                self.steps.0 += taken;
                self.engine.handle(self.now, Event::Timer);
                Ok(Step::Passed)
            }
            (Some(next), _) if next <= horizon => {
                let Reverse((time, _, happening)) = self.calendar.pop().expect("it was there");
                self.now = self.now.max(time);
                match happening {
                    Happening::Done(io) => self.complete(io),
                    Happening::FlashLate(io) => Ok(self.flash_is_late(io)),
                    Happening::Sent(request) => self.sent(request),
                }
            }
            _ => {
                if horizon != Nanos::MAX {
                    self.now = self.now.max(horizon);
                }
                Ok(Step::Quiet)
            }
        }
    }

    /// Submits a request. The engine must have space ([`Engine::can_submit`]); a write's buffers must have been taken.
    pub fn submit(&mut self, submit: Submit<'_>) {
        let (token, offset, length) = (submit.token, submit.offset, submit.length);
        let values = [token, u64::from(submit.volume.0), offset, length, u64::from(submit.fua)];
        self.trace.note(self.now, 2, &values, || format!("submit {submit:?}"));
        if let engine::Operation::Write(inputs) = submit.operation {
            for input in inputs {
                let payload = Content::Payload(self.buffers.hand_over(input.buffer));
                self.trace.note(self.now, 3, &[u64::from(input.buffer.0), payload.hash()], || {
                    format!("  buffer {} holds {payload:?}", input.buffer.0)
                });
            }
        }
        self.engine.handle(self.now, Event::Submit(submit));
    }

    /// Divides the memory anew.
    pub fn set_limits(&mut self, limits: Limits) -> Checked {
        self.trace.note(self.now, 11, &[u64::from(limits.buffers), u64::from(limits.pages)], || format!("{limits:?}"));
        self.buffers.set_count(self.buffers.count().max(limits.buffers))?;
        self.steps.1 = self.steps.1.max(limits.most_slice_steps(self.engine.geometry()));
        self.engine.set_limits(limits);
        self.follow_buffers()
    }

    /// Follows the engine's number of buffers with memory for exactly as many.
    fn follow_buffers(&mut self) -> Checked {
        if self.engine.buffer_numbers() != self.buffers.count() {
            self.buffers.set_count(self.engine.buffer_numbers())?;
        }
        Ok(())
    }

    /// Gives the engine a command.
    pub fn control(&mut self, token: u64, command: Command<'_>) {
        self.trace.note(self.now, 4, &[token], || format!("command {token} {command:?}"));
        self.engine.handle(self.now, Event::Control { token, command });
    }

    /// Offers to give the pool more metadata where that runs short, or takes the offer back.
    pub fn offer_growth(&mut self, stands: bool) {
        self.trace.note(self.now, 18, &[stands.into()], || format!("growth offered: {stands}"));
        self.engine.handle(self.now, Event::GrowthOffered(stands));
    }

    /// Takes a buffer from the engine and fills it; cells without a value keep their old content.
    pub fn take_buffer(&mut self, cells: &[Option<u32>; CELLS]) -> Checked<Option<BufferId>> {
        self.follow_buffers()?;
        let Some(id) = self.engine.take_buffer() else { return Ok(None) };
        self.buffers.take(id, cells)?;
        Ok(Some(id))
    }

    /// Describes a buffer that holds a full block, as the driver would tell the engine.
    pub fn describe(&self, id: BufferId) -> BlockContent {
        self.buffers.describe(&self.buffers.cells(id))
    }

    /// Restricts the hash behind digests to this number of values from here on.
    pub fn weaken_digests(&mut self, values: u32) {
        self.buffers.weaken(values);
    }

    /// Gives back a buffer that was taken.
    pub fn return_buffer(&mut self, id: BufferId) {
        self.buffers.hand_over(id);
        self.engine.return_buffer(id);
    }

    /// Reads metadata as an audit does: the content visible now, or `None` outside the store.
    pub fn read_bytes(disk: &Disk, offset: u64, length: u32) -> Option<Vec<u8>> {
        let size = u64::from(disk.block_size());
        let end = offset.checked_add(u64::from(length))?;
        if end > disk.blocks() * size {
            return None;
        }
        let mut bytes = Vec::new();
        for block in offset / size..end.div_ceil(size) {
            bytes.extend_from_slice(&disk.read(block).to_bytes(disk.block_size()));
        }
        let skip = (offset % size) as usize;
        Some(bytes[skip..skip + length as usize].to_vec())
    }

    fn perform(&mut self, effect: Effect) -> Checked<Step> {
        match effect {
            Effect::Io(id) => self.begin(id),
            Effect::Reply { token, result } => {
                let values = [token, u64::from(result.is_ok())];
                self.trace.note(self.now, 5, &values, || format!("reply {token} {result:?}"));
                let result = match result {
                    Err(error) => Err(error),
                    Ok(Reply::Done) => Ok(Answer::Done),
                    Ok(Reply::Data(request)) => Ok(Answer::Data(self.collect(request)?)),
                    Ok(Reply::Extents(request)) => {
                        let extents = self.engine.extents(request).to_vec();
                        self.trace.say(|| format!("  {extents:?}"));
                        self.keep_reply(request, Vec::new(), Vec::new())?;
                        Ok(Answer::Extents(extents))
                    }
                };
                Ok(Step::Reply { token, result })
            }
            Effect::ControlReply { token, result } => {
                self.trace.note(self.now, 6, &[token, u64::from(result.is_ok())], || {
                    format!("command {token} is answered: {result:?}")
                });
                Ok(Step::Control { token, result })
            }
            Effect::Opened(result) => {
                let recovered = result.unwrap_or_default();
                let values = [u64::from(result.is_ok()), recovered.epoch, recovered.records, recovered.entries];
                self.trace.note(self.now, 7, &values, || format!("opened: {result:?}"));
                Ok(Step::Opened(result))
            }
        }
    }

    /// Reads a reply's data, and sends it some time later.
    fn collect(&mut self, request: RequestId) -> Checked<Vec<u32>> {
        let segments = self.engine.data(request).to_vec();
        let cells = self.buffers.gather(&segments)?;
        self.buffers.begin_reply(&segments);
        self.trace.note(self.now, 8, &cells.iter().map(|&cell| cell.into()).collect::<Vec<_>>(), || {
            format!("  {segments:?} {cells:?}")
        });
        self.keep_reply(request, segments, cells.clone())?;
        Ok(cells)
    }

    fn keep_reply(&mut self, request: RequestId, segments: Vec<DataSegment>, cells: Vec<u32>) -> Checked {
        if self.replies.insert(request, (segments, cells)).is_some() {
            return violated(format!("{request:?} is answered twice, before the first answer is sent"));
        }
        let mut delay = MEMORY_NANOS + self.random.below(200_000);
        if self.faults.disconnects > 0 && self.faults.random.one_in(self.faults.disconnects) {
            self.faults.tally.count(Class::Disconnect);
            delay = 0;
        }
        self.schedule(delay, Happening::Sent(request));
        Ok(())
    }

    fn sent(&mut self, request: RequestId) -> Checked<Step> {
        let (segments, cells) = self.replies.remove(&request).expect("a reply is kept until it is sent");
        if self.buffers.gather(&segments)? != cells {
            return violated(format!("the data of {request:?} changed while it was being sent"));
        }
        self.buffers.end_reply(&segments);
        self.trace.note(self.now, 9, &[u64::from(request.0)], || format!("sent {request:?}"));
        self.engine.handle(self.now, Event::Sent(request));
        Ok(Step::Passed)
    }

    fn schedule(&mut self, delay: Nanos, happening: Happening) {
        self.sequence += 1;
        self.calendar.push(Reverse((self.now + delay, self.sequence, happening)));
    }

    fn begin(&mut self, id: IoId) -> Checked<Step> {
        let io = self.engine.io(id).clone();
        let values = [u64::from(id.0), io.offset, io.length, io.segments.len() as u64];
        self.trace.note(self.now, 10, &values, || format!("io {} {io:?}", id.0));
        if self.flights.contains_key(&id) {
            return violated(format!("{id:?} is submitted while it is in flight"));
        }
        if io.device == Device::Flash {
            return self.begin_on_flash(id, io);
        }
        self.validate(&io)?;
        self.judge_owner(&io)?;
        let (mut payload, mut hash) = (Vec::new(), 0);
        match io.op {
            IoOp::Write | IoOp::WriteDurable => {
                let contents = io.segments.iter().map(|segment| match *segment {
                    Segment::Page(page) => self.page(page),
                    Segment::Buffer(buffer) => {
                        let cells = self.buffers.cells(buffer);
                        payload.push((buffer, cells));
                        Content::Payload(cells)
                    }
                });
                let contents: Vec<_> = contents.collect();
                for content in &contents {
                    hash = mix(hash ^ content.hash());
                    self.trace.note(self.now, 11, &[content.hash()], || match content {
                        Content::Payload(cells) => format!("  {cells:?}"),
                        Content::Metadata(bytes) => format!("  metadata {:02x?}", &bytes[..16]),
                    });
                }
                let first = io.offset / self.parameters.geometry.block();
                let blocks = first..first + contents.len() as u64;
                let again = self.kept.begins(&self.engine, id, &blocks, hash)?;
                if self.faults.notes_records && !again {
                    self.note_record(first, &contents);
                }
                if !self.disk.submit_write(id.0, first, contents) {
                    return violated(format!("{io:?} overlaps a write in flight: {}", self.in_flight()));
                }
                if io.op == IoOp::WriteDurable {
                    self.disk.force_write(id.0);
                }
            }
            IoOp::Sync => self.disk.submit_sync(id.0),
            IoOp::Discard => {
                let block = self.parameters.geometry.block();
                let blocks = io.offset / block..(io.offset + io.length) / block;
                let contents = blocks.clone().map(|block| self.discarded(block)).collect();
                if !self.disk.submit_write(id.0, blocks.start, contents) {
                    return violated(format!("{io:?} overlaps a write in flight: {}", self.in_flight()));
                }
            }
            IoOp::ReadBlocks | IoOp::ReadPages | IoOp::Reserve | IoOp::Merge { .. } | IoOp::Compare => {}
        }
        self.buffers.hold(&io)?;
        let kind = match io.op {
            IoOp::ReadBlocks | IoOp::ReadPages => Some(0),
            IoOp::Write | IoOp::WriteDurable => Some(1),
            IoOp::Sync => Some(2),
            IoOp::Reserve => Some(3),
            IoOp::Discard => Some(4),
            IoOp::Merge { .. } | IoOp::Compare => None,
        };
        if let Some(kind) = kind {
            self.submitted[kind] += 1;
        }
        let mut delay = self.latency(&io);
        let (fault, late) = self.faults.decide(io.op);
        if let Some(late) = late {
            self.faults.tally.count(late);
            delay += self.faults.random.below(SLOW_NANOS);
            self.trace.note(self.now, 40, &[u64::from(id.0), late as u64], || format!("  {late:?} strikes"));
        }
        if (self.choice)(&io) || late == Some(Class::StuckIo) {
            self.held.push(id);
        } else {
            self.schedule(delay, Happening::Done(id));
        }
        let is_chosen = (self.failing)(&io);
        if is_chosen.then_some(Class::WriteError).or(fault).is_some_and(|class| class.takes_others(io.op)) {
            self.disk.will_fail(id.0);
        }
        self.flights.insert(id, Flight { io, begun: self.now, payload, is_chosen, fault, hash });
        Ok(Step::Submitted)
    }

    // ---- faults ----

    /// Ends all faults: no rule holds, damage is gone, stuck I/O completes. I/O that failed stays failed.
    pub fn lift_faults(&mut self) {
        self.trace.note(self.now, 41, &[self.disk.damaged() as u64], || "======== faults are lifted".to_string());
        self.faults.end();
        self.disk.lift();
        self.flash.iter_mut().for_each(Flash::lift);
        // I/O in flight completes as it should, except for faults that affect other I/O: those may have ended already.
        for Flight { io, fault, .. } in self.flights.values_mut() {
            *fault = fault.filter(|class| class.takes_others(io.op));
        }
        self.let_go(usize::MAX);
    }

    /// Returns the content that a read of a block sees: perhaps damaged, or stale. Counts either as struck.
    fn read_block(&mut self, op: IoOp, block: u64, is_stale: bool) -> Content {
        // A stale copy could not be detected while the other copy cannot be read.
        let is_stale = is_stale && !(self.disk.is_of_a_pair(block) && self.faults.fails_reads());
        if is_stale && let Some(content) = self.disk.stale(block) {
            self.faults.tally.count(Class::StaleRead);
            self.faults.touched.insert(block);
            self.faults.struck_read(op);
            return content;
        }
        if self.disk.is_damaged(block) {
            self.faults.touched.insert(block);
            self.faults.struck_read(op);
        }
        self.disk.read_racing(block, &mut self.random)
    }

    fn page(&self, page: PageId) -> Content {
        Content::Metadata(self.engine.page(page).into())
    }

    fn validate(&self, io: &Io) -> Checked {
        let geometry = self.parameters.geometry;
        let uses_store = !matches!(io.op, IoOp::Sync | IoOp::Merge { .. } | IoOp::Compare);
        let end = io.offset.checked_add(io.length);
        let is_aligned = io.offset.is_multiple_of(geometry.block()) && io.length.is_multiple_of(geometry.block());
        let size = self.disk.blocks() * geometry.block();
        if uses_store && (!is_aligned || io.length == 0 || end.is_none_or(|end| end > size)) {
            return violated(format!("an I/O that is empty, unaligned or outside the store: {io:?}"));
        }
        let per_block = io.op.is_write() || io.op == IoOp::ReadBlocks;
        if per_block && io.segments.len() as u64 * geometry.block() != io.length {
            return violated(format!("an I/O whose segments do not make up its length: {io:?}"));
        }
        let container = u64::from(geometry.slots_per_container) * geometry.block();
        let data = geometry.data_start() * geometry.block();
        let is_whole = io.offset >= data && (io.offset - data).is_multiple_of(container);
        if io.op == IoOp::Discard && (!is_whole && geometry.growth == UNGROWN || !io.length.is_multiple_of(container)) {
            return violated(format!("a discard of other than whole containers: {io:?}"));
        }
        let unknown = |segment: &Segment| matches!(segment, Segment::Buffer(id) if id.0 >= self.buffers.count());
        if io.segments.iter().any(unknown) {
            return violated(format!("an I/O with a buffer that does not exist: {io:?}"));
        }
        let needs_buffers = matches!(io.op, IoOp::ReadBlocks | IoOp::Merge { .. } | IoOp::Compare);
        if needs_buffers && io.segments.iter().any(|segment| matches!(segment, Segment::Page(_))) {
            return violated(format!("an I/O that needs buffers names a page: {io:?}"));
        }
        if let IoOp::Merge { from, to, .. } = io.op {
            let cell = geometry.block_size / CELLS as u32;
            let is_cut = !from.is_multiple_of(cell) || !to.is_multiple_of(cell);
            if from > to || to > geometry.block_size || is_cut || !(1..=2).contains(&io.segments.len()) {
                return violated(format!("a merge that cannot be: {io:?}"));
            }
        }
        if io.op == IoOp::Compare && io.segments.len() != 2 {
            return violated(format!("a comparison that cannot be: {io:?}"));
        }
        Ok(())
    }

    /// Draws the time that an I/O takes: mostly near the model's, now and then far from it, so that completions are reordered.
    fn latency(&mut self, io: &Io) -> Nanos {
        let transfer = |bytes_per_second: u64| io.length * 1_000_000_000 / bytes_per_second;
        let typical = match io.op {
            IoOp::ReadBlocks | IoOp::ReadPages => READ_NANOS + transfer(READ_BYTES_PER_SECOND),
            IoOp::Write => WRITE_NANOS + transfer(WRITE_BYTES_PER_SECOND),
            IoOp::WriteDurable => WRITE_NANOS + transfer(WRITE_BYTES_PER_SECOND) + SYNC_NANOS,
            IoOp::Sync => SYNC_NANOS,
            IoOp::Discard => DISCARD_NANOS,
            IoOp::Merge { .. } | IoOp::Compare | IoOp::Reserve => MEMORY_NANOS,
        };
        let percent = match self.random.below(16) {
            0 => self.random.between(1, 20),
            1 => self.random.between(200, 2000),
            _ => self.random.between(70, 160),
        };
        typical * percent / 100 + 1
    }

    fn complete(&mut self, id: IoId) -> Checked<Step> {
        let Flight { io, payload, is_chosen, fault, hash, .. } =
            self.flights.remove(&id).expect("only I/O in flight completes");
        for (buffer, cells) in payload {
            if self.buffers.cells(buffer) != cells {
                return violated(format!("{buffer:?} changed while {io:?} was writing it"));
            }
        }
        self.buffers.release(&io);
        if io.device == Device::Flash {
            return self.complete_on_flash(id, &io, is_chosen);
        }
        self.note_look(&io);
        let first = io.offset / self.parameters.geometry.block();
        let is_stale = fault == Some(Class::StaleRead);
        // At most one of two copies is bad at a time, damaged or unreadable.
        let fails = matches!(fault, Some(Class::ReadError | Class::ShortRead)) && !self.disk.has_damaged_copy(first);
        let (mut blocks, mut bytes, mut equal, mut result) = (Vec::new(), Vec::new(), false, Ok(()));
        match io.op {
            IoOp::Write | IoOp::WriteDurable => result = self.end_write(id, fault),
            // The effect of a failed sync is undefined: here, all covered writes are still volatile.
            IoOp::Sync if is_chosen => self.disk.drop_sync(id.0),
            IoOp::Sync => result = self.end_sync(id, fault),
            IoOp::Reserve if (self.full)(&io) => result = Err(IoError::NoSpace),
            IoOp::Reserve => result = self.end_reserve(fault),
            IoOp::Discard => result = self.end_discard(id, fault, is_chosen),
            IoOp::Compare => equal = self.buffers.compare(&io),
            IoOp::ReadPages | IoOp::ReadBlocks if fails => {
                self.faults.struck_read(io.op);
                result = Err(IoError::Failed);
                // A short read has filled some of its buffers.
                let some = if fault == Some(Class::ShortRead) { io.segments.len() / 2 } else { 0 };
                for (block, segment) in (first..).zip(&io.segments[..some]) {
                    let Segment::Buffer(buffer) = *segment else { unreachable!("validated") };
                    self.buffers.fill(buffer, self.disk.read(block).to_cells());
                }
            }
            IoOp::ReadPages => {
                for block in first..first + io.length / self.parameters.geometry.block() {
                    let content = self.read_block(io.op, block, is_stale);
                    bytes.extend_from_slice(&content.to_bytes(self.parameters.geometry.block_size));
                }
            }
            IoOp::ReadBlocks => {
                for (block, segment) in (first..).zip(&io.segments) {
                    let Segment::Buffer(buffer) = *segment else { unreachable!("validated") };
                    let cells = self.read_block(io.op, block, is_stale).to_cells();
                    self.buffers.fill(buffer, cells);
                    blocks.push(self.buffers.describe(&cells));
                }
            }
            IoOp::Merge { from, to, zero } => blocks.push(self.buffers.merge(&io, from, to, zero)),
        }
        if is_chosen {
            result = Err(IoError::Failed);
        }
        if let Some(class) = fault.filter(|_| result.is_err()) {
            self.faults.tally.count(class);
            self.trace.note(self.now, 44, &[u64::from(id.0), class as u64], || format!("io {}: {class:?}", id.0));
        }
        self.trace.note(self.now, 12, &[u64::from(id.0)], || format!("done io {} {blocks:?}", id.0));
        let outcome = match io.op {
            IoOp::Write | IoOp::WriteDurable | IoOp::Sync | IoOp::Reserve | IoOp::Discard => Outcome::Complete,
            IoOp::ReadPages => Outcome::Bytes(&bytes),
            IoOp::Compare => Outcome::Equal(equal),
            IoOp::ReadBlocks | IoOp::Merge { .. } => Outcome::Blocks(&blocks),
        };
        self.engine.handle(self.now, Event::Done { io: id, result: result.map(|()| outcome) });
        if io.op.is_write() && result == Err(IoError::NoSpace) {
            self.kept.note(&self.engine, id, first..first + io.segments.len() as u64, hash);
        }
        Ok(Step::Completed)
    }
}
