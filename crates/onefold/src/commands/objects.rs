//! `onefold objects import`: the map from blocks of a volume to files of its guest, for the profile of device reads (docs/papers/rededup.md).
//!
//! Two formats of text are understood, and told apart by their lines:
//!
//! - output of `filefrag -v FILES...` in the guest (e2fsprogs; any file system that has FIEMAP);
//! - lines of `OFFSET LENGTH NAME`, in bytes of the volume.
//!
//! A block that several files share, as small files may, belongs to the file in which it begins.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};

use crate::commands::cli::{ObjectsCommand, Target};
use crate::commands::relocate::ask;
use crate::operators::control::NOT_UNDERSTOOD;
use crate::operators::relocate::{Answer, Ask};
use crate::print::print;

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Size of the longest line, in bytes.
const LINE_MAX: u64 = 16 << 10;
/// Number of parts that are sent at once.
const PARTS_AT_ONCE: usize = 500;
/// Bytes of names that are sent at once, not counting the last name.
const BYTES_AT_ONCE: usize = 8 << 10;
/// Extents of files whose place `filefrag` does not know, or that lie in no blocks of their own.
const WITHOUT_PLACE: [&str; 4] = ["inline", "delalloc", "unknown_loc", "tail_merged"];

/// An extent of a file, in bytes of the volume.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Extent {
    name: String,
    start: u64,
    bytes: u64,
}

impl Extent {
    /// Iterates over the blocks that begin in the extent, in parts of at most `u32::MAX` blocks: first block and number.
    fn parts(&self) -> impl Iterator<Item = (u64, u32)> {
        let (first, end) = (self.start.div_ceil(BLOCK), self.start.saturating_add(self.bytes).div_ceil(BLOCK));
        let most = u64::from(u32::MAX);
        (first..end).step_by(most as usize).map(move |block| (block, (end - block).min(most) as u32))
    }
}

/// Reader of a manifest, with its position.
struct Manifest<Lines> {
    lines: Lines,
    shown: String,
    number: u64,
    /// Byte offset in the volume at which the file system begins.
    offset: u64,
    /// The file that `filefrag` tells of, and the bytes of its blocks.
    file: Option<(String, u64)>,
}

impl<Lines: BufRead> Manifest<Lines> {
    /// Reads the next extent; `None` at the end.
    fn next(&mut self) -> anyhow::Result<Option<Extent>> {
        let mut line = Vec::new();
        loop {
            line.clear();
            self.number += 1;
            let read = (&mut self.lines).take(LINE_MAX + 1).read_until(b'\n', &mut line);
            let read = read.with_context(|| format!("cannot read {}", self.shown))?;
            if read == 0 {
                return Ok(None);
            }
            let place = format!("{}, line {}", self.shown, self.number);
            ensure!(read as u64 <= LINE_MAX, "{place}: it is longer than {LINE_MAX} bytes");
            let text = String::from_utf8_lossy(&line);
            if let Some(extent) = self.take(text.trim_end_matches(['\n', '\r'])).with_context(|| place)? {
                return Ok(Some(extent));
            }
        }
    }

    fn take(&mut self, line: &str) -> anyhow::Result<Option<Extent>> {
        if line.trim().is_empty() || line.starts_with('#') || line.starts_with("Filesystem type is") {
            return Ok(None);
        }
        if let Some(rest) = line.strip_prefix("File size of ") {
            let (name, size) = rest.rsplit_once(" is ").context("a file without its size")?;
            let block = size.rsplit_once(" of ").and_then(|(_, block)| block.split(' ').next()?.parse().ok());
            self.file =
                Some((name.into(), block.filter(|&block| block > 0).context("a file without the size of its blocks")?));
            return Ok(None);
        }
        match &self.file {
            Some((name, block)) => extent_of_filefrag(line, name, *block, self.offset),
            None => extent_of_bytes(line, self.offset).map(Some),
        }
    }
}

