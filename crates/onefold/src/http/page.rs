//! The page as HTML, with all its figures in it: the script only fetches it again.
//!
//! Every figure is a `<data>` with its path in `status --json` and its value there, so that a test can hold the two together.

use std::fmt::Display;
use std::time::{SystemTime, UNIX_EPOCH};

use super::chart::{COLOURS, Point, areas, bar, lines, seconds_across, swatch};
use super::figures::Snapshot;
use crate::report::health::{Health, Level, findings};
use crate::report::jobs::jobs;
use crate::report::latency::{KindReport, show_seconds};
use crate::report::recent::{Rate, Sample};
use crate::report::share::{share, shown_percent};
use crate::report::status::{Report, VolumeReport};
use crate::report::text::{VOLUMES_MOST, largest_first};
use crate::size;

/// Styles of the page, as CSS.
pub const STYLES: &str = include_str!("page.css");
/// Script of the page, as JavaScript.
pub const SCRIPT: &str = include_str!("page.js");
/// Characters of a search, at most.
pub const FIND_MOST: usize = 64;
/// Builds the page of a pool, with the volumes whose names have `find` in them.
pub fn page(snapshot: &Snapshot, pool: &str, find: &str) -> String {
    let report = &snapshot.report;
    let live = |(id, class, content): (&str, &str, String)| {
        let hidden = if content.is_empty() { " hidden" } else { "" };
        format!("<section id=\"{id}\" class=\"{class}\" data-live{hidden}>{content}</section>\n")
    };
    let before = [
        ("summary", "whole", summary(report)),
        ("requests", "", requests(snapshot)),
        ("jobs", "", background(report, pool)),
    ];
    let behind =
        [("memory", "", memory(snapshot)), ("policies", "", policies(report)), ("damages", "whole", damages(report))];
    // The field is not live: text that a user types stays.
    let volumes = format!(
        "<section id=\"volumes\" class=\"whole\"><h2>Volumes</h2>\
         <form role=\"search\"><input id=\"find\" name=\"find\" type=\"search\" value=\"{}\" placeholder=\"Find by name\" \
         aria-label=\"Find volumes by name\" autocomplete=\"off\" maxlength=\"{FIND_MOST}\"></form>\
         <div id=\"found\" data-live>{}</div></section>\n",
        escaped(find),
        volumes(report, find),
    );
    let sections = [before.map(live).concat(), volumes, behind.map(live).concat()];
    whole(pool, &Health::of(report), &sections.concat())
}

/// Builds the page while there are no figures, with the reason.
pub fn without_figures(reason: &str, pool: &str) -> String {
    whole(pool, &Health { level: Level::Bad, sentence: reason.into() }, "")
}

fn whole(pool: &str, health: &Health, sections: &str) -> String {
    let (pool, sentence) = (escaped(pool), escaped(&health.sentence));
    let level = match health.level {
        Level::Good => "good",
        Level::Warning => "warning",
        Level::Bad => "bad",
    };
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() % 86_400);
    let clock = format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{pool}: {sentence}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\"><link rel=\"icon\" href=\"data:,\">\n\
         <link rel=\"stylesheet\" href=\"/page.css\"><script src=\"/page.js\" defer></script></head>\n<body>\n\
         <header><h1>{pool}</h1><p id=\"health\" class=\"health {level}\" data-live>{sentence}</p>\
         <p id=\"clock\" class=\"dim\" data-live>as of {clock}</p><p id=\"gone\" role=\"alert\" hidden></p></header>\n\
         <main>\n{sections}</main>\n\
         <footer>Onefold {version}. The same for programs: <a href=\"/status.json\">status.json</a>, \
         <a href=\"/metrics\">metrics</a>, <a href=\"/healthz\">healthz</a>. This page changes nothing.</footer>\n</body></html>\n",
        version = env!("CARGO_PKG_VERSION")
    )
}

/// Formats a figure as it is shown, marked with its path in the report and its value.
fn figure(path: impl Display, value: impl Display, shown: impl Display) -> String {
    format!("<data data-figure=\"{path}\" value=\"{value}\">{shown}</data>")
}

/// Shows a number of blocks as bytes.
fn blocks(path: impl Display, count: u64) -> String {
    figure(path, count, size::show(count.saturating_mul(4096)))
}

fn bytes(path: impl Display, count: u64) -> String {
    figure(path, count, size::show(count))
}

