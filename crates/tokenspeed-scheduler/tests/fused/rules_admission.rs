//! `scheduler.md` §1: what an admission asks for, and how a prompt is cut.

use crate::engine::Engine;
use crate::groups::{full, sliding, state};
use crate::world::{R, World};

/// One token a block, so that a table's length is what was granted, in tokens.
fn by_token(width: i64, chunk: i64) -> World {
    World { B: 1, P: 64, C: chunk, width, ..World::default() }
}

/// §1: the chunk that completes a prompt reserves the decode slot; the ones before reserve nothing.
#[test]
fn a_full_group_reserves_the_decode_slot_on_the_completing_chunk() {
    let mut engine = Engine::new(&by_token(3, 8));
    engine.submit(&[("a", R(18, 3).undeclared())]);
    let lengths: Vec<usize> = (0..3)
        .map(|_| {
            engine.round();
            engine.table(0, "a").len()
        })
        .collect();
    assert_eq!(lengths, [8, 16, 18 + 3]);
    engine.play();
}

/// §1: a first chunk holds the rest of the prompt and the headroom, which is the budget up to 4,096.
#[test]
fn a_full_group_reserves_the_rest_and_the_headroom_on_the_first_chunk() {
    let mut engine = Engine::new(&by_token(3, 8));
    engine.submit(&[("a", R(18, 10))]);
    assert_eq!(engine.round(), "P a[0+8/18]");
    assert_eq!(engine.table(0, "a").len(), 18 + 10);
    // The decode slot is not on top of the headroom, it is the larger of both.
    engine.submit(&[("b", R(2, 1))]);
    engine.rounds(2);
    assert_eq!(engine.table(0, "b").len(), 2 + 3);
    engine.play();
}

/// §1 and §4: of a budget beyond one safe-step window, one window is prepaid.
#[test]
fn the_headroom_of_a_first_admission_is_one_window_at_most() {
    for (budget, granted) in [(4096, 4106), (4097, 4106), (9000, 4106)] {
        let world = World { B: 1, P: 10_000, ..World::default() };
        let mut engine = Engine::new(&world);
        engine.submit(&[("a", R(10, 3).budget(budget))]);
        engine.round();
        assert_eq!(engine.table(0, "a").len(), granted);
    }
}

/// §1: a sliding group holds the decode slot and no more; slid-out slots are holes.
#[test]
fn a_sliding_group_reserves_the_decode_slot_alone() {
    let groups = vec![full("f", 1), sliding("s", 1, 4)];
    let mut engine = Engine::new(&World { groups, P: 96, ..by_token(3, 8) });
    engine.submit(&[("a", R(18, 10))]);
    engine.round();
    assert_eq!((engine.table(0, "a").len(), engine.table(1, "a").len()), (28, 8));
    engine.round();
    assert_eq!(engine.table(1, "a").len(), 16);
    assert_eq!(engine.table(1, "a")[..5], [0; 5], "of 8 computed the last 3 are read again");
    engine.round();
    assert_eq!(engine.table(1, "a").len(), 18 + 3);
    engine.play();
}

/// §1 and §1.2: a state group holds the last aligned checkpoint, the endpoint and a growth block on the
/// completing chunk; an intermediate one its endpoint alone.
#[test]
fn a_state_group_reserves_a_growth_block_on_the_completing_chunk() {
    for (prompt, chunk, filled) in
        [(9, 64, "0111"), (8, 64, "011"), (5, 64, "111"), (2, 64, "11"), (23, 8, "01")]
    {
        let world = World { P: 16, C: chunk, groups: vec![state("s", 4)], ..World::default() };
        let mut engine = Engine::new(&world);
        engine.submit(&[("a", R(prompt, 2).undeclared())]);
        engine.round();
        let table: String =
            engine.table(0, "a").iter().map(|&block| if block > 0 { '1' } else { '0' }).collect();
        assert_eq!(table, filled, "prompt of {prompt} in chunks of {chunk}");
        engine.play();
    }
}

