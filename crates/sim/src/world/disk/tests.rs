use super::*;
use std::collections::BTreeSet;

fn payload(number: u32) -> Content {
    Content::Payload([number; 8])
}

fn write(disk: &mut Disk, id: u32, block: u64, number: u32) {
    assert!(disk.submit_write(id, block, vec![payload(number)]));
    disk.complete_write(id);
}

fn sync(disk: &mut Disk, id: u32) {
    disk.submit_sync(id);
    disk.complete_sync(id);
}

/// Returns every content of block 0 after 400 crashes.
fn outcomes(disk: &Disk, cut: Cut) -> BTreeSet<[u32; 8]> {
    let outcome = |seed| {
        let mut crashed = disk.clone();
        crashed.crash(cut, &mut Random::new(seed));
        crashed.read(0).to_cells()
    };
    (0..400).map(outcome).collect()
}

#[test]
fn a_sync_covers_only_what_had_landed_when_it_was_submitted() {
    let mut disk = Disk::new(512, 4);
    write(&mut disk, 1, 0, 1);
    disk.submit_sync(2);
    write(&mut disk, 3, 0, 2);
    assert!(disk.submit_write(4, 1, vec![payload(3)]));
    disk.complete_sync(2);
    disk.complete_write(4);
    assert_eq!(outcomes(&disk, Cut::Lost), [[1; 8]].into());
    assert_eq!(outcomes(&disk, Cut::Kept), [[2; 8]].into());
    disk.crash(Cut::Lost, &mut Random::new(1));
    assert_eq!(disk.read(1), &payload(0));
}

#[test]
fn a_durable_write_needs_no_sync_and_covers_no_other() {
    let mut disk = Disk::new(512, 4);
    write(&mut disk, 1, 0, 1);
    write(&mut disk, 2, 1, 1);
    assert!(disk.submit_write(3, 0, vec![payload(2)]));
    disk.force_write(3);
    assert_eq!(outcomes(&disk, Cut::Lost), [[0; 8]].into());
    disk.complete_write(3);
    assert!(disk.submit_write(4, 0, vec![payload(3)]));
    assert_eq!(outcomes(&disk, Cut::Lost), [[2; 8]].into());
    assert_eq!(outcomes(&disk, Cut::Mixed), [[2; 8], [3; 8]].into());
    disk.crash(Cut::Lost, &mut Random::new(1));
    assert_eq!(disk.read(1), &payload(0));
}

#[test]
fn a_sync_in_flight_makes_nothing_durable() {
    let mut disk = Disk::new(512, 4);
    write(&mut disk, 1, 0, 1);
    disk.submit_sync(2);
    assert_eq!(outcomes(&disk, Cut::Lost), [[0; 8]].into());
}

#[test]
fn a_write_submitted_before_a_sync_but_completed_after_is_not_covered() {
    let mut disk = Disk::new(512, 4);
    assert!(disk.submit_write(1, 0, vec![payload(1)]));
    disk.submit_sync(2);
    disk.complete_write(1);
    disk.complete_sync(2);
    assert_eq!(outcomes(&disk, Cut::Lost), [[0; 8]].into());
    sync(&mut disk, 3);
    assert_eq!(outcomes(&disk, Cut::Lost), [[1; 8]].into());
}

#[test]
fn a_mixed_cut_reaches_every_version_and_a_torn_one_mixes() {
    let mut disk = Disk::new(512, 4);
    write(&mut disk, 1, 0, 1);
    sync(&mut disk, 2);
    write(&mut disk, 3, 0, 2);
    assert!(disk.submit_write(4, 0, vec![payload(3)]));
    assert_eq!(outcomes(&disk, Cut::Mixed), [[1; 8], [2; 8], [3; 8]].into());
    let torn = outcomes(&disk, Cut::Torn);
    assert!(torn.len() > 50);
    assert!(torn.iter().flatten().all(|cell| (1..=3).contains(cell)));
    assert_eq!(outcomes(&disk, Cut::FlyingOnly), [[3; 8]].into());
}

#[test]
fn what_a_kill_leaves_is_visible_and_volatile_until_a_sync() {
    let mut disk = Disk::new(512, 4);
    write(&mut disk, 1, 0, 1);
    disk.crash(Cut::Kill, &mut Random::new(1));
    assert_eq!(disk.read(0), &payload(1));
    assert_eq!(outcomes(&disk, Cut::Lost), [[0; 8]].into());
    sync(&mut disk, 1);
    assert_eq!(outcomes(&disk, Cut::Lost), [[1; 8]].into());
    assert!(disk.submit_write(2, 0, vec![payload(2)]));
    assert_eq!(outcomes(&disk, Cut::Kill), [[1; 8], [2; 8]].into());
}

