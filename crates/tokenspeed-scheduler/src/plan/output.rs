//! What a round tells the engine to do: the execution plan (`scheduler.md` §3; `api.md`, "The plan").

use std::sync::Arc;

use super::batch::{DecodeOp, PrefillOp};
use super::round::Round;
pub use crate::cache::{ChangedCell, CopyOp};
use crate::request::{Handle, RequestKey, RequestSet};

/// One round's orders. Vectors are one entry a request, a prefill, a decode or a cache group, as each
/// field says; group order is that of `SchedulerConfig::cache_groups`.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct ExecutionPlan {
    /// The forward of this round; without requests when nothing is to run.
    pub batch: Batch,
    /// Device-to-Host copies, first in the round's order (`runtime.md`, "One round on the device").
    pub write_back: CopyOp,
    /// Host-to-Device copies, after the zeroing.
    pub load_back: CopyOp,
    /// Decode role: the admission whose prompt the peer prefills (`scheduler.md` §3.2).
    pub remote_prefill: Option<Batch>,
    /// Prefill role: completed prompts handed to the peer (`scheduler.md` §3.1).
    pub remote_decode: Option<Batch>,
    /// Device blocks to zero before the forward, one list a group, in the order granted.
    pub pages_to_zero: Vec<Vec<i32>>,
    /// Cells of the persistent block tables that this round changed, one list a group.
    pub changed_cells: Vec<Vec<ChangedCell>>,
    /// Requests that this round retracted: their rows are given up, they come back as prefills.
    pub retracted: Vec<Handle>,
    /// Requests that the scheduler ended by itself, with the reason (`liveness.md` 1).
    pub aborts: Vec<AbortNotice>,
}

/// A request that the scheduler ended: it could never run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbortNotice {
    /// The request's id.
    pub request_id: Arc<str>,
    /// Why.
    pub reason: AbortReason,
    /// One sentence that names the bound and what to raise.
    pub text: String,
}

/// Why the scheduler ended a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortReason {
    /// It outgrew what the whole pool can hold, so that no readmission could ever fit.
    OutgrewPool,
    /// It generated its whole declared budget and the client did not finish it.
    BudgetSpent,
    /// On a prefill worker, which never retracts: what its prompts hold splits the pool between groups, so
    /// that none of them fits. Its blocks are free with the peer's word, as after an abort.
    PoolSplit,
}

impl AbortReason {
    /// The stable name of the reason.
    pub fn name(self) -> &'static str {
        match self {
            AbortReason::OutgrewPool => "outgrew_pool",
            AbortReason::BudgetSpent => "budget_spent",
            AbortReason::PoolSplit => "pool_split",
        }
    }
}

/// A forward: prefills first, then decodes, each in scheduling order.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Batch {
    /// One a request.
    pub request_ids: Vec<Arc<str>>,
    /// One a request: generation and row.
    pub handles: Vec<Handle>,
    /// One a request: row of the request pool, from 1.
    pub request_pool_indices: Vec<i32>,
    /// One a request: rows of input in this forward, in tokens (a prefill's replay included).
    pub input_lengths: Vec<i32>,
    /// One a request: the whole, rebased, prompt in tokens.
    pub prefill_lengths: Vec<i32>,
    /// How many requests lead the batch as prefills.
    pub num_extends: usize,
    /// Concatenated over the prefills.
    pub input_ids: Vec<i32>,
    /// `input_ids` shifted by one token, -1 past the prompt.
    pub shifted_input_ids: Vec<i32>,
    /// One a prefill: first position of its input, `begin - replay`.
    pub extend_prefix_lens: Vec<i32>,
    /// One a prefill: re-fed tokens ahead of `begin` (`scheduler.md` §1.3).
    pub extend_replay_lens: Vec<i32>,
    /// One a prefill: tokens that its admission found on the Device; 0 but on an admission's first chunk.
    pub device_hit_tokens: Vec<i32>,
    /// One a prefill: tokens that its admission loads from the Host.
    pub host_hit_tokens: Vec<i32>,
    /// One a decode: the token where its executor cannot know it, else -1.
    pub decode_input_ids: Vec<i32>,
    /// One list a decode: the drafter's candidates on a remote decode, empty elsewhere.
    pub spec_candidate_ids: Vec<Vec<i32>>,
    /// One table a group; empty where the engine reads the persistent tables instead.
    pub block_tables: Vec<BlockTable>,
}

/// A group's table of a batch: `[requests, columns]`, row-major; slots absolute, hole 0, padding -1.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct BlockTable {
    /// Row-major cells, `requests * columns` of them.
    pub cells: Vec<i32>,
    /// Slots of the longest table in the batch.
    pub columns: usize,
}

