//! Scenarios 26 to 28: aborts and late results. An engine never schedules a request that has ended,
//! nor takes a second end; [`Engine::play`] finds every block back.

use crate::client::Outcome;
use crate::engine::Engine;
use crate::world::{R, World, full, sliding};

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

/// A request's blocks are taken, or it ends, while its results are out.
#[test]
fn scenario_27_a_late_result_counts_once_in_order_or_not_at_all() {
    for rounds in 1..9 {
        for retracts in [true, false] {
            let mut engine = Engine::new(&World { C: 8, depth: 2, ..World::default() });
            engine.submit(&[("a", R(13, 4)), ("b", R(6, 4))]);
            engine.rounds(rounds);
            if engine.outcome("a").is_some() {
                continue;
            }
            if retracts {
                engine.retract("a");
            } else {
                engine.abort("a");
            }
            let landed = engine.scheduler.request_token_size("a");
            engine.play();
            match engine.outcome("a") {
                Some(Outcome::Finished) => {
                    assert!(landed >= 13 && engine.lives["a"].output() >= 4);
                }
                ended => assert_eq!((ended, landed), (Some(&Outcome::Aborted), -1)),
            }
            assert_eq!(engine.outcome("b"), Some(&Outcome::Finished));
        }
    }
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
