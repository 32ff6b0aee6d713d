//! Pools that mean harm, one test for each mistake that fuzzing (or reading the code for it) found.

use engine::OpenError;
use engine::superblock::TreeId;
use lab::fuzz::disk::{Fate, Use, survive};
use lab::fuzz::pool::{BLOCK, Kind, Structure, make, reseal, structures};

/// The bytes at which the pages of a structure begin.
fn places(image: &[u8], structure: Structure) -> Vec<usize> {
    structures(image).into_iter().filter(|(_, what)| *what == structure).map(|(place, _)| place).collect()
}

fn table(tree: TreeId) -> Structure {
    Structure::Table(tree as usize)
}

/// The superblocks' roots, and the entries of the volume table, held pointers beyond the metadata. Looking for such a block was
/// an assertion, which any read of the volume met.
#[test]
fn a_pointer_that_leads_nowhere_is_a_damaged_page() {
    for location in [500_000_u32, u32::MAX] {
        for tree in 0..engine::superblock::TREES {
            let mut image = make(Kind::Closed);
            for superblock in places(&image, Structure::Superblock) {
                image[superblock + 256 + tree * 24..][..4].copy_from_slice(&location.to_le_bytes());
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

/// The meta map said that pages of the maps were free. They were freed again, or given out while the page cache had them: two
/// assertions in the first checkpoint. Now it fails, and the pool is read-only.
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
