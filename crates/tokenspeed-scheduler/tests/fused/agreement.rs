//! Scenario 31: ranks agree. Every other test makes each call on two schedulers of one process; here
//! they live in processes of their own, with address layouts and hash seeds of their own.

use std::process::{Child, Command, Stdio};

use crate::client::Life;
use crate::engine::Engine;
use crate::groups::{full, packed, sliding};
use crate::world::{R, World, mix};

/// Set for a process that is to be a rank.
const RANK: &str = "TOKENSPEED_TEST_RANK";

#[test]
fn scenario_31_schedulers_in_separate_processes_agree() {
    if std::env::var_os(RANK).is_some() {
        println!("digest {:016x}", digest());
        return;
    }
    let ranks: Vec<Child> = (0..2)
        .map(|rank| {
            Command::new(std::env::current_exe().expect("a test runs from a file"))
                .args(["--exact", "--nocapture"])
                .arg("agreement::scenario_31_schedulers_in_separate_processes_agree")
                .env(RANK, rank.to_string())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a test can run itself")
        })
        .collect();
    let mut digests: Vec<String> = ranks
        .into_iter()
        .map(|rank| {
            let output = rank.wait_with_output().expect("a rank ends");
            let text = String::from_utf8(output.stdout).expect("digests are text");
            let from = text.find("digest ").expect("a rank prints its digest");
            text[from..from + 23].to_string()
        })
        .collect();
    digests.dedup();
    assert_eq!(digests.len(), 1, "{digests:?}");
}

/// Of every plan of ten thousand mixed events over a tiny pool.
fn digest() -> u64 {
    let groups = vec![packed(full("f", 4), 2), sliding("s", 2, 5)];
    let world = World { P: 24, H: 24, C: 24, depth: 2, mixed: true, groups, ..World::default() };
    let mut engine = Engine::new(&world);
    let (mut digest, mut events) = (0, 0);
    for at in 0.. {
        if mix(at, 1).is_multiple_of(3) {
            let (prompt, output) = (1 + mix(at, 2) % 30, 1 + mix(at, 3) % 24);
            let asked = R(prompt as i64, output as i64).sharing(mix(at, 4) % 4, prompt as i64 / 2);
            let asked = if mix(at, 5).is_multiple_of(2) { asked } else { asked.undeclared() };
            engine.submit(&[(&format!("r{at}"), asked)]);
            events += 1;
        }
        engine.ack_after = 1 + mix(at, 6) % 3;
        engine.round();
        events += engine.plan.batch.request_ids.len() + engine.plan.write_back.op_ids.len();
        digest = engine.plan.digest(digest);
        let live = |(_, life): &(&String, &Life)| life.outcome.is_none();
        let first = engine.lives.iter().find(live).map(|(id, _)| id.clone());
        if let (Some(id), 0) = (first, mix(at, 7) % 16) {
            engine.abort(&id);
            events += 1;
        }
        if events > 10_000 {
            return digest;
        }
    }
    unreachable!("events keep coming")
}
