//! The order in which cached blocks are given up (`cache.md` §7 and §8).
//!
//! Blocks of one access epoch are a *run*, linked through the blocks themselves, so that a block enters and
//! leaves the order without a search among millions. A request that lets its table go enters the blocks of
//! a run in their order, or in the reverse, as a rule; where it does not, the run is sorted when
//! it comes to be the first.

use std::collections::BTreeMap;

use super::block::Block;
use super::geometry::{BlockId, GroupIndex, HOLE};
use super::tier::{BoundaryKind, TierKind};

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

impl Rank {
    /// Worth and epoch in one number: the run that a block of this rank stands in.
    fn run(self) -> u64 {
        u64::from(self.worth) << 63 | self.epoch
    }
}

/// How a group's blocks are ranked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranking {
    pub kind: TierKind,
    pub group: GroupIndex,
    pub prefix_closed: bool,
}

impl Ranking {
    /// The place of a block.
    pub fn rank(&self, state: &Block, block: BlockId) -> Rank {
        let facts = state.facts();
        let (worth, epoch, class, by_slot) = match self.kind {
            TierKind::Host => (u8::from(facts.acquired), facts.epoch, 0, 0),
            TierKind::Device if !state.is_cached() => (0, 0, 0, 0),
            TierKind::Device if self.prefix_closed => (1, facts.epoch, 2, u32::MAX - facts.slot),
            // Probationary: a boundary that no prompt has ended at and no admission has used.
            TierKind::Device if facts.kind == BoundaryKind::Chunk && !facts.acquired => {
                (1, facts.epoch, 0, facts.slot)
            }
            TierKind::Device => (1, facts.epoch, 1, 0),
        };
        // Block ids of a group rise with the parent, then with the slot: ties end there.
        Rank { worth, epoch, class, by_slot, group: self.group as u16, block }
    }
}

/// A group's blocks that are cached and that nothing else owns.
#[derive(Debug, Default)]
pub(super) struct EvictionOrder {
    /// By [`Rank::run`].
    runs: BTreeMap<u64, Run>,
    len: usize,
}

/// A list of blocks, never empty.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: BlockId,
    last: BlockId,
    /// Whether the list is in the order of rank.
    sorted: bool,
}

impl EvictionOrder {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Enters a cached block that nothing owns any more.
    pub fn insert(&mut self, ranking: Ranking, blocks: &mut [Block], block: BlockId) {
        self.len += 1;
        let rank = ranking.rank(&blocks[block as usize], block);
        blocks[block as usize].rest();
        let alone = Run { first: block, last: block, sorted: true };
        let run = self.runs.entry(rank.run()).or_insert(alone);
        if run.first == block {
            return;
        }
        let rank_of = |block: BlockId| ranking.rank(&blocks[block as usize], block);
        if run.sorted && rank < rank_of(run.first) {
            link(blocks, block, run.first);
            run.first = block;
        } else {
            run.sorted = run.sorted && rank_of(run.last) < rank;
            link(blocks, run.last, block);
            run.last = block;
        }
    }

    /// Takes out a block that is to have an owner again, or to be given up.
    pub fn remove(&mut self, ranking: Ranking, blocks: &mut [Block], block: BlockId) {
        self.len -= 1;
        let state = &mut blocks[block as usize];
        let [before, after] = state.neighbours();
        if before == HOLE || after == HOLE {
            let rank = ranking.rank(state, block);
            let run = self.runs.get_mut(&rank.run()).expect("an idle block stands in its run");
            match (before, after) {
                (HOLE, HOLE) => drop(self.runs.remove(&rank.run())),
                (HOLE, _) => run.first = after,
                _ => run.last = before,
            }
        }
        state.wake();
        if before != HOLE {
            blocks[before as usize].neighbours_mut()[1] = after;
        }
        if after != HOLE {
            blocks[after as usize].neighbours_mut()[0] = before;
        }
    }

    /// Sorts the run that goes first, so that [`EvictionOrder::iter`] need not do so again and again.
    pub fn settle(&mut self, ranking: Ranking, blocks: &mut [Block]) {
        let Some(mut first) = self.runs.first_entry() else { return };
        let run = first.get_mut();
        if run.sorted {
            return;
        }
        let sorted = run.in_order(ranking, blocks);
        for &block in &sorted {
            *blocks[block as usize].neighbours_mut() = [HOLE; 2];
        }
        sorted.windows(2).for_each(|pair| link(blocks, pair[0], pair[1]));
        *run = Run { first: sorted[0], last: sorted[sorted.len() - 1], sorted: true };
    }

    /// The blocks, first to go first.
    pub fn iter<'a>(
        &'a self,
        ranking: Ranking,
        blocks: &'a [Block],
    ) -> impl Iterator<Item = (Rank, BlockId)> + 'a {
        let in_run = move |run: &'a Run| {
            // A run that is sorted is walked, so that the first few of it cost no more than that.
            let (listed, copied) = match run.sorted {
                true => (run.first, Vec::new()),
                false => (HOLE, run.in_order(ranking, blocks)),
            };
            walk(blocks, listed).chain(copied)
        };
        let ranked = move |block: BlockId| (ranking.rank(&blocks[block as usize], block), block);
        self.runs.values().flat_map(in_run).map(ranked)
    }
}

impl Run {
    fn in_order(&self, ranking: Ranking, blocks: &[Block]) -> Vec<BlockId> {
        let mut sorted: Vec<BlockId> = walk(blocks, self.first).collect();
        sorted.sort_unstable_by_key(|&block| ranking.rank(&blocks[block as usize], block));
        sorted
    }
}

/// The blocks of a list from one on.
fn walk(blocks: &[Block], from: BlockId) -> impl Iterator<Item = BlockId> + '_ {
    let some = |block: BlockId| (block != HOLE).then_some(block);
    std::iter::successors(some(from), move |&at| some(blocks[at as usize].neighbours()[1]))
}

/// Makes two blocks neighbours.
fn link(blocks: &mut [Block], before: BlockId, after: BlockId) {
    blocks[before as usize].neighbours_mut()[1] = after;
    blocks[after as usize].neighbours_mut()[0] = before;
}
