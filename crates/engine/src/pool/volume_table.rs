//! The table of volumes: each volume with the root of its map, in the order of their numbers.
//!
//! Invariants: numbers are unique and ascend; each volume has a root. Visibility to clients and policy of a volume
//! are decided in `volumes.rs`.

use alloc::vec::Vec;
use core::ops::Index;

use crate::api::VolumeId;
use crate::counters::WriteCounts;
use crate::dedup::timing::Mode;
use crate::format::superblock::Root;
use crate::format::volume::Volume;
use crate::properties::VolumeProperties;

/// Volumes of a pool, by index, with the roots of their maps.
#[derive(Default)]
pub(crate) struct VolumeTable {
    volumes: Vec<Volume>,
    maps: Vec<Root>,
    /// Number of leaves of the table on disk, as last written.
    leaves: u64,
}

impl Index<usize> for VolumeTable {
    type Output = Volume;

    #[inline]
    fn index(&self, at: usize) -> &Volume {
        &self.volumes[at]
    }
}

impl VolumeTable {
    pub(crate) fn len(&self) -> usize {
        self.volumes.len()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Volume> {
        self.volumes.get(at)
    }

    pub(crate) fn last(&self) -> Option<&Volume> {
        self.volumes.last()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Volume> + ExactSizeIterator + Clone {
        self.volumes.iter()
    }

    /// Returns each volume with the root of its map.
    pub(crate) fn with_maps(&self) -> impl Iterator<Item = (&Volume, &Root)> + Clone {
        self.volumes.iter().zip(&self.maps)
    }

    /// Returns the index of a volume, if it is there.
    #[inline]
    pub(crate) fn find(&self, id: VolumeId) -> Option<usize> {
        self.volumes.binary_search_by_key(&id, |volume| volume.id).ok()
    }

    /// Returns the index of the first volume whose number `is_before` is false for.
    pub(crate) fn first_after(&self, is_before: impl Fn(VolumeId) -> bool) -> usize {
        self.volumes.partition_point(|volume| is_before(volume.id))
    }

    /// Returns the root of a volume's map.
    #[inline]
    pub(crate) fn map(&self, at: usize) -> Root {
        self.maps[at]
    }

    /// Sets the root of a volume's map, after a merge.
    pub(crate) fn set_map(&mut self, at: usize, root: Root) {
        self.maps[at] = root;
    }

    /// Adds a volume whose number is free. Returns its index.
    pub(crate) fn insert(&mut self, volume: Volume, root: Root) -> usize {
        let at = self.first_after(|id| id < volume.id);
        assert!(self.volumes.get(at).is_none_or(|next| next.id != volume.id), "a volume's number is unique");
        self.volumes.insert(at, volume);
        self.maps.insert(at, root);
        at
    }

    /// Removes a deleted volume whose map is empty.
    pub(crate) fn remove(&mut self, at: usize) -> Volume {
        assert!(
            self.volumes[at].deleted.is_some() && self.maps[at].pointer.is_none(),
            "nothing refers to the volume's blocks"
        );
        self.maps.remove(at);
        self.volumes.remove(at)
    }

    /// Notes that record `sequence` deletes a volume.
    pub(crate) fn delete(&mut self, at: usize, sequence: u64) {
        self.volumes[at].deleted = Some(sequence);
    }

    /// Sets the size of a volume in bytes.
    pub(crate) fn resize(&mut self, at: usize, size: u64) {
        self.volumes[at].size = size;
    }

    pub(crate) fn set_properties(&mut self, at: usize, properties: VolumeProperties) {
        self.volumes[at].properties = properties;
    }

    /// Sets the mode that a controller has chosen for a volume.
    pub(crate) fn set_mode(&mut self, at: usize, mode: Mode) {
        self.volumes[at].is_pressed = mode == Mode::Offline;
    }

    /// Notes that a checkpoint begins: it writes the sizes that volumes have now.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.volumes.iter_mut().for_each(|volume| volume.merged_size = volume.size);
    }

    /// Notes that a block of a volume maps to a slot from now on.
    #[inline]
    pub(crate) fn note_mapped(&mut self, at: usize) {
        self.volumes[at].logical_blocks_used += 1;
    }

    /// Notes that `blocks` blocks of a volume do not map to slots any more. Returns false if the volume is not there.
    #[inline]
    pub(crate) fn note_unmapped(&mut self, id: VolumeId, blocks: u64) -> bool {
        let Some(at) = self.find(id) else { return false };
        let used = &mut self.volumes[at].logical_blocks_used;
        *used = used.saturating_sub(blocks);
        true
    }

    /// Puts a recounted number of mapped blocks in place, with the size that is to be written.
    pub(crate) fn recount(&mut self, at: usize, mapped: u64) {
        let volume = &mut self.volumes[at];
        (volume.merged_size, volume.logical_blocks_used) = (volume.size, mapped);
    }

    /// Adds to the counts of a volume's writes.
    pub(crate) fn count_writes(&mut self, at: usize, counts: WriteCounts) {
        self.volumes[at].writes += counts;
    }

    /// Counts a write with unchanged content.
    pub(crate) fn count_unchanged(&mut self, at: usize) {
        self.volumes[at].writes.unchanged_blocks += 1;
    }

    /// Returns the number of leaves of the table on disk, as last written.
    pub(crate) fn leaves(&self) -> u64 {
        self.leaves
    }

    pub(crate) fn set_leaves(&mut self, leaves: u64) {
        self.leaves = leaves;
    }
}
