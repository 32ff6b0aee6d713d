//! Volumes of a pool, and their entry in the volume table.

use alloc::string::String;

use crate::api::VolumeId;
use crate::counters::VolumeWrites;
use crate::format::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::format::entry::LBA_BITS;
use crate::format::geometry::Geometry;
use crate::format::layout::PACKED_VOLUME_BYTES;
use crate::format::superblock::{END_OF_BORN, Pointer, Root};
use crate::properties::{VolumeProperties, VolumeProperty};

/// Maximum length of a name in bytes.
pub const NAME_BYTES: usize = 63;
/// Maximum number of volumes of a pool.
pub const MAX_VOLUMES: usize = 32_768;
/// Maximum number of blocks of a volume. Keys of different volumes are never adjacent.
pub(crate) const MAX_BLOCKS: u64 = 1 << (LBA_BITS - 1);
/// Maximum height of a map.
pub(crate) const MAX_HEIGHT: u8 = 7;
const NAME_AT: usize = 48;
/// Fields of the upper half of an entry by number (RFC 0020).
const PARENT_AT: usize = 0;
const LINE_AT: usize = 4;
const BORN_AT: usize = 8;
const FLAGS_AT: usize = 16;
const CREATED_AT: usize = 40;
/// Behind a property of 8 bytes.
const HIDDEN_AT: usize = 56;
/// Bit of the number of hidden blocks: it is too low.
const IS_LOW: u64 = 1 << 63;
/// Flag of a held snapshot.
const HELD: u64 = 1;
/// Number of "no policy of its own".
const INHERITS: u8 = 255;
/// Flag of a read-only volume, which is a property.
const READ_ONLY: u8 = 1;
/// Flag of a snapshot that is handed over to its child.
const GIVES: u64 = 2;

/// Purpose of a hidden volume, which has no name: each of its blocks has the content of the slot with its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeps {
    /// Second copies, for repairs.
    SecondCopies,
    /// Replicas, for reads.
    Replicas,
}

impl Keeps {
    /// Returns the flag of the purpose in the volume's entry.
    fn flag(self) -> u8 {
        match self {
            Keeps::SecondCopies => 2,
            Keeps::Replicas => 4,
        }
    }

    /// Returns the name of such a volume in messages. No volume can be given this name.
    pub(crate) fn name(self) -> &'static str {
        HIDDEN_NAMES[self as usize]
    }
}

/// Names of hidden volumes in messages. No volume can be given these names.
pub const HIDDEN_NAMES: [&str; 2] = ["(second copies)", "(replicas)"];

/// Snapshot: a map that does not change any more, except for the slots of its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Volume that it is a snapshot of.
    pub of: VolumeId,
    /// Epoch of the checkpoint that made it; 0 until then.
    pub born: u64,
    /// Time of its creation, in seconds of the driver's clock.
    pub created: u64,
    /// True if it was deleted, and its map is handed over to its only child.
    pub gives: bool,
    /// True if it is not to be deleted.
    pub held: bool,
}

/// Place of a map among those that it shares blocks with (RFC 0020).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Family {
    /// Snapshot that the map inherits from.
    pub parent: Option<VolumeId>,
    /// Set if the map is a snapshot.
    pub snapshot: Option<Snapshot>,
    /// Mapped blocks of the parent that the map does not inherit: it has overwritten or trimmed them (merged ones). Blocks of a deleted snapshot that
    /// was merged into this map, and that are still to be released, are among them.
    pub hidden: Hidden,
}

/// Number of blocks that a map hides of its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hidden {
    /// Number of blocks that were counted.
    pub blocks: u64,
    /// True if others were not counted, as their pages could not be read.
    pub is_low: bool,
}

impl Hidden {
    /// Adds those of another map.
    pub(crate) fn add(&mut self, other: Hidden) {
        self.blocks += other.blocks;
        self.is_low |= other.is_low;
    }
}

