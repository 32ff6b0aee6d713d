//! Which format an image has: by what it begins with where it is read, by its name where it is made.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;

/// Formats that qemu-nbd reads and writes, as it calls them; what is none of them is raw.
pub const FORMATS: [&str; 8] = ["raw", "qcow2", "vmdk", "vdi", "vhdx", "vpc", "qed", "parallels"];
/// Those that are made.
pub const MADE: [&str; 5] = ["raw", "qcow2", "vmdk", "vdi", "vhdx"];

/// Marks, and where they stand.
const MARKS: [(u64, &[u8], &str); 8] = [
    (0, b"QFI\xfb", "qcow2"),
    (0, b"KDMV", "vmdk"),
    (0, b"# Disk DescriptorFile", "vmdk"),
    (0, b"vhdxfile", "vhdx"),
    (0, b"conectix", "vpc"),
    (0, b"QED\0", "qed"),
    (0, b"WithoutFreeSpace", "parallels"),
    (64, b"\x7f\x10\xda\xbe", "vdi"),
];

/// The format of a file that is there.
pub fn of_content(path: &Path) -> anyhow::Result<&'static str> {
    let file = File::open(path).with_context(|| format!("cannot open the image {}", path.display()))?;
    for (at, mark, format) in MARKS {
        let mut begins = vec![0; mark.len()];
        if file.read_exact_at(&mut begins, at).is_ok() && begins == mark {
            return Ok(format);
        }
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
        std::fs::write(&path, "short").unwrap();
        assert_eq!(of_content(&path).unwrap(), "raw");
        std::fs::remove_file(&path).unwrap();
        assert!(of_content(&path).is_err());
        assert_eq!(of_name(Path::new("a.QCOW2")), Ok("qcow2"));
        assert_eq!(of_name(Path::new("/dev/sdb")), Ok("raw"));
        assert!(of_name(Path::new("a.qcow")).is_err());
    }
}
