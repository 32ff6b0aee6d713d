//! The file or device that holds a pool: which one is meant, who may have it, what it can do, and how it grows; and whether a file or device may be
//! written over.

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
