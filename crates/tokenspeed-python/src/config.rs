//! The configuration, read and written field by field.

use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};
use tokenspeed_scheduler as core;
use tokenspeed_scheduler::{
    CacheGroupFamily, CacheRetention, CacheTransferPolicy, PressurePolicy, Role,
};

use crate::enums::{Choice, PythonEnum};
use crate::guard;
use crate::items;
use crate::repr::Repr;

/// The cache of one attention structure: its geometry, retention and packing.
///
/// `CacheGroupConfig()` and fields set afterwards do as well as the constructor's arguments.
#[pyclass(module = "tokenspeed.scheduler", get_all, set_all)]
#[derive(Debug)]
pub struct CacheGroupConfig {
    /// Name, unique in the configuration.
    group_id: String,
    /// Tokens that one block covers; divides `prefix_granularity`.
    block_granularity: i64,
    /// Blocks in the arena, the null block included: usable LCM blocks times
    /// `cache_blocks_per_lcm_block`, plus 1.
    total_pages: i64,
    /// How much of a request's past is kept.
    retention: Choice<CacheRetention>,
    /// Tokens that a sliding group keeps; None with full history.
    sliding_window_tokens: Option<i64>,
    /// What the blocks hold.
    family: Choice<CacheGroupFamily>,
    /// Blocks that one LCM block carries.
    cache_blocks_per_lcm_block: i64,
    /// What a prefill worker ships; has to be declared on the roles P and D.
    transfer_policy: Choice<CacheTransferPolicy>,
    /// Shards that an LCM block's blocks are split over; divides `cache_blocks_per_lcm_block`.
    shard_count: i64,
    /// Whether rows are regenerated from re-fed prompt tokens instead of cached.
    replayable: bool,
}

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
            group_id,
            block_granularity,
            total_pages,
            retention,
            sliding_window_tokens,
            family,
            cache_blocks_per_lcm_block,
            transfer_policy,
            shard_count,
            replayable,
        }
    }

    /// Refuses a group that no scheduler could use: ConfigError, naming the field, the value and the
    /// rule.
    fn validate(&self, py: Python<'_>) -> PyResult<()> {
        guard::checked(py, || self.to_core().validate())
    }

    fn __repr__(&self) -> String {
        let default = core::CacheGroupConfig::default();
        let mut repr = Repr::of("CacheGroupConfig")
            .text("group_id", &self.group_id)
            .field("block_granularity", self.block_granularity)
            .field("total_pages", self.total_pages);
        if self.retention.0 != default.retention {
            repr = repr.field("retention", format!("CacheRetention.{:?}", self.retention.0));
        }
        if let Some(window) = self.sliding_window_tokens {
            repr = repr.field("sliding_window_tokens", window);
        }
        if self.family.0 != default.family {
            repr = repr.field("family", format!("CacheGroupFamily.{:?}", self.family.0));
        }
        if self.cache_blocks_per_lcm_block != default.cache_blocks_per_lcm_block {
            repr = repr.field("cache_blocks_per_lcm_block", self.cache_blocks_per_lcm_block);
        }
        if self.transfer_policy.0 != default.transfer_policy {
            let policy = format!("CacheTransferPolicy.{:?}", self.transfer_policy.0);
            repr = repr.field("transfer_policy", policy);
        }
        if self.shard_count != default.shard_count {
            repr = repr.field("shard_count", self.shard_count);
        }
        if self.replayable {
            repr = repr.truth("replayable", true);
        }
        repr.finish()
    }
}

impl CacheGroupConfig {
    fn to_core(&self) -> core::CacheGroupConfig {
        core::CacheGroupConfig {
            group_id: self.group_id.clone(),
            block_granularity: self.block_granularity,
            total_pages: self.total_pages,
            retention: self.retention.0,
            sliding_window_tokens: self.sliding_window_tokens,
            family: self.family.0,
            cache_blocks_per_lcm_block: self.cache_blocks_per_lcm_block,
            transfer_policy: self.transfer_policy.0,
            shard_count: self.shard_count,
            replayable: self.replayable,
        }
    }
}

