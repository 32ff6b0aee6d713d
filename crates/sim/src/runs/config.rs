//! The parameters of a run, all drawn from its seed: a swarm of tiny, nasty pools.

use engine::{CacheKey, CacheLimits, DeviceTraits, DigestFunction, Geometry, Growth, Limits, Parameters, Policy};

use crate::random::Random;
use crate::runs::forged;
use crate::runs::workload::{any_cache, any_policy};
use crate::world::flash::FlashConfig;

/// Cache limits under which index and read cache keep the division of the limits. With a setting, they would be resized
/// every few requests.
pub const GIVEN_CACHE: CacheLimits =
    CacheLimits { setting: None, interval: 8, unit: 10, sampled_one_in: 1, hit_costs: [1, 1] };
/// Mappings for each leaf ([`Limits::buffered_per_leaf`]) with which the map buffer is used in pools whose volumes have a leaf or two.
pub const ALWAYS_BUFFERED: u32 = 1 << 16;

/// Most volumes of a pool at a time, unless it begins with more.
pub const FEW: usize = 6;
/// Most volumes of a pool that begins with more.
const MANY: usize = 40;

/// All parameters of a run except its operations.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of all chance inside the run.
    pub seed: u64,
    /// The pool.
    pub parameters: Parameters,
    /// The engine's memory.
    pub limits: Limits,
    /// The volumes that are created first: blocks and policy.
    pub volumes: Vec<(u64, Policy)>,
    /// Number of the first of these.
    pub first_number: u16,
    /// Maximum number of requests in flight.
    pub depth: u64,
    /// Maximum number of steps that the world takes between two submissions.
    pub pace: u64,
    /// Number of contents that are written again and again.
    pub contents: u32,
    /// True if the pool grows.
    pub grows: bool,
    /// True if the driver offers to give the pool more metadata where that runs short.
    pub offers_growth: bool,
    /// True if volumes are deleted and resized, and their properties changed.
    pub changes_volumes: bool,
    /// True if volumes get snapshots and clones.
    pub has_families: bool,
    /// Maximum number of snapshots at a time.
    pub most_snapshots: usize,
    /// Maximum number of volumes at a time with which a clone is made.
    pub most_clones: usize,
    /// Key by which the read cache finds blocks.
    pub cache_key: CacheKey,
    /// True if the pool has an owner, whose record the engine reads. In runs with crashes others take the pool over.
    pub owned: bool,
    /// The flash in front of the store, if there is one.
    pub flash: Option<FlashConfig>,
}

impl Config {
    /// Returns a small pool without surprises, for scenarios that are examined closely.
    pub fn small(seed: u64) -> Config {
        let geometry = Geometry {
            block_size: 512,
            slots_per_container: 8,
            piece_blocks: 8,
            place_b: 4,
            journal_blocks: 64,
            metadata_blocks: 256,
            containers: 16,
            spare_containers: 0,
            growth: engine::UNGROWN,
        };
        Config {
            seed,
            parameters: parameters(geometry, seed),
            limits: Limits {
                buffers: 96,
                write_buffers: 48,
                pages: 160,
                index_entries: 1024,
                index_chunk: 64,
                index_tag_bits: 0,
                sharing_digest_bits: 0,
                discard_leaves: 2,
                discards: 512,
                delta_entries: 256,
                map_buffer: 24,
                buffered_per_leaf: ALWAYS_BUFFERED,
                read_ahead: 1024,
                requests: 16,
                volumes: engine::MAX_VOLUMES as u32,
                cache: GIVEN_CACHE,
                device: DeviceTraits::SSD,
            },
            volumes: vec![(64, Policy::Full), (64, Policy::Full)],
            first_number: 1,
            depth: 4,
            pace: 6,
            contents: 8,
            grows: false,
            offers_growth: false,
            changes_volumes: true,
            has_families: false,
            most_snapshots: 20,
            most_clones: 8,
            cache_key: CacheKey::Sector,
            owned: false,
            flash: None,
        }
    }

