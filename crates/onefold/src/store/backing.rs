//! The backing store: a regular file or a block device, opened, locked, read and written in whole blocks.
//!
//! Invariants: the lock is taken before the first byte is written and held until the process ends, so that no second
//! server, and no successor of a killed one whose writes are still in flight, works on the same store. Memory handed to the
//! kernel is aligned to [`ALIGNMENT`], as O_DIRECT wants it; file systems that refuse O_DIRECT are used through the page cache.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, OFlags};

use crate::operators::control::{self, Found};
use crate::store::copy_on_write;
use crate::store::file_size;
use crate::store::identity::{self, Identity};
use crate::store::owner;

/// Greatest alignment that O_DIRECT needs of offsets, lengths and addresses.
pub const ALIGNMENT: usize = 4096;
/// Time to try for the lock, and for a device that is still busy.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Time to try for the lock where no server answers: its holder is dead, or a command that will soon be done.
const LOCK_PATIENCE_UNSERVED: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });
/// The longest read or write of the blocking paths.
const STEP: usize = 1 << 20;

/// Bytes at an address that O_DIRECT accepts.
pub struct AlignedBytes {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBytes {
    /// Allocates `length` zero bytes.
    pub fn new(length: usize) -> AlignedBytes {
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        assert!(start <= ALIGNMENT, "the address of a vector can be aligned");
        AlignedBytes { memory, start, length }
    }

    /// Returns all `length` bytes; the first is aligned.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// Returns the bytes for changes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// Kind of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A block device.
    Device,
}

/// Another process has the store: who, and what to do.
#[derive(Debug)]
pub struct InUse(String);

impl std::fmt::Display for InUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InUse {}

/// Mode in which a store is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing is written.
    Read,
    /// Read and write.
    Write,
    /// Read and write, made by us, and missing so far.
    CreateNew,
}

/// File systems that honour RWF_DSYNC (statfs(2), f_type): ext2 to ext4, XFS, Btrfs, F2FS.
const FORCING: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// An open store. The lock lasts as long as the value.
pub struct Store {
    file: File,
    path: PathBuf,
    kind: Kind,
    size: u64,
    direct: bool,
    writable: bool,
}

impl AsFd for Store {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Store {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Finds the kind of store at a path; `None` if nothing is there, an error if it cannot be a store.
pub fn kind_of(path: &Path) -> anyhow::Result<Option<Kind>> {
    let kind = match std::fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", path.display())),
    };
    if kind.is_file() {
        Ok(Some(Kind::File))
    } else if kind.is_block_device() {
        Ok(Some(Kind::Device))
    } else {
        let what = if kind.is_dir() { "a directory" } else { "neither a regular file nor a block device" };
        bail!("{} is {what}: name a file or a block device", path.display())
    }
}

impl Store {
    /// Opens and locks the store at `path`.
    pub fn open(path: &Path, access: Access) -> anyhow::Result<Store> {
        let kind = match (kind_of(path)?, access) {
            (None, Access::CreateNew) => Kind::File,
            (Some(kind), _) => kind,
            (None, _) => bail!(
                "{} does not exist: make a pool with 'onefold create {} --capacity SIZE'",
                path.display(),
                path.display()
            ),
        };
        let (file, direct) = open_file(path, kind, access)?;
        lock(&file, path)?;
        let writable = access != Access::Read;
        let mut store = Store { file, path: path.to_path_buf(), kind, size: 0, direct, writable };
        store.size = store.measure()?;
        store.allow_size(store.size)?;
        store.settle_for_what_works()?;
        Ok(store)
    }

    /// Opens and locks the file or device at `path` for a command that overwrites it, through the page cache. A lock of another process is not waited for.
    pub fn open_target(path: &Path) -> anyhow::Result<Store> {
        let Some(kind) = kind_of(path)? else { bail!("{} does not exist", path.display()) };
        let (file, direct) = open_buffered(path, kind, Access::Write)?;
        if !try_lock(&file, path, |waited| waited >= LOCK_PATIENCE)? {
            bail!("{}", explain_lock(&file, path));
        }
        let mut store = Store { file, path: path.to_path_buf(), kind, size: 0, direct, writable: true };
        store.size = store.measure()?;
        Ok(store)
    }

