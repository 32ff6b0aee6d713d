//! Requests through their stages: submitted, coalesced, looked up, decided, carried out, made durable, answered.
//! `write.rs` and `read.rs` are the story; docs/write-path.md and docs/read-path.md tell it.

pub(crate) mod coalesce;
pub(crate) mod commit;
pub(crate) mod completions;
pub(crate) mod decide;
pub(crate) mod enospc;
pub(crate) mod flash;
pub(crate) mod on_disk;
pub(crate) mod read;
pub(crate) mod read_location;
pub(crate) mod readahead;
pub(crate) mod submit;
pub(crate) mod time_slices;
pub(crate) mod write;
