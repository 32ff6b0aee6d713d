use std::collections::HashMap;
use std::io::Cursor;

use engine::recording::Recorder;
use engine::{
    BlockContent, BlockInput, BufferId, Command, Digest, Engine, IoId, IoOp, Operation, Policy, Reply, RequestId,
    Segment, Submit, VolumeId,
};

use super::*;
use crate::random::Random;
use crate::runs::config::Config;

/// A server with an engine, a store that never fails, and a recording. Payload is only digests.
struct Recorded {
    engine: Engine,
    recorder: Recorder,
    config: Config,
    now: Nanos,
    pages: HashMap<u64, Vec<u8>>,
    blocks: HashMap<u64, BlockContent>,
    buffers: HashMap<BufferId, BlockContent>,
    /// True while the driver reports wrong contents for blocks that it reads.
    lie: bool,
    sending: Vec<RequestId>,
    random: Random,
}

const ZERO: BlockContent = BlockContent::ZERO;

fn content(number: u64) -> BlockContent {
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    digest[8..].copy_from_slice(&number.to_le_bytes());
    BlockContent { digest: Digest(digest), zero: number == 0, record_like: number % 16 == 5 }
}

impl Recorded {
    fn open(seed: u64) -> Recorded {
        let config = Config::small(seed);
        let header = header(&config);
        let format = engine::format(config.parameters, engine::DeviceKind::Auto);
        let mut pages = HashMap::new();
        for (offset, bytes) in format.blocks {
            pages.insert(offset / config.parameters.geometry.block(), bytes);
        }
        let mut recorded = Recorded {
            engine: header.open(),
            recorder: Recorder::new(&header),
            config,
            now: 0,
            pages,
            blocks: HashMap::new(),
            buffers: HashMap::new(),
            lie: false,
            sending: Vec::new(),
            random: Random::new(seed),
        };
        recorded.drain();
        recorded.event(Event::Control {
            token: 1 << 40,
            command: Command::CreateVolume { name: "v", size: 64 * 512, policy: Some(Policy::Full) },
        });
        recorded.drain();
        recorded
    }

    fn event(&mut self, event: Event<'_>) {
        self.now += 1000;
        self.recorder.event(&self.engine, self.now, event);
        self.engine.handle(self.now, event);
    }

    fn drain(&mut self) {
        loop {
            let effect = self.engine.next_effect();
            self.recorder.effect(&self.engine, effect);
            match effect {
                None => return,
                Some(Effect::Io(io)) => self.perform(io),
                Some(Effect::Reply { result: Ok(Reply::Data(request) | Reply::Extents(request)), .. }) => {
                    self.sending.push(request);
                }
                Some(_) => {}
            }
        }
    }

    fn perform(&mut self, id: IoId) {
        let block = self.config.parameters.geometry.block();
        let io = self.engine.io(id).clone();
        let first = io.offset / block;
        let (mut contents, mut bytes) = (Vec::new(), Vec::new());
        for (at, segment) in (first..).zip(&io.segments) {
            match (io.op, *segment) {
                (IoOp::Write | IoOp::WriteDurable, Segment::Page(page)) => {
                    self.pages.insert(at, self.engine.page(page).to_vec());
                }
                (IoOp::Write | IoOp::WriteDurable, Segment::Buffer(buffer)) => {
                    self.blocks.insert(at, self.buffers[&buffer]);
                }
                (IoOp::ReadBlocks, Segment::Buffer(buffer)) => {
                    let mut content = self.blocks.get(&at).copied().unwrap_or(ZERO);
                    if self.lie {
                        content.digest.0[15] ^= 1;
                    }
                    self.buffers.insert(buffer, content);
                    contents.push(content);
                }
                _ => {}
            }
        }
        let outcome = match io.op {
            IoOp::Write | IoOp::WriteDurable | IoOp::Sync | IoOp::Reserve | IoOp::Discard => Outcome::Complete,
            IoOp::ReadBlocks => Outcome::Blocks(&contents),
            IoOp::ReadPages => {
                for at in first..first + io.length / block {
                    let page = self.pages.get(&at).cloned().unwrap_or_else(|| vec![0; block as usize]);
                    bytes.extend_from_slice(&page);
                }
                Outcome::Bytes(&bytes)
            }
            IoOp::Merge { .. } => {
                let Segment::Buffer(into) = io.segments[0] else { panic!("a buffer") };
                contents.push(content(self.random.between(1 << 20, 1 << 30)));
                self.buffers.insert(into, contents[0]);
                Outcome::Blocks(&contents)
            }
            IoOp::Compare => {
                let content = |segment: &Segment| match segment {
                    Segment::Buffer(buffer) => self.buffers[buffer],
                    Segment::Page(_) => panic!("a buffer"),
                };
                Outcome::Equal(content(&io.segments[0]) == content(&io.segments[1]))
            }
        };
        self.event(Event::Done { io: id, result: Ok(outcome) });
    }

