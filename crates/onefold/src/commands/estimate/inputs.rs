//! What is read: files, block devices, and directories with all that is below them.
//!
//! The walk opens everything once and notes how long it is and where it holds data; nothing is read by it. Then files
//! are read in the order of the walk (names in the order of their bytes, files before folders), in *windows*: the 1 MiB
//! at each multiple of 1 MiB of a file. Windows are numbered through all files, holes included; those that hold no data
//! are not visited.
//!
//! Files may change meanwhile. A file is never read beyond the length that the walk has found; what is gone reads as
//! zeroes.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use serde::Serialize;

use super::{BLOCK, WINDOW_BLOCKS};
use crate::io::input::open;
use crate::store::probe;

/// Bytes of a window.
const WINDOW: u64 = (WINDOW_BLOCKS * BLOCK) as u64;
/// How much of a file is looked at to name what it is.
const HEAD: usize = 4096;

/// A file or a block device.
pub struct Input {
    pub path: PathBuf,
    /// Its length in bytes, as the walk has found it.
    size: u64,
    /// The number of its first window.
    pub first_window: u64,
}

/// What could not be read, and why.
#[derive(Serialize, Clone, Debug)]
pub struct Unreadable {
    pub path: String,
    pub error: String,
}

impl Unreadable {
    pub fn new(path: &Path, error: &io::Error) -> Unreadable {
        Unreadable { path: path.display().to_string(), error: error.to_string() }
    }
}

/// Consecutive windows that are sampled as a whole, or not; only those that hold data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    pub number: u64,
    /// Its windows that hold data, and the blocks of these.
    pub windows: u64,
    pub blocks: u64,
}

/// All that there is to be read.
#[derive(Default)]
pub struct Inputs {
    pub files: Vec<Input>,
    pub unreadable: Vec<Unreadable>,
    /// What is said of paths that were named.
    pub notes: Vec<String>,
    /// In order.
    pub segments: Vec<Segment>,
    /// Bytes in files that are no holes.
    pub data_bytes: u64,
    windows: u64,
}

impl Inputs {
    /// Windows that hold data.
    pub fn windows(&self) -> u64 {
        self.segments.iter().map(|segment| segment.windows).sum()
    }

    /// Blocks of these windows.
    pub fn blocks(&self) -> u64 {
        self.segments.iter().map(|segment| segment.blocks).sum()
    }
}

/// How to look for files.
pub struct Walk<'a> {
    /// Also into file systems that are mounted below directories.
    pub cross_mounts: bool,
    /// Windows of a segment.
    pub segment_windows: u64,
    /// Ends the walk early.
    pub stop: &'a AtomicBool,
}