    /// Goes through the page cache where the file system took O_DIRECT and refuses the I/O. The open file stays the same,
    /// and with it the lock.
    fn settle_for_what_works(&mut self) -> anyhow::Result<()> {
        if !self.direct || self.direct_works() {
            return Ok(());
        }
        rustix::fs::fcntl_getfl(&self.file)
            .and_then(|flags| rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT))
            .with_context(|| format!("cannot use the page cache for {}", self.path.display()))?;
        self.direct = false;
        Ok(())
    }

    fn measure(&self) -> anyhow::Result<u64> {
        use std::io::{Seek, SeekFrom};
        // The end of a block device is where its size is; of a file too.
        (&self.file)
            .seek(SeekFrom::End(0))
            .with_context(|| format!("cannot find out the size of {}", self.path.display()))
    }

    fn direct_works(&self) -> bool {
        if self.size < ALIGNMENT as u64 {
            return true;
        }
        let mut block = AlignedBytes::new(ALIGNMENT);
        !matches!(self.file.read_at(block.bytes_mut(), 0), Err(error) if error.raw_os_error() == Some(libc::EINVAL))
    }

    /// Returns the path under which the store was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Identifies the file or device that is open, whatever its path refers to now.
    pub fn identity(&self) -> anyhow::Result<Identity> {
        Identity::of_file(&self.file)
    }

    /// Returns the current name of the store, which may have been moved; the path of opening if the kernel does not tell.
    pub fn name_now(&self) -> PathBuf {
        identity::name_of(&self.file).unwrap_or_else(|| self.path.clone())
    }

    /// Borrows the open file, which holds the lock.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the kind of the store: file or device.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the size in bytes as it was last measured.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns true if the store was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns true if reads and writes bypass the page cache (O_DIRECT).
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Returns true if a write with RWF_DSYNC is durable when it is done. Block devices and the file systems of `FORCING` see to that (Linux:
    /// generic_write_sync); others, FUSE among them, may take the flag and do nothing about it.
    pub fn forces_writes(&self) -> bool {
        self.kind == Kind::Device
            || rustix::fs::fstatfs(&self.file).is_ok_and(|file_system| FORCING.contains(&(file_system.f_type as u32)))
    }

    /// Fails if this process may not write a file of `size` bytes that it is to write.
    fn allow_size(&self, size: u64) -> anyhow::Result<()> {
        if self.kind == Kind::Device || !self.writable { Ok(()) } else { file_size::allow(&self.path, size) }
    }

    /// Makes a file `size` bytes long, keeping none of its contents. Not for devices.
    pub fn reset_to(&mut self, size: u64) -> anyhow::Result<()> {
        self.allow_size(size)?;
        self.file
            .set_len(0)
            .and_then(|()| {
                copy_on_write::switch_off(&self.file);
                self.file.set_len(size)
            })
            .with_context(|| format!("cannot make {} {} long", self.path.display(), crate::size::show(size)))?;
        self.size = size;
        // An empty file could not tell.
        self.settle_for_what_works()
    }

    /// Makes a file at least `size` bytes long, keeping its contents. Not for devices.
    pub fn extend_to(&mut self, size: u64) -> io::Result<()> {
        if size > self.size {
            self.file.set_len(size)?;
            self.size = size;
        }
        Ok(())
    }

    /// Reserves space for the first `size` bytes of a file, where its file system can. Not for devices.
    pub fn allocate(&self, size: u64) -> io::Result<()> {
        self.allocate_range(0, size)
    }

    /// Reserves space for a range of a file, where its file system can. Not for devices.
    pub fn allocate_range(&self, offset: u64, length: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), offset, length) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the bytes that the file system has stored for a file; `None` for a device.
    pub fn held(&self) -> Option<u64> {
        let blocks = self.file.metadata().ok().map(|metadata| metadata.blocks());
        blocks.filter(|_| self.kind == Kind::File).map(|blocks| blocks.saturating_mul(512))
    }

    /// Finds out the size anew: a device may have been made larger.
    pub fn measure_again(&mut self) -> anyhow::Result<()> {
        self.size = self.measure()?;
        Ok(())
    }

    /// Returns the bytes that the file system under a file has left for it; `None` where it does not say.
    pub fn available(&self) -> Option<u64> {
        let file_system = rustix::fs::fstatvfs(&self.file).ok()?;
        Some(file_system.f_bavail.saturating_mul(file_system.f_frsize))
    }

