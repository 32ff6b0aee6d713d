//! The format of recordings: every call of the engine, with the driver's results, so that the same calls can be replayed elsewhere. The engine is a
//! pure function of these, so a replay takes the same course.
//!
//! ```text
//! header      signature, version, parameters, limits, time of opening, program; its checksum
//! calls       one after the other, a byte with its kind and its fields; numbers in seven bits a byte
//! hashes      every N calls: a hash of all effects so far, and a checksum of all bytes so far
//! end         why the recording ended; missing if the program was killed
//! ```
//!
//! It contains no payload, and no key of the digest function. Superblocks are recorded with a key of zeroes, and blocks inlined in the journal are
//! not kept ([`mask`]). It contains addresses, lengths, digests, names of volumes, and pages of metadata as they were read.
//!
//! A recording is read from its beginning: it contains no state of the engine other than by its calls.

mod mask;
mod properties;
mod read;
mod write;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::api::*;
use crate::engine::Engine;
use crate::format::bytes::checksum;
use crate::format::superblock::Parameters;
use crate::limits::Limits;
use mask::Mask;
pub use read::{BadHeader, Decoded, Decoder, decode_header};

/// First eight bytes of a recording.
pub const MAGIC: [u8; 8] = *b"ONEFREC\0";
/// Version of the format.
pub const VERSION: u16 = 7;
/// Calls between two trace hashes.
const HASH_PERIOD: u32 = 1024;

/// Beginning of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The version of the program that made it.
    pub program: String,
    /// Parameters of the pool. A recording has a key of zeroes.
    pub parameters: Parameters,
    /// The limits at opening.
    pub limits: Limits,
    /// The time of opening.
    pub now: Nanos,
    /// True if the pool was opened with [`Engine::open_to_read`].
    pub reads_only: bool,
    /// The nonce that the record of the owner must have ([`crate::Engine::set_owner`]).
    pub owner: Option<[u8; 16]>,
}

impl Header {
    /// Opens an engine in its state at the beginning of the recording.
    pub fn open(&self) -> Engine {
        let open = if self.reads_only { Engine::open_to_read } else { Engine::open };
        let mut engine = open(self.parameters, self.limits, self.now);
        if let Some(nonce) = self.owner {
            engine.pool.set_owner(nonce);
        }
        engine
    }
}

/// Entries of a recording, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call<'a> {
    /// [`Engine::handle`]. Recorded before it is called.
    Handle {
        /// The time.
        now: Nanos,
        /// The event.
        event: Event<'a>,
    },
    /// [`Engine::take_buffer`], with its result.
    TakeBuffer(Option<BufferId>),
    /// [`Engine::return_buffer`]. Recorded before it is called.
    ReturnBuffer(BufferId),
    /// [`Engine::set_limits`]. Recorded before it is called.
    SetLimits(Limits),
    /// Consecutive calls of [`Engine::next_effect`].
    Effects {
        /// Number of calls that returned an effect.
        taken: u64,
        /// True if the last one found no effect.
        drained: bool,
    },
    /// The hash of all effects so far ([`EffectHash`]); not a call.
    TraceHash(u64),
    /// A call that did not return.
    Unreturned(Unreturned),
    /// The end of the recording.
    End(Ending),
}

/// Calls without an answer, which would be part of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreturned {
    /// [`Engine::next_effect`].
    NextEffect,
    /// [`Engine::take_buffer`].
    TakeBuffer,
}

/// Reason why a recording ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The program came to its end.
    Closed,
    /// The recording had its greatest size.
    Full,
    /// It could not be written as fast as calls came.
    Behind,
    /// The program panicked: in the last call, or outside the engine.
    Panicked,
}

/// A hash of all effects so far, with everything that a driver can learn from them: the pages of writes, the segments of answers. A recording and its
/// replay have the same.
pub struct EffectHash {
    hash: u64,
    mask: Mask,
    scratch: Vec<u8>,
    page: Vec<u8>,
}

