//! Global allocator: that of the system, with large tables in huge pages.
//!
//! The engine's tables (index, ghosts, hash tables) are hundreds of megabytes which are looked into at random. In pages of 4 KiB nearly each look is a miss of
//! the TLB too, which in a virtual machine costs as much again as the look (docs/rfc/0017-waiting-and-batches.md has the figures).

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

use rustix::mm::Advice;

/// Bytes from which on an allocation is in huge pages: it has at least one whole one, wherever it begins.
const LARGE: usize = 2 * HUGE;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// The allocator.
pub struct Heap;

impl Heap {
    /// Asks for huge pages where a large allocation is. A kernel that has none says so, which does not matter.
    fn advise(start: *mut u8, size: usize) {
        if size < LARGE || start.is_null() {
            return;
        }
        let before = start.align_offset(HUGE);
        let length = (size - before) / HUGE * HUGE;
        // SAFETY: the range is within the allocation, which is the caller's; the advice changes none of its contents.
        let _ = unsafe { rustix::mm::madvise(start.wrapping_byte_add(before).cast(), length, Advice::LinuxHugepage) };
    }
}

// SAFETY: memory comes from `System` and goes back to it, with the layouts that the callers give; advice is no change of it.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the one that `System` asks for; so in the other functions.
        let start = unsafe { System.alloc(layout) };
        Heap::advise(start, layout.size());
        start
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: see `alloc`.
        let start = unsafe { System.alloc_zeroed(layout) };
        Heap::advise(start, layout.size());
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: see `alloc`.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: see `alloc`.
        let start = unsafe { System.realloc(start, layout, size) };
        Heap::advise(start, size);
        start
    }
}
