//! Matching: the longest prefix that every group can resume from (`cache.md` §5). Lengths are in
//! prefix pages, so every bound is rounded to P by construction.

use std::ops::Range;

use super::geometry::{Geometry, GroupIndex, HOLE};
use super::tier::Tier;
use crate::config::GroupKind;
use crate::identity::PageId;

/// What a probe found; slots are those of the request's tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hit {
    /// Pages that the Device holds for every group.
    pub device_pages: usize,
    /// Pages that Device and Host together hold for every group; at least `device_pages`.
    pub total_pages: usize,
    /// End, in pages, of what the prefix-closed groups alone cover, where that is more than
    /// `total_pages`: the promotion boundary.
    pub promotion_boundary_pages: Option<usize>,
    /// Pages from here on could change without changing the hit.
    pub horizon_pages: usize,
    /// Whether the Host had no place for more that could be fetched: once it has, the hit is longer, and
    /// nobody is told.
    pub lacks_host_place: bool,
    /// One a group.
    pub groups: Vec<GroupHit>,
}

/// The slots of one group that a hit claims; all others below its end are holes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupHit {
    /// Slots claimed on the Device.
    pub device: Range<usize>,
    /// Slots to be loaded from the Host, above the Device's; holes lie between.
    pub host: Range<usize>,
}

impl Hit {
    /// A hit of nothing, for `groups` groups.
    pub fn none(groups: usize) -> Hit {
        Hit { groups: vec![GroupHit::default(); groups], ..Hit::default() }
    }

    /// Blocks to be loaded from the Host into a group.
    pub fn host_blocks(&self, group: GroupIndex) -> usize {
        self.groups[group].host.len()
    }
}

/// What a tier can give: its own blocks, and of the Host's those that must first be fetched.
pub trait Holds {
    /// Whether the block of that page and ordinal is to be had.
    fn has(&self, group: GroupIndex, page: PageId, ordinal: usize) -> bool;

    /// Whether every block of the group in that page is.
    fn has_page(&self, group: GroupIndex, page: PageId) -> bool;
}

impl Holds for Tier {
    fn has(&self, group: GroupIndex, page: PageId, ordinal: usize) -> bool {
        self.lookup(group, page, ordinal) != HOLE
    }

    fn has_page(&self, group: GroupIndex, page: PageId) -> bool {
        Tier::has_page(self, group, page)
    }
}

/// How far a probe may reach, in pages.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// For the prefix-closed groups alone.
    pub cover: usize,
    /// For all groups together.
    pub total: usize,
}

impl Bounds {
    /// As far as the pages go.
    pub fn all_of(pages: &[PageId]) -> Bounds {
        Bounds { cover: pages.len(), total: pages.len() }
    }
}

/// Matches `pages` against both tiers; `pages` is already cut to the probe's bound, and `bounds` cut what
/// the Host may add.
pub fn probe<H: Holds>(
    geometries: &[Geometry],
    device: &Tier,
    host: Option<&H>,
    pages: &[PageId],
    bounds: Bounds,
) -> Hit {
    let matched = |geometry: &Geometry| !geometry.replayable;
    let on_device = converge(geometries, matched, Bounds::all_of(pages), |group, bound| {
        match_group(&geometries[group], group, device, pages, 0, bound)
    });
    let from = on_device.common;
    let on_both = match host {
        Some(host) => converge(geometries, matched, bounds, |group, bound| {
            match_group(&geometries[group], group, host, pages, from, bound)
        }),
        None => Converged { common: from, closed_cover: from },
    };
    let total = on_both.common;
    let cover = on_device.closed_cover.max(on_both.closed_cover);
    let any_closed = geometries.iter().any(Geometry::is_prefix_closed);
    Hit {
        horizon_pages: if any_closed { (cover + 1).min(pages.len()) } else { pages.len() },
        lacks_host_place: false,
        device_pages: from,
        total_pages: total,
        promotion_boundary_pages: (cover > total).then_some(cover),
        groups: geometries.iter().map(|geometry| claim(geometry, from, total)).collect(),
    }
}

