//! Events of a served pool for the operator's log: each change is logged once, when it is seen.
//!
//! The reactor looks now and then, not at every request. A figure near a threshold must not fill the log: a reported condition has to go away by some distance,
//! or for some time, before it is reported again.

use engine::{Engine, Failure, Full, Nanos, PassState, Recovered, Status};
use tracing::{error, info, warn};

use crate::io::disk::Host;
use crate::report::share::whole_percent;
use crate::report::status::{DamageReport, failure_text, full_of, remedy};
use crate::size;

/// Shares of the pool in use at which a warning is due, in percent.
const NEARLY_FULL: [u64; 3] = [80, 90, 95];
/// Distance below a threshold at which the pool counts as below it again, in percent.
const HYSTERESIS: u64 = 2;
/// A checkpoint that takes longer is slow.
const SLOW: Nanos = 10_000_000_000;
/// Time that the host must have had space before it counts as not full.
const CALM: Nanos = 5_000_000_000;
/// Maximum of the time between two looks that counts. During a checkpoint a look comes every second; a server that was stopped, or had no processor, knows
/// nothing of the disk.
const LOOK: Nanos = 5_000_000_000;
const SECOND: Nanos = 1_000_000_000;

/// State that was last seen and reported, so that each change is logged once.
#[derive(Default)]
pub struct Watch {
    failed: Option<Failure>,
    host_full: bool,
    lacks_space: bool,
    /// Number of thresholds of [`NEARLY_FULL`] that are reached, by data and by metadata.
    thresholds: [usize; 2],
    /// Set while the index is being filled.
    fills: bool,
    /// Resource whose shortage makes the engine refuse new blocks.
    full: Option<Full>,
    /// The checkpoint in progress: its number, since when, and whether it was reported.
    checkpoint: Option<(u64, Nanos, bool)>,
    /// Time of the last look at the checkpoint.
    looked: Nanos,
    /// The last damage, and the state of the scrub.
    damage: u64,
    scrub: Option<PassState>,
    dedup: Option<SeenPass>,
}

/// State of the pass that finds all duplicates, as last seen.
#[derive(Default)]
struct SeenPass {
    state: PassState,
    /// Passes that were completed since the pool was opened; stopped ones do not count.
    passes: u64,
    /// Blocks that they have shared.
    shared: u64,
    /// Pairs of blocks that they have left apart because of their bytes.
    unequal: u64,
}

impl Watch {
    /// Creates the watch of a pool that has just been opened; an earlier failure counts as reported, since the opening has logged it.
    pub fn of(recovered: &Recovered) -> Watch {
        Watch { failed: recovered.failed, ..Watch::default() }
    }

    /// Logs changes. Returns the latest time of the next look, if it waits for something.
    pub fn look(&mut self, now: Nanos, status: &Status, failure: Option<&str>, host: Host) -> Option<Nanos> {
        self.look_at_mode(status, failure);
        self.look_at_space(status);
        self.look_at_index(status);
        self.look_at_host_space(host);
        let host_again = self.look_at_host(now, host);
        let checkpoint_again = self.look_at_checkpoint(now, status);
        [host_again, checkpoint_again].into_iter().flatten().min()
    }

    /// Returns true if the file system under the pool was full at the last look.
    pub fn host_lacks_space(&self) -> bool {
        self.host_full || self.lacks_space
    }

    /// Logs new damage, and changes in the state of the scrub.
    pub fn look_at_scrub(&mut self, engine: &Engine, status: &Status) {
        let seen = self.damage;
        for damage in engine.damages().filter(|damage| damage.number > seen) {
            let missed = damage.number - self.damage - 1;
            if missed > 0 {
                warn!("{missed} more damages than this log can tell one by one");
            }
            self.damage = damage.number;
            let told = DamageReport::new(engine, damage);
            if damage.repaired { warn!("{}", told.text()) } else { error!("{}", told.text()) }
        }
        let scrub = &status.scrub;
        let before = self.scrub.replace(scrub.state);
        if before == Some(scrub.state) {
            return;
        }
        let read = size::show(scrub.blocks_done.saturating_mul(4096));
        let (found, repaired) = (scrub.found, scrub.repaired);
        match scrub.state {
            PassState::Running if went_on(before, scrub.blocks_done > 0) => {
                info!("the scrub goes on where it was, after {read}");
            }
            PassState::Running => info!("a scrub begins"),
            PassState::Paused => info!("the scrub rests after {read}"),
            PassState::Finished if before.is_some() => {
                info!("the scrub is finished: {read} read, {found} damages found, {repaired} repaired");
            }
            PassState::Stopped if before.is_some() => info!("the scrub was ended after {read}"),
            _ => {}
        }
    }

