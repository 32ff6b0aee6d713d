//! Events of a flash that is detached and attached while the pool serves.

use crate::runs::run::Run;
use crate::runs::shorthand::SECONDS;
use crate::runs::workload::Fronting;
use crate::world::Step;
use crate::world::flash::Flash;
use crate::{Checked, violated};

/// Number of steps within which a serving pool takes a flash.
const STEPS_TO_ATTACH: u32 = 2000;

impl Run {
    /// Applies an event to the flash.
    pub(crate) fn front(&mut self, what: Fronting) -> Checked {
        match what {
            Fronting::Away => self.world.flash.iter_mut().for_each(Flash::stay_away),
            Fronting::Detach => self.world.detach_flash()?,
            Fronting::Attach => self.attach()?,
            Fronting::Hang { one_in } => self.world.flash.iter_mut().for_each(|flash| flash.hang(one_in)),
            Fronting::Answer => self.world.let_flash_go(),
        }
        Ok(())
    }

    /// Attaches the flash again, if it is away, and retries while the last one still has I/O in flight.
    fn attach(&mut self) -> Checked {
        if !self.world.flash.as_ref().is_some_and(Flash::is_away) {
            return Ok(());
        }
        for _ in 0..STEPS_TO_ATTACH {
            if self.world.attach_again()? {
                return Ok(());
            }
            if self.step(self.world.now + SECONDS)? == Step::Quiet {
                break;
            }
        }
        // A pool that has failed takes none, and I/O that hangs keeps the last one.
        if self.endures || self.world.ownership.taken || self.world.flash_has_something() {
            Ok(())
        } else {
            violated("a pool that serves takes no flash")
        }
    }
}
