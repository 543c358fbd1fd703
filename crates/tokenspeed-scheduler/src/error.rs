//! Everything that can go wrong, as one listed enum with stable names (`liveness.md` 4).
//!
//! A text names the field, the value, the rule that it breaks and what to do about it. Callers match
//! on [`Error::code`], never on the text. An error of any kind leaves what it came from as it was.

use thiserror::Error as ThisError;

/// The result of everything in this crate that can be refused.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who has to act on an [`Error`]; the bindings map each kind to one exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration, or an argument that sizes a pool: whoever builds the scheduler.
    Config,
    /// A submitted request: the client that sent it.
    Request,
    /// An event or a result: the engine that reports it.
    Event,
    /// Something this scheduler does not offer.
    Unsupported,
    /// A recording of a scheduler's calls, or the file that should hold one.
    Recording,
    /// A broken invariant: a bug in this crate.
    Internal,
}

/// One refusal, or one bug. Counts are in tokens unless a field says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// A field of the configuration breaks a rule.
    ///
    /// ``invalid configuration: `max_scheduled_tokens` is 0; it must be positive (the token budget
    /// of a round)``
    #[error("invalid configuration: `{field}` is {value}; it must {rule}")]
    InvalidConfig {
        /// The field, as `name` or `cache_groups['id'].name`.
        field: String,
        /// Its value, as it would be written.
        value: String,
        /// What it must do instead: reads on from "it must".
        rule: String,
    },

    /// An argument of a query is out of its range.
    ///
    /// ``invalid argument: `token_limit` is -1; it must be at least 0``
    #[error("invalid argument: `{name}` is {value}; it must {rule}")]
    InvalidArgument {
        /// The parameter.
        name: String,
        /// What was passed.
        value: String,
        /// What it must be instead: reads on from "it must".
        rule: String,
    },

    /// A prompt without tokens.
    ///
    /// ``request 'a': the prompt is empty; submit at least one token``
    #[error("request '{request_id}': the prompt is empty; submit at least one token")]
    EmptyPrompt {
        /// The request.
        request_id: String,
    },

    /// An id that a live request, or another one of the same batch, already has.
    ///
    /// ``request 'a': the id is taken by a live request or by another one of this batch; submit it
    /// under an id of its own, or after that one has ended``
    #[error(
        "request '{request_id}': the id is taken by a live request or by another one of this batch; \
         submit it under an id of its own, or after that one has ended"
    )]
    DuplicateRequestId {
        /// The request.
        request_id: String,
    },

    /// A token budget below zero.
    ///
    /// ``request 'a': `max_new_tokens` is -3; it must be at least 0 (0 leaves the budget undeclared)``
    #[error(
        "request '{request_id}': `max_new_tokens` is {max_new_tokens}; it must be at least 0 \
         (0 leaves the budget undeclared)"
    )]
    NegativeBudget {
        /// The request.
        request_id: String,
        /// Its `max_new_tokens`.
        max_new_tokens: i64,
    },

    /// A request that this pool could not run even if it were empty (`scheduler.md` §1.4).
    ///
    /// ``request 'a': 29 prompt tokens and 4 behind them need room for 33 tokens, but the pool bounds
    /// one request at 32 (`max_single_request_tokens`); shorten the prompt, lower `max_new_tokens`
    /// or enlarge the pool``
    #[error(
        "request '{request_id}': {prompt_tokens} prompt tokens and {reserved_tokens} behind them need \
         room for {} tokens, but the pool bounds one request at {limit_tokens} \
         (`max_single_request_tokens`); shorten the prompt, lower `max_new_tokens` or enlarge the pool",
        .prompt_tokens + .reserved_tokens
    )]
    RequestTooLarge {
        /// The request.
        request_id: String,
        /// Tokens of its prompt.
        prompt_tokens: i64,
        /// Tokens it needs behind the prompt: its output, or at least a decode step.
        reserved_tokens: i64,
        /// The most that prompt and reserve may add up to.
        limit_tokens: i64,
    },

    /// An event that cannot happen in the request's state.
    ///
    /// ``request 'a': event `UpdateReserveNumTokens` cannot happen while it is `Prefilling`; report
    /// events in the order in which the plans caused them``
    #[error(
        "request '{request_id}': event `{event}` cannot happen while it is `{state}`; report events \
         in the order in which the plans caused them"
    )]
    UnexpectedEvent {
        /// The request.
        request_id: String,
        /// The event's name in the public surface.
        event: String,
        /// The request's state.
        state: String,
    },

    /// A result for a forward that no plan has issued, or one too many.
    ///
    /// ``request 'a': no result is owed; report one `ExtendResult` for each forward that a plan has
    /// scheduled``
    #[error(
        "request '{request_id}': no result is owed; report one `ExtendResult` for each forward that \
         a plan has scheduled"
    )]
    ResultNotOwed {
        /// The request.
        request_id: String,
    },

    /// A result whose tokens do not fit the forward that it reports.
    ///
    /// ``request 'a': the result has 5 tokens; it must have 1 to 4 (those that the decode step
    /// accepted)``
    #[error("request '{request_id}': the result has {tokens} tokens; it must {rule}")]
    BadResult {
        /// The request.
        request_id: String,
        /// How many tokens the result brought.
        tokens: usize,
        /// What it must have instead: reads on from "it must".
        rule: String,
    },

    /// A reserve that no pool could hold beside the request's tokens.
    ///
    /// ``request 'a': a reserve of -1 tokens; it must be 0 to 24 (what the bound on one request leaves)``
    #[error(
        "request '{request_id}': a reserve of {reserve_num_tokens} tokens; it must be 0 to \
         {limit_tokens} (what the bound on one request leaves)"
    )]
    BadReserve {
        /// The request.
        request_id: String,
        /// Tokens asked for.
        reserve_num_tokens: i64,
        /// The most that may be asked for.
        limit_tokens: i64,
    },

    /// Arrays (results of a round, storage keys) that do not describe one list of entries.
    ///
    /// ``array `offsets` has 3 entries; it must have one more than `handles` (4)``
    #[error("array `{array}` has {value}; it must {rule}")]
    BadArrays {
        /// The array at fault.
        array: String,
        /// What is wrong with it: reads on from "has".
        value: String,
        /// What it must be instead: reads on from "it must".
        rule: String,
    },

    /// An acknowledgement of the wrong kind: of a store for a load, or the reverse. One for a copy that
    /// is not in flight is ignored.
    ///
    /// ``operation 17: no `WriteBackDoneEvent` is owed for it; acknowledge each `op_id` of a plan once``
    #[error(
        "operation {op_id}: no `{event}` is owed for it; acknowledge each `op_id` of a plan once"
    )]
    UnknownOperation {
        /// The operation.
        op_id: u64,
        /// The event's name in the public surface.
        event: String,
    },

    /// A cache group that the configuration does not have.
    ///
    /// ``unknown cache group 'full'; name one of the `group_id`s of the configuration``
    #[error("unknown cache group '{group_id}'; name one of the `group_id`s of the configuration")]
    UnknownGroup {
        /// The name given.
        group_id: String,
    },

    /// Something that this scheduler, as configured, does not offer.
    ///
    /// ``unsupported: storage keys without `enable_l3_storage`; set it True``
    #[error("unsupported: {feature}")]
    UnsupportedFeature {
        /// What was asked for.
        feature: String,
    },

    /// A recording that would leave out what came before it.
    ///
    /// ``calls before the recording: 17; begin a recording before the scheduler's first call``
    #[error(
        "calls before the recording: {calls}; begin a recording before the scheduler's first call"
    )]
    RecordingTooLate {
        /// Calls that the scheduler has had.
        calls: u64,
    },

    /// A recording that cannot be begun, or that has broken off. The scheduler goes on without it.
    ///
    /// ``recording 'run.jsonl': no space left on device``
    #[error("recording '{path}': {what}")]
    RecordingFailed {
        /// The file.
        path: String,
        /// What the system says of it.
        what: String,
    },

    /// A file that is no recording, or one of another format.
    ///
    /// ``recording 'run.jsonl', line 3: expected value at column 1``
    #[error("recording '{path}', line {line}: {what}")]
    BadRecording {
        /// The file.
        path: String,
        /// Its line, from 1.
        line: u64,
        /// What is wrong there.
        what: String,
    },

    /// A broken invariant.
    ///
    /// ``internal error: 3 blocks are owned by nobody; this is a bug, please report it with the
    /// configuration and the calls that led here``
    #[error(
        "internal error: {what}; this is a bug, please report it with the configuration and the \
         calls that led here"
    )]
    Internal {
        /// The invariant and how it was found broken.
        what: String,
    },
}

