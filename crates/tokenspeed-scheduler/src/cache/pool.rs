//! The pool: parents in a queue, bound to a group while any of their slots is in use (`cache.md` §2).
//!
//! Beside placement it keeps the two counters that answer every capacity question without a walk:
//! how many parents could be emptied, and how many slots each group could use in the others.

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;

use super::geometry::{BlockId, GroupIndex};

/// Blocks of one tier, all groups.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Empty parents, next one to be used first.
    queue: ParentQueue,
    /// One a parent; place 0 is the null parent.
    parents: Vec<Parent>,
    groups: Vec<GroupPool>,
    /// Bound parents none of whose blocks is pinned.
    unpinned_parents: usize,
    /// Bound parents some of whose blocks a request's table holds.
    held_parents: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Parent {
    /// Bound, while `used > 0`: the index of its group. Empty: the parent behind it in the queue.
    group_or_next: u32,
    /// Slots in use.
    used: u32,
    /// Used slots that something beside the prefix index owns.
    pinned: u32,
    /// Used slots that a request's table holds.
    held: u32,
}

/// A queue of empty parents, linked through them; 0 where there is none.
#[derive(Debug, Clone, Copy, Default)]
struct ParentQueue {
    first: u32,
    last: u32,
    len: usize,
}

impl ParentQueue {
    fn push_back(&mut self, parents: &mut [Parent], parent: u32) {
        match self.len {
            0 => self.first = parent,
            _ => parents[self.last as usize].group_or_next = parent,
        }
        self.last = parent;
        self.len += 1;
    }

    fn pop_front(&mut self, parents: &[Parent]) -> Option<u32> {
        self.len = self.len.checked_sub(1)?;
        let first = self.first;
        self.first = parents[first as usize].group_or_next;
        Some(first)
    }
}

#[derive(Debug, Clone)]
struct GroupPool {
    blocks_per_parent: u32,
    /// Partly used parents, fullest first, then lowest id.
    partial: BTreeSet<(u32, u32)>,
    /// By block id: whether the slot is in use.
    in_use: FixedBitSet,
    /// Free slots in the group's parents.
    free_slots: usize,
    /// Slots not pinned in those of the group's parents that hold a pinned one.
    slack_slots: usize,
}

impl GroupPool {
    /// The parent that a block lies in, numbered from 1.
    fn parent_of(&self, block: BlockId) -> u32 {
        (block - 1) / self.blocks_per_parent + 1
    }
}

impl Pool {
    /// A pool of `usable_parents`, each cut into `blocks_per_parent[group]` blocks of the group it serves.
    pub fn new(usable_parents: usize, blocks_per_parent: &[u32]) -> Pool {
        let mut parents = vec![Parent::default(); usable_parents + 1];
        let mut queue = ParentQueue::default();
        (1..=usable_parents as u32).for_each(|parent| queue.push_back(&mut parents, parent));
        Pool {
            queue,
            parents,
            groups: blocks_per_parent
                .iter()
                .map(|&k| GroupPool {
                    blocks_per_parent: k,
                    partial: BTreeSet::new(),
                    in_use: FixedBitSet::with_capacity(usable_parents * k as usize + 1),
                    free_slots: 0,
                    slack_slots: 0,
                })
                .collect(),
            unpinned_parents: 0,
            held_parents: 0,
        }
    }

    /// Takes a block, pinned: a slot of the fullest partly used parent, else of the queue's first.
    pub fn acquire(&mut self, group: GroupIndex) -> Option<BlockId> {
        let pool = &mut self.groups[group];
        let k = pool.blocks_per_parent;
        let (parent, fresh) = match pool.partial.first() {
            Some(&(_, parent)) => (parent, false),
            None => (self.queue.pop_front(&self.parents)?, true),
        };
        let state = &mut self.parents[parent as usize];
        if fresh {
            *state = Parent { group_or_next: group as u32, ..Parent::default() };
            pool.free_slots += k as usize;
        } else {
            pool.partial.remove(&(k - state.used, parent));
        }
        state.used += 1;
        pool.free_slots -= 1;
        if state.used < k {
            pool.partial.insert((k - state.used, parent));
        }
        let first = 1 + (parent - 1) * k;
        let block = (first..first + k)
            .find(|&block| !pool.in_use[block as usize])
            .expect("a partly used parent has a free slot");
        pool.in_use.insert(block as usize);
        // A parent enters the count of the unpinned only with its first pin gone: see `pin`.
        if fresh {
            self.unpinned_parents += 1;
        }
        self.pin(group, block);
        Some(block)
    }

    /// Frees a block that is not pinned; its parent joins the queue's back when that was its last.
    pub fn release(&mut self, group: GroupIndex, block: BlockId) {
        let pool = &mut self.groups[group];
        let k = pool.blocks_per_parent;
        debug_assert!(pool.in_use[block as usize], "a block is freed once");
        pool.in_use.remove(block as usize);
        let parent = pool.parent_of(block);
        let state = &mut self.parents[parent as usize];
        if state.used < k {
            pool.partial.remove(&(k - state.used, parent));
        }
        state.used -= 1;
        pool.free_slots += 1;
        if state.used == 0 {
            pool.free_slots -= k as usize;
            self.unpinned_parents -= 1;
            self.queue.push_back(&mut self.parents, parent);
        } else {
            pool.partial.insert((k - state.used, parent));
        }
    }

