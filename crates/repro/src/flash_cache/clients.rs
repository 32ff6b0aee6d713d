//! Concurrent readers, each of which reads one file after another. Their reads wait in the queues of the disks.
//!
//! The policy decides in the order in which reads begin. A reader waits for the store, and then for the write to flash if there is one, as the slides have it.

use std::collections::VecDeque;

use super::disks::Target;
use super::{EXTENT, Level, Simulation};
use sim::disks::{Class, Command, Op};

/// Commands that a reader still has to do for its file.
type Steps = VecDeque<(Target, Command)>;

impl Simulation<'_> {
    /// Reads the files with as many concurrent readers as the setup has clients.
    pub(super) fn read_together(&mut self, files: &[u32]) {
        assert!(self.setup.level == Level::Containers && self.disks.is_some(), "readers wait for disks, by container");
        let mut files = files.iter();
        let mut steps = vec![Steps::new(); self.setup.clients as usize];
        let mut idle: Vec<usize> = (0..steps.len()).rev().collect();
        loop {
            while let Some(reader) = idle.pop() {
                let Some(&file) = files.next() else { break };
                steps[reader] = self.steps_of(file);
                if !self.begin(reader, &mut steps[reader]) {
                    idle.push(reader);
                }
            }
            let Some(reader) = self.disks.as_mut().and_then(|disks| disks.wait()) else { return };
            if !self.begin(reader as usize, &mut steps[reader as usize]) {
                idle.push(reader as usize);
            }
        }
    }

    /// Begins the next step of a reader; false if it has none left.
    fn begin(&mut self, reader: usize, steps: &mut Steps) -> bool {
        let Some((target, command)) = steps.pop_front() else { return false };
        let Some(disks) = &mut self.disks else { return false };
        disks.begin(reader as u64, target, command);
        true
    }

    /// Applies the policy to a file, and returns the disk commands for it.
    fn steps_of(&mut self, file: u32) -> Steps {
        let data = self.data;
        let command = |op, offset, bytes| Command { op, offset, bytes, class: Class::Foreground };
        let mut steps = Steps::new();
        let now = self.next_time();
        for (at, piece) in data.file(file).1.iter().enumerate() {
            self.ask(file, at, now);
            let asked = u64::from(piece.extents) * EXTENT;
            match self.reading.pop() {
                Some((offset, bytes)) => {
                    steps.push_back((Target::Flash, command(Op::Read, offset, bytes + self.entries(bytes))));
                }
                None if self.from_memory < asked => {
                    let whole = self.container_bytes;
                    steps
                        .push_back((Target::Store(piece.container), command(Op::Read, 0, whole + self.entries(whole))));
                }
                None => {}
            }
            for (offset, bytes) in self.writing.drain(..) {
                steps.push_back((Target::Flash, command(Op::Write, offset, bytes)));
            }
            self.from_memory = 0;
        }
        steps
    }
}
