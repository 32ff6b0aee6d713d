//! Figures of HIODS (master's dissertation, University of Minho, 2021): its experiments with the controller (section 5.4), its controller and ours at other
//! rates, and its tables (section 5.3).
//!
//! The experiments are a model ([`model`]) of the costs of inline, offline and the background, with the engine's pure controllers in charge. The costs are
//! those of the paper's prototype, or those of our engine on the drive model. Each phase has 64 GiB, in virtual time; the short form is the same. The tables
//! ([`tables`]) are loads through the engine itself ([`ways`]), its pass included. They are also loads through the paper's own system ([`store`]), which judges
//! the paper's numbers and statements.

pub mod claims;
mod claims_store;
mod model;
mod phases;
mod rates;
mod store;
mod tables;
mod through_engine;
mod unit;
mod ways;

use super::Entry;

/// Iterates over all figures: the tables, the experiments, ours at other rates.
pub fn figures() -> impl Iterator<Item = &'static Entry> {
    store::FIGURES.iter().chain(tables::FIGURES).chain(phases::FIGURES).chain([
        &rates::CONTROLLER,
        &unit::UNIT,
        &through_engine::ENGINE,
    ])
}

/// Note under every figure.
const NOTE: &str = "This is a model of the paper's prototype (uniform writes of highperf), with the engine's pure controllers in charge. The \
    background is the model's, not the engine's pass. Costs of a request are from the paper's tables 13 and 14, those of the background and \
    how all slows down as the index grows from its figures 9 and 10.";
