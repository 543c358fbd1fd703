//! Publication and retention (`cache.md` §6).

use super::admission::{By, Progress};
use super::tier::{Entry, Kind};
use super::{Model, Shape};

impl Model {
    /// Publishes the pages completed since the last time.
    pub fn publish(&mut self, request: usize, progress: &Progress<'_>) {
        for group in 0..self.groups.len() {
            self.publish_group(request, progress, group);
        }
        self.note_published(request, progress);
    }

    /// Publishes and makes expired slots holes, group by group.
    pub fn publish_and_expire(&mut self, request: usize, progress: &Progress<'_>) {
        for group in 0..self.groups.len() {
            self.publish_group(request, progress, group);
            self.expire(request, group, progress.computed);
        }
        self.note_published(request, progress);
    }

    fn note_published(&mut self, request: usize, progress: &Progress<'_>) {
        let to = (progress.computed / self.p) as usize;
        let covered = to as i64 * self.p;
        let holding = self.holdings.get_mut(&request).expect("a live request");
        if to > holding.published {
            holding.checkpoints.retain(|&boundary| boundary > covered);
            holding.published = to;
        }
    }

    fn publish_group(&mut self, request: usize, progress: &Progress<'_>, group: usize) {
        let holding = self.holdings[&request].clone();
        let (from, to) = (holding.published, (progress.computed / self.p) as usize);
        if to <= from {
            return;
        }
        let frontier = progress.computed;
        let kind = if holding.promotion == Some(frontier) {
            Kind::Promoted
        } else if frontier == progress.prompt
            || matches!(progress.by, By::Departure { gives_way: false })
        {
            // What is published as the request departs is where it, or its next turn, comes back.
            Kind::Endpoint
        } else {
            Kind::Chunk
        };
        let per_page = self.per_page(group);
        match self.groups[group].shape {
            // "Every newly hashed page"; streams "when a prefill publishes them".
            Shape::Full => {
                for slot in from * per_page..to * per_page {
                    let new = self.register(request, group, progress, slot, kind);
                    if new && progress.by == By::Prefill {
                        self.queue(group, progress, slot);
                    }
                }
            }
            // "Only the run behind the newest hashed boundary"; streams "as soon as newly indexed".
            Shape::Sliding(_) => {
                for slot in self.run_start(group, to)..to * per_page {
                    if self.register(request, group, progress, slot, kind) {
                        self.queue(group, progress, slot);
                    }
                }
            }
            // "Only boundaries that a prefill recorded as materialized, inside the newly hashed
            // range, and only as endpoint or promoted".
            Shape::State => {
                let last_aligned = progress.prompt / self.p * self.p;
                for &boundary in &holding.checkpoints {
                    let page = (boundary / self.p) as usize;
                    let kind = match () {
                        () if holding.promotion == Some(boundary) => Kind::Promoted,
                        () if boundary == last_aligned => Kind::Endpoint,
                        // The recovery endpoint of `scheduler.md` §1.2.
                        () if matches!(progress.by, By::Departure { .. }) => Kind::Endpoint,
                        () => Kind::Chunk,
                    };
                    if page > from && page <= to && kind > Kind::Chunk {
                        let slot = page * per_page - 1;
                        let new = self.register(request, group, progress, slot, kind);
                        if new && progress.by == By::Prefill {
                            self.queue(group, progress, slot);
                        }
                    }
                }
            }
        }
    }

    fn queue(&mut self, group: usize, progress: &Progress<'_>, slot: usize) {
        if self.host.is_some() {
            self.queued.push(self.key(group, progress.tokens, slot));
        }
    }

    /// "Registering a block whose key exists re-points the request's slot to the canonical block and
    /// lets its own go" (§4). Whether the key is new.
    fn register(
        &mut self,
        request: usize,
        group: usize,
        progress: &Progress<'_>,
        slot: usize,
        kind: Kind,
    ) -> bool {
        let key = self.key(group, progress.tokens, slot);
        let holding = self.holdings.get_mut(&request).expect("a live request");
        let own = holding.tables[group].get(slot).copied().unwrap_or(0);
        if own == 0 {
            return false;
        }
        let Some(entry) = self.device.index.get_mut(&key) else {
            let entry = Entry { block: own, epoch: holding.epoch, slot, kind, acquired: false };
            self.device.index.insert(key, entry);
            return true;
        };
        let canonical = entry.block;
        entry.epoch = holding.epoch;
        entry.kind = entry.kind.max(kind);
        if canonical != own {
            holding.tables[group][slot] = canonical;
            self.device.own(group, canonical);
            self.device.disown(group, own);
        }
        false
    }

    /// The slots that no query at or after `computed` can read: "the first
    /// `floor((computed - W + 1) / g)`".
    pub fn expired_slots(&self, group: usize, computed: i64) -> usize {
        match self.groups[group].window() {
            None => 0,
            Some(window) => ((computed - window + 1).max(0) / self.groups[group].g) as usize,
        }
    }

    fn expire(&mut self, request: usize, group: usize, computed: i64) {
        let expired = self.expired_slots(group, computed);
        for slot in 0..expired.min(self.holdings[&request].tables[group].len()) {
            let table = &mut self.holdings.get_mut(&request).expect("live").tables[group];
            let block = std::mem::replace(&mut table[slot], 0);
            if block != 0 {
                self.device.disown(group, block);
            }
        }
    }
}
