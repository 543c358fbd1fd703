//! Memory pressure under [`PressurePolicy::Goodput`](crate::config::PressurePolicy): an engine keeps its
//! batch. Age decides, and nobody is admitted to blocks that residents will need within a few steps
//! (`docs/goodput.md`: what the document's rules cost, and what is measured).
//!
//! - Who lacks a block takes it from a younger resident at once, and not only where nobody else can run.
//!   The youngest waits; the oldest is no victim for lack of a block, so somebody always gets on
//!   (`liveness.md` 1). Where an interruption costs little but copies, whoever stands at a page's end gives way,
//!   be it itself; and at the end of a backlog anyone may, once, to one who would end last (`rotation.rs`).
//! - An admission secures the rest of its prompt, and leaves the residents their next steps, unless it is
//!   urgent. Where a resident lacks a block nobody is admitted at all.
//! - Budgets are not prepaid: they say no more than how far a request may grow at most.
//! - A prompt that does not fit is passed over by so many others and no more. Nobody else is retracted
//!   for a newcomer. Readmissions, oldest first, share their round.

use std::cmp::Reverse;

use super::admit::Outcome;
use super::rotation::Urgent;
use super::round::Round;
use crate::cache::{Geometry, Hit};
use crate::config::GroupKind;
use crate::request::{Request, RequestKey, STEPS_CLASS_MOST, STEPS_OF_CLASS_TOKENS, StepsClass};

/// Steps that are secured for every resident when another is admitted, in tokens, as far as what caution
/// keeps for them goes ([`Caution`](crate::request::caution::Caution)). Fewer, and newcomers are retracted
/// soon after; more, and blocks stand idle. Found by playing `benches/goodput.py`, as the next is.
const SECURED_STEPS_TOKENS: i64 = 128;

/// The same while nobody comes, where an interruption costs little but copies, of who may yet give way twice.
const QUIET_STEPS_TOKENS: i64 = 4;

const _: () = assert!(STEPS_CLASS_MOST * STEPS_OF_CLASS_TOKENS <= SECURED_STEPS_TOKENS);

/// Prompts that may be admitted past the oldest one that waits. Then it is the next.
const OVERTAKEN_MOST: u32 = 512;

/// Rounds for which a result may be out before nobody stands back for it any more.
const LATE_RESULT_ROUNDS: u64 = 64;

/// What the policy keeps in mind during a round.
#[derive(Debug, Default)]
pub struct Pressure {
    /// What residents will need of each group; empty until an admission asks.
    outlook: Vec<Outlook>,
    /// Victims whose results are out: they stand still, so that they can give way in the next round.
    pub(super) yielding: Vec<RequestKey>,
    /// Who waits and would end last.
    pub(super) urgent: Urgent,
    /// Whether one of `urgent` is being admitted now.
    pub(super) admits_urgent: bool,
}

/// What requests will need of a group beside the blocks that they hold.
#[derive(Debug, Default, Clone, Copy)]
struct Outlook {
    /// For the rest of their prompts, and for the next steps of those who were retracted before: they come
    /// back to stay.
    owed: i64,
    /// For the next steps of the others.
    steps: i64,
}

