//! The cache below admission: geometry, pool, tables, index, matching, the Host tier (`cache.md`).
//! It knows tokens only through its geometry, and no request, role or plan.

pub mod admission;
mod block;
pub mod check;
pub mod coordinator;
pub mod demand;
pub mod fetch;
pub mod geometry;
pub mod holdings;
pub mod host;
pub mod kv_events;
pub mod ledger;
pub mod matcher;
pub mod order;
pub mod persistent;
pub mod pool;
pub mod publication;
pub mod stored;
pub mod table;
pub mod tier;
pub mod transfer;
pub mod unproven;

pub use coordinator::Coordinator;
pub use demand::Demand;
pub use geometry::{BlockId, Geometry, GroupIndex};
pub use holdings::{Computed, Holdings, Progress};
pub use kv_events::KvEvent;
pub use matcher::Hit;
pub use persistent::{ChangedCell, PersistentTable};
pub use transfer::{CopyOp, OpId, StoreGuard};
pub use unproven::Basis;
