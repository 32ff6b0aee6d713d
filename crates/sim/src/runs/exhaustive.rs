//! Exhaustive tests of small scopes: all sequences of up to three operations on a tiny pool that is nearly full, a crash at every I/O, and all states that
//! the disk may have after each crash.
//!
//! Each sequence is performed in two ways: with each operation begun when the one before is answered, and with all of them begun at once. At a crash point
//! each block that no sync has covered has, independently, its durable content or any later version. Where these amount to more than [`MOST_STATES`] states,
//! as many random ones take their place, which is counted. From each state the pool is opened, every block is verified, and everything is audited.
//!
//! The same state is verified once: sequences with the same beginning have the same states there, and the completion of a write does not change the possible
//! outcomes of a crash. States are known by hashes of 128 bits over the whole disk and the model.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::AddAssign;

use engine::Policy;

use crate::content::CELLS;
use crate::parallel::in_order;
use crate::random::{Random, mix};
use crate::runs::config::Config;
use crate::runs::forged;
use crate::runs::run::{Run, Snapshot};
use crate::runs::workload::{Operation, Place, Relocating};
use crate::transcript::Trace;
use crate::world::disk::Cut;
use crate::{Checked, Violation, guarded};

/// Maximum number of states of one crash point.
const MOST_STATES: u64 = 256;
/// Time after the last operation in which the engine syncs and publishes on its own timer.
const AFTERMATH_NANOS: u64 = 3_000_000_000;
/// Time after the start of a move in which its blocks are copied, and no entry refers to the copies yet.
const IN_THE_MIDDLE_NANOS: u64 = 200_000;
/// Number of blocks of the volume that no operation touches: they fill the pool.
const FILLED: u64 = 4;

/// An operation: one action of a client or of fate. Blocks 0 and 1 hold contents 1 and 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShortOperation {
    /// Write of a new, unique content to block 0.
    New,
    /// Write of its first content to block 0.
    Same,
    /// Write of block 0's first content to block 1.
    Duplicate,
    /// Overwrite of blocks 0 and 1 in one write.
    Overwrite,
    /// Write of zeroes to block 0.
    Zeroes,
    /// Write of a part of block 0.
    Part,
    /// Discard of both blocks.
    Trim,
    /// Flush.
    Flush,
    /// Durable write of a new, unique content to block 1.
    Durable,
    /// Merge of all mappings: a checkpoint.
    Checkpoint,
    /// Power failure and reopening of the pool.
    Crash,
    /// Closing and reopening of the pool.
    Reopen,
    /// Change of the volume's policy to `select`.
    Select,
    /// Change of the volume's policy to `native`: no sharing.
    Native,
    /// Durable write to block 0 of a content that looks like a record of the journal at its block of the ring.
    Imitate,
    /// Move of all blocks, with all references to them. The next operation comes in the middle of the move.
    Move,
    /// Snapshot of the volume.
    Snapshot,
    /// Clone of the newest snapshot.
    Clone,
    /// Deletion of the oldest snapshot.
    Delete,
    /// Rollback of the volume to the newest snapshot.
    RollBack,
}

/// The alphabet, each operation with its name in sequences.
const ALPHABET: [(char, ShortOperation); 20] = [
    ('n', ShortOperation::New),
    ('s', ShortOperation::Same),
    ('d', ShortOperation::Duplicate),
    ('o', ShortOperation::Overwrite),
    ('z', ShortOperation::Zeroes),
    ('p', ShortOperation::Part),
    ('t', ShortOperation::Trim),
    ('f', ShortOperation::Flush),
    ('u', ShortOperation::Durable),
    ('c', ShortOperation::Checkpoint),
    ('k', ShortOperation::Crash),
    ('r', ShortOperation::Reopen),
    ('l', ShortOperation::Select),
    ('v', ShortOperation::Native),
    ('i', ShortOperation::Imitate),
    ('m', ShortOperation::Move),
    ('S', ShortOperation::Snapshot),
    ('C', ShortOperation::Clone),
    ('D', ShortOperation::Delete),
    ('B', ShortOperation::RollBack),
];

