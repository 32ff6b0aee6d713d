//! Requests in flight and their stages: the request table, the decisions on the blocks of a write, the measurements of the clients' service; and what waits
//! with them: commands, long requests, writes that the host refused, the blocks of read-ahead.

pub(crate) mod deciding;
pub(crate) mod foreground;
pub(crate) mod pending_command;
pub(crate) mod queues;
pub(crate) mod read_ahead;
pub(crate) mod refused_writes;
pub(crate) mod request;
pub(crate) mod time_slices;
