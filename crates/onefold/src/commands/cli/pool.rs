//! Arguments of commands about a pool as a whole: made, grown, its flash cache, status, passes, check and repair.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use engine::DeviceKind;

use super::Target;
use crate::size;

/// Reads a share of metadata: whole percent of the capacity, with or without the sign.
fn parse_share(text: &str) -> Result<u64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse().ok();
    number
        .filter(|percent| (1..=100).contains(percent))
        .ok_or_else(|| format!("'{text}' is no share: write it like 10%, from 1% to 100%"))
}

/// `onefold create`.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// File (made if it is missing) or block device
    pub pool: PathBuf,
    /// Capacity for data, at least 16M; the file may grow larger than this by the pool's own tables
    #[arg(long, alias = "size", value_parser = size::parse_large)]
    pub capacity: u64,
    /// Space for maps and tables in percent of the capacity, where that is more than usual (a 32nd of it and of the spare containers, and 32 MiB):
    /// for many clones of the same images (docs/guide/sizing.md)
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub metadata: Option<u64>,
    /// Kind of the disk: hdd (rotational), ssd, or auto: as the system says whenever the pool is opened
    #[arg(long, default_value = "auto")]
    pub device: DeviceKind,
    /// Overwrite whatever the file or device holds
    #[arg(long, alias = "overwrite")]
    pub force: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `onefold grow`.
#[derive(Args, Debug)]
pub struct GrowArgs {
    /// Pool: its file or block device
    #[command(flatten)]
    pub target: Target,
    /// New capacity for data, in total; a device must have been made larger before
    #[arg(long, alias = "size", value_parser = size::parse_large, required_unless_present = "metadata")]
    pub capacity: Option<u64>,
    /// New space for maps and tables, in total; possible at most seven times in the life of a pool
    #[arg(long, value_name = "SIZE", value_parser = size::parse_large)]
    pub metadata: Option<u64>,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `onefold cache`.
#[derive(Subcommand, Debug)]
pub enum CacheCommand {
    /// Make a file or a block device the cache of a pool. While the pool is served, it is in use at once; each later start names it with
    /// 'serve --flash'
    Attach {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// File (made with --size if it is missing) or block device on flash
        device: PathBuf,
        /// Bytes of it to use [default: all of it]
        #[arg(long, alias = "capacity", value_parser = size::parse_large)]
        size: Option<u64>,
        /// Bytes that may be written to it in a day, such as 20G/day [default: its size]. One filling of it comes on top, once a start
        #[arg(long, value_name = "SIZE/day", value_parser = parse_budget)]
        write_budget: Option<u64>,
        /// Bytes that may be written to it in its life, as its maker says (TBW): then 'cache status' says how long it lasts
        #[arg(long, value_name = "SIZE", value_parser = size::parse_large)]
        tbw: Option<u64>,
        /// Overwrite whatever the file or device holds
        #[arg(long, alias = "overwrite")]
        force: bool,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Take the cache away from a pool that is served. Nothing is lost: it has copies only
    Detach {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the cache's contents, hit rate, writes and expected life
    Status {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Parses a size for each day: `20G/day`, or `20G`.
fn parse_budget(text: &str) -> Result<u64, String> {
    size::parse_large(text.strip_suffix("/day").unwrap_or(text))
}

/// `onefold status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Pool: its file or block device
    #[command(flatten)]
    pub target: Target,
    /// Show every figure, and all volumes
    #[arg(long, conflicts_with_all = ["json", "prometheus"])]
    pub all: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
    /// Report as metrics in Prometheus' text format
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,
    /// Wait first until nothing is unmerged or pending, so that all figures are exact. Where no server runs, this opens the pool and
    /// writes to it
    #[arg(long)]
    pub settle: bool,
    /// Recover a pool that was not closed cleanly and that no server has, and close it. Without this, looking writes nothing
    #[arg(long)]
    pub recover: bool,
}

/// `onefold scrub`.
#[derive(Args, Debug)]
pub struct ScrubArgs {
    /// Pool: its file or block device
    #[command(flatten)]
    pub target: Target,
    /// Wait for the end; the exit status then says whether damage is left. Where no server runs, that is always so
    #[arg(long, conflicts_with_all = ["pause", "stop"])]
    pub wait: bool,
    /// Let the scrub rest; the next 'onefold scrub' goes on where it was
    #[arg(long, conflicts_with = "stop")]
    pub pause: bool,
    /// End the scrub
    #[arg(long)]
    pub stop: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `onefold dedup`.
#[derive(Args, Debug)]
pub struct DedupArgs {
    /// Pool: its file or block device
    #[command(flatten)]
    pub target: Target,
    /// Wait for the end. Where no server runs, that is always so
    #[arg(long, conflicts_with_all = ["pause", "stop"])]
    pub wait: bool,
    /// Let the pass rest; the next 'onefold dedup' goes on where it was
    #[arg(long, conflicts_with = "stop")]
    pub pause: bool,
    /// End the pass; shared blocks stay shared
    #[arg(long)]
    pub stop: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `onefold check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// File or block device of the pool
    pub pool: PathBuf,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `onefold repair`.
#[derive(Args, Debug)]
pub struct RepairArgs {
    /// File or block device of the pool
    pub pool: PathBuf,
    /// Print the repair and the losses; write nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Do it
    #[arg(long)]
    pub yes: bool,
    /// Read all data too, and give up the blocks that do not match their digests
    #[arg(long)]
    pub data: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}