#[test]
fn in_the_middle_of_a_sync_what_it_covers_is_there_torn_or_not_yet_and_all_else_is_lost() {
    let mut disk = Disk::new(512, 8);
    write(&mut disk, 1, 0, 1);
    disk.submit_sync(2);
    write(&mut disk, 3, 0, 2);
    write(&mut disk, 4, 1, 3);
    assert!(disk.is_syncing());
    let found = outcomes(&disk, Cut::MidSync);
    assert!(found.contains(&[0; 8]) && found.contains(&[1; 8]) && found.len() > 4, "{found:?}");
    assert!(found.iter().flatten().all(|&cell| cell <= 1), "{found:?}");
    disk.complete_sync(2);
    assert_eq!(outcomes(&disk, Cut::MidSync), [[1; 8]].into(), "no sync is in flight");
    assert!(disk.submit_write(5, 0, vec![payload(4)]));
    disk.force_write(5);
    assert!(outcomes(&disk, Cut::MidSync).contains(&[4; 8]), "a durable write is");
}

#[test]
fn every_single_cell_is_torn_alone_and_in_turn() {
    let mut disk = Disk::new(512, 16);
    for block in 0..16 {
        write(&mut disk, block as u32, block, 1);
    }
    sync(&mut disk, 99);
    assert!(disk.submit_write(1, 0, vec![payload(2); 16]));
    for (number, cut) in (0..).zip(Cut::MASKS) {
        assert_eq!(cut.number(), number + Cut::ALL.len() as u64);
        let mut crashed = disk.clone();
        crashed.crash(cut, &mut Random::new(1));
        let new = |block| crashed.read(block).to_cells().iter().filter(|&&cell| cell == 2).count();
        let expected = if matches!(cut, Cut::OneKept(_) | Cut::RotatingKept) { 1 } else { 7 };
        assert!((0..16).all(|block| new(block) == expected), "{cut:?}");
        let same = (1..16).all(|block| crashed.read(block) == crashed.read(0));
        assert_eq!(same, !matches!(cut, Cut::RotatingKept | Cut::RotatingLost));
        if let Cut::OneKept(cell) = cut {
            assert_eq!(crashed.read(3).to_cells()[usize::from(cell)], 2);
        }
    }
}

#[test]
fn a_lost_write_shows_the_old_content_until_it_is_lifted_or_overwritten() {
    let mut disk = Disk::new(512, 4);
    write(&mut disk, 1, 0, 1);
    assert!(disk.submit_write(2, 0, vec![payload(2), payload(2)]));
    assert_eq!(disk.lose_write(2, None), 2);
    sync(&mut disk, 3);
    assert_eq!((disk.read(0), disk.read(1), disk.pristine(0)), (&payload(1), &payload(0), &payload(2)));
    let mut crashed = disk.clone();
    crashed.crash(Cut::Lost, &mut Random::new(1));
    assert_eq!(crashed.read(0), &payload(1), "damage outlives a crash");
    write(&mut disk, 4, 0, 3);
    assert_eq!((disk.read(0), disk.is_damaged(0), disk.is_damaged(1)), (&payload(3), false, true));
    disk.lift();
    assert_eq!(disk.read(1), &payload(2));
}

#[test]
fn a_misdirected_write_appears_elsewhere_and_the_right_place_stays_old() {
    let mut disk = Disk::new(512, 8);
    write(&mut disk, 1, 0, 1);
    write(&mut disk, 2, 5, 9);
    assert!(disk.submit_write(3, 0, vec![payload(2)]));
    assert_eq!(disk.lose_write(3, Some(5)), 2);
    assert_eq!((disk.read(0), disk.read(5)), (&payload(1), &payload(2)));
    disk.lift();
    assert_eq!((disk.read(0), disk.read(5)), (&payload(2), &payload(9)));
}

#[test]
fn a_stale_read_sees_the_version_before_the_last() {
    let mut disk = Disk::new(512, 4);
    disk.remember_previous();
    assert_eq!(disk.stale(0), None);
    write(&mut disk, 1, 0, 1);
    write(&mut disk, 2, 0, 2);
    assert_eq!((disk.stale(0), disk.read(0)), (Some(payload(1)), &payload(2)));
}

