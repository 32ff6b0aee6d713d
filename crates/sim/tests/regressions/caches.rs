//! The cache partition between index and read cache: its adaptation, its cost, and the memory limit, which it never exceeds.

use engine::{CacheCounts, CacheLimits, CacheStatus, Command, Limits, Policy, PoolChange};
use sim::runs::config::Config;
use sim::runs::workload::cache;

use crate::bench::{Bench, SECOND};

/// Makes a pool whose index and read cache share 160 blocks of 512 bytes, half of them each. So a twentieth is 8 blocks, or 256 entries. There is no index on disk:
/// it would find evicted contents, and its filter would take a part.
fn bench(setting: &str) -> Bench {
    let mut config = Config::small(1);
    let geometry = &mut config.parameters.geometry;
    (geometry.containers, geometry.metadata_blocks, geometry.journal_blocks) = (512, 2048, 256);
    config.limits = Limits {
        buffers: 48 + 80,
        write_buffers: 48,
        index_entries: 80 * 32,
        index_chunk: 64,
        cache: CacheLimits { setting: Some(cache(setting)), ..config.limits.cache },
        ..config.limits
    };
    let mut bench = Bench::new(config, 4000);
    bench.set_policy(Policy::SELECT);
    bench
}

impl Bench {
    fn cache_status(&self) -> CacheStatus {
        let engine = &self.world.engine;
        let status = engine.cache_status();
        assert!(!engine.is_resizing(), "more memory than there is: {status:?}");
        assert_eq!(status.shared_bytes, 160 * 512);
        assert!(status.index_bytes + status.read_bytes <= status.shared_bytes, "{status:?}");
        status
    }

    fn counts(&self) -> CacheCounts {
        self.cache_status().counts
    }

    /// Writes blocks with these contents, seven at a time. More would be a stream, which bypasses the read cache.
    fn write_all(&mut self, first: u64, contents: core::ops::Range<u32>) {
        let contents: Vec<u32> = contents.collect();
        for (number, piece) in contents.chunks(7).enumerate() {
            self.write(first + 7 * number as u64, piece);
            self.cache_status();
        }
    }

    fn read_all(&mut self, blocks: core::ops::Range<u64>) {
        for block in blocks {
            self.assert_holds(block, 1000 + block as u32);
            self.cache_status();
        }
    }

    fn set_cache(&mut self, setting: &str) {
        let cache = Some(Some(cache(setting)));
        self.command(Command::SetPool(PoolChange { cache, ..PoolChange::default() }));
    }
}

/// First 100 blocks are read again and again, then 2400 contents are written again and again. Neither set fits at first.
#[test]
fn memory_goes_where_it_is_hit_and_never_exceeds_what_there_is() {
    let mut bench = bench("adaptive");
    bench.write_all(0, 1000..3400);
    bench.settle();
    for _ in 0..4 {
        bench.read_all(0..100);
    }
    bench.pass(5 * SECOND);
    let before = bench.cache_status();
    assert_eq!(before.index_share, 350, "100 blocks are in the first 13 of 20 parts: {before:?}");
    assert_eq!(before.read_bytes, 104 * 512);
    assert!(before.counts.moves >= 2 && before.counts.read_ghost_hits > 0 && before.counts.prefetched_blocks > 0);
    bench.read_all(0..100);
    let misses = bench.counts().read_misses;
    bench.read_all(0..100);
    assert_eq!(bench.counts().read_misses, misses, "all of them are cached");

    for round in 1..4 {
        bench.write_all(8 * round, 1000..3400);
    }
    bench.pass(5 * SECOND);
    let after = bench.cache_status();
    assert_eq!(after.index_share, 500, "2400 digests are in the first 10 of 20 parts: {after:?}");
    assert_eq!((after.index_bytes, after.read_bytes), (80 * 512, 80 * 512));
    let misses = bench.world.engine.write_counts().index_misses;
    bench.write_all(32, 1000..3400);
    let misses = bench.world.engine.write_counts().index_misses - misses;
    assert!(misses < 600, "most of them are known: {misses} of 2400 are not");
    bench.audit();
}

/// A smaller read cache keeps the most recently used blocks, wherever their buffers are.
#[test]
fn blocks_in_buffers_that_go_are_copied_and_what_was_used_last_stays() {
    let mut bench = bench("fixed:50,lru");
    bench.write_all(0, 1000..1100);
    bench.settle();
    bench.read_all(0..80);
    // The last 18 reads are in another order than the buffers.
    let last: Vec<u64> = (0..18).map(|n| n * 29 % 80).collect();
    for &block in &last {
        bench.assert_holds(block, 1000 + block as u32);
    }
    bench.set_cache("fixed:90,lru");
    bench.pass(SECOND);
    let status = bench.cache_status();
    assert_eq!(status.read_bytes, 18 * 512, "what two of the longest reads need is left");
    assert!(status.counts.copied_blocks > 0);
    for &block in &last {
        bench.assert_holds(block, 1000 + block as u32);
    }
    assert_eq!(bench.counts().read_misses, status.counts.read_misses);
    bench.audit();
}

/// Either side works alone, and the setting is kept with the pool.
#[test]
fn each_side_alone_is_served_and_the_setting_is_kept() {
    let mut bench = bench("adaptive");
    bench.write_all(0, 1000..1100);
    bench.set_cache("read");
    bench.pass(SECOND);
    assert_eq!(bench.cache_status().index_bytes, 0);
    bench.write_all(200, 1000..1008);
    assert_eq!(bench.world.engine.write_counts().index_hits, 0, "there is no index");
    bench.set_cache("index");
    bench.reopen();
    bench.pass(SECOND);
    let status = bench.cache_status();
    assert_eq!((status.index_share, status.read_bytes), (1000, 18 * 512));
    for _ in 0..2 {
        bench.read_all(0..8);
    }
    assert_eq!(bench.counts().read_hits, 0, "there is no read cache");
    bench.write_all(400, 1000..1008);
    assert_eq!(bench.world.engine.write_counts().index_hits, 8, "the index was filled again");
    assert_eq!(bench.world.engine.properties().cache(), Some(cache("index")));
    bench.audit();
}

/// Two counters had one name. Each of several equal blocks of a request missed the index in the figures of writes. In those of the cache they missed
/// it once together.
#[test]
fn what_a_request_shares_with_itself_is_no_miss_of_the_index() {
    let mut bench = bench("adaptive");
    bench.set_policy(Policy::Full);
    let found = |bench: &Bench| {
        let counts = bench.world.engine.write_counts();
        (counts.index_hits, counts.index_misses, counts.removed.blocks)
    };
    bench.write(0, &[7, 7, 8, 7]);
    assert_eq!(found(&bench), (0, 2, 2));
    bench.write(8, &[8, 9, 9]);
    assert_eq!(found(&bench), (1, 3, 4));
}

/// The paper's rule gives a side memory by its hits, even memory that it cannot use.
#[test]
fn the_literal_rule_divides_by_hits_per_size() {
    let mut bench = bench("adaptive:paper");
    bench.write_all(0, 1000..1100);
    bench.settle();
    for _ in 0..20 {
        bench.read_all(0..8);
    }
    assert_eq!(bench.cache_status().index_share, 50, "only reads hit, and get all but the least");
}