/// Shows a number with its digits in groups.
fn count(path: impl Display, count: u64) -> String {
    figure(path, count, grouped(count))
}

fn summary(report: &Report) -> String {
    let (data, metadata) = (report.data_percent, report.metadata_percent);
    let tile = |value: String, words: String| format!("<div><b>{value}</b><span class=\"dim\">{words}</span></div>");
    let saving = figure("saving_percent", report.saving_percent, shown_percent(report.saving_percent));
    let saved = match (report.saving_is_at_least, report.leaving_blocks) {
        (true, _) => "saved at least: deleted data is still being freed".into(),
        (false, 0) => "saved: blocks that are stored once for several".into(),
        (false, left) => format!("saved, with {} of deleted volumes still to be freed", blocks("leaving_blocks", left)),
    };
    let mut tiles = vec![
        tile(saving, saved),
        tile(blocks("logical_blocks_used", report.logical_blocks_used), "logical data of the volumes".into()),
        tile(blocks("data_blocks_used", report.data_blocks_used), "stored after deduplication".into()),
        tile(
            figure("data_percent", data, format!("{data} %")),
            format!("of the capacity, {}, in use", bytes("capacity_bytes", report.capacity_bytes))
                + &bar(data as f64 / 100.0, "capacity in use"),
        ),
        tile(
            figure("metadata_percent", metadata, format!("{metadata} %")),
            "of the metadata space in use".to_string() + &bar(metadata as f64 / 100.0, "metadata space in use"),
        ),
    ];
    if let Some(held) = report.snapshots.text() {
        tiles.insert(2, tile(blocks("snapshots.blocks", report.snapshots.blocks), format!("of it {held}")));
    }
    format!("<h2>Savings</h2><div class=\"tiles\">{}</div>", tiles.concat())
}

fn volumes(report: &Report, find: &str) -> String {
    if report.volumes.is_empty() {
        return "<p>No volumes yet: onefold volume create POOL NAME --size SIZE</p>".into();
    }
    let find = find.to_lowercase();
    let found: Vec<&VolumeReport> = largest_first(&report.volumes)
        .into_iter()
        .filter(|volume| volume.name.to_lowercase().contains(&find))
        .collect();
    let has_families = report.volumes.iter().any(|volume| volume.snapshots > 0 || volume.origin.is_some());
    let row = |volume: &&VolumeReport| {
        let path = format!("volumes[{}]", volume.name);
        let VolumeReport { name, policy, clients, writes, .. } = volume;
        let family = if has_families { family(volume, &path) } else { String::new() };
        let shared = match volume.shared_percent {
            Some(percent) => figure(format_args!("{path}.shared_percent"), percent, volume.shared_text()),
            None => volume.shared_text(),
        };
        format!(
            "<tr><td>{}</td><td>{}</td><td>{shared}</td><td class=\"wide\">{}</td><td class=\"wide\">{}</td><td class=\"wide\">{}</td>\
             <td class=\"wide\">{}</td>{family}<td>{}</td></tr>",
            escaped(name),
            blocks(format_args!("{path}.logical_blocks_used"), volume.logical_blocks_used),
            bytes(format_args!("{path}.size_bytes"), volume.size_bytes),
            escaped(policy),
            count(format_args!("{path}.clients"), *clients as u64),
            escaped(&volume.settings()),
            count(format_args!("{path}.writes.requests"), writes.requests),
        )
    };
    let rows: String = found.iter().take(VOLUMES_MOST).map(row).collect();
    let all = report.volumes.len();
    let shown = match (found.len(), find.is_empty()) {
        (0, _) => format!("None of {all} volumes has that in its name."),
        (found, true) if found > VOLUMES_MOST => format!("The {VOLUMES_MOST} of {all} volumes that hold most."),
        (found, true) => format!("All {found}; those first that hold most."),
        (found, false) if found > VOLUMES_MOST => {
            format!("{found} of {all} volumes have that in their names: the {VOLUMES_MOST} that hold most.")
        }
        (found, false) => format!("{found} of {all} volumes."),
    };
    let since = report.opened_text();
    let (family, held) = match has_families {
        true => (
            "<th class=\"wide\">refer</th><th class=\"wide\">clone of</th><th>snapshots</th><th class=\"wide\">clones</th>",
            " Refer: the data that a volume reads as, with what it has from a snapshot. Snapshots: their number, and what they hold.",
        ),
        false => ("", ""),
    };
    format!(
        "<p class=\"dim\">{shown} Shared: the part of a volume's data that is stored once for several blocks.{held} Writes: {since}.</p>\
         <table><tr><th>volume</th><th>holds</th><th>shared</th><th class=\"wide\">size</th><th class=\"wide\">policy</th>\
         <th class=\"wide\">clients</th><th class=\"wide\">set</th>{family}<th>writes</th></tr>{rows}</table>"
    )
}

