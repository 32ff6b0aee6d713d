//! Malicious pools: one test for each mistake that fuzzing (or reading the code for it) found.

use engine::encode::{VOLUME_BYTES, checksum};
use engine::superblock::TreeId;
use engine::{Engine, Error, Limits, OpenError, VolumeId};
use sim::fuzz::disk::{Fate, Use, journal, repaired, survive};
use sim::fuzz::driver::{Driver, Task, probe};
use sim::fuzz::pool::{BLOCK, Kind, LIMITS, Structure, make, reseal, structures};

/// Returns the byte offsets of the pages of a structure.
fn places(image: &[u8], structure: Structure) -> Vec<usize> {
    structures(image).into_iter().filter(|(_, what)| *what == structure).map(|(place, _)| place).collect()
}

fn table(tree: TreeId) -> Structure {
    Structure::Table(tree as usize)
}

/// Returns the leaves of a table: its pages that do not reference others.
fn leaves(image: &[u8], tree: TreeId) -> Vec<usize> {
    let pages = places(image, table(tree));
    let parameters = probe(image).expect("a pool").parameters;
    let child = |pointer: &[u8]| {
        let location = u64::from(u32::from_le_bytes([pointer[0], pointer[1], pointer[2], pointer[3]]));
        let child = (parameters.geometry.metadata_start() + location.checked_sub(1)?) as usize * BLOCK;
        // Entries of a leaf may look like locations, but hardly like checksums.
        let sum = |child: usize| checksum(parameters.seed(), &image[child..child + BLOCK]).to_le_bytes();
        (pages.contains(&child) && sum(child) == pointer[8..16]).then_some(child)
    };
    let leads_on = |page: usize| image[page..page + BLOCK].chunks_exact(16).filter_map(child).next().is_some();
    let leaves: Vec<usize> = pages.iter().copied().filter(|&page| !leads_on(page)).collect();
    assert!(!leaves.is_empty());
    leaves
}

/// The superblocks' roots, and the entries of the volume table, held pointers beyond the metadata. The lookup of such a block was an assertion, which
/// any read of the volume met.
#[test]
fn a_pointer_that_leads_nowhere_is_a_damaged_page() {
    for location in [500_000_u32, u32::MAX] {
        for tree in 0..engine::superblock::TREES {
            let mut image = make(Kind::Closed);
            for superblock in places(&image, Structure::Superblock) {
                image[superblock + 256 + tree * 17..][..4].copy_from_slice(&location.to_le_bytes());
            }
            reseal(&mut image);
            for how in 0..4 {
                survive(image.clone(), Use(how));
            }
            if [TreeId::MetaMap, TreeId::Containers, TreeId::Volumes, TreeId::Discards]
                .map(|tree| tree as usize)
                .contains(&tree)
            {
                let fate = survive(image, Use(0));
                assert!(matches!(fate, Fate::Refused(Some(OpenError::DamagedPage { .. }))), "{tree}: {fate:?}");
            }
        }
        let mut image = make(Kind::Closed);
        for table in places(&image, table(TreeId::Volumes)) {
            image[table + 24..table + 28].copy_from_slice(&location.to_le_bytes());
        }
        reseal(&mut image);
        for how in 0..4 {
            assert!(matches!(survive(image.clone(), Use(how)), Fate::Served(_)), "other volumes are");
        }
    }
}

/// The meta map declared pages of the maps free. They were freed again, or allocated while the page cache had them: two assertions in the first
/// checkpoint. Now it fails, and the pool is read-only.
#[test]
fn pages_that_the_meta_map_says_are_free_fail_the_checkpoint() {
    let mut image = make(Kind::Closed);
    for page in places(&image, table(TreeId::MetaMap)) {
        image[page..page + BLOCK].fill(0);
        image[page] = 1;
    }
    reseal(&mut image);
    for how in 0..4 {
        assert!(matches!(survive(image.clone(), Use(how)), Fate::Served(_)));
    }
}

/// A subtree of 200 levels was on the discard list. The audit counted addresses below it until they overflowed.
#[test]
fn a_discarded_subtree_higher_than_any_map_is_damage() {
    for level in [10, 200] {
        let mut image = make(Kind::Crashed);
        for page in leaves(&image, TreeId::Discards) {
            image[page + 18] = level;
        }
        reseal(&mut image);
        for how in 0..4 {
            let fate = survive(image.clone(), Use(how));
            assert!(
                matches!(fate, Fate::Refused(Some(OpenError::DamagedPage { what: "the discard list", .. }))),
                "{fate:?}"
            );
        }
    }
}

