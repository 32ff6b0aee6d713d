//! The io_uring: the only place where the reactor's thread waits, and the only one that gives memory to the kernel.
//!
//! Owns the ring, its registrations, and the descriptors of vectored operations (`iovec` arrays, message headers). Memory is named by [`Span`]s of the arena.
//! An operation is identified by its [`Tag`]. At most one is in flight per tag, so the descriptors of a tag are free to be used again when its completion has
//! been seen.
#![allow(unsafe_code)]

mod setup;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use anyhow::Context;
use io_uring::types::{CancelBuilder, Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use tracing::warn;

use crate::io::arena::{Arena, BLOCK, Span};

/// Entries of the store, and of the flash in front of it, in the table of registered files.
const STORE: Fixed = Fixed(0);
const FLASH: Fixed = Fixed(1);
/// Size in bytes of the chunks in which block buffers are registered, so that they can come and go.
const REGISTERED_CHUNK: usize = 2 << 20;
/// Maximum of entries of the table of registered buffers; buffers beyond it are used unregistered.
const REGISTERED_MAX: usize = 1 << 14;
/// Disk operations in flight on the store.
pub const DISK_SLOTS: usize = 256;
/// Disk operations in flight on flash: their slots follow those of the store.
pub const FLASH_SLOTS: usize = 64;
/// Maximum of spans of one disk operation or receive.
pub const SPANS: usize = 260;
/// Maximum of spans of one send: the kernel's limit for a message.
pub const SEND_SPANS: usize = 1024;

/// Background writes that are submitted at once: to submit one takes some microseconds.
const UNHURRIED_AT_ONCE: usize = 8;

/// Time that the operations in flight may take to end when the ring ends.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Vectors that are kept to be used again, of each size.
const SPARE_MAX: usize = 64;

/// Urgency of a write, by its waiters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// No waiter.
    None,
    /// Others, or a sync that comes next.
    Soon,
    /// A flush: it is to be durable when it is done.
    Durable,
}

/// Operation that a completion belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    /// A slot of the disk.
    Disk(u32),
    /// A connection's receive.
    Receive(u32),
    /// A connection's send.
    Send(u32),
    /// A listener's accept.
    Accept(u32),
    /// The event counter that other threads raise.
    WakeUp,
    /// The end of an accept that is not wanted any more.
    Cancel,
}

impl Tag {
    fn encode(self) -> u64 {
        let (kind, index) = match self {
            Tag::Disk(index) => (0u64, index),
            Tag::Receive(index) => (1, index),
            Tag::Send(index) => (2, index),
            Tag::Accept(index) => (3, index),
            Tag::WakeUp => (4, 0),
            Tag::Cancel => (5, 0),
        };
        kind << 32 | u64::from(index)
    }

    fn decode(data: u64) -> Tag {
        let index = data as u32;
        match data >> 32 {
            0 => Tag::Disk(index),
            1 => Tag::Receive(index),
            2 => Tag::Send(index),
            3 => Tag::Accept(index),
            4 => Tag::WakeUp,
            _ => Tag::Cancel,
        }
    }
}

/// An operation that ended.
#[derive(Debug)]
pub struct Completion {
    /// Operation that ended.
    pub tag: Tag,
    /// Return value of the system call: a count, or a negative error number.
    pub result: i32,
    /// Socket that an accept has accepted.
    pub socket: Option<OwnedFd>,
}

impl Completion {
    fn new(data: u64, result: i32) -> Completion {
        let tag = Tag::decode(data);
        let socket = match tag {
            // SAFETY: a successful accept returns a new descriptor with no other owner; its completion is seen once.
            Tag::Accept(_) if result >= 0 => Some(unsafe { OwnedFd::from_raw_fd(result) }),
            _ => None,
        };
        Completion { tag, result, socket }
    }
}

/// Descriptors of one vectored operation, at an address that does not change.
struct Vectors {
    spans: Box<[libc::iovec]>,
    message: Box<libc::msghdr>,
    in_flight: bool,
    /// The operation in flight is a durable write.
    is_durable: bool,
    /// The last operation named its memory by a registered buffer.
    is_fixed: bool,
}

