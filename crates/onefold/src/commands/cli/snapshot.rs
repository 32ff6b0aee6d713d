//! Arguments of the commands about snapshots and clones.

use clap::{Args, Subcommand};

use super::Target;
use crate::operators::command::CLONES_MAX;

/// `onefold snapshot`.
#[derive(Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Make a snapshot of a volume, or of several at one moment; clients stay connected
    Create {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Volume and name of its snapshot; all snapshots of one command have one name: 1 to 63 letters, digits, '.', '_', '-' and ':', not
        /// starting with '.', '-' or ':'
        #[arg(value_name = "VOLUME@NAME", required = true)]
        snapshots: Vec<String>,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the snapshots, with the data that they hold and the number of their clones
    List {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Only those of this volume
        volume: Option<String>,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Hold snapshots: nothing deletes them until they are released
    Hold(HoldArgs),
    /// Release held snapshots: they can be deleted again
    Release(HoldArgs),
    /// Give a volume the content and the size of one of its snapshots again; all later writes are lost
    Rollback {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Snapshot to roll its volume back to
        #[arg(value_name = "VOLUME@NAME")]
        snapshot: String,
        /// Delete the volume's newer snapshots, too; those with clones stay
        #[arg(short = 'r', long)]
        delete_newer: bool,
        /// Disconnect the clients of the volume and of snapshots that are deleted
        #[arg(long)]
        force: bool,
        /// Do not ask, where a terminal is the input
        #[arg(long)]
        yes: bool,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete snapshots for good; their space comes back when no clone or volume inherits from it any more
    Delete {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Snapshots to delete: VOLUME@NAME, several of a volume as VOLUME@A,B, or a range by their creation as VOLUME@A%C, where the
        /// first or the last may be left out
        #[arg(value_name = "VOLUME@NAME", required = true)]
        snapshots: Vec<String>,
        /// Disconnect their clients
        #[arg(long)]
        force: bool,
        /// Do not ask, where a terminal is the input
        #[arg(long)]
        yes: bool,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `onefold snapshot hold` and `onefold snapshot release`.
#[derive(Args, Debug)]
pub struct HoldArgs {
    /// Pool: its file or block device
    #[command(flatten)]
    pub target: Target,
    /// Snapshots to hold or release
    #[arg(value_name = "VOLUME@NAME", required = true)]
    pub snapshots: Vec<String>,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `onefold clone`.
#[derive(Args, Debug)]
pub struct CloneArgs {
    /// Pool: its file or block device
    #[command(flatten)]
    pub target: Target,
    /// Snapshot to clone
    #[arg(value_name = "VOLUME@NAME")]
    pub snapshot: String,
    /// Name of the new volume
    pub name: String,
    /// Make N clones: NAME-1 to NAME-N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CLONES_MAX)))]
    pub count: Option<u32>,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}
