//! A study of the effect of a discard of terabytes on a foreground load, in pools with space and in full ones.
//!
//! Two volumes share a pool: the load reads and writes single blocks of the first, and the second, much larger, is discarded in one of three ways. Latencies
//! are taken for a while before the discard, and for as long after it, while the discarded blocks are being freed in the background.

use std::rc::Rc;

use engine::{Limits, Nanos};

use crate::studies::scale::MEMORY;
use crate::timed::load::{Clients, Discard, OpenLoad, permille};
use crate::timed::machine::{Machine, Processor, Store};
use crate::timed::pool::Pool;
use crate::{Checked, Violation};

/// Bytes of the volume that the load works on: its map is three times as large as the memory for pages.
pub const LOADED_BYTES: u64 = 100 << 30;
/// Number of requests a second.
pub const PER_SECOND: u64 = 10_000;
/// Time after opening until the index is filled again.
const REST: Nanos = 60 * SECOND;
const SECOND: Nanos = 1_000_000_000;
const LOOK_EVERY: Nanos = SECOND / 20;
/// Bytes that the pools have space for beyond the mapped ones: many, and fewer than the load writes, which then needs slots that are freed.
pub const SPARES: [u64; 2] = [64 << 30, 1 << 28];
/// Bytes that mkfs discards at once.
const RANGE_BYTES: u64 = 4 << 30;

/// Ways to discard the second volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Deletion of the volume.
    Delete,
    /// Discards of the whole volume in ranges of 4 GiB, one after the other.
    Ranges,
    /// One discard of the whole volume.
    Trim,
}

impl Way {
    /// All ways, in the order in which [`measure_all`] measures them.
    pub const ALL: [Way; 3] = [Way::Delete, Way::Ranges, Way::Trim];

    /// Returns its name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Way::Delete => "volume delete",
            Way::Ranges => "4 GiB at a time",
            Way::Trim => "one discard",
        }
    }

    fn discards(self, bytes: u64) -> Vec<Discard> {
        match self {
            Way::Delete => vec![Discard::Volume],
            Way::Ranges => {
                let starts = (0..bytes).step_by(RANGE_BYTES as usize);
                starts.map(|start| Discard::Range(start, RANGE_BYTES.min(bytes - start))).collect()
            }
            Way::Trim => vec![Discard::Range(0, bytes)],
        }
    }
}

/// Latencies and other events of a stretch of time.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// Latencies of each class of requests: p50, p99 and p99.9.
    pub latencies: [[Nanos; 3]; 3],
    /// Checkpoints.
    pub checkpoints: u64,
    /// Time of the processor in the engine.
    pub processor: Processor,
}

/// Results of a discard and of the load beside it.
#[derive(Clone, Debug)]
pub struct Results {
    /// Bytes discarded.
    pub bytes: u64,
    /// Blocks discarded.
    pub blocks: u64,
    /// Bytes that were free before.
    pub spare_bytes: u64,
    /// Way of the discard.
    pub way: Way,
    /// Stretch before the discard.
    pub before: Stretch,
    /// Stretch while the discarded blocks are being freed.
    pub during: Stretch,
    /// Nanoseconds until each request for it was answered.
    pub answers: Vec<Nanos>,
    /// Requests for it that have no answer yet.
    pub unanswered: u64,
    /// Blocks freed a second.
    pub freed_per_second: u64,
    /// Discarded blocks that are still to be processed, from the status: at most, and at the end.
    pub discarded_blocks: [u64; 2],
}

/// Measures a discard of `bytes` bytes in each way, in pools with `spare_bytes` of space beside.
pub fn measure_all(bytes: u64, spare_bytes: u64, seconds: u64, processor: bool) -> Checked<Vec<Results>> {
    let pool = Pool::with_other(LOADED_BYTES, bytes, spare_bytes);
    let pool = Rc::new(pool.map_err(|why| Violation(format!("no pool of {bytes} bytes: {why}")))?);
    Way::ALL.into_iter().map(|way| measure(&pool, spare_bytes, way, seconds, processor)).collect()
}

/// Measures one discard, with latencies taken for `seconds` virtual seconds before and after it. With `processor` the time that the engine takes is
/// measured.
pub fn measure(pool: &Rc<Pool>, spare_bytes: u64, way: Way, seconds: u64, processor: bool) -> Checked<Results> {
    let limits = Limits::for_memory(MEMORY, &pool.parameters.geometry)
        .map_err(|needed| Violation(format!("the pool needs {needed} bytes of memory")))?;
    let mut machine = Machine::open(Store::new(pool.clone()), limits, 0);
    machine.opened()?;
    while machine.now < REST {
        machine.step(REST)?;
    }
    machine.processor = processor.then(Processor::default);
    let mut clients = Clients::new(7);
    let mut load = OpenLoad::new(PER_SECOND, machine.now);
    // The first stretch does not count: it fills the caches and the delta.
    stretch(&mut clients, &mut machine, &mut load, seconds, &mut |_| {})?;
    let before = stretch(&mut clients, &mut machine, &mut load, seconds, &mut |_| {})?;
    let bytes = pool.other * pool.parameters.geometry.block();
    load.discards.extend(way.discards(bytes));
    let count = load.discards.len() as u64;
    let used = machine.engine.status().data_blocks_used;
    let mut most = 0;
    let during = stretch(&mut clients, &mut machine, &mut load, seconds, &mut |machine| {
        most = most.max(machine.engine.status().discarded_blocks);
    })?;
    let status = machine.engine.status();
    let freed = used.saturating_sub(status.data_blocks_used);
    let answers = load.discarded;
    Ok(Results {
        bytes,
        blocks: pool.other,
        spare_bytes,
        way,
        before,
        during,
        unanswered: count - answers.len() as u64,
        answers,
        freed_per_second: freed / seconds,
        discarded_blocks: [most, status.discarded_blocks],
    })
}

/// Serves the load for `seconds` seconds, with a look at the machine every twentieth of a second.
fn stretch(
    clients: &mut Clients,
    machine: &mut Machine,
    load: &mut OpenLoad,
    seconds: u64,
    look: &mut dyn FnMut(&Machine),
) -> Checked<Stretch> {
    load.latencies.iter_mut().for_each(Vec::clear);
    let checkpoints = machine.engine.counters().checkpoints;
    machine.processor = machine.processor.map(|_| Processor::default());
    let end = machine.now + seconds * SECOND;
    while machine.now < end {
        let until = end.min(machine.now + LOOK_EVERY);
        clients.serve(machine, load, until)?;
        look(machine);
    }
    Ok(Stretch {
        latencies: load.latencies.each_ref().map(|all| [500, 990, 999].map(|rank| permille(all, rank))),
        checkpoints: machine.engine.counters().checkpoints - checkpoints,
        processor: machine.processor.unwrap_or_default(),
    })
}
