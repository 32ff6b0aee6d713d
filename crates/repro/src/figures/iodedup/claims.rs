//! Claims of the slides on I/O Deduplication: numbers and statements.
//!
//! The slides' seconds are judged by the time in which the disk works on reads; the clients' wait judges nothing. The cache is ARC, as on the slides; LRU
//! judges nothing. Both caches are filled by reads and writes. A cache by content knows the sectors that passed through it, as retrieval does (REFERENCE, 1.6).
//! The additional effect of a disk scan is in rows that judge nothing.
//!
//! A technique helps if it takes at least 1 % of the time. In statements of order differences below 1 % count as equal: "more" does not hold for equal values,
//! "at least" and "no more" do.

use crate::figures::claims::{Band, Claim, find, fitted, gain, ours, predicted, statement};
use crate::io_deduplication::workload::Shape;

/// All of them, in the order of the slides.
pub const CLAIMS: &[&[Claim]] = &[WEB_VM, MAIL, HOMES, HITS, COPIES, RETRIEVAL, TABLE, OVERHEAD, BEYOND];

const MADE: &str = "The stand-ins were made to have it.";

/// Returns the slides' static similarity of a disk.
pub fn static_similarity(shape: Shape) -> f64 {
    find(&format!("iodedup-motivation/similarity-{}", shape.name())).value.unwrap_or(1.0)
}

const fn amount(id: &'static str, what: &'static str, gib: f64) -> Claim {
    fitted(id, "motivation (FAST paper, table 1)", what, "GiB", gib, Band::Within(0.1 * gib)).note(MADE)
}

/// Makes a claim of the sectors read and written: the table says which part of the file system was accessed, rounded.
const fn both(id: &'static str, what: &'static str, gib: f64) -> Claim {
    fitted(id, "motivation (FAST paper, table 1)", what, "GiB", gib, Band::Within(0.1 * gib + 0.02)).note(MADE)
}

const fn similarity(id: &'static str, what: &'static str, value: f64) -> Claim {
    fitted(id, "motivation, duplication", what, "", value, Band::Within(0.05)).note(MADE)
}

const WEB_VM: &[Claim] = &[
    amount("iodedup-motivation/blocks-read-web-vm", "web-vm: blocks read", 3.40),
    amount("iodedup-motivation/sectors-read-web-vm", "web-vm: different sectors read", 1.27),
    amount("iodedup-motivation/contents-read-web-vm", "web-vm: different contents read", 1.09),
    amount("iodedup-motivation/blocks-written-web-vm", "web-vm: blocks written", 11.46),
    amount("iodedup-motivation/sectors-written-web-vm", "web-vm: different sectors written", 0.86),
    amount("iodedup-motivation/contents-written-web-vm", "web-vm: different contents written", 4.85),
    both("iodedup-motivation/both-web-vm", "web-vm: sectors read and written", 0.17),
    similarity("iodedup-motivation/similarity-web-vm", "web-vm: disk static similarity", 2.67),
    statement(
        "iodedup-motivation/frequency-web-vm",
        "motivation, frequency",
        "web-vm: content is read more often than sectors are",
    ),
    statement(
        "iodedup-motivation/recency-web-vm",
        "motivation, recency",
        "web-vm: more reads are within 1 GiB of their last use by content than by sector",
    ),
    statement(
        "iodedup-motivation/overlap-web-vm",
        "motivation, working set overlap",
        "web-vm: days have more contents in common than sectors",
    ),
];

