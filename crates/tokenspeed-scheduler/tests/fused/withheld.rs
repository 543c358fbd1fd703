//! Forwards that an engine withholds: `Retract` forfeits what is out, and the request goes on without
//! (`scheduler.md` §4; `liveness.md` 1 and 4).

use tokenspeed_scheduler::plan::AbortReason;
use tokenspeed_scheduler::{Error, Event, Scheduler};

use crate::client::Outcome;
use crate::engine::Engine;
use crate::world::{R, World};

fn result(tokens: &[i32]) -> Vec<Event> {
    vec![Event::ExtendResult {
        request_id: "a".into(),
        tokens: tokens.into(),
        spec_candidate_ids: Default::default(),
    }]
}

fn size(engine: &Engine) -> i64 {
    engine.scheduler.request_token_size("a")
}

/// A decodes with as many results out as the depth allows, and is retracted: so many are forfeited.
fn decoding_then_retracted(depth: i64) -> Engine {
    let mut engine = Engine::new(&World { P: 16, depth, ..World::default() });
    engine.submit(&[("a", R(4, 9))]);
    engine.rounds(3);
    let out = engine.scheduler.owed_results()[0].results;
    assert_eq!(i64::from(out), depth);
    assert_eq!(engine.retract("a").len() as i64, depth);
    engine
}

/// No result comes: nothing is owed, and the next genuine one counts.
#[test]
fn nothing_is_owed_for_a_forward_that_was_withheld() {
    for depth in [1, 2] {
        let mut engine = Engine::new(&World { depth, ..World::default() });
        engine.submit(&[("a", R(3, 9))]);
        engine.round();
        engine.retract("a");
        assert_eq!(engine.scheduler.owed_results(), []);
        assert_eq!(engine.round(), "P a[0+3/3]");
        assert_eq!(engine.scheduler.owed_results()[0].results, 1);
        engine.play();
        assert_eq!(engine.outcome("a"), Some(&Outcome::Finished));
        assert_eq!(engine.lives["a"].output(), 9);
    }
}

/// A result by id while the request waits is ignored, however many come, and costs the next stay none.
#[test]
fn a_result_while_the_request_waits_is_ignored() {
    for (depth, late) in [1, 2].into_iter().flat_map(|depth| (0..4).map(move |late| (depth, late)))
    {
        let mut engine = decoding_then_retracted(depth);
        let tokens = size(&engine);
        for _ in 0..late {
            engine.advance(result(&[9])).expect("it is late");
            engine.advance(result(&[])).expect("it is late");
        }
        assert_eq!(size(&engine), tokens);
        engine.play();
        assert_eq!(engine.outcome("a"), Some(&Outcome::Finished));
        assert_eq!(engine.lives["a"].output(), 9);
    }
}

/// By its old handle a result is ignored whatever is owed now, as often as it comes.
#[test]
fn a_result_by_an_old_handle_is_ignored() {
    for depth in [1, 2] {
        let mut engine = Engine::new(&World { P: 16, depth, ..World::default() });
        engine.submit(&[("a", R(4, 9))]);
        engine.rounds(3);
        let old = engine.handle("a");
        engine.retract("a");
        let tokens = size(&engine);
        engine.land(old, &[9]).expect("a stale handle is ignored");
        engine.round();
        assert_ne!(engine.handle("a"), old);
        for _ in 0..3 {
            engine.land(old, &[9]).expect("a stale handle is ignored");
        }
        assert_eq!(size(&engine), tokens);
        engine.play();
        assert_eq!(engine.outcome("a"), Some(&Outcome::Finished));
        assert_eq!(engine.lives["a"].output(), 9);
    }
}

/// By id and after the readmission, one that fits what is owed counts; further ones are passed over
/// as often as results were forfeited, and then refused.
#[test]
fn a_result_that_fits_what_is_owed_counts() {
    for depth in [1, 2] {
        let mut engine = decoding_then_retracted(depth);
        let tokens = size(&engine);
        assert!(engine.round().starts_with("P a["), "it starts over");
        engine.advance(result(&[9])).expect("it is owed");
        assert_eq!(size(&engine), tokens + 1);
        for _ in 0..depth {
            engine.advance(result(&[9])).expect("it is late");
        }
        assert_eq!(size(&engine), tokens + 1);
        let refused = engine.advance(result(&[9]));
        assert_eq!(refused, Err(Error::ResultNotOwed { request_id: "a".into() }));
    }
}

/// By the handle of the new stay as by id.
#[test]
fn a_result_by_the_new_handle_counts_if_it_is_owed() {
    for depth in [1, 2] {
        let mut engine = decoding_then_retracted(depth);
        engine.round();
        let (handle, tokens) = (engine.handle("a"), size(&engine));
        engine.land(handle, &[9]).expect("it is owed");
        for _ in 0..depth {
            engine.land(handle, &[9]).expect("it is late");
        }
        assert_eq!(size(&engine), tokens + 1);
        let refused = engine.land(handle, &[9]);
        assert_eq!(refused, Err(Error::ResultNotOwed { request_id: "a".into() }));
    }
}

