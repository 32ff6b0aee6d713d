//! Flips of every byte of a pool, one at a time, as a test of detection. The pool must refuse to open, answer with an error, repair the byte, or not need it.
//! It must never answer with wrong data, and never panic. A scrub afterwards must find all damage that the audit finds, and its reported repairs leave no
//! damage.
//!
//! A pool is written once and left in a [`State`]. A pristine opening, a read of every block and an audit tell the content of every block, the blocks of the
//! disk that are read at all, and the blocks that must be sound. Then each byte of the blocks read is inverted in turn, and these three steps are repeated. A
//! run is deterministic, so a byte that the pristine run does not read cannot change it: such bytes are counted and not tried.
//!
//! Not every slot in use can be read. A mapping in the map buffer hides the entry of its leaf, which keeps its slot until the leaf is written
//! (docs/rfc/0010). Second copies and blocks cut off by a discard are in no volume either. No read notices damage in such a slot, and no read can be wrong
//! because of it: the scrub must find it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use engine::{
    Command, Geometry, IoOp, Limits, Nanos, Operation as EngineOperation, PassState, Policy, ScrubCommand, Submit,
    VolumeId,
};

use crate::content::Content;
use crate::random::Random;
use crate::runs::config::Config;
use crate::runs::run::{Pending, Run};
use crate::runs::workload::{Generator, Operation};
use crate::transcript::Trace;
use crate::world::disk::{Cut, Disk};
use crate::world::{Answer, Step, World};
use crate::{Checked, guarded, violated};

/// Virtual time in which an opened pool becomes idle.
const REST: Nanos = 20_000_000_000;
/// Virtual time after the last write of a pool that crashes: its watermark is published by then.
pub(crate) const PUBLISHED: Nanos = 1_600_000_000;

/// State in which the pool was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Closed cleanly.
    Closed,
    /// The power was cut some time after a flush: there is a journal to replay.
    Crashed,
}

/// A pool for flipping bytes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// State in which the pool was left.
    pub state: State,
    /// The product's block and container sizes instead of the simulator's.
    pub product: bool,
    /// Distance between flipped bytes: one byte in every `stride`.
    pub stride: u64,
    /// Part of the bytes to try: the remainder of a byte's number, and the number of parts that divides it.
    pub part: (u64, u64),
}

/// Results of the flips.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Bytes of the pool.
    pub bytes: u64,
    /// Bytes that were flipped.
    pub flips: u64,
    /// Bytes that have no reader (among those that the stride chose).
    pub unread: u64,
    /// Flips after which the pool did not open.
    pub refused: u64,
    /// Flips after which a block could not be read.
    pub errors: u64,
    /// Flips that only the audit noticed.
    pub audited: u64,
    /// Flips that only the scrub noticed.
    pub scrubbed: u64,
    /// Flips after which the byte was right again.
    pub repaired: u64,
    /// Flips that went unnoticed, of bytes that are not needed.
    pub unneeded: u64,
    /// Violations: the byte's offset and a description.
    pub violations: Vec<(u64, String)>,
}

impl Tally {
    /// Adds the results of another part.
    pub fn add(&mut self, other: Tally) {
        self.bytes = self.bytes.max(other.bytes);
        for (sum, more) in [
            (&mut self.flips, other.flips),
            (&mut self.unread, other.unread),
            (&mut self.refused, other.refused),
            (&mut self.errors, other.errors),
            (&mut self.audited, other.audited),
            (&mut self.scrubbed, other.scrubbed),
            (&mut self.repaired, other.repaired),
            (&mut self.unneeded, other.unneeded),
        ] {
            *sum += more;
        }
        self.violations.extend(other.violations);
    }

    /// Formats the figures in one line.
    pub fn line(&self) -> String {
        format!(
            "{} bytes, {} flipped, {} that nothing reads: {} refused to open, {} gave errors, {} found by the audit, {} by the \
             scrub, {} repaired, {} not needed; violations: {}",
            self.bytes,
            self.flips,
            self.unread,
            self.refused,
            self.errors,
            self.audited,
            self.scrubbed,
            self.repaired,
            self.unneeded,
            self.violations.len()
        )
    }
}

