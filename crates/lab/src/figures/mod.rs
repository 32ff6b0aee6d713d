//! Figures: what a paper shows, and what comes out here, from the same command on every machine.
//!
//! A figure is a function that makes a [`Figure`]: rows with the paper's value, ours, and the band in which ours counts as reproduced,
//! stated before anything runs; a picture; and sentences. [`ALL`] lists them; `command` writes them as JSON, CSV, SVG and PNG, and
//! [`page`] as one page. A figure is a file below a folder for its paper.

pub mod command;
pub mod hiods;
pub mod iodedup;
pub mod page;
pub mod plc;
pub mod plot;
pub mod pod;
pub mod rededup;
pub mod runs;
pub mod sources;

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use self::plot::Chart;
use self::runs::{Results, Run};
use crate::traces::synthetic::Profile;

/// One figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// As `lab figure` and the files name it.
    pub name: &'static str,
    /// Where the paper has it.
    pub source: &'static str,
    /// What it shows.
    pub title: String,
    /// Its values.
    pub rows: Vec<Row>,
    /// Its picture.
    pub chart: Chart,
    /// Sentences that a reader needs.
    pub notes: Vec<String>,
}

/// One value of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is of. It begins with the name of a trace, if the value is of that trace alone.
    pub label: String,
    /// What it is in.
    pub unit: &'static str,
    /// The paper's value; none, where the paper only draws it.
    pub paper: Option<f64>,
    /// Ours; none, where nothing could be measured.
    pub ours: Option<f64>,
    /// The least that counts as reproduced,
    pub low: Option<f64>,
    /// and the most.
    pub high: Option<f64>,
    /// Whether ours does.
    pub within: Option<bool>,
    /// Of what it was measured.
    pub data: Data,
    /// Whether it says anything.
    pub kind: Kind,
    /// Sentences about this row.
    pub notes: String,
}

/// Of what a value was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// A real trace.
    Real,
    /// A made trace.
    Synthetic,
    /// A model alone.
    Model,
}

/// Whether a value says anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The made trace was made to have it: it counts for nothing.
    Fitted,
    /// It follows.
    Predicted,
}

impl Row {
    /// A value, of a made trace, that the paper does not state.
    pub fn new(label: impl Into<String>, unit: &'static str, ours: f64) -> Row {
        Row {
            label: label.into(),
            unit,
            paper: None,
            ours: ours.is_finite().then_some(ours),
            low: None,
            high: None,
            within: None,
            data: Data::Synthetic,
            kind: Kind::Predicted,
            notes: String::new(),
        }
    }

    /// The paper's value, and the band.
    pub fn against(mut self, paper: f64, band: (f64, f64)) -> Row {
        self.paper = Some(paper);
        self.within_band(band)
    }

    /// The band alone, where the paper draws and does not state.
    pub fn within_band(mut self, (low, high): (f64, f64)) -> Row {
        (self.low, self.high) = (Some(low), Some(high));
        self.within = Some(self.ours.is_some_and(|ours| (low..=high).contains(&ours)));
        self
    }

    /// Whether a statement of the paper holds here: 1 or 0, in a band of 1.
    pub fn holds(label: impl Into<String>, holds: bool) -> Row {
        Row::new(label, "holds", f64::from(u8::from(holds))).within_band((1.0, 1.0))
    }

    /// That the made trace was made to have it.
    pub fn fitted(mut self) -> Row {
        self.kind = Kind::Fitted;
        self
    }

    /// Of what it was measured.
    pub fn of(mut self, data: Data) -> Row {
        self.data = data;
        self
    }

    /// A sentence about it.
    pub fn note(mut self, note: impl Into<String>) -> Row {
        self.notes = note.into();
        self
    }
}

/// The band of a gain in percent: from half of the paper's to halfway between it and everything; of a loss, from nothing to three times
/// the paper's. The stand-ins are made from published means and the disks are not the paper's: sign and size can be expected, not digits.
pub fn gain_band(paper: f64) -> (f64, f64) {
    if paper >= 0.0 { (paper / 2.0, (paper + 100.0) / 2.0) } else { (3.0 * paper, 0.0) }
}

/// A figure that can be made.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Where the paper has it, and what it shows.
    pub about: &'static str,
    /// The replays that it is made of. Figures share them.
    pub runs: fn() -> Vec<Run>,
    /// Makes it of their outcomes.
    pub make: fn(&Results) -> Figure,
}

/// All figures, by paper.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    pod::FIGURES.iter().chain(plc::FIGURES).chain(hiods::figures()).chain(rededup::FIGURES).chain(iodedup::FIGURES)
}

