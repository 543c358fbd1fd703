//! What `scheduler.md` §5 says of any plan, as checkers that know nothing but the plans themselves and
//! what the engine does with them.

use std::collections::{BTreeMap, BTreeSet};

use tokenspeed_scheduler::config::GroupKind;
use tokenspeed_scheduler::plan::Batch;
use tokenspeed_scheduler::{
    Event, ExecutionPlan, Handle, PressurePolicy, RequestSpec, Role, SchedulerConfig,
};

/// safe_steps of §4.
const SAFE_STEPS: i64 = 4096;

/// A request as plans show it. Tokens.
#[derive(Debug, Default)]
struct Seen {
    submitted: i64,
    budget: i64,
    /// The rebased prompt of its present stay.
    prompt: i64,
    /// End of what is scheduled of it.
    end: i64,
    /// Most that its stay may hold of a full group, by its first admission.
    secured: i64,
    resident: bool,
    /// A peer is at work on its blocks.
    with_peer: bool,
    recovering: bool,
    retractions: i64,
}

impl Seen {
    fn is_incomplete(&self) -> bool {
        self.resident && self.end < self.prompt
    }

    /// Room for decode steps that its admission must secure (§4).
    fn headroom(&self, prompt: i64) -> i64 {
        let open = self.budget - (prompt - self.submitted);
        open.max(0).min(SAFE_STEPS * (1 + self.retractions))
    }

    fn is_prepaid(&self) -> bool {
        let open = self.budget - (self.prompt - self.submitted);
        self.budget > 0 && SAFE_STEPS * (1 + self.retractions) >= open
    }
}

/// A copy in flight: its blocks by group, and which of their ends nobody else may have.
#[derive(Debug)]
struct Copy {
    is_load: bool,
    pins_device: bool,
    device: BTreeSet<(i32, i32)>,
    host: BTreeSet<(i32, i32)>,
}

/// Sees every plan of a world.
#[derive(Debug)]
pub struct Judge<'w> {
    config: &'w SchedulerConfig,
    seen: BTreeMap<String, Seen>,
    ids: BTreeMap<Handle, String>,
    copies: BTreeMap<u64, Copy>,
    /// Ended while a peer was at work: its last word is still to come.
    draining: BTreeSet<String>,
}

