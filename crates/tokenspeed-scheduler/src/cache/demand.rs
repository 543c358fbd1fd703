//! What a step asks of one group, and how many slots that appends (`cache.md` §3).

use super::geometry::Geometry;

/// A group's demand. All token counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// `tokens` more behind what was demanded before, and `reserve` more to hold.
    Dense {
        /// Tokens that the step adds.
        tokens: i64,
        /// Tokens held beyond them.
        reserve: i64,
    },
    /// A decode step: the tokens up to `extent`, or `reserve` behind what was demanded before, if that is
    /// more.
    Step {
        /// Absolute end of what the step may write.
        extent: i64,
        /// What is asked for in place of the tokens that it needs.
        reserve: i64,
    },
    /// The slots from `first_slot` to the one that holds token `extent + reserve - 1`; all below
    /// the first that the table has not reached stay holes.
    SparseSuffix {
        /// Absolute end of the step's tokens.
        extent: i64,
        /// First slot that is filled.
        first_slot: usize,
        /// Tokens held beyond the extent.
        reserve: i64,
        /// Tokens beyond those for which room is kept, though no block is taken yet.
        promised: i64,
    },
}

/// Slots that a demand appends: holes first, then blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// Slots left empty.
    pub holes: usize,
    /// Slots that need a block.
    pub blocks: usize,
    /// Blocks behind them for which room is kept.
    pub promised: usize,
}

impl Demand {
    /// What the demand appends to a table of `slots` slots, `demanded` tokens of which are spoken for.
    pub fn growth(self, slots: usize, demanded: i64, geometry: &Geometry) -> Growth {
        let (extent, filled_from, promised) = match self {
            Demand::Dense { tokens, reserve } => (demanded + tokens + reserve, slots, 0),
            Demand::Step { .. } => (self.demanded_after(demanded), slots, 0),
            Demand::SparseSuffix { extent, first_slot, reserve, promised } => {
                (extent + reserve, first_slot.max(slots), promised)
            }
        };
        let end = geometry.slots_for(extent);
        Growth {
            holes: filled_from - slots,
            blocks: end.saturating_sub(filled_from),
            promised: geometry.slots_for(extent + promised) - end,
        }
    }

    /// The demanded end once it is met.
    pub fn demanded_after(self, demanded: i64) -> i64 {
        match self {
            Demand::Dense { tokens, .. } => demanded + tokens,
            Demand::Step { extent, reserve } => extent.max(demanded + reserve),
            Demand::SparseSuffix { extent, .. } => extent,
        }
    }
}
