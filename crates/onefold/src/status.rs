//! What `status` and `volume list` report: one set of figures, as JSON and for people.

use engine::{Engine, Failure, Mode, Policy, VolumeId};
use serde::{Deserialize, Serialize};

use crate::memory::Source;
use crate::size;

/// Version of the JSON that `status` and `volume list` print.
pub const VERSION: u32 = 1;

/// A pool's figures. `*_blocks*` are blocks of 4096 bytes.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Report {
    /// Version of this format.
    pub version: u32,
    /// Bytes of data that fit.
    pub capacity_bytes: u64,
    /// Mapped, non-zero blocks of all volumes.
    pub logical_blocks_used: u64,
    /// Slots that hold them.
    pub data_blocks_used: u64,
    /// Blocks of the pool's own tables.
    pub overhead_blocks_used: u64,
    /// Data in percent of the capacity: from 80 on the pool is nearly full.
    pub data_percent: u64,
    /// Metadata in use in percent of what there is.
    pub metadata_percent: u64,
    /// Blocks freed and not yet usable.
    pub pending_blocks: u64,
    /// Blocks in discarded ranges and deleted volumes that are still to be freed in the background: at most so many.
    pub discarded_blocks: u64,
    /// Mappings that are not counted exactly yet.
    pub unmerged_entries: u64,
    /// (logical - data) / logical, in percent.
    pub saving_percent: f64,
    /// Memory in use.
    pub memory_bytes: u64,
    /// Memory that may be used.
    pub memory_cap_bytes: u64,
    /// Who said so: `default`, `pool` or `command line`.
    pub memory_source: String,
    /// Whether memory that is in use beyond the cap is still to be given back.
    pub memory_resizing: bool,
    /// `normal`, `recovering` or `read-only`.
    pub mode: String,
    /// Why the pool has failed, if it has: it is read-only until it is repaired.
    #[serde(default)]
    pub failure: Option<String>,
    /// The pool's policy, if it is set.
    pub pool_policy: Option<String>,
    /// The volumes.
    pub volumes: Vec<VolumeReport>,
}

/// A volume's figures.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct VolumeReport {
    /// Its name, which is also the name of its export.
    pub name: String,
    /// Its size as clients see it.
    pub size_bytes: u64,
    /// `native` or `full`.
    pub policy: String,
    /// Who set that: `default`, `pool` or `volume`.
    pub policy_source: String,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Clients connected to it.
    pub clients: usize,
    /// Mapped, non-zero blocks.
    pub logical_blocks_used: u64,
}

impl Report {
    /// The engine's figures now.
    pub fn new(engine: &Engine, memory: (u64, Source), clients: impl Fn(VolumeId) -> usize) -> Report {
        let status = engine.status();
        let volumes = engine.volumes().map(|volume| VolumeReport {
            name: volume.name.clone(),
            size_bytes: volume.size,
            policy: policy_name(engine.policy_of(volume)).into(),
            policy_source: match (volume.policy, engine.pool_policy()) {
                (Some(_), _) => "volume".into(),
                (None, Some(_)) => "pool".into(),
                (None, None) => "default".into(),
            },
            read_only: volume.read_only,
            clients: clients(volume.id),
            logical_blocks_used: volume.logical_blocks_used,
        });
        Report {
            version: VERSION,
            capacity_bytes: status.capacity_bytes,
            logical_blocks_used: status.logical_blocks_used,
            data_blocks_used: status.data_blocks_used,
            overhead_blocks_used: status.overhead_blocks_used,
            data_percent: percent(status.data_blocks_used, status.capacity_bytes / 4096),
            metadata_percent: percent(status.metadata_blocks_used, status.metadata_blocks),
            pending_blocks: status.pending_blocks,
            discarded_blocks: status.discarded_blocks,
            unmerged_entries: status.unmerged_entries,
            saving_percent: saving_percent(status.logical_blocks_used, status.data_blocks_used),
            memory_bytes: status.memory_bytes,
            memory_cap_bytes: memory.0,
            memory_source: memory.1.name().into(),
            memory_resizing: engine.is_resizing(),
            mode: mode_name(status.mode).into(),
            failure: status.failure.map(|failure| failure_text(failure).into()),
            pool_policy: engine.pool_policy().map(|policy| policy_name(policy).into()),
            volumes: volumes.collect(),
        }
    }

