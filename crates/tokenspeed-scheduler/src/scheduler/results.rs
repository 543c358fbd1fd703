//! Results of forwards: which are owed, and what their landing changes.

use std::sync::Arc;

use super::Scheduler;
use crate::error::{Error, Result};
use crate::request::{Handle, Request, RequestKey, State};

/// The results that a request has out, in the order in which they land.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owed {
    /// Of forwards whose blocks were taken away: should one come after all, it counts for nothing.
    late: u32,
    /// Of chunks that do not complete the prompt: they bring no token.
    chunks: u32,
    /// All that count, chunks included.
    forwards: u32,
    /// Whether the first that is no chunk is the prompt's own sample.
    sample: bool,
}

impl Owed {
    pub(super) fn of(request: &Request) -> Owed {
        Owed {
            late: request.late_results,
            chunks: request.chunks_out,
            forwards: request.forwards_out,
            sample: request.num_tokens() == request.prompt_tokens,
        }
    }

    /// Checks a result of `tokens` tokens and counts it as landed; `false` for one that comes late and
    /// counts for nothing. `id` comes unread, since it lies elsewhere: only a refusal needs it.
    pub(super) fn land(
        &mut self,
        id: &Arc<str>,
        state: State,
        tokens: usize,
        width: i64,
    ) -> Result<bool> {
        if state == State::Draining {
            return Ok(false);
        }
        let fits = match (self.chunks, self.sample) {
            (1.., _) => tokens == 0,
            (0, true) => tokens == 1,
            (0, false) => (1..=width as usize).contains(&tokens),
        };
        if state.is_resident() && self.forwards > 0 && fits {
            self.forwards -= 1;
            match self.chunks {
                0 => self.sample = false,
                _ => self.chunks -= 1,
            }
            return Ok(true);
        }
        if self.late > 0 || matches!(state, State::Retracted { .. }) {
            self.late = self.late.saturating_sub(1);
            return Ok(false);
        }
        Err(self.refusal(id, state, tokens, width))
    }

    #[cold]
    fn refusal(&self, id: &str, state: State, tokens: usize, width: i64) -> Error {
        if !state.is_resident() {
            return Error::UnexpectedEvent {
                request_id: id.into(),
                event: "ExtendResult".into(),
                state: state.name().into(),
            };
        }
        if self.forwards == 0 {
            return Error::ResultNotOwed { request_id: id.into() };
        }
        let rule = match (self.chunks, self.sample) {
            (1.., _) => "be empty (an intermediate chunk samples nothing)".into(),
            (0, true) => "have 1 (the prompt's sample)".into(),
            (0, false) => format!("have 1 to {width} (those that the decode step accepted)"),
        };
        Error::BadResult { request_id: id.into(), tokens, rule }
    }

    /// Results that count and have not landed.
    pub(super) fn forwards(&self) -> u32 {
        self.forwards
    }

    /// How many of them are of forwards over the prompt.
    pub(super) fn prefills(&self) -> usize {
        (self.chunks + u32::from(self.sample && self.forwards > self.chunks)) as usize
    }

    /// The peer brings the prompt's own sample.
    pub(super) fn sample_landed(&mut self) {
        self.sample = false;
    }

    /// The blocks are gone: nothing that is out will count any more.
    pub(super) fn forfeit(&mut self) {
        self.late += self.forwards;
        self.forwards = 0;
        self.chunks = 0;
    }
}

impl Scheduler {
    /// Feeds the results of many forwards at once: request `handles[i]` gets
    /// `tokens[offsets[i]..offsets[i + 1]]`, nothing for an intermediate chunk. A handle whose
    /// request is gone is ignored. All or none.
    ///
    /// # Errors
    /// [`Error::BadArrays`], or as [`Scheduler::advance`].
    pub fn advance_results(
        &mut self,
        handles: &[Handle],
        tokens: &[i32],
        offsets: &[i64],
    ) -> Result<()> {
        check_offsets(handles.len(), tokens.len(), offsets)?;
        let width = self.rules.decode_width;
        let spans = || offsets.windows(2).map(|pair| pair[0] as usize..pair[1] as usize);
        // A request is expected once a call, so each is checked on its own; a repeat is refused.
        let mut seen = std::mem::take(&mut self.seen_rows);
        seen.clear();
        seen.resize(self.rules.config.max_batch_size as usize + 1, false);
        let checked = handles.iter().zip(spans()).try_for_each(|(&handle, span)| {
            let Some(key) = self.rows.find(handle) else {
                return Ok(());
            };
            let request = &self.requests[key];
            if std::mem::replace(&mut seen[handle.row()], true) {
                return Err(Error::BadArrays {
                    array: "handles".into(),
                    value: format!("request '{}' twice", request.id),
                    rule: "name each request once".into(),
                });
            }
            Owed::of(request).land(&request.id, request.state(), span.len(), width).map(drop)
        });
        self.seen_rows = seen;
        checked?;
        for (&handle, span) in handles.iter().zip(spans()) {
            if let Some(key) = self.rows.find(handle) {
                self.land_result(key, &tokens[span], &[]);
            }
        }
        self.verify()
    }

