//! Relocation: the choice of shared blocks that should lie together, and of the object that profits (ReDedup, CBD 2013).
//!
//! A block that several objects share can lie in order for only one of them. The three steps of the paper choose that one:
//!
//! 1. [`profile`]: runs of device reads, by slot and object, in bounded memory.
//! 2. [`assess`]: the gain of an object from lying in order (its randomness R), and the cost to the others (its sharing S).
//!    Objects that consist of the same slots in the same order count as one there ([`clones`]).
//! 3. [`plan`]: the objects one after another, best first. Each moves only blocks that no earlier one has moved.
//!
//! [`forecast`] then counts the device reads of a profile before and after a plan.
//!
//! An *object* is a unit of reading: a file of a trace, a file of a guest by a manifest ([`objects`]), a stream, a volume. The caller says which.
//!
//! It owns no state of the pool and moves nothing. All of it is a pure function of its arguments, in integers alone; nothing here is quadratic. What
//! must hold: a plan moves each slot once at most; every slot that it moves is in the given contents.
//!
//! Its callers: the engine notes reads in a [`profiling::Profiling`] while it is told to, the program makes plans of them (`onefold relocate`), and
//! the simulator measures plans (`repro figure rededup-*`): docs/papers/rededup.md. The job that runs a plan knows only slots in an order
//! (`jobs/relocate/`).

pub mod assess;
pub mod clones;
pub mod forecast;
mod labels;
pub mod objects;
pub mod plan;
pub mod profile;
pub mod profiling;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

/// The number of an object. The caller gives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Object(pub u32);

/// Blocks that were read one after another from the device for one object. 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Run {
    /// The first slot.
    pub slot: u64,
    /// Number of blocks; at least 1.
    pub blocks: u32,
    /// Object that the run was read for.
    pub object: Object,
}

impl Run {
    /// Returns the slot behind the last.
    pub fn end(&self) -> u64 {
        self.slot + u64::from(self.blocks)
    }

    /// Returns the slots, without the object.
    pub fn extent(&self) -> Extent {
        Extent { slot: self.slot, blocks: u64::from(self.blocks) }
    }
}

/// Slots in a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    /// The first slot.
    pub slot: u64,
    /// Number of slots; at least 1.
    pub blocks: u64,
}

impl Extent {
    /// Returns the slot behind the last.
    pub fn end(&self) -> u64 {
        self.slot + self.blocks
    }
}

/// Slots that an object consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    /// The object.
    pub object: Object,
    /// Its slots in the order in which it is read.
    pub extents: Vec<Extent>,
}

/// Adds an extent to a list; it joins the last one if it follows it.
fn push(extents: &mut Vec<Extent>, extent: Extent) {
    match extents.last_mut() {
        Some(last) if last.end() == extent.slot => last.blocks += extent.blocks,
        _ => extents.push(extent),
    }
}