    /// For people.
    pub fn text(&self, pool: &str) -> String {
        let blocks = |count: u64| size::show(count.saturating_mul(4096));
        let settled = self.unmerged_entries == 0 && self.pending_blocks == 0;
        let mut text = format!("{pool}: {}\n\n", self.mode);
        let mut row = |name: &str, value: String| text.push_str(&format!("  {name:<12}{value}\n"));
        if let Some(failure) = &self.failure {
            row("failed", format!("{failure}: read-only until 'onefold repair' has lifted it"));
        }
        row("capacity", size::show(self.capacity_bytes));
        row("logical", format!("{:<12}what the volumes hold", blocks(self.logical_blocks_used)));
        row("data", format!("{:<12}what is stored for it", blocks(self.data_blocks_used)));
        row("saving", format!("{:.1} %", self.saving_percent));
        row("overhead", format!("{:<12}the pool's own tables", blocks(self.overhead_blocks_used)));
        let resizing = if self.memory_resizing { " (resizing)" } else { "" };
        let (used, cap) = (size::show(self.memory_bytes), size::show(self.memory_cap_bytes));
        row("memory", format!("{used} of {cap}{resizing}"));
        if self.discarded_blocks > 0 {
            row(
                "freeing",
                format!("{:<12}at most, discarded or deleted, in the background", blocks(self.discarded_blocks)),
            );
        }
        let (data, metadata) = (self.data_percent, self.metadata_percent);
        for (percent, what) in [(data, "capacity"), (metadata, "room for maps and tables")] {
            if percent >= 80 {
                row(
                    "nearly full",
                    format!("{percent} % of the {what}: trim or delete what is not needed, or grow the pool"),
                );
            }
        }
        if !settled {
            let (unmerged, pending) = (self.unmerged_entries, self.pending_blocks);
            row("unsettled", format!("{unmerged} mappings, {pending} blocks; --settle waits for exact figures"));
        }
        text.push('\n');
        text.push_str(&volumes_text(&self.volumes));
        text
    }
}

/// A table of volumes, for people.
pub fn volumes_text(volumes: &[VolumeReport]) -> String {
    if volumes.is_empty() {
        return "no volumes yet: make one with 'onefold volume create POOL NAME --size SIZE'\n".into();
    }
    let width = volumes.iter().map(|volume| volume.name.len()).max().unwrap_or(0).max(6) + 2;
    let mut text = format!("  {:<width$}{:<12}{:<8}holds\n", "volume", "size", "policy");
    for volume in volumes {
        let holds = size::show(volume.logical_blocks_used.saturating_mul(4096));
        let (name, size) = (&volume.name, size::show(volume.size_bytes));
        let locked = if volume.read_only { ", read-only" } else { "" };
        text.push_str(&format!("  {name:<width$}{size:<12}{:<8}{holds}{locked}\n", volume.policy));
    }
    text
}

/// The policy as it is written on the command line.
pub fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Native => "native",
        Policy::Full => "full",
    }
}

/// A policy from its name.
pub fn policy_from(name: &str) -> Option<Policy> {
    match name {
        "native" => Some(Policy::Native),
        "full" => Some(Policy::Full),
        _ => None,
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Recovering => "recovering",
        Mode::Normal => "normal",
        Mode::ReadOnly => "read-only",
    }
}

/// Why a pool has failed, in words.
pub fn failure_text(failure: Failure) -> &'static str {
    match failure {
        Failure::Write => "a write to the store failed",
        Failure::Sync => "a sync of the store failed",
        Failure::Page => "a page of metadata cannot be read or is damaged",
        Failure::Contradiction => "the pool's tables contradict each other",
    }
}

/// Whole percents.
fn percent(part: u64, all: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(all.max(1))).unwrap_or(u64::MAX)
}

fn saving_percent(logical: u64, data: u64) -> f64 {
    if logical == 0 {
        return 0.0;
    }
    (logical as f64 - data as f64) / logical as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saving_is_the_share_that_is_not_stored() {
        assert_eq!(saving_percent(0, 0), 0.0);
        assert_eq!(saving_percent(200, 50), 75.0);
        assert_eq!(saving_percent(10, 10), 0.0);
        assert_eq!(saving_percent(10, 20), -100.0);
    }

    #[test]
    fn policies_have_names_that_read_back() {
        for policy in [Policy::Native, Policy::Full] {
            assert_eq!(policy_from(policy_name(policy)), Some(policy));
        }
        assert_eq!(policy_from("select"), None);
    }

    #[test]
    fn the_table_lines_up() {
        let volume = |name: &str| VolumeReport {
            name: name.into(),
            size_bytes: 10 << 30,
            policy: "full".into(),
            policy_source: "default".into(),
            read_only: false,
            clients: 0,
            logical_blocks_used: 256,
        };
        let text = volumes_text(&[volume("a"), volume("a-long-name")]);
        let columns: Vec<_> = text.lines().skip(1).map(|line| line.find("10 GiB")).collect();
        assert_eq!(columns[0], columns[1]);
        assert!(text.contains("1 MiB"));
    }
}
