//! Claims of HIODS' tables that judge its own system as a scheme of `repro` ([`crate::hiods_store`]).
//!
//! They were written before the scheme was run for any table but 5, 9, 10 and 13. Values are the reduction of the request time against a run without
//! deduplication, in percent: a loss is below 0. The band of a gain ([`Band`], `Gain`) excludes a result without change.
//!
//! *Fitted*: all cells of tables 9, 10 and 13, as one parameter each is calibrated from them. Of table 5, the cells that follow from tables 2 and 3, which give
//! the drive: sequential reads, and uniform ones of one worker. *Predicted*: all else. *Statements*: the text's sentences on two tables; each holds if it does
//! for 10 of 12 loads, or 5 of 6.

use super::claims::{
    TABLE_5, TABLE_6, TABLE_7, TABLE_9, TABLE_10, TABLE_11, TABLE_12, TABLE_13, TABLE_14, TABLE_15, TABLE_16, Values,
};
use crate::figures::claims::{Band, Claim, Kind, gain, predicted, statement};

/// Latencies of the tables, in microseconds.
pub(super) const LATENCY_5: Values = [3.0, 3.0, 8.67, 8.75, 76.0, 77.33, 85.5, 87.25, 20.0, 21.0, 22.5, 24.25];
pub(super) const LATENCY_6: Values = [12.0, 10.0, 52.0, 32.0, 102.67, 99.0, 112.33, 108.0, 34.0, 30.0, 42.25, 34.92];
pub(super) const LATENCY_7: Values = [15.67, 11.33, 66.67, 35.0, 109.0, 105.0, 123.67, 117.0, 29.0, 28.0, 36.42, 33.33];
pub(super) const LATENCY_9: Values = [7.33, 7.0, 34.33, 34.0, 8.0, 8.0, 38.67, 38.33, 8.67, 8.67, 38.17, 37.33];
pub(super) const LATENCY_10: Values = [12.0, 12.0, 53.0, 51.33, 13.0, 12.0, 53.83, 53.17, 7.0, 7.0, 33.42, 33.0];
pub(super) const LATENCY_11: Values = [11.0, 11.0, 49.17, 49.08, 12.0, 11.0, 51.33, 51.0, 6.0, 6.0, 31.75, 32.17];
pub(super) const LATENCY_12: Values = [12.0, 12.0, 51.83, 51.58, 12.0, 12.0, 55.25, 55.0, 7.0, 7.0, 34.25, 31.67];
pub(super) const LATENCY_13: Values =
    [49.33, 39.0, 198.33, 160.67, 62.0, 46.0, 253.33, 190.0, 32.0, 23.33, 113.33, 99.33];
pub(super) const LATENCY_14: Values = [26.0, 26.0, 106.67, 107.0, 26.0, 26.0, 109.33, 109.0, 13.0, 13.0, 57.0, 57.33];
pub(super) const LATENCY_15: Values =
    [62.33, 46.33, 227.67, 185.33, 80.33, 53.0, 346.67, 215.33, 30.33, 27.0, 134.33, 117.0];
pub(super) const LATENCY_16: Values =
    [31.67, 30.67, 129.67, 127.0, 30.0, 30.0, 124.0, 123.67, 14.33, 14.0, 60.33, 60.0];

/// A number that something was calibrated from, or that follows from the drive's.
const FITTED: Kind = Kind::Fitted;
const PREDICTED: Kind = Kind::Predicted;

/// Makes a claim of the time of a request, against that without deduplication.
const fn of_native(
    id: &'static str,
    source: &'static str,
    what: &'static str,
    rate: f64,
    native: f64,
    kind: Kind,
) -> Claim {
    gain(id, source, what, 100.0 * (1.0 - native / rate)).of(kind)
}

/// Makes a claim of the throughput without deduplication, in MB/s, within a factor of two.
const fn native(id: &'static str, source: &'static str, what: &'static str, rate: f64, kind: Kind) -> Claim {
    predicted(id, source, what, "MB/s", rate, Band::Factor(2.0)).of(kind)
}

macro_rules! load {
    ($figure:literal, $number:literal, $way:literal, $of:ident, ($($values:expr),+), $kind:expr, $pattern:literal, $workers:literal, $content:literal) => {
        $of(
            concat!("hiods-store-", $figure, "/table-", $number, "-", $pattern, "-", $workers, "-", $content),
            concat!("table ", $number),
            concat!("its own system, ", $way, ": ", $pattern, ", ", $workers, " at once, ", $content),
            $($values),+,
            $kind,
        )
    };
}

macro_rules! table {
    ($figure:literal, $number:literal, $way:literal, $of:ident, ($($values:ident),+), $kinds:expr) => {
        &[
            load!($figure, $number, $way, $of, ($($values[0]),+), $kinds[0], "sequential", 1, "highperf"),
            load!($figure, $number, $way, $of, ($($values[1]),+), $kinds[1], "sequential", 1, "kernels"),
            load!($figure, $number, $way, $of, ($($values[2]),+), $kinds[2], "sequential", 4, "highperf"),
            load!($figure, $number, $way, $of, ($($values[3]),+), $kinds[3], "sequential", 4, "kernels"),
            load!($figure, $number, $way, $of, ($($values[4]),+), $kinds[4], "uniform", 1, "highperf"),
            load!($figure, $number, $way, $of, ($($values[5]),+), $kinds[5], "uniform", 1, "kernels"),
            load!($figure, $number, $way, $of, ($($values[6]),+), $kinds[6], "uniform", 4, "highperf"),
            load!($figure, $number, $way, $of, ($($values[7]),+), $kinds[7], "uniform", 4, "kernels"),
            load!($figure, $number, $way, $of, ($($values[8]),+), $kinds[8], "hotspot", 1, "highperf"),
            load!($figure, $number, $way, $of, ($($values[9]),+), $kinds[9], "hotspot", 1, "kernels"),
            load!($figure, $number, $way, $of, ($($values[10]),+), $kinds[10], "hotspot", 4, "highperf"),
            load!($figure, $number, $way, $of, ($($values[11]),+), $kinds[11], "hotspot", 4, "kernels"),
        ]
    };
}

