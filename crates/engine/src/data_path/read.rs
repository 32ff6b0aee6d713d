//! Reads and extents: LoadMap, Read (from dirty blocks, cache or device, with the check of every block that the device
//! gives), Reply. See docs/internals/read-path.md.

use crate::api::*;
use crate::cache::in_flight::Fill;
use crate::counters::ReadCounts;
use crate::data_path::read_location::DeviceRead;
use crate::engine::Engine;
use crate::format::bytes::u64_at;
use crate::format::entry::{Entry, Key, Slot, check_bits};
use crate::metadata::io::Purpose;
use crate::metadata::tree::{LastLeaf, Unresolved};
use crate::metadata::tree::{Missing, Walk};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::repair::Arrived;
use crate::requests::request::Stage;

/// Steps of a request for extents: to look for a place in the map buffer or the tree, and to send an extent.
const LOOK_STEPS: u64 = 4;
const EXTENT_STEPS: u64 = 4;
/// Entries of a leaf, one behind the other, that a step looks at.
const ENTRIES_A_STEP: u64 = 8;
/// Blocks that are looked for in the deltas one by one, in vain, before the next point of these is searched.
const SINGLE_LOOKS: u64 = 16;

impl Engine {
    pub(crate) fn run_read(&mut self, id: RequestId) {
        if self.requests.get(id).stage() == Stage::Read {
            return self.finish_read(id);
        }
        let Engine { pool: Pool { metadata, .. }, requests, .. } = self;
        let request = requests.get_mut(id);
        request.enter(Stage::LoadMap);
        if request.blocks().is_empty() {
            request.add_blocks(request.offset(), request.length(), metadata.geometry());
            self.note_stream(id);
        }
        let Engine { pool: Pool { memory, .. }, requests, .. } = self;
        let request = requests.get_mut(id);
        for buffer in request.blocks_mut().iter_mut().filter_map(|block| block.buffer.take()) {
            // Left from a run that found too few buffers.
            memory.buffers_mut().release(buffer);
        }
        if !self.resolve_blocks(id) {
            return;
        }
        let mut misses = 0;
        for at in 0..self.requests.get(id).blocks().len() {
            if let Some(slot) = self.requests.get(id).blocks()[at].entry.slot() {
                misses += usize::from(self.pool.memory.buffer_of(slot).is_none() && !self.pool.memory.is_filling(slot));
            }
        }
        let available = self.pool.memory.buffers().free() + self.pool.memory.cache().len();
        if misses > available && self.distinct_misses(id) > available {
            return self.wait_for_buffers(id);
        }
        self.collect_blocks(id);
    }

    /// Counts the slots that a request needs from the device, each once.
    fn distinct_misses(&self, id: RequestId) -> usize {
        let slots = self.requests.get(id).blocks().iter().filter_map(|block| block.entry.slot());
        let is_missing =
            |slot: &Slot| self.pool.memory.buffer_of(*slot).is_none() && !self.pool.memory.is_filling(*slot);
        slots.filter(is_missing).collect::<alloc::collections::BTreeSet<Slot>>().len()
    }

    /// Waits for buffers. Holds none meanwhile.
    pub(crate) fn wait_for_buffers(&mut self, id: RequestId) {
        self.requests.get_mut(id).enter(Stage::Admit);
        self.queues.wait_for_buffers(id);
    }

    /// Finds the entries of all blocks, all at one moment; false if pages have to be loaded first.
    fn resolve_blocks(&mut self, id: RequestId) -> bool {
        let volume = self.pool.volume_index(self.requests.get(id).volume()).expect("checked when it began to run");
        let (mut last, mut leaf) = (None::<Missing>, LastLeaf::default());
        for at in 0..self.requests.get(id).blocks().len() {
            let key = self.requests.get(id).blocks()[at].key;
            match self.pool.resolve_after(volume, key, &mut leaf) {
                Ok(entry) => self.requests.get_mut(id).blocks_mut()[at].entry = entry,
                Err(Unresolved::Damaged) => {
                    self.fail_when_quiet(id, Error::Io);
                    return false;
                }
                Err(Unresolved::Missing(missing)) => {
                    if last != Some(missing) {
                        self.requests.get_mut(id).wait_for(1);
                        self.pool.metadata.load(missing, Some(id));
                        last = Some(missing);
                    }
                }
            }
        }
        last.is_none()
    }

