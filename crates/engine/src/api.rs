//! The interface between the engine and its driver: events in ([`Event`]), effects out ([`Effect`], [`Effect::Io`]), and the small types that both consist
//! of.
//!
//! The engine owns all *decisions*, the driver owns all *bytes of payload* and all access to devices, sockets and clocks.
//! Blocks of payload live in numbered buffers of one block each: the driver holds the memory, the engine holds the free
//! list ([`crate::Engine::take_buffer`]) and passes numbers. Metadata (journal, map pages, summaries, superblocks) is real
//! bytes in pages of the engine, read by the driver through [`crate::Engine::page`].
//!
//! One event at a time: the driver calls [`crate::Engine::handle`], then drains [`crate::Engine::next_effect`] until it is
//! empty, performing each effect. Pages that an I/O names are captured (copied to the driver's own memory) when the effect
//! is taken; buffers stay with the engine until [`Event::Done`] of that I/O.

use core::fmt;

pub use crate::properties::{
    CacheKey, CacheSetting, Controller, DedupVerify, DefragSetting, DeviceKind, DiscardSetting, FlashPolicy, Goal,
    IndexCopy, KeepRuns, PaperModules, PassThrottle, Period, Policy, PoolChange, PoolProperties, PoolProperty,
    Schedule, SnapshotSchedule, Timing, VolumeProperties, VolumeProperty, VolumePropertyChange,
};

/// Virtual or real time, in nanoseconds since an arbitrary start. Never goes backwards.
pub type Nanos = u64;

/// A buffer of one block, in the driver's memory. Numbers run from 0 to [`crate::Engine::buffer_numbers`] - 1, which may change with
/// every call of [`crate::Engine::next_effect`]: the driver looks before it uses one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BufferId(pub u32);

/// A metadata page (one block) in the engine's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PageId(pub u32);

/// An I/O in flight: looked up with [`crate::Engine::io`], reported back in [`Event::Done`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct IoId(pub u32);

/// A request in the engine's request table. Valid from the effect that names it until [`Event::Sent`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RequestId(pub u32);

/// A volume of the pool. Used again only when all numbers have been used, and only when nothing of the old volume is left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct VolumeId(pub u16);

/// 128 bits of a keyed pseudorandom function over a block's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Digest(pub [u8; 16]);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Facts about a full block that the driver computed while it was hot in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockContent {
    /// The digest of the block's bytes under the pool's digest function and key.
    pub digest: Digest,
    /// True if all bytes are zero. (The digest of a zero block is not used.)
    pub zero: bool,
    /// True if it begins as a record of the journal does ([`crate::begins_as_record`]). Such a block never travels in the journal, where it could be taken for
    /// a record.
    pub record_like: bool,
}

impl BlockContent {
    /// A block of zeroes.
    pub const ZERO: BlockContent = BlockContent { digest: Digest([0; 16]), zero: true, record_like: false };
}

/// A block of a write request, in order of address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockInput {
    /// The buffer with the payload at its place inside the block: a partial block's bytes start at their offset within the block.
    pub buffer: BufferId,
    /// `Some` if the request covers the whole block; `None` for a partial first or last block.
    pub content: Option<BlockContent>,
}

/// Operation that a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation<'a> {
    /// Read `length` bytes; `object` groups reads that belong together (a file), 0 if unknown.
    Read {
        /// The object id that came with the request.
        object: u64,
    },
    /// Write `length` bytes. The buffers belong to the engine from then on.
    Write(&'a [BlockInput]),
    /// Make the range read as zeroes; takes no space. Any length.
    WriteZeroes,
    /// Discard the range; it reads as zeroes afterwards. Any length.
    Trim,
    /// Everything answered before is durable when this is answered. Offset and length are ignored.
    Flush,
    /// Report which parts of the range hold data, at most `limit` extents.
    Extents {
        /// The greatest number of extents to report.
        limit: u32,
    },
}

/// A request as it enters the engine. Reads and writes cover at most [`crate::Geometry::piece_blocks`] blocks' worth of
/// bytes (the driver cuts longer ones into pieces); a range never ends beyond the volume (the driver answers those itself,
/// the engine answers [`Error::Invalid`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submit<'a> {
    /// Chosen by the driver, returned in [`Effect::Reply`]. Its upper 16 bits name the client: the long requests of clients take turns.
    pub token: u64,
    /// Volume that the request is for.
    pub volume: VolumeId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Answer only when the changes of the request are durable.
    pub fua: bool,
    /// Operation on the byte range.
    pub operation: Operation<'a>,
}

