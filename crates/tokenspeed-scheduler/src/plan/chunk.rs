//! How a prompt is cut into chunks: token arithmetic and nothing else (`scheduler.md` §1, §1.2, §1.3).

use super::rules::Rules;

/// A prompt's chunk: it computes `[begin, begin + size)`, and its input is
/// `[begin - replay, begin + size)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// First token that it computes.
    pub begin: i64,
    /// How many it computes.
    pub size: i64,
    /// Re-fed tokens ahead of `begin`, which regenerate the replayable groups' rows; not progress.
    pub replay: i64,
}

impl Chunk {
    /// End of the chunk.
    pub fn end(self) -> i64 {
        self.begin + self.size
    }

    /// First token of its input.
    pub fn input_begin(self) -> i64 {
        self.begin - self.replay
    }

    /// Tokens of its input: what it takes of the round's budget.
    pub fn input_size(self) -> i64 {
        self.replay + self.size
    }

    /// The last page boundary inside the chunk or at its end, if there is one: the checkpoint that a
    /// state group materializes.
    pub fn last_aligned_boundary(self, granularity: i64) -> Option<i64> {
        let boundary = self.end() / granularity * granularity;
        (boundary > self.begin).then_some(boundary)
    }
}

/// What a chunk has to reckon with.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// First token to compute; all before are computed, or hit.
    pub begin: i64,
    /// Whether the chunk opens an admission, so that a hit ends at `begin`.
    pub first: bool,
    /// Tokens of the prompt.
    pub prompt_tokens: i64,
    /// Tokens of input that the round may still take.
    pub budget: i64,
    /// Where all groups are to publish, if anywhere.
    pub promotion_boundary: Option<i64>,
}

/// The next chunk of a prompt; empty where it has to wait for a round with more budget.
pub fn next_chunk(rules: &Rules, cut: Cut) -> Chunk {
    let replay = if cut.first { rules.replay_tokens(cut.begin) } else { 0 };
    let raw = (cut.prompt_tokens - cut.begin).min(cut.budget - replay).max(0);
    // In what is left of the prompt's final window no end satisfies a promotion boundary too: it yields.
    let final_window_begin = cut.prompt_tokens - rules.replay_window;
    let yields =
        |boundary: i64| final_window_begin.max(0) <= cut.begin && final_window_begin < boundary;
    let promotion_boundary = cut.promotion_boundary.filter(|&boundary| !yields(boundary));
    let size = align(rules, Cut { promotion_boundary, ..cut }, raw);
    Chunk { begin: cut.begin, size: keep_final_window(rules, cut, size), replay }
}

/// A chunk stops at a promotion boundary that it would pass, so that all groups publish there. With
/// a state group, or until such a boundary is published, a chunk that does not complete its prompt ends
/// on a page: what it leaves anywhere else could never be matched. Elsewhere nothing is lost by a chunk
/// that ends within a page.
fn align(rules: &Rules, cut: Cut, raw: i64) -> i64 {
    let Cut { begin, prompt_tokens, promotion_boundary: promotion, .. } = cut;
    if let Some(boundary) = promotion.filter(|&at| begin < at && at <= begin + raw) {
        return boundary - begin;
    }
    let pending = promotion.is_some_and(|boundary| begin <= boundary);
    if (!rules.has_state_group && !pending) || begin + raw == prompt_tokens {
        return raw;
    }
    let to_boundary = |size: i64| (begin + size) / rules.granularity * rules.granularity - begin;
    if to_boundary(rules.config.max_scheduled_tokens) <= 0 {
        // Not even a whole round's budget reaches a page: the boundary yields, or nothing would run.
        return raw;
    }
    to_boundary(raw).max(0)
}

/// A model with replayable groups narrows its decoder to the prompt's last window, which has to arrive
/// in one forward as new tokens: a chunk that would leave less than that window is shortened so
/// that exactly the window is left (`scheduler.md` §1.3).
fn keep_final_window(rules: &Rules, cut: Cut, size: i64) -> i64 {
    let rest = cut.prompt_tokens - cut.begin - size;
    if 0 < rest && rest < rules.replay_window {
        (cut.prompt_tokens - rules.replay_window - cut.begin).max(0)
    } else {
        size
    }
}
