//! Controller comparison that is not in the paper: its controller and ours beside both static timings, at rates from a fifth to twice the inline throughput.
//!
//! Each rate is written for 8 GiB, after 8 GiB at a fifth of the inline throughput, and followed by the same. Ours may miss a reachable goal for ten seconds a
//! phase, and takes at most as much extra space as the preset. Where inline can do the rate, both hold at 0.

use super::NOTE;
use super::model::{Account, How, PAPER, Path, account, run};
use crate::figures::plot::{Chart, Line};
use crate::figures::{Data, Entry, Figure, Row};
use engine::timing::Mode;

pub(super) static CONTROLLER: Entry = Entry {
    name: "hiods-controller",
    about: "HIODS' controller and ours, by the rate that is asked for (model)",
    runs: Vec::new,
    make: |_| figure(),
};

/// 8 GiB.
const REQUESTS: u64 = 1 << 21;
/// Requests a second that inline can do, with the paper's costs.
const INLINE: u64 = 1_000_000_000 / 66_000;
/// Rates, in tenths of that.
const TENTHS: [u64; 10] = [2, 4, 6, 8, 9, 11, 13, 15, 18, 20];
const HOWS: [(&str, How); 4] = [
    ("static inline", How::Inline),
    ("static offline", How::Offline),
    ("hybrid, preset", How::Preset(Mode::Inline)),
    ("hybrid, ours", How::Ours),
];

fn figure() -> Figure {
    let low = INLINE / 5;
    let mut rows = Vec::new();
    let mut points: [Vec<(String, bool)>; 2] = Default::default();
    let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new(); HOWS.len()];
    for tenths in TENTHS {
        let rate = INLINE * tenths / 10;
        let sums = HOWS.map(|(_, how)| account(&run(PAPER, &[low, rate, low], REQUESTS, Path::Direct, how)));
        let [.., preset, ours] = sums;
        let label = format!("{}.{} of inline, {rate} requests a second", tenths / 10, tenths % 10);
        let most = if tenths < 10 { 0 } else { 30 };
        let avoidable = ours.avoidable as f64;
        rows.push(Row::new(format!("{label}: ours, avoidable seconds of missed goal"), "s", avoidable));
        points[0].push((format!("{rate} requests a second ({avoidable} s)"), ours.avoidable <= most));
        points[1].push((format!("{rate} requests a second"), (0.0..=preset.space).contains(&ours.space)));
        for (((name, _), sum), line) in HOWS.iter().zip(sums).zip(&mut lines) {
            rows.extend(of(&label, name, sum));
            line.push((rate as f64, sum.missed as f64));
        }
    }
    let [avoidable, space] = points;
    rows.push(Row::every("hiods-controller/avoidable", avoidable));
    rows.push(Row::every("hiods-controller/space", space));
    for row in &mut rows {
        row.data = Data::Model;
    }
    let line = |(at, points): (usize, Vec<(f64, f64)>)| Line::new(HOWS[at].0, points).dashed(at < 2);
    Figure {
        name: "hiods-controller",
        source: "HIODS, section 5.4 (not a figure of it)",
        title: "seconds of missed goal by the rate that is asked for".into(),
        rows,
        chart: Chart::lines(
            "8 GiB at a rate, between 8 GiB at a fifth of inline: seconds of missed goal",
            ("requests a second", "seconds in which the goal was missed"),
            lines.into_iter().enumerate().map(line).collect(),
        )
        .range_x(0.0, (2 * INLINE) as f64 * 1.02),
        notes: vec![
            NOTE.into(),
            "Requests reach the device as the client makes them. The preset then never finds the way back: see 'hiods-valley'. At a rate that \
             inline cannot do, the extra space is the price of the goal."
                .into(),
        ],
    }
}

fn of(label: &str, name: &str, sum: Account) -> [Row; 2] {
    [
        Row::new(format!("{label}: {name}, seconds of missed goal"), "s", sum.missed as f64)
            .note(format!("{} of them avoidable, {} s offline, {} changes", sum.avoidable, sum.offline, sum.switches)),
        Row::new(format!("{label}: {name}, extra space"), "GiB h", sum.space),
    ]
}
