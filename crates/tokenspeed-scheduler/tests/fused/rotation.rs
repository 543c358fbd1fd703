//! The end of a backlog, and who gives way beside a Host tier, where an engine keeps its batch
//! (`docs/goodput.md`).

use tokenspeed_scheduler::PressurePolicy;

use crate::client::Outcome;
use crate::engine::Engine;
use crate::world::{R, World};

fn engine(hosts: i64) -> Engine {
    let policy = PressurePolicy::Goodput;
    Engine::new(&World { P: 200, H: hosts, rows: 2, mixed: true, policy, ..World::default() })
}

/// Rounds until all are done, and how often each was retracted.
fn played(engine: &mut Engine) -> (u64, Vec<usize>) {
    engine.play();
    assert!(engine.all_finished());
    (engine.round, engine.lives.values().map(|life| life.retracted_at.len()).collect())
}

/// Three requests of a hundred rounds, two rows: 150 rounds, if nobody ends alone. One by one it takes 200.
#[test]
fn who_would_end_last_takes_a_place_where_an_interruption_costs_copies() {
    let mut with_host = engine(200);
    with_host.submit_all(vec![R(4, 100); 3]);
    let (rounds, retractions) = played(&mut with_host);
    assert!((150..180).contains(&rounds), "{rounds}");
    assert_eq!(retractions.iter().sum::<usize>(), 1, "{retractions:?}");

    // The Host cannot take what the Device holds, or there is none: nobody is interrupted.
    for hosts in [0, 199] {
        let mut without = engine(hosts);
        without.submit_all(vec![R(4, 100); 3]);
        let (rounds, retractions) = played(&mut without);
        assert!((200..205).contains(&rounds) && retractions == [0; 3], "{rounds}, {retractions:?}");
    }
}

/// How much is to come is not known then, nor who will be last.
#[test]
fn nobody_is_interrupted_while_requests_come() {
    let mut engine = engine(200);
    engine.submit_all(vec![R(4, 100); 3]);
    for at in 0..20 {
        engine.rounds(10);
        engine.submit(&[(&format!("z{at}"), R(4, 1))]);
    }
    let (_, retractions) = played(&mut engine);
    assert!(retractions.iter().all(|&count| count == 0), "{retractions:?}");
}

/// A row is free long before the other: of a short and a long request that wait, the long one takes it,
/// though it is the younger.
#[test]
fn who_would_end_last_is_admitted_first() {
    for hosts in [0, 200] {
        let mut engine = engine(hosts);
        let asked = [("a", R(4, 60)), ("b", R(4, 80)), ("c", R(4, 2)), ("d", R(4, 24))];
        engine.submit(&asked);
        let rounds = engine.rounds(61);
        assert_eq!(rounds[59], "D a b");
        assert_eq!(rounds[60], "P d[0+4/4]; D b");
        let (_, retractions) = played(&mut engine);
        assert_eq!(retractions, [0; 4]);
    }
}

/// Room for two and their next steps: the third is urgent before any of them ends, and comes in beside them.
/// Did it leave them those steps, all would take 25 rounds more.
#[test]
fn who_would_end_last_leaves_nothing_aside_for_steps() {
    let policy = PressurePolicy::Goodput;
    let mut engine = Engine::new(&World { P: 40, mixed: true, policy, ..World::default() });
    engine.submit_all(vec![R(32, 60); 5]);
    let (rounds, _) = played(&mut engine);
    assert!((170..190).contains(&rounds), "{rounds}");
}

/// Of two younger residents one stands at a page's end, and the other two tokens behind one. Where pages
/// come back from the Host the first gives way, since it loses nothing; elsewhere the youngest.
#[test]
fn who_loses_least_gives_way() {
    for (hosts, victim) in [(0, "c"), (32, "b")] {
        let policy = PressurePolicy::Goodput;
        let mut engine =
            Engine::new(&World { P: 12, H: hosts, mixed: true, policy, ..World::default() });
        engine.submit(&[
            ("a", R(12, 30).undeclared()),
            ("b", R(5, 20).undeclared()),
            ("c", R(7, 20).undeclared()),
        ]);
        while engine.plan.retracted.is_empty() {
            engine.round();
        }
        let retracted: Vec<&String> = engine
            .lives
            .iter()
            .filter(|(_, life)| !life.retracted_at.is_empty())
            .map(|(id, _)| id)
            .collect();
        assert_eq!(retracted, [victim]);
        engine.play();
        assert!(engine.all_finished());
    }
}

/// Twenty requests in room for two, all of them cheap to interrupt: those who gave way twice come back to stay.
#[test]
fn nobody_gives_way_more_than_three_times() {
    for mixed in [true, false] {
        let policy = PressurePolicy::Goodput;
        let world = World { P: 60, H: 240, rows: 64, mixed, policy, ..World::default() };
        let mut engine = Engine::new(&world);
        engine.submit_all(vec![R(8, 100).undeclared(); 20]);
        let (_, retractions) = played(&mut engine);
        assert!(retractions.iter().all(|&count| count <= 3), "{retractions:?}");
    }
}

