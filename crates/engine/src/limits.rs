//! Memory limits: one number of bytes, divided among the engine's structures.

use crate::block_map::discards::WalkBudget;
use crate::cache::arc::content_bytes;
use crate::dedup::index::{Index, Size};
use crate::device::DeviceTraits;
use crate::format::disk_index::filtered_within;
use crate::format::geometry::Geometry;
use crate::format::volume::MAX_VOLUMES;
use crate::icache::ghosts::ghost_bytes;
use crate::icache::rule::CacheLimits;

/// Limits of the memory that the engine may use, by structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Payload buffers of one block.
    pub buffers: u32,
    /// The most of these buffers that may hold payload that is being received or not yet in its slot ([`crate::Engine::take_buffer`]).
    pub write_buffers: u32,
    /// Metadata pages.
    pub pages: u32,
    /// Entries of the index.
    pub index_entries: u32,
    /// Entries that the index grows and shrinks by: a power of two, at least 16.
    pub index_chunk: u32,
    /// Bits of tag in an index entry (0: as many as fit).
    pub index_tag_bits: u32,
    /// Bits of the digest that sharing looks at (0: all 128). Fewer prove nothing: blocks are compared byte by byte before one
    /// is shared. Landing proof, checks on reads and summaries keep all bits.
    pub sharing_digest_bits: u32,
    /// Mappings held in the delta.
    pub delta_entries: u32,
    /// Mappings that are merged and wait to go into their leaves, many at once (0: none does).
    pub map_buffer: u32,
    /// The most of these mappings for each leaf that the maps can have. Where a delta has four times as many, none waits ([`Limits::buffered_for`]).
    pub buffered_per_leaf: u32,
    /// Full leaves of cut-off subtrees that one checkpoint walks: it releases as many slots as these have ([`Limits::discarded`]).
    pub discard_leaves: u32,
    /// Cut-off subtrees that are kept for the walk, before discards have to wait: at least as many as one discard can cut off.
    pub discards: u32,
    /// Blocks read ahead of one sequential reader, at most (0: none is).
    pub read_ahead: u32,
    /// Requests in flight.
    pub requests: u32,
    /// Volumes, hidden and deleted ones included. A pool with more is served, and gets no new ones.
    pub volumes: u32,
    /// Partition of the memory that index and read cache share.
    pub cache: CacheLimits,
    /// Traits of the disk under the store, as the driver reports them.
    pub device: DeviceTraits,
}

/// Bytes of memory for each volume that a pool may have: a volume takes about a tenth of that.
const VOLUME_SHARE_BYTES: u64 = 4096;
/// Bytes of the tables of I/Os, records, inlined blocks and volumes, and of an allocator's own state. Volumes beyond [`VOLUMES_INCLUDED_BYTES`] are not
/// among them.
const FIXED_BYTES: u64 = 4 << 20;
/// Bytes of these for volumes.
const VOLUMES_INCLUDED_BYTES: u64 = 1 << 20;
/// Bytes that a region that defragmentation is to look at takes in its table, with the table's own.
pub(crate) const REGION_BYTES: u64 = 64;
/// Bytes that a request can take for each of its blocks.
const REQUEST_BLOCK_BYTES: u64 = 136;
/// Requests in flight; `FEW_REQUESTS` where there is little memory.
const MANY_REQUESTS: u64 = 1024;
const FEW_REQUESTS: u64 = 128;
/// Blocks read ahead of one sequential reader, at most: 16 MiB, out of the read cache's part for read-ahead (`cache/arc`).
const READ_AHEAD: u32 = 4096;
/// Least number of bytes that are divided.
const LEAST: u64 = 28 * MIB;
/// Bytes below which the index gets a smaller part of the divided memory.
const LITTLE: u64 = 64 * MIB;
/// Entries that the index grows and shrinks by: 128 KiB.
const INDEX_CHUNK: u64 = 8192;
/// The most entries of the index.
const MOST_INDEX: u64 = 1 << 31;
/// Bytes of an entry of the index.
const INDEX_ENTRY_BYTES: u64 = 16;
/// The divisor for ghosts of the read cache: it remembers one evicted block for each `REMEMBERED` blocks that it can hold at most.
const REMEMBERED: u64 = 1;
/// The divisor of the memory that index and read cache share: one part of `POPULAR` holds the state of popular blocks with copies, where these are
/// made.
const POPULAR: u64 = 6;
/// The divisor of the memory that index and read cache share: one part of `FILTER` is for the filter of the index on disk at most, if there is one.
const FILTER: u64 = 6;
/// The most mappings in a delta: more would not make a checkpoint cheaper.
const MOST_DELTA: u64 = 1 << 20;
/// The most mappings in a map buffer.
const MOST_BUFFERED: u64 = 1 << 30;
/// The most mappings in a map buffer for each leaf: a leaf is then written with some eight of them.
pub(crate) const BUFFERED_PER_LEAF: u32 = 4;
/// Mappings that a checkpoint may take out of any map buffer, unless the delta has fewer: a buffer that got smaller is soon within its limit.
const LEAST_FLUSHED: u64 = 1024;
/// Bytes of an entry and a slot's content, as the journal and the delta know them while the journal is replayed.
pub(crate) const REPLAY_ENTRY_BYTES: u64 = 320;
/// Pages of cut-off subtrees that one checkpoint reads for each full leaf that it may walk: leaves with few mappings release few slots.
const SPARSE_PAGES: u32 = 16;
const MIB: u64 = 1 << 20;

