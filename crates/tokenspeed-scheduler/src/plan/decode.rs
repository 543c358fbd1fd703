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
            if self.yields(key) || self.step_in_place(key) {
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

    /// The common decode step, within what is known to need no admission: it touches nothing but the
    /// request. `false` where there is more to look at.
    fn step_in_place(&mut self, key: RequestKey) -> bool {
        let request = &self.requests[key];
        let extent = request.decode_extent(self.rules.decode_width);
        let looked_up = request.state() == State::Decoding
            && request.reserve_next_tokens == 0
            && extent <= request.holdings.in_place_tokens;
        let waits = request.forwards_out > self.rules.overlap_depth;
        if !looked_up || waits || request.budget_is_spoken_for() {
            return false;
        }
        debug_assert!(self.needs_no_admission(request, &self.tokens_asked(request)));
        let request = &mut self.requests[key];
        let stepped = &mut request.holdings.stepped_tokens;
        *stepped = extent.max(*stepped);
        request.forward_scheduled(self.number);
        let op = DecodeOp { key, seat: Seat::of(request), input_id: None };
        self.build.push_decode(op, self.rules.decode_cost);
        true
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
        self.requests[key].reserve_next_tokens = 0;
        self.requests.transition(key, State::Decoding);
        self.requests[key].forward_scheduled(self.number);
        let seat = Seat::of(&self.requests[key]);
        self.build.push_decode(DecodeOp { key, seat, input_id }, self.rules.decode_cost);
        Outcome::Completed
    }

    /// On the decode role a first step's input was sampled elsewhere, by the peer or before a recovery.
    fn unknown_input(&self, key: RequestKey) -> Option<i32> {
        let request = &self.requests[key];
        let first = request.state() == State::PrefillDone && self.rules.config.role == Role::D;
        let landed = request.num_tokens() > request.prompt_tokens;
        if first && landed { request.tokens.last() } else { None }
    }

    /// Secures the slots that a decode step writes, in place or by an admission; `false` where the pool
    /// cannot hold them now.
    pub(super) fn take_decode_slots(&mut self, key: RequestKey) -> bool {
        let request = &self.requests[key];
        let asked = self.tokens_asked(request);
        let taken = if self.needs_no_admission(request, &asked) {
            let holdings = &mut self.requests[key].holdings;
            for (group, tokens) in asked.into_iter().enumerate() {
                holdings.groups[group].demanded_tokens = holdings.demanded_tokens(group) + tokens;
            }
            true
        } else {
            let demand = |tokens| Demand::Dense { tokens, reserve: 0 };
            let demands: Vec<Demand> = asked.into_iter().map(demand).collect();
            self.admit_more(key, &demands).is_ok()
        };
        if taken {
            let (geometries, width) = (self.cache.geometries(), self.rules.decode_width);
            let holdings = &mut self.requests[key].holdings;
            holdings.look_ahead(geometries, self.rules.granularity, width);
        }
        taken
    }

    /// What a decode step asks of each group, behind what was demanded before.
    fn tokens_asked(&self, request: &Request) -> Vec<i64> {
        let extent = request.decode_extent(self.rules.decode_width);
        let holdings = &request.holdings;
        let asked =
            |group| (extent - holdings.demanded_tokens(group)).max(request.reserve_next_tokens);
        (0..holdings.groups.len()).map(asked).collect()
    }

    /// Whether a decode step that asks for so many tokens a group needs no block, completes no page and
    /// expires no slot.
    fn needs_no_admission(&self, request: &Request, asked: &[i64]) -> bool {
        let holdings = &request.holdings;
        let computed = request.computed_tokens();
        let next_page_end = (holdings.published_pages as i64 + 1) * self.rules.granularity;
        computed < next_page_end
            && self.cache.geometries().iter().enumerate().all(|(group, geometry)| {
                let owned = holdings.groups[group].table.len() as i64 * geometry.block_granularity;
                holdings.demanded_tokens(group) + asked[group] <= owned
            })
            && !self.cache.expires(holdings, computed)
    }
}
