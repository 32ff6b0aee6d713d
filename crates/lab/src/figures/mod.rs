//! Pictures of what was measured.

pub mod plot;
