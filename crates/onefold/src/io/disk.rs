//! Disk side of the reactor: carries out the engine's I/O on a device and reports each operation back. There is one for the store, and one for the flash in
//! front of it, if there is one.
//!
//! Owns the slots of operations in flight, the staging area and the queue of I/O that waits for either. Invariants: pages are copied when the effect is taken,
//! so the engine may change them at once; every I/O taken is reported exactly once; a short read or write is continued, and only the part of a read beyond the
//! end of the store is filled up with zeroes.
//!
//! States of an I/O, in order: waiting (no slot or no staging is free), in flight (perhaps in several steps), reported.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use tracing::{error, info, warn};

use engine::{BlockContent, BufferId, Engine, Event, IoError, IoId, IoOp, Nanos, Outcome, Segment};

use crate::io::arena::{Arena, BLOCK, Span};
use crate::io::core::Core;
use crate::io::digest::Digester;
use crate::io::discarder::DeviceDiscard;
#[cfg(feature = "faults")]
use crate::io::faults::{Due, Faults, Operation};
use crate::io::ring::{DISK_SLOTS, FLASH_SLOTS, SPANS, Urgency};
use crate::log::Failures;
use crate::memory::STAGING_BLOCKS;
use crate::store::backing::{Kind, Store};
use crate::store::file_size::is_lack_of_space;

/// Blocks of staging for pages of the flash.
const FLASH_STAGING: usize = 64;

/// Part of the ring and of the arena that one device has.
#[derive(Clone, Copy)]
pub struct Part {
    /// Name of the device in messages.
    name: &'static str,
    first_slot: u32,
    slots: usize,
    first_staging: usize,
    staging: usize,
    /// Byte of the device at which the engine's part begins.
    offset: u64,
}

impl Part {
    /// The store's.
    pub const STORE: Part = Part {
        name: "the store",
        first_slot: 0,
        slots: DISK_SLOTS,
        first_staging: 0,
        staging: STAGING_BLOCKS - FLASH_STAGING,
        offset: 0,
    };

    /// Returns the part of the flash, whose engine part begins at byte `offset`.
    pub const fn flash(offset: u64) -> Part {
        Part {
            name: "the flash",
            first_slot: DISK_SLOTS as u32,
            slots: FLASH_SLOTS,
            first_staging: STAGING_BLOCKS - FLASH_STAGING,
            staging: FLASH_STAGING,
            offset,
        }
    }
}

/// Operations on a device.
pub struct Disk {
    part: Part,
    slots: Vec<Slot>,
    free: Vec<u32>,
    waiting: VecDeque<Waiting>,
    staging: Staging,
    /// Results of I/O that needed no device, not reported yet.
    reports: Vec<(IoId, Report)>,
    contents: Vec<BlockContent>,
    window: Vec<Span>,
    is_device: bool,
    /// True if the kernel makes a write durable; otherwise a sync follows each durable write.
    forces_writes: bool,
    /// True if a write that found no space has lost nothing else. Through the page cache the error may be that of another write, which is in no memory any
    /// more.
    loses_nothing: bool,
    /// Bytes of the device.
    size: u64,
    failures: Failures,
    /// The last write, sync or reservation that failed, in words.
    failed: Option<String>,
    host: Host,
    /// The store's descriptor, for the discards of a device.
    device: Option<Store>,
    /// Discards of the device in flight, by slot.
    discards: Vec<(u32, DeviceDiscard)>,
    #[cfg(feature = "faults")]
    faults: Faults,
}

/// Knowledge about space on the file system under the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Host {
    /// Time at which it last had no space.
    pub full: Option<Nanos>,
    /// Time at which it last had space.
    pub space: Option<Nanos>,
    /// True if overwrites have found no space for a while.
    pub lacks_space: bool,
}

enum Report {
    Complete,
    Merged(BlockContent),
    Compared(bool),
    Failed(IoError),
}

