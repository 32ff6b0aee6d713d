//! Cache policies: their decisions on reads, for things of one size.
//!
//! A policy knows numbers of things only. It decides if a read hits, if the thing is written to flash now, and which thing it displaces.

mod classic;
mod deduplicated;
pub mod lists;
mod sar;
#[cfg(test)]
mod tests;

use engine::Nanos;
use engine::admission::{Admission, Rules, Verdict};

use classic::{Arc, Lfu, Queue, S3Fifo};
use deduplicated::{DArc, DLru};

/// A read of a thing: a container, or an extent of chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Time of the read.
    pub now: Nanos,
    /// Content that is read, after deduplication.
    pub thing: u32,
    /// Through which address: the same content may have several.
    pub address: u32,
    /// Files that refer to it.
    pub references: u16,
    /// True if it is a small isolated part of its file, away from the rest.
    pub is_fragment: bool,
}

/// A module of PLC-Cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Module {
    /// Popularity filter.
    Filter,
    /// Delayed eviction.
    Delay,
    /// In-out comparison.
    Comparison,
}

/// Result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// True if it is read from flash.
    pub hit: bool,
    /// True if it is written to flash.
    pub inserted: bool,
    /// Thing that was evicted.
    pub evicted: Option<u32>,
    /// The module of PLC-Cache that refused it, if one did.
    pub refused: Option<Module>,
}

impl Outcome {
    const HIT: Outcome = Outcome { hit: true, inserted: false, evicted: None, refused: None };
    const PASSED_BY: Outcome = Outcome { hit: false, ..Outcome::HIT };

    fn inserted(evicted: Option<u32>) -> Outcome {
        Outcome { inserted: true, evicted, ..Outcome::PASSED_BY }
    }
}

/// Variants of SAR. Its abstract gives the chunks that enter: those with many references, small and not sequential ones. It leaves the eviction open. The
/// slides of PLC-Cache say that it has "the data chunks related to the most files", taken "during the process of backup".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sar {
    /// Read things may enter; the least recently used one is evicted.
    Recency,
    /// Read things may enter; the one with the fewest references is evicted, and only for one with more.
    References,
    /// Variant of [`Sar::References`] in which things enter at ingest of their files; reads change nothing any more.
    Ingest,
}

/// Every policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// No flash.
    None,
    /// First in, first out.
    Fifo,
    /// Least recently used.
    Lru,
    /// Least frequently used.
    Lfu,
    /// SAR (NAS 2012): contents shared by several files, and fragments.
    Sar(Sar),
    /// LARC (MSST 2013): LRU behind a filter of the things read once.
    Larc,
    /// ARC (FAST 2003).
    Arc,
    /// CacheDedup's D-LRU (FAST 2016).
    DLru,
    /// CacheDedup's D-ARC.
    DArc,
    /// S3-FIFO (SOSP 2023).
    S3Fifo,
    /// PLC-Cache, or ours: the engine's own code.
    Plc(Rules),
}

impl Policy {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Policy::None => "HDD only",
            Policy::Fifo => "FIFO",
            Policy::Lru => "LRU",
            Policy::Lfu => "LFU",
            Policy::Sar(Sar::Recency) => "SAR, least recently used goes",
            Policy::Sar(Sar::References) => "SAR, fewest references go",
            Policy::Sar(Sar::Ingest) => "SAR, at ingest",
            Policy::Larc => "LARC",
            Policy::Arc => "ARC",
            Policy::DLru => "D-LRU",
            Policy::DArc => "D-ARC",
            Policy::S3Fifo => "S3-FIFO",
            Policy::Plc(Rules::PAPER) => "PLC-Cache",
            Policy::Plc(_) => "ours",
        }
    }
}

/// A cache at work.
#[derive(Clone, Debug)]
pub enum Cache {
    /// No flash.
    None,
    /// FIFO, LRU, LARC; if the flag is set, only SAR's candidates are admitted.
    Queue(Queue, bool),
    /// SAR, by references.
    Sar(sar::Sar),
    /// LFU.
    Lfu(Lfu),
    /// ARC.
    Arc(Arc),
    /// State of CacheDedup's D-LRU (FAST 2016).
    DLru(DLru),
    /// D-ARC.
    DArc(DArc),
    /// S3-FIFO.
    S3Fifo(S3Fifo),
    /// PLC-Cache and ours.
    Plc(Box<Admission>),
}

/// Number and size of the things to cache, and the number of places for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Things.
    pub things: u32,
    /// Addresses that refer to them.
    pub addresses: u32,
    /// Things that fit on flash; at least 1.
    pub places: u32,
    /// Bytes of a thing.
    pub bytes: u64,
}

impl Cache {
    /// Creates an empty cache.
    pub fn new(policy: Policy, size: Size) -> Cache {
        let Size { things, addresses, places, bytes } = size;
        assert!(places > 0, "a cache has space for something");
        match policy {
            Policy::None => Cache::None,
            Policy::Fifo => Cache::Queue(Queue::fifo(things, places), false),
            Policy::Lru => Cache::Queue(Queue::lru(things, places), false),
            Policy::Sar(Sar::Recency) => Cache::Queue(Queue::lru(things, places), true),
            Policy::Sar(Sar::References | Sar::Ingest) => Cache::Sar(sar::Sar::new(things, places)),
            Policy::Larc => Cache::Queue(Queue::larc(things, places), false),
            Policy::Lfu => Cache::Lfu(Lfu::new(things, places)),
            Policy::Arc => Cache::Arc(Arc::new(things, places)),
            Policy::DLru => Cache::DLru(DLru::new(addresses, things, places)),
            Policy::DArc => Cache::DArc(DArc::new(addresses, things, places)),
            Policy::S3Fifo => Cache::S3Fifo(S3Fifo::new(things, places)),
            Policy::Plc(rules) => Cache::Plc(Box::new(Admission::new(rules, things, places, bytes))),
        }
    }

    /// Closes a cache that decides at ingest: nothing enters from here on.
    pub fn close(&mut self) {
        if let Cache::Sar(sar) = self {
            sar.close();
        }
    }

    /// Reads a thing under the policy.
    pub fn access(&mut self, access: Access) -> Outcome {
        let Access { now, thing, address, references, is_fragment } = access;
        let is_sars = references > 1 || is_fragment;
        match self {
            Cache::None => Outcome::PASSED_BY,
            Cache::Queue(queue, true) if !is_sars => queue.access_cached_only(thing),
            Cache::Sar(sar) => sar.access(thing, references, is_sars),
            Cache::Queue(queue, _) => queue.access(thing),
            Cache::Lfu(lfu) => lfu.access(thing),
            Cache::Arc(arc) => arc.access(thing),
            Cache::DLru(cache) => cache.access(address, thing),
            Cache::DArc(cache) => cache.access(address, thing),
            Cache::S3Fifo(cache) => cache.access(thing),
            Cache::Plc(admission) => {
                if admission.access(now, thing).is_some() {
                    return Outcome::HIT;
                }
                match admission.offer(now, thing, references, |_| None) {
                    Verdict::Admitted { evicted, .. } => Outcome::inserted(evicted),
                    Verdict::Filtered => Outcome { refused: Some(Module::Filter), ..Outcome::PASSED_BY },
                    Verdict::Delayed => Outcome { refused: Some(Module::Delay), ..Outcome::PASSED_BY },
                    Verdict::NotBetter => Outcome { refused: Some(Module::Comparison), ..Outcome::PASSED_BY },
                }
            }
        }
    }
}
