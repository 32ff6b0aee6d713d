//! The map buffer (docs/rfc/0010). Its entries are as durable as those in leaves, and are flushed when they have to be.

use std::rc::Rc;

use engine::{Command, Limits, Nanos, Operation, Policy, Submit, VolumePropertyChange};
use sim::content::{CELLS, Content};
use sim::random::Random;
use sim::runs::config::Config;
use sim::runs::repair;
use sim::timed::machine::{Machine, Step, Store};
use sim::timed::pool::Pool;
use sim::world::World;
use sim::world::disk::Cut;

use crate::bench::Bench;

/// Entries of a leaf of a map.
const LEAF: u64 = 64;

/// Makes a pool with a buffer for all writes, and one buffered block in each of `leaves` leaves.
fn buffered(leaves: u64) -> Bench {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.metadata_blocks) = (256, 2_000);
    config.limits = Limits { delta_entries: 64, map_buffer: 512, pages: 512, ..config.limits };
    let mut bench = Bench::new(config, LEAF * (leaves + 1));
    for leaf in 0..leaves {
        bench.write(LEAF * leaf, &[100 + leaf as u32]);
    }
    checkpoint(&mut bench);
    assert_eq!(bench.world.engine.status().buffered_entries, leaves);
    bench
}

/// Performs a checkpoint, and nothing else.
fn checkpoint(bench: &mut Bench) {
    let volume = bench.volume;
    bench.command(Command::SetVolume {
        volume,
        change: VolumePropertyChange { read_only: Some(false), ..VolumePropertyChange::default() },
    });
}

fn assert_reads(bench: &mut Bench, leaves: u64) {
    (0..leaves).for_each(|leaf| bench.assert_holds(LEAF * leaf, 100 + leaf as u32));
}

#[test]
fn what_is_buffered_is_there_after_a_crash_and_goes_into_its_leaves_when_there_is_less_memory() {
    let mut bench = buffered(100);
    bench.crash(Cut::Lost).expect("it opens");
    assert_eq!(bench.world.engine.status().buffered_entries, 100);
    assert_reads(&mut bench, 100);
    let limits = Limits { map_buffer: 10, ..bench.config.limits };
    bench.world.set_limits(limits).unwrap();
    checkpoint(&mut bench);
    bench.pass(20_000_000_000);
    let status = bench.world.engine.status();
    assert!(status.buffered_entries <= 10 && !bench.world.engine.is_resizing(), "{status:?}");
    assert_reads(&mut bench, 100);
    bench.audit();
}

/// A clear counts the buffered entries of its blocks against the slots that one checkpoint may release. A clear with more entries than that waited
/// for a checkpoint that would not have reduced them.
#[test]
fn a_trim_of_more_than_a_checkpoint_may_release_waits_until_enough_is_flushed() {
    let mut bench = buffered(400);
    bench.trim_blocks(0, LEAF * 400);
    assert!(bench.world.engine.status().buffered_entries < 400);
    (0..400).for_each(|leaf| bench.assert_holds(LEAF * leaf, 0));
    bench.settle();
    assert_eq!(bench.world.engine.status().data_blocks_used, 0);
    bench.audit();
}

/// A leaf with many new mappings also takes its buffered entries.
#[test]
fn a_leaf_that_is_written_anyway_leaves_nothing_in_the_buffer() {
    let mut bench = buffered(20);
    let contents: Vec<u32> = (1_000..1_008).collect();
    bench.write(LEAF * 3 + 8, &contents);
    checkpoint(&mut bench);
    assert_eq!(bench.world.engine.status().buffered_entries, 19);
    assert_reads(&mut bench, 20);
    for (block, content) in (LEAF * 3 + 8..).zip(contents) {
        bench.assert_holds(block, content);
    }
    bench.audit();
}

/// A buffered entry hides the mapping in its leaf, which keeps its slot until the leaf is written. Reads do not reach that slot, but a scrub does.
/// The flip of every byte took rot there for unnoticed damage.
#[test]
fn rot_in_a_slot_that_only_a_leaf_not_yet_written_leads_to_is_found_by_a_scrub_and_costs_nothing() {
    let mut bench = buffered(20);
    bench.settle();
    bench.write(LEAF * 3, &[900]);
    checkpoint(&mut bench);
    let hidden = bench.places(103)[0];
    let (offset, mut is_live) = (hidden * bench.geometry().block(), false);
    let world = &bench.world;
    let mut read = |offset, length| World::read_bytes(&world.disk, offset, length);
    world.engine.live_slots(&mut read, &mut |at, _| is_live |= at == offset);
    assert!(is_live && world.engine.status().buffered_entries == 1);
    bench.rot(hidden);
    bench.assert_holds(LEAF * 3, 900);
    assert_eq!(bench.world.engine.status().damaged_blocks_found, 0);
    assert_eq!(bench.scrub().found, 1);
    bench.assert_holds(LEAF * 3, 900);
    // The leaf is written, and the slot becomes free.
    bench.settle();
    assert_eq!(bench.world.engine.status().data_blocks_used, 20);
    assert_eq!(bench.scrub().found, 0);
    bench.audit();
}

