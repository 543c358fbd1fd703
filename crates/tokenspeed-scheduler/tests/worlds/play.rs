//! A world played to its end, round by round.

use std::collections::BTreeMap;

use tokenspeed_scheduler::identity::ContentHash;
use tokenspeed_scheduler::{Error, Event, ExecutionPlan, Role, Scheduler};

use crate::engine::{LOST, Life, Said};
use crate::judge::Judge;
use crate::world::{Asked, Random, World};

/// Rounds in which nothing but what is lost is owed, after which the engine sees to it.
const PATIENCE: u64 = 8;

/// A world under way.
pub struct Play<'w> {
    pub world: &'w World,
    pub r: Random,
    /// Two mirrored schedulers.
    ranks: [Scheduler; 2],
    digest: u64,
    pub round: u64,
    pub lives: BTreeMap<String, Life<'w>>,
    /// What the engine and the peers have yet to say, with the round in which they will.
    pub owed: Vec<(u64, Said)>,
    pub judge: Judge<'w>,
}

/// Plays a world to its end; what went wrong, in words.
pub fn play(world: &World) -> Result<(), String> {
    let rank = || Scheduler::new(world.config.clone()).map_err(|e| e.to_string());
    let mut play = Play {
        world,
        r: Random::new(world.seed ^ 0xabcdef),
        ranks: [rank()?, rank()?],
        digest: 0,
        round: 0,
        lives: BTreeMap::new(),
        owed: Vec::new(),
        judge: Judge::new(&world.config),
    };
    let mut idle = 0;
    for round in 0..4000 {
        play.round = round;
        let plan = play.round().map_err(|what| format!("round {round}: {what}"))?;
        let arriving = world.requests.iter().any(|asked| asked.arrival > round);
        if play.lives.is_empty() && play.owed.is_empty() && !arriving {
            return play.settled();
        }
        let moved = !plan.batch.handles.is_empty()
            || plan.remote_prefill.is_some()
            || plan.remote_decode.is_some()
            || !plan.aborts.is_empty();
        idle = if moved || arriving || play.is_owed() { 0 } else { idle + 1 };
        if idle > 0 && !play.has_lost() {
            let lives: Vec<_> = play.lives.keys().collect();
            return Err(format!("round {round}: nothing scheduled, nothing owed: {lives:?}"));
        }
        if idle >= PATIENCE {
            play.find_lost();
        }
    }
    Err("4,000 rounds were not enough".into())
}

impl<'w> Play<'w> {
    fn round(&mut self) -> Result<ExecutionPlan, String> {
        let world = self.world;
        let round = self.round;
        for asked in world.requests.iter().filter(|asked| asked.arrival == round) {
            self.submit(asked)?;
        }
        let events = self.due();
        if std::env::var_os("SHOW_ROUNDS").is_some() {
            println!("{}: {events:?}", self.round);
        }
        self.both(|rank| rank.advance(events.clone()))?;
        if world.config.enable_l3_storage {
            self.offer_storage()?;
        }
        if self.r.one_in(40) {
            let cleared =
                self.ranks.each_mut().map(|rank| (rank.clear_l1_cache(), rank.clear_cache()));
            if cleared[0] != cleared[1] {
                return Err(format!("cleared {cleared:?}"));
            }
        }
        let plan = self.plan()?;
        if std::env::var_os("SHOW_ROUNDS").is_some() {
            println!("{}: {}", self.round, summary(&plan, &self.ranks[0]));
        }
        // The checkers compare what was told with what prompts would hit. Plans agree all the same, however
        // much one rank has told.
        for (rank, every) in self.ranks.iter_mut().zip([1 + world.seed % 5, 2 + world.seed % 11]) {
            if self.round.is_multiple_of(every) {
                rank.drain_kv_events().map_err(|error| error.to_string())?;
            }
        }
        let lives = &self.lives;
        self.judge.judge(&plan, |id| lives.get(id).map_or(0, |life| life.out.len()))?;
        self.launch(&plan)?;
        Ok(plan)
    }

