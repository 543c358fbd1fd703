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
            at += 1;
            if self.build.budget_left() - reserved_tokens < cost {
                return;
            }
            if self.yields(key) {
                continue;
            }
            if self.step_in_place(key) {
                continue;
            }
            let outcome = self.grant_over_younger(key, Self::schedule_decode);
            if outcome == Outcome::NoCapacity {
                self.blocked(key);
            }
        }
    }

    /// The common decode step, within what is known to need no admission: it touches nothing but the
    /// request. `false` where there is more to look at.
    fn step_in_place(&mut self, key: RequestKey) -> bool {
        let request = &self.requests[key];
        let step = Step::of(request, self.rules.decode_width);
        let looked_up = request.state() == State::Decoding
            && step.reserve == 0
            && step.extent <= request.holdings.in_place_tokens;
        let waits = request.forwards_out > self.rules.overlap_depth;
        if !looked_up || waits || request.budget_is_spoken_for() {
            return false;
        }
        debug_assert!(self.needs_no_admission(request, step));
        let request = &mut self.requests[key];
        let stepped = &mut request.holdings.stepped_tokens;
        *stepped = step.extent.max(*stepped);
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
        let step = Step::of(request, self.rules.decode_width);
        if self.needs_no_admission(request, step) {
            let holdings = &mut self.requests[key].holdings;
            for group in 0..holdings.groups.len() {
                let demanded = holdings.demanded_tokens(group);
                holdings.groups[group].demanded_tokens = demanded + step.tokens_behind(demanded);
            }
        } else {
            let demand =
                |_, demanded| Demand::Dense { tokens: step.tokens_behind(demanded), reserve: 0 };
            if self.admit_more(key, demand).is_err() {
                return false;
            }
        }
        let holdings = &mut self.requests[key].holdings;
        let (geometries, width) = (self.cache.geometries(), self.rules.decode_width);
        holdings.look_ahead(geometries, self.rules.granularity, width);
        true
    }

    /// Whether a decode step needs no block, completes no page and expires no slot.
    fn needs_no_admission(&self, request: &Request, step: Step) -> bool {
        let holdings = &request.holdings;
        let computed = request.computed_tokens();
        let next_page_end = (holdings.published_pages as i64 + 1) * self.rules.granularity;
        computed < next_page_end
            && self.cache.geometries().iter().enumerate().all(|(group, geometry)| {
                let owned = holdings.groups[group].table.len() as i64 * geometry.block_granularity;
                let demanded = holdings.demanded_tokens(group);
                demanded + step.tokens_behind(demanded) <= owned
            })
            && !self.cache.expires(holdings, computed)
    }
}

/// What a decode step asks for, in tokens.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Absolute end of what it may write.
    extent: i64,
    /// Asked for behind what was demanded before, if that is more.
    reserve: i64,
}

impl Step {
    fn of(request: &Request, width: i64) -> Step {
        Step { extent: request.decode_extent(width), reserve: request.reserve_next_tokens }
    }

    /// What it asks of a group behind the tokens that were demanded of it before.
    fn tokens_behind(self, demanded: i64) -> i64 {
        (self.extent - demanded).max(self.reserve)
    }
}
