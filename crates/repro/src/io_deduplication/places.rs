//! Map of addresses to contents, as known from the reads and writes that passed through the layer. Its tables bound its size.

use std::collections::BTreeSet;

use crate::replay::lru::{Lru, Numbers};
use crate::traces::ContentId;

/// Addresses and contents, known in both directions. The address that was not used for longest is forgotten first.
#[derive(Clone, Debug)]
pub struct Places {
    contents: Lru,
    by_content: Numbers<BTreeSet<u64>>,
}

impl Places {
    /// Creates an empty table for at most `most` addresses.
    pub fn new(most: usize) -> Places {
        Places { contents: Lru::new(most), by_content: Numbers::default() }
    }

    /// Learns the content that a block has from here on, or was found to have.
    pub fn learn(&mut self, block: u64, content: ContentId) {
        if self.contents.get(block) == Some(content) {
            return;
        }
        self.forget(block);
        if let Some((gone, held)) = self.contents.put(block, content) {
            self.detach(gone, held);
        }
        if self.contents.peek(block).is_some() {
            self.by_content.entry(content).or_default().insert(block);
        }
    }

    fn forget(&mut self, block: u64) {
        if let Some(held) = self.contents.remove(block) {
            self.detach(block, held);
        }
    }

    fn detach(&mut self, block: u64, content: ContentId) {
        if let Some(places) = self.by_content.get_mut(&content) {
            places.remove(&block);
            if places.is_empty() {
                self.by_content.remove(&content);
            }
        }
    }

    /// Returns the content of a block, if it is known.
    pub fn content(&self, block: u64) -> Option<ContentId> {
        self.contents.peek(block)
    }

    /// Returns at most `most` places where these contents are known to lie in order.
    pub fn all(&self, contents: &[ContentId], most: usize) -> Vec<u64> {
        let places = contents.first().and_then(|first| self.by_content.get(first));
        let matching = |place: &u64| {
            contents.iter().enumerate().all(|(at, &content)| self.contents.peek(place + at as u64) == Some(content))
        };
        places.into_iter().flatten().copied().filter(matching).take(most).collect()
    }

    /// Returns the places nearest to `head`, downwards and upwards, where these contents are known to lie in order.
    pub fn nearest(&self, contents: &[ContentId], head: u64) -> impl Iterator<Item = u64> + use<'_> {
        let places = contents.first().and_then(|first| self.by_content.get(first));
        let contents = contents.to_vec();
        let matching = move |place: &u64| {
            contents.iter().enumerate().all(|(at, &content)| self.contents.peek(place + at as u64) == Some(content))
        };
        let below = places.and_then(|places| places.range(..head).copied().rfind(&matching));
        let above = places.and_then(|places| places.range(head..).copied().find(&matching));
        below.into_iter().chain(above)
    }
}
