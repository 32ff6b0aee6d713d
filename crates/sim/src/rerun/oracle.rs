//! The oracle of a replay: the correct answers, as far as a recording alone determines them.
//!
//! It holds the possible contents of each block of each volume: digests computed by the driver, or zero. A write adds its content when it is submitted. When
//! it is answered with success, the earlier contents are no longer possible. Writes that overlap in time leave each of their contents possible. The content
//! from before the recording is unknown until a read returns it; from then on it must stay unchanged. The content of a partial block is the result of its
//! completion (`Merge`).
//!
//! Not judged: ranges of long discards and of changes of a volume's size while these were in progress; extents.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use engine::{
    BlockContent, BufferId, Command, DataSegment, Digest, Effect, Engine, Event, Geometry, IoId, IoOp, Operation,
    Outcome, Reply, RequestId, Segment, Submit, VolumeId,
};

use crate::{Checked, violated};

/// Number of blocks above which a clear is not tracked block by block.
const LONG: u64 = 1 << 16;
/// Maximum number of contents of a block that are told apart.
const CONTENTS: usize = 64;

/// Content of a block or a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    Unknown,
    Zero,
    Data(Digest),
}

impl From<BlockContent> for Content {
    fn from(content: BlockContent) -> Content {
        if content.zero { Content::Zero } else { Content::Data(content.digest) }
    }
}

/// Possible contents of a block.
enum Block {
    /// Exactly one content.
    One(Content),
    /// One of several.
    Several(Box<Several>),
}

#[derive(Default)]
struct Several {
    /// Contents that were possible before the writes in flight came.
    before: Vec<Content>,
    /// Contents of the writes in flight.
    written: Vec<Content>,
    /// Number of these writes in flight.
    in_flight: u32,
    /// Contents that are no longer possible, and the call that ended each: for reads that came earlier.
    past: Vec<(Content, u64)>,
}

impl Several {
    fn may_be(&self, content: Content, since: u64) -> bool {
        let past = self.past.iter().filter(|(_, until)| *until >= since).map(|(content, _)| content);
        let mut all = self.before.iter().chain(&self.written).chain(past);
        all.any(|&possible| possible == content || possible == Content::Unknown)
    }
}

/// A request in flight.
struct Flight {
    /// Call that submitted it.
    since: u64,
    volume: VolumeId,
    offset: u64,
    length: u64,
    kind: Kind,
}

enum Kind {
    Read,
    /// Blocks and buffers of a write.
    Write(Vec<(u64, BufferId)>),
    /// Blocks of a clear.
    Clear(Vec<u64>),
    LongClear,
    Other,
}

/// History of a volume as a whole.
#[derive(Default)]
struct Volume {
    /// True if it was created in the recording: unwritten blocks are zero.
    is_new: bool,
    /// Long clears in flight.
    clears: u32,
    /// Call of the last event that is not tracked block by block.
    disturbed: u64,
}

/// The state of all blocks, as far as the recording determines it.
pub struct Oracle {
    /// Blocks of answers that were judged.
    pub checked: u64,
    /// Blocks of answers that could not be judged.
    pub unknown: u64,
    block: u64,
    blocks: BTreeMap<(u16, u64), Block>,
    volumes: HashMap<u16, Volume>,
    /// Volumes that existed before the recording.
    old: HashSet<u16>,
    flights: HashMap<u64, Flight>,
    /// Calls that submitted the reads in flight.
    reads: BTreeSet<(u64, u64)>,
    buffers: HashMap<u32, Content>,
    /// Volume and block of each block that a write in flight covers only in part, by the number of the buffer in which the engine completes it.
    partial: HashMap<u32, (VolumeId, u64)>,
    /// Buffers that each I/O in flight fills, in order.
    fills: HashMap<IoId, Vec<BufferId>>,
    /// Buffers of answers that are being sent.
    sending: HashMap<RequestId, Vec<BufferId>>,
}

impl Oracle {
    /// Returns an oracle without knowledge of the pool's content.
    pub fn new(geometry: &Geometry) -> Oracle {
        Oracle {
            checked: 0,
            unknown: 0,
            block: geometry.block(),
            blocks: BTreeMap::new(),
            volumes: HashMap::new(),
            old: HashSet::new(),
            flights: HashMap::new(),
            reads: BTreeSet::new(),
            buffers: HashMap::new(),
            partial: HashMap::new(),
            fills: HashMap::new(),
            sending: HashMap::new(),
        }
    }

    /// Notes that the driver takes a buffer and fills it. Fails if the buffer is in use.
    pub fn take(&mut self, buffer: BufferId) -> Checked {
        self.buffers.remove(&buffer.0);
        self.is_free(buffer, "handed out")
    }

