//! What is on disk, as pure code: how each structure is encoded, found to be whole, and decoded.
//!
//! It owns no state. What it gives for the same bytes is the same for ever: docs/disk-format.md says so, and other versions read it.
//! Everybody may use it; it uses nothing but itself and the base.

pub(crate) mod bytes;
pub(crate) mod create;
pub(crate) mod disk_index;
pub mod encode;
pub(crate) mod entry;
pub(crate) mod flash;
pub mod geometry;
pub(crate) mod layout;
pub(crate) mod record;
pub mod superblock;
pub(crate) mod volume;
