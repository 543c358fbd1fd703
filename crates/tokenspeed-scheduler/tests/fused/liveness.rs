//! The failures of `liveness.md` that concern a fused engine, a test a kind.
//!
//! Left to the roles that they are about: "the role without retraction fills up", "several half-done
//! prompts share a pool with no way back" (prefill role), "a landing that publishes more than it holds"
//! (decode role).

use tokenspeed_scheduler::plan::AbortReason;
use tokenspeed_scheduler::{Error, Event};

use crate::client::Outcome;
use crate::engine::Engine;
use crate::world::{Asked, R, World, mix};

fn result(id: &str, tokens: &[i32]) -> Event {
    Event::ExtendResult {
        request_id: id.into(),
        tokens: tokens.into(),
        spec_candidate_ids: Default::default(),
    }
}

/// The completing chunk reserves a decode slot, so a prompt that fills the pool is refused, by name
/// and with the bound, and one that leaves the slot runs.
#[test]
fn the_bound_counts_the_decode_slot() {
    for width in [1, 4] {
        let mut engine = Engine::new(&World { width, ..World::default() });
        assert_eq!(engine.scheduler.max_single_request_tokens(), 32);
        let refused = engine.try_submit(&[("a", R(33 - width, 1).undeclared())]).unwrap_err();
        let Error::RequestTooLarge { request_id, reserved_tokens, limit_tokens, .. } = &refused
        else {
            panic!("{refused}");
        };
        assert_eq!((request_id.as_str(), *reserved_tokens, *limit_tokens), ("a", width, 32));
        engine.submit(&[("b", R(32 - width, 1).undeclared())]);
        engine.play();
        assert_eq!(engine.outcome("b"), Some(&Outcome::Finished));
    }
}

/// Three prompts whose reserves cover their budgets, but not the last verify window. Whoever lacks a
/// block for it is not exempt after all: all finish, and nobody gives way twice.
#[test]
fn a_covered_request_that_needs_one_block_more_is_not_exempt() {
    for (budget, mixed, depth) in
        [(8, false, 1), (8, true, 1), (8, false, 2), (22, false, 1), (18, true, 2)]
    {
        let world = World { C: 8, width: 4, accepted: 1, mixed, depth, ..World::default() };
        let mut engine = Engine::new(&world);
        engine.submit_all(vec![R(8, budget); 3]);
        engine.play();
        assert!(engine.all_finished());
        assert!(engine.lives.values().all(|life| life.retracted_at.len() <= 1));
    }
}

/// It decodes on and on, and is ended with the bound's name, its tokens intact; the plan reports it.
#[test]
fn an_undeclared_budget_that_outgrows_the_pool_is_ended_with_a_reason() {
    for (hosts, depth) in [(0, 1), (8, 1), (0, 2), (8, 2)] {
        let mut engine = Engine::new(&World { H: hosts, depth, ..World::default() });
        engine.submit(&[("a", R(10, 1_000).undeclared())]);
        engine.play();
        let Some(Outcome::Ended(notice)) = engine.outcome("a") else {
            panic!("it ended with {:?}", engine.outcome("a"));
        };
        assert_eq!(notice.reason, AbortReason::OutgrewPool);
        let bound = engine.scheduler.max_single_request_tokens().to_string();
        for part in ["'a'", "max_single_request_tokens", &bound] {
            assert!(notice.text.contains(part), "{part}: {}", notice.text);
        }
        assert!(engine.lives["a"].output() >= 22, "the pool holds 32 tokens");
        engine.submit(&[("b", R(10, 4))]);
        engine.play();
        assert_eq!(engine.outcome("b"), Some(&Outcome::Finished));
    }
}

/// The same result fed twice: an error that names the request, and nothing has changed.
#[test]
fn one_result_too_many_is_refused() {
    let mut engine = Engine::new(&World::default());
    engine.submit(&[("a", R(5, 4)), ("b", R(5, 4))]);
    engine.round();
    let before = format!("{:?}", engine.scheduler);
    let refused = engine.advance(vec![result("b", &[7]), result("a", &[7]), result("a", &[7])]);
    assert_eq!(refused, Err(Error::ResultNotOwed { request_id: "a".into() }));
    assert_eq!(format!("{:?}", engine.scheduler), before);
    engine.play();
    assert!(engine.all_finished());
}

