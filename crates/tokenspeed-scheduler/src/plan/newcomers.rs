//! New prompts, down the line of those who wait (`scheduler.md` §3.3). Who was refused before is looked at
//! again where it could fit, so that a round costs the same before a long line and before a short one
//! (`cache.md` §9).

use std::collections::BTreeSet;

use super::admit::Outcome;
use super::round::Round;
use crate::request::{Queued, RequestKey};

/// One refused prompt in so many that could fit: then they are met by going through the line.
const MANY_PARTS: usize = 16;

/// How far a round has looked down the line of new prompts.
#[derive(Debug)]
struct Look {
    /// What the round had left, in tokens.
    budget: i64,
    /// What the pool could hold, in the measure of [`Coordinator::room`](crate::cache::Coordinator::room).
    room: u64,
    again: Again,
    /// Submission number of the next.
    from: u64,
    /// Who was tried; debug builds alone note it.
    tried: Vec<RequestKey>,
}

/// Which refused prompts a round tries again.
#[derive(Debug)]
enum Again {
    These(BTreeSet<Queued>),
    /// Whoever is met: many could fit.
    Anyone,
}

impl Round<'_> {
    /// New prompts, oldest first; one that does not fit is passed over.
    pub(super) fn schedule_new_prompts(&mut self) {
        if self.requests.waiting.is_empty() {
            self.cache.take_newly_cached(); // Nobody watches for them.
            return;
        }
        self.look_out();
        let mut look = Look {
            budget: self.build.budget_left(),
            room: self.cache.room(),
            again: self.whom_to_try_again(),
            from: 0,
            tried: Vec::new(),
        };
        loop {
            for page in self.cache.take_newly_cached() {
                self.requests.waiting.reconsider(page);
            }
            self.note_budget(&mut look);
            if look.budget <= 0 || self.rows.next().is_none() {
                return;
            }
            let Some((submission, key)) = self.next_to_look_at(&look) else {
                if cfg!(debug_assertions) {
                    self.check_nobody_is_overlooked(&look);
                }
                return;
            };
            if self.is_held_for_oldest(key) {
                return;
            }
            look.from = submission + 1;
            if self.stays_refused(key, look.budget) {
                self.blocked(key);
                self.note_room(&mut look);
                continue;
            }
            if cfg!(debug_assertions) {
                look.tried.push(key);
            }
            match self.schedule_first_chunk(key) {
                Outcome::Incomplete => return,
                Outcome::NoCapacity => self.blocked(key),
                Outcome::Completed | Outcome::NotNow => {}
            }
        }
    }

    /// Of those that were refused before only who could fit by now is looked at. While nobody is blocked yet the
    /// first of them is, too: it may be whom a retraction would be for.
    fn next_to_look_at(&self, look: &Look) -> Option<Queued> {
        let waiting = &self.requests.waiting;
        let refused = match &look.again {
            Again::These(these) if self.feedback.capacity_blocker.is_some() => {
                these.range((look.from, RequestKey::FIRST)..).next().copied()
            }
            _ => waiting.first_refused(look.from),
        };
        refused.into_iter().chain(waiting.first_untried(look.from)).min()
    }

    /// Who was refused, and has a chance now.
    fn whom_to_try_again(&self) -> Again {
        let waiting = &self.requests.waiting;
        let could_fit = waiting.within(|class| self.room_for_newcomers(class));
        let many = (waiting.num_refused() / MANY_PARTS).max(1);
        let mut these: BTreeSet<_> = could_fit.take(many).collect();
        if these.len() == many {
            return Again::Anyone;
        }
        these.extend(waiting.cheaper_below(self.build.budget_left()));
        Again::These(these)
    }

    /// In a smaller budget some could need less.
    fn note_budget(&self, look: &mut Look) {
        let left = self.build.budget_left();
        if left < look.budget {
            look.budget = left;
            if let Again::These(these) = &mut look.again {
                these.extend(self.requests.waiting.cheaper_below(left));
            }
        }
    }

    /// Who was admitted since may have left few others a chance.
    fn note_room(&self, look: &mut Look) {
        let room = self.cache.room();
        if room < look.room {
            look.room = room;
            look.again = self.whom_to_try_again();
        }
    }

    /// Whether a prompt that was refused in an earlier round is sure to be refused again; if it is to be the
    /// blocker, then for capacity.
    fn stays_refused(&self, key: RequestKey, budget: i64) -> bool {
        let room = |class| self.room_for_newcomers(class);
        let refusal = self.requests.waiting.standing_refusal(key, room, budget);
        refusal.is_some_and(|refusal| {
            self.feedback.capacity_blocker.is_some()
                || refusal.for_capacity && !self.requests[key].needs_empty_pool()
        })
    }

    /// Tries those who were passed over without a try, too: none may fit. Not those who need less in the budget that
    /// is left: their turn came while there was more.
    fn check_nobody_is_overlooked(&mut self, look: &Look) {
        let is_passed_over = |key: &RequestKey| {
            let request = &self.requests[*key];
            !look.tried.contains(key) && !request.needs_empty_pool() && !request.budget_is_spent()
        };
        let refused = self.requests.waiting.refused_at(look.budget).filter(is_passed_over);
        for key in refused.collect::<Vec<_>>() {
            let outcome = self.schedule_first_chunk(key);
            assert!(
                matches!(outcome, Outcome::NoCapacity | Outcome::NotNow),
                "request '{}' fits and was passed over",
                self.requests[key].id
            );
        }
    }
}