/// Everything that can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A request arrived. Only while [`crate::Engine::can_submit`] says so.
    Submit(Submit<'a>),
    /// An I/O completed.
    Done {
        /// I/O that completed.
        io: IoId,
        /// Outcome of the I/O, or the error of the device.
        result: Result<Outcome<'a>, IoError>,
    },
    /// The data or extents of a [`Effect::Reply`] have been sent (or its client is gone): the request and its buffers are
    /// returned to the engine.
    Sent(RequestId),
    /// [`crate::Engine::next_timer`] has passed.
    Timer,
    /// The flash in front of the store has not answered one of its I/Os for as long as the driver waits. That I/O still completes one day, and keeps
    /// its buffers until then. The engine submits no more I/O to the flash. It reads the pending blocks from the store.
    FlashLate,
    /// The driver's offer to give the pool more metadata where that runs short (true), or its withdrawal. While it stands, changes that find none wait: the
    /// driver answers [`crate::Engine::awaits_growth`] with [`Command::Grow`], or takes its offer back, and they fail. None is made when a pool is opened.
    GrowthOffered(bool),
    /// An operator's command; answered by [`Effect::ControlReply`] with the same token.
    Control {
        /// Identifier that the driver chooses for its own use; [`Effect::ControlReply`] returns it.
        token: u64,
        /// Command to carry out.
        command: Command<'a>,
    },
}

/// Outcome of an I/O that succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// A write, sync or reserve is complete.
    Complete,
    /// [`IoOp::ReadBlocks`]: the present content of each buffer, in the order of the segments. [`IoOp::Merge`]: the one block.
    Blocks(&'a [BlockContent]),
    /// [`IoOp::ReadPages`]: the bytes read.
    Bytes(&'a [u8]),
    /// [`IoOp::Compare`]: true if the two blocks hold the same bytes.
    Equal(bool),
}

/// Kind of a failed I/O. Only a lack of space matters to the engine: reservations and writes that found no space are made again. A write of a block
/// that is only moved is given up. Any other failed change of the store makes the pool read-only, a failed sync in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoError {
    /// The backing store has no space, or a quota is used up. Of a write: some of it may be there, and nothing else is lost. Of a discard: it can be tried again
    /// later.
    NoSpace,
    /// Anything else.
    Failed,
}

