//! Worlds that stood still, or ran for ever, at one time or another. Whole kinds must be impossible
//! (`liveness.md`); these are the small inputs found so far. Whatever happens, each request finishes or
//! is ended with a reason.

use crate::client::{Life, Outcome};
use crate::engine::Engine;
use crate::groups::{full, packed, sliding, state};
use crate::world::{Asked, R, World};

/// Plays the requests, each from its round on, for every grammar, depth and number of tokens accepted.
fn serve(world: &World, asked: &[(&str, u64, Asked)]) {
    for (depth, accepted) in (1..3).flat_map(|depth| (1..=world.width).map(move |a| (depth, a))) {
        let mut engine = Engine::new(&World { depth, accepted, ..world.clone() });
        for round in 0..=asked.iter().map(|&(_, arrival, _)| arrival).max().unwrap_or(0) {
            for (id, _, asked) in asked.iter().filter(|&&(_, arrival, _)| arrival == round) {
                // At another depth the bound may be lower, and the refusal is the right answer.
                let _ = engine.try_submit(&[(*id, asked.clone())]);
            }
            engine.round();
        }
        engine.play();
    }
}

fn serve_both(world: &World, asked: &[(&str, u64, Asked)]) {
    for mixed in [false, true] {
        serve(&World { mixed, ..world.clone() }, asked);
    }
}

/// The victim is the blocker and no waiting prompt fits what it freed, though a stuck decode would.
#[test]
fn the_freed_blocks_go_to_a_stuck_decode_where_no_prompt_waits() {
    let world = World { P: 6, ..World::default() };
    serve_both(&world, &[("a", 0, R(8, 9).undeclared()), ("b", 0, R(9, 9).undeclared())]);
}

/// The budget of a round is less than one step of every decode: all get their turn in the end.
#[test]
fn decodes_beyond_the_budget_get_their_turn() {
    let world = World { P: 32, C: 4, ..World::default() };
    let asked: Vec<(String, u64, Asked)> =
        (0..6).map(|at| (format!("d{at}"), 0, R(3, 6))).collect();
    let asked: Vec<(&str, u64, Asked)> =
        asked.iter().map(|(id, at, asked)| (id.as_str(), *at, asked.clone())).collect();
    serve_both(&world, &asked);
}

/// Decodes could take all of a round's budget: a prompt still starts while they last.
#[test]
fn decodes_do_not_eat_the_budget_of_every_prompt() {
    let mut engine = Engine::new(&World { P: 64, C: 4, mixed: true, ..World::default() });
    engine.submit_all(vec![R(3, 40); 4]);
    engine.rounds(5);
    engine.submit(&[("n", R(3, 2))]);
    engine.play();
    assert!(engine.all_finished());
}

/// A half-done prompt comes back into the same corner; another one decodes beside it.
#[test]
fn a_prompt_is_not_readmitted_and_retracted_for_ever() {
    let world = World { C: 8, ..World::default() };
    let asked = [
        ("x", 0, R(5, 20).undeclared()),
        ("a", 0, R(28, 2).undeclared()),
        ("b", 0, R(4, 12).undeclared()),
    ];
    serve_both(&world, &asked);
    serve_both(&World { H: 16, ..world }, &asked);
}

/// A newcomer that cannot fit beside an exempt request costs a victim at most once.
#[test]
fn nobody_is_retracted_in_vain_for_ever() {
    let asked =
        [("e", 0, R(4, 12)), ("s", 0, R(7, 10).undeclared()), ("n", 1, R(24, 2).undeclared())];
    serve_both(&World::default(), &asked);
}

/// Nothing is acknowledged for a long time, and everyone is stuck: the acknowledgement is awaited and
/// then everyone goes on.
#[test]
fn an_acknowledgement_that_is_late_is_awaited() {
    let mut engine = Engine::new(&World { P: 8, H: 16, ..World::default() });
    engine.holds_copies = (true, true);
    engine.submit_all(vec![R(8, 12).undeclared(); 3]);
    engine.rounds(30);
    assert_eq!(engine.round(), "-", "all are stuck");
    assert!(engine.is_owed());
    engine.holds_copies = (false, false);
    engine.release_copies();
    engine.play();
    assert!(engine.all_finished());
}

/// D decodes and lacks a block; A lacks one for its last chunk. A gives way, B starts in its place and
/// comes to lack the same block; then B gives way to A. D would go on for ever unserved.
#[test]
fn prompts_do_not_take_turns_while_a_decode_lacks_a_block() {
    let asked = [
        ("d", 0, R(7, 4).undeclared()),
        ("a", 0, R(9, 2).undeclared()),
        ("b", 0, R(9, 2).undeclared()),
    ];
    serve_both(&World { P: 4, C: 8, ..World::default() }, &asked);
}

