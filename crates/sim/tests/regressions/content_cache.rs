//! The read cache by content. The content of several slots is read once and kept once, and proof comes before use.

use std::cell::Cell;
use std::rc::Rc;

use engine::{CacheKey, CacheStatus, Command, Error, IoOp, Policy, PoolChange, VolumePropertyChange};
use sim::content::TWINS;
use sim::runs::config::Config;
use sim::world::Answer;

use crate::bench::Bench;

/// Blocks of an image, the first block of the second image, and the content of the first block.
const IMAGE: u64 = 36;
const OTHER: u64 = 100;
const FIRST: u32 = 1000;

/// Makes a pool that shares nothing, with a read cache of 48 blocks, less the tables by content.
fn bench(key: CacheKey, read_ahead: u32) -> Bench {
    bench_of(32, key, read_ahead)
}

fn bench_of(containers: u32, key: CacheKey, read_ahead: u32) -> Bench {
    let mut config = Config::small(1);
    config.parameters.geometry.containers = containers;
    config.limits.read_ahead = read_ahead;
    let mut bench = Bench::new(config, 256);
    let volume = bench.volume;
    let change = VolumePropertyChange { policy: Some(Some(Policy::Native)), ..VolumePropertyChange::default() };
    bench.command(Command::SetVolume { volume, change });
    bench.set_key(key);
    bench
}

impl Bench {
    fn set_key(&mut self, key: CacheKey) {
        self.command(Command::SetPool(PoolChange { cache_key: Some(key), ..PoolChange::default() }));
    }

    /// Drops all cached blocks.
    fn empty_the_cache(&mut self) {
        let key = self.world.engine.properties().cache_key();
        self.set_key(CacheKey::Off);
        self.set_key(key);
    }

    fn cached(&self) -> CacheStatus {
        self.world.engine.cache_status()
    }

    fn write_images(&mut self) {
        for first in [0, OTHER] {
            for block in 0..IMAGE {
                self.write(first + block, &[FIRST + block as u32]);
            }
        }
    }

    /// Counts the payload blocks that are read from the device from here on.
    fn count_blocks_read(&mut self) -> Rc<Cell<u64>> {
        let (blocks, block) = (Rc::new(Cell::new(0)), self.geometry().block());
        let counted = blocks.clone();
        self.world.hold_back(move |io| {
            if io.op == IoOp::ReadBlocks {
                counted.set(counted.get() + io.length / block);
            }
            false
        });
        blocks
    }

    fn read_image(&mut self, first: u64) {
        for block in 0..IMAGE {
            self.assert_holds(first + block, FIRST + block as u32);
        }
    }
}

/// The cache holds one of two equal images. By content each block is read once, whichever image is read. By sector all of them are read again and
/// again. The bytes are those that were written, in any case.
#[test]
fn two_images_are_read_through_a_cache_of_one() {
    for (settled, read_ahead) in [(false, 0), (true, 0), (true, 1024)] {
        let [sector, content, off] = [CacheKey::Sector, CacheKey::Content, CacheKey::Off].map(|key| {
            let mut bench = bench(key, read_ahead);
            bench.write_images();
            if settled {
                bench.settle();
            }
            bench.empty_the_cache();
            let blocks = bench.count_blocks_read();
            for first in [0, OTHER, 0, OTHER] {
                bench.read_image(first);
            }
            let status = bench.cached();
            // Slots can be joined for half of the cache's blocks. The others are found by content once more.
            let hits = if key == CacheKey::Content { IMAGE..2 * IMAGE } else { 0..1 };
            assert!(hits.contains(&status.contents.hits), "{status:?}");
            assert_eq!(status.contents.shared_blocks > 0, key == CacheKey::Content);
            bench.audit();
            blocks.get()
        });
        assert_eq!(content, IMAGE, "device reads are those of one image");
        assert!(sector > 3 * IMAGE, "by sector it takes {sector}");
        assert_eq!(off, 4 * IMAGE);
    }
}

/// Written blocks are cached. The second image joins the first while it is written, so no block has to be read.
#[test]
fn what_is_written_twice_is_kept_once() {
    let mut bench = bench(CacheKey::Content, 0);
    for block in 0..8 {
        bench.write(block, &[FIRST + block as u32]);
        bench.write(OTHER + block, &[FIRST + block as u32]);
    }
    bench.settle();
    assert_eq!(bench.cached().contents.shared_blocks, 8);
    let blocks = bench.count_blocks_read();
    for block in 0..8 {
        bench.assert_holds(block, FIRST + block as u32);
        bench.assert_holds(OTHER + block, FIRST + block as u32);
    }
    assert_eq!((blocks.get(), bench.cached().contents.hits), (0, 0), "these are hits by slot");
    bench.audit();
}

/// The property is kept with the pool.
#[test]
fn the_key_is_kept() {
    let mut bench = bench(CacheKey::Content, 0);
    bench.reopen();
    assert_eq!(bench.world.engine.properties().cache_key(), CacheKey::Content);
    bench.write_images();
    bench.empty_the_cache();
    bench.read_image(0);
    bench.read_image(OTHER);
    assert_eq!(bench.cached().contents.hits, IMAGE);
    bench.audit();
}

/// One of two slots with the same content is rotten. The block from the good slot answers for both. The block from the bad slot is never served,
/// neither for its own block nor for the other.
#[test]
fn a_rotten_place_is_never_served() {
    let mut bench = bench(CacheKey::Content, 0);
    bench.write(0, &[FIRST]);
    bench.write(OTHER, &[FIRST]);
    bench.settle();
    bench.empty_the_cache();
    let places = bench.places(FIRST);
    assert_eq!(places.len(), 2);
    bench.rot(places[1]);
    bench.assert_holds(0, FIRST);
    bench.assert_holds(OTHER, FIRST);
    assert_eq!((bench.cached().contents.hits, bench.world.engine.status().damaged_blocks_found), (1, 0));
    // With an empty cache the rot in the bad slot is found, and the good slot can still be read.
    bench.empty_the_cache();
    let answer = bench.read(OTHER);
    assert!(answer == Err(Error::Io) || answer == Ok(Answer::Data(vec![FIRST; sim::content::CELLS])), "{answer:?}");
    assert_eq!(bench.world.engine.status().damaged_blocks_found, 1);
    bench.assert_holds(0, FIRST);
}

/// A slot is freed and gets another content, whose digest has the same beginning. The cache has the old content, for another slot: 24 bits are no
/// proof.
#[test]
fn a_reused_place_is_never_taken_for_what_it_held() {
    for settled in [false, true] {
        for [before, after] in TWINS {
            let mut bench = bench_of(8, CacheKey::Content, 0);
            // One container has a single block of the old content, and another one is full of them.
            bench.write(0, &[before]);
            (1..8).for_each(|block| bench.write(block, &[7]));
            (8..16).for_each(|block| bench.write(block, &[before]));
            bench.settle();
            assert_eq!(bench.places(before).len(), 9);
            (8..16).chain([0]).for_each(|block| bench.assert_holds(block, before));
            bench.trim_blocks(8, 8);
            bench.settle();
            (8..62).for_each(|block| bench.write(block, &[after]));
            if settled {
                bench.settle();
                assert!(bench.places(before).len() < 4, "most of the other places have been taken again");
            }
            bench.empty_the_cache();
            bench.assert_holds(0, before);
            for block in (8..62).rev() {
                bench.assert_holds(block, after);
            }
            bench.assert_holds(0, before);
            bench.audit();
        }
    }
}
