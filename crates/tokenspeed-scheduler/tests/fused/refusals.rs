//! Refused calls change nothing, and what is gone is ignored (`liveness.md` 4; `api.md`).

use tokenspeed_scheduler::{Error, Event, Handle, RequestSpec, Scheduler};

use crate::client::Outcome;
use crate::engine::Engine;
use crate::world::{R, World};

fn result(id: &str, tokens: &[i32]) -> Event {
    Event::ExtendResult {
        request_id: id.into(),
        tokens: tokens.into(),
        spec_candidate_ids: Default::default(),
    }
}

fn finish(id: &str) -> Event {
    Event::Finish { request_id: id.into() }
}

fn retract(id: &str) -> Event {
    Event::Retract { request_id: id.into() }
}

fn reserve(id: &str, tokens: i64) -> Event {
    Event::UpdateReserveNumTokens { request_id: id.into(), reserve_num_tokens: tokens }
}

/// All of a scheduler but its scratch, which is its last field.
fn snapshot(scheduler: &Scheduler) -> String {
    let text = format!("{scheduler:?}");
    text.split(", seen_rows:").next().expect("a text has a first part").to_string()
}

/// Makes a call that must be refused, and finds the scheduler as it was.
fn refuse<T: std::fmt::Debug>(
    scheduler: &mut Scheduler,
    call: impl FnOnce(&mut Scheduler) -> Result<T, Error>,
) -> Error {
    let before = snapshot(scheduler);
    let error = call(scheduler).expect_err("the call is refused");
    assert_eq!(snapshot(scheduler), before, "{error}");
    error
}

/// A waits, B prefills, C is through its prompt, D decodes.
fn one_of_each() -> Engine {
    let mut engine = Engine::new(&World { P: 16, C: 8, rows: 3, mixed: true, ..World::default() });
    engine.submit(&[("d", R(4, 9))]);
    engine.rounds(2);
    engine.submit(&[("c", R(4, 9)), ("b", R(12, 9)), ("a", R(4, 9))]);
    assert_eq!(engine.round(), "P c[0+4/4] b[0+3/12]; D d");
    engine
}

#[test]
fn a_batch_with_one_bad_request_is_refused_whole() {
    let mut engine = one_of_each();
    let spec = |id: &str, tokens: usize, max_new_tokens| RequestSpec {
        request_id: id.into(),
        tokens: vec![1; tokens],
        max_new_tokens,
    };
    for (bad, code) in [
        (spec("x", 0, 1), "empty_prompt"),
        (spec("d", 4, 1), "duplicate_request_id"),
        (spec("good", 4, 1), "duplicate_request_id"),
        (spec("x", 4, -1), "negative_budget"),
        (spec("x", 60, 9), "request_too_large"),
        (spec("x", 64, 0), "request_too_large"),
        (spec("x", 1, i64::MAX), "request_too_large"),
    ] {
        for batch in [vec![spec("good", 4, 1), bad.clone()], vec![bad.clone(), spec("good", 4, 1)]]
        {
            let error = refuse(&mut engine.scheduler, |s| s.submit_requests(batch));
            assert_eq!(error.code(), code, "{error}");
        }
    }
    engine.play();
    assert!(engine.all_finished());
}

