//! Requests in flight and their stages: the request table, the decisions on the blocks of a write, and the measurements of the clients' service.

pub(crate) mod deciding;
pub(crate) mod foreground;
pub(crate) mod pending_command;
pub(crate) mod read_ahead;
pub(crate) mod refused_writes;
pub(crate) mod request;
pub(crate) mod time_slices;
