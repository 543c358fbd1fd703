//! Plays operations on the core's cache and on the slow model side by side, and compares the two after
//! each: what an engine would do with a `Coordinator`, at random.

mod compare;
mod consumer;
pub mod ops;

use std::collections::{BTreeMap, BTreeSet};

use tokenspeed_scheduler::cache::admission::FirstAdmission;
use tokenspeed_scheduler::cache::holdings::Computed;
use tokenspeed_scheduler::cache::{Coordinator, Demand, Hit, Holdings, Progress, StoreGuard};
use tokenspeed_scheduler::identity::{ContentHash, PageId};

use crate::model::{self, By, First, Found, Guard, Model, Need, Shape};
use consumer::Consumer;
pub use ops::{Op, World};

/// A request on both sides.
struct Life {
    family: usize,
    tokens: Vec<i32>,
    /// The rebased prompt's length.
    prompt: i64,
    /// The exact computed frontier: what the next admission publishes.
    computed: i64,
    /// Tokens that the last decode step will bring; 0 before the first.
    owed: i64,
    phase: Phase,
    pages: Vec<PageId>,
    holdings: Holdings,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Prefilling,
    PrefillDone,
    Decoding,
}

impl Life {
    fn computed_by(&self) -> (Computed, By) {
        match self.phase {
            Phase::Decoding => (Computed::Decode, By::Decode),
            Phase::Prefilling | Phase::PrefillDone => (Computed::Prefill, By::Prefill),
        }
    }
}

/// Both caches under the same operations.
pub struct Play {
    pub core: Coordinator,
    pub model: Model,
    lives: BTreeMap<usize, Life>,
    /// Retracted: family and tokens, oldest first.
    retracted: Vec<(usize, i64)>,
    next_life: usize,
    /// The tokens up to the end of each page ever named.
    prefixes: BTreeMap<ContentHash, Vec<i32>>,
    /// The persistent tables as their changed cells tell them: by group, row, slot.
    mirror: BTreeMap<(usize, i32, i32), i32>,
    rows: i32,
    consumer: Consumer,
}

impl Play {
    pub fn new(world: &World) -> Play {
        let config = world.config();
        config.validate().expect("worlds are valid");
        Play {
            core: Coordinator::new(&config),
            model: world.model(),
            lives: BTreeMap::new(),
            retracted: Vec::new(),
            next_life: 0,
            prefixes: BTreeMap::new(),
            mirror: BTreeMap::new(),
            rows: config.max_batch_size as i32,
            consumer: Consumer::default(),
        }
    }

    /// Plays all of them; panics where core and model part.
    pub fn run(world: &World, ops: &[Op]) -> Play {
        let mut play = Play::new(world);
        for (at, op) in ops.iter().enumerate() {
            play.one(op);
            play.compare(&format!("after operation {at}, {op:?}"));
        }
        play.drain_events();
        play
    }

    /// One operation on both sides.
    pub fn one(&mut self, op: &Op) {
        match *op {
            Op::Admit { family, tokens, chunk, reserve, probe } => {
                self.first_chunk(family, tokens, chunk, reserve, probe);
            }
            Op::Readmit { chunk, reserve } => {
                if !self.retracted.is_empty() {
                    let (family, tokens) = self.retracted[0];
                    if self.first_chunk(family, tokens, chunk, reserve, true) {
                        self.retracted.remove(0);
                    }
                }
            }
            Op::Step { who, size, reserve } => {
                self.at(who, |play, id| play.step(id, size, reserve))
            }
            Op::Finish { who } => self.at(who, |play, id| {
                if play.lives[&id].phase != Phase::Prefilling {
                    play.flush(id, StoreGuard::PinnedUntilAck, Guard::PinnedUntilAck);
                    play.release(id);
                }
            }),
            Op::Retract { who } => self.at(who, |play, id| {
                if play.model.host.is_some() {
                    play.flush(id, StoreGuard::StreamOrdered, Guard::StreamOrdered);
                }
                let life = &play.lives[&id];
                play.retracted.push((life.family, life.tokens.len() as i64));
                play.release(id);
            }),
            Op::Abort { who } => self.at(who, |play, id| play.release(id)),
            Op::EndPlan => {
                self.core.start_pending_stores(StoreGuard::PinnedUntilAck);
                let started = self.model.start_stores(Guard::PinnedUntilAck);
                self.compare_copies(started, None);
            }
            Op::Acknowledge { which } => {
                let ops: Vec<u64> = self.model.in_flight.keys().copied().collect();
                let op = ops.get(which % (ops.len() + 1)).copied().unwrap_or(u64::MAX);
                self.core.complete_transfer(op, true);
                self.model.acknowledge(op);
            }
            Op::ClearDevice => {
                assert_eq!(self.core.clear_device(), self.model.clear_device(), "clear_device");
            }
            Op::ClearAll => assert_eq!(self.core.clear_all(), self.model.clear_all(), "clear_all"),
            Op::DrainEvents => self.drain_events(),
        }
    }