/// Results of A are lost. B finishes; C, which needs A's blocks, waits. Who is owed, and since when, can
/// be asked for; when the client of A gives up, C goes on.
#[test]
fn a_result_that_never_comes_stops_nobody_else_and_is_told() {
    let mut engine = Engine::new(&World { P: 10, ..World::default() });
    engine.submit(&[
        ("a", R(14, 9).undeclared()),
        ("b", R(5, 6).undeclared()),
        ("c", R(7, 30).undeclared()),
    ]);
    engine.rounds(2);
    engine.lost.insert("a".into());
    for _ in 0..4 {
        engine.round();
        assert!(engine.decodes().contains(&"b".into()), "b goes on");
    }
    engine.rounds(30);
    assert_eq!(engine.outcome("b"), Some(&Outcome::Finished));
    assert_eq!(engine.outcome("c"), None, "c needs what a holds");
    let owed = engine.scheduler.owed_results();
    assert_eq!(owed.len(), 1);
    assert_eq!((owed[0].request_id.as_str(), owed[0].results, owed[0].since_round), ("a", 1, 2));
    engine.abort("a");
    engine.lost.clear();
    engine.play();
    assert_eq!(engine.outcome("c"), Some(&Outcome::Finished));
}

/// All the pool is held by requests of which one is owed a result for ever: the others still run as far
/// as they need no block, and an abort of the one frees them all.
#[test]
fn a_full_pool_behind_a_lost_result_is_told() {
    let mut engine = Engine::new(&World { P: 6, ..World::default() });
    engine.submit(&[("a", R(8, 9).undeclared()), ("b", R(8, 9).undeclared())]);
    engine.lost.insert("a".into());
    for _ in 0..20 {
        engine.round();
    }
    assert_eq!(engine.round(), "-");
    assert_eq!(engine.scheduler.owed_results()[0].request_id, "a");
    assert!(engine.lives["b"].output() >= 4, "b had its own block to fill");
    engine.abort("a");
    engine.lost.clear();
    engine.play();
    assert_eq!(engine.outcome("b"), Some(&Outcome::Finished));
}

/// A request with as many results out as the depth allows is not scheduled again.
#[test]
fn planning_ahead_without_results_repeats_nothing() {
    for depth in [1, 2] {
        let mut engine = Engine::new(&World { C: 6, P: 16, depth, ..World::default() });
        engine.submit(&[("a", R(6, 9)), ("b", R(9, 9))]);
        engine.lost = ["a".into(), "b".into()].into();
        let plans: Vec<String> = engine.rounds(5).into_iter().filter(|plan| plan != "-").collect();
        let ahead = ["P a[0+6/6]", "P b[0+6/9]", "P b[6+3/9]", "D a"];
        match depth {
            1 => assert_eq!(plans, ahead[..2]),
            _ => assert_eq!(plans, ahead),
        }
        engine.lost.clear();
        engine.play();
        assert!(engine.all_finished());
    }
}

/// A client that never finishes: the scheduler ends the request at its declared budget and says so.
#[test]
fn past_the_declared_budget_the_scheduler_ends_it() {
    for (depth, width) in [(1, 1), (2, 1), (1, 4), (2, 4)] {
        let world = World { P: 16, depth, width, accepted: 1, ..World::default() };
        let mut engine = Engine::new(&world);
        engine.clients_finish = false;
        engine.submit(&[("a", R(6, 5)), ("b", R(6, 9))]);
        engine.play();
        for (id, budget) in [("a", 5), ("b", 9)] {
            let Some(Outcome::Ended(notice)) = engine.outcome(id) else {
                panic!("'{id}' ended with {:?}", engine.outcome(id));
            };
            assert_eq!(notice.reason, AbortReason::BudgetSpent);
            assert!(
                notice.text.contains("max_new_tokens") && notice.text.contains(&budget.to_string())
            );
            assert_eq!(engine.lives[id].output(), budget, "not a token more");
        }
    }
}

/// A pool for 60 % of what is asked, nothing declared. Every round makes progress and all finish; how
/// many run at once is a matter of goodput and not of this test.
#[test]
fn a_convoy_gets_through() {
    let drawn = |at: u64, what: u64| (mix(at, what) % 24) as i64;
    for (mixed, hosts) in [(false, 0), (true, 0), (false, 64), (true, 64)] {
        let asked: Vec<Asked> =
            (0..24).map(|at| R(4 + drawn(at, 1), 4 + drawn(at, 2)).undeclared()).collect();
        let need: i64 = (0..24).map(|at| (12 + drawn(at, 1) + drawn(at, 2)) / 4).sum();
        let world =
            World { P: need * 6 / 10, H: hosts, C: 32, rows: 256, mixed, ..World::default() };
        let mut engine = Engine::new(&world);
        engine.submit_all(asked);
        engine.play();
        assert!(engine.all_finished());
    }
}
