//! What entered and left the prefix cache.

use std::sync::Arc;

use pyo3::prelude::*;
use tokenspeed_scheduler::KvEvent;

use crate::repr::Repr;

/// A prefix page that a prompt would now find on the Device.
///
/// `block_hashes` and `parent_block_hash` are unsigned 64-bit integers: the first 16 hex digits of the
/// page's content hash as `Scheduler.prefix_hashes_for_tokens` gives it, so that they are the same in
/// every engine and process. A page's hash covers all tokens up to its end.
#[pyclass(module = "tokenspeed.scheduler.KVEvent", frozen)]
#[derive(Debug)]
pub struct BlockStored {
    hash: u64,
    parent: Option<u64>,
    tokens: Arc<[i32]>,
}

#[pymethods]
impl BlockStored {
    /// `"BlockStored"`.
    #[getter]
    fn kind(&self) -> &'static str {
        "BlockStored"
    }

    /// The page's hash, one entry.
    #[getter]
    fn block_hashes(&self) -> [u64; 1] {
        [self.hash]
    }

    /// The hash of the page before it, which is resident; None for the first of a prompt.
    #[getter]
    fn parent_block_hash(&self) -> Option<u64> {
        self.parent
    }

    /// The page's token ids, `block_size` of them.
    #[getter]
    fn token_ids(&self) -> Vec<i32> {
        self.tokens.to_vec()
    }

    /// Tokens in a page: `SchedulerConfig.prefix_granularity`.
    #[getter]
    fn block_size(&self) -> usize {
        self.tokens.len()
    }

    fn __repr__(&self) -> String {
        let parent = self.parent.map_or("None".into(), |hash| hash.to_string());
        Repr::of("KVEvent.BlockStored")
            .list("block_hashes", &[self.hash])
            .field("parent_block_hash", parent)
            .list("token_ids", &self.tokens)
            .field("block_size", self.block_size())
            .finish()
    }
}

/// A prefix page that no prompt would find on the Device any more.
#[pyclass(module = "tokenspeed.scheduler.KVEvent", frozen)]
#[derive(Debug)]
pub struct BlockRemoved {
    hash: u64,
}

#[pymethods]
impl BlockRemoved {
    /// `"BlockRemoved"`.
    #[getter]
    fn kind(&self) -> &'static str {
        "BlockRemoved"
    }

    /// The page's hash, one entry, as its BlockStored had it.
    #[getter]
    fn block_hashes(&self) -> [u64; 1] {
        [self.hash]
    }

    fn __repr__(&self) -> String {
        Repr::of("KVEvent.BlockRemoved").list("block_hashes", &[self.hash]).finish()
    }
}

/// The Python object for an event.
pub fn object(py: Python<'_>, event: KvEvent) -> PyResult<Py<PyAny>> {
    Ok(match event {
        KvEvent::BlockStored { hash, parent, tokens } => {
            Py::new(py, BlockStored { hash, parent, tokens })?.into_any()
        }
        KvEvent::BlockRemoved { hash } => Py::new(py, BlockRemoved { hash })?.into_any(),
    })
}