/// Parses a line of `filefrag` behind the one with a file's name: an extent, or `None` for a line between extents or an extent without a place.
fn extent_of_filefrag(line: &str, name: &str, block: u64, offset: u64) -> anyhow::Result<Option<Extent>> {
    let fields: Vec<_> = line.split(':').map(str::trim).collect();
    let is_extent = fields.first().is_some_and(|first| first.parse::<u64>().is_ok()) && fields.len() >= 4;
    if !is_extent {
        let is_between = line.trim_start().starts_with("ext:") || line.ends_with(" found");
        ensure!(is_between, "it is no line of 'filefrag -v'");
        return Ok(None);
    }
    if fields.last().is_some_and(|flags| flags.split(',').any(|flag| WITHOUT_PLACE.contains(&flag))) {
        return Ok(None);
    }
    let number = |text: &str| text.parse::<u64>().ok();
    let first = fields[2].split("..").next().and_then(number).context("an extent without its physical offset")?;
    let blocks = number(fields[3]).context("an extent without its length")?;
    let in_bytes = |blocks: u64| blocks.checked_mul(block).context("an extent beyond all disks");
    let start = in_bytes(first)?.checked_add(offset).context("an extent beyond all disks")?;
    Ok(Some(Extent { name: name.into(), start, bytes: in_bytes(blocks)? }))
}

/// Parses a line of `OFFSET LENGTH NAME`, in bytes from the beginning of the file system.
fn extent_of_bytes(line: &str, offset: u64) -> anyhow::Result<Extent> {
    let (start, rest) = line.trim_start().split_once(char::is_whitespace).context("OFFSET LENGTH NAME is wanted")?;
    let (bytes, name) = rest.trim_start().split_once(char::is_whitespace).context("OFFSET LENGTH NAME is wanted")?;
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("{text:?} is no number of bytes"));
    let start = number(start)?.checked_add(offset).context("an extent beyond all disks")?;
    Ok(Extent { name: name.trim().into(), start, bytes: number(bytes)? })
}

/// Carries the command out.
pub fn objects(command: &ObjectsCommand) -> anyhow::Result<ExitCode> {
    let ObjectsCommand::Import { target, volume, file, offset } = command;
    let (lines, shown): (Box<dyn BufRead>, _) = match file.as_os_str() == "-" {
        true => (Box::new(std::io::stdin().lock()), "the input".into()),
        false => (Box::new(BufReader::new(open(file)?)), file.display().to_string()),
    };
    let manifest = Manifest { lines, shown: shown.clone(), number: 0, offset: offset.unwrap_or(0), file: None };
    let (taken, left_out) = send(target, volume, manifest)?;
    if taken == 0 {
        bail!("{shown} names no blocks of the volume '{volume}'");
    }
    print(format_args!(
        "{taken} parts of '{volume}' belong to files now; {left_out} were left out: another file has their blocks\n"
    ));
    Ok(ExitCode::SUCCESS)
}

fn open(file: &Path) -> anyhow::Result<File> {
    File::open(file).with_context(|| format!("cannot open {}", file.display()))
}

