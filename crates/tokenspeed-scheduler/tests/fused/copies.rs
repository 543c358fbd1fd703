//! Scenarios 20 to 25, as far as the scheduler alone can show them: copies.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokenspeed_scheduler::Event;

use crate::engine::Engine;
use crate::groups::{full, sliding, state};
use crate::world::{R, World, mix};

/// Two requests that grow past the pool, with a Host that takes what is retracted; copies end rounds
/// after they were ordered.
fn snapshot_retract_reload(unfenced: bool) -> Engine {
    let world = World { P: 12, H: 32, depth: 2, ..World::default() };
    let mut engine = Engine::new(&world);
    engine.device.unfenced = unfenced;
    engine.ack_after = 3;
    engine.submit_all(vec![R(16, 24).undeclared(); 3]);
    engine.drain();
    engine
}

/// Writes lag: what is reloaded is what was retracted, and the test notices when the fence is gone.
#[test]
fn scenario_20_a_snapshot_is_read_before_its_blocks_are_granted_away() {
    let mut engine = snapshot_retract_reload(false);
    assert!(engine.all_finished());
    let loaded: usize = engine.lives.values().map(|life| life.hit).sum();
    assert!(loaded > 0, "something was retracted and reloaded");
    engine.settle();
    let torn = catch_unwind(AssertUnwindSafe(|| snapshot_retract_reload(true)));
    assert!(torn.is_err(), "a store that reads late reads what the next owner wrote");
}

/// A thousand probes and loads, aborted before, amid or after; what is pinned comes back each time.
#[test]
fn scenario_23_pins_return_to_zero() {
    let groups = vec![full("f", 4), sliding("s", 4, 6)];
    let world = World { P: 24, H: 48, C: 32, depth: 2, groups, ..World::default() };
    let mut engine = Engine::new(&world);
    for at in 0..1000u64 {
        let id = format!("r{at}");
        let prompt = 5 + mix(at, 1) % 24;
        let shared = mix(at, 2) % (prompt + 1);
        let asked = R(prompt as i64, 3).sharing(mix(at, 3) % 6, shared as i64);
        engine.ack_after = mix(at, 4) % 4;
        engine.submit(&[(&id, asked)]);
        if mix(at, 5).is_multiple_of(3) {
            engine.rounds((mix(at, 6) % 5) as usize);
            if engine.outcome(&id).is_none() {
                engine.abort(&id);
            }
        }
        if at % 50 == 49 {
            engine.drain();
            engine.scheduler.clear_l1_cache();
            engine.mirror.clear_l1_cache();
        }
    }
    engine.play();
    let loaded = engine.lives.values().filter(|life| life.hit > 0).count();
    assert!(loaded > 100, "{loaded} requests found something");
}

/// Sixty-four prompts cycle through a Device of 32 blocks: each reload brings its own bytes, in page
/// order (the device looks at each).
#[test]
fn scenario_24_every_reload_brings_the_bytes_of_its_key() {
    let mut engine = Engine::new(&World { B: 16, P: 32, H: 256, C: 256, ..World::default() });
    for cycle in 0..3 {
        for prompt in 0..64 {
            let id = format!("c{cycle}p{prompt}");
            engine.submit(&[(&id, R(56, 2).sharing(prompt, 56))]);
            engine.rounds(2);
        }
        engine.drain();
    }
    assert!(engine.all_finished());
    let third: Vec<usize> = (0..64).map(|at| engine.lives[&format!("c2p{at}")].hit).collect();
    assert_eq!(third, [48; 64], "all three pages came from a tier");
    engine.settle();
}

/// States in four blocks: two in use, two cached and pinned by a store. A newcomer that needs two
/// waits with nothing half allocated, and runs after the acknowledgement.
#[test]
fn scenario_25_a_newcomer_waits_for_pinned_blocks_and_takes_nothing_meanwhile() {
    let world = World { P: 4, H: 8, groups: vec![state("s", 4)], ..World::default() };
    let mut engine = Engine::new(&world);
    let gauges = |engine: &Engine| {
        (engine.scheduler.empty_lcm_blocks(), engine.scheduler.available_lcm_blocks())
    };
    engine.holds_copies = (true, false);
    engine.submit(&[("x", R(8, 1).undeclared()), ("y", R(8, 1).undeclared())]);
    engine.rounds(2);
    assert_eq!(gauges(&engine), (2, 2), "a snapshot each is cached and pinned");
    engine.submit(&[("r", R(8, 5).undeclared())]);
    assert_eq!(engine.rounds(2), ["P r[0+8/8]", "D r"]);
    engine.submit(&[("n", R(8, 1).undeclared())]);
    for _ in 0..2 {
        assert_eq!(engine.round(), "D r");
        assert_eq!(gauges(&engine), (0, 0));
    }
    engine.release_copies();
    assert_eq!(gauges(&engine), (0, 2));
    assert_eq!(engine.round(), "P n[0+8/8]");
    engine.holds_copies = (false, false);
    engine.play();
    assert!(engine.all_finished());
}

/// A failed load is never taken for success: nobody finds what it should have brought, on either tier, and
/// whoever holds it starts over without a snapshot (`cache.md` §8).
#[test]
fn a_load_that_failed_is_computed_again() {
    let mut engine = Engine::new(&World { H: 8, ..World::default() });
    engine.submit(&[("a", R(9, 1))]);
    engine.drain();
    assert!(engine.scheduler.clear_l1_cache() && engine.mirror.clear_l1_cache());
    engine.holds_copies = (false, true);
    let prompt = engine.tokens("a")[..9].to_vec();
    engine.submit(&[("b", R(9, 2).repeating(&prompt))]);
    assert_eq!(engine.round(), "P b[8+1/9]");
    let op_id = engine.plan.load_back.op_ids[0];
    engine.advance(vec![Event::LoadBackDone { op_id, success: false }]).expect("a load can fail");
    assert_eq!((engine.scheduler.waiting_size(), engine.scheduler.active_lcm_blocks()), (1, 0));
    assert_eq!(engine.scheduler.empty_lcm_blocks(), engine.scheduler.available_lcm_blocks());
    engine.release_copies(); // Late: the load is over.
    engine.retract("b");
    engine.holds_copies = (false, false);
    assert_eq!(engine.round(), "P b[0+9/9]");
    engine.play();
    assert!(engine.all_finished());
}
