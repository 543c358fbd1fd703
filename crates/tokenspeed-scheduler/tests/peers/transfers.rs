//! What lands, what is handed over, and when it may be stored or matched.

use tokenspeed_scheduler::{Event, Role, SchedulerConfig};

use crate::engine::{Engine, config, tokens};
use crate::groups::full;

/// 21: while a prompt is on its way, nothing of it is stored, and nothing of it can be matched; with the
/// peer's word its complete pages can, with the first decode step.
#[test]
fn scenario_21_what_has_not_landed_is_neither_stored_nor_matched() {
    let config = SchedulerConfig {
        num_device_pages: 17,
        num_host_pages: 17,
        enable_kv_cache_events: true,
        ..config(Role::D, vec![full("full", 4)])
    };
    let mut engine = Engine::new(&config);
    engine.arrive("a", tokens(1, 14), 0);
    assert_eq!(engine.round(), "land a");
    engine.arrive("b", tokens(1, 14), 0);
    assert_eq!(engine.round(), "land b");
    let landing = engine.plan.remote_prefill.clone().expect("b lands");
    assert_eq!(landing.extend_prefix_lens, [0], "half-arrived pages are not matched");
    assert!(engine.plan.write_back.op_ids.is_empty(), "nor stored");
    engine.landed("a");
    assert_eq!(engine.round(), "D a");
    engine.arrive("c", tokens(1, 14), 0);
    assert_eq!(engine.round(), "land c");
    let landing = engine.plan.remote_prefill.clone().expect("c lands");
    assert_eq!(landing.extend_prefix_lens, [12], "three whole pages of what has landed");
    engine.result("a", &[8]);
    for id in ["b", "c"] {
        engine.landed(id);
        engine.finish(id);
    }
    engine.finish("a");
    engine.settle();
}

/// At most one landing a round, of a whole prompt whatever the token budget; decodes go on beside it.
#[test]
fn one_landing_a_round_beside_the_decodes() {
    let config = SchedulerConfig {
        num_device_pages: 17,
        max_scheduled_tokens: 4,
        ..config(Role::D, vec![full("full", 4)])
    };
    let mut engine = Engine::new(&config);
    for (stream, id) in ["a", "b", "c"].into_iter().enumerate() {
        engine.arrive(id, tokens(stream as i32, 14), 0);
    }
    assert_eq!(engine.round(), "land a");
    engine.landed("a");
    assert_eq!(engine.round(), "D a; land b");
    engine.result("a", &[8]);
    engine.landed("b");
    assert_eq!(engine.round(), "D a b; land c");
    for id in ["a", "b"] {
        engine.result(id, &[8]);
        engine.finish(id);
    }
    engine.failed("c");
    engine.settle();
}

/// A prompt is held until its last chunk's result is there, and handed over once.
#[test]
fn a_completed_prompt_is_held_until_its_result() {
    let mut engine = Engine::new(&config(Role::P, vec![full("full", 4)]));
    engine.arrive("a", tokens(1, 9), 0);
    assert_eq!(engine.round(), "P a");
    assert_eq!(engine.round(), "-");
    engine.result("a", &[7]);
    assert_eq!(engine.round(), "hand over a");
    let handed = engine.plan.remote_decode.clone().expect("a goes out");
    assert_eq!((&handed.decode_input_ids[..], &handed.prefill_lengths[..]), (&[7][..], &[9][..]));
    assert_eq!(engine.round(), "-", "once");
    assert_eq!(engine.scheduler().pd_transfer_size(), 1);
    engine.succeeded("a");
    engine.settle();
}

/// Without a Host tier a decode worker's victim comes back all the same, computed here, alone in its
/// round.
#[test]
fn a_victim_of_the_decode_role_recovers_here() {
    let mut engine = Engine::new(&config(Role::D, vec![full("full", 4)]));
    engine.arrive("a", tokens(1, 14), 0);
    engine.arrive("b", tokens(2, 14), 0);
    engine.round();
    engine.landed("a");
    engine.round();
    engine.landed("b");
    engine.result("a", &[8]);
    let mut recovered = false;
    for _ in 0..12 {
        engine.round();
        let batch = engine.plan.batch.clone();
        recovered |= batch.num_extends == 1;
        assert!(batch.num_extends == 0 || batch.request_ids.len() == 1, "alone in its round");
        for id in batch.request_ids.iter() {
            engine.result(id, &[8]);
        }
        if engine.scheduler().request_token_size("b") > 19 {
            engine.finish("b");
        }
    }
    assert!(recovered);
    engine.finish("a");
    engine.settle();
}

/// Operations are numbered in order, so that a number can be guessed: nobody ends a store that no plan has
/// carried, not with the list that begins it and not with a later one.
#[test]
fn a_store_ends_no_sooner_than_a_plan_has_carried_it() {
    let config =
        SchedulerConfig { num_host_pages: 9, ..config(Role::Fused, vec![full("full", 4)]) };
    let mut engine = Engine::new(&config);
    engine.submit("a", tokens(1, 8), 0).expect("the pool can run it");
    engine.round();
    engine.result("a", &[7]);
    let finish = Event::Finish { request_id: "a".into() };
    let guesses = || (0..8).map(|op_id| Event::WriteBackDone { op_id });
    engine
        .try_tell_all(std::iter::once(finish).chain(guesses()).collect())
        .expect("they are nobody's");
    engine.try_tell_all(guesses().collect()).expect("nor are these");
    engine.round();
    assert_eq!(engine.plan.write_back.op_ids.len(), 1, "its bytes are still to be copied");
}
