//! Loads of metadata pages ahead of need, for background work: bounded, so that requests find pages free.

use super::Pool;
use super::state::LoadSnapshot;
use super::state::Phase;
use crate::api::OpenError;
use crate::format::superblock::Root;
use crate::metadata::page_cache::{PageKey, Region};
use crate::metadata::tree::{Walk, lookup};

impl Pool {
    /// Returns the number of pages that background work may load ahead of need.
    pub(crate) fn load_ahead(&self, load: &LoadSnapshot) -> usize {
        if self.is_at_full_speed(load) { 16 } else { 4 }
    }

    /// Prefetches the first of these leaves, at most `most`, where they are not in memory. The same leaf may come several times in a row.
    pub(crate) fn load_leaves_ahead(&mut self, root: Root, leaves: impl Iterator<Item = u64>, most: usize) {
        if !self.should_load_ahead(most) {
            return;
        }
        let (mut last, mut looked) = (None, 0);
        for leaf in leaves {
            if last == Some(leaf) {
                continue;
            }
            if looked == most || !self.may_load_ahead(most) {
                break;
            }
            (last, looked) = (Some(leaf), looked + 1);
            if let Walk::Missing(missing) = lookup(&mut self.metadata, Region::Metadata, root, leaf)
                && !missing.pointer.is_lost()
                && !self.metadata.has_failed(missing.key)
            {
                self.metadata.load(missing, None);
            }
        }
    }

    /// Returns true if at most half of the loads ahead are left: a check after every single load would repeat the same walks.
    pub(crate) fn should_load_ahead(&self, most: usize) -> bool {
        self.metadata.pages().background_loads() <= most / 2
    }

    /// Returns true if the page cache has space for loads that nothing waits for yet.
    pub(crate) fn may_load_ahead(&self, most: usize) -> bool {
        self.metadata.pages().available() > 2 * most + self.metadata.pages().loads_in_flight()
    }

    /// Remembers a page of a tree that could not be read or is damaged; recovery fails with it. A checkpoint that needs the page cannot end.
    pub(crate) fn page_failed(&mut self, key: PageKey, unreadable: bool) {
        if self.state.phase() == Phase::Recovering {
            let offset = self.metadata.offset(key);
            let error = if unreadable {
                OpenError::Device { offset }
            } else {
                OpenError::DamagedPage { offset, what: "a table of the pool" }
            };
            self.recovery_failed(error);
        } else {
            self.metadata.note_failed(key);
        }
    }
}
