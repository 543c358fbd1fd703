//! Publication: what a request computed enters the Device index, and from there the queue to the
//! Host (`cache.md` §6).

use super::coordinator::Coordinator;
use super::geometry::{GroupIndex, HOLE};
use super::holdings::{Computed, Holdings, Progress};
use super::tier::{BlockKey, BoundaryKind, EntryFacts};
use crate::config::GroupKind;

impl Coordinator {
    /// Publishes the pages completed since the last publication, by each group's retention.
    pub(super) fn publish(&mut self, holdings: &mut Holdings, progress: Progress<'_>) {
        for group in 0..self.geometries.len() {
            self.publish_group(holdings, progress, group);
        }
        self.note_published(holdings, progress);
    }

    /// Publishes likewise, and makes the slots that retention has passed holes. A group is done with
    /// before the next one begins: in that order parents come to the back of the queue.
    pub(super) fn publish_and_expire(&mut self, holdings: &mut Holdings, progress: Progress<'_>) {
        for group in 0..self.geometries.len() {
            self.publish_group(holdings, progress, group);
            self.expire(holdings, group, progress.computed_tokens);
        }
        self.note_published(holdings, progress);
    }

    fn publish_group(
        &mut self,
        holdings: &mut Holdings,
        progress: Progress<'_>,
        group: GroupIndex,
    ) {
        let (from, to) = (holdings.published_pages, progress.pages.len());
        let geometry = &self.geometries[group];
        if to <= from || holdings.uncached || geometry.replayable {
            return;
        }
        let per_page = geometry.blocks_per_page;
        // A sliding group streams whatever it publishes, a full one what a prefill does.
        let (start, streams) = match geometry.kind {
            GroupKind::Full => (from * per_page, progress.by == Computed::Prefill),
            GroupKind::Sliding { .. } => (geometry.run_start(to), true),
            GroupKind::State => return self.publish_states(holdings, progress, group, from, to),
        };
        let kind = if holdings.promotion_boundary == Some(progress.computed_tokens) {
            BoundaryKind::Promoted
        } else if progress.computed_tokens == progress.prompt_tokens
            || progress.by == Computed::Finish
        {
            BoundaryKind::Endpoint
        } else {
            BoundaryKind::Chunk
        };
        for slot in start..to * per_page {
            let page = progress.pages[slot / per_page];
            let new = self.publish_slot(holdings, progress, group, slot, kind);
            if new && streams {
                self.stream(group, page, slot % per_page);
            }
        }
    }

    fn note_published(&self, holdings: &mut Holdings, progress: Progress<'_>) {
        let to = progress.pages.len();
        if to <= holdings.published_pages {
            return;
        }
        let covered = self.tokens_of(to);
        holdings.state_boundaries.retain(|&boundary| boundary > covered);
        holdings.published_pages = to;
    }

    /// Publishes the materialized checkpoints within pages `from..to`; plain chunks stay private.
    fn publish_states(
        &mut self,
        holdings: &mut Holdings,
        progress: Progress<'_>,
        group: GroupIndex,
        from: usize,
        to: usize,
    ) {
        let leaves = matches!(progress.by, Computed::Finish | Computed::Retraction);
        let last_aligned = progress.prompt_tokens / self.granularity * self.granularity;
        let per_page = self.geometries[group].blocks_per_page;
        for boundary in holdings.state_boundaries.clone() {
            let page = (boundary / self.granularity) as usize - 1;
            if page < from || page >= to {
                continue;
            }
            let kind = if holdings.promotion_boundary == Some(boundary) {
                BoundaryKind::Promoted
            } else if boundary == last_aligned || leaves {
                BoundaryKind::Endpoint
            } else {
                continue;
            };
            let slot = (page + 1) * per_page - 1;
            let new = self.publish_slot(holdings, progress, group, slot, kind);
            if new && progress.by == Computed::Prefill {
                self.stream(group, progress.pages[page], per_page - 1);
            }
        }
    }

    /// Registers one slot; an equal block that is there already takes its place (`cache.md` §4).
    /// Whether the key is new to the index.
    fn publish_slot(
        &mut self,
        holdings: &mut Holdings,
        progress: Progress<'_>,
        group: GroupIndex,
        slot: usize,
        kind: BoundaryKind,
    ) -> bool {
        let block = holdings.groups[group].table.block(slot);
        if block == HOLE {
            return false;
        }
        let per_page = self.geometries[group].blocks_per_page;
        let chain = &progress.pages[..=slot / per_page];
        let key = BlockKey::of(chain, slot, per_page);
        let canonical = self.device.lookup(group, key.page, usize::from(key.ordinal));
        if canonical == HOLE {
            let facts =
                EntryFacts { epoch: holdings.epoch, slot: slot as u32, kind, acquired: false };
            self.cache_on_device(group, block, key, facts, (chain, progress.tokens));
            self.publish_over(holdings, (group, key));
            return true;
        }
        if canonical != block {
            self.rest_on(holdings, (group, key));
            self.device.retain(group, canonical);
            let mut cells = self.persistent.row(group, holdings.row);
            holdings.groups[group].table.repoint(&mut cells, slot, canonical);
            self.device.release(group, block);
        }
        self.device.touch(group, canonical, |facts| {
            facts.epoch = holdings.epoch;
            facts.kind = facts.kind.max(kind);
        });
        false
    }
}
