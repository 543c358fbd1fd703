//! Admitting one chunk: probe, cut, demand, admit, move on (`scheduler.md` §1).

use super::batch::{PrefillOp, Seat};
use super::chunk::{Chunk, Cut, next_chunk};
use super::demand::{PrefillReserve, prefill_demands};
use super::refusal::least_need;
use super::round::Round;
use crate::cache::admission::{FirstAdmission, NoCapacity};
use crate::cache::{Demand, GroupIndex, Hit, Progress};
use crate::request::{Refusal, RequestKey, State};

/// What became of a request that a phase tried to schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the batch, and its prompt is complete.
    Completed,
    /// It is scheduled, and nobody may start behind it: more of its prompt is to come, or its peer
    /// computes it.
    Incomplete,
    /// The pool cannot hold it now.
    NoCapacity,
    /// It waits for something else: budget, a row, a result.
    NotNow,
}

impl Round<'_> {
    /// Opens an admission: the first chunk of a prompt, submitted or retracted.
    pub(super) fn schedule_first_chunk(&mut self, key: RequestKey) -> Outcome {
        let Some(row) = self.rows.next() else {
            return Outcome::NotNow;
        };
        if self.end_if_over(key) || self.stands_back(key) {
            return Outcome::NotNow;
        }
        if self.requests[key].needs_empty_pool() && self.pool_is_idle() {
            return self.open_uncached(key, row);
        }
        let hit = self.probe(key);
        self.open(key, row, &hit, false)
    }

    /// The same for a request whose turn it is: where nobody will ever free a block, only what is
    /// cached can be in its way. The phases pass it over instead, since who comes behind may fit.
    pub(super) fn grant_first_chunk(&mut self, key: RequestKey) -> Outcome {
        let outcome = self.schedule_first_chunk(key);
        match self.rows.next() {
            Some(row) if outcome == Outcome::NoCapacity && self.pool_is_idle() => {
                self.open_uncached(key, row)
            }
            _ => outcome,
        }
    }

    /// Whether nothing but the index owns any Device block.
    pub(super) fn pool_is_idle(&self) -> bool {
        self.requests.residents().next().is_none() && self.cache.transfers().owe_nothing()
    }

    /// Opens an admission on an emptied pool, without a hit and without publishing. Cached blocks can
    /// keep out a request that the bound admits: a hit that it holds, or leftovers that split parents
    /// between groups. Without them what was accepted is schedulable (`liveness.md` 1).
    fn open_uncached(&mut self, key: RequestKey, row: i32) -> Outcome {
        self.cache.clear_device();
        self.open(key, row, &self.cache.no_hit(), true)
    }

    fn open(&mut self, key: RequestKey, row: i32, hit: &Hit, uncached: bool) -> Outcome {
        if self.lands_remotely(key) {
            return self.open_landing(key, row, hit, uncached);
        }
        let request = &self.requests[key];
        let cut = Cut {
            begin: self.cache.tokens_of(hit.total_pages),
            first: true,
            prompt_tokens: request.prompt_tokens,
            budget: self.build.budget_left(),
            promotion_boundary: hit.promotion_boundary_pages.map(|p| self.cache.tokens_of(p)),
        };
        let chunk = next_chunk(self.rules, cut);
        if chunk.size <= 0 {
            return Outcome::NotNow;
        }
        let left = self.left_to_residents(key, chunk.end());
        let request = &mut self.requests[key];
        let reserve = PrefillReserve::new(self.rules, request, chunk, true);
        let demands = prefill_demands(self.rules, self.cache.geometries(), chunk, reserve);
        let tokens = request.tokens.settled();
        let first = FirstAdmission { hit, pages: &request.pages, tokens, row };
        if left.is_some_and(|left| !self.cache.leaves(&request.holdings, first, &demands, &left)) {
            self.note_refusal(key, chunk, hit);
            return Outcome::NoCapacity;
        }
        request.holdings.uncached = uncached;
        let admitted = self.cache.admit(
            &mut request.holdings,
            Some(first),
            &demands,
            Progress::NONE,
            &mut self.build.fresh,
        );
        match admitted {
            Ok(()) => {}
            Err(NoCapacity::Host) => {
                let pages = &request.pages[..hit.total_pages];
                let hit = self.cache.probe_without_storage(pages);
                let hit = Hit { lacks_host_place: true, ..hit };
                return self.open(key, row, &hit, uncached);
            }
            Err(NoCapacity::Device) => {
                self.note_refusal(key, chunk, hit);
                return Outcome::NoCapacity;
            }
        }
        self.seat(key);
        self.chunk_admitted(key, chunk, hit)
    }

    /// Gives an admitted request the row that was looked for.
    pub(super) fn seat(&mut self, key: RequestKey) {
        self.rows.take(key);
        self.requests.forget_last_handle(key);
        let request = &mut self.requests[key];
        request.recovering = request.state().is_readmission();
        self.count_in(key);
    }

    /// Notes what a waiting prompt needs at least, so that it is not tried again for nothing.
    fn note_refusal(&mut self, key: RequestKey, chunk: Chunk, hit: &Hit) {
        let request = &self.requests[key];
        // What the Host can take of a fetch changes unseen: such a prompt is tried every round.
        let hangs_on_host = hit.lacks_host_place || self.cache.fetches(hit, &request.pages);
        if request.state().admits_like_new_prompt() && !hangs_on_host {
            let least = least_need(self.rules, self.cache, request, chunk, hit);
            let need = least.need.max(self.least_secured(key, hit));
            let refusal = Refusal { need, steps_class: self.steps_class(key), ..least };
            self.requests.waiting.refuse((request.submission, key), refusal);
        }
    }

    /// The next chunk of a prompt under way.
    pub(super) fn schedule_next_chunk(&mut self, key: RequestKey) -> Outcome {
        let request = &self.requests[key];
        if self.awaits_result(key) {
            return Outcome::NotNow;
        }
        let cut = Cut {
            begin: request.computed_tokens(),
            first: false,
            prompt_tokens: request.prompt_tokens,
            budget: self.build.budget_left(),
            promotion_boundary: request.holdings.promotion_boundary,
        };
        let chunk = next_chunk(self.rules, cut);
        if chunk.size <= 0 {
            return Outcome::NotNow;
        }
        let reserve = PrefillReserve::new(self.rules, request, chunk, false);
        let demands = prefill_demands(self.rules, self.cache.geometries(), chunk, reserve);
        match self.admit_more(key, |group| demands[group]) {
            Err(_) => Outcome::NoCapacity,
            Ok(()) => self.chunk_admitted(key, chunk, &Hit::default()),
        }
    }

    /// Grants a resident what it asks for next of each group, and publishes what it computed so far.
    pub(super) fn admit_more(
        &mut self,
        key: RequestKey,
        demand: impl Fn(GroupIndex) -> Demand,
    ) -> Result<(), NoCapacity> {
        let request = &mut self.requests[key];
        let (holdings, progress) = request.holdings_and_progress(self.rules.granularity);
        if !self.cache.could_grow(holdings, &demand, progress.computed_tokens) {
            return Err(NoCapacity::Device);
        }
        let demands: Vec<Demand> = (0..holdings.groups.len()).map(demand).collect();
        self.cache.admit(holdings, None, &demands, progress, &mut self.build.fresh)
    }

    /// What the tiers hold of a prompt; at least its last token stays to be computed.
    fn probe(&mut self, key: RequestKey) -> Hit {
        let bound = self.matchable_pages(key);
        let pages = &self.requests[key].pages[..bound];
        match self.lands_remotely(key) {
            true => self.cache.probe_landing(pages),
            false => self.cache.probe(pages),
        }
    }

    fn matchable_pages(&self, key: RequestKey) -> usize {
        let request = &self.requests[key];
        // With the prefix cache off a prompt is not matched; a retracted one still finds its own
        // snapshot, which is recovery and not reuse.
        if self.rules.config.disable_prefix_cache && request.state() == State::Submitted {
            return 0;
        }
        let recomputed = self.rules.config.prefix_replay_tokens.max(1);
        ((request.prompt_tokens - recomputed).max(0) / self.rules.granularity) as usize
    }

    fn chunk_admitted(&mut self, key: RequestKey, chunk: Chunk, hit: &Hit) -> Outcome {
        let request = &mut self.requests[key];
        if let Some(boundary) = chunk.last_aligned_boundary(self.rules.granularity)
            && self.rules.has_state_group
        {
            request.holdings.state_boundaries.push(boundary);
        }
        let completes = chunk.end() == request.prompt_tokens;
        let state = match completes {
            true => State::PrefillDone,
            false => State::Prefilling { window_end: chunk.end() },
        };
        self.requests.transition(key, state);
        self.requests[key].forward_scheduled(self.number);
        let request = &mut self.requests[key];
        request.chunks_out += u32::from(!completes);
        request.holdings.forwards.push(self.cache.expect_forward(self.number));
        self.build.push_prefill(PrefillOp {
            key,
            seat: Seat::of(&self.requests[key]),
            chunk,
            device_hit_tokens: self.cache.tokens_of(hit.device_pages),
            host_hit_tokens: self.cache.tokens_of(hit.total_pages - hit.device_pages),
        });
        if completes { Outcome::Completed } else { Outcome::Incomplete }
    }
}