    /// Takes a buffer with the slot's content, if it is in memory: the caller holds it. Counts as a use. Content in memory is checked like content
    /// from the device: if the map refers to a slot with other content, that is an error.
    pub(crate) fn use_memory(&mut self, slot: Slot, check: u32) -> Result<Option<BufferId>, Error> {
        let known = self.pool.memory.use_buffer_of(slot);
        let Some(buffer) = known.or_else(|| self.first_use(slot)) else { return Ok(None) };
        if self.pool.memory.buffers().check(buffer) != check {
            return Err(Error::Io);
        }
        self.pool.memory.buffers_mut().hold(buffer);
        Ok(Some(buffer))
    }

    /// Takes a buffer that holds the slot's content for another slot: the caller holds it. The slot shares it.
    #[inline(never)]
    pub(crate) fn use_content(&mut self, slot: Slot, check: u32) -> Option<BufferId> {
        let buffer = self.pool.find_content(slot, check)?;
        self.pool.stats.reads.ahead_used += u64::from(self.pool.memory.use_shared(slot, buffer));
        Some(buffer)
    }

    /// Finds a slot's content by content for a read, and counts that as a hit by content, unless it is the first use of a block that was read ahead.
    #[inline(never)]
    fn hit_content(&mut self, slot: Slot, check: u32) -> Option<BufferId> {
        let used = self.pool.stats.reads.ahead_used;
        let buffer = self.use_content(slot, check)?;
        if self.pool.stats.reads.ahead_used == used {
            self.pool.memory.cache_mut().count_content_hit();
        }
        Some(buffer)
    }

    /// Uses a block that was read ahead, for the first time.
    fn first_use(&mut self, slot: Slot) -> Option<BufferId> {
        let buffer = self.pool.memory.use_ahead(slot)?;
        self.pool.stats.reads.ahead_used += 1;
        Some(buffer)
    }

    /// Holds the blocks that are in memory and reads the rest, consecutive slots together.
    fn collect_blocks(&mut self, id: RequestId) {
        self.requests.get_mut(id).enter(Stage::Read);
        let count = self.requests.get(id).blocks().len();
        for at in 0..count {
            let used = self.pool.stats.reads.ahead_used;
            let entry = self.requests.get(id).blocks()[at].entry;
            if let Some(slot) = entry.slot() {
                match self.use_memory(slot, entry.check()) {
                    Ok(buffer) => {
                        let misses = buffer.is_none() && self.pool.memory.cache().is_by_content();
                        let buffer = if misses { self.hit_content(slot, entry.check()) } else { buffer };
                        let was_ahead = self.pool.stats.reads.ahead_used > used;
                        // A block that was read ahead came from the device: it was not kept for an earlier use.
                        let is_hit = buffer.is_some() && !was_ahead;
                        self.jobs.cache_partition.count_reads(is_hit.into(), was_ahead.into());
                        let block = &mut self.requests.get_mut(id).blocks_mut()[at];
                        (block.buffer, block.was_ahead) = (buffer, was_ahead);
                    }
                    Err(error) => return self.fail_request(id, error),
                }
            }
        }
        let (mut run, mut flash_run) = (DeviceRead::default(), FlashRun::default());
        let mut short = false;
        for at in 0..count {
            let block = self.requests.get(id).blocks()[at];
            let Some(slot) = block.entry.slot().filter(|_| block.buffer.is_none()) else { continue };
            self.jobs.cache_partition.count_reads(0, 1);
            match self.begin_fill(slot, block.entry, id, at as u32) {
                Begun::Coalesced => {}
                Begun::New => {
                    let has_flash = self.pool.has_flash();
                    let place = if has_flash { self.pool.read_place(slot, block.entry.check()) } else { None };
                    let begins = match place {
                        Some(place) => self.add_to_flash_run(&mut flash_run, slot, place),
                        None => self.add_to_run(&mut run, slot),
                    };
                    if begins {
                        self.requests.get_mut(id).note_device_read();
                    }
                }
                Begun::NoBuffer => {
                    short = true;
                    break;
                }
            }
        }
        self.read_all_of(&mut run);
        self.read_from_flash(&mut flash_run);
        self.jobs.replicate.note_split(&mut self.pool, self.requests.get(id));
        if self.profiling().is_some() && !short {
            self.note_profile(id);
        }
        if short {
            // The evictable buffers are held elsewhere. The request runs again from its first stage.
            let Engine { pool: Pool { memory, .. }, requests, .. } = self;
            let request = requests.get_mut(id);
            request.enter(Stage::Admit);
            for buffer in request.blocks_mut().iter_mut().filter_map(|block| block.buffer.take()) {
                memory.buffers_mut().release(buffer);
            }
            if request.waiting() == 0 {
                self.wait_for_buffers(id);
            }
        } else if self.requests.get(id).waiting() == 0 {
            self.finish_read(id);
        }
    }

