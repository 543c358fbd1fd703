//! What a configuration may say, and how a bad one is refused: the field, the value and the rule by
//! name (`api.md`, `scheduler.md` §1.3).

use tokenspeed_scheduler::capacity::CapacityModel;
use tokenspeed_scheduler::config::{
    CacheGroupConfig, CacheGroupFamily, CacheRetention, CacheTransferPolicy, GroupKind, Role,
    SchedulerConfig,
};
use tokenspeed_scheduler::error::ErrorKind;

fn group() -> CacheGroupConfig {
    CacheGroupConfig {
        group_id: "a".into(),
        block_granularity: 4,
        total_pages: 9,
        ..Default::default()
    }
}

fn sliding(window: i64) -> CacheGroupConfig {
    CacheGroupConfig {
        group_id: "w".into(),
        retention: CacheRetention::SlidingWindow,
        sliding_window_tokens: Some(window),
        ..group()
    }
}

fn state() -> CacheGroupConfig {
    CacheGroupConfig { group_id: "s".into(), family: CacheGroupFamily::State, ..group() }
}

fn config() -> SchedulerConfig {
    SchedulerConfig {
        prefix_granularity: 8,
        num_device_pages: 9,
        max_scheduled_tokens: 64,
        max_batch_size: 4,
        cache_groups: vec![group()],
        ..Default::default()
    }
}

/// Asserts that the change is refused with exactly this text, by the scheduler and, if `early`, by
/// the capacity model too.
#[track_caller]
fn refused(
    early: bool,
    change: impl Fn(&mut SchedulerConfig),
    field: &str,
    value: &str,
    rule: &str,
) {
    let mut config = config();
    change(&mut config);
    let error = config.validate().expect_err("the scheduler accepts it");
    let text = format!("invalid configuration: `{field}` is {value}; it must {rule}");
    assert_eq!(error.to_string(), text);
    assert_eq!((error.code(), error.kind()), ("invalid_config", ErrorKind::Config));
    let model = CapacityModel::new(&config).map(|_| ());
    assert_eq!(model, if early { Err(error) } else { Ok(()) });
}

#[track_caller]
fn accepted(change: impl Fn(&mut SchedulerConfig)) {
    let mut config = config();
    change(&mut config);
    config.validate().expect("a valid configuration");
    CapacityModel::new(&config).expect("valid capacity inputs");
}

#[test]
fn defaults_are_those_of_the_published_surface() {
    let config = SchedulerConfig::default();
    assert_eq!(config.decode_input_tokens, 1);
    assert_eq!(config.role, Role::Fused);
    assert_eq!((config.prefix_granularity, config.max_batch_size), (0, 0));
    assert!(!config.disable_l2_cache && !config.disable_prefix_cache);
    let group = CacheGroupConfig::default();
    assert_eq!((group.cache_blocks_per_lcm_block, group.shard_count), (1, 1));
    assert_eq!(group.retention, CacheRetention::FullHistory);
    assert_eq!(group.family, CacheGroupFamily::History);
    assert_eq!(group.transfer_policy, CacheTransferPolicy::Unspecified);
    assert!(!group.replayable && group.sliding_window_tokens.is_none());
    assert!(config.validate().is_err() && group.validate().is_err(), "nothing is guessed");
}

#[test]
fn kinds_follow_from_retention_and_family() {
    assert_eq!(group().kind(), GroupKind::Full);
    assert_eq!(sliding(5).kind(), GroupKind::Sliding { window: 5 });
    assert_eq!(state().kind(), GroupKind::State);
    let ignored = CacheGroupConfig { sliding_window_tokens: Some(4), ..group() };
    assert_eq!(ignored.kind(), GroupKind::Full, "full history has no window");
    assert!(ignored.validate().is_ok());
    let windows = [GroupKind::Full, GroupKind::Sliding { window: 5 }, GroupKind::State];
    assert_eq!(windows.map(GroupKind::window_tokens), [None, Some(5), Some(2)]);
}

