//! What the lab shows in a few minutes, in one program: it is linked once. (What counts allocations has one of its own, and so have the
//! regressions.)

mod fuzz;
mod hostile_pools;
mod icache;
mod processes;
mod samples;
mod scale;
mod schemes;
mod simulations;
mod traces;
mod workload;