const MAIL: &[Claim] = &[
    amount("iodedup-motivation/blocks-read-mail", "mail: blocks read", 62.00),
    amount("iodedup-motivation/sectors-read-mail", "mail: different sectors read", 29.24),
    amount("iodedup-motivation/contents-read-mail", "mail: different contents read", 28.82),
    amount("iodedup-motivation/blocks-written-mail", "mail: blocks written", 482.10),
    amount("iodedup-motivation/sectors-written-mail", "mail: different sectors written", 4.18),
    amount("iodedup-motivation/contents-written-mail", "mail: different contents written", 34.02),
    both("iodedup-motivation/both-mail", "mail: sectors read and written", 2.07),
    similarity("iodedup-motivation/similarity-mail", "mail: disk static similarity", 2.64),
    statement(
        "iodedup-motivation/frequency-mail",
        "motivation, frequency",
        "mail: content is read more often than sectors are",
    ),
    statement(
        "iodedup-motivation/recency-mail",
        "motivation, recency",
        "mail: more reads are within 1 GiB of their last use by content than by sector",
    ),
    statement(
        "iodedup-motivation/overlap-mail",
        "motivation, working set overlap",
        "mail: days have more contents in common than sectors",
    ),
];

const HOMES: &[Claim] = &[
    amount("iodedup-motivation/blocks-read-homes", "homes: blocks read", 5.79),
    amount("iodedup-motivation/sectors-read-homes", "homes: different sectors read", 2.40),
    amount("iodedup-motivation/contents-read-homes", "homes: different contents read", 1.99),
    amount("iodedup-motivation/blocks-written-homes", "homes: blocks written", 148.86),
    amount("iodedup-motivation/sectors-written-homes", "homes: different sectors written", 4.33),
    amount("iodedup-motivation/contents-written-homes", "homes: different contents written", 33.68),
    both("iodedup-motivation/both-homes", "homes: sectors read and written", 0.0),
    similarity("iodedup-motivation/similarity-homes", "homes: disk static similarity", 2.94),
    statement(
        "iodedup-motivation/frequency-homes",
        "motivation, frequency",
        "homes: content is read more often than sectors are",
    ),
    statement(
        "iodedup-motivation/recency-homes",
        "motivation, recency",
        "homes: more reads are within 1 GiB of their last use by content than by sector",
    ),
    statement(
        "iodedup-motivation/overlap-homes",
        "motivation, working set overlap",
        "homes: days have more contents in common than sectors",
    ),
];

const HITS: &[Claim] = &[
    statement(
        "iodedup-hits/web-vm",
        "hits versus cache size",
        "web-vm: by content at least the hits of reads by sector, ARC, 64 MiB to 2 GiB",
    ),
    statement(
        "iodedup-hits/mail",
        "hits versus cache size",
        "mail: by content at least the hits of reads by sector, ARC, 64 MiB to 2 GiB",
    ),
    statement(
        "iodedup-hits/homes",
        "hits versus cache size",
        "homes: by content at least the hits of reads by sector, ARC, 64 MiB to 2 GiB",
    ),
    ours(
        "iodedup-hits/falls-web-vm",
        "beyond the slides",
        "web-vm: ARC by sector finds less of the reads with more memory only where the journal begins to fit",
    ),
    ours(
        "iodedup-hits/without-journal-web-vm",
        "beyond the slides",
        "web-vm: without the journal ARC by sector finds no less of the reads with more memory",
    ),
    ours(
        "iodedup-hits/without-writes-web-vm",
        "beyond the slides",
        "web-vm: filled by reads alone ARC by sector finds no less of them with more memory",
    ),
    ours(
        "iodedup-hits/falls-mail",
        "beyond the slides",
        "mail: ARC by sector finds less of the reads with more memory only where the journal begins to fit",
    ),
    ours(
        "iodedup-hits/without-journal-mail",
        "beyond the slides",
        "mail: without the journal ARC by sector finds no less of the reads with more memory",
    ),
    ours(
        "iodedup-hits/without-writes-mail",
        "beyond the slides",
        "mail: filled by reads alone ARC by sector finds no less of them with more memory",
    ),
    ours(
        "iodedup-hits/falls-homes",
        "beyond the slides",
        "homes: ARC by sector finds less of the reads with more memory only where the journal begins to fit",
    ),
    ours(
        "iodedup-hits/without-journal-homes",
        "beyond the slides",
        "homes: without the journal ARC by sector finds no less of the reads with more memory",
    ),
    ours(
        "iodedup-hits/without-writes-homes",
        "beyond the slides",
        "homes: filled by reads alone ARC by sector finds no less of them with more memory",
    ),
    ours(
        "iodedup-hits/sample",
        "beyond the slides",
        "mail, real sample: content gains less than 0.1 points, however large the cache",
    ),
];

