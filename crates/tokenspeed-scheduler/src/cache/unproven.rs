//! What rests on loads that have not landed. Their destinations are indexed when they are ordered
//! (`cache.md` §8), and others compute over them before the word comes: should it be bad, all that was
//! named over such a load holds nothing (`liveness.md` 3).

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::admission::FirstAdmission;
use super::coordinator::Coordinator;
use super::geometry::{GroupIndex, HOLE};
use super::tier::BlockKey;
use super::transfer::OpId;

/// What a tier names of a group.
pub(super) type NamedBlock = (GroupIndex, BlockKey);

/// By load in flight, what is named over it: its own destinations, and what was computed over them and
/// published. Each has a hold on its page's name.
#[derive(Debug, Default)]
pub struct Unproven(BTreeMap<OpId, FxHashSet<NamedBlock>>);

impl Unproven {
    /// Loads in flight.
    pub fn num_loads(&self) -> usize {
        self.0.len()
    }

    /// Whether the load is in flight.
    pub fn has(&self, load: OpId) -> bool {
        self.0.contains_key(&load)
    }

    /// The loads that the block rests on.
    pub(super) fn loads_under(&self, block: NamedBlock) -> impl Iterator<Item = OpId> + '_ {
        self.0.iter().filter(move |(_, over)| over.contains(&block)).map(|(&load, _)| load)
    }

    /// Each load in flight, with all that rests on it.
    pub fn all(&self) -> impl Iterator<Item = (OpId, &FxHashSet<NamedBlock>)> + '_ {
        self.0.iter().map(|(&load, over)| (load, over))
    }
}

impl Coordinator {
    /// A load has been ordered, into these destinations among others, which the index names.
    pub(super) fn load_is_ordered(&mut self, load: OpId, named: Vec<NamedBlock>) {
        self.unproven.0.insert(load, FxHashSet::default());
        named.into_iter().for_each(|block| self.name_over(load, block));
    }

    /// The loads in flight under a hit.
    pub(super) fn loads_under_hit(&self, first: FirstAdmission<'_>) -> Vec<OpId> {
        let mut loads = Vec::new();
        if self.unproven.num_loads() == 0 {
            return loads;
        }
        for (group, span) in first.hit.groups.iter().enumerate() {
            let per_page = self.geometries[group].blocks_per_page;
            for slot in span.device.clone().chain(span.host.clone()) {
                let ordinal = (slot % per_page) as u16;
                let key = BlockKey { page: first.pages[slot / per_page], ordinal };
                loads.extend(self.unproven.loads_under((group, key)));
            }
        }
        loads.sort_unstable();
        loads.dedup();
        loads
    }

    /// A request publishes a block that the Device did not name; `loads` are those that it rests on, of
    /// which only those in flight are kept. A name that was given over a load before, and lost, counts
    /// as given over it again: the Host may have a copy.
    pub(super) fn publish_over(&mut self, loads: &mut Vec<OpId>, block: NamedBlock) {
        if self.unproven.num_loads() == 0 {
            return loads.clear();
        }
        self.rest_on(loads, block);
        loads.retain(|&load| self.unproven.has(load));
        loads.iter().for_each(|&load| self.name_over(load, block));
    }

    /// A request goes on over a block that somebody else has published.
    pub(super) fn rest_on(&self, loads: &mut Vec<OpId>, block: NamedBlock) {
        let more = self.unproven.loads_under(block).filter(|load| !loads.contains(load));
        let more: Vec<OpId> = more.collect();
        loads.extend(more);
    }

    fn name_over(&mut self, load: OpId, block: NamedBlock) {
        let over = self.unproven.0.get_mut(&load).expect("the load is in flight");
        if over.insert(block) {
            self.pages.retain(block.1.page);
        }
    }

    /// A load has landed: what rests on it holds what its key says, as far as this load goes.
    pub(super) fn load_has_landed(&mut self, load: OpId) {
        let over = self.unproven.0.remove(&load).expect("the load was in flight");
        over.iter().for_each(|(_, key)| self.pages.release(key.page));
    }

    /// A load has failed: all that was named over it leaves both indices, and the stores on their way.
    pub(super) fn load_has_failed(&mut self, load: OpId) {
        let over = self.unproven.0.remove(&load).expect("the load was in flight");
        // In an order that every rank shares.
        let mut over: Vec<NamedBlock> = over.into_iter().collect();
        over.sort_unstable_by_key(|&(group, key)| (group, key.page.index(), key.ordinal));
        for &(group, key) in &over {
            let ordinal = usize::from(key.ordinal);
            let block = self.device.lookup(group, key.page, ordinal);
            if block != HOLE {
                self.evict_from_device(group, block);
            }
            if let Some(host) = &mut self.host {
                let block = host.lookup(group, key.page, ordinal);
                if block != HOLE {
                    host.evict(&mut self.pages, group, block);
                }
            }
            self.transfers.disown(group, key);
        }
        over.iter().for_each(|(_, key)| self.pages.release(key.page));
    }
}
