//! Scenarios 1 to 8: pressure.

use tokenspeed_scheduler::plan::AbortReason;
use tokenspeed_scheduler::{Error, PressurePolicy};

use crate::client::Outcome;
use crate::engine::Engine;
use crate::world::{R, World, mix};

/// Six requests decode in two blocks each; one of them comes to need a third. Whoever would give it
/// up runs, so the five go on and nobody is retracted for it until they need blocks themselves.
#[test]
fn scenario_01_one_block_short_costs_one_victim_at_most() {
    let mut engine = Engine::new(&World { B: 16, P: 12, C: 256, depth: 2, ..World::default() });
    let mut asked = vec![R(20, 64).undeclared(); 5];
    asked.push(R(31, 64).undeclared());
    engine.submit_all(asked);
    let all = "P a[0+20/20] b[0+20/20] c[0+20/20] d[0+20/20] e[0+20/20] f[0+31/31]";
    assert_eq!(engine.rounds(2), [all, "D a b c d e f"]);
    let mut victims = 0;
    for _ in 0..11 {
        engine.round();
        victims += engine.plan.retracted.len();
        assert!(engine.decodes().len() >= 5, "{:?}", engine.decodes());
    }
    assert!(victims <= 1, "{victims} victims for one block");
    engine.play();
    assert!(engine.all_finished());
}

/// X gives way to Y, which grows. What X computed twice stays under one prefill of it.
#[test]
fn scenario_02_a_readmission_waits_until_it_fits_whole() {
    for (hosts, mixed) in [(0, false), (0, true), (64, false), (64, true)] {
        let world = World { B: 16, P: 40, H: hosts, C: 128, depth: 2, mixed, ..World::default() };
        let mut engine = Engine::new(&world);
        engine.submit(&[("x", R(512, 64).undeclared()), ("y", R(64, 512).undeclared())]);
        engine.play();
        assert!(engine.all_finished());
        let x = &engine.lives["x"];
        assert!(!x.retracted_at.is_empty(), "the pool is too small for both");
        assert!(x.prefilled < 2 * 512, "{} tokens computed for a prompt of 512", x.prefilled);
    }
}

/// A fault injector takes the newest resident request's blocks every third round.
#[test]
fn scenario_03_a_recovered_request_gains_a_token_before_it_is_a_victim_again() {
    let mut engine = Engine::new(&World { B: 16, P: 32, C: 32, ..World::default() });
    engine.submit_all(vec![R(64, 16); 3]);
    let mut taken: Vec<(String, usize)> = Vec::new();
    while engine.lives.values().any(|life| life.outcome.is_none()) {
        engine.round();
        let batch = &engine.plan.batch;
        if !engine.round.is_multiple_of(3) || batch.request_ids.is_empty() {
            continue;
        }
        let newest = batch.request_ids.iter().max().expect("a batch with requests").to_string();
        let output = engine.lives[&newest].output();
        if let Some((_, before)) = taken.iter().rev().find(|(id, _)| *id == newest) {
            assert!(output > *before, "'{newest}' gained nothing");
        }
        engine.retract(&newest);
        taken.push((newest, output));
        assert!(engine.round < 300, "somebody never finishes");
    }
    assert!(taken.len() > 6, "the injector had work: {taken:?}");
    assert!(engine.all_finished());
    engine.settle();
}

/// Declared, it is refused at submission; undeclared, it is ended at the pool's end. Either way the
/// next one is served.
#[test]
fn scenario_04_the_end_of_the_pool_is_told() {
    let mut engine = Engine::new(&World { B: 16, P: 8, ..World::default() });
    let refused = engine.try_submit(&[("a", R(64, 200))]);
    assert!(
        matches!(refused, Err(Error::RequestTooLarge { limit_tokens: 128, .. })),
        "{refused:?}"
    );
    engine.submit(&[("b", R(64, 200).undeclared()), ("c", R(16, 16))]);
    engine.play();
    let Some(Outcome::Ended(notice)) = engine.outcome("b") else {
        panic!("b ended with {:?}", engine.outcome("b"));
    };
    assert_eq!(notice.reason, AbortReason::OutgrewPool);
    assert_eq!(engine.lives["b"].output(), 65, "it had all the pool");
    assert_eq!(engine.outcome("c"), Some(&Outcome::Finished));
}

