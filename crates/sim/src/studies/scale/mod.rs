//! A study of the cost of a request, and of the time of opening after a crash, in pools of 1 GiB to 100 TiB.
//!
//! `pool` makes a pool of any size that is full from the start, `device` is an SSD, `machine` drives the engine with both in virtual time, `load` are the
//! clients. This module runs them for one size after the other, and checks the results against the constants that docs/internals/performance.md states.

pub mod discard;
pub mod discard_report;
pub mod metadata;
pub mod pass;
pub mod report;

use std::rc::Rc;

use engine::{Command, Limits, Nanos, Recovered};

use crate::timed::load::{Clients, Cost, Workload};
use crate::timed::machine::{Machine, Store};
use crate::timed::pool::Pool;
use crate::{Checked, Violation};

/// The engine's memory at every size.
pub const MEMORY: u64 = 512 << 20;
/// The delta at every size: less than the memory allows, so that checkpoints come often, and as much at every size. The cost of a checkpoint is spread over
/// fewer requests than it would be, so the costs are on the high side.
pub const DELTA_ENTRIES: u32 = 1 << 14;
/// Bytes that the pool has space for beyond the mapped ones.
const SPARE_BYTES: u64 = 2 << 30;
/// Number of checkpoints that a workload of writes goes through before it counts; `CHECKPOINTS` while it counts.
const WARM_UP_CHECKPOINTS: u64 = 1;
const CHECKPOINTS: u64 = 3;
/// Number of reads before those that count; `READS` of 4 KiB and `SEQUENTIAL_READS` of 128 KiB count.
const WARM_UP_READS: u64 = 5_000;
const READS: u64 = 20_000;
const SEQUENTIAL_READS: u64 = 2_000;
/// The delta before a crash, where the memory has space for it: the journal may be longer than the costs above need.
const DELTA_ENTRIES_AT_CRASH: u32 = 1 << 16;
/// Number of blocks between two flushes before a crash; `FLUSHES` is the number of these flushes.
const BETWEEN_FLUSHES: u64 = 8;
const FLUSHES: u64 = 1_000;
/// Number of blocks written before the last flush that are read after a crash.
const VERIFIED: usize = 2_000;

/// Memory that a server keeps for itself: 4 MiB of staging, and for connections a sixteenth and a sixty-fourth (docs/guide/memory.md).
const STAGING_BYTES: u64 = 4 << 20;
const CONNECTION_SHARES: [u64; 2] = [16, 64];

/// Kinds of crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// Crash after random writes, with about as many mappings in the journal as there can be. Nothing is lost, so everything since the last sync has to be
    /// verified.
    Kept,
    /// Crash after the same writes, and everything that no sync covered is lost.
    Lost,
    /// Crash after writes with a flush for every few of them: the journal carries the blocks, which have to be copied to their slots.
    Flushed,
}

impl Crash {
    /// All kinds of crash.
    pub const ALL: [Crash; 3] = [Crash::Kept, Crash::Lost, Crash::Flushed];
}

/// Returns the engine's part of a server's memory, in bytes.
pub fn engine_memory(memory: u64) -> u64 {
    memory - STAGING_BYTES - CONNECTION_SHARES.map(|share| memory / share).iter().sum::<u64>()
}

/// An opening after a crash.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Kind of the crash.
    pub crash: Crash,
    /// Time from the first I/O until requests are taken.
    pub nanos: Nanos,
    /// Commands to the drive.
    pub commands: u64,
    /// Report of the engine about its recovery.
    pub recovered: Recovered,
}

/// The results for one size.
#[derive(Clone, Debug)]
pub struct Results {
    /// Bytes mapped.
    pub bytes: u64,
    /// The cost of each workload.
    pub costs: Vec<(Workload, Cost)>,
    /// An opening after each kind of crash.
    pub openings: Vec<Opening>,
    /// Bytes of memory in use by the engine.
    pub memory: u64,
}

