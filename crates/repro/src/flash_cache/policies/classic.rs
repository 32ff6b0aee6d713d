//! Classic policies as in their papers, for things of one size: FIFO, LRU, LFU, LARC, ARC and S3-FIFO.

use super::Outcome;
use super::lists::Lists;

/// FIFO, LRU, and LRU behind a filter.
#[derive(Clone, Debug)]
pub struct Queue {
    lists: Lists,
    places: usize,
    /// True if a hit moves to the front.
    renews: bool,
    /// Target length of LARC's filter (MSST 2013), a list of the things read once. None: everything is admitted.
    filter: Option<usize>,
}

const CACHED: u32 = 0;
const SEEN: u32 = 1;

impl Queue {
    /// Creates a FIFO cache.
    pub fn fifo(things: u32, places: u32) -> Queue {
        Queue { lists: Lists::new(things, 2), places: places as usize, renews: false, filter: None }
    }

    /// Creates an LRU cache.
    pub fn lru(things: u32, places: u32) -> Queue {
        Queue { renews: true, ..Queue::fifo(things, places) }
    }

    /// Creates a LARC cache. Its filter begins with a tenth of the cache.
    pub fn larc(things: u32, places: u32) -> Queue {
        Queue { filter: Some((places / 10) as usize), ..Queue::lru(things, places) }
    }

    /// Reads a thing: a hit, or an insertion if the filter admits it.
    pub fn access(&mut self, thing: u32) -> Outcome {
        if self.lists.list_of(thing) == Some(CACHED) {
            if self.renews {
                self.lists.push_front(CACHED, thing);
            }
            if let Some(target) = &mut self.filter {
                // A hit: the filter need not let in as much.
                let less = self.places / (self.places.saturating_sub(*target)).max(1);
                *target = target.saturating_sub(less.max(1)).max(self.places / 10);
            }
            return Outcome::HIT;
        }
        if let Some(target) = &mut self.filter {
            let more = self.places / (*target).max(1);
            *target = (*target + more.max(1)).min(self.places * 9 / 10);
            if self.lists.list_of(thing) != Some(SEEN) {
                self.lists.push_front(SEEN, thing);
                while self.lists.len(SEEN) > *target {
                    self.lists.pop_back(SEEN);
                }
                return Outcome::PASSED_BY;
            }
        }
        self.insert(thing)
    }

    /// Reads a thing, without permission to write it to flash now.
    pub fn access_cached_only(&mut self, thing: u32) -> Outcome {
        if self.lists.list_of(thing) == Some(CACHED) { self.access(thing) } else { Outcome::PASSED_BY }
    }

    fn insert(&mut self, thing: u32) -> Outcome {
        let full = self.lists.len(CACHED) >= self.places;
        let evicted = if full { self.lists.pop_back(CACHED) } else { None };
        self.lists.push_front(CACHED, thing);
        Outcome::inserted(evicted)
    }
}

/// LFU: counts begin anew with each insertion; of equals the one goes that has had its count for longest.
#[derive(Clone, Debug)]
pub struct Lfu {
    lists: Lists,
    /// The count of each; 0: not cached.
    counts: Vec<u32>,
    least: u32,
    cached: usize,
    places: usize,
}

impl Lfu {
    /// Maximum distinguishable count.
    const HIGHEST: u32 = 1 << 16;

    /// Creates an empty cache.
    pub fn new(things: u32, places: u32) -> Lfu {
        let lists = Lists::new(things, Lfu::HIGHEST + 1);
        Lfu { lists, counts: vec![0; things as usize], least: 1, cached: 0, places: places as usize }
    }

    /// Reads a thing, and counts its use; evicts the least used thing if the cache is full.
    pub fn access(&mut self, thing: u32) -> Outcome {
        let count = self.counts[thing as usize];
        if count > 0 {
            let more = (count + 1).min(Lfu::HIGHEST);
            self.counts[thing as usize] = more;
            self.lists.push_front(more, thing);
            if count == self.least && self.lists.len(count) == 0 {
                self.least = more;
            }
            return Outcome::HIT;
        }
        let mut evicted = None;
        if self.cached >= self.places {
            evicted = self.lists.pop_back(self.least);
            if let Some(evicted) = evicted {
                self.counts[evicted as usize] = 0;
                self.cached -= 1;
            }
        }
        self.counts[thing as usize] = 1;
        self.lists.push_front(1, thing);
        self.least = 1;
        self.cached += 1;
        Outcome::inserted(evicted)
    }
}

/// ARC (Megiddo and Modha, FAST 2003).
#[derive(Clone, Debug)]
pub struct Arc {
    lists: Lists,
    places: usize,
    /// The target of `ONCE`, in places.
    target: f64,
}

/// ARC's lists: T1, T2, B1, B2.
pub(super) const ONCE: u32 = 0;
pub(super) const OFTEN: u32 = 1;
pub(super) const ONCE_GHOSTS: u32 = 2;
pub(super) const OFTEN_GHOSTS: u32 = 3;