#[test]
fn numbers_below_their_least_are_refused() {
    let page = "be positive (the tokens of one prefix page)";
    refused(true, |c| c.prefix_granularity = 0, "prefix_granularity", "0", page);
    refused(true, |c| c.prefix_granularity = -8, "prefix_granularity", "-8", page);
    let budget = "be positive (the token budget of a round)";
    refused(true, |c| c.max_scheduled_tokens = 0, "max_scheduled_tokens", "0", budget);
    let width = "be positive (1 without speculation)";
    refused(true, |c| c.decode_input_tokens = 0, "decode_input_tokens", "0", width);
    let rows = "be at least 0 (the rows that requests run in)";
    refused(true, |c| c.max_batch_size = -1, "max_batch_size", "-1", rows);
    let rows = "be positive (the rows that requests run in)";
    refused(false, |c| c.max_batch_size = 0, "max_batch_size", "0", rows);
    let pages = "be at least 2 (the null page and usable ones)";
    refused(false, |c| c.num_device_pages = 1, "num_device_pages", "1", pages);
    let pages = "be at least 0 (0 without a host tier)";
    refused(false, |c| c.num_host_pages = -1, "num_host_pages", "-1", pages);
    let replay = "be at least 0 (0 recomputes nothing)";
    refused(false, |c| c.prefix_replay_tokens = -1, "prefix_replay_tokens", "-1", replay);
    let depth = "be 0 or 1 (rounds planned before a result lands)";
    refused(true, |c| c.overlap_schedule_depth = 2, "overlap_schedule_depth", "2", depth);
    refused(true, |c| c.overlap_schedule_depth = -1, "overlap_schedule_depth", "-1", depth);
    accepted(|c| c.overlap_schedule_depth = 1);
    accepted(|c| (c.num_device_pages, c.prefix_replay_tokens) = (2, 100));
}

#[test]
fn outsized_numbers_are_refused() {
    let rule = "be at most 2147483647 (the token budget of a round)";
    let outsized = 1_i64 << 31;
    refused(
        true,
        |c| c.max_scheduled_tokens = outsized,
        "max_scheduled_tokens",
        "2147483648",
        rule,
    );
    accepted(|c| c.max_scheduled_tokens = outsized - 1);
}

/// What is made at once stays within what a machine holds, or the process would end (`liveness.md` 4).
#[test]
fn sizes_that_no_machine_holds_are_refused() {
    let rows = |rows: i64| move |c: &mut SchedulerConfig| c.max_batch_size = rows;
    let rule = "be at most 65536 (the rows that requests run in)";
    refused(false, rows(65_537), "max_batch_size", "65537", rule);
    refused(false, rows(i64::from(i32::MAX)), "max_batch_size", "2147483647", rule);
    accepted(rows(65_536));

    let rule = |blocks: i64| {
        format!(
            "come to at most 67108864 blocks over all groups, `cache_blocks_per_lcm_block` each a \
             parent; here {blocks}"
        )
    };
    // The parents themselves count as blocks: with `k` blocks a parent a parent comes to `k` + 1.
    let device = |parents: i64, k: i64| {
        move |c: &mut SchedulerConfig| {
            c.num_device_pages = 1 + parents;
            c.cache_groups[0].cache_blocks_per_lcm_block = k;
        }
    };
    let field = "num_device_pages";
    refused(false, device((1 << 25) + 1, 1), field, "33554434", &rule((1 << 26) + 2));
    accepted(device(1 << 25, 1));
    refused(false, device(1 << 24, 4), field, "16777217", &rule(5 << 24));
    accepted(device(1 << 24, 3));
    let most = i64::from(i32::MAX);
    refused(false, device(most - 1, 1), field, "2147483647", &rule(2 * most - 2));
    refused(false, device(8, most), field, "9", &rule(8 * most + 8));
    let groups = |c: &mut SchedulerConfig| {
        c.cache_groups.push(sliding(4));
        c.num_device_pages = 1 + (1 << 25);
    };
    refused(false, groups, field, "33554433", &rule(3 << 25));

    let host = |disable_l2: bool| {
        move |c: &mut SchedulerConfig| {
            c.num_host_pages = 2 + (1 << 25);
            c.disable_l2_cache = disable_l2;
        }
    };
    refused(false, host(false), "num_host_pages", "33554434", &rule((1 << 26) + 2));
    accepted(host(true));
}

