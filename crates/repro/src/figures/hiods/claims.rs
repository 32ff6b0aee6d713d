//! Claims of HIODS on the controller: its numbers and statements.
//!
//! The tables are of a prototype with a page cache, LevelDB and a processor of its time. Its own system is a scheme of `repro` and is judged by
//! [`super::claims_store`], as are the paper's statements on its tables. The claims here are of Onefold's engine on the drive model. So our shares of native
//! throughput are expected to be no worse, and no row of them counts. Rates of the background are read off the text. A cost model can be expected to come
//! within a factor of two, and the burst within a quarter.

use super::claims_store::STORE;
use crate::figures::claims::{Band, Claim, Kind, fitted, ours, predicted, statement};

/// All of them, in the order of the paper.
pub const CLAIMS: &[&[Claim]] = &[
    STORE[0], STORE[1], STORE[2], STORE[3], STORE[4], STORE[5], STORE[6], STORE[7], STORE[8], STORE[9], STORE[10],
    STORE[11], STORE[12], STORE[13], T6, T7, T10, T11, T12, MEMORY, T13, T14, T15, T16, DEVICE, RESOURCES, MOUNTAIN,
    VALLEY, ASCENDING, DESCENDING, OF_OURS[0], OF_OURS[1], OF_OURS[2], OF_OURS[3], OF_OURS[4], OF_OURS[5], OF_OURS[6],
    OF_OURS[7], BEYOND,
];

/// Twelve loads: sequential, uniform and hotspot; in each one worker and four; in each highperf and kernels. MB/s.
pub(super) type Values = [f64; 12];
pub(super) const TABLE_5: Values =
    [1477.58, 1472.31, 1797.44, 1793.65, 51.14, 50.31, 182.08, 178.56, 196.07, 187.27, 685.52, 636.68];
pub(super) const TABLE_6: Values =
    [325.96, 392.40, 301.45, 490.89, 37.87, 39.37, 138.75, 144.36, 114.04, 130.33, 368.74, 417.75];
pub(super) const TABLE_7: Values =
    [249.65, 336.06, 233.94, 449.28, 35.71, 36.98, 126.0, 132.97, 132.06, 137.18, 424.31, 463.60];
pub(super) const TABLE_9: Values =
    [441.78, 451.66, 435.19, 439.68, 400.76, 387.36, 389.18, 392.61, 380.17, 378.71, 392.64, 402.07];
pub(super) const TABLE_10: Values =
    [293.89, 296.41, 286.01, 294.55, 271.13, 276.79, 282.83, 284.39, 461.1, 465.89, 443.1, 446.22];
pub(super) const TABLE_11: Values =
    [307.33, 307.82, 306.63, 307.04, 295.88, 297.07, 293.98, 295.58, 481.43, 490.32, 467.4, 459.6];
pub(super) const TABLE_12: Values =
    [294.69, 294.76, 293.46, 294.41, 276.1, 277.08, 273.11, 274.99, 455.65, 458.28, 434.81, 467.51];
pub(super) const TABLE_13: Values =
    [77.02, 95.39, 77.69, 96.05, 61.25, 81.71, 60.83, 81.11, 102.05, 153.71, 133.15, 153.62];
pub(super) const TABLE_14: Values =
    [143.13, 143.53, 143.62, 143.02, 139.81, 139.99, 139.88, 140.44, 261.0, 263.13, 263.4, 262.46];
pub(super) const TABLE_15: Values =
    [60.98, 81.07, 67.94, 83.46, 47.56, 71.38, 44.41, 71.24, 122.25, 136.87, 114.27, 129.43];
pub(super) const TABLE_16: Values =
    [117.98, 119.89, 118.29, 120.34, 123.03, 123.41, 123.66, 124.17, 241.22, 248.61, 247.5, 250.84];

/// Makes a claim that is met by no worse than the paper's part of native, and at most four times native, as no more than 72 % of the writes
/// are duplicates.
const fn no_worse(id: &'static str, source: &'static str, what: &'static str, part: f64) -> Claim {
    let claim = predicted(id, source, what, "of native", part, Band::Range(part, 4.0)).of(Kind::NoWorse);
    claim.note("The paper's is a prototype with a page cache and LevelDB on another machine.")
}

macro_rules! load {
    ($figure:literal, $number:literal, $way:literal, $paper:ident, $native:ident, $at:literal, $pattern:literal, $workers:literal, $content:literal) => {
        no_worse(
            concat!($figure, "/table-", $number, "-", $pattern, "-", $workers, "-", $content),
            concat!("table ", $number),
            concat!($way, ": ", $pattern, ", ", $workers, " at once, ", $content),
            $paper[$at] / $native[$at],
        )
    };
}

