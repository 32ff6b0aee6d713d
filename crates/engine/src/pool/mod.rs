//! What takes several parts of the pool at once: room for metadata, volumes, what slots hold, the
//! index on disk, growth, and who has the pool.

pub(crate) mod contents;
pub(crate) mod disk_index;
pub(crate) mod growth;
pub mod owner;
pub(crate) mod room;
pub(crate) mod standing;
pub(crate) mod volumes;
