//! The ranges of empty space that go back to the store.

/// Power of two of the smallest size that can be set: 1 MiB.
const LEAST_POWER: u32 = 20;
/// Power of two of the largest size that can be set: 1 GiB. A server that stops waits for the discard in flight.
const MOST_POWER: u32 = 30;
/// Code of the smallest size; the codes before it are on and off.
const FIRST_SIZE: u8 = 2;

/// Ranges of empty containers that are discarded: their space goes back to the file system or device under the pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DiscardSetting {
    /// Whole empty containers.
    #[default]
    On,
    /// Nothing.
    Off,
    /// Empty ranges of N bytes that begin at multiples of N on the store: a power of two from 1 MiB to 1 GiB. Whole empty containers if these are larger.
    Units(u64),
}

impl DiscardSetting {
    /// Returns the setting for a size, rounded up to a power of two; `None` if that is larger than can be set.
    pub(crate) fn units(bytes: u64) -> Option<DiscardSetting> {
        let power = bytes.max(1).checked_next_power_of_two()?.ilog2().max(LEAST_POWER);
        (power <= MOST_POWER).then_some(DiscardSetting::Units(1 << power))
    }

    /// Encodes the setting in six bits: 0 for the default.
    pub(crate) fn encode(self) -> u8 {
        match self {
            DiscardSetting::On => 0,
            DiscardSetting::Off => 1,
            DiscardSetting::Units(bytes) => {
                FIRST_SIZE + (bytes.max(1).ilog2().clamp(LEAST_POWER, MOST_POWER) - LEAST_POWER) as u8
            }
        }
    }

    /// Decodes a number of [`DiscardSetting::encode`]; `None` for numbers that it never gives.
    pub(crate) fn decode(code: u8) -> Option<DiscardSetting> {
        match code {
            0 => Some(DiscardSetting::On),
            1 => Some(DiscardSetting::Off),
            _ => {
                let power = u32::from(code - FIRST_SIZE) + LEAST_POWER;
                (power <= MOST_POWER).then(|| DiscardSetting::Units(1 << power))
            }
        }
    }
}
