//! `onefold estimate`: the saving that a pool would have on files, block devices and directories, for each policy and size of writes.
//!
//! Everything is read once, with the digest that new pools use; nothing is written, and no pool is needed. The model: each file is written from its beginning
//! to its end, one after the other, into an empty pool, in requests of one size at multiples of it. Then it is read back in reads of 128 KiB. A request wholly
//! in holes is not written. The index knows everything.
//!
//! - `inputs`: the inputs, and reading them in windows of 1 MiB.
//! - `model`: a pool's work on the blocks of a window: decided by the engine's policies, carried out as the engine does.
//! - `sample`: records in bounded memory, and intervals of confidence.
//! - `compression`: the saving by compression of cold containers, on a sample.
//! - `report`: the printed result.
//!
//! If memory has space for all blocks even without duplicates, contents get numbers as they are read. Then each policy is simulated with each size of requests,
//! with slots and index of its own: the result is exact ([`Run::exact`]). Else ([`Run::sampled`]) half of the memory counts contents by a sample of digests,
//! and half holds segments of the data, chosen at random. These are read first, then everything is read. That shows which blocks of the segments occur before,
//! and where each content comes first. Their requests are decided by that: whether a block is known is exact, but slots are taken to be in the order of the
//! data. docs/guide/sizing.md explains the effect on the figures.

mod compression;
mod inputs;
mod model;
mod report;
mod sample;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use engine::geometry::{BLOCK_SIZE, PIECE_SIZE};
use engine::{BlockContent, Policy};
use signal_hook::consts::SIGINT;

use crate::commands::cli::EstimateArgs;
use crate::io::digest::{DEFAULT, Digester};
use crate::print::complain;
use crate::progress::Progress;
use crate::size;
use compression::Compression;
use inputs::{Inputs, Unreadable, Walk, Window};
use model::{Model, Positions, Simulated, Tally};
use report::{Estimate, Row, Sampling};
use sample::{Block, Distinct, Figure, Recorded, choose, fits, part, ratio, segment_windows, share};

const BLOCK: usize = BLOCK_SIZE as usize;
/// Blocks of a window: the longest request that a policy sees.
const WINDOW_BLOCKS: usize = (PIECE_SIZE / BLOCK_SIZE) as usize;
const POLICIES: [Policy; 4] = [Policy::Native, Policy::Full, Policy::SELECT, Policy::IDEDUP];
const REQUEST_SIZES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const NOTHING_YET: &str = "interrupted before anything could be estimated";
const LEAST_MEMORY: u64 = 1 << 20;
/// The key of the digests: any, and always the same, so that a sample is the same each time.
const KEY: [u8; 32] = *b"onefold estimate: a fixed key...";

/// Reads the name of a policy.
pub fn parse_policy(text: &str) -> Result<Policy, String> {
    text.parse::<Policy>().map_err(|error| format!("'{text}' is not a policy: {error}"))
}

/// Reads the size of requests.
pub fn parse_request_size(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    let fits = bytes.is_power_of_two() && (u64::from(BLOCK_SIZE)..=u64::from(PIECE_SIZE)).contains(&bytes);
    let problem = "the size of writes is a power of two from 4K to 1M (a pool takes longer ones in pieces of 1M)";
    if fits { Ok(bytes) } else { Err(problem.into()) }
}

/// Reads how much memory there is.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    if bytes < LEAST_MEMORY { Err("it takes 1M at least".into()) } else { Ok(bytes) }
}

/// Estimates and reports; true if everything was read to its end, except unreadable files.
pub fn estimate(arguments: &EstimateArgs) -> anyhow::Result<bool> {
    let stop = Arc::new(AtomicBool::new(false));
    // The first signal ends the reading, the second one the process; so the handler that ends the process must be first.
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&stop)).context("cannot catch signals")?;
    signal_hook::flag::register(SIGINT, Arc::clone(&stop)).context("cannot catch signals")?;
    let estimate = run(arguments, &stop)?;
    let rows = arguments.all || !arguments.policy.is_empty() || !arguments.request_size.is_empty();
    report::show(&estimate, arguments.json, rows);
    Ok(!estimate.interrupted)
}

