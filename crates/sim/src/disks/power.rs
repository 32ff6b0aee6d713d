//! The energy of disks: power in each state, times the time in that state.

use engine::Nanos;

use super::Statistics;

/// A disk's power in milliwatts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Power {
    /// Power with the arm in motion.
    pub seeking_mw: u64,
    /// Power during other service of a command.
    pub active_mw: u64,
    /// Power of the turning disk without work.
    pub idle_mw: u64,
}

/// A SATA disk of 160 GB at 7200 rpm: 12.5 W seeking, 12.0 W operating, 7.5 W idle (Seagate, Barracuda 7200.7 Serial ATA Product
/// Manual, Rev. N, table 4).
pub const HDD: Power = Power { seeking_mw: 12_500, active_mw: 12_000, idle_mw: 7_500 };

/// A SATA SSD: 0.85 W active, 0.6 W idle (Intel, Solid-State Drive 520 Series Product Specification, 325968-001US).
pub const SSD: Power = Power { seeking_mw: 850, active_mw: 850, idle_mw: 600 };

/// Returns the joules of `disks` disks with these statistics in the time `elapsed`.
pub fn joules(power: Power, statistics: &Statistics, disks: u64, elapsed: Nanos) -> f64 {
    let active = statistics.busy.saturating_sub(statistics.seeking);
    let idle = (u128::from(elapsed) * u128::from(disks)).saturating_sub(u128::from(active + statistics.seeking));
    let picojoules = u128::from(power.seeking_mw) * u128::from(statistics.seeking)
        + u128::from(power.active_mw) * u128::from(active)
        + u128::from(power.idle_mw) * idle;
    picojoules as f64 / 1e12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_is_power_by_time() {
        let second = 1_000_000_000;
        assert_eq!(joules(HDD, &Statistics::default(), 4, 10 * second), 300.0);
        let busy = Statistics { busy: 10 * second, seeking: 4 * second, ..Statistics::default() };
        assert_eq!(joules(HDD, &busy, 1, 10 * second), 4.0 * 12.5 + 6.0 * 12.0);
        assert_eq!(joules(SSD, &busy, 1, 20 * second), 8.5 + 6.0);
    }
}
