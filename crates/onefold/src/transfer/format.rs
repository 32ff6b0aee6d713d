//! Which format an image has: by what it begins with where it is read, by its name where it is made.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, bail};

/// Formats that qemu-nbd reads and writes, as it calls them; what is none of them is raw.
pub const FORMATS: [&str; 8] = ["raw", "qcow2", "vmdk", "vdi", "vhdx", "vpc", "qed", "parallels"];
/// Those that are made.
pub const MADE: [&str; 5] = ["raw", "qcow2", "vmdk", "vdi", "vhdx"];

/// Marks, and where they stand.
const MARKS: [(u64, &[u8], &str); 9] = [
    (0, b"QFI\xfb", "qcow2"),
    (0, b"KDMV", "vmdk"),
    (0, b"# Disk DescriptorFile", "vmdk"),
    (0, b"vhdxfile", "vhdx"),
    (0, b"conectix", "vpc"),
    (0, b"QED\0", "qed"),
    (0, b"WithoutFreeSpace", "parallels"),
    (0, b"WithouFreSpacExt", "parallels"),
    (64, b"\x7f\x10\xda\xbe", "vdi"),
];

/// Compressed files and archives: their bytes are no disk.
const PACKED: [(u64, &[u8], &str); 9] = [
    (0, &[0x1f, 0x8b], "a gzip file"),
    (0, b"\xfd7zXZ\0", "an xz file"),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], "a zstd file"),
    (4, b"1AY&SY", "a bzip2 file"),
    (0, &[0x04, 0x22, 0x4d, 0x18], "an lz4 file"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (257, b"ustar", "a tar archive (as OVA files are)"),
];

fn begins(file: &File, at: u64, mark: &[u8]) -> bool {
    let mut there = vec![0; mark.len()];
    file.read_exact_at(&mut there, at).is_ok() && there == mark
}

/// The format of a file that is there. Refuses what holds an image, and is none.
pub fn of_content(path: &Path) -> anyhow::Result<&'static str> {
    let file = File::open(path).with_context(|| format!("cannot open the image {}", path.display()))?;
    for (at, mark, format) in MARKS {
        if begins(&file, at, mark) {
            return Ok(format);
        }
    }
    if let Some((.., what)) = PACKED.into_iter().find(|(at, mark, _)| begins(&file, *at, mark)) {
        bail!(
            "{} is {what}, and no image of a disk: unpack it first, or add --format raw to take its bytes as they are",
            path.display()
        );
    }
    Ok("raw")
}

/// The format that a new file's name asks for.
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
            let mut bytes = vec![0; at as usize];
            bytes.extend_from_slice(mark);
            std::fs::write(&path, bytes).unwrap();
            let refused = of_content(&path).unwrap_err().to_string();
            assert!(refused.contains(what) && refused.contains("--format raw"), "{refused}");
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
