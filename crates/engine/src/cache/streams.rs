//! Detection of streams: sequential readers, told from all others by the beginnings of their requests.
//!
//! Each read is compared with the few places where streams continue; a read elsewhere costs no more than that. If it continues none of them, a new
//! stream begins with it, in place of another that is not sequential; those are gone through in turn. Requests of one reader that are in progress
//! together may come in any order: a request continues a stream as long as it begins near its end, on either side.
//!
//! A stream whose requests continue for a while is sequential, and gets a window: the blocks ahead of it within the window are to be read. When a
//! large read's worth of them is used up, the window is opened again, twice as wide.

use core::array;

use crate::api::{Nanos, VolumeId};

use crate::format::entry::Key;

/// The number of streams that are followed at a time.
const STREAMS: usize = 32;
/// Requests in a row that make a stream sequential.
const IN_A_ROW: u32 = 3;
/// Lengths of a stream's last request, ahead of its end or behind, within which a request continues the stream.
const REACH: u64 = 8;
/// Most blocks of that reach.
const REACH_BLOCKS: u64 = 512;
/// Places that are looked at for a new stream: the next read continues from there.
const LOOKED_AT: usize = 4;
/// Time without a request after which a stream has ended.
const ENDS_AFTER: Nanos = 1_000_000_000;
/// The first window, in blocks.
const FIRST_WINDOW: u64 = 32;

/// A reader of ascending blocks.
pub(crate) struct Stream {
    volume: VolumeId,
    /// First block of its first request.
    begun: u64,
    /// Block behind its last request.
    next: u64,
    /// Requests in a row, the first one included.
    in_a_row: u32,
    /// Blocks to be ahead of `next`; 0: it is not sequential so far.
    window: u64,
    /// Block up to which it has been read ahead.
    ahead: u64,
    /// Block up to which it is being read ahead; not at all if that is no more than `ahead`.
    goal: u64,
    /// True if its last refill took small reads.
    is_scattered: bool,
    /// Times that this refill has asked for a page.
    tries: u32,
    /// Time at which its last request came.
    last: Nanos,
}

impl Stream {
    fn new(volume: VolumeId, begun: u64, next: u64, now: Nanos) -> Stream {
        Stream {
            volume,
            begun,
            next,
            in_a_row: 1,
            window: 0,
            ahead: 0,
            goal: 0,
            is_scattered: false,
            tries: 0,
            last: now,
        }
    }

    /// Extends the stream by a request that ends at `end`.
    fn go_on(&mut self, end: u64, now: Nanos) {
        if end > self.next {
            self.next = end;
            self.in_a_row = self.in_a_row.saturating_add(1);
        }
        self.last = now;
    }

    /// Returns the range in which the next request may begin, after one of `blocks` blocks: its first place, and the number of places.
    fn near(&self, blocks: u64) -> (u64, u64) {
        let reach = (REACH * blocks).min(REACH_BLOCKS);
        let from = self.next.saturating_sub(reach);
        (Key::new(self.volume, from).0, self.next + reach + 1 - from)
    }

    /// Returns true if the stream is sequential, and has not ended.
    fn goes_on(&self, now: Nanos) -> bool {
        self.window > 0 && now - self.last < ENDS_AFTER
    }

    /// Stops reading ahead until a request comes.
    pub(crate) fn stop(&mut self) {
        (self.ahead, self.goal, self.tries) = (0, 0, 0);
    }

    #[inline]
    pub(crate) fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Returns the block up to which it has been read ahead.
    #[inline]
    pub(crate) fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Returns the block up to which it is being read ahead.
    #[inline]
    pub(crate) fn goal(&self) -> u64 {
        self.goal
    }

    /// Notes that it has been read ahead up to a block. `is_scattered`: that took small reads.
    pub(crate) fn advance(&mut self, end: u64, is_scattered: bool) {
        self.is_scattered = is_scattered;
        if end > self.ahead {
            self.tries = 0;
        }
        self.ahead = end;
    }

    /// Notes that this refill asks for a page, and returns how often it has.
    pub(crate) fn note_try(&mut self) -> u32 {
        self.tries += 1;
        self.tries
    }

    /// Returns true if it is being read ahead.
    pub(crate) fn is_refilling(&self) -> bool {
        self.goal > self.ahead
    }

