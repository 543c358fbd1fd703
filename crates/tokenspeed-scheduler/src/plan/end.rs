//! Requests that the scheduler ends by itself, and says so (`liveness.md` 1).

use super::output::{AbortNotice, AbortReason};
use super::round::Round;
use crate::cache::{Computed, StoreGuard};
use crate::request::RequestKey;

impl Round<'_> {
    /// Ends requests that have generated their declared budget and that no client has finished.
    pub(super) fn end_spent_budgets(&mut self) {
        for key in self.requests.take_spent() {
            self.end_if_spent(key);
        }
    }

    /// Ends a request that could never go on. Whether it did.
    pub(super) fn end_if_over(&mut self, key: RequestKey) -> bool {
        self.end_if_spent(key) || self.end_if_outgrown(key)
    }

    /// On the prefill role the output is the peer's to count.
    fn end_if_spent(&mut self, key: RequestKey) -> bool {
        let request = &self.requests[key];
        let spent = self.rules.config.role.decodes() && request.budget_is_spent();
        if spent {
            let text = format!(
                "request '{}' generated its `max_new_tokens` of {} and has ended; what it computed stays \
                 cached. To go on, submit it with more",
                request.id,
                request.max_new_tokens()
            );
            self.end(key, AbortReason::BudgetSpent, text);
        }
        spent
    }

    /// Ends a request that has outgrown what the whole pool can hold: it was not given a budget to be
    /// bound by (`liveness.md`, "an undeclared budget outgrows the pool"). Whether it did.
    fn end_if_outgrown(&mut self, key: RequestKey) -> bool {
        let request = &self.requests[key];
        let (id, tokens) = (&request.id, request.num_tokens());
        let needed = self.rules.limit_of(tokens, 0);
        let limit = self.rules.token_limit;
        let outgrown = request.max_new_tokens() == 0 && needed > limit;
        if outgrown {
            let text = format!(
                "request '{id}' has {tokens} tokens and needs room for {needed}, but the pool bounds \
                 one request at {limit} (`max_single_request_tokens`); raise `num_device_pages`, or \
                 declare `max_new_tokens`"
            );
            self.end(key, AbortReason::OutgrewPool, text);
        }
        outgrown
    }

    /// Ends a prompt on a prefill worker where nothing is owed and still none gets on: what residents hold
    /// splits parents between groups, so that the blocks that the bound counted are not to be had. The
    /// youngest goes, one under way before one that is complete. None could be retracted, since a peer
    /// may have read part of it; its blocks are free with the peer's word.
    pub(super) fn end_stranded(&mut self) {
        let under_way = self.requests.prefilling_from(0);
        let Some(key) = under_way.or_else(|| self.requests.local_residents().last()) else {
            return;
        };
        let id = &self.requests[key].id;
        let text = format!(
            "request '{id}' cannot go on: what the prompts hold splits the pool between groups, and a \
             prefill worker retracts none; submit it again, or raise `num_device_pages`"
        );
        self.end(key, AbortReason::PoolSplit, text);
    }

    /// Lets a request go, what it computed published and stored, and reports why. The store is ordered
    /// before whatever this plan does to the blocks, as a retraction's is. One whose blocks a peer may be
    /// using is given up, as by an abort.
    fn end(&mut self, key: RequestKey, reason: AbortReason, text: String) {
        let request_id = self.requests[key].id.clone();
        self.build.aborts.push(AbortNotice { request_id, reason, text });
        if self.rules.is_pinned_by_peer(self.requests[key].state()) {
            self.cache.leave_forwards(&mut self.requests[key].holdings);
            return self.requests.give_up(key);
        }
        let mut request = self.requests.remove(key);
        if request.holdings.is_resident() {
            let (holdings, progress) = request.holdings_and_progress(self.rules.granularity);
            self.cache.flush(holdings, progress, Computed::Finish);
            self.cache.start_pending_stores(StoreGuard::StreamOrdered);
            self.rows.give_back(holdings.row);
            self.cache.release(holdings);
        }
        self.cache.forget_pages(&request.pages);
    }
}