/// An I/O without a slot, with the pages that were copied when it was taken.
struct Waiting {
    io: IoId,
    pages: Vec<u8>,
}

/// An I/O in flight.
struct Slot {
    io: IoId,
    /// Time at which the I/O was given to the device; `None` if the slot is free.
    begun: Option<Nanos>,
    work: Work,
    offset: u64,
    /// The memory, in order.
    spans: Vec<Span>,
    length: usize,
    done: usize,
    /// First block of staging and number of blocks.
    staging: Option<(usize, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    ReadBlocks,
    ReadPages,
    Write,
    WriteDurable,
    Sync,
    Reserve,
    Discard,
}

impl Disk {
    /// Takes the new size of a store that has become longer.
    pub fn grown(&mut self, size: u64) {
        self.size = size;
    }

    /// Sets up the slots and the staging of one part for a store.
    pub fn new(part: Part, store: &Store) -> Disk {
        let slot = |_| Slot {
            io: IoId(0),
            begun: None,
            work: Work::Sync,
            offset: 0,
            spans: Vec::with_capacity(SPANS),
            length: 0,
            done: 0,
            staging: None,
        };
        Disk {
            part,
            slots: (0..part.slots).map(slot).collect(),
            free: (0..part.slots as u32).rev().collect(),
            waiting: VecDeque::new(),
            staging: Staging { first: part.first_staging, used: vec![false; part.staging] },
            reports: Vec::new(),
            contents: Vec::with_capacity(SPANS),
            window: Vec::with_capacity(SPANS),
            // Its space needs no reserving.
            is_device: store.kind() == Kind::Device,
            forces_writes: store.forces_writes(),
            loses_nothing: store.is_direct(),
            size: store.size(),
            failures: Failures::default(),
            failed: None,
            host: Host::default(),
            device: store.share().ok().filter(|store| store.kind() == Kind::Device),
            discards: Vec::new(),
            #[cfg(feature = "faults")]
            faults: Faults::from_environment(part.first_slot > 0),
        }
    }

    /// Returns true if no I/O is in flight, waiting or to be reported.
    pub fn is_at_rest(&self) -> bool {
        self.free.len() == self.slots.len() && self.waiting.is_empty() && self.reports.is_empty()
    }

    /// Returns the time at which the oldest I/O in flight was given to the device.
    pub fn oldest(&self) -> Option<Nanos> {
        self.slots.iter().filter_map(|slot| slot.begun).min()
    }

    /// Describes the last write, sync or reservation that failed; on flash also the last read.
    pub fn last_failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Returns the knowledge about space on the file system under the pool.
    pub fn host(&self) -> Host {
        self.host
    }

    /// Takes an I/O that the engine wants.
    pub fn take(&mut self, io: IoId, core: &mut Core) {
        let wanted = core.engine.io(io);
        match wanted.op {
            IoOp::Merge { from, to, zero } => {
                let content = merge(&wanted.segments, from, to, zero, &mut core.arena, &core.digester);
                self.reports.push((io, Report::Merged(content)));
            }
            IoOp::Compare => self.reports.push((io, Report::Compared(compare(&wanted.segments, &core.arena)))),
            IoOp::Reserve if self.is_device => self.reports.push((io, Report::Complete)),
            // It would wait without end.
            IoOp::ReadPages | IoOp::Write | IoOp::WriteDurable if staged_blocks(wanted) > self.staging.used.len() => {
                let (length, offset) = (wanted.length, wanted.offset);
                error!("I/O of {length} bytes of metadata at byte {offset} exceeds the staging area");
                self.reports.push((io, Report::Failed(IoError::Failed)));
            }
            _ => {
                if !self.waiting.is_empty() || !self.start(io, None, core) {
                    let pages = copy_pages(core.engine.io(io), &core.engine);
                    self.waiting.push_back(Waiting { io, pages });
                }
            }
        }
    }

