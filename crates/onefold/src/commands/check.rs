//! `onefold check`: a read-only audit of an idle pool.
//!
//! The engine opens the pool as always, but its writes on the way (recovery redoes blocks and seals the journal) stay in memory, over the store. So the audit
//! sees exactly the state that opening the pool would bring back. Then the engine accounts for every structure, and every live block is read and compared with
//! its digest.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use anyhow::{Context, bail};
use engine::{
    BlockContent, BlockRange, Digest, Effect, Engine, Event, Flaw, IoError, IoId, IoOp, Limits, Medium, Nanos,
    OpenError, Outcome, Parameters, Recovered, Repair, RepairError, Segment, Superblock, plan_repair,
};
use serde::Serialize;

use crate::commands::cli::CheckArgs;
use crate::commands::error_text::explain_open;
use crate::io::arena::{Arena, BLOCK};
use crate::io::digest::Digester;
use crate::io::disk::{compare, merge};
use crate::memory::{self, TooLittle};
use crate::operators::control::{self, Found};
use crate::print::{complain, print, print_json, shown};
use crate::progress::Progress;
use crate::report::status::failure_text;
use crate::size;
use crate::store::backing::{Access, AlignedBytes, Store};
use crate::store::heads;
use crate::store::owner::{self, Purpose};

/// Memory for the engine, unless the pool needs more.
const MEMORY: u64 = 256 << 20;
/// Problems that are listed; all are counted.
const LISTED_MAX: usize = 1000;
/// Live blocks whose digests are held before they are read.
const BATCH: usize = 1 << 16;
/// The longest read of live blocks; gaps of up to [`GAP`] bytes are read over.
const RUN_BYTES: u64 = 1 << 20;
const GAP: u64 = 64 << 10;

/// Blocks of a volume.
#[derive(Serialize, Clone)]
pub struct Range {
    pub volume: String,
    pub first_block: u64,
    pub blocks: u64,
}

impl Range {
    pub fn text(&self) -> String {
        let Range { volume, first_block, blocks } = self;
        let bytes = size::show(blocks * BLOCK as u64);
        let kind = if volume.contains('@') { "snapshot" } else { "volume" };
        match blocks {
            1 => format!("{kind} {volume}: block {first_block} ({bytes})"),
            _ => format!("{kind} {volume}: blocks {first_block} to {} ({bytes})", first_block + blocks - 1),
        }
    }
}

impl From<&BlockRange> for Range {
    fn from(range: &BlockRange) -> Range {
        Range { volume: range.volume.clone(), first_block: range.first, blocks: range.blocks }
    }
}

/// Adds blocks to a list of ranges, to the last one where they follow it.
fn add_range(ranges: &mut Vec<Range>, volume: &str, first_block: u64, blocks: u64) {
    match ranges.last_mut() {
        Some(last) if last.volume == volume && last.first_block + last.blocks == first_block => last.blocks += blocks,
        _ => ranges.push(Range { volume: volume.into(), first_block, blocks }),
    }
}

#[derive(Serialize, Default)]
pub struct Findings {
    version: u32,
    clean: bool,
    pub problem_count: u64,
    pub problems: Vec<String>,
    /// Findings that do no harm, but are not as they could be.
    notes: Vec<String>,
    /// Blocks that cannot be read because of the problems.
    affected: Vec<Range>,
    reverted: Vec<Range>,
    /// Blocks that an earlier repair gave up.
    lost: Vec<Range>,
    pub blocks_checked: u64,
    records_replayed: u64,
    was_closed_cleanly: bool,
    /// Reason why the pool has failed, if it has.
    failure: Option<&'static str>,
    /// Byte offsets of blocks that do not match their digests.
    #[serde(skip)]
    rotten: BTreeSet<u64>,
}

impl Findings {
    pub fn add(&mut self, problem: String) {
        self.problem_count += 1;
        if self.problems.len() < LISTED_MAX {
            self.problems.push(problem);
        }
    }
}

/// Audits a pool; true if there is nothing to report.
pub fn check(arguments: &CheckArgs) -> anyhow::Result<bool> {
    let path = &arguments.pool;
    refuse_while_served(path, "an audit")?;
    let store = Store::open(path, Access::Read)?;
    let (superblock, _) = owner::claim(&store, Purpose::Read)?;
    let mut findings = Findings::default();
    check_superblocks(&store, &superblock, &mut findings);
    check_failure(&superblock, &mut findings);
    let mut audit = Audit::new(&superblock, Overlay::new(store))?;
    if audit.run(&mut findings)? {
        audit.blocks(&mut findings);
        audit.explain(&mut findings);
    } else {
        // The pool does not open. A planned repair finds the rest.
        let plan = audit.plan(&superblock, false);
        match plan {
            Ok(plan) => {
                plan.problems.into_iter().for_each(|problem| findings.add(problem));
                findings.affected = plan.lost.iter().map(Range::from).collect();
                findings.reverted = plan.reverted.iter().map(Range::from).collect();
            }
            Err(error) => findings.add(format!("it cannot be repaired: {error}")),
        }
    }
    findings.clean = findings.problem_count == 0;
    report(arguments, &findings);
    Ok(findings.clean)
}

