//! Clock of the host, which may be set to anything: also to a time before 1970, as where a battery is empty.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time since 1970 (UTC), or zero before that.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns true if the clock is set to a time before 1970.
pub fn is_before_1970() -> bool {
    SystemTime::now() < UNIX_EPOCH
}
