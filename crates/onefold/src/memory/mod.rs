//! Partition of the server's memory between clients, staging and the engine; the available memory, and the memory that a pool needs to be opened.

pub mod capacity;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use engine::{DeviceTraits, Geometry, Limits};
use tracing::warn;

use crate::io::arena::BLOCK;
use crate::memory::capacity::Connections;
use crate::size;

/// Blocks of staging for metadata on its way.
pub const STAGING_BLOCKS: usize = 1024;

/// Bytes that a server uses without a setting on a machine with at least twice as much.
const DEFAULT: u64 = 512 << 20;

/// Returns the bytes that a server uses without a setting.
pub fn default() -> u64 {
    usual(DEFAULT)
}

/// Returns `bytes`, or half of the memory that this process may have, if that is less: the rest is for the page cache, the program, and others.
pub fn usual(bytes: u64) -> u64 {
    bytes.min((allowed() / SHARE).max(1))
}

/// Warns of memory that is more than half of what this process may have. `what` names the source of the setting.
pub fn warn_of_much(memory: u64, what: &str) {
    if let Some(text) = too_much(memory, allowed()) {
        warn!("{what} {text}");
    }
}

fn too_much(memory: u64, allowed: u64) -> Option<String> {
    (memory > allowed / SHARE).then(|| {
        format!(
            "{} of memory, and this process may have {} (its control group's limit, or the machine): at more than half of that the kernel may \
             end it",
            size::show(memory),
            size::show(allowed)
        )
    })
}

/// Origin of the amount of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The default: no amount was set.
    Default,
    /// The pool: it was set.
    Pool,
    /// `--memory`.
    CommandLine,
}

impl Source {
    /// Returns the name that reports show.
    pub fn name(self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::Pool => "pool",
            Source::CommandLine => "command line",
        }
    }
}

/// Returns the memory of a pool that was set to `pool` bytes, and its source; 0 bytes mean the default.
pub fn of_pool(pool: u64) -> (u64, Source) {
    if pool == 0 { (default(), Source::Default) } else { (pool, Source::Pool) }
}

/// Partition of the memory among clients, staging and the engine.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPartition {
    /// All of it, in bytes.
    pub memory: u64,
    /// Number of clients that there can be.
    pub connections: Connections,
    /// Partition of the engine's part.
    pub limits: Limits,
}

impl MemoryPartition {
    /// Returns the same division for a pool on a disk of this kind.
    pub fn on(self, device: DeviceTraits) -> MemoryPartition {
        MemoryPartition { limits: Limits { device, ..self.limits }, ..self }
    }

    /// Divides `memory` bytes for a pool and up to `wanted` clients; if that is too little, fails with a sufficient number of bytes.
    pub fn new(memory: u64, geometry: &Geometry, wanted: u32) -> Result<MemoryPartition, u64> {
        let mut needed = 0;
        for connections in [Connections::within(memory, wanted), Connections::least(wanted)] {
            let others = (STAGING_BLOCKS * BLOCK) as u64 + connections.memory_bytes();
            match Limits::for_memory(memory.saturating_sub(others), geometry) {
                Ok(limits) => return Ok(MemoryPartition { memory, connections, limits }),
                Err(least) => needed = (least + others).next_multiple_of(1 << 20),
            }
        }
        Err(needed)
    }
}

/// Divides the memory, of which `taken` bytes are for others than the engine. A read-only command takes at least the memory that the pool needs.
pub fn divide(
    memory: u64,
    taken: u64,
    geometry: &Geometry,
    serving: bool,
    wanted: u32,
) -> anyhow::Result<MemoryPartition> {
    anyhow::ensure!(
        geometry.block_size as usize == BLOCK,
        "this pool has blocks of {} bytes; this program serves pools with blocks of {BLOCK} bytes",
        geometry.block_size
    );
    let installed = installed();
    anyhow::ensure!(
        !serving || memory <= installed,
        "{} of memory were requested (--memory, or the pool's setting), and this machine has {}: lower it",
        size::show(memory),
        size::show(installed)
    );
    let divided = |memory: u64| match MemoryPartition::new(memory.saturating_sub(taken), geometry, wanted) {
        Ok(MemoryPartition { connections, limits, .. }) => {
            // The limit is one of the whole memory. With one of the engine's part, it would fall as volumes take theirs.
            let limits = Limits { volumes: Limits::volumes_within(memory), ..limits };
            Ok(MemoryPartition { memory, connections, limits })
        }
        Err(needed) => Err(needed + taken),
    };
    match divided(memory) {
        Ok(partition) => Ok(partition),
        Err(needed) if !serving && needed > installed => anyhow::bail!(
            "this pool needs {} of memory, and this machine has {}",
            size::show(needed),
            size::show(installed)
        ),
        Err(needed) if !serving => {
            divided(needed).map_err(|needed| anyhow::anyhow!("this pool needs {} of memory", size::show(needed)))
        }
        Err(needed) => anyhow::bail!(
            "{} of memory are too little for this pool: {}M would do",
            size::show(memory),
            needed.div_ceil(1 << 20)
        ),
    }
}

