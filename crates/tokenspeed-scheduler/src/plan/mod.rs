//! The round: shared phases, and one grammar a role over them (`scheduler.md` §3). Tokens and groups
//! are known here, parents and packing are not.

pub mod admit;
pub mod batch;
pub mod chunk;
pub mod decode;
pub mod decode_worker;
pub mod demand;
pub mod digest;
pub mod end;
pub mod fused;
pub mod names;
pub mod newcomers;
pub mod output;
pub mod prefill;
pub mod prefill_worker;
pub mod pressure;
pub mod refusal;
pub mod remote;
pub mod retraction;
pub mod rotation;
pub mod round;
pub mod rules;
pub mod tables;

pub use output::{AbortNotice, AbortReason, Batch, BlockTable, ChangedCell, CopyOp, ExecutionPlan};
pub use round::Round;
pub use rules::Rules;
