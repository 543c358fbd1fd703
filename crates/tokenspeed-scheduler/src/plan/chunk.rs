//! How a prompt is cut into chunks: token arithmetic and nothing else (`scheduler.md` §1, §1.2).

use super::rules::Rules;

/// A prompt's chunk `[begin, begin + size)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// First token that it computes.
    pub begin: i64,
    /// How many it computes.
    pub size: i64,
}

impl Chunk {
    /// End of the chunk.
    pub fn end(self) -> i64 {
        self.begin + self.size
    }

    /// The last page boundary inside the chunk or at its end, if there is one: the checkpoint that a
    /// state group materializes.
    pub fn last_aligned_boundary(self, granularity: i64) -> Option<i64> {
        let boundary = self.end() / granularity * granularity;
        (boundary > self.begin).then_some(boundary)
    }
}

/// The next chunk of a prompt of `prompt_tokens` whose first `begin` are computed, within `budget`
/// tokens; empty where it has to wait for a round with more budget.
pub fn next_chunk(
    rules: &Rules,
    begin: i64,
    prompt_tokens: i64,
    budget: i64,
    promotion_boundary: Option<i64>,
) -> Chunk {
    let raw = (prompt_tokens - begin).min(budget);
    Chunk { begin, size: align(rules, begin, prompt_tokens, raw, promotion_boundary) }
}

/// A chunk stops at a promotion boundary that it would pass, so that all groups publish there. With
/// a state group, or until such a boundary is published, a chunk that does not complete its prompt ends
/// on a page: what it leaves anywhere else could never be matched. Elsewhere nothing is lost by a chunk
/// that ends within a page.
fn align(rules: &Rules, begin: i64, prompt_tokens: i64, raw: i64, promotion: Option<i64>) -> i64 {
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
