//! Report of an estimate: text for people, with a table on request, or JSON with all figures.

use serde::Serialize;

use super::BLOCK;
use super::compression::CompressionResult;
use super::inputs::Unreadable;
use super::sample::Figure;
use crate::print::{print, print_json};
use crate::{size, status};

/// Bytes of an entry of the index.
const INDEX_ENTRY: f64 = 16.0;
/// Memory for the index where it is bounded: 0.4 GB for each TB of data.
const BOUNDED_INDEX: f64 = 0.0004;
/// Unreadable files that the JSON lists; all are counted.
const LISTED_MAX: usize = 1000;
/// The policy of a new volume, and the size of writes that the answer is given for.
const USUAL: (&str, u64) = ("select", 64 << 10);
/// Points of a hundred by which another policy has to save more before the answer names it.
const WORTH_A_WORD: f64 = 1.0;

/// Figures about the sample of the data.
#[derive(Serialize, Clone, Debug)]
pub struct Sampling {
    /// N, if one content in N is counted.
    pub one_content_in: u64,
    /// Number of segments that were sampled; everything but contents is estimated by them.
    pub segments_sampled: u64,
    /// Number of segments that the data has.
    pub segments: u64,
    /// Number of blocks in the sampled segments.
    pub sampled_blocks: u64,
}

/// One policy with one size of writes.
#[derive(Serialize, Clone, Debug)]
pub struct Row {
    pub policy: String,
    pub request_bytes: u64,
    pub requests: u64,
    #[serde(serialize_with = "named_categories")]
    pub categories: [Figure; 4],
    pub written_blocks: Figure,
    pub removed_blocks: Figure,
    pub removed_requests: Figure,
    pub device_reads_per_read: Figure,
    pub split_reads_percent: Figure,
}

/// Serializes the categories by name, as in the status of a pool.
fn named_categories<S: serde::Serializer>(categories: &[Figure; 4], serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap;
    let mut map = serializer.serialize_map(Some(4))?;
    for (name, figure) in ["unknown", "sequential", "scattered", "partial"].iter().zip(categories) {
        map.serialize_entry(name, figure)?;
    }
    map.end()
}

/// Memory of the index.
#[derive(Serialize, Clone, Debug)]
pub struct IndexMemory {
    /// Bytes of an index of every content.
    all_bytes: Figure,
    /// Bytes of an index of 0.4 GB for each TB of data.
    bounded_bytes: f64,
    /// The contents that it then has space for.
    bounded_percent: f64,
}

/// The whole result.
#[derive(Serialize, Clone, Debug)]
pub struct Estimate {
    version: u32,
    pub exact: bool,
    /// True if only part was read: the figures are of that part.
    pub interrupted: bool,
    confidence_percent: u32,
    files: u64,
    read_bytes: u64,
    total_bytes: u64,
    pub payload_blocks: u64,
    pub zero_blocks: u64,
    pub distinct_blocks: Figure,
    index: IndexMemory,
    sampling: Option<Sampling>,
    /// Images that were read as a guest sees them.
    images: u64,
    /// Measured saving from compression of cold containers; `None` if the data fills no container.
    compression: Option<CompressionResult>,
    unreadable_count: u64,
    #[serde(serialize_with = "first_ones")]
    pub unreadable: Vec<Unreadable>,
    pub estimates: Vec<Row>,
}

fn first_ones<S: serde::Serializer>(unreadable: &[Unreadable], serializer: S) -> Result<S::Ok, S::Error> {
    unreadable[..unreadable.len().min(LISTED_MAX)].serialize(serializer)
}

impl Estimate {
    /// Creates the result from the counts. `bytes`: read, and all; `blocks`: with payload, and of zeroes.
    pub fn new(
        estimates: Vec<Row>,
        files: u64,
        [read_bytes, total_bytes]: [u64; 2],
        [payload_blocks, zero_blocks]: [u64; 2],
        contents: Figure,
        sampling: Option<Sampling>,
    ) -> Estimate {
        let bounded_bytes = (payload_blocks * BLOCK as u64) as f64 * BOUNDED_INDEX;
        let all_bytes = contents.times(INDEX_ENTRY);
        let index = IndexMemory {
            all_bytes,
            bounded_bytes,
            bounded_percent: (bounded_bytes / all_bytes.value.max(INDEX_ENTRY) * 100.0).min(100.0),
        };
        Estimate {
            version: status::VERSION,
            exact: sampling.is_none(),
            interrupted: false,
            confidence_percent: 95,
            files,
            read_bytes,
            total_bytes,
            payload_blocks,
            zero_blocks,
            distinct_blocks: contents,
            index,
            sampling,
            images: 0,
            compression: None,
            unreadable_count: 0,
            unreadable: Vec::new(),
            estimates,
        }
    }

    /// Sets the number of images that were read as a guest sees them.
    pub fn set_images(&mut self, images: u64) {
        self.images = images;
    }

    /// Sets the result of the measured compression.
    pub fn set_compression(&mut self, compression: Option<CompressionResult>) {
        self.compression = compression;
    }

    /// Sets the paths that could not be read, and their number.
    pub fn set_unreadable(&mut self, unreadable: Vec<Unreadable>) {
        self.unreadable_count = unreadable.len() as u64;
        self.unreadable = unreadable;
    }