impl Walk<'_> {
    /// Finds everything at and below these paths, each file once.
    pub fn find(&self, paths: &[PathBuf]) -> anyhow::Result<Inputs> {
        let (mut inputs, mut seen) = (Inputs::default(), HashSet::new());
        for path in paths {
            let metadata = match std::fs::metadata(path) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    bail!("{} does not exist: name files, block devices or directories", path.display())
                }
                Err(error) => {
                    inputs.unreadable.push(Unreadable::new(path, &error));
                    continue;
                }
            };
            let kind = metadata.file_type();
            if kind.is_dir() {
                self.directory(path, metadata.dev(), &mut inputs, &mut seen);
            } else if kind.is_file() || kind.is_block_device() {
                self.file(path, &metadata, &mut inputs, &mut seen);
                inputs.notes.extend(note(path));
            } else {
                bail!("{} is no file, block device or directory: name one of these", path.display());
            }
        }
        if inputs.files.is_empty() {
            match inputs.unreadable.first() {
                Some(first) => {
                    bail!("nothing can be read: {}: {}; run as a user who may read it", first.path, first.error)
                }
                None => {
                    bail!("there are no files in what was named: name files, block devices or directories with files")
                }
            }
        }
        Ok(inputs)
    }

    fn directory(&self, path: &Path, device: u64, inputs: &mut Inputs, seen: &mut HashSet<(u64, u64)>) {
        let mut names = Vec::new();
        let listed = std::fs::read_dir(path).and_then(|entries| {
            for entry in entries {
                names.push(entry?.path());
            }
            Ok(())
        });
        if let Err(error) = listed {
            inputs.unreadable.push(Unreadable::new(path, &error));
        }
        names.sort();
        let mut folders = Vec::new();
        for name in names {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            match std::fs::symlink_metadata(&name) {
                Ok(metadata) if metadata.is_dir() => {
                    if self.cross_mounts || metadata.dev() == device {
                        folders.push((name, metadata));
                    }
                }
                Ok(metadata) if metadata.is_file() => self.file(&name, &metadata, inputs, seen),
                // Links, devices and sockets in a directory hold nothing of their own.
                Ok(_) => {}
                Err(error) => inputs.unreadable.push(Unreadable::new(&name, &error)),
            }
        }
        for (folder, metadata) in folders {
            if seen.insert((metadata.dev(), metadata.ino())) {
                self.directory(&folder, metadata.dev(), inputs, seen);
            }
        }
    }

    fn file(&self, path: &Path, metadata: &Metadata, inputs: &mut Inputs, seen: &mut HashSet<(u64, u64)>) {
        // Two names of one device are one device.
        let device = metadata.file_type().is_block_device();
        let identity = if device { (u64::MAX, metadata.rdev()) } else { (metadata.dev(), metadata.ino()) };
        if !seen.insert(identity) {
            return;
        }
        if let Err(error) = self.measure(path, inputs) {
            inputs.unreadable.push(Unreadable::new(path, &error));
        }
    }

    /// Notes how long a file is, and which of its windows hold data.
    fn measure(&self, path: &Path, inputs: &mut Inputs) -> io::Result<()> {
        let mut file = open(path)?;
        // The end of a block device is where its size is; of a file too.
        let size = file.seek(SeekFrom::End(0))?;
        let first_window = inputs.windows;
        let (mut last, mut data_bytes, mut windows) = (None, 0, Vec::new());
        pieces(&file, size, &mut |window, range| {
            data_bytes += range.end - range.start;
            if last != Some(window) {
                last = Some(window);
                windows.push((first_window + window, window_blocks(size, window) as u64));
                if windows.len() == 1 << 16 {
                    add_windows(&mut inputs.segments, self.segment_windows, &mut windows);
                }
            }
            Ok(!self.stop.load(Ordering::Relaxed))
        })?;
        add_windows(&mut inputs.segments, self.segment_windows, &mut windows);
        inputs.data_bytes += data_bytes;
        inputs.windows += size.div_ceil(WINDOW);
        inputs.files.push(Input { path: path.to_path_buf(), size, first_window });
        Ok(())
    }
}

fn add_windows(segments: &mut Vec<Segment>, segment_windows: u64, windows: &mut Vec<(u64, u64)>) {
    for (window, blocks) in windows.drain(..) {
        let number = window / segment_windows;
        match segments.last_mut() {
            Some(last) if last.number == number => {
                last.windows += 1;
                last.blocks += blocks;
            }
            _ => segments.push(Segment { number, windows: 1, blocks }),
        }
    }
}

/// What is worth saying of a path that was named: what is in it is taken as plain bytes.
fn note(path: &Path) -> Option<String> {
    let shown = path.display();
    if let Ok(Some(_)) = probe::id_without_lock(path) {
        return Some(format!(
            "{shown} is a Onefold pool: 'onefold status {shown}' has its figures. Here it is estimated as plain bytes, which it does \
             not hold twice"
        ));
    }
    let mut head = vec![0; HEAD];
    let length = open(path).and_then(|file| file.read_at(&mut head, 0)).ok()?;
    let name = probe::identify(&head[..length]).filter(|name| name.contains("disk image"))?;
    Some(format!(
        "{shown} is {name}: its bytes are estimated as they are. Make it raw to estimate what a guest would write"
    ))
}