/// The last one comes back beside an older one that then needs its blocks. Who gave way three times stays where
/// nobody can move, and the oldest gives way.
#[test]
fn who_gave_way_three_times_stays_in_a_standstill() {
    let policy = PressurePolicy::Goodput;
    let world = World { P: 20, H: 80, rows: 4, width: 4, accepted: 1, policy, ..World::default() };
    let mut engine = Engine::new(&world);
    let asked = [(4, 50), (7, 40), (2, 68), (7, 29), (8, 20), (8, 20), (8, 62)];
    engine.submit_all(asked.map(|(prompt, output)| R(prompt, output)).to_vec());
    let (_, retractions) = played(&mut engine);
    assert!(retractions.iter().all(|&count| count <= 3), "{retractions:?}");
}

/// Two that gave way three times and need more than the pool together: one comes back when the other has ended, and
/// neither gives way again. One of them was three tokens before its end when it did.
#[test]
fn who_gave_way_three_times_comes_back_beside_no_other_such() {
    let policy = PressurePolicy::Goodput;
    let world = World { B: 8, P: 33, rows: 4, mixed: true, policy, ..World::default() };
    let mut engine = Engine::new(&world);
    let asked = [(24, 188), (15, 2), (11, 244), (17, 245), (16, 116)];
    engine.submit_all(asked.map(|(prompt, output)| R(prompt, output)).to_vec());
    let (_, retractions) = played(&mut engine);
    assert_eq!(retractions.iter().max(), Some(&3), "{retractions:?}");
}

/// Those who gave way three times, and of them who decodes.
fn spared(engine: &Engine) -> (Vec<String>, Vec<String>) {
    let live = engine.lives.iter().filter(|(id, _)| engine.outcome(id).is_none());
    let spared = live.filter(|(_, life)| life.retracted_at.len() == 3).map(|(id, _)| id.clone());
    let spared: Vec<String> = spared.collect();
    let decodes = engine.decodes();
    let running = spared.iter().filter(|id| decodes.contains(id)).cloned().collect();
    (spared, running)
}

/// Both fit to their ends: nothing is short, and neither waits for the other.
#[test]
fn two_that_gave_way_three_times_run_together_where_they_fit() {
    let policy = PressurePolicy::Goodput;
    let world = World { P: 30, C: 512, rows: 4, mixed: true, policy, ..World::default() };
    let mut engine = Engine::new(&world);
    let asked = [(7, 108), (8, 11), (8, 50), (1, 9), (2, 95), (3, 57), (2, 44)];
    engine.submit_all(asked.map(|(prompt, output)| R(prompt, output)).to_vec());
    while spared(&engine).1.len() < 2 {
        assert!(engine.round < 1_000, "one waits for the other");
        engine.round();
    }
    let (_, retractions) = played(&mut engine);
    assert_eq!(retractions.iter().max(), Some(&3), "{retractions:?}");
}

/// They do not fit, and the one that runs gets no results any more: the other comes back all the same, and
/// newcomers are served until then.
#[test]
fn who_gave_way_three_times_does_not_wait_for_a_result_that_never_comes() {
    let policy = PressurePolicy::Goodput;
    let world = World { B: 8, P: 33, rows: 64, mixed: true, policy, ..World::default() };
    let mut engine = Engine::new(&world);
    let asked = [(24, 188), (15, 2), (11, 244), (17, 245), (16, 116)];
    engine.submit_all(asked.map(|(prompt, output)| R(prompt, output)).to_vec());
    let (waits, runs) = loop {
        engine.round();
        let (spared, running) = spared(&engine);
        if let ([a, b], [runs]) = (spared.as_slice(), running.as_slice()) {
            break (if a == runs { b.clone() } else { a.clone() }, runs.clone());
        }
    };
    engine.abort("c"); // Of the pool's 33 blocks d needs 32 to its end, and e holds some.
    assert_eq!((waits.as_str(), runs.as_str()), ("d", "e"));
    engine.lost.insert(runs);
    // More than may pass one that lacks room.
    let newcomers = |at: usize| (0..10).map(move |of| format!("z{at}.{of}"));
    let came_back = (0..100).position(|at| {
        newcomers(at).for_each(|id| engine.submit(&[(&id, R(1, 1))]));
        engine.round().contains(&waits)
    });
    assert_eq!(came_back, Some(63));
    let is_served = |id: String| engine.outcome(&id) == Some(&Outcome::Finished);
    assert!((0..62).flat_map(newcomers).all(is_served));
}
