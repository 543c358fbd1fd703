//! A round's copies between the Device and the Host tier.

use std::sync::Arc;

use pyo3::prelude::*;
use tokenspeed_scheduler::cache::CopyOp;
use tokenspeed_scheduler::identity::ContentHash;

use crate::plan::PlanData;
use crate::repr;

/// Stores of a round: parallel lists, the outer one an operation, the inner one a block.
///
/// The engine reports each operation's end with a `Cache.WriteBackDoneEvent`.
#[pyclass(module = "tokenspeed.scheduler.Cache", frozen)]
#[derive(Debug)]
pub struct WriteBackOp(pub Arc<PlanData>);

#[pymethods]
impl WriteBackOp {
    /// Numbers of the operations, one each.
    #[getter]
    fn op_ids(&self) -> &[u64] {
        &self.copy().op_ids
    }

    /// Index of each block's cache group in the configuration.
    #[getter]
    fn group_ids(&self) -> &[Vec<i32>] {
        &self.copy().group_ids
    }

    /// Device page ids to read.
    #[getter]
    fn src_pages(&self) -> &[Vec<i32>] {
        &self.copy().src_pages
    }

    /// Host page ids to write.
    #[getter]
    fn dst_pages(&self) -> &[Vec<i32>] {
        &self.copy().dst_pages
    }

    /// Content hash of the prefix page that each block belongs to, in hex.
    #[getter]
    fn content_hashes(&self) -> Vec<Vec<String>> {
        let of_op = |hashes: &Vec<ContentHash>| hashes.iter().map(ContentHash::to_hex).collect();
        self.copy().content_hashes.iter().map(of_op).collect()
    }

    /// Which of its prefix page's blocks each block is, from 0.
    #[getter]
    fn page_offsets(&self) -> &[Vec<i32>] {
        &self.copy().page_offsets
    }

    /// One an operation: True where the sources stay as they are until the acknowledgement; False
    /// where the copy has to be ordered before the rest of the round.
    #[getter]
    fn source_pinned(&self) -> &[bool] {
        &self.copy().source_pinned
    }

    fn __repr__(&self) -> String {
        describe("Cache.WriteBackOp", self.copy())
    }
}

impl WriteBackOp {
    fn copy(&self) -> &CopyOp {
        &self.0.plan.write_back
    }
}

/// Loads of a round: parallel lists, the outer one an operation, the inner one a block.
///
/// The engine reports each operation's end with a `Cache.LoadBackDoneEvent`.
#[pyclass(module = "tokenspeed.scheduler.Cache", frozen)]
#[derive(Debug)]
pub struct LoadBackOp(pub Arc<PlanData>);

#[pymethods]
impl LoadBackOp {
    /// Numbers of the operations, one each.
    #[getter]
    fn op_ids(&self) -> &[u64] {
        &self.copy().op_ids
    }

    /// Index of each block's cache group in the configuration.
    #[getter]
    fn group_ids(&self) -> &[Vec<i32>] {
        &self.copy().group_ids
    }

    /// Host page ids to read.
    #[getter]
    fn src_pages(&self) -> &[Vec<i32>] {
        &self.copy().src_pages
    }

    /// Device page ids to write.
    #[getter]
    fn dst_pages(&self) -> &[Vec<i32>] {
        &self.copy().dst_pages
    }

    /// What to fetch from the external store: content hashes in hex; "" where the Host has the
    /// block.
    #[getter]
    fn content_hashes(&self) -> Vec<Vec<String>> {
        let copy = self.copy();
        let ops = copy.content_hashes.iter().enumerate();
        ops.map(|(op, hashes)| {
            let blocks = hashes.iter().enumerate();
            let text = |(block, hash): (usize, &ContentHash)| match fetches(copy, op, block) {
                true => hash.to_hex(),
                false => String::new(),
            };
            blocks.map(text).collect()
        })
        .collect()
    }

    /// Which of its prefix page's blocks each block is, from 0.
    #[getter]
    fn page_offsets(&self) -> &[Vec<i32>] {
        &self.copy().page_offsets
    }

    /// One a block: 1 where it has to be fetched from the external store first, else 0.
    #[getter]
    fn prefetch_from_storage(&self) -> Vec<Vec<i32>> {
        let copy = self.copy();
        let ops = copy.src_pages.iter().enumerate();
        ops.map(|(op, pages)| {
            (0..pages.len()).map(|block| i32::from(fetches(copy, op, block))).collect()
        })
        .collect()
    }

    fn __repr__(&self) -> String {
        describe("Cache.LoadBackOp", self.copy())
    }
}

impl LoadBackOp {
    fn copy(&self) -> &CopyOp {
        &self.0.plan.load_back
    }
}

/// Whether a block comes from the external store; the core lists none where all are on the Host.
fn fetches(copy: &CopyOp, op: usize, block: usize) -> bool {
    copy.prefetch_from_storage.get(op).and_then(|blocks| blocks.get(block)) == Some(&1)
}

fn describe(class: &str, copy: &CopyOp) -> String {
    let blocks: Vec<usize> = copy.src_pages.iter().map(Vec::len).collect();
    format!("<{class}: op_ids={}, of {} blocks>", repr::list(&copy.op_ids), repr::list(&blocks))
}
