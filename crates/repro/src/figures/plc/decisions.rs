//! Ablation of each PLC-Cache module alone and in pairs, and of the choices that the slides leave open.

use engine::admission::{Ageing, Comparison, Filter, Rules};

use super::super::plot::{Bars, Chart, Scale};
use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{PAPER, Workload, ours, sized};
use crate::flash_cache::policies::Policy;
use crate::flash_cache::workload::Shape;
use crate::flash_cache::{Outcome, Setup};

pub(super) const MODULES: Entry =
    Entry { name: "plc-modules", about: "beyond PLC: each module alone and in pairs", runs: Vec::new, make: modules };
pub(super) const DECISIONS: Entry = Entry {
    name: "plc-decisions",
    about: "beyond PLC: delay, factor, references and ageing, also where other data becomes popular",
    runs: Vec::new,
    make: decisions,
};

/// Returns the slides' rules with some of the modules: filter, delay, comparison.
fn with([filter, delay, comparison]: [bool; 3]) -> Rules {
    Rules {
        filter: if filter { Rules::PAPER.filter } else { Filter::Off },
        delay: if delay { Rules::PAPER.delay } else { 0 },
        comparison: if comparison { Rules::PAPER.comparison } else { Comparison::Off },
        ..Rules::PAPER
    }
}

fn modules(results: &Results) -> Figure {
    let workload = Workload::new(sized(Shape::SLIDES, results.quick));
    let sets =
        [0b000, 0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111].map(|set: u8| [set & 1 > 0, set & 2 > 0, set & 4 > 0]);
    let name = |set: [bool; 3]| {
        let names = ["PF", "DE", "IOC"].into_iter().zip(set).filter(|(_, on)| *on).map(|(name, _)| name);
        let names = names.collect::<Vec<_>>().join("+");
        if names.is_empty() { "none".to_string() } else { names }
    };
    let cache = workload.cache(10);
    let mut policies = vec![Policy::Lru];
    policies.extend(sets.map(|set| Policy::Plc(with(set))));
    let outcomes = workload.run(&policies.iter().map(|&policy| Setup::new(policy, cache)).collect::<Vec<_>>());
    let mut names = vec!["LRU".to_string()];
    names.extend(sets.map(name));
    let mut rows = Vec::new();
    for (name, outcome) in names.iter().zip(&outcomes) {
        rows.push(Row::new(format!("{name}: hits"), "%", outcome.hit_percent()));
        rows.push(Row::new(format!("{name}: written"), "GB", outcome.written_gib()));
    }
    let written = |at: usize| outcomes[at].written_bytes;
    let alone = names.iter().enumerate().skip(2).take(3).map(|(at, name)| (name.as_str(), written(at) < written(1)));
    rows.push(Row::every("plc-modules/alone", alone));
    rows.push(Row::statement("plc-modules/all", (1..8).all(|at| written(8) <= written(at))));
    let bars = |value: fn(&Outcome) -> f64| vec![Bars::new("", outcomes.iter().map(value).collect())];
    let written = Chart::bars("", "GB written", names.clone(), bars(Outcome::written_gib)).scale_y(Scale::Log);
    Figure {
        name: "plc-modules",
        source: "beyond PLC",
        title: "each module of PLC-Cache alone and in pairs".into(),
        rows,
        chart: Chart::bars("Hits and bytes written, cache of 1 %", "hits in % of reads", names, bars(Outcome::hit_percent))
            .below(written),
        notes: vec![
            "PF: popularity filter; DE: delayed eviction, without it places are victims in turn; IOC: in-out comparison. With none it is FIFO."
                .into(),
        ],
    }
}

fn decisions(results: &Results) -> Figure {
    let workload = Workload::new(sized(Shape::SLIDES, results.quick));
    let cache = workload.cache(10);
    let base = Rules::PAPER;
    let own = Rules::for_drive(cache);
    let mut cases: Vec<(String, Rules)> = Vec::new();
    for delay in [1, 2, 3, 5, 10] {
        cases.push((format!("delay {delay}"), Rules { delay, ..base }));
    }
    for tenths in [10, 15, 18, 30, 40] {
        let comparison = Comparison::Either { tenths };
        cases.push((format!("m = {}", f64::from(tenths) / 10.0), Rules { comparison, ..base }));
    }
    let counts = |references| Comparison::Counts { margin: 1, references };
    cases.push(("references break ties only".into(), Rules { comparison: counts(true), ..base }));
    let ageings = [Ageing::Never, Ageing::Always(10), Ageing::WhileFull(10), Ageing::WhileFull(300)];
    for ageing in ageings {
        cases.push((format!("PLC-Cache, ageing {}", title(ageing)), Rules { ageing, ..base }));
    }
    for ageing in ageings {
        cases.push((format!("ours, ageing {}", title(ageing)), Rules { ageing, ..own }));
    }
    cases.push(("ours, references break ties".into(), Rules { comparison: counts(true), ..own }));
    // The second day other files are popular.
    let mut shifting = Workload::new(workload.shape);
    let last = shifting.data.files() as u32 - 1;
    shifting.files.extend(workload.files.iter().map(|file| last - file));
    let setup = |rules: &Rules| Setup::new(Policy::Plc(*rules), cache);
    let setups: Vec<Setup> = cases.iter().map(|(_, rules)| setup(rules)).collect();
    let steady = workload.run(&setups);
    let days: Vec<Setup> = setups.iter().map(|setup| Setup { days: 2, ..*setup }).collect();
    let second: Vec<Outcome> =
        shifting.run_in_parts(&days, 2).into_iter().map(|parts| parts.last().copied().unwrap_or_default()).collect();
    let mut rows = Vec::new();
    for (at, (name, _)) in cases.iter().enumerate() {
        rows.push(Row::new(format!("{name}: hits"), "%", steady[at].hit_percent()));
        rows.push(Row::new(format!("{name}: written"), "GB", steady[at].written_gib()));
        rows.push(Row::new(format!("{name}: hits on a second day with other files"), "%", second[at].hit_percent()));
    }
    let base = workload.run(&[Setup::new(PAPER, cache), Setup::new(ours(cache), cache)]);
    rows.push(Row::statement("plc-decisions/hits", base[1].hits >= base[0].hits));
    let bars = |name: &str, outcomes: &[Outcome]| Bars::new(name, outcomes.iter().map(Outcome::hit_percent).collect());
    Figure {
        name: "plc-decisions",
        source: "beyond PLC",
        title: "details that the slides leave open".into(),
        rows,
        chart: Chart::bars(
            "Hits, cache of 1 %",
            "% of reads",
            cases.iter().map(|(name, _)| name.clone()).collect(),
            vec![bars("one day", &steady), bars("a second day with other files", &second)],
        ),
        notes: vec![
            "PLC-Cache as built: delay 3, m = 1.5, no ageing; a refused victim gets its delay back and the hand goes on, a delayed one keeps the \
             hand."
                .into(),
        ],
    }
}

fn title(ageing: Ageing) -> String {
    match ageing {
        Ageing::Never => "never".into(),
        Ageing::Always(accesses) => format!("after {accesses} reads a place"),
        Ageing::WhileFull(accesses) => format!("after {accesses} reads a place, while full"),
    }
}
