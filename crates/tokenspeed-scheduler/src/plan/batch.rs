//! The plan in the making: what was scheduled, what budget is left, what happened. Operations enter
//! through one gate, so that budget and flags cannot drift from the batch (`scheduler.md` §3).

use super::chunk::Chunk;
use super::output::AbortNotice;
use super::pressure::Pressure;
use crate::request::{Handle, Request, RequestKey};

/// What a batch says of a request beside its part in the forward. It is noted when the request is
/// scheduled, so that nobody is looked at once more when the batch is written down.
#[derive(Debug, Clone, Copy)]
pub struct Seat {
    /// Row of the request pool.
    pub row: i32,
    /// The whole, rebased, prompt.
    pub prompt_tokens: i32,
}

impl Seat {
    /// A resident's.
    pub fn of(request: &Request) -> Seat {
        Seat { row: request.holdings.row, prompt_tokens: request.prompt_tokens as i32 }
    }
}

/// A scheduled chunk.
#[derive(Debug, Clone, Copy)]
pub struct PrefillOp {
    /// Whose.
    pub key: RequestKey,
    /// Where.
    pub seat: Seat,
    /// Which tokens.
    pub chunk: Chunk,
    /// Tokens that this admission found on the Device; 0 but on its first chunk.
    pub device_hit_tokens: i64,
    /// Tokens that it loads from the Host.
    pub host_hit_tokens: i64,
}

/// A scheduled decode step.
#[derive(Debug, Clone, Copy)]
pub struct DecodeOp {
    /// Whose.
    pub key: RequestKey,
    /// Where.
    pub seat: Seat,
    /// Its first input token, where the executor cannot know it.
    pub input_id: Option<i32>,
}

/// One round's composition.
#[derive(Debug, Default)]
pub struct PlanBuild {
    /// Tokens of input that the round may still take.
    budget_left: i64,
    prefills: Vec<PrefillOp>,
    decodes: Vec<DecodeOp>,
    /// Decode role: the admission whose prompt the peer computes; at most one a round.
    remote_prefill: Option<PrefillOp>,
    /// Prefill role: completed prompts that go to the peer.
    remote_decodes: Vec<DecodeOp>,
    /// Fresh blocks, one list a group, in the order granted.
    pub fresh: Vec<Vec<i32>>,
    /// Requests that this round retracted.
    pub retracted: Vec<Handle>,
    /// Requests that this round ended.
    pub aborts: Vec<AbortNotice>,
}

impl PlanBuild {
    /// An empty round of that token budget; `decodes` is an empty list to fill.
    pub fn new(budget: i64, groups: usize, decodes: Vec<DecodeOp>) -> PlanBuild {
        PlanBuild {
            budget_left: budget,
            decodes,
            fresh: vec![Vec::new(); groups],
            ..PlanBuild::default()
        }
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

    /// Takes a decode step in that costs so many tokens of the budget.
    pub fn push_decode(&mut self, op: DecodeOp, cost: i64) {
        self.budget_left -= cost;
        self.decodes.push(op);
    }

    /// Takes in the admission of a prompt that the peer computes: it costs no budget.
    pub fn set_remote_prefill(&mut self, op: PrefillOp) {
        debug_assert!(self.remote_prefill.is_none(), "one remote admission a round");
        self.remote_prefill = Some(op);
    }

    /// Takes in a prompt that goes to the peer: it costs no budget.
    pub fn push_remote_decode(&mut self, op: DecodeOp) {
        self.remote_decodes.push(op);
    }

    /// The remote admission.
    pub fn remote_prefill(&self) -> Option<&PrefillOp> {
        self.remote_prefill.as_ref()
    }

    /// The prompts that go to the peer, in scheduling order.
    pub fn remote_decodes(&self) -> &[DecodeOp] {
        &self.remote_decodes
    }

    /// The chunks, in scheduling order.
    pub fn prefills(&self) -> &[PrefillOp] {
        &self.prefills
    }

    /// The decode steps, in scheduling order.
    pub fn decodes(&self) -> &[DecodeOp] {
        &self.decodes
    }

    /// The list of decode steps, for its memory.
    pub fn take_decodes(&mut self) -> Vec<DecodeOp> {
        std::mem::take(&mut self.decodes)
    }

    /// Whether a prompt got further: what a retraction would be for is then under way.
    pub fn prefill_progressed(&self) -> bool {
        !self.prefills.is_empty() || self.remote_prefill.is_some()
    }

    /// Whether nothing is scheduled.
    pub fn is_empty(&self) -> bool {
        !self.prefill_progressed() && self.decodes.is_empty() && self.remote_decodes.is_empty()
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
    /// What the policy keeps in mind.
    pub pressure: Pressure,
}
