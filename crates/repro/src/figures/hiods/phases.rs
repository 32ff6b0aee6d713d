//! Figures of the mountain, valley, ascending and descending stairs (Fig. 9 to 12): 64 GiB at each of three rates, on two sets of costs.
//!
//! *The paper's*: the costs of its prototype, at its own rates. *Ours* (`-ours`): the costs of our engine on its drive model ([`super::ways::costs`]), with
//! rates of 0.2, 0.9 and 1.1 of its inline throughput.
//!
//! Bands were stated before the first run and not changed since; costs of the model and our controller were. Ours may miss a reachable goal for ten seconds a
//! phase. A change of its mode may lower the foreground by 5 % of the goal. The first and the last phase of the valley may differ by 5 %. Claims on ours hold
//! through a page cache and without one.

use super::NOTE;
use super::model::{Account, Costs, How, PAPER, PHASE, Path, Second, account, return_to_inline, run};
use super::ways;
use crate::figures::plot::{Band, Chart, Line, SHADES};
use crate::figures::{Data, Entry, Figure, Row};
use crate::hiods_store::Unit;
use engine::timing::Mode;

/// One of the four.
pub(super) struct Experiment {
    /// Names of the experiment's figure, and of the figure with our costs.
    names: [&'static str; 2],
    source: &'static str,
    /// Description for readers.
    pub(super) what: &'static str,
    /// The paper's requests a second, by phase.
    rates: [u64; 3],
    /// Thousandths of our engine's inline throughput, in place of `rates`.
    tiers: [u64; 3],
    /// Rates of the background that the paper states.
    papers: &'static [Paper],
}

/// Tiers of our costs: inline has space to spare, it just does, it does not.
const LOW: u64 = 200;
const MIDDLE: u64 = 900;
const HIGH: u64 = 1_100;

const MOUNTAIN: Experiment = Experiment {
    names: ["hiods-mountain", "hiods-mountain-ours"],
    source: "HIODS, Fig. 9",
    what: "the mountain",
    rates: [4_000, 20_000, 4_000],
    tiers: [LOW, HIGH, LOW],
    papers: &[Paper { phase: 1, at: At::Begin }, Paper { phase: 1, at: At::End }, Paper { phase: 2, at: At::Most }],
};
const VALLEY: Experiment = Experiment {
    names: ["hiods-valley", "hiods-valley-ours"],
    source: "HIODS, Fig. 10",
    what: "the valley",
    rates: [20_000, 4_000, 20_000],
    tiers: [HIGH, LOW, HIGH],
    papers: &[Paper { phase: 0, at: At::Begin }, Paper { phase: 0, at: At::End }, Paper { phase: 2, at: At::End }],
};
const ASCENDING: Experiment = Experiment {
    names: ["hiods-ascending", "hiods-ascending-ours"],
    source: "HIODS, Fig. 11",
    what: "ascending stairs",
    rates: [4_000, 16_000, 20_000],
    tiers: [LOW, MIDDLE, HIGH],
    papers: &[Paper { phase: 1, at: At::Mean }, Paper { phase: 2, at: At::End }],
};
const DESCENDING: Experiment = Experiment {
    names: ["hiods-descending", "hiods-descending-ours"],
    source: "HIODS, Fig. 12",
    what: "descending stairs",
    rates: [20_000, 16_000, 4_000],
    tiers: [HIGH, MIDDLE, LOW],
    papers: &[Paper { phase: 0, at: At::Begin }, Paper { phase: 0, at: At::End }, Paper { phase: 1, at: At::Mean }],
};

/// All four, in the order of the paper.
pub(super) const ALL: [&Experiment; 4] = [&MOUNTAIN, &VALLEY, &ASCENDING, &DESCENDING];

/// Figures with the paper's costs, in its order; then with ours.
pub(super) const FIGURES: &[Entry] = &[
    Entry {
        name: MOUNTAIN.names[0],
        about: "HIODS, Fig. 9: 4,000, 20,000 and 4,000 requests a second (model)",
        runs: Vec::new,
        make: |_| on_paper_costs(&MOUNTAIN),
    },
    Entry {
        name: VALLEY.names[0],
        about: "HIODS, Fig. 10: 20,000, 4,000 and 20,000 requests a second (model)",
        runs: Vec::new,
        make: |_| on_paper_costs(&VALLEY),
    },
    Entry {
        name: ASCENDING.names[0],
        about: "HIODS, Fig. 11: 4,000, 16,000 and 20,000 requests a second (model)",
        runs: Vec::new,
        make: |_| on_paper_costs(&ASCENDING),
    },
    Entry {
        name: DESCENDING.names[0],
        about: "HIODS, Fig. 12: 20,000, 16,000 and 4,000 requests a second (model)",
        runs: Vec::new,
        make: |_| on_paper_costs(&DESCENDING),
    },
    Entry {
        name: MOUNTAIN.names[1],
        about: "HIODS, Fig. 9 with our costs: 0.2, 1.1 and 0.2 of what inline can do (model)",
        runs: Vec::new,
        make: |results| on_our_costs(&MOUNTAIN, results.quick),
    },
    Entry {
        name: VALLEY.names[1],
        about: "HIODS, Fig. 10 with our costs: 1.1, 0.2 and 1.1 of what inline can do (model)",
        runs: Vec::new,
        make: |results| on_our_costs(&VALLEY, results.quick),
    },
    Entry {
        name: ASCENDING.names[1],
        about: "HIODS, Fig. 11 with our costs: 0.2, 0.9 and 1.1 of what inline can do (model)",
        runs: Vec::new,
        make: |results| on_our_costs(&ASCENDING, results.quick),
    },
    Entry {
        name: DESCENDING.names[1],
        about: "HIODS, Fig. 12 with our costs: 1.1, 0.9 and 0.2 of what inline can do (model)",
        runs: Vec::new,
        make: |results| on_our_costs(&DESCENDING, results.quick),
    },
];

/// Experiment for which the paper states a rate of the background, in blocks a second.
struct Paper {
    phase: usize,
    at: At,
}

/// Part of a phase.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// The second tenth: the controller needs some seconds, and the paper's background wakes once a minute.
    Begin,
    /// The last tenth.
    End,
    /// All of it.
    Mean,
    /// The ten seconds with the highest rate.
    Most,
}

