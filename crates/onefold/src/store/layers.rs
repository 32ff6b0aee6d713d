//! Layers under and above a file or device: partitions, loop devices, device mapper and RAID, from sysfs.
//!
//! A loop device over a file, and a device mapped onto another, reach the same bytes by another path, with other locks. Where sysfs is not there, or names a
//! file of another mount namespace, nothing is found.

use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

use crate::store::identity::Identity;

/// A file or device, by a path of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layer {
    /// A path to it.
    pub path: PathBuf,
    /// Identity of the file or device.
    pub identity: Identity,
}

impl Layer {
    /// Identifies the file or device at a path; `None` if there is none.
    pub fn at(path: &Path) -> Option<Layer> {
        Identity::at(path).ok().map(|identity| Layer { path: path.into(), identity })
    }

    /// Returns all layers that it stands on, from the top. A partition stands on the layers under its whole disk, and not on that disk, whose other partitions
    /// do not matter.
    pub fn below(&self) -> Vec<Layer> {
        let (mut found, mut left) = (Vec::new(), vec![self.identity]);
        while let Some(identity) = left.pop() {
            let Identity::Device { number } = identity else { continue };
            for layer in directly_below(&device_folder(number)) {
                if !found.contains(&layer) {
                    left.push(layer.identity);
                    found.push(layer);
                }
            }
        }
        found
    }

    /// Returns the loop devices over it.
    pub fn loops(&self) -> Vec<Layer> {
        let over = |folder: PathBuf| {
            let layer = loop_file(&folder)?;
            (layer.identity == self.identity).then(|| device_at(&folder)).flatten()
        };
        entries(Path::new("/sys/block")).into_iter().filter_map(over).collect()
    }

    /// Partitions of a device.
    pub fn partitions(&self) -> Vec<Layer> {
        let Identity::Device { number } = self.identity else { return Vec::new() };
        let parts = entries(&device_folder(number)).into_iter().filter(|folder| folder.join("partition").exists());
        parts.filter_map(|folder| device_at(&folder)).collect()
    }
}

fn device_folder(number: u64) -> PathBuf {
    let folder = PathBuf::from(format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number)));
    let folder = folder.canonicalize().unwrap_or(folder);
    match folder.parent() {
        Some(disk) if folder.join("partition").exists() => disk.into(),
        _ => folder,
    }
}

fn directly_below(folder: &Path) -> Vec<Layer> {
    let slaves = entries(&folder.join("slaves")).into_iter().filter_map(|slave| device_at(&slave));
    slaves.chain(loop_file(folder)).collect()
}

/// Returns the file or device under a loop device.
fn loop_file(folder: &Path) -> Option<Layer> {
    let path = read_to_string(folder.join("loop/backing_file")).ok()?;
    Layer::at(Path::new(path.trim_end_matches('\n')))
}

/// Returns the device of a folder of sysfs, under the name that the kernel gives it.
fn device_at(folder: &Path) -> Option<Layer> {
    let event = read_to_string(folder.join("uevent")).ok()?;
    let name = event.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Layer::at(&Path::new("/dev").join(name))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stands_on_nothing() {
        let layer = Layer::at(&std::env::temp_dir()).unwrap();
        assert!(layer.below().is_empty() && layer.loops().is_empty() && layer.partitions().is_empty());
        assert_eq!(Layer::at(Path::new("/nowhere/at/all")), None);
    }
}