pub fn refuse_while_served(path: &Path, who: &str) -> anyhow::Result<()> {
    if matches!(control::find_server_of(path), Found::Server) {
        bail!("{} is being served: stop the server first, {who} needs the pool at rest", path.display());
    }
    Ok(())
}

/// Looks at all four superblocks. One that is damaged does no harm while another is the newest: opening the pool writes it anew.
fn check_superblocks(store: &Store, newest: &Superblock, findings: &mut Findings) {
    let geometry = newest.parameters.geometry;
    for (place, parity) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let offset = geometry.superblock_block(place, parity) * BLOCK as u64;
        let is_bad = match store.read(offset, BLOCK) {
            Ok(block) => !crate::io::digest::is_zero(block.bytes()) && Superblock::decode(block.bytes()).is_err(),
            Err(_) => true,
        };
        if is_bad {
            findings.notes.push(format!(
                "the superblock at byte {offset} is damaged; another copy is good, and this one is written anew when the pool is \
                 opened"
            ));
        }
    }
}

/// Reports a failed pool as a problem: it must be repaired, also if nothing else is wrong with it.
fn check_failure(newest: &Superblock, findings: &mut Findings) {
    findings.failure = newest.failed.map(failure_text);
    if let Some(failure) = findings.failure {
        findings.add(format!(
            "the pool has failed: {failure}, in epoch {}. It is read-only since then; the log of the server has the time and the error",
            newest.epoch
        ));
    }
}

fn report(arguments: &CheckArgs, findings: &Findings) {
    if arguments.json {
        return print_json(findings);
    }
    for problem in &findings.problems {
        print(format_args!("{problem}\n"));
    }
    for note in &findings.notes {
        print(format_args!("note: {note}\n"));
    }
    let path = shown(&arguments.pool);
    let more = findings.problem_count - findings.problems.len() as u64;
    if more > 0 {
        print(format_args!("and {more} more\n"));
    }
    for (ranges, what) in [
        (&findings.affected, "cannot be read"),
        (&findings.reverted, "have lost changes with the journal: a repair leaves them as they were before"),
        (&findings.lost, "lost: an earlier repair gave them up, reading them fails until they are written again"),
    ] {
        for range in ranges.iter().take(LISTED_MAX) {
            print(format_args!("{}: {what}\n", range.text()));
        }
        if ranges.len() > LISTED_MAX {
            print(format_args!("and {} more ranges of blocks\n", ranges.len() - LISTED_MAX));
        }
    }
    let closed =
        if findings.was_closed_cleanly { "closed cleanly" } else { "not closed cleanly; recovery would succeed" };
    let checked = size::show(findings.blocks_checked * BLOCK as u64);
    match (findings.problem_count, findings.failure) {
        (0, _) => print(format_args!("{path}: clean; {checked} of data match their digests ({closed})\n")),
        (1, Some(_)) => print(format_args!(
            "{path}: nothing but that is wrong; {checked} of data match their digests. See that the disk is sound, then let a repair \
             lift the failure: onefold repair {path} --dry-run says what it would do\n"
        )),
        (1, None) => print(format_args!("{path}: 1 problem. A repair would do: onefold repair {path} --dry-run\n")),
        (count, _) => {
            print(format_args!("{path}: {count} problems. A repair would do: onefold repair {path} --dry-run\n"))
        }
    }
}

/// A store with an overlay of writes in memory.
pub struct Overlay {
    pub store: Store,
    blocks: HashMap<u64, Box<[u8]>>,
    forgets: bool,
}

impl Overlay {
    pub fn new(store: Store) -> Overlay {
        Overlay { store, blocks: HashMap::new(), forgets: false }
    }

    /// Creates an overlay that does not keep writes, for a caller that opens a pool and reads none of its writes.
    pub fn that_forgets(store: Store) -> Overlay {
        Overlay { forgets: true, ..Overlay::new(store) }
    }