    fn submit(&mut self, token: u64, offset: u64, length: u64, operation: Operation<'_>) {
        let volume = VolumeId(1);
        self.event(Event::Submit(Submit { token, volume, offset, length, fua: false, operation }));
    }

    /// Submits requests of all kinds, some of them together.
    fn load(&mut self, from: u64, count: u64) {
        for token in from..from + count {
            let first = self.random.below(60);
            let blocks = self.random.between(1, 4);
            match self.random.below(8) {
                0 => self.submit(token, first * 512, blocks * 512, Operation::Trim),
                1 => self.submit(token, first * 512 + 100, 300, Operation::WriteZeroes),
                2 => self.submit(token, 0, 0, Operation::Flush),
                3 => self.submit(token, 0, 64 * 512, Operation::Extents { limit: 8 }),
                4 | 5 => self.submit(token, first * 512, blocks * 512, Operation::Read { object: 0 }),
                kind => self.write(token, first, blocks, kind == 6 && blocks == 1),
            }
            if self.random.one_in(3) {
                self.drain();
                for request in std::mem::take(&mut self.sending) {
                    self.event(Event::Sent(request));
                }
                self.drain();
            }
            if self.engine.next_timer().is_some() && self.random.one_in(4) {
                self.now += 200_000_000;
                self.event(Event::Timer);
                self.drain();
            }
            while !self.engine.can_submit() {
                self.drain();
                for request in std::mem::take(&mut self.sending) {
                    self.event(Event::Sent(request));
                }
                // Long requests wait for their turns.
                if self.engine.next_timer().is_some_and(|due| due <= self.now) {
                    self.event(Event::Timer);
                }
            }
        }
        self.drain();
    }

    fn write(&mut self, token: u64, first: u64, blocks: u64, partial: bool) {
        let mut inputs = Vec::new();
        for _ in 0..blocks {
            let buffer = self.engine.take_buffer();
            self.recorder.took_buffer(buffer);
            let Some(buffer) = buffer else { break };
            let contents = self.random.pick(&[20, 400]);
            let known = content(self.random.below(contents));
            self.buffers.insert(buffer, known);
            inputs.push(BlockInput { buffer, content: (!partial).then_some(known) });
        }
        if inputs.len() < blocks as usize {
            for input in inputs {
                self.recorder.returns_buffer(input.buffer);
                self.engine.return_buffer(input.buffer);
            }
            return;
        }
        let (skip, length) = if partial { (50, 100) } else { (0, blocks * 512) };
        self.submit(token, first * 512 + skip, length, Operation::Write(&inputs));
    }

    fn close(mut self) -> Vec<u8> {
        self.recorder.close();
        self.recorder.bytes().to_vec()
    }
}

fn header(config: &Config) -> Header {
    let Config { parameters, limits, .. } = *config;
    Header { program: "test".into(), parameters, limits, now: 0, reads_only: false, owner: None }
}

fn again(bytes: &[u8]) -> Report {
    rerun(Cursor::new(bytes), Options::default()).unwrap().1
}

/// Returns the recording, with the writes changed after the engine has been told of them; the checksums of its marks are right.
fn changed(bytes: &[u8], mut change: impl FnMut(&mut [BlockInput])) -> Vec<u8> {
    let (mut calls, header) = Calls::open(Cursor::new(bytes)).unwrap();
    let mut engine = header.open();
    let mut recorder = Recorder::new(&header);
    while let Ok(Next::Call) = calls.next() {
        match calls.decoder.call() {
            Call::Handle { now, event } => {
                if let Event::Submit(submit) = event
                    && let Operation::Write(inputs) = submit.operation
                {
                    let mut inputs = inputs.to_vec();
                    change(&mut inputs);
                    let submit = Submit { operation: Operation::Write(&inputs), ..submit };
                    recorder.event(&engine, now, Event::Submit(submit));
                } else {
                    recorder.event(&engine, now, event);
                }
                engine.handle(now, event);
            }
            Call::TakeBuffer(_) => recorder.took_buffer(engine.take_buffer()),
            Call::ReturnBuffer(buffer) => {
                recorder.returns_buffer(buffer);
                engine.return_buffer(buffer);
            }
            Call::Effects { taken, drained } => {
                for _ in 0..taken + u64::from(drained) {
                    let effect = engine.next_effect();
                    recorder.effect(&engine, effect);
                }
            }
            Call::SetLimits(_) | Call::TraceHash(_) | Call::Unreturned(_) | Call::End(_) => {}
        }
    }
    recorder.close();
    recorder.bytes().to_vec()
}

#[test]
fn a_recording_runs_again_without_a_difference() {
    for seed in 0..40 {
        let mut recorded = Recorded::open(seed);
        recorded.load(0, 600);
        let report = again(&recorded.close());
        assert!(report.is_good(), "seed {seed}: {report:#?}");
        assert_eq!(report.ending, Some(Ending::Closed));
        assert!(report.requests >= 500 && report.checked > 100, "seed {seed}: {}", report.line());
    }
}

