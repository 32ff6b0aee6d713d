//! Verdict lists in files: a line a claim, written by `repro figure --verdicts FILE` and compared by `repro figure --compare FILE`.
//!
//! Everything happens in virtual time, so values are equal on every machine, and a list is compared exactly. Some values depend on files that are not in every
//! checkout (`shared/data`). Those are compared only where the data are of the same kind.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::verdicts::{Judged, Judgement};

/// Line of a list: a claim and its result. Numbers have the shortest lossless form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Id of the claim.
    pub claim: String,
    /// Kind of the claim.
    pub kind: String,
    /// The paper's value, or nothing.
    pub paper: String,
    /// Minimum of the band.
    pub low: String,
    /// Maximum of the band.
    pub high: String,
    /// Our value, or nothing.
    pub ours: String,
    /// Verdict.
    pub verdict: String,
    /// Source of the data, or nothing.
    pub data: String,
}

impl Line {
    fn of(judged: &Judged<'_>) -> Line {
        let (low, high) = judged.claim.band();
        let text = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        Line {
            claim: judged.claim.id.into(),
            kind: judged.kind().name().into(),
            paper: text(judged.claim.value),
            low: low.to_string(),
            high: high.to_string(),
            ours: text(judged.row.and_then(|row| row.ours)),
            verdict: judged.verdict().name().into(),
            data: judged.data().map_or(String::new(), |data| data.name().into()),
        }
    }

    fn figure(&self) -> &str {
        self.claim.split_once('/').map_or(&self.claim, |(figure, _)| figure)
    }
}

/// Returns the lines of some judgements, in order of the papers.
pub fn lines(judgements: &[Judgement<'_>]) -> Vec<Line> {
    judgements.iter().flat_map(|judgement| judgement.judged.iter().map(Line::of)).collect()
}

/// Reads a list. Errors name the file.
pub fn read(path: &Path) -> Result<Vec<Line>, String> {
    let error = |error: csv::Error| format!("{}: {error}", path.display());
    csv::Reader::from_path(path).map_err(error)?.into_deserialize().collect::<Result<_, _>>().map_err(error)
}

/// Writes lines to a list. Existing lines of other figures stay, so papers can be made one by one.
pub fn write(path: &Path, new: &[Line], made: &[&str]) -> Result<(), String> {
    let mut lines = if path.exists() { read(path)? } else { Vec::new() };
    lines.retain(|line| !made.contains(&line.figure()) && new.iter().all(|other| other.claim != line.claim));
    lines.extend_from_slice(new);
    lines.sort();
    let mut writer = csv::Writer::from_writer(Vec::new());
    lines.iter().try_for_each(|line| writer.serialize(line)).map_err(|error| error.to_string())?;
    let bytes = writer.into_inner().map_err(|error| error.to_string())?;
    std::fs::write(path, bytes).map_err(|error: io::Error| format!("{}: {error}", path.display()))
}

/// Compares lines with a recorded list: returns a sentence for each difference, and the number of lines that could not be compared, as
/// their data are of another kind here.
pub fn compare(recorded: &[Line], new: &[Line], made: &[&str]) -> (Vec<String>, usize) {
    let (mut moved, mut left_out) = (Vec::new(), 0);
    let value = |line: &Line| match line.ours.as_str() {
        "" => line.verdict.clone(),
        ours => format!("{ours}, {}", line.verdict),
    };
    for line in new {
        match recorded.iter().find(|other| other.claim == line.claim) {
            None => moved.push(format!("{}: new, {}", line.claim, value(line))),
            Some(other) if other.data != line.data => left_out += 1,
            Some(other) if other == line => {}
            Some(other) if (&other.ours, &other.verdict) == (&line.ours, &line.verdict) => moved.push(format!(
                "{}: claimed otherwise: {} {} {} {}, was {} {} {} {}",
                line.claim, line.kind, line.paper, line.low, line.high, other.kind, other.paper, other.low, other.high
            )),
            Some(other) => moved.push(format!("{}: {}; was {}", line.claim, value(line), value(other))),
        }
    }
    let gone = recorded.iter().filter(|line| made.contains(&line.figure()));
    let gone = gone.filter(|line| new.iter().all(|other| other.claim != line.claim));
    moved.extend(gone.map(|line| format!("{}: gone", line.claim)));
    (moved, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(claim: &str, ours: &str, data: &str) -> Line {
        let text = |text: &str| text.to_string();
        Line {
            claim: text(claim),
            kind: text("predicted"),
            paper: text("28"),
            low: text("14"),
            high: text("64"),
            ours: text(ours),
            verdict: text(if ours.is_empty() { "not measured" } else { "holds" }),
            data: text(data),
        }
    }

    #[test]
    fn what_moved_is_named_and_what_has_other_data_is_not_compared() {
        let old = [
            line("a/x", "20", "model"),
            line("a/y", "1", "real"),
            line("b/z", "1", "model"),
            line("a/gone", "1", "model"),
        ];
        let new = [line("a/x", "20.5", "model"), line("a/y", "2", "synthetic"), line("a/new", "", "")];
        let (moved, left_out) = compare(&old, &new, &["a"]);
        let expected = ["a/x: 20.5, holds; was 20, holds", "a/new: new, not measured", "a/gone: gone"];
        assert_eq!((moved, left_out), (expected.map(String::from).to_vec(), 1));
        assert_eq!(compare(&old, &old[..2], &["c"]), (Vec::new(), 0));
        let band = Line { high: "70".into(), ..old[0].clone() };
        assert!(compare(&old, &[band], &[]).0[0].starts_with("a/x: claimed otherwise"));
    }

    #[test]
    fn a_list_keeps_the_lines_of_other_figures() {
        let path = std::env::temp_dir().join(format!("onefold-verdicts-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let written = write(&path, &[line("a/x", "1", "model"), line("b/y", "0.1", "real")], &["a", "b"])
            .and_then(|()| write(&path, &[line("a/z", "3", "model")], &["a"]));
        let lines = written.and_then(|()| read(&path));
        let _ = std::fs::remove_file(&path);
        assert_eq!(lines, Ok(vec![line("a/z", "3", "model"), line("b/y", "0.1", "real")]));
    }
}
