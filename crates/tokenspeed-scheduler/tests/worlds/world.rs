//! What surrounds a scheduler: a configuration, requests, and an engine, clients and peers that are
//! late, lose things and sometimes give up. One role and seed is one world.

use tokenspeed_scheduler::{
    CacheGroupConfig, CacheGroupFamily, CacheRetention, CacheTransferPolicy, RequestSpec, Role,
    SchedulerConfig,
};

pub use crate::random::Random;

/// Lags are rounds; a loss of n is one in n, 0 none.
#[derive(Debug, Clone)]
pub struct World {
    pub seed: u64,
    pub config: SchedulerConfig,
    pub requests: Vec<Asked>,
    pub ack_lag: u64,
    pub peer_lag: u64,
    /// Results and acknowledgements that do not come until nothing else can.
    pub loss: u64,
    /// Peers that fail, at any point.
    pub peer_loss: u64,
    /// Fetches from storage that find nothing.
    pub storage_loss: u64,
}

#[derive(Debug, Clone)]
pub struct Asked {
    pub arrival: u64,
    pub spec: RequestSpec,
    /// Output after which the client finishes; beyond the budget it never does.
    pub output: i64,
    pub abort_after: Option<u64>,
}

impl World {
    pub fn random(role: Role, seed: u64) -> World {
        let r = &mut Random::new(seed ^ ((role as u64) << 60));
        let p = r.pick(&[2, 4, 8]);
        let parents = 4 + r.below(28) as i64;
        let width = r.pick(&[1, 1, 1, 2, 3, 4]);
        let replays = r.one_in(4);
        let mut cache_groups: Vec<_> =
            (0..1 + r.below(3)).map(|at| group(r, at, p, parents, replays)).collect();
        for group in &mut cache_groups {
            group.transfer_policy = match group.family {
                CacheGroupFamily::State => CacheTransferPolicy::LatestSnapshot,
                CacheGroupFamily::History => CacheTransferPolicy::FullSuffix,
            };
        }
        let num_host_pages = r.pick(&[0, 0, 3, 9, 40]);
        let mut config = SchedulerConfig {
            role,
            prefix_granularity: p,
            num_device_pages: parents + 1,
            num_host_pages,
            max_batch_size: 1 + r.below(8) as i64,
            decode_input_tokens: width,
            overlap_schedule_depth: r.below(2) as i64,
            cache_groups,
            disable_prefix_cache: r.one_in(6),
            disable_l2_cache: r.one_in(20),
            enable_mixed_prefill_decode: r.one_in(2),
            prefix_replay_tokens: r.pick(&[0, 0, 3]),
            enable_kv_cache_events: r.one_in(2),
            ..SchedulerConfig::default()
        };
        config.enable_l3_storage = config.has_host_tier() && r.one_in(2);
        let window = config.replay_window_tokens();
        config.max_scheduled_tokens =
            window + window.max(2 * p) + width * r.below(2) as i64 + r.below(24) as i64;
        config.max_scheduled_tokens = config.max_scheduled_tokens.max(width);
        let shared: Vec<i32> = (0..64).map(|_| r.below(50) as i32).collect();
        let requests = (0..2 + r.below(8)).map(|at| asked(r, at, &shared)).collect();
        World {
            seed,
            config,
            requests,
            ack_lag: r.pick(&[1, 3, 8]),
            peer_lag: r.pick(&[1, 4, 12]),
            loss: r.pick(&[0, 0, 40]),
            peer_loss: r.pick(&[0, 60, 300]),
            storage_loss: r.pick(&[0, 2, 6]),
        }
    }
}

fn asked(r: &mut Random, at: u64, shared: &[i32]) -> Asked {
    let common = r.below(40) as usize;
    let own = 1 + r.below(30);
    let mut tokens = shared[..common].to_vec();
    tokens.extend((0..own).map(|_| r.below(1000) as i32));
    let output = 1 + r.below(30) as i64;
    let declared = r.pick(&[0, output, output, output + 7]);
    let never_finishes = declared > 0 && r.one_in(8);
    Asked {
        arrival: r.below(12),
        spec: RequestSpec { request_id: format!("r{at}"), tokens, max_new_tokens: declared },
        output: if never_finishes { i64::MAX } else { output },
        abort_after: r.one_in(6).then(|| r.below(20)),
    }
}

fn group(r: &mut Random, at: u64, p: i64, parents: i64, replays: bool) -> CacheGroupConfig {
    let g = r.pick(&[1, 2, 4, 8]).min(p);
    let k = r.pick(&[1, 1, 2, 3]);
    let kind = if at == 0 { r.below(2) * 3 } else { r.below(3) };
    let replayable = replays && kind == 1;
    let (retention, window, family) = match kind {
        1 => {
            (CacheRetention::SlidingWindow, Some(1 + r.below(12) as i64), CacheGroupFamily::History)
        }
        // Nothing that is snapshotted goes beside what is re-fed.
        2 if !replays => (CacheRetention::FullHistory, None, CacheGroupFamily::State),
        _ => (CacheRetention::FullHistory, None, CacheGroupFamily::History),
    };
    CacheGroupConfig {
        group_id: format!("g{at}"),
        block_granularity: g,
        total_pages: parents * k + 1,
        retention,
        sliding_window_tokens: window,
        family,
        cache_blocks_per_lcm_block: k,
        replayable,
        ..CacheGroupConfig::default()
    }
}
