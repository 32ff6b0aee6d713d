//! A drive's buffer: segments of consecutive sectors, read or written, of which the least recently used is evicted first.

use engine::Nanos;

/// A segment of the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Segment {
    /// Its first sector.
    pub start: u64,
    /// Sector after its last.
    pub end: u64,
    /// First sector that is not on the medium yet; the end, if all are.
    pub dirty_from: u64,
    /// Time at which all of it has come from the host.
    pub ready: Nanos,
    /// Time until which it is being written to the medium.
    pub busy: Nanos,
    /// True if it was written, false if it was read.
    pub written: bool,
    /// Count at which it was last used.
    pub used: u64,
}

impl Segment {
    fn overlaps(&self, sector: u64, end: u64) -> bool {
        self.start < end && sector < self.end
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty_from < self.end
    }
}

/// The segments.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub segments: Vec<Segment>,
    clock: u64,
}

impl Buffer {
    pub(super) fn new(segments: usize) -> Buffer {
        Buffer { segments: vec![Segment::default(); segments], clock: 0 }
    }

    /// Notes that a segment was used.
    pub(super) fn touch(&mut self, segment: usize) {
        self.clock += 1;
        self.segments[segment].used = self.clock;
    }

    /// Returns the segment that holds all these sectors, for a read.
    pub(super) fn holding(&self, sector: u64, end: u64, also_written: bool) -> Option<usize> {
        let holds = |s: &Segment| s.start <= sector && end <= s.end && (also_written || !s.written);
        self.segments.iter().position(holds)
    }

    /// Returns the segment of an earlier read that this one continues: it has the sector, or ends at it.
    pub(super) fn continued(&self, sector: u64) -> Option<usize> {
        self.segments.iter().position(|s| !s.written && s.start < s.end && s.start <= sector && sector <= s.end)
    }

    /// Returns a segment with a dirty sector among these.
    pub(super) fn dirty_among(&self, sector: u64, end: u64) -> Option<usize> {
        self.segments.iter().position(|s| s.is_dirty() && s.dirty_from < end && sector < s.end)
    }

    /// Returns the written segment in which these sectors are all dirty still.
    pub(super) fn absorbing(&self, sector: u64, end: u64) -> Option<usize> {
        self.segments.iter().position(|s| s.is_dirty() && s.dirty_from <= sector && end <= s.end)
    }

    /// Returns the dirty or busy segment that a write continues, if it has space.
    pub(super) fn appending(&self, sector: u64, sectors: u64, now: Nanos, space: u64) -> Option<usize> {
        let fits = |s: &Segment| sector + sectors - s.dirty_from.min(sector) <= space;
        let alive = |s: &Segment| s.written && (s.is_dirty() || s.busy > now);
        self.segments.iter().position(|s| alive(s) && s.end == sector && fits(s))
    }

    /// Returns the number of segments whose data are not all on the medium at this time.
    pub(super) fn unwritten(&self, now: Nanos) -> usize {
        self.segments.iter().filter(|s| s.is_dirty() || s.busy > now).count()
    }

    /// Empties the least recently used segment that holds nothing unwritten, and returns it; `but` is the last choice.
    pub(super) fn give_up(&mut self, now: Nanos, but: Option<usize>) -> Option<usize> {
        let free = |&at: &usize| !self.segments[at].is_dirty() && self.segments[at].busy <= now;
        let oldest = |at: &usize| (Some(*at) == but, self.segments[*at].used);
        let at = (0..self.segments.len()).filter(free).min_by_key(oldest)?;
        self.segments[at] = Segment::default();
        self.touch(at);
        Some(at)
    }

    /// Drops all segments of reads.
    pub(super) fn forget_reads(&mut self) {
        for s in self.segments.iter_mut().filter(|s| !s.written) {
            *s = Segment { used: s.used, ..Segment::default() };
        }
    }

    /// Drops overwritten sectors.
    pub(super) fn invalidate(&mut self, sector: u64, end: u64) {
        for s in self.segments.iter_mut().filter(|s| !s.is_dirty() && s.overlaps(sector, end)) {
            if s.start < sector {
                s.end = sector;
            } else {
                s.start = end.min(s.end);
            }
            s.dirty_from = s.end;
        }
    }
}
