//! Control requests about the profile of device reads that a server keeps (docs/papers/rededup.md), and their answers.
//!
//! A client requests a few runs at a time, by their numbers, so that neither the data path nor a line on the control socket waits for all of them. The client
//! makes the plan, in a process of its own.

use engine::VolumeId;
use engine::relocation::objects::{FIRST, Part, Refusal};
use engine::relocation::profiling::{MOST_BYTES, MOST_RUNS, Profiling};
use engine::relocation::{Object, Run};
use serde::{Deserialize, Serialize};

use crate::io::record::Recorded;
use crate::operators::selection::VOLUMES_AT_ONCE;
use crate::report::status::no_volume;

/// Runs or parts in an answer.
const RUNS_AT_ONCE: usize = 1024;
/// Limit of the bytes of names in an answer: a name is added only if those before it have fewer. So the last one may exceed it.
const NAMES_AT_ONCE: usize = 32 << 10;

/// Request about the profile.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Ask {
    /// Begin to note reads; if they are noted already, noting continues.
    Start,
    /// Stop noting, and forget all reads, runs and objects.
    Stop,
    /// Forget the reads, and continue noting; parts of objects stay known.
    Renew,
    /// Close the open runs, and answer with a summary.
    Summary,
    /// Some volumes, behind this number.
    Volumes {
        /// The number.
        behind: u16,
    },
    /// Some runs, from this number on.
    Runs {
        /// The number.
        from: u64,
    },
    /// Some names of objects, from this place on.
    Names {
        /// The place.
        from: usize,
    },
    /// Assign parts of a volume to objects.
    Import {
        /// The volume.
        volume: String,
        /// True if earlier assignments in this volume are forgotten first.
        begins: bool,
        /// Names of objects, and the parts of each: first block and number of blocks.
        objects: Vec<(String, Vec<(u64, u32)>)>,
    },
    /// Some parts of volumes that belong to objects, from this place on.
    Parts {
        /// The place.
        from: usize,
    },
    /// Load a saved profile, which is put together beside the present one.
    Load {
        /// Number of the client that loads it; a load continues only for the client that began last.
        by: u32,
        /// Step of the load.
        step: Step,
    },
}

/// A step of the load of a saved profile.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The load begins.
    Begin {
        /// Reads that it was made of.
        reads: u64,
        /// Runs of it that were forgotten.
        dropped: u64,
    },
    /// Some rows, in the order of the file.
    Rows(Vec<Row>),
    /// All rows have been sent: the new profile replaces the present one.
    End,
}

/// A row of a saved profile.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// The name of the next object that is no volume; they have numbers from [`FIRST`] on.
    Name(String),
    /// A part of a volume that belongs to an object: volume, first block, blocks, object.
    Part(u16, u64, u32, u32),
    /// A run: slot, blocks, object.
    Run(u64, u32, u32),
}

impl Row {
    /// Puts the row into a profile of a pool of `slots` slots; the error says why it does not fit.
    pub fn put(&self, profiling: &mut Profiling, slots: u64) -> Result<(), String> {
        let Profiling { profile, objects } = profiling;
        let know = |object: u32| match object.checked_sub(FIRST) {
            Some(at) if at as usize >= objects.names().len() => Err(format!("no name comes before of object {object}")),
            _ => Ok(Object(object)),
        };
        match *self {
            Row::Name(ref name) => {
                if objects.names().last() == Some(name) {
                    return Err("two objects in a row have this name".into());
                }
                objects.named(name).map(drop).map_err(|_| FULL.into())
            }
            Row::Part(volume, block, blocks, object) => {
                let part = Part { block, blocks, object: know(object)?, volume: VolumeId(volume) };
                objects.insert(part).map_err(|refusal| match refusal {
                    Refusal::Full => FULL.into(),
                    Refusal::Overlaps(_) => "some of its blocks belong to an object already".into(),
                    Refusal::NoBlocks => "it has no blocks".into(),
                })
            }
            Row::Run(slot, blocks, object) => {
                if blocks == 0 || slot.checked_add(u64::from(blocks)).is_none_or(|end| end > slots) {
                    return Err(format!(
                        "it is a run of {blocks} slots from {slot} on, and the pool has {slots}, counted from 0"
                    ));
                }
                match profile.take_up(run((slot, blocks, know(object)?.0))) {
                    true => Ok(()),
                    false => Err(format!("it is one run more than the {MOST_RUNS} that a profile keeps")),
                }
            }
        }
    }
}

