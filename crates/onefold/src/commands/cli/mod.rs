//! The command line in clap's terms: the commands here, their arguments in a file for each subject. The modules that `main` calls carry them out.

mod image;
mod pool;
mod relocate;
mod serve;
mod snapshot;
mod volume;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::operators::properties;
use crate::size;
use crate::version::VERSION;

pub use image::{Allow, EstimateArgs, ExportArgs, ImportArgs};
pub use pool::{CacheCommand, CheckArgs, CreateArgs, DedupArgs, GrowArgs, RepairArgs, ScrubArgs, StatusArgs};
pub use relocate::{ObjectsCommand, ProfileCommand, RelocateCommand, RunArgs};
pub use serve::{ConnectArgs, Form, ServeArgs};
pub use snapshot::{CloneArgs, HoldArgs, SnapshotCommand};
pub use volume::VolumeCommand;

/// A block device that stores every block once, served over NBD.
#[derive(Parser, Debug)]
#[command(
    version = VERSION,
    about,
    arg_required_else_help = true,
    after_help = "\
Start here:  onefold serve --create --size 10G disk.onefold
Sizes are in powers of 1024: 4096, 512MiB, 10G. Exit status: 0 success, 1 failure, 2 wrong usage."
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Open a pool although another host, or another container, has it: only when that has certainly ended
    #[arg(long, global = true)]
    pub take_over: bool,
    /// Memory for a command that opens a pool itself, because no server has it [default: 128M, or the need of the pool if that is no more
    /// than half of the available memory]
    #[arg(long, global = true, value_name = "SIZE", value_parser = size::parse_large)]
    pub memory: Option<u64>,
}

