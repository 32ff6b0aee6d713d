//! The encoder of recordings, the inverse of `read.rs`.

use alloc::vec::Vec;

use super::{Call, Ending, Header, MAGIC, Unreturned, VERSION, properties};
use crate::api::*;
use crate::device::DeviceTraits;
use crate::format::bytes::checksum;
use crate::format::superblock::{Parameters, SUPERBLOCK_SIZE, Superblock};
use crate::format::volume::MAX_VOLUMES;
use crate::icache::rule::CacheLimits;
use crate::limits::{BUFFERED_PER_LEAF, Limits};
use crate::properties::CacheSetting;

/// The byte for the kind of a call. Zero is none: a file may end with zeroes after a crash of the machine.
pub(super) mod tag {
    pub const SUBMIT: u8 = 1;
    pub const DONE: u8 = 2;
    pub const SENT: u8 = 3;
    pub const TIMER: u8 = 4;
    pub const CONTROL: u8 = 5;
    pub const TOOK: u8 = 6;
    pub const TOOK_NONE: u8 = 7;
    pub const RETURNED: u8 = 8;
    pub const LIMITS: u8 = 9;
    pub const EFFECTS: u8 = 10;
    pub const DRAINED: u8 = 11;
    pub const TRACE_HASH: u8 = 12;
    pub const UNRETURNED: u8 = 13;
    pub const END: u8 = 14;
    pub const FLASH_LATE: u8 = 15;
    pub const GROWTH_OFFERED: u8 = 16;
}

/// Writes a number, seven bits a byte, the lowest first.
pub(super) fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes several numbers, one after another.
pub(super) fn fields(out: &mut Vec<u8>, values: &[u64]) {
    for &value in values {
        number(out, value);
    }
}

/// Writes the difference between two numbers, with its sign in the lowest bit.
fn change(out: &mut Vec<u8>, from: u64, to: u64) {
    let change = to.wrapping_sub(from) as i64;
    number(out, ((change << 1) ^ (change >> 63)) as u64);
}

/// Writes the header to the empty `out`, and returns its checksum.
pub(super) fn header(out: &mut Vec<u8>, header: &Header) -> u64 {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    let mut superblock = [0; SUPERBLOCK_SIZE];
    Superblock::new(Parameters { key: [0; 32], ..header.parameters }).encode(&mut superblock);
    out.extend_from_slice(&superblock);
    limits(out, &header.limits);
    fields(out, &[header.now, u64::from(header.reads_only), u64::from(header.owner.is_some())]);
    out.extend_from_slice(&header.owner.unwrap_or_default());
    text(out, &header.program);
    let sum = checksum(0, out);
    out.extend_from_slice(&sum.to_le_bytes());
    sum
}

/// Writes a call. `now` is the time of the event before.
pub(super) fn call(out: &mut Vec<u8>, now: &mut Nanos, block: usize, call: &Call<'_>) {
    match *call {
        Call::Handle { now: time, event } => {
            out.push(match event {
                Event::Submit(_) => tag::SUBMIT,
                Event::Done { .. } => tag::DONE,
                Event::Sent(_) => tag::SENT,
                Event::Timer => tag::TIMER,
                Event::Control { .. } => tag::CONTROL,
                Event::FlashLate => tag::FLASH_LATE,
                Event::GrowthOffered(_) => tag::GROWTH_OFFERED,
            });
            change(out, core::mem::replace(now, time), time);
            match event {
                Event::Submit(submit) => request(out, &submit),
                Event::Done { io, result } => {
                    number(out, u64::from(io.0));
                    outcome(out, block, result);
                }
                Event::Sent(request) => number(out, u64::from(request.0)),
                Event::Timer | Event::FlashLate => {}
                Event::GrowthOffered(stands) => out.push(u8::from(stands)),
                Event::Control { token, command } => {
                    number(out, token);
                    control(out, command);
                }
            }
        }
        Call::TakeBuffer(Some(buffer)) => {
            out.push(tag::TOOK);
            number(out, u64::from(buffer.0));
        }
        Call::TakeBuffer(None) => out.push(tag::TOOK_NONE),
        Call::ReturnBuffer(buffer) => {
            out.push(tag::RETURNED);
            number(out, u64::from(buffer.0));
        }
        Call::SetLimits(value) => {
            out.push(tag::LIMITS);
            limits(out, &value);
        }
        Call::Effects { taken, drained } => {
            out.push(if drained { tag::DRAINED } else { tag::EFFECTS });
            number(out, taken);
        }
        Call::TraceHash(effects) => {
            out.push(tag::TRACE_HASH);
            out.extend_from_slice(&effects.to_le_bytes());
        }
        Call::Unreturned(unreturned) => {
            let which = match unreturned {
                Unreturned::NextEffect => 1,
                Unreturned::TakeBuffer => 2,
            };
            out.extend_from_slice(&[tag::UNRETURNED, which]);
        }
        Call::End(ending) => {
            let why = match ending {
                Ending::Closed => 1,
                Ending::Full => 2,
                Ending::Behind => 3,
                Ending::Panicked => 4,
            };
            out.extend_from_slice(&[tag::END, why]);
        }
    }
}

