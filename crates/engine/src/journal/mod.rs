//! State of the journal, a write-ahead ring of records: the open record, the records in flight, and the durable ones.
//!
//! Sequence numbers, each a prefix: `complete` (every record up to it has been written, with its blocks: completions seen), `durable` (a sync
//! submitted after that has finished), `published` (a durable record or superblock says so). A crash cannot revoke published records, so they
//! free slots for reuse.

mod inlined;
mod syncs;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::api::{BufferId, Digest};
use crate::format::entry::{Key, Slot};
use crate::format::record::{self, Change};
use crate::journal::inlined::InlinedBlocks;

use syncs::Syncs;

/// State of a record that is not yet known durable. The last one is the open record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RecordState {
    /// Number of incomplete writes of its pages and blocks; the open record counts as one.
    outstanding: u32,
    /// Watermark of the record, once it is closed.
    watermark: u64,
}

/// Block that has a slot, and whose slot write has not been submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unwritten {
    pub slot: Slot,
    pub buffer: BufferId,
}

/// Number of repeats of the flush interval after which the next flush is expected at the same interval.
const STEADY: u32 = 3;

/// Rhythm of clients: the number of changes between two flushes.
#[derive(Clone, Copy, Default)]
struct Rhythm {
    /// Number of changes up to the last flush.
    at: u64,
    /// Number of changes between the last two flushes.
    changes: u64,
    /// Number of consecutive repeats of this number of changes.
    repeats: u32,
}

/// Journal: the ring, the open record, and the states of records in flight.
pub(crate) struct Journal {
    ring: u32,
    block_size: usize,
    /// Maximum number of blocks inlined in a record.
    inline_limit: usize,
    /// Ring block of the next record.
    head: u32,
    /// Number of ring blocks from the first record that the checkpoint does not include up to `head`.
    used: u32,
    /// Number of changes in those records.
    entries: u64,
    /// Number of the open record.
    sequence: u64,
    /// Checksum of the previous record.
    previous: u64,
    /// Changes of the open record.
    changes: Vec<Change>,
    /// Blocks of the open record whose slot writes have not been submitted.
    unwritten: Vec<Unwritten>,
    /// True if one of these blocks looks like a record: then they must not travel in the ring.
    record_like: bool,
    /// True if a block of the open record went to its slot.
    wrote_slots: bool,
    rhythm: Rhythm,
    /// Number of changes of all closed records.
    closed_changes: u64,
    /// States from `durable + 1` to the open record.
    states: VecDeque<RecordState>,
    complete: u64,
    durable: u64,
    published: u64,
    /// Watermark of the record closed last.
    last_watermark: u64,
    /// Last record with more than its watermark.
    last_filled: u64,
    /// Number of bytes of blocks written since the last sync was submitted.
    unsynced_bytes: u64,
    /// Sequence number up to which records shall become durable, on anyone's behalf.
    want_durable: u64,
    /// True if an empty record shall publish the watermark.
    want_publish: bool,
    syncs: Syncs,
    inlined: InlinedBlocks,
}

impl Journal {
    /// Makes a journal whose last durable record is `sequence`, with this checksum, and which continues at ring block `head`.
    pub(crate) fn new(ring: u32, block_size: u32, sequence: u64, previous: u64, head: u32, used: u32) -> Journal {
        Journal {
            ring,
            block_size: block_size as usize,
            inline_limit: 32.min(ring as usize / 8),
            head,
            used,
            entries: 0,
            sequence: sequence + 1,
            previous,
            changes: Vec::new(),
            unwritten: Vec::new(),
            record_like: false,
            wrote_slots: false,
            rhythm: Rhythm::default(),
            closed_changes: 0,
            states: VecDeque::from([RecordState { outstanding: 1, watermark: 0 }]),
            complete: sequence,
            durable: sequence,
            published: sequence,
            last_watermark: sequence,
            last_filled: sequence,
            unsynced_bytes: 0,
            want_durable: 0,
            want_publish: false,
            syncs: Syncs::default(),
            inlined: InlinedBlocks::new(),
        }
    }

    /// Sets the number of changes in the records that the checkpoint does not include: recovery has replayed them.
    pub(crate) fn with_entries(self, entries: u64) -> Journal {
        Journal { entries, ..self }
    }