    pub(super) fn read_run(&mut self, first: Slot, length: usize) {
        let block = self.pool.metadata.geometry().block();
        let offset = self.pool.slot_offset(first);
        let memory = &self.pool.memory;
        let segments = (first.0..first.0 + length as u64).map(|slot| Segment::Buffer(memory.fill(Slot(slot)).buffer()));
        self.pool.metadata.io_mut().begin(
            IoOp::ReadBlocks,
            offset,
            length as u64 * block,
            segments,
            Purpose::Fill { first },
        );
    }

    /// Lets a block of a request wait for a slot's content.
    fn begin_fill(&mut self, slot: Slot, entry: Entry, id: RequestId, at: u32) -> Begun {
        let joined = self.pool.memory.join_fill(slot, (id, at))
            || self.repairs.is_repairing_any() && self.repairs.join_repair(slot, entry.check(), id, at);
        let begun = if joined {
            Begun::Coalesced
        } else {
            let Some(buffer) = self.pool.any_buffer() else { return Begun::NoBuffer };
            self.pool.memory.begin_fill(slot, Fill::wanted(buffer, entry.check(), (id, at)));
            Begun::New
        };
        self.requests.get_mut(id).wait_for(1);
        begun
    }

    /// Reads one block for a partial write; false if there is no buffer for it.
    pub(crate) fn fill_one(&mut self, slot: Slot, entry: Entry, id: RequestId, at: u32) -> bool {
        match self.begin_fill(slot, entry, id, at) {
            Begun::Coalesced => true,
            Begun::New => {
                self.read_run(slot, 1);
                true
            }
            Begun::NoBuffer => false,
        }
    }

    /// Takes blocks that have come from the device: each is checked, kept if it is good, and handed to its waiters. A damaged block may have another
    /// copy.
    pub(crate) fn filled(&mut self, first: Slot, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        for i in 0..segments.len() {
            let slot = Slot(first.0 + i as u64);
            let content = match result {
                Ok(Outcome::Blocks(contents)) => contents.get(i).copied(),
                _ => None,
            };
            self.fill_ends(slot, content);
        }
    }

    /// Answers requests with the blocks that repairs have for them, or an error.
    #[inline]
    pub(crate) fn answer_repaired(&mut self) {
        if self.repairs.has_arrived() {
            self.answer_arrived();
        }
    }

    fn answer_arrived(&mut self) {
        let arrived = self.repairs.take_arrived();
        for &Arrived { request: id, at, buffer } in &arrived {
            let request = self.requests.get_mut(id);
            if let Some(buffer) = buffer {
                request.give_buffer(at, buffer);
            }
            // A block that would prove equality is no reason to fail.
            let proves = request.stage() == Stage::Verify;
            self.arrived(id, buffer.is_none() && !proves);
        }
        self.repairs.give_list_back(arrived);
    }

