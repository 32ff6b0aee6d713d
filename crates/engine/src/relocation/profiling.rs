//! The profile of a served pool: the client reads that went to the device, by slot and object.
//!
//! It owns the runs and the table of objects, and nothing of the pool. Noting changes nothing that the engine does. It is there only while
//! an operator has it on; both tables are made then, with all the space that they will ever have.
//!
//! Memory: [`MOST_BYTES`]: 7 MiB for runs and parts, and 5.5 MiB for names.

use alloc::string::String;

use super::objects::{MOST_NAME_BYTES, MOST_NAMES, Objects, Part};
use super::profile::{Merge, Profile};
use super::{Object, Run};
use crate::api::VolumeId;

/// The most runs that are kept.
pub const MOST_RUNS: usize = 1 << 18;
/// The most parts of objects that are kept.
pub const MOST_PARTS: usize = 1 << 17;
/// The most bytes of runs, parts and names of objects.
pub const MOST_BYTES: usize =
    MOST_RUNS * size_of::<Run>() + MOST_PARTS * size_of::<Part>() + MOST_NAMES * size_of::<String>() + MOST_NAME_BYTES;

/// Profile of reads with the objects that they are noted for.
#[derive(Debug)]
pub struct Profiling {
    /// The runs.
    pub profile: Profile,
    /// Objects that blocks belong to.
    pub objects: Objects,
}

impl Default for Profiling {
    fn default() -> Profiling {
        Profiling { profile: Profile::new(Merge::ByObject, MOST_RUNS), objects: Objects::new(MOST_PARTS) }
    }
}

impl Profiling {
    /// Forgets the reads; the table of objects stays.
    pub fn renew(&mut self) {
        self.profile = Profile::new(Merge::ByObject, MOST_RUNS);
    }

    /// Notes the device reads of one request: blocks of a volume in ascending order, and their slots.
    pub fn note(&mut self, volume: VolumeId, blocks: impl Iterator<Item = (u64, u64)>) {
        let mut run: Option<Run> = None;
        for (block, slot) in blocks {
            let object: Object = self.objects.of(volume, block);
            match &mut run {
                Some(run) if run.object == object && run.end() == slot && run.blocks < u32::MAX => run.blocks += 1,
                _ => {
                    let ended = run.replace(Run { slot, blocks: 1, object });
                    self.note_run(ended);
                }
            }
        }
        self.note_run(run);
    }

    fn note_run(&mut self, run: Option<Run>) {
        if let Some(run) = run {
            self.profile.note(run.object, run.slot, run.blocks);
        }
    }
}
