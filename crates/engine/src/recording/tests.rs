use alloc::string::ToString;
use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::device::DeviceTraits;
use crate::format::geometry::Geometry;
use crate::format::superblock::{DigestFunction, SUPERBLOCK_SIZE, Superblock};
use crate::format::volume::MAX_VOLUMES;
use crate::limits::BUFFERED_PER_LEAF;

fn header() -> Header {
    let geometry = Geometry::for_capacity(1 << 30).unwrap();
    let parameters = Parameters::new(geometry, [7; 16], [0; 32], DigestFunction::Blake3);
    let limits = Limits::for_memory(128 << 20, &geometry).unwrap();
    Header { program: "1.2.3".to_string(), parameters, limits, now: 17, reads_only: true, owner: Some([3; 16]) }
}

/// The lists of a call, which it borrows.
#[derive(Clone, Debug)]
struct Lists {
    inputs: Vec<BlockInput>,
    contents: Vec<BlockContent>,
    bytes: Vec<u8>,
    text: String,
    extents: Vec<(u64, u64)>,
    volumes: Vec<VolumeId>,
}

fn content() -> impl Strategy<Value = BlockContent> {
    let digest = prop_oneof![Just([0; 16]), any::<[u8; 16]>()];
    (digest, 0..3).prop_map(|(digest, kind)| BlockContent {
        digest: Digest(digest),
        zero: kind == 1,
        record_like: kind == 2,
    })
}

fn lists() -> impl Strategy<Value = Lists> {
    let input = (any::<u32>(), proptest::option::of(content()));
    let input = input.prop_map(|(buffer, content)| BlockInput { buffer: BufferId(buffer), content });
    // Pages with zeroes at their end, without, and a part of one.
    let page = (0..3usize, any::<u8>()).prop_map(|(kept, byte)| {
        let mut page = vec![0; 4096];
        page[..[0, 100, 4096][kept]].fill(byte);
        page
    });
    let bytes = (proptest::collection::vec(page, 0..4), 0..4096usize).prop_map(|(pages, cut)| {
        let mut bytes = pages.concat();
        bytes.truncate(bytes.len().saturating_sub(cut));
        bytes
    });
    let inputs = proptest::collection::vec(input, 0..5);
    let contents = proptest::collection::vec(content(), 0..5);
    let extents = proptest::collection::vec(any::<(u64, u64)>(), 0..5);
    let volumes = proptest::collection::vec(any::<u16>().prop_map(VolumeId), 0..5);
    (inputs, contents, bytes, "[a-zä]{0,70}", extents, volumes).prop_map(
        |(inputs, contents, bytes, text, extents, volumes)| Lists { volumes, inputs, contents, bytes, text, extents },
    )
}