    /// Notes an event before the engine handles it.
    pub fn event(&mut self, call: u64, engine: &Engine, event: &Event<'_>) {
        match *event {
            Event::Submit(submit) => self.submit(call, engine, &submit),
            Event::Done { io, result } => {
                let Some(buffers) = self.fills.remove(&io) else { return };
                let Ok(Outcome::Blocks(contents)) = result else { return };
                for (buffer, &content) in buffers.into_iter().zip(contents) {
                    self.buffers.insert(buffer.0, content.into());
                    if let Some(&(volume, lba)) = self.partial.get(&buffer.0) {
                        self.several(volume, lba).written.push(content.into());
                    }
                }
            }
            Event::Sent(request) => drop(self.sending.remove(&request)),
            Event::Timer | Event::FlashLate | Event::GrowthOffered(_) => {}
            Event::Control { command, .. } => self.command(call, command),
        }
    }

    /// Checks an effect of the engine: buffers that an I/O fills must be free, and answers must be right.
    pub fn effect(&mut self, call: u64, engine: &Engine, effect: Effect) -> Checked {
        match effect {
            Effect::Io(id) => {
                let io = engine.io(id);
                let filled = match io.op {
                    IoOp::ReadBlocks => io.segments.len(),
                    IoOp::Merge { .. } => 1,
                    _ => 0,
                };
                if filled == 0 {
                    return Ok(());
                }
                let buffers = io.segments.iter().take(filled).filter_map(|segment| match segment {
                    Segment::Buffer(buffer) => Some(*buffer),
                    Segment::Page(_) => None,
                });
                let buffers: Vec<BufferId> = buffers.collect();
                for buffer in &buffers {
                    self.buffers.remove(&buffer.0);
                    self.is_free(*buffer, "filled")?;
                }
                self.fills.insert(id, buffers);
            }
            Effect::Reply { token, result } => {
                let Some(flight) = self.flights.remove(&token) else {
                    return violated(format!("request {token} is answered, and is not in flight"));
                };
                self.reads.remove(&(flight.since, token));
                let good = match result {
                    Ok(Reply::Data(request)) => {
                        let segments = engine.data(request);
                        let buffers = segments.iter().filter_map(|segment| segment.buffer);
                        self.sending.insert(request, buffers.collect());
                        return self.check_read(&flight, token, segments);
                    }
                    Ok(_) => true,
                    Err(_) => false,
                };
                self.end(call, flight, good);
            }
            Effect::Opened(_) => self.old = engine.volumes().map(|volume| volume.id.0).collect(),
            Effect::ControlReply { .. } => {}
        }
        Ok(())
    }

    fn is_free(&self, buffer: BufferId, what: &str) -> Checked {
        match self.sending.iter().find(|(_, buffers)| buffers.contains(&buffer)) {
            Some((request, _)) => {
                violated(format!("{buffer:?} is {what} while the answer of {request:?} is sent from it"))
            }
            None => Ok(()),
        }
    }

    fn volume(&mut self, volume: VolumeId) -> &mut Volume {
        let is_new = !self.old.contains(&volume.0);
        self.volumes.entry(volume.0).or_insert_with(|| Volume { is_new, ..Volume::default() })
    }

    /// Converts a block to one that may hold several contents.
    fn several(&mut self, volume: VolumeId, lba: u64) -> &mut Several {
        let first = if self.volume(volume).is_new { Content::Zero } else { Content::Unknown };
        let block = self.blocks.entry((volume.0, lba)).or_insert(Block::One(first));
        if let Block::One(content) = *block {
            *block = Block::Several(Box::new(Several { before: vec![content], ..Several::default() }));
        }
        match block {
            Block::Several(several) => several,
            Block::One(_) => unreachable!("it has been replaced"),
        }
    }

    fn submit(&mut self, call: u64, engine: &Engine, submit: &Submit<'_>) {
        let Submit { token, volume, offset, length, operation, .. } = *submit;
        let size = engine.volumes().find(|known| known.id == volume).map_or(0, |known| known.size);
        let end = offset.saturating_add(length);
        // A request that is not inside the volume is refused.
        let is_inside = length > 0 && end <= size;
        let blocks = offset / self.block..end.div_ceil(self.block);
        let kind = match operation {
            Operation::Read { .. } => {
                self.reads.insert((call, token));
                Kind::Read
            }
            Operation::Write(inputs) if is_inside => {
                for (lba, input) in blocks.clone().zip(inputs) {
                    let content = input.content.map(Content::from);
                    let several = self.several(volume, lba);
                    several.in_flight += 1;
                    several.written.extend(content);
                    match content {
                        Some(content) => drop(self.buffers.insert(input.buffer.0, content)),
                        None => {
                            self.buffers.remove(&input.buffer.0);
                            self.partial.insert(input.buffer.0, (volume, lba));
                        }
                    }
                }
                Kind::Write(blocks.zip(inputs).map(|(lba, input)| (lba, input.buffer)).collect())
            }
            Operation::WriteZeroes | Operation::Trim if is_inside && blocks.end - blocks.start > LONG => {
                self.volume(volume).clears += 1;
                Kind::LongClear
            }
            Operation::WriteZeroes | Operation::Trim if is_inside => {
                for lba in blocks.clone() {
                    let whole = lba * self.block >= offset && (lba + 1) * self.block <= end;
                    let several = self.several(volume, lba);
                    several.in_flight += 1;
                    several.written.push(if whole { Content::Zero } else { Content::Unknown });
                }
                Kind::Clear(blocks.collect())
            }
            _ => Kind::Other,
        };
        self.flights.insert(token, Flight { since: call, volume, offset, length, kind });
    }

