//! A driver over memory: every I/O completes at once, and payload is real bytes. It is as careful as the program: it opens only a pool that the newest valid
//! superblock describes, and only where the store is long enough for that.

use engine::encode::checksum;
use engine::{
    BlockContent, BlockInput, BufferId, Command, ControlError, Digest, Effect, Engine, Error, Event, Geometry, Io,
    IoId, IoOp, Limits, Nanos, OpenError, Operation, Outcome, Parameters, Recovered, Reply, Segment, Submit,
    Superblock, VolumeId, begins_as_record,
};

use super::pool::{BLOCK, PLACE_B};

/// Number of effects and timers in one call that counts as a hang.
const PATIENCE: u32 = 200_000;

/// A request, in blocks.
#[derive(Clone, Copy, Debug)]
pub enum Task<'a> {
    /// Reads.
    Read,
    /// Writes these bytes, one block each time.
    Write(&'a [u8]),
    /// Writes zeroes.
    WriteZeroes,
    /// Discards.
    Trim,
    /// Requests extents.
    Extents,
    /// Makes everything durable.
    Flush,
}

/// An engine with its store and its payload buffers in memory.
pub struct Driver {
    /// The engine.
    pub engine: Engine,
    /// The store.
    pub image: Vec<u8>,
    buffers: Vec<u8>,
    block: usize,
    now: Nanos,
    patience: u32,
    opened: Option<Result<Recovered, OpenError>>,
    replied: Option<Result<Vec<u8>, Error>>,
    controlled: Option<Result<(), ControlError>>,
}

/// Returns a digest of a block, as good as any other for an engine that cannot compute one.
pub fn digest(block: &[u8]) -> Digest {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&checksum(1, block).to_le_bytes());
    bytes[8..].copy_from_slice(&checksum(2, block).to_le_bytes());
    Digest(bytes)
}

/// Describes a block as a driver tells the engine.
pub fn describe(block: &[u8]) -> BlockContent {
    BlockContent { digest: digest(block), zero: *block == [0; BLOCK], record_like: begins_as_record(block) }
}

/// Returns the newest valid superblock of an image, if its geometry fits the image.
pub fn probe(image: &[u8]) -> Option<Superblock> {
    // As in the program, the block size is not known before a superblock has been read: it is the one that the pool was made with.
    let slots = [0, 1, PLACE_B, PLACE_B + 1].into_iter();
    let valid = slots.filter_map(|slot| {
        let at = slot as usize * BLOCK;
        Superblock::decode(image.get(at..at + BLOCK)?).ok()
    });
    let newest = Superblock::newest(&valid.collect::<Vec<_>>()).ok()?;
    let geometry = newest.parameters.geometry;
    let fits = geometry.block() == BLOCK as u64
        && geometry.place_b == PLACE_B
        && geometry.total_blocks() <= (image.len() / BLOCK) as u64;
    fits.then_some(newest)
}

impl Driver {
    /// Opens the pool on a store. Returns `Err` if the driver or the engine refuses it.
    pub fn open(
        image: Vec<u8>,
        limits: Limits,
        open: fn(Parameters, Limits, Nanos) -> Engine,
    ) -> Result<Driver, Option<OpenError>> {
        let parameters = probe(&image).ok_or(None)?.parameters;
        let block = parameters.geometry.block() as usize;
        let mut driver = Driver {
            engine: open(parameters, limits, 0),
            image,
            buffers: vec![0; limits.most_buffers(block as u64) as usize * block],
            block,
            now: 0,
            patience: 0,
            opened: None,
            replied: None,
            controlled: None,
        };
        driver.run(|driver| driver.opened.is_some());
        match driver.opened {
            Some(Ok(_)) => Ok(driver),
            Some(Err(error)) => Err(Some(error)),
            None => panic!("the opening waits for ever"),
        }
    }

