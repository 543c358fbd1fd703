//! The Host tier at work: stores, loads, and their acknowledgements (`cache.md` §8).

use rustc_hash::{FxHashMap, FxHashSet};

use super::admission::FirstAdmission;
use super::coordinator::Coordinator;
use super::fetch::Load;
use super::geometry::{BlockId, GroupIndex, HOLE};
use super::holdings::Progress;
use super::tier::{BlockKey, EntryFacts, Tier};
use super::transfer::{BlockCopy, CopyOp, OpId, StoreGuard, Transfer};
use super::unproven::Basis;
use crate::config::GroupKind;
use crate::identity::PageId;

impl Coordinator {
    /// Queues the store of a block that a live request has published, on roles that stream.
    pub(super) fn stream(&mut self, group: GroupIndex, page: PageId, ordinal: usize) {
        if self.streams {
            self.queue_store(group, page, ordinal);
        }
    }

    /// Queues the store of a published block for the plan in the making.
    pub(super) fn queue_store(&mut self, group: GroupIndex, page: PageId, ordinal: usize) {
        if self.host.is_some() {
            self.pages.retain(page);
            self.transfers.pending.push((group, BlockKey { page, ordinal: ordinal as u16 }));
        }
    }

    /// Queues whatever of the request is Device-cached, in its tables or slid out of them, and behind
    /// that for each state group its latest snapshot within the prompt.
    pub(super) fn queue_cached(&mut self, progress: Progress<'_>) {
        if self.host.is_none() {
            return;
        }
        let groups = 0..self.geometries.len();
        let (states, histories): (Vec<GroupIndex>, Vec<GroupIndex>) =
            groups.partition(|&group| self.geometries[group].kind == GroupKind::State);
        for group in histories {
            let ordinals = 0..self.geometries[group].blocks_per_page;
            for &page in progress.pages {
                for ordinal in ordinals.clone() {
                    if self.device.lookup(group, page, ordinal) != HOLE {
                        self.queue_store(group, page, ordinal);
                    }
                }
            }
        }
        let within = (progress.prompt_tokens / self.granularity) as usize;
        let prompt = &progress.pages[..within.min(progress.pages.len())];
        for group in states {
            let last = self.geometries[group].blocks_per_page - 1;
            let is_cached = |page: &&PageId| self.device.lookup(group, **page, last) != HOLE;
            if let Some(&page) = prompt.iter().rev().find(is_cached) {
                self.queue_store(group, page, last);
            }
        }
    }

    /// Orders the copies of all queued blocks as one operation, under one guard. Skipped: a key
    /// already Host-cached, one in flight, a repeat, one no longer on the Device, or one for which
    /// no Host block is to be had.
    pub fn start_pending_stores(&mut self, guard: StoreGuard) {
        let pending = std::mem::take(&mut self.transfers.pending);
        // What is to be stored is settled before the first Host block is given up for it.
        let mut wanted = FxHashSet::default();
        let missing: Vec<(GroupIndex, BlockKey)> = pending
            .iter()
            .copied()
            .filter(|&(group, key)| self.is_to_be_stored(group, key) && wanted.insert((group, key)))
            .collect();
        let mut blocks = Vec::with_capacity(missing.len());
        for ((group, key), host) in missing.iter().copied().zip(self.host_blocks_for(&missing)) {
            let Some(host) = host else { continue };
            let device = self.device.lookup(group, key.page, usize::from(key.ordinal));
            if guard == StoreGuard::PinnedUntilAck {
                self.device.pin(group, device);
            }
            self.pages.retain(key.page);
            let facts = EntryFacts { acquired: false, ..self.device.facts(group, device) };
            blocks.push(BlockCopy::new(group, device, host, key, facts));
        }
        pending.iter().for_each(|&(_, key)| self.pages.release(key.page));
        if !blocks.is_empty() {
            let op_id = self.transfers.start(Transfer::Store { guard, blocks });
            self.transfers.ordered_stores.push(op_id);
        }
    }

    fn is_to_be_stored(&self, group: GroupIndex, key: BlockKey) -> bool {
        let ordinal = usize::from(key.ordinal);
        let on_host = self.host.as_ref().is_none_or(|h| h.lookup(group, key.page, ordinal) != HOLE);
        self.device.lookup(group, key.page, ordinal) != HOLE
            && !on_host
            && !self.transfers.is_storing(group, key)
    }

