//! The scheduler: requests and events in, plans out.
//!
//! The interpreter is released around what may take a millisecond or more. What takes microseconds
//! keeps it: others would gain nothing, and the engine could wait a switch interval (5 ms) for a
//! thread that is busy in Python.

use std::sync::Arc;

use numpy::PyArray2;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use tokenspeed_recording::Call;
use tokenspeed_scheduler as core;
use tokenspeed_scheduler::{Event, Handle};

use crate::config::SchedulerConfig;
use crate::execution_event::ExecutionEvent;
use crate::guard::Guarded;
use crate::ids::SharedIds;
use crate::integers::{Integers, Tokens};
use crate::items;
use crate::kv_events;
use crate::plan::{ExecutionPlan, GroupNames, PlanData};
use crate::request::RequestSpec;
use crate::views;

/// Prompt tokens that are hashed in a fraction of a millisecond.
const QUICK_TOKENS: usize = 1 << 14;

/// Requests, however long, that are ended in a fraction of a millisecond.
const QUICK_ENDS: usize = 4;

/// Requests that decode, planned or fed in a fraction of a millisecond.
const QUICK_DECODES: usize = 1 << 11;

/// One engine's scheduler: requests and events in, plans out.
///
/// Built from a SchedulerConfig; raises ConfigError for one that breaks a rule. May be called from
/// several threads: calls take turns. A call that raises has changed nothing; after an InternalError
/// of a call that broke off midway, every later call raises InternalError too.
#[pyclass(module = "tokenspeed.scheduler", frozen)]
#[derive(Debug)]
pub struct Scheduler {
    /// What does the work.
    pub(crate) core: Guarded,
    groups: Arc<GroupNames>,
    ids: Arc<SharedIds>,
}

#[pymethods]
impl Scheduler {
    #[new]
    fn new(py: Python<'_>, config: PyRef<'_, SchedulerConfig>) -> PyResult<Self> {
        Scheduler::of(py, config.to_core(py)?)
    }

