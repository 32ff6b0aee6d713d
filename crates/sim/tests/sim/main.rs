//! The simulator's tests of a few minutes, in one program, so that it is linked once. (The allocation counts have a program of their own, and so have
//! the regressions.)

mod fuzz;
mod hostile_pools;
mod processes;
mod scale;
mod simulations;