    /// Logs changes in the state of the pass that finds all duplicates. One may begin and end between two looks.
    pub fn look_at_dedup(&mut self, status: &Status) {
        let dedup = status.dedup;
        let is_first = self.dedup.is_none();
        let seen = self.dedup.get_or_insert_default();
        let was = core::mem::replace(&mut seen.state, dedup.state);
        let percent = dedup.done_ppm / 10_000;
        if dedup.passes > seen.passes {
            let shared = size::show((dedup.shared_blocks - seen.shared).saturating_mul(4096));
            info!("the pass that finds duplicates is finished: {shared} shared");
            if dedup.unequal_blocks > seen.unequal {
                let pairs = dedup.unequal_blocks - seen.unequal;
                warn!(
                    "{pairs} pairs of blocks with equal digests were left apart: reading both did not show the same bytes. 'onefold \
                     scrub' finds out whether one is damaged"
                );
            }
            seen.unequal = dedup.unequal_blocks;
            (seen.passes, seen.shared) = (dedup.passes, dedup.shared_blocks);
        } else if !matches!(was, PassState::Running | PassState::Paused) {
            seen.shared = dedup.shared_blocks;
        }
        match dedup.state {
            state if state == was => {}
            PassState::Running if went_on((!is_first).then_some(was), dedup.done_ppm > 0) => {
                info!("the pass that finds duplicates goes on where it was, after {percent} %");
            }
            PassState::Running => info!("a pass that finds duplicates begins"),
            PassState::Paused if dedup.is_short_of_space => warn!(
                "the pass that finds duplicates rests: metadata is short. It goes on when something is discarded \
                 or the pool grows"
            ),
            PassState::Paused => info!("the pass that finds duplicates rests after {percent} %"),
            PassState::Stopped if !is_first => info!("the pass that finds duplicates was ended"),
            _ => {}
        }
    }

    fn look_at_mode(&mut self, status: &Status, failure: Option<&str>) {
        let is_news = |&kind: &Failure| kind != Failure::TakenOver && self.failed != Some(kind);
        let Some(kind) = status.failure.filter(is_news) else { return };
        let last = failure.map_or(String::new(), |text| format!(" ({text})"));
        let (what, remedy) = (failure_text(kind), remedy(kind));
        match self.failed.replace(kind) {
            None if kind == Failure::StoreGone => error!("the pool has failed: {what}{last}. {remedy}"),
            // The record of the owner may not have been read yet: the pool may be another host's, and then needs no repair.
            None if matches!(kind, Failure::Write | Failure::Sync) => error!(
                "the pool has failed and is read-only from here on: {what}{last}. Reads go on. Check the disk, and whether \
                 another host has the pool; then 'onefold status' advises what to do"
            ),
            None => error!("the pool has failed and is read-only from here on: {what}{last}. Reads go on. {remedy}"),
            Some(_) => error!("the pool has failed for more than that: {what}. {remedy}"),
        }
    }

