//! Tests of trees against a plain map, on a store that performs I/O immediately, with few pages in memory.

mod families;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::api::Effect;
use crate::format::layout::height_for;

type Disk = BTreeMap<u64, Vec<u8>>;

const LEAVES: u64 = 2000;

fn metadata() -> Metadata {
    let geometry = Geometry {
        block_size: 512,
        slots_per_container: 4,
        piece_blocks: 4,
        place_b: 2,
        journal_blocks: 16,
        metadata_blocks: 8192,
        containers: 4,
        spare_containers: 0,
        growth: crate::format::geometry::UNGROWN,
    };
    Metadata::new(geometry, 24, 7, 8)
}

fn perform(metadata: &mut Metadata, disk: &mut Disk) {
    while let Some(Effect::Io(id)) = metadata.io.next_effect() {
        let offset = metadata.io.get(id).offset;
        let (purpose, segments, _) = metadata.io.end(id);
        match (purpose, segments.first()) {
            (Purpose::WritePage(key), Some(&Segment::Page(page))) => {
                disk.insert(offset, metadata.pages.bytes(page).to_vec());
                metadata.pages.written(key, page);
            }
            (Purpose::LoadPages { first, pages }, _) => {
                for number in 0..pages {
                    let key = PageKey { region: first.region, location: first.location + number };
                    let load = metadata.pages.end_load(key);
                    let bytes = &disk[&(offset + u64::from(number) * metadata.geometry.block())];
                    assert!(metadata.is_intact(load.pointer(), bytes));
                    metadata.pages.fill(key, bytes);
                }
            }
            other => panic!("{other:?}"),
        }
        metadata.io.recycle(id, segments);
    }
}

/// Repeats a step until nothing is missing.
fn done<T>(metadata: &mut Metadata, disk: &mut Disk, mut step: impl FnMut(&mut Metadata) -> Result<T, Stop>) -> T {
    loop {
        match step(metadata) {
            Ok(value) => return value,
            Err(Stop::Missing(missing)) => metadata.load(missing, None),
            Err(stop) => assert_eq!(stop, Stop::NoPage),
        }
        perform(metadata, disk);
    }
}

fn read(metadata: &mut Metadata, disk: &mut Disk, root: Root, leaf: u64) -> u8 {
    done(metadata, disk, |metadata| match lookup(metadata, Region::Metadata, root, leaf) {
        Walk::Leaf(page) => Ok(metadata.pages.bytes(page)[0]),
        Walk::Absent(_) => Ok(0),
        Walk::Missing(missing) | Walk::From { missing, .. } => Err(Stop::Missing(missing)),
    })
}

/// Counts the leaves of a subtree that was cut off.
fn leaves_of(metadata: &mut Metadata, disk: &mut Disk, pointer: Pointer, level: u8) -> usize {
    let root = Root { pointer, height: level };
    let span = metadata.geometry.fanout().pow(u32::from(level));
    (0..span).filter(|&leaf| read(metadata, disk, root, leaf) != 0).count()
}

#[derive(Clone, Debug)]
enum Change {
    Set(u64, u8),
    Cut(u64, u64),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0..LEAVES, 0u8..4).prop_map(|(leaf, value)| Change::Set(leaf, value)),
        1 => (0..LEAVES, 1..LEAVES).prop_map(|(first, length)| Change::Cut(first, (first + length).min(LEAVES))),
    ]
}

/// Guards against a wrong count of the subtrees that a clear can cut off: it was far too high, about 1530 for 4 GiB instead of 8. A flood of discards then
/// waited for space in the list of discards, with all writes behind it, although there was plenty.
#[test]
fn subtrees_are_counted_as_a_cut_cuts_them() {
    let fanout = 4;
    for first in 0..70 {
        for end in first..70 {
            let (mut at, mut count) = (first, 0);
            while at < end {
                let mut span = 1;
                while at % (span * fanout) == 0 && end - at >= span * fanout {
                    span *= fanout;
                }
                at += span;
                count += 1;
            }
            assert_eq!(super::subtrees(first, end, fanout), count, "{first}..{end}");
        }
    }
    assert_eq!(super::subtrees(2048, 4096, 256), 8, "4 GiB");
}

