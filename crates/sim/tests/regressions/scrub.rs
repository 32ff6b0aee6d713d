//! Damage on the disk: reads and the scrub return the right content from another copy, or an error.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{Command, Damaged, Error, IoOp, PassState, Policy, ScrubCommand, ScrubStatus, VolumePropertyChange};
use sim::content::{CELLS, Content};
use sim::runs::config::Config;
use sim::world::Answer;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND};

/// Makes a pool with one volume under `full`. A content that is written twice under a policy that shares nothing has a second copy.
fn bench() -> Bench {
    let mut config = Config::small(1);
    config.volumes = vec![(64, Policy::Full)];
    Bench::new(config, 64)
}

impl Bench {
    /// Returns the blocks of the store that hold a content in full, in order.
    pub fn places(&self, content: u32) -> Vec<u64> {
        let first = self.geometry().data_start();
        let holds = |&block: &u64| self.world.disk.read(block).to_cells() == [content; CELLS];
        (first..self.world.disk.blocks()).filter(holds).collect()
    }

    /// Makes a block of the store rotten.
    pub fn rot(&mut self, block: u64) {
        let mut bytes = self.world.disk.read(block).to_bytes(self.world.disk.block_size()).to_vec();
        bytes[100] ^= 0x40;
        self.world.disk.put(block, Content::Metadata(bytes.into()));
    }

    fn rot_content(&mut self, content: u32) -> u64 {
        let place = self.places(content)[0];
        self.rot(place);
        place
    }

    pub fn scrub(&mut self) -> ScrubStatus {
        self.command(Command::Scrub { command: ScrubCommand::Start, seconds: 0 });
        self.scrubbed()
    }

    /// Waits for the end of the scrub in progress and returns its status.
    fn scrubbed(&mut self) -> ScrubStatus {
        for _ in 0..1000 {
            let status = self.world.engine.status().scrub;
            if status.state != PassState::Running {
                assert_eq!(status.state, PassState::Finished);
                return status;
            }
            self.pass(SECOND / 10);
        }
        panic!("the scrub does not end: {:?}", self.world.engine.status());
    }

    pub fn set_policy(&mut self, policy: Policy) {
        let volume = self.volume;
        self.command(Command::SetVolume {
            volume,
            change: VolumePropertyChange { policy: Some(Some(policy)), ..VolumePropertyChange::default() },
        });
    }

    /// Stores a content in two slots, as blocks 0 and 9. Nothing is cached, and the index is filled.
    fn twice(&mut self, content: u32) {
        self.write(0, &[content, 91, 92]);
        self.set_policy(Policy::Native);
        self.write(9, &[content]);
        self.set_policy(Policy::Full);
        self.settle();
        self.reopen();
        self.pass(SECOND);
        assert_eq!(self.places(content).len(), 2);
    }
}

#[track_caller]
fn assert_scrub(status: ScrubStatus, found: u64, repaired: u64) {
    assert_eq!((status.found, status.repaired), (found, repaired), "{status:?}");
}

#[test]
fn a_healthy_pool_is_scrubbed_and_everything_is_read() {
    let mut bench = bench();
    bench.write(0, &[1, 2, 3, 4]);
    bench.write(30, &[5, 6, 7]);
    bench.settle();
    let status = bench.scrub();
    assert_scrub(status, 0, 0);
    assert!(status.blocks_done > 7 + 7, "{status:?}");
    bench.audit();
    bench.reopen();
    assert_eq!(bench.world.engine.status().scrub.state, PassState::Finished, "it is in the superblock");
}

#[test]
fn a_rotten_block_with_a_duplicate_is_repaired_by_the_scrub() {
    for which in [0, 1] {
        let mut bench = bench();
        bench.twice(50);
        let place = bench.places(50)[which];
        bench.rot(place);
        assert_scrub(bench.scrub(), 1, 1);
        assert_eq!(bench.places(50).len(), 2, "it is back in its slot");
        let repaired: Vec<_> = bench.world.engine.damages().filter(|damage| damage.repaired).copied().collect();
        assert_eq!(repaired.len(), 1);
        assert_eq!(repaired[0].offset, place * bench.geometry().block());
        assert_eq!(repaired[0].owner, Some((bench.volume, [0, 9][which])));
        bench.audit();
        bench.crash(Cut::Lost).unwrap();
        bench.assert_holds(0, 50);
        bench.assert_holds(9, 50);
    }
}

