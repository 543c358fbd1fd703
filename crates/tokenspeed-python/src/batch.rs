//! A forward: which requests, which tokens, which blocks.

use std::sync::Arc;

use numpy::PyArray1;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tokenspeed_scheduler::plan::output;

use crate::plan::PlanData;
use crate::repr::{self, Repr};
use crate::views;

/// Which of a plan's batches.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    /// What this engine runs.
    Forward,
    /// What the peer prefills.
    RemotePrefill,
    /// What the peer decodes.
    RemoteDecode,
}

/// A forward: prefills first, then decodes, each in scheduling order.
///
/// Every list but `request_ids`, `spec_candidate_ids` and `block_tables` is also there as an int32
/// array: a read-only view of the plan's memory, valid for as long as one holds it.
#[pyclass(module = "tokenspeed.scheduler.Forward", frozen)]
#[derive(Debug)]
pub struct Batch {
    data: Arc<PlanData>,
    part: Part,
}

impl Batch {
    /// A batch that the plan has.
    pub fn of(data: &Arc<PlanData>, part: Part) -> Batch {
        Batch { data: data.clone(), part }
    }

    fn batch(&self) -> &output::Batch {
        let plan = &self.data.plan;
        match self.part {
            Part::Forward => Some(&plan.batch),
            Part::RemotePrefill => plan.remote_prefill.as_ref(),
            Part::RemoteDecode => plan.remote_decode.as_ref(),
        }
        .expect("the plan hands out only the batches that it has")
    }

    /// The block tables with their groups, in the names' order.
    fn tables(&self) -> PyResult<impl Iterator<Item = (usize, &output::BlockTable)>> {
        let batch = self.batch();
        if batch.block_tables.is_empty() && !batch.request_ids.is_empty() {
            return Err(PyRuntimeError::new_err(
                "this plan carries no block tables: `use_persistent_tables(True)` was called; read \
                 `Scheduler.block_table(group_id)` by `request_pool_indices`",
            ));
        }
        let groups = self.data.groups.by_name.iter();
        Ok(groups.filter_map(|&group| Some((group, batch.block_tables.get(group)?))))
    }
}

#[pymethods]
impl Batch {
    /// One a request.
    #[getter]
    fn request_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.data.ids.list(py, &self.batch().request_ids)
    }

    /// One a request, uint64: generation of the row's tenant in the high half, row in the low half.
    /// A handle is never used again, so a late result cannot reach the row's next tenant.
    #[getter]
    fn handles<'py>(this: &Bound<'py, Self>) -> Bound<'py, PyArray1<u64>> {
        views::vector(this, |batch: &Self| views::handle_bits(&batch.batch().handles))
    }

    /// How many requests lead the batch as prefills.
    fn num_extends(&self) -> usize {
        self.batch().num_extends
    }

    /// One list a decode: the drafter's candidates on a remote decode, else empty.
    #[getter]
    fn spec_candidate_ids(&self) -> Vec<&[i32]> {
        let batch = self.batch();
        (0..batch.decode_input_ids.len()).map(|decode| batch.candidates(decode)).collect()
    }

    /// Group id -> one list of page ids a request: absolute slots, 0 for a hole, -1 past the end.
    ///
    /// Raises RuntimeError where plans carry none (`Scheduler.use_persistent_tables`).
    #[getter]
    fn block_tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tables = PyDict::new(py);
        for (group, table) in self.tables()? {
            let rows = table.cells.chunks_exact(table.columns.max(1));
            tables.set_item(&self.data.groups.names[group], PyList::new(py, rows)?)?;
        }
        Ok(tables)
    }

    /// As `block_tables`: group id -> int32 array [requests, columns].
    fn block_tables_arrays<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let batch = this.get();
        let tables = PyDict::new(this.py());
        let rows = batch.batch().request_ids.len();
        for (group, _) in batch.tables()? {
            let table = views::matrix(this, rows, |batch: &Self| {
                let table = &batch.batch().block_tables[group];
                (&table.cells[..], table.columns)
            })?;
            tables.set_item(&batch.data.groups.names[group], table)?;
        }
        Ok(tables)
    }

    fn __len__(&self) -> usize {
        self.batch().request_ids.len()
    }

    fn __repr__(&self) -> String {
        let batch = self.batch();
        Repr::of("Forward.Batch")
            .field("request_ids", repr::texts(&batch.request_ids))
            .field("num_extends", batch.num_extends)
            .list("request_pool_indices", &batch.request_pool_indices)
            .list("input_lengths", &batch.input_lengths)
            .list("extend_prefix_lens", &batch.extend_prefix_lens)
            .list("input_ids", &batch.input_ids)
            .finish()
    }
}

/// A field of int32: as a list, built on access, and as an array, without a copy.
macro_rules! int32_fields {
    ($($(#[doc = $doc:literal])+ $list:ident, $array:ident;)+) => {
        #[pymethods]
        impl Batch {
            $(
                $(#[doc = $doc])+
                #[getter]
                fn $list(&self) -> &[i32] {
                    &self.batch().$list
                }

                $(#[doc = $doc])+
                #[getter]
                fn $array<'py>(this: &Bound<'py, Self>) -> Bound<'py, PyArray1<i32>> {
                    views::vector(this, |batch: &Self| &batch.batch().$list[..])
                }
            )+
        }
    };
}

int32_fields! {
    /// One a request: its row of the request pool, from 1.
    request_pool_indices, request_pool_indices_array;
    /// One a request: tokens of input in this forward, a prefill's replay included.
    input_lengths, input_lengths_array;
    /// One a request: tokens of its whole prompt; after a retraction, of what it had come to.
    prefill_lengths, prefill_lengths_array;
    /// Token ids of the prefills' input, one prefill after the other.
    input_ids, input_ids_array;
    /// `input_ids` shifted by one: the next token of each, -1 past the prompt.
    shifted_input_ids, shifted_input_ids_array;
    /// One a prefill: position of its first input token.
    extend_prefix_lens, extend_prefix_lens_array;
    /// One a prefill: how many of its input tokens were computed before and are re-fed.
    extend_replay_lens, extend_replay_lens_array;
    /// One a decode: its input token where the executor cannot know it, else -1.
    decode_input_ids, decode_input_ids_array;
    /// One a prefill: tokens that its admission found cached on the Device; 0 but on an admission's
    /// first chunk.
    device_hit_tokens, device_hit_tokens_array;
    /// One a prefill: tokens that its admission loads from the Host.
    host_hit_tokens, host_hit_tokens_array;
}
