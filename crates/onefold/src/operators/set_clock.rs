//! Settable clock for tests, in builds with the feature `faults`: `ONEFOLD_CLOCK` names a file with the seconds since 1970 (UTC). The clock stands still until
//! the file holds another number. When that has been read, the same number is in a file of the same name with another extension: each thread that reads it has its own.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

/// Time from one read of the file to the next.
const PERIOD: Duration = Duration::from_millis(10);

/// The file, and the seconds that it said first and last.
pub struct SetClock {
    path: PathBuf,
    /// Extension of the file that has the time that was read last.
    seen: &'static str,
    first: Option<i64>,
    last: Option<i64>,
}

impl SetClock {
    /// Returns the clock if the environment names a file, as in a test that sets the time. `seen` is the extension of the file that reports a time as read.
    pub fn from_environment(seen: &'static str) -> Option<SetClock> {
        let path = std::env::var_os("ONEFOLD_CLOCK")?.into();
        Some(SetClock { path, seen, first: None, last: None })
    }

    /// Reports that the time has been read, and waits for another one. Returns the time since the first one, and the time.
    pub fn wait(&mut self) -> (Duration, Timestamp) {
        if let Some(seconds) = self.last {
            let seen = std::fs::write(self.path.with_extension(self.seen), seconds.to_string());
            seen.expect("a test has a folder that can be written");
        }
        loop {
            let said = std::fs::read_to_string(&self.path).ok().and_then(|text| text.trim().parse().ok());
            if let Some(seconds) = said.filter(|_| said != self.last) {
                self.last = said;
                let elapsed = seconds - *self.first.get_or_insert(seconds);
                let now = Timestamp::from_second(seconds).expect("a test sets a time that there is");
                return (Duration::from_secs(elapsed.unsigned_abs()), now);
            }
            std::thread::sleep(PERIOD);
        }
    }
}
