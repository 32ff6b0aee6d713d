//! Table of I/Os in flight: the kind of each, and the meaning of its completion.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::api::{Device, Effect, IoId, IoOp, RequestId, Segment};
use crate::format::entry::Slot;
use crate::metadata::page_cache::PageKey;
use crate::sizes::list_bytes;

/// I/O that the engine requests.
#[derive(Clone, Debug)]
pub struct Io {
    /// Kind of the I/O.
    pub op: IoOp,
    /// Device that it is for. (Not used by [`IoOp::Merge`] and [`IoOp::Compare`].)
    pub device: Device,
    /// First byte on the device. (Not used by [`IoOp::Sync`], [`IoOp::Merge`] and [`IoOp::Compare`].)
    pub offset: u64,
    /// Length in bytes. (Not used by [`IoOp::Sync`], [`IoOp::Merge`] and [`IoOp::Compare`].)
    pub length: u64,
    /// Blocks of the I/O, in order.
    pub segments: Vec<Segment>,
}

/// Purpose of an I/O, which decides the meaning of its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Load of tree pages into the page cache: `pages` pages, from `first` on.
    LoadPages { first: PageKey, pages: u32 },
    /// Write of a page of the page cache.
    WritePage(PageKey),
    /// Write of blocks to consecutive slots. They count for record `sequence`, unless the journal inlined them.
    WriteSlots { first: Slot, sequence: u64, inlined: bool },
    /// Write of a part of a record; durable, if no sync is needed for it.
    WriteRecord { sequence: u64, durable: bool },
    /// Sync that covers all writes that were seen complete when it was submitted.
    Sync,
    /// Read of blocks from consecutive slots.
    Fill { first: Slot },
    /// Read-ahead of blocks from consecutive slots, those in gaps included.
    ReadAhead { first: Slot },
    /// Read of blocks from other places than their slots: from this one on.
    FillAlternate { first: Slot },
    /// Read of blocks of slots from this one on, from their container's place on flash.
    FillFromFlash { first: Slot, place: u32 },
    /// Abandoned read: its buffers are to be released, because their content has come from elsewhere.
    Abandoned,
    /// Completion of a partial block.
    Merge { request: RequestId, block: u32 },
    /// Comparison of a block with the known block that it may share.
    Compare { request: RequestId, block: u32 },
    /// Reservation of space for containers.
    ReserveContainers,
    /// Reservation of space for metadata blocks, up to this one.
    ReserveMetadata(u32),
    /// Reservation of space for the locations of the meta map that come with a growth.
    ReserveMetaMap,
    /// Step of the repair of a slot.
    BlockRepair(Slot),
    /// Copy of a block of the read cache to another buffer.
    CopyBlock(Slot),
    /// Part of the work of a background job: the number of the job, and its own of the part.
    Job(u8, u32),
    /// Write of a copy of a superblock.
    Superblock,
    /// Read of the record of the owner: the look of this number.
    Owner(u64),
    /// Write of a superblock with a failure marker, or its sync.
    FailureMarker,
    /// Step of recovery; the number is the step's own.
    Recovery(u32),
}

struct Flight {
    io: Io,
    purpose: Option<Purpose>,
}

/// Number of I/Os in flight beyond which adjacent reads are not searched for.
const LOOKED_AT: usize = 64;
/// Number of segments that a short list has space for, and a long one: the longest read or write.
const FEW: usize = 16;
const MANY: usize = 256;

/// Table of I/Os in flight, and the queue of effects. Entries and lists of segments are reused, never freed.
pub(crate) struct IoTable {
    flights: Vec<Flight>,
    free: Vec<u32>,
    /// Unused lists for segments, short ones and long ones: of each as many as were ever in use together.
    spare: [Vec<Vec<Segment>>; 2],
    /// Number of durable writes that the driver has.
    durable_writes: u32,
    /// Number of I/Os of the flash: only their own originators wait for these.
    on_flash: usize,
    /// Byte offset on the store of its heads, if it has any: the end of the last completed I/O.
    head: u64,
    effects: VecDeque<Effect>,
}

impl IoTable {
    pub(crate) fn new() -> IoTable {
        IoTable {
            flights: Vec::new(),
            free: Vec::new(),
            spare: Default::default(),
            durable_writes: 0,
            on_flash: 0,
            head: 0,
            effects: VecDeque::with_capacity(256),
        }
    }

    /// Begins an I/O of the flash.
    pub(crate) fn begin_on_flash(
        &mut self,
        op: IoOp,
        offset: u64,
        length: u64,
        segments: impl IntoIterator<Item = Segment>,
        purpose: Purpose,
    ) {
        let io = self.begin(op, offset, length, segments, purpose);
        self.flights[io.0 as usize].io.device = Device::Flash;
        self.on_flash += 1;
    }

    /// Begins an I/O: its effect is queued.
    pub(crate) fn begin(
        &mut self,
        op: IoOp,
        offset: u64,
        length: u64,
        segments: impl IntoIterator<Item = Segment>,
        purpose: Purpose,
    ) -> IoId {
        let at = self.free.pop().unwrap_or_else(|| {
            let io = Io { op, device: Device::Store, offset, length, segments: Vec::new() };
            self.flights.push(Flight { io, purpose: None });
            (self.flights.len() - 1) as u32
        });
        let flight = &mut self.flights[at as usize];
        assert!(flight.purpose.is_none());
        flight.purpose = Some(purpose);
        flight.io.op = op;
        flight.io.offset = offset;
        flight.io.length = length;
        let segments = segments.into_iter();
        let is_long = segments.size_hint().0 > FEW;
        let list = self.spare[usize::from(is_long)].pop();
        flight.io.segments = list.unwrap_or_else(|| Vec::with_capacity(if is_long { MANY } else { FEW }));
        flight.io.segments.extend(segments);
        self.send(IoId(at));
        IoId(at)
    }

