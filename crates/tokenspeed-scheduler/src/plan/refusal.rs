//! What a refused prompt needs at least, whatever the cache may lose meanwhile: the bound by which later
//! rounds pass it over without a look.

use super::chunk::{Chunk, Cut, next_chunk};
use super::demand::{PrefillReserve, prefill_demands};
use super::rules::Rules;
use crate::cache::{Coordinator, Hit};
use crate::request::{Refusal, Request};

/// The refusal of a first admission that would have begun with `chunk`, behind `hit`.
///
/// What the hit may gain is watched. What it may lose is allowed for: a shorter hit can need less, since
/// nothing is loaded, the chunk may not complete its prompt any more, or a boundary cuts it short.
pub fn least_need(
    rules: &Rules,
    cache: &Coordinator,
    request: &Request,
    chunk: Chunk,
    hit: &Hit,
) -> Refusal {
    let cut = chunk.end() < request.prompt_tokens;
    // A chunk cut by the budget is judged by a rounder, smaller one: the refusal then outlives small
    // changes of the budget.
    let step = (rules.config.max_scheduled_tokens / 8).max(1);
    let round = if cut { (chunk.size / step * step).max(1) } else { chunk.size };
    let closed_only = cache.geometries().iter().all(|geometry| geometry.is_prefix_closed());
    let may_lose = hit.total_pages > 0 || hit.promotion_boundary_pages.is_some();
    let may_move = may_lose && !closed_only;
    let budget_floor = if may_move { 1 } else { round };
    let least = match may_move {
        // The shortest chunk there is.
        true if rules.has_state_group => {
            Chunk { begin: chunk.begin, size: chunk.size.min(rules.granularity), replay: 0 }
        }
        true => Chunk { begin: chunk.begin, size: 1, replay: 0 },
        false => next_chunk(
            rules,
            Cut {
                begin: chunk.begin,
                first: true,
                prompt_tokens: request.prompt_tokens,
                budget: chunk.replay + round,
                promotion_boundary: hit.promotion_boundary_pages.map(|p| cache.tokens_of(p)),
            },
        ),
    };
    let need = if least.size <= 0 {
        0
    } else {
        let reserve = match may_lose {
            true => PrefillReserve::of_incomplete(rules, request, least),
            false => PrefillReserve::new(rules, request, least, true),
        };
        let demands = prefill_demands(rules, cache.geometries(), least, reserve);
        cache.need(hit, &demands, !may_lose)
    };
    let watched = request.pages[hit.device_pages..hit.horizon_pages].to_vec();
    // In a larger budget, and behind a shorter hit, a chunk that is not empty stays so.
    let for_capacity = !may_move && least.size > 0;
    Refusal { need, steps_class: 0, budget_floor, watched, for_capacity }
}