/// Checks that a tree made for a few leaves gets as high as a later leaf needs, and that its leaves keep their places.
#[test]
fn a_leaf_beyond_the_reach_raises_the_root_and_a_cut_beyond_it_cuts_nothing() {
    let (mut metadata, mut disk) = (metadata(), Disk::new());
    let fanout = metadata.geometry.fanout();
    let far = [0, 1, fanout - 1, fanout, fanout * fanout - 1, fanout * fanout];
    let mut root = Root::default();
    for (i, &leaf) in far.iter().enumerate() {
        let mut writer = Writer::new(Region::Metadata, root);
        // Also with the old root on the path, changed but not yet written.
        let first = done(&mut metadata, &mut disk, |metadata| writer.leaf(metadata, 0, true)).expect("created");
        metadata.pages.bytes_mut(first)[1] = i as u8 + 1;
        let reach = fanout.pow(u32::from(root.height));
        assert_eq!(done(&mut metadata, &mut disk, |metadata| writer.leaf(metadata, reach, false)), None);
        let page = done(&mut metadata, &mut disk, |metadata| writer.leaf(metadata, leaf, true)).expect("created");
        metadata.pages.bytes_mut(page)[0] = i as u8 + 1;
        let before = root;
        root = done(&mut metadata, &mut disk, |metadata| writer.finish(metadata));
        perform(&mut metadata, &mut disk);
        assert_eq!(root.height, height_for(leaf + 1, fanout));
        for (j, &leaf) in far.iter().enumerate() {
            let value = if j <= i { j as u8 + 1 } else { 0 };
            assert_eq!(read(&mut metadata, &mut disk, root, leaf), value, "leaf {leaf} after {i}");
            let value = if j < i { j as u8 + 1 } else { 0 };
            assert_eq!(read(&mut metadata, &mut disk, before, leaf), value, "leaf {leaf} before {i}");
        }
        metadata.free_replaced(usize::MAX);
    }
    let mut writer = Writer::new(Region::Metadata, root);
    let (reach, mut cut) = (fanout.pow(3), Vec::new());
    let (mut from, end) = (reach, reach * fanout);
    done(&mut metadata, &mut disk, |metadata| writer.cut(metadata, &mut from, end, &mut cut));
    assert_eq!(cut, []);
    let mut from = fanout;
    done(&mut metadata, &mut disk, |metadata| writer.cut(metadata, &mut from, end, &mut cut));
    perform(&mut metadata, &mut disk);
    let there: usize = cut.iter().map(|cut| leaves_of(&mut metadata, &mut disk, cut.pointer, cut.level)).sum();
    assert_eq!(there, 3);
    root = done(&mut metadata, &mut disk, |metadata| writer.finish(metadata));
    perform(&mut metadata, &mut disk);
    assert_eq!(read(&mut metadata, &mut disk, root, fanout - 1), 3);
    assert_eq!(read(&mut metadata, &mut disk, root, fanout), 0);
    metadata.free_replaced(usize::MAX);
    assert_eq!(metadata.pages.private_pages(), 0);
}

/// Checks that the map of metadata blocks, whose pages have fixed locations, is raised in the same way.
#[test]
fn the_map_of_metadata_blocks_gets_higher() {
    let (mut metadata, mut disk) = (metadata(), Disk::new());
    assert_eq!(metadata.geometry.meta_map_leaves(), 2);
    let mut root = Root::default();
    for leaf in [0, 1] {
        let mut writer = Writer::new(Region::MetaMap, root);
        let page = done(&mut metadata, &mut disk, |metadata| writer.leaf(metadata, leaf, true)).expect("created");
        metadata.pages.bytes_mut(page)[0] = leaf as u8 + 1;
        root = done(&mut metadata, &mut disk, |metadata| writer.finish(metadata));
        perform(&mut metadata, &mut disk);
    }
    assert_eq!(root.height, 1);
    for leaf in [0, 1] {
        let value = done(&mut metadata, &mut disk, |metadata| match lookup(metadata, Region::MetaMap, root, leaf) {
            Walk::Leaf(page) => Ok(metadata.pages.bytes(page)[0]),
            Walk::Absent(_) => Ok(0),
            Walk::Missing(missing) | Walk::From { missing, .. } => Err(Stop::Missing(missing)),
        });
        assert_eq!(value, leaf as u8 + 1);
    }
    assert_eq!(metadata.pages.private_pages(), 0);
}

