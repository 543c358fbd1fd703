//! What a client submits.

use pyo3::prelude::*;
use tokenspeed_scheduler::request::tokens::with_room;

use crate::field::{Field, setters};
use crate::integers::Tokens;
use crate::repr::Repr;

/// A request to come.
#[pyclass(module = "tokenspeed.scheduler", frozen, get_all)]
pub struct RequestSpec {
    /// The client's name for it; no two live requests share one.
    request_id: Field<String>,
    /// The prompt: token ids, at least one. Takes a list or any int32 buffer; gives a list.
    tokens: Field<Tokens>,
    /// Token budget of the output; 0 leaves it undeclared.
    max_new_tokens: Field<i64>,
}

setters!(
    RequestSpec:
    set_request_id(request_id: String),
    set_tokens(tokens: Tokens),
    set_max_new_tokens(max_new_tokens: i64),
);

#[pymethods]
impl RequestSpec {
    #[new]
    #[pyo3(signature = (request_id = String::new(), tokens = Tokens::default(), max_new_tokens = 0),
           text_signature = "(request_id='', tokens=[], max_new_tokens=0)")]
    fn new(request_id: String, tokens: Tokens, max_new_tokens: i64) -> Self {
        RequestSpec {
            request_id: request_id.into(),
            tokens: tokens.into(),
            max_new_tokens: max_new_tokens.into(),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        Repr::of("RequestSpec")
            .text("request_id", &self.request_id.get(py))
            .list("tokens", &self.tokens.get(py).0)
            .field("max_new_tokens", self.max_new_tokens.get(py))
            .finish()
    }
}

impl RequestSpec {
    /// What the core reads.
    pub fn to_core(&self, py: Python<'_>) -> tokenspeed_scheduler::RequestSpec {
        tokenspeed_scheduler::RequestSpec {
            request_id: self.request_id.get(py),
            tokens: self.tokens.change(py, |tokens| with_room(&tokens.0)),
            max_new_tokens: self.max_new_tokens.get(py),
        }
    }
}