    /// A consumer that was told everything holds what any prompt would find.
    fn drain_events(&mut self) {
        let events = self.core.drain_kv_events();
        self.consumer.apply(&events, self.model.p as usize);
        assert_eq!(self.core.drain_kv_events(), [], "everything is told once");
        if self.model.groups.iter().all(|group| group.shape == Shape::Sliding(1)) {
            return; // Such groups resume anywhere without a block.
        }
        let found: BTreeSet<Vec<i32>> = self
            .prefixes
            .values()
            .flat_map(|prompt| {
                let pages = prompt.len() / self.model.p as usize;
                let hit = self.model.probe(prompt, pages).device;
                (1..=hit).map(|pages| prompt[..pages * self.model.p as usize].to_vec())
            })
            .collect();
        assert_eq!(self.consumer.prompts(), found, "what is resident");
    }

    fn at(&mut self, who: usize, act: impl FnOnce(&mut Play, usize)) {
        if let Some(&id) = self.lives.keys().nth(who % self.lives.len().max(1)) {
            act(self, id);
        }
    }

    fn first_chunk(
        &mut self,
        family: usize,
        tokens: i64,
        chunk: i64,
        reserve: i64,
        probe: bool,
    ) -> bool {
        let held = |row: &i32| self.lives.values().any(|life| life.holdings.row == *row);
        let Some(row) = (1..=self.rows).find(|row| !held(row)) else {
            return false;
        };
        let id = self.next_life;
        self.next_life += 1;
        let mut life = Life {
            family,
            tokens: Vec::new(),
            prompt: tokens,
            computed: 0,
            owed: 0,
            phase: Phase::Prefilling,
            pages: Vec::new(),
            holdings: Holdings::none(self.model.groups.len()),
        };
        self.extend(&mut life, tokens);
        let found = match probe {
            true => self.model.probe(&life.tokens, ((tokens - 1) / self.model.p) as usize),
            false => Found { device: 0, total: 0, promotion: None },
        };
        let hit = match probe {
            true => self.core.probe(&life.pages[..((tokens - 1) / self.model.p) as usize]),
            false => self.core.no_hit(),
        };
        self.compare_hit(&hit, &found);
        let begin = found.total as i64 * self.model.p;
        let promotion = found.promotion.map(|pages| pages as i64 * self.model.p);
        let end = self.cut(begin, tokens, chunk, promotion);
        let first = Some((&hit, &found, row));
        let admitted = end > begin && self.admit(id, &mut life, first, begin, end, reserve);
        if admitted {
            self.computed_to(&mut life, id, begin, end);
            self.lives.insert(id, life);
        } else {
            self.core.forget_pages(&life.pages);
        }
        admitted
    }

    /// A prompt's next chunk, or a decode step.
    fn step(&mut self, id: usize, size: i64, reserve: i64) {
        let mut life = self.lives.remove(&id).expect("a live request");
        if life.phase == Phase::Prefilling {
            let begin = life.computed;
            let end = self.cut(begin, life.prompt, size, self.model.holdings[&id].promotion);
            if self.admit(id, &mut life, None, begin, end, reserve) {
                self.computed_to(&mut life, id, begin, end);
            }
        } else {
            let landing = if life.phase == Phase::PrefillDone { 1 } else { life.owed };
            let (phase, computed) = (life.phase, life.computed);
            self.extend(&mut life, landing);
            if phase == Phase::Decoding {
                life.computed = life.tokens.len() as i64 - 1;
            }
            let tokens = size.clamp(1, 4);
            let needs = vec![Need::Dense { tokens, reserve: 0 }; self.model.groups.len()];
            if self.admit_needs(id, &mut life, None, &needs) {
                life.phase = Phase::Decoding;
                life.owed = tokens;
            } else {
                // The result stays out: the step is tried again with the same tokens.
                let pages = (life.tokens.len() as i64 - landing) / self.model.p;
                let named = life.pages.split_off(pages as usize);
                self.core.forget_pages(&named);
                life.tokens.truncate(life.tokens.len() - landing as usize);
                life.computed = computed;
            }
        }
        self.lives.insert(id, life);
    }

    /// Where a chunk ends: it stops at a promotion boundary, and beside a state group on a page
    /// boundary unless it completes the prompt.
    fn cut(&self, begin: i64, prompt: i64, size: i64, promotion: Option<i64>) -> i64 {
        let mut end = (begin + size.max(1)).min(prompt);
        if let Some(boundary) = promotion.filter(|&boundary| begin < boundary && boundary < end) {
            end = boundary;
        }
        let p = self.model.p;
        if end < prompt && self.has_state() {
            end = if end / p * p > begin { end / p * p } else { (begin / p * p + p).min(prompt) };
        }
        end
    }

    fn has_state(&self) -> bool {
        self.model.groups.iter().any(|group| group.shape == Shape::State)
    }

