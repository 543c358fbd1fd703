//! The scheduler of an LLM engine: KV-cache admission chunk by chunk, retraction and recovery, over
//! several cache groups that share one pool. Pure: no clock, no I/O, no thread of its own; the same
//! calls give the same plans on every machine.
//!
//! ```text
//! scheduler -> plan -> request -> cache -> {identity, config}
//! ```

#![forbid(unsafe_code)]

pub mod cache;
pub mod capacity;
pub mod check;
pub mod config;
pub mod error;
pub mod event;
mod growth;
pub mod identity;
pub mod plan;
pub mod request;
pub mod scheduler;

pub use cache::KvEvent;
pub use capacity::CapacityModel;
pub use config::{
    CacheGroupConfig, CacheGroupFamily, CacheRetention, CacheTransferPolicy, PressurePolicy, Role,
    SchedulerConfig,
};
pub use error::{Error, ErrorKind, Result};
pub use event::{Event, RequestId, TokenIds};
pub use plan::ExecutionPlan;
pub use request::Handle;
pub use scheduler::{RequestSpec, Scheduler, StorageKeys};