/// Makes the call of this number, with these numbers in it: each of the possible ones.
fn call(lists: &Lists, which: u8, [a, b, c, now]: [u64; 4], flag: bool) -> Call<'_> {
    let policy = match a % 5 {
        0 => None,
        1 => Some(Policy::Native),
        2 => Some(Policy::Full),
        3 => "select:7,request".parse().ok(),
        _ => "idedup:255".parse().ok(),
    };
    let changed = (b % 2 == 0).then_some(policy);
    let volume = VolumeId(a as u16);
    let submit = |operation| Event::Submit(Submit { token: b, volume, offset: a, length: c, fua: flag, operation });
    let done = |result| Event::Done { io: IoId(a as u32), result };
    let control = |command| Event::Control { token: c, command };
    let event = match which {
        0 => submit(Operation::Read { object: c }),
        1 => submit(Operation::Write(&lists.inputs)),
        2 => submit(Operation::WriteZeroes),
        3 => submit(Operation::Trim),
        4 => submit(Operation::Flush),
        5 => submit(Operation::Extents { limit: b as u32 }),
        6 => done(Ok(Outcome::Complete)),
        7 => done(Ok(Outcome::Blocks(&lists.contents))),
        8 => done(Ok(Outcome::Bytes(&lists.bytes))),
        9 => done(Ok(Outcome::Equal(flag))),
        10 => done(Err(if flag { IoError::NoSpace } else { IoError::Failed })),
        11 => Event::Sent(RequestId(b as u32)),
        12 => Event::Timer,
        13 => control(Command::CreateVolume { name: &lists.text, size: b, policy }),
        14 => control(Command::DeleteVolume { volume }),
        15 => control(Command::ResizeVolume { volume, size: b }),
        16 => control(Command::SetVolume {
            volume,
            change: VolumePropertyChange {
                read_only: (c % 2 == 0).then_some(flag),
                exclusive: (c % 3 == 0).then_some(!flag),
                timing: [None, Some(Timing::Inline), Some(Timing::Offline), Some(Timing::Hybrid)][a as usize % 4]
                    .map(Some),
                goal: flag.then(|| Goal::decode(c as u8 % 4, b).unwrap_or_default()),
                keep_runs: KeepRuns::ALL.get(b as usize % 4).copied(),
                controller: Controller::ALL.get(c as usize % 3).copied(),
                ..VolumePropertyChange { policy: changed, ..VolumePropertyChange::default() }
            },
        }),
        17 => control(Command::SetPool(PoolChange {
            memory: flag.then_some(c),
            second_copies: (!flag).then_some(c as u32),
            replicas: flag.then_some((c % 3 > 0).then_some(c)),
            index_copy: flag.then_some(IndexCopy::ALL[a as usize % 3]),
            defrag: (!flag)
                .then(|| [DefragSetting::Auto, DefragSetting::Off, DefragSetting::PerDay(1 << 20)][a as usize % 3]),
            dedup_verify: [Some(DedupVerify::Off), Some(DedupVerify::Both), Some(DedupVerify::Kept), None]
                [a as usize % 4],
            relocate: [None, Some(Schedule::Off), Some(Schedule::Auto), "22-06".parse().ok()][b as usize % 4],
            throttle: PassThrottle::ALL.get(c as usize % 4).copied(),
            flash_policy: [None, "budget".parse().ok(), "paper:delay=off".parse().ok()][b as usize % 3],
            cache_key: flag.then_some(CacheKey::ALL[b as usize % 3]),
            device: flag.then_some(DeviceKind::ALL[c as usize % 3]),
            cache: (c % 3 != 0).then(|| CacheSetting::decode(1 + (c % 3) as u32)),
            ..PoolChange { policy: changed, ..PoolChange::default() }
        })),
        18 => control(Command::Grow { capacity: a, metadata: b }),
        19 => control(Command::Settle),
        20 => control(Command::Close),
        21 => control(Command::CloseEarly),
        22 => return Call::TakeBuffer(flag.then_some(BufferId(a as u32))),
        23 => return Call::ReturnBuffer(BufferId(a as u32)),
        24 => {
            let buffered_per_leaf = [header().limits.buffered_per_leaf, c as u32][(c & 1) as usize];
            let device = DeviceTraits { is_rotational: c & 2 == 2, ..header().limits.device };
            let limits = Limits { buffers: a as u32, requests: b as u32, buffered_per_leaf, device, ..header().limits };
            return Call::SetLimits(limits);
        }
        25 => return Call::Effects { taken: a, drained: flag },
        26 => return Call::Unreturned(if flag { Unreturned::NextEffect } else { Unreturned::TakeBuffer }),
        27 => return Call::End([Ending::Closed, Ending::Full, Ending::Behind, Ending::Panicked][(a % 4) as usize]),
        28 => {
            let command = [ScrubCommand::Start, ScrubCommand::Pause, ScrubCommand::Stop][(a % 3) as usize];
            control(Command::Scrub { command, seconds: b })
        }
        29 => {
            let plan = RelocateCommand::Plan { begins: flag, extents: &lists.extents };
            let command = [plan, RelocateCommand::Start, RelocateCommand::Pause, RelocateCommand::Stop];
            control(Command::Relocate { command: command[(a % 4) as usize] })
        }
        30 => Event::FlashLate,
        31 => Event::GrowthOffered(flag),
        32 => control(Command::CreateSnapshots { volumes: &lists.volumes, name: &lists.text, seconds: b }),
        33 => control(Command::CloneSnapshot { snapshot: volume, name: &lists.text }),
        34 => control(Command::HoldSnapshot { snapshot: volume, held: flag }),
        35 => control(Command::RenameVolume { volume, name: &lists.text }),
        36 => control(Command::RollBack { volume, snapshot: VolumeId(b as u16) }),
        _ => unreachable!("there are no more"),
    };
    Call::Handle { now, event }
}

const CALLS: u8 = 37;

