//! The capacity model against black-box observations, its own invariants and the cases of
//! `liveness.md` (`scheduler.md` §1.4).

#[path = "data/capacity_observed.rs"]
mod observed;

use observed::OBSERVED;
use proptest::prelude::*;
use tokenspeed_scheduler::capacity::{
    CapacityModel, overlap_tokens, prefix_match_lookback_blocks, protected_tokens,
    request_token_limit, snapshot_state_reserve_tokens,
};
use tokenspeed_scheduler::config::{
    CacheGroupConfig, CacheGroupFamily, CacheRetention, CacheTransferPolicy, GroupKind, Role,
    SchedulerConfig,
};
use tokenspeed_scheduler::error::Error;

/// A full group of `g` tokens a block and `k` blocks a parent.
fn full(g: i64, k: i64) -> CacheGroupConfig {
    CacheGroupConfig {
        block_granularity: g,
        cache_blocks_per_lcm_block: k,
        transfer_policy: CacheTransferPolicy::FullSuffix,
        ..Default::default()
    }
}

fn sliding(window: i64, g: i64, k: i64) -> CacheGroupConfig {
    CacheGroupConfig {
        retention: CacheRetention::SlidingWindow,
        sliding_window_tokens: Some(window),
        ..full(g, k)
    }
}

fn replay(window: i64, g: i64, k: i64) -> CacheGroupConfig {
    CacheGroupConfig { replayable: true, ..sliding(window, g, k) }
}

fn state(g: i64, k: i64) -> CacheGroupConfig {
    CacheGroupConfig {
        family: CacheGroupFamily::State,
        transfer_policy: CacheTransferPolicy::LatestSnapshot,
        ..full(g, k)
    }
}

/// One live request, P = 4 and a budget that takes any prompt whole; groups named by their index.
fn config(role: Role, groups: Vec<CacheGroupConfig>) -> SchedulerConfig {
    let named = groups.into_iter().enumerate();
    SchedulerConfig {
        prefix_granularity: 4,
        max_scheduled_tokens: 1 << 20,
        max_batch_size: 1,
        role,
        cache_groups: named
            .map(|(index, group)| CacheGroupConfig { group_id: index.to_string(), ..group })
            .collect(),
        ..Default::default()
    }
}

fn model(config: &SchedulerConfig) -> CapacityModel {
    CapacityModel::new(config).expect("a valid configuration")
}

fn single(config: &SchedulerConfig, token_limit: i64) -> Vec<i64> {
    model(config).single_request_group_pages(token_limit).expect("a limit in range")
}

#[test]
fn agrees_with_the_observations() {
    for (row, seen) in OBSERVED.iter().enumerate() {
        let config = SchedulerConfig {
            prefix_granularity: seen.page,
            max_scheduled_tokens: seen.budget,
            max_batch_size: seen.requests,
            decode_input_tokens: seen.width,
            overlap_schedule_depth: seen.depth,
            disable_prefix_cache: !seen.prefix_cache,
            ..config(seen.role, (seen.groups)())
        };
        let model = model(&config);
        assert_eq!(model.num_groups(), seen.single[0].len());
        // On D the observed figures forget that a recovery is computed here, as on a fused engine.
        let local = self::model(&SchedulerConfig { role: Role::Fused, ..config.clone() });
        let recovers = |limit| local.single_request_group_pages(limit).unwrap();
        let forgets = |seen: &[i64], limit| -> Vec<i64> {
            let recovers = recovers(limit).into_iter().zip(&config.cache_groups);
            let sliding = recovers.map(|(pages, group)| match group.kind() {
                GroupKind::Sliding { .. } => pages.min(blocks_of(&config, group, limit)),
                _ => 0,
            });
            let raised = sliding.zip(seen).map(|(pages, &seen)| pages.max(seen)).collect();
            if config.role == Role::D { raised } else { seen.to_vec() }
        };
        for (i, &limit) in seen.limits.iter().enumerate() {
            let single = model.single_request_group_pages(limit).unwrap();
            let concurrent = model.concurrent_group_pages(2 * limit, limit).unwrap();
            let expected = forgets(seen.single[i], limit);
            assert_eq!(single, expected, "row {row}, single, limit {limit}");
            let expected = match seen.requests {
                0 => seen.concurrent[i].to_vec(),
                _ => forgets(seen.concurrent[i], limit),
            };
            assert_eq!(concurrent, expected, "row {row}, concurrent, limit {limit}");
        }
        // On P the observed bound forgets the decode slot (`liveness.md`).
        let forgotten = if seen.role == Role::P { seen.width } else { 0 };
        for (parents, bound) in [3, 8, 40].into_iter().zip(seen.bounds) {
            let expected = (bound - forgotten).max(0);
            let ours = model.max_single_request_tokens(parents);
            let is_sliding =
                |group: &CacheGroupConfig| matches!(group.kind(), GroupKind::Sliding { .. });
            match config.role == Role::D && config.cache_groups.iter().any(is_sliding) {
                true => assert!(ours <= expected, "row {row}, {parents}: {ours}"),
                false => assert_eq!(ours, expected, "row {row}, {parents}"),
            }
        }
    }
}