fn run(arguments: &EstimateArgs, stop: &AtomicBool) -> anyhow::Result<Estimate> {
    let memory = arguments.memory;
    let walk = Walk {
        cross_mounts: arguments.cross_mounts,
        segment_windows: segment_windows(memory / 2),
        as_bytes: arguments.format.is_some(),
        allow: &arguments.allow,
        stop,
    };
    let mut inputs = walk.find(&arguments.paths)?;
    inputs.notes.iter().for_each(|note| complain(format_args!("{note}")));
    let unreadable = std::mem::take(&mut inputs.unreadable);
    unreadable.iter().for_each(|failed| complain(format_args!("cannot read {}: {}", failed.path, failed.error)));
    let combinations = combinations(&arguments.policy, &arguments.request_size);
    let digester = Digester::with_key(DEFAULT, KEY);
    let mut run = Run {
        inputs: &inputs,
        combinations,
        digester,
        stop,
        unreadable,
        interrupted: false,
        seen: Seen::default(),
        compression: Compression::new(inputs.blocks()),
    };
    let mut estimate = if fits(inputs.blocks(), inputs.windows(), memory) {
        run.exact()?
    } else {
        run.sampled(memory, walk.segment_windows)?
    };
    estimate.interrupted = run.interrupted;
    estimate.set_images(inputs.images);
    estimate.set_compression(run.compression.result());
    estimate.set_unreadable(run.unreadable);
    Ok(estimate)
}

/// Combines each policy with each size, in order and once; an empty list stands for the usual ones.
fn combinations(policies: &[Policy], sizes: &[u64]) -> Vec<(Policy, u64)> {
    let policies = if policies.is_empty() { &POLICIES[..] } else { policies };
    let sizes = if sizes.is_empty() { &REQUEST_SIZES[..] } else { sizes };
    let mut combinations = Vec::new();
    for &policy in policies {
        for &size in sizes {
            if !combinations.contains(&(policy, size)) {
                combinations.push((policy, size));
            }
        }
    }
    combinations
}

/// Counts made while reading.
#[derive(Clone, Default)]
struct Seen {
    bytes: u64,
    payload_blocks: u64,
    zero_blocks: u64,
    /// Requests with any block that is no hole, if the input is cut into requests of 1, 2, 4 ... 256 blocks.
    requests: [u64; 9],
}

impl Seen {
    fn add(&mut self, blocks: &[Block], bytes: u64) {
        self.bytes += bytes;
        for block in blocks {
            match block {
                Block::Hole => {}
                Block::Zero => self.zero_blocks += 1,
                Block::Content(_) => self.payload_blocks += 1,
            }
        }
        for (power, requests) in self.requests.iter_mut().enumerate() {
            let holds_data = |request: &&[Block]| request.iter().any(|block| *block != Block::Hole);
            *requests += blocks.chunks(1 << power).filter(holds_data).count() as u64;
        }
    }

    fn requests_of(&self, request_bytes: u64) -> u64 {
        self.requests[(request_bytes / BLOCK as u64).ilog2() as usize]
    }
}

fn look_at(digester: &Digester, bytes: &[u8]) -> Block {
    let BlockContent { digest, zero, .. } = digester.content(bytes);
    if zero { Block::Zero } else { Block::Content(digest) }
}

/// One estimate.
struct Run<'a> {
    inputs: &'a Inputs,
    combinations: Vec<(Policy, u64)>,
    digester: Digester,
    stop: &'a AtomicBool,
    unreadable: Vec<Unreadable>,
    /// A signal came before all was read.
    interrupted: bool,
    seen: Seen,
    compression: Compression,
}

