//! The amount of data that defragmentation may move.

/// Amount of data that defragmentation may move for readers that found it scattered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DefragSetting {
    /// Data that was there when the pool was opened, once; from then on at most 1.5 moved blocks for each that is written.
    #[default]
    Auto,
    /// Nothing.
    Off,
    /// A limit of N bytes a day.
    PerDay(u64),
}

impl DefragSetting {
    /// Encodes the setting for the superblock: MiB a day, rounded up; 0 for the default, `u32::MAX` for off.
    pub(crate) fn encode(self) -> u32 {
        match self {
            DefragSetting::Auto => 0,
            DefragSetting::Off => u32::MAX,
            DefragSetting::PerDay(bytes) => bytes.div_ceil(1 << 20).clamp(1, u64::from(u32::MAX) - 1) as u32,
        }
    }

    /// Decodes a number of [`DefragSetting::encode`]; each number is a setting.
    pub(crate) fn decode(number: u32) -> DefragSetting {
        match number {
            0 => DefragSetting::Auto,
            u32::MAX => DefragSetting::Off,
            mib => DefragSetting::PerDay(u64::from(mib) << 20),
        }
    }
}
