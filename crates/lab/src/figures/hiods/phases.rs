//! Mountain, valley, ascending and descending stairs (Fig. 9 to 12): 64 GiB at each of three rates.
//!
//! Bands were stated before the first run and not changed since; costs of the model and our controller were. The paper's background rates are
//! read off its text; a model of costs can be expected to come within a factor of two, and the burst, which one of the costs was taken from, within a quarter. Ours may miss a goal that can be met for ten
//! seconds a phase, and a change of its mode may lower the foreground by 5 % of the goal.

use super::NOTE;
use super::model::{Account, How, PAPER, PHASE, Path, Second, account, return_to_inline, run};
use crate::figures::plot::{Band, COLOURS, Chart, Drawn, Line, SHADES, round_up};
use crate::figures::{Data, Entry, Figure, Row};
use engine::timing::Mode;

pub(super) const MOUNTAIN: Entry = Entry {
    name: "hiods-mountain",
    about: "HIODS, Fig. 9: 4,000, 20,000 and 4,000 requests a second (model)",
    runs: Vec::new,
    make: |_| {
        figure(
            "hiods-mountain",
            "HIODS, Fig. 9",
            "the mountain",
            [4_000, 20_000, 4_000],
            &[
                Paper { phase: 1, at: At::Begin, background: 1_000.0 },
                Paper { phase: 1, at: At::End, background: 600.0 },
                Paper { phase: 2, at: At::Most, background: 25_000.0 },
            ],
        )
    },
};
pub(super) const VALLEY: Entry = Entry {
    name: "hiods-valley",
    about: "HIODS, Fig. 10: 20,000, 4,000 and 20,000 requests a second (model)",
    runs: Vec::new,
    make: |_| {
        figure(
            "hiods-valley",
            "HIODS, Fig. 10",
            "the valley",
            [20_000, 4_000, 20_000],
            &[
                Paper { phase: 0, at: At::Begin, background: 7_500.0 },
                Paper { phase: 0, at: At::End, background: 5_000.0 },
                Paper { phase: 2, at: At::End, background: 450.0 },
            ],
        )
    },
};
pub(super) const ASCENDING: Entry = Entry {
    name: "hiods-ascending",
    about: "HIODS, Fig. 11: 4,000, 16,000 and 20,000 requests a second (model)",
    runs: Vec::new,
    make: |_| {
        figure(
            "hiods-ascending",
            "HIODS, Fig. 11",
            "ascending stairs",
            [4_000, 16_000, 20_000],
            &[
                Paper { phase: 1, at: At::Mean, background: 1_500.0 },
                Paper { phase: 2, at: At::End, background: 450.0 },
            ],
        )
    },
};
pub(super) const DESCENDING: Entry = Entry {
    name: "hiods-descending",
    about: "HIODS, Fig. 12: 20,000, 16,000 and 4,000 requests a second (model)",
    runs: Vec::new,
    make: |_| {
        figure(
            "hiods-descending",
            "HIODS, Fig. 12",
            "descending stairs",
            [20_000, 16_000, 4_000],
            &[
                Paper { phase: 0, at: At::Begin, background: 5_000.0 },
                Paper { phase: 0, at: At::End, background: 3_500.0 },
                Paper { phase: 1, at: At::Mean, background: 3_750.0 },
            ],
        )
    },
};

/// A rate of the background that the paper states, in blocks a second.
struct Paper {
    phase: usize,
    at: At,
    background: f64,
}

/// Where in a phase.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// The second tenth: the controller needs some seconds, and the paper's background wakes once a minute.
    Begin,
    /// The last tenth.
    End,
    /// All of it.
    Mean,
    /// The ten seconds with the most.
    Most,
}

impl At {
    fn name(self) -> &'static str {
        match self {
            At::Begin => "at first",
            At::End => "at last",
            At::Mean => "on average",
            At::Most => "at most",
        }
    }

    /// Blocks a second of the background, there.
    fn of(self, seconds: &[Second]) -> f64 {
        let tenth = (seconds.len() / 10).max(1);
        let mean = |part: &[Second]| {
            part.iter().map(|second| second.background).sum::<u64>() as f64 / part.len().max(1) as f64
        };
        match self {
            At::Begin => mean(seconds.get(tenth..2 * tenth).unwrap_or(seconds)),
            At::End => mean(&seconds[seconds.len().saturating_sub(tenth)..]),
            At::Mean => mean(seconds),
            At::Most => seconds.windows(10).map(mean).fold(0.0, f64::max),
        }
    }

    fn band(self, paper: f64) -> (f64, f64) {
        if self == At::Most { (0.75 * paper, 1.25 * paper) } else { (paper / 2.0, 2.0 * paper) }
    }
}

