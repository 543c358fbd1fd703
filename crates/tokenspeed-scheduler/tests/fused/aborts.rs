//! Scenarios 26 to 28: aborts and late results. An engine never schedules a request that has ended,
//! nor takes a second end; [`Engine::play`] finds every block back.

use tokenspeed_scheduler::Event;

use crate::client::Outcome;
use crate::engine::Engine;
use crate::groups::{full, sliding};
use crate::world::{R, World};

/// The client gives up between the launch and the result of the last chunk.
#[test]
fn scenario_26_an_abort_ahead_of_the_last_chunks_result_is_the_only_outcome() {
    let mut engine = Engine::new(&World { C: 8, depth: 2, ..World::default() });
    engine.submit(&[("a", R(16, 4))]);
    assert_eq!(engine.rounds(2), ["P a[0+8/16]", "P a[8+8/16]"]);
    engine.abort("a");
    engine.drain();
    assert_eq!(engine.outcome("a"), Some(&Outcome::Aborted));
    assert_eq!((engine.lives["a"].output(), engine.scheduler.request_token_size("a")), (0, -1));
    engine.settle();
}

/// A request ends while its results are out, or an engine takes its blocks and a result comes all the
/// same: it counts for nothing, by id while the request waits and by the old handle ever after.
#[test]
fn scenario_27_a_late_result_counts_once_in_order_or_not_at_all() {
    let ends = [false, true].map(|retracts| {
        (1..9).filter(|&rounds| end_amid_results(rounds, retracts)).collect::<Vec<u64>>()
    });
    assert_eq!(ends, [vec![1, 2, 3, 4, 5, 6, 7], vec![1, 2, 3, 4, 5, 6, 7]]);
}

/// Whether the request still lived after so many rounds and was retracted, or aborted.
fn end_amid_results(rounds: u64, retracts: bool) -> bool {
    let mut engine = Engine::new(&World { C: 8, depth: 2, ..World::default() });
    engine.submit(&[("a", R(13, 4)), ("b", R(6, 4))]);
    engine.round();
    let handle = engine.handle("a");
    engine.rounds(rounds as usize - 1);
    if engine.outcome("a").is_some() {
        return false;
    }
    let size = engine.scheduler.request_token_size("a");
    if retracts {
        let late = engine.retract("a");
        for tokens in &late {
            let event = Event::ExtendResult {
                request_id: "a".into(),
                tokens: tokens.as_slice().into(),
                spec_candidate_ids: Default::default(),
            };
            engine.advance(vec![event]).expect("it is late");
        }
        assert_eq!(engine.scheduler.request_token_size("a"), size);
        engine.round();
        let size = engine.scheduler.request_token_size("a");
        late.iter().for_each(|tokens| engine.land(handle, tokens).expect("the handle is stale"));
        assert_eq!(engine.scheduler.request_token_size("a"), size);
        engine.play();
        assert_eq!(engine.outcome("a"), Some(&Outcome::Finished));
        assert_eq!(engine.lives["a"].output(), 4);
    } else {
        engine.abort("a");
        assert_eq!(engine.scheduler.request_token_size("a"), -1);
        engine.play();
        assert_eq!(engine.outcome("a"), Some(&Outcome::Aborted));
    }
    assert_eq!(engine.outcome("b"), Some(&Outcome::Finished));
    assert_eq!(engine.lives["b"].output(), 4);
    true
}

/// An abort after every number of rounds, with results out and copies planned, issued and ended:
/// conserved, and one outcome, every time.
#[test]
fn scenario_28_an_abort_at_any_edge_leaves_nothing_behind() {
    for (ack_after, rounds) in [1, 3].into_iter().flat_map(|ack| (0..60).map(move |at| (ack, at))) {
        let groups = vec![full("f", 4), sliding("s", 4, 6)];
        let world = World { P: 16, H: 32, C: 8, depth: 2, groups, ..World::default() };
        let mut engine = Engine::new(&world);
        engine.ack_after = ack_after;
        engine.submit_all(vec![R(12, 16).undeclared(); 3]);
        engine.rounds(rounds);
        for id in ["b", "a"] {
            if engine.outcome(id).is_none() {
                engine.abort(id);
            }
        }
        engine.play();
        assert_eq!(engine.outcome("c"), Some(&Outcome::Finished));
    }
}