/// Volume: a virtual disk of a pool, or a snapshot of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Number of the volume.
    pub id: VolumeId,
    /// Name: 1 to 63 letters, digits, `.`, `_` and `-`, without `.` or `-` at the beginning; of a hidden volume one of [`HIDDEN_NAMES`]. A snapshot has the
    /// part behind `@`, where `:` is allowed, too; it is empty once the snapshot has been deleted, while others inherit from it.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Properties of the volume.
    pub properties: VolumeProperties,
    /// True if its controller has chosen offline.
    pub is_pressed: bool,
    /// Parent of its map, and whether it is a snapshot.
    pub family: Family,
    /// Number of mapped, non-zero blocks (merged ones), without those that the map inherits.
    pub logical_blocks_used: u64,
    /// Purpose of a hidden volume; `None` for a volume that users see.
    pub(crate) keeps: Option<Keeps>,
    /// Number of finished checkpoints after which its creation is durable. No earlier checkpoint has it.
    pub(crate) since: u64,
    /// Record that deletes it. The volume stays until a checkpoint that includes the record has removed its map.
    pub(crate) deleted: Option<u64>,
    /// Size when the last checkpoint began: the size in the table on disk.
    pub(crate) merged_size: u64,
    /// Counts of its writes since it was opened or created.
    pub writes: VolumeWrites,
}

impl Volume {
    /// Returns true if it is a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.family.snapshot.is_some()
    }

    /// Returns true if it is a snapshot that is not to be deleted.
    pub fn is_held(&self) -> bool {
        self.family.snapshot.is_some_and(|snapshot| snapshot.held)
    }

    /// Returns true if it is a snapshot that was deleted: others inherit from it, and it has no name.
    pub fn is_unnamed(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns true if clients may not write to it: it is a snapshot, or its property says so.
    pub fn is_read_only(&self) -> bool {
        self.is_snapshot() || self.properties.read_only()
    }

    /// Returns true if it is a volume or snapshot that users see: no hidden volume, and no deleted snapshot.
    pub(crate) fn is_shown(&self) -> bool {
        self.keeps.is_none() && !self.is_unnamed()
    }
}

/// Returns true if a name can be a volume's: 1 to 63 bytes of letters, digits, `.`, `_`, `-`, not beginning with `.` or `-`.
pub fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with(['.', '-'])
}

/// Returns true if a name can be a snapshot's, the part behind `@`: as a volume's, and with `:`, for times.
pub fn is_snapshot_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':');
    (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with(['.', '-', ':'])
}

/// Returns the most blocks of a volume in a pool of this geometry: small pages map fewer.
pub(crate) fn most_blocks(geometry: &Geometry) -> u64 {
    let reach = geometry.map_leaf_entries().saturating_mul(geometry.fanout().saturating_pow(MAX_HEIGHT.into()));
    reach.min(MAX_BLOCKS).min(i64::MAX as u64 / geometry.block())
}

/// Writes an entry, of the length of `out`. A packed one has no schedule of snapshots: the checkpoint that is to write that has the other form.
pub(crate) fn encode(volume: &Volume, root: Root, out: &mut [u8]) {
    out.fill(0);
    put_u16(out, 0, volume.id.0);
    let name = if volume.keeps.is_some() { "" } else { &volume.name };
    out[3] = name.len() as u8;
    out[4] = root.height;
    out[5] = volume.keeps.map_or(0, Keeps::flag);
    put_u64(out, 8, volume.merged_size);
    put_u64(out, 16, volume.logical_blocks_used);
    root.pointer.write(out, 24);
    volume.properties.write(out);
    out[NAME_AT..NAME_AT + name.len()].copy_from_slice(name.as_bytes());
    if volume.family != Family::default() {
        encode_family(&volume.family, &mut out[PACKED_VOLUME_BYTES as usize..]);
    }
}

fn encode_family(family: &Family, out: &mut [u8]) {
    put_u32(out, PARENT_AT, family.parent.map_or(0, |parent| parent.0.into()));
    put_u64(out, HIDDEN_AT, family.hidden.blocks | if family.hidden.is_low { IS_LOW } else { 0 });
    if let Some(Snapshot { of, born, created, held, gives }) = family.snapshot {
        put_u32(out, LINE_AT, of.0.into());
        put_u64(out, BORN_AT, born);
        put_u64(out, FLAGS_AT, if held { HELD } else { 0 } | if gives { GIVES } else { 0 });
        put_u64(out, CREATED_AT, created);
    }
}

