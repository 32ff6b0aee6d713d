//! Block map of the papers' layout. Each block is in place, at its own address (its home), unless it shares another block's place.
//!
//! Invariants (REFERENCE 1.1): a block resolves to a place that holds its last written content (I1). A place that another block refers to is never overwritten
//! (I2). Tests check both against a naive model.

use super::super::lru::Numbers;
use super::super::sparse::Sparse;
use crate::traces::ContentId;

/// Number of referrers that a relocation tries as a free home.
const HEIRS: usize = 16;

const NONE: u64 = u64::MAX;

/// Redirect of a block away from its home.
#[derive(Clone, Copy, Debug)]
struct Redirect {
    group: u32,
    before: u64,
    after: u64,
}

/// Blocks that refer to one place, which is the home of none of them.
#[derive(Clone, Copy, Debug)]
struct Group {
    place: u64,
    first: u64,
    count: u64,
}

/// A copy of a block to another place, before its own place is overwritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relocation {
    /// Place before the relocation.
    pub from: u64,
    /// Place after it.
    pub to: u64,
}

/// Map from blocks to places, and from places to contents.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Addresses. The places behind them are taken by relocations that find no free home.
    size: u64,
    /// Content of each place, plus one: 0 is nothing.
    contents: Sparse,
    redirects: Numbers<Redirect>,
    groups: Vec<Group>,
    unused_groups: Vec<u32>,
    by_place: Numbers<u32>,
    spare: u64,
    unused_spare: Vec<u64>,
    /// Maximum number of redirects at any time.
    pub most_redirects: u64,
    /// Relocations.
    pub relocations: u64,
}

impl Mapping {
    /// Creates a mapping of N addresses with nothing written.
    pub fn new(size: u64) -> Mapping {
        Mapping {
            size,
            contents: Sparse::default(),
            redirects: Numbers::default(),
            groups: Vec::new(),
            unused_groups: Vec::new(),
            by_place: Numbers::default(),
            spare: 0,
            unused_spare: Vec::new(),
            most_redirects: 0,
            relocations: 0,
        }
    }

    /// Returns the place of a block: its home unless it is redirected.
    pub fn resolve(&self, block: u64) -> u64 {
        self.redirects.get(&block).map_or(block, |redirect| self.groups[redirect.group as usize].place)
    }

    /// Returns the content of a place, or nothing if it is unused.
    pub fn content(&self, place: u64) -> Option<ContentId> {
        self.contents.get(place).checked_sub(1)
    }

    /// Returns true if a block is at another place than its home.
    pub fn is_redirected(&self, block: u64) -> bool {
        self.redirects.contains_key(&block)
    }

    /// Returns true if other blocks refer to a place.
    pub fn is_shared(&self, place: u64) -> bool {
        self.by_place.contains_key(&place)
    }

    /// Returns the number of blocks of the device in use.
    pub fn used(&self) -> u64 {
        self.contents.used()
    }

    /// Returns the number of entries in the table of redirects.
    pub fn redirects(&self) -> u64 {
        self.redirects.len() as u64
    }

    /// Redirects a block to `place`, which has the same content. Returns the place that this frees, with its old content.
    pub fn share(&mut self, block: u64, place: u64) -> Option<(u64, ContentId)> {
        let before = self.resolve(block);
        if before == place {
            return None;
        }
        self.unlink(block);
        if place != block {
            self.link(block, place);
        }
        self.release(before)
    }

    /// Writes a block to its home. A content there that other blocks refer to is relocated first.
    pub fn write(&mut self, block: u64, content: ContentId) -> Written {
        let relocation = self.relocate(block);
        let before = self.resolve(block);
        self.unlink(block);
        let overwritten = self.contents.set(block, content + 1).checked_sub(1);
        let freed = if before == block { None } else { self.release(before) };
        Written { relocation, overwritten: overwritten.filter(|_| relocation.is_none()), freed }
    }

    /// Moves a redirected block back home with its content, if nothing refers to its home. Returns the place that this frees, with its
    /// content.
    pub fn return_home(&mut self, block: u64) -> Option<(u64, ContentId)> {
        let place = self.resolve(block);
        let content = self.content(place)?;
        self.unlink(block);
        self.contents.set(block, content + 1);
        self.release(place)
    }