impl Vectors {
    fn new(spans: usize) -> Vectors {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: a message header is integers and pointers, for which all zeroes are valid and mean "none".
        let message: libc::msghdr = unsafe { std::mem::zeroed() };
        Vectors {
            spans: vec![none; spans].into_boxed_slice(),
            message: Box::new(message),
            in_flight: false,
            is_durable: false,
            is_fixed: false,
        }
    }

    /// Fills in the spans and returns how many there are.
    fn fill(&mut self, arena: &Arena, spans: &[Span]) -> u32 {
        for (vector, span) in self.spans[..spans.len()].iter_mut().zip(spans) {
            *vector = libc::iovec { iov_base: arena.address(*span).cast(), iov_len: span.length };
        }
        spans.len() as u32
    }

    fn fill_message(&mut self, arena: &Arena, spans: &[Span]) -> *mut libc::msghdr {
        let count = self.fill(arena, spans);
        self.message.msg_iov = self.spans.as_mut_ptr();
        self.message.msg_iovlen = count as usize;
        &raw mut *self.message
    }
}

/// The operation of a connection in one direction. Only what needs vectors has them, and only while it is in flight: there
/// are many connections, and most of them are silent.
#[derive(Default)]
struct Transfer {
    in_flight: bool,
    vectors: Option<Vectors>,
}

impl Transfer {
    fn begin(&mut self) {
        assert!(!self.in_flight, "a connection has one operation in flight in each direction");
        self.in_flight = true;
    }
}

/// The spans of an operation that is not long.
const FEW_SPANS: usize = 64;

/// Vectors that are not in use: for few spans, and for as many as there can be.
#[derive(Default)]
struct Spare {
    few: Vec<Vectors>,
    many: Vec<Vectors>,
}

impl Spare {
    fn take(&mut self, spans: usize) -> Vectors {
        let (list, size) = if spans <= FEW_SPANS { (&mut self.few, FEW_SPANS) } else { (&mut self.many, SEND_SPANS) };
        list.pop().unwrap_or_else(|| Vectors::new(size))
    }

    fn give(&mut self, vectors: Vectors) {
        let list = if vectors.spans.len() <= FEW_SPANS { &mut self.few } else { &mut self.many };
        if list.len() < SPARE_MAX {
            list.push(vectors);
        }
    }
}

/// The ring.
pub struct Ring {
    ring: IoUring,
    /// Entries to submit next, in this order.
    backlog: VecDeque<squeue::Entry>,
    /// Durable writes, which go ahead of all else: a client waits for each, or is about to, and the disk takes long.
    ahead: VecDeque<squeue::Entry>,
    /// Operations of the disk that go behind those of sockets: to submit one takes the kernel much longer than to send a reply.
    behind: VecDeque<squeue::Entry>,
    /// Background writes without a waiter: submitted some at a time, so that they do not delay requests.
    unhurried: VecDeque<squeue::Entry>,
    /// Durable writes in flight.
    durable: u32,
    /// Operations that the kernel was given, and that have not been seen to end.
    in_flight: usize,
    disk: Vec<Vectors>,
    receive: Vec<Transfer>,
    send: Vec<Transfer>,
    spare: Spare,
    registered: Option<Registered>,
}

/// Memory that is registered as buffers: the staging area, and then the block buffers in chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Registered {
    staging: Span,
    buffers: Span,
    /// True if the kernel can change single entries of the table (Linux 5.19).
    can_change: bool,
}

impl Registered {
    /// Returns the part of a chunk that is registered; empty behind the last buffer.
    fn chunk(&self, number: usize) -> Span {
        let at = (number * REGISTERED_CHUNK).min(self.buffers.length);
        self.buffers.from(at).first((self.buffers.length - at).min(REGISTERED_CHUNK))
    }

    /// Chunks that hold something.
    fn chunks(&self) -> usize {
        self.buffers.length.div_ceil(REGISTERED_CHUNK).min(REGISTERED_MAX - 1)
    }
}