/// Upper bound of the search for a pool's memory: no larger amount is an answer.
const MOST_NEEDED: u64 = 1 << 50;

/// A pool that was last served with more memory, and left more to replay than this memory has space for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLittle {
    /// The memory that is too little, in bytes.
    pub had: u64,
    /// Bytes that would be enough, in whole MiB; `None` if no amount would.
    pub needed: Option<u64>,
}

impl TooLittle {
    /// Searches for the least memory that is enough to replay, in MiB above `had`; `fits` judges a number of bytes.
    pub fn new(had: u64, fits: impl Fn(u64) -> bool) -> TooLittle {
        let after = |mebibytes: u64| had.checked_add(mebibytes << 20)?.checked_next_multiple_of(1 << 20);
        let fits = |mebibytes: u64| after(mebibytes).is_some_and(&fits);
        let doubled = (0..=MOST_NEEDED.ilog2() - 20).map(|power| 1 << power);
        let Some(mut enough) = doubled.into_iter().find(|&mebibytes| fits(mebibytes)) else {
            return TooLittle { had, needed: None };
        };
        let mut less = enough / 2;
        while enough - less > 1 {
            let middle = less.midpoint(enough);
            if fits(middle) { enough = middle } else { less = middle }
        }
        TooLittle { had, needed: after(enough) }
    }

    /// Returns the memory that would be enough, as an argument of `--memory`.
    pub fn argument(&self) -> Option<String> {
        self.needed.map(|needed| format!("{}M", needed >> 20))
    }
}

impl fmt::Display for TooLittle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let had = size::show(self.had);
        write!(
            f,
            "it was last served with more memory: {had} are too little for what that left in its journal or its map buffer"
        )?;
        match self.argument() {
            Some(enough) => write!(f, ", {enough} would do"),
            None => f.write_str(", and no machine has what would do"),
        }
    }
}

impl std::error::Error for TooLittle {}

/// Divisor of the available memory: the maximum of a command that opens a pool itself, unless its memory is set.
const SHARE: u64 = 2;

static GIVEN: OnceLock<u64> = OnceLock::new();

/// Sets the `--memory` of a command that opens a pool itself, once, before it opens anything. Fails if the machine has less.
pub fn give(bytes: u64) -> anyhow::Result<()> {
    let installed = installed();
    let (wanted, has) = (size::show(bytes), size::show(installed));
    anyhow::ensure!(bytes <= installed, "--memory asks for {wanted}, and this machine has {has}: ask for less");
    warn_of_much(bytes, "--memory asks for");
    let _ = GIVEN.set(bytes);
    Ok(())
}

/// Returns the `--memory` of a command that opens a pool itself; `None` without the option.
pub fn given() -> Option<u64> {
    GIVEN.get().copied()
}

/// Returns the memory that the pool needs, for another attempt of a command that had too little to open it. Fails if `--memory` was given, or if the pool needs
/// more than half of the available memory.
pub fn more(too_little: &TooLittle) -> anyhow::Result<u64> {
    more_of(too_little, given(), available().unwrap_or(u64::MAX))
}

fn more_of(too_little: &TooLittle, given: Option<u64>, available: u64) -> anyhow::Result<u64> {
    let (Some(needed), Some(argument)) = (too_little.needed, too_little.argument()) else {
        return Err(anyhow::Error::new(*too_little));
    };
    anyhow::ensure!(given.is_none(), "{too_little}: say --memory {argument}");
    anyhow::ensure!(
        needed <= available / SHARE,
        "{too_little}. That is more than half of the memory that is available here ({}): say --memory {argument} to take it all the \
         same, or stop something",
        size::show(available)
    );
    Ok(needed)
}