    /// Reads any range.
    pub fn read(&self, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
        let first = offset / BLOCK as u64;
        let end = (offset + length as u64).div_ceil(BLOCK as u64);
        let mut bytes = self.store.read(first * BLOCK as u64, (end - first) as usize * BLOCK)?;
        if !self.blocks.is_empty() {
            for (number, block) in (first..end).zip(bytes.bytes_mut().chunks_exact_mut(BLOCK)) {
                if let Some(written) = self.blocks.get(&number) {
                    block.copy_from_slice(written);
                }
            }
        }
        let start = (offset - first * BLOCK as u64) as usize;
        Ok(bytes.bytes()[start..start + length].to_vec())
    }

    pub fn write(&mut self, offset: u64, block: &[u8]) {
        if !self.forgets {
            self.blocks.insert(offset / BLOCK as u64, block.into());
        }
    }
}

/// Read-ahead of payload blocks, whose reader asks in order.
struct Ahead {
    start: u64,
    bytes: Option<AlignedBytes>,
}

impl Ahead {
    fn content(&mut self, store: &Store, digester: &Digester, offset: u64) -> Option<BlockContent> {
        let length = self.bytes.as_ref().map_or(0, |bytes| bytes.bytes().len() as u64);
        if !(self.start..self.start + length).contains(&offset) {
            self.start = offset;
            // If one of them cannot be read, each is read separately.
            self.bytes = store.read(offset, RUN_BYTES as usize).or_else(|_| store.read(offset, BLOCK)).ok();
        }
        let at = (offset - self.start) as usize;
        Some(digester.content(&self.bytes.as_ref()?.bytes()[at..at + BLOCK]))
    }
}

/// The engine on an overlay.
pub struct Audit {
    engine: Engine,
    arena: Arena,
    pub overlay: Overlay,
    digester: Digester,
    parameters: Parameters,
    /// Memory in bytes, and the limits that follow from it.
    memory: u64,
    limits: Limits,
    now: Nanos,
}

/// Result of an I/O, reported to the engine after the effects.
enum Performed {
    Complete,
    Blocks(Vec<BlockContent>),
    Equal(bool),
    Bytes(Vec<u8>),
}

impl Audit {
    pub fn new(superblock: &Superblock, overlay: Overlay) -> anyhow::Result<Audit> {
        let parameters = superblock.parameters;
        let geometry = parameters.geometry;
        if geometry.block_size as usize != BLOCK {
            let path = overlay.store.path().display();
            bail!("{path} has blocks of {} bytes; this program checks pools of {BLOCK}", geometry.block_size);
        }
        let memory = memory::given().unwrap_or_else(|| memory::usual(MEMORY));
        let limits = Limits::for_memory(memory, &geometry)
            .or_else(|needed| Limits::for_memory(needed, &geometry))
            .map_err(|needed| anyhow::anyhow!("this pool needs {} of memory to be opened", size::show(needed)))?;
        let limits = Limits { device: heads::of(&overlay.store), ..limits };
        let arena =
            Arena::new((limits.buffers as usize, limits.buffers as usize), 1, 1).context("cannot get memory")?;
        let engine = Engine::open_to_audit(parameters, limits, 0);
        Ok(Audit { engine, arena, overlay, digester: Digester::new(&parameters), parameters, memory, limits, now: 0 })
    }

    /// Begins anew with the memory that a replay of `entries` entries takes; nothing was written yet.
    fn take_more(&mut self, entries: u64) -> anyhow::Result<()> {
        let geometry = &self.parameters.geometry;
        let limits = |memory| Limits::for_memory(memory, geometry);
        let fits = |memory| limits(memory).is_ok_and(|limits| limits.replayable_entries(geometry) >= entries);
        self.memory = memory::more(&TooLittle::new(self.memory, fits))?;
        self.limits = limits(self.memory)
            .map_err(|needed| anyhow::anyhow!("the audit of this pool needs {} of memory", size::show(needed)))?;
        let buffers = self.limits.buffers as usize;
        self.arena = Arena::new((buffers, buffers), 1, 1).context("cannot get memory")?;
        self.engine = Engine::open_to_audit(self.parameters, self.limits, self.now);
        Ok(())
    }

    /// Opens the pool and audits its structures; false if it does not open.
    pub fn run(&mut self, findings: &mut Findings) -> anyhow::Result<bool> {
        findings.version = crate::report::status::VERSION;
        match self.open()? {
            Ok(recovered) => {
                (findings.records_replayed, findings.was_closed_cleanly) = (recovered.records, recovered.clean);
                self.structures(findings);
                Ok(true)
            }
            Err(error) => {
                findings.add(explain_open(error));
                Ok(false)
            }
        }
    }

