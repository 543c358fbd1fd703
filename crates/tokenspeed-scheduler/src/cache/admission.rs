//! Admission: all or nothing, with the least eviction that makes it fit (`cache.md` §7).

use super::coordinator::{Coordinator, PARENT_WEIGHT};
use super::demand::{Demand, Growth};
use super::fetch::Load;
use super::geometry::{BlockId, GroupIndex, HOLE};
use super::holdings::{Holdings, Progress};
use super::ledger::{Ledger, Obstacle};
use super::matcher::Hit;
use super::order::Rank;
use crate::identity::PageId;

/// Why an admission is refused now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoCapacity {
    /// The Device's pool cannot hold what it asks for.
    Device,
    /// The Host's pool cannot hold what its hit has to fetch: a shorter hit can be tried.
    Host,
}

/// What only a first admission brings: the probe's result and the pages that it is about.
#[derive(Debug, Clone, Copy)]
pub struct FirstAdmission<'a> {
    /// What was found.
    pub hit: &'a Hit,
    /// The request's complete pages, from the first on.
    pub pages: &'a [PageId],
    /// The request's tokens.
    pub tokens: &'a [i32],
    /// The row that the request gets.
    pub row: i32,
}

/// A block that an admission may take: cached and unpinned, or the request's own and expired.
type Candidate = (Rank, GroupIndex, BlockId);

impl Coordinator {
    /// Grants `demands` (one a group) to a request, with its hit if this is its first admission, and
    /// publishes its progress; or changes nothing.
    ///
    /// Fresh blocks are appended to `fresh`, one list a group: they are the plan's pages to zero.
    pub fn admit(
        &mut self,
        holdings: &mut Holdings,
        first: Option<FirstAdmission<'_>>,
        demands: &[Demand],
        progress: Progress<'_>,
        fresh: &mut [Vec<i32>],
    ) -> Result<(), NoCapacity> {
        if first.is_none() && !self.could_grow(holdings, demands, progress.computed_tokens) {
            return Err(NoCapacity::Device);
        }
        let growth = self.growth(holdings, first, demands);
        let needed = needed(&growth, first);
        let kept = self.kept_for_others(holdings, &growth);
        // The hits are claimed before anything is given up, so that they cannot be.
        let claimed = first.map(|first| self.claim(first));
        let expiring = self.expiring_in_order(holdings, progress.computed_tokens);
        let victims = self.victims(&needed, &kept, &expiring).ok_or(NoCapacity::Device);
        let granted = victims.and_then(|victims| Ok((victims, self.take_fetches(first)?)));
        let (victims, mut load) = match granted {
            Ok(granted) => granted,
            Err(refused) => {
                if let Some(claimed) = claimed {
                    self.unclaim(&claimed);
                }
                return Err(refused);
            }
        };
        let own = |victim: &&Candidate| expiring.iter().any(|c| (c.1, c.2) == (victim.1, victim.2));
        for &(_, group, block) in victims.iter().filter(|victim| !own(victim)) {
            self.evict_from_device(group, block);
        }
        self.publish_and_expire(holdings, progress);
        for &(_, group, block) in victims.iter().filter(own) {
            // The block may be free by now, or shared: then there is nothing to give up.
            let cached = self.device.key(group, block).is_some();
            if cached && self.device.owners(group, block) == 0 {
                self.evict_from_device(group, block);
            }
        }
        if let (Some(first), Some(claimed)) = (first, claimed) {
            self.settle_claims(holdings, first, &claimed);
        }
        for group in 0..growth.len() {
            if let Some(first) = first {
                self.append_loads(holdings, group, first, &mut load);
            }
            self.grow(holdings, group, demands[group], growth[group], &mut fresh[group]);
        }
        if let Some(first) = first {
            holdings.rests_on = self.bases_of_hit(first);
            holdings.rests_on.extend(self.finish_load(load, first));
        }
        Ok(())
    }

    /// Whether a first admission would leave `left` blocks a group to be had. Nothing changes by it.
    pub fn leaves(
        &mut self,
        holdings: &Holdings,
        first: FirstAdmission<'_>,
        demands: &[Demand],
        left: &[i64],
    ) -> bool {
        let needed = needed(&self.growth(holdings, Some(first), demands), Some(first));
        let claimed = self.claim(first);
        let all: Vec<i64> = needed.iter().zip(left).map(|(needed, left)| needed + left).collect();
        let fits = Ledger::new(&self.device.pool, all.len(), Obstacle::Pinned).fits(&all);
        self.unclaim(&claimed);
        fits
    }

    /// What a first admission behind this hit needs, its loads included or not, in the measure of
    /// [`Coordinator::room`].
    pub fn need(&self, hit: &Hit, demands: &[Demand], with_loads: bool) -> u64 {
        let blocks = |group: GroupIndex| {
            let geometry = &self.geometries[group];
            let slots = geometry.hit_slots(hit.total_pages);
            let growth = demands[group].growth(slots, self.tokens_of(hit.total_pages), geometry);
            growth.blocks + if with_loads { hit.host_blocks(group) } else { 0 }
        };
        let weight =
            |group: GroupIndex| PARENT_WEIGHT / u64::from(self.geometries[group].blocks_per_parent);
        (0..demands.len()).map(|group| blocks(group) as u64 * weight(group)).sum()
    }