/// A superblock with a right checksum had numbers near the end of their 64 bits. Recovery counts on from them.
#[test]
fn a_superblock_that_has_counted_further_than_any_pool_is_refused() {
    for at in [120, 128, 144, 152, 160] {
        let mut image = make(Kind::Crashed);
        for superblock in places(&image, Structure::Superblock) {
            image[superblock + at..superblock + at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        }
        reseal(&mut image);
        for how in 0..4 {
            assert_eq!(survive(image.clone(), Use(how)), Fate::Refused(None), "the field at {at}");
        }
    }
}

/// Sizes of the index on disk were used unchecked: levels of its tree, and pages that a checkpoint may take.
#[test]
fn an_index_on_disk_that_no_pool_of_the_size_has_is_refused() {
    for fields in [[u32::MAX, 0], [1 << 20, u32::MAX], [1, u32::MAX - 2], [0, 1]] {
        let mut image = make(Kind::Crashed);
        for superblock in places(&image, Structure::Superblock) {
            for (at, value) in fields.into_iter().enumerate() {
                image[superblock + 416 + at * 4..][..4].copy_from_slice(&value.to_le_bytes());
            }
        }
        reseal(&mut image);
        for how in 0..4 {
            assert_eq!(survive(image.clone(), Use(how)), Fate::Refused(None), "{fields:?}");
        }
    }
}

/// The volume table claimed sizes and numbers of blocks that no volume has. Offsets, and counting on, overflowed.
#[test]
fn a_volume_larger_than_any_is_damage() {
    for (at, value) in [(8, u64::MAX), (8, i64::MAX as u64 + 1), (8, (1 << 56) + 512), (16, u64::MAX)] {
        let mut image = make(Kind::Crashed);
        for page in leaves(&image, TreeId::Volumes) {
            image[page + at..page + at + 8].copy_from_slice(&value.to_le_bytes());
        }
        reseal(&mut image);
        for how in 0..4 {
            let fate = survive(image.clone(), Use(how));
            assert!(
                matches!(fate, Fate::Refused(Some(OpenError::DamagedPage { what: "the volume table", .. }))),
                "{fate:?}"
            );
        }
    }
}

/// Puts a tree of eight levels into free blocks. All pointers of each page reference the page below. Returns the location of the root.
fn make_ladder(image: &mut [u8]) -> u32 {
    let geometry = probe(image).expect("a pool").parameters.geometry;
    let first = geometry.metadata_start() as usize;
    let is_free = |location: &u32| {
        let at = (first + *location as usize - 1) * BLOCK;
        image[at..at + BLOCK].iter().all(|&byte| byte == 0)
    };
    let free: Vec<u32> = (1..=geometry.metadata_blocks).filter(is_free).take(8).collect();
    for (level, &location) in free.iter().enumerate() {
        let at = (first + location as usize - 1) * BLOCK;
        for pointer in image[at..at + BLOCK].chunks_exact_mut(16) {
            pointer[..4].copy_from_slice(&level.checked_sub(1).map_or(0, |below| free[below]).to_le_bytes());
        }
    }
    free[7]
}

/// Each page of a subtree referenced the next one 32 times. A repair walked 34 billion pages of the subtrees that discards had cut off. So did the
/// search for flawed blocks with a map.
#[test]
fn a_page_that_many_pointers_lead_to_is_visited_once() {
    let mut image = make(Kind::Closed);
    let root = make_ladder(&mut image);
    for page in leaves(&image, TreeId::Discards) {
        image[page..page + 4].copy_from_slice(&root.to_le_bytes());
        image[page + 18] = 7;
    }
    reseal(&mut image);
    survive(image, Use(1));
    let mut image = make(Kind::Closed);
    let root = make_ladder(&mut image);
    for page in leaves(&image, TreeId::Volumes) {
        image[page + 4] = 7;
        image[page + 24..page + 28].copy_from_slice(&root.to_le_bytes());
    }
    reseal(&mut image);
    assert!(matches!(survive(image, Use(1)), Fate::Served(_)));
}

/// Two blocks refer to one slot, and only one of them has its check. The cached content of the one is not given to the other.
#[test]
fn what_is_in_memory_is_held_against_the_map_too() {
    let mut image = make(Kind::Closed);
    let volumes = leaves(&image, TreeId::Volumes)[0];
    let location = u32::from_le_bytes(image[volumes + 24..volumes + 28].try_into().expect("four bytes"));
    assert_eq!(image[volumes + 4], 0, "the map is one leaf");
    let leaf =
        (probe(&image).expect("a pool").parameters.geometry.metadata_start() as usize + location as usize - 1) * BLOCK;
    image.copy_within(leaf..leaf + 8, leaf + 8);
    image[leaf + 8 + 6] ^= 1;
    reseal(&mut image);
    let Ok(mut driver) = Driver::open(image, LIMITS, Engine::open) else { panic!("it opens") };
    let block = BLOCK as u64;
    let good = driver.request(VolumeId(1), 0, block, Task::Read).expect("answered");
    assert!(good.is_ok());
    assert_eq!(driver.request(VolumeId(1), block, block, Task::Read), Some(Err(Error::Io)));
    assert_eq!(driver.request(VolumeId(1), block + 7, 90, Task::Write(&[204; 90])), Some(Err(Error::Io)));
    assert_eq!(driver.request(VolumeId(1), 0, block, Task::Read), Some(good));
}

/// Entries of the index on disk name slots of other contents. A named slot is proven before it is shared, and nothing else depends on the entries.
#[test]
fn an_index_on_disk_that_lies_shares_nothing_that_is_not_equal() {
    const SLOT: u64 = (1 << 37) - 1;
    let lies: [fn(u64, u64) -> u64; 4] =
        [|_, other| other & SLOT, |_, _| SLOT, |_, _| 80, |slot, _| if slot & SLOT > 1 { slot - 1 } else { slot + 1 }];
    for lie in lies {
        let mut image = make(Kind::Closed);
        let (mut sound, mut before) = (Driver::open(image.clone(), LIMITS, Engine::open).expect("it opens"), 1);
        for page in leaves(&image, TreeId::DiskIndex) {
            for entry in image[page..page + BLOCK].chunks_exact_mut(8) {
                let number = u64::from_le_bytes(entry.try_into().expect("eight bytes"));
                if number != 0 {
                    entry.copy_from_slice(&(number & !SLOT | lie(number, before) & SLOT).to_le_bytes());
                    before = number;
                }
            }
        }
        reseal(&mut image);
        for how in 0..4 {
            assert!(matches!(survive(image.clone(), Use(how)), Fate::Served(_)));
        }
        // The index in memory has a single entry.
        let limits = Limits { index_entries: 1, ..LIMITS };
        let mut driver = Driver::open(image, limits, Engine::open).expect("it opens");
        for lba in 0..6 {
            let known = sound.request(VolumeId(2), lba * 500 * BLOCK as u64, BLOCK as u64, Task::Read);
            let known = known.expect("answered").expect("served");
            let (offset, length) = ((30 + lba) * BLOCK as u64, BLOCK as u64);
            driver.request(VolumeId(1), offset, length, Task::Write(&known)).expect("answered").expect("served");
            let read = driver.request(VolumeId(1), offset, length, Task::Read);
            assert_eq!(read, Some(Ok(known)));
        }
        let audit = driver.engine.check_disk_index(&mut |offset, length| {
            Some(driver.image[offset as usize..offset as usize + length as usize].to_vec())
        });
        assert!(audit.is_some_and(|audit| audit.stale > 0), "{audit:?}");
    }
}

/// Maps name ancestors: pointers and entries FROM, which no pool of this version has. They are damage for readers, and for the audit; a checkpoint that
/// changes the map fails. In tables they are damaged pages.
#[test]
fn what_a_map_has_from_an_ancestor_is_refused_while_no_map_has_one() {
    let pointer = |epoch: u64| -> Vec<u8> {
        [(u32::MAX - 1).to_le_bytes(), [0; 4]].concat().into_iter().chain(epoch.to_le_bytes()).collect()
    };
    for epoch in [0, 1, 1 << 60, u64::MAX] {
        for tree in 0..engine::superblock::TREES {
            let mut image = make(Kind::Crashed);
            for superblock in places(&image, Structure::Superblock) {
                image[superblock + 256 + tree * 17..][..16].copy_from_slice(&pointer(epoch));
            }
            reseal(&mut image);
            for how in 0..4 {
                survive(image.clone(), Use(how));
            }
        }
        for at in 0..2 {
            // Roots of maps; then one pointer of each page of a map, or entries of a leaf.
            let mut image = make(Kind::Crashed);
            let changed = if at == 0 { leaves(&image, TreeId::Volumes) } else { places(&image, Structure::Map) };
            for page in changed {
                let entries = (0..BLOCK).step_by(VOLUME_BYTES as usize);
                let used = entries.filter(|entry| image[page + entry..][..2] != [0; 2]).map(|entry| entry + 24);
                let places = if at == 0 { used.collect() } else { vec![0, 32] };
                for place in places {
                    image[page + place..][..16].copy_from_slice(&pointer(epoch));
                }
                if at == 1 {
                    image[page + 64..][..8].copy_from_slice(&(5 | epoch << 4).to_le_bytes());
                }
            }
            reseal(&mut image);
            for how in 0..4 {
                assert!(matches!(survive(image.clone(), Use(how)), Fate::Served(_)), "other volumes are");
            }
            let mut driver = Driver::open(image, LIMITS, Engine::open).expect("it opens");
            let read = driver.request(VolumeId(2), 0, BLOCK as u64, Task::Read);
            assert_eq!(read, Some(Err(Error::Io)), "{epoch} {at}");
        }
        let mut image = make(Kind::Crashed);
        for page in leaves(&image, TreeId::Discards) {
            image[page..page + 16].copy_from_slice(&pointer(epoch));
        }
        reseal(&mut image);
        for how in 0..4 {
            survive(image.clone(), Use(how));
        }
    }
}

/// Bytes of the fields of a family in an entry of the volume table.
const PARENT: std::ops::Range<usize> = 128..132;
const OF: std::ops::Range<usize> = 132..136;
const BORN: std::ops::Range<usize> = 136..144;

/// Changes the entry of a volume in the table of a pool with a family.
fn change_entry(image: &mut [u8], number: u16, change: impl Fn(&mut [u8])) {
    let size = VOLUME_BYTES as usize;
    let entries: Vec<usize> = leaves(image, TreeId::Volumes).iter().flat_map(|&leaf| [leaf, leaf + size]).collect();
    let at = entries.into_iter().find(|&at| image[at..at + 2] == number.to_le_bytes()).expect("a volume of the pool");
    change(&mut image[at..at + size]);
}

fn put(place: std::ops::Range<usize>, value: u64) -> impl Fn(&mut [u8]) {
    move |entry| entry[place.clone()].copy_from_slice(&value.to_le_bytes()[..place.len()])
}

/// Repairs a pool. The result opens, and its audit is clean.
fn assert_repaired(image: &[u8], what: &str) -> Driver {
    let repaired = repaired(image).unwrap_or_else(|| panic!("{what}: a repair is planned"));
    let mut found = Vec::new();
    {
        let driver = Driver::open(repaired.clone(), LIMITS, Engine::open_to_audit);
        let driver = driver.unwrap_or_else(|error| panic!("{what}: the repaired pool does not open: {error:?}"));
        let mut read = |offset: u64, length: u32| Some(driver.image[offset as usize..][..length as usize].to_vec());
        driver.engine.check(&mut read, &mut |problem| found.push(String::from(problem)));
    }
    assert!(found.is_empty(), "{what}: {found:?}");
    for how in 0..4 {
        assert!(matches!(survive(repaired.clone(), Use(how)), Fate::Served(_)), "{what}");
    }
    Driver::open(repaired, LIMITS, Engine::open).unwrap_or_else(|error| panic!("{what}: {error:?}"))
}

/// Entries of the volume table that make no family: the opening refuses them, and a repair makes a family that it admits.
#[test]
fn a_family_that_cannot_be_is_refused_and_repaired() {
    type Change = Box<dyn Fn(&mut [u8])>;
    let name = |name: &'static str| -> Change {
        Box::new(move |entry| {
            entry[3] = name.len() as u8;
            entry[48..48 + name.len()].copy_from_slice(name.as_bytes());
        })
    };
    let set = |place: std::ops::Range<usize>, value: u64| -> Change { Box::new(put(place, value)) };
    let cases: Vec<(&str, Vec<(u16, Change)>)> = vec![
        ("an unknown parent", vec![(6, set(PARENT, 77))]),
        ("a parent beyond all numbers", vec![(6, set(PARENT, 1 << 20))]),
        ("a volume as its own parent", vec![(1, set(PARENT, 1))]),
        ("a snapshot as its own parent", vec![(5, set(PARENT, 5))]),
        ("a ring", vec![(4, set(PARENT, 5))]),
        ("a parent that changes", vec![(6, set(PARENT, 1))]),
        ("a snapshot that was never born", vec![(5, set(BORN, 0))]),
        ("a volume that was born", vec![(6, set(BORN, 3))]),
        ("a snapshot of an impossible epoch", vec![(5, set(BORN, 1 << 60))]),
        ("a snapshot of a later epoch", vec![(5, set(BORN, 1 << 40))]),
        ("a snapshot of no volume", vec![(5, set(OF, 77))]),
        ("a snapshot of a snapshot", vec![(5, set(OF, 3))]),
        ("a snapshot of number 0", vec![(5, set(OF, 0))]),
        ("two snapshots of one name", vec![(4, name("two"))]),
        ("names without volumes", vec![(3, set(OF, 50)), (4, set(OF, 50)), (5, set(OF, 50))]),
        ("other bytes", vec![(6, set(252..256, 1))]),
    ];
    for (what, changes) in cases {
        let mut image = make(Kind::Family);
        for (number, change) in changes {
            change_entry(&mut image, number, change);
        }
        reseal(&mut image);
        for how in 0..4 {
            let fate = survive(image.clone(), Use(how));
            assert!(
                matches!(fate, Fate::Refused(Some(OpenError::DamagedPage { what: "the volume table", .. }))),
                "{what}: {fate:?}"
            );
        }
        assert_repaired(&image, what);
    }
    // Snapshots without a name, and no volume that they are of, are in order.
    let mut image = make(Kind::Family);
    change_entry(&mut image, 4, put(OF, 50));
    change_entry(&mut image, 5, |entry| entry[3] = 0);
    reseal(&mut image);
    for how in 0..4 {
        assert!(matches!(survive(image.clone(), Use(how)), Fate::Served(_)));
    }
    assert_repaired(&image, "nothing");
    // The superblock says that there is no family.
    let mut image = make(Kind::Family);
    for superblock in places(&image, Structure::Superblock) {
        image[superblock + 16] &= !2;
    }
    reseal(&mut image);
    assert!(matches!(survive(image.clone(), Use(0)), Fate::Refused(Some(OpenError::DamagedPage { .. }))));
    assert_repaired(&image, "no family");
}