#[test]
fn a_read_of_a_rotten_block_with_a_duplicate_is_answered_and_the_slot_is_repaired() {
    let mut bench = bench();
    bench.twice(50);
    // The index knows the first slot.
    let place = bench.places(50)[1];
    bench.rot(place);
    bench.assert_holds(9, 50);
    bench.pass(SECOND);
    let status = bench.world.engine.status();
    assert_eq!((status.damaged_blocks_found, status.repaired_blocks), (1, 1));
    assert_eq!(bench.places(50).len(), 2);
    bench.audit();
}

#[test]
fn a_partial_write_over_a_rotten_block_with_a_duplicate_completes_it() {
    let mut bench = bench();
    bench.twice(50);
    let place = bench.places(50)[1];
    bench.rot(place);
    bench.write_cells(9 * CELLS as u64 + 2, &[7, 7]);
    let cells = vec![50, 50, 7, 7, 50, 50, 50, 50];
    assert_eq!(bench.read(9), Ok(Answer::Data(cells)));
    bench.audit();
}

#[test]
fn a_rotten_block_with_a_cached_copy_is_repaired() {
    let mut bench = bench();
    bench.write(0, &[60, 61]);
    bench.settle();
    bench.assert_holds(0, 60);
    bench.rot_content(60);
    assert_scrub(bench.scrub(), 1, 1);
    bench.reopen();
    bench.assert_holds(0, 60);
    bench.audit();
}

#[test]
fn a_rotten_block_alone_is_reported_and_reads_eio_and_nothing_else_does() {
    let mut bench = bench();
    bench.write(0, &[70, 71, 72]);
    bench.settle();
    bench.reopen();
    let place = bench.rot_content(71);
    for _ in 0..3 {
        assert_eq!(bench.read(1), Err(Error::Io));
    }
    assert_eq!(bench.world.engine.status().damaged_blocks_found, 1, "once, however often it is read");
    let status = bench.scrub();
    assert_scrub(status, 1, 0);
    let damage = *bench.world.engine.damages().last().unwrap();
    assert_eq!((damage.what, damage.repaired), (Damaged::Block, false));
    assert_eq!((damage.offset, damage.owner), (place * bench.geometry().block(), Some((bench.volume, 1))));
    assert_eq!(bench.read(1), Err(Error::Io));
    bench.assert_holds(0, 70);
    bench.assert_holds(2, 72);
    // A new write of the content brings it back.
    bench.write(40, &[71]);
    bench.assert_holds(40, 71);
    bench.settle();
    assert_scrub(bench.scrub(), 1, 1);
    bench.reopen();
    for (block, content) in [(0, 70), (1, 71), (2, 72), (40, 71)] {
        bench.assert_holds(block, content);
    }
    bench.audit();
}

/// Returns the tree pages in use, by their block of the store.
fn metadata_pages(bench: &Bench) -> Vec<u64> {
    let (geometry, disk) = (bench.geometry(), &bench.world.disk);
    (geometry.metadata_start()..geometry.data_start()).filter(|&block| disk.read(block).is_metadata()).collect()
}

#[test]
fn a_rotten_page_in_memory_is_repaired_and_one_that_is_not_is_reported() {
    let mut bench = bench();
    bench.write(0, &[70, 71, 72]);
    bench.settle();
    let mut damaged = 0;
    for block in metadata_pages(&bench) {
        bench.rot(block);
        let status = bench.scrub();
        // Old pages belong to no tree. The checkpoint that begins the scrub may rewrite some pages in use.
        assert_eq!(status.found, status.repaired);
        damaged += status.found;
    }
    assert!(damaged > 3, "only {damaged} pages were found damaged");
    bench.audit();
}

#[test]
fn a_rotten_superblock_copy_is_written_again() {
    for place in [0, 1] {
        let mut bench = bench();
        bench.write(0, &[70]);
        bench.settle();
        // The checkpoint that begins the scrub writes the other two copies, so these two are the targets.
        bench.world.hold_back(|io| io.op == IoOp::ReadPages);
        let token = bench.begin_command(Command::Scrub { command: ScrubCommand::Start, seconds: 0 });
        bench.until_held(2);
        let block = bench.geometry().superblock_block(place, newest_epoch(&bench));
        bench.rot(block);
        bench.let_all_go();
        bench.await_command(token);
        assert_scrub(bench.scrubbed(), 1, 1);
        let damage = bench.world.engine.damages().last().unwrap();
        assert_eq!((damage.what, damage.repaired), (Damaged::Superblock, true));
        bench.crash(Cut::Lost).unwrap();
        bench.assert_holds(0, 70);
    }
}

