//! Rebuilds that begin at several times of a day. Between them the scheme processes the requests without disks.

use std::cell::Cell;

use engine::Nanos;

use super::driver::{IDLE, Replay, Setup};
use super::in_place::{InPlace, Layout};
use super::outcome::Outcome;
use crate::traces::Request;
use sim::disks::Disk;

/// Stretches of a day by which the busiest one is found.
const STRETCH: Nanos = 600_000_000_000;
const HOUR: Nanos = 3_600_000_000_000;

/// Times at which rebuilds begin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Starts {
    /// Start of each hour of the day.
    Hours,
    /// Start of the ten minutes that have the most requests.
    Busiest,
}

impl Starts {
    /// Returns the start times, counted from the first request of the day; none for an empty day.
    pub fn of(self, day: &[Request]) -> Vec<Nanos> {
        let Some(begin) = day.first().map(|request| request.at) else { return Vec::new() };
        let since = |request: &Request| request.at - begin;
        let last = day.last().map_or(0, since);
        match self {
            Starts::Hours => (0..=last / HOUR).map(|hour| hour * HOUR).collect(),
            Starts::Busiest => {
                let mut counts = vec![0_u64; (last / STRETCH + 1) as usize];
                day.iter().for_each(|request| counts[(since(request) / STRETCH) as usize] += 1);
                let most = counts.iter().copied().max().unwrap_or(0);
                let busiest = counts.iter().position(|&count| count == most).unwrap_or(0);
                vec![busiest as Nanos * STRETCH]
            }
        }
    }
}

/// Replays a day; the disks see only the requests that arrive during a rebuild. Each rebuild has an array of its own. A rebuild whose start precedes the end of
/// the previous one is left out. Returns the outcome of each rebuild, with its start time.
pub fn rebuilds<E>(
    scheme: &mut InPlace,
    layout: Layout,
    setup: Setup,
    day: &[Request],
    starts: &[Nanos],
    array: impl Fn() -> Result<Disk, E>,
    check: impl Fn() -> Result<(), E>,
) -> Result<Vec<(Nanos, Outcome)>, E> {
    let begin = day.first().map_or(0, |request| request.at);
    let (mut at, mut outcomes): (usize, Vec<(Nanos, Outcome)>) = (0, Vec::new());
    for &start in starts {
        let first = day.partition_point(|request| request.at < begin + start);
        if first < at || first == day.len() {
            continue;
        }
        for (request, next) in day[at..first].iter().zip(&day[at + 1..]) {
            check()?;
            scheme.request(request.at, request);
            // Each takes some tens of milliseconds of the available idle time.
            for _ in 0..next.at.saturating_sub(request.at) / IDLE {
                if !scheme.has_split() {
                    break;
                }
                scheme.relinearise();
            }
        }
        let taken = Cell::new(first);
        let requests = day[first..].iter().map(|request| {
            check()?;
            taken.set(taken.get() + 1);
            Ok::<_, E>(request.clone())
        });
        let mut disk = array()?;
        let setup = Setup { until_rebuilt: true, ..setup };
        outcomes.push((start, Replay::new(scheme, layout, &mut disk, setup).run(requests)?));
        // The request that came when all was rebuilt is the first that the disks did not see.
        let seen = outcomes.last().map_or(0, |(_, outcome)| outcome.requests() as usize);
        at = taken.get().min(first + seen);
    }
    Ok(outcomes)
}
