//! Events. A list of them is looked through first and carried out then: one that cannot happen
//! refuses the list, and nothing has changed (`liveness.md` 4).

use rustc_hash::FxHashMap;

use super::Scheduler;
use super::results;
use crate::cache::transfer::Transfer;
use crate::cache::{Computed, StoreGuard};
use crate::config::Role;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::request::{Request, RequestKey, State};

/// What a request will have come to when the events before have been carried out.
#[derive(Debug, Clone, Copy)]
struct Expected {
    live: bool,
    state: State,
    owed: results::Owed,
}

impl Scheduler {
    /// Carries events out in their order, all or none. One for a request or an operation that is gone
    /// is ignored.
    ///
    /// # Errors
    /// [`Error::UnexpectedEvent`], [`Error::ResultNotOwed`], [`Error::BadResult`],
    /// [`Error::BadReserve`] or [`Error::UnknownOperation`] for one that cannot happen.
    pub fn advance(&mut self, events: Vec<Event>) -> Result<()> {
        self.advance_by(&events)
    }

    /// The same, of events that the caller keeps.
    ///
    /// # Errors
    /// As [`Scheduler::advance`].
    pub fn advance_by(&mut self, events: &[Event]) -> Result<()> {
        let mut expected: FxHashMap<RequestKey, Expected> =
            FxHashMap::with_capacity_and_hasher(events.len(), Default::default());
        for event in events {
            self.foresee(event, &mut expected)?;
        }
        for event in events {
            self.carry_out(event);
        }
        self.verify()
    }

    fn foresee(&self, event: &Event, expected: &mut FxHashMap<RequestKey, Expected>) -> Result<()> {
        let Some(id) = event.request_id() else {
            return self.foresee_acknowledgement(event);
        };
        let Some(key) = self.requests.find(id) else {
            return Ok(());
        };
        let request = &self.requests[key];
        let now = expected.entry(key).or_insert_with(|| Expected {
            live: true,
            state: request.state(),
            owed: results::Owed::of(request),
        });
        if !now.live || now.state == State::Draining {
            return Ok(());
        }
        let role = self.rules.config.role;
        let pinned = self.rules.is_pinned_by_peer(now.state);
        let waits = matches!(now.state, State::Bootstrapping | State::Submitted);
        let possible = match event {
            Event::ExtendResult { tokens, .. } => {
                let width = self.rules.decode_width;
                return now.owed.land(id, now.state, tokens.len(), width).map(drop);
            }
            Event::Finish { .. } => {
                now.live = false;
                self.may_finish(request, now.state)
            }
            Event::Abort { .. } => {
                match pinned {
                    true => now.state = State::Draining,
                    false => now.live = false,
                }
                true
            }
            Event::TransferFailed { .. } => {
                now.live = false;
                role.transfers()
            }
            Event::TransferSucceeded { .. } => {
                let landed = now.owed.forwards() == 0;
                now.live = false;
                match now.state {
                    State::PrefillDone => role.transfers() && landed,
                    State::Decoding => role == Role::D,
                    state => state == State::RemoteDecoding,
                }
            }
            Event::Bootstrapped { .. } => {
                if now.state == State::Bootstrapping {
                    now.state = State::Submitted;
                }
                role.transfers()
            }
            Event::RemotePrefillDone { .. } => {
                // Where the prompt is complete the word comes late, and counts for nothing.
                let possible = match now.state {
                    State::PrefillDone => role == Role::D || now.owed.forwards() == 0,
                    State::RemotePrefilling | State::Decoding => true,
                    state => state == State::RemoteDecoding,
                };
                if now.state == State::RemotePrefilling {
                    now.state = State::PrefillDone;
                    now.owed.sample_landed();
                }
                possible && role.transfers()
            }
            Event::Retract { .. } => {
                let possible = !waits && now.state != State::RemoteDecoding;
                if possible && now.state.is_resident() {
                    now.state = State::Retracted {
                        epoch: 0,
                        resumes_generation: false,
                        recovers_in_order: false,
                    };
                    now.owed.forfeit();
                }
                possible
            }
            Event::UpdateReserveNumTokens { reserve_num_tokens, .. } => {
                let left = self.rules.token_limit - request.num_tokens();
                let limit = left.max(self.rules.decode_width);
                if !(0..=limit).contains(reserve_num_tokens) {
                    return Err(Error::BadReserve {
                        request_id: id.into(),
                        reserve_num_tokens: *reserve_num_tokens,
                        limit_tokens: limit,
                    });
                }
                now.state == State::Decoding
            }
            Event::WriteBackDone { .. } | Event::LoadBackDone { .. } => true,
        };
        if possible {
            return Ok(());
        }
        Err(Error::UnexpectedEvent {
            request_id: id.into(),
            event: event.name().into(),
            state: now.state.name().into(),
        })
    }

    fn foresee_acknowledgement(&self, event: &Event) -> Result<()> {
        let (op_id, is_store) = match *event {
            Event::WriteBackDone { op_id } => (op_id, true),
            Event::LoadBackDone { op_id, .. } => (op_id, false),
            _ => return Ok(()),
        };
        match self.cache.transfers().get(op_id) {
            Some(transfer) if matches!(transfer, Transfer::Store { .. }) != is_store => {
                Err(Error::UnknownOperation { op_id, event: event.name().into() })
            }
            _ => Ok(()),
        }
    }

