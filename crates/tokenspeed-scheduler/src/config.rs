//! What may be built: the configuration of a scheduler and its cache groups, and the rules it obeys
//! (`api.md`; `cache.md` §1; `scheduler.md` §1.3 and §1.4).
//!
//! Every integer is an `i64`, so that a negative or an outsized value reaches validation and is
//! refused by name; what passes fits 31 bits. Tokens unless a field says otherwise.

mod group;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

pub use group::{
    CacheGroupConfig, CacheGroupFamily, CacheRetention, CacheTransferPolicy, GroupKind,
};

/// What an engine does: prefill for a peer, decode what a peer has prefilled, or both by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Role {
    /// Prefill worker: hands every completed prompt to a decoding peer; never retracts.
    P,
    /// Decode worker: its prompts are prefilled by a peer; recovers retracted ones by itself.
    D,
    /// Prefill and decode in one engine.
    #[default]
    Fused,
}

impl Role {
    /// Whether this engine runs decode steps itself, and so reserves room for their growth.
    pub fn decodes(self) -> bool {
        self != Role::P
    }

    /// Whether this engine exchanges cache with a peer.
    pub fn transfers(self) -> bool {
        self != Role::Fused
    }
}

/// What happens when the pool cannot hold what all residents come to need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum PressurePolicy {
    /// `scheduler.md` §2 and §4 to the letter.
    #[default]
    Document,
    /// The engine keeps its batch: what residents need next comes before any admission, who came last,
    /// or loses least by it, gives way, and who would end last goes first (`docs/goodput.md`).
    Goodput,
}

/// A scheduler's configuration.
///
/// ```
/// use tokenspeed_scheduler::config::{CacheGroupConfig, SchedulerConfig};
///
/// let config = SchedulerConfig {
///     prefix_granularity: 16,
///     num_device_pages: 129,
///     max_scheduled_tokens: 512,
///     max_batch_size: 32,
///     cache_groups: vec![CacheGroupConfig {
///         group_id: "full".into(),
///         block_granularity: 16,
///         total_pages: 129,
///         ..Default::default()
///     }],
///     ..Default::default()
/// };
/// assert!(config.validate().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerConfig {
    /// P: tokens of one prefix page, the unit of hashing and matching.
    pub prefix_granularity: i64,
    /// Device parents, the null one included.
    pub num_device_pages: i64,
    /// Host parents, the null one included; below 2 there is no host tier.
    pub num_host_pages: i64,
    /// Token budget of a round.
    pub max_scheduled_tokens: i64,
    /// Request-pool rows, numbered from 1: the most requests that hold blocks at once.
    pub max_batch_size: i64,
    /// Width of a decode step: 1, or the verify width with speculation.
    pub decode_input_tokens: i64,
    /// Rounds that may be planned before a result lands: 0 or 1.
    pub overlap_schedule_depth: i64,
    /// What this engine does.
    pub role: Role,
    /// The cache groups, in block-table order.
    pub cache_groups: Vec<CacheGroupConfig>,
    /// No host tier, whatever `num_host_pages` says.
    pub disable_l2_cache: bool,
    /// New prompts are not matched. Publication and stores go on, for recovery.
    pub disable_prefix_cache: bool,
    /// An external store behind the host tier.
    pub enable_l3_storage: bool,
    /// Record what enters and leaves the Device's cache, to be drained.
    pub enable_kv_cache_events: bool,
    /// Fused only: prefill and decode may share a round.
    pub enable_mixed_prefill_decode: bool,
    /// Tail of a prompt that is recomputed after any hit.
    pub prefix_replay_tokens: i64,
    /// Who waits and who gives way when memory is short; no matter on the prefill role, which never retracts.
    pub pressure_policy: PressurePolicy,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        SchedulerConfig {
            prefix_granularity: 0,
            num_device_pages: 0,
            num_host_pages: 0,
            max_scheduled_tokens: 0,
            max_batch_size: 0,
            decode_input_tokens: 1,
            overlap_schedule_depth: 0,
            role: Role::Fused,
            cache_groups: Vec::new(),
            disable_l2_cache: false,
            disable_prefix_cache: false,
            enable_l3_storage: false,
            enable_kv_cache_events: false,
            enable_mixed_prefill_decode: false,
            prefix_replay_tokens: 0,
            pressure_policy: PressurePolicy::Document,
        }
    }
}

