//! Random worlds on the core alone, over all roles, families and configurations. Every checker runs
//! after every call (debug assertions are on in the test profile), a [`judge`] holds each plan against
//! the rules of `scheduler.md` §5, two mirrored schedulers agree on every digest, every accepted
//! request ends, and in the end nothing is owned.
//!
//! `WORLD=seed` plays one, `WORLDS=count` so many a role.

mod engine;
mod judge;
mod play;
#[path = "../common/random.rs"]
mod random;
mod world;

use tokenspeed_scheduler::{PressurePolicy, Role};

use play::play;
use world::World;

const WORLDS: u64 = 7_000;

#[test]
fn fused_worlds_end_and_leave_nothing_owned() {
    worlds_end(Role::Fused, PressurePolicy::Document);
}

#[test]
fn prefill_worlds_end_and_leave_nothing_owned() {
    worlds_end(Role::P, PressurePolicy::Document);
}

#[test]
fn decode_worlds_end_and_leave_nothing_owned() {
    worlds_end(Role::D, PressurePolicy::Document);
}

#[test]
fn fused_worlds_end_where_the_batch_is_kept() {
    worlds_end(Role::Fused, PressurePolicy::Goodput);
}

#[test]
fn decode_worlds_end_where_the_batch_is_kept() {
    worlds_end(Role::D, PressurePolicy::Goodput);
}

fn worlds_end(role: Role, policy: PressurePolicy) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seeds = match number("WORLD") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WORLDS").unwrap_or(WORLDS),
    };
    for seed in seeds {
        let mut world = World::random(role, seed);
        world.config.pressure_policy = policy;
        if let Err(what) = std::panic::catch_unwind(|| play(&world))
            .unwrap_or_else(|_| Err("panicked".to_string()))
        {
            panic!("world {seed}: {what}\n{world:#?}");
        }
    }
}
