//! Commands: volumes and properties, growing, settling, closing. Each is answered when its effect is durable.

use crate::api::*;
use crate::engine::Engine;
use crate::pool::state::Phase;
use crate::pool::volumes::VolumeChange;
use crate::requests::pending_command::{CommandWait, PendingCommand};

impl Engine {
    pub(crate) fn command(&mut self, token: u64, command: Command<'_>) {
        let checkpoint = |checkpoints| CommandWait::Checkpoint { checkpoints };
        let wait = match command {
            Command::CreateVolume { name, size, policy } => self.pool.create_volume(name, size, policy).map(checkpoint),
            Command::SetVolume { volume, change } => self.pool.set_volume(volume, change).map(checkpoint),
            Command::SetPool(change) => self.pool.set_pool(change).map(checkpoint),
            Command::DeleteVolume { .. } | Command::ResizeVolume { .. } | Command::Grow { .. }
                if !self.pool.takes_changes() =>
            {
                Err(ControlError::ReadOnly)
            }
            Command::CreateSnapshots { volumes, name, seconds } => {
                self.pool.create_snapshots(volumes, name, seconds).map(|group| CommandWait::Snapshots { group })
            }
            Command::CloneSnapshot { snapshot, name } => self.pool.clone_snapshot(snapshot, name).map(checkpoint),
            Command::HoldSnapshot { snapshot, held } => self.pool.hold_snapshot(snapshot, held).map(checkpoint),
            Command::RenameVolume { volume, name } => self.pool.rename_volume(volume, name).map(checkpoint),
            Command::RollBack { volume, snapshot } => {
                self.pool.roll_back(volume, snapshot).map(|group| CommandWait::Snapshots { group })
            }
            Command::DeleteVolume { volume } => self.delete_volume(volume),
            Command::ResizeVolume { volume, size } => self.pool.resizing(volume, size).map(CommandWait::Change),
            Command::Grow { capacity, metadata } => Ok(CommandWait::Grow { capacity, metadata }),
            Command::Scrub { command, seconds } => {
                self.jobs.scrub.command(&mut self.pool, command, seconds).map(checkpoint)
            }
            Command::Dedup { command } => self.jobs.dedup_mut().command(&mut self.pool, command).map(checkpoint),
            Command::Relocate { command } => {
                let done = self.jobs.relocate_mut().command(&mut self.pool, command);
                done.map(|()| checkpoint(self.pool.checkpoint.done()))
            }
            Command::Settle if self.pool.state.read_only() || self.pool.state.phase() != Phase::Serving => {
                Err(ControlError::ReadOnly)
            }
            Command::Settle => {
                // A flush that found no space before may find some now.
                self.pool.durable.buffer_flush_mut().retry();
                Ok(CommandWait::Settle)
            }
            Command::Close if self.pool.state.phase() != Phase::Serving => Err(ControlError::ReadOnly),
            Command::Close => {
                self.pool.state.begin_closing(false);
                Ok(CommandWait::Close { checkpoints: None })
            }
            Command::CloseEarly if !matches!(self.pool.state.phase(), Phase::Serving | Phase::Closing) => {
                Err(ControlError::ReadOnly)
            }
            Command::CloseEarly => {
                self.pool.state.begin_closing(true);
                self.give_up_checkpoint();
                Ok(CommandWait::Close { checkpoints: None })
            }
        };
        match wait {
            Ok(wait) => self.pending_commands.push(PendingCommand { token, wait }),
            Err(error) => self.pool.metadata.io_mut().queue(Effect::ControlReply { token, result: Err(error) }),
        }
    }

    fn delete_volume(&mut self, volume: VolumeId) -> Result<CommandWait, ControlError> {
        let volumes = self.pool.durable.volumes();
        if volumes.find(volume).is_some_and(|at| volumes[at].is_snapshot()) {
            let checkpoints = self.pool.delete_snapshot(volume)?;
            return Ok(CommandWait::Checkpoint { checkpoints });
        }
        self.pool.check_deletion(volume)?;
        Ok(CommandWait::Change(VolumeChange::Delete { volume }))
    }

