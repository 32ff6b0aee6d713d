//! The command line in clap's terms. The modules that `main` calls carry it out.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use engine::{DeviceKind, Policy};

use crate::commands::estimate;
use crate::frontend::nbd::listen::Address;
use crate::frontend::nbd::tls::Mode;
use crate::log::Level;
use crate::operators::properties::policy_value;
use crate::size;
use crate::transfer::format;
use crate::version::VERSION;

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
        /// Properties to set, such as memory=2G.
        /// policy: as for volumes, inherit is the default; memory: a size, or default (512M), at once, also while serving;
        /// second-copies: a number of references beyond which 'scrub' gives a block a second copy, or off (the default);
        /// replicas: a size that copies may take which make scattered blocks sequential again when the pool is idle, off or default;
        /// index-copy: the copy that is known of a block that was written again: sequential (the default), oldest or newest;
        /// defrag: how much is moved to put in order what readers found scattered: auto (the default: 1.5 blocks for
        /// each that is written), off, or a size that may be moved in a day;
        /// cache: how index and read cache share memory: adaptive (the default), adaptive:paper, fixed:P (percent for the index), index or
        /// read, each also with ,lru;
        /// cache-key: key of the read cache: sector (block addresses, the default), content (equal blocks are kept
        /// once) or off (it keeps nothing);
        /// device: kind of disk: hdd (rotational), ssd, or auto (the default: detected), at once, also while serving;
        /// dedup-verify: what 'dedup' reads before blocks share a place: kept (the block that is kept, the default), both (and compares them) or off;
        /// relocate: when the server profiles reads, plans and runs 'relocate' automatically: auto (when the pool is idle), hours of the day, such as
        /// 22-06, or off (the default);
        /// throttle: what sets the pace of 'dedup' beside clients: share (of the device, the default), paper (HIODS' delay before each block)
        /// or paper:0.001 (the same with its other gain);
        /// flash-policy: which containers are copied to the flash of 'cache attach': budget (the default: the fewer of the day's writes are left, the
        /// more often one must have been read), or paper (PLC-Cache's modules, also as paper:filter=5,delay=3,comparison=1.5, each also off)
        #[arg(value_name = "KEY=VALUE", required = true)]
        properties: Vec<String>,
    },
    /// Show the properties of a pool and where they come from
    Get {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Only this property: policy, memory, second-copies, replicas, index-copy, defrag, cache, cache-key, device, dedup-verify, relocate,
        /// throttle or flash-policy
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
    /// Space for maps and tables in percent of the capacity, where that is more than usual (3 % and 32 MiB): for many clones of the
    /// same images (docs/sizing.md)
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

/// `onefold volume`.
#[derive(Subcommand, Debug)]
pub enum VolumeCommand {
    /// Create a volume; it is served under its name to every new connection. A pool holds at most 1,024 volumes
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
    /// Delete a volume for good; refused while clients are connected to it
    Delete {
        /// Pool: its file or block device
        #[command(flatten)]
        target: Target,
        /// Name of the volume
        name: String,
        /// Disconnect its clients
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
    /// Set properties of a volume: policy=native|observe|full|select[:T]|idedup[:T]|inherit, read-only=on|off,
    /// exclusive=on|off, timing=inline|offline|hybrid, goal=none|20000iops|200MiB/s|p99=2ms, keep-runs=on|off|auto,
    /// controller=forecast|paper
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
        /// Only this property: policy, read-only, exclusive, timing, goal, keep-runs or controller
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
    /// Begin to note; it takes 12.5 MiB of the server's memory
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

/// `onefold serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// File or block device of the pool
    pub pool: PathBuf,
    /// Make the pool and a volume 'default' of --size where they are missing
    #[arg(long, requires = "size")]
    pub create: bool,
    /// Capacity of the pool and size of the volume 'default' (with --create)
    #[arg(long, alias = "capacity", value_parser = size::parse_large, requires = "create")]
    pub size: Option<u64>,
    /// Address to listen on: unix:PATH or tcp:HOST:PORT, several times if wanted [default: unix:POOL.sock, unless the service
    /// manager hands sockets over]
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub listen: Vec<Address>,
    /// Control socket of this server; commands then need the same --control PATH [default: POOL.ctl; for a device or a path too long
    /// for a socket a short name in $XDG_RUNTIME_DIR or /run/onefold]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Address of a page for browsers, with /metrics for Prometheus, /healthz and /status.json; nothing can be changed there
    #[arg(long, value_name = "HOST:PORT", value_parser = Address::parse_http)]
    pub http: Option<Address>,
    /// The cache on flash in front of the pool, which 'onefold cache attach' made: a file or a block device. If it cannot be used, the
    /// pool is served without, and the log and 'status' say why
    #[arg(long, value_name = "PATH", conflicts_with_all = ["read_only", "record"])]
    pub flash: Option<PathBuf>,
    /// Memory for everything: buffers, caches, tables [default: the pool's setting, else 512M, or half of the limit of the control group or of the machine]
    #[arg(long, value_parser = size::parse_large)]
    pub memory: Option<u64>,
    /// Set the policy of volumes that do not set one themselves, as 'onefold set' does
    #[arg(long, value_parser = policy_value, conflicts_with = "read_only")]
    pub policy: Option<String>,
    /// Clients at a time (with little memory, fewer)
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=16384), default_value_t = 1024)]
    pub max_connections: u32,
    /// Busy-poll up to N microseconds for the next request; 0 disables polling
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u64).range(0..=1000), default_value_t = 100)]
    pub poll: u64,
    /// Seconds after which a stop gives up the last checkpoint; the next start replays the journal
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86400), default_value_t = 30)]
    pub stop_timeout: u64,
    /// Log level, to the error output
    #[arg(long, value_name = "LEVEL", value_enum, env = "ONEFOLD_LOG", hide_env_values = true, default_value_t = Level::Info)]
    pub log: Level,
    /// Serve every volume read-only. A pool that was closed cleanly is not written at all, and may be in a file that cannot
    /// be written; one that was not is recovered first, which writes to it
    #[arg(long, conflicts_with = "create")]
    pub read_only: bool,
    /// Record every call of the engine from the start on, for 'sim rerun': addresses, lengths, digests, names of volumes and
    /// metadata, no data and not the pool's key. Earlier recordings are kept as FILE.1 to FILE.3
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Largest size of the recording; the server goes on without it
    #[arg(long, value_name = "SIZE", value_parser = size::parse_large, requires = "record", default_value = "1G")]
    pub record_size: u64,
    /// TLS for clients over TCP. (A Unix socket needs none: the rights of its file say who may connect.) Needs --tls-certificates
    #[arg(long, value_name = "MODE", default_value_t)]
    pub tls: Mode,
    /// Folder of server-cert.pem and server-key.pem, and of ca-cert.pem for --tls-verify-peer; read once, at the start
    #[arg(long, value_name = "FOLDER")]
    pub tls_certificates: Option<PathBuf>,
    /// Serve only clients with a certificate that ca-cert.pem has signed
    #[arg(long, requires = "tls_certificates")]
    pub tls_verify_peer: bool,
    /// Let tcp: and --http listen on addresses that other machines reach. HTTP has no encryption and no password. Of tcp:, without --tls require there is no encryption, without --tls-verify-peer no password
    #[arg(long)]
    pub allow_remote: bool,
    /// Report the start as JSON, one line
    #[arg(long)]
    pub json: bool,
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

