//! Flash with its translation layer: a model of the pages written and units erased for the writes of the host, and of
//! their times.
//!
//! Pages of 4 KiB are mapped one by one; writes go to the open erase unit. When only one unit is free, the full unit with the fewest valid pages is emptied:
//! its valid pages move to a unit of their own, and it is erased (greedy garbage collection). Physical pages are striped over the channels; each channel does
//! one thing at a time: a read, a program or an erase. A write is acknowledged when its pages are programmed, after the garbage collection that it needs.
//! There is no garbage collection in pauses.

use std::collections::{BTreeSet, VecDeque};

use engine::Nanos;
use serde::Serialize;

use super::{Breakdown, Calendar, Command, Done, Op, Statistics, Tag};

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Structure of the flash, and its times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Bytes for the host.
    pub bytes: u64,
    /// Bytes that are erased together.
    pub erase_unit: u64,
    /// Bytes beyond those for the host, in thousandths of these.
    pub spare_permille: u64,
    /// Number of operations that can be in progress at the same time.
    pub channels: usize,
    /// Time of a page into the controller.
    pub read_nanos: Nanos,
    /// Time of a page onto flash.
    pub program_nanos: Nanos,
    /// Time to erase a unit.
    pub erase_nanos: Nanos,
    /// Bytes per second to the host.
    pub read_bytes_per_second: u64,
    /// Bytes per second from the host.
    pub write_bytes_per_second: u64,
}

impl Parameters {
    /// Returns parameters for `bytes` bytes: 2 MiB erased together, 7 % to spare, and the published times of an Intel SSD 520: 80 us to read, 85 us to write,
    /// 550 and 520 MB/s. An erase takes 3 ms, as is usual for such flash. 16 channels are as fast as the bus.
    pub fn of_size(bytes: u64) -> Parameters {
        Parameters {
            bytes,
            erase_unit: 2 << 20,
            spare_permille: 70,
            channels: 16,
            read_nanos: 80_000,
            program_nanos: 85_000,
            erase_nanos: 3_000_000,
            read_bytes_per_second: 550_000_000,
            write_bytes_per_second: 520_000_000,
        }
    }
}

/// Totals of writes and erases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Wear {
    /// Pages that the host wrote.
    pub host_pages: u64,
    /// Pages programmed.
    pub flash_pages: u64,
    /// Units erased.
    pub erases: u64,
}

impl Wear {
    /// Returns the pages programmed for each that the host wrote, in thousandths.
    pub fn amplification_permille(&self) -> u64 {
        (self.flash_pages * 1000).checked_div(self.host_pages).unwrap_or(1000)
    }

    /// Returns the time that the drive lasts at this rate of writes: `endurance_bytes` divided by the bytes written in a second.
    pub fn lifetime_seconds(&self, endurance_bytes: u64, elapsed: Nanos) -> f64 {
        let rate = (self.host_pages * PAGE) as f64 * 1e9 / elapsed.max(1) as f64;
        endurance_bytes as f64 / rate
    }
}

/// Work of the flash for a page write, beside the program of the page itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Move { from: u32, to: u32 },
    Erase(u32),
}

/// The translation layer.
#[derive(Clone, Debug)]
pub struct Ftl {
    /// Pages of an erase unit.
    unit_pages: u32,
    /// Physical page of each logical one, plus one; 0 if it has none.
    map: Vec<u32>,
    /// Logical page of each physical one, plus one; 0 if it is not valid.
    reverse: Vec<u32>,
    valid: Vec<u32>,
    free: VecDeque<u32>,
    /// Full units, by the number of their valid pages.
    full: BTreeSet<(u32, u32)>,
    /// Units being written, one for the host and one for moved pages, each with its next page.
    open: [Option<(u32, u32)>; 2],
    wear: Wear,
}

