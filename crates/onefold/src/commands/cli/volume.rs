//! Arguments of the commands about volumes.

use clap::{Args, Subcommand};

use super::Target;
use crate::operators::properties::{self, policy_value};
use crate::size;

/// `onefold volume`.
#[derive(Subcommand, Debug)]
pub enum VolumeCommand {
    /// Create a volume; it is served under its name to every new connection. A pool holds one volume for each 4 KiB of memory, 32,768 at most
    Create {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// 1 to 63 letters, digits, '.', '_' and '-', not starting with '.' or '-'
        name: String,
        /// Size as clients see it, a multiple of 4096; it may exceed the pool's capacity
        #[arg(long, alias = "capacity", value_parser = size::parse)]
        size: u64,
        /// Deduplication policy: none (native; observe also counts duplicates), every known block (full), blocks that make
        /// requests cheaper (select, select:T, select:T,request), runs (idedup, idedup:T), or the pool's (inherit)
        #[arg(long, value_parser = policy_value, default_value = "inherit")]
        policy: String,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete volumes for good; refused while clients are connected to one, or while one has snapshots
    Delete {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Names of the volumes
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Delete their snapshots, too; clones of these keep their content
        #[arg(long)]
        snapshots: bool,
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
    /// Change the size of a volume; connected clients see it when they connect again
    #[command(override_usage = "onefold volume resize [OPTIONS] <POOL> <NAME> <SIZE>")]
    Resize {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Name of the volume
        name: String,
        /// The new size
        #[command(flatten)]
        size: NewSize,
        /// Shrink it: data beyond the new end is lost
        #[arg(long)]
        force: bool,
        /// Disconnect its clients when it is done: QEMU with reconnect-delay reconnects and sees the new size. Not for nbd-client, which
        /// ends where a size has changed
        #[arg(long)]
        reconnect: bool,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Rename a volume, and its snapshots with it, or a snapshot; clients stay connected, and find it under the new name when they connect again
    Rename {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Name of the volume, or VOLUME@NAME of a snapshot
        name: String,
        /// The new name: 1 to 63 letters, digits, '.', '_' and '-', not starting with '.' or '-'; of a snapshot behind VOLUME@
        #[arg(value_name = "NEW")]
        new_name: String,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Set properties of a volume
    #[command(about = properties::volume_help())]
    Set {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Name of the volume
        name: String,
        /// Properties to set, such as policy=native
        #[arg(value_name = "KEY=VALUE", required = true)]
        properties: Vec<String>,
    },
    /// Show the properties of a volume and where they come from
    Get {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Name of the volume
        name: String,
        /// Only this property
        #[arg(help = properties::volume_key_help())]
        key: Option<String>,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the volumes
    List {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
}

/// The new size of a volume, as an argument; `--size` is taken, too, as where a volume is made.
#[derive(Args, Debug)]
pub struct NewSize {
    /// The new size, a multiple of 4096
    #[arg(value_name = "SIZE", value_parser = size::parse, required_unless_present = "size", conflicts_with = "size")]
    positional: Option<u64>,
    /// The same
    #[arg(long, alias = "capacity", hide = true, value_parser = size::parse)]
    size: Option<u64>,
}

impl NewSize {
    /// Returns the size in bytes, by either spelling; 0 if neither is given.
    pub fn bytes(&self) -> u64 {
        self.positional.or(self.size).unwrap_or(0)
    }
}
