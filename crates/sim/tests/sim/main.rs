//! What the simulator shows in a few minutes, in one program: it is linked once. (What counts allocations has one of its own, and so have the
//! regressions.)

mod fuzz;
mod hostile_pools;
mod processes;
mod scale;
mod simulations;
