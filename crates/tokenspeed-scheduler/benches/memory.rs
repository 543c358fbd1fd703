//! Bytes that the scheduler asks of its allocator: a cached block, a stored token and a request.
//!
//! `cargo bench --bench memory`. The goal of all together: 100 bytes a cached block, 4 a stored token and
//! 1 KiB a request.

mod setup;

use std::alloc::System;

use cap::Cap;
use setup::engine::{Engine, Path, Pool, prompt};
use tokenspeed_scheduler::PressurePolicy;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const REQUESTS: usize = 4096;
const CONTEXT_TOKENS: usize = 1024;
/// Rounds that the requests decode, so that what grows has grown.
const ROUNDS: usize = 64;
const CACHED_BLOCKS: usize = 1_000_000;

fn main() {
    let scale = if std::env::args().any(|argument| argument == "--bench") { 1 } else { 64 };
    let (requests, cached) = (REQUESTS / scale, CACHED_BLOCKS / scale);
    for page in [64, 16] {
        println!("\nPage {page}, one full group");
        let each = cached_block(cached, page);
        println!("{cached:>11} cached blocks:              {each:>7.1} bytes a block");
        together(cached, requests, page, each);
    }
}

/// A pool of so many blocks, all of them cached, and nothing else.
fn cached_block(blocks: usize, page: usize) -> f64 {
    let before = ALLOCATOR.allocated();
    let engine = fill(blocks, blocks, 1, page);
    let cached = cached_alone(&engine);
    (ALLOCATOR.allocated() - before) as f64 / cached as f64
}

/// The same pool and room for requests beside it, which decode.
fn together(blocks: usize, requests: usize, page: usize, each: f64) {
    let before = ALLOCATOR.allocated();
    let output = ROUNDS + 1;
    let own = requests * (CONTEXT_TOKENS + page + output).div_ceil(page);
    let mut engine = fill(blocks, blocks + own, requests, page);
    let length = |at: usize| CONTEXT_TOKENS + at % page;
    let request = |at: usize| prompt(&at.to_string(), 1_000_000 + at as u32, 0, length(at), 0);
    for first in (0..requests).step_by(64) {
        engine.submit((first..requests.min(first + 64)).map(request).collect());
        engine.round();
    }
    while engine.scheduler.waiting_size() > 0 {
        engine.round();
    }
    (0..ROUNDS).for_each(|_| drop(engine.round()));
    let scheduler = &engine.scheduler;
    assert_eq!(scheduler.decoding_size(), requests);
    let lengths = (0..requests).map(|at| scheduler.request_token_size(&at.to_string()) as usize);
    let tokens: usize = lengths.clone().sum();
    // The last token of each is not computed; complete pages of the others are cached as well.
    let held: usize = lengths.map(|length| (length - 1) / page).sum();
    let cached = cached_alone(&engine) + held;
    let all = (ALLOCATOR.allocated() - before) as f64;
    let rest = all - each * cached as f64 - 4.0 * tokens as f64;
    let goal = 100.0 * cached as f64 + 4.0 * tokens as f64 + 1024.0 * requests as f64;
    println!(
        "{requests:>11} requests, {tokens} tokens: {:>9.0} bytes a request",
        rest / requests as f64
    );
    println!(
        "{cached:>11} cached beside them:         {:>7.1} MB, {:.2} of the goal",
        all / 1e6,
        all / goal
    );
}

/// An engine with so many blocks cached, in a pool of `blocks`.
fn fill(cached: usize, blocks: usize, rows: usize, page: usize) -> Engine {
    let each = (CONTEXT_TOKENS / page).min(cached);
    let tokens = each * page - 1;
    let budget = (64 * (CONTEXT_TOKENS + page)).max(tokens);
    let mut engine = Engine::new(
        Path::Arrays,
        Pool { page, blocks, rows, budget, host_blocks: 0, policy: PressurePolicy::Document },
    );
    let mut at = 0;
    while cached_alone(&engine) + each <= cached {
        engine.submit(vec![prompt("filler", at, 0, tokens, 0)]);
        let done = engine.round().sampled;
        engine.finish(done);
        at += 1;
    }
    engine
}

/// Cached blocks that no request holds.
fn cached_alone(engine: &Engine) -> usize {
    engine.scheduler.available_lcm_blocks() - engine.scheduler.empty_lcm_blocks()
}
