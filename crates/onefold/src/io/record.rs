//! Recorder of the calls of the engine (`--record`): they go to a file, so that the simulator can replay them. The format is the engine's
//! ([`engine::recording`]).
//!
//! [`Recorded`] is the engine as the reactor has it: all changes of the engine go through here, and are recorded if a recording is made. The reactor only
//! appends to memory; a thread of its own writes the file, several times a second. Where that is too slow, or the file has its greatest size, the recording
//! ends and the server continues. When the program panics, the recording ends with the call that did not return; when it is killed, with the last written
//! bytes.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use engine::recording::{Ending, Header, MAGIC, Recorder, Unreturned};
use engine::relocation::profiling::Profiling;
use engine::{BufferId, Effect, Engine, Event, FlashParameters, Limits, Nanos};
use rustix::fs::{FlockOperation, flock};
use tracing::{info, warn};

use crate::io::input;
use crate::size;
use crate::store::replace::Replaceable;

/// Maximum of bytes that wait to be written; twice as much memory is taken, beside the memory that the pool is served with.
const PENDING_MAX: usize = 4 << 20;
/// Bytes that wake the writer.
const CHUNK: usize = 256 << 10;
/// Time after which recorded bytes are written, however few they are.
const PERIOD: Duration = Duration::from_millis(250);
/// Space for the end.
const END_BYTES: u64 = 64;
/// Minimum size of a recording.
pub const SIZE_MIN: u64 = 1 << 20;
/// Recordings of earlier starts that are kept.
const KEPT: u32 = 3;
/// Files that a recording may replace: recordings of earlier starts.
const RECORDING: Replaceable = Replaceable { begins: &MAGIC, what: "recording" };

/// Place and greatest size of a recording.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The file.
    pub path: PathBuf,
    /// Its greatest size in bytes.
    pub size: u64,
}

/// The engine, and the recording of its calls if one is made.
pub struct Recorded {
    engine: Engine,
    recording: Option<Box<Recording>>,
}

impl Deref for Recorded {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Recorded {
    /// Wraps an engine that has not been called yet.
    pub fn new(engine: Engine, recording: Option<Recording>) -> Recorded {
        Recorded { engine, recording: recording.map(Box::new) }
    }

    /// Calls [`Engine::handle`] and records the event before.
    pub fn handle(&mut self, now: Nanos, event: Event<'_>) {
        if let Some(recording) = in_progress(&mut self.recording) {
            recording.recorder.event(&self.engine, now, event);
            recording.hand_over();
        }
        self.engine.handle(now, event);
    }

    /// Calls [`Engine::next_effect`] and records the effect.
    pub fn next_effect(&mut self) -> Option<Effect> {
        let Some(recording) = in_progress(&mut self.recording) else { return self.engine.next_effect() };
        recording.unreturned = Some(Unreturned::NextEffect);
        let effect = self.engine.next_effect();
        recording.unreturned = None;
        recording.recorder.effect(&self.engine, effect);
        recording.hand_over();
        effect
    }

    /// Calls [`Engine::take_buffer`] and records the buffer.
    pub fn take_buffer(&mut self) -> Option<BufferId> {
        let Some(recording) = in_progress(&mut self.recording) else { return self.engine.take_buffer() };
        recording.unreturned = Some(Unreturned::TakeBuffer);
        let buffer = self.engine.take_buffer();
        recording.unreturned = None;
        recording.recorder.took_buffer(buffer);
        recording.hand_over();
        buffer
    }

    /// Calls [`Engine::return_buffer`] and records the buffer before.
    pub fn return_buffer(&mut self, buffer: BufferId) {
        if let Some(recording) = in_progress(&mut self.recording) {
            recording.recorder.returns_buffer(buffer);
            recording.hand_over();
        }
        self.engine.return_buffer(buffer);
    }

    /// Returns true while the engine's calls are being recorded. Recordings know no flash.
    pub fn is_recorded(&self) -> bool {
        self.recording.as_ref().is_some_and(|recording| !recording.ended)
    }

    /// Calls [`Engine::set_flash`], unrecorded.
    pub fn set_flash(&mut self, parameters: FlashParameters) {
        self.engine.set_flash(parameters);
    }

    /// Calls [`Engine::attach_flash`], unrecorded.
    pub fn attach_flash(&mut self, parameters: FlashParameters) -> bool {
        self.engine.attach_flash(parameters)
    }

    /// Calls [`Engine::detach_flash`], unrecorded.
    pub fn detach_flash(&mut self) -> bool {
        self.engine.detach_flash()
    }

    /// Calls [`Engine::set_limits`] and records the limits before.
    pub fn set_limits(&mut self, limits: Limits) {
        if let Some(recording) = in_progress(&mut self.recording) {
            recording.recorder.sets_limits(limits);
            recording.hand_over();
        }
        self.engine.set_limits(limits);
    }

