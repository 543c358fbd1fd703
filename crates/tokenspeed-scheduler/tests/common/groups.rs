//! Cache groups, each in a word.

use tokenspeed_scheduler::{
    CacheGroupConfig, CacheGroupFamily, CacheRetention, CacheTransferPolicy,
};

/// A full group of `g` tokens a block.
pub fn full(id: &str, g: i64) -> CacheGroupConfig {
    CacheGroupConfig {
        group_id: id.into(),
        block_granularity: g,
        total_pages: 1,
        transfer_policy: CacheTransferPolicy::FullSuffix,
        ..CacheGroupConfig::default()
    }
}

/// A sliding group of `window` tokens.
pub fn sliding(id: &str, g: i64, window: i64) -> CacheGroupConfig {
    CacheGroupConfig {
        retention: CacheRetention::SlidingWindow,
        sliding_window_tokens: Some(window),
        ..full(id, g)
    }
}

/// A group of recurrent states.
pub fn state(id: &str, g: i64) -> CacheGroupConfig {
    CacheGroupConfig {
        family: CacheGroupFamily::State,
        transfer_policy: CacheTransferPolicy::LatestSnapshot,
        ..full(id, g)
    }
}

/// The same group, `k` blocks an LCM block.
pub fn packed(group: CacheGroupConfig, k: i64) -> CacheGroupConfig {
    CacheGroupConfig { cache_blocks_per_lcm_block: k, ..group }
}