macro_rules! table {
    ($figure:literal, $number:literal, $way:literal, $paper:ident, $native:ident) => {
        &[
            load!($figure, $number, $way, $paper, $native, 0, "sequential", 1, "highperf"),
            load!($figure, $number, $way, $paper, $native, 1, "sequential", 1, "kernels"),
            load!($figure, $number, $way, $paper, $native, 2, "sequential", 4, "highperf"),
            load!($figure, $number, $way, $paper, $native, 3, "sequential", 4, "kernels"),
            load!($figure, $number, $way, $paper, $native, 4, "uniform", 1, "highperf"),
            load!($figure, $number, $way, $paper, $native, 5, "uniform", 1, "kernels"),
            load!($figure, $number, $way, $paper, $native, 6, "uniform", 4, "highperf"),
            load!($figure, $number, $way, $paper, $native, 7, "uniform", 4, "kernels"),
            load!($figure, $number, $way, $paper, $native, 8, "hotspot", 1, "highperf"),
            load!($figure, $number, $way, $paper, $native, 9, "hotspot", 1, "kernels"),
            load!($figure, $number, $way, $paper, $native, 10, "hotspot", 4, "highperf"),
            load!($figure, $number, $way, $paper, $native, 11, "hotspot", 4, "kernels"),
        ]
    };
}

const T6: &[Claim] = table!("hiods-reads", "6", "reads, metadata in memory", TABLE_6, TABLE_5);
const T7: &[Claim] = table!("hiods-reads", "7", "reads, metadata on the device", TABLE_7, TABLE_5);
const T10: &[Claim] = table!("hiods-writes-memory", "10", "inline", TABLE_10, TABLE_9);
const T11: &[Claim] = table!("hiods-writes-memory", "11", "offline without passes", TABLE_11, TABLE_9);
const T12: &[Claim] = table!("hiods-writes-memory", "12", "offline beside passes", TABLE_12, TABLE_9);
const T13: &[Claim] = table!("hiods-writes-device", "13", "inline", TABLE_13, TABLE_9);
const T14: &[Claim] = table!("hiods-writes-device", "14", "offline without passes", TABLE_14, TABLE_9);
const T15: &[Claim] = table!("hiods-writes-device", "15", "offline beside passes", TABLE_15, TABLE_9);
const T16: &[Claim] = table!("hiods-writes-device", "16", "offline beside passes, with a goal", TABLE_16, TABLE_9);

const MEMORY: &[Claim] = &[ours(
    "hiods-writes-memory/once",
    "beyond tables 10 to 12",
    "each content is stored once, inline at once, offline after a pass",
)];

const DEVICE: &[Claim] = &[
    ours("hiods-writes-device/once", "beyond tables 14 to 16", "each content is stored once after a pass"),
    ours("hiods-writes-device/goal", "beyond table 16", "every load gets 95 % of its goal or more"),
];

/// Makes a claim of a resource of the prototype's machine; ours would have to be measured on a machine, too.
const fn resource(id: &'static str, what: &'static str, unit: &'static str, value: f64) -> Claim {
    predicted(id, "table 8", what, unit, value, Band::Range(0.0, value))
        .of(Kind::NoWorse)
        .note("Of a machine; no figure measures one.")
}

const RESOURCES: &[Claim] = &[
    resource("hiods/cpu-none", "processor without deduplication", "%", 9.8),
    resource("hiods/cpu-memory", "processor with metadata in memory", "%", 43.7),
    resource("hiods/cpu-device", "processor with metadata on the device", "%", 42.5),
    resource("hiods/ram-none", "memory without deduplication", "GB", 4.98),
    resource("hiods/ram-memory", "memory with metadata in memory", "GB", 9.21),
    resource("hiods/ram-device", "memory with metadata on the device", "GB", 3.57),
];

const fn background(id: &'static str, source: &'static str, what: &'static str, value: f64) -> Claim {
    predicted(id, source, what, "blocks/s", value, Band::Factor(2.0))
}

const TAKEN: &str = "A cost of the model was taken from it.";

const MOUNTAIN: &[Claim] = &[
    background("hiods-mountain/phase-2-begin", "Fig. 9", "mountain: background in phase 2, at first", 1_000.0),
    background("hiods-mountain/phase-2-end", "Fig. 9", "mountain: background in phase 2, at last", 600.0),
    fitted(
        "hiods-mountain/phase-3-most",
        "Fig. 9",
        "mountain: background in phase 3, at most",
        "blocks/s",
        25_000.0,
        Band::Within(6_250.0),
    )
    .note(TAKEN),
    statement("hiods-mountain/modes", "Fig. 9", "mountain: at the end of each phase the mode is the paper's"),
    statement("hiods-mountain/burst", "Fig. 9", "mountain: the background bursts when the mode becomes inline"),
];

const VALLEY: &[Claim] = &[
    fitted(
        "hiods-valley/phase-1-begin",
        "Fig. 10",
        "valley: background in phase 1, at first",
        "blocks/s",
        7_500.0,
        Band::Factor(2.0),
    )
    .note(TAKEN),
    background("hiods-valley/phase-1-end", "Fig. 10", "valley: background in phase 1, at last", 5_000.0),
    background("hiods-valley/phase-3-end", "Fig. 10", "valley: background in phase 3, at last", 450.0),
    statement("hiods-valley/modes", "Fig. 10", "valley: at the end of each phase the mode is the paper's"),
    statement("hiods-valley/burst", "Fig. 10", "valley: the background bursts when the mode becomes inline"),
];

