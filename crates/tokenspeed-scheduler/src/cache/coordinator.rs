//! The coordinator: all groups over both tiers, and the one place that moves blocks between requests,
//! index and pool. Admission, publication and the Host tier are written in files of their own.

use super::geometry::{BlockId, Geometry, GroupIndex};
use super::holdings::{Computed, Holdings, Progress};
use super::kv_events::{KvEvent, KvEvents};
use super::matcher::{self, Bounds, Hit};
use super::persistent::{ChangedCell, PersistentTable, PersistentTables};
use super::stored::StoredKeys;
use super::tier::{BlockKey, EntryFacts, Tier, TierKind};
use super::transfer::Transfers;
use super::unproven::Unproven;
use crate::config::SchedulerConfig;
use crate::identity::{ContentHash, PageId, PrefixPages};

/// What a parent weighs in the measure of [`Coordinator::room`].
pub(super) const PARENT_WEIGHT: u64 = 1 << 32;

/// All that is cached, and where.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) geometries: Vec<Geometry>,
    /// P, in tokens.
    pub(super) granularity: i64,
    pub(super) pages: PrefixPages,
    pub(super) device: Tier,
    /// `None` where there is no Host cache.
    pub(super) host: Option<Tier>,
    /// What must be fetched into the Host before it can be loaded.
    pub(super) stored: StoredKeys,
    pub(super) transfers: Transfers,
    pub(super) unproven: Unproven,
    pub(super) persistent: PersistentTables,
    /// Published blocks stream to the Host, and a finish stores what is cached: not on the decode role.
    pub(super) streams: bool,
    /// One a group: blocks that residents were promised.
    pub(super) promised: Vec<i64>,
    /// The last access epoch issued.
    epoch: u64,
    /// Pages that either index has learned of since they were last taken.
    pub(super) newly_cached: Vec<PageId>,
    /// `None` where nobody asked for them.
    pub(super) events: Option<KvEvents>,
}

impl Coordinator {
    /// An empty cache for a validated configuration.
    pub fn new(config: &SchedulerConfig) -> Coordinator {
        let geometries: Vec<Geometry> = config
            .cache_groups
            .iter()
            .map(|group| Geometry::new(group, config.prefix_granularity))
            .collect();
        let device_parents = config.usable_device_parents() as usize;
        let host_parents = config.usable_host_parents() as usize;
        Coordinator {
            granularity: config.prefix_granularity,
            pages: PrefixPages::default(),
            device: Tier::new(TierKind::Device, device_parents, &geometries),
            host: config
                .has_host_tier()
                .then(|| Tier::new(TierKind::Host, host_parents, &geometries)),
            stored: StoredKeys::default(),
            transfers: Transfers::default(),
            unproven: Unproven::default(),
            persistent: PersistentTables::new(geometries.len(), config.max_batch_size as usize + 1),
            streams: config.streams_to_host(),
            promised: vec![0; geometries.len()],
            epoch: 0,
            newly_cached: Vec::new(),
            events: config
                .enable_kv_cache_events
                .then(|| KvEvents::new(&geometries, config.prefix_granularity)),
            geometries,
        }
    }

    /// Geometry of each group.
    pub fn geometries(&self) -> &[Geometry] {
        &self.geometries
    }

    /// Tokens of so many prefix pages.
    pub fn tokens_of(&self, pages: usize) -> i64 {
        pages as i64 * self.granularity
    }

    pub(super) fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    // --- identity -----------------------------------------------------------------------------

    /// Names the page with this hash; give the name back with [`Coordinator::forget_pages`].
    pub fn name_page(&mut self, hash: ContentHash) -> PageId {
        self.pages.intern(hash)
    }

    /// Names the page that holds `tokens` behind `prior`, or at the start of a prompt.
    pub fn name_next_page(&mut self, prior: Option<PageId>, tokens: &[i32]) -> PageId {
        let prior = prior.map(|page| self.pages.hash(page));
        let hash = ContentHash::chain(prior, tokens);
        self.pages.intern(hash)
    }

    /// Names a page once more that is named already.
    pub fn share_page(&mut self, page: PageId) {
        self.pages.retain(page);
    }

    /// Content hash of a named page.
    pub fn hash_of(&self, page: PageId) -> &ContentHash {
        self.pages.hash(page)
    }

    /// Gives names back.
    pub fn forget_pages(&mut self, pages: &[PageId]) {
        pages.iter().for_each(|&page| self.pages.release(page));
    }

    // --- matching -----------------------------------------------------------------------------

    /// What both tiers hold of `pages`, which the caller has cut to the probe's bound. What an external
    /// store holds counts for the Host, as far as the Host can take it.
    pub fn probe(&mut self, pages: &[PageId]) -> Hit {
        match self.stored.is_empty() {
            true => self.probe_without_storage(pages),
            false => self.probe_with_storage(pages),
        }
    }

