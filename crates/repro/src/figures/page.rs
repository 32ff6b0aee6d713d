//! HTML page with all figures: plain HTML with the pictures in it, no scripts.
//!
//! It begins with the score of each paper and one table a paper: predicted numbers, statements, then the claims that do not count. Pictures, and rows that
//! judge nothing, are folded away below. Colours follow the reader's light or dark setting.

use std::fmt::Write;

use super::claims::{Claim, Kind};
use super::verdicts::{Judged, Judgement, Score, Verdict, judge};
use super::{Figure, Made, Row};

const STYLE: &str = include_str!("page.css");

/// Kinds in the order of a paper's table: heading, whether they count.
const KINDS: [(Kind, &str, bool); 5] = [
    (Kind::Predicted, "Predicted numbers", true),
    (Kind::Statement, "Statements", true),
    (Kind::Fitted, "Fitted, calibrated or arithmetic", false),
    (Kind::NoWorse, "No worse than the paper", false),
    (Kind::Ours, "Our own claims", false),
];

/// Renders the page.
pub fn page(figures: &[Figure], made: &Made) -> String {
    let judgements = judge(figures);
    let mut html = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    let _ = write!(
        html,
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Onefold: figures</title>\
         <style>{STYLE}</style></head>\n<body><h1>What the papers say, and what came out here</h1>\n"
    );
    scores(&mut html, &judgements);
    let _ = writeln!(
        html,
        "<p>Made by <code>{}</code> of commit <code>{}</code>, in virtual time: every machine gets the same values.{} \
         <b>Predicted</b> numbers and <b>statements</b> count, each for themselves. A number holds if it lies in its band: a factor of two of \
         the paper's time or tighter. Bands and kinds were written before anything ran.</p>",
        escaped(&made.command()),
        escaped(&made.commit),
        if made.quick {
            " <b>This is the short form: a part of each trace, so other values than the full form's.</b>"
        } else {
            ""
        }
    );
    for judgement in &judgements {
        paper(&mut html, judgement, figures);
    }
    html.push_str("</body></html>\n");
    html
}

/// Writes the score of each paper, in one table.
fn scores(html: &mut String, judgements: &[Judgement<'_>]) {
    html.push_str(
        "<table class=\"scores\"><thead><tr><th>paper</th><th>predicted numbers in band</th><th>statements that hold</th>\
         <th>not counted</th></tr></thead><tbody>\n",
    );
    for judgement in judgements {
        let score = judgement.score();
        let rest = [("fitted", score.fitted), ("no worse", score.no_worse), ("ours", score.ours)];
        let rest: Vec<String> =
            rest.iter().filter(|(_, count)| count.all > 0).map(|(name, count)| format!("{name} {count}")).collect();
        let _ = writeln!(
            html,
            "<tr><th><a href=\"#{}\">{}</a></th><td>{}</td><td>{}</td><td>{}</td></tr>",
            judgement.paper.name,
            escaped(judgement.paper.title),
            meter(score.predicted.held, score.predicted.all),
            meter(score.statements.held, score.statements.all),
            rest.join(", ")
        );
    }
    html.push_str("</tbody></table>\n");
}

/// Formats a count and a bar of its share.
fn meter(held: usize, all: usize) -> String {
    if all == 0 {
        return "\u{2013}".into();
    }
    format!("<b>{held}</b> of {all} <span class=\"bar\"><i style=\"width:{}%\"></i></span>", 100 * held / all)
}

fn paper(html: &mut String, judgement: &Judgement<'_>, figures: &[Figure]) {
    let Score { predicted, statements, .. } = judgement.score();
    let counts = [("Predicted numbers in band", predicted), ("Statements that hold", statements)];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(_, count)| count.all > 0)
        .map(|(what, count)| format!("{what}: <b>{count}</b>."))
        .collect();
    let _ = write!(
        html,
        "<section><h2 id=\"{}\">{}</h2>\n<p class=\"score\">{}</p>\n",
        judgement.paper.name,
        escaped(judgement.paper.title),
        counts.join(" ")
    );
    for (kind, heading, counts) in KINDS {
        let of: Vec<&Judged<'_>> = judgement.judged.iter().filter(|judged| judged.kind() == kind).collect();
        if of.is_empty() {
            continue;
        }
        let held = of.iter().filter(|judged| judged.verdict() == Verdict::Holds).count();
        let heading = format!("{heading}: {held} of {}", of.len());
        if counts {
            let _ = writeln!(html, "<h3>{heading}</h3>");
            claims(html, &of);
        } else {
            let _ = writeln!(html, "<details><summary>{heading} <small>(not counted)</small></summary>");
            claims(html, &of);
            html.push_str("</details>\n");
        }
    }
    html.push_str("<h3>Figures and parts</h3>\n");
    for figure in figures.iter().filter(|figure| judgement.paper.has(figure.name)) {
        section(html, figure);
    }
    html.push_str("</section>\n");
}