const COPIES: &[Claim] = &[
    statement(
        "iodedup-copies/short-stroked",
        "author's wiki",
        "100 to 1,000 copies: within 20 % of the short-stroked disk",
    ),
    ours(
        "iodedup-copies/expected",
        "beyond the wiki",
        "the time of the nearest copy is within 10 % of the value by the drive's parameters",
    ),
];

const RETRIEVAL: &[Claim] = &[
    ours(
        "iodedup-retrieval/one",
        "beyond the slides",
        "one request waiting: the nearest of three copies takes at least 20 % less of the disk's time than one",
    ),
    ours(
        "iodedup-retrieval/eight",
        "beyond the slides",
        "8 and more waiting: the nearest of three copies, chosen when requests come, takes less than 5 % less",
    ),
    ours(
        "iodedup-retrieval/dispatch",
        "beyond the slides",
        "8 waiting: the copy chosen at dispatch takes at least 5 % less than the one chosen when requests come",
    ),
    ours(
        "iodedup-retrieval/disk",
        "beyond the slides",
        "at the weeks' own pace a tracker that knows the disk takes at least 10 % of the reads' service time",
    ),
    ours(
        "iodedup-retrieval/pace",
        "beyond the slides",
        "the gain of a tracker that knows the disk is less at 100 times the pace than at the weeks' own",
    ),
    ours(
        "iodedup-retrieval/choice",
        "beyond the slides",
        "at 100 times the pace it takes at least 1 % less service if it chooses at dispatch",
    ),
];

const TABLE: &[Claim] = &[
    predicted("iodedup-table/vanilla-web-vm", "all together", "web-vm: vanilla", "s", 3098.61, Band::Factor(2.0)),
    predicted("iodedup-table/all-web-vm", "all together", "web-vm: I/O Deduplication", "s", 1641.9, Band::Factor(2.0)),
    gain("iodedup-table/gain-web-vm", "all together", "web-vm: time of reads with all, against vanilla", 47.01)
        .note("Printed as 47 %; the value is of the slide's seconds."),
    predicted("iodedup-table/vanilla-mail", "all together", "mail: vanilla", "s", 4877.49, Band::Factor(2.0)),
    predicted("iodedup-table/all-mail", "all together", "mail: I/O Deduplication", "s", 3467.3, Band::Factor(2.0)),
    gain("iodedup-table/gain-mail", "all together", "mail: time of reads with all, against vanilla", 28.91)
        .note("Printed as 28 %; the value is of the slide's seconds."),
    predicted("iodedup-table/vanilla-homes", "all together", "homes: vanilla", "s", 1904.63, Band::Factor(2.0)),
    predicted("iodedup-table/all-homes", "all together", "homes: I/O Deduplication", "s", 1160.4, Band::Factor(2.0)),
    gain("iodedup-table/gain-homes", "all together", "homes: time of reads with all, against vanilla", 39.07)
        .note("Printed as 39 %; the value is of the slide's seconds."),
    helps("iodedup-table/cache-web-vm", "web-vm: the cache helps"),
    helps("iodedup-table/retrieval-web-vm", "web-vm: retrieval helps further"),
    helps("iodedup-table/duplication-web-vm", "web-vm: duplication helps further"),
    helps("iodedup-table/retrieval-alone-web-vm", "web-vm: retrieval alone helps"),
    helps("iodedup-table/cache-mail", "mail: the cache helps"),
    helps("iodedup-table/retrieval-mail", "mail: retrieval helps further"),
    helps("iodedup-table/duplication-mail", "mail: duplication helps further"),
    helps("iodedup-table/retrieval-alone-mail", "mail: retrieval alone helps"),
    helps("iodedup-table/cache-homes", "homes: the cache helps"),
    helps("iodedup-table/retrieval-homes", "homes: retrieval helps further"),
    helps("iodedup-table/duplication-homes", "homes: duplication helps further"),
    helps("iodedup-table/retrieval-alone-homes", "homes: retrieval alone helps"),
    ours(
        "iodedup-table/duplication-alone-web-vm",
        "beyond the slides",
        "web-vm: duplication helps without a cache, by 1 % or more",
    ),
    ours(
        "iodedup-table/duplication-alone-mail",
        "beyond the slides",
        "mail: duplication helps without a cache, by 1 % or more",
    ),
    ours(
        "iodedup-table/duplication-alone-homes",
        "beyond the slides",
        "homes: duplication helps without a cache, by 1 % or more",
    ),
];

