//! Who is in flight, and how far: the table of requests; what becomes of the blocks of a write; and what clients get.

pub(crate) mod deciding;
pub(crate) mod foreground;
pub(crate) mod request;
