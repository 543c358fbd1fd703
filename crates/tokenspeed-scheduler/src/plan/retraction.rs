//! Retraction: when an admission failed, who gives way, and to whom (`scheduler.md` §2).

use std::cmp::Reverse;

use super::admit::Outcome;
use super::round::Round;
use crate::cache::{Computed, StoreGuard};
use crate::config::Role;
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
        if !self.keeps_batch()
            && !self.build.prefill_progressed()
            && self.cache.transfers().owe_nothing()
        {
            self.retract_and_grant(blocker);
        }
    }

    fn retract_and_grant(&mut self, blocker: RequestKey) {
        let mut victims = Vec::new();
        while let Some(victim) = self.choose_victim(Exemption::Holds) {
            // Retraction waits for the best victim rather than taking a worse one.
            if self.requests[victim].forwards_out > 0 {
                return;
            }
            self.retract_or_end(victim);
            victims.push(victim);
            if self.is_fruitless() {
                match self.grant_to_stalled() {
                    true => return,
                    false => continue,
                }
            }
            let granted = match victims.contains(&blocker) {
                false => self.grant(blocker),
                true => self.grant_to_waiting(&victims),
            };
            if granted != Outcome::NoCapacity {
                return;
            }
        }
    }

    /// Whether nothing is on its way that could bring a stalled request on by itself: no result, no load,
    /// no store that gives capacity back, no word of a peer.
    pub(super) fn nothing_is_owed(&self) -> bool {
        self.cache.transfers().owe_nothing()
            && self.requests.with_peer().next().is_none()
            && self.requests.local_residents().all(|key| self.requests[key].forwards_out == 0)
    }

    /// The document's rules can end in a round that schedules nothing although nothing is owed: the
    /// budget was left to a prompt that cannot use it; the victim was the blocker and no waiting prompt
    /// fits what it freed; all who hold blocks are exempt and each lacks one more. Then decodes take
    /// the budget that was left; the residents that lack blocks come first, decodes before prompts, each
    /// oldest first, so that every retraction buys progress; where they still do not fit, the exemption
    /// falls; and at last the prompt phases run again on what is free (`liveness.md` 1).
    pub(super) fn break_standstill(&mut self) {
        self.schedule_decode_batch(0);
        let someone_lacks_blocks = self.feedback.capacity_blocker.is_some() || self.pool_is_idle();
        if !self.build.is_empty() || !someone_lacks_blocks {
            return;
        }
        while !self.grant_to_stalled() {
            match self.choose_victim(Exemption::Falls) {
                Some(victim) => self.retract_or_end(victim),
                None => return self.serve_from_an_idle_pool(),
            }
        }
    }

    /// The prompt phases run again on what is free. Where nobody fits beside what is cached, and nobody
    /// holds a block, the first in line does without what is cached.
    pub(super) fn serve_from_an_idle_pool(&mut self) {
        self.schedule_prompts();
        if self.build.is_empty()
            && let Some(first) = self.requests.first_in_line()
        {
            self.grant(first);
        }
    }

    /// Whether more retractions than there are requests have bought no token: prompts take turns with
    /// each other. Decodes, and residents that lack blocks, then go first until one gets on.
    pub(super) fn is_fruitless(&self) -> bool {
        *self.retractions_since_token > self.requests.len() as u64
    }

    /// Grants to the first resident that is not at work and can be, decodes before prompts.
    fn grant_to_stalled(&mut self) -> bool {
        let residents = self.requests.local_residents();
        let mut idle: Vec<RequestKey> =
            residents.filter(|&key| self.requests[key].forwards_out == 0).collect();
        idle.sort_by_key(|&key| {
            let request = &self.requests[key];
            (matches!(request.state(), State::Prefilling { .. }), request.submission)
        });
        idle.iter().any(|&key| matches!(self.grant(key), Outcome::Completed | Outcome::Incomplete))
    }

    /// Incomplete prefills first, the largest first: nobody reads their output yet. Then decode work
    /// by most newly releasable parents and fewest tokens: the most capacity for the least lost work.
    /// A request whose admission prepaid its whole budget is exempt. One whose prompt a peer is writing
    /// is neither: it is not to be had until it has landed.
    fn choose_victim(&self, exemption: Exemption) -> Option<RequestKey> {
        if self.keeps_batch() {
            return self.next_to_give_way();
        }
        let rank = |key: RequestKey, releasable: usize| {
            let request = &self.requests[key];
            let order = match request.state() {
                State::Prefilling { .. } => (0, Reverse(request.prompt_tokens), 0),
                _ => (1, Reverse(releasable as i64), request.num_tokens()),
            };
            (order, request.submission)
        };
        let candidates = self.requests.local_residents().filter(|&key| {
            exemption == Exemption::Falls || !self.requests[key].reserve_covers_generation()
        });
        // Tables are walked only of those that could be better than the best so far.
        let mut best = None;
        for key in candidates {
            let holdings = &self.requests[key].holdings;
            let at_best = (rank(key, holdings.releasable_at_most()), key);
            if best.is_none_or(|best| at_best < best) {
                let found = (rank(key, self.cache.releasable_parents(holdings)), key);
                best = Some(best.map_or(found, |best| found.min(best)));
            }
        }
        best.map(|(_, key)| key)
    }

    /// Gives the freed blocks to the request that they were freed for, if it may join the batch. One
    /// that may not is the first to be tried by the next round's phases.
    fn grant(&mut self, key: RequestKey) -> Outcome {
        match self.requests[key].state() {
            State::PrefillDone | State::Decoding => self.schedule_decode(key),
            _ if self.lands_remotely(key) => self.grant_first_chunk(key),
            _ if !self.may_join_prefill() => Outcome::NotNow,
            State::Prefilling { .. } => self.schedule_next_chunk(key),
            State::Submitted | State::Retracted { .. } => self.grant_first_chunk(key),
            _ => Outcome::NotNow,
        }
    }

    /// Grants to the first waiting prompt that has not just given way itself: the blocks must not go
    /// straight back to a victim's own readmission.
    fn grant_to_waiting(&mut self, victims: &[RequestKey]) -> Outcome {
        let next = self.requests.waiting.iter().find(|key| !victims.contains(key));
        next.map_or(Outcome::NotNow, |key| self.grant(key))
    }

    /// Outside a fused engine's mixed mode prompts and decodes never share a round.
    fn may_join_prefill(&self) -> bool {
        let config = &self.rules.config;
        let mixed = config.role == Role::Fused && config.enable_mixed_prefill_decode;
        mixed || self.build.decodes().is_empty()
    }

    /// Retracts, or ends a request that could never come back.
    pub(super) fn retract_or_end(&mut self, key: RequestKey) {
        // With the pool to itself it fails for cached blocks alone: for a hit that it holds, or for
        // leftovers that split parents between groups.
        let alone = self.feedback.stalled.contains(&key) && self.requests.residents().count() == 1;
        self.requests[key].stuck_alone += u16::from(alone);
        if !self.end_if_over(key) {
            self.retract(key);
        }
    }

    /// Takes everything from a resident request. With a Host tier its computed blocks are stored, by
    /// a copy that the runtime orders before whatever this plan does to them; so they are free at once.
    pub(super) fn retract(&mut self, key: RequestKey) {
        let snapshot = self.cache.host().is_some();
        *self.retraction_epoch += 1;
        self.requests.caution.note_retraction();
        let request = &mut self.requests[key];
        let epoch = self.rules.place_among_readmissions(request.submission, *self.retraction_epoch);
        let (holdings, progress) = request.holdings_and_progress(self.rules.granularity);
        if snapshot {
            self.cache.flush(holdings, progress, Computed::Retraction);
            self.cache.start_pending_stores(StoreGuard::StreamOrdered);
        }
        let handle = self.rows.handle(holdings.row);
        self.rows.give_back(holdings.row);
        self.cache.release(holdings);
        self.build.retracted.push(handle);
        *self.retractions_since_token += 1;
        request.retractions += 1;
        request.reserve_next_tokens = 0;
        request.rebase_prompt();
        let state = State::Retracted {
            epoch,
            resumes_generation: request.has_generated_output(),
            recovers_in_order: snapshot || self.rules.config.role == Role::D,
        };
        self.requests.note_last_handle(key, handle);
        self.requests.transition(key, state);
    }
}

/// Whether a request that prepaid its whole budget may be a victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exemption {
    /// It may not: what it would free, its readmission must take back.
    Holds,
    /// It may: nobody could move otherwise.
    Falls,
}
