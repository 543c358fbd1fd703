//! The engine, the clients and the peers of a world: they turn plans into the events of later rounds.

use std::collections::VecDeque;

use tokenspeed_scheduler::plan::Batch;
use tokenspeed_scheduler::{Event, ExecutionPlan, Role};

use crate::play::{Play, clients_finish};
use crate::world::Asked;

/// The round of what is lost.
pub const LOST: u64 = u64::MAX;

/// What is to be said besides results.
#[derive(Debug, Clone)]
pub enum Said {
    /// The end of a copy.
    Copy(Event),
    /// A peer's word, or a result of a request that has ended.
    Word(Event),
    /// The engine did not run the request's forward.
    Withheld(String),
}

/// A result that is out.
#[derive(Debug, Clone, Copy)]
pub struct Out {
    pub due: u64,
    /// Tokens that it may bring; 0 for an intermediate chunk.
    pub tokens_max: i64,
}

/// A request that lives, as its client and the engine know it.
#[derive(Debug)]
pub struct Life<'w> {
    pub asked: &'w Asked,
    produced: i64,
    pub out: VecDeque<Out>,
    /// Certainly in a decode step: it was scheduled in one, and no prefill since.
    decoding: bool,
    /// Prefill role: the peer is reading its blocks.
    handed_over: bool,
    /// What the drafter proposed with the last result.
    candidates: Vec<i32>,
    last_token: i32,
}

impl<'w> Life<'w> {
    pub fn new(asked: &'w Asked) -> Life<'w> {
        Life {
            asked,
            produced: 0,
            out: VecDeque::new(),
            decoding: false,
            handed_over: false,
            candidates: Vec::new(),
            last_token: -1,
        }
    }
}

impl Play<'_> {
    fn role(&self) -> Role {
        self.world.config.role
    }

    /// What reaches the schedulers before this round's plan.
    pub fn due(&mut self) -> Vec<Event> {
        let round = self.round;
        let mut events = Vec::new();
        for id in self.lives.keys().cloned().collect::<Vec<_>>() {
            self.land_results(&id, &mut events);
            let life = &self.lives[&id];
            let late =
                life.asked.abort_after.is_some_and(|after| round >= life.asked.arrival + after);
            if clients_finish(self.role()) && life.produced >= life.asked.output {
                events.push(Event::Finish { request_id: id.as_str().into() });
                self.end(&id);
            } else if late {
                self.abort(id, &mut events);
            } else if self.role().transfers() && self.r.one_in(self.world.peer_loss) {
                events.push(Event::TransferFailed { request_id: id.as_str().into() });
                self.end(&id);
            } else {
                self.meddle(id, &mut events);
            }
        }
        let owed = std::mem::take(&mut self.owed);
        let (now, later): (Vec<_>, Vec<_>) = owed.into_iter().partition(|&(due, _)| due <= round);
        self.owed = later;
        for (_, said) in now {
            self.say(said, &mut events);
        }
        events
    }

    fn land_results(&mut self, id: &str, events: &mut Vec<Event>) {
        let role = self.role();
        let width = self.world.config.decode_input_tokens as u64;
        let life = self.lives.get_mut(id).expect("a live request");
        while life.out.front().is_some_and(|out| out.due <= self.round) {
            let Out { tokens_max, .. } = life.out.pop_front().expect("a front was seen");
            let count = if tokens_max == 0 { 0 } else { 1 + self.r.below(tokens_max as u64) };
            let tokens: Vec<i32> = (0..count).map(|_| self.r.below(1000) as i32).collect();
            life.produced += tokens.len() as i64;
            life.candidates.clear();
            if role == Role::P && count > 0 && self.r.one_in(2) {
                life.candidates = (0..width).map(|_| self.r.below(1000) as i32).collect();
            }
            life.last_token = tokens.last().copied().unwrap_or(life.last_token);
            events.push(Event::ExtendResult {
                request_id: id.into(),
                tokens: tokens.into(),
                spec_candidate_ids: life.candidates.clone().into(),
            });
        }
    }

    /// A client gives up, at any point.
    fn abort(&mut self, id: String, events: &mut Vec<Event>) {
        events.push(Event::Abort { request_id: id.as_str().into() });
        self.end(&id);
        self.part(id);
    }

