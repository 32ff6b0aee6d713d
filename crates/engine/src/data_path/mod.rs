//! Requests through their stages: submitted, coalesced, looked up, decided, carried out, answered. Flushes and FUA writes are answered when their record is
//! durable (`commit.rs`).
//! `write.rs` and `read.rs` are the story; docs/internals/write-path.md and docs/internals/read-path.md tell it.
//!
//! ```text
//! completions                    completions of I/O: each ends a wait
//! dispatch                       submission; runs a request from its first stage
//! write, decide, on_disk         stages of writes and clears
//! read, read_location, readahead, flash   stages of reads, and all device reads of blocks
//! admission, commit, enospc      waits for space, for a durable record, for space on the host
//! replies, coalesce, time_slices ends of requests and of their waits
//! ```
//!
//! Each row calls itself and those below, never one above: a request whose wait has ended is queued (`replies.rs`), and `dispatch.rs` runs it.

pub(crate) mod admission;
pub(crate) mod coalesce;
pub(crate) mod commit;
pub(crate) mod completions;
pub(crate) mod decide;
pub(crate) mod dispatch;
pub(crate) mod enospc;
pub(crate) mod flash;
pub(crate) mod on_disk;
pub(crate) mod read;
pub(crate) mod read_location;
pub(crate) mod readahead;
pub(crate) mod replies;
pub(crate) mod time_slices;
pub(crate) mod write;
