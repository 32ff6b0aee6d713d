//! Who is in flight, and how far: the table of requests; and what becomes of the blocks of a write.

pub(crate) mod deciding;
pub(crate) mod request;