/// Reads the upper half of an entry, which a packed entry does not have, without properties.
fn decode_family(bytes: &[u8]) -> Result<Family, ()> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(Family::default());
    }
    let number = |at| u16::try_from(u32_at(bytes, at)).map_err(|_| ());
    let (parent, of) = (number(PARENT_AT)?, number(LINE_AT)?);
    let (born, flags, created) = (u64_at(bytes, BORN_AT), u64_at(bytes, FLAGS_AT), u64_at(bytes, CREATED_AT));
    let is_zero = |part: &[u8]| part.iter().all(|&byte| byte == 0);
    let unknown = [FLAGS_AT + 8..CREATED_AT, HIDDEN_AT + 8..bytes.len()];
    let hidden = u64_at(bytes, HIDDEN_AT);
    let hidden = Hidden { blocks: hidden & !IS_LOW, is_low: hidden & IS_LOW > 0 };
    if born >= END_OF_BORN || hidden.blocks > MAX_BLOCKS || unknown.into_iter().any(|part| !is_zero(&bytes[part])) {
        return Err(());
    }
    let snapshot = match (born, of) {
        (0, 0) if created == 0 && flags == 0 => None,
        (1.., 1..) if flags & !(HELD | GIVES) == 0 => {
            let (held, gives) = (flags & HELD > 0, flags & GIVES > 0);
            Some(Snapshot { of: VolumeId(of), born, created, held, gives })
        }
        _ => return Err(()),
    };
    Ok(Family { parent: (parent > 0).then_some(VolumeId(parent)), snapshot, hidden })
}

