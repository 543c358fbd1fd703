//! What core and model have to agree on after every operation.

use std::collections::BTreeMap;

use tokenspeed_scheduler::cache::tier::{BlockKey, BoundaryKind, Tier};
use tokenspeed_scheduler::cache::{CopyOp, Hit};

use super::Play;
use crate::model::host::Copy;
use crate::model::{Found, Guard, Key, Kind, SlowTier};

impl Play {
    /// Everything that can be seen of the two.
    pub(super) fn compare(&mut self, when: &str) {
        let requests = self.lives.values().map(|life| (&life.holdings, life.pages.as_slice()));
        self.core.check(requests).unwrap_or_else(|what| panic!("{when}: broken invariant: {what}"));
        self.compare_tier(when, "Device", self.core.device(), &self.model.device);
        match (self.core.host(), &self.model.host) {
            (Some(core), Some(model)) => self.compare_tier(when, "Host", core, model),
            (core, model) => assert_eq!(core.is_some(), model.is_some(), "{when}: a Host tier"),
        }
        self.compare_order(when);
        self.compare_holdings(when);
        self.compare_gauges(when);
        self.compare_persistent(when);
    }

    /// Blocks in use, their owners, what is cached where and what is remembered of it.
    fn compare_tier(&self, when: &str, name: &str, core: &Tier, model: &SlowTier) {
        type Seen = (u32, Option<(Key, usize, Kind, bool)>);
        let mut in_core: BTreeMap<(usize, u32), Seen> = BTreeMap::new();
        for group in 0..self.model.groups.len() {
            for block in core.block_ids(group).filter(|&block| core.pool.is_in_use(group, block)) {
                let facts = core.facts(group, block);
                let cached = core.key(group, block).map(|key| {
                    let key = self.key_in_tokens(group, key);
                    (key, facts.slot as usize, kind(facts.kind), facts.acquired)
                });
                in_core.insert((group, block), (core.owners(group, block), cached));
            }
        }
        let seen = |(&(group, block), &owners): (&(usize, u32), &u32)| {
            let cached = model.key_of(group, block).map(|key| {
                let entry = &model.index[key];
                (key.clone(), entry.slot, entry.kind, entry.acquired)
            });
            ((group, block), (owners, cached))
        };
        let in_model: BTreeMap<(usize, u32), Seen> = model.owners.iter().map(seen).collect();
        assert_eq!(in_core, in_model, "{when}: {name} blocks in use (owners, what is cached)");
        assert_eq!(core.pool.empty_parents(), model.queue.len(), "{when}: {name} empty parents");
    }

    fn key_in_tokens(&self, group: usize, key: BlockKey) -> Key {
        let prefix = self.prefixes[self.core.hash_of(key.page)].clone();
        Key { group, prefix, ordinal: usize::from(key.ordinal) }
    }

    fn compare_order(&self, when: &str) {
        let groups = 0..self.model.groups.len();
        let mut device: Vec<_> = groups
            .clone()
            .flat_map(|group| {
                self.core.device().in_order(group).map(move |(rank, b)| (rank, group, b))
            })
            .collect();
        device.sort();
        let device: Vec<(usize, u32)> =
            device.into_iter().map(|(_, group, b)| (group, b)).collect();
        assert_eq!(device, self.model.eviction_order(), "{when}: Device eviction order");
        if let (Some(core), Some(model)) = (self.core.host(), &self.model.host) {
            for group in groups {
                let core: Vec<u32> = core.in_order(group).map(|(_, block)| block).collect();
                let of_group = |b: (usize, u32)| (b.0 == group).then_some(b.1);
                let model: Vec<u32> =
                    model.by_host_value().into_iter().filter_map(of_group).collect();
                assert_eq!(core, model, "{when}: Host order of group {group}");
            }
        }
    }

    fn compare_holdings(&self, when: &str) {
        for (id, life) in &self.lives {
            let (core, model) = (&life.holdings, &self.model.holdings[id]);
            for (group, held) in core.groups.iter().enumerate() {
                assert_eq!(
                    held.table.slots(),
                    model.tables[group],
                    "{when}: table of request {id}, group {group}"
                );
                let owned = held.table.len() as i64 * self.model.groups[group].g;
                assert_eq!(
                    owned - core.demanded_tokens(group),
                    model.available[group],
                    "{when}: available tokens of request {id}, group {group}"
                );
            }
            let expires = (0..core.groups.len()).any(|group| {
                let expired = self.model.expired_slots(group, life.computed);
                let slots = model.tables[group].iter().take(expired);
                let mut held = slots.filter(|&&block| block != 0);
                held.any(|&block| self.model.device.owners[&(group, block)] == 1)
            });
            assert_eq!(self.core.expires(core, life.computed), expires, "{when}: {id} expires");
            assert_eq!(core.published_pages, model.published, "{when}: published pages of {id}");
            assert_eq!(core.promotion_boundary, model.promotion, "{when}: promotion of {id}");
            assert_eq!(core.state_boundaries, model.checkpoints, "{when}: checkpoints of {id}");
            assert_eq!(
                self.core.releasable_parents(core),
                self.model.releasable_parents(*id),
                "{when}: releasable parents of {id}"
            );
        }
    }

