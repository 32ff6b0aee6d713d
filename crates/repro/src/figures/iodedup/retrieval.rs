//! Figure of replica retrieval by rate, queue depth, tracked places and time of the choice.

use super::super::runs::Results;
use super::super::{Data, Entry, Figure, Row};
use super::table::setup;
use super::{Chart, Line, Scale, image, is_more, sized, trace};
use crate::io_deduplication::copies::{READS, queued};
use crate::io_deduplication::image::similarity;
use crate::io_deduplication::replay::{Choice, Outcome, Setup, Tracker, replay};
use crate::io_deduplication::workload::Shape;
use sim::parallel::{cores, in_order};

pub(super) const RETRIEVAL: Entry = Entry {
    name: "iodedup-retrieval",
    about: "I/O Deduplication, replica retrieval: service and response by pace, depth, knowledge and moment of the choice",
    runs: Vec::new,
    make: retrieval,
};

/// Requests that wait, the one being served among them.
const DEPTHS: [u64; 6] = [1, 2, 4, 8, 16, 32];
/// Copies, and when one is chosen.
const CHOICES: [(&str, u64, Choice); 5] = [
    ("one copy", 1, Choice::Arrival),
    ("nearest of 3, when it comes", 3, Choice::Arrival),
    ("nearest of 3, at dispatch", 3, Choice::Dispatch),
    ("nearest of 11, when it comes", 11, Choice::Arrival),
    ("nearest of 11, at dispatch", 11, Choice::Dispatch),
];

/// Factors of the rate, against that of the week.
const PACES: [u64; 3] = [1, 10, 100];
/// Tracked places, and the time of the choice; the first has no retrieval. No cache, no duplication.
const WAYS: [(&str, Option<(Tracker, Choice)>); 5] = [
    ("vanilla", None),
    ("places that went by", Some((Tracker::Seen, Choice::Arrival))),
    ("the disk known", Some((Tracker::Disk, Choice::Arrival))),
    ("places that went by, at dispatch", Some((Tracker::Seen, Choice::Dispatch))),
    ("the disk known, at dispatch", Some((Tracker::Disk, Choice::Dispatch))),
];

/// Returns the reduction of a value against another, in percent of the latter.
fn less(value: f64, than: f64) -> f64 {
    100.0 * (1.0 - value / than)
}

fn retrieval(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let series = of_depths(results.quick, &mut rows);
    of_weeks(results.quick, &mut rows);
    Figure {
        name: "iodedup-retrieval",
        source: "I/O Deduplication, dynamic replica retrieval",
        title: "the nearest copy, by the depth of the queue".into(),
        rows,
        chart: Chart::lines("Reads of 4 KiB anywhere on the disk", ("requests waiting", "service of a read in ms"), series)
            .scale_x(Scale::Binary),
        notes: vec![
            "Chart: a closed loop, C-LOOK, copies anywhere; chosen when a request comes by the end of the last read that has completed, as in the slides, or at dispatch by the scheduler, over the copies of \
             all that wait. Weeks: no cache and no duplication, the table's drive, at most 128 commands in progress. Depth: commands that a read of the disk finds there. Gains are of \
             service, the time in which the disk works on reads."
                .into(),
            "A tracker that knows the disk has places of all contents that lie there before the week: of each content that is read as many as the slides' static similarity in the mean, at \
             places that nobody reads or writes. The slides' own tables have space for four places of each cached page."
                .into(),
        ],
    }
}

fn of_depths(quick: bool, rows: &mut Vec<Row>) -> Vec<Line> {
    let reads = if quick { READS / 4 } else { READS };
    let count = CHOICES.len() as u64;
    let found = in_order(cores(), DEPTHS.len() as u64 * count, |at| {
        let (_, copies, choice) = CHOICES[(at % count) as usize];
        queued(copies, DEPTHS[(at / count) as usize], choice, reads)
    });
    let mut series: Vec<Vec<(f64, f64)>> = vec![Vec::new(); CHOICES.len()];
    let (mut deep, mut at_eight) = (Vec::new(), 0.0);
    for (depth, times) in DEPTHS.into_iter().zip(found.chunks(CHOICES.len())) {
        for (((name, ..), &time), points) in CHOICES.iter().zip(times).zip(&mut series) {
            let row = Row::new(format!("{depth} waiting, {name}: service of a read"), "ms", time).of(Data::Model);
            rows.push(row.note(format!("{:.1} % less than of one copy", less(time, times[0]))));
            points.push((depth as f64, time));
        }
        let gain = less(times[1], times[0]);
        if depth == 1 {
            rows.push(Row::statement("iodedup-retrieval/one", gain >= 20.0).of(Data::Model));
        }
        if depth == 8 {
            at_eight = less(times[2], times[1]);
        }
        if depth >= 8 {
            deep.push((format!("{depth} waiting"), gain < 5.0));
        }
    }
    rows.push(Row::every("iodedup-retrieval/eight", deep).of(Data::Model));
    rows.push(Row::statement("iodedup-retrieval/dispatch", at_eight >= 5.0).of(Data::Model));
    CHOICES.iter().zip(series).map(|((name, ..), points)| Line::new(*name, points)).collect()
}