impl Ring {
    /// Sets up a ring over a store. With `register`, the arena's buffers are registered where the limit on locked memory
    /// allows it. The thread that calls this is the one that must use the ring.
    pub fn new(arena: &Arena, store: RawFd, register: bool) -> anyhow::Result<Ring> {
        let ring = setup::build()?;
        ring.submitter().register_files(&[store, NO_FILE]).context("cannot register the store with io_uring")?;
        let registered = if register { register_buffers(&ring, arena) } else { Ok(None) };
        let registered = registered.unwrap_or_else(|error| {
            let why = why_not_registered(&error);
            warn!("buffers are not registered with the kernel: {why}. Everything works without, a little slower");
            None
        });
        let unused = |count: usize| std::iter::repeat_with(Transfer::default).take(count).collect();
        Ok(Ring {
            ring,
            backlog: VecDeque::new(),
            ahead: VecDeque::new(),
            behind: VecDeque::new(),
            unhurried: VecDeque::new(),
            durable: 0,
            in_flight: 0,
            disk: (0..DISK_SLOTS).map(|_| Vectors::new(SPANS)).collect(),
            receive: unused(arena.connections()),
            send: unused(arena.connections()),
            spare: Spare::default(),
            registered,
        })
    }

    /// Registers the arena's current buffers, and unregisters those that are not among `buffers`, which it is about to lose. Operations in flight keep their
    /// buffers.
    pub fn follow_buffers(&mut self, arena: &Arena, buffers: Span) {
        let Some(before) = self.registered else { return };
        let after = Registered { buffers, ..before };
        let first = before.buffers.length.min(buffers.length) / REGISTERED_CHUNK;
        for number in first..before.chunks().max(after.chunks()) {
            let chunk = after.chunk(number);
            if before.chunk(number) == chunk {
                continue;
            }
            if !before.can_change {
                return self.end_registration("this kernel cannot change which: that needs Linux 5.19");
            }
            let vector = if chunk.length == 0 { NOTHING } else { vector(arena, chunk) };
            if let Err(error) = set_registered(&self.ring, 1 + number as u32, vector) {
                return self.end_registration(&why_not_registered(&error));
            }
        }
        self.registered = Some(after);
    }

    /// Returns true if the operation of a slot ended with EFAULT because the kernel does not have (any more) the registered buffer that it named. Then no
    /// buffer is registered from here on, and the operation must be done again.
    pub fn lost_registered_buffer(&mut self, slot: u32) -> bool {
        let was_fixed = std::mem::take(&mut self.disk[slot as usize].is_fixed);
        if was_fixed {
            self.end_registration("the kernel does not know one of them any more");
        }
        was_fixed
    }

    /// Unregisters all buffers: everything works as well, a little slower. Operations that were requested and not submitted yet, and name one, end with EFAULT.
    fn end_registration(&mut self, why: &str) {
        if self.registered.take().is_some() {
            let _ = self.ring.submitter().unregister_buffers();
            warn!("buffers are not registered with the kernel any more: {why}. Everything goes on, a little slower");
        }
    }

    /// Assigns the slots behind those of the store to the file of the flash; `None` takes them away. None of them may be in flight.
    pub fn set_flash(&mut self, flash: Option<RawFd>) -> io::Result<()> {
        let slots = if flash.is_some() { DISK_SLOTS + FLASH_SLOTS } else { DISK_SLOTS };
        assert!(self.disk.iter().skip(DISK_SLOTS).all(|vectors| !vectors.in_flight), "the flash before is at rest");
        self.ring.submitter().register_files_update(FLASH.0, &[flash.unwrap_or(NO_FILE)])?;
        self.disk.resize_with(slots, || Vectors::new(SPANS));
        Ok(())
    }

    /// Reads from the device of the slot.
    pub fn read(&mut self, slot: u32, arena: &Arena, spans: &[Span], offset: u64) {
        let entry = match self.fixed(slot, spans) {
            Some(index) => {
                let (address, length) = (arena.address(spans[0]), spans[0].length as u32);
                opcode::ReadFixed::new(file_of(slot), address, length, index).offset(offset).build()
            }
            None => {
                let vectors = &mut self.disk[slot as usize];
                assert!(!vectors.in_flight, "a slot has one operation in flight");
                let count = vectors.fill(arena, spans);
                opcode::Readv::new(file_of(slot), vectors.spans.as_ptr(), count).offset(offset).build()
            }
        };
        self.push_disk(slot, entry, Urgency::Soon);
    }

