//! Arena of all memory that the kernel reads or writes on our behalf: one mapping, divided once.
//!
//! ```text
//! zeroes            only ever read: zero blocks are sent from here
//! wake-up           eight bytes that the event counter is read into
//! connections       a receive area and a header area each; the kernel has given only their used parts
//! staging           metadata pages on their way to and from the store
//! block buffers     the engine's numbered buffers of payload, as many as there can ever be
//! (the last two are registered with the ring: of the buffers, those that exist)
//! ```
//!
//! Buffers come and go with the memory that the server may use: addresses are there for all that the machine has space for, memory only for those in use.
//!
//! Invariants: the mapping is never unmapped or moved, so an address given to the kernel stays good until the process ends, whatever becomes of the I/O. A
//! [`Span`] is checked against the mapping when it is turned into an address or a slice. While an I/O that writes to memory is in flight, no one reads or
//! writes that memory here: the owners of the parts (the engine's free list for buffers, the disk for staging, each connection for its areas) ensure it.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

use engine::BufferId;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes of a block buffer and of a block of staging.
pub const BLOCK: usize = 4096;
/// Bytes of the area of zeroes.
pub const ZEROES: usize = 64 << 10;
/// Bytes that a connection receives into.
pub const RECEIVE_AREA: usize = 64 << 10;
/// Bytes that a connection sends headers from.
pub const HEADER_AREA: usize = 32 << 10;

/// A range of bytes of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// Number of bytes.
    pub length: usize,
}

impl Span {
    /// Returns the offset behind the last byte.
    pub fn end(self) -> usize {
        self.start + self.length
    }

    /// Returns the part from byte `from` on.
    pub fn from(self, from: usize) -> Span {
        assert!(from <= self.length, "a part lies inside its span");
        Span { start: self.start + from, length: self.length - from }
    }

    /// Returns the part of the first `length` bytes.
    pub fn first(self, length: usize) -> Span {
        assert!(length <= self.length, "a part lies inside its span");
        Span { start: self.start, length }
    }
}

/// The memory.
pub struct Arena {
    base: NonNull<u8>,
    size: usize,
    buffers: usize,
    buffers_max: usize,
    staging_blocks: usize,
    connections: usize,
}