const ALL_FITTED: [Kind; 12] = [FITTED; 12];
const ALL_PREDICTED: [Kind; 12] = [PREDICTED; 12];
/// Fitted cells of table 5: those that follow from tables 2 and 3 are sequential reads, and uniform ones of one worker.
const OF_THE_DRIVE: [Kind; 12] =
    [FITTED, FITTED, FITTED, FITTED, FITTED, FITTED, PREDICTED, PREDICTED, PREDICTED, PREDICTED, PREDICTED, PREDICTED];

/// All of them.
pub(super) const STORE: [&[Claim]; 14] = [
    table!("reads", "5", "reads without deduplication", native, (TABLE_5), OF_THE_DRIVE),
    table!("reads", "6", "reads, metadata in memory", of_native, (TABLE_6, TABLE_5), ALL_PREDICTED),
    table!("reads", "7", "reads, metadata in LevelDB", of_native, (TABLE_7, TABLE_5), ALL_PREDICTED),
    table!("memory", "9", "writes without deduplication", native, (TABLE_9), ALL_FITTED),
    table!("memory", "10", "inline in memory", of_native, (TABLE_10, TABLE_9), ALL_FITTED),
    table!("memory", "11", "offline in memory, no background", of_native, (TABLE_11, TABLE_9), ALL_PREDICTED),
    table!("memory", "12", "offline in memory beside the background", of_native, (TABLE_12, TABLE_9), ALL_PREDICTED),
    table!("device", "13", "inline in LevelDB", of_native, (TABLE_13, TABLE_9), ALL_FITTED),
    table!("device", "14", "offline in LevelDB, no background", of_native, (TABLE_14, TABLE_9), ALL_PREDICTED),
    table!("device", "15", "offline in LevelDB beside the background", of_native, (TABLE_15, TABLE_9), ALL_PREDICTED),
    table!("device", "16", "the same with the feedback loop", of_native, (TABLE_16, TABLE_9), ALL_PREDICTED),
    ORDERINGS_OF_READS,
    ORDERINGS_IN_MEMORY,
    ORDERINGS_ON_THE_DEVICE,
];

const ORDERINGS_OF_READS: &[Claim] = &[statement(
    "hiods-store-reads/6-above-7",
    "tables 6 and 7",
    "reads are faster with metadata in memory, 10 of 12 loads",
)];

const ORDERINGS_IN_MEMORY: &[Claim] = &[
    statement(
        "hiods-store-memory/11-above-10",
        "tables 10 and 11",
        "in memory, offline without background is faster than inline, 10 of 12 loads",
    ),
    statement(
        "hiods-store-memory/11-above-12",
        "tables 11 and 12",
        "in memory, the background takes something, 10 of 12 loads",
    ),
];

const ORDERINGS_ON_THE_DEVICE: &[Claim] = &[
    statement(
        "hiods-store-device/14-above-13",
        "tables 13 and 14",
        "in LevelDB, offline without background is faster than inline, 10 of 12 loads",
    ),
    statement(
        "hiods-store-device/14-above-15",
        "tables 14 and 15",
        "in LevelDB, the background takes something, 10 of 12 loads",
    ),
    statement(
        "hiods-store-device/13-above-15",
        "tables 13 and 15",
        "in LevelDB, inline is faster than offline beside the background, 10 of 12 loads",
    ),
    statement(
        "hiods-store-device/16-above-15",
        "tables 15 and 16",
        "the feedback loop takes from the background, 10 of 12 loads",
    ),
    statement(
        "hiods-store-device/16-above-13",
        "section 5.5",
        "with the feedback loop offline is faster than inline, 10 of 12 loads",
    ),
    statement(
        "hiods-store-device/10-above-13",
        "tables 10 and 13",
        "inline is faster in memory than in LevelDB, 10 of 12 loads",
    ),
    statement(
        "hiods-store-device/13-kernels-above-highperf",
        "table 13",
        "inline in LevelDB, kernels are faster than highperf, 5 of 6 loads",
    ),
    statement(
        "hiods-store-device/15-kernels-above-highperf",
        "table 15",
        "beside the background, kernels are faster than highperf, 5 of 6 loads",
    ),
    predicted(
        "hiods-store-device/space-highperf",
        "section 5.3.1.3",
        "space saved of 64 GB, highperf",
        "GB",
        11.5,
        Band::Within(0.23),
    )
    .note("What `repro workload expect` computes."),
    predicted(
        "hiods-store-device/space-kernels",
        "section 5.3.1.3",
        "space saved of 64 GB, kernels",
        "GB",
        45.8,
        Band::Within(0.92),
    )
    .note("What `repro workload expect` computes."),
];