/// A scheduler's configuration; read when a `Scheduler` or `CapacityModel` is built from it.
///
/// Fields are in tokens unless they say otherwise. `SchedulerConfig()` and fields set afterwards do
/// as well as keyword arguments.
#[pyclass(module = "tokenspeed.scheduler", get_all, set_all)]
#[derive(Debug)]
pub struct SchedulerConfig {
    /// Tokens of one prefix page, the unit of hashing and matching.
    prefix_granularity: i64,
    /// Device LCM blocks, the null one included.
    num_device_pages: i64,
    /// Host LCM blocks, the null one included; 0 without a host tier.
    num_host_pages: i64,
    /// Token budget of a round.
    max_scheduled_tokens: i64,
    /// Rows of the request pool: the most requests that hold blocks at once. Rows are numbered from
    /// 1; row 0 is reserved.
    max_batch_size: i64,
    /// Width of a decode step: 1, or the verify width with speculation.
    decode_input_tokens: i64,
    /// Rounds that may be planned before a result lands: 0 or 1.
    overlap_schedule_depth: i64,
    /// What the engine does.
    role: Choice<Role>,
    /// The cache groups (CacheGroupConfig), in block-table order.
    cache_groups: Groups,
    /// No host tier, whatever `num_host_pages` says.
    disable_l2_cache: bool,
    /// New prompts match nothing.
    disable_prefix_cache: bool,
    /// An external store behind the host tier.
    enable_l3_storage: bool,
    /// Record what enters and leaves the Device's prefix cache, for `Scheduler.drain_kv_events`.
    enable_kv_cache_events: bool,
    /// Fused role only: prefill and decode may share a round.
    enable_mixed_prefill_decode: bool,
    /// Tail of a prompt that is recomputed after any hit.
    prefix_replay_tokens: i64,
    /// Who waits and who gives way when memory is short.
    pressure_policy: Choice<PressurePolicy>,
}

/// A list of `CacheGroupConfig`.
#[derive(Debug)]
struct Groups(Py<PyList>);

