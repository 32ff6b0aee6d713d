//! Verdicts of the claims, and the score of each paper.

use std::fmt;

use serde::Serialize;

use super::claims::{Claim, Kind, PAPERS, Paper};
use super::{Data, Figure, Row, all};

/// Outcome of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Our value is in the band.
    Holds,
    /// It is not.
    Fails,
    /// No figure measures it, or its figure could not.
    NotMeasured,
}

impl Verdict {
    /// Returns the name for readers.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "fails",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// A claim with the row that judges it.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// The claim.
    pub claim: &'static Claim,
    /// The row; none if no figure that was made has one.
    pub row: Option<&'a Row>,
}

impl Judged<'_> {
    /// Returns the kind: a number that a stand-in was fitted to counts as predicted of a real trace.
    pub fn kind(&self) -> Kind {
        self.row.and_then(|row| row.kind).unwrap_or(self.claim.kind)
    }

    /// Returns the outcome: a claim without a value is not measured.
    pub fn verdict(&self) -> Verdict {
        match self.row.map(|row| (row.ours, row.within)) {
            Some((Some(_), Some(true))) => Verdict::Holds,
            Some((Some(_), _)) => Verdict::Fails,
            _ => Verdict::NotMeasured,
        }
    }

    /// Returns the source of the data; none if nothing was measured.
    pub fn data(&self) -> Option<Data> {
        self.row.map(|row| row.data)
    }

    /// Sentences about the claim, with those of the run if there was one.
    pub fn note(&self) -> &str {
        self.row.map_or(self.claim.note, |row| &row.notes)
    }
}

/// Number of claims of a kind, and of those that hold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Count {
    /// Claims that hold, with values in their bands.
    pub held: usize,
    /// All claims, including those that were not measured.
    pub all: usize,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.held, self.all)
    }
}

/// Score of a paper. Only the first two count, each for itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Score {
    /// Predicted numbers in their bands.
    pub predicted: Count,
    /// Statements of the paper in words: those that hold, of all.
    pub statements: Count,
    /// Numbers that something was fitted to: they count for nothing.
    pub fitted: Count,
    /// Numbers that ours is no worse than: they do not count.
    pub no_worse: Count,
    /// Claims of our own: they count for nothing.
    pub ours: Count,
}

impl Score {
    /// Counts claims.
    pub fn of<'a>(judged: impl IntoIterator<Item = Judged<'a>>) -> Score {
        let mut score = Score::default();
        for judged in judged {
            let count = match judged.kind() {
                Kind::Predicted => &mut score.predicted,
                Kind::Statement => &mut score.statements,
                Kind::Fitted => &mut score.fitted,
                Kind::NoWorse => &mut score.no_worse,
                Kind::Ours => &mut score.ours,
            };
            count.all += 1;
            count.held += usize::from(judged.verdict() == Verdict::Holds);
        }
        score
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "predicted numbers in band: {}; statements that hold: {}", self.predicted, self.statements)?;
        let rest = [("fitted", self.fitted), ("no worse", self.no_worse), ("our own claims", self.ours)];
        let rest: Vec<String> =
            rest.iter().filter(|(_, count)| count.all > 0).map(|(name, count)| format!("{name} {count}")).collect();
        if rest.is_empty() { Ok(()) } else { write!(f, " (not counted: {})", rest.join(", ")) }
    }
}

/// A paper with its claims, limited to the figures that were made.
pub struct Judgement<'a> {
    /// The paper.
    pub paper: &'static Paper,
    /// Its claims in the order of the paper.
    pub judged: Vec<Judged<'a>>,
}

impl Judgement<'_> {
    /// Counts the score of these claims.
    pub fn score(&self) -> Score {
        Score::of(self.judged.iter().copied())
    }
}

/// Judges the papers of some figures. Claims of figures that were not made are left out. Claims that no figure measures are there if all
/// figures of the paper were made.
pub fn judge(figures: &[Figure]) -> Vec<Judgement<'_>> {
    let made = |name: &str| figures.iter().find(|figure| figure.name == name);
    let mut papers = Vec::new();
    for paper in &PAPERS {
        let is_whole = all().filter(|entry| paper.has(entry.name)).all(|entry| made(entry.name).is_some());
        let judged = paper.claims().filter_map(|claim| match made(claim.figure()) {
            Some(figure) => Some(Judged { claim, row: figure.judged(claim) }),
            None => (is_whole && claim.figure() == paper.name).then_some(Judged { claim, row: None }),
        });
        let judged: Vec<Judged<'_>> = judged.collect();
        if !judged.is_empty() || figures.iter().any(|figure| paper.has(figure.name)) {
            papers.push(Judgement { paper, judged });
        }
    }
    papers
}

#[derive(Serialize)]
struct Papers<'a> {
    command: &'a str,
    commit: &'a str,
    papers: Vec<OfPaper<'a>>,
}

#[derive(Serialize)]
struct OfPaper<'a> {
    paper: &'static str,
    score: Score,
    claims: Vec<OfClaim<'a>>,
}

#[derive(Serialize)]
struct OfClaim<'a> {
    id: &'static str,
    source: &'static str,
    what: &'static str,
    unit: &'static str,
    kind: Kind,
    paper: Option<f64>,
    low: f64,
    high: f64,
    ours: Option<f64>,
    verdict: Verdict,
    data: Option<Data>,
    note: &'a str,
}

/// Formats the verdicts as JSON: of each paper the score and its claims.
pub fn json(judgements: &[Judgement<'_>], command: &str, commit: &str) -> String {
    let of_claim = |judged: &Judged<'_>| -> OfClaim<'_> {
        let (claim, (low, high)) = (judged.claim, judged.claim.band());
        OfClaim {
            id: claim.id,
            source: claim.source,
            what: claim.what,
            unit: claim.unit,
            kind: judged.kind(),
            paper: claim.value,
            low,
            high,
            ours: judged.row.and_then(|row| row.ours),
            verdict: judged.verdict(),
            data: judged.data(),
            note: "",
        }
    };
    let papers = judgements.iter().map(|judgement| OfPaper {
        paper: judgement.paper.title,
        score: judgement.score(),
        claims: judgement.judged.iter().map(|judged| OfClaim { note: judged.note(), ..of_claim(judged) }).collect(),
    });
    let papers = Papers { command, commit, papers: papers.collect() };
    serde_json::to_string_pretty(&papers).expect("verdicts are plain data") + "\n"
}
