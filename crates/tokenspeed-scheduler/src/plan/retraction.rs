//! Retraction: when an admission failed, who gives way, and to whom (`scheduler.md` §2).

use std::cmp::Reverse;

use super::admit::Outcome;
use super::output::AbortReason;
use super::round::Round;
use crate::cache::StoreGuard;
use crate::request::{RequestKey, State};

impl Round<'_> {
    /// Retracts victims and retries the blocked admission within this plan, until it fits or the
    /// victims run out. Fires only where no prompt progressed and an admission failed for capacity.
    pub(super) fn maybe_retract_for_capacity(&mut self) {
        let Some(blocker) = self.feedback.capacity_blocker else {
            return;
        };
        // A load writes blocks that its readmission owns; a pinned store gives its blocks back by
        // itself, and to retract anyone for them would be thrash.
        let transfers = self.cache.transfers();
        if self.build.prefill_progressed()
            || transfers.loads_in_flight() > 0
            || transfers.pinned_stores_in_flight() > 0
        {
            return;
        }
        let mut blocker = Some(blocker);
        while let Some(victim) = self.choose_victim() {
            // Retraction waits for the best victim rather than taking a worse one.
            if self.requests[victim].forwards_out > 0 {
                return;
            }
            self.retract_or_end(victim);
            if blocker == Some(victim) {
                blocker = None;
            }
            let granted = match blocker {
                Some(key) => self.grant(key),
                // The blocks must not go straight back to the victim's own readmission.
                None => self.grant_to_waiting(victim),
            };
            if granted != Outcome::NoCapacity {
                return;
            }
        }
    }

    /// Incomplete prefills first, the largest first: nobody reads their output yet. Then decode work
    /// by most newly releasable parents and fewest tokens: the most capacity for the least lost work.
    /// A request whose admission prepaid its whole budget is exempt.
    fn choose_victim(&self) -> Option<RequestKey> {
        let rank = |key: RequestKey| {
            let request = &self.requests[key];
            let incomplete = matches!(request.state(), State::Prefilling { .. });
            let releasable = self.cache.releasable_parents(&request.holdings);
            (Reverse(incomplete), Reverse(releasable), request.num_tokens(), request.submission)
        };
        self.requests
            .residents()
            .filter(|&key| !self.requests[key].reserve_covers_generation())
            .min_by_key(|&key| rank(key))
    }

    /// Gives the freed blocks to the request that they were freed for, if it may join the batch. One
    /// that may not is the first to be tried by the next round's phases.
    fn grant(&mut self, key: RequestKey) -> Outcome {
        match self.requests[key].state() {
            State::PrefillDone | State::Decoding => self.schedule_decode(key),
            _ if !self.may_join_prefill() => Outcome::NotNow,
            State::Prefilling { .. } => self.schedule_next_chunk(key),
            State::Submitted | State::Retracted { .. } => self.schedule_first_chunk(key),
        }
    }

    fn grant_to_waiting(&mut self, victim: RequestKey) -> Outcome {
        let mut from = 0;
        while let Some(key) = self.requests.waiting_from(from) {
            from = self.requests[key].submission + 1;
            if key != victim {
                return self.grant(key);
            }
        }
        Outcome::NotNow
    }

    /// Outside mixed mode prompts and decodes never share a round.
    fn may_join_prefill(&self) -> bool {
        self.rules.config.enable_mixed_prefill_decode || self.build.decodes().is_empty()
    }

    /// Retracts, or ends a request that has outgrown what the whole pool can hold: it could never come
    /// back (`liveness.md`, "an undeclared budget outgrows the pool").
    fn retract_or_end(&mut self, key: RequestKey) {
        let request = &self.requests[key];
        let needed = self.rules.limit_of(request.num_tokens(), 0);
        let limit = self.rules.token_limit;
        if request.max_new_tokens > 0 || needed <= limit {
            return self.retract(key);
        }
        let text = format!(
            "request '{}' has {} tokens and needs room for {needed}, but the pool bounds one request \
             at {limit} (`max_single_request_tokens`); raise `num_device_pages`, or declare \
             `max_new_tokens`",
            request.id,
            request.num_tokens()
        );
        self.end(key, AbortReason::OutgrewPool, text);
    }

    /// Takes everything from a resident request. With a Host tier its computed blocks are stored, by
    /// a copy that the runtime orders before whatever this plan does to them; so they are free at once.
    pub(super) fn retract(&mut self, key: RequestKey) {
        let snapshot = self.cache.host().is_some();
        let mut holdings = std::mem::take(&mut self.requests[key].holdings);
        if snapshot {
            let progress = self.requests[key].progress(self.rules.granularity);
            self.cache.flush(&mut holdings, progress);
            self.cache.start_pending_stores(StoreGuard::StreamOrdered);
        }
        self.build.retracted.push(self.rows.handle(holdings.row));
        self.rows.give_back(holdings.row);
        self.cache.release(&mut holdings);
        *self.retraction_epoch += 1;
        let epoch = *self.retraction_epoch;
        let request = &mut self.requests[key];
        request.holdings = holdings;
        request.retractions += 1;
        request.prompt_tokens = request.num_tokens();
        let state = State::Retracted {
            epoch,
            resumes_generation: request.has_generated_output(),
            has_recoverable_snapshot: snapshot,
        };
        self.requests.transition(key, state);
    }
}
