//! Figure of the disks' energy over the day, which the paper leaves to future work (section 6).

use super::{SCHEMES, bars, each, gain, rows};
use crate::figures::runs::{Disks, Outcome, Results};
use crate::figures::{Entry, Figure};
use crate::replay::scheme::Scheme;
use sim::disks::power;

pub(super) const ENERGY: Entry = Entry {
    name: "pod-energy",
    about: "POD, section 6: the energy of the disks, which the paper leaves to future work",
    runs: || each(&SCHEMES),
    make: energy,
};

/// Kilojoules that the disks of the array took from the first request to the last answer.
fn kilojoules(outcome: &Outcome) -> f64 {
    power::joules(power::HDD, &outcome.disk, Disks::POD.members as u64, outcome.end) / 1e3
}

/// Returns the energy above that of idle disks in that time, in kilojoules.
fn above_idle(outcome: &Outcome) -> f64 {
    let idle = power::joules(power::HDD, &Default::default(), Disks::POD.members as u64, outcome.end);
    kilojoules(outcome) - idle / 1e3
}

fn energy(results: &Results) -> Figure {
    let mut all = rows(results, "kJ", &SCHEMES, kilojoules);
    let work = rows(results, "kJ", &SCHEMES, above_idle);
    all.extend(work.into_iter().map(|row| row.note("above idle disks")));
    let percent = |results: &Results, trace, scheme| 100.0 - gain(results, trace, scheme, Scheme::NATIVE, above_idle);
    Figure {
        name: "pod-energy",
        source: "POD, section 6",
        title: "energy of the disks in the day".into(),
        rows: all,
        chart: bars(results, "Energy above that of idle disks", "% of Native", &SCHEMES, percent, |_, _| None),
        notes: vec![
            "Disks of 7,200 rpm that take 12.5 W seeking, 12.0 W at other work and 7.5 W idle (docs/internals/simulated-disks.md); they never stand still. The \
             processor's energy for digests is not counted."
                .into(),
        ],
    }
}