impl Round<'_> {
    /// Whether the engine keeps its batch under pressure.
    pub(super) fn keeps_batch(&self) -> bool {
        self.rules.keeps_batch
    }

    /// Grants to a resident, and takes the blocks that it lacks from younger ones, or has it give way.
    pub(super) fn grant_over_younger(
        &mut self,
        key: RequestKey,
        grant: fn(&mut Self, RequestKey) -> Outcome,
    ) -> Outcome {
        loop {
            let outcome = grant(self, key);
            if outcome != Outcome::NoCapacity {
                return outcome;
            }
            match self.someone_gives_way(key) {
                None => return outcome,
                Some(victim) if victim == key => return Outcome::NotNow,
                Some(_) => {}
            }
        }
    }

    /// Whether newcomers wait because a resident lacks a block.
    pub(super) fn is_sealed_by_stalled(&self) -> bool {
        self.keeps_batch() && !self.feedback.stalled.is_empty()
    }

    /// Whether a request stands still in this round, to give way in the next.
    pub(super) fn yields(&self, key: RequestKey) -> bool {
        self.feedback.pressure.yielding.contains(&key)
    }

    /// Whether a waiting prompt may not be admitted because the oldest one is the next.
    pub(super) fn is_held_for_oldest(&self, key: RequestKey) -> bool {
        let waiting = &self.requests.waiting;
        self.keeps_batch()
            && waiting.overtaken() >= OVERTAKEN_MOST
            && waiting.first().is_some_and(|oldest| oldest != key && !self.stands_back(oldest))
    }

    fn is_spared(&self, key: RequestKey) -> bool {
        self.requests[key].retractions >= self.rules.spared_from
    }

    /// Whether a request that waits has to until others end: it is spared, and so are they; were all of them
    /// short of blocks together, one would give way once more. Not where they fit to their ends, nor where
    /// nobody's results come any more (`liveness.md`, "a result that never comes").
    pub(super) fn stands_back(&self, key: RequestKey) -> bool {
        if !self.is_spared(key) {
            return false;
        }
        let spared = || self.requests.residents().filter(|&other| self.is_spared(other));
        let gets_on = |key: RequestKey| {
            let request = &self.requests[key];
            request.forwards_out == 0 || request.owed_since_round + LATE_RESULT_ROUNDS > self.number
        };
        let parents = |key: RequestKey| self.rules.parents_at_most(&self.requests[key]);
        spared().any(gets_on)
            && spared().map(parents).fold(parents(key), i64::saturating_add)
                > self.rules.config.usable_device_parents()
    }

    /// Takes a resident's blocks for one that lacks some: of the younger ones that gave way least often, the
    /// youngest's. Where an interruption costs little but copies, it is of those the one that loses least
    /// by it, and who lacks the blocks is a candidate itself, unless it is the oldest. Returns who gave way. A
    /// prompt that progressed, copies in flight and a result that is out defer it (`scheduler.md` §2).
    fn someone_gives_way(&mut self, key: RequestKey) -> Option<RequestKey> {
        if !self.keeps_batch()
            || self.build.prefill_progressed()
            || !self.cache.transfers().owe_nothing()
        {
            return None;
        }
        let cheaply = self.rules.interrupts_cheaply;
        let submission = |key: RequestKey| self.requests[key].submission;
        let is_older = |other: RequestKey| submission(other) < submission(key);
        let itself = cheaply && self.requests.local_residents().any(is_older);
        let gives_way = |&other: &RequestKey| {
            (submission(other) > submission(key) || itself && other == key)
                && !self.is_spared(other)
        };
        let rank = |&other: &RequestKey| {
            let request = &self.requests[other];
            let lost = cheaply.then(|| request.lost_tokens(self.rules.granularity));
            (Reverse(request.retractions), Reverse(lost), request.submission)
        };
        let victim = self.requests.local_residents().filter(gives_way).max_by_key(rank)?;
        if self.requests[victim].forwards_out > 0 {
            self.feedback.pressure.yielding.push(victim);
            return (victim == key).then_some(key);
        }
        self.retract_or_end(victim);
        Some(victim)
    }

    /// Who gives way where nobody could move otherwise: of those that gave way least often the youngest, and the
    /// oldest only where all others are spared. So somebody gets on, and none of the spared gives way: they are not
    /// resident together unless they fit to their ends (`stands_back`).
    pub(super) fn next_to_give_way(&self) -> Option<RequestKey> {
        let submission = |key: &RequestKey| self.requests[*key].submission;
        let oldest = self.requests.local_residents().min_by_key(submission);
        let rank = |key: &RequestKey| {
            let retractions = self.requests[*key].retractions;
            (!self.is_spared(*key), Some(*key) != oldest, Reverse(retractions), submission(key))
        };
        self.requests.local_residents().max_by_key(rank)
    }

    /// Blocks a group that a first admission has to leave to the residents, itself among them; `None`
    /// where there is nobody to leave any to. `end` is that of its first chunk.
    pub(super) fn left_to_residents(&mut self, key: RequestKey, end: i64) -> Option<Vec<i64>> {
        if !self.keeps_batch() || self.requests.residents().next().is_none() {
            return None;
        }
        self.look_out();
        let rest = self.foreseen_rest(key);
        let own = |geometry: &Geometry| {
            Outlook::of(&self.requests[key], rest, geometry, geometry.slots_for(end))
        };
        Some(self.reserved(own))
    }

    /// What the pool could hold at most for a newcomer that secures steps of that class, beside what is left to
    /// the residents and for these steps, in the measure of [`Coordinator::room`](crate::cache::Coordinator::room).
    /// To be asked behind [`Round::look_out`].
    pub(super) fn room_for_newcomers(&self, class: StepsClass) -> u64 {
        let room = self.cache.room();
        if !self.keeps_batch() {
            return room;
        }
        if self.requests.residents().next().is_none() {
            return u64::MAX; // Nothing is left to anybody then, nor is a whole prompt secured.
        }
        let steps = self.least_steps_tokens(class);
        let own = |geometry: &Geometry| match geometry.kind {
            GroupKind::Full => Outlook { owed: 0, steps: steps / geometry.block_granularity },
            _ => Outlook::default(),
        };
        room.saturating_sub(self.cache.weight_of(&self.reserved(own)))
    }

    /// The class of the steps that a waiting prompt secures. One that has generated may be near its end.
    pub(super) fn steps_class(&self, key: RequestKey) -> StepsClass {
        let request = &self.requests[key];
        if !self.keeps_batch() || request.has_generated_output() {
            return 0;
        }
        let declared = request.budget_end_tokens - request.num_tokens();
        (declared / STEPS_OF_CLASS_TOKENS).min(STEPS_CLASS_MOST)
    }

    /// What all of a class secure at least as things stand, in tokens.
    fn least_steps_tokens(&self, class: StepsClass) -> i64 {
        let learned = self.requests.outputs.expected_rest(0).unwrap_or(i64::MAX);
        let little =
            self.rules.interrupts_cheaply && self.requests.backlog.has_been_quiet(self.number);
        let most = if little { QUIET_STEPS_TOKENS } else { i64::MAX };
        most.min(learned).min(class * STEPS_OF_CLASS_TOKENS)
    }

    /// What a refused prompt needs at least for a whole: its first chunk is not admitted without the rest.
    pub(super) fn least_secured(&self, key: RequestKey, hit: &Hit) -> u64 {
        if !self.keeps_batch() {
            return 0;
        }
        let tokens = self.requests[key].prompt_tokens;
        let missing = |geometry: &Geometry| match geometry.kind {
            GroupKind::Full => {
                (geometry.slots_for(tokens) - geometry.hit_slots(hit.device_pages)) as i64
            }
            _ => 0,
        };
        let blocks: Vec<i64> = self.cache.geometries().iter().map(missing).collect();
        self.cache.weight_of(&blocks)
    }

    /// Makes the outlook of this round, once.
    pub(super) fn look_out(&mut self) {
        if self.keeps_batch() && self.feedback.pressure.outlook.is_empty() {
            let mut outlook = vec![Outlook::default(); self.cache.geometries().len()];
            for resident in self.requests.residents() {
                self.add_to(&mut outlook, resident);
            }
            self.feedback.pressure.outlook = outlook;
        }
    }

    /// Adds what a resident will need.
    fn add_to(&self, outlook: &mut [Outlook], key: RequestKey) {
        let rest = self.foreseen_rest(key);
        let request = &self.requests[key];
        let groups = self.cache.geometries().iter().zip(&request.holdings.groups);
        for (all, (geometry, held)) in outlook.iter_mut().zip(groups) {
            let own = Outlook::of(request, rest, geometry, held.table.len());
            all.owed += own.owed;
            all.steps += own.steps;
        }
    }

    /// Tokens that a request may generate yet, as far as an admission is to leave it room for them: few
    /// while nobody comes, where an interruption costs little, unless one more would be the last.
    fn foreseen_rest(&self, key: RequestKey) -> i64 {
        let rest = self.requests.expected_rest(key).unwrap_or(i64::MAX);
        let little = self.rules.interrupts_cheaply
            && self.requests.backlog.has_been_quiet(self.number)
            && self.requests[key].retractions + 1 < self.rules.spared_from;
        if little { rest.min(QUIET_STEPS_TOKENS) } else { rest }
    }

    /// Blocks a group that stay for the residents, and for a newcomer of that outlook. For an urgent one
    /// that is what is owed and no more: it would outlast everyone whose steps were secured.
    fn reserved(&self, newcomer: impl Fn(&Geometry) -> Outlook) -> Vec<i64> {
        let left = |(geometry, all): (&Geometry, &Outlook)| {
            let own = newcomer(geometry);
            let pool = geometry.blocks_in(self.rules.config.usable_device_parents());
            let most = match self.feedback.pressure.admits_urgent {
                true => 0,
                false => self.requests.caution.of(pool),
            };
            all.owed + own.owed + (all.steps + own.steps).min(most)
        };
        let outlook = &self.feedback.pressure.outlook;
        self.cache.geometries().iter().zip(outlook).map(left).collect()
    }

    /// Counts a request that was just admitted among the residents.
    pub(super) fn count_in(&mut self, key: RequestKey) {
        if self.requests[key].state().admits_like_new_prompt() {
            let queued = (self.requests[key].submission, key);
            self.requests.waiting.note_admission(queued);
        }
        let mut outlook = std::mem::take(&mut self.feedback.pressure.outlook);
        if !outlook.is_empty() {
            self.add_to(&mut outlook, key);
        }
        self.feedback.pressure.outlook = outlook;
    }
}

impl Outlook {
    /// What a request will need beside `held` slots, if it generates `rest` more tokens. Slots that slide
    /// out are used again, and a state takes a block as often as it crosses a boundary: neither is
    /// foreseen.
    fn of(request: &Request, rest: i64, geometry: &Geometry, held: usize) -> Outlook {
        if geometry.kind != GroupKind::Full {
            return Outlook::default();
        }
        let tokens = request.num_tokens();
        let prompt = geometry.slots_for(tokens).max(held);
        // An admission that proved too optimistic is to secure more (`scheduler.md` §4).
        let steps = (SECURED_STEPS_TOKENS * (1 + request.retractions)).min(rest).max(0);
        let end = geometry.slots_for(tokens + steps).max(prompt);
        match request.retractions {
            0 => Outlook { owed: (prompt - held) as i64, steps: (end - prompt) as i64 },
            _ => Outlook { owed: (end - held) as i64, steps: 0 },
        }
    }
}
