//! Refusals: an impossible operation is refused, with the reason, and changes nothing.

use engine::{Command, ControlError, Error, OpenError, VolumeId, VolumePropertyChange};
use sim::runs::config::Config;
use sim::world::Answer;
use sim::world::disk::Cut;

use crate::bench::{Bench, page_reads, superblocks, tight};

fn result(bench: &mut Bench, command: Command<'_>) -> Result<(), ControlError> {
    let token = bench.begin_command(command);
    bench.command_result(token)
}

#[test]
fn commands_that_cannot_be_done_say_why() {
    let mut bench = Bench::new(Config::small(1), 64);
    bench.write(3, &[5]);
    let (block, volume, nobody) = (bench.geometry().block(), bench.volume, VolumeId(77));
    let create = |name, size| Command::CreateVolume { name, size, policy: None };
    for (command, why) in [
        (create("disk", block), ControlError::Exists),
        (create("", block), ControlError::BadName),
        (create("a/b", block), ControlError::BadName),
        (create("other", 0), ControlError::BadSize),
        (create("other", block + 1), ControlError::BadSize),
        (create("other", u64::MAX - u64::MAX % block), ControlError::BadSize),
        (Command::ResizeVolume { volume, size: 0 }, ControlError::BadSize),
        (Command::ResizeVolume { volume: nobody, size: block }, ControlError::NoVolume),
        (Command::DeleteVolume { volume: nobody }, ControlError::NoVolume),
        (
            Command::SetVolume {
                volume: nobody,
                change: VolumePropertyChange { read_only: Some(true), ..VolumePropertyChange::default() },
            },
            ControlError::NoVolume,
        ),
    ] {
        assert_eq!(result(&mut bench, command), Err(why), "{command:?}");
    }
    let capacity = bench.geometry().capacity_bytes();
    for impossible in [capacity / 2, u64::MAX] {
        let refused = result(&mut bench, Command::Grow { capacity: impossible, metadata: 0 });
        assert!(matches!(refused, Err(ControlError::BadCapacity(_))), "{impossible}: {refused:?}");
    }
    assert_eq!(result(&mut bench, Command::Grow { capacity, metadata: 0 }), Ok(()), "it is as large already");
    assert_eq!(bench.world.engine.volumes().count(), 1);
    bench.assert_holds(3, 5);
    bench.audit();
}

#[test]
fn a_pool_has_space_for_as_many_volumes_as_its_memory() {
    let mut config = Config::small(1);
    config.parameters.geometry.metadata_blocks = 4096;
    config.limits.pages = 512;
    config.limits.volumes = 1024;
    let mut bench = Bench::new(config, 64);
    let size = bench.geometry().block();
    let names: Vec<String> = (1..=1024).map(|number| format!("v{number}")).collect();
    let create = |name| Command::CreateVolume { name, size, policy: None };
    let tokens: Vec<u64> = names.iter().map(|name| bench.begin_command(create(name))).collect();
    let results: Vec<_> = tokens.into_iter().map(|token| bench.command_result(token)).collect();
    assert!(results[..1023].iter().all(Result::is_ok));
    assert_eq!(results[1023], Err(ControlError::TooManyVolumes));
    let volume = bench.volume;
    bench.command(Command::DeleteVolume { volume });
    bench.settle();
    assert_eq!(result(&mut bench, create("again")), Ok(()));
    bench.crash(Cut::Lost).expect("it opens");
    assert_eq!(bench.world.engine.volumes().count(), 1024);
    bench.audit();
}

#[test]
fn a_pool_that_closes_takes_nothing_more() {
    let mut bench = Bench::new(Config::small(1), 64);
    bench.write(3, &[5]);
    bench.world.hold_back(superblocks(bench.geometry()));
    let close = bench.begin_command(Command::Close);
    bench.until_held(2);
    let volume = bench.volume;
    for command in [Command::Close, Command::Settle, Command::DeleteVolume { volume }] {
        assert_eq!(result(&mut bench, command), Err(ControlError::ReadOnly), "{command:?}");
    }
    let late = bench.begin_read(3, 1);
    assert_eq!(bench.wait(late), Err(Error::ShuttingDown));
    bench.let_all_go();
    bench.await_command(close);
    assert_eq!(result(&mut bench, Command::CloseEarly), Err(ControlError::ReadOnly));
    let recovered = bench.crash(Cut::Lost).expect("it opens");
    assert!(recovered.clean && recovered.records == 0);
    bench.assert_holds(3, 5);
}

