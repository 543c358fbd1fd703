//! The scheduler: one lock around the core, no panic let through, the interpreter released around
//! what takes long.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use numpy::{PyArray2, PyArrayLike1};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use tokenspeed_scheduler as core;
use tokenspeed_scheduler::Handle;

use crate::config::SchedulerConfig;
use crate::errors;
use crate::execution_event::ExecutionEvent;
use crate::plan::{ExecutionPlan, GroupNames, PlanData};
use crate::repr::Repr;
use crate::request::RequestSpec;
use crate::tokens::Tokens;
use crate::views;

/// One engine's scheduler: requests and events in, plans out.
///
/// Built from a SchedulerConfig; raises ConfigError for one that breaks a rule and UnsupportedError
/// for what this version does not offer. May be called from several threads: calls take turns. A
/// call that raises has changed nothing; after an InternalError of a call that broke off midway,
/// every later call raises InternalError too.
#[pyclass(module = "tokenspeed.scheduler", frozen)]
#[derive(Debug)]
pub struct Scheduler {
    core: Mutex<core::Scheduler>,
    groups: Arc<GroupNames>,
}

/// Why a call gave nothing.
enum Failure {
    /// The core refused it.
    Refused(core::Error),
    /// It broke off midway, now or in a former call.
    Broken(String),
}

impl From<core::Error> for Failure {
    fn from(error: core::Error) -> Self {
        Failure::Refused(error)
    }
}

impl Failure {
    fn exception(self, py: Python<'_>) -> PyErr {
        match self {
            Failure::Refused(error) => errors::exception(py, &error),
            Failure::Broken(what) => errors::internal(py, &what),
        }
    }
}

const BROKEN: &str = "a former call broke off midway, so the scheduler's state is unknown: build a \
                      new one, and report the first InternalError";

impl Scheduler {
    /// Runs `work` on the core; a panic poisons the lock and becomes an InternalError.
    fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut core::Scheduler) -> core::Result<T>,
    ) -> PyResult<T> {
        without_panic(|| match self.core.lock_py_attached(py) {
            Ok(mut core) => Ok(work(&mut core)?),
            Err(_) => Err(Failure::Broken(BROKEN.into())),
        })
        .map_err(|failure| failure.exception(py))
    }

    /// As `with`, while other Python threads run.
    fn with_detached<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut core::Scheduler) -> core::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            without_panic(|| match self.core.lock() {
                Ok(mut core) => Ok(work(&mut core)?),
                Err(_) => Err(Failure::Broken(BROKEN.into())),
            })
        })
        .map_err(|failure| failure.exception(py))
    }

    /// A gauge.
    fn read<T>(&self, py: Python<'_>, gauge: impl FnOnce(&core::Scheduler) -> T) -> PyResult<T> {
        self.with(py, |core| Ok(gauge(core)))
    }
}

fn without_panic<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a text");
        Err(Failure::Broken(format!("the scheduler broke off midway: {what}")))
    })
}

#[pymethods]
impl Scheduler {
    #[new]
    fn new(py: Python<'_>, config: PyRef<'_, SchedulerConfig>) -> PyResult<Self> {
        let config = config.to_core(py)?;
        let groups = Arc::new(GroupNames::of(py, &config));
        let core = without_panic(|| Ok(core::Scheduler::new(config)?))
            .map_err(|failure| failure.exception(py))?;
        Ok(Scheduler { core: Mutex::new(core), groups })
    }

    /// Takes new requests (RequestSpec) in, all or none.
    ///
    /// Raises RequestError for an empty prompt, an id that a live request has, a negative budget or
    /// a request that the pool could never run.
    fn submit_requests(
        &self,
        py: Python<'_>,
        request_specs: Vec<PyRef<'_, RequestSpec>>,
    ) -> PyResult<()> {
        let specs: Vec<core::RequestSpec> = request_specs.iter().map(|spec| (&**spec).into()).collect();
        self.with_detached(py, |core| core.submit_requests(specs))
    }

