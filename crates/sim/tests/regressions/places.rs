//! Reads on an HDD. A block is read at the place nearest to the heads: in its slot, in its replica, or in another slot that the index names.

use engine::{
    Command, DefragSetting, DeviceTraits, Geometry, Limits, PlaceCounts, Policy, PoolChange, VolumePropertyChange,
};
use sim::content::{CELLS, Content, TWINS};
use sim::runs::config::Config;
use sim::world::Answer;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND};

const BLOCKS: u64 = 64;

impl Bench {
    fn place_counts(&self) -> PlaceCounts {
        self.world.engine.status().replicate.places
    }

    /// Reads one block from the device, with nothing in memory, and checks its content.
    pub(crate) fn read_there(&mut self, block: u64, content: u32) {
        self.cool();
        let token = self.begin_read(block, 1);
        assert_eq!(self.wait(token), Ok(Answer::Data(vec![content; CELLS])), "block {block}");
    }
}

/// Makes a configuration without read-ahead. The index takes digests with equal first bits for one content.
fn config(device: DeviceTraits) -> Config {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.slots_per_container) = (16, 64);
    config.limits = Limits { read_ahead: 0, sharing_digest_bits: 24, device, ..config.limits };
    config
}

/// Makes a volume whose policy observes: the index knows its contents, and nothing is shared.
fn observed(device: DeviceTraits) -> Bench {
    let mut bench = Bench::new(config(device), BLOCKS);
    let volume = bench.volume;
    let change = VolumePropertyChange { policy: Some(Some(Policy::Observe)), ..VolumePropertyChange::default() };
    bench.command(Command::SetVolume { volume, change });
    bench
}

fn heads() -> DeviceTraits {
    DeviceTraits { sequential_blocks: 0, ..DeviceTraits::HDD }
}

/// Writes the same content to blocks 0 and 40, with many blocks in between. The index names the first of them.
fn twice(device: DeviceTraits) -> Bench {
    let mut bench = observed(device);
    bench.write(0, &[7]);
    for block in 1..40 {
        bench.write(block, &[100 + block as u32]);
    }
    bench.write(40, &[7]);
    bench.write(41, &[141]);
    bench.settle();
    bench
}

#[test]
fn the_nearer_of_two_slots_with_the_same_content_is_read() {
    let mut bench = twice(heads());
    bench.read_there(2, 102);
    bench.read_there(40, 7);
    let counts = PlaceCounts { nearer: 1, hinted: 1, ..PlaceCounts::default() };
    assert_eq!(bench.place_counts(), counts);
    // The heads are beside its own slot.
    bench.read_there(39, 139);
    bench.read_there(40, 7);
    assert_eq!(bench.place_counts(), counts);
    bench.audit();
}

#[test]
fn where_the_disk_is_not_rotational_a_block_is_read_in_its_slot() {
    let mut bench = twice(DeviceTraits::SSD);
    bench.read_there(2, 102);
    bench.read_there(40, 7);
    assert_eq!(bench.place_counts(), PlaceCounts::default());
}

/// The index is trusted as a hint, and the block from the named slot is verified to the last bit. That slot is not tried again.
#[test]
fn a_hint_that_is_wrong_costs_a_read_and_nothing_else() {
    let [one, other] = TWINS[0];
    let mut bench = observed(heads());
    bench.write(0, &[one]);
    for block in 1..40 {
        bench.write(block, &[100 + block as u32]);
    }
    bench.write(40, &[other]);
    bench.settle();
    for _ in 0..2 {
        bench.read_there(39, 139);
        bench.read_there(0, one);
        assert_eq!(bench.place_counts(), PlaceCounts { nearer: 1, hinted: 1, wrong: 1, ..PlaceCounts::default() });
    }
    bench.audit();
}

/// Rot in the other slot is no damage of the block that is read.
#[test]
fn a_place_that_rots_or_cannot_be_read_costs_a_read_and_nothing_else() {
    let mut bench = twice(heads());
    let geometry = bench.geometry();
    let slots = (0..geometry.slots()).map(|slot| geometry.slot_block(slot));
    let is_it = |block: &u64| *bench.world.disk.read(*block) == Content::Payload([7; CELLS]);
    let first = slots.filter(is_it).min().expect("it is somewhere");
    bench.world.disk.put(first, Content::Payload([8; CELLS]));
    bench.read_there(2, 102);
    bench.read_there(40, 7);
    assert_eq!(bench.place_counts().wrong, 1);
}

