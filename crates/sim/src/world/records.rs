//! Records of the journal as they were written, for the oracle.

use crate::content::Content;
use crate::world::{RecordNote, World};

/// First four bytes of a record, as a number (docs/reference/disk-format.md).
const RECORD_MAGIC: u32 = 0x314a_464f;

impl World {
    /// Notes a write that begins, if it is of a journal record.
    pub(super) fn note_record(&mut self, first: u64, contents: &[Content]) {
        let geometry = self.parameters.geometry;
        if !(geometry.journal_start()..geometry.meta_map_start()).contains(&first) {
            return;
        }
        let blocks = (first..).zip(contents.iter().cloned());
        if let Some(last) = self.records.last_mut().filter(|last| last.pages.len() < last.page_count) {
            let missing = last.page_count - last.pages.len();
            last.pages.extend(blocks.take(missing));
            return;
        }
        let Content::Metadata(bytes) = &contents[0] else { return };
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if word(0) as u32 != RECORD_MAGIC {
            return;
        }
        let page_count = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
        let (sequence, watermark) = (word(8), word(32));
        let pages = blocks.take(page_count).collect();
        self.records.push(RecordNote { sequence, watermark, promise: self.promise, pages, page_count });
    }
}
