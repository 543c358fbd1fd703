//! The local-prefill phases that roles share: a readmission, prompts under way, new prompts
//! (`scheduler.md` §3.3), behind the line that an incomplete prompt holds (§1.1).

use std::collections::BTreeSet;

use super::admit::Outcome;
use super::round::Round;
use crate::request::{Queued, RequestKey};

impl Round<'_> {
    /// Readmission first, since it holds a snapshot that other admissions could evict.
    pub(super) fn schedule_local_prefill_work(&mut self) {
        let readmission = match self.is_sealed_by_stalled() {
            true => Line::SealedToNewcomers,
            false => match self.schedule_urgent() {
                Line::Free => self.schedule_readmissions(),
                line => line,
            },
        };
        if readmission == Line::Held {
            return;
        }
        let residents = self.schedule_resident_chunks();
        // A newcomer could take the very blocks that a readmission or a prompt under way waits for.
        if readmission == Line::Free && residents == Line::Free {
            self.schedule_new_prompts();
        }
    }

    /// The decode role's recovery: the prompt under way if there is one, else a readmission
    /// (`scheduler.md` §3.2).
    pub(super) fn schedule_local_recovery(&mut self) -> Line {
        match self.requests.has_incomplete_prefill() {
            true => self.schedule_resident_chunks(),
            false => self.schedule_readmission(),
        }
    }

    /// One readmission by the document; all that fit, one after the other, where the engine keeps its batch.
    fn schedule_readmissions(&mut self) -> Line {
        loop {
            let waiting = self.requests.next_readmission(self.rules.spared_from);
            let line = self.schedule_readmission();
            let next = self.requests.next_readmission(self.rules.spared_from);
            if !self.keeps_batch() || line != Line::Free || next.is_none() || next == waiting {
                return line;
            }
        }
    }

    /// The one readmission that this round may start, and none while an earlier one is under way
    /// (`scheduler.md` §5). One that does not fit waits, and is never what a retraction is for (§4).
    fn schedule_readmission(&mut self) -> Line {
        let Some(key) = self.requests.next_readmission(self.rules.spared_from) else {
            return Line::Free;
        };
        if self.requests.has_incomplete_recovery() {
            return Line::SealedToNewcomers;
        }
        if self.build.budget_left() <= 0 {
            return Line::Held;
        }
        match self.schedule_first_chunk(key) {
            Outcome::Incomplete => Line::Held,
            Outcome::Completed => Line::Free,
            Outcome::NoCapacity | Outcome::NotNow => Line::SealedToNewcomers,
        }
    }

    /// Prompts under way, oldest first; none is overtaken by a new one (`scheduler.md` §5).
    pub(super) fn schedule_resident_chunks(&mut self) -> Line {
        let mut line = Line::Free;
        let mut from = 0;
        while let Some(key) = self.requests.prefilling_from(from) {
            from = self.requests[key].submission + 1;
            if self.build.budget_left() <= 0 {
                return Line::Held;
            }
            match self.grant_over_younger(key, Self::schedule_next_chunk) {
                Outcome::Completed => {}
                Outcome::Incomplete => return Line::Held,
                Outcome::NoCapacity => {
                    self.blocked(key);
                    return Line::Held;
                }
                Outcome::NotNow => line = Line::SealedToNewcomers,
            }
        }
        line
    }

    /// New prompts, oldest first; one that does not fit is passed over. Of those that were refused before,
    /// only who could fit by now is tried. While nobody is blocked yet, the first of them is looked at, too:
    /// it may be whom a retraction would be for.
    pub(super) fn schedule_new_prompts(&mut self) {
        let mut budget = self.build.budget_left();
        if !self.requests.waiting.is_empty() {
            self.look_out();
        }
        let mut again = self.whom_to_try_again(budget);
        let (mut room, mut from) = (self.cache.room(), 0);
        loop {
            for page in self.cache.take_newly_cached() {
                self.requests.waiting.reconsider(page);
            }
            let waiting = &self.requests.waiting;
            if self.build.budget_left() < budget {
                budget = self.build.budget_left();
                if let Again::These(these) = &mut again {
                    these.extend(waiting.cheaper_below(budget));
                }
            }
            if budget <= 0 || self.rows.next().is_none() {
                return;
            }
            let blocker_wanted = self.feedback.capacity_blocker.is_none();
            let refused = match &again {
                Again::These(these) if !blocker_wanted => {
                    these.range((from, RequestKey::FIRST)..).next().copied()
                }
                _ => waiting.first_refused(from),
            };
            let next = refused.into_iter().chain(waiting.first_untried(from)).min();
            let Some((submission, key)) = next else {
                return;
            };
            if self.is_held_for_oldest(key) {
                return;
            }
            from = submission + 1;
            if self.stays_refused(key, budget, blocker_wanted) {
                self.blocked(key);
                // Who was admitted since may have left few others a chance.
                if self.cache.room() < room {
                    room = self.cache.room();
                    again = self.whom_to_try_again(budget);
                }
                continue;
            }
            match self.schedule_first_chunk(key) {
                Outcome::Incomplete => return,
                Outcome::NoCapacity => self.blocked(key),
                Outcome::Completed | Outcome::NotNow => {}
            }
        }
    }

    /// Who was refused, and has a chance now.
    fn whom_to_try_again(&self, budget: i64) -> Again {
        let waiting = &self.requests.waiting;
        let many = (waiting.num_refused() / MANY_PARTS).max(1);
        let mut these: BTreeSet<_> = self.refused_that_could_fit().take(many).collect();
        if these.len() == many {
            return Again::Anyone;
        }
        these.extend(waiting.cheaper_below(budget));
        Again::These(these)
    }

    /// Prompts that were refused, and that the pool could hold after all.
    fn refused_that_could_fit(&self) -> impl Iterator<Item = Queued> {
        self.requests.waiting.within(|class| self.room_for_newcomers(class))
    }

    /// Whether a prompt that was refused in an earlier round is sure to be refused again; if it is to be the
    /// blocker, then for capacity.
    fn stays_refused(&self, key: RequestKey, budget: i64, blocker_wanted: bool) -> bool {
        if !self.requests.waiting.is_refused(key) {
            return false; // Most: how much room there is need not be known for them.
        }
        let room = |class| self.room_for_newcomers(class);
        let refusal = self.requests.waiting.standing_refusal(key, room, budget);
        refusal.is_some_and(|refusal| {
            !blocker_wanted || refusal.for_capacity && !self.requests[key].needs_empty_pool()
        })
    }

    /// Notes an admission that failed for capacity.
    pub(super) fn blocked(&mut self, key: RequestKey) {
        self.feedback.capacity_blocker.get_or_insert(key);
        if self.requests[key].state().is_resident() {
            self.feedback.stalled.push(key);
        }
    }
}

/// One refused prompt in so many that could fit: then they are met by going through the line.
const MANY_PARTS: usize = 16;

/// Which refused prompts a round tries again.
#[derive(Debug)]
enum Again {
    These(BTreeSet<Queued>),
    /// Whoever is met: many could fit.
    Anyone,
}

/// Whether later phases may schedule prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Free,
    /// Someone waits who comes first: prompts under way go on, new ones do not start.
    SealedToNewcomers,
    /// An incomplete prompt was scheduled, or lacks blocks, or the budget is spent.
    Held,
}
