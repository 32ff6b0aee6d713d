//! Limits of docs/internals/performance.md for discards, and the table of bench/results/simulated.md.

use std::fmt::Write;

use engine::Nanos;

use crate::studies::scale::discard::{Results, Stretch};
use crate::studies::scale::report::size_name;
use crate::timed::load::Class;

/// Maximum ratio of the p99 of every class of requests during a discard to that before it.
const MOST_TIMES: u64 = 2;
/// Maximum time of a request to discard or delete, in nanoseconds: about that of a durable write.
const LONGEST_ANSWER: Nanos = 10_000_000;

/// Line of the document at which the table begins.
pub const BEGIN: &str = "<!-- made by `sim discard` -->";

fn name(class: Class) -> &'static str {
    match class {
        Class::Read => "read",
        Class::Write => "write",
        Class::Durable => "durable write",
    }
}

fn title(results: &Results) -> String {
    format!("{} free, {}", size_name(results.spare_bytes), results.way.name())
}

/// Describes each figure that exceeds the constants.
pub fn excesses(results: &Results) -> Vec<String> {
    let mut found = Vec::new();
    for (class, (before, during)) in
        Class::ALL.into_iter().zip(results.before.latencies.iter().zip(&results.during.latencies))
    {
        if during[1] > MOST_TIMES * before[1] {
            let (before, during) = (micros(before[1]), micros(during[1]));
            found.push(format!("{}: p99 of a {} rises from {before} to {during} us", title(results), name(class)));
        }
    }
    let longest = results.answers.iter().copied().max().unwrap_or(0);
    if longest > LONGEST_ANSWER || results.unanswered > 0 {
        let (longest, unanswered) = (micros(longest), results.unanswered);
        found.push(format!("{}: answered after {longest} us, {unanswered} not at all", title(results)));
    }
    let [most, left] = results.discarded_blocks;
    if left >= most || results.freed_per_second == 0 {
        found.push(format!("{}: nothing is freed, {left} blocks of {most} are left", title(results)));
    }
    found
}

/// Formats the results as a table in Markdown.
pub fn table(all: &[Results]) -> String {
    let mut text = String::from(
        "\n| free before | discarded | read | write | durable write | requests | longest | freed a second | hours for all | discarded blocks |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|---|---|\n");
    for results in all {
        let latencies = |at: usize| {
            let list = |stretch: &Stretch| stretch.latencies[at].map(micros).join(" / ");
            format!("{}<br>{}", list(&results.before), list(&results.during))
        };
        let [reads, writes, durable] = [0, 1, 2].map(latencies);
        let longest = results.answers.iter().copied().max().unwrap_or(0);
        let [most, left] = results.discarded_blocks;
        let hours = results.blocks as f64 / results.freed_per_second.max(1) as f64 / 3600.0;
        let _ = writeln!(
            text,
            "| {} | {}, {} | {reads} | {writes} | {durable} | {} | {} | {} | {hours:.1} | {most}<br>{left} |",
            size_name(results.spare_bytes),
            size_name(results.bytes),
            results.way.name(),
            results.answers.len(),
            micros(longest),
            results.freed_per_second,
        );
    }
    text
}

/// Formats the time of the processor before and during each discard.
pub fn processor_table(all: &[Results]) -> String {
    let mut text =
        String::from("real time of the processor in calls of the engine: average and longest in us, calls over 1 ms\n");
    for results in all {
        for (when, stretch) in [("before", &results.before), ("during", &results.during)] {
            let processor = stretch.processor;
            let average = processor.nanos as f64 / processor.calls.max(1) as f64 / 1000.0;
            let (longest, many) = (micros(processor.longest), processor.long_calls);
            let calls = processor.calls;
            let _ = writeln!(text, "{}, {when}: {average:.2}, {longest}, {many} of {calls}", title(results));
        }
    }
    text
}

fn micros(nanos: Nanos) -> String {
    format!("{:.0}", nanos as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studies::scale::discard::Way;

    #[test]
    fn what_a_discard_makes_slower_is_named() {
        let stretch = |p99| Stretch { latencies: [[1, p99, p99]; 3], checkpoints: 1, processor: Default::default() };
        let results = Results {
            bytes: 1 << 40,
            blocks: 1 << 28,
            spare_bytes: 1 << 30,
            way: Way::Trim,
            before: stretch(1_000),
            during: stretch(2_000),
            answers: vec![5],
            unanswered: 0,
            freed_per_second: 1,
            discarded_blocks: [10, 9],
        };
        assert_eq!(excesses(&results), [""; 0]);
        let slower = Results { during: stretch(3_000), ..results.clone() };
        assert_eq!(excesses(&slower)[0], "1 GiB free, one discard: p99 of a read rises from 1 to 3 us");
        assert_eq!(excesses(&slower).len(), 3);
        assert_eq!(excesses(&Results { answers: vec![1_000_000_000], ..results.clone() }).len(), 1);
        assert_eq!(excesses(&Results { unanswered: 1, ..results.clone() }).len(), 1);
        assert_eq!(excesses(&Results { discarded_blocks: [10, 10], ..results }).len(), 1);
    }
}
