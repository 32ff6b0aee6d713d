//! Inputs of an estimate: files, block devices, and directories with all entries below them.
//!
//! An image of another format than raw is read as `onefold import` reads it, through qemu-nbd ([`Source::Image`]): its windows are of the disk that a guest
//! sees.
//!
//! The walk opens everything once and notes its length and the ranges with data; it reads no data. Then files are read in the order of the walk (names in the
//! order of their bytes, files before folders), in *windows*: the 1 MiB at each multiple of 1 MiB of a file. Windows are numbered through all files, holes
//! included; those that hold no data are not visited.
//!
//! Files may change meanwhile. A file is never read beyond the length that the walk has found; missing bytes read as zeroes.

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
use crate::commands::cli::Allow;
use crate::commands::images;
use crate::io::input::open;
use crate::store::probe;
use crate::transfer::disk::Disk;
use crate::transfer::format;
use crate::transfer::tool::Tool;

/// Bytes of a window.
const WINDOW: u64 = (WINDOW_BLOCKS * BLOCK) as u64;
/// Bytes at the beginning of a file that are read to identify its type.
const HEAD: usize = 4096;
/// Longest range of one query for the data of an image.
const LOOK_AHEAD: u64 = 1 << 31;
const RAW: &str = "raw";

/// A file or a block device.
pub struct Input {
    pub path: PathBuf,
    /// Its length in bytes, as the walk has found it.
    size: u64,
    /// Format in which it is read: `raw`, or that of an image.
    format: &'static str,
    /// The number of its first window.
    pub first_window: u64,
}

/// Path that could not be read, and the error.
#[derive(Serialize, Clone, Debug)]
pub struct Unreadable {
    pub path: String,
    pub error: String,
}

impl Unreadable {
    pub fn new(path: &Path, error: &impl std::fmt::Display) -> Unreadable {
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

/// Files to read, and the paths that could not be opened.
#[derive(Default)]
pub struct Inputs {
    pub files: Vec<Input>,
    pub unreadable: Vec<Unreadable>,
    /// Messages about paths that were named.
    pub notes: Vec<String>,
    /// Segments of the data, in order.
    pub segments: Vec<Segment>,
    /// Bytes in files that are no holes.
    pub data_bytes: u64,
    /// Images that are read as a guest sees them.
    pub images: u64,
    windows: u64,
}

impl Inputs {
    /// Returns the number of windows that hold data.
    pub fn windows(&self) -> u64 {
        self.segments.iter().map(|segment| segment.windows).sum()
    }

    /// Returns the number of blocks in the windows that hold data.
    pub fn blocks(&self) -> u64 {
        self.segments.iter().map(|segment| segment.blocks).sum()
    }
}

/// Options of the search for files.
pub struct Walk<'a> {
    /// Set to enter file systems that are mounted below directories.
    pub cross_mounts: bool,
    /// Windows of a segment.
    pub segment_windows: u64,
    /// Set to take images as plain bytes.
    pub as_bytes: bool,
    /// Images that are taken although they are not good.
    pub allow: &'a [Allow],
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
                // A named input is refused as an import refuses it; below directories it is left out.
                let format = self.format_of(path, format::of_content)?;
                self.file(path, &metadata, format, &mut inputs, &mut seen);
                inputs.notes.extend(note(path, format));
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
                    bail!("no files found: name files, block devices or directories with files")
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
                Ok(metadata) if metadata.is_file() => self.found(&name, &metadata, inputs, seen),
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

    /// Adds a file found below a directory; a packed file is taken as a file like others.
    fn found(&self, path: &Path, metadata: &Metadata, inputs: &mut Inputs, seen: &mut HashSet<(u64, u64)>) {
        match self.format_of(path, |path| Ok(format::of_content(path).unwrap_or(RAW))) {
            Ok(format) => self.file(path, metadata, format, inputs, seen),
            Err(error) => inputs.unreadable.push(Unreadable::new(path, &format_args!("{error:#}"))),
        }
    }

    /// Returns the format in which a file is read, `raw` for plain bytes; an image that an import refuses is an error.
    fn format_of(
        &self,
        path: &Path,
        detect: impl Fn(&Path) -> anyhow::Result<&'static str>,
    ) -> anyhow::Result<&'static str> {
        // The reader counts files that cannot be opened.
        let Ok(file) = open(path) else { return Ok(RAW) };
        let format = if self.as_bytes { RAW } else { detect(path)? };
        if format != RAW {
            images::require_good(path, &file, format, self.allow)?;
        }
        Ok(format)
    }

    fn file(
        &self,
        path: &Path,
        metadata: &Metadata,
        format: &'static str,
        inputs: &mut Inputs,
        seen: &mut HashSet<(u64, u64)>,
    ) {
        // Two names of one device are one device.
        let device = metadata.file_type().is_block_device();
        let identity = if device { (u64::MAX, metadata.rdev()) } else { (metadata.dev(), metadata.ino()) };
        if !seen.insert(identity) {
            return;
        }
        match self.measure(path, format, inputs) {
            Ok(()) => inputs.images += u64::from(format != RAW),
            Err(error) => inputs.unreadable.push(Unreadable::new(path, &error)),
        }
    }

