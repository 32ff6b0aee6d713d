//! Closing, crashing and opening of a pool: clean closing, crashes, opening, and crashes while opening.
//!
//! Conditions that must hold: a pool opens after every crash; each opening begins a later epoch; after a clean closing
//! the pool is found clean and nothing is lost; every volume whose creation was answered is there.

use engine::{Command, Nanos};

use crate::random::{Random, mix};
use crate::runs::config::Config;
use crate::runs::run::{Pending, Run, Snapshot};
use crate::transcript::Trace;
use crate::world::disk::Cut;
use crate::world::faults::{Faults, Struck};
use crate::world::{Step, World};
use crate::{Checked, violated};

/// Maximum number of steps until a sync is in flight; after that the crash comes without one.
const STEPS_TO_A_SYNC: u32 = 200;
/// Time within which the engine syncs automatically when it has data to sync.
const SYNC_COMES_WITHIN: Nanos = 1_500_000_000;

impl Run {
    /// Continues from the state after a crash: the disk as it is after the crash, the model as it was before.
    pub fn resume(config: Config, snapshot: &Snapshot, cut: Cut, seed: u64, keep: bool, trace: Trace) -> Checked<Run> {
        let mut disk = snapshot.disk.clone();
        disk.crash(cut, &mut Random::new(seed));
        let mut flash = snapshot.flash.clone();
        flash.iter_mut().for_each(|flash| flash.crash(cut, mix(seed)));
        let mut model = snapshot.model.clone();
        model.crash();
        let mut config = Config { seed, ..config };
        config.parameters.geometry = snapshot.geometry.0;
        let mut run = Run::on_disk(config, (disk, flash), model, trace, snapshot.now, snapshot.epoch)?;
        // Valid as long as nothing is written: for the snapshots of this run.
        run.is_exact = keep && snapshot.is_exact;
        run.was_offline = snapshot.was_offline;
        run.counts.crashes = 1;
        run.growing = snapshot.geometry.1;
        run.take_geometry()?;
        run.snapshots = keep.then(Vec::new);
        run.open_fully(None)?;
        run.serve()?;
        Ok(run)
    }

    pub(crate) fn reopen(&mut self) -> Checked {
        self.drain()?;
        let token = self.token(Pending::Close { early: false });
        self.world.control(token, Command::Close);
        self.drain()?;
        self.open_closed()?;
        if !matches!(self.opened, Some(Ok(recovered)) if recovered.clean) {
            return violated(format!("a pool that was closed cleanly was not found so: {:?}", self.opened));
        }
        self.verify_all()
    }

    /// Closes, and gives the checkpoint up after some steps. All answered changes are durable when the commands are
    /// answered, even if the checkpoint had not ended by then.
    pub(crate) fn close_early(&mut self, after: u64) -> Checked {
        // Other requests may be in service.
        while self.pending.values().any(|pending| matches!(pending, Pending::Create { .. } | Pending::Settle)) {
            self.wait()?;
        }
        let token = self.token(Pending::Close { early: true });
        self.world.control(token, Command::Close);
        for _ in 0..after {
            if self.pending.is_empty() || self.step(Nanos::MAX)? == Step::Quiet {
                break;
            }
        }
        if !self.pending.is_empty() {
            let token = self.token(Pending::Close { early: true });
            self.world.control(token, Command::CloseEarly);
            self.drain()?;
        }
        self.open_closed()?;
        self.verify_all()
    }

    /// Opens a pool whose closing was answered, with any fate of its unsynced writes.
    fn open_closed(&mut self) -> Checked {
        if let Some(due) = self.world.engine.next_timer() {
            return violated(format!("a closed pool waits for a timer at {due}"));
        }
        self.rest()?;
        self.model.closed();
        let cut = self.random.pick(&[Cut::Lost, Cut::Kept, Cut::Torn]);
        self.begin_opening(cut)?;
        self.open_fully(None)?;
        self.serve()
    }

