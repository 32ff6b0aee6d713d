//! Allocations of requests in the engine, in the steady state: next to none. docs/internals/performance.md has the limits.

use sim::allocations;
use sim::studies::cost;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// Returns the maximum number of allocations for each request. The lists of I/Os grow to the maximum number in use together. Otherwise only trims
/// allocate, whose ranges are in a tree until the next checkpoint, and creations, whose volumes are in the table.
fn allowed(name: &str) -> f64 {
    match name {
        "4 KiB trim" => 0.15,
        name if name.starts_with("creation of a volume") => 4.0,
        _ => 0.005,
    }
}

/// Maximum number of allocations for a checkpoint of up to 8,192 blocks: its lists, which grow with it, and one for every six pages that it frees.
const FOR_A_CHECKPOINT: u64 = 400;

#[test]
fn requests_allocate_nothing_in_the_steady_state() {
    let before = allocations::count();
    drop(std::hint::black_box(Box::new(7)));
    assert_eq!(allocations::count(), before + 1, "allocations are not counted");

    let counts = cost::paths::count("").unwrap();
    assert!(counts.len() > 20);
    for count in counts {
        if count.name.ends_with("its checkpoint") {
            assert!(count.allocations <= FOR_A_CHECKPOINT, "{count:?}");
        } else {
            assert!(count.allocations_per_request() <= allowed(&count.name), "{count:?}");
        }
    }
}
