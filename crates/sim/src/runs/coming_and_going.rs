//! The fixed scenario of a flash that is detached and attached while the pool serves.

use engine::{Limits, Policy};

use crate::runs::config::Config;
use crate::runs::shorthand::{SECONDS, place, write};
use crate::runs::workload::{Fronting, Operation};
use crate::world::disk::Cut;
use crate::world::flash::FlashConfig;

/// Number of the scenario.
pub(super) const NUMBER: u64 = 28;

/// Sets the config of the scenario, and returns its operations.
///
/// Two volumes fill six containers of twelve, and a flash has space for four. The flash is taken away in the middle of reads and copies. The blocks it held
/// are overwritten until containers that it has are opened again. In the second round a crash comes before the pool forgets the flash, and the flash comes
/// back as it was. When attached again it begins empty, and its places get other containers. In the end it hangs.
pub(super) fn prepare(config: &mut Config) -> Vec<Operation> {
    config.volumes = vec![(24, Policy::Native), (24, Policy::Native)];
    config.parameters.geometry.containers = 12;
    config.limits = Limits { buffers: 66, read_ahead: 0, ..config.limits };
    config.flash = Some(FlashConfig::greedy(4));
    let read = |volume| Operation::ReadOn { place: place(volume, 0, 24), blocks: 8, swapped: false };
    let crash = || Operation::Crash { cut: Cut::Kept, again: Vec::new(), verify: false };
    let rest = || Operation::Idle(SECONDS / 20);
    let (attach, detach) = (Operation::Flash(Fronting::Attach), Operation::Flash(Fronting::Detach));
    let mut operations: Vec<Operation> = (0..6).map(|n| write(n / 3, 8 * (n % 3), 8, 1 + 8 * n as u32)).collect();
    operations.push(Operation::Reopen);
    for round in 0..2u32 {
        let (content, volume) = (1000 * (round + 1), u64::from(round));
        operations.extend([read(volume), read(1 - volume)]);
        operations.push(rest());
        operations.extend([read(volume), detach.clone()]);
        operations.extend((0..4).map(|n| write(volume, 8 * (n % 3), 8, content + 8 * n as u32)));
        operations.push(Operation::Flush);
        operations.push(if round == 0 { attach.clone() } else { crash() });
        operations.extend([read(1 - volume), read(volume)]);
        operations.push(rest());
        operations.extend([detach.clone(), attach.clone(), read(1 - volume)]);
        operations.push(rest());
        operations.push(crash());
    }
    // The flash hangs, and blocks to be read from it are overwritten before it answers.
    operations.extend([Operation::Flash(Fronting::Hang { one_in: 1 }), read(1), read(0), Operation::Drain]);
    operations.extend([write(1, 0, 8, 5000), read(1), Operation::Flash(Fronting::Answer), read(0)]);
    operations.extend([detach, Operation::Idle(10 * SECONDS), attach, read(0)]);
    operations
}
