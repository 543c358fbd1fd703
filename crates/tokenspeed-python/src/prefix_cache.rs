//! The prefix cache as a whole: emptying it, naming its pages, an external store's keys.

use std::borrow::Cow;

use pyo3::prelude::*;
use tokenspeed_recording::Call;
use tokenspeed_scheduler as core;
use tokenspeed_scheduler::StorageKeys;

use crate::integers::{Integers, Tokens};
use crate::items;
use crate::scheduler::Scheduler;

#[pymethods]
impl Scheduler {
    /// Empties the Device's prefix cache; False, and nothing changed, while something else owns a
    /// part of it.
    fn clear_l1_cache(&self, py: Python<'_>) -> PyResult<bool> {
        self.core.call(py, false, (), |()| Call::ClearL1Cache, |core, ()| Ok(core.clear_l1_cache()))
    }

    /// Empties the prefix caches of both tiers, or neither.
    fn clear_cache(&self, py: Python<'_>) -> PyResult<bool> {
        self.core.call(py, false, (), |()| Call::ClearCache, |core, ()| Ok(core.clear_cache()))
    }

    /// Whether `clear_l1_cache` would.
    fn can_clear_cache(&self, py: Python<'_>) -> PyResult<bool> {
        self.core.read(py, core::Scheduler::can_clear_cache)
    }

    /// Content hashes, in hex, of the prefix pages that a prompt of `tokens` (a list or any int32
    /// buffer) could match: its complete pages without that of its last token.
    fn prefix_hashes_for_tokens(&self, py: Python<'_>, tokens: Tokens) -> PyResult<Vec<String>> {
        self.core.read(py, |core| core.prefix_hashes_for_tokens(&tokens.0))
    }

    /// Content hashes, in hex, of the prefix pages that the next admissions may match, each once: what
    /// to ask an external store for.
    fn waiting_prefix_hashes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.core.read(py, core::Scheduler::waiting_prefix_hashes)
    }

    /// The blocks of the prefix pages of these content hashes in every cache group, as parallel lists
    /// (group indices, content hashes, ordinals in the page): the keys of an external store. Raises
    /// EventError for a hash that no page could have.
    fn expand_prefix_keys(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = items::of)] content_hashes: Vec<String>,
    ) -> PyResult<(Vec<i64>, Vec<String>, Vec<i64>)> {
        let keys = self.core.attached(py, |core| core.expand_prefix_keys(&content_hashes))?;
        Ok((keys.group_ids, keys.content_hashes, keys.page_offsets))
    }

    /// Tells that the external store holds these blocks (parallel lists, as `expand_prefix_keys`
    /// gives them): a prompt hits them from now on, and its load fetches them first. Raises
    /// EventError for keys that no block could have, UnsupportedError without `enable_l3_storage`.
    fn register_storage_keys(
        &self,
        py: Python<'_>,
        group_ids: Integers<i64>,
        #[pyo3(from_py_with = items::of)] content_hashes: Vec<String>,
        page_offsets: Integers<i64>,
    ) -> PyResult<()> {
        let (group_ids, page_offsets) = (group_ids.0.into_vec(), page_offsets.0.into_vec());
        let keys = StorageKeys { group_ids, content_hashes, page_offsets };
        self.core.call(
            py,
            true,
            keys,
            |keys| Call::RegisterStorageKeys(Cow::Borrowed(keys)),
            core::Scheduler::register_storage_keys,
        )
    }

    /// Tells that the external store no longer holds these blocks; unknown ones are ignored. Raises
    /// as `register_storage_keys` does.
    fn unregister_storage_keys(
        &self,
        py: Python<'_>,
        group_ids: Integers<i64>,
        #[pyo3(from_py_with = items::of)] content_hashes: Vec<String>,
        page_offsets: Integers<i64>,
    ) -> PyResult<()> {
        let (group_ids, page_offsets) = (group_ids.0.into_vec(), page_offsets.0.into_vec());
        let keys = StorageKeys { group_ids, content_hashes, page_offsets };
        self.core.call(
            py,
            true,
            keys,
            |keys| Call::UnregisterStorageKeys(Cow::Borrowed(keys)),
            core::Scheduler::unregister_storage_keys,
        )
    }
}