    /// Returns the number of journal records that were replayed.
    pub fn replayed(&self) -> u64 {
        self.opened.and_then(Result::ok).map_or(0, |recovered| recovered.records)
    }

    /// Returns the geometry of the pool.
    pub fn geometry(&self) -> Geometry {
        *self.engine.geometry()
    }

    /// Performs effects, and lets time pass, until `done` says so or nothing is left to do.
    fn run(&mut self, done: impl Fn(&Driver) -> bool) {
        self.patience = PATIENCE;
        loop {
            while let Some(effect) = self.engine.next_effect() {
                self.patience = self.patience.checked_sub(1).expect("the engine comes to rest");
                self.perform(effect);
            }
            if done(self) {
                return;
            }
            let Some(due) = self.engine.next_timer() else { return };
            self.patience = self.patience.checked_sub(1).expect("the engine comes to rest");
            self.now = self.now.max(due);
            self.engine.handle(self.now, Event::Timer);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Io(id) => self.perform_io(id),
            Effect::Opened(result) => self.opened = Some(result),
            Effect::ControlReply { result, .. } => self.controlled = Some(result),
            Effect::Reply { result, .. } => {
                let answer = match result {
                    Ok(Reply::Data(request)) => {
                        let mut bytes = Vec::new();
                        for segment in self.engine.data(request) {
                            let range = segment.from as usize..segment.to as usize;
                            match segment.buffer {
                                Some(buffer) => bytes.extend_from_slice(&self.buffers[self.place(buffer)][range]),
                                None => bytes.resize(bytes.len() + range.len(), 0),
                            }
                        }
                        self.engine.handle(self.now, Event::Sent(request));
                        Ok(bytes)
                    }
                    Ok(Reply::Extents(request)) => {
                        let total: u64 = self.engine.extents(request).iter().map(|extent| extent.length).sum();
                        self.engine.handle(self.now, Event::Sent(request));
                        Ok(total.to_le_bytes().to_vec())
                    }
                    Ok(Reply::Done) => Ok(Vec::new()),
                    Err(error) => Err(error),
                };
                self.replied = Some(answer);
            }
        }
    }

    fn place(&self, buffer: BufferId) -> std::ops::Range<usize> {
        let at = buffer.0 as usize * self.block;
        at..at + self.block
    }

    fn perform_io(&mut self, id: IoId) {
        let io = self.engine.io(id).clone();
        let on_store = !matches!(io.op, IoOp::Sync | IoOp::Merge { .. } | IoOp::Compare);
        let end = io.offset.checked_add(io.length);
        let inside =
            end.is_some_and(|end| end <= self.image.len() as u64) && io.offset.is_multiple_of(self.block as u64);
        assert!(!on_store || inside, "I/O stays inside the store: {io:?}");
        let (mut contents, mut equal, mut bytes) = (Vec::new(), false, 0..0);
        match io.op {
            IoOp::Sync | IoOp::Reserve | IoOp::Discard => {}
            IoOp::ReadPages => bytes = io.offset as usize..(io.offset + io.length) as usize,
            IoOp::ReadBlocks => {
                for (at, place) in self.segments(&io) {
                    let block = &self.image[at..at + self.block];
                    contents.push(describe(block));
                    self.buffers[place.expect("blocks go to buffers")].copy_from_slice(block);
                }
            }
            IoOp::Write | IoOp::WriteDurable => {
                for (segment, (at, place)) in io.segments.iter().zip(self.segments(&io)) {
                    let source = match (*segment, place) {
                        (Segment::Page(page), _) => self.engine.page(page),
                        (Segment::Buffer(_), place) => &self.buffers[place.expect("a buffer has its place")],
                    };
                    self.image[at..at + self.block].copy_from_slice(source);
                }
            }
            IoOp::Merge { from, to, zero } => contents.push(self.merge(&io, from as usize, to as usize, zero)),
            IoOp::Compare => {
                let places: Vec<_> = self.segments(&io).into_iter().filter_map(|(_, place)| place).collect();
                equal = self.buffers[places[0].clone()] == self.buffers[places[1].clone()];
            }
        }
        let outcome = match io.op {
            IoOp::Sync | IoOp::Reserve | IoOp::Discard | IoOp::Write | IoOp::WriteDurable => Outcome::Complete,
            IoOp::ReadPages => Outcome::Bytes(&self.image[bytes]),
            IoOp::ReadBlocks | IoOp::Merge { .. } => Outcome::Blocks(&contents),
            IoOp::Compare => Outcome::Equal(equal),
        };
        self.engine.handle(self.now, Event::Done { io: id, result: Ok(outcome) });
    }