    /// Takes new requests (RequestSpec) in, all or none.
    ///
    /// Raises RequestError for an empty prompt, an id that a live request has, a negative budget or
    /// a request that the pool could never run.
    fn submit_requests(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = items::of)] request_specs: Vec<PyRef<'_, RequestSpec>>,
    ) -> PyResult<()> {
        let specs: Vec<core::RequestSpec> =
            request_specs.iter().map(|spec| spec.to_core(py)).collect();
        let tokens: usize = specs.iter().map(|spec| spec.tokens.len()).sum();
        self.core.call(
            py,
            tokens > QUICK_TOKENS,
            specs,
            |specs| Call::SubmitRequests(specs.into()),
            core::Scheduler::submit_requests,
        )
    }

    /// Carries an ExecutionEvent out: all of its events in their order, or none. One for a request
    /// or an operation that is gone is ignored.
    ///
    /// Raises EventError for an event that cannot happen in its request's state.
    fn advance(&self, py: Python<'_>, event: PyRef<'_, ExecutionEvent>) -> PyResult<()> {
        let events = event.events(py);
        let ends = events.iter().filter(|event| ends_request(event)).count();
        self.core.call(
            py,
            ends > QUICK_ENDS,
            events,
            |events| Call::Advance(events.as_slice().into()),
            |core, events| core.advance(events.as_slice()),
        )
    }

    /// Feeds the results of many forwards at once, all or none: the request of `handles[i]` (uint64)
    /// gets the token ids `tokens[offsets[i]:offsets[i + 1]]` (int32; offsets int64), none for an
    /// intermediate chunk. A handle whose request is gone is ignored.
    ///
    /// Raises EventError for arrays that do not fit together, or as `advance`.
    fn advance_results(
        &self,
        py: Python<'_>,
        handles: Integers<u64>,
        tokens: Tokens,
        offsets: Integers<i64>,
    ) -> PyResult<()> {
        self.core.call(
            py,
            handles.0.len() > QUICK_DECODES,
            (named(handles), tokens.0.into_vec(), offsets.0.into_vec()),
            |(handles, tokens, offsets)| Call::AdvanceResults {
                handles: handles.into(),
                tokens: tokens.into(),
                offsets: offsets.into(),
            },
            |core, (handles, tokens, offsets)| core.advance_results(&handles, &tokens, &offsets),
        )
    }

    /// Ends the requests of these handles (uint64), all or none: what they computed stays cached.
    /// A handle whose request is gone is ignored.
    ///
    /// Raises EventError for a request whose prompt is not complete.
    fn finish(&self, py: Python<'_>, handles: Integers<u64>) -> PyResult<()> {
        let handles = named(handles);
        let is_long = handles.len() > QUICK_ENDS;
        self.core.call(
            py,
            is_long,
            handles,
            |handles| Call::Finish(handles.into()),
            |core, handles| core.finish(&handles),
        )
    }

    /// Decides the next round.
    fn next_execution_plan(&self, py: Python<'_>) -> PyResult<ExecutionPlan> {
        let is_long = self
            .core
            .read(py, |core| core.waiting_size() > 0 || core.decoding_size() > QUICK_DECODES)?;
        let plan = self.core.call(
            py,
            is_long,
            (),
            |()| Call::NextExecutionPlan,
            |core, ()| core.next_execution_plan(),
        )?;
        Ok(self.planned(plan))
    }

    /// The group's persistent block table, int32 [max_batch_size + 1, columns], by row of the request
    /// pool: page ids by absolute slot, 0 for a hole and past a request's blocks.
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
        let table = self
            .core
            .attached(py, |core| Ok(core.persistent_table(core.group_index(group_id)?).clone()))?;
        views::table(py, table)
    }

    /// Has plans do without block tables of their own, for an engine that reads `block_table`: a round then
    /// costs nothing for the context of requests that did not change. False brings them back.
    /// `block_table` and `changed_cells` are kept either way; a copy of them needs zeros in new columns.
    #[pyo3(signature = (wanted = true))]
    fn use_persistent_tables(&self, py: Python<'_>, wanted: bool) -> PyResult<()> {
        self.core.attached(py, |core| {
            core.set_with_block_tables(!wanted);
            Ok(())
        })
    }

    /// Ids of the cache groups, in the configuration's order.
    #[getter]
    fn group_ids(&self) -> &[Py<PyString>] {
        &self.groups.names
    }

    /// What a prompt would find in the Device's prefix cache, as changes since the last call:
    /// KVEvent.BlockRemoved, a page before its parent, then KVEvent.BlockStored, a page after its parent,
    /// one event a page. [] unless `enable_kv_cache_events`.
    ///
    /// A consumer that applies them all holds exactly the pages that prompts would hit, and each page's
    /// parent. It is the net change: a page that came and went between two calls is not told, and what
    /// is kept for the next call is bounded by what is cached, however long nobody calls.
    fn drain_kv_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let events = self.core.attached(py, core::Scheduler::drain_kv_events)?;
        let objects: Vec<Py<PyAny>> = events
            .into_iter()
            .map(|event| kv_events::object(py, event))
            .collect::<PyResult<_>>()?;
        PyList::new(py, objects)
    }

    /// Debug builds only: breaks off midway, so that tests see what follows.
    #[cfg(debug_assertions)]
    fn _break_off(&self, py: Python<'_>) -> PyResult<()> {
        let plan: fn(&mut core::Scheduler, ()) -> core::Result<()> = |_, ()| panic!("as asked");
        self.core.call(py, false, (), |()| Call::NextExecutionPlan, plan)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let text = self.core.read(py, |core| {
            let available = core.available_lcm_blocks();
            format!(
                "<Scheduler: {} waiting, {} prefilling, {} decoding; {available} of {} LCM blocks \
                 available>",
                core.waiting_size(),
                core.prefilling_size(),
                core.decoding_size(),
                available + core.active_lcm_blocks(),
            )
        });
        text.unwrap_or_else(|_| "<Scheduler: a call broke off midway>".into())
    }
}

impl Scheduler {
    /// A scheduler of this configuration.
    pub fn of(py: Python<'_>, config: core::SchedulerConfig) -> PyResult<Self> {
        let groups = Arc::new(GroupNames::of(py, &config));
        let core = Guarded::new(py, || core::Scheduler::new(config))?;
        Ok(Scheduler { core, groups, ids: Arc::default() })
    }

    /// A plan of this scheduler, as Python sees it.
    pub fn planned(&self, plan: core::ExecutionPlan) -> ExecutionPlan {
        let (groups, ids) = (self.groups.clone(), self.ids.clone());
        ExecutionPlan(Arc::new(PlanData { plan, groups, ids }))
    }
}

/// Whether an event gives a request's blocks back, which takes longer the longer the request is.
fn ends_request(event: &Event) -> bool {
    matches!(
        event,
        Event::Finish { .. }
            | Event::Abort { .. }
            | Event::Retract { .. }
            | Event::TransferFailed { .. }
            | Event::TransferSucceeded { .. }
            | Event::LoadBackDone { success: false, .. }
    )
}

fn named(handles: Integers<u64>) -> Vec<Handle> {
    handles.0.into_iter().map(Handle).collect()
}
