//! The engine itself: its parts, how they begin, and answers about them. `pump.rs` has the path of an event through them.

use crate::pool::state::{LoadSnapshot, Phase};
use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::api::*;
use crate::format::geometry::Geometry;
use crate::format::superblock::Parameters;
use crate::jobs::Jobs;
use crate::jobs::throttle::IDLE_AFTER;
use crate::limits::Limits;
use crate::metadata::io::Io;
#[cfg(feature = "mutants")]
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::flash::FlashParameters;
use crate::recovery::Recovery;
use crate::relocation::profiling::Profiling;
use crate::repair::Repairs;
use crate::requests::deciding::Deciding;
use crate::requests::pending_command::PendingCommand;
use crate::requests::queues::Queues;
use crate::requests::read_ahead::ReadAhead;
use crate::requests::refused_writes::RefusedWrites;
use crate::requests::request::{Requests, Stage};
use crate::requests::time_slices::TimeSlices;

/// The engine. See [`crate::api`].
pub struct Engine {
    /// State that requests, jobs and repairs work on.
    pub(crate) pool: Pool,
    /// True if the pool was opened for an audit: the engine is idle after recovery.
    to_audit: bool,
    pub(crate) repairs: Repairs,
    pub(crate) jobs: Jobs,
    pub(crate) read_ahead: ReadAhead,
    pub(crate) requests: Requests,
    /// Requests that wait.
    pub(crate) queues: Queues,
    /// Requests whose work may be long, apart from the others.
    pub(crate) time_slices: TimeSlices,
    pub(crate) deciding: Deciding,
    pub(crate) recovery: Option<Box<Recovery>>,
    /// Writes that found no space.
    pub(crate) enospc: RefusedWrites,
    pub(crate) pending_commands: Vec<PendingCommand>,
    /// Time at which a request last came or was answered.
    pub(crate) last_request: Nanos,
    pub(crate) tick: Option<Nanos>,
    /// Profile of the device reads of clients, while an operator asks for one.
    profiling: Option<Box<Profiling>>,
}

impl Engine {
    /// Begins to open a pool; ends with [`Effect::Opened`]. The driver has read the parameters from one of the superblock
    /// slots; its clock stands at `now`.
    pub fn open(parameters: Parameters, limits: Limits, now: Nanos) -> Engine {
        let geometry = parameters.geometry;
        Engine {
            pool: Pool::new(parameters, limits, now),
            to_audit: false,
            repairs: Repairs::default(),
            jobs: Jobs::new(&limits, geometry.block(), now),
            read_ahead: ReadAhead::new(),
            requests: Requests::new(limits.requests, now),
            queues: Queues::default(),
            time_slices: TimeSlices::new(&limits, geometry.block()),
            deciding: Deciding::default(),
            recovery: Some(Box::new(Recovery::default())),
            enospc: RefusedWrites::default(),
            pending_commands: Vec::new(),
            last_request: now,
            tick: None,
            profiling: None,
        }
    }

    /// Opens a pool as [`Engine::open`] does, for [`Engine::check`]: the engine is idle after recovery. It takes no requests and starts no job.
    pub fn open_to_audit(parameters: Parameters, limits: Limits, now: Nanos) -> Engine {
        Engine { to_audit: true, ..Engine::open(parameters, limits, now) }
    }

    /// Opens a pool as [`Engine::open`] does, to be read only: requests and commands that change something are refused. A pool that was not closed cleanly is
    /// recovered, which writes to it; to one that was, nothing is written.
    pub fn open_to_read(parameters: Parameters, limits: Limits, now: Nanos) -> Engine {
        let mut engine = Engine::open(parameters, limits, now);
        engine.pool.state.refuse_changes();
        engine
    }

    /// Puts flash in front of the store. Call it before the first event.
    pub fn set_flash(&mut self, parameters: FlashParameters) {
        self.pool.set_flash(parameters);
    }

    /// Begins to note the device reads of requests, or ends that and forgets them. Nothing else that the engine does depends on it.
    pub fn set_profiling(&mut self, on: bool) {
        match on {
            true => drop(self.profiling.get_or_insert_default()),
            false => self.profiling = None,
        }
    }

    /// Replaces the profile of reads by one that was made elsewhere; reads are noted in it from now on.
    pub fn put_profiling(&mut self, profiling: Box<Profiling>) {
        self.profiling = Some(profiling);
    }

    /// Returns the profile of reads, or `None` unless reads are noted.
    pub fn profiling(&self) -> Option<&Profiling> {
        self.profiling.as_deref()
    }

    /// Returns the profile of reads to be changed, or `None` unless reads are noted.
    pub fn profiling_mut(&mut self) -> Option<&mut Profiling> {
        self.profiling.as_deref_mut()
    }

