//! Whether the reactor looks for what happens next, again and again, or sleeps until it is woken.
//!
//! To be woken takes the kernel some microseconds, more in a virtual machine: about as long as a client that sends one request at a
//! time takes to send the next. So such waits are spent looking, within two bounds: a look takes no longer than `--poll`, and
//! there is none where it would not pay: after waits longer than that, while many requests come with each wait (then sleeping
//! costs little for each, and collects more), or where others want the processor. A wait that was slept through says less than
//! one awake: the client, on a processor that had gone to sleep as well, took longer to answer because nobody stayed awake. So a
//! slept wait of twice the length still counts as one that a look would have shortened.

use engine::Nanos;

/// Short waits in a row after which it pays to look.
const TRUSTED: u32 = 8;
/// Counted at most.
const MOST: u32 = 16;
/// Most requests that come with a wait that is worth a look: a stream of long writes is one or two for each, and the server that
/// sleeps leaves the client's socket full meanwhile.
const FEW: u64 = 4;
/// Decrease of the count for a look in vain, and for a long sleep. A client that always takes a little longer than a look costs one look in five waits.
const IN_VAIN: u32 = 4;
const SLEPT_LONG: u32 = 2;
/// A look that was interrupted for so long was interrupted by somebody who wanted the processor for himself. Interrupts and the
/// kernel's own short work take less, and do not wait for it.
const INTERRUPTED: Nanos = 100_000;
/// First and greatest time without looks after an interrupted one, for the process that wanted the processor; it doubles with each interruption.
const BARRED: Nanos = 1_000_000;
const BARRED_MOST: Nanos = 256_000_000;

/// Record of the waits before, which decides on the next look.
pub struct Poll {
    /// The longest look; 0: there is none.
    limit: Nanos,
    short: u32,
    barred_until: Nanos,
    barred: Nanos,
}

impl Poll {
    /// Looks of at most `limit`. None where there is only one processor: whoever is waited for needs it.
    pub fn new(limit: Nanos) -> Poll {
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        Poll { limit: if alone { 0 } else { limit }, short: 0, barred_until: 0, barred: BARRED }
    }

    /// Returns the time to look before sleeping; 0 if a look would not pay.
    pub fn look(&self, now: Nanos) -> Nanos {
        if self.short >= TRUSTED && now >= self.barred_until { self.limit } else { 0 }
    }

    /// Counts a wait that began with a look (or was slept through), by its length and the number of requests that it brought.
    pub fn waited(&mut self, looked: bool, waited: Nanos, requests: u64) {
        let (longest, loss) = if looked { (self.limit, IN_VAIN) } else { (2 * self.limit, SLEPT_LONG) };
        let is_short = waited <= longest && requests <= FEW;
        self.short = if is_short { (self.short + 1).min(MOST) } else { self.short.saturating_sub(loss) };
    }

    /// Compares two readings of the clock, one right after the other; a long gap means that another process wants the processor.
    pub fn looked(&mut self, before: Nanos, after: Nanos) {
        if after - before >= INTERRUPTED {
            self.barred_until = after + self.barred;
            self.barred = (2 * self.barred).min(BARRED_MOST);
        }
    }

    /// Halves the time without looks, since a look found something: no other process wants the processor.
    pub fn found(&mut self) {
        self.barred = (self.barred / 2).max(BARRED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Nanos = 50_000;

    fn poll() -> Poll {
        Poll { limit: LIMIT, short: 0, barred_until: 0, barred: BARRED }
    }

    #[test]
    fn looks_begin_after_short_waits_and_end_with_long_ones() {
        let mut poll = poll();
        for _ in 0..TRUSTED {
            assert_eq!(poll.look(0), 0);
            poll.waited(false, LIMIT, 1);
        }
        assert_eq!(poll.look(0), LIMIT);
        // A long wait now and then, such as for a sync, changes nothing where most are short.
        for wait in [1, 1, 2, 1, 1, 2 * LIMIT].repeat(20) {
            poll.waited(true, wait, 1);
        }
        assert_eq!(poll.look(0), LIMIT);
        for _ in 0..MOST {
            poll.waited(false, 2 * LIMIT + 1, 1);
        }
        assert_eq!(poll.look(0), 0, "an idle server sleeps");
    }

    /// Waits became longer because the server slept, and it slept because waits were long: writes one at a time came to half.
    #[test]
    fn waits_that_sleeping_made_longer_end_in_looking() {
        let mut poll = poll();
        (0..TRUSTED).for_each(|_| poll.waited(false, 2 * LIMIT, 1));
        assert_eq!(poll.look(0), LIMIT);
    }

    #[test]
    fn a_client_that_takes_longer_than_a_look_costs_few_of_them() {
        let mut poll = poll();
        let mut looks = 0;
        for _ in 0..1000 {
            let look = poll.look(0);
            looks += u32::from(look > 0);
            poll.waited(look > 0, LIMIT + 1, 1);
        }
        assert!((1..=200).contains(&looks), "{looks} looks in vain");
    }

    #[test]
    fn many_requests_at_a_time_are_slept_for() {
        let mut poll = poll();
        for requests in [0, 1].repeat(20) {
            poll.waited(false, 1, requests);
        }
        assert_eq!(poll.look(0), LIMIT);
        for _ in 0..TRUSTED {
            poll.waited(true, 1, FEW + 1);
        }
        assert_eq!(poll.look(0), 0);
    }

    /// Tests a stream of writes of 128 KiB: the server slept while the client took 25 to 55 us to send, and had to be woken each time.
    #[test]
    fn a_stream_of_long_writes_is_not_slept_for() {
        let mut poll = poll();
        for requests in [0, 1, 2, 0, 3].repeat(10) {
            poll.waited(poll.look(0) > 0, LIMIT, requests);
        }
        assert_eq!(poll.look(0), LIMIT);
    }

    #[test]
    fn who_wants_the_processor_gets_it_for_longer_and_longer() {
        let mut poll = poll();
        (0..TRUSTED).for_each(|_| poll.waited(false, 1, 1));
        let mut now = 0;
        for expected in [1, 2, 4, 8].map(|times| times * BARRED) {
            poll.looked(now, now + INTERRUPTED);
            now += INTERRUPTED;
            assert_eq!(poll.look(now + expected - 1), 0);
            assert_eq!(poll.look(now + expected), LIMIT);
            now += expected;
        }
        for _ in 0..20 {
            poll.looked(now, now + INTERRUPTED);
        }
        assert_eq!(poll.look(now + INTERRUPTED + BARRED_MOST), LIMIT, "but not for ever");
        (0..8).for_each(|_| poll.found());
        poll.looked(now, now + INTERRUPTED - 1);
        poll.looked(now, now + INTERRUPTED);
        assert_eq!(poll.look(now + INTERRUPTED + BARRED), LIMIT, "it is forgotten where looks find something");
    }
}
