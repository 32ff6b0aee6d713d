//! Disks of a run: two hard disks, on which containers alternate, and flash with its translation layer. Reads are served one after another.

use std::sync::Arc;

use engine::Nanos;

use sim::disks::drive::Drive;
use sim::disks::ftl::{Flash, Parameters, Wear};
use sim::disks::hdd::{Hdd, Options};
use sim::disks::{Class, Command, Disk, Op};

/// A device of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The hard disk that has this container. Offsets are within it.
    Store(u32),
    /// The flash.
    Flash,
}

/// Disks at work.
pub struct Disks {
    store: [Disk; 2],
    container_bytes: u64,
    flash: Option<Disk>,
    now: Nanos,
    tag: u64,
}

impl Disks {
    /// Creates idle disks. The flash has `flash_bytes` bytes; 0: there is none.
    pub fn new(container_bytes: u64, flash_bytes: u64, flash: impl Fn(u64) -> Parameters) -> Result<Disks, String> {
        let drive = Arc::new(Drive::wd1600aajs_like());
        let one = || Disk::Hdd(Box::new(Hdd::new(Arc::clone(&drive), Options::default())));
        let flash = match flash_bytes {
            0 => None,
            bytes => Some(Disk::Flash(Box::new(Flash::new(flash(bytes))?))),
        };
        Ok(Disks { store: [one(), one()], container_bytes, flash, now: 0, tag: 0 })
    }

    /// Returns the present virtual time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the bytes that the flash has written and erased; zeros without a model of the flash.
    pub fn wear(&self) -> Wear {
        match &self.flash {
            Some(Disk::Flash(flash)) => flash.wear(),
            _ => Wear::default(),
        }
    }

    /// Reads from a container in the store. If `waits` is set, the reader waits for it.
    pub fn read_store(&mut self, container: u32, offset: u64, bytes: u64, waits: bool) {
        let at = u64::from(container / 2) * self.container_bytes + offset;
        let class = if waits { Class::Foreground } else { Class::Background };
        let command = Command { op: Op::Read, offset: at, bytes, class };
        let end = submit(&mut self.store[container as usize % 2], self.now, &mut self.tag, &[command], waits);
        self.now = end;
    }

    /// Reads or writes stretches of flash, all at once, by offset and bytes.
    pub fn flash(&mut self, op: Op, stretches: &[(u64, u64)], waits: bool) {
        let Some(flash) = &mut self.flash else { return };
        let command = |&(offset, bytes): &(u64, u64)| Command { op, offset, bytes, class: Class::Foreground };
        let commands: Vec<Command> = stretches.iter().map(command).collect();
        self.now = submit(flash, self.now, &mut self.tag, &commands, waits);
    }
}

impl Disks {
    /// Begins a command of a reader without another command in flight.
    pub fn begin(&mut self, reader: u64, target: Target, command: Command) {
        let (disk, offset) = match (target, &mut self.flash) {
            (Target::Store(container), _) => {
                let within = u64::from(container / 2) * self.container_bytes;
                (&mut self.store[container as usize % 2], within + command.offset)
            }
            (Target::Flash, Some(flash)) => (flash, command.offset),
            (Target::Flash, None) => unreachable!("nothing is on a flash that is not there"),
        };
        disk.submit(self.now, reader, Command { offset, ..command });
    }

    /// Advances the time until a command is done, and returns its reader; none if there are no commands.
    pub fn wait(&mut self) -> Option<u64> {
        loop {
            let now = self.now;
            let mut all: Vec<&mut Disk> = self.store.iter_mut().chain(&mut self.flash).collect();
            if let Some(done) = all.iter_mut().find_map(|disk| disk.pop(now)) {
                return Some(done.tag);
            }
            self.now = now.max(all.iter().filter_map(|disk| disk.next()).min()?);
        }
    }
}

/// Gives a disk commands, and lets it work until they are done if someone waits: when that is.
fn submit(disk: &mut Disk, now: Nanos, tag: &mut u64, commands: &[Command], waits: bool) -> Nanos {
    // Removes completed commands without a waiter; the others are in flight.
    while disk.pop(now).is_some() {}
    let first = *tag;
    for &command in commands {
        disk.submit(now, *tag, command);
        *tag += 1;
    }
    let (mut at, mut left) = (now, if waits { commands.len() } else { 0 });
    while left > 0 {
        match disk.pop(at) {
            Some(done) => left -= usize::from(done.tag >= first),
            None => match disk.next() {
                Some(next) => at = at.max(next),
                None => break,
            },
        }
    }
    at
}
