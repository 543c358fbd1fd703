//! Every error's text, stable name and kind, as its documentation shows them.

use tokenspeed_scheduler::error::{Error, ErrorKind};

fn a() -> String {
    "a".into()
}

#[test]
fn texts_codes_and_kinds() {
    use ErrorKind::{Config, Event, Internal, Recording, Request, Unsupported};
    let cases = [
        (
            Error::InvalidConfig {
                field: "max_scheduled_tokens".into(),
                value: "0".into(),
                rule: "be positive (the token budget of a round)".into(),
            },
            "invalid_config",
            Config,
            "invalid configuration: `max_scheduled_tokens` is 0; it must be positive (the token \
             budget of a round)",
        ),
        (
            Error::InvalidArgument {
                name: "token_limit".into(),
                value: "-1".into(),
                rule: "be at least 0".into(),
            },
            "invalid_argument",
            Config,
            "invalid argument: `token_limit` is -1; it must be at least 0",
        ),
        (
            Error::EmptyPrompt { request_id: a() },
            "empty_prompt",
            Request,
            "request 'a': the prompt is empty; submit at least one token",
        ),
        (
            Error::DuplicateRequestId { request_id: a() },
            "duplicate_request_id",
            Request,
            "request 'a': the id is taken by a live request or by another one of this batch; \
             submit it under an id of its own, or after that one has ended",
        ),
        (
            Error::NegativeBudget { request_id: a(), max_new_tokens: -3 },
            "negative_budget",
            Request,
            "request 'a': `max_new_tokens` is -3; it must be at least 0 (0 leaves the budget \
             undeclared)",
        ),
        (
            Error::RequestTooLarge {
                request_id: a(),
                prompt_tokens: 29,
                reserved_tokens: 4,
                limit_tokens: 32,
            },
            "request_too_large",
            Request,
            "request 'a': 29 prompt tokens and 4 behind them need room for 33 tokens, but the pool \
             bounds one request at 32 (`max_single_request_tokens`); shorten the prompt, lower \
             `max_new_tokens` or enlarge the pool",
        ),
        (
            Error::UnexpectedEvent {
                request_id: a(),
                event: "UpdateReserveNumTokens".into(),
                state: "Prefilling".into(),
            },
            "unexpected_event",
            Event,
            "request 'a': event `UpdateReserveNumTokens` cannot happen while it is `Prefilling`; \
             report events in the order in which the plans caused them",
        ),
        (
            Error::ResultNotOwed { request_id: a() },
            "result_not_owed",
            Event,
            "request 'a': no result is owed; report one `ExtendResult` for each forward that a \
             plan has scheduled",
        ),
        (
            Error::BadResult {
                request_id: a(),
                tokens: 5,
                rule: "have 1 to 4 (those that the decode step accepted)".into(),
            },
            "bad_result",
            Event,
            "request 'a': the result has 5 tokens; it must have 1 to 4 (those that the decode step \
             accepted)",
        ),
        (
            Error::BadArrays {
                array: "offsets".into(),
                value: "3 entries".into(),
                rule: "have one more than `request_ids` (4)".into(),
            },
            "bad_arrays",
            Event,
            "array `offsets` has 3 entries; it must have one more than `request_ids` (4)",
        ),
        (
            Error::UnknownOperation { op_id: 17, event: "WriteBackDoneEvent".into() },
            "unknown_operation",
            Event,
            "operation 17: no `WriteBackDoneEvent` is owed for it; acknowledge each `op_id` of a \
             plan once",
        ),
        (
            Error::UnknownGroup { group_id: "full".into() },
            "unknown_group",
            Config,
            "unknown cache group 'full'; name one of the `group_id`s of the configuration",
        ),
        (
            Error::UnsupportedFeature { feature: "an overlap depth above 1".into() },
            "unsupported_feature",
            Unsupported,
            "unsupported: an overlap depth above 1",
        ),
        (
            Error::RecordingTooLate { calls: 17 },
            "recording_too_late",
            Recording,
            "calls before the recording: 17; begin a recording before the scheduler's first call",
        ),
        (
            Error::RecordingFailed {
                path: "run.jsonl".into(),
                what: "no space left on device".into(),
            },
            "recording_failed",
            Recording,
            "recording 'run.jsonl': no space left on device",
        ),
        (
            Error::BadRecording {
                path: "run.jsonl".into(),
                line: 3,
                what: "expected value at column 1".into(),
            },
            "bad_recording",
            Recording,
            "recording 'run.jsonl', line 3: expected value at column 1",
        ),
        (
            Error::Internal { what: "3 blocks are owned by nobody".into() },
            "internal",
            Internal,
            "internal error: 3 blocks are owned by nobody; this is a bug, please report it with \
             the configuration and the calls that led here",
        ),
    ];
    for (error, code, kind, text) in &cases {
        assert_eq!(error.to_string(), *text);
        assert_eq!((error.code(), error.kind()), (*code, *kind));
    }
    let mut codes: Vec<_> = cases.iter().map(|case| case.0.code()).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), cases.len(), "a name for each");
}