    fn admit(
        &mut self,
        id: usize,
        life: &mut Life,
        first: Option<(&Hit, &Found, i32)>,
        begin: i64,
        end: i64,
        reserve: i64,
    ) -> bool {
        let (p, completes) = (self.model.p, end == life.prompt);
        let needs: Vec<Need> = self
            .model
            .groups
            .iter()
            .map(|group| match group.shape {
                Shape::State => {
                    let aligned = end / p * p;
                    let from = if aligned > begin { aligned } else { end };
                    Need::Sparse {
                        extent: end,
                        first_slot: ((from + group.g - 1) / group.g - 1) as usize,
                        reserve: if completes { reserve } else { 0 },
                    }
                }
                _ => Need::Dense { tokens: end - begin, reserve },
            })
            .collect();
        self.admit_needs(id, life, first, &needs)
    }

    fn admit_needs(
        &mut self,
        id: usize,
        life: &mut Life,
        first: Option<(&Hit, &Found, i32)>,
        needs: &[Need],
    ) -> bool {
        let (core_by, by) = life.computed_by();
        let computed = if first.is_some() { 0 } else { life.computed };
        let demands: Vec<Demand> = needs.iter().map(|need| demand(*need)).collect();
        let mut fresh = vec![Vec::new(); needs.len()];
        let core_progress = Progress {
            pages: &life.pages[..(computed / self.model.p) as usize],
            tokens: &life.tokens,
            computed_tokens: computed,
            prompt_tokens: life.prompt,
            by: core_by,
        };
        let core_first = first.map(|(hit, _, row)| FirstAdmission {
            hit,
            pages: &life.pages,
            tokens: &life.tokens,
            row,
        });
        let core =
            self.core.admit(&mut life.holdings, core_first, &demands, core_progress, &mut fresh);
        let progress = model::Progress { tokens: &life.tokens, computed, prompt: life.prompt, by };
        let model_first = first.map(|(_, found, _)| First { found, tokens: &life.tokens });
        let before = self.model.in_flight.keys().next_back().copied();
        let granted = self.model.admit(id, model_first, needs, &progress);
        assert_eq!(core.is_ok(), granted.is_some(), "whether it is admitted ({needs:?})");
        if let Some(granted) = &granted {
            let fresh: Vec<Vec<u32>> =
                fresh.iter().map(|f| f.iter().map(|&b| b as u32).collect()).collect();
            assert_eq!(&fresh, granted, "fresh blocks");
        }
        let loading =
            self.model.in_flight.keys().next_back().copied().filter(|op| Some(*op) != before);
        self.compare_copies(None, loading);
        granted.is_some()
    }

    fn computed_to(&mut self, life: &mut Life, id: usize, begin: i64, end: i64) {
        let aligned = end / self.model.p * self.model.p;
        if self.has_state() && aligned > begin {
            life.holdings.state_boundaries.push(aligned);
            self.model.holdings.get_mut(&id).expect("admitted").checkpoints.push(aligned);
        }
        life.computed = end;
        if end == life.prompt {
            life.phase = Phase::PrefillDone;
        }
    }

    /// Appends the family's next tokens and names the pages that they complete.
    fn extend(&mut self, life: &mut Life, tokens: i64) {
        for _ in 0..tokens {
            let at = life.tokens.len();
            life.tokens.push(ops::token(life.family, at));
        }
        let p = self.model.p as usize;
        for page in life.pages.len()..life.tokens.len() / p {
            let prefix = &life.tokens[..(page + 1) * p];
            let hash = *ContentHash::pages_of(prefix, p).last().expect("a page");
            self.prefixes.insert(hash, prefix.to_vec());
            life.pages.push(self.core.name_page(hash));
        }
    }

    fn flush(&mut self, id: usize, core_guard: StoreGuard, guard: Guard) {
        let mut life = self.lives.remove(&id).expect("a live request");
        let (core_by, by) = life.computed_by();
        let core_progress = Progress {
            pages: &life.pages[..(life.computed / self.model.p) as usize],
            tokens: &life.tokens,
            computed_tokens: life.computed,
            prompt_tokens: life.prompt,
            by: core_by,
        };
        let gives_way = guard == Guard::StreamOrdered;
        let departure = if gives_way { Computed::Retraction } else { Computed::Finish };
        self.core.flush(&mut life.holdings, core_progress, departure);
        self.core.start_pending_stores(core_guard);
        let progress = model::Progress {
            tokens: &life.tokens,
            computed: life.computed,
            prompt: life.prompt,
            by,
        };
        self.model.flush(id, &progress, gives_way);
        let started = self.model.start_stores(guard);
        self.lives.insert(id, life);
        self.compare_copies(started, None);
    }

    fn release(&mut self, id: usize) {
        let mut life = self.lives.remove(&id).expect("a live request");
        self.core.release(&mut life.holdings);
        self.model.release(id);
        self.core.forget_pages(&life.pages);
    }
}

fn demand(need: Need) -> Demand {
    match need {
        Need::Dense { tokens, reserve } => Demand::Dense { tokens, reserve },
        Need::Sparse { extent, first_slot, reserve } => {
            Demand::SparseSuffix { extent, first_slot, reserve, promised: 0 }
        }
    }
}