    /// Calls [`Engine::set_profiling`], unrecorded: no action of the engine depends on it.
    pub fn set_profiling(&mut self, on: bool) {
        self.engine.set_profiling(on);
    }

    /// Calls [`Engine::put_profiling`], unrecorded: no action of the engine depends on it.
    pub fn put_profiling(&mut self, profiling: Box<Profiling>) {
        self.engine.put_profiling(profiling);
    }

    /// Calls [`Engine::profiling_mut`], unrecorded: no action of the engine depends on it.
    pub fn profiling_mut(&mut self) -> Option<&mut Profiling> {
        self.engine.profiling_mut()
    }
}

/// Returns the recording, unless there is none or it has ended.
fn in_progress(recording: &mut Option<Box<Recording>>) -> Option<&mut Recording> {
    recording.as_deref_mut().filter(|recording| !recording.ended)
}

/// A recording that is being made.
pub struct Recording {
    recorder: Recorder,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    path: PathBuf,
    /// Bytes that may still come.
    left: u64,
    /// The call of the engine that is in progress, where its answer is recorded.
    unreturned: Option<Unreturned>,
    ended: bool,
}

/// Between the reactor and the thread that writes.
#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    /// Signals that there is enough to write, or that there will be no more.
    more: Condvar,
}

#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    /// No more will come.
    ended: bool,
    /// The file cannot be written.
    failed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recording {
    /// Begins a recording: makes the file, and the thread that writes it.
    pub fn begin(wanted: &Wanted, header: &Header) -> anyhow::Result<Recording> {
        let Wanted { path, size } = wanted;
        ensure!(*size >= SIZE_MIN, "--record-size {size} is too little: at least {} are needed", size::show(SIZE_MIN));
        let mut recorder = Recorder::new(header);
        let begin = || -> anyhow::Result<File> {
            let mut file = make_file(path)?;
            // At once: a server that is killed in its first moments has been recorded, too.
            file.write_all(recorder.bytes())?;
            Ok(file)
        };
        let file = begin().with_context(|| format!("--record {}", path.display()))?;
        let left = (*size - END_BYTES).saturating_sub(recorder.bytes().len() as u64);
        recorder.clear();
        info!("recording to {}, up to {}", path.display(), size::show(*size));
        let shared = Arc::new(Shared::default());
        shared.lock().bytes.reserve_exact(PENDING_MAX + END_BYTES as usize);
        let writer = {
            let (shared, path) = (shared.clone(), path.clone());
            let work = move || write_out(&shared, file, &path);
            std::thread::Builder::new().name("recording".into()).spawn(work).context("cannot start a thread")?
        };
        Ok(Recording {
            recorder,
            shared,
            writer: Some(writer),
            path: path.clone(),
            left,
            unreturned: None,
            ended: false,
        })
    }

    /// Hands over the recorded bytes.
    fn hand_over(&mut self) {
        let bytes = self.recorder.bytes();
        if bytes.is_empty() {
            return;
        }
        let count = bytes.len() as u64;
        if count > self.left {
            let size = "it has its greatest size (--record-size)";
            return self.give_up(Ending::Full, size);
        }
        let mut pending = self.shared.lock();
        if pending.failed {
            self.ended = true;
        } else if pending.bytes.len() + bytes.len() > PENDING_MAX {
            drop(pending);
            self.give_up(Ending::Behind, "the file cannot be written as fast as requests come");
        } else {
            pending.bytes.extend_from_slice(bytes);
            let enough = pending.bytes.len() >= CHUNK && pending.bytes.len() - bytes.len() < CHUNK;
            drop(pending);
            if enough {
                self.shared.more.notify_one();
            }
            self.left -= count;
            self.recorder.clear();
        }
    }

    /// Ends the recording here; the server continues.
    fn give_up(&mut self, ending: Ending, why: &str) {
        warn!("the recording {} ends here: {why}. Later events are not recorded", self.path.display());
        self.recorder.give_up(ending);
        self.end();
    }

    /// Hands over the end.
    fn end(&mut self) {
        self.ended = true;
        let mut pending = self.shared.lock();
        pending.bytes.extend_from_slice(self.recorder.bytes());
        pending.ended = true;
        self.recorder.clear();
        self.shared.more.notify_one();
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.ended {
            if std::thread::panicking() {
                self.recorder.panicked(self.unreturned);
            } else {
                self.recorder.close();
            }
            self.end();
        }
        if let Some(writer) = self.writer.take() {
            // A panic of the writer has been reported.
            let _ = writer.join();
        }
    }
}

