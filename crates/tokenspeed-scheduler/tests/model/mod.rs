//! A slow, obvious model of `cache.md`, to hold the core's cache against. It is written from the
//! document and not from the core: every question is answered by walking over everything, a refusal
//! is a clone thrown away, and a block's content is named by the tokens themselves.

pub mod admission;
pub mod host;
pub mod matching;
pub mod publication;
pub mod tier;

use std::collections::{BTreeMap, BTreeSet};

pub use admission::{By, First, Need, Progress};
pub use host::{Copy, Guard};
pub use matching::Found;
pub use tier::{BlockId, Key, Kind, SlowTier};

/// The kind of a group (`cache.md` §1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Full,
    /// W, in tokens.
    Sliding(i64),
    State,
}

/// One cache group's numbers.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    pub shape: Shape,
    /// Tokens of a block.
    pub g: i64,
    /// Blocks of a parent.
    pub k: u32,
}

impl Group {
    /// W, in tokens: "a state group behaves as a window of 2 tokens" (§5), also in retention (§6).
    /// `None` for a full group.
    pub fn window(&self) -> Option<i64> {
        match self.shape {
            Shape::Full => None,
            Shape::Sliding(window) => Some(window),
            Shape::State => Some(2),
        }
    }
}

/// What one request holds and has published.
#[derive(Debug, Clone, Default)]
pub struct Holding {
    /// One a group: block ids by absolute slot, 0 for a hole.
    pub tables: Vec<Vec<BlockId>>,
    /// One a group: tokens of capacity owned beyond what was demanded (§3).
    pub available: Vec<i64>,
    /// Issued by its first admission (§7).
    pub epoch: u64,
    /// Pages whose publication an admission has carried.
    pub published: usize,
    /// In tokens (§5).
    pub promotion: Option<i64>,
    /// Materialized state boundaries not yet covered, in tokens (§6).
    pub checkpoints: Vec<i64>,
}

/// The cache of one engine: both tiers, the requests that hold blocks, and the copies in flight.
#[derive(Debug, Clone)]
pub struct Model {
    pub groups: Vec<Group>,
    /// Tokens of a prefix page.
    pub p: i64,
    pub device: SlowTier,
    pub host: Option<SlowTier>,
    /// By a number that the test gives.
    pub holdings: BTreeMap<usize, Holding>,
    pub in_flight: BTreeMap<u64, Copy>,
    /// Published blocks whose store the plan in the making starts.
    pub queued: Vec<Key>,
    epoch: u64,
    next_op: u64,
    /// Stores that were in flight when the Host was cleared: what they bring is not indexed.
    void: BTreeSet<u64>,
}

impl Model {
    pub fn new(groups: Vec<Group>, p: i64, device_parents: u32, host_parents: u32) -> Model {
        let ks: Vec<u32> = groups.iter().map(|group| group.k).collect();
        Model {
            device: SlowTier::new(device_parents, &ks),
            host: (host_parents > 0).then(|| SlowTier::new(host_parents, &ks)),
            groups,
            p,
            holdings: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            queued: Vec::new(),
            epoch: 0,
            next_op: 0,
            void: BTreeSet::new(),
        }
    }

    /// Blocks of a group in one prefix page.
    pub fn per_page(&self, group: usize) -> usize {
        (self.p / self.groups[group].g) as usize
    }

    /// The key of the block in a slot of a request with these tokens; the slot's page is complete.
    pub fn key(&self, group: usize, tokens: &[i32], slot: usize) -> Key {
        let page_end = (slot / self.per_page(group) + 1) * self.p as usize;
        Key { group, prefix: tokens[..page_end].to_vec(), ordinal: slot % self.per_page(group) }
    }

    /// Lets everything of a request go: "a table is released from its last slot to its first" (§2).
    pub fn release(&mut self, request: usize) {
        let holding = self.holdings.remove(&request).expect("a live request");
        for (group, table) in holding.tables.iter().enumerate() {
            for &block in table.iter().rev().filter(|&&block| block != 0) {
                self.device.disown(group, block);
            }
        }
    }

    /// Whether no indexed Device block is owned by anyone else, and nothing is being loaded.
    pub fn can_clear(&self) -> bool {
        let loads = self.in_flight.values().any(|copy| matches!(copy, Copy::Load(_)));
        !loads
            && self
                .device
                .index
                .iter()
                .all(|(key, entry)| !self.device.is_owned(key.group, entry.block))
    }

    /// Drops the Device's index, or nothing: group by group, by block id.
    pub fn clear_device(&mut self) -> bool {
        let can = self.can_clear();
        if can {
            for (group, block) in self.device.only_indexed() {
                self.device.evict(group, block);
            }
        }
        can
    }

    /// Drops both indices, or nothing.
    pub fn clear_all(&mut self) -> bool {
        let owned_on_host = self.host.as_ref().is_some_and(|host| {
            host.index.iter().any(|(key, entry)| host.is_owned(key.group, entry.block))
        });
        if owned_on_host || !self.clear_device() {
            return false;
        }
        if let Some(host) = &mut self.host {
            for (group, block) in host.only_indexed() {
                host.evict(group, block);
            }
        }
        self.void.extend(self.in_flight.keys());
        true
    }

    /// Parents that are empty, or whose used blocks only the index owns.
    pub fn available_parents(&self) -> usize {
        let device = &self.device;
        (1..=device.parents)
            .filter(|&parent| {
                device.used_in(parent).all(|(group, block)| !device.is_owned(group, block))
            })
            .count()
    }

    /// Parents in which a request's table holds a block.
    pub fn held_parents(&self) -> usize {
        let mut held = BTreeSet::new();
        for holding in self.holdings.values() {
            for (group, table) in holding.tables.iter().enumerate() {
                let blocks = table.iter().filter(|&&block| block != 0);
                held.extend(blocks.map(|&block| self.device.parent_of(group, block)));
            }
        }
        held.len()
    }

    /// Parents that the request's blocks alone occupy, and that nobody else owns a block of: what its
    /// retraction is sure to free (`scheduler.md` §2, "newly releasable").
    pub fn releasable_parents(&self, request: usize) -> usize {
        let tables = &self.holdings[&request].tables;
        let alone = |(group, block): (usize, BlockId)| {
            tables[group].contains(&block) && self.device.owners[&(group, block)] == 1
        };
        (1..=self.device.parents)
            .filter(|&parent| {
                self.device.bound_to(parent).is_some() && self.device.used_in(parent).all(alone)
            })
            .count()
    }
}
