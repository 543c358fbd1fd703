//! A bench to put a cache on: groups in a line each, requests in another.

use tokenspeed_scheduler::cache::admission::{FirstAdmission, NoCapacity};
use tokenspeed_scheduler::cache::holdings::Computed;
use tokenspeed_scheduler::cache::{
    Coordinator, CopyOp, Demand, Hit, Holdings, Progress, StoreGuard,
};
use tokenspeed_scheduler::config::{CacheGroupConfig, GroupKind, SchedulerConfig};
use tokenspeed_scheduler::identity::{ContentHash, PageId};

use crate::groups;

/// A full group of blocks of `g` tokens, `k` of them in a parent.
pub fn full(g: i64, k: i64) -> CacheGroupConfig {
    groups::packed(groups::full("full", g), k)
}

/// A sliding group of `window` tokens.
pub fn sliding(g: i64, k: i64, window: i64) -> CacheGroupConfig {
    groups::packed(groups::sliding("sliding", g, window), k)
}

/// A state group.
pub fn state(g: i64, k: i64) -> CacheGroupConfig {
    groups::packed(groups::state("state", g), k)
}

/// One request.
pub struct Guest {
    tokens: Vec<i32>,
    pub pages: Vec<PageId>,
    pub holdings: Holdings,
    prompt: i64,
    computed: i64,
}

impl Guest {
    /// Its table in a group, holes as 0.
    pub fn table(&self, group: usize) -> &[u32] {
        self.holdings.groups[group].table.slots()
    }
}

pub struct Bench {
    pub cache: Coordinator,
    p: i64,
    rows: i32,
    pub fresh: Vec<Vec<i32>>,
}

impl Bench {
    /// A cache with pages of `p` tokens, so many usable parents, and a Host tier unless 0.
    pub fn new(p: i64, groups: &[CacheGroupConfig], device: i64, host: i64) -> Bench {
        let config = SchedulerConfig {
            prefix_granularity: p,
            num_device_pages: device + 1,
            num_host_pages: host + 1,
            max_scheduled_tokens: 1024,
            max_batch_size: 8,
            cache_groups: groups.to_vec(),
            ..SchedulerConfig::default()
        };
        Bench {
            cache: Coordinator::new(&config),
            p,
            rows: 0,
            fresh: vec![Vec::new(); groups.len()],
        }
    }

    /// A request of `tokens` that holds nothing yet.
    pub fn guest(&mut self, tokens: &[i32]) -> Guest {
        let hashes = ContentHash::pages_of(tokens, self.p as usize);
        Guest {
            tokens: tokens.to_vec(),
            pages: hashes.into_iter().map(|hash| self.cache.name_page(hash)).collect(),
            holdings: Holdings::none(self.fresh.len()),
            prompt: tokens.len() as i64,
            computed: 0,
        }
    }

    /// What the cache holds of a request's prompt but for its last token.
    pub fn probe(&mut self, guest: &Guest) -> Hit {
        self.cache.probe(&guest.pages[..((guest.prompt - 1) / self.p) as usize])
    }

    /// Its whole prompt in one chunk behind what is cached; `demands` in place of the usual ones.
    pub fn admit_with(&mut self, guest: &mut Guest, demands: &[Demand]) -> Result<Hit, NoCapacity> {
        let hit = self.probe(guest);
        self.rows += 1;
        let first = FirstAdmission {
            hit: &hit,
            pages: &guest.pages,
            tokens: &guest.tokens,
            row: self.rows,
        };
        self.fresh.iter_mut().for_each(Vec::clear);
        let admitted = self.cache.admit(
            &mut guest.holdings,
            Some(first),
            demands,
            Progress::NONE,
            &mut self.fresh,
        );
        admitted?;
        guest.computed = guest.prompt;
        if guest.prompt / self.p > hit.total_pages as i64 {
            guest.holdings.state_boundaries.push(guest.prompt / self.p * self.p);
        }
        Ok(hit)
    }

    /// As an engine would: a state group is filled from the last page boundary on.
    pub fn admit(&mut self, guest: &mut Guest) -> Result<Hit, NoCapacity> {
        let pages = self.probe(guest).total_pages;
        let begin = self.cache.tokens_of(pages);
        let aligned = guest.prompt / self.p * self.p;
        let from = if aligned > begin { aligned } else { guest.prompt };
        let demands: Vec<Demand> = self
            .cache
            .geometries()
            .iter()
            .map(|geometry| match geometry.kind {
                GroupKind::State => Demand::SparseSuffix {
                    extent: guest.prompt,
                    first_slot: geometry.slots_for(from) - 1,
                    reserve: 0,
                    promised: 0,
                },
                _ => Demand::Dense { tokens: guest.prompt - begin, reserve: 0 },
            })
            .collect();
        self.admit_with(guest, &demands)
    }

    /// A later admission: it publishes what is computed, makes holes, and asks for `demands`.
    pub fn step(&mut self, guest: &mut Guest, demands: &[Demand]) -> Result<(), NoCapacity> {
        let progress = progress(&guest.pages, &guest.tokens, guest.computed, self.p);
        self.fresh.iter_mut().for_each(Vec::clear);
        self.cache.admit(&mut guest.holdings, None, demands, progress, &mut self.fresh)
    }

    /// An admission that asks for nothing.
    pub fn publish(&mut self, guest: &mut Guest) {
        let demands = vec![Demand::Dense { tokens: 0, reserve: 0 }; self.fresh.len()];
        self.step(guest, &demands).expect("nothing is asked for");
    }

    /// Publishes and stores what is cached of it, as at its end.
    pub fn flush(&mut self, guest: &mut Guest) -> CopyOp {
        let progress = progress(&guest.pages, &guest.tokens, guest.computed, self.p);
        self.cache.flush(&mut guest.holdings, progress, Computed::Finish);
        self.cache.start_pending_stores(StoreGuard::PinnedUntilAck);
        self.cache.take_copies().0
    }

    /// Ends it; its store is acknowledged at once.
    pub fn finish(&mut self, mut guest: Guest) {
        let stores = self.flush(&mut guest);
        stores.op_ids.iter().for_each(|&op| self.cache.complete_transfer(op, true));
        self.leave(guest);
    }

    /// Lets a request go; nothing is published.
    pub fn leave(&mut self, mut guest: Guest) {
        self.cache.release(&mut guest.holdings);
        self.cache.forget_pages(&guest.pages);
    }

    /// The blocks of a group that the Device's index names, by id.
    pub fn cached(&self, group: usize) -> Vec<u32> {
        let device = self.cache.device();
        device.block_ids(group).filter(|&block| device.key(group, block).is_some()).collect()
    }

    /// Cached blocks that only the index owns, first to go first, all groups.
    pub fn eviction_order(&self) -> Vec<(usize, u32)> {
        let mut order: Vec<_> = (0..self.fresh.len())
            .flat_map(|group| {
                self.cache.device().in_order(group).map(move |(rank, block)| (rank, group, block))
            })
            .collect();
        order.sort();
        order.into_iter().map(|(_, group, block)| (group, block)).collect()
    }
}

fn progress<'a>(pages: &'a [PageId], tokens: &'a [i32], computed: i64, p: i64) -> Progress<'a> {
    Progress {
        pages: &pages[..(computed / p) as usize],
        tokens,
        computed_tokens: computed,
        prompt_tokens: tokens.len() as i64,
        by: Computed::Prefill,
    }
}

/// `count` tokens that no other `name` shares.
pub fn tokens(name: i32, count: i32) -> Vec<i32> {
    (0..count).map(|at| name * 1000 + at).collect()
}
