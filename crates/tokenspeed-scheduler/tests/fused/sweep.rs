//! Scenarios at random: whatever the groups, the grammar, the depth and the pressure, the device finds
//! every row that a forward reads, and everyone gets an answer.

use tokenspeed_scheduler::PressurePolicy;

use crate::engine::Engine;
use crate::groups::{full, packed, sliding, state};
use crate::world::{R, World, mix};

#[test]
fn every_forward_reads_what_its_request_wrote() {
    sweep(0..400, 0, 0);
}

/// Nobody reads what was computed over a load that is known to have failed.
#[test]
fn no_forward_reads_what_a_failed_load_left() {
    sweep(400..800, 3, 0);
}

/// Nor what a forward should have computed that was withheld, or what was computed over that.
#[test]
fn no_forward_reads_what_a_withheld_one_left() {
    sweep(800..1200, 0, 7);
}

fn sweep(seeds: std::ops::Range<u64>, one_load_fails_of: u64, one_forward_withheld_of: u64) {
    let kinds = [
        vec![full("f", 4)],
        vec![packed(full("f", 2), 3), sliding("s", 4, 5)],
        vec![full("f", 4), state("m", 4)],
        vec![sliding("s", 2, 7), packed(state("m", 2), 2)],
        vec![packed(full("f", 4), 2), packed(sliding("s", 1, 3), 2), state("m", 4)],
    ];
    for seed in seeds {
        let draw = |what: u64, bound: u64| (mix(mix(7, seed), what) % bound) as i64;
        let width = 1 + draw(1, 3) * draw(2, 2);
        let world = World {
            P: 8 + draw(3, 24),
            H: draw(4, 2) * (4 + draw(5, 40)),
            C: 4 + width + draw(6, 20),
            depth: 1 + draw(7, 2),
            width,
            accepted: 1 + draw(8, width as u64),
            rows: 2 + draw(9, 6),
            mixed: draw(10, 2) == 1,
            unmatched: draw(11, 6) == 0,
            groups: kinds[draw(12, 5) as usize].clone(),
            policy: [PressurePolicy::Document, PressurePolicy::Goodput][seed as usize % 2],
            ..World::default()
        };
        let mut engine = Engine::new(&world);
        engine.ack_after = 1 + draw(13, 3) as u64;
        engine.device.one_load_fails_of = one_load_fails_of;
        engine.one_forward_withheld_of = one_forward_withheld_of;
        for at in 0..10 {
            let draw = |what: u64, bound: u64| draw(100 * at + what, bound);
            let (prompt, output) = (1 + draw(20, 30), 1 + draw(21, 24));
            let asked = R(prompt, output).sharing(draw(22, 3) as u64, draw(23, 24));
            let asked = if draw(24, 2) == 0 { asked } else { asked.undeclared() };
            let id = format!("r{at}");
            // What the pool could never run is refused, and then nobody waits for it.
            let taken = engine.try_submit(&[(&id, asked)]).is_ok();
            engine.rounds(draw(25, 4) as usize);
            if taken && draw(26, 6) == 0 && engine.outcome(&id).is_none() {
                engine.abort(&id);
            }
        }
        engine.play();
    }
}
