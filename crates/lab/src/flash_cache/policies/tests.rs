use super::*;
use crate::random::mix;

const THINGS: u32 = 5000;
const READS: u64 = 100_000;

/// The stream of docs/flash-cache.md, in integers: the same in the program that it is compared with.
fn stream() -> impl Iterator<Item = u32> {
    (0..READS).map(|number| {
        let draw = mix(number);
        let product: u128 = [0, 20, 40].map(|shift| u128::from((draw >> shift) & 0xf_ffff)).into_iter().product();
        ((product * u128::from(THINGS)) >> 60) as u32
    })
}

fn size(places: u32) -> Size {
    Size { things: THINGS, addresses: THINGS, places, bytes: 4 << 20 }
}

fn access(thing: u32) -> Access {
    Access { now: 0, thing, address: thing, references: 1, is_fragment: false }
}

fn misses(policy: Policy, places: u32) -> u64 {
    let mut cache = Cache::new(policy, size(places));
    stream().map(|thing| u64::from(!cache.access(access(thing)).hit)).sum()
}

/// libCacheSim 0.3.5; docs/flash-cache.md has the command that printed these.
#[test]
fn misses_are_those_of_libcachesim() {
    let golden = [
        (50, [94477, 94289, 90280, 88742, 87243]),
        (250, [77274, 75173, 64302, 66248, 63940]),
        (1000, [40672, 34262, 27266, 30744, 28389]),
    ];
    let policies = [Policy::Fifo, Policy::Lru, Policy::Lfu, Policy::Arc, Policy::S3Fifo];
    for (places, theirs) in golden {
        assert_eq!(policies.map(|policy| misses(policy, places)), theirs, "{places} places");
    }
}
