//! Scenarios 26 to 30 on the roles with peers: aborts at every point, and the peer's last word.

use tokenspeed_scheduler::{Event, Role, SchedulerConfig};

use crate::engine::{Engine, config, tokens};
use crate::groups::full;

/// 29: A's blocks are being written by its peer; A is aborted and B admitted; the late write lands. A's
/// blocks stay fenced until the peer's word.
#[test]
fn scenario_29_blocks_stay_fenced_until_the_peers_word() {
    for last_word in 0..3 {
        let mut engine = Engine::new(&config(Role::D, vec![full("full", 4)]));
        engine.arrive("a", tokens(1, 15), 0);
        assert_eq!(engine.round(), "land a");
        let fenced = engine.blocks("a");
        assert_eq!(fenced.len(), 4);
        engine.abort("a");
        assert_eq!(engine.scheduler().request_token_size("a"), -1, "its client has an answer");
        engine.arrive("b", tokens(2, 15), 0);
        assert_eq!(engine.round(), "land b");
        assert!(engine.blocks("b").iter().all(|block| !fenced.contains(block)), "a late write");
        engine.arrive("c", tokens(3, 4), 0);
        assert_eq!(engine.round(), "-", "what is left is fenced");
        assert!(!engine.scheduler().can_clear_cache());
        match last_word {
            0 => engine.failed("a"),
            1 => engine.landed("a"),
            _ => engine.tell(Event::TransferFailed { request_id: "a".into() }),
        }
        assert_eq!(engine.round(), "land c");
        for id in ["b", "c"] {
            engine.landed(id);
            engine.finish(id);
        }
        engine.settle();
    }
}

/// Whatever else is reported of it, by id or by handle, the fence holds.
#[test]
fn a_request_that_was_given_up_is_its_peers_alone() {
    let mut engine = Engine::new(&config(Role::D, vec![full("full", 4)]));
    engine.arrive("a", tokens(1, 15), 0);
    assert_eq!(engine.round(), "land a");
    let handle = engine.plan.remote_prefill.as_ref().expect("a lands").handles[0];
    let error = engine.finish_by_handle(handle).expect_err("its peer writes");
    assert_eq!(error.code(), "unexpected_event");
    engine.abort("a");
    let request_id = || "a".into();
    engine.tell(Event::Finish { request_id: request_id() });
    engine.tell(Event::Retract { request_id: request_id() });
    engine.tell(Event::Abort { request_id: request_id() });
    engine.finish_by_handle(handle).expect("it is gone");
    assert_eq!(engine.scheduler().active_lcm_blocks(), 4);
    assert_eq!(engine.round(), "-", "it does not come back");
    engine.failed("a");
    engine.settle();
}

/// 29 on the prefill side: the peer may be reading from the first chunk on, until its word.
#[test]
fn scenario_29_blocks_that_a_peer_reads_are_not_granted() {
    let config =
        SchedulerConfig { max_scheduled_tokens: 8, ..config(Role::P, vec![full("full", 4)]) };
    for rounds in 1..4 {
        let mut engine = Engine::new(&config);
        engine.arrive("a", tokens(1, 15), 0);
        for round in 0..rounds {
            match engine.round() {
                "P a" => engine.result("a", if round == 0 { &[] } else { &[7] }),
                other => assert_eq!(other, "hand over a"),
            }
        }
        let held = engine.scheduler().active_lcm_blocks();
        engine.abort("a");
        assert_eq!(engine.scheduler().active_lcm_blocks(), held, "the peer still reads");
        engine.arrive("b", tokens(2, 31), 0);
        for _ in 0..4 {
            engine.round();
            let batch = engine.plan.batch.clone();
            if !batch.request_ids.is_empty() {
                engine.result("b", &[]);
            }
        }
        engine.failed("a");
        for _ in 0..8 {
            engine.round();
            let batch = engine.plan.batch.clone();
            if !batch.request_ids.is_empty() {
                let end = batch.extend_prefix_lens[0] + batch.input_lengths[0];
                engine.result("b", if end == batch.prefill_lengths[0] { &[7] } else { &[] });
            }
        }
        engine.succeeded("b");
        engine.settle();
    }
}

