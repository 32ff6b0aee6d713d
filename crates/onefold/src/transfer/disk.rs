//! End of a transfer: a raw file or device, or an NBD export, read and written at offsets.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use rustix::fs::{FallocateFlags, fallocate};

use crate::frontend::nbd::listen::Address;
use crate::transfer::client::{Client, Extent};

/// Place of one end of a transfer.
#[derive(Clone, Debug)]
pub enum Place {
    /// A raw file or device, open: the later target of its path does not matter.
    File(Arc<File>, PathBuf),
    /// An export.
    Export(Address, String),
}

/// An end that is open. Each worker of a transfer has its own.
pub enum Disk {
    /// A raw file or device.
    File {
        /// The file.
        file: Arc<File>,
        /// Bytes in it.
        size: u64,
        /// For messages.
        path: PathBuf,
    },
    /// An export.
    Export(Box<Client>),
}

impl Place {
    /// Opens it. A file is open already, with the needed access.
    pub fn open(&self, writes: bool) -> anyhow::Result<Disk> {
        match self {
            Place::File(file, path) => open_file(file, path),
            Place::Export(address, export) => {
                let client = Client::connect(address, export)?;
                ensure!(!writes || !client.is_read_only(), "'{export}' is read-only: nothing can be written to it");
                Ok(Disk::Export(Box::new(client)))
            }
        }
    }
}

fn open_file(file: &Arc<File>, path: &Path) -> anyhow::Result<Disk> {
    // The length of a device is where its end is. Nothing reads or writes at the place where the file stands: all workers have the same one.
    let size =
        (&**file).seek(SeekFrom::End(0)).with_context(|| format!("cannot find the end of {}", path.display()))?;
    Ok(Disk::File { file: file.clone(), size, path: path.into() })
}

impl Disk {
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Disk::File { size, .. } => *size,
            Disk::Export(client) => client.size(),
        }
    }

    /// Reads from an offset on; beyond the end there are zeroes.
    pub fn read(&mut self, offset: u64, data: &mut [u8]) -> anyhow::Result<()> {
        let there = self.size().saturating_sub(offset).min(data.len() as u64) as usize;
        let (data, beyond) = data.split_at_mut(there);
        beyond.fill(0);
        if data.is_empty() {
            return Ok(());
        }
        match self {
            Disk::File { file, path, .. } => file
                .read_exact_at(data, offset)
                .with_context(|| format!("cannot read {} at byte {offset}", path.display())),
            Disk::Export(client) => client.read(offset, data),
        }
    }

    /// Writes from an offset on.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> anyhow::Result<()> {
        match self {
            Disk::File { file, path, .. } => file
                .write_all_at(data, offset)
                .with_context(|| format!("cannot write {} at byte {offset}", path.display())),
            Disk::Export(client) => client.write(offset, data),
        }
    }

    /// Makes a range zeroes, without space for them where that can be.
    pub fn zero(&mut self, offset: u64, length: usize) -> anyhow::Result<()> {
        let done = match self {
            Disk::File { file, .. } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&**file, flags, offset, length as u64).is_ok()
            }
            Disk::Export(client) => client.zero(offset, length as u32)?,
        };
        if done { Ok(()) } else { self.write(offset, &vec![0; length]) }
    }

    /// Returns the first extents of a range that is not empty, as data or zeroes.
    pub fn extents(&mut self, offset: u64, length: u64) -> anyhow::Result<Vec<Extent>> {
        let there = self.size().saturating_sub(offset);
        if there == 0 {
            return Ok(vec![Extent { length, is_zero: true }]);
        }
        let length = length.min(there);
        match self {
            Disk::File { file, .. } => {
                let begin = |whence: fn(u64) -> rustix::fs::SeekFrom| rustix::fs::seek(&**file, whence(offset));
                Ok(vec![match begin(rustix::fs::SeekFrom::Data) {
                    Ok(data) if data > offset => Extent { length: length.min(data - offset), is_zero: true },
                    Ok(_) => {
                        let hole = begin(rustix::fs::SeekFrom::Hole).unwrap_or(offset + length);
                        Extent { length: length.min(hole.saturating_sub(offset).max(1)), is_zero: false }
                    }
                    // No data beyond; or the file does not know.
                    Err(rustix::io::Errno::NXIO) => Extent { length, is_zero: true },
                    Err(_) => Extent { length, is_zero: false },
                }])
            }
            Disk::Export(client) => client.extents(offset, length as u32),
        }
    }

    /// Makes the writes durable.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        match self {
            Disk::File { file, path, .. } => {
                file.sync_all().with_context(|| format!("cannot make {} durable", path.display()))
            }
            Disk::Export(client) => client.flush(),
        }
    }
}