    /// Returns the length of the ring, in blocks.
    pub(crate) fn ring(&self) -> u32 {
        self.ring
    }

    /// Returns the ring block of the next record.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// Returns the number of ring blocks that the checkpoint does not include.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Returns the number of changes in the records that the checkpoint does not include.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the sequence number of the open record.
    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the checksum of the previous record.
    pub(crate) fn previous(&self) -> u64 {
        self.previous
    }

    /// Returns the changes of the open record.
    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the blocks of the open record whose slot writes have not been submitted.
    #[inline]
    pub(crate) fn unwritten(&self) -> &[Unwritten] {
        &self.unwritten
    }

    /// Returns the last record that is complete, with all before it.
    #[inline]
    pub(crate) fn complete(&self) -> u64 {
        self.complete
    }

    /// Returns the last record that is durable, with all before it.
    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Returns the last record that is published, with all before it.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.published
    }

    /// Returns the last record with more than its watermark.
    pub(crate) fn last_filled(&self) -> u64 {
        self.last_filled
    }

    /// Returns true if all changes are durable.
    pub(crate) fn is_durable(&self) -> bool {
        self.last() <= self.durable
    }

    /// Appends a change to the open record.
    #[inline]
    pub(crate) fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Appends a clear to the open record, which continues the one before if that ended where this one begins. `end` is the block behind the last one.
    pub(crate) fn push_clear(&mut self, start: Key, end: u64) {
        match self.changes.last_mut() {
            Some(Change::Clear { key, end: before }) if key.volume() == start.volume() && *before == start.lba() => {
                *before = end;
            }
            _ => self.changes.push(Change::Clear { key: start, end }),
        }
    }

    /// Counts bytes of blocks that a sync has to cover.
    pub(crate) fn note_unsynced(&mut self, bytes: u64) {
        self.unsynced_bytes += bytes;
    }

    /// Returns the bytes of blocks that a sync has to cover.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.unsynced_bytes
    }

    /// Takes the blocks of the open record whose slot writes are submitted now; the list is to be given back.
    pub(crate) fn take_unwritten(&mut self) -> Vec<Unwritten> {
        self.record_like = false;
        core::mem::take(&mut self.unwritten)
    }

    /// Takes the list back, for later blocks.
    pub(crate) fn give_list_back(&mut self, mut blocks: Vec<Unwritten>) {
        debug_assert!(self.unwritten.is_empty());
        blocks.clear();
        self.unwritten = blocks;
    }

    // ---- inlined blocks ----

    /// Turns the changes of blocks that travel in the record into inlined ones. The blocks follow after `pages` pages; the ring begins at block `start` of the
    /// store.
    pub(crate) fn inline_blocks(&mut self, pages: u32, start: u64) {
        let mut unwritten = self.unwritten.iter().enumerate().peekable();
        for change in &mut self.changes {
            let Some(&(at, block)) = unwritten.peek() else { break };
            if let Change::Fresh { key, slot, digest, offline } = *change
                && slot == block.slot
            {
                *change = Change::Inlined { key, slot, digest, block: at as u16, offline };
                let position = (self.head + pages + at as u32) % self.ring;
                self.inlined.copies.add(slot, digest, start + u64::from(position));
                unwritten.next();
            }
        }
        assert!(unwritten.next().is_none(), "every unwritten block is of the open record");
    }

    /// Returns the blocks that are inlined in the journal and whose slot writes are still to be submitted.
    #[inline]
    pub(crate) fn inlined(&self) -> &VecDeque<Unwritten> {
        &self.inlined.unwritten
    }

    /// Takes the inlined blocks whose slot writes are submitted now; the list is to be given back.
    pub(crate) fn take_inlined(&mut self) -> VecDeque<Unwritten> {
        self.inlined.copies.submitted();
        core::mem::take(&mut self.inlined.unwritten)
    }

    /// Takes the list back, for later blocks.
    pub(crate) fn give_inlined_back(&mut self, mut blocks: VecDeque<Unwritten>) {
        debug_assert!(self.inlined.unwritten.is_empty());
        blocks.clear();
        self.inlined.unwritten = blocks;
    }

    /// Counts a slot write of inlined blocks that was submitted: no record waits for it.
    pub(crate) fn expect_inlined_write(&mut self) {
        self.inlined.in_flight += 1;
    }

    /// Notes that a slot write of inlined blocks is complete.
    pub(crate) fn wrote_inlined(&mut self) {
        assert!(self.inlined.in_flight > 0, "a slot write ends once");
        self.inlined.in_flight -= 1;
        if self.inlined.in_flight == 0 {
            self.inlined.copies.all_landed();
        }
    }

    /// Returns the number of slot writes of inlined blocks in flight.
    pub(crate) fn inlined_writes(&self) -> usize {
        self.inlined.in_flight
    }

    /// Returns the journal block with a slot's expected content, if there is still one: its record may be overwritten.
    pub(crate) fn find_inlined(&self, slot: Slot, digest: Digest) -> Option<u64> {
        self.inlined.copies.find(slot, digest)
    }

    // ---- group commit ----

    /// Asks that records up to this one become durable.
    pub(crate) fn want_durable(&mut self, upto: u64) {
        self.want_durable = self.want_durable.max(upto);
    }

    /// Asks that all changes become durable; returns true if that is new.
    pub(crate) fn want_all_durable(&mut self) -> bool {
        let before = self.want_durable;
        self.want_durable(self.last());
        self.want_durable > before
    }

    /// Returns true if records were requested to become durable that are not.
    pub(crate) fn is_durability_wanted(&self) -> bool {
        self.want_durable > self.durable
    }

    /// Asks for the next step of publishing the records up to `last`: a sync that makes them durable, and after that a record with the watermark. Each call
    /// requests one step; nothing happens once they are published.
    pub(crate) fn publish(&mut self, last: u64) {
        if last > self.durable {
            self.want_durable(last.min(self.last()));
        } else if last > self.published {
            if self.last_watermark < last && self.used + 2 <= self.ring {
                self.want_publish = true;
                self.want_durable(self.sequence);
            } else {
                self.want_durable(self.sequence - 1);
            }
        }
    }

    /// Returns true if the open record is to be closed now. `asked` is the last record that a request waits for.
    ///
    /// While a sync is in flight, or a record, changes collect in the open record: they become durable as one group.
    pub(crate) fn is_to_close(&self, asked: u64) -> bool {
        let idle = !self.syncs.is_in_flight() && self.complete + 1 == self.sequence;
        let is_awaited = || asked.max(self.want_durable) >= self.sequence || self.expects_flush();
        idle && (self.want_publish || !self.is_empty() && is_awaited())
    }

    /// Ends the request to publish the watermark: a record has it.
    pub(crate) fn end_publish_request(&mut self) {
        self.want_publish = false;
    }

    /// Begins a sync, if one is wanted and none is in flight; returns true if the caller is to submit it. `first` is the first record that a request waits for.
    pub(crate) fn begin_sync(&mut self, first: Option<u64>) -> bool {
        if self.syncs.is_in_flight() {
            return false;
        }
        let asked = if self.is_durability_wanted() { self.want_durable } else { u64::MAX };
        let wanted = first.unwrap_or(u64::MAX).min(asked);
        let records = wanted <= self.complete && self.complete > self.durable;
        if !records && !self.inlined.copies.are_many() && !self.syncs.is_requested() {
            return false;
        }
        self.syncs.begin(self.complete, self.inlined.copies.landed());
        self.unsynced_bytes = 0;
        true
    }

    /// Asks for a sync of everything that is complete now; returns the number of syncs that have to finish before it is durable.
    pub(crate) fn request_sync(&mut self) -> u64 {
        self.syncs.request()
    }

    /// Returns true if as many syncs have finished as [`Journal::request_sync`] said.
    pub(crate) fn has_synced(&self, barrier: u64) -> bool {
        self.syncs.have_passed(barrier)
    }

    /// Notes that the sync in flight has succeeded.
    pub(crate) fn sync_succeeded(&mut self) {
        self.syncs.succeeded();
    }

    /// Drops the sync in flight, which has failed.
    pub(crate) fn sync_failed(&mut self) {
        self.syncs.failed();
    }

    /// Returns true if the sync in flight has succeeded, and has not been ended.
    #[inline]
    pub(crate) fn has_sync_succeeded(&self) -> bool {
        self.syncs.has_succeeded()
    }

    /// Lets the sync in flight cover a record that was written durably; false if none is in flight.
    pub(crate) fn extend_sync(&mut self, sequence: u64) -> bool {
        self.syncs.extend(sequence)
    }

    /// Ends the sync that has succeeded; returns the last record that it covers. Unless the pool has failed, [`Journal::count_sync`] follows.
    pub(crate) fn end_sync(&mut self) -> u64 {
        self.syncs.end()
    }

    /// Counts a successful sync: the inlined blocks that it covers are safe in their slots.
    pub(crate) fn count_sync(&mut self) {
        let batches = self.syncs.count();
        self.inlined.copies.synced(batches);
    }

    // ---- records ----

    /// Returns true if the open record has no changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the last record with changes.
    pub(crate) fn last(&self) -> u64 {
        if self.is_empty() { self.sequence - 1 } else { self.sequence }
    }

    /// Returns the number of changes that fit into one record.
    pub(crate) fn record_capacity(&self) -> usize {
        let pages = record::MAX_PAGES.min(self.ring as usize / 8).max(1);
        (pages * self.block_size - record::HEADER_BYTES) / record::ENTRY_BYTES
    }

    /// Returns the number of ring blocks that closing the open record would take with `more` further changes and as many blocks.
    fn blocks_to_close(&self, more: usize) -> u32 {
        let pages = record::pages_for(self.changes.len() + more, self.block_size);
        (pages + (self.unwritten.len() + more).min(self.inline_limit)) as u32
    }

    /// Returns true if the ring has space for `more` changes, with some blocks left for publishing a watermark.
    pub(crate) fn has_space(&self, more: usize) -> bool {
        // A record that fills up in between costs one more page.
        self.used + self.blocks_to_close(more) + 1 + 4 <= self.ring
    }

    /// Returns true if half of the ring is used, so that a checkpoint should make space.
    pub(crate) fn is_half_full(&self) -> bool {
        self.used >= self.ring / 2
    }

    /// Counts one more write that the open record waits for.
    pub(crate) fn expect_write(&mut self) {
        self.wrote_slots = true;
        self.states.back_mut().expect("the open record").outstanding += 1;
    }

    /// Adds a block to the open record; `record_like`: it may look like a record.
    pub(crate) fn add_block(&mut self, block: Unwritten, record_like: bool) {
        self.unwritten.push(block);
        self.record_like |= record_like;
    }

    /// Returns true if the open record may inline its blocks: they are few, and none can be mistaken for a record.
    pub(crate) fn can_inline(&self) -> bool {
        self.unwritten.len() <= self.inline_limit && !self.record_like
    }

    /// Returns true if a flush now has to make only the open record durable, with its inlined blocks: all earlier records are durable, and none of its own
    /// blocks went to a slot.
    pub(crate) fn needs_no_sync(&self) -> bool {
        self.durable + 1 == self.sequence && !self.wrote_slots
    }

    /// Returns the number of changes since the last flush.
    fn unflushed(&self) -> u64 {
        self.closed_changes + self.changes.len() as u64 - self.rhythm.at
    }

    /// Notes a flush, and compares its interval in changes with the last one.
    pub(crate) fn note_flush(&mut self) {
        let changes = self.unflushed();
        let repeats = if changes == self.rhythm.changes { (self.rhythm.repeats + 1).min(STEADY) } else { 0 };
        self.rhythm = Rhythm { at: self.rhythm.at + changes, changes, repeats };
    }

    /// Returns true if a flush is probably imminent that waits for just the open record. Clients have flushed after as many changes several times, so that
    /// their flush can find the record in flight, or durable.
    pub(crate) fn expects_flush(&self) -> bool {
        let Rhythm { changes, repeats, .. } = self.rhythm;
        repeats == STEADY
            && changes == self.unflushed()
            && self.changes.len() as u64 == changes
            && self.can_inline()
            && self.needs_no_sync()
    }

    /// Notes that a write that counts for record `sequence` is complete.
    pub(crate) fn wrote(&mut self, sequence: u64) {
        let at = (sequence - self.durable - 1) as usize;
        let state = &mut self.states[at];
        assert!(state.outstanding > 0);
        state.outstanding -= 1;
        while self.complete < self.sequence {
            let next = (self.complete + 1 - self.durable - 1) as usize;
            match self.states.get(next) {
                Some(state) if state.outstanding == 0 => self.complete += 1,
                _ => break,
            }
        }
    }

    /// Closes the open record with `watermark`, which is in flight as `parts` writes and `blocks` ring blocks, and begins a new one.
    pub(crate) fn closed(&mut self, watermark: u64, checksum: u64, parts: u32, blocks: u32) {
        let state = self.states.back_mut().expect("the open record");
        state.watermark = watermark;
        state.outstanding += parts - 1;
        self.previous = checksum;
        self.last_watermark = watermark;
        if !self.changes.is_empty() {
            self.last_filled = self.sequence;
        }
        self.inlined.unwritten.extend(self.unwritten.drain(..));
        self.entries += self.changes.len() as u64;
        self.closed_changes += self.changes.len() as u64;
        self.changes.clear();
        self.head = (self.head + blocks) % self.ring;
        self.used += blocks;
        assert!(self.used <= self.ring, "the journal never runs over itself");
        self.sequence += 1;
        self.wrote_slots = false;
        self.states.push_back(RecordState { outstanding: 1, watermark: 0 });
    }

    /// Notes that a sync that covered everything up to `covered` has finished.
    pub(crate) fn synced(&mut self, covered: u64) {
        while self.durable < covered {
            let state = self.states.pop_front().expect("records after the durable one");
            self.durable += 1;
            self.published = self.published.max(state.watermark);
        }
    }

    /// Frees the records up to `included`, with `blocks` ring blocks and `entries` changes: a superblock that is durable in both places includes them.
    pub(crate) fn included(&mut self, included: u64, blocks: u32, entries: u64) {
        self.published = self.published.max(included);
        self.used -= blocks;
        self.entries -= entries;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        Journal::new(64, 512, 10, 1, 0, 0)
    }

    fn close(journal: &mut Journal) {
        journal.changes.push(Change::Zero { key: Key(1) });
        let durable = journal.durable;
        journal.closed(durable, 7, 1, 1);
    }

    #[test]
    fn durable_is_a_prefix_whatever_order_writes_complete_in() {
        let mut journal = journal();
        close(&mut journal);
        close(&mut journal);
        journal.wrote(12);
        assert_eq!(journal.complete, 10);
        journal.wrote(11);
        assert_eq!(journal.complete, 12);
    }

    #[test]
    fn a_record_waits_for_its_blocks() {
        let mut journal = journal();
        journal.expect_write();
        close(&mut journal);
        journal.wrote(11);
        assert_eq!(journal.complete, 10);
        journal.wrote(11);
        assert_eq!(journal.complete, 11);
    }

    #[test]
    fn what_is_durable_is_published_by_a_later_durable_record() {
        let mut journal = journal();
        close(&mut journal);
        journal.wrote(11);
        journal.synced(11);
        assert_eq!((journal.durable, journal.published), (11, 10));
        close(&mut journal);
        journal.wrote(12);
        journal.synced(12);
        assert_eq!((journal.durable, journal.published), (12, 11));
    }

    #[test]
    fn a_flush_is_expected_after_as_many_changes_as_before_the_last_ones() {
        let mut journal = journal();
        let write = |journal: &mut Journal, count: u64| {
            (0..count).for_each(|_| journal.changes.push(Change::Zero { key: Key(1) }));
            let expected = journal.expects_flush();
            let sequence = journal.sequence;
            journal.note_flush();
            journal.closed(sequence - 1, 7, 1, 1);
            journal.wrote(sequence);
            journal.synced(sequence);
            expected
        };
        assert_eq!([1; 6].map(|count| write(&mut journal, count)), [false, false, false, false, true, true]);
        assert_eq!(
            [2, 1, 1, 1, 1, 1].map(|count| write(&mut journal, count)),
            [false, false, false, false, false, true]
        );
        assert!(!journal.expects_flush(), "nothing has changed since");
        journal.expect_write();
        journal.changes.push(Change::Zero { key: Key(1) });
        assert!(!journal.expects_flush(), "its block is on its way to its slot: a sync has to cover that");
    }

    #[test]
    fn the_ring_keeps_space_for_a_watermark() {
        let mut journal = journal();
        while journal.has_space(1) {
            close(&mut journal);
        }
        assert!(journal.used + 4 <= journal.ring);
    }
}
