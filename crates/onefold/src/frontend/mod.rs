//! Frontends: each brings the requests of its clients to the engine and takes the answers back to them. One folder each.
//!
//! A frontend owns its sockets and sessions, and the requests in between. The reactor calls it in each turn and does not look inside:
//!
//! - completions of its operations on the ring go in (for NBD `accepted`, `received`, `sent`), and its clock (`begin_turn`, `expire`, `next_deadline`);
//! - it hands requests to the engine (`submit_arrived`, `advance_all`); the engine's answer to a request comes back by its token (`reply`);
//! - it is told of its share of the memory (`divide`, `set_read_buffers`), of volumes that change (`disconnect`, `let_go`), and of the end (`stop`).

pub mod nbd;