/// Returns the cells on the family of a volume: referred data, origin, snapshots with their data, and clones of these.
fn family(volume: &VolumeReport, path: &str) -> String {
    let origin = escaped(volume.origin.as_deref().unwrap_or_default());
    let snapshots = match volume.snapshots as u64 {
        0 => String::new(),
        number => format!(
            "{} with {}",
            count(format_args!("{path}.snapshots"), number),
            blocks(format_args!("{path}.snapshot_blocks"), volume.snapshot_blocks)
        ),
    };
    let refer = volume
        .referred_blocks
        .map_or_else(String::new, |referred| blocks(format_args!("{path}.referred_blocks"), referred));
    let clones = match volume.clones as u64 {
        0 => String::new(),
        clones => count(format_args!("{path}.clones"), clones),
    };
    format!(
        "<td class=\"wide\">{refer}</td><td class=\"wide\">{origin}</td><td>{snapshots}</td><td class=\"wide\">{clones}</td>"
    )
}

fn requests(snapshot: &Snapshot) -> String {
    let latency = &snapshot.report.latency;
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "–".into(), show_seconds);
    let row = |((name, kind), rate): ((&str, &KindReport), &Rate)| {
        let path = format!("latency.{name}.requests");
        format!(
            "<tr><td>{name}</td><td>{:.0}</td><td>{}</td><td>{}</td><td class=\"wide\">{}</td></tr>",
            rate.per_second,
            time(rate.half),
            time(rate.most),
            count(path, kind.requests),
        )
    };
    let rows: String = latency.named().into_iter().zip(&snapshot.rates).map(row).collect();
    let of = |rate: fn(&Rate) -> Option<f64>| move |sample: &Sample| [rate(&sample.rates[0]), rate(&sample.rates[1])];
    let now = |rate: fn(&Rate) -> Option<f64>| [rate(&snapshot.rates[0]), rate(&snapshot.rates[1])];
    let per_second = |rate: &Rate| Some(rate.per_second);
    let rates = history(snapshot, of(per_second), now(per_second));
    let slowest = history(snapshot, of(|rate| rate.most), now(|rate| rate.most));
    let picture = |points: &[Point<2>], shown: &dyn Fn(f64) -> String, label: &str| {
        let most = points.iter().flat_map(|point| point.values).flatten().fold(0.0, f64::max);
        let upper = if most > 0.0 { format!("{label}, up to {}", shown(most)) } else { format!("{label}: none") };
        framed(&lines(points, most, label), seconds_across(points), &upper)
    };
    format!(
        "<h2>Requests and latency</h2><table><tr><th>now</th><th>a second</th><th>half within</th><th>99 % within</th>\
         <th class=\"wide\">since the start</th></tr>{rows}</table>{}{}{}",
        legend(&["reads", "writes"]),
        picture(&rates, &|most| format!("{most:.0}"), "requests a second"),
        picture(&slowest, &show_seconds, "99 % answered within"),
    )
}

fn policies(report: &Report) -> String {
    let (writes, categories) = (&report.writes, &report.writes.categories);
    let head = "<h2>What each policy would have saved</h2>";
    if categories.unknown + categories.sequential + categories.scattered + categories.partial == 0 {
        return format!(
            "{head}<p>No writes were looked up since the pool was opened. A volume with the policy 'native' is never looked up; with \
             'observe' it is, and nothing is shared.</p>"
        );
    }
    let all = writes.written_blocks + writes.removed_blocks;
    let row = |name: &str, path: &str, removed: u64, requests: String| {
        let share = share(removed, all);
        format!(
            "<tr><td>{name}</td><td class=\"bar\">{}</td><td>{:.1} %</td><td>{}</td><td class=\"wide\">{requests}</td></tr>",
            bar(share, "share of the blocks written"),
            share * 100.0,
            blocks(path, removed),
        )
    };
    let what_if = &writes.what_if;
    let policies = [("full", &what_if.full), ("select", &what_if.select), ("idedup", &what_if.idedup)];
    let rows: String = policies
        .iter()
        .map(|(name, removed)| {
            let path = format!("writes.what_if.{name}");
            row(name, &format!("{path}.blocks"), removed.blocks, count(format!("{path}.requests"), removed.requests))
        })
        .collect();
    let real = row(
        "as it was done",
        "writes.removed_blocks",
        writes.removed_blocks,
        count("writes.removed_requests", writes.removed_requests),
    );
    format!(
        "{head}<table><tr><th>policy</th><th colspan=\"2\">of the blocks written</th><th>not written</th>\
         <th class=\"wide\">whole requests</th></tr>{real}{rows}</table><p class=\"dim\">Since the pool was opened, each request separately.</p>"
    )
}