/// One that does not fit what is owed is passed over as often as results were forfeited, also in one
/// list; the one that is owed still counts.
#[test]
fn a_result_that_does_not_fit_what_is_owed_is_late_or_refused() {
    for depth in [1, 2] {
        let mut engine = decoding_then_retracted(depth);
        let tokens = size(&engine);
        engine.round();
        let too_many: Vec<Event> = (0..=depth).flat_map(|_| result(&[8, 9])).collect();
        let refused = engine.advance(too_many.clone()).expect_err("one more than was forfeited");
        assert_eq!(refused.code(), "bad_result");
        engine.advance(too_many[1..].to_vec()).expect("they are late");
        assert_eq!(size(&engine), tokens);
        assert_eq!(engine.advance(result(&[8, 9])).map_err(|e| e.code()), Err("bad_result"));
        engine.play();
        assert_eq!(engine.outcome("a"), Some(&Outcome::Finished));
        assert_eq!(engine.lives["a"].output(), 9);
    }
}

/// The last token of the budget lands and the blocks are taken at once: there is nothing to come back
/// for, whether the pool would hold it or not.
#[test]
fn a_spent_budget_ends_a_request_that_waits() {
    for parents in [32, 100] {
        let world = World { B: 1, P: parents, ..World::default() };
        let mut scheduler = Scheduler::new(world.config()).expect("the world is valid");
        scheduler.submit_requests(vec![R(28, 4).spec("a")]).expect("the pool can run it");
        for _ in 0..4 {
            let plan = scheduler.next_execution_plan().expect("a plan can always be made");
            assert_eq!(plan.batch.request_ids.len(), 1);
            scheduler.advance(result(&[7])).expect("it is owed");
        }
        scheduler.advance(vec![Event::Retract { request_id: "a".into() }]).expect("it is resident");
        let plan = scheduler.next_execution_plan().expect("a plan can always be made");
        assert!(plan.batch.request_ids.is_empty());
        let ended: Vec<_> = plan.aborts.iter().map(|a| (&*a.request_id, a.reason)).collect();
        assert_eq!(ended, [("a", AbortReason::BudgetSpent)]);
        assert_eq!((scheduler.request_token_size("a"), scheduler.waiting_size()), (-1, 0));
    }
}

/// A request declared up to the bound is retracted at every point of its output: it comes back, though a
/// whole verify window no longer fits behind its tokens, and generates what it declared.
#[test]
fn a_request_at_the_bound_comes_back_near_its_end() {
    for at in 0..10 {
        let world = World { B: 1, P: 22, width: 4, accepted: 1, ..World::default() };
        let mut engine = Engine::new(&world);
        engine.submit(&[("a", R(10, 10))]);
        engine.round();
        while engine.lives["a"].output() < at {
            engine.round();
        }
        engine.retract("a");
        engine.play();
        assert_eq!(engine.outcome("a"), Some(&Outcome::Finished), "retracted at {at}");
        assert_eq!(engine.lives["a"].output(), 10);
    }
}

/// A has output and is being recomputed in chunks, which its client cannot see: it may finish it.
#[test]
fn a_request_with_output_can_be_finished_amid_its_recomputation() {
    for by_handle in [false, true] {
        let mut engine = Engine::new(&World { C: 8, ..World::default() });
        engine.submit(&[("a", R(6, 9))]);
        engine.rounds(5);
        engine.retract("a");
        assert!(engine.scheduler.clear_cache() && engine.mirror.clear_cache());
        assert_eq!(engine.round(), "P a[0+8/10]");
        assert_eq!(engine.scheduler.prefilling_size(), 1);
        match by_handle {
            true => engine.finish_by_handle("a", engine.handle("a")),
            false => engine.finish("a"),
        }
        assert_eq!((size(&engine), engine.scheduler.active_lcm_blocks()), (-1, 0));
        engine.play();
    }
}

/// The handle of its last stay names a request that the scheduler, or the engine, retracted, until it is
/// admitted again.
#[test]
fn the_last_handle_of_a_retracted_request_finishes_it() {
    let retracted = |by_engine: bool| {
        let mut engine = Engine::new(&World { P: 6, ..World::default() });
        engine.submit(&[("a", R(8, 9).undeclared()), ("b", R(9, 9).undeclared())]);
        engine.rounds(5);
        let handle = engine.handle("a");
        if by_engine {
            engine.retract("a");
        } else {
            assert_eq!(engine.round(), "D b; R a");
            assert_eq!(engine.plan.retracted, [handle]);
        }
        (engine, handle)
    };
    for by_engine in [false, true] {
        let (mut engine, handle) = retracted(by_engine);
        engine.finish_by_handle("a", handle);
        assert_eq!((size(&engine), engine.scheduler.waiting_size()), (-1, 0));
        engine.play();
        assert_eq!(engine.outcome("b"), Some(&Outcome::Finished));

        let (mut engine, handle) = retracted(by_engine);
        while engine.scheduler.waiting_size() > 0 {
            engine.round();
        }
        let tokens = size(&engine);
        engine.scheduler.finish(&[handle]).expect("the handle of an earlier stay is ignored");
        assert_eq!(size(&engine), tokens);
        engine.play();
        assert!(engine.all_finished());
    }
}