/// An operator's command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// Create a volume. Answered when it is durable.
    CreateVolume {
        /// 1 to 63 bytes of letters, digits, `.`, `_`, `-`, not starting with `-` or `.`.
        name: &'a str,
        /// Size in bytes, a multiple of the block size.
        size: u64,
        /// Its own policy; `None` to follow the pool.
        policy: Option<Policy>,
    },
    /// Delete a volume, even one in use: later requests to it fail. Answered when it is durable. Its name is free at once, its space gradually. A volume with
    /// snapshots is refused, and so are a protected one and a held snapshot. A snapshot loses its name; its space is free when no volume inherits from it.
    DeleteVolume {
        /// Volume or snapshot to delete.
        volume: VolumeId,
    },
    /// Make a snapshot of each of these volumes, all of one moment between the command and its answer. Answered when they are durable.
    CreateSnapshots {
        /// Volumes; none of them a snapshot.
        volumes: &'a [VolumeId],
        /// Name of each snapshot: the part behind `@`, as for a volume.
        name: &'a str,
        /// Time of the driver's clock in seconds, for the list of snapshots.
        seconds: u64,
    },
    /// Create a volume with the content of a snapshot, which it inherits. Answered when it is durable.
    CloneSnapshot {
        /// Snapshot to clone.
        snapshot: VolumeId,
        /// Name of the new volume.
        name: &'a str,
    },
    /// Hold a snapshot, which is not deleted then, or release it. In force at once, answered when it is durable.
    HoldSnapshot {
        /// Snapshot to hold.
        snapshot: VolumeId,
        /// True to hold it, false to release it.
        held: bool,
    },
    /// Give a volume, or a snapshot, another name. Its number stays, and the snapshots of a volume follow it. In force at once, answered when it is durable.
    RenameVolume {
        /// Volume or snapshot to rename.
        volume: VolumeId,
        /// New name, as for a new volume; of a snapshot the part behind `@`.
        name: &'a str,
    },
    /// Give a volume the content and the size of one of its snapshots. Its present content is gone; its other snapshots stay. Writes of the volume are refused
    /// from the command on until it is answered, which is when that is durable. After a crash the volume has all of its former content, or the snapshot's.
    RollBack {
        /// Volume to roll back.
        volume: VolumeId,
        /// Snapshot of this volume.
        snapshot: VolumeId,
    },
    /// Change the size of a volume. Content beyond the new end is gone. Answered when it is durable.
    ResizeVolume {
        /// Volume to resize.
        volume: VolumeId,
        /// Size in bytes, a multiple of the block size.
        size: u64,
    },
    /// Change properties of a volume. In force at once, answered when it is durable.
    SetVolume {
        /// Volume to change.
        volume: VolumeId,
        /// Properties to change; the others stay.
        change: VolumePropertyChange,
    },
    /// Change properties of the pool. In force at once, answered when it is durable.
    SetPool(PoolChange),
    /// Make the pool larger. The store has the length that [`crate::Geometry::grown_with`] gives for it already, and a sync makes that
    /// durable. Answered when the pool has that geometry, also after a crash.
    Grow {
        /// Bytes of data that shall fit, at least.
        capacity: u64,
        /// Blocks of metadata that there shall be, at least; 0: as many as the capacity needs.
        metadata: u64,
    },
    /// Read, verify and repair everything, in the background. Answered when the change is durable; at once where nothing may be
    /// written.
    Scrub {
        /// Command to the scrub: start, pause or stop.
        command: ScrubCommand,
        /// Time of the driver's clock in seconds, only for the scrub's status; 0 if it is not known.
        seconds: u64,
    },
    /// Remap all blocks that are stored more than once to shared slots, in the background. Answered when the change is durable.
    Dedup {
        /// Command to the pass: start, pause or stop.
        command: DedupCommand,
    },
    /// Put blocks in order by a plan, in the background. Answered at once: only the moved blocks outlive the engine.
    Relocate {
        /// Plan to take, or a command to its run: start, pause or stop.
        command: RelocateCommand<'a>,
    },
    /// Answer when nothing is unmerged or pending, so that all figures of the status are exact.
    Settle,
    /// Finish all I/O in flight, checkpoint, mark the pool as cleanly closed. Nothing is served afterwards.
    Close,
    /// Close without the checkpoint, or end a close that is in progress without it. Answered changes become durable in the journal only. Writes that
    /// wait for space are refused. A waiting close is answered, too.
    CloseEarly,
}

/// Command to the pass that finds all duplicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DedupCommand {
    /// Begin one, or continue the paused one.
    Start,
    /// Pause until the next start.
    Pause,
    /// End it.
    Stop,
}

/// Command to a relocation job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelocateCommand<'a> {
    /// Slots in their new order: the first of each row, and the length of the row. While a relocation is in progress or paused, no other plan is
    /// accepted.
    Plan {
        /// True for a new plan, false for more of the last one.
        begins: bool,
        /// The rows. A plan has [`crate::MOST_EXTENTS`] at most.
        extents: &'a [(u64, u64)],
    },
    /// Begin to run the plan, or continue the paused run.
    Start,
    /// Pause until the next start.
    Pause,
    /// End it, once all references to the moved blocks are remapped.
    Stop,
}

/// Command to the scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrubCommand {
    /// Begin one, or continue the paused one.
    Start,
    /// Pause until the next start.
    Pause,
    /// End it.
    Stop,
}

/// An effect: everything that the engine can want.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Perform this I/O; look it up with [`crate::Engine::io`]; answer with [`Event::Done`].
    Io(IoId),
    /// Answer a request.
    Reply {
        /// The token of the [`Submit`].
        token: u64,
        /// Answer to the request, or its error.
        result: Result<Reply, Error>,
    },
    /// Answer a command.
    ControlReply {
        /// The token of the [`Event::Control`].
        token: u64,
        /// Success of the command, or its error.
        result: Result<(), ControlError>,
    },
    /// End of the opening: requests are taken from then on, or the pool cannot be opened.
    Opened(Result<Recovered, OpenError>),
}