impl EffectHash {
    /// Makes the hash of no effects, for a pool with these parameters.
    pub fn new(parameters: &Parameters) -> EffectHash {
        EffectHash { hash: 0, mask: Mask::new(&parameters.geometry), scratch: Vec::new(), page: Vec::new() }
    }

    /// Returns the hash of all effects so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Takes an effect in, right after it was taken.
    pub fn add(&mut self, engine: &Engine, effect: Effect) {
        let out = &mut self.scratch;
        out.clear();
        match effect {
            Effect::Io(id) => {
                let io = engine.io(id);
                write::fields(out, &[u64::from(id.0), io.offset, io.length]);
                match io.op {
                    IoOp::ReadBlocks => out.push(1),
                    IoOp::ReadPages => out.push(2),
                    IoOp::Write => out.push(3),
                    IoOp::Sync => out.push(4),
                    IoOp::Reserve => out.push(5),
                    IoOp::Merge { from, to, zero } => {
                        write::fields(out, &[6, u64::from(from), u64::from(to), u64::from(zero)]);
                    }
                    IoOp::Compare => out.push(7),
                    IoOp::WriteDurable => out.push(8),
                    IoOp::Discard => out.push(9),
                }
                let mut offset = io.offset;
                for segment in &io.segments {
                    match *segment {
                        Segment::Buffer(buffer) => write::fields(out, &[1, u64::from(buffer.0)]),
                        Segment::Page(page) => {
                            let mut bytes = engine.page(page);
                            let length = bytes.len() as u64;
                            if self.mask.has_key(offset) {
                                self.page.clear();
                                self.page.extend_from_slice(bytes);
                                mask::hide_key(&mut self.page);
                                bytes = &self.page;
                            }
                            write::fields(out, &[2, u64::from(page.0), checksum(0, bytes)]);
                            offset += length;
                            continue;
                        }
                    }
                    offset += engine.pool.geometry().block();
                }
            }
            Effect::Reply { token, result } => {
                write::fields(out, &[u64::MAX, token]);
                match result {
                    Err(error) => write::fields(out, &[1, error as u64]),
                    Ok(Reply::Done) => out.push(2),
                    Ok(Reply::Data(request)) => {
                        write::fields(out, &[3, u64::from(request.0)]);
                        for segment in engine.data(request) {
                            let buffer = segment.buffer.map_or(0, |buffer| u64::from(buffer.0) + 1);
                            write::fields(out, &[buffer, u64::from(segment.from), u64::from(segment.to)]);
                        }
                    }
                    Ok(Reply::Extents(request)) => {
                        write::fields(out, &[4, u64::from(request.0)]);
                        for extent in engine.extents(request) {
                            write::fields(out, &[extent.length, u64::from(extent.hole)]);
                        }
                    }
                }
            }
            // They are few.
            Effect::ControlReply { .. } | Effect::Opened(_) => out.extend_from_slice(format!("{effect:?}").as_bytes()),
        }
        self.hash = checksum(self.hash, out);
    }
}

/// Recorder of calls: is told of every call, and has the bytes of the recording.
pub struct Recorder {
    out: Vec<u8>,
    effects: EffectHash,
    mask: Mask,
    block: usize,
    now: Nanos,
    /// Checksums of all bytes so far, and of those that were taken.
    sum: u64,
    taken_sum: u64,
    since_hash: u32,
    /// Effects that were taken since the last call.
    taken: u64,
    /// True if no call came since the engine had no effect: it has none now.
    drained: bool,
    page: Vec<u8>,
}

impl Recorder {
    /// Begins a recording. The key in [`Header::parameters`] is left out.
    pub fn new(header: &Header) -> Recorder {
        let mut out = Vec::new();
        let sum = write::header(&mut out, header);
        Recorder {
            out,
            effects: EffectHash::new(&header.parameters),
            mask: Mask::new(&header.parameters.geometry),
            block: header.parameters.geometry.block_size as usize,
            now: header.now,
            sum,
            taken_sum: sum,
            since_hash: 0,
            taken: 0,
            drained: false,
            page: Vec::new(),
        }
    }

