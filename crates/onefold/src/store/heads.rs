//! Detection of a rotational disk under a store, as Linux reports it: `queue/rotational` of the block device, or of that under a file's file system.
//!
//! Three kinds count as not rotational: a file system that is on no device of its own (Btrfs, overlays, networks), loop devices, and disks of virtual machines
//! that do not report their kind. An operator who knows better sets `onefold set POOL device=hdd`.

use std::path::Path;

use engine::DeviceTraits;

use crate::store::backing::{Kind, Store};

/// Directory of Linux with its block devices, by their numbers.
const DEVICES: &str = "/sys/dev/block";
/// Buses of virtual machines, whose disks do not report their kind: Linux answers 1 for them.
const SILENT: [&str; 3] = ["virtio", "xen", "vmbus"];
/// Maximum depth of volumes on arrays of volumes.
const LEVELS: u32 = 8;

/// Returns the traits of the disk under a store, as far as the system tells; an SSD where it does not.
pub fn of(store: &Store) -> DeviceTraits {
    // The open file itself counts, whatever its name refers to by now.
    let Ok(found) = rustix::fs::fstat(store.file()) else { return DeviceTraits::SSD };
    let device = if store.kind() == Kind::Device { found.st_rdev } else { found.st_dev };
    let name = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    if is_rotational(&Path::new(DEVICES).join(name), LEVELS) { DeviceTraits::HDD } else { DeviceTraits::SSD }
}

/// Returns true if a device is rotational: a disk that reports so itself, a partition of one, or a volume or an array on one.
fn is_rotational(device: &Path, levels: u32) -> bool {
    let Ok(device) = device.canonicalize() else { return false };
    let says = |directory: &Path| std::fs::read_to_string(directory.join("queue/rotational")).ok();
    let (disk, text) = match (says(&device), device.parent()) {
        (Some(text), _) => (&*device, text),
        (None, Some(parent)) => (parent, says(parent).unwrap_or_default()),
        (None, None) => return false,
    };
    if text.trim() != "1" {
        return false;
    }
    if let Ok(bus) = disk.join("device/subsystem").canonicalize() {
        return !bus.file_name().is_some_and(|name| SILENT.iter().any(|silent| name == *silent));
    }
    // Made of others, or of none, such as a loop device, for which Linux makes the answer up as well.
    let Ok(parts) = std::fs::read_dir(disk.join("slaves")) else { return false };
    levels > 0 && parts.flatten().any(|part| is_rotational(&part.path(), levels - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory like that of Linux.
    struct Devices(std::path::PathBuf);

    impl Devices {
        /// Makes the directory of a disk, with this text as its answer, on this bus.
        fn disk(&self, name: &str, says: Option<&str>, bus: Option<&str>) {
            let disk = self.0.join(name);
            std::fs::create_dir_all(disk.join("queue")).unwrap();
            std::fs::create_dir_all(disk.join("part")).unwrap();
            std::fs::create_dir_all(disk.join("slaves")).unwrap();
            if let Some(text) = says {
                std::fs::write(disk.join("queue/rotational"), text).unwrap();
            }
            if let Some(bus) = bus {
                std::fs::create_dir_all(self.0.join("bus").join(bus)).unwrap();
                std::fs::create_dir_all(disk.join("device")).unwrap();
                std::os::unix::fs::symlink(self.0.join("bus").join(bus), disk.join("device/subsystem")).unwrap();
            }
        }

        fn are_rotational(&self, name: &str) -> bool {
            is_rotational(&self.0.join(name), LEVELS)
        }
    }

    #[test]
    fn disks_partitions_and_arrays_are_trusted_and_who_cannot_know_is_not() {
        let devices = Devices(std::env::temp_dir().join(format!("onefold-heads-{}", std::process::id())));
        devices.disk("hdd", Some("1\n"), Some("scsi"));
        devices.disk("ssd", Some("0\n"), Some("nvme"));
        devices.disk("odd", Some(""), Some("scsi"));
        devices.disk("none", None, Some("scsi"));
        devices.disk("virtual", Some("1\n"), Some("virtio"));
        devices.disk("loop", Some("1\n"), None);
        for (name, part) in [("array", "hdd"), ("volume", "array"), ("other", "virtual"), ("circle", "circle")] {
            devices.disk(name, Some("1\n"), None);
            std::os::unix::fs::symlink(devices.0.join(part), devices.0.join(name).join("slaves").join(part)).unwrap();
        }
        let with: Vec<_> =
            ["hdd", "hdd/part", "ssd", "ssd/part", "odd", "none", "none/part", "virtual", "loop", "array", "volume"]
                .into_iter()
                .chain(["other", "circle", "missing"])
                .filter(|name| devices.are_rotational(name))
                .collect();
        assert_eq!(with, ["hdd", "hdd/part", "array", "volume"]);
        std::fs::remove_dir_all(&devices.0).unwrap();
    }
}
