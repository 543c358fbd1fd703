//! The local-prefill phases that roles share: a readmission, prompts under way, new prompts
//! (`scheduler.md` §3.3), behind the line that an incomplete prompt holds (§1.1).

use super::admit::Outcome;
use super::round::Round;
use crate::request::RequestKey;

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
            let waiting = self.next_readmission();
            let line = self.schedule_readmission();
            let next = self.next_readmission();
            if !self.keeps_batch() || line != Line::Free || next.is_none() || next == waiting {
                return line;
            }
        }
    }

    fn next_readmission(&self) -> Option<RequestKey> {
        self.requests.readmissions().find(|&key| !self.stands_back(key))
    }

    /// The one readmission that this round may start, and none while an earlier one is under way
    /// (`scheduler.md` §5). One that does not fit waits, and is never what a retraction is for (§4).
    fn schedule_readmission(&mut self) -> Line {
        let Some(key) = self.next_readmission() else {
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

    /// Notes an admission that failed for capacity.
    pub(super) fn blocked(&mut self, key: RequestKey) {
        self.feedback.capacity_blocker.get_or_insert(key);
        if self.requests[key].state().is_resident() {
            self.feedback.stalled.push(key);
        }
    }
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
