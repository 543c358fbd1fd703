//! What a failed load leaves behind (`cache.md` §8; `scheduler.md` §4).

use super::Scheduler;
use crate::cache::{BlockId, GroupIndex};
use crate::request::RequestKey;

impl Scheduler {
    /// Retracts, without a snapshot, whoever holds a block that a failed load should have filled: what they
    /// computed behind it was computed from something else, and its pages are named no more. Whoever
    /// holds one of those follows. A peer that is at work keeps its blocks: its own word decides.
    pub(super) fn retract_readers(&mut self, failed: Vec<(GroupIndex, BlockId)>) {
        let mut bad = failed;
        while !bad.is_empty() {
            let readers: Vec<(RequestKey, usize)> = self
                .requests
                .local_residents()
                .filter_map(|key| Some((key, self.first_bad_page(key, &bad)?)))
                .collect();
            bad.clear();
            for (key, page) in readers {
                let pages = self.requests[key].pages.clone();
                bad.extend(self.cache.disown(&pages[page.min(pages.len())..]));
                self.retract_without_snapshot(key);
            }
        }
    }

    /// The first prefix page of which the request holds a bad block.
    fn first_bad_page(&self, key: RequestKey, bad: &[(GroupIndex, BlockId)]) -> Option<usize> {
        let groups = self.requests[key].holdings.groups.iter().enumerate();
        let pages = groups.filter_map(|(group, held)| {
            let is_bad = |&(_, block): &(usize, BlockId)| bad.contains(&(group, block));
            let (slot, _) = held.table.held().find(is_bad)?;
            Some(slot / self.cache.geometries()[group].blocks_per_page)
        });
        pages.min()
    }
}
