//! A test bench that drives one engine by hand: one volume, operations that begin and are awaited one by one, held-back I/O, and crashes.
//!
//! A violation of the contract panics, and so does an answer that never comes. Blocks are filled with one number each.

use std::collections::BTreeMap;

use engine::{
    BlockInput, Command, ControlError, Error, Geometry, Io, IoOp, Nanos, OpenError, Operation, Policy, Recovered,
    Submit, VolumeId,
};
use sim::content::CELLS;
use sim::random::Random;
use sim::runs::config::Config;
use sim::transcript::Trace;
use sim::world::disk::{Cut, Disk};
use sim::world::faults::{Class, Rule};
use sim::world::{Answer, Step, World, formatted};

/// One second of virtual time.
pub const SECOND: Nanos = 1_000_000_000;
/// Virtual time after which an answer that has not come counts as never coming.
const FOREVER: Nanos = 60 * SECOND;

/// An engine with one volume, driven by hand in virtual time.
pub struct Bench {
    pub world: World,
    pub config: Config,
    pub volume: VolumeId,
    /// The client whose requests begin.
    pub client: u64,
    next_token: u64,
    answers: BTreeMap<u64, Result<Answer, Error>>,
    commands: BTreeMap<u64, Result<(), ControlError>>,
    opened: Option<Result<Recovered, OpenError>>,
}

/// Makes the configuration of a small pool with few containers, so that slots are soon reused.
pub fn tight(containers: u32) -> Config {
    let mut config = Config::small(1);
    config.parameters.geometry.containers = containers;
    config.parameters.geometry.slots_per_container = 4;
    config
}

/// Chooses the writes of superblocks.
pub fn superblocks(geometry: Geometry) -> impl Fn(&Io) -> bool {
    move |io| io.op.is_write() && io.offset < geometry.journal_start() * geometry.block()
}

/// Chooses the writes of journal records.
pub fn records(geometry: Geometry) -> impl Fn(&Io) -> bool {
    let journal = geometry.journal_start() * geometry.block()..geometry.meta_map_start() * geometry.block();
    move |io| io.op.is_write() && journal.contains(&io.offset)
}

/// Chooses the writes of slots.
pub fn slots(geometry: Geometry) -> impl Fn(&Io) -> bool {
    move |io| io.op.is_write() && io.offset >= geometry.data_start() * geometry.block()
}

/// Chooses the reservations of space for metadata.
pub fn metadata_reservations(geometry: Geometry) -> impl Fn(&Io) -> bool {
    move |io| io.op == IoOp::Reserve && io.offset < geometry.data_start() * geometry.block()
}

/// Chooses the reads of metadata pages.
pub fn page_reads(io: &Io) -> bool {
    io.op == IoOp::ReadPages
}

impl Bench {
    /// Creates a new pool with one volume of `blocks` blocks.
    pub fn new(config: Config, blocks: u64) -> Bench {
        let disk = formatted(config.parameters, config.first_number);
        let world = World::open(config.parameters, config.limits, disk, 0, Random::new(1), Trace::new(false));
        let mut bench = Bench {
            world: world.expect("a new pool can be opened"),
            config,
            volume: VolumeId(1),
            client: 0,
            next_token: 1,
            answers: BTreeMap::new(),
            commands: BTreeMap::new(),
            opened: None,
        };
        bench.open().expect("a new pool opens");
        let size = blocks * bench.geometry().block();
        bench.command(Command::CreateVolume { name: "disk", size, policy: Some(Policy::Full) });
        bench.volume = bench.world.engine.volumes().next().expect("it was created").id;
        bench
    }

    /// Opens the pool on a disk that has not been written to since. It has to open.
    pub fn on_disk(config: Config, disk: Disk, what: &str) -> Bench {
        let world = World::open(config.parameters, config.limits, disk, 0, Random::new(1), Trace::new(false));
        let mut bench = Bench {
            world: world.unwrap_or_else(|violation| panic!("{what}: {violation}")),
            config,
            volume: VolumeId(0),
            client: 0,
            next_token: 1,
            answers: BTreeMap::new(),
            commands: BTreeMap::new(),
            opened: None,
        };
        bench.open().unwrap_or_else(|error| panic!("{what}: {error:?}"));
        bench
    }

    pub fn geometry(&self) -> Geometry {
        self.config.parameters.geometry
    }

    // ---- time ----

    /// Performs one step of the world, no further than `horizon`. Returns false if nothing is due until then.
    fn step(&mut self, horizon: Nanos) -> bool {
        match self.world.step(horizon).unwrap_or_else(|violation| panic!("{violation}")) {
            Step::Quiet => return false,
            Step::Reply { token, result } => drop(self.answers.insert(token, result)),
            Step::Control { token, result } => drop(self.commands.insert(token, result)),
            Step::Opened(result) => self.opened = Some(result),
            Step::Submitted | Step::Completed | Step::Passed => {}
        }
        true
    }

