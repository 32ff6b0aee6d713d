//! HIODS (master's dissertation, University of Minho, 2021): its experiments with the controller (section 5.4), and what its controller and
//! ours come to at other rates.
//!
//! All of it is a model ([`model`]): what inline, offline and the background cost on the paper's prototype, with the engine's pure controllers
//! in charge. The engine's own background pass has no part in it. 64 GiB a phase, in virtual time; the short form is the same.

mod model;
mod phases;
mod rates;

use super::Entry;

/// All of them, in the order of the paper; then ours.
pub const FIGURES: &[Entry] =
    &[phases::MOUNTAIN, phases::VALLEY, phases::ASCENDING, phases::DESCENDING, rates::CONTROLLER];

/// What every figure says.
const NOTE: &str = "This is a model of the paper's prototype (uniform writes of highperf), with the engine's pure controllers in charge. The \
    background is the model's, not the engine's pass. Costs of a request are from the paper's tables 13 and 14, those of the background and \
    how all slows down as the index grows from its figures 9 and 10.";
