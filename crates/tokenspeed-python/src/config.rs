//! A scheduler's configuration, read and written field by field.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};
use tokenspeed_scheduler as core;
use tokenspeed_scheduler::{PressurePolicy, Role};

use crate::enums::{Choice, PythonEnum};
use crate::field::{Field, setters};
use crate::group_config::Groups;
use crate::repr::Repr;

/// A scheduler's configuration; read when a `Scheduler` or `CapacityModel` is built from it.
///
/// Fields are in tokens unless they say otherwise. `SchedulerConfig()` and fields set afterwards do
/// as well as keyword arguments.
#[pyclass(module = "tokenspeed.scheduler", frozen, get_all)]
pub struct SchedulerConfig {
    /// Tokens of one prefix page, the unit of hashing and matching.
    prefix_granularity: Field<i64>,
    /// Device LCM blocks, the null one included.
    num_device_pages: Field<i64>,
    /// Host LCM blocks, the null one included; 0 without a host tier.
    num_host_pages: Field<i64>,
    /// Token budget of a round.
    max_scheduled_tokens: Field<i64>,
    /// Rows of the request pool: the most requests that hold blocks at once. Rows are numbered from
    /// 1; row 0 is reserved.
    max_batch_size: Field<i64>,
    /// Width of a decode step: 1, or the verify width with speculation.
    decode_input_tokens: Field<i64>,
    /// Rounds that may be planned before a result lands: 0 or 1.
    overlap_schedule_depth: Field<i64>,
    /// What the engine does.
    role: Field<Choice<Role>>,
    /// The cache groups (CacheGroupConfig), in block-table order.
    cache_groups: Field<Groups>,
    /// No host tier, whatever `num_host_pages` says.
    disable_l2_cache: Field<bool>,
    /// New prompts match nothing.
    disable_prefix_cache: Field<bool>,
    /// An external store behind the host tier.
    enable_l3_storage: Field<bool>,
    /// Record what enters and leaves the Device's prefix cache, for `Scheduler.drain_kv_events`.
    enable_kv_cache_events: Field<bool>,
    /// Fused role only: prefill and decode may share a round.
    enable_mixed_prefill_decode: Field<bool>,
    /// Tail of a prompt that is recomputed after any hit.
    prefix_replay_tokens: Field<i64>,
    /// Who waits and who gives way when memory is short.
    pressure_policy: Field<Choice<PressurePolicy>>,
}

setters!(
    SchedulerConfig:
    set_prefix_granularity(prefix_granularity: i64),
    set_num_device_pages(num_device_pages: i64),
    set_num_host_pages(num_host_pages: i64),
    set_max_scheduled_tokens(max_scheduled_tokens: i64),
    set_max_batch_size(max_batch_size: i64),
    set_decode_input_tokens(decode_input_tokens: i64),
    set_overlap_schedule_depth(overlap_schedule_depth: i64),
    set_role(role: Choice<Role>),
    set_cache_groups(cache_groups: Groups),
    set_disable_l2_cache(disable_l2_cache: bool),
    set_disable_prefix_cache(disable_prefix_cache: bool),
    set_enable_l3_storage(enable_l3_storage: bool),
    set_enable_kv_cache_events(enable_kv_cache_events: bool),
    set_enable_mixed_prefill_decode(enable_mixed_prefill_decode: bool),
    set_prefix_replay_tokens(prefix_replay_tokens: i64),
    set_pressure_policy(pressure_policy: Choice<PressurePolicy>),
);

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
            prefix_granularity: prefix_granularity.into(),
            num_device_pages: num_device_pages.into(),
            num_host_pages: num_host_pages.into(),
            max_scheduled_tokens: max_scheduled_tokens.into(),
            max_batch_size: max_batch_size.into(),
            decode_input_tokens: decode_input_tokens.into(),
            overlap_schedule_depth: overlap_schedule_depth.into(),
            role: role.into(),
            cache_groups: cache_groups.unwrap_or_else(|| Groups::of(PyList::empty(py))).into(),
            disable_l2_cache: disable_l2_cache.into(),
            disable_prefix_cache: disable_prefix_cache.into(),
            enable_l3_storage: enable_l3_storage.into(),
            enable_kv_cache_events: enable_kv_cache_events.into(),
            enable_mixed_prefill_decode: enable_mixed_prefill_decode.into(),
            prefix_replay_tokens: prefix_replay_tokens.into(),
            pressure_policy: pressure_policy.into(),
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
        repr = repr.field("cache_groups", self.cache_groups.get(py).repr(py)?);
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
            prefix_granularity: self.prefix_granularity.get(py),
            num_device_pages: self.num_device_pages.get(py),
            num_host_pages: self.num_host_pages.get(py),
            max_scheduled_tokens: self.max_scheduled_tokens.get(py),
            max_batch_size: self.max_batch_size.get(py),
            decode_input_tokens: self.decode_input_tokens.get(py),
            overlap_schedule_depth: self.overlap_schedule_depth.get(py),
            role: self.role.get(py).0,
            cache_groups: self.cache_groups.get(py).to_core(py)?,
            disable_l2_cache: self.disable_l2_cache.get(py),
            disable_prefix_cache: self.disable_prefix_cache.get(py),
            enable_l3_storage: self.enable_l3_storage.get(py),
            enable_kv_cache_events: self.enable_kv_cache_events.get(py),
            enable_mixed_prefill_decode: self.enable_mixed_prefill_decode.get(py),
            prefix_replay_tokens: self.prefix_replay_tokens.get(py),
            pressure_policy: self.pressure_policy.get(py).0,
        })
    }
}
