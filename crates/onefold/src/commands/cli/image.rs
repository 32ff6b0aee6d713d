//! Arguments of the commands about images: import, export, and the estimate of savings.

use std::path::PathBuf;

use clap::Args;
use engine::Policy;

use super::Target;
use crate::commands::estimate;
use crate::size;
use crate::transfer::format;

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
    /// Make a snapshot of the volume at the end, VOLUME@NAME: a golden image, for 'onefold clone'
    #[arg(long, value_name = "NAME")]
    pub snapshot: Option<String>,
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
