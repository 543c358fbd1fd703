//! A small world around the scheduler: a configuration, requests, and a client that is late, slow to
//! acknowledge and sometimes gives up. One seed is one world.

use std::collections::{BTreeMap, VecDeque};

use tokenspeed_scheduler::{
    CacheGroupConfig, CacheGroupFamily, CacheRetention, Error, Event, ExecutionPlan, RequestSpec,
    Scheduler, SchedulerConfig,
};

/// SplitMix64: the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[derive(Debug, Clone)]
pub struct World {
    pub seed: u64,
    pub config: SchedulerConfig,
    pub requests: Vec<Asked>,
}

#[derive(Debug, Clone)]
pub struct Asked {
    pub arrival: u64,
    pub spec: RequestSpec,
    pub output: i64,
    pub abort_after: Option<u64>,
}

impl World {
    pub fn random(seed: u64) -> World {
        let r = &mut Random::new(seed);
        let p = r.pick(&[2, 4, 8]);
        let parents = 4 + r.below(28) as i64;
        let width = r.pick(&[1, 1, 1, 2, 3, 4]);
        let groups = (0..1 + r.below(3)).map(|at| group(r, at, p, parents)).collect();
        let config = SchedulerConfig {
            prefix_granularity: p,
            num_device_pages: parents + 1,
            num_host_pages: r.pick(&[0, 0, 3, 9, 40]),
            max_scheduled_tokens: p * 2 + width + r.below(24) as i64,
            max_batch_size: 1 + r.below(8) as i64,
            decode_input_tokens: width,
            overlap_schedule_depth: r.below(2) as i64,
            cache_groups: groups,
            disable_prefix_cache: r.one_in(6),
            enable_mixed_prefill_decode: r.one_in(2),
            prefix_replay_tokens: r.pick(&[0, 0, 3]),
            enable_kv_cache_events: seed.is_multiple_of(2),
            ..SchedulerConfig::default()
        };
        let shared: Vec<i32> = (0..64).map(|_| r.below(50) as i32).collect();
        let requests = (0..2 + r.below(8))
            .map(|at| {
                let common = r.below(40) as usize;
                let own = 1 + r.below(30);
                let mut tokens = shared[..common].to_vec();
                tokens.extend((0..own).map(|_| r.below(1000) as i32));
                let output = 1 + r.below(30) as i64;
                let declared = r.pick(&[0, output, output, output + 7]);
                Asked {
                    arrival: r.below(12),
                    spec: RequestSpec {
                        request_id: format!("r{at}"),
                        tokens,
                        max_new_tokens: declared,
                    },
                    output,
                    abort_after: r.one_in(6).then(|| r.below(20)),
                }
            })
            .collect();
        World { seed, config, requests }
    }
}

fn group(r: &mut Random, at: u64, p: i64, parents: i64) -> CacheGroupConfig {
    let g = r.pick(&[1, 2, 4, 8]).min(p);
    let k = r.pick(&[1, 1, 2, 3]);
    let (retention, window, family) = match if at == 0 { r.below(2) * 3 } else { r.below(3) } {
        1 => {
            (CacheRetention::SlidingWindow, Some(1 + r.below(12) as i64), CacheGroupFamily::History)
        }
        2 => (CacheRetention::FullHistory, None, CacheGroupFamily::State),
        _ => (CacheRetention::FullHistory, None, CacheGroupFamily::History),
    };
    CacheGroupConfig {
        group_id: format!("g{at}"),
        block_granularity: g,
        total_pages: parents * k + 1,
        retention,
        sliding_window_tokens: window,
        family,
        cache_blocks_per_lcm_block: k,
        ..CacheGroupConfig::default()
    }
}

struct Life {
    output: i64,
    produced: i64,
    /// Results out: round in which each is due, and whether it brings a token.
    out: VecDeque<(u64, i64)>,
}