    /// A peer is told that a request is off, and says its last word later.
    fn part(&mut self, id: String) {
        if self.role().transfers() {
            let due = self.round + 1 + self.r.below(self.world.peer_lag);
            self.owed.push((due, Said::Word(Event::TransferFailed { request_id: id.into() })));
        }
    }

    /// What an engine may do to a request now and then.
    fn meddle(&mut self, id: String, events: &mut Vec<Event>) {
        let life = self.lives.get_mut(&id).expect("a live request");
        let idle = life.out.is_empty() && life.produced > 0;
        if self.world.config.role == Role::Fused && idle && self.r.one_in(60) {
            life.decoding = false;
            events.push(Event::Retract { request_id: id.as_str().into() });
            self.judge.retracted_by_engine(&id);
        } else if life.decoding && self.r.one_in(30) {
            let width = self.world.config.decode_input_tokens as u64;
            let reserve_num_tokens = self.r.below(width + 1) as i64;
            events
                .push(Event::UpdateReserveNumTokens { request_id: id.into(), reserve_num_tokens });
        } else if self.world.config.role == Role::D && life.decoding && self.r.one_in(100) {
            events.push(Event::TransferSucceeded { request_id: id.as_str().into() });
            self.end(&id);
        }
    }

    fn say(&mut self, said: Said, events: &mut Vec<Event>) {
        match said {
            Said::Copy(event) => {
                self.judge.copy_ended(&event);
                events.push(event);
            }
            Said::Withheld(id) => {
                if self.lives.contains_key(&id) {
                    self.judge.retracted_by_engine(&id);
                    events.push(Event::Retract { request_id: id.into() });
                }
            }
            Said::Word(event) => {
                self.hear(&event);
                events.push(event);
            }
        }
    }

    fn hear(&mut self, event: &Event) {
        let id = event.request_id().expect("a peer speaks of a request").to_string();
        match event {
            Event::TransferSucceeded { .. } | Event::TransferFailed { .. } => self.end(&id),
            Event::RemotePrefillDone { bootstrap_token, .. } => {
                if let Some(life) = self.lives.get_mut(&id) {
                    life.produced += 1;
                    life.last_token = *bootstrap_token;
                }
                self.judge.peer_done(&id);
            }
            _ => {}
        }
    }

    /// The request has ended: it is not served any more, whatever a peer still does to its blocks.
    fn end(&mut self, id: &str) {
        self.judge.ended(id);
        let Some(life) = self.lives.remove(id) else {
            return;
        };
        for out in life.out.into_iter().filter(|out| out.due < LOST) {
            let tokens = vec![1; out.tokens_max.min(1) as usize];
            let late = Event::ExtendResult {
                request_id: id.into(),
                tokens: tokens.into(),
                spec_candidate_ids: Default::default(),
            };
            self.owed.push((out.due, Said::Word(late)));
        }
        // Its forward was run all the same: nothing is left to withhold.
        self.owed.retain(|(_, said)| !matches!(said, Said::Withheld(other) if other == id));
    }

    /// Notes what a plan makes the engine and the peers owe.
    pub fn launch(&mut self, plan: &ExecutionPlan) -> Result<(), String> {
        for notice in &plan.aborts {
            self.end(&notice.request_id);
            self.part(notice.request_id.to_string());
        }
        for id in self.judge.retracted(plan) {
            self.lives.get_mut(&id).expect("it lives").decoding = false;
        }
        let fetches = plan.load_back.prefetch_from_storage.iter().flatten().any(|&flag| flag > 0);
        let withheld = fetches && self.r.one_in(self.world.storage_loss);
        let landing = plan.remote_prefill.iter().flat_map(|batch| batch.request_ids.iter());
        for id in plan.batch.request_ids.iter().chain(landing) {
            if !self.lives.contains_key(&**id) {
                return Err(format!("'{id}' is scheduled and does not live"));
            }
            if withheld {
                let life = self.lives.get_mut(&**id).expect("it lives");
                // What was out before comes in before the blocks are taken.
                life.out.retain(|out| out.due < LOST);
                life.out.iter_mut().for_each(|out| out.due = self.round + 1);
                life.decoding = false;
                self.owed.push((self.round + 1, Said::Withheld(id.to_string())));
            }
        }
        if !withheld {
            self.run_forwards(&plan.batch);
            self.start_landing(plan);
        }
        if let Some(batch) = &plan.remote_decode {
            self.hand_over(batch)?;
        }
        for &op_id in &plan.write_back.op_ids {
            let due = self.copy_due();
            self.owed.push((due, Said::Copy(Event::WriteBackDone { op_id })));
        }
        for (at, &op_id) in plan.load_back.op_ids.iter().enumerate() {
            let fetched = plan.load_back.prefetch_from_storage[at].iter().any(|&flag| flag > 0);
            let due = if withheld { self.round + 1 } else { self.copy_due() };
            let event = Event::LoadBackDone { op_id, success: !(withheld && fetched) };
            self.owed.push((due, Said::Copy(event)));
        }
        Ok(())
    }

