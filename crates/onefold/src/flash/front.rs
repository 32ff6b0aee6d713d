//! The flash as the reactor has it: its I/O, its state, and its attachment and detachment while the pool is served.
//!
//! States, in order: none, or away (it was named and cannot be used); here; leaving (detached, and some of its I/O has not ended). No failure here ends the
//! server: an I/O error goes to the engine, which reads from the store instead.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use engine::admission::Rules;
use engine::{Event, FlashMode, FlashParameters, FlashStatus, Geometry, IoId, Limits, Nanos, Status};
use tracing::{info, warn};

use crate::flash::device::{Cache, Given};
use crate::flash::label::{ENGINE_PART, Label};
use crate::io::arena::BLOCK;
use crate::io::core::Core;
use crate::io::disk::{Disk, Part};
use crate::report::flash::FlashReport;
use crate::size;
use crate::store::backing::Store;

/// Time-out of the flash: longer than a drive takes that cleans up, and shorter than clients wait.
const PATIENCE: Nanos = 3_000_000_000;

/// Additional time for a flash that seems to be late: the server itself may have been late to look.
const SECOND_LOOK: Nanos = 200_000_000;

/// Divisor of the memory: the tables of the flash take at most this part of it.
const MEMORY_SHARE: u64 = 4;

/// The flash of a server.
#[derive(Default)]
pub struct Front {
    state: State,
    /// Figures that the log has already told of.
    seen: Seen,
}

#[derive(Default)]
enum State {
    #[default]
    None,
    Away {
        path: PathBuf,
        reason: String,
    },
    Here(Box<Device>),
    Leaving(Box<Device>),
}

struct Device {
    disk: Disk,
    /// Its lock lasts as long as this.
    store: Store,
    label: Label,
    since: Instant,
    /// True if it did not answer, and the engine has been told.
    is_late: bool,
    /// Time of the second look at a flash that seemed to be late: it is late if it still seems so then.
    second_look: Option<Nanos>,
}

impl Device {
    /// Returns the time at which its oldest I/O is overdue; `None` if it has none in flight or is late already.
    fn deadline(&self) -> Option<Nanos> {
        let oldest = self.disk.oldest().filter(|_| !self.is_late)?;
        Some((oldest + PATIENCE).max(self.second_look.unwrap_or(0)))
    }

    /// Returns true if it has just become late: overdue at a first look and at a second one.
    fn becomes_late(&mut self, now: Nanos) -> bool {
        let is_over = self.deadline().is_some_and(|deadline| deadline <= now);
        if !is_over {
            // A pending second look stays.
            self.second_look = self.second_look.filter(|&at| at > now);
            return false;
        }
        self.is_late = self.second_look.is_some();
        self.second_look = Some(now + SECOND_LOOK);
        self.is_late
    }
}

#[derive(Default)]
struct Seen {
    mode: Option<FlashMode>,
    has_bad_blocks: bool,
    has_failed_reads: bool,
}

/// Size of a cache in front of a pool, and the memory that it takes.
#[derive(Clone, Copy)]
pub struct Plan {
    places: u32,
    /// Bytes of memory that its tables take, to be taken off the divided memory.
    pub memory: u64,
}

impl Plan {
    /// Plans a cache for a server with `memory` bytes. With little memory, a part of the flash is not used.
    pub fn new(label: &Label, memory: u64, geometry: &Geometry) -> anyhow::Result<Plan> {
        let most = memory / MEMORY_SHARE;
        let fits = |places| Limits::flash_bytes(geometry, places) <= most;
        let fitting =
            (0..32).rev().map(|bit| 1u32 << bit).fold(0, |sum, bit| if fits(sum + bit) { sum + bit } else { sum });
        let blocks = label.size.saturating_sub(ENGINE_PART) / BLOCK as u64;
        let places = FlashParameters::places(blocks, fitting, geometry);
        ensure!(places > 0, "{} of memory are too little for a cache on flash", size::show(memory));
        if places == fitting {
            let memory = size::show(memory);
            warn!(
                "the flash is used for {places} containers and no more: {memory} of memory have no space for the tables of others"
            );
        }
        Ok(Plan { places, memory: Limits::flash_bytes(geometry, places) })
    }