impl<'w> Judge<'w> {
    pub fn new(config: &'w SchedulerConfig) -> Judge<'w> {
        Judge {
            config,
            seen: BTreeMap::new(),
            ids: BTreeMap::new(),
            copies: BTreeMap::new(),
            draining: BTreeSet::new(),
        }
    }

    pub fn submitted(&mut self, spec: &RequestSpec) {
        let (submitted, budget) = (spec.tokens.len() as i64, spec.max_new_tokens);
        let seen = Seen { submitted, budget, ..Seen::default() };
        self.seen.insert(spec.request_id.clone(), seen);
    }

    /// The request ended. `peer_done` tells when its peer has let go too.
    pub fn ended(&mut self, id: &str) {
        let with_peer = self.seen.remove(id).is_some_and(|seen| seen.with_peer);
        if with_peer {
            self.draining.insert(id.into());
        }
    }

    pub fn peer_done(&mut self, id: &str) {
        self.draining.remove(id);
        if let Some(seen) = self.seen.get_mut(id) {
            seen.with_peer = false;
        }
    }

    /// The engine took the request's blocks, if it had any: one that waits to recover still does.
    pub fn retracted_by_engine(&mut self, id: &str) {
        if let Some(seen) = self.seen.get_mut(id).filter(|seen| seen.resident) {
            (seen.resident, seen.with_peer, seen.recovering) = (false, false, false);
        }
    }

    pub fn copy_ended(&mut self, event: &Event) {
        if let Event::WriteBackDone { op_id } | Event::LoadBackDone { op_id, .. } = event {
            self.copies.remove(op_id);
        }
    }

    /// The requests that a plan retracted.
    pub fn retracted(&self, plan: &ExecutionPlan) -> Vec<String> {
        plan.retracted.iter().map(|handle| self.ids[handle].clone()).collect()
    }

    /// Looks at a plan; `out` says how many results of a request are out. The first rule broken.
    pub fn judge(
        &mut self,
        plan: &ExecutionPlan,
        out: impl Fn(&str) -> usize,
    ) -> Result<(), String> {
        self.retraction(plan, &out)?;
        self.copies_are_ordered(plan)?;
        for notice in &plan.aborts {
            self.seen.remove(&*notice.request_id);
        }
        let overtaken = self.seen.iter().filter(|(_, seen)| seen.is_incomplete());
        let overtaken: BTreeSet<String> = overtaken.map(|(id, _)| id.clone()).collect();
        self.budget(plan)?;
        self.line(&plan.batch, &overtaken, plan.retracted.is_empty())?;
        self.decode_role(plan)?;
        for batch in [Some(&plan.batch), plan.remote_prefill.as_ref()].into_iter().flatten() {
            for at in 0..batch.num_extends {
                self.chunk(batch, at)?;
            }
        }
        for id in plan.remote_decode.iter().flat_map(|batch| batch.request_ids.iter()) {
            self.seen.get_mut(&**id).ok_or("handed over after its end")?.with_peer = true;
        }
        if let Some(batch) = &plan.remote_prefill {
            let landing = self.seen.get_mut(&*batch.request_ids[0]).expect("it was a chunk");
            landing.with_peer = true;
        }
        let half_done = self.seen.values().filter(|s| s.recovering && s.is_incomplete()).count();
        if half_done > 1 {
            return Err(format!("§5 readmissions: {half_done} are under way"));
        }
        Ok(())
    }

    /// Retraction fires only when no prefill progressed, never on P, on quiescent victims, with no load
    /// and no pinned store out; a prepaid request gives way only where nothing at all is owed.
    fn retraction(
        &mut self,
        plan: &ExecutionPlan,
        out: &impl Fn(&str) -> usize,
    ) -> Result<(), String> {
        let owed = self.seen.keys().any(|id| out(id) > 0)
            || self.seen.values().any(|seen| seen.with_peer)
            || !self.draining.is_empty();
        for id in self.retracted(plan) {
            if self.config.role == Role::P {
                return Err(format!("§3.1: '{id}' is retracted on the prefill role"));
            }
            if self.copies.values().any(|copy| copy.is_load || copy.pins_device) {
                return Err(format!("§2: '{id}' is retracted while copies give capacity back"));
            }
            let seen = self.seen.get_mut(&id).ok_or("retracted after its end")?;
            if out(&id) > 0 || seen.with_peer {
                return Err(format!("§2: '{id}' is retracted and not quiescent"));
            }
            let prepays = self.config.pressure_policy == PressurePolicy::Document;
            if prepays && seen.is_prepaid() && owed {
                return Err(format!("§4: '{id}' is prepaid, and retracted while results are out"));
            }
            seen.retractions += 1;
            if !prepays && seen.retractions > 3 {
                return Err(format!("docs/goodput.md, 1: '{id}' gives way a fourth time"));
            }
            seen.resident = false;
            seen.recovering = self.config.has_host_tier() || self.config.role == Role::D;
        }
        // Whoever gets on in such a round does so on what was freed.
        let resumed = |id: &str| self.seen.get(id).is_some_and(Seen::is_incomplete);
        let ids = plan.batch.request_ids[..plan.batch.num_extends].iter();
        let chunks = ids.filter(|id| resumed(id)).count();
        if !plan.retracted.is_empty() && chunks > 1 {
            return Err(format!("§2: {chunks} prompts got on in a round that retracts"));
        }
        Ok(())
    }

    /// A store is pinned until its acknowledgement, or ordered before a retraction's or an end's reuse
    /// of its blocks; never neither. No end of a copy is granted while it is in flight; nothing of a
    /// replayable group is copied.
    fn copies_are_ordered(&mut self, plan: &ExecutionPlan) -> Result<(), String> {
        let departures = !plan.retracted.is_empty() || !plan.aborts.is_empty();
        let mut granted = BTreeSet::new();
        for (group, blocks) in plan.pages_to_zero.iter().enumerate() {
            granted.extend(blocks.iter().map(|&block| (group as i32, block)));
        }
        for op in 0..plan.load_back.op_ids.len() {
            let load = &plan.load_back;
            granted
                .extend(load.group_ids[op].iter().copied().zip(load.dst_pages[op].iter().copied()));
        }
        for (ops, is_load) in [(&plan.write_back, false), (&plan.load_back, true)] {
            for (at, &op) in ops.op_ids.iter().enumerate() {
                let ends = |pages: &[i32]| -> BTreeSet<(i32, i32)> {
                    ops.group_ids[at].iter().copied().zip(pages.iter().copied()).collect()
                };
                let (src, dst) = (ends(&ops.src_pages[at]), ends(&ops.dst_pages[at]));
                let (device, host) = if is_load { (dst, src) } else { (src, dst) };
                let replayable = |group: i32| self.config.cache_groups[group as usize].replayable;
                if ops.group_ids[at].iter().any(|&group| replayable(group)) {
                    return Err(format!("§1.3: operation {op} copies a replayable group"));
                }
                let pins_device = is_load || ops.source_pinned[at];
                if !pins_device && !departures {
                    return Err(format!("§5 stores: {op} is neither pinned nor a departure's"));
                }
                if !is_load && pins_device && !device.is_disjoint(&granted) {
                    return Err(format!("§5 stores: the pinned sources of {op} are granted"));
                }
                let written = self.copies.values().any(|copy| !copy.host.is_disjoint(&host));
                if !is_load && written {
                    return Err(format!("a Host block of operation {op} is in another copy"));
                }
                self.copies.insert(op, Copy { is_load, pins_device, device, host });
            }
        }
        let fresh_loads: BTreeSet<u64> = plan.load_back.op_ids.iter().copied().collect();
        for (op, copy) in self.copies.iter().filter(|(op, _)| !fresh_loads.contains(op)) {
            if copy.pins_device && !copy.device.is_disjoint(&granted) {
                return Err(format!("§5: blocks of operation {op} are granted ahead of its end"));
            }
        }
        Ok(())
    }

    fn budget(&self, plan: &ExecutionPlan) -> Result<(), String> {
        let prefills = plan.batch.num_extends;
        let counted = match self.config.role {
            Role::D => &plan.batch.input_lengths[..prefills],
            Role::P | Role::Fused => &plan.batch.input_lengths[..],
        };
        let input: i64 = counted.iter().map(|&length| i64::from(length)).sum();
        if input > self.config.max_scheduled_tokens {
            return Err(format!("§1: {input} tokens of input"));
        }
        Ok(())
    }

    /// An incomplete prompt is last, and no newcomer is admitted past one that was under way.
    fn line(
        &self,
        batch: &Batch,
        under_way: &BTreeSet<String>,
        nobody_gave_way: bool,
    ) -> Result<(), String> {
        let mut waiting = under_way.clone();
        for at in 0..batch.num_extends {
            let id = &*batch.request_ids[at];
            let end = batch.extend_prefix_lens[at] + batch.input_lengths[at];
            let is_incomplete = end < batch.prefill_lengths[at];
            if is_incomplete && at + 1 < batch.num_extends {
                return Err(format!("§1.1: '{id}' is incomplete and overtaken"));
            }
            let is_new = !under_way.contains(id) && !self.seen[id].recovering;
            waiting.remove(id);
            if is_new && nobody_gave_way && !waiting.is_empty() {
                return Err(format!("§1.1: '{id}' starts past {waiting:?}"));
            }
        }
        Ok(())
    }

    /// A recovery is alone in its round; one landing a round, of a whole prompt.
    fn decode_role(&self, plan: &ExecutionPlan) -> Result<(), String> {
        let batch = &plan.batch;
        if self.config.role != Role::D {
            let remote = plan.remote_prefill.is_some();
            return if remote { Err("§3: a remote prefill".into()) } else { Ok(()) };
        }
        let alone = batch.request_ids.len() == 1 && plan.remote_prefill.is_none();
        if batch.num_extends > 0 && !alone {
            return Err("§3.2: a recovery is not alone in its round".into());
        }
        if let Some(landing) = &plan.remote_prefill {
            let end = landing.extend_prefix_lens[0] + landing.input_lengths[0];
            if landing.request_ids.len() != 1 || end != landing.prefill_lengths[0] {
                return Err("§3.2: a landing is not one whole prompt".into());
            }
        }
        Ok(())
    }

    /// A chunk follows what was computed, re-feeds what §1.3 says, and holds no more than §5 allows.
    fn chunk(&mut self, batch: &Batch, at: usize) -> Result<(), String> {
        let id = batch.request_ids[at].to_string();
        self.ids.insert(batch.handles[at], id.clone());
        let lands = self.config.role == Role::D && !self.seen[&id].recovering;
        let seen = self.seen.get_mut(&id).ok_or("scheduled after its end")?;
        let replay = i64::from(batch.extend_replay_lens[at]);
        let begin = i64::from(batch.extend_prefix_lens[at]) + replay;
        let end = i64::from(batch.extend_prefix_lens[at] + batch.input_lengths[at]);
        let prompt = i64::from(batch.prefill_lengths[at]);
        let first = !seen.resident;
        let window = self.config.replay_window_tokens();
        if !first && (begin != seen.end || prompt != seen.prompt) {
            return Err(format!("'{id}' goes on at {begin}, computed up to {}", seen.end));
        }
        let wanted = if first && !lands { window.min(begin) } else { 0 };
        if replay != wanted {
            return Err(format!("§1.3: '{id}' re-feeds {replay} tokens, not {wanted}"));
        }
        let completes = end == prompt;
        let short = end - begin + replay < window.min(prompt);
        if completes && short && !lands {
            return Err(format!("§1.3: the final chunk of '{id}' is shorter than the window"));
        }
        let decodes = self.config.role.decodes();
        let width = self.config.decode_input_tokens;
        let slot = if completes { width } else { 0 };
        if first {
            let headroom = if decodes { seen.headroom(prompt) } else { 0 };
            seen.secured = if seen.budget > 0 && decodes { prompt + headroom } else { 0 };
            (seen.resident, seen.prompt) = (true, prompt);
        }
        seen.end = end;
        let secured = seen.secured;
        for (group, config) in self.config.cache_groups.iter().enumerate() {
            let g = config.block_granularity;
            let allowed = match config.kind() {
                GroupKind::Full => (end + slot).max(secured),
                GroupKind::Sliding { .. } => end + slot,
                GroupKind::State if decodes && completes => end + g.max(width),
                GroupKind::State => end,
            };
            let slots = slots(batch, group, at);
            if slots > (allowed + g - 1) / g {
                return Err(format!(
                    "§5 reserves: '{id}' holds {slots} slots of group {group} at {end} of {prompt}"
                ));
            }
        }
        Ok(())
    }
}

/// Slots of a request's table, holes included.
fn slots(batch: &Batch, group: usize, at: usize) -> i64 {
    let table = &batch.block_tables[group];
    let row = &table.cells[at * table.columns..(at + 1) * table.columns];
    row.iter().filter(|&&block| block >= 0).count() as i64
}