/// A pool, and the results of a sound opening of it.
struct Pristine {
    config: Config,
    disk: Disk,
    now: Nanos,
    contents: Vec<Answer>,
    /// Blocks of the disk that are read.
    read: BTreeSet<u64>,
    /// Blocks of the disk in which every byte counts for reads, or for the audit.
    needed: BTreeSet<u64>,
    /// Slots in use that no block of a volume maps to.
    hidden: BTreeSet<u64>,
    /// All slots in use, hidden ones and others.
    live: BTreeSet<u64>,
}

fn config(product: bool) -> Config {
    let mut config = Config::small(7);
    if product {
        let geometry =
            Geometry { journal_blocks: 256, ..Geometry::for_capacity(8 << 20).expect("a possible capacity") };
        config.parameters.geometry = geometry;
        let piece = geometry.piece_blocks + 1;
        // The longest request fits, also one merged from several that arrive together.
        let (write_buffers, buffers, delta_entries) = (4 * piece, 8 * piece, 4 * piece);
        config.limits = Limits { write_buffers, buffers, delta_entries, ..config.limits };
    } else {
        let geometry = &mut config.parameters.geometry;
        (geometry.containers, geometry.journal_blocks, geometry.metadata_blocks) = (12, 48, 192);
    }
    config
}

impl Pristine {
    fn new(state: State, product: bool) -> Checked<Pristine> {
        let config = config(product);
        let mut run = Run::start(config.clone(), Trace::new(false), false)?;
        let operations = Generator::new(&config, 5, false).operations(60);
        run.perform(&operations)?;
        let full = Some(Some(Policy::Full));
        run.perform(&[Operation::SetVolume { volume: 0, policy: full, read_only: Some(false) }])?;
        run.settle_and_audit()?;
        if !run.world.engine.disk_index_status().is_complete {
            return violated("the pool to flip bytes in has no index on disk");
        }
        match state {
            State::Closed => {
                let token = run.token(Pending::Close { early: false });
                run.world.control(token, Command::Close);
                run.drain()?;
            }
            State::Crashed => {
                // Some last operations that no checkpoint includes, only the journal.
                run.perform(&Generator::new(&config, 6, false).operations(8))?;
                run.perform(&[Operation::Flush])?;
                let until = run.world.now + PUBLISHED;
                while run.step(until)? != Step::Quiet {}
            }
        }
        let mut disk = run.world.disk.clone();
        disk.crash(Cut::Lost, &mut Random::new(1));
        let mut config = config;
        config.parameters.geometry = run.config.parameters.geometry;
        let mut pristine = Pristine {
            config,
            disk,
            now: run.world.now,
            contents: Vec::new(),
            read: BTreeSet::new(),
            needed: BTreeSet::new(),
            hidden: BTreeSet::new(),
            live: BTreeSet::new(),
        };
        pristine.look()?;
        Ok(pristine)
    }

    /// Opens the pristine pool, and notes the blocks that are read, the needed ones, and the live slots.
    fn look(&mut self) -> Checked {
        let geometry = self.config.parameters.geometry;
        let block = geometry.block();
        let limits = self.config.limits;
        let (world, contents, read) = self.watch(limits)?;
        // Blocks that are read only on request: without those that a read-ahead covers.
        let (_, _, asked_for) = self.watch(Limits { read_ahead: 0, ..limits })?;
        let mut needed = BTreeSet::new();
        let mut note = |offset: u64, length: u32| {
            needed.extend(offset / block..(offset + u64::from(length)) / block);
            World::read_bytes(&world.disk, offset, length)
        };
        world.engine.check(&mut note, &mut |_| {});
        let mut live = BTreeSet::new();
        world.engine.live_slots(&mut note, &mut |offset, _| {
            live.insert(offset / block);
        });
        self.live.clone_from(&live);
        let (asked_for, mut hidden): (BTreeSet<u64>, BTreeSet<u64>) =
            live.into_iter().partition(|at| asked_for.contains(at));
        needed.extend(asked_for);
        // Pages from before the crash only: pages that recovery wrote since are not on the disk that is damaged.
        let is_as_before = |at: &u64| world.disk.read(*at) == self.disk.read(*at);
        needed.retain(is_as_before);
        hidden.retain(is_as_before);
        self.read = read;
        self.read.extend(needed.iter().chain(&hidden));
        for place in 0..4 {
            self.read.insert(geometry.superblock_block(place / 2, place as u64 % 2));
        }
        (self.contents, self.needed, self.hidden) = (contents, needed, hidden);
        Ok(())
    }

