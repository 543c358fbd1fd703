//! What-if arithmetic of an admission: would the pool hold these blocks if those were given up?

use rustc_hash::FxHashMap;

use super::geometry::{BlockId, GroupIndex};
use super::pool::{Occupancy, Pool};

/// Free slots and empty parents, as they would be.
#[derive(Debug)]
pub struct Ledger<'a> {
    pool: &'a Pool,
    /// What stands in the way of a parent's being empty.
    obstacle: Obstacle,
    /// One a group: slots to be had in its own parents.
    free: Vec<i64>,
    /// Parents to be had whole.
    empty: i64,
    /// By parent: blocks given up in it.
    given_up: FxHashMap<u32, u32>,
}

/// Which blocks count as in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// Every block in use: nothing is given up but what is named.
    Used,
    /// Only pinned blocks: all that could be evicted counts as gone.
    Pinned,
}

impl<'a> Ledger<'a> {
    /// The pool as it is, or as it would be with everything evictable gone.
    pub fn new(pool: &'a Pool, groups: usize, obstacle: Obstacle) -> Ledger<'a> {
        let (free, empty) = match obstacle {
            Obstacle::Used => {
                ((0..groups).map(|g| pool.free_slots(g) as i64).collect(), pool.empty_parents())
            }
            Obstacle::Pinned => (
                (0..groups).map(|g| pool.slack_slots(g) as i64).collect(),
                pool.empty_parents() + pool.unpinned_parents(),
            ),
        };
        Ledger { pool, obstacle, free, empty: empty as i64, given_up: FxHashMap::default() }
    }

    /// Whether `needed[group]` blocks fit: own slots first, whole parents for the rest.
    pub fn fits(&self, needed: &[i64]) -> bool {
        let parents: i64 = needed
            .iter()
            .zip(&self.free)
            .enumerate()
            .map(|(group, (&needed, &free))| {
                let k = i64::from(self.pool.blocks_per_parent(group));
                ((needed - free).max(0) + k - 1) / k
            })
            .sum();
        parents <= self.empty
    }

    /// Counts a block as gone.
    pub fn give_up(&mut self, group: GroupIndex, block: BlockId) {
        let (parent, obstacles) = self.obstacles(group, block);
        let given = self.given_up.entry(parent).or_insert(0);
        *given += 1;
        self.free[group] += 1;
        if *given == obstacles {
            self.free[group] -= i64::from(self.pool.blocks_per_parent(group));
            self.empty += 1;
        }
    }

    /// Takes that back.
    pub fn keep(&mut self, group: GroupIndex, block: BlockId) {
        let (parent, obstacles) = self.obstacles(group, block);
        let given = self.given_up.get_mut(&parent).expect("only what was given up is kept");
        if *given == obstacles {
            self.free[group] += i64::from(self.pool.blocks_per_parent(group));
            self.empty -= 1;
        }
        *given -= 1;
        self.free[group] -= 1;
    }

    fn obstacles(&self, group: GroupIndex, block: BlockId) -> (u32, u32) {
        let Occupancy { parent, used, pinned } = self.pool.occupancy(group, block);
        (parent, if self.obstacle == Obstacle::Used { used } else { pinned })
    }
}