impl Arena {
    /// Maps memory for these numbers of block buffers (now, and at most), blocks of staging, and connections.
    pub fn new((buffers, buffers_max): (usize, usize), staging_blocks: usize, connections: usize) -> io::Result<Arena> {
        assert!(buffers <= buffers_max, "there are no more buffers than there can be");
        let others = ZEROES + BLOCK + connections * (RECEIVE_AREA + HEADER_AREA);
        let size = others + (staging_blocks + buffers_max) * BLOCK;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no memory that exists.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        // SAFETY: the advice covers a part of the mapping just made and does not change its contents. It is only advice:
        // that it may fail (no huge pages in this kernel) does not matter.
        let _ = unsafe { rustix::mm::madvise(base.byte_add(others), size - others, Advice::LinuxHugepage) };
        // SAFETY: as above. Huge pages would give every silent connection the memory of a busy one.
        let _ = unsafe { rustix::mm::madvise(base, others, Advice::LinuxNoHugepage) };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Arena { base, size, buffers, buffers_max, staging_blocks, connections })
    }

    /// Returns the number of connections that there is space for.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Returns the span of a block buffer.
    pub fn buffer(&self, buffer: BufferId) -> Span {
        assert!((buffer.0 as usize) < self.buffers, "the engine numbers its buffers below its limit");
        Span { start: self.buffers_start() + buffer.0 as usize * BLOCK, length: BLOCK }
    }

    /// Returns the span of `blocks` blocks of staging from block `first` on.
    pub fn staging(&self, first: usize, blocks: usize) -> Span {
        assert!(first + blocks <= self.staging_blocks, "staging is allocated inside its area");
        Span { start: self.staging_start() + first * BLOCK, length: blocks * BLOCK }
    }

    fn staging_start(&self) -> usize {
        self.zeroes().end() + BLOCK + self.connections * (RECEIVE_AREA + HEADER_AREA)
    }

    fn buffers_start(&self) -> usize {
        self.staging_start() + self.staging_blocks * BLOCK
    }

    /// Returns the span of the whole staging area.
    pub fn all_staging(&self) -> Span {
        self.staging(0, self.staging_blocks)
    }

    /// Returns the span of all buffers that there are now.
    pub fn buffers(&self) -> Span {
        Span { start: self.buffers_start(), length: self.buffers * BLOCK }
    }

    /// Returns the greatest number of buffers that there can be.
    pub fn buffers_max(&self) -> usize {
        self.buffers_max
    }

    /// Sets the number of buffers, at most [`Arena::buffers_max`]. Gives back the memory of those that go: no I/O may use it any more.
    pub fn set_buffers(&mut self, count: usize) {
        assert!(count <= self.buffers_max, "there are no more buffers than there can be");
        let before = self.buffers();
        self.buffers = count;
        if self.buffers().end() < before.end() {
            let gone = Span { start: self.buffers().end(), length: before.end() - self.buffers().end() };
            // SAFETY: the span lies inside the mapping (checked by `address`) and is whole pages; these buffers have no owner any more, so no I/O uses them,
            // and `&mut self` says that no reference into the arena exists.
            let _ = unsafe { rustix::mm::madvise(self.address(gone).cast(), gone.length, Advice::LinuxDontNeed) };
        }
    }

    /// Returns the span of zeroes, to be read only.
    pub fn zeroes(&self) -> Span {
        Span { start: 0, length: ZEROES }
    }

    /// Returns the 8 bytes that the event counter is read into.
    pub fn wake_up(&self) -> Span {
        Span { start: self.zeroes().end(), length: 8 }
    }

    /// Returns the area that a connection receives into.
    pub fn receive_area(&self, connection: usize) -> Span {
        assert!(connection < self.connections, "connections are numbered below their limit");
        let first = self.zeroes().end() + BLOCK;
        Span { start: first + connection * (RECEIVE_AREA + HEADER_AREA), length: RECEIVE_AREA }
    }

    /// Returns the area that a connection's headers are sent from.
    pub fn header_area(&self, connection: usize) -> Span {
        Span { start: self.receive_area(connection).end(), length: HEADER_AREA }
    }

    /// Gives the memory of a connection's areas back: it reads as zeroes from here on. Nothing may be in flight there.
    pub fn forget(&mut self, connection: usize) {
        let (receive, headers) = (self.receive_area(connection), self.header_area(connection));
        let areas = Span { start: receive.start, length: headers.end() - receive.start };
        // SAFETY: the areas lie inside the mapping (checked by `address`) and are whole pages; they belong to this
        // connection alone, no I/O uses them, and `&mut self` says that no reference into the arena exists.
        let _ = unsafe { rustix::mm::madvise(self.address(areas).cast(), areas.length, Advice::LinuxDontNeed) };
    }

    /// Returns the address of a span, for the kernel.
    pub fn address(&self, span: Span) -> *mut u8 {
        assert!(span.start <= self.size && span.length <= self.size - span.start, "a span lies inside the arena");
        // SAFETY: the offset is inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(span.start) }
    }

    /// Borrows the bytes of a span; no I/O in flight may write to them.
    pub fn bytes(&self, span: Span) -> &[u8] {
        // SAFETY: the range is inside the mapping (checked by `address`), which is initialised (the kernel gives zeroes), lives as long as the process, and is
        // changed by us only through `&mut self`. No I/O that is in flight writes to it: that is the invariant of the module, and no reference outlives the
        // call that returned it.
        unsafe { std::slice::from_raw_parts(self.address(span), span.length) }
    }

    /// Borrows the bytes of a span for changes; they must not be among the zeroes.
    pub fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        assert!(span.end() <= self.zeroes().start || span.start >= self.zeroes().end(), "the zeroes stay zeroes");
        // SAFETY: as in `bytes`; `&mut self` makes this the only reference into the arena.
        unsafe { std::slice::from_raw_parts_mut(self.address(span), span.length) }
    }

    /// Writes the bytes of one span over another of the same length; the two may overlap.
    pub fn copy(&mut self, from: Span, into: Span) {
        assert!(from.length == into.length, "a copy is as long as its source");
        assert!(into.end() <= self.zeroes().start || into.start >= self.zeroes().end(), "the zeroes stay zeroes");
        // SAFETY: both ranges are inside the mapping (checked by `address`); `copy` allows them to overlap; else as in
        // `bytes` and `bytes_mut`.
        unsafe { std::ptr::copy(self.address(from), self.address(into), from.length) }
    }

    /// Borrows two different block buffers, the first for changes.
    pub fn buffer_pair(&mut self, into: BufferId, from: BufferId) -> (&mut [u8], &[u8]) {
        assert!(into != from, "a block is merged with another one");
        let (into, from) = (self.buffer(into), self.buffer(from));
        // SAFETY: both are inside the mapping, and different buffers do not overlap; else as in `bytes` and `bytes_mut`.
        unsafe {
            (
                std::slice::from_raw_parts_mut(self.address(into), into.length),
                std::slice::from_raw_parts(self.address(from), from.length),
            )
        }
    }
}