    /// What both tiers hold, with nothing to be fetched.
    pub fn probe_without_storage(&self, pages: &[PageId]) -> Hit {
        let bounds = Bounds::all_of(pages);
        matcher::probe(&self.geometries, &self.device, self.host.as_ref(), pages, bounds)
    }

    /// What the Device holds of `pages` for a prompt that a peer will compute: its recurrent states are
    /// not matched, since the peer lands their endpoint (`cache.md` §5).
    pub fn probe_landing(&self, pages: &[PageId]) -> Hit {
        matcher::probe_landing(&self.geometries, &self.device, pages)
    }

    /// A hit of nothing.
    pub fn no_hit(&self) -> Hit {
        Hit::none(self.geometries.len())
    }

    /// What the pool could hold at most for newcomers, in a measure in which a parent weighs
    /// [`PARENT_WEIGHT`] and a block its share, rounded in favour of fitting. An admission whose need
    /// ([`Coordinator::need`]) weighs more cannot fit.
    pub fn room(&self) -> u64 {
        let slack = |group: GroupIndex| {
            let k = u64::from(self.geometries[group].blocks_per_parent);
            self.device.pool.slack_slots(group) as u64 * PARENT_WEIGHT.div_ceil(k)
        };
        let parents = self.available_parents() as u64 * PARENT_WEIGHT;
        parents + (0..self.geometries.len()).map(slack).sum::<u64>()
    }

    /// What so many blocks a group weigh in that measure, rounded in favour of fitting.
    pub fn weight_of(&self, blocks: &[i64]) -> u64 {
        let weigh = |(geometry, &blocks): (&Geometry, &i64)| {
            blocks.max(0) as u64 * (PARENT_WEIGHT / u64::from(geometry.blocks_per_parent))
        };
        self.geometries.iter().zip(blocks).map(weigh).sum()
    }

    /// Pages that either index has learned of since the last call.
    pub fn take_newly_cached(&mut self) -> Vec<PageId> {
        std::mem::take(&mut self.newly_cached)
    }

    // --- what the Device's index holds ----------------------------------------------------------

    /// Makes an owned Device block the canonical one of a key of the last page of `chain`; `tokens`
    /// are the chain's, or more.
    pub(super) fn cache_on_device(
        &mut self,
        group: GroupIndex,
        block: BlockId,
        key: BlockKey,
        facts: EntryFacts,
        (chain, tokens): (&[PageId], &[i32]),
    ) {
        debug_assert_eq!(chain.last(), Some(&key.page));
        self.device.publish(&mut self.pages, group, block, key, facts);
        self.newly_cached.push(key.page);
        if let Some(events) = &mut self.events {
            events.held(&mut self.pages, chain, tokens);
        }
    }

    /// Takes a block out of the Device's index.
    pub(super) fn evict_from_device(&mut self, group: GroupIndex, block: BlockId) {
        let key = self.device.evict(&mut self.pages, group, block);
        if let Some(events) = &mut self.events {
            events.lost(&mut self.pages, key.page);
        }
    }

    /// What a prompt would find on the Device, as changes since the last call: removals leaf first,
    /// then stores parent first. Empty unless the configuration asks for events.
    pub fn drain_kv_events(&mut self) -> Vec<KvEvent> {
        let events = self.events.as_mut();
        events.map_or_else(Vec::new, |events| events.drain(&mut self.pages, &self.device))
    }

    // --- the end of a request's holdings ------------------------------------------------------

    /// Publishes what was computed and queues the store of whatever of the request is Device-cached
    /// (`cache.md` §6). The store itself is started by [`Coordinator::start_pending_stores`].
    /// `by` is the kind of departure.
    pub fn flush(&mut self, holdings: &mut Holdings, progress: Progress<'_>, by: Computed) {
        self.publish(holdings, Progress { by, ..progress });
        if self.streams || by == Computed::Retraction {
            self.queue_cached(progress);
        }
    }

    /// Lets everything go, each table from its last slot to its first (`cache.md` §2).
    pub fn release(&mut self, holdings: &mut Holdings) {
        let groups = self.geometries.len();
        let row = holdings.row;
        self.leave_forwards(holdings);
        for (group, held) in holdings.groups.iter().enumerate() {
            let mut cells = self.persistent.row(group, row);
            for (slot, block) in held.table.held().rev() {
                cells.set(slot, 0);
                self.device.release(group, block);
            }
            self.promised[group] -= held.promised_blocks;
        }
        *holdings = Holdings::none(groups);
    }

    /// Whether an admission with this frontier would make a slot a hole and give its block up; one
    /// that something else holds too can wait.
    pub fn expires(&self, holdings: &Holdings, computed_tokens: i64) -> bool {
        self.geometries.iter().zip(&holdings.groups).enumerate().any(|(group, (geometry, held))| {
            let Some(retained) = geometry.expires_below(computed_tokens) else {
                return false;
            };
            let alone = |(_, block)| self.device.owners(group, block) == 1;
            held.table.expiring(retained).any(alone)
        })
    }

