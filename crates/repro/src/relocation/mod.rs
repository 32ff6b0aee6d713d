//! Simulation of files that share blocks, read from a hard disk: the read time of each block layout. The engine's planner (`engine::relocation`) is compared
//! with the layouts of others (ReDedup, CBD 2013).
//!
//! A [`World`] has a population of files and days of reads, both made, fitted to ReDedup's Table I and Fig. 2a alone. A layout has the place of each block of
//! each file; equal places are shared blocks. A plan is made from one day's reads and measured with the next day's.
//!
//! Invariants: all is a function of the shape alone; a layout never changes the content of a file. `figures/rededup` calls it; docs/papers/rededup.md has the
//! results.

pub mod layouts;
pub mod measure;
pub mod planning;
pub mod population;
pub mod reads;
#[cfg(test)]
mod tests;

use population::{Population, Shape};
use reads::{Request, days};

/// Files, and their reads.
pub struct World {
    /// Parameters of the population and its reads.
    pub shape: Shape,
    /// Files of a server, with the content of each of their blocks, before and after overwriting.
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