    fn carry_out(&mut self, event: &Event) {
        match *event {
            Event::WriteBackDone { op_id } => {
                self.cache.complete_transfer(op_id, true);
                return;
            }
            Event::LoadBackDone { op_id, success } => {
                let failed = self.cache.complete_transfer(op_id, success);
                self.retract_readers(failed);
                return;
            }
            _ => {}
        }
        let Some(key) = event.request_id().and_then(|id| self.requests.find(id)) else {
            return;
        };
        // Who was given up is gone for all but its peer.
        if self.requests[key].state() == State::Draining && !event.is_peers_last_word() {
            return;
        }
        match event {
            Event::ExtendResult { tokens, spec_candidate_ids, .. } => {
                self.land_result(key, tokens, spec_candidate_ids.clone());
            }
            Event::Finish { .. } => self.finish_request(key),
            Event::Abort { .. } => self.abort(key),
            Event::TransferFailed { .. } | Event::TransferSucceeded { .. } => self.forget(key),
            Event::Bootstrapped { .. } => {
                if self.requests[key].state() == State::Bootstrapping {
                    self.requests.transition(key, State::Submitted);
                }
            }
            Event::RemotePrefillDone { bootstrap_token, .. } => {
                self.land_remote_prefill(key, *bootstrap_token);
            }
            Event::Retract { .. } => self.retract_without_snapshot(key),
            Event::UpdateReserveNumTokens { .. } if !self.requests[key].state().is_resident() => {}
            Event::UpdateReserveNumTokens { reserve_num_tokens, .. } => {
                self.requests[key].reserve_next_tokens = Some(*reserve_num_tokens);
            }
            Event::WriteBackDone { .. } | Event::LoadBackDone { .. } => {}
        }
    }

    /// The client gives a request up. Blocks that a peer may be reading or writing are fenced until the
    /// peer's word: nobody else may have them (`liveness.md` 3).
    fn abort(&mut self, key: RequestKey) {
        if !self.is_pinned_by_peer(key) {
            return self.forget(key);
        }
        let request = &mut self.requests[key];
        request.forwards_out = 0;
        request.chunks_out = 0;
        self.requests.transition(key, State::Draining);
    }

    /// The peer has written a prompt, and sampled its first token. For one that was given up meanwhile this
    /// is the peer's last word.
    fn land_remote_prefill(&mut self, key: RequestKey, bootstrap_token: i32) {
        match self.requests[key].state() {
            State::RemotePrefilling => {
                self.requests[key].tokens.push(bootstrap_token);
                self.retractions_since_token = 0;
                self.name_new_pages(key);
                self.requests.transition(key, State::PrefillDone);
                self.note_if_spent(key);
            }
            State::Draining => self.forget(key),
            _ => {}
        }
    }

    /// Whether its client may finish a request that stands there: not before it has output, nor while a
    /// peer may be using its blocks.
    pub(super) fn may_finish(&self, request: &Request, state: State) -> bool {
        let waits = matches!(state, State::Bootstrapping | State::Submitted);
        let recomputes = matches!(state, State::Prefilling { .. });
        let has_output = !recomputes || request.has_generated_output();
        !waits && has_output && !self.rules.is_pinned_by_peer(state)
    }

    /// Publishes and stores what the request computed, and lets it go (`cache.md` §6).
    pub(super) fn finish_request(&mut self, key: RequestKey) {
        let request = &mut self.requests[key];
        if request.state().is_resident() {
            let (holdings, progress) = request.holdings_and_progress(self.rules.granularity);
            self.cache.flush(holdings, progress, Computed::Finish);
            self.cache.start_pending_stores(StoreGuard::PinnedUntilAck);
        }
        self.forget(key);
    }

    /// The blocks do not hold what they should: nothing is published, and the request starts over as
    /// a new prompt (`scheduler.md` §4). Its forward was withheld: no result is owed any more. One that
    /// comes late by a handle of that stay, or before it is admitted again, counts for nothing.
    pub(super) fn retract_without_snapshot(&mut self, key: RequestKey) {
        if !self.requests[key].state().is_resident() {
            return;
        }
        self.retraction_epoch += 1;
        let epoch = self.retraction_epoch;
        let request = &mut self.requests[key];
        request.last_handle = Some(self.rows.handle(request.holdings.row));
        self.rows.give_back(request.holdings.row);
        self.cache.release(&mut request.holdings);
        request.late_results += std::mem::take(&mut request.forwards_out);
        request.chunks_out = 0;
        request.reserve_next_tokens = None;
        request.prompt_tokens = request.num_tokens();
        // A recovery of the decode role goes on here: its peer has done its part (`scheduler.md` §3.2).
        let recovers_in_order = self.rules.config.role == Role::D && request.recovering;
        let resumes_generation = request.has_generated_output();
        let state = State::Retracted { epoch, resumes_generation, recovers_in_order };
        self.requests.transition(key, state);
    }
}
