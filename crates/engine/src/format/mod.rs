//! The disk format, as pure code: encoding, validation and decoding of each structure on disk.
//!
//! It owns no state. Its results for the same bytes never change: docs/reference/disk-format.md specifies them, and other versions read them. Every layer
//! may use it; it uses only itself and the base.

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
