//! How long the scheduler's calls take, by criterion. `benches/README.md` says what each line is.

mod setup;

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};

use setup::engine::Path;
use setup::situations::{Cached, Decoding, Pressure, SharedPrefix, Situation};

/// Times the steps of a situation, which is set up only if the filter lets it run.
fn bench<S: Situation>(group: &mut BenchmarkGroup<'_, WallTime>, id: &str, set_up: impl Fn() -> S) {
    let mut situation = None;
    group.bench_function(id, |bencher| {
        let situation = situation.get_or_insert_with(&set_up);
        bencher.iter_custom(|steps| (0..steps).map(|_| situation.step().total()).sum());
    });
}

/// A round in which every request takes a decode step; an element is a request.
fn decode(criterion: &mut Criterion) {
    for path in Path::BOTH {
        let mut group = criterion.benchmark_group(format!("decode/{}", path.name()));
        for (requests, context) in [(1, 1), (256, 1), (256, 32), (256, 128), (1024, 1), (4096, 1)] {
            group.throughput(Throughput::Elements(requests as u64));
            for page in [64, 16] {
                let shape = Decoding::new(requests, context << 10, page);
                let id = format!("{requests}x{context}k, page {page}");
                bench(&mut group, &id, || shape.on(path));
            }
        }
    }
}

/// The same round of 256, with a queue behind a full pool.
fn waiting(criterion: &mut Criterion) {
    for path in Path::BOTH {
        let mut group = criterion.benchmark_group(format!("waiting/{}", path.name()));
        for waiting in [0, 20_000] {
            let shape = Decoding::new(256, 1 << 10, 64).before_a_queue(waiting);
            bench(&mut group, &waiting.to_string(), || shape.on(path));
        }
    }
}

/// The round that admits one prompt into a pool full of cached blocks, evicting 63.
fn admission(criterion: &mut Criterion) {
    for path in Path::BOTH {
        let mut group = criterion.benchmark_group(format!("admission/{}", path.name()));
        for blocks in [10_000, 1_000_000] {
            bench(&mut group, &format!("{blocks} cached"), || Cached::new(blocks, path));
        }
    }
}

/// 200 prompts of 8k that share 7k, from submission to the first token of each; an element is a prompt.
fn prefix(criterion: &mut Criterion) {
    for path in Path::BOTH {
        let mut group = criterion.benchmark_group(format!("prefix/{}", path.name()));
        group.throughput(Throughput::Elements(200));
        group.sample_size(10).sampling_mode(SamplingMode::Flat);
        for page in [64, 16] {
            let hits = SharedPrefix { prompts: 200, tokens: 8 << 10, shared: 7 << 10, page, path };
            bench(&mut group, &format!("page {page}"), || hits);
        }
    }
}

/// 500 requests of 1k + 512 in a pool of 60 % of what they need: to their ends where budgets are declared,
/// else the first rounds.
fn pressure(criterion: &mut Criterion) {
    for path in Path::BOTH {
        let mut group = criterion.benchmark_group(format!("pressure/{}", path.name()));
        group.sample_size(10).sampling_mode(SamplingMode::Flat);
        for page in [64, 16] {
            for (id, declared, host, rounds) in [
                ("budgets declared", true, false, usize::MAX),
                ("retracting, 1,024 rounds", false, false, 1024),
                ("retracting to the host, 1,024 rounds", false, true, 1024),
            ] {
                let shape = Pressure { declared, host, rounds, page, path };
                bench(&mut group, &format!("{id}, page {page}"), || shape);
            }
        }
    }
}

criterion_group! {
    name = latency;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20);
    targets = decode, waiting, admission, prefix, pressure
}
criterion_main!(latency);
