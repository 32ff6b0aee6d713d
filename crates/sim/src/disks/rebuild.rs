//! A rebuild of a failed member, at the speed that Linux md allows it (`md_do_sync` up to Linux 4.0).
//!
//! Windows of 128 KiB are read from all other members and written to the new one. The size of the stripe cache limits the windows in progress. Before each
//! window the speed since the oldest mark is taken: KB issued, by whole seconds and one more, and 1. Marks are made every 3 s, and 10 are kept. Above
//! `speed_min` the rebuild sleeps 500 ms when a member did more than 64 sectors of other work since the last look, above `speed_max` always; then it looks
//! again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use engine::Nanos;

use super::raid5::{ROW, STRIPE_CACHE};

/// Bytes between two looks at the speed.
pub(super) const WINDOW: u64 = 128 << 10;
const IN_FLIGHT: usize = STRIPE_CACHE / (WINDOW / ROW) as usize;
const SLEEP: Nanos = 500_000_000;
const SECOND: Nanos = 1_000_000_000;
const MARKS: usize = 10;
const MARK_STEP: Nanos = 3 * SECOND;
/// Sectors of other work that make a member busy.
const IDLE_SECTORS: u64 = 64;

/// A rebuild.
#[derive(Clone, Debug)]
pub struct Rebuild {
    bytes: u64,
    speed_min: u64,
    speed_max: u64,
    issued: u64,
    in_sync: u64,
    /// Reads of each window that are in progress; none when it is being written.
    windows: BTreeMap<u64, usize>,
    /// Windows that are done, past one that is not.
    ahead: BTreeSet<u64>,
    survivors: usize,
    /// Times, and the bytes rebuilt until each.
    marks: VecDeque<(Nanos, u64)>,
    other_sectors: Vec<u64>,
    seen_sectors: Vec<u64>,
    wake: Option<Nanos>,
    finished: Option<Nanos>,
}

impl Rebuild {
    pub(super) fn new(now: Nanos, bytes: u64, members: usize, speed_min: u64, speed_max: u64) -> Rebuild {
        Rebuild {
            bytes,
            speed_min,
            speed_max,
            issued: 0,
            in_sync: 0,
            windows: BTreeMap::new(),
            ahead: BTreeSet::new(),
            survivors: members - 1,
            marks: VecDeque::from([(now, 0)]),
            other_sectors: vec![0; members],
            seen_sectors: vec![0; members],
            wake: Some(now),
            finished: None,
        }
    }

    /// Returns the bytes of each member, from its start, that are in sync; `u64::MAX` when it has finished.
    pub fn in_sync(&self) -> u64 {
        if self.finished.is_some() { u64::MAX } else { self.in_sync }
    }

    /// Returns the time at which it finished.
    pub fn finished(&self) -> Option<Nanos> {
        self.finished
    }

    pub(super) fn wake(&self) -> Option<Nanos> {
        self.wake
    }

    /// Counts a member's work for others.
    pub(super) fn other_work(&mut self, member: usize, bytes: u64) {
        self.other_sectors[member] += bytes / 512;
    }

    /// Returns the window to read now, its offset and length, if there is one and the speed allows it.
    pub(super) fn next_window(&mut self, now: Nanos) -> Option<(u64, u64)> {
        if self.wake.is_none_or(|wake| wake > now) {
            return None;
        }
        if self.issued >= self.bytes || self.windows.len() >= IN_FLIGHT {
            self.wake = None;
            if self.bytes == 0 {
                self.finished.get_or_insert(now);
            }
            return None;
        }
        let (last, _) = self.marks.back().copied().unwrap_or_default();
        if now >= last + MARK_STEP {
            self.marks.push_back((now, self.issued - self.windows.len() as u64 * WINDOW));
            if self.marks.len() > MARKS {
                self.marks.pop_front();
            }
        }
        let (since, before) = self.marks.front().copied().unwrap_or_default();
        let speed = (self.issued - before) / 1024 / ((now - since) / SECOND + 1) + 1;
        if speed > self.speed_min && (speed > self.speed_max || !self.members_idle()) {
            self.wake = Some(now + SLEEP);
            return None;
        }
        let window = (self.issued, WINDOW.min(self.bytes - self.issued));
        self.windows.insert(self.issued, self.survivors);
        self.issued += WINDOW;
        Some(window)
    }

    fn members_idle(&mut self) -> bool {
        let mut idle = true;
        for (seen, &now) in self.seen_sectors.iter_mut().zip(&self.other_sectors) {
            if now - *seen > IDLE_SECTORS {
                (*seen, idle) = (now, false);
            }
        }
        idle
    }

    /// Notes that one of the reads of a window completed. After the last one, returns the bytes to write.
    pub(super) fn read(&mut self, window: u64) -> Option<u64> {
        let left = self.windows.get_mut(&window)?;
        *left -= 1;
        (*left == 0).then(|| WINDOW.min(self.bytes - window))
    }

    /// Notes that a window is on the new member.
    pub(super) fn written(&mut self, now: Nanos, window: u64) {
        self.windows.remove(&window);
        self.ahead.insert(window);
        while self.ahead.remove(&self.in_sync) {
            self.in_sync += WINDOW;
        }
        if self.in_sync >= self.bytes {
            self.finished.get_or_insert(now);
        }
        // It may have waited for a free window.
        self.wake.get_or_insert(now);
    }
}