    /// Ends the read of a slot, and returns true if its content is right. Waiters get it; if it is wrong, the other copies are tried before an error.
    pub(crate) fn fill_ends(&mut self, slot: Slot, content: Option<BlockContent>) -> bool {
        let fill = self.pool.memory.take_fill(slot);
        let good = content.is_some_and(|content| self.passes(slot, fill.check(), content));
        let digest = content.filter(|_| good).map(|content| content.digest);
        if !fill.is_wanted() {
            self.keep_ahead(slot, &fill, digest);
            return good;
        }
        self.pool.stats.reads.ahead_used += u64::from(fill.is_ahead());
        let waiters = fill.waiters();
        if !good {
            // Before a waiter gets an error, the other copies.
            self.repairs.repair_for(
                &mut self.pool,
                slot,
                fill.buffer(),
                waiters.map(|(id, at)| (id, at, fill.check())),
            );
            self.answer_repaired();
            return false;
        }
        for (id, at) in waiters {
            self.pool.memory.buffers_mut().hold(fill.buffer());
            let request = self.requests.get_mut(id);
            request.blocks_mut()[at as usize].was_ahead = fill.is_ahead();
            request.give_buffer(at, fill.buffer());
            self.arrived(id, false);
        }
        let (buffer, check) = (fill.buffer(), fill.check());
        self.pool.memory.recycle_fill(fill);
        self.pool.memory.buffers_mut().set_check(buffer, check);
        self.pool.memory.keep_cached(slot, buffer, digest);
        self.pool.memory.release_evicted();
        true
    }

    /// Keeps a block that was read ahead, if it is good. A damaged one is dropped silently: a request that needs it finds out.
    fn keep_ahead(&mut self, slot: Slot, fill: &Fill, digest: Option<Digest>) {
        let Some(digest) = digest.filter(|_| !self.pool.memory.buffers().is_pending_free(fill.buffer())) else {
            return self.pool.memory.buffers_mut().release(fill.buffer());
        };
        self.pool.memory.buffers_mut().set_check(fill.buffer(), fill.check());
        self.pool.memory.keep_ahead(slot, fill.buffer(), digest);
        self.pool.memory.release_evicted();
    }

    /// Returns true if a block that was read has the slot's content: by 24 bits of its digest always, by all of them where they are at hand.
    pub(super) fn passes(&self, slot: Slot, check: u32, content: BlockContent) -> bool {
        let known = self.pool.recent(slot);
        !content.zero
            && check_bits(content.digest) == check
            && known.is_none_or(|recent| recent.digest == content.digest)
    }

    fn finish_read(&mut self, id: RequestId) {
        self.jobs.cache_partition.note_read(self.requests.get(id));
        let request = self.requests.get_mut(id);
        let device_reads = u64::from(request.device_reads());
        self.pool.stats.reads += ReadCounts {
            requests: 1,
            from_device: u64::from(device_reads > 0),
            device_reads,
            split: u64::from(device_reads > 1),
            ..ReadCounts::default()
        };
        request.enter(Stage::Reply);
        self.jobs.cache_partition.begin_answer(request.answer_with_blocks());
        let token = request.token();
        self.pool.metadata.io_mut().queue(Effect::Reply { token, result: Ok(Reply::Data(id)) });
    }

