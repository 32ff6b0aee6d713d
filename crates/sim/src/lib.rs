//! The simulator: the engine, unchanged, in virtual time over a simulated disk, with crashes at every I/O.
//!
//! A run is a pure function of (config, seed): nothing here reads a clock, spawns a thread or iterates a container in an order that is not fixed. (`parallel`
//! runs many runs at once, each in one thread, and `scale` makes its pools with all cores; the results do not depend on the division of work.) Two safety
//! nets judge a run: [`oracle::model`] knows the exact set of contents that each block may legally have, and the engine's own audit accounts for its whole
//! state whenever it is idle.

pub mod allocations;
pub mod closed_pipe;
pub mod content;
pub mod disks;
pub mod document;
pub mod fuzz;
pub mod oracle;
pub mod parallel;
pub mod random;
pub mod rerun;
pub mod runs;
pub mod studies;
pub mod timed;
pub mod transcript;
pub mod world;

use std::fmt;

/// Violation that a run found, in words that name the place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// Result of an operation that may find a violation.
pub type Checked<T = ()> = Result<T, Violation>;

/// Returns a violation, as the error of a [`Checked`].
pub fn violated<T>(text: impl Into<String>) -> Checked<T> {
    Err(Violation(text.into()))
}

/// Executes `work` and turns a panic (of the engine: an assertion is a finding like any other) into a violation.
pub fn guarded<T>(work: impl FnOnce() -> Checked<T>) -> Checked<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|cause| {
        let text = cause
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_string()))
            .unwrap_or_else(|| "of unknown cause".to_string());
        violated(format!("panic: {text}"))
    })
}
