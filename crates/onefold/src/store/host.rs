//! Identity of this process for others that open the same pool: its host, the boot of that, and its own; and the check that another process of this host still
//! lives.
//!
//! Names of the host and its hardware leave this module only as keyed hashes: machine-id(5) is not for others.

use std::fs::read_to_string;
use std::path::Path;

/// This host, and this process.
pub struct Host {
    /// The host, as it is installed: by its machine id, or by its name where it has none.
    pub host: [u8; 16],
    /// Its hardware, zeroes where that cannot be read: copies of one machine have the same machine id.
    pub hardware: [u8; 16],
    /// The boot, zeroes where that cannot be read.
    pub boot: [u8; 16],
    /// The process, when it started in ticks since the boot, and the namespace of its number.
    pub pid: u32,
    pub started: u64,
    pub pid_namespace: u64,
    /// The name, for people.
    pub name: String,
}

impl Host {
    /// Collects the identity of this process and of its host.
    pub fn current() -> Host {
        let name = line("/proc/sys/kernel/hostname").unwrap_or_default();
        let machine = ["/etc/machine-id", "/var/lib/dbus/machine-id"].into_iter().find_map(line);
        let host = match machine {
            // The content that an image has before its first boot is no id.
            Some(machine) if machine != "uninitialized" => hash("onefold owner: machine", &machine),
            _ => hash("onefold owner: host name", &name),
        };
        let known = |context, text: Option<String>| text.map_or([0; 16], |text| hash(context, &text));
        Host {
            host,
            hardware: known("onefold owner: hardware", line("/sys/class/dmi/id/product_uuid")),
            boot: known("onefold owner: boot", line("/proc/sys/kernel/random/boot_id")),
            pid: std::process::id(),
            started: state_of("self").map_or(0, |(_, started)| started),
            pid_namespace: pid_namespace(),
            name: if name.is_empty() { "unknown".into() } else { name },
        }
    }
}

/// Reads the first line of a file, trimmed; `None` if it is empty.
fn line(path: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    text.lines().next().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned)
}

fn hash(context: &str, text: &str) -> [u8; 16] {
    let hash = blake3::derive_key(context, text.as_bytes());
    std::array::from_fn(|i| hash[i])
}

fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// Reads state and start of a process, as proc(5) has them.
fn state_of(process: &str) -> Option<(char, u64)> {
    let text = read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses, with any characters in it.
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Returns true if a process of our namespace that started then is still there, also where that cannot be seen.
pub fn is_running(pid: u32, started: u64) -> bool {
    let Some(number) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    if rustix::process::test_kill_process(number) == Err(rustix::io::Errno::SRCH) {
        return false;
    }
    // /proc may be another namespace's.
    let ours = std::fs::read_link("/proc/self").is_ok_and(|path| path == Path::new(&std::process::id().to_string()));
    match state_of(&pid.to_string()) {
        Some((state, since)) if ours => since == started && !matches!(state, 'Z' | 'X'),
        _ => true,
    }
}

/// Returns the start of a process in the kernel's ticks; 0 if it cannot be read. A number belongs to another process some time after its own has ended.
pub fn start_of(process: u32) -> u64 {
    state_of(&process.to_string()).map_or(0, |(_, started)| started)
}

/// Returns true if any process has a lock (flock) on this inode. A process that has died has it until its last write has ended.
pub fn is_locked(file_system: u64, inode: u64) -> bool {
    let place = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(file_system), rustix::fs::minor(file_system));
    let locks = read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().any(|lock| {
        let mut fields = lock.split_whitespace();
        fields.any(|field| field == "FLOCK") && fields.any(|field| field == place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_running_and_another_of_its_number_is_not() {
        let host = Host::current();
        assert!(host.started > 0 && host.boot != [0; 16]);
        assert!(is_running(host.pid, host.started));
        assert_eq!((start_of(host.pid), start_of(u32::MAX)), (host.started, 0));
        assert!(!is_running(host.pid, host.started + 1));
        assert!(!is_running(0, 0) && !is_running(u32::MAX, 0));
    }

    #[test]
    fn a_child_that_has_ended_is_not_running_though_nobody_has_waited_for_it() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (_, started) = state_of(&child.id().to_string()).unwrap();
        assert!(is_running(child.id(), started));
        child.kill().unwrap();
        while is_running(child.id(), started) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert!(!is_running(child.id(), started));
    }

    #[test]
    fn a_lock_is_seen_by_its_inode() {
        use std::os::unix::fs::MetadataExt;
        let path = std::env::temp_dir().join(format!("onefold-host-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        let metadata = file.metadata().unwrap();
        let is_seen = || is_locked(metadata.dev(), metadata.ino());
        assert!(!is_seen());
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        // Where the file system has numbers of its own for its files (btrfs), it is not.
        let shown = read_to_string("/proc/locks").unwrap_or_default();
        assert!(is_seen() || !shown.contains(&format!(":{} ", metadata.ino())));
        drop(file);
        std::fs::remove_file(&path).unwrap();
    }
}