/// Pointers and entries FROM with epochs that lead nowhere, or to an ancestor that has nothing there: these blocks are damage, for readers and for the audit.
/// A repair makes them lost.
#[test]
fn what_a_map_has_from_nowhere_is_damage() {
    let is_pointer = |bytes: &[u8]| bytes[..8] == [0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    let sound = make(Kind::Family);
    let newest = probe(&sound).expect("a pool").epoch;
    let mut roots = Vec::new();
    for leaf in leaves(&sound, TreeId::Volumes) {
        roots.extend([leaf + 24, leaf + VOLUME_BYTES as usize + 24]);
    }
    let maps = places(&sound, Structure::Map);
    let pointers: Vec<usize> = maps.iter().flat_map(|&map| (map..map + BLOCK).step_by(16)).chain(roots).collect();
    let entries: Vec<usize> = maps.iter().flat_map(|&map| (map..map + BLOCK).step_by(8)).collect();
    let of_pointers: Vec<usize> = pointers.into_iter().filter(|&at| is_pointer(&sound[at..at + 16])).collect();
    let in_pointers = |at: usize| of_pointers.iter().any(|&pointer| (pointer..pointer + 16).contains(&at));
    let entry = |at: usize| u64::from_le_bytes(sound[at..at + 8].try_into().expect("eight bytes"));
    let of_entries: Vec<usize> =
        entries.into_iter().filter(|&at| entry(at) & 15 == 5 && entry(at) >> 4 < newest && !in_pointers(at)).collect();
    assert!(of_pointers.len() > 4 && !of_entries.is_empty(), "{of_pointers:?} {of_entries:?}");
    let mut noticed = 0;
    for epoch in [0, 1, 2, newest, newest + 9, 1 << 59, 1 << 60, u64::MAX] {
        for at in of_pointers.iter().map(|&at| at + 8).chain(of_entries.iter().copied()) {
            let mut image = sound.clone();
            let bytes = if of_entries.contains(&at) { 5 | epoch << 4 } else { epoch };
            image[at..at + 8].copy_from_slice(&bytes.to_le_bytes());
            reseal(&mut image);
            for how in 0..4 {
                assert!(matches!(survive(image.clone(), Use(how)), Fate::Served(_)), "{epoch}");
            }
            let mut problems = 0;
            let driver = Driver::open(image.clone(), LIMITS, Engine::open_to_audit).expect("it opens");
            let mut read = |offset: u64, length: u32| Some(image[offset as usize..][..length as usize].to_vec());
            driver.engine.check(&mut read, &mut |_| problems += 1);
            // An earlier epoch can be that of an ancestor which has something there.
            // A record may have another block in an entry's place.
            let may_lead =
                if of_entries.contains(&at) { ![0, 1 << 60].contains(&epoch) } else { (1..newest).contains(&epoch) };
            assert!(problems > 0 || may_lead, "{epoch} at {at}: nothing is reported");
            noticed += u32::from(problems > 0);
            assert_repaired(&image, &format!("{epoch} at {at}"));
        }
    }
    assert!(noticed > 20, "{noticed}");
}

/// Ancestors without the pages that others have from them: a root of a snapshot became nothing, and FROM stands where there never was anything.
#[test]
fn an_ancestor_that_has_nothing_there_is_damage() {
    let from = |image: &[u8], number: u16| -> u64 {
        let mut image = image.to_vec();
        let born = std::cell::Cell::new(0);
        change_entry(&mut image, number, |entry| born.set(u64::from_le_bytes(entry[BORN].try_into().expect("eight"))));
        born.get()
    };
    for number in [3, 4, 5] {
        let mut image = make(Kind::Family);
        change_entry(&mut image, number, |entry| entry[24..40].fill(0));
        reseal(&mut image);
        for how in 0..4 {
            assert!(matches!(survive(image.clone(), Use(how)), Fate::Served(_)), "{number}");
        }
        assert_repaired(&image, &format!("no map of {number}"));
    }
    let sound = make(Kind::Family);
    let born = [3, 4, 5].map(|number| from(&sound, number));
    for page in places(&sound, Structure::Map) {
        for born in born {
            for (size, step) in [(16, 48), (8, 56)] {
                let mut image = sound.clone();
                for at in (page..page + BLOCK - size).step_by(step) {
                    if image[at..at + size].iter().all(|&byte| byte == 0) {
                        let pointer = [&0xffff_fffe_u64.to_le_bytes()[..], &born.to_le_bytes()].concat();
                        let entry = (5 | born << 4).to_le_bytes();
                        image[at..at + size].copy_from_slice(if size == 16 { &pointer } else { &entry });
                    }
                }
                reseal(&mut image);
                for how in 0..4 {
                    assert!(matches!(survive(image.clone(), Use(how)), Fate::Served(_)), "{page} {born}");
                }
                assert_repaired(&image, &format!("page {page}, born {born}, {size} bytes"));
            }
        }
    }
}

/// One record deletes a whole family, children with larger numbers than their parents first: the checkpoint removed a parent before its child. A record that
/// deletes what others inherit from, or changes the content of a snapshot, makes no sense.
#[test]
fn a_journal_deletes_children_before_their_parents_and_leaves_snapshots_alone() {
    let record =
        |how: u8, entries: &[[u8; 6]]| journal(&[&[8, how, entries.len() as u8, 1][..], &entries.concat()].concat());
    let delete = |volume: u8| [6, volume, 0, 0, 0, 0];
    for how in 0..4 {
        let fate = record(how, &[6, 2, 5, 4, 1, 3].map(delete));
        assert!(matches!(fate, Fate::Served(1..)), "{fate:?}");
        let refused = [delete(4), delete(5), delete(3), [7, 5, 0, 0, 9, 0], [5, 3, 0, 0, 9, 0], [4, 3, 1, 0, 0, 0]];
        for entry in refused {
            let fate = record(how, &[entry]);
            assert!(matches!(fate, Fate::Refused(Some(OpenError::DamagedJournal { .. }))), "{entry:?}: {fate:?}");
        }
    }
}
