//! A scheduler with the least of an engine around it: each forward ends at once, each request samples
//! one token, copies are acknowledged in the round that planned them. Only the scheduler is timed.

use std::iter::Sum;
use std::ops::Add;
use std::time::{Duration, Instant};

use tokenspeed_scheduler::{
    CacheGroupConfig, Event, ExecutionPlan, PressurePolicy, RequestSpec, Scheduler, SchedulerConfig,
};

/// How an engine talks to the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Results by handle in three arrays; block tables are the persistent ones.
    Arrays,
    /// One event a result; every plan carries block tables of its own.
    Compatible,
}

impl Path {
    pub const BOTH: [Path; 2] = [Path::Arrays, Path::Compatible];

    pub fn name(self) -> &'static str {
        match self {
            Path::Arrays => "arrays",
            Path::Compatible => "compatible",
        }
    }
}

/// One full-attention group of blocks of `page` tokens; P is the same.
#[derive(Debug, Clone, Copy)]
pub struct Pool {
    /// Tokens of a block.
    pub page: usize,
    /// Usable blocks.
    pub blocks: usize,
    /// Requests that may hold blocks at once.
    pub rows: usize,
    /// Tokens of input that a round may take.
    pub budget: usize,
    /// Usable blocks of the Host tier; 0 for none.
    pub host_blocks: usize,
    /// Who gives way when memory is short.
    pub policy: PressurePolicy,
}

impl Pool {
    fn config(self) -> SchedulerConfig {
        let (page, pages) = (self.page as i64, self.blocks as i64 + 1);
        SchedulerConfig {
            prefix_granularity: page,
            num_device_pages: pages,
            num_host_pages: self.host_blocks as i64 + 1,
            max_scheduled_tokens: self.budget as i64,
            max_batch_size: self.rows as i64,
            pressure_policy: self.policy,
            enable_mixed_prefill_decode: self.policy == PressurePolicy::Goodput,
            cache_groups: vec![CacheGroupConfig {
                group_id: "full".into(),
                block_granularity: page,
                total_pages: pages,
                ..CacheGroupConfig::default()
            }],
            ..SchedulerConfig::default()
        }
    }
}

/// What the calls of one round took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// `submit_requests`, hashing included.
    pub submit: Duration,
    /// `next_execution_plan`, and letting the plan go.
    pub plan: Duration,
    /// `advance_results` or `advance`.
    pub feedback: Duration,
}

impl Times {
    pub fn total(self) -> Duration {
        self.submit + self.plan + self.feedback
    }
}

impl Add for Times {
    type Output = Times;

    fn add(self, other: Times) -> Times {
        Times {
            submit: self.submit + other.submit,
            plan: self.plan + other.plan,
            feedback: self.feedback + other.feedback,
        }
    }
}

impl Sum for Times {
    fn sum<I: Iterator<Item = Times>>(all: I) -> Times {
        all.fold(Times::default(), Times::add)
    }
}

/// A round that was played.
#[derive(Debug)]
pub struct Round {
    pub times: Times,
    /// Ids of the requests that sampled a token.
    pub sampled: Vec<String>,
    /// Requests that the scheduler retracted.
    pub retractions: usize,
}

/// A scheduler and what feeds it.
#[derive(Debug)]
pub struct Engine {
    pub scheduler: Scheduler,
    path: Path,
}

impl Engine {
    pub fn new(path: Path, pool: Pool) -> Engine {
        let mut scheduler = Scheduler::new(pool.config()).expect("a valid configuration");
        scheduler.set_with_block_tables(path == Path::Compatible);
        Engine { scheduler, path }
    }

    pub fn submit(&mut self, specs: Vec<RequestSpec>) -> Times {
        let (submit, ()) =
            timed(|| self.scheduler.submit_requests(specs).expect("requests that fit"));
        Times { submit, ..Times::default() }
    }

