//! Parameters of the three profiles. Each is of POD's table 3 [P3], HPDedup [HP], the slides of I/O Deduplication [IO], the real samples [C], or chosen here
//! [D]. A parameter that was moved until a target was met names that target.

use clap::ValueEnum;

use super::draws::Pareto;

/// Real trace that a made trace stands in for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Profile {
    /// Two web servers in virtual machines.
    WebVm,
    /// A file server of home directories.
    Homes,
    /// A mail server.
    Mail,
}

impl Profile {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::WebVm => "web-vm",
            Profile::Homes => "homes",
            Profile::Mail => "mail",
        }
    }

    pub(super) fn shape(self) -> &'static Shape {
        match self {
            Profile::WebVm => &WEB_VM,
            Profile::Homes => &HOMES,
            Profile::Mail => &MAIL,
        }
    }
}

/// Size distribution of requests of one kind: sizes in blocks with their weights. The rest has a long tail, as much of it as the mean needs.
pub(super) struct Sizes {
    pub(super) mix: &'static [(u32, f64)],
    pub(super) tail: Pareto,
    pub(super) mean: f64,
}

/// State of the disk before day 1.
pub(super) struct Image {
    /// Blocks of the disk.
    pub(super) pages: u64,
    /// Share of zero pages.
    pub(super) zero: f64,
    /// Share of pages that have about four copies.
    pub(super) shared: f64,
    /// Share of the second half of the disk, another machine, that is like the first half.
    pub(super) twin: f64,
    /// Pages by distinct contents: the target.
    pub(super) similarity: f64,
}

/// Arrivals of a real sample.
pub(super) struct Sample {
    pub(super) burst_p90: f64,
    pub(super) burst_most: f64,
    pub(super) dispersion: f64,
    pub(super) record_variation: f64,
}

/// Totals of three weeks of the trace, as CacheDedup publishes them (REFERENCE, part 2; not verified). Gigabytes of 10^9 bytes.
pub(super) struct ThreeWeeks {
    /// Bytes of all requests.
    pub(super) total_gb: f64,
    /// Bytes of distinct contents: the target for the made days.
    pub(super) unique_gb: f64,
    /// Bytes written for each byte read.
    pub(super) writes_by_reads: f64,
}

/// All that a day is drawn from.
pub(super) struct Shape {
    /// A day's, [P3].
    pub(super) requests: u64,
    pub(super) write_ratio: f64,
    pub(super) mean_kib: f64,
    pub(super) write_sizes: Sizes,
    pub(super) read_sizes: Sizes,
    /// Share of writes of 1, 2 to 8, and more blocks that are redundant as a whole. (Moved until the duplicate share was met; for mail also the requests that
    /// Select-Dedupe removes.)
    pub(super) whole: [f64; 3],
    /// Share of the same writes that are redundant in parts: runs of known blocks, with new ones between, of these mean lengths.
    pub(super) parts: [f64; 3],
    pub(super) run: f64,
    pub(super) gap: f64,
    /// Share of the wholly redundant writes that leave their blocks unchanged; moved until that share was met.
    pub(super) same: f64,
    /// Share of zeroes among redundant one-block writes to other places. [C]
    pub(super) zeroes: f64,
    /// Number of writes of about the same size since the content was written: median and 90th percentile. Wider than the samples', which
    /// are short. [D]
    pub(super) distance: (f64, f64),
    /// Targets: the duplicate share of write blocks, [HP]; the part of it that leaves its block unchanged; and the requests that Select-Dedupe removes, if POD
    /// gives them.
    pub(super) duplicates: f64,
    pub(super) unchanged: f64,
    pub(super) removed: Option<f64>,
    /// Shares of new writes by place: the journal, the end of a file that grows, a hot place; the rest anywhere. [D]
    pub(super) journal: f64,
    pub(super) sequential: f64,
    pub(super) hot: f64,
    /// Blocks of the addresses, [C]; of them the journal's, and how many places are hot.
    pub(super) span: u64,
    pub(super) hot_places: u64,
    /// Requests of a burst that is not long: median, 90th percentile; moved until all bursts are as in the sample.
    pub(super) burst: (f64, f64),
    /// Share of long bursts, with their smallest and greatest number of requests; moved until all bursts are as in the sample.
    pub(super) long: (f64, f64, f64),
    /// Seconds between bursts: median, 90th percentile. [C]
    pub(super) idle: (f64, f64),
    /// Microseconds from record to record of a request. [C]
    pub(super) record_gap_us: u64,
    pub(super) image: Image,
    pub(super) weeks: ThreeWeeks,
    /// Arrivals of its real sample, of seconds or minutes, for comparison. [C]
    pub(super) sample: Sample,
}

impl Shape {
    /// Returns the requests of a working day, and the share of writes among them: a 21st part of three weeks, in requests of the sizes of
    /// day 15.
    pub(super) fn working_day(&self) -> (u64, f64) {
        let ThreeWeeks { total_gb, writes_by_reads, .. } = self.weeks;
        let blocks = total_gb * 1e9 / 21.0 / 4096.0;
        let writes = blocks * writes_by_reads / (1.0 + writes_by_reads) / self.write_sizes.mean;
        let reads = blocks / (1.0 + writes_by_reads) / self.read_sizes.mean;
        ((writes + reads) as u64, writes / (writes + reads))
    }
}