#[pymethods]
impl SchedulerConfig {
    #[new]
    #[pyo3(
        signature = (
            *,
            prefix_granularity = 0,
            num_device_pages = 0,
            num_host_pages = 0,
            max_scheduled_tokens = 0,
            max_batch_size = 0,
            decode_input_tokens = 1,
            overlap_schedule_depth = 0,
            role = Choice(Role::Fused),
            cache_groups = None,
            disable_l2_cache = false,
            disable_prefix_cache = false,
            enable_l3_storage = false,
            enable_kv_cache_events = false,
            enable_mixed_prefill_decode = false,
            prefix_replay_tokens = 0,
            pressure_policy = Choice(PressurePolicy::Document),
        ),
    )]
    #[allow(clippy::too_many_arguments, reason = "one a field; Python passes them by name")]
    fn new(
        py: Python<'_>,
        prefix_granularity: i64,
        num_device_pages: i64,
        num_host_pages: i64,
        max_scheduled_tokens: i64,
        max_batch_size: i64,
        decode_input_tokens: i64,
        overlap_schedule_depth: i64,
        role: Choice<Role>,
        cache_groups: Option<Groups>,
        disable_l2_cache: bool,
        disable_prefix_cache: bool,
        enable_l3_storage: bool,
        enable_kv_cache_events: bool,
        enable_mixed_prefill_decode: bool,
        prefix_replay_tokens: i64,
        pressure_policy: Choice<PressurePolicy>,
    ) -> Self {
        SchedulerConfig {
            prefix_granularity,
            num_device_pages,
            num_host_pages,
            max_scheduled_tokens,
            max_batch_size,
            decode_input_tokens,
            overlap_schedule_depth,
            role,
            cache_groups: cache_groups.unwrap_or_else(|| Groups(PyList::empty(py).unbind())),
            disable_l2_cache,
            disable_prefix_cache,
            enable_l3_storage,
            enable_kv_cache_events,
            enable_mixed_prefill_decode,
            prefix_replay_tokens,
            pressure_policy,
        }
    }

    /// What the engine does.
    #[classattr]
    #[pyo3(name = "Role")]
    fn role_class(py: Python<'_>) -> PyResult<Py<PyType>> {
        Ok(Role::class(py)?.clone().unbind())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let default = core::SchedulerConfig::default();
        let config = self.to_core(py)?;
        let mut repr = Repr::of("SchedulerConfig");
        if config.prefix_granularity != default.prefix_granularity {
            repr = repr.field("prefix_granularity", config.prefix_granularity);
        }
        if config.num_device_pages != default.num_device_pages {
            repr = repr.field("num_device_pages", config.num_device_pages);
        }
        if config.num_host_pages != default.num_host_pages {
            repr = repr.field("num_host_pages", config.num_host_pages);
        }
        if config.max_scheduled_tokens != default.max_scheduled_tokens {
            repr = repr.field("max_scheduled_tokens", config.max_scheduled_tokens);
        }
        if config.max_batch_size != default.max_batch_size {
            repr = repr.field("max_batch_size", config.max_batch_size);
        }
        if config.decode_input_tokens != default.decode_input_tokens {
            repr = repr.field("decode_input_tokens", config.decode_input_tokens);
        }
        if config.overlap_schedule_depth != default.overlap_schedule_depth {
            repr = repr.field("overlap_schedule_depth", config.overlap_schedule_depth);
        }
        if config.role != default.role {
            repr = repr.field("role", format!("SchedulerConfig.Role.{:?}", config.role));
        }
        repr = repr.field("cache_groups", self.cache_groups.0.bind(py).repr()?);
        if config.disable_l2_cache {
            repr = repr.truth("disable_l2_cache", true);
        }
        if config.disable_prefix_cache {
            repr = repr.truth("disable_prefix_cache", true);
        }
        if config.enable_l3_storage {
            repr = repr.truth("enable_l3_storage", true);
        }
        if config.enable_kv_cache_events {
            repr = repr.truth("enable_kv_cache_events", true);
        }
        if config.enable_mixed_prefill_decode {
            repr = repr.truth("enable_mixed_prefill_decode", true);
        }
        if config.prefix_replay_tokens != default.prefix_replay_tokens {
            repr = repr.field("prefix_replay_tokens", config.prefix_replay_tokens);
        }
        if config.pressure_policy != default.pressure_policy {
            let policy = format!("PressurePolicy.{:?}", config.pressure_policy);
            repr = repr.field("pressure_policy", policy);
        }
        Ok(repr.finish())
    }
}

impl SchedulerConfig {
    /// What the core reads.
    pub fn to_core(&self, py: Python<'_>) -> PyResult<core::SchedulerConfig> {
        Ok(core::SchedulerConfig {
            prefix_granularity: self.prefix_granularity,
            num_device_pages: self.num_device_pages,
            num_host_pages: self.num_host_pages,
            max_scheduled_tokens: self.max_scheduled_tokens,
            max_batch_size: self.max_batch_size,
            decode_input_tokens: self.decode_input_tokens,
            overlap_schedule_depth: self.overlap_schedule_depth,
            role: self.role.0,
            cache_groups: self.cache_groups.to_core(py)?,
            disable_l2_cache: self.disable_l2_cache,
            disable_prefix_cache: self.disable_prefix_cache,
            enable_l3_storage: self.enable_l3_storage,
            enable_kv_cache_events: self.enable_kv_cache_events,
            enable_mixed_prefill_decode: self.enable_mixed_prefill_decode,
            prefix_replay_tokens: self.prefix_replay_tokens,
            pressure_policy: self.pressure_policy.0,
        })
    }
}

impl Groups {
    fn to_core(&self, py: Python<'_>) -> PyResult<Vec<core::CacheGroupConfig>> {
        let groups = self.0.bind(py).iter();
        groups.map(|group| Ok(group.cast::<CacheGroupConfig>()?.try_borrow()?.to_core())).collect()
    }
}

impl<'py> FromPyObject<'_, 'py> for Groups {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let groups: Vec<Bound<'py, CacheGroupConfig>> = items::of(&value)?;
        Ok(Groups(PyList::new(value.py(), groups)?.unbind()))
    }
}

impl<'py> IntoPyObject<'py> for &Groups {
    type Target = PyList;
    type Output = Bound<'py, PyList>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        Ok(self.0.bind(py).clone())
    }
}
