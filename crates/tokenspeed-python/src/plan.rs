//! A round's orders, as the engine reads them.

use std::sync::Arc;

use numpy::{PyArray1, PyArray2};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use tokenspeed_scheduler as core;

use crate::batch::{Batch, Part};
use crate::copies::{LoadBackOp, WriteBackOp};
use crate::ids::SharedIds;
use crate::repr::Repr;
use crate::views;

/// The names of the cache groups, as plans need them.
#[derive(Debug, Default)]
pub struct GroupNames {
    /// By index in the configuration.
    pub names: Vec<Py<PyString>>,
    /// The indices in the names' order: that of every dict of a plan.
    pub by_name: Vec<usize>,
}

impl GroupNames {
    /// Of a configuration.
    pub fn of(py: Python<'_>, config: &core::SchedulerConfig) -> GroupNames {
        let groups = &config.cache_groups;
        let mut by_name: Vec<usize> = (0..groups.len()).collect();
        by_name.sort_by_key(|&group| &groups[group].group_id);
        let names = groups.iter().map(|group| PyString::new(py, &group.group_id).unbind());
        GroupNames { names: names.collect(), by_name }
    }
}

/// A finished plan; the arrays over it keep it alive.
#[derive(Debug, Default)]
pub struct PlanData {
    /// The core's plan.
    pub plan: core::ExecutionPlan,
    /// The scheduler's groups.
    pub groups: Arc<GroupNames>,
    /// Ids as the scheduler's plans show them.
    pub ids: Arc<SharedIds>,
}

/// What to run, copy and zero in a round, from `Scheduler.next_execution_plan`.
///
/// Unchanging; its arrays are read-only views of its own memory, valid for as long as one holds
/// them. Page ids are block ids: int32, 0 being the null block.
#[pyclass(module = "tokenspeed.scheduler", frozen)]
#[derive(Debug)]
pub struct ExecutionPlan(pub Arc<PlanData>);

#[pymethods]
impl ExecutionPlan {
    #[new]
    fn new() -> Self {
        ExecutionPlan(Arc::default())
    }

    /// The forward as a list of one `Forward.Batch`, empty of requests when nothing is to run; `[]`
    /// for a plan that no scheduler made.
    #[getter]
    fn forward(&self) -> Vec<Batch> {
        if self.0.groups.names.is_empty() {
            return Vec::new();
        }
        vec![Batch::of(&self.0, Part::Forward)]
    }

    /// The forward, or None when nothing is to run.
    #[getter]
    fn batch(&self) -> Option<Batch> {
        let batch = &self.0.plan.batch;
        (!batch.request_ids.is_empty()).then(|| Batch::of(&self.0, Part::Forward))
    }