/// Every token of a limit and the overlap behind it.
fn blocks_of(config: &SchedulerConfig, group: &CacheGroupConfig, limit: i64) -> i64 {
    let g = group.block_granularity;
    (limit + overlap_tokens(config) + g - 1) / g
}

/// On the decode role a request is recovered here: the chunks of that may need more of a window than its
/// landing, and what was accepted has to come back (`liveness.md` 1).
#[test]
fn the_decode_bound_counts_a_recovery() {
    let config = SchedulerConfig {
        prefix_granularity: 8,
        max_scheduled_tokens: 24,
        ..config(Role::D, vec![full(8, 1), sliding(4, 2, 1)])
    };
    assert_eq!(single(&config, 48)[1], 2 + 12, "24 tokens behind a lookback of 2");
    let landing = SchedulerConfig { max_scheduled_tokens: 1, ..config };
    assert_eq!(single(&landing, 48)[1], 2 + 3);
}

/// `liveness.md`, "the bound forgets a reserve": 32 is refused and 31 runs.
#[test]
fn the_prefill_bound_counts_the_decode_slot() {
    let config = config(Role::P, vec![full(4, 1)]);
    let model = model(&config);
    assert_eq!(model.max_single_request_tokens(8), 31);
    let verify = SchedulerConfig { decode_input_tokens: 4, ..config.clone() };
    assert_eq!(self::model(&verify).max_single_request_tokens(8), 28);
    // The budget is the peer's to run.
    assert_eq!(request_token_limit(31, 500, &config), 31);
}

/// `liveness.md`, "the role without retraction fills up": the hand-over's block is counted.
#[test]
fn the_prefill_bound_counts_the_hand_over_of_a_state() {
    let cached = config(Role::P, vec![state(4, 1)]);
    let plain = SchedulerConfig { disable_prefix_cache: true, ..cached.clone() };
    assert_eq!(snapshot_state_reserve_tokens(4, &plain), 1);
    assert_eq!(single(&plain, 5), [2], "an endpoint at 4 and the slot behind it");
    assert_eq!(single(&plain, 6), [2], "a checkpoint at 4, and its tail of 1 shares the slot's");
    assert_eq!(single(&plain, 8), [2]);
    assert_eq!(single(&cached, 5), [3], "and the checkpoint that the chunk starts from");
}

/// `liveness.md`, "an exempt request needs one block more": the last verify window counts.
#[test]
fn a_budget_includes_the_last_verify_window() {
    let narrow = config(Role::Fused, vec![full(4, 1)]);
    let verify = SchedulerConfig { decode_input_tokens: 4, ..narrow.clone() };
    for (max_new_tokens, narrow_limit, verify_limit) in
        [(0, 11, 14), (1, 11, 14), (2, 12, 14), (3, 13, 15), (8, 18, 20)]
    {
        assert_eq!(request_token_limit(10, max_new_tokens, &narrow), narrow_limit);
        assert_eq!(request_token_limit(10, max_new_tokens, &verify), verify_limit);
    }
    assert_eq!(request_token_limit(i64::MAX, i64::MAX, &verify), i64::MAX);
}

