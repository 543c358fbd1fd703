//! One request that has a scheduler to itself.

use std::collections::VecDeque;

use tokenspeed_scheduler::plan::AbortReason;
use tokenspeed_scheduler::{Event, ExecutionPlan, RequestSpec, Role, Scheduler, SchedulerConfig};

/// A request of so many tokens, all different.
pub fn spec(id: &str, prompt: i64, budget: i64) -> RequestSpec {
    let tokens = (0..prompt as i32).collect();
    RequestSpec { request_id: id.into(), tokens, max_new_tokens: budget }
}

/// A scheduler, and what one client after the other asks of it.
pub struct Alone<'c> {
    config: &'c SchedulerConfig,
    scheduler: Scheduler,
    prompt: i64,
    budget: i64,
    id: String,
    /// Output that has landed, and the results that are out: how many tokens each may bring.
    produced: i64,
    out: VecDeque<i64>,
    steps: i64,
    events: Vec<Event>,
    /// A peer that writes the prompt of another, and will not end by itself.
    peer_is_busy: bool,
}

/// Rounds in which any request here has to end.
const ROUNDS_MAX: i64 = 5_000;

/// How a request came to its end.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Finished,
    HandedOver,
    Outgrew,
}

impl<'c> Alone<'c> {
    pub fn new(config: &'c SchedulerConfig, prompt: i64, budget: i64) -> Result<Alone<'c>, String> {
        Ok(Alone {
            config,
            scheduler: Scheduler::new(config.clone()).map_err(|e| e.to_string())?,
            prompt,
            budget,
            id: String::new(),
            produced: 0,
            out: VecDeque::new(),
            steps: 0,
            events: Vec::new(),
            peer_is_busy: false,
        })
    }

    /// On the empty pool; again beside all that the first time has cached; and a third time, its blocks
    /// taken away once it decodes.
    pub fn run(&mut self) -> Result<(), String> {
        for id in ["first", "again"] {
            self.submit(id)?;
            self.run_to_end(id)?;
        }
        match self.config.role {
            Role::P => Ok(()),
            Role::Fused => self.taken_by_the_engine(),
            Role::D if self.budget == 0 => self.retracted_for_a_landing(),
            Role::D => Ok(()),
        }
    }

    fn submit(&mut self, id: &str) -> Result<(), String> {
        (self.id, self.produced, self.steps) = (id.into(), 0, 0);
        self.out.clear();
        let request = spec(id, self.prompt, self.budget);
        self.scheduler.submit_requests(vec![request]).map_err(|e| e.to_string())?;
        self.met(id);
        Ok(())
    }

    fn met(&mut self, id: &str) {
        if self.config.role.transfers() {
            self.events.push(Event::Bootstrapped { request_id: id.into() });
        }
    }

    /// Plays on until the request ends, as it should.
    fn run_to_end(&mut self, when: &str) -> Result<(), String> {
        let end = loop {
            match self.round() {
                Ok((None, _)) => {}
                Ok((Some(end), _)) => break end,
                Err(what) => return Err(format!("{when}: {what}, {} produced", self.produced)),
            }
        };
        // What has outgrown the bound may be ended; windows and states do not grow, and need not be.
        let as_it_should = match (self.config.role, self.budget) {
            (Role::P, _) => end == End::HandedOver,
            (_, 0) => end != End::HandedOver,
            _ => end == End::Finished,
        };
        if !as_it_should {
            return Err(format!("{when}: {end:?}"));
        }
        let owned = self.scheduler.active_lcm_blocks();
        if owned > 0 { Err(format!("{when}: {owned} parents are still owned")) } else { Ok(()) }
    }

    /// Output after which the client has enough.
    fn wanted(&self) -> i64 {
        let beyond =
            2 * self.scheduler.max_single_request_tokens() + self.config.decode_input_tokens;
        if self.budget > 0 { self.budget } else { beyond }
    }

    fn taken_by_the_engine(&mut self) -> Result<(), String> {
        self.submit("taken")?;
        while self.produced == 0 || !self.out.is_empty() {
            if let (Some(_), _) = self.round()? {
                return Ok(());
            }
            while !self.out.is_empty() {
                self.land();
            }
        }
        self.events.push(Event::Retract { request_id: self.id.as_str().into() });
        self.run_to_end("taken")
    }

    /// Whoever decodes without a budget gives way when it lacks a block; here to a prompt that a peer is
    /// writing, which then fails.
    fn retracted_for_a_landing(&mut self) -> Result<(), String> {
        self.submit("decoding")?;
        while self.produced == 0 {
            if let (Some(_), _) = self.round()? {
                return Ok(());
            }
        }
        // The longest that fits beside it.
        let mut landing = None;
        for prompt in (1..=self.scheduler.max_single_request_tokens()).rev() {
            let id = format!("landing {prompt}");
            if self.scheduler.submit_requests(vec![spec(&id, prompt, 0)]).is_err() {
                continue;
            }
            self.met(&id);
            let (end, plan) = self.round()?;
            if end.is_some() {
                return Ok(());
            }
            if plan.remote_prefill.is_some() {
                landing = Some(id);
                break;
            }
            self.events.push(Event::Abort { request_id: id.into() });
        }
        let Some(landing) = landing else { return Ok(()) };
        self.peer_is_busy = true;
        for _ in 0..200 {
            let (end, plan) = self.round()?;
            if end.is_some() {
                return Ok(());
            }
            if !plan.retracted.is_empty() {
                break;
            }
        }
        self.peer_is_busy = false;
        self.events.push(Event::TransferFailed { request_id: landing.into() });
        self.run_to_end("retracted")
    }

    /// One round; how the request ended in it, and the plan.
    fn round(&mut self) -> Result<(Option<End>, ExecutionPlan), String> {
        let depth = self.config.overlap_schedule_depth as usize;
        if self.steps > ROUNDS_MAX {
            return Err("it does not end".into());
        }
        let owed = self.peer_is_busy || !self.events.is_empty() || !self.out.is_empty();
        if self.out.len() > depth || (!self.out.is_empty() && self.steps % 2 == 0) {
            self.land();
        }
        self.steps += 1;
        if self.config.role.decodes() && self.produced >= self.wanted() {
            self.events.push(Event::Finish { request_id: self.id.as_str().into() });
            let events = std::mem::take(&mut self.events);
            self.scheduler.advance(events).map_err(|e| e.to_string())?;
            let plan = self.plan()?;
            return Ok((Some(End::Finished), plan));
        }
        let events = std::mem::take(&mut self.events);
        self.scheduler.advance(events).map_err(|e| e.to_string())?;
        let plan = self.plan()?;
        let end = self.launch(&plan)?;
        let moved = !plan.batch.request_ids.is_empty()
            || plan.remote_prefill.is_some()
            || plan.remote_decode.is_some()
            || end.is_some()
            || !plan.retracted.is_empty();
        if !moved && !owed && self.out.is_empty() && self.events.is_empty() {
            return Err("nothing is scheduled, and nothing is owed".into());
        }
        Ok((end, plan))
    }

    /// The oldest result comes in: of a decode step one token or all by turns.
    fn land(&mut self) {
        let most = self.out.pop_front().expect("a result is out");
        let mut count = if self.steps % 3 == 0 { most.min(1) } else { most };
        if self.budget > 0 && self.config.role.decodes() {
            count = count.min(self.budget - self.produced).max(most.min(1));
        }
        self.produced += count;
        self.events.push(Event::ExtendResult {
            request_id: self.id.as_str().into(),
            tokens: (0..count as i32).map(|at| 10_000 + at).collect(),
            spec_candidate_ids: Default::default(),
        });
    }

    fn plan(&mut self) -> Result<ExecutionPlan, String> {
        let plan = self.scheduler.next_execution_plan().map_err(|e| e.to_string())?;
        for &op_id in &plan.write_back.op_ids {
            self.events.push(Event::WriteBackDone { op_id });
        }
        for &op_id in &plan.load_back.op_ids {
            self.events.push(Event::LoadBackDone { op_id, success: true });
        }
        Ok(plan)
    }

    fn launch(&mut self, plan: &ExecutionPlan) -> Result<Option<End>, String> {
        if let Some(notice) = plan.aborts.iter().find(|notice| *notice.request_id == *self.id) {
            let tokens = self.prompt + self.produced;
            let bound = self.scheduler.max_single_request_tokens();
            let outgrew = notice.reason == AbortReason::OutgrewPool
                && tokens + self.config.decode_input_tokens > bound;
            let ended = outgrew.then_some(End::Outgrew);
            return ended.ok_or(format!("{} at {tokens} of {bound}", notice.text)).map(Some);
        }
        let batch = &plan.batch;
        for (at, id) in batch.request_ids.iter().enumerate() {
            if **id != *self.id {
                return Err(format!("'{id}' is scheduled"));
            }
            self.out.push_back(if at >= batch.num_extends {
                self.config.decode_input_tokens
            } else {
                let end = batch.extend_prefix_lens[at] + batch.input_lengths[at];
                i64::from(end == batch.prefill_lengths[at])
            });
        }
        if let Some(landing) = &plan.remote_prefill
            && *landing.request_ids[0] == *self.id
        {
            self.produced += 1;
            let request_id = self.id.as_str().into();
            self.events.push(Event::RemotePrefillDone { request_id, bootstrap_token: 10_000 });
        }
        if plan.remote_decode.is_some() {
            let request_id = self.id.as_str().into();
            let done = Event::TransferSucceeded { request_id };
            self.scheduler.advance(vec![done]).map_err(|e| e.to_string())?;
            return Ok(Some(End::HandedOver));
        }
        Ok(None)
    }
}
