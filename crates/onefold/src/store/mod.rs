//! The file or device that holds a pool: which one is meant, who may have it, what it can do, and how it grows.

pub mod backing;
pub mod copy_on_write;
pub mod file_size;
pub mod grow;
pub mod heads;
pub mod host;
pub mod identity;
pub mod owner;
pub mod place;
pub mod probe;