/// After damage to a page of the log the repair reports the number of blocks with older contents. All other blocks are unchanged.
#[test]
fn a_damaged_page_of_the_log_is_named_and_costs_what_was_in_it_at_most() {
    let mut bench = buffered(100);
    let config = bench.config.clone();
    let geometry = bench.geometry();
    bench.reopen();
    let mut closed = bench.world.disk.clone();
    closed.crash(Cut::Lost, &mut sim::random::Random::new(1));
    let mut pages = 0;
    for block in geometry.metadata_start()..geometry.data_start() {
        let Content::Metadata(page) = closed.read(block) else { continue };
        let mut disk = closed.clone();
        let mut bytes = page.to_vec();
        bytes[9] ^= 0x40;
        disk.put(block, Content::Metadata(bytes.into()));
        let plan = repair::plan(&disk, &config, false).unwrap();
        if !plan.problems.iter().any(|problem| problem.starts_with("the map buffer")) {
            continue;
        }
        pages += 1;
        repair::perform(&mut disk, &plan);
        let mut bench = Bench::on_disk(config.clone(), disk, "repaired");
        bench.volume = bench.world.engine.volumes().next().unwrap().id;
        let kept = bench.world.engine.status().buffered_entries;
        assert!(kept < 100 && plan.lost.is_empty(), "{kept}: {:?}", plan.lost);
        let mut older = 0;
        for leaf in 0..100 {
            match bench.read(LEAF * leaf) {
                Ok(sim::world::Answer::Data(cells)) if cells[0] == 0 => older += 1,
                _ => bench.assert_holds(LEAF * leaf, 100 + leaf as u32),
            }
        }
        assert_eq!(older, 100 - kept);
        bench.audit();
    }
    // Four leaves of 32 records, and the pages that reference them.
    assert!(pages > 4, "{pages}");
}

/// Memory of the engine in [`map_pages`].
const MEMORY: u64 = 64 << 20;
/// Number of writes before those that count; as many count.
const WRITES: u64 = 60_000;

/// Writes single blocks anywhere in `volumes` volumes of `blocks` blocks each, in a pool of 1 GiB. Returns the pages of maps that they cost, and the largest
/// number of buffered mappings.
fn map_pages(volumes: u64, blocks: u64, change: impl Fn(Limits) -> Limits) -> (u64, u64) {
    let pool = Pool::new(1 << 24, (1 << 30) - (1 << 24)).unwrap();
    let limits = change(Limits::for_memory(MEMORY, &pool.parameters.geometry).unwrap());
    let mut machine = Machine::open(Store::new(Rc::new(pool)), limits, 0);
    machine.opened().unwrap();
    let mut ids = Vec::new();
    for number in 0..volumes {
        let (name, size) = (&*format!("sparse-{number}"), blocks * 4096);
        machine.command(Command::CreateVolume { name, size, policy: Some(Policy::Native) }).unwrap();
        ids.push(machine.engine.volumes().find(|volume| volume.name == name).unwrap().id);
    }
    let (mut random, mut answered, mut before, mut most) = (Random::new(1), 0, 0, 0);
    for token in 0..2 * WRITES {
        let (volume, offset) = (random.pick(&ids), random.below(blocks) * 4096);
        let submit = Submit { token, volume, offset, length: 4096, fua: false, operation: Operation::Flush };
        let contents = [[1_000_000 + token as u32; CELLS]];
        while token >= answered + 32 || !machine.engine.can_submit() || !machine.write(token, submit, &contents) {
            match machine.step(Nanos::MAX).unwrap() {
                Step::Reply(_, result) => answered += u64::from(result.is_ok()),
                Step::Quiet => panic!("write {token} hangs"),
                _ => {}
            }
        }
        if token % 1024 == 0 {
            let status = machine.engine.status();
            assert!(status.memory_bytes <= MEMORY, "{} bytes", status.memory_bytes);
            most = most.max(status.buffered_entries);
        }
        if token == WRITES {
            before = machine.engine.counters().pages_written.maps;
        }
    }
    assert_eq!(machine.engine.pages_beyond_promise(), 0);
    (machine.engine.counters().pages_written.maps - before, most)
}

/// The map buffer was as large as the leaves of one dense map of the pool's size make useful, so a pool of 1 GiB had none. 64 sparse volumes have eight
/// times as many leaves, and each checkpoint wrote most of them for a mapping or two.
#[test]
fn sparse_volumes_get_a_map_buffer_and_a_dense_one_does_not() {
    let off = |limits| Limits { map_buffer: 0, ..limits };
    let (with, without) = (map_pages(64, 1 << 15, |limits| limits), map_pages(64, 1 << 15, off));
    assert!(2 * with.0 <= without.0 && with.1 > 0, "{with:?} pages of maps, mappings buffered; {without:?} without");
    assert_eq!(map_pages(1, 1 << 18, |limits| limits), map_pages(1, 1 << 18, off));
}

/// A mapping that stays in the buffer changes the count of its volume, and so a leaf of the table of volumes. Only leaves of maps were counted for that.
#[test]
fn a_checkpoint_that_buffers_mappings_of_many_volumes_has_pages_for_their_entries() {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.metadata_blocks) = (256, 4_000);
    config.limits = Limits { map_buffer: 512, delta_entries: 1024, pages: 512, ..config.limits };
    let mut bench = Bench::new(config, LEAF);
    let (first, size) = (bench.volume, LEAF * bench.geometry().block());
    for number in 0..400 {
        bench.command(Command::CreateVolume { name: &format!("other-{number}"), size, policy: None });
    }
    checkpoint(&mut bench);
    let volumes: Vec<_> = bench.world.engine.volumes().map(|volume| volume.id).collect();
    for (content, volume) in (1..).zip(volumes) {
        bench.volume = volume;
        bench.write(0, &[content]);
    }
    bench.volume = first;
    checkpoint(&mut bench);
    assert_eq!(bench.world.engine.status().buffered_entries, 401);
    assert_eq!(bench.world.engine.pages_beyond_promise(), 0);
    bench.audit();
}