    /// Writes to it. A durable write is so when it is done (pwritev2(2), RWF_DSYNC).
    pub fn write(&mut self, slot: u32, arena: &Arena, spans: &[Span], offset: u64, urgency: Urgency) {
        let flags = if urgency == Urgency::Durable { libc::RWF_DSYNC } else { 0 };
        let entry = match self.fixed(slot, spans) {
            Some(index) => {
                let (address, length) = (arena.address(spans[0]), spans[0].length as u32);
                opcode::WriteFixed::new(file_of(slot), address, length, index).offset(offset).rw_flags(flags).build()
            }
            None => {
                let vectors = &mut self.disk[slot as usize];
                assert!(!vectors.in_flight, "a slot has one operation in flight");
                let count = vectors.fill(arena, spans);
                opcode::Writev::new(file_of(slot), vectors.spans.as_ptr(), count).offset(offset).rw_flags(flags).build()
            }
        };
        self.push_disk(slot, entry, urgency);
    }

    /// Makes the device's data durable.
    pub fn sync(&mut self, slot: u32) {
        self.disk[slot as usize].is_fixed = false;
        self.push_disk(slot, opcode::Fsync::new(file_of(slot)).flags(FsyncFlags::DATASYNC).build(), Urgency::Soon);
    }

    /// Reserves space in the store's file system.
    pub fn reserve(&mut self, slot: u32, offset: u64, length: u64) {
        self.disk[slot as usize].is_fixed = false;
        self.push_disk(slot, opcode::Fallocate::new(file_of(slot), length).offset(offset).build(), Urgency::Soon);
    }

    /// Gives space of the store's file back to its file system.
    pub fn punch_hole(&mut self, slot: u32, offset: u64, length: u64) {
        self.disk[slot as usize].is_fixed = false;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let entry = opcode::Fallocate::new(file_of(slot), length).offset(offset).mode(mode).build();
        self.push_disk(slot, entry, Urgency::Soon);
    }

    /// Waits until a descriptor is readable, for an operation of the disk that another thread carries out.
    pub fn wait_for(&mut self, slot: u32, descriptor: RawFd) {
        self.disk[slot as usize].is_fixed = false;
        self.push_disk(slot, opcode::PollAdd::new(Fd(descriptor), libc::POLLIN as u32).build(), Urgency::Soon);
    }

    /// Receives into spans, in order.
    pub fn receive(&mut self, connection: u32, socket: RawFd, arena: &Arena, spans: &[Span]) {
        let transfer = &mut self.receive[connection as usize];
        transfer.begin();
        let entry = match spans {
            [span] => opcode::Recv::new(Fd(socket), arena.address(*span), span.length as u32).build(),
            _ => {
                let vectors = transfer.vectors.insert(self.spare.take(spans.len()));
                opcode::RecvMsg::new(Fd(socket), vectors.fill_message(arena, spans)).build()
            }
        };
        self.push(entry, Tag::Receive(connection));
    }

    /// Sends spans, in order.
    pub fn send(&mut self, connection: u32, socket: RawFd, arena: &Arena, spans: &[Span]) {
        let transfer = &mut self.send[connection as usize];
        transfer.begin();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = match spans {
            [span] => opcode::Send::new(Fd(socket), arena.address(*span), span.length as u32).flags(flags).build(),
            _ => {
                let vectors = transfer.vectors.insert(self.spare.take(spans.len()));
                opcode::SendMsg::new(Fd(socket), vectors.fill_message(arena, spans)).flags(flags as u32).build()
            }
        };
        self.push(entry, Tag::Send(connection));
    }

    /// Accepts one connection.
    pub fn accept(&mut self, listener: u32, socket: RawFd) {
        let entry = opcode::Accept::new(Fd(socket), std::ptr::null_mut(), std::ptr::null_mut());
        self.push(entry.flags(libc::SOCK_CLOEXEC).build(), Tag::Accept(listener));
    }

    /// Gives up an accept. Its own completion says how it ended.
    pub fn cancel_accept(&mut self, listener: u32) {
        self.push(opcode::AsyncCancel::new(Tag::Accept(listener).encode()).build(), Tag::Cancel);
    }

    /// Waits for the event counter of other threads to be raised, and takes it back to zero.
    pub fn wake_up(&mut self, counter: RawFd, arena: &Arena) {
        let span = arena.wake_up();
        self.push(opcode::Read::new(Fd(counter), arena.address(span), span.length as u32).build(), Tag::WakeUp);
    }

