//! Arguments of the commands about relocation: the profile of device reads, objects, plans and runs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Target;
use crate::size;

/// `onefold relocate`.
#[derive(Subcommand, Debug)]
pub enum RelocateCommand {
    /// The profile of device reads that the server keeps
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Show which volumes would have shared blocks moved, how much that is, and the device reads that it saves
    Plan {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make that plan and run it in the background: blocks that are read together are moved next to each other
    Run(RunArgs),
}

/// `onefold relocate run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Pool: its file or block device
    #[command(flatten)]
    pub target: Target,
    /// Move no more than this
    #[arg(long, value_name = "SIZE", value_parser = size::parse_large, conflicts_with_all = ["pause", "stop"])]
    pub budget: Option<u64>,
    /// Wait for the end
    #[arg(long, conflicts_with_all = ["pause", "stop"])]
    pub wait: bool,
    /// Let the run rest; the next 'onefold relocate run' goes on with it
    #[arg(long, conflicts_with = "stop")]
    pub pause: bool,
    /// End the run; moved blocks stay where they are
    #[arg(long)]
    pub stop: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `onefold objects`.
#[derive(Subcommand, Debug)]
pub enum ObjectsCommand {
    /// Read a manifest of a guest's files into the profile of a pool that is served. It takes the place of the volume's last one
    Import {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Name of the volume
        volume: String,
        /// Output of 'filefrag -v' in the guest, or lines of OFFSET LENGTH NAME in bytes; '-' is the input
        file: PathBuf,
        /// Offset of the guest's file system in the volume: that of its partition
        #[arg(long, value_parser = size::parse)]
        offset: Option<u64>,
    },
}

/// `onefold relocate profile`.
#[derive(Subcommand, Debug)]
pub enum ProfileCommand {
    /// Start to profile reads; it takes 12.5 MiB of the server's memory
    Start {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
    },
    /// Stop profiling, and discard the profile
    Stop {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
    },
    /// Save the profile to a file: there it survives the end of the server
    Save {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// The file; a saved profile that is there is replaced
        file: PathBuf,
    },
    /// Load a profile that was saved from the same pool, in place of the present one, and continue profiling
    Load {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// The file
        file: PathBuf,
    },
    /// Show the profile
    Show {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
}
