//! Components of the response times, for every column.

use crate::figures::Row;
use crate::figures::runs::Outcome;
use crate::replay::outcome::{Parts, Times};

/// A part of a response time: its name, and its value in nanoseconds.
type Part = (&'static str, fn(&Parts) -> u64);

/// All of them; their sum is the response time.
const ALL: [Part; 9] = [
    ("processor", |parts| parts.processor),
    ("index or tables on disk", |parts| parts.lookup),
    ("journal and syncs", |parts| parts.journal),
    ("waiting for the submitter, a place or a timer", |parts| parts.waiting),
    ("queue", |parts| parts.disk.queue),
    ("seek", |parts| parts.disk.seek),
    ("rotation", |parts| parts.disk.rotation),
    ("transfer", |parts| parts.disk.transfer),
    ("overhead", |parts| parts.disk.overhead),
];

/// Makes a row for each part of reads and of writes. Parts that such a column cannot have are left out.
pub(super) fn rows(column: &str, outcome: &Outcome, is_onefold: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for (kind, times) in [("writes", &outcome.writes), ("reads", &outcome.reads)] {
        for (name, part) in ALL {
            if is_onefold || name != "journal and syncs" {
                rows.push(Row::new(format!("{column}, {kind}: {name}"), "ms", times.part_ms(part)));
            }
        }
        if !is_onefold {
            let label = format!("{column}, {kind}: splits (part of the above)");
            rows.push(Row::new(label, "ms", times.part_ms(|parts| parts.splits)));
        }
    }
    rows
}

/// Explains why one column takes longer than another: the three parts with the largest increase, the largest first.
pub(super) fn reason(longer: &Outcome, shorter: &Outcome) -> String {
    let mean = |outcome: &Outcome, part: fn(&Parts) -> u64| {
        let of = |times: &Times| times.part_ms(part) * times.requests as f64;
        (of(&outcome.reads) + of(&outcome.writes)) / outcome.requests().max(1) as f64
    };
    let mut more: Vec<(&str, f64)> =
        ALL.iter().map(|&(name, part)| (name, mean(longer, part) - mean(shorter, part))).collect();
    more.retain(|(_, ms)| *ms >= 0.01);
    more.sort_by(|one, other| other.1.total_cmp(&one.1));
    let words: Vec<String> = more.iter().take(3).map(|(name, ms)| format!("{name} +{ms:.2} ms")).collect();
    if words.is_empty() { "no part alone is longer by 0.01 ms".into() } else { words.join(", ") }
}