fn request(out: &mut Vec<u8>, submit: &Submit<'_>) {
    let Submit { token, volume, offset, length, fua, operation } = *submit;
    fields(out, &[token, u64::from(volume.0), offset, length]);
    let kind = match operation {
        Operation::Read { .. } => 1,
        Operation::Write(_) => 2,
        Operation::WriteZeroes => 3,
        Operation::Trim => 4,
        Operation::Flush => 5,
        Operation::Extents { .. } => 6,
    };
    out.push(kind << 1 | u8::from(fua));
    match operation {
        Operation::Read { object } => number(out, object),
        Operation::Write(inputs) => {
            number(out, inputs.len() as u64);
            let mut before = 0;
            for input in inputs {
                change(out, u64::from(before), u64::from(input.buffer.0));
                before = input.buffer.0;
                match &input.content {
                    None => out.push(0),
                    Some(known) => content(out, known),
                }
            }
        }
        Operation::WriteZeroes | Operation::Trim | Operation::Flush => {}
        Operation::Extents { limit } => number(out, u64::from(limit)),
    }
}

/// Writes a block's content. The digest of a zero block is not used, and mostly zero itself.
fn content(out: &mut Vec<u8>, content: &BlockContent) {
    match (content.zero, content.digest == Digest::default()) {
        (true, true) => return out.push(2),
        (true, false) => out.push(3),
        (false, _) => out.push(if content.record_like { 4 } else { 1 }),
    }
    out.extend_from_slice(&content.digest.0);
}

fn outcome(out: &mut Vec<u8>, block: usize, result: Result<Outcome<'_>, IoError>) {
    match result {
        Err(IoError::Failed) => out.push(0),
        Err(IoError::NoSpace) => out.push(1),
        Ok(Outcome::Complete) => out.push(2),
        Ok(Outcome::Equal(equal)) => out.push(3 + u8::from(equal)),
        Ok(Outcome::Blocks(contents)) => {
            out.push(5);
            number(out, contents.len() as u64);
            for known in contents {
                content(out, known);
            }
        }
        Ok(Outcome::Bytes(bytes)) => {
            out.push(6);
            number(out, bytes.len() as u64);
            // Pages are seldom full.
            for page in bytes.chunks(block) {
                let end = page.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                number(out, end as u64);
                out.extend_from_slice(&page[..end]);
            }
        }
    }
}

