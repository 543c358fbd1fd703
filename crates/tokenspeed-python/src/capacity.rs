//! The capacity model (`scheduler.md` §1.4).

use pyo3::prelude::*;
use tokenspeed_scheduler as core;

use crate::config::SchedulerConfig;
use crate::guard;
use crate::items;

/// What one request, and many of them, need of a pool: known before a pool exists, to size it.
///
/// Pages of a group are its blocks, the null one excluded; lists have one entry a group, in the
/// configuration's order. Built from a SchedulerConfig; `num_device_pages` and `num_host_pages` are
/// not read. Raises ConfigError for a configuration that no scheduler could run.
#[pyclass(module = "tokenspeed.scheduler", frozen)]
pub struct CapacityModel(core::CapacityModel);

#[pymethods]
impl CapacityModel {
    #[new]
    fn new(py: Python<'_>, config: PyRef<'_, SchedulerConfig>) -> PyResult<Self> {
        let config = config.to_core(py)?;
        guard::checked(py, || core::CapacityModel::new(&config)).map(CapacityModel)
    }

    /// Number of cache groups.
    #[getter]
    fn num_groups(&self) -> usize {
        self.0.num_groups()
    }

    /// Pages that one request of `token_limit` tokens, prompt and output, holds at its peak.
    ///
    /// Raises ConfigError for a limit below zero or beyond any pool.
    fn single_request_group_pages(&self, py: Python<'_>, token_limit: i64) -> PyResult<Vec<i64>> {
        guard::checked(py, || self.0.single_request_group_pages(token_limit))
    }

    /// Pages that `max_batch_size` requests hold: at most `max_context_len` tokens each and
    /// `max_total_tokens` in all.
    ///
    /// Raises ConfigError for an argument below zero or beyond any pool.
    fn concurrent_group_pages(
        &self,
        py: Python<'_>,
        max_total_tokens: i64,
        max_context_len: i64,
    ) -> PyResult<Vec<i64>> {
        guard::checked(py, || self.0.concurrent_group_pages(max_total_tokens, max_context_len))
    }

    /// LCM blocks that hold these pages, one entry a group.
    ///
    /// Raises ConfigError unless `group_pages` has one entry a group, none below zero.
    fn lcm_blocks_needed_for(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = items::of)] group_pages: Vec<i64>,
    ) -> PyResult<i64> {
        guard::checked(py, || self.0.lcm_blocks_needed_for(&group_pages))
    }

    /// The most tokens, prompt and output, that a request may need in a pool of that many usable LCM
    /// blocks; 0 if none fits.
    fn max_single_request_tokens(&self, py: Python<'_>, usable_lcm_blocks: i64) -> PyResult<i64> {
        guard::checked(py, || Ok(self.0.max_single_request_tokens(usable_lcm_blocks)))
    }

    fn __repr__(&self) -> String {
        format!("<CapacityModel of {} cache groups>", self.0.num_groups())
    }
}
