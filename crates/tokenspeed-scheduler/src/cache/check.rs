//! Conservation below admission: every block is owned, cached or free, and in one of these only; every
//! counter says what a walk would find (`liveness.md` 2).

use rustc_hash::FxHashMap;

use super::coordinator::Coordinator;
use super::geometry::{BlockId, GroupIndex};
use super::holdings::Holdings;
use super::pool::Pool;
use super::tier::{BlockKey, Tier};
use super::transfer::{StoreGuard, Transfer};
use super::unproven::Basis;
use crate::identity::PageId;

/// How many owners, tables and copies, each block should have.
type Owners = FxHashMap<(GroupIndex, BlockId), u32>;

macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(format!($($what)+));
        }
    };
}

impl Coordinator {
    /// Looks at both tiers, the named pages and the persistent tables, given what every request holds
    /// and names; the first broken invariant, in words.
    pub fn check<'a>(
        &self,
        requests: impl Iterator<Item = (&'a Holdings, &'a [PageId])>,
    ) -> Result<(), String> {
        let mut device: Owners = Owners::default();
        let mut host: Owners = Owners::default();
        let mut names: FxHashMap<PageId, u32> = FxHashMap::default();
        let mut held_cells = vec![0; self.geometries.len()];
        let mut promised = vec![0; self.geometries.len()];
        let mut witnesses: FxHashMap<Basis, u32> = FxHashMap::default();
        let mut count = |page: PageId| *names.entry(page).or_insert(0) += 1;
        for (holdings, pages) in requests {
            pages.iter().for_each(|&page| count(page));
            self.check_holdings(holdings, pages, &mut device, &mut held_cells)?;
            holdings.forwards.iter().for_each(|&f| *witnesses.entry(f).or_insert(0) += 1);
            for (sum, held) in promised.iter_mut().zip(&holdings.groups) {
                *sum += held.promised_blocks;
            }
        }
        ensure!(
            promised == self.promised,
            "{:?} blocks are promised, not {promised:?}",
            self.promised
        );
        for (group, &cells) in held_cells.iter().enumerate() {
            let table = self.persistent.group(group);
            let nonzero = (0..table.cells.len()).filter(|&at| table.get(0, at) != 0).count();
            ensure!(
                nonzero == cells,
                "group {group}: {nonzero} cells are set, {cells} slots are held"
            );
        }
        for (_, transfer) in self.transfers.in_flight() {
            let (blocks, pins_device) = match transfer {
                Transfer::Store { guard, blocks } => (blocks, *guard == StoreGuard::PinnedUntilAck),
                Transfer::Load { blocks, chain, .. } => {
                    chain.iter().for_each(|&page| count(page));
                    (blocks, true)
                }
            };
            for copy in blocks {
                *host.entry((copy.group, copy.host)).or_insert(0) += 1;
                if pins_device {
                    *device.entry((copy.group, copy.device)).or_insert(0) += 1;
                }
                count(copy.key.page);
            }
        }
        self.transfers.pending.iter().for_each(|&(_, key)| count(key.page));
        let mut watched = 0;
        for (basis, named, known) in self.unproven.all() {
            named.values().for_each(|&page| count(page));
            watched += usize::from(matches!(basis, Basis::Load(_)));
            let found = witnesses.get(&basis).copied().unwrap_or(0);
            ensure!(known == found, "{basis:?} has {found} witnesses, not {known}");
        }
        let loads = self.transfers.loads_in_flight();
        ensure!(loads == watched, "{loads} loads are in flight, and {watched} are watched");
        self.device.check("Device", &device, &mut count)?;
        if let Some(tier) = &self.host {
            tier.check("Host", &host, &mut count)?;
        }
        if let Some(events) = &self.events {
            events.check(&self.geometries, &self.device, &mut count)?;
        }
        let named = names.len();
        ensure!(
            named == self.pages.len(),
            "{} pages are named, {named} should be",
            self.pages.len()
        );
        for (page, references) in names {
            let counted = self.pages.references(page);
            ensure!(counted == references, "{page:?} has {counted} references, not {references}");
        }
        Ok(())
    }

    fn check_holdings(
        &self,
        holdings: &Holdings,
        pages: &[PageId],
        owners: &mut Owners,
        held_cells: &mut [usize],
    ) -> Result<(), String> {
        for (group, held) in holdings.groups.iter().enumerate() {
            let geometry = &self.geometries[group];
            let owned = held.table.len() as i64 * geometry.block_granularity;
            let demanded = holdings.demanded_tokens(group);
            ensure!(
                (0..=owned).contains(&demanded),
                "group {group}: {demanded} tokens are demanded of {owned} owned"
            );
            for (slot, block) in held.table.held() {
                *owners.entry((group, block)).or_insert(0) += 1;
                held_cells[group] += 1;
                let cell = self.persistent.group(group).get(holdings.row as usize, slot);
                ensure!(
                    cell == block as i32,
                    "row {} slot {slot} of group {group} is {cell}, the table has {block}",
                    holdings.row
                );
                if let Some(key @ BlockKey { page, ordinal }) = self.device.key(group, block) {
                    let mut bases = self.unproven.bases_of(self.content_of((group, key)));
                    let known = |basis: &Basis| {
                        holdings.rests_on.contains(basis) || holdings.forwards.contains(basis)
                    };
                    let unknown = bases.find(|basis| !known(basis));
                    ensure!(
                        unknown.is_none(),
                        "slot {slot} of group {group} rests on {unknown:?}, and nobody knows"
                    );
                    let at = slot / geometry.blocks_per_page;
                    let own = slot % geometry.blocks_per_page == usize::from(ordinal)
                        && pages.get(at) == Some(&page);
                    ensure!(own, "slot {slot} of group {group} holds a block of other tokens");
                    ensure!(
                        at < holdings.published_pages,
                        "page {at} is cached, {} pages are published",
                        holdings.published_pages
                    );
                }
            }
        }
        Ok(())
    }
}

