//! Text of `status`, `volume list` and `snapshot list` for people: about ten lines and the volumes that hold most, or with `--all` every figure.

use std::cmp::Ordering;

use crate::report::health::{Finding, findings};
use crate::report::jobs::jobs;
use crate::report::share::shown_percent;
use crate::report::status::{DefragReport, ReplicasReport, Report, SnapshotReport, VolumeReport, show_date};
use crate::size;

/// Number of volumes that `status` shows without `--all`.
pub const VOLUMES_MOST: usize = 20;
/// Number of damages that `status` shows without `--all`.
const DAMAGES_MOST: usize = 5;

impl Report {
    /// Formats the figures that are wanted most often: state, capacity, saving, memory, background work, findings, and some volumes.
    pub fn text(&self, pool: &str) -> String {
        let blocks = |count: u64| size::show(count.saturating_mul(4096));
        let mut text = format!("{pool}: {}\n\n", self.state());
        let mut row = |name: &str, value: String| text.push_str(&format!("  {name:<12}{value}\n"));
        for Finding { name, sentence, .. } in findings(self, pool) {
            row(name, sentence);
        }
        let (data, metadata) = (self.data_percent, self.metadata_percent);
        let used = format!("{data} % in use; metadata space: {metadata} %");
        row("capacity", format!("{:<12}{used}", size::show(self.capacity_bytes)));
        row("logical", format!("{:<12}logical data of the volumes", blocks(self.logical_blocks_used)));
        if let Some(held) = self.snapshots.text() {
            row("snapshots", format!("{:<12}of it {held}", blocks(self.snapshots.blocks)));
        }
        row("data", format!("{:<12}stored after deduplication", blocks(self.data_blocks_used)));
        if let Some(host) = self.host_text().filter(|_| self.discard.is_notable() || !self.discards()) {
            row("host", host);
        }
        row("saving", self.saving_text());
        row("memory", self.memory_text());
        for job in jobs(self) {
            if matches!(job.name, "scrub" | "dedup" | "relocate" | "freeing") {
                row(job.name, job.text);
            }
        }
        text.push_str(&self.damages_text(DAMAGES_MOST));
        text.push('\n');
        text.push_str(&volumes_text(&self.volumes, VOLUMES_MOST, self.is_served()));
        let more = self.volumes.len().saturating_sub(VOLUMES_MOST);
        if more > 0 {
            let those = format!("these {VOLUMES_MOST} hold most");
            text.push_str(&format!("  {those}, and there are {more} more: 'onefold status {pool} --all'\n"));
        }
        text
    }

    fn discards(&self) -> bool {
        self.properties.get("discard").is_none_or(|property| property.value != "off")
    }

    /// Describes the space on the host; `None` if nothing is known of it.
    fn host_text(&self) -> Option<String> {
        self.discard.text(self.discards())
    }

    /// Describes in words the mode of the pool, or that it was not closed cleanly, and if a server has it.
    fn state(&self) -> String {
        let mode = match self.mode.as_str() {
            _ if self.needs_recovery => "not closed cleanly",
            "read-only" => "read-only, writes are refused",
            mode => mode,
        };
        format!("{mode}, {}", if self.is_served() { "served" } else { "not served" })
    }

    /// Returns the saving in percent, with a remark if blocks of deleted volumes are in it.
    pub fn saving_text(&self) -> String {
        let leaving = size::show(self.leaving_blocks.saturating_mul(4096));
        let what = match (self.saving_is_at_least, self.leaving_blocks) {
            (true, _) => ", at least: exact when deleted data has been freed".into(),
            (false, 0) => String::new(),
            (false, _) => format!(", with {leaving} of deleted volumes that are still to be freed"),
        };
        format!("{}{what}", shown_percent(self.saving_percent))
    }

    /// Returns the time since which requests are counted: `since ...`.
    pub fn opened_text(&self) -> String {
        self.opened
            .map_or_else(|| "since the pool was opened".into(), |seconds| format!("since {}", show_date(seconds)))
    }