#[test]
fn a_cache_group_is_refused_by_name() {
    refused(true, |c| c.cache_groups.clear(), "cache_groups", "[]", "have at least one group");
    let empty = |c: &mut SchedulerConfig| c.cache_groups[0].group_id.clear();
    refused(true, empty, "cache_groups.group_id", "''", "not be empty");
    let twice = |c: &mut SchedulerConfig| c.cache_groups.push(group());
    refused(true, twice, "cache_groups.group_id", "'a'", "be unique");
    let one =
        |early: bool, change: fn(&mut CacheGroupConfig), name: &str, value: &str, rule: &str| {
            let change = |c: &mut SchedulerConfig| change(&mut c.cache_groups[0]);
            refused(early, change, &format!("cache_groups['a'].{name}"), value, rule);
        };
    let rule = "be positive (the tokens of one block)";
    one(true, |g| g.block_granularity = 0, "block_granularity", "0", rule);
    let rule = "divide `prefix_granularity` (8)";
    one(true, |g| g.block_granularity = 3, "block_granularity", "3", rule);
    one(true, |g| g.block_granularity = 16, "block_granularity", "16", rule);
    let rule = "be positive (the null block included)";
    one(false, |g| g.total_pages = 0, "total_pages", "0", rule);
    let rule = "be positive (the blocks of one LCM block)";
    let (k, shards) = ("cache_blocks_per_lcm_block", "shard_count");
    one(true, |g| g.cache_blocks_per_lcm_block = -1, k, "-1", rule);
    one(true, |g| g.shard_count = 0, shards, "0", "be positive (1 if the group is not sharded)");
    let rule = "divide `cache_blocks_per_lcm_block` (1)";
    one(true, |g| g.shard_count = 2, shards, "2", rule);
    let sharded = |k: i64, shards: i64| CacheGroupConfig {
        cache_blocks_per_lcm_block: k,
        shard_count: shards,
        ..group()
    };
    assert!(sharded(4, 2).validate().is_ok() && sharded(4, 3).validate().is_err());
}

#[test]
fn windows_are_positive_and_belong_to_history() {
    let put = |group: CacheGroupConfig| {
        move |c: &mut SchedulerConfig| c.cache_groups = vec![group.clone()]
    };
    let field = "cache_groups['w'].sliding_window_tokens";
    let rule = "be positive (the tokens a sliding group keeps)";
    refused(true, put(sliding(0)), field, "0", rule);
    refused(true, put(sliding(-1)), field, "-1", rule);
    let unset = CacheGroupConfig { sliding_window_tokens: None, ..sliding(1) };
    refused(true, put(unset), field, "None", "be given for a sliding group");
    accepted(put(sliding(1)));
    let rule = "be History for a sliding group: a State group keeps snapshots and rides FullHistory \
                retention";
    let snapshot = CacheGroupConfig { family: CacheGroupFamily::State, ..sliding(4) };
    refused(true, put(snapshot), "cache_groups['w'].family", "State", rule);
}

#[test]
fn a_state_group_needs_a_page_of_budget() {
    let rule = "cover one `prefix_granularity` (8) beside a State group";
    let put = |budget: i64| {
        move |c: &mut SchedulerConfig| {
            c.cache_groups.push(state());
            c.max_scheduled_tokens = budget;
        }
    };
    refused(true, put(7), "max_scheduled_tokens", "7", rule);
    accepted(put(8));
    accepted(|c| c.max_scheduled_tokens = 1);
}

