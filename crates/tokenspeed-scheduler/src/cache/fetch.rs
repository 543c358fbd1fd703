//! Host hits that must first be fetched from an external store, L3 (`cache.md` §8; `scheduler.md` §1,
//! L3 Host prefetch).

use super::admission::{FirstAdmission, NoCapacity};
use super::coordinator::Coordinator;
use super::geometry::{BlockId, Geometry, GroupIndex, HOLE};
use super::ledger::{Ledger, Obstacle};
use super::matcher::{self, Bounds, Hit, Holds};
use super::stored::{StoredKey, StoredKeys};
use super::tier::{BlockKey, BoundaryKind, EntryFacts, Tier};
use super::transfer::BlockCopy;
use crate::identity::{PageId, PrefixPages};

/// A load in the making.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Its blocks so far.
    pub blocks: Vec<BlockCopy>,
    /// Host blocks for what is fetched, in the order in which the slots will take them.
    pub fetches: std::vec::IntoIter<BlockId>,
}

/// A block that the hit takes from the Host.
#[derive(Debug, Clone, Copy)]
struct Slot {
    group: GroupIndex,
    /// In the request's table.
    slot: usize,
    key: BlockKey,
}

/// The Host, and what could be fetched into it.
struct Reachable<'a> {
    host: &'a Tier,
    stored: &'a StoredKeys,
    names: &'a PrefixPages,
    geometries: &'a [Geometry],
}

impl Holds for Reachable<'_> {
    fn has(&self, group: GroupIndex, page: PageId, ordinal: usize) -> bool {
        self.host.has(group, page, ordinal)
            || self.stored.contains(&(group, *self.names.hash(page), ordinal as u16))
    }

    fn has_page(&self, group: GroupIndex, page: PageId) -> bool {
        (0..self.geometries[group].blocks_per_page).all(|ordinal| self.has(group, page, ordinal))
    }
}

impl Coordinator {
    /// An external store holds a block. Not believed of what a store on its way turned out not to bring.
    pub fn register_stored(&mut self, key: StoredKey) {
        let (group, hash, ordinal) = key;
        let page = self.pages.find(&hash);
        let void = |page| self.transfers.is_storing_void(group, BlockKey { page, ordinal });
        if page.is_some_and(void) {
            return;
        }
        self.stored.insert(key);
        self.newly_cached.extend(page);
    }

    /// It does not, or no more.
    pub fn unregister_stored(&mut self, key: &StoredKey) {
        self.stored.remove(key);
    }

    /// Whether anything of a hit has to be fetched first.
    pub fn fetches(&self, hit: &Hit, pages: &[PageId]) -> bool {
        !self.stored.is_empty() && self.host_slots(hit, pages).any(|slot| !self.is_on_host(&slot))
    }

    /// The hit, shortened until the Host can hold all that it has to fetch: to the page of the first block
    /// that finds no place, and again, since the other groups settle anew at every shorter length (cutting
    /// a window can leave a hole in it). Where a closed group is cut, its cover ends there, and the
    /// promotion boundary with it.
    pub(super) fn probe_with_storage(&mut self, pages: &[PageId]) -> Hit {
        let mut bounds = Bounds::all_of(pages);
        loop {
            let hit = self.probe_reachable(pages, bounds);
            let slots: Vec<Slot> = self.host_slots(&hit, pages).collect();
            let Some((group, slot)) = self.first_without_place(&slots) else {
                return Hit { lacks_host_place: bounds.total < pages.len(), ..hit };
            };
            let geometry = &self.geometries[group];
            bounds.total = slot / geometry.blocks_per_page;
            if geometry.is_prefix_closed() {
                bounds.cover = bounds.total;
            }
        }
    }

    fn probe_reachable(&self, pages: &[PageId], bounds: Bounds) -> Hit {
        let reachable = self.host.as_ref().map(|host| Reachable {
            host,
            stored: &self.stored,
            names: &self.pages,
            geometries: &self.geometries,
        });
        matcher::probe(&self.geometries, &self.device, reachable.as_ref(), pages, bounds)
    }