/// §1.2: no request needs an empty parent for its first crossing of a state boundary.
#[test]
fn the_first_crossing_of_a_state_boundary_is_paid_for() {
    for prompt in 5..9 {
        let world = World { P: 6, groups: vec![state("s", 4)], ..World::default() };
        let mut engine = Engine::new(&world);
        engine.submit(&[("a", R(prompt, 5).undeclared())]);
        engine.round();
        for _ in 0..4 {
            assert_eq!(engine.round(), "D a");
            assert_eq!(engine.plan.pages_to_zero, [[]]);
        }
        engine.play();
    }
}

/// §1, Alignment: beside a state group a chunk that does not complete its prompt ends on a page; without
/// one, it takes what budget there is.
#[test]
fn only_states_make_chunks_end_on_pages() {
    let mut plain = Engine::new(&World { P: 32, C: 10, ..World::default() });
    plain.submit(&[("a", R(5, 1)), ("b", R(9, 1))]);
    assert_eq!(plain.rounds(2), ["P a[0+5/5] b[0+5/9]", "P b[5+4/9]"]);
    plain.play();

    let groups = vec![full("f", 4), state("s", 4)];
    let mut stateful = Engine::new(&World { P: 32, C: 10, groups, ..World::default() });
    stateful.submit(&[("a", R(5, 1)), ("b", R(9, 1))]);
    assert_eq!(stateful.rounds(2), ["P a[0+5/5] b[0+4/9]", "P b[4+5/9]"]);
    stateful.play();
}

/// §1.1: with 6 left and prompts of 2, 1 and 10 waiting (thousands there, pairs here), the round takes
/// the first two whole and 3 of the third, then stops. Its last chunk releases the line at once.
#[test]
fn an_incomplete_prompt_holds_the_line_and_its_last_chunk_releases_it() {
    let mut engine = Engine::new(&World { B: 2, P: 64, C: 12, ..World::default() });
    engine.submit(&[("a", R(4, 1)), ("b", R(2, 1)), ("c", R(20, 1)), ("d", R(2, 1))]);
    assert_eq!(engine.round(), "P a[0+4/4] b[0+2/2] c[0+6/20]");
    assert_eq!(engine.round(), "P c[6+12/20]", "d does not overtake c");
    assert_eq!(engine.round(), "P c[18+2/20] d[0+2/2]");
    engine.play();
}

/// §1.1: the line orders prompts. Decodes go first in mixed mode, and never share a round otherwise.
#[test]
fn decodes_are_not_part_of_the_line() {
    for (mixed, expected) in [
        (true, ["P b[0+7/20]; D a", "P b[7+7/20]; D a", "P b[14+6/20]; D a"]),
        (false, ["P b[0+8/20]", "P b[8+8/20]", "P b[16+4/20]"]),
    ] {
        let mut engine = Engine::new(&World { P: 64, C: 8, mixed, ..World::default() });
        engine.submit(&[("a", R(4, 9))]);
        engine.rounds(2);
        engine.submit(&[("b", R(20, 2))]);
        assert_eq!(engine.rounds(3), expected);
        engine.play();
    }
}

/// §1.2: after a hit of 50,432 the extent of 868 is one forward; it leaves a checkpoint at 51,200 and the
/// final state at 51,300. With 800 tokens of budget it is cut at the page instead.
#[test]
fn a_stateful_tail_is_one_forward() {
    for (budget, expected) in [
        (2048, vec!["P a[50432+868/51300]"]),
        (800, vec!["P a[50432+768/51300]", "P a[51200+100/51300]"]),
    ] {
        let groups = vec![full("f", 128), state("s", 128)];
        let world = World { B: 128, P: 1000, C: budget, groups, ..World::default() };
        let mut engine = Engine::new(&world);
        engine.submit(&[("seed", R(50_432, 1).sharing(1, 50_432))]);
        engine.drain();
        engine.submit(&[("a", R(51_300, 2).sharing(1, 50_432))]);
        assert_eq!(engine.rounds(expected.len()), expected);
        let states = engine.table(1, "a");
        let held: Vec<usize> = (0..states.len()).filter(|&slot| states[slot] > 0).collect();
        // The state it started from, the checkpoint at 51,200, the end, and a growth block.
        match budget {
            2048 => assert_eq!(held, [393, 399, 400, 401]),
            _ => assert_eq!(held[held.len() - 3..], [399, 400, 401]),
        }
        engine.play();
    }
}