/// Matches `pages` for a prompt that a peer will compute and land whole: on the Device alone, and without
/// the recurrent states, whose slots stay holes (`cache.md` §5). It stops at no promotion boundary.
pub fn probe_landing(geometries: &[Geometry], device: &Tier, pages: &[PageId]) -> Hit {
    let is_state = |geometry: &Geometry| geometry.kind == GroupKind::State;
    let matched = |geometry: &Geometry| !geometry.replayable && !is_state(geometry);
    let hit = converge(geometries, matched, Bounds::all_of(pages), |group, bound| {
        match_group(&geometries[group], group, device, pages, 0, bound)
    });
    let claim = |geometry| match is_state(geometry) {
        true => {
            let end = geometry.hit_slots(hit.common);
            GroupHit { device: end..end, host: end..end }
        }
        false => claim(geometry, hit.common, hit.common),
    };
    Hit {
        device_pages: hit.common,
        total_pages: hit.common,
        promotion_boundary_pages: None,
        lacks_host_place: false,
        horizon_pages: pages.len(),
        groups: geometries.iter().map(claim).collect(),
    }
}

/// What each tier's match reads: the run behind the Device's length, and, if the Host reaches further,
/// the part beyond it of the run behind that.
fn claim(geometry: &Geometry, device_pages: usize, total_pages: usize) -> GroupHit {
    if geometry.replayable {
        return GroupHit::default();
    }
    let device_end = device_pages * geometry.blocks_per_page;
    let end = total_pages * geometry.blocks_per_page;
    let device = geometry.run_start(device_pages)..device_end;
    let host = geometry.run_start(total_pages).max(device_end)..end;
    GroupHit { device, host }
}

struct Converged {
    common: usize,
    /// What the closed groups alone cover; `common` where no group is closed.
    closed_cover: usize,
}

/// Closed groups first, then the others within what those settled, until no group sits above the bound.
fn converge(
    geometries: &[Geometry],
    matched: impl Fn(&Geometry) -> bool,
    bounds: Bounds,
    longest: impl Fn(GroupIndex, usize) -> usize,
) -> Converged {
    let matched = &matched;
    let groups = |closed: bool| {
        (0..geometries.len()).filter(move |&group| {
            matched(&geometries[group]) && geometries[group].is_prefix_closed() == closed
        })
    };
    if groups(true).chain(groups(false)).next().is_none() {
        // Nothing is cached that could be resumed from.
        return Converged { common: 0, closed_cover: 0 };
    }
    let closed_cover = groups(true).fold(bounds.cover, |bound, group| longest(group, bound));
    let mut common = closed_cover.min(bounds.total);
    loop {
        let settled = groups(false).fold(common, |bound, group| longest(group, bound));
        if settled == common {
            break;
        }
        common = settled;
    }
    let any_closed = groups(true).next().is_some();
    Converged { common, closed_cover: if any_closed { closed_cover } else { common } }
}

/// The highest page in `from..=bound` where the group can resume; pages below `from` are taken as present.
fn match_group(
    geometry: &Geometry,
    group: GroupIndex,
    tier: &impl Holds,
    pages: &[PageId],
    from: usize,
    bound: usize,
) -> usize {
    let Some(lookback) = geometry.lookback_blocks else {
        let miss = pages[from..bound].iter().position(|&page| !tier.has_page(group, page));
        return miss.map_or(bound, |at| from + at);
    };
    let per_page = geometry.blocks_per_page;
    // Walk slots from the right; `run` counts the present ones since the last miss, whose left end
    // is `slot`. The first page boundary with its whole run behind it wins.
    let mut boundary = bound;
    let mut slot = bound * per_page;
    while boundary > from {
        let needed_from = (boundary * per_page).saturating_sub(lookback).max(from * per_page);
        if slot <= needed_from {
            return boundary;
        }
        let next = slot - 1;
        if tier.has(group, pages[next / per_page], next % per_page) {
            slot = next;
        } else {
            // A miss at `next`: no boundary whose run holds it can win.
            boundary = next / per_page;
            slot = slot.min(boundary * per_page);
            // Slots between the new boundary and the miss need no look: the run ends at the boundary.
        }
    }
    from
}