impl Error {
    /// The stable name of the variant, for programs to match on.
    pub fn code(&self) -> &'static str {
        match self {
            Error::InvalidConfig { .. } => "invalid_config",
            Error::InvalidArgument { .. } => "invalid_argument",
            Error::EmptyPrompt { .. } => "empty_prompt",
            Error::DuplicateRequestId { .. } => "duplicate_request_id",
            Error::NegativeBudget { .. } => "negative_budget",
            Error::RequestTooLarge { .. } => "request_too_large",
            Error::UnexpectedEvent { .. } => "unexpected_event",
            Error::ResultNotOwed { .. } => "result_not_owed",
            Error::BadResult { .. } => "bad_result",
            Error::BadReserve { .. } => "bad_reserve",
            Error::BadArrays { .. } => "bad_arrays",
            Error::UnknownOperation { .. } => "unknown_operation",
            Error::UnknownGroup { .. } => "unknown_group",
            Error::UnsupportedFeature { .. } => "unsupported_feature",
            Error::RecordingTooLate { .. } => "recording_too_late",
            Error::RecordingFailed { .. } => "recording_failed",
            Error::BadRecording { .. } => "bad_recording",
            Error::Internal { .. } => "internal",
        }
    }

    /// Who has to act on it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidConfig { .. } | Error::InvalidArgument { .. } => ErrorKind::Config,
            Error::EmptyPrompt { .. }
            | Error::DuplicateRequestId { .. }
            | Error::NegativeBudget { .. }
            | Error::RequestTooLarge { .. } => ErrorKind::Request,
            Error::UnexpectedEvent { .. }
            | Error::ResultNotOwed { .. }
            | Error::BadResult { .. }
            | Error::BadReserve { .. }
            | Error::BadArrays { .. }
            | Error::UnknownOperation { .. } => ErrorKind::Event,
            Error::UnknownGroup { .. } => ErrorKind::Config,
            Error::UnsupportedFeature { .. } => ErrorKind::Unsupported,
            Error::RecordingTooLate { .. }
            | Error::RecordingFailed { .. }
            | Error::BadRecording { .. } => ErrorKind::Recording,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// A field of the configuration that breaks a rule; `rule` reads on from "it must".
    pub(crate) fn config(field: impl Into<String>, value: impl ToString, rule: &str) -> Error {
        Error::InvalidConfig { field: field.into(), value: value.to_string(), rule: rule.into() }
    }

    /// An argument out of its range; `rule` reads on from "it must".
    pub(crate) fn argument(name: &str, value: impl ToString, rule: &str) -> Error {
        Error::InvalidArgument { name: name.into(), value: value.to_string(), rule: rule.into() }
    }
}
