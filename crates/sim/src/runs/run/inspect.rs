//! Invariants of an idle engine: every block reads back, the engine's own audit finds nothing, no buffer is lost, the figures are exact, every live slot
//! holds the content of its digest, and the census states the right share of volumes in shared slots.

use engine::{Digest, Mode, Nanos, PassState, Policy, Removed, SharedBlocks, Status, WhatIf, WriteCounts};

use crate::content::{CELLS, digest};
use crate::oracle::model::Range;
use crate::runs::run::Run;
use crate::world::{Step, World};
use crate::{Checked, violated};

/// Number of times that background work may come between a census and its check.
const CENSUSES: usize = 4;
/// Free slots beyond half of the spare ones at which regions have to be moved: those of a batch (RFC 0012).
const SLOTS_OF_A_BATCH: u64 = 256;
/// Divisor of all slots: if one in N is free, that is enough in a small pool.
const ENOUGH_FREE: u64 = 8;
/// Size in blocks above which a volume is not read as a whole.
const READ_WHOLE: u64 = 1 << 14;

impl Run {
    /// Reads every block of every volume and compares with the model; of a huge volume, the written blocks.
    pub fn verify_all(&mut self) -> Checked {
        self.drain()?;
        let piece = u64::from(self.config.parameters.geometry.piece_blocks) * CELLS as u64;
        for volume in 0..self.model.volumes().len() {
            if !self.model.volumes()[volume].is_usable() {
                continue;
            }
            let blocks = self.model.volumes()[volume].size_blocks;
            let end = blocks * CELLS as u64;
            let mut firsts: Vec<u64> = if blocks <= READ_WHOLE {
                (0..end).step_by(piece as usize).collect()
            } else {
                // An unwritten range is a hole, which takes no space in memory or time.
                self.extents(Range { volume, first: 0, count: end }, u32::MAX)?;
                let written = self.model.volumes()[volume].written().map(|block| block * CELLS as u64);
                written.map(|first| first - first % piece).collect()
            };
            firsts.dedup();
            for first in firsts {
                self.read(Range { volume, first, count: piece.min(end - first) })?;
            }
        }
        self.drain()
    }

    /// Waits until nothing is in flight and lets the engine audit its whole state.
    pub fn audit(&mut self) -> Checked {
        self.rest()?;
        self.counts.audits += 1;
        let beyond = self.world.engine.pages_beyond_promise();
        if beyond > 0 {
            return violated(format!("a checkpoint took {beyond} pages of metadata more than had been counted for it"));
        }
        let disk = &self.world.disk;
        let mut findings = Vec::new();
        let is_clean =
            self.world.engine.check(&mut |offset, length| World::read_bytes(disk, offset, length), &mut |finding| {
                findings.push(finding.to_string())
            });
        if is_clean != findings.is_empty() {
            return violated(format!("the audit says {is_clean} but reports {findings:?}"));
        }
        if !is_clean {
            return violated(format!("audit: {}", findings.join("; ")));
        }
        Ok(())
    }

    /// Reads everything, audits, settles, audits again, and holds the figures against the model.
    pub fn settle_and_audit(&mut self) -> Checked {
        self.verify_all()?;
        self.audit()?;
        self.finish_copying()?;
        self.settle()?;
        // The merged mappings may be out of order.
        while self.copies_are_due() {
            self.finish_copying()?;
            self.settle()?;
        }
        if !self.is_unsettled {
            self.figures()?;
        }
        self.write_counts()?;
        self.audit()?;
        self.disk_index()?;
        self.buffers_are_all_there()?;
        self.slots_hold_their_digests()?;
        self.census()
    }