/// Plays a world to its end; what went wrong, in words.
pub fn play(world: &World) -> Result<(), String> {
    let r = &mut Random::new(world.seed ^ 0xabcdef);
    let mut scheduler = Scheduler::new(world.config.clone()).map_err(|e| e.to_string())?;
    let mut lives: BTreeMap<String, Life> = BTreeMap::new();
    let mut acks: Vec<(u64, Event)> = Vec::new();
    let mut idle = 0;
    for round in 0..3000 {
        for asked in world.requests.iter().filter(|asked| asked.arrival == round) {
            match scheduler.submit_requests(vec![asked.spec.clone()]) {
                Ok(()) => {
                    let life = Life { output: asked.output, produced: 0, out: VecDeque::new() };
                    lives.insert(asked.spec.request_id.clone(), life);
                }
                Err(Error::RequestTooLarge { .. }) => {}
                Err(other) => return Err(other.to_string()),
            }
        }
        let events = due(world, r, round, &mut lives, &mut acks);
        scheduler.advance(events).map_err(|e| format!("round {round}: {e}"))?;
        let plan = scheduler.next_execution_plan().map_err(|e| format!("round {round}: {e}"))?;
        if std::env::var_os("SHOW_ROUNDS").is_some() {
            println!(
                "{round}: {:?} {:?} +{:?} copies {:?} {:?} retracted {:?} aborts {:?} free {} of {}",
                plan.batch.request_ids,
                plan.batch.input_lengths,
                plan.batch.num_extends,
                plan.write_back.op_ids,
                plan.load_back.op_ids,
                plan.retracted,
                plan.aborts,
                scheduler.empty_lcm_blocks(),
                scheduler.available_lcm_blocks()
            );
        }
        // The checkers compare what was told with what prompts would hit.
        if round % (1 + world.seed % 5) == 0 {
            scheduler.drain_kv_events().map_err(|e| format!("round {round}: {e}"))?;
        }
        launch(world, r, round, &plan, &mut lives, &mut acks);
        let owed = !acks.is_empty() || lives.values().any(|life| !life.out.is_empty());
        let arriving = world.requests.iter().any(|asked| asked.arrival > round);
        if lives.is_empty() && !owed && !arriving {
            return settled(&scheduler);
        }
        let moved = !plan.batch.handles.is_empty() || !plan.aborts.is_empty();
        idle = if moved || owed || arriving { 0 } else { idle + 1 };
        if idle > 0 {
            return Err(format!(
                "round {round}: nothing scheduled, nothing owed: {:?}",
                lives.keys()
            ));
        }
    }
    Err("3,000 rounds were not enough".into())
}

fn due(
    world: &World,
    r: &mut Random,
    round: u64,
    lives: &mut BTreeMap<String, Life>,
    acks: &mut Vec<(u64, Event)>,
) -> Vec<Event> {
    let mut events = Vec::new();
    let mut gone = Vec::new();
    for (id, life) in lives.iter_mut() {
        while life.out.front().is_some_and(|&(at, _)| at <= round) {
            let (_, width) = life.out.pop_front().expect("a front was seen");
            let tokens = if width == 0 { 0 } else { 1 + r.below(width as u64) };
            let tokens = (0..tokens).map(|_| r.below(1000) as i32).collect::<Vec<_>>();
            life.produced += tokens.len() as i64;
            events.push(Event::ExtendResult {
                request_id: id.clone(),
                tokens,
                spec_candidate_ids: Vec::new(),
            });
        }
        let asked = world.requests.iter().find(|asked| asked.spec.request_id == *id);
        let asked = asked.expect("every life was asked for");
        if life.produced >= life.output {
            events.push(Event::Finish { request_id: id.clone() });
            gone.push(id.clone());
        } else if asked.abort_after.is_some_and(|after| round >= asked.arrival + after) {
            events.push(Event::Abort { request_id: id.clone() });
            gone.push(id.clone());
        } else if r.one_in(60) && life.produced > 0 && life.out.is_empty() {
            events.push(Event::Retract { request_id: id.clone() });
        }
    }
    gone.iter().for_each(|id| {
        lives.remove(id);
    });
    let (now, later): (Vec<_>, Vec<_>) = acks.drain(..).partition(|&(at, _)| at <= round);
    *acks = later;
    events.extend(now.into_iter().map(|(_, event)| event));
    events
}

fn launch(
    world: &World,
    r: &mut Random,
    round: u64,
    plan: &ExecutionPlan,
    lives: &mut BTreeMap<String, Life>,
    acks: &mut Vec<(u64, Event)>,
) {
    for notice in &plan.aborts {
        lives.remove(&*notice.request_id);
    }
    let depth = world.config.overlap_schedule_depth as u64;
    for (at, id) in plan.batch.request_ids.iter().enumerate() {
        let width = if at >= plan.batch.num_extends {
            world.config.decode_input_tokens
        } else {
            let end = plan.batch.extend_prefix_lens[at] + plan.batch.input_lengths[at];
            i64::from(end == plan.batch.prefill_lengths[at])
        };
        let due = round + 1 + r.below(depth + 1);
        let life = lives.get_mut(&**id).expect("only live requests are scheduled");
        let after_last = life.out.back().map_or(0, |&(at, _)| at);
        life.out.push_back((due.max(after_last), width));
    }
    for &op_id in &plan.write_back.op_ids {
        acks.push((round + 1 + r.below(4), Event::WriteBackDone { op_id }));
    }
    for &op_id in &plan.load_back.op_ids {
        acks.push((round + 1 + r.below(4), Event::LoadBackDone { op_id, success: true }));
    }
}

fn settled(scheduler: &Scheduler) -> Result<(), String> {
    if scheduler.active_lcm_blocks() > 0 {
        return Err(format!("{} parents are still owned", scheduler.active_lcm_blocks()));
    }
    Ok(())
}