    /// Whether a resident's demands fit at all, with everything gone that could be: a request that lacks
    /// a block asks again in every round.
    fn could_grow(&self, holdings: &Holdings, demands: &[Demand], computed_tokens: i64) -> bool {
        let blocks = demands.iter().enumerate().map(|(group, demand)| {
            let slots = holdings.groups[group].table.len();
            let demanded = holdings.demanded_tokens(group);
            demand.growth(slots, demanded, &self.geometries[group]).blocks
        });
        self.device.pool.could_hold(blocks) || self.expires(holdings, computed_tokens)
    }

    fn growth(
        &self,
        holdings: &Holdings,
        first: Option<FirstAdmission<'_>>,
        demands: &[Demand],
    ) -> Vec<Growth> {
        demands
            .iter()
            .enumerate()
            .map(|(group, demand)| {
                let geometry = &self.geometries[group];
                let (slots, demanded) = match first {
                    None => (holdings.groups[group].table.len(), holdings.demanded_tokens(group)),
                    Some(FirstAdmission { hit, .. }) => {
                        (geometry.hit_slots(hit.total_pages), self.tokens_of(hit.total_pages))
                    }
                };
                demand.growth(slots, demanded, geometry)
            })
            .collect()
    }

    /// The Device blocks of a hit, one list a group, each with one more owner.
    fn claim(&mut self, first: FirstAdmission<'_>) -> Vec<Vec<BlockId>> {
        let mut claimed = Vec::with_capacity(first.hit.groups.len());
        for (group, span) in first.hit.groups.iter().enumerate() {
            let per_page = self.geometries[group].blocks_per_page;
            let blocks: Vec<BlockId> = span
                .device
                .clone()
                .map(|slot| {
                    self.device.lookup(group, first.pages[slot / per_page], slot % per_page)
                })
                .collect();
            for &block in &blocks {
                self.device.retain(group, block);
            }
            claimed.push(blocks);
        }
        claimed
    }

    fn unclaim(&mut self, claimed: &[Vec<BlockId>]) {
        for (group, blocks) in claimed.iter().enumerate() {
            for &block in blocks.iter().rev() {
                self.device.release(group, block);
            }
        }
    }

    /// What this admission's retention lets go counts as given up (`cache.md` §7, 3), in eviction order.
    fn expiring_in_order(&self, holdings: &Holdings, computed_tokens: i64) -> Vec<Candidate> {
        let ranked = |(group, block)| (self.device.rank(group, block), group, block);
        let mut expiring: Vec<Candidate> =
            self.expiring(holdings, computed_tokens).map(ranked).collect();
        expiring.sort_unstable();
        expiring
    }

    /// Blocks that have to stay to be had: what others were promised, and what this admission promises.
    /// Who redeems a promise of its own looks to nobody.
    fn kept_for_others(&self, holdings: &Holdings, growth: &[Growth]) -> Vec<i64> {
        let redeems = holdings.groups.iter().any(|held| held.promised_blocks > 0);
        let kept =
            |(all, own): (&i64, &Growth)| if redeems { 0 } else { all + own.promised as i64 };
        self.promised.iter().zip(growth).map(kept).collect()
    }

    /// Whom to give up for `needed`: the least that makes it fit, and more only where `kept` could not be
    /// had any more. `None` where both do not fit together.
    fn victims(
        &mut self,
        needed: &[i64],
        kept: &[i64],
        expiring: &[Candidate],
    ) -> Option<Vec<Candidate>> {
        let victims = self.least_eviction(needed, expiring)?;
        if kept.iter().all(|&blocks| blocks == 0) || self.keeps(kept, needed, &victims) {
            return Some(victims);
        }
        let together: Vec<i64> = needed.iter().zip(kept).map(|(n, k)| n + k).collect();
        self.least_eviction(&together, expiring)
    }

    /// Whether `kept` could still be had behind this grant. Played on a copy of the pool: what is granted
    /// spreads over parents that hold cached blocks, and those are whole parents no more.
    fn keeps(&self, kept: &[i64], needed: &[i64], victims: &[Candidate]) -> bool {
        let mut pool = self.device.pool.clone();
        for &(_, group, block) in victims {
            if self.device.owners(group, block) > 0 {
                pool.unpin(group, block);
            }
            pool.release(group, block);
        }
        let granted = needed
            .iter()
            .enumerate()
            .all(|(group, &blocks)| (0..blocks).all(|_| pool.acquire(group).is_some()));
        granted && Ledger::new(&pool, self.geometries.len(), Obstacle::Pinned).fits(kept)
    }