impl Ftl {
    /// Creates empty flash with at least 4 erase units beyond those for the host. Fails if a size is out of bounds.
    pub fn new(parameters: &Parameters) -> Result<Ftl, String> {
        let Parameters { bytes, erase_unit, spare_permille, .. } = *parameters;
        if !(64 << 10..=64 << 20).contains(&erase_unit) || !erase_unit.is_multiple_of(PAGE) {
            return Err(format!("an erase unit has from 64 KiB to 64 MiB in pages of 4 KiB, not {erase_unit} bytes"));
        }
        if !(erase_unit..=1 << 40).contains(&bytes) {
            return Err(format!("flash has from one erase unit to 1 TiB, not {bytes} bytes"));
        }
        if spare_permille > 2_000 {
            return Err(format!("flash has at most 2000 thousandths to spare, not {spare_permille}"));
        }
        let units = bytes.div_ceil(erase_unit);
        let units = units + (units * spare_permille / 1000).max(4);
        let unit_pages = (erase_unit / PAGE) as u32;
        Ok(Ftl {
            unit_pages,
            map: vec![0; bytes.div_ceil(PAGE) as usize],
            reverse: vec![0; (units * u64::from(unit_pages)) as usize],
            valid: vec![0; units as usize],
            free: (0..units as u32).collect(),
            full: BTreeSet::new(),
            open: [None; 2],
            wear: Wear::default(),
        })
    }

    /// Returns the writes and erases so far.
    pub fn wear(&self) -> Wear {
        self.wear
    }

    /// Returns the physical page of a logical page, if it was written.
    fn physical(&self, page: u64) -> Option<u32> {
        self.map.get(page as usize).and_then(|&page| page.checked_sub(1))
    }

    /// Writes a logical page. Returns its physical page, and adds the garbage collection that it needed to `work`.
    fn write(&mut self, page: u64, work: &mut Vec<Work>) -> u32 {
        let page = page.min(self.map.len() as u64 - 1) as u32;
        self.forget(page);
        self.wear.host_pages += 1;
        let to = self.append(0, page);
        while self.free.len() < 2 {
            let Some((valid, unit)) = self.full.pop_first() else { break };
            let first = unit * self.unit_pages;
            for from in first..first + self.unit_pages {
                if let Some(moved) = self.reverse[from as usize].checked_sub(1) {
                    self.reverse[from as usize] = 0;
                    let to = self.append(1, moved);
                    work.push(Work::Move { from, to });
                }
            }
            self.valid[unit as usize] -= valid;
            self.free.push_back(unit);
            self.wear.erases += 1;
            work.push(Work::Erase(first));
        }
        to
    }

    /// Invalidates the physical page that a logical page had, if any.
    fn forget(&mut self, page: u32) {
        let Some(old) = self.map[page as usize].checked_sub(1) else { return };
        let unit = old / self.unit_pages;
        self.reverse[old as usize] = 0;
        let valid = &mut self.valid[unit as usize];
        if self.full.remove(&(*valid, unit)) {
            self.full.insert((*valid - 1, unit));
        }
        *valid -= 1;
    }

    fn append(&mut self, stream: usize, page: u32) -> u32 {
        let (unit, next) = self.open[stream].take().unwrap_or_else(|| {
            (self.free.pop_front().expect("a unit is kept free, and collection frees more than it takes"), 0)
        });
        let to = unit * self.unit_pages + next;
        self.map[page as usize] = to + 1;
        self.reverse[to as usize] = page + 1;
        self.valid[unit as usize] += 1;
        self.wear.flash_pages += 1;
        if next + 1 == self.unit_pages {
            self.full.insert((self.valid[unit as usize], unit));
        } else {
            self.open[stream] = Some((unit, next + 1));
        }
        to
    }
}

/// A drive of flash in operation.
#[derive(Clone, Debug)]
pub struct Flash {
    parameters: Parameters,
    ftl: Ftl,
    channels: Vec<Nanos>,
    read_bus: Nanos,
    write_bus: Nanos,
    /// Time at which everything written is on flash.
    written: Nanos,
    work: Vec<Work>,
    calendar: Calendar,
    statistics: Statistics,
}

impl Flash {
    /// Creates an empty drive. Fails if the parameters are out of bounds.
    pub fn new(parameters: Parameters) -> Result<Flash, String> {
        if !(1..=1024).contains(&parameters.channels) {
            return Err(format!("flash has from 1 to 1024 channels, not {}", parameters.channels));
        }
        Ok(Flash {
            parameters,
            ftl: Ftl::new(&parameters)?,
            channels: vec![0; parameters.channels],
            read_bus: 0,
            write_bus: 0,
            written: 0,
            work: Vec::new(),
            calendar: Calendar::default(),
            statistics: Statistics::default(),
        })
    }

