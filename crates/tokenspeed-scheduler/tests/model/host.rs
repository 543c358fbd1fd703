//! The Host tier (`cache.md` §8).

use super::admission::First;
use super::tier::{BlockId, Entry, Key, Kind, SlowTier};
use super::{By, Model, Progress, Shape};

/// What keeps a store's sources (`scheduler.md` §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    PinnedUntilAck,
    StreamOrdered,
}

/// One block of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub key: Key,
    pub device: BlockId,
    pub host: BlockId,
}

/// A copy in flight.
#[derive(Debug, Clone)]
pub enum Copy {
    /// With the Host entries that the acknowledgement publishes.
    Store(Guard, Vec<(Order, Entry)>),
    Load(Vec<Order>),
}

impl Copy {
    pub fn orders(&self) -> Vec<Order> {
        match self {
            Copy::Store(_, blocks) => blocks.iter().map(|(order, _)| order.clone()).collect(),
            Copy::Load(blocks) => blocks.clone(),
        }
    }
}

impl Model {
    /// "Finish queues whatever of the request is Device-cached, and for each state group only its
    /// latest snapshot within the prompt" (§6).
    pub fn flush(&mut self, request: usize, progress: &Progress<'_>, gives_way: bool) {
        // The pages of full groups and the states follow with everything else.
        self.publish(request, &Progress { by: By::Departure { gives_way }, ..*progress });
        if self.host.is_none() {
            return;
        }
        let computed_pages = (progress.computed / self.p) as usize;
        let (states, histories): (Vec<usize>, Vec<usize>) =
            (0..self.groups.len()).partition(|&group| self.groups[group].shape == Shape::State);
        let cached = |key: &Key| self.device.index.contains_key(key);
        let mut wanted: Vec<Key> = Vec::new();
        for group in histories {
            let slots = 0..computed_pages * self.per_page(group);
            let keys = slots.map(|slot| self.key(group, progress.tokens, slot));
            wanted.extend(keys.filter(cached));
        }
        // The snapshots come behind everything else, as in the published wheel.
        for group in states {
            let pages = computed_pages.min((progress.prompt / self.p) as usize);
            let snapshots = (1..=pages).map(|page| page * self.per_page(group) - 1);
            let keys = snapshots.map(|slot| self.key(group, progress.tokens, slot));
            wanted.extend(keys.rev().find(cached));
        }
        self.queued.extend(wanted);
    }

    /// Starts the queued stores as one operation; its number, if there is anything to copy.
    pub fn start_stores(&mut self, guard: Guard) -> Option<u64> {
        let mut missing: Vec<Key> = Vec::new();
        for key in std::mem::take(&mut self.queued) {
            let storing = |copy: &Copy| {
                matches!(copy, Copy::Store(..)) && copy.orders().iter().any(|o| o.key == key)
            };
            let skipped = !self.device.index.contains_key(&key)
                || self.host.as_ref().is_some_and(|host| host.index.contains_key(&key))
                || self.in_flight.values().any(storing)
                || missing.contains(&key);
            if !skipped {
                missing.push(key);
            }
        }
        let targets = self.host_blocks(&missing);
        let mut batch: Vec<(Order, Entry)> = Vec::new();
        for (key, host) in missing.into_iter().zip(targets) {
            let Some(host) = host else { continue };
            let entry = self.device.index[&key].clone();
            if guard == Guard::PinnedUntilAck {
                self.device.own(key.group, entry.block);
            }
            let order = Order { key, device: entry.block, host };
            batch.push((order, Entry { block: host, acquired: false, ..entry }));
        }
        (!batch.is_empty()).then(|| self.number(Copy::Store(guard, batch)))
    }

