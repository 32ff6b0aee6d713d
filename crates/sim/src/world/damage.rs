//! Events that change the disk and the clock without the engine: bit rot and clock jumps.

use engine::Nanos;

use crate::content::{Content, ZERO};
use crate::world::World;
use crate::world::faults::Class;

impl World {
    /// Damages a block that is not zero, in a part of the store that is drawn first, so that small parts have their share.
    pub fn rot(&mut self) {
        let geometry = self.parameters.geometry;
        let parts = [
            0..geometry.journal_start(),
            geometry.journal_start()..geometry.meta_map_start(),
            geometry.meta_map_start()..geometry.metadata_start(),
            geometry.metadata_start()..geometry.data_start(),
            geometry.data_start()..self.disk.blocks(),
        ];
        let part = parts[self.faults.random.below(parts.len() as u64) as usize].clone();
        let is_used = |block: &u64| *self.disk.read(*block) != Content::Payload(ZERO);
        let used: Vec<u64> = part.filter(is_used).collect();
        if used.is_empty() {
            return;
        }
        let block = self.faults.random.pick(&used);
        if self.disk.rot(block, &mut self.faults.random) {
            self.faults.tally.count(Class::BitRot);
            self.trace.note(self.now, 42, &[block], || format!("block {block} rots"));
        }
    }

    /// Moves the clock forward by `time`.
    pub fn jump(&mut self, time: Nanos) {
        self.faults.tally.count(Class::ClockJump);
        self.now += time;
        self.trace.note(self.now, 43, &[time], || "the clock jumps".to_string());
    }
}
