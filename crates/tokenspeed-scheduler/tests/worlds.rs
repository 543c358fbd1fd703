//! Random worlds on the core alone: every checker runs after every call (debug assertions are on in
//! the test profile), every accepted request ends, and in the end nothing is owned.

mod common;

use common::{World, play};

#[test]
fn random_worlds_end_and_leave_nothing_owned() {
    let one = std::env::var("WORLD").ok().and_then(|seed| seed.parse().ok());
    for seed in one.map_or(0..20_000, |seed| seed..seed + 1) {
        if let Err(what) = std::panic::catch_unwind(|| play(&World::random(seed)))
            .unwrap_or_else(|_| Err("panicked".to_string()))
        {
            panic!("world {seed}: {what}\n{:#?}", World::random(seed));
        }
    }
}