/// The content of a successful answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Success, without data.
    Done,
    /// Data: [`crate::Engine::data`] lists where the bytes are. Must be followed by [`Event::Sent`].
    Data(RequestId),
    /// Extents: [`crate::Engine::extents`] lists them. Must be followed by [`Event::Sent`].
    Extents(RequestId),
}

/// A run of bytes of a read's answer, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataSegment {
    /// The buffer that holds them, `None` for zeroes.
    pub buffer: Option<BufferId>,
    /// First byte within the block.
    pub from: u32,
    /// One past the last byte within the block.
    pub to: u32,
}

/// A run of bytes that hold data, or read as zeroes and take no space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Length in bytes.
    pub length: u64,
    /// True if the run is a hole: unmapped or zero.
    pub hole: bool,
}

/// Reason why a request failed: the errors that NBD knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The device failed, or a block failed its check.
    Io,
    /// No space for a new block, after everything reclaimable has been reclaimed.
    NoSpace,
    /// No such volume, or the range is not inside it.
    Invalid,
    /// The volume or the pool is read-only.
    ReadOnly,
    /// The pool is being closed.
    ShuttingDown,
}

/// Resource whose lack makes writes of new blocks fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// The slots: as many blocks are stored as the capacity allows.
    Data,
    /// The metadata: maps and tables have no free pages.
    Metadata,
}

/// Reason why a command failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlError {
    /// A volume of this name exists.
    Exists,
    /// The name is not allowed.
    BadName,
    /// The size is zero, not a multiple of the block size, or too large for the pool's map.
    BadSize,
    /// The pool cannot grow to this capacity.
    BadCapacity(BadGeometry),
    /// The pool has as many volumes as it can hold.
    TooManyVolumes,
    /// There is no such volume (any more).
    NoVolume,
    /// It is a snapshot: it neither changes nor has snapshots.
    IsSnapshot,
    /// It is a volume, and only snapshots are cloned.
    NotSnapshot,
    /// It is no snapshot of this volume.
    NotItsSnapshot,
    /// A volume is being rolled back to the snapshot.
    RollbackPending,
    /// The volume has snapshots: they are to be deleted first.
    HasSnapshots,
    /// The snapshot is held: it is to be released first.
    Held,
    /// The volume's property says that it is neither deleted nor rolled back.
    Protected,
    /// The volume has as many snapshots as it can have.
    TooManySnapshots,
    /// No scrub is in progress.
    NoScrub,
    /// No pass that finds duplicates is in progress.
    NoDedup,
    /// There is no plan, or no run of a plan.
    NoPlan,
    /// A plan is being run: no other one is accepted until that is over.
    PlanInUse,
    /// The plan has more rows than one can have.
    PlanTooLong,
    /// The pool's tables have no space for the change, after everything reclaimable has been reclaimed.
    NoSpace,
    /// The pool is read-only, or being closed.
    ReadOnly,
    /// The host file system has no space for the tables of a larger pool. The pool is unchanged.
    NoHostSpace,
    /// The pool was closed without a checkpoint, because the host file system is full. Nothing is lost: the journal has it.
    HostFull,
    /// The store has no space, neither for a checkpoint nor for the journal. Changes that were not durable when the pool was closed may be lost.
    NotDurable,
    /// The pool was closed without a checkpoint, as it was asked to. Nothing is lost: the journal has it.
    NoCheckpoint,
}

/// Findings and actions of the opening of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// The epoch that this opening began.
    pub epoch: u64,
    /// True if the pool had been closed cleanly.
    pub clean: bool,
    /// Records replayed from the journal.
    pub records: u64,
    /// Entries in them.
    pub entries: u64,
    /// Entries of blocks that were stored without a look-up of duplicates. The next pass, which begins automatically, handles them.
    pub offline_blocks: u64,
    /// Blocks copied from the journal to their slots.
    pub blocks_redone: u64,
    /// Reason why the pool has failed, if it has: nothing was written, and nothing will be.
    pub failed: Option<Failure>,
}