    /// Carries an ExecutionEvent out: all of its events in their order, or none. One for a request
    /// or an operation that is gone is ignored.
    ///
    /// Raises EventError for an event that cannot happen in its request's state.
    fn advance(&self, py: Python<'_>, event: PyRef<'_, ExecutionEvent>) -> PyResult<()> {
        let events = event.events.clone();
        self.with_detached(py, |core| core.advance(events))
    }

    /// Feeds the results of many forwards at once, all or none: the request of `handles[i]` (uint64)
    /// gets the token ids `tokens[offsets[i]:offsets[i + 1]]` (int32, int64), none for an
    /// intermediate chunk. A handle whose request is gone is ignored.
    ///
    /// Raises EventError for arrays that do not fit together, or as `advance`.
    fn advance_results(
        &self,
        py: Python<'_>,
        handles: PyArrayLike1<'_, u64>,
        tokens: PyArrayLike1<'_, i32>,
        offsets: PyArrayLike1<'_, i64>,
    ) -> PyResult<()> {
        let handles: Vec<Handle> = handles.as_array().iter().map(|&bits| Handle(bits)).collect();
        let tokens: Vec<i32> = tokens.as_array().to_vec();
        let offsets: Vec<i64> = offsets.as_array().to_vec();
        self.with(py, |core| core.advance_results(&handles, &tokens, &offsets))
    }

    /// Ends the requests of these handles (uint64), all or none: what they computed stays cached.
    /// A handle whose request is gone is ignored.
    ///
    /// Raises EventError for a request whose prompt is not complete.
    fn finish(&self, py: Python<'_>, handles: PyArrayLike1<'_, u64>) -> PyResult<()> {
        let handles: Vec<Handle> = handles.as_array().iter().map(|&bits| Handle(bits)).collect();
        self.with(py, |core| core.finish(&handles))
    }

    /// Decides the next round.
    fn next_execution_plan(&self, py: Python<'_>) -> PyResult<ExecutionPlan> {
        let plan = self.with_detached(py, core::Scheduler::next_execution_plan)?;
        Ok(ExecutionPlan(Arc::new(PlanData { plan, groups: self.groups.clone() })))
    }

