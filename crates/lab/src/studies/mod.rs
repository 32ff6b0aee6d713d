//! What was measured with the lab, a subject each.

pub mod aged;
pub mod cost;
pub mod icache;
pub mod scale;
pub mod window;