    /// Lists the last `most` damages that are not repaired, a line each.
    fn damages_text(&self, most: usize) -> String {
        let left: Vec<String> =
            self.damages.iter().filter(|damage| !damage.repaired).map(|damage| damage.text()).collect();
        left[left.len().saturating_sub(most)..].iter().map(|line| format!("  {line}\n")).collect()
    }

    /// Returns true if a server has the pool.
    pub fn is_served(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Returns the memory in use and the limit of a server. A read-only command has memory of its own, so only the limit is shown.
    fn memory_text(&self) -> String {
        let resizing = if self.memory_resizing { " (resizing)" } else { "" };
        let cap = size::show(self.memory_cap_bytes);
        match self.is_served() {
            true => format!("{} of {cap}{resizing}", size::show(self.memory_bytes)),
            false => format!("{cap} when it is served"),
        }
    }

    /// Formats the text of `status --all`: more figures than [`Report::text`], and every damage and volume.
    pub fn text_of_all(&self, pool: &str) -> String {
        let blocks = |count: u64| size::show(count.saturating_mul(4096));
        let unmerged = self.unmerged_entries + self.buffered_entries;
        let settled = unmerged == 0 && self.pending_blocks == 0;
        let mut text = format!("{pool}: {}\n\n", self.state());
        let mut row = |name: &str, value: String| text.push_str(&format!("  {name:<12}{value}\n"));
        for Finding { name, sentence, .. } in findings(self, pool) {
            row(name, sentence);
        }
        row("capacity", size::show(self.capacity_bytes));
        row("device", self.device.text());
        row("logical", format!("{:<12}logical data of the volumes", blocks(self.logical_blocks_used)));
        if let Some(held) = self.snapshots.text() {
            row("snapshots", format!("{:<12}of it {held}", blocks(self.snapshots.blocks)));
        }
        row("data", format!("{:<12}stored after deduplication", blocks(self.data_blocks_used)));
        if let Some(host) = self.host_text() {
            row("host", host);
        }
        if self.second_copies > 0 {
            let above = self.second_copies_above;
            row(
                "copies",
                format!(
                    "{:<12}of it a second time: blocks with more than {above} references",
                    blocks(self.second_copies)
                ),
            );
        }
        if self.replicas.blocks > 0 {
            let budget = size::show(self.replicas.budget_bytes);
            let what = format!("of it once more, in the order in which it is read; at most {budget}");
            row("replicas", format!("{:<12}{what}", blocks(self.replicas.blocks)));
        }
        if self.replicas.popular_blocks_most > 0 {
            let ReplicasReport { popular_blocks, popular_blocks_copied, popular_blocks_most, .. } = self.replicas;
            let what = format!(
                "blocks, read often, of at most {popular_blocks_most}; {popular_blocks_copied} with ten copies"
            );
            row("popular", format!("{popular_blocks:<12}{what}"));
        }
        if self.defrag.noted_regions > 0 || self.defrag.moved_blocks > 0 {
            let DefragReport { noted_regions, regions, .. } = self.defrag;
            let what = format!("moved into order: {regions} regions, and {noted_regions} wait for idle time");
            row("defrag", format!("{:<12}{what}", blocks(self.defrag.moved_blocks)));
        }
        if self.defrag.emptied_blocks > 0 {
            let DefragReport { emptied_containers, empty_containers, .. } = self.defrag;
            let what = format!("moved to empty {emptied_containers} containers; {empty_containers} are empty now");
            row("gc", format!("{:<12}{what}", blocks(self.defrag.emptied_blocks)));
        }
        row("saving", self.saving_text());
        row("overhead", format!("{:<12}the pool's own tables", blocks(self.overhead_blocks_used)));
        if self.writes.written_blocks > 0 {
            let each = self.metadata.per_written_block;
            row("metadata", format!("{each:.2} blocks written for each block of data"));
        }
        row("memory", self.memory_text());
        for (name, value) in self.cache.rows() {
            row(name, value);
        }
        if !self.properties.is_empty() {
            row("properties", self.other_properties());
        }
        if self.disk_index.buckets > 0 {
            row("index", self.disk_index.text());
        }
        if self.flash.is_there() {
            row("flash", self.flash.text());
        }
        row("scrub", self.scrub.text());
        row("dedup", self.dedup.text());
        if self.relocate.has_news() {
            row("relocate", self.relocate.text());
        }
        if self.damaged_blocks_found > 0 {
            let (found, repaired) = (self.damaged_blocks_found, self.repaired_blocks);
            row("damaged", format!("{found} found since the pool was opened, {repaired} repaired"));
        }
        if self.discarded_blocks > 0 {
            row(
                "freeing",
                format!("{:<12}at most, discarded or deleted, in the background", blocks(self.discarded_blocks)),
            );
        }
        if !settled {
            let pending = self.pending_blocks;
            let how = if self.needs_recovery { "--recover --settle" } else { "--settle" };
            row("unsettled", format!("{unmerged} mappings, {pending} blocks; {how} waits for exact figures"));
        }
        text.push_str(&self.damages_text(usize::MAX));
        text.push_str(&self.writes.text());
        text.push_str(&self.index_prefetch.text());
        text.push_str(&self.reads.text());
        text.push_str(&self.latency.text());
        text.push('\n');
        text.push_str(&volumes_text(&self.volumes, usize::MAX, self.is_served()));
        text
    }
}

impl VolumeReport {
    /// Returns the remarks on a volume beside its figures: its clients, snapshots, origin and settings; empty if it is as its pool has it.
    pub fn remarks(&self) -> String {
        let mut remarks = Vec::new();
        match self.clients {
            0 => {}
            1 => remarks.push("1 client".into()),
            clients => remarks.push(format!("{clients} clients")),
        }
        remarks.push(self.family());
        remarks.extend(self.origin.iter().map(|origin| format!("clone of {origin}")));
        remarks.push(self.settings());
        remarks.retain(|remark| !remark.is_empty());
        remarks.join(", ")
    }