/// Returns the allocator's memory of freed tables to the system. (Its own threshold for that grows with the tables that it has seen.)
pub fn give_heap_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call touches only memory that the allocator owns and that is not allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_do_not_overlap() {
        let mut arena = Arena::new((3, 5), 2, 2).unwrap();
        let mut parts = vec![arena.zeroes(), arena.wake_up()];
        for connection in 0..2 {
            parts.extend([arena.receive_area(connection), arena.header_area(connection)]);
        }
        parts.extend([arena.staging(0, 1), arena.staging(1, 1), arena.buffer(BufferId(0)), arena.buffer(BufferId(2))]);
        for pair in parts.windows(2) {
            assert!(pair[0].end() <= pair[1].start, "{pair:?}");
        }
        let zeroes = arena.zeroes();
        for (mark, part) in parts.iter().enumerate().filter(|(_, part)| **part != zeroes) {
            arena.bytes_mut(*part).fill(mark as u8);
        }
        assert!(crate::io::digest::is_zero(arena.bytes(arena.zeroes())));
        let (into, from) = arena.buffer_pair(BufferId(1), BufferId(2));
        into.copy_from_slice(from);
        assert!(arena.bytes(arena.buffer(BufferId(1))).iter().all(|byte| usize::from(*byte) == parts.len() - 1));
    }

    #[test]
    fn what_a_connection_forgets_is_its_own() {
        let mut arena = Arena::new((1, 1), 1, 3).unwrap();
        for connection in 0..3 {
            arena.bytes_mut(arena.receive_area(connection)).fill(7);
            arena.bytes_mut(arena.header_area(connection)).fill(7);
        }
        arena.forget(1);
        for connection in 0..3 {
            for area in [arena.receive_area(connection), arena.header_area(connection)] {
                assert!(arena.bytes(area).iter().all(|byte| *byte == if connection == 1 { 0 } else { 7 }));
            }
        }
    }

    #[test]
    #[should_panic(expected = "inside the arena")]
    fn a_span_outside_is_caught() {
        let arena = Arena::new((1, 1), 1, 1).unwrap();
        let end = arena.buffer(BufferId(0)).end();
        arena.bytes(Span { start: end, length: 1 });
    }

    #[test]
    fn buffers_come_and_go() {
        let mut arena = Arena::new((4, 8), 1, 1).unwrap();
        let fill = |arena: &mut Arena, number, value| {
            let span = arena.buffer(BufferId(number));
            arena.bytes_mut(span).fill(value);
        };
        fill(&mut arena, 1, 7);
        fill(&mut arena, 3, 7);
        arena.set_buffers(2);
        arena.set_buffers(8);
        fill(&mut arena, 7, 7);
        assert!(arena.bytes(arena.buffer(BufferId(1))).iter().all(|byte| *byte == 7));
        assert!(crate::io::digest::is_zero(arena.bytes(arena.buffer(BufferId(3)))), "its memory was given back");
    }
}