/// `scheduler.md` §1.4: with ordinary decode and equal grains, an unaligned finishing chunk can need
/// four state blocks: the retained input, the aligned checkpoint, the tail's and the growth block.
#[test]
fn an_unaligned_finish_needs_four_state_blocks() {
    let cached = config(Role::Fused, vec![state(4, 1)]);
    let plain = SchedulerConfig { disable_prefix_cache: true, ..cached.clone() };
    let chunked = SchedulerConfig { max_scheduled_tokens: 8, ..plain.clone() };
    let prompt = |tokens: i64| tokens + 1;
    assert_eq!(single(&cached, prompt(9)), [4]);
    assert_eq!(single(&plain, prompt(9)), [3], "whole, and nothing cached to start from");
    assert_eq!(single(&chunked, prompt(8)), [3], "still whole");
    assert_eq!(single(&chunked, prompt(9)), [4], "cut at a boundary, whose checkpoint is held");
    for role in [Role::P, Role::D] {
        let config = SchedulerConfig { role, ..chunked.clone() };
        let expected = if role == Role::P { 3 } else { 4 };
        assert_eq!(single(&config, prompt(9)), [expected], "a growth block on {role:?}?");
    }
}

/// A narrower state block: the materialised suffix is counted whole, not as two outputs.
#[test]
fn a_state_suffix_counts_every_block() {
    let plain = SchedulerConfig {
        prefix_granularity: 8,
        disable_prefix_cache: true,
        ..config(Role::Fused, vec![state(2, 1)])
    };
    // Boundary at 8, prompt of 15: the checkpoint, then 7 tail tokens and a growth block of 2.
    assert_eq!(single(&plain, 16), [1 + 5]);
    let verify = SchedulerConfig { decode_input_tokens: 6, ..plain.clone() };
    assert_eq!(snapshot_state_reserve_tokens(2, &verify), 6);
    assert_eq!(single(&verify, 15 + 6), [1 + 7]);
}

/// A sliding group's peak does not grow with the prompt beyond a chunk behind its lookback.
#[test]
fn a_window_recycles() {
    let config = SchedulerConfig {
        max_scheduled_tokens: 8,
        ..config(Role::Fused, vec![sliding(9, 4, 1), full(4, 1)])
    };
    assert_eq!(single(&config, 9), [3, 3], "8 tokens whole and the decode slot");
    assert_eq!(single(&config, 10), [4, 3], "a chunk of 8 behind a lookback of 2 blocks");
    assert_eq!(single(&config, 800), [5, 200], "a chunk of 8, the slot and the lookback");
    let landing = SchedulerConfig { role: Role::D, ..config };
    assert_eq!(single(&landing, 800), [2 + 3, 200]);
}

/// Chunks of 6 tokens start inside blocks of 4: at 18, a window of 5 reads and writes [14, 24 + 1).
#[test]
fn a_chunk_may_start_inside_a_block() {
    let group = || vec![sliding(5, 4, 1)];
    let budget = |budget: i64, groups| SchedulerConfig {
        max_scheduled_tokens: budget,
        ..config(Role::Fused, groups)
    };
    assert_eq!(single(&budget(8, group()), 800), [1 + 3], "aligned: 4 tokens back, 8 and a slot");
    assert_eq!(
        single(&budget(6, group()), 800),
        [4],
        "11 tokens, anywhere: 3 whole blocks and a bit"
    );
    assert_eq!(single(&budget(7, group()), 800), [4], "12 tokens, anywhere");
    // Replay keeps a final window whole, and so cuts the chunk before it anywhere.
    let verify = |groups| SchedulerConfig { decode_input_tokens: 4, ..budget(12, groups) };
    assert_eq!(single(&verify(group()), 800), [1 + 4], "20 tokens, aligned");
    assert_eq!(single(&verify(vec![replay(5, 4, 1)]), 800), [6], "20 tokens, anywhere");
}

