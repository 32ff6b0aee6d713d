//! The decoder of recordings: reads bytes that may end anywhere, and may be anything.

use alloc::string::String;
use alloc::vec::Vec;

use super::write::{BUFFERED_LIMIT, VOLUMES_LIMIT, tag};
use super::{Call, Ending, Header, MAGIC, Unreturned, VERSION, properties};
use crate::api::*;
use crate::device::DeviceTraits;
use crate::format::bytes::{checksum, u16_at, u64_at};
use crate::format::superblock::{SUPERBLOCK_SIZE, Superblock};
use crate::format::volume::MAX_VOLUMES;
use crate::icache::rule::CacheLimits;
use crate::limits::{BUFFERED_PER_LEAF, Limits};
use crate::properties::CacheSetting;

/// The greatest length of a list or text: more than any call needs.
const MOST: u64 = 1 << 24;

/// Reason why there is no header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadHeader {
    /// It is not complete.
    Incomplete,
    /// It is no recording.
    Foreign,
    /// The format's version is unknown.
    Version(u16),
    /// It fails its checksum or makes no sense.
    Damaged,
}

/// Result of decoding the next bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded {
    /// A call of this number of bytes: [`Decoder::call`].
    Call(usize),
    /// The bytes end before the call does.
    Incomplete,
    /// No call looks like this, or the checksum of a trace hash does not fit.
    Damaged,
}

/// Reason why reading stops.
pub(super) enum ReadStop {
    Incomplete,
    Damaged,
}

/// Decoder of calls, one after the other.
pub struct Decoder {
    now: Nanos,
    block: usize,
    sum: u64,
    /// The last call; its lists are here.
    call: Call<'static>,
    inputs: Vec<BlockInput>,
    contents: Vec<BlockContent>,
    bytes: Vec<u8>,
    text: String,
    extents: Vec<(u64, u64)>,
    volumes: Vec<VolumeId>,
}

/// Reads the header, and returns it with the number of its bytes.
pub fn decode_header(bytes: &[u8]) -> Result<(Header, Decoder, usize), BadHeader> {
    let signature = bytes.len().min(MAGIC.len());
    if bytes[..signature] != MAGIC[..signature] {
        return Err(BadHeader::Foreign);
    }
    if bytes.len() < MAGIC.len() + 2 {
        return Err(BadHeader::Incomplete);
    }
    let version = u16_at(bytes, MAGIC.len());
    if version != VERSION {
        return Err(BadHeader::Version(version));
    }
    let mut reader = Reader { bytes, at: MAGIC.len() + 2 };
    let fields = reader.header().map_err(BadHeader::from)?;
    let (header, sum) = fields;
    let decoder = Decoder {
        now: header.now,
        block: header.parameters.geometry.block_size as usize,
        sum,
        call: Call::End(Ending::Closed),
        inputs: Vec::new(),
        contents: Vec::new(),
        bytes: Vec::new(),
        text: String::new(),
        extents: Vec::new(),
        volumes: Vec::new(),
    };
    Ok((header, decoder, reader.at))
}

impl From<ReadStop> for BadHeader {
    fn from(stop: ReadStop) -> BadHeader {
        match stop {
            ReadStop::Incomplete => BadHeader::Incomplete,
            ReadStop::Damaged => BadHeader::Damaged,
        }
    }
}

impl Decoder {
    /// Reads the next call from the beginning of `bytes`.
    pub fn decode(&mut self, bytes: &[u8]) -> Decoded {
        let mut reader = Reader::new(bytes);
        match self.read(&mut reader) {
            Ok(()) => Decoded::Call(reader.at),
            Err(ReadStop::Incomplete) => Decoded::Incomplete,
            Err(ReadStop::Damaged) => Decoded::Damaged,
        }
    }

