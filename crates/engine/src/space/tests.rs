//! Tests of slots and containers: allocation, deferred frees and generations.

use super::*;

pub(super) fn space() -> Space {
    let mut space = space_without_reserve();
    space.set_reserved(2);
    space
}

fn space_without_reserve() -> Space {
    Space::new(&geometry(2))
}

/// Makes the geometry of containers of four slots.
pub(super) fn geometry(containers: u32) -> Geometry {
    Geometry {
        block_size: 512,
        slots_per_container: 4,
        piece_blocks: 4,
        place_b: 2,
        journal_blocks: 16,
        metadata_blocks: 16,
        containers,
        spare_containers: 0,
        growth: crate::format::geometry::UNGROWN,
    }
}

/// Opens the next container, as far as the taken slots show (the space map of these tests is empty).
fn open_next(space: &mut Space) -> Option<u32> {
    let container = space.choose(false, &|_| false)?;
    let first = space.slots_of(container).start;
    let free: Vec<_> = (0..4).map(|place| !space.is_taken(Slot(first + place))).collect();
    space.open(container, |place| free[place as usize]);
    Some(container)
}

pub(super) fn allocate(space: &mut Space) -> Option<Slot> {
    if space.ready() == 0 {
        open_next(space)?;
    }
    space.allocate(false)
}

/// Checks that a wraparound of a generation is noticed: otherwise index entries of 65,536 generations ago would be valid again.
#[test]
fn a_generation_that_comes_round_names_its_slots_once() {
    let mut space = space();
    let mut named = 0;
    for _ in 0..2 * 65536 {
        space.grow_generation(1);
        if let Some(slots) = space.take_wrapped() {
            assert_eq!((slots, space.containers[1].generation), (4..8, 0));
            named += 1;
        }
    }
    assert_eq!((named, space.wraps(), space.take_wrapped()), (2, 2, None));
}

pub(super) fn reclaim(space: &mut Space, published: u64, busy: bool) -> usize {
    let mut reclaimed = vec![];
    space.reclaim(published, 100, |_| busy, &mut reclaimed);
    reclaimed.len()
}

#[test]
fn nothing_is_allocated_before_its_space_is_reserved() {
    let mut space = space_without_reserve();
    assert_eq!((allocate(&mut space), space.to_reserve(1, 1, false)), (None, Some((0, 1))));
    space.set_reserved(1);
    assert_eq!((space.available(), allocate(&mut space)), (4, Some(Slot(0))));
}

#[test]
fn slots_are_allocated_in_order_and_holes_only_when_no_container_is_empty() {
    let mut space = space();
    let all: Vec<_> = (0..8).map(|_| allocate(&mut space).unwrap()).collect();
    assert_eq!(all, (0..8).map(Slot).collect::<Vec<_>>());
    assert_eq!(allocate(&mut space), None);
    for slot in [1, 5, 6] {
        space.defer_free(Slot(slot), 9);
    }
    assert_eq!(reclaim(&mut space, 8, false), 0);
    assert_eq!(reclaim(&mut space, 9, false), 3);
    let before = space.generation(Slot(5));
    assert_eq!(allocate(&mut space), Some(Slot(5)));
    assert!(space.generation(Slot(5)) > before);
    let rest = (allocate(&mut space), allocate(&mut space), allocate(&mut space));
    assert_eq!(rest, (Some(Slot(6)), Some(Slot(1)), None));
    assert_eq!((space.free(), space.available(), space.ready()), (0, 0, 0));
}

#[test]
fn holes_are_filled_before_fresh_containers_only_where_half_is_free() {
    let mut space = space();
    while allocate(&mut space).is_some() {}
    space.defer_free(Slot(1), 1);
    reclaim(&mut space, 1, false);
    assert_eq!((space.choose(true, &|_| false), space.choose(false, &|_| false)), (None, Some(0)));
    space.defer_free(Slot(2), 1);
    reclaim(&mut space, 1, false);
    assert_eq!(space.choose(true, &|_| false), Some(0));
}

#[test]
fn what_becomes_free_in_an_open_container_is_found_when_nothing_else_is_left() {
    let mut space = space();
    let all: Vec<_> = (0..7).map(|_| allocate(&mut space).unwrap()).collect();
    let generation = space.generation(Slot(4));
    space.defer_free(all[5], 1);
    reclaim(&mut space, 1, false);
    assert_eq!((space.ready(), space.available()), (1, 2));
    assert_eq!(open_next(&mut space), Some(1));
    assert_eq!((space.ready(), space.generation(Slot(4))), (2, generation + 1));
    assert_eq!(
        (space.allocate(false), space.allocate(false), space.choose(false, &|_| false)),
        (Some(Slot(5)), Some(Slot(7)), None)
    );
}

#[test]
fn a_slot_that_is_still_being_read_or_written_is_not_given_back() {
    let mut space = space();
    let slot = allocate(&mut space).unwrap();
    space.defer_free(slot, 1);
    assert_eq!(reclaim(&mut space, 1, true), 0);
    assert_eq!(space.pending().len(), 1);
    assert_eq!(reclaim(&mut space, 1, false), 1);
}

#[test]
fn a_container_whose_map_cannot_be_read_is_left_alone() {
    let mut space = space();
    space.exclude(0);
    assert_eq!((space.available(), allocate(&mut space)), (4, Some(Slot(4))));
}

#[test]
fn a_merge_only_gives_first_references_to_taken_slots() {
    let mut space = space();
    let slot = allocate(&mut space).unwrap();
    assert_eq!(space.merged(slot, SlotState::Free, SlotState::Single), Some(()));
    assert_eq!(space.merged(Slot(7), SlotState::Free, SlotState::Single), None);
    assert_eq!((space.data_used, space.containers[0].live, space.is_taken(slot)), (1, 1, false));
    space.merged(slot, SlotState::Single, SlotState::Held).unwrap();
    assert_eq!((space.data_used, space.containers[0].live), (0, 1));
    space.merged(slot, SlotState::Held, SlotState::Free).unwrap();
    assert_eq!((space.containers[0].live, space.is_taken(slot), space.free()), (0, true, 7));
}

#[test]
fn leaves_read_back() {
    let mut space = space();
    for _ in 0..3 {
        let slot = allocate(&mut space).unwrap();
        space.merged(slot, SlotState::Free, SlotState::Single).unwrap();
    }
    let mut table = [0; 512];
    space.write_container_leaf(0, &mut table);
    let mut again = space_without_reserve();
    again.read_container_leaf(0, &table).unwrap();
    assert_eq!((again.free(), again.containers[0].live, again.containers[0].free), (5, 3, 1));
    assert_eq!(again.read_container_leaf(0, &[0xff; 512]), None);
}

#[test]
fn states_are_packed_four_to_a_byte() {
    let mut leaf = [0; 4];
    SlotState::Shared.write(&mut leaf, 5);
    SlotState::Held.write(&mut leaf, 6);
    SlotState::Single.write(&mut leaf, 6);
    let read: Vec<_> = (4..8).map(|at| SlotState::read(&leaf, at)).collect();
    assert_eq!(read, [SlotState::Free, SlotState::Shared, SlotState::Single, SlotState::Free]);
}
