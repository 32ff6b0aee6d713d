//! How far the passes over the whole pool have come, the scrub and the one that finds all duplicates: where they go on after a restart.

use crate::format::bytes::{put_u32, put_u64, u32_at, u64_at};

/// State of a pass over the whole pool: a scrub, or the pass that finds all duplicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PassState {
    /// There never was one.
    #[default]
    Never,
    /// It is in progress; after a restart it goes on.
    Running,
    /// It rests until it is started again.
    Paused,
    /// The last one came to its end.
    Finished,
    /// The last one was ended.
    Stopped,
}

impl PassState {
    /// All of them, by their numbers on disk.
    const ALL: [PassState; 5] =
        [PassState::Never, PassState::Running, PassState::Paused, PassState::Finished, PassState::Stopped];
    /// Their names, in the same order.
    pub const NAMES: [&str; 5] = ["never", "running", "paused", "finished", "stopped"];

    /// Returns the state's entry of [`PassState::NAMES`].
    pub fn name(self) -> &'static str {
        PassState::NAMES[self as usize]
    }

    /// Returns the state with this name, or `None`.
    pub fn named(name: &str) -> Option<PassState> {
        PassState::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Reads a state's number. An unknown number counts as no pass: nothing depends on it.
    fn read(code: u8) -> PassState {
        PassState::ALL.get(usize::from(code)).copied().unwrap_or_default()
    }
}

/// The scrub that is in progress, or the last one: where it stands, and what it has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubRecord {
    /// State of the scrub, in progress or not.
    pub state: PassState,
    /// Of the four phases the one that it is in.
    pub phase: u8,
    /// Within a tree: the level.
    pub level: u8,
    /// The tree.
    pub tree: u32,
    /// The next page of the level, or the next slot.
    pub index: u64,
    /// Blocks read.
    pub blocks_done: u64,
    /// Blocks found damaged.
    pub found: u32,
    /// Of these: repaired.
    pub repaired: u32,
    /// Time at which it began: seconds of the driver's clock.
    pub started: u64,
    /// Time at which it ended: seconds of the driver's clock.
    pub finished: u64,
}

impl ScrubRecord {
    /// Returns the record as an opening takes it over: a running scrub rests in a pool that is only read.
    pub(crate) fn found(self, reads_only: bool) -> ScrubRecord {
        let rests = reads_only && self.state == PassState::Running;
        ScrubRecord { state: if rests { PassState::Paused } else { self.state }, ..self }
    }

    pub(super) fn write(&self, b: &mut [u8], at: usize) {
        b[at] = self.state as u8;
        b[at + 1] = self.phase;
        b[at + 2] = self.level;
        put_u32(b, at + 4, self.tree);
        put_u64(b, at + 8, self.index);
        put_u64(b, at + 16, self.blocks_done);
        put_u32(b, at + 24, self.found);
        put_u32(b, at + 28, self.repaired);
        put_u64(b, at + 32, self.started);
        put_u64(b, at + 40, self.finished);
    }

    pub(super) fn read(b: &[u8], at: usize) -> ScrubRecord {
        ScrubRecord {
            state: PassState::read(b[at]),
            phase: b[at + 1],
            level: b[at + 2],
            tree: u32_at(b, at + 4),
            index: u64_at(b, at + 8),
            blocks_done: u64_at(b, at + 16),
            found: u32_at(b, at + 24),
            repaired: u32_at(b, at + 28),
            started: u64_at(b, at + 32),
            finished: u64_at(b, at + 40),
        }
    }
}

/// The pass that finds all duplicates, in progress or the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DedupRecord {
    /// State of the pass, in progress or not.
    pub state: PassState,
    /// Digests below this place are done.
    pub next: u32,
    /// Writes have left work to the next pass.
    pub has_backlog: bool,
}

impl DedupRecord {
    pub(super) fn write(self, b: &mut [u8], at: usize) {
        (b[at], b[at + 1]) = (self.state as u8, self.has_backlog.into());
        put_u32(b, at + 2, self.next);
    }

    pub(super) fn read(b: &[u8], at: usize) -> DedupRecord {
        DedupRecord { state: PassState::read(b[at]), next: u32_at(b, at + 2), has_backlog: b[at + 1] & 1 != 0 }
    }
}
