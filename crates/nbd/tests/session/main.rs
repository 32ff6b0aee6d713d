//! The claims that the crate makes, one test each, seen from the client's end of the wire.

mod client;
mod handshake;
mod hostile;
mod properties;
mod read;
mod reply;
mod transmission;