    /// Formats the result for people; with a row for each policy and size of writes if `rows` is set.
    pub fn text(&self, rows: bool) -> String {
        let blocks = |count: u64| size::show(count.saturating_mul(BLOCK as u64));
        let mut text = format!("{}\n", self.answer());
        let mut row = |name: &str, value: String| text.push_str(&format!("  {name:<12}{value}\n"));
        let files = if self.files == 1 { "1 file".to_string() } else { format!("{} files", self.files) };
        let part =
            if self.interrupted { format!(" of {}: interrupted", size::show(self.total_bytes)) } else { String::new() };
        let images = match self.images {
            0 => String::new(),
            1 => ", 1 of them an image, read as a guest sees it".into(),
            count => format!(", {count} of them images, read as a guest sees them"),
        };
        row("read", format!("{}{part}, {files}{images}", size::show(self.read_bytes)));
        if !self.unreadable.is_empty() {
            row("unreadable", format!("{}, left out", self.unreadable.len()));
        }
        row("zeroes", format!("{:<12}never stored", blocks(self.zero_blocks)));
        row("data", blocks(self.payload_blocks));
        row("different", format!("{}, {}", bytes_text(self.distinct_blocks.times(BLOCK as f64)), self.how()));
        let IndexMemory { all_bytes, bounded_bytes, bounded_percent } = &self.index;
        let bounded = size::show(*bounded_bytes as u64);
        let all = bytes_text(*all_bytes);
        row(
            "index",
            format!("{all} to know every content; {bounded} (0.4 GB for each TB of data) know {bounded_percent:.0} %"),
        );
        if let Some(CompressionResult { container_bytes, containers, lz4_percent, zstd_percent, .. }) = self.compression
        {
            let container = size::show(container_bytes);
            row(
                "compression",
                format!(
                    "of {container} containers (sample of {containers}): lz4 {lz4_percent:.0} %, zstd {zstd_percent:.0} % of their size; not there yet"
                ),
            );
        }
        if rows {
            text.push('\n');
            text.push_str(&self.table());
        } else {
            text.push_str("  --all shows each policy with each size of writes\n");
        }
        text
    }

    /// Formats a sentence that says how much would be saved, and by which policy.
    fn answer(&self) -> String {
        let data = size::show(self.payload_blocks.saturating_mul(BLOCK as u64));
        let figure = |row: &Row| row.removed_blocks.times(100.0 / self.payload_blocks.max(1) as f64);
        let saves = |row: &Row| {
            let bytes = size::show((row.removed_blocks.value * BLOCK as f64) as u64);
            format!("{bytes} ({})", percent_text(figure(row)))
        };
        let best = |rows: &mut dyn Iterator<Item = &Row>| -> Option<Row> {
            rows.max_by(|one, other| one.removed_blocks.value.total_cmp(&other.removed_blocks.value)).cloned()
        };
        let size = match self.estimates.iter().any(|row| row.request_bytes == USUAL.1) {
            true => USUAL.1,
            false => self.estimates.first().map_or(0, |row| row.request_bytes),
        };
        let of_size = || self.estimates.iter().filter(|row| row.request_bytes == size);
        let usual = of_size().find(|row| row.policy == USUAL.0).cloned().or_else(|| best(&mut of_size()));
        let Some(usual) = usual else { return "Nothing was estimated.".into() };
        let name =
            if usual.policy == USUAL.0 { "'select' (the default)".into() } else { format!("'{}'", usual.policy) };
        let writes = size::show(size);
        let mut answer =
            format!("A pool would save {} of {data} with the policy {name}, written {writes} at a time", saves(&usual));
        if let Some(most) = best(&mut of_size())
            && figure(&most).value >= figure(&usual).value + WORTH_A_WORD
        {
            answer.push_str(&format!(", and {} with '{}'", saves(&most), most.policy));
        }
        answer.push('.');
        answer
    }

    fn how(&self) -> String {
        match &self.sampling {
            None => "exact".into(),
            Some(Sampling { one_content_in, segments_sampled, segments, .. }) => format!(
                "by one content in {one_content_in}; the rest by {segments_sampled} of {segments} segments. The intervals (±) hold the \
                 true value with 95 %"
            ),
        }
    }

    fn table(&self) -> String {
        let columns =
            ["policy", "writes of", "saves", "of data", "writes gone", "reads split", "device reads per read"];
        let mut lines = vec![columns.map(String::from)];
        let percent = |figure: Figure, whole: u64| percent_text(figure.times(100.0 / whole.max(1) as f64));
        for row in &self.estimates {
            let saved = size::show((row.removed_blocks.value * BLOCK as f64) as u64);
            let half = row.device_reads_per_read.half();
            let interval = if half > 0.0 { format!(" ± {half:.2}") } else { String::new() };
            lines.push([
                row.policy.clone(),
                size::show(row.request_bytes),
                saved,
                percent(row.removed_blocks, self.payload_blocks),
                percent(row.removed_requests, row.requests),
                percent_text(row.split_reads_percent),
                format!("{:.2}{interval}", row.device_reads_per_read.value),
            ]);
        }
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0) + 2;
        let widths: [usize; 7] = std::array::from_fn(width);
        let mut text = String::new();
        for line in &lines {
            let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
            text.push_str(&format!("  {}\n", cells.collect::<String>().trim_end()));
        }
        text
    }
}

/// Formats an estimate of bytes with half its interval.
fn bytes_text(figure: Figure) -> String {
    let value = size::show(figure.value as u64);
    if figure.half() > 0.0 { format!("{value} ± {}", size::show(figure.half() as u64)) } else { value }
}

fn percent_text(figure: Figure) -> String {
    let half = figure.half();
    if half > 0.0 { format!("{:.1} % ± {half:.1}", figure.value) } else { format!("{:.1} %", figure.value) }
}

/// Prints the result for people, or as JSON; `rows` adds the table to the former.
pub fn show(estimate: &Estimate, json: bool, rows: bool) {
    if json {
        print_json(estimate);
    } else {
        print(format_args!("{}", estimate.text(rows)));
    }
}
