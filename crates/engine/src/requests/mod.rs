//! Who is in flight, and how far: the table of requests.

pub(crate) mod request;
