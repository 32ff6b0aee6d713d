//! The subcommand `sim aged`: prints a table with a line for each day.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use engine::{DefragSetting, DeviceKind, DeviceTraits};

use super::{Day, Left, Month, Setup, measure};
use crate::disks::Disk;
use crate::disks::spec::size;

/// Minimum speed of the reader from the second day on, in thousandths of the first one's.
const LEAST_PERMILLE: u64 = 800;
/// Maximum number of blocks that may be moved for a thousand written ones.
const MOST_MOVED_PERMILLE: u64 = 1500;

/// Settings of defragmentation: the blocks that may be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Moves {
    /// As a pool does by default.
    Auto,
    /// Nothing.
    Off,
}

/// The pool that ages, and its disk.
#[derive(Args)]
pub struct Arguments {
    /// The disks: docs/internals/simulated-disks.md has the names.
    #[arg(long, value_delimiter = ';', default_value = "ssd;hdd:wd1600aajs")]
    disks: Vec<String>,
    /// Bytes of the volume: a number with M, G or T.
    #[arg(long, default_value = "1G", value_parser = size)]
    data: u64,
    /// Bytes of the pool beyond that.
    #[arg(long, default_value = "256M", value_parser = size)]
    space: u64,
    /// Memory of the engine.
    #[arg(long, default_value = "64M", value_parser = size)]
    memory: u64,
    /// Days.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1000))]
    days: u64,
    /// Blocks overwritten each day, of a thousand.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    permille: u64,
    /// Each block is overwritten as often as any other. Otherwise four of five writes go to a fifth of the volume.
    #[arg(long)]
    uniform: bool,
    /// Blocks that may be moved.
    #[arg(long, value_enum, default_value = "auto")]
    defrag: Moves,
    /// Blocks overwritten in order at first and at last, of a thousand.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1000))]
    in_order: u64,
    /// The volume is not read from end to end.
    #[arg(long)]
    unread: bool,
    /// Times that it is read each day, without a rest in between. The last one counts.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    passes: u64,
    /// Seconds that the pool rests after the overwrites, and after the readers.
    #[arg(long, default_value_t = 4 * 3600)]
    rest: u64,
    /// Kind of disk that the engine is told: ssd or hdd; auto: the true one.
    #[arg(long, default_value = "auto")]
    device: DeviceKind,
    /// Unwanted blocks that one read goes over, in place of what such a disk has.
    #[arg(long)]
    gap: Option<u32>,
}

impl Arguments {
    /// Returns the pool on a disk, and its load.
    fn setup(&self, disk: &Disk) -> Setup {
        let mut device = DeviceTraits::of(self.device).unwrap_or(disk.traits());
        device.gap_blocks = self.gap.unwrap_or(device.gap_blocks);
        Setup {
            data: self.data,
            space: self.space,
            memory: self.memory,
            days: self.days,
            permille: self.permille,
            defrag: if self.defrag == Moves::Off { DefragSetting::Off } else { DefragSetting::Auto },
            in_order: self.in_order,
            is_uniform: self.uniform,
            is_unread: self.unread,
            passes: self.passes,
            rest: self.rest,
            device,
        }
    }
}

/// Executes the study on each disk and prints its days. Fails if a disk cannot be made, a violation is found, or a limit is exceeded.
pub fn run(arguments: &Arguments) -> ExitCode {
    let mut good = true;
    for spec in &arguments.disks {
        let disk = match Disk::from_spec(spec) {
            Ok(disk) => disk,
            Err(error) => {
                eprintln!("sim aged: {error}");
                return ExitCode::FAILURE;
            }
        };
        let setup = arguments.setup(&disk);
        println!(
            "{spec}\n{:>4} {:>12} {:>9} {:>10} {:>9} {:>14} {:>8} {:>8} {:>6} {:>10}",
            "day",
            "read MB/s",
            "of fresh",
            "writes/s",
            "moved",
            "moved/written",
            "regions",
            "given up",
            "empty",
            "allowance"
        );
        let month = match measure(setup, disk, show_last) {
            Ok(month) => month,
            Err(violation) => {
                eprintln!("sim aged: {violation}");
                return ExitCode::FAILURE;
            }
        };
        if let Some(permille) = month.in_order_permille() {
            let [new, aged] = month.in_order.map(|speed| speed as f64 / 1e6);
            println!("written in order: {aged:.1} MB/s, {:.3} of the {new:.1} over a new pool", permille as f64 / 1e3);
        }
        good &= setup.defrag == DefragSetting::Off || setup.is_unread || is_good(&month);
    }
    if !good {
        println!(
            "too much: a reader got less than 0.8 of the first one's speed, more than 1.5 blocks were moved for each written one, or regions were left"
        );
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show_last(month: &Month) {
    let number = month.days.len();
    if number == 1 {
        println!("{:>4} {:>12.1} {:>9.3}", 0, month.fresh as f64 / 1e6, 1.0);
    }
    let day = &month.days[number - 1];
    let (of_fresh, moved) = (month.permille(day) as f64 / 1e3, day.moved as f64 / day.written.max(1) as f64);
    let read = day.read as f64 / 1e6;
    let Left { regions, given_up, empty_containers, allowance } = day.left;
    print!("{number:>4} {read:>12.1} {of_fresh:>9.3} {:>10} {:>9} {moved:>14.2} ", day.writes, day.moved);
    println!("{regions:>8} {given_up:>8} {empty_containers:>6} {allowance:>10}");
}

fn is_good(month: &Month) -> bool {
    let is_read = |day| month.permille(day) >= LEAST_PERMILLE;
    let last = month.days.last();
    // A pool that cannot empty a container any more has no allowance left, either, or is full.
    let is_done = |day: &Day| day.left.regions == 0 || day.left.allowance == 0;
    month.days.iter().skip(1).all(is_read)
        && month.days.iter().all(is_done)
        && last.is_none_or(|day| day.moved * 1000 <= day.written * MOST_MOVED_PERMILLE)
}
