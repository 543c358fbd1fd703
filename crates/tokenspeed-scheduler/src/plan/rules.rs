//! What the configuration says to a round: the numbers that phases read, made once.

use crate::capacity::{CapacityModel, request_token_limit, snapshot_state_reserve_tokens};
use crate::config::{PressurePolicy, Role, SchedulerConfig};
use crate::error::Result;
use crate::request::{Request, State};

/// How often one request gives way at most where the engine keeps its batch.
const RETRACTIONS_MOST: i64 = 3;

/// Token counts unless a name says otherwise.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The configuration itself.
    pub config: SchedulerConfig,
    /// P.
    pub granularity: i64,
    /// Width of a decode step.
    pub decode_width: i64,
    /// What a decode step costs of the round's budget: nothing on the decode role (`scheduler.md` §3.2).
    pub decode_cost: i64,
    /// Results of one request that may be out when it is scheduled.
    pub overlap_depth: u32,
    /// One a group: what the admission that finishes shaping a state group holds beyond its endpoint.
    pub state_growth: Vec<i64>,
    /// Whether any group keeps recurrent states: its chunks end on page boundaries.
    pub has_state_group: bool,
    /// W of `scheduler.md` §1.3: the largest window of the replayable groups; 0 without any.
    pub replay_window: i64,
    /// Budget that decodes leave to a pending prompt, which cannot advance by less.
    pub least_prefill_budget: i64,
    /// Whether the engine keeps its batch under pressure ([`PressurePolicy::Goodput`]). A prefill worker
    /// has none.
    pub keeps_batch: bool,
    /// Whether an engine that keeps its batch may interrupt requests for little but copies: beside a Host
    /// tier that takes what the Device holds.
    pub interrupts_cheaply: bool,
    /// Retractions from which on a request is a victim no more, unless nobody else could move.
    pub spared_from: i64,
    /// The most that one request may ever need (`scheduler.md` §1.4).
    pub token_limit: i64,
    model: CapacityModel,
}

impl Rules {
    /// The rules of a validated configuration.
    pub fn new(config: &SchedulerConfig) -> Result<Rules> {
        let model = CapacityModel::new(config)?;
        let keeps_batch =
            config.role.decodes() && config.pressure_policy == PressurePolicy::Goodput;
        Ok(Rules {
            granularity: config.prefix_granularity,
            decode_width: config.decode_input_tokens,
            decode_cost: if config.role == Role::D { 0 } else { config.decode_input_tokens },
            overlap_depth: config.overlap_schedule_depth as u32,
            state_growth: config
                .cache_groups
                .iter()
                .map(|group| snapshot_state_reserve_tokens(group.block_granularity, config))
                .collect(),
            has_state_group: config.has_state_group(),
            replay_window: config.replay_window_tokens(),
            least_prefill_budget: least_prefill_budget(config),
            keeps_batch,
            interrupts_cheaply: keeps_batch
                && config.role == Role::Fused
                && config.usable_host_parents() >= config.usable_device_parents(),
            spared_from: if keeps_batch { RETRACTIONS_MOST } else { i64::MAX },
            token_limit: model.max_single_request_tokens(config.usable_device_parents()),
            config: config.clone(),
            model,
        })
    }

    /// What a hit that ends at `boundary` has to re-feed (`scheduler.md` §1.3).
    pub fn replay_tokens(&self, boundary: i64) -> i64 {
        self.replay_window.min(boundary)
    }

    /// Whether a peer may be using the blocks of a request in that state: nobody else may have them, and
    /// only the peer's word frees them. A prefill worker's are read from the first chunk on; a decode
    /// worker's are written until the prompt has landed (`scheduler.md` §3.1, pdTransferInFlight).
    pub fn is_pinned_by_peer(&self, state: State) -> bool {
        match self.config.role {
            Role::P => state.is_resident(),
            Role::D => matches!(state, State::RemotePrefilling | State::Draining),
            Role::Fused => false,
        }
    }

    /// Where a request that is being retracted stands among those that recover: behind all retracted before
    /// it by the document (`scheduler.md` §4), and by its age where the engine keeps its batch.
    pub fn place_among_readmissions(&self, submission: u64, retraction: u64) -> u64 {
        if self.keeps_batch { submission } else { retraction }
    }

    /// Parents that a request may come to hold: by its budget, or all that one can.
    pub fn parents_at_most(&self, request: &Request) -> i64 {
        self.model.single_request_parents(match request.max_new_tokens() {
            0 => self.token_limit,
            budget => self.limit_of(request.submitted_tokens, budget),
        })
    }

    /// What a request of that prompt and budget may come to need; to hold against `token_limit`.
    pub fn limit_of(&self, prompt_tokens: i64, max_new_tokens: i64) -> i64 {
        request_token_limit(prompt_tokens, max_new_tokens, &self.config)
    }
}

/// A page beside a state group, whose chunks end on pages (`scheduler.md` §3.3); beside a replayable group a
/// hit's window and the final window or a page (§1.3); nothing elsewhere.
fn least_prefill_budget(config: &SchedulerConfig) -> i64 {
    match config.replay_window_tokens() {
        0 if config.has_state_group() => config.prefix_granularity,
        0 => 0,
        window => window + window.max(config.prefix_granularity),
    }
}
