//! What a fused scheduler owes, in small worlds: the scenarios from the field, the failures that must
//! be impossible (`liveness.md`), and the rules of `scheduler.md`, one test each.
//!
//! A world is played by an [`engine`] that holds two mirrored schedulers and a simulated [`device`],
//! so that every test asks the questions that all scenarios share; see [`engine::Engine`].
//!
//! Scenarios that are elsewhere:
//!
//! | scenario | where |
//! |---|---|
//! | 21, 29 and 30, a peer that writes, late or never | `tests/peers` |
//! | 22, a staging buffer under a delayed upload | the runtime's tests: no staging buffer is the scheduler's |
//! | 32, what a round costs | the benches: a test that measures time on a shared machine decides nothing |
//!
//! Of 20 the fence itself is the runtime's; here a simulated device shows that the scheduler marks the
//! store that needs it.

mod aborts;
mod agreement;
mod arithmetic;
mod cache_events;
mod client;
#[path = "../play/consumer.rs"]
mod consumer;
mod copies;
mod device;
mod engine;
#[path = "../common/groups.rs"]
mod groups;
mod liveness;
mod prefix_cache;
mod pressure;
mod refusals;
mod rotation;
mod rules_admission;
mod rules_recovery;
mod rules_retraction;
mod standstills;
mod summary;
mod sweep;
mod withheld;
mod world;