    /// Returns the place of each segment on the store, and in the memory of the buffers if it is a buffer.
    fn segments(&self, io: &Io) -> Vec<(usize, Option<std::ops::Range<usize>>)> {
        let place = |(number, segment): (usize, &Segment)| {
            let place = match *segment {
                Segment::Buffer(buffer) => Some(self.place(buffer)),
                Segment::Page(_) => None,
            };
            (io.offset as usize + number * self.block, place)
        };
        io.segments.iter().enumerate().map(place).collect()
    }

    fn merge(&mut self, io: &Io, from: usize, to: usize, zero: bool) -> BlockContent {
        let places: Vec<_> = self.segments(io).into_iter().filter_map(|(_, place)| place).collect();
        let base = places.get(1).map_or(vec![0; self.block], |place| self.buffers[place.clone()].to_vec());
        let into = &mut self.buffers[places[0].clone()];
        into[..from].copy_from_slice(&base[..from]);
        into[to..].copy_from_slice(&base[to..]);
        if zero {
            into[from..to].fill(0);
        }
        describe(into)
    }

    /// Serves one request to its end; for a write, also the work that it causes. Returns `None` if the engine accepts no request, or never answers because it
    /// has failed.
    pub fn request(
        &mut self,
        volume: VolumeId,
        offset: u64,
        length: u64,
        task: Task<'_>,
    ) -> Option<Result<Vec<u8>, Error>> {
        if !self.engine.can_submit() {
            return None;
        }
        let mut inputs = Vec::new();
        if let Task::Write(payload) = task {
            let block = self.block as u64;
            for at in offset / block..(offset + length).div_ceil(block) {
                let Some(buffer) = self.engine.take_buffer() else {
                    inputs.iter().for_each(|input: &BlockInput| self.engine.return_buffer(input.buffer));
                    return None;
                };
                let place = self.place(buffer);
                let bytes = &mut self.buffers[place];
                bytes.fill(at as u8 | 1);
                bytes[..payload.len().min(self.block)].copy_from_slice(&payload[..payload.len().min(self.block)]);
                let whole = offset <= at * block && (at + 1) * block <= offset + length;
                inputs.push(BlockInput { buffer, content: whole.then(|| describe(bytes)) });
            }
        }
        let operation = match task {
            Task::Read => Operation::Read { object: 0 },
            Task::Write(_) => Operation::Write(&inputs),
            Task::WriteZeroes => Operation::WriteZeroes,
            Task::Trim => Operation::Trim,
            Task::Extents => Operation::Extents { limit: 64 },
            Task::Flush => Operation::Flush,
        };
        self.replied = None;
        let submit = Submit { token: 1, volume, offset, length, fua: false, operation };
        self.engine.handle(self.now, Event::Submit(submit));
        self.run(|driver| driver.replied.is_some());
        self.replied.take()
    }

    /// Gives a command and waits for its answer.
    pub fn control(&mut self, command: Command<'_>) -> Option<Result<(), ControlError>> {
        self.controlled = None;
        self.engine.handle(self.now, Event::Control { token: 1, command });
        self.run(|driver| driver.controlled.is_some());
        self.controlled.take()
    }
}