    /// Ends many requests at once, as `Finish` events would; handles of requests gone are ignored. The
    /// last handle of a retracted request still names it.
    ///
    /// # Errors
    /// [`Error::UnexpectedEvent`] for one without output whose prompt is under way, or whose blocks a
    /// peer may be using; then none is ended.
    pub fn finish(&mut self, handles: &[Handle]) -> Result<()> {
        let mut keys: Vec<RequestKey> =
            handles.iter().filter_map(|&handle| self.find_named(handle)).collect();
        let may_finish = |key: RequestKey| {
            let request = &self.requests[key];
            self.may_finish(request, request.state())
        };
        keys.sort_unstable();
        keys.dedup();
        if let Some(&key) = keys.iter().find(|&&key| !may_finish(key)) {
            let request = &self.requests[key];
            return Err(Error::UnexpectedEvent {
                request_id: request.id.to_string(),
                event: "Finish".into(),
                state: request.state().name().into(),
            });
        }
        for &handle in handles {
            if let Some(key) = self.find_named(handle) {
                self.finish_request(key);
            }
        }
        self.verify()
    }

    /// The request that a handle names, or last named if it is retracted; not one that was given up.
    fn find_named(&self, handle: Handle) -> Option<RequestKey> {
        let named = self.rows.find(handle).or_else(|| self.requests.find_retracted(handle));
        named.filter(|&key| self.requests[key].state() != State::Draining)
    }

    /// One result that was checked.
    pub(super) fn land_result(&mut self, key: RequestKey, tokens: &[i32], candidates: &[i32]) {
        let request = &mut self.requests[key];
        let (width, granularity) = (self.rules.decode_width, self.rules.granularity);
        let landed = Owed::of(request).land(&request.id, request.state(), tokens.len(), width);
        if !landed.unwrap_or(false) {
            request.late_results = request.late_results.saturating_sub(1);
            return;
        }
        let of_prompt = request.chunks_out > 0 || request.num_tokens() == request.prompt_tokens;
        if of_prompt && !request.holdings.forwards.is_empty() {
            let forwards = &mut request.holdings.forwards;
            self.cache.prove(forwards.remove(0));
            if forwards.is_empty() {
                *forwards = Vec::new(); // Most of its stay a request decodes: it needs no memory for them.
            }
        }
        request.spec_candidate_ids = (!candidates.is_empty()).then(|| candidates.into());
        request.forwards_out -= 1;
        request.chunks_out = request.chunks_out.saturating_sub(1);
        request.owed_since_round = self.round;
        request.tokens.append(tokens);
        // Only then are its names read: they lie on a line of their own.
        let completes_page = request.num_tokens() % granularity < tokens.len() as i64;
        if !tokens.is_empty() {
            self.retractions_since_token = 0;
        }
        if completes_page {
            self.name_new_pages(key);
        }
        self.note_if_spent(key);
    }

    /// Who has spent its budget is ended by the next round, unless its client does so before.
    pub(super) fn note_if_spent(&mut self, key: RequestKey) {
        if self.requests[key].budget_is_spent() && self.rules.config.role.decodes() {
            self.requests.note_spent(key);
        }
    }
}

fn check_offsets(handles: usize, tokens: usize, offsets: &[i64]) -> Result<()> {
    let bad = |value: String, rule: &str| {
        Err(Error::BadArrays { array: "offsets".into(), value, rule: rule.into() })
    };
    if offsets.len() != handles + 1 {
        let rule = format!("have one more than `handles` ({handles})");
        return bad(format!("{} entries", offsets.len()), &rule);
    }
    if offsets[0] != 0 || offsets[handles] != tokens as i64 {
        let value = format!("{} to {}", offsets[0], offsets[handles]);
        return bad(value, &format!("run from 0 to the number of `tokens` ({tokens})"));
    }
    if offsets.windows(2).any(|pair| pair[0] > pair[1]) {
        return bad("a step back".into(), "never fall");
    }
    Ok(())
}
