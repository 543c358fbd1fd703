//! `scheduler.md` §2: who gives way when an admission fails, when, and to whom.

use crate::engine::Engine;
use crate::world::{Asked, R, World};

/// A world whose requests were submitted as one batch.
fn world_of(world: World, asked: &[(&str, Asked)]) -> Engine {
    let mut engine = Engine::new(&world);
    engine.submit(asked);
    engine
}

/// §2: X lacks a block, but a prompt progresses (within what it reserved): nobody gives way until the
/// prompt is through.
#[test]
fn it_fires_only_in_a_round_without_a_prompts_progress() {
    let mut engine = Engine::new(&World { C: 6, mixed: true, ..World::default() });
    engine.submit(&[("x", R(6, 9).undeclared())]);
    engine.round();
    engine.submit(&[("a", R(20, 4))]);
    let expected =
        ["P a[0+5/20]; D x", "P a[5+5/20]; D x", "P a[10+6/20]", "P a[16+4/20]", "D a; R x"];
    assert_eq!(engine.rounds(5), expected);
    engine.play();
}

/// §2: the blocker gets what was freed for it in the same plan, blocks of the victim among it.
#[test]
fn freed_blocks_reach_the_blocker_in_the_same_plan() {
    for mixed in [false, true] {
        let world = World { P: 6, mixed, ..World::default() };
        let mut engine =
            world_of(world, &[("a", R(8, 9).undeclared()), ("b", R(9, 9).undeclared())]);
        engine.rounds(5);
        let of_a = engine.table(0, "a");
        assert_eq!(engine.round(), "D b; R a");
        let granted = &engine.plan.pages_to_zero[0];
        assert!(granted.len() == 1 && of_a.contains(&granted[0]), "{granted:?} of {of_a:?}");
        assert_eq!(engine.scheduler.waiting_size(), 1);
        engine.play();
    }
}

/// §2: so it is where the round has work without it: B decodes within what it prepaid, A lacks a block,
/// C gives way, and A joins the plan.
#[test]
fn freed_blocks_reach_a_blocker_beside_others() {
    for mixed in [false, true] {
        let world = World { mixed, ..World::default() };
        let asked = [("a", R(5, 14).undeclared()), ("b", R(5, 7)), ("c", R(9, 7).undeclared())];
        let mut engine = world_of(world, &asked);
        engine.rounds(4);
        assert_eq!(engine.round(), "D b a; R c");
        engine.play();
    }
}

/// §2: the victim is the blocker itself. Its blocks go to the first prompt that waits, not back to it.
#[test]
fn a_victim_that_is_the_blocker_does_not_get_its_blocks_back() {
    let mut engine = Engine::new(&World { C: 8, mixed: true, ..World::default() });
    engine.submit(&[("x", R(4, 20).undeclared())]);
    engine.round();
    engine.submit(&[("a", R(28, 2).undeclared()), ("b", R(4, 4).undeclared()), ("c", R(4, 4))]);
    engine.rounds(3);
    assert_eq!(engine.round(), "P b[0+4/4]; D x; R a");
    engine.play();
}

/// §2: outside mixed mode the blocked prompt may not join the decodes. One victim gives way, and the
/// next round's phases try the prompt first.
#[test]
fn a_grant_that_may_not_join_the_batch_comes_a_round_later() {
    let mut engine = Engine::new(&World::default());
    engine.submit(&[("e", R(4, 12)), ("s", R(7, 20).undeclared())]);
    engine.rounds(2);
    engine.submit(&[("n", R(8, 2))]);
    while engine.decodes() == ["e", "s"] {
        engine.round();
    }
    assert_eq!((engine.decodes(), engine.plan.retracted.len()), (vec!["e".to_string()], 1));
    assert_eq!(engine.round(), "P n[0+8/8]");
    engine.play();
}

/// §2: a pinned store gives blocks back by itself, so nobody is retracted until it is acknowledged.
#[test]
fn a_pinned_store_in_flight_defers_retraction() {
    let world = World { P: 6, H: 16, ..World::default() };
    let mut engine = world_of(world, &[("a", R(8, 12).undeclared()), ("b", R(8, 12).undeclared())]);
    engine.holds_copies = (true, false);
    engine.rounds(5);
    assert_eq!(engine.rounds(3), ["-", "-", "-"]);
    engine.holds_copies = (false, false);
    engine.release_copies();
    assert_eq!(engine.round(), "D b; R a");
    engine.play();
}

/// §2: a load writes blocks that its readmission owns; while it does, nobody is retracted.
#[test]
fn a_load_in_flight_defers_retraction() {
    let world = World { P: 6, H: 16, ..World::default() };
    let mut engine = world_of(world, &[("a", R(8, 12).undeclared()), ("b", R(8, 9).undeclared())]);
    engine.holds_copies = (false, true);
    while engine.plan.load_back.is_empty() {
        engine.round();
    }
    engine.submit(&[("c", R(4, 12).undeclared())]);
    while engine.round() != "-" {}
    assert_eq!(engine.rounds(3), ["-", "-", "-"]);
    engine.holds_copies = (false, false);
    engine.release_copies();
    assert_eq!(engine.round(), "D c; R a");
    engine.play();
}