    /// Notes how long a file is, and which of its windows hold data.
    fn measure(&self, path: &Path, format: &'static str, inputs: &mut Inputs) -> io::Result<()> {
        let mut source = Source::open(path, format)?;
        let size = source.size()?;
        let first_window = inputs.windows;
        let (mut last, mut data_bytes, mut windows) = (None, 0, Vec::new());
        pieces(&mut source, size, &mut |_, window, range| {
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
        inputs.files.push(Input { path: path.to_path_buf(), size, format, first_window });
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

/// Formats a note about a named path that is a pool, or an image taken as plain bytes; `None` for others.
fn note(path: &Path, format: &str) -> Option<String> {
    let shown = path.display();
    if let Ok(Some(_)) = probe::id_without_lock(path) {
        return Some(format!(
            "{shown} is a Onefold pool: 'onefold status {shown}' has its figures. Here it is estimated as plain bytes, which it does \
             not hold twice"
        ));
    }
    if format != RAW {
        return None;
    }
    let mut head = vec![0; HEAD];
    let length = open(path).and_then(|file| file.read_at(&mut head, 0)).ok()?;
    let name = probe::identify(&head[..length]).filter(|name| name.contains("disk image"))?;
    Some(format!(
        "{shown} is {name}: its bytes are estimated as they lie in the file. Without --format raw it is estimated as a guest sees it"
    ))
}

/// Returns the number of blocks of a window, up to the end of its file.
fn window_blocks(size: u64, window: u64) -> usize {
    (size - window * WINDOW).min(WINDOW).div_ceil(BLOCK as u64) as usize
}

/// Takes a piece of data: the number of its window in the file, and its bytes. False ends it.
type Visit<'a> = dyn FnMut(&mut Source, u64, Range<u64>) -> io::Result<bool> + 'a;

/// A file that is open, or an image that qemu-nbd serves.
enum Source {
    File(File),
    Image { disk: Disk, _tool: Tool },
}

impl Source {
    fn open(path: &Path, format: &str) -> io::Result<Source> {
        if format == RAW {
            return open(path).map(Source::File);
        }
        let tool = Tool::serve(path, format, false).map_err(failed)?;
        Ok(Source::Image { disk: tool.place().open(false).map_err(failed)?, _tool: tool })
    }

    fn size(&mut self) -> io::Result<u64> {
        match self {
            // The end of a block device is where its size is; of a file too.
            Source::File(file) => file.seek(SeekFrom::End(0)),
            Source::Image { disk, .. } => Ok(disk.size()),
        }
    }

    /// Finds the next bytes at or after `offset` that are stored; all that is left of a file whose file system cannot tell.
    fn next_data(&mut self, mut offset: u64, size: u64) -> io::Result<Option<Range<u64>>> {
        let disk = match self {
            Source::File(file) => return next_data(file, offset, size),
            Source::Image { disk, .. } => disk,
        };
        while offset < size {
            for extent in disk.extents(offset, LOOK_AHEAD.min(size - offset)).map_err(failed)? {
                if !extent.is_zero {
                    return Ok(Some(offset..size.min(offset + extent.length)));
                }
                offset = offset.saturating_add(extent.length);
            }
        }
        Ok(None)
    }

    /// Reads at an offset; 0 is the end.
    fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Source::File(file) => file.read_at(bytes, offset),
            Source::Image { disk, .. } => disk.read(offset, bytes).map_err(failed).map(|()| bytes.len()),
        }
    }
}

fn failed(error: anyhow::Error) -> io::Error {
    io::Error::other(format!("{error:#}"))
}

/// Calls `visit` with each piece of data, in order. Ends early if it says false.
fn pieces(source: &mut Source, size: u64, visit: &mut Visit<'_>) -> io::Result<()> {
    let mut at = 0;
    while let Some(data) = source.next_data(at, size)? {
        let mut start = data.start;
        while start < data.end {
            let window = start / WINDOW;
            let end = data.end.min((window + 1) * WINDOW);
            if !visit(source, window, start..end)? {
                return Ok(());
            }
            start = end;
        }
        at = data.end;
    }
    Ok(())
}

/// Finds the next bytes at or after `offset` that are stored; all that is left if the file system cannot tell.
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
    /// True for each block that is no hole.
    pub present: &'a [bool],
    /// Bytes that were stored.
    pub data_bytes: u64,
}

impl Input {
    /// Reads the windows for which `wanted` returns true, in order. Ends early if `visit` returns false.
    ///
    /// # Errors
    /// Returns the error of the first read that fails; the windows before it have been visited.
    pub fn read(&self, wanted: &dyn Fn(u64) -> bool, visit: &mut dyn FnMut(Window<'_>) -> bool) -> io::Result<()> {
        let mut source = Source::open(&self.path, self.format)?;
        let mut held = Held { input: self, window: None, bytes: Vec::new(), present: Vec::new(), data: 0 };
        let result = pieces(&mut source, self.size, &mut |source, window, range| {
            if !wanted(self.first_window + window) {
                return Ok(true);
            }
            if held.window != Some(window) && !held.begin(window, visit) {
                return Ok(false);
            }
            held.fill(source, window, range)?;
            Ok(true)
        });
        held.end(visit);
        result
    }
}

/// The window that is being read.
struct Held<'a> {
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
    fn fill(&mut self, source: &mut Source, window: u64, range: Range<u64>) -> io::Result<()> {
        let start = window * WINDOW;
        let (first, end) = ((range.start - start) as usize / BLOCK, ((range.end - start) as usize).div_ceil(BLOCK));
        // Bytes beyond the length that the walk found are not looked at.
        let limit = (end * BLOCK).min((self.input.size - start) as usize);
        let mut done = first * BLOCK;
        while done < limit {
            match source.read_at(&mut self.bytes[done..limit], start + done as u64) {
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