    /// What a hit takes from the Host, group by group.
    fn host_slots<'a>(
        &'a self,
        hit: &'a Hit,
        pages: &'a [PageId],
    ) -> impl Iterator<Item = Slot> + 'a {
        hit.groups.iter().enumerate().flat_map(move |(group, span)| {
            let per_page = self.geometries[group].blocks_per_page;
            span.host.clone().map(move |slot| Slot {
                group,
                slot,
                key: BlockKey::of(pages, slot, per_page),
            })
        })
    }

    fn is_on_host(&self, slot: &Slot) -> bool {
        self.host_block(slot) != HOLE
    }

    fn host_block(&self, Slot { group, key, .. }: &Slot) -> BlockId {
        let host = self.host.as_ref();
        host.map_or(HOLE, |host| host.lookup(*group, key.page, usize::from(key.ordinal)))
    }

    /// The first of the slots that must be fetched and that the Host has no room for, with all the others
    /// where they are.
    fn first_without_place(&mut self, slots: &[Slot]) -> Option<(GroupIndex, usize)> {
        if slots.iter().all(|slot| self.is_on_host(slot)) {
            return None;
        }
        let held = self.pin_on_host(slots);
        let host = self.host.as_ref().expect("a Host hit needs a Host tier");
        let ledger = Ledger::new(&host.pool, self.geometries.len(), Obstacle::Pinned);
        let mut needed = vec![0; self.geometries.len()];
        let mut missing = slots.iter().filter(|slot| !self.is_on_host(slot));
        let short = missing.find(|slot| {
            needed[slot.group] += 1;
            !ledger.fits(&needed)
        });
        let short = short.map(|slot| (slot.group, slot.slot));
        self.unpin_on_host(held);
        short
    }

    fn pin_on_host(&mut self, slots: &[Slot]) -> Vec<(GroupIndex, BlockId)> {
        let held = slots.iter().map(|slot| (slot.group, self.host_block(slot)));
        let held: Vec<_> = held.filter(|&(_, block)| block != HOLE).collect();
        let host = self.host.as_mut().expect("a Host hit needs a Host tier");
        held.iter().for_each(|&(group, block)| host.pin(group, block));
        held
    }

    fn unpin_on_host(&mut self, held: Vec<(GroupIndex, BlockId)>) {
        let host = self.host.as_mut().expect("a Host hit needs a Host tier");
        held.into_iter().for_each(|(group, block)| host.unpin(group, block));
    }

    /// A Host block for each slot of the hit that must be fetched. Refused, with nothing but cached Host
    /// blocks given up for it, where the order of placement leaves one without. What the hit reads stays.
    pub(super) fn take_fetches(
        &mut self,
        first: Option<FirstAdmission<'_>>,
    ) -> Result<Load, NoCapacity> {
        let Some(first) = first.filter(|first| self.fetches(first.hit, first.pages)) else {
            return Ok(Load::default());
        };
        let slots: Vec<Slot> = self.host_slots(first.hit, first.pages).collect();
        let held = self.pin_on_host(&slots);
        let missing = slots.iter().filter(|slot| !self.is_on_host(slot));
        let missing: Vec<_> = missing.map(|slot| (slot.group, slot.key)).collect();
        let found = self.host_blocks_for(&missing);
        self.unpin_on_host(held);
        if found.iter().all(Option::is_some) {
            let fetches: Vec<BlockId> = found.into_iter().flatten().collect();
            return Ok(Load { blocks: Vec::new(), fetches: fetches.into_iter() });
        }
        let host = self.host.as_mut().expect("a Host hit needs a Host tier");
        for (&(group, _), block) in missing.iter().zip(found) {
            block.into_iter().for_each(|block| host.release(group, block));
        }
        Err(NoCapacity::Host)
    }

    /// Starts the fetch and the load of one slot into a fresh Device block that nothing names yet.
    pub(super) fn fetch_slot(
        &mut self,
        group: GroupIndex,
        slot: usize,
        key: BlockKey,
        epoch: u64,
        load: &mut Load,
    ) -> BlockId {
        let host = load.fetches.next().expect("a Host block was taken for each fetch");
        let device = self.device.acquire(group).expect("admission has made room");
        self.device.pin(group, device);
        self.pages.retain(key.page);
        let kind = BoundaryKind::Chunk;
        let facts = EntryFacts { epoch, slot: slot as u32, kind, acquired: false };
        load.blocks
            .push(BlockCopy { fetched: true, ..BlockCopy::new(group, device, host, key, facts) });
        device
    }

    /// A fetch has succeeded: both ends hold what their key says.
    pub(super) fn index_fetched(&mut self, copy: BlockCopy, chain: &[PageId], tokens: &[i32]) {
        self.index_on_host(copy);
        let BlockCopy { group, device, key, facts, .. } = copy;
        if self.device.lookup(group, key.page, usize::from(key.ordinal)) == HOLE {
            let depth = chain.iter().position(|&page| page == key.page);
            let depth = depth.expect("a fetched page is one of its hit's");
            self.cache_on_device(group, device, key, facts, (&chain[..=depth], tokens));
        }
    }
}