    /// Opens the pristine pool and reads every block. Returns the world, the contents, and the blocks of the disk that were read.
    fn watch(&self, limits: Limits) -> Checked<(World, Vec<Answer>, BTreeSet<u64>)> {
        let block = self.config.parameters.geometry.block();
        let read = Rc::new(RefCell::new(BTreeSet::new()));
        let mut world = self.world(self.disk.clone(), limits)?;
        let noted = read.clone();
        world.hold_back(move |io| {
            if matches!(io.op, IoOp::ReadBlocks | IoOp::ReadPages) {
                noted.borrow_mut().extend(io.offset / block..(io.offset + io.length) / block);
            }
            false
        });
        let Outcome::Sound(contents) = examine(&mut world)? else {
            return violated("a pool that nobody has touched is not sound");
        };
        Ok((world, contents, read.take()))
    }

    fn world(&self, disk: Disk, limits: Limits) -> Checked<World> {
        World::open(self.config.parameters, limits, disk, self.now, Random::new(3), Trace::new(false))
    }

    /// Flips one byte.
    fn flip(&self, block: u64, at: usize, tally: &mut Tally) -> Checked {
        let size = self.disk.block_size();
        let before = self.disk.read(block).to_bytes(size);
        let mut bytes = before.to_vec();
        bytes[at] ^= 0xff;
        let mut disk = self.disk.clone();
        disk.put(block, Content::Metadata(bytes.into()));
        let mut world = self.world(disk, self.config.limits)?;
        let outcome = examine(&mut world)?;
        let repaired = world.disk.read(block).to_bytes(size) == before;
        let found = if matches!(outcome, Outcome::Refused) { 0 } else { self.scrub(&mut world)? };
        match outcome {
            Outcome::Refused => tally.refused += 1,
            Outcome::Sound(contents) | Outcome::Audited(contents) if contents != self.contents => {
                return violated("a block reads as something else");
            }
            Outcome::Errors(answers) => {
                for (found, expected) in answers.iter().zip(&self.contents) {
                    if found.as_ref().is_some_and(|found| found != expected) {
                        return violated("a block reads as something else");
                    }
                }
                tally.errors += 1;
            }
            _ if repaired => tally.repaired += 1,
            Outcome::Audited(_) => tally.audited += 1,
            // Recovery reads the blocks that it replays. A block that it found damaged has its content elsewhere now, and no entry refers to this slot.
            Outcome::Sound(_) if self.live.contains(&block) && !is_live(&world, block) => tally.unneeded += 1,
            Outcome::Sound(_) if self.needed.contains(&block) => return violated("nothing has noticed"),
            Outcome::Sound(_) if found > 0 => tally.scrubbed += 1,
            Outcome::Sound(_) if self.hidden.contains(&block) => return violated("the scrub has not noticed"),
            Outcome::Sound(_) => tally.unneeded += 1,
        }
        Ok(())
    }
}

/// Returns true if anything in the pool refers to a block of the disk as a slot.
fn is_live(world: &World, block: u64) -> bool {
    let (size, mut found) = (world.geometry().block(), false);
    let mut read = |offset: u64, length: u32| World::read_bytes(&world.disk, offset, length);
    world.engine.live_slots(&mut read, &mut |offset, _| found |= offset / size == block);
    found
}

impl Pristine {
    /// Scrubs a pool that has been opened, and reads all of it again. Returns the damage that the scrub has found.
    fn scrub(&self, world: &mut World) -> Checked<u64> {
        world.control(0, Command::Scrub { command: ScrubCommand::Start, seconds: 0 });
        let until = world.now + REST;
        while world.step(until)? != Step::Quiet {}
        let status = world.engine.status();
        if status.failure.is_some() {
            return Ok(status.scrub.found);
        }
        if status.scrub.state != PassState::Finished {
            return violated("the scrub does not come to an end");
        }
        match after_opening(world)? {
            Outcome::Sound(contents) if contents == self.contents => Ok(status.scrub.found),
            Outcome::Sound(_) => violated("after the scrub a block reads as something else"),
            _ if status.scrub.found > status.scrub.repaired => Ok(status.scrub.found),
            _ => violated("the scrub has missed damage"),
        }
    }
}

