//! Tests of the crate's guarantees, one for each, from the client's end of the wire.

mod client;
mod exports;
mod handshake;
mod hostile;
mod properties;
mod read;
mod reply;
mod transmission;