impl Arc {
    /// Creates an empty cache.
    pub fn new(things: u32, places: u32) -> Arc {
        Arc { lists: Lists::new(things, 4), places: places as usize, target: 0.0 }
    }

    /// Reads a thing, and adapts the target length of the first list on a hit in the ghosts.
    pub fn access(&mut self, thing: u32) -> Outcome {
        let len = |list| self.lists.len(list);
        let found = self.lists.list_of(thing);
        let mut evicted = None;
        let list = match found {
            Some(ONCE | OFTEN) => {
                self.lists.push_front(OFTEN, thing);
                return Outcome::HIT;
            }
            Some(ghosts) => {
                let (once, often) = (len(ONCE_GHOSTS) as f64, len(OFTEN_GHOSTS) as f64);
                self.target = if ghosts == ONCE_GHOSTS {
                    (self.target + (often / once).max(1.0)).min(self.places as f64)
                } else {
                    (self.target - (once / often).max(1.0)).max(0.0)
                };
                evicted = self.replace(ghosts == OFTEN_GHOSTS);
                OFTEN
            }
            None => {
                let all = len(ONCE) + len(OFTEN) + len(ONCE_GHOSTS) + len(OFTEN_GHOSTS);
                if len(ONCE) + len(ONCE_GHOSTS) >= self.places {
                    if len(ONCE) < self.places {
                        self.lists.pop_back(ONCE_GHOSTS);
                        evicted = self.replace(false);
                    } else {
                        evicted = self.lists.pop_back(ONCE);
                    }
                } else if all >= self.places {
                    if all >= 2 * self.places {
                        self.lists.pop_back(OFTEN_GHOSTS);
                    }
                    evicted = self.replace(false);
                }
                ONCE
            }
        };
        self.lists.push_front(list, thing);
        Outcome::inserted(evicted)
    }

    /// Makes a ghost of one that is cached, if all places are taken.
    fn replace(&mut self, from_often_ghosts: bool) -> Option<u32> {
        let (once, often) = (self.lists.len(ONCE), self.lists.len(OFTEN));
        if once + often < self.places {
            return None;
        }
        let exceeds = once as f64 > self.target || (from_often_ghosts && once as f64 == self.target);
        let (from, to) = if once > 0 && (exceeds || often == 0) { (ONCE, ONCE_GHOSTS) } else { (OFTEN, OFTEN_GHOSTS) };
        let evicted = self.lists.back(from)?;
        self.lists.push_front(to, evicted);
        Some(evicted)
    }
}

/// S3-FIFO (SOSP 2023): a tenth of the places is small, ghosts are as many as the others.
#[derive(Clone, Debug)]
pub struct S3Fifo {
    lists: Lists,
    uses: Vec<u8>,
    places: usize,
    small: usize,
    has_evicted: bool,
}

const SMALL: u32 = 0;
const MAIN: u32 = 1;
const GHOSTS: u32 = 2;

impl S3Fifo {
    /// Creates an empty cache.
    pub fn new(things: u32, places: u32) -> S3Fifo {
        let small = (places / 10) as usize;
        let uses = vec![0; things as usize];
        S3Fifo { lists: Lists::new(things, 3), uses, places: places as usize, small, has_evicted: false }
    }

    /// Reads a thing; one that is not cached enters the small list, or the main list if it is a ghost.
    pub fn access(&mut self, thing: u32) -> Outcome {
        let found = self.lists.list_of(thing);
        if let Some(SMALL | MAIN) = found {
            let uses = &mut self.uses[thing as usize];
            *uses = (*uses + 1).min(3);
            return Outcome::HIT;
        }
        self.lists.remove(thing);
        let full = self.lists.len(SMALL) + self.lists.len(MAIN) >= self.places;
        self.has_evicted |= full;
        let evicted = if full { self.evict() } else { None };
        // Until the cache is full for the first time, the main list takes the things beyond the small list's tenth.
        let fills = !self.has_evicted && self.lists.len(SMALL) >= self.small;
        let list = if found.is_some() || fills { MAIN } else { SMALL };
        self.uses[thing as usize] = 0;
        self.lists.push_front(list, thing);
        Outcome::inserted(evicted)
    }

    fn evict(&mut self) -> Option<u32> {
        let main = self.places - self.small;
        if self.lists.len(MAIN) > main || self.lists.len(SMALL) == 0 {
            return self.evict_main();
        }
        while let Some(last) = self.lists.back(SMALL) {
            if self.uses[last as usize] >= 2 {
                self.uses[last as usize] = 0;
                self.lists.push_front(MAIN, last);
                continue;
            }
            self.lists.push_front(GHOSTS, last);
            if self.lists.len(GHOSTS) > main {
                self.lists.pop_back(GHOSTS);
            }
            return Some(last);
        }
        self.evict_main()
    }

    fn evict_main(&mut self) -> Option<u32> {
        loop {
            let last = self.lists.back(MAIN)?;
            if self.uses[last as usize] == 0 {
                self.lists.remove(last);
                return Some(last);
            }
            self.uses[last as usize] -= 1;
            self.lists.push_front(MAIN, last);
        }
    }
}