/// Finds the operation of a name.
pub fn operation(name: char) -> Option<ShortOperation> {
    ALPHABET.iter().find(|(known, _)| *known == name).map(|&(_, operation)| operation)
}

fn name(sequence: &[ShortOperation]) -> String {
    let name =
        |operation: &ShortOperation| ALPHABET.iter().find(|(_, known)| known == operation).map(|&(name, _)| name);
    sequence.iter().filter_map(name).collect()
}

impl ShortOperation {
    /// Returns the full operation for a position of a sequence.
    fn operation(self, at: usize) -> Operation {
        let blocks =
            |first: u64, count: u64| Place { volume: 0, first: first * CELLS as u64, count: count * CELLS as u64 };
        let write = |place, contents: &[u32], fua| Operation::Write { place, contents: contents.to_vec(), fua };
        let policy = |policy| Operation::SetVolume { volume: 0, policy: Some(Some(policy)), read_only: None };
        let new = 100 + 10 * at as u32;
        match self {
            ShortOperation::New => write(blocks(0, 1), &[new], false),
            ShortOperation::Same => write(blocks(0, 1), &[1], false),
            ShortOperation::Duplicate => write(blocks(1, 1), &[1], false),
            ShortOperation::Overwrite => write(blocks(0, 2), &[new + 1, new + 2], false),
            ShortOperation::Zeroes => write(blocks(0, 1), &[0], false),
            ShortOperation::Part => write(Place { volume: 0, first: 2, count: 3 }, &[new + 3], false),
            ShortOperation::Trim => Operation::Trim { place: blocks(0, 2), fua: false },
            ShortOperation::Flush => Operation::Flush,
            ShortOperation::Durable => write(blocks(1, 1), &[new + 4], true),
            ShortOperation::Checkpoint => Operation::Settle,
            ShortOperation::Crash => Operation::Crash { cut: Cut::Mixed, again: Vec::new(), verify: false },
            ShortOperation::Reopen => Operation::Reopen,
            ShortOperation::Select => policy(Policy::SELECT),
            ShortOperation::Native => policy(Policy::Native),
            ShortOperation::Move => Operation::Relocate(Relocating::All),
            ShortOperation::Snapshot => Operation::Snapshot { volumes: vec![0] },
            ShortOperation::Clone => Operation::Clone { snapshot: 0 },
            ShortOperation::Delete => Operation::DeleteSnapshot { snapshot: 0 },
            ShortOperation::RollBack => Operation::RollBack { snapshot: 0 },
            ShortOperation::Imitate => write(blocks(0, 1), &[forged::record_for(at as u64)], true),
        }
    }
}

/// Scope of an enumeration.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Operations of the longest sequences.
    pub operations: usize,
    /// Part to enumerate, and number of parts (the first part is 1).
    pub part: (u64, u64),
    /// Threads.
    pub threads: usize,
}

/// One sequence, for a closer look.
#[derive(Clone, Debug)]
pub struct Only {
    /// The sequence.
    pub sequence: Vec<ShortOperation>,
    /// True to begin all operations at once.
    pub together: bool,
    /// The only crash point to try, if given.
    pub point: Option<u64>,
    /// The only state to try, if given.
    pub state: Option<u64>,
    /// Print everything that happens.
    pub trace: bool,
}

/// Results of an enumeration.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Sequences performed, each in two ways.
    pub sequences: u64,
    /// Crash points.
    pub points: u64,
    /// Crash points with too many states for all of them.
    pub sampled: u64,
    /// States from which the pool was opened and verified.
    pub states: u64,
    /// States that had been verified before.
    pub known: u64,
    /// Violations, each with the command that shows it again.
    pub violations: Vec<(String, Violation)>,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.sequences += other.sequences;
        self.points += other.points;
        self.sampled += other.sampled;
        self.states += other.states;
        self.known += other.known;
        self.violations.extend(other.violations);
    }
}

impl Tally {
    /// Formats the last line of `sim exhaustive`.
    pub fn line(&self) -> String {
        format!(
            "words: {}, crash points: {} ({} of them with {MOST_STATES} random states of more), states verified: {} \
             (and {} that were the same), violations: {}",
            self.sequences,
            self.points,
            self.sampled,
            self.states,
            self.known,
            self.violations.len()
        )
    }
}

