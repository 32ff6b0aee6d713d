//! Benchmark client `repro bench`: a load of `dedis` against a live NBD device, with real payload, in real time.
//!
//! Owns the sockets and the bytes. The requests come from `dedis::load`, so the device gets the same contents and duplicates as the same seed in virtual time.
//! Each worker is a thread with a connection of its own.
//!
//! Invariants: a block has at most one request in flight, so its content is always known. Every read of a block that was written here is compared. Nothing is
//! written unless the caller says that it may be overwritten.
//!
//! The command line is the only caller. It is a client: it works against any NBD server.

pub mod client;
pub mod command;
pub mod payload;
pub mod uri;
pub mod worker;
