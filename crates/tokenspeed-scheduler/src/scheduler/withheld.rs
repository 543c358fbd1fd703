//! Bytes that never came: loads that failed and forwards that were withheld, and whoever rests on them
//! (`cache.md` §8; `scheduler.md` §4; `liveness.md` 3).

use super::Scheduler;
use crate::cache::{Basis, OpId};
use crate::config::Role;
use crate::request::{RequestKey, State};

impl Scheduler {
    /// Ends a load that failed.
    pub(super) fn fail_load(&mut self, load: OpId) {
        let basis = Basis::Load(load);
        if self.cache.unproven().has(basis) {
            self.cache.complete_transfer(load, false);
            self.retract_readers(&[basis]);
        }
    }

    /// Takes a request's blocks, whose forwards were withheld (`Retract`). The engine retracts their other
    /// parts by itself. On the decode role a recovery goes on here, since its peer has done its part.
    pub(super) fn withhold(&mut self, key: RequestKey) {
        let request = &self.requests[key];
        if !request.state().is_resident() {
            return;
        }
        let recovers_in_order = self.rules.config.role == Role::D && request.recovering;
        let mut forwards = request.holdings.forwards.clone();
        forwards.retain(|&forward| self.cache.unproven().has(forward));
        forwards.iter().for_each(|&forward| self.cache.disprove(forward));
        self.retract_without_snapshot(key, recovers_in_order);
        self.retract_readers(&forwards);
    }

    /// Residents that hit what rests on these.
    pub(super) fn readers_of(&self, bases: &[Basis]) -> Vec<RequestKey> {
        let rests = |&key: &RequestKey| {
            let rests_on = &self.requests[key].holdings.rests_on;
            bases.iter().any(|basis| rests_on.contains(basis))
        };
        self.requests.residents().filter(rests).collect()
    }

    /// Retracts the readers of what will not come, without a snapshot. Where a peer is at work the blocks
    /// are its own until its word; a landing is retracted then.
    fn retract_readers(&mut self, bases: &[Basis]) {
        for key in self.readers_of(bases) {
            match self.requests[key].state().is_with_peer() {
                true => self.requests[key].holdings.torn = true,
                false => self.retract_torn(key),
            }
        }
    }

    /// Takes the blocks of a resident that rests on what will not come. On the decode role it recovers
    /// here, since its peer has done its part (`scheduler.md` §3.2).
    pub(super) fn retract_torn(&mut self, key: RequestKey) {
        self.retract_without_snapshot(key, self.rules.config.role == Role::D);
    }

    /// The blocks do not hold what they should: nothing is published, and the request starts over as
    /// a new prompt (`scheduler.md` §4). Its forwards were withheld: no result is owed any more. One that
    /// comes late by a handle of that stay, or before it is admitted again, counts for nothing.
    fn retract_without_snapshot(&mut self, key: RequestKey, recovers_in_order: bool) {
        self.retraction_epoch += 1;
        let request = &mut self.requests[key];
        let epoch = self.rules.place_among_readmissions(request.submission, self.retraction_epoch);
        request.last_handle = Some(self.rows.handle(request.holdings.row));
        self.rows.give_back(request.holdings.row);
        self.cache.release(&mut request.holdings);
        request.late_results += std::mem::take(&mut request.forwards_out);
        request.chunks_out = 0;
        request.reserve_next_tokens = 0;
        if self.rules.config.role == Role::P {
            self.forget_sample(key);
        }
        let request = &mut self.requests[key];
        request.rebase_prompt();
        let resumes_generation = request.has_generated_output();
        let state = State::Retracted { epoch, resumes_generation, recovers_in_order };
        self.requests.transition(key, state);
    }

    /// A prefill worker's sample belongs to the hand-over: nobody has read it, and the peer has room for
    /// the prompt as it was submitted (`scheduler.md` §3.1).
    fn forget_sample(&mut self, key: RequestKey) {
        let request = &mut self.requests[key];
        request.tokens.truncate(request.submitted_tokens as usize);
        request.spec_candidate_ids = None;
        let complete = (request.num_tokens() / self.rules.granularity) as usize;
        let named = request.pages.split_off(complete);
        self.cache.forget_pages(&named);
    }
}