    /// Returns the blocks that a refill is worth while for: one large read, or, where blocks are scattered, as many as can be sorted together.
    fn step(&self) -> u64 {
        let half = self.window / 2;
        if self.is_scattered { half } else { half.min(RUN_BLOCKS) }
    }

    /// Returns true if the window shall be opened: for the first time, because the reader was faster than the reads ahead, or because it has used up
    /// a part.
    fn is_due(&self) -> bool {
        let used_up = || !self.is_refilling() && self.ahead + self.step() <= self.next + self.window;
        self.in_a_row >= IN_A_ROW && (self.window == 0 || self.ahead < self.next || used_up())
    }

    /// Opens the window, to at most `most` blocks, after a request of `blocks` blocks.
    fn open(&mut self, blocks: u64, most: u64) {
        self.ahead = self.ahead.max(self.next);
        self.window = if self.window == 0 { FIRST_WINDOW.max(2 * blocks) } else { 2 * self.window }.min(most);
        self.goal = self.next + self.window;
        self.tries = 0;
    }
}

/// The streams.
pub(crate) struct Streams {
    /// First place at which the next request of each stream may begin ([`Stream::near`]), in an array of their own: each read goes through them.
    from: [u64; STREAMS],
    counts: [u64; STREAMS],
    streams: [Stream; STREAMS],
    /// Place at which the next new stream is looked for first.
    hand: usize,
}