    /// Draws every parameter from the seed, for the swarm.
    pub fn swarm(seed: u64) -> Config {
        let random = &mut Random::new(seed ^ 0x6366_6700);
        let mut geometry = Geometry {
            block_size: random.pick(&[512, 512, 512, 512, 1024]),
            slots_per_container: random.pick(&[4, 8, 16]),
            piece_blocks: random.pick(&[4, 8, 16]),
            place_b: random.between(2, 8),
            journal_blocks: random.between(32, 128) as u32,
            metadata_blocks: random.between(192, 512) as u32,
            containers: random.between(8, 32) as u32,
            spare_containers: random.between(0, 2) as u32,
            growth: engine::UNGROWN,
        };
        // A stream of its own: seeds without growth stay unchanged.
        let growth = &mut Random::new(seed ^ 0x6772_6f77);
        if growth.one_in(3) {
            has_grown(&mut geometry, growth);
        }
        let grows = growth.one_in(3);
        let volume_count = random.between(1, 3);
        let policies: &[Policy] =
            random.pick(&[&[Policy::Full][..], &[Policy::Full], &[Policy::Full, Policy::Native], &[Policy::Native]]);
        let mut volumes: Vec<_> = (0..volume_count).map(|_| (random.between(16, 256), random.pick(policies))).collect();
        // A stream of its own, too.
        let others = &mut Random::new(seed ^ 0x706f_6c69_6379);
        if others.one_in(2) {
            volumes.iter_mut().for_each(|(_, policy)| *policy = any_policy(others));
        }
        let contents = random.pick(&[2, 4, 8, 32, 128]);
        let mut limits = limits(&geometry, random);
        // And another one.
        let caches = &mut Random::new(seed ^ 0x6963_6163_6865);
        if caches.one_in(2) {
            let setting = Some(any_cache(caches));
            limits.cache = CacheLimits { setting, interval: caches.pick(&[1, 4, 16, 64]), ..GIVEN_CACHE };
        }
        limits.map_buffer = Random::new(seed ^ 0x6d61_7062).pick(&[0, 2, 8, 32, 128, 512]);
        // With less, the buffer is used and given up as volumes come and go.
        limits.buffered_per_leaf =
            Random::new(seed ^ 0x7065_726c_6566).pick(&[ALWAYS_BUFFERED, ALWAYS_BUFFERED, 4, 16, 64]);
        limits.device = any_device(&mut Random::new(seed ^ 0x6465_7669_6365));
        make_huge(&mut volumes, &mut geometry, &mut limits, &mut Random::new(seed ^ 0x6875_6765));
        let first_number = make_many(&mut volumes, &mut geometry, &mut Random::new(seed ^ 0x6d61_6e79));
        let random_flash = &mut Random::new(seed ^ 0x666c_6173);
        let flash = random_flash.one_in(3).then(|| FlashConfig::draw(random_flash));
        if flash.is_some() {
            // A block in memory, or read ahead, is not read from flash.
            limits.buffers = limits.write_buffers + 2 * (geometry.piece_blocks + 1);
            limits.read_ahead = random_flash.pick(&[0, 0, 1024]);
        }
        // And of another.
        let families = &mut Random::new(seed ^ 0x6661_6d69_6c79);
        let has_families = families.one_in(3);
        if has_families {
            // A look at an inherited block needs the paths of several maps at once. Real pools have more than 256 pages in memory.
            limits.pages = limits.pages.max(256);
        }
        Config {
            seed,
            parameters: parameters(geometry, seed),
            limits,
            volumes,
            first_number,
            has_families,
            most_snapshots: families.pick(&[3, 8, 20]),
            most_clones: families.pick(&[4, 6, 11]),
            depth: random.pick(&[1, 2, 4, 8, 12]),
            pace: random.pick(&[0, 2, 6, 20]),
            contents,
            grows,
            offers_growth: Random::new(seed ^ 0x6f66_6665_7273).one_in(3),
            changes_volumes: random.one_in(2),
            cache_key: Random::new(seed ^ 0x6361_6368_6b65).pick(&[
                CacheKey::Sector,
                CacheKey::Sector,
                CacheKey::Sector,
                CacheKey::Content,
                CacheKey::Content,
                CacheKey::Off,
            ]),
            owned: geometry.owner_block().is_some() && Random::new(seed ^ 0x6f77_6e65_7273).one_in(3),
            flash,
        }
    }

    /// Returns true if the index holds every possible content, so that deduplication must be exact (until a reopening).
    pub fn has_space_in_index(&self) -> bool {
        let all_full = self.volumes.iter().all(|(_, policy)| *policy == Policy::Full);
        let space = u64::from(self.limits.index_entries) >= 4 * self.parameters.geometry.slots();
        let stays = self.limits.cache.setting.is_none();
        all_full && space && stays && self.limits.index_tag_bits == 0 && self.limits.sharing_digest_bits == 0
    }
}

/// Draws a device: one of three is rotational, with numbers that fit a tiny pool.
fn any_device(random: &mut Random) -> DeviceTraits {
    if !random.one_in(3) {
        return DeviceTraits::SSD;
    }
    DeviceTraits {
        is_rotational: true,
        gap_blocks: random.pick(&[0, 2, 8]),
        window_blocks: random.pick(&[8, 64, 4096]),
        window_reads: random.pick(&[2, 8, 1024]),
        reads_in_flight: random.pick(&[1, 8, 256]),
        sequential_blocks: random.pick(&[1, 2, 4, 8]),
    }
}