/// Writes a finished round down as the engine reads it.
pub fn assemble(round: Round<'_>, with_block_tables: bool) -> ExecutionPlan {
    let batch_of = |prefills: &[PrefillOp], decodes: &[DecodeOp]| {
        let mut batch = Batch::default();
        batch.add_requests(&round, prefills.iter().map(|op| op.key));
        batch.add_requests(&round, decodes.iter().map(|op| op.key));
        batch.add_prefills(&round, prefills);
        batch.add_decodes(&round, decodes);
        if with_block_tables {
            let keys: Vec<RequestKey> =
                prefills.iter().map(|op| op.key).chain(decodes.iter().map(|op| op.key)).collect();
            batch.add_block_tables(&round, &keys);
        }
        batch
    };
    let batch = batch_of(round.build.prefills(), round.build.decodes());
    let remote_prefill = round.build.remote_prefill().map(|op| batch_of(&[*op], &[]));
    let handed_over = round.build.remote_decodes();
    let mut remote_decode = (!handed_over.is_empty()).then(|| batch_of(&[], handed_over));
    if let Some(batch) = &mut remote_decode {
        let candidates = |op: &DecodeOp| round.requests[op.key].spec_candidate_ids.clone();
        batch.spec_candidate_ids = handed_over.iter().map(candidates).collect();
    }
    let Round { cache, build, .. } = round;
    let (write_back, load_back) = cache.take_copies();
    let mut changed_cells = Vec::new();
    cache.drain_changed_cells(&mut changed_cells);
    ExecutionPlan {
        batch,
        write_back,
        load_back,
        remote_prefill,
        remote_decode,
        pages_to_zero: build.fresh,
        changed_cells,
        retracted: build.retracted,
        aborts: build.aborts,
    }
}

impl Batch {
    fn add_requests(&mut self, round: &Round<'_>, keys: impl Iterator<Item = RequestKey>) {
        for key in keys {
            let request = &round.requests[key];
            let row = request.holdings.row;
            self.request_ids.push(request.id.clone());
            self.handles.push(round.rows.handle(row));
            self.request_pool_indices.push(row);
            self.prefill_lengths.push(request.prompt_tokens as i32);
        }
    }

    fn add_prefills(&mut self, round: &Round<'_>, ops: &[PrefillOp]) {
        self.num_extends = ops.len();
        for op in ops {
            let tokens = &round.requests[op.key].tokens;
            let prompt_end = round.requests[op.key].prompt_tokens as usize;
            let (begin, end) = (op.chunk.input_begin() as usize, op.chunk.end() as usize);
            self.input_lengths.push(op.chunk.input_size() as i32);
            self.input_ids.extend_from_slice(&tokens[begin..end]);
            self.shifted_input_ids.extend_from_slice(&tokens[begin + 1..(end + 1).min(prompt_end)]);
            if end == prompt_end {
                self.shifted_input_ids.push(-1);
            }
            self.extend_prefix_lens.push(begin as i32);
            self.extend_replay_lens.push(op.chunk.replay as i32);
            self.device_hit_tokens.push(op.device_hit_tokens as i32);
            self.host_hit_tokens.push(op.host_hit_tokens as i32);
        }
    }

    fn add_decodes(&mut self, round: &Round<'_>, ops: &[DecodeOp]) {
        let width = round.rules.decode_width as i32;
        self.input_lengths.extend(ops.iter().map(|_| width));
        self.decode_input_ids.extend(ops.iter().map(|op| op.input_id.unwrap_or(-1)));
        self.spec_candidate_ids.resize_with(ops.len(), Vec::new);
    }

    fn add_block_tables(&mut self, round: &Round<'_>, keys: &[RequestKey]) {
        if !keys.is_empty() {
            let groups = 0..round.cache.geometries().len();
            self.block_tables =
                groups.map(|group| BlockTable::of(round.requests, keys, group)).collect();
        }
    }
}

impl BlockTable {
    fn of(requests: &RequestSet, keys: &[RequestKey], group: usize) -> BlockTable {
        let slots = |key: &RequestKey| requests[*key].holdings.groups[group].table.slots();
        let columns = keys.iter().map(|key| slots(key).len()).max().unwrap_or(0);
        let mut cells = Vec::with_capacity(keys.len() * columns);
        for key in keys {
            cells.extend(slots(key).iter().map(|&block| block as i32));
            cells.resize(cells.len() + columns - slots(key).len(), -1);
        }
        BlockTable { cells, columns }
    }
}
