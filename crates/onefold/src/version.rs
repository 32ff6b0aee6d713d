//! The version of this build, which says so if it is one for tests.

/// Version of the package, with the test features of this build. One is an engine that can be broken (it was built together with the simulator), the other
/// faults of the store (the feature `faults`).
pub const VERSION: &str = match (engine::CAN_BE_BROKEN, cfg!(feature = "faults")) {
    (false, false) => env!("CARGO_PKG_VERSION"),
    (true, false) => concat!(env!("CARGO_PKG_VERSION"), " (for tests: built with mutants)"),
    (false, true) => concat!(env!("CARGO_PKG_VERSION"), " (for tests: built with faults)"),
    (true, true) => concat!(env!("CARGO_PKG_VERSION"), " (for tests: built with mutants and faults)"),
};
