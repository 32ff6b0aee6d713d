//! Tests of the table of volumes: its figures against a walk of the list.

use super::*;
use crate::api::{Goal, Policy, VolumePropertyChange};
use crate::counters::VolumeWrites;
use crate::format::superblock::Pointer;
use crate::format::volume::{Family, Snapshot};
use alloc::format;
use proptest::prelude::*;

/// A change of the table: the kind, the volume it is about, and a number.
type Step = (u8, u8, u64);

fn volume(id: u16, name: String, size: u64, keeps: Option<Keeps>) -> Volume {
    Volume {
        id: VolumeId(id),
        name,
        size,
        properties: VolumeProperties::default(),
        is_pressed: false,
        family: Family::default(),
        logical_blocks_used: 0,
        keeps,
        since: 0,
        deleted: None,
        merged_size: size,
        writes: VolumeWrites::default(),
    }
}

fn property_change(number: u64) -> VolumePropertyChange {
    VolumePropertyChange {
        policy: Some([None, Some(Policy::Full), Some(Policy::Native)][number as usize % 3]),
        goal: Some([Goal::None, Goal::P99(5_000_000)][number as usize % 2]),
        ..VolumePropertyChange::default()
    }
}

/// Applies a change as the pool may.
fn apply(table: &mut VolumeTable, (kind, which, number): Step) {
    let size = (number % (1 << 36)).max(1) * 4096;
    if kind == 0 {
        let keeps = [None, Some(Keeps::SecondCopies), Some(Keeps::Replicas)].get(number as usize % 12).copied();
        let keeps = keeps.flatten();
        let name = keeps.map_or(format!("v{which}"), |keeps| String::from(keeps.name()));
        if let Some(id) = table.free_number(|id| id.0 % 7 == 3).filter(|_| table.named(&name).is_none()) {
            table.insert(volume(id.0, name, size, keeps), Root::default());
        }
        return;
    }
    if kind == 16 {
        let of = VolumeId(u16::from(which % 3) + 1);
        let id = table.free_number(|id| id.0 % 7 == 3).filter(|_| table.snapshot_named(of, "s").is_none());
        if let Some(id) = id {
            let taken = Snapshot { of, born: id.0.into(), created: 0, held: false, gives: false };
            let family = Family { snapshot: Some(taken), ..Family::default() };
            table.insert(Volume { family, ..volume(id.0, String::from("s"), size, None) }, Root::default());
        }
        return;
    }
    if table.len() == 0 {
        return;
    }
    let at = usize::from(which) % table.len();
    let is_deleted = table[at].deleted.is_some();
    match kind {
        1 => table.delete(at, number),
        2 if !is_deleted => table.resize(at, size),
        3 if !is_deleted => {
            let properties = table[at].properties.with(&property_change(number));
            table.set_properties(at, properties);
        }
        4 if !is_deleted => table.set_mode(at, if number % 2 == 0 { Mode::Offline } else { Mode::Inline }),
        5 => table.begin_checkpoint(),
        6 => {
            let height = table.map(at).height.max((number % 3) as u8);
            let pointer = if number % 5 == 0 { Pointer::NONE } else { Pointer { location: 1, birth: 2, checksum: 3 } };
            table.set_map(at, Root { pointer, height });
        }
        7 => table.note_merged(at, number % 5, number % 3),
        8 => {
            table.note_unmapped(table[at].id, number % 3);
        }
        9 if is_deleted => {
            table.set_map(at, Root::default());
            table.remove(at);
        }
        10 if table.former.is_none() => table.begin_counting(),
        11 => table.end_counting(),
        12 => table.recount(at, number % 100),
        13 => table.count_unchanged(at),
        14 => table.note_counted(table[at].id),
        15 if !is_deleted && table[at].keeps.is_none() && !table[at].is_snapshot() => {
            let name = format!("v{}", number as u8);
            if table.named(&name).is_none() {
                table.keep_name(at);
                table.rename(at, &name);
            }
        }
        17 if !is_deleted && table[at].is_snapshot() && !table[at].is_unnamed() => table.take_name(at),
        _ => {}
    }
}

proptest! {
    /// Checks all figures after any changes, and that the former counts are those of when counting began.
    #[test]
    fn figures_equal_those_of_a_walk(steps in proptest::collection::vec((0u8..18, any::<u8>(), any::<u64>()), 1..80)) {
        let mut table = VolumeTable::new(&Geometry::for_capacity(1 << 30).unwrap(), TableForm::default());
        let mut formerly: BTreeMap<VolumeId, u64> = BTreeMap::new();
        for step in steps {
            let begins = step.0 == 10 && table.former.is_none();
            apply(&mut table, step);
            prop_assert!(table.is_consistent());
            if begins {
                formerly = table.iter().map(|volume| (volume.id, volume.logical_blocks_used)).collect();
            }
            let blocks = |volume: &Volume| match table.former {
                Some(_) => formerly.get(&volume.id).copied().unwrap_or(0),
                None => volume.logical_blocks_used,
            };
            let mut sums = MappedSums::default();
            for volume in table.iter() {
                prop_assert_eq!(table.blocks_formerly(volume), blocks(volume));
                *sums.of_kind(MappedBlocks::of(volume)) += blocks(volume);
            }
            for (id, noted) in table.former.iter().flatten() {
                if table.find(*id).is_none() {
                    *sums.of_kind(MappedBlocks { is_deleted: true, ..*noted }) += noted.blocks;
                }
            }
            prop_assert_eq!(table.mapped_formerly(), sums);
            let names: Vec<&str> = table.named_after(None).map(|volume| &volume.name[..]).collect();
            let snapshots = |volume: &&Volume| volume.is_snapshot() && volume.deleted.is_none();
            let snapshots = table.iter().filter(snapshots).count();
            prop_assert!(names.is_sorted() && names.len() + snapshots + table.deleted().count() == table.len());
            let of_volumes = table.held_by_snapshots().map(|(_, sum)| sum);
            let (named, blocks) = of_volumes.fold((0, 0), |all, sum| (all.0 + sum.snapshots, all.1 + sum.blocks));
            let unnamed = table.held_by_unnamed();
            prop_assert_eq!(named + unnamed.snapshots, snapshots as u64);
            prop_assert_eq!(blocks + unnamed.blocks, table.mapped().snapshots);
        }
    }
}