    fn look_at_space(&mut self, status: &Status) {
        match status.refuses_new {
            full if std::mem::replace(&mut self.full, full) == full => {}
            Some(full) => error!("writes of new blocks are refused: {}", full_of(full)),
            None => info!("writes of new blocks are taken again"),
        }
        let data = (status.held.data, status.capacity_bytes / 4096, "capacity");
        let metadata = (status.metadata_blocks_used, status.metadata_blocks, "metadata space");
        for (before, (used, all, what)) in self.thresholds.iter_mut().zip([data, metadata]) {
            let now = thresholds(*before, used, all.max(1));
            if now == *before {
                continue;
            }
            let percent = whole_percent(used, all);
            let (used, all) = (size::show(used.saturating_mul(4096)), size::show(all.saturating_mul(4096)));
            let said = format!("{percent} % of the pool's {what} are in use ({used} of {all})");
            if now > *before {
                warn!("{said}: the pool is nearly full; trim or delete unneeded data, or grow it");
            } else {
                info!("{said}: less than before");
            }
            *before = now;
        }
    }

    fn look_at_index(&mut self, status: &Status) {
        match status.index_filled_ppm {
            Some(ppm) if !self.fills => {
                self.fills = true;
                let percent = ppm / 10_000;
                info!(
                    "the index is being filled, and is at {percent} %: what writes miss until then is left to a pass"
                );
            }
            None if self.fills => {
                self.fills = false;
                info!("the index is complete: writes find all stored blocks");
            }
            _ => {}
        }
    }

    fn look_at_host_space(&mut self, host: Host) {
        if std::mem::replace(&mut self.lacks_space, host.lacks_space) == host.lacks_space {
            return;
        }
        if host.lacks_space {
            warn!(
                "the file system under the pool is full, also for what overwrites something: writes and flushes get ENOSPC until there is \
                 space. Nothing that was flushed is lost. Make space there; the pool goes on by itself"
            );
        } else {
            info!("the file system under the pool has space again: all that waited for it is written");
        }
    }

    fn look_at_host(&mut self, now: Nanos, host: Host) -> Option<Nanos> {
        let full = host.full?;
        let space_since = host.space.filter(|space| *space > full);
        if !self.host_full && now.saturating_sub(full) < CALM {
            self.host_full = true;
            warn!("the file system under the pool is full: writes of new blocks get ENOSPC until there is space");
        } else if self.host_full && space_since.is_some() && now.saturating_sub(full) >= CALM {
            self.host_full = false;
            info!("the file system under the pool has space again");
        }
        self.host_full.then_some(now + SECOND)
    }

    fn look_at_checkpoint(&mut self, now: Nanos, status: &Status) -> Option<Nanos> {
        let number = status.checkpoints + 1;
        let gap = now.saturating_sub(self.looked);
        self.looked = now;
        if let Some((_, since, _)) = &mut self.checkpoint {
            *since += gap.saturating_sub(LOOK);
        }
        if let Some((known, since, true)) = self.checkpoint
            && !(status.checkpoint_in_progress && known == number)
        {
            info!("the slow checkpoint ended after {} s", (now - since) / SECOND);
        }
        if !status.checkpoint_in_progress {
            self.checkpoint = None;
            return None;
        }
        let (since, said) = match self.checkpoint {
            Some((known, since, said)) if known == number => (since, said),
            _ => (now, false),
        };
        let slow = now - since > SLOW;
        if slow && !said {
            let unmerged = status.unmerged_entries;
            warn!(
                "a checkpoint takes longer than {} s ({unmerged} mappings to merge): is the disk slow?",
                SLOW / SECOND
            );
        }
        self.checkpoint = Some((number, since, said || slow));
        Some(now + SECOND)
    }
}

/// Returns the number of thresholds that count as reached, with [`HYSTERESIS`]; `before` of them counted at the last look.
fn thresholds(before: usize, used: u64, capacity: u64) -> usize {
    let reached = |percent: u64| u128::from(used) * 100 >= u128::from(capacity) * u128::from(percent);
    let up = NEARLY_FULL.iter().filter(|percent| reached(**percent)).count();
    let down = NEARLY_FULL.iter().filter(|percent| reached(**percent - HYSTERESIS)).count();
    before.clamp(up, down)
}

/// Returns true if a job in progress, which had this state at the last look, continues from where it was paused. Its progress counts only at the first look:
/// between two looks a new job may have made some.
fn went_on(before: Option<PassState>, is_some_way: bool) -> bool {
    is_some_way && before.is_none_or(|before| before == PassState::Paused)
}