impl SchedulerConfig {
    /// Device parents that requests can hold.
    pub fn usable_device_parents(&self) -> i64 {
        (self.num_device_pages - 1).max(0)
    }

    /// Host parents that the cache can hold; 0 without a host tier.
    pub fn usable_host_parents(&self) -> i64 {
        if self.disable_l2_cache { 0 } else { (self.num_host_pages - 1).max(0) }
    }

    /// Whether there is a host tier.
    pub fn has_host_tier(&self) -> bool {
        self.usable_host_parents() > 0
    }

    /// Whether any group keeps recurrent states, beside which chunks end on page boundaries.
    pub fn has_state_group(&self) -> bool {
        self.cache_groups.iter().any(|group| group.kind() == GroupKind::State)
    }

    /// W of bounded replay: the largest window of a replayable group, 0 without one
    /// (`scheduler.md` §1.3).
    pub fn replay_window_tokens(&self) -> i64 {
        let windows = self.cache_groups.iter().filter(|group| group.replayable);
        windows.filter_map(|group| group.sliding_window_tokens).max().unwrap_or(0)
    }

    /// Whether what live requests publish is stored on the Host, and what a finished one leaves: not on the
    /// decode role (`cache.md` §6).
    pub fn streams_to_host(&self) -> bool {
        self.role != Role::D
    }

    /// Refuses what a scheduler cannot run.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] for the first field at fault, with its value and the rule.
    pub fn validate(&self) -> Result<()> {
        self.validate_capacity_inputs()?;
        for group in &self.cache_groups {
            group.validate()?;
        }
        positive("max_batch_size", self.max_batch_size, "the rows that requests run in")?;
        at_least("num_device_pages", self.num_device_pages, 2, "the null page and usable ones")?;
        at_least("num_host_pages", self.num_host_pages, 0, "0 without a host tier")?;
        at_least("prefix_replay_tokens", self.prefix_replay_tokens, 0, "0 recomputes nothing")?;
        if self.enable_l3_storage && !self.has_host_tier() {
            let rule = "be False without a host cache: enable L2 and give it at least 2 \
                        `num_host_pages`";
            return Err(Error::config("enable_l3_storage", "True", rule));
        }
        self.validate_decode_budget()?;
        self.validate_sizes()
    }

    /// The subset that the capacity model reads: everything but the pool's size and what does not
    /// bear on it (`scheduler.md` §1.4). `max_batch_size` may be 0 here: a model of no requests.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] for the first field at fault, with its value and the rule.
    pub fn validate_capacity_inputs(&self) -> Result<()> {
        positive("prefix_granularity", self.prefix_granularity, "the tokens of one prefix page")?;
        positive("max_scheduled_tokens", self.max_scheduled_tokens, "the token budget of a round")?;
        at_least("max_batch_size", self.max_batch_size, 0, "the rows that requests run in")?;
        positive("decode_input_tokens", self.decode_input_tokens, "1 without speculation")?;
        if !(0..=1).contains(&self.overlap_schedule_depth) {
            let rule = "be 0 or 1 (rounds planned before a result lands)";
            return Err(Error::config("overlap_schedule_depth", self.overlap_schedule_depth, rule));
        }
        if self.cache_groups.is_empty() {
            return Err(Error::config("cache_groups", "[]", "have at least one group"));
        }
        for (index, group) in self.cache_groups.iter().enumerate() {
            group.validate_shape()?;
            group.validate_transfer(self.role)?;
            let g = group.block_granularity;
            if self.prefix_granularity % g != 0 {
                let rule = format!("divide `prefix_granularity` ({})", self.prefix_granularity);
                return Err(Error::config(group.field("block_granularity"), g, &rule));
            }
            if self.cache_groups[..index].iter().any(|other| other.group_id == group.group_id) {
                let value = format!("'{}'", group.group_id);
                return Err(Error::config("cache_groups.group_id", value, "be unique"));
            }
        }
        self.validate_chunk_budget()
    }

