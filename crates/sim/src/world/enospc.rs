//! Writes for which the host has no space, and the engine's duties towards them.
//!
//! A write that found no space has left some of its blocks. The engine keeps it and repeats it, the same and as a whole. Until then nothing else may be
//! written to its place, or the older write would come last. The answers allowed meanwhile to requests and commands are in `endure.rs`.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::{Engine, IoId};

use crate::random::Random;
use crate::runs::run::Run;
use crate::runs::workload::Operation;
use crate::world::faults::{Class, Faults, Rule};
use crate::{Checked, violated};

/// Writes that found no space and that the engine keeps: their blocks, and a hash of their content.
#[derive(Debug, Default)]
pub(crate) struct Kept(BTreeMap<IoId, (Range<u64>, u64)>);

impl Kept {
    /// Notes a write that found no space, if the engine keeps it to repeat it.
    pub(crate) fn note(&mut self, engine: &Engine, id: IoId, blocks: Range<u64>, hash: u64) {
        if engine.keeps(id) {
            self.0.insert(id, (blocks, hash));
        }
    }

    /// Checks a write that begins, and returns true if it repeats one that found no space. Fails if it has other content or another place, or overlaps a
    /// write that waits.
    pub(crate) fn begins(&mut self, engine: &Engine, id: IoId, blocks: &Range<u64>, hash: u64) -> Checked<bool> {
        if self.0.is_empty() {
            return Ok(false);
        }
        // If the pool has failed meanwhile, no write is repeated.
        self.0.retain(|&kept, _| engine.keeps(kept));
        if let Some(before) = self.0.remove(&id) {
            return match before == (blocks.clone(), hash) {
                true => Ok(true),
                false => violated(format!("{id:?} found no space, and is made again with another content or place")),
            };
        }
        let overtaken = self.0.iter().find(|(_, (waits, _))| waits.start < blocks.end && blocks.start < waits.end);
        match overtaken {
            None => Ok(false),
            Some((kept, (waits, _))) => {
                violated(format!("{id:?} writes blocks {blocks:?}, where {kept:?} waits for space to write {waits:?}"))
            }
        }
    }
}

impl Run {
    /// Performs operations while the host has no space for some of the writes. Then it has space, and all written data becomes durable.
    pub(crate) fn perform_on_full_host(&mut self, operations: &[Operation], number: u64) -> Checked {
        let mut random = Random::new(number ^ 0x6675_6c6c);
        self.world.faults = Faults::new(number);
        self.begin_enduring()?;
        self.world.faults.begin(&[Rule {
            class: Class::FullHost,
            skip: random.below(30),
            count: random.pick(&[1, 5, 40]),
            one_in: random.pick(&[1, 1, 3]),
        }]);
        self.perform(operations)?;
        self.lift();
        self.rest()?;
        self.perform(&[Operation::Flush])?;
        self.check_mode()
    }
}