/// Enumerates the sequences. The work is divided by the first operation and by the way in which operations are begun, so that sequences with the same
/// beginning share the set of known states.
pub fn enumerate(plan: &Plan) -> Tally {
    let pieces = 2 * ALPHABET.len() as u64;
    let mine: Vec<u64> = (0..pieces).filter(|piece| piece % plan.part.1 == plan.part.0 - 1).collect();
    let results = in_order(plan.threads, mine.len() as u64, |number| {
        let piece = mine[number as usize];
        let mut search = Search::new(piece % 2 == 1);
        search.extend(&mut vec![ALPHABET[piece as usize / 2].1], plan.operations);
        search.tally
    });
    let mut tally = Tally::default();
    results.into_iter().for_each(|result| tally += result);
    tally
}

/// Performs one sequence alone.
pub fn look(only: &Only) -> Tally {
    let mut search = Search::new(only.together);
    search.perform(&only.sequence, Some(only));
    search.tally
}

/// Number of sequences of at most two operations, each performed in both ways.
pub const SHORT_SEQUENCES: u64 = 2 * (ALPHABET.len() + ALPHABET.len() * ALPHABET.len()) as u64;

/// Performs one of the sequences of at most two operations, by its number: the shorter ones come first.
pub fn look_at_short(number: u64) -> Tally {
    let operations = ALPHABET.len();
    let (sequence, together) = ((number / 2) as usize, number % 2 == 1);
    let operation = |at: usize| ALPHABET[at].1;
    let sequence = match sequence.checked_sub(operations) {
        None => vec![operation(sequence)],
        Some(sequence) => vec![operation(sequence / operations % operations), operation(sequence % operations)],
    };
    look(&Only { sequence, together, point: None, state: None, trace: false })
}

struct Search {
    together: bool,
    known: HashSet<[u64; 2]>,
    tally: Tally,
}

impl Search {
    fn new(together: bool) -> Search {
        Search { together, known: HashSet::new(), tally: Tally::default() }
    }

    /// Performs the sequence, and all longer ones that begin with it.
    fn extend(&mut self, sequence: &mut Vec<ShortOperation>, longest: usize) {
        self.perform(sequence, None);
        if sequence.len() < longest {
            for (_, operation) in ALPHABET {
                sequence.push(operation);
                self.extend(sequence, longest);
                sequence.pop();
            }
        }
    }

    fn perform(&mut self, sequence: &[ShortOperation], only: Option<&Only>) {
        self.tally.sequences += 1;
        let together = if self.together { " --together" } else { "" };
        let again = format!("sim exhaustive --sequence {}{together}", name(sequence));
        let config = config(self.together, sequence.contains(&ShortOperation::Move));
        let mut snapshots = Vec::new();
        let print = only.is_some_and(|only| only.trace && only.point.is_none());
        let outcome = guarded(|| {
            let mut run = Run::start(config.clone(), Trace::new(print), false)?;
            run.perform(&preparation())?;
            run.snapshots = Some(Vec::new());
            let mut operations = Vec::new();
            for (at, &operation) in sequence.iter().enumerate() {
                operations.push(operation.operation(at));
                if operation == ShortOperation::Move {
                    operations.push(Operation::Idle(IN_THE_MIDDLE_NANOS));
                }
            }
            operations.push(Operation::Idle(AFTERMATH_NANOS));
            let result = run.perform(&operations);
            snapshots = run.take_snapshots();
            result
        });
        if let Err(violation) = outcome {
            self.tally.violations.push((format!("{again} --trace"), violation));
        }
        for snapshot in &snapshots {
            if only.and_then(|only| only.point).is_none_or(|point| point == snapshot.point) {
                self.crash(&config, snapshot, &again, only);
            }
        }
    }