/// The device refuses the write of the block, or of the superblock copy. The damage is still there, and nothing else has happened.
#[test]
fn a_repair_that_cannot_be_written_is_no_repair() {
    let mut bench = bench();
    bench.twice(50);
    let place = bench.places(50)[0];
    bench.rot(place);
    let offset = place * bench.geometry().block();
    bench.world.fail(move |io| io.op == IoOp::Write && io.offset == offset);
    assert_scrub(bench.scrub(), 1, 0);
    let damage = *bench.world.engine.damages().last().unwrap();
    assert_eq!((damage.what, damage.offset, damage.repaired), (Damaged::Block, offset, false));
    assert_eq!(bench.world.engine.status().failure, None);
    bench.assert_holds(0, 50);
    // A copy of the superblock.
    bench.world.hold_back(|io| io.op == IoOp::ReadPages);
    let token = bench.begin_command(Command::Scrub { command: ScrubCommand::Start, seconds: 0 });
    bench.until_held(2);
    let copy = bench.geometry().superblock_block(1, newest_epoch(&bench));
    bench.rot(copy);
    let offset = copy * bench.geometry().block();
    bench.world.fail(move |io| io.op == IoOp::Write && io.offset == offset);
    bench.let_all_go();
    bench.await_command(token);
    bench.scrubbed();
    let of_copies = |bench: &Bench| {
        let damages = bench.world.engine.damages();
        damages.filter(|damage| damage.what == Damaged::Superblock).map(|damage| damage.repaired).collect::<Vec<_>>()
    };
    assert_eq!(of_copies(&bench), [false]);
    bench.world.fail(|_| false);
    let status = bench.scrub();
    assert_eq!(status.found, status.repaired);
    assert_eq!(bench.places(50).len(), 2);
    bench.audit();
}

/// The sync after the write fails. The content on the disk is unknown, so the block does not count as repaired.
#[test]
fn a_repair_that_is_not_known_to_be_durable_is_no_repair() {
    let mut bench = bench();
    bench.twice(50);
    let place = bench.places(50)[0];
    bench.rot(place);
    let offset = place * bench.geometry().block();
    bench.world.hold_back(move |io| io.op == IoOp::Write && io.offset == offset);
    bench.command(Command::Scrub { command: ScrubCommand::Start, seconds: 0 });
    bench.until_held(1);
    bench.world.fail(|io| io.op == IoOp::Sync);
    bench.let_all_go();
    bench.pass(SECOND);
    let status = bench.world.engine.status();
    assert_eq!((status.failure, status.repaired_blocks), (Some(engine::Failure::Sync), 0));
    let damage = bench.world.engine.damages().last().unwrap();
    assert_eq!((damage.offset, damage.repaired), (offset, false));
    bench.assert_holds(0, 50);
}

#[test]
fn of_many_damages_the_last_64_are_listed_and_all_are_counted() {
    let mut bench = Bench::new(Config::small(1), 128);
    for block in (0..80).step_by(8) {
        bench.write(block, &core::array::from_fn::<u32, 8, _>(|at| 1000 + block as u32 + at as u32));
    }
    bench.settle();
    bench.reopen();
    bench.pass(SECOND);
    for content in 1000..1080 {
        bench.rot_content(content);
    }
    assert_scrub(bench.scrub(), 80, 0);
    let numbers: Vec<u64> = bench.world.engine.damages().map(|damage| damage.number).collect();
    assert_eq!(numbers, (17..=80).collect::<Vec<_>>());
    assert_eq!(bench.world.engine.status().damaged_blocks_found, 80);
}

#[test]
fn damage_that_was_written_over_is_left_until_the_next_scrub_and_not_longer() {
    let mut bench = bench();
    let left = |bench: &Bench| bench.world.engine.status().damages_left;
    bench.write(0, &[70, 71, 72]);
    bench.settle();
    bench.reopen();
    bench.rot_content(71);
    assert_eq!(left(&bench), 0);
    for _ in 0..2 {
        assert_eq!(bench.read(1), Err(Error::Io));
    }
    assert_eq!(left(&bench), 1, "what a read finds, once");
    assert_scrub(bench.scrub(), 1, 0);
    assert_eq!(left(&bench), 1, "what the scrub finds again");
    bench.reopen();
    assert_eq!(left(&bench), 1, "over a restart, as the scrub has it");
    bench.write(1, &[75]);
    bench.settle();
    assert_scrub(bench.scrub(), 0, 0);
    assert_eq!(left(&bench), 0);
    bench.reopen();
    assert_eq!(left(&bench), 0);
    bench.audit();
}