/// How figures were made, for who reads them later.
#[derive(Clone, Debug)]
pub struct Made {
    /// Whether these are the short forms.
    pub quick: bool,
    /// What stood behind the name on the command line, each with a blank before it.
    pub options: String,
    /// The commit that was checked out.
    pub commit: String,
}

#[derive(Serialize)]
struct Json<'a> {
    figure: &'a str,
    source: &'a str,
    title: &'a str,
    command: String,
    commit: &'a str,
    rows: &'a [Row],
    notes: &'a [String],
}

impl Figure {
    /// As JSON.
    pub fn json(&self, made: &Made) -> String {
        let json = Json {
            figure: self.name,
            source: self.source,
            title: &self.title,
            command: format!("lab figure {} --out DIR{}", self.name, made.options),
            commit: &made.commit,
            rows: &self.rows,
            notes: &self.notes,
        };
        serde_json::to_string_pretty(&json).expect("a figure is plain data") + "\n"
    }

    /// Its rows as CSV.
    pub fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in &self.rows {
            writer.serialize(row).expect("a row is plain data");
        }
        let bytes = writer.into_inner().expect("memory takes all");
        String::from_utf8(bytes).expect("what was written is text")
    }

    /// Writes `NAME.json`, `NAME.csv`, `NAME.svg` and `NAME.png`.
    pub fn write(&self, directory: &Path, made: &Made) -> io::Result<()> {
        let path = |extension: &str| directory.join(format!("{}.{extension}", self.name));
        for (extension, text) in [("json", self.json(made)), ("csv", self.csv()), ("svg", self.chart.svg())] {
            std::fs::File::create(path(extension))?.write_all(text.as_bytes())?;
        }
        self.chart.png(&path("png")).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Says of which rows the trace is a real one. Nothing was fitted to that.
    pub fn mark(&mut self, data: impl Fn(Profile) -> Data) {
        let traces = [Profile::WebVm, Profile::Homes, Profile::Mail];
        for row in self.rows.iter_mut().filter(|row| row.data == Data::Synthetic) {
            let mut of = traces.into_iter().filter(|trace| row.label.starts_with(trace.name()));
            let is_real = match of.next() {
                Some(trace) => data(trace) == Data::Real,
                None => traces.into_iter().all(|trace| data(trace) == Data::Real),
            };
            if is_real {
                row.data = Data::Real;
                if row.kind == Kind::Fitted {
                    (row.kind, row.notes) = (Kind::Predicted, String::new());
                }
            }
        }
    }

    /// How many of its values that count are in their bands, and how many there are.
    pub fn score(&self) -> (usize, usize) {
        let counted = self.rows.iter().filter(|row| row.kind == Kind::Predicted);
        let judged: Vec<bool> = counted.filter_map(|row| row.within).collect();
        (judged.iter().filter(|within| **within).count(), judged.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_has_the_papers_value_in_it() {
        for paper in [88.6, 21.2, 4.3, 0.0, -10.1, -24.7] {
            let (low, high) = gain_band(paper);
            assert!(low <= paper && paper <= high && low < high, "{paper}: {low} to {high}");
        }
        let row = Row::new("homes", "%", 50.0).against(21.2, gain_band(21.2));
        assert_eq!(row.within, Some(true));
        assert_eq!(Row::new("homes", "%", f64::NAN).against(21.2, gain_band(21.2)).within, Some(false));
    }

    #[test]
    fn rows_of_a_real_trace_say_so_and_are_not_fitted() {
        let rows = vec![
            Row::new("mail: requests", "", 1.0).fitted().note("a target"),
            Row::new("homes: requests", "", 1.0).fitted(),
            Row::new("mean of all", "", 1.0),
            Row::new("mail, a model", "", 1.0).of(Data::Model),
        ];
        let chart = plot::Chart {
            title: String::new(),
            x_label: String::new(),
            y_label: String::new(),
            y: (0.0, 1.0),
            log: false,
            content: plot::Drawn::Bars { groups: Vec::new(), series: Vec::new() },
        };
        let mut figure = Figure { name: "none", source: "none", title: String::new(), rows, chart, notes: Vec::new() };
        figure.mark(|trace| if trace == Profile::Mail { Data::Real } else { Data::Synthetic });
        let seen: Vec<_> = figure.rows.iter().map(|row| (row.data, row.kind)).collect();
        let expected = [
            (Data::Real, Kind::Predicted),
            (Data::Synthetic, Kind::Fitted),
            (Data::Synthetic, Kind::Predicted),
            (Data::Model, Kind::Predicted),
        ];
        assert_eq!(seen, expected);
        assert_eq!(figure.rows[0].notes, "");
    }

    #[test]
    fn names_of_figures_differ_and_are_file_names() {
        let mut names: Vec<_> = all().map(|entry| entry.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')));
    }
}