    fn parameters(self, label: &Label) -> anyhow::Result<FlashParameters> {
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce).context("the kernel gives no random numbers")?;
        Ok(FlashParameters {
            blocks: label.size.saturating_sub(ENGINE_PART) / BLOCK as u64,
            most_places: self.places,
            nonce: u64::from_ne_bytes(nonce),
            rules: Rules::for_drive(label.budget),
        })
    }
}

impl Front {
    /// Takes the flash that a start was given, before the engine's first event.
    pub fn begin(&mut self, given: Given, plan: Option<Plan>, core: &mut Core) -> anyhow::Result<()> {
        match (given, plan) {
            (Given::Here(cache), Some(plan)) => {
                core.engine.set_flash(plan.parameters(&cache.label)?);
                self.take_in(*cache, core)
            }
            (Given::Away { path, reason }, _) => {
                warn!("the flash {} is away: {reason}. Reads go to the store", path.display());
                self.state = State::Away { path, reason };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Puts a cache in front of a pool that is served.
    pub fn attach(&mut self, cache: Cache, plan: Plan, core: &mut Core) -> anyhow::Result<()> {
        match &self.state {
            State::None | State::Away { .. } => {}
            State::Here(device) => {
                anyhow::bail!("the pool has a flash: {}. Detach it first", device.store.path().display())
            }
            State::Leaving(device) => {
                anyhow::bail!("{} has not answered yet since it was detached: try again", device.store.path().display())
            }
        }
        let parameters = plan.parameters(&cache.label)?;
        self.take_in(cache, core)?;
        if !core.engine.attach_flash(parameters) {
            self.let_go(core);
            anyhow::bail!("the pool takes no flash now: it is read-only, or the last one is not gone yet");
        }
        Ok(())
    }

    fn take_in(&mut self, cache: Cache, core: &mut Core) -> anyhow::Result<()> {
        let Cache { store, label } = cache;
        core.ring.set_flash(Some(store.as_raw_fd())).context("cannot register the flash with io_uring")?;
        let disk = Disk::new(Part::flash(ENGINE_PART), &store);
        self.seen = Seen::default();
        self.state = State::Here(Box::new(Device {
            disk,
            store,
            label,
            since: Instant::now(),
            is_late: false,
            second_look: None,
        }));
        Ok(())
    }

    /// Takes it away. The answer is its path.
    pub fn detach(&mut self, core: &mut Core) -> anyhow::Result<PathBuf> {
        match std::mem::take(&mut self.state) {
            State::Here(device) => {
                core.engine.detach_flash();
                let path = device.store.path().to_path_buf();
                // The device is released when it is idle, and not before it has got the engine's I/O up to now.
                self.state = State::Leaving(device);
                Ok(path)
            }
            State::Away { path, .. } => Ok(path),
            state => {
                self.state = state;
                anyhow::bail!("the pool has no flash")
            }
        }
    }

    fn let_go(&mut self, core: &mut Core) {
        if let Err(error) = core.ring.set_flash(None) {
            warn!("the flash cannot be unregistered: {error}");
        }
        self.state = State::None;
    }

    /// Returns true if the flash is in use, neither away nor leaving.
    pub fn is_here(&self) -> bool {
        matches!(self.state, State::Here(_))
    }

    fn device(&mut self) -> Option<&mut Device> {
        match &mut self.state {
            State::Here(device) | State::Leaving(device) => Some(device),
            State::None | State::Away { .. } => None,
        }
    }

    fn disk(&mut self) -> Option<&mut Disk> {
        self.device().map(|device| &mut device.disk)
    }

    /// Takes an I/O that the engine wants.
    pub fn take(&mut self, io: IoId, core: &mut Core) {
        self.disk().expect("the engine has been given a flash").take(io, core);
    }

    /// Takes the end of an operation of a slot, for the disk of the flash.
    pub fn completed(&mut self, slot: u32, result: i32, core: &mut Core) {
        self.disk().expect("a flash stays until its operations have ended").completed(slot, result, core);
    }

    /// Advances the flash as [`Disk::advance`] does. Removes a detached flash once its I/O has ended, and gives up one that does not answer.
    pub fn advance(&mut self, core: &mut Core) -> bool {
        let Some(device) = self.device() else { return false };
        let mut any = device.disk.advance(core);
        if device.becomes_late(core.now) {
            core.engine.handle(core.now, Event::FlashLate);
            any = true;
        }
        if let State::Leaving(device) = &self.state
            && device.disk.is_at_rest()
        {
            info!("the flash {} is gone", device.store.path().display());
            self.let_go(core);
        }
        any
    }

    /// Returns the time at which it must be checked even without an event: it may not have answered.
    #[cfg_attr(not(feature = "faults"), expect(unused_variables))]
    pub fn next_look(&self, now: Nanos) -> Option<Nanos> {
        match &self.state {
            State::Here(device) | State::Leaving(device) => {
                let deadline = device.deadline();
                #[cfg(feature = "faults")]
                let deadline = [deadline, device.disk.next_look(now)].into_iter().flatten().min();
                deadline
            }
            State::None | State::Away { .. } => None,
        }
    }

    /// Logs changes.
    pub fn look(&mut self, status: &Status) {
        let (State::Here(device), Some(flash)) = (&self.state, &status.flash) else { return };
        let path = device.store.path().display();
        let before = self.seen.mode.replace(flash.mode);
        if before != Some(flash.mode) {
            let FlashStatus { places, found, .. } = flash;
            match flash.mode {
                FlashMode::Opening => {}
                FlashMode::Found if before != Some(FlashMode::Active) => {
                    info!("the flash {path} has {found} containers of this pool, and space for {places}");
                }
                FlashMode::Active if before != Some(FlashMode::Found) => {
                    info!("the flash {path} has {found} containers of this pool, and space for {places}");
                }
                FlashMode::Found | FlashMode::Active => {}
                FlashMode::Late => {
                    let seconds = PATIENCE / 1_000_000_000;
                    warn!(
                        "the flash {path} has not answered for {seconds} s and is not used any more. Reads go to the store"
                    );
                }
                FlashMode::Off => warn!(
                    "the flash {path} has failed and is not used any more: {}. Reads go to the store",
                    device.disk.last_failure().unwrap_or("it gave errors")
                ),
            }
        }
        if flash.bad_blocks > 0 && !std::mem::replace(&mut self.seen.has_bad_blocks, true) {
            warn!("the flash {path} returned blocks that differ from those written: they are read from the store");
        }
        if flash.failed_reads > 0 && !std::mem::replace(&mut self.seen.has_failed_reads, true) {
            warn!("reads of the flash {path} failed: they went to the store");
        }
    }

    /// Returns the report of the flash.
    pub fn report(&self, status: &Status, geometry: &Geometry) -> FlashReport {
        let named = |state: &str, path: &Path| FlashReport {
            state: state.into(),
            path: Some(path.display().to_string()),
            ..FlashReport::default()
        };
        match &self.state {
            State::None => FlashReport::default(),
            State::Away { path, reason } => FlashReport { reason: Some(reason.clone()), ..named("away", path) },
            State::Leaving(device) => named("leaving", device.store.path()),
            State::Here(device) => {
                let Label { size, budget, endurance, .. } = device.label;
                let report = FlashReport {
                    size_bytes: size,
                    budget_bytes_per_day: budget,
                    endurance_bytes: (endurance > 0).then_some(endurance),
                    ..named("unused", device.store.path())
                };
                let Some(flash) = &status.flash else {
                    return FlashReport { reason: Some("the pool is not written".into()), ..report };
                };
                let container = u64::from(geometry.slots_per_container) * geometry.block();
                let reason = device.disk.last_failure().map(String::from);
                report.with(flash, container, device.since.elapsed(), reason)
            }
        }
    }
}
