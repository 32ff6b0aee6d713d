//! Full hosts, where even overwrites get no space, as on a full copy-on-write file system. Nothing fails permanently.

use crate::bench::{Bench, SECOND};
use engine::{Command, ControlError, Error, Mode, OpenError};
use sim::runs::config::Config;
use sim::world::Answer;
use sim::world::disk::Cut;
use sim::world::faults::{Class, Rule};

/// Makes a pool in which blocks 0 to 2 are durable.
fn with_three_blocks() -> Bench {
    let mut bench = Bench::new(Config::small(1), 64);
    bench.write(0, &[5, 6]);
    bench.settle();
    bench.write_durably(2, 7);
    bench
}

/// Lets no write find space from here on.
fn fill_host(bench: &mut Bench) {
    bench.world.faults.begin(&[Rule::nth(Class::FullHost, 0, true)]);
}

fn close(bench: &mut Bench, command: Command<'_>) -> Result<(), ControlError> {
    let token = bench.begin_command(command);
    bench.command_result(token)
}

/// The journal of a pool on a full Btrfs could not be written. The pool failed, and was read-only permanently.
#[test]
fn on_a_full_host_flushes_fail_in_time_and_all_goes_on_when_there_is_space() {
    let mut bench = with_three_blocks();
    fill_host(&mut bench);
    bench.write(3, &[8]);
    let began = bench.world.now;
    let (flush, forced) = (bench.begin_flush(), bench.begin_write(4, &[9], true));
    assert_eq!(bench.wait(flush), Err(Error::NoSpace));
    assert_eq!(bench.wait(forced), Err(Error::NoSpace));
    assert!(bench.world.now - began < 4 * SECOND);
    // From here on changes fail at once, and a flush fails after another try.
    let refused = [bench.begin_write(5, &[1], false), bench.begin_trim_cells(0, 8)];
    let asked = bench.world.now;
    for token in refused {
        assert_eq!(bench.wait(token), Err(Error::NoSpace));
    }
    assert_eq!(bench.world.now, asked);
    let flush = bench.begin_flush();
    assert_eq!(bench.wait(flush), Err(Error::NoSpace));
    assert!(bench.world.now - asked < SECOND);
    assert_eq!(bench.world.engine.status().mode, Mode::Normal);
    for (block, content) in [(0, 5), (1, 6), (2, 7), (3, 8), (4, 9)] {
        bench.assert_holds(block, content);
    }
    // There is space again, and no action is needed. The next flush covers the data of the failed ones.
    bench.world.faults.end();
    bench.pass(SECOND);
    assert!(!bench.world.engine.waits_for_host_space());
    let flush = bench.begin_flush();
    assert_eq!(bench.wait(flush), Ok(Answer::Done));
    bench.crash(Cut::Lost).expect("it opens");
    for (block, content) in [(0, 5), (1, 6), (2, 7), (3, 8), (4, 9)] {
        bench.assert_holds(block, content);
    }
    bench.write_durably(5, 1);
    bench.audit();
}

/// A flush that finds space again within two seconds does not notice.
#[test]
fn a_host_that_is_full_for_a_moment_delays_flushes_and_no_more() {
    let mut bench = with_three_blocks();
    fill_host(&mut bench);
    bench.write(3, &[8]);
    let flush = bench.begin_flush();
    bench.pass(SECOND);
    assert_eq!(bench.answer(flush), None);
    bench.world.faults.end();
    assert_eq!(bench.wait(flush), Ok(Answer::Done));
    bench.audit();
}

#[test]
fn a_close_on_a_full_host_ends_and_says_whether_anything_is_lost() {
    for (unflushed, command) in [(false, Command::Close), (true, Command::Close), (true, Command::CloseEarly)] {
        let mut bench = with_three_blocks();
        fill_host(&mut bench);
        let expected = if unflushed { ControlError::NotDurable } else { ControlError::HostFull };
        if unflushed {
            bench.write(3, &[8]);
        }
        let began = bench.world.now;
        assert_eq!(close(&mut bench, command), Err(expected));
        assert!(bench.world.now - began < 4 * SECOND);
        bench.world.faults.end();
        bench.crash(Cut::Lost).expect("it opens");
        for (block, content) in [(0, 5), (1, 6), (2, 7), (3, 0)] {
            bench.assert_holds(block, content);
        }
        bench.audit();
    }
}

#[test]
fn a_pool_is_not_opened_on_a_full_host_and_opens_when_there_is_space() {
    let mut bench = with_three_blocks();
    let disk = bench.world.disk.clone();
    assert!(bench.crash_on_full_host().is_err_and(|error| matches!(error, OpenError::HostFull { .. })));
    bench.world.disk = disk;
    bench.crash(Cut::Lost).expect("it opens");
    bench.assert_holds(2, 7);
    bench.audit();
}
