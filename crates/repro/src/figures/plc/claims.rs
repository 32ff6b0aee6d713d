//! Claims of the slides on PLC-Cache: numbers and statements.
//!
//! A statement about a sweep is one claim, which holds if it does at every point. The slides print 15.34 and ">15x" of the same thing: the number is of the
//! slide on distributions, and its bound of that on overall results.

use crate::figures::claims::{Band, Claim, Kind, fitted, gain, ours, predicted, statement};

/// All of them, in the order of the slides.
pub const CLAIMS: &[&[Claim]] = &[
    LIFETIME,
    QUADRANTS,
    OVERALL,
    DISTRIBUTION,
    CACHE_SIZE,
    ALPHA,
    CONTAINER,
    CHUNK,
    THRESHOLD,
    BEYOND,
    FRONTIER,
    TRACES,
];

const fn days(id: &'static str, what: &'static str, value: f64) -> Claim {
    fitted(id, "challenge of SSD cache", what, "days", value, Band::Within(0.02 * value))
        .note("Arithmetic: the slide's rate of writing and what the drive's maker allows.")
}

const fn rate(id: &'static str, what: &'static str, value: f64) -> Claim {
    predicted(id, "challenge of SSD cache", what, "MB/s", value, Band::Factor(2.0))
        .note("Of the run that is calibrated to the quadrants, on models of disks: bytes written in the time of all reads. An MB is 2^20 bytes.")
}

const LIFETIME: &[Claim] = &[
    rate("plc-lifetime/fifo-rate", "FIFO: written in a second", 56.7),
    rate("plc-lifetime/lru-rate", "LRU: written in a second", 50.7),
    rate("plc-lifetime/lfu-rate", "LFU: written in a second", 53.1),
    days("plc-lifetime/fifo-520", "FIFO at 56.7 MB/s, Intel 520", 7.6),
    days("plc-lifetime/lru-520", "LRU at 50.7 MB/s, Intel 520", 8.5),
    days("plc-lifetime/lfu-520", "LFU at 53.1 MB/s, Intel 520", 8.1),
    days("plc-lifetime/fifo-910", "FIFO at 56.7 MB/s, Intel 910", 162.0),
    days("plc-lifetime/lru-910", "LRU at 50.7 MB/s, Intel 910", 181.0),
    days("plc-lifetime/lfu-910", "LFU at 53.1 MB/s, Intel 910", 173.0),
];

const QUADRANTS: &[Claim] = &[
    statement(
        "plc-quadrants/once",
        "analysis",
        "from chunk to container, less is popular and written once: FIFO, LRU, LFU",
    ),
    statement(
        "plc-quadrants/repeatedly",
        "analysis",
        "from chunk to container, more is popular and written repeatedly: FIFO, LRU, LFU",
    ),
    statement("plc-quadrants/unpopular", "analysis", "from chunk to container, less is not popular: FIFO, LRU, LFU"),
    statement("plc-quadrants/similar", "analysis", "by container, FIFO, LRU and LFU differ by at most")
        .within("points", 0.0, 15.0),
];

const OVERALL: &[Claim] = &[
    gain("plc-overall/hdd", "overall results", "time with PLC-Cache than without flash", 41.9),
    gain(
        "plc-overall/traditional",
        "overall results",
        "time with PLC-Cache than with FIFO, LRU and LFU in the mean",
        23.4,
    ),
    statement("plc-overall/writes", "overall results", "LRU writes more than 15 times as much as PLC-Cache")
        .within("times", 15.0, 30.0)
        .of(Kind::Fitted)
        .note("Calibrated: it is the number of the slide on distributions."),
    ours(
        "plc-overall/ours-waits",
        "beyond the slides",
        "ours that waits for writes takes less time than PLC-Cache, with 20 and 1 %",
    ),
    ours(
        "plc-overall/ours-behind",
        "beyond the slides",
        "ours that writes behind takes less time than PLC-Cache, with 20 and 1 %",
    ),
];

const fn calibrated(id: &'static str, what: &'static str, unit: &'static str, value: f64, band: Band) -> Claim {
    fitted(id, "distributions", what, unit, value, band)
        .note("Calibrated: cache, length of the run, threshold, delay and references were chosen for this slide.")
}

const DISTRIBUTION: &[Claim] = &[
    calibrated("plc-distribution/lru-written", "LRU: written", "GB", 48.77, Band::Factor(2.0)),
    calibrated("plc-distribution/plc-written", "PLC-Cache: written", "GB", 3.18, Band::Factor(2.0)),
    calibrated("plc-distribution/times", "LRU writes as much as PLC-Cache", "times", 15.34, Band::Factor(2.0)),
    calibrated("plc-distribution/lru-once", "LRU: popular, once (QA)", "%", 0.0, Band::Within(1.0)),
    calibrated("plc-distribution/lru-repeatedly", "LRU: popular, repeatedly (QB)", "%", 26.23, Band::Share(20.0)),
    calibrated("plc-distribution/lru-unpopular", "LRU: not popular (QC, QD)", "%", 73.77, Band::Share(20.0)),
    calibrated("plc-distribution/plc-once", "PLC-Cache: popular, once (QA)", "%", 81.63, Band::Share(20.0)),
    calibrated("plc-distribution/plc-repeatedly", "PLC-Cache: popular, repeatedly (QB)", "%", 18.37, Band::Share(20.0)),
    calibrated("plc-distribution/plc-unpopular", "PLC-Cache: not popular (QC, QD)", "%", 0.0, Band::Within(1.0)),
];

