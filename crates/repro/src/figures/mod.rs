//! Figures of the papers: the paper's values beside our values, from the same command on every machine.
//!
//! A figure is a function that makes a [`Figure`]: rows of our values, a picture, and sentences. A row that judges a number or a statement of the paper names
//! it in the table of [`claims`]. That table has values, bands and kinds and is written before anything runs. [`all`] lists the figures; `command` writes them
//! as JSON, CSV, SVG and PNG, [`page`] as one page, and [`verdicts`] counts. A figure is a file below a folder for its paper.

pub mod claims;
pub mod command;
pub mod hiods;
pub mod iodedup;
pub mod page;
pub mod pictures;
pub mod plc;
pub mod plot;
pub mod pod;
pub mod recorded;
pub mod rededup;
pub mod runs;
pub mod sources;
pub mod verdicts;

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use self::claims::{Claim, Kind, find};
use self::plot::Chart;
use self::runs::{Results, Run};
use crate::traces::synthetic::Profile;

/// One figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name in `repro figure` and in file names.
    pub name: &'static str,
    /// Place in the paper.
    pub source: &'static str,
    /// Title of the chart and the table.
    pub title: String,
    /// Its values.
    pub rows: Vec<Row>,
    /// Its picture.
    pub chart: Chart,
    /// Sentences that a reader needs.
    pub notes: Vec<String>,
}

/// One value of a figure. Only a row that judges a claim has a paper's value, a band and a kind.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Subject. It begins with the name of a trace if the value is of that trace alone.
    pub label: String,
    /// Unit.
    pub unit: &'static str,
    /// The paper's value; none where it prints none.
    pub paper: Option<f64>,
    /// Our value; none where nothing could be measured.
    pub ours: Option<f64>,
    /// Minimum value that counts as reproduced.
    pub low: Option<f64>,
    /// Maximum value that counts as reproduced.
    pub high: Option<f64>,
    /// True if our value is in the band; absent without a value or a band.
    pub within: Option<bool>,
    /// Source of the data.
    pub data: Data,
    /// Kind of the claim.
    pub kind: Option<Kind>,
    /// Id of the claim that the row judges.
    pub claim: Option<&'static str>,
    /// Sentences about this row.
    pub notes: String,
}

/// Source of the data that a value was measured of.
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

impl Data {
    /// Returns the name for readers.
    pub fn name(self) -> &'static str {
        match self {
            Data::Real => "real",
            Data::Synthetic => "synthetic",
            Data::Model => "model",
        }
    }
}

impl Row {
    /// Creates a row for a value of a made trace, without paper value, band or verdict.
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
            kind: None,
            claim: None,
            notes: String::new(),
        }
    }

    /// Judges the claim `id` by our value. Subject, unit, value, band and kind come from the table of claims, which must have the id.
    pub fn claim(id: &str, ours: f64) -> Row {
        let claim = find(id);
        let row = Row::new(claim.what, claim.unit, ours);
        let (low, high) = claim.band();
        Row {
            paper: claim.value,
            low: Some(low),
            high: Some(high),
            within: Some(row.ours.is_some_and(|ours| (low..=high).contains(&ours))),
            kind: Some(claim.kind),
            claim: Some(claim.id),
            notes: claim.note.into(),
            ..row
        }
    }

    /// Judges a statement: 1 if it holds, else 0.
    pub fn statement(id: &str, holds: bool) -> Row {
        Row::claim(id, f64::from(u8::from(holds)))
    }

    /// Judges a statement about several points by the share of points at which it holds. The note names the other points.
    pub fn every<L: Into<String>>(id: &str, points: impl IntoIterator<Item = (L, bool)>) -> Row {
        let points: Vec<(String, bool)> = points.into_iter().map(|(label, holds)| (label.into(), holds)).collect();
        let held = points.iter().filter(|point| point.1).count();
        let row = Row::claim(id, held as f64 / points.len() as f64);
        let mut note = format!("{held} of {}", points.len());
        let missed: Vec<&str> = points.iter().filter(|point| !point.1).map(|point| point.0.as_str()).collect();
        if !missed.is_empty() {
            note += &format!("; not: {}", missed.join(", "));
        }
        row.note(note)
    }

    /// Sets the source of the data.
    pub fn of(mut self, data: Data) -> Row {
        self.data = data;
        self
    }

    /// Appends a sentence to the notes.
    pub fn note(mut self, note: impl Into<String>) -> Row {
        let note = note.into();
        self.notes = if self.notes.is_empty() { note } else { format!("{} {note}", self.notes) };
        self
    }
}

/// Entry of a figure that can be made.
pub struct Entry {
    /// Name of the figure.
    pub name: &'static str,
    /// Place in the paper, and subject of the figure.
    pub about: &'static str,
    /// Replays of the figure. Figures share them.
    pub runs: fn() -> Vec<Run>,
    /// Makes it of their outcomes.
    pub make: fn(&Results) -> Figure,
}

/// Iterates over all figures, by paper.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    pod::FIGURES.iter().chain(plc::FIGURES).chain(hiods::figures()).chain(rededup::FIGURES).chain(iodedup::FIGURES)
}

/// Provenance of figures, for later readers.
#[derive(Clone, Debug)]
pub struct Made {
    /// Names on the command line.
    pub names: String,
    /// True in the short form.
    pub quick: bool,
    /// Options that stood behind the name on the command line, each with a blank before it.
    pub options: String,
    /// The commit that was checked out.
    pub commit: String,
}