fn newest_epoch(bench: &Bench) -> u64 {
    let geometry = bench.geometry();
    let blocks = (0..2).flat_map(|place| [0, 1].map(|epoch| geometry.superblock_block(place, epoch)));
    let decode = |block| engine::Superblock::decode(&bench.world.disk.read(block).to_bytes(512)).ok();
    blocks.filter_map(decode).map(|superblock| superblock.epoch).max().unwrap()
}

#[test]
fn a_scrub_rests_goes_on_after_a_restart_and_after_a_crash() {
    let mut bench = bench();
    let contents: Vec<u32> = (100..108).collect();
    for block in 0..8 {
        bench.write(block * 8, &contents.iter().map(|content| content + 10 * block as u32).collect::<Vec<_>>());
    }
    bench.settle();
    bench.reopen();
    let rotten = bench.rot_content(177);
    bench.world.hold_back(|io| io.op == IoOp::ReadBlocks);
    let token = bench.begin_command(Command::Scrub { command: ScrubCommand::Start, seconds: 0 });
    bench.until_held(1);
    bench.await_command(token);
    // One batch of blocks, and then a rest.
    bench.world.let_go(1);
    bench.until_held(1);
    let token = bench.begin_command(Command::Scrub { command: ScrubCommand::Pause, seconds: 0 });
    bench.await_command(token);
    bench.let_all_go();
    bench.pass(SECOND);
    let before = bench.world.engine.status().scrub;
    assert_eq!((before.state, before.found), (PassState::Paused, before.repaired));
    assert!(before.blocks_done > 0 && before.blocks_done < before.blocks_total, "{before:?}");
    bench.reopen();
    bench.pass(SECOND);
    let after = bench.world.engine.status().scrub;
    assert_eq!((after.state, after.blocks_done), (PassState::Paused, before.blocks_done));
    bench.world.hold_back(|io| io.op == IoOp::ReadBlocks);
    let token = bench.begin_command(Command::Scrub { command: ScrubCommand::Start, seconds: 0 });
    bench.await_command(token);
    bench.until_held(1);
    bench.crash(Cut::Kept).unwrap();
    let after = bench.world.engine.status().scrub;
    assert_eq!(after.state, PassState::Running, "it goes on unasked");
    assert!(after.blocks_done >= before.blocks_done);
    let status = bench.scrubbed();
    assert_scrub(status, 1, 0);
    assert_eq!(bench.world.engine.damages().last().unwrap().offset, rotten * bench.geometry().block());
    bench.audit();
}

/// A crash comes after each step of a repair. The block is repaired, or still to be repaired; it never reads as anything else.
#[test]
fn a_crash_during_a_repair_leaves_the_damage_or_its_end() {
    for steps in 1.. {
        let mut bench = bench();
        bench.twice(50);
        let place = bench.places(50)[0];
        bench.rot(place);
        let token = bench.begin_read(0, 1);
        let ended = (0..steps).all(|_| bench.step_once()) && bench.answer(token).is_some() && bench.world.is_still();
        let cut = Cut::ALL[steps % Cut::ALL.len()];
        bench.crash(cut).unwrap();
        bench.assert_holds(9, 50);
        bench.pass(SECOND);
        match bench.read(0) {
            Ok(Answer::Data(cells)) => assert_eq!(cells, vec![50; CELLS]),
            other => assert_eq!(other, Err(Error::Io)),
        }
        let status = bench.scrub();
        assert_eq!(status.found, status.repaired);
        bench.assert_holds(0, 50);
        assert_eq!(bench.places(50).len(), 2, "after {steps} steps");
        bench.audit();
        if ended || steps > 60 {
            return;
        }
    }
}

#[test]
fn a_slot_that_is_freed_while_it_is_scrubbed_is_not_given_to_another_block() {
    let mut bench = bench();
    bench.write(0, &[70, 71, 72]);
    bench.settle();
    bench.reopen();
    bench.pass(SECOND);
    bench.world.hold_back(|io| io.op == IoOp::ReadBlocks);
    let token = bench.begin_command(Command::Scrub { command: ScrubCommand::Start, seconds: 0 });
    bench.await_command(token);
    bench.until_held(1);
    let place = bench.places(71)[0];
    bench.trim(1);
    for content in 200..328 {
        let token = bench.begin_write(8 + u64::from(content) % 50, &[content], false);
        bench.wait(token).unwrap();
    }
    bench.pass(10 * SECOND);
    assert_eq!(bench.places(71), [place], "it is still being read");
    bench.let_all_go();
    assert_scrub(bench.scrubbed(), 0, 0);
    bench.audit();
}

