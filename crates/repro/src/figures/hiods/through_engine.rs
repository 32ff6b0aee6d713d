//! The four experiments (Fig. 9 to 12) through the engine itself, in virtual time: a hybrid volume under a changing goal, beside the model.
//!
//! The size is a 32nd of the paper's, 2 GiB a phase (with 4 the eight runs take more than eight minutes). The load is uniform writes of highperf, on the drive
//! of bench/results/simulated.md, with little memory and the complete index on the device. Rates are 0.2, 0.9 and 1.1 of the engine's inline throughput in such
//! a phase, measured first. Passes begin whenever there is work for one, as the model's background runs all the time. Bands are those of the model, stated
//! before the first run.

use super::model::{How, Path, Second as Modelled, account, run as model};
use super::phases::{ALL, begins, our_rates};
use super::ways::{Case, Way, contents, measure_costs, setup};
use crate::dedis::BLOCK;
use crate::dedis::addresses::Pattern;
use crate::dedis::virtual_run::phases::{Charge, Phases, Second, run};
use crate::figures::plot::{Chart, Line};
use crate::figures::{Data, Entry, Figure, Row};
use sim::Violation;
use sim::disks::ssd::SSD;
use sim::parallel::{cores, in_order};

pub(super) static ENGINE: Entry = Entry {
    name: "hiods-engine",
    about: "HIODS, Fig. 9 to 12 through the engine, a 32nd of the size, beside the model",
    runs: Vec::new,
    make: |results| figure(results.quick),
};

const FULL: u64 = 2 << 30;
const QUICK: u64 = 32 << 20;
/// Memory of the engine: the minimum for such a volume, and some more. The short form has nearly all of the index in it.
const MEMORY: u64 = 40 << 20;
const CHARGES: [(&str, Charge); 2] = [("preset", Charge::Paper), ("ours", Charge::Ours)];

/// Counts the seconds in which the client made less than 98 % of its rate. The first and the last of a phase do not count, as the rate changes in them.
fn missed(seconds: &[Second]) -> u64 {
    let inner = seconds.windows(3).filter(|three| three[0].phase == three[2].phase);
    inner.filter(|three| three[1].foreground * 100 < three[1].goal * 98).count() as u64
}

fn figure(quick: bool) -> Figure {
    let bytes = if quick { QUICK } else { FULL };
    let case = Case { pattern: Pattern::Uniform, workers: 1, drive: SSD, reads: false, bytes };
    let [(highperf, is_real), _] = contents(bytes);
    let requests = bytes / BLOCK;
    let mut notes = vec![
        "The engine in virtual time; the model has the costs that were measured of the same engine, which do not grow. The paper's background wakes \
         once a minute; the engine's passes begin here whenever there is work for one."
            .into(),
    ];
    let mut rows = Vec::new();
    let (mut misses, mut ends) = (Vec::new(), Vec::new());
    let mut chart: Option<Chart> = None;
    match measure_costs(case, MEMORY) {
        Err(why) => notes.push(why),
        Ok(costs) => {
            notes.push(format!(
                "{:.1} us for a write inline, {:.1} offline, {:.2} for a block of a pass without other load.",
                costs.inline as f64 / 1e3,
                costs.offline as f64 / 1e3,
                costs.background as f64 / 1e3
            ));
            let jobs = (ALL.len() * CHARGES.len()) as u64;
            let found = in_order(cores(), jobs, |at| {
                let (experiment, charge) = (ALL[at as usize / CHARGES.len()], CHARGES[at as usize % CHARGES.len()].1);
                let rates = our_rates(experiment, costs);
                run(&setup(case, Way::Inline, Some(MEMORY)), &rates, requests, charge, &highperf)
            });
            for (at, found) in found.iter().enumerate() {
                let (experiment, (name, charge)) = (ALL[at / CHARGES.len()], CHARGES[at % CHARGES.len()]);
                let rates = our_rates(experiment, costs);
                let how = if charge == Charge::Ours { How::Ours } else { How::Preset(begins(rates)) };
                let modelled = model(costs, &rates, requests, Path::Direct, how);
                match found {
                    Err(Violation(why)) => notes.push(format!("{}, {name}: {why}", experiment.what)),
                    Ok(phases) => {
                        rows.extend(rows_of(&format!("{}, {name}", experiment.what), phases, &modelled));
                        if charge == Charge::Ours {
                            misses.push((phases.seconds.len(), missed(&phases.seconds)));
                            let is_done = phases.ends_inline && phases.stored_blocks == phases.distinct_blocks;
                            ends.push((experiment.what, is_done));
                            let panel = panel(experiment.what, phases, &modelled);
                            chart = Some(chart.map_or(panel.clone(), |chart| chart.below(panel)));
                        }
                    }
                }
            }
        }
    }
    if ends.len() == ALL.len() {
        // In the short form a phase is over within a second: nothing was measured.
        let is_measured = misses.iter().all(|(seconds, _)| *seconds > 0);
        let most = misses.iter().map(|(_, missed)| *missed as f64).fold(0.0, f64::max);
        rows.push(Row::claim("hiods-engine/missed", if is_measured { most } else { f64::NAN }));
        rows.push(Row::every("hiods-engine/ends", ends));
    }
    for row in &mut rows {
        row.data = if is_real { Data::Real } else { Data::Synthetic };
    }
    Figure {
        name: ENGINE.name,
        source: "HIODS, Fig. 9 to 12",
        title: "the four experiments through the engine, a 32nd of the size".into(),
        rows,
        chart: chart.unwrap_or_else(|| Chart::lines("nothing was measured", ("", ""), Vec::new())),
        notes,
    }
}