    /// Plans a repair of the store's own contents, without the overlay's writes.
    pub fn plan(&self, superblock: &Superblock, data: bool) -> Result<Repair, RepairError> {
        let store = &self.overlay.store;
        // For each slot in use 24 bytes of summary and 8 of map, read twice, give an idea of how much there is to read.
        let estimate = superblock.data_used * if data { 64 + BLOCK as u64 } else { 64 };
        let progress = RefCell::new(Progress::new("reading the pool", estimate));
        let mut read = |offset: u64, length: u32| {
            progress.borrow_mut().add(length.into());
            Some(store.read(offset, length as usize).ok()?.bytes().to_vec())
        };
        let mut ahead = Ahead { start: 0, bytes: None };
        let mut content = |offset: u64| {
            progress.borrow_mut().add(BLOCK as u64);
            ahead.content(store, &self.digester, offset)
        };
        plan_repair(superblock.parameters, self.limits, data, &mut Medium { read: &mut read, content: &mut content })
    }

    /// Says which blocks of which volumes the problems are about, and which an earlier repair gave up.
    pub fn explain(&self, findings: &mut Findings) {
        let overlay = &self.overlay;
        let mut read = |offset: u64, length: u32| overlay.read(offset, length as usize).ok();
        let Findings { affected, lost, rotten, .. } = findings;
        self.engine.flawed_blocks(&mut read, rotten, &mut |volume, first, blocks, flaw| match flaw {
            Flaw::Lost => add_range(lost, volume, first, blocks),
            Flaw::Damaged | Flaw::InSlot => add_range(affected, volume, first, blocks),
        });
    }

    /// Returns the engine, with all that it has found.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Opens the pool, with as much memory as it needs.
    pub fn open(&mut self) -> anyhow::Result<Result<Recovered, engine::OpenError>> {
        loop {
            match self.open_once()? {
                Err(OpenError::TooLittleMemory { entries }) => self.take_more(entries)?,
                result => return Ok(result),
            }
        }
    }

    /// Opens the pool, and runs until the engine wants nothing more.
    fn open_once(&mut self) -> anyhow::Result<Result<Recovered, engine::OpenError>> {
        let mut opened = None;
        loop {
            let mut done = Vec::new();
            while let Some(effect) = self.engine.next_effect() {
                match effect {
                    Effect::Io(io) => done.push((io, self.perform(io))),
                    Effect::Opened(result) => opened = Some(result),
                    Effect::Reply { .. } | Effect::ControlReply { .. } => {}
                }
            }
            if let Some(Err(error)) = opened {
                return Ok(Err(error));
            }
            let idle = done.is_empty();
            for (io, performed) in done {
                let result = match &performed {
                    Ok(Performed::Complete) => Ok(Outcome::Complete),
                    Ok(Performed::Equal(equal)) => Ok(Outcome::Equal(*equal)),
                    Ok(Performed::Blocks(contents)) => Ok(Outcome::Blocks(contents)),
                    Ok(Performed::Bytes(bytes)) => Ok(Outcome::Bytes(bytes)),
                    Err(error) => Err(*error),
                };
                self.engine.handle(self.now, Event::Done { io, result });
            }
            if !idle {
                continue;
            }
            if let Some(opened) = opened {
                return Ok(opened);
            }
            // Time passes only where the engine waits for it.
            let Some(due) = self.engine.next_timer() else { bail!("opening the pool does not come to an end") };
            self.now = self.now.max(due);
            self.engine.handle(self.now, Event::Timer);
        }
    }

    fn perform(&mut self, id: IoId) -> Result<Performed, IoError> {
        let io = self.engine.io(id).clone();
        let failed = |error: std::io::Error| {
            complain(format_args!("cannot read at byte {}: {error}", io.offset));
            IoError::Failed
        };
        match io.op {
            IoOp::Sync | IoOp::Reserve | IoOp::Discard => Ok(Performed::Complete),
            IoOp::Merge { from, to, zero } => {
                let content = merge(&io.segments, from, to, zero, &mut self.arena, &self.digester);
                Ok(Performed::Blocks(vec![content]))
            }
            IoOp::Compare => Ok(Performed::Equal(compare(&io.segments, &self.arena))),
            IoOp::ReadPages => Ok(Performed::Bytes(self.overlay.read(io.offset, io.length as usize).map_err(failed)?)),
            IoOp::ReadBlocks => {
                let bytes = self.overlay.read(io.offset, io.segments.len() * BLOCK).map_err(failed)?;
                let mut contents = Vec::with_capacity(io.segments.len());
                for (segment, block) in io.segments.iter().zip(bytes.chunks_exact(BLOCK)) {
                    if let Segment::Buffer(buffer) = *segment {
                        self.arena.bytes_mut(self.arena.buffer(buffer)).copy_from_slice(block);
                    }
                    contents.push(self.digester.content(block));
                }
                Ok(Performed::Blocks(contents))
            }
            IoOp::Write | IoOp::WriteDurable => {
                for (number, segment) in io.segments.iter().enumerate() {
                    let offset = io.offset + (number * BLOCK) as u64;
                    match *segment {
                        Segment::Buffer(buffer) => {
                            self.overlay.write(offset, self.arena.bytes(self.arena.buffer(buffer)))
                        }
                        Segment::Page(page) => self.overlay.write(offset, self.engine.page(page)),
                    }
                }
                Ok(Performed::Complete)
            }
        }
    }