    /// Returns the writes and erases so far.
    pub fn wear(&self) -> Wear {
        self.ftl.wear()
    }

    pub(super) fn capacity(&self) -> u64 {
        self.parameters.bytes / 512 * 512
    }

    /// Occupies the channel of a page for `nanos`, from `from` on or when it is free. Returns the time at which it is done.
    fn occupy(&mut self, page: u32, from: Nanos, nanos: Nanos) -> Nanos {
        let count = self.channels.len();
        let channel = &mut self.channels[page as usize % count];
        *channel = (*channel).max(from) + nanos;
        *channel
    }

    pub(super) fn submit(&mut self, now: Nanos, tag: Tag, command: Command) {
        self.statistics.count(command);
        let Parameters { read_nanos, program_nanos, .. } = self.parameters;
        let last = self.capacity().div_ceil(PAGE);
        let pages = command.offset / PAGE..command.offset.saturating_add(command.bytes).div_ceil(PAGE).min(last);
        let on_bus = |rate: u64| (u128::from(command.bytes) * 1_000_000_000 / u128::from(rate.max(1))) as Nanos;
        let (at, overhead, transfer) = match command.op {
            Op::Read => {
                let transfer = on_bus(self.parameters.read_bytes_per_second);
                let mut ready = now + read_nanos;
                for page in pages {
                    // A page that was never written is known to be empty.
                    if let Some(physical) = self.ftl.physical(page) {
                        ready = ready.max(self.occupy(physical, now, read_nanos));
                    }
                }
                self.read_bus = self.read_bus.max(ready) + transfer;
                (self.read_bus, read_nanos, transfer)
            }
            Op::Write => {
                let transfer = on_bus(self.parameters.write_bytes_per_second);
                self.write_bus = self.write_bus.max(now) + transfer;
                let mut at = self.write_bus + program_nanos;
                for page in pages {
                    at = at.max(self.write(page));
                }
                self.written = self.written.max(at);
                (at, program_nanos, transfer)
            }
            Op::Flush => (self.written.max(now), 0, 0),
        };
        self.statistics.busy += overhead + transfer;
        let breakdown = Breakdown { queue: at - now - overhead - transfer, overhead, transfer, ..Breakdown::default() };
        self.calendar.push(Done { tag, at, breakdown });
    }

    /// Programs a page that has come over the bus, after the garbage collection that it needs.
    fn write(&mut self, page: u64) -> Nanos {
        let Parameters { read_nanos, program_nanos, erase_nanos, .. } = self.parameters;
        let from = self.write_bus;
        let mut work = std::mem::take(&mut self.work);
        let physical = self.ftl.write(page, &mut work);
        let mut moved = from;
        for work in work.drain(..) {
            match work {
                Work::Move { from: old, to } => {
                    let read = self.occupy(old, from, read_nanos);
                    moved = moved.max(self.occupy(to, read, program_nanos));
                }
                Work::Erase(first) => moved = self.occupy(first, moved, erase_nanos),
            }
        }
        self.work = work;
        self.occupy(physical, from, program_nanos)
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        self.calendar.next()
    }

    pub(super) fn pop(&mut self, now: Nanos) -> Option<Done> {
        self.calendar.pop(now)
    }

