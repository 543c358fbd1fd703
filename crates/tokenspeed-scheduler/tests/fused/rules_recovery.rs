//! `scheduler.md` §4 and §5: how a retracted request comes back, and what must hold throughout.

use tokenspeed_scheduler::Event;

use crate::engine::Engine;
use crate::world::{R, World};

/// Z, exempt, and Y fill the pool; then A, an incomplete prompt, is retracted for Y's next block.
fn a_is_retracted(hosts: i64) -> Engine {
    let mut engine = Engine::new(&World { P: 9, H: hosts, C: 8, ..World::default() });
    engine.submit(&[("y", R(11, 16).undeclared()), ("z", R(4, 12))]);
    engine.rounds(3);
    engine.submit(&[("a", R(24, 2).undeclared())]);
    assert_eq!(engine.rounds(2), ["P a[0+8/24]", "D z; R a"]);
    engine
}

/// A gives way to B, and N, of one block, arrives.
fn n_arrives_behind_a_victim(hosts: i64) -> Engine {
    let mut engine = Engine::new(&World { P: 6, H: hosts, ..World::default() });
    engine.submit(&[("a", R(8, 9).undeclared()), ("b", R(9, 9).undeclared())]);
    engine.rounds(5);
    assert_eq!(engine.round(), "D b; R a");
    engine.submit(&[("n", R(2, 1))]);
    engine
}

/// §4: a readmission that does not fit waits. Meanwhile decodes run, nobody is retracted for it, and a
/// newcomer that would fit does not start.
#[test]
fn a_readmission_that_does_not_fit_waits_and_seals_newcomers_only() {
    let mut engine = n_arrives_behind_a_victim(32);
    for _ in 0..3 {
        assert_eq!(engine.round(), "D b");
        assert!(engine.scheduler.available_lcm_blocks() >= 1, "n would fit");
    }
    engine.play();
    assert!(engine.all_finished());
    assert_eq!(engine.lives["b"].retracted_at, [], "b gave way to nobody's readmission");
}

/// §4: nor is anybody who would be a victim at hand, idle because the budget is spent: C waits for its
/// turn while A and B decode, and D's readmission lacks blocks.
#[test]
fn a_readmission_that_does_not_fit_retracts_nobody() {
    let mut engine = Engine::new(&World { P: 12, H: 32, C: 2, ..World::default() });
    let declared = [("a", R(3, 10)), ("b", R(3, 10))];
    engine.submit(&declared);
    engine.rounds(4);
    engine.submit(&[("c", R(8, 5).undeclared()), ("d", R(9, 3).undeclared())]);
    while engine.plan.retracted.is_empty() {
        engine.round();
    }
    assert_eq!(engine.rounds(3), ["D a b", "D a b", "D a b"]);
    engine.play();
}

/// §4: without a Host there is no snapshot: the request starts over like a new prompt, and seals nobody.
#[test]
fn a_request_without_a_snapshot_competes_like_a_newcomer() {
    let mut engine = n_arrives_behind_a_victim(0);
    assert_eq!(engine.round(), "P n[0+2/2]");
    assert_eq!(engine.scheduler.waiting_size(), 1, "a still waits");
    engine.play();
}

/// §4: who has generated output comes back first, though it was retracted last and the other fits.
#[test]
fn generated_output_comes_back_first() {
    let mut engine = a_is_retracted(32);
    loop {
        engine.round();
        if !engine.lives["y"].retracted_at.is_empty() {
            break;
        }
    }
    engine.abort("z");
    let round = engine.round();
    assert!(round.starts_with("P y["), "{round}");
    engine.play();
}

/// §4: of two victims with output the one retracted first comes back first; one a round, though both
/// would fit.
#[test]
fn the_oldest_retraction_comes_back_first_and_alone() {
    let mut engine = Engine::new(&World { P: 11, H: 32, ..World::default() });
    engine.submit(&[("z", R(4, 20)), ("b", R(7, 30).undeclared()), ("a", R(11, 30).undeclared())]);
    let mut victims = Vec::new();
    while victims.len() < 2 {
        let round = engine.round();
        victims.extend(round.split_once("; R ").map(|(_, id)| id.to_string()));
    }
    assert_eq!(victims, ["a", "b"]);
    engine.abort("z");
    let comebacks = engine.rounds(2);
    assert!(comebacks[0].starts_with("P a["), "{comebacks:?}");
    assert!(comebacks[1].starts_with("P b[") && !comebacks[0].contains('b'), "{comebacks:?}");
    engine.play();
}

