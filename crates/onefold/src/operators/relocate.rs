//! The profile of device reads that a server keeps (docs/relocation.md): what is asked about it, and what is answered.
//!
//! Whoever wants the runs asks for a few at a time, by their numbers, so that neither the data path nor a line on the control socket waits
//! for all of them. The plan is made by the one who asks, in a process of its own.

use engine::VolumeId;
use engine::relocation::objects::{Part, Refusal};
use engine::relocation::profiling::{MOST_BYTES, Profiling};
use engine::relocation::{Object, Run};
use serde::{Deserialize, Serialize};

use crate::io::record::Recorded;
use crate::report::status::no_volume;

/// Runs in an answer.
const RUNS_AT_ONCE: usize = 1024;
/// Bytes of names in an answer, but for the last of them.
const NAMES_AT_ONCE: usize = 32 << 10;

/// What can be asked.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Ask {
    /// Begin to note; while it is noted already, that goes on.
    Start,
    /// End that, and forget all.
    Stop,
    /// Forget the reads, and go on; whose blocks are whose stays known.
    Renew,
    /// End the open runs, and say what there is.
    Summary,
    /// Some runs, from the one with this number on.
    Runs {
        /// The number.
        from: u64,
    },
    /// Some names of objects, from the one with this place on.
    Names {
        /// The place.
        from: usize,
    },
    /// Parts of a volume belong to objects.
    Import {
        /// The volume.
        volume: String,
        /// Whether what belonged to any before does not any more.
        begins: bool,
        /// Names, and the parts of each: the first block, and how many.
        objects: Vec<(String, Vec<(u64, u32)>)>,
    },
}

impl Ask {
    /// Bytes that the profile takes after it, of so many before.
    pub fn memory(&self, before: u64) -> u64 {
        match self {
            Ask::Start => MOST_BYTES as u64,
            Ask::Stop => 0,
            Ask::Renew | Ask::Summary | Ask::Runs { .. } | Ask::Names { .. } | Ask::Import { .. } => before,
        }
    }
}

/// An answer.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// What there is.
    Summary {
        /// Whether reads are noted.
        on: bool,
        /// Reads that were noted.
        reads: u64,
        /// Runs that were forgotten for want of room.
        dropped: u64,
        /// The number behind the last run.
        ended: u64,
        /// Numbers of objects, and the names of the volumes that they are.
        volumes: Vec<(u32, String)>,
    },
    /// Some runs: slot, blocks and object.
    Runs {
        /// The number behind the last of these.
        next: u64,
        /// In the order of their numbers.
        runs: Vec<(u64, u32, u32)>,
    },
    /// Some names of objects.
    Names {
        /// In the order of the objects' numbers; none: there are no more.
        names: Vec<String>,
    },
    /// So many parts were taken, and so many left out, because another object has some of their blocks.
    Imported {
        /// Taken.
        taken: u64,
        /// Left out.
        left_out: u64,
    },
}

/// Words for a profile that is not there.
pub const OFF: &str = "no reads are noted: 'onefold relocate profile start POOL' begins it";

/// Words for a table that is full.
const FULL: &str = "there is no room for more objects, which are at most 65536 names of 4 MiB, in 131072 parts: import those that matter";

/// Answers in the server.
pub fn answer(engine: &mut Recorded, ask: Ask) -> Result<Answer, String> {
    match ask {
        Ask::Start => engine.set_profiling(true),
        Ask::Stop => engine.set_profiling(false),
        Ask::Renew => engine.profiling_mut().ok_or(OFF)?.renew(),
        Ask::Summary => {}
        Ask::Runs { from } => {
            let profiling = engine.profiling().ok_or(OFF)?;
            let (mut next, mut runs) = (profiling.profile.ended(), Vec::new());
            for (number, run) in profiling.profile.runs_from(from).take(RUNS_AT_ONCE) {
                next = number + 1;
                runs.push((run.slot, run.blocks, run.object.0));
            }
            return Ok(Answer::Runs { next, runs });
        }
        Ask::Names { from } => {
            let names = engine.profiling().ok_or(OFF)?.objects.names();
            let mut bytes = 0;
            let more = names.get(from..).unwrap_or_default().iter().take_while(|name| {
                let fits = bytes < NAMES_AT_ONCE;
                bytes += name.len();
                fits
            });
            return Ok(Answer::Names { names: more.cloned().collect() });
        }
        Ask::Import { volume, begins, objects } => {
            let id = engine.volumes().find(|one| one.name == volume).map(|one| one.id);
            let id = id.ok_or_else(|| no_volume(&volume))?;
            let profiling = engine.profiling_mut().ok_or(OFF)?;
            if begins {
                profiling.objects.forget(id);
            }
            return import(profiling, id, &objects);
        }
    }
    let volumes = engine.volumes().map(|volume| (u32::from(volume.id.0), volume.name.clone())).collect();
    let Some(profiling) = engine.profiling_mut() else {
        return Ok(Answer::Summary { on: false, reads: 0, dropped: 0, ended: 0, volumes });
    };
    let profile = &mut profiling.profile;
    profile.end_open();
    let (reads, dropped, ended) = (profile.reads(), profile.dropped(), profile.ended());
    Ok(Answer::Summary { on: true, reads, dropped, ended, volumes })
}

fn import(
    profiling: &mut Profiling,
    volume: VolumeId,
    objects: &[(String, Vec<(u64, u32)>)],
) -> Result<Answer, String> {
    let table = &mut profiling.objects;
    let (mut taken, mut left_out) = (0, 0);
    for (name, parts) in objects {
        let object = table.named(name).map_err(|_| FULL)?;
        for &(block, blocks) in parts {
            match table.insert(Part { block, blocks, object, volume }) {
                Ok(()) => taken += 1,
                Err(Refusal::Full) => return Err(FULL.into()),
                Err(Refusal::Overlaps(_) | Refusal::NoBlocks) => left_out += 1,
            }
        }
    }
    Ok(Answer::Imported { taken, left_out })
}

/// A run, as it was answered.
pub fn run((slot, blocks, object): (u64, u32, u32)) -> Run {
    Run { slot, blocks, object: Object(object) }
}