/// The journal of ext3: 128 MiB. [D]
pub(super) const JOURNAL: u64 = 32_768;

const fn tail(low: f64, high: f64) -> Pareto {
    Pareto { low, high, exponent: 1.1 }
}

static WEB_VM: Shape = Shape {
    requests: 154_105,
    write_ratio: 0.698,
    mean_kib: 14.8,
    write_sizes: Sizes {
        mix: &[(1, 0.56), (2, 0.09), (3, 0.04), (5, 0.04), (6, 0.03), (7, 0.03), (9, 0.04)],
        tail: tail(10.0, 64.0),
        mean: 3.7,
    },
    // Its sample has no reads to speak of: as its writes. [D]
    read_sizes: Sizes {
        mix: &[(1, 0.56), (2, 0.09), (3, 0.04), (5, 0.04), (6, 0.03), (7, 0.03), (9, 0.04)],
        tail: tail(10.0, 64.0),
        mean: 3.7,
    },
    whole: [0.55, 0.47, 0.395],
    parts: [0.0, 0.20, 0.32],
    run: 2.5,
    gap: 2.0,
    same: 0.485,
    zeroes: 0.03,
    distance: (40.0, 4_000.0),
    duplicates: 0.550,
    unchanged: 0.205,
    removed: None,
    journal: 0.35,
    sequential: 0.15,
    hot: 0.35,
    span: 4_613_734,
    hot_places: 4_096,
    burst: (2.0, 7.0),
    long: (0.0, 0.0, 0.0),
    idle: (5.0, 11.8),
    record_gap_us: 35,
    image: Image { pages: 5_242_866, zero: 0.2338, shared: 0.1663, twin: 0.819, similarity: 2.67 },
    weeks: ThreeWeeks { total_gb: 54.5, unique_gb: 23.4, writes_by_reads: 3.6 },
    sample: Sample { burst_p90: 7.0, burst_most: 18.0, dispersion: 7.0, record_variation: 5.1 },
};

static HOMES: Shape = Shape {
    requests: 64_819,
    write_ratio: 0.805,
    mean_kib: 13.1,
    write_sizes: Sizes { mix: &[(1, 0.75), (2, 0.10), (3, 0.07), (4, 0.03)], tail: tail(5.0, 128.0), mean: 3.275 },
    // Its sample has no reads: as its writes. [D]
    read_sizes: Sizes { mix: &[(1, 0.75), (2, 0.10), (3, 0.07), (4, 0.03)], tail: tail(5.0, 128.0), mean: 3.275 },
    whole: [0.32, 0.30, 0.12],
    parts: [0.0, 0.15, 0.32],
    run: 2.5,
    gap: 2.5,
    same: 0.56,
    zeroes: 0.03,
    distance: (15.0, 3_000.0),
    duplicates: 0.305,
    unchanged: 0.1135,
    removed: None,
    journal: 0.40,
    sequential: 0.15,
    hot: 0.25,
    span: 116_129_792,
    hot_places: 8_192,
    burst: (2.0, 13.0),
    long: (0.0, 0.0, 0.0),
    idle: (5.4, 29.7),
    record_gap_us: 65,
    image: Image { pages: 183_000_000, zero: 0.30, shared: 0.4769, twin: 0.0, similarity: 2.94 },
    weeks: ThreeWeeks { total_gb: 67.3, unique_gb: 44.4, writes_by_reads: 31.5 },
    sample: Sample { burst_p90: 13.0, burst_most: 141.0, dispersion: 55.0, record_variation: 6.1 },
};

static MAIL: Shape = Shape {
    requests: 328_145,
    write_ratio: 0.785,
    mean_kib: 40.8,
    // The means of writes and reads are in the proportion that they have in the sample. [D]
    write_sizes: Sizes {
        mix: &[(1, 0.59), (2, 0.08), (3, 0.17), (4, 0.08), (6, 0.03), (8, 0.03)],
        tail: tail(9.0, 256.0),
        mean: 7.31,
    },
    read_sizes: Sizes {
        mix: &[(1, 0.20), (2, 0.42), (10, 0.19), (20, 0.05), (30, 0.04)],
        tail: tail(32.0, 256.0),
        mean: 20.7,
    },
    whole: [0.76, 0.70, 0.66],
    parts: [0.0, 0.28, 0.335],
    run: 20.0,
    gap: 1.1,
    same: 0.515,
    zeroes: 0.08,
    distance: (8.0, 8_000.0),
    duplicates: 0.910,
    unchanged: 0.339,
    removed: Some(0.707),
    journal: 0.35,
    sequential: 0.15,
    hot: 0.30,
    span: 72_613_888,
    hot_places: 16_384,
    burst: (1.0, 3.5),
    long: (0.06, 20.0, 1500.0),
    idle: (0.18, 0.5),
    record_gap_us: 38,
    image: Image { pages: 73_000_000, zero: 0.30, shared: 0.4257, twin: 0.0, similarity: 2.64 },
    weeks: ThreeWeeks { total_gb: 1741.0, unique_gb: 171.3, writes_by_reads: 8.1 },
    sample: Sample { burst_p90: 5.0, burst_most: 622.0, dispersion: 250.0, record_variation: 11.4 },
};
