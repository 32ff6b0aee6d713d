//! Flash cache in front of the store: its trust state, the choice of reads that it serves, and its figures. It saves reads of the slower store.
//!
//! Correctness never depends on it. It holds copies of closed containers; writes go around it. It names a container by number and generation,
//! and the generation grows whenever slots of the container may get new content. Two rules make that safe across crashes:
//!
//! ```text
//! A  a container in which replay took a slot is not trusted, nor one that was opened since: its generation may not say so yet
//! B  each opening gives the flash a new stamp, and its own first superblock trusts no flash. Copying starts only when a later superblock has
//!    the new stamp durably. So every copy that is found was written by an opening that knew of all openings. A flash that is attached later
//!    has a new stamp, too, and its log is not written before a superblock trusts no flash
//! ```
//!
//! Each block read from flash is compared with all 128 bits of the slot's digest. If the page with the digest is not in memory, the page is
//! loaded, and the read goes to the store. `jobs/flash.rs` fills the places, `data_path/flash.rs` reads them.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};

use super::Pool;
use crate::api::*;
use crate::flash_cache::admission::{Admission, Rules, UNKNOWN, Verdict};
use crate::flash_cache::places::Places;
use crate::flash_cache::quadrants::Quadrants;
use crate::format::bytes::u32_at;
use crate::format::entry::{Slot, check_bits};
use crate::format::flash::{LogOwner, Shape, Stamp};
use crate::format::geometry::Geometry;
use crate::format::superblock::TreeId;
use crate::locality_map::NearMap;
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{Missing, Walk, lookup};
use crate::mutant::Mutant;
use crate::sizes::{list_bytes, table_bytes};

/// Maximum number of containers that were read and may be copied.
const WANTED: usize = 64;
/// Maximum number of blocks that are read from flash at the same time.
const MOST_AT_ONCE: usize = 1024;
/// Divisor of the buffers: one in N is not set aside for a read of flash, so that other waiters get it.
const LEFT_OVER: usize = 8;
/// Number of failed reads after which the flash is no longer used.
const MOST_ERRORS: u32 = 16;

/// Parameters of a flash device, for [`crate::Engine::set_flash`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashParameters {
    /// Blocks that fit on it, of the pool's block size.
    pub blocks: u64,
    /// Maximum number of places that the memory budget allows: see [`crate::Limits::flash_bytes`].
    pub most_places: u32,
    /// Nonce, drawn anew by each opening.
    pub nonce: u64,
    /// Rules for the choice of containers to copy, unless the pool's property overrides them. A budget holds in any case.
    pub rules: Rules,
}

impl FlashParameters {
    /// Returns the number of places that flash of `blocks` blocks has in front of a pool of this geometry, but at most `most`. 0: it is too small.
    pub fn places(blocks: u64, most: u32, geometry: &Geometry) -> u32 {
        Shape::new(blocks, most, geometry).map_or(0, |shape| shape.places())
    }
}

/// Trust state of the flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlashMode {
    /// State before its log has been read.
    Opening,
    /// State in which containers named by its log are read from it. Nothing is copied yet: the superblock does not name its stamp.
    Found,
    /// State in which containers are copied.
    Active,
    /// State after a write or a sync of it failed, or too many reads. It is not used until the pool is opened again.
    Off,
    /// State after it did not answer in time. It is not used until the pool is opened again.
    Late,
}

/// Figures of the flash. The counters start when the pool is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashStatus {
    /// Trust state of the flash.
    pub mode: FlashMode,
    /// Number of containers that fit on it.
    pub places: u32,
    /// Number of containers that can be read from it now; 0 once it is off.
    pub filled: u32,
    /// Number of containers that an earlier opening copied and this one trusted.
    pub found: u32,
    /// Blocks that reads got from flash.
    pub read_blocks: u64,
    /// Blocks that reads got from the store.
    pub missed_blocks: u64,
    /// Missed blocks that were on flash, while the page that proves them was not in memory.
    pub unproven_blocks: u64,
    /// Reads of flash that failed. The blocks were then read from the store.
    pub failed_reads: u64,
    /// Blocks read from flash that did not match their digest. They were then read from the store.
    pub bad_blocks: u64,
    /// Number of containers copied.
    pub copied: u64,
    /// Containers whose copy was given up: they changed meanwhile, or were unreadable.
    pub given_up: u64,
    /// Number of bytes of containers written to flash.
    pub copied_bytes: u64,
    /// Number of bytes of its log written to flash.
    pub log_bytes: u64,
    /// Bytes that the budget of [`crate::admission::Filter::Budget`] has left now; 0 without one.
    pub budget_left: u64,
    /// Containers found and copied, by outcome.
    pub quadrants: Quadrants,
}