/// Every event that cannot happen in a state, behind one that can: neither is carried out.
#[test]
fn a_list_with_one_bad_event_is_refused_whole() {
    for (bad, code) in [
        (result("a", &[1]), "unexpected_event"),
        (finish("a"), "unexpected_event"),
        (finish("b"), "unexpected_event"),
        (retract("a"), "unexpected_event"),
        (reserve("a", 1), "unexpected_event"),
        (reserve("b", 1), "unexpected_event"),
        (reserve("c", 1), "unexpected_event"),
        (reserve("a", 61), "bad_reserve"),
        (reserve("c", -1), "bad_reserve"),
        (reserve("d", -1), "bad_reserve"),
        (reserve("d", 59), "bad_reserve"),
        (reserve("d", i64::MAX), "bad_reserve"),
        (reserve("d", i64::MIN), "bad_reserve"),
        (result("b", &[1]), "bad_result"),
        (result("c", &[]), "bad_result"),
        (result("c", &[1, 2]), "bad_result"),
        (result("d", &[]), "bad_result"),
        (result("d", &[1, 2]), "bad_result"),
    ] {
        let mut engine = one_of_each();
        let list = vec![Event::Abort { request_id: "gone".into() }, result("d", &[7]), bad];
        let repeats = list[2].request_id() == Some("d") && code == "bad_result";
        let list = if repeats { vec![list[0].clone(), list[2].clone()] } else { list };
        let error = refuse(&mut engine.scheduler, |s| s.advance(list));
        assert_eq!(error.code(), code, "{error}");
        let named = ["'a'", "'b'", "'c'", "'d'"].iter().any(|id| error.to_string().contains(id));
        assert!(named, "{error}");
        engine.play();
        assert!(engine.all_finished());
    }
}

/// What one event of a list makes impossible for the next.
#[test]
fn a_list_is_looked_through_in_its_order() {
    for (list, code) in [
        (vec![result("d", &[7]), result("d", &[8])], "result_not_owed"),
        (vec![retract("d"), reserve("d", 1)], "unexpected_event"),
        (vec![reserve("d", 1), reserve("d", 59)], "bad_reserve"),
        (vec![retract("b"), finish("b"), result("b", &[]), result("c", &[])], "bad_result"),
    ] {
        let mut engine = one_of_each();
        let error = refuse(&mut engine.scheduler, |s| s.advance(list));
        assert_eq!(error.code(), code, "{error}");
    }
    let mut engine = one_of_each();
    let after_the_end = vec![finish("d"), result("d", &[7]), result("d", &[7]), retract("d")];
    engine.advance(after_the_end).expect("what is gone is ignored");
    let mut engine = one_of_each();
    let while_it_waits = vec![retract("c"), result("c", &[7]), result("c", &[8]), retract("c")];
    engine.advance(while_it_waits).expect("what waits is owed nothing");
    assert_eq!(engine.scheduler.request_token_size("c"), 4);
}

/// A reserve that the pool could never hold is refused with the bound; the largest that it can is met.
#[test]
fn a_reserve_beyond_the_bound_is_refused_with_the_bound() {
    let mut engine = Engine::new(&World::default());
    engine.submit(&[("a", R(5, 9))]);
    engine.rounds(3);
    assert_eq!(engine.scheduler.request_token_size("a"), 7);
    for tokens in [26, i64::MAX] {
        let error = refuse(&mut engine.scheduler, |s| s.advance(vec![reserve("a", tokens)]));
        let expected = Error::BadReserve {
            request_id: "a".into(),
            reserve_num_tokens: tokens,
            limit_tokens: 32 - 7,
        };
        assert_eq!(error, expected);
    }
    engine.advance(vec![reserve("a", 25)]).expect("the pool holds it");
    assert_eq!(engine.round(), "D a");
    assert_eq!(engine.table(0, "a").len(), 8, "all of the pool");
    engine.play();
    assert!(engine.all_finished());
}

/// Near the bound a decode step may still ask for its own width.
#[test]
fn a_reserve_of_a_step_is_always_possible() {
    let mut engine = Engine::new(&World { width: 4, accepted: 1, ..World::default() });
    engine.submit(&[("a", R(5, 25))]);
    while engine.scheduler.request_token_size("a") < 29 {
        engine.round();
    }
    let error = refuse(&mut engine.scheduler, |s| s.advance(vec![reserve("a", 5)]));
    assert!(matches!(error, Error::BadReserve { limit_tokens: 4, .. }), "{error}");
    engine.advance(vec![reserve("a", 4)]).expect("a step is possible");
    engine.play();
    assert!(engine.all_finished());
}

