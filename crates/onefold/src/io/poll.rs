//! Adaptive busy polling of the reactor, against the latency of a wake-up.
//!
//! A wake-up takes the kernel some microseconds, more in a virtual machine: about as long as a client that sends one request at a time takes to send the next.
//! So the reactor polls during such waits, within two bounds. A poll takes no longer than `--poll`. There is none where it would not pay: after waits longer
//! than that, while many requests come with each wait (then sleeping costs little for each, and collects more), or where others want the processor. A wait that
//! was slept through says less than one awake: the client, on a processor that had gone to sleep as well, took longer to answer because both processors slept.
//! So a slept wait of twice the length still counts as one that a poll would have shortened.

use engine::Nanos;

/// Short waits in a row after which polling pays.
const TRUSTED: u32 = 8;
/// Maximum of the count.
const MOST: u32 = 16;
/// Most requests that come with a wait that is worth a poll. A stream of long writes has one or two for each, and a server that sleeps leaves the client's
/// socket full meanwhile.
const FEW: u64 = 4;
/// Decrease of the count for a poll without an event, and for a long sleep. A client that always takes a little longer than a poll costs one poll in five
/// waits.
const IN_VAIN: u32 = 4;
const SLEPT_LONG: u32 = 2;
/// Interruption of a poll from which on another process counts as its cause: it wanted the processor. Interrupts and the kernel's own short work take less, and
/// do not wait for it.
const INTERRUPTED: Nanos = 100_000;
/// First and greatest time without polls after an interrupted one, for the process that wanted the processor; it doubles with each interruption.
const BARRED: Nanos = 1_000_000;
const BARRED_MOST: Nanos = 256_000_000;

/// Record of the earlier waits, which decides on the next poll.
pub struct Poll {
    /// Longest poll; 0: there is none.
    limit: Nanos,
    short: u32,
    barred_until: Nanos,
    barred: Nanos,
}

impl Poll {
    /// Creates a poller with polls of at most `limit`. It has none where there is only one processor: the awaited process needs it.
    pub fn new(limit: Nanos) -> Poll {
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        Poll { limit: if alone { 0 } else { limit }, short: 0, barred_until: 0, barred: BARRED }
    }

    /// Returns the time to poll before sleeping; 0 if a poll would not pay.
    pub fn look(&self, now: Nanos) -> Nanos {
        if self.short >= TRUSTED && now >= self.barred_until { self.limit } else { 0 }
    }

    /// Counts a wait that began with a poll (or was slept through), by its length and the number of requests that it brought.
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

    /// Halves the time without polls, since a poll found an event: no other process wants the processor.
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