    /// A Host block for each of these: free ones as far as they go; then the least valuable cached
    /// blocks of the same group; then whole unpinned parents of other groups, the one whose most
    /// valuable block is least first.
    pub(super) fn host_blocks_for(
        &mut self,
        missing: &[(GroupIndex, BlockKey)],
    ) -> Vec<Option<BlockId>> {
        let Some(host) = self.host.as_mut() else {
            return Vec::new();
        };
        host.settle_order();
        let groups = self.geometries.len();
        let mut found: Vec<Option<BlockId>> =
            missing.iter().map(|&(group, _)| host.acquire(group)).collect();
        for group in 0..groups {
            let wanting = |at: &usize| missing[*at].0 == group;
            let open: Vec<usize> =
                (0..found.len()).filter(|&at| found[at].is_none()).filter(wanting).collect();
            let given: Vec<BlockId> =
                host.in_order(group).map(|(_, block)| block).take(open.len()).collect();
            for &block in &given {
                host.evict(&mut self.pages, group, block);
            }
            for at in open.into_iter().take(given.len()) {
                found[at] = host.acquire(group);
            }
        }
        for (at, &(group, _)) in missing.iter().enumerate() {
            if found[at].is_some() {
                continue;
            }
            // A parent taken for one block may have room for the next.
            found[at] = host.acquire(group);
            if found[at].is_none() {
                host.settle_order(); // the runs before may be given up by now
            }
            if found[at].is_none()
                && let Some((other, parent)) = least_valuable_parent(host, group, groups)
            {
                let blocks: Vec<BlockId> = host.pool.used_blocks(other, parent).collect();
                for block in blocks {
                    host.evict(&mut self.pages, other, block);
                }
                found[at] = host.acquire(group);
            }
        }
        found
    }

    /// Starts the load of one Host-hit slot into a fresh Device block, indexed at once: the load is
    /// ordered before the forward that reads it. What has to be fetched first goes into one of the
    /// `fetches`, and nothing is indexed yet.
    pub(super) fn load_slot(
        &mut self,
        group: GroupIndex,
        slot: usize,
        first: FirstAdmission<'_>,
        epoch: u64,
        load: &mut Load,
    ) -> BlockId {
        let per_page = self.geometries[group].blocks_per_page;
        let chain = &first.pages[..=slot / per_page];
        let key = BlockKey::of(chain, slot, per_page);
        let (page, ordinal) = (key.page, usize::from(key.ordinal));
        let tier = self.host.as_mut().expect("a Host hit needs a Host tier");
        let host = tier.lookup(group, page, ordinal);
        if host == HOLE {
            return self.fetch_slot(group, slot, key, epoch, load);
        }
        tier.pin(group, host);
        tier.acquired_by(group, host, epoch);
        let facts = EntryFacts {
            slot: slot as u32,
            acquired: false,
            kind: Default::default(),
            ..tier.facts(group, host)
        };
        let device = self.device.acquire(group).expect("admission has made room");
        self.device.pin(group, device);
        self.pages.retain(page);
        load.blocks.push(BlockCopy::new(group, device, host, key, facts));
        let canonical = self.device.lookup(group, page, ordinal);
        if canonical == HOLE {
            self.cache_on_device(group, device, key, facts, (chain, first.tokens));
            return device;
        }
        // Another group lacked the page, this one did not: the block that is there takes the slot
        // (`cache.md` §4), and the copy ends with its transfer.
        self.device.retain(group, canonical);
        self.device.touch(group, canonical, |facts| facts.epoch = epoch);
        self.device.release(group, device);
        canonical
    }

    /// Orders the loads that an admission has collected as one operation, if there are any.
    pub(super) fn finish_load(&mut self, load: Load, first: FirstAdmission<'_>) -> Option<Basis> {
        let blocks = load.blocks;
        if blocks.is_empty() {
            return None;
        }
        let fetches = blocks.iter().any(|copy| copy.fetched);
        let pages = if fetches { first.hit.total_pages } else { 0 };
        let chain = first.pages[..pages].to_vec();
        chain.iter().for_each(|&page| self.pages.retain(page));
        let tokens = first.tokens[..self.tokens_of(pages) as usize].to_vec();
        let op_id = self.transfers.start(Transfer::Load { blocks: blocks.clone(), chain, tokens });
        let named = |copy: &&BlockCopy| self.device.key(copy.group, copy.device) == Some(copy.key);
        let named: Vec<_> =
            blocks.iter().filter(named).map(|copy| (copy.group, copy.key)).collect();
        let basis = self.expect_load(op_id, named);
        let order = &mut self.transfers.load_back;
        order.start(op_id);
        let prefetch = blocks.iter().map(|copy| i32::from(copy.fetched)).collect();
        order.prefetch_from_storage.push(prefetch);
        for copy in &blocks {
            let hash = *self.pages.hash(copy.key.page);
            order.add(copy.group, copy.host, copy.device, hash, copy.key.ordinal);
        }
        Some(basis)
    }