/// State of the flash in front of the store.
pub(crate) struct Flash {
    log: LogOwner,
    /// Stamp that this opening writes to the flash, and the stamp that the superblock named when the pool was opened.
    stamp: Stamp,
    found: Stamp,
    admission: Admission,
    /// Rules that apply where the pool's property does not decide.
    own_rules: Rules,
    places: Places,
    /// Digests that blocks being read from flash must match.
    proofs: NearMap<Slot, Digest>,
    wanted: VecDeque<u32>,
    /// True once the log has this opening's stamp, durably.
    is_stamped: bool,
    status: FlashStatus,
}

impl Flash {
    /// Returns the owner and the shape of the log.
    pub(crate) fn log(&self) -> LogOwner {
        self.log
    }

    /// Returns the stamp of this opening, and the one that the superblock named.
    pub(crate) fn stamps(&self) -> (Stamp, Stamp) {
        (self.stamp, self.found)
    }

    /// Returns the places, read-only.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// Returns the figures, to be updated.
    pub(crate) fn counts(&mut self) -> &mut FlashStatus {
        &mut self.status
    }

    /// Adopts the containers that the opening trusts (place, container, generation), with the remaining budget if it is known.
    pub(crate) fn restore(&mut self, now: Nanos, held: &[(u32, u32, u16)], budget: Option<u64>) {
        for &(place, container, generation) in held {
            self.places.fill(place, container, generation);
        }
        let held: alloc::vec::Vec<_> = held.iter().map(|&(place, container, _)| (place, container)).collect();
        self.admission.restore(now, &held, budget);
        (self.status.found, self.status.mode) = (held.len() as u32, FlashMode::Found);
    }

    /// Returns the bytes that the write budget has left now; 0 without one.
    pub(crate) fn budget_left(&self, now: Nanos) -> u64 {
        self.admission.budget_left(now)
    }

    /// Ends reads of a container from flash: its content may have changed.
    pub(crate) fn leave(&mut self, container: u32) {
        if let Some(place) = self.admission.place(container)
            && self.places.filled_by(place) == Some(container)
        {
            self.places.leave(place);
        }
    }

    /// Ends reads of a place, which will be overwritten. (With the mutant, `at_once` lets it be overwritten immediately.)
    pub(crate) fn evict(&mut self, place: u32, at_once: bool) {
        self.places.leave(place);
        if at_once {
            self.places.forgotten(self.places.leaving().len());
        }
    }

    /// Frees the first `count` of the leaving places: the log says durably that they hold nothing.
    pub(crate) fn forgotten(&mut self, count: usize) {
        for (place, container) in self.places.forgotten(count) {
            if self.admission.place(container) == Some(place) {
                self.admission.remove(container);
            }
        }
    }

    /// Notes that a container's copy and its log entry are written: reads of it now go to the place.
    pub(crate) fn fill(&mut self, place: u32, container: u32, generation: u16) {
        self.places.fill(place, container, generation);
        self.admission.note_copied(container);
        self.status.copied += 1;
    }

    /// Returns true if a container is read from flash. A container that is being copied or is leaving is not.
    pub(crate) fn has(&self, container: u32) -> bool {
        !self.is_off()
            && self.admission.place(container).is_some_and(|place| self.places.filled_by(place) == Some(container))
    }

    /// Gives up copying a container and counts that.
    pub(crate) fn give_up(&mut self, container: u32) {
        self.admission.remove(container);
        self.status.given_up += 1;
    }

    /// Returns the next container that was read and may be copied.
    pub(crate) fn next_wanted(&self) -> Option<u32> {
        self.wanted.front().copied()
    }

    /// Drops the container that [`Flash::next_wanted`] returns, after its turn.
    pub(crate) fn drop_wanted(&mut self) {
        self.wanted.pop_front();
    }

    /// Notes that the log has the new stamp, durably.
    pub(crate) fn stamped(&mut self) {
        self.is_stamped = true;
    }