/// A and B each take five blocks, four of them loaded; Z, six blocks, stands ahead of them and does
/// not fit. Their copies end in the other order.
#[test]
fn scenario_05_loads_complete_wherever_their_request_stands() {
    let mut engine = Engine::new(&World { B: 16, P: 10, H: 16, C: 256, ..World::default() });
    put_on_host(&mut engine, &[(1, 64), (2, 64)]);
    engine.submit(&[("f", R(64, 4).undeclared())]);
    engine.round();
    engine.holds_copies = (false, true);
    engine.submit(&[
        ("z", R(90, 2).undeclared()),
        ("a", R(70, 8).sharing(1, 64).undeclared()),
        ("b", R(70, 8).sharing(2, 64).undeclared()),
    ]);
    let mut finished: Vec<String> = Vec::new();
    while finished.len() < 4 {
        engine.round();
        assert!(engine.round < 100, "{finished:?}");
        let hits = &engine.plan.batch.host_hit_tokens;
        assert!(hits.iter().all(|&hit| hit == 0 || hit == 64), "{hits:?}");
        if engine.scheduler.decoding_size() == 2 && engine.decodes() == ["a", "b"] {
            engine.release_copies();
        }
        for (id, life) in &engine.lives {
            if ["f", "a", "b", "z"].contains(&id.as_str())
                && life.outcome.is_some()
                && !finished.contains(id)
            {
                finished.push(id.clone());
            }
        }
    }
    assert_eq!(finished, ["f", "a", "b", "z"]);
    assert_eq!((engine.lives["a"].hit, engine.lives["b"].hit), (64, 64));
    engine.settle();
}

/// With the load come the blocks of the first verify window. A takes five of seven; B waits.
#[test]
fn scenario_06_the_first_decode_step_is_secured_with_the_load() {
    let world = World { B: 16, P: 7, H: 16, width: 4, accepted: 1, ..World::default() };
    let mut engine = Engine::new(&world);
    put_on_host(&mut engine, &[(1, 48), (2, 32)]);
    engine.submit(&[
        ("a", R(64, 3).sharing(1, 48).undeclared()),
        ("b", R(48, 3).sharing(2, 32).undeclared()),
    ]);
    assert_eq!(engine.round(), "P a[48+16/64]");
    assert_eq!(engine.plan.load_back.num_blocks(), 3);
    assert_eq!(engine.table(0, "a").len(), 5);
    assert_eq!(engine.round(), "D a");
    assert_eq!(engine.plan.pages_to_zero, [[]], "the first window was held");
    engine.play();
    assert!(engine.all_finished());
    assert_eq!(engine.lives["a"].retracted_at.len() + engine.lives["b"].retracted_at.len(), 0);
}

/// The Host has room for four blocks only: most of what is retracted is computed again.
#[test]
fn scenario_07_without_host_room_a_retraction_still_frees_the_device() {
    let world = World { B: 16, P: 64, H: 4, C: 256, depth: 2, ..World::default() };
    let mut engine = Engine::new(&world);
    engine.submit_all(vec![R(96, 64).undeclared(); 8]);
    engine.play();
    assert!(engine.all_finished());
    let retractions: usize = engine.lives.values().map(|life| life.retracted_at.len()).sum();
    assert!(retractions > 0, "eight times ten blocks do not fit sixty-four");
}

/// Sixty requests arrive one a round at a pool for a few of them; how often each was retracted.
fn oversubscribed_replay(
    policy: PressurePolicy,
    (hosts, mixed): (i64, bool),
    declared: bool,
) -> Vec<usize> {
    let world =
        World { B: 16, P: 48, H: hosts, C: 256, depth: 2, mixed, policy, ..World::default() };
    let mut engine = Engine::new(&world);
    for at in 0..60 {
        let (prompt, output) = (16 + mix(at, 1) % 200, 8 + mix(at, 2) % 120);
        let asked = R(prompt as i64, output as i64);
        let asked = if declared { asked } else { asked.undeclared() };
        engine.submit(&[(&format!("r{at}"), asked)]);
        engine.round();
    }
    engine.play();
    assert!(engine.all_finished());
    engine.lives.values().map(|life| life.retracted_at.len()).filter(|&count| count > 0).collect()
}

