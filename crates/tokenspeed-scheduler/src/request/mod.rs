//! A request: its tokens, where it stands, and what it holds.

pub mod backlog;
pub mod caution;
pub mod handle;
pub mod lifecycle;
pub mod outputs;
pub mod rows;
pub mod set;
pub mod tokens;
pub mod waiting;

use std::mem::offset_of;
use std::sync::Arc;

pub use handle::Handle;
pub use lifecycle::State;
pub use rows::Rows;
pub use set::{RequestKey, RequestSet};
pub use waiting::{Queued, Refusal, STEPS_CLASS_MOST, STEPS_OF_CLASS_TOKENS, StepsClass};

use self::tokens::Tokens;
use crate::cache::{Computed, Holdings, Progress};
use crate::identity::PageId;

/// A live request. What every decode step reads comes first, in three cache lines: with thousands of
/// requests a round costs little else than the memory that it touches.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Request {
    /// Where it stands; changed through [`RequestSet::transition`] only.
    pub(crate) state: State,
    /// Forwards that were scheduled and whose results have not landed (`scheduler.md` §2). They are
    /// out against the blocks held, so the count goes with them.
    pub forwards_out: u32,
    /// How many of them compute an intermediate chunk: their results bring no token.
    pub chunks_out: u32,
    /// Results that were out when an engine took the blocks (`Retract`). They should never come, since
    /// the forward was withheld; one that does and fits nothing that is owed is passed over.
    pub late_results: u32,
    /// Retractions for its own want of a block while it had the pool to itself.
    pub stuck_alone: u16,
    /// Whether its present stay began as a readmission.
    pub recovering: bool,
    /// The round that scheduled the oldest of `forwards_out`; meaningful while there are any.
    pub owed_since_round: u64,
    /// Tokens of the rebased prompt: a retraction makes all tokens so far a prompt to compute again.
    pub prompt_tokens: i64,
    /// Prompt and output together, when its declared budget is spent; `i64::MAX` without one.
    pub budget_end_tokens: i64,
    /// What the next decode admission asks for in place of the tokens it needs, if that is more; 0 where
    /// nobody has said.
    pub reserve_next_tokens: i64,
    /// The drafter's candidates that came with the last result, if any did.
    pub spec_candidate_ids: Option<Box<[i32]>>,
    /// Prompt and output. Those of the prompt and of every named page are settled.
    pub tokens: Tokens,
    /// What it holds of the cache; what steps read of it lies in the third line.
    pub holdings: Holdings,
    // What few steps read.
    /// The complete prefix pages of `tokens`, each named once.
    pub pages: Vec<PageId>,
    /// Tokens of the prompt as it was submitted.
    pub submitted_tokens: i64,
    /// The client's name for it.
    pub id: Arc<str>,
    /// Submission number: the order in which requests are considered.
    pub submission: u64,
    /// Retractions for capacity: each widens the headroom of the next admission (`scheduler.md` §4).
    pub retractions: i64,
    /// The handle under which it was last seated, while it is not; changed through
    /// [`RequestSet`]'s `note_last_handle` and `forget_last_handle` only.
    pub(crate) last_handle: Option<Handle>,
}

const _: () = {
    assert!(size_of::<Request>() <= 6 * 64);
    assert!(offset_of!(Request, holdings) + offset_of!(Holdings, groups) <= 3 * 64);
};

/// safe_steps of `scheduler.md` §4: decode steps that one admission prepays at most, in tokens.
pub const SAFE_STEPS_TOKENS: i64 = 4096;

impl Request {
    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Prompt and output so far, in tokens.
    pub fn num_tokens(&self) -> i64 {
        self.tokens.len() as i64
    }

    /// Token budget of the output; 0 where it was not declared.
    pub fn max_new_tokens(&self) -> i64 {
        match self.budget_end_tokens {
            i64::MAX => 0,
            end => end - self.submitted_tokens,
        }
    }

    /// Output so far, in tokens.
    pub fn generated_tokens(&self) -> i64 {
        self.num_tokens() - self.submitted_tokens
    }

    /// Makes all tokens so far a prompt to compute again.
    pub fn rebase_prompt(&mut self) {
        self.tokens.settle();
        self.prompt_tokens = self.num_tokens();
    }

    /// Counts a forward of that round as out against its blocks.
    pub fn forward_scheduled(&mut self, round: u64) {
        if self.forwards_out == 0 {
            self.owed_since_round = round;
        }
        self.forwards_out += 1;
    }