/// Returns the bytes of a hash table made for `entries` of `size` bytes: a power of two of buckets, seven eighths of them in use.
fn table(entries: u64, size: u64) -> u64 {
    (entries * 8).div_ceil(7).next_power_of_two() * (size + 1)
}

/// Returns the bytes of a hash table whose entries come and go: removed entries may take space until the table has doubled once.
fn busy_table(entries: u64, size: u64) -> u64 {
    table(2 * entries, size)
}

/// Returns the bytes of `count` payload buffers, half of them for incoming data, with the tables of blocks that are not in their slots yet, the I/Os of reads,
/// and the read cache and the ghosts, which are made for all that the cache can share with an index of `index` bytes.
fn buffer_bytes(count: u64, index: u64, block: u64) -> u64 {
    let (cached, dirty) = (count - count / 2, count / 2);
    let (most_cached, most_index) = (cached + index / block, (cached * block + index) / INDEX_ENTRY_BYTES);
    let remembered = most_cached + most_cached / REMEMBERED + 1;
    let cache = remembered * (24 + 4) + busy_table(remembered, 16) + (dirty + most_cached) * 4;
    let ghosts =
        2 * ghost_bytes(most_cached) + ghost_bytes(most_index / u64::from(CacheLimits::default().sampled_one_in));
    count * block + (dirty + most_cached) * 13 + cache + ghosts + busy_table(dirty, 16) + dirty * 32 + count / 4 * 140
}

/// Returns the bytes of `count` metadata pages with their table.
fn page_bytes(count: u64, block: u64) -> u64 {
    count * (block + 20) + busy_table(count, 12)
}

/// Returns the bytes of both deltas, each with points and slots, and of: a checkpoint's work on one (its points, new slots, six changes of counts and four
/// freed slots for each, replaced pages); slots that are taken (new in both deltas, and pending); replicas, one for eight; and regions that wait for
/// defragmentation.
fn delta_bytes(entries: u64) -> u64 {
    let tables = 2 * (table(entries, 16) + table(entries, 40));
    let checkpoint = entries * (16 + 8 + 6 * 16 + 4 * 8 + 24);
    let replicas = busy_table(entries / 8, 16) + entries / 8 * 16;
    tables + checkpoint + busy_table(4 * entries, 8) + 4 * entries * 16 + replicas + regions(entries) * REGION_BYTES
}

/// Returns the number of runs of slots whose reads are counted, to find `blocks` popular blocks.
pub(crate) fn counted_runs(blocks: u64) -> u64 {
    2 * blocks
}

