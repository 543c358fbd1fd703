//! The kinds of `liveness.md` that the prefill and the decode role are about.

use tokenspeed_scheduler::{Error, Event, Role, SchedulerConfig};

use crate::engine::{Engine, config, tokens};
use crate::groups::{full, packed, sliding, state};

/// "The bound forgets a reserve": of 8 blocks of 4 tokens, 32 is refused and 31 runs.
#[test]
fn the_bound_counts_the_decode_slot_of_a_prefill_worker() {
    let mut engine = Engine::new(&config(Role::P, vec![full("full", 4)]));
    let refused = engine.submit("long", tokens(1, 32), 0).unwrap_err();
    let Error::RequestTooLarge { request_id, limit_tokens, .. } = &refused else {
        panic!("{refused}");
    };
    assert_eq!((request_id.as_str(), *limit_tokens), ("long", 31));
    engine.arrive("a", tokens(1, 31), 0);
    assert_eq!(engine.round(), "P a");
    engine.result("a", &[7]);
    assert_eq!(engine.round(), "hand over a");
    engine.succeeded("a");
    engine.settle();
}

/// "The role without retraction fills up": what a hand-over needs is held since the chunk that completes
/// the prompt, so that both are handed over, at once or one after the other.
#[test]
fn a_prefill_worker_keeps_what_its_hand_overs_need() {
    let mut engine = Engine::new(&config(Role::P, vec![full("full", 4), state("state", 4)]));
    engine.arrive("a", tokens(1, 8), 0);
    engine.arrive("b", tokens(2, 8), 0);
    let mut handed_over = Vec::new();
    for _ in 0..12 {
        engine.round();
        for id in engine.plan.batch.request_ids.clone().iter() {
            engine.result(id, &[7]);
        }
        for id in
            engine.plan.remote_decode.clone().iter().flat_map(|batch| batch.request_ids.iter())
        {
            engine.succeeded(id);
            handed_over.push(id.to_string());
        }
    }
    assert_eq!(handed_over, ["a", "b"]);
    engine.settle();
}

/// The same, where what an earlier prompt left cached splits parents between the groups.
#[test]
fn what_is_cached_does_not_take_a_hand_overs_room() {
    let config = SchedulerConfig {
        prefix_granularity: 1,
        num_device_pages: 4,
        disable_prefix_cache: true,
        ..config(Role::P, vec![state("state", 1), packed(full("full", 1), 2)])
    };
    let mut engine = Engine::new(&config);
    for id in ["first", "again"] {
        engine.arrive(id, tokens(1, 1), 0);
        assert_eq!(engine.round(), format!("P {id}"));
        engine.result(id, &[7]);
        assert_eq!(engine.round(), format!("hand over {id}"));
        engine.succeeded(id);
    }
    engine.settle();
}

/// "Several half-done prompts share a pool with no way back": one is always able to finish.
#[test]
fn half_done_prompts_of_a_prefill_worker_do_not_wait_for_each_other() {
    let groups = vec![full("full", 4), state("one", 4), state("two", 4)];
    let config = SchedulerConfig {
        num_device_pages: 14,
        max_scheduled_tokens: 8,
        ..config(Role::P, groups)
    };
    let mut engine = Engine::new(&config);
    let ids = ["a", "b", "c", "d"];
    for (stream, id) in ids.iter().enumerate() {
        engine.arrive(id, tokens(stream as i32, 17), 0);
    }
    let mut handed_over = 0;
    for _ in 0..60 {
        engine.round();
        assert!(engine.plan.aborts.is_empty(), "nobody has to be ended");
        let batch = engine.plan.batch.clone();
        for (at, id) in batch.request_ids.iter().enumerate() {
            let end = batch.extend_prefix_lens[at] + batch.input_lengths[at];
            engine.result(id, if end == batch.prefill_lengths[at] { &[7] } else { &[] });
        }
        for id in
            engine.plan.remote_decode.clone().iter().flat_map(|batch| batch.request_ids.iter())
        {
            engine.succeeded(id);
            handed_over += 1;
        }
    }
    assert_eq!(handed_over, ids.len());
    engine.settle();
}

