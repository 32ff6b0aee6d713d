//! Damage: blocks and pages that do not hold what they should, what is known of them, and second copies.

pub(crate) mod copies;
pub(crate) mod mend;
