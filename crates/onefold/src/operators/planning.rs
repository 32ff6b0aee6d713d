//! Planner of relocation (docs/papers/rededup.md): takes the profile from the server that keeps it, makes a plan, and gives it to the server. It sends
//! operators' requests, for a few runs at a time: the data path waits for none of it.

use std::collections::BTreeMap;

use anyhow::bail;
use engine::MOST_EXTENTS;
use engine::relocation::assess::{Sharing, assess};
use engine::relocation::clones::unite;
use engine::relocation::forecast::{Forecast, Moved};
use engine::relocation::objects::FIRST;
use engine::relocation::plan::{Plan, Rules, plan};
use engine::relocation::profile::contents;
use engine::relocation::{Object, Run};

use crate::operators::control::{NOT_UNDERSTOOD, Request, Response, RunAction};
use crate::operators::relocate::{self, Answer, Ask};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Rows of slots that are sent at once.
const ROWS_AT_ONCE: usize = 1000;

/// Function that asks a server. A refusal of the server is an error.
pub type Asks<'a> = &'a dyn Fn(&Request) -> anyhow::Result<Response>;

/// A profile, taken from a server.
pub struct Taken {
    /// True if the server notes reads.
    pub on: bool,
    /// Reads noted so far.
    pub reads: u64,
    /// Runs that were forgotten for want of space.
    pub dropped: u64,
    /// Slots of the pool.
    pub slots: u64,
    /// Present volumes: names by numbers.
    pub volumes: BTreeMap<u32, String>,
    /// Names of the objects, from the first that is no volume on.
    pub names: Vec<String>,
    /// Runs that the server has kept.
    pub runs: Vec<Run>,
}

/// Asks about the profile.
pub fn ask(asks: Asks<'_>, ask: Ask) -> anyhow::Result<Answer> {
    match asks(&Request::Relocate(ask))? {
        Response::Relocate(answer) => Ok(answer),
        _ => bail!(NOT_UNDERSTOOD),
    }
}

/// Asks for the present volumes: names by numbers.
pub fn volumes(asks: Asks<'_>) -> anyhow::Result<BTreeMap<u32, String>> {
    let (mut all, mut behind) = (BTreeMap::new(), 0);
    loop {
        let Answer::Volumes { volumes } = ask(asks, Ask::Volumes { behind })? else { bail!(NOT_UNDERSTOOD) };
        match volumes.last() {
            Some((last, _)) if *last > behind => behind = *last,
            Some(_) => bail!(NOT_UNDERSTOOD),
            None => return Ok(all),
        }
        all.extend(volumes.into_iter().map(|(number, name)| (u32::from(number), name)));
    }
}

impl Taken {
    /// Takes all current runs; those that come meanwhile are not waited for.
    pub fn from(asks: Asks<'_>) -> anyhow::Result<Taken> {
        let Answer::Summary { on, reads, dropped, ended, slots } = ask(asks, Ask::Summary)? else {
            bail!(NOT_UNDERSTOOD)
        };
        let (mut runs, mut from) = (Vec::new(), dropped);
        while on && from < ended {
            match ask(asks, Ask::Runs { from })? {
                Answer::Runs { next, runs: some } if next > from => {
                    runs.extend(some.into_iter().map(relocate::run));
                    from = next;
                }
                _ => break,
            }
        }
        let mut names = Vec::new();
        if on {
            while let Answer::Names { names: more } = ask(asks, Ask::Names { from: names.len() })?
                && !more.is_empty()
            {
                names.extend(more);
            }
        }
        Ok(Taken { on, reads, dropped, slots, volumes: volumes(asks)?, names, runs })
    }

    /// Returns the name of an object; a deleted volume is called by its number.
    pub fn name(&self, object: Object) -> String {
        if let Some(name) = object.0.checked_sub(FIRST).and_then(|at| self.names.get(at as usize)) {
            return name.clone();
        }
        self.volumes.get(&object.0).cloned().unwrap_or_else(|| format!("volume {} (deleted)", object.0))
    }

    /// Makes a plan of at most `budget` bytes, cut to the first moves for which the server has space; also returns the number of objects that were read. Of
    /// clones it names the first.
    pub fn plan(&self, budget: Option<u64>) -> (Plan, usize) {
        let contents = contents(&self.runs);
        let rules = Rules { most_blocks: budget.map_or(u64::MAX, |bytes| bytes / BLOCK), ..Rules::OURS };
        let assessments = assess(&unite(&self.runs, &contents), Sharing::OthersRuns);
        let mut plan = plan(&assessments, &contents, rules);
        let mut extents = 0;
        let have_space = plan.moves.iter().take_while(|one| {
            extents += one.extents.len();
            extents <= MOST_EXTENTS
        });
        let moves = have_space.count();
        plan.moves.truncate(moves);
        (plan, contents.len())
    }

    /// Forecasts the effect of a plan on these reads, with moved blocks placed together behind all blocks that were read.
    pub fn forecast(&self, plan: &Plan) -> Forecast {
        let behind = self.runs.iter().map(Run::end).max().map_or(0, |end| end + 1);
        Forecast::new(&self.runs, &Moved::new(plan, behind))
    }
}

/// Gives a plan to the server. False if it moves nothing.
pub fn send(asks: Asks<'_>, plan: &Plan) -> anyhow::Result<bool> {
    let extents = plan.moves.iter().flat_map(|one| &one.extents);
    let rows: Vec<(u64, u64)> = extents.map(|extent| (extent.slot, extent.blocks)).collect();
    for (at, extents) in rows.chunks(ROWS_AT_ONCE).enumerate() {
        asks(&Request::Run(RunAction::Plan { begins: at == 0, extents: extents.to_vec() }))?;
    }
    Ok(!rows.is_empty())
}
