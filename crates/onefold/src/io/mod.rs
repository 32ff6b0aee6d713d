//! The kernel's side: the ring, the memory that it reads and writes, digests of that memory, locks of byte ranges. The only unsafe code (and one descriptor in
//! `operators/service.rs`).

pub mod arena;
pub mod core;
pub mod digest;
pub mod discarder;
pub mod disk;
#[cfg(feature = "faults")]
pub mod faults;
pub mod heap;
pub mod input;
pub mod locks;
pub mod peer;
pub mod poll;
pub mod record;
pub mod ring;