/// Reason why a pool cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// None of the four superblock slots holds a valid superblock.
    NoSuperblock,
    /// The device failed to read or write at this byte offset.
    Device {
        /// Byte offset of the I/O.
        offset: u64,
    },
    /// The store has no space at this byte offset. An opening writes, but for one of a pool that was closed cleanly and is only read.
    HostFull {
        /// Byte offset of the I/O.
        offset: u64,
    },
    /// A metadata page fails its checksum.
    DamagedPage {
        /// Byte offset of the page.
        offset: u64,
        /// Name of the structure that the page belongs to.
        what: &'static str,
    },
    /// A superblock was written by a newer program: its version or features are unknown here.
    UnknownFormat,
    /// The journal, or the map buffer, has more entries than the memory has space for: the pool was last served with more.
    /// [`crate::Limits::replayable_entries`] gives the memory that suffices.
    TooLittleMemory {
        /// Entries of the journal, or as many as take the space of the mappings.
        entries: u64,
    },
    /// Another has taken the pool over meanwhile.
    TakenOver,
    /// A journal record that was durable is damaged.
    DamagedJournal {
        /// Its sequence number.
        sequence: u64,
    },
}

/// Device that an I/O is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Device {
    /// The store: it has the pool.
    #[default]
    Store,
    /// The flash in front of it ([`crate::Engine::set_flash`]): it has copies of containers. Its syncs say nothing of the store.
    Flash,
}

/// Kind of an I/O. A variant names the outcome that answers it; if it names none, that is [`Outcome::Complete`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoOp {
    /// Read blocks into the buffers of the segments (all [`Segment::Buffer`]), contiguous on the device; answer with
    /// [`Outcome::Blocks`].
    ReadBlocks,
    /// Read `length` bytes of metadata; answer with [`Outcome::Bytes`].
    ReadPages,
    /// Write the segments, one block each, contiguous on the device.
    Write,
    /// Write the segments like [`IoOp::Write`]. They are durable when it is done, whatever becomes of other writes (force unit access).
    WriteDurable,
    /// Make durable every write whose [`Event::Done`] was seen before this effect.
    Sync,
    /// Make sure that the `length` bytes at `offset` can be written later without running out of space.
    Reserve,
    /// Give the space of the `length` bytes at `offset` back, as a hint: they are not read before they are written, and may read as anything.
    Discard,
    /// No device involved. Segments are `[into]` or `[into, base]`, both buffers. Bytes of `into` outside `from..to` become
    /// those of `base` (zeroes without one); with `zero`, bytes inside become zero. Answer with [`Outcome::Blocks`] for `into`.
    Merge {
        /// First byte to keep (or to zero).
        from: u32,
        /// One past the last byte to keep (or to zero).
        to: u32,
        /// Zero the bytes inside.
        zero: bool,
    },
    /// No device involved. Compare the bytes of the two segments, both buffers; answer with [`Outcome::Equal`].
    Compare,
}

impl IoOp {
    /// Returns true for writes, durable or not; false for reads, syncs and the rest.
    pub fn is_write(self) -> bool {
        matches!(self, IoOp::Write | IoOp::WriteDurable)
    }
}

/// One block of an I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment {
    /// Payload, in the driver's memory.
    Buffer(BufferId),
    /// Metadata, in the engine's memory: [`crate::Engine::page`].
    Page(PageId),
}

/// Reason why a pool is read-only from some moment on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A write failed, or space could not be reserved for another reason than that there is none.
    Write,
    /// A sync failed: earlier writes may or may not be on the disk.
    Sync,
    /// A page of metadata that had to be changed cannot be read, or fails its checksum.
    Page,
    /// The tables contradict each other.
    Contradiction,
    /// Another has taken the pool over. Nothing is written to it from then on.
    TakenOver,
    /// The record of the owner cannot be read, after a failed write or sync or without one: the store is gone, or another host has fenced this one.
    StoreGone,
}

impl Failure {
    pub(crate) fn code(self) -> u8 {
        match self {
            Failure::Write => 1,
            Failure::Sync => 2,
            Failure::Page => 3,
            Failure::Contradiction => 4,
            // The value in a superblock without a failure.
            Failure::TakenOver | Failure::StoreGone => 0,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Failure> {
        [Failure::Write, Failure::Sync, Failure::Page, Failure::Contradiction]
            .into_iter()
            .find(|failure| failure.code() == code)
    }
}

/// Reason why a geometry is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadGeometry(
    /// Reason, as a phrase for messages.
    pub &'static str,
);

impl fmt::Display for BadGeometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