    /// Plans a round and plays it.
    pub fn round(&mut self) -> Round {
        let (build, plan) = timed(|| self.scheduler.next_execution_plan().expect("a plan"));
        let samples = samples(&plan);
        let feedback = self.acknowledge(&plan)
            + match self.path {
                Path::Arrays => self.feed_arrays(&plan, &samples),
                Path::Compatible => self.feed_events(&plan, &samples),
            };
        let sampled =
            plan.batch.request_ids.iter().zip(&samples).filter(|&(_, &tokens)| tokens > 0);
        let sampled = sampled.map(|(id, _)| id.to_string()).collect();
        let retractions = plan.retracted.len();
        let (let_go, ()) = timed(|| drop(plan));
        let times = Times { submit: Duration::ZERO, plan: build + let_go, feedback };
        Round { times, sampled, retractions }
    }

    /// Ends these requests; what they computed stays cached.
    pub fn finish(&mut self, ids: Vec<String>) {
        let finish = |id: String| Event::Finish { request_id: id.into() };
        let events: Vec<Event> = ids.into_iter().map(finish).collect();
        self.scheduler.advance(events).expect("complete prompts");
    }

    fn feed_arrays(&mut self, plan: &ExecutionPlan, samples: &[usize]) -> Duration {
        let mut offsets = vec![0; samples.len() + 1];
        for (at, &tokens) in samples.iter().enumerate() {
            offsets[at + 1] = offsets[at] + tokens as i64;
        }
        let tokens = vec![SAMPLE; offsets[samples.len()] as usize];
        let handles = &plan.batch.handles;
        let (feedback, landed) =
            timed(|| self.scheduler.advance_results(handles, &tokens, &offsets));
        landed.expect("results that are owed");
        feedback
    }

    fn feed_events(&mut self, plan: &ExecutionPlan, samples: &[usize]) -> Duration {
        let result = |(id, &tokens): (&std::sync::Arc<str>, &usize)| Event::ExtendResult {
            request_id: id.clone().into(),
            tokens: vec![SAMPLE; tokens].into(),
            spec_candidate_ids: Default::default(),
        };
        let events: Vec<Event> = plan.batch.request_ids.iter().zip(samples).map(result).collect();
        let (feedback, landed) = timed(|| self.scheduler.advance(events));
        landed.expect("results that are owed");
        feedback
    }

    fn acknowledge(&mut self, plan: &ExecutionPlan) -> Duration {
        let stores = plan.write_back.op_ids.iter().map(|&op_id| Event::WriteBackDone { op_id });
        let loads = &plan.load_back.op_ids;
        let loads = loads.iter().map(|&op_id| Event::LoadBackDone { op_id, success: true });
        let done: Vec<Event> = stores.chain(loads).collect();
        if done.is_empty() {
            return Duration::ZERO;
        }
        let (feedback, ended) = timed(|| self.scheduler.advance(done));
        ended.expect("copies that were planned");
        feedback
    }
}

/// What every request samples.
const SAMPLE: i32 = 7;

/// Tokens that each request of a batch samples: one, but none from a chunk that leaves some of its
/// prompt.
fn samples(plan: &ExecutionPlan) -> Vec<usize> {
    let batch = &plan.batch;
    let completes = |at: usize| {
        at >= batch.num_extends
            || batch.extend_prefix_lens[at] + batch.input_lengths[at] == batch.prefill_lengths[at]
    };
    (0..batch.handles.len()).map(|at| usize::from(completes(at))).collect()
}

/// A function of its own, so that valgrind can be told to count what it calls and nothing else.
#[inline(never)]
fn timed<T>(call: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = call();
    (start.elapsed(), result)
}

/// A prompt that shares its first `shared` tokens with every other prompt, and no page after them.
pub fn prompt(
    id: &str,
    seed: u32,
    shared: usize,
    tokens: usize,
    max_new_tokens: usize,
) -> RequestSpec {
    let token = |at: usize| {
        let of = if at < shared { 0 } else { seed.wrapping_add(1) };
        (of.wrapping_mul(0x9E37_79B1).wrapping_add(at as u32) >> 1) as i32
    };
    RequestSpec {
        request_id: id.to_owned(),
        tokens: (0..tokens).map(token).collect(),
        max_new_tokens: max_new_tokens as i64,
    }
}
