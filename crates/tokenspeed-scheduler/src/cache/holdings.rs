//! What one request holds of the cache, and how far it has published (`cache.md` §3 and §6).

use super::geometry::{Geometry, GroupIndex};
use super::table::Table;
use super::unproven::Basis;
use crate::identity::PageId;

/// A request's tables and publication progress. They change when an admission succeeds and at no
/// other time (`scheduler.md` §2): a refused one leaves both untouched. What it rests on (`forwards`,
/// `rests_on`, `torn`) follows results and words in between.
///
/// What every decode step reads comes first, as in a [`Request`](crate::request::Request).
#[derive(Debug, Default)]
#[repr(C)]
pub struct Holdings {
    /// Decode steps up to this extent are known to need no admission; 0 where nothing is known.
    pub in_place_tokens: i64,
    /// Tokens `[0, stepped_tokens)` have been asked for in every group by steps in place.
    pub stepped_tokens: i64,
    /// Row of the request pool; 0 while the request holds nothing.
    pub row: i32,
    /// Publishes nothing: cached leftovers of its own would keep it from fitting.
    pub uncached: bool,
    /// Some of what it rests on will not come, and a peer is at work: what it holds is not what its
    /// tokens say.
    pub torn: bool,
    /// One a group.
    pub groups: Vec<GroupHolding>,
    /// Prefix pages whose publication an admission has carried.
    pub published_pages: usize,
    /// Access epoch that the first admission issued.
    pub epoch: u64,
    /// Where the prompt's chunk is to stop so that all groups publish there, in tokens.
    pub promotion_boundary: Option<i64>,
    /// Aligned boundaries whose state an admitted prefill window materializes, in tokens, and that no
    /// successful admission has covered yet (`scheduler.md` §1.2).
    pub state_boundaries: Vec<i64>,
    /// Forwards over its prompt whose results are out, oldest first.
    pub forwards: Vec<Basis>,
    /// What it hit, and so it, rests on; some of it may be proven.
    pub rests_on: Vec<Basis>,
}

/// One group's part.
#[derive(Debug, Default)]
pub struct GroupHolding {
    /// The slots.
    pub table: Table,
    /// Tokens `[0, demanded_tokens)` have been asked for by admissions
    /// ([`Holdings::demanded_tokens`] counts steps in place as well).
    pub demanded_tokens: i64,
    /// Blocks that its next admission will take, and for which others leave room.
    pub promised_blocks: i64,
}

impl Holdings {
    /// Nothing, for `groups` groups.
    pub fn none(groups: usize) -> Holdings {
        Holdings {
            groups: (0..groups).map(|_| GroupHolding::default()).collect(),
            ..Holdings::default()
        }
    }

    /// Tokens `[0, demanded_tokens)` of a group have been asked for; what its slots hold beyond is
    /// available.
    pub fn demanded_tokens(&self, group: GroupIndex) -> i64 {
        self.groups[group].demanded_tokens.max(self.stepped_tokens)
    }

    /// Notes up to where decode steps of `width` tokens are sure to need no admission, which they do
    /// when they need a block, complete a page or expire a slot (`cache.md` §3). As long as
    /// nothing is given up, that holds whatever else happens.
    pub fn look_ahead(&mut self, geometries: &[Geometry], granularity: i64, width: i64) {
        // What a step computed ends a width before its extent, or earlier.
        let before = |computed: i64| computed - 1 + width;
        let page_end = (self.published_pages as i64 + 1) * granularity;
        let extents = geometries.iter().zip(&self.groups).map(|(geometry, held)| {
            let owned = held.table.len() as i64 * geometry.block_granularity;
            owned.min(geometry.expires_at(held.table.first_live()).map_or(i64::MAX, before))
        });
        self.in_place_tokens = extents.min().unwrap_or(i64::MAX).min(before(page_end));
    }

    /// At least as many as the parents that its retraction is sure to make available.
    pub fn releasable_at_most(&self) -> usize {
        self.groups.iter().map(|held| held.table.held_at_most()).sum()
    }

    /// Whether any admission is held.
    pub fn is_resident(&self) -> bool {
        self.row != 0
    }
}

/// What a request computed since its previous admission (`scheduler.md` §1): the admission publishes
/// it and lets go what retention has passed.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The complete pages within the computed tokens, from the first on.
    pub pages: &'a [PageId],
    /// The request's tokens: those of `pages`, and more.
    pub tokens: &'a [i32],
    /// The exact computed frontier.
    pub computed_tokens: i64,
    /// The rebased prompt's length: where an endpoint lies.
    pub prompt_tokens: i64,
    /// What computed it.
    pub by: Computed,
}

/// What a request's computed pages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Computed {
    /// A prefill that goes on: its pages of full groups, and its states, stream to the Host at once.
    Prefill,
    /// A decode: it records no states.
    Decode,
    /// Anything, and the request ends: what is published last is an endpoint to come back to, and the
    /// store is made of all that is cached.
    Finish,
    /// Anything, and the request gives way: a state is kept to come back to; what was published before
    /// stays what it was.
    Retraction,
}

impl Progress<'_> {
    /// Nothing computed yet: a first admission's.
    pub const NONE: Progress<'static> = Progress {
        pages: &[],
        tokens: &[],
        computed_tokens: 0,
        prompt_tokens: 0,
        by: Computed::Prefill,
    };
}
