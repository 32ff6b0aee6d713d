//! A look at the whole state: the audit of an engine at rest, and the repair of a pool that does not open.

pub(crate) mod check;
pub(crate) mod disk_index;
pub(crate) mod repair;
pub(crate) mod shares;