const fn helps(id: &'static str, what: &'static str) -> Claim {
    statement(id, "evaluation", what).note("By at least 1 % of the time in which the disk works on reads.")
}

const FORMULA: &str = "Arithmetic: the slides' own formula.";

const OVERHEAD: &[Claim] = &[
    fitted(
        "iodedup-memory/mib",
        "overhead",
        "metadata of 1 GB, similarity 4, a million buckets",
        "MiB",
        48.0,
        Band::Within(2.0),
    )
    .note(FORMULA),
    fitted("iodedup-memory/percent", "overhead", "the same, of the cache", "%", 4.6, Band::Within(0.1)).note(FORMULA),
    fitted("iodedup-memory/micros", "overhead", "100,000 + 1,000 cycles at 2 GHz", "us", 90.0, Band::Within(0.9))
        .note("Arithmetic; the slide contradicts itself: at 2 GHz they are 50.5 us."),
];

const SOONER: &str = "By 1 % or more, and by more than two standard errors of the difference on the same week.";

const BEYOND: &[Claim] = &[
    ours(
        "iodedup-replicas/in-order-web-vm",
        "beyond the slides",
        "web-vm: reads are answered sooner with replicas in order than without any, on five seeds",
    )
    .note(SOONER),
    ours(
        "iodedup-replicas/copies-web-vm",
        "beyond the slides",
        "web-vm: reads are answered sooner with copies of popular blocks beside those, on five seeds",
    )
    .note(SOONER),
    ours(
        "iodedup-replicas/in-order-mail",
        "beyond the slides",
        "mail: reads are answered sooner with replicas in order than without any, on five seeds",
    )
    .note(SOONER),
    ours(
        "iodedup-replicas/copies-mail",
        "beyond the slides",
        "mail: reads are answered sooner with copies of popular blocks beside those, on five seeds",
    )
    .note(SOONER),
    ours(
        "iodedup-replicas/in-order-homes",
        "beyond the slides",
        "homes: reads are answered sooner with replicas in order than without any, on five seeds",
    )
    .note(SOONER),
    ours(
        "iodedup-replicas/copies-homes",
        "beyond the slides",
        "homes: reads are answered sooner with copies of popular blocks beside those, on five seeds",
    )
    .note(SOONER),
    ours(
        "iodedup-onefold/select-web-vm",
        "beyond the slides",
        "web-vm: Onefold with select reads the drive no more often by content than by sector",
    ),
    ours(
        "iodedup-onefold/native-web-vm",
        "beyond the slides",
        "web-vm: Onefold with native reads the drive no more often by content than by sector",
    ),
    ours(
        "iodedup-onefold/select-mail",
        "beyond the slides",
        "mail: Onefold with select reads the drive no more often by content than by sector",
    ),
    ours(
        "iodedup-onefold/native-mail",
        "beyond the slides",
        "mail: Onefold with native reads the drive no more often by content than by sector",
    ),
    ours(
        "iodedup-onefold/select-homes",
        "beyond the slides",
        "homes: Onefold with select reads the drive no more often by content than by sector",
    ),
    ours(
        "iodedup-onefold/native-homes",
        "beyond the slides",
        "homes: Onefold with native reads the drive no more often by content than by sector",
    ),
];
