//! Memory pressure under [`PressurePolicy::Goodput`]: an engine keeps its batch. Age decides, and nobody
//! is admitted to blocks that residents will need within a few steps (`docs/goodput.md` says what each
//! rule is worth, and what the document's costs).
//!
//! - Who lacks a block takes it from the youngest resident, at once, and not only where nobody else can
//!   run. The youngest waits; the oldest is never a victim, so somebody always gets on (`liveness.md` 1).
//! - An admission secures the rest of its prompt, and leaves the residents their next steps. Where a
//!   resident lacks a block nobody is admitted at all.
//! - Budgets are not prepaid: what a victim has to compute again is a few steps' worth, and an empty
//!   reserve is not.
//! - Prompts are admitted oldest first, and none is passed over. Readmissions share their round.

use super::round::Round;
use crate::cache::Geometry;
use crate::config::{GroupKind, PressurePolicy};
use crate::request::{Request, RequestKey};

/// Steps that are secured for every resident when another is admitted, in tokens.
const SECURED_STEPS_TOKENS: i64 = 128;

/// The steps secured keep at most one part in so many of a pool from an admission.
const SECURED_PARTS: i64 = 8;

/// What the policy keeps in mind during a round.
#[derive(Debug, Default)]
pub struct Pressure {
    /// What residents will need of each group; empty until an admission asks.
    outlook: Vec<Outlook>,
    /// A victim whose result is out: it stands still, so that it can give way in the next round.
    yielding: Option<RequestKey>,
}

/// What requests that hold blocks will need of a group beside them, in blocks.
#[derive(Debug, Default, Clone, Copy)]
struct Outlook {
    /// For the rest of their prompts.
    prompts: i64,
    /// For their next steps behind those.
    steps: i64,
}

impl Round<'_> {
    /// Whether the engine keeps its batch under pressure. A prefill worker has none.
    pub(super) fn keeps_batch(&self) -> bool {
        let config = &self.rules.config;
        config.pressure_policy == PressurePolicy::Goodput && config.role.decodes()
    }

    /// Whether newcomers wait because a resident lacks a block.
    pub(super) fn is_sealed_by_stalled(&self) -> bool {
        self.keeps_batch() && !self.feedback.stalled.is_empty()
    }

    /// Whether a request stands still in this round, to give way in the next.
    pub(super) fn yields(&self, key: RequestKey) -> bool {
        self.feedback.pressure.yielding == Some(key)
    }

    /// Takes the blocks of the youngest resident for an older one that lacks some. Whether it did: copies
    /// in flight defer it, and a result that is out comes first (`scheduler.md` §2).
    pub(super) fn younger_gives_way(&mut self, key: RequestKey) -> bool {
        if !self.keeps_batch() || !self.cache.transfers().owe_nothing() {
            return false;
        }
        let youngest = self.requests.youngest_local_resident();
        let age = |key: RequestKey| self.requests[key].submission;
        let Some(victim) = youngest.filter(|&victim| age(victim) > age(key)) else {
            return false;
        };
        if self.requests[victim].forwards_out > 0 {
            self.feedback.pressure.yielding = Some(victim);
            return false;
        }
        self.retract_or_end(victim);
        true
    }

    /// Blocks a group that a first admission has to leave to the residents, itself among them; `None`
    /// where there is nobody to leave any to. `end` is that of its first chunk.
    pub(super) fn left_to_residents(&mut self, key: RequestKey, end: i64) -> Option<Vec<i64>> {
        if !self.keeps_batch() || self.requests.residents().next().is_none() {
            return None;
        }
        let geometries = self.cache.geometries();
        let outlook = &mut self.feedback.pressure.outlook;
        if outlook.is_empty() {
            outlook.resize(geometries.len(), Outlook::default());
            for resident in self.requests.residents() {
                add(outlook, &self.requests[resident], geometries);
            }
        }
        let request = &self.requests[key];
        let left = |(geometry, all): (&Geometry, &Outlook)| {
            let own = Outlook::of(request, geometry, geometry.slots_for(end));
            let k = i64::from(geometry.blocks_per_parent);
            let most = self.rules.config.usable_device_parents() * k / SECURED_PARTS;
            all.prompts + own.prompts + (all.steps + own.steps).min(most)
        };
        Some(geometries.iter().zip(outlook.iter()).map(left).collect())
    }

    /// Where a request that is being retracted stands among the readmissions: behind all retracted before
    /// it by the document, and by its age where the engine keeps its batch.
    pub(super) fn place_among_readmissions(&self, key: RequestKey) -> u64 {
        match self.keeps_batch() {
            true => self.requests[key].submission,
            false => *self.retraction_epoch,
        }
    }

    /// Counts a request that was just admitted among the residents.
    pub(super) fn count_in(&mut self, key: RequestKey) {
        let outlook = &mut self.feedback.pressure.outlook;
        if !outlook.is_empty() {
            add(outlook, &self.requests[key], self.cache.geometries());
        }
    }
}

impl Outlook {
    /// What a request will need beside `held` slots. Slots that slide out are used again, and a state
    /// takes a block as often as it crosses a boundary: neither is foreseen.
    fn of(request: &Request, geometry: &Geometry, held: usize) -> Outlook {
        if geometry.kind != GroupKind::Full {
            return Outlook::default();
        }
        let prompt = geometry.slots_for(request.num_tokens()).max(held);
        let steps = SECURED_STEPS_TOKENS * (1 + request.retractions);
        let steps = match request.max_new_tokens {
            0 => steps,
            budget => steps.min(budget - request.generated_tokens()).max(0),
        };
        let end = geometry.slots_for(request.num_tokens() + steps).max(prompt);
        Outlook { prompts: (prompt - held) as i64, steps: (end - prompt) as i64 }
    }
}

fn add(outlook: &mut [Outlook], request: &Request, geometries: &[Geometry]) {
    for ((all, geometry), held) in outlook.iter_mut().zip(geometries).zip(&request.holdings.groups) {
        let own = Outlook::of(request, geometry, held.table.len());
        all.prompts += own.prompts;
        all.steps += own.steps;
    }
}