    /// Lets the engine account for its structures.
    fn structures(&self, findings: &mut Findings) {
        let overlay = &self.overlay;
        let mut read = |offset: u64, length: u32| overlay.read(offset, length as usize).ok();
        let before = findings.problem_count;
        let sound = self.engine.check(&mut read, &mut |problem| findings.add(problem.to_string()));
        if !sound && findings.problem_count == before {
            findings.add("the structures of the pool do not agree with each other".into());
        }
        let index = self.engine.check_disk_index(&mut read);
        if let Some(index) = index.filter(|index| index.stale + index.absent > 0) {
            let (entries, stale, absent) = (index.entries, index.stale, index.absent);
            findings.notes.push(format!(
                "the index on disk has {entries} entries; {stale} of them are stale, {absent} blocks have none"
            ));
        }
    }

    /// Reads every live block and compares it with its digest.
    pub fn blocks(&self, findings: &mut Findings) {
        let overlay = &self.overlay;
        let total = self.engine.status().data_blocks_used * BLOCK as u64;
        let mut progress = Progress::new("reading all data", total);
        let mut read = |offset: u64, length: u32| overlay.read(offset, length as usize).ok();
        let mut batch: Vec<(u64, Digest)> = Vec::with_capacity(BATCH);
        let complete = self.engine.live_slots(&mut read, &mut |offset, digest| {
            batch.push((offset, digest));
            if batch.len() == BATCH {
                self.compare(&mut batch, findings, &mut progress);
            }
        });
        self.compare(&mut batch, findings, &mut progress);
        progress.finish();
        if !complete {
            findings.add("the list of live blocks cannot be read completely".into());
        }
    }

    /// Reads a batch of blocks in runs, and empties it.
    fn compare(&self, batch: &mut Vec<(u64, Digest)>, findings: &mut Findings, progress: &mut Progress) {
        batch.sort_unstable_by_key(|(offset, _)| *offset);
        let mut rest = &batch[..];
        while let Some((start, _)) = rest.first().copied() {
            let mut count = 1;
            while count < rest.len()
                && rest[count].0 - rest[count - 1].0 <= GAP
                && rest[count].0 - start + BLOCK as u64 <= RUN_BYTES
            {
                count += 1;
            }
            let (run, after) = rest.split_at(count);
            rest = after;
            let length = (run[count - 1].0 - start) as usize + BLOCK;
            match self.overlay.read(start, length) {
                Ok(bytes) => {
                    for (offset, digest) in run {
                        let block = &bytes[(offset - start) as usize..][..BLOCK];
                        if self.digester.digest(block) != *digest {
                            findings.add(format!("the block at byte {offset} of the store does not match its digest"));
                            findings.rotten.insert(*offset);
                        }
                    }
                }
                Err(error) => {
                    findings.add(format!("{length} bytes at byte {start} of the store cannot be read: {error}"));
                    findings.rotten.extend(run.iter().map(|(offset, _)| *offset));
                }
            }
            findings.blocks_checked += count as u64;
            progress.add((count * BLOCK) as u64);
        }
        batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against an audit of a pool with much to replay that said "it cannot be repaired", for want of memory that the machine had.
    #[test]
    fn an_audit_with_too_little_memory_begins_anew_with_more() {
        let path = std::env::temp_dir().join(format!("onefold-check-{}", std::process::id()));
        let (store, parameters) = crate::commands::create::scratch(&path);
        let mut audit = Audit::new(&Superblock::new(parameters), Overlay::new(store)).unwrap();
        let (before, most) = (audit.memory, audit.limits.replayable_entries(&parameters.geometry));
        audit.take_more(most + 1).unwrap();
        assert!(audit.memory > before && audit.limits.replayable_entries(&parameters.geometry) > most);
        assert!(audit.run(&mut Findings::default()).unwrap());
        std::fs::remove_file(&path).unwrap();
    }
}