/// `onefold connect`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("form"))]
pub struct ConnectArgs {
    /// Pool: its file or block device
    #[command(flatten)]
    pub target: Target,
    /// Name of the volume
    pub volume: String,
    /// Options of a command line of QEMU
    #[arg(long, group = "form")]
    pub qemu: bool,
    /// A <disk> of a domain of libvirt
    #[arg(long, group = "form")]
    pub libvirt: bool,
    /// Commands that make it /dev/nbd0 with the Linux kernel's client
    #[arg(long, group = "form")]
    pub nbd_client: bool,
    /// Lines of /etc/nbdtab and /etc/fstab that mount it at every start
    #[arg(long, group = "form")]
    pub fstab: bool,
    /// Commands that make it a file, without root, through FUSE
    #[arg(long, group = "form")]
    pub nbdfuse: bool,
    /// By TCP, where the server listens on a Unix socket too
    #[arg(long)]
    pub tcp: bool,
}

/// Place where the text for a client is pasted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Anywhere, as the NBD URI alone.
    Uri,
    /// QEMU's command line.
    Qemu,
    /// XML of a libvirt domain.
    Libvirt,
    /// A shell, with the kernel's client.
    NbdClient,
    /// Files `/etc/nbdtab` and `/etc/fstab`.
    Fstab,
    /// A shell, with FUSE.
    Nbdfuse,
}