/// A single block is read in its replica only where that is nearer. Consecutive blocks are read in any place where they take one read.
#[test]
fn what_follows_each_other_in_replicas_is_read_there_and_a_single_block_where_it_is_nearer() {
    let mut bench = Bench::new(config(heads()), BLOCKS);
    // It would put the blocks in order without replicas.
    bench.command(Command::SetPool(PoolChange { defrag: Some(DefragSetting::Off), ..PoolChange::default() }));
    for block in 0..8 {
        bench.write(block, &[100 + block as u32]);
        bench.write(20 + block, &[200 + block as u32]);
    }
    bench.settle();
    let read_all = |bench: &mut Bench| {
        bench.cool();
        let before = bench.world.engine.read_counts().device_reads;
        let token = bench.begin_read(0, 8);
        let expected: Vec<u32> = (0..8).flat_map(|block| [100 + block; CELLS]).collect();
        assert_eq!(bench.wait(token), Ok(Answer::Data(expected)));
        bench.world.engine.read_counts().device_reads - before
    };
    assert_eq!(read_all(&mut bench), 8);
    bench.pass(5 * SECOND);
    bench.settle();
    assert_eq!(read_all(&mut bench), 1);
    assert_eq!(bench.place_counts(), PlaceCounts { in_order: 1, ..PlaceCounts::default() });
    // The heads are behind the last replica.
    bench.read_there(3, 103);
    assert_eq!(bench.place_counts(), PlaceCounts { in_order: 1, nearer: 1, ..PlaceCounts::default() });
    // And here beside the block's own slot.
    bench.read_there(22, 202);
    bench.read_there(3, 103);
    assert_eq!(bench.place_counts(), PlaceCounts { in_order: 1, nearer: 1, ..PlaceCounts::default() });
    bench.audit();
}

pub(crate) const DAY: u64 = 86_400 * SECOND;

/// Makes a pool on an HDD with space for copies. Blocks are read one by one, from the device.
fn popular() -> Bench {
    let mut bench = empty();
    for block in 0..3 * BLOCKS {
        bench.write(block, &[100 + block as u32]);
    }
    bench.settle();
    // The first writes have filled all of the first zone: a container of it is given back.
    bench.trim_blocks(16, 8);
    bench.settle();
    bench
}

/// Makes a pool on an HDD with a budget for copies and with nothing written.
fn empty() -> Bench {
    let mut config = config(heads());
    (config.parameters.geometry.containers, config.parameters.geometry.slots_per_container) = (40, 8);
    config.limits.delta_entries = 2048;
    let mut bench = Bench::new(config, 4 * BLOCKS);
    let volume = bench.volume;
    let change = VolumePropertyChange { policy: Some(Some(Policy::Native)), ..VolumePropertyChange::default() };
    bench.command(Command::SetVolume { volume, change });
    bench.command(Command::SetPool(PoolChange { replicas: Some(Some(1 << 30)), ..PoolChange::default() }));
    bench
}

/// Reads blocks 5 and 6 often, so that each zone gets a copy of both, and block 50 once.
pub(crate) fn with_copies() -> Bench {
    let mut bench = popular();
    for block in [5, 6, 50, 6, 5] {
        bench.read_there(block, 100 + block as u32);
    }
    bench.pass(DAY + SECOND);
    bench.settle();
    let status = bench.world.engine.status().replicate;
    assert_eq!((status.made, status.copied, status.fully_copied), (2 * 10, 2, 2), "{status:?}");
    bench.audit();
    bench
}

#[test]
fn what_is_read_often_has_a_copy_in_each_zone_and_is_read_where_the_heads_are() {
    let mut bench = with_copies();
    for (round, block) in (1..).zip([5, 6]) {
        bench.read_there(191, 291);
        bench.read_there(block, 100 + block as u32);
        assert_eq!(bench.place_counts().copies, round, "{:?}", bench.place_counts());
    }
    // The heads stand beside its own slot.
    bench.read_there(4, 104);
    bench.read_there(5, 105);
    assert_eq!((bench.place_counts().copies, bench.place_counts().wrong), (2, 0));
    bench.pass(2 * DAY);
    bench.settle();
    assert_eq!(bench.world.engine.next_timer(), None, "it rests");
    bench.audit();
}

