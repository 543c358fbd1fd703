//! The plan in the making: what was scheduled, what budget is left, what happened. Operations enter
//! through one gate, so that budget and flags cannot drift from the batch (`scheduler.md` §3).

use super::chunk::Chunk;
use super::output::AbortNotice;
use crate::request::{Handle, RequestKey};

/// A scheduled chunk.
#[derive(Debug, Clone, Copy)]
pub struct PrefillOp {
    /// Whose.
    pub key: RequestKey,
    /// Which tokens.
    pub chunk: Chunk,
    /// Tokens that this admission found on the Device; 0 but on its first chunk.
    pub device_hit_tokens: i64,
    /// Tokens that it loads from the Host.
    pub host_hit_tokens: i64,
}

/// One round's composition.
#[derive(Debug, Default)]
pub struct PlanBuild {
    /// Tokens of input that the round may still take.
    budget_left: i64,
    prefills: Vec<PrefillOp>,
    decodes: Vec<RequestKey>,
    /// Fresh blocks, one list a group, in the order granted.
    pub fresh: Vec<Vec<i32>>,
    /// Requests that this round retracted.
    pub retracted: Vec<Handle>,
    /// Requests that this round ended.
    pub aborts: Vec<AbortNotice>,
}

impl PlanBuild {
    /// An empty round of that token budget.
    pub fn new(budget: i64, groups: usize) -> PlanBuild {
        PlanBuild { budget_left: budget, fresh: vec![Vec::new(); groups], ..PlanBuild::default() }
    }

    /// Tokens of input that the round may still take.
    pub fn budget_left(&self) -> i64 {
        self.budget_left
    }

    /// Takes a chunk in.
    pub fn push_prefill(&mut self, op: PrefillOp) {
        self.budget_left -= op.chunk.input_size();
        self.prefills.push(op);
    }

    /// Takes a decode step of `width` tokens in.
    pub fn push_decode(&mut self, key: RequestKey, width: i64) {
        self.budget_left -= width;
        self.decodes.push(key);
    }

    /// The chunks, in scheduling order.
    pub fn prefills(&self) -> &[PrefillOp] {
        &self.prefills
    }

    /// The decode steps, in scheduling order.
    pub fn decodes(&self) -> &[RequestKey] {
        &self.decodes
    }

    /// Whether a prompt got further: what a retraction would be for is then under way.
    pub fn prefill_progressed(&self) -> bool {
        !self.prefills.is_empty()
    }

    /// Whether nothing is scheduled.
    pub fn is_empty(&self) -> bool {
        self.prefills.is_empty() && self.decodes.is_empty()
    }
}

/// What admissions report to the round.
#[derive(Debug, Default)]
pub struct AdmissionFeedback {
    /// The first request whose admission failed for capacity: whom a retraction serves. A readmission
    /// never stands here (`scheduler.md` §4).
    pub capacity_blocker: Option<RequestKey>,
    /// Residents that lacked blocks, in the order in which the phases met them.
    pub stalled: Vec<RequestKey>,
}