    /// Formats the data that it reads as, inherited data included, with a sign if it may be less; empty if that is not known.
    pub fn refer_text(&self) -> String {
        let sign = if self.referred_is_most { "<" } else { "" };
        self.referred_blocks
            .map_or_else(String::new, |blocks| format!("{sign}{}", size::show(blocks.saturating_mul(4096))))
    }

    /// Returns true if it reads as more than it holds: it inherits the rest.
    pub fn inherits(&self) -> bool {
        self.referred_blocks.is_some_and(|blocks| blocks != self.logical_blocks_used)
    }

    /// Returns the remarks on its snapshots and their clones; empty if it has none.
    pub fn family(&self) -> String {
        let held = match self.snapshot_blocks {
            0 => String::new(),
            blocks => format!(" with {}", size::show(blocks.saturating_mul(4096))),
        };
        let snapshots = match self.snapshots {
            0 => return String::new(),
            1 => format!("1 snapshot{held}"),
            snapshots => format!("{snapshots} snapshots{held}"),
        };
        match self.clones {
            0 => snapshots,
            1 => format!("{snapshots}, 1 clone"),
            clones => format!("{snapshots}, {clones} clones"),
        }
    }

    /// Formats the share of it in shared slots: `62 %`, `about 62 %` if not all was examined, or `counting`. It says 100 and 0 % only of all and of nothing.
    pub fn shared_text(&self) -> String {
        let Some(percent) = self.shared_percent else { return "counting".into() };
        let about = if self.shared_error_percent.unwrap_or(0.0) > 0.0 { "about " } else { "" };
        match percent {
            0.0 | 100.0 => format!("{about}{percent:.0} %"),
            ..1.0 => "under 1 %".into(),
            _ => format!("{about}{:.0} %", percent.min(99.0)),
        }
    }

