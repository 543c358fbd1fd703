//! A cache group's numbers: the one place where tokens and blocks meet (`cache.md` §1).

use crate::config::{CacheGroupConfig, GroupKind};

/// Index of a cache group in the configuration.
pub type GroupIndex = usize;

/// Id of a cache block within its group: `1 + (parent - 1) * k + slot`; 0 is the null block, a hole.
pub type BlockId = u32;

/// The null block.
pub const HOLE: BlockId = 0;

/// What a group's blocks are and how they are laid out. Tokens unless a name says otherwise.
#[derive(Debug, Clone)]
pub struct Geometry {
    /// Full, sliding or state.
    pub kind: GroupKind,
    /// g: tokens a block covers.
    pub block_granularity: i64,
    /// k: blocks of this group that one parent carries.
    pub blocks_per_parent: u32,
    /// P / g: blocks in one prefix page.
    pub blocks_per_page: usize,
    /// Blocks behind a boundary that resuming there needs; `None` for a prefix-closed group, which
    /// needs all of them (`cache.md` §5).
    pub lookback_blocks: Option<usize>,
    /// Whether its rows are regenerated from re-fed tokens: it is never matched, published or
    /// streamed (`scheduler.md` §1.3).
    pub replayable: bool,
}

impl Geometry {
    /// Blocks of the group that so many parents hold.
    pub fn blocks_in(&self, parents: i64) -> i64 {
        parents * i64::from(self.blocks_per_parent)
    }

    /// The geometry of a validated group configuration.
    pub fn new(config: &CacheGroupConfig, prefix_granularity: i64) -> Geometry {
        let kind = config.kind();
        let g = config.block_granularity;
        Geometry {
            kind,
            block_granularity: g,
            blocks_per_parent: config.cache_blocks_per_lcm_block as u32,
            blocks_per_page: (prefix_granularity / g) as usize,
            lookback_blocks: kind.window_tokens().map(|w| ((w - 1 + g - 1) / g) as usize),
            replayable: config.replayable,
        }
    }

    /// Whether a hit must reach back to the first token.
    pub fn is_prefix_closed(&self) -> bool {
        self.lookback_blocks.is_none()
    }

    /// Slots of a table that a hit of so many pages accounts for, as blocks or as holes.
    pub fn hit_slots(&self, pages: usize) -> usize {
        if self.replayable { 0 } else { pages * self.blocks_per_page }
    }

    /// Slots that cover `tokens`, the last one perhaps in part.
    pub fn slots_for(&self, tokens: i64) -> usize {
        ((tokens + self.block_granularity - 1) / self.block_granularity) as usize
    }

    /// The slots below this one are out of reach of every query at or after `computed` tokens
    /// (`cache.md` §6); 0 for a full group.
    pub fn first_retained_slot(&self, computed: i64) -> usize {
        self.expires_below(computed).unwrap_or(0)
    }

    /// The same, `None` for a full group, none of whose slots ever expires.
    pub fn expires_below(&self, computed: i64) -> Option<usize> {
        let window = self.kind.window_tokens()?;
        Some(((computed - window + 1).max(0) / self.block_granularity) as usize)
    }

    /// The computed tokens from which a slot is out of reach; `None` for a full group.
    pub fn expires_at(&self, slot: usize) -> Option<i64> {
        let window = self.kind.window_tokens()?;
        Some((slot as i64 + 1) * self.block_granularity + window - 1)
    }

    /// First slot of the run that a resume at `boundary_pages` reads.
    pub fn run_start(&self, boundary_pages: usize) -> usize {
        let end = boundary_pages * self.blocks_per_page;
        self.lookback_blocks.map_or(0, |run| end.saturating_sub(run))
    }
}