    fn compare_gauges(&self, when: &str) {
        let (core, model) = (&self.core, &self.model);
        assert_eq!(
            core.available_parents(),
            model.available_parents(),
            "{when}: available parents"
        );
        assert_eq!(core.empty_parents(), model.device.queue.len(), "{when}: empty parents");
        assert_eq!(core.held_parents(), model.held_parents(), "{when}: held parents");
        assert_eq!(core.can_clear(), model.can_clear(), "{when}: can_clear");
        for (group, numbers) in model.groups.iter().enumerate() {
            let free = model.device.free_slots(group) + model.device.queue.len() as u32 * numbers.k;
            assert_eq!(core.free_blocks(group), free as usize, "{when}: free blocks of {group}");
        }
        let transfers = core.transfers();
        let loads = model.in_flight.values().filter(|copy| matches!(copy, Copy::Load(_))).count();
        let pinned = |copy: &&Copy| matches!(copy, Copy::Store(Guard::PinnedUntilAck, _));
        let pinned = model.in_flight.values().filter(pinned).count();
        assert_eq!(transfers.loads_in_flight(), loads, "{when}: loads in flight");
        assert_eq!(transfers.pinned_stores_in_flight(), pinned, "{when}: pinned stores in flight");
        let in_flight: Vec<u64> = transfers.in_flight().map(|(op, _)| op).collect();
        assert_eq!(in_flight, model.in_flight.keys().copied().collect::<Vec<_>>(), "{when}");
    }

    /// Both the arrays and the cells told as changed show the tables, and zeros elsewhere.
    fn compare_persistent(&mut self, when: &str) {
        let mut changed = Vec::new();
        self.core.drain_changed_cells(&mut changed);
        for (group, cells) in changed.iter().enumerate() {
            for cell in cells {
                self.mirror.insert((group, cell.row, cell.slot), cell.block);
            }
        }
        self.mirror.retain(|_, &mut block| block != 0);
        let mut held = BTreeMap::new();
        for (id, life) in &self.lives {
            for (group, table) in self.model.holdings[id].tables.iter().enumerate() {
                for (slot, &block) in table.iter().enumerate().filter(|&(_, &block)| block != 0) {
                    held.insert((group, life.holdings.row, slot as i32), block as i32);
                }
            }
        }
        assert_eq!(self.mirror, held, "{when}: changed cells");
        for (&(group, row, slot), &block) in &held {
            let cell = self.core.persistent_table(group).get(row as usize, slot as usize);
            assert_eq!(cell, block, "{when}: cell ({row}, {slot}) of group {group}");
        }
    }

    pub(super) fn compare_hit(&self, core: &Hit, model: &Found) {
        let found = Found {
            device: core.device_pages,
            total: core.total_pages,
            promotion: core.promotion_boundary_pages,
        };
        assert_eq!(&found, model, "what the probe found, in pages");
    }

    /// The plan's orders: at most a store and a load, each as the model has numbered it.
    pub(super) fn compare_copies(&mut self, store: Option<u64>, load: Option<u64>) {
        let (write_back, load_back) = self.core.take_copies();
        self.compare_copy("write-back", &write_back, store, true);
        self.compare_copy("load-back", &load_back, load, false);
    }

    fn compare_copy(&self, name: &str, core: &CopyOp, model: Option<u64>, is_store: bool) {
        assert_eq!(core.op_ids, Vec::from_iter(model), "{name} operations");
        let Some(op) = model else { return };
        let copy = &self.model.in_flight[&op];
        let orders: Vec<(i32, Key, i32, i32)> = copy
            .orders()
            .into_iter()
            .map(|order| {
                let (device, host) = (order.device as i32, order.host as i32);
                let (from, to) = if is_store { (device, host) } else { (host, device) };
                (order.key.group as i32, order.key, from, to)
            })
            .collect();
        let ordered: Vec<(i32, Key, i32, i32)> = (0..core.src_pages[0].len())
            .map(|at| {
                let group = core.group_ids[0][at];
                let key = Key {
                    group: group as usize,
                    prefix: self.prefixes[&core.content_hashes[0][at]].clone(),
                    ordinal: core.page_offsets[0][at] as usize,
                };
                (group, key, core.src_pages[0][at], core.dst_pages[0][at])
            })
            .collect();
        assert_eq!(ordered, orders, "{name} blocks: group, key, source, destination");
        if let Copy::Store(guard, _) = copy {
            assert_eq!(core.source_pinned, [*guard == Guard::PinnedUntilAck], "{name} guard");
        }
    }
}

fn kind(kind: BoundaryKind) -> Kind {
    match kind {
        BoundaryKind::Chunk => Kind::Chunk,
        BoundaryKind::Endpoint => Kind::Endpoint,
        BoundaryKind::Promoted => Kind::Promoted,
    }
}
