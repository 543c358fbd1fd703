//! Admission with the least eviction, by the text of `cache.md` §7.

use std::ops::Range;

use super::host::Copy;
use super::matching::{Found, div_ceil};
use super::tier::{BlockId, Kind};
use super::{Holding, Model, Shape};

/// What an admission asks of one group (§3). Token counts.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    Dense { tokens: i64, reserve: i64 },
    Sparse { extent: i64, first_slot: usize, reserve: i64 },
}

/// What a request computed since its previous admission.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    pub tokens: &'a [i32],
    /// The exact computed frontier.
    pub computed: i64,
    /// The rebased prompt's length.
    pub prompt: i64,
    pub by: By,
}

/// What the pages were computed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Prefill,
    Decode,
    /// Either, and the request finishes or is retracted.
    Departure {
        gives_way: bool,
    },
}

/// What a first admission brings.
#[derive(Debug, Clone, Copy)]
pub struct First<'a> {
    pub found: &'a Found,
    pub tokens: &'a [i32],
}

type Candidate = (usize, BlockId);

impl Model {
    /// All or nothing. On success the fresh blocks, one list a group.
    pub fn admit(
        &mut self,
        request: usize,
        first: Option<First<'_>>,
        needs: &[Need],
        progress: &Progress<'_>,
    ) -> Option<Vec<Vec<BlockId>>> {
        let mut next = self.clone();
        let fresh = next.admit_or_spoil(request, first, needs, progress)?;
        *self = next;
        Some(fresh)
    }

    /// As [`Model::admit`], but leaves anything behind where it refuses.
    fn admit_or_spoil(
        &mut self,
        request: usize,
        first: Option<First<'_>>,
        needs: &[Need],
        progress: &Progress<'_>,
    ) -> Option<Vec<Vec<BlockId>>> {
        let groups = self.groups.len();
        if let Some(first) = first {
            self.claim(request, first);
        }
        // 1. "Each group's growth, plus one Device block for each Host hit to be loaded."
        let growth: Vec<Vec<bool>> = (0..groups)
            .map(|group| {
                let hit_slots = first.map_or(0, |f| f.found.total * self.per_page(group));
                let holding = &self.holdings[&request];
                let slots = holding.tables[group].len().max(hit_slots);
                growth(needs[group], slots, holding.available[group], self.groups[group].g)
            })
            .collect();
        let blocks: Vec<u32> = (0..groups)
            .map(|group| {
                let loads = first.map_or(0, |first| self.slots_to_load(group, first.found).len());
                (growth[group].iter().filter(|&&filled| filled).count() + loads) as u32
            })
            .collect();
        // 2 and 3.
        let given_up = self.least_eviction(request, &blocks, progress.computed)?;
        // 4. Claimed already; evict; then group by group publish and expire; then group by group load and
        // append. The request's own expired blocks among the given up go as they expire.
        for &(group, block) in &given_up {
            if !self.device.is_owned(group, block) {
                self.device.evict(group, block);
            }
        }
        self.publish_and_expire(request, progress);
        for &(group, block) in &given_up {
            let left_over = self.device.owners.get(&(group, block)) == Some(&0);
            if left_over {
                self.device.evict(group, block);
            }
        }
        if let Some(first) = first {
            self.epoch += 1;
            self.settle(request, first);
        }
        let mut fresh = Vec::new();
        let mut orders = Vec::new();
        for group in 0..groups {
            if let Some(first) = first {
                orders.extend(self.load(request, group, first));
            }
            fresh.push(self.append(request, group, needs[group], &growth[group]));
        }
        if !orders.is_empty() {
            self.number(Copy::Load(orders));
        }
        Some(fresh)
    }

    /// Takes the Device hits, so that nothing gives them up: "blocks that this probe hit are protected".
    fn claim(&mut self, request: usize, first: First<'_>) {
        let groups = self.groups.len();
        let mut holding = Holding {
            tables: vec![Vec::new(); groups],
            available: vec![0; groups],
            ..Holding::default()
        };
        for group in 0..groups {
            let start = self.run_start(group, first.found.device);
            for slot in 0..first.found.device * self.per_page(group) {
                let block = if slot < start {
                    0
                } else {
                    self.device.index[&self.key(group, first.tokens, slot)].block
                };
                if block != 0 {
                    self.device.own(group, block);
                }
                holding.tables[group].push(block);
            }
        }
        self.holdings.insert(request, holding);
    }

    /// The slots of a Host hit.
    pub fn slots_to_load(&self, group: usize, found: &Found) -> Range<usize> {
        self.host_start(group, found)..found.total * self.per_page(group)
    }

    /// First slot of the run behind a Host hit that lies beyond the Device's.
    pub fn host_start(&self, group: usize, found: &Found) -> usize {
        self.run_start(group, found.total).max(found.device * self.per_page(group))
    }