    /// Counts a block as owned by more than the prefix index.
    pub fn pin(&mut self, group: GroupIndex, block: BlockId) {
        let pool = &mut self.groups[group];
        let k = pool.blocks_per_parent;
        let state = &mut self.parents[pool.parent_of(block) as usize];
        if state.pinned == 0 {
            self.unpinned_parents -= 1;
            pool.slack_slots += k as usize;
        }
        state.pinned += 1;
        pool.slack_slots -= 1;
    }

    /// Takes that back.
    pub fn unpin(&mut self, group: GroupIndex, block: BlockId) {
        let pool = &mut self.groups[group];
        let k = pool.blocks_per_parent;
        let state = &mut self.parents[pool.parent_of(block) as usize];
        state.pinned -= 1;
        pool.slack_slots += 1;
        if state.pinned == 0 {
            self.unpinned_parents += 1;
            pool.slack_slots -= k as usize;
        }
    }

    /// Counts a block as held by a table.
    pub fn hold(&mut self, group: GroupIndex, block: BlockId) {
        let state = &mut self.parents[self.groups[group].parent_of(block) as usize];
        state.held += 1;
        self.held_parents += usize::from(state.held == 1);
    }

    /// Takes that back.
    pub fn let_go(&mut self, group: GroupIndex, block: BlockId) {
        let state = &mut self.parents[self.groups[group].parent_of(block) as usize];
        state.held -= 1;
        self.held_parents -= usize::from(state.held == 0);
    }

    /// Whether the block's slot is in use.
    pub fn is_in_use(&self, group: GroupIndex, block: BlockId) -> bool {
        self.groups[group].in_use[block as usize]
    }

    /// Used and pinned slots of a block's parent.
    pub fn occupancy(&self, group: GroupIndex, block: BlockId) -> Occupancy {
        let parent = self.groups[group].parent_of(block);
        let state = self.parents[parent as usize];
        Occupancy { parent, used: state.used, pinned: state.pinned }
    }

    /// Usable parents.
    pub fn total_parents(&self) -> usize {
        self.parents.len() - 1
    }

    /// Parents that wait in the queue.
    pub fn empty_parents(&self) -> usize {
        self.queue.len
    }

    /// Bound parents that giving up cached blocks would empty.
    pub fn unpinned_parents(&self) -> usize {
        self.unpinned_parents
    }

    /// Bound parents in which a request's table holds a block.
    pub fn held_parents(&self) -> usize {
        self.held_parents
    }

    /// Free slots in the group's parents.
    pub fn free_slots(&self, group: GroupIndex) -> usize {
        self.groups[group].free_slots
    }

    /// Slots that are free, or cached and unpinned, in those of the group's parents that hold a pinned block.
    pub fn slack_slots(&self, group: GroupIndex) -> usize {
        self.groups[group].slack_slots
    }

    /// Whether so many blocks of each group would fit if everything were gone that is not pinned.
    pub fn could_hold(&self, blocks: impl Iterator<Item = usize>) -> bool {
        let parents = |(group, blocks): (GroupIndex, usize)| {
            let k = self.groups[group].blocks_per_parent as usize;
            blocks.saturating_sub(self.slack_slots(group)).div_ceil(k)
        };
        let parents: usize = blocks.enumerate().map(parents).sum();
        parents <= self.empty_parents() + self.unpinned_parents
    }

    /// How many groups share the pool.
    pub fn num_groups(&self) -> usize {
        self.groups.len()
    }

    /// k of a group.
    pub fn blocks_per_parent(&self, group: GroupIndex) -> u32 {
        self.groups[group].blocks_per_parent
    }

    /// The bound parents: number, group, used slots.
    pub fn bound_parents(&self) -> impl Iterator<Item = (u32, GroupIndex, u32)> + '_ {
        self.parents
            .iter()
            .enumerate()
            .filter(|(_, state)| state.used > 0)
            .map(|(parent, state)| (parent as u32, state.group_or_next as GroupIndex, state.used))
    }

    /// The blocks in use in a parent of a group, by slot.
    pub fn used_blocks(
        &self,
        group: GroupIndex,
        parent: u32,
    ) -> impl Iterator<Item = BlockId> + '_ {
        let pool = &self.groups[group];
        let first = 1 + (parent - 1) * pool.blocks_per_parent;
        (first..first + pool.blocks_per_parent).filter(|&block| pool.in_use[block as usize])
    }
}

/// How full one parent is.
#[derive(Debug, Clone, Copy)]
pub struct Occupancy {
    /// The parent's number.
    pub parent: u32,
    /// Slots in use.
    pub used: u32,
    /// Used slots that something beside the prefix index owns.
    pub pinned: u32,
}