/// §4: each retraction widens the headroom by a window: 8,192 the second time. The engine asks for more
/// room than B's block leaves, so that A, whose 9,000 are not covered, is retracted for capacity.
#[test]
fn the_headroom_grows_with_each_retraction() {
    let mut engine = Engine::new(&World { B: 512, P: 24, C: 8192, ..World::default() });
    engine.submit(&[("a", R(1024, 30).budget(9000)), ("b", R(4, 30))]);
    engine.rounds(3);
    assert_eq!(engine.table(0, "a").len(), (1024 + 4096) / 512);
    let event =
        Event::UpdateReserveNumTokens { request_id: "a".into(), reserve_num_tokens: 11_262 };
    engine.advance(vec![event]).expect("a decodes");
    assert_eq!(engine.rounds(2), ["D b; R a", "P a[1024+3/1027]"]);
    assert_eq!(engine.table(0, "a").len(), (1027_usize + 8192).div_ceil(512));
    assert_eq!(engine.round(), "D a b", "what the engine asked for is gone with the blocks");
    engine.play();
    assert!(engine.all_finished());
}

/// §5: only computed tokens are published, and exactly those: of an incomplete prompt its window, of a
/// decode every token but the last.
#[test]
fn what_was_computed_is_published_and_nothing_more() {
    let mut engine = a_is_retracted(32);
    engine.abort("y");
    engine.abort("z");
    assert_eq!(engine.round(), "P a[8+8/24]", "two pages of 24 tokens were computed");
    engine.play();

    for (depth, output) in [1, 2].into_iter().flat_map(|depth| (1..8).map(move |o| (depth, o))) {
        let mut engine = Engine::new(&World { P: 32, depth, ..World::default() });
        engine.submit(&[("a", R(7, output))]);
        engine.drain();
        let tokens = engine.tokens("a")[..7 + output as usize].to_vec();
        engine.submit(&[("b", R(30, 1).repeating(&tokens))]);
        engine.play();
        assert_eq!(engine.lives["b"].hit as i64, (7 + output - 1) / 4 * 4, "{output} tokens");
    }
}

/// §5: a store either pins its sources until it is acknowledged or is stream-ordered, and only a
/// retraction's is.
#[test]
fn only_a_retractions_store_is_stream_ordered() {
    let mut engine = Engine::new(&World { P: 12, H: 32, ..World::default() });
    engine.submit_all(vec![R(8, 16).undeclared(); 4]);
    let mut guards = [0, 0];
    while engine.lives.values().any(|life| life.outcome.is_none()) {
        engine.round();
        let write_back = &engine.plan.write_back;
        for &pinned in &write_back.source_pinned {
            guards[usize::from(pinned)] += 1;
            assert!(pinned || !engine.plan.retracted.is_empty());
        }
        assert_eq!(write_back.source_pinned.len(), write_back.op_ids.len());
    }
    assert!(guards[0] > 0 && guards[1] > 0, "{guards:?}");
    engine.drain();
    engine.settle();
}

/// §5: decodes keep running beside a stalled prompt: within their blocks they need nothing. Planned ahead,
/// too, while a result is owed: it is no standstill that they would be let go on in.
#[test]
fn decodes_are_not_hostage_to_a_stalled_prompt() {
    for (mixed, depth) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let mut engine = Engine::new(&World { P: 8, C: 8, mixed, depth, ..World::default() });
        engine.submit(&[("x", R(4, 16))]);
        engine.rounds(2);
        engine.submit(&[("a", R(20, 2).undeclared())]);
        let mut decoded = 0;
        while engine.outcome("x").is_none() {
            let round = engine.round();
            let has_prompt = round.starts_with('P');
            decoded += usize::from(round.contains("D x"));
            let all_sampled = engine.tokens("x").len() == 4 + 16;
            assert!(has_prompt || round.contains("D x") || all_sampled, "{round}");
            assert!(engine.lives["x"].retracted_at.is_empty());
        }
        assert_eq!(
            decoded, 14,
            "of sixteen tokens one is the prompt's sample, one was decoded before"
        );
        engine.play();
    }
}

/// §5: at most one readmission is in progress: B's does not start amid A's chunks. (The Host is too small
/// for both snapshots, so A is computed again.)
#[test]
fn a_readmission_in_chunks_is_not_joined_by_another() {
    let mut engine = Engine::new(&World { P: 12, H: 3, C: 8, ..World::default() });
    engine.submit(&[("z", R(4, 24)), ("b", R(7, 30).undeclared()), ("a", R(11, 30).undeclared())]);
    let mut victims = 0;
    while victims < 2 {
        engine.round();
        victims += engine.plan.retracted.len();
    }
    engine.abort("z");
    let rounds = engine.rounds(3);
    assert_eq!(rounds[..2], ["P a[0+8/13]", "P a[8+5/13]"]);
    assert!(rounds[2].starts_with("P b["), "{rounds:?}");
    engine.play();
}
