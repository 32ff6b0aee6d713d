//! Figures of ReDedup (CBD 2013), and further experiments beyond them.
//!
//! Common setup: two made populations with days of reads, the drive of docs/internals/simulated-disks.md, and a plan of one day's reads. The populations are
//! fitted to Table I and Fig. 2a alone; the newest files are read most. The paper does not say whether it measured the reads of the plan or others. The plan's
//! reads are judged, and the next day's stand beside them. The long form has a sixteenth of the mail server and a quarter of the research server, the short
//! form an eighth of that.

mod baselines;
mod challenge;
mod chance;
pub mod claims;
mod latency;
mod orders;
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
    orders::ORDERS,
];

/// Divisor of the sizes in the short form.
const QUICK_PART: u64 = 8;
/// The paper's two servers.
const SHAPES: [Shape; 2] = [Shape::MAIL, Shape::RESEARCH];

/// Returns a shape, or its short form.
fn sized(shape: Shape, quick: bool) -> Shape {
    if quick { shape.shortened(QUICK_PART) } else { shape }
}

/// Reads that are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    /// Reads of the first day, from which the relocation plan is made.
    Planned,
    /// The next day's.
    Next,
}

impl Reads {
    const ALL: [Reads; 2] = [Reads::Planned, Reads::Next];

    /// Returns the end of a label, behind the name of a server.
    fn suffix(self) -> &'static str {
        match self {
            Reads::Planned => "",
            Reads::Next => ", next day",
        }
    }
}

/// A world of two days, and both on the layout that keeps the oldest copies.
struct Basis {
    world: World,
    oldest: Layout,
    basic: [Outcome; 2],
}

impl Basis {
    fn new(shape: Shape) -> Basis {
        let world = World::new(shape, 2);
        let oldest = Layout::oldest(&world.population);
        let basic = Reads::ALL.map(|reads| measure(&world, &oldest, &world.days[reads as usize]));
        Basis { world, oldest, basic }
    }

    /// Returns the outcome of a day's reads on the layout that keeps the oldest copies, as measured when the basis was created.
    fn basic(&self, reads: Reads) -> &Outcome {
        &self.basic[reads as usize]
    }

    /// Reads on another layout.
    fn measure(&self, layout: &Layout, reads: Reads) -> Outcome {
        measure(&self.world, layout, &self.world.days[reads as usize])
    }

    /// Plans with the reads of the first day.
    fn relocate(&self, layout: &Layout, planner: Planner) -> Planned {
        relocate(&self.world.population, layout, &self.world.days[..1], planner)
    }

    /// Measures how much shorter requests are with a layout than with the basic one, in percent.
    fn less(&self, layout: &Layout, reads: Reads) -> f64 {
        less(self.measure(layout, reads).latency(), self.basic(reads).latency())
    }

    /// Measures by how much requests are shorter after a plan on the basic layout, in percent.
    fn gain(&self, planner: Planner) -> f64 {
        self.less(&self.relocate(&self.oldest, planner).layout, Reads::Planned)
    }
}

/// Lists the servers, and then the servers with the next day's reads.
fn groups() -> Vec<String> {
    let of = |reads: Reads| SHAPES.map(|shape| format!("{}{}", shape.name, reads.suffix()));
    Reads::ALL.map(of).concat()
}

/// Returns the reduction of one value against another, in percent of the latter.
fn less(value: f64, than: f64) -> f64 {
    100.0 * (1.0 - value / than)
}
