//! Device traits of the disk: stated by the driver, or set, and then kept.

use engine::{Command, DeviceKind, DeviceTraits, Limits, PoolChange};
use sim::runs::config::Config;
use sim::world::disk::Cut;

use crate::bench::Bench;

impl Bench {
    fn set_device(&mut self, kind: DeviceKind) {
        self.command(Command::SetPool(PoolChange { device: Some(kind), ..PoolChange::default() }));
    }

    /// Returns the device kind that was set, and the traits in force.
    fn device(&self) -> (DeviceKind, DeviceTraits) {
        let status = self.world.engine.status();
        (status.device_set, status.device)
    }
}

#[test]
fn what_was_set_is_in_force_at_once_and_over_a_restart_and_else_the_driver_says_it() {
    let config = Config::small(1);
    let rotational = DeviceTraits { gap_blocks: 3, ..DeviceTraits::HDD };
    let limits = Limits { device: rotational, ..config.limits };
    let mut bench = Bench::new(config, 64);
    assert_eq!(bench.device(), (DeviceKind::Auto, DeviceTraits::SSD));
    bench.world.set_limits(limits).unwrap();
    assert_eq!(bench.device(), (DeviceKind::Auto, rotational));
    bench.set_device(DeviceKind::Ssd);
    assert_eq!(bench.device(), (DeviceKind::Ssd, DeviceTraits::SSD));
    bench.set_device(DeviceKind::Hdd);
    bench.crash(Cut::Lost).unwrap();
    assert_eq!(bench.device(), (DeviceKind::Hdd, DeviceTraits::HDD));
    bench.set_device(DeviceKind::Auto);
    bench.crash(Cut::Lost).unwrap();
    assert_eq!(bench.device().0, DeviceKind::Auto);
    bench.audit();
}
