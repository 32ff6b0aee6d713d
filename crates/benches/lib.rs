//! Nothing: what there is, is in `benches/`.