    /// Whether it has generated all that it declared.
    pub fn budget_is_spent(&self) -> bool {
        self.num_tokens() >= self.budget_end_tokens
    }

    /// Whether a client may be reading its output already.
    pub fn has_generated_output(&self) -> bool {
        self.generated_tokens() > 0
    }

    /// The one frontier of publication and retention (`scheduler.md` §5): the scheduled window's end
    /// while prefilling, every token but the last while decoding.
    pub fn computed_tokens(&self) -> i64 {
        match self.state {
            State::Prefilling { window_end } => window_end,
            State::PrefillDone => self.prompt_tokens,
            // The prompt's sample may be out still; the prompt itself is computed.
            State::Decoding | State::RemoteDecoding => {
                (self.num_tokens() - 1).max(self.prompt_tokens)
            }
            // What a peer is writing is not there yet; what nobody waits for is never published.
            _ => 0,
        }
    }

    /// What it computed so far, for its next admission to publish; `granularity` is P.
    pub fn progress(&self, granularity: i64) -> Progress<'_> {
        self.progress_over(&self.pages, self.tokens.settled(), granularity)
    }

    /// What it holds, to be changed, beside what it computed.
    pub fn holdings_and_progress(&mut self, granularity: i64) -> (&mut Holdings, Progress<'_>) {
        let progress = self.progress_over(&self.pages, self.tokens.settled(), granularity);
        (&mut self.holdings, progress)
    }

    fn progress_over<'a>(
        &self,
        pages: &'a [PageId],
        tokens: &'a [i32],
        granularity: i64,
    ) -> Progress<'a> {
        let computed_tokens = self.computed_tokens();
        Progress {
            pages: &pages[..(computed_tokens / granularity) as usize],
            tokens,
            computed_tokens,
            prompt_tokens: self.prompt_tokens,
            by: if self.state == State::Decoding { Computed::Decode } else { Computed::Prefill },
        }
    }

    /// End of the tokens that a decode step of `width` rows, behind the decode steps that are out,
    /// may write: the last token known is its first input, or the prompt's sample, if that is out.
    ///
    /// ```text
    ///   computed      known                   end
    ///   |...., last token |-- width, out --|-- width --|
    /// ```
    pub fn decode_extent(&self, width: i64) -> i64 {
        let sample_out = self.num_tokens() == self.prompt_tokens;
        let steps_out = i64::from(self.forwards_out - self.chunks_out) - i64::from(sample_out);
        let input = (self.num_tokens() - 1).max(self.prompt_tokens);
        input + (steps_out.max(0) + 1) * width
    }

    /// Tokens that an interruption costs a request whose pages come back from the Host: those behind its
    /// last whole page, once the results that are out have landed.
    pub fn lost_tokens(&self, granularity: i64) -> i64 {
        let computed = match self.state() {
            State::PrefillDone | State::Decoding => self.decode_extent(1) - 1,
            _ => self.computed_tokens(),
        };
        computed % granularity
    }

    /// Whether results that are out, of one token at least each, spend the declared budget.
    pub fn budget_is_spoken_for(&self) -> bool {
        self.num_tokens() + i64::from(self.forwards_out) >= self.budget_end_tokens
    }

    /// Room for decode steps that an admission must secure (`scheduler.md` §4); 0 where no budget
    /// was declared, since nothing bounds what would have to be held.
    pub fn admission_headroom(&self) -> i64 {
        match self.budget_end_tokens {
            i64::MAX => 0,
            end => (end - self.num_tokens()).max(0).min(self.secured_window()),
        }
    }

    /// Whether the last admission secured the whole budget that was open then (`scheduler.md` §4).
    /// Judged against that budget and never against today's, which spent headroom shrinks as well.
    pub fn reserve_covers_generation(&self) -> bool {
        self.secured_window() >= self.budget_end_tokens - self.prompt_tokens
    }

    /// Whether its next admission, if it finds the pool without residents, takes all of it and leaves
    /// the cache out: its second such failure shows that what is cached keeps it from fitting, and
    /// without that the bound at submission holds (`liveness.md` 1).
    pub fn needs_empty_pool(&self) -> bool {
        self.stuck_alone >= 2
    }

    fn secured_window(&self) -> i64 {
        SAFE_STEPS_TOKENS * (1 + self.retractions)
    }
}
