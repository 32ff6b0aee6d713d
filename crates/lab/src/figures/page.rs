//! All figures on one page: plain HTML with the pictures in it, no scripts.

use std::fmt::Write;

use super::claims::Kind;
use super::{Data, Figure, Made, Row};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}\
td,th{border-bottom:1px solid #ddd;padding:.2rem .7rem;text-align:right;white-space:nowrap}\
td:first-child,th:first-child,td:last-child{text-align:left}td:last-child{white-space:normal;min-width:12rem}\
svg{max-width:100%;height:auto}.yes{color:#00703c}.no{color:#b00020}.fitted{color:#777}\
nav li{margin:.1rem 0}h2{margin-top:3rem;border-top:1px solid #ddd;padding-top:1rem}small{color:#555}";

/// The page.
pub fn page(figures: &[Figure], made: &Made) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    let _ = write!(
        html,
        "<meta name=\"viewport\" content=\"width=device-width\"><title>Onefold: figures</title><style>{STYLE}</style></head>\n\
         <body><h1>What the papers show, and what comes out here</h1>\n\
         <p>Made by <code>lab figure all{}</code> of commit <code>{}</code>, in virtual time: every machine gets the same values. A value \
         counts as reproduced if it is in its band; bands were stated before anything ran. <b>Fitted</b> values are properties that the \
         synthetic traces were made to have: they count for nothing.</p>\n",
        escaped(&made.options),
        escaped(&made.commit)
    );
    if made.quick {
        html.push_str("<p><b>This is the short form: it replays a part of each day only.</b></p>\n");
    }
    html.push_str("<nav><ul>\n");
    for figure in figures {
        let judged = figure.rows.iter().filter_map(|row| row.within);
        let (within, judged) = judged.fold((0, 0), |(held, all), within| (held + usize::from(within), all + 1));
        let score =
            if judged == 0 { "nothing to compare".into() } else { format!("{within} of {judged} in their bands") };
        let (name, title) = (figure.name, escaped(&figure.title));
        let source = escaped(figure.source);
        let _ = writeln!(html, "<li><a href=\"#{name}\">{source}</a>: {title} <small>({score})</small></li>");
    }
    html.push_str("</ul></nav>\n");
    for figure in figures {
        section(&mut html, figure);
    }
    html.push_str("</body></html>\n");
    html
}

fn section(html: &mut String, figure: &Figure) {
    let name = figure.name;
    let _ = write!(
        html,
        "<h2 id=\"{name}\">{}: {}</h2>\n{}<p><small><a href=\"{name}.json\">JSON</a> <a href=\"{name}.csv\">CSV</a> \
         <a href=\"{name}.svg\">SVG</a> <a href=\"{name}.png\">PNG</a></small></p>\n",
        escaped(figure.source),
        escaped(&figure.title),
        figure.chart.svg()
    );
    for note in &figure.notes {
        let _ = writeln!(html, "<p>{}</p>", escaped(note));
    }
    html.push_str("<table><tr><th></th><th>paper</th><th>ours</th><th>unit</th><th>band</th><th></th><th></th></tr>\n");
    for row in &figure.rows {
        let (class, verdict) = verdict(row);
        let band = match (row.low, row.high) {
            (Some(low), Some(high)) => format!("{} to {}", value(Some(low)), value(Some(high))),
            _ => String::new(),
        };
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{band}</td><td class=\"{class}\">{verdict}</td><td>{}</td></tr>",
            escaped(&row.label),
            value(row.paper),
            value(row.ours),
            escaped(row.unit),
            escaped(&row.notes)
        );
    }
    html.push_str("</table>\n");
}

fn verdict(row: &Row) -> (&'static str, &'static str) {
    match (row.kind, row.within, row.data) {
        (Some(Kind::Fitted), ..) => ("fitted", "fitted"),
        (_, Some(true), _) => ("yes", "reproduced"),
        (_, Some(false), _) => ("no", "not reproduced"),
        (_, None, Data::Real) => ("", "real data"),
        (_, None, Data::Model) => ("", "model"),
        (_, None, Data::Synthetic) => ("", ""),
    }
}

fn value(value: Option<f64>) -> String {
    let Some(value) = value else { return "\u{2013}".into() };
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 || value.fract() == 0.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
