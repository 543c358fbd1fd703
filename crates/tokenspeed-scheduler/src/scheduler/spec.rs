//! What a client submits.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::plan::Rules;
use crate::request::RequestSet;

/// A request to come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSpec {
    /// The client's name for it; no two live requests share one.
    pub request_id: String,
    /// The prompt.
    pub tokens: Vec<i32>,
    /// Token budget of the output; 0 leaves it undeclared.
    pub max_new_tokens: i64,
}

/// Refuses the whole batch for the first request in it that cannot be taken.
pub(super) fn validate(specs: &[RequestSpec], rules: &Rules, live: &RequestSet) -> Result<()> {
    let mut batch = HashSet::with_capacity(specs.len());
    for spec in specs {
        let request_id = || spec.request_id.clone();
        let (prompt_tokens, max_new_tokens) = (spec.tokens.len() as i64, spec.max_new_tokens);
        if prompt_tokens == 0 {
            return Err(Error::EmptyPrompt { request_id: request_id() });
        }
        if live.find(&spec.request_id).is_some() || !batch.insert(&spec.request_id) {
            return Err(Error::DuplicateRequestId { request_id: request_id() });
        }
        if max_new_tokens < 0 {
            return Err(Error::NegativeBudget { request_id: request_id(), max_new_tokens });
        }
        let limit_tokens = rules.token_limit;
        let needed = rules.limit_of(prompt_tokens, max_new_tokens);
        if needed > limit_tokens {
            return Err(Error::RequestTooLarge {
                request_id: request_id(),
                prompt_tokens,
                reserved_tokens: needed - prompt_tokens,
                limit_tokens,
            });
        }
    }
    Ok(())
}
