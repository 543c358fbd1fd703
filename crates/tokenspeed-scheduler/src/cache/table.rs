//! A request's block table in one group: absolute slots, and nothing of tokens (`cache.md` §3).

use super::geometry::{BlockId, HOLE};
use super::persistent::RowCells;
use crate::growth::make_room;

/// Absolute slots, never compacted; a slot that holds nothing is a hole.
#[derive(Debug, Clone, Default)]
pub struct Table {
    slots: Vec<BlockId>,
    /// Slots below are holes for good: retention has passed them.
    first_live: usize,
    rewrites: u32,
}

impl Table {
    /// The slots, holes included.
    pub fn slots(&self) -> &[BlockId] {
        &self.slots
    }

    /// How many slots the table has, holes included.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the table has no slot.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How often a slot that was there has changed: as long as it stays the same, the table has only
    /// grown.
    pub fn rewrites(&self) -> u32 {
        self.rewrites
    }

    /// The block in a slot; `HOLE` past the end.
    pub fn block(&self, slot: usize) -> BlockId {
        self.slots.get(slot).copied().unwrap_or(HOLE)
    }

    /// Appends a block or a hole.
    pub fn push(&mut self, cells: &mut RowCells<'_>, block: BlockId) {
        if block != HOLE {
            cells.set(self.slots.len(), block);
        } else if self.first_live == self.slots.len() {
            self.first_live += 1;
        }
        make_room(&mut self.slots, 1);
        self.slots.push(block);
    }

    /// Points a slot at another block.
    pub fn repoint(&mut self, cells: &mut RowCells<'_>, slot: usize, block: BlockId) {
        cells.set(slot, block);
        self.slots[slot] = block;
        self.rewrites += 1;
    }

    /// Makes every slot below `first_retained` a hole and hands over what they held, lowest first.
    pub fn expire(
        &mut self,
        cells: &mut RowCells<'_>,
        first_retained: usize,
        mut freed: impl FnMut(BlockId),
    ) {
        let end = first_retained.min(self.slots.len());
        for slot in self.first_live..end {
            let block = std::mem::replace(&mut self.slots[slot], HOLE);
            if block != HOLE {
                cells.set(slot, HOLE);
                self.rewrites += 1;
                freed(block);
            }
        }
        self.first_live = self.first_live.max(end);
    }

    /// The slots that `expire` would turn into holes, with what they hold.
    pub fn expiring(&self, first_retained: usize) -> impl Iterator<Item = (usize, BlockId)> + '_ {
        let end = first_retained.min(self.slots.len());
        (self.first_live..end)
            .map(|slot| (slot, self.slots[slot]))
            .filter(|&(_, block)| block != HOLE)
    }

    /// Slots below are holes for good.
    pub fn first_live(&self) -> usize {
        self.first_live
    }

    /// At least as many as the blocks held: the slots that retention has not passed.
    pub fn held_at_most(&self) -> usize {
        self.slots.len() - self.first_live
    }

    /// The blocks held with their slots, first slot first.
    pub fn held(&self) -> impl DoubleEndedIterator<Item = (usize, BlockId)> + '_ {
        let first = self.first_live;
        self.slots[first..]
            .iter()
            .enumerate()
            .map(move |(at, &block)| (first + at, block))
            .filter(|&(_, block)| block != HOLE)
    }
}