    /// Answers the commands that are done.
    pub(crate) fn step_commands(&mut self) {
        let mut at = 0;
        while at < self.pending_commands.len() {
            let PendingCommand { token, wait } = self.pending_commands[at];
            let done = match wait {
                CommandWait::Checkpoint { checkpoints } => {
                    (self.pool.checkpoint.done() >= checkpoints).then_some(Ok(()))
                }
                CommandWait::Snapshots { group } => self.pool.take_snapshots_result(group),
                CommandWait::Change(change) => self.begin_change(at, change),
                CommandWait::Record { sequence } => {
                    (self.pool.durable.journal().durable() >= sequence).then_some(Ok(()))
                }
                CommandWait::Grow { capacity, metadata } => self.pool.step_growth(capacity, metadata),
                CommandWait::Settle => self.is_settled(),
                CommandWait::Close { checkpoints } => self.is_closed(at, checkpoints),
            };
            match done {
                Some(result) => {
                    // The jobs of this pump have already run: slots that became free meanwhile may be those that one of them waits for.
                    self.pool.wake();
                    self.pending_commands.remove(at);
                    self.pool.metadata.io_mut().queue(Effect::ControlReply { token, result });
                }
                None => at += 1,
            }
        }
    }

    /// Makes a change as soon as there is space for it; then its record has to become durable. Returns `None` while the command waits.
    fn begin_change(&mut self, at: usize, change: VolumeChange) -> Option<Result<(), ControlError>> {
        match self.pool.change_volume(change, self.time_slices.has_clears()) {
            Ok(Some(sequence)) => {
                self.pool.durable.journal_mut().want_durable(sequence);
                self.pending_commands[at].wait = CommandWait::Record { sequence };
                self.pool.wake();
                None
            }
            // The checkpoint that makes space has been asked for.
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn is_settled(&mut self) -> Option<Result<(), ControlError>> {
        let buffered = !self.pool.durable.map_buffer().is_empty();
        let unmerged = !self.pool.durable.delta().is_empty()
            || self.pool.has_discards()
            || self.pool.has_hidden_to_count()
            || buffered
            || self.pool.unneeded_snapshot().is_some()
            || self.pool.awaits_hand_over();
        if self.pool.state.untouched() {
            return Some(if unmerged { Err(ControlError::ReadOnly) } else { Ok(()) });
        }
        if unmerged || self.jobs.checkpoint.is_some() {
            self.pool.ask_to_flush();
            if unmerged && self.jobs.checkpoint.is_none() && !self.pool.wants_checkpoint() {
                if buffered && self.pool.durable.buffer_flush().is_stuck() {
                    return Some(Err(ControlError::NoSpace));
                }
                self.pool.request_checkpoint_and_wake();
            }
            return None;
        }
        self.jobs.reclaim(&mut self.pool, &self.repairs);
        if self.pool.durable.space().pending().is_empty() {
            return Some(Ok(()));
        }
        self.pool.publish_pending();
        self.commit();
        None
    }

    /// Abandons the checkpoint in progress: no other will end, and requests and commands that wait for one are refused.
    fn give_up_checkpoint(&mut self) {
        self.jobs.stop_filling_index();
        if let Some(mut checkpoint) = self.jobs.take_checkpoint(&mut self.pool) {
            checkpoint.abandon_checkpoint(&mut self.pool);
            // Requests in flight still ask it for the states of slots.
            self.jobs.lend_checkpoint(&mut self.pool, checkpoint);
        }
        while let Some(id) = self.queues.pop_for_space() {
            self.fail_request(id, Error::ShuttingDown);
        }
        self.fail_commands();
    }

    fn is_closed(&mut self, at: usize, checkpoints: Option<u64>) -> Option<Result<(), ControlError>> {
        if self.requests.active() > 0 || !self.only_closes() {
            return None;
        }
        if self.pool.state.read_only() {
            if !self.failure_is_kept() {
                return None;
            }
            self.pool.state.close();
            return Some(Err(ControlError::ReadOnly));
        }
        if self.pool.state.untouched() {
            self.pool.state.close();
            return Some(Ok(()));
        }
        if let Some(error) = self.close_without_space() {
            self.pool.state.close();
            return Some(Err(error));
        }
        if self.pool.state.closes_early() {
            let more = self.pool.durable.journal_mut().want_all_durable();
            self.pool.wake_if(more);
            if !self.pool.durable.journal().is_durable() || self.pool.metadata.io().in_flight() > 0 {
                return None;
            }
            self.pool.state.close();
            return Some(Err(ControlError::NoCheckpoint));
        }
        if self.pool.state.metadata_full()
            && self.pool.durable.journal().is_durable()
            && self.pool.metadata.io().in_flight() == 0
        {
            // The checkpoint finds no space on the host. The journal has everything that it would hold.
            self.pool.state.close();
            return Some(Err(ControlError::HostFull));
        }
        let Some(checkpoints) = checkpoints else {
            let checkpoints = Some(self.pool.after_next_checkpoint());
            self.pending_commands[at].wait = CommandWait::Close { checkpoints };
            self.pool.wake();
            return None;
        };
        if self.pool.checkpoint.done() < checkpoints || self.pool.metadata.io().in_flight() > 0 {
            return None;
        }
        self.pool.state.close();
        Some(Ok(()))
    }
}
