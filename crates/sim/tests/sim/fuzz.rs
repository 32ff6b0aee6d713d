//! Fuzz targets without a fuzzer: they run the corpus, and mutated seeds of the corpus from fixed random seeds.

use std::path::Path;

use sim::fuzz::disk::{Fate, Use, contents, journal, survive};
use sim::fuzz::driver::Driver;
use sim::fuzz::pool::{BLOCK, Kind, LIMITS, make, structures};
use sim::fuzz::seeds::{TARGETS, of};
use sim::random::Random;

/// Number of mutated inputs for each target.
const MADE_UP: u64 = 3000;

/// Mutates a seed: cuts, changes and lengthens it in random places.
fn bend(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..random.between(1, 6) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(4) {
            0 if at < bytes.len() => bytes[at] = random.draw() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 => drop(bytes.splice(at..at, (0..random.below(24)).map(|_| random.pick(&[0, 1, 2, 3, 16, 255])))),
            _ => {
                let extra: Vec<u8> = bytes[at..].iter().copied().take(40).collect();
                bytes.extend(extra);
            }
        }
    }
    bytes
}

#[test]
fn the_corpus_breaks_no_promise() {
    for (target, run) in TARGETS {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let mut files: Vec<_> = std::fs::read_dir(&directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
            .map(|file| file.expect("a directory that can be read").path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "{target} has no corpus");
        for file in files {
            println!("{}", file.display());
            run(&std::fs::read(&file).expect("a file that can be read"));
        }
    }
}

#[test]
fn the_committed_seeds_are_those_that_are_made() {
    for (target, _) in TARGETS {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        for (name, bytes) in of(target) {
            assert!(
                std::fs::read(directory.join(&name)).is_ok_and(|found| found == bytes),
                "{target}/{name}: run `sim corpus fuzz/corpus`"
            );
        }
    }
}

#[test]
fn made_up_inputs_break_no_promise() {
    for (target, run) in TARGETS {
        let seeds = of(target);
        for number in 0..MADE_UP {
            let mut random = Random::new(number);
            let seed = &seeds[random.below(seeds.len() as u64) as usize].1;
            let input = bend(seed, &mut random);
            if std::panic::catch_unwind(|| run(&input)).is_err() {
                panic!("{target}, seed {number}: {input:02x?}");
            }
        }
    }
}

#[test]
fn the_seeds_of_the_journal_replay_whole_chains() {
    let replayed = |(_, bytes): (_, Vec<u8>)| match journal(&bytes) {
        Fate::Served(records) => records,
        Fate::Refused(_) => 0,
    };
    assert!(of("journal_replay").into_iter().map(replayed).any(|records| records >= 3), "whole chains are replayed");
}

#[test]
fn a_sound_pool_is_served_in_every_way() {
    for how in 0..4 {
        assert_eq!(survive(make(Kind::Closed), Use(how)), Fate::Served(0));
        assert!(matches!(survive(make(Kind::Crashed), Use(how)), Fate::Served(1..)));
    }
}

/// One flipped byte anywhere in a pool has three possible effects: the pool is refused, a block cannot be read, or the block is unchanged. The
/// journal's last records may be lost with their changes, because nothing else says that they were durable. Then a block has its older content.
/// (`sim flips` takes every byte.)
#[test]
fn a_flipped_byte_of_any_structure_never_gives_wrong_data() {
    let before = contents(&mut Driver::open(make(Kind::Closed), LIMITS, engine::Engine::open).ok().unwrap());
    for kind in [Kind::Closed, Kind::Crashed] {
        let image = make(kind);
        let now = contents(&mut Driver::open(image.clone(), LIMITS, engine::Engine::open).ok().unwrap());
        for place in structures(&image).into_keys() {
            for at in (place..place + BLOCK).step_by(101) {
                let mut image = image.clone();
                image[at] ^= 1 << (at % 8);
                let Ok(mut driver) = Driver::open(image, LIMITS, engine::Engine::open) else { continue };
                for (volume, offset, found) in contents(&mut driver) {
                    let Some(found) = found else { continue };
                    let is = |all: &[(_, u64, Option<Vec<u8>>)]| {
                        all.iter().any(|(v, o, bytes)| (*v, *o) == (volume, offset) && bytes.as_ref() == Some(&found))
                    };
                    assert!(is(&now) || is(&before), "{kind:?}: byte {at}: {volume:?} at {offset}");
                }
            }
        }
    }
}
