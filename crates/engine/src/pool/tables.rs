//! Tables of the pool: their sizes, their names in messages, and their pages.

use super::Pool;
use crate::api::PageId;
use crate::format::geometry::Geometry;
use crate::format::superblock::{Pointer, TreeId};
use crate::metadata::page_cache::{PageKey, Region};
use crate::metadata::tree::Stop;

impl Pool {
    /// Returns the largest number of leaves that a tree can have.
    pub(crate) fn table_leaves(&self, tree: TreeId) -> u64 {
        let geometry = self.metadata.geometry();
        let block = geometry.block();
        match tree {
            TreeId::MetaMap => geometry.meta_map_leaves(),
            TreeId::SpaceMap => geometry.space_leaves(),
            TreeId::Containers => self.durable.space.container_leaves(),
            TreeId::Counts => geometry.slots().div_ceil(block / 4),
            TreeId::Summaries => geometry.summary_leaves(),
            TreeId::Volumes => self.durable.volumes.form().most_leaves(block),
            // At most as many subtrees can be cut off as there are metadata pages.
            TreeId::Discards => {
                u64::from(geometry.metadata_blocks).div_ceil(block / crate::block_map::discards::DISCARD_BYTES as u64)
            }
            TreeId::DiskIndex => self.hints.disk_index.record.buckets.into(),
            TreeId::MapBuffer => geometry.metadata_blocks.into(),
        }
    }

    /// Returns a page of metadata, or the request to load it.
    pub(crate) fn metadata_page(&mut self, pointer: Pointer) -> Result<PageId, Stop> {
        let key = PageKey { region: Region::Metadata, location: pointer.location };
        self.metadata.pages_mut().get(key).ok_or(Stop::Missing(crate::metadata::tree::Missing {
            key,
            pointer,
            parent: None,
        }))
    }

    /// Returns the current geometry: the places of all structures on the store.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.metadata.geometry()
    }
}

/// Returns the name of a table in messages.
pub(crate) fn table_name(tree: TreeId) -> &'static str {
    match tree {
        TreeId::MetaMap => "the map of metadata blocks",
        TreeId::SpaceMap => "the space map",
        TreeId::Containers => "the container table",
        TreeId::Counts => "the reference counts",
        TreeId::Summaries => "the summaries",
        TreeId::Volumes => "the volume table",
        TreeId::Discards => "the discard list",
        TreeId::DiskIndex => "the index on disk",
        TreeId::MapBuffer => "the map buffer",
    }
}
