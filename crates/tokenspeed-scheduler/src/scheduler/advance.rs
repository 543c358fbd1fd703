//! Events. A list of them is looked through first and carried out then: one that cannot happen
//! refuses the list, and nothing has changed (`liveness.md` 4).

use super::Scheduler;
use super::foresight::{Foresight, Subject};
use crate::cache::{Computed, StoreGuard};
use crate::error::Result;
use crate::event::Event;
use crate::request::{Request, RequestKey, State};

impl Scheduler {
    /// Carries events out in their order, all or none. One for a request or an operation that is gone
    /// is ignored.
    ///
    /// # Errors
    /// [`Error::UnexpectedEvent`], [`Error::ResultNotOwed`], [`Error::BadResult`],
    /// [`Error::BadReserve`] or [`Error::UnknownOperation`] for one that cannot happen.
    pub fn advance(&mut self, events: impl AsRef<[Event]>) -> Result<()> {
        let events = events.as_ref();
        let mut foresight = Foresight::for_events(events.len());
        let subjects: Vec<Option<Subject>> = events
            .iter()
            .map(|event| self.foresee(event, &mut foresight))
            .collect::<Result<_>>()?;
        for (event, subject) in events.iter().zip(subjects) {
            match subject {
                Some(Subject::Copy { op_id, success: true }) => {
                    self.cache.complete_transfer(op_id, true);
                }
                Some(Subject::Copy { op_id, success: false }) => self.fail_load(op_id),
                Some(Subject::Request(key)) if self.requests.is_live(key) => {
                    self.carry_out(event, key);
                }
                _ => {}
            }
        }
        self.verify()
    }

    /// Carries out one event about a request. Events submit none, so that nobody has taken its place since it
    /// was found.
    fn carry_out(&mut self, event: &Event, key: RequestKey) {
        // Who was given up is gone for all but its peer.
        if self.requests[key].state() == State::Draining && !event.is_peers_last_word() {
            return;
        }
        match event {
            Event::ExtendResult { tokens, spec_candidate_ids, .. } => {
                self.land_result(key, tokens, spec_candidate_ids);
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
            Event::Retract { .. } => self.withhold(key),
            Event::UpdateReserveNumTokens { .. } if !self.requests[key].state().is_resident() => {}
            Event::UpdateReserveNumTokens { reserve_num_tokens, .. } => {
                self.requests[key].reserve_next_tokens = *reserve_num_tokens;
            }
            Event::WriteBackDone { .. } | Event::LoadBackDone { .. } => {} // About no request.
        }
    }

    /// The client gives a request up.
    fn abort(&mut self, key: RequestKey) {
        match self.is_pinned_by_peer(key) {
            true => {
                self.cache.leave_forwards(&mut self.requests[key].holdings);
                self.requests.give_up(key);
            }
            false => self.forget(key),
        }
    }

    /// The peer has written a prompt, and sampled its first token. For one that was given up meanwhile this
    /// is the peer's last word.
    fn land_remote_prefill(&mut self, key: RequestKey, bootstrap_token: i32) {
        match self.requests[key].state() {
            State::RemotePrefilling => {
                self.requests[key].tokens.append(&[bootstrap_token]);
                self.retractions_since_token = 0;
                self.name_new_pages(key);
                self.requests.transition(key, State::PrefillDone);
                match self.requests[key].holdings.torn {
                    true => self.retract_torn(key),
                    false => self.note_if_spent(key),
                }
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
        let output_tokens = self.requests[key].generated_tokens();
        self.requests.outputs.note(output_tokens);
        self.requests.caution.note_finish();
        let request = &mut self.requests[key];
        if request.state().is_resident() {
            let (holdings, progress) = request.holdings_and_progress(self.rules.granularity);
            self.cache.flush(holdings, progress, Computed::Finish);
            self.cache.start_pending_stores(StoreGuard::PinnedUntilAck);
        }
        self.forget(key);
    }
}