/// The four that are compared.
fn contestants(first: u64) -> [(&'static str, How); 4] {
    // The paper begins in the mode that suits its first rate (section 5.4).
    let begins = if first > 4_000 { Mode::Offline } else { Mode::Inline };
    [
        ("static inline", How::Inline),
        ("static offline", How::Offline),
        ("hybrid, preset", How::Preset(begins)),
        ("hybrid, ours", How::Ours),
    ]
}

fn figure(name: &'static str, source: &'static str, what: &str, rates: [u64; 3], papers: &[Paper]) -> Figure {
    let mut rows = Vec::new();
    let mut shown = Vec::new();
    for (path, through) in [(Path::PageCache, "page cache"), (Path::Direct, "direct")] {
        for (contestant, how) in contestants(rates[0]) {
            let seconds = run(PAPER, &rates, PHASE, path, how);
            if path == Path::PageCache && matches!(how, How::Preset(_)) {
                rows.extend(beside_the_paper(&seconds, papers));
                rows.extend(presets_switches(&seconds, &rates));
            }
            if how == How::Ours {
                rows.extend(of_ours(&seconds, through));
            }
            rows.extend(accounts(account(&seconds), &format!("{contestant}, {through}")));
            if path == Path::PageCache && !matches!(how, How::Inline | How::Offline) {
                shown.push(seconds);
            }
        }
    }
    for row in &mut rows {
        row.data = Data::Model;
    }
    Figure {
        name,
        source,
        title: format!("{what}: {} requests a second, 64 GiB each", rates.map(|rate| rate.to_string()).join(", ")),
        rows,
        chart: chart(what, &shown),
        notes: vec![
            NOTE.into(),
            "Through a page cache the device sees bursts every five seconds, and nothing between them at 4,000 requests a second. The paper's \
             way back to inline needs that: requests that reach the device 0.25 ms apart are stress by its rule, for ever. The rows 'direct' \
             show it."
                .into(),
            "A second counts as missed if the client made less than 98 % of its rate, and as avoidable if offline without any background could \
             have done it at the costs of that moment."
                .into(),
        ],
    }
}

fn of_phase(seconds: &[Second], phase: usize) -> &[Second] {
    let first = seconds.iter().position(|second| second.phase == Some(phase)).unwrap_or(0);
    let count = seconds[first..].iter().take_while(|second| second.phase == Some(phase)).count();
    &seconds[first..first + count]
}

fn beside_the_paper(seconds: &[Second], papers: &[Paper]) -> Vec<Row> {
    let row = |paper: &Paper| {
        let label = format!("preset: background in phase {}, {}", paper.phase + 1, paper.at.name());
        let ours = paper.at.of(of_phase(seconds, paper.phase));
        Row::new(label, "blocks/s", ours).against(paper.background, paper.at.band(paper.background))
    };
    papers.iter().map(row).collect()
}

/// The paper's switches: offline in phases above 4,000 requests a second, inline in the others and in the end, with a burst whenever the
/// background has something left.
fn presets_switches(seconds: &[Second], rates: &[u64]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (phase, &rate) in rates.iter().enumerate() {
        let expected = if rate > 4_000 { Mode::Offline } else { Mode::Inline };
        let last = of_phase(seconds, phase).last().map(|second| second.mode);
        let word = if expected == Mode::Offline { "offline" } else { "inline" };
        rows.push(Row::holds(format!("preset: {word} at the end of phase {}", phase + 1), last == Some(expected)));
    }
    let changes = return_to_inline(seconds);
    let burst = changes.map_or(0.0, |change| At::Most.of(&seconds[change + 1..]));
    let before = changes.map_or(0.0, |change| seconds[change].background as f64);
    rows.push(Row::holds("preset: the background bursts when the mode becomes inline", burst > 2.0 * before));
    rows.push(Row::new("preset: background in the ten seconds of its burst", "blocks/s", burst));
    rows
}

fn of_ours(seconds: &[Second], through: &str) -> Vec<Row> {
    let sums = account(seconds);
    let last = seconds.last();
    let is_done = last.is_some_and(|second| second.pending == 0 && second.mode == Mode::Inline);
    // After each change of the mode: did the foreground get 95 % of the goal in the ten seconds that follow, where that was possible?
    let lowers = |at: usize| {
        let part: Vec<_> =
            seconds[at + 1..].iter().take(10).filter(|second| second.phase.is_some() && second.reachable).collect();
        let (got, goal) = part.iter().fold((0, 0), |(got, goal), second| (got + second.foreground, goal + second.goal));
        got * 100 < goal * 95
    };
    let to_inline = |at: &usize| (seconds[*at].mode, seconds[*at + 1].mode) == (Mode::Offline, Mode::Inline);
    let lowered = (0..seconds.len() - 1).filter(to_inline).filter(|&at| lowers(at)).count();
    vec![
        Row::new(format!("ours: avoidable seconds of missed goal, {through}"), "s", sums.avoidable as f64)
            .within_band((0.0, 30.0)),
        Row::new(
            format!("ours: changes to inline that lower the foreground by 5 %, {through}"),
            "changes",
            lowered as f64,
        )
        .within_band((0.0, 0.0)),
        Row::holds(format!("ours: ends inline with nothing pending, {through}"), is_done),
    ]
}

fn accounts(account: Account, who: &str) -> [Row; 4] {
    [
        Row::new(format!("{who}: seconds of missed goal"), "s", account.missed as f64),
        Row::new(format!("{who}: of them avoidable"), "s", account.avoidable as f64),
        Row::new(format!("{who}: extra space"), "GiB h", account.space),
        Row::new(format!("{who}: seconds offline"), "s", account.offline as f64)
            .note(format!("{} changes of the mode", account.switches)),
    ]
}

fn chart(what: &str, shown: &[Vec<Second>]) -> Chart {
    const EVERY: usize = 30;
    let means = |seconds: &[Second], value: fn(&Second) -> u64| -> Vec<(f64, f64)> {
        let mean = |(at, part): (usize, &[Second])| {
            let sum: u64 = part.iter().map(value).sum();
            (((at * EVERY) + part.len() / 2) as f64, sum as f64 / part.len() as f64)
        };
        seconds.chunks(EVERY).enumerate().map(mean).collect()
    };
    let line = |name: &str, colour: usize, dashed, points| Line {
        name: name.into(),
        colour: COLOURS[colour],
        dashed,
        marked: false,
        points,
    };
    let (mut lines, mut bands) = (Vec::new(), Vec::new());
    for (at, (name, seconds)) in ["preset", "ours"].into_iter().zip(shown).enumerate() {
        lines.push(line(&format!("foreground, {name}"), 2 * at, at == 0, means(seconds, |second| second.foreground)));
        lines.push(line(
            &format!("background, {name}"),
            2 * at + 1,
            at == 0,
            means(seconds, |second| second.background),
        ));
        bands.push(Band { name: format!("{name} offline"), colour: SHADES[at], stretches: stretches(seconds) });
    }
    let goal = shown.first().map_or(Vec::new(), |seconds| means(seconds, |second| second.goal));
    lines.insert(0, line("goal", 6, true, goal));
    let highest = lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(0.0, f64::max);
    let end = shown.iter().map(Vec::len).max().unwrap_or(1) as f64;
    Chart {
        title: format!("HIODS, {what}: a model of its prototype, means of 30 s"),
        x_label: "seconds".into(),
        y_label: "requests or blocks a second".into(),
        y: (0.0, round_up(highest)),
        log: false,
        content: Drawn::Lines { x: (0.0, end), bands, lines },
    }
}

/// Where it was offline.
fn stretches(seconds: &[Second]) -> Vec<(f64, f64)> {
    let mut stretches = Vec::new();
    let mut at = 0;
    for part in seconds.chunk_by(|one, other| one.mode == other.mode) {
        if part[0].mode == Mode::Offline {
            stretches.push((at as f64, (at + part.len()) as f64));
        }
        at += part.len();
    }
    stretches
}