/// Returns the bytes of the state of `blocks` popular blocks with copies in scratch zones: the entry of each (`pool/replicas/columns.rs`), those that are to
/// go, counts of reads to find them, and the blocks chosen by these counts.
pub(crate) fn popular_bytes(blocks: u64, width: u32) -> u64 {
    let columns = blocks.next_multiple_of(width.into());
    let rows = columns / u64::from(width);
    let known = columns * (8 + 2 + 4) + busy_table(blocks, 4) + rows * 40 + busy_table(10 * rows, 16);
    if blocks == 0 { 0 } else { known + 2 * blocks * 8 + busy_table(counted_runs(blocks), 16) + 2 * blocks * 16 }
}

/// Returns the most regions that are noted for defragmentation: one for eight entries, at least 16.
fn regions(entries: u64) -> u64 {
    (entries / 8).max(16)
}

/// Returns the most mappings that one checkpoint takes out of a map buffer of `count`, beside those that it replaces: a quarter of them. All of a small one; of
/// one that is to go, as many as the delta has.
fn flushed(count: u64, delta: u64) -> u64 {
    let all = if count == 0 { delta } else { count.max(LEAST_FLUSHED) };
    (count / 4).max(delta.min(all))
}

/// Returns the bytes of the map buffer (its mappings, space for those of a delta, its list of fences) and of a checkpoint's work on those that it takes out
/// (changes of counts, freed and pending slots, replaced pages, slots that are taken); 0 without mappings.
fn map_buffer_bytes(count: u64, delta: u64) -> u64 {
    if count == 0 {
        return 0;
    }
    let places = count + delta;
    let flushed = flushed(count, delta);
    let taken = busy_table(4 * delta + flushed, 8) - busy_table(4 * delta, 8);
    places * 16 + places / 8 + flushed * (16 + 16 + 16 + 8) + taken
}

/// Returns the most mappings for which a map buffer is useful with maps of `leaves` leaves, `per_leaf` for each. 0 where a checkpoint alone has twice as many
/// for each leaf: it begins at half of its delta.
fn most_buffered(leaves: u64, per_leaf: u32, delta: u64) -> u64 {
    let most = leaves.saturating_mul(per_leaf.into());
    if most.saturating_mul(4) <= delta { 0 } else { most.min(MOST_BUFFERED) }
}

/// Returns the number of leaves of maps for which the metadata has space beside the summaries, the largest other table. Copy-on-write needs pages twice.
fn metadata_leaves(geometry: &Geometry) -> u64 {
    let summaries = geometry.slots().div_ceil(geometry.summary_leaf_slots());
    (u64::from(geometry.metadata_blocks) / 2).saturating_sub(summaries)
}

