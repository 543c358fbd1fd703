//! Placement and the index of one tier (`cache.md` §2 and §4), as plain lists.

use std::collections::BTreeMap;

/// `1 + (parent - 1) * k + slot`; 0 is a hole.
pub type BlockId = u32;

/// What a block holds: block `ordinal` of the prefix page that ends these tokens, in one group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub group: usize,
    /// All tokens up to the page's end: equal content hashes are equal prefixes.
    pub prefix: Vec<i32>,
    pub ordinal: usize,
}

/// Boundary kind, only ever raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Chunk,
    Endpoint,
    Promoted,
}

/// What the index remembers (§4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub block: BlockId,
    pub epoch: u64,
    pub slot: usize,
    pub kind: Kind,
    pub acquired: bool,
}

#[derive(Debug, Clone)]
pub struct SlowTier {
    pub parents: u32,
    /// k of each group.
    ks: Vec<u32>,
    /// Empty parents, first one to be taken first.
    pub queue: Vec<u32>,
    /// Blocks in use and how many tables and transfers own each.
    pub owners: BTreeMap<(usize, BlockId), u32>,
    pub index: BTreeMap<Key, Entry>,
}

impl SlowTier {
    pub fn new(parents: u32, ks: &[u32]) -> SlowTier {
        SlowTier {
            parents,
            ks: ks.to_vec(),
            queue: (1..=parents).collect(),
            owners: BTreeMap::new(),
            index: BTreeMap::new(),
        }
    }

    pub fn parent_of(&self, group: usize, block: BlockId) -> u32 {
        (block - 1) / self.ks[group] + 1
    }

    pub fn slot_of(&self, group: usize, block: BlockId) -> u32 {
        (block - 1) % self.ks[group]
    }

    /// The blocks in use in a parent.
    pub fn used_in(&self, parent: u32) -> impl Iterator<Item = (usize, BlockId)> + '_ {
        let in_parent =
            move |&(group, block): &(usize, BlockId)| self.parent_of(group, block) == parent;
        self.owners.keys().copied().filter(in_parent)
    }

    /// The placement alone, as it would be without these blocks.
    pub fn without(&self, gone: &[(usize, BlockId)]) -> SlowTier {
        let mut owners = self.owners.clone();
        owners.retain(|block, _| !gone.contains(block));
        SlowTier { owners, ..SlowTier::new(self.parents, &self.ks) }
    }

    /// The group that a parent is bound to while any of its blocks is in use.
    pub fn bound_to(&self, parent: u32) -> Option<usize> {
        self.used_in(parent).next().map(|(group, _)| group)
    }

    /// Free slots in the parents bound to a group.
    pub fn free_slots(&self, group: usize) -> u32 {
        (1..=self.parents)
            .filter(|&parent| self.bound_to(parent) == Some(group))
            .map(|parent| self.ks[group] - self.used_in(parent).count() as u32)
            .sum()
    }

    /// "First fills the group's partly used parents, fullest first (lowest id breaks a tie), slots
    /// in ascending order, then takes parents from the queue's front."
    pub fn take(&mut self, group: usize) -> Option<BlockId> {
        let k = self.ks[group];
        let mut partly: Vec<(u32, u32)> = (1..=self.parents)
            .filter(|&parent| self.bound_to(parent) == Some(group))
            .map(|parent| (k - self.used_in(parent).count() as u32, parent))
            .filter(|&(free, _)| free > 0)
            .collect();
        partly.sort();
        let parent = match partly.first() {
            Some(&(_, parent)) => parent,
            None if self.queue.is_empty() => return None,
            None => self.queue.remove(0),
        };
        let block = (0..k)
            .map(|slot| 1 + (parent - 1) * k + slot)
            .find(|&block| !self.owners.contains_key(&(group, block)))?;
        self.owners.insert((group, block), 1);
        Some(block)
    }

    pub fn own(&mut self, group: usize, block: BlockId) {
        *self.owners.get_mut(&(group, block)).expect("a block in use") += 1;
    }

    pub fn disown(&mut self, group: usize, block: BlockId) {
        *self.owners.get_mut(&(group, block)).expect("a block in use") -= 1;
        self.free_if_unowned(group, block);
    }

    /// "It returns to the pool with its last owner", the index being one.
    fn free_if_unowned(&mut self, group: usize, block: BlockId) {
        if self.is_owned(group, block) || self.key_of(group, block).is_some() {
            return;
        }
        self.owners.remove(&(group, block));
        let parent = self.parent_of(group, block);
        if self.used_in(parent).next().is_none() {
            self.queue.push(parent);
        }
    }

    /// Whether anything but the index owns it.
    pub fn is_owned(&self, group: usize, block: BlockId) -> bool {
        self.owners[&(group, block)] > 0
    }

    pub fn key_of(&self, group: usize, block: BlockId) -> Option<&Key> {
        let of_block = |(key, entry): &(&Key, &Entry)| key.group == group && entry.block == block;
        self.index.iter().find(of_block).map(|(key, _)| key)
    }

    pub fn entry_of(&self, group: usize, block: BlockId) -> Option<&Entry> {
        self.key_of(group, block).map(|key| &self.index[key])
    }

    /// Takes a block out of the index.
    pub fn evict(&mut self, group: usize, block: BlockId) {
        let key = self.key_of(group, block).expect("a cached block").clone();
        self.index.remove(&key);
        self.free_if_unowned(group, block);
    }

    /// Blocks that only the index owns, by group and id.
    pub fn only_indexed(&self) -> Vec<(usize, BlockId)> {
        self.owners.iter().filter(|&(_, &owners)| owners == 0).map(|(&block, _)| block).collect()
    }

    /// "Never acquired before acquired, then oldest epoch, then parent, slot" (§8); where parents of
    /// several groups tie, by group first, as the published wheel was seen to do.
    pub fn host_value(&self, group: usize, block: BlockId) -> (bool, u64, usize, u32, u32) {
        let entry = self.entry_of(group, block).expect("a cached block");
        let (parent, slot) = (self.parent_of(group, block), self.slot_of(group, block));
        (entry.acquired, entry.epoch, group, parent, slot)
    }

    /// Unpinned cached blocks, least valuable first.
    pub fn by_host_value(&self) -> Vec<(usize, BlockId)> {
        let mut blocks = self.only_indexed();
        blocks.sort_by_cached_key(|&(group, block)| self.host_value(group, block));
        blocks
    }
}
