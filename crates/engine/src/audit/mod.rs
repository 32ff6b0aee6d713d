//! Whole-state checks: the audit of an idle engine, and the repair of a pool that does not open.

pub(crate) mod check;
pub(crate) mod disk_index;
pub(crate) mod flaws;
mod hidden;
mod inherited;
pub(crate) mod repair;
pub(crate) mod shares;