    /// Submits the queued operations; true if nothing is left behind.
    pub fn submit(&mut self) -> bool {
        self.push_all();
        let submitted = self.ring.submit();
        submitted.is_ok() && self.backlog.is_empty() && self.ring.submission().is_empty()
    }

    /// Returns true if a durable write is in flight. The kernel ends these in a thread of its own, on the processor that began them.
    pub fn has_durable(&self) -> bool {
        self.durable > 0
    }

    /// Returns true if some writes wait for one of the next calls of [`Ring::submit`].
    pub fn has_unhurried(&self) -> bool {
        !self.unhurried.is_empty()
    }

    /// Submits the queued operations and waits until something completes or `timeout` has passed; not at all while there is more to submit.
    pub fn submit_and_wait(&mut self, timeout: Option<Duration>) -> anyhow::Result<()> {
        self.push_all();
        let timeout = if self.has_unhurried() { Some(Duration::ZERO) } else { timeout };
        let result = match timeout {
            None => self.ring.submitter().submit_and_wait(1),
            // A timer that is set to go off at once costs more than the call.
            Some(Duration::ZERO) => self.ring.submitter().submit(),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Nothing completed in time, or a signal came; full queues are drained by the caller.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error).context("io_uring failed"),
            },
        }
    }

    /// Returns true if something has completed, or will be completed by the next [`Ring::submit`]. Costs no call of the kernel.
    pub fn has_news(&mut self) -> bool {
        self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }

    /// Moves finished operations to `completions`.
    pub fn completions(&mut self, completions: &mut Vec<Completion>) {
        let first = completions.len();
        let done = self.ring.completion();
        completions.extend(done.map(|done| Completion::new(done.user_data(), done.result())));
        self.in_flight -= completions.len() - first;
        for completion in &completions[first..] {
            let transfer = match completion.tag {
                Tag::Disk(slot) => {
                    let vectors = &mut self.disk[slot as usize];
                    vectors.in_flight = false;
                    self.durable -= u32::from(std::mem::take(&mut vectors.is_durable));
                    continue;
                }
                Tag::Receive(connection) => &mut self.receive[connection as usize],
                Tag::Send(connection) => &mut self.send[connection as usize],
                Tag::Accept(_) | Tag::WakeUp | Tag::Cancel => continue,
            };
            transfer.in_flight = false;
            if let Some(vectors) = transfer.vectors.take() {
                self.spare.give(vectors);
            }
        }
    }

    /// Finds the number of the registered buffer that holds all of a single span, and notes for the slot if it names one.
    fn fixed(&mut self, slot: u32, spans: &[Span]) -> Option<u16> {
        let index = self.registered_buffer(spans);
        self.disk[slot as usize].is_fixed = index.is_some();
        index
    }

    fn registered_buffer(&self, spans: &[Span]) -> Option<u16> {
        let [span] = spans else { return None };
        let registered = self.registered?;
        let (staging, buffers) = (registered.staging, registered.buffers);
        if span.start >= staging.start && span.end() <= staging.end() {
            return Some(0);
        }
        if span.start < buffers.start || span.end() > buffers.end() {
            return None;
        }
        let (from, to) = (span.start - buffers.start, span.end() - buffers.start);
        let (first, last) = (from / REGISTERED_CHUNK, (to - 1) / REGISTERED_CHUNK);
        (first == last && first < registered.chunks()).then_some(1 + first as u16)
    }

    /// Unregisters all buffers behind the ring's back, as the kernel may; true if there were any.
    #[cfg(test)]
    pub fn lose_registered(&mut self) -> bool {
        self.registered.is_some() && self.ring.submitter().unregister_buffers().is_ok()
    }

    fn push_disk(&mut self, slot: u32, entry: squeue::Entry, urgency: Urgency) {
        let vectors = &mut self.disk[slot as usize];
        assert!(!vectors.in_flight, "a slot has one operation in flight");
        vectors.in_flight = true;
        vectors.is_durable = urgency == Urgency::Durable;
        self.durable += u32::from(vectors.is_durable);
        let queue = match urgency {
            Urgency::Durable => &mut self.ahead,
            Urgency::Soon => &mut self.behind,
            Urgency::None => &mut self.unhurried,
        };
        queue.push_back(entry.user_data(Tag::Disk(slot).encode()));
    }

    fn push(&mut self, entry: squeue::Entry, tag: Tag) {
        self.backlog.push_back(entry.user_data(tag.encode()));
    }

    /// Moves entries to the submission queue, in their order.
    fn push_all(&mut self) {
        while let Some(entry) = self.ahead.pop_back() {
            self.backlog.push_front(entry);
        }
        self.backlog.append(&mut self.behind);
        let count = self.unhurried.len().min(UNHURRIED_AT_ONCE);
        self.backlog.extend(self.unhurried.drain(..count));
        self.push_backlog();
    }

    /// Moves entries to the submission queue while it has space; submits to make space.
    fn push_backlog(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: the memory of the entry stays in place until the operation has completed: payload is in the arena, which is never unmapped; vectors and
            // message headers are boxed, belong to this ring, which lives as long as the reactor, and are not changed before `completions` has seen the
            // operation end (`in_flight`). File descriptors are numbers, which the kernel looks up when the entry is submitted: the caller that closes one
            // calls `submit` first, or has seen the end of its operations.
            let pushed = unsafe { self.ring.submission().push(entry) };
            if pushed.is_ok() {
                self.backlog.pop_front();
                self.in_flight += 1;
            } else if !matches!(self.ring.submit(), Ok(1..)) {
                // The kernel takes no more now: the rest goes with the next wait.
                return;
            }
        }
    }
}

