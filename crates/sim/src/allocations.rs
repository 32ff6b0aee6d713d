//! A counter of memory allocations, from which the allocations of each request are computed.
//!
//! A program that needs the counts installs [`Counting`] as its global allocator: the simulator does, and the test that limits the allocations. Elsewhere the
//! count stays unchanged.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of times that this thread has asked for memory, or for more of it.
pub fn count() -> u64 {
    COUNT.get()
}

fn counted() {
    // A thread that ends may free and allocate when its cells are gone.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

/// The system's allocator, with a count beside it.
pub struct Counting;

// Each call is forwarded to the system's allocator unchanged, so its guarantees hold. The count is a cell without a destructor,
// made at compile time: it takes no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        counted();
        // Safety: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        counted();
        // Safety: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        counted();
        // Safety: the caller's.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // Safety: the caller's.
        unsafe { System.dealloc(memory, layout) }
    }
}
