//! The queue of commands that wait for a disk. The next one is chosen in the order of arrival, by the elevator of the host, or by the drive's own choice.
//! Flushes come first, commands of the background only when no other waits.

use std::collections::{BTreeMap, VecDeque};

use engine::Nanos;

use super::{Class, Command, Op, Tag};

/// Rules that choose the next command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Order of arrival.
    Fifo,
    /// Upwards from the position of the arm, then again from the lowest (C-LOOK); commands that continue each other become one. Hosts do so.
    #[default]
    Clook,
    /// Among the first 31 the one that is reached first. Drives with native command queueing do so.
    Ncq,
}

/// Number of commands that a drive chooses from.
const NCQ_DEPTH: usize = 31;
/// Time for which a drive may pass over a command; then the command is next.
const NCQ_PATIENCE: Nanos = 1_000_000_000;
/// Maximum number of sectors of a command that the host merges from several: 512 KiB.
const LONGEST_MERGED: u64 = 1_024;

/// A waiting command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiting {
    pub tag: Tag,
    pub submitted: Nanos,
    pub command: Command,
    /// Its first sector.
    pub sector: u64,
    /// Its sectors.
    pub sectors: u64,
}

/// Waiting commands of one class.
#[derive(Clone, Debug, Default)]
struct Line {
    arrived: VecDeque<Waiting>,
    sorted: BTreeMap<(u64, u64), Waiting>,
}

/// All waiting commands.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    policy: Policy,
    flushes: VecDeque<Waiting>,
    lines: [Line; 2],
    sequence: u64,
    /// Sector after the last command.
    position: u64,
}

impl Queue {
    pub(super) fn new(policy: Policy) -> Queue {
        Queue { policy, ..Queue::default() }
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        let line = &mut self.lines[usize::from(waiting.command.class == Class::Background)];
        self.sequence += 1;
        match (waiting.command.op, self.policy) {
            (Op::Flush, _) => self.flushes.push_back(waiting),
            (_, Policy::Clook) => _ = line.sorted.insert((waiting.sector, self.sequence), waiting),
            (_, Policy::Fifo | Policy::Ncq) => line.arrived.push_back(waiting),
        }
    }

    /// Takes the next command, or several that continue each other, in order. `reach` returns the time that the disk takes to reach one.
    pub(super) fn take(&mut self, now: Nanos, reach: impl Fn(&Waiting) -> Nanos) -> Vec<Waiting> {
        if let Some(flush) = self.flushes.pop_front() {
            return vec![flush];
        }
        let line = if self.lines[0].is_empty() { 1 } else { 0 };
        let line = &mut self.lines[line];
        let taken = match self.policy {
            Policy::Fifo => line.arrived.pop_front().into_iter().collect(),
            Policy::Ncq => {
                let oldest = line.arrived.front().map_or(now, |first| first.submitted);
                let choice = (0..line.arrived.len().min(NCQ_DEPTH)).min_by_key(|&at| reach(&line.arrived[at]));
                let choice = if now - oldest > NCQ_PATIENCE { Some(0) } else { choice };
                choice.and_then(|at| line.arrived.remove(at)).into_iter().collect()
            }
            Policy::Clook => line.take_upwards(self.position),
        };
        if let Some(last) = taken.last() {
            self.position = last.sector + last.sectors;
        }
        taken
    }
}

impl Line {
    fn is_empty(&self) -> bool {
        self.arrived.is_empty() && self.sorted.is_empty()
    }

    fn take_upwards(&mut self, position: u64) -> Vec<Waiting> {
        let above = self.sorted.range((position, 0)..).next().or_else(|| self.sorted.iter().next());
        let Some((&key, &first)) = above else { return Vec::new() };
        self.sorted.remove(&key);
        let mut taken = vec![first];
        let (mut end, mut sectors) = (first.sector + first.sectors, first.sectors);
        while let Some((&key, &next)) = self.sorted.range((end, 0)..).next()
            && next.sector == end
            && next.command.op == first.command.op
            && sectors + next.sectors <= LONGEST_MERGED
        {
            self.sorted.remove(&key);
            taken.push(next);
            (end, sectors) = (end + next.sectors, sectors + next.sectors);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(tag: Tag, sector: u64, class: Class) -> Waiting {
        let command = Command { op: Op::Read, offset: sector * 512, bytes: 4096, class };
        Waiting { tag, submitted: 0, command, sector, sectors: 8 }
    }

    fn order(policy: Policy, sectors: &[u64]) -> Vec<Vec<Tag>> {
        let mut queue = Queue::new(policy);
        for (tag, &sector) in sectors.iter().enumerate() {
            queue.push(waiting(tag as Tag, sector, Class::Foreground));
        }
        let mut order = Vec::new();
        loop {
            let taken = queue.take(0, |waiting| waiting.sector.abs_diff(100));
            if taken.is_empty() {
                return order;
            }
            order.push(taken.iter().map(|waiting| waiting.tag).collect());
        }
    }

    #[test]
    fn fifo_serves_in_the_order_of_arrival() {
        assert_eq!(order(Policy::Fifo, &[30, 10, 20]), [[0], [1], [2]]);
    }

    #[test]
    fn clook_sweeps_upwards_and_merges_what_continues() {
        assert_eq!(order(Policy::Clook, &[300, 100, 108, 116]), [vec![1, 2, 3], vec![0]]);
        let mut queue = Queue::new(Policy::Clook);
        queue.push(waiting(0, 50, Class::Foreground));
        assert_eq!(queue.take(0, |_| 0)[0].tag, 0);
        queue.push(waiting(1, 10, Class::Foreground));
        queue.push(waiting(2, 70, Class::Foreground));
        assert_eq!(queue.take(0, |_| 0)[0].tag, 2, "upwards first");
        assert_eq!(queue.take(0, |_| 0)[0].tag, 1);
    }

    #[test]
    fn ncq_takes_what_is_reached_first_but_nobody_waits_for_ever() {
        assert_eq!(order(Policy::Ncq, &[500, 90, 120]), [[1], [2], [0]]);
        let mut queue = Queue::new(Policy::Ncq);
        queue.push(waiting(0, 500, Class::Foreground));
        queue.push(waiting(1, 100, Class::Foreground));
        assert_eq!(queue.take(NCQ_PATIENCE + 1, |waiting| waiting.sector)[0].tag, 0);
    }

    #[test]
    fn the_background_waits_for_everybody() {
        let mut queue = Queue::new(Policy::Fifo);
        queue.push(waiting(0, 1, Class::Background));
        queue.push(waiting(1, 2, Class::Foreground));
        assert_eq!(queue.take(0, |_| 0)[0].tag, 1);
        assert_eq!(queue.take(0, |_| 0)[0].tag, 0);
    }
}