/// Beside a state group a budget of 7 computes a page of 4, and then up to 7 at once.
#[test]
fn a_first_chunk_cut_at_a_page_leaves_a_longer_last_one() {
    let window = || sliding(1, 1, 1);
    let config = |groups| SchedulerConfig {
        max_scheduled_tokens: 7,
        decode_input_tokens: 4,
        ..config(Role::Fused, groups)
    };
    let stateful = config(vec![sliding(5, 1, 1), state(4, 1)]);
    let plain = config(vec![sliding(5, 1, 1), window()]);
    assert_eq!(single(&stateful, 11 + 4)[0], 4 + 7 + 4);
    assert_eq!(single(&plain, 11 + 4)[0], 4 + 4 + 4);
}

/// Scenario 9 (`scenarios.md`): two blocks for the window cannot hold a chunk of 64 tokens.
#[test]
fn a_window_without_room_for_a_chunk_bounds_the_request() {
    let config = SchedulerConfig {
        prefix_granularity: 16,
        max_scheduled_tokens: 64,
        ..config(Role::Fused, vec![full(16, 1), sliding(32, 16, 1)])
    };
    let model = model(&config);
    let needed = |limit| {
        let pages = model.single_request_group_pages(limit).unwrap();
        model.lcm_blocks_needed_for(&pages).unwrap()
    };
    assert!(needed(816) <= 51 + 7);
    assert!(model.max_single_request_tokens(4) < 64);
}

#[test]
fn what_admission_shares() {
    let depth = |role, depth, width| SchedulerConfig {
        overlap_schedule_depth: depth,
        decode_input_tokens: width,
        ..config(role, vec![full(4, 1)])
    };
    for (role, rounds, width, overlap, protected, state_reserve) in [
        (Role::Fused, 0, 1, 0, 1, 4),
        (Role::Fused, 1, 1, 1, 2, 4),
        (Role::D, 1, 6, 6, 12, 6),
        (Role::P, 1, 6, 0, 6, 6),
        (Role::P, 0, 1, 0, 1, 1),
    ] {
        let config = depth(role, rounds, width);
        assert_eq!(overlap_tokens(&config), overlap);
        assert_eq!(protected_tokens(&config), protected);
        assert_eq!(snapshot_state_reserve_tokens(4, &config), state_reserve);
    }
    assert_eq!(prefix_match_lookback_blocks(GroupKind::Full, 4), None);
    assert_eq!(prefix_match_lookback_blocks(GroupKind::State, 4), Some(1));
    assert_eq!(prefix_match_lookback_blocks(GroupKind::Sliding { window: 1 }, 4), Some(0));
    assert_eq!(prefix_match_lookback_blocks(GroupKind::Sliding { window: 5 }, 4), Some(1));
    assert_eq!(prefix_match_lookback_blocks(GroupKind::Sliding { window: 6 }, 4), Some(2));
}

#[test]
fn queries_out_of_range_are_refused_by_name() {
    let model = model(&config(Role::Fused, vec![full(4, 2), state(4, 1)]));
    let text = |result: Result<Vec<i64>, Error>| result.unwrap_err().to_string();
    assert_eq!(
        text(model.single_request_group_pages(-1)),
        "invalid argument: `token_limit` is -1; it must be at least 0"
    );
    assert!(text(model.concurrent_group_pages(-1, 0)).contains("`max_total_tokens` is -1"));
    assert!(text(model.concurrent_group_pages(0, -1)).contains("`max_context_len` is -1"));
    assert!(text(model.single_request_group_pages(i64::MAX)).contains("at most 2^48"));
    assert_eq!(model.lcm_blocks_needed_for(&[3, 4]), Ok(2 + 4));
    let unequal = model.lcm_blocks_needed_for(&[3]).unwrap_err();
    assert!(unequal.to_string().contains("one entry for each of the 2 cache groups"));
    assert_eq!(model.lcm_blocks_needed_for(&[3, -1]).unwrap_err().code(), "invalid_argument");
    assert_eq!(model.max_single_request_tokens(-1), 0);
    assert_eq!(model.max_single_request_tokens(0), 0);
    let huge = i64::from(i32::MAX);
    assert_eq!(model.max_single_request_tokens(i64::MAX), huge);
    assert_eq!(model.lcm_blocks_needed_for(&[i64::MAX, i64::MAX]), Ok(i64::MAX));
}