fn of_weeks(quick: bool, rows: &mut Vec<Row>) {
    let shapes = Shape::ALL.map(|shape| sized(shape, quick));
    let weeks = shapes.map(trace);
    let images = std::array::from_fn::<_, 3, _>(|at| image(shapes[at], &weeks[at]));
    let (ways, paces) = (WAYS.len() as u64, PACES.len() as u64);
    let outcomes = in_order(cores(), 3 * paces * ways, |at| {
        let (shape, pace, way) = ((at / ways / paces) as usize, at / ways % paces, at % ways);
        let retrieval = WAYS[way as usize].1;
        let (tracker, choice) = retrieval.unwrap_or((Tracker::Seen, Choice::Arrival));
        let plain = setup(shapes[shape], 0);
        let setup = Setup { retrieval: retrieval.is_some(), tracker, choice, speed: PACES[pace as usize], ..plain };
        replay(&weeks[shape], &images[shape], &setup)
    });
    let (mut disk, mut pace_falls, mut chosen) = (Vec::new(), Vec::new(), Vec::new());
    for ((shape, image), outcomes) in shapes.into_iter().zip(&images).zip(outcomes.chunks(PACES.len() * WAYS.len())) {
        let name = shape.name();
        rows.push(Row::new(format!("{name}: mean places of a content on the disk"), "", similarity(image)));
        let mut gains = Vec::new();
        for (pace, outcomes) in PACES.into_iter().zip(outcomes.chunks(WAYS.len())) {
            let vanilla = outcomes[0].service_ms();
            for ((way, _), outcome) in WAYS.iter().zip(outcomes) {
                of_way(&format!("{name}, {pace} times the pace, {way}"), outcome, vanilla, rows);
            }
            let gain = less(outcomes[2].service_ms(), vanilla);
            gains.push(gain);
            if pace == 1 {
                disk.push((name, gain >= 10.0));
            }
            if pace == 100 {
                chosen.push((name, less(outcomes[4].service_ms(), outcomes[2].service_ms()) >= 1.0));
            }
        }
        pace_falls.push((name, is_more(gains[0], gains[2])));
    }
    rows.push(Row::every("iodedup-retrieval/disk", disk));
    rows.push(Row::every("iodedup-retrieval/pace", pace_falls));
    rows.push(Row::every("iodedup-retrieval/choice", chosen));
}

fn of_way(label: &str, outcome: &Outcome, vanilla: f64, rows: &mut Vec<Row>) {
    let reads = outcome.commands.max(1) as f64;
    let note = format!(
        "{:.1} % less than vanilla; {:.1} % of {} reads of the disk at another location; mean distance {:.1} GB; of a read {:.2} ms of seek and {:.2} ms of rotation; \
         {:.1} % merged with the one before or read ahead by the drive; disk busy {:.0} %",
        less(outcome.service_ms(), vanilla),
        100.0 * outcome.redirected as f64 / reads,
        outcome.commands,
        outcome.distance as f64 * 4096.0 / 1e9 / reads,
        outcome.seek as f64 / 1e6 / reads,
        outcome.rotation as f64 / 1e6 / reads,
        100.0 * outcome.buffered as f64 / reads,
        outcome.busy_percent(),
    );
    rows.push(Row::new(format!("{label}: service of a read of the disk"), "ms", outcome.service_ms()).note(note));
    rows.push(Row::new(format!("{label}: response of a read"), "ms", outcome.response_ms()));
    rows.push(Row::new(format!("{label}: commands there when a read of the disk comes"), "", outcome.mean_depth()));
}