    /// Returns true for a block that is a hole, with the end of the blocks that are certainly like it, and the steps of the look-up. `end`: the end
    /// of the range that is asked for.
    fn extent_at(
        &mut self,
        volume: usize,
        key: Key,
        end: Key,
        known: &mut ExtentState,
    ) -> Result<(bool, Key, u64), Unresolved> {
        let next = Key(key.0 + 1);
        let mut steps = 1 + self.search_point(key, end, known);
        let is_alone = known.point.is_none_or(|point| point <= key);
        let mut upto = known.point.unwrap_or(end);
        if is_alone {
            // The next newer point is unknown, or here: one block after the other.
            known.single_looks += 1;
            if let Some(entry) = self.pool.durable.delta().get(key).or_else(|| self.pool.durable.frozen().get(key)) {
                known.single_looks = 0;
                return Ok((entry.is_hole(), next, steps));
            }
        } else {
            for delta in [self.pool.durable.delta(), self.pool.durable.frozen()] {
                let (covered, cleared) = delta.clear_at(key);
                if let Some(covered) = covered {
                    return Ok((true, covered.min(upto), steps + LOOK_STEPS));
                }
                upto = upto.min(cleared);
            }
        }
        if known.buffered.is_none_or(|buffered| buffered < key) {
            steps += LOOK_STEPS;
            known.buffered = Some(self.pool.durable.map_buffer().next_key(key, upto).unwrap_or(upto));
        }
        upto = upto.min(known.buffered.unwrap_or(upto));
        if let Some(entry) = self.pool.durable.map_buffer().get(key).filter(|_| upto == key) {
            return Ok((entry.is_hole(), next, steps));
        }
        let per_leaf = self.pool.metadata.geometry().map_leaf_entries();
        let (base, number) = (key.0 - key.lba(), key.lba() / per_leaf);
        steps += if known.number == Some(number) { 0 } else { LOOK_STEPS };
        known.number = Some(number);
        let own = known.leaf.lookup(&mut self.pool.metadata, self.pool.durable.volumes().map(volume), number);
        match self.pool.inherited_leaf(own, key.volume(), number, &mut known.leaf)? {
            Walk::Missing(missing) if !missing.pointer.is_lost() => Err(Unresolved::Missing(missing)),
            Walk::Leaf(page) => {
                let hole = self.pool.entry_in(page, key).ok_or(Unresolved::Damaged)?.is_hole();
                if is_alone {
                    return Ok((hole, next, steps));
                }
                let leaf_end = upto.0.min(base + (number + 1) * per_leaf);
                let (from, most) = ((key.lba() % per_leaf + 1) as usize, (leaf_end - next.0) as usize);
                let entries = self.pool.metadata.pages().bytes(page)[8 * from..].chunks_exact(8).take(most);
                let slots = self.pool.metadata.geometry().slots();
                // An invalid entry ends it, too: it is looked at when its turn comes.
                let is_like = |entry: Entry| {
                    (entry.is_valid() || entry.inherited_from().is_some())
                        && entry.slot().is_none_or(|slot| slot.0 < slots)
                        && entry.is_hole() == hole
                };
                let like = entries.take_while(|bytes| is_like(Entry(u64_at(bytes, 0)))).count() as u64;
                Ok((hole, Key(next.0 + like), steps + like / ENTRIES_A_STEP))
            }
            absent => {
                // An absent subtree is a hole as a whole, and a lost one is none.
                let (hole, level) = if let Walk::Absent(level) = absent { (true, level) } else { (false, 0) };
                if is_alone {
                    return Ok((hole, next, steps));
                }
                let blocks =
                    self.pool.metadata.geometry().fanout().saturating_pow(level.into()).saturating_mul(per_leaf);
                let tree_end = base.saturating_add((key.lba() / blocks + 1).saturating_mul(blocks));
                Ok((hole, upto.min(Key(tree_end)).max(next), steps))
            }
        }
    }

    /// Finds the next point of the deltas from `key` on, or `end` if there is none before, where that is worth a walk of all points: they are in no
    /// order. Returns the steps that it took.
    fn search_point(&self, key: Key, end: Key, known: &mut ExtentState) -> u64 {
        if known.point.is_some_and(|point| key <= point) {
            return 0;
        }
        let deltas = [self.pool.durable.delta(), self.pool.durable.frozen()];
        let steps = deltas.map(|delta| delta.points().len() as u64).iter().sum::<u64>() / ENTRIES_A_STEP;
        let is_worth_it =
            steps == 0 || known.single_looks >= SINGLE_LOOKS && steps <= 2 * self.pool.limits.slice_steps();
        known.point =
            is_worth_it.then(|| deltas.map(|delta| delta.next_point(key, end)).into_iter().min().unwrap_or(end));
        known.single_looks *= u64::from(!is_worth_it);
        steps * u64::from(is_worth_it)
    }