impl Ring {
    /// Ends operations in flight and closes the store. Without it the kernel does both only some time after the process has ended. Until then the store is
    /// locked, and the file systems of the store and of the sockets are busy.
    fn end(&mut self) {
        for queue in [&mut self.backlog, &mut self.ahead, &mut self.behind, &mut self.unhurried] {
            queue.clear();
        }
        self.push(opcode::AsyncCancel2::new(CancelBuilder::any()).build(), Tag::Cancel);
        let (deadline, mut completions) = (Instant::now() + END_PATIENCE, Vec::new());
        while self.in_flight > 0 || !self.backlog.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.submit_and_wait(Some(left)).is_err() {
                break;
            }
            self.completions(&mut completions);
            // Before Linux 5.19 only single operations are cancelled.
            let is_unknown = |done: &Completion| done.tag == Tag::Cancel && done.result == -libc::EINVAL;
            if completions.drain(..).any(|done| is_unknown(&done)) {
                break;
            }
        }
        let _ = self.ring.submitter().unregister_files();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.end();
        // Operations that are still in flight may use vectors and messages: they stay until the process ends.
        for vectors in self.disk.drain(..).filter(|vectors| vectors.in_flight) {
            std::mem::forget(vectors);
        }
        for transfer in self.receive.drain(..).chain(self.send.drain(..)).filter(|transfer| transfer.in_flight) {
            std::mem::forget(transfer);
        }
    }
}

/// An entry of the table of registered files that holds nothing.
const NO_FILE: RawFd = -1;

/// Returns the registered file of a slot: the store or the flash.
fn file_of(slot: u32) -> Fixed {
    if (slot as usize) < DISK_SLOTS { STORE } else { FLASH }
}

/// An entry of the table of registered buffers that holds nothing.
const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn vector(arena: &Arena, span: Span) -> libc::iovec {
    libc::iovec { iov_base: arena.address(span).cast(), iov_len: span.length }
}

/// Changes one entry of the table of registered buffers. One at a time: of several the kernel may take only the first ones, and how many
/// is not told.
fn set_registered(ring: &IoUring, index: u32, vector: libc::iovec) -> io::Result<()> {
    // SAFETY: the vector is NOTHING or a part of the arena, which stays mapped until the process ends.
    unsafe { ring.submitter().register_buffers_update(index, &[vector], None) }
}