impl At {
    /// Returns the end of its claim's id.
    fn slug(self) -> &'static str {
        match self {
            At::Begin => "begin",
            At::End => "end",
            At::Mean => "mean",
            At::Most => "most",
        }
    }

    /// Returns the blocks a second of the background, in this part of a phase.
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
}

/// Returns the mode in which the paper begins: the one that suits its first rate (section 5.4).
pub(super) fn begins(rates: [u64; 3]) -> Mode {
    if rates[0] > lowest(rates) { Mode::Offline } else { Mode::Inline }
}

/// Lists the four controllers that are compared.
fn contestants(rates: [u64; 3]) -> [(&'static str, How); 4] {
    [
        ("static inline", How::Inline),
        ("static offline", How::Offline),
        ("hybrid, preset", How::Preset(begins(rates))),
        ("hybrid, ours", How::Ours),
    ]
}

/// Returns the lowest of the rates, which the paper's prototype could do inline.
fn lowest(rates: [u64; 3]) -> u64 {
    rates.into_iter().min().unwrap_or(0)
}

fn on_paper_costs(experiment: &Experiment) -> Figure {
    let notes = vec![
        NOTE.into(),
        "Through a page cache the device sees bursts every five seconds, and nothing between them at 4,000 requests a second. The paper's \
         way back to inline needs that: requests that reach the device 0.25 ms apart are stress by its rule, for ever. The rows 'direct' \
         show it."
            .into(),
    ];
    let presets = |seconds: &[Second]| {
        let mut rows = beside_the_paper(seconds, experiment);
        rows.extend(presets_switches(seconds, experiment));
        rows
    };
    figure(experiment, 0, PAPER, experiment.rates, &presets, notes)
}

fn on_our_costs(experiment: &Experiment, quick: bool) -> Figure {
    let costs = match ways::costs(quick) {
        Ok(costs) => costs,
        // The figure then states the error, and has no values.
        Err(why) => return figure(experiment, 1, PAPER, [0; 3], &|_| Vec::new(), vec![why]),
    };
    let rates = our_rates(experiment, costs);
    let notes = vec![
        format!(
            "Costs of our engine on the model of the drive of bench/results/simulated.md, measured when this was made: uniform writes of highperf, 2 GiB (short form: 128 MiB), 40 MiB of \
             memory, the complete index on the device. {:.1} us for a write inline, {:.1} offline, {:.2} for a block of a pass while nobody else is \
             there. They do not grow.",
            costs.inline as f64 / 1e3,
            costs.offline as f64 / 1e3,
            costs.background as f64 / 1e3
        ),
        "One server has foreground and background one after the other, as on the prototype. The engine's controllers are in charge.".into(),
    ];
    let mut figure = figure(experiment, 1, costs, rates, &|_| Vec::new(), notes);
    let ours = run(costs, &experiment.rates, PHASE, Path::Direct, How::Ours);
    let Account { missed, offline, .. } = account(&ours);
    let words = experiment.rates.map(|rate| rate.to_string()).join(", ");
    figure.rows.insert(
        0,
        Row::statement(&format!("{}/inline", experiment.names[1]), missed + offline == 0)
            .note(format!("{words} requests a second"))
            .of(Data::Model),
    );
    figure
}

/// Returns the requests a second of an experiment's tiers with these costs.
pub(super) fn our_rates(experiment: &Experiment, costs: Costs) -> [u64; 3] {
    experiment.tiers.map(|tier| 1_000_000 * tier / costs.inline)
}

fn figure(
    experiment: &Experiment,
    set: usize,
    costs: Costs,
    rates: [u64; 3],
    of_preset: &dyn Fn(&[Second]) -> Vec<Row>,
    mut notes: Vec<String>,
) -> Figure {
    let mut rows = Vec::new();
    let mut shown = Vec::new();
    let (mut ours, mut steady) = (Vec::new(), Vec::new());
    for (path, through) in [(Path::PageCache, "page cache"), (Path::Direct, "direct")] {
        for (contestant, how) in contestants(rates) {
            let seconds = run(costs, &rates, PHASE, path, how);
            if path == Path::PageCache && matches!(how, How::Preset(_)) {
                rows.extend(of_preset(&seconds));
            }
            if how == How::Ours {
                ours.push((through, of_ours(&seconds)));
                if rates[0] == rates[2] && rates[0] > rates[1] {
                    steady.push((through, first_and_last(&seconds)));
                }
            }
            rows.extend(accounts(account(&seconds), &format!("{contestant}, {through}")));
            if path == Path::PageCache && !matches!(how, How::Inline | How::Offline) {
                shown.push(seconds);
            }
        }
    }
    rows.extend(rows_of_ours(experiment.names[set], &ours, &steady));
    for row in &mut rows {
        row.data = Data::Model;
    }
    notes.push(
        "A second counts as missed if the client made less than 98 % of its rate, and as avoidable if offline without any background could \
         have done it at the costs of that moment."
            .into(),
    );
    let words = rates.map(|rate| rate.to_string()).join(", ");
    Figure {
        name: experiment.names[set],
        source: experiment.source,
        title: format!("{}: {words} requests a second, 64 GiB each", experiment.what),
        rows,
        chart: chart(experiment.what, ["a model of its prototype", "our costs"][set], &shown),
        notes,
    }
}

/// Returns the foreground throughput of the last phase over that of the first, which have the same rate. The values are shares of that rate, and of the
/// reachable throughput.
fn first_and_last(seconds: &[Second]) -> [f64; 2] {
    let part = |phase, of: fn(&Second) -> u64| {
        let sums = of_phase(seconds, phase).iter().filter(|second| second.whole);
        let (got, all) = sums.fold((0, 0), |(got, all), second| (got + second.foreground, all + of(second)));
        got as f64 / all.max(1) as f64
    };
    [|second: &Second| second.goal, |second: &Second| second.goal.min(second.most)].map(|of| part(2, of) / part(0, of))
}

fn of_phase(seconds: &[Second], phase: usize) -> &[Second] {
    let first = seconds.iter().position(|second| second.phase == Some(phase)).unwrap_or(0);
    let count = seconds[first..].iter().take_while(|second| second.phase == Some(phase)).count();
    &seconds[first..first + count]
}

fn beside_the_paper(seconds: &[Second], experiment: &Experiment) -> Vec<Row> {
    rates_of_the_paper(seconds, experiment).iter().map(|(id, rate)| Row::claim(id, *rate)).collect()
}

/// Returns the background rate in the places for which the paper states one: id of the claim, blocks a second.
fn rates_of_the_paper(seconds: &[Second], experiment: &Experiment) -> Vec<(String, f64)> {
    let rate = |paper: &Paper| {
        let id = format!("{}/phase-{}-{}", experiment.names[0], paper.phase + 1, paper.at.slug());
        (id, paper.at.of(of_phase(seconds, paper.phase)))
    };
    experiment.papers.iter().map(rate).collect()
}

/// Returns these rates for all four experiments, with the error of the paper's loop in a unit.
pub(super) fn rates_in(unit: Unit) -> Vec<(String, f64)> {
    let of = |experiment: &&Experiment| {
        let how = How::PresetIn(begins(experiment.rates), unit);
        rates_of_the_paper(&run(PAPER, &experiment.rates, PHASE, Path::PageCache, how), experiment)
    };
    ALL.iter().flat_map(of).collect()
}

/// Compares the modes at the ends of the phases with the paper's: offline above 4,000 requests a second, inline in the others.
fn presets_modes(seconds: &[Second], rates: [u64; 3]) -> [(String, bool); 3] {
    [0, 1, 2].map(|phase| {
        let expected = if rates[phase] > lowest(rates) { Mode::Offline } else { Mode::Inline };
        let last = of_phase(seconds, phase).last().map(|second| second.mode);
        let word = if expected == Mode::Offline { "offline" } else { "inline" };
        (format!("{word} at the end of phase {}", phase + 1), last == Some(expected))
    })
}

/// Returns the background's blocks a second in the second before the mode becomes inline, and in the ten seconds of its burst after that. There is a burst
/// whenever the background has a backlog.
fn presets_burst(seconds: &[Second]) -> (f64, f64) {
    let change = return_to_inline(seconds);
    let burst = change.map_or(0.0, |change| At::Most.of(&seconds[change + 1..]));
    (change.map_or(0.0, |change| seconds[change].background as f64), burst)
}

fn presets_switches(seconds: &[Second], experiment: &Experiment) -> [Row; 3] {
    let id = |claim: &str| format!("{}/{claim}", experiment.names[0]);
    let (before, burst) = presets_burst(seconds);
    [
        Row::every(&id("modes"), presets_modes(seconds, experiment.rates)),
        Row::statement(&id("burst"), burst > 2.0 * before),
        Row::new("preset: background in the ten seconds of its burst", "blocks/s", burst),
    ]
}

/// Outcome of ours on one path.
#[derive(Clone, Copy, Debug)]
struct OfOurs {
    /// Avoidable seconds of missed goal.
    avoidable: u64,
    /// Changes to inline that lower the foreground by 5 % of the goal.
    lowered: usize,
    /// True if it ends inline with nothing pending.
    is_done: bool,
}

fn of_ours(seconds: &[Second]) -> OfOurs {
    let last = seconds.last();
    let is_done = last.is_some_and(|second| second.pending == 0 && second.mode == Mode::Inline);
    // After each change of the mode: did the foreground get 95 % of the goal in the ten seconds that follow, where that was possible?
    let lowers = |at: usize| {
        let part: Vec<_> = seconds[at + 1..]
            .iter()
            .take(10)
            .filter(|second| second.phase.is_some() && second.is_reachable())
            .collect();
        let (got, goal) = part.iter().fold((0, 0), |(got, goal), second| (got + second.foreground, goal + second.goal));
        got * 100 < goal * 95
    };
    let to_inline = |at: &usize| (seconds[*at].mode, seconds[*at + 1].mode) == (Mode::Offline, Mode::Inline);
    let lowered = (0..seconds.len() - 1).filter(to_inline).filter(|&at| lowers(at)).count();
    OfOurs { avoidable: account(seconds).avoidable, lowered, is_done }
}

/// Makes the rows of ours: each path, and the claims for both.
fn rows_of_ours(name: &str, ours: &[(&str, OfOurs)], steady: &[(&str, [f64; 2])]) -> Vec<Row> {
    let mut rows = Vec::new();
    let id = |claim: &str| format!("{name}/{claim}");
    for (through, of) in ours {
        rows.push(Row::new(format!("ours: avoidable seconds of missed goal, {through}"), "s", of.avoidable as f64));
    }
    rows.push(Row::claim(&id("avoidable"), ours.iter().map(|(_, of)| of.avoidable).max().unwrap_or(0) as f64));
    rows.push(Row::claim(&id("lowers"), ours.iter().map(|(_, of)| of.lowered).sum::<usize>() as f64));
    rows.push(Row::every(&id("ends"), ours.iter().map(|(through, of)| (*through, of.is_done))));
    for (at, claim) in ["steady", "steady-possible"].into_iter().enumerate() {
        let words = ["requests a second", "as parts of what offline alone could do"][at];
        for (through, parts) in steady {
            rows.push(Row::new(format!("ours: last phase over the first, {words}, {through}"), "times", parts[at]));
        }
        // The path that is further from 1.
        let furthest = steady
            .iter()
            .map(|(_, parts)| parts[at])
            .max_by(|one, other| (one - 1.0).abs().total_cmp(&(other - 1.0).abs()));
        rows.extend(furthest.map(|part| Row::claim(&id(claim), part)));
    }
    rows
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

fn chart(what: &str, of: &str, shown: &[Vec<Second>]) -> Chart {
    const EVERY: usize = 30;
    let means = |seconds: &[Second], value: fn(&Second) -> u64| -> Vec<(f64, f64)> {
        let mean = |(at, part): (usize, &[Second])| {
            let sum: u64 = part.iter().map(value).sum();
            (((at * EVERY) + part.len() / 2) as f64, sum as f64 / part.len() as f64)
        };
        seconds.chunks(EVERY).enumerate().map(mean).collect()
    };
    let line =
        |name: &str, colour: usize, dashed, points| Line::new(name, points).colour(colour).dashed(dashed).marked(false);
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
    let end = shown.iter().map(Vec::len).max().unwrap_or(1) as f64;
    Chart::lines(
        format!("HIODS, {what}: {of}, means of 30 s"),
        ("time in seconds", "requests or blocks a second"),
        lines,
    )
    .range_x(0.0, end)
    .shaded(bands)
}

/// Returns the ranges of time that were offline, in seconds.
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

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [Path; 2] = [Path::PageCache, Path::Direct];

    /// Checks ours on the paper's costs: it meets the reachable goals, without a burst, and it ends inline.
    #[test]
    fn ours_meets_what_can_be_met_without_a_burst_and_ends_inline() {
        for (experiment, path) in ALL.iter().flat_map(|experiment| PATHS.map(|path| (experiment, path))) {
            let seconds = run(PAPER, &experiment.rates, PHASE, path, How::Ours);
            let ours = of_ours(&seconds);
            let what = experiment.what;
            // The band of the figure is 30. Beyond that: small misses, while costs grow and the throttle comes after them (docs/papers/hiods.md).
            assert!(ours.avoidable <= 45 && ours.lowered == 0 && ours.is_done, "{what} {path:?}: {ours:?}");
            for phase in 0..3 {
                let later = of_phase(&seconds, phase).iter().skip(3);
                let low = later.filter(|second| second.whole && second.is_reachable());
                let mut low = low.filter(|second| second.foreground * 100 < second.goal * 95);
                assert!(low.next().is_none(), "{what} {path:?}, phase {phase}");
            }
            if what == VALLEY.what {
                let [_, of_possible] = first_and_last(&seconds);
                assert!((0.95..=1.05).contains(&of_possible), "{path:?}: {of_possible:?}");
            }
        }
    }

    /// Checks the preset on the paper's costs, through a page cache as the paper's: switches, shortfall, burst. Two things are not reproduced
    /// (docs/papers/hiods.md): after the mountain and the descending stairs its own burst makes it oscillate.
    #[test]
    fn the_preset_switches_falls_short_and_bursts_as_the_paper_says() {
        for experiment in ALL {
            let [_, _, (_, preset), _] = contestants(experiment.rates);
            let seconds = run(PAPER, &experiment.rates, PHASE, Path::PageCache, preset);
            let ours = account(&run(PAPER, &experiment.rates, PHASE, Path::PageCache, How::Ours));
            let failed: Vec<String> = presets_modes(&seconds, experiment.rates)
                .into_iter()
                .filter(|(_, holds)| !holds)
                .map(|(what, _)| what)
                .collect();
            let swings = experiment.rates[2] == 4_000;
            let known: &[&str] = if swings { &["inline at the end of phase 3"] } else { &[] };
            assert_eq!(failed, known, "{}", experiment.what);
            let (before, burst) = presets_burst(&seconds);
            assert!(burst > 2.0 * before, "{}: {before}, {burst}", experiment.what);
            assert!(account(&seconds).missed >= ours.missed, "{}", experiment.what);
        }
        let avoidable = |experiment: &Experiment, how| {
            account(&run(PAPER, &experiment.rates, PHASE, Path::PageCache, how)).avoidable
        };
        for experiment in [&MOUNTAIN, &ASCENDING] {
            assert!(avoidable(experiment, How::Preset(Mode::Inline)) > 100, "{}", experiment.what);
            assert_eq!(avoidable(experiment, How::Ours), 0, "{}", experiment.what);
        }
    }

    /// Checks our costs, as measured: the bands of the figures hold, and at the paper's rates nothing leaves inline.
    #[test]
    fn on_our_costs_all_bands_hold() {
        for experiment in ALL {
            let figure = on_our_costs(experiment, true);
            let judged: Vec<_> = figure.rows.iter().filter(|row| row.claim.is_some()).collect();
            assert!(judged.len() >= 4 && judged.iter().all(|row| row.within == Some(true)), "{judged:?}");
        }
    }
}