fn control(out: &mut Vec<u8>, command: Command<'_>) {
    match command {
        Command::CreateVolume { name, size, policy } => {
            out.push(1);
            text(out, name);
            number(out, size);
            put_policy(out, 1, policy);
        }
        Command::CreateSnapshots { volumes, name, seconds } => {
            out.push(13);
            text(out, name);
            fields(out, &[seconds, volumes.len() as u64]);
            volumes.iter().for_each(|volume| number(out, volume.0.into()));
        }
        Command::CloneSnapshot { snapshot, name } => {
            out.push(14);
            text(out, name);
            number(out, snapshot.0.into());
        }
        Command::HoldSnapshot { snapshot, held } => fields(out, &[16, u64::from(snapshot.0), u64::from(held)]),
        Command::RenameVolume { volume, name } => {
            out.push(17);
            text(out, name);
            number(out, volume.0.into());
        }
        Command::RollBack { volume, snapshot } => fields(out, &[15, volume.0.into(), snapshot.0.into()]),
        Command::DeleteVolume { volume } => fields(out, &[2, u64::from(volume.0)]),
        Command::ResizeVolume { volume, size } => fields(out, &[3, u64::from(volume.0), size]),
        Command::SetVolume { volume, change } => {
            fields(out, &[4, u64::from(volume.0)]);
            properties::put_of_volume(out, &change);
        }
        Command::SetPool(change) => {
            out.push(5);
            properties::put(out, &change);
        }
        Command::Grow { capacity, metadata } => fields(out, &[6, capacity, metadata]),
        Command::Settle => out.push(7),
        Command::Close => out.push(8),
        Command::CloseEarly => out.push(9),
        Command::Scrub { command, seconds } => {
            let code = match command {
                ScrubCommand::Start => 0,
                ScrubCommand::Pause => 1,
                ScrubCommand::Stop => 2,
            };
            fields(out, &[10, code, seconds]);
        }
        Command::Dedup { command } => {
            let code = match command {
                DedupCommand::Start => 0,
                DedupCommand::Pause => 1,
                DedupCommand::Stop => 2,
            };
            fields(out, &[11, code]);
        }
        Command::Relocate { command } => match command {
            RelocateCommand::Start => fields(out, &[12, 0]),
            RelocateCommand::Pause => fields(out, &[12, 1]),
            RelocateCommand::Stop => fields(out, &[12, 2]),
            RelocateCommand::Plan { begins, extents } => {
                fields(out, &[12, 3 + u64::from(begins), extents.len() as u64]);
                extents.iter().for_each(|&(slot, blocks)| fields(out, &[slot, blocks]));
            }
        },
    }
}

/// Writes a policy in a byte: `first` plus the policy's number, or the one before `first` for no policy. The threshold follows, if it has one.
fn put_policy(out: &mut Vec<u8>, first: u8, policy: Option<Policy>) {
    let Some(policy) = policy else { return out.push(first - 1) };
    let (code, threshold) = policy.encode();
    out.push(first + code);
    if threshold != 0 {
        out.push(threshold);
    }
}

pub(super) fn put_policy_change(out: &mut Vec<u8>, policy: Option<Option<Policy>>) {
    match policy {
        None => out.push(0),
        Some(policy) => put_policy(out, 2, policy),
    }
}

/// Bits beside the one of a rotational device: limits that version 7 began without follow at the end, in this order, each where it is not the usual one.
pub(super) const BUFFERED_LIMIT: u32 = 2;
pub(super) const VOLUMES_LIMIT: u32 = 4;

fn limits(out: &mut Vec<u8>, limits: &Limits) {
    let Limits {
        buffers,
        write_buffers,
        pages,
        index_entries,
        index_chunk,
        index_tag_bits,
        sharing_digest_bits,
        delta_entries,
        map_buffer,
        buffered_per_leaf,
        read_ahead,
        discard_leaves,
        discards,
        requests,
        volumes,
        cache: CacheLimits { setting, interval, unit, sampled_one_in, hit_costs: [index_hit, read_hit] },
        device:
            DeviceTraits { is_rotational, gap_blocks, window_blocks, window_reads, reads_in_flight, sequential_blocks },
    } = *limits;
    let more = [
        (BUFFERED_LIMIT, (buffered_per_leaf != BUFFERED_PER_LEAF).then_some(buffered_per_leaf)),
        (VOLUMES_LIMIT, (volumes != MAX_VOLUMES as u32).then_some(volumes)),
    ];
    let more_flags: u32 = more.iter().filter(|(_, value)| value.is_some()).map(|(flag, _)| flag).sum();
    let flags = u32::from(is_rotational) | more_flags;
    let setting = setting.map_or(0, CacheSetting::encode);
    let cache = [setting, interval, unit, sampled_one_in, index_hit, read_hit];
    let memory = [buffers, write_buffers, pages, index_entries, index_chunk, index_tag_bits, sharing_digest_bits];
    for value in memory
        .into_iter()
        .chain([delta_entries, map_buffer, read_ahead, discard_leaves, discards, requests])
        .chain(cache)
        .chain([flags, gap_blocks, window_blocks, window_reads, reads_in_flight, sequential_blocks])
        .chain(more.into_iter().filter_map(|(_, value)| value))
    {
        number(out, u64::from(value));
    }
}

pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}