    pub(crate) fn crash(&mut self, cut: Cut, again: &[(u64, Cut)], verify: bool) -> Checked {
        if cut == Cut::MidSync {
            self.reach_a_sync()?;
        }
        self.begin_opening(cut)?;
        for (steps, cut) in again {
            if self.open_fully(Some(*steps))? {
                self.serve()?;
            }
            self.begin_opening(*cut)?;
        }
        self.open_fully(None)?;
        self.serve()?;
        if verify { self.verify_all() } else { Ok(()) }
    }

    /// Advances the world to the middle of a sync, if one comes soon.
    fn reach_a_sync(&mut self) -> Checked {
        for _ in 0..STEPS_TO_A_SYNC {
            if self.world.disk.is_syncing() || self.step(self.world.now + SYNC_COMES_WITHIN)? == Step::Quiet {
                break;
            }
        }
        Ok(())
    }

    /// Applies a crash, and begins to open the pool.
    pub(crate) fn begin_opening(&mut self, cut: Cut) -> Checked {
        self.counts.crashes += 1;
        self.is_exact = false;
        let mut disk = self.world.disk.clone();
        disk.crash(cut, &mut self.random);
        let flash = self.world.flash.take();
        let mut trace = std::mem::take(&mut self.world.trace);
        let mut faults = std::mem::replace(&mut self.world.faults, Faults::new(0));
        faults.forget();
        let records = std::mem::take(&mut self.world.records);
        trace.note(self.world.now, 20, &[cut.number()], || format!("======== crash: {cut:?}"));
        self.model.crash();
        self.pending.clear();
        self.struck_before.clear();
        self.struck_before_repairs = Struck::default();
        let random = Random::new(self.random.draw());
        let (parameters, limits) = (self.config.parameters, self.config.limits);
        self.limits = limits;
        let submitted = self.world.submitted;
        self.world = World::open(parameters, limits, disk, self.world.now, random, trace)?;
        self.growth_offered = None;
        (self.world.faults, self.world.records, self.world.submitted) = (faults, records, submitted);
        self.is_counted = false;
        self.acquire()?;
        if let Some(mut flash) = flash {
            flash.crash(cut, self.random.draw());
            self.world.attach_flash(flash);
        }
        self.take_geometry()
    }

    /// Steps until the pool is open or cannot be opened (true), or for at most `most_steps` steps (false).
    pub(crate) fn open_fully(&mut self, most_steps: Option<u64>) -> Checked<bool> {
        self.opened = None;
        let mut steps = 0;
        while self.opened.is_none() {
            if most_steps.is_some_and(|most| steps >= most) {
                return Ok(false);
            }
            self.wait()?;
            steps += 1;
        }
        Ok(true)
    }

    /// Takes the geometry after an opening: the answered one, or the last requested one. Fails for any other.
    pub(crate) fn take_geometry(&mut self) -> Checked {
        let (found, answered) = (self.world.geometry(), self.config.parameters.geometry);
        if found != answered && Some(found) != self.growing {
            return violated(format!("found {found:?}, answered {answered:?}, asked for {:?}", self.growing));
        }
        self.has_grown(found);
        Ok(())
    }

    /// Checks that the pool is open, in a new epoch unless it has failed, and reconciles the model with it.
    pub(crate) fn serve(&mut self) -> Checked {
        match self.opened {
            // A failed pool is not written: it begins no epoch, and the state that it found may not even be durable.
            Some(Ok(recovered)) if self.endures && recovered.failed.is_some() => {}
            Some(Ok(recovered)) if recovered.epoch > self.epoch => self.epoch = recovered.epoch,
            ref other => return violated(format!("opening after epoch {} came to {other:?}", self.epoch)),
        }
        self.failed_before = matches!(self.opened, Some(Ok(recovered)) if recovered.failed.is_some());
        if self.failed_before && !self.endures {
            return violated(format!("the pool has failed, and no fault explains it: {:?}", self.opened));
        }
        self.counts.openings += 1;
        self.names = 0;
        self.reconcile(true)
    }
}
