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

    /// The common decode step, which is known to need no admission: it reads and writes nothing of the
    /// cache. `false` where there is more to look at.
    fn step_in_place(&mut self, key: RequestKey) -> bool {
        let request = &self.requests[key];
        let extent = request.decode_extent(self.rules.decode_width);
        let is_known = request.state() == State::Decoding
            && request.reserve_next_tokens == 0
            && extent <= request.holdings.in_place_tokens;
        if !is_known || self.awaits_result(key) || request.budget_is_spoken_for() {
            return false;
        }
        debug_assert!(self.needs_no_admission(request, self.step_demand(request)));
        let stepped = &mut self.requests[key].holdings.stepped_tokens;
        *stepped = extent.max(*stepped);
        self.push_step(key, None);
        true
    }

    /// Takes a step whose slots are secured into the batch.
    fn push_step(&mut self, key: RequestKey, input_id: Option<i32>) {
        let request = &mut self.requests[key];
        request.forward_scheduled(self.number);
        let op = DecodeOp { key, seat: Seat::of(request), input_id };
        self.build.push_decode(op, self.rules.decode_cost);
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
        self.push_step(key, input_id);
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
        let demand = self.step_demand(&self.requests[key]);
        if self.needs_no_admission(&self.requests[key], demand) {
            let holdings = &mut self.requests[key].holdings;
            for group in 0..holdings.groups.len() {
                let demanded = holdings.demanded_tokens(group);
                holdings.groups[group].demanded_tokens = demand.demanded_after(demanded);
            }
        } else if self.admit_more(key, |_| demand).is_err() {
            return false;
        }
        let holdings = &mut self.requests[key].holdings;
        let (geometries, width) = (self.cache.geometries(), self.rules.decode_width);
        holdings.look_ahead(geometries, self.rules.granularity, width);
        true
    }

    /// What a decode step asks of each group.
    fn step_demand(&self, request: &Request) -> Demand {
        let extent = request.decode_extent(self.rules.decode_width);
        Demand::Step { extent, reserve: request.reserve_next_tokens }
    }

    /// Whether a decode step needs no block, completes no page and expires no slot.
    fn needs_no_admission(&self, request: &Request, demand: Demand) -> bool {
        let holdings = &request.holdings;
        let computed = request.computed_tokens();
        let grows = |group| self.cache.growth_of(holdings, group, demand).blocks > 0;
        computed < holdings.next_page_end(self.rules.granularity)
            && !(0..holdings.groups.len()).any(grows)
            && !self.cache.expires(holdings, computed)
    }
}
