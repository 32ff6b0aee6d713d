//! Requests through their stages: submitted, joined with others, looked up, decided, carried out, made durable, answered.
//! `write.rs` and `read.rs` are the story; docs/write-path.md and docs/read-path.md tell it.

pub(crate) mod commit;
pub(crate) mod completions;
pub(crate) mod decide;
pub(crate) mod flash;
pub(crate) mod join;
pub(crate) mod no_room;
pub(crate) mod on_disk;
pub(crate) mod places;
pub(crate) mod read;
pub(crate) mod readahead;
pub(crate) mod submit;
pub(crate) mod turns;
pub(crate) mod write;
