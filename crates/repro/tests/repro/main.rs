//! Tests of traces, loads, schemes and studies, in one program, so that it is linked once.

mod icache;
mod processes;
mod samples;
mod schemes;
mod traces;
mod workload;
