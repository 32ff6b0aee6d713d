//! Trace replay in virtual time over disk models, by scheme.
//!
//! ```text
//! trace -> warm (days without disk) -> in_place: request -> plan -> driver: processor, lookups, disk -> outcome
//! ```

pub mod command;
pub mod driver;
pub mod in_place;
pub mod lru;
pub mod onefold;
pub mod outcome;
pub mod rebuilds;
pub mod scheme;
pub mod sparse;
#[cfg(test)]
mod tests;