    /// Cached blocks that only the index owns, and the request's own expired ones that nobody else
    /// holds, given up in order until the need is met, then taken back newest first while it still is.
    fn least_eviction(
        &self,
        request: usize,
        blocks: &[u32],
        computed: i64,
    ) -> Option<Vec<Candidate>> {
        if self.fits(blocks, &[]) {
            return Some(Vec::new());
        }
        let mut candidates = self.device.only_indexed();
        for group in 0..self.groups.len() {
            let expired = self.expired_slots(group, computed);
            let own = self.holdings[&request].tables[group].iter().take(expired);
            candidates.extend(
                own.filter(|&&b| b != 0 && self.device.owners[&(group, b)] == 1)
                    .map(|&b| (group, b)),
            );
        }
        candidates.sort_by_cached_key(|&(group, block)| self.eviction_value(group, block));
        let enough = (1..=candidates.len()).find(|&n| self.fits(blocks, &candidates[..n]))?;
        let mut given_up = candidates[..enough].to_vec();
        for at in (0..enough).rev() {
            let without: Vec<Candidate> =
                given_up.iter().enumerate().filter(|&(i, _)| i != at).map(|(_, &c)| c).collect();
            if self.fits(blocks, &without) {
                given_up = without;
            }
        }
        Some(given_up)
    }

    /// "The free slots in parents bound to the group plus the empty parents cover it", were `gone` gone.
    fn fits(&self, blocks: &[u32], gone: &[Candidate]) -> bool {
        let device = self.device.without(gone);
        let empty = (1..=device.parents).filter(|&p| device.bound_to(p).is_none()).count() as u32;
        let parents: u32 = (0..self.groups.len())
            .map(|g| blocks[g].saturating_sub(device.free_slots(g)).div_ceil(self.groups[g].k))
            .sum();
        parents <= empty
    }

    /// Place in the eviction order, as a tuple: a block no key names; then by access epoch, and
    /// within one epoch probationary boundaries before established ones before closed prefixes.
    /// Further ties: probationary by lowest slot first, closed prefixes from their last slot back,
    /// then group, parent, slot.
    ///
    /// §7 reads as if probationary boundaries of any epoch went first. The published wheel was seen
    /// to give up an established boundary of an older epoch before them.
    fn eviction_value(&self, group: usize, block: BlockId) -> (u64, u8, i64, usize, u32, u32) {
        let (parent, place) =
            (self.device.parent_of(group, block), self.device.slot_of(group, block));
        let closed = self.groups[group].shape == Shape::Full;
        let (epoch, class, slot) = match self.device.entry_of(group, block) {
            None => (0, 0, 0),
            Some(entry) if closed => (entry.epoch, 3, -(entry.slot as i64)),
            Some(entry) if entry.kind > Kind::Chunk || entry.acquired => (entry.epoch, 2, 0),
            Some(entry) => (entry.epoch, 1, entry.slot as i64),
        };
        (epoch, class, slot, group, parent, place)
    }

    /// Cached Device blocks that only the index owns, first to go first.
    pub fn eviction_order(&self) -> Vec<Candidate> {
        let mut blocks = self.device.only_indexed();
        blocks.sort_by_cached_key(|&(group, block)| self.eviction_value(group, block));
        blocks
    }

    /// What a first admission fixes.
    fn settle(&mut self, request: usize, first: First<'_>) {
        let epoch = self.epoch;
        let holding = self.holdings.get_mut(&request).expect("claimed");
        holding.epoch = epoch;
        holding.published = first.found.total;
        holding.promotion = first.found.promotion.map(|pages| pages as i64 * self.p);
        for (group, table) in self.holdings[&request].tables.iter().enumerate() {
            for entry in self.device.index.iter_mut().filter(|(key, _)| key.group == group) {
                if table.contains(&entry.1.block) {
                    entry.1.epoch = epoch;
                    entry.1.acquired = true;
                }
            }
        }
    }

    /// Appends the holes and fresh blocks of a demand.
    fn append(
        &mut self,
        request: usize,
        group: usize,
        need: Need,
        growth: &[bool],
    ) -> Vec<BlockId> {
        let mut fresh = Vec::new();
        for &filled in growth {
            let block = if filled { self.device.take(group).expect("it fits") } else { 0 };
            self.holdings.get_mut(&request).expect("live").tables[group].push(block);
            fresh.extend(filled.then_some(block));
        }
        let g = self.groups[group].g;
        let holding = self.holdings.get_mut(&request).expect("live");
        holding.available[group] = match need {
            Need::Dense { tokens, .. } => {
                holding.available[group] + growth.len() as i64 * g - tokens
            }
            Need::Sparse { extent, .. } => holding.tables[group].len() as i64 * g - extent,
        };
        fresh
    }
}

/// The slots that a demand appends to a table of `slots`: `false` for a hole.
fn growth(need: Need, slots: usize, available: i64, g: i64) -> Vec<bool> {
    match need {
        Need::Dense { tokens, reserve } => {
            vec![true; div_ceil((tokens + reserve - available).max(0), g) as usize]
        }
        Need::Sparse { extent, first_slot, reserve } => {
            assert_eq!(available, 0, "a sparse suffix needs an empty remainder");
            (slots..div_ceil(extent + reserve, g) as usize).map(|slot| slot >= first_slot).collect()
        }
    }
}
