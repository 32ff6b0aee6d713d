//! Damage: blocks and pages that do not hold what they should, what is known of them, and second copies.

pub(crate) mod copies;
pub(crate) mod mend;

use alloc::collections::BTreeMap;

use crate::care::mend::{Damages, Mend};
use crate::format::entry::Slot;

/// What is known of damage.
#[derive(Default)]
pub(crate) struct Care {
    /// Blocks under repair.
    pub(crate) mends: BTreeMap<Slot, Mend>,
    pub(crate) damages: Damages,
    /// Whether there may be second copies.
    pub(crate) has_copies: bool,
}