    /// The least set of candidates without which `needed` fits: given up one at a time in eviction
    /// order until it does, then trimmed newest first. `None` where not even all of them suffice.
    fn least_eviction(&mut self, needed: &[i64], expiring: &[Candidate]) -> Option<Vec<Candidate>> {
        let groups = self.geometries.len();
        if Ledger::new(&self.device.pool, groups, Obstacle::Used).fits(needed) {
            return Some(Vec::new());
        }
        let mut all = Ledger::new(&self.device.pool, groups, Obstacle::Pinned);
        expiring.iter().for_each(|&(_, group, block)| all.give_up(group, block));
        if !all.fits(needed) {
            return None;
        }
        self.device.settle_order();
        let mut ledger = Ledger::new(&self.device.pool, groups, Obstacle::Used);
        let mut queues: Vec<_> = (0..groups)
            .map(|group| {
                self.device
                    .in_order(group)
                    .map(move |(rank, block)| (rank, group, block))
                    .peekable()
            })
            .collect();
        let mut own = expiring.iter().copied().peekable();
        let mut given: Vec<Candidate> = Vec::new();
        while !ledger.fits(needed) {
            let least = queues.iter_mut().enumerate().filter_map(|(at, q)| Some((*q.peek()?, at)));
            let next = match (least.min(), own.peek()) {
                (Some((cached, _)), Some(expired)) if *expired < cached => own.next(),
                (Some((_, at)), _) => queues[at].next(),
                (None, _) => own.next(),
            };
            let next = next.expect("the candidates suffice together");
            ledger.give_up(next.1, next.2);
            given.push(next);
        }
        for at in (0..given.len()).rev() {
            let (_, group, block) = given[at];
            ledger.keep(group, block);
            if ledger.fits(needed) {
                given.remove(at);
            } else {
                ledger.give_up(group, block);
            }
        }
        Some(given)
    }

    /// Makes the slots of a group that retention has passed holes.
    pub(super) fn expire(
        &mut self,
        holdings: &mut Holdings,
        group: GroupIndex,
        computed_tokens: i64,
    ) {
        let retained = self.geometries[group].first_retained_slot(computed_tokens);
        let mut cells = self.persistent.row(group, holdings.row);
        let table = &mut holdings.groups[group].table;
        table.expire(&mut cells, retained, |block| self.device.release(group, block));
    }

    /// Opens the holdings with what the hit claimed on the Device, holes below it.
    fn settle_claims(
        &mut self,
        holdings: &mut Holdings,
        first: FirstAdmission<'_>,
        claimed: &[Vec<BlockId>],
    ) {
        holdings.row = first.row;
        holdings.epoch = self.next_epoch();
        holdings.published_pages = first.hit.total_pages;
        holdings.promotion_boundary = first.hit.promotion_boundary_pages.map(|p| self.tokens_of(p));
        for (group, span) in first.hit.groups.iter().enumerate() {
            let mut cells = self.persistent.row(group, first.row);
            let held = &mut holdings.groups[group];
            debug_assert!(held.table.is_empty(), "a first admission finds empty tables");
            held.demanded_tokens = first.hit.total_pages as i64 * self.granularity;
            for _ in 0..span.device.start {
                held.table.push(&mut cells, HOLE);
            }
            for &block in &claimed[group] {
                self.device.acquired_by(group, block, holdings.epoch);
                held.table.push(&mut cells, block);
            }
        }
    }

    /// Appends the destinations of a group's loads, holes below them.
    fn append_loads(
        &mut self,
        holdings: &mut Holdings,
        group: GroupIndex,
        first: FirstAdmission<'_>,
        load: &mut Load,
    ) {
        let span = &first.hit.groups[group];
        let mut cells = self.persistent.row(group, first.row);
        for _ in span.device.end..span.host.start {
            holdings.groups[group].table.push(&mut cells, HOLE);
        }
        for slot in span.host.clone() {
            let block = self.load_slot(group, slot, first, holdings.epoch, load);
            let mut cells = self.persistent.row(group, first.row);
            holdings.groups[group].table.push(&mut cells, block);
        }
    }

    /// Appends the fresh blocks of a group's demand, holes below them.
    fn grow(
        &mut self,
        holdings: &mut Holdings,
        group: GroupIndex,
        demand: Demand,
        growth: Growth,
        fresh: &mut Vec<i32>,
    ) {
        let demanded_tokens = holdings.demanded_tokens(group);
        let held = &mut holdings.groups[group];
        let mut cells = self.persistent.row(group, holdings.row);
        for _ in 0..growth.holes {
            held.table.push(&mut cells, HOLE);
        }
        for _ in 0..growth.blocks {
            let block = self.device.acquire(group).expect("admission has made room");
            held.table.push(&mut cells, block);
            fresh.push(block as i32);
        }
        held.demanded_tokens = demand.demanded_after(demanded_tokens);
        self.promised[group] += growth.promised as i64 - held.promised_blocks;
        held.promised_blocks = growth.promised as i64;
    }
}

/// Blocks that each group needs: its growth, and a destination for each Host hit (`cache.md` §7, 1).
fn needed(growth: &[Growth], first: Option<FirstAdmission<'_>>) -> Vec<i64> {
    let loads = |group| first.map_or(0, |first| first.hit.host_blocks(group));
    growth.iter().enumerate().map(|(g, growth)| (growth.blocks + loads(g)) as i64).collect()
}
