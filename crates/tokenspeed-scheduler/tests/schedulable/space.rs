//! The configuration space: the small part of it whole, the large part at random.

use tokenspeed_scheduler::{
    CacheGroupConfig, CacheGroupFamily, CacheRetention, CacheTransferPolicy, Role, SchedulerConfig,
};

pub use crate::random::Random;

/// A group's kind and, in tokens, its window.
#[derive(Clone, Copy)]
enum Kind {
    Full,
    Sliding(i64),
    Replay(i64),
    State,
}

fn group(kind: Kind, g: i64, k: i64) -> CacheGroupConfig {
    let base = CacheGroupConfig {
        block_granularity: g,
        cache_blocks_per_lcm_block: k,
        total_pages: 1,
        transfer_policy: CacheTransferPolicy::FullSuffix,
        ..CacheGroupConfig::default()
    };
    match kind {
        Kind::Full => base,
        Kind::Sliding(window) | Kind::Replay(window) => CacheGroupConfig {
            retention: CacheRetention::SlidingWindow,
            sliding_window_tokens: Some(window),
            replayable: matches!(kind, Kind::Replay(_)),
            ..base
        },
        Kind::State => CacheGroupConfig {
            family: CacheGroupFamily::State,
            transfer_policy: CacheTransferPolicy::LatestSnapshot,
            ..base
        },
    }
}

fn config(role: Role, page: i64, parents: i64, groups: Vec<CacheGroupConfig>) -> SchedulerConfig {
    let name = |(at, group)| CacheGroupConfig { group_id: format!("g{at}"), ..group };
    let mut config = SchedulerConfig {
        role,
        prefix_granularity: page,
        num_device_pages: parents + 1,
        max_batch_size: 2,
        cache_groups: groups.into_iter().enumerate().map(name).collect(),
        ..SchedulerConfig::default()
    };
    for group in &mut config.cache_groups {
        group.total_pages = parents * group.cache_blocks_per_lcm_block + 1;
    }
    config
}

/// Every configuration of one or two groups over small numbers that a role can have; some are refused.
pub fn small(role: Role) -> impl Iterator<Item = SchedulerConfig> {
    let mut all = Vec::new();
    let kinds = [
        Kind::Full,
        Kind::Sliding(1),
        Kind::Sliding(2),
        Kind::Sliding(5),
        Kind::Replay(3),
        Kind::State,
    ];
    for page in [1, 2, 4] {
        let grains: Vec<i64> = [1, 2, 4].into_iter().filter(|g| page % g == 0).collect();
        let mut layouts: Vec<Vec<CacheGroupConfig>> = Vec::new();
        for kind in kinds {
            for &g in &grains {
                for k in [1, 2] {
                    layouts.push(vec![group(kind, g, k)]);
                    let others = kinds.iter().filter(|_| k == 1);
                    layouts.extend(
                        others.map(|&other| vec![group(kind, g, 1), group(other, page, 2)]),
                    );
                }
            }
        }
        for layout in layouts {
            for parents in [1, 2, 3, 5] {
                for (budget, width, depth) in
                    [(0, 1, 0), (0, 2, 1), (1, 1, 1), (1, 3, 0), (3, 1, 0), (20, 1, 1), (20, 3, 1)]
                {
                    let mut config = config(role, page, parents, layout.clone());
                    let window = config.replay_window_tokens();
                    let least = if window > 0 || config.has_state_group() { page } else { 1 };
                    config.max_scheduled_tokens = (window + window.max(least) + budget).max(width);
                    config.decode_input_tokens = width;
                    config.overlap_schedule_depth = depth;
                    config.disable_prefix_cache = budget == 1;
                    all.push(config);
                }
            }
        }
    }
    all.into_iter()
}

/// A configuration of up to four groups.
pub fn sampled(random: &mut Random) -> SchedulerConfig {
    let role = random.pick(&[Role::Fused, Role::P, Role::D]);
    let page = random.pick(&[2, 3, 4, 6, 8, 12, 16]);
    let parents = 2 + random.below(60) as i64;
    let replays = random.one_in(3);
    let grains: Vec<i64> = (1..=page).filter(|g| page % g == 0).collect();
    let groups = (0..1 + random.below(4))
        .map(|_| {
            let window = 1 + random.below(40) as i64;
            let kind = match random.below(4) {
                0 => Kind::Sliding(window),
                1 if replays => Kind::Replay(window),
                1 => Kind::State,
                _ => Kind::Full,
            };
            group(kind, random.pick(&grains), 1 + random.below(4) as i64)
        })
        .collect();
    let mut config = config(role, page, parents, groups);
    let window = config.replay_window_tokens();
    let width = 1 + random.below(6) as i64;
    config.max_scheduled_tokens = (window + window.max(page) + random.below(60) as i64).max(width);
    config.decode_input_tokens = width;
    config.overlap_schedule_depth = random.below(2) as i64;
    config.disable_prefix_cache = random.one_in(4);
    config.enable_mixed_prefill_decode = random.one_in(2);
    config.num_host_pages = random.pick(&[0, 0, 8, 100]);
    config
}
