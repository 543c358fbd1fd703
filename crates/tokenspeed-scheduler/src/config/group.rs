//! A cache group's configuration: what its blocks hold, how long, and how they are packed
//! (`api.md`; `cache.md` §1).

use serde::{Deserialize, Serialize};

use super::{Role, positive};
use crate::error::{Error, Result};

/// How much of a request's past a group keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum CacheRetention {
    /// All of it.
    #[default]
    FullHistory,
    /// The last `sliding_window_tokens`.
    SlidingWindow,
}

/// What a group's blocks hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum CacheGroupFamily {
    /// Keys and values, one row a token.
    #[default]
    History,
    /// One snapshot of a recurrent state a block.
    State,
}

/// What of a group a prefill worker ships to its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum CacheTransferPolicy {
    /// Not declared; refused on P and D.
    #[default]
    Unspecified,
    /// Every retained block: history groups.
    FullSuffix,
    /// The last snapshot alone: state groups.
    LatestSnapshot,
}

/// The three shapes that a group's retention and family come to (`cache.md` §1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// Every token's rows are kept; a prefix is closed: a match has no holes.
    Full,
    /// The rows of the last `window` tokens are kept.
    Sliding {
        /// W, at least 1.
        window: i64,
    },
    /// Snapshots of a recurrent state.
    State,
}

impl GroupKind {
    /// Tokens behind a boundary, itself included, that a resume there reads: a state group behaves
    /// as a window of two (`cache.md` §5). `None` for a full group, which needs everything.
    pub fn window_tokens(self) -> Option<i64> {
        match self {
            GroupKind::Full => None,
            GroupKind::Sliding { window } => Some(window),
            GroupKind::State => Some(2),
        }
    }
}

/// The cache of one attention structure: its geometry, retention and packing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheGroupConfig {
    /// Name, unique in the configuration.
    pub group_id: String,
    /// g: tokens one block covers; divides the prefix granularity.
    pub block_granularity: i64,
    /// Blocks in the runtime's arena, the null block included: usable parents times
    /// `cache_blocks_per_lcm_block`, plus 1. The runtime's number: the scheduler derives its own
    /// from `num_device_pages`, so it is only checked to hold the null block.
    pub total_pages: i64,
    /// How much of the past is kept.
    pub retention: CacheRetention,
    /// W: the window of a sliding group; ignored with full history.
    pub sliding_window_tokens: Option<i64>,
    /// Keys and values, or state snapshots.
    pub family: CacheGroupFamily,
    /// k: blocks that one LCM block (parent) carries.
    pub cache_blocks_per_lcm_block: i64,
    /// What a prefill worker ships; has to be declared on P and D.
    pub transfer_policy: CacheTransferPolicy,
    /// Shards that a parent's blocks are split over; divides `cache_blocks_per_lcm_block`.
    pub shard_count: i64,
    /// Whether the rows are regenerated from re-fed prompt tokens instead of cached
    /// (`scheduler.md` §1.3). Sliding history only.
    pub replayable: bool,
}

impl Default for CacheGroupConfig {
    fn default() -> Self {
        CacheGroupConfig {
            group_id: String::new(),
            block_granularity: 0,
            total_pages: 0,
            retention: CacheRetention::FullHistory,
            sliding_window_tokens: None,
            family: CacheGroupFamily::History,
            cache_blocks_per_lcm_block: 1,
            transfer_policy: CacheTransferPolicy::Unspecified,
            shard_count: 1,
            replayable: false,
        }
    }
}

impl CacheGroupConfig {
    /// Full, sliding or state. A sliding group without a window, which validation refuses, reads as
    /// one of window 0.
    pub fn kind(&self) -> GroupKind {
        match (self.retention, self.family) {
            (CacheRetention::SlidingWindow, _) => {
                GroupKind::Sliding { window: self.sliding_window_tokens.unwrap_or(0) }
            }
            (CacheRetention::FullHistory, CacheGroupFamily::State) => GroupKind::State,
            (CacheRetention::FullHistory, CacheGroupFamily::History) => GroupKind::Full,
        }
    }

    /// Refuses a group that no scheduler could use.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`], naming the field, the value and the rule.
    pub fn validate(&self) -> Result<()> {
        self.validate_shape()?;
        positive(self.field("total_pages"), self.total_pages, "the null block included")
    }

    /// Everything that is known before a pool exists: all but `total_pages`.
    pub(super) fn validate_shape(&self) -> Result<()> {
        if self.group_id.is_empty() {
            return Err(Error::config("cache_groups.group_id", "''", "not be empty"));
        }
        let g = self.block_granularity;
        positive(self.field("block_granularity"), g, "the tokens of one block")?;
        let k = self.cache_blocks_per_lcm_block;
        let k_field = self.field("cache_blocks_per_lcm_block");
        positive(k_field, k, "the blocks of one LCM block")?;
        positive(self.field("shard_count"), self.shard_count, "1 if the group is not sharded")?;
        if k % self.shard_count != 0 {
            let rule = format!("divide `cache_blocks_per_lcm_block` ({k})");
            return Err(Error::config(self.field("shard_count"), self.shard_count, &rule));
        }
        if self.retention == CacheRetention::SlidingWindow {
            let field = self.field("sliding_window_tokens");
            let Some(window) = self.sliding_window_tokens else {
                return Err(Error::config(field, "None", "be given for a sliding group"));
            };
            positive(field, window, "the tokens a sliding group keeps")?;
            if self.family == CacheGroupFamily::State {
                let rule = "be History for a sliding group: a State group keeps snapshots and rides \
                            FullHistory retention";
                return Err(Error::config(self.field("family"), "State", rule));
            }
        } else if self.replayable {
            let rule = "be False unless the group is a sliding History group: what full history \
                        shares cannot be regenerated from a window";
            return Err(Error::config(self.field("replayable"), "True", rule));
        }
        Ok(())
    }

    /// On P and D the transfer policy has to say what the destination lays out: a state group its
    /// latest snapshot, every other group its suffix.
    pub(super) fn validate_transfer(&self, role: Role) -> Result<()> {
        let expected = match self.kind() {
            GroupKind::State => CacheTransferPolicy::LatestSnapshot,
            GroupKind::Full | GroupKind::Sliding { .. } => CacheTransferPolicy::FullSuffix,
        };
        if !role.transfers() || self.transfer_policy == expected {
            return Ok(());
        }
        let value = format!("{:?}", self.transfer_policy);
        let rule = format!("be {expected:?} for this kind of group on role {role:?}");
        Err(Error::config(self.field("transfer_policy"), value, &rule))
    }

    /// The name of one of its fields in an error.
    pub(super) fn field(&self, name: &str) -> String {
        format!("cache_groups['{}'].{name}", self.group_id)
    }
}
