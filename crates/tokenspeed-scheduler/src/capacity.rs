//! What one request, and many of them, need of a pool (`scheduler.md` §1.4).
//!
//! The model reads only what is known before a pool exists, so that the same arithmetic sizes an
//! arena and then bounds each request against it. What admission reserves is stated here once, as
//! free functions of the configuration; neither side restates it.
//!
//! A *token limit* L counts every position that a request may ever write: its prompt and what
//! follows, at least one decode slot. The pages of a group are its blocks, the null one excluded:
//!
//! ```text
//!   0                               L - width           L
//!   |<---------- prompt ----------->|<- decode slot ->|<- overlap ->|
//! ```
//!
//! The figures agree with those of the independent implementation that `api.md` names, but where
//! `liveness.md` finds that kind of scheduler wrong ("the bound forgets a reserve": accepted, then
//! never scheduled), and there never below them:
//!
//! - on the prefill role the bound takes off the decode slot ([`CapacityModel::max_single_request_tokens`])
//!   and a state group holds it ([`snapshot_state_reserve_tokens`]);
//! - a request's last verify window counts ([`request_token_limit`]);
//! - on the decode role a recovery is computed here, chunk by chunk, so that a sliding group needs what
//!   a prefill does where that is more than a landing ([`CapacityModel::single_request_group_pages`]);
//! - a sliding group's later chunk may start inside a block where the budget is no multiple of it or
//!   replay cuts the chunks, and be longer where a state group shortened the first
//!   ([`CapacityModel::single_request_group_pages`]).

use crate::config::{GroupKind, Role, SchedulerConfig};
use crate::error::{Error, Result};

/// Most tokens or pages that a query may ask about: beyond any pool, and far from overflow.
const MAX_QUERY: i64 = 1 << 48;

/// Tokens that a round planned ahead of its predecessor's result may write behind the decode slot.
/// A prefill worker never has a local decode in flight (`scheduler.md` §3.1).
pub fn overlap_tokens(config: &SchedulerConfig) -> i64 {
    if config.role.decodes() {
        config.overlap_schedule_depth * config.decode_input_tokens
    } else {
        0
    }
}

/// Tokens at the end of a request that its results in flight may still touch: the decode slot and
/// the overlap behind it.
pub fn protected_tokens(config: &SchedulerConfig) -> i64 {
    config.decode_input_tokens + overlap_tokens(config)
}

/// What the admission that finishes shaping a state group reserves behind the endpoint: on a
/// decoding role a growth block at least, so that the first crossing of a boundary never has to find
/// an empty parent (`scheduler.md` §1.2).
///
/// On the prefill role it is the decode slot alone: the hand-over claims it, and what the hand-over
/// needs is held since the admission that completes the prompt (`liveness.md`, "the role without
/// retraction fills up").
pub fn snapshot_state_reserve_tokens(block_granularity: i64, config: &SchedulerConfig) -> i64 {
    let width = config.decode_input_tokens;
    if config.role.decodes() { block_granularity.max(width) } else { width }
}

/// Blocks behind a boundary that a resume there reads; `None` for a full group, which reads all
/// (`cache.md` §5).
pub fn prefix_match_lookback_blocks(kind: GroupKind, block_granularity: i64) -> Option<i64> {
    kind.window_tokens().map(|window| blocks(window - 1, block_granularity))
}

/// What a request counts as against [`CapacityModel::max_single_request_tokens`]. On the prefill role
/// it is the prompt alone. A decoding role writes up to the budget, and the step that samples the
/// last token verifies a whole window from the token before it:
///
/// ```text
///   prompt              prompt + budget - 2
///   |<---- output ----->|<----- width ----->|
/// ```
///
/// The window past the last token counts, or a request at the bound could not take its last steps
/// (`liveness.md`, "an exempt request needs one block more"). An undeclared budget (0) counts the
/// decode slot.
pub fn request_token_limit(
    prompt_tokens: i64,
    max_new_tokens: i64,
    config: &SchedulerConfig,
) -> i64 {
    if !config.role.decodes() {
        return prompt_tokens;
    }
    let width = config.decode_input_tokens;
    let overhang = (width - 2).max(0);
    prompt_tokens.saturating_add(max_new_tokens.saturating_add(overhang).max(width))
}

/// The page arithmetic of one configuration. Cheap to keep: a copy of the configuration.
#[derive(Debug, Clone)]
pub struct CapacityModel {
    config: SchedulerConfig,
}

impl CapacityModel {
    /// A model of a configuration, which need not have been given a pool yet.
    ///
    /// # Errors
    /// As [`SchedulerConfig::validate_capacity_inputs`].
    pub fn new(config: &SchedulerConfig) -> Result<CapacityModel> {
        config.validate_capacity_inputs()?;
        Ok(CapacityModel { config: config.clone() })
    }

    /// Number of cache groups: the length of every list of pages.
    pub fn num_groups(&self) -> usize {
        self.config.cache_groups.len()
    }