    fn submit(&mut self, asked: &'w Asked) -> Result<(), String> {
        let taken =
            self.ranks.each_mut().map(|rank| rank.submit_requests(vec![asked.spec.clone()]));
        if taken[0] != taken[1] {
            return Err(format!("submission: {taken:?}"));
        }
        let id = &asked.spec.request_id;
        match &taken[0] {
            Ok(()) => {
                self.lives.insert(id.clone(), Life::new(asked));
                self.judge.submitted(&asked.spec);
                if self.world.config.role.transfers() {
                    let met = Event::Bootstrapped { request_id: id.as_str().into() };
                    let due = self.round + self.r.below(self.world.peer_lag);
                    self.owed.push((due, Said::Word(met)));
                }
                Ok(())
            }
            Err(Error::RequestTooLarge { .. }) => Ok(()),
            Err(other) => Err(other.to_string()),
        }
    }

    fn both(&mut self, call: impl Fn(&mut Scheduler) -> Result<(), Error>) -> Result<(), String> {
        let [one, two] = self.ranks.each_mut().map(call);
        if one != two {
            return Err(format!("mirrored schedulers: {one:?}, {two:?}"));
        }
        one.map_err(|e| e.to_string())
    }

    fn plan(&mut self) -> Result<ExecutionPlan, String> {
        let [one, two] = &mut self.ranks;
        let plan = one.next_execution_plan().map_err(|e| e.to_string())?;
        let mirrored = two.next_execution_plan().map_err(|e| e.to_string())?;
        let digest = plan.digest(self.digest);
        if digest != mirrored.digest(self.digest) {
            return Err("mirrored schedulers plan otherwise".into());
        }
        self.digest = digest;
        Ok(plan)
    }

    /// Registers what the store holds of the pages that waiting prompts could use: two of three.
    fn offer_storage(&mut self) -> Result<(), String> {
        let mut hashes = self.ranks[0].waiting_prefix_hashes();
        hashes.retain(|hash| {
            let first = ContentHash::from_hex(hash).map_or(0, |hash| hash.short());
            !first.is_multiple_of(3)
        });
        let keys = self.ranks[0].expand_prefix_keys(&hashes).map_err(|e| e.to_string())?;
        let lost = self.r.one_in(6);
        self.both(|rank| rank.register_storage_keys(keys.clone()))?;
        if lost {
            self.both(|rank| rank.unregister_storage_keys(keys.clone()))?;
        }
        Ok(())
    }

    /// Whether anything that will come by itself is still to come.
    fn is_owed(&self) -> bool {
        let results = |life: &Life<'_>| life.out.front().is_some_and(|out| out.due < LOST);
        self.owed.iter().any(|&(due, _)| due < LOST) || self.lives.values().any(results)
    }

    fn has_lost(&self) -> bool {
        self.owed.iter().any(|&(due, _)| due == LOST)
            || self.lives.values().any(|life| !life.out.is_empty())
    }

    /// When all is over nothing is owned, and the cache is wholly evictable (`liveness.md` 2).
    fn settled(&mut self) -> Result<(), String> {
        let usable = self.world.config.usable_device_parents() as usize;
        let role = self.world.config.role;
        for rank in &mut self.ranks {
            let left = [
                rank.active_lcm_blocks(),
                usable - rank.available_lcm_blocks(),
                rank.bootstrapping_size(),
                rank.waiting_size(),
                rank.prefilling_size(),
                rank.decoding_size(),
                rank.pd_transfer_size(),
                rank.owed_results().len(),
            ];
            if left != [0; 8] {
                return Err(format!("left behind on role {role:?}: {left:?}"));
            }
            if !rank.clear_cache() || rank.empty_lcm_blocks() != usable {
                return Err("the cache cannot be cleared".into());
            }
        }
        Ok(())
    }
}

fn summary(plan: &ExecutionPlan, rank: &Scheduler) -> String {
    let batch = &plan.batch;
    let remote = |batch: &Option<tokenspeed_scheduler::plan::Batch>| {
        batch.as_ref().map(|batch| batch.request_ids.clone())
    };
    format!(
        "{:?} {:?}@{:?} +{} landing {:?} handed over {:?} stores {:?} loads {:?} retracted {:?} aborts {:?} \
         free {} of {}",
        batch.request_ids,
        batch.input_lengths,
        batch.extend_prefix_lens,
        batch.num_extends,
        remote(&plan.remote_prefill),
        remote(&plan.remote_decode),
        plan.write_back.op_ids,
        plan.load_back.op_ids,
        plan.retracted,
        plan.aborts,
        rank.empty_lcm_blocks(),
        rank.available_lcm_blocks()
    )
}

/// Whether a role's clients finish their requests themselves.
pub fn clients_finish(role: Role) -> bool {
    role != Role::P
}
