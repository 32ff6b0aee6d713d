//! The tables of properties: a row is all that there is to know of a property.

use alloc::string::String;
use alloc::vec::Vec;

use super::cache::{CacheKey, CacheSetting, IndexCopy};
use super::dedup::{DedupVerify, KeepRuns, PassThrottle};
use super::defrag::DefragSetting;
use super::device::DeviceKind;
use super::discard::DiscardSetting;
use super::field::{self, Bits};
use super::flash::FlashPolicy;
use super::policy::Policy;
use super::schedule::Schedule;
use super::snapshot_schedule::SnapshotSchedule;
use super::timing::{Controller, Goal, Timing};
use super::value::{Code, PropertyValue, ValueForm};

/// Returns a value as it will be read from its code.
fn rounded<T: PropertyValue>(value: T) -> T {
    T::decode(value.encode()).unwrap_or(value)
}

/// Defines the properties of a scope by their rows: the names as an enum, the values, and a change of some of them. A row has the field of the two structs, the
/// variant of the enum, the type of the value, the name for operators, the field on disk, and the help. The default of a property is that of its type.
macro_rules! properties {
    (
        $(#[$property_meta:meta])* $Property:ident;
        $(#[$values_meta:meta])* $Values:ident;
        $(#[$change_meta:meta])* $Change:ident;
        $(
            $(#[doc = $summary:literal])+
            $field:ident($Name:ident): $Type:ty = $name:literal, [$($bits:expr),+], $help:literal;
        )+
    ) => {
        $(#[$property_meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $Property {
            $($(#[doc = $summary])+ $Name,)+
        }

        impl $Property {
            /// All properties, in the order of the table.
            pub const ALL: &[$Property] = &[$($Property::$Name),+];

            /// Returns the property with this name.
            pub fn named(name: &str) -> Option<$Property> {
                $Property::ALL.iter().copied().find(|property| property.name() == name)
            }

            /// Returns the name for operators.
            pub fn name(self) -> &'static str {
                match self {
                    $($Property::$Name => $name,)+
                }
            }

            /// Returns the help: the values, and the default among them.
            pub fn help(self) -> &'static str {
                match self {
                    $($Property::$Name => $help,)+
                }
            }

            /// Returns the summary: sentences on the purpose of the property.
            pub fn summary(self) -> &'static str {
                match self {
                    $($Property::$Name => concat!($($summary),+).trim_ascii_start(),)+
                }
            }

            /// Returns the forms of its values.
            pub fn forms(self) -> &'static [ValueForm] {
                match self {
                    $($Property::$Name => <$Type as PropertyValue>::FORMS,)+
                }
            }

            /// Returns the name of the type of its values in the code.
            pub fn type_name(self) -> &'static str {
                match self {
                    $($Property::$Name => stringify!($Type),)+
                }
            }

            /// Describes the field on disk: `bytes 36 to 39`.
            pub fn location(self) -> String {
                let parts: Vec<String> = self.field().iter().map(|part| part.location()).collect();
                parts.join(", ")
            }

            /// Returns the field on disk.
            pub(super) fn field(self) -> &'static [Bits] {
                match self {
                    $($Property::$Name => const { &[$($bits),+] },)+
                }
            }
        }

        $(#[$values_meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $Values {
            $($(#[doc = $summary])+ $field: $Type,)+
        }

        impl $Values {
            $(
                #[doc = concat!("Returns the value of `", $name, "`.")]
                pub fn $field(&self) -> $Type {
                    self.$field
                }
            )+

            /// Returns the values after a change, each as it will be read from disk.
            pub fn with(&self, change: &$Change) -> $Values {
                $Values { $($field: change.$field.map_or(self.$field, rounded),)+ }
            }

            /// Returns the text form of a value.
            pub fn text(&self, property: $Property) -> String {
                match property {
                    $($Property::$Name => self.$field.text(),)+
                }
            }

            /// Returns true if a value is the default.
            pub fn is_default(&self, property: $Property) -> bool {
                match property {
                    $($Property::$Name => self.$field == <$Type>::default(),)+
                }
            }

            /// Writes all values to their fields of a block, in which these are zero.
            pub(crate) fn write(&self, block: &mut [u8]) {
                $(field::write($Property::$Name.field(), PropertyValue::encode(self.$field), block);)+
            }

            /// Reads all values from their fields of a block; an error is the reason why one is refused.
            pub(crate) fn read(block: &[u8]) -> Result<$Values, &'static str> {
                Ok($Values { $($field: PropertyValue::decode(field::read($Property::$Name.field(), block))?,)+ })
            }
        }

        $(#[$change_meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $Change {
            $($(#[doc = $summary])+ pub $field: Option<$Type>,)+
        }

        impl $Change {
            /// Returns the text form of a value, if the property is changed.
            pub fn text(&self, property: $Property) -> Option<String> {
                match property {
                    $($Property::$Name => self.$field.map(PropertyValue::text),)+
                }
            }

            /// Changes a property to a value in text form; an error names the property, the text and the reason.
            pub fn set_text(&mut self, property: $Property, text: &str) -> Result<(), String> {
                match property {
                    $($Property::$Name => PropertyValue::parse(text).map(|value| self.$field = Some(value)),)+
                }
                .map_err(|why| alloc::format!("{}={text} is not possible: {why}", property.name()))
            }

            /// Returns the code of a value, if the property is changed.
            pub(crate) fn code(&self, property: $Property) -> Option<Code> {
                match property {
                    $($Property::$Name => self.$field.map(PropertyValue::encode),)+
                }
            }

            /// Changes a property to the value with this code; an error is the reason why there is none.
            pub(crate) fn set_code(&mut self, property: $Property, code: Code) -> Result<(), &'static str> {
                match property {
                    $($Property::$Name => PropertyValue::decode(code).map(|value| self.$field = Some(value)),)+
                }
            }
        }
    };
}

properties! {
    /// Property of a pool.
    PoolProperty;
    /// Values of the properties of a pool.
    PoolProperties;
    /// Changes of properties of the pool; `None` leaves one as it is.
    PoolChange;

    /// Policy of volumes without one of their own.
    policy(Policy): Option<Policy> = "policy", [Bits::bytes(174, 1), Bits::bytes(248, 1)],
        "as for volumes, inherit is the default";

    /// Memory to serve the pool with. The default is 512M, or half of the limit of the control group or of the machine if that is less.
    memory(Memory): u64 = "memory", [Bits::bytes(184, 8)],
        "a size, or default (512M), at once, also while serving";

    /// References beyond which a scrub gives a block a second copy.
    second_copies(SecondCopies): u32 = "second-copies", [Bits::bytes(480, 4)],
        "a number of references beyond which 'scrub' gives a block a second copy, or off (the default)";

    /// Space for replicas of blocks that reads found scattered. The default is 1/128 of the slots.
    replicas(Replicas): Option<u64> = "replicas", [Bits::bytes(488, 8)],
        "a size that copies may take which make scattered blocks sequential again when the pool is idle, off or default";

    /// Copy that the index names of a block that is written again.
    index_copy(IndexCopy): IndexCopy = "index-copy", [Bits::bytes(249, 1)],
        "the copy that is known of a block that was written again: sequential (the default), oldest or newest";

    /// Amount of data that defragmentation may move for readers that found it scattered.
    defrag(Defrag): DefragSetting = "defrag", [Bits::bytes(412, 4)],
        "how much is moved to put in order what readers found scattered: auto (the default: 1.5 blocks for each that is written), off, \
         or a size that may be moved in a day";

    /// Partition of memory between index and read cache.
    cache(Cache): Option<CacheSetting> = "cache", [Bits::bytes(484, 4)],
        "how index and read cache share memory: adaptive (the default), adaptive:paper, fixed:P (percent for the index), index or read, \
         each also with ,lru";

    /// Key by which the read cache finds blocks.
    cache_key(CacheKey): CacheKey = "cache-key", [Bits::bytes(411, 1)],
        "key of the read cache: sector (block addresses, the default), content (equal blocks are kept once) or off (it keeps nothing)";

    /// Kind of the disk under the store.
    device(Device): DeviceKind = "device", [Bits::bytes(13, 1)],
        "kind of disk: hdd (rotational), ssd, or auto (the default: detected), at once, also while serving";

    /// Reads of the pass that finds duplicates before blocks share a slot.
    dedup_verify(DedupVerify): DedupVerify = "dedup-verify", [Bits::of_byte(251, 1, 1), Bits::of_byte(251, 7, 1)],
        "what 'dedup' reads before blocks share a place: kept (the block that is kept, the default), both (and compares them) or off";

    /// Times at which the server profiles reads, and makes and runs a plan of relocation.
    relocate(Relocate): Schedule = "relocate", [Bits::bytes(14, 2)],
        "when the server profiles reads, plans and runs 'relocate' automatically: auto (when the pool is idle), hours of the day, such as \
         22-06, or off (the default)";

    /// Feedback loop that throttles the pass that finds duplicates.
    throttle(Throttle): PassThrottle = "throttle", [Bits::of_byte(251, 2, 5)],
        "what sets the pace of 'dedup' beside clients: share (of the device, the default), paper (HIODS' delay before each block) \
         or paper:0.001 (the same with its other gain)";

    /// Admission policy of the flash cache: which containers are copied to it.
    flash_policy(FlashPolicy): FlashPolicy = "flash-policy", [Bits::bytes(36, 4)],
        "which containers are copied to the flash of 'cache attach': budget (the default: the fewer of the day's writes are left, the more \
         often one must have been read), or paper (PLC-Cache's modules, also as paper:filter=5,delay=3,comparison=1.5, each also off)";

    /// Empty containers whose space goes back to the file system or device under the pool.
    discard(Discard): DiscardSetting = "discard", [Bits::of_byte(12, 2, 6)],
        "space that goes back to the file system or device under the pool: on (empty containers, the default), off, or the size of the \
         aligned ranges that do, such as 64M";
}

properties! {
    /// Property of a volume.
    VolumeProperty;
    /// Values of the properties of a volume.
    VolumeProperties;
    /// Changes of properties of a volume; `None` leaves one as it is.
    VolumePropertyChange;

    /// Deduplication policy.
    policy(Policy): Option<Policy> = "policy", [Bits::byte_less_one(2), Bits::bytes(6, 1)],
        "native|observe|full|select[:T]|idedup[:T]|inherit";

    /// Refusal of writes.
    read_only(ReadOnly): bool = "read-only", [Bits::of_byte(5, 0, 1)],
        "on|off";

    /// Admission of at most one client at a time.
    exclusive(Exclusive): bool = "exclusive", [Bits::bytes(123, 1)],
        "on|off";

    /// Time at which duplicates are found. Until it is set, it is `hybrid` under policies that share, else `inline`; no value resets it.
    timing(Timing): Option<Timing> = "timing", [Bits::bytes(111, 1)],
        "inline|offline|hybrid";

    /// Performance goal for its clients.
    goal(Goal): Goal = "goal", [Bits::bytes(112, 1), Bits::bytes(113, 8)],
        "none|20000iops|200MiB/s|p99=2ms";

    /// Rule by which a pass leaves duplicates where sharing them would split a run.
    keep_runs(KeepRuns): KeepRuns = "keep-runs", [Bits::bytes(121, 1)],
        "on|off|auto";

    /// Controller that chooses the mode where the timing is hybrid.
    controller(Controller): Controller = "controller", [Bits::bytes(122, 1)],
        "forecast|paper";

    /// Refusal of its deletion and rollback.
    protected(Protected): bool = "protected", [Bits::bytes(124, 1)],
        "on|off";

    /// Automatic snapshots: the number that is kept of each period. The server of the pool takes and deletes them. Clones of the volume have none.
    snapshots(Snapshots): SnapshotSchedule = "snapshots", [Bits::bytes(176, 8)],
        "off|hourly:36,daily:30,monthly:3";
}
