//! Probe of a store's contents: the newest superblock of a pool, or the kind of other data.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, bail};
use engine::geometry::{BLOCK_SIZE, PLACE_B_OFFSET};
use engine::{Parameters, Superblock, SuperblockError};

use crate::io::input;
use crate::size;
use crate::store::backing::{Kind, Store, kind_of};
use crate::transfer::format::PACKED;

const BLOCK: usize = BLOCK_SIZE as usize;
/// Bytes at both ends that are examined before a store is overwritten. Files are examined as a whole; a device is not, since it has no holes and would take
/// hours.
const MARGIN: u64 = 1 << 20;

/// Contents of a store, as far as they can be told.
pub enum Contents {
    /// Nothing: no bytes but zeroes where anything would show.
    Empty,
    /// A pool.
    Pool(Box<Superblock>),
    /// A pool that cannot be opened for this reason, such as a damaged superblock or a format version that this program does not know.
    Unusable(SuperblockError),
    /// Something else, with a name if it is known.
    Foreign(Option<&'static str>),
}

/// Looks at a store.
pub fn probe(store: &Store) -> anyhow::Result<Contents> {
    let context = || format!("cannot read {}", store.path().display());
    let first = store.read(0, 2 * BLOCK).with_context(context)?;
    let second = store.read(PLACE_B_OFFSET, 2 * BLOCK).with_context(context)?;
    let slots = first.bytes().chunks_exact(BLOCK).chain(second.bytes().chunks_exact(BLOCK));
    match newest(slots) {
        Ok(superblock) => {
            let pool = || Contents::Pool(Box::new(superblock));
            return Ok(superblock.objection().map_or_else(pool, Contents::Unusable));
        }
        Err(SuperblockError::Foreign) => {}
        Err(error) => return Ok(Contents::Unusable(error)),
    }
    let length = store.size().min(MARGIN).next_multiple_of(BLOCK as u64) as usize;
    let tail_at = (store.size().saturating_sub(MARGIN)) / BLOCK as u64 * BLOCK as u64;
    let head = store.read(0, length).with_context(context)?;
    let tail_length = (store.size().next_multiple_of(BLOCK as u64) - tail_at) as usize;
    let tail = store.read(tail_at, tail_length).with_context(context)?;
    if let Some(name) = identify(head.bytes()) {
        return Ok(Contents::Foreign(Some(name)));
    }
    let blank = crate::io::digest::is_zero(head.bytes()) && crate::io::digest::is_zero(tail.bytes());
    if blank && (store.kind() == Kind::Device || is_blank(store).with_context(context)?) {
        return Ok(Contents::Empty);
    }
    Ok(Contents::Foreign(None))
}

/// Returns true if a file holds only zeroes; its holes need not be read.
fn is_blank(store: &Store) -> std::io::Result<bool> {
    let mut at = 0;
    while let Some(data) = store.next_data(at)? {
        at = data.start / BLOCK as u64 * BLOCK as u64;
        while at < data.end {
            let length = (data.end - at).min(MARGIN).next_multiple_of(BLOCK as u64);
            if !crate::io::digest::is_zero(store.read(at, length as usize)?.bytes()) {
                return Ok(false);
            }
            at += length;
        }
    }
    Ok(true)
}

/// Returns the newest valid superblock of the four slots, or the error that says most.
fn newest<'a>(slots: impl Iterator<Item = &'a [u8]>) -> Result<Superblock, SuperblockError> {
    let (mut found, mut worst) = (Vec::new(), SuperblockError::Foreign);
    for slot in slots {
        if let Some(refusal) = Superblock::refusal(slot) {
            // An older superblock beside it is not an answer: opening that would lose the newer program's changes.
            return Err(refusal);
        }
        match Superblock::decode(slot) {
            Ok(superblock) => found.push(superblock),
            Err(SuperblockError::Foreign) => {}
            // A torn superblock says less than one that another version wrote.
            Err(SuperblockError::Checksum) if worst != SuperblockError::Foreign => {}
            Err(error) => worst = error,
        }
    }
    if found.is_empty() { Err(worst) } else { Superblock::newest(&found) }
}

/// Returns the id of the pool on a device that another process may be serving; `None` if there is no pool.
pub fn id_without_lock(path: &Path) -> anyhow::Result<Option<[u8; 16]>> {
    Ok(parameters_without_lock(path)?.map(|parameters| parameters.id))
}

/// Returns the parameters of a pool that another process may be serving; `None` if there is no pool.
pub fn parameters_without_lock(path: &Path) -> anyhow::Result<Option<Parameters>> {
    kind_of(path)?;
    let file = input::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(superblock_without_lock(&file).ok().map(|superblock| superblock.parameters))
}

/// Returns the newest superblock of a file or device that another process may be serving; [`SuperblockError::Foreign`] if there is none, or it cannot be read.
pub fn superblock_without_lock(file: &File) -> Result<Superblock, SuperblockError> {
    let mut blocks = vec![0; 4 * BLOCK];
    let (first, second) = blocks.split_at_mut(2 * BLOCK);
    read_what_is_there(file, first, 0);
    read_what_is_there(file, second, PLACE_B_OFFSET);
    newest(blocks.chunks_exact(BLOCK))
}

/// Reads up to the end, or to the first unreadable byte; the rest of `bytes` stays unchanged.
fn read_what_is_there(file: &File, bytes: &mut [u8], offset: u64) {
    let mut done = 0;
    while done < bytes.len()
        && let Ok(count @ 1..) = file.read_at(&mut bytes[done..], offset + done as u64)
    {
        done += count;
    }
}