/// An answer.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Summary of the profile and the pool.
    Summary {
        /// True while reads are noted.
        on: bool,
        /// Reads that were noted.
        reads: u64,
        /// Runs that were forgotten for want of space.
        dropped: u64,
        /// The number behind the last run.
        ended: u64,
        /// Slots of the pool.
        slots: u64,
    },
    /// Some volumes.
    Volumes {
        /// Numbers and names, in the order of the numbers; none: there are no more.
        volumes: Vec<(u16, String)>,
    },
    /// Some runs: slot, blocks and object.
    Runs {
        /// The number behind the last of these.
        next: u64,
        /// Runs in the order of their numbers.
        runs: Vec<(u64, u32, u32)>,
    },
    /// Some names of objects.
    Names {
        /// Names in the order of the objects' numbers; none: there are no more.
        names: Vec<String>,
    },
    /// Some parts: volume, first block, blocks and object.
    Parts {
        /// Volume, first block, number of blocks and object of each part, in the order of volumes and blocks; empty if there are no more.
        parts: Vec<(u16, u64, u32, u32)>,
    },
    /// The step of a load was accepted, and the load continues.
    Loading,
    /// N parts were assigned, and N left out because another object has some of their blocks, or because they have no blocks.
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
const FULL: &str = "there is no space for more objects, which are at most 65536 names of 4 MiB, in 131072 parts: import those that matter";

/// Text for a load that another client's has ended, or that of another file.
const ANOTHER: &str =
    "another load has begun, or the profile was stopped: nothing of this one counts; load it once more";

/// Loads of profiles in a server, beside the profile that the engine keeps.
#[derive(Default)]
pub struct Profiles {
    /// Profile that is being loaded, and its client.
    loading: Option<(u32, Box<Profiling>)>,
}

impl Profiles {
    /// Returns the bound on the bytes that all profiles take after a request, which is `before` now.
    pub fn memory_after(&self, ask: &Ask, before: u64) -> u64 {
        let one = MOST_BYTES as u64;
        match ask {
            Ask::Start => before.max(one),
            Ask::Stop => 0,
            Ask::Load { step: Step::Begin { .. }, .. } => 2 * one,
            Ask::Load { by, step: Step::End } if self.loading.as_ref().is_some_and(|(other, _)| other == by) => one,
            _ => before,
        }
    }

    /// Answers in the server.
    pub fn answer(&mut self, engine: &mut Recorded, ask: Ask) -> Result<Answer, String> {
        match ask {
            Ask::Start => engine.set_profiling(true),
            Ask::Stop => {
                self.loading = None;
                engine.set_profiling(false);
            }
            Ask::Renew => engine.profiling_mut().ok_or(OFF)?.renew(),
            Ask::Summary => {}
            Ask::Volumes { behind } => {
                let some = engine.volumes_above(VolumeId(behind)).take(VOLUMES_AT_ONCE);
                return Ok(Answer::Volumes {
                    volumes: some.map(|volume| (volume.id.0, engine.full_name(volume))).collect(),
                });
            }
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
                let id = engine.volume_named(&volume).map(|one| one.id);
                let id = id.ok_or_else(|| no_volume(&volume))?;
                let profiling = engine.profiling_mut().ok_or(OFF)?;
                if begins {
                    profiling.objects.forget(id);
                }
                return import(profiling, id, &objects);
            }
            Ask::Parts { from } => {
                let parts = engine.profiling().ok_or(OFF)?.objects.parts().get(from..).unwrap_or_default();
                let some = parts.iter().take(RUNS_AT_ONCE);
                let parts = some.map(|part| (part.volume.0, part.block, part.blocks, part.object.0)).collect();
                return Ok(Answer::Parts { parts });
            }
            Ask::Load { by, step } => {
                if self.load(engine, by, step)? {
                    return Ok(Answer::Loading);
                }
            }
        }
        let slots = engine.geometry().slots();
        let Some(profiling) = engine.profiling_mut() else {
            return Ok(Answer::Summary { on: false, reads: 0, dropped: 0, ended: 0, slots });
        };
        let profile = &mut profiling.profile;
        profile.end_open();
        let (reads, dropped, ended) = (profile.reads(), profile.dropped(), profile.ended());
        Ok(Answer::Summary { on: true, reads, dropped, ended, slots })
    }

    /// Carries out a step of a load; returns false after the last one. Fails if the load of another client, or a stop of the profile, has ended this one.
    fn load(&mut self, engine: &mut Recorded, by: u32, step: Step) -> Result<bool, String> {
        if let Step::Begin { reads, dropped } = step {
            may_be_counted(reads, dropped)?;
            let mut profiling = Box::<Profiling>::default();
            profiling.profile.go_on_from(reads, dropped);
            self.loading = Some((by, profiling));
            return Ok(true);
        }
        let (_, mut profiling) = self.loading.take_if(|(other, _)| *other == by).ok_or(ANOTHER)?;
        if let Step::Rows(rows) = step {
            let slots = engine.geometry().slots();
            rows.iter().try_for_each(|row| row.put(&mut profiling, slots))?;
            self.loading = Some((by, profiling));
            return Ok(true);
        }
        engine.put_profiling(profiling);
        Ok(false)
    }
}

/// Checks that a profile can continue to count from these numbers: both must be at most half of `u64::MAX`.
pub fn may_be_counted(reads: u64, dropped: u64) -> Result<(), &'static str> {
    let most = u64::MAX / 2;
    if reads.max(dropped) <= most { Ok(()) } else { Err("nobody has noted so many reads, or forgotten so many runs") }
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

/// Converts a run from the form of an answer: slot, blocks and object.
pub fn run((slot, blocks, object): (u64, u32, u32)) -> Run {
    Run { slot, blocks, object: Object(object) }
}