/// Reads an entry of either length; `Ok(None)` if it is unused, `Err` if it is invalid.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Volume, Root)>, ()> {
    let id = VolumeId(u16_at(bytes, 0));
    if id.0 == 0 {
        return Ok(None);
    }
    let properties = VolumeProperties::read(bytes).map_err(|_| ())?;
    let (bytes, later) = bytes.split_at(PACKED_VOLUME_BYTES as usize);
    let family = decode_family(later)?;
    let name = bytes.get(NAME_AT..NAME_AT + usize::from(bytes[3])).ok_or(())?;
    let name = core::str::from_utf8(name).map_err(|_| ())?;
    if bytes[2] == INHERITS && bytes[6] != 0 {
        return Err(());
    }
    let (size, logical_blocks_used) = (u64_at(bytes, 8), u64_at(bytes, 16));
    let possible = size <= i64::MAX as u64 && logical_blocks_used <= MAX_BLOCKS;
    let keeps = match bytes[5] & !READ_ONLY {
        0 => None,
        flag => Some([Keeps::SecondCopies, Keeps::Replicas].into_iter().find(|keeps| keeps.flag() == flag).ok_or(())?),
    };
    let named = match (keeps, family.snapshot) {
        (Some(_), _) => name.is_empty() && family == Family::default(),
        (None, Some(snapshot)) if name.is_empty() => !snapshot.held,
        (None, Some(snapshot)) => is_snapshot_name(name) && !snapshot.gives,
        (None, None) => is_name(name),
    };
    let has_schedule = !properties.is_default(VolumeProperty::Snapshots);
    let is_volume = keeps.is_none() && family.snapshot.is_none();
    if !named || bytes[4] > MAX_HEIGHT || !possible || has_schedule && !is_volume {
        return Err(());
    }
    let volume = Volume {
        id,
        name: String::from(keeps.map_or(name, |keeps| keeps.name())),
        size,
        properties,
        is_pressed: false,
        family,
        logical_blocks_used,
        keeps,
        since: 0,
        deleted: None,
        merged_size: size,
        writes: VolumeWrites::default(),
    };
    Ok(Some((volume, Root { pointer: Pointer::read(bytes, 24), height: bytes[4] })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Goal, KeepRuns, Policy, Timing, VolumePropertyChange};
    use crate::format::layout::{TableForm, VOLUME_BYTES};
    use crate::properties::Controller;
    use proptest::prelude::*;

    proptest! {
        /// Checks that any bytes are refused, or are a possible volume that is written as it was read.
        #[test]
        fn what_is_decoded_encodes_as_it_was(
            mut bytes in any::<[[u8; 32]; 8]>().prop_map(|bytes| bytes.concat()),
            name in "[a-z._:-]{0,20}",
            plain in any::<bool>(),
            form in any::<bool>().prop_map(|packed| if packed { TableForm::Packed } else { TableForm::ByNumber }),
        ) {
            bytes[3] = name.len() as u8;
            bytes[NAME_AT..NAME_AT + name.len()].copy_from_slice(name.as_bytes());
            if plain {
                (bytes[4], bytes[5]) = (bytes[4] & 7, bytes[5] & (READ_ONLY | 6));
                (bytes[2], bytes[6]) = if bytes[2] & 1 == 0 { (INHERITS, 0) } else { (bytes[2] % 8, bytes[6] & bytes[7]) };
                (bytes[15], bytes[23]) = (0, 0);
                bytes[111] &= 3;
                bytes[112] &= 3;
                let number = u64::from(bytes[112] > 0) * u64_at(&bytes, 112 + 1).max(1);
                put_u64(&mut bytes, 112 + 1, number);
                bytes[121] %= 3;
                bytes[122] %= 2;
                bytes[123] %= 2;
                bytes[124] %= 2;
                let family = &mut bytes[PACKED_VOLUME_BYTES as usize..];
                let (parent, kind, born, created) = (family[0], family[1], u64_at(family, 8), u64_at(family, 16));
                let (schedule, hidden) = (u64_at(family, 24), u64_at(family, 32));
                let hidden = hidden >> 17 | hidden << 63;
                family.fill(0);
                if kind & 12 == 0 {
                    // Less than 1,000 of each period.
                    put_u64(family, HIDDEN_AT - 8, schedule & 0x1ff7fdff7fdff >> (kind & 48));
                }
                family[PARENT_AT] = if kind & 1 == 0 { parent } else { 0 };
                put_u64(family, HIDDEN_AT, hidden);
                if kind & 2 == 0 {
                    family[LINE_AT] = kind;
                    put_u64(family, BORN_AT, born >> (kind & 7));
                    put_u64(family, FLAGS_AT, u64::from(kind >> 3 & 3));
                    put_u64(family, CREATED_AT, created);
                }
            }
            bytes.truncate(form.entry_bytes() as usize);
            if let Ok(Some((volume, root))) = decode(&bytes) {
                let is_good = if volume.is_snapshot() { is_snapshot_name(&volume.name) } else { is_name(&volume.name) };
                prop_assert!(is_good != (volume.keeps.is_some() || volume.is_unnamed()));
                prop_assert!(!volume.is_unnamed() || volume.is_snapshot() && !volume.is_held());
                let mut again = alloc::vec![0; bytes.len()];
                encode(&volume, root, &mut again);
                prop_assert_eq!(decode(&again), Ok(Some((volume, root))));
                prop_assert_eq!(bytes.get(PACKED_VOLUME_BYTES as usize..), again.get(PACKED_VOLUME_BYTES as usize..));
            }
        }
    }

    #[test]
    fn an_entry_reads_back_and_nonsense_is_refused() {
        let (id, name, size) = (VolumeId(7), String::from("db-1.main_x"), 1 << 30);
        let policy = Some(Some(Policy::Native));
        let change = VolumePropertyChange {
            read_only: Some(true),
            exclusive: Some(true),
            protected: Some(true),
            timing: Some(Some(Timing::Offline)),
            goal: Some(Goal::P99(2_000_000)),
            keep_runs: Some(KeepRuns::Off),
            controller: Some(Controller::Paper),
            ..VolumePropertyChange { policy, ..VolumePropertyChange::default() }
        };
        let volume = Volume {
            id,
            name,
            size,
            properties: VolumeProperties::default().with(&change),
            is_pressed: false,
            family: Family::default(),
            logical_blocks_used: 5,
            since: 0,
            deleted: None,
            merged_size: size,
            writes: VolumeWrites::default(),
            keeps: None,
        };
        let root = Root { pointer: Pointer { location: 1, birth: 2, checksum: 3 }, height: 2 };
        let mut bytes = [0; VOLUME_BYTES as usize];
        assert_eq!(decode(&bytes), Ok(None));
        encode(&volume, root, &mut bytes);
        assert_eq!(decode(&bytes), Ok(Some((volume.clone(), root))));
        let (policy, off, change) = (Some(None), Some(false), VolumePropertyChange::default());
        let change = VolumePropertyChange { policy, read_only: off, exclusive: off, ..change };
        let inherits = Volume { properties: volume.properties.with(&change), ..volume };
        encode(&inherits, root, &mut bytes);
        assert_eq!(decode(&bytes), Ok(Some((inherits.clone(), root))));
        bytes[5] = 2;
        assert_eq!(decode(&bytes), Err(()));
        bytes[5] = 0;
        bytes[3] = 255;
        assert_eq!(decode(&bytes), Err(()));
        bytes[3] = 3;
        bytes[2] = 99;
        assert_eq!(decode(&bytes), Err(()));
        // An unknown timing.
        encode(&inherits, root, &mut bytes);
        bytes[111] = 4;
        assert_eq!(decode(&bytes), Err(()));
        // An invalid flag for kept runs.
        encode(&inherits, root, &mut bytes);
        bytes[121] = 3;
        assert_eq!(decode(&bytes), Err(()));
        // An unknown controller.
        encode(&inherits, root, &mut bytes);
        bytes[122] = 2;
        assert_eq!(decode(&bytes), Err(()));
        // An invalid flag for exclusive use.
        encode(&inherits, root, &mut bytes);
        bytes[123] = 2;
        assert_eq!(decode(&bytes), Err(()));
        // An invalid flag for protection.
        encode(&inherits, root, &mut bytes);
        bytes[124] = 2;
        assert_eq!(decode(&bytes), Err(()));
        // A goal of 0, no goal with a number, and an unknown goal.
        for (kind, number) in [(1, 0), (0, 1), (4, 7)] {
            encode(&inherits, root, &mut bytes);
            bytes[112] = kind;
            put_u64(&mut bytes, 112 + 1, number);
            assert_eq!(decode(&bytes), Err(()));
        }
        // An unexpected threshold, a missing one, and one without a policy.
        for (code, threshold) in [(Policy::Full.encode().0, 3), (Policy::SELECT.encode().0, 0), (INHERITS, 1)] {
            encode(&inherits, root, &mut bytes);
            (bytes[2], bytes[6]) = (code, threshold);
            assert_eq!(decode(&bytes), Err(()));
        }
        let policy = Some("select:7,request".parse().ok());
        let change = VolumePropertyChange { policy, ..VolumePropertyChange::default() };
        let select = Volume { properties: inherits.properties.with(&change), ..inherits.clone() };
        encode(&select, root, &mut bytes);
        assert_eq!(decode(&bytes), Ok(Some((select, root))));
        // A schedule that keeps too many snapshots, and one of a snapshot.
        let snapshots = "hourly:36,daily:30".parse().ok();
        let change = VolumePropertyChange { snapshots, ..VolumePropertyChange::default() };
        let scheduled = Volume { properties: inherits.properties.with(&change), ..inherits.clone() };
        encode(&scheduled, root, &mut bytes);
        assert_eq!(decode(&bytes), Ok(Some((scheduled.clone(), root))));
        put_u64(&mut bytes, PACKED_VOLUME_BYTES as usize + HIDDEN_AT - 8, 1001);
        assert_eq!(decode(&bytes), Err(()));
        let snapshot = Some(Snapshot { of: VolumeId(3), born: 5, created: 0, held: false, gives: false });
        let family = Family { snapshot, ..Family::default() };
        encode(&Volume { family, ..scheduled }, root, &mut bytes);
        assert_eq!(decode(&bytes), Err(()));
        // Impossible sizes and numbers of blocks would overflow when they are counted on.
        for at in [8, 16] {
            encode(&inherits, root, &mut bytes);
            put_u64(&mut bytes, at, u64::MAX);
            assert_eq!(decode(&bytes), Err(()));
        }
    }

    #[test]
    fn only_snapshots_with_a_name_are_held() {
        let mut bytes = [0; VOLUME_BYTES as usize];
        let entry = |bytes: &[u8]| decode(bytes).map(|entry| entry.map(|(volume, _)| volume));
        put_u16(&mut bytes, 0, 9);
        (bytes[3], bytes[NAME_AT]) = (1, b'x');
        let at = |field| PACKED_VOLUME_BYTES as usize + field;
        put_u64(&mut bytes, at(FLAGS_AT), HELD);
        assert_eq!(entry(&bytes), Err(()));
        put_u32(&mut bytes, at(LINE_AT), 3);
        put_u64(&mut bytes, at(BORN_AT), 7);
        assert!(entry(&bytes).unwrap().unwrap().is_held());
        put_u64(&mut bytes, at(FLAGS_AT), 0);
        assert!(!entry(&bytes).unwrap().unwrap().is_held());
        // Flags that are not known.
        for flag in 1..64 {
            put_u64(&mut bytes, at(FLAGS_AT), HELD | 1 << flag);
            assert_eq!(entry(&bytes), Err(()), "{flag}");
        }
        put_u64(&mut bytes, at(FLAGS_AT), HELD);
        bytes[3] = 0;
        assert_eq!(entry(&bytes), Err(()), "a held snapshot is not deleted");
    }

    #[test]
    fn names_are_what_an_export_can_be_called() {
        assert!(is_name("default") && is_name("a.b-c_9"));
        assert!(!is_name("") && !is_name(".x") && !is_name("-x") && !is_name("a b") && !is_name("ä"));
        assert!(!is_name(core::str::from_utf8(&[b'x'; 64]).unwrap()));
        assert!(!is_name("12:00") && is_snapshot_name("12:00") && is_snapshot_name("a.b-c_9"));
        assert!(["", ":x", ".x", "-x", "a@b", "a,b", "a%b", "a/b"].iter().all(|name| !is_snapshot_name(name)));
    }
}