/// Returns the superblock of a store; fails unless the store is a pool and has its full length.
pub fn require_pool(store: &Store) -> anyhow::Result<Superblock> {
    let path = store.path().display();
    match probe(store)? {
        Contents::Pool(superblock) => {
            let needed = superblock.parameters.geometry.total_bytes();
            if store.size() < needed {
                bail!(
                    "{path} is truncated: the pool in it is {} long ({needed} bytes), the store {} ({} bytes). Restore it \
                     from a copy, or make it as long as it was and run 'onefold check {path}'",
                    size::show(needed),
                    size::show(store.size()),
                    store.size()
                );
            }
            Ok(*superblock)
        }
        Contents::Unusable(error) => bail!("{path} is a Onefold pool that cannot be opened: {error}"),
        Contents::Empty => bail!("{path} holds no pool yet: make one with 'onefold create {path} --capacity SIZE'"),
        Contents::Foreign(Some(name)) => bail!("{path} is not a Onefold pool: it holds {name}"),
        Contents::Foreign(None) => bail!("{path} is not a Onefold pool: it has no Onefold signature"),
    }
}

/// Identifies well-known contents by their first bytes.
pub fn identify(head: &[u8]) -> Option<&'static str> {
    const SIGNATURES: [(usize, &[u8], &str); 24] = [
        (0, b"XFSB", "an XFS file system"),
        (1080, &[0x53, 0xEF], "an ext2, ext3 or ext4 file system"),
        (0x10040, b"_BHRfS_M", "a btrfs file system"),
        (0x400, &[0x10, 0x20, 0xF5, 0xF2], "an F2FS file system"),
        (3, b"NTFS    ", "an NTFS file system"),
        (3, b"EXFAT   ", "an exFAT file system"),
        (0, b"hsqs", "a squashfs file system"),
        (32769, b"CD001", "an ISO 9660 image"),
        (4, b"bcachefs", "a bcachefs file system"),
        (512, b"EFI PART", "a GPT partition table"),
        (4096, b"EFI PART", "a GPT partition table"),
        (0, b"LUKS\xBA\xBE", "a LUKS encrypted volume"),
        (512, b"LABELONE", "an LVM physical volume"),
        (0, b"LABELONE", "an LVM physical volume"),
        (4086, b"SWAPSPACE2", "swap space"),
        (4086, b"SWAP-SPACE", "swap space"),
        (0, &[0xFC, 0x4E, 0x2B, 0xA9], "a member of a Linux RAID"),
        (4096, &[0xFC, 0x4E, 0x2B, 0xA9], "a member of a Linux RAID"),
        (0, b"dmvdo001", "a VDO volume"),
        (0, b"QFI\xFB", "a qcow2 disk image"),
        (0, b"KDMV", "a VMDK disk image"),
        (0, b"conectix", "a VHD disk image"),
        (0, b"vhdxfile", "a VHDX disk image"),
        (0, b"\x7FELF", "a program"),
    ];
    let holds = |at: usize, bytes: &[u8]| head.get(at..at + bytes.len()) == Some(bytes);
    let known = SIGNATURES.iter().chain(&PACKED).find(|(at, bytes, _)| holds(*at, bytes));
    if let Some((_, _, name)) = known {
        return Some(name);
    }
    // Last, since boot sectors of file systems end like this as well.
    if holds(510, &[0x55, 0xAA]) {
        let fat = holds(54, b"FAT") || holds(82, b"FAT32");
        return Some(if fat { "a FAT file system" } else { "a partition table (MBR) or a boot sector" });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{DigestFunction, Geometry};

    fn superblock(epoch: u64) -> Vec<u8> {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        let parameters = Parameters::new(geometry, [1; 16], [2; 32], DigestFunction::Blake3);
        let mut block = vec![0; BLOCK];
        Superblock { epoch, ..Superblock::new(parameters) }.encode(&mut block);
        block
    }

    #[test]
    fn the_newest_valid_superblock_wins() {
        let mut torn = superblock(9);
        torn[200] ^= 1;
        let slots = [superblock(4), superblock(7), vec![0; BLOCK], torn.clone()];
        assert_eq!(newest(slots.iter().map(Vec::as_slice)).unwrap().epoch, 7);
        let slots = [torn.clone(), vec![0; BLOCK]];
        assert_eq!(newest(slots.iter().map(Vec::as_slice)), Err(SuperblockError::Checksum));
        let mut newer = superblock(9);
        newer[8] = 9;
        let slots = [newer, torn];
        assert_eq!(newest(slots.iter().map(Vec::as_slice)), Err(SuperblockError::Version(9)));
        assert_eq!(newest([vec![0; BLOCK]].iter().map(Vec::as_slice)), Err(SuperblockError::Foreign));
    }

    #[test]
    fn well_known_contents_are_named() {
        let name = |at: usize, bytes: &[u8]| {
            let mut head = vec![0; 1 << 20];
            head[at..at + bytes.len()].copy_from_slice(bytes);
            identify(&head)
        };
        assert!(name(1080, &[0x53, 0xEF]).unwrap().contains("ext4"));
        assert!(name(0, b"XFSB").unwrap().contains("XFS"));
        assert!(name(512, b"EFI PART").unwrap().contains("GPT"));
        assert!(name(510, &[0x55, 0xAA]).unwrap().contains("MBR"));
        assert_eq!(name(100, b"nothing"), None);
        assert_eq!(identify(b"XF"), None);
        assert_eq!(identify(&[]), None);
    }
}
