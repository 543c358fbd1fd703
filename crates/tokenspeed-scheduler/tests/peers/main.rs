//! What a prefill and a decode worker owe their peers and their clients, in small worlds: the scenarios
//! from the field that concern them, and the failures of `liveness.md`, each with its smallest input.

mod aborts;
mod engine;
mod failed_loads;
mod fetches;
#[path = "../common/groups.rs"]
mod groups;
mod liveness;
mod transfers;