/// What a reserve covers includes the verify window past the last token.
#[test]
fn exempt_requests_that_each_lack_a_block() {
    let world = World { C: 8, width: 4, ..World::default() };
    serve_both(&world, &[("a", 0, R(8, 24)), ("b", 0, R(8, 24)), ("c", 0, R(8, 24))]);
}

#[test]
fn a_verify_window_past_the_declared_budget() {
    let groups = vec![packed(full("f", 8), 2), sliding("s", 8, 1)];
    let world = World { P: 3, page: 8, width: 2, groups, ..World::default() };
    serve_both(&world, &[("b", 0, R(1, 9))]);
    let groups = vec![full("f", 4), sliding("s", 4, 1)];
    let world = World { P: 13, C: 4, width: 2, groups, ..World::default() };
    serve_both(&world, &[("d", 0, R(17, 7).budget(27))]);
}

/// A readmission whose recomputed prompt no longer fits beside its own leftovers.
#[test]
fn an_outgrown_request_at_its_last_chunk() {
    let groups = vec![packed(full("f", 4), 4), sliding("s", 4, 2)];
    let world = World { P: 7, C: 4, groups, ..World::default() };
    serve_both(&world, &[("b", 0, R(49, 33).undeclared())]);
}

/// The incomplete prompt is the preferred victim and its own blocker, each time it comes back.
#[test]
fn a_prompt_beside_a_decode_at_its_last_chunk() {
    let groups = vec![packed(full("f", 8), 4)];
    let world = World { P: 2, C: 24, page: 8, width: 2, groups, ..World::default() };
    let asked = [("d", 0, R(3, 8).undeclared()), ("e", 4, R(49, 1).undeclared())];
    serve_both(&world, &asked);
}

/// The decode is covered by its reserve, the prompt by its own: neither may be the victim.
#[test]
fn a_windows_block_beside_a_covered_prompt() {
    let groups = vec![packed(full("f", 8), 2), sliding("s", 2, 9)];
    let world = World { P: 27, C: 16, page: 8, width: 2, groups, ..World::default() };
    serve_both(&world, &[("c", 0, R(5, 3).budget(29)), ("d", 0, R(107, 1))]);
}

/// Prompts complete in one round and hold every block; each needs one more to decode.
#[test]
fn states_that_need_a_block_at_their_first_decode() {
    let world = World {
        P: 4,
        C: 4,
        page: 2,
        rows: 2,
        width: 3,
        groups: vec![state("s", 2)],
        ..World::default()
    };
    let asked = [
        ("a", 0, R(1, 2).undeclared()),
        ("b", 0, R(2, 1).undeclared()),
        ("c", 0, R(1, 2).undeclared()),
    ];
    serve_both(&world, &asked);
}

/// A covered prompt is half done and holds blocks; two undeclared ones ahead of it take turns, each short
/// of what the covered one holds. It must get its turn, or give way.
#[test]
fn prompts_do_not_take_turns_ahead_of_a_covered_one() {
    let world = World { P: 9, C: 4, ..World::default() };
    let world = World { groups: vec![full("f", 4), sliding("s", 4, 5)], ..world };
    let asked =
        [("a", 0, R(3, 8).undeclared()), ("b", 0, R(10, 2).undeclared()), ("c", 2, R(9, 2))];
    serve_both(&world, &asked);
    let asked =
        [("a", 0, R(8, 7).undeclared()), ("b", 0, R(1, 6).undeclared()), ("c", 2, R(10, 6))];
    serve_both(&World { P: 7, ..world.clone() }, &asked);
    let asked =
        [("a", 0, R(3, 7).undeclared()), ("b", 2, R(11, 2).undeclared()), ("c", 2, R(8, 8))];
    let groups = vec![full("f", 4), state("m", 4)];
    serve_both(&World { P: 8, C: 8, groups, ..world }, &asked);
}

/// The last resident is retracted and does not fit again beside what is cached. The copy of its own
/// snapshot holds nothing, so it is no reason to put off emptying the cache for a round.
#[test]
fn a_retraction_alone_is_not_a_round() {
    let groups = vec![full("f", 4), sliding("s", 4, 5)];
    let world = World { P: 7, H: 3, C: 8, width: 2, groups, ..World::default() };
    let asked = [("x", 0, R(8, 1).undeclared()), ("y", 3, R(2, 2)), ("a", 3, R(11, 1))];
    serve_both(&world, &asked);
    let asked = [("x", 0, R(9, 3)), ("y", 0, R(4, 4)), ("a", 1, R(11, 4).undeclared())];
    serve_both(&world, &asked);
}