    /// Opens another handle on the same open store; the lock lasts as long as one of them.
    pub fn share(&self) -> anyhow::Result<Store> {
        let file = self.file.try_clone().with_context(|| format!("cannot share {}", self.path.display()))?;
        Ok(Store { file, path: self.path.clone(), ..*self })
    }

    /// Reads `length` bytes at `offset`, both multiples of [`ALIGNMENT`]; bytes beyond the end of a file read as zeroes.
    pub fn read(&self, offset: u64, length: usize) -> io::Result<AlignedBytes> {
        let mut buffer = AlignedBytes::new(length);
        self.read_into(offset, buffer.bytes_mut())?;
        Ok(buffer)
    }

    /// Reads as [`Store::read`] does, into memory that is aligned.
    pub fn read_into(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => {
                    bytes[done..].fill(0);
                    return Ok(());
                }
                Ok(count) => {
                    done += count;
                    // O_DIRECT could not read on from the end of a file that ends inside a block.
                    if offset + done as u64 >= self.size {
                        bytes[done..].fill(0);
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Finds the next range at or after `offset` that a file has stored, up to a hole or its end. Where the file system does not report holes, returns the
    /// remaining file.
    pub fn next_data(&self, offset: u64) -> io::Result<Option<std::ops::Range<u64>>> {
        use rustix::fs::SeekFrom;
        use rustix::io::Errno;
        if offset >= self.size {
            return Ok(None);
        }
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(offset..self.size)),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start))?;
        Ok((start < end).then_some(start..end))
    }

    /// Writes whole blocks at a multiple of the block size.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut buffer = AlignedBytes::new(bytes.len());
        buffer.bytes_mut().copy_from_slice(bytes);
        self.file.write_all_at(buffer.bytes(), offset)
    }

    /// Writes zeroes over a range of whole blocks; `progress` hears how many bytes are done.
    pub fn write_zeroes(&self, offset: u64, length: u64, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
        let zeroes = AlignedBytes::new(STEP);
        let mut done = 0;
        while done < length {
            let step = (length - done).min(STEP as u64);
            self.file.write_all_at(&zeroes.bytes()[..step as usize], offset + done)?;
            done += step;
            progress(step);
        }
        Ok(())
    }

    /// Makes everything written durable.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Makes the file's name durable.
    pub fn sync_directory(&self) -> io::Result<()> {
        if self.kind == Kind::Device {
            return Ok(());
        }
        let parent = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(parent)?.sync_all()
    }
}

fn open_file(path: &Path, kind: Kind, access: Access) -> anyhow::Result<(File, bool)> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    let mut opened = options(kind, access, true).open(path);
    // A device that a process has just closed may be busy for a moment, for the reason given at `lock`.
    while opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        opened = options(kind, access, true).open(path);
    }
    match opened {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open_buffered(path, kind, access),
        Err(error) => Err(explain_open(error, path)),
    }
}

fn open_buffered(path: &Path, kind: Kind, access: Access) -> anyhow::Result<(File, bool)> {
    // A file system that refuses O_DIRECT may have made the file already.
    let access = if access == Access::CreateNew && path.exists() { Access::Write } else { access };
    match options(kind, access, false).open(path) {
        Ok(file) => Ok((file, false)),
        Err(error) => Err(explain_open(error, path)),
    }
}

fn options(kind: Kind, access: Access, direct: bool) -> OpenOptions {
    let mut flags = OFlags::empty();
    if direct {
        flags |= OFlags::DIRECT;
    }
    if kind == Kind::Device {
        // The kernel refuses this while the device is mounted, swapped on, or held by another such opener.
        flags |= OFlags::EXCL;
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits() as i32).mode(0o600);
    options.write(access != Access::Read).create_new(access == Access::CreateNew);
    options
}

fn explain_open(error: io::Error, path: &Path) -> anyhow::Error {
    let advice = match error.raw_os_error() {
        Some(libc::EBUSY) => ": it is mounted or in use by another program; unmount it or stop that program first",
        Some(libc::EACCES | libc::EPERM) => ": run as a user who may read and write it",
        Some(libc::EROFS) => ": its file system is mounted read-only",
        _ => "",
    };
    anyhow::Error::new(error).context(format!("cannot open {}{advice}", path.display()))
}

