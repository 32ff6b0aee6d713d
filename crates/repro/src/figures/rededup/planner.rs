//! Figure of the planning time (Fig. 9).

use std::time::Instant;

use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{Chart, Line, sized};
use crate::relocation::World;
use crate::relocation::layouts::Layout;
use crate::relocation::planning::{Planner, relocate};
use crate::relocation::population::Shape;

pub(super) const PLANNER: Entry = Entry {
    name: "rededup-planner",
    about: "ReDedup fig. 9: time of the planner for each day, research",
    runs: Vec::new,
    make: planner,
};

const DAYS: usize = 7;

fn planner(results: &Results) -> Figure {
    let world = World::new(sized(Shape::RESEARCH, results.quick), DAYS);
    let oldest = Layout::oldest(&world.population);
    let (mut rows, mut days) = (Vec::new(), Vec::new());
    let mut series = Vec::new();
    for (name, planner) in [("as printed", Planner::PRINTED), ("ours", Planner::OURS)] {
        let mut points = Vec::new();
        for day in 0..DAYS {
            let begun = Instant::now();
            let planned = relocate(&world.population, &oldest, &world.days[day..=day], planner);
            let seconds = begun.elapsed().as_secs_f64();
            // The limit is half an hour for the whole server; the made part gets its share of that.
            let most = 1800.0 / world.shape.part as f64;
            let label = format!("{name}, day {}", day + 1);
            let row = Row::new(format!("research, {label}"), "s", seconds);
            days.push((label, seconds < most));
            rows.push(row.note(format!("{} runs, {} candidates", planned.runs, planned.plan.candidates)));
            points.push(((day + 1) as f64, seconds));
        }
        series.push(Line::new(name, points));
    }
    rows.push(Row::every("rededup-planner/time", days));
    Figure {
        name: "rededup-planner",
        source: "ReDedup fig. 9",
        title: "time of the planner".into(),
        rows,
        chart: Chart::lines("Time of the planner", ("day of the week", "seconds"), series),
        notes: vec![
            "Real time on the machine that made the figure: profile, assessment, plan and the new layout in memory. Moving is not part of it.".into(),
        ],
    }
}