    /// Holds the census against a count of all maps, and whole counts against the contents of the model where each content is stored once.
    fn census(&mut self) -> Checked {
        if self.is_unsettled || self.endures || self.has_failed() {
            return Ok(());
        }
        for _ in 0..CENSUSES {
            while self.world.engine.census_is_due() && self.step(Nanos::MAX)? != Step::Quiet {}
            if self.world.engine.census_is_due() {
                return violated("a census is due, and nothing comes of it");
            }
            self.rest()?;
            // Background work may have changed something meanwhile, and a merge is followed by another census.
            let status = self.world.engine.status();
            if status.unmerged_entries == 0 && !self.world.engine.census_is_due() {
                return self.shares();
            }
            self.finish_copying()?;
            self.settle()?;
            if self.is_unsettled {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Holds the figure of each volume against a count. Each has one: maps of these pools have few pages, so a census walks them if draws meet no leaf.
    fn shares(&mut self) -> Checked {
        let (engine, disk) = (&self.world.engine, &self.world.disk);
        let Some(counted) = engine.count_shared(&mut |offset, length| World::read_bytes(disk, offset, length)) else {
            return violated("the blocks in shared slots cannot be counted");
        };
        // A block that several maps inherit has one reference.
        let stores_each_once = self.is_exact
            && !self.model.has_families()
            && !engine.status().dedup.is_short_of_space
            && self.model.volumes().iter().all(|volume| self.model.policy_of(volume) == Policy::Full);
        for volume in engine.volumes().filter(|volume| !volume.is_snapshot()) {
            let Some(census) = engine.shared_of(volume) else {
                return violated(format!("no census has counted volume {}", volume.name));
            };
            let blocks = counted.iter().find(|blocks| blocks.volume == volume.id).copied();
            let Some(SharedBlocks { mapped, shared, .. }) = blocks else { continue };
            let exact = (shared * 1_000_000).checked_div(mapped).unwrap_or(0);
            if exact.abs_diff(census.ppm.into()) > 6 * u64::from(census.error_ppm) {
                let name = &volume.name;
                return violated(format!(
                    "{shared} of {mapped} blocks of volume {name} are in shared slots, but {census:?}"
                ));
            }
            let at = self.model.index_of(volume.id, &self.name_in_model(volume));
            let expected = at.map_or(shared, |at| self.model.repeated(at));
            if stores_each_once && shared != expected {
                return violated(format!(
                    "{expected} blocks of volume {} repeat, {shared} are in shared slots",
                    volume.name
                ));
            }
        }
        Ok(())
    }

    /// Checks, after a crash, that the passes that are due leave each content once, where only offline volumes had stored it twice.
    pub fn passes_leave_each_content_once(&mut self) -> Checked {
        self.finish_copying()?;
        self.settle()?;
        self.is_exact = true;
        self.figures()?;
        self.is_exact = false;
        Ok(())
    }

    /// Waits for the background work that copies blocks on its own: a scrub that makes second copies, defragmentation, garbage collection, replication,
    /// a relocation plan, and a pass that finds duplicates. Fails if it makes no progress.
    fn finish_copying(&mut self) -> Checked {
        let engine = &self.world.engine;
        let copies = engine.properties().second_copies() > 0 && !self.has_failed();
        while copies && self.world.engine.status().scrub.state == PassState::Running {
            self.wait()?;
        }
        while self.copies_are_due() {
            if self.step(Nanos::MAX)? == Step::Quiet && self.copies_are_due() {
                let Status { defrag, gc, replicate, dedup, relocate, .. } = self.world.engine.status();
                return violated(format!(
                    "work is left to the background, and nothing comes of it: {defrag:?}, {gc:?}, {replicate:?}, {dedup:?}, \
                     {relocate:?}"
                ));
            }
        }
        Ok(())
    }

    /// Returns true if replication, defragmentation, a relocation plan, garbage collection or a deduplication pass is due, by the engine's word. Noted regions
    /// are due by the run's own count of free slots as well.
    fn copies_are_due(&self) -> bool {
        let status = self.world.engine.status();
        let pass = match status.dedup.state {
            PassState::Running => true,
            PassState::Paused => false,
            _ => status.dedup.has_backlog,
        };
        let plan = status.relocate.state == PassState::Running;
        !self.has_failed()
            && (status.replicate.noted + status.replicate.popular > 0
                || status.defrag.is_due
                || plan
                || pass
                || status.gc.is_due
                || self.regions_are_due(&status))
    }

    /// Returns true if noted regions may be moved: there is an allowance, no lack of metadata or host space, and enough slots are free. Free slots are those
    /// of the pool without the live ones on the disk: so they are once it has settled.
    fn regions_are_due(&self, status: &Status) -> bool {
        let geometry = &self.config.parameters.geometry;
        let is_wanted = status.defrag.noted_regions > 0 && status.defrag.allowance_blocks > 0;
        let is_settled =
            !self.is_unsettled && status.pending_blocks + status.unmerged_entries + status.buffered_entries == 0;
        let (engine, reserves) = (&self.world.engine, self.world.faults.struck.reserves);
        let is_refused = status.refuses_new.is_some() || engine.holds_back_commands() || reserves > 0;
        if !is_wanted || !is_settled || is_refused {
            return false;
        }
        let (disk, mut live) = (&self.world.disk, 0);
        let read = &mut |offset, length| World::read_bytes(disk, offset, length);
        let are_known = engine.live_slots(read, &mut |_, _| live += 1);
        let enough = (geometry.spare_slots() / 2 + SLOTS_OF_A_BATCH).min(geometry.slots() / ENOUGH_FREE);
        are_known && geometry.slots().saturating_sub(live) >= enough
    }

    /// Checks the index on disk: if no page was ever lost and no volume was offline, it names no slot with another content. Its filter denies none of its entries.
    /// Once it is complete, and no duplicates were written that could have been shared, every content has an entry, but for those that overflowing buckets dropped.
    fn disk_index(&self) -> Checked {
        let (engine, disk) = (&self.world.engine, &self.world.disk);
        let audit = engine.check_disk_index(&mut |offset, length| World::read_bytes(disk, offset, length));
        let Some(audit) = audit.filter(|_| !self.endures) else { return Ok(()) };
        let status = engine.disk_index_status();
        let all = status.is_complete && self.is_exact;
        let lacks = audit.stale > 0 && !self.was_offline || all && audit.absent > audit.entries / 8;
        if lacks || audit.denied > 0 {
            return violated(format!("the index on disk: {audit:?}, {status:?}"));
        }
        Ok(())
    }

    fn figures(&mut self) -> Checked {
        self.model.hand_over();
        let status = self.world.engine.status();
        let volumes = self.model.volumes().len();
        let used: Vec<(u64, u64)> = (0..volumes).map(|volume| self.model.used(volume)).collect();
        let (distinct, are_all_known) = self.model.distinct();
        let (least, most) = used.iter().fold((0, 0), |(least, most), own| (least + own.0, most + own.1));
        let logical = status.logical_blocks_used;
        let wrong = |what: &str| violated(format!("{what}: {distinct} distinct of {used:?} used, but {status:?}"));
        if status.mode != Mode::Normal {
            return wrong("the mode is not normal though nothing failed");
        }
        if !self.endures && status.damaged_blocks_found != 0 {
            return wrong("damage was found though there is none");
        }
        if status.pending_blocks != 0 || status.unmerged_entries != 0 {
            return wrong("something is pending or unmerged after settling");
        }
        // The I/O of a flash that hangs ends when the flash answers.
        if self.world.engine.is_resizing() && !self.world.flash_has_something() {
            return wrong("the limits are not in force though nothing is in flight");
        }
        if !(least..=most).contains(&logical) {
            return wrong("the number of logical blocks is wrong");
        }
        let held = engine::Held {
            mapped: status.logical_blocks_used,
            is_leaving_known: true,
            data: status.data_blocks_used,
            copies: status.second_copies + status.replicate.replicas,
            ..engine::Held::default()
        };
        if status.held != held {
            return wrong("the held count differs");
        }
        // A second copy is never shared, and stays until a scrub finds that it is not needed.
        let data = status.data_blocks_used - status.second_copies - status.replicate.replicas;
        let is_exact = self.is_exact
            && are_all_known
            && !status.dedup.is_short_of_space
            && self.model.volumes().iter().all(|volume| self.model.policy_of(volume) == Policy::Full);
        if data > logical || data < distinct || (is_exact && data != distinct) {
            return wrong("the number of data blocks is wrong");
        }
        let geometry = &self.config.parameters.geometry;
        if status.capacity_bytes != geometry.capacity_bytes() || status.data_blocks_used > geometry.slots() {
            return wrong("the capacity is wrong");
        }
        let mut known = engine::InheritedCounts::default();
        for listed in self.world.engine.volumes() {
            let engine = &self.world.engine;
            let found = [engine.volume(listed.id), engine.volume_named(&engine.full_name(listed))];
            if found != [Some(listed); 2] {
                return wrong(&format!("volume {} is not found by its number, or by its name", listed.name));
            }
            let at = self.model.index_of(listed.id, &self.name_in_model(listed));
            let now = self.world.engine.held_by(listed);
            let own = listed.logical_blocks_used;
            if !at.is_some_and(|at| (used[at].0..=used[at].1).contains(&own)) || now != own {
                return wrong(&format!("volume {} says {} logical blocks", listed.name, listed.logical_blocks_used));
            }
            let (least, most) = at.map_or((0, 0), |at| self.model.referred(at));
            let most = if engine.is_referred_too_high(listed) { u64::MAX } else { most };
            let referred = engine.referred_by(listed, &mut known);
            if !(least..=most).contains(&referred) {
                let family = listed.family;
                return wrong(&format!(
                    "{} refers to {referred} blocks, not {least} to {most}: {family:?}",
                    listed.name
                ));
            }
        }
        let engine = &self.world.engine;
        let mut by_name: Vec<_> = engine.volumes().filter(|volume| !volume.is_snapshot()).collect();
        by_name.sort_unstable_by_key(|volume| &volume.name);
        let behind = |at: usize| engine.volumes_after(Some(&by_name[at].name)).eq(by_name[at + 1..].iter().copied());
        if engine.volume_count() != by_name.len() || !(0..by_name.len()).all(behind) {
            return wrong("the volumes in order of names are others than those in order of numbers");
        }
        Ok(())
    }

    /// Checks that the counts of writes are possible, and that a policy that has never changed removed as much as its own estimate states.
    fn write_counts(&mut self) -> Checked {
        let engine = &self.world.engine;
        let pool = engine.write_counts();
        let mut of_volumes = WriteCounts::default();
        for volume in engine.volumes() {
            let (counts, WhatIf { full, select, idedup }) = (volume.writes.counts(), volume.writes.counts().what_if);
            of_volumes += counts;
            let wrong = |what: &str| violated(format!("{what}: volume {} has {counts:?}", volume.name));
            if counts.categories.iter().sum::<u64>() > counts.requests {
                return wrong("more requests have a category than there are");
            }
            let ordered = |of: fn(Removed) -> u64| of(full) >= of(select) && of(select) >= of(idedup);
            if !ordered(|removed| removed.blocks) || !ordered(|removed| removed.requests) {
                return wrong("full does not remove what select removes, or select not what idedup removes");
            }
            if counts.removed.requests > counts.removed.blocks
                || full.blocks > counts.written_blocks + counts.removed.blocks
            {
                return wrong("more is removed than there was");
            }
            let expected = match engine.policy_of(volume) {
                Policy::Native | Policy::Observe => Removed::default(),
                Policy::Full => full,
                Policy::SELECT => select,
                Policy::IDEDUP => idedup,
                _ => continue,
            };
            if !self.config.changes_volumes && counts.removed != expected {
                return wrong(&format!("{} has not removed the predicted blocks", engine.policy_of(volume)));
            }
        }
        let sums =
            |counts: WriteCounts| [counts.requests, counts.written_blocks, counts.removed.blocks, counts.zero_blocks];
        if sums(of_volumes).iter().zip(sums(pool)).any(|(volumes, pool)| *volumes > pool) {
            return violated(format!("the volumes have {of_volumes:?}, but the pool {pool:?}"));
        }
        Ok(())
    }

    fn buffers_are_all_there(&mut self) -> Checked {
        // Reads of a flash that does not answer keep theirs (seed 1796074012992 with discards).
        let late = self.world.buffers_of_late_flash();
        let mut taken = Vec::new();
        while let Some(buffer) = self.world.take_buffer(&[None; CELLS])? {
            taken.push(buffer);
            if taken.len() > self.limits.write_buffers as usize {
                return violated(format!("more buffers were handed out than {}", self.limits.write_buffers));
            }
        }
        let count = taken.len();
        for buffer in taken {
            self.world.return_buffer(buffer);
        }
        if count + late < self.limits.write_buffers as usize {
            return violated(format!("{count} of {} buffers are left at rest", self.limits.write_buffers));
        }
        Ok(())
    }

    fn slots_hold_their_digests(&mut self) -> Checked {
        let disk = &self.world.disk;
        let block_size = self.config.parameters.geometry.block();
        let (mut wrong, mut count) = (Vec::new(), 0);
        let is_complete = self.world.engine.live_slots(
            &mut |offset, length| World::read_bytes(disk, offset, length),
            &mut |offset, expected| {
                count += 1;
                let found = digest(&disk.read(offset / block_size).to_cells());
                if expected != Digest::default() && found != expected {
                    wrong.push(format!("the slot at {offset} should hold {expected:?}, holds {found:?}"));
                }
            },
        );
        if !is_complete || !wrong.is_empty() {
            return violated(format!("live slots (complete: {is_complete}): {}", wrong.join("; ")));
        }
        let status = self.world.engine.status();
        // The present number: background work may have moved blocks since the last merge.
        if count != status.held.data {
            return violated(format!("there are {count} live slots, but {status:?}"));
        }
        Ok(())
    }
}