    /// Performs one step of the world. Returns false if nothing is due.
    pub fn step_once(&mut self) -> bool {
        self.step(self.world.now) || self.step(self.world.now + SECOND)
    }

    /// Steps until `done` returns a result.
    fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Bench) -> Option<T>) -> T {
        let horizon = self.world.now + FOREVER;
        loop {
            if let Some(result) = done(self) {
                return result;
            }
            assert!(self.step(horizon), "{what}: never; in flight: {}", self.world.in_flight());
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Nanos) {
        let horizon = self.world.now + time;
        while self.step(horizon) {}
    }

    /// Steps until `count` I/O are held back.
    pub fn until_held(&mut self, count: usize) {
        self.until("I/O to hold back", |bench| (bench.world.held() >= count).then_some(()));
    }

    /// Releases all held-back I/O, and holds nothing from here on.
    pub fn let_all_go(&mut self) {
        self.world.hold_back(|_| false);
        self.world.let_go(usize::MAX);
    }

    // ---- requests ----

    fn begin(&mut self, first: u64, cells: u64, fua: bool, operation: Operation<'_>) -> u64 {
        // Answers stay in flight for a while.
        self.until("space for a request", |bench| bench.world.engine.can_submit().then_some(()));
        let cell_bytes = self.geometry().block() / CELLS as u64;
        let token = self.next_token | self.client << 48;
        self.next_token += 1;
        let (offset, length) = (first * cell_bytes, cells * cell_bytes);
        self.world.submit(Submit { token, volume: self.volume, offset, length, fua, operation });
        token
    }

    /// Begins to write the cells from cell `first` of the volume on.
    pub fn begin_cells(&mut self, first: u64, values: &[u32], fua: bool) -> u64 {
        let end = first + values.len() as u64;
        let blocks = first / CELLS as u64..end.div_ceil(CELLS as u64);
        let mut inputs = Vec::new();
        for block in blocks {
            let value = |cell: usize| {
                let cell = block * CELLS as u64 + cell as u64;
                (first..end).contains(&cell).then(|| values[(cell - first) as usize])
            };
            let cells = core::array::from_fn(value);
            let buffer = self.until("a buffer", |bench| {
                bench.world.take_buffer(&cells).unwrap_or_else(|violation| panic!("{violation}"))
            });
            let content = cells.iter().all(Option::is_some).then(|| self.world.describe(buffer));
            inputs.push(BlockInput { buffer, content });
        }
        self.begin(first, values.len() as u64, fua, Operation::Write(&inputs))
    }

    /// Begins to write whole blocks.
    pub fn begin_write(&mut self, block: u64, contents: &[u32], fua: bool) -> u64 {
        let values: Vec<u32> = contents.iter().flat_map(|&content| [content; CELLS]).collect();
        self.begin_cells(block * CELLS as u64, &values, fua)
    }

    /// Begins to read whole blocks.
    pub fn begin_read(&mut self, block: u64, blocks: u64) -> u64 {
        self.begin(block * CELLS as u64, blocks * CELLS as u64, false, Operation::Read { object: 0 })
    }

    /// Begins to trim cells from cell `first` of the volume on.
    pub fn begin_trim_cells(&mut self, first: u64, cells: u64) -> u64 {
        self.begin(first, cells, false, Operation::Trim)
    }

    /// Begins to write zeroes to cells, without their bytes.
    pub fn begin_zero_cells(&mut self, first: u64, cells: u64) -> u64 {
        self.begin(first, cells, false, Operation::WriteZeroes)
    }

    /// Begins to ask for the extents of whole blocks.
    pub fn begin_extents(&mut self, block: u64, blocks: u64) -> u64 {
        let operation = Operation::Extents { limit: 128 };
        self.begin(block * CELLS as u64, blocks * CELLS as u64, false, operation)
    }

    pub fn begin_flush(&mut self) -> u64 {
        self.begin(0, 0, false, Operation::Flush)
    }

    /// Returns the answer, if it has come.
    pub fn answer(&mut self, token: u64) -> Option<Result<Answer, Error>> {
        self.answers.remove(&token)
    }

    /// Waits for an answer.
    pub fn wait(&mut self, token: u64) -> Result<Answer, Error> {
        self.until("an answer", |bench| bench.answer(token))
    }

    /// Writes cells, not durably.
    pub fn write_cells(&mut self, first: u64, values: &[u32]) {
        let token = self.begin_cells(first, values, false);
        assert_eq!(self.wait(token), Ok(Answer::Done), "writing cell {first}");
    }

    /// Writes blocks, not durably.
    pub fn write(&mut self, block: u64, contents: &[u32]) {
        let token = self.begin_write(block, contents, false);
        assert_eq!(self.wait(token), Ok(Answer::Done), "writing block {block}");
    }

    /// Writes one block durably.
    pub fn write_durably(&mut self, block: u64, content: u32) {
        let token = self.begin_write(block, &[content], true);
        assert_eq!(self.wait(token), Ok(Answer::Done), "writing block {block}");
    }

    pub fn trim(&mut self, block: u64) {
        self.trim_blocks(block, 1);
    }

    /// Trims whole blocks.
    pub fn trim_blocks(&mut self, block: u64, blocks: u64) {
        let token = self.begin(block * CELLS as u64, blocks * CELLS as u64, false, Operation::Trim);
        assert_eq!(self.wait(token), Ok(Answer::Done), "trimming block {block}");
    }

    /// Reads a block and returns the answer.
    pub fn read(&mut self, block: u64) -> Result<Answer, Error> {
        let token = self.begin_read(block, 1);
        self.wait(token)
    }

    #[track_caller]
    pub fn assert_holds(&mut self, block: u64, content: u32) {
        assert_eq!(self.read(block), Ok(Answer::Data(vec![content; CELLS])), "block {block}");
    }

    // ---- commands, audits, crashes ----

    pub fn begin_command(&mut self, command: Command<'_>) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.world.control(token, command);
        token
    }

    pub fn command(&mut self, command: Command<'_>) {
        let token = self.begin_command(command);
        self.await_command(token);
    }

    /// Waits until a command is done.
    pub fn await_command(&mut self, token: u64) {
        assert_eq!(self.command_result(token), Ok(()));
    }

    /// Waits for a command's result and returns it.
    pub fn command_result(&mut self, token: u64) -> Result<(), ControlError> {
        self.until("a command's answer", |bench| bench.commands.remove(&token))
    }

    /// Grows the pool. The disk must already have the new size.
    pub fn grow(&mut self, capacity: u64) {
        self.command(Command::Grow { capacity, metadata: 0 });
    }

    /// Returns the answer to a command, if it has come.
    pub fn command_answer(&mut self, token: u64) -> Option<Result<(), ControlError>> {
        self.commands.remove(&token)
    }

    /// Merges everything, and waits until freed slots can be allocated again.
    pub fn settle(&mut self) {
        self.command(Command::Settle);
    }

    /// Settles, and lets the engine account for its whole state.
    pub fn audit(&mut self) {
        self.settle();
        // The last completion may begin more work.
        loop {
            self.until("rest", |bench| bench.world.is_still().then_some(()));
            self.pass(0);
            if self.world.is_still() {
                break;
            }
        }
        let findings = self.findings();
        assert!(findings.is_empty(), "{findings:?}");
    }

    /// Returns what the engine's account of its state finds.
    pub fn findings(&self) -> Vec<String> {
        let (engine, disk) = (&self.world.engine, &self.world.disk);
        let mut findings = Vec::new();
        engine.check(&mut |offset, length| World::read_bytes(disk, offset, length), &mut |finding| {
            findings.push(finding.to_string());
        });
        findings
    }

    fn open(&mut self) -> Result<Recovered, OpenError> {
        if self.config.owned {
            self.world.acquire(self.next_token).unwrap_or_else(|violation| panic!("{violation}"));
        }
        self.finish_opening()
    }

    /// Waits for the end of an opening that has begun.
    pub fn finish_opening(&mut self) -> Result<Recovered, OpenError> {
        self.until("the end of opening", |bench| bench.opened.take())
    }

    /// Closes the pool, and opens it again. Nothing is cached, and the index is not rebuilt yet.
    pub fn reopen(&mut self) {
        self.command(Command::Close);
        self.crash(Cut::Lost).expect("a pool that was closed opens");
    }

    /// Crashes, and opens the pool again.
    pub fn crash(&mut self, cut: Cut) -> Result<Recovered, OpenError> {
        self.begin_to_open(cut);
        self.open()
    }

    /// Crashes, and opens the pool while no write finds space.
    pub fn crash_on_full_host(&mut self) -> Result<Recovered, OpenError> {
        self.begin_to_open(Cut::Lost);
        self.world.faults.begin(&[Rule::nth(Class::FullHost, 0, true)]);
        self.open()
    }

    /// Crashes, and begins to open the pool again.
    pub fn begin_to_open(&mut self, cut: Cut) {
        let mut disk = self.world.disk.clone();
        disk.crash(cut, &mut Random::new(1));
        self.answers.clear();
        let (parameters, limits, now) = (self.config.parameters, self.config.limits, self.world.now);
        let world = World::open(parameters, limits, disk, now, Random::new(1), Trace::new(false));
        self.world = world.unwrap_or_else(|violation| panic!("{violation}"));
        self.opened = None;
    }
}
