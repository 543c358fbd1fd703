//! Scenarios 9 to 13: arithmetic.

use tokenspeed_scheduler::Error;

use crate::engine::Engine;
use crate::groups::{full, packed, sliding, state};
use crate::world::{R, World};

fn two_groups(blocks: i64) -> World {
    let groups = vec![full("full", 16), sliding("window", 16, 32)];
    World { B: 16, P: blocks, C: 64, groups, ..World::default() }
}

/// 51 blocks of full history and a window of six: admitted chunk by chunk as the window recycles. With
/// two blocks for the window the request is refused when it is submitted.
#[test]
fn scenario_09_a_window_recycles_under_a_long_prompt() {
    let mut engine = Engine::new(&two_groups(51 + 7));
    engine.submit(&[("a", R(800, 16))]);
    while engine.outcome("a").is_none() {
        engine.round();
        if !engine.plan.batch.request_ids.is_empty() {
            let window = engine.table(1, "a").iter().filter(|&&block| block > 0).count();
            assert!(window <= 7, "{window} blocks for a window of 32 and a chunk of 64");
        }
    }
    engine.drain();
    engine.settle();
    let mut small = Engine::new(&two_groups(51 + 2));
    let refused = small.try_submit(&[("a", R(800, 16))]).unwrap_err();
    assert!(matches!(refused, Error::RequestTooLarge { prompt_tokens: 800, .. }), "{refused}");
    assert!(refused.to_string().contains("max_single_request_tokens"), "{refused}");
}

/// One formula decides submission and admission: what is accepted is schedulable on an empty pool.
#[test]
fn scenario_10_what_is_accepted_is_schedulable() {
    let mut engine = Engine::new(&World { B: 64, P: 100, C: 2048, ..World::default() });
    engine.submit(&[("a", R(6100, 300))]);
    engine.play();
    engine.submit(&[("b", R(10, 10))]);
    engine.play();
    assert!(engine.all_finished());
    assert!(engine.try_submit(&[("c", R(6100, 301))]).is_err());

    let groups = [
        vec![full("f", 4)],
        vec![full("f", 2), sliding("s", 4, 5)],
        vec![full("f", 4), state("s", 4)],
        vec![packed(full("f", 4), 2), packed(state("s", 2), 3)],
    ];
    for (groups, width, depth) in
        groups.iter().flat_map(|g| [(g, 1, 1), (g, 1, 2), (g, 4, 1), (g, 4, 2)])
    {
        if width > 1 && groups.iter().any(|group| group.family == state("", 1).family) {
            continue;
        }
        let world = World {
            P: 9,
            C: 12,
            width,
            depth,
            accepted: 1,
            groups: groups.clone(),
            ..World::default()
        };
        let bound = Engine::new(&world).scheduler.max_single_request_tokens();
        for prompt in (1..bound + 1).step_by(3) {
            for output in [1, 2, 7, bound - prompt, bound - prompt + 1] {
                let mut engine = Engine::new(&world);
                if output > 0 && engine.try_submit(&[("a", R(prompt, output))]).is_ok() {
                    engine.play();
                    assert!(engine.all_finished(), "{prompt} + {output}");
                }
            }
        }
    }
}

/// Ten blocks, all cached and idle. A hits six and needs four; B hits the other four and needs two. A
/// runs alone: a block that is hit is not one that may be evicted as well.
#[test]
fn scenario_11_a_hit_block_is_not_an_evictable_one() {
    let mut engine = Engine::new(&World { B: 16, P: 10, C: 256, ..World::default() });
    engine.submit(&[("x", R(95, 2).undeclared()), ("y", R(63, 2).undeclared())]);
    engine.drain();
    assert_eq!(
        (engine.scheduler.empty_lcm_blocks(), engine.scheduler.available_lcm_blocks()),
        (0, 10)
    );
    let (x, y) = (engine.tokens("x")[..96].to_vec(), engine.tokens("y")[..64].to_vec());
    engine.submit(&[
        ("a", R(150, 3).repeating(&x).undeclared()),
        ("b", R(90, 3).repeating(&y).undeclared()),
    ]);
    assert_eq!(engine.round(), "P a[96+54/150]");
    assert_eq!(engine.plan.pages_to_zero[0].len(), 4);
    assert_eq!(engine.round(), "D a");
    engine.play();
    assert!(engine.all_finished());
}

/// A chunk's state blocks are counted against what really returns: with every small pool, chunk and
/// hit, what was promised is there when it is taken (an admission that runs short panics).
#[test]
fn scenario_12_the_credit_is_what_really_returns() {
    for (blocks, chunk, grain) in (4..8).flat_map(|p| [(p, 4, 4), (p, 8, 4), (p, 8, 2), (p, 12, 1)])
    {
        let world = World {
            P: blocks,
            C: chunk,
            groups: vec![state("s", grain)],
            mixed: true,
            ..World::default()
        };
        let mut engine = Engine::new(&world);
        let bound = engine.scheduler.max_single_request_tokens();
        for (at, prompt) in [9, 13, 21, 12, 24, 30].into_iter().enumerate() {
            if prompt + 4 <= bound {
                let asked = R(prompt, 4).sharing(1, 12).sharing(at as u64 % 2 + 2, 8);
                engine.submit(&[(&format!("r{at}"), asked)]);
            }
            engine.round();
        }
        engine.play();
        assert!(engine.all_finished());
    }
}

/// Exactly ceil((prompt - hit) / C) forwards for a prompt, each of a token at least, and one sample.
#[test]
fn scenario_13_no_forward_is_empty_and_none_is_superfluous() {
    for (prompt, hit) in [63, 64, 65, 256].into_iter().flat_map(|p| [0, 48, 63, 64].map(|h| (p, h)))
    {
        let mut engine = Engine::new(&World { B: 1, P: 600, ..World::default() });
        if hit > 0 {
            engine.submit(&[("seed", R(hit, 1).sharing(1, hit))]);
            engine.drain();
        }
        engine.submit(&[("a", R(prompt, 1).sharing(1, hit))]);
        let hit = hit.min(prompt - 1);
        let mut forwards = 0;
        while engine.outcome("a").is_none() {
            engine.round();
            forwards += engine.plan.batch.num_extends as i64;
            assert!(engine.plan.batch.input_lengths.iter().all(|&rows| rows >= 1));
        }
        let a = &engine.lives["a"];
        assert_eq!((a.hit as i64, a.output()), (hit, 1), "R({prompt})");
        assert_eq!(forwards, (prompt - hit + 63) / 64, "R({prompt}) with a hit of {hit}");
    }
}