    /// Returns the call that was read last.
    pub fn call(&self) -> Call<'_> {
        let Call::Handle { now, event } = self.call else { return self.call };
        let event = match event {
            Event::Submit(submit) if matches!(submit.operation, Operation::Write(_)) => {
                Event::Submit(Submit { operation: Operation::Write(&self.inputs), ..submit })
            }
            Event::Done { io, result: Ok(Outcome::Blocks(_)) } => {
                Event::Done { io, result: Ok(Outcome::Blocks(&self.contents)) }
            }
            Event::Done { io, result: Ok(Outcome::Bytes(_)) } => {
                Event::Done { io, result: Ok(Outcome::Bytes(&self.bytes)) }
            }
            Event::Control { token, command: Command::CreateVolume { size, policy, .. } } => {
                Event::Control { token, command: Command::CreateVolume { name: &self.text, size, policy } }
            }
            Event::Control { token, command: Command::CreateSnapshots { seconds, .. } } => {
                let command = Command::CreateSnapshots { volumes: &self.volumes, name: &self.text, seconds };
                Event::Control { token, command }
            }
            Event::Control { token, command: Command::CloneSnapshot { snapshot, .. } } => {
                Event::Control { token, command: Command::CloneSnapshot { snapshot, name: &self.text } }
            }
            Event::Control { token, command: Command::RenameVolume { volume, .. } } => {
                Event::Control { token, command: Command::RenameVolume { volume, name: &self.text } }
            }
            Event::Control { token, command: Command::Relocate { command: RelocateCommand::Plan { begins, .. } } } => {
                let command = RelocateCommand::Plan { begins, extents: &self.extents };
                Event::Control { token, command: Command::Relocate { command } }
            }
            event => event,
        };
        Call::Handle { now, event }
    }

    fn read(&mut self, reader: &mut Reader<'_>) -> Result<(), ReadStop> {
        let tag = reader.byte()?;
        let mut now = self.now;
        let call = match tag {
            tag::SUBMIT | tag::DONE | tag::SENT | tag::TIMER | tag::CONTROL | tag::FLASH_LATE | tag::GROWTH_OFFERED => {
                now = reader.changed(now)?;
                let event = match tag {
                    tag::SUBMIT => Event::Submit(self.submit(reader)?),
                    tag::DONE => Event::Done { io: IoId(reader.small()?), result: self.outcome(reader)? },
                    tag::SENT => Event::Sent(RequestId(reader.small()?)),
                    tag::TIMER => Event::Timer,
                    tag::FLASH_LATE => Event::FlashLate,
                    tag::GROWTH_OFFERED => Event::GrowthOffered(reader.flag()?),
                    _ => Event::Control { token: reader.number()?, command: self.command(reader)? },
                };
                Call::Handle { now, event }
            }
            tag::TOOK => Call::TakeBuffer(Some(BufferId(reader.small()?))),
            tag::TOOK_NONE => Call::TakeBuffer(None),
            tag::RETURNED => Call::ReturnBuffer(BufferId(reader.small()?)),
            tag::LIMITS => Call::SetLimits(reader.limits()?),
            tag::EFFECTS | tag::DRAINED => Call::Effects { taken: reader.number()?, drained: tag == tag::DRAINED },
            tag::TRACE_HASH => Call::TraceHash(u64_at(reader.take(8)?, 0)),
            tag::UNRETURNED => Call::Unreturned(match reader.byte()? {
                1 => Unreturned::NextEffect,
                2 => Unreturned::TakeBuffer,
                _ => return Err(ReadStop::Damaged),
            }),
            tag::END => Call::End(match reader.byte()? {
                1 => Ending::Closed,
                2 => Ending::Full,
                3 => Ending::Behind,
                4 => Ending::Panicked,
                _ => return Err(ReadStop::Damaged),
            }),
            _ => return Err(ReadStop::Damaged),
        };
        let sum = checksum(self.sum, &reader.bytes[..reader.at]);
        if let Call::TraceHash(_) = call
            && u64_at(reader.take(8)?, 0) != sum
        {
            return Err(ReadStop::Damaged);
        }
        (self.call, self.now, self.sum) = (call, now, sum);
        Ok(())
    }

    fn submit(&mut self, reader: &mut Reader<'_>) -> Result<Submit<'static>, ReadStop> {
        let (token, volume) = (reader.number()?, reader.volume()?);
        let (offset, length) = (reader.number()?, reader.number()?);
        let kind = reader.byte()?;
        let operation = match kind >> 1 {
            1 => Operation::Read { object: reader.number()? },
            2 => {
                self.inputs.clear();
                let mut before = 0;
                for _ in 0..reader.count()? {
                    before = reader.changed(before)?;
                    let buffer = BufferId(u32::try_from(before).map_err(|_| ReadStop::Damaged)?);
                    let content = reader.content()?;
                    self.inputs.push(BlockInput { buffer, content });
                }
                Operation::Write(&[])
            }
            3 => Operation::WriteZeroes,
            4 => Operation::Trim,
            5 => Operation::Flush,
            6 => Operation::Extents { limit: reader.small()? },
            _ => return Err(ReadStop::Damaged),
        };
        Ok(Submit { token, volume, offset, length, fua: kind & 1 != 0, operation })
    }

    fn outcome(&mut self, reader: &mut Reader<'_>) -> Result<Result<Outcome<'static>, IoError>, ReadStop> {
        Ok(match reader.byte()? {
            0 => Err(IoError::Failed),
            1 => Err(IoError::NoSpace),
            2 => Ok(Outcome::Complete),
            3 => Ok(Outcome::Equal(false)),
            4 => Ok(Outcome::Equal(true)),
            5 => {
                self.contents.clear();
                for _ in 0..reader.count()? {
                    self.contents.push(reader.content()?.ok_or(ReadStop::Damaged)?);
                }
                Ok(Outcome::Blocks(&[]))
            }
            6 => {
                let length = reader.count()? as usize;
                self.bytes.clear();
                while self.bytes.len() < length {
                    let page = self.block.min(length - self.bytes.len());
                    let end = reader.number()?;
                    if end > page as u64 {
                        return Err(ReadStop::Damaged);
                    }
                    let after = self.bytes.len() + page;
                    self.bytes.extend_from_slice(reader.take(end as usize)?);
                    self.bytes.resize(after, 0);
                }
                Ok(Outcome::Bytes(&[]))
            }
            _ => return Err(ReadStop::Damaged),
        })
    }

    fn command(&mut self, reader: &mut Reader<'_>) -> Result<Command<'static>, ReadStop> {
        Ok(match reader.byte()? {
            1 => {
                self.text = reader.text()?;
                Command::CreateVolume { name: "", size: reader.number()?, policy: reader.policy()? }
            }
            2 => Command::DeleteVolume { volume: reader.volume()? },
            3 => Command::ResizeVolume { volume: reader.volume()?, size: reader.number()? },
            4 => Command::SetVolume { volume: reader.volume()?, change: properties::read_of_volume(reader)? },
            5 => Command::SetPool(properties::read(reader)?),
            6 => Command::Grow { capacity: reader.number()?, metadata: reader.number()? },
            7 => Command::Settle,
            8 => Command::Close,
            9 => Command::CloseEarly,
            10 => {
                let command = match reader.number()? {
                    0 => ScrubCommand::Start,
                    1 => ScrubCommand::Pause,
                    2 => ScrubCommand::Stop,
                    _ => return Err(ReadStop::Damaged),
                };
                Command::Scrub { command, seconds: reader.number()? }
            }
            11 => Command::Dedup {
                command: match reader.number()? {
                    0 => DedupCommand::Start,
                    1 => DedupCommand::Pause,
                    2 => DedupCommand::Stop,
                    _ => return Err(ReadStop::Damaged),
                },
            },
            12 => {
                let command = match reader.number()? {
                    0 => RelocateCommand::Start,
                    1 => RelocateCommand::Pause,
                    2 => RelocateCommand::Stop,
                    code @ (3 | 4) => {
                        self.extents.clear();
                        for _ in 0..reader.number()? {
                            self.extents.push((reader.number()?, reader.number()?));
                        }
                        RelocateCommand::Plan { begins: code == 4, extents: &[] }
                    }
                    _ => return Err(ReadStop::Damaged),
                };
                Command::Relocate { command }
            }
            13 => {
                self.text = reader.text()?;
                let seconds = reader.number()?;
                self.volumes.clear();
                for _ in 0..reader.number()? {
                    self.volumes.push(reader.volume()?);
                }
                Command::CreateSnapshots { volumes: &[], name: "", seconds }
            }
            14 => {
                self.text = reader.text()?;
                Command::CloneSnapshot { snapshot: reader.volume()?, name: "" }
            }
            15 => Command::RollBack { volume: reader.volume()?, snapshot: reader.volume()? },
            16 => Command::HoldSnapshot { snapshot: reader.volume()?, held: reader.flag()? },
            17 => {
                self.text = reader.text()?;
                Command::RenameVolume { volume: reader.volume()?, name: "" }
            }
            _ => return Err(ReadStop::Damaged),
        })
    }
}

/// Reader of the bytes of a recording, from their beginning.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], ReadStop> {
        let end = self.at.checked_add(count).ok_or(ReadStop::Damaged)?;
        let bytes = self.bytes.get(self.at..end).ok_or(ReadStop::Incomplete)?;
        self.at = end;
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, ReadStop> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn number(&mut self) -> Result<u64, ReadStop> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(ReadStop::Damaged);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ReadStop::Damaged)
    }

    fn small(&mut self) -> Result<u32, ReadStop> {
        u32::try_from(self.number()?).map_err(|_| ReadStop::Damaged)
    }

    fn volume(&mut self) -> Result<VolumeId, ReadStop> {
        u16::try_from(self.number()?).map(VolumeId).map_err(|_| ReadStop::Damaged)
    }

    fn changed(&mut self, from: u64) -> Result<u64, ReadStop> {
        let change = self.number()?;
        Ok(from.wrapping_add((change >> 1) ^ (change & 1).wrapping_neg()))
    }

    /// Reads the length of a list; a length above [`MOST`] is damage.
    pub(super) fn count(&mut self) -> Result<u64, ReadStop> {
        let count = self.number()?;
        if count > MOST { Err(ReadStop::Damaged) } else { Ok(count) }
    }

    fn flag(&mut self) -> Result<bool, ReadStop> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ReadStop::Damaged),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, ReadStop> {
        let length = self.count()? as usize;
        let text = core::str::from_utf8(self.take(length)?).map_err(|_| ReadStop::Damaged)?;
        Ok(text.into())
    }

    fn content(&mut self) -> Result<Option<BlockContent>, ReadStop> {
        let (zero, record_like) = match self.byte()? {
            0 => return Ok(None),
            1 => (false, false),
            2 => return Ok(Some(BlockContent::ZERO)),
            3 => (true, false),
            4 => (false, true),
            _ => return Err(ReadStop::Damaged),
        };
        let mut digest = Digest::default();
        digest.0.copy_from_slice(self.take(16)?);
        Ok(Some(BlockContent { digest, zero, record_like }))
    }

    fn policy(&mut self) -> Result<Option<Policy>, ReadStop> {
        match self.byte()?.checked_sub(1) {
            None => Ok(None),
            Some(code) => self.policy_of(code).map(Some),
        }
    }

    pub(super) fn policy_change(&mut self) -> Result<Option<Option<Policy>>, ReadStop> {
        match self.byte()? {
            0 => Ok(None),
            1 => Ok(Some(None)),
            code => self.policy_of(code - 2).map(|policy| Some(Some(policy))),
        }
    }

    /// Reads the rest of a policy with this number: a policy without a threshold ends here, others continue with it.
    fn policy_of(&mut self, code: u8) -> Result<Policy, ReadStop> {
        match Policy::decode(code, 0) {
            Some(policy) => Ok(policy),
            None => Policy::decode(code, self.byte()?).ok_or(ReadStop::Damaged),
        }
    }

    fn limits(&mut self) -> Result<Limits, ReadStop> {
        let flags;
        let mut limits = Limits {
            buffers: self.small()?,
            write_buffers: self.small()?,
            pages: self.small()?,
            index_entries: self.small()?,
            index_chunk: self.small()?,
            index_tag_bits: self.small()?,
            sharing_digest_bits: self.small()?,
            delta_entries: self.small()?,
            map_buffer: self.small()?,
            buffered_per_leaf: BUFFERED_PER_LEAF,
            read_ahead: self.small()?,
            discard_leaves: self.small()?,
            discards: self.small()?,
            requests: self.small()?,
            volumes: MAX_VOLUMES as u32,
            cache: CacheLimits {
                setting: match self.small()? {
                    0 => None,
                    code => Some(CacheSetting::decode(code).ok_or(ReadStop::Damaged)?),
                },
                interval: self.small()?,
                unit: self.small()?,
                sampled_one_in: self.small()?,
                hit_costs: [self.small()?, self.small()?],
            },
            device: DeviceTraits {
                is_rotational: {
                    flags = self.small()?;
                    flags & 1 == 1
                },
                gap_blocks: self.small()?,
                window_blocks: self.small()?,
                window_reads: self.small()?,
                reads_in_flight: self.small()?,
                sequential_blocks: self.small()?,
            },
        };
        if flags & !(1 | BUFFERED_LIMIT | VOLUMES_LIMIT) != 0 {
            return Err(ReadStop::Damaged);
        }
        if flags & BUFFERED_LIMIT != 0 {
            limits.buffered_per_leaf = self.small()?;
        }
        if flags & VOLUMES_LIMIT != 0 {
            limits.volumes = self.small()?;
        }
        Ok(limits)
    }

    /// Reads the header from its superblock on, and its checksum.
    fn header(&mut self) -> Result<(Header, u64), ReadStop> {
        let superblock = Superblock::decode(self.take(SUPERBLOCK_SIZE)?).map_err(|_| ReadStop::Damaged)?;
        let limits = self.limits()?;
        let (now, reads_only, has_owner) = (self.number()?, self.flag()?, self.flag()?);
        let nonce = self.take(16)?;
        let owner = has_owner.then(|| core::array::from_fn(|i| nonce[i]));
        let program = self.text()?;
        let sum = checksum(0, &self.bytes[..self.at]);
        if u64_at(self.take(8)?, 0) != sum {
            return Err(ReadStop::Damaged);
        }
        Ok((Header { program, parameters: superblock.parameters, limits, now, reads_only, owner }, sum))
    }
}
