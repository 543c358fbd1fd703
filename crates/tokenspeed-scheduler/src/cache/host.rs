//! The Host tier at work: stores, loads, and their acknowledgements (`cache.md` §8).

use super::coordinator::Coordinator;
use super::geometry::{BlockId, GroupIndex, HOLE};
use super::holdings::{Holdings, Progress};
use super::tier::{BlockKey, EntryFacts, Tier};
use super::transfer::{BlockCopy, CopyOp, OpId, StoreGuard, Transfer};
use crate::config::GroupKind;
use crate::identity::{PageId, PrefixPages};

impl Coordinator {
    /// Queues the store of a published block for the plan in the making.
    pub(super) fn queue_store(&mut self, group: GroupIndex, page: PageId, ordinal: usize) {
        if self.host.is_some() {
            self.pages.retain(page);
            self.transfers.pending.push((group, BlockKey { page, ordinal: ordinal as u16 }));
        }
    }

    /// Queues whatever of the request is Device-cached, and for each state group its latest snapshot
    /// within the prompt.
    pub(super) fn queue_cached(&mut self, holdings: &Holdings, progress: Progress<'_>) {
        if self.host.is_none() {
            return;
        }
        for group in 0..self.geometries.len() {
            let per_page = self.geometries[group].blocks_per_page;
            if self.geometries[group].kind == GroupKind::State {
                let within = (progress.prompt_tokens / self.granularity) as usize;
                let pages = &progress.pages[..within.min(progress.pages.len())];
                let latest = pages
                    .iter()
                    .rev()
                    .find(|&&page| self.device.lookup(group, page, per_page - 1) != HOLE);
                if let Some(&page) = latest {
                    self.queue_store(group, page, per_page - 1);
                }
                continue;
            }
            let cached: Vec<BlockKey> = holdings.groups[group]
                .table
                .held()
                .filter_map(|(_, block)| self.device.key(group, block))
                .collect();
            for key in cached {
                self.queue_store(group, key.page, usize::from(key.ordinal));
            }
        }
    }

    /// Orders the copies of all queued blocks as one operation, under one guard. Skipped: a key
    /// already Host-cached, one in flight, a repeat, one no longer on the Device, or one for which
    /// no Host block is to be had.
    pub fn start_pending_stores(&mut self, guard: StoreGuard) {
        let pending = std::mem::take(&mut self.transfers.pending);
        let mut blocks: Vec<BlockCopy> = Vec::new();
        for &(group, key) in &pending {
            if let Some(copy) = self.store_target(group, key, &blocks) {
                if guard == StoreGuard::PinnedUntilAck {
                    self.device.retain(group, copy.device);
                }
                self.pages.retain(key.page);
                blocks.push(copy);
            }
        }
        pending.iter().for_each(|&(_, key)| self.pages.release(key.page));
        if blocks.is_empty() {
            return;
        }
        let op_id = self.transfers.start(Transfer::Store { guard, blocks: blocks.clone() });
        let order = &mut self.transfers.write_back;
        order.start(op_id);
        order.source_pinned.push(guard == StoreGuard::PinnedUntilAck);
        for copy in &blocks {
            let hash = *self.pages.hash(copy.key.page);
            order.add(copy.group, copy.device, copy.host, hash, copy.key.ordinal);
        }
    }

    fn store_target(
        &mut self,
        group: GroupIndex,
        key: BlockKey,
        batch: &[BlockCopy],
    ) -> Option<BlockCopy> {
        let ordinal = usize::from(key.ordinal);
        let device = self.device.lookup(group, key.page, ordinal);
        let host = self.host.as_mut()?;
        let known = device == HOLE
            || host.lookup(group, key.page, ordinal) != HOLE
            || self.transfers.is_storing(group, key)
            || batch.iter().any(|copy| copy.group == group && copy.key == key);
        if known {
            return None;
        }
        let target = acquire_or_replace(host, &mut self.pages, group, self.geometries.len())?;
        let facts = EntryFacts { acquired: false, ..self.device.facts(group, device) };
        Some(BlockCopy { group, device, host: target, key, facts })
    }

