//! The decode batch: every resident whose prompt is scheduled, oldest first.

use super::admit::Outcome;
use super::batch::{DecodeOp, Seat};
use super::round::Round;
use crate::cache::Demand;
use crate::config::Role;
use crate::request::{Request, RequestKey, State};

impl Round<'_> {
    /// Schedules decode steps while `reserved_tokens` of the budget stay untouched.
    pub(super) fn schedule_decode_batch(&mut self, reserved_tokens: i64) {
        let cost = self.rules.decode_cost;
        let mut at = 0;
        while let Some(key) = self.requests.decoding_at(at) {
            if self.build.budget_left() - reserved_tokens < cost {
                return;
            }
            if self.yields(key) {
                at += 1;
                continue;
            }
            let outcome = self.grant_over_younger(key, Self::schedule_decode);
            // Whoever gave way itself stands here no more.
            at += usize::from(self.requests.decoding_at(at) == Some(key));
            if outcome == Outcome::NoCapacity {
                self.blocked(key);
            }
        }
    }

    /// One decode step. Within what the tables own it consumes tokens in place; only a step that
    /// needs a block, completes a page or expires a slot is an admission (`cache.md` §3).
    pub(super) fn schedule_decode(&mut self, key: RequestKey) -> Outcome {
        let request = &self.requests[key];
        let no_budget = self.build.budget_left() < self.rules.decode_cost;
        if no_budget || self.awaits_result(key) || request.budget_is_spoken_for() {
            return Outcome::NotNow;
        }
        let input_id = self.unknown_input(key);
        if !self.take_decode_slots(key) {
            return Outcome::NoCapacity;
        }
        self.requests[key].reserve_next_tokens = None;
        self.requests.transition(key, State::Decoding);
        self.forward_scheduled(key);
        let seat = Seat::of(&self.requests[key]);
        self.build.push_decode(DecodeOp { key, seat, input_id }, self.rules.decode_cost);
        Outcome::Completed
    }

    /// On the decode role a first step's input was sampled elsewhere, by the peer or before a recovery.
    fn unknown_input(&self, key: RequestKey) -> Option<i32> {
        let request = &self.requests[key];
        let first = request.state() == State::PrefillDone && self.rules.config.role == Role::D;
        let landed = request.num_tokens() > request.prompt_tokens;
        (first && landed).then(|| request.tokens[request.tokens.len() - 1])
    }

    /// Secures the slots that a decode step writes, in place or by an admission; `false` where the pool
    /// cannot hold them now.
    pub(super) fn take_decode_slots(&mut self, key: RequestKey) -> bool {
        let request = &self.requests[key];
        let extent = request.decode_extent(self.rules.decode_width);
        let reserve_next = request.reserve_next_tokens.unwrap_or(0);
        let tokens_for = |demanded: i64| (extent - demanded).max(reserve_next).max(0);
        if !self.steps_in_place(request, tokens_for) {
            let demands: Vec<Demand> = request
                .holdings
                .groups
                .iter()
                .map(|held| Demand::Dense { tokens: tokens_for(held.demanded_tokens), reserve: 0 })
                .collect();
            return self.admit_more(key, &demands).is_ok();
        }
        for held in &mut self.requests[key].holdings.groups {
            held.demanded_tokens += tokens_for(held.demanded_tokens);
        }
        true
    }

    /// Whether a decode step needs no block, completes no page and expires no slot.
    fn steps_in_place(&self, request: &Request, tokens_for: impl Fn(i64) -> i64) -> bool {
        let holdings = &request.holdings;
        let computed = request.computed_tokens();
        let next_page_end = (holdings.published_pages as i64 + 1) * self.rules.granularity;
        computed < next_page_end
            && self.cache.geometries().iter().zip(&holdings.groups).all(|(geometry, held)| {
                let owned = held.table.len() as i64 * geometry.block_granularity;
                held.demanded_tokens + tokens_for(held.demanded_tokens) <= owned
            })
            && !self.cache.expires(holdings, computed)
    }
}
