//! Requests that wait like new prompts, in submission order, and which of them are worth a try.
//!
//! A prompt that did not fit is looked at again only when something that it waits for has changed: the
//! pool could hold the least it needs, a page that it names was cached, or the round has so little
//! budget that it needs less. Everyone else is skipped without a look, so that a round costs the same
//! over an empty queue and over a long one (`cache.md` §9). No decision changes by it: who is skipped
//! would have been refused.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::set::RequestKey;
use crate::identity::PageId;

/// An order's entry: submission number first.
pub type Queued = (u64, RequestKey);

/// Why a prompt was refused, as far as it holds for later rounds too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The least that its admission needs, in the pool's measure
    /// ([`Coordinator::measure`](crate::cache::Coordinator::measure)).
    pub need: u64,
    /// Below this budget, in tokens, its chunk would be smaller, and so would the need.
    pub budget_floor: i64,
    /// Pages whose caching would lengthen its hit.
    pub watched: Vec<PageId>,
}

/// The line.
#[derive(Debug, Default)]
pub struct WaitingLine {
    /// Everyone.
    all: BTreeSet<Queued>,
    /// To be tried: new here, or something changed.
    untried: BTreeSet<Queued>,
    refusals: FxHashMap<RequestKey, Refusal>,
    by_need: BTreeSet<(u64, Queued)>,
    by_floor: BTreeSet<(i64, Queued)>,
    /// Who watches a page.
    watchers: FxHashMap<PageId, Vec<Queued>>,
}

impl WaitingLine {
    /// Puts a request in its place.
    pub fn insert(&mut self, queued: Queued) {
        self.all.insert(queued);
        self.untried.insert(queued);
    }

    /// Takes a request out.
    pub fn remove(&mut self, queued: Queued) {
        self.all.remove(&queued);
        self.untried.remove(&queued);
        self.forget_refusal(queued);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether nobody does.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The first at or after a submission number.
    pub fn first_from(&self, submission: u64) -> Option<RequestKey> {
        self.all.range((submission, RequestKey::FIRST)..).next().map(|&(_, key)| key)
    }

    /// Everyone, in order.
    pub fn iter(&self) -> impl Iterator<Item = RequestKey> + '_ {
        self.all.iter().map(|&(_, key)| key)
    }

    /// Notes that a request was refused, and until when.
    pub fn refuse(&mut self, queued: Queued, refusal: Refusal) {
        self.forget_refusal(queued);
        self.untried.remove(&queued);
        self.by_need.insert((refusal.need, queued));
        self.by_floor.insert((refusal.budget_floor, queued));
        for &page in &refusal.watched {
            self.watchers.entry(page).or_default().push(queued);
        }
        self.refusals.insert(queued.1, refusal);
    }

    /// A page was cached: whoever watches it is to be tried again.
    pub fn reconsider(&mut self, page: PageId) {
        for queued in self.watchers.remove(&page).unwrap_or_default() {
            self.forget_refusal(queued);
            self.untried.insert(queued);
        }
    }

    /// Whether anyone watches any page.
    pub fn watches(&self, page: PageId) -> bool {
        self.watchers.contains_key(&page)
    }

    /// Those worth a try in a pool of that room, in a round of that budget, in order; and the first of
    /// all others, for whom a retraction could be.
    pub fn candidates(&self, room: u64, budget: i64) -> BTreeSet<Queued> {
        let mut worth = self.untried.clone();
        worth.extend(self.by_need.range(..(room + 1, Queued::default())).map(|entry| entry.1));
        worth.extend(self.by_floor.range((budget + 1, Queued::default())..).map(|entry| entry.1));
        let skipped = self.all.iter().find(|queued| !worth.contains(queued));
        worth.extend(skipped.copied());
        worth
    }

    fn forget_refusal(&mut self, queued: Queued) {
        let Some(refusal) = self.refusals.remove(&queued.1) else {
            return;
        };
        self.by_need.remove(&(refusal.need, queued));
        self.by_floor.remove(&(refusal.budget_floor, queued));
        for page in &refusal.watched {
            if let Some(watchers) = self.watchers.get_mut(page) {
                watchers.retain(|watcher| *watcher != queued);
                if watchers.is_empty() {
                    self.watchers.remove(page);
                }
            }
        }
    }
}