    /// Reports I/O that needed no device, and starts waiting I/O; true if the engine was told something.
    pub fn advance(&mut self, core: &mut Core) -> bool {
        while let Some(waiting) = self.waiting.pop_front() {
            if !self.start(waiting.io, Some(&waiting.pages), core) {
                self.waiting.push_front(waiting);
                break;
            }
        }
        let any = !self.reports.is_empty();
        #[cfg(feature = "faults")]
        let any = self.end_faults(core) || any;
        for (io, report) in self.reports.drain(..) {
            let result = match &report {
                Report::Complete => Ok(Outcome::Complete),
                Report::Merged(content) => Ok(Outcome::Blocks(std::slice::from_ref(content))),
                Report::Compared(equal) => Ok(Outcome::Equal(*equal)),
                Report::Failed(error) => Err(*error),
            };
            core.engine.handle(core.now, Event::Done { io, result });
        }
        any
    }

    /// Starts an I/O and returns true. Returns false, and changes nothing, if there is no free slot, or not enough staging for its pages.
    /// `pages` are copies of the pages to write, made when the I/O had to wait; `None`: the engine's pages are used.
    fn start(&mut self, io: IoId, pages: Option<&[u8]>, core: &mut Core) -> bool {
        let wanted = core.engine.io(io);
        let Some(&index) = self.free.last() else { return false };
        let work = match wanted.op {
            IoOp::ReadBlocks => Work::ReadBlocks,
            IoOp::ReadPages => Work::ReadPages,
            IoOp::Write => Work::Write,
            IoOp::WriteDurable => Work::WriteDurable,
            IoOp::Sync => Work::Sync,
            IoOp::Reserve => Work::Reserve,
            IoOp::Discard => Work::Discard,
            IoOp::Merge { .. } | IoOp::Compare => unreachable!("done when it is taken"),
        };
        let staging = match staged_blocks(wanted) {
            0 => None,
            blocks => match self.staging.take(blocks) {
                Some(first) => Some((first, blocks)),
                None => return false,
            },
        };
        self.free.pop();
        let slot = &mut self.slots[index as usize];
        slot.spans.clear();
        (slot.io, slot.begun, slot.work, slot.done, slot.staging) = (io, Some(core.now), work, 0, staging);
        slot.offset = self.part.offset + wanted.offset;
        slot.length = wanted.length as usize;
        match work {
            Work::ReadPages => {
                let (first, blocks) = staging.expect("staging was taken");
                slot.spans.push(core.arena.staging(first, blocks).first(slot.length));
            }
            Work::ReadBlocks | Work::Write | Work::WriteDurable => {
                let mut page = staging.map_or(0, |(first, _)| first);
                let mut copied = pages.map(|pages| pages.chunks_exact(BLOCK));
                for segment in &wanted.segments {
                    let span = match *segment {
                        Segment::Buffer(buffer) => core.arena.buffer(buffer),
                        Segment::Page(id) => {
                            let span = core.arena.staging(page, 1);
                            let copied = copied.as_mut().map(|pages| pages.next().expect("all pages were copied"));
                            let page_bytes = copied.unwrap_or_else(|| core.engine.page(id));
                            core.arena.bytes_mut(span).copy_from_slice(page_bytes);
                            page += 1;
                            span
                        }
                    };
                    push_span(&mut slot.spans, span);
                }
                slot.length = slot.spans.iter().map(|span| span.length).sum();
            }
            Work::Sync | Work::Reserve | Work::Discard => {}
        }
        self.submit(index, core);
        true
    }

