//! Use of replicas by the pool: their budgets, the zones for copies, other places of a slot's content, and the way back from a replica to its slot.

use crate::api::Digest;
use crate::format::entry::Slot;
use crate::limits::Limits;
use crate::limits::counted_runs;
use crate::limits::popular_bytes;
use crate::pool::Pool;
use crate::space::zones::ZONES;

/// Divisor of the slots: without a budget, replicas may take one in N.
const SHARE: u64 = 128;

impl Pool {
    /// Returns the number of blocks that replicas may take: the budget, or a share of the pool's size.
    fn replicas_wanted(&self) -> u64 {
        let block = self.metadata.geometry().block();
        self.properties.replicas().map_or(self.metadata.geometry().slots() / SHARE, |bytes| bytes / block)
    }

    /// Returns true if popular blocks shall get copies: on an HDD, if a budget is set.
    fn wants_copies(&self) -> bool {
        self.device().is_rotational && self.properties.replicas().is_some()
    }

    /// Returns the number of blocks that replicas in order may take within these limits: the budget, or half of it besides copies, if there is memory for the
    /// table.
    fn in_order_within(&self, limits: &Limits) -> u64 {
        let wanted = self.replicas_wanted();
        let most = if self.wants_copies() { wanted / 2 } else { wanted };
        most.min(limits.replicas())
    }

    /// Returns the number of popular blocks that get copies within these limits: those that fit in the rest of the budget, if there is memory for their
    /// columns.
    fn columns_within(&self, limits: &Limits) -> u64 {
        let left = self.replicas_wanted() - self.in_order_within(limits);
        let wanted = if self.wants_copies() { left / u64::from(ZONES) } else { 0 };
        limits.popular(self.metadata.geometry(), wanted)
    }

    /// Returns the bytes of all replicas within these limits, and the number of popular blocks that get copies.
    pub(crate) fn replicas_space(&self, limits: &Limits) -> (u64, u64) {
        let (in_order, popular) = (self.in_order_within(limits), self.columns_within(limits));
        ((in_order + popular * u64::from(ZONES)) * self.metadata.geometry().block(), popular)
    }

    /// Returns the number of blocks that replicas in order may take.
    pub(crate) fn in_order_budget(&self) -> u64 {
        self.in_order_within(&self.limits)
    }

    /// Returns the number of popular blocks that get copies; 0: no copies are made.
    #[inline]
    pub(crate) fn columns_budget(&self) -> u64 {
        self.hints.replicas.most_columns
    }

    /// Returns the most runs of slots whose reads are counted to find popular blocks. They are more than the popular blocks, because runs read once take
    /// entries, too.
    pub(crate) fn counted_runs(&self) -> usize {
        counted_runs(self.columns_budget()) as usize
    }

    /// Returns the bytes of memory that the read cache leaves to copies of popular blocks.
    pub(crate) fn columns_bytes(&self) -> u64 {
        popular_bytes(self.columns_budget(), self.metadata.geometry().slots_per_container)
    }

    /// Returns true if popular blocks get copies: on an HDD, if the budget of replicas was set.
    #[inline]
    pub(crate) fn makes_copies(&self) -> bool {
        self.columns_budget() > 0
    }

    /// Sets some containers aside for copies, among those from `from` on, whose space has been reserved.
    pub(crate) fn keep_zones(&mut self, from: u32) {
        if self.makes_copies() {
            self.durable.space.keep_middles(from);
        }
    }

    /// Applies changes of the disk's traits, the budget and the memory limits to the zones.
    pub(crate) fn review_zones(&mut self) {
        self.hints.replicas.most_columns = self.columns_within(&self.limits);
        if self.makes_copies() {
            self.durable.space.keep_middles(0);
        } else {
            self.durable.space.keep_none();
        }
    }

    /// Returns another slot with the same content, and the digest, as far as the index and the pages in memory say: a hint.
    #[inline(never)]
    pub(crate) fn hinted_place(&mut self, slot: Slot) -> Option<(Slot, Digest)> {
        let digest = match self.recent(slot) {
            Some(recent) => recent.digest,
            None => self.summary(slot).ok()??,
        };
        let hint = self.hints.index.peek(self.sharing_digest(digest))?;
        let place = hint.slot;
        let is_there = place != slot
            && self.durable.space.contains(place)
            && hint.generation == self.durable.space.generation(place)
            && (self.recent(place).is_some() || self.slot_state(place).is_ok_and(|state| state.is_used()));
        // Slots with I/O in flight are left alone.
        let is_at_rest =
            !self.memory.is_using(place) && !self.durable.is_in_journal(place) && !self.hints.replicas.holds(place);
        (is_there && is_at_rest).then_some((place, digest))
    }

    /// Returns true if a run of `length` blocks shall be read from `place` rather than from its own slots at `primary`. On an SSD always. Without consecutive
    /// own slots (`None`), always. Otherwise if no read in flight is beside `primary`, and one is beside `place` or `place` is nearer to the heads.
    pub(crate) fn prefers_alternate(&mut self, primary: Option<Slot>, place: Slot, length: usize) -> bool {
        if !self.device().is_rotational {
            return true;
        }
        let bytes = length as u64 * self.metadata.geometry().block();
        let Some(primary) = primary.map(|primary| self.slot_offset(primary)) else {
            self.hints.replicas.places.in_order += 1;
            return true;
        };
        let (place, io) = (self.slot_offset(place), self.metadata.io());
        if io.has_read_beside(primary, bytes) {
            return false;
        }
        let (is_beside, head) = (io.has_read_beside(place, bytes), io.head());
        let is_nearer = !is_beside && place.abs_diff(head) < primary.abs_diff(head);
        self.hints.replicas.places.beside += u64::from(is_beside);
        self.hints.replicas.places.nearer += u64::from(is_nearer);
        is_beside || is_nearer
    }
}