    /// Notes the blocks of a read that came from the device, or will: those that are in no memory, and those that were read ahead.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_profile(&mut self, id: RequestId) {
        let Engine { profiling: Some(profiling), requests, .. } = self else { return };
        let request = requests.get(id);
        let from_device = request.blocks().iter().filter(|block| block.buffer.is_none() || block.was_ahead);
        let places = from_device.filter_map(|block| Some((block.key.lba(), block.entry.slot()?.0)));
        profiling.note(request.volume(), places);
    }

    /// Returns the time at which [`Event::Timer`] is due: `None` if nothing waits for time; a time that has passed means at once. A closed pool waits for
    /// nothing, even if it was closed early, with a checkpoint and jobs in progress.
    pub fn next_timer(&self) -> Option<Nanos> {
        if self.pool.state.phase() == Phase::Closed {
            return None;
        }
        let moves = self.jobs.cache_partition.has_work_left() && self.pool.state.phase() == Phase::Serving;
        if self.jobs.is_work_left() || moves { Some(self.pool.state.now()) } else { self.timers() }
    }

    fn timers(&self) -> Option<Nanos> {
        let goes_back =
            self.requests.foreground().timer(&self.pool).filter(|_| self.pool.state.phase() == Phase::Serving);
        self.tick.into_iter().chain(self.jobs.due()).chain(self.enospc.due()).chain(goes_back).min()
    }

    /// Returns the description of an I/O: operation, byte offset, byte length, segments, class.
    pub fn io(&self, io: IoId) -> &Io {
        self.pool.metadata.io().get(io)
    }

    /// Returns the bytes of a metadata page, `block_size` of them.
    pub fn page(&self, page: PageId) -> &[u8] {
        self.pool.metadata.pages().bytes(page)
    }

    /// Takes a free buffer to receive payload into; `None` while there is none (try again after the next event).
    pub fn take_buffer(&mut self) -> Option<BufferId> {
        // A pool that could not write keeps its buffers; new clients must get the error.
        if !self.pool.state.read_only() && !self.enospc.refuses_changes() && !self.pool.memory.buffers().may_receive() {
            return None;
        }
        let buffer = self.pool.any_buffer()?;
        self.pool.memory.buffers_mut().set_incoming(buffer);
        Some(buffer)
    }

    /// Gives back a buffer that was taken and will not be submitted.
    pub fn return_buffer(&mut self, buffer: BufferId) {
        self.pool.memory.buffers_mut().release(buffer);
        self.pool.wake();
    }

    /// Returns true if the request table has space for another [`Event::Submit`] and the pool takes requests.
    pub fn can_submit(&self) -> bool {
        self.requests.has_space() && self.serves()
    }

    /// Returns true if the pool is open, and not for an audit.
    pub(crate) fn serves(&self) -> bool {
        matches!(self.pool.state.phase(), Phase::Serving | Phase::Closing) && !self.to_audit
    }

    /// Returns the segments of a read's answer, valid from [`Reply::Data`] to [`Event::Sent`].
    pub fn data(&self, request: RequestId) -> &[DataSegment] {
        self.requests.get(request).data()
    }

    /// Returns the extents of an answer, valid from [`Reply::Extents`] to [`Event::Sent`].
    pub fn extents(&self, request: RequestId) -> &[Extent] {
        self.requests.get(request).extents()
    }

    /// Returns tokens and stages of the requests in flight, to diagnose hangs.
    pub fn in_flight(&self) -> impl Iterator<Item = (u64, Stage)> + '_ {
        self.requests.in_flight()
    }

    /// Returns true if no command is pending except closes.
    pub(crate) fn only_closes(&self) -> bool {
        self.pending_commands.iter().all(PendingCommand::is_close)
    }

    /// Takes a snapshot of the foreground load for jobs and repairs.
    #[inline]
    pub(crate) fn load(&self) -> LoadSnapshot {
        let requests_in_flight = self.requests.active() > 0;
        let idle_from = self.last_request + IDLE_AFTER;
        let writes_blocked = self.queues.has_waits_for_space();
        LoadSnapshot {
            is_idle: !requests_in_flight && self.pool.state.now() >= idle_from,
            idle_from,
            requests_in_flight,
            writes_blocked,
            out_of_buffers: self.queues.waits_for_buffers() > 0,
            clears_left: self.time_slices.has_clears(),
            commands_wait: !self.pending_commands.is_empty(),
            only_closes: self.pool.state.phase() == Phase::Closing && self.only_closes(),
            writes_refused: self.enospc.is_on(),
        }
    }

    /// Returns the present layout of the store, with all growths.
    pub fn geometry(&self) -> &Geometry {
        self.pool.geometry()
    }
}

#[cfg(feature = "mutants")]
impl Engine {
    /// Sets the mutant of the engine, or none. To be called before the first event.
    pub fn break_on_purpose(&mut self, mutant: Option<Mutant>) {
        self.pool.set_mutant(mutant);
    }
}
