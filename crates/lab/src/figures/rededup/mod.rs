//! ReDedup (CBD 2013): its figures, and what they do not show.
//!
//! What is the same for all of them: two made populations with days of reads, fitted to Table I and Fig. 2a alone; the drive of docs/disks.md;
//! a plan of one day's reads, measured with the next day's. The long form has a sixteenth of the mail server and a quarter of the research server, the short form an
//! eighth of that. Bands: the paper's gains as `gain_band` has them, stated before anything ran; a statement holds or does not.

mod baselines;
mod challenge;
mod latency;
mod planner;
mod seeks;
mod sweeps;
mod traces;

use super::Entry;
use super::plot::{COLOURS, Chart, Drawn, Line, round_up};
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

/// Lines over an x axis.
fn lines(title: &str, (x_label, y_label): (&str, &str), series: Vec<(String, Vec<(f64, f64)>)>) -> Chart {
    let points = || series.iter().flat_map(|(_, points)| points);
    let left = points().map(|point| point.0).fold(f64::MAX, f64::min);
    let right = points().map(|point| point.0).fold(f64::MIN, f64::max);
    let highest = points().map(|point| point.1).fold(0.0, f64::max);
    let lowest = points().map(|point| point.1).fold(0.0, f64::min);
    let line = |(at, (name, points)): (usize, (String, Vec<(f64, f64)>))| Line {
        name,
        colour: COLOURS[at % COLOURS.len()],
        dashed: at >= COLOURS.len(),
        marked: points.len() < 20,
        points,
    };
    Chart {
        title: title.into(),
        x_label: x_label.into(),
        y_label: y_label.into(),
        y: (if lowest < 0.0 { -round_up(-lowest) } else { 0.0 }, round_up(highest)),
        log: false,
        content: Drawn::Lines {
            x: if left < right { (left, right) } else { (0.0, 1.0) },
            bands: Vec::new(),
            lines: series.into_iter().enumerate().map(line).collect(),
        },
    }
}

/// A name, a bar in each group, and the paper's value beside it.
type Series<'a> = (&'a str, Vec<f64>, Vec<Option<f64>>);

/// Bars in groups; some have a paper's value beside them.
fn bars(title: &str, y_label: &str, groups: Vec<String>, series: Vec<Series<'_>>) -> Chart {
    let values = || {
        series.iter().flat_map(|(_, heights, papers)| heights.iter().copied().chain(papers.iter().flatten().copied()))
    };
    let (highest, lowest) = (values().fold(0.0, f64::max), values().fold(0.0, f64::min));
    let made = series.into_iter().enumerate().map(|(at, (name, heights, papers))| super::plot::Bars {
        name: name.into(),
        colour: COLOURS[at % COLOURS.len()],
        papers: if papers.is_empty() { vec![None; heights.len()] } else { papers },
        heights,
    });
    Chart {
        title: title.into(),
        x_label: String::new(),
        y_label: y_label.into(),
        y: (if lowest < 0.0 { -round_up(-lowest) } else { 0.0 }, round_up(highest.max(0.1))),
        log: false,
        content: Drawn::Bars { groups, series: made.collect() },
    }
}