    fn link(&mut self, block: u64, place: u64) {
        let group = match self.by_place.get(&place) {
            Some(&group) => group,
            None => {
                let group = Group { place, first: NONE, count: 0 };
                let at = self.unused_groups.pop().unwrap_or(self.groups.len() as u32);
                if at as usize == self.groups.len() {
                    self.groups.push(group);
                } else {
                    self.groups[at as usize] = group;
                }
                self.by_place.insert(place, at);
                at
            }
        };
        let entry = &mut self.groups[group as usize];
        let after = std::mem::replace(&mut entry.first, block);
        entry.count += 1;
        if let Some(after) = self.redirects.get_mut(&after) {
            after.before = block;
        }
        self.redirects.insert(block, Redirect { group, before: NONE, after });
        self.most_redirects = self.most_redirects.max(self.redirects.len() as u64);
    }

    fn unlink(&mut self, block: u64) {
        let Some(Redirect { group, before, after }) = self.redirects.remove(&block) else { return };
        if let Some(before) = self.redirects.get_mut(&before) {
            before.after = after;
        } else {
            self.groups[group as usize].first = after;
        }
        if let Some(after) = self.redirects.get_mut(&after) {
            after.before = before;
        }
        let entry = &mut self.groups[group as usize];
        entry.count -= 1;
        if entry.count == 0 {
            self.by_place.remove(&entry.place);
            self.unused_groups.push(group);
        }
    }

    /// Frees a place without an owner and referrers. Returns it with its old content.
    fn release(&mut self, place: u64) -> Option<(u64, ContentId)> {
        let is_owned = place < self.size && !self.is_redirected(place);
        if is_owned || self.is_shared(place) {
            return None;
        }
        if place >= self.size {
            self.unused_spare.push(place);
        }
        self.contents.set(place, 0).checked_sub(1).map(|content| (place, content))
    }

    /// Moves the content that others refer to at `place` to the home of one of them, or to a spare place (POD, Fig. 10).
    fn relocate(&mut self, place: u64) -> Option<Relocation> {
        let group = *self.by_place.get(&place)?;
        let mut heir = self.groups[group as usize].first;
        for _ in 0..HEIRS {
            let Some(redirect) = self.redirects.get(&heir) else { break };
            if !self.is_shared(heir) {
                break;
            }
            heir = redirect.after;
        }
        let has_home = heir != NONE && self.redirects.contains_key(&heir) && !self.is_shared(heir);
        let to = if has_home {
            heir
        } else {
            self.unused_spare.pop().unwrap_or_else(|| {
                self.spare += 1;
                self.size + self.spare - 1
            })
        };
        let content = self.contents.get(place);
        self.by_place.remove(&place);
        self.by_place.insert(to, group);
        self.groups[group as usize].place = to;
        self.contents.set(to, content);
        if has_home {
            self.unlink(heir);
        }
        self.relocations += 1;
        Some(Relocation { from: place, to })
    }
}

/// Result of a write to a block's home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Move of the content that others referred to there, if any.
    pub relocation: Option<Relocation>,
    /// Content that was there, if it is gone now.
    pub overwritten: Option<ContentId>,
    /// Freed place, with its old content.
    pub freed: Option<(u64, ContentId)>,
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_block_resolves_to_what_was_written_last(
            steps in prop::collection::vec((0u64..12, 0u64..6, 0u8..4), 0..120)
        ) {
            let mut mapping = Mapping::new(12);
            let mut model: HashMap<u64, ContentId> = HashMap::new();
            for (block, content, step) in steps {
                // Somewhere where the content is, if it is anywhere.
                let places = 0..24;
                let known = places.into_iter().find(|&place| mapping.content(place) == Some(content));
                match (step, known) {
                    (0 | 1, Some(place)) => {
                        mapping.share(block, place);
                        model.insert(block, content);
                    }
                    (2, _) if mapping.is_redirected(block) && !mapping.is_shared(block) => {
                        mapping.return_home(block);
                    }
                    _ => {
                        let relocation = mapping.write(block, content).relocation;
                        prop_assert!(relocation.is_none_or(|relocation| relocation.to != block));
                        model.insert(block, content);
                    }
                }
                for (&block, &content) in &model {
                    prop_assert_eq!(mapping.content(mapping.resolve(block)), Some(content), "block {}", block);
                }
                // Every used place has a block.
                let mut places: Vec<u64> = model.keys().map(|&block| mapping.resolve(block)).collect();
                places.sort_unstable();
                places.dedup();
                prop_assert_eq!(mapping.used(), places.len() as u64);
            }
        }
    }
}
