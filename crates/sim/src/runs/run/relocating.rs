//! Relocation plans: the reads that a run notes, and its commands to the engine.

use engine::relocation::assess::{Sharing, assess};
use engine::relocation::plan::{Rules, plan};
use engine::relocation::profile::contents;
use engine::{Command, RelocateCommand};

use crate::Checked;
use crate::runs::run::{Pending, Run};
use crate::runs::workload::Relocating;

impl Run {
    /// Applies a command about a plan. Blocks that a plan copies are stored twice for a while, and after a crash.
    pub(crate) fn relocate(&mut self, what: Relocating) -> Checked {
        self.is_exact = false;
        match what {
            Relocating::Note => {
                self.world.engine.set_profiling(false);
                self.world.engine.set_profiling(true);
            }
            Relocating::Run { most_blocks } => {
                let Some(profiling) = self.world.engine.profiling_mut() else { return Ok(()) };
                let runs = profiling.profile.runs().to_vec();
                let rules = Rules { most_blocks, ..Rules::OURS };
                let plan = plan(&assess(&runs, Sharing::default()), &contents(&runs), rules);
                let rows = plan.moves.iter().flat_map(|one| &one.extents).map(|extent| (extent.slot, extent.blocks));
                self.begin(&rows.collect::<Vec<_>>());
            }
            Relocating::All => self.begin(&[(0, self.world.engine.geometry().slots())]),
            Relocating::Rest => self.ask(RelocateCommand::Pause),
            Relocating::GoOn => self.ask(RelocateCommand::Start),
            Relocating::End => self.ask(RelocateCommand::Stop),
        }
        Ok(())
    }

    fn begin(&mut self, extents: &[(u64, u64)]) {
        self.ask(RelocateCommand::Plan { begins: true, extents });
        self.ask(RelocateCommand::Start);
    }

    fn ask(&mut self, command: RelocateCommand<'_>) {
        let token = self.token(Pending::Relocate);
        self.world.control(token, Command::Relocate { command });
    }
}