/// Any valid configuration of up to four groups for one live request.
fn any_config() -> impl Strategy<Value = SchedulerConfig> {
    let page = prop::sample::select(vec![1, 2, 3, 4, 6, 8, 12, 16, 24]);
    let group = (0..4, 0usize..8, 1i64..5, 1i64..50);
    let role = prop::sample::select(vec![Role::P, Role::D, Role::Fused]);
    let groups = prop::collection::vec(group, 1..5);
    let rest = (any::<bool>(), any::<bool>(), 1i64..10, 0i64..2, 0i64..60);
    (page, role, groups, rest).prop_map(|(page, role, groups, rest)| {
        let (replayed, disable_prefix_cache, width, depth, spare) = rest;
        let divisors: Vec<i64> = (1..=page).filter(|d| page % d == 0).collect();
        let shape = |&(kind, divisor, k, window): &(i32, usize, i64, i64)| {
            let g = divisors[divisor % divisors.len()];
            match (kind, replayed) {
                (0, _) => full(g, k),
                (1, false) => state(g, k),
                (2, true) => replay(window, g, k),
                _ => sliding(window, g, k),
            }
        };
        let mut config = config(role, groups.iter().map(shape).collect());
        let window = config.replay_window_tokens();
        config.prefix_granularity = page;
        config.max_scheduled_tokens = window + window.max(page) + spare;
        config.decode_input_tokens = width;
        config.overlap_schedule_depth = depth;
        config.disable_prefix_cache = disable_prefix_cache;
        config
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// What ties the two answers: a pool sized for the concurrency admits what the bound accepts.
    #[test]
    fn one_of_many_is_never_below_one_alone(config in any_config(), limit in 0i64..600) {
        let model = model(&config);
        let one = model.single_request_group_pages(limit).unwrap();
        let many = model.concurrent_group_pages(limit, limit).unwrap();
        for (one, many) in one.iter().zip(&many) {
            prop_assert!(many >= one, "{many} < {one} for {limit}");
        }
    }

    /// Binary search needs this, and so does anybody who raises a limit.
    #[test]
    fn a_larger_limit_never_needs_less(config in any_config(), limit in 0i64..600) {
        let model = model(&config);
        let before = model.single_request_group_pages(limit).unwrap();
        let after = model.single_request_group_pages(limit + 1).unwrap();
        for (before, after) in before.iter().zip(&after) {
            prop_assert!(before <= after, "{before} > {after} after {limit}");
        }
    }

    /// The bound fits and one token more does not; on P a decode slot is held behind it.
    #[test]
    fn the_bound_is_the_largest_that_fits(config in any_config(), parents in 0i64..200) {
        let model = model(&config);
        let needed = |limit| {
            let pages = model.single_request_group_pages(limit).unwrap();
            model.lcm_blocks_needed_for(&pages).unwrap()
        };
        let behind = if config.role == Role::P { config.decode_input_tokens } else { 0 };
        let bound = model.max_single_request_tokens(parents);
        prop_assert!(bound == 0 || needed(bound + behind) <= parents);
        let unbounded = bound + behind == i64::from(i32::MAX);
        prop_assert!(unbounded || needed(bound + behind + 1) > parents);
    }

    /// A pool sized for one request of a limit bounds requests at that limit or above.
    #[test]
    fn a_sized_pool_accepts_what_it_was_sized_for(config in any_config(), limit in 1i64..600) {
        let model = model(&config);
        let pages = model.concurrent_group_pages(limit, limit).unwrap();
        let parents = model.lcm_blocks_needed_for(&pages).unwrap();
        let behind = if config.role == Role::P { config.decode_input_tokens } else { 0 };
        prop_assert!(model.max_single_request_tokens(parents) >= limit - behind);
    }

    /// Live requests only add.
    #[test]
    fn more_requests_never_need_less(config in any_config(), limit in 0i64..600, more in 0i64..50) {
        let few = model(&config).concurrent_group_pages(limit, limit).unwrap();
        let larger = SchedulerConfig { max_batch_size: 1 + more, ..config };
        let many = model(&larger).concurrent_group_pages(limit, limit).unwrap();
        prop_assert!(few.iter().zip(&many).all(|(few, many)| few <= many));
    }
}