    /// The group's persistent block table, int32 [max_batch_size + 1, columns], by row of the request
    /// pool: page ids by absolute slot, 0 for a hole. What lies past a request's blocks is left over.
    ///
    /// A read-only view of the scheduler's own cells, which each plan keeps current in place;
    /// `ExecutionPlan.changed_cells` lists what changed. Ask again each round: a table is replaced by
    /// a wider one when a request outgrows its columns.
    ///
    /// Raises UnknownGroupError.
    fn block_table<'py>(
        &self,
        py: Python<'py>,
        group_id: &str,
    ) -> PyResult<Bound<'py, PyArray2<i32>>> {
        let table = self.with(py, |core| {
            Ok(core.persistent_table(core.group_index(group_id)?).clone())
        })?;
        views::table(py, table)
    }

    /// Whether plans do without block tables of their own, for an engine that reads `block_table`: a
    /// round then costs nothing for the context of requests that did not change.
    fn use_persistent_tables(&self, py: Python<'_>, wanted: bool) -> PyResult<()> {
        self.with(py, |core| {
            core.set_with_block_tables(!wanted);
            Ok(())
        })
    }

    /// Ids of the cache groups, in the configuration's order.
    #[getter]
    fn group_ids(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.groups.names.iter().map(|name| name.clone_ref(py).into_any()).collect()
    }

    /// The requests that are owed results, oldest debt first, as a list of `OwedResult`.
    fn owed_results(&self, py: Python<'_>) -> PyResult<Vec<OwedResult>> {
        let owed = self.read(py, core::Scheduler::owed_results)?;
        Ok(owed.into_iter().map(OwedResult::from).collect())
    }

    /// What entered and left the prefix cache since the last call, as `KVEvent`s; [] unless
    /// `enable_kv_cache_events`.
    fn drain_kv_events(&self) -> Vec<Py<PyAny>> {
        Vec::new()
    }

    /// Empties the Device's prefix cache; False, and nothing changed, while something else owns a
    /// part of it.
    fn clear_l1_cache(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |core| Ok(core.clear_l1_cache()))
    }

    /// Empties the prefix caches of both tiers, or neither.
    fn clear_cache(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |core| Ok(core.clear_cache()))
    }

    /// Whether `clear_l1_cache` would.
    fn can_clear_cache(&self, py: Python<'_>) -> PyResult<bool> {
        self.read(py, core::Scheduler::can_clear_cache)
    }

    /// Content hashes, in hex, of the complete prefix pages of `tokens` (a list or any int32 buffer).
    fn prefix_hashes_for_tokens(&self, py: Python<'_>, tokens: Tokens) -> PyResult<Vec<String>> {
        self.read(py, |core| core.prefix_hashes_for_tokens(&tokens.0))
    }

    /// Requests that wait for the peer's handshake (roles P and D).
    fn bootstrapping_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, core::Scheduler::bootstrapping_size)
    }

    /// Requests that wait for an admission: submitted and retracted.
    fn waiting_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, core::Scheduler::waiting_size)
    }

    /// Requests whose prompt is under way, or complete without a decode step yet.
    fn prefilling_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, core::Scheduler::prefilling_size)
    }

    /// Requests whose prompt the peer computes (role D).
    fn remote_prefilling_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, core::Scheduler::remote_prefilling_size)
    }

    /// Requests that decode.
    fn decoding_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, core::Scheduler::decoding_size)
    }

    /// Requests whose blocks a peer reads or writes (roles P and D).
    fn pd_transfer_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, core::Scheduler::pd_transfer_size)
    }

    /// Whether a peer reads or writes the request's blocks (roles P and D).
    fn pd_transfer_pinned(&self, py: Python<'_>, request_id: &str) -> PyResult<bool> {
        self.read(py, |core| core.pd_transfer_pinned(request_id))
    }

    /// LCM blocks that hold what cannot be evicted.
    fn active_lcm_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, core::Scheduler::active_lcm_blocks)
    }

    /// LCM blocks that are empty or fully evictable.
    fn available_lcm_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, core::Scheduler::available_lcm_blocks)
    }

    /// LCM blocks without a used block.
    fn empty_lcm_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, core::Scheduler::empty_lcm_blocks)
    }

    /// Pages of a group, the null one included. Raises UnknownGroupError.
    fn cache_group_total_pages(&self, py: Python<'_>, group_id: &str) -> PyResult<i64> {
        self.with(py, |core| core.cache_group_total_pages(group_id))
    }

    /// Pages that a group could take without evicting anything. Raises UnknownGroupError.
    fn cache_group_available_pages(&self, py: Python<'_>, group_id: &str) -> PyResult<usize> {
        self.with(py, |core| core.cache_group_available_pages(group_id))
    }

    /// Tokens of a request, prompt and output; -1 if there is no such request.
    fn request_token_size(&self, py: Python<'_>, id: &str) -> PyResult<i64> {
        self.read(py, |core| core.request_token_size(id))
    }

    /// The most tokens that a request's prompt and output may add up to.
    fn max_single_request_tokens(&self, py: Python<'_>) -> PyResult<i64> {
        self.read(py, core::Scheduler::max_single_request_tokens)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.read(py, |core| {
            let available = core.available_lcm_blocks();
            format!(
                "<Scheduler: {} waiting, {} prefilling, {} decoding; {available} of {} LCM blocks \
                 available>",
                core.waiting_size(),
                core.prefilling_size(),
                core.decoding_size(),
                available + core.active_lcm_blocks(),
            )
        })
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
