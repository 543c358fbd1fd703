//! The core's cache against a slow model of `cache.md`, under random operations.
//!
//! The worlds are the same in every run; `PROPTEST_CASES=100000` plays as many fresh ones.

mod model;
mod play;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use play::Play;
use play::ops::{Mix, ops, worlds};

fn config() -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 2048;
        config.rng_seed = RngSeed::Fixed(1);
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn cache_does_as_the_model_does(world in worlds(1..=3, 0..=8), ops in ops(48, Mix::ENGINE)) {
        Play::run(&world, &ops);
    }

    #[test]
    fn host_tier_does_as_the_model_does(world in worlds(2..=4, 1..=6), ops in ops(64, Mix::COPIES)) {
        Play::run(&world, &ops);
    }
}
