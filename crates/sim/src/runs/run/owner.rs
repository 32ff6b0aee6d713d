//! Takeovers of the pool by another owner (`world/owner.rs` judges the engine's behaviour then).

use engine::{Command, Nanos};

use crate::runs::run::{Pending, Run};
use crate::world::Step;
use crate::world::disk::Cut;
use crate::{Checked, violated};

impl Run {
    /// Acquires the pool for the engine, if the pools of this run have owners.
    pub(crate) fn acquire(&mut self) -> Checked {
        if !self.config.owned {
            return Ok(());
        }
        self.world.acquire(self.config.seed ^ self.counts.crashes << 32)
    }

    /// Lets another owner take the pool over after some steps, whatever requests are in flight. The engine notices at the next checkpoint, which closing
    /// makes. Then the pool is opened again.
    pub(crate) fn lose(&mut self, after: u64, cut: Cut) -> Checked {
        while self.pending.values().any(|pending| !pending.is_request()) {
            self.wait()?;
        }
        for _ in 0..after {
            if self.pending.is_empty() || self.step(Nanos::MAX)? == Step::Quiet {
                break;
            }
        }
        self.world.take_over()?;
        let token = self.token(Pending::Close { early: false });
        self.world.control(token, Command::Close);
        self.drain()?;
        if !self.world.engine.is_taken_over() {
            return violated(format!("closed, and not noticed: {:?}", self.world.engine.status()));
        }
        while !self.world.is_still() {
            self.step(Nanos::MAX)?;
        }
        self.crash(cut, &[], true)
    }
}
