//! Read-ahead of a hard disk: after a read, to the limit of the drive's method, until a command needs the mechanism.
//!
//! Nothing happens sector by sector: the position is computed on demand. While it continues, the arm in [`Hdd`] is where it was when the reading ahead began.

use std::sync::Arc;

use engine::Nanos;

use super::{Arm, Hdd};
use crate::disks::Breakdown;
use crate::disks::drive::ReadAhead;

/// A read-ahead: the time from which on each sector passes, and its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    pub(super) segment: usize,
    pub(super) from: u64,
    pub(super) at: Nanos,
    pub(super) until: u64,
}

impl Hdd {
    /// Returns the time at which a sector that is being read ahead, or has been, is in the buffer.
    pub(super) fn coming(&self, sector: u64) -> Option<Nanos> {
        let ahead = self.ahead.as_ref()?;
        let start = self.buffer.segments[ahead.segment].start;
        (start..ahead.until).contains(&sector).then(|| self.walk(ahead, None, sector + 1).1)
    }

    /// Serves a read of sectors that are being read ahead, or have been, without a seek; `None` if it is not such a read.
    pub(super) fn read_of_ahead(&mut self, now: Nanos, sector: u64, end: u64) -> Option<Breakdown> {
        let ahead = self.ahead?;
        let segment = self.buffer.segments[ahead.segment];
        if self.free > now || sector < segment.start || sector > ahead.until {
            return None;
        }
        if self.walk(&ahead, Some(now), ahead.until).0 == ahead.until {
            self.stop_ahead(now);
            return None;
        }
        let drive = Arc::clone(&self.drive);
        let overhead = self.left_of(drive.overheads.read_hit);
        let bus = (end - sector) * drive.bus_sector;
        let mut done = now + overhead + bus;
        let mut next = Ahead { until: ahead.until.max(end), ..ahead };
        if end > ahead.from {
            let (_, at, arm) = self.walk(&ahead, None, end);
            done = done.max(at + drive.bus_sector);
            (next.from, next.at) = (end, at);
            self.arm = arm;
        }
        next.until = next.until.max(self.ahead_limit(sector, end, true));
        let segment = &mut self.buffer.segments[ahead.segment];
        segment.end = segment.end.max(next.from);
        segment.dirty_from = segment.end;
        segment.start = segment.start.max(next.until.saturating_sub(drive.segment_sectors)).min(sector);
        self.ahead = Some(next);
        self.buffer.touch(ahead.segment);
        let rotation = done - (now + overhead + bus);
        Some(Breakdown { overhead, transfer: bus, rotation, ..Breakdown::default() })
    }

    /// Simulates reading ahead, up to a sector or to a time: returns the sector and the time that it reaches, and the arm then.
    pub(super) fn walk(&self, ahead: &Ahead, by: Option<Nanos>, until: u64) -> (u64, Nanos, Arm) {
        let geometry = &self.drive.geometry;
        let (mut sector, mut at, mut arm) = (ahead.from, ahead.at, self.arm);
        while sector < until {
            let run = geometry.locate(sector);
            let there = at + self.moving(arm, &run);
            let wait = (run.angle + geometry.revolution - there % geometry.revolution) % geometry.revolution;
            let begin = there + wait;
            let left = by.map_or(Nanos::MAX, |by| by.saturating_sub(begin));
            if left == 0 {
                break;
            }
            arm = Arm { cylinder: run.cylinder, head: run.head };
            let mut count = run.sectors.min(until - sector);
            let whole = run.time(count, geometry.revolution);
            if whole > left {
                let enough = (left * run.track_sectors / geometry.revolution + 1).min(count);
                count = if run.time(enough, geometry.revolution) > left { enough.saturating_sub(1) } else { enough };
                return (sector + count, begin + left, arm);
            }
            (sector, at) = (sector + count, begin + whole);
        }
        (sector, at, arm)
    }

    /// Ends reading ahead.
    pub(super) fn stop_ahead(&mut self, now: Nanos) {
        let Some(ahead) = self.ahead.take() else { return };
        let (sector, _, arm) = self.walk(&ahead, Some(now), ahead.until);
        self.arm = arm;
        let segment = &mut self.buffer.segments[ahead.segment];
        segment.end = segment.end.max(sector);
        segment.dirty_from = segment.end;
        segment.start = segment.start.max(segment.end.saturating_sub(self.drive.segment_sectors));
    }

    pub(super) fn begin_ahead(&mut self, segment: usize, from: u64, at: Nanos, sequential: bool) {
        let until = self.ahead_limit(self.buffer.segments[segment].start, from, sequential);
        self.ahead = (until > from).then_some(Ahead { segment, from, at, until });
    }

    /// Continues reading ahead after a hit, if the drive does so and little is left.
    pub(super) fn ahead_again(&mut self, at: usize, end: u64, now: Nanos) {
        let segment = self.buffer.segments[at];
        let little = segment.end - end.min(segment.end) <= self.drive.most_ahead / 2;
        if self.drive.ahead_on_hit && self.ahead.is_none() && !segment.written && little {
            self.begin_ahead(at, segment.end, now.max(self.free), true);
        }
    }

    /// Returns the sector up to which the drive reads ahead, in a segment that begins at `start`, when `end` is the end of the read.
    pub(super) fn ahead_limit(&self, start: u64, end: u64, sequential: bool) -> u64 {
        let (drive, geometry) = (&self.drive, &self.drive.geometry);
        if end >= geometry.sectors {
            return end;
        }
        let track = |sector: u64| sector + geometry.locate(sector).sectors;
        let limit = match drive.read_ahead {
            ReadAhead::None => end,
            ReadAhead::Track => track(end - 1),
            ReadAhead::Cylinder => {
                let cylinder = geometry.locate(end - 1).cylinder;
                let mut limit = track(end - 1);
                while limit < geometry.sectors && geometry.locate(limit).cylinder == cylinder {
                    limit = track(limit);
                }
                limit
            }
            ReadAhead::Segment => end + drive.most_ahead,
            ReadAhead::NextTrack if sequential => track(track(end - 1).min(geometry.sectors - 1)),
            ReadAhead::NextTrack => end,
        };
        let space = if drive.over_requested { end + drive.most_ahead } else { start + drive.segment_sectors };
        limit.min(end + drive.most_ahead).min(space).min(geometry.sectors).max(end)
    }
}