impl Tier {
    fn check(
        &self,
        name: &str,
        owners: &Owners,
        mut count: impl FnMut(PageId),
    ) -> Result<(), String> {
        let groups = self.pool.num_groups();
        let mut pinned_in: FxHashMap<u32, u32> = FxHashMap::default();
        for group in 0..groups {
            let (mut cached, mut evictable) = (0, 0);
            for block in self.block_ids(group) {
                let expected = owners.get(&(group, block)).copied().unwrap_or(0);
                let found = self.owners(group, block);
                ensure!(
                    found == expected,
                    "{name} block {block} of group {group} has {found} owners, not {expected}"
                );
                let key = self.key(group, block);
                ensure!(
                    self.pool.is_in_use(group, block) == (found > 0 || key.is_some()),
                    "{name} block {block} of group {group} is neither owned nor cached, yet in use, \
                     or the reverse"
                );
                if found > 0 {
                    let parent = self.pool.occupancy(group, block).parent;
                    *pinned_in.entry(parent).or_insert(0) += 1;
                }
                let Some(key) = key else { continue };
                count(key.page);
                cached += 1;
                evictable += usize::from(found == 0);
                let canonical = self.lookup(group, key.page, usize::from(key.ordinal));
                ensure!(
                    canonical == block,
                    "{name} block {block} of group {group} is not canonical"
                );
            }
            ensure!(
                cached == self.cached_blocks(group),
                "{name} group {group}: cached count is off"
            );
            ensure!(
                evictable == self.evictable_blocks(group)
                    && evictable == self.in_order(group).count(),
                "{name} group {group}: the eviction order misses a block or has one too many"
            );
            ensure!(
                self.in_order(group).is_sorted(),
                "{name} group {group}: the eviction order is not one"
            );
            let owned = self.in_order(group).find(|&(_, block)| self.owners(group, block) > 0);
            ensure!(
                owned.is_none(),
                "{name} group {group}: {owned:?} is owned and may be given up"
            );
        }
        self.pool.check(name, groups, &pinned_in)
    }
}

impl Pool {
    fn check(
        &self,
        name: &str,
        groups: usize,
        pinned_in: &FxHashMap<u32, u32>,
    ) -> Result<(), String> {
        let mut free = vec![0; groups];
        let mut slack = vec![0; groups];
        let (mut bound, mut unpinned) = (0, 0);
        for (parent, group, used) in self.bound_parents() {
            let k = self.blocks_per_parent(group);
            let in_use = self.used_blocks(group, parent).count() as u32;
            ensure!(
                used == in_use,
                "{name} parent {parent} counts {used} used slots, not {in_use}"
            );
            let pinned = pinned_in.get(&parent).copied().unwrap_or(0);
            bound += 1;
            free[group] += (k - used) as usize;
            unpinned += usize::from(pinned == 0);
            slack[group] += if pinned == 0 { 0 } else { (k - pinned) as usize };
        }
        ensure!(
            bound + self.empty_parents() == self.total_parents(),
            "{name}: {bound} parents bound and {} empty of {}",
            self.empty_parents(),
            self.total_parents()
        );
        ensure!(unpinned == self.unpinned_parents(), "{name}: unpinned parents are miscounted");
        for group in 0..groups {
            ensure!(free[group] == self.free_slots(group), "{name} group {group}: free slots");
            ensure!(slack[group] == self.slack_slots(group), "{name} group {group}: slack slots");
        }
        Ok(())
    }
}
