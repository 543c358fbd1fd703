//! Events, as an engine writes them down.

use pyo3::prelude::*;
use tokenspeed_scheduler::Event;

use crate::field::{Field, setters};
use crate::integers::Tokens;
use crate::repr::Repr;
use crate::request_id::RequestId;

/// A forward's result has landed.
///
/// Raises EventError when fed for a request that is owed none, or with a number of tokens that the
/// forward cannot have sampled; ignored for a request that is gone.
// A few are kept for the next: an engine makes one a request a round, and lets it go.
#[pyclass(module = "tokenspeed.scheduler.ForwardEvent", frozen, get_all, freelist = 8)]
pub struct ExtendResult {
    /// Whose.
    request_id: Field<RequestId>,
    /// Token ids that were sampled or accepted; empty for an intermediate chunk. Takes a list or any
    /// int32 buffer; gives a list.
    tokens: Field<Tokens>,
    /// The drafter's candidates for the next step, token ids.
    spec_candidate_ids: Field<Tokens>,
}

setters!(
    ExtendResult:
    set_request_id(request_id: RequestId),
    set_tokens(tokens: Tokens),
    set_spec_candidate_ids(spec_candidate_ids: Tokens),
);

#[pymethods]
impl ExtendResult {
    #[new]
    #[pyo3(
        signature = (
            request_id = RequestId::default(),
            tokens = Tokens::default(),
            spec_candidate_ids = Tokens::default(),
        ),
        text_signature = "(request_id='', tokens=[], spec_candidate_ids=[])",
    )]
    fn new(request_id: RequestId, tokens: Tokens, spec_candidate_ids: Tokens) -> Self {
        ExtendResult {
            request_id: request_id.into(),
            tokens: tokens.into(),
            spec_candidate_ids: spec_candidate_ids.into(),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let mut repr = Repr::of("ForwardEvent.ExtendResult")
            .text("request_id", &self.request_id.get(py).0)
            .list("tokens", &self.tokens.get(py).0);
        let candidates = self.spec_candidate_ids.get(py).0;
        if !candidates.is_empty() {
            repr = repr.list("spec_candidate_ids", &candidates);
        }
        repr.finish()
    }
}

impl ExtendResult {
    /// What the core reads.
    pub fn to_core(&self, py: Python<'_>) -> Event {
        Event::ExtendResult {
            request_id: self.request_id.get(py).0,
            tokens: self.tokens.get(py).0,
            spec_candidate_ids: self.spec_candidate_ids.get(py).0,
        }
    }
}

/// An event that says nothing but which request it is about.
macro_rules! request_event {
    ($name:ident, $event:ident, $module:literal, $repr:literal, $signature:tt, $text:literal, $doc:literal) => {
        #[doc = $doc]
        #[pyclass(module = $module, frozen, get_all)]
        pub struct $name {
            /// Which.
            request_id: Field<RequestId>,
        }

        setters!($name: set_request_id(request_id: RequestId));

        #[pymethods]
        impl $name {
            #[new]
            #[pyo3(signature = $signature, text_signature = $text)]
            fn new(request_id: RequestId) -> Self {
                $name { request_id: request_id.into() }
            }

            fn __repr__(&self, py: Python<'_>) -> String {
                Repr::of($repr).text("request_id", &self.request_id.get(py).0).finish()
            }
        }

        impl $name {
            /// What the core reads.
            pub fn to_core(&self, py: Python<'_>) -> Event {
                Event::$event { request_id: self.request_id.get(py).0 }
            }
        }
    };
}

request_event!(
    Finish,
    Finish,
    "tokenspeed.scheduler.ForwardEvent",
    "ForwardEvent.Finish",
    (request_id = RequestId::default()),
    "(request_id='')",
    "The request is done: what it computed stays cached, and its row and blocks are free.\n\n\
     Raises EventError for a request whose prompt is not complete."
);
request_event!(
    Abort,
    Abort,
    "tokenspeed.scheduler.ForwardEvent",
    "ForwardEvent.Abort",
    (request_id = RequestId::default()),
    "(request_id='')",
    "The client gave up; possible in any state."
);
request_event!(
    Retract,
    Retract,
    "tokenspeed.scheduler.ForwardEvent",
    "ForwardEvent.Retract",
    (request_id = RequestId::default()),
    "(request_id='')",
    "What the request's blocks should hold did not arrive: it starts over as a new prompt.\n\n\
     Raises EventError for a request that was never admitted."
);
request_event!(
    BootstrappedEvent,
    Bootstrapped,
    "tokenspeed.scheduler.PD",
    "PD.BootstrappedEvent",
    (request_id),
    "(request_id)",
    "Roles P and D: the peers have found each other; the request may be admitted."
);
request_event!(
    FailedEvent,
    TransferFailed,
    "tokenspeed.scheduler.PD",
    "PD.FailedEvent",
    (request_id),
    "(request_id)",
    "Roles P and D: the transfer to or from the peer failed."
);
request_event!(
    SucceededEvent,
    TransferSucceeded,
    "tokenspeed.scheduler.PD",
    "PD.SucceededEvent",
    (request_id),
    "(request_id)",
    "Roles P and D: the transfer to or from the peer ended."
);

