//! Completions of I/O: each goes to the request or job that submitted it. Failures are judged here where the rule is the same for all: a write of
//! metadata must succeed in the end, a reservation may find no space, a page must match its pointer.

use crate::api::*;
use crate::engine::Engine;
use crate::jobs::job::JobContext;
use crate::metadata::io::Purpose;
use crate::metadata::page_cache::PageKey;
use crate::requests::request::Stage;

impl Engine {
    /// Dispatches the completion of an I/O by its purpose, unless it is kept to be made again.
    pub(crate) fn done(&mut self, io: IoId, result: Result<Outcome<'_>, IoError>) {
        let Some(result) = self.keep_for_space(io, result) else { return };
        if self.pool.device().is_rotational {
            self.pool.metadata.io_mut().note_head(io);
        }
        let (purpose, segments, offset) = self.pool.metadata.io_mut().end(io);
        match purpose {
            Purpose::LoadPages { first, pages } => self.pages_loaded(first, pages, result),
            Purpose::WritePage(key) => {
                let Some(&Segment::Page(page)) = segments.first() else { unreachable!("a page write has its page") };
                if self.check_written(result) {
                    self.pool.metadata.pages_mut().written(key, page);
                } else {
                    self.pool.metadata.pages_mut().not_written();
                }
            }
            Purpose::FailureMarker => self.marked(&segments, result),
            Purpose::WriteSlots { first, sequence, inlined } => {
                self.slots_written(first, &segments, sequence, inlined, result);
            }
            Purpose::WriteRecord { sequence, durable } => {
                for &segment in &segments {
                    match segment {
                        Segment::Page(page) => self.pool.metadata.pages_mut().release(page),
                        Segment::Buffer(buffer) => self.pool.memory.buffers_mut().release(buffer),
                    }
                }
                if self.check_written(result) {
                    self.pool.durable.journal_mut().wrote(sequence);
                    if durable && self.pool.durable.journal().complete() >= sequence {
                        self.record_forced(sequence);
                    }
                }
            }
            Purpose::Sync => self.synced(result),
            Purpose::Fill { first } => self.filled(first, &segments, result),
            Purpose::ReadAhead { first } => self.was_read_ahead(first, &segments, result),
            Purpose::FillAlternate { first } => self.filled_alternate(first, &segments, result),
            Purpose::FillFromFlash { first, place } => self.filled_from_flash((first, place), &segments, result),
            Purpose::Abandoned => self.abandoned_ends(&segments),
            Purpose::Merge { request, block } => self.merged(request, block, result),
            Purpose::Compare { request, block } => self.compared(request, block, result),
            Purpose::ReserveContainers => {
                let good = self.check_reserved(result);
                self.pool.containers_reserved(good);
            }
            Purpose::ReserveMetadata(blocks) => {
                let good = self.check_reserved(result);
                self.jobs.metadata_reserved(&mut self.pool, good.then_some(blocks));
            }
            Purpose::ReserveMetaMap => {
                let good = self.check_reserved(result);
                self.pool.meta_map_reserved(good);
            }
            Purpose::BlockRepair(slot) => {
                self.repairs.repaired(&mut self.pool, slot, result);
                self.answer_repaired();
            }
            Purpose::CopyBlock(slot) => self.jobs.cache_partition.copied(&mut self.pool, slot, result),
            Purpose::Job(job, part) => {
                let load = self.load();
                let Engine { pool, repairs, jobs, .. } = self;
                jobs.done(JobContext { pool, repairs, load }, (job, part), &segments, result);
            }
            Purpose::Superblock => {
                if let Some(&Segment::Page(page)) = segments.first() {
                    self.pool.metadata.pages_mut().release(page);
                }
                self.pool.durable.end_superblock();
                if self.check_written(result) {
                    self.jobs.superblock_written();
                }
            }
            Purpose::Owner(number) => self.owner_looked_at(number, result),
            Purpose::Recovery(step) => self.recovery_done(step, offset, &segments, result),
        }
        self.pool.metadata.io_mut().recycle(io, segments);
    }

    /// Ends the writes that wait for space, of a pool in which another I/O has failed: nothing is written any more.
    pub(crate) fn end_kept_writes(&mut self) {
        for io in self.enospc.take_all() {
            self.done(io, Err(IoError::NoSpace));
        }
    }

    /// Checks a reservation: lack of space may pass; one that fails otherwise counts as a failed write.
    fn check_reserved(&mut self, result: Result<Outcome<'_>, IoError>) -> bool {
        match result {
            Err(IoError::NoSpace) => false,
            result => self.check_written(result),
        }
    }

    fn pages_loaded(&mut self, first: PageKey, pages: u32, result: Result<Outcome<'_>, IoError>) {
        let block = self.pool.metadata.geometry().block() as usize;
        let bytes = match result {
            Ok(Outcome::Bytes(bytes)) if bytes.len() == pages as usize * block => Some(bytes),
            _ => None,
        };
        if bytes.is_none() && pages > 1 {
            self.pool.metadata.pages_mut().load_one_by_one();
        }
        for number in 0..pages {
            let key = PageKey { region: first.region, location: first.location + number };
            let at = number as usize * block;
            if bytes.is_none() && pages > 1 && !self.pool.metadata.pages().is_beside(key) {
                // It may be another that cannot be read: this one alone.
                self.pool.metadata.begin_load(key, 1);
            } else {
                self.page_loaded(key, bytes.map(|bytes| &bytes[at..at + block]));
            }
        }
    }

    /// Puts a page that has come into the cache if it is good, and wakes its waiters.
    fn page_loaded(&mut self, key: PageKey, bytes: Option<&[u8]>) {
        let load = self.pool.metadata.pages_mut().end_load(key);
        let good = self.pool.metadata.is_valid(key)
            && bytes.is_some_and(|bytes| self.pool.metadata.is_intact(load.pointer(), bytes));
        if let Some(bytes) = bytes.filter(|_| good && !load.is_orphan()) {
            self.pool.metadata.pages_mut().fill(key, bytes);
            self.pool.metadata.forget_failure(key);
        }
        // Waiters for a page that no longer belongs to the metadata look again. Damage of a page without a request for it is left to later readers.
        let failed = !good && !load.is_orphan() && !load.is_beside();
        if failed {
            self.pool.page_failed(key, bytes.is_none());
        }
        for &waiter in load.waiters() {
            // A page that would prove a known block is no reason to fail: the block is not shared.
            let proves = self.requests.get(waiter).stage() == Stage::Verify;
            self.arrived(waiter, failed && !proves);
        }
        self.pool.metadata.pages_mut().recycle(load);
    }
}