impl Made {
    /// Returns the command line that made the figures.
    pub fn command(&self) -> String {
        format!("repro figure {} --out DIR{}", self.names, self.options)
    }
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
    /// Formats the figure as JSON.
    pub fn json(&self, made: &Made) -> String {
        let json = Json {
            figure: self.name,
            source: self.source,
            title: &self.title,
            command: format!("repro figure {} --out DIR{}", self.name, made.options),
            commit: &made.commit,
            rows: &self.rows,
            notes: &self.notes,
        };
        serde_json::to_string_pretty(&json).expect("a figure is plain data") + "\n"
    }

    /// Formats the rows as CSV.
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

    /// Labels rows of a real trace as real. A fitted value becomes a predicted one, as it was not fitted to that trace, and notes on
    /// stand-ins are left out where a real trace takes part.
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
                if row.kind == Some(Kind::Fitted) {
                    (row.kind, row.notes) = (Some(Kind::Predicted), String::new());
                }
            }
        }
        let names_stand_in = |note: &str| note.contains("stand-in");
        if self.rows.iter().any(|row| row.data == Data::Real)
            && traces.into_iter().any(|trace| data(trace) == Data::Real)
        {
            self.notes.retain(|note| !names_stand_in(note));
            self.rows.iter_mut().filter(|row| names_stand_in(&row.notes)).for_each(|row| row.notes.clear());
        }
    }

    /// Sets the tag of the chart to the data of its rows.
    pub fn tag(&mut self) {
        let has = |data| self.rows.iter().any(|row| row.data == data);
        let name = match (has(Data::Synthetic), has(Data::Real)) {
            (true, true) => "synthetic, and real where it says so",
            (true, false) => Data::Synthetic.name(),
            (false, true) => Data::Real.name(),
            (false, false) => Data::Model.name(),
        };
        self.chart.tag = name;
    }

    /// Checks that the figure judges its own claims, and none twice.
    pub fn check(&self) -> Result<(), String> {
        let mut ids: Vec<&str> = self.rows.iter().filter_map(|row| row.claim).collect();
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("{} judges {} twice", self.name, twice[0]));
        }
        match ids.into_iter().find(|id| find(id).figure() != self.name) {
            Some(other) => Err(format!("{} judges {other}, which is of another figure", self.name)),
            None => Ok(()),
        }
    }

    /// Returns the row that judges a claim, if there is one.
    pub fn judged(&self, claim: &Claim) -> Option<&Row> {
        self.rows.iter().find(|row| row.claim == Some(claim.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_judged_by_its_own_band() {
        let within = |percent| Row::claim("pod-11/select-homes", percent).within;
        assert_eq!([50.0, 42.0, 20.0, 10.0, f64::NAN].map(within), [false, true, true, false, false].map(Some));
        let row = Row::claim("pod-11/select-homes", 20.0);
        assert_eq!((row.paper, row.kind, row.unit), (Some(21.2), Some(Kind::Predicted), "% less"));
        assert_eq!(Row::new("a part", "%", 20.0).within, None);
        let row = Row::every("plc-alpha/time", [("0.6", true), ("1.2", false)]);
        assert_eq!((row.ours, row.within, row.notes.as_str()), (Some(0.5), Some(false), "1 of 2; not: 1.2"));
    }

    fn figure(name: &'static str, rows: Vec<Row>) -> Figure {
        let chart = Chart::bars("", "", Vec::new(), Vec::new());
        Figure { name, source: "none", title: String::new(), rows, chart, notes: Vec::new() }
    }

    #[test]
    fn a_figure_judges_its_own_claims_once() {
        let row = |id| Row::claim(id, 50.0);
        let own =
            figure("pod-11", vec![row("pod-11/select-mail"), row("pod-11/select-homes"), Row::new("a part", "", 1.0)]);
        assert_eq!(own.check(), Ok(()));
        let twice = figure("pod-11", vec![row("pod-11/select-mail"), row("pod-11/select-mail")]);
        assert_eq!(twice.check(), Err("pod-11 judges pod-11/select-mail twice".into()));
        let other = figure("pod-11", vec![row("pod-12a/full-native-homes")]);
        assert!(other.check().is_err_and(|why| why.contains("of another figure")));
    }

    #[test]
    fn rows_of_a_real_trace_say_so_and_are_not_fitted() {
        let rows = vec![
            Row::claim("pod-table-3/requests-mail", 1.0),
            Row::claim("pod-table-3/requests-homes", 1.0),
            Row::claim("pod-abstract/mean", 1.0),
            Row::new("mail, a model", "", 1.0).of(Data::Model),
        ];
        let notes = ["Requests wait.", "On the stand-in for mail they wait longer."].map(String::from).to_vec();
        let mut figure = Figure { notes, ..figure("none", rows) };
        figure.mark(|trace| if trace == Profile::Mail { Data::Real } else { Data::Synthetic });
        let seen: Vec<_> = figure.rows.iter().map(|row| (row.data, row.kind)).collect();
        let expected = [
            (Data::Real, Some(Kind::Predicted)),
            (Data::Synthetic, Some(Kind::Fitted)),
            (Data::Synthetic, Some(Kind::Predicted)),
            (Data::Model, None),
        ];
        assert_eq!(seen, expected);
        assert_eq!(figure.rows[0].notes, "");
        assert_eq!(figure.notes, ["Requests wait."]);
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