    /// "A free one, else the least valuable cached block of the same group, else a whole parent of
    /// another group all of whose blocks are unpinned (the one whose most valuable block is least)."
    /// A batch goes through the three as a whole: all that is free is used before anything is given up.
    fn host_blocks(&mut self, keys: &[Key]) -> Vec<Option<BlockId>> {
        let Some(host) = &mut self.host else {
            return Vec::new();
        };
        let mut found: Vec<Option<BlockId>> = keys.iter().map(|key| host.take(key.group)).collect();
        for group in 0..self.groups.len() {
            let open: Vec<usize> = (0..keys.len())
                .filter(|&at| keys[at].group == group && found[at].is_none())
                .collect();
            let least = host.by_host_value().into_iter().filter(|block| block.0 == group);
            for (_, block) in least.take(open.len()).collect::<Vec<_>>() {
                host.evict(group, block);
            }
            for at in open {
                found[at] = host.take(group);
            }
        }
        for (at, key) in
            keys.iter().enumerate().filter(|(at, _)| found[*at].is_none()).collect::<Vec<_>>()
        {
            found[at] = host.take(key.group).or_else(|| {
                let parent = least_valuable_parent(host, key.group)?;
                for (bound, block) in host.used_in(parent).collect::<Vec<_>>() {
                    host.evict(bound, block);
                }
                host.take(key.group)
            });
        }
        found
    }

    pub fn number(&mut self, copy: Copy) -> u64 {
        self.in_flight.insert(self.next_op, copy);
        self.next_op += 1;
        self.next_op - 1
    }

    /// "Copies Host blocks into fresh Device blocks and pins both ends until acknowledged. Its
    /// destinations are indexed on the Device at admission." One whose key the Device has already is
    /// registered as any other block (§4): the slot is re-pointed. The copies of one group.
    pub fn load(&mut self, request: usize, group: usize, first: First<'_>) -> Vec<Order> {
        let epoch = self.holdings[&request].epoch;
        let start = self.host_start(group, first.found);
        self.holdings.get_mut(&request).expect("claimed").tables[group].resize(start, 0);
        let mut orders = Vec::new();
        for slot in self.slots_to_load(group, first.found) {
            let key = self.key(group, first.tokens, slot);
            let host = self.host.as_mut().expect("a Host hit");
            let entry = host.index.get_mut(&key).expect("a Host hit");
            entry.epoch = epoch;
            entry.acquired = true;
            let source = entry.block;
            host.own(group, source);
            let device = self.device.take(group).expect("it fits");
            self.device.own(group, device);
            orders.push(Order { key: key.clone(), device, host: source });
            let table = &mut self.holdings.get_mut(&request).expect("claimed").tables[group];
            table.push(device);
            if let Some(there) = self.device.index.get_mut(&key) {
                // Converged on, not acquired: it was no hit.
                there.epoch = epoch;
                let canonical = there.block;
                table[slot] = canonical;
                self.device.own(group, canonical);
                self.device.disown(group, device);
            } else {
                // A new entry of the Device's index: what the Host's was worth does not count.
                let kind = Kind::Chunk;
                let entry = Entry { block: device, epoch, slot, kind, acquired: false };
                self.device.index.insert(key, entry);
            }
        }
        orders
    }

    /// An operation has ended; an unknown number is ignored.
    pub fn acknowledge(&mut self, op: u64) {
        match self.in_flight.remove(&op) {
            None => {}
            Some(Copy::Store(guard, blocks)) => {
                let host = self.host.as_mut().expect("a store's tier");
                for (order, entry) in blocks {
                    let group = order.key.group;
                    if !self.void.contains(&op) {
                        // To enter the Host's index is an access.
                        self.epoch += 1;
                        let entry = Entry { epoch: self.epoch, ..entry };
                        host.index.entry(order.key).or_insert(entry);
                    }
                    host.disown(group, order.host);
                    if guard == Guard::PinnedUntilAck {
                        self.device.disown(group, order.device);
                    }
                }
            }
            Some(Copy::Load(blocks)) => {
                let host = self.host.as_mut().expect("a load's tier");
                for order in blocks {
                    host.disown(order.key.group, order.host);
                    self.device.disown(order.key.group, order.device);
                }
            }
        }
    }
}

/// Of the parents of other groups all of whose blocks are unpinned, the one whose most valuable block
/// is least.
fn least_valuable_parent(host: &SlowTier, group: usize) -> Option<u32> {
    let value = |parent: u32| host.used_in(parent).map(|(g, b)| host.host_value(g, b)).max();
    (1..=host.parents)
        .filter(|&parent| host.bound_to(parent).is_some_and(|bound| bound != group))
        .filter(|&parent| host.used_in(parent).all(|(g, b)| !host.is_owned(g, b)))
        .min_by_key(|&parent| value(parent))
}