/// Results of an opening, a read of every block, and an audit.
enum Outcome {
    Refused,
    /// At least one block could not be read; the contents of the others.
    Errors(Vec<Option<Answer>>),
    /// All blocks can be read, and the audit has a finding.
    Audited(Vec<Answer>),
    Sound(Vec<Answer>),
}

fn examine(world: &mut World) -> Checked<Outcome> {
    let opened = loop {
        match world.step(Nanos::MAX)? {
            Step::Opened(result) => break result,
            Step::Quiet => return violated("opening does not come to an end"),
            _ => {}
        }
    };
    if opened.is_err() {
        return Ok(Outcome::Refused);
    }
    after_opening(world)
}

fn after_opening(world: &mut World) -> Checked<Outcome> {
    let block = world.geometry().block();
    let volumes: Vec<(VolumeId, u64)> = world.engine.volumes().map(|volume| (volume.id, volume.size / block)).collect();
    let mut answers = Vec::new();
    for (volume, blocks) in volumes {
        for lba in 0..blocks {
            answers.push(read(world, volume, lba * block)?);
        }
    }
    let until = world.now + REST;
    while world.step(until)? != Step::Quiet {}
    if answers.iter().any(Option::is_none) {
        return Ok(Outcome::Errors(answers));
    }
    let answers = answers.into_iter().flatten().collect();
    let disk = &world.disk;
    let sound = world.engine.check(&mut |offset, length| World::read_bytes(disk, offset, length), &mut |_| {});
    Ok(if sound { Outcome::Sound(answers) } else { Outcome::Audited(answers) })
}

fn read(world: &mut World, volume: VolumeId, offset: u64) -> Checked<Option<Answer>> {
    while !world.engine.can_submit() {
        if world.step(Nanos::MAX)? == Step::Quiet {
            return violated("the engine takes no requests");
        }
    }
    let length = world.geometry().block();
    let operation = EngineOperation::Read { object: 0 };
    world.submit(Submit { token: offset, volume, offset, length, fua: false, operation });
    loop {
        match world.step(Nanos::MAX)? {
            Step::Reply { result, .. } => return Ok(result.ok()),
            Step::Quiet => return violated("a read is never answered"),
            _ => {}
        }
    }
}

/// Flips bytes.
pub fn flip_all(plan: &Plan, mut progress: impl FnMut(u64)) -> Checked<Tally> {
    let pristine = Pristine::new(plan.state, plan.product)?;
    let size = u64::from(pristine.disk.block_size());
    let mut tally = Tally { bytes: pristine.disk.blocks() * size, ..Tally::default() };
    for (number, byte) in (0..tally.bytes).step_by(plan.stride as usize).enumerate() {
        if number as u64 % plan.part.1 != plan.part.0 {
            continue;
        }
        let (block, at) = (byte / size, (byte % size) as usize);
        if !pristine.read.contains(&block) {
            tally.unread += 1;
            continue;
        }
        tally.flips += 1;
        if let Err(violation) = guarded(|| pristine.flip(block, at, &mut tally)) {
            tally.violations.push((byte, violation.0));
        }
        progress(tally.flips);
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks this check: a byte that matters is noticed by reading, one that only the audit sees by the audit.
    #[test]
    fn a_flipped_byte_of_a_block_and_one_of_a_summary_are_told_apart() {
        let mut repaired = 0;
        for state in [State::Closed, State::Crashed] {
            let tally = flip_all(&Plan { state, product: false, stride: 61, part: (0, 1) }, |_| {}).unwrap();
            assert_eq!(tally.violations, []);
            assert!(tally.refused > 0 && tally.errors > 0 && tally.audited > 0, "{}", tally.line());
            assert_eq!(tally.flips + tally.unread, tally.bytes.div_ceil(61));
            assert!(tally.bytes <= 256 << 10);
            repaired += tally.repaired;
        }
        assert!(repaired > 0, "no superblock is repaired");
    }
}