/// Makes a recording that is written while it grows, of a server whose limits change and whose clients return buffers.
fn in_pieces(take: bool) -> (Recorded, Vec<u8>) {
    let mut recorded = Recorded::open(6);
    let mut taken = Vec::new();
    for round in 0..10 {
        recorded.load(100 * round, 60);
        let mut limits = recorded.config.limits;
        limits.buffers -= round as u32;
        recorded.recorder.sets_limits(limits);
        recorded.engine.set_limits(limits);
        recorded.drain();
        let buffer = recorded.engine.take_buffer();
        recorded.recorder.took_buffer(buffer);
        recorded.recorder.returns_buffer(buffer.expect("nothing is in flight"));
        recorded.engine.return_buffer(buffer.expect("nothing is in flight"));
        if take {
            taken.extend_from_slice(recorded.recorder.bytes());
            recorded.recorder.clear();
        }
    }
    (recorded, taken)
}

#[test]
fn a_recording_that_is_taken_in_pieces_is_the_same() {
    let whole = in_pieces(false).0.close();
    let (recorded, mut pieces) = in_pieces(true);
    pieces.extend(recorded.close());
    assert_eq!(whole, pieces);
    let report = again(&whole);
    assert!(report.is_good() && report.ending == Some(Ending::Closed), "{report:#?}");
}

/// Checks a full file: calls that had not been written yet are left out.
#[test]
fn a_recording_that_is_given_up_ends_where_it_was_taken() {
    let (mut recorded, mut bytes) = in_pieces(true);
    let calls = again(&bytes).calls;
    recorded.load(2000, 100);
    recorded.recorder.give_up(Ending::Full);
    bytes.extend_from_slice(recorded.recorder.bytes());
    let report = again(&bytes);
    assert!(report.is_good() && report.ending == Some(Ending::Full), "{report:#?}");
    assert_eq!(report.calls, calls);
}

#[test]
fn a_recording_that_breaks_off_runs_up_to_there() {
    let mut recorded = Recorded::open(1);
    recorded.load(0, 100);
    let bytes = recorded.close();
    let whole = again(&bytes);
    for cut in (700..bytes.len()).step_by(97) {
        let report = again(&bytes[..cut]);
        assert!(report.is_good() && report.ending.is_none(), "{cut}: {report:#?}");
        assert!(report.calls <= whole.calls);
    }
    assert!(rerun(Cursor::new(&bytes[..100]), Options::default()).is_err());
    let until = rerun(Cursor::new(&bytes), Options { until: Some(50), trace_from: None }).unwrap().1;
    assert_eq!((until.calls, until.ending), (50, None));
}

#[test]
fn a_damaged_recording_is_used_up_to_the_damage() {
    let mut recorded = Recorded::open(2);
    recorded.load(0, 1500);
    let mut bytes = recorded.close();
    let at = bytes.len() - 2000;
    bytes[at] ^= 4;
    let report = again(&bytes);
    assert!(report.damaged.is_some_and(|call| call >= 1024), "{report:#?}");
    assert!(!report.is_good() && report.divergence.is_none() && report.violated == 0);
}

#[test]
fn a_changed_digest_is_a_divergence() {
    let mut recorded = Recorded::open(3);
    recorded.load(0, 400);
    let good = recorded.close();
    assert_eq!(changed(&good, |_| ()), good);
    let mut writes = 0;
    let bad = changed(&good, |inputs| {
        writes += 1;
        if let (20.., Some(known)) = (writes, &mut inputs[0].content) {
            known.digest.0[3] ^= 1;
            writes = i32::MIN;
        }
    });
    let report = again(&bad);
    assert!(report.divergence.is_some() && report.damaged.is_none(), "{report:#?}");
}

/// Checks that the oracle compares whole digests of a read; the engine compares only 24 bits.
#[test]
fn a_read_of_something_else_is_a_violation() {
    let mut recorded = Recorded::open(4);
    recorded.load(0, 300);
    recorded.lie = true;
    recorded.load(300, 300);
    let report = again(&recorded.close());
    assert!(report.divergence.is_none() && report.violated > 0, "{report:#?}");
    assert!(
        report.violations[0].contains("it must be [Data(") || report.violations[0].contains("it must be Data("),
        "{report:#?}"
    );
}

/// Checks a panic that only a bug of the server causes: it is found at its call.
#[test]
fn a_panic_is_said_with_its_call() {
    let mut recorded = Recorded::open(5);
    recorded.load(0, 50);
    let call = again(recorded.recorder.bytes()).calls;
    recorded.recorder.event(&recorded.engine, recorded.now, Event::Sent(RequestId(3)));
    recorded.recorder.panicked(None);
    let report = again(recorded.recorder.bytes());
    assert_eq!(report.violated, 1, "{report:#?}");
    assert!(report.violations[0].starts_with(&format!("at call {}: panic", call + 1)), "{report:#?}");
}
