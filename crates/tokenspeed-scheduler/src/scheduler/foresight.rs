//! What a list of events will come to, before any of it is carried out.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Scheduler;
use super::results::Owed;
use crate::cache::transfer::Transfer;
use crate::cache::{Basis, OpId};
use crate::config::Role;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::request::{Request, RequestKey, State};

/// What the events so far will have changed.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    requests: FxHashMap<RequestKey, Expected>,
    /// Copies that will have ended.
    ended: FxHashSet<OpId>,
    /// Forwards of which a result will have landed.
    proven: FxHashSet<Basis>,
}

/// What an event is about, as it was found before any of its list was carried out.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject {
    /// A request that is live.
    Request(RequestKey),
    /// A copy under way.
    Copy {
        /// Its number.
        op_id: OpId,
        /// Whether it has succeeded; a store always has.
        success: bool,
    },
}

/// What a request will have come to.
#[derive(Debug, Clone, Copy)]
struct Expected {
    live: bool,
    state: State,
    owed: Owed,
    /// Prompt and output, in tokens.
    tokens: i64,
    /// Something under it will not come, and a peer is at work.
    torn: bool,
}

impl Foresight {
    /// Nothing yet, with room for so many events.
    pub(super) fn for_events(events: usize) -> Foresight {
        let requests = FxHashMap::with_capacity_and_hasher(events, Default::default());
        Foresight { requests, ..Foresight::default() }
    }

    fn of(&mut self, key: RequestKey, request: &Request) -> &mut Expected {
        self.requests.entry(key).or_insert_with(|| Expected {
            live: true,
            state: request.state(),
            owed: Owed::of(request),
            tokens: request.num_tokens(),
            torn: request.holdings.torn,
        })
    }
}

impl Expected {
    /// Its blocks are taken, and it waits.
    fn retract(&mut self) {
        self.state =
            State::Retracted { epoch: 0, resumes_generation: false, recovers_in_order: false };
        self.owed.forfeit();
    }

    /// Takes an event if it can happen, and says whether.
    fn take(&mut self, event: &Event, scheduler: &Scheduler, request: &Request) -> Result<bool> {
        let role = scheduler.rules.config.role;
        let state = self.state;
        Ok(match event {
            Event::ExtendResult { tokens, .. } => {
                let width = scheduler.rules.decode_width;
                if self.owed.land(&request.id, state, tokens.len(), width)? {
                    self.tokens += tokens.len() as i64;
                }
                true
            }
            Event::Finish { .. } => {
                self.live = false;
                scheduler.may_finish(request, state)
            }
            Event::Abort { .. } => {
                match scheduler.rules.is_pinned_by_peer(state) {
                    true => self.state = State::Draining,
                    false => self.live = false,
                }
                true
            }
            Event::TransferFailed { .. } => {
                self.live = false;
                role.transfers()
            }
            Event::TransferSucceeded { .. } => {
                self.live = false;
                match state {
                    State::PrefillDone => role.transfers() && self.owed.forwards() == 0,
                    State::Decoding => role == Role::D,
                    _ => state == State::RemoteDecoding,
                }
            }
            Event::Bootstrapped { .. } => {
                if state == State::Bootstrapping {
                    self.state = State::Submitted;
                }
                role.transfers()
            }
            Event::RemotePrefillDone { .. } => {
                // Where the prompt is complete the word comes late, and counts for nothing.
                let possible = match state {
                    State::PrefillDone => role == Role::D || self.owed.forwards() == 0,
                    State::RemotePrefilling | State::Decoding => true,
                    _ => state == State::RemoteDecoding,
                };
                if state == State::RemotePrefilling {
                    self.state = State::PrefillDone;
                    self.owed.sample_landed();
                    self.tokens += 1;
                    if self.torn {
                        self.retract();
                    }
                }
                possible && role.transfers()
            }
            Event::Retract { .. } => {
                if state.is_resident() {
                    self.retract();
                }
                let waits = matches!(state, State::Bootstrapping | State::Submitted);
                !waits && state != State::RemoteDecoding
            }
            Event::UpdateReserveNumTokens { reserve_num_tokens, .. } => {
                let left = scheduler.rules.token_limit - self.tokens;
                let limit = left.max(scheduler.rules.decode_width);
                if !(0..=limit).contains(reserve_num_tokens) {
                    return Err(Error::BadReserve {
                        request_id: request.id.to_string(),
                        reserve_num_tokens: *reserve_num_tokens,
                        limit_tokens: limit,
                    });
                }
                state == State::Decoding
            }
            Event::WriteBackDone { .. } | Event::LoadBackDone { .. } => true,
        })
    }
}

impl Scheduler {
    /// Looks at one event of a list, and finds what it is about; `None` if that is gone.
    pub(super) fn foresee(
        &self,
        event: &Event,
        foresight: &mut Foresight,
    ) -> Result<Option<Subject>> {
        let Some(id) = event.request_id() else {
            return self.foresee_acknowledgement(event, foresight);
        };
        let Some(key) = self.requests.find(id) else {
            return Ok(None);
        };
        let request = &self.requests[key];
        let now = foresight.of(key, request);
        if !now.live || now.state == State::Draining {
            return Ok(Some(Subject::Request(key)));
        }
        let before = *now;
        if !now.take(event, self, request)? {
            return Err(Error::UnexpectedEvent {
                request_id: id.into(),
                event: event.name().into(),
                state: before.state.name().into(),
            });
        }
        let forwards = &request.holdings.forwards;
        let out = &forwards[forwards.len().saturating_sub(before.owed.prefills())..];
        match event {
            Event::Retract { .. } if before.state.is_resident() => {
                let withheld = out.iter().filter(|forward| !foresight.proven.contains(forward));
                let withheld: Vec<Basis> = withheld.copied().collect();
                self.foresee_readers(&withheld, foresight);
            }
            Event::ExtendResult { .. } => {
                let landed = before.owed.prefills() - now.owed.prefills();
                foresight.proven.extend(out.iter().take(landed));
            }
            _ => {}
        }
        Ok(Some(Subject::Request(key)))
    }

    fn foresee_acknowledgement(
        &self,
        event: &Event,
        foresight: &mut Foresight,
    ) -> Result<Option<Subject>> {
        let (op_id, is_store, success) = match *event {
            Event::WriteBackDone { op_id } => (op_id, true, true),
            Event::LoadBackDone { op_id, success } => (op_id, false, success),
            _ => return Ok(None),
        };
        let Some(transfer) = self.cache.transfers().get(op_id) else {
            return Ok(None);
        };
        // A late one counts for nothing.
        if !foresight.ended.insert(op_id) {
            return Ok(None);
        }
        if matches!(transfer, Transfer::Store { .. }) != is_store {
            return Err(Error::UnknownOperation { op_id, event: event.name().into() });
        }
        if !success {
            self.foresee_readers(&[Basis::Load(op_id)], foresight);
        }
        Ok(Some(Subject::Copy { op_id, success }))
    }

    fn foresee_readers(&self, bases: &[Basis], foresight: &mut Foresight) {
        for key in self.readers_of(bases) {
            let now = foresight.of(key, &self.requests[key]);
            match now.state.is_with_peer() {
                true => now.torn = true,
                false if now.live && now.state.is_resident() => now.retract(),
                false => {}
            }
        }
    }
}
