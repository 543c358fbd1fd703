//! Matching (`cache.md` §5), by brute force over every boundary.

use super::tier::SlowTier;
use super::{Model, Shape};

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Pages on the Device for every group.
    pub device: usize,
    /// Pages on both tiers together.
    pub total: usize,
    /// Where a prompt's next chunk is to stop, in pages.
    pub promotion: Option<usize>,
}

impl Model {
    /// Probes for the first `bound` pages of `tokens`.
    pub fn probe(&self, tokens: &[i32], bound: usize) -> Found {
        let all = |tier: &SlowTier, from: usize, boundary: usize, closed_only: bool| {
            (0..self.groups.len())
                .filter(|&group| !closed_only || self.groups[group].shape == Shape::Full)
                .all(|group| self.resumes(tier, group, tokens, from, boundary))
        };
        let longest = |tier: &SlowTier, from: usize, closed_only: bool| {
            (from..=bound)
                .rev()
                .find(|&boundary| all(tier, from, boundary, closed_only))
                .unwrap_or(from)
        };
        let device = longest(&self.device, 0, false);
        let mut cover = longest(&self.device, 0, true);
        let mut total = device;
        if let Some(host) = &self.host {
            total = longest(host, device, false);
            cover = cover.max(longest(host, device, true));
        }
        let any_closed = self.groups.iter().any(|group| group.shape == Shape::Full);
        Found { device, total, promotion: (any_closed && cover > total).then_some(cover) }
    }

    /// Whether a group can resume at `boundary` (in pages), all below `from` being present.
    fn resumes(
        &self,
        tier: &SlowTier,
        group: usize,
        tokens: &[i32],
        from: usize,
        boundary: usize,
    ) -> bool {
        let per_page = self.per_page(group);
        let first = self.run_start(group, boundary).max(from * per_page);
        (first..boundary * per_page)
            .all(|slot| tier.index.contains_key(&self.key(group, tokens, slot)))
    }

    /// First slot of what a resume at `boundary` needs: everything in a full group, else the
    /// `ceil((W-1)/g)` blocks behind it or as many as there are.
    pub fn run_start(&self, group: usize, boundary: usize) -> usize {
        let end = (boundary * self.per_page(group)) as i64;
        match self.groups[group].window() {
            None => 0,
            Some(window) => (end - div_ceil(window - 1, self.groups[group].g)).max(0) as usize,
        }
    }
}

/// For non-negative numbers.
pub fn div_ceil(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}