/// Makes some volumes of every third seed a thousand or a million times as large as the pool, or as large as possible: blocks written there have leaves and
/// interior pages of the map to themselves. Memory for pages is then often at its minimum.
fn make_huge(volumes: &mut [(u64, Policy)], geometry: &mut Geometry, limits: &mut Limits, random: &mut Random) {
    if !random.one_in(3) {
        return;
    }
    let most = geometry.most_volume_blocks();
    let all = random.one_in(3);
    let one = random.below(volumes.len() as u64) as usize;
    for (_, (size_blocks, _)) in volumes.iter_mut().enumerate().filter(|(number, _)| all || *number == one) {
        let times = random.pick(&[1000, 1_000_000, u64::MAX]);
        *size_blocks = geometry.slots().saturating_mul(times).min(most);
    }
    limits.pages = random.pick(&[48, 64, limits.pages]);
    geometry.metadata_blocks += random.pick(&[0, 100, 400, 1600]);
}

/// Gives every 24th seed up to 40 volumes, most of them small. Returns the number of the first one: a table by number then has many leaves, or the numbers come
/// round.
fn make_many(volumes: &mut Vec<(u64, Policy)>, geometry: &mut Geometry, random: &mut Random) -> u16 {
    if !random.one_in(24) {
        return 1;
    }
    let policy = volumes[0].1;
    let more = random.between(FEW as u64 + 1, MANY as u64) as usize - volumes.len();
    volumes.extend((0..more).map(|_| (random.between(1, 16), policy)));
    // A leaf of the map for each, twice, as long as it is copied.
    geometry.metadata_blocks += 400;
    random.pick(&[1, 1000, u16::MAX - 20, u16::MAX - 3])
}

/// Gives the pool a history of growths, with segments far smaller than any that it would grow by on its own.
fn has_grown(geometry: &mut Geometry, random: &mut Random) {
    for number in 0..random.between(1, 4) as usize {
        let added = Growth { metadata_blocks: random.between(1, 200) as u32, containers: random.between(1, 6) as u32 };
        geometry.growth[number] = added;
        geometry.metadata_blocks += added.metadata_blocks;
        geometry.containers += added.containers;
    }
}

fn parameters(geometry: Geometry, seed: u64) -> Parameters {
    assert!(geometry.validate().is_ok(), "the swarm draws only possible geometries");
    let random = &mut Random::new(seed ^ 0x706f_6f6c);
    let mut bytes = || random.draw().to_le_bytes()[0];
    let id = forged::public_id(core::array::from_fn(|_| bytes()));
    let key = core::array::from_fn(|_| bytes());
    let parameters = Parameters::new(geometry, id, key, DigestFunction::Aegis128X2);
    Parameters { secret: forged::SECRET_SEED, pages_by_id: random.one_in(8), ..parameters }
}

fn limits(geometry: &Geometry, random: &mut Random) -> Limits {
    let piece = geometry.piece_blocks + 1;
    let write_buffers = piece * random.between(2, 5) as u32;
    Limits {
        buffers: write_buffers + piece * random.between(2, 4) as u32 + random.below(32) as u32,
        write_buffers,
        pages: random.pick(&[64, 96, 128, 256]),
        index_entries: random.pick(&[16, 64, 4096, 4096]),
        index_chunk: 16,
        index_tag_bits: random.pick(&[0, 0, 8]),
        sharing_digest_bits: random.pick(&[0, 0, 0, 8]),
        discard_leaves: random.pick(&[1, 2, 3, 8, 1024]),
        discards: random.pick(&[64, 512, 4096]),
        delta_entries: random.pick(&[64, 128, 256, 1024]),
        map_buffer: 0,
        buffered_per_leaf: ALWAYS_BUFFERED,
        read_ahead: 1024,
        requests: random.between(4, 16) as u32,
        volumes: engine::MAX_VOLUMES as u32,
        cache: GIVEN_CACHE,
        device: DeviceTraits::SSD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_config_of_the_swarm_is_possible_and_depends_on_its_seed_alone() {
        for seed in 0..500 {
            let config = Config::swarm(seed);
            assert_eq!(format!("{config:?}"), format!("{:?}", Config::swarm(seed)));
            assert!(config.limits.write_buffers > config.parameters.geometry.piece_blocks);
            assert!(config.limits.buffers > config.limits.write_buffers);
        }
    }
}
