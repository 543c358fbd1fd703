//! An engine around the scheduler: clients that read until they have enough, results that land when
//! the depth says so, copies that end some rounds later.
//!
//! Every round asks what all scenarios share. Blocks are conserved: the scheduler's own checkers run
//! after every call in a debug build, and [`Engine::settle`] finds nothing owned or fenced. No block
//! is handed out under a copy, and every forward reads what it should: the [`Device`] looks at the
//! bytes, so what a request generates is what it generates alone. The world never stands still.
//! Mirrored schedulers plan alike: each call is made on two. A consumer of cache events is told after
//! each plan, and the checkers find that it holds what prompts would hit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokenspeed_scheduler::plan::Batch;
use tokenspeed_scheduler::{Event, ExecutionPlan, Handle, KvEvent, Result, Scheduler};

use crate::client::{Life, Outcome, ResultOut};
use crate::consumer::Consumer;
use crate::device::{Device, Forward};
use crate::summary;
use crate::world::{Asked, World, mix};

/// A world being played.
#[derive(Debug)]
pub struct Engine {
    pub world: World,
    pub scheduler: Scheduler,
    pub mirror: Scheduler,
    pub device: Device,
    pub lives: BTreeMap<String, Life>,
    pub plan: ExecutionPlan,
    pub round: u64,
    /// Every round so far, in short.
    log: Vec<String>,
    ids: BTreeMap<Handle, String>,
    acks: VecDeque<(u64, u64)>,
    /// Rounds from the order of a copy to its acknowledgement.
    pub ack_after: u64,
    /// Whether stores, and loads, are held back until [`Engine::release_copies`].
    pub holds_copies: (bool, bool),
    held_copies: Vec<u64>,
    /// Whether clients finish a request that has its output.
    pub clients_finish: bool,
    /// Requests whose results do not arrive, for now.
    pub lost: BTreeSet<String>,
    /// Of so many rounds one's forward is withheld; 0 where none is. Each such batch is told to retract
    /// when its results would have come.
    pub one_forward_withheld_of: u64,
    withheld: VecDeque<(u64, Vec<String>)>,
    /// Whom the cache events are told.
    pub consumer: Consumer,
}

impl Engine {
    pub fn new(world: &World) -> Engine {
        let new = || Scheduler::new(world.config()).expect("the world is valid");
        Engine {
            world: world.clone(),
            scheduler: new(),
            mirror: new(),
            device: Device::new(&world.config().cache_groups),
            lives: BTreeMap::new(),
            plan: ExecutionPlan::default(),
            round: 0,
            log: Vec::new(),
            ids: BTreeMap::new(),
            acks: VecDeque::new(),
            ack_after: 1,
            holds_copies: (false, false),
            held_copies: Vec::new(),
            clients_finish: true,
            lost: BTreeSet::new(),
            one_forward_withheld_of: 0,
            withheld: VecDeque::new(),
            consumer: Consumer::default(),
        }
    }

    /// Submits requests as one batch; all must be accepted.
    pub fn submit(&mut self, asked: &[(&str, Asked)]) {
        self.try_submit(asked).expect("the pool can run them");
    }

    /// Submits requests named `a`, `b`, and so on, as one batch.
    pub fn submit_all(&mut self, asked: Vec<Asked>) {
        let names: Vec<String> =
            (0..asked.len()).map(|at| char::from(b'a' + at as u8).to_string()).collect();
        let named: Vec<_> = names.iter().map(String::as_str).zip(asked).collect();
        self.submit(&named);
    }

    /// Submits requests as one batch.
    pub fn try_submit(&mut self, asked: &[(&str, Asked)]) -> Result<()> {
        let specs: Vec<_> = asked.iter().map(|(id, asked)| asked.spec(id)).collect();
        let taken = self.scheduler.submit_requests(specs.clone());
        assert_eq!(taken, self.mirror.submit_requests(specs.clone()));
        taken?;
        for ((id, asked), spec) in asked.iter().zip(specs) {
            let life = Life::new(asked, &spec.tokens);
            self.lives.insert((*id).into(), life);
        }
        Ok(())
    }

    /// Feeds events to both schedulers, outside of the round's own.
    pub fn advance(&mut self, events: Vec<Event>) -> Result<()> {
        let fed = self.scheduler.advance(events.clone());
        assert_eq!(fed, self.mirror.advance(events));
        fed
    }