    /// Notes commands that change volumes as a whole: deletions and resizes.
    fn command(&mut self, call: u64, command: Command<'_>) {
        match command {
            Command::DeleteVolume { volume } => {
                self.forget(volume, 0, call);
                // The next volume with this number is a different one.
                self.old.remove(&volume.0);
                self.volume(volume).is_new = true;
            }
            Command::ResizeVolume { volume, size } => self.forget(volume, size / self.block, call),
            _ => {}
        }
    }

    /// Forgets the contents of all blocks from `from` on, and of requests in flight.
    fn forget(&mut self, volume: VolumeId, from: u64, call: u64) {
        self.volume(volume).disturbed = call;
        for (_, block) in self.blocks.range_mut((volume.0, from)..=(volume.0, u64::MAX)) {
            match block {
                Block::One(content) => *content = Content::Unknown,
                Block::Several(several) => several.before = vec![Content::Unknown],
            }
        }
    }

    /// Ends a request that may have changed blocks, when it is answered.
    fn end(&mut self, call: u64, flight: Flight, good: bool) {
        let Flight { since, volume, kind, .. } = flight;
        let known = self.volume(volume);
        let followed = known.clears == 0 && known.disturbed < since;
        match kind {
            Kind::Write(blocks) => {
                for (lba, buffer) in blocks {
                    if self.partial.remove(&buffer.0).is_some() && !self.buffers.contains_key(&buffer.0) {
                        // The block was not completed.
                        self.several(volume, lba).written.push(Content::Unknown);
                    }
                    self.end_block(call, volume, lba, good, followed);
                }
            }
            Kind::Clear(blocks) => {
                for lba in blocks {
                    self.end_block(call, volume, lba, good, followed);
                }
            }
            Kind::LongClear => {
                self.forget(volume, 0, call);
                self.volume(volume).clears -= 1;
            }
            Kind::Read | Kind::Other => {}
        }
    }

    fn end_block(&mut self, call: u64, volume: VolumeId, lba: u64, good: bool, followed: bool) {
        let oldest = self.reads.first().map_or(u64::MAX, |&(since, _)| since);
        let several = self.several(volume, lba);
        several.in_flight = several.in_flight.saturating_sub(1);
        if !followed {
            several.before = vec![Content::Unknown];
        } else if good {
            let before = several.before.drain(..).map(|content| (content, call));
            several.past.extend(before);
        }
        several.past.retain(|&(_, until)| until >= oldest);
        if several.in_flight == 0 {
            let written = std::mem::take(&mut several.written);
            several.before.extend(written);
        }
        for contents in [&mut several.before, &mut several.written] {
            let mut distinct: Vec<Content> = Vec::with_capacity(contents.len());
            for &content in contents.iter() {
                if !distinct.contains(&content) {
                    distinct.push(content);
                }
            }
            if distinct.len() > CONTENTS {
                distinct = vec![Content::Unknown];
            }
            *contents = distinct;
        }
        if several.in_flight == 0
            && several.past.is_empty()
            && let &[content] = several.before.as_slice()
        {
            self.blocks.insert((volume.0, lba), Block::One(content));
        }
    }

    /// Checks each block of an answer against its possible contents.
    fn check_read(&mut self, flight: &Flight, token: u64, segments: &[DataSegment]) -> Checked {
        let Flight { since, volume, offset, length, .. } = *flight;
        let known = self.volume(volume);
        let (is_new, followed) = (known.is_new, known.clears == 0 && known.disturbed < since);
        let mut at = offset;
        for segment in segments {
            let content = match segment.buffer {
                None => Content::Zero,
                Some(buffer) => self.buffers.get(&buffer.0).copied().unwrap_or(Content::Unknown),
            };
            let lba = at / self.block;
            at += u64::from(segment.to.saturating_sub(segment.from));
            let before = self.blocks.get(&(volume.0, lba));
            let possible = match before {
                _ if !followed || content == Content::Unknown => None,
                None if is_new => Some(content == Content::Zero),
                None | Some(Block::One(Content::Unknown)) => None,
                Some(Block::One(expected)) => Some(*expected == content),
                Some(Block::Several(several)) => Some(several.may_be(content, since)),
            };
            match possible {
                Some(true) => self.checked += 1,
                Some(false) => {
                    let expected = match before {
                        Some(Block::One(expected)) => format!("{expected:?}"),
                        Some(Block::Several(several)) => format!("{:?} or {:?}", several.before, several.written),
                        None => "zeroes".to_string(),
                    };
                    return violated(format!(
                        "request {token} reads block {lba} of volume {} as {content:?}: it must be {expected}",
                        volume.0
                    ));
                }
                None => {
                    self.unknown += 1;
                    // An unwritten block keeps its content.
                    if followed && before.is_none() && content != Content::Unknown {
                        self.blocks.insert((volume.0, lba), Block::One(content));
                    }
                }
            }
        }
        if at != offset + length {
            return violated(format!("request {token} wants {length} bytes, and its answer has {}", at - offset));
        }
        Ok(())
    }
}
