//! Whether the pool serves, and what it is on its way to.

/// What the engine is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Recovering,
    Serving,
    /// A command to close came: finishing.
    Closing,
    Closed,
    /// Opening failed.
    Dead,
}