    /// The client gives up.
    pub fn abort(&mut self, id: &str) {
        // Of a forward that was withheld the engine says so first, for all of it.
        let withheld = self.withheld.iter().filter(|(_, ids)| ids.iter().any(|other| other == id));
        let alive = |id: &&String| self.lives[*id].outcome.is_none();
        let together = withheld.flat_map(|(_, ids)| ids).filter(alive);
        let retract = |id: &String| Event::Retract { request_id: id.as_str().into() };
        let mut events: Vec<Event> = together.map(retract).collect();
        events.push(Event::Abort { request_id: id.into() });
        self.advance(events).expect("any state may abort");
        self.end(id, Outcome::Aborted);
        self.drop_forfeited();
    }

    /// The client has enough, sooner than it asked for.
    pub fn finish(&mut self, id: &str) {
        self.advance(vec![Event::Finish { request_id: id.into() }]).expect("it has output");
        self.end(id, Outcome::Finished);
    }

    /// The client has enough, and the engine names the request by a handle.
    pub fn finish_by_handle(&mut self, id: &str, handle: Handle) {
        let finished = self.scheduler.finish(&[handle]);
        assert_eq!(finished, self.mirror.finish(&[handle]));
        finished.expect("it has output");
        self.end(id, Outcome::Finished);
    }

    /// Feeds a result by handle to both schedulers.
    pub fn land(&mut self, handle: Handle, tokens: &[i32]) -> Result<()> {
        let offsets = [0, tokens.len() as i64];
        let landed = self.scheduler.advance_results(&[handle], tokens, &offsets);
        assert_eq!(landed, self.mirror.advance_results(&[handle], tokens, &offsets));
        landed
    }

    /// The engine withholds a request's forwards and takes its blocks away. Returns the tokens of the
    /// results that were out: by the contract none of them arrives.
    pub fn retract(&mut self, id: &str) -> Vec<Vec<i32>> {
        self.advance(vec![Event::Retract { request_id: id.into() }]).expect("it was admitted");
        self.life(id).forfeit()
    }

    /// A load has failed, and retracted requests without their forwards: their results count for nothing,
    /// and an engine that names requests by id does not tell them.
    fn drop_forfeited(&mut self) {
        let owed = self.scheduler.owed_results();
        let is_owed = |id: &str| owed.iter().any(|result| *result.request_id == *id);
        for (id, life) in &mut self.lives {
            if life.outcome.is_none() && !is_owed(id) {
                life.forfeit();
            }
        }
    }

    /// The handle of a request in the last plan.
    pub fn handle(&self, id: &str) -> Handle {
        let batch = &self.plan.batch;
        let at = batch.request_ids.iter().position(|other| &**other == id);
        batch.handles[at.expect("it is in the batch")]
    }

    /// One round: what is due lands, a plan is made and launched. The plan as [`summary::of`] tells it.
    pub fn round(&mut self) -> String {
        let events = self.due();
        let forfeits = |event: &Event| {
            matches!(event, Event::LoadBackDone { success: false, .. } | Event::Retract { .. })
        };
        let forfeits = events.iter().any(forfeits);
        self.advance(events).expect("results that are owed are welcome");
        if forfeits {
            self.drop_forfeited();
        }
        let was_owed = self.is_owed();
        let plan = self.scheduler.next_execution_plan().expect("a plan can always be made");
        let mirrored = self.mirror.next_execution_plan().expect("a plan can always be made");
        assert_eq!(plan, mirrored, "mirrored schedulers plan alike");
        // What a Finish has pinned since the last plan is owed from now on.
        let was_owed = was_owed || plan.write_back.source_pinned.contains(&true);
        self.plan = plan.clone();
        for &handle in &plan.retracted {
            let id = self.ids[&handle].clone();
            let life = self.life(&id);
            assert_eq!(life.landed, life.tokens.len(), "'{id}' was retracted under its forward");
            let output = life.output();
            life.retracted_at.push(output);
        }
        for notice in &plan.aborts {
            self.end(&notice.request_id, Outcome::Ended(notice.clone()));
        }
        self.check_grants();
        self.tell();
        self.device.before_forward(&plan);
        let (stores, loads) = (plan.write_back.op_ids.iter(), plan.load_back.op_ids.iter());
        let stores = stores.map(|&op_id| (op_id, self.holds_copies.0));
        for (op_id, is_held) in stores.chain(loads.map(|&op_id| (op_id, self.holds_copies.1))) {
            match is_held {
                true => self.held_copies.push(op_id),
                false => self.acks.push_back((self.round + self.ack_after, op_id)),
            }
        }
        let ids = plan.batch.request_ids.iter().map(|id| id.to_string()).collect();
        let withheld = self.one_forward_withheld_of > 0
            && mix(self.round, 9).is_multiple_of(self.one_forward_withheld_of);
        if withheld {
            self.withheld.push_back((self.round + self.world.depth as u64, ids));
            self.device.withheld += 1;
        }
        for at in 0..plan.batch.request_ids.len() {
            self.launch(at, withheld);
        }
        self.round += 1;
        let moves = !plan.batch.request_ids.is_empty() || !plan.aborts.is_empty();
        let lives = self.lives.values().any(|life| life.outcome.is_none());
        let round = summary::of(&self.plan, &self.ids);
        self.log.push(round.clone());
        let moves = moves || !lives || was_owed;
        assert!(moves, "nothing moves, nothing is owed: {:#?}", self.last_rounds());
        round
    }

