//! The situations: each is played a step at a time for as long as one likes, and starts over, untimed,
//! where it would run out.

use tokenspeed_scheduler::{PressurePolicy, RequestSpec};

use super::engine::{Engine, Path, Pool, Times, prompt};

/// Something that can be timed again and again.
pub trait Situation {
    fn step(&mut self) -> Times;
}

// --- decoding ---------------------------------------------------------------------------------

/// Requests that decode side by side.
#[derive(Debug, Clone, Copy)]
pub struct Decoding {
    pub requests: usize,
    /// Tokens of a prompt, give or take a page.
    pub context: usize,
    /// Tokens of a block.
    pub page: usize,
    /// Rounds before all starts over: few enough that the context stays what it says.
    pub rounds: usize,
    /// With `Some`, the requests have prepaid for all of their output and fill the pool to the last
    /// block, with so many prompts behind them.
    pub waiting: Option<usize>,
}

impl Decoding {
    pub fn new(requests: usize, context: usize, page: usize) -> Decoding {
        Decoding { requests, context, page, rounds: (context / 4).max(256), waiting: None }
    }

    /// Behind whom `waiting` prompts find the pool full.
    pub fn before_a_queue(self, waiting: usize) -> Decoding {
        Decoding { waiting: Some(waiting), rounds: 1024, ..self }
    }

    pub fn on(self, path: Path) -> DecodingRounds {
        DecodingRounds { engine: self.start(path), left: self.rounds, shape: self, path }
    }

    /// Rounds that are played before the first is timed: buffers that double do so here.
    const WARM_UP_ROUNDS: usize = 4;

    fn start(self, path: Path) -> Engine {
        let output = 1 + Decoding::WARM_UP_ROUNDS + self.rounds;
        // Prompts end at every place in a page, so that every round completes its share of pages.
        let length = |at: usize| self.context + at % self.page;
        let blocks = (0..self.requests).map(|at| (length(at) + output).div_ceil(self.page)).sum();
        let mut engine = Engine::new(
            path,
            Pool {
                page: self.page,
                blocks,
                rows: 2 * self.requests,
                budget: self.requests * (self.context + self.page),
                host_blocks: 0,
                policy: PressurePolicy::Document,
            },
        );
        let declared = if self.waiting.is_some() { output } else { 0 };
        let request =
            |at: usize| prompt(&format!("request {at}"), at as u32, 0, length(at), declared);
        engine.submit((0..self.requests).map(request).collect());
        engine.round();
        let behind =
            |at: usize| prompt(&format!("behind {at}"), 1_000_000 + at as u32, 0, 256, declared);
        let waiting = self.waiting.unwrap_or(0);
        engine.submit((0..waiting).map(behind).collect());
        for _ in 0..Decoding::WARM_UP_ROUNDS {
            engine.round();
        }
        let scheduler = &engine.scheduler;
        assert_eq!((scheduler.decoding_size(), scheduler.waiting_size()), (self.requests, waiting));
        engine
    }
}

/// A step is a round.
#[derive(Debug)]
pub struct DecodingRounds {
    shape: Decoding,
    path: Path,
    engine: Engine,
    left: usize,
}

impl Situation for DecodingRounds {
    fn step(&mut self) -> Times {
        if self.left == 0 {
            *self = self.shape.on(self.path);
        }
        self.left -= 1;
        self.engine.round().times
    }
}

// --- admission under pressure -------------------------------------------------------------------

/// A pool full of cached blocks; a step admits one prompt, for which the oldest 63 of them go.
#[derive(Debug)]
pub struct Cached {
    engine: Engine,
    admitted: u32,
}

impl Cached {
    const PAGE: usize = 16;
    /// 64 blocks, the first decode slot included. The last is not complete, so the next prompt finds it
    /// free.
    const PROMPT_TOKENS: usize = 64 * Cached::PAGE - 1;

    pub fn new(blocks: usize, path: Path) -> Cached {
        let blocks_each = 500.min(blocks);
        let tokens = blocks_each * Cached::PAGE - 1;
        let budget = tokens.max(Cached::PROMPT_TOKENS);
        let mut engine = Engine::new(
            path,
            Pool {
                page: Cached::PAGE,
                blocks,
                rows: 1,
                budget,
                host_blocks: 0,
                policy: PressurePolicy::Document,
            },
        );
        for at in 0..(blocks / blocks_each) as u32 {
            engine.submit(vec![prompt("filler", at, 0, tokens, 0)]);
            let done = engine.round().sampled;
            engine.finish(done);
        }
        let mut cached = Cached { engine, admitted: blocks as u32 };
        // What the fillers' last pages have left free goes first.
        while cached.engine.scheduler.empty_lcm_blocks() > 1 {
            cached.step();
        }
        cached
    }
}

impl Situation for Cached {
    fn step(&mut self) -> Times {
        self.admitted += 1;
        self.engine.submit(vec![prompt("new", self.admitted, 0, Cached::PROMPT_TOKENS, 0)]);
        let round = self.engine.round();
        assert_eq!(round.sampled, ["new"]);
        self.engine.finish(round.sampled);
        round.times
    }
}

// --- prefix hits --------------------------------------------------------------------------------