/// Registers staging and buffers, all of them or none.
fn register_buffers(ring: &IoUring, arena: &Arena) -> io::Result<Option<Registered>> {
    let mut registered = Registered { staging: arena.all_staging(), buffers: arena.buffers(), can_change: true };
    let chunks = (0..registered.chunks()).map(|number| vector(arena, registered.chunk(number)));
    let vectors: Vec<libc::iovec> = std::iter::once(vector(arena, registered.staging)).chain(chunks).collect();
    let most = 1 + (arena.buffers_max() * BLOCK).div_ceil(REGISTERED_CHUNK);
    let submitter = ring.submitter();
    if submitter.register_buffers_sparse(most.min(REGISTERED_MAX) as u32).is_ok() {
        let set = (0..).zip(&vectors).try_for_each(|(index, &vector)| set_registered(ring, index, vector));
        if set.is_err() {
            let _ = submitter.unregister_buffers();
        }
        return set.map(|()| Some(registered));
    }
    registered.can_change = false;
    // SAFETY: staging and chunks lie in the arena, which stays mapped until the process ends.
    unsafe { submitter.register_buffers(&vectors) }.map(|()| Some(registered))
}

/// Explains why buffers cannot be registered, with advice.
fn why_not_registered(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EPERM) => {
            "the limit on locked memory is too low for them (raise it and restart: 'ulimit -l', LimitMEMLOCK=infinity)"
                .into()
        }
        _ => format!("it refuses them ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn wait(ring: &mut Ring, tag: Tag) -> i32 {
        let mut completions = Vec::new();
        while completions.is_empty() {
            ring.submit_and_wait(Some(Duration::from_secs(5))).unwrap();
            ring.completions(&mut completions);
        }
        assert_eq!(completions.len(), 1);
        assert_eq!(completions[0].tag, tag);
        completions[0].result
    }

    #[test]
    fn blocks_and_messages_arrive_where_they_should() {
        let path = std::env::temp_dir().join(format!("onefold-ring-{}", std::process::id()));
        let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let mut arena = Arena::new((8, 16), 2, 1).unwrap();
        let mut ring = Ring::new(&arena, file.as_raw_fd(), true).unwrap();
        let block = |number| arena.buffer(engine::BufferId(number));
        let (zero, two, five) = (block(0), block(2), block(5));
        arena.bytes_mut(zero).fill(1);
        arena.bytes_mut(two).fill(2);
        ring.write(3, &arena, &[zero, two], 4096, Urgency::Durable);
        assert_eq!(wait(&mut ring, Tag::Disk(3)), 8192);
        ring.sync(3);
        assert_eq!(wait(&mut ring, Tag::Disk(3)), 0);
        ring.read(3, &arena, &[five], 8192);
        assert_eq!(wait(&mut ring, Tag::Disk(3)), 4096);
        assert!(arena.bytes(five).iter().all(|byte| *byte == 2));

        // More buffers, then fewer: the registrations follow.
        for count in [16, 3, 6] {
            if count * BLOCK < arena.buffers().length {
                let buffers = arena.buffers().first(count * BLOCK);
                ring.follow_buffers(&arena, buffers);
                arena.set_buffers(count);
            } else {
                arena.set_buffers(count);
                ring.follow_buffers(&arena, arena.buffers());
            }
            let last = arena.buffer(engine::BufferId(count as u32 - 1));
            ring.read(3, &arena, &[last], 8192);
            assert_eq!(wait(&mut ring, Tag::Disk(3)), 4096);
            assert!(arena.bytes(last).iter().all(|byte| *byte == 2));
        }

        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ring.send(0, theirs.as_raw_fd(), &arena, &[zero.first(3), two.first(2)]);
        assert_eq!(wait(&mut ring, Tag::Send(0)), 5);
        let mut got = [0; 5];
        ours.read_exact(&mut got).unwrap();
        assert_eq!(got, [1, 1, 1, 2, 2]);
        ours.write_all(b"hello").unwrap();
        ring.receive(0, theirs.as_raw_fd(), &arena, &[zero.first(2), five.first(9)]);
        assert_eq!(wait(&mut ring, Tag::Receive(0)), 5);
        assert_eq!(arena.bytes(zero.first(2)), b"he");
        assert_eq!(arena.bytes(five.first(4)), b"llo\x02");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn tags_read_back() {
        for tag in [Tag::Disk(7), Tag::Receive(0), Tag::Send(u32::MAX), Tag::Accept(1), Tag::WakeUp, Tag::Cancel] {
            assert_eq!(Tag::decode(tag.encode()), tag);
        }
    }
}