proptest! {
    #[test]
    fn every_call_reads_back_as_written(
        calls in proptest::collection::vec((lists(), 0..CALLS, any::<[u64; 4]>(), any::<bool>()), 1..40),
    ) {
        let mut recorder = Recorder::new(&header());
        for (lists, which, numbers, flag) in &calls {
            recorder.put(&call(lists, *which, *numbers, *flag));
            recorder.mark();
        }
        let (found, mut decoder, mut at) = decode_header(recorder.bytes()).ok().unwrap();
        prop_assert_eq!(found, header());
        for (lists, which, numbers, flag) in &calls {
            let Decoded::Call(length) = decoder.decode(&recorder.bytes()[at..]) else { panic!("a call") };
            prop_assert_eq!(decoder.call(), call(lists, *which, *numbers, *flag));
            at += length;
            let Decoded::Call(length) = decoder.decode(&recorder.bytes()[at..]) else { panic!("a mark") };
            prop_assert_eq!(decoder.call(), Call::TraceHash(0));
            at += length;
        }
        prop_assert_eq!(at, recorder.bytes().len());
        prop_assert_eq!(decoder.decode(&[]), Decoded::Incomplete);
    }

    #[test]
    fn whatever_is_read_is_a_call_or_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let recorder = Recorder::new(&header());
        let (_, mut decoder, _) = decode_header(recorder.bytes()).ok().unwrap();
        if let Decoded::Call(length) = decoder.decode(&bytes) {
            prop_assert!(length <= bytes.len());
        }
        let _ = decode_header(&bytes);
    }
}

/// Makes a recording with one call of each kind; returns it with the length of its header.
fn sample() -> (Recorder, usize) {
    let known = BlockContent { digest: Digest([9; 16]), zero: false, record_like: false };
    let input = BlockInput { buffer: BufferId(3), content: Some(known) };
    let (text, bytes) = ("vm".into(), vec![5; 4100]);
    let lists = Lists {
        inputs: vec![input; 3],
        contents: vec![known; 2],
        bytes,
        text,
        extents: Vec::new(),
        volumes: Vec::new(),
    };
    let mut recorder = Recorder::new(&header());
    let head = recorder.bytes().len();
    for which in 0..CALLS {
        recorder.put(&call(&lists, which, [1000, 2, 70_000, 99], which % 2 == 0));
    }
    recorder.mark();
    (recorder, head)
}

/// Reads a recording; returns the number of calls, and the result that stopped it.
fn read(bytes: &[u8]) -> (usize, Decoded) {
    let (_, mut decoder, mut at) = decode_header(bytes).ok().unwrap();
    let mut calls = 0;
    loop {
        match decoder.decode(&bytes[at..]) {
            Decoded::Call(length) => (calls, at) = (calls + 1, at + length),
            end => return (calls, end),
        }
    }
}

#[test]
fn a_recording_cut_at_any_byte_is_read_up_to_there() {
    let (recorder, head) = sample();
    let bytes = recorder.bytes();
    for cut in 0..head {
        assert_eq!(decode_header(&bytes[..cut]).err(), Some(BadHeader::Incomplete), "{cut}");
    }
    let mut before = 0;
    for cut in head..=bytes.len() {
        let (calls, end) = read(&bytes[..cut]);
        assert_eq!(end, Decoded::Incomplete, "{cut}");
        assert!(calls == before || calls == before + 1, "{cut}");
        before = calls;
    }
    assert_eq!(before, usize::from(CALLS) + 1);
}

#[test]
fn a_changed_byte_is_noticed_at_the_next_mark() {
    let (recorder, head) = sample();
    let whole = recorder.bytes().to_vec();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        if at < head {
            assert!(decode_header(&bytes).is_err(), "{at}");
        } else {
            // A length that has become greater may want more than there is.
            assert!(read(&bytes).0 <= usize::from(CALLS), "{at}");
        }
    }
}

