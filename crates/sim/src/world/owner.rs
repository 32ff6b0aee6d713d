//! Ownership of pools: the record of the owner on the disk, and takeovers by others beside the engine, at any moment.
//!
//! An engine that has lost its pool must satisfy four conditions. After its next look it submits nothing that changes the disk. Before that look it submits
//! no superblock without a look. All data of answered flushes is there. All requests come to their end.

use engine::{Io, IoOp, Opened, Owner, Segment, Superblock};

use crate::content::Content;
use crate::random::mix;
use crate::world::World;
use crate::{Checked, violated};

/// State of the owner as the world sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ownership {
    /// True if another owner has taken the pool over.
    pub taken: bool,
    /// True if the engine has looked since its last superblock.
    has_looked: bool,
    /// The same since its last discard.
    has_looked_to_discard: bool,
    /// Epoch of that superblock.
    epoch: u64,
    /// True if a checkpoint had begun, or had looked, before another owner took the pool over.
    had_begun: bool,
}

fn record(nonce: u64) -> Owner {
    let nonce = [mix(nonce).to_le_bytes(), mix(!nonce).to_le_bytes()].concat();
    Owner {
        nonce: nonce.try_into().expect("twice eight bytes"),
        released: false,
        host: [1; 16],
        hardware: [0; 16],
        boot: [2; 16],
        pid: 1,
        started: 1,
        pid_namespace: 1,
        opened: Opened { file_system: 1, inode: 1, device: 0 },
        taken: 1,
        host_name: "lab".into(),
        path: "disk".into(),
    }
}

impl World {
    fn put_owner(&mut self, owner: &Owner) -> Checked {
        let Some(at) = self.engine.geometry().owner_block() else {
            return violated("this geometry has no space for an owner");
        };
        let mut block = vec![0; self.disk.block_size() as usize];
        owner.encode(self.parameters(), &mut block);
        self.disk.put(at, Content::Metadata(block.into()));
        Ok(())
    }

    /// Makes the pool the engine's, before its first event.
    pub fn acquire(&mut self, nonce: u64) -> Checked {
        let owner = record(nonce);
        self.engine.set_owner(owner.nonce);
        self.put_owner(&owner)
    }

    /// Takes the pool over as another owner, which does nothing else.
    pub fn take_over(&mut self) -> Checked {
        self.trace.note(self.now, 50, &[], || "======== another takes the pool over".to_string());
        self.ownership.taken = true;
        self.ownership.had_begun = self.ownership.has_looked || self.engine.status().checkpoint_in_progress;
        self.put_owner(&record(u64::MAX))
    }

    /// Notes that an I/O has read the record of the owner.
    pub(crate) fn note_look(&mut self, io: &Io) {
        let block = self.geometry().block();
        if io.op == IoOp::ReadPages && self.geometry().owner_block() == Some(io.offset / block) {
            self.ownership.has_looked |= !self.ownership.taken;
            self.ownership.has_looked_to_discard |= !self.ownership.taken;
        }
    }

    /// Judges an I/O that begins.
    pub(crate) fn judge_owner(&mut self, io: &Io) -> Checked {
        let changes = io.op.is_write() || matches!(io.op, IoOp::Sync | IoOp::Reserve | IoOp::Discard);
        if changes && self.engine.is_taken_over() {
            return violated(format!("the engine knows that it has lost the pool, and submits {io:?}"));
        }
        if io.op == IoOp::Discard {
            if self.ownership.taken && !self.ownership.has_looked_to_discard {
                return violated(format!("a discard begins in a pool that another has taken over: {io:?}"));
            }
            self.ownership.has_looked_to_discard = false;
        }
        let block = self.geometry().block();
        let pages = self.geometry().meta_map_start() * block..self.geometry().data_start() * block;
        if io.op.is_write() && pages.contains(&io.offset) && self.ownership.taken && !self.ownership.had_begun {
            return violated(format!("a checkpoint has begun in a pool that another has taken over: {io:?}"));
        }
        let is_superblock = io.op.is_write() && io.offset < self.geometry().journal_start() * block;
        let Some(&Segment::Page(page)) = io.segments.first().filter(|_| is_superblock) else { return Ok(()) };
        let Ok(superblock) = Superblock::decode(self.engine.page(page)) else { return Ok(()) };
        let is_new = superblock.epoch != self.ownership.epoch;
        if is_new && self.ownership.taken && !self.ownership.has_looked {
            return violated(format!("epoch {} begins in a pool that another has taken over", superblock.epoch));
        }
        self.ownership.epoch = superblock.epoch;
        self.ownership.has_looked &= !is_new;
        Ok(())
    }
}