/// Writes handed-over bytes, until the end.
fn write_out(shared: &Shared, mut file: File, path: &Path) {
    let mut bytes = Vec::with_capacity(PENDING_MAX + END_BYTES as usize);
    loop {
        let mut pending = shared.lock();
        if pending.bytes.len() < CHUNK && !pending.ended {
            pending = shared.more.wait_timeout(pending, PERIOD).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::swap(&mut pending.bytes, &mut bytes);
        let ended = pending.ended;
        drop(pending);
        if let Err(error) = file.write_all(&bytes) {
            warn!("the recording {} ends here: {error}. Later events are not recorded", path.display());
            shared.lock().failed = true;
            return;
        }
        bytes.clear();
        if ended {
            return;
        }
    }
}

/// Makes the file. Its earlier contents, the recording of an earlier start, are kept under another name: a server that is started again after a failure must
/// not overwrite the record of that failure.
fn make_file(path: &Path) -> anyhow::Result<File> {
    // A pipe would be waited for.
    let is_file = std::fs::metadata(path).map_or(true, |found| found.is_file());
    ensure!(is_file, "it is no regular file: name another one");
    match input::open(path) {
        Ok(earlier) => {
            ensure!(is_recording(&earlier)?, "the file holds something else than a recording: name another one");
            if flock(&earlier, FlockOperation::NonBlockingLockExclusive).is_err() {
                bail!("another server is recording to it: name another file");
            }
            for number in 1..=KEPT {
                RECORDING.check(&numbered(path, number))?;
            }
            for number in (1..KEPT).rev() {
                rename(&numbered(path, number), &numbered(path, number + 1))?;
            }
            rename(path, &numbered(path, 1))?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).context("cannot be read"),
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).context("cannot be made")?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).context("cannot be locked")?;
    Ok(file)
}

/// Returns true if a regular file begins as a recording, or is empty.
fn is_recording(file: &File) -> anyhow::Result<bool> {
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    let mut signature = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut signature)?;
    Ok(MAGIC.starts_with(&signature))
}

/// Returns the name under which an earlier recording is kept: `path` with `.number` appended.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn rename(from: &Path, to: &Path) -> anyhow::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::recording::{Call, Decoded, decode_header};
    use engine::{DigestFunction, Geometry, Parameters, RequestId};

    fn header() -> Header {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        let parameters = Parameters::new(geometry, [1; 16], [2; 32], DigestFunction::Aegis128X2);
        let limits = Limits::for_memory(64 << 20, &geometry).unwrap();
        Header { program: "test".into(), parameters, limits, now: 0, reads_only: false, owner: None }
    }

    /// Counts the calls of a recording, without marks, and shows the last two.
    fn last_calls(bytes: &[u8]) -> (usize, String, String) {
        let (_, mut decoder, mut at) = decode_header(bytes).ok().unwrap();
        let (mut count, mut before, mut last) = (0, String::new(), String::new());
        while let Decoded::Call(length) = decoder.decode(&bytes[at..]) {
            at += length;
            if !matches!(decoder.call(), Call::TraceHash(_)) {
                (before, last) = (last, format!("{:?}", decoder.call()));
                count += 1;
            }
        }
        assert_eq!(at, bytes.len());
        (count, before, last)
    }

    #[test]
    fn a_panic_of_the_engine_is_the_end_of_the_recording() {
        let folder = std::env::temp_dir().join(format!("onefold-record-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let wanted = Wanted { path: folder.join("calls"), size: SIZE_MIN };
        for _ in 0..2 {
            let recording = Recording::begin(&wanted, &header()).unwrap();
            let mut recorded = Recorded::new(header().open(), Some(recording));
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                while recorded.next_effect().is_some() {}
                // No request has been sent: only a bug of ours can say so.
                recorded.handle(5, Event::Sent(RequestId(7)));
            }));
            assert!(panic.is_err());
        }
        for name in ["calls", "calls.1"] {
            let (_, before, last) = last_calls(&std::fs::read(folder.join(name)).unwrap());
            assert_eq!(before, "Handle { now: 5, event: Sent(RequestId(7)) }");
            assert_eq!(last, "End(Panicked)");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Tests a hanging disk under the recording: requests must not wait for it, and memory must not grow.
    #[test]
    fn what_waits_to_be_written_is_bounded() {
        let shared = Arc::new(Shared::default());
        let recording = Recording {
            recorder: Recorder::new(&header()),
            shared: shared.clone(),
            writer: None,
            path: PathBuf::from("calls"),
            left: 1 << 30,
            unreturned: None,
            ended: false,
        };
        let mut recorded = Recorded::new(header().open(), Some(recording));
        let calls = 3 * PENDING_MAX / 2;
        for now in 0..calls {
            recorded.handle(now as u64, Event::Timer);
        }
        let bytes = std::mem::take(&mut shared.lock().bytes);
        assert!(bytes.len() <= PENDING_MAX + END_BYTES as usize && bytes.len() > PENDING_MAX - 64);
        let (count, _, last) = last_calls(&bytes);
        assert!(count < calls);
        assert_eq!(last, "End(Behind)");
    }
}