/// Takes the lock. It is tried for a while. The kernel closes a dead process's ring, and with it the store, only when the last write in flight has ended. A
/// command that opens the pool itself ends soon.
fn lock(file: &File, path: &Path) -> anyhow::Result<()> {
    let is_over = |waited| waited >= LOCK_PATIENCE_UNSERVED || (waited >= LOCK_PATIENCE && is_served(file, path));
    if !try_lock(file, path, is_over)? {
        return Err(InUse(explain_lock(file, path)).into());
    }
    Ok(())
}

/// Tries for the lock until it has waited long enough; whether it got it.
fn try_lock(file: &File, path: &Path, is_over: impl Fn(Duration) -> bool) -> anyhow::Result<bool> {
    let began = Instant::now();
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if !is_over(began.elapsed()) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(io::Error::from(error)).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
    }
}

/// Returns true if a server has the lock. Either the kernel names it as the holder, wherever it listens, or one is found at the pool's usual control sockets.
fn is_served(file: &File, path: &Path) -> bool {
    identity::holder_of(file).is_some_and(identity::is_server) || matches!(control::find_server_of(path), Found::Server)
}

/// Explains that another process has the store, with advice by the answer at its server's usual sockets.
fn explain_lock(file: &File, path: &Path) -> String {
    let process = || identity::holder_of(file).map_or(String::new(), |process| format!(" ({process})"));
    let who = owner::running_at(path)
        .map_or_else(|| format!("another onefold process{}", process()), |owner| owner::describe(&owner));
    let advice = match control::find_server_of(path) {
        Found::Server => format!("'onefold status {}' shows its activity; stop it first", path.display()),
        Found::Nobody => {
            "no server of it is found in its usual place. It may have been started with --control PATH (give that to commands, too), or \
             under another name of this store; or another command is at work"
                .into()
        }
        Found::Other(socket, served) => format!(
            "the server at {} serves {served}, not this. Reach the right one with --control PATH, or stop it",
            socket.display()
        ),
    };
    format!("{} is in use by {who}: {advice}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("onefold-backing-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn a_store_is_locked_as_long_as_it_is_open() {
        let path = scratch("lock");
        assert!(Store::open(&path, Access::Write).err().unwrap().to_string().contains("onefold create"));
        let first = Store::open(&path, Access::CreateNew).unwrap();
        let refused = Store::open(&path, Access::Read).err().unwrap();
        assert!(refused.to_string().contains(path.to_str().unwrap()));
        assert!(refused.to_string().contains("in use"));
        drop(first);
        Store::open(&path, Access::Read).unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_beyond_the_end_reads_as_zeroes() {
        let path = scratch("read");
        let mut store = Store::open(&path, Access::CreateNew).unwrap();
        store.reset_to(8192).unwrap();
        store.write(4096, &[7; 4096]).unwrap();
        let bytes = store.read(4096, 3 * 4096).unwrap();
        assert!(bytes.bytes()[..4096].iter().all(|byte| *byte == 7));
        assert!(bytes.bytes()[4096..].iter().all(|byte| *byte == 0));
        store.write_zeroes(0, 8192, &mut |_| ()).unwrap();
        assert!(store.read(0, 8192).unwrap().bytes().iter().all(|byte| *byte == 0));
        store.sync().unwrap();
        store.sync_directory().unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_gets_longer_and_never_shorter() {
        let path = scratch("longer");
        let mut store = Store::open(&path, Access::CreateNew).unwrap();
        store.reset_to(8192).unwrap();
        store.write(4096, &[7; 4096]).unwrap();
        store.extend_to(3 * 4096).unwrap();
        store.extend_to(4096).unwrap();
        assert_eq!((store.size(), std::fs::metadata(&path).unwrap().len()), (3 * 4096, 3 * 4096));
        assert_eq!(store.read(4096, 4096).unwrap().bytes()[0], 7);
        let shared = store.share().unwrap();
        drop(store);
        assert!(Store::open(&path, Access::Read).is_err(), "the lock is gone");
        drop(shared);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_directory_is_no_store() {
        let error = Store::open(&std::env::temp_dir(), Access::Write).err().unwrap().to_string();
        assert!(error.contains("directory"), "{error}");
    }
}
