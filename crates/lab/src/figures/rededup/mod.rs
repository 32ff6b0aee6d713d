//! ReDedup (CBD 2013): its figures, and what they do not show.
//!
//! What is the same for all of them: two made populations with days of reads, fitted to Table I and Fig. 2a alone; the drive of docs/disks.md;
//! a plan of one day's reads, measured with the next day's. The long form has a sixteenth of the mail server and a quarter of the research server, the short form an
//! eighth of that.

mod baselines;
mod challenge;
mod chance;
pub mod claims;
mod latency;
mod planner;
mod seeks;
mod sweeps;
mod traces;

use super::Entry;
use super::plot::{Bars, Chart, Line};
use crate::relocation::World;
use crate::relocation::layouts::Layout;
use crate::relocation::measure::{Outcome, measure};
use crate::relocation::planning::{Planned, Planner, relocate};
use crate::relocation::population::Shape;

/// All of them, in the order of the paper.
pub const FIGURES: &[Entry] = &[
    challenge::CHALLENGE,
    traces::TABLE,
    traces::SKEW,
    traces::CONTENT,
    latency::LATENCY,
    seeks::MAIL,
    seeks::RESEARCH,
    seeks::MEAN,
    planner::PLANNER,
    latency::ASSESS,
    baselines::BASELINES,
    sweeps::SWEEPS,
    chance::CHANCE,
];

/// Of the sizes, the short form has one part in so many.
const QUICK_PART: u64 = 8;
/// The paper's two servers.
const SHAPES: [Shape; 2] = [Shape::MAIL, Shape::RESEARCH];

/// A shape, or its short form.
fn sized(shape: Shape, quick: bool) -> Shape {
    if quick { shape.shortened(QUICK_PART) } else { shape }
}

/// A world of two days, the layout that keeps the oldest copies, and the second day on it.
struct Basis {
    world: World,
    oldest: Layout,
    basic: Outcome,
}

impl Basis {
    fn new(shape: Shape) -> Basis {
        let world = World::new(shape, 2);
        let oldest = Layout::oldest(&world.population);
        let basic = measure(&world, &oldest, &world.days[1]);
        Basis { world, oldest, basic }
    }

    /// The second day on another layout.
    fn measure(&self, layout: &Layout) -> Outcome {
        measure(&self.world, layout, &self.world.days[1])
    }

    /// A plan of the first day.
    fn relocate(&self, layout: &Layout, planner: Planner) -> Planned {
        relocate(&self.world.population, layout, &self.world.days[..1], planner)
    }

    /// A plan of the first day, and how much shorter requests of the second are than with the basic layout, in percent.
    fn gain(&self, planner: Planner) -> f64 {
        less(self.measure(&self.relocate(&self.oldest, planner).layout).latency(), self.basic.latency())
    }
}

/// How much less one value is than another, in percent of that.
fn less(value: f64, than: f64) -> f64 {
    100.0 * (1.0 - value / than)
}