    /// Returns true if any container waits to be copied.
    pub(crate) fn wants_any(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Returns true if the flash is no longer used: it failed or did not answer in time.
    pub(crate) fn is_off(&self) -> bool {
        matches!(self.status.mode, FlashMode::Off | FlashMode::Late)
    }

    /// Ends the read of a block from a place, and returns the digest that the block must have.
    pub(crate) fn end_read(&mut self, slot: Slot, place: u32) -> Option<Digest> {
        self.places.end_read(place);
        self.proofs.remove(&slot)
    }

    fn memory(&self) -> u64 {
        self.admission.memory() + self.places.memory() + table_bytes(&self.proofs)
    }
}

impl Pool {
    /// Sets the flash in front of the store. Before the opening: the opening gives it an epoch and decides which copies are trusted. While the pool serves: no
    /// copies are trusted. Each flash of an opening gets another nonce.
    pub(crate) fn set_flash(&mut self, parameters: FlashParameters) {
        let FlashParameters { blocks, most_places, nonce, rules } = parameters;
        let geometry = *self.metadata.geometry();
        let Some(shape) = Shape::new(blocks, most_places, &geometry) else { return };
        let bytes = u64::from(geometry.slots_per_container) * geometry.block();
        let most = u64::from(u16::MAX);
        let before = u64::from(self.hints.flash_nonce);
        let is_first = before == 0;
        let drawn = (1 + if is_first { nonce % most } else { before % most }) as u16;
        let nonce = if self.mutant(Mutant::SameNonce) && !is_first { self.hints.flash_nonce } else { drawn };
        self.hints.flash_nonce = nonce;
        let none = Stamp { epoch: 0, nonce: 0 };
        self.durable.space.watch();
        self.hints.flash = Some(Box::new(Flash {
            log: LogOwner { id: self.durable.superblock.parameters.id, secret: self.metadata.journal_seed(), shape },
            stamp: Stamp { nonce, epoch: self.durable.superblock.seal_epoch },
            found: none,
            admission: Admission::new(rules, geometry.containers, shape.places(), bytes),
            own_rules: rules,
            places: Places::new(shape.places()),
            proofs: NearMap::default(),
            wanted: VecDeque::new(),
            is_stamped: false,
            status: FlashStatus {
                mode: FlashMode::Opening,
                places: shape.places(),
                filled: 0,
                found: 0,
                read_blocks: 0,
                missed_blocks: 0,
                unproven_blocks: 0,
                failed_reads: 0,
                bad_blocks: 0,
                copied: 0,
                given_up: 0,
                copied_bytes: 0,
                log_bytes: 0,
                budget_left: 0,
                quadrants: Quadrants::default(),
            },
        }));
        self.follow_flash_policy();
    }

    /// Lets the policy in force decide from now on which containers are copied. Existing copies stay.
    pub(crate) fn follow_flash_policy(&mut self) {
        if let Some(flash) = &mut self.hints.flash {
            flash.admission.set_rules(Rules::of_policy(self.properties.flash_policy(), flash.own_rules));
        }
    }

    /// Offers a container to flash, and returns its place if it shall be copied.
    pub(crate) fn offer_to_flash(&mut self, container: u32) -> Result<Option<u32>, Missing> {
        let now = self.state.now();
        let Some(flash) = self.hints.flash.as_mut() else { return Ok(None) };
        if !flash.admission.passes(now, container) {
            return Ok(None);
        }
        let asks = flash.admission.asks_for_references();
        let references = if asks { self.files_in(container)? } else { UNKNOWN };
        let Some(mut flash) = self.hints.flash.take() else { return Ok(None) };
        let verdict = flash.admission.offer(now, container, references, |victim| {
            if !asks {
                return None;
            }
            // Missing pages are loaded for the next offer.
            self.files_in(victim).map_err(|missing| self.metadata.load(missing, None)).ok()
        });
        self.hints.flash = Some(flash);
        match verdict {
            Verdict::Admitted { place, .. } => Ok(Some(place)),
            Verdict::Filtered | Verdict::Delayed | Verdict::NotBetter => Ok(None),
        }
    }