    /// Continues a request for extents behind the known ones.
    pub(crate) fn run_extents(&mut self, id: RequestId) {
        let request = self.requests.get_mut(id);
        request.enter(Stage::LoadMap);
        let (volume, offset, length, limit) = (request.volume(), request.offset(), request.length(), request.limit());
        let known: u64 = request.extents().iter().map(|extent| extent.length).sum();
        let index = self.pool.volume_index(volume).expect("checked when it began to run");
        let block = self.pool.metadata.geometry().block();
        // Continues behind the known extents: the map of the whole range may take more pages than the cache holds.
        let (mut lba, end) = ((offset + known) / block, (offset + length).div_ceil(block));
        let (mut steps, most) = (0, self.extent_steps());
        // The limit includes extents that were found before the request waited.
        let limit = u64::from(limit).min(most) as usize;
        let (mut found, mut outcome) = (ExtentState::default(), Ok(()));
        let stop = Key(Key::new(volume, 0).0 + end);
        while lba < end && steps < most {
            let (hole, next, took) = match self.extent_at(index, Key::new(volume, lba), stop, &mut found) {
                Ok((hole, next, took)) => (hole, end - (stop.0 - next.0), took),
                Err(unresolved) => {
                    outcome = Err(unresolved);
                    break;
                }
            };
            steps += took;
            let bytes = (offset + length).min(next * block) - offset.max(lba * block);
            let extents = self.requests.get_mut(id).extents_mut();
            let full = extents.len() >= limit;
            match extents.last_mut() {
                Some(last) if last.hole == hole => last.length += bytes,
                _ if full => break,
                _ => extents.push(Extent { length: bytes, hole }),
            }
            lba = next;
        }
        self.time_slices.take_steps(steps);
        match outcome {
            Ok(()) => {
                let request = self.requests.get_mut(id);
                request.enter(Stage::Reply);
                let (token, extents) = (request.token(), request.extents().len() as u64);
                self.time_slices.take_steps(EXTENT_STEPS * extents);
                self.pool.metadata.io_mut().queue(Effect::Reply { token, result: Ok(Reply::Extents(id)) });
            }
            Err(Unresolved::Damaged) => self.fail_when_quiet(id, Error::Io),
            Err(Unresolved::Missing(missing)) => {
                self.requests.get_mut(id).wait_for(1);
                self.pool.metadata.load(missing, Some(id));
            }
        }
    }

    /// Returns the most steps, and the most extents, of one time slice of a request for extents; its answer may end there.
    fn extent_steps(&self) -> u64 {
        let slices = if self.pool.mutant(Mutant::EndlessTimeSlice) { 64 } else { 1 };
        slices * self.pool.limits.slice_steps()
    }
}

/// State that a request for extents keeps from the blocks before: all of it holds as long as nothing changes.
#[derive(Default)]
struct ExtentState {
    leaf: LastLeaf,
    /// The number of that leaf.
    number: Option<u64>,
    /// The next block in the map buffer, or the end of the search.
    buffered: Option<Key>,
    /// The next block with a point in a delta, or the end of the search, if that was searched.
    point: Option<Key>,
    /// Blocks since the last one with such a point, or since the last search, that were looked for one by one.
    single_looks: u64,
}

/// Slots that one read of flash gives.
#[derive(Default)]
pub(crate) struct FlashRun {
    pub(super) first: Option<(Slot, u32)>,
    pub(super) length: usize,
}

enum Begun {
    New,
    Coalesced,
    NoBuffer,
}