    pub(super) fn statistics(&self) -> Statistics {
        self.statistics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::Class;
    use crate::random::Random;

    const SMALL: u64 = 64 << 20;

    #[test]
    fn every_page_is_where_it_was_last_written_and_nothing_else_is_valid() {
        for erase_unit in [64 << 10, 1 << 20] {
            let parameters = Parameters { erase_unit, ..Parameters::of_size(SMALL) };
            let mut ftl = Ftl::new(&parameters).expect("right parameters");
            let (mut random, mut work, pages) = (Random::new(1), Vec::new(), SMALL / PAGE);
            let mut written = BTreeSet::new();
            for _ in 0..6 * pages {
                let page = random.draw() % pages;
                ftl.write(page, &mut work);
                written.insert(page);
            }
            assert_eq!(ftl.valid.iter().map(|&valid| u64::from(valid)).sum::<u64>(), written.len() as u64);
            assert_eq!(ftl.reverse.iter().filter(|&&page| page != 0).count(), written.len());
            for page in 0..pages {
                let physical = ftl.physical(page);
                assert_eq!(physical.is_some(), written.contains(&page));
                assert!(physical.is_none_or(|physical| ftl.reverse[physical as usize] == page as u32 + 1));
            }
            let wear = ftl.wear();
            let moved = work.iter().filter(|work| matches!(work, Work::Move { .. })).count() as u64;
            assert_eq!(wear.flash_pages, wear.host_pages + moved);
        }
    }

    /// Checks the amplification of uniform writes. In the simplest theory it is (1 + s) / 2s. Of the 17 MiB to spare here 4 units are open or free, so
    /// that s is 5 % with units of 1 MiB (10.5) and 6.5 % with those of 64 KiB (8.2). Real units vary, and the emptiest is emptier: more so if they are
    /// small.
    #[test]
    fn uniform_writes_are_amplified_as_theory_says() {
        for (erase_unit, least, most) in [(1 << 20, 6_000, 10_500), (64 << 10, 4_000, 8_200)] {
            let parameters = Parameters { erase_unit, ..Parameters::of_size(4 * SMALL) };
            let mut ftl = Ftl::new(&parameters).expect("right parameters");
            let (mut random, mut work, pages) = (Random::new(1), Vec::new(), 4 * SMALL / PAGE);
            let mut before = Wear::default();
            for round in 0..5 {
                if round == 3 {
                    before = ftl.wear();
                }
                for _ in 0..pages {
                    work.clear();
                    ftl.write(random.draw() % pages, &mut work);
                }
            }
            let after = ftl.wear();
            let steady = Wear {
                host_pages: after.host_pages - before.host_pages,
                flash_pages: after.flash_pages - before.flash_pages,
                erases: after.erases - before.erases,
            };
            let amplification = steady.amplification_permille();
            assert!((least..most).contains(&amplification), "{erase_unit}: {amplification}");
        }
    }

    #[test]
    fn writes_in_the_order_of_erase_units_are_not_amplified() {
        let mut ftl = Ftl::new(&Parameters::of_size(SMALL)).expect("right parameters");
        let mut work = Vec::new();
        for page in (0..4).flat_map(|_| 0..SMALL / PAGE) {
            ftl.write(page, &mut work);
        }
        let wear = ftl.wear();
        assert_eq!(wear.amplification_permille(), 1_000);
        assert!((90..=128).contains(&wear.erases), "{wear:?}");
        // 256 MiB in 64 s: 4 MiB/s, and 4 GiB may be written.
        assert_eq!(wear.lifetime_seconds(4 << 30, 64_000_000_000), 1024.0);
    }

    #[test]
    fn flash_takes_its_published_times_and_collection_makes_writes_wait() {
        let mut flash = Flash::new(Parameters::of_size(SMALL)).expect("right parameters");
        let mut run = |now: Nanos, op, page: u64, pages: u64| {
            let command = Command { op, offset: page * PAGE, bytes: pages * PAGE, class: Class::Foreground };
            flash.submit(now, 0, command);
            let done = flash.next().and_then(|at| flash.pop(at)).expect("it completes");
            assert_eq!(done.breakdown.total(), done.at - now);
            done.at - now
        };
        assert_eq!(run(0, Op::Write, 0, 1), 85_000 + 4096 * 1_000 / 520);
        assert_eq!(run(1_000_000, Op::Read, 0, 1), 80_000 + 4096 * 1_000 / 550);
        assert_eq!(run(2_000_000, Op::Flush, 0, 0), 0);
        let (mut random, mut now, mut slowest) = (Random::new(1), 10_000_000, 0);
        for _ in 0..5 * SMALL / PAGE {
            let time = run(now, Op::Write, random.draw() % (SMALL / PAGE), 1);
            (now, slowest) = (now + time, slowest.max(time));
        }
        assert!(slowest > 3_000_000, "{slowest}");
    }

    #[test]
    fn wrong_sizes_are_refused() {
        assert!(Ftl::new(&Parameters { erase_unit: 1000, ..Parameters::of_size(SMALL) }).is_err());
        assert!(Ftl::new(&Parameters::of_size(0)).is_err());
        assert!(Flash::new(Parameters { channels: 0, ..Parameters::of_size(SMALL) }).is_err());
    }
}
