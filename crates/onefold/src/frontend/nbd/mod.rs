//! NBD clients: sockets, connections, their requests and answers, and fair turns among them.

pub mod budget;
pub mod connection;
pub mod end;
pub mod exports;
pub mod incoming;
pub mod latency;
pub mod listen;
pub mod members;
pub mod output;
pub mod request;
pub mod server;
pub mod tls;
