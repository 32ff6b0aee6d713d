//! `repro bench`: a load of `dedis` against a live NBD device, with real payload, in real time.
//!
//! Owns the sockets and the bytes. What is requested comes from `dedis::load`, so the device gets the contents, and exactly the duplicates,
//! that the same seed has in virtual time. Each worker is a thread with a connection of its own.
//!
//! Invariants: a block has one request in flight at most, so what it holds is always known; every read of a block that was written here is
//! compared; nothing is written unless the caller says that it may be overwritten.
//!
//! Who calls it: the command line alone. It is a client: it works against any NBD server.

pub mod client;
pub mod command;
pub mod payload;
pub mod uri;
pub mod worker;