/// The next decode step asks for so many tokens of room, if that is more than it needs.
///
/// Raises EventError unless the request decodes, or for a number below zero.
#[pyclass(module = "tokenspeed.scheduler.ForwardEvent", frozen, get_all)]
pub struct UpdateReserveNumTokens {
    /// Which.
    request_id: Field<RequestId>,
    /// Tokens, at least 0; holds for one admission.
    reserve_num_tokens_in_next_schedule_event: Field<i64>,
}

setters!(
    UpdateReserveNumTokens:
    set_request_id(request_id: RequestId),
    set_reserve_num_tokens_in_next_schedule_event(reserve_num_tokens_in_next_schedule_event: i64),
);

#[pymethods]
impl UpdateReserveNumTokens {
    #[new]
    #[pyo3(
        signature = (request_id = RequestId::default(), reserve_num_tokens_in_next_schedule_event = 0),
        text_signature = "(request_id='', reserve_num_tokens_in_next_schedule_event=0)",
    )]
    fn new(request_id: RequestId, reserve_num_tokens_in_next_schedule_event: i64) -> Self {
        UpdateReserveNumTokens {
            request_id: request_id.into(),
            reserve_num_tokens_in_next_schedule_event: reserve_num_tokens_in_next_schedule_event
                .into(),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let reserve = self.reserve_num_tokens_in_next_schedule_event.get(py);
        Repr::of("ForwardEvent.UpdateReserveNumTokens")
            .text("request_id", &self.request_id.get(py).0)
            .field("reserve_num_tokens_in_next_schedule_event", reserve)
            .finish()
    }
}

impl UpdateReserveNumTokens {
    /// What the core reads.
    pub fn to_core(&self, py: Python<'_>) -> Event {
        Event::UpdateReserveNumTokens {
            request_id: self.request_id.get(py).0,
            reserve_num_tokens: self.reserve_num_tokens_in_next_schedule_event.get(py),
        }
    }
}

/// A store to the Host tier has ended.
///
/// Ignored for an operation that is gone; raises EventError if `op_id` is a load.
#[pyclass(module = "tokenspeed.scheduler.Cache", frozen, get_all)]
pub struct WriteBackDoneEvent {
    /// The operation's number in the plan's `WriteBackOp`.
    op_id: Field<u64>,
}

setters!(WriteBackDoneEvent: set_op_id(op_id: u64));

#[pymethods]
impl WriteBackDoneEvent {
    #[new]
    #[pyo3(signature = (op_id = 0))]
    fn new(op_id: u64) -> Self {
        WriteBackDoneEvent { op_id: op_id.into() }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        Repr::of("Cache.WriteBackDoneEvent").field("op_id", self.op_id.get(py)).finish()
    }
}

impl WriteBackDoneEvent {
    /// What the core reads.
    pub fn to_core(&self, py: Python<'_>) -> Event {
        Event::WriteBackDone { op_id: self.op_id.get(py) }
    }
}

/// A load from the Host tier has ended.
///
/// Ignored for an operation that is gone; raises EventError if `op_id` is a store.
#[pyclass(module = "tokenspeed.scheduler.Cache", frozen, get_all)]
pub struct LoadBackDoneEvent {
    /// The operation's number in the plan's `LoadBackOp`.
    op_id: Field<u64>,
    /// Whether the bytes are there. If not, whoever rests on them is retracted without its forwards: an
    /// engine that ran one all the same must not tell its result by id.
    success: Field<bool>,
}

setters!(LoadBackDoneEvent: set_op_id(op_id: u64), set_success(success: bool));

#[pymethods]
impl LoadBackDoneEvent {
    #[new]
    fn new(op_id: u64, success: bool) -> Self {
        LoadBackDoneEvent { op_id: op_id.into(), success: success.into() }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        Repr::of("Cache.LoadBackDoneEvent")
            .field("op_id", self.op_id.get(py))
            .truth("success", self.success.get(py))
            .finish()
    }
}

impl LoadBackDoneEvent {
    /// What the core reads.
    pub fn to_core(&self, py: Python<'_>) -> Event {
        Event::LoadBackDone { op_id: self.op_id.get(py), success: self.success.get(py) }
    }
}

/// Role D: the peer has written the prompt's blocks.
#[pyclass(module = "tokenspeed.scheduler.PD", frozen, get_all)]
pub struct RemotePrefillDoneEvent {
    /// Which.
    request_id: Field<RequestId>,
    /// The prompt's first sampled token.
    bootstrap_token: Field<i32>,
}

setters!(
    RemotePrefillDoneEvent:
    set_request_id(request_id: RequestId),
    set_bootstrap_token(bootstrap_token: i32),
);

#[pymethods]
impl RemotePrefillDoneEvent {
    #[new]
    fn new(request_id: RequestId, bootstrap_token: i32) -> Self {
        RemotePrefillDoneEvent {
            request_id: request_id.into(),
            bootstrap_token: bootstrap_token.into(),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        Repr::of("PD.RemotePrefillDoneEvent")
            .text("request_id", &self.request_id.get(py).0)
            .field("bootstrap_token", self.bootstrap_token.get(py))
            .finish()
    }
}

impl RemotePrefillDoneEvent {
    /// What the core reads.
    pub fn to_core(&self, py: Python<'_>) -> Event {
        Event::RemotePrefillDone {
            request_id: self.request_id.get(py).0,
            bootstrap_token: self.bootstrap_token.get(py),
        }
    }
}