    /// Returns the number of files that use a container after deduplication, as far as a block device can tell: the largest reference count of its slots. 1 if
    /// no slot is shared. The counts are those of the newest merge; unreadable ones count as not shared.
    fn files_in(&mut self, container: u32) -> Result<u16, Missing> {
        let per_leaf = self.metadata.geometry().block() / 4;
        let slots = self.durable.space.slots_of(container);
        let root = self.durable.root(TreeId::Counts);
        let mut most = 1;
        for leaf in slots.start / per_leaf..slots.end.div_ceil(per_leaf) {
            let page = match lookup(&mut self.metadata, Region::Metadata, root, leaf) {
                Walk::Leaf(page) => self.metadata.pages().bytes(page),
                Walk::Absent(_) => continue,
                Walk::Missing(missing) | Walk::From { missing, .. } if self.metadata.has_failed(missing.key) => {
                    continue;
                }
                Walk::Missing(missing) | Walk::From { missing, .. } => return Err(missing),
            };
            let (first, end) = (slots.start.max(leaf * per_leaf), slots.end.min((leaf + 1) * per_leaf));
            let counts = (first..end).map(|slot| u32_at(page, (slot % per_leaf * 4) as usize));
            most = counts.fold(most, u32::max);
        }
        Ok(u16::try_from(most).unwrap_or(u16::MAX - 1))
    }

    /// Returns the epoch of the superblock that the opening is about to write. This superblock trusts no flash; the previous one may have trusted one.
    pub(crate) fn begin_epoch(&mut self) -> u64 {
        let epoch = self.durable.superblock.epoch + 1;
        if let Some(flash) = &mut self.hints.flash {
            flash.found = Stamp { epoch: self.durable.superblock.seal_epoch, nonce: self.durable.superblock.flash };
            flash.stamp.epoch = epoch;
        }
        epoch
    }

    /// Notes that replay took a slot: its container was opened before, perhaps with a generation that does not say so.
    pub(crate) fn note_replayed(&mut self, slot: Slot) {
        if !self.mutant(Mutant::ReplayedOnFlash) {
            self.durable.space.note_replayed(slot);
        }
    }

    /// Returns the flash, if there is one.
    pub(crate) fn flash(&self) -> Option<&Flash> {
        self.hints.flash.as_deref()
    }

    /// Returns the flash for a change, if there is one.
    pub(crate) fn flash_mut(&mut self) -> Option<&mut Flash> {
        self.hints.flash.as_deref_mut()
    }

    /// Drops the flash: the pool is not written, or the flash is taken away.
    pub(crate) fn forget_flash(&mut self) {
        self.hints.flash = None;
        self.durable.space.stop_watching();
    }

    /// Switches the flash off for the rest of this run; the next superblock trusts none.
    pub(crate) fn switch_flash_off(&mut self) {
        self.end_flash(FlashMode::Off);
    }

    /// Switches the flash off because it does not answer; the next superblock trusts none.
    pub(crate) fn leave_late_flash(&mut self) {
        self.end_flash(FlashMode::Late);
    }

    fn end_flash(&mut self, mode: FlashMode) {
        if let Some(flash) = &mut self.hints.flash
            && !flash.is_off()
        {
            flash.status.mode = mode;
            flash.wanted.clear();
            self.durable.space.stop_watching();
            self.request_checkpoint_if(self.durable.superblock.flash != 0 && !self.state.read_only());
        }
    }

    /// Returns the flash nonce for the next superblock; 0: it trusts no flash.
    pub(crate) fn flash_nonce(&self) -> u16 {
        self.hints
            .flash
            .as_ref()
            .filter(|flash| flash.is_stamped && !flash.is_off())
            .map_or(0, |flash| flash.stamp.nonce)
    }

    /// Returns true if containers may be copied: the superblock in force trusts the flash.
    pub(crate) fn flash_is_trusted(&self) -> bool {
        self.durable.superblock.flash != 0 && self.durable.superblock.flash == self.flash_nonce()
    }

    /// Returns true if the superblock in force trusts an earlier flash: an opening after a crash would trust the log of that one.
    pub(crate) fn another_flash_is_trusted(&self) -> bool {
        self.durable.superblock.flash != 0 && !self.flash_is_trusted()
    }

    /// Ends reads from flash of containers whose slots may have got new content.
    pub(crate) fn follow_changed_containers(&mut self) {
        let changed = self.durable.space.take_changed();
        if let Some(flash) = &mut self.hints.flash {
            changed.into_iter().for_each(|container| flash.leave(container));
        }
    }

    /// Returns the current generation of a container, unless its content may differ from the copy that the flash found.
    pub(crate) fn unchanged_generation(&self, container: u32, changed: &BTreeSet<u32>) -> Option<u16> {
        let known = self.durable.space.containers().get(container as usize)?;
        (!changed.contains(&container)).then_some(known.generation)
    }

