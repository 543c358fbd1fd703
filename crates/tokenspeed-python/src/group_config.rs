//! A cache group's configuration, and the list of them.

use std::sync::Arc;

use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use tokenspeed_scheduler as core;
use tokenspeed_scheduler::{CacheGroupFamily, CacheRetention, CacheTransferPolicy};

use crate::enums::Choice;
use crate::field::{Field, setters};
use crate::guard;
use crate::items;
use crate::repr::Repr;

/// The cache of one attention structure: its geometry, retention and packing.
///
/// `CacheGroupConfig()` and fields set afterwards do as well as the constructor's arguments.
#[pyclass(module = "tokenspeed.scheduler", frozen, get_all)]
pub struct CacheGroupConfig {
    /// Name, unique in the configuration.
    group_id: Field<String>,
    /// Tokens that one block covers; divides `prefix_granularity`.
    block_granularity: Field<i64>,
    /// Blocks in the arena, the null block included: usable LCM blocks times
    /// `cache_blocks_per_lcm_block`, plus 1.
    total_pages: Field<i64>,
    /// How much of a request's past is kept.
    retention: Field<Choice<CacheRetention>>,
    /// Tokens that a sliding group keeps; None with full history.
    sliding_window_tokens: Field<Option<i64>>,
    /// What the blocks hold.
    family: Field<Choice<CacheGroupFamily>>,
    /// Blocks that one LCM block carries.
    cache_blocks_per_lcm_block: Field<i64>,
    /// What a prefill worker ships; has to be declared on the roles P and D.
    transfer_policy: Field<Choice<CacheTransferPolicy>>,
    /// Shards that an LCM block's blocks are split over; divides `cache_blocks_per_lcm_block`.
    shard_count: Field<i64>,
    /// Whether rows are regenerated from re-fed prompt tokens instead of cached.
    replayable: Field<bool>,
}

setters!(
    CacheGroupConfig:
    set_group_id(group_id: String),
    set_block_granularity(block_granularity: i64),
    set_total_pages(total_pages: i64),
    set_retention(retention: Choice<CacheRetention>),
    set_sliding_window_tokens(sliding_window_tokens: Option<i64>),
    set_family(family: Choice<CacheGroupFamily>),
    set_cache_blocks_per_lcm_block(cache_blocks_per_lcm_block: i64),
    set_transfer_policy(transfer_policy: Choice<CacheTransferPolicy>),
    set_shard_count(shard_count: i64),
    set_replayable(replayable: bool),
);

#[pymethods]
impl CacheGroupConfig {
    #[new]
    #[pyo3(
        signature = (
            group_id = String::new(),
            block_granularity = 0,
            total_pages = 0,
            retention = Choice(CacheRetention::FullHistory),
            sliding_window_tokens = None,
            family = Choice(CacheGroupFamily::History),
            cache_blocks_per_lcm_block = 1,
            transfer_policy = Choice(CacheTransferPolicy::Unspecified),
            shard_count = 1,
            replayable = false,
        ),
        text_signature = "(group_id='', block_granularity=0, total_pages=0, retention=..., \
                          sliding_window_tokens=None, family=..., cache_blocks_per_lcm_block=1, \
                          transfer_policy=..., shard_count=1, replayable=False)",
    )]
    #[allow(clippy::too_many_arguments, reason = "one a field; Python passes them by name")]
    fn new(
        group_id: String,
        block_granularity: i64,
        total_pages: i64,
        retention: Choice<CacheRetention>,
        sliding_window_tokens: Option<i64>,
        family: Choice<CacheGroupFamily>,
        cache_blocks_per_lcm_block: i64,
        transfer_policy: Choice<CacheTransferPolicy>,
        shard_count: i64,
        replayable: bool,
    ) -> Self {
        CacheGroupConfig {
            group_id: group_id.into(),
            block_granularity: block_granularity.into(),
            total_pages: total_pages.into(),
            retention: retention.into(),
            sliding_window_tokens: sliding_window_tokens.into(),
            family: family.into(),
            cache_blocks_per_lcm_block: cache_blocks_per_lcm_block.into(),
            transfer_policy: transfer_policy.into(),
            shard_count: shard_count.into(),
            replayable: replayable.into(),
        }
    }

    /// Refuses a group that no scheduler could use: ConfigError, naming the field, the value and the
    /// rule.
    fn validate(&self, py: Python<'_>) -> PyResult<()> {
        let group = self.to_core(py);
        guard::checked(py, || group.validate())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let default = core::CacheGroupConfig::default();
        let group = self.to_core(py);
        let mut repr = Repr::of("CacheGroupConfig")
            .text("group_id", &group.group_id)
            .field("block_granularity", group.block_granularity)
            .field("total_pages", group.total_pages);
        if group.retention != default.retention {
            repr = repr.field("retention", format!("CacheRetention.{:?}", group.retention));
        }
        if let Some(window) = group.sliding_window_tokens {
            repr = repr.field("sliding_window_tokens", window);
        }
        if group.family != default.family {
            repr = repr.field("family", format!("CacheGroupFamily.{:?}", group.family));
        }
        if group.cache_blocks_per_lcm_block != default.cache_blocks_per_lcm_block {
            repr = repr.field("cache_blocks_per_lcm_block", group.cache_blocks_per_lcm_block);
        }
        if group.transfer_policy != default.transfer_policy {
            let policy = format!("CacheTransferPolicy.{:?}", group.transfer_policy);
            repr = repr.field("transfer_policy", policy);
        }
        if group.shard_count != default.shard_count {
            repr = repr.field("shard_count", group.shard_count);
        }
        if group.replayable {
            repr = repr.truth("replayable", true);
        }
        repr.finish()
    }
}

impl CacheGroupConfig {
    fn to_core(&self, py: Python<'_>) -> core::CacheGroupConfig {
        core::CacheGroupConfig {
            group_id: self.group_id.get(py),
            block_granularity: self.block_granularity.get(py),
            total_pages: self.total_pages.get(py),
            retention: self.retention.get(py).0,
            sliding_window_tokens: self.sliding_window_tokens.get(py),
            family: self.family.get(py).0,
            cache_blocks_per_lcm_block: self.cache_blocks_per_lcm_block.get(py),
            transfer_policy: self.transfer_policy.get(py).0,
            shard_count: self.shard_count.get(py),
            replayable: self.replayable.get(py),
        }
    }
}

/// A list of `CacheGroupConfig`.
#[derive(Debug, Clone)]
pub struct Groups(Arc<Py<PyList>>);

impl Groups {
    /// This list.
    pub fn of(list: Bound<'_, PyList>) -> Self {
        Groups(Arc::new(list.unbind()))
    }

    /// As Python writes it.
    pub fn repr<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        self.0.bind(py).repr()
    }

    /// What the core reads.
    pub fn to_core(&self, py: Python<'_>) -> PyResult<Vec<core::CacheGroupConfig>> {
        let groups = self.0.bind(py).iter();
        groups.map(|group| Ok(group.cast::<CacheGroupConfig>()?.get().to_core(py))).collect()
    }
}

impl<'py> FromPyObject<'_, 'py> for Groups {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let groups: Vec<Bound<'py, CacheGroupConfig>> = items::of(&value)?;
        Ok(Groups::of(PyList::new(value.py(), groups)?))
    }
}

impl<'py> IntoPyObject<'py> for Groups {
    type Target = PyList;
    type Output = Bound<'py, PyList>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        Ok(self.0.bind(py).clone())
    }
}