/// Copies lie in reserved space. A row of a pool that was nearly empty had containers in its first zones, and permanently no more. Now zones join the
/// row when they have space.
#[test]
fn zones_whose_space_is_reserved_later_join_the_rows() {
    let mut bench = empty();
    (0..16).for_each(|block| bench.write(block, &[100 + block as u32]));
    bench.settle();
    let read_twice = |bench: &mut Bench| {
        for block in [5, 6, 12, 6, 5] {
            bench.read_there(block, 100 + block as u32);
        }
        bench.pass(DAY + 300 * SECOND);
        bench.settle();
    };
    read_twice(&mut bench);
    let few = bench.replicas();
    assert!(few.copied == 2 && few.fully_copied == 0, "{few:?}");
    (16..3 * BLOCKS).for_each(|block| bench.write(block, &[100 + block as u32]));
    bench.settle();
    // The first zone is full but for this.
    bench.trim_blocks(16, 8);
    bench.settle();
    read_twice(&mut bench);
    let all = bench.replicas();
    assert_eq!((all.copied, all.fully_copied), (2, 2), "{few:?}\n{all:?}");
    bench.crash(Cut::Lost).expect("it opens");
    bench.pass(SECOND);
    assert_eq!(bench.replicas().fully_copied, 2);
    bench.audit();
}

/// A block that was read only once has no copies, and neither has any block on a disk that is not rotational.
#[test]
fn what_is_not_popular_or_lies_on_no_rotational_disk_gets_no_copies() {
    let mut bench = popular();
    (24..3 * BLOCKS).for_each(|block| bench.read_there(block, 100 + block as u32));
    bench.pass(DAY + SECOND);
    assert_eq!(bench.world.engine.status().replicate.made, 0);
    let mut config = config(DeviceTraits::SSD);
    config.limits.delta_entries = 2048;
    let mut bench = Bench::new(config, BLOCKS);
    bench.write(0, &[7, 8]);
    bench.settle();
    (0..3).for_each(|_| bench.read_there(0, 7));
    bench.pass(DAY + SECOND);
    assert_eq!(bench.world.engine.status().replicate.made, 0);
}

/// After a crash the copies are found in the map of their volume, and proven.
#[test]
fn copies_are_found_again_after_a_crash() {
    let mut bench = with_copies();
    bench.crash(Cut::Lost).expect("it opens");
    bench.pass(SECOND);
    assert_eq!((bench.replicas().replicas, bench.replicas().fully_copied), (20, 2));
    for _ in 0..2 {
        bench.read_there(191, 291);
        bench.read_there(6, 106);
    }
    assert!(bench.place_counts().copies > 0 && bench.place_counts().wrong == 0, "{:?}", bench.place_counts());
    bench.audit();
}

/// A block that is written again has other slots. The copies of the old slot are dropped, and their slots are used again.
#[test]
fn copies_go_with_their_slot() {
    let mut bench = with_copies();
    bench.write(5, &[900]);
    bench.write(6, &[901]);
    bench.settle();
    bench.pass(SECOND);
    bench.settle();
    assert_eq!(bench.world.engine.status().replicate.replicas, 0);
    bench.read_there(191, 291);
    bench.read_there(5, 900);
    assert_eq!(bench.place_counts().copies, 0);
    bench.audit();
}

/// A smaller budget removes all copies of a block together, and unread copies first. Ten copies of one block remain.
#[test]
fn copies_that_nobody_reads_give_way_first() {
    let mut bench = with_copies();
    bench.read_there(191, 291);
    bench.read_there(5, 105);
    assert_eq!(bench.place_counts().copies, 1);
    bench.set_replicas(20);
    bench.pass(SECOND);
    bench.settle();
    assert_eq!((bench.replicas().replicas, bench.replicas().fully_copied), (10, 1));
    bench.read_there(191, 291);
    bench.read_there(5, 105);
    assert_eq!(bench.place_counts().copies, 2, "that one is still there");
    bench.audit();
    bench.set_replicas(0);
    bench.pass(SECOND);
    bench.settle();
    assert_eq!((bench.replicas().replicas, bench.replicas().copied), (0, 0));
    bench.audit();
}

