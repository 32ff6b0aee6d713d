//! Extreme numbers in commands.

use engine::{Command, PoolChange, VolumeId};
use sim::runs::config::Config;
use sim::world::disk::Cut;

use crate::bench::Bench;

/// Returns the edges of the arithmetic, and the numbers beside them.
fn edges() -> Vec<u64> {
    let powers = [0u32, 12, 16, 31, 32, 40, 52, 62, 63].map(|power| 1u64 << power);
    let mut edges: Vec<u64> = powers.iter().flat_map(|&edge| [edge - 1, edge, edge + 1]).collect();
    let block_end = u64::MAX - u64::MAX % 4096;
    edges.extend([i64::MAX as u64 & !4095, block_end, u64::MAX - 1, u64::MAX]);
    edges
}

/// `onefold set POOL replicas=18446744073709551615` was accepted, and ended the server with the next checkpoint. The superblock keeps that number
/// plus one. Then the pool opened as before, because nothing had been written, but the service was gone.
#[test]
fn every_number_of_a_command_is_refused_or_carried_out_and_kept() {
    let mut bench = Bench::new(Config::small(1), 64);
    bench.write(3, &[5]);
    let volume = bench.volume;
    let mut performed = 0;
    for number in edges() {
        let change = PoolChange::default();
        let narrow = u32::try_from(number).unwrap_or(u32::MAX);
        let changes = [
            PoolChange { memory: Some(number), ..change },
            PoolChange { second_copies: Some(narrow), ..change },
            PoolChange { replicas: Some(Some(number)), ..change },
        ];
        let volumes = [
            Command::CreateVolume { name: "other", size: number, policy: None },
            Command::ResizeVolume { volume, size: number },
            Command::ResizeVolume { volume, size: 64 * bench.geometry().block() },
            Command::ResizeVolume { volume: VolumeId(narrow as u16), size: number },
            Command::DeleteVolume { volume: VolumeId((narrow as u16).max(2)) },
        ];
        for command in changes.map(Command::SetPool).into_iter().chain(volumes) {
            let token = bench.begin_command(command);
            performed += u32::from(bench.command_result(token).is_ok());
        }
        // Only sizes that the pool cannot grow to are tried, so the disk need not have them.
        if bench.geometry().grown(number).is_err() {
            let token = bench.begin_command(Command::Grow { capacity: number, metadata: number });
            assert!(bench.command_result(token).is_err());
        }
        let engine = &bench.world.engine;
        let kept = (engine.properties().memory(), engine.properties().replicas());
        assert_eq!(kept.0, number);
        // Also after a crash.
        bench.crash(Cut::Lost).expect("it opens");
        assert_eq!((bench.world.engine.properties().memory(), bench.world.engine.properties().replicas()), kept);
    }
    assert!(performed > 100, "{performed}");
    bench.assert_holds(3, 5);
    bench.audit();
}
