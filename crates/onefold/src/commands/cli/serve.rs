//! Arguments of the server, and of the command that connects a client to it.

use std::path::PathBuf;

use clap::Args;

use super::Target;
use crate::frontend::nbd::listen::Address;
use crate::frontend::nbd::tls::Mode;
use crate::log::Level;
use crate::operators::properties::policy_value;
use crate::size;

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
    /// Let tcp: and --http listen on addresses that other machines reach. HTTP has no encryption and no password. Of tcp:, without --tls require there is no
    /// encryption, without --tls-verify-peer no password
    #[arg(long)]
    pub allow_remote: bool,
    /// Report the start as JSON, one line
    #[arg(long)]
    pub json: bool,
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