#[test]
fn a_failed_write_leaves_old_new_or_torn_blocks_and_a_short_one_a_first_part() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let mut disk = Disk::new(512, 4);
        write(&mut disk, 1, 0, 1);
        assert!(disk.submit_write(2, 0, vec![payload(2); 4]));
        let mut short = disk.clone();
        disk.fail_write(2, false, &mut Random::new(seed));
        seen.insert(disk.read(0).to_cells());
        assert_eq!(disk.damaged(), 0, "an error is no damage that can be lifted");
        short.fail_write(2, true, &mut Random::new(seed));
        let cells: Vec<u32> = (0..4).flat_map(|block| short.read(block).to_cells()).collect();
        let reached = cells.iter().take_while(|&&cell| cell == 2).count();
        assert!(cells[reached..].iter().all(|&cell| cell != 2) && reached < 32, "{cells:?}");
    }
    assert!(seen.contains(&[1; 8]) && seen.contains(&[2; 8]) && seen.len() > 20);
}

#[test]
fn a_failed_sync_makes_durable_keeps_or_loses() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let mut disk = Disk::new(512, 4);
        write(&mut disk, 1, 0, 1);
        sync(&mut disk, 2);
        write(&mut disk, 3, 0, 2);
        disk.submit_sync(4);
        disk.fail_sync(4, &mut Random::new(seed));
        let visible = disk.read(0).to_cells()[0];
        disk.crash(Cut::Lost, &mut Random::new(1));
        seen.insert((visible, disk.read(0).to_cells()[0]));
    }
    assert_eq!(seen, [(2, 2), (2, 1), (1, 1)].into());
}

#[test]
fn one_that_fails_takes_those_beside_it_with_it() {
    let mut disk = Disk::new(512, 4);
    write(&mut disk, 1, 0, 1);
    disk.submit_sync(2);
    disk.will_fail(2);
    assert!(disk.submit_write(3, 1, vec![payload(2)]));
    disk.force_write(3);
    disk.submit_sync(4);
    disk.complete_write(3);
    disk.fail_sync(2, &mut Random::new(1));
    disk.complete_sync(4);
    disk.crash(Cut::Lost, &mut Random::new(1));
    assert_eq!(disk.read(1), &payload(0), "it said that it was durable");
    // Those that begin later are honest.
    write(&mut disk, 5, 1, 3);
    sync(&mut disk, 6);
    disk.crash(Cut::Lost, &mut Random::new(1));
    assert_eq!(disk.read(1), &payload(3));
}

#[test]
fn a_write_in_flight_is_not_visible_and_a_second_one_to_its_block_is_refused() {
    let mut disk = Disk::new(512, 4);
    assert!(disk.submit_write(1, 0, vec![payload(1), payload(1)]));
    assert_eq!(disk.read(1), &payload(0));
    assert!(!disk.submit_write(2, 1, vec![payload(2)]));
    let mut random = Random::new(5);
    let seen: BTreeSet<_> = (0..200).map(|_| disk.read_racing(0, &mut random).to_cells()).collect();
    assert!(seen.contains(&[0; 8]) && seen.contains(&[1; 8]) && seen.len() > 2);
}

#[test]
fn each_version_of_each_block_can_be_chosen() {
    let mut disk = Disk::new(512, 4);
    write(&mut disk, 1, 0, 1);
    write(&mut disk, 2, 0, 2);
    assert!(disk.submit_write(3, 1, vec![payload(3)]));
    let unsynced = disk.unsynced();
    assert_eq!(unsynced.iter().map(|(_, later)| later.len()).collect::<Vec<_>>(), [2, 1]);
    for (choices, expected) in [([0, 1], [0, 3]), ([1, 0], [1, 0]), ([2, 1], [2, 3])] {
        let mut crashed = disk.clone();
        crashed.crash_choosing(&choices);
        assert_eq!((crashed.read(0), crashed.read(1)), (&payload(expected[0]), &payload(expected[1])));
        let mut hash = disk.durable_hash();
        for (&choice, (durable, later)) in choices.iter().zip(&unsynced).filter(|(choice, _)| **choice > 0) {
            hash = [0, 1].map(|half| hash[half].wrapping_sub(durable[half]).wrapping_add(later[choice - 1][half]));
        }
        assert_eq!(hash, crashed.durable_hash());
    }
}

#[test]
fn a_write_of_several_blocks_is_kept_or_lost_as_a_whole_by_write() {
    let mut disk = Disk::new(512, 4);
    assert!(disk.submit_write(1, 0, vec![payload(1), payload(1)]));
    for seed in 0..50 {
        let mut crashed = disk.clone();
        crashed.crash(Cut::ByWrite, &mut Random::new(seed));
        assert_eq!(crashed.read(0), crashed.read(1));
    }
}
