//! Claims of the papers: each number and each statement of a paper, once, with its band and its kind, written before anything runs.
//!
//! A paper's folder has them in its `claims.rs`; [`PAPERS`] lists the papers. A row of a figure that judges a claim names it by its id
//! ([`Row::claim`](super::Row::claim)). So a figure holds no value of a paper, no band and no kind. The figure is the part of the id before the `/`. An id that
//! begins with the name of a paper in place of a figure is of a claim that no figure measures.

use serde::Serialize;

use super::{hiods, iodedup, plc, pod, rededup};

/// One number or statement.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Figure and name: `pod-11/select-mail`.
    pub id: &'static str,
    /// Section, figure or table of the paper.
    pub source: &'static str,
    /// Subject. It begins with the name of a trace if it is about that trace alone.
    pub what: &'static str,
    /// Unit of the value; `holds` for statements.
    pub unit: &'static str,
    /// The value that the paper prints; none for statements.
    pub value: Option<f64>,
    /// Values that count as reproduced.
    pub band: Band,
    /// Its weight in the score.
    pub kind: Kind,
    /// A reader's sentence: why it is fitted, how the text was read. May be empty.
    pub note: &'static str,
}

/// Weight of a claim in the score: the first two count, each for itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number of the paper that nothing was fitted to.
    Predicted,
    /// A statement of the paper in words.
    Statement,
    /// A number that a stand-in or a model was fitted or calibrated to, or that follows by arithmetic from the paper's own numbers.
    Fitted,
    /// A number that bounds ours, measured of something else than the paper's prototype.
    NoWorse,
    /// A claim of this project.
    Ours,
}

/// Values that count as reproduced, by the paper's value. All are a factor of two or tighter, but for [`Band::Range`], which is for
/// statements with a tolerance, bounds and claims of our own.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Band {
    /// Gain in time, in percent: see [`gain_band`].
    Gain,
    /// Range from the value divided by a factor to the value times it.
    Factor(f64),
    /// The excess above 1, from half to twice of it.
    Excess,
    /// Maximum difference below or above the value.
    Within(f64),
    /// Share in percent: within a factor of two, and within a number of points below or above.
    Share(f64),
    /// Range from the first to the second, whatever the value.
    Range(f64, f64),
    /// 1: it holds.
    Holds,
}

/// Returns the band of a gain of `gain` percent in time; a loss is below 0.
///
/// The ratio of the times is within a factor of two of the paper's. A gain is also at least half of the paper's, and at most twice if the
/// paper's is below 25 %. A loss is between half and three times the paper's, and at most twice below 25 %. So a program that changes
/// nothing is in no such band.
pub fn gain_band(gain: f64) -> (f64, f64) {
    let ratio = 1.0 - gain / 100.0;
    let (mut low, mut high) = (100.0 * (1.0 - 2.0 * ratio), 100.0 * (1.0 - ratio / 2.0));
    let most = if gain.abs() < 25.0 { 2.0 } else { 3.0 };
    if gain >= 0.0 {
        low = low.max(gain / 2.0);
        high = if gain < 25.0 { high.min(2.0 * gain) } else { high };
    } else {
        low = low.max(most * gain);
        high = high.min(gain / 2.0);
    }
    (low, high)
}

const fn claim(
    id: &'static str,
    source: &'static str,
    what: &'static str,
    (unit, value): (&'static str, Option<f64>),
    band: Band,
    kind: Kind,
) -> Claim {
    Claim { id, source, what, unit, value, band, kind, note: "" }
}

/// Makes a claim of a predicted number.
pub const fn predicted(
    id: &'static str,
    source: &'static str,
    what: &'static str,
    unit: &'static str,
    value: f64,
    band: Band,
) -> Claim {
    claim(id, source, what, (unit, Some(value)), band, Kind::Predicted)
}

/// Makes a claim of a predicted gain, in percent.
pub const fn gain(id: &'static str, source: &'static str, what: &'static str, percent: f64) -> Claim {
    predicted(id, source, what, "% less", percent, Band::Gain)
}

/// Makes a claim of a statement, which holds or does not.
pub const fn statement(id: &'static str, source: &'static str, what: &'static str) -> Claim {
    claim(id, source, what, ("holds", None), Band::Holds, Kind::Statement)
}

/// Makes a claim of a number that something was fitted to.
pub const fn fitted(
    id: &'static str,
    source: &'static str,
    what: &'static str,
    unit: &'static str,
    value: f64,
    band: Band,
) -> Claim {
    claim(id, source, what, (unit, Some(value)), band, Kind::Fitted)
}

/// Makes a claim of our own, which holds or does not.
pub const fn ours(id: &'static str, source: &'static str, what: &'static str) -> Claim {
    claim(id, source, what, ("holds", None), Band::Holds, Kind::Ours)
}

impl Kind {
    /// Returns the name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Predicted => "predicted",
            Kind::Statement => "statement",
            Kind::Fitted => "fitted",
            Kind::NoWorse => "no worse",
            Kind::Ours => "ours",
        }
    }
}

impl Claim {
    /// Sets the note for the reader.
    pub const fn note(self, note: &'static str) -> Claim {
        Claim { note, ..self }
    }