    /// Each group's peak for one request of that token limit, over every prompt within it, every way
    /// to cut it into chunks and, on the decode role, its landing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a limit that is negative or beyond 2^48.
    pub fn single_request_group_pages(&self, token_limit: i64) -> Result<Vec<i64>> {
        in_range("token_limit", token_limit)?;
        Ok(self.single_request_pages(token_limit))
    }

    /// Each group's demand for `max_batch_size` live requests of at most `max_context_len` tokens
    /// each and `max_total_tokens` in all. For one request of L tokens, (L, L) is never below
    /// [`Self::single_request_group_pages`] of L.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an argument that is negative or beyond 2^48.
    pub fn concurrent_group_pages(
        &self,
        max_total_tokens: i64,
        max_context_len: i64,
    ) -> Result<Vec<i64>> {
        in_range("max_total_tokens", max_total_tokens)?;
        in_range("max_context_len", max_context_len)?;
        let groups = self.shapes();
        Ok(groups
            .map(|(kind, g)| match kind {
                GroupKind::Full => self.concurrent_dense(g, max_total_tokens),
                GroupKind::Sliding { window } => {
                    self.concurrent_sliding(window, g, max_total_tokens, max_context_len)
                }
                GroupKind::State => self.per_request(self.single_state(g, max_context_len)),
            })
            .collect())
    }

    /// Parents that hold these pages, each bound to one group: the sum of every group's share.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless there is one non-negative entry a group.
    pub fn lcm_blocks_needed_for(&self, group_pages: &[i64]) -> Result<i64> {
        if group_pages.len() != self.num_groups() {
            let rule = format!("have one entry for each of the {} cache groups", self.num_groups());
            return Err(Error::argument("group_pages", format!("{group_pages:?}"), &rule));
        }
        if group_pages.iter().any(|&pages| pages < 0) {
            let rule = "have no negative entry";
            return Err(Error::argument("group_pages", format!("{group_pages:?}"), rule));
        }
        Ok(self.parents_for(group_pages))
    }