    /// The request's own blocks that retention lets go and that nothing else owns.
    pub(super) fn expiring<'a>(
        &'a self,
        holdings: &'a Holdings,
        computed_tokens: i64,
    ) -> impl Iterator<Item = (GroupIndex, BlockId)> + 'a {
        let groups = self.geometries.iter().zip(&holdings.groups).enumerate();
        groups.flat_map(move |(group, (geometry, held))| {
            let retained = geometry.first_retained_slot(computed_tokens);
            let expiring = held.table.expiring(retained).map(move |(_, block)| (group, block));
            expiring.filter(|&(group, block)| self.device.owners(group, block) == 1)
        })
    }

    /// Parents that a request's blocks alone occupy, cached ones or not: what its retraction is sure to
    /// make available (`scheduler.md` §2, victim choice).
    pub fn releasable_parents(&self, holdings: &Holdings) -> usize {
        let mut parents = 0;
        for (group, held) in holdings.groups.iter().enumerate() {
            let alone = held
                .table
                .held()
                .filter(|&(_, block)| self.device.owners(group, block) == 1)
                .map(|(_, block)| self.device.pool.occupancy(group, block));
            if self.geometries[group].blocks_per_parent == 1 {
                parents += alone.count();
                continue;
            }
            let mut own: Vec<(u32, u32)> = alone.map(|o| (o.parent, o.used)).collect();
            own.sort_unstable();
            parents +=
                own.chunk_by(|a, b| a.0 == b.0).filter(|c| c.len() == c[0].1 as usize).count();
        }
        parents
    }

    // --- clearing -----------------------------------------------------------------------------

    /// Whether no cached Device block is owned by anything else, and none will be cached by a load.
    pub fn can_clear(&self) -> bool {
        self.is_unpinned(&self.device) && self.transfers.loads_in_flight() == 0
    }

    /// Empties the Device's index; `false`, and nothing changed, where a cached block is owned.
    pub fn clear_device(&mut self) -> bool {
        let clear = self.can_clear();
        if clear {
            self.empty_device_index();
        }
        clear
    }

    /// Empties both indices, or neither.
    pub fn clear_all(&mut self) -> bool {
        let clear =
            self.can_clear() && self.host.as_ref().is_none_or(|host| self.is_unpinned(host));
        if clear {
            self.empty_device_index();
            self.disown_where(|_| true);
            if let Some(host) = &mut self.host {
                for group in 0..self.geometries.len() {
                    for block in evictable_by_id(host, group) {
                        host.evict(&mut self.pages, group, block);
                    }
                }
            }
        }
        clear
    }

    fn is_unpinned(&self, tier: &Tier) -> bool {
        (0..self.geometries.len()).all(|g| tier.cached_blocks(g) == tier.evictable_blocks(g))
    }

    fn empty_device_index(&mut self) {
        for group in 0..self.geometries.len() {
            for block in evictable_by_id(&self.device, group) {
                self.evict_from_device(group, block);
            }
        }
    }

    // --- gauges and tables --------------------------------------------------------------------

    /// Parents that are empty or hold only what could be evicted.
    pub fn available_parents(&self) -> usize {
        self.device.pool.empty_parents() + self.device.pool.unpinned_parents()
    }

    /// Parents in which a request holds a block.
    pub fn held_parents(&self) -> usize {
        self.device.pool.held_parents()
    }

    /// Parents without a used slot.
    pub fn empty_parents(&self) -> usize {
        self.device.pool.empty_parents()
    }

    /// Blocks that a group could take without evicting anything.
    pub fn free_blocks(&self, group: GroupIndex) -> usize {
        let k = self.geometries[group].blocks_per_parent as usize;
        self.device.pool.free_slots(group) + self.device.pool.empty_parents() * k
    }

    /// The Device tier, to look at.
    pub fn device(&self) -> &Tier {
        &self.device
    }

    /// The Host tier, to look at.
    pub fn host(&self) -> Option<&Tier> {
        self.host.as_ref()
    }

    /// Copies in flight, to look at.
    pub fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// What rests on bytes that are still to come, to look at.
    pub fn unproven(&self) -> &Unproven {
        &self.unproven
    }

    /// A group's persistent table.
    pub fn persistent_table(&self, group: GroupIndex) -> &PersistentTable {
        self.persistent.group(group)
    }

    /// Moves the cells changed since the last call into `changed`, one list a group.
    pub fn drain_changed_cells(&mut self, changed: &mut Vec<Vec<ChangedCell>>) {
        self.persistent.drain_changes(changed);
    }
}

/// The group's cached blocks that nothing else owns, in the order of their ids.
fn evictable_by_id(tier: &Tier, group: GroupIndex) -> Vec<BlockId> {
    let mut blocks: Vec<BlockId> = tier.in_order(group).map(|(_, block)| block).collect();
    blocks.sort_unstable();
    blocks
}