const VARIANTS: [(i64, bool); 4] = [(0, false), (0, true), (256, false), (256, true)];

/// Declared budgets of up to one window are prepaid, so nobody is ever retracted.
#[test]
fn scenario_08_nobody_with_a_declared_budget_is_retracted() {
    for variant in VARIANTS {
        assert_eq!(oversubscribed_replay(PressurePolicy::Document, variant, true), [0; 0]);
    }
}

/// Of those retracted 95 % are retracted once, over all variants, and nobody more than twice.
#[test]
fn scenario_08_nearly_everyone_is_retracted_once_at_most() {
    let mut counts = Vec::new();
    for variant in VARIANTS {
        for declared in [false, true] {
            counts.extend(oversubscribed_replay(PressurePolicy::Goodput, variant, declared));
        }
    }
    assert!(!counts.is_empty(), "the pool is too small for all");
    let once = counts.iter().filter(|&&count| count == 1).count();
    assert!(once * 100 >= counts.len() * 95, "{once} of {} once: {counts:?}", counts.len());
    assert!(counts.iter().all(|&count| count <= 2), "{counts:?}");
}

/// The document's rules, to the letter, retract undeclared requests for newcomers again and again; all of
/// them finish all the same.
#[test]
fn scenario_08_the_document_retracts_undeclared_requests_again_and_again() {
    for variant in VARIANTS {
        let counts = oversubscribed_replay(PressurePolicy::Document, variant, false);
        assert!(counts.iter().any(|&count| count > 1), "{variant:?}: {counts:?}");
    }
}

/// Small prompts arrive without an end and keep the pool full; how many of them are admitted past a prompt
/// that is too large for what they leave, until it is.
fn passed_over(hosts: i64, mixed: bool, declared: bool) -> usize {
    let policy = PressurePolicy::Goodput;
    let mut engine =
        Engine::new(&World { B: 4, P: 32, H: hosts, mixed, policy, ..World::default() });
    let ask = |at: u64| R(6 + (mix(at, 1) % 4) as i64, 4 + (mix(at, 2) % 8) as i64);
    let ask = |at: u64| if declared { ask(at) } else { ask(at).undeclared() };
    let mut arrived = 0;
    let mut admitted_at = Vec::new();
    let large = engine.world.rows as usize;
    while engine.round < 4_000 {
        while engine.scheduler.waiting_size() < 4 {
            let id = format!("r{arrived:05}");
            let asked = if arrived == large { R(100, 4) } else { ask(arrived as u64) };
            engine.submit(&[(&id, asked)]);
            arrived += 1;
        }
        engine.round();
        for at in 0..engine.plan.batch.num_extends {
            let number: usize = engine.plan.batch.request_ids[at][1..].parse().expect("a number");
            if number == large {
                return admitted_at.iter().filter(|&&number| number > large).count();
            }
            if engine.plan.batch.extend_prefix_lens[at] == 0 {
                admitted_at.push(number);
            }
        }
    }
    panic!("passed over by {} and more", admitted_at.len());
}

/// Nobody is passed over for ever (`docs/goodput.md`): by 512 others, and then it is the next. Beside a Host
/// tier room is made for it sooner, if it would end last.
#[test]
fn a_prompt_that_does_not_fit_is_passed_over_so_often_and_no_more() {
    for (hosts, mixed) in VARIANTS {
        for declared in [false, true] {
            let count = passed_over(hosts, mixed, declared);
            let least = if hosts == 0 { 400 } else { 1 };
            assert!((least..=512).contains(&count), "{hosts}, {mixed}, {declared}: {count}");
        }
    }
}

/// Leaves the first tokens of common streams on the Host alone.
pub fn put_on_host(engine: &mut Engine, streams: &[(u64, i64)]) {
    for &(stream, tokens) in streams {
        engine.submit(&[(&format!("seed{stream}"), R(tokens, 1).sharing(stream, tokens))]);
        engine.drain();
    }
    assert!(engine.scheduler.clear_l1_cache() && engine.mirror.clear_l1_cache());
}