    /// Returns the bytes that have to be written next.
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// Drops the bytes that have been taken.
    pub fn clear(&mut self) {
        self.out.clear();
        self.taken_sum = self.sum;
    }

    /// Writes an event to the recording, just before the call of [`Engine::handle`].
    pub fn event(&mut self, engine: &Engine, now: Nanos, event: Event<'_>) {
        if let Event::Done { io, result: Ok(Outcome::Bytes(bytes)) } = event {
            let mut page = core::mem::take(&mut self.page);
            page.clear();
            page.extend_from_slice(bytes);
            self.mask.hide(engine.io(io).offset, &mut page);
            self.call(&Call::Handle { now, event: Event::Done { io, result: Ok(Outcome::Bytes(&page)) } });
            self.page = page;
        } else {
            self.call(&Call::Handle { now, event });
        }
    }

    /// Writes a call of [`Engine::take_buffer`] to the recording, after it.
    pub fn took_buffer(&mut self, buffer: Option<BufferId>) {
        self.call(&Call::TakeBuffer(buffer));
    }

    /// Writes a call of [`Engine::return_buffer`] to the recording, just before it.
    pub fn returns_buffer(&mut self, buffer: BufferId) {
        self.call(&Call::ReturnBuffer(buffer));
    }

    /// Writes a call of [`Engine::set_limits`] to the recording, just before it.
    pub fn sets_limits(&mut self, limits: Limits) {
        self.call(&Call::SetLimits(limits));
    }

    /// Writes a call of [`Engine::next_effect`] to the recording, after it.
    pub fn effect(&mut self, engine: &Engine, effect: Option<Effect>) {
        match effect {
            Some(effect) => {
                self.effects.add(engine, effect);
                self.taken += 1;
                self.drained = false;
            }
            // Another call would change nothing.
            None if self.drained => {}
            None => {
                self.end_effects(true);
                self.drained = true;
            }
        }
    }

    /// Ends the recording when the program comes to its end.
    pub fn close(&mut self) {
        self.end_effects(false);
        self.mark();
        self.put(&Call::End(Ending::Closed));
    }

    /// Ends the recording when the program has panicked, perhaps in a call that has not returned.
    pub fn panicked(&mut self, unreturned: Option<Unreturned>) {
        self.end_effects(false);
        self.mark();
        if let Some(unreturned) = unreturned {
            self.put(&Call::Unreturned(unreturned));
        }
        self.put(&Call::End(Ending::Panicked));
    }

    /// Ends a recording that cannot continue: bytes that were not taken are not part of it.
    pub fn give_up(&mut self, ending: Ending) {
        self.out.clear();
        self.sum = self.taken_sum;
        self.put(&Call::End(ending));
    }

    fn call(&mut self, call: &Call<'_>) {
        self.end_effects(false);
        self.drained = false;
        self.put(call);
        self.count();
    }

    /// Writes the number of effects that were taken.
    fn end_effects(&mut self, drained: bool) {
        if self.taken > 0 || drained {
            let taken = core::mem::take(&mut self.taken);
            self.put(&Call::Effects { taken, drained });
            self.count();
        }
    }

    fn count(&mut self) {
        self.since_hash += 1;
        if self.since_hash >= HASH_PERIOD {
            self.mark();
        }
    }

    fn mark(&mut self) {
        // Effects that have been taken and are not yet written would be in the hash too early.
        assert_eq!(self.taken, 0);
        self.since_hash = 0;
        self.put(&Call::TraceHash(self.effects.hash()));
        self.out.extend_from_slice(&self.sum.to_le_bytes());
    }

    fn put(&mut self, call: &Call<'_>) {
        let start = self.out.len();
        write::call(&mut self.out, &mut self.now, self.block, call);
        self.sum = checksum(self.sum, &self.out[start..]);
    }
}

#[cfg(test)]
mod tests;