/// "A landing that publishes more than it holds": prompts that share a prefix, beside a window. Each decodes
/// and finishes; the tail is published where its blocks are.
#[test]
fn a_landing_publishes_no_more_than_it_holds() {
    for window in [1, 2, 5, 9] {
        let config = SchedulerConfig {
            num_device_pages: 25,
            ..config(Role::D, vec![full("full", 4), sliding("sliding", 4, window)])
        };
        let mut engine = Engine::new(&config);
        for (round, shared) in [12, 12, 8, 20, 21].into_iter().enumerate() {
            let id = format!("r{round}");
            let prompt = [tokens(1, shared), tokens(2 + round as i32, 9)].concat();
            engine.arrive(&id, prompt.clone(), 4);
            assert_eq!(engine.round(), format!("land {id}"));
            let landing = engine.plan.remote_prefill.clone().expect("it lands");
            let end = landing.extend_prefix_lens[0] + landing.input_lengths[0];
            assert_eq!(end as usize, prompt.len(), "the whole prompt at once");
            engine.landed(&id);
            for token in 0..3 {
                assert_eq!(engine.round(), format!("D {id}"));
                engine.result(&id, &[token]);
            }
            engine.finish(&id);
            engine.round();
        }
        engine.settle();
    }
}

/// "One result too many", on either role: refused by name, and nothing has changed.
#[test]
fn one_result_too_many_is_refused() {
    for role in [Role::P, Role::D] {
        let mut engine = Engine::new(&config(role, vec![full("full", 4)]));
        engine.arrive("a", tokens(1, 6), 0);
        engine.round();
        if role == Role::P {
            engine.result("a", &[7]);
        }
        let before = format!("{:?}", engine.scheduler());
        let again = Event::ExtendResult {
            request_id: "a".into(),
            tokens: vec![7].into(),
            spec_candidate_ids: Default::default(),
        };
        let refused = engine.try_tell(again);
        assert_eq!(refused, Err(Error::ResultNotOwed { request_id: "a".into() }));
        assert_eq!(format!("{:?}", engine.scheduler()), before);
    }
}

/// "A result that never comes" on the prefill role: who is owed is told, and others go on.
#[test]
fn a_lost_result_of_a_prefill_worker_stops_nobody_else() {
    let mut engine = Engine::new(&config(Role::P, vec![full("full", 4)]));
    engine.arrive("a", tokens(1, 8), 0);
    engine.arrive("b", tokens(2, 8), 0);
    assert_eq!(engine.round(), "P a b");
    engine.result("b", &[7]);
    assert_eq!(engine.round(), "hand over b");
    engine.succeeded("b");
    assert_eq!(engine.round(), "-");
    assert_eq!(engine.scheduler().owed_results()[0].request_id, "a");
    engine.abort("a");
    engine.failed("a");
    engine.settle();
}

/// "An undeclared budget outgrows the pool" and "past the declared budget", on the decode role: ended with
/// a reason.
#[test]
fn a_decode_worker_ends_what_cannot_go_on() {
    for (budget, reason) in [(0, "outgrew_pool"), (5, "budget_spent")] {
        let mut engine = Engine::new(&config(Role::D, vec![full("full", 4)]));
        engine.arrive("a", tokens(1, 10), budget);
        engine.round();
        engine.landed("a");
        let notice = (0..200).find_map(|_| {
            engine.round();
            let batch = engine.plan.batch.clone();
            for (at, id) in batch.request_ids.iter().enumerate() {
                let done = at >= batch.num_extends
                    || batch.extend_prefix_lens[at] + batch.input_lengths[at]
                        == batch.prefill_lengths[at];
                engine.result(id, if done { &[7] } else { &[] });
            }
            engine.plan.aborts.first().cloned()
        });
        let notice = notice.expect("it is ended");
        assert_eq!((&*notice.request_id, notice.reason.name()), ("a", reason));
        engine.settle();
    }
}
