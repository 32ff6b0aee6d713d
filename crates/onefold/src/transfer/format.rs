//! Format of an image: by its first bytes where it is read, by its name where it is made.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, bail};

use crate::io::input;

/// Formats that qemu-nbd reads and writes, under its names; an image of no other format is raw.
pub const FORMATS: [&str; 8] = ["raw", "qcow2", "vmdk", "vdi", "vhdx", "vpc", "qed", "parallels"];
/// Formats that an export makes.
pub const MADE: [&str; 5] = ["raw", "qcow2", "vmdk", "vdi", "vhdx"];

/// Marks, and where they stand.
const MARKS: [(u64, &[u8], &str); 10] = [
    (0, b"QFI\xfb", "qcow2"),
    (0, b"KDMV", "vmdk"),
    (0, b"COWD", "vmdk"),
    (0, b"# Disk DescriptorFile", "vmdk"),
    (0, b"vhdxfile", "vhdx"),
    (0, b"conectix", "vpc"),
    (0, b"QED\0", "qed"),
    (0, b"WithoutFreeSpace", "parallels"),
    (0, b"WithouFreSpacExt", "parallels"),
    (64, b"\x7f\x10\xda\xbe", "vdi"),
];

/// Marks of the last sector, which is no part of the disk.
const FOOTERS: [(&[u8], &str); 2] = [(b"conectix", "vpc"), (b"koly", "an Apple disk image")];
const SECTOR: u64 = 512;

/// Compressed files, archives and images that nothing here reads: their bytes are no disk.
pub const PACKED: [(usize, &[u8], &str); 13] = [
    (0, &[0x1f, 0x8b], "a gzip file"),
    (0, b"\xfd7zXZ\0", "an xz file"),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], "a zstd file"),
    (4, b"1AY&SY", "a bzip2 file"),
    (0, &[0x04, 0x22, 0x4d, 0x18], "an lz4 file"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (257, b"ustar", "a tar archive (as OVA files are)"),
    (0, &[0x3a, 0xff, 0x26, 0xed], "an Android sparse image"),
    (0, b"MSWIM\0\0\0", "a Windows image file"),
    (0, b"EVF\x09\x0d\x0a\xff\0", "an EnCase image"),
    (0, b"Bochs Virtual HD Image", "a Bochs image"),
];

fn begins(file: &File, at: u64, mark: &[u8]) -> bool {
    let mut there = vec![0; mark.len()];
    file.read_exact_at(&mut there, at).is_ok() && there == mark
}

/// Returns the format of a file that exists. Refuses one that contains an image, and is none.
pub fn of_content(path: &Path) -> anyhow::Result<&'static str> {
    let file = input::open(path).with_context(|| format!("cannot open the image {}", path.display()))?;
    for (at, mark, format) in MARKS {
        if begins(&file, at, mark) {
            return Ok(format);
        }
    }
    let packed = PACKED.into_iter().find(|(at, mark, _)| begins(&file, *at as u64, mark)).map(|(.., what)| what);
    let last = file.metadata().ok().and_then(|file| file.len().checked_sub(SECTOR));
    let footer = FOOTERS.into_iter().find(|(mark, _)| last.is_some_and(|last| begins(&file, last, mark)));
    if packed.is_none()
        && let Some((_, "vpc")) = footer
    {
        return Ok("vpc");
    }
    if let Some(what) = packed.or(footer.map(|(_, what)| what)) {
        bail!(
            "{} is {what}, and no image of a disk: unpack it first, or add --format raw to take its bytes as they are",
            path.display()
        );
    }
    Ok("raw")
}

/// Returns true if an image ends before the data that its header counts, where `qemu-img check` does not see that. These are VDI and dynamic VHD. The header of
/// VDI has the number of allocated blocks, their size, and their beginning at 0x184, 0x178 and 0x158. A dynamic VHD ends with a copy of its first sector.
pub fn is_cut_short(path: &Path, format: &str) -> anyhow::Result<bool> {
    let file = input::open(path).with_context(|| format!("cannot open the image {}", path.display()))?;
    let length = file.metadata()?.len();
    let number = |at: u64| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at).map(|()| u64::from(u32::from_le_bytes(bytes)))
    };
    Ok(match format {
        "vdi" => match (number(0x158), number(0x178), number(0x184)) {
            (Ok(first), Ok(size), Ok(count)) => length < first.saturating_add(size.saturating_mul(count)),
            _ => true,
        },
        "vpc" => !begins(&file, length.saturating_sub(SECTOR), b"conectix"),
        _ => false,
    })
}

/// Returns the format that a new file's name asks for.
pub fn of_name(path: &Path) -> Result<&'static str, String> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase()).unwrap_or_default();
    match extension.as_str() {
        "" | "raw" | "img" | "iso" | "bin" | "dd" => Ok("raw"),
        other => MADE.into_iter().find(|format| *format == other).ok_or_else(|| {
            format!("'.{extension}' is not a format that is known: say it with --format ({})", MADE.join(", "))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_marks_and_by_names() {
        let path = std::env::temp_dir().join(format!("onefold-format-{}", std::process::id()));
        for (at, mark, format) in MARKS {
            let mut bytes = vec![0; at as usize];
            bytes.extend_from_slice(mark);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(of_content(&path).unwrap(), format);
        }
        for (at, mark, what) in PACKED {
            let mut bytes = vec![0; at];
            bytes.extend_from_slice(mark);
            std::fs::write(&path, bytes).unwrap();
            let refused = of_content(&path).unwrap_err().to_string();
            assert!(refused.contains(what) && refused.contains("--format raw"), "{refused}");
        }
        for (mark, format) in FOOTERS {
            let mut bytes = vec![0; 2048];
            bytes[2048 - SECTOR as usize..][..mark.len()].copy_from_slice(mark);
            std::fs::write(&path, bytes).unwrap();
            assert!(of_content(&path).map_or_else(|error| error.to_string().contains(format), |found| found == format));
        }
        std::fs::write(&path, "short").unwrap();
        assert_eq!(of_content(&path).unwrap(), "raw");
        std::fs::remove_file(&path).unwrap();
        assert!(of_content(&path).is_err());
        assert_eq!(of_name(Path::new("a.QCOW2")), Ok("qcow2"));
        assert_eq!(of_name(Path::new("/dev/sdb")), Ok("raw"));
        assert!(of_name(Path::new("a.qcow")).is_err());
    }
}