/// Returns the machine's memory in bytes; `u64::MAX` if the system does not tell.
pub fn installed() -> u64 {
    of_machine("MemTotal:").unwrap_or(u64::MAX)
}

/// Returns the bytes of memory that the machine has available, but at most the limit of this process's control groups; `None` if the system tells neither.
pub fn available() -> Option<u64> {
    [of_machine("MemAvailable:"), limit_of_groups()].into_iter().flatten().min()
}

/// Returns the bytes of memory that this process may have: the machine's, or less by the limits of its control groups.
pub fn allowed() -> u64 {
    limit_of_groups().map_or(installed(), |limit| limit.min(installed()))
}

fn limit_of_groups() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    least_limit(&groups, |path| std::fs::read_to_string(path).ok())
}

fn of_machine(line: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|text| text.strip_prefix(line))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024))
}

/// Returns the least limit of the control groups that `groups` names (as /proc/PID/cgroup does, see cgroups(7)) and of those above them. In a container these
/// are the ones that it can see; of version 1 it is also told what those above allow.
fn least_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (root, files) = match controllers {
            // Beyond memory.high a process is delayed until it has given memory back.
            "" => ("/sys/fs/cgroup", ["memory.max", "memory.high"]),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.stat"])
            }
            _ => continue,
        };
        let group = PathBuf::from(root).join(group.trim_start_matches('/'));
        for folder in group.ancestors().take_while(|folder| folder.starts_with(root)) {
            for file in files {
                let limit = read(&folder.join(file)).and_then(|text| limit_in(&text));
                least = [least, limit].into_iter().flatten().min();
            }
        }
    }
    least
}