    fn copy_due(&mut self) -> u64 {
        match self.r.one_in(self.world.loss) {
            true => LOST,
            false => self.round + 1 + self.r.below(self.world.ack_lag),
        }
    }

    fn run_forwards(&mut self, batch: &Batch) {
        let depth = self.world.config.overlap_schedule_depth as u64;
        for (at, id) in batch.request_ids.iter().enumerate() {
            let is_decode = at >= batch.num_extends;
            let tokens_max = if is_decode {
                self.world.config.decode_input_tokens
            } else {
                let end = batch.extend_prefix_lens[at] + batch.input_lengths[at];
                i64::from(end == batch.prefill_lengths[at])
            };
            let due = match self.r.one_in(self.world.loss) {
                true => LOST,
                false => self.round + 1 + self.r.below(depth + 1),
            };
            let life = self.lives.get_mut(&**id).expect("it lives");
            let after_last = life.out.back().map_or(0, |out| out.due);
            life.out.push_back(Out { due: due.max(after_last), tokens_max });
            life.decoding = is_decode;
        }
    }

    fn start_landing(&mut self, plan: &ExecutionPlan) {
        for id in plan.remote_prefill.iter().flat_map(|batch| batch.request_ids.iter()) {
            let bootstrap_token = self.r.below(1000) as i32;
            let due = self.round + 1 + self.r.below(self.world.peer_lag);
            let life = self.lives.get_mut(&**id).expect("it lives");
            life.decoding = false;
            let word = Event::RemotePrefillDone { request_id: id.clone().into(), bootstrap_token };
            self.owed.push((due, Said::Word(word)));
        }
    }

    fn hand_over(&mut self, batch: &Batch) -> Result<(), String> {
        for (at, id) in batch.request_ids.iter().enumerate() {
            let Some(life) = self.lives.get_mut(&**id) else {
                return Err(format!("'{id}' is handed over and does not live"));
            };
            if std::mem::replace(&mut life.handed_over, true) || !life.out.is_empty() {
                return Err(format!("'{id}' is handed over twice, or ahead of a result"));
            }
            let sent = (batch.decode_input_ids[at], &batch.spec_candidate_ids[at]);
            if sent != (life.last_token, &life.candidates) {
                return Err(format!("'{id}' is handed over with {sent:?}"));
            }
            let due = self.round + 1 + self.r.below(self.world.peer_lag);
            let word = Event::TransferSucceeded { request_id: id.clone().into() };
            self.owed.push((due, Said::Word(word)));
        }
        Ok(())
    }

    /// Nothing but what is lost could bring the world on: copies are found to have ended after all, and
    /// the clients of requests whose results are lost give up.
    pub fn find_lost(&mut self) {
        for (due, _) in &mut self.owed {
            *due = (*due).min(self.round + 1);
        }
        for id in self.lives.keys().cloned().collect::<Vec<_>>() {
            if self.lives[&id].out.is_empty() {
                continue;
            }
            self.lives.get_mut(&id).expect("it lives").out.clear();
            self.end(&id);
            self.owed.push((
                self.round + 1,
                Said::Word(Event::Abort { request_id: id.as_str().into() }),
            ));
            if self.role().transfers() {
                let last = Event::TransferFailed { request_id: id.into() };
                self.owed.push((self.round + 2, Said::Word(last)));
            }
        }
    }
}