const ASCENDING: &[Claim] = &[
    background(
        "hiods-ascending/phase-2-mean",
        "Fig. 11",
        "ascending stairs: background in phase 2, on average",
        1_500.0,
    ),
    background("hiods-ascending/phase-3-end", "Fig. 11", "ascending stairs: background in phase 3, at last", 450.0),
    statement("hiods-ascending/modes", "Fig. 11", "ascending stairs: at the end of each phase the mode is the paper's"),
    statement(
        "hiods-ascending/burst",
        "Fig. 11",
        "ascending stairs: the background bursts when the mode becomes inline",
    ),
];

const DESCENDING: &[Claim] = &[
    background(
        "hiods-descending/phase-1-begin",
        "Fig. 12",
        "descending stairs: background in phase 1, at first",
        5_000.0,
    ),
    background("hiods-descending/phase-1-end", "Fig. 12", "descending stairs: background in phase 1, at last", 3_500.0),
    background(
        "hiods-descending/phase-2-mean",
        "Fig. 12",
        "descending stairs: background in phase 2, on average",
        3_750.0,
    ),
    statement(
        "hiods-descending/modes",
        "Fig. 12",
        "descending stairs: at the end of each phase the mode is the paper's",
    ),
    statement(
        "hiods-descending/burst",
        "Fig. 12",
        "descending stairs: the background bursts when the mode becomes inline",
    ),
];

/// Claims of ours about one experiment, on the paper's costs or on ours.
macro_rules! experiment {
    ($figure:literal, $what:literal) => {
        &[
            ours(
                concat!($figure, "/avoidable"),
                "beyond section 5.4",
                concat!($what, ": ours misses the goal avoidably for, at most"),
            )
            .within("s", 0.0, 30.0),
            ours(
                concat!($figure, "/lowers"),
                "beyond section 5.4",
                concat!($what, ": changes to inline of ours that lower the foreground by 5 %"),
            )
            .within("changes", 0.0, 0.0),
            ours(
                concat!($figure, "/ends"),
                "beyond section 5.4",
                concat!($what, ": ours ends inline with nothing pending"),
            ),
        ]
    };
}

const OF_OURS: [&[Claim]; 8] = [
    experiment!("hiods-mountain", "mountain"),
    experiment!("hiods-valley", "valley"),
    experiment!("hiods-ascending", "ascending stairs"),
    experiment!("hiods-descending", "descending stairs"),
    experiment!("hiods-mountain-ours", "mountain on our costs"),
    experiment!("hiods-valley-ours", "valley on our costs"),
    experiment!("hiods-ascending-ours", "ascending stairs on our costs"),
    experiment!("hiods-descending-ours", "descending stairs on our costs"),
];

const fn steady(id: &'static str, what: &'static str) -> Claim {
    ours(id, "beyond Fig. 10", what).within("times", 0.95, 1.05)
}

const BEYOND: &[Claim] = &[
    steady("hiods-valley/steady", "valley: requests a second of ours in the last phase, of the first"),
    steady("hiods-valley/steady-possible", "valley: the same as parts of what offline alone could do"),
    steady(
        "hiods-valley-ours/steady",
        "valley on our costs: requests a second of ours in the last phase, of the first",
    ),
    steady(
        "hiods-valley-ours/steady-possible",
        "valley on our costs: the same as parts of what offline alone could do",
    ),
    ours(
        "hiods-mountain-ours/inline",
        "beyond Fig. 9",
        "mountain on our costs: at the paper's rates ours never leaves inline",
    ),
    ours(
        "hiods-valley-ours/inline",
        "beyond Fig. 10",
        "valley on our costs: at the paper's rates ours never leaves inline",
    ),
    ours(
        "hiods-ascending-ours/inline",
        "beyond Fig. 11",
        "ascending stairs on our costs: at the paper's rates ours never leaves inline",
    ),
    ours(
        "hiods-descending-ours/inline",
        "beyond Fig. 12",
        "descending stairs on our costs: at the paper's rates ours never leaves inline",
    ),
    ours(
        "hiods-engine/missed",
        "beyond Fig. 9 to 12",
        "through the engine, in each of the four, ours misses the goal for, at most",
    )
    .within("s", 0.0, 30.0),
    ours(
        "hiods-engine/ends",
        "beyond Fig. 9 to 12",
        "through the engine, ours ends inline and stores each content once",
    ),
    ours(
        "hiods-controller/avoidable",
        "beyond section 5.4",
        "at every rate, ours misses a reachable goal for 30 s at most; for 0 s where inline can do it",
    ),
    ours(
        "hiods-controller/space",
        "beyond section 5.4",
        "at every rate, ours takes no more extra space than the preset",
    ),
];