/// 30: a rejection before admission frees at once, in either direction.
#[test]
fn scenario_30_a_rejection_before_admission_leaves_nothing() {
    for role in [Role::P, Role::D] {
        for bootstrapped in [false, true] {
            for by_peer in [false, true] {
                let mut engine = Engine::new(&config(role, vec![full("full", 4)]));
                engine.submit("a", tokens(1, 9), 0).expect("it fits");
                if bootstrapped {
                    engine.tell(Event::Bootstrapped { request_id: "a".into() });
                }
                match by_peer {
                    true => engine.failed("a"),
                    false => engine.abort("a"),
                }
                assert_eq!(engine.scheduler().bootstrapping_size(), 0);
                assert_eq!(engine.scheduler().waiting_size(), 0);
                engine.tell(Event::Bootstrapped { request_id: "a".into() });
                assert_eq!(engine.round(), "-");
                engine.settle();
            }
        }
    }
}

/// 26 and 27 on the prefill role: an abort ahead of the last chunk's result, which counts for nothing.
#[test]
fn scenario_26_a_prefill_workers_late_result_counts_for_nothing() {
    let mut engine = Engine::new(&config(Role::P, vec![full("full", 4)]));
    engine.arrive("a", tokens(1, 9), 0);
    assert_eq!(engine.round(), "P a");
    engine.abort("a");
    engine.result("a", &[7]);
    assert_eq!(engine.round(), "-", "an aborted prompt is not handed over");
    engine.succeeded("a");
    assert_eq!(engine.scheduler().request_token_size("a"), -1);
    engine.settle();
}

/// 27 on the decode role: an engine takes the blocks under a step, and the prompt is asked for again.
#[test]
fn scenario_27_a_retracted_request_lands_again() {
    let mut engine = Engine::new(&config(Role::D, vec![full("full", 4)]));
    engine.arrive("a", tokens(1, 9), 0);
    engine.round();
    engine.landed("a");
    assert_eq!(engine.round(), "D a");
    engine.tell(Event::Retract { request_id: "a".into() });
    engine.result("a", &[8]);
    assert_eq!(engine.scheduler().request_token_size("a"), 10, "the late token does not count");
    assert_eq!(engine.round(), "land a");
    assert_eq!(engine.round(), "-", "nobody decodes what has not landed");
    engine.landed("a");
    assert_eq!(engine.round(), "D a");
    engine.result("a", &[8]);
    engine.finish("a");
    engine.settle();
}

/// 28: an abort in each of the first rounds; one outcome, and everything comes back with the last word.
#[test]
fn scenario_28_an_abort_at_each_edge() {
    for role in [Role::P, Role::D] {
        for (rounds, host) in (0..7).flat_map(|rounds| [(rounds, 0), (rounds, 9)]) {
            let config = SchedulerConfig {
                num_host_pages: host,
                max_scheduled_tokens: 8,
                overlap_schedule_depth: 1,
                ..config(role, vec![full("full", 4)])
            };
            let mut engine = Engine::new(&config);
            engine.arrive("a", tokens(1, 15), 0);
            let mut out = Vec::new();
            for round in 0..rounds {
                engine.round();
                let batch = engine.plan.batch.clone();
                if let Some(length) = batch.input_lengths.first() {
                    let chunk = batch.num_extends > 0
                        && batch.extend_prefix_lens[0] + length < batch.prefill_lengths[0];
                    out.push(if chunk { vec![] } else { vec![7] });
                }
                // Results are a round late.
                if round % 2 == 1 && !out.is_empty() {
                    let tokens = out.remove(0);
                    engine.result("a", &tokens);
                }
                if engine.plan.remote_prefill.is_some() && rounds > 1 {
                    engine.landed("a");
                }
            }
            engine.abort("a");
            for tokens in out {
                engine.result("a", &tokens);
            }
            assert_eq!(engine.round(), "-");
            engine.failed("a");
            engine.settle();
        }
    }
}
