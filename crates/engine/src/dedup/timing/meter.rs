//! Meter of a volume's requests: counts them, and makes measurements of the counts.
//!
//! A request is counted when it comes and when it is answered, at the cost of a few additions. Latencies are kept in buckets, four for each
//! power of two, so a p99 is known to an eighth or so.

use super::Measurement;
use super::paper::STRESS_GAP;
use crate::api::Nanos;

/// Buckets of latencies: four for each power of two of nanoseconds.
const BUCKETS: usize = 256;

/// The count of one volume's requests since the last measurement.
#[derive(Clone, Debug)]
pub struct Meter {
    since: Nanos,
    requests: u64,
    bytes: u64,
    /// Requests in progress, and the time since which there is one.
    active: u64,
    busy_since: Nanos,
    busy: Nanos,
    latencies: [u32; BUCKETS],
    entered: u64,
    stressed: u64,
    last_entered: Nanos,
    last_left: Option<Nanos>,
}

impl Meter {
    /// Makes a meter that begins now.
    pub fn new(now: Nanos) -> Meter {
        Meter {
            since: now,
            requests: 0,
            bytes: 0,
            active: 0,
            busy_since: now,
            busy: 0,
            latencies: [0; BUCKETS],
            entered: 0,
            stressed: 0,
            last_entered: now,
            last_left: None,
        }
    }

    /// Makes a meter that begins now, while `active` requests are in flight.
    pub fn begun(now: Nanos, active: u64) -> Meter {
        Meter { active, ..Meter::new(now) }
    }

    /// Notes that a request comes.
    pub fn entered(&mut self, now: Nanos) {
        self.entered += 1;
        // HIODS 4.3. One that comes while another is in progress comes before that has left: no gap at all.
        let gap = self.last_left.map(|left| now.saturating_sub(left));
        self.stressed += u64::from(self.active > 0 || gap.is_some_and(|gap| gap < STRESS_GAP));
        self.last_entered = now;
        if self.active == 0 {
            self.busy_since = now;
        }
        self.active += 1;
    }

    /// Notes that a request that came at `entered` is answered.
    pub fn left(&mut self, now: Nanos, entered: Nanos, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
        let bucket = &mut self.latencies[bucket(now.saturating_sub(entered))];
        *bucket = bucket.saturating_add(1);
        self.last_left = Some(now);
        self.active = self.active.saturating_sub(1);
        if self.active == 0 {
            self.busy += now.saturating_sub(self.busy_since.max(self.since));
        }
    }

    /// Returns the measurement since the last call; counts anew from then on.
    pub fn take(&mut self, now: Nanos) -> Measurement {
        if self.active > 0 {
            self.busy += now.saturating_sub(self.busy_since.max(self.since));
        }
        let time = now.saturating_sub(self.since).max(1);
        let measurement = Measurement {
            time,
            requests: self.requests,
            bytes: self.bytes,
            busy: self.busy.min(time),
            p99: self.p99(),
            entered: self.entered,
            stressed: self.stressed,
            since_last: now.saturating_sub(self.last_entered),
        };
        *self = Meter {
            active: self.active,
            busy_since: self.busy_since,
            last_entered: self.last_entered,
            last_left: self.last_left,
            ..Meter::new(now)
        };
        measurement
    }

    fn p99(&self) -> Nanos {
        let mut above = self.requests / 100;
        for (at, &count) in self.latencies.iter().enumerate().rev() {
            if u64::from(count) > above {
                return upper(at);
            }
            above -= u64::from(count);
        }
        0
    }
}

/// Returns the bucket of a latency: its power of two, and the two bits that follow.
fn bucket(latency: Nanos) -> usize {
    if latency < 4 {
        return latency as usize;
    }
    let power = latency.ilog2() as usize;
    4 * power + ((latency >> (power - 2)) & 3) as usize
}

/// Returns the longest latency of a bucket.
fn upper(bucket: usize) -> Nanos {
    if bucket < 8 {
        return bucket as Nanos;
    }
    let (power, part) = (bucket / 4, bucket as u64 % 4);
    let quarter = 1u64 << (power - 2);
    (1u64 << power) + part * quarter + (quarter - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say() {
        let mut last = 0;
        for latency in (0..5000).chain([1 << 20, (1 << 20) + 1, 3_333_333_333, u64::MAX / 2, u64::MAX]) {
            let at = bucket(latency);
            assert!(at >= last && at < BUCKETS);
            assert!(latency <= upper(at), "{latency} in a bucket up to {}", upper(at));
            assert!(latency < 4 || upper(at) - latency <= latency / 4, "{latency}: {}", upper(at));
            last = at;
        }
    }

    #[test]
    fn busy_is_the_time_with_a_request_in_flight() {
        let mut meter = Meter::new(1000);
        meter.entered(1100);
        meter.entered(1200);
        meter.left(1300, 1100, 4096);
        meter.left(1500, 1200, 4096);
        meter.entered(1900);
        let one = meter.take(2000);
        assert_eq!((one.time, one.busy, one.requests, one.bytes), (1000, 500, 2, 8192));
        assert_eq!((one.entered, one.since_last), (3, 100));
        // The one that is in progress counts on, from the beginning of the new time.
        meter.left(2300, 1900, 4096);
        let two = meter.take(3000);
        assert_eq!((two.busy, two.requests, two.entered), (300, 1, 0));
        assert_eq!(meter.take(4000), Measurement { time: 1000, since_last: 2100, ..Measurement::default() });
    }

    #[test]
    fn of_a_hundred_requests_the_longest_does_not_count() {
        let mut meter = Meter::new(0);
        for number in 0..100 {
            meter.entered(number * 10_000_000);
            let latency = if number == 50 { 9_000_000 } else { 1_000_000 };
            meter.left(number * 10_000_000 + latency, number * 10_000_000, 1);
        }
        let measured = meter.take(1_000_000_000);
        assert!((1_000_000..1_260_000).contains(&measured.p99), "{}", measured.p99);
        // Only the one after the long one came less than 3 ms after an exit.
        assert_eq!((measured.entered, measured.stressed), (100, 1));
    }
}
