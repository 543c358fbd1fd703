//! A scheduler's calls in a file that its user can send, and the same calls again from it
//! (`liveness.md` 5: the same calls make the same plans).
//!
//! The file is text, JSON lines, gzip if its name ends in `.gz`. The first line is the
//! [`Header`]. Every call that may change a plan follows with two lines: the [`Call`] is written before
//! it is carried out, its [`Answer`] after.
//!
//! ```text
//! {"tokenspeed_recording":1,"version":"0.2.0","config":{"prefix_granularity":4,"num_device_pages":17,...}}
//! {"submit_requests":[{"request_id":"a","tokens":[5,6,7],"max_new_tokens":2}]}
//! "done"
//! "next_execution_plan"
//! {"plan":"8f1c0e7b3a5d2946"}
//! {"advance":[{"extend_result":{"request_id":"a","tokens":[7],"spec_candidate_ids":[]}},{"finish":{"request_id":"b"}}]}
//! {"refused":"unexpected_event"}
//! ```
//!
//! What is written has reached the operating system before each plan is made, so that a process
//! that dies loses the calls since then at most, and none where a call hangs or panics while it plans.
//!
//! A recording holds every token id of every prompt and output.

#![forbid(unsafe_code)]

mod call;
mod reader;
mod recorded;
mod recorder;

pub use call::{Answer, Answered, Call};
pub use reader::{Entry, Header, Recording};
pub use recorded::Recorded;
pub use recorder::Recorder;

/// The format that this crate writes, and the only one that it reads.
pub const FORMAT: u32 = 1;
