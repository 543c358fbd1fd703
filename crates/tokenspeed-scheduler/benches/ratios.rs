//! The three ratios that `cache.md` §9 promises to be 1, and the cost of a decode step per request.
//!
//! The two situations of a ratio are played in turn, a few steps each, so that both see the same
//! machine: what else runs on it moves the times and hardly the ratios.

mod setup;

use std::time::{Duration, Instant};

use setup::engine::{Path, Times};
use setup::situations::{Cached, Decoding, KeptBatch, Situation};

/// Steps that one situation plays before the other's turn.
const STEPS_A_TURN: u32 = 8;
const TURNS_MAX: usize = 400;

fn main() {
    // `cargo bench` says so; whoever else runs this wants to see that it runs.
    let (turns, scale) = match std::env::args().any(|argument| argument == "--bench") {
        true => (TURNS_MAX, 1),
        false => (2, 64),
    };
    println!("\nRatios, each of {turns} pairs of turns: median [first quartile, third quartile]");
    for path in Path::BOTH {
        println!("\n{:<58}{:>8} {:>16}{:>11}{:>11}", path.name(), "ratio", "", "of", "to");
        for (thousands, page) in [(32, 64), (32, 16), (128, 64)] {
            let shape = |context| Decoding::new(256 / scale, context, page).on(path);
            let title = format!("{thousands}k / 1k tokens of context, 256 decoding, page {page}");
            ratio(&title, turns, shape((thousands << 10) / scale), shape((1 << 10) / scale));
        }
        let shape =
            |waiting| Decoding::new(256 / scale, 1 << 10, 64).before_a_queue(waiting).on(path);
        ratio("20,000 / 0 waiting, 256 decoding", turns, shape(20_000 / scale), shape(0));
        let shape = |line: usize| KeptBatch::new(line / scale, path);
        ratio(
            "20,000 / 200 waiting, short of memory, 256 rounds",
            turns,
            shape(20_000),
            shape(200),
        );
        let shape = |blocks: usize| Cached::new(blocks / scale, path);
        ratio("1,000,000 / 10,000 cached, one admission", turns, shape(1_000_000), shape(10_000));
    }
    println!(
        "\n{:<58}{:>8}{:>12}{:>12}{:>12}",
        "a decode step of one request", "plan", "feedback", "both", "least"
    );
    for path in Path::BOTH {
        for (requests, thousands) in [(256, 1), (256, 32), (256, 128), (1024, 1), (4096, 1)] {
            let title = format!("{}, {requests} x {thousands}k, page 64", path.name());
            per_request(&title, turns, requests / scale, (thousands << 10) / scale, path);
        }
    }
}

/// Plays two situations in turn and prints how the times of the first relate to those of the second.
fn ratio(title: &str, turns: usize, mut over: impl Situation, mut under: impl Situation) {
    let mut pairs: Vec<(f64, f64)> = in_time(turns)
        .map(|_| (micros(turn(&mut over).total()), micros(turn(&mut under).total())))
        .collect();
    let quartiles = quartiles(pairs.iter().map(|(over, under)| over / under).collect());
    let spread = format!("[{:.2}, {:.2}]", quartiles[0], quartiles[2]);
    let middle = pairs.len() / 2;
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let over = pairs[middle].0;
    pairs.sort_by(|a, b| a.1.total_cmp(&b.1));
    let under = pairs[middle].1;
    println!("{title:<58}{:>8.2} {spread:>16}{over:>8.1} us{under:>8.1} us", quartiles[1]);
}

fn per_request(title: &str, turns: usize, requests: usize, context: usize, path: Path) {
    let mut rounds = Decoding::new(requests, context, 64).on(path);
    let times: Vec<Times> = in_time(turns).map(|_| turn(&mut rounds)).collect();
    let median = |part: fn(&Times) -> Duration| {
        let each = times.iter().map(|times| 1000.0 * micros(part(times)) / requests as f64);
        quartiles(each.collect())[1]
    };
    let (plan, feedback) = (median(|times| times.plan), median(|times| times.feedback));
    let both = median(|times| times.total());
    let least = times.iter().map(|times| times.total()).min().unwrap_or_default();
    let least = 1000.0 * micros(least) / requests as f64;
    println!("{title:<58}{plan:>5.0} ns{feedback:>9.0} ns{both:>9.0} ns{least:>9.0} ns");
}

/// The mean of a step.
fn turn(situation: &mut impl Situation) -> Times {
    let sum: Times = (0..STEPS_A_TURN).map(|_| situation.step()).sum();
    Times {
        submit: sum.submit / STEPS_A_TURN,
        plan: sum.plan / STEPS_A_TURN,
        feedback: sum.feedback / STEPS_A_TURN,
    }
}

/// So many turns, or as many as some seconds allow.
fn in_time(turns: usize) -> impl Iterator<Item = usize> {
    let start = Instant::now();
    (0..turns).take_while(move |&turn| turn < 3 || start.elapsed() < Duration::from_secs(10))
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}
