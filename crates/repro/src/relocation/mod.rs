//! Files that share blocks, read from a hard disk: how long it takes with each way to lay the blocks out. The engine's planner
//! (`engine::relocation`) stands beside the layouts of others.
//!
//! A [`World`] has a population of files and days of reads, both made, fitted to ReDedup's Table I and Fig. 2a alone. A layout says for each block of each
//! file where it lies; equal places are shared blocks. A plan that is made of one day's reads is measured with the next day's.
//!
//! What must hold: all is a function of the shape alone; a layout never changes what a file contains. Called by `figures/rededup`;
//! docs/relocation.md says what comes out.

pub mod layouts;
pub mod measure;
pub mod planning;
pub mod population;
pub mod reads;
#[cfg(test)]
mod tests;

use population::{Population, Shape};
use reads::{Request, days};

/// Files, and what is read of them.
pub struct World {
    /// As it was made.
    pub shape: Shape,
    /// The files.
    pub population: Population,
    /// Reads by day.
    pub days: Vec<Vec<Request>>,
}

impl World {
    /// Creates a population with `count` days of reads.
    pub fn new(shape: Shape, count: usize) -> World {
        let population = Population::new(&shape);
        let days = days(&shape, &population, count);
        World { shape, population, days }
    }
}