#[cfg(test)]
mod tests {
    use engine::{DigestFunction, Geometry, Limits, Mode, Parameters};

    use super::*;

    #[test]
    fn a_pool_that_hovers_about_a_threshold_is_reported_once() {
        let after = |before, percent| thresholds(before, percent, 100);
        assert_eq!(after(0, 79), 0);
        assert_eq!(after(0, 80), 1);
        assert_eq!(after(1, 79), 1, "not below yet");
        assert_eq!(after(1, 78), 1);
        assert_eq!(after(1, 77), 0);
        assert_eq!(after(0, 96), 3);
        assert_eq!(after(3, 94), 3);
        assert_eq!(after(3, 88), 2);
        assert_eq!(after(3, 0), 0);
        assert_eq!(thresholds(0, u64::MAX, u64::MAX), 3);
        assert_eq!(thresholds(0, 5, 1), 3, "spare slots are in use, too");
    }

    #[test]
    fn what_comes_some_way_between_two_looks_has_begun() {
        assert!(went_on(None, true), "the server was started again");
        assert!(went_on(Some(PassState::Paused), true));
        assert!(!went_on(Some(PassState::Finished), true) && !went_on(Some(PassState::Never), true));
        assert!(!went_on(None, false) && !went_on(Some(PassState::Paused), false));
    }

    fn status(checkpoints: u64, checkpoint_in_progress: bool) -> Status {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        let parameters = Parameters::new(geometry, [1; 16], [2; 32], DigestFunction::Blake3);
        let engine = Engine::open(parameters, Limits::for_memory(64 << 20, &geometry).unwrap(), 0);
        Status { checkpoints, checkpoint_in_progress, mode: Mode::Normal, ..engine.status() }
    }

    #[test]
    fn each_slow_checkpoint_is_reported_once() {
        let mut watch = Watch::default();
        let mut look = |seconds: u64, status: &Status| {
            watch.look(seconds * SECOND, status, None, Host::default());
            watch.checkpoint.map(|(_, _, said)| said)
        };
        assert_eq!(look(0, &status(0, false)), None);
        assert_eq!(look(1, &status(0, true)), Some(false));
        assert_eq!((2..=11).map(|second| look(second, &status(0, true))).last(), Some(Some(false)));
        assert_eq!(look(12, &status(0, true)), Some(true));
        assert_eq!(look(30, &status(1, true)), Some(false), "another one");
        assert_eq!((31..=41).map(|second| look(second, &status(1, true))).last(), Some(Some(true)));
        assert_eq!(look(42, &status(2, false)), None);
    }

    /// Guards against a warning about a slow disk when the server was stopped for half a minute in the middle of a checkpoint.
    #[test]
    fn time_in_which_the_server_stood_still_is_not_the_disks() {
        let mut watch = Watch::default();
        let mut look = |seconds: u64| {
            watch.look(seconds * SECOND, &status(0, true), None, Host::default());
            watch.checkpoint.is_some_and(|(_, _, said)| said)
        };
        assert!(!look(1) && !look(2) && !look(33) && !look(34));
        // A disk that keeps the server from looking is slow, too.
        assert!(!look(37) && look(47));
    }

    #[test]
    fn a_full_host_counts_as_full_until_it_has_had_space_for_a_while() {
        let mut watch = Watch::default();
        let mut look = |seconds: u64, full: Option<u64>, space: Option<u64>| {
            let (full, space) = (full.map(|full| full * SECOND), space.map(|space| space * SECOND));
            let host = Host { full, space, lacks_space: false };
            watch.look(seconds * SECOND, &status(0, false), None, host);
            watch.host_full
        };
        assert!(!look(1, None, Some(1)));
        assert!(look(2, Some(2), Some(1)));
        assert!(look(4, Some(2), Some(3)), "space for one container is not yet space");
        assert!(look(9, Some(9), Some(8)));
        assert!(look(20, Some(9), Some(8)), "nobody has asked since");
        assert!(!look(21, Some(9), Some(20)));
        assert!(!look(40, Some(9), Some(20)));
        assert!(look(41, Some(41), Some(20)));
    }
}
