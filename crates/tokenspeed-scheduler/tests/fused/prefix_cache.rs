//! Scenarios 14 to 19: the prefix cache.

use crate::engine::Engine;
use crate::groups::{full, packed, sliding, state};
use crate::world::{R, World};

/// Four equal prompts in one round, nothing cached; the first is aborted before its forward returns.
/// Whoever shares a block reads what was written before (the device looks), writer or no writer.
#[test]
fn scenario_14_hits_only_on_what_was_written_before() {
    for mixed in [false, true] {
        let world = World { B: 16, P: 64, C: 600, depth: 2, mixed, ..World::default() };
        let mut engine = Engine::new(&world);
        engine.submit_all(vec![R(128, 8).sharing(1, 128); 4]);
        let all = "P a[0+128/128] b[0+128/128] c[0+128/128] d[0+128/128]";
        assert_eq!(engine.rounds(2), [all, "D a b c d"]);
        engine.abort("a");
        engine.submit(&[("e", R(128, 8).sharing(1, 128))]);
        engine.play();
        for id in ["b", "c", "d", "e"] {
            assert_eq!(engine.tokens(id)[..136], engine.tokens("b")[..136], "'{id}'");
        }
        assert_eq!(engine.lives["e"].hit, 112, "all but the page of its last token");
    }
}

/// `cache.md` §3: a decode step behind a page's end is an admission, and publishes the page: a prompt of
/// the next round finds it while its request goes on. The round's own step, which takes its input behind
/// the page, comes first where they are mixed.
#[test]
fn a_page_that_output_completed_is_found_by_the_next_prompt() {
    for output in 1..14 {
        let mut engine = Engine::new(&World { P: 32, mixed: true, ..World::default() });
        engine.submit(&[("a", R(7, 20))]);
        engine.rounds(output);
        let tokens = engine.tokens("a").to_vec();
        assert_eq!(tokens.len(), 7 + output);
        engine.submit(&[("b", R(30, 1).repeating(&tokens))]);
        engine.round();
        assert_eq!(engine.lives["b"].hit, (7 + output - 1) / 4 * 4, "{output} tokens");
        engine.play();
    }
}

/// Groups F and S each hold idle hit blocks, and R runs. The prompt needs more than is free or could
/// be evicted beside its own hits: it is refused without a trace, and served when R is gone.
#[test]
fn scenario_15_all_groups_hits_are_protected_and_a_refusal_is_clean() {
    let groups = vec![full("f", 4), packed(sliding("s", 4, 10), 3)];
    let world = World { P: 9, groups, ..World::default() };
    let mut engine = Engine::new(&world);
    engine.submit(&[("seed", R(13, 1).sharing(1, 13))]);
    engine.drain();
    engine.submit(&[("r", R(4, 4).undeclared())]);
    assert_eq!(engine.rounds(2), ["P r[0+4/4]", "D r"]);
    let gauges = |engine: &Engine| {
        (engine.scheduler.empty_lcm_blocks(), engine.scheduler.available_lcm_blocks())
    };
    assert_eq!(gauges(&engine), (2, 6), "four parents are cached and idle");
    engine.submit(&[("q", R(22, 2).sharing(1, 13).undeclared())]);
    for _ in 0..2 {
        assert_eq!(engine.round(), "D r");
        assert_eq!(gauges(&engine), (2, 6));
    }
    assert_eq!(engine.round(), "P q[12+10/22]");
    engine.play();
}

/// Attention blocks of 16 beside states of 112: a hit of 224 tokens is slot 1 of the states' table.
#[test]
fn scenario_16_each_group_counts_in_its_own_grain() {
    let groups = vec![full("f", 16), state("s", 112)];
    let mut engine = Engine::new(&World { P: 64, C: 512, page: 112, groups, ..World::default() });
    engine.submit(&[("seed", R(230, 1).sharing(1, 224))]);
    engine.drain();
    engine.submit(&[("a", R(230, 4).sharing(1, 224))]);
    assert_eq!(engine.round(), "P a[224+6/230]");
    assert_eq!(engine.table(0, "a").len(), 15);
    let states = engine.table(1, "a");
    assert_eq!(states[0], 0, "an earlier state is never read");
    assert!(
        states[1] > 0 && !engine.plan.pages_to_zero[1].contains(&states[1]),
        "slot 1 is the hit"
    );
    assert_eq!(states[2..], engine.plan.pages_to_zero[1]);
    engine.play();
}

/// States of 96 tokens, 128 a round: chunks end on grain boundaries, and the second run reuses 576.
#[test]
fn scenario_17_chunks_end_where_states_can_be_matched() {
    let groups = vec![full("f", 16), state("s", 96)];
    let mut engine = Engine::new(&World { P: 64, C: 128, page: 96, groups, ..World::default() });
    engine.submit(&[("a", R(600, 4).sharing(1, 600))]);
    let mut ends = Vec::new();
    while engine.outcome("a").is_none() {
        engine.round();
        let batch = &engine.plan.batch;
        if batch.num_extends == 1 {
            ends.push(batch.extend_prefix_lens[0] + batch.input_lengths[0]);
        }
    }
    assert_eq!(ends, [96, 192, 288, 384, 480, 600]);
    engine.submit(&[("b", R(600, 4).sharing(1, 600))]);
    engine.play();
    assert_eq!(engine.lives["b"].hit, 576);
    assert!(engine.all_finished());
}

/// Whatever the grain and the window: a match has the whole live tail, or there is none. The device
/// reads every position of every window.
#[test]
fn scenario_18_a_match_covers_its_window() {
    let mut hits = 0;
    for (g, window) in [1, 2, 4].into_iter().flat_map(|g| (1..11).map(move |w| (g, w))) {
        for with_full in [true, false] {
            let mut groups = vec![sliding("s", g, window)];
            if with_full {
                groups.push(full("f", 4));
            }
            let world = World { P: 96, C: 12, groups, ..World::default() };
            let mut engine = Engine::new(&world);
            for (at, length) in [5, 9, 17, 12, 23, 8, 31].into_iter().enumerate() {
                engine.submit(&[(&format!("r{at}"), R(length, 3).sharing(1, length - 1))]);
                engine.drain();
            }
            hits += engine.lives.values().filter(|life| life.hit > 0).count();
            engine.settle();
        }
    }
    assert!(hits > 100, "the sweep matches now and then: {hits}");
}

/// A request that shares fifteen tokens of a block and differs in the sixteenth misses.
#[test]
fn scenario_19_a_key_derives_from_all_tokens_of_its_page() {
    let mut engine = Engine::new(&World { B: 16, P: 8, ..World::default() });
    engine.submit(&[("a", R(17, 2).sharing(1, 16))]);
    engine.drain();
    engine.submit(&[("b", R(17, 2).sharing(1, 15)), ("c", R(17, 2).sharing(1, 16))]);
    engine.play();
    assert_eq!((engine.lives["b"].hit, engine.lives["c"].hit), (0, 16));
}