fn memory(snapshot: &Snapshot) -> String {
    let report = &snapshot.report;
    let (index, read, all) = (report.cache.index_bytes, report.cache.read_bytes, report.memory_bytes);
    let parts = |index: u64, read: u64, all: u64| {
        [index, read, all.saturating_sub(index + read)].map(|bytes| Some(bytes as f64))
    };
    let of = |sample: &Sample| parts(sample.index_bytes, sample.read_bytes, sample.memory_bytes);
    let points = history(snapshot, of, parts(index, read, all));
    let cap = report.memory_cap_bytes;
    let picture = areas(&points, cap as f64, "memory in use by purpose");
    format!(
        "<h2>Memory</h2><p>{} of {} in use: index {}, read cache {}, the rest is for everything else. Sharing: {}</p>{}{}",
        bytes("memory_bytes", all),
        bytes("memory_cap_bytes", cap),
        bytes("cache.index_bytes", index),
        bytes("cache.read_bytes", read),
        escaped(&report.cache.setting),
        legend(&["index", "read cache", "everything else"]),
        framed(&picture, seconds_across(&points), &format!("up to {}", size::show(cap))),
    )
}

fn background(report: &Report, pool: &str) -> String {
    let rows = jobs(report).into_iter().map(|job| {
        let progress = job.done.map_or_else(String::new, |done| bar(done, "done"));
        format!("<tr><td>{}</td><td class=\"words\">{}{progress}</td></tr>", job.name, escaped(&job.text))
    });
    let notes = findings(report, pool).into_iter().filter(|finding| finding.level == Level::Good);
    let notes = notes.map(|note| format!("<p>{}: {}</p>", escaped(note.name), escaped(&note.sentence)));
    format!("<h2>Background work</h2><table>{}</table>{}", rows.collect::<String>(), notes.collect::<String>())
}

/// Lists the damages found last; empty if there are none.
fn damages(report: &Report) -> String {
    if report.damages.is_empty() {
        return String::new();
    }
    let items = report.damages.iter().map(|damage| format!("<li>{}</li>", escaped(&damage.text())));
    format!("<h2>The damages found last</h2><ul>{}</ul>", items.collect::<String>())
}

/// Returns the history with the present at its end.
fn history<const N: usize>(
    snapshot: &Snapshot,
    of: impl Fn(&Sample) -> [Option<f64>; N],
    now: [Option<f64>; N],
) -> Vec<Point<N>> {
    let age = |sample: &Sample| snapshot.taken.saturating_duration_since(sample.at).as_secs_f64();
    let mut points: Vec<Point<N>> =
        snapshot.samples.iter().map(|sample| Point { age: age(sample), values: of(sample) }).collect();
    points.push(Point { age: 0.0, values: now });
    points
}

/// Builds a picture with its axes in words.
fn framed(picture: &str, seconds: f64, upper: &str) -> String {
    let ago = if seconds < 120.0 { format!("{seconds:.0} s ago") } else { format!("{:.0} min ago", seconds / 60.0) };
    format!(
        "<figure><div class=\"dim\">{upper}</div>{picture}<div class=\"dim axis\"><span>{ago}</span><span>now</span></div></figure>"
    )
}

fn legend(names: &[&str]) -> String {
    let entries = names.iter().zip(COLOURS).map(|(name, colour)| format!("<span>{}{name}</span>", swatch(colour)));
    format!("<p class=\"dim legend\">{}</p>", entries.collect::<String>())
}