/// Checks that a root raised over an empty tree needs no page of its own.
#[test]
fn an_empty_tree_is_raised_without_a_page() {
    let (mut metadata, mut disk) = (metadata(), Disk::new());
    let mut writer = Writer::new(Region::Metadata, Root::default());
    let far = metadata.geometry.fanout() + 5;
    let page = done(&mut metadata, &mut disk, |metadata| writer.leaf(metadata, far, true)).expect("created");
    metadata.pages.bytes_mut(page)[0] = 1;
    let root = done(&mut metadata, &mut disk, |metadata| writer.finish(metadata));
    assert_eq!((root.height, writer.written), (2, 3));
    perform(&mut metadata, &mut disk);
    assert_eq!(metadata.pages.private_pages(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_tree_agrees_with_a_plain_map_and_the_one_before_stays_readable(
        rounds in proptest::collection::vec(proptest::collection::vec(change(), 1..40), 1..4)
    ) {
        let (mut metadata, mut disk) = (metadata(), Disk::new());
        let mut root = Root { pointer: Pointer::NONE, height: height_for(LEAVES, metadata.geometry.fanout()) };
        let mut model = BTreeMap::<u64, u8>::new();
        for changes in rounds {
            let (before, model_before) = (root, model.clone());
            let mut writer = Writer::new(Region::Metadata, root);
            for change in changes {
                match change {
                    Change::Set(leaf, value) => {
                        let page = done(&mut metadata, &mut disk, |metadata| writer.leaf(metadata, leaf, true)).expect("created");
                        metadata.pages.bytes_mut(page)[0] = value;
                        model.insert(leaf, value);
                    }
                    Change::Cut(first, end) => {
                        let (mut from, mut cut) = (first, Vec::new());
                        done(&mut metadata, &mut disk, |metadata| writer.cut(metadata, &mut from, end, &mut cut));
                        perform(&mut metadata, &mut disk);
                        let here = model.range(first..end).filter(|(_, value)| **value != 0).count();
                        let there: usize =
                            cut.iter().map(|cut| leaves_of(&mut metadata, &mut disk, cut.pointer, cut.level)).sum();
                        prop_assert_eq!(there, here, "what is cut off is what was there");
                        model.retain(|leaf, _| !(first..end).contains(leaf));
                    }
                }
            }
            root = done(&mut metadata, &mut disk, |metadata| writer.finish(metadata));
            perform(&mut metadata, &mut disk);
            for leaf in (0..LEAVES).step_by(7) {
                prop_assert_eq!(read(&mut metadata, &mut disk, root, leaf), model.get(&leaf).copied().unwrap_or(0));
                let old = model_before.get(&leaf).copied().unwrap_or(0);
                prop_assert_eq!(read(&mut metadata, &mut disk, before, leaf), old, "copy on write");
            }
            metadata.free_replaced(usize::MAX);
            prop_assert_eq!(metadata.pages.private_pages(), 0);
        }
    }
}

/// Guards against a panic: a page that is written without a look at the old one was freed where its pointer named a block that does not exist.
#[test]
fn a_replaced_page_that_does_not_exist_is_a_contradiction() {
    for location in [8193, u32::MAX - 1, u32::MAX] {
        let (mut metadata, mut disk) = (metadata(), Disk::new());
        let root = Root { pointer: Pointer { location, birth: 1, checksum: 1 }, height: 0 };
        let mut writer = Writer::new(Region::Metadata, root);
        let page = done(&mut metadata, &mut disk, |metadata| writer.blank(metadata, 0));
        metadata.pages.bytes_mut(page)[0] = 1;
        assert_eq!(writer.finish(&mut metadata), Err(Stop::Contradiction));
    }
}