    /// Asks the driver for an I/O, for the first time or again.
    pub(crate) fn send(&mut self, io: IoId) {
        self.durable_writes += u32::from(self.get(io).op == IoOp::WriteDurable);
        self.effects.push_back(Effect::Io(io));
    }

    /// Queues an effect for the driver.
    pub(crate) fn queue(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Takes the next effect for the driver.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns true if no effect is queued.
    pub(crate) fn has_no_effect(&self) -> bool {
        self.effects.is_empty()
    }

    /// Notes that the driver has returned an I/O.
    pub(crate) fn came_back(&mut self, io: IoId) {
        self.durable_writes -= u32::from(self.get(io).op == IoOp::WriteDurable);
    }

    /// Returns true while the driver has a durable write.
    pub(crate) fn makes_durable(&self) -> bool {
        self.durable_writes > 0
    }

    pub(crate) fn get(&self, io: IoId) -> &Io {
        &self.flights[io.0 as usize].io
    }

    /// Returns the purpose of an I/O in flight.
    pub(crate) fn purpose(&self, io: IoId) -> Purpose {
        self.flights[io.0 as usize].purpose.expect("the I/O is in flight")
    }

    /// Notes that an I/O on an HDD is done: the heads are at its end.
    pub(crate) fn note_head(&mut self, io: IoId) {
        let io = self.get(io);
        let goes_there = matches!(io.op, IoOp::ReadBlocks | IoOp::ReadPages) || io.op.is_write();
        if goes_there && io.device == Device::Store {
            self.head = io.offset + io.length;
        }
    }

    /// Returns the byte offset of the heads, as far as it is known.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Returns true if a read would be adjacent to one in flight, so that both can be merged. With more than [`LOOKED_AT`] in flight it does not search: one of
    /// them is near in any case.
    pub(crate) fn has_read_beside(&self, offset: u64, length: u64) -> bool {
        if self.flights.len() - self.free.len() > LOOKED_AT {
            return false;
        }
        self.flights.iter().filter(|flight| flight.purpose.is_some()).any(|Flight { io, .. }| {
            let is_read = matches!(io.op, IoOp::ReadBlocks | IoOp::ReadPages) && io.device == Device::Store;
            is_read && (io.offset + io.length == offset || offset + length == io.offset)
        })
    }

    /// Returns the reads of flash in flight that requests wait for.
    pub(crate) fn reads_of_flash(&self) -> impl Iterator<Item = IoId> + '_ {
        let is_read = |flight: &Flight| matches!(flight.purpose, Some(Purpose::FillFromFlash { .. }));
        (0..).zip(&self.flights).filter(move |(_, flight)| is_read(flight)).map(|(number, _)| IoId(number))
    }

    /// Returns the segments of all I/O in flight on the flash, which may hang.
    pub(crate) fn segments_on_flash(&self) -> impl Iterator<Item = Segment> + '_ {
        let is_there = |flight: &&Flight| flight.purpose.is_some() && flight.io.device == Device::Flash;
        self.flights.iter().filter(is_there).flat_map(|flight| flight.io.segments.iter().copied())
    }

    /// Abandons an I/O that has no waiters any more, and returns its purpose.
    pub(crate) fn abandon(&mut self, io: IoId) -> Option<Purpose> {
        self.flights[io.0 as usize].purpose.replace(Purpose::Abandoned)
    }

    /// Ends an I/O, and returns its purpose and its segments (to be given back with [`IoTable::recycle`]).
    pub(crate) fn end(&mut self, io: IoId) -> (Purpose, Vec<Segment>, u64) {
        let flight = &mut self.flights[io.0 as usize];
        let purpose = flight.purpose.take().expect("an I/O ends once");
        (purpose, core::mem::take(&mut flight.io.segments), flight.io.offset)
    }

    /// Takes the list of segments back and frees the entry.
    pub(crate) fn recycle(&mut self, io: IoId, mut segments: Vec<Segment>) {
        segments.clear();
        let device = core::mem::take(&mut self.flights[io.0 as usize].io.device);
        self.on_flash -= usize::from(device == Device::Flash);
        self.spare[usize::from(segments.capacity() > FEW)].push(segments);
        self.free.push(io.0);
    }

    /// Returns the bytes of memory of the table, without the payload.
    pub(crate) fn memory(&self) -> u64 {
        let used = self.flights.iter().map(|flight| &flight.io.segments);
        let segments = used.chain(self.spare.iter().flatten()).map(list_bytes).sum::<u64>();
        let lists = list_bytes(&self.flights) + list_bytes(&self.free) + self.spare.iter().map(list_bytes).sum::<u64>();
        lists + segments
    }

    /// Returns the number of I/Os of the flash in flight.
    pub(crate) fn on_flash(&self) -> usize {
        self.on_flash
    }

    /// Returns the number of I/Os in flight, except those of the flash.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len() - self.on_flash
    }
}
