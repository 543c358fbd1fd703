//! Requests that wait like new prompts, in submission order, and which of them are worth a try.
//!
//! A prompt that did not fit is looked at again only when something that it waits for has changed: the
//! pool could hold the least it needs, a page that it names was cached, or the round has so little
//! budget that it needs less. Everyone else is passed over without a look, so that a round costs the
//! same over an empty line and over a long one (`cache.md` §9). No decision changes by it: whoever is
//! passed over would have been refused. (One that would fetch from L3, or that the Host had no place for,
//! notes nothing and is tried each round: what the Host can take changes unseen.)

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::set::RequestKey;
use crate::identity::PageId;

/// A place in the line: submission number first.
pub type Queued = (u64, RequestKey);

/// Decode steps that an admission secures beside its prompt, by what its request declares: at least so many
/// times [`STEPS_OF_CLASS_TOKENS`], or as many as outputs are expected to have.
pub type StepsClass = i64;

/// Steps between two classes, in tokens.
pub const STEPS_OF_CLASS_TOKENS: i64 = 16;

/// The largest class.
pub const STEPS_CLASS_MOST: StepsClass = 8;

/// Why a prompt was refused, as far as it holds for later rounds too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The least that its admission needs, in the measure of
    /// [`Coordinator::room`](crate::cache::Coordinator::room).
    pub need: u64,
    /// What it secures beside that.
    pub steps_class: StepsClass,
    /// Within a smaller budget, in tokens, its chunk would be smaller, and so might the need.
    pub budget_floor: i64,
    /// Pages whose caching could make it need less.
    pub watched: Vec<PageId>,
    /// Whether it is sure to be refused for capacity, and not for a budget in which its chunk is empty.
    pub for_capacity: bool,
}

/// The line.
#[derive(Debug, Default)]
pub struct WaitingLine {
    /// Everyone.
    all: BTreeSet<Queued>,
    /// To be tried: new here, or something changed. The others are `refused`.
    untried: BTreeSet<Queued>,
    refused: BTreeSet<Queued>,
    refusals: FxHashMap<RequestKey, Refusal>,
    by_need: BTreeSet<(StepsClass, u64, Queued)>,
    by_floor: BTreeSet<(i64, Queued)>,
    watchers: BTreeSet<(PageId, Queued)>,
    /// How many were admitted past the oldest since it became that.
    overtaken: u32,
}

impl WaitingLine {
    /// Puts a request in its place.
    pub fn insert(&mut self, queued: Queued) {
        if self.all.first().is_some_and(|&oldest| queued < oldest) {
            self.overtaken = 0;
        }
        self.all.insert(queued);
        self.untried.insert(queued);
    }

    /// Takes a request out.
    pub fn remove(&mut self, queued: Queued) {
        if self.all.first() == Some(&queued) {
            self.overtaken = 0;
        }
        self.all.remove(&queued);
        self.untried.remove(&queued);
        self.forget_refusal(queued);
    }

    /// Notes that a request is about to be admitted: past the oldest, unless it is the oldest.
    pub fn note_admission(&mut self, queued: Queued) {
        self.overtaken += u32::from(self.all.first() != Some(&queued));
    }

    /// How many were admitted past the oldest since it became that.
    pub fn overtaken(&self) -> u32 {
        self.overtaken
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether nobody does.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those of them that were refused since something changed, and would need no less in a round of that budget;
    /// in submission order.
    pub fn refused_at(&self, budget: i64) -> impl Iterator<Item = RequestKey> + '_ {
        let needs_no_less = move |key: &RequestKey| self.refusals[key].budget_floor <= budget;
        self.refused.iter().map(|&(_, key)| key).filter(needs_no_less)
    }

    /// How many were refused since something changed.
    pub fn num_refused(&self) -> usize {
        self.refused.len()
    }

    /// Everyone, in submission order.
    pub fn iter(&self) -> impl Iterator<Item = RequestKey> + '_ {
        self.all.iter().map(|&(_, key)| key)
    }

    /// The oldest.
    pub fn first(&self) -> Option<RequestKey> {
        self.all.first().map(|&(_, key)| key)
    }

    /// The first at or after a submission number that was not refused since something changed.
    pub fn first_untried(&self, submission: u64) -> Option<Queued> {
        self.untried.range(from(submission)..).next().copied()
    }

    /// The first at or after a submission number that was refused.
    pub fn first_refused(&self, submission: u64) -> Option<Queued> {
        self.refused.range(from(submission)..).next().copied()
    }

    /// The refused that a pool could hold after all that has so much room for each class.
    pub fn within(&self, room: impl Fn(StepsClass) -> u64) -> impl Iterator<Item = Queued> {
        let of_class = move |class: StepsClass| {
            let end = (class, room(class).saturating_add(1), from(0));
            self.by_need.range((class, 0, from(0))..end).map(|entry| entry.2)
        };
        (0..=STEPS_CLASS_MOST).flat_map(of_class)
    }

    /// The refused that could need less in a round of that budget.
    pub fn cheaper_below(&self, budget: i64) -> impl Iterator<Item = Queued> + '_ {
        self.by_floor.range((budget + 1, from(0))..).map(|entry| entry.1)
    }

    /// The refusal of a request that would be refused again in a pool that has so much room for each class, in a
    /// round of that budget.
    pub fn standing_refusal(
        &self,
        key: RequestKey,
        room: impl Fn(StepsClass) -> u64,
        budget: i64,
    ) -> Option<&Refusal> {
        let refusal = self.refusals.get(&key)?;
        let stands = refusal.budget_floor <= budget && refusal.need > room(refusal.steps_class);
        stands.then_some(refusal)
    }

    /// Notes that a request was refused, and until when.
    pub fn refuse(&mut self, queued: Queued, refusal: Refusal) {
        self.forget_refusal(queued);
        self.untried.remove(&queued);
        self.refused.insert(queued);
        self.by_need.insert((refusal.steps_class, refusal.need, queued));
        self.by_floor.insert((refusal.budget_floor, queued));
        self.watchers.extend(refusal.watched.iter().map(|&page| (page, queued)));
        self.refusals.insert(queued.1, refusal);
    }

    /// A page was cached: whoever watches it is to be tried again.
    pub fn reconsider(&mut self, page: PageId) {
        while let Some(&(watched, queued)) = self.watchers.range((page, from(0))..).next()
            && watched == page
        {
            self.forget_refusal(queued);
            self.untried.insert(queued);
        }
    }

    fn forget_refusal(&mut self, queued: Queued) {
        let Some(refusal) = self.refusals.remove(&queued.1) else {
            return;
        };
        self.refused.remove(&queued);
        self.by_need.remove(&(refusal.steps_class, refusal.need, queued));
        self.by_floor.remove(&(refusal.budget_floor, queued));
        for page in refusal.watched {
            self.watchers.remove(&(page, queued));
        }
    }
}

fn from(submission: u64) -> Queued {
    (submission, RequestKey::FIRST)
}