/// Groups the digits in threes, from the right.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Escapes text that may hold anything for HTML.
fn escaped(text: &str) -> String {
    let mut html = String::new();
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text::tests::report;

    #[test]
    fn digits_are_grouped_from_the_right() {
        assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
    }

    fn snapshot(report: Report) -> Snapshot {
        let rates = Default::default();
        Snapshot { taken: std::time::Instant::now(), report, rates, samples: Vec::new(), made: Default::default() }
    }

    fn rows(page: &str) -> Vec<&str> {
        page.split("<tr><td>").filter_map(|row| row.strip_prefix("vm")).map(|row| &row[..3]).collect()
    }

    /// Guards against a page on which the box of volumes, the largest, came before the requests and the background work.
    #[test]
    fn requests_and_work_come_before_twenty_volumes() {
        let text = page(&snapshot(report(200)), "p", "");
        let place = |id: &str| text.find(&format!("<section id=\"{id}\"")).expect(id);
        assert!(place("summary") < place("requests") && place("requests") < place("jobs"));
        assert!(place("jobs") < place("volumes") && place("volumes") < place("memory"));
        let rows = rows(&text);
        assert_eq!((rows.len(), rows[0]), (20, "199"), "those that hold most");
        assert!(text.contains("The 20 of 200 volumes that hold most."));
        assert!(self::rows(&page(&snapshot(report(8)), "p", "")).len() == 8);
        assert!(page(&snapshot(report(1)), "p", "").contains("All 1;"));
        assert!(page(&snapshot(report(0)), "p", "").contains("No volumes yet"));
    }

    #[test]
    fn what_a_volume_shares_is_a_figure_when_it_has_been_counted() {
        let mut report = report(2);
        (report.volumes[1].shared_percent, report.volumes[1].shared_error_percent) = (Some(61.5), Some(0.8));
        let text = page(&snapshot(report), "p", "");
        assert!(text.contains("<data data-figure=\"volumes[vm001].shared_percent\" value=\"61.5\">about 62 %</data>"));
        assert!(text.contains("<td>counting</td>"), "{text}");
    }

    #[test]
    fn families_have_columns_where_there_are_some() {
        let mut report = report(2);
        assert!(!page(&snapshot(report.clone()), "p", "").contains("clone of"));
        (report.volumes[1].snapshots, report.volumes[1].snapshot_blocks, report.volumes[1].clones) = (2, 512, 1000);
        report.volumes[0].origin = Some("vm001@v1".into());
        (report.snapshots.count, report.snapshots.blocks) = (2, 512);
        let text = page(&snapshot(report), "p", "");
        let figures = [
            "<data data-figure=\"volumes[vm001].snapshots\" value=\"2\">2</data> with ",
            "<data data-figure=\"volumes[vm001].snapshot_blocks\" value=\"512\">2 MiB</data>",
            "<data data-figure=\"volumes[vm001].clones\" value=\"1000\">1\u{202f}000</data>",
            "<data data-figure=\"snapshots.blocks\" value=\"512\">2 MiB</data>",
            "<td class=\"wide\">vm001@v1</td>",
        ];
        assert!(figures.iter().all(|figure| text.contains(figure)), "{text}");
    }

    #[test]
    fn a_search_looks_at_all_volumes() {
        let snapshot = snapshot(report(200));
        assert_eq!(rows(&page(&snapshot, "p", "VM00")).len(), 10);
        assert_eq!(rows(&page(&snapshot, "p", "vm007")), ["007"]);
        let none = page(&snapshot, "p", "\"><script>");
        assert!(none.contains("None of 200 volumes") && none.contains("value=\"&quot;&gt;&lt;script&gt;\""));
        assert_eq!(none.matches("<script").count(), 1);
    }

    #[test]
    fn what_a_pass_would_give_back_is_beside_the_work() {
        let mut report = report(1);
        (report.data_blocks_used, report.dedup.missed_blocks) = (1 << 20, 153_600);
        assert!(page(&snapshot(report), "p", "").contains("to gain: up to 600 MiB"));
    }

    #[test]
    fn a_name_is_never_markup() {
        assert_eq!(escaped("<b a='1'>&\"</b>"), "&lt;b a=&#39;1&#39;&gt;&amp;&quot;&lt;/b&gt;");
        assert!(without_figures("<reason>", "<pool>").contains("<h1>&lt;pool&gt;</h1>"));
    }
}