/// With space for one row of columns, blocks that were popular give their columns up to blocks that are. Their slots become free, and get the copies
/// of the others.
#[test]
fn what_becomes_popular_takes_the_place_of_what_was() {
    let mut bench = popular();
    bench.set_replicas(2 * 80);
    for first in [24, 90, 40] {
        let blocks = first..first + 8;
        let read_all = |bench: &mut Bench| {
            for block in blocks.clone() {
                bench.read_there(if first > 80 { 0 } else { 191 }, if first > 80 { 100 } else { 291 });
                bench.read_there(block, 100 + block as u32);
            }
        };
        // Copies that were read stay for one day more.
        for _ in 0..2 {
            (0..4).for_each(|_| read_all(&mut bench));
            bench.pass(DAY + 300 * SECOND);
            bench.settle();
        }
        assert_eq!((bench.replicas().replicas, bench.replicas().fully_copied), (80, 8), "blocks from {first}");
        let before = bench.place_counts().copies;
        read_all(&mut bench);
        assert!(bench.place_counts().copies > before, "blocks from {first}: {:?}", bench.place_counts());
        bench.audit();
    }
}

/// Memory bounds the number of blocks with copies. With less memory the other copies are given back, and the tables, too.
#[test]
fn less_memory_takes_copies_away() {
    let mut bench = popular();
    let limits = bench.config.limits;
    for block in 24..56 {
        (0..2).for_each(|_| bench.read_there(block, 100 + block as u32));
    }
    bench.pass(DAY + SECOND);
    bench.settle();
    let before = bench.replicas();
    assert!(before.fully_copied >= 8, "{before:?}");
    let less = Limits { index_entries: limits.index_entries / 8, buffers: limits.write_buffers + 1, ..limits };
    bench.world.set_limits(less).unwrap();
    bench.pass(SECOND);
    bench.settle();
    let after = bench.replicas();
    assert!(after.most_copied < before.copied && after.copied <= after.most_copied, "{before:?}\n{after:?}");
    bench.audit();
}

/// With 64 MiB of memory 76 popular blocks had copies in a pool of 50 GiB: each copy had an entry of its own in the small deltas.
#[test]
fn ten_thousand_popular_blocks_have_ten_copies_with_64_mib() {
    const POPULAR: u64 = 10_752;
    let mut config = config(heads());
    config.parameters.geometry = Geometry { piece_blocks: 64, ..Geometry::for_capacity(1 << 30).unwrap() };
    let limits = Limits::for_memory(48 << 20, &config.parameters.geometry).unwrap();
    config.limits = Limits { read_ahead: 0, device: heads(), ..limits };
    // All parts of the disk have been in use, since copies lie where the pool has reserved space.
    let blocks = (1 << 18) - 1024;
    let mut bench = Bench::new(config, blocks);
    let volume = bench.volume;
    let change = VolumePropertyChange { policy: Some(Some(Policy::Native)), ..VolumePropertyChange::default() };
    bench.command(Command::SetVolume { volume, change });
    bench.command(Command::SetPool(PoolChange { replicas: Some(Some(8 << 30)), ..PoolChange::default() }));
    for first in (0..blocks).step_by(64) {
        bench.write(first, &(0..64).map(|i| 100 + (first + i) as u32).collect::<Vec<u32>>());
    }
    bench.settle();
    bench.trim_blocks(POPULAR, blocks - POPULAR);
    bench.settle();
    for _ in 0..2 {
        for first in (0..POPULAR).step_by(64) {
            bench.cool();
            let token = bench.begin_read(first, 64);
            bench.wait(token).unwrap();
        }
    }
    bench.pass(DAY + 600 * SECOND);
    bench.settle();
    let status = bench.replicas();
    assert!(status.fully_copied >= 10_000, "{status:?}");
    bench.crash(Cut::Lost).expect("it opens");
    bench.pass(600 * SECOND);
    assert_eq!(bench.replicas().fully_copied, status.fully_copied, "{:?}", bench.replicas());
    bench.audit();
}