/// §2: a stream-ordered store holds nothing and defers nothing: the next victim is taken while the copy
/// of the first is out.
#[test]
fn a_stream_ordered_store_in_flight_defers_nothing() {
    let world = World { P: 9, H: 32, ..World::default() };
    let asked =
        [("a", R(8, 20).undeclared()), ("b", R(8, 20).undeclared()), ("c", R(8, 20).undeclared())];
    let mut engine = world_of(world, &asked);
    let mut victims = 0;
    while victims < 2 {
        engine.round();
        victims += engine.plan.retracted.len();
        let held = victims > 0;
        assert!(!held || engine.plan.write_back.source_pinned.iter().all(|&pinned| !pinned));
        engine.holds_copies = (engine.round >= 5, false);
        assert!(engine.round < 30, "the second one waits for the copy of the first");
    }
    engine.holds_copies = (false, false);
    engine.release_copies();
    engine.play();
}

/// §2: retraction waits for the best victim's result rather than taking a worse one: A took the last
/// block, has the most and runs; B and C lack one each and are at rest.
#[test]
fn retraction_waits_for_the_best_victim() {
    let asked =
        [("a", R(9, 20).undeclared()), ("b", R(9, 20).undeclared()), ("c", R(5, 20).undeclared())];
    let mut engine = world_of(World { P: 9, ..World::default() }, &asked);
    engine.rounds(4);
    assert_eq!(engine.rounds(4), ["D a"; 4]);
    assert_eq!(engine.round(), "D b c; R a");
    engine.play();
}

/// §2, victim choice: an incomplete prompt before decode work, however little it frees.
#[test]
fn an_incomplete_prompt_is_the_first_victim() {
    let mut engine = Engine::new(&World { P: 10, C: 8, mixed: true, ..World::default() });
    engine.submit(&[("x", R(15, 9).undeclared()), ("y", R(4, 9).undeclared())]);
    engine.rounds(2);
    engine.submit(&[("a", R(28, 2).undeclared())]);
    assert_eq!(engine.rounds(2), ["P y[1+3/4] a[0+4/28]; D x", "P a[4+6/28]; D x y"]);
    assert_eq!((engine.table(0, "x").len(), engine.table(0, "a").len()), (5, 3));
    assert_eq!(engine.round(), "D x y; R a");
    engine.play();
}

/// Plays until somebody is retracted; that round.
fn first_retraction(engine: &mut Engine) -> String {
    loop {
        let round = engine.round();
        if !engine.plan.retracted.is_empty() {
            engine.play();
            return round;
        }
    }
}

/// §2, victim choice: among decodes the most newly releasable blocks, whoever is older.
#[test]
fn the_decode_with_the_most_blocks_gives_way() {
    for (a, b, expected) in [(8, 12, "D a; R b"), (12, 8, "D b c; R a")] {
        let asked = [
            ("a", R(a, 20).undeclared()),
            ("b", R(b, 20).undeclared()),
            ("c", R(5, 20).undeclared()),
        ];
        let mut engine = world_of(World { P: 9, ..World::default() }, &asked);
        assert_eq!(first_retraction(&mut engine), expected);
    }
}

/// §2, victim choice: with as many releasable blocks (one of the larger one's is shared with C), the one
/// with fewer tokens.
#[test]
fn of_equal_blocks_the_decode_with_fewer_tokens_gives_way() {
    for (a, b, expected) in [(12, 8, "D c; R b"), (8, 12, "D c; R a")] {
        let mut engine = Engine::new(&World::default());
        engine.submit(&[("c", R(5, 30).sharing(1, 4).undeclared())]);
        engine.rounds(2);
        let asked = |prompt: i64| R(prompt, 30).sharing(1, if prompt == 12 { 4 } else { 0 });
        engine.submit(&[("a", asked(a).undeclared()), ("b", asked(b).undeclared())]);
        assert_eq!(first_retraction(&mut engine), expected);
    }
}

/// §2, victim choice: all else being equal, the oldest.
#[test]
fn of_equal_decodes_the_oldest_gives_way() {
    let asked =
        [("a", R(8, 20).undeclared()), ("b", R(8, 20).undeclared()), ("c", R(8, 20).undeclared())];
    let mut engine = world_of(World { P: 9, ..World::default() }, &asked);
    assert_eq!(first_retraction(&mut engine), "D b c; R a");
}

/// §2, victim choice: blocks that another request shares are not newly releasable.
#[test]
fn shared_blocks_do_not_count_for_the_victim() {
    let asked = [
        ("a", R(18, 9).sharing(1, 16).undeclared()),
        ("b", R(18, 9).sharing(1, 16).undeclared()),
        ("c", R(10, 9).undeclared()),
    ];
    let mut engine = Engine::new(&World { P: 9, ..World::default() });
    engine.submit(&asked[..1]);
    engine.rounds(2);
    engine.submit(&asked[1..]);
    assert_eq!(engine.rounds(2), ["P b[16+2/18] c[0+10/10]", "D a b c"]);
    assert_eq!((engine.table(0, "a").len(), engine.table(0, "c").len()), (5, 3));
    assert_eq!(engine.rounds(2), ["D b c", "D a; R c"]);
    engine.play();
}

/// §2 and §4: whose admission prepaid its whole budget is never a victim. The budget is the one open at
/// that admission: E, with 4,097, has two tokens by now and 4,095 to come, and is none the more exempt.
#[test]
fn the_exemption_is_judged_at_admission() {
    for (budget, expected) in [(4096, "D e; R s"), (4097, "D e")] {
        let world = World { B: 512, P: 18, C: 8192, ..World::default() };
        let asked = [
            ("e", R(1024, 9).budget(budget)),
            ("s", R(4095, 9).undeclared()),
            ("n", R(6000, 2).undeclared()),
        ];
        let mut engine = world_of(world, &asked);
        engine.rounds(2);
        assert_eq!(engine.round(), expected, "a budget of {budget}");
        engine.play();
    }
}
