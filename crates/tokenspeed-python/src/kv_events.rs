//! What entered and left the prefix cache.

use pyo3::prelude::*;

use crate::repr::Repr;

/// A prefix page that every cache group now holds on the Device.
#[pyclass(module = "tokenspeed.scheduler.KVEvent", frozen, get_all)]
#[derive(Debug)]
pub struct BlockStored {
    /// The page's hash, one entry.
    block_hashes: Vec<u64>,
    /// The hash of the page before it; None for the first of a prompt.
    parent_block_hash: Option<u64>,
    /// The page's token ids, `block_size` of them.
    token_ids: Vec<i32>,
    /// Tokens in a page.
    block_size: i64,
}

#[pymethods]
impl BlockStored {
    /// `"BlockStored"`.
    #[getter]
    fn kind(&self) -> &'static str {
        "BlockStored"
    }

    fn __repr__(&self) -> String {
        let parent = self.parent_block_hash.map_or("None".into(), |hash| hash.to_string());
        Repr::of("KVEvent.BlockStored")
            .list("block_hashes", &self.block_hashes)
            .field("parent_block_hash", parent)
            .list("token_ids", &self.token_ids)
            .field("block_size", self.block_size)
            .finish()
    }
}

/// A prefix page that a cache group no longer holds on the Device.
#[pyclass(module = "tokenspeed.scheduler.KVEvent", frozen, get_all)]
#[derive(Debug)]
pub struct BlockRemoved {
    /// The page's hash, one entry.
    block_hashes: Vec<u64>,
}

#[pymethods]
impl BlockRemoved {
    /// `"BlockRemoved"`.
    #[getter]
    fn kind(&self) -> &'static str {
        "BlockRemoved"
    }

    fn __repr__(&self) -> String {
        Repr::of("KVEvent.BlockRemoved").list("block_hashes", &self.block_hashes).finish()
    }
}