/// Measures everything at one size. With `audit`, the whole pool is audited before and after: for small pools.
pub fn measure(bytes: u64, audit: bool) -> Checked<Results> {
    let pool = Pool::new(bytes, SPARE_BYTES).map_err(|why| Violation(format!("no pool of {bytes} bytes: {why}")))?;
    let memory_limits = Limits::for_memory(MEMORY, &pool.parameters.geometry)
        .map_err(|needed| Violation(format!("a pool of {bytes} bytes needs {needed} bytes of memory")))?;
    let memory_limits = Limits { cache: crate::runs::config::GIVEN_CACHE, ..memory_limits };
    // Without a map buffer, which would absorb all that these few checkpoints merge: `metadata` has the steady state.
    let memory_limits = Limits { map_buffer: 0, ..memory_limits };
    let limits = Limits { delta_entries: DELTA_ENTRIES.min(memory_limits.delta_entries), ..memory_limits };
    let mut machine = Machine::open(Store::new(Rc::new(pool)), limits, 0);
    machine.opened()?;
    if audit {
        machine.settle_and_audit()?;
    }
    let mut clients = Clients::new(bytes);
    let mut costs = Vec::new();
    for workload in Workload::ALL {
        costs.push((workload, cost(&mut clients, &mut machine, workload)?));
    }
    let memory = machine.engine.status().memory_bytes;
    let delta_entries = limits.delta_entries.max(memory_limits.delta_entries.min(DELTA_ENTRIES_AT_CRASH));
    let limits = Limits { delta_entries, ..limits };
    // From here on with the larger delta.
    clients.flush(&mut machine)?;
    let now = machine.now;
    machine = Machine::open(machine.crash(true), limits, now);
    machine.opened()?;
    let mut openings = Vec::new();
    for crash in Crash::ALL {
        fill_journal(&mut clients, &mut machine, crash, delta_entries)?;
        let now = machine.now;
        machine = Machine::open(machine.crash(crash == Crash::Kept), limits, now);
        let recovered = machine.opened()?;
        openings.push(Opening { crash, nanos: machine.now - now, commands: machine.io.commands(), recovered });
        clients.verify(&mut machine, VERIFIED)?;
    }
    if audit {
        machine.settle_and_audit()?;
    }
    Ok(Results { bytes, costs, openings, memory })
}

/// Measures the cost of one request, once the caches are in the workload's steady state. For writes, over whole checkpoints: from the end of one to the
/// end of another.
fn cost(clients: &mut Clients, machine: &mut Machine, workload: Workload) -> Checked<Cost> {
    let cost = if workload.writes() {
        let checkpoints = |machine: &Machine| machine.engine.counters().checkpoints;
        let mut upto = checkpoints(machine) + WARM_UP_CHECKPOINTS;
        clients.work(machine, workload, &mut |machine, _| checkpoints(machine) >= upto)?;
        upto += CHECKPOINTS;
        clients.work(machine, workload, &mut |machine, _| checkpoints(machine) >= upto)?
    } else {
        let count = if workload == Workload::RandomRead { READS } else { SEQUENTIAL_READS };
        clients.work(machine, workload, &mut |_, answered| answered >= WARM_UP_READS.min(count))?;
        clients.work(machine, workload, &mut |_, answered| answered >= count)?
    };
    clients.drain(machine)?;
    Ok(cost)
}

/// Writes until an opening has much work.
fn fill_journal(clients: &mut Clients, machine: &mut Machine, crash: Crash, delta_entries: u32) -> Checked {
    // A checkpoint first: earlier records in the journal are of another kind.
    clients.flush(machine)?;
    machine.command(Command::Settle)?;
    if crash == Crash::Flushed {
        for _ in 0..FLUSHES {
            clients.work(machine, Workload::RandomWrite, &mut |_, answered| answered >= BETWEEN_FLUSHES)?;
            clients.flush(machine)?;
        }
        return Ok(());
    }
    // A checkpoint is due at half the delta.
    let much = u64::from(delta_entries) / 2 - u64::from(delta_entries) / 64;
    clients.work(machine, Workload::RandomWrite, &mut |machine, _| machine.engine.status().unmerged_entries >= much)?;
    Ok(())
}