impl ConnectArgs {
    /// Returns the form that is asked for: the URI, unless another one is.
    pub fn form(&self) -> Form {
        let asked = [
            (self.qemu, Form::Qemu),
            (self.libvirt, Form::Libvirt),
            (self.nbd_client, Form::NbdClient),
            (self.fstab, Form::Fstab),
            (self.nbdfuse, Form::Nbdfuse),
        ];
        asked.into_iter().find_map(|(asked, form)| asked.then_some(form)).unwrap_or(Form::Uri)
    }
}

/// `onefold import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// Pool: its file or block device
    #[command(flatten)]
    pub target: Target,
    /// Name of the volume; a new one is as large as the image
    pub volume: String,
    /// File or block device of the image; formats other than raw are read by qemu-nbd
    pub image: PathBuf,
    /// Format of the image [default: detected by its magic number]. Give raw for a raw image that you do not trust
    #[arg(long, value_name = "FORMAT", value_parser = clap::builder::PossibleValuesParser::new(format::FORMATS))]
    pub format: Option<String>,
    /// Take an image all the same: one that is damaged or was cut short, one that QEMU may write meanwhile (raw only), or one whose header names other
    /// files of this host
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    pub allow: Vec<Allow>,
    /// Go on with an import of this image that was interrupted; what else the volume holds is not overwritten
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// Overwrite whatever the volume holds
    #[arg(long, alias = "force")]
    pub overwrite: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Defects of an image that an import accepts on request.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allow {
    /// Tables of the image lead beyond its end, or contradict each other
    Damaged,
    /// Another process may write it
    InUse,
    /// It is read together with other files
    OtherFiles,
}

/// `onefold export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Pool: its file or block device
    #[command(flatten)]
    pub target: Target,
    /// Name of the volume
    pub volume: String,
    /// File to make, or block device; .qcow2, .vmdk, .vdi and .vhdx say the format, everything else is raw
    pub image: PathBuf,
    /// Bytes of the image, a multiple of 512 and no less than the volume has: behind the end of the volume there are zeroes. On a device that is longer, what
    /// lies behind the image stays as it is [default: the volume's size]
    #[arg(long, alias = "capacity", value_name = "SIZE", value_parser = size::parse_large)]
    pub size: Option<u64>,
    /// The format of the image [default: as its name says]
    #[arg(long, value_name = "FORMAT", value_parser = clap::builder::PossibleValuesParser::new(format::MADE))]
    pub format: Option<String>,
    /// Go on with an export of this volume that was interrupted; what else the file holds is not overwritten
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// Overwrite the file or device
    #[arg(long, alias = "force")]
    pub overwrite: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
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

/// `onefold estimate`.
#[derive(Args, Debug)]
pub struct EstimateArgs {
    /// Files, block devices, and directories with all that is below them (symbolic links in them are not followed)
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Only this policy, several times if wanted [default: native, full, select and idedup]
    #[arg(long, value_name = "POLICY", value_parser = estimate::parse_policy)]
    pub policy: Vec<Policy>,
    /// Only writes of this size, several times if wanted: a power of two from 4K to 1M [default: 4K, 16K, 64K, 256K, 1M]
    #[arg(long, value_name = "SIZE", value_parser = estimate::parse_request_size)]
    pub request_size: Vec<u64>,
    /// Memory for fingerprints; if it is too little for all of them, the data is sampled
    #[arg(long, value_name = "SIZE", value_parser = estimate::parse_memory, default_value = "256M")]
    pub memory: u64,
    /// Also what other file systems hold that are mounted below the directories
    #[arg(long)]
    pub cross_mounts: bool,
    /// Take images as plain bytes, as they lie in their files [default: the guest's view of images of other formats than raw]
    #[arg(long, value_name = "FORMAT", value_parser = ["raw"])]
    pub format: Option<String>,
    /// Take an image all the same, as 'onefold import' does: one that is damaged or was cut short, or one whose header names other files of this host
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    pub allow: Vec<Allow>,
    /// Show each policy with each size of writes [default: the answer; what --policy and --request-size name is shown]
    #[arg(long)]
    pub all: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
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
                    let disconnects = ["onefold volume delete", "onefold volume resize"].contains(&name.as_str());
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
