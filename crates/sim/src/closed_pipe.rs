//! Handling of a closed output pipe, when the reader of the simulator's output stops: `repro figure list | head`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGPIPE;

/// Makes a write to a closed pipe end the process as it ends other programs, by SIGPIPE and without a word. Rust's runtime ignores the signal,
/// and printing then panics. Sockets are not concerned: they are written without the signal.
///
/// # Errors
///
/// The signal cannot be caught.
pub fn ends_quietly() -> io::Result<()> {
    signal_hook::flag::register_conditional_default(SIGPIPE, Arc::new(AtomicBool::new(true))).map(drop)
}
