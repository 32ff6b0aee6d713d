//! Generator of the tables of metrics in docs/reference/metrics.md, so that the page cannot differ from the program; and the figures that are no metrics.
//!
//! The page has a table in the section of each subject. `ONEFOLD_WRITE_REFERENCE=1 cargo test -p onefold metrics` writes the tables; without it the test
//! compares.

use serde_json::Value;

use crate::report::prometheus::metrics::{OF_POOL, OF_VOLUME};
use crate::report::prometheus::{Kind, Metric};
use crate::report::text::tests::report;

/// Path of the page, from the crate.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");

/// Head of a table, which ends with an empty line.
const HEAD: &str = "| metric | type | labels besides `pool` | figure | meaning |\n|---|---|---|---|---|\n";

/// Sections of the page that have tables, with the figures whose metrics are in them: paths, and all below these. Figures of no other section are in the
/// first.
const SECTIONS: &[(&str, &[&str])] = &[
    ("Space and savings", &[]),
    ("Snapshots", &["snapshots"]),
    (
        "State and damage",
        &[
            "mode",
            "needs_recovery",
            "opened",
            "host_full",
            "failure",
            "refuses_new",
            "damaged_blocks_found",
            "damages_left",
            "repaired_blocks",
            "second_copies",
            "scrub",
        ],
    ),
    ("Writes", &["writes"]),
    ("Reads", &["reads"]),
    ("Latency and throttle", &["latency", "throttle"]),
    (
        "Memory, index and read cache",
        &["memory_bytes", "memory_cap_bytes", "memory_resizing", "index_filled_percent", "cache"],
    ),
    ("Index prefetch", &["index_prefetch"]),
    ("Index on disk", &["disk_index"]),
    ("Background pass", &["dedup"]),
    ("Relocation", &["relocate"]),
    ("Defragmentation", &["defrag"]),
    ("Discards", &["discard"]),
    ("Replicas", &["replicas"]),
    ("Flash cache", &["flash"]),
    ("Checkpoints", &["metadata"]),
    ("Device", &["device"]),
    ("Volumes", &["volumes[]"]),
];

/// Figures of `status --json` that are no metrics, with all below them, by the reason.
const NO_METRICS: &[(&str, &[&str])] = &[
    ("version of the format", &["version"]),
    ("advice on another figure", &["remedy"]),
    (
        "settings and names",
        &[
            "addresses",
            "cache.is_set",
            "cache.key",
            "cache.setting",
            "dedup.verify",
            "defrag.bytes_per_day",
            "device.set",
            "ephemeral",
            "flash.budget_bytes_per_day",
            "flash.endurance_bytes",
            "flash.path",
            "flash.policy",
            "index_copy",
            "memory_source",
            "pool_policy",
            "relocate.by_itself",
            "replicas.set_bytes",
            "second_copies_above",
            "throttle.policy",
            "tls",
            "volumes[].controller",
            "volumes[].exclusive",
            "volumes[].goal",
            "volumes[].keep_runs",
            "volumes[].name",
            "volumes[].origin",
            "volumes[].policy",
            "volumes[].policy_source",
            "volumes[].timing",
            "volumes[].timing_source",
        ],
    ),
    (
        "consequences of the kind of the disk, which is a metric, and of settings",
        &[
            "device.gap_blocks",
            "device.kind",
            "device.reads_in_flight",
            "device.window_blocks",
            "flash.life_days_at_budget",
            "volumes[].timing_state.may_change",
        ],
    ),
    (
        "figures that follow from metrics",
        &[
            "cache.index_hits",
            "cache.index_misses",
            "flash.filled_places",
            "flash.places",
            "index_prefetch.hits_per_load",
            "volumes[].writes.removed_percent",
            "writes.removed_percent",
        ],
    ),
    (
        "lists and sentences",
        &["cache.history", "damages", "flash.reason", "snapshots.most", "volumes[].snapshots_failure"],
    ),
    (
        "details of a job whose state and progress are metrics",
        &["dedup.backlog", "dedup.short_of_space", "relocate.kept", "relocate.short_of_space"],
    ),
    ("consequences of damage, which is a metric", &["volumes[].referred_is_most"]),
];

/// Row of the table.
struct Row {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    labels: Vec<&'static str>,
    /// Path of the figure in `status --json`; the value of a label stands there as the label's name in capitals.
    path: String,
}

