//! Steps of one situation, for valgrind to count the instructions of (`benches/instructions.py`), or to look
//! at with a profiler. Prints what the scheduler's calls took a step: median and 99th percentile.

mod setup;

use std::time::Duration;

use setup::engine::Path;
use setup::situations::{Cached, Decoding, KeptBatch, Pressure, SharedPrefix, Situation};

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (Some(shape), Some(steps)) = (arguments.next(), arguments.next()) else {
        eprintln!("SHAPE STEPS, under valgrind: see benches/instructions.py");
        return;
    };
    let steps = steps.parse().expect("a number of steps");
    let path = if shape.ends_with("compatible") { Path::Compatible } else { Path::Arrays };
    let decoding = |requests, context: usize| Decoding::new(requests, context << 10, 64);
    let hits = SharedPrefix { prompts: 200, tokens: 8 << 10, shared: 7 << 10, page: 64, path };
    let pressure = Pressure { declared: false, host: false, rounds: 1024, page: 64, path };
    match shape.trim_end_matches(", compatible") {
        "256 decoding, 1k" => play(decoding(256, 1).on(path), steps),
        "256 decoding, 32k" => play(decoding(256, 32).on(path), steps),
        "4096 decoding, 1k" => play(decoding(4096, 1).on(path), steps),
        "prefix hits" => play(hits, steps),
        "admission under pressure" => play(Cached::new(10_000, path), steps),
        "admission, 1M cached" => play(Cached::new(1_000_000, path), steps),
        "short of memory, 2,000 waiting" => play(KeptBatch::new(2_000, path), steps),
        "retraction" => play(pressure, steps),
        unknown => panic!("no shape '{unknown}'"),
    }
}

fn play(mut situation: impl Situation, steps: usize) {
    let times: Vec<_> = (0..steps).map(|_| situation.step()).collect();
    if times.is_empty() {
        return;
    }
    let print = |name: &str, mut parts: Vec<Duration>| {
        parts.sort_unstable();
        let at = |percent: usize| parts[(parts.len() - 1) * percent / 100];
        println!("{name:<9}{:>12.1?} median{:>12.1?} 99 %{:>12.1?} least", at(50), at(99), at(0));
    };
    print("submit", times.iter().map(|times| times.submit).collect());
    print("plan", times.iter().map(|times| times.plan).collect());
    print("feedback", times.iter().map(|times| times.feedback).collect());
    print("all", times.iter().map(|times| times.total()).collect());
}
