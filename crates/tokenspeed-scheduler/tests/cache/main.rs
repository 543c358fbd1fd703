//! The cache's rules one by one, on inputs small enough to check by hand (`cache.md`).

mod admission;
mod bench;
#[path = "../common/groups.rs"]
mod groups;
mod host;
mod identity;
mod ledger;
mod matching;
mod order;
mod publication;
