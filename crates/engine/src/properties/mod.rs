//! Properties of a pool and of its volumes: rows of a table.
//!
//! ```text
//! table      the rows, and the code made from them
//! field      bits on disk that hold a code
//! value      types of values: codes and text forms
//! choices    types that are a choice among names
//! policy, cache, defrag, device, dedup, timing, flash, schedule, snapshot_schedule    these types
//! byte_size  sizes as text
//! ```
//!
//! A row has the summary of a property, the type of its value, its name, its field on disk and its help. The type has the default, the bounds, the codes and
//! the text forms. All else follows from the row: the fields of the values ([`PoolProperties`], [`VolumeProperties`]), of a change ([`PoolChange`],
//! [`VolumePropertyChange`]) and of the superblock or the volume table; the recording of a change; `set`, `get`, `status`, the control protocol and the pages
//! of reference. docs/internals/new-property.md says how to add one.
//!
//! A value called `paper` makes a part behave as a published system does. These are all of them:
//!
//! ```text
//! controller    paper             HIODS, sections 3.5 and 4.3             dedup/timing/paper
//! throttle      paper             HIODS, gains of listing 4.1             pid/paper
//! throttle      paper:0.001       HIODS, integral of its experiment       pid/paper
//! cache         adaptive:paper    POD's iCache, Algorithm 1               icache/rule
//! flash-policy  paper[:MODULES]   PLC-Cache's modules, parameters of its slides    flash_cache/admission
//! ```
//!
//! What must hold:
//!
//! - The code 0 is the default, so that a superblock of before a row has it.
//! - Fields do not overlap, and never move. A value is kept as it will be read from its field.
//! - A property is in force as soon as a command has set it. The next checkpoint makes it durable.

pub mod byte_size;
mod cache;
mod choices;
mod dedup;
mod defrag;
mod device;
mod discard;
mod field;
mod flash;
mod policy;
mod schedule;
mod snapshot_schedule;
mod table;
mod timing;
mod value;

#[cfg(test)]
pub(crate) mod tests;

pub use cache::{BadIndexCopy, CacheKey, CacheSetting, IndexCopy, PartitionMode, Replacement, Rule};
pub use dedup::{DedupVerify, KeepRuns, PassThrottle};
pub use defrag::DefragSetting;
pub use device::{BadDeviceKind, DeviceKind};
pub use discard::DiscardSetting;
pub use flash::{FlashPolicy, PaperModules};
pub use policy::{BadPolicy, Counts, IDEDUP_THRESHOLD, Policy, SELECT_THRESHOLD, Threshold};
pub use schedule::{BadSchedule, Hours, Schedule};
pub use snapshot_schedule::{BadSnapshotSchedule, Period, SnapshotSchedule};
pub use table::{PoolChange, PoolProperties, PoolProperty, VolumeProperties, VolumeProperty, VolumePropertyChange};
pub use timing::{BadController, BadGoal, BadTiming, Controller, Goal, Timing};
pub(crate) use value::Code;
pub use value::ValueForm;