/// Writes a table of claims.
fn claims(html: &mut String, judged: &[&Judged<'_>]) {
    html.push_str(
        "<table class=\"claims\"><thead><tr><th>what</th><th>paper</th><th>ours</th><th>band</th><th>verdict</th><th>note</th></tr>\
         </thead><tbody>\n",
    );
    for judged in judged {
        let claim = judged.claim;
        let (class, mark, verdict) = match judged.verdict() {
            Verdict::Holds => ("yes", "\u{2713}", "holds"),
            Verdict::Fails => ("no", "\u{2717}", "fails"),
            Verdict::NotMeasured => ("none", "\u{2013}", "not measured"),
        };
        let source = match judged.row {
            Some(_) => format!("<a href=\"#{}\">{}</a>", claim.figure(), escaped(claim.source)),
            None => escaped(claim.source),
        };
        let data = judged.data().map_or(String::new(), |data| format!(" <em>{}</em>", data.name()));
        let _ = writeln!(
            html,
            "<tr class=\"{class}\"><td>{} <small>{source}{data}</small></td><td data-of=\"paper\">{}</td><td data-of=\"ours\">{}</td>\
             <td data-of=\"band\">{}</td><td class=\"verdict\">{mark} {verdict}</td><td>{}</td></tr>",
            escaped(claim.what),
            of_paper(claim),
            of_ours(judged),
            band(claim),
            escaped(judged.note())
        );
    }
    html.push_str("</tbody></table>\n");
}

/// Returns true if the unit of a claim is that of a gain: a sign would be read twice.
fn is_gain(claim: &Claim) -> bool {
    claim.unit == "% less"
}

/// Formats a value with its unit.
fn amount(claim: &Claim, value: f64) -> String {
    match (is_gain(claim), claim.unit) {
        (true, _) if value < 0.0 => format!("{} % more", number(-value)),
        (true, _) => format!("{} % less", number(value)),
        (false, "") => number(value),
        (false, unit) => format!("{} {}", number(value), escaped(unit)),
    }
}

fn of_paper(claim: &Claim) -> String {
    match claim.value {
        Some(value) => amount(claim, value),
        None if claim.kind == Kind::Ours => "\u{2013}".into(),
        None => "says so".into(),
    }
}

fn of_ours(judged: &Judged<'_>) -> String {
    let Some(ours) = judged.row.and_then(|row| row.ours) else { return "\u{2013}".into() };
    match judged.claim.unit {
        "holds" if ours >= 1.0 => "so".into(),
        "holds" if ours > 0.0 => format!("at {} % of points", number(100.0 * ours)),
        "holds" => "not so".into(),
        _ => amount(judged.claim, ours),
    }
}

fn band(claim: &Claim) -> String {
    let (low, high) = claim.band();
    match claim.unit {
        "holds" => String::new(),
        _ if is_gain(claim) && high < 0.0 => format!("{} to {} % more", number(-high), number(-low)),
        "" => format!("{} to {}", number(low), number(high)),
        unit => format!("{} to {} {}", number(low), number(high), escaped(unit)),
    }
}

/// Writes the picture of a figure and its rows, folded.
fn section(html: &mut String, figure: &Figure) {
    let name = figure.name;
    let _ = write!(
        html,
        "<details><summary>{}: {} <small>{name}</small></summary><div id=\"{name}\">\n<figure>{}</figure>\n<p><small><a href=\"{name}.json\">JSON</a> \
         <a href=\"{name}.csv\">CSV</a> <a href=\"{name}.svg\">SVG</a> <a href=\"{name}.png\">PNG</a></small></p>\n",
        escaped(figure.source),
        escaped(&figure.title),
        figure.chart.svg()
    );
    for note in &figure.notes {
        let _ = writeln!(html, "<p>{}</p>", escaped(note));
    }
    let parts: Vec<&Row> = figure.rows.iter().filter(|row| row.claim.is_none()).collect();
    if !parts.is_empty() {
        let _ = writeln!(html, "<details><summary>{} rows that judge nothing</summary>", parts.len());
        html.push_str("<table class=\"parts\"><thead><tr><th>what</th><th>ours</th><th>unit</th><th>data</th><th>note</th></tr></thead><tbody>\n");
        for row in parts {
            let _ = writeln!(
                html,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escaped(&row.label),
                row.ours.map_or("\u{2013}".into(), number),
                escaped(row.unit),
                row.data.name(),
                escaped(&row.notes)
            );
        }
        html.push_str("</tbody></table></details>\n");
    }
    html.push_str("</div></details>\n");
}

/// Formats a number with as many digits as a reader can use.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => grouped(value),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Formats a whole number with commas.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