/// Beside what it would hit on both tiers the first prompt does not fit even an idle pool. Who fits
/// behind it comes first; then it has the pool to itself, and the cache is emptied for it.
#[test]
fn a_hit_too_large_for_an_idle_pool_is_passed_over_first() {
    let groups = vec![sliding("s", 1, 16)];
    let world = World { P: 50, H: 45, C: 32, page: 16, width: 2, groups, ..World::default() };
    let mut engine = Engine::new(&world);
    engine.submit(&[("a", R(41, 1).sharing(1, 41).undeclared())]);
    engine.drain();
    assert!(engine.scheduler.clear_l1_cache() && engine.mirror.clear_l1_cache());
    engine.submit(&[("b", R(17, 1).sharing(1, 16).undeclared())]);
    engine.drain();
    // On the Device b's first page, on the Host a's second; of each page fifteen blocks.
    engine.submit(&[("c", R(51, 1).sharing(1, 51).undeclared()), ("d", R(17, 1).undeclared())]);
    assert_eq!(engine.rounds(3), ["P d[0+17/17]", "-", "P c[0+32/51]"]);
    engine.play();
    assert!(engine.all_finished());
}

/// The round's budget never reaches a page, and a promotion boundary lies ahead: the boundary yields.
#[test]
fn a_budget_below_a_page_ahead_of_a_promotion_boundary() {
    for prompt in 3..9 {
        let groups = vec![full("f", 2), sliding("s", 2, 3)];
        let mut engine = Engine::new(&World { B: 2, C: 1, groups, ..World::default() });
        engine.submit(&[("a", R(7, 1))]);
        engine.drain();
        let head = engine.tokens("a")[..4].to_vec();
        engine.submit(&[("b", R(7, 1).repeating(&head))]);
        engine.drain();
        engine.submit(&[("c", R(prompt, 1).repeating(&head[..2]))]);
        engine.play();
        assert!(engine.all_finished());
    }
}

/// The least common multiple of all the packings is beyond 64 bits.
#[test]
fn many_groups_whose_packings_share_no_factor() {
    let packings = [61, 62, 63, 64, 59, 53, 47, 43, 41, 37, 31, 29, 23, 19];
    let groups: Vec<_> =
        (0..).zip(packings).map(|(at, k)| packed(full(&format!("g{at}"), 4), k)).collect();
    let world = World { P: 14, groups, ..World::default() };
    let mut engine = Engine::new(&world);
    assert_eq!(engine.scheduler.max_single_request_tokens(), 4 * 19);
    engine.submit(&[("a", R(9, 5)), ("b", R(30, 9).undeclared())]);
    assert_eq!(engine.round(), "P a[0+9/9] b[0+30/30]");
    engine.play();
    assert!(engine.all_finished());
}

/// Nine prompts behind three rows, a token a round: one that was passed over while another's pages
/// were still unpublished has to be found again when they are, whoever of the line gave up meanwhile.
#[test]
fn a_long_line_is_served_to_its_end() {
    let asked = [
        (9, R(86, 31).undeclared()),
        (10, R(83, 46).undeclared()),
        (10, R(60, 3)),
        (13, R(77, 10)),
        (13, R(42, 19)),
        (19, R(62, 9).undeclared()),
        (20, R(86, 5).undeclared()),
        (20, R(76, 6).budget(11)),
        (27, R(68, 2).undeclared()),
    ];
    for (depth, mixed) in [(1, false), (1, true), (2, false), (2, true)] {
        let groups = vec![full("f", 16), sliding("s", 8, 7), full("h", 4)];
        let world = World { B: 16, P: 30, C: 1, rows: 3, depth, mixed, groups, ..World::default() };
        let mut engine = Engine::new(&world);
        for round in 0..63 {
            for (at, (_, asked)) in asked.iter().enumerate().filter(|(_, (at, _))| *at == round) {
                let shared = (at as i64 * 17) % 60;
                engine.submit(&[(&format!("r{at}"), asked.clone().sharing(1, shared))]);
            }
            match round {
                45 => engine.abort("r5"),
                62 => engine.abort("r4"),
                _ => {}
            }
            engine.round();
        }
        engine.play();
        let finished = |life: &Life| life.outcome == Some(Outcome::Finished);
        let ends: Vec<bool> = engine.lives.values().map(finished).collect();
        assert_eq!(ends, [false, false, true, true, false, false, false, true, true]);
    }
}
