//! The profile of device reads that a server keeps (docs/relocation.md): what is asked about it, and what is answered.
//!
//! Whoever wants the runs asks for a few at a time, by their numbers, so that neither the data path nor a line on the control socket waits
//! for all of them. The plan is made by the one who asks, in a process of its own.

use engine::relocation::profiling::MOST_BYTES;
use engine::relocation::{Object, Run};
use serde::{Deserialize, Serialize};

use crate::io::record::Recorded;

/// Runs in an answer.
const RUNS_AT_ONCE: usize = 1024;

/// What can be asked.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Ask {
    /// Begin to note; while it is noted already, that goes on.
    Start,
    /// End that, and forget all.
    Stop,
    /// End the open runs, and say what there is.
    Summary,
    /// Some runs, from the one with this number on.
    Runs {
        /// The number.
        from: u64,
    },
}

impl Ask {
    /// Bytes that the profile takes after it, of so many before.
    pub fn memory(self, before: u64) -> u64 {
        match self {
            Ask::Start => MOST_BYTES as u64,
            Ask::Stop => 0,
            Ask::Summary | Ask::Runs { .. } => before,
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
}

/// Words for a profile that is not there.
pub const OFF: &str = "no reads are noted: 'onefold relocate profile start POOL' begins it";

/// Answers in the server.
pub fn answer(engine: &mut Recorded, ask: Ask) -> Result<Answer, String> {
    match ask {
        Ask::Start => engine.set_profiling(true),
        Ask::Stop => engine.set_profiling(false),
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

/// A run, as it was answered.
pub fn run((slot, blocks, object): (u64, u32, u32)) -> Run {
    Run { slot, blocks, object: Object(object) }
}