    /// Hands the next step of a slot to the ring.
    fn submit(&mut self, index: u32, core: &mut Core) {
        let slot = &self.slots[index as usize];
        #[cfg(feature = "faults")]
        if self.faults.hold(
            index,
            operation(slot.work),
            slot.offset + slot.done as u64,
            slot.length - slot.done,
            core.now,
        ) {
            return;
        }
        let on_ring = self.part.first_slot + index;
        match slot.work {
            Work::Sync => core.ring.sync(on_ring),
            Work::Reserve => core.ring.reserve(on_ring, slot.offset, slot.length as u64),
            Work::Discard if !self.is_device => core.ring.punch_hole(on_ring, slot.offset, slot.length as u64),
            Work::Discard => {
                let (offset, length) = (slot.offset, slot.length as u64);
                let began = self.device.as_ref().map(|device| DeviceDiscard::begin(device.as_fd(), offset, length));
                match began {
                    Some(Ok(discard)) => {
                        core.ring.wait_for(on_ring, discard.ended());
                        self.discards.push((index, discard));
                    }
                    // Threads or descriptors have run out: the pool tries again.
                    Some(Err(_)) => self.discard_failed(index, IoError::NoSpace),
                    None => {
                        info!(
                            "{} could not be opened again for discards: space is not given back until the pool is opened again",
                            self.part.name
                        );
                        self.discard_failed(index, IoError::Failed);
                    }
                }
            }
            Work::Write | Work::WriteDurable => {
                remaining(&slot.spans, slot.done, &mut self.window);
                #[cfg(feature = "faults")]
                self.faults.shorten(&mut self.window);
                let urgency = match (slot.work, slot.staging) {
                    (Work::WriteDurable, _) if self.forces_writes => Urgency::Durable,
                    // Blocks alone: acknowledged long ago, or a flush waits for all of them together.
                    (_, None) => Urgency::None,
                    (_, Some(_)) => Urgency::Soon,
                };
                core.ring.write(on_ring, &core.arena, &self.window, slot.offset + slot.done as u64, urgency);
            }
            Work::ReadBlocks | Work::ReadPages => {
                remaining(&slot.spans, slot.done, &mut self.window);
                #[cfg(feature = "faults")]
                self.faults.shorten(&mut self.window);
                core.ring.read(on_ring, &core.arena, &self.window, slot.offset + slot.done as u64);
            }
        }
    }

    /// Ends a discard that could not begin.
    fn discard_failed(&mut self, index: u32, error: IoError) {
        let slot = &mut self.slots[index as usize];
        slot.begun = None;
        self.reports.push((slot.io, Report::Failed(error)));
        self.free.push(index);
    }

    /// Resumes operations that are not held back any longer; true if there was one.
    #[cfg(feature = "faults")]
    fn end_faults(&mut self, core: &mut Core) -> bool {
        let mut any = false;
        while let Some(due) = self.faults.next_due(core.now) {
            any = true;
            match due {
                Due::Ends(index, result) => self.completed(self.part.first_slot + index, result, core),
                Due::Begins(index) => self.submit(index, core),
            }
        }
        any
    }

    /// Returns the time at which held operations must be checked.
    #[cfg(feature = "faults")]
    pub fn next_look(&self, now: Nanos) -> Option<Nanos> {
        self.faults.next_look(now)
    }