impl Streams {
    pub(crate) fn new() -> Streams {
        let streams = array::from_fn(|_| Stream::new(VolumeId(0), 0, 0, 0));
        Streams { from: [0; STREAMS], counts: [0; STREAMS], streams, hand: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn get(&mut self, at: usize) -> &mut Stream {
        &mut self.streams[at]
    }

    /// Returns true if no stream is sequential now.
    pub(crate) fn are_over(&self, now: Nanos) -> bool {
        !self.streams.iter().any(|stream| stream.goes_on(now))
    }

    /// Notes a read of `blocks` blocks. Returns true if blocks shall be read ahead for its stream. The window of the stream is at most `widest`; the
    /// windows of all streams are at most `most` together.
    pub(crate) fn note(&mut self, first: Key, blocks: u64, now: Nanos, most: u64, widest: u64) -> bool {
        let Some(at) = self.follow(first, blocks, now) else { return false };
        if !self.streams[at].is_due() {
            return false;
        }
        let others = (0..STREAMS).filter(|&other| other != at && self.streams[other].goes_on(now)).count() as u64;
        self.streams[at].open(blocks, widest.min(most / (others + 1)));
        self.streams[at].is_refilling()
    }

    /// Notes a write of `blocks` blocks; returns true if it belongs to a stream of more than `long`.
    pub(crate) fn is_of_long(&mut self, first: Key, blocks: u64, now: Nanos, long: u64) -> bool {
        let Some(at) = self.follow(first, blocks, now) else { return false };
        let stream = &mut self.streams[at];
        let length = stream.next - stream.begun;
        if stream.in_a_row >= IN_A_ROW {
            // It keeps its place.
            stream.window = length;
        }
        length > long
    }

    /// Finds the stream that a request continues, or begins one; `None` if there is no place for a new one.
    fn follow(&mut self, first: Key, blocks: u64, now: Nanos) -> Option<usize> {
        let (begun, end) = (first.lba(), first.lba() + blocks);
        let known = self.find(first);
        let at = known.or_else(|| self.free(now))?;
        if known.is_some() {
            self.streams[at].go_on(end, now);
        } else {
            self.streams[at] = Stream::new(first.volume(), begun, end, now);
        }
        (self.from[at], self.counts[at]) = self.streams[at].near(blocks);
        Some(at)
    }

    /// Finds a stream that is continued by a request which begins here. Looks at all of them, which is faster than to stop at the first.
    fn find(&self, first: Key) -> Option<usize> {
        let mut found = STREAMS;
        for at in 0..STREAMS {
            let is_here = first.0.wrapping_sub(self.from[at]) < self.counts[at];
            found = if is_here { at } else { found };
        }
        (found < STREAMS).then_some(found)
    }

    /// Finds the place of a stream that is not sequential, or has ended, among the next few.
    fn free(&mut self, now: Nanos) -> Option<usize> {
        (0..LOOKED_AT).find_map(|_| {
            let at = self.hand;
            self.hand = (at + 1) % STREAMS;
            (!self.streams[at].goes_on(now)).then_some(at)
        })
    }
}

/// Most blocks of one read.
pub(crate) const RUN_BLOCKS: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SECOND: Nanos = 1_000_000_000;

    fn note(streams: &mut Streams, lba: u64, blocks: u64, now: Nanos) -> bool {
        streams.note(Key::new(VolumeId(1), lba), blocks, now, 1024, 256)
    }

    /// Counts the streams that are sequential now.
    fn sequential(streams: &Streams, now: Nanos) -> usize {
        streams.streams.iter().filter(|stream| stream.goes_on(now)).count()
    }

    #[test]
    fn the_third_request_in_a_row_opens_the_window() {
        let mut streams = Streams::new();
        assert_eq!([0, 4, 8].map(|lba| note(&mut streams, lba, 4, 0)), [false, false, true]);
        let stream = streams.get(0);
        assert_eq!((stream.ahead, stream.goal), (12, 12 + FIRST_WINDOW));
        streams.get(0).ahead = 20;
        assert!(!note(&mut streams, 12, 4, 0), "it is being filled");
        let stream = streams.get(0);
        stream.ahead = stream.goal;
        assert!(note(&mut streams, 28, 4, 0), "half of it is used up");
        assert_eq!(streams.get(0).goal, 32 + 2 * FIRST_WINDOW);
    }

    #[test]
    fn a_reader_that_keeps_many_requests_in_flight_is_one_stream_in_whatever_order_they_come() {
        for blocks in [1, 4, 32] {
            let mut streams = Streams::new();
            for first in (0..64).step_by(8) {
                for number in (0..8).map(|number| first + number * 5 % 8) {
                    note(&mut streams, number * blocks, blocks, 0);
                }
            }
            assert_eq!((sequential(&streams, 0), streams.hand), (1, 1));
        }
    }

    #[test]
    fn who_reads_here_and_there_or_backwards_is_no_stream_and_ends_none() {
        let mut streams = Streams::new();
        for step in 0..1000 {
            assert!(!note(&mut streams, 1_000_000 + step * 7919 % 100_003 * 1000, 1, 0));
            assert!(!note(&mut streams, 900_000 - 32 * step, 32, 0));
            note(&mut streams, 4 * step, 4, 0);
        }
        assert_eq!(sequential(&streams, 0), 1);
        assert!(streams.are_over(SECOND));
    }

    #[test]
    fn streams_share_what_there_is_and_end_after_a_second() {
        let mut streams = Streams::new();
        for step in 0..64 {
            for reader in 0..8 {
                if note(&mut streams, reader * 1_000_000 + 4 * step, 4, 0) {
                    let stream = streams.get(reader as usize);
                    stream.ahead = stream.goal;
                }
            }
        }
        assert_eq!(sequential(&streams, 0), 8);
        assert!(streams.streams.iter().all(|stream| stream.window <= 1024 / 8 + 64));
        assert_eq!(streams.streams.iter().map(|stream| stream.window).max(), Some(128));
        assert_eq!(sequential(&streams, SECOND), 0);
    }

    #[test]
    fn writes_in_a_row_are_long_from_so_many_blocks_on_and_others_never() {
        let mut streams = Streams::new();
        let mut long = |lba, blocks| streams.is_of_long(Key::new(VolumeId(1), lba), blocks, 0, 64);
        let found: Vec<bool> = (0..12).map(|step| long(8 * step, 8)).collect();
        assert_eq!(found.iter().position(|&long| long), Some(8), "72 blocks are more than 64");
        assert!(found[8..].iter().all(|&long| long));
        // Others beside it are none, and do not end it.
        assert!((0..1000).all(|step| !long(1_000_000 + step * 7919 % 100_003 * 1000, 8)));
        assert!(long(96, 8));
    }

    #[test]
    fn with_more_readers_than_streams_some_have_none() {
        let mut streams = Streams::new();
        for step in 0..16 {
            for reader in 0..2 * STREAMS as u64 {
                note(&mut streams, reader * 1_000_000 + 4 * step, 4, 0);
            }
        }
        assert!(sequential(&streams, 0) <= STREAMS);
        // Nothing is read for a reader of another volume that is where one of these is.
        assert!(!streams.note(Key::new(VolumeId(2), 64), 4, 0, 1024, 256));
    }
}