    /// Returns true if there is a flash, in any mode.
    #[inline]
    pub(crate) fn has_flash(&self) -> bool {
        self.hints.flash.is_some()
    }

    /// Begins to read a block for a request from flash, and returns the place of its container. `None`: flash does not have it, its digest is not known, or no
    /// buffer is left.
    #[inline(never)]
    pub(crate) fn read_place(&mut self, slot: Slot, check: u32) -> Option<u32> {
        let place = self.place_of(slot, check);
        let spare = if place.is_some() { self.spare_buffer() } else { None };
        let flash = self.hints.flash.as_mut()?;
        match place.zip(spare) {
            Some(((place, digest), spare)) => {
                self.hints.flash_spares.push(spare);
                flash.status.read_blocks += 1;
                flash.places.begin_read(place);
                flash.proofs.insert(slot, digest);
                Some(place)
            }
            None => {
                flash.status.missed_blocks += 1;
                None
            }
        }
    }

    /// Takes a second buffer for the same block, in case the flash keeps the first one.
    fn spare_buffer(&mut self) -> Option<BufferId> {
        let left = self.memory.buffers().free() + self.memory.cache().len();
        let may_take =
            self.hints.flash_spares.len() < MOST_AT_ONCE && left > self.memory.buffers().count() as usize / LEFT_OVER;
        if may_take { self.any_buffer() } else { None }
    }

    /// Takes one of the buffers set aside: a read of flash has ended, or its block is read from the store.
    pub(crate) fn take_spare(&mut self) -> BufferId {
        self.hints.flash_spares.pop().expect("each block that is read from flash has one")
    }

    fn place_of(&mut self, slot: Slot, check: u32) -> Option<(u32, Digest)> {
        let (container, generation) = (self.durable.space.container_of(slot), self.durable.space.generation(slot));
        let flash = self.hints.flash.as_mut().filter(|flash| !flash.is_off())?;
        let place = flash.admission.access(self.state.now(), container);
        let Some(place) = place.filter(|&place| flash.places.holds(place, container, generation)) else {
            if place.is_none() && flash.wanted.len() < WANTED && !flash.wanted.contains(&container) {
                flash.wanted.push_back(container);
                self.wake();
            }
            return None;
        };
        let digest = match self.recent(slot).map(|recent| recent.digest) {
            Some(digest) => Some(digest),
            None => match self.summary(slot) {
                Ok(digest) => digest,
                Err(missing) => {
                    if !self.metadata.has_failed(missing.key) {
                        self.metadata.load(missing, None);
                    }
                    if let Some(flash) = &mut self.hints.flash {
                        flash.status.unproven_blocks += 1;
                    }
                    None
                }
            },
        };
        digest.filter(|&digest| check_bits(digest) == check).map(|digest| (place, digest))
    }

    /// Counts a failed read of flash, or `blocks` blocks that did not match their digests. Too many failures switch the flash off.
    pub(crate) fn note_bad_flash(&mut self, failed: bool, blocks: u64) {
        let Some(flash) = &mut self.hints.flash else { return };
        flash.status.failed_reads += u64::from(failed);
        flash.status.bad_blocks += if failed { 0 } else { blocks };
        if flash.status.failed_reads >= u64::from(MOST_ERRORS) {
            self.switch_flash_off();
        }
    }

    /// Returns the figures of the flash, if there is one.
    pub(crate) fn flash_status(&self) -> Option<FlashStatus> {
        let flash = self.hints.flash.as_ref()?;
        let mode = match flash.status.mode {
            FlashMode::Found if self.flash_is_trusted() => FlashMode::Active,
            mode => mode,
        };
        let filled = if flash.is_off() { 0 } else { flash.places.filled_count() };
        let (budget_left, quadrants) = (flash.budget_left(self.state.now()), flash.admission.quadrants());
        Some(FlashStatus { mode, filled, budget_left, quadrants, ..flash.status })
    }

    /// Returns the bytes of memory of the flash, with the list of buffers set aside.
    pub(crate) fn flash_memory(&self) -> u64 {
        self.hints.flash.as_ref().map_or(0, |flash| flash.memory()) + list_bytes(&self.hints.flash_spares)
    }

    /// Makes space for the containers of a grown pool.
    pub(crate) fn grow_flash(&mut self) {
        if let Some(flash) = &mut self.hints.flash {
            flash.admission.grow(self.metadata.geometry().containers);
        }
    }
}