/// Parses the limit in a file of a control group: the number in it, or one of a list; "max" means none.
fn limit_in(text: &str) -> Option<u64> {
    let listed = text.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit "));
    listed.unwrap_or(text).trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sizes in whole GiB of the largest pool that is served with `memory` bytes, and of the largest whose index entries prove equality without a
    /// comparison.
    fn largest_pools_gib(memory: u64) -> [u64; 2] {
        let fits = |gib: u64, is_good: &dyn Fn(&Limits, &Geometry) -> bool| {
            let Ok(geometry) = Geometry::for_capacity(gib << 30) else { return false };
            MemoryPartition::new(memory, &geometry, 1024).is_ok_and(|partition| is_good(&partition.limits, &geometry))
        };
        let largest = |is_good: &dyn Fn(&Limits, &Geometry) -> bool| {
            (0..18).rev().fold(0, |gib, bit| if fits(gib + (1 << bit), is_good) { gib + (1 << bit) } else { gib })
        };
        [largest(&|_, _| true), largest(&Limits::index_proves)]
    }

    /// Compares with the table of docs/guide/memory.md.
    #[test]
    fn the_largest_pools_are_those_of_the_documents() {
        let table = [64u64, 128, 512, 1024, 4096].map(|mebibytes| (mebibytes, largest_pools_gib(mebibytes << 20)));
        let of_documents = [[9281, 507], [35_496, 2043], [192_782, 8187], [262_139, 16_379], [262_139, 65_531]];
        assert_eq!(table.map(|(_, gib)| gib), of_documents, "{table:?}");
    }

    /// Checks the limit that guides state, a volume for each 4 KiB. Clients, staging and volumes take memory, and 128 MiB ended at 27,778 volumes.
    #[test]
    fn the_limit_of_volumes_is_one_of_the_whole_memory() {
        let geometry = Geometry::for_capacity(4 << 30).unwrap();
        for (mebibytes, volumes) in [(64u64, 16_384), (128, 32_768), (512, 32_768)] {
            for taken in [0, 12 << 20] {
                let partition = divide(mebibytes << 20, taken, &geometry, true, 1024).unwrap();
                assert_eq!(partition.limits.volumes, volumes, "{mebibytes} MiB, of which {taken} bytes are taken");
            }
        }
    }

    #[test]
    fn what_is_too_little_says_what_would_do() {
        for (capacity, memory) in [(1u64 << 30, 1u64 << 20), (1 << 40, 32 << 20), (100 << 40, 64 << 20)] {
            let geometry = Geometry::for_capacity(capacity).unwrap();
            let needed = MemoryPartition::new(memory, &geometry, 1024).unwrap_err();
            assert!(MemoryPartition::new(needed, &geometry, 1024).is_ok(), "{capacity}: {needed}");
        }
    }

    #[test]
    fn what_a_journal_needs_is_the_least_that_is_enough() {
        for enough in [129u64 << 20, 192 << 20, 5 << 30, 1 << 45] {
            let too_little = TooLittle::new(128 << 20, |memory| memory >= enough);
            assert_eq!(too_little.needed, Some(enough.next_multiple_of(1 << 20)));
        }
        assert_eq!(TooLittle::new(128 << 20, |_| false).needed, None);
        // The caller's test: no memory has space for u64::MAX entries, which only a made-up pool has.
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        let fits = |memory, entries| {
            MemoryPartition::new(memory, &geometry, 1)
                .is_ok_and(|it| it.limits.replayable_entries(&geometry) >= entries)
        };
        for entries in [0, 1 << 20, 1 << 24, u64::MAX] {
            for had in [0, 64 << 20, u64::MAX - 1, u64::MAX] {
                let needed = TooLittle::new(had, |memory| fits(memory, entries)).needed;
                assert!(needed.is_none_or(|needed| fits(needed, entries) && needed > had), "{had} {entries}");
            }
        }
    }

    #[test]
    fn a_command_takes_what_the_pool_needs_or_says_which_switch_does() {
        let too_little = TooLittle { had: 128 << 20, needed: Some(300 << 20) };
        assert_eq!(more_of(&too_little, None, 600 << 20).unwrap(), 300 << 20);
        for (given, available) in [(None, 599 << 20), (Some(128 << 20), u64::MAX)] {
            let refused = more_of(&too_little, given, available).unwrap_err().to_string();
            assert!(refused.contains("--memory 300M"), "{refused}");
        }
        assert!(more_of(&TooLittle { needed: None, ..too_little }, None, u64::MAX).is_err());
    }

    #[test]
    fn the_least_limit_of_all_control_groups_counts() {
        let limits = [
            ("/sys/fs/cgroup/a.slice/memory.max", "max\n"),
            ("/sys/fs/cgroup/a.slice/b.service/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "536870912\n"),
            // A container that sees itself as the root; and a limit beyond which there is only a brake.
            (
                "/sys/fs/cgroup/memory/memory.stat",
                "cache 7\nhierarchical_memory_limit 314572800\nhierarchical_memsw_limit 9\n",
            ),
            ("/sys/fs/cgroup/brake/memory.high", "209715200\n"),
        ];
        let of = |groups: &str| {
            least_limit(groups, |path| {
                limits.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| text.to_string())
            })
        };
        assert_eq!(of("0::/a.slice/b.service\n"), Some(1 << 30));
        assert_eq!(of("0::/a.slice\n"), None);
        assert_eq!(of("12:cpu,memory:/docker/x\n3:cpuset:/a.slice/b.service\n"), Some(300 << 20));
        assert_eq!(of("4:memory:/another\n"), Some(300 << 20));
        assert_eq!(of("0::/brake/below\n"), Some(200 << 20));
        assert_eq!(of(""), None);
        assert_eq!(of("nonsense\n:\n::/../../x\n0::\n"), None);
    }

    #[test]
    fn more_than_half_of_what_is_allowed_is_warned_of() {
        assert_eq!(too_much(150 << 20, 300 << 20), None);
        assert!(too_much(151 << 20, 300 << 20).unwrap().contains("may have 300 MiB"));
        assert_eq!(too_much(u64::MAX / 2, u64::MAX), None);
    }

    /// Tests that 64 MiB are enough for 4 TiB, and for more than opening it.
    #[test]
    fn little_memory_is_of_use() {
        let geometry = Geometry::for_capacity(4 << 40).unwrap();
        let limits = MemoryPartition::new(64 << 20, &geometry, 1024).unwrap().limits;
        assert!(limits.write_buffers >= 2 * geometry.piece_blocks && limits.pages >= 2000, "{limits:?}");
    }
}
