//! Critical path of a request: the commands to the drive on which its answer depended, from the last one backwards.
//!
//! A command is entered when the engine issues it, with the completion that was delivered to the engine last: that one is its cause. The answer to a request
//! also has the last completion as its cause. So there is one chain of commands without gaps caused by the drive, and every nanosecond of a response has
//! exactly one cause.

use std::collections::VecDeque;

use engine::Nanos;

use crate::disks::Breakdown;

/// Number of completions that are remembered; older ones count as other waiting.
const REMEMBERED: usize = 1 << 16;

/// Purposes of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Data of clients.
    Data,
    /// Pages of the trees, and superblocks.
    Tables,
    /// Records of the journal, and syncs.
    Journal,
}

/// A command in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    at: Nanos,
    purpose: Purpose,
    cause: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Completed {
    begun: Begun,
    at: Nanos,
    breakdown: Breakdown,
}

/// The completions of a drive, each with its cause.
#[derive(Clone, Debug, Default)]
pub struct Path {
    completed: VecDeque<Completed>,
    /// Number of the first remembered completion.
    first: u64,
}

/// Causes of a span of time. They add up to its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waited {
    /// Commands for data, by their parts.
    pub data: Breakdown,
    /// Commands for tables.
    pub tables: Nanos,
    /// Commands for the journal.
    pub journal: Nanos,
    /// Time without a command of the chain: a timer, or a place among the engine's requests.
    pub other: Nanos,
}

impl Path {
    /// Begins a command, whose cause is the completion that was delivered to the engine last.
    pub fn begin(&self, at: Nanos, purpose: Purpose) -> Begun {
        let cause = (!self.completed.is_empty()).then(|| self.first + self.completed.len() as u64 - 1);
        Begun { at, purpose, cause }
    }

    /// Completes a command.
    pub fn complete(&mut self, begun: Begun, at: Nanos, breakdown: Breakdown) {
        if self.completed.len() == REMEMBERED {
            self.completed.pop_front();
            self.first += 1;
        }
        self.completed.push_back(Completed { begun, at, breakdown });
    }

    /// Divides the time from `since` to `now`, when the engine has just answered, by its causes.
    pub fn waited(&self, since: Nanos, now: Nanos) -> Waited {
        let mut waited = Waited::default();
        let mut cursor = now;
        let mut cause = self.begin(now, Purpose::Data).cause;
        while cursor > since {
            let found = cause.and_then(|number| self.completed.get(number.checked_sub(self.first)? as usize));
            let Some(Completed { begun, at, breakdown }) = found.filter(|completed| completed.at > since) else {
                break;
            };
            waited.other += cursor - at;
            let from = begun.at.max(since);
            let span = at - from;
            match begun.purpose {
                Purpose::Data => waited.data.add(&within(*breakdown, span)),
                Purpose::Tables => waited.tables += span,
                Purpose::Journal => waited.journal += span,
            }
            (cursor, cause) = (from, begun.cause);
        }
        waited.other += cursor - since;
        waited
    }
}

impl Waited {
    /// Sums all causes.
    pub fn total(&self) -> Nanos {
        self.data.total() + self.tables + self.journal + self.other
    }
}

/// Cuts a command's time to its last `span`. The missing front was mostly its queue.
fn within(mut breakdown: Breakdown, span: Nanos) -> Breakdown {
    let mut too_much = breakdown.total().saturating_sub(span);
    let Breakdown { queue, overhead, seek, rotation, transfer } = &mut breakdown;
    for part in [queue, overhead, seek, rotation, transfer] {
        let less = too_much.min(*part);
        *part -= less;
        too_much -= less;
    }
    breakdown.queue += span - breakdown.total();
    breakdown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nanosecond_of_an_answer_is_of_one_kind() {
        let mut path = Path::default();
        let of = |queue, seek, transfer| Breakdown { queue, seek, transfer, ..Breakdown::default() };
        // A page of a table is read from 10 to 30; because of it a block, from 30 to 70; then a timer at 80 lets the journal be written.
        let table = path.begin(10, Purpose::Tables);
        path.complete(table, 30, of(5, 10, 5));
        let block = path.begin(30, Purpose::Data);
        path.complete(block, 70, of(15, 20, 5));
        let journal = path.begin(80, Purpose::Journal);
        path.complete(journal, 95, of(0, 10, 5));
        let all = Waited { data: of(15, 20, 5), tables: 20, journal: 15, other: 15 };
        assert_eq!(path.waited(5, 95), all);
        assert_eq!(all.total(), 90);
        // A request that came when the block was half read waited for its end alone.
        assert_eq!(path.waited(50, 95), Waited { data: of(0, 15, 5), tables: 0, journal: 15, other: 10 });
        assert_eq!(path.waited(95, 95), Waited::default());
        assert_eq!(path.waited(95, 99), Waited { other: 4, ..Waited::default() });
    }
}