impl Run<'_> {
    /// Reads the windows for which `wanted` says so, in order, until the end or a signal. A file that fails is named,
    /// and the next one is read.
    fn read(
        &mut self,
        progress: &mut Progress,
        wanted: &dyn Fn(u64) -> bool,
        visit: &mut dyn FnMut(&Window<'_>, &[Block]),
    ) {
        let mut blocks = Vec::with_capacity(WINDOW_BLOCKS);
        let (digester, stop) = (&self.digester, self.stop);
        for file in &self.inputs.files {
            if stop.load(Ordering::Relaxed) {
                self.interrupted = true;
                return;
            }
            let result = file.read(wanted, &mut |window: Window<'_>| {
                blocks.clear();
                let parts = window.bytes.chunks_exact(BLOCK).zip(window.present);
                blocks.extend(
                    parts.map(|(bytes, &present)| if present { look_at(digester, bytes) } else { Block::Hole }),
                );
                visit(&window, &blocks);
                progress.add(window.data_bytes);
                !stop.load(Ordering::Relaxed)
            });
            self.interrupted |= stop.load(Ordering::Relaxed);
            if let Err(error) = result {
                progress.finish();
                complain(format_args!("cannot read {}: {error}; what comes before is estimated", file.path.display()));
                self.unreadable.push(Unreadable::new(&file.path, &error));
            }
        }
    }

    /// Notes everything in memory, and simulates it for each policy and size.
    ///
    /// # Errors
    /// If it is interrupted before anything was read.
    fn exact(&mut self) -> anyhow::Result<Estimate> {
        let mut recorded = Recorded::new(self.inputs.blocks(), self.inputs.windows());
        let mut seen = Seen::default();
        let mut progress = Progress::new("reading", self.inputs.data_bytes);
        let mut compression = std::mem::take(&mut self.compression);
        self.read(&mut progress, &|_| true, &mut |window, blocks| {
            seen.add(blocks, window.data_bytes);
            recorded.add(window.number, blocks);
            compression.add(window.bytes, blocks);
        });
        drop(progress);
        self.compression = compression;
        if seen.bytes == 0 && self.interrupted {
            bail!(NOTHING_YET);
        }
        self.seen = seen;
        recorded.forget_digests();
        let mut progress = self.simulating(&recorded);
        let mut rows = Vec::new();
        for &(policy, request_bytes) in &self.combinations {
            let mut model = Model::new(policy, request_bytes as usize / BLOCK);
            let (mut slots, mut tally) = (Simulated::new(recorded.contents()), Tally::default());
            for (_, codes) in recorded.windows() {
                model.window(codes, &mut slots, &mut tally);
                progress.add((codes.len() * BLOCK) as u64);
            }
            rows.push(self.row(policy, request_bytes, &[tally], 1, None));
        }
        drop(progress);
        Ok(self.report(rows, Figure::exact(recorded.contents() as f64), None))
    }

    /// Estimates the number of contents by a sample of digests, and everything else by segments of the data.
    ///
    /// # Errors
    /// Fails if it is interrupted before any figure is known.
    fn sampled(&mut self, memory: u64, segment_windows: u64) -> anyhow::Result<Estimate> {
        let half = memory / 2;
        let chosen = choose(&self.inputs.segments, half);
        let segment_of = |window: u64| window / segment_windows;
        let is_chosen = |window: u64| chosen.binary_search(&segment_of(window)).is_ok();
        let (mut blocks, mut windows) = (0, 0);
        for segment in self.inputs.segments.iter().filter(|segment| chosen.binary_search(&segment.number).is_ok()) {
            (blocks, windows) = (blocks + segment.blocks, windows + segment.windows);
        }
        let mut recorded = Recorded::new(blocks, windows);
        let mut progress = Progress::new("reading the sample", blocks * BLOCK as u64);
        self.read(&mut progress, &is_chosen, &mut |window, blocks| recorded.add(window.number, blocks));
        drop(progress);

        let mut first = vec![u64::MAX; recorded.contents()];
        let mut starts = BTreeMap::new();
        let (mut distinct, mut seen) = (Distinct::new(half), Seen::default());
        let mut progress = Progress::new("reading", self.inputs.data_bytes);
        let mut compression = std::mem::take(&mut self.compression);
        self.read(&mut progress, &|_| true, &mut |window, blocks| {
            let mut position = seen.payload_blocks;
            if is_chosen(window.number) {
                starts.insert(window.number, position);
            }
            compression.add(window.bytes, blocks);
            for block in blocks {
                let Block::Content(digest) = block else { continue };
                distinct.add(*digest);
                if let Some(content) = recorded.number_of(digest) {
                    let first = &mut first[content as usize];
                    *first = position.min(*first);
                }
                position += 1;
            }
            seen.add(blocks, window.data_bytes);
        });
        drop(progress);
        (self.seen, self.compression) = (seen, compression);
        recorded.forget_digests();

        let mut progress = self.simulating(&recorded);
        let (mut rows, mut sampled) = (Vec::new(), 0);
        for &(policy, request_bytes) in &self.combinations {
            let mut model = Model::new(policy, request_bytes as usize / BLOCK);
            let (mut slots, mut tallies) = (Positions::new(&first), BTreeMap::<u64, Tally>::new());
            for (number, codes) in recorded.windows() {
                progress.add((codes.len() * BLOCK) as u64);
                // An unread window has no known start.
                let Some(&start) = starts.get(&number) else { continue };
                slots.next = start;
                model.window(codes, &mut slots, tallies.entry(segment_of(number)).or_default());
            }
            let tallies: Vec<Tally> = tallies.into_values().collect();
            if tallies.len() < 2 {
                bail!(NOTHING_YET);
            }
            sampled = tallies.len() as u64;
            let contents = (policy == Policy::Full).then(|| distinct.figure());
            rows.push(self.row(policy, request_bytes, &tallies, self.inputs.segments.len() as u64, contents));
        }
        drop(progress);
        let sampling = Sampling {
            one_content_in: distinct.one_in(),
            segments_sampled: sampled,
            segments: self.inputs.segments.len() as u64,
            sampled_blocks: recorded.blocks(),
        };
        Ok(self.report(rows, distinct.figure(), Some(sampling)))
    }

    fn simulating(&self, recorded: &Recorded) -> Progress {
        Progress::new("simulating", recorded.blocks() * BLOCK as u64 * self.combinations.len() as u64)
    }

    /// Makes a row from the counts of the sampled segments, of `segments` in all; `contents` is the number that `full` stores, if it is known better from
    /// elsewhere.
    fn row(
        &self,
        policy: Policy,
        request_bytes: u64,
        tallies: &[Tally],
        segments: u64,
        contents: Option<Figure>,
    ) -> Row {
        let pairs = |pair: &dyn Fn(&Tally) -> (u64, u64)| tallies.iter().map(pair).collect::<Vec<_>>();
        let (payload, requests) = (self.seen.payload_blocks, self.seen.requests_of(request_bytes));
        // Requests of a kind that the policy never makes are not estimated.
        let of_requests = |may_be: bool, count: &dyn Fn(&Tally) -> u64| {
            let counts = pairs(&|tally: &Tally| (count(tally), tally.requests));
            if may_be { part(&counts, segments, requests) } else { Figure::exact(0.0) }
        };
        let removed = |tally: &Tally| (tally.removed_blocks, tally.written_blocks + tally.removed_blocks);
        let removed_blocks = match contents {
            Some(contents) => contents.taken_from(payload as f64),
            None if policy.shares() => part(&pairs(&removed), segments, payload),
            None => Figure::exact(0.0),
        };
        Row {
            policy: policy.to_string(),
            request_bytes,
            requests,
            categories: [0, 1, 2, 3]
                .map(|category: usize| of_requests(policy.looks_up(), &|tally: &Tally| tally.categories[category])),
            written_blocks: removed_blocks.taken_from(payload as f64),
            removed_blocks,
            removed_requests: of_requests(policy.shares(), &|tally: &Tally| tally.removed_requests),
            device_reads_per_read: ratio(&pairs(&|tally: &Tally| (tally.device_reads, tally.reads)), segments),
            split_reads_percent: share(&pairs(&|tally: &Tally| (tally.split_reads, tally.reads)), segments)
                .times(100.0),
        }
    }

    fn report(&self, rows: Vec<Row>, contents: Figure, sampling: Option<Sampling>) -> Estimate {
        let Seen { bytes, payload_blocks, zero_blocks, .. } = self.seen;
        let files = self.inputs.files.len() as u64;
        Estimate::new(rows, files, [bytes, self.inputs.data_bytes], [payload_blocks, zero_blocks], contents, sampling)
    }
}
