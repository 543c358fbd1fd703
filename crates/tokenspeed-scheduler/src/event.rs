//! What comes in: events that an engine reports (`api.md`, "Requests and events").

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use smol_str::SmolStr;

/// The id that an event names its request by. Up to 23 bytes take no memory of their own; copies share a
/// longer one.
pub type RequestId = SmolStr;

/// Token ids of one result. Up to four take no memory of their own: as many as fit into what a `Vec` takes.
pub type TokenIds = SmallVec<[i32; 4]>;

/// One report. Ids of requests and operations that are gone are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A forward's result has landed; `tokens` is empty for an intermediate chunk.
    ExtendResult {
        /// Whose.
        request_id: RequestId,
        /// What was sampled or accepted.
        tokens: TokenIds,
        /// The drafter's candidates for the next step.
        spec_candidate_ids: TokenIds,
    },
    /// The request is done.
    Finish {
        /// Which.
        request_id: RequestId,
    },
    /// The client gave up.
    Abort {
        /// Which.
        request_id: RequestId,
    },
    /// The engine takes the request's blocks: what they should hold did not arrive.
    Retract {
        /// Which.
        request_id: RequestId,
    },
    /// The next decode admission asks for so many tokens, if that is more than it needs.
    UpdateReserveNumTokens {
        /// Which.
        request_id: RequestId,
        /// Tokens, at least 0, at most what the bound on one request leaves.
        reserve_num_tokens: i64,
    },
    /// A store has ended.
    WriteBackDone {
        /// Its number.
        op_id: u64,
    },
    /// A load has ended.
    LoadBackDone {
        /// Its number.
        op_id: u64,
        /// Whether the bytes are there.
        success: bool,
    },
    /// Prefill and decode role: the peers have found each other.
    Bootstrapped {
        /// Which.
        request_id: RequestId,
    },
    /// The transfer to or from the peer failed.
    TransferFailed {
        /// Which.
        request_id: RequestId,
    },
    /// The transfer ended.
    TransferSucceeded {
        /// Which.
        request_id: RequestId,
    },
    /// Decode role: the peer has written the prompt's blocks.
    RemotePrefillDone {
        /// Which.
        request_id: RequestId,
        /// The prompt's first sampled token.
        bootstrap_token: i32,
    },
}

impl Event {
    /// The event's name in the public surface.
    pub fn name(&self) -> &'static str {
        match self {
            Event::ExtendResult { .. } => "ExtendResult",
            Event::Finish { .. } => "Finish",
            Event::Abort { .. } => "Abort",
            Event::Retract { .. } => "Retract",
            Event::UpdateReserveNumTokens { .. } => "UpdateReserveNumTokens",
            Event::WriteBackDone { .. } => "WriteBackDoneEvent",
            Event::LoadBackDone { .. } => "LoadBackDoneEvent",
            Event::Bootstrapped { .. } => "BootstrappedEvent",
            Event::TransferFailed { .. } => "FailedEvent",
            Event::TransferSucceeded { .. } => "SucceededEvent",
            Event::RemotePrefillDone { .. } => "RemotePrefillDoneEvent",
        }
    }

    /// Whether a peer does nothing more to the request's blocks after it.
    pub fn is_peers_last_word(&self) -> bool {
        matches!(
            self,
            Event::TransferFailed { .. }
                | Event::TransferSucceeded { .. }
                | Event::RemotePrefillDone { .. }
        )
    }

    /// The request that it is about; `None` for an acknowledgement.
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Event::WriteBackDone { .. } | Event::LoadBackDone { .. } => None,
            Event::ExtendResult { request_id, .. }
            | Event::Finish { request_id }
            | Event::Abort { request_id }
            | Event::Retract { request_id }
            | Event::UpdateReserveNumTokens { request_id, .. }
            | Event::Bootstrapped { request_id }
            | Event::TransferFailed { request_id }
            | Event::TransferSucceeded { request_id }
            | Event::RemotePrefillDone { request_id, .. } => Some(request_id),
        }
    }
}