    /// Takes the end of an operation: continues after a short read or write, else reports the I/O to the engine and frees its slot.
    pub fn completed(&mut self, on_ring: u32, result: i32, core: &mut Core) {
        let index = on_ring - self.part.first_slot;
        if result == -libc::EFAULT && core.ring.lost_registered_buffer(on_ring) {
            // That says nothing about the disk, and nothing was done.
            return self.submit(index, core);
        }
        let slot = &mut self.slots[index as usize];
        let result = match self.discards.iter().position(|&(of_slot, _)| of_slot == index) {
            // A poll that failed says nothing of the thread.
            Some(at) => self.discards.swap_remove(at).1.wait(),
            None => result,
        };
        let error = match (result, slot.work) {
            (_, Work::Sync | Work::Reserve | Work::Discard) if result >= 0 => None,
            // Where the file system cannot reserve, writes find out that it is full.
            (_, Work::Reserve) if result == -libc::EOPNOTSUPP => None,
            (0, Work::Write | Work::WriteDurable) => Some(IoError::Failed),
            (1.., Work::Write | Work::WriteDurable) => {
                slot.done += result as usize;
                if slot.done == slot.length && slot.work == Work::WriteDurable && !self.forces_writes {
                    slot.work = Work::Sync;
                    return self.submit(index, core);
                }
                if slot.done < slot.length {
                    return self.submit(index, core);
                }
                None
            }
            (0.., _) => {
                slot.done += result as usize;
                let at_end = slot.offset + slot.done as u64 >= self.size;
                if slot.done < slot.length && !at_end && result > 0 {
                    return self.submit(index, core);
                }
                if slot.done < slot.length && !at_end {
                    // The store has become shorter than it was when it was opened: zeroes would be an invention.
                    Some(IoError::Failed)
                } else {
                    fill_rest(slot, &mut self.window, &mut core.arena);
                    None
                }
            }
            (_, _) if result == -libc::EINTR || result == -libc::EAGAIN => return self.submit(index, core),
            (_, work) if is_lack_of_space(-result) => Some(lack_of_space(work, self.loses_nothing)),
            (_, _) => Some(IoError::Failed),
        };
        match (slot.work, error) {
            // The command that needs the space is told; `watch` logs once that the host is full.
            (Work::Reserve, Some(IoError::NoSpace)) => self.host.full = Some(core.now),
            (Work::Reserve, None) => self.host.space = Some(core.now),
            // The pool makes no more of them.
            (Work::Discard, Some(IoError::Failed)) => {
                let why = std::io::Error::from_raw_os_error(-result);
                info!(
                    "{} takes no discards ({why}): space is not given back until the pool is opened again",
                    self.part.name
                );
            }
            (Work::Write | Work::WriteDurable | Work::Discard, Some(IoError::NoSpace)) => {}
            (_, None) => {}
            (work, Some(_)) => {
                let failure = describe_failure(self.part.name, slot, result);
                if let Some(number) = self.failures.add(core.now) {
                    warn!("{failure} (failure {number} since the start)");
                }
                // Reads of the store have second copies, and their reader is told; a failure on flash switches the flash off.
                if self.part.first_slot > 0 || !matches!(work, Work::ReadBlocks | Work::ReadPages) {
                    self.failed = Some(failure);
                }
            }
        }
        self.deliver(index, error, core);
    }

    /// Tells the engine how the I/O of a slot went, and frees the slot.
    fn deliver(&mut self, index: u32, error: Option<IoError>, core: &mut Core) {
        let slot = &mut self.slots[index as usize];
        let result = match (error, slot.work) {
            (Some(error), _) => Err(error),
            (None, Work::ReadBlocks) => {
                self.contents.clear();
                for span in &slot.spans {
                    let blocks = core.arena.bytes(*span).chunks_exact(BLOCK);
                    self.contents.extend(blocks.map(|block| core.digester.content(block)));
                }
                Ok(Outcome::Blocks(&self.contents))
            }
            (None, Work::ReadPages) => Ok(Outcome::Bytes(core.arena.bytes(slot.spans[0]))),
            (None, Work::Write | Work::WriteDurable | Work::Sync | Work::Reserve | Work::Discard) => {
                Ok(Outcome::Complete)
            }
        };
        core.engine.handle(core.now, Event::Done { io: slot.io, result });
        slot.begun = None;
        if let Some((first, blocks)) = slot.staging.take() {
            self.staging.give(first, blocks);
        }
        self.free.push(index);
    }
}

/// Judges an error for want of space: `NoSpace` if nothing else is lost, else `Failed`. After a sync the loss is unknown.
fn lack_of_space(work: Work, loses_nothing: bool) -> IoError {
    match work {
        Work::Reserve | Work::Discard => IoError::NoSpace,
        Work::Write | Work::WriteDurable if loses_nothing => IoError::NoSpace,
        _ => IoError::Failed,
    }
}

#[cfg(feature = "faults")]
fn operation(work: Work) -> Operation {
    match work {
        Work::ReadBlocks | Work::ReadPages => Operation::Read,
        Work::Write | Work::WriteDurable => Operation::Write,
        Work::Sync => Operation::Sync,
        Work::Reserve => Operation::Reserve,
        Work::Discard => Operation::Discard,
    }
}

/// Blocks of staging in use, from one of the arena on.
struct Staging {
    first: usize,
    used: Vec<bool>,
}

impl Staging {
    /// Takes the first run of free blocks that is long enough.
    fn take(&mut self, blocks: usize) -> Option<usize> {
        let mut run = 0;
        for at in 0..self.used.len() {
            run = if self.used[at] { 0 } else { run + 1 };
            if run == blocks {
                let first = at + 1 - blocks;
                self.used[first..=at].fill(true);
                return Some(self.first + first);
            }
        }
        None
    }

