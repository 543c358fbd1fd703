//! A round under way: the state that its phases share.

use super::batch::{AdmissionFeedback, PlanBuild};
use super::rules::Rules;
use crate::cache::Coordinator;
use crate::config::Role;
use crate::request::{RequestKey, RequestSet, Rows};

/// What one plan build reads and changes.
#[derive(Debug)]
pub struct Round<'a> {
    /// The configuration's numbers.
    pub rules: &'a Rules,
    /// Blocks and index.
    pub cache: &'a mut Coordinator,
    /// Live requests.
    pub requests: &'a mut RequestSet,
    /// The request pool.
    pub rows: &'a mut Rows,
    /// Number of the retraction before the next one (`scheduler.md` §4).
    pub retraction_epoch: &'a mut u64,
    /// Retractions for capacity since a result last brought a token.
    pub retractions_since_token: &'a mut u64,
    /// Number of the round.
    pub number: u64,
    /// The plan so far.
    pub build: PlanBuild,
    /// What admissions reported.
    pub feedback: AdmissionFeedback,
}

impl Round<'_> {
    /// Composes the round by the grammar of its role (`scheduler.md` §3).
    pub fn plan(&mut self) {
        match self.rules.config.role {
            Role::Fused => self.plan_fused(),
            Role::P => self.plan_prefill_worker(),
            Role::D => self.plan_decode_worker(),
        }
    }

    /// The phases that schedule prompts, as the role has them.
    pub(super) fn schedule_prompts(&mut self) {
        match self.rules.config.role {
            Role::Fused | Role::P => self.schedule_local_prefill_work(),
            Role::D => self.schedule_recovery_and_newcomers(),
        }
    }

    /// Whether a request has as many results out as the overlap allows (`liveness.md`, "planning
    /// ahead without results").
    pub(super) fn awaits_result(&self, key: RequestKey) -> bool {
        self.requests[key].forwards_out > self.rules.overlap_depth
    }
}