    /// Sets a unit and a range in place of holding or not.
    pub const fn within(self, unit: &'static str, low: f64, high: f64) -> Claim {
        Claim { unit, band: Band::Range(low, high), ..self }
    }

    /// Sets the kind of the claim.
    pub const fn of(self, kind: Kind) -> Claim {
        Claim { kind, ..self }
    }

    /// Returns the minimum and maximum value that count as reproduced.
    pub fn band(&self) -> (f64, f64) {
        let value = self.value.unwrap_or(f64::NAN);
        match self.band {
            Band::Gain => gain_band(value),
            Band::Factor(factor) => (value / factor, value * factor),
            Band::Excess => (1.0 + (value - 1.0) / 2.0, 1.0 + (value - 1.0) * 2.0),
            Band::Within(size) => (value - size, value + size),
            Band::Share(points) => ((value / 2.0).max(value - points), (value * 2.0).min(value + points)),
            Band::Range(low, high) => (low, high),
            Band::Holds => (1.0, 1.0),
        }
    }

    /// Returns the figure that judges it, or the paper if none does.
    pub fn figure(&self) -> &'static str {
        self.id.split_once('/').map_or(self.id, |(figure, _)| figure)
    }
}

/// A paper with its claims.
#[derive(Debug)]
pub struct Paper {
    /// Name on the command line: the beginning of its figures' names.
    pub name: &'static str,
    /// Name for readers.
    pub title: &'static str,
    /// All of its claims, in groups.
    pub claims: &'static [&'static [Claim]],
}

impl Paper {
    /// Iterates over all claims, in the order of the paper.
    pub fn claims(&self) -> impl Iterator<Item = &'static Claim> {
        self.claims.iter().flat_map(|group| group.iter())
    }

    /// Returns whether a figure belongs to it.
    pub fn has(&self, figure: &str) -> bool {
        figure.strip_prefix(self.name).is_some_and(|rest| rest.starts_with('-'))
    }
}

/// The papers.
pub const PAPERS: [Paper; 5] = [
    Paper { name: "pod", title: "POD (IEEE TC 2016)", claims: pod::claims::CLAIMS },
    Paper { name: "plc", title: "PLC-Cache (MSST 2014, slides)", claims: plc::claims::CLAIMS },
    Paper { name: "hiods", title: "HIODS (dissertation, Minho 2021)", claims: hiods::claims::CLAIMS },
    Paper { name: "rededup", title: "ReDedup (CBD 2013)", claims: rededup::claims::CLAIMS },
    Paper { name: "iodedup", title: "I/O Deduplication (FAST 2010, slides)", claims: iodedup::claims::CLAIMS },
];

/// Finds a claim by its id. An unknown id is an error of the figure that names it.
pub fn find(id: &str) -> &'static Claim {
    let found = PAPERS.iter().flat_map(Paper::claims).find(|claim| claim.id == id);
    found.unwrap_or_else(|| panic!("no table of claims has {id:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::all;

    fn claims() -> impl Iterator<Item = &'static Claim> {
        PAPERS.iter().flat_map(Paper::claims)
    }

    #[test]
    fn each_id_is_of_one_claim_and_of_a_figure_or_a_paper() {
        let mut ids: Vec<_> = claims().map(|claim| claim.id).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
        for paper in &PAPERS {
            for claim in paper.claims() {
                let is_figure = all().any(|entry| entry.name == claim.figure()) && paper.has(claim.figure());
                assert!(claim.id.contains('/') && (is_figure || claim.figure() == paper.name), "{}", claim.id);
            }
        }
        assert!(all().all(|entry| PAPERS.iter().filter(|paper| paper.has(entry.name)).count() == 1));
    }

    #[test]
    fn a_predicted_number_has_a_band_of_two_that_nothing_is_not_in() {
        for claim in claims() {
            let (low, high) = claim.band();
            assert!(low <= high, "{}: {low} to {high}", claim.id);
            match claim.kind {
                Kind::Predicted => {
                    let value = claim.value.expect("a predicted number");
                    assert!(low <= value && value <= high && value != 0.0, "{}: {low} to {high}", claim.id);
                    match claim.band {
                        Band::Gain => assert!(!(low..=high).contains(&0.0), "{}: {low} to {high}", claim.id),
                        Band::Range(..) | Band::Holds => panic!("{} needs a band by its value", claim.id),
                        Band::Excess => assert!(low > 1.0, "{}", claim.id),
                        _ => assert!(low >= value / 2.0 && high <= value * 2.0, "{}: {low} to {high}", claim.id),
                    }
                }
                Kind::Statement | Kind::Ours => assert!(claim.value.is_none(), "{}", claim.id),
                Kind::Fitted | Kind::NoWorse => {}
            }
        }
    }

    #[test]
    fn a_gain_is_judged_by_the_ratio_and_a_small_one_also_by_itself() {
        let near = |gain: f64, low: f64, high: f64| {
            let found = gain_band(gain);
            assert!((found.0 - low).abs() < 1e-9 && (found.1 - high).abs() < 1e-9, "{gain}: {found:?}");
        };
        near(88.6, 77.2, 94.3);
        near(53.9, 26.95, 76.95);
        near(21.2, 10.6, 42.4);
        near(1.7, 0.85, 3.4);
        near(-10.1, -20.2, -5.05);
    }
}