/// Prompts with one long prefix in common, which is cached; a step submits them and plays them until
/// each has sampled a token.
#[derive(Debug, Clone, Copy)]
pub struct SharedPrefix {
    pub prompts: usize,
    pub tokens: usize,
    pub shared: usize,
    pub page: usize,
    pub path: Path,
}

impl Situation for SharedPrefix {
    fn step(&mut self) -> Times {
        let blocks = (self.prompts + 2) * self.tokens.div_ceil(self.page);
        let mut engine = Engine::new(
            self.path,
            Pool {
                page: self.page,
                blocks,
                rows: self.prompts,
                budget: self.tokens,
                host_blocks: 0,
                policy: PressurePolicy::Document,
            },
        );
        engine.submit(vec![prompt("first", 0, self.shared, self.tokens, 64)]);
        let first = engine.round().sampled;
        engine.finish(first);
        let specs: Vec<RequestSpec> = (1..=self.prompts as u32)
            .map(|at| prompt(&format!("prompt {at}"), at, self.shared, self.tokens, 64))
            .collect();
        let mut times = engine.submit(specs);
        let mut sampled = 0;
        while sampled < self.prompts {
            let round = engine.round();
            times = times + round.times;
            sampled += round.sampled.len();
        }
        times
    }
}

// --- pressure -----------------------------------------------------------------------------------

/// 500 prompts of 1k that each generate 512 tokens, 256 at once in a pool of 60 % of what these need;
/// a step plays them to their ends, or the first `rounds` rounds.
#[derive(Debug, Clone, Copy)]
pub struct Pressure {
    /// Whether requests declare their budget: then they prepay it and wait for room; else they start,
    /// and are retracted for each other.
    pub declared: bool,
    /// Whether there is a Host tier, as large as the pool, to retract into.
    pub host: bool,
    pub rounds: usize,
    pub page: usize,
    pub path: Path,
}

impl Situation for Pressure {
    fn step(&mut self) -> Times {
        const ROWS: usize = 256;
        const PROMPT_TOKENS: usize = 1024;
        const NEW_TOKENS: usize = 512;
        let blocks = ROWS * (PROMPT_TOKENS + NEW_TOKENS).div_ceil(self.page) * 6 / 10;
        let host_blocks = if self.host { blocks } else { 0 };
        let pool = Pool {
            page: self.page,
            blocks,
            rows: ROWS,
            budget: 8192,
            host_blocks,
            policy: PressurePolicy::Document,
        };
        let mut engine = Engine::new(self.path, pool);
        let declared = if self.declared { NEW_TOKENS } else { 0 };
        let request = |at: u32| prompt(&at.to_string(), at, 0, PROMPT_TOKENS, declared);
        let mut times = engine.submit((0..500).map(request).collect());
        let (mut retractions, mut rounds) = (0, 0);
        while rounds < self.rounds
            && engine.scheduler.decoding_size() + engine.scheduler.waiting_size() > 0
        {
            rounds += 1;
            let round = engine.round();
            times = times + round.times;
            retractions += round.retractions;
            let spent = (PROMPT_TOKENS + NEW_TOKENS) as i64;
            let done = |id: &String| engine.scheduler.request_token_size(id) == spent;
            let done = round.sampled.into_iter().filter(done).collect();
            engine.finish(done);
        }
        assert_eq!(retractions > 0, !self.declared, "{retractions} retractions");
        times
    }
}

/// Outputs of 256 tokens in a pool of 2,000 blocks, which holds half of those that begin together, and a line of
/// prompts behind it, on an engine that keeps its batch. A step is as many rounds as an output takes; who ended
/// is replaced at the line's end.
#[derive(Debug)]
pub struct KeptBatch {
    engine: Engine,
    line: usize,
    submitted: u32,
}

impl KeptBatch {
    const PAGE: usize = 16;
    const PROMPT_TOKENS: usize = 40;
    const NEW_TOKENS: usize = 256;

    pub fn new(line: usize, path: Path) -> KeptBatch {
        let pool = Pool {
            page: KeptBatch::PAGE,
            blocks: 2_000,
            rows: 256,
            budget: 8192,
            host_blocks: 0,
            policy: PressurePolicy::Goodput,
        };
        let mut kept = KeptBatch { engine: Engine::new(path, pool), line, submitted: 0 };
        // The first look at every prompt of the line.
        kept.step();
        kept
    }
}

impl Situation for KeptBatch {
    fn step(&mut self) -> Times {
        let mut times = Times::default();
        for _ in 0..KeptBatch::NEW_TOKENS {
            let missing = self.line.saturating_sub(self.engine.scheduler.waiting_size());
            let numbers = self.submitted..self.submitted + missing as u32;
            self.submitted = numbers.end;
            let request = |at: u32| prompt(&at.to_string(), at, 0, KeptBatch::PROMPT_TOKENS, 0);
            self.engine.submit(numbers.map(request).collect());
            let round = self.engine.round();
            times = times + round.times;
            let spent = (KeptBatch::PROMPT_TOKENS + KeptBatch::NEW_TOKENS) as i64;
            let scheduler = &self.engine.scheduler;
            let done = |id: &String| scheduler.request_token_size(id) == spent;
            let done = round.sampled.into_iter().filter(done).collect();
            self.engine.finish(done);
        }
        times
    }
}
