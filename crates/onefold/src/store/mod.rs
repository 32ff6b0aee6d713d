//! The store of a pool, a file or device: its identity, owner, abilities and growth; and the overwrite guard of files and devices.

pub mod backing;
pub mod copy_on_write;
pub mod file_size;
pub mod grow;
pub mod guard;
pub mod heads;
pub mod host;
pub mod identity;
pub mod layers;
pub mod owner;
pub mod place;
pub mod probe;
pub mod replace;