/// The last thing that a settle waited for was a slot that the scrub was still reading. The read completed, and the check whether all was settled
/// gave the slot back. That check itself said no, and nothing repeated it.
#[test]
fn settling_is_answered_when_the_scrub_lets_go_of_the_last_slot() {
    let mut bench = bench();
    bench.write(0, &[70, 71, 72]);
    bench.settle();
    bench.reopen();
    bench.pass(SECOND);
    bench.world.hold_back(|io| io.op == IoOp::ReadBlocks);
    let token = bench.begin_command(Command::Scrub { command: ScrubCommand::Start, seconds: 0 });
    bench.await_command(token);
    bench.until_held(1);
    bench.command(Command::Scrub { command: ScrubCommand::Pause, seconds: 0 });
    bench.trim(1);
    let token = bench.begin_command(Command::Settle);
    bench.pass(30 * SECOND);
    assert_eq!(bench.command_answer(token), None);
    bench.let_all_go();
    bench.await_command(token);
    bench.audit();
}

/// The root of the map of a volume of a petabyte could not be read. The scrub passed over its subtree by one page of pointers at a time, for all
/// pages that so large a volume might have.
///
/// The scrub came to no end, and used one of the two processors whole.
#[test]
fn a_scrub_passes_over_all_that_a_page_leads_to_which_cannot_be_read() {
    let mut bench = Bench::new(Config::small(1), 1 << 41);
    bench.write(0, &[1]);
    bench.write(1 << 40, &[2]);
    bench.settle();
    bench.reopen();
    let pages = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&pages);
    bench.world.hold_back(move |io| {
        seen.borrow_mut().push(io.offset);
        false
    });
    bench.assert_holds(0, 1);
    // A read loads the root first.
    let root = pages.borrow()[0];
    bench.reopen();
    bench.rot(root / bench.geometry().block());
    bench.begin_command(Command::Scrub { command: ScrubCommand::Start, seconds: 0 });
    let is_over = |bench: &Bench| bench.world.engine.status().scrub.state == PassState::Finished;
    let steps = (0..20_000).take_while(|_| !is_over(&bench) && bench.step_once()).count();
    assert!(is_over(&bench), "after {steps} steps: {:?}", bench.world.engine.status());
    assert_scrub(bench.world.engine.status().scrub, 1, 0);
}

/// A scrub found a block lost. The block was trimmed, and another block took its slot. That block's write was in flight when the scrub found the lost
/// block's content in another slot. The repair began all the same. It took the new block from the journal, which carried it, and wrote it beside the
/// write in flight.
///
/// The server stopped: a dirty block is written once.
#[test]
fn a_lost_slot_that_was_taken_again_is_not_repaired() {
    let mut config = bench().config;
    config.parameters.geometry.containers = 6;
    let mut bench = Bench::new(config, 64);
    bench.twice(50);
    for block in 0..40 {
        bench.write(20 + block, &[100 + block as u32]);
    }
    bench.settle();
    bench.reopen();
    bench.pass(SECOND);
    // The index entry refers to the first slot, so nothing refers to the second one.
    let lost = bench.places(50)[0];
    bench.rot(lost);
    let (lost, last) = (lost * 512, bench.world.disk.blocks() * 512 - 8 * 512);
    bench.world.hold_back(move |io| io.op == IoOp::ReadBlocks && io.offset >= last);
    bench.begin_command(Command::Scrub { command: ScrubCommand::Start, seconds: 0 });
    bench.until_held(1);
    assert_eq!(bench.world.engine.status().damaged_blocks_found, 1);
    bench.trim(0);
    bench.settle();
    bench.world.hold_back(move |io| io.op.is_write() && io.offset == lost);
    // One block after the other, until no other slot is left.
    for number in 0..5 {
        bench.write_durably(10 + number, 1000 + number as u32);
        bench.pass(SECOND);
        if bench.world.held() > 1 {
            break;
        }
    }
    assert_eq!(bench.world.held(), 2, "nobody has taken the slot");
    // The scrub continues, and begins its search.
    bench.world.let_go(1);
    bench.pass(SECOND);
    bench.let_all_go();
    assert_scrub(bench.scrubbed(), 1, 0);
    bench.audit();
    bench.assert_holds(9, 50);
}