    /// The copies ordered since the last call: the plan's write-back and load-back.
    pub fn take_copies(&mut self) -> (CopyOp, CopyOp) {
        let mut write_back = CopyOp::default();
        for op_id in std::mem::take(&mut self.transfers.ordered_stores) {
            let Some(Transfer::Store { guard, blocks }) = self.transfers.get(op_id) else {
                continue; // withdrawn
            };
            write_back.start(op_id);
            write_back.source_pinned.push(*guard == StoreGuard::PinnedUntilAck);
            for copy in blocks {
                let hash = *self.pages.hash(copy.key.page);
                write_back.add(copy.group, copy.device, copy.host, hash, copy.key.ordinal);
            }
        }
        (write_back, std::mem::take(&mut self.transfers.load_back))
    }

    /// What copies on their way bring of these blocks is not to be named. What no plan has carried yet is
    /// not stored at all: an engine might back it up, and nothing is owed for it.
    pub(super) fn disown_where(&mut self, void: impl Fn(&BlockCopy) -> bool) {
        self.transfers.disown_where(void);
        for op_id in self.transfers.ordered_stores.clone() {
            let Some(Transfer::Store { guard, blocks }) = self.transfers.complete(op_id) else {
                continue;
            };
            let (disowned, blocks): (Vec<_>, Vec<_>) =
                blocks.into_iter().partition(|copy| copy.disowned);
            disowned.into_iter().for_each(|copy| self.complete_store(guard, copy));
            if !blocks.is_empty() {
                self.transfers.insert(op_id, Transfer::Store { guard, blocks });
            }
        }
    }

    /// A copy has ended: a store publishes its Host entries, a fetch both ends of its own, and every pin
    /// is dropped. A number that is not in flight is ignored: acknowledgements may come late.
    ///
    /// What was named over a load that failed is in no index any more; who rests on it has read what was
    /// not there.
    pub fn complete_transfer(&mut self, op_id: OpId, success: bool) {
        match self.transfers.complete(op_id) {
            None => {}
            Some(Transfer::Store { guard, blocks }) => {
                blocks.into_iter().for_each(|copy| self.complete_store(guard, copy));
            }
            Some(Transfer::Load { blocks, chain, tokens }) => {
                match success {
                    true => self.prove(Basis::Load(op_id)),
                    false => self.disprove(Basis::Load(op_id)),
                }
                for copy in blocks {
                    if success && copy.fetched && !copy.disowned {
                        self.index_fetched(copy, &chain, &tokens);
                    }
                    let host = self.host.as_mut().expect("a load needs a Host tier");
                    match copy.fetched {
                        true => host.release(copy.group, copy.host),
                        false => host.unpin(copy.group, copy.host),
                    }
                    self.device.unpin(copy.group, copy.device);
                    self.pages.release(copy.key.page);
                }
                self.forget_pages(&chain);
            }
        }
    }

    fn complete_store(&mut self, guard: StoreGuard, copy: BlockCopy) {
        if !copy.disowned {
            self.index_on_host(copy);
        }
        let host = self.host.as_mut().expect("a store needs a Host tier");
        host.release(copy.group, copy.host);
        if guard == StoreGuard::PinnedUntilAck {
            self.device.unpin(copy.group, copy.device);
        }
        self.pages.release(copy.key.page);
    }

    /// To enter the Host's index is an access: the last to arrive is the last to go.
    pub(super) fn index_on_host(&mut self, copy: BlockCopy) {
        let epoch = self.next_epoch();
        let host = self.host.as_mut().expect("a copy needs a Host tier");
        let ordinal = usize::from(copy.key.ordinal);
        if host.lookup(copy.group, copy.key.page, ordinal) == HOLE {
            let facts = EntryFacts { epoch, ..copy.facts };
            host.publish(&mut self.pages, copy.group, copy.host, copy.key, facts);
            self.newly_cached.push(copy.key.page);
        }
    }
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
    let mut met = FxHashMap::default();
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