/// Blocks of a window, up to the end of its file.
fn window_blocks(size: u64, window: u64) -> usize {
    (size - window * WINDOW).min(WINDOW).div_ceil(BLOCK as u64) as usize
}

/// Calls `visit` with each piece of data: the number of its window in the file, and its bytes. Ends early if it says
/// false.
fn pieces(file: &File, size: u64, visit: &mut dyn FnMut(u64, Range<u64>) -> io::Result<bool>) -> io::Result<()> {
    let mut at = 0;
    while let Some(data) = next_data(file, at, size)? {
        let mut start = data.start;
        while start < data.end {
            let window = start / WINDOW;
            let end = data.end.min((window + 1) * WINDOW);
            if !visit(window, start..end)? {
                return Ok(());
            }
            start = end;
        }
        at = data.end;
    }
    Ok(())
}

/// The next bytes at or after `offset` that are stored; all that is left where that cannot be found out.
fn next_data(file: &File, offset: u64, size: u64) -> io::Result<Option<Range<u64>>> {
    use rustix::fs::SeekFrom;
    use rustix::io::Errno;
    if offset >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(offset..size)),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
    Ok((start < end).then_some(start..end))
}

/// A window of a file that holds data.
pub struct Window<'a> {
    /// Its number through all files.
    pub number: u64,
    /// Whole blocks, up to the end of the file.
    pub bytes: &'a [u8],
    /// Which of the blocks are no holes.
    pub present: &'a [bool],
    /// Bytes that were stored.
    pub data_bytes: u64,
}

impl Input {
    /// Reads the windows for which `wanted` says so, in order. Ends early if `visit` says false.
    ///
    /// # Errors
    /// Of the first read that fails; what comes before it has been visited.
    pub fn read(&self, wanted: &dyn Fn(u64) -> bool, visit: &mut dyn FnMut(Window<'_>) -> bool) -> io::Result<()> {
        let file = open(&self.path)?;
        let mut held = Held { file: &file, input: self, window: None, bytes: Vec::new(), present: Vec::new(), data: 0 };
        let result = pieces(&file, self.size, &mut |window, range| {
            if !wanted(self.first_window + window) {
                return Ok(true);
            }
            if held.window != Some(window) && !held.begin(window, visit) {
                return Ok(false);
            }
            held.fill(window, range)?;
            Ok(true)
        });
        held.end(visit);
        result
    }
}

/// The window that is being read.
struct Held<'a> {
    file: &'a File,
    input: &'a Input,
    window: Option<u64>,
    bytes: Vec<u8>,
    present: Vec<bool>,
    data: u64,
}

impl Held<'_> {
    /// Hands out the window before, and begins another one; false if no more are wanted.
    fn begin(&mut self, window: u64, visit: &mut dyn FnMut(Window<'_>) -> bool) -> bool {
        let more = self.end(visit);
        let blocks = window_blocks(self.input.size, window);
        if more {
            self.window = Some(window);
            self.bytes.clear();
            self.bytes.resize(blocks * BLOCK, 0);
            self.present.clear();
            self.present.resize(blocks, false);
            self.data = 0;
        }
        more
    }

    /// Hands out the window.
    fn end(&mut self, visit: &mut dyn FnMut(Window<'_>) -> bool) -> bool {
        let Some(window) = self.window.take() else { return true };
        let number = self.input.first_window + window;
        visit(Window { number, bytes: &self.bytes, present: &self.present, data_bytes: self.data })
    }

    /// Reads the blocks that a piece of the window touches.
    fn fill(&mut self, window: u64, range: Range<u64>) -> io::Result<()> {
        let start = window * WINDOW;
        let (first, end) = ((range.start - start) as usize / BLOCK, ((range.end - start) as usize).div_ceil(BLOCK));
        // What is beyond the length that the walk found is not looked at.
        let limit = (end * BLOCK).min((self.input.size - start) as usize);
        let mut done = first * BLOCK;
        while done < limit {
            match self.file.read_at(&mut self.bytes[done..limit], start + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.present[first..end].fill(true);
        self.data += range.end - range.start;
        Ok(())
    }
}
