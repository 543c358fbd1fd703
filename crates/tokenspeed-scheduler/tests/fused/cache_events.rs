//! Scenario 33: cache events. That a consumer holds exactly what prompts would hit, and each page's
//! parent with it, is asked after every round of every world here (`Engine::tell`), and of the cache
//! alone against a slow model (`properties.rs`).

use tokenspeed_scheduler::KvEvent;

use crate::engine::Engine;
use crate::groups::{full, sliding, state};
use crate::world::{R, World};

/// How many pages a drain removes and stores.
fn counts(events: &[KvEvent]) -> (usize, usize) {
    let stored = events.iter().filter(|e| matches!(e, KvEvent::BlockStored { .. })).count();
    (events.len() - stored, stored)
}

/// Pages 0 to 3 are stored, 3 is evicted, a request extends to 0 to 5 behind a hit on 0 to 2.
#[test]
fn scenario_33_a_consumer_holds_exactly_what_is_resident() {
    let mut engine = Engine::new(&World { P: 7, ..World::default() });
    engine.submit(&[("a", R(16, 1).sharing(1, 16))]);
    engine.drain();
    engine.tell();
    let first = engine.consumer.prompts();
    assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [4, 8, 12, 16]);
    engine.submit(&[("b", R(13, 1).sharing(2, 13))]);
    engine.drain();
    engine.tell();
    let gone: Vec<_> = first.difference(&engine.consumer.prompts()).cloned().collect();
    assert_eq!(gone.iter().map(Vec::len).collect::<Vec<_>>(), [16], "the last page went first");
    engine.submit(&[("c", R(24, 1).sharing(1, 24))]);
    engine.drain();
    engine.tell();
    assert_eq!(engine.lives["c"].hit, 12);
    let held: Vec<usize> = engine.consumer.prompts().iter().map(Vec::len).collect();
    assert_eq!(held, [4, 8, 12, 16, 20, 24]);
    assert!(engine.consumer.prompts().is_superset(&first));
    engine.settle();
}

/// Beside a group that holds no more than what is behind a boundary, the whole prompt up to there is
/// resident; when the boundary goes, so does all of it, though the full group still holds its pages.
#[test]
fn a_prompt_is_resident_up_to_where_every_group_resumes() {
    for other in [sliding("w", 4, 5), state("s", 4)] {
        let groups = vec![full("f", 4), other];
        let mut engine = Engine::new(&World { P: 16, groups, ..World::default() });
        engine.submit(&[("a", R(13, 1).sharing(1, 13))]);
        engine.drain();
        engine.tell();
        let held: Vec<usize> = engine.consumer.prompts().iter().map(Vec::len).collect();
        assert_eq!(held, [4, 8, 12]);
        engine.submit(&[("b", R(13, 1).sharing(1, 13))]);
        engine.drain();
        assert_eq!(engine.lives["b"].hit, 12);
        engine.settle();
    }
}

/// What comes and goes between two drains is not told, and keeps nothing.
#[test]
fn an_undrained_scheduler_keeps_no_more_than_what_is_cached() {
    let mut engine = Engine::new(&World { P: 8, ..World::default() });
    for turn in 0..20 {
        let id = format!("r{turn}");
        let spec = R(20, 1).spec(&id);
        engine.scheduler.submit_requests(vec![spec]).expect("the pool can run it");
        while engine.scheduler.request_token_size(&id) >= 0 {
            let plan = engine.scheduler.next_execution_plan().expect("a plan can always be made");
            for &handle in &plan.batch.handles {
                engine.scheduler.advance_results(&[handle], &[1], &[0, 1]).expect("it is owed");
            }
        }
    }
    let events = engine.scheduler.drain_kv_events().expect("the checkers find nothing");
    let cached = 8 - engine.scheduler.empty_lcm_blocks();
    let (removed, stored) = counts(&events);
    assert_eq!(removed, 0);
    assert!(0 < stored && stored <= cached, "{stored} pages of {cached} cached blocks");
}
