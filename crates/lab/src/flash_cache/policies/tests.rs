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

/// Every policy against a book of what it said: a hit is of what is there, and there is never more than fits.
#[test]
fn policies_keep_to_their_places() {
    let policies = [
        Policy::None,
        Policy::Fifo,
        Policy::Lru,
        Policy::Lfu,
        Policy::Sar(Sar::Recency),
        Policy::Sar(Sar::References),
        Policy::Larc,
        Policy::Arc,
        Policy::DLru,
        Policy::DArc,
        Policy::S3Fifo,
        Policy::Plc(Rules::PAPER),
        Policy::Plc(Rules::for_drive(100 << 22)),
    ];
    for policy in policies {
        for places in [1, 7, 100] {
            let addresses = 2 * THINGS;
            let mut cache = Cache::new(policy, Size { addresses, ..size(places) });
            let mut there = std::collections::HashSet::new();
            for (number, thing) in stream().take(20_000).enumerate() {
                let address = thing + if number % 3 == 0 { THINGS } else { 0 };
                let references = (thing % 4) as u16;
                let outcome = cache.access(Access { address, references, now: number as u64, ..access(thing) });
                assert!(!outcome.hit || there.contains(&thing), "{policy:?}: a hit of what is not there");
                assert!(!(outcome.hit && outcome.inserted), "{policy:?}");
                if let Some(evicted) = outcome.evicted {
                    assert!(there.remove(&evicted), "{policy:?} evicts what is not there");
                }
                if outcome.inserted {
                    assert!(there.insert(thing), "{policy:?} writes what is there");
                }
                assert!(there.len() <= places as usize, "{policy:?}");
            }
        }
    }
}

/// A content that is cached for one address is not written again for another, but only an address that was read before hits.
#[test]
fn contents_are_written_once_for_all_their_addresses() {
    for policy in [Policy::DLru, Policy::DArc] {
        let mut cache = Cache::new(policy, Size { things: 10, addresses: 20, places: 4, bytes: 1 });
        let mut read = |address| cache.access(Access { address, ..access(3) });
        assert_eq!(read(3), Outcome::inserted(None), "{policy:?}");
        assert_eq!(read(13), Outcome::PASSED_BY, "{policy:?}");
        assert_eq!((read(3), read(13)), (Outcome::HIT, Outcome::HIT), "{policy:?}");
    }
}

/// LARC: the first read is remembered, the second is written.
#[test]
fn larc_writes_what_is_read_again() {
    let mut cache = Cache::new(Policy::Larc, size(20));
    let mut read = |thing| cache.access(access(thing));
    assert_eq!((read(1), read(1), read(1)), (Outcome::PASSED_BY, Outcome::inserted(None), Outcome::HIT));
    // A scan leaves no trace.
    (100..1000).for_each(|thing| assert_eq!(read(thing), Outcome::PASSED_BY));
    assert_eq!(read(1), Outcome::HIT);
}