    /// Starts the load of one Host-hit slot into a fresh Device block, indexed at once: the load is
    /// ordered before the forward that reads it.
    pub(super) fn load_slot(
        &mut self,
        group: GroupIndex,
        slot: usize,
        pages: &[PageId],
        epoch: u64,
        load: &mut Vec<BlockCopy>,
    ) -> BlockId {
        let per_page = self.geometries[group].blocks_per_page;
        let (page, ordinal) = (pages[slot / per_page], slot % per_page);
        let key = BlockKey { page, ordinal: ordinal as u16 };
        let tier = self.host.as_mut().expect("a Host hit needs a Host tier");
        let host = tier.lookup(group, page, ordinal);
        tier.retain(group, host);
        tier.touch(group, host, |facts| {
            facts.epoch = epoch;
            facts.acquired = true;
        });
        let facts = EntryFacts { slot: slot as u32, ..tier.facts(group, host) };
        let device = self.device.acquire(group).expect("admission has made room");
        self.device.retain(group, device);
        self.pages.retain(page);
        load.push(BlockCopy { group, device, host, key, facts });
        let canonical = self.device.lookup(group, page, ordinal);
        if canonical == HOLE {
            self.device.publish(&mut self.pages, group, device, key, facts);
            return device;
        }
        device
    }

    /// Orders the loads that an admission has collected as one operation.
    pub(super) fn finish_load(&mut self, blocks: Vec<BlockCopy>) {
        if blocks.is_empty() {
            return;
        }
        let op_id = self.transfers.start(Transfer::Load { blocks: blocks.clone() });
        let order = &mut self.transfers.load_back;
        order.start(op_id);
        order.prefetch_from_storage.push(vec![0; blocks.len()]);
        for copy in &blocks {
            let hash = *self.pages.hash(copy.key.page);
            order.add(copy.group, copy.host, copy.device, hash, copy.key.ordinal);
        }
    }

    /// The copies ordered since the last call: the plan's write-back and load-back.
    pub fn take_copies(&mut self) -> (CopyOp, CopyOp) {
        (
            std::mem::take(&mut self.transfers.write_back),
            std::mem::take(&mut self.transfers.load_back),
        )
    }

    /// A copy has ended: a store publishes its Host entries, and every pin of it is dropped. A number
    /// that is not in flight is ignored: acknowledgements may come late.
    pub fn complete_transfer(&mut self, op_id: OpId) {
        match self.transfers.complete(op_id) {
            None => {}
            Some(Transfer::Store { guard, blocks }) => {
                let host = self.host.as_mut().expect("a store needs a Host tier");
                for copy in blocks {
                    let ordinal = usize::from(copy.key.ordinal);
                    if host.lookup(copy.group, copy.key.page, ordinal) == HOLE {
                        host.publish(&mut self.pages, copy.group, copy.host, copy.key, copy.facts);
                    }
                    host.release(copy.group, copy.host);
                    if guard == StoreGuard::PinnedUntilAck {
                        self.device.release(copy.group, copy.device);
                    }
                    self.pages.release(copy.key.page);
                }
            }
            Some(Transfer::Load { blocks }) => {
                let host = self.host.as_mut().expect("a load needs a Host tier");
                for copy in blocks {
                    host.release(copy.group, copy.host);
                    self.device.release(copy.group, copy.device);
                    self.pages.release(copy.key.page);
                }
            }
        }
    }
}

/// A Host block for a store: a free one, else the least valuable of the group, else one of a whole
/// unpinned parent taken from another group, the one whose most valuable block is least.
fn acquire_or_replace(
    host: &mut Tier,
    pages: &mut PrefixPages,
    group: GroupIndex,
    groups: usize,
) -> Option<BlockId> {
    if let Some(block) = host.acquire(group) {
        return Some(block);
    }
    let least = host.in_order(group).next();
    if let Some((_, block)) = least {
        host.evict(pages, group, block);
        return host.acquire(group);
    }
    let (other, parent) = least_valuable_parent(host, group, groups)?;
    let blocks: Vec<BlockId> = host.pool.used_blocks(other, parent).collect();
    for block in blocks {
        host.evict(pages, other, block);
    }
    host.acquire(group)
}

/// In ascending order of value, the first parent all of whose blocks have been met.
fn least_valuable_parent(
    host: &Tier,
    group: GroupIndex,
    groups: usize,
) -> Option<(GroupIndex, u32)> {
    let mut queues: Vec<_> = (0..groups)
        .map(|other| host.in_order(other).filter(move |_| other != group).peekable())
        .collect();
    let mut met = rustc_hash::FxHashMap::default();
    loop {
        let least = queues.iter_mut().enumerate().filter_map(|(g, q)| Some((*q.peek()?, g)));
        let (_, other) = least.min()?;
        let (_, block) = queues[other].next()?;
        let occupancy = host.pool.occupancy(other, block);
        let seen = met.entry((other, occupancy.parent)).or_insert(0);
        *seen += 1;
        if *seen == occupancy.used {
            return Some((other, occupancy.parent));
        }
    }
}
