//! The constants of docs/internals/performance.md, and the tables of bench/results/simulated.md.

use std::fmt::Write;

use crate::studies::scale::{Crash, Results};
use crate::timed::load::{Cost, Workload};

/// Maximum costs of one request, at any size.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Visited pages of trees.
    pub page_visits: f64,
    /// Runs of requests and steps of checkpoints.
    pub steps: f64,
    /// Commands to the drive.
    pub commands: f64,
}

/// Returns the maximum costs of a request of a workload. docs/internals/performance.md has the reasons.
pub fn most(workload: Workload) -> Most {
    match workload {
        Workload::RandomRead => Most { page_visits: 16.0, steps: 5.0, commands: 4.0 },
        Workload::RandomWrite => Most { page_visits: 256.0, steps: 48.0, commands: 16.0 },
        Workload::SequentialRead => Most { page_visits: 8.0, steps: 3.0, commands: 2.0 },
        Workload::SequentialWrite => Most { page_visits: 8.0, steps: 96.0, commands: 2.0 },
    }
}

/// Maximum time of opening after a crash, in nanoseconds.
pub const LONGEST_OPENING: u64 = 1_000_000_000;

/// Line of the document at which the tables begin.
pub const BEGIN: &str = "<!-- made by `sim scale` -->";

/// Describes each figure that exceeds the constants.
pub fn excesses(results: &Results) -> Vec<String> {
    let mut found = Vec::new();
    let size = size_name(results.bytes);
    for (workload, cost) in &results.costs {
        let most = most(*workload);
        let costs = [
            ("page visits", cost.page_visits(), most.page_visits),
            ("steps", cost.steps(), most.steps),
            ("commands", cost.commands(), most.commands),
        ];
        for (what, cost, most) in costs {
            if cost > most {
                found.push(format!("{size}, {}: {cost:.2} {what} a request, {most} allowed", workload.name()));
            }
        }
    }
    for opening in results.openings.iter().filter(|opening| opening.nanos >= LONGEST_OPENING) {
        found.push(format!("{size}, opening after a crash ({:?}): {} ms", opening.crash, opening.nanos / 1_000_000));
    }
    found
}

/// Formats the results as tables in Markdown.
pub fn tables(all: &[Results]) -> String {
    let mut text = String::new();
    for workload in Workload::ALL {
        let Most { page_visits, steps, commands } = most(workload);
        let _ = writeln!(text, "\n**{}**\n", workload.name());
        text.push_str("| mapped | page visits | steps | commands | data reads | data writes | journal writes | page reads | page writes |\n");
        text.push_str("|---|---|---|---|---|---|---|---|---|\n");
        for results in all {
            for (_, cost) in results.costs.iter().filter(|(name, _)| *name == workload) {
                let _ = writeln!(text, "{}", row(results.bytes, cost));
            }
        }
        let _ = writeln!(text, "| **at most** | **{page_visits}** | **{steps}** | **{commands}** | | | | | |");
    }
    text.push_str("\n**Opening after a crash**, in virtual milliseconds (records, entries, blocks copied)\n\n");
    text.push_str(
        "| mapped | nothing lost | unsynced lost | flushed writes | commands | memory |\n|---|---|---|---|---|---|\n",
    );
    for results in all {
        let opening = |crash: Crash| {
            let found = results.openings.iter().find(|opening| opening.crash == crash);
            found.map_or(String::new(), |opening| {
                let recovered = opening.recovered;
                let (ms, redone) = (opening.nanos as f64 / 1e6, recovered.blocks_redone);
                format!("{ms:.1} ({}, {}, {redone})", recovered.records, recovered.entries)
            })
        };
        let [kept, lost, flushed] = Crash::ALL.map(opening);
        let commands = results.openings.iter().map(|opening| opening.commands).max().unwrap_or(0);
        let (size, memory) = (size_name(results.bytes), results.memory >> 20);
        let _ = writeln!(text, "| {size} | {kept} | {lost} | {flushed} | {commands} | {memory} MiB |");
    }
    let _ = writeln!(text, "| **at most** | **{0}** | **{0}** | **{0}** | | |", LONGEST_OPENING / 1_000_000);
    text
}

fn row(bytes: u64, cost: &Cost) -> String {
    let io = cost.io;
    let counts = [io.slot_reads, io.slot_writes, io.journal_writes].map(|count| cost.per_request(count));
    let [data_reads, data_writes, journal] = counts;
    format!(
        "| {} | {:.2} | {:.2} | {:.2} | {data_reads:.3} | {data_writes:.3} | {journal:.3} | {:.3} | {:.3} |",
        size_name(bytes),
        cost.page_visits(),
        cost.steps(),
        cost.commands(),
        cost.metadata_reads(),
        cost.per_request(io.metadata_writes),
    )
}

/// Formats a size in TiB, GiB or MiB.
pub fn size_name(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 40) => format!("{} TiB", bytes >> 40),
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Reads a size such as `100G` or `10T`; it must be a whole number of GiB.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let shift = match text.chars().last() {
        Some('G') => 30,
        Some('T') => 40,
        _ => return Err(format!("'{text}' is no size: a number and G or T")),
    };
    let number: u64 =
        text[..text.len() - 1].parse().map_err(|_| format!("'{text}' is no size: a number and G or T"))?;
    let most = 200 << (40 - shift);
    if !(1..=most).contains(&number) {
        return Err(format!("'{text}' is not from 1G to 200T"));
    }
    Ok(number << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_a_unit() {
        assert_eq!(parse_size("10T"), Ok(10 << 40));
        assert!(["", "G", "0G", "1", "1M", "201T", "-1G", "é"].iter().all(|text| parse_size(text).is_err()));
    }

    #[test]
    fn what_costs_too_much_is_named() {
        let cost = Cost {
            requests: 1,
            io: crate::timed::machine::IoCounts { slot_reads: 5, ..Default::default() },
            ..Default::default()
        };
        let results =
            Results { bytes: 1 << 40, costs: vec![(Workload::RandomRead, cost)], openings: Vec::new(), memory: 0 };
        assert_eq!(excesses(&results), ["1 TiB, 4 KiB random read: 5.00 commands a request, 4 allowed"]);
    }
}