#[test]
fn a_request_longer_than_a_piece_is_refused() {
    let mut bench = Bench::new(Config::small(1), 64);
    let piece = u64::from(bench.geometry().piece_blocks);
    let token = bench.begin_read(0, piece + 1);
    assert_eq!(bench.wait(token), Err(Error::Invalid));
    let token = bench.begin_read(0, piece);
    assert!(bench.wait(token).is_ok());
}

/// Opened with too little memory, a pool reports the number of entries to replay, and is not touched.
#[test]
fn a_journal_that_the_memory_has_no_space_for_is_left_alone() {
    let mut config = tight(64);
    config.parameters.geometry.journal_blocks = 1024;
    let large = config.limits;
    let mut bench = Bench::new(config, 256);
    for block in 0..200 {
        bench.write_durably(block % 64, 10 + block as u32 % 7);
    }
    bench.config.limits.delta_entries = 16;
    bench.config.limits.buffers = 20;
    bench.config.limits.write_buffers = 10;
    let before = bench.world.disk.clone();
    let refused = bench.crash(Cut::Kept);
    let Err(OpenError::TooLittleMemory { entries }) = refused else { panic!("{refused:?}") };
    assert!(entries > bench.config.limits.replayable_entries(&bench.geometry()), "{entries}");
    assert_eq!(bench.world.disk.hash(), before.hash());
    bench.config.limits = large;
    let recovered = bench.crash(Cut::Lost).expect("there is enough memory");
    assert_eq!(recovered.entries, entries);
    bench.assert_holds(63, 10 + 191 % 7);
    bench.audit();
}

/// The test writes one block in each leaf, until the tables have no space for another page.
#[test]
fn when_the_tables_are_full_writes_fail_and_discards_do_not() {
    let mut config = Config::small(1);
    // Many of them are reserved for overwrites, discards and a repair.
    config.parameters.geometry.metadata_blocks = 256;
    config.parameters.geometry.containers = 64;
    const BLOCKS: u64 = 64 * 200;
    let mut bench = Bench::new(config, BLOCKS);
    let mut written = 0;
    let failed = loop {
        assert!(written < 200, "the tables are never full");
        let token = bench.begin_write(64 * written, &[100 + written as u32], false);
        match bench.wait(token) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(failed, Error::NoSpace);
    assert!(written > 20, "{written}");
    for leaf in 0..written {
        bench.assert_holds(64 * leaf, 100 + leaf as u32);
        // Answers are still being sent.
        bench.pass(1_000_000);
    }
    bench.trim_blocks(0, BLOCKS);
    bench.settle();
    bench.write(64 * written, &[9]);
    bench.assert_holds(64 * written, 9);
    bench.assert_holds(0, 0);
    bench.audit();
}

/// Reads have taken all buffers when a partial write comes to need one for the rest of its block.
#[test]
fn a_partial_write_without_a_buffer_waits_for_one() {
    let mut config = Config::small(1);
    (config.limits.buffers, config.limits.write_buffers, config.limits.requests) = (17, 16, 32);
    let mut bench = Bench::new(config, 2176);
    for block in [0, 8, 16] {
        let contents: Vec<u32> = (block..block + 8).map(|block| 10 + block).collect();
        bench.write(block.into(), &contents);
    }
    // Leaves that are not read together with one another.
    let (partial, other) = (1030, 2050);
    bench.write(partial, &[90]);
    bench.write(other, &[91]);
    bench.settle();
    bench.reopen();
    bench.pass(1_000_000_000);
    // The root of the map is in memory, the other two leaves are not.
    bench.assert_holds(other, 91);
    // The answers have been sent.
    bench.pass(1_000_000_000);
    let reads_of_payload = |io: &engine::Io| io.op == engine::IoOp::ReadBlocks;
    bench.world.hold_back(move |io| page_reads(io) || reads_of_payload(io));
    let reads: Vec<u64> = (0..24).map(|block| bench.begin_read(block, 1)).collect();
    let write = bench.begin_cells(partial * 8 + 2, &[7], false);
    bench.until_held(2);
    bench.world.let_go(1);
    bench.until_held(16);
    bench.pass(1_000_000);
    let held = bench.world.held();
    bench.world.let_go(1);
    bench.pass(1_000_000);
    assert_eq!((bench.world.held(), bench.answer(write)), (held - 1, None), "it waits for a buffer");
    bench.let_all_go();
    assert_eq!(bench.wait(write), Ok(Answer::Done));
    for (content, token) in (10..).zip(reads) {
        assert_eq!(bench.wait(token), Ok(Answer::Data(vec![content; 8])));
    }
    assert_eq!(bench.read(partial), Ok(Answer::Data(vec![90, 90, 7, 90, 90, 90, 90, 90])));
    bench.audit();
}