    /// Lists the settings that differ from the pool's, and the mode that a controller has chosen.
    pub fn settings(&self) -> String {
        let mut remarks: Vec<String> = Vec::new();
        let is_hybrid = self.timing == "hybrid";
        if self.timing_source == "volume" && !is_hybrid {
            remarks.push(self.timing.clone());
        } else if is_hybrid && self.timing_state.offline {
            remarks.push("hybrid, now offline".into());
        } else if is_hybrid && self.timing_source == "volume" {
            remarks
                .push(if self.timing_state.may_change { "hybrid, now inline" } else { "hybrid, stays inline" }.into());
        }
        if self.read_only {
            remarks.push("read-only".into());
        }
        if self.exclusive {
            remarks.push("exclusive".into());
        }
        if self.properties.get("protected").is_some_and(|protected| protected.is_set) {
            remarks.push("protected".into());
        }
        if let Some(schedule) = self.properties.get("snapshots").filter(|schedule| schedule.is_set) {
            let fails = if self.snapshots_failure.is_some() { " (last failed)" } else { "" };
            remarks.push(format!("snapshots {}{fails}", schedule.value));
        }
        remarks.join(", ")
    }
}

/// Compares names as people do: digits by their number, so `vm2` comes before `vm10`.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    let number = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let no_zeroes = |digits: &[u8]| digits.iter().skip_while(|&&digit| digit == b'0').copied().collect::<Vec<u8>>();
    let names = (a, b);
    while let (Some(first), Some(second)) = (a.first(), b.first()) {
        let (long, wide) = match (number(a), number(b)) {
            (0, _) | (_, 0) => (1, 1),
            digits => digits,
        };
        let order = match long == 1 && wide == 1 {
            true => first.cmp(second),
            false => {
                let (one, other) = (no_zeroes(&a[..long]), no_zeroes(&b[..wide]));
                one.len().cmp(&other.len()).then_with(|| one.cmp(&other))
            }
        };
        if order.is_ne() {
            return order;
        }
        (a, b) = (&a[long..], &b[wide..]);
    }
    a.len().cmp(&b.len()).then_with(|| names.0.cmp(names.1))
}

/// Sorts the volumes as they are shown: those that hold most first, then by name, numbers in names by their value.
pub fn largest_first(volumes: &[VolumeReport]) -> Vec<&VolumeReport> {
    let mut largest: Vec<&VolumeReport> = volumes.iter().collect();
    largest.sort_by(|a, b| {
        b.logical_blocks_used.cmp(&a.logical_blocks_used).then_with(|| natural_order(&a.name, &b.name))
    });
    largest
}

/// Formats a table of volumes for people: of those that hold most if there are more than `most`, else in the order of the report. Shared blocks are
/// counted only while the pool is served. What volumes read as has a column where one inherits something.
pub fn volumes_text(volumes: &[VolumeReport], most: usize, is_served: bool) -> String {
    if volumes.is_empty() {
        return "no volumes yet: make one with 'onefold volume create POOL NAME --size SIZE'\n".into();
    }
    let shown = if volumes.len() > most { largest_first(volumes) } else { volumes.iter().collect() };
    let head = ["volume", "size", "holds", "refer", "shared", "policy", "remarks"].map(String::from);
    let row = |volume: &&VolumeReport| {
        let holds = size::show(volume.logical_blocks_used.saturating_mul(4096));
        let VolumeReport { name, policy, size_bytes, .. } = volume;
        let (size, refer) = (size::show(*size_bytes), volume.refer_text());
        [name.clone(), size, holds, refer, volume.shared_text(), policy.clone(), volume.remarks()]
    };
    let rows: Vec<[String; 7]> = [head].into_iter().chain(shown.iter().take(most).map(row)).collect();
    let has_remarks = rows[1..].iter().any(|row| !row[6].is_empty());
    let inherits = volumes.iter().any(VolumeReport::inherits);
    let is_counted = is_served || volumes.iter().any(|volume| volume.shared_percent.is_some());
    let is_shown = |column: &usize| match column {
        3 => inherits,
        4 => is_counted,
        6 => has_remarks,
        _ => true,
    };
    let columns = (0..7).filter(is_shown);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0) + 2;
    let columns: Vec<(usize, usize)> = columns.map(|column| (column, width(column))).collect();
    let mut text = String::new();
    for row in &rows {
        let line: String = columns.iter().map(|&(column, width)| format!("{:<width$}", row[column])).collect();
        text.push_str(&format!("  {}\n", line.trim_end()));
    }
    text
}