    /// Tells the consumer what has changed.
    pub fn tell(&mut self) -> Vec<KvEvent> {
        let events = self.scheduler.drain_kv_events().expect("the checkers find nothing");
        assert_eq!(Ok(&events), self.mirror.drain_kv_events().as_ref(), "mirrored events");
        self.consumer.apply(&events, self.world.config().prefix_granularity as usize);
        events
    }

    /// Rounds as [`Engine::round`] tells them.
    pub fn rounds(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.round()).collect()
    }

    fn last_rounds(&self) -> &[String] {
        &self.log[self.log.len().saturating_sub(12)..]
    }

    /// Plays until every client has an answer and every copy has ended; then nothing may be left.
    pub fn play(&mut self) {
        self.drain();
        self.settle();
    }

    /// Plays until every client has an answer and nothing is owed; what is cached stays.
    pub fn drain(&mut self) {
        let last = self.round + 5_000;
        while self.is_owed() || self.lives.values().any(|life| life.outcome.is_none()) {
            self.round();
            assert!(self.round < last, "the world runs for ever: {:#?}", self.last_rounds());
        }
    }

    /// Finds that nothing is owned, fenced or owed, and empties the cache.
    pub fn settle(&mut self) {
        self.round();
        assert_eq!(self.scheduler.active_lcm_blocks(), 0, "blocks are still owned");
        assert_eq!(self.scheduler.owed_results(), []);
        assert_eq!(self.device.copies_in_flight(), 0);
        let cleared = (self.scheduler.clear_cache(), self.mirror.clear_cache());
        assert_eq!(cleared, (true, true), "the cache is wholly evictable, on both tiers");
        assert_eq!(self.scheduler.empty_lcm_blocks() as i64, self.world.P);
        self.tell();
        assert_eq!(self.consumer.prompts().len(), 0, "an empty cache holds no prompt");
    }

    /// A scheduled request's table of a group in the last plan: absolute slots, 0 a hole.
    pub fn table(&self, group: usize, id: &str) -> Vec<i32> {
        let batch = &self.plan.batch;
        let at = batch.request_ids.iter().position(|other| &**other == id);
        let cells = row(batch, group, at.expect("it is in the batch"));
        cells.iter().copied().filter(|&block| block >= 0).collect()
    }

    /// Prompt and output of a request so far, as the device has them.
    pub fn tokens(&self, id: &str) -> &[i32] {
        &self.lives[id].tokens
    }

    /// How the request ended, if it did.
    pub fn outcome(&self, id: &str) -> Option<&Outcome> {
        self.lives[id].outcome.as_ref()
    }

    /// Whether each of them finished.
    pub fn all_finished(&self) -> bool {
        self.lives.values().all(|life| life.outcome == Some(Outcome::Finished))
    }

    /// Results and acknowledgements that have not arrived.
    pub fn is_owed(&self) -> bool {
        let copies = !self.acks.is_empty() || !self.held_copies.is_empty();
        let owed = copies || !self.withheld.is_empty();
        owed || self.lives.values().any(|life| !life.out.is_empty())
    }

    /// Ids that this round's batch decodes.
    pub fn decodes(&self) -> Vec<String> {
        let batch = &self.plan.batch;
        batch.request_ids[batch.num_extends..].iter().map(|id| id.to_string()).collect()
    }

    /// Ends the copies that are held back, the last one ordered first.
    pub fn release_copies(&mut self) {
        let held = std::mem::take(&mut self.held_copies);
        let events = held.into_iter().rev().map(|op_id| self.device.acknowledge(op_id)).collect();
        self.advance(events).expect("a copy in flight may end");
    }

    fn life(&mut self, id: &str) -> &mut Life {
        self.lives.get_mut(id).unwrap_or_else(|| panic!("nobody asked for '{id}'"))
    }

    fn end(&mut self, id: &str, outcome: Outcome) {
        let life = self.life(id);
        assert_eq!(life.outcome, None, "'{id}' ends twice");
        life.outcome = Some(outcome);
    }

    fn due(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for (id, life) in &mut self.lives {
            while !self.lost.contains(id)
                && life.out.front().is_some_and(|result| result.due <= self.round)
            {
                let ResultOut { tokens, .. } = life.out.pop_front().expect("a front was seen");
                if life.outcome.is_none() {
                    life.landed += tokens.len();
                }
                events.push(Event::ExtendResult {
                    request_id: id.as_str().into(),
                    tokens: tokens.into(),
                    spec_candidate_ids: Default::default(),
                });
            }
            let has_all = life.output() as i64 >= life.asked.output;
            if self.clients_finish && has_all && life.outcome.is_none() {
                life.outcome = Some(Outcome::Finished);
                events.push(Event::Finish { request_id: id.as_str().into() });
            }
        }
        while self.withheld.front().is_some_and(|&(due, _)| due <= self.round) {
            let (_, ids) = self.withheld.pop_front().expect("a front was seen");
            self.device.withheld -= 1;
            events.extend(
                ids.into_iter().map(|request_id| Event::Retract { request_id: request_id.into() }),
            );
        }
        while self.acks.front().is_some_and(|&(due, _)| due <= self.round) {
            let (_, op_id) = self.acks.pop_front().expect("a front was seen");
            events.push(self.device.acknowledge(op_id));
        }
        events
    }

    /// A fresh block is one request's, and no forward of another in this batch may touch it.
    fn check_grants(&self) {
        let batch = &self.plan.batch;
        for (group, fresh) in self.plan.pages_to_zero.iter().enumerate() {
            for &page in fresh {
                let users = (0..batch.request_ids.len())
                    .filter(|&at| row(batch, group, at).contains(&page))
                    .count();
                assert!(users <= 1, "block {page} of group {group} was granted {users} times");
            }
        }
    }

    fn launch(&mut self, at: usize, withheld: bool) {
        let batch = self.plan.batch.clone();
        let id = batch.request_ids[at].to_string();
        self.ids.insert(batch.handles[at], id.clone());
        let due = self.round + self.world.depth as u64;
        let (width, accepted) = (self.world.width as usize, self.world.accepted as usize);
        let page = self.world.config().prefix_granularity as usize;
        let tables = (0..batch.block_tables.len()).map(|group| row(&batch, group, at)).collect();
        let life = self.lives.get_mut(&id).expect("only requests asked for are scheduled");
        assert_eq!(life.outcome, None, "'{id}' is scheduled after its end");
        let is_prefill = at < batch.num_extends;
        let (start, end, samples) = if is_prefill {
            let start = batch.extend_prefix_lens[at] as usize;
            let end = start + batch.input_lengths[at] as usize;
            life.prefilled += end - start;
            life.hit += (batch.device_hit_tokens[at] + batch.host_hit_tokens[at]) as usize;
            (start, end, usize::from(end as i32 == batch.prefill_lengths[at]))
        } else {
            let start = life.tokens.len() - 1;
            let samples = if accepted == 0 { width } else { accepted };
            (start, start + samples, samples)
        };
        let mut sampled = Vec::new();
        for _ in 0..samples {
            sampled.push(life.sample());
            life.extend(sampled[sampled.len() - 1]);
        }
        if !withheld {
            life.out.push_back(ResultOut { due, tokens: sampled });
        }
        let written_end = if is_prefill { end } else { start + width };
        self.device.forward(&Forward {
            id: &id,
            hashes: &life.hashes,
            computed: start..end,
            written_end,
            tables,
            checkpoint_page: is_prefill.then_some(page),
            withheld,
        });
    }
}

/// A request's row of a group's table, padding included.
fn row(batch: &Batch, group: usize, at: usize) -> &[i32] {
    let table = &batch.block_tables[group];
    &table.cells[at * table.columns..(at + 1) * table.columns]
}
