//! What a failed load leaves behind (`cache.md` §8; `scheduler.md` §4).

use super::Scheduler;
use crate::cache::OpId;
use crate::config::Role;
use crate::request::RequestKey;

impl Scheduler {
    /// Ends a load that failed. What was named over it is named no more, and whoever rests on it is
    /// retracted without a snapshot. Where a peer is at work the blocks are its own until its word; a
    /// landing is retracted then.
    pub(super) fn fail_load(&mut self, load: OpId) {
        if self.cache.transfers().get(load).is_none() {
            return;
        }
        self.cache.complete_transfer(load, false);
        for key in self.readers_of(load) {
            match self.requests[key].state().is_with_peer() {
                true => self.requests[key].holdings.torn = true,
                false => self.retract_torn(key),
            }
        }
    }

    /// Residents that hit what the load was to bring, or what was computed over it.
    pub(super) fn readers_of(&self, load: OpId) -> Vec<RequestKey> {
        let residents = self.requests.residents();
        residents.filter(|&key| self.requests[key].holdings.rests_on.contains(&load)).collect()
    }

    /// Takes the blocks of a resident that rests on a failed load. On the decode role it recovers here,
    /// since its peer has done its part (`scheduler.md` §3.2).
    pub(super) fn retract_torn(&mut self, key: RequestKey) {
        self.retract_without_snapshot(key, self.rules.config.role == Role::D);
    }
}