/// Checks that a recording has all limits. Those that version 7 began without are at its end, so recordings without them are read.
#[test]
fn limits_read_back_as_written_and_unusual_ones_alone_take_bytes() {
    let usual = Recorder::new(&header()).bytes().len();
    for buffered_per_leaf in [BUFFERED_PER_LEAF, 7] {
        for volumes in [MAX_VOLUMES as u32, 40] {
            for device in [DeviceTraits::SSD, DeviceTraits { is_rotational: true, ..DeviceTraits::SSD }] {
                let limits = Limits { buffered_per_leaf, volumes, device, ..header().limits };
                let header = Header { limits, ..header() };
                let mut recorder = Recorder::new(&header);
                let head = recorder.bytes().len();
                let more = u32::from(buffered_per_leaf == 7) + u32::from(volumes == 40);
                assert_eq!(head, usual + more as usize);
                recorder.sets_limits(limits);
                let (found, mut decoder, at) = decode_header(recorder.bytes()).ok().unwrap();
                assert_eq!((found, at), (header, head));
                assert_eq!(decoder.decode(&recorder.bytes()[head..]), Decoded::Call(recorder.bytes().len() - head));
                assert_eq!(decoder.call(), Call::SetLimits(limits));
            }
        }
    }
}

#[test]
fn the_key_is_in_no_recording() {
    let key = [0xa7; 32];
    let parameters = header().parameters;
    let mut recorder = Recorder::new(&Header { parameters: Parameters { key, ..parameters }, ..header() });
    let mut block = vec![0; 4096];
    Superblock::new(Parameters { key, ..parameters }).encode(&mut block);
    recorder.mask.hide(parameters.geometry.block(), &mut block);
    assert_eq!(Superblock::decode(&block).unwrap().parameters, parameters);
    // Applies also to a damaged superblock; it stays damaged.
    Superblock::new(Parameters { key, ..parameters }).encode(&mut block);
    block[0] ^= 1;
    recorder.mask.hide(0, &mut block);
    assert!(Superblock::decode(&block).is_err());
    assert!(!block[..SUPERBLOCK_SIZE].windows(8).any(|bytes| bytes == &key[..8]));
    assert!(!recorder.bytes().windows(8).any(|bytes| bytes == &key[..8]));
}

#[test]
fn blocks_that_the_journal_carries_are_left_out() {
    let parameters = header().parameters;
    let geometry = &parameters.geometry;
    let start = geometry.journal_start();
    let head = crate::format::record::Header {
        pages: 2,
        blocks: 3,
        sequence: 1,
        epoch: 1,
        previous: 0,
        watermark: 0,
        entries: 150,
        position: 0,
    };
    // A record of two pages with three blocks, and one of one page behind it; no record follows.
    let mut bytes = vec![0xee; 9 * 4096];
    crate::format::record::encode(&head, &[], parameters.seed(), &mut bytes[..2 * 4096]);
    let next = crate::format::record::Header { pages: 1, blocks: 0, sequence: 2, entries: 1, position: 5, ..head };
    crate::format::record::encode(&next, &[], parameters.seed(), &mut bytes[5 * 4096..6 * 4096]);
    bytes[4096 + 100] = 0x55;
    let whole = bytes.clone();
    // In one read, and in reads of one block each.
    let mut mask = Mask::new(geometry);
    mask.hide(start * 4096, &mut bytes);
    let mut single = whole.clone();
    let mut mask = Mask::new(geometry);
    for (number, block) in single.chunks_mut(4096).enumerate() {
        mask.hide((start + number as u64) * 4096, block);
    }
    assert_eq!(bytes, single);
    for (number, block) in bytes.chunks(4096).enumerate() {
        let kept = matches!(number, 0 | 1 | 5);
        assert_eq!(block == &whole[number * 4096..(number + 1) * 4096], kept, "{number}");
        assert!(kept || block.iter().all(|&byte| byte == 0), "{number}");
    }
}

/// Checks that recordings of before are read, and that their bytes stay the same: changes of properties, of which none may move.
#[test]
fn changes_of_properties_have_the_bytes_of_version_7() {
    let lists = Lists {
        inputs: vec![],
        contents: vec![],
        bytes: vec![],
        text: String::new(),
        extents: vec![],
        volumes: vec![],
    };
    let mut recorder = Recorder::new(&header());
    let head = recorder.bytes().len();
    let mut seed = 1u64;
    for round in 0..4000 {
        let numbers = core::array::from_fn(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> (seed >> 58)
        });
        recorder.put(&call(&lists, 16 + (round % 2) as u8, numbers, seed >> 40 & 1 == 1));
    }
    let bytes = &recorder.bytes()[head..];
    assert_eq!((bytes.len(), checksum(0, bytes)), (110_815, 7_935_818_525_104_759_496));
}