const CACHE_SIZE: &[Claim] = &[
    statement("plc-cache-size/time", "cache size", "PLC-Cache takes less time than LRU with every size of the cache"),
    statement("plc-cache-size/written", "cache size", "PLC-Cache writes less than LRU with every size of the cache"),
    statement("plc-cache-size/lru-falls", "cache size", "LRU writes less with each larger cache"),
    ours("plc-cache-size/ours", "beyond the slides", "ours takes less time than LRU with every size of the cache"),
];

const ALPHA: &[Claim] = &[
    statement("plc-alpha/time", "alpha of Zipf", "PLC-Cache takes less time than LRU with every alpha"),
    statement("plc-alpha/written", "alpha of Zipf", "PLC-Cache writes less than LRU with every alpha"),
    statement("plc-alpha/faster", "alpha of Zipf", "PLC-Cache is faster with each larger alpha"),
    ours("plc-alpha/ours", "beyond the slides", "ours takes less time than LRU with every alpha"),
];

const CONTAINER: &[Claim] = &[
    statement(
        "plc-container/time",
        "container size",
        "PLC-Cache takes less time than LRU with every size of containers",
    ),
    statement(
        "plc-container/written",
        "container size",
        "PLC-Cache writes less than LRU with every size of containers",
    ),
    statement("plc-container/large", "container size", "PLC-Cache is slow with the largest containers"),
    gain("plc-erases/sar", "container size", "erases with PLC-Cache than with SAR", 54.4),
    statement(
        "plc-erases/no-amplification",
        "container level",
        "by container, pages programmed for each written: most",
    )
    .within("times", 1.0, 1.01),
    statement("plc-erases/amplification", "container level", "by chunk, more pages are programmed than by container"),
    ours("plc-container/ours", "beyond the slides", "ours takes less time than LRU with every size of containers"),
];

const CHUNK: &[Claim] = &[
    statement("plc-chunk/time", "chunk size", "PLC-Cache takes less time than LRU with every size of chunks"),
    statement("plc-chunk/written", "chunk size", "PLC-Cache writes less than LRU with every size of chunks"),
    statement("plc-chunk/small", "chunk size", "PLC-Cache is slowest with the smallest chunks"),
    statement("plc-chunk/no-impact", "chunk size", "PLC-Cache differs from 4 to 16 KiB by").within("%", 0.0, 5.0),
    ours("plc-chunk/ours", "beyond the slides", "ours takes less time than LRU with every size of chunks"),
];

const THRESHOLD: &[Claim] = &[
    statement("plc-threshold/written", "PF threshold", "without a threshold more is written than with 5"),
    statement("plc-threshold/time", "PF threshold", "without a threshold reads of 8 clients take longer than with 5"),
];

const BEYOND: &[Claim] = &[
    ours("plc-modules/alone", "beyond the slides", "each module alone writes less than none"),
    ours("plc-modules/all", "beyond the slides", "all three modules write least"),
    ours("plc-decisions/hits", "beyond the slides", "ours hits at least as much as PLC-Cache"),
];

const fn frontier(id: &'static str, what: &'static str) -> Claim {
    ours(id, "beyond the slides", what)
}

const FRONTIER: &[Claim] = &[
    frontier("plc-frontier-06/lru", "alpha 0.6: ours hits at least as much as LRU, every cache, both days"),
    frontier("plc-frontier-06/plc", "alpha 0.6: ours hits at least as much as PLC-Cache, every cache, both days"),
    frontier(
        "plc-frontier-06/written",
        "alpha 0.6: ours writes an eighth of LRU's bytes at most, 1 to 5 %; a half, 20 %",
    ),
    frontier("plc-frontier-08/lru", "alpha 0.8: ours hits at least as much as LRU, every cache, both days"),
    frontier("plc-frontier-08/plc", "alpha 0.8: ours hits at least as much as PLC-Cache, every cache, both days"),
    frontier(
        "plc-frontier-08/written",
        "alpha 0.8: ours writes an eighth of LRU's bytes at most, 1 to 5 %; a half, 20 %",
    ),
    frontier("plc-frontier-10/lru", "alpha 1.0: ours hits at least as much as LRU, every cache, both days"),
    frontier("plc-frontier-10/plc", "alpha 1.0: ours hits at least as much as PLC-Cache, every cache, both days"),
    frontier(
        "plc-frontier-10/written",
        "alpha 1.0: ours writes an eighth of LRU's bytes at most, 1 to 5 %; a half, 20 %",
    ),
    frontier("plc-frontier-12/lru", "alpha 1.2: ours hits at least as much as LRU, every cache, both days"),
    frontier("plc-frontier-12/plc", "alpha 1.2: ours hits at least as much as PLC-Cache, every cache, both days"),
    frontier(
        "plc-frontier-12/written",
        "alpha 1.2: ours writes an eighth of LRU's bytes at most, 1 to 5 %; a half, 20 %",
    ),
];

const TRACES: &[Claim] = &[
    frontier("plc-cloudphysics/hits", "CloudPhysics behind memory: ours hits at least as much as LRU, every cache"),
    frontier(
        "plc-cloudphysics/plc",
        "CloudPhysics behind memory: ours hits at least as much as PLC-Cache, every cache",
    ),
    frontier(
        "plc-cloudphysics/written",
        "CloudPhysics behind memory: ours writes at most half of LRU's bytes, every cache",
    ),
    frontier("plc-mqsim/hits", "MQSim, tpcc-small, behind memory: ours hits at least as much as LRU, every cache"),
    frontier("plc-mqsim/plc", "MQSim, tpcc-small, behind memory: ours hits at least as much as PLC-Cache, every cache"),
    frontier(
        "plc-mqsim/written",
        "MQSim, tpcc-small, behind memory: ours writes at most half of LRU's bytes, every cache",
    ),
];