#[test]
fn an_acknowledgement_of_the_other_kind_is_refused() {
    let mut engine = Engine::new(&World { P: 4, H: 8, ..World::default() });
    engine.holds_copies = (true, true);
    engine.submit(&[("a", R(8, 1))]);
    engine.rounds(2);
    let op_id = engine.plan.write_back.op_ids[0];
    let wrong = vec![Event::LoadBackDone { op_id, success: true }];
    let error = refuse(&mut engine.scheduler, |s| s.advance(wrong));
    assert_eq!(error.code(), "unknown_operation");
    engine.advance(vec![Event::WriteBackDone { op_id: 1_000 }]).expect("an unknown one is late");
    engine.release_copies();
    engine.settle();
}

/// Handles, tokens, offsets, and the error that they earn.
type Arrays<'a> = (&'a [Handle], &'a [i32], &'a [i64], &'a str);

#[test]
fn bad_arrays_are_refused_whole() {
    let mut engine = one_of_each();
    let handles = engine.plan.batch.handles.clone();
    assert_eq!(
        engine.plan.batch.request_ids.iter().map(|id| &**id).collect::<Vec<_>>(),
        ["c", "b", "d"]
    );
    let cases: [Arrays<'_>; 9] = [
        (&handles, &[1, 2], &[0, 1, 1], "bad_arrays"),
        (&handles, &[1, 2], &[0, 1, 1, 3], "bad_arrays"),
        (&handles, &[1, 2], &[1, 1, 1, 2], "bad_arrays"),
        (&handles, &[1, 2], &[0, 2, 1, 2], "bad_arrays"),
        (&handles, &[1, 2], &[0, -1, 1, 2], "bad_arrays"),
        (&handles, &[], &[], "bad_arrays"),
        (&[handles[0], handles[0]], &[1, 2], &[0, 1, 2], "bad_arrays"),
        (&handles, &[1, 2, 3], &[0, 1, 2, 3], "bad_result"),
        (&handles, &[1, 2, 3], &[0, 1, 1, 3], "bad_result"),
    ];
    for (handles, tokens, offsets, code) in cases {
        let call = |s: &mut Scheduler| s.advance_results(handles, tokens, offsets);
        let error = refuse(&mut engine.scheduler, call);
        assert_eq!(error.code(), code, "{error}");
    }
    engine.scheduler.advance_results(&handles, &[1, 2], &[0, 1, 1, 2]).expect("these are right");
    let twice = |s: &mut Scheduler| s.advance_results(&handles[..1], &[1], &[0, 1]);
    assert_eq!(refuse(&mut engine.scheduler, twice).code(), "result_not_owed");
}

/// A prompt under way cannot be finished, and takes the others of the call with it.
#[test]
fn finishing_a_prefilling_request_is_refused() {
    let mut engine = one_of_each();
    let handles = engine.plan.batch.handles.clone();
    let error = refuse(&mut engine.scheduler, |s| s.finish(&handles));
    assert!(
        matches!(&error, Error::UnexpectedEvent { request_id, .. } if request_id == "b"),
        "{error}"
    );
    engine.play();
    assert!(engine.all_finished());
}

#[test]
fn unknown_groups_are_refused_by_name() {
    let engine = one_of_each();
    let error = engine.scheduler.cache_group_available_pages("nope").expect_err("there is none");
    assert_eq!(error, Error::UnknownGroup { group_id: "nope".into() });
}

/// Results, ends and handles of what is gone are ignored, each as often as it comes.
#[test]
fn events_for_gone_requests_are_ignored() {
    let mut engine = one_of_each();
    let stale = engine.plan.batch.handles[2];
    engine.abort("d");
    let before = snapshot(&engine.scheduler);
    for _ in 0..2 {
        engine
            .advance(vec![
                result("d", &[1]),
                finish("d"),
                retract("d"),
                reserve("d", 3),
                finish("x"),
            ])
            .expect("what is gone is ignored");
        engine
            .scheduler
            .advance_results(&[stale], &[1], &[0, 1])
            .expect("a stale handle is ignored");
        engine.scheduler.finish(&[stale, Handle(u64::MAX)]).expect("a stale handle is ignored");
    }
    assert_eq!(snapshot(&engine.scheduler), before);
    engine.play();
    assert_eq!(engine.outcome("d"), Some(&Outcome::Aborted));
}
