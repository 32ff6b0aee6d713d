//! SAR policy as described by the slides of PLC-Cache: it caches the chunks with the most referring files.

use std::collections::BTreeSet;

use super::Outcome;

/// Cache of the admissible things with the most references.
#[derive(Clone, Debug)]
pub struct Sar {
    /// References, when it came, number: the first goes first.
    cached: BTreeSet<(u16, u64, u32)>,
    /// References and time of the cached things, by number.
    known: Vec<Option<(u16, u64)>>,
    places: usize,
    clock: u64,
    /// Set when nothing enters any more.
    is_closed: bool,
}

impl Sar {
    /// Creates an empty cache.
    pub fn new(things: u32, places: u32) -> Sar {
        let known = vec![None; things as usize];
        Sar { cached: BTreeSet::new(), known, places: places as usize, clock: 0, is_closed: false }
    }

    /// Closes the cache: nothing enters from here on.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Reads a thing; `is_wanted`: it may enter. When the cache is full, the thing with the fewest references is evicted, and only for one with more.
    pub fn access(&mut self, thing: u32, references: u16, is_wanted: bool) -> Outcome {
        if let Some((before, since)) = self.known[thing as usize] {
            if before != references {
                self.cached.remove(&(before, since, thing));
                self.cached.insert((references, since, thing));
                self.known[thing as usize] = Some((references, since));
            }
            return Outcome::HIT;
        }
        if !is_wanted || self.is_closed {
            return Outcome::PASSED_BY;
        }
        let mut evicted = None;
        if self.cached.len() >= self.places {
            match self.cached.first().copied() {
                Some(fewest) if fewest.0 < references => {
                    self.cached.remove(&fewest);
                    self.known[fewest.2 as usize] = None;
                    evicted = Some(fewest.2);
                }
                _ => return Outcome::PASSED_BY,
            }
        }
        self.clock += 1;
        self.cached.insert((references, self.clock, thing));
        self.known[thing as usize] = Some((references, self.clock));
        Outcome::inserted(evicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_most_files_refer_to_stays() {
        let mut sar = Sar::new(4, 2);
        let (inserted, passed) = (Outcome::inserted, Outcome::PASSED_BY);
        assert_eq!(sar.access(0, 2, false), passed);
        assert_eq!([sar.access(0, 2, true), sar.access(1, 3, true)], [inserted(None); 2]);
        assert_eq!([sar.access(2, 2, true), sar.access(0, 2, true)], [passed, Outcome::HIT], "no more than the least");
        assert_eq!(sar.access(2, 3, true), inserted(Some(0)));
        // Among equals the first is evicted, and a thing that gained references stays.
        assert_eq!([sar.access(1, 9, true), sar.access(3, 4, true)], [Outcome::HIT, inserted(Some(2))]);
        sar.close();
        assert_eq!([sar.access(0, 99, true), sar.access(1, 9, true)], [passed, Outcome::HIT]);
    }
}