    fn give(&mut self, first: usize, blocks: usize) {
        let from = first - self.first;
        for used in &mut self.used[from..from + blocks] {
            assert!(*used, "staging is given back once");
            *used = false;
        }
    }
}

/// Appends a span, joined with the last one if it follows it in memory.
pub fn push_span(spans: &mut Vec<Span>, span: Span) {
    match spans.last_mut() {
        Some(last) if last.end() == span.start => last.length += span.length,
        _ => spans.push(span),
    }
}

/// Collects the spans without their first `done` bytes, at most as many as one operation takes.
fn remaining(spans: &[Span], done: usize, into: &mut Vec<Span>) {
    into.clear();
    let mut skip = done;
    for span in spans {
        if skip >= span.length {
            skip -= span.length;
        } else if into.len() < SPANS {
            into.push(span.from(skip));
            skip = 0;
        }
    }
}

/// Fills the missing part of a short read with zeroes.
fn fill_rest(slot: &Slot, window: &mut Vec<Span>, arena: &mut Arena) {
    let mut done = slot.done;
    while done < slot.length {
        remaining(&slot.spans, done, window);
        for span in window.iter() {
            arena.bytes_mut(*span).fill(0);
            done += span.length;
        }
    }
}

/// Counts the blocks of staging that an I/O needs.
fn staged_blocks(io: &engine::Io) -> usize {
    match io.op {
        IoOp::ReadPages => (io.length as usize).div_ceil(BLOCK),
        IoOp::Write | IoOp::WriteDurable => {
            io.segments.iter().filter(|segment| matches!(segment, Segment::Page(_))).count()
        }
        IoOp::ReadBlocks | IoOp::Sync | IoOp::Reserve | IoOp::Discard | IoOp::Merge { .. } | IoOp::Compare => 0,
    }
}

/// Saves the pages of a write that cannot start yet; the engine may change them meanwhile.
fn copy_pages(io: &engine::Io, engine: &Engine) -> Vec<u8> {
    let mut pages = Vec::new();
    if io.op.is_write() {
        for segment in &io.segments {
            if let Segment::Page(page) = segment {
                pages.extend_from_slice(engine.page(*page));
            }
        }
    }
    pages
}

/// Carries out [`IoOp::Merge`].
pub fn merge(
    segments: &[Segment],
    from: u32,
    to: u32,
    zero: bool,
    arena: &mut Arena,
    digester: &Digester,
) -> BlockContent {
    let buffer = |at: usize| match segments.get(at) {
        Some(Segment::Buffer(buffer)) => Some(*buffer),
        Some(Segment::Page(_)) => unreachable!("a merge is of buffers"),
        None => None,
    };
    let into: BufferId = buffer(0).expect("a merge has a block to merge into");
    let (from, to) = (from as usize, to as usize);
    match buffer(1) {
        Some(base) => {
            let (into, base) = arena.buffer_pair(into, base);
            into[..from].copy_from_slice(&base[..from]);
            into[to..].copy_from_slice(&base[to..]);
        }
        None => {
            let into = arena.bytes_mut(arena.buffer(into));
            into[..from].fill(0);
            into[to..].fill(0);
        }
    }
    let span = arena.buffer(into);
    if zero {
        arena.bytes_mut(span)[from..to].fill(0);
    }
    digester.content(arena.bytes(span))
}

/// Carries out [`IoOp::Compare`].
pub fn compare(segments: &[Segment], arena: &Arena) -> bool {
    let mut blocks = segments.iter().map(|segment| match segment {
        Segment::Buffer(buffer) => arena.bytes(arena.buffer(*buffer)),
        Segment::Page(_) => unreachable!("a comparison is of buffers"),
    });
    blocks.next() == blocks.next()
}

/// Describes an operation that failed, with its place on the device and the reason.
fn describe_failure(device: &str, slot: &Slot, result: i32) -> String {
    let what = match slot.work {
        Work::ReadBlocks | Work::ReadPages => "read",
        Work::Write | Work::WriteDurable => "write",
        Work::Sync => "sync",
        Work::Reserve => "reserving space",
        Work::Discard => "discard",
    };
    let why = match (result, slot.work) {
        (..0, _) => std::io::Error::from_raw_os_error(-result).to_string(),
        (_, Work::Write | Work::WriteDurable) => "nothing was written".into(),
        (_, _) => format!("{device} ends there"),
    };
    match slot.work {
        Work::Sync => format!("a {what} of {device} failed: {why}"),
        _ => format!("{what} of {} bytes at byte {} of {device} failed: {why}", slot.length, slot.offset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use crate::io::record::Recorded;
    use crate::io::ring::{Ring, Tag};
    use engine::{Command, DigestFunction, Effect, Geometry, Limits, Parameters};

    /// Drives the engine until it has the effect that `is_over` waits for. After `lose_after` I/Os, the registrations with the kernel are lost.
    fn drive(core: &mut Core, disk: &mut Disk, mut lose_after: usize, is_over: impl Fn(&Effect) -> bool) {
        let mut completions = Vec::new();
        loop {
            while let Some(effect) = core.engine.next_effect() {
                if is_over(&effect) {
                    return;
                }
                if let Effect::Io(io) = effect {
                    disk.take(io, core);
                }
            }
            if disk.advance(core) {
                continue;
            }
            // Operations that were requested and are not submitted yet lose it too.
            if lose_after == 0 {
                core.ring.lose_registered();
            }
            lose_after = lose_after.wrapping_sub(1);
            let in_flight = disk.free.len() < DISK_SLOTS;
            core.ring.submit_and_wait(Some(Duration::from_secs(if in_flight { 5 } else { 0 }))).unwrap();
            core.ring.completions(&mut completions);
            if !in_flight {
                // Time passes only where the engine waits for it.
                core.now = core.engine.next_timer().expect("the engine waits for something").max(core.now);
                core.engine.handle(core.now, Event::Timer);
            }
            for completion in completions.drain(..) {
                let Tag::Disk(slot) = completion.tag else { panic!("nothing else was asked for: {completion:?}") };
                disk.completed(slot, completion.result, core);
            }
        }
    }

    /// Tests I/O whose registered buffer is gone. Where little memory could be locked, the kernel took some of the buffers, or none any more when memory was
    /// raised. I/O that named the others failed with EFAULT. That counted as an error of the disk, and a healthy pool became read-only.
    #[test]
    fn an_io_whose_registered_buffer_is_gone_is_done_again_without() {
        let path = std::env::temp_dir().join(format!("onefold-disk-{}", std::process::id()));
        let (store, parameters) = crate::commands::create::scratch(&path);
        let limits = Limits::for_memory(64 << 20, &parameters.geometry).unwrap();
        // Few enough to be registered by who may lock 8 MiB.
        let limits = Limits { buffers: 1024, write_buffers: 512, ..limits };
        for (lose_when_opening, lose_when_closing) in
            [(0, usize::MAX), (2, usize::MAX), (usize::MAX, 0), (usize::MAX, 1)]
        {
            let most = limits.most_buffers(BLOCK as u64) as usize;
            let arena = Arena::new((limits.buffers as usize, most), STAGING_BLOCKS, 1).unwrap();
            let ring = Ring::new(&arena, store.as_raw_fd(), true).unwrap();
            let engine = Recorded::new(Engine::open(parameters, limits, 0), None);
            let mut core = Core::new(engine, arena, ring, Digester::new(&parameters));
            let mut disk = Disk::new(Part::STORE, &store);
            drive(&mut core, &mut disk, lose_when_opening, |effect| matches!(effect, Effect::Opened(Ok(_))));
            let command = Command::CreateVolume { name: "another", size: 1 << 20, policy: None };
            core.engine.handle(0, Event::Control { token: 1, command });
            core.engine.handle(0, Event::Control { token: 2, command: Command::Close });
            let closed = Effect::ControlReply { token: 2, result: Ok(()) };
            drive(&mut core, &mut disk, lose_when_closing, |effect| *effect == closed);
            assert_eq!((disk.last_failure(), core.engine.status().failure), (None, None));
            assert!(!core.ring.lose_registered(), "it has noticed");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn staging_is_taken_in_runs_and_given_back() {
        let mut staging = Staging { first: 0, used: vec![false; 8] };
        assert_eq!(staging.take(3), Some(0));
        assert_eq!(staging.take(4), Some(3));
        assert_eq!(staging.take(2), None);
        staging.give(0, 3);
        assert_eq!(staging.take(2), Some(0));
        assert_eq!(staging.take(2), None, "two are free, but apart");
        assert_eq!(staging.take(1), Some(2));
    }

    #[test]
    fn what_is_left_of_an_operation_is_what_was_not_done() {
        let spans = [Span { start: 0, length: 10 }, Span { start: 20, length: 5 }, Span { start: 40, length: 7 }];
        let mut window = Vec::new();
        for done in 0..=22 {
            remaining(&spans, done, &mut window);
            assert_eq!(window.iter().map(|span| span.length).sum::<usize>(), 22 - done);
        }
        remaining(&spans, 12, &mut window);
        assert_eq!(window, [Span { start: 22, length: 3 }, Span { start: 40, length: 7 }]);
    }

    #[test]
    fn merging_keeps_what_was_written_and_takes_the_rest_from_the_base() {
        let mut arena = Arena::new((2, 2), 1, 1).unwrap();
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        let parameters = Parameters::new(geometry, [1; 16], [2; 32], DigestFunction::Blake3);
        let digester = Digester::new(&parameters);
        let (into, base) = (BufferId(0), BufferId(1));
        let mut run = |segments: &[BufferId], from, to, zero| {
            for (number, buffer) in [into, base].into_iter().enumerate() {
                arena.bytes_mut(arena.buffer(buffer)).fill(number as u8 + 1);
            }
            let segments: Vec<Segment> = segments.iter().map(|buffer| Segment::Buffer(*buffer)).collect();
            let content = merge(&segments, from, to, zero, &mut arena, &digester);
            let bytes = arena.bytes(arena.buffer(into)).to_vec();
            assert_eq!(content, digester.content(&bytes));
            (bytes[..10].iter().all(|b| *b == bytes[0]), bytes[0], bytes[100], bytes[4095])
        };
        assert_eq!(run(&[into, base], 10, 200, false), (true, 2, 1, 2));
        assert_eq!(run(&[into], 10, 200, false), (true, 0, 1, 0));
        assert_eq!(run(&[into, base], 10, 200, true), (true, 2, 0, 2));
        assert_eq!(run(&[into], 10, 200, true), (true, 0, 0, 0));
    }
}
