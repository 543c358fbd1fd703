//! One tier, Device or Host: its pool, and the index of what it caches (`cache.md` §4 and §7).
//!
//! A block is owned by reference: request tables are counted as `holders`, transfers in flight as
//! `pins`, and the prefix index owns it while `key` is set. It goes back to the pool with its last owner. Blocks
//! that only the index owns stand in `order`, the order in which they are given up.

use super::block::Block;
use super::geometry::{BlockId, Geometry, GroupIndex, HOLE};
pub use super::order::Rank;
use super::order::{EvictionOrder, Ranking};
use super::pool::Pool;
use crate::growth::grow_to;
use crate::identity::{PageId, PrefixPages};

/// What a boundary's blocks were published as; only ever raised (`cache.md` §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum BoundaryKind {
    /// The end of some chunk.
    #[default]
    Chunk,
    /// The end of a prompt.
    Endpoint,
    /// The promotion boundary that a probe found.
    Promoted,
}

/// Names a block's content: the prefix page and the block's ordinal in it (the group is the index's).
/// Without an order: which number stands for a page is nothing that a plan may depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockKey {
    /// The prefix page.
    pub page: PageId,
    /// From 0 to P/g - 1.
    pub ordinal: u16,
}

impl BlockKey {
    /// The key of a slot of a request with these pages, of which each has so many blocks.
    pub fn of(pages: &[PageId], slot: usize, blocks_per_page: usize) -> BlockKey {
        let ordinal = (slot % blocks_per_page) as u16;
        BlockKey { page: pages[slot / blocks_per_page], ordinal }
    }
}

/// What the index remembers of a cached block.
#[derive(Debug, Clone, Copy, Default)]
pub struct EntryFacts {
    /// Epoch of the last access.
    pub epoch: u64,
    /// Logical slot in the table that published it.
    pub slot: u32,
    /// What it was published as.
    pub kind: BoundaryKind,
    /// Whether an admission has ever acquired it.
    pub acquired: bool,
}

/// Which tier, and with it the order in which cached blocks are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierKind {
    /// Device memory: the order of `cache.md` §7.
    Device,
    /// Host memory: never acquired before acquired, then oldest epoch, then place (`cache.md` §8).
    Host,
}

/// A pool and the index over it.
#[derive(Debug)]
pub struct Tier {
    /// Placement and the capacity counters.
    pub pool: Pool,
    groups: Vec<GroupIndexed>,
}

#[derive(Debug)]
struct GroupIndexed {
    ranking: Ranking,
    blocks_per_page: usize,
    /// By block id.
    blocks: Vec<Block>,
    /// By page and ordinal: the canonical block, or `HOLE`.
    canonical: Vec<BlockId>,
    /// Cached blocks that nothing else owns.
    order: EvictionOrder,
    /// Cached blocks, pinned ones included.
    cached: usize,
}

impl Tier {
    /// An empty tier of `usable_parents`.
    pub fn new(kind: TierKind, usable_parents: usize, geometries: &[Geometry]) -> Tier {
        let per_parent: Vec<u32> = geometries.iter().map(|g| g.blocks_per_parent).collect();
        Tier {
            pool: Pool::new(usable_parents, &per_parent),
            groups: geometries
                .iter()
                .enumerate()
                .map(|(group, geometry)| GroupIndexed {
                    ranking: Ranking { kind, group, prefix_closed: geometry.is_prefix_closed() },
                    blocks_per_page: geometry.blocks_per_page,
                    blocks: vec![
                        Block::default();
                        usable_parents * geometry.blocks_per_parent as usize + 1
                    ],
                    canonical: Vec::new(),
                    order: EvictionOrder::default(),
                    cached: 0,
                })
                .collect(),
        }
    }

    /// A fresh block with one holder, if the pool has a slot for the group.
    pub fn acquire(&mut self, group: GroupIndex) -> Option<BlockId> {
        let block = self.pool.acquire(group)?;
        *self.groups[group].blocks[block as usize].holders_mut() = 1;
        self.pool.hold(group, block);
        Some(block)
    }

    /// One more table holds the block.
    pub fn retain(&mut self, group: GroupIndex, block: BlockId) {
        self.owned_again(group, block);
        let holders = self.groups[group].blocks[block as usize].holders_mut();
        *holders += 1;
        if *holders == 1 {
            self.pool.hold(group, block);
        }
    }

    /// One table less; the block stays while it is cached.
    pub fn release(&mut self, group: GroupIndex, block: BlockId) {
        let holders = self.groups[group].blocks[block as usize].holders_mut();
        *holders -= 1;
        if *holders == 0 {
            self.pool.let_go(group, block);
        }
        self.owned_no_more(group, block);
    }

    /// A copy in flight reads or writes the block.
    pub fn pin(&mut self, group: GroupIndex, block: BlockId) {
        self.owned_again(group, block);
        *self.groups[group].blocks[block as usize].pins_mut() += 1;
    }

    /// That copy has ended.
    pub fn unpin(&mut self, group: GroupIndex, block: BlockId) {
        *self.groups[group].blocks[block as usize].pins_mut() -= 1;
        self.owned_no_more(group, block);
    }

    /// Before an owner comes: a block that only the index owned leaves the eviction order.
    fn owned_again(&mut self, group: GroupIndex, block: BlockId) {
        if self.owners(group, block) == 0 {
            let GroupIndexed { ranking, blocks, order, .. } = &mut self.groups[group];
            order.remove(*ranking, blocks, block);
            self.pool.pin(group, block);
        }
    }

