//! The front door: requests and events in, plans out, gauges to look at (`api.md`, "The scheduler").

mod advance;
mod foresight;
mod gauges;
mod naming;
mod results;
mod spec;
mod storage;
mod withheld;

pub use gauges::OwedResult;
pub use spec::RequestSpec;
pub use storage::StorageKeys;

use std::sync::Arc;

use crate::cache::{Coordinator, Holdings, KvEvent, StoreGuard};
use crate::config::SchedulerConfig;
use crate::error::{Error, Result};
use crate::identity::PageId;
use crate::plan::batch::{AdmissionFeedback, PlanBuild};
use crate::plan::{ExecutionPlan, Round, Rules, output};
use crate::request::{Request, RequestKey, RequestSet, Rows, State};

/// One engine's scheduler.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) rules: Rules,
    pub(crate) cache: Coordinator,
    pub(crate) requests: RequestSet,
    pub(crate) rows: Rows,
    retraction_epoch: u64,
    /// Retractions for capacity since a result last brought a token.
    retractions_since_token: u64,
    /// Plans made so far.
    round: u64,
    kept: output::Kept,
    /// By row: scratch of the array path.
    seen_rows: Vec<bool>,
}

impl Scheduler {
    /// A scheduler over an empty pool.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] for what no scheduler can run.
    pub fn new(config: SchedulerConfig) -> Result<Scheduler> {
        config.validate()?;
        let rules = Rules::new(&config)?;
        Ok(Scheduler {
            rules,
            kept: output::Kept::new(config.cache_groups.len()),
            cache: Coordinator::new(&config),
            requests: RequestSet::default(),
            rows: Rows::new(config.max_batch_size as usize),
            retraction_epoch: 0,
            retractions_since_token: 0,
            round: 0,
            seen_rows: Vec::new(),
        })
    }

    /// The configuration that the scheduler was built with.
    pub fn config(&self) -> &SchedulerConfig {
        &self.rules.config
    }

    /// Whether plans carry block tables of their own. An engine that reads the persistent tables
    /// turns this off, and a round then costs nothing for the context of unchanged requests.
    pub fn set_with_block_tables(&mut self, wanted: bool) {
        self.kept.set_with_block_tables(wanted);
    }

    /// Takes new requests in, all or none.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::DuplicateRequestId`], [`Error::NegativeBudget`], or
    /// [`Error::RequestTooLarge`] for one that the pool could never run.
    pub fn submit_requests(&mut self, specs: Vec<RequestSpec>) -> Result<()> {
        spec::validate(&specs, &self.rules, &self.requests)?;
        let groups = self.rules.config.cache_groups.len();
        let state = match self.rules.config.role.transfers() {
            true => State::Bootstrapping,
            false => State::Submitted,
        };
        for spec in specs {
            let pages = self.name_prompt(&spec.tokens);
            let holdings = Holdings::none(groups);
            self.requests.insert(Request::new(spec, pages, holdings, state));
        }
        self.verify()
    }

    /// Decides the next round.
    ///
    /// # Errors
    /// [`Error::Internal`] where a checker of a debug build finds an invariant broken.
    pub fn next_execution_plan(&mut self) -> Result<ExecutionPlan> {
        self.round += 1;
        let groups = self.rules.config.cache_groups.len();
        let (budget, decodes) = (self.rules.config.max_scheduled_tokens, self.kept.take_decodes());
        let mut round = Round {
            rules: &self.rules,
            cache: &mut self.cache,
            requests: &mut self.requests,
            rows: &mut self.rows,
            retraction_epoch: &mut self.retraction_epoch,
            retractions_since_token: &mut self.retractions_since_token,
            number: self.round,
            build: PlanBuild::new(budget, groups, decodes),
            feedback: AdmissionFeedback::default(),
        };
        round.plan();
        round.cache.start_pending_stores(StoreGuard::PinnedUntilAck);
        let plan = output::assemble(round, &mut self.kept);
        self.verify()?;
        Ok(plan)
    }

    /// What a prompt would find on the Device, as changes since the last call: removals leaf first,
    /// then stores parent first. Empty unless the configuration enables cache events. Without a
    /// drain, what is kept for the next one is bounded by what is cached.
    ///
    /// # Errors
    /// [`Error::Internal`] where a checker of a debug build finds an invariant broken.
    pub fn drain_kv_events(&mut self) -> Result<Vec<KvEvent>> {
        let events = self.cache.drain_kv_events();
        self.verify()?;
        Ok(events)
    }

    /// Debug builds look at every invariant after every call.
    fn verify(&self) -> Result<()> {
        if cfg!(debug_assertions) {
            crate::check::all(self).map_err(|what| Error::Internal { what })?;
        }
        Ok(())
    }

    /// Lets a request go for good: its row, its blocks, its names.
    fn forget(&mut self, key: RequestKey) {
        let mut request = self.requests.remove(key);
        if request.holdings.is_resident() {
            self.rows.give_back(request.holdings.row);
            self.cache.release(&mut request.holdings);
        }
        self.cache.forget_pages(&request.pages);
    }
}

impl Request {
    fn new(spec: RequestSpec, pages: Vec<PageId>, holdings: Holdings, state: State) -> Request {
        let tokens = spec.tokens.len() as i64;
        Request {
            id: Arc::from(spec.request_id),
            submission: 0,
            state,
            tokens: spec.tokens.into(),
            pages,
            submitted_tokens: tokens,
            prompt_tokens: tokens,
            max_new_tokens: spec.max_new_tokens,
            budget_end_tokens: match spec.max_new_tokens {
                0 => i64::MAX,
                budget => tokens.saturating_add(budget),
            },
            retractions: 0,
            recovering: false,
            stuck_alone: 0,
            holdings,
            forwards_out: 0,
            chunks_out: 0,
            owed_since_round: 0,
            late_results: 0,
            last_handle: None,
            reserve_next_tokens: 0,
            spec_candidate_ids: None,
        }
    }
}
