//! What a round tells the engine to do: the execution plan (`scheduler.md` §3; `api.md`, "The plan").

use std::sync::Arc;

use super::batch::{DecodeOp, PrefillOp, Seat};
use super::names::BatchNames;
use super::round::Round;
use super::tables::BatchTables;
pub use super::tables::BlockTable;
pub use crate::cache::{ChangedCell, CopyOp};
use crate::request::Handle;

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
    pub request_ids: Arc<Vec<Arc<str>>>,
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
    /// On a remote decode one list a decode, the drafter's candidates; elsewhere no list at all.
    pub spec_candidate_ids: Vec<Vec<i32>>,
    /// One table a group; empty where the engine reads the persistent tables instead.
    pub block_tables: Vec<BlockTable>,
}

/// Writes a finished round down as the engine reads it.
pub fn assemble(round: Round<'_>, kept: &mut Kept) -> ExecutionPlan {
    let (prefills, decodes) = (round.build.prefills(), round.build.decodes());
    let batch = Batch::of(&round, prefills, decodes, kept);
    let beside = |prefills: &[PrefillOp], decodes: &[DecodeOp]| {
        Batch::of(&round, prefills, decodes, &mut kept.empty())
    };
    let remote_prefill = round.build.remote_prefill().map(|op| beside(&[*op], &[]));
    let handed_over = round.build.remote_decodes();
    let mut remote_decode = (!handed_over.is_empty()).then(|| beside(&[], handed_over));
    if let Some(batch) = &mut remote_decode {
        let candidates = |op: &DecodeOp| {
            round.requests[op.key].spec_candidate_ids.as_deref().unwrap_or_default().to_vec()
        };
        batch.spec_candidate_ids = handed_over.iter().map(candidates).collect();
    }
    let Round { cache, mut build, .. } = round;
    kept.decodes = build.take_decodes();
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

/// What a round keeps of the rounds before, so that it writes only what changed.
#[derive(Debug)]
pub struct Kept {
    names: BatchNames,
    /// `None` for an engine that reads the persistent tables: its batches carry none.
    tables: Option<BatchTables>,
    groups: usize,
    /// The last round's list of decode steps, for its memory: an allocator is slow with large pieces.
    decodes: Vec<DecodeOp>,
}

impl Kept {
    /// Nothing yet, for batches with tables of so many groups.
    pub fn new(groups: usize) -> Kept {
        Kept {
            names: BatchNames::default(),
            tables: Some(BatchTables::new(groups)),
            groups,
            decodes: Vec::new(),
        }
    }

    /// An empty list of decode steps, with room for those of the last round.
    pub fn take_decodes(&mut self) -> Vec<DecodeOp> {
        let mut decodes = std::mem::take(&mut self.decodes);
        decodes.clear();
        decodes
    }

    /// Whether batches carry tables from now on.
    pub fn set_with_block_tables(&mut self, wanted: bool) {
        self.tables = wanted.then(|| BatchTables::new(self.groups));
    }

    /// Nothing, for other batches of the same plan.
    fn empty(&self) -> Kept {
        let mut empty = Kept::new(self.groups);
        empty.set_with_block_tables(self.tables.is_some());
        empty
    }
}

impl Batch {
    /// The drafter's candidates of a decode; none but on a remote decode.
    pub fn candidates(&self, decode: usize) -> &[i32] {
        self.spec_candidate_ids.get(decode).map_or(&[], Vec::as_slice)
    }

    fn of(
        round: &Round<'_>,
        prefills: &[PrefillOp],
        decodes: &[DecodeOp],
        kept: &mut Kept,
    ) -> Batch {
        let keys = prefills.iter().map(|op| op.key).chain(decodes.iter().map(|op| op.key));
        let mut batch = Batch::default();
        let seats = prefills.iter().map(|op| op.seat).chain(decodes.iter().map(|op| op.seat));
        batch.add_requests(round, seats, prefills.len() + decodes.len());
        batch.add_prefills(round, prefills);
        batch.add_decodes(round, decodes);
        batch.request_ids = kept.names.of(round.requests, &batch.handles, keys.clone());
        if let Some(tables) = &mut kept.tables {
            batch.block_tables = tables.of(round.requests, &batch.handles, keys);
        }
        batch
    }

    fn add_requests(&mut self, round: &Round<'_>, seats: impl Iterator<Item = Seat>, len: usize) {
        self.handles.reserve_exact(len);
        self.request_pool_indices.reserve_exact(len);
        self.prefill_lengths.reserve_exact(len);
        self.input_lengths.reserve_exact(len);
        for Seat { row, prompt_tokens } in seats {
            self.handles.push(round.rows.handle(row));
            self.request_pool_indices.push(row);
            self.prefill_lengths.push(prompt_tokens);
        }
    }

    fn add_prefills(&mut self, round: &Round<'_>, ops: &[PrefillOp]) {
        self.num_extends = ops.len();
        for op in ops {
            let tokens = round.requests[op.key].tokens.settled();
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
    }
}
