//! What the benchmarks share: an engine of no cost around a scheduler, and the situations that it is
//! put in. `benches/README.md` says what each is for.

#![allow(dead_code, reason = "each benchmark uses its part")]

pub mod engine;
pub mod situations;
