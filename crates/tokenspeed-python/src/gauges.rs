//! What one may look at: sizes and capacities.

use pyo3::prelude::*;
use tokenspeed_scheduler as core;

use crate::repr::Repr;
use crate::scheduler::Scheduler;

#[pymethods]
impl Scheduler {
    /// Requests that wait for the peer's handshake (roles P and D).
    fn bootstrapping_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.core.read(py, core::Scheduler::bootstrapping_size)
    }

    /// Requests that wait for an admission: submitted and retracted.
    fn waiting_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.core.read(py, core::Scheduler::waiting_size)
    }

    /// Requests whose prompt is under way, or complete without a decode step yet.
    fn prefilling_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.core.read(py, core::Scheduler::prefilling_size)
    }

    /// Requests whose prompt the peer computes (role D).
    fn remote_prefilling_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.core.read(py, core::Scheduler::remote_prefilling_size)
    }

    /// Requests that decode.
    fn decoding_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.core.read(py, core::Scheduler::decoding_size)
    }

    /// Requests whose blocks a peer reads or writes (roles P and D).
    fn pd_transfer_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.core.read(py, core::Scheduler::pd_transfer_size)
    }

    /// Whether a peer reads or writes the request's blocks (roles P and D).
    fn pd_transfer_pinned(&self, py: Python<'_>, request_id: &str) -> PyResult<bool> {
        self.core.read(py, |core| core.pd_transfer_pinned(request_id))
    }

    /// LCM blocks that hold what cannot be evicted.
    fn active_lcm_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.core.read(py, core::Scheduler::active_lcm_blocks)
    }

    /// LCM blocks that are empty or fully evictable.
    fn available_lcm_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.core.read(py, core::Scheduler::available_lcm_blocks)
    }

    /// LCM blocks without a used block.
    fn empty_lcm_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.core.read(py, core::Scheduler::empty_lcm_blocks)
    }

    /// Pages of a group, the null one included. Raises UnknownGroupError.
    fn cache_group_total_pages(&self, py: Python<'_>, group_id: &str) -> PyResult<i64> {
        self.core.attached(py, |core| core.cache_group_total_pages(group_id))
    }

    /// Pages that a group could take without evicting anything. Raises UnknownGroupError.
    fn cache_group_available_pages(&self, py: Python<'_>, group_id: &str) -> PyResult<usize> {
        self.core.attached(py, |core| core.cache_group_available_pages(group_id))
    }

    /// Tokens of a request, prompt and output; -1 if there is no such request.
    fn request_token_size(&self, py: Python<'_>, id: &str) -> PyResult<i64> {
        self.core.read(py, |core| core.request_token_size(id))
    }

    /// The most tokens that a request's prompt and output may add up to.
    fn max_single_request_tokens(&self, py: Python<'_>) -> PyResult<i64> {
        self.core.read(py, core::Scheduler::max_single_request_tokens)
    }

    /// The requests that are owed results, oldest debt first, as a list of `OwedResult`.
    fn owed_results(&self, py: Python<'_>) -> PyResult<Vec<OwedResult>> {
        let owed = self.core.read(py, core::Scheduler::owed_results)?;
        Ok(owed.into_iter().map(OwedResult::from).collect())
    }
}

/// Results that a request is owed.
#[pyclass(module = "tokenspeed.scheduler", frozen, get_all)]
#[derive(Debug)]
pub struct OwedResult {
    /// Whose.
    request_id: String,
    /// How many.
    results: u32,
    /// The round (plans made so far) since which nothing of it has landed.
    since_round: u64,
}

impl From<core::scheduler::OwedResult> for OwedResult {
    fn from(owed: core::scheduler::OwedResult) -> Self {
        let core::scheduler::OwedResult { request_id, results, since_round } = owed;
        OwedResult { request_id, results, since_round }
    }
}

#[pymethods]
impl OwedResult {
    fn __repr__(&self) -> String {
        Repr::of("OwedResult")
            .text("request_id", &self.request_id)
            .field("results", self.results)
            .field("since_round", self.since_round)
            .finish()
    }
}
