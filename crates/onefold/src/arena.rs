//! All memory that the kernel reads or writes on our behalf: one mapping, divided once.
//!
//! ```text
//! block buffers     the engine's numbered buffers of payload
//! staging           metadata pages on their way to and from the store
//! (the two above are registered with the ring)
//! zeroes            only ever read: what zero blocks are sent from
//! wake-up           eight bytes that the event counter is read into
//! connections       a receive area and a header area each, of which the kernel has given only what was used
//! ```
//!
//! Invariants: the mapping is never unmapped or moved, so an address given to the kernel stays good until the process ends,
//! whatever becomes of the I/O. A [`Span`] is checked against the mapping when it is turned into an address or a slice.
//! While an I/O that writes to memory is in flight, no one reads or writes that memory here: the owners of the parts (the
//! engine's free list for buffers, the disk for staging, each connection for its areas) see to it.
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
    /// One past the last byte.
    pub fn end(self) -> usize {
        self.start + self.length
    }

    /// The part from byte `from` on.
    pub fn from(self, from: usize) -> Span {
        assert!(from <= self.length, "a part lies inside its span");
        Span { start: self.start + from, length: self.length - from }
    }

    /// The first `length` bytes.
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
    staging_blocks: usize,
    connections: usize,
}

impl Arena {
    /// Maps memory for so many block buffers, blocks of staging and connections.
    pub fn new(buffers: usize, staging_blocks: usize, connections: usize) -> io::Result<Arena> {
        let size = (buffers + staging_blocks) * BLOCK + ZEROES + BLOCK + connections * (RECEIVE_AREA + HEADER_AREA);
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no memory that exists.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let registered = (buffers + staging_blocks) * BLOCK;
        // SAFETY: the advice covers a part of the mapping just made and does not change its contents. It is only advice:
        // that it may fail (no huge pages in this kernel) does not matter.
        let _ = unsafe { rustix::mm::madvise(base, registered, Advice::LinuxHugepage) };
        // SAFETY: as above. Huge pages would give every silent connection the memory of a busy one.
        let _ = unsafe { rustix::mm::madvise(base.byte_add(registered), size - registered, Advice::LinuxNoHugepage) };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Arena { base, size, buffers, staging_blocks, connections })
    }

    /// Number of connections that there is room for.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// A block buffer.
    pub fn buffer(&self, buffer: BufferId) -> Span {
        assert!((buffer.0 as usize) < self.buffers, "the engine numbers its buffers below its limit");
        Span { start: buffer.0 as usize * BLOCK, length: BLOCK }
    }

    /// Blocks of staging, from one on.
    pub fn staging(&self, first: usize, blocks: usize) -> Span {
        assert!(first + blocks <= self.staging_blocks, "staging is allocated inside its area");
        Span { start: (self.buffers + first) * BLOCK, length: blocks * BLOCK }
    }

    /// What is registered with the ring: buffers and staging.
    pub fn registered(&self) -> Span {
        Span { start: 0, length: (self.buffers + self.staging_blocks) * BLOCK }
    }

    /// Zeroes, to be read only.
    pub fn zeroes(&self) -> Span {
        Span { start: self.registered().end(), length: ZEROES }
    }

    /// What the event counter is read into.
    pub fn wake_up(&self) -> Span {
        Span { start: self.zeroes().end(), length: 8 }
    }

    /// Where a connection receives.
    pub fn receive_area(&self, connection: usize) -> Span {
        assert!(connection < self.connections, "connections are numbered below their limit");
        let first = self.zeroes().end() + BLOCK;
        Span { start: first + connection * (RECEIVE_AREA + HEADER_AREA), length: RECEIVE_AREA }
    }

    /// Where a connection's headers are sent from.
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

    /// The address of a span, for the kernel.
    pub fn address(&self, span: Span) -> *mut u8 {
        assert!(span.start <= self.size && span.length <= self.size - span.start, "a span lies inside the arena");
        // SAFETY: the offset is inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(span.start) }
    }

    /// The bytes of a span.
    pub fn bytes(&self, span: Span) -> &[u8] {
        // SAFETY: the range is inside the mapping (checked by `address`), which is initialised (the kernel gives zeroes),
        // lives as long as the process, and is changed by us only through `&mut self`. No I/O that is in flight writes to
        // it: that is the invariant of the module, and no reference outlives the call that asked for it.
        unsafe { std::slice::from_raw_parts(self.address(span), span.length) }
    }

    /// The bytes of a span, to be changed.
    pub fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        assert!(span.end() <= self.zeroes().start || span.start >= self.zeroes().end(), "the zeroes stay zeroes");
        // SAFETY: as in `bytes`; `&mut self` makes this the only reference into the arena.
        unsafe { std::slice::from_raw_parts_mut(self.address(span), span.length) }
    }

    /// Copies bytes from one span to another of the same length.
    pub fn copy(&mut self, from: Span, into: Span) {
        assert!(from.length == into.length, "a copy is as long as its source");
        assert!(into.end() <= self.zeroes().start || into.start >= self.zeroes().end(), "the zeroes stay zeroes");
        // SAFETY: both ranges are inside the mapping (checked by `address`); `copy` allows them to overlap; else as in
        // `bytes` and `bytes_mut`.
        unsafe { std::ptr::copy(self.address(from), self.address(into), from.length) }
    }

    /// Two different block buffers, the first to be changed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_do_not_overlap() {
        let mut arena = Arena::new(3, 2, 2).unwrap();
        let mut parts = vec![
            arena.buffer(BufferId(0)),
            arena.buffer(BufferId(2)),
            arena.staging(0, 1),
            arena.staging(1, 1),
            arena.zeroes(),
            arena.wake_up(),
        ];
        for connection in 0..2 {
            parts.extend([arena.receive_area(connection), arena.header_area(connection)]);
        }
        for pair in parts.windows(2) {
            assert!(pair[0].end() <= pair[1].start, "{pair:?}");
        }
        let zeroes = arena.zeroes();
        for (mark, part) in parts.iter().enumerate().filter(|(_, part)| **part != zeroes) {
            arena.bytes_mut(*part).fill(mark as u8);
        }
        assert!(crate::digest::is_zero(arena.bytes(arena.zeroes())));
        let (into, from) = arena.buffer_pair(BufferId(1), BufferId(2));
        into.copy_from_slice(from);
        assert!(arena.bytes(arena.buffer(BufferId(1))).iter().all(|byte| *byte == 1));
    }

    #[test]
    fn what_a_connection_forgets_is_its_own() {
        let mut arena = Arena::new(1, 1, 3).unwrap();
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
        let arena = Arena::new(1, 1, 1).unwrap();
        let end = arena.header_area(0).end();
        arena.bytes(Span { start: end, length: 1 });
    }
}