    /// The round's budget has to carry a prefill forward: a prefix page beside a state group, whose
    /// chunks end on page boundaries, and the replayed window plus a final chunk or a page beside
    /// a replayable group (`scheduler.md` §1.2 and §1.3).
    fn validate_chunk_budget(&self) -> Result<()> {
        let (budget, page) = (self.max_scheduled_tokens, self.prefix_granularity);
        let has_state_group = self.has_state_group();
        let replay_group = self.cache_groups.iter().find(|group| group.replayable);
        if let (true, Some(replay)) = (has_state_group, replay_group) {
            let rule = "be False beside a State group: a snapshot cannot be re-fed";
            return Err(Error::config(replay.field("replayable"), "True", rule));
        }
        if has_state_group && budget < page {
            let rule = format!("cover one `prefix_granularity` ({page}) beside a State group");
            return Err(Error::config("max_scheduled_tokens", budget, &rule));
        }
        let window = self.replay_window_tokens();
        let least = window + window.max(page);
        if replay_group.is_some() && budget < least {
            let rule = format!(
                "be at least {least}: the replayable groups' largest window ({window}) plus the \
                 larger of that window and `prefix_granularity` ({page})"
            );
            return Err(Error::config("max_scheduled_tokens", budget, &rule));
        }
        Ok(())
    }

    /// A fused engine debits its decode steps from the round's budget, so one step has to fit it:
    /// otherwise every request would stand still after its prefill (`liveness.md` 1).
    fn validate_decode_budget(&self) -> Result<()> {
        let (budget, width) = (self.max_scheduled_tokens, self.decode_input_tokens);
        if self.role == Role::Fused && budget < width {
            let rule = format!("cover one decode step (`decode_input_tokens`, {width})");
            return Err(Error::config("max_scheduled_tokens", budget, &rule));
        }
        Ok(())
    }

    /// The tables of rows and blocks are made at once: a size that no machine holds is refused by
    /// name, since an allocation that fails would end the process (`liveness.md` 4).
    fn validate_sizes(&self) -> Result<()> {
        if self.max_batch_size > MAX_ROWS {
            let rule = format!("be at most {MAX_ROWS} (the rows that requests run in)");
            return Err(Error::config("max_batch_size", self.max_batch_size, &rule));
        }
        for (field, parents) in [
            ("num_device_pages", self.usable_device_parents()),
            ("num_host_pages", self.usable_host_parents()),
        ] {
            let blocks_of =
                |group: &CacheGroupConfig| parents.saturating_mul(group.cache_blocks_per_lcm_block);
            let blocks = self.cache_groups.iter().map(blocks_of).fold(parents, i64::saturating_add);
            if blocks > MAX_BLOCKS {
                let rule = format!(
                    "come to at most {MAX_BLOCKS} blocks over all groups, \
                     `cache_blocks_per_lcm_block` each a parent; here {blocks}"
                );
                return Err(Error::config(field, parents + 1, &rule));
            }
        }
        Ok(())
    }
}

/// Rows of a request pool: far beyond a batch that a device runs.
const MAX_ROWS: i64 = 1 << 16;

/// Blocks of a tier: some gigabytes of bookkeeping, far beyond a device's or a host's memory.
const MAX_BLOCKS: i64 = 1 << 26;

/// The largest value of an integer field: what fits the 32-bit arrays of a plan.
const MAX_VALUE: i64 = i32::MAX as i64;

/// Refuses a value below `least` or one that does not fit 31 bits; `meaning` says what it counts.
fn at_least(field: impl Into<String>, value: i64, least: i64, meaning: &str) -> Result<()> {
    if value < least {
        let rule = match least {
            1 => format!("be positive ({meaning})"),
            _ => format!("be at least {least} ({meaning})"),
        };
        return Err(Error::config(field, value, &rule));
    }
    if value > MAX_VALUE {
        return Err(Error::config(field, value, &format!("be at most {MAX_VALUE} ({meaning})")));
    }
    Ok(())
}

/// Refuses what is not a positive 31-bit value.
fn positive(field: impl Into<String>, value: i64, meaning: &str) -> Result<()> {
    at_least(field, value, 1, meaning)
}