/// §1.2: only materialized aligned checkpoints are cached: an endpoint off a page is never a hit, the
/// last aligned checkpoint before it is.
#[test]
fn only_the_last_aligned_checkpoint_is_cached() {
    let groups = vec![full("f", 4), state("s", 4)];
    let mut engine = Engine::new(&World { P: 32, groups, ..World::default() });
    engine.submit(&[("seed", R(14, 1).sharing(1, 14))]);
    engine.drain();
    engine.submit(&[("a", R(14, 1).sharing(1, 14)), ("b", R(11, 1).sharing(1, 9))]);
    engine.play();
    assert_eq!((engine.lives["a"].hit, engine.lives["b"].hit), (12, 0));
}

/// §1.2: the cut is the same with the prefix cache off.
#[test]
fn a_stateful_prompt_is_cut_alike_without_the_prefix_cache() {
    for unmatched in [false, true] {
        let groups = vec![full("f", 4), state("s", 4)];
        let world = World { P: 32, C: 10, unmatched, groups, ..World::default() };
        let mut engine = Engine::new(&world);
        engine.submit(&[("a", R(23, 2))]);
        assert_eq!(engine.rounds(3), ["P a[0+8/23]", "P a[8+8/23]", "P a[16+7/23]"]);
        engine.play();
    }
}

/// §5: an incomplete prompt is not overtaken. A, half done, lacks two blocks; N, behind it, needs the one
/// that is free, which A would then have to win back.
#[test]
fn a_stalled_prompt_is_not_overtaken() {
    let mut engine = Engine::new(&World { P: 9, C: 8, ..World::default() });
    engine.submit(&[("x", R(8, 16))]);
    engine.rounds(2);
    engine.submit(&[("a", R(12, 2).undeclared()), ("n", R(2, 1).undeclared())]);
    let (mut round, mut stalled) = (String::new(), 0);
    while !round.contains("a[8+4/12]") {
        round = engine.round();
        stalled += usize::from(round.starts_with("D x"));
        let completes = round.contains("a[8+4/12]");
        assert!(completes || !round.contains("n["), "n overtakes a: {round}");
    }
    assert!(stalled > 0, "a was short of blocks for a while");
    engine.play();
}

/// §1.1: nor does a prompt behind take budget that the incomplete one could not use.
#[test]
fn what_an_incomplete_prompt_leaves_of_the_budget_is_nobodys() {
    let groups = vec![full("f", 4), state("s", 4)];
    let mut engine = Engine::new(&World { P: 32, C: 10, groups, ..World::default() });
    engine.submit(&[("a", R(23, 1)), ("n", R(1, 1))]);
    assert_eq!(engine.rounds(3), ["P a[0+8/23]", "P a[8+8/23]", "P a[16+7/23] n[0+1/1]"]);
    engine.play();
}

/// §3.3: in mixed mode decodes leave a page of budget to a prompt that cannot advance by less.
#[test]
fn decodes_leave_a_page_of_budget_to_a_stateful_prompt() {
    for (is_stateful, expected) in [(true, "P n[0+4/9]; D a b"), (false, "P n[0+2/9]; D a b c d")] {
        let mut groups = vec![full("f", 4)];
        if is_stateful {
            groups.push(state("s", 4));
        }
        let world = World { P: 64, C: 6, mixed: true, groups, ..World::default() };
        let mut engine = Engine::new(&world);
        engine.submit_all(vec![R(1, 20); 4]);
        engine.rounds(2);
        engine.submit(&[("n", R(9, 2))]);
        assert_eq!(engine.round(), expected);
        engine.play();
    }
}
