//! The engine and the means that drive it: the memory of its buffers, the ring, the digest, and the clock.
//!
//! All sides of the reactor get it for the time of a call. Invariants: time stands still within a turn (`now`); the ring has registered no buffer that the
//! arena does not keep memory for (`set_buffers`).

use std::time::Instant;

use engine::Nanos;

use crate::io::arena::{Arena, BLOCK};
use crate::io::digest::Digester;
use crate::io::record::Recorded;
use crate::io::ring::Ring;

/// Engine and the means that drive it, shared by all sides of the reactor.
pub struct Core {
    /// The engine.
    pub engine: Recorded,
    /// The memory.
    pub arena: Arena,
    /// The ring.
    pub ring: Ring,
    /// The pool's digest function.
    pub digester: Digester,
    /// The time of this turn of the reactor.
    pub now: Nanos,
    /// Time at which the clock was zero.
    started: Instant,
}

impl Core {
    /// Puts the parts together. The clock begins at zero.
    pub fn new(engine: Recorded, arena: Arena, ring: Ring, digester: Digester) -> Core {
        Core { engine, arena, ring, digester, now: 0, started: Instant::now() }
    }

    /// Reads the clock, and leaves the time of the turn.
    pub fn clock(&self) -> Nanos {
        self.started.elapsed().as_nanos() as Nanos
    }

    /// Sets the time of the turn to that of the clock.
    pub fn tick(&mut self) {
        self.now = self.clock();
    }

    /// Returns the number of buffers that there is memory for.
    pub fn buffers(&self) -> usize {
        self.arena.buffers().length / BLOCK
    }

    /// Keeps memory for `count` buffers and for no more, and registers them.
    pub fn set_buffers(&mut self, count: usize) {
        if count > self.buffers() {
            self.arena.set_buffers(count);
            self.ring.follow_buffers(&self.arena, self.arena.buffers());
        } else if count < self.buffers() {
            self.ring.follow_buffers(&self.arena, self.arena.buffers().first(count * BLOCK));
            self.arena.set_buffers(count);
        }
    }
}