/// Sends all extents, some at a time; returns the numbers of parts that were taken and left out.
fn send(target: &Target, volume: &str, mut manifest: Manifest<impl BufRead>) -> anyhow::Result<(u64, u64)> {
    let (mut begins, mut is_over, mut taken, mut left_out) = (true, false, 0, 0);
    while !is_over {
        let mut objects: Vec<(String, Vec<(u64, u32)>)> = Vec::new();
        let (mut parts, mut bytes) = (0, 0);
        while parts < PARTS_AT_ONCE && bytes < BYTES_AT_ONCE {
            let Some(extent) = manifest.next()? else {
                is_over = true;
                break;
            };
            if objects.last().is_none_or(|(last, _)| *last != extent.name) {
                bytes += extent.name.len();
                objects.push((extent.name.clone(), Vec::new()));
            }
            if let Some((_, of)) = objects.last_mut() {
                of.extend(extent.parts());
                parts += 1;
            }
        }
        if objects.is_empty() {
            // A manifest of nothing leaves the last one as it was.
            break;
        }
        let import = Ask::Import { volume: volume.into(), begins, objects };
        match ask(target, import)? {
            Answer::Imported { taken: some, left_out: others } => (taken, left_out) = (taken + some, left_out + others),
            _ => bail!(NOT_UNDERSTOOD),
        }
        begins = false;
    }
    Ok((taken, left_out))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILEFRAG: &str = "Filesystem type is: ef53
File size of /etc/a is b is 9000 (3 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..       1:      34816..     34817:      2:
   1:        2..       2:      40000..     40000:      1:      34818: last,eof
/etc/a is b: 2 extents found
File size of /etc/tiny is 20 (1 block of 1024 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..       0:          6..         6:      1:             last,eof
/etc/tiny: 1 extent found
File size of /etc/inline is 20 (1 block of 4096 bytes)
   0:        0..    4095:          0..         0:      0:             last,not_aligned,inline,eof
/etc/inline: 1 extent found
";

    fn all(text: &[u8], offset: u64) -> anyhow::Result<Vec<Extent>> {
        let mut manifest = Manifest { lines: text, shown: "m".into(), number: 0, offset, file: None };
        let mut found = Vec::new();
        while let Some(extent) = manifest.next()? {
            found.push(extent);
        }
        Ok(found)
    }

    fn extent(name: &str, start: u64, bytes: u64) -> Extent {
        Extent { name: name.into(), start, bytes }
    }

    #[test]
    fn both_formats_are_read() {
        let expected = [
            extent("/etc/a is b", (34816 << 12) + 512, 8192),
            extent("/etc/a is b", (40000 << 12) + 512, 4096),
            extent("/etc/tiny", 6 * 1024 + 512, 1024),
        ];
        assert_eq!(all(FILEFRAG.as_bytes(), 512).unwrap(), expected);
        let plain = b"# a comment\n0 4096 /boot/a b\n\n  8192   1  c\r\n";
        assert_eq!(all(plain, 0).unwrap(), [extent("/boot/a b", 0, 4096), extent("c", 8192, 1)]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, wrong) in [
            ("0 4096 a\n0 x b\n", "m, line 2"),
            ("0 4096\n", "m, line 1"),
            ("18446744073709551615 1 a\n", "m, line 1"),
            ("File size of a is 3\n", "m, line 1"),
            ("File size of a is 3 (1 block of 0 bytes)\n", "m, line 1"),
            ("File size of a is 3 (1 block of 4096 bytes)\nnonsense\n", "m, line 2"),
            ("File size of a is 3 (1 block of 4096 bytes)\n0: 0..0: 9999999999999999..1: 9: eof\n", "m, line 2"),
        ] {
            let error = format!("{:#}", all(text.as_bytes(), 1).unwrap_err());
            assert!(error.contains(wrong), "{text:?}: {error}");
        }
        assert!(all(&[b'1'; 20000], 0).is_err());
    }

    #[test]
    fn a_block_belongs_to_what_begins_in_it() {
        let parts = |start, bytes| extent("", start, bytes).parts().collect::<Vec<_>>();
        assert_eq!((parts(0, 1), parts(1, 4095), parts(1, 4096)), (vec![(0, 1)], vec![], vec![(1, 1)]));
        assert_eq!(parts(8192, 3 * 4096), [(2, 3)]);
        assert_eq!(parts(u64::MAX, u64::MAX), []);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(lines in prop::collection::vec("(File size of |[0-9]{0,20}[:. ]{0,3}|[a-z() ]{0,9}|4096 bytes\\)){0,8}", 0..9)) {
            if let Ok(found) = all(lines.join("\n").as_bytes(), 7) {
                prop_assert!(found.iter().all(|extent| extent.parts().take(3).count() <= 3));
            }
        }
    }
}