    /// The startup bound on one request, in what [`request_token_limit`] counts: on a decoding role
    /// the largest token limit whose working set fits this many parents; on the prefill role the
    /// longest prompt, the decode slot that its completing chunk reserves taken off (`scheduler.md`
    /// §1; `liveness.md`, "the bound forgets a reserve"). 0 if nothing fits; the search ends at
    /// 2^31 - 1 tokens, which stands for no bound.
    pub fn max_single_request_tokens(&self, usable_lcm_blocks: i64) -> i64 {
        let fits = |limit| self.single_request_parents(limit) <= usable_lcm_blocks;
        // The working set never shrinks as the limit grows: `low` is 0 or fits, `high` is beyond.
        let (mut low, mut high) = (0, i64::from(i32::MAX) + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        match self.config.role {
            Role::P => self.prompt_tokens(low),
            Role::D | Role::Fused => low,
        }
    }

    /// Parents that one request of that token limit holds at its peak.
    pub(crate) fn single_request_parents(&self, token_limit: i64) -> i64 {
        self.parents_for(&self.single_request_pages(token_limit))
    }

    /// Kind and block granularity of each group.
    fn shapes(&self) -> impl Iterator<Item = (GroupKind, i64)> {
        self.config.cache_groups.iter().map(|group| (group.kind(), group.block_granularity))
    }

    fn parents_for(&self, group_pages: &[i64]) -> i64 {
        let packing = self.config.cache_groups.iter().map(|group| group.cache_blocks_per_lcm_block);
        let shares = group_pages.iter().zip(packing).map(|(&pages, k)| blocks(pages, k));
        shares.fold(0, i64::saturating_add)
    }

    fn per_request(&self, pages: i64) -> i64 {
        pages.saturating_mul(self.config.max_batch_size)
    }

    fn single_request_pages(&self, limit: i64) -> Vec<i64> {
        let pages = |(kind, g)| match kind {
            GroupKind::Full => self.single_dense(g, limit),
            GroupKind::Sliding { window } => self.single_sliding(window, g, limit),
            GroupKind::State => self.single_state(g, limit),
        };
        self.shapes().map(pages).collect()
    }

    /// Every token, and the overlap behind the last one.
    fn single_dense(&self, g: i64, limit: i64) -> i64 {
        blocks(limit + overlap_tokens(&self.config), g)
    }

    /// The most of a window that a step can have resident: the W - 1 rows that it reads, what it
    /// writes, and a first block that is only partly inside.
    fn resident_window(&self, window: i64, g: i64, context: i64) -> i64 {
        let read = (window - 1).min(context);
        blocks(read + protected_tokens(&self.config) + g - 1, g)
    }

    fn single_sliding(&self, window: i64, g: i64, limit: i64) -> i64 {
        let prefill = self.prefill_window(window, g, limit);
        match self.config.role {
            Role::P | Role::Fused => prefill,
            // A landing, the whole retained tail at once, or the chunks of a recovery.
            Role::D => prefill.max(self.landing_window(window, g)).min(self.single_dense(g, limit)),
        }
    }

    /// What a landing leaves of a window and what it reads first, at most.
    fn landing_window(&self, window: i64, g: i64) -> i64 {
        blocks(window - 1, g) + self.resident_window(window, g, window)
    }

    /// The most of a sliding group that a prompt computed here holds, over every way to cut it.
    fn prefill_window(&self, window: i64, g: i64, limit: i64) -> i64 {
        let lookback = blocks(window - 1, g);
        let (budget, protected) =
            (self.config.max_scheduled_tokens, protected_tokens(&self.config));
        let prompt = self.prompt_tokens(limit);
        let whole = blocks(prompt.min(budget) + protected, g);
        if prompt <= budget {
            return whole;
        }
        // A later chunk lies behind its lookback: a full one, or the last one with what it protects.
        // Beside a state group chunks end on page boundaries, which leaves more for the last one.
        let page = self.config.prefix_granularity;
        let paged = self.config.has_state_group();
        let first = if paged { budget / page * page } else { budget };
        let longest = budget.max((prompt - first).min(budget) + protected);
        let aligned = paged || (budget % g == 0 && self.config.replay_window_tokens() == 0);
        let later = if aligned {
            lookback + blocks(longest, g)
        } else {
            // Both ends of what it reads and writes may lie inside a block.
            1 + blocks(window - 1 + longest - 1, g)
        };
        whole.max(later)
    }

    /// The most that one forward holds: the checkpoint it started from, the aligned checkpoint it
    /// leaves behind, and the snapshots from there to the end of its reserve (`scheduler.md` §1.2,
    /// §1.4). It does not grow with history.
    fn single_state(&self, g: i64, limit: i64) -> i64 {
        if limit == 0 {
            return 0;
        }
        let (page, budget) = (self.config.prefix_granularity, self.config.max_scheduled_tokens);
        let prompt = self.prompt_tokens(limit).max(1);
        let reserve = match self.config.role {
            Role::P => snapshot_state_reserve_tokens(g, &self.config),
            Role::D | Role::Fused => {
                snapshot_state_reserve_tokens(g, &self.config).max(protected_tokens(&self.config))
            }
        };
        // Tail behind the last boundary that a final forward crosses; without one the endpoint is
        // the only output. `skipped` tokens were computed by earlier chunks.
        let output = |skipped: i64| {
            let tail = (page - 1).min(budget - page).min(prompt - skipped - page).max(0);
            1 + blocks(tail + reserve, g)
        };
        if !self.config.disable_prefix_cache {
            // Any forward may start from a cached checkpoint, which stays held.
            return 1 + output(0);
        }
        if prompt <= budget {
            return output(0);
        }
        // Only a chunk of the request's own can have left a checkpoint: a page at least.
        output(0).max(1 + output(page))
    }

    /// The longest prompt within a token limit: all of it but the decode slot.
    fn prompt_tokens(&self, limit: i64) -> i64 {
        (limit - self.config.decode_input_tokens).max(0)
    }

    /// Dense pages of all tokens and, for each request, an unaligned tail and the overlap, which may
    /// spill past it.
    fn concurrent_dense(&self, g: i64, total_tokens: i64) -> i64 {
        let spill = blocks(g - 1 + overlap_tokens(&self.config), g);
        blocks(total_tokens, g).saturating_add(self.per_request(spill))
    }

    /// The resident window of each request, and one prefill chunk in flight behind its lookback; on
    /// the decode role, a landing of each.
    fn concurrent_sliding(&self, window: i64, g: i64, total_tokens: i64, context: i64) -> i64 {
        let lookback = blocks(window - 1, g);
        let resident = self.resident_window(window, g, context);
        if self.config.role == Role::D {
            let landings = self.per_request(lookback + resident);
            let least = self.single_sliding(window, g, total_tokens.min(context));
            let landings = landings.min(self.concurrent_dense(g, total_tokens));
            return if self.config.max_batch_size > 0 { landings.max(least) } else { landings };
        }
        let chunk = blocks(total_tokens.min(self.config.max_scheduled_tokens), g);
        self.per_request(resident).saturating_add(lookback + chunk)
    }
}

/// Blocks of `g` that cover `tokens`, which are not negative, the last one perhaps in part.
fn blocks(tokens: i64, g: i64) -> i64 {
    tokens / g + i64::from(tokens % g != 0)
}

/// Refuses what is negative, or so large that sums could overflow.
fn in_range(name: &str, value: i64) -> Result<()> {
    if value < 0 {
        return Err(Error::argument(name, value, "be at least 0"));
    }
    if value > MAX_QUERY {
        return Err(Error::argument(name, value, "be at most 2^48"));
    }
    Ok(())
}
