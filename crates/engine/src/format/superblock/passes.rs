//! Progress of the passes over the whole pool, the scrub and the one that finds all duplicates, so that they can continue after a restart.

use crate::format::bytes::{put_u32, put_u64, u32_at, u64_at};

/// State of a pass over the whole pool: a scrub, or the pass that finds all duplicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PassState {
    /// State before the first pass.
    #[default]
    Never,
    /// State of a pass in progress, which continues after a restart.
    Running,
    /// State of a pass that rests until it is started again.
    Paused,
    /// State after the last pass reached its end.
    Finished,
    /// State after the last pass was stopped.
    Stopped,
}

impl PassState {
    /// All states, by their numbers on disk.
    const ALL: [PassState; 5] =
        [PassState::Never, PassState::Running, PassState::Paused, PassState::Finished, PassState::Stopped];
    /// Names of the states, in the same order.
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

/// Record of the scrub in progress, or of the last one: its position, and its findings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubRecord {
    /// State of the scrub, in progress or not.
    pub state: PassState,
    /// Current phase, of four.
    pub phase: u8,
    /// Level within a tree.
    pub level: u8,
    /// Tree that it is in.
    pub tree: u32,
    /// Next page of the level, or next slot.
    pub index: u64,
    /// Number of blocks read.
    pub blocks_done: u64,
    /// Number of blocks found damaged.
    pub found: u32,
    /// Number of damaged blocks that were repaired.
    pub repaired: u32,
    /// Time at which it began: seconds of the driver's clock.
    pub started: u64,
    /// Time at which it ended: seconds of the driver's clock.
    pub finished: u64,
}

impl ScrubRecord {
    /// Returns the record as an opening adopts it: a running scrub rests in a pool that is only read.
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

/// Record of the pass that finds all duplicates, in progress or the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DedupRecord {
    /// State of the pass, in progress or not.
    pub state: PassState,
    /// Position of the pass: digests below it are done.
    pub next: u32,
    /// True if writes have left work to the next pass.
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
