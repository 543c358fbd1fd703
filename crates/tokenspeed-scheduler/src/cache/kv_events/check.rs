//! The consumer of cache events holds exactly what is resident, and no page is kept for nothing.

use super::KvEvents;
use crate::cache::geometry::Geometry;
use crate::cache::matcher::{self, Bounds};
use crate::cache::tier::Tier;
use crate::identity::PageId;

impl KvEvents {
    /// Compares what was told with what a probe finds of every known page's prompt, and counts blocks
    /// anew; `count` hears of each page that is named here. The first broken invariant, in words.
    pub fn check(
        &self,
        geometries: &[Geometry],
        device: &Tier,
        mut count: impl FnMut(PageId),
    ) -> Result<(), String> {
        let mut blocks = vec![0; self.nodes.len()];
        let mut needed = self.marked.clone();
        for group in 0..geometries.len() {
            let keys = device.block_ids(group).filter_map(|block| device.key(group, block));
            for key in keys {
                blocks[key.page.index()] += 1;
                needed.push(key.page);
            }
        }
        // What is needed, and everything before it, is known, and nothing else.
        let mut reached = vec![false; self.nodes.len()];
        let mut leaves = Vec::new();
        for page in needed {
            let mut at = Some(page);
            while let Some(page) = at.filter(|page| !reached[page.index()]) {
                reached[page.index()] = true;
                count(page);
                let node = &self.nodes[page.index()];
                if node.first_child.is_none() {
                    leaves.push(page);
                }
                at = node.parent;
            }
        }
        for (at, node) in self.nodes.iter().enumerate() {
            if node.blocks != blocks[at] {
                return Err(format!("page {at}: {} blocks counted of {}", node.blocks, blocks[at]));
            }
            if node.known != reached[at] {
                return Err(format!("page {at} is known for nothing, or needed and not known"));
            }
        }
        if !self.marked.is_empty() {
            return Ok(()); // The next drain is to tell.
        }
        let mut resident = vec![false; self.nodes.len()];
        for page in leaves {
            let chain = self.chain(page);
            let hit =
                matcher::probe(geometries, device, None::<&Tier>, &chain, Bounds::all_of(&chain))
                    .device_pages;
            chain[..hit].iter().for_each(|page| resident[page.index()] = true);
        }
        match (0..self.nodes.len()).find(|&at| self.nodes[at].resident != resident[at]) {
            Some(at) => Err(format!(
                "page {at} is {}, not as told",
                if resident[at] { "resident" } else { "gone" }
            )),
            None => Ok(()),
        }
    }

    /// The prompt that ends with the page.
    fn chain(&self, page: PageId) -> Vec<PageId> {
        let before = |page: &PageId| self.nodes[page.index()].parent;
        let mut chain: Vec<PageId> = std::iter::successors(Some(page), before).collect();
        chain.reverse();
        chain
    }
}
