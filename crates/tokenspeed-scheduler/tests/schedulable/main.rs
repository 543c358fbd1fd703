//! Accepted implies schedulable (`liveness.md` 1 and 4; `scheduler.md` §1.4): on every role, under every policy, whoever is
//! accepted runs to its end alone on an idle pool, be it empty or full of what is cached, and comes
//! back after a retraction; and one token more than the bound is refused by name. Small configurations are
//! enumerated, large ones sampled.

mod alone;
#[path = "../common/random.rs"]
mod random;
mod space;

use tokenspeed_scheduler::capacity::request_token_limit;
use tokenspeed_scheduler::{Error, PressurePolicy, Role, Scheduler, SchedulerConfig};

use alone::{Alone, spec};
use space::{Random, sampled, small};

/// The largest bound on a request, in tokens, up to which small configurations are enumerated; the variable
/// `BOUND` sets another.
const BOUND: i64 = 7;

#[test]
fn small_fused_configurations() {
    small_configurations(Role::Fused);
}

#[test]
fn small_prefill_configurations() {
    small_configurations(Role::P);
}

#[test]
fn small_decode_configurations() {
    small_configurations(Role::D);
}

#[test]
fn large_configurations() {
    for seed in 0..1_500 {
        let random = &mut Random::new(seed);
        let config = sampled(random);
        let Ok(scheduler) = Scheduler::new(config.clone()) else { continue };
        let bound = scheduler.max_single_request_tokens();
        if (1..400).contains(&bound) {
            let near = 1 + random.below(bound.min(8) as u64) as i64;
            let prompts = [bound, bound - near, 1 + random.below(bound as u64) as i64];
            check(&config, bound, &prompts);
        }
    }
}

fn small_configurations(role: Role) {
    let longest = std::env::var("BOUND").ok().and_then(|text| text.parse().ok()).unwrap_or(BOUND);
    let mut accepted = 0;
    for config in small(role) {
        let Ok(scheduler) = Scheduler::new(config.clone()) else { continue };
        let bound = scheduler.max_single_request_tokens();
        if bound <= longest {
            let prompts: Vec<i64> = (1..=bound).collect();
            accepted += check(&config, bound, &prompts);
        }
    }
    assert!(accepted > 5_000, "{accepted} requests are no enumeration");
}

/// Runs what is accepted of these prompts, with every kind of budget; how many requests that were.
fn check(config: &SchedulerConfig, bound: i64, prompts: &[i64]) -> usize {
    let mut accepted = 0;
    for &prompt in prompts.iter().filter(|&&prompt| prompt > 0) {
        let room = bound - request_token_limit(prompt, 1, config);
        let budgets = match config.role {
            Role::P => vec![0],
            // Undeclared, the least and the most.
            Role::D | Role::Fused if room >= 0 => vec![0, 1, 1 + room],
            Role::D | Role::Fused => vec![],
        };
        for budget in budgets {
            let needed = request_token_limit(prompt, budget, config);
            match needed <= bound {
                true => {
                    accepted += 1;
                    for pressure_policy in policies(config.role) {
                        let config = &SchedulerConfig { pressure_policy, ..config.clone() };
                        Alone::new(config, prompt, budget)
                            .and_then(|mut alone| alone.run())
                            .unwrap_or_else(|what| {
                                panic!("prompt {prompt}, budget {budget}, bound {bound}: {what}\n{config:#?}")
                            });
                    }
                }
                false => refused(config, prompt, budget, bound),
            }
        }
    }
    refused(config, bound + 1, 0, bound);
    if config.role.decodes() && bound > 1 {
        let beyond = bound + 1 - (request_token_limit(1, 2, config) - 2);
        refused(config, 1, beyond.max(config.decode_input_tokens + 1), bound);
    }
    accepted
}

/// A prefill worker retracts nobody, whatever the policy.
fn policies(role: Role) -> Vec<PressurePolicy> {
    match role {
        Role::P => vec![PressurePolicy::Document],
        Role::D | Role::Fused => vec![PressurePolicy::Document, PressurePolicy::Goodput],
    }
}

/// By name, and with the bound that it breaks; nothing has changed.
fn refused(config: &SchedulerConfig, prompt: i64, budget: i64, bound: i64) {
    if request_token_limit(prompt, budget, config) <= bound {
        return;
    }
    let mut scheduler = Scheduler::new(config.clone()).expect("it was built before");
    let before = format!("{scheduler:?}");
    let error = scheduler.submit_requests(vec![spec("long", prompt, budget)]).unwrap_err();
    let Error::RequestTooLarge { request_id, limit_tokens, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((request_id.as_str(), *limit_tokens), ("long", bound), "{config:#?}");
    assert_eq!(format!("{scheduler:?}"), before);
}