fn rows_of(label: &str, phases: &Phases, modelled: &[Modelled]) -> [Row; 4] {
    let seconds = &phases.seconds;
    let offline = seconds.iter().filter(|second| second.is_offline).count();
    let switches = seconds.windows(2).filter(|pair| pair[0].is_offline != pair[1].is_offline).count();
    let beside = account(modelled);
    [
        Row::new(format!("{label}: seconds of missed goal"), "s", missed(seconds) as f64)
            .note(format!("{} in the model, first and last of each phase among them.", beside.missed)),
        Row::new(format!("{label}: seconds offline"), "s", offline as f64).note(format!(
            "Of {}; {} in the model.",
            seconds.len(),
            beside.offline
        )),
        Row::new(format!("{label}: changes of the mode"), "changes", switches as f64)
            .note(format!("{} in the model.", beside.switches)),
        Row::new(
            format!("{label}: blocks that passes let share beside the load"),
            "blocks",
            seconds.iter().map(|second| second.shared).sum::<u64>() as f64,
        )
        .note(format!(
            "In the end {} blocks are stored of {} different contents.",
            phases.stored_blocks, phases.distinct_blocks
        )),
    ]
}

fn panel(what: &str, phases: &Phases, modelled: &[Modelled]) -> Chart {
    let points = |values: Vec<u64>| -> Vec<(f64, f64)> {
        values.into_iter().enumerate().map(|(at, value)| (at as f64, value as f64)).collect()
    };
    let seconds = &phases.seconds;
    let inside: Vec<&Modelled> = modelled.iter().filter(|second| second.phase.is_some()).collect();
    let line = |name: &str, colour, dashed, values| {
        Line::new(name, points(values)).colour(colour).dashed(dashed).marked(false)
    };
    Chart::lines(
        format!("HIODS, {what}: through the engine and in the model, ours"),
        ("time in seconds", "requests or blocks a second"),
        vec![
            line("goal", 6, true, seconds.iter().map(|second| second.goal).collect()),
            line("foreground, engine", 0, false, seconds.iter().map(|second| second.foreground).collect()),
            line("shared by passes, engine", 1, false, seconds.iter().map(|second| second.shared).collect()),
            line("foreground, model", 2, true, inside.iter().map(|second| second.foreground).collect()),
            line("background, model", 3, true, inside.iter().map(|second| second.background).collect()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_counts_as_missed_within_a_phase_only() {
        let second = |phase, foreground| Second { phase, goal: 100, foreground, shared: 0, is_offline: false };
        let seconds = [second(0, 10), second(0, 97), second(0, 98), second(1, 50), second(1, 50), second(1, 50)];
        assert_eq!(missed(&seconds), 2);
    }
}
