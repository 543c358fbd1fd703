//! What a tier remembers of one block, packed: there may be millions of them.

use super::geometry::{BlockId, HOLE};
use super::tier::{BlockKey, BoundaryKind, EntryFacts};
use crate::identity::PageId;

/// One block, free, owned or cached.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Block {
    /// `EntryFacts` but for the slot, and [`Block::IDLE`]: epoch, kind, acquired, idle, from the top.
    stamp: u64,
    page: Option<PageId>,
    /// Logical slot in the table that published it.
    slot: u32,
    /// Owned: tables that hold the block, and copies in flight that read or write it. Idle, when there are
    /// none: its neighbours in the eviction order, `HOLE` at an end.
    counts_or_neighbours: [u32; 2],
}

const _: () = assert!(size_of::<Block>() == 24);

impl Block {
    /// Cached, and owned by nothing else: it stands in the eviction order.
    const IDLE: u64 = 1;
    const ACQUIRED: u64 = 2;
    const KIND_SHIFT: u32 = 2;
    const EPOCH_SHIFT: u32 = 4;

    pub fn owners(&self) -> u32 {
        if self.is_idle() { 0 } else { self.counts_or_neighbours.iter().sum() }
    }

    /// Tables that hold a block which is not idle.
    pub fn holders_mut(&mut self) -> &mut u32 {
        debug_assert!(!self.is_idle());
        &mut self.counts_or_neighbours[0]
    }

    /// Copies that read or write a block which is not idle.
    pub fn pins_mut(&mut self) -> &mut u32 {
        debug_assert!(!self.is_idle());
        &mut self.counts_or_neighbours[1]
    }

    pub fn is_idle(&self) -> bool {
        self.stamp & Block::IDLE != 0
    }

    /// Enters the eviction order, between no neighbours yet.
    pub fn rest(&mut self) {
        debug_assert!(self.owners() == 0 && self.is_cached() && !self.is_idle());
        self.stamp |= Block::IDLE;
        self.counts_or_neighbours = [HOLE; 2];
    }

    /// Leaves the eviction order; nothing owns it yet.
    pub fn wake(&mut self) {
        self.stamp &= !Block::IDLE;
        self.counts_or_neighbours = [0; 2];
    }

    /// The neighbours of an idle block, the one that goes before it first.
    pub fn neighbours(&self) -> [BlockId; 2] {
        debug_assert!(self.is_idle());
        self.counts_or_neighbours
    }

    pub fn neighbours_mut(&mut self) -> &mut [BlockId; 2] {
        debug_assert!(self.is_idle());
        &mut self.counts_or_neighbours
    }

    pub fn is_cached(&self) -> bool {
        self.page.is_some()
    }

    /// Its key, if it is cached; a page has `blocks_per_page` of its group's blocks.
    pub fn key(&self, blocks_per_page: usize) -> Option<BlockKey> {
        let ordinal = (self.slot % blocks_per_page as u32) as u16;
        self.page.map(|page| BlockKey { page, ordinal })
    }

    /// Makes an owned block a cached one.
    pub fn publish(&mut self, page: PageId, facts: EntryFacts) {
        self.page = Some(page);
        self.set_facts(facts);
    }

    /// Makes a block that is not idle one that is not cached.
    pub fn unpublish(&mut self) {
        self.page = None;
        self.set_facts(EntryFacts::default());
    }

    pub fn facts(&self) -> EntryFacts {
        let kinds = [BoundaryKind::Chunk, BoundaryKind::Endpoint, BoundaryKind::Promoted];
        EntryFacts {
            epoch: self.stamp >> Block::EPOCH_SHIFT,
            slot: self.slot,
            kind: kinds[(self.stamp >> Block::KIND_SHIFT & 3) as usize],
            acquired: self.stamp & Block::ACQUIRED != 0,
        }
    }

    /// Changes what is remembered; of an idle block it would move its place.
    pub fn set_facts(&mut self, facts: EntryFacts) {
        debug_assert!(!self.is_idle());
        self.stamp = facts.epoch << Block::EPOCH_SHIFT
            | (facts.kind as u64) << Block::KIND_SHIFT
            | if facts.acquired { Block::ACQUIRED } else { 0 };
        self.slot = facts.slot;
    }
}
