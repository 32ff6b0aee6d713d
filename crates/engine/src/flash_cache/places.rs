//! The places of the flash: the certain content of each, and its state in the log on flash.
//!
//! The admission decides which container gets which place. The results are here: a place can be read only while it is filled, and it is written only
//! when nothing can refer to its former content: no read that is in progress, and no log that a crash leaves.
//!
//! ```text
//! Free     nothing is here, and no log says otherwise
//! Filled   it holds a container, of one generation
//! Leaving  it is not read any more, but the log may still name its former container; until that is durably removed nothing is written here
//! ```

use alloc::vec;
use alloc::vec::Vec;

use crate::sizes::list_bytes;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlaceState {
    Free,
    Filled,
    Leaving,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    container: u32,
    /// Reads in progress.
    reads: u32,
    generation: u16,
    state: PlaceState,
}

/// All places: 12 bytes each, and four for each that is to be taken out of the log.
pub(crate) struct Places {
    places: Vec<Place>,
    /// Leaving places, in order.
    leaving: Vec<u32>,
    filled: u32,
}

impl Places {
    /// Makes `count` places, all free.
    pub(crate) fn new(count: u32) -> Places {
        let free = Place { container: 0, reads: 0, generation: 0, state: PlaceState::Free };
        Places { places: vec![free; count as usize], leaving: Vec::new(), filled: 0 }
    }

    /// Returns true if a place holds the container, of this generation.
    pub(crate) fn holds(&self, place: u32, container: u32, generation: u16) -> bool {
        let place = &self.places[place as usize];
        place.state == PlaceState::Filled && (place.container, place.generation) == (container, generation)
    }

    /// Returns the container that a place holds.
    pub(crate) fn filled_by(&self, place: u32) -> Option<u32> {
        let place = &self.places[place as usize];
        (place.state == PlaceState::Filled).then_some(place.container)
    }

    /// Returns true if a place may be written: it is free, and no read of it is in progress.
    pub(crate) fn is_free(&self, place: u32) -> bool {
        let place = &self.places[place as usize];
        place.state == PlaceState::Free && place.reads == 0
    }

    /// Notes that a place has been filled, and that the log says so durably.
    pub(crate) fn fill(&mut self, place: u32, container: u32, generation: u16) {
        let place = &mut self.places[place as usize];
        assert_eq!(place.state, PlaceState::Free);
        *place = Place { container, generation, state: PlaceState::Filled, ..*place };
        self.filled += 1;
    }

    /// Stops reads of a place. If it was filled, it is queued for removal from the log.
    pub(crate) fn leave(&mut self, place: u32) {
        let at = &mut self.places[place as usize];
        if at.state == PlaceState::Filled {
            at.state = PlaceState::Leaving;
            self.filled -= 1;
            self.leaving.push(place);
        }
    }

    /// Returns the places that shall be taken out of the log.
    pub(crate) fn leaving(&self) -> &[u32] {
        &self.leaving
    }

    /// Frees the first `count` leaving places, which the log has forgotten, and returns each with the container that it held, in order.
    pub(crate) fn forgotten(&mut self, count: usize) -> Vec<(u32, u32)> {
        let Places { places, leaving, .. } = self;
        let freed = leaving.drain(..count).map(|number| {
            let place = &mut places[number as usize];
            place.state = PlaceState::Free;
            (number, place.container)
        });
        freed.collect()
    }

    /// Counts a read of a place that begins.
    pub(crate) fn begin_read(&mut self, place: u32) {
        self.places[place as usize].reads += 1;
    }

    /// Ends a read of a place.
    pub(crate) fn end_read(&mut self, place: u32) {
        self.places[place as usize].reads -= 1;
    }

    /// Returns the places that are filled: place, container, generation.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (u32, u32, u16)> + '_ {
        let filled = (0..).zip(&self.places).filter(|(_, place)| place.state == PlaceState::Filled);
        filled.map(|(number, place)| (number, place.container, place.generation))
    }

    /// Returns the number of places that are filled.
    pub(crate) fn filled_count(&self) -> u32 {
        self.filled
    }

    /// Returns the bytes of memory of the lists.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.places) + list_bytes(&self.leaving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_again_only_when_no_read_and_no_log_leads_to_it() {
        let mut places = Places::new(2);
        places.fill(1, 7, 3);
        assert!(places.holds(1, 7, 3) && !places.holds(1, 7, 4) && !places.holds(1, 8, 3) && !places.holds(0, 0, 0));
        places.begin_read(1);
        places.leave(1);
        places.leave(1);
        assert_eq!((places.leaving(), places.filled_count(), places.holds(1, 7, 3)), (&[1][..], 0, false));
        assert_eq!((places.forgotten(1), places.is_free(1)), (vec![(1, 7)], false));
        places.end_read(1);
        assert!(places.is_free(1) && places.is_free(0));
        places.leave(0);
        assert_eq!(places.leaving(), []);
    }
}