    /// After an owner went: the block is the index's alone, or free.
    fn owned_no_more(&mut self, group: GroupIndex, block: BlockId) {
        let GroupIndexed { ranking, blocks, order, .. } = &mut self.groups[group];
        let state = &blocks[block as usize];
        if state.owners() > 0 {
            return;
        }
        self.pool.unpin(group, block);
        if state.is_cached() {
            order.insert(*ranking, blocks, block);
        } else {
            self.pool.release(group, block);
        }
    }

    /// The canonical block of a key, or `HOLE`.
    pub fn lookup(&self, group: GroupIndex, page: PageId, ordinal: usize) -> BlockId {
        let indexed = &self.groups[group];
        let at = page.index() * indexed.blocks_per_page + ordinal;
        indexed.canonical.get(at).copied().unwrap_or(HOLE)
    }

    /// Whether every block of the group in that page is cached.
    pub fn has_page(&self, group: GroupIndex, page: PageId) -> bool {
        let indexed = &self.groups[group];
        let first = page.index() * indexed.blocks_per_page;
        match indexed.canonical.get(first..first + indexed.blocks_per_page) {
            Some(blocks) => blocks.iter().all(|&block| block != HOLE),
            None => false,
        }
    }

    /// Makes an owned block the canonical one of a key that has none.
    pub fn publish(
        &mut self,
        pages: &mut PrefixPages,
        group: GroupIndex,
        block: BlockId,
        key: BlockKey,
        facts: EntryFacts,
    ) {
        let indexed = &mut self.groups[group];
        let at = key.page.index() * indexed.blocks_per_page + key.ordinal as usize;
        if indexed.canonical.len() <= at {
            let len = pages.capacity() * indexed.blocks_per_page;
            grow_to(&mut indexed.canonical, len, HOLE);
        }
        debug_assert_eq!(indexed.canonical[at], HOLE, "a key has one canonical block");
        indexed.canonical[at] = block;
        indexed.cached += 1;
        let state = &mut indexed.blocks[block as usize];
        debug_assert!(state.owners() > 0 && !state.is_cached());
        state.publish(key.page, facts);
        debug_assert_eq!(
            state.key(indexed.blocks_per_page),
            Some(key),
            "its slot says the ordinal"
        );
        pages.retain(key.page);
    }

    /// An admission of that epoch acquires a cached block, which it owns already.
    pub fn acquired_by(&mut self, group: GroupIndex, block: BlockId, epoch: u64) {
        self.touch(group, block, |facts| {
            facts.epoch = epoch;
            facts.acquired = true;
        });
    }

    /// Changes what is remembered of a cached block that something else owns too.
    pub fn touch(
        &mut self,
        group: GroupIndex,
        block: BlockId,
        change: impl FnOnce(&mut EntryFacts),
    ) {
        let state = &mut self.groups[group].blocks[block as usize];
        debug_assert!(state.owners() > 0 && state.is_cached(), "an unpinned block has a rank");
        let mut facts = state.facts();
        change(&mut facts);
        state.set_facts(facts);
    }

    /// Takes a block out of the index; it goes back to the pool if nothing else owns it.
    pub fn evict(
        &mut self,
        pages: &mut PrefixPages,
        group: GroupIndex,
        block: BlockId,
    ) -> BlockKey {
        let indexed = &mut self.groups[group];
        let unowned = indexed.blocks[block as usize].is_idle();
        if unowned {
            indexed.order.remove(indexed.ranking, &mut indexed.blocks, block);
        }
        let state = &mut indexed.blocks[block as usize];
        let key = state.key(indexed.blocks_per_page).expect("only a cached block is evicted");
        state.unpublish();
        indexed.canonical[key.page.index() * indexed.blocks_per_page + key.ordinal as usize] = HOLE;
        indexed.cached -= 1;
        if unowned {
            self.pool.release(group, block);
        }
        pages.release(key.page);
        key
    }

    /// The key of a cached block.
    pub fn key(&self, group: GroupIndex, block: BlockId) -> Option<BlockKey> {
        let indexed = &self.groups[group];
        indexed.blocks[block as usize].key(indexed.blocks_per_page)
    }

    /// What is remembered of a cached block.
    pub fn facts(&self, group: GroupIndex, block: BlockId) -> EntryFacts {
        self.groups[group].blocks[block as usize].facts()
    }

    /// Tables and transfers that hold a block.
    pub fn owners(&self, group: GroupIndex, block: BlockId) -> u32 {
        self.groups[group].blocks[block as usize].owners()
    }

    /// Before blocks are given up: what [`Tier::in_order`] begins with is made cheap to walk.
    pub fn settle_order(&mut self) {
        for GroupIndexed { ranking, blocks, order, .. } in &mut self.groups {
            order.settle(*ranking, blocks);
        }
    }

    /// The group's cached blocks that nothing else owns, first to go first.
    pub fn in_order(&self, group: GroupIndex) -> impl Iterator<Item = (Rank, BlockId)> + '_ {
        let indexed = &self.groups[group];
        indexed.order.iter(indexed.ranking, &indexed.blocks)
    }

    /// How many of the group's blocks are cached, pinned ones included.
    pub fn cached_blocks(&self, group: GroupIndex) -> usize {
        self.groups[group].cached
    }

    /// How many of the group's blocks are cached and owned by nothing else.
    pub fn evictable_blocks(&self, group: GroupIndex) -> usize {
        self.groups[group].order.len()
    }

    /// Every block of the group, the free ones too.
    pub fn block_ids(&self, group: GroupIndex) -> std::ops::Range<BlockId> {
        1..self.groups[group].blocks.len() as BlockId
    }

    /// The block's place in the order of its tier.
    pub fn rank(&self, group: GroupIndex, block: BlockId) -> Rank {
        let indexed = &self.groups[group];
        indexed.ranking.rank(&indexed.blocks[block as usize], block)
    }
}
