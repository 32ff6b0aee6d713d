//! Exports of the server: the volumes of the pool, as one client sees them. A snapshot is a read-only export `VOLUME@NAME`, which is not listed.
//!
//! Invariant: an answer to a client costs look-ups of the volumes that it names, not a pass over all volumes.

use engine::{Engine, Mode, Volume};
use nbd::{ExportInfo, Exports};

use crate::frontend::nbd::members::{Identity, Members};
use crate::frontend::nbd::tls::Certificate;

/// Name of the default volume, which clients get that name none.
pub const DEFAULT_VOLUME: &str = "default";

/// The volumes that a client can select now.
pub struct VolumeExports<'a> {
    /// The engine, which has the volumes.
    pub engine: &'a Engine,
    /// The other clients: they keep this one out of exclusive volumes.
    pub members: &'a Members,
    /// Process of the client, if it is known.
    pub process: Option<Identity>,
    /// Certificate of the client, if it has one.
    pub certificate: &'a Certificate,
}

impl VolumeExports<'_> {
    /// Describes a volume or a snapshot; `None` if the protocol cannot express its size.
    fn describe(&self, volume: &Volume) -> Option<ExportInfo> {
        let read_only = volume.is_read_only() || self.engine.mode() == Mode::ReadOnly;
        let export = ExportInfo::new(&self.engine.full_name(volume), "", volume.size).ok()?.read_only(read_only);
        // Readers of a snapshot do not disturb each other.
        if !volume.properties.exclusive() || volume.is_snapshot() {
            return Some(export);
        }
        let identity = Identity::of(self.certificate, self.process);
        Some(match self.members.holder(volume.id, identity) {
            Some(holder) => export.refuse(format!("the volume '{}' is exclusive, and {holder} has it", volume.name)),
            None => export,
        })
    }
}

impl Exports for VolumeExports<'_> {
    /// Returns the export of this name. The default one is called `default`, or has the lowest number.
    fn find(&self, name: &str) -> Option<ExportInfo> {
        let volume = match name {
            "" => self
                .engine
                .volume_named(DEFAULT_VOLUME)
                .or_else(|| self.engine.volumes().find(|volume| !volume.is_snapshot())),
            name => self.engine.volume_named(name),
        };
        self.describe(volume?)
    }

    fn count(&self) -> usize {
        self.engine.volume_count()
    }

    fn names_after<'a>(&'a self, name: &'a str) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        Box::new(self.engine.volumes_after(Some(name)).map(|volume| volume.name.as_str()))
    }
}