    /// Applies all crashes at one point, or a sample if there are more than [`MOST_STATES`].
    fn crash(&mut self, config: &Config, snapshot: &Snapshot, again: &str, only: Option<&Only>) {
        self.tally.points += 1;
        let unsynced = snapshot.disk.unsynced();
        let all = unsynced.iter().try_fold(1u64, |states, (_, versions)| states.checked_mul(1 + versions.len() as u64));
        let sampled = all.is_none_or(|all| all > MOST_STATES);
        self.tally.sampled += u64::from(sampled);
        let mut random = Random::new(snapshot.point);
        let mut model = snapshot.model.clone();
        model.crash();
        let model = hash(&format!("{model:?} {} {:?}", snapshot.epoch, snapshot.geometry));
        let base = snapshot.disk.durable_hash();
        for state in 0..all.unwrap_or(u64::MAX).min(MOST_STATES) {
            let mut rest = state;
            let mut choices = Vec::with_capacity(unsynced.len());
            let mut disk = base;
            for &(durable, ref versions) in &unsynced {
                let options = 1 + versions.len() as u64;
                let choice = match state {
                    // The states with everything kept, and with everything lost, are always among them.
                    0 => 0,
                    1 if sampled => options - 1,
                    _ if sampled => random.below(options),
                    _ => rest % options,
                };
                rest /= options;
                if choice > 0 {
                    let new = versions[choice as usize - 1];
                    disk = [0, 1].map(|half| disk[half].wrapping_sub(durable[half]).wrapping_add(new[half]));
                }
                choices.push(choice as usize);
            }
            let is_wanted = only.and_then(|only| only.state).is_none_or(|wanted| wanted == state);
            if !is_wanted || !self.known.insert(disk.map(|half| mix(half ^ model))) {
                self.tally.known += u64::from(is_wanted);
                continue;
            }
            self.tally.states += 1;
            let print = only.is_some_and(|only| only.trace && only.point.is_some());
            if let Err(violation) = open_and_verify(config, snapshot, &choices, print) {
                let again = format!("{again} --point {} --state {state} --trace", snapshot.point);
                self.tally.violations.push((again, violation));
            }
        }
    }
}

fn open_and_verify(config: &Config, snapshot: &Snapshot, choices: &[usize], print: bool) -> Checked {
    guarded(|| {
        let mut snapshot = snapshot.clone();
        snapshot.disk.crash_choosing(choices);
        let trace = Trace::new(print);
        trace.say(|| format!("======== crash at point {}: versions {choices:?}", snapshot.point));
        let seed = config.seed;
        // No unsynced write is left to be lost.
        let mut run = Run::resume(config.clone(), &snapshot, Cut::Lost, seed, false, trace)?;
        run.verify_all()?;
        run.audit()
    })
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns a pool of eight slots, of which six are in use when a sequence begins; of thirty-two where blocks are moved, which takes empty containers.
fn config(together: bool, moves: bool) -> Config {
    let mut config = Config::small(1);
    let geometry = &mut config.parameters.geometry;
    (geometry.containers, geometry.slots_per_container) = if moves { (8, 4) } else { (2, 4) };
    config.volumes = vec![(2 + FILLED, Policy::Full)];
    config.pace = 0;
    config.depth = if together { 4 } else { 1 };
    config
}

/// Writes blocks 0 and 1, and the blocks that fill the pool, and merges all of them.
fn preparation() -> Vec<Operation> {
    let blocks = 2 + FILLED;
    let place = Place { volume: 0, first: 0, count: blocks * CELLS as u64 };
    let contents = (1..=blocks as u32).collect();
    vec![Operation::Write { place, contents, fua: false }, Operation::Settle]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_has_one_name() {
        let names: HashSet<char> = ALPHABET.iter().map(|&(name, _)| name).collect();
        assert_eq!(names.len(), ALPHABET.len());
        assert!(ALPHABET.iter().all(|&(name, known)| operation(name) == Some(known)));
    }

    #[test]
    fn parts_make_up_the_whole() {
        let plan = |part| Plan { operations: 1, part, threads: 2 };
        let whole = enumerate(&plan((1, 1)));
        let mut parts = enumerate(&plan((1, 2)));
        parts += enumerate(&plan((2, 2)));
        assert_eq!((whole.sequences, whole.points, whole.states), (parts.sequences, parts.points, parts.states));
        assert!(whole.violations.is_empty(), "{:?}", whole.violations.first());
        assert!(whole.sequences == 2 * ALPHABET.len() as u64 && whole.states > 100, "{}", whole.line());
    }
}