/// Returns the greatest number below `most` for which `bytes` fits into `space`.
fn greatest(space: u64, most: u64, bytes: impl Fn(u64) -> u64) -> u64 {
    let (mut fits, mut too_many) = (0, most);
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        if bytes(middle) <= space {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    fits
}

impl Limits {
    /// Divides `memory` bytes for a pool. Fails with the number of bytes that suffices if that is too little.
    ///
    /// Tables that are held in memory whole come first (six bytes a container, one bit a metadata block: 2.5 MiB for a TiB).
    /// Of the rest a quarter goes to the index, an eighth to the delta, an eighth to metadata pages (where there is little: an
    /// eighth to the index, a quarter to the pages), and all that is left to payload buffers. The map buffer gets up to a sixth, as far
    /// as a dense map of the pool's size makes it of use, or up to a sixteenth, as far as all leaves for which the metadata has space
    /// do. Each part pays for its own tables.
    pub fn for_memory(memory: u64, geometry: &Geometry) -> Result<Limits, u64> {
        let tables = u64::from(geometry.containers) * 6 + u64::from(geometry.metadata_blocks) / 8 + FIXED_BYTES;
        let request_bytes = |requests| requests * (u64::from(geometry.piece_blocks) + 1) * REQUEST_BLOCK_BYTES;
        let least = tables + request_bytes(FEW_REQUESTS) + LEAST;
        if memory < least {
            return Err(least.next_multiple_of(MIB));
        }
        let many = request_bytes(MANY_REQUESTS) <= (memory - tables) / 8;
        let requests = if many { MANY_REQUESTS } else { FEW_REQUESTS };
        let rest = memory - tables - request_bytes(requests);
        let block = geometry.block();
        // No more entries than the pool has slots, twice over so that buckets stay half empty.
        let (for_index, for_pages) = if rest < LITTLE { (rest / 8, rest / 4) } else { (rest / 4, rest / 8) };
        let index = (for_index / INDEX_ENTRY_BYTES).min(geometry.slots() * 2).min(MOST_INDEX) / INDEX_CHUNK;
        let index = index.max(1) * INDEX_CHUNK;
        // The rounding rest of each part goes to the next: from the index to the delta, and at last to the buffers.
        let for_delta = rest / 8 + for_index.saturating_sub(index * INDEX_ENTRY_BYTES);
        let delta = greatest(for_delta, MOST_DELTA + 1, delta_bytes).max(1024);
        let pages = greatest(for_pages, 1 << 31, |pages| page_bytes(pages, block));
        let buffered = |leaves, space| {
            let most = most_buffered(leaves, BUFFERED_PER_LEAF, delta);
            greatest(space, most + 1, |count| map_buffer_bytes(count, delta))
        };
        let dense = buffered(geometry.slots() / geometry.map_leaf_entries(), rest / 6);
        let map_buffer = dense.max(buffered(metadata_leaves(geometry), rest / 16));
        let used = index * INDEX_ENTRY_BYTES
            + delta_bytes(delta)
            + page_bytes(pages, block)
            + map_buffer_bytes(map_buffer, delta);
        let buffers = greatest(rest.saturating_sub(used), 1 << 31, |buffers| {
            buffer_bytes(buffers, index * INDEX_ENTRY_BYTES, block)
        });
        Ok(Limits {
            buffers: buffers as u32,
            write_buffers: (buffers / 2) as u32,
            pages: pages as u32,
            index_entries: index as u32,
            index_chunk: INDEX_CHUNK as u32,
            index_tag_bits: 0,
            sharing_digest_bits: 0,
            delta_entries: delta as u32,
            map_buffer: map_buffer as u32,
            buffered_per_leaf: BUFFERED_PER_LEAF,
            read_ahead: READ_AHEAD,
            discard_leaves: (delta / geometry.map_leaf_entries()).clamp(1, 1024) as u32,
            discards: (delta / 4).max(4096) as u32,
            requests: requests as u32,
            volumes: Limits::volumes_within(memory),
            cache: CacheLimits::default(),
            device: DeviceTraits::default(),
        })
    }

    /// Returns the number of volumes that a pool may have with `memory` bytes, those included that others than the engine take.
    pub fn volumes_within(memory: u64) -> u32 {
        (memory / VOLUME_SHARE_BYTES).clamp(1, MAX_VOLUMES as u64) as u32
    }

    /// Returns the bytes of memory that a table of volumes of `bytes` bytes takes beyond those that every pool has for it; subtract them from the memory that
    /// is divided. They are whole MiB.
    pub fn volumes_bytes(bytes: u64) -> u64 {
        bytes.saturating_sub(VOLUMES_INCLUDED_BYTES).next_multiple_of(MIB)
    }

    /// Returns the bytes of memory that flash with `places` places takes in a pool of this geometry; subtract them from the memory that is divided.
    pub fn flash_bytes(geometry: &Geometry, places: u32) -> u64 {
        let places = u64::from(places);
        u64::from(geometry.containers) * 4 + places * (12 + 16 + 4 + 4) + busy_table(places, 16)
    }

    /// Returns the bytes that index and read cache share, with blocks of `block` bytes.
    pub fn shared_bytes(&self, block: u64) -> u64 {
        u64::from(self.index_entries) * INDEX_ENTRY_BYTES
            + u64::from(self.buffers.saturating_sub(self.write_buffers)) * block
    }

    /// Returns the share of the index in the memory that it shares with the read cache, in thousandths.
    pub(crate) fn index_share(&self, block: u64) -> u32 {
        (u64::from(self.index_entries) * INDEX_ENTRY_BYTES * 1000 / self.shared_bytes(block).max(1)) as u32
    }

    /// Returns the sizes of the index. Its minimum, other than 0, is a twentieth of the memory that it shares with the read cache.
    pub(crate) fn index_size(&self, block: u64) -> Size {
        let entries = u64::from(self.index_entries);
        let least = (self.shared_bytes(block) / INDEX_ENTRY_BYTES / 20).min(entries);
        Size { entries, least, chunk: u64::from(self.index_chunk) }
    }

    /// Returns true if entries of the index prove equality alone in a pool of this geometry. Where they do not, each hit needs a page of summaries
    /// (docs/rfc/0005).
    pub fn index_proves(&self, geometry: &Geometry) -> bool {
        let size = Size { entries: 0, ..self.index_size(geometry.block()) };
        Index::new(size, geometry.slots(), self.index_tag_bits).proves()
    }

    /// Returns the fewest buffers beside those for incoming data, however memory is divided: a twentieth, and at least two of the longest reads.
    pub fn least_read_buffers(&self, geometry: &Geometry) -> u32 {
        let twentieth = self.shared_bytes(geometry.block()) / geometry.block() / 20;
        let reads = 2 * (u64::from(geometry.piece_blocks) + 1);
        (twentieth.max(reads) as u32).min(self.buffers.saturating_sub(self.write_buffers))
    }

    /// Returns the most buffers, however memory is divided, with blocks of `block` bytes.
    pub fn most_buffers(&self, block: u64) -> u32 {
        self.write_buffers + (self.shared_bytes(block) / block) as u32
    }

    /// Returns the bytes of the tables that find cached blocks by content, where the pool wants that; the read cache has that much less for blocks.
    pub fn content_bytes(&self, block: u64) -> u64 {
        content_bytes(self.most_buffers(block).into())
    }

    /// Returns the most blocks that the read cache remembers, evicted ones included.
    pub(crate) fn most_cached(&self, block: u64) -> usize {
        let most = self.shared_bytes(block) / block;
        (most + most / REMEMBERED + 1) as usize
    }

    /// Returns the number of ghosts of the read cache: all blocks that it could hold.
    pub(crate) fn read_ghosts(&self, block: u64) -> u64 {
        self.shared_bytes(block) / block
    }

    /// Returns the number of ghosts of the index: one in `sampled_one_in` of all entries that it could hold.
    pub(crate) fn index_ghosts(&self, block: u64) -> u64 {
        self.shared_bytes(block) / INDEX_ENTRY_BYTES / u64::from(self.cache.sampled_one_in.max(1))
    }

    /// Returns the most slots that partly cleared leaves may release in one delta: at least as many as one clear can.
    pub(crate) fn releases(&self, geometry: &Geometry) -> u64 {
        (2 * u64::from(self.delta_entries)).max(4 * geometry.map_leaf_entries())
    }

    /// Returns the number of places of the map buffer; 0 without a map buffer. Included is space for the mappings that a checkpoint adds before it
    /// takes others out.
    pub(crate) fn buffered_places(&self) -> usize {
        if self.map_buffer == 0 { 0 } else { self.map_buffer as usize + self.delta_entries as usize }
    }

    /// Returns the most mappings that the map buffer holds with maps of `leaves` leaves; 0 where checkpoints write most leaves anyway.
    pub(crate) fn buffered_for(&self, leaves: u64) -> u64 {
        most_buffered(leaves, self.buffered_per_leaf, self.delta_entries.into()).min(self.map_buffer.into())
    }

    /// Returns the most mappings that one checkpoint takes out of the map buffer, beside those that it replaces.
    pub(crate) fn flushed(&self) -> usize {
        flushed(self.map_buffer.into(), self.delta_entries.into()) as usize
    }

    /// Returns the part of cut-off subtrees that one checkpoint walks.
    pub(crate) fn discarded(&self, geometry: &Geometry) -> WalkBudget {
        let releases = u64::from(self.discard_leaves) * geometry.map_leaf_entries();
        let releases = u32::try_from(releases).unwrap_or(u32::MAX);
        WalkBudget { releases, pages: SPARSE_PAGES.saturating_mul(self.discard_leaves) }
    }

    /// Returns the steps that long requests take together from one timer to the next (`data_path/time_slices.rs`): some tens of microseconds.
    pub fn slice_steps(&self) -> u64 {
        u64::from(self.delta_entries / 8).clamp(32, 2048)
    }

    /// Returns the most steps that a time slice can come to: the last request begins when one step is left.
    pub fn most_slice_steps(&self, geometry: &Geometry) -> u64 {
        6 * self.slice_steps() + 4 * u64::from(geometry.piece_blocks) + 64
    }

    /// Returns the most regions that readers found scattered and that wait for defragmentation.
    pub(crate) fn regions(&self) -> usize {
        regions(self.delta_entries.into()) as usize
    }

    /// Returns the most replicas of blocks that are in order with others: one for eight entries of the delta.
    pub(crate) fn replicas(&self) -> u64 {
        u64::from(self.delta_entries / 8)
    }

    /// Returns the most blocks, of `wanted`, that can have copies in scratch zones: their state gets a part of the memory that index and read cache share.
    pub(crate) fn popular(&self, geometry: &Geometry, wanted: u64) -> u64 {
        let space = self.shared_bytes(geometry.block()) / POPULAR;
        greatest(space, wanted + 1, |blocks| popular_bytes(blocks, geometry.slots_per_container))
    }

    /// Returns the number of buckets that the filter covers, of an index on disk with `buckets` buckets of `block` bytes.
    pub(crate) fn filtered(&self, block: u64, buckets: u32) -> u32 {
        filtered_within(buckets, block, self.shared_bytes(block) / FILTER)
    }

    /// Returns the most copies of shared blocks that a run of a plan makes before it walks all maps for their referrers (`jobs/relocate/`).
    pub(crate) fn relocated(&self) -> usize {
        (self.delta_entries / 4).max(16) as usize
    }

    /// Returns the most slots that may be pending before the engine hurries them on.
    pub(crate) fn pending(&self) -> usize {
        2 * self.delta_entries as usize + if self.map_buffer > 0 { self.flushed() } else { 0 }
    }

    /// Returns the most journal entries that can be replayed: in the memory of the buffers, which are not in use then. A server with these limits never leaves
    /// more behind than four times its delta.
    pub fn replayable_entries(&self, geometry: &Geometry) -> u64 {
        let buffers = u64::from(self.buffers) * geometry.block() / REPLAY_ENTRY_BYTES;
        buffers.max(8 * u64::from(self.delta_entries) + 4 * u64::from(geometry.piece_blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_little_says_what_would_do() {
        for (capacity, piece_blocks) in [(1u64 << 30, 256), (1 << 30, 4096), (1 << 40, 256), (16 << 40, 1)] {
            let geometry = Geometry { piece_blocks, ..Geometry::for_capacity(capacity).unwrap() };
            let needed = Limits::for_memory(MIB, &geometry).unwrap_err();
            let limits = Limits::for_memory(needed, &geometry).unwrap();
            let piece = geometry.piece_blocks.min(256);
            assert!(limits.write_buffers > 2 * piece && limits.pages > 256 && limits.delta_entries > 4 * piece);
            for memory in (needed..needed + 2048 * MIB).step_by(64 << 20) {
                Limits::for_memory(memory, &geometry).unwrap();
            }
        }
    }

    /// Checks the memory of popular blocks: the table once had space for 76 of a pool of 50 GiB with 64 MiB of memory: an entry for each of their copies, and a
    /// part of what deltas have.
    #[test]
    fn a_little_memory_knows_ten_thousand_popular_blocks() {
        let geometry = Geometry::for_capacity(50 << 30).unwrap();
        let (wanted, blocks) = ((8u64 << 30) / geometry.block() / 10, |memory, wanted| {
            Limits::for_memory(memory, &geometry).unwrap().popular(&geometry, wanted)
        });
        assert!(blocks(56 * MIB, wanted) >= 10_000, "{}", blocks(56 * MIB, wanted));
        assert_eq!(blocks(1024 * MIB, wanted), wanted);
        assert_eq!(blocks(64 * MIB, 100), 100);
        assert_eq!(blocks(64 * MIB, 0), 0);
        for blocks in [1, 100, 10_000, 300_000] {
            let limits = Limits::for_memory(4096 * MIB, &geometry).unwrap();
            assert_eq!(limits.popular(&geometry, blocks), blocks);
            assert!(popular_bytes(blocks, 512) <= limits.shared_bytes(geometry.block()) / POPULAR);
        }
    }
}
