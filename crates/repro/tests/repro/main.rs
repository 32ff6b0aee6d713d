//! What traces, loads, schemes and studies hold, in one program: it is linked once.

mod icache;
mod processes;
mod samples;
mod schemes;
mod traces;
mod workload;