/// Formats a table of snapshots for people, by their volumes and in the order of their creation.
pub fn snapshots_text(snapshots: &[VolumeReport]) -> String {
    let mut shown: Vec<(&SnapshotReport, &VolumeReport)> =
        snapshots.iter().filter_map(|snapshot| Some((snapshot.snapshot.as_ref()?, snapshot))).collect();
    shown.sort_by(|(a, _), (b, _)| {
        let of_volume = natural_order(&a.volume, &b.volume);
        of_volume.then(a.created.cmp(&b.created)).then_with(|| natural_order(&a.name, &b.name))
    });
    let head = ["snapshot", "created", "size", "holds", "refer", "clones"].map(String::from);
    let row = |(family, snapshot): &(&SnapshotReport, &VolumeReport)| {
        let holds = size::show(snapshot.logical_blocks_used.saturating_mul(4096));
        let (created, size) = (show_date(family.created), size::show(snapshot.size_bytes));
        let held = if family.held { ", held" } else { "" };
        [snapshot.name.clone(), created, size, holds, snapshot.refer_text(), format!("{}{held}", family.clones)]
    };
    let rows: Vec<[String; 6]> = [head].into_iter().chain(shown.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0) + 2;
    let widths: Vec<usize> = (0..6).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells: String = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("  {}\n", cells.trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::report::properties::others_of_volume;
    use crate::report::status::{failure_text, remedy};
    use crate::report::throttle::TimingReport;
    use crate::report::writes::WritesReport;
    use engine::{DigestFunction, Engine, Failure, Geometry, Limits, Parameters, VolumeProperties};

    pub fn volume(name: &str, blocks: u64) -> VolumeReport {
        VolumeReport {
            name: name.into(),
            size_bytes: 10 << 30,
            policy: "select".into(),
            policy_source: "default".into(),
            read_only: false,
            origin: None,
            snapshots: 0,
            snapshots_failure: None,
            snapshot_blocks: 0,
            clones: 0,
            snapshot: None,
            exclusive: false,
            timing: "hybrid".into(),
            timing_source: "default".into(),
            goal: "none".into(),
            keep_runs: "auto".into(),
            controller: "forecast".into(),
            properties: others_of_volume(&VolumeProperties::default()),
            timing_state: TimingReport::default(),
            clients: 0,
            logical_blocks_used: blocks,
            referred_blocks: Some(blocks),
            referred_is_most: false,
            shared_percent: None,
            shared_error_percent: None,
            writes: WritesReport::default(),
        }
    }

    /// Returns the report of a served pool with N volumes.
    pub fn report(volumes: usize) -> Report {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        let parameters = Parameters::new(geometry, [1; 16], [2; 32], DigestFunction::Blake3);
        let engine = Engine::open(parameters, Limits::for_memory(64 << 20, &geometry).unwrap(), 0);
        let mut report = Report::new(&engine, (64 << 20, crate::memory::Source::Default), Vec::new());
        report.mode = "normal".into();
        report.addresses = vec!["unix:/srv/disk.onefold.sock".into()];
        report.volumes = (0..volumes).map(|number| volume(&format!("vm{number:03}"), number as u64 * 256)).collect();
        report
    }

    #[test]
    fn snapshots_and_clones_are_remarks_on_their_volumes() {
        let mut volume = volume("golden", 256);
        assert_eq!(volume.remarks(), "");
        (volume.snapshots, volume.snapshot_blocks) = (1, 256);
        assert_eq!(volume.remarks(), "1 snapshot with 1 MiB");
        (volume.snapshots, volume.clones, volume.read_only) = (3, 1000, true);
        assert_eq!(volume.remarks(), "3 snapshots with 1 MiB, 1000 clones, read-only");
    }

    #[test]
    fn the_status_has_about_ten_lines_and_twenty_volumes() {
        let text = report(200).text("disk.onefold");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "disk.onefold: normal, served");
        let head = lines.iter().position(|line| line.trim_start().starts_with("volume ")).expect("the table");
        assert!(head <= 10, "{text}");
        assert_eq!(lines.len() - head - 2, 20, "{text}");
        assert!(lines[head + 1].contains("vm199") && !text.contains("vm179"), "those that hold most: {text}");
        assert!(text.ends_with("and there are 180 more: 'onefold status disk.onefold --all'\n"), "{text}");
        assert!(lines.iter().all(|line| line.len() <= 100), "{text}");
        let mut looked_at = report(1);
        looked_at.addresses.clear();
        let said = looked_at.text("disk.onefold");
        assert!(said.contains("normal, not served") && said.contains("memory      64 MiB when it is served"), "{said}");
        let all = report(200).text_of_all("disk.onefold");
        assert!((0..200).all(|number| all.contains(&format!("vm{number:03}"))));
    }

    /// Guards against the order of bytes among volumes that hold nothing: vol1, vol10, vol2.
    #[test]
    fn volumes_that_hold_as_much_stand_in_the_order_of_their_numbers() {
        let names = [
            "vol10",
            "vol2",
            "vol1",
            "a-9",
            "vol2b",
            "vol02",
            "vol",
            "b",
            "vol1.10",
            "vol1.9",
            "vol18446744073709551616",
        ];
        let volumes: Vec<VolumeReport> = names.iter().map(|name| volume(name, 0)).collect();
        let order: Vec<&str> = largest_first(&volumes).iter().map(|volume| volume.name.as_str()).collect();
        assert_eq!(
            order,
            [
                "a-9",
                "b",
                "vol",
                "vol1",
                "vol1.9",
                "vol1.10",
                "vol02",
                "vol2",
                "vol2b",
                "vol10",
                "vol18446744073709551616"
            ]
        );
    }

    #[test]
    fn a_pool_that_has_failed_says_first_that_writes_are_refused_and_what_to_do() {
        let mut report = report(1);
        let failed = |failure| (Some(failure_text(failure).into()), Some(remedy(failure).into()));
        report.mode = "read-only".into();
        (report.failure, report.remedy) = failed(Failure::Write);
        let text = report.text("p");
        assert!(
            text.starts_with("p: read-only, writes are refused, served\n\n  failed      the pool has failed"),
            "{text}"
        );
        assert!(text.contains("'onefold repair p --dry-run'"));
        for failure in [Failure::TakenOver, Failure::StoreGone] {
            (report.failure, report.remedy) = failed(failure);
            let text = report.text("p");
            assert!(text.contains("stop this server") || text.contains("Stop this server"), "{text}");
            assert!(!text.contains("onefold repair"), "{text}");
        }
    }

    #[test]
    fn a_pool_that_is_full_says_so_once_and_what_to_do() {
        let mut report = report(1);
        (report.refuses_new, report.data_percent) = ("data".into(), 100);
        let text = report.text("p");
        assert_eq!(text.matches("full").count(), 1, "{text}");
        assert!(text.contains("writes of new blocks are refused: the pool's capacity is used up"), "{text}");
        (report.refuses_new, report.data_percent) = (String::new(), 81);
        assert!(report.text("p").contains("  nearly full 81 % of the pool's capacity"));
    }

    #[test]
    fn what_waits_to_be_freed_is_named_beside_the_saving() {
        let mut report = report(1);
        assert_eq!(report.saving_text(), "0.0 %");
        report.leaving_blocks = 256;
        assert_eq!(report.saving_text(), "0.0 %, with 1 MiB of deleted volumes that are still to be freed");
        report.saving_is_at_least = true;
        assert!(report.saving_text().contains("at least"));
    }

    #[test]
    fn what_is_shared_is_exact_or_about_or_being_counted() {
        let mut volume = volume("a", 256);
        assert_eq!(volume.shared_text(), "counting");
        let text = |served: bool| volumes_text(std::slice::from_ref(&volume), 20, served);
        assert!(text(true).contains("counting") && !text(false).contains("shared"));
        let mut shown = |percent: f64, error: f64| {
            (volume.shared_percent, volume.shared_error_percent) = (Some(percent), Some(error));
            volume.shared_text()
        };
        let exact = [0.0, 0.2, 1.0, 61.7, 99.2, 99.9, 100.0].map(|percent| shown(percent, 0.0));
        assert_eq!(exact, ["0 %", "under 1 %", "1 %", "62 %", "99 %", "99 %", "100 %"]);
        assert_eq!([shown(62.0, 0.8), shown(0.0, 0.8)], ["about 62 %", "about 0 %"]);
        assert!(volumes_text(&[volume], 20, false).contains("about 0 %"));
    }

    #[test]
    fn a_row_says_what_a_volume_inherits_and_how_many_snapshots_it_has() {
        let mut volume = volume("a", 256);
        (volume.snapshots, volume.clients) = (1, 1);
        assert_eq!(volume.remarks(), "1 client, 1 snapshot");
        (volume.snapshots, volume.origin) = (20, Some("golden@v1".into()));
        assert_eq!(volume.remarks(), "1 client, 20 snapshots, clone of golden@v1");
    }

    #[test]
    fn snapshots_stand_by_volume_and_in_the_order_of_their_creation() {
        let snapshot = |of: &str, name: &str, created| VolumeReport {
            snapshot: Some(SnapshotReport {
                volume: of.into(),
                name: name.into(),
                created,
                born: created,
                clones: 3,
                held: name == "old",
            }),
            ..volume(&format!("{of}@{name}"), 256)
        };
        let all = [snapshot("vm10", "a", 0), snapshot("vm2", "new", 120), snapshot("vm2", "old", 60)];
        let text = snapshots_text(&all);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(rows[0], ["snapshot", "created", "size", "holds", "refer", "clones"]);
        assert_eq!(rows[1], ["vm2@old", "1970-01-01 00:01 UTC", "10 GiB", "1 MiB", "1 MiB", "3, held"]);
        assert_eq!(rows[2..].iter().map(|row| row[0]).collect::<Vec<_>>(), ["vm2@new", "vm10@a"]);
        let of_damaged = VolumeReport { referred_is_most: true, ..all[2].clone() };
        assert_eq!(of_damaged.refer_text(), "<1 MiB");
    }

    /// Guards against rows that said "hybrid, stays inline", which every volume does unless it is set otherwise.
    #[test]
    fn a_row_says_only_what_is_not_so_everywhere() {
        let mut volumes = vec![volume("a", 256), volume("a-long-name", 0)];
        assert_eq!(volumes[0].remarks(), "");
        let text = volumes_text(&volumes, 20, true);
        assert!(!text.contains("remarks") && !text.contains("hybrid"), "{text}");
        let columns: Vec<_> = text.lines().skip(1).map(|line| line.find("10 GiB")).collect();
        assert_eq!(columns[0], columns[1]);
        assert!(text.contains("1 MiB"));
        volumes[1].timing_state.offline = true;
        assert_eq!(volumes[1].remarks(), "hybrid, now offline");
        (volumes[0].timing, volumes[0].timing_source) = ("offline".into(), "volume".into());
        (volumes[0].read_only, volumes[0].clients) = (true, 2);
        assert_eq!(volumes[0].remarks(), "2 clients, offline, read-only");
        assert!(volumes_text(&volumes, 20, true).contains("remarks"));
    }
}
