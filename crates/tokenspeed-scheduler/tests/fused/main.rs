//! What a fused scheduler owes, in small worlds: the scenarios from the field, the failures that must
//! be impossible (`liveness.md`), and the rules of `scheduler.md`, one test each.
//!
//! A world is played by an [`engine`] that holds two mirrored schedulers and a simulated [`device`],
//! so that every test asks the questions that all scenarios share; see [`engine::Engine`].

mod aborts;
mod agreement;
mod arithmetic;
mod copies;
mod device;
mod engine;
mod liveness;
mod prefix_cache;
mod pressure;
mod refusals;
mod rules_admission;
mod rules_recovery;
mod rules_retraction;
mod standstills;
mod world;