/// The pool that a command is about, served or not.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// File or block device of the pool
    pub pool: PathBuf,
    /// The control socket of its server, if that was started with --control
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// Commands of the program.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Make an empty pool in a file or on a block device
    Create(CreateArgs),
    /// Make a pool larger, also while it is served
    Grow(GrowArgs),
    /// Create, delete, resize, set and list the volumes of a pool
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Make, list and delete snapshots, and roll volumes back to them: the state of volumes at one moment, read as 'VOLUME@NAME'
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Make a volume, or many, with the content of a snapshot; it takes space only for its own writes
    Clone(CloneArgs),
    /// Note what clients read from the device, plan which shared blocks should lie together, and move them there
    #[command(subcommand)]
    Relocate(RelocateCommand),
    /// Say which blocks of a volume are which file of its guest, for the profile of device reads
    #[command(subcommand)]
    Objects(ObjectsCommand),
    /// Put a flash cache in front of a pool on slow disks, remove it, and show its hits and wear
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Serve the volumes of a pool over NBD until SIGTERM or Ctrl-C
    Serve(ServeArgs),
    /// Set properties of a pool: its memory and how that is shared, the policy of volumes that do not set one themselves, second copies,
    /// replicas, which copy its index names, or what its disk is
    Set {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Properties to set
        #[arg(value_name = "KEY=VALUE", required = true, help = properties::pool_help())]
        properties: Vec<String>,
    },
    /// Show the properties of a pool and where they come from
    Get {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Only this property
        #[arg(help = properties::pool_key_help())]
        key: Option<String>,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Bring an image (raw, qcow2 and others) into a volume, which is made if it is missing; also while the pool is served
    Import(ImportArgs),
    /// Make an image of a volume; also while the pool is served
    Export(ExportArgs),
    /// Show a pool's contents and savings
    Status(StatusArgs),
    /// Show a pool that is being served, in this terminal: savings, requests, memory, background work
    Top {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Print one frame and end: figures of one second
        #[arg(long)]
        once: bool,
    },
    /// Print what to paste to connect a client to a volume that is being served
    Connect(ConnectArgs),
    /// Read and verify everything, and repair damage from other copies; also while the pool is served
    Scrub(ScrubArgs),
    /// Find all blocks that are stored more than once, and store them once; also while the pool is served
    Dedup(DedupArgs),
    /// Audit everything that can be checked at rest; reads only
    Check(CheckArgs),
    /// Repair a damaged pool offline: rebuild its tables from its maps, and list losses
    Repair(RepairArgs),
    /// Estimate the savings for files, block devices and directories; reads only, and needs no pool
    Estimate(EstimateArgs),
    /// Print a completion script for a shell: 'onefold completions bash'
    Completions {
        /// Name of the shell
        shell: Shell,
    },
    /// Write the manual pages, one for each command
    Man {
        /// Folder to write to; created if missing
        folder: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_that_open_a_pool_themselves_take_memory() {
        for command in [
            "status p",
            "scrub p",
            "dedup p",
            "check p",
            "repair p --yes",
            "grow p --capacity 1G",
            "volume list p",
            "snapshot list p",
            "clone p v@s new",
            "get p",
            "set p a=b",
        ] {
            let words = ["onefold"].into_iter().chain(command.split(' ')).chain(["--memory", "2G"]);
            assert_eq!(Cli::try_parse_from(words).unwrap().memory, Some(2 << 30), "{command}");
        }
        let served = Cli::try_parse_from(["onefold", "serve", "p", "--memory", "2G"]).unwrap();
        assert!(matches!(served.command, Command::Serve(ServeArgs { memory: Some(memory), .. }) if memory == 2 << 30));
    }

    /// Collects the commands below `command`, with the words before them.
    fn leaves(command: &clap::Command, name: &str, found: &mut Vec<(String, clap::Command)>) {
        if !command.has_subcommands() {
            found.push((name.to_owned(), command.clone()));
        }
        for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
            leaves(command, &format!("{name} {}", command.get_name()), found);
        }
    }

    #[test]
    fn both_spellings_of_one_thing_are_taken_and_one_is_shown() {
        let (mut cli, mut found) = (Cli::command(), Vec::new());
        cli.build();
        leaves(&cli, "onefold", &mut found);
        let mut seen = 0;
        for pair in [["size", "capacity"], ["force", "overwrite"]] {
            for (name, command) in &found {
                for argument in command.get_arguments() {
                    let spellings: Vec<_> = argument.get_long_and_visible_aliases().unwrap_or_default();
                    let [shown] = spellings[..] else { continue };
                    let disconnects = ["volume delete", "volume resize", "snapshot delete", "snapshot rollback"];
                    let disconnects = disconnects.iter().any(|known| name == &format!("onefold {known}"));
                    if !pair.contains(&shown) || (shown == "force" && disconnects) {
                        continue;
                    }
                    seen += 1;
                    let all = argument.get_all_aliases().unwrap_or_default();
                    let other = if shown == pair[0] { pair[1] } else { pair[0] };
                    assert!(all.contains(&other), "{name} --{shown} is not taken as --{other}");
                }
            }
        }
        assert!(seen >= 9, "{seen}");
        for line in ["volume resize p v 1G", "volume resize p v --size 1G", "volume resize p v --capacity 1G"] {
            let cli = Cli::try_parse_from(["onefold"].into_iter().chain(line.split(' '))).unwrap();
            let Command::Volume(VolumeCommand::Resize { size, .. }) = cli.command else { panic!("{line}") };
            assert_eq!(size.bytes(), 1 << 30);
        }
        for line in [
            "volume resize p v",
            "volume resize p v 1G --size 1G",
            "create p --capacity 1G --size 1G",
            "create p --capacity 10",
        ] {
            assert!(Cli::try_parse_from(["onefold"].into_iter().chain(line.split(' '))).is_err(), "{line}");
        }
    }

    #[test]
    fn size_goes_with_create() {
        assert!(Cli::try_parse_from(["onefold", "serve", "p", "--create"]).is_err());
        assert!(Cli::try_parse_from(["onefold", "serve", "p", "--size", "1G"]).is_err());
        assert!(Cli::try_parse_from(["onefold", "serve", "--create", "--size", "10G", "p"]).is_ok());
    }
}