impl Row {
    /// Reads the figure of a metric. `part` is the path of the list that the figure is in, with the label of its items.
    fn new<Part>(metric: &Metric<Part>, part: Option<(&str, &'static str)>) -> Row {
        let &Metric { name, kind, help, figure, .. } = metric;
        let (path, shape) = figure.split_once('[').unwrap_or((figure, "as it is ]"));
        let (shape, inner) = shape.split_once(']').expect("the shape ends");
        let shape: Vec<&str> = shape.split_whitespace().collect();
        let (label, path) = match shape[..] {
            ["as", ..] => (None, path.into()),
            [label, "of", ..] => (Some(label), path.into()),
            [label] => (Some(label), format!("{path}.{}{inner}", label.to_uppercase())),
            _ => unreachable!("{figure} has a shape that is not documented"),
        };
        let path = part.map_or(path.clone(), |(list, _)| format!("{list}.{path}"));
        let labels = part.map(|(_, label)| label).into_iter().chain(label).collect();
        Row { name, kind, help, labels, path }
    }

    fn text(&self) -> String {
        let labels: Vec<String> = self.labels.iter().map(|label| format!("`{label}`")).collect();
        let Row { name, kind, help, path, .. } = self;
        format!("| `{name}` | {} | {} | `{path}` | {help} |\n", kind.name(), labels.join(", "))
    }

    /// Returns the section of the page that the metric is in.
    fn section(&self) -> &'static str {
        let of = |(_, paths): &&(&str, &[&str])| paths.iter().any(|path| is_of(&self.path, path));
        SECTIONS.iter().find(of).unwrap_or(&SECTIONS[0]).0
    }
}

fn rows() -> Vec<Row> {
    let of_pool = OF_POOL.iter().map(|metric| Row::new(metric, None));
    let of_volume = OF_VOLUME.iter().map(|metric| Row::new(metric, Some(("volumes[]", "volume"))));
    of_pool.chain(of_volume).collect()
}

/// Lists the paths of all figures below one.
fn figures(path: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                figures(&if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, value, found);
            }
        }
        Value::Array(items) if matches!(items.first(), Some(Value::Object(_))) => {
            figures(&format!("{path}[]"), &items[0], found);
        }
        _ => found.push(path.into()),
    }
}

/// Returns true if `figure` is the one at `path`, or below it. Capitals in the path stand for any name.
fn is_of(figure: &str, path: &str) -> bool {
    let mut steps = figure.split('.');
    path.split('.')
        .all(|wanted| steps.next().is_some_and(|step| step == wanted || wanted.chars().all(char::is_uppercase)))
}

/// Replaces the table in a section of the page.
fn with_table(page: &str, section: &str, table: &str) -> String {
    let section_start = page.find(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let start = section_start + page[section_start..].find(HEAD).expect("the section has a table") + HEAD.len();
    assert_eq!(page[section_start..start].matches("\n## ").count(), 1, "the table is in section {section}");
    let end = if page[start..].starts_with('\n') {
        start
    } else {
        page[start..].find("\n\n").map_or(page.len(), |end| start + end + 1)
    };
    format!("{}{table}{}", &page[..start], &page[end..])
}

#[test]
fn metrics_are_those_of_the_page() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let expected = SECTIONS.iter().fold(page.clone(), |page, (section, _)| {
        let rows = rows().into_iter().filter(|row| row.section() == *section);
        with_table(&page, section, &rows.map(|row| row.text()).collect::<String>())
    });
    assert_eq!(expected.matches(HEAD).count(), SECTIONS.len(), "each table is of a section");
    if std::env::var_os("ONEFOLD_WRITE_REFERENCE").is_some() {
        std::fs::write(PAGE, expected).unwrap();
    } else {
        assert!(
            page == expected,
            "docs/reference/metrics.md differs from the metrics: ONEFOLD_WRITE_REFERENCE=1 cargo test -p onefold metrics rewrites it"
        );
    }
}

#[test]
fn names_of_metrics_are_told_apart_and_say_what_kind_they_are() {
    let rows = rows();
    for (number, Row { name, kind, help, .. }) in rows.iter().enumerate() {
        assert!(rows[..number].iter().all(|other| other.name != *name), "{name} is there twice");
        assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
        assert!(help.ends_with('.') && !help.contains(['\\', '\n']), "{name}: {help}");
    }
}

#[test]
fn figures_of_the_status_are_metrics_or_have_a_reason_why_not() {
    let mut all = Vec::new();
    figures("", &serde_json::to_value(report(1)).unwrap(), &mut all);
    let metrics: Vec<String> = rows().into_iter().map(|row| row.path).collect();
    let others: Vec<(&str, &str)> =
        NO_METRICS.iter().flat_map(|(reason, paths)| paths.iter().map(move |path| (*path, *reason))).collect();
    // Settings of any row of the tables of properties.
    let is_setting = |figure: &String| ["properties", "volumes[].properties"].iter().any(|path| is_of(figure, path));
    for figure in all.iter().filter(|figure| !is_setting(figure)) {
        let is_metric = metrics.iter().any(|path| is_of(figure, path));
        match others.iter().find(|(path, _)| is_of(figure, path)) {
            None => assert!(is_metric, "{figure} is no metric: give it a row in metrics.rs, or a reason in NO_METRICS"),
            Some((_, reason)) => assert!(!is_metric, "{figure} is a metric, although it is of the {reason}"),
        }
    }
    for path in metrics.iter().map(String::as_str).chain(others.iter().map(|(path, _)| *path)) {
        assert!(all.iter().any(|figure| is_of(figure, path)), "{path} is not in the status");
    }
}