#[test]
fn replay_needs_its_window_and_a_final_chunk() {
    let replayed = |window: i64| CacheGroupConfig { replayable: true, ..sliding(window) };
    let put = |window: i64, budget: i64| {
        move |c: &mut SchedulerConfig| {
            c.cache_groups.push(replayed(window));
            c.max_scheduled_tokens = budget;
        }
    };
    let rule = "be at least 11: the replayable groups' largest window (3) plus the larger of that \
                window and `prefix_granularity` (8)";
    refused(true, put(3, 10), "max_scheduled_tokens", "10", rule);
    accepted(put(3, 11));
    let rule = "be at least 20: the replayable groups' largest window (10) plus the larger of that \
                window and `prefix_granularity` (8)";
    refused(true, put(10, 19), "max_scheduled_tokens", "19", rule);
    accepted(put(10, 20));

    let rule = "be False unless the group is a sliding History group: what full history shares \
                cannot be regenerated from a window";
    let closed = |c: &mut SchedulerConfig| c.cache_groups[0].replayable = true;
    refused(true, closed, "cache_groups['a'].replayable", "True", rule);
    let rule = "be False beside a State group: a snapshot cannot be re-fed";
    let mixed = |c: &mut SchedulerConfig| c.cache_groups.extend([state(), replayed(3)]);
    refused(true, mixed, "cache_groups['w'].replayable", "True", rule);

    let mut windows = config();
    assert_eq!(windows.replay_window_tokens(), 0);
    windows.cache_groups.extend([sliding(30), replayed(3), replayed(10), replayed(7)]);
    assert_eq!(windows.replay_window_tokens(), 10, "the largest that is replayed");
}

#[test]
fn transfers_declare_their_policy() {
    use CacheTransferPolicy::{FullSuffix, LatestSnapshot, Unspecified};
    let put = |role: Role, group: CacheGroupConfig, policy: CacheTransferPolicy| {
        move |c: &mut SchedulerConfig| {
            c.role = role;
            c.cache_groups = vec![CacheGroupConfig { transfer_policy: policy, ..group.clone() }];
        }
    };
    for role in [Role::P, Role::D] {
        for (group, right, wrong) in [
            (group(), FullSuffix, LatestSnapshot),
            (sliding(4), FullSuffix, LatestSnapshot),
            (state(), LatestSnapshot, FullSuffix),
        ] {
            accepted(put(role, group.clone(), right));
            let field = format!("cache_groups['{}'].transfer_policy", group.group_id);
            let rule = format!("be {right:?} for this kind of group on role {role:?}");
            for policy in [Unspecified, wrong] {
                refused(
                    true,
                    put(role, group.clone(), policy),
                    &field,
                    &format!("{policy:?}"),
                    &rule,
                );
            }
        }
    }
    for policy in [Unspecified, FullSuffix, LatestSnapshot] {
        accepted(put(Role::Fused, group(), policy));
    }
}

#[test]
fn l3_needs_a_host_cache() {
    let rule = "be False without a host cache: enable L2 and give it at least 2 `num_host_pages`";
    let l3 = |host_pages: i64, disable_l2: bool| {
        move |c: &mut SchedulerConfig| {
            c.enable_l3_storage = true;
            c.num_host_pages = host_pages;
            c.disable_l2_cache = disable_l2;
        }
    };
    for (host_pages, disable_l2) in [(0, false), (1, false), (9, true)] {
        refused(false, l3(host_pages, disable_l2), "enable_l3_storage", "True", rule);
    }
    accepted(l3(2, false));
}

/// `liveness.md` 1: a decode step that never fits the round would never run.
#[test]
fn a_fused_round_covers_a_decode_step() {
    let narrow = |role: Role| {
        move |c: &mut SchedulerConfig| {
            c.role = role;
            c.cache_groups[0].transfer_policy = CacheTransferPolicy::FullSuffix;
            (c.max_scheduled_tokens, c.decode_input_tokens) = (3, 4);
        }
    };
    let rule = "cover one decode step (`decode_input_tokens`, 4)";
    refused(false, narrow(Role::Fused), "max_scheduled_tokens", "3", rule);
    accepted(narrow(Role::P));
    accepted(narrow(Role::D));
}

#[test]
fn usable_parents_leave_out_the_null_one() {
    let sizes = |device: i64, host: i64, disable_l2: bool| {
        let config = SchedulerConfig {
            num_device_pages: device,
            num_host_pages: host,
            disable_l2_cache: disable_l2,
            ..config()
        };
        (config.usable_device_parents(), config.usable_host_parents(), config.has_host_tier())
    };
    assert_eq!(sizes(9, 5, false), (8, 4, true));
    assert_eq!(sizes(9, 5, true), (8, 0, false));
    assert_eq!(sizes(0, 1, false), (0, 0, false));
    assert_eq!(sizes(9, 0, false), (8, 0, false));
}
