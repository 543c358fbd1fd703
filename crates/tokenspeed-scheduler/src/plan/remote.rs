//! What passes between peers: prompts that go out to decode, and prompts that a peer computes
//! (`scheduler.md` §3.1 and §3.2).

use super::admit::Outcome;
use super::batch::{DecodeOp, PrefillOp, Seat};
use super::chunk::Chunk;
use super::demand::{PrefillReserve, landing_demands};
use super::round::Round;
use crate::cache::admission::FirstAdmission;
use crate::cache::{Hit, Progress};
use crate::config::Role;
use crate::request::{Refusal, RequestKey, State};

impl Round<'_> {
    /// Hands every completed prompt whose last result has landed to the peer. Its blocks stay until the
    /// peer has read them, so this outranks feeding more prompts (`scheduler.md` §3.1).
    pub(super) fn hand_over_completed(&mut self) {
        let mut at = 0;
        while let Some(key) = self.requests.decoding_at(at) {
            let request = &self.requests[key];
            let sampled = request.num_tokens() > request.prompt_tokens;
            let last = request.tokens.last();
            // The drafter's candidates lie behind the prompt: the slots were reserved when it completed.
            if sampled && self.take_decode_slots(key) {
                self.requests.transition(key, State::RemoteDecoding);
                let seat = Seat::of(&self.requests[key]);
                self.build.push_remote_decode(DecodeOp { key, seat, input_id: last });
            } else {
                at += 1;
            }
        }
    }

    /// Whether the peer computes a request's prompt; a retracted one recovers here instead.
    pub(super) fn lands_remotely(&self, key: RequestKey) -> bool {
        self.rules.config.role == Role::D && self.requests[key].state().admits_like_new_prompt()
    }

    /// Admits a prompt whole, for the peer to write: it costs no budget and no place in the batch, but as
    /// it holds a whole prompt's blocks before any arrives, nobody follows it in this round
    /// (`scheduler.md` §3.2).
    pub(super) fn open_landing(
        &mut self,
        key: RequestKey,
        row: i32,
        hit: &Hit,
        uncached: bool,
    ) -> Outcome {
        if self.build.remote_prefill().is_some() {
            return Outcome::NotNow;
        }
        let begin = self.cache.tokens_of(hit.total_pages);
        let chunk = Chunk { begin, size: self.requests[key].prompt_tokens - begin, replay: 0 };
        let left = self.left_to_residents(key, chunk.end());
        let request = &mut self.requests[key];
        let reserve = PrefillReserve::new(self.rules, request, chunk, true);
        let demands = landing_demands(self.rules, self.cache.geometries(), chunk, reserve);
        let tokens = request.tokens.settled();
        let first = FirstAdmission { hit, pages: &request.pages, tokens, row };
        let leaves =
            left.is_none_or(|left| self.cache.leaves(&request.holdings, first, &demands, &left));
        request.holdings.uncached = uncached;
        let holdings = &mut request.holdings;
        let fresh = &mut self.build.fresh;
        if !leaves
            || self.cache.admit(holdings, Some(first), &demands, Progress::NONE, fresh).is_err()
        {
            // A shorter hit needs more, a longer one is watched for, and no budget matters.
            let need = self.cache.need(hit, &demands, true).max(self.least_secured(key, hit));
            let steps_class = self.steps_class(key);
            let request = &self.requests[key];
            let watched = request.pages[hit.device_pages..hit.horizon_pages].to_vec();
            let queued = (request.submission, key);
            let refusal =
                Refusal { need, steps_class, budget_floor: 0, watched, for_capacity: true };
            self.requests.waiting.refuse(queued, refusal);
            return Outcome::NoCapacity;
        }
        // Of its states only an endpoint that ends a page can be published (`scheduler.md` §1.2).
        if self.rules.has_state_group && chunk.end() % self.rules.granularity == 0 {
            request.holdings.state_boundaries.push(chunk.end());
        }
        self.seat(key);
        self.requests.transition(key, State::RemotePrefilling);
        self.build.set_remote_prefill(PrefillOp {
            key,
            seat: Seat::of(&self.requests[key]),
            chunk,
            device_hit_tokens: begin,
            host_hit_tokens: 0,
        });
        Outcome::Incomplete
    }
}
