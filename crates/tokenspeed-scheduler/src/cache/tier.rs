//! One tier, Device or Host: its pool, and the index of what it caches (`cache.md` §4 and §7).
//!
//! A block is owned by reference: request tables are counted as `holders`, transfers in flight as
//! `pins`, and the prefix index owns it while `key` is set. It goes back to the pool with its last owner. Blocks
//! that only the index owns stand in `order`, the order in which they are given up.

use std::collections::BTreeSet;

use super::geometry::{BlockId, Geometry, GroupIndex, HOLE};
use super::pool::Pool;
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

/// Place of a cached, unpinned block in the order of its tier; the least goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Device: whether a key names it. Host: whether an admission has acquired it.
    worth: u8,
    epoch: u64,
    /// Device, within an epoch: probationary, established boundary, closed prefix.
    class: u8,
    by_slot: u32,
    group: u16,
    block: BlockId,
}

/// A pool and the index over it.
#[derive(Debug)]
pub struct Tier {
    kind: TierKind,
    /// Placement and the capacity counters.
    pub pool: Pool,
    groups: Vec<GroupIndexed>,
}

#[derive(Debug)]
struct GroupIndexed {
    prefix_closed: bool,
    blocks_per_page: usize,
    /// By block id.
    blocks: Vec<Block>,
    /// By page and ordinal: the canonical block, or `HOLE`.
    canonical: Vec<BlockId>,
    /// Cached blocks that nothing else owns.
    order: BTreeSet<Rank>,
    /// Cached blocks, pinned ones included.
    cached: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Block {
    /// Tables that hold the block.
    holders: u32,
    /// Copies in flight that read or write it.
    pins: u32,
    key: Option<BlockKey>,
    facts: EntryFacts,
}

impl Tier {
    /// An empty tier of `usable_parents`.
    pub fn new(kind: TierKind, usable_parents: usize, geometries: &[Geometry]) -> Tier {
        let per_parent: Vec<u32> = geometries.iter().map(|g| g.blocks_per_parent).collect();
        Tier {
            kind,
            pool: Pool::new(usable_parents, &per_parent),
            groups: geometries
                .iter()
                .map(|geometry| GroupIndexed {
                    prefix_closed: geometry.is_prefix_closed(),
                    blocks_per_page: geometry.blocks_per_page,
                    blocks: vec![
                        Block::default();
                        usable_parents * geometry.blocks_per_parent as usize + 1
                    ],
                    canonical: Vec::new(),
                    order: BTreeSet::new(),
                    cached: 0,
                })
                .collect(),
        }
    }

    /// A fresh block with one holder, if the pool has a slot for the group.
    pub fn acquire(&mut self, group: GroupIndex) -> Option<BlockId> {
        let block = self.pool.acquire(group)?;
        self.groups[group].blocks[block as usize].holders = 1;
        self.pool.hold(group, block);
        Some(block)
    }

    /// One more table holds the block.
    pub fn retain(&mut self, group: GroupIndex, block: BlockId) {
        self.owned_again(group, block);
        let state = &mut self.groups[group].blocks[block as usize];
        state.holders += 1;
        if state.holders == 1 {
            self.pool.hold(group, block);
        }
    }

    /// One table less; the block stays while it is cached.
    pub fn release(&mut self, group: GroupIndex, block: BlockId) {
        let state = &mut self.groups[group].blocks[block as usize];
        state.holders -= 1;
        if state.holders == 0 {
            self.pool.let_go(group, block);
        }
        self.owned_no_more(group, block);
    }

    /// A copy in flight reads or writes the block.
    pub fn pin(&mut self, group: GroupIndex, block: BlockId) {
        self.owned_again(group, block);
        self.groups[group].blocks[block as usize].pins += 1;
    }

    /// That copy has ended.
    pub fn unpin(&mut self, group: GroupIndex, block: BlockId) {
        self.groups[group].blocks[block as usize].pins -= 1;
        self.owned_no_more(group, block);
    }

    /// Before an owner comes: a block that only the index owned leaves the eviction order.
    fn owned_again(&mut self, group: GroupIndex, block: BlockId) {
        if self.owners(group, block) == 0 {
            let rank = self.rank(group, block);
            self.groups[group].order.remove(&rank);
            self.pool.pin(group, block);
        }
    }

    /// After an owner went: the block is the index's alone, or free.
    fn owned_no_more(&mut self, group: GroupIndex, block: BlockId) {
        if self.owners(group, block) > 0 {
            return;
        }
        self.pool.unpin(group, block);
        if self.key(group, block).is_some() {
            let rank = self.rank(group, block);
            self.groups[group].order.insert(rank);
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
            indexed.canonical.resize(pages.capacity() * indexed.blocks_per_page, HOLE);
        }
        debug_assert_eq!(indexed.canonical[at], HOLE, "a key has one canonical block");
        indexed.canonical[at] = block;
        indexed.cached += 1;
        let state = &mut indexed.blocks[block as usize];
        debug_assert!(state.holders + state.pins > 0 && state.key.is_none());
        state.key = Some(key);
        state.facts = facts;
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
        debug_assert!(
            state.holders + state.pins > 0 && state.key.is_some(),
            "an unpinned block has a rank"
        );
        change(&mut state.facts);
    }

    /// Takes a block out of the index; it goes back to the pool if nothing else owns it.
    pub fn evict(
        &mut self,
        pages: &mut PrefixPages,
        group: GroupIndex,
        block: BlockId,
    ) -> BlockKey {
        let unowned = self.owners(group, block) == 0;
        if unowned {
            let rank = self.rank(group, block);
            self.groups[group].order.remove(&rank);
        }
        let indexed = &mut self.groups[group];
        let state = &mut indexed.blocks[block as usize];
        let key = state.key.take().expect("only a cached block is evicted");
        state.facts = EntryFacts::default();
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
        self.groups[group].blocks[block as usize].key
    }

    /// What is remembered of a cached block.
    pub fn facts(&self, group: GroupIndex, block: BlockId) -> EntryFacts {
        self.groups[group].blocks[block as usize].facts
    }

    /// Tables and transfers that hold a block.
    pub fn owners(&self, group: GroupIndex, block: BlockId) -> u32 {
        let state = &self.groups[group].blocks[block as usize];
        state.holders + state.pins
    }

    /// The group's cached blocks that nothing else owns, first to go first.
    pub fn in_order(&self, group: GroupIndex) -> impl Iterator<Item = (Rank, BlockId)> + '_ {
        self.groups[group].order.iter().map(|rank| (*rank, rank.block))
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
        let state = &indexed.blocks[block as usize];
        let facts = state.facts;
        let (worth, epoch, class, by_slot) = match self.kind {
            TierKind::Host => (u8::from(facts.acquired), facts.epoch, 0, 0),
            TierKind::Device if state.key.is_none() => (0, 0, 0, 0),
            TierKind::Device if indexed.prefix_closed => (1, facts.epoch, 2, u32::MAX - facts.slot),
            // Probationary: a boundary that no prompt has ended at and no admission has used.
            TierKind::Device if facts.kind == BoundaryKind::Chunk && !facts.acquired => {
                (1, facts.epoch, 0, facts.slot)
            }
            TierKind::Device => (1, facts.epoch, 1, 0),
        };
        // Block ids of a group rise with the parent, then with the slot: ties end there.
        Rank { worth, epoch, class, by_slot, group: group as u16, block }
    }
}