    /// The copies: a `Cache.WriteBackOp` where there are stores, then a `Cache.LoadBackOp` where
    /// there are loads.
    #[getter]
    fn cache<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut copies = Vec::new();
        if !self.0.plan.write_back.is_empty() {
            copies.push(Bound::new(py, WriteBackOp(self.0.clone()))?.into_any());
        }
        if !self.0.plan.load_back.is_empty() {
            copies.push(Bound::new(py, LoadBackOp(self.0.clone()))?.into_any());
        }
        Ok(copies)
    }

    /// Role D: the admission whose prompt the peer prefills, as a `Forward.Batch`; else None.
    #[getter]
    fn remote_prefill(&self) -> Option<Batch> {
        self.0.plan.remote_prefill.as_ref().map(|_| Batch::of(&self.0, Part::RemotePrefill))
    }

    /// Role P: completed prompts to hand to the peer, as a `Forward.Batch`; else None.
    #[getter]
    fn remote_decode(&self) -> Option<Batch> {
        self.0.plan.remote_decode.as_ref().map(|_| Batch::of(&self.0, Part::RemoteDecode))
    }

    /// Device blocks to zero before the forward: a dict of group id to list of page ids. Groups
    /// without any are left out.
    #[getter]
    fn pages_to_zero<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let zeroed = PyDict::new(py);
        for (group, name) in self.zeroed_groups() {
            zeroed.set_item(name, &self.0.plan.pages_to_zero[group])?;
        }
        Ok(zeroed)
    }

    /// As `pages_to_zero`: a dict of group id to int32 array [pages].
    fn pages_to_zero_arrays<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let zeroed = PyDict::new(this.py());
        for (group, name) in this.get().zeroed_groups() {
            let pages = views::vector(this, |plan: &Self| &plan.0.plan.pages_to_zero[group][..]);
            zeroed.set_item(name, pages)?;
        }
        Ok(zeroed)
    }

    /// Cells of the persistent block tables that this round changed: a dict of group id to int32
    /// array [cells, 3] of row, slot, block (0 for a hole). Groups without any are left out.
    #[getter]
    fn changed_cells<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let changed = PyDict::new(this.py());
        let data = &this.get().0;
        for &group in &data.groups.by_name {
            let cells = data.plan.changed_cells.get(group).map_or(0, Vec::len);
            if cells == 0 {
                continue;
            }
            let cells: Bound<'py, PyArray2<i32>> = views::matrix(this, cells, |plan: &Self| {
                (views::cell_numbers(&plan.0.plan.changed_cells[group]), 3)
            })?;
            changed.set_item(&data.groups.names[group], cells)?;
        }
        Ok(changed)
    }

    /// Handles of the requests that this round retracted, uint64 [requests]: they gave up their rows
    /// and blocks, and come back as prefills.
    #[getter]
    fn retracted<'py>(this: &Bound<'py, Self>) -> Bound<'py, PyArray1<u64>> {
        views::vector(this, |plan: &Self| views::handle_bits(&plan.0.plan.retracted))
    }

    /// Requests that the scheduler ended by itself, as a list of `AbortNotice`.
    #[getter]
    fn aborts(&self) -> Vec<AbortNotice> {
        self.0.plan.aborts.iter().map(AbortNotice::from).collect()
    }

    /// A number of 64 bits for all that an executor acts upon: the same for the same plan in every
    /// process, on every machine.
    ///
    /// Mirrored schedulers agree while their digests do. Give the digest of the plan before, and one
    /// number stands for all plans so far. Of the block tables it covers `changed_cells`, so that
    /// its cost follows what the round changed.
    #[pyo3(signature = (previous = 0))]
    fn digest(&self, previous: u64) -> u64 {
        self.0.plan.digest(previous)
    }

    /// How many requests this round retracted.
    #[getter]
    fn num_retractions(&self) -> usize {
        self.0.plan.retracted.len()
    }

    /// Blocks to copy from Device to Host.
    #[getter]
    fn num_write_back_blocks(&self) -> usize {
        self.0.plan.write_back.num_blocks()
    }

    /// Blocks to copy from Host to Device.
    #[getter]
    fn num_load_back_blocks(&self) -> usize {
        self.0.plan.load_back.num_blocks()
    }

    fn __repr__(&self) -> String {
        let plan = &self.0.plan;
        let prefills = plan.batch.num_extends;
        let zeroed: usize = plan.pages_to_zero.iter().map(Vec::len).sum();
        format!(
            "<ExecutionPlan: {prefills} prefills, {} decodes, {zeroed} pages to zero, \
             {} blocks to write back, {} to load back, {} retractions, {} aborts>",
            plan.batch.request_ids.len() - prefills,
            plan.write_back.num_blocks(),
            plan.load_back.num_blocks(),
            plan.retracted.len(),
            plan.aborts.len(),
        )
    }
}

impl ExecutionPlan {
    /// Groups with pages to zero, in the names' order.
    fn zeroed_groups(&self) -> impl Iterator<Item = (usize, &Py<PyString>)> {
        let PlanData { plan, groups, .. } = &*self.0;
        groups
            .by_name
            .iter()
            .filter(|&&group| plan.pages_to_zero.get(group).is_some_and(|pages| !pages.is_empty()))
            .map(|&group| (group, &groups.names[group]))
    }
}

/// A request that the scheduler ended by itself: it could never run again.
#[pyclass(module = "tokenspeed.scheduler", frozen, get_all)]
#[derive(Debug)]
pub struct AbortNotice {
    /// Which.
    request_id: String,
    /// Why, as a stable name: "outgrew_pool", "budget_spent" or, on the prefill role, "pool_split".
    reason: &'static str,
    /// Why, in a sentence that names the bound and what to raise.
    text: String,
}

impl From<&core::plan::output::AbortNotice> for AbortNotice {
    fn from(notice: &core::plan::output::AbortNotice) -> Self {
        AbortNotice {
            request_id: notice.request_id.to_string(),
            reason: notice.reason.name(),
            text: notice.text.clone(),
        }
    }
}

#[pymethods]
impl AbortNotice {
    fn __repr__(&self) -> String {
        Repr::of("AbortNotice")
            .text("request_id", &self.request_id)
            .text("reason", self.reason)
            .text("text", &self.text)
            .finish()
    }
}
