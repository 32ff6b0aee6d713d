//! Repairs on the simulated disk: planned and performed as the program does.

use engine::{BlockContent, Medium, Repair, RepairError, plan_repair};

use crate::content::{Content, describe};
use crate::runs::config::Config;
use crate::world::World;
use crate::world::disk::Disk;

/// Plans the repair of the pool on an idle disk.
pub fn plan(disk: &Disk, config: &Config, data: bool) -> Result<Repair, RepairError> {
    let size = u64::from(disk.block_size());
    let mut read = |offset, length| World::read_bytes(disk, offset, length);
    let mut content = |offset| -> Option<BlockContent> {
        (offset / size < disk.blocks()).then(|| describe(&disk.read(offset / size).to_cells()))
    };
    let mut medium = Medium { read: &mut read, content: &mut content };
    plan_repair(config.parameters, config.limits, data, &mut medium)
}

/// Returns the writes of a repair, in order: block and content.
pub fn writes(disk: &Disk, repair: &Repair) -> Vec<(u64, Content)> {
    let size = u64::from(disk.block_size());
    let page = |(offset, bytes): &(u64, Vec<u8>)| (offset / size, Content::Metadata(bytes.as_slice().into()));
    let mut writes: Vec<_> = repair.superblocks.iter().map(page).collect();
    writes.extend(repair.copies.iter().map(|(from, to)| (to / size, disk.read(from / size).clone())));
    writes.extend(repair.pages.iter().map(page));
    let (bytes, places) = repair.superblock(true);
    writes.extend(places.map(|place| (place / size, Content::Metadata(bytes.as_slice().into()))));
    writes
}

/// Performs a repair.
pub fn perform(disk: &mut Disk, repair: &Repair) {
    for (block, content) in writes(disk, repair) {
        disk.put(block, content);
    }
}
